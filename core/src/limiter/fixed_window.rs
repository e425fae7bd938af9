//! FIXEDWINDOW: a count that starts anew with each window.
//!
//! Two windows meet: at their boundary up to twice the limit can pass in an instant.

use super::meter::{ends_at, in_shape, Meter};
use super::policy::{FixedWindowPolicy, WindowPolicy};
use super::Shape;
use crate::codec::{Blob, Malformed, Reader};
use crate::{Error, Micros, Millis};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
pub struct FixedWindow {
    start: Micros,
    count: u64,
    policy: WindowPolicy,
}

/// The window that the clock is in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Current {
    start: Micros,
    end: Micros,
    count: u64,
}

/// Counts stop here. Charges alone get that far.
pub(super) const MAX_COUNT: u64 = 1 << 53;

impl FixedWindow {
    pub(super) fn window(&self) -> WindowPolicy {
        self.policy
    }

    fn stored_policy(&self) -> FixedWindowPolicy {
        FixedWindowPolicy {
            window: self.policy,
            align_ms: None,
        }
    }
}

impl FixedWindowPolicy {
    pub fn window(&self) -> WindowPolicy {
        self.window
    }

    /// The window without a count that a request would find now.
    fn current(&self, now: Micros) -> Current {
        let us = self.window.us();
        let Some(align_ms) = self.align_ms else {
            return Current {
                start: now,
                end: Micros(now.0 + us),
                count: 0,
            };
        };
        // Windows have begun at the offset and every length from it, before it too.
        let offset = align_ms * 1000 % us;
        let since = (now.0 + us - offset) % us;
        Current {
            // Only within the epoch's first window can it lie before the epoch.
            start: Micros(now.0.saturating_sub(since)),
            end: Micros(now.0 + us - since),
            count: 0,
        }
    }
}

impl Meter for FixedWindow {
    type Policy = FixedWindowPolicy;
    type Reading = Current;

    const NAME: &'static str = "FIXEDWINDOW";

    in_shape!(FixedWindow);

    fn into_shape(self) -> Shape {
        Shape::FixedWindow(self)
    }

    fn unused(policy: &FixedWindowPolicy, now: Micros) -> FixedWindow {
        FixedWindow {
            start: policy.current(now).start,
            count: 0,
            policy: policy.window,
        }
    }

    #[inline]
    fn read(&self, policy: &FixedWindowPolicy, now: Micros) -> Current {
        let current = policy.current(now);
        let start = Micros(self.start.0.min(now.0));
        let (count, us) = (self.count, policy.window.us());
        match policy.align_ms {
            // One that began before the current window is over.
            Some(_) if start < current.start => current,
            Some(_) => Current { count, ..current },
            None if now.0 - start.0 >= us => current,
            None => Current {
                start,
                end: Micros(start.0 + us),
                count,
            },
        }
    }

    #[inline]
    fn wait_us(
        &self,
        current: Current,
        policy: &FixedWindowPolicy,
        cost: u64,
        now: Micros,
    ) -> Option<u128> {
        let is_over = current.count + cost > policy.window.limit();
        is_over.then(|| u128::from(current.end.0 - now.0))
    }

    #[inline]
    fn left(&self, current: Current, policy: &FixedWindowPolicy, now: Micros) -> (u64, u128) {
        let remaining = policy.window.limit().saturating_sub(current.count);
        let reset_us = match current.count {
            0 => 0,
            _ => current.end.0 - now.0,
        };
        (remaining, u128::from(reset_us))
    }

    #[inline]
    fn spend(
        &mut self,
        current: Current,
        policy: &FixedWindowPolicy,
        cost: u64,
        _: Micros,
    ) -> Result<Current, Error> {
        let count = (current.count + cost).min(MAX_COUNT);
        Ok(self.set(Current { count, ..current }, policy))
    }

    fn refund(
        &mut self,
        current: Current,
        policy: &FixedWindowPolicy,
        cost: u64,
        _: Micros,
    ) -> Current {
        let count = current.count.saturating_sub(cost);
        self.set(Current { count, ..current }, policy)
    }

    fn rebase(&mut self, now: Micros) -> bool {
        let is_ahead = self.start.0 > now.0;
        if is_ahead {
            self.start = now;
        }
        is_ahead
    }

    fn is_under(&self, policy: &FixedWindowPolicy) -> bool {
        self.window() == policy.window
    }

    fn matters_until(&self) -> Millis {
        let window = self.policy;
        ends_at(self.start, u128::from(window.us()))
    }

    fn is_drained(&self, now: Micros) -> bool {
        self.read(&self.stored_policy(), now).count == 0
    }

    fn facts(&self, now: Micros) -> Vec<(&'static str, u64)> {
        let policy = self.stored_policy();
        vec![
            ("window_ms", policy.window.window_ms()),
            ("used", self.read(&policy, now).count),
        ]
    }

    fn encode(&self, out: &mut Blob) {
        out.u64(self.start.0);
        out.u64(self.count);
        let window = self.policy;
        window.encode(out);
    }

    fn decode(from: &mut Reader<'_>) -> Result<FixedWindow, Malformed> {
        let (start, count) = (from.clock()?, from.u64()?);
        let policy = WindowPolicy::decode(from)?;
        if !(1..=MAX_COUNT).contains(&count) {
            return Err(Malformed::Corrupt);
        }
        Ok(FixedWindow {
            start,
            count,
            policy,
        })
    }
}

impl FixedWindow {
    fn set(&mut self, current: Current, policy: &FixedWindowPolicy) -> Current {
        *self = FixedWindow {
            start: current.start,
            count: current.count,
            policy: policy.window,
        };
        current
    }
}

impl WindowPolicy {
    pub(super) fn encode(&self, out: &mut Blob) {
        out.u32(self.limit() as u32);
        out.u64(self.window_ms());
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<WindowPolicy, Malformed> {
        WindowPolicy::new(from.u32()?, from.u64()?).ok_or(Malformed::Corrupt)
    }
}
