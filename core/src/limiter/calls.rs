//! What calls, charges, refunds and peeks do to a key, whatever the algorithm: each is written
//! once, for a [`Meter`].

use super::meter::{ends_at, Meter};
use super::shape::Shape;
use super::{Change, Limiter, Policy, Verdict};
use crate::{Error, Micros, Millis};

/// Whether a cost that does not fit is counted nevertheless.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Spend {
    IfAdmitted,
    Always,
}

/// The meter of this kind that is stored, or nothing if all that is there is as good as new.
#[inline(always)]
fn find<M: Meter>(stored: Option<&mut Limiter>, now: Micros) -> Result<Option<&mut M>, Error> {
    let Some(limiter) = stored else {
        return Ok(None);
    };
    let shape = limiter.limiter_mut();
    if M::in_shape(shape).is_none() && !shape.is_drained(now) {
        return Err(other_than::<M>(shape));
    }
    Ok(M::in_shape_mut(shape))
}

fn other_than<M: Meter>(shape: &Shape) -> Error {
    Error::OtherAlgorithm {
        holds: shape.name(),
        wanted: M::NAME,
    }
}

#[inline(always)]
pub(super) fn call<M: Meter>(
    mut stored: Option<&mut Limiter>,
    policy: &Policy,
    cost: u64,
    spend: Spend,
    now: Micros,
    own: &M::Policy,
) -> Result<(Verdict, Change), Error> {
    let block_us = stored.as_ref().map_or(0, |limiter| limiter.blocked_us(now));
    let found = find::<M>(stored.as_deref_mut(), now)?;
    let (is_stored, mut unused) = (found.is_some(), None);
    let meter = match found {
        Some(meter) => meter,
        None => unused.insert(M::unused(own, now)),
    };
    let before = meter.read(own, now);
    let wait_us = meter.wait_us(before, own, cost, now);
    let is_admitted = wait_us.is_none() && block_us == 0;
    if !is_admitted && spend == Spend::IfAdmitted {
        let left = meter.left(before, own, now);
        let verdict = Verdict::new(policy, wait_us, left).blocked(block_us);
        let until = (is_stored && !meter.is_under(own)).then(|| ends_at(now, left.1));
        let is_rebased = is_stored && meter.rebase(now);
        return Ok((verdict, nothing_counted(stored, is_rebased, until, now)));
    }
    let must_send = !meter.is_under(own);
    let ahead_us = match policy {
        Policy::LeakyBucket(_) => meter.left(before, own, now).1,
        _ => 0,
    };
    let after = meter.spend(before, own, cost, now)?;
    let verdict = Verdict::new(policy, wait_us, meter.left(after, own, now))
        .blocked(block_us)
        .held(policy, ahead_us);
    let change = match (stored, unused) {
        (None, unused) => {
            let shape = unused.map_or(Shape::Unused, Meter::into_shape);
            Change::New(shape.into())
        }
        (Some(limiter), unused) => {
            let is_new = unused.is_some();
            if let Some(meter) = unused {
                *limiter.limiter_mut() = meter.into_shape();
            }
            limiter.rebase_block(now);
            limiter.tidy(now);
            Change::Changed {
                must_send: must_send || is_new,
                until: None,
            }
        }
    };
    Ok((verdict, change))
}

/// What a call does that counts nothing: what lay ahead of the clock has been moved to now.
fn nothing_counted(
    stored: Option<&mut Limiter>,
    is_rebased: bool,
    until: Option<Millis>,
    now: Micros,
) -> Change {
    let block_is_rebased = stored.is_some_and(|limiter| limiter.rebase_block(now));
    match is_rebased || block_is_rebased {
        true => Change::Changed {
            must_send: true,
            until,
        },
        false => Change::None { until },
    }
}

pub(super) fn peek<M: Meter>(
    stored: Option<&Limiter>,
    policy: &Policy,
    cost: u64,
    now: Micros,
    own: &M::Policy,
) -> Result<Verdict, Error> {
    let block_us = stored.map_or(0, |limiter| limiter.blocked_us(now));
    let shape = stored.map_or(&Shape::Unused, Limiter::limiter);
    let unused;
    let meter = match M::in_shape(shape) {
        Some(meter) => meter,
        None if shape.is_drained(now) => {
            unused = M::unused(own, now);
            &unused
        }
        None => return Err(other_than::<M>(shape)),
    };
    let reading = meter.read(own, now);
    let left = meter.left(reading, own, now);
    let wait_us = meter.wait_us(reading, own, cost, now);
    Ok(Verdict::new(policy, wait_us, left)
        .blocked(block_us)
        .held(policy, left.1))
}

pub(super) fn refuse<M: Meter>(
    mut stored: Option<&mut Limiter>,
    now: Micros,
    own: &M::Policy,
) -> Result<Change, Error> {
    let found = find::<M>(stored.as_deref_mut(), now)?;
    let (mut until, mut is_rebased) = (None, false);
    if let Some(meter) = found {
        if !meter.is_under(own) {
            let (_, reset_us) = meter.left(meter.read(own, now), own, now);
            until = Some(ends_at(now, reset_us));
        }
        is_rebased = meter.rebase(now);
    }
    Ok(nothing_counted(stored, is_rebased, until, now))
}

pub(super) fn refund<M: Meter>(
    mut stored: Option<&mut Limiter>,
    policy: &Policy,
    cost: u64,
    now: Micros,
    own: &M::Policy,
) -> Result<(Verdict, Change), Error> {
    let block_us = stored.as_ref().map_or(0, |limiter| limiter.blocked_us(now));
    let verdict = |left| Verdict::new(policy, None, left).blocked(block_us);
    let found = find::<M>(stored.as_deref_mut(), now)?;
    let used = found.map(|meter| (meter.read(own, now), meter));
    let Some((before, meter)) = used.filter(|(before, meter)| !is_full(*meter, *before, own, now))
    else {
        let full = (policy.limit(), 0);
        return Ok((verdict(full), nothing_counted(stored, false, None, now)));
    };
    let after = meter.refund(before, own, cost, now);
    let (left, is_full) = (meter.left(after, own, now), is_full(meter, after, own, now));
    let Some(limiter) = stored else {
        return Ok((verdict(left), Change::Gone));
    };
    limiter.rebase_block(now);
    limiter.tidy(now);
    if is_full {
        *limiter.limiter_mut() = Shape::Unused;
    }
    let change = match limiter.shape {
        Shape::Unused => Change::Gone,
        _ => Change::Changed {
            must_send: true,
            until: None,
        },
    };
    Ok((verdict(left), change))
}

/// Whether nothing is used, so that nothing can be given back.
fn is_full<M: Meter>(meter: &M, reading: M::Reading, own: &M::Policy, now: Micros) -> bool {
    meter.left(reading, own, now).1 == 0
}
