//! Golden bytes. A change here is a change of the format: it needs a new version, and the
//! old one must still be read.

use crate::{blocked, called, policy, unhex, CLOCK};
use sluice_core::limiter::{Algorithm, LimiterEffect};
use sluice_core::{Limiter, Micros, State};

/// 0x0012222324252627, in µs.
const AT: u64 = 0x0012_2223_2425_2627;

fn check_stored(state: &Limiter, body: &str) {
    let bytes = unhex(&format!("01 {body}"));
    assert_eq!(state.to_stored().as_bytes(), bytes);
    assert_eq!(Limiter::from_stored(&bytes).as_ref(), Ok(state));
    // A rewritten append-only file has the same, with a clock.
    let bytes = unhex(&format!("01 5756555453521100 {body}"));
    assert_eq!(state.rebuild(CLOCK).as_bytes(), bytes);
    let whole = LimiterEffect::Whole(state.clone());
    assert_eq!(LimiterEffect::decode(&bytes), Ok((whole, CLOCK)));
}

fn check_effect(state: &Limiter, body: &str) {
    let bytes = unhex(&format!("01 5756555453521100 {body}"));
    assert_eq!(state.to_effect(CLOCK).as_bytes(), bytes);
    let (_, now) = LimiterEffect::decode(&bytes).unwrap();
    assert_eq!(now, CLOCK);
}

/// Shape, start, count, limit, window.
#[test]
fn a_fixed_window() {
    let ten = policy(Algorithm::FixedWindow, &[0x0102_0304, 0x0015_1617]);
    let state = called(&ten, &[(AT, 0x2122), (AT + 1, 1)]);
    let body = "01 2726252423221200 2321000000000000 04030201 1716150000000000";
    check_stored(&state, body);
    check_effect(&state, body);
}

/// An aligned one is stored as if it had been opened by a request at its start.
#[test]
fn an_aligned_fixed_window() {
    let aligned = policy(Algorithm::FixedWindow, &[10, 1_000])
        .aligned(b"7")
        .unwrap();
    // 1,000 µs × 1,000 windows, and 7 ms.
    let state = called(&aligned, &[(1_500_000, 3)]);
    // 1,007,000 is 0xf5d98.
    let body = "01 985d0f0000000000 0300000000000000 0a000000 e803000000000000";
    check_stored(&state, body);
    check_effect(&state, body);
}

/// Shape, start, current, previous, limit, window.
#[test]
fn a_sliding_window() {
    let ten = policy(Algorithm::SlidingWindow, &[0x0102_0304, 0x1_0000]);
    // The second one window later: 65,536,000 µs are 0x3e80000.
    let state = called(&ten, &[(AT, 0x2122), (AT + 0x03e8_0000, 0x31)]);
    let body = "02 27260d2823221200 3100000000000000 2221000000000000 04030201 \
                0000010000000000";
    check_stored(&state, body);
    check_effect(&state, body);
}

/// Shape, limit, window, base, how many, and each with its instant and total. Its effect:
/// shape, limit, window, base, the instant it is to stand behind, instant, total.
#[test]
fn a_sliding_log() {
    let log = policy(Algorithm::SlidingLog, &[0x0102, 0x0015_1617]);
    let state = called(&log, &[(AT, 3), (AT + 1, 0x20), (AT + 0x100, 2)]);
    check_stored(
        &state,
        "03 02010000 1716150000000000 0000000000000000 03000000 \
         2726252423221200 0300000000000000 \
         2826252423221200 2300000000000000 \
         2727252423221200 2500000000000000",
    );
    check_effect(
        &state,
        "10 02010000 1716150000000000 0000000000000000 \
         2826252423221200 2727252423221200 2500000000000000",
    );
    let one = called(&log, &[(AT, 3)]);
    check_effect(
        &one,
        "10 02010000 1716150000000000 0000000000000000 \
         0000000000000000 2726252423221200 0300000000000000",
    );
}

/// What has left the window is in the base.
#[test]
fn a_pruned_sliding_log() {
    let log = policy(Algorithm::SlidingLog, &[0x0102, 1]);
    let state = called(&log, &[(AT, 3), (AT + 1, 4), (AT + 1_000, 5)]);
    let rest = "0300000000000000";
    // 0x3e8 µs on.
    check_stored(
        &state,
        &format!(
            "03 02010000 0100000000000000 {rest} 02000000 \
             2826252423221200 0700000000000000 0f2a252423221200 0c00000000000000"
        ),
    );
    check_effect(
        &state,
        &format!(
            "10 02010000 0100000000000000 {rest} \
             2826252423221200 0f2a252423221200 0c00000000000000"
        ),
    );
}

/// Shape, from, until, and the shape below.
#[test]
fn a_block_of_nothing() {
    // 4,096 ms are 0x3e8000 µs.
    let state = blocked(None, 4_096, AT);
    let body = "04 2726252423221200 27a6632423221200 05";
    check_stored(&state, body);
    check_effect(&state, body);
}

#[test]
fn a_block_of_each_shape() {
    let block = "04 2726252423221200 27a6632423221200";
    let ten = [10, 1_000];
    let state = |algorithm, numbers: &[u64]| {
        blocked(
            Some(called(&policy(algorithm, numbers), &[(AT, 3)])),
            4_096,
            AT,
        )
    };
    // 3 tokens of 1,000,000 ticks are 0x2dc6c0.
    let bucket = state(Algorithm::LeakyBucket, &[10, 7, 1_000]);
    let body = format!(
        "{block} 00 c0c62d0000000000 00000000 2726252423221200 0a000000 07000000 \
         e803000000000000"
    );
    check_stored(&bucket, &body);
    check_effect(&bucket, &body);
    let policy = "0a000000 e803000000000000";
    let three = "0300000000000000";
    let fixed = state(Algorithm::FixedWindow, &ten);
    let body = format!("{block} 01 2726252423221200 {three} {policy}");
    check_stored(&fixed, &body);
    check_effect(&fixed, &body);
    let sliding = state(Algorithm::SlidingWindow, &ten);
    let body = format!("{block} 02 2726252423221200 {three} 0000000000000000 {policy}");
    check_stored(&sliding, &body);
    check_effect(&sliding, &body);
    let log = state(Algorithm::SlidingLog, &ten);
    let zero = "0000000000000000";
    check_stored(
        &log,
        &format!("{block} 03 {policy} {zero} 01000000 2726252423221200 {three}"),
    );
    check_effect(
        &log,
        &format!("{block} 10 {policy} {zero} {zero} 2726252423221200 {three}"),
    );
}

#[test]
fn how_long_they_are() {
    let lengths = |algorithm, numbers: &[u64]| {
        let state = called(&policy(algorithm, numbers), &[(AT, 1)]);
        let under_block = blocked(Some(state.clone()), 1, AT);
        let stored = |state: &Limiter| state.to_stored().as_bytes().len();
        let effect = state.to_effect(Micros(AT)).as_bytes().len();
        [stored(&state), effect, stored(&under_block)]
    };
    assert_eq!(lengths(Algorithm::FixedWindow, &[9, 9]), [30, 38, 47]);
    assert_eq!(lengths(Algorithm::SlidingWindow, &[9, 9]), [38, 46, 55]);
    // With one entry; the effect is as long with a hundred thousand.
    assert_eq!(lengths(Algorithm::SlidingLog, &[9, 9]), [42, 54, 59]);
}
