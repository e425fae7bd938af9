//! A key as the module keeps it, beside the model of it and replicas that get its effects.

use crate::model::{Answer, Done, Model};
use crate::rules::Numbers;
use crate::steps::{Act, Step};
use proptest::prelude::*;
use sluice_core::limiter::{Change, LimiterEffect, Verdict};
use sluice_core::{Error, Limiter, Micros, Millis, State};

pub(crate) fn bytes_of(stored: Option<&Limiter>) -> Option<Vec<u8>> {
    stored.map(|stored| stored.to_stored().as_bytes().to_vec())
}

#[derive(Default)]
pub(crate) struct Key {
    pub(crate) stored: Option<Limiter>,
    pub(crate) ttl: Option<Millis>,
    pub(crate) model: Model,
    /// Gets each effect once.
    replica: Option<Limiter>,
    /// Gets each twice, the second time as a copy that came late.
    twice: Option<Limiter>,
    /// Clones of what was stored, and what they were.
    copies: Vec<(Limiter, Vec<u8>)>,
}

fn done(change: &Change) -> Done {
    let ms = |until: Option<Millis>| until.map(|ms| ms.0);
    match change {
        Change::None { until } => Done::Nothing { until: ms(*until) },
        Change::Changed { must_send, until } => Done::Changed {
            must_send: *must_send,
            until: ms(*until),
        },
        Change::New(_) => Done::New,
        Change::Gone => Done::Gone,
    }
}

fn answer(verdict: &Verdict) -> Answer {
    Answer {
        allowed: verdict.allowed,
        limit: verdict.limit,
        remaining: verdict.remaining,
        wait_us: verdict.wait_us,
        reset_us: verdict.reset_us,
    }
}

/// The effect that `bytes` are, applied to a replica.
pub(crate) fn receive(replica: &mut Option<Limiter>, bytes: &[u8], now: u64) {
    let (effect, sent_at) = LimiterEffect::decode(bytes).unwrap();
    assert_eq!(sent_at, Micros(now));
    if let Some(limiter) = Limiter::apply(replica.as_mut(), effect) {
        *replica = Some(limiter);
    }
}

impl Key {
    /// With a state that has a model, as a RESTORE makes it.
    pub(crate) fn restored(model: Model) -> Key {
        let bytes = model.bytes().unwrap();
        let stored = Limiter::from_stored(&bytes).unwrap();
        let ttl = Some(stored.matters_until().plus(Limiter::TTL_SLACK_MS));
        Key {
            ttl,
            model,
            replica: Some(stored.clone()),
            twice: Some(stored.clone()),
            stored: Some(stored),
            copies: Vec::new(),
        }
    }

    /// The server removes a key whose TTL is over.
    pub(crate) fn expire(&mut self, now: u64) {
        if self.ttl.is_some_and(|ttl| Micros(now).floor_ms() > ttl) {
            *self = Key::default();
        }
    }

    pub(crate) fn act(
        &mut self,
        step: &Step,
        numbers: &Numbers,
        cost: u64,
        now: u64,
    ) -> Result<Option<Verdict>, TestCaseError> {
        let bytes_before = bytes_of(self.stored.as_ref());
        let policy = numbers.policy();
        let at = Micros(now);

        let asked = cost.min(numbers.limit);
        let peeked = Limiter::peek(self.stored.as_ref(), &policy, asked, at);
        let expected = self.model.peek(numbers, asked, now);
        prop_assert_eq!(peeked.map(|verdict| answer(&verdict)), expected);
        prop_assert_eq!(bytes_of(self.stored.as_ref()), bytes_before.clone());

        let stored = self.stored.as_mut();
        let (verdict, change) = match step.act {
            Act::Call => split(Limiter::decide(stored, &policy, cost, at)),
            Act::Charge => split(Limiter::charge(stored, &policy, cost, at)),
            Act::Refund => split(Limiter::refund(stored, &policy, cost, at)),
            Act::Refuse => (Ok(None), Limiter::refuse(stored, &policy, at)),
            Act::Block(ms) => {
                let (penalty, change) = Limiter::block(stored, ms, at);
                let left_us = penalty.left_us;
                let (expected, done_by_model) = self.model.block(ms, now);
                prop_assert_eq!(left_us, expected);
                prop_assert_eq!(done(&change), done_by_model);
                self.commit(change, now, &bytes_before)?;
                return Ok(None);
            }
        };
        let (expected, expected_done) = match step.act {
            Act::Call => split_model(self.model.call(numbers, cost, now)),
            Act::Charge => split_model(self.model.charge(numbers, cost, now)),
            Act::Refund => split_model(self.model.refund(numbers, cost, now)),
            Act::Refuse | Act::Block(_) => (Ok(None), self.model.refuse(numbers, now)),
        };
        let answered = verdict.map(|verdict| verdict.as_ref().map(answer));
        prop_assert_eq!(answered, expected);
        prop_assert_eq!(change.as_ref().map(done).map_err(|e| *e), expected_done);
        let Ok(change) = change else {
            prop_assert_eq!(bytes_of(self.stored.as_ref()), bytes_before);
            return Ok(None);
        };
        self.commit(change, now, &bytes_before)?;
        let verdict = verdict.unwrap();
        if let (Act::Call, Some(verdict), Ok(peeked)) = (&step.act, &verdict, &peeked) {
            check_peek(peeked, verdict)?;
            self.check_promises(numbers, cost, now, verdict)?;
        }
        if let Some(verdict) = &verdict {
            self.check_ttl(now, verdict)?;
        }
        Ok(verdict)
    }

    /// As `src/limiters.rs` does.
    fn commit(
        &mut self,
        change: Change,
        now: u64,
        bytes_before: &Option<Vec<u8>>,
    ) -> Result<(), TestCaseError> {
        let until = match change {
            Change::None { until } => {
                prop_assert_eq!(&bytes_of(self.stored.as_ref()), bytes_before);
                self.outlive(until);
                None
            }
            Change::Changed { until, .. } => {
                self.publish(now);
                until
            }
            Change::New(limiter) => {
                prop_assert!(self.stored.is_none());
                self.stored = Some(limiter);
                self.publish(now);
                None
            }
            Change::Gone => {
                (self.stored, self.ttl) = (None, None);
                (self.replica, self.twice) = (None, None);
                None
            }
        };
        self.outlive(until);
        let bytes = bytes_of(self.stored.as_ref());
        prop_assert_eq!(&bytes, &self.model.bytes());
        prop_assert_eq!(&bytes_of(self.replica.as_ref()), &bytes);
        prop_assert_eq!(&bytes_of(self.twice.as_ref()), &bytes);
        self.check_copies(now)
    }

    fn publish(&mut self, now: u64) {
        let stored = self.stored.as_ref().unwrap();
        let needed = stored.matters_until();
        let slack = needed..=needed.plus(Limiter::TTL_SLACK_MS);
        if !self.ttl.is_some_and(|ttl| slack.contains(&ttl)) {
            self.ttl = Some(needed.plus(Limiter::TTL_SLACK_MS));
        }
        let effect = stored.to_effect(Micros(now));
        receive(&mut self.replica, effect.as_bytes(), now);
        receive(&mut self.twice, effect.as_bytes(), now);
        receive(&mut self.twice, effect.as_bytes(), now);
    }

    fn outlive(&mut self, until: Option<Millis>) {
        if let (Some(until), Some(ttl)) = (until, self.ttl) {
            self.ttl = Some(if ttl < until {
                until.plus(Limiter::TTL_SLACK_MS)
            } else {
                ttl
            });
        }
    }

    /// Stored bytes, a rewritten append-only file and COPY give the same, each on its own.
    fn check_copies(&mut self, now: u64) -> Result<(), TestCaseError> {
        for (copy, bytes) in &self.copies {
            prop_assert_eq!(bytes_of(Some(copy)), Some(bytes.clone()));
        }
        let Some(stored) = &self.stored else {
            return Ok(());
        };
        let bytes = bytes_of(Some(stored)).unwrap();
        let loaded = Limiter::from_stored(&bytes);
        prop_assert_eq!(
            loaded.as_ref().map(|l| bytes_of(Some(l)).unwrap()),
            Ok(bytes.clone())
        );
        let mut rebuilt = None;
        receive(&mut rebuilt, stored.rebuild(Micros(now)).as_bytes(), now);
        prop_assert_eq!(bytes_of(rebuilt.as_ref()), Some(bytes.clone()));
        // From here on a replica that was made anew goes on.
        self.replica = rebuilt;
        if self.copies.len() < 3 {
            self.copies.push((stored.clone(), bytes));
        }
        Ok(())
    }

    /// The key outlives what this caller's policy sees in it.
    fn check_ttl(&self, now: u64, verdict: &Verdict) -> Result<(), TestCaseError> {
        let ends_ms = (u128::from(now) + verdict.reset_us).div_ceil(1000);
        let ends_ms = ends_ms.min(u128::from(Millis::BOUND - 1));
        let is_kept = self.ttl.is_some_and(|ttl| u128::from(ttl.0) >= ends_ms);
        prop_assert!(is_kept || verdict.reset_us == 0);
        Ok(())
    }

    fn allows(&self, numbers: &Numbers, cost: u64, then: u64) -> bool {
        let mut stored = self.stored.clone();
        let call = Limiter::decide(stored.as_mut(), &numbers.policy(), cost, Micros(then));
        call.unwrap().0.allowed
    }

    /// What the verdict says of the calls that may follow.
    fn check_promises(
        &self,
        numbers: &Numbers,
        cost: u64,
        now: u64,
        verdict: &Verdict,
    ) -> Result<(), TestCaseError> {
        let later = |us: u128| {
            u64::try_from(u128::from(now) + us)
                .ok()
                .filter(|then| *then < Micros::BOUND)
        };
        let (limit, remaining) = (verdict.limit, verdict.remaining);
        prop_assert!(remaining == 0 || self.allows(numbers, remaining, now));
        prop_assert!(remaining == limit || !self.allows(numbers, remaining + 1, now));
        if !verdict.allowed {
            prop_assert!(verdict.wait_us > 0);
            if let Some(then) = later(verdict.wait_us) {
                prop_assert!(self.allows(numbers, cost, then));
                prop_assert!(!self.allows(numbers, cost, then - 1));
            }
        }
        let [.., wait_ms, reset_ms] = verdict.reply();
        if let Some(then) = later(u128::from(wait_ms) * 1000) {
            prop_assert!(verdict.allowed || self.allows(numbers, cost, then));
        }
        let stored = self.stored.as_ref();
        let remaining_at = |at| {
            Limiter::peek(stored, &numbers.policy(), 1, Micros(at))
                .unwrap()
                .remaining
        };
        if let Some(then) = later(verdict.reset_us) {
            prop_assert_eq!(remaining_at(then), limit);
            prop_assert!(verdict.reset_us == 0 || remaining_at(then - 1) < limit);
        }
        if let Some(then) = later(u128::from(reset_ms) * 1000) {
            prop_assert_eq!(remaining_at(then), limit);
        }
        Ok(())
    }
}

/// A peek says what the call then is answered, but for what that has spent.
fn check_peek(peeked: &Verdict, called: &Verdict) -> Result<(), TestCaseError> {
    if !called.allowed {
        prop_assert_eq!(peeked, called);
    }
    prop_assert_eq!(
        (peeked.allowed, peeked.limit, peeked.wait_us),
        (called.allowed, called.limit, called.wait_us)
    );
    Ok(())
}

type Split<V, D> = (Result<Option<V>, Error>, Result<D, Error>);

fn split(result: Result<(Verdict, Change), Error>) -> Split<Verdict, Change> {
    match result {
        Ok((verdict, change)) => (Ok(Some(verdict)), Ok(change)),
        Err(error) => (Err(error), Err(error)),
    }
}

fn split_model(result: Result<(Answer, Done), Error>) -> Split<Answer, Done> {
    match result {
        Ok((answer, done)) => (Ok(Some(answer)), Ok(done)),
        Err(error) => (Err(error), Err(error)),
    }
}
