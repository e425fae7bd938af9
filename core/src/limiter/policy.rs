//! The one grammar of policies: `GCRA burst count period_ms` and so on, for the single
//! commands, PEEK and whatever else takes a policy.

use crate::{parse, Error};

/// An algorithm's name, as it stands in a command's name and in front of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Gcra,
    TokenBucket,
    LeakyBucket,
    FixedWindow,
    SlidingWindow,
    SlidingLog,
}

/// An algorithm and its numbers, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Bucket(BucketPolicy),
    /// The same bucket, of which the caller is told how long to hold an admitted request.
    LeakyBucket(BucketPolicy),
    FixedWindow(FixedWindowPolicy),
    SlidingWindow(WindowPolicy),
    SlidingLog(LogPolicy),
}

/// `count` tokens drain per `period_ms`, continuously; at most `capacity` fit.
///
/// Packed, as is all that lies in a limiter's one allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
pub struct BucketPolicy {
    capacity: u32,
    count: u32,
    period_ms: u64,
}

/// `limit` per `window_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
pub struct WindowPolicy {
    limit: u32,
    window_ms: u64,
}

/// A window that opens with its first request, or, with `align_ms`, at that offset from the
/// epoch and every window's length from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindowPolicy {
    pub(super) window: WindowPolicy,
    pub(super) align_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPolicy {
    pub(super) window: WindowPolicy,
    /// How many entries a log may have; what is charged beyond joins the newest.
    pub(super) most_entries: u32,
}

impl Algorithm {
    pub const ALL: [Algorithm; 6] = [
        Algorithm::Gcra,
        Algorithm::TokenBucket,
        Algorithm::LeakyBucket,
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingLog,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Gcra => "GCRA",
            Algorithm::TokenBucket => "TOKENBUCKET",
            Algorithm::LeakyBucket => "LEAKYBUCKET",
            Algorithm::FixedWindow => "FIXEDWINDOW",
            Algorithm::SlidingWindow => "SLIDINGWINDOW",
            Algorithm::SlidingLog => "SLIDINGLOG",
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
    pub fn parameters(self) -> &'static [&'static str] {
        match self {
            Algorithm::Gcra => &["burst", "count", "period_ms"],
            Algorithm::TokenBucket => &["capacity", "refill", "period_ms"],
            Algorithm::LeakyBucket => &["capacity", "leak", "period_ms"],
            Algorithm::FixedWindow | Algorithm::SlidingWindow | Algorithm::SlidingLog => {
                &["limit", "window_ms"]
            }
        }
    }

    /// The most numbers that an algorithm has.
    pub const MOST_PARAMETERS: usize = 3;

    /// Reads the policy's numbers, as many texts as [`Algorithm::parameters`] has names.
    /// `most_log_entries` bounds the limit of a SLIDINGLOG.
    #[inline]
    pub fn policy(self, numbers: &[&[u8]], most_log_entries: u32) -> Result<Policy, Error> {
        let names = self.parameters();
        let period = |i: usize| parse::integer(names[i], numbers[i], 1..=MAX_PERIOD_MS);
        let tokens = |i: usize| -> Result<u32, Error> {
            let value = parse::integer(names[i], numbers[i], 1..=MAX_TOKENS)?;
            Ok(value as u32)
        };
        let window = || {
            Ok(WindowPolicy {
                limit: tokens(0)?,
                window_ms: period(1)?,
            })
        };
        Ok(match self {
            Algorithm::Gcra | Algorithm::TokenBucket => {
                Policy::Bucket(BucketPolicy::new(tokens(0)?, tokens(1)?, period(2)?)?)
            }
            Algorithm::LeakyBucket => {
                Policy::LeakyBucket(BucketPolicy::new(tokens(0)?, tokens(1)?, period(2)?)?)
            }
            Algorithm::FixedWindow => Policy::FixedWindow(FixedWindowPolicy {
                window: window()?,
                align_ms: None,
            }),
            Algorithm::SlidingWindow => Policy::SlidingWindow(window()?),
            Algorithm::SlidingLog => {
                let too_long = Error::LogLimit {
                    max: most_log_entries,
                };
                let range = 1..=u64::from(most_log_entries);
                let limit = parse::integer(names[0], numbers[0], range).map_err(|_| too_long)?;
                Policy::SlidingLog(LogPolicy {
                    window: WindowPolicy {
                        limit: limit as u32,
                        window_ms: period(1)?,
                    },
                    most_entries: most_log_entries,
                })
            }
        })
    }
}

/// For burst, capacity, limit, count, refill, leak and COST.
pub const MAX_TOKENS: u64 = 1_000_000_000;
/// For periods, windows, ALIGN and blocks: a year.
pub const MAX_PERIOD_MS: u64 = 31_536_000_000;

impl Policy {
    /// The burst, capacity or limit: the largest cost that can ever be admitted.
    #[inline]
    pub fn limit(&self) -> u64 {
        u64::from(match self {
            Policy::Bucket(policy) | Policy::LeakyBucket(policy) => policy.capacity,
            Policy::FixedWindow(policy) => policy.window.limit,
            Policy::SlidingWindow(policy) => policy.limit,
            Policy::SlidingLog(policy) => policy.window.limit,
        })
    }

    /// Reads COST of a call that is to be admitted: 1 up to the limit.
    pub fn cost(&self, text: &[u8]) -> Result<u64, Error> {
        let cost = Policy::amount(text)?;
        if cost > self.limit() {
            return Err(Error::CostAboveLimit {
                cost,
                limit: self.limit(),
            });
        }
        Ok(cost)
    }

    /// Reads COST of what is charged or given back whatever the limit.
    pub fn amount(text: &[u8]) -> Result<u64, Error> {
        parse::integer("COST", text, 1..=MAX_TOKENS)
    }

    /// Reads ALIGN: when windows start, in ms from the epoch. Only FIXEDWINDOW has it.
    pub fn aligned(self, text: &[u8]) -> Result<Policy, Error> {
        match self {
            Policy::FixedWindow(policy) => {
                let offset = parse::integer("ALIGN", text, 0..=MAX_PERIOD_MS)?;
                Ok(Policy::FixedWindow(FixedWindowPolicy {
                    align_ms: Some(offset),
                    ..policy
                }))
            }
            _ => Err(Error::Syntax),
        }
    }
}

impl BucketPolicy {
    /// The longest that a debt may take to drain: 100 years of 365 days, in µs.
    pub const MAX_DRAIN_US: u128 = 100 * MAX_PERIOD_MS as u128 * 1000;

    /// `capacity` and `count` 1..=1_000_000_000, `period_ms` 1..=a year, both checked by
    /// the caller; refuses a bucket that takes more than 100 years to drain.
    pub fn new(capacity: u32, count: u32, period_ms: u64) -> Result<BucketPolicy, Error> {
        let policy = BucketPolicy {
            capacity,
            count,
            period_ms,
        };
        if policy.full() > policy.max_debt() {
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

    /// Ticks that drain in 100 years.
    pub(crate) fn max_debt(&self) -> u128 {
        BucketPolicy::MAX_DRAIN_US * self.drain_per_us()
    }
}

impl WindowPolicy {
    /// `None` where a number is out of its range.
    pub(super) fn new(limit: u32, window_ms: u64) -> Option<WindowPolicy> {
        let is_in_range = (1..=MAX_TOKENS).contains(&u64::from(limit))
            && (1..=MAX_PERIOD_MS).contains(&window_ms);
        is_in_range.then_some(WindowPolicy { limit, window_ms })
    }

    pub fn limit(&self) -> u64 {
        u64::from(self.limit)
    }

    pub fn window_ms(&self) -> u64 {
        self.window_ms
    }

    pub(super) fn us(&self) -> u64 {
        self.window_ms * 1000
    }
}
