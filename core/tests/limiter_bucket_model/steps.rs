//! What happens to the key: under which policies, when, and at which cost.

use crate::model::Numbers;
use crate::{BOUND_US, HOUR_US, YEAR_MS, YEAR_US};
use proptest::prelude::*;
use sluice_core::limiter::{Algorithm, Verdict};

/// The names under which one debt is spent.
const BUCKETS: [Algorithm; 3] = [
    Algorithm::Gcra,
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
];
const MOST: u64 = 1_000_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) clock: Clock,
    /// Of the policies that are used on the key.
    pub(crate) policy: prop::sample::Index,
    pub(crate) own_policy: bool,
    pub(crate) algorithm: Algorithm,
    pub(crate) cost: Cost,
}

#[derive(Clone, Debug)]
pub(crate) enum Clock {
    Stay,
    Forward(u64),
    Back(u64),
    /// So many times what one token takes, and this far on.
    Tokens(u64, i64),
    /// This part of what a full bucket takes, of 255.
    Full(u8),
    /// To where the last call said, and this far on.
    Wait(i64),
    WaitMs,
    Reset(i64),
}

#[derive(Clone, Debug)]
pub(crate) enum Cost {
    One,
    Limit,
    /// This part of the limit, of 65535.
    Share(u16),
    /// What remained after the last call, and this much more.
    Remaining(i64),
}

fn tokens() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 1..=5u64,
        3 => 6..=1000u64,
        2 => (0..=29u32).prop_map(|bits| 1 << bits),
        2 => MOST - 1..=MOST,
        2 => 1..=MOST,
    ]
}

fn period_ms() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1..=7u64,
        6 => prop::sample::select(vec![100, 1000, 60_000, 3_600_000, 86_400_000]),
        2 => (0..=34u32).prop_map(|bits| 1 << bits),
        1 => YEAR_MS - 1..=YEAR_MS,
        2 => 1..=YEAR_MS,
    ]
}

/// Makes a full bucket drain within 100 years.
fn with_fewer_tokens(mut numbers: Numbers) -> Numbers {
    let most = u128::from(numbers.count) * u128::from(100 * YEAR_MS);
    let most = most / u128::from(numbers.period_ms);
    numbers.capacity = u128::from(numbers.capacity).min(most) as u64;
    numbers
}

/// The same, the capacity unchanged.
fn with_more_per_period(mut numbers: Numbers) -> Numbers {
    let full_ms = u128::from(numbers.capacity) * u128::from(numbers.period_ms);
    let least = full_ms.div_ceil(u128::from(100 * YEAR_MS)) as u64;
    numbers.count = numbers.count.max(least);
    numbers
}

fn numbers() -> impl Strategy<Value = Numbers> {
    let extreme = prop::sample::select(vec![
        (7_000, 1000),
        (3_000_000, 1000),
        (MOST, 1),
        (MOST - 1, 1),
        (1, YEAR_MS),
        (MOST, YEAR_MS),
        (10, 3),
    ]);
    let rate = prop_oneof![3 => (tokens(), period_ms()), 1 => extreme];
    (tokens(), rate, any::<bool>()).prop_map(|(capacity, (count, period_ms), fewer)| {
        let numbers = Numbers {
            capacity,
            count,
            period_ms,
        };
        if fewer {
            with_fewer_tokens(numbers)
        } else {
            with_more_per_period(numbers)
        }
    })
}

/// One policy and some others, each of which shares this or that with the first.
pub(crate) fn policies() -> impl Strategy<Value = Vec<Numbers>> {
    let other = (numbers(), any::<[bool; 3]>());
    (numbers(), prop::collection::vec(other, 0..3)).prop_map(|(first, others)| {
        let mut all = vec![first];
        for (mut numbers, [capacity, count, period]) in others {
            if capacity {
                numbers.capacity = first.capacity;
            }
            if count {
                numbers.count = first.count;
            }
            if period {
                numbers.period_ms = first.period_ms;
            }
            all.push(with_more_per_period(numbers));
        }
        all
    })
}

fn clock() -> impl Strategy<Value = Clock> {
    let near = || -1..=1i64;
    prop_oneof![
        6 => Just(Clock::Stay),
        1 => Just(Clock::Forward(1)),
        1 => (0..=2000u64).prop_map(Clock::Forward),
        1 => Just(Clock::Forward(HOUR_US)),
        1 => (1..=100 * YEAR_US).prop_map(Clock::Forward),
        1 => Just(Clock::Back(1)),
        1 => Just(Clock::Back(HOUR_US)),
        1 => (1..=100 * YEAR_US).prop_map(Clock::Back),
        4 => near().prop_map(|off| Clock::Tokens(1, off)),
        2 => (2..=20u64, near()).prop_map(|(n, off)| Clock::Tokens(n, off)),
        2 => any::<u8>().prop_map(Clock::Full),
        4 => near().prop_map(Clock::Wait),
        1 => Just(Clock::WaitMs),
        2 => near().prop_map(Clock::Reset),
    ]
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let cost = prop_oneof![
        4 => Just(Cost::One),
        2 => Just(Cost::Limit),
        3 => any::<u16>().prop_map(Cost::Share),
        4 => (-1..=1i64).prop_map(Cost::Remaining),
    ];
    let algorithm = prop::sample::select(BUCKETS.to_vec());
    let policy = (any::<prop::sample::Index>(), any::<bool>());
    (clock(), policy, algorithm, cost).prop_map(|(clock, (policy, own_policy), algorithm, cost)| {
        Step {
            clock,
            policy,
            own_policy,
            algorithm,
            cost,
        }
    })
}

fn part(of: u128, share: u128, most: u128) -> u64 {
    u64::try_from(of * share / most).unwrap_or(u64::MAX)
}

pub(crate) fn moved(clock: &Clock, now: u64, numbers: &Numbers, last: Option<&Verdict>) -> u64 {
    let period_us = u128::from(numbers.period_ms) * 1000;
    let count = u128::from(numbers.count);
    let forward = |us: u128| now.saturating_add(u64::try_from(us).unwrap_or(u64::MAX));
    let to = match *clock {
        Clock::Stay => now,
        Clock::Forward(us) => now.saturating_add(us),
        Clock::Back(us) => now.saturating_sub(us),
        Clock::Tokens(n, off) => {
            forward((u128::from(n) * period_us).div_ceil(count)).saturating_add_signed(off)
        }
        Clock::Full(share) => {
            let full_us = u128::from(numbers.capacity) * period_us / count;
            now.saturating_add(part(full_us, u128::from(share), 255))
        }
        Clock::Wait(off) => {
            forward(last.map_or(0, |verdict| verdict.wait_us)).saturating_add_signed(off)
        }
        Clock::WaitMs => forward(last.map_or(0, |verdict| {
            let [.., wait_ms, _] = verdict.reply();
            u128::from(wait_ms) * 1000
        })),
        Clock::Reset(off) => {
            forward(last.map_or(0, |verdict| verdict.reset_us)).saturating_add_signed(off)
        }
    };
    to.min(BOUND_US - 1)
}

pub(crate) fn cost(cost: &Cost, limit: u64, last: Option<&Verdict>) -> u64 {
    let cost = match *cost {
        Cost::One => 1,
        Cost::Limit => limit,
        Cost::Share(share) => part(u128::from(limit), u128::from(share), 65535),
        Cost::Remaining(off) => last
            .map_or(limit, |verdict| verdict.remaining)
            .saturating_add_signed(off),
    };
    cost.clamp(1, limit)
}
