//! Faults of other limiters, as reported in the field, and the right answer here.
//!
//! One test per report that these commands can have; each names its source. What concerns files,
//! replicas and payloads is in `limiter_durability`, named there in the same way.

use crate::limiter_support::*;
use crate::support::*;

/// brandur/redis-cell: quantity −1 on a fresh key, and a cost above the limit, leave a key without
/// a TTL behind.
#[test]
fn a_negative_cost_and_one_above_the_limit_leave_no_key_behind() {
    let server = recorder();
    let range = "ERR COST must be an integer between 1 and 1000000000";
    refuses(
        &server,
        range,
        &[
            "RL.GCRA k 10 10 60000 COST -1",
            "RL.TOKENBUCKET k 10 10 60000 COST -1",
        ],
    );
    let above = "ERR COST 11 is above the limit of 10: it can never be admitted";
    refuses(
        &server,
        above,
        &[
            "RL.GCRA k 10 10 60000 COST 11",
            "RL.TOKENBUCKET k 10 10 60000 COST 11",
        ],
    );
    let mut c = server.conn();
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
    // On a used key neither mints anything.
    run(
        &mut c,
        &[("RL.GCRA k 10 10 60000 COST 10", [1, 10, 0, 0, 60_000])],
    );
    refuses(&server, range, &["RL.GCRA k 10 10 60000 COST -5"]);
    run(
        &mut c,
        &[("RL.GCRA k 10 10 60000", [0, 10, 0, 6000, 60_000])],
    );
    assert!(cmd!(c, "PTTL", "k").as_int() > 0);
}

/// brandur/redis-cell: `1 2000000 1`, `10 3000000000 1`, `1 1 9223372036854775807` and
/// `200000000 1 86400` (seconds) overflow, or deny a fresh key.
#[test]
fn extreme_rates_are_exact_or_a_range_error() {
    let server = recorder();
    let mut c = server.conn();
    // Two per µs.
    run(
        &mut c,
        &[
            ("RL.GCRA k 1 2000000 1000", [1, 1, 0, 0, 1]),
            ("RL.GCRA k 1 2000000 1000", [0, 1, 0, 1, 1]),
        ],
    );
    server.clock().advance_us(1);
    run(&mut c, &[("RL.GCRA k 1 2000000 1000", [1, 1, 0, 0, 1])]);
    let tokens = "must be an integer between 1 and 1000000000";
    refuses(
        &server,
        &format!("ERR count {tokens}"),
        &["RL.GCRA x 10 3000000000 1000"],
    );
    refuses(
        &server,
        &format!("ERR refill {tokens}"),
        &["RL.TOKENBUCKET x 10 3000000000 1000"],
    );
    refuses(
        &server,
        "ERR period_ms must be an integer between 1 and 31536000000",
        &[
            "RL.GCRA x 1 1 9223372036854775807",
            "RL.TOKENBUCKET x 1 1 9223372036854775807",
        ],
    );
    refuses(
        &server,
        "ERR a full bucket must drain within 100 years: check the policy",
        &[
            "RL.GCRA x 200000000 1 86400000",
            "RL.TOKENBUCKET x 200000000 1 86400000",
        ],
    );
    // No fresh key is denied what fits into the limit.
    let mut random = Random(2024);
    let mut checked = 0;
    while checked < 300 {
        let digits = |random: &mut Random, most: u64| {
            let bound = 10u64.pow(1 + random.below(11) as u32).min(most);
            1 + random.below(bound)
        };
        let limit = digits(&mut random, 1_000_000_000);
        let count = digits(&mut random, 1_000_000_000);
        let period = digits(&mut random, 31_536_000_000);
        let cost = 1 + random.below(limit);
        let key = format!("fresh{checked}");
        let reply = cmd!(c, "RL.GCRA", &key, limit, count, period, "COST", cost);
        let years = u128::from(limit) * u128::from(period);
        if years > 100 * 31_536_000_000 * u128::from(count) {
            assert!(reply.is_error(), "{limit} {count} {period}: {reply:?}");
            continue;
        }
        let reset_us = (u128::from(cost) * u128::from(period) * 1000).div_ceil(u128::from(count));
        let expected = [
            1,
            limit as i64,
            (limit - cost) as i64,
            0,
            reset_us.div_ceil(1000) as i64,
        ];
        assert_eq!(
            reply,
            five(expected),
            "{limit} {count} {period} COST {cost}"
        );
        checked += 1;
    }
}

/// brandur/redis-cell: the key holds a list, the string "foo", "" or "-5", or has the bytes
/// `k\xff`, and the server dies or the error is not the type's.
#[test]
fn foreign_values_are_the_wrong_type_and_binary_keys_work() {
    let server = recorder();
    let mut c = server.conn();
    cmd!(c, "RPUSH", "list", "v");
    for (key, text) in [("foo", "foo"), ("empty", ""), ("negative", "-5")] {
        cmd!(c, "SET", key, text);
    }
    for key in ["list", "foo", "empty", "negative"] {
        let line = format!("RL.GCRA {key} 10 10 60000");
        refuses(&server, WRONG_TYPE, &[line]);
    }
    let key = b"k\xff";
    assert_eq!(
        cmd!(c, "RL.GCRA", key, 1, 1, 60_000),
        five([1, 1, 0, 0, 60_000])
    );
    assert_eq!(
        cmd!(c, "RL.GCRA", key, 1, 1, 60_000),
        five([0, 1, 0, 60_000, 60_000])
    );
    assert_eq!(cmd!(c, "RL.RESET", key), int(1));
    assert!(server.is_alive());
}

/// brandur/redis-cell: exhaust `9 10 60`, then call with `9 10 3600`, and nine more are admitted.
#[test]
fn a_slower_policy_on_a_used_key_is_no_free_quota() {
    let server = single();
    let mut c = server.conn();
    // Theirs is a burst on top of the first one: ten in all.
    assert_eq!(admitted(&mut c, "RL.GCRA k 10 10 60000", 12), 10);
    run(
        &mut c,
        &[("RL.GCRA k 10 10 3600000", [0, 10, 0, 360_000, HOUR_MS])],
    );
    assert_eq!(admitted(&mut c, "RL.GCRA k 10 10 3600000", 12), 0);
    // Nor after the key's first end.
    server.clock().advance_ms(61_001);
    assert_eq!(admitted(&mut c, "RL.GCRA k 10 10 3600000", 12), 0);
}

/// brandur/redis-cell#56: a retry exactly after retry_after is denied a second time.
#[test]
fn a_retry_after_exactly_the_wait_is_never_denied_again() {
    let server = single();
    let mut c = server.conn();
    for line in [
        "RL.GCRA k 1 1 1000",
        "RL.GCRA k 1 30 60000",
        "RL.GCRA k 16 3 1000",
        "RL.TOKENBUCKET k 16 7 1000",
        "RL.TOKENBUCKET k 1 7000 1000",
        "RL.GCRA k 11 13 17",
    ] {
        cmd!(c, "DEL", "k");
        let (mut admissions, mut denials) = (0, 0);
        while admissions < 50 {
            let verdict = c.cmd(&words(line));
            if verdict.items()[0] == int(1) {
                admissions += 1;
                server.clock().advance_us(137);
                continue;
            }
            denials += 1;
            server.clock().advance_ms(verdict.items()[3].as_int());
            assert_eq!(c.cmd(&words(line)).items()[0], int(1), "{line}");
            admissions += 1;
        }
        assert!(denials > 0, "{line}");
    }
}

/// redis/redis#15093: `1 10000 1` (one per 0.1 ms) in a hot loop leaves a key without a TTL, and
/// miscounts.
#[test]
fn a_tenth_of_a_millisecond_per_call_counts_right_and_keeps_its_ttl() {
    let server = single();
    let mut c = server.conn();
    let line = "RL.GCRA k 1 10000 1000";
    let mut count = 0;
    let steps = 1000;
    for _ in 0..steps {
        count += admitted(&mut c, line, 3);
        let ttl = cmd!(c, "PTTL", "k").as_int();
        assert!((1..=2 + SLACK_MS).contains(&ttl), "PTTL {ttl}");
        server.clock().advance_us(20);
    }
    // One at once, and then one whenever 100 µs have passed.
    assert_eq!(count, steps * 20 / 100);
    // With the clock running, as fast as it goes.
    server.clock().run();
    for _ in 0..50 {
        admitted(&mut c, line, 20);
        let replies = c.pipeline(&[words(line), args!["PTTL", "k"]]);
        let ttl = replies[1].as_int();
        assert!((1..=2 + SLACK_MS).contains(&ttl), "PTTL {ttl}");
    }
}

/// redis/redis#15113: a cost larger than the burst is denied with a reply that says that the bucket
/// is full.
#[test]
fn a_cost_larger_than_the_burst_is_an_error() {
    let server = recorder();
    let above = |cost: i64, limit: i64| {
        format!("ERR COST {cost} is above the limit of {limit}: it can never be admitted")
    };
    for (cost, limit) in [(6, 5), (1_000_000_000, 5), (2, 1)] {
        let policy = format!("{limit} 5 1000 COST {cost}");
        refuses(
            &server,
            &above(cost, limit),
            &[
                format!("RL.GCRA k {policy}"),
                format!("RL.TOKENBUCKET k {policy}"),
                format!("RL.PEEK k GCRA {policy}"),
            ],
        );
    }
    let mut c = server.conn();
    run(&mut c, &[("RL.GCRA k 5 5 1000 COST 5", [1, 5, 0, 0, 1000])]);
    refuses(&server, &above(6, 5), &["RL.GCRA k 5 5 1000 COST 6"]);
}

/// throttled/throttled#107: a look at an exhausted limiter says retry after −1.
#[test]
fn a_peek_at_an_exhausted_limiter_says_how_long_to_wait() {
    let server = recorder();
    let mut c = server.conn();
    assert_eq!(admitted(&mut c, "RL.GCRA k 5 5 1000", 5), 5);
    answers(
        &server,
        &[
            ("RL.PEEK k GCRA 5 5 1000", five([0, 5, 0, 200, 1000])),
            (
                "RL.PEEK k GCRA 5 5 1000 COST 5",
                five([0, 5, 0, 1000, 1000]),
            ),
        ],
    );
    server.clock().advance_ms(200);
    answers(
        &server,
        &[("RL.PEEK k GCRA 5 5 1000", five([1, 5, 1, 0, 800]))],
    );
}

/// alexnault/redis-shield: what refilled since the last call is rounded down and lost, so that
/// frequent callers get less than the rate.
#[test]
fn the_remainder_of_a_refill_is_never_lost() {
    let server = single();
    let mut c = server.conn();
    // Ten per second, called every 80 ms: the burst of ten, and ten in each of the eight seconds.
    for command in ["RL.TOKENBUCKET", "RL.GCRA"] {
        cmd!(c, "DEL", "k");
        let line = format!("{command} k 10 10 1000");
        let mut count = admitted(&mut c, &line, 1);
        for _ in 0..100 {
            server.clock().advance_ms(80);
            count += admitted(&mut c, &line, 1);
        }
        assert_eq!(count, 90, "{command}");
    }
}

/// go-limiter#41 and its like: the clock steps back an hour, and everyone is locked out for an hour
/// or gets a burst for nothing.
#[test]
fn a_clock_an_hour_back_neither_locks_out_nor_gives_away() {
    let server = single();
    let mut c = server.conn();
    for (command, line) in [
        ("GCRA", "RL.GCRA k 10 10 60000"),
        ("TOKENBUCKET", "RL.TOKENBUCKET k 10 10 60000"),
    ] {
        cmd!(c, "DEL", "k");
        assert_eq!(admitted(&mut c, line, 11), 10);
        server.clock().advance_ms(-HOUR_MS);
        let peek = format!("RL.PEEK k {command} 10 10 60000");
        run(
            &mut c,
            &[
                (&peek, [0, 10, 0, 6000, 60_000]),
                (line, [0, 10, 0, 6000, 60_000]),
            ],
        );
        server.clock().advance_ms(6000);
        assert_eq!(admitted(&mut c, line, 11), 1);
        server.clock().advance_ms(54_000);
        assert_eq!(admitted(&mut c, line, 11), 9);
        server.clock().advance_ms(60_000);
        assert_eq!(admitted(&mut c, line, 11), 10);
    }
}

/// envoyproxy/ratelimit#185 and its like: clients that call on while they are denied are never
/// admitted again.
#[test]
fn denied_calls_in_a_loop_do_not_push_the_debt() {
    let server = recorder();
    let mut c = server.conn();
    let line = "RL.GCRA k 2 2 10000";
    assert_eq!(admitted(&mut c, line, 2), 2);
    for _ in 0..49 {
        changes_nothing(&server, || assert_eq!(admitted(&mut c, line, 50), 0));
        server.clock().advance_ms(100);
    }
    assert_eq!(admitted(&mut c, line, 50), 0);
    server.clock().advance_ms(100);
    assert_eq!(admitted(&mut c, line, 50), 1);
}

/// redisson#5098 and its like: a limit raised from 100 to 200 on a live key is not honoured.
#[test]
fn a_raised_limit_is_honoured_from_the_next_call() {
    let server = single();
    let mut c = server.conn();
    for command in ["RL.GCRA", "RL.TOKENBUCKET"] {
        cmd!(c, "DEL", "k");
        assert_eq!(
            admitted(&mut c, &format!("{command} k 100 100 60000"), 150),
            100
        );
        assert_eq!(
            admitted(&mut c, &format!("{command} k 200 200 60000"), 150),
            100
        );
        server.clock().advance_ms(30_000);
        assert_eq!(
            admitted(&mut c, &format!("{command} k 200 200 60000"), 150),
            100
        );
    }
}

/// redis#8623: noeviction and over maxmemory, what only frees is refused.
#[test]
fn over_maxmemory_a_reset_works_plainly_and_in_scripts() {
    let server = single();
    let mut c = server.conn();
    for key in ["a", "b", "c", "d"] {
        cmd!(c, "RL.GCRA", key, 1, 1, 60_000);
    }
    let library = "#!lua name=sluice_tests
        redis.register_function{
            function_name = 'reset', flags = {'allow-oom'},
            callback = function(KEYS) return redis.call('RL.RESET', KEYS[1]) end
        }";
    cmd!(c, "FUNCTION", "LOAD", library);
    assert_eq!(cmd!(c, "CONFIG", "SET", "maxmemory", 1), ok());
    assert_eq!(cmd!(c, "RL.RESET", "a"), int(1));
    let reset = "return redis.call('RL.RESET', KEYS[1])";
    assert_eq!(c.eval(reset, &["b"], &[]), int(1));
    assert_eq!(cmd!(c, "FCALL", "reset", 1, "c"), int(1));
    let oom = err("OOM command not allowed when used memory > 'maxmemory'.");
    assert_eq!(cmd!(c, "RL.GCRA", "a", 1, 1, 60_000), oom);
    let charge = "return redis.pcall('RL.GCRA', KEYS[1], 1, 1, 60000)";
    assert_eq!(c.eval(charge, &["a"], &[]), oom);
    assert_eq!(cmd!(c, "KEYS", "*"), array([bulk("d")]));
}

/// spring-cloud-gateway#2453: `RL.TOKENBUCKET k 1 3 1000` and `RL.GCRA k 1 1000000000 1`, each
/// twice in one instant: the TTL comes out as 0, and the key is gone before the second.
#[test]
fn a_bucket_that_drains_in_no_time_still_denies_the_second() {
    let server = single();
    let mut c = server.conn();
    for (line, first, second) in [
        (
            "RL.TOKENBUCKET k 1 3 1000",
            [1, 1, 0, 0, 334],
            [0, 1, 0, 334, 334],
        ),
        ("RL.GCRA k 1 1000000000 1", [1, 1, 0, 0, 1], [0, 1, 0, 1, 1]),
    ] {
        // In the first and in the last µs of a millisecond, and between.
        for sub_ms in [0, 1, 457, 998, 999] {
            cmd!(c, "DEL", "k");
            let next_ms = (server.clock().now_ms() + 1) * 1000;
            server.clock().freeze_at(next_ms + sub_ms);
            run(&mut c, &[(line, first)]);
            assert!(cmd!(c, "PTTL", "k").as_int() >= 1, "{line}");
            run(&mut c, &[(line, second)]);
            assert!(cmd!(c, "PTTL", "k").as_int() >= 1, "{line}");
        }
    }
}

/// Losant/redis-gcra#3: `RL.GCRA k 6 6 60000` seven times at T; again at +5000, +9999, +10000.
#[test]
fn the_seventh_of_six_waits_ten_seconds_whatever_is_tried_meanwhile() {
    let server = single();
    let mut c = server.conn();
    let line = "RL.GCRA k 6 6 60000";
    assert_eq!(admitted(&mut c, line, 6), 6);
    run(&mut c, &[(line, [0, 6, 0, 10_000, 60_000])]);
    server.clock().advance_ms(5000);
    run(&mut c, &[(line, [0, 6, 0, 5000, 55_000])]);
    server.clock().advance_ms(4999);
    run(&mut c, &[(line, [0, 6, 0, 1, 50_001])]);
    server.clock().advance_ms(1);
    run(&mut c, &[(line, [1, 6, 0, 0, 60_000])]);
}

/// bucket4j#419: `RL.TOKENBUCKET k 5 5 60000` five times at T, then `… 10 10 60000` once at T; PEEK
/// with it at +30000 and +60000.
#[test]
fn a_larger_bucket_takes_over_the_tokens_that_are_owed() {
    let server = single();
    let mut c = server.conn();
    assert_eq!(admitted(&mut c, "RL.TOKENBUCKET k 5 5 60000", 5), 5);
    run(
        &mut c,
        &[("RL.TOKENBUCKET k 10 10 60000", [1, 10, 4, 0, 36_000])],
    );
    let peek = "RL.PEEK k TOKENBUCKET 10 10 60000";
    server.clock().advance_ms(30_000);
    run(&mut c, &[(peek, [1, 10, 9, 0, 6000])]);
    server.clock().advance_ms(30_000);
    run(&mut c, &[(peek, [1, 10, 10, 0, 0])]);
}
