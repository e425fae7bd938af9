//! SLIDINGWINDOW: two counts, of the current window and of the one before, which weighs as
//! much as of it still lies within a window's length.
//!
//! It takes the previous window's calls for evenly spread. That is an estimate: over an
//! arbitrary window's length up to 2·limit − 1 can pass, of plain calls 2·limit − 2.

use super::fixed_window::MAX_COUNT;
use super::meter::{ends_at, in_shape, Meter};
use super::policy::WindowPolicy;
use super::Shape;
use crate::codec::{Blob, Malformed, Reader};
use crate::{Error, Micros, Millis};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
pub struct SlidingWindow {
    start: Micros,
    current: u64,
    previous: u64,
    policy: WindowPolicy,
}

/// The counts of the window that the clock is in, and of the one before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    start: Micros,
    current: u64,
    previous: u64,
}

impl SlidingWindow {
    pub(super) fn window(&self) -> WindowPolicy {
        self.policy
    }
}

impl Counts {
    /// µs of the current window that are over: less than a window's length.
    fn elapsed(&self, now: Micros) -> u128 {
        u128::from(now.0 - self.start.0)
    }
}

impl Meter for SlidingWindow {
    type Policy = WindowPolicy;
    type Reading = Counts;

    const NAME: &'static str = "SLIDINGWINDOW";

    in_shape!(SlidingWindow);

    fn into_shape(self) -> Shape {
        Shape::SlidingWindow(self)
    }

    fn unused(policy: &WindowPolicy, now: Micros) -> SlidingWindow {
        SlidingWindow {
            start: now,
            current: 0,
            previous: 0,
            policy: *policy,
        }
    }

    /// The window steps by its length while a count remains; else it opens anew.
    #[inline]
    fn read(&self, policy: &WindowPolicy, now: Micros) -> Counts {
        let start = Micros(self.start.0.min(now.0));
        let us = policy.us();
        match (now.0 - start.0) / us {
            0 => Counts {
                start,
                current: self.current,
                previous: self.previous,
            },
            1 if self.current > 0 => Counts {
                start: Micros(start.0 + us),
                current: 0,
                previous: self.current,
            },
            _ => Counts {
                start: now,
                current: 0,
                previous: 0,
            },
        }
    }

    /// Admitted iff p·(W − e) + (c + n)·W ≤ L·W, with e µs of the current window over.
    #[inline]
    fn wait_us(
        &self,
        counts: Counts,
        policy: &WindowPolicy,
        cost: u64,
        now: Micros,
    ) -> Option<u128> {
        let (us, limit) = (u128::from(policy.us()), u128::from(policy.limit()));
        let (current, previous) = (u128::from(counts.current), u128::from(counts.previous));
        let (cost, elapsed) = (u128::from(cost), counts.elapsed(now));
        if previous * (us - elapsed) + (current + cost) * us <= limit * us {
            return None;
        }
        Some(if cost > limit {
            2 * us - elapsed
        } else if current + cost <= limit {
            // Within this window, once the previous one weighs little enough.
            us - (limit - current - cost) * us / previous - elapsed
        } else {
            // Within the next one, whose previous is this.
            (us - elapsed) + us - (limit - cost) * us / current
        })
    }

    #[inline]
    fn left(&self, counts: Counts, policy: &WindowPolicy, now: Micros) -> (u64, u128) {
        let us = u128::from(policy.us());
        let left_of_window = us - counts.elapsed(now);
        let weighted = (u128::from(counts.previous) * left_of_window).div_ceil(us);
        let used = u128::from(counts.current) + weighted;
        let remaining = u128::from(policy.limit()).saturating_sub(used) as u64;
        let reset_us = match (counts.current, counts.previous) {
            (0, 0) => 0,
            (0, _) => left_of_window,
            _ => us + left_of_window,
        };
        (remaining, reset_us)
    }

    #[inline]
    fn spend(
        &mut self,
        counts: Counts,
        policy: &WindowPolicy,
        cost: u64,
        _: Micros,
    ) -> Result<Counts, Error> {
        let current = (counts.current + cost).min(MAX_COUNT);
        Ok(self.set(Counts { current, ..counts }, policy))
    }

    fn refund(&mut self, counts: Counts, policy: &WindowPolicy, cost: u64, _: Micros) -> Counts {
        let of_current = cost.min(counts.current);
        let counts = Counts {
            current: counts.current - of_current,
            previous: counts.previous.saturating_sub(cost - of_current),
            ..counts
        };
        self.set(counts, policy)
    }

    fn rebase(&mut self, now: Micros) -> bool {
        let is_ahead = self.start.0 > now.0;
        if is_ahead {
            self.start = now;
        }
        is_ahead
    }

    fn is_under(&self, policy: &WindowPolicy) -> bool {
        self.window() == *policy
    }

    fn matters_until(&self) -> Millis {
        let windows = if self.current > 0 { 2 } else { 1 };
        ends_at(self.start, windows * u128::from(self.window().us()))
    }

    fn is_drained(&self, now: Micros) -> bool {
        let counts = self.read(&self.window(), now);
        counts.current == 0 && counts.previous == 0
    }

    fn facts(&self, now: Micros) -> Vec<(&'static str, u64)> {
        let counts = self.read(&self.window(), now);
        vec![
            ("window_ms", self.window().window_ms()),
            ("current", counts.current),
            ("previous", counts.previous),
        ]
    }

    fn encode(&self, out: &mut Blob) {
        out.u64(self.start.0);
        out.u64(self.current);
        out.u64(self.previous);
        self.window().encode(out);
    }

    fn decode(from: &mut Reader<'_>) -> Result<SlidingWindow, Malformed> {
        let (start, current, previous) = (from.clock()?, from.u64()?, from.u64()?);
        let policy = WindowPolicy::decode(from)?;
        let is_unused = current == 0 && previous == 0;
        if is_unused || current > MAX_COUNT || previous > MAX_COUNT {
            return Err(Malformed::Corrupt);
        }
        Ok(SlidingWindow {
            start,
            current,
            previous,
            policy,
        })
    }
}

impl SlidingWindow {
    fn set(&mut self, counts: Counts, policy: &WindowPolicy) -> Counts {
        *self = SlidingWindow {
            start: counts.start,
            current: counts.current,
            previous: counts.previous,
            policy: *policy,
        };
        counts
    }
}
