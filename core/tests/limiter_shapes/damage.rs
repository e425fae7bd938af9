//! Damaged bytes are refused or read as what they then say. Nothing panics.

use crate::{blocked, called, policy, read_effect, read_stored, CLOCK};
use proptest::prelude::*;
use sluice_core::limiter::Algorithm;
use sluice_core::{Limiter, Malformed, State};

fn all() -> Vec<Limiter> {
    let at = CLOCK.0;
    let fixed = called(&policy(Algorithm::FixedWindow, &[10, 1_000]), &[(at, 3)]);
    let sliding = policy(Algorithm::SlidingWindow, &[10, 1_000]);
    let sliding = called(&sliding, &[(at - 1_000_000, 7), (at, 2)]);
    let log = policy(Algorithm::SlidingLog, &[1_000_000, 1_000]);
    let log = called(&log, &[(at - 9, 7), (at - 7, 999_000), (at, 2)]);
    let bucket = called(&policy(Algorithm::LeakyBucket, &[10, 7, 1_000]), &[(at, 3)]);
    let mut all = vec![fixed, sliding, log, bucket];
    let under_blocks: Vec<Limiter> = all
        .iter()
        .map(|state| blocked(Some(state.clone()), 5_000, at))
        .collect();
    all.extend(under_blocks);
    all.push(blocked(None, 5_000, at));
    all
}

type Read = fn(&[u8]) -> Result<(), Malformed>;

/// Every state in every form, and how to read that.
fn forms() -> Vec<(Vec<u8>, Read)> {
    let forms = all().into_iter().flat_map(|state| {
        let stored = state.to_stored().as_bytes().to_vec();
        let effect = state.to_effect(CLOCK).as_bytes().to_vec();
        let whole = state.rebuild(CLOCK).as_bytes().to_vec();
        [
            (stored, read_stored as Read),
            (effect, read_effect),
            (whole, read_effect),
        ]
    });
    forms.collect()
}

#[test]
fn truncated_and_prolonged_bytes_are_corrupt() {
    for (bytes, read) in forms() {
        assert_eq!(read(&bytes), Ok(()));
        for len in 0..bytes.len() {
            assert_eq!(read(&bytes[..len]), Err(Malformed::Corrupt), "{len}");
        }
        for byte in [0, 1, 16, 255] {
            let longer = [&bytes[..], &[byte]].concat();
            assert_eq!(read(&longer), Err(Malformed::Corrupt));
        }
        assert_eq!(read(&bytes.repeat(2)), Err(Malformed::Corrupt));
    }
}

#[test]
fn no_single_damaged_byte_panics() {
    for (bytes, read) in forms() {
        for at in 0..bytes.len() {
            for byte in [0, 1, 2, 3, 4, 5, 16, 127, 128, 254, 255] {
                let mut damaged = bytes.clone();
                damaged[at] = byte;
                // Any answer, but what is accepted is canonical and fit for use.
                let _ = read(&damaged);
                damaged[at] = bytes[at] ^ byte;
                let _ = read(&damaged);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics_on_any_bytes(
        shape in prop::sample::select(vec![1u8, 2, 3, 4, 16]),
        // Mostly zeros: most of the bytes of an integer that is accepted are.
        rest in prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], 0..80),
    ) {
        let _ = read_stored(&crate::stored(&[&[shape], &rest[..]].concat()));
        let _ = read_effect(&crate::effect(&[&[shape], &rest[..]].concat()));
    }
}
