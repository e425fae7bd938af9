//! When the effects of a key are sent, which an interval can make rarer.

use crate::Micros;

/// When an effect last carried a key's state, and whether it has changed since. Each server's
/// own, and no part of the encoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sending {
    /// The low 32 bits of that millisecond.
    sent: u32,
    is_behind: bool,
}

/// When the effect of a change is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Send {
    Now,
    /// After so many ms, unless another has gone before.
    Within(u64),
    /// One that is on its way will carry this change too.
    Nothing,
}

impl Sending {
    /// Counted modulo 2^32 ms: a clock that steps back looks like a long time, so that it
    /// never silences a key.
    pub(super) fn changed(&mut self, must_send: bool, now: Micros, interval_ms: u64) -> Send {
        let now = now.floor_ms().0 as u32;
        let since = u64::from(now.wrapping_sub(self.sent));
        if must_send || since >= interval_ms {
            *self = Sending {
                sent: now,
                is_behind: false,
            };
            Send::Now
        } else if self.is_behind {
            Send::Nothing
        } else {
            self.is_behind = true;
            Send::Within(interval_ms - since)
        }
    }

    pub(super) fn catch_up(&mut self, now: Micros, interval_ms: u64) -> Send {
        if !self.is_behind {
            return Send::Nothing;
        }
        self.is_behind = false;
        self.changed(false, now, interval_ms)
    }
}
