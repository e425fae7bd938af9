//! RL.GCRA, RL.TOKENBUCKET, RL.PEEK, RL.RESET and RL.INFO: what they answer, what they refuse,
//! and what they leave alone.

use crate::limiter_support::*;
use crate::support::*;

const TOKENS: &str = "must be an integer between 1 and 1000000000";
const PERIOD: &str = "must be an integer between 1 and 31536000000";
const DRAIN: &str = "ERR a full bucket must drain within 100 years: check the policy";

/// The buckets' commands, and what they call their numbers.
const LIMITERS: [(&str, [&str; 3]); 3] = [
    ("RL.GCRA", ["burst", "count", "period_ms"]),
    ("RL.TOKENBUCKET", ["capacity", "refill", "period_ms"]),
    ("RL.LEAKYBUCKET", ["capacity", "leak", "period_ms"]),
];

/// The same call as a peek.
fn as_peek(line: &str) -> String {
    let (command, rest) = line.split_once(' ').expect("a key");
    let (key, numbers) = rest.split_once(' ').expect("numbers");
    let policy = command.strip_prefix("RL.").expect("a limiter");
    format!("RL.PEEK {key} {policy} {numbers}")
}

/// Each call on key `k` with these numbers behind it, both as a charge and as a peek.
fn calls(rest: &str) -> Vec<String> {
    let charges = LIMITERS.map(|(command, _)| format!("{command} k {rest}"));
    let peeks = charges.clone().map(|line| as_peek(&line));
    [charges, peeks].concat()
}

// --- verdicts ---

#[test]
fn gcra_admits_a_burst_and_then_denies() {
    let server = single();
    let mut c = server.conn();
    run(
        &mut c,
        &[
            ("RL.GCRA k 3 10 1000", [1, 3, 2, 0, 100]),
            ("RL.GCRA k 3 10 1000", [1, 3, 1, 0, 200]),
            ("RL.GCRA k 3 10 1000", [1, 3, 0, 0, 300]),
            ("RL.GCRA k 3 10 1000", [0, 3, 0, 100, 300]),
            ("RL.GCRA k 3 10 1000", [0, 3, 0, 100, 300]),
        ],
    );
    server.clock().advance_ms(30);
    run(&mut c, &[("RL.GCRA k 3 10 1000", [0, 3, 0, 70, 270])]);
    server.clock().advance_ms(70);
    run(&mut c, &[("RL.GCRA k 3 10 1000", [1, 3, 0, 0, 300])]);
    server.clock().advance_ms(250);
    run(&mut c, &[("RL.GCRA k 3 10 1000", [1, 3, 1, 0, 150])]);
    server.clock().advance_ms(150);
    run(&mut c, &[("RL.GCRA k 3 10 1000", [1, 3, 2, 0, 100])]);
}

#[test]
fn a_token_bucket_admits_what_is_in_it_and_then_denies() {
    let server = single();
    let mut c = server.conn();
    run(
        &mut c,
        &[
            ("RL.TOKENBUCKET k 2 1 60000", [1, 2, 1, 0, 60_000]),
            ("RL.TOKENBUCKET k 2 1 60000", [1, 2, 0, 0, 120_000]),
            ("RL.TOKENBUCKET k 2 1 60000", [0, 2, 0, 60_000, 120_000]),
        ],
    );
    server.clock().advance_ms(59_999);
    run(
        &mut c,
        &[("RL.TOKENBUCKET k 2 1 60000", [0, 2, 0, 1, 60_001])],
    );
    server.clock().advance_ms(1);
    run(
        &mut c,
        &[("RL.TOKENBUCKET k 2 1 60000", [1, 2, 0, 0, 120_000])],
    );
    // It refills continuously, and never beyond its capacity.
    server.clock().advance_ms(HOUR_MS);
    run(
        &mut c,
        &[("RL.TOKENBUCKET k 2 1 60000", [1, 2, 1, 0, 60_000])],
    );
}

#[test]
fn both_are_one_limiter_to_a_key() {
    let server = single();
    let mut c = server.conn();
    run(
        &mut c,
        &[
            ("RL.GCRA k 3 10 1000", [1, 3, 2, 0, 100]),
            ("RL.TOKENBUCKET k 3 10 1000", [1, 3, 1, 0, 200]),
            ("RL.PEEK k GCRA 3 10 1000", [1, 3, 1, 0, 200]),
            ("RL.PEEK k TOKENBUCKET 3 10 1000", [1, 3, 1, 0, 200]),
            ("RL.GCRA k 3 10 1000", [1, 3, 0, 0, 300]),
            ("RL.TOKENBUCKET k 3 10 1000", [0, 3, 0, 100, 300]),
        ],
    );
}

#[test]
fn keys_do_not_share_anything() {
    let server = single();
    let mut c = server.conn();
    for key in ["a", "b", "A", "{a}b"] {
        let line = format!("RL.GCRA {key} 1 1 1000");
        run(
            &mut c,
            &[(&line, [1, 1, 0, 0, 1000]), (&line, [0, 1, 0, 1000, 1000])],
        );
    }
    cmd!(c, "SELECT", 1);
    run(&mut c, &[("RL.GCRA a 1 1 1000", [1, 1, 0, 0, 1000])]);
}

#[test]
fn a_cost_counts_as_so_many_calls() {
    let server = single();
    let mut c = server.conn();
    run(
        &mut c,
        &[
            ("RL.GCRA k 10 10 1000 COST 4", [1, 10, 6, 0, 400]),
            ("RL.GCRA k 10 10 1000 COST 7", [0, 10, 6, 100, 400]),
            ("RL.GCRA k 10 10 1000 COST 10", [0, 10, 6, 400, 400]),
            ("RL.GCRA k 10 10 1000 COST 6", [1, 10, 0, 0, 1000]),
            ("RL.GCRA k 10 10 1000 COST 1", [0, 10, 0, 100, 1000]),
            ("RL.GCRA k 10 10 1000", [0, 10, 0, 100, 1000]),
            ("RL.GCRA k 10 10 1000 COST 10", [0, 10, 0, 1000, 1000]),
            ("RL.TOKENBUCKET l 5 5 1000 COST 5", [1, 5, 0, 0, 1000]),
            ("RL.TOKENBUCKET l 5 5 1000 COST 3", [0, 5, 0, 600, 1000]),
        ],
    );
    // A smaller cost than the one that was denied is still admitted.
    server.clock().advance_ms(500);
    run(
        &mut c,
        &[
            ("RL.TOKENBUCKET l 5 5 1000 COST 3", [0, 5, 2, 100, 500]),
            ("RL.TOKENBUCKET l 5 5 1000 COST 2", [1, 5, 0, 0, 900]),
        ],
    );
}

#[test]
fn what_remains_is_the_largest_cost_that_would_be_admitted() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "RL.GCRA", "k", 100, 7, 1000, "COST", 61);
    for step_us in [0, 1, 142_856, 1, 999_999, 3_333_333] {
        server.clock().advance_us(step_us);
        let peek = cmd!(c, "RL.PEEK", "k", "GCRA", 100, 7, 1000);
        let remaining = peek.items()[2].as_int();
        let verdict = |c: &mut Conn, cost| {
            cmd!(c, "RL.PEEK", "k", "GCRA", 100, 7, 1000, "COST", cost).items()[0].as_int()
        };
        assert_eq!(verdict(&mut c, remaining), 1);
        assert_eq!(verdict(&mut c, remaining + 1), 0);
    }
}

#[test]
fn the_largest_and_the_smallest_numbers_work() {
    let server = single();
    let mut c = server.conn();
    let (most, year) = (MAX_TOKENS, MAX_PERIOD_MS);
    for (line, first) in [
        (
            format!("{most} {most} {year} COST {most}"),
            [1, most, 0, 0, year],
        ),
        (format!("{most} {most} {year}"), [1, most, most - 1, 0, 32]),
        (format!("{most} {most} 1 COST {most}"), [1, most, 0, 0, 1]),
        (format!("1 {most} 1"), [1, 1, 0, 0, 1]),
        (format!("1 1 {year}"), [1, 1, 0, 0, year]),
        (format!("100 1 {year} COST 100"), [1, 100, 0, 0, 100 * year]),
        ("1 1 1".to_string(), [1, 1, 0, 0, 1]),
    ] {
        for (command, _) in LIMITERS {
            cmd!(c, "DEL", "k");
            run(&mut c, &[(&format!("{command} k {line}"), first)]);
        }
    }
}

#[test]
fn any_bytes_are_a_key() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let every_byte: Vec<u8> = (0..=255).collect();
    let keys: [&[u8]; 6] = [b"", b"k\xff", b"\0", b"a b\r\n", &every_byte, &[b'x'; 5000]];
    for key in keys {
        assert_eq!(
            cmd!(c, "RL.GCRA", key, 2, 1, 1000),
            five([1, 2, 1, 0, 1000])
        );
        assert_eq!(
            cmd!(c, "RL.TOKENBUCKET", key, 2, 1, 1000),
            five([1, 2, 0, 0, 2000])
        );
        assert_eq!(
            cmd!(c, "RL.PEEK", key, "GCRA", 2, 1, 1000),
            five([0, 2, 0, 1000, 2000])
        );
        assert_eq!(cmd!(c, "RL.INFO", key).field("remaining"), &int(0));
    }
    let mut names: Vec<_> = cmd!(c, "KEYS", "*")
        .items()
        .iter()
        .map(|key| key.as_bytes().to_vec())
        .collect();
    names.sort();
    let mut expected = keys.map(<[u8]>::to_vec);
    expected.sort();
    assert_eq!(names, expected);
    assert_same(&chain);
    let mut reset = args!["RL.RESET"];
    reset.extend(names);
    assert_eq!(c.cmd(&reset), int(6));
    assert_eq!(cmd!(c, "DBSIZE"), int(0));
    assert_same(&chain);
}

#[test]
fn words_are_taken_in_any_case() {
    let server = single();
    let mut c = server.conn();
    run(
        &mut c,
        &[
            ("rl.gcra k 9 9 9000 cost 2", [1, 9, 7, 0, 2000]),
            ("Rl.TokenBucket k 9 9 9000 CoSt 2", [1, 9, 5, 0, 4000]),
            ("rl.peek k gcra 9 9 9000 cost 2", [1, 9, 5, 0, 4000]),
            (
                "RL.PEEK k TokenBucket 9 9 9000 Cost 6",
                [0, 9, 5, 1000, 4000],
            ),
        ],
    );
    assert_eq!(cmd!(c, "rl.reset", "k"), int(1));
    assert_eq!(cmd!(c, "rl.info", "k"), nil());
}

#[test]
fn replies_are_the_same_integers_in_resp2_and_resp3() {
    let server = single();
    for (mut c, key) in [(server.conn(), "two"), (server.conn3(), "three")] {
        assert_eq!(
            cmd!(c, "RL.GCRA", key, 1, 1, 1000),
            five([1, 1, 0, 0, 1000])
        );
        assert_eq!(
            cmd!(c, "RL.GCRA", key, 1, 1, 1000),
            five([0, 1, 0, 1000, 1000])
        );
        assert_eq!(
            cmd!(c, "RL.TOKENBUCKET", key, 1, 1, 1000),
            five([0, 1, 0, 1000, 1000])
        );
        assert_eq!(
            cmd!(c, "RL.PEEK", key, "GCRA", 1, 1, 1000),
            five([0, 1, 0, 1000, 1000])
        );
        assert_eq!(cmd!(c, "RL.RESET", key, "missing"), int(1));
        assert_eq!(cmd!(c, "RL.INFO", key), nil());
        let error = cmd!(c, "RL.GCRA", key, 0, 1, 1000);
        assert_eq!(error, err(&format!("ERR burst {TOKENS}")));
    }
}

// --- errors ---

/// Checks that the calls are refused with the text, on a live key and on a missing one.
#[track_caller]
fn refuses_everywhere(server: &Server, error: &str, lines: &[String]) {
    refuses(server, error, lines);
    let missing: Vec<_> = lines
        .iter()
        .map(|line| line.replacen(" k ", " new ", 1))
        .collect();
    refuses(server, error, &missing);
}

#[test]
fn every_number_has_its_range_and_its_own_name() {
    let server = half_used();
    for (command, names) in LIMITERS {
        for (at, name) in names.iter().enumerate() {
            let (range, max) = match at {
                2 => (PERIOD, MAX_PERIOD_MS),
                _ => (TOKENS, MAX_TOKENS),
            };
            let mut lines = Vec::new();
            for text in no_integers_up_to(max as u64) {
                let mut numbers = ["10", "10", "1000"];
                numbers[at] = &text;
                let line = format!("{command} k {}", numbers.join(" "));
                lines.push(as_peek(&line));
                lines.push(line);
            }
            refuses_everywhere(&server, &format!("ERR {name} {range}"), &lines);
        }
    }
}

#[test]
fn the_first_wrong_number_is_named() {
    let server = half_used();
    for (command, [first, second, third]) in LIMITERS {
        for (numbers, name, range) in [
            ("0 0 0", first, TOKENS),
            ("1 0 0", second, TOKENS),
            ("1 1 0", third, PERIOD),
        ] {
            let line = format!("{command} k {numbers}");
            let lines = [as_peek(&line), line];
            refuses_everywhere(&server, &format!("ERR {name} {range}"), &lines);
        }
    }
}

#[test]
fn a_bucket_that_takes_more_than_a_century_to_drain_is_refused() {
    let server = half_used();
    let (most, year) = (MAX_TOKENS, MAX_PERIOD_MS);
    let century = 100 * year;
    for policy in [
        format!("101 1 {year}"),
        format!("{most} 1 {year}"),
        format!("{most} {} {year}", most / 100 - 1),
        format!("{most} 1 {}", century / most + 1),
        "200000000 1 86400000".to_string(),
    ] {
        refuses_everywhere(&server, DRAIN, &calls(&policy));
        refuses_everywhere(&server, DRAIN, &calls(&format!("{policy} COST 1")));
    }
    // Exactly a century, give or take nothing.
    let mut c = server.conn();
    for policy in [
        format!("100 1 {year}"),
        format!("{most} {} {year}", most / 100),
        format!("{most} 1 {}", century / most),
    ] {
        for call in calls(&policy) {
            assert_eq!(c.cmd(&words(&call)).items()[0], int(1), "{call}");
        }
    }
}

#[test]
fn a_cost_is_an_integer_from_one_to_the_limit() {
    let server = half_used();
    for text in no_integers_up_to(MAX_TOKENS as u64) {
        let lines = calls(&format!("10 10 1000 COST {text}"));
        refuses_everywhere(&server, &format!("ERR COST {TOKENS}"), &lines);
    }
    for (limit, cost) in [
        (10, 11),
        (1, 2),
        (10, MAX_TOKENS),
        (MAX_TOKENS - 1, MAX_TOKENS),
    ] {
        let error =
            format!("ERR COST {cost} is above the limit of {limit}: it can never be admitted");
        let lines = calls(&format!("{limit} {MAX_TOKENS} 1000 COST {cost}"));
        refuses_everywhere(&server, &error, &lines);
    }
}

#[test]
fn unknown_repeated_and_unfinished_options_are_syntax_errors() {
    let server = half_used();
    for options in [
        "COST",
        "COST 1 COST",
        "COST 1 COST 1",
        "cost 1 COST 2",
        "COST 1 2",
        "1",
        "COSTS 1",
        "COS 1",
        "COST\0 1",
        "NX",
        "",
        "COST 1 NX",
        "NX COST 1",
        "BLOCK 100",
        "ALIGN 0",
    ] {
        let lines = calls(&format!("10 10 1000 {options}"));
        refuses_everywhere(&server, SYNTAX, &lines);
    }
    let no_policies = [
        "FOO",
        "",
        "GCR",
        "GCRA\0",
        "RL.GCRA",
        "CL.THROTTLE",
        "TOKEN",
        "COST",
        "BUCKET",
    ];
    let lines: Vec<_> = no_policies
        .iter()
        .map(|policy| format!("RL.PEEK k {policy} 10 10 1000"))
        .collect();
    refuses_everywhere(&server, SYNTAX, &lines);
    refuses(&server, SYNTAX, &["RL.PEEK k 10 10 1000 GCRA"]);
}

#[test]
fn too_few_and_too_many_words_are_the_servers_errors() {
    let server = half_used();
    for (command, lines) in [
        (
            "rl.gcra",
            &["RL.GCRA", "RL.GCRA k", "RL.GCRA k 10", "RL.GCRA k 10 10"][..],
        ),
        (
            "rl.tokenbucket",
            &["RL.TOKENBUCKET", "RL.TOKENBUCKET k 10 10"],
        ),
        (
            "rl.peek",
            &[
                "RL.PEEK",
                "RL.PEEK k",
                "RL.PEEK k GCRA",
                "RL.PEEK k GCRA 10 10",
            ],
        ),
        ("rl.reset", &["RL.RESET"]),
        ("rl.info", &["RL.INFO", "RL.INFO k k", "RL.INFO k FULL"]),
    ] {
        refuses(&server, &wrong_arity(command), lines);
    }
}

#[test]
fn a_key_of_another_type_is_refused() {
    let server = recorder();
    let mut c = server.conn();
    let foreign = make_foreign_keys(&mut c);
    cmd!(c, "LOCK.ACQUIRE", "lock", "me", HOUR_MS);
    cmd!(c, "LOCK.ACQUIRE", "kept", "me", 1000);
    cmd!(c, "LOCK.RELEASE", "kept", "me", "KEEP", HOUR_MS);
    cmd!(c, "LOCK.GUARD", "guard", 5);
    for key in foreign.into_iter().chain(["lock", "kept", "guard"]) {
        refuses(
            &server,
            WRONG_TYPE,
            &[
                &format!("RL.GCRA {key} 10 10 1000"),
                &format!("RL.GCRA {key} 10 10 1000 COST 10"),
                &format!("RL.TOKENBUCKET {key} 10 10 1000"),
                &format!("RL.PEEK {key} GCRA 10 10 1000"),
                &format!("RL.PEEK {key} TOKENBUCKET 10 10 1000"),
                &format!("RL.RESET {key}"),
                &format!("RL.RESET missing {key}"),
                &format!("RL.INFO {key}"),
            ],
        );
        // What is wrong with the call itself comes first.
        let burst = format!("ERR burst {TOKENS}");
        refuses(&server, &burst, &[format!("RL.GCRA {key} 0 10 1000")]);
    }
}

#[test]
fn a_limiter_is_a_key_of_another_type_to_everyone_else() {
    let server = half_used();
    refuses(
        &server,
        WRONG_TYPE,
        &[
            "LOCK.ACQUIRE k o 1000",
            "LOCK.RELEASE k o",
            "LOCK.RENEW k o 1000",
            "LOCK.INFO k",
            "LOCK.FORCERELEASE k",
            "LOCK.GUARD k 5",
            "GET k",
            "INCR k",
            "APPEND k v",
            "LPUSH k v",
            "HGETALL k",
            "SADD k v",
            "ZADD k 1 v",
            "XADD k * f v",
            "PFADD k v",
            "SETBIT k 1 1",
        ],
    );
    let mut c = server.conn();
    assert_eq!(cmd!(c, "TYPE", "k"), status("sluice-rl"));
    // Overwriting is no question of type.
    assert_eq!(cmd!(c, "SET", "k", "v"), ok());
    assert_eq!(counter(&server, "rl_keys"), 0);
}

#[test]
fn strings_that_other_limiters_leave_are_refused_and_kept() {
    let server = recorder();
    let mut c = server.conn();
    for text in ["foo", "", "-5", "0", "1700000000000"] {
        cmd!(c, "SET", "k", text);
        refuses(
            &server,
            WRONG_TYPE,
            &[
                "RL.GCRA k 10 10 1000",
                "RL.PEEK k GCRA 10 10 1000",
                "RL.RESET k",
                "RL.INFO k",
            ],
        );
        assert_eq!(cmd!(c, "GET", "k"), bulk(text));
    }
}

// --- what changes nothing ---

#[test]
fn denials_change_nothing() {
    let server = recorder();
    let mut c = server.conn();
    run(
        &mut c,
        &[("RL.GCRA k 2 1 60000 COST 2", [1, 2, 0, 0, 120_000])],
    );
    answers(
        &server,
        &[
            ("RL.GCRA k 2 1 60000", five([0, 2, 0, 60_000, 120_000])),
            (
                "RL.GCRA k 2 1 60000 COST 2",
                five([0, 2, 0, 120_000, 120_000]),
            ),
            (
                "RL.TOKENBUCKET k 2 1 60000",
                five([0, 2, 0, 60_000, 120_000]),
            ),
            // Another policy that drains no slower.
            ("RL.GCRA k 1 1 60000", five([0, 1, 0, 60_000, 60_000])),
            ("RL.GCRA k 2 60 60000", five([0, 2, 0, 1000, 2000])),
        ],
    );
    server.clock().advance_ms(59_999);
    answers(
        &server,
        &[("RL.GCRA k 2 1 60000", five([0, 2, 0, 1, 60_001]))],
    );
    server.clock().advance_ms(1);
    run(&mut c, &[("RL.GCRA k 2 1 60000", [1, 2, 0, 0, 120_000])]);
}

#[test]
fn a_thousand_denials_leave_the_debt_as_it_was() {
    let server = recorder();
    let mut c = server.conn();
    cmd!(c, "RL.GCRA", "k", 1, 1, 60_000);
    changes_nothing(&server, || {
        assert_eq!(admitted(&mut c, "RL.GCRA k 1 1 60000", 1000), 0);
    });
    assert_eq!(counter(&server, "rl_gcra_denied"), 1000);
    server.clock().advance_ms(60_000);
    run(&mut c, &[("RL.GCRA k 1 1 60000", [1, 1, 0, 0, 60_000])]);
}

#[test]
fn peeks_change_nothing() {
    let server = recorder();
    let mut c = server.conn();
    answers(
        &server,
        &[("RL.PEEK k GCRA 2 1 60000", five([1, 2, 2, 0, 0]))],
    );
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
    cmd!(c, "RL.GCRA", "k", 2, 1, 60_000);
    answers(
        &server,
        &[
            ("RL.PEEK k GCRA 2 1 60000", five([1, 2, 1, 0, 60_000])),
            ("RL.PEEK k GCRA 2 1 60000", five([1, 2, 1, 0, 60_000])),
            (
                "RL.PEEK k GCRA 2 1 60000 COST 2",
                five([0, 2, 1, 60_000, 60_000]),
            ),
            (
                "RL.PEEK k TOKENBUCKET 2 1 60000 COST 1",
                five([1, 2, 1, 0, 60_000]),
            ),
            // A slower policy, under which a denial would let the key live longer.
            (
                "RL.PEEK k GCRA 2 1 3600000 COST 2",
                five([0, 2, 1, HOUR_MS, HOUR_MS]),
            ),
            (
                "RL.PEEK other GCRA 2 1 3600000 COST 2",
                five([1, 2, 2, 0, 0]),
            ),
        ],
    );
}

#[test]
fn a_peek_is_the_verdict_that_the_call_then_gets() {
    let server = single();
    let mut c = server.conn();
    let mut random = Random(7);
    let (mut yes, mut no) = (0, 0);
    for _ in 0..300 {
        let cost = random.below(9) + 1;
        let line = format!("RL.GCRA k 9 7 1000 COST {cost}");
        let peek = c.cmd(&words(&as_peek(&line)));
        let call = c.cmd(&words(&line));
        assert_eq!(peek.items()[0], call.items()[0], "{line}");
        assert_eq!(peek.items()[3], call.items()[3], "{line}");
        match call.items()[0].as_int() {
            0 => {
                assert_eq!(peek, call);
                no += 1;
            }
            _ => {
                let left = peek.items()[2].as_int() - call.items()[2].as_int();
                assert_eq!(left, cost as i64);
                yes += 1;
            }
        }
        server.clock().advance_us(random.below(900_000) as i64);
    }
    assert!(yes > 50 && no > 50, "{yes} admitted, {no} denied");
}

#[test]
fn reads_and_denials_propagate_nothing() {
    let chain = chain();
    let mut c = chain.primary.conn();
    // The primary's own pings move the offset too.
    cmd!(c, "CONFIG", "SET", "repl-ping-replica-period", 86_400);
    cmd!(c, "RL.GCRA", "k", 1, 1, 60_000);
    let mut tap = Tap::on(&chain);
    let offset = || chain.primary.info("replication")["master_repl_offset"].clone();
    let before = offset();
    for line in [
        "RL.GCRA k 1 1 60000",
        "RL.TOKENBUCKET k 1 1 60000",
        "RL.PEEK k GCRA 1 1 60000",
        "RL.PEEK new TOKENBUCKET 1 1 60000",
        "RL.INFO k",
        "RL.INFO new",
        "RL.RESET new",
        "RL.GCRA k 1 1 60000 COST 2",
        "RL.GCRA k 1 1",
        "RL.GCRA k 0 1 60000",
        "RL.GCRA k 101 1 31536000000",
        "RL.GCRA new 1 1 60000 COST 2",
    ] {
        c.cmd(&words(line));
        assert_eq!(offset(), before, "{line}");
    }
    let script = "redis.pcall(unpack(ARGV))";
    c.eval(script, &["k"], &words("RL.GCRA k 1 1 60000"));
    c.exec_multi(&[
        words("RL.GCRA k 1 1 60000"),
        words("RL.PEEK k GCRA 1 1 60000"),
    ]);
    assert_eq!(offset(), before);
    assert!(tap.take().is_empty());
    assert_same(&chain);
}

#[test]
fn an_admission_counts_as_one_change() {
    let server = recorder();
    let mut c = server.conn();
    let dirty = || -> i64 {
        let info = server.info("persistence");
        info["rdb_changes_since_last_save"]
            .parse()
            .expect("a number")
    };
    for expected in 1..4 {
        cmd!(c, "RL.GCRA", "k", 3, 1, 60_000);
        assert_eq!(dirty(), expected);
    }
    cmd!(c, "RL.GCRA", "k", 3, 1, 60_000);
    assert_eq!(dirty(), 3);
    cmd!(c, "RL.RESET", "k");
    assert_eq!(dirty(), 4);
}

// --- WATCH and client-side caching ---

/// What was done to key `k` before, the command, and whether it changes the key.
const WATCHED: &[(&[&str], &str, bool)] = &[
    (&[], "RL.GCRA k 2 1 60000", true),
    (&[], "RL.TOKENBUCKET k 2 1 60000", true),
    (USED, "RL.GCRA k 2 1 60000", true),
    (USED, "RL.TOKENBUCKET k 2 1 60000", true),
    (USED, "RL.GCRA k 2 1 60000 COST 2", false),
    (FULL, "RL.GCRA k 2 1 60000", false),
    (FULL, "RL.TOKENBUCKET k 2 1 60000", false),
    (FULL, "RL.GCRA k 2 60 60000", false),
    (&[], "RL.PEEK k GCRA 2 1 60000", false),
    (USED, "RL.PEEK k GCRA 2 1 60000", false),
    (FULL, "RL.PEEK k GCRA 2 1 60000", false),
    (FULL, "RL.PEEK k GCRA 2 1 3600000", false),
    (&[], "RL.INFO k", false),
    (FULL, "RL.INFO k", false),
    (&[], "RL.RESET k", false),
    (USED, "RL.RESET k", true),
    (USED, "RL.RESET other k", true),
    (USED, "RL.RESET other", false),
    // Errors.
    (USED, "RL.GCRA k 0 1 60000", false),
    (USED, "RL.GCRA k 2 1 60000 COST 3", false),
    (USED, "RL.GCRA k 2 1 60000 COST", false),
    (USED, "RL.GCRA k 101 1 31536000000", false),
    (USED, "RL.PEEK k FOO 2 1 60000", false),
    (&["SET k v"], "RL.GCRA k 2 1 60000", false),
    (&["SET k v"], "RL.RESET k", false),
    (&["RL.GCRA k 2 1 60000", "SET s v"], "RL.RESET k s", false),
];

const USED: &[&str] = &["RL.GCRA k 2 1 60000"];
const FULL: &[&str] = &["RL.GCRA k 2 1 60000 COST 2"];

fn set_up(conn: &mut Conn, before: &[&str]) {
    cmd!(conn, "DEL", "k");
    for line in before {
        assert!(!conn.cmd(&words(line)).is_error(), "{line}");
    }
}

#[test]
fn only_changes_abort_a_watched_transaction() {
    let server = single();
    let (mut c, mut watcher) = (server.conn(), server.conn());
    let ways: [fn(&mut Conn, &str) -> Reply; 2] = [
        |c, command| c.cmd(&words(command)),
        |c, command| c.eval("redis.pcall(unpack(ARGV))", &["k"], &words(command)),
    ];
    for run in ways {
        for (before, command, changes) in WATCHED {
            set_up(&mut c, before);
            assert_eq!(cmd!(watcher, "WATCH", "k"), ok());
            run(&mut c, command);
            let exec = watcher.multi(&[args!["PING"]]);
            assert_eq!(exec.is_nil(), *changes, "{before:?}, {command}");
        }
    }
}

#[test]
fn only_changes_invalidate_a_cached_key() {
    let server = single();
    let invalidation = || Reply::Push(vec![bulk("invalidate"), array([bulk("k")])]);
    let pushes = |conn: &mut Conn| -> Vec<Reply> {
        assert_eq!(cmd!(conn, "PING"), status("PONG"));
        std::iter::from_fn(|| pushed(conn)).collect()
    };
    for broadcast in [false, true] {
        let (mut c, mut cache) = (server.conn(), server.conn3());
        match broadcast {
            true => cmd!(cache, "CLIENT", "TRACKING", "ON", "BCAST"),
            false => cmd!(cache, "CLIENT", "TRACKING", "ON"),
        };
        for (before, command, changes) in WATCHED {
            set_up(&mut c, before);
            pushes(&mut cache);
            // A peek is how a client caches a limiter.
            cmd!(cache, "RL.PEEK", "k", "GCRA", 2, 1, 60_000);
            c.cmd(&words(command));
            let found = pushes(&mut cache);
            let expected = if *changes {
                vec![invalidation()]
            } else {
                vec![]
            };
            // "s" of the last case is broadcast as well, before the command.
            assert_eq!(found, expected, "{before:?}, {command}");
        }
    }
}

// --- RESET ---

#[test]
fn reset_makes_keys_as_good_as_new() {
    let chain = chain();
    let mut c = chain.primary.conn();
    for key in ["a", "b", "c", "d"] {
        cmd!(c, "RL.GCRA", key, 2, 1, 60_000, "COST", 2);
    }
    let mut tap = Tap::on(&chain);
    assert_eq!(cmd!(c, "RL.RESET", "a"), int(1));
    assert_eq!(tap.take(), [args!["DEL", "a"]]);
    assert_eq!(cmd!(c, "RL.RESET", "a"), int(0));
    assert_eq!(cmd!(c, "RL.RESET", "a", "missing", ""), int(0));
    assert!(tap.take().is_empty());
    // Duplicates count once.
    assert_eq!(
        cmd!(c, "RL.RESET", "b", "a", "c", "b", "b", "missing", "c"),
        int(2)
    );
    let deleted = [
        args!["MULTI"],
        args!["DEL", "b"],
        args!["DEL", "c"],
        args!["EXEC"],
    ];
    assert_eq!(tap.take(), deleted);
    assert_eq!(cmd!(c, "KEYS", "*"), array([bulk("d")]));
    run(
        &mut c,
        &[
            ("RL.GCRA a 2 1 60000", [1, 2, 1, 0, 60_000]),
            ("RL.TOKENBUCKET b 9 1 1000", [1, 9, 8, 0, 1000]),
            ("RL.GCRA d 2 1 60000", [0, 2, 0, 60_000, 120_000]),
        ],
    );
    assert_same(&chain);
}

#[test]
fn one_key_of_another_type_resets_nothing() {
    let server = recorder();
    let mut c = server.conn();
    cmd!(c, "RL.GCRA", "a", 2, 1, 60_000);
    cmd!(c, "RL.GCRA", "b", 2, 1, 60_000);
    let mut foreign = make_foreign_keys(&mut c).to_vec();
    cmd!(c, "LOCK.ACQUIRE", "lock", "me", HOUR_MS);
    cmd!(c, "LOCK.GUARD", "guard", 5);
    foreign.extend(["lock", "guard"]);
    for key in foreign {
        let lines = [
            format!("RL.RESET {key} a b"),
            format!("RL.RESET a {key} b"),
            format!("RL.RESET a b {key}"),
            format!("RL.RESET a b a {key} {key}"),
        ];
        refuses(&server, WRONG_TYPE, &lines);
    }
    assert_eq!(cmd!(c, "RL.RESET", "a", "b"), int(2));
    assert_eq!(counter(&server, "rl_reset"), 2);
}

#[test]
fn many_keys_are_reset_at_once() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let keys: Vec<_> = (0..1000).map(|i| format!("k{i}")).collect();
    let charges = keys.iter().map(|key| args!["RL.GCRA", key, 2, 1, 60_000]);
    c.pipeline(&charges.collect::<Vec<_>>());
    assert_same(&chain);
    let mut reset = args!["RL.RESET"];
    reset.extend(keys.iter().map(|key| key.clone().into_bytes()));
    assert_eq!(c.cmd(&reset), int(1000));
    assert_same(&chain);
    for server in chain.servers() {
        assert_eq!(cmd!(server.conn(), "DBSIZE"), int(0));
    }
}

/// Operators' commands leave a log line.
#[test]
fn a_reset_leaves_a_line_in_the_log() {
    let server = recorder();
    let mut c = server.conn();
    for key in [&b"a\n\xff"[..], b"b"] {
        cmd!(c, "RL.GCRA", key, 2, 1, 60_000);
    }
    cmd!(c, "RL.RESET", "missing");
    assert!(!server.log().contains("RL.RESET"), "nothing was reset");
    let id = c.client_id();
    assert_eq!(cmd!(c, "RL.RESET", "missing", b"a\n\xff", "b"), int(2));
    let line = format!("<sluice> RL.RESET 2 keys, the first \"a\\n\\xff\" by client id={id} addr=");
    server.wait_log(&line);
    assert_eq!(server.log().matches("RL.RESET").count(), 1);
}

// --- INFO ---

#[test]
fn info_is_a_map_of_the_state() {
    let server = single();
    let (mut two, mut three) = (server.conn(), server.conn3());
    run(
        &mut two,
        &[("RL.GCRA k 9 10 60000 COST 4", [1, 9, 5, 0, 24_000])],
    );
    server.clock().advance_ms(7000);
    let pairs = |limit, count, period_ms, remaining, reset_ms| {
        [
            ("algorithm", bulk("bucket")),
            ("limit", int(limit)),
            ("count", int(count)),
            ("period_ms", int(period_ms)),
            ("remaining", int(remaining)),
            ("reset_ms", int(reset_ms)),
            ("blocked_ms", int(0)),
        ]
    };
    let flat = |pairs: [(&str, Reply); 7]| {
        array(
            pairs
                .into_iter()
                .flat_map(|(field, value)| [bulk(field), value]),
        )
    };
    let map = |pairs: [(&str, Reply); 7]| {
        Reply::Map(pairs.map(|(field, value)| (bulk(field), value)).to_vec())
    };
    let state = pairs(9, 10, 60_000, 6, 17_000);
    assert_eq!(cmd!(two, "RL.INFO", "k"), flat(state.clone()));
    assert_eq!(cmd!(three, "RL.INFO", "k"), map(state.clone()));
    // The policy is the last admission's: a denial and a peek leave it alone.
    cmd!(two, "RL.TOKENBUCKET", "k", 2, 1, 60_000, "COST", 2);
    cmd!(two, "RL.PEEK", "k", "GCRA", 20, 1, 60_000);
    assert_eq!(cmd!(two, "RL.INFO", "k"), flat(state));
    // Four tokens were owed 7 s ago. At 20 a minute 1.667 are left, and one more is taken.
    run(
        &mut two,
        &[("RL.TOKENBUCKET k 20 20 60000", [1, 20, 17, 0, 8000])],
    );
    assert_eq!(
        cmd!(two, "RL.INFO", "k"),
        flat(pairs(20, 20, 60_000, 17, 8000))
    );
    server.clock().advance_us(7_999_999);
    assert_eq!(
        cmd!(two, "RL.INFO", "k"),
        flat(pairs(20, 20, 60_000, 19, 1))
    );
    server.clock().advance_us(1);
    assert_eq!(cmd!(two, "EXISTS", "k"), int(1), "within the slack");
    assert_eq!(cmd!(two, "RL.INFO", "k"), nil());
    assert_eq!(cmd!(three, "RL.INFO", "k"), nil());
}

#[test]
fn info_is_nil_for_what_is_as_good_as_new() {
    let server = recorder();
    answers(&server, &[("RL.INFO k", nil()), ("RL.INFO ", nil())]);
    assert_eq!(cmd!(server.conn3(), "RL.INFO", "k"), nil());
    let mut c = server.conn();
    cmd!(c, "RL.GCRA", "k", 1, 1, 1000);
    changes_nothing(&server, || {
        assert!(!cmd!(c, "RL.INFO", "k").is_nil());
    });
    cmd!(c, "RL.RESET", "k");
    answers(&server, &[("RL.INFO k", nil())]);
}
