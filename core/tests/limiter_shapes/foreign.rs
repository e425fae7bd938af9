//! Effects on a key that does not hold what they were made of: an older append-only file, a
//! replica that somebody wrote to. What comes of it may count wrongly, but it can be used,
//! stored and loaded.

use crate::{called, effect, policy, read_stored, use_it};
use proptest::prelude::*;
use sluice_core::limiter::{Algorithm, LimiterEffect};
use sluice_core::{Limiter, Micros, State};

fn delta(base: u64, behind: u64, at: u64, total: u64) -> LimiterEffect {
    let fields = [base, behind, at, total].map(u64::to_le_bytes).concat();
    let body = [&[16, 10, 0, 0, 0][..], &1_000u64.to_le_bytes(), &fields].concat();
    LimiterEffect::decode(&effect(&body)).unwrap().0
}

/// Totals 1, 3, 6 and 10.
fn log() -> Limiter {
    let ten = policy(Algorithm::SlidingLog, &[10, 1_000]);
    called(&ten, &[(1, 1), (2, 2), (3, 3), (4, 4)])
}

fn check(effect: LimiterEffect) {
    let mut log = log();
    assert_eq!(Limiter::apply(Some(&mut log), effect), None);
    assert_eq!(read_stored(log.to_stored().as_bytes()), Ok(()));
    use_it(&log);
}

#[test]
fn a_total_below_those_that_stay() {
    check(delta(0, 4, 5, 1));
    check(delta(0, 2, 5, 3));
}

#[test]
fn a_base_above_or_below_all_that_is_there() {
    check(delta(100, 4, 5, 101));
    check(delta(u64::MAX - 5, 4, 5, u64::MAX - 4));
    check(delta(u64::MAX - 5, 4, 5, 11));
}

#[test]
fn an_instant_that_is_gone() {
    check(delta(0, 0, 1, 1));
    check(delta(3, 2, 3, 4));
}

#[test]
fn a_delta_on_another_algorithm_makes_a_log() {
    let mut fixed = called(&policy(Algorithm::FixedWindow, &[10, 1_000]), &[(1, 3)]);
    let log = Limiter::apply(Some(&mut fixed), delta(7, 4, 5, 9)).unwrap();
    assert_eq!(log.algorithm(), "SLIDINGLOG");
    let ten = policy(Algorithm::SlidingLog, &[10, 1_000]);
    let verdict = Limiter::peek(Some(&log), &ten, 1, Micros(5)).unwrap();
    assert_eq!(verdict.reply(), [1, 10, 8, 0, 1_000]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, max_shrink_iters: 500, ..ProptestConfig::default() })]

    #[test]
    fn any_delta(
        base in prop_oneof![0..=12u64, u64::MAX - 6..=u64::MAX],
        (behind, after) in (0..=6u64, 1..=3u64),
        cost in 1..=20u64,
    ) {
        check(delta(base, behind, behind + after, base.wrapping_add(cost)));
    }
}
