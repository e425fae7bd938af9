//! What happens to a key, at random.

use crate::rules::{Family, Numbers, MOST, YEAR_MS};
use proptest::prelude::*;
use sluice_core::limiter::{Algorithm, Verdict};
use sluice_core::Micros;

const HOUR_US: u64 = 3_600_000_000;
pub(crate) const NOW_US: u64 = 1_750_000_000_000_300;
/// The epoch itself: `../limiter_extremes.rs`.
const FIRST_US: u64 = 1;
/// Leaves room for a block.
const LAST_US: u64 = Micros::BOUND - 2 * YEAR_MS * 1000;

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) clock: Clock,
    policy: prop::sample::Index,
    own_policy: bool,
    pub(crate) act: Act,
    pub(crate) cost: Cost,
}

#[derive(Clone, Debug)]
pub(crate) enum Act {
    Call,
    Charge,
    Refund,
    Block(u64),
    /// Another policy of RL.ALL denies.
    Refuse,
}

#[derive(Clone, Debug)]
pub(crate) enum Clock {
    Stay,
    Forward(u64),
    Back(u64),
    /// Parts of 64 of the period or window, and this far on.
    Part(u64, i64),
    /// To where the last call said, and this far on.
    Wait(i64),
    Reset(i64),
}

#[derive(Clone, Debug)]
pub(crate) enum Cost {
    One,
    Limit,
    /// This part of the limit, of 255.
    Share(u64),
    /// What remained after the last call, and this much more.
    Remaining(i64),
    /// So many times the limit, for charges and refunds.
    Times(u64),
    Most,
}

impl Step {
    pub(crate) fn numbers<'a>(&self, policies: &'a [Numbers]) -> &'a Numbers {
        match self.own_policy {
            true => &policies[0],
            false => self.policy.get(policies),
        }
    }

    pub(crate) fn moved(&self, now: u64, numbers: &Numbers, last: Option<&Verdict>) -> u64 {
        let forward = |us: u128| now.saturating_add(u64::try_from(us).unwrap_or(LAST_US));
        let to = match self.clock {
            Clock::Stay => now,
            Clock::Forward(us) => now + us,
            Clock::Back(us) => now.saturating_sub(us),
            Clock::Part(parts, off) => {
                (now + numbers.length_us() / 64 * parts).saturating_add_signed(off)
            }
            Clock::Wait(off) => {
                forward(last.map_or(0, |last| last.wait_us)).saturating_add_signed(off)
            }
            Clock::Reset(off) => {
                forward(last.map_or(0, |last| last.reset_us)).saturating_add_signed(off)
            }
        };
        to.clamp(FIRST_US, LAST_US)
    }

    /// At most the limit for a call.
    pub(crate) fn cost(&self, numbers: &Numbers, last: Option<&Verdict>) -> u64 {
        let limit = numbers.limit;
        let cost = match self.cost {
            Cost::One => 1,
            Cost::Limit => limit,
            Cost::Share(share) => limit * share / 255,
            Cost::Remaining(off) => {
                let remaining = last.map_or(limit, |last| last.remaining);
                remaining.saturating_add_signed(off)
            }
            Cost::Times(times) => limit * times,
            Cost::Most => MOST,
        };
        match self.act {
            Act::Charge | Act::Refund => cost.clamp(1, MOST),
            _ => cost.clamp(1, limit),
        }
    }
}

fn limit() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 1..=5u64,
        4 => 6..=100u64,
        1 => 1..=MOST,
        1 => MOST - 1..=MOST,
    ]
}

fn length_ms() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1..=3u64,
        6 => prop::sample::select(vec![7, 1_000, 60_000, 86_400_000]),
        1 => 1..=YEAR_MS,
        1 => Just(YEAR_MS),
    ]
}

fn align_ms() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![
        4 => Just(None),
        2 => Just(Some(0)),
        2 => (0..=100_000u64).prop_map(Some),
        1 => (0..=YEAR_MS).prop_map(Some),
    ]
}

pub(crate) fn numbers(algorithm: Algorithm) -> impl Strategy<Value = Numbers> {
    let most_entries = prop_oneof![3 => Just(100_000u64), 1 => 1..=6u64];
    let rest = (limit(), limit(), length_ms(), align_ms(), most_entries);
    rest.prop_map(move |(limit, count, length_ms, align_ms, most_entries)| {
        let mut numbers = Numbers {
            algorithm,
            limit,
            count,
            length_ms,
            align_ms: None,
            most_entries,
        };
        match numbers.family() {
            Family::Bucket => {}
            Family::FixedWindow => numbers.align_ms = align_ms,
            Family::SlidingWindow | Family::SlidingLog => {}
        }
        valid(numbers)
    })
}

/// With a limit that this algorithm allows.
fn valid(mut numbers: Numbers) -> Numbers {
    match numbers.family() {
        Family::Bucket => {
            let most = u128::from(numbers.count) * u128::from(100 * YEAR_MS);
            let most = most / u128::from(numbers.length_ms);
            numbers.limit = u128::from(numbers.limit).min(most) as u64;
        }
        Family::SlidingLog => {
            numbers.count = 0;
            numbers.limit = numbers.limit.min(numbers.most_entries);
        }
        Family::FixedWindow | Family::SlidingWindow => numbers.count = 0,
    }
    numbers
}

/// One policy and some others, each of which shares this or that with the first.
pub(crate) fn policies(algorithm: Algorithm) -> impl Strategy<Value = Vec<Numbers>> {
    let other = prop::sample::select(Algorithm::ALL.to_vec()).prop_flat_map(numbers);
    let other = prop_oneof![2 => numbers(algorithm), 1 => other];
    let others = prop::collection::vec((other, any::<[bool; 2]>()), 0..3);
    (numbers(algorithm), others).prop_map(|(first, others)| {
        let mut all = vec![first];
        for (mut other, [limit, length]) in others {
            if limit {
                other.limit = first.limit;
            }
            if length {
                other.length_ms = first.length_ms;
            }
            all.push(valid(other));
        }
        all
    })
}

fn clock() -> impl Strategy<Value = Clock> {
    let near = || -1..=1i64;
    prop_oneof![
        6 => Just(Clock::Stay),
        1 => Just(Clock::Forward(1)),
        1 => (0..=3_000u64).prop_map(Clock::Forward),
        1 => Just(Clock::Forward(HOUR_US)),
        1 => (1..=100 * YEAR_MS * 1000).prop_map(Clock::Forward),
        1 => Just(Clock::Back(1)),
        1 => (0..=3_000_000u64).prop_map(Clock::Back),
        1 => Just(Clock::Back(HOUR_US)),
        1 => (1..=100 * YEAR_MS * 1000).prop_map(Clock::Back),
        4 => (1..=64u64, near()).prop_map(|(parts, off)| Clock::Part(parts, off)),
        1 => (64..=200u64, near()).prop_map(|(parts, off)| Clock::Part(parts, off)),
        4 => near().prop_map(Clock::Wait),
        2 => near().prop_map(Clock::Reset),
    ]
}

fn cost() -> impl Strategy<Value = Cost> {
    prop_oneof![
        4 => Just(Cost::One),
        2 => Just(Cost::Limit),
        3 => (0..=255u64).prop_map(Cost::Share),
        4 => (-1..=1i64).prop_map(Cost::Remaining),
        1 => (1..=4u64).prop_map(Cost::Times),
        1 => Just(Cost::Most),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let block_ms = prop_oneof![4 => 1..=5_000u64, 1 => 1..=YEAR_MS, 1 => Just(YEAR_MS)];
    prop_oneof![
        12 => Just(Act::Call),
        2 => Just(Act::Charge),
        3 => Just(Act::Refund),
        1 => block_ms.prop_map(Act::Block),
        1 => Just(Act::Refuse),
    ]
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let policy = (any::<prop::sample::Index>(), any::<bool>());
    (clock(), policy, act(), cost()).prop_map(|(clock, (policy, own_policy), act, cost)| Step {
        clock,
        policy,
        own_policy,
        act,
        cost,
    })
}

pub(crate) fn start() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => Just(FIRST_US),
        1 => FIRST_US..=1_000_000u64,
        6 => Just(NOW_US),
        1 => Just(LAST_US - HOUR_US),
    ]
}
