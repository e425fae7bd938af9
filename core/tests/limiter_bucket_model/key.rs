//! The key: the core's decisions as `src/limiters.rs` and `src/boundary/key.rs` apply them,
//! and what holds of each answer.

use crate::model::{whole, Model, Numbers};
use crate::YEAR_US;
use num_bigint::BigInt;
use proptest::prelude::*;
use sluice_core::limiter::{Algorithm, Change, LimiterEffect, Policy, Verdict};
use sluice_core::{Limiter, Micros, Millis, State};

fn bytes_of(stored: &Option<Limiter>) -> Option<Vec<u8>> {
    let stored = stored.as_ref()?;
    Some(stored.to_stored().as_bytes().to_vec())
}

fn ceil_ms(us: &BigInt) -> BigInt {
    (us + BigInt::from(999)) / BigInt::from(1000)
}

/// `now` and `us` more, if the clock can show that.
fn later(now: u64, us: u128) -> Option<u64> {
    u64::try_from(u128::from(now) + us).ok()
}

#[derive(Default)]
pub(crate) struct Key {
    pub(crate) stored: Option<Limiter>,
    pub(crate) ttl: Option<Millis>,
    pub(crate) model: Option<Model>,
}

impl Key {
    /// With a debt that only a charge, or a RESTORE, can bring about.
    pub(crate) fn overdrawn(numbers: Numbers, share: u16, at: u64) -> Key {
        let most = whole(100 * YEAR_US) * whole(numbers.count);
        let ticks = (most * whole(share) / whole(u16::MAX)).ceil();
        let model = Model {
            debt: ticks * numbers.tick(),
            at,
            numbers,
        };
        let stored = Limiter::from_stored(&model.bytes()).unwrap();
        Key {
            ttl: Some(stored.matters_until().plus(Limiter::TTL_SLACK_MS)),
            stored: Some(stored),
            model: Some(model),
        }
    }

    /// Sets the TTL as a change of what is stored does.
    fn keep(&mut self) {
        let Some(state) = &self.stored else {
            return;
        };
        let needed = state.matters_until();
        let slack = needed..=needed.plus(Limiter::TTL_SLACK_MS);
        if !self.ttl.is_some_and(|ttl| slack.contains(&ttl)) {
            self.ttl = Some(needed.plus(Limiter::TTL_SLACK_MS));
        }
    }

    fn allows(&self, policy: &Policy, cost: u64, now: u64) -> bool {
        let mut stored = self.stored.clone();
        let peeked = Limiter::peek(stored.as_ref(), policy, cost, Micros(now)).unwrap();
        let (decided, _) = Limiter::decide(stored.as_mut(), policy, cost, Micros(now)).unwrap();
        assert_eq!(peeked.allowed, decided.allowed);
        decided.allowed
    }

    pub(crate) fn call(
        &mut self,
        numbers: &Numbers,
        algorithm: Algorithm,
        cost: u64,
        now: u64,
    ) -> Result<Verdict, TestCaseError> {
        let policy = numbers.policy(algorithm);
        prop_assert_eq!(policy.limit(), numbers.capacity);
        let before = self.stored.clone();
        let bytes_before = bytes_of(&before);

        let peeked = Limiter::peek(self.stored.as_ref(), &policy, cost, Micros(now)).unwrap();
        prop_assert_eq!(&bytes_of(&self.stored), &bytes_before);
        let (verdict, change) =
            Limiter::decide(self.stored.as_mut(), &policy, cost, Micros(now)).unwrap();
        let (answer, admitted) = Model::call(self.model.as_ref(), numbers, cost, now);

        // What is answered.
        prop_assert_eq!(verdict.allowed, answer.allowed);
        prop_assert_eq!(verdict.limit, numbers.capacity);
        prop_assert_eq!(BigInt::from(verdict.remaining), answer.remaining);
        let wait_us = match algorithm {
            Algorithm::LeakyBucket if answer.allowed => answer.hold_us,
            _ => answer.wait_us,
        };
        prop_assert_eq!(BigInt::from(verdict.wait_us), wait_us.clone());
        prop_assert_eq!(BigInt::from(verdict.reset_us), answer.reset_us.clone());
        let saturated = |ms: BigInt| ms.min(BigInt::from(i64::MAX));
        let [allowed, limit, remaining, wait_ms, reset_ms] = verdict.reply();
        prop_assert_eq!(allowed, u64::from(verdict.allowed));
        prop_assert_eq!(limit, numbers.capacity);
        prop_assert_eq!(remaining, verdict.remaining);
        prop_assert_eq!(BigInt::from(wait_ms), saturated(ceil_ms(&wait_us)));
        prop_assert_eq!(BigInt::from(reset_ms), saturated(ceil_ms(&answer.reset_us)));

        // A peek says the same, but of the key as it is.
        Key::check_peek(&before, &policy, cost, now, &peeked, &verdict)?;

        // What is stored.
        let stepped_back = self.model.as_ref().is_some_and(|model| model.at > now);
        let own = self.model.as_ref().is_some_and(|m| m.numbers == *numbers);
        let ends = ceil_ms(&(BigInt::from(now) + answer.reset_us));
        let until_asked = (!own).then(|| ends.min(BigInt::from(Millis::BOUND - 1)));
        match change {
            Change::New(state) => {
                prop_assert!(verdict.allowed && self.model.is_none());
                self.model = admitted;
                self.stored = Some(state);
                self.keep();
            }
            Change::Changed { must_send, until } if verdict.allowed => {
                // Another policy than the stored one may not be kept back.
                prop_assert_eq!((must_send, until), (!own, None));
                prop_assert!(self.model.is_some());
                self.model = admitted;
                self.keep();
            }
            Change::Changed { must_send, until } => {
                prop_assert!(must_send && stepped_back);
                if let Some(model) = &mut self.model {
                    model.at = now;
                }
                self.keep();
                self.outlive(until, until_asked)?;
            }
            Change::Gone => prop_assert!(false, "a call drains nothing"),
            Change::None { until } => {
                prop_assert!(!verdict.allowed && !stepped_back);
                prop_assert_eq!(&bytes_of(&self.stored), &bytes_before);
                self.outlive(until, until_asked)?;
            }
        }
        let bytes = self.model.as_ref().map(Model::bytes);
        prop_assert_eq!(bytes_of(&self.stored), bytes);
        self.check_encoding(now)?;
        self.check_ttl(now, &verdict)?;

        self.check_promises(&policy, cost, now, &verdict)?;
        Ok(verdict)
    }

    /// A denial under another policy lengthens the TTL to what that policy needs.
    fn outlive(
        &mut self,
        until: Option<Millis>,
        asked: Option<BigInt>,
    ) -> Result<(), TestCaseError> {
        prop_assert_eq!(until.map(|ms| BigInt::from(ms.0)), asked);
        if let Some(until) = until {
            if self.ttl.is_some_and(|ttl| ttl < until) {
                self.ttl = Some(until.plus(Limiter::TTL_SLACK_MS));
            }
        }
        Ok(())
    }

    fn check_peek(
        before: &Option<Limiter>,
        policy: &Policy,
        cost: u64,
        now: u64,
        peeked: &Verdict,
        decided: &Verdict,
    ) -> Result<(), TestCaseError> {
        prop_assert_eq!(peeked.allowed, decided.allowed);
        prop_assert_eq!(peeked.limit, decided.limit);
        prop_assert_eq!(peeked.wait_us, decided.wait_us);
        let again = Limiter::peek(before.as_ref(), policy, cost, Micros(now)).unwrap();
        prop_assert_eq!(&again, peeked);
        if decided.allowed {
            prop_assert_eq!(peeked.remaining, decided.remaining + cost);
            // A call may cost less than a µs drains.
            prop_assert!(peeked.reset_us <= decided.reset_us);
        } else {
            prop_assert_eq!(peeked, decided);
        }
        Ok(())
    }

    fn check_encoding(&self, now: u64) -> Result<(), TestCaseError> {
        let Some(stored) = &self.stored else {
            return Ok(());
        };
        let read = Limiter::from_stored(stored.to_stored().as_bytes());
        prop_assert_eq!(read.as_ref(), Ok(stored));
        let effect = stored.to_effect(Micros(now));
        let read = LimiterEffect::decode(effect.as_bytes());
        let whole = LimiterEffect::Whole(stored.clone());
        prop_assert_eq!(read, Ok((whole, Micros(now))));
        Ok(())
    }

    /// The key outlives what this caller's policy sees in it.
    fn check_ttl(&self, now: u64, verdict: &Verdict) -> Result<(), TestCaseError> {
        let ends_ms = (u128::from(now) + verdict.reset_us).div_ceil(1000);
        let ends_ms = ends_ms.min(u128::from(Millis::BOUND - 1));
        prop_assert!(self.ttl.is_some_and(|ttl| u128::from(ttl.0) >= ends_ms));
        Ok(())
    }

    /// What the verdict says of the calls that may follow.
    fn check_promises(
        &self,
        policy: &Policy,
        cost: u64,
        now: u64,
        verdict: &Verdict,
    ) -> Result<(), TestCaseError> {
        let limit = policy.limit();
        let remaining = verdict.remaining;
        prop_assert!(remaining <= limit);
        prop_assert!(remaining == 0 || self.allows(policy, remaining, now));
        prop_assert!(remaining == limit || !self.allows(policy, remaining + 1, now));

        let [.., wait_ms, reset_ms] = verdict.reply();
        if verdict.allowed {
            let is_held = matches!(policy, Policy::LeakyBucket(_));
            prop_assert!(is_held || verdict.wait_us == 0);
        } else {
            prop_assert!(verdict.wait_us > 0);
            if let Some(then) = later(now, verdict.wait_us) {
                prop_assert!(self.allows(policy, cost, then));
                prop_assert!(!self.allows(policy, cost, then - 1));
            }
            if let Some(then) = later(now, u128::from(wait_ms) * 1000) {
                prop_assert!(self.allows(policy, cost, then));
            }
        }

        let remaining_at = |at| {
            Limiter::peek(self.stored.as_ref(), policy, 1, Micros(at))
                .unwrap()
                .remaining
        };
        prop_assert!(verdict.reset_us > 0);
        if let Some(then) = later(now, verdict.reset_us) {
            prop_assert_eq!(remaining_at(then), limit);
            prop_assert!(remaining_at(then - 1) < limit);
        }
        if let Some(then) = later(now, u128::from(reset_ms) * 1000) {
            prop_assert_eq!(remaining_at(then), limit);
        }
        Ok(())
    }
}
