//! What a limiter takes: one small allocation, and a log at most 16 bytes an entry, but for
//! the room that a queue keeps.

use sluice_core::limiter::{Algorithm, Change, Policy};
use sluice_core::{Limiter, Micros};

/// Of a log itself, and of a block.
const CONSTANT: usize = 256;

/// What the oldest and the newest of a log's chunks may have unused, if it is long.
const CHUNK: usize = 2 * 16 * 256;

fn log_policy() -> Policy {
    Algorithm::SlidingLog
        .policy(&[b"1000000", b"1000"], 1_000_000)
        .unwrap()
}

/// One entry each µs from `from` on.
fn extended(stored: &mut Option<Limiter>, from: u64, len: u64) {
    for at in from..from + len {
        let call = Limiter::decide(stored.as_mut(), &log_policy(), 1, Micros(at));
        if let (_, Change::New(limiter)) = call.unwrap() {
            *stored = Some(limiter);
        }
    }
}

fn check(limiter: &Limiter, entries: usize) {
    assert_eq!(limiter.entries(), entries);
    let ends = if entries > 256 { CHUNK } else { 0 };
    let most = 16 * entries * 13 / 10 + CONSTANT + ends;
    let size = limiter.heap_size();
    assert!(size <= most, "{size} bytes for {entries} entries");
    assert!(size >= 16 * entries);
}

#[test]
fn a_limiter_is_one_allocation_of_at_most_48_bytes() {
    assert!(size_of::<Limiter>() <= 48);
    for algorithm in Algorithm::ALL {
        let numbers: [&[u8]; 3] = [b"10", b"10", b"10"];
        let numbers = &numbers[..algorithm.parameters().len()];
        let policy = algorithm.policy(numbers, 10).unwrap();
        let call = Limiter::decide(None, &policy, 1, Micros(1)).unwrap();
        let Change::New(limiter) = call.1 else {
            panic!("{call:?}");
        };
        match algorithm {
            Algorithm::SlidingLog => check(&limiter, 1),
            _ => assert_eq!(limiter.heap_size(), 0),
        }
        assert_eq!(limiter.entries(), 1);
    }
}

#[test]
fn a_log_takes_16_bytes_an_entry_at_any_length() {
    for len in [
        1, 2, 5, 10, 100, 200, 255, 256, 257, 511, 512, 513, 1_000, 100_000,
    ] {
        let mut stored = None;
        extended(&mut stored, 7, len);
        check(stored.as_ref().unwrap(), len as usize);
    }
}

#[test]
fn so_does_one_that_was_long() {
    let mut stored = None;
    extended(&mut stored, 0, 100_000);
    // All of it is over after a second; each call takes 256 of it.
    extended(&mut stored, 2_000_000, 391);
    check(stored.as_ref().unwrap(), 391);
    extended(&mut stored, 4_000_000, 2);
    extended(&mut stored, 6_000_000, 1);
    check(stored.as_ref().unwrap(), 1);
}

#[test]
fn a_clone_and_one_that_was_loaded_take_no_more() {
    use sluice_core::State;
    for len in [1, 10, 256, 257, 1_000] {
        let mut stored = None;
        extended(&mut stored, 7, len);
        let stored = stored.unwrap();
        check(&stored.clone(), len as usize);
        let loaded = Limiter::from_stored(stored.to_stored().as_bytes()).unwrap();
        check(&loaded, len as usize);
    }
}
