//! The model: it owes tokens, not ticks: a fraction that drains by count/period each µs, and is
//! rounded only where the design says so.

use num_bigint::BigInt;
use num_rational::BigRational;
use sluice_core::limiter::{Algorithm, Policy};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) capacity: u64,
    pub(crate) count: u64,
    pub(crate) period_ms: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Model {
    /// In tokens.
    pub(crate) debt: BigRational,
    pub(crate) at: u64,
    pub(crate) numbers: Numbers,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) allowed: bool,
    pub(crate) remaining: BigInt,
    pub(crate) wait_us: BigInt,
    /// Until what is owed ahead of this call has drained.
    pub(crate) hold_us: BigInt,
    pub(crate) reset_us: BigInt,
}

pub(crate) fn whole(value: impl Into<BigInt>) -> BigRational {
    BigRational::from_integer(value.into())
}

fn at_least_0(tokens: BigRational) -> BigRational {
    tokens.max(whole(0))
}

impl Numbers {
    fn period_us(&self) -> BigRational {
        whole(self.period_ms) * whole(1000)
    }

    fn tokens_per_us(&self) -> BigRational {
        whole(self.count) / self.period_us()
    }

    fn capacity(&self) -> BigRational {
        whole(self.capacity)
    }

    /// The smallest part of a token that a debt is counted in.
    pub(crate) fn tick(&self) -> BigRational {
        whole(1) / self.period_us()
    }

    /// How long these tokens take to drain, in whole µs.
    fn drain_us(&self, tokens: &BigRational) -> BigInt {
        (tokens / self.tokens_per_us()).ceil().to_integer()
    }

    pub(crate) fn policy(&self, algorithm: Algorithm) -> Policy {
        let texts = [self.capacity, self.count, self.period_ms].map(|n| n.to_string());
        let [capacity, count, period_ms] = &texts;
        algorithm
            .policy(
                &[capacity.as_bytes(), count.as_bytes(), period_ms.as_bytes()],
                100_000,
            )
            .unwrap()
    }
}

impl Model {
    /// In the caller's ticks, rounded up; at most the caller's capacity if that is another
    /// one; drained at the caller's rate since the stored time.
    fn debt_under(&self, numbers: &Numbers, now: u64) -> BigRational {
        let tick = numbers.tick();
        let mut debt = (&self.debt / &tick).ceil() * &tick;
        if numbers.capacity != self.numbers.capacity {
            debt = debt.min(numbers.capacity());
        }
        let elapsed = whole(now.saturating_sub(self.at));
        at_least_0(debt - elapsed * numbers.tokens_per_us())
    }

    /// What a call is answered and, if it is admitted, what is stored.
    pub(crate) fn call(
        stored: Option<&Model>,
        numbers: &Numbers,
        cost: u64,
        now: u64,
    ) -> (Answer, Option<Model>) {
        let before = stored.map_or(whole(0), |model| model.debt_under(numbers, now));
        let with_cost = &before + whole(cost);
        let over = at_least_0(&with_cost - numbers.capacity());
        let allowed = over == whole(0);
        let ahead = before.clone();
        let debt = if allowed { with_cost } else { before };
        let free = at_least_0(numbers.capacity() - &debt);
        let hold_us = numbers.drain_us(&ahead);
        let answer = Answer {
            allowed,
            remaining: free.floor().to_integer(),
            wait_us: numbers.drain_us(&over),
            hold_us,
            reset_us: numbers.drain_us(&debt),
        };
        let admitted = allowed.then_some(Model {
            debt,
            at: now,
            numbers: *numbers,
        });
        (answer, admitted)
    }

    /// The stored form: version, shape, debt in ticks, time, capacity, count, period.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let ticks = &self.debt * self.numbers.period_us();
        assert!(ticks.is_integer(), "{self:?}");
        let ticks = u128::try_from(ticks.to_integer()).unwrap();
        let mut bytes = vec![1, 0];
        bytes.extend(&ticks.to_le_bytes()[..12]);
        bytes.extend(self.at.to_le_bytes());
        bytes.extend((self.numbers.capacity as u32).to_le_bytes());
        bytes.extend((self.numbers.count as u32).to_le_bytes());
        bytes.extend(self.numbers.period_ms.to_le_bytes());
        bytes
    }
}
