//! The one grammar of policies: `GCRA burst count period_ms` and so on, for the single
//! commands, PEEK and whatever else takes a policy.

use crate::{parse, Error};

/// An algorithm's name, as it stands in a command's name and in front of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Gcra,
    TokenBucket,
}

/// An algorithm and its numbers, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Bucket(BucketPolicy),
}

/// `count` tokens drain per `period_ms`, continuously; at most `capacity` fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketPolicy {
    capacity: u32,
    count: u32,
    period_ms: u64,
}

impl Algorithm {
    pub const ALL: [Algorithm; 2] = [Algorithm::Gcra, Algorithm::TokenBucket];

    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Gcra => "GCRA",
            Algorithm::TokenBucket => "TOKENBUCKET",
        }
    }

    /// The algorithm that `word` names, in any case.
    pub fn named(word: &[u8]) -> Result<Algorithm, Error> {
        Algorithm::ALL
            .into_iter()
            .find(|algorithm| parse::is_word(word, algorithm.name()))
            .ok_or(Error::Syntax)
    }

    /// What its numbers are called, in order: in errors and docs.
    pub fn parameters(self) -> [&'static str; 3] {
        match self {
            Algorithm::Gcra => ["burst", "count", "period_ms"],
            Algorithm::TokenBucket => ["capacity", "refill", "period_ms"],
        }
    }

    /// Reads the policy's numbers, as the texts of [`Algorithm::parameters`].
    pub fn policy(self, numbers: [&[u8]; 3]) -> Result<Policy, Error> {
        let names = self.parameters();
        let tokens = |i: usize| -> Result<u32, Error> {
            let value = parse::integer(names[i], numbers[i], 1..=BucketPolicy::MAX_TOKENS)?;
            Ok(value as u32)
        };
        BucketPolicy::new(
            tokens(0)?,
            tokens(1)?,
            parse::integer(names[2], numbers[2], 1..=BucketPolicy::MAX_PERIOD_MS)?,
        )
        .map(Policy::Bucket)
    }
}

impl Policy {
    /// The burst, capacity or limit: the largest cost that can ever be admitted.
    pub fn limit(&self) -> u64 {
        let Policy::Bucket(policy) = self;
        u64::from(policy.capacity)
    }

    /// Reads COST: 1 up to the limit.
    pub fn cost(&self, text: &[u8]) -> Result<u64, Error> {
        let cost = parse::integer("COST", text, 1..=BucketPolicy::MAX_TOKENS)?;
        if cost > self.limit() {
            return Err(Error::CostAboveLimit {
                cost,
                limit: self.limit(),
            });
        }
        Ok(cost)
    }
}

impl BucketPolicy {
    pub const MAX_TOKENS: u64 = 1_000_000_000;
    /// A year.
    pub const MAX_PERIOD_MS: u64 = 31_536_000_000;
    /// The longest that a full bucket may take to drain: 100 years of 365 days, in µs.
    pub const MAX_DRAIN_US: u128 = 100 * 31_536_000_000 * 1000;

    /// `capacity` and `count` 1..=1_000_000_000, `period_ms` 1..=a year, both checked by
    /// the caller; refuses a bucket that takes more than 100 years to drain.
    pub fn new(capacity: u32, count: u32, period_ms: u64) -> Result<BucketPolicy, Error> {
        let policy = BucketPolicy {
            capacity,
            count,
            period_ms,
        };
        if policy.full() > BucketPolicy::MAX_DRAIN_US * policy.drain_per_us() {
            return Err(Error::DrainTooLong);
        }
        Ok(policy)
    }

    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    pub fn period_ms(&self) -> u64 {
        self.period_ms
    }

    /// Ticks in a token: the period in µs. The unit in which both a token and what drains
    /// in a µs are whole numbers, so that nothing is ever rounded away.
    pub(crate) fn token(&self) -> u128 {
        u128::from(self.period_ms) * 1000
    }

    /// Ticks that drain in a µs.
    pub(crate) fn drain_per_us(&self) -> u128 {
        u128::from(self.count)
    }

    /// Ticks in a full bucket.
    pub(crate) fn full(&self) -> u128 {
        u128::from(self.capacity) * self.token()
    }
}
