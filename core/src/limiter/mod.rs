//! Rate limiters: what a key stores, and what a policy makes of it.
//!
//! The policy comes with every call; the key holds only state. A verdict is therefore a
//! function of the stored state, the caller's policy, the cost and the clock.

pub mod bucket;
pub mod policy;

pub use bucket::Bucket;
pub use policy::{Algorithm, BucketPolicy, Policy};

use bucket::Sending;

use crate::codec::{Blob, Malformed, Reader};
use crate::{Micros, Millis, State};

/// The state of a limiter key. As good as new means no key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limiter {
    /// GCRA and TOKENBUCKET share it: a key may be used with either.
    Bucket(Bucket),
}

// The promise of one allocation of at most 48 bytes.
const _: () = assert!(std::mem::size_of::<Limiter>() <= 48);

/// The five integers of every reply; times here in µs, unrounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub allowed: bool,
    pub limit: u64,
    /// The largest single cost that would be admitted right after this call.
    pub remaining: u64,
    /// When denied: after how long this same call would be admitted. Else 0.
    pub wait_us: u128,
    /// After how long `remaining` is the whole limit again.
    pub reset_us: u128,
}

/// What a call does to the key.
#[derive(Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing. Under the caller's policy the state matters until `until`: a key that would
    /// go earlier must be kept. `None` where the key's TTL is long enough as it is.
    None { until: Option<Millis> },
    /// Denied, but the clock has stepped back: what was ahead of it is moved to now. `until`
    /// as above.
    Rebased {
        state: Limiter,
        until: Option<Millis>,
    },
    /// Admitted.
    Charged(Limiter),
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

impl Verdict {
    /// The reply: allowed, limit, remaining, wait_ms, reset_ms. A caller that waits exactly
    /// what it is told is admitted, so times round up; they saturate at 2^63 − 1.
    pub fn reply(&self) -> [u64; 5] {
        [
            u64::from(self.allowed),
            self.limit,
            self.remaining,
            ceil_ms(self.wait_us),
            ceil_ms(self.reset_us),
        ]
    }
}

fn ceil_ms(us: u128) -> u64 {
    const MOST: u64 = i64::MAX as u64;
    u64::try_from(us.div_ceil(1000)).map_or(MOST, |ms| ms.min(MOST))
}

impl Limiter {
    /// How much longer than needed a key may live, so that its TTL is not set on each call.
    pub const TTL_SLACK_MS: u64 = 1000;

    /// Decides a call that costs `cost` tokens, 1..=limit.
    pub fn decide(
        stored: Option<&Limiter>,
        policy: &Policy,
        cost: u64,
        now: Micros,
    ) -> (Verdict, Change) {
        match policy {
            Policy::Bucket(policy) => {
                let stored = stored.map(|Limiter::Bucket(bucket)| bucket);
                Bucket::decide(stored, policy, cost, now)
            }
        }
    }

    /// The verdict a call would get, with nothing spent.
    pub fn peek(stored: Option<&Limiter>, policy: &Policy, cost: u64, now: Micros) -> Verdict {
        match policy {
            Policy::Bucket(policy) => {
                let stored = stored.map(|Limiter::Bucket(bucket)| bucket);
                Bucket::peek(stored, policy, cost, now)
            }
        }
    }

    /// What is to be done about an effect of a state that has just changed, if each key may
    /// send one only every `interval_ms` (below 2^32; 0: always). `must_send`: at once,
    /// whatever the interval.
    ///
    /// Counted modulo 2^32 ms: a clock that steps back looks like a long time, so that it
    /// never silences a key.
    pub fn send(&mut self, must_send: bool, now: Micros, interval_ms: u64) -> Send {
        let Limiter::Bucket(bucket) = self;
        let now = now.floor_ms().0 as u32;
        let since = u64::from(now.wrapping_sub(bucket.sending.sent));
        if must_send || since >= interval_ms {
            bucket.sending = Sending {
                sent: now,
                is_behind: false,
            };
            Send::Now
        } else if bucket.sending.is_behind {
            Send::Nothing
        } else {
            bucket.sending.is_behind = true;
            Send::Within(interval_ms - since)
        }
    }

    /// The same for a state that has not changed: what was admitted and not sent yet is sent
    /// once the interval is over.
    pub fn catch_up(&mut self, now: Micros, interval_ms: u64) -> Send {
        let Limiter::Bucket(bucket) = self;
        if !bucket.sending.is_behind {
            return Send::Nothing;
        }
        bucket.sending.is_behind = false;
        self.send(false, now, interval_ms)
    }

    /// The policy of the last admission.
    pub fn policy(&self) -> Policy {
        let Limiter::Bucket(bucket) = self;
        Policy::Bucket(*bucket.policy())
    }

    /// The last millisecond in which the state matters to a call under its own policy.
    pub fn matters_until(&self) -> Millis {
        let Limiter::Bucket(bucket) = self;
        bucket.drained_at()
    }

    /// Whether it is as good as new.
    pub fn is_drained(&self, now: Micros) -> bool {
        let Limiter::Bucket(bucket) = self;
        bucket.is_drained(now)
    }
}

impl State for Limiter {
    const VERSION: u8 = 1;

    fn encode(&self, out: &mut Blob) {
        let Limiter::Bucket(bucket) = self;
        out.u8(BUCKET);
        bucket.encode(out);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Limiter, Malformed> {
        match from.u8()? {
            BUCKET => Bucket::decode(from).map(Limiter::Bucket),
            _ => Err(Malformed::Corrupt),
        }
    }
}

/// The first byte of an encoded state: which of the shapes follows.
const BUCKET: u8 = 0;
