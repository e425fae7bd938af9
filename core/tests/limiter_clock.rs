//! Limiters under a clock that steps: nobody starves, nobody gets a burst for free, and no
//! key goes silent.

use proptest::prelude::*;
use sluice_core::limiter::{Algorithm, Change, Policy, Send, Verdict};
use sluice_core::{Limiter, Micros, Millis, State};

const NOW: Micros = Micros(1_750_000_000_000_300);
const HOUR_US: u64 = 3_600_000_000;

/// An admission under the policy that is stored.
const CHARGED: Change = Change::Changed {
    must_send: false,
    until: None,
};

fn gcra(burst: u64, count: u64, period_ms: u64) -> Policy {
    let texts = [burst, count, period_ms].map(|n| n.to_string());
    let [burst, count, period_ms] = &texts;
    Algorithm::Gcra
        .policy(
            &[burst.as_bytes(), count.as_bytes(), period_ms.as_bytes()],
            100_000,
        )
        .unwrap()
}

fn plus(now: Micros, us: u64) -> Micros {
    Micros(now.0 + us)
}

fn minus(now: Micros, us: u64) -> Micros {
    Micros(now.0 - us)
}

fn bytes(state: &Limiter) -> Vec<u8> {
    state.to_stored().as_bytes().to_vec()
}

/// The stored bytes with another time in them: it follows version, shape and debt.
fn with_time(state: &Limiter, at: Micros) -> Vec<u8> {
    let mut bytes = bytes(state);
    bytes[14..22].copy_from_slice(&at.0.to_le_bytes());
    bytes
}

/// The debt is `cost` tokens at `now`.
fn charged(policy: &Policy, cost: u64, now: Micros) -> Limiter {
    match Limiter::decide(None, policy, cost, now).unwrap() {
        (_, Change::New(state)) => state,
        other => panic!("{other:?}"),
    }
}

fn may_send(state: &mut Limiter, now: Micros, interval_ms: u64) -> bool {
    state.send(false, now, interval_ms) == Send::Now
}

/// What a call makes of a copy of what is stored.
fn decide(stored: &Limiter, policy: &Policy, cost: u64, now: Micros) -> (Verdict, Change, Limiter) {
    let mut state = stored.clone();
    let (verdict, change) = Limiter::decide(Some(&mut state), policy, cost, now).unwrap();
    (verdict, change, state)
}

fn peek(stored: &Limiter, policy: &Policy, cost: u64, now: Micros) -> Verdict {
    Limiter::peek(Some(stored), policy, cost, now).unwrap()
}

/// `decide` of a call that is denied by a state from ahead of the clock.
fn rebased(stored: &Limiter, policy: &Policy, cost: u64, now: Micros) -> (Verdict, Limiter) {
    let mut state = stored.clone();
    let (verdict, change) = Limiter::decide(Some(&mut state), policy, cost, now).unwrap();
    assert!(!verdict.allowed);
    assert!(
        matches!(
            change,
            Change::Changed {
                must_send: true,
                ..
            }
        ),
        "{change:?}"
    );
    (verdict, state)
}

// Steps back -----------------------------------------------------------------------------

#[test]
fn an_hour_back_an_exhausted_key_waits_as_if_it_had_been_exhausted_now() {
    let policy = gcra(10, 10, 60_000);
    let stored = charged(&policy, 10, NOW);
    let now = minus(NOW, HOUR_US);
    let (verdict, state) = rebased(&stored, &policy, 1, now);
    assert_eq!(verdict.reply(), [0, 10, 0, 6_000, 60_000]);
    assert_eq!(bytes(&state), with_time(&stored, now));

    // What was promised holds on the clock as it now is.
    let admitted = |us| peek(&state, &policy, 1, plus(now, us)).allowed;
    assert!(!admitted(5_999_999));
    assert!(admitted(6_000_000));
    let remaining = |us| peek(&state, &policy, 1, plus(now, us)).remaining;
    assert_eq!(remaining(59_999_999), 9);
    assert_eq!(remaining(60_000_000), 10);
}

#[test]
fn a_rebase_is_stored_once_per_step() {
    let policy = gcra(10, 10, 60_000);
    let now = minus(NOW, HOUR_US);
    let (_, state) = rebased(&charged(&policy, 10, NOW), &policy, 1, now);
    for us in [0, 1, 5_999_999] {
        let (verdict, change, after) = decide(&state, &policy, 1, plus(now, us));
        assert!(!verdict.allowed);
        assert_eq!(change, Change::None { until: None });
        assert_eq!(bytes(&after), bytes(&state));
    }
}

#[test]
fn one_microsecond_back_is_a_step() {
    let policy = gcra(1, 1, 1_000);
    let stored = charged(&policy, 1, NOW);
    let (verdict, state) = rebased(&stored, &policy, 1, minus(NOW, 1));
    assert_eq!(verdict.wait_us, 1_000_000);
    assert_eq!(bytes(&state), with_time(&stored, minus(NOW, 1)));
}

#[test]
fn an_admission_after_a_step_back_drained_nothing_and_counts_from_now() {
    let policy = gcra(10, 10, 60_000);
    let stored = charged(&policy, 4, NOW);
    let now = minus(NOW, HOUR_US);
    let (verdict, change, state) = decide(&stored, &policy, 1, now);
    assert_eq!(verdict.reply(), [1, 10, 5, 0, 30_000]);
    assert_eq!(change, CHARGED);
    assert_eq!(bytes(&state), bytes(&charged(&policy, 5, now)));
}

#[test]
fn a_step_back_to_the_epoch() {
    let policy = gcra(100, 1, 31_536_000_000);
    let stored = charged(&policy, 100, NOW);
    let (verdict, state) = rebased(&stored, &policy, 100, Micros(0));
    let century_ms = 3_153_600_000_000;
    assert_eq!(verdict.reply(), [0, 100, 0, century_ms, century_ms]);
    assert_eq!(bytes(&state), with_time(&stored, Micros(0)));
}

#[test]
fn a_peek_computes_as_if_rebased_and_leaves_it_at_that() {
    let policy = gcra(10, 10, 60_000);
    let stored = charged(&policy, 10, NOW);
    for us in [HOUR_US, HOUR_US / 2, 1] {
        let verdict = peek(&stored, &policy, 1, minus(NOW, us));
        assert_eq!(verdict.reply(), [0, 10, 0, 6_000, 60_000]);
    }
    assert_eq!(bytes(&stored), bytes(&charged(&policy, 10, NOW)));
}

#[test]
fn a_rebase_keeps_the_policy_of_the_last_admission() {
    let stored = charged(&gcra(10, 10, 60_000), 10, NOW);
    let now = minus(NOW, 1);
    let (verdict, state) = rebased(&stored, &gcra(5, 5, 5_000), 5, now);
    assert_eq!(verdict.reply(), [0, 5, 0, 5_000, 5_000]);
    assert_eq!(state.policy(), Some(gcra(10, 10, 60_000)));
    assert_eq!(bytes(&state), with_time(&stored, now));
}

/// A denial lengthens the TTL where its policy needs that; when the same denial rebases, the
/// module sets the TTL that the state asks for, and what is denied says that it was to be
/// longer. Else the key were gone after a minute, and an hour's quota there again.
#[test]
fn a_rebase_under_a_slower_policy_keeps_the_key_as_long_as_that_needs() {
    let stored = charged(&gcra(10, 10, 60_000), 10, NOW);
    let slower = gcra(10, 10, 3_600_000);
    let (verdict, change, _) = decide(&stored, &slower, 1, NOW);
    assert!(!verdict.allowed);
    let until = NOW.floor_ms().plus(3_600_001);
    assert_eq!(change, Change::None { until: Some(until) });

    let now = minus(NOW, 1_000_000);
    let (verdict, change, _) = decide(&stored, &slower, 1, now);
    assert_eq!(verdict.reset_us, u128::from(HOUR_US));
    let millis = plus(now, HOUR_US).0.div_ceil(1000);
    let must_grow = Change::Changed {
        must_send: true,
        until: Some(Millis(millis)),
    };
    assert_eq!(change, must_grow);
}

// Steps forward --------------------------------------------------------------------------

#[test]
fn an_hour_forward_drains_an_hour_and_an_hour_back_gives_no_more() {
    let policy = gcra(10, 10, 60_000);
    let stored = charged(&policy, 10, NOW);
    let ahead = plus(NOW, HOUR_US);
    let (verdict, change, stored) = decide(&stored, &policy, 10, ahead);
    assert_eq!(verdict.reply(), [1, 10, 0, 0, 60_000]);
    assert_eq!(change, CHARGED);
    let (verdict, _) = rebased(&stored, &policy, 1, NOW);
    assert_eq!(verdict.reply(), [0, 10, 0, 6_000, 60_000]);
}

#[test]
fn to_the_end_of_time_and_back() {
    let policy = gcra(1_000_000_000, 1_000_000_000, 1);
    let stored = charged(&policy, 1_000_000_000, Micros(0));
    for now in [Micros(Micros::BOUND - 1), Micros(u64::MAX)] {
        let (verdict, change, state) = decide(&stored, &policy, 1_000_000_000, now);
        assert_eq!(verdict.reply(), [1, 1_000_000_000, 0, 0, 1]);
        assert_eq!(change, CHARGED);
        let (verdict, state) = rebased(&state, &policy, 1, Micros(7));
        assert_eq!(verdict.wait_us, 1);
        assert_eq!(bytes(&state), with_time(&stored, Micros(7)));
    }
}

// Any steps ------------------------------------------------------------------------------

#[derive(Clone, Debug)]
enum Clock {
    Passes(u64),
    Steps(i64),
    Waits,
}

fn clock() -> impl Strategy<Value = Clock> {
    let step_us = prop_oneof![
        Just(-1i64),
        -10_000_000..=10_000_000i64,
        Just(-(HOUR_US as i64)),
        Just(HOUR_US as i64),
    ];
    prop_oneof![
        4 => Just(Clock::Passes(0)),
        3 => (0..=3_000_000u64).prop_map(Clock::Passes),
        2 => step_us.prop_map(Clock::Steps),
        3 => Just(Clock::Waits),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    /// With what the clock shows as time that passed, steps forward included and steps back
    /// left out, the rate holds; and after every call the wait is no longer than what the
    /// cost takes to drain, which is at most the full window.
    #[test]
    fn no_steps_give_a_burst_for_free_or_starve_anyone(
        burst in 1..=20u64,
        count in 1..=20u64,
        period_ms in prop_oneof![Just(1_000u64), Just(60_000), 1..=10_000u64],
        calls in prop::collection::vec((clock(), any::<prop::sample::Index>()), 1..60),
    ) {
        let policy = gcra(burst, count, period_ms);
        let token = u128::from(period_ms) * 1000;
        let mut stored: Option<Limiter> = None;
        let mut now = NOW;
        let mut forward_us = 0;
        let mut admitted = 0;
        let mut wait_us = 0;
        let mut cost = 1;
        for (clock, index) in calls {
            let before = now;
            let waited = matches!(clock, Clock::Waits) && wait_us > 0;
            match clock {
                Clock::Passes(us) => now = plus(now, us),
                Clock::Steps(us) => now = Micros(now.0.saturating_add_signed(us)),
                Clock::Waits => now = plus(now, wait_us),
            }
            forward_us += now.0.saturating_sub(before.0);
            if !waited {
                cost = 1 + index.index(burst as usize) as u64;
            }

            let (verdict, change) =
                Limiter::decide(stored.as_mut(), &policy, cost, now).unwrap();
            prop_assert!(verdict.allowed || !waited);
            let most_us = (u128::from(cost) * token).div_ceil(u128::from(count));
            prop_assert!(verdict.wait_us <= most_us);
            wait_us = verdict.wait_us as u64;
            if let Change::New(state) = change {
                stored = Some(state);
            }
            if verdict.allowed {
                admitted += cost;
            }
            let debt = u128::from(admitted) * token;
            let paid = u128::from(forward_us) * u128::from(count);
            prop_assert!(debt <= u128::from(burst) * token + paid);
        }
    }
}

// Which admissions are propagated --------------------------------------------------------

const WRAP_MS: u64 = 1 << 32;
const LONGEST_MS: u64 = 3_600_000;

/// One that was propagated at `NOW`.
fn sent() -> Limiter {
    let mut state = charged(&gcra(10, 10, 1_000), 1, NOW);
    assert!(may_send(&mut state, NOW, 0));
    state
}

fn at_ms(ms: i64) -> Micros {
    Micros(NOW.0.saturating_add_signed(ms * 1000))
}

#[test]
fn without_an_interval_each_is() {
    let mut state = sent();
    for ms in [0, 0, 1, 1, -1, 0, -3_600_000, 3_600_000] {
        assert!(may_send(&mut state, at_ms(ms), 0));
    }
}

#[test]
fn with_an_interval_of_n_one_in_n_ms_is() {
    for interval_ms in [1, 2, 1_000, LONGEST_MS] {
        let mut state = sent();
        let end = interval_ms as i64;
        for ms in [0, end / 2, end - 1] {
            assert!(!may_send(&mut state, at_ms(ms), interval_ms));
        }
        assert!(may_send(&mut state, at_ms(end), interval_ms));
        // From there on anew.
        assert!(!may_send(&mut state, at_ms(end), interval_ms));
        assert!(!may_send(&mut state, at_ms(2 * end - 1), interval_ms));
        assert!(may_send(&mut state, at_ms(2 * end), interval_ms));
    }
}

/// As `Limiter` counts it; within a millisecond it is all the same.
#[test]
fn the_interval_is_counted_in_whole_milliseconds() {
    let mut state = sent();
    let next_ms = NOW.0 - NOW.0 % 1000 + 1000;
    assert!(!may_send(&mut state, Micros(next_ms - 1), 1));
    assert!(may_send(&mut state, Micros(next_ms), 1));
    assert!(!may_send(&mut state, Micros(next_ms + 999), 1));
}

#[test]
fn a_step_back_or_forward_silences_no_key() {
    for interval_ms in [1, 1_000, LONGEST_MS] {
        let far = (WRAP_MS - interval_ms) as i64;
        for step in [-1, -1_000, -3_600_000, 1 - far, -far] {
            let mut state = sent();
            assert!(may_send(&mut state, at_ms(step), interval_ms), "{step}");
            assert!(!may_send(&mut state, at_ms(step), interval_ms));
            assert!(may_send(&mut state, at_ms(step), 0));
        }
        for step in [
            interval_ms as i64,
            LONGEST_MS as i64,
            far,
            far + interval_ms as i64 - 1,
        ] {
            assert!(may_send(&mut sent(), at_ms(step), interval_ms), "{step}");
        }
    }
}

/// 2^32 ms, 49.7 days, on, the count is where it was. The key waits one more interval then.
#[test]
fn not_even_one_by_what_the_count_wraps_at() {
    for interval_ms in [1, 1_000, LONGEST_MS] {
        for step in [-(WRAP_MS as i64), WRAP_MS as i64, 3 * WRAP_MS as i64] {
            let mut state = sent();
            let end = step + interval_ms as i64;
            assert!(!may_send(&mut state, at_ms(step), interval_ms));
            assert!(!may_send(&mut state, at_ms(end - 1), interval_ms));
            assert!(may_send(&mut state, at_ms(end), interval_ms));
        }
    }
}

#[test]
fn calls_keep_the_interval_and_the_encoding_has_none() {
    let policy = gcra(2, 2, 60_000);
    let first = sent();
    let (verdict, change, mut second) = decide(&first, &policy, 1, NOW);
    assert!(verdict.allowed);
    // Under another policy than before, which is not kept back.
    let must_send = Change::Changed {
        must_send: true,
        until: None,
    };
    assert_eq!(change, must_send);
    assert!(!may_send(&mut second, at_ms(999), 1_000));
    assert!(may_send(&mut second, at_ms(1_000), 1_000));

    let (_, mut third) = rebased(&second, &policy, 1, minus(NOW, 1));
    assert!(!may_send(&mut third, at_ms(1_999), 1_000));
    assert!(may_send(&mut third, at_ms(2_000), 1_000));

    // A replica starts with an interval of its own.
    let mut loaded = Limiter::from_stored(&bytes(&first)).unwrap();
    assert_eq!(bytes(&loaded), bytes(&first));
    assert!(may_send(&mut loaded, NOW, 1_000));
    assert_eq!(bytes(&loaded), bytes(&first));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn on_a_clock_that_goes_forward_it_is_one_per_interval_and_never_fewer(
        interval_ms in prop_oneof![Just(0u64), 1..=5u64, 1..=LONGEST_MS],
        gaps_us in prop::collection::vec(
            prop_oneof![0..=3_000u64, 0..=2 * LONGEST_MS * 1000],
            1..60,
        ),
    ) {
        let mut state = sent();
        let mut now = NOW;
        let mut last_ms = now.floor_ms();
        for gap_us in gaps_us {
            now = plus(now, gap_us);
            let is_due = now.floor_ms().since(last_ms) >= interval_ms;
            prop_assert_eq!(may_send(&mut state, now, interval_ms), is_due);
            if is_due {
                last_ms = now.floor_ms();
            }
        }
    }
}
