//! Rate limiters: what a key stores, and what a policy makes of it.
//!
//! The policy comes with every call; the key holds only state. A verdict is therefore a
//! function of the stored state, the caller's policy, the cost and the clock. Each algorithm
//! has a file that says how it counts ([`meter::Meter`]); what calls, charges and
//! refunds do whatever the algorithm is written once, in `calls`.

mod blocked;
mod bucket;
mod calls;
mod effect;
mod entries;
mod fixed_window;
mod meter;
pub mod policy;
mod sending;
mod shape;
mod sliding_log;
mod sliding_window;
mod verdict;

pub use effect::LimiterEffect;
pub use policy::{Algorithm, BucketPolicy, FixedWindowPolicy, LogPolicy, Policy, WindowPolicy};
pub use sending::Send;
pub use verdict::Verdict;

use blocked::Block;
use bucket::Bucket;
use calls::{call, peek, refund, refuse, Spend};
use fixed_window::FixedWindow;
use sending::Sending;
use shape::Shape;
use sliding_log::SlidingLog;
use sliding_window::SlidingWindow;

use crate::{Error, Micros, Millis};

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
