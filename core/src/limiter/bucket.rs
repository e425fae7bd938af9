//! The bucket family, as one integer computation without drift.
//!
//! A bucket owes a debt that drains continuously: C tokens per P µs. It is counted in ticks
//! of which a token has P and a µs drains C, so every quantity is whole. A call of cost n is
//! admitted iff the drained debt and its own n·P fit into the capacity K·P. This is the
//! generic cell rate algorithm (ITU-T I.371) in its virtual-scheduling form, with the
//! theoretical arrival time written as a debt; a token bucket that counts what is taken
//! instead of what is left is the same thing, and so is a leaky bucket, whose caller waits
//! until the debt ahead of it has drained.

use super::meter::{ends_at, in_shape, Meter};
use super::policy::{BucketPolicy, MAX_PERIOD_MS, MAX_TOKENS};
use super::Shape;
use crate::codec::{Blob, Malformed, Reader};
use crate::{Error, Micros, Millis};

/// A debt and the policy it is counted under. Packed: a limiter is one small allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
pub struct Bucket {
    debt: Debt,
    /// When the debt was this.
    at: Micros,
    policy: BucketPolicy,
}

/// Ticks, up to 2^96: the largest debt that 100 years can drain is below 2^82.
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
    /// The policy of what was last counted.
    pub(super) fn policy(&self) -> BucketPolicy {
        self.policy
    }
}

impl Meter for Bucket {
    type Policy = BucketPolicy;
    /// The debt that is left, in the ticks of the policy.
    type Reading = u128;

    const NAME: &'static str = "bucket";

    in_shape!(Bucket);

    fn into_shape(self) -> Shape {
        Shape::Bucket(self)
    }

    fn unused(policy: &BucketPolicy, now: Micros) -> Bucket {
        Bucket {
            debt: Debt::new(0),
            at: now,
            policy: *policy,
        }
    }

    /// Another policy than the stored one reads the debt in its own ticks, rounded up to
    /// one, and at most as much as its own capacity, so that it neither finds free quota
    /// nor is locked out for longer than it could be by itself. Under an unchanged capacity
    /// an overdraft stands. Then it drains at the caller's rate since the stored time;
    /// a clock that stepped back drains nothing.
    #[inline(always)]
    fn read(&self, policy: &BucketPolicy, now: Micros) -> u128 {
        let mut debt = self.debt.ticks();
        let stored = self.policy;
        if stored != *policy {
            debt = (debt * policy.token()).div_ceil(stored.token());
            if stored.capacity() != policy.capacity() {
                debt = debt.min(policy.full());
            }
        }
        let elapsed = now.0.saturating_sub(self.at.0);
        debt.saturating_sub(u128::from(elapsed) * policy.drain_per_us())
    }

    #[inline(always)]
    fn wait_us(&self, debt: u128, policy: &BucketPolicy, cost: u64, _: Micros) -> Option<u128> {
        let over = (debt + u128::from(cost) * policy.token()).saturating_sub(policy.full());
        (over > 0).then(|| div_ceil(over, policy.drain_per_us()))
    }

    #[inline(always)]
    fn left(&self, debt: u128, policy: &BucketPolicy, _: Micros) -> (u64, u128) {
        let remaining = div(policy.full().saturating_sub(debt), policy.token());
        (remaining as u64, div_ceil(debt, policy.drain_per_us()))
    }

    #[inline(always)]
    fn spend(
        &mut self,
        debt: u128,
        policy: &BucketPolicy,
        cost: u64,
        now: Micros,
    ) -> Result<u128, Error> {
        let debt = debt + u128::from(cost) * policy.token();
        if debt > policy.max_debt() {
            return Err(Error::ChargeTooLarge);
        }
        self.owe(debt, policy, now);
        Ok(debt)
    }

    fn refund(&mut self, debt: u128, policy: &BucketPolicy, cost: u64, now: Micros) -> u128 {
        // An overdraft under a faster policy can be more than this one drains in 100 years.
        let debt = debt.saturating_sub(u128::from(cost) * policy.token());
        let debt = debt.min(policy.max_debt());
        self.owe(debt, policy, now);
        debt
    }

    fn rebase(&mut self, now: Micros) -> bool {
        let is_ahead = self.at.0 > now.0;
        if is_ahead {
            self.at = now;
        }
        is_ahead
    }

    fn is_under(&self, policy: &BucketPolicy) -> bool {
        self.policy() == *policy
    }

    fn matters_until(&self) -> Millis {
        let policy = self.policy;
        let drain_us = div_ceil(self.debt.ticks(), policy.drain_per_us());
        ends_at(self.at, drain_us)
    }

    fn is_drained(&self, now: Micros) -> bool {
        self.read(&self.policy(), now) == 0
    }

    fn facts(&self, _: Micros) -> Vec<(&'static str, u64)> {
        let policy = self.policy;
        vec![
            ("count", u64::from(policy.count())),
            ("period_ms", policy.period_ms()),
        ]
    }

    fn encode(&self, out: &mut Blob) {
        let (debt, policy) = (self.debt, self.policy);
        out.u64(debt.low);
        out.u32(debt.high);
        out.u64(self.at.0);
        out.u32(policy.capacity());
        out.u32(policy.count());
        out.u64(policy.period_ms());
    }

    fn decode(from: &mut Reader<'_>) -> Result<Bucket, Malformed> {
        let debt = Debt {
            low: from.u64()?,
            high: from.u32()?,
        };
        let at = from.clock()?;
        let (capacity, count, period_ms) = (from.u32()?, from.u32()?, from.u64()?);
        let tokens = 1..=MAX_TOKENS as u32;
        if !tokens.contains(&capacity)
            || !tokens.contains(&count)
            || !(1..=MAX_PERIOD_MS).contains(&period_ms)
        {
            return Err(Malformed::Corrupt);
        }
        let policy =
            BucketPolicy::new(capacity, count, period_ms).map_err(|_| Malformed::Corrupt)?;
        // An overdraft is what RL.CHARGE may leave: as much as 100 years drain.
        if debt.ticks() > policy.max_debt() {
            return Err(Malformed::Corrupt);
        }
        Ok(Bucket { debt, at, policy })
    }
}

impl Bucket {
    #[inline(always)]
    fn owe(&mut self, debt: u128, policy: &BucketPolicy, now: Micros) {
        *self = Bucket {
            debt: Debt::new(debt),
            at: now,
            policy: *policy,
        };
    }
}

/// Most quantities fit into 64 bits, where a division is one instruction.
#[inline(always)]
fn div(n: u128, d: u128) -> u128 {
    match (u64::try_from(n), u64::try_from(d)) {
        (Ok(n), Ok(d)) => u128::from(n / d),
        _ => n / d,
    }
}

#[inline(always)]
fn div_ceil(n: u128, d: u128) -> u128 {
    match (u64::try_from(n), u64::try_from(d)) {
        (Ok(n), Ok(d)) => u128::from(n.div_ceil(d)),
        _ => n.div_ceil(d),
    }
}
