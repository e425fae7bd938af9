//! The five integers of every reply.

use super::Policy;

/// A limiter's answer; times here in µs, unrounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub allowed: bool,
    pub limit: u64,
    /// The largest single cost that would be admitted right after this call.
    pub remaining: u64,
    /// When denied: after how long this same call would be admitted. Else 0, but for
    /// LEAKYBUCKET: how long to hold the request.
    pub wait_us: u128,
    /// After how long `remaining` is the whole limit again.
    pub reset_us: u128,
}

impl Verdict {
    /// Of a call that would wait for `wait_us`, `None` if not at all, when `left` is what is
    /// left and when all of it is back.
    pub(super) fn new(policy: &Policy, wait_us: Option<u128>, left: (u64, u128)) -> Verdict {
        Verdict {
            allowed: wait_us.is_none(),
            limit: policy.limit(),
            remaining: left.0,
            wait_us: wait_us.unwrap_or(0),
            reset_us: left.1,
        }
    }

    /// How long an admitted request is to be held, by the policy that asks for it: until the
    /// debt ahead of it, `ahead_us`, has drained.
    pub(super) fn held(self, policy: &Policy, ahead_us: u128) -> Verdict {
        match policy {
            Policy::LeakyBucket(_) if self.allowed => Verdict {
                wait_us: ahead_us,
                ..self
            },
            _ => self,
        }
    }

    /// The same while the key is blocked for `block_us`; 0: it is not.
    pub(super) fn blocked(self, block_us: u64) -> Verdict {
        if block_us == 0 {
            return self;
        }
        let block_us = u128::from(block_us);
        Verdict {
            allowed: false,
            limit: self.limit,
            remaining: 0,
            wait_us: self.wait_us.max(block_us),
            reset_us: self.reset_us.max(block_us),
        }
    }

    /// Which of them denied a call on all, if any did: with the longest wait, the first of
    /// such.
    pub fn binding(verdicts: &[Verdict]) -> Option<usize> {
        let denied = verdicts
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, v)| !v.allowed);
        denied
            .max_by_key(|(_, v)| v.wait_us)
            .map(|(index, _)| index)
    }

    /// The reply: allowed, limit, remaining, wait_ms, reset_ms. A caller that waits exactly
    /// what it is told is admitted, so times round up; they saturate at 2^63 − 1.
    pub fn reply(&self) -> [u64; 5] {
        [
            u64::from(self.allowed),
            self.limit,
            self.remaining,
            ceil(self.wait_us, 1000),
            ceil(self.reset_us, 1000),
        ]
    }

    /// Wait and reset in whole seconds, rounded up.
    pub fn seconds(&self) -> [u64; 2] {
        [self.wait_us, self.reset_us].map(|us| ceil(us, 1_000_000))
    }
}

#[inline(always)]
fn ceil(us: u128, unit: u64) -> u64 {
    const MOST: u128 = i64::MAX as u128;
    match u64::try_from(us) {
        Ok(us) => us.div_ceil(unit),
        Err(_) => us.div_ceil(u128::from(unit)).min(MOST) as u64,
    }
}
