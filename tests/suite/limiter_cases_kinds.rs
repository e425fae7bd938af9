//! The faults of `limiter_cases`, and those that only windows can have, in every algorithm.
//!
//! One test per report; each names its source.

use crate::limiter_support::*;
use crate::support::*;

/// A policy of each algorithm with ten a minute.
const POLICIES: [&str; 7] = [
    "GCRA 10 10 60000",
    "TOKENBUCKET 10 10 60000",
    "LEAKYBUCKET 10 10 60000",
    "FIXEDWINDOW 10 60000",
    "FIXEDWINDOW 10 60000 ALIGN 0",
    "SLIDINGWINDOW 10 60000",
    "SLIDINGLOG 10 60000",
];

fn call(policy: &str) -> String {
    let (algorithm, numbers) = policy.split_once(' ').expect("numbers");
    format!("RL.{algorithm} k {numbers}")
}

fn peek(policy: &str) -> String {
    format!("RL.PEEK k {policy}")
}

/// brandur/redis-cell: quantity −1 on a fresh key, and a cost above the limit, leave a key without
/// a TTL behind.
#[test]
fn nothing_ever_leaves_a_key_without_a_ttl() {
    let server = single();
    let mut c = server.conn();
    let mut random = Random(83);
    let mut keys = 0;
    for n in 0..1500 {
        if n % 20 == 0 {
            cmd!(c, "DEL", "k");
        }
        let policy = random.one_of(&POLICIES);
        let cost = *random.one_of(&["", " COST 1", " COST 10", " COST 11", " COST -1", " COST 0"]);
        let line = match random.below(8) {
            0 => format!("RL.CHARGE k {policy}{cost}"),
            1 => format!("RL.REFUND k {policy}{cost}"),
            2 => format!("RL.ALL 1 k {policy}{cost}"),
            3 => format!("CL.THROTTLE k 9 10 60 {}", random.below(25) as i64 - 12),
            4 => format!("RL.BLOCK k {}", random.below(3000)),
            _ => format!("{}{cost}", call(policy)),
        };
        c.cmd(&words(&line));
        let ttl = cmd!(c, "PTTL", "k").as_int();
        assert!(
            ttl == -2 || (1..=HOUR_MS).contains(&ttl),
            "{line}: PTTL {ttl}"
        );
        keys += i32::from(ttl != -2);
        server.clock().advance_us(random.below(5_000_000) as i64);
    }
    assert!(keys > 500, "{keys}");
}

/// brandur/redis-cell: extreme numbers deny a fresh key.
#[test]
fn no_fresh_key_is_denied_what_fits_into_the_limit() {
    let server = single();
    let mut c = server.conn();
    let mut random = Random(4096);
    for n in 0..400 {
        let mut digits = |most: u64| {
            let bound = 10u64.pow(1 + random.below(11) as u32).min(most);
            1 + random.below(bound)
        };
        let (limit, window_ms) = (digits(1_000_000_000), digits(31_536_000_000));
        let offset = digits(31_536_000_000);
        for (algorithm, limit, options) in [
            ("FIXEDWINDOW", limit, String::new()),
            ("FIXEDWINDOW", limit, format!(" ALIGN {offset}")),
            ("SLIDINGWINDOW", limit, String::new()),
            ("SLIDINGLOG", limit.min(100_000), String::new()),
        ] {
            let cost = 1 + offset % limit;
            let line = format!("RL.{algorithm} k {limit} {window_ms}{options} COST {cost}");
            cmd!(c, "DEL", "k");
            let reply = c.cmd(&words(&line));
            let found: Vec<_> = reply.items().iter().map(Reply::as_int).collect();
            let [limit, cost, window_ms] = [limit, cost, window_ms].map(|n| n as i64);
            assert_eq!(found[..4], [1, limit, limit - cost, 0], "{n}: {line}");
            let reset = match algorithm {
                "SLIDINGWINDOW" => 2 * window_ms,
                _ => window_ms,
            };
            match options.is_empty() {
                true => assert_eq!(found[4], reset, "{n}: {line}"),
                false => assert!((1..=reset).contains(&found[4]), "{n}: {line}"),
            }
        }
    }
}

/// brandur/redis-cell: exhaust `9 10 60`, then call with `9 10 3600`, and nine more are admitted.
#[test]
fn a_slower_policy_on_a_used_key_is_no_free_quota() {
    let server = single();
    let mut c = server.conn();
    for policy in POLICIES {
        cmd!(c, "DEL", "k");
        // In the middle of an aligned window.
        let minute = server.clock().now_us() / 60_000_000 + 1;
        server.clock().freeze_at(minute * 60_000_000 + 30_000_000);
        assert_eq!(admitted(&mut c, &call(policy), 12), 10, "{policy}");
        let slower = call(&policy.replace("60000", "3600000"));
        assert_eq!(admitted(&mut c, &slower, 12), 0, "{policy}");
        // Nor after the key's first end, unless an aligned hour is over then.
        server.clock().advance_ms(61_001);
        if !policy.contains("ALIGN") {
            assert_eq!(admitted(&mut c, &slower, 12), 0, "{policy}");
        }
    }
    cmd!(c, "DEL", "k");
    let replies = c.pipeline(&vec![words("CL.THROTTLE k 9 10 60"); 11]);
    assert_eq!(replies[10], five([1, 10, 0, 6, 60]));
    run(
        &mut c,
        &[("CL.THROTTLE k 9 10 3600", [1, 10, 0, 360, 3600])],
    );
}

/// brandur/redis-cell#56: a retry exactly after retry_after is denied a second time.
#[test]
fn a_retry_after_exactly_the_wait_is_never_denied_again() {
    let server = single();
    let mut c = server.conn();
    for policy in POLICIES {
        cmd!(c, "DEL", "k");
        let mut denials = 0;
        for _ in 0..80 {
            let line = format!("RL.ALL 1 k {policy} COST 3");
            let reply = c.cmd(&words(&line));
            if reply.items()[0] == int(0) {
                denials += 1;
                let wait_ms = reply.items()[2].items()[3].as_int();
                server.clock().advance_ms(wait_ms);
                let again = c.cmd(&words(&format!("{} COST 3", call(policy))));
                assert_eq!(again.items()[0], int(1), "{policy}");
            }
            server.clock().advance_us(2_137_001);
        }
        assert!(denials > 10, "{policy}: {denials}");
    }
}

/// redis/redis#15093: a tiny interval in a hot loop leaves a key without a TTL, and miscounts.
#[test]
fn tiny_windows_in_a_hot_loop_count_right_and_keep_their_ttl() {
    let server = single();
    let mut c = server.conn();
    for (policy, expected, ms) in [
        ("LEAKYBUCKET 1 10000 1000", 200, 1),
        ("FIXEDWINDOW 1 1", 20, 1),
        ("FIXEDWINDOW 1 1 ALIGN 0", 20, 1),
        ("SLIDINGLOG 1 1", 20, 1),
        // The one of the window before weighs until that window is out of reach.
        ("SLIDINGWINDOW 1 1", 10, 2),
    ] {
        cmd!(c, "DEL", "k");
        // At the start of a millisecond.
        server
            .clock()
            .freeze_at((server.clock().now_ms() + 1) * 1000);
        let mut count = 0;
        for _ in 0..1000 {
            count += admitted(&mut c, &call(policy), 3);
            let ttl = cmd!(c, "PTTL", "k").as_int();
            assert!(
                (1..=ms + 1 + SLACK_MS).contains(&ttl),
                "{policy}: PTTL {ttl}"
            );
            server.clock().advance_us(20);
        }
        assert_eq!(count, expected, "{policy}");
        // With the clock running, as fast as it goes.
        server.clock().run();
        for _ in 0..30 {
            // So that the TTL is a fresh one, far from its end on a busy machine too.
            cmd!(c, "DEL", "k");
            admitted(&mut c, &call(policy), 20);
            let replies = c.pipeline(&[words(&call(policy)), args!["PTTL", "k"]]);
            let ttl = replies[1].as_int();
            assert!(
                (1..=ms + 1 + SLACK_MS).contains(&ttl),
                "{policy}: PTTL {ttl}"
            );
        }
        server.clock().freeze();
    }
}

/// redis/redis#15113: a cost larger than the burst is denied with a reply that says that the bucket
/// is full.
#[test]
fn a_cost_larger_than_the_limit_is_an_error() {
    let server = recorder();
    let error = "ERR COST 11 is above the limit of 10: it can never be admitted";
    for policy in POLICIES {
        let cost = [call(policy), peek(policy), format!("RL.ALL 1 k {policy}")];
        refuses(&server, error, &cost.map(|line| format!("{line} COST 11")));
    }
    // redis-cell's has a reply for it.
    let limited = five([1, 10, 10, -1, 0]);
    answers(&server, &[("CL.THROTTLE k 9 10 60 11", limited)]);
}

/// throttled/throttled#107: a look at an exhausted limiter says retry after −1.
#[test]
fn a_peek_at_an_exhausted_limiter_says_how_long_to_wait() {
    let server = recorder();
    let mut c = server.conn();
    for policy in POLICIES {
        cmd!(c, "DEL", "k");
        server
            .clock()
            .freeze_at((server.clock().now_us() / 60_000_000 + 1) * 60_000_000);
        assert_eq!(admitted(&mut c, &call(policy), 10), 10);
        let [wait, reset] = match policy.split(' ').next().expect("a name") {
            // The next one fits when a tenth of this window is out of reach of the next.
            "SLIDINGWINDOW" => [66_000, 120_000],
            "FIXEDWINDOW" | "SLIDINGLOG" => [60_000, 60_000],
            _ => [6000, 60_000],
        };
        answers(&server, &[(&peek(policy), five([0, 10, 0, wait, reset]))]);
    }
    cmd!(c, "DEL", "k");
    cmd!(c, "CL.THROTTLE", "k", 9, 10, 60, 10);
    let look = five([0, 10, 0, -1, 60]);
    answers(&server, &[("CL.THROTTLE k 9 10 60 0", look)]);
}

/// alexnault/redis-shield: what refilled since the last call is rounded down and lost, so that
/// frequent callers get less than the rate.
#[test]
fn the_remainder_of_a_refill_is_never_lost() {
    let server = single();
    let mut c = server.conn();
    for (line, expected) in [
        ("RL.LEAKYBUCKET k 10 10 1000", 90),
        ("RL.ALL 1 k TOKENBUCKET 10 10 1000", 90),
        // Calls come every 80 ms, so that ten of them leave every 1040 ms.
        ("RL.SLIDINGLOG k 10 1000", 80),
        ("RL.FIXEDWINDOW k 10 1000", 80),
    ] {
        cmd!(c, "DEL", "k");
        let mut count = admitted(&mut c, line, 1);
        for _ in 0..100 {
            server.clock().advance_ms(80);
            count += admitted(&mut c, line, 1);
        }
        assert_eq!(count, expected, "{line}");
    }
}

/// rate-limit-redis#83: a hit in the last millisecond of a window extends it, or leaves a counter
/// without a TTL.
#[test]
fn a_hit_in_a_windows_last_millisecond_neither_extends_it_nor_stays() {
    let server = single();
    let mut c = server.conn();
    for policy in ["FIXEDWINDOW 10 1000", "FIXEDWINDOW 10 1000 ALIGN 0"] {
        for late_us in [998_999, 999_000, 999_001, 999_457, 999_998, 999_999] {
            cmd!(c, "DEL", "k");
            let start = (server.clock().now_us() / 1_000_000 + 1) * 1_000_000;
            server.clock().freeze_at(start);
            run(&mut c, &[(&call(policy), [1, 10, 9, 0, 1000])]);
            let end = cmd!(c, "PEXPIRETIME", "k");
            server.clock().freeze_at(start + late_us);
            let left_ms = (1_000_000 - late_us + 999) / 1000;
            run(&mut c, &[(&call(policy), [1, 10, 8, 0, left_ms])]);
            assert_eq!(cmd!(c, "PEXPIRETIME", "k"), end, "{policy} at {late_us}");
            server.clock().freeze_at(start + 1_000_000);
            run(&mut c, &[(&peek(policy), [1, 10, 10, 0, 0])]);
            run(&mut c, &[(&call(policy), [1, 10, 9, 0, 1000])]);
            assert!(cmd!(c, "PTTL", "k").as_int() >= 1000);
        }
    }
}

/// go-limiter#41 and its like: the clock steps back an hour, and everyone is locked out for an hour
/// or gets a burst for nothing.
#[test]
fn a_clock_an_hour_back_neither_locks_out_nor_gives_away() {
    let chain = chain();
    let mut c = chain.primary.conn();
    for policy in POLICIES {
        cmd!(c, "DEL", "k");
        let hour = chain.clock().now_us() / 3_600_000_000 + 1;
        chain.clock().freeze_at(hour * 3_600_000_000);
        assert_eq!(admitted(&mut c, &call(policy), 11), 10);
        chain.clock().advance_ms(-HOUR_MS);
        let [wait, reset] = match policy.split(' ').next().expect("a name") {
            "SLIDINGWINDOW" => [66_000, 120_000],
            "FIXEDWINDOW" | "SLIDINGLOG" => [60_000, 60_000],
            _ => [6000, 60_000],
        };
        let denied = [0, 10, 0, wait, reset];
        run(&mut c, &[(&peek(policy), denied), (&call(policy), denied)]);
        assert_same(&chain);
        chain.clock().advance_us(wait * 1000 - 1);
        assert_eq!(admitted(&mut c, &call(policy), 11), 0, "{policy}");
        chain.clock().advance_us(1);
        // A whole window's, or what came back so far.
        let is_whole = policy.starts_with("FIXEDWINDOW") || policy.starts_with("SLIDINGLOG");
        let back = if is_whole { 10 } else { 1 };
        assert_eq!(admitted(&mut c, &call(policy), 11), back, "{policy}");
        chain.clock().advance_ms(120_000);
        assert_eq!(admitted(&mut c, &call(policy), 11), 10, "{policy}");
    }
}

/// envoyproxy/ratelimit#185 and its like: clients that call on while they are denied are never
/// admitted again.
#[test]
fn denied_calls_in_a_loop_do_not_push_anything() {
    let server = recorder();
    let mut c = server.conn();
    for policy in POLICIES {
        cmd!(c, "DEL", "k");
        let minute = server.clock().now_us() / 60_000_000 + 1;
        server.clock().freeze_at(minute * 60_000_000);
        assert_eq!(admitted(&mut c, &call(policy), 10), 10);
        let wait_ms = c.cmd(&words(&call(policy))).items()[3].as_int();
        for _ in 0..20 {
            changes_nothing(&server, || {
                assert_eq!(admitted(&mut c, &call(policy), 20), 0, "{policy}");
            });
            server.clock().advance_ms(wait_ms / 20);
        }
        assert!(admitted(&mut c, &call(policy), 1) == 1, "{policy}");
    }
}

/// redisson#5098 and its like: a limit raised from 100 to 200 on a live key is not honoured.
#[test]
fn a_raised_limit_is_honoured_from_the_next_call() {
    let server = single();
    let mut c = server.conn();
    for policy in [
        "LEAKYBUCKET 100 100 60000",
        "FIXEDWINDOW 100 60000",
        "SLIDINGWINDOW 100 60000",
        "SLIDINGLOG 100 60000",
    ] {
        cmd!(c, "DEL", "k");
        assert_eq!(admitted(&mut c, &call(policy), 150), 100, "{policy}");
        let raised = policy.replace("100", "200");
        assert_eq!(admitted(&mut c, &call(&raised), 150), 100, "{policy}");
        assert_eq!(admitted(&mut c, &call(policy), 1), 0, "{policy}");
    }
}

/// spring-cloud-gateway#2453: `RL.FIXEDWINDOW k 1 1` and its like twice in one instant: the TTL
/// comes out as 0, and the key is gone before the second.
#[test]
fn a_window_of_a_millisecond_still_denies_the_second() {
    let server = single();
    let mut c = server.conn();
    for (policy, first, second) in [
        ("FIXEDWINDOW 1 1", [1, 1, 0, 0, 1], [0, 1, 0, 1, 1]),
        ("FIXEDWINDOW 1 1 ALIGN 0", [1, 1, 0, 0, 1], [0, 1, 0, 1, 1]),
        ("SLIDINGWINDOW 1 1", [1, 1, 0, 0, 2], [0, 1, 0, 2, 2]),
        ("SLIDINGLOG 1 1", [1, 1, 0, 0, 1], [0, 1, 0, 1, 1]),
        (
            "LEAKYBUCKET 1 3 1000",
            [1, 1, 0, 0, 334],
            [0, 1, 0, 334, 334],
        ),
        (
            "LEAKYBUCKET 1 1000000000 1",
            [1, 1, 0, 0, 1],
            [0, 1, 0, 1, 1],
        ),
    ] {
        // In the first and in the last µs of a millisecond, and between.
        for sub_ms in [0, 1, 457, 998, 999] {
            cmd!(c, "DEL", "k");
            let next_ms = (server.clock().now_ms() + 1) * 1000;
            server.clock().freeze_at(next_ms + sub_ms);
            run(&mut c, &[(&call(policy), first)]);
            assert!(cmd!(c, "PTTL", "k").as_int() >= 1, "{policy}");
            run(&mut c, &[(&call(policy), second)]);
            assert!(cmd!(c, "PTTL", "k").as_int() >= 1, "{policy}");
        }
    }
}

/// Losant/redis-gcra#3: `6 6 60000` seven times at T; again at +5000, +9999, +10000.
#[test]
fn the_seventh_of_six_waits_ten_seconds_whatever_is_tried_meanwhile() {
    let server = single();
    let mut c = server.conn();
    let throttle = "CL.THROTTLE t 5 6 60";
    let lines = ["RL.TOKENBUCKET b 6 6 60000", "RL.LEAKYBUCKET q 6 6 60000"];
    for line in lines {
        assert_eq!(admitted(&mut c, line, 6), 6);
    }
    assert_eq!(c.pipeline(&vec![words(throttle); 6])[5].items()[0], int(0));
    for (step_ms, wait, reset) in [(0, 10_000, 60_000), (5000, 5000, 55_000), (4999, 1, 50_001)] {
        server.clock().advance_ms(step_ms);
        for line in lines {
            run(&mut c, &[(line, [0, 6, 0, wait, reset])]);
        }
        let seconds = |ms: i64| (ms + 999) / 1000;
        run(
            &mut c,
            &[(throttle, [1, 6, 0, seconds(wait), seconds(reset)])],
        );
    }
    server.clock().advance_ms(1);
    run(
        &mut c,
        &[
            (lines[0], [1, 6, 0, 0, 60_000]),
            (lines[1], [1, 6, 0, 50_000, 60_000]),
            (throttle, [0, 6, 0, -1, 60]),
        ],
    );
}

/// nestjs/throttler#2208: `RL.FIXEDWINDOW k 10 10000` at +0 … +9000; again at +9500;
/// `RL.BLOCK k 5000` at +9600, denied calls meanwhile.
#[test]
fn a_block_ends_when_it_should_whatever_is_tried_meanwhile() {
    let server = single();
    let mut c = server.conn();
    let start = server.clock().now_us();
    let at = |us: i64| server.clock().freeze_at(start + us);
    let line = "RL.FIXEDWINDOW k 10 10000";
    for n in 0..10 {
        at(n * 1_000_000);
        run(&mut c, &[(line, [1, 10, 9 - n, 0, 10_000 - 1000 * n])]);
    }
    at(9_500_000);
    run(&mut c, &[(line, [0, 10, 0, 500, 500])]);
    at(9_600_000);
    assert_eq!(cmd!(c, "RL.BLOCK", "k", 5000), int(5000));
    for tenths in 0..50 {
        at(9_600_000 + tenths * 100_000);
        let left = 5000 - tenths * 100;
        run(&mut c, &[(line, [0, 10, 0, left, left])]);
    }
    at(14_599_999);
    run(&mut c, &[(line, [0, 10, 0, 1, 1])]);
    at(14_600_000);
    run(&mut c, &[(line, [1, 10, 9, 0, 10_000])]);
}

/// bucket4j#419: five times `5 5 60000` at T, then `10 10 60000` once at T; PEEK with it at +30000
/// and +60000.
#[test]
fn a_larger_bucket_takes_over_the_tokens_that_are_owed() {
    let server = single();
    let mut c = server.conn();
    assert_eq!(admitted(&mut c, "RL.LEAKYBUCKET k 5 5 60000", 5), 5);
    run(
        &mut c,
        &[("RL.LEAKYBUCKET k 10 10 60000", [1, 10, 4, 30_000, 36_000])],
    );
    server.clock().advance_ms(30_000);
    run(
        &mut c,
        &[("RL.PEEK k LEAKYBUCKET 10 10 60000", [1, 10, 9, 6000, 6000])],
    );
    server.clock().advance_ms(30_000);
    run(
        &mut c,
        &[("RL.PEEK k LEAKYBUCKET 10 10 60000", [1, 10, 10, 0, 0])],
    );
}
