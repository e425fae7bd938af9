//! The bucket family, as one integer computation without drift.
//!
//! A bucket owes a debt that drains continuously: C tokens per P µs. It is counted in ticks
//! of which a token has P and a µs drains C, so every quantity is whole. A call of cost n is
//! admitted iff the drained debt and its own n·P fit into the capacity K·P. This is the
//! generic cell rate algorithm (ITU-T I.371) in its virtual-scheduling form, with the
//! theoretical arrival time written as a debt; a token bucket that counts what is taken
//! instead of what is left is the same thing.

use super::policy::BucketPolicy;
use super::{Change, Limiter, Verdict};
use crate::codec::{Blob, Malformed, Reader};
use crate::{Micros, Millis};

/// A debt and the policy it is counted under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    debt: Debt,
    /// Each server's own, and no part of the encoding.
    pub(super) sending: Sending,
    /// When the debt was this.
    at: Micros,
    policy: BucketPolicy,
}

/// When an effect last carried a key's state, and whether it has changed since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sending {
    /// The low 32 bits of that millisecond.
    pub(super) sent: u32,
    pub(super) is_behind: bool,
}

/// Ticks, up to 2^96: the largest debt that 100 years can drain is below 2^82. In two
/// parts and packed, so that a bucket is 40 bytes and not the 64 that a u128 makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
struct Debt {
    low: u64,
    high: u32,
}

impl Debt {
    fn new(ticks: u128) -> Debt {
        Debt {
            low: ticks as u64,
            high: (ticks >> 64) as u32,
        }
    }

    fn ticks(self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }
}

impl Bucket {
    /// Decides a call of `cost` tokens, 1..=capacity, under `policy`.
    pub(super) fn decide(
        stored: Option<&Bucket>,
        policy: &BucketPolicy,
        cost: u64,
        now: Micros,
    ) -> (Verdict, Change) {
        let debt = stored.map_or(0, |bucket| bucket.debt_under(policy, now));
        let after = debt + u128::from(cost) * policy.token();
        let full = policy.full();
        if after <= full {
            let verdict = verdict(policy, true, after, 0);
            let charged = Bucket {
                debt: Debt::new(after),
                sending: stored.map_or(Sending::default(), |bucket| bucket.sending),
                at: now,
                policy: *policy,
            };
            return (verdict, Change::Charged(Limiter::Bucket(charged)));
        }
        let wait_us = (after - full).div_ceil(policy.drain_per_us());
        let verdict = verdict(policy, false, debt, wait_us);
        // Under its own policy the key lives long enough already.
        let until = stored
            .is_none_or(|bucket| bucket.policy != *policy)
            .then(|| ends_at(now, verdict.reset_us));
        let change = match stored {
            Some(bucket) if bucket.at > now => Change::Rebased {
                state: Limiter::Bucket(Bucket {
                    at: now,
                    ..bucket.clone()
                }),
                until,
            },
            _ => Change::None { until },
        };
        (verdict, change)
    }

    /// The verdict that [`Bucket::decide`] would give, with nothing spent.
    pub(super) fn peek(
        stored: Option<&Bucket>,
        policy: &BucketPolicy,
        cost: u64,
        now: Micros,
    ) -> Verdict {
        let debt = stored.map_or(0, |bucket| bucket.debt_under(policy, now));
        let after = debt + u128::from(cost) * policy.token();
        let over = after.saturating_sub(policy.full());
        verdict(
            policy,
            over == 0,
            debt,
            over.div_ceil(policy.drain_per_us()),
        )
    }

    /// The debt that is left now, in the ticks of `policy`.
    ///
    /// Another policy than the stored one reads the debt in its own ticks, rounded up to
    /// one, and at most as much as its own capacity, so that it neither finds free quota
    /// nor is locked out for longer than it could be by itself. Under an unchanged capacity
    /// an overdraft stands. Then it drains at the caller's rate since the stored time;
    /// a clock that stepped back drains nothing.
    fn debt_under(&self, policy: &BucketPolicy, now: Micros) -> u128 {
        let mut debt = self.debt.ticks();
        if self.policy != *policy {
            debt = (debt * policy.token()).div_ceil(self.policy.token());
            if self.policy.capacity() != policy.capacity() {
                debt = debt.min(policy.full());
            }
        }
        let elapsed = now.0.saturating_sub(self.at.0);
        debt.saturating_sub(u128::from(elapsed) * policy.drain_per_us())
    }

    /// The policy of the last admission.
    pub fn policy(&self) -> &BucketPolicy {
        &self.policy
    }

    pub(super) fn is_drained(&self, now: Micros) -> bool {
        self.debt_under(&self.policy, now) == 0
    }

    pub(super) fn drained_at(&self) -> Millis {
        let drain_us = self.debt.ticks().div_ceil(self.policy.drain_per_us());
        ends_at(self.at, drain_us)
    }

    pub(super) fn encode(&self, out: &mut Blob) {
        out.u64(self.debt.low);
        out.u32(self.debt.high);
        out.u64(self.at.0);
        out.u32(self.policy.capacity());
        out.u32(self.policy.count());
        out.u64(self.policy.period_ms());
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Bucket, Malformed> {
        let debt = Debt {
            low: from.u64()?,
            high: from.u32()?,
        };
        let at = from.clock()?;
        let (capacity, count, period_ms) = (from.u32()?, from.u32()?, from.u64()?);
        let tokens = 1..=BucketPolicy::MAX_TOKENS as u32;
        if !tokens.contains(&capacity)
            || !tokens.contains(&count)
            || !(1..=BucketPolicy::MAX_PERIOD_MS).contains(&period_ms)
        {
            return Err(Malformed::Corrupt);
        }
        let policy =
            BucketPolicy::new(capacity, count, period_ms).map_err(|_| Malformed::Corrupt)?;
        if debt.ticks() > BucketPolicy::MAX_DRAIN_US * policy.drain_per_us() {
            return Err(Malformed::Corrupt);
        }
        Ok(Bucket {
            debt,
            sending: Sending::default(),
            at,
            policy,
        })
    }
}

fn verdict(policy: &BucketPolicy, allowed: bool, debt: u128, wait_us: u128) -> Verdict {
    Verdict {
        allowed,
        limit: u64::from(policy.capacity()),
        remaining: (policy.full().saturating_sub(debt) / policy.token()) as u64,
        wait_us,
        reset_us: debt.div_ceil(policy.drain_per_us()),
    }
}

/// The millisecond in which `us` from `from` are over. Saturates at what a TTL can be.
fn ends_at(from: Micros, us: u128) -> Millis {
    let end_ms = (u128::from(from.0) + us).div_ceil(1000);
    Millis(u64::try_from(end_ms).map_or(Millis::BOUND - 1, |ms| ms.min(Millis::BOUND - 1)))
}
