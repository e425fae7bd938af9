//! Faults reported against other rate limiters, one scenario each.

use sluice_core::limiter::{Algorithm, Change, LimiterEffect};
use sluice_core::{Limiter, Micros, State};

const BUCKETS: [Algorithm; 3] = [
    Algorithm::Gcra,
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
];

/// The clock when a scenario begins, in the middle of a millisecond.
const T: Micros = Micros(1_750_000_000_000_300);

/// One key, spoken to as the commands do: a policy and a cost as texts, the five integers
/// as the answer, `ms` after `T`.
#[derive(Default)]
struct Key {
    stored: Option<Limiter>,
}

fn at(ms: u64) -> Micros {
    Micros(T.0 + ms * 1000)
}

/// `GCRA 10 10 60000`, with `COST n` or without.
fn parse(call: &str) -> Result<(sluice_core::limiter::Policy, u64), String> {
    let words: Vec<&[u8]> = call.split(' ').map(str::as_bytes).collect();
    let wire = |error: sluice_core::Error| error.to_string();
    let policy = Algorithm::named(words[0])
        .and_then(|algorithm| algorithm.policy(&[words[1], words[2], words[3]], 100_000))
        .map_err(wire)?;
    let cost = match words[4..] {
        [] => 1,
        [b"COST", cost] => policy.cost(cost).map_err(wire)?,
        _ => panic!("{call}"),
    };
    Ok((policy, cost))
}

impl Key {
    fn call(&mut self, call: &str, now: Micros) -> [u64; 5] {
        let (policy, cost) = parse(call).unwrap();
        let (verdict, change) = Limiter::decide(self.stored.as_mut(), &policy, cost, now).unwrap();
        if let Change::New(state) = change {
            self.stored = Some(state);
        }
        verdict.reply()
    }

    fn peek(&self, call: &str, now: Micros) -> [u64; 5] {
        let (policy, cost) = parse(call).unwrap();
        Limiter::peek(self.stored.as_ref(), &policy, cost, now)
            .unwrap()
            .reply()
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        let stored = self.stored.as_ref()?;
        Some(stored.to_stored().as_bytes().to_vec())
    }

    /// Of a key as the module sets its TTL: to the last millisecond that matters or later.
    fn least_pttl(&self, now: Micros) -> u64 {
        let until = self.stored.as_ref().unwrap().matters_until();
        until.since(now.floor_ms())
    }
}

fn error(call: &str) -> String {
    parse(call).unwrap_err()
}

// brandur/redis-cell ---------------------------------------------------------------------

#[test]
fn redis_cell_a_negative_quantity_and_one_above_the_limit() {
    let range = "ERR COST must be an integer between 1 and 1000000000";
    assert_eq!(error("GCRA 10 10 60000 COST -1"), range);
    assert_eq!(
        error("TOKENBUCKET 10 10 60000 COST -9223372036854775808"),
        range
    );
    assert_eq!(error("GCRA 10 10 60000 COST 0"), range);
    assert_eq!(
        error("GCRA 10 10 60000 COST 11"),
        "ERR COST 11 is above the limit of 10: it can never be admitted"
    );
}

/// `1 2000000 1`, `10 3000000000 1`, `1 1 9223372036854775807` and `200000000 1 86400` of
/// CL.THROTTLE, whose burst is one less and whose period is in seconds.
#[test]
fn redis_cell_rates_at_and_beyond_the_edge() {
    // Half a µs each.
    let mut key = Key::default();
    let fast = "GCRA 2 2000000 1000";
    for remaining in [1, 0] {
        assert_eq!(key.call(fast, T), [1, 2, remaining, 0, 1]);
    }
    assert_eq!(key.call(fast, T), [0, 2, 0, 1, 1]);
    let next = Micros(T.0 + 1);
    assert_eq!(key.call(fast, next), [1, 2, 1, 0, 1]);
    assert_eq!(key.call(fast, next), [1, 2, 0, 0, 1]);
    assert_eq!(key.call(fast, next), [0, 2, 0, 1, 1]);

    assert_eq!(
        error("GCRA 11 3000000000 1000"),
        "ERR count must be an integer between 1 and 1000000000"
    );
    assert_eq!(
        error("GCRA 2 1 9223372036854775807000"),
        "ERR period_ms must be an integer between 1 and 31536000000"
    );
    assert_eq!(
        error("GCRA 200000001 1 86400000"),
        "ERR a full bucket must drain within 100 years: check the policy"
    );
}

#[test]
fn redis_cell_no_fresh_key_denies_a_cost_up_to_the_limit() {
    for (call, reset_ms) in [
        ("GCRA 1 1 1 COST 1", 1),
        ("GCRA 1 1000000000 1 COST 1", 1),
        ("GCRA 1000000000 1000000000 1 COST 1000000000", 1),
        ("GCRA 1000000000 1 1 COST 1000000000", 1_000_000_000),
        ("GCRA 36500 1 86400000 COST 36500", 3_153_600_000_000),
        ("GCRA 100 1 31536000000 COST 100", 3_153_600_000_000),
        (
            "TOKENBUCKET 1000000000 1000000000 31536000000 COST 1000000000",
            31_536_000_000,
        ),
    ] {
        for now in [Micros(0), T] {
            let [allowed, _, remaining, wait_ms, reset] = Key::default().call(call, now);
            assert_eq!(
                [allowed, remaining, wait_ms, reset],
                [1, 0, 0, reset_ms],
                "{call}"
            );
        }
    }
}

/// `9 10 60` exhausted, then `9 10 3600`.
#[test]
fn redis_cell_a_longer_period_gives_no_free_quota() {
    let mut key = Key::default();
    for remaining in (0..10).rev() {
        let reset_ms = (10 - remaining) * 6_000;
        assert_eq!(
            key.call("GCRA 10 10 60000", T),
            [1, 10, remaining, 0, reset_ms]
        );
    }
    assert_eq!(key.call("GCRA 10 10 60000", T), [0, 10, 0, 6_000, 60_000]);
    assert_eq!(
        key.call("GCRA 10 10 3600000", T),
        [0, 10, 0, 360_000, 3_600_000]
    );
    // A token of the new policy takes six minutes.
    assert_eq!(
        key.call("GCRA 10 10 3600000", at(359_999))[..4],
        [0, 10, 0, 1]
    );
    assert_eq!(
        key.call("GCRA 10 10 3600000", at(360_000)),
        [1, 10, 0, 0, 3_600_000]
    );
}

/// An AOF loaded after 3 s of downtime, a replica that stalled for 2 s: its clock is in no
/// part of what is stored.
#[test]
fn redis_cell_an_effect_gives_the_same_state_however_late() {
    let mut key = Key::default();
    key.call("GCRA 10 10 60000 COST 10", T);
    let state = key.stored.as_ref().unwrap();
    let effect = state.to_effect(T);
    let (effect, sent_at) = LimiterEffect::decode(effect.as_bytes()).unwrap();
    let loaded = Limiter::apply(None, effect).unwrap();
    assert_eq!((&loaded, sent_at), (state, T));
    let loaded = Key {
        stored: Some(loaded),
    };
    for ms in [0, 2_000, 3_000, 5_999, 6_000] {
        let reply = loaded.peek("GCRA 10 10 60000", at(ms));
        assert_eq!(reply, key.peek("GCRA 10 10 60000", at(ms)));
        assert_eq!(reply[0], u64::from(ms >= 6_000));
    }
}

/// redis-cell#56
#[test]
fn redis_cell_a_retry_exactly_after_the_wait_is_admitted() {
    for (call, cost) in [
        ("GCRA 10 10 60000", 1),
        ("GCRA 10 7 1000", 3),
        ("GCRA 3 3 10", 2),
        ("TOKENBUCKET 100 7000 1000", 99),
        ("TOKENBUCKET 5 3000000 1000", 5),
        ("GCRA 1 1 1", 1),
    ] {
        let call = format!("{call} COST {cost}");
        let mut key = Key::default();
        let mut now = T;
        for _ in 0..1_000 {
            let [allowed, _, _, wait_ms, _] = key.call(&call, now);
            if allowed == 0 {
                assert!(wait_ms >= 1);
                now = Micros(now.0 + wait_ms * 1000);
                assert_eq!(key.call(&call, now)[0], 1, "{call}");
            }
        }
    }
}

// redis/redis ----------------------------------------------------------------------------

/// redis#15093: `1 10000 1`, a token each tenth of a millisecond, in a hot loop.
#[test]
fn redis_15093_tokens_of_less_than_a_millisecond() {
    let call = "GCRA 2 10000 1000";
    let mut key = Key::default();
    let mut admitted = 0;
    for us in 0..=100_000 {
        let now = Micros(T.0 + us);
        admitted += key.call(call, now)[0];
        assert!(key.least_pttl(now) >= 1);
    }
    // Two at once, and one each 100 µs.
    assert_eq!(admitted, 2 + 1_000);
}

/// redis#15113
#[test]
fn redis_15113_a_cost_larger_than_the_burst() {
    for algorithm in BUCKETS {
        let call = format!("{} 5 5 1000 COST 6", algorithm.name());
        assert_eq!(
            error(&call),
            "ERR COST 6 is above the limit of 5: it can never be admitted"
        );
    }
}

// Others ---------------------------------------------------------------------------------

#[test]
fn throttled_107_a_peek_at_an_exhausted_key_says_the_wait() {
    let mut key = Key::default();
    key.call("GCRA 10 10 60000 COST 10", T);
    let before = key.bytes();
    assert_eq!(key.peek("GCRA 10 10 60000", T), [0, 10, 0, 6_000, 60_000]);
    assert_eq!(
        key.peek("GCRA 10 10 60000 COST 10", T),
        [0, 10, 0, 60_000, 60_000]
    );
    assert_eq!(key.bytes(), before);
}

/// Capacity 10 per 1 s, called every 80 ms for 8 s.
#[test]
fn redis_shield_the_rest_of_a_refill_is_kept() {
    for algorithm in BUCKETS {
        let call = format!("{} 10 10 1000", algorithm.name());
        let mut key = Key::default();
        let admitted: u64 = (0..=8_000)
            .step_by(80)
            .map(|ms| key.call(&call, at(ms))[0])
            .sum();
        assert_eq!(admitted, 10 + 80);
    }
}

/// go-limiter#41
#[test]
fn go_limiter_41_the_clock_steps_back_an_hour() {
    let call = "TOKENBUCKET 10 10 1000";
    let mut key = Key::default();
    key.call("TOKENBUCKET 10 10 1000 COST 10", T);
    let back = Micros(T.0 - 3_600_000_000);
    assert_eq!(key.call(call, back), [0, 10, 0, 100, 1_000]);
    let then = |ms: u64| Micros(back.0 + ms * 1000);
    assert_eq!(key.call(call, then(99)), [0, 10, 0, 1, 901]);
    assert_eq!(key.call(call, then(100)), [1, 10, 0, 0, 1_000]);
    assert_eq!(key.peek(call, then(1_099)), [1, 10, 9, 0, 1]);
    assert_eq!(key.peek(call, then(1_100)), [1, 10, 10, 0, 0]);
}

/// envoyproxy/ratelimit#185
#[test]
fn envoy_185_denied_calls_push_nothing() {
    let call = "GCRA 5 5 1000";
    let mut key = Key::default();
    key.call("GCRA 5 5 1000 COST 5", T);
    let before = key.bytes();
    for ms in 0..200 {
        assert_eq!(key.call(call, at(ms)), [0, 5, 0, 200 - ms, 1_000 - ms]);
        assert_eq!(key.call("GCRA 5 5 1000 COST 5", at(ms))[3], 1_000 - ms);
        assert_eq!(key.bytes(), before);
    }
    assert_eq!(key.call(call, at(200)), [1, 5, 0, 0, 1_000]);
}

/// redisson#5098
#[test]
fn redisson_5098_a_raised_limit_holds_from_the_next_call() {
    let mut key = Key::default();
    let low = "TOKENBUCKET 100 100 60000";
    let high = "TOKENBUCKET 200 200 60000";
    for _ in 0..100 {
        assert_eq!(key.call(low, T)[0], 1);
    }
    assert_eq!(key.call(low, T), [0, 100, 0, 600, 60_000]);
    for used in 101..=200 {
        assert_eq!(key.call(high, T), [1, 200, 200 - used, 0, used * 300]);
    }
    assert_eq!(key.call(high, T), [0, 200, 0, 300, 60_000]);
    // And lowered again: at most its own full window.
    assert_eq!(key.call(low, T), [0, 100, 0, 600, 60_000]);
}

#[test]
fn spring_cloud_gateway_2453_a_bucket_that_refills_faster_than_it_holds() {
    let mut key = Key::default();
    assert_eq!(key.call("TOKENBUCKET 1 3 1000", T), [1, 1, 0, 0, 334]);
    assert!(key.least_pttl(T) >= 1);
    assert_eq!(key.call("TOKENBUCKET 1 3 1000", T), [0, 1, 0, 334, 334]);

    let mut key = Key::default();
    assert_eq!(key.call("GCRA 1 1000000000 1", T), [1, 1, 0, 0, 1]);
    assert!(key.least_pttl(T) >= 1);
    assert_eq!(key.call("GCRA 1 1000000000 1", T), [0, 1, 0, 1, 1]);
    assert_eq!(key.call("GCRA 1 1000000000 1", Micros(T.0 + 1))[0], 1);
}

/// The last µs of a millisecond, too: the key's TTL ends in a later one than it began.
#[test]
fn spring_cloud_gateway_2453_anywhere_in_a_millisecond() {
    for us in 0..1_000 {
        let now = Micros(1_750_000_000_000_000 + us);
        let mut key = Key::default();
        key.call("GCRA 1 1000000000 1", now);
        assert!(key.least_pttl(now) >= 1);
        assert_eq!(key.call("GCRA 1 1000000000 1", now)[0], 0);
    }
}

#[test]
fn losant_redis_gcra_3_the_seventh_of_six_a_minute() {
    let call = "GCRA 6 6 60000";
    let mut key = Key::default();
    for remaining in (0..6).rev() {
        let reset_ms = (6 - remaining) * 10_000;
        assert_eq!(key.call(call, T), [1, 6, remaining, 0, reset_ms]);
    }
    assert_eq!(key.call(call, T), [0, 6, 0, 10_000, 60_000]);
    assert_eq!(key.call(call, at(5_000)), [0, 6, 0, 5_000, 55_000]);
    assert_eq!(key.call(call, at(9_999)), [0, 6, 0, 1, 50_001]);
    assert_eq!(key.call(call, at(10_000)), [1, 6, 0, 0, 60_000]);
}

#[test]
fn bucket4j_419_a_bucket_made_larger_keeps_what_was_taken() {
    let mut key = Key::default();
    for remaining in (0..5).rev() {
        assert_eq!(key.call("TOKENBUCKET 5 5 60000", T)[2], remaining);
    }
    let larger = "TOKENBUCKET 10 10 60000";
    assert_eq!(key.call(larger, T), [1, 10, 4, 0, 36_000]);
    assert_eq!(key.peek(larger, at(30_000)), [1, 10, 9, 0, 6_000]);
    assert_eq!(key.peek(larger, at(60_000)), [1, 10, 10, 0, 0]);
}

/// Either name on one key is the same bucket.
#[test]
fn two_algorithms_on_one_key_share_its_debt() {
    let mut key = Key::default();
    for (call, remaining) in [
        ("GCRA 4 4 1000", 3),
        ("TOKENBUCKET 4 4 1000", 2),
        ("gcra 4 4 1000", 1),
        ("TokenBucket 4 4 1000", 0),
    ] {
        assert_eq!(key.call(call, T)[..3], [1, 4, remaining]);
    }
    assert_eq!(key.call("GCRA 4 4 1000", T), [0, 4, 0, 250, 1_000]);
    assert_eq!(key.call("TOKENBUCKET 4 4 1000", T), [0, 4, 0, 250, 1_000]);
}
