//! The bucket family in ticks, of which a token has as many as the period has µs. That these
//! are exact fractions of tokens is what `../limiter_bucket_model/` is about.

use crate::rules::{most_debt, Account, Numbers};
use num_bigint::BigInt;

#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    ticks: BigInt,
    at: u64,
    numbers: Numbers,
}

fn ticks(numbers: &Numbers, tokens: u64) -> BigInt {
    BigInt::from(tokens) * numbers.length_us()
}

fn divided_up(a: BigInt, b: impl Into<BigInt>) -> BigInt {
    let b = b.into();
    (a + &b - 1) / b
}

impl Bucket {
    pub(crate) fn unused(numbers: &Numbers, now: u64) -> Bucket {
        Bucket {
            ticks: BigInt::from(0),
            at: now,
            numbers: *numbers,
        }
    }

    /// In the caller's ticks, rounded up; at most the caller's limit if that is another one;
    /// drained at the caller's rate since the stored time.
    fn debt(&self, numbers: &Numbers, then: u128) -> BigInt {
        let parts = &self.ticks * numbers.length_us();
        let mut debt = divided_up(parts, self.numbers.length_us());
        if numbers.limit != self.numbers.limit {
            debt = debt.min(ticks(numbers, numbers.limit));
        }
        let elapsed = BigInt::from(then.saturating_sub(self.at.into()));
        (debt - elapsed * numbers.count).max(BigInt::from(0))
    }

    /// How long until a cost that never fits would, if a debt could be negative.
    pub(crate) fn overdraft_us(&self, numbers: &Numbers, cost: u64, now: u64) -> u128 {
        let with_cost = self.debt(numbers, now.into()) + ticks(numbers, cost);
        let over = with_cost - ticks(numbers, numbers.limit);
        divided_up(over, numbers.count).try_into().unwrap()
    }

    fn owe(&mut self, ticks: BigInt, numbers: &Numbers, now: u64) {
        *self = Bucket {
            ticks,
            at: now,
            numbers: *numbers,
        };
    }
}

impl Account for Bucket {
    fn fits(&self, numbers: &Numbers, cost: u64, then: u128) -> bool {
        self.debt(numbers, then) + ticks(numbers, cost) <= ticks(numbers, numbers.limit)
    }

    fn spend(&mut self, numbers: &Numbers, cost: u64, now: u64) -> Result<(), ()> {
        let debt = self.debt(numbers, now.into()) + ticks(numbers, cost);
        if debt > BigInt::from(most_debt(numbers)) {
            return Err(());
        }
        self.owe(debt, numbers, now);
        Ok(())
    }

    fn refund(&mut self, numbers: &Numbers, cost: u64, now: u64) {
        let debt = self.debt(numbers, now.into()) - ticks(numbers, cost);
        // Read under a slower policy an overdraft may be more than that allows.
        let debt = debt.min(most_debt(numbers).into());
        self.owe(debt.max(BigInt::from(0)), numbers, now);
    }

    fn step_back(&mut self, now: u64) -> bool {
        let is_ahead = self.at > now;
        self.at = self.at.min(now);
        is_ahead
    }

    fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// Shape, debt in ticks, time, capacity, count, period.
    fn bytes(&self) -> Vec<u8> {
        let ticks = u128::try_from(self.ticks.clone()).unwrap();
        let mut bytes = vec![0];
        bytes.extend(&ticks.to_le_bytes()[..12]);
        bytes.extend(self.at.to_le_bytes());
        bytes.extend((self.numbers.limit as u32).to_le_bytes());
        bytes.extend((self.numbers.count as u32).to_le_bytes());
        bytes.extend(self.numbers.length_ms.to_le_bytes());
        bytes
    }
}
