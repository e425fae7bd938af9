//! Policies, and what every answer means, found by searching and not by formulas.

use sluice_core::limiter::{Algorithm, Policy};

pub(crate) const YEAR_MS: u64 = 31_536_000_000;
pub(crate) const MOST: u64 = 1_000_000_000;
const CENTURY_US: u128 = 100 * YEAR_MS as u128 * 1000;

/// A policy as a client writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) algorithm: Algorithm,
    pub(crate) limit: u64,
    /// Tokens a period; 0 for windows and logs.
    pub(crate) count: u64,
    /// The period or the window.
    pub(crate) length_ms: u64,
    /// FIXEDWINDOW only.
    pub(crate) align_ms: Option<u64>,
    /// `sluice.rl-max-log-entries`.
    pub(crate) most_entries: u64,
}

/// Which policies share state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Bucket,
    FixedWindow,
    SlidingWindow,
    SlidingLog,
}

impl Family {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Family::Bucket => "bucket",
            Family::FixedWindow => "FIXEDWINDOW",
            Family::SlidingWindow => "SLIDINGWINDOW",
            Family::SlidingLog => "SLIDINGLOG",
        }
    }
}

impl Numbers {
    pub(crate) fn family(&self) -> Family {
        match self.algorithm {
            Algorithm::Gcra | Algorithm::TokenBucket | Algorithm::LeakyBucket => Family::Bucket,
            Algorithm::FixedWindow => Family::FixedWindow,
            Algorithm::SlidingWindow => Family::SlidingWindow,
            Algorithm::SlidingLog => Family::SlidingLog,
        }
    }

    pub(crate) fn length_us(&self) -> u64 {
        self.length_ms * 1000
    }

    pub(crate) fn policy(&self) -> Policy {
        let texts = [self.limit, self.count, self.length_ms].map(|n| n.to_string());
        let [limit, count, length] = texts.each_ref().map(String::as_bytes);
        let most_entries = self.most_entries as u32;
        let policy = match self.family() {
            Family::Bucket => self.algorithm.policy(&[limit, count, length], most_entries),
            _ => self.algorithm.policy(&[limit, length], most_entries),
        };
        match self.align_ms {
            None => policy.unwrap(),
            Some(offset) => policy
                .unwrap()
                .aligned(offset.to_string().as_bytes())
                .unwrap(),
        }
    }

    /// What the key remembers of it.
    pub(crate) fn stored(&self) -> Numbers {
        Numbers {
            align_ms: None,
            ..*self
        }
    }

    /// Whether a key that remembers `stored` was last used under this very policy.
    pub(crate) fn is_as(&self, stored: &Numbers) -> bool {
        let numbers = |n: &Numbers| (n.family(), n.limit, n.count, n.length_ms);
        numbers(self) == numbers(stored)
    }
}

/// How one algorithm counts, by the letter of the design: whether a call would be admitted,
/// and what it leaves behind. All else follows.
pub(crate) trait Account {
    /// Whether a call of `cost` at `then` would be admitted if nothing happened until then.
    fn fits(&self, numbers: &Numbers, cost: u64, then: u128) -> bool;
    /// Counts a cost, admitted or not. `Err`: beyond what 100 years drain.
    fn spend(&mut self, numbers: &Numbers, cost: u64, now: u64) -> Result<(), ()>;
    /// Takes back what was spent last.
    fn refund(&mut self, numbers: &Numbers, cost: u64, now: u64);
    /// The clock is behind: what lies ahead is moved to now. Whether anything did.
    fn step_back(&mut self, now: u64) -> bool;
    /// What is remembered of the policy of the last change.
    fn numbers(&self) -> &Numbers;
    /// The stored form, from the shape's byte on.
    fn bytes(&self) -> Vec<u8>;
}

/// The first instant from `now` on at which `holds`, which then holds for ever.
pub(crate) fn first(now: u64, holds: impl Fn(u128) -> bool) -> u128 {
    let now = u128::from(now);
    // Nothing lasts longer than an overdraft, and that not longer than it takes to drain at
    // the slowest rate.
    let (mut before, mut width) = (now, 1);
    if holds(now) {
        return 0;
    }
    while !holds(now + width) {
        before = now + width;
        width *= 2;
        assert!(width < 1 << 100, "never");
    }
    let mut after = now + width;
    while after - before > 1 {
        let middle = before + (after - before) / 2;
        if holds(middle) {
            after = middle;
        } else {
            before = middle;
        }
    }
    after - now
}

/// The largest cost up to the limit that fits.
pub(crate) fn remaining(account: &dyn Account, numbers: &Numbers, now: u64) -> u64 {
    let (mut fits, mut too_much) = (0, numbers.limit + 1);
    while too_much - fits > 1 {
        let middle = fits + (too_much - fits) / 2;
        if account.fits(numbers, middle, now.into()) {
            fits = middle;
        } else {
            too_much = middle;
        }
    }
    fits
}

/// How long until all of the limit fits.
pub(crate) fn reset_us(account: &dyn Account, numbers: &Numbers, now: u64) -> u128 {
    first(now, |then| account.fits(numbers, numbers.limit, then))
}

/// What 100 years drain, in tokens × µs of the period.
pub(crate) fn most_debt(numbers: &Numbers) -> u128 {
    CENTURY_US * u128::from(numbers.count)
}

pub(crate) fn window_bytes(numbers: &Numbers) -> Vec<u8> {
    let limit = (numbers.limit as u32).to_le_bytes();
    [&limit[..], &numbers.length_ms.to_le_bytes()].concat()
}
