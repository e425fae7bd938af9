//! The policy changes on a live key.

use crate::key::Key;
use crate::model::{whole, Model, Numbers};
use crate::NOW_US;
use sluice_core::limiter::Algorithm;
use sluice_core::{Limiter, Millis, State};

fn exhausted(numbers: Numbers) -> Key {
    let mut key = Key::default();
    let verdict = key.call(&numbers, Algorithm::Gcra, numbers.capacity, NOW_US);
    assert!(verdict.unwrap().allowed);
    key
}

/// The reply to one more token at once.
fn next(key: &mut Key, numbers: Numbers) -> [u64; 5] {
    let verdict = key.call(&numbers, Algorithm::TokenBucket, 1, NOW_US);
    verdict.unwrap().reply()
}

fn numbers_of(capacity: u64, count: u64, period_ms: u64) -> Numbers {
    Numbers {
        capacity,
        count,
        period_ms,
    }
}

#[test]
fn a_debt_is_read_in_tokens_whatever_the_period() {
    let mut key = exhausted(numbers_of(10, 10, 60_000));
    for (period_ms, wait_ms) in [(60_000, 6_000), (3_600_000, 360_000), (10, 1), (1, 1)] {
        assert_eq!(
            next(&mut key, numbers_of(10, 10, period_ms)),
            [0, 10, 0, wait_ms, period_ms]
        );
    }
}

#[test]
fn a_debt_that_is_no_whole_tick_of_the_caller_is_rounded_up_to_one() {
    let per_seven = numbers_of(7, 1, 7);
    let mut key = Key::default();
    let mut call = |cost, at| {
        let verdict = key.call(&per_seven, Algorithm::Gcra, cost, NOW_US + at);
        assert!(verdict.unwrap().allowed);
    };
    call(1, 0);
    // One token and 6,999 of 7,000 parts.
    call(1, 1);
    // In thousandths that is 2, and the 7 of the capacity are not reached.
    let [allowed, _, remaining, wait_ms, reset_ms] = key
        .call(&numbers_of(7, 1, 1), Algorithm::Gcra, 5, NOW_US + 1)
        .unwrap()
        .reply();
    assert_eq!([allowed, remaining, wait_ms, reset_ms], [1, 0, 0, 7]);
}

#[test]
fn a_smaller_capacity_locks_nobody_out_beyond_its_own_full_window() {
    let mut key = exhausted(numbers_of(1_000, 1_000, 3_600_000));
    assert_eq!(
        next(&mut key, numbers_of(10, 10, 60_000)),
        [0, 10, 0, 6_000, 60_000]
    );
    // Nothing was stored: the first policy still owes all of it.
    assert_eq!(
        next(&mut key, numbers_of(1_000, 1_000, 3_600_000)),
        [0, 1_000, 0, 3_600, 3_600_000]
    );
}

#[test]
fn an_overdraft_stands_under_its_own_capacity_and_no_other() {
    let own = numbers_of(10, 10, 1_000);
    let twice = Model {
        debt: whole(20),
        at: NOW_US,
        numbers: own,
    };
    let mut key = Key {
        stored: Some(Limiter::from_stored(&twice.bytes()).unwrap()),
        ttl: Some(Millis(Millis::BOUND)),
        model: Some(twice),
    };
    assert_eq!(next(&mut key, own), [0, 10, 0, 1_100, 2_000]);
    assert_eq!(
        next(&mut key, numbers_of(10, 10, 60_000)),
        [0, 10, 0, 66_000, 120_000]
    );
    assert_eq!(
        next(&mut key, numbers_of(9, 9, 1_000)),
        [0, 9, 0, 112, 1_000]
    );
    assert_eq!(
        next(&mut key, numbers_of(21, 10, 1_000)),
        [1, 21, 0, 0, 2_100]
    );
}
