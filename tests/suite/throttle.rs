//! CL.THROTTLE: what clients of redis-cell see.

use crate::limiter_support::*;
use crate::support::*;

/// What redis-cell 0.5.0 answers by its own unit table and in runs of it, times rounded up to whole
/// seconds as its command promises. Each block starts on a fresh key: block, ms since its first
/// call, the arguments max_burst, count, period and quantity, and the reply limited, limit,
/// remaining, retry_after and reset_after.
const ROWS: [(char, i64, [i64; 4], [i64; 5]); 19] = [
    ('A', 0, [5, 5, 3600, 1], [0, 6, 5, -1, 720]),
    ('B', 0, [5, 5, 3600, 0], [0, 6, 6, -1, 0]),
    ('C', 0, [5, 5, 3600, 6], [0, 6, 0, -1, 4320]),
    ('C', 0, [5, 5, 3600, 1], [1, 6, 0, 720, 4320]),
    ('C', 0, [5, 5, 3600, 0], [0, 6, 0, -1, 4320]),
    ('D', 0, [4, 1, 1, 1], [0, 5, 4, -1, 1]),
    ('D', 0, [4, 1, 1, 1], [0, 5, 3, -1, 2]),
    ('D', 0, [4, 1, 1, 1], [0, 5, 2, -1, 3]),
    ('D', 0, [4, 1, 1, 1], [0, 5, 1, -1, 4]),
    ('D', 0, [4, 1, 1, 1], [0, 5, 0, -1, 5]),
    ('D', 0, [4, 1, 1, 1], [1, 5, 0, 1, 5]),
    ('D', 3000, [4, 1, 1, 1], [0, 5, 2, -1, 3]),
    ('D', 3100, [4, 1, 1, 1], [0, 5, 1, -1, 4]),
    ('D', 4000, [4, 1, 1, 1], [0, 5, 1, -1, 4]),
    ('D', 8000, [4, 1, 1, 1], [0, 5, 4, -1, 1]),
    ('D', 9500, [4, 1, 1, 1], [0, 5, 4, -1, 1]),
    ('D', 9500, [4, 1, 1, 0], [0, 5, 4, -1, 1]),
    ('D', 9500, [4, 1, 1, 2], [0, 5, 2, -1, 3]),
    ('D', 9500, [4, 1, 1, 5], [1, 5, 2, 3, 3]),
];

#[test]
fn every_row_of_redis_cell_is_answered_as_it_does() {
    let server = single();
    let mut c = server.conn();
    let (mut block, mut start) = (' ', 0);
    for (n, (of, at_ms, [burst, count, period, quantity], reply)) in ROWS.into_iter().enumerate() {
        if of != block {
            block = of;
            start = server.clock().now_us();
        }
        server.clock().freeze_at(start + at_ms * 1000);
        let key = block.to_string();
        let found = cmd!(c, "CL.THROTTLE", &key, burst, count, period, quantity);
        assert_eq!(found, five(reply), "row {n}");
        // Whatever it did, the key has a TTL, or is none.
        let ttl = cmd!(c, "PTTL", &key).as_int();
        assert!(ttl > 0 || ttl == -2, "row {n}: PTTL {ttl}");
    }
}

#[test]
fn without_a_quantity_it_is_one() {
    let server = single();
    let mut c = server.conn();
    run(
        &mut c,
        &[
            ("CL.THROTTLE k 2 1 60", [0, 3, 2, -1, 60]),
            ("cl.throttle k 2 1 60 1", [0, 3, 1, -1, 120]),
            ("Cl.Throttle k 2 1 60", [0, 3, 0, -1, 180]),
            ("CL.THROTTLE k 2 1 60", [1, 3, 0, 60, 180]),
        ],
    );
}

#[test]
fn seconds_round_up_from_the_microsecond() {
    let server = single();
    let mut c = server.conn();
    assert_eq!(admitted_here(&mut c, "CL.THROTTLE k 1 1 60", 3), 2);
    for (step_us, retry, reset) in [
        (0, 60, 120),
        (1, 60, 120),
        (999_998, 60, 120),
        (1, 59, 119),
        (57_999_999, 2, 62),
        (1, 1, 61),
        (999_999, 1, 61),
    ] {
        server.clock().advance_us(step_us);
        run(&mut c, &[("CL.THROTTLE k 1 1 60", [1, 2, 0, retry, reset])]);
    }
    server.clock().advance_us(1);
    run(&mut c, &[("CL.THROTTLE k 1 1 60", [0, 2, 0, -1, 120])]);
}

/// How many of `times` calls were not limited.
fn admitted_here(c: &mut Conn, line: &str, times: usize) -> usize {
    let replies = c.pipeline(&vec![words(line); times]);
    replies.iter().filter(|r| r.items()[0] == int(0)).count()
}

#[test]
fn quantity_0_looks_and_changes_nothing() {
    let server = recorder();
    let mut c = server.conn();
    answers(
        &server,
        &[("CL.THROTTLE k 2 1 60 0", five([0, 3, 3, -1, 0]))],
    );
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
    cmd!(c, "CL.THROTTLE", "k", 2, 1, 60, 3);
    answers(
        &server,
        &[
            // Also when nothing is left: not limited, as in redis-cell.
            ("CL.THROTTLE k 2 1 60 0", five([0, 3, 0, -1, 180])),
            ("CL.THROTTLE k 2 1 3600 0", five([0, 3, 0, -1, 10_800])),
        ],
    );
    // Nor in an overdraft, which redis-cell does not know.
    cmd!(c, "RL.CHARGE", "k", "GCRA", 3, 1, 60_000, "COST", 2);
    answers(
        &server,
        &[
            ("CL.THROTTLE k 2 1 60 0", five([0, 3, 0, -1, 300])),
            ("CL.THROTTLE k 2 1 60", five([1, 3, 0, 180, 300])),
        ],
    );
}

#[test]
fn a_quantity_above_the_limit_is_limited_without_a_retry() {
    let server = recorder();
    let mut c = server.conn();
    answers(
        &server,
        &[
            ("CL.THROTTLE k 2 1 60 4", five([1, 3, 3, -1, 0])),
            ("CL.THROTTLE k 2 1 60 1000000000", five([1, 3, 3, -1, 0])),
            ("CL.THROTTLE k 0 1 60 2", five([1, 1, 1, -1, 0])),
        ],
    );
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
    cmd!(c, "CL.THROTTLE", "k", 2, 1, 60, 2);
    answers(
        &server,
        &[
            ("CL.THROTTLE k 2 1 60 4", five([1, 3, 1, -1, 120])),
            // At the limit it has to wait.
            ("CL.THROTTLE k 2 1 60 3", five([1, 3, 1, 120, 120])),
        ],
    );
}

#[test]
fn a_call_that_is_an_error_is_counted_nowhere() {
    let server = own(Options::new());
    let mut c = server.conn();
    cmd!(c, "RL.FIXEDWINDOW", "k", 5, 60_000);
    let other = err("ERR key holds a FIXEDWINDOW limiter, not bucket");
    for quantity in [-1, 0, 1, 6] {
        assert_eq!(cmd!(c, "CL.THROTTLE", "k", 4, 1, 60, quantity), other);
    }
    for what in ["allowed", "denied", "peeked", "charged", "refunded"] {
        assert_eq!(counter(&server, &format!("rl_gcra_{what}")), 0, "{what}");
    }
}

#[test]
fn a_negative_quantity_gives_back() {
    let server = recorder();
    let mut c = server.conn();
    // A fresh key stays none: redis-cell leaves one without a TTL.
    answers(
        &server,
        &[
            ("CL.THROTTLE k 2 1 60 -1", five([0, 3, 3, -1, 0])),
            ("CL.THROTTLE k 2 1 60 -1000000000", five([0, 3, 3, -1, 0])),
        ],
    );
    run(
        &mut c,
        &[
            ("CL.THROTTLE k 2 1 60 3", [0, 3, 0, -1, 180]),
            ("CL.THROTTLE k 2 1 60 -1", [0, 3, 1, -1, 120]),
            ("CL.THROTTLE k 2 1 60 2", [1, 3, 1, 60, 120]),
        ],
    );
    assert!(cmd!(c, "PTTL", "k").as_int() > 0);
    run(&mut c, &[("CL.THROTTLE k 2 1 60 -5", [0, 3, 3, -1, 0])]);
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
}

#[test]
fn it_is_the_bucket_of_the_other_commands() {
    let server = single();
    let mut c = server.conn();
    run(
        &mut c,
        &[
            ("CL.THROTTLE k 4 10 60", [0, 5, 4, -1, 6]),
            ("RL.GCRA k 5 10 60000", [1, 5, 3, 0, 12_000]),
            ("CL.THROTTLE k 4 10 60", [0, 5, 2, -1, 18]),
            ("RL.LEAKYBUCKET k 5 10 60000", [1, 5, 1, 18_000, 24_000]),
            ("RL.PEEK k TOKENBUCKET 5 10 60000", [1, 5, 1, 0, 24_000]),
            ("CL.THROTTLE k 4 10 60", [0, 5, 0, -1, 30]),
            ("RL.GCRA k 5 10 60000", [0, 5, 0, 6000, 30_000]),
            ("CL.THROTTLE k 4 10 60", [1, 5, 0, 6, 30]),
            (
                "RL.CHARGE k GCRA 5 10 60000 COST 5",
                [0, 5, 0, 30_000, 60_000],
            ),
            ("CL.THROTTLE k 4 10 60", [1, 5, 0, 36, 60]),
        ],
    );
    cmd!(c, "DEL", "k");
    cmd!(c, "RL.GCRA", "one", 5, 10, 60_000);
    cmd!(c, "CL.THROTTLE", "other", 4, 10, 60);
    assert_eq!(digest_of(&mut c, "one"), digest_of(&mut c, "other"));
    assert_eq!(
        cmd!(c, "PEXPIRETIME", "one"),
        cmd!(c, "PEXPIRETIME", "other")
    );
}

#[test]
fn while_blocked_it_is_limited_for_as_long() {
    let server = recorder();
    let mut c = server.conn();
    assert_eq!(cmd!(c, "RL.BLOCK", "k", 4500), int(4500));
    answers(
        &server,
        &[
            ("CL.THROTTLE k 4 10 60", five([1, 5, 0, 5, 5])),
            // Also what only looks, or gives back.
            ("CL.THROTTLE k 4 10 60 0", five([1, 5, 0, 5, 5])),
            ("CL.THROTTLE k 4 10 60 -1", five([1, 5, 0, 5, 5])),
            ("CL.THROTTLE k 4 10 60 6", five([1, 5, 0, -1, 5])),
        ],
    );
    server.clock().advance_us(4_499_999);
    answers(&server, &[("CL.THROTTLE k 4 10 60", five([1, 5, 0, 1, 1]))]);
    server.clock().advance_us(1);
    run(&mut c, &[("CL.THROTTLE k 4 10 60", [0, 5, 4, -1, 6])]);
}

// --- what redis-cell gets wrong ---

#[test]
fn numbers_out_of_their_ranges_are_errors() {
    let server = recorder();
    cmd!(server.conn(), "CL.THROTTLE", "k", 4, 10, 60);
    let lines = |at: usize, texts: &[String]| -> Vec<String> {
        let with = |text: &String| {
            let mut numbers = ["4", "10", "60", "1"];
            numbers[at] = text;
            format!("CL.THROTTLE k {}", numbers.join(" "))
        };
        texts.iter().map(with).collect()
    };
    // A burst may be none: the limit is one more.
    let mut bursts = no_integers_up_to(MAX_TOKENS as u64 - 1);
    bursts.retain(|text| text != "0");
    let error = "ERR max_burst must be an integer between 0 and 999999999";
    refuses(&server, error, &lines(0, &bursts));
    let error = "ERR count must be an integer between 1 and 1000000000";
    refuses(
        &server,
        error,
        &lines(1, &no_integers_up_to(MAX_TOKENS as u64)),
    );
    let error = "ERR period must be an integer between 1 and 31536000";
    refuses(&server, error, &lines(2, &no_integers_up_to(31_536_000)));
    let mut quantities = no_integers_up_to(MAX_TOKENS as u64);
    quantities.retain(|text| !matches!(&text[..], "0" | "-1"));
    quantities.extend(["-1000000001", "-01", "--1", "-", "- 1", "-1.0", "-1x"].map(String::from));
    let error = "ERR quantity must be an integer between -1000000000 and 1000000000";
    quantities.retain(|text| text != "- 1");
    refuses(&server, error, &lines(3, &quantities));
}

/// brandur/redis-cell: these overflow there, or deny a fresh key.
#[test]
fn extreme_rates_are_exact_or_a_range_error() {
    let server = recorder();
    let mut c = server.conn();
    refuses(
        &server,
        "ERR count must be an integer between 1 and 1000000000",
        &["CL.THROTTLE k 10 3000000000 1"],
    );
    refuses(
        &server,
        "ERR period must be an integer between 1 and 31536000",
        &["CL.THROTTLE k 1 1 9223372036854775807"],
    );
    refuses(
        &server,
        "ERR a full bucket must drain within 100 years: check the policy",
        &[
            "CL.THROTTLE k 200000000 1 86400",
            "CL.THROTTLE k 200000000 1 86400 0",
            "CL.THROTTLE k 200000000 1 86400 -1",
            "CL.THROTTLE k 100 1 31536000",
        ],
    );
    let year = 31_536_000;
    for (line, first) in [
        ("CL.THROTTLE k 1 2000000 1", [0, 2, 1, -1, 1]),
        ("CL.THROTTLE k 0 1 1", [0, 1, 0, -1, 1]),
        ("CL.THROTTLE k 0 1000000000 1", [0, 1, 0, -1, 1]),
        (
            "CL.THROTTLE k 99 1 31536000 100",
            [0, 100, 0, -1, 100 * year],
        ),
        (
            "CL.THROTTLE k 999999999 1000000000 31536000 1000000000",
            [0, MAX_TOKENS, 0, -1, year],
        ),
    ] {
        cmd!(c, "DEL", "k");
        run(&mut c, &[(line, first)]);
        assert!(cmd!(c, "PTTL", "k").as_int() > 0, "{line}");
    }
}

/// brandur/redis-cell#56.
#[test]
fn a_retry_after_the_seconds_told_is_not_limited() {
    let server = single();
    let mut c = server.conn();
    for line in [
        "CL.THROTTLE k 0 1 1",
        "CL.THROTTLE k 4 30 60",
        "CL.THROTTLE k 15 7 60 3",
    ] {
        cmd!(c, "DEL", "k");
        let mut denials = 0;
        for _ in 0..60 {
            let reply = c.cmd(&words(line));
            if reply.items()[0] == int(1) {
                denials += 1;
                server.clock().advance_ms(1000 * reply.items()[3].as_int());
                assert_eq!(c.cmd(&words(line)).items()[0], int(0), "{line}");
            }
            server.clock().advance_us(137_001);
        }
        assert!(denials > 10, "{line}: {denials}");
    }
}

#[test]
fn foreign_values_are_the_wrong_type_and_binary_keys_work() {
    let server = recorder();
    let mut c = server.conn();
    let foreign = make_foreign_keys(&mut c);
    cmd!(c, "SET", "foo", "foo");
    cmd!(c, "SET", "empty", "");
    cmd!(c, "SET", "negative", "-5");
    cmd!(c, "LOCK.ACQUIRE", "lock", "me", HOUR_MS);
    for key in foreign
        .into_iter()
        .chain(["foo", "empty", "negative", "lock"])
    {
        let with = |quantity: i64| format!("CL.THROTTLE {key} 4 10 60 {quantity}");
        refuses(&server, WRONG_TYPE, &[1, 0, -1, 9].map(with));
    }
    for key in [&b"k\xff"[..], b"", b"\0", &[b'x'; 5000]] {
        assert_eq!(
            cmd!(c, "CL.THROTTLE", key, 0, 1, 60),
            five([0, 1, 0, -1, 60])
        );
        assert_eq!(
            cmd!(c, "CL.THROTTLE", key, 0, 1, 60),
            five([1, 1, 0, 60, 60])
        );
        assert!(cmd!(c, "PTTL", key).as_int() > 0);
    }
}

#[test]
fn too_few_and_too_many_words_are_errors() {
    let server = recorder();
    cmd!(server.conn(), "CL.THROTTLE", "k", 4, 10, 60);
    refuses(
        &server,
        &wrong_arity("cl.throttle"),
        &[
            "CL.THROTTLE",
            "CL.THROTTLE k",
            "CL.THROTTLE k 4",
            "CL.THROTTLE k 4 10",
        ],
    );
    refuses(
        &server,
        SYNTAX,
        &[
            "CL.THROTTLE k 4 10 60 1 1",
            "CL.THROTTLE k 4 10 60 1 COST 1",
        ],
    );
}

#[test]
fn denials_abort_no_watch_and_write_nothing() {
    let server = recorder();
    let mut c = server.conn();
    cmd!(c, "CL.THROTTLE", "k", 0, 1, 60);
    answers(
        &server,
        &[
            ("CL.THROTTLE k 0 1 60", five([1, 1, 0, 60, 60])),
            ("CL.THROTTLE k 0 1 60 1", five([1, 1, 0, 60, 60])),
        ],
    );
    let now = server.clock().now_us();
    let effects: Vec<_> = server
        .aof_commands()
        .into_iter()
        .filter(|command| command[0] == EFFECT.as_bytes())
        .collect();
    // As GCRA with a limit one above the burst, and the period in ms.
    assert_eq!(
        effects,
        [Bucket::owing(1, now, (1, 1, 60_000)).effect_on("k", now)]
    );
}

// --- the name ---

/// A module that came first has the name. Here it is a command of the server's own, renamed.
#[test]
fn a_name_that_is_taken_is_left_out_and_the_rest_loads() {
    let server = Options::new()
        .config("rename-command", "LOLWUT cl.throttle")
        .start();
    server.clock().freeze_at(T_US);
    let mut c = server.conn();
    let line = "<sluice> cl.throttle cannot be registered: is the name taken by another module?";
    assert_eq!(server.log().matches(line).count(), 1);
    assert_eq!(server.log().matches("cannot be registered").count(), 1);
    // Theirs answers.
    let theirs = cmd!(c, "CL.THROTTLE", "VERSION", 1).as_text();
    assert!(theirs.contains("ver."), "{theirs}");
    let list = cmd!(c, "COMMAND", "LIST", "FILTERBY", "MODULE", "sluice");
    assert!(!list.items().contains(&bulk("cl.throttle")));
    for name in ["lock.acquire", "rl.gcra", "rl.all", "rl.block", "rl.info"] {
        assert!(list.items().contains(&bulk(name)), "{name}");
    }
    run(
        &mut c,
        &[
            ("RL.GCRA k 5 10 60000", [1, 5, 4, 0, 6000]),
            ("RL.PEEK k GCRA 5 10 60000", [1, 5, 4, 0, 6000]),
        ],
    );
    assert!(cmd!(c, "LOCK.ACQUIRE", "lock", "me", 1000).as_int() > 0);
}
