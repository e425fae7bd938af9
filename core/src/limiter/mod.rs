//! Rate limiters: what a key stores, and what a policy makes of it.
//!
//! The policy comes with every call; the key holds only state. A verdict is therefore a
//! function of the stored state, the caller's policy, the cost and the clock. Each algorithm
//! has a file that says how it counts ([`meter::Meter`]); what is the same for all (calls,
//! charges, refunds, blocks, effects) stands here.

mod blocked;
mod bucket;
mod entries;
mod fixed_window;
mod meter;
pub mod policy;
mod sending;
mod shape;
mod sliding_log;
mod sliding_window;
mod verdict;

pub use policy::{Algorithm, BucketPolicy, FixedWindowPolicy, LogPolicy, Policy, WindowPolicy};
pub use sending::Send;
pub use verdict::Verdict;

use blocked::Block;
use bucket::Bucket;
use fixed_window::FixedWindow;
use meter::{ends_at, Meter};
use sending::Sending;
use shape::{Encoded, Log, Shape};
use sliding_log::{LogDelta, SlidingLog};
use sliding_window::SlidingWindow;

use crate::codec::{Blob, Malformed, Reader};
use crate::{Error, Micros, Millis, State};

/// The state of a limiter key. As good as new means no key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limiter {
    shape: Shape,
    sending: Sending,
}

// The promise of one allocation of at most 48 bytes.
const _: () = assert!(std::mem::size_of::<Limiter>() <= 48);

/// What a call does to the key.
#[derive(Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing. Under the caller's policy the state matters until `until`: a key that would
    /// go earlier must be kept. `None` where the key's TTL is long enough as it is.
    None { until: Option<Millis> },
    /// What is stored has been changed in place. `until` as above.
    Changed {
        /// Its effect must not be kept back.
        must_send: bool,
        until: Option<Millis>,
    },
    /// There was nothing: store this.
    New(Limiter),
    /// As good as new again: delete the key.
    Gone,
}

/// What RL.BLOCK leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Penalty {
    /// For how many µs everything is denied.
    pub left_us: u64,
    /// Whether that is longer than it was.
    pub is_longer: bool,
}

/// Whether a cost that does not fit is counted nevertheless.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spend {
    IfAdmitted,
    Always,
}

/// Runs one function for the meter that a policy is for.
macro_rules! by_policy {
    ($policy:expr, $function:ident($($arg:expr),*)) => {
        match $policy {
            Policy::Bucket(own) | Policy::LeakyBucket(own) => $function::<Bucket>($($arg,)* own),
            Policy::FixedWindow(own) => $function::<FixedWindow>($($arg,)* own),
            Policy::SlidingWindow(own) => $function::<SlidingWindow>($($arg,)* own),
            Policy::SlidingLog(own) => $function::<SlidingLog>($($arg,)* own),
        }
    };
}

impl Limiter {
    /// How much longer than needed a key may live, so that its TTL is not set on each call.
    pub const TTL_SLACK_MS: u64 = 1000;

    /// Decides a call of `cost`, 1..=limit. The key of another algorithm in use is an error.
    #[inline(always)]
    pub fn decide(
        stored: Option<&mut Limiter>,
        policy: &Policy,
        cost: u64,
        now: Micros,
    ) -> Result<(Verdict, Change), Error> {
        by_policy!(policy, call(stored, policy, cost, Spend::IfAdmitted, now))
    }

    /// Counts a cost without asking, also while blocked. The verdict says whether and when
    /// it would have fitted, and what is left after it.
    pub fn charge(
        stored: Option<&mut Limiter>,
        policy: &Policy,
        cost: u64,
        now: Micros,
    ) -> Result<(Verdict, Change), Error> {
        by_policy!(policy, call(stored, policy, cost, Spend::Always, now))
    }

    /// The verdict a call would get, with nothing spent.
    pub fn peek(
        stored: Option<&Limiter>,
        policy: &Policy,
        cost: u64,
        now: Micros,
    ) -> Result<Verdict, Error> {
        by_policy!(policy, peek(stored, policy, cost, now))
    }

    /// What a call leaves behind that was denied although this limiter may have admitted it,
    /// since another denied it.
    pub fn refuse(
        stored: Option<&mut Limiter>,
        policy: &Policy,
        now: Micros,
    ) -> Result<Change, Error> {
        by_policy!(policy, refuse(stored, now))
    }

    /// Gives a cost back, the newest first, until nothing is used. A block stands.
    pub fn refund(
        stored: Option<&mut Limiter>,
        policy: &Policy,
        cost: u64,
        now: Micros,
    ) -> Result<(Verdict, Change), Error> {
        by_policy!(policy, refund(stored, policy, cost, now))
    }

    /// Denies everything for `ms`, or longer if that stands already.
    pub fn block(stored: Option<&mut Limiter>, ms: u64, now: Micros) -> (Penalty, Change) {
        let block = Block::new(ms, now);
        let asked_us = block.left_us(now);
        let Some(limiter) = stored else {
            let penalty = Penalty {
                left_us: asked_us,
                is_longer: true,
            };
            let blocked = Shape::Unused.under(Some(block));
            return (penalty, Change::New(blocked.into()));
        };
        let is_rebased = limiter.shape.rebase(now);
        let standing_us = limiter.blocked_us(now);
        let penalty = Penalty {
            left_us: asked_us.max(standing_us),
            is_longer: asked_us > standing_us,
        };
        if penalty.is_longer {
            limiter.set_block(Some(block));
        }
        let until = None;
        let change = match penalty.is_longer || is_rebased {
            true => Change::Changed {
                must_send: true,
                until,
            },
            false => Change::None { until },
        };
        (penalty, change)
    }

    /// For how many µs everything is denied.
    #[inline]
    pub fn blocked_us(&self, now: Micros) -> u64 {
        match &self.shape {
            Shape::Blocked(blocked) => blocked.block.left_us(now),
            _ => 0,
        }
    }

    /// What is to be done about an effect of a state that has just changed, if each key may
    /// send one only every `interval_ms` (below 2^32; 0: always). `must_send`: at once,
    /// whatever the interval.
    pub fn send(&mut self, must_send: bool, now: Micros, interval_ms: u64) -> Send {
        self.sending.changed(must_send, now, interval_ms)
    }

    /// The same for a state that has not changed: what was admitted and not sent yet is sent
    /// once the interval is over.
    pub fn catch_up(&mut self, now: Micros, interval_ms: u64) -> Send {
        self.sending.catch_up(now, interval_ms)
    }

    /// The policy of what was last counted; `None` if nothing is.
    pub fn policy(&self) -> Option<Policy> {
        match self.limiter() {
            Shape::Bucket(bucket) => Some(Policy::Bucket(bucket.policy())),
            Shape::FixedWindow(window) => Some(Policy::FixedWindow(FixedWindowPolicy {
                window: window.window(),
                align_ms: None,
            })),
            Shape::SlidingWindow(window) => Some(Policy::SlidingWindow(window.window())),
            Shape::SlidingLog(log) => Some(Policy::SlidingLog(LogPolicy {
                window: log.window(),
                most_entries: u32::MAX,
            })),
            Shape::Unused | Shape::Blocked(_) => None,
        }
    }

    /// Whether anything is used, blocked or not.
    pub fn is_used(&self, now: Micros) -> bool {
        !self.limiter().is_drained(now)
    }

    /// What RL.INFO calls the algorithm.
    pub fn algorithm(&self) -> &'static str {
        self.shape.name()
    }

    /// What RL.INFO shows of one algorithm only.
    pub fn facts(&self, now: Micros) -> Vec<(&'static str, u64)> {
        self.shape.facts(now)
    }

    /// The last millisecond in which the state matters to a call under its own policy.
    #[inline]
    pub fn matters_until(&self) -> Millis {
        self.shape.matters_until()
    }

    /// Whether it is as good as new.
    pub fn is_drained(&self, now: Micros) -> bool {
        self.shape.is_drained(now)
    }

    /// Roughly the bytes it takes beside its own allocation.
    pub fn heap_size(&self) -> usize {
        let of_log = |shape: &Shape| match shape {
            Shape::SlidingLog(log) => log.heap_size(),
            _ => 0,
        };
        match &self.shape {
            Shape::Blocked(blocked) => size_of::<blocked::Blocked>() + of_log(&blocked.limiter),
            shape => of_log(shape),
        }
    }

    /// How many entries there are to free.
    pub fn entries(&self) -> usize {
        match self.limiter() {
            Shape::SlidingLog(log) => log.len(),
            _ => 1,
        }
    }

    /// The shape below a block.
    #[inline]
    fn limiter(&self) -> &Shape {
        match &self.shape {
            Shape::Blocked(blocked) => &blocked.limiter,
            shape => shape,
        }
    }

    #[inline]
    fn limiter_mut(&mut self) -> &mut Shape {
        match &mut self.shape {
            Shape::Blocked(blocked) => &mut blocked.limiter,
            shape => shape,
        }
    }

    /// Drops a block that is over, as every change does.
    #[inline]
    fn tidy(&mut self, now: Micros) {
        if matches!(self.shape, Shape::Blocked(_)) && self.blocked_us(now) == 0 {
            self.set_block(None);
        }
    }

    fn set_block(&mut self, block: Option<Block>) {
        let limiter = std::mem::replace(self.limiter_mut(), Shape::Unused);
        self.shape = limiter.under(block);
    }

    fn rebase_block(&mut self, now: Micros) -> bool {
        match &mut self.shape {
            Shape::Blocked(blocked) => blocked.block.rebase(now),
            _ => false,
        }
    }
}

impl From<Shape> for Limiter {
    fn from(shape: Shape) -> Limiter {
        Limiter {
            shape,
            sending: Sending::default(),
        }
    }
}

/// The meter of this kind that is stored, or nothing if all that is there is as good as new.
#[inline(always)]
fn find<M: Meter>(limiter: &mut Limiter, now: Micros) -> Result<Option<&mut M>, Error> {
    let shape = limiter.limiter_mut();
    if M::in_shape(shape).is_none() && !shape.is_drained(now) {
        return Err(Error::OtherAlgorithm {
            holds: shape.name(),
            wanted: M::NAME,
        });
    }
    Ok(M::in_shape_mut(shape))
}

#[inline(always)]
fn call<M: Meter>(
    mut stored: Option<&mut Limiter>,
    policy: &Policy,
    cost: u64,
    spend: Spend,
    now: Micros,
    own: &M::Policy,
) -> Result<(Verdict, Change), Error> {
    let block_us = stored.as_ref().map_or(0, |limiter| limiter.blocked_us(now));
    let found = match stored.as_deref_mut() {
        Some(limiter) => find::<M>(limiter, now)?,
        None => None,
    };
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

fn peek<M: Meter>(
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
        None => {
            return Err(Error::OtherAlgorithm {
                holds: shape.name(),
                wanted: M::NAME,
            })
        }
    };
    let reading = meter.read(own, now);
    let left = meter.left(reading, own, now);
    let wait_us = meter.wait_us(reading, own, cost, now);
    Ok(Verdict::new(policy, wait_us, left)
        .blocked(block_us)
        .held(policy, left.1))
}

fn refuse<M: Meter>(
    mut stored: Option<&mut Limiter>,
    now: Micros,
    own: &M::Policy,
) -> Result<Change, Error> {
    let found = match stored.as_deref_mut() {
        Some(limiter) => find::<M>(limiter, now)?,
        None => None,
    };
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

fn refund<M: Meter>(
    mut stored: Option<&mut Limiter>,
    policy: &Policy,
    cost: u64,
    now: Micros,
    own: &M::Policy,
) -> Result<(Verdict, Change), Error> {
    let block_us = stored.as_ref().map_or(0, |limiter| limiter.blocked_us(now));
    let verdict = |left| Verdict::new(policy, None, left).blocked(block_us);
    let found = match stored.as_deref_mut() {
        Some(limiter) => find::<M>(limiter, now)?,
        None => None,
    };
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

/// An effect as a replica reads it. All are idempotent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimiterEffect {
    Whole(Limiter),
    /// Adds to a log, and takes from it.
    Log {
        delta: LogDelta,
        block: Option<Block>,
    },
}

impl LimiterEffect {
    /// The effect, and the clock of the primary that wrote it.
    pub fn decode(bytes: &[u8]) -> Result<(LimiterEffect, Micros), Malformed> {
        let mut from = Reader::new(bytes);
        from.version(Limiter::VERSION)?;
        let now = from.clock()?;
        let encoded = Encoded::decode(&mut from)?;
        from.finish()?;
        let effect = match encoded {
            Encoded {
                log: Some(delta),
                block,
                ..
            } => LimiterEffect::Log { delta, block },
            Encoded { block, limiter, .. } => LimiterEffect::Whole(limiter.under(block).into()),
        };
        Ok((effect, now))
    }
}

impl Limiter {
    /// Applies an effect to what is stored. `None`: that has been changed in place; else
    /// store this instead.
    pub fn apply(stored: Option<&mut Limiter>, effect: LimiterEffect) -> Option<Limiter> {
        let (delta, block) = match effect {
            LimiterEffect::Whole(limiter) => return Some(limiter),
            LimiterEffect::Log { delta, block } => (delta, block),
        };
        if let Some(limiter) = stored {
            if let Shape::SlidingLog(log) = limiter.limiter_mut() {
                log.apply(&delta);
                limiter.set_block(block);
                return None;
            }
        }
        Some(delta.into_log().into_shape().under(block).into())
    }

    /// An effect that makes this state from nothing: for a rewritten append-only file.
    pub fn rebuild(&self, now: Micros) -> Blob {
        let mut out = effect_head(now);
        self.shape.encode(&mut out, Log::Whole);
        out
    }
}

fn effect_head(now: Micros) -> Blob {
    let mut out = Blob::new();
    out.u8(Limiter::VERSION);
    out.u64(now.0);
    out
}

impl State for Limiter {
    const VERSION: u8 = 1;

    fn encode(&self, out: &mut Blob) {
        self.shape.encode(out, Log::Whole);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Limiter, Malformed> {
        Shape::decode(from).map(Limiter::from)
    }

    /// Of a log only what happened last: it may be long.
    #[inline]
    fn to_effect(&self, now: Micros) -> Blob {
        let mut out = effect_head(now);
        self.shape.encode(&mut out, Log::Delta);
        out
    }
}
