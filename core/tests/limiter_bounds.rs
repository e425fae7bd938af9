//! How much passes in a stretch of time: for each algorithm the bound that is true for it.

use proptest::prelude::*;
use sluice_core::limiter::{Algorithm, Change, Policy};
use sluice_core::{Limiter, Micros};

const NOW_US: u64 = 1_750_000_000_000_300;

fn policy(algorithm: Algorithm, numbers: &[u64]) -> Policy {
    let texts: Vec<String> = numbers.iter().map(u64::to_string).collect();
    let texts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
    algorithm.policy(&texts, 100_000).unwrap()
}

struct Key {
    policy: Policy,
    stored: Option<Limiter>,
}

impl Key {
    fn new(policy: Policy) -> Key {
        Key {
            policy,
            stored: None,
        }
    }

    /// Whether it is admitted, and the wait.
    fn call(&mut self, cost: u64, now: u64) -> (bool, u64) {
        let stored = self.stored.as_mut();
        let (verdict, change) = Limiter::decide(stored, &self.policy, cost, Micros(now)).unwrap();
        if let Change::New(limiter) = change {
            self.stored = Some(limiter);
        }
        (verdict.allowed, verdict.wait_us as u64)
    }
}

/// An admitted call: when, on a clock that never goes back, and its cost.
type Admitted = Vec<(u64, u64)>;

/// The most that is admitted in any stretch of `us`, its end not included.
fn most_within(admitted: &Admitted, us: u64) -> u64 {
    let from = |first: usize| {
        let calls = admitted[first..].iter();
        let within = calls.take_while(|(at, _)| at - admitted[first].0 < us);
        within.map(|(_, cost)| cost).sum()
    };
    (0..admitted.len()).map(from).max().unwrap_or(0)
}

#[derive(Clone, Debug)]
enum Clock {
    /// Parts of 64 of the window, and so many µs more.
    Passes(u64, u64),
    Waits,
    /// The same parts back.
    StepsBack(u64),
}

fn clock() -> impl Strategy<Value = Clock> {
    prop_oneof![
        4 => Just(Clock::Passes(0, 0)),
        3 => (0..=16u64, 0..=2u64).prop_map(|(parts, us)| Clock::Passes(parts, us)),
        1 => (0..=128u64, 0..=2u64).prop_map(|(parts, us)| Clock::Passes(parts, us)),
        3 => Just(Clock::Waits),
    ]
}

fn stepping_clock() -> impl Strategy<Value = Clock> {
    prop_oneof![
        8 => clock(),
        1 => (1..=200u64).prop_map(Clock::StepsBack),
    ]
}

/// What is admitted of these calls; the steps back take no time. And no call waits for
/// longer than `most_wait_us`.
fn admitted(
    key: &mut Key,
    window_us: u64,
    most_wait_us: u64,
    calls: &[(Clock, u64)],
) -> (Admitted, Vec<u64>) {
    let (mut now, mut passed, mut wait_us) = (NOW_US, 0, 0);
    let (mut admitted, mut instants) = (Vec::new(), Vec::new());
    let mut cost = 1;
    for (clock, share) in calls {
        let before = now;
        let waited = matches!(clock, Clock::Waits) && wait_us > 0;
        now = match clock {
            Clock::Passes(parts, us) => now + window_us / 64 * parts + us,
            Clock::Waits => now + wait_us,
            Clock::StepsBack(parts) => now - window_us / 64 * parts,
        };
        passed += now.saturating_sub(before);
        if !waited {
            cost = 1 + (key.policy.limit() - 1) * share / 255;
        }
        let (is_admitted, wait) = key.call(cost, now);
        assert!(is_admitted || !waited, "what it is told to wait is enough");
        assert!(wait <= most_wait_us);
        wait_us = if is_admitted { 0 } else { wait };
        if is_admitted {
            admitted.push((passed, cost));
            instants.push(now);
        }
    }
    (admitted, instants)
}

fn calls(clock: impl Strategy<Value = Clock>) -> impl Strategy<Value = Vec<(Clock, u64)>> {
    let share = prop_oneof![3 => Just(0u64), 2 => 0..=255u64, 1 => Just(255u64)];
    prop::collection::vec((clock, share), 1..80)
}

fn limit() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 1..=8u64, 2 => 9..=300u64]
}

fn window_ms() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![1u64, 7, 1_000, 60_000])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    /// Windows open with the first call when none is open.
    #[test]
    fn a_fixed_window_admits_its_limit(
        (limit, window_ms) in (limit(), window_ms()),
        calls in calls(stepping_clock()),
    ) {
        let us = window_ms * 1000;
        let mut key = Key::new(policy(Algorithm::FixedWindow, &[limit, window_ms]));
        let (admitted, _) = admitted(&mut key, us, us, &calls);
        prop_assert!(most_within(&admitted, us) <= 2 * limit);
        if calls.iter().any(|(clock, _)| matches!(clock, Clock::StepsBack(_))) {
            return Ok(());
        }
        let (mut opened, mut used) = (None, 0);
        for (at, cost) in admitted {
            if opened.is_none_or(|opened| at - opened >= us) {
                (opened, used) = (Some(at), 0);
            }
            used += cost;
            prop_assert!(used <= limit);
        }
    }

    #[test]
    fn an_aligned_fixed_window_admits_its_limit(
        (limit, window_ms) in (limit(), window_ms()),
        align_ms in 0..=100_000u64,
        calls in calls(clock()),
    ) {
        let us = window_ms * 1000;
        let fixed = policy(Algorithm::FixedWindow, &[limit, window_ms]);
        let aligned = fixed.aligned(align_ms.to_string().as_bytes()).unwrap();
        let mut key = Key::new(aligned);
        let (admitted, instants) = admitted(&mut key, us, us, &calls);
        prop_assert!(most_within(&admitted, us) <= 2 * limit);
        let mut used = std::collections::HashMap::new();
        for (now, (_, cost)) in instants.iter().zip(&admitted) {
            let window = (*now as i64 - align_ms as i64 * 1000).div_euclid(us as i64);
            let used = used.entry(window).or_insert(0);
            *used += cost;
            prop_assert!(*used <= limit);
        }
    }

    #[test]
    fn a_sliding_window_admits_less_than_twice_its_limit_in_any_windows_length(
        (limit, window_ms) in (limit(), window_ms()),
        calls in calls(stepping_clock()),
    ) {
        let us = window_ms * 1000;
        let mut key = Key::new(policy(Algorithm::SlidingWindow, &[limit, window_ms]));
        let (admitted, _) = admitted(&mut key, us, 2 * us, &calls);
        prop_assert!(most_within(&admitted, us) < 2 * limit);
    }

    #[test]
    fn a_sliding_log_admits_its_limit_in_any_windows_length(
        (limit, window_ms) in (limit(), window_ms()),
        calls in calls(stepping_clock()),
    ) {
        let us = window_ms * 1000;
        let mut key = Key::new(policy(Algorithm::SlidingLog, &[limit, window_ms]));
        let (admitted, _) = admitted(&mut key, us, us, &calls);
        prop_assert!(most_within(&admitted, us) <= limit);
    }

    /// Whoever holds each request as long as told sends them on at the leak rate at most.
    #[test]
    fn a_leaky_bucket_lets_out_no_more_than_it_leaks(
        (capacity, leak, period_ms) in (limit(), limit(), window_ms()),
        calls in calls(clock()),
    ) {
        let full_us = (capacity * period_ms * 1000).div_ceil(leak);
        let mut key = Key::new(policy(Algorithm::LeakyBucket, &[capacity, leak, period_ms]));
        let (mut now, mut wait_us) = (NOW_US, 0);
        // When each starts, and its cost.
        let mut started: Vec<(u64, u64)> = Vec::new();
        for (clock, share) in calls {
            now += match clock {
                Clock::Waits => wait_us,
                Clock::Passes(parts, us) => full_us / 64 * parts + us,
                Clock::StepsBack(_) => 0,
            };
            let cost = 1 + (capacity - 1) * share / 255;
            let (is_admitted, wait) = key.call(cost, now);
            wait_us = wait;
            if is_admitted {
                // It finds room behind the debt that it waits for.
                prop_assert!(wait <= full_us - cost * period_ms * 1000 / leak);
                started.push((now + wait, cost));
            }
        }
        for (first, (from, _)) in started.iter().enumerate() {
            let mut ahead = 0;
            for (start, cost) in &started[first..] {
                // A start is rounded up to a µs.
                let leaked = leak * (start - from + 1);
                prop_assert!(ahead * period_ms * 1000 <= leaked);
                ahead += cost;
            }
        }
    }

    /// A state that is dropped later changes no verdict, a millisecond earlier it did.
    #[test]
    fn a_state_matters_until_it_says_so(
        algorithm in prop::sample::select(Algorithm::ALL.to_vec()),
        (limit, count, window_ms) in (limit(), limit(), window_ms()),
        calls in calls(clock()),
        refund in prop_oneof![Just(0u64), 1..=5u64],
    ) {
        let numbers = [limit, count, window_ms];
        let policy = match algorithm.parameters().len() {
            3 => policy(algorithm, &numbers),
            _ => policy(algorithm, &[limit, window_ms]),
        };
        let mut key = Key::new(policy);
        let (_, instants) = admitted(&mut key, window_ms * 1000, u64::MAX, &calls);
        let last = instants.last().copied().unwrap();
        let mut stored = key.stored.unwrap();
        if refund > 0 {
            let refunded = Limiter::refund(Some(&mut stored), &policy, refund, Micros(last));
            prop_assume!(refunded.unwrap().1 != Change::Gone);
        }
        let until = stored.matters_until().0;
        let remaining = |now| {
            let verdict = Limiter::peek(Some(&stored), &policy, limit, Micros(now)).unwrap();
            (verdict.allowed, verdict.remaining, verdict.reset_us)
        };
        prop_assert_eq!(remaining((until + 1) * 1000), (true, limit, 0));
        prop_assert!(stored.is_drained(Micros((until + 1) * 1000)));
        let earlier = ((until - 1) * 1000).max(last);
        prop_assert!(!remaining(earlier).0);
        prop_assert!(!stored.is_drained(Micros(earlier)));
    }
}

/// All of a window's calls but the one that opened it in its last µs, and as many in the last
/// µs but one of the next, when they weigh next to nothing: 2·limit − 2 in a window's length.
/// If the call that opened the window was given back, it is one more.
#[test]
fn a_sliding_window_reaches_twice_its_limit_less_one() {
    for is_given_back in [false, true] {
        let mut key = Key::new(policy(Algorithm::SlidingWindow, &[10, 1_000]));
        assert!(key.call(1, NOW_US).0);
        let from = NOW_US + 999_999;
        let mut admitted = Vec::new();
        for _ in 0..9 {
            assert!(key.call(1, from).0);
            admitted.push((from, 1));
        }
        assert!(!key.call(1, from).0);
        if is_given_back {
            let stored = key.stored.as_mut();
            let refunded = Limiter::refund(stored, &key.policy, 1, Micros(from)).unwrap();
            assert_eq!(refunded.0.remaining, 1);
            assert!(key.call(1, from).0);
            admitted.push((from, 1));
        }
        let last = from + 999_999;
        for _ in 0..9 {
            assert!(key.call(1, last).0);
            admitted.push((last, 1));
        }
        assert!(!key.call(1, last).0);
        let expected = if is_given_back {
            2 * 10 - 1
        } else {
            2 * 10 - 2
        };
        assert_eq!(most_within(&admitted, 1_000_000), expected);
    }
}

/// Twice the limit within two µs: what a boundary lets through.
#[test]
fn a_fixed_window_reaches_twice_its_limit() {
    let fixed = policy(Algorithm::FixedWindow, &[10, 1_000]);
    for policy in [fixed, fixed.aligned(b"0").unwrap()] {
        let start = 1_750_000_000_000_000;
        let mut key = Key::new(policy);
        assert!(key.call(1, start).0);
        assert!(key.call(9, start + 999_999).0);
        assert!(!key.call(1, start + 999_999).0);
        assert!(key.call(10, start + 1_000_000).0);
        assert!(!key.call(1, start + 1_999_999).0);
        assert!(key.call(10, start + 2_000_000).0);
    }
}
