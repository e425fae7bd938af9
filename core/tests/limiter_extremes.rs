//! The largest numbers there are. Debug builds panic where one overflows.

use sluice_core::limiter::{Algorithm, Change, Policy};
use sluice_core::{Error, Limiter, Micros, Millis, State};

const MOST: u64 = 1_000_000_000;
const YEAR_MS: u64 = 31_536_000_000;
const YEAR_US: u64 = YEAR_MS * 1000;
const LAST: Micros = Micros(Micros::BOUND - 1);
const MAX_COUNT: u64 = 1 << 53;

fn policy(algorithm: Algorithm, limit: u64, length_ms: u64) -> Policy {
    let texts = [limit, MOST, length_ms].map(|n| n.to_string());
    let [limit, count, length] = texts.each_ref().map(String::as_bytes);
    match algorithm.parameters().len() {
        3 => algorithm.policy(&[limit, count, length], 1_000_000),
        _ => algorithm.policy(&[limit, length], 1_000_000),
    }
    .unwrap()
}

fn largest(algorithm: Algorithm) -> Vec<Policy> {
    let limit = match algorithm {
        Algorithm::SlidingLog => 1_000_000,
        _ => MOST,
    };
    let mut all: Vec<Policy> = [(limit, YEAR_MS), (limit, 1), (1, YEAR_MS), (1, 1)]
        .map(|(limit, length_ms)| policy(algorithm, limit, length_ms))
        .to_vec();
    if algorithm == Algorithm::FixedWindow {
        for align in ["0", "1", "31535999999", "31536000000"] {
            let aligned = policy(algorithm, limit, YEAR_MS);
            all.push(aligned.aligned(align.as_bytes()).unwrap());
        }
    }
    all
}

fn keep(stored: &mut Option<Limiter>, change: Change) {
    match change {
        Change::New(limiter) => *stored = Some(limiter),
        Change::Gone => *stored = None,
        Change::None { .. } | Change::Changed { .. } => {}
    }
}

#[test]
fn every_command_at_the_ends_of_time() {
    for algorithm in Algorithm::ALL {
        for policy in largest(algorithm) {
            let mut stored: Option<Limiter> = None;
            for now in [
                Micros(0),
                Micros(1),
                LAST,
                Micros(0),
                LAST,
                LAST,
                Micros(YEAR_US),
            ] {
                for cost in [1, policy.limit(), MOST] {
                    let peeked = Limiter::peek(stored.as_ref(), &policy, 1, now).unwrap();
                    assert_eq!(peeked.limit, policy.limit());
                    let charged = Limiter::charge(stored.as_mut(), &policy, cost, now);
                    match charged {
                        Ok((verdict, change)) => {
                            assert!(verdict.reply().iter().all(|n| *n <= i64::MAX as u64));
                            keep(&mut stored, change);
                        }
                        Err(error) => assert_eq!(error, Error::ChargeTooLarge),
                    }
                    let decided =
                        Limiter::decide(stored.as_mut(), &policy, policy.limit(), now).unwrap();
                    assert!(!decided.0.allowed);
                    keep(&mut stored, decided.1);
                    let refunded = Limiter::refund(stored.as_mut(), &policy, 1, now).unwrap();
                    keep(&mut stored, refunded.1);
                }
                let (penalty, change) = Limiter::block(stored.as_mut(), YEAR_MS, now);
                assert_eq!(penalty.left_us, YEAR_US);
                keep(&mut stored, change);
                let limiter = stored.as_ref().unwrap();
                assert!(limiter.matters_until().0 < Millis::BOUND);
                let _ = (
                    limiter.is_drained(now),
                    limiter.facts(now),
                    limiter.to_effect(now),
                );
            }
        }
    }
}

/// 2^53 is more than charges make in any window: nine million times the most.
#[test]
fn window_counts_stop_at_2_53() {
    let year = [&(MOST as u32).to_le_bytes()[..], &YEAR_MS.to_le_bytes()].concat();
    let at = 7u64.to_le_bytes();
    let nearly = (MAX_COUNT - 1).to_le_bytes();
    let fixed = [&[1, 1], &at[..], &nearly, &year].concat();
    let sliding = [&[1, 2], &at[..], &nearly, &MAX_COUNT.to_le_bytes(), &year].concat();
    for (algorithm, bytes) in [
        (Algorithm::FixedWindow, fixed),
        (Algorithm::SlidingWindow, sliding),
    ] {
        let year = policy(algorithm, MOST, YEAR_MS);
        let mut stored = Limiter::from_stored(&bytes).unwrap();
        for _ in 0..3 {
            let charged = Limiter::charge(Some(&mut stored), &year, MOST, Micros(8)).unwrap();
            assert!(!charged.0.allowed);
            let count = stored.to_stored().as_bytes()[10..18].to_vec();
            assert_eq!(count, MAX_COUNT.to_le_bytes());
            let again = Limiter::from_stored(stored.to_stored().as_bytes());
            assert_eq!(again.as_ref(), Ok(&stored));
        }
    }
}

#[test]
fn a_log_that_is_charged_the_most_again_and_again() {
    let year = policy(Algorithm::SlidingLog, 1_000_000, YEAR_MS);
    let (_, change) = Limiter::charge(None, &year, MOST, Micros(0)).unwrap();
    let Change::New(mut stored) = change else {
        panic!("{change:?}");
    };
    for n in 1..1_000u64 {
        let charged = Limiter::charge(Some(&mut stored), &year, MOST, Micros(n)).unwrap();
        assert_eq!(charged.0.reply(), [0, 1_000_000, 0, YEAR_MS, YEAR_MS]);
    }
    let facts = stored.facts(Micros(999));
    assert_eq!(
        facts,
        [
            ("window_ms", YEAR_MS),
            ("used", 1_000 * MOST),
            ("entries", 1_000)
        ]
    );
    // The last instant at which the first still counts, and the next.
    let used = |now| stored.facts(Micros(now))[1].1;
    assert_eq!(used(YEAR_US - 1), 1_000 * MOST);
    assert_eq!(used(YEAR_US), 999 * MOST);
    assert_eq!(used(YEAR_US + 999), 0);
}

#[test]
fn a_bucket_is_charged_no_more_than_100_years_drain() {
    // A token a year: 100 of them.
    let slow = Algorithm::LeakyBucket
        .policy(&[b"1", b"1", b"31536000000"], 1)
        .unwrap();
    let (verdict, change) = Limiter::charge(None, &slow, 100, Micros(0)).unwrap();
    assert_eq!(verdict.reply(), [0, 1, 0, 99 * YEAR_MS, 100 * YEAR_MS]);
    let Change::New(mut stored) = change else {
        panic!("{change:?}");
    };
    let before = stored.clone();
    for (cost, now) in [(1, 0), (1, YEAR_US - 1), (2, YEAR_US), (MOST, YEAR_US)] {
        let charged = Limiter::charge(Some(&mut stored), &slow, cost, Micros(now));
        assert_eq!(charged, Err(Error::ChargeTooLarge));
        assert_eq!(stored, before);
    }
    let charged = Limiter::charge(Some(&mut stored), &slow, 1, Micros(YEAR_US)).unwrap();
    assert_eq!(charged.0.reply(), [0, 1, 0, 99 * YEAR_MS, 100 * YEAR_MS]);
    assert_eq!(
        Limiter::charge(None, &slow, 101, Micros(0)),
        Err(Error::ChargeTooLarge)
    );
}

/// Other instants than 0 are later: one at which nothing has happened yet is none.
#[test]
fn the_first_microsecond_of_the_epoch_is_an_instant_like_others() {
    for algorithm in Algorithm::ALL {
        let two = policy(algorithm, 2, YEAR_MS);
        let mut stored = None;
        for (now, remaining) in [(0, 1), (0, 0)] {
            let call = Limiter::decide(stored.as_mut(), &two, 1, Micros(now)).unwrap();
            assert!(call.0.allowed);
            assert_eq!(call.0.remaining, remaining);
            keep(&mut stored, call.1);
        }
        let denied = Limiter::decide(stored.as_mut(), &two, 1, Micros(0)).unwrap();
        assert!(!denied.0.allowed);
        let loaded = Limiter::from_stored(stored.as_ref().unwrap().to_stored().as_bytes());
        assert_eq!(loaded.ok(), stored);
    }
}
