//! What a key answers and holds, by the letter of the design.

use crate::buckets::Bucket;
use crate::logs::Log;
use crate::rules::{first, remaining, reset_us, Account, Family, Numbers};
use crate::windows::{Fixed, Sliding};
use sluice_core::limiter::Algorithm;
use sluice_core::Error;

#[derive(Clone, Debug)]
pub(crate) enum Used {
    Bucket(Bucket),
    Fixed(Fixed),
    Sliding(Sliding),
    Log(Log),
}

/// The five integers, times in µs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) allowed: bool,
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    pub(crate) wait_us: u128,
    pub(crate) reset_us: u128,
}

/// What a command does to the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// `until`: the TTL must reach this millisecond.
    Nothing {
        until: Option<u64>,
    },
    Changed {
        must_send: bool,
        until: Option<u64>,
    },
    New,
    Gone,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) used: Option<Used>,
    /// From when to when everything is denied.
    pub(crate) block: Option<(u64, u64)>,
}

impl Used {
    fn unused(numbers: &Numbers, now: u64) -> Used {
        match numbers.family() {
            Family::Bucket => Used::Bucket(Bucket::unused(numbers, now)),
            Family::FixedWindow => Used::Fixed(Fixed::unused(numbers, now)),
            Family::SlidingWindow => Used::Sliding(Sliding::unused(numbers, now)),
            Family::SlidingLog => Used::Log(Log::unused(numbers)),
        }
    }

    pub(crate) fn account(&self) -> &dyn Account {
        match self {
            Used::Bucket(bucket) => bucket,
            Used::Fixed(window) => window,
            Used::Sliding(window) => window,
            Used::Log(log) => log,
        }
    }

    fn account_mut(&mut self) -> &mut dyn Account {
        match self {
            Used::Bucket(bucket) => bucket,
            Used::Fixed(window) => window,
            Used::Sliding(window) => window,
            Used::Log(log) => log,
        }
    }

    /// When a charge that can never fit no longer matters.
    fn charge_ends_us(&self, before: &Used, numbers: &Numbers, cost: u64, now: u64) -> u128 {
        match before {
            Used::Bucket(bucket) => bucket.overdraft_us(numbers, cost, now),
            _ => reset_us(self.account(), numbers, now),
        }
    }
}

impl Model {
    pub(crate) fn is_nothing(&self) -> bool {
        self.used.is_none() && self.block.is_none()
    }

    /// For how long everything is denied: after a step back at most the whole block.
    pub(crate) fn blocked_us(&self, now: u64) -> u64 {
        match self.block {
            Some((from, until)) if from > now => until - from,
            Some((_, until)) => until.saturating_sub(now),
            None => 0,
        }
    }

    /// What is used as this policy sees it, moved to now if it lies ahead of the clock, and
    /// whether that is what the key holds.
    fn find(&self, numbers: &Numbers, now: u64) -> Result<(Used, bool), Error> {
        let Some(mut used) = self.used.clone() else {
            return Ok((Used::unused(numbers, now), false));
        };
        used.account_mut().step_back(now);
        let own = used.account().numbers();
        if own.family() == numbers.family() {
            return Ok((used, true));
        }
        if !used.account().fits(own, own.limit, now.into()) {
            return Err(Error::OtherAlgorithm {
                holds: own.family().name(),
                wanted: numbers.family().name(),
            });
        }
        Ok((Used::unused(numbers, now), false))
    }

    fn blocked(&self, answer: Answer, now: u64) -> Answer {
        let block_us = u128::from(self.blocked_us(now));
        if block_us == 0 {
            return answer;
        }
        // Nobody is to hold what is not admitted.
        let wait_us = if answer.allowed { 0 } else { answer.wait_us };
        Answer {
            allowed: false,
            limit: answer.limit,
            remaining: 0,
            wait_us: wait_us.max(block_us),
            reset_us: answer.reset_us.max(block_us),
        }
    }

    /// What a call that fits after `wait_us` is answered when `after` is used.
    fn answer(
        before: &Used,
        after: &Used,
        numbers: &Numbers,
        now: u64,
        wait_us: Option<u128>,
    ) -> Answer {
        let hold_us = match numbers.algorithm {
            Algorithm::LeakyBucket => reset_us(before.account(), numbers, now),
            _ => 0,
        };
        Answer {
            allowed: wait_us.is_none(),
            limit: numbers.limit,
            remaining: remaining(after.account(), numbers, now),
            wait_us: wait_us.unwrap_or(hold_us),
            reset_us: reset_us(after.account(), numbers, now),
        }
    }

    fn wait_us(used: &Used, numbers: &Numbers, cost: u64, now: u64) -> Option<u128> {
        let account = used.account();
        let fits = |then| account.fits(numbers, cost, then);
        (!fits(now.into())).then(|| first(now, fits))
    }

    pub(crate) fn peek(&self, numbers: &Numbers, cost: u64, now: u64) -> Result<Answer, Error> {
        let (used, _) = self.find(numbers, now)?;
        let wait_us = Model::wait_us(&used, numbers, cost, now);
        let answer = Model::answer(&used, &used, numbers, now, wait_us);
        Ok(self.blocked(answer, now))
    }

    pub(crate) fn call(
        &mut self,
        numbers: &Numbers,
        cost: u64,
        now: u64,
    ) -> Result<(Answer, Done), Error> {
        let peeked = self.peek(numbers, cost, now)?;
        if !peeked.allowed {
            return Ok((peeked, self.refuse(numbers, now)?));
        }
        self.charge(numbers, cost, now)
    }

    pub(crate) fn charge(
        &mut self,
        numbers: &Numbers,
        cost: u64,
        now: u64,
    ) -> Result<(Answer, Done), Error> {
        let (before, is_stored) = self.find(numbers, now)?;
        let mut after = before.clone();
        let spent = after.account_mut().spend(numbers, cost, now);
        spent.map_err(|()| Error::ChargeTooLarge)?;
        let wait_us = match cost <= numbers.limit {
            true => Model::wait_us(&before, numbers, cost, now),
            false => Some(after.charge_ends_us(&before, numbers, cost, now)),
        };
        let answer = Model::answer(&before, &after, numbers, now, wait_us);
        let done = match self.is_nothing() {
            true => Done::New,
            false => Done::Changed {
                must_send: !is_stored || !numbers.is_as(before.account().numbers()),
                until: None,
            },
        };
        let answer = self.blocked(answer, now);
        self.used = Some(after);
        self.tidy_block(now);
        Ok((answer, done))
    }

    /// A call that is denied: only what lies ahead of the clock changes.
    pub(crate) fn refuse(&mut self, numbers: &Numbers, now: u64) -> Result<Done, Error> {
        let (found, is_stored) = self.find(numbers, now)?;
        let mut until = None;
        let mut is_ahead = false;
        if let (Some(used), true) = (&mut self.used, is_stored) {
            let own = found.account().numbers();
            if !numbers.is_as(own) {
                let ends_us = u128::from(now) + reset_us(found.account(), numbers, now);
                until = Some(ends_us.div_ceil(1000).min((1 << 53) - 1) as u64);
            }
            is_ahead = used.account_mut().step_back(now);
        }
        is_ahead |= self.step_block_back(now);
        Ok(match is_ahead {
            true => Done::Changed {
                must_send: true,
                until,
            },
            false => Done::Nothing { until },
        })
    }

    pub(crate) fn refund(
        &mut self,
        numbers: &Numbers,
        cost: u64,
        now: u64,
    ) -> Result<(Answer, Done), Error> {
        let (mut used, is_stored) = self.find(numbers, now)?;
        let is_full = |used: &Used| used.account().fits(numbers, numbers.limit, now.into());
        let mut done = Done::Nothing { until: None };
        if !is_full(&used) {
            assert!(is_stored);
            used.account_mut().refund(numbers, cost, now);
        }
        let answer = self.blocked(Model::answer(&used, &used, numbers, now, None), now);
        let answer = Answer {
            wait_us: self.blocked_us(now).into(),
            ..answer
        };
        let (before, _) = self.find(numbers, now)?;
        if !is_full(&before) {
            self.used = (!is_full(&used)).then_some(used);
            self.tidy_block(now);
            done = match self.is_nothing() {
                true => Done::Gone,
                false => Done::Changed {
                    must_send: true,
                    until: None,
                },
            };
        } else if self.step_block_back(now) {
            done = Done::Changed {
                must_send: true,
                until: None,
            };
        }
        Ok((answer, done))
    }

    pub(crate) fn block(&mut self, ms: u64, now: u64) -> (u64, Done) {
        let must_send = true;
        let changed = Done::Changed {
            must_send,
            until: None,
        };
        let (standing_us, asked_us) = (self.blocked_us(now), ms * 1000);
        let mut is_ahead = self.step_block_back(now);
        if let Some(used) = &mut self.used {
            is_ahead |= used.account_mut().step_back(now);
        }
        if standing_us >= asked_us {
            let done = match is_ahead {
                true => changed,
                false => Done::Nothing { until: None },
            };
            return (standing_us, done);
        }
        let done = if self.is_nothing() {
            Done::New
        } else {
            changed
        };
        self.block = Some((now, now + asked_us));
        (asked_us, done)
    }

    fn step_block_back(&mut self, now: u64) -> bool {
        match &mut self.block {
            Some((from, until)) if *from > now => {
                (*from, *until) = (now, now + (*until - *from));
                true
            }
            _ => false,
        }
    }

    /// Every change drops a block that is over.
    fn tidy_block(&mut self, now: u64) {
        self.step_block_back(now);
        if self.blocked_us(now) == 0 {
            self.block = None;
        }
    }

    /// The stored form; nothing: no key.
    pub(crate) fn bytes(&self) -> Option<Vec<u8>> {
        if self.is_nothing() {
            return None;
        }
        let mut bytes = vec![1];
        if let Some((from, until)) = self.block {
            bytes.push(4);
            bytes.extend(from.to_le_bytes());
            bytes.extend(until.to_le_bytes());
        }
        match &self.used {
            Some(used) => bytes.extend(used.account().bytes()),
            None => bytes.push(5),
        }
        Some(bytes)
    }
}
