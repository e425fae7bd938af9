//! Scenarios of windows, logs, charges, refunds and blocks, with every answer; those that
//! were reported against other limiters bear their names.

use sluice_core::limiter::{Algorithm, Change, Policy, Verdict};
use sluice_core::{Error, Limiter, Micros, State};

/// The clock when a scenario begins, at the start of an aligned second, minute and day.
const T: u64 = 1_750_032_000_000_000;

#[derive(Default)]
struct Key {
    stored: Option<Limiter>,
}

/// `FIXEDWINDOW 10 1000 ALIGN 7`.
fn policy(text: &str) -> Policy {
    let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
    let algorithm = Algorithm::named(words[0]).unwrap();
    let (numbers, options) = words[1..].split_at(algorithm.parameters().len());
    let policy = algorithm.policy(numbers, 100_000).unwrap();
    match options {
        [] => policy,
        [b"ALIGN", offset] => policy.aligned(offset).unwrap(),
        other => panic!("{other:?}"),
    }
}

impl Key {
    fn keep(&mut self, done: Result<(Verdict, Change), Error>) -> [u64; 5] {
        let (verdict, change) = done.unwrap();
        match change {
            Change::New(limiter) => self.stored = Some(limiter),
            Change::Gone => self.stored = None,
            Change::None { .. } | Change::Changed { .. } => {}
        }
        verdict.reply()
    }

    /// `us` after `T`, which may be before it.
    fn call(&mut self, text: &str, cost: u64, us: i64) -> [u64; 5] {
        let now = Micros(T.saturating_add_signed(us));
        let done = Limiter::decide(self.stored.as_mut(), &policy(text), cost, now);
        self.keep(done)
    }

    fn charge(&mut self, text: &str, cost: u64, us: i64) -> [u64; 5] {
        let now = Micros(T.saturating_add_signed(us));
        let done = Limiter::charge(self.stored.as_mut(), &policy(text), cost, now);
        self.keep(done)
    }

    fn refund(&mut self, text: &str, cost: u64, us: i64) -> [u64; 5] {
        let now = Micros(T.saturating_add_signed(us));
        let done = Limiter::refund(self.stored.as_mut(), &policy(text), cost, now);
        self.keep(done)
    }

    fn peek(&self, text: &str, cost: u64, us: i64) -> [u64; 5] {
        let now = Micros(T.saturating_add_signed(us));
        let verdict = Limiter::peek(self.stored.as_ref(), &policy(text), cost, now);
        verdict.unwrap().reply()
    }

    /// For how many µs it is blocked then.
    fn block(&mut self, ms: u64, us: i64) -> u64 {
        let now = Micros(T.saturating_add_signed(us));
        let (penalty, change) = Limiter::block(self.stored.as_mut(), ms, now);
        if let Change::New(limiter) = change {
            self.stored = Some(limiter);
        }
        penalty.left_us
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        let stored = self.stored.as_ref()?;
        Some(stored.to_stored().as_bytes().to_vec())
    }
}

// Reported -------------------------------------------------------------------------------

#[test]
fn rate_limit_redis_83_a_hit_in_the_last_millisecond_of_a_window() {
    let fixed = "FIXEDWINDOW 2 1000";
    let mut key = Key::default();
    assert_eq!(key.call(fixed, 1, 0), [1, 2, 1, 0, 1_000]);
    assert_eq!(key.call(fixed, 1, 999_999), [1, 2, 0, 0, 1]);
    assert_eq!(key.call(fixed, 1, 999_999), [0, 2, 0, 1, 1]);
    // The window has not been extended.
    assert_eq!(key.call(fixed, 1, 1_000_000), [1, 2, 1, 0, 1_000]);
    let until = key.stored.unwrap().matters_until();
    assert_eq!(until.0, (T + 2_000_000) / 1000);
}

#[test]
fn spring_cloud_gateway_2453_a_window_of_a_millisecond() {
    for us in [0, 1, 500, 999] {
        let mut key = Key::default();
        assert_eq!(key.call("FIXEDWINDOW 1 1", 1, us), [1, 1, 0, 0, 1]);
        assert_eq!(key.call("FIXEDWINDOW 1 1", 1, us), [0, 1, 0, 1, 1]);
        let until = key.stored.unwrap().matters_until();
        assert!(until.0 > T / 1000);
    }
}

#[test]
fn nestjs_throttler_2208_a_block_ends_exactly() {
    let fixed = "FIXEDWINDOW 10 10000";
    let mut key = Key::default();
    for n in 0..10 {
        let reply = key.call(fixed, 1, n * 1_000_000);
        assert_eq!(reply[..4], [1, 10, 9 - n as u64, 0]);
    }
    assert_eq!(key.call(fixed, 1, 9_500_000), [0, 10, 0, 500, 500]);
    assert_eq!(key.block(5_000, 9_600_000), 5_000_000);
    for ms in [9_600, 10_000, 12_000, 14_599] {
        let left = 14_600 - ms as u64;
        assert_eq!(key.call(fixed, 1, ms * 1000), [0, 10, 0, left, left]);
    }
    assert_eq!(key.call(fixed, 1, 14_599_999), [0, 10, 0, 1, 1]);
    assert_eq!(key.call(fixed, 1, 14_600_000), [1, 10, 9, 0, 10_000]);
}

#[test]
fn envoy_185_denied_calls_push_nothing() {
    for (text, wait_ms, reset_ms) in [
        ("FIXEDWINDOW 5 1000", 1_000, 1_000),
        ("FIXEDWINDOW 5 1000 ALIGN 0", 1_000, 1_000),
        ("SLIDINGWINDOW 5 1000", 1_200, 2_000),
        ("SLIDINGLOG 5 1000", 1_000, 1_000),
        ("LEAKYBUCKET 5 5 1000", 200, 1_000),
    ] {
        let mut key = Key::default();
        key.call(text, 5, 0);
        let before = key.bytes();
        for ms in 0..200 {
            let reply = key.call(text, 1, ms as i64 * 1000);
            assert_eq!(reply, [0, 5, 0, wait_ms - ms, reset_ms - ms], "{text}");
            assert_eq!(key.bytes(), before);
        }
    }
}

#[test]
fn go_limiter_41_the_clock_steps_back_an_hour() {
    const BACK: i64 = -3_600_000_000;
    for (text, wait_ms, reset_ms) in [
        ("FIXEDWINDOW 5 1000", 1_000, 1_000),
        ("FIXEDWINDOW 5 1000 ALIGN 0", 1_000, 1_000),
        ("SLIDINGWINDOW 5 1000", 1_200, 2_000),
        ("SLIDINGLOG 5 1000", 1_000, 1_000),
        ("LEAKYBUCKET 5 5 1000", 200, 1_000),
    ] {
        let mut key = Key::default();
        key.call(text, 5, 0);
        let denied = [0, 5, 0, wait_ms, reset_ms];
        assert_eq!(key.peek(text, 1, BACK), denied, "{text}");
        assert_eq!(key.call(text, 1, BACK), denied, "{text}");
        let ends = BACK + wait_ms as i64 * 1000;
        assert_eq!(key.call(text, 1, ends - 1)[..4], [0, 5, 0, 1], "{text}");
        assert_eq!(key.call(text, 1, ends)[..2], [1, 5], "{text}");
    }
}

#[test]
fn redisson_5098_a_raised_limit_holds_from_the_next_call() {
    for name in ["FIXEDWINDOW", "SLIDINGWINDOW", "SLIDINGLOG"] {
        let mut key = Key::default();
        let (low, high) = (format!("{name} 100 60000"), format!("{name} 200 60000"));
        assert_eq!(key.call(&low, 100, 0)[..3], [1, 100, 0]);
        assert_eq!(key.call(&low, 1, 0)[..3], [0, 100, 0]);
        assert_eq!(key.call(&high, 1, 0)[..3], [1, 200, 99]);
        assert_eq!(key.call(&high, 99, 0)[..3], [1, 200, 0]);
        assert_eq!(key.call(&high, 1, 0)[..3], [0, 200, 0]);
        assert_eq!(key.call(&low, 1, 0)[..3], [0, 100, 0]);
    }
}

// Windows --------------------------------------------------------------------------------

#[test]
fn a_sliding_window_weighs_what_still_overlaps() {
    let ten = "SLIDINGWINDOW 10 1000";
    let mut key = Key::default();
    assert_eq!(key.call(ten, 8, 0), [1, 10, 2, 0, 2_000]);
    // A quarter of the next window is over: of the eight six count.
    assert_eq!(key.peek(ten, 1, 1_250_000), [1, 10, 4, 0, 750]);
    assert_eq!(key.call(ten, 3, 1_250_000), [1, 10, 1, 0, 1_750]);
    // Two of the last 7: 8·(1 − e) ≤ 5 from e = 3/8 on.
    assert_eq!(key.call(ten, 2, 1_250_000), [0, 10, 1, 125, 1_750]);
    assert_eq!(key.call(ten, 2, 1_374_999), [0, 10, 1, 1, 1_626]);
    assert_eq!(key.call(ten, 2, 1_375_000), [1, 10, 0, 0, 1_625]);
    // Ten fit when nothing of these five is left.
    assert_eq!(key.call(ten, 10, 1_375_000), [0, 10, 0, 1_625, 1_625]);
}

#[test]
fn an_aligned_window_is_over_at_its_boundary_whenever_it_was_opened() {
    let day = "FIXEDWINDOW 3 86400000 ALIGN 3600000";
    let hour = 3_600_000_000;
    let mut key = Key::default();
    assert_eq!(key.call(day, 2, 0), [1, 3, 1, 0, 3_600_000]);
    assert_eq!(key.call(day, 2, hour - 1), [0, 3, 1, 1, 1]);
    assert_eq!(key.call(day, 3, hour), [1, 3, 0, 0, 86_400_000]);
    // One that was opened without ALIGN before the boundary is over at it too.
    let mut key = Key::default();
    assert_eq!(
        key.call("FIXEDWINDOW 3 86400000", 3, hour - 1)[..3],
        [1, 3, 0]
    );
    assert_eq!(key.peek(day, 1, hour - 1), [0, 3, 0, 1, 1]);
    assert_eq!(key.peek(day, 1, hour), [1, 3, 3, 0, 0]);
}

#[test]
fn a_log_forgets_each_call_in_its_own_microsecond() {
    let ten = "SLIDINGLOG 10 1000";
    let mut key = Key::default();
    for us in [0, 1, 250_000] {
        key.call(ten, 3, us);
    }
    assert_eq!(key.call(ten, 2, 250_001), [0, 10, 1, 750, 1_000]);
    assert_eq!(key.call(ten, 5, 250_001), [0, 10, 1, 750, 1_000]);
    assert_eq!(key.call(ten, 8, 250_001), [0, 10, 1, 1_000, 1_000]);
    let remaining = |us| key.peek(ten, 1, us)[2];
    let at = [999_999, 1_000_000, 1_000_001, 1_249_999, 1_250_000];
    assert_eq!(at.map(remaining), [1, 4, 7, 7, 10]);
}

#[test]
fn one_algorithms_use_is_in_the_way_of_another_until_it_is_over() {
    let other = |key: &Key, text: &str, us: i64| {
        let now = Micros(T.saturating_add_signed(us));
        let peeked = Limiter::peek(key.stored.as_ref(), &policy(text), 1, now);
        let mut stored = key.stored.clone();
        let called = Limiter::decide(stored.as_mut(), &policy(text), 1, now);
        assert_eq!(peeked.err(), called.as_ref().err().copied());
        assert!(called.is_ok() || stored == key.stored);
        called.err().map(|error| error.to_string())
    };
    let texts = [
        ("bucket", "LEAKYBUCKET 1 1 1000"),
        ("FIXEDWINDOW", "FIXEDWINDOW 1 1000"),
        ("SLIDINGWINDOW", "SLIDINGWINDOW 1 500"),
        ("SLIDINGLOG", "SLIDINGLOG 1 1000"),
    ];
    for (holds, text) in texts {
        let mut key = Key::default();
        key.call(text, 1, 0);
        for (wanted, text) in texts {
            let error = format!("ERR key holds a {holds} limiter, not {wanted}");
            let expected = (holds != wanted).then_some(error);
            assert_eq!(other(&key, text, 999_999), expected);
            assert_eq!(other(&key, text, 1_000_000), None);
        }
    }
}

// Charges and refunds --------------------------------------------------------------------

#[test]
fn a_charge_goes_beyond_the_limit_and_carries_nothing_over() {
    for (text, replies) in [
        // What each is answered, and when all is over.
        (
            "FIXEDWINDOW 10 1000",
            [[1, 10, 3, 0, 1_000], [0, 10, 0, 1_000, 1_000]],
        ),
        (
            "SLIDINGWINDOW 10 1000",
            [[1, 10, 3, 0, 2_000], [0, 10, 0, 1_286, 2_000]],
        ),
        (
            "SLIDINGLOG 10 1000",
            [[1, 10, 3, 0, 1_000], [0, 10, 0, 1_000, 1_000]],
        ),
        (
            "LEAKYBUCKET 10 10 1000",
            [[1, 10, 3, 0, 700], [0, 10, 0, 200, 1_200]],
        ),
    ] {
        let mut key = Key::default();
        assert_eq!(key.charge(text, 7, 0), replies[0], "{text}");
        assert_eq!(key.charge(text, 5, 0), replies[1], "{text}");
        assert_eq!(key.call(text, 1, 0)[0], 0);
        let reset_us = replies[1][4] as i64 * 1000;
        assert_eq!(key.peek(text, 10, reset_us), [1, 10, 10, 0, 0], "{text}");
    }
}

#[test]
fn a_charge_above_the_limit_never_fits() {
    for (text, wait_ms, reset_ms) in [
        ("FIXEDWINDOW 10 1000", 1_000, 1_000),
        ("SLIDINGWINDOW 10 1000", 2_000, 2_000),
        ("SLIDINGLOG 10 1000", 1_000, 1_000),
        // Until the overdraft is gone.
        ("LEAKYBUCKET 10 10 1000", 1_500, 2_500),
    ] {
        let mut key = Key::default();
        assert_eq!(key.charge(text, 25, 0), [0, 10, 0, wait_ms, reset_ms]);
    }
}

#[test]
fn a_refund_gives_back_the_newest_first_and_at_most_all() {
    let log = "SLIDINGLOG 10 1000";
    let mut key = Key::default();
    key.call(log, 4, 0);
    key.call(log, 5, 100_000);
    // Of the newer five, then all of them and one of the older.
    assert_eq!(key.refund(log, 2, 200_000), [1, 10, 3, 0, 900]);
    assert_eq!(key.refund(log, 4, 200_000), [1, 10, 7, 0, 800]);
    assert_eq!(key.refund(log, 100, 200_000), [1, 10, 10, 0, 0]);
    assert_eq!(key.stored, None);
    let sliding = "SLIDINGWINDOW 10 1000";
    key.call(sliding, 6, 0);
    key.call(sliding, 2, 1_500_000);
    assert_eq!(key.refund(sliding, 3, 1_500_000), [1, 10, 7, 0, 500]);
    assert_eq!(key.refund(sliding, 5, 1_500_000), [1, 10, 10, 0, 0]);
    assert_eq!(key.stored, None);
}

/// The overdraft of a fast policy, read by a slow one, is more than that may ever owe. What
/// a refund leaves must be fit to be stored and sent nevertheless.
#[test]
fn a_refund_under_a_slower_policy_leaves_what_100_years_drain() {
    let mut key = Key::default();
    key.charge("TOKENBUCKET 1 1 1", 1_000_000_000, 0);
    let century_ms = 3_153_600_000_000;
    let slow = "TOKENBUCKET 1 1 60000";
    let reply = key.refund(slow, 1, 0);
    assert_eq!(reply, [1, 1, 0, 0, century_ms]);
    let bytes = key.bytes().unwrap();
    assert_eq!(Limiter::from_stored(&bytes).ok(), key.stored);
}

// Blocks ---------------------------------------------------------------------------------

#[test]
fn a_block_is_never_shortened() {
    let mut key = Key::default();
    assert_eq!(key.block(5_000, 0), 5_000_000);
    let before = key.bytes();
    assert_eq!(key.block(3_000, 1_000_000), 4_000_000);
    assert_eq!(key.bytes(), before);
    assert_eq!(key.block(6_000, 1_000_000), 6_000_000);
    assert_eq!(key.peek("SLIDINGLOG 3 1000", 1, 6_999_999), [0, 3, 0, 1, 1]);
    assert_eq!(key.peek("SLIDINGLOG 3 1000", 1, 7_000_000), [1, 3, 3, 0, 0]);
    // After a step back it lasts as long as it did at most.
    assert_eq!(key.peek("SLIDINGLOG 3 1000", 1, -9_000_000)[3], 6_000);
}

/// A hold is for those that were admitted.
#[test]
fn a_blocked_leaky_bucket_says_how_long_the_block_is_and_no_hold() {
    let leaky = "LEAKYBUCKET 10 1 1000";
    let mut key = Key::default();
    key.call(leaky, 5, 0);
    key.block(1_000, 0);
    let denied = [0, 10, 0, 1_000, 5_000];
    assert_eq!(key.call(leaky, 1, 0), denied);
    assert_eq!(key.peek(leaky, 1, 0), denied);
    assert_eq!(key.charge(leaky, 1, 0), [0, 10, 0, 1_000, 6_000]);
}

#[test]
fn a_block_outlives_a_refund_and_charges_count_below_it() {
    let fixed = "FIXEDWINDOW 10 1000";
    let mut key = Key::default();
    key.call(fixed, 3, 0);
    key.block(5_000, 0);
    assert_eq!(key.charge(fixed, 4, 0), [0, 10, 0, 5_000, 5_000]);
    assert_eq!(key.refund(fixed, 2, 0), [0, 10, 0, 5_000, 5_000]);
    let facts = key.stored.as_ref().unwrap().facts(Micros(T));
    assert_eq!(facts, [("window_ms", 1_000), ("used", 5)]);
    assert_eq!(key.refund(fixed, 9, 0), [0, 10, 0, 5_000, 5_000]);
    assert_eq!(key.stored.as_ref().unwrap().algorithm(), "none");
    assert_eq!(key.call(fixed, 1, 4_999_999), [0, 10, 0, 1, 1]);
    assert_eq!(key.call(fixed, 1, 5_000_000), [1, 10, 9, 0, 1_000]);
}

/// As any write that finds times ahead of now.
#[test]
fn a_block_moves_what_lies_ahead_of_the_clock_to_now() {
    let fixed = "FIXEDWINDOW 10 1000";
    let mut key = Key::default();
    key.call(fixed, 10, 0);
    key.block(1, -5_000_000);
    assert_eq!(key.call(fixed, 1, -4_500_000), [0, 10, 0, 500, 500]);
}
