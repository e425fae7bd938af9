//! What the limiters refuse: the exact texts, and that nothing changes by it.

use crate::limiter_support::*;
use crate::support::*;

const TOKENS: &str = "must be an integer between 1 and 1000000000";
const PERIOD: &str = "must be an integer between 1 and 31536000000";
const LOG_LIMIT: &str =
    "ERR limit must be an integer between 1 and 100000 (sluice.rl-max-log-entries)";

/// Each algorithm, numbers that are right, and what they are called.
const ALGORITHMS: [(&str, &str, &[&str]); 6] = [
    ("GCRA", "10 10 1000", &["burst", "count", "period_ms"]),
    (
        "TOKENBUCKET",
        "10 10 1000",
        &["capacity", "refill", "period_ms"],
    ),
    (
        "LEAKYBUCKET",
        "10 10 1000",
        &["capacity", "leak", "period_ms"],
    ),
    ("FIXEDWINDOW", "10 1000", &["limit", "window_ms"]),
    ("SLIDINGWINDOW", "10 1000", &["limit", "window_ms"]),
    ("SLIDINGLOG", "10 1000", &["limit", "window_ms"]),
];

/// Every command that takes a policy, with this one and its options.
fn calls(key: &str, algorithm: &str, rest: &str) -> Vec<String> {
    vec![
        format!("RL.{algorithm} {key} {rest}"),
        format!("RL.PEEK {key} {algorithm} {rest}"),
        format!("RL.CHARGE {key} {algorithm} {rest}"),
        format!("RL.REFUND {key} {algorithm} {rest}"),
        format!("RL.ALL 1 {key} {algorithm} {rest}"),
        format!("RL.ALL 2 other {key} GCRA 1 1 1 {algorithm} {rest}"),
    ]
}

/// A server that records, with a half used key of each algorithm, named after it.
fn in_use() -> Server {
    let server = recorder();
    let mut c = server.conn();
    for (algorithm, numbers, _) in ALGORITHMS {
        let line = format!("RL.{algorithm} {algorithm} {numbers} COST 5");
        assert_eq!(c.cmd(&words(&line)).items()[0], int(1));
    }
    server
}

/// Checks that each call is refused with this text on a key in use and on none.
#[track_caller]
fn refuses_everywhere(server: &Server, error: &str, algorithm: &str, rest: &str) {
    for key in [algorithm, "new"] {
        refuses(server, error, &calls(key, algorithm, rest));
    }
}

#[test]
fn every_number_of_every_policy_has_its_range_and_its_name() {
    let server = in_use();
    let mut c = server.conn();
    let no_integers = |max| {
        let mut texts = no_integers_up_to(max);
        // The long ones say nothing more here.
        texts.retain(|text| text.len() < 30);
        texts
    };
    for (algorithm, numbers, names) in ALGORITHMS {
        for (at, name) in names.iter().enumerate() {
            let is_period = name.ends_with("_ms");
            let (range, max) = match is_period {
                true => (PERIOD, MAX_PERIOD_MS),
                false => (TOKENS, MAX_TOKENS),
            };
            let error = match algorithm {
                "SLIDINGLOG" if !is_period => LOG_LIMIT.to_string(),
                _ => format!("ERR {name} {range}"),
            };
            let mut lines = Vec::new();
            for text in no_integers(max as u64) {
                let mut numbers: Vec<&str> = numbers.split(' ').collect();
                numbers[at] = &text;
                let rest = numbers.join(" ");
                lines.extend(calls(algorithm, algorithm, &rest));
            }
            refuses(&server, &error, &lines);
        }
    }
    assert_eq!(cmd!(c, "DBSIZE"), int(6));
}

#[test]
fn a_cost_has_its_range_and_for_calls_the_limit() {
    let server = in_use();
    let error = format!("ERR COST {TOKENS}");
    for (algorithm, numbers, _) in ALGORITHMS {
        for text in ["0", "-1", "-5", "1000000001", "x", "", "1.5", "01"] {
            let rest = format!("{numbers} COST {text}");
            refuses_everywhere(&server, &error, algorithm, &rest);
        }
        for cost in [11, 12, MAX_TOKENS] {
            let error =
                format!("ERR COST {cost} is above the limit of 10: it can never be admitted");
            let mut lines = calls(algorithm, algorithm, &format!("{numbers} COST {cost}"));
            // What is counted without asking has no limit.
            lines.retain(|line| !line.starts_with("RL.CHARGE") && !line.starts_with("RL.REFUND"));
            assert_eq!(lines.len(), 4);
            refuses(&server, &error, &lines);
        }
    }
}

#[test]
fn only_a_fixed_window_is_aligned() {
    let server = in_use();
    for (algorithm, numbers, _) in ALGORITHMS {
        if algorithm != "FIXEDWINDOW" {
            for options in [
                "ALIGN 0",
                "COST 1 ALIGN 0",
                "ALIGN 0 COST 1",
                "ALIGN x",
                "ALIGN",
            ] {
                let rest = format!("{numbers} {options}");
                refuses_everywhere(&server, SYNTAX, algorithm, &rest);
            }
            continue;
        }
        let error = "ERR ALIGN must be an integer between 0 and 31536000000";
        for text in [
            "-1",
            "31536000001",
            "x",
            "",
            "00",
            "1.5",
            "9223372036854775808",
        ] {
            let rest = format!("{numbers} ALIGN {text}");
            refuses_everywhere(&server, error, algorithm, &rest);
        }
    }
}

#[test]
fn unknown_repeated_and_unfinished_options_are_syntax_errors() {
    let server = in_use();
    for (algorithm, numbers, _) in ALGORITHMS {
        for options in [
            "COST",
            "COST 1 COST",
            "COST 1 COST 1",
            "cost 1 COST 2",
            "COST 1 2",
            "1",
            "COSTS 1",
            "COST\0 1",
            "NX",
            "",
            "COST 1 NX",
            "ALIGNED 0",
            "BLOCK 100",
        ] {
            let rest = format!("{numbers} {options}");
            refuses_everywhere(&server, SYNTAX, algorithm, &rest);
        }
    }
    for options in [
        "ALIGN",
        "ALIGN 0 ALIGN 0",
        "align 0 COST 1 ALIGN 0",
        "ALIGN 0 5",
    ] {
        let rest = format!("10 1000 {options}");
        refuses_everywhere(&server, SYNTAX, "FIXEDWINDOW", &rest);
    }
    for name in [
        "FOO",
        "",
        "GCR",
        "RL.GCRA",
        "CL.THROTTLE",
        "WINDOW",
        "LOG",
        "SLIDINGLOG\0",
    ] {
        let lines: Vec<_> = ["PEEK", "CHARGE", "REFUND"]
            .iter()
            .map(|command| format!("RL.{command} GCRA {name} 10 10 1000"))
            .chain([format!("RL.ALL 1 GCRA {name} 10 10 1000")])
            .collect();
        refuses(&server, SYNTAX, &lines);
    }
}

#[test]
fn too_few_numbers_are_a_wrong_number_of_arguments() {
    let server = in_use();
    for (algorithm, numbers, _) in ALGORITHMS {
        let numbers: Vec<&str> = numbers.split(' ').collect();
        for count in 0..numbers.len() {
            let rest = numbers[..count].join(" ");
            for line in calls("new", algorithm, &rest) {
                let line = line.trim_end().to_string();
                let name = line.split(' ').next().expect("a name").to_lowercase();
                refuses(&server, &wrong_arity(&name), &[line]);
            }
        }
    }
    for (command, lines) in [
        (
            "rl.fixedwindow",
            &["RL.FIXEDWINDOW", "RL.FIXEDWINDOW k"][..],
        ),
        (
            "rl.slidingwindow",
            &["RL.SLIDINGWINDOW", "RL.SLIDINGWINDOW k"],
        ),
        ("rl.slidinglog", &["RL.SLIDINGLOG", "RL.SLIDINGLOG k"]),
        (
            "rl.charge",
            &["RL.CHARGE", "RL.CHARGE k", "RL.CHARGE k GCRA"],
        ),
        (
            "rl.refund",
            &["RL.REFUND", "RL.REFUND k", "RL.REFUND k GCRA"],
        ),
    ] {
        refuses(&server, &wrong_arity(command), lines);
    }
}

#[test]
fn a_key_of_another_type_is_refused_by_every_command() {
    let server = recorder();
    let mut c = server.conn();
    let foreign = make_foreign_keys(&mut c);
    cmd!(c, "LOCK.ACQUIRE", "lock", "me", HOUR_MS);
    cmd!(c, "LOCK.GUARD", "guard", 5);
    for key in foreign.into_iter().chain(["lock", "guard"]) {
        let mut lines = vec![
            format!("RL.BLOCK {key} 1000"),
            format!("RL.RESET new {key}"),
            format!("RL.INFO {key}"),
            format!("CL.THROTTLE {key} 5 5 5"),
        ];
        for (algorithm, numbers, _) in ALGORITHMS {
            lines.extend(calls(key, algorithm, numbers));
        }
        refuses(&server, WRONG_TYPE, &lines);
        // What is wrong with the call itself comes first.
        let limit = format!("ERR limit {TOKENS}");
        refuses(&server, &limit, &calls(key, "FIXEDWINDOW", "0 1000"));
    }
}

/// Every kind of error of every command, on keys in use, among replicas.
#[test]
fn errors_move_neither_the_data_nor_the_replication_offset() {
    let chain = chain();
    let mut c = chain.primary.conn();
    // The primary's own pings move the offset too.
    cmd!(c, "CONFIG", "SET", "repl-ping-replica-period", 86_400);
    for (algorithm, numbers, _) in ALGORITHMS {
        c.cmd(&words(&format!(
            "RL.{algorithm} {algorithm} {numbers} COST 5"
        )));
    }
    cmd!(c, "SET", "string", "v");
    chain.sync();
    let state = |c: &mut Conn| {
        let offset = chain.primary.info("replication")["master_repl_offset"].clone();
        let dirty = chain.primary.info("persistence")["rdb_changes_since_last_save"].clone();
        (cmd!(c, "DEBUG", "DIGEST"), offset, dirty)
    };
    let before = state(&mut c);
    let mut checked = 0;
    for (algorithm, numbers, _) in ALGORITHMS {
        let other = match algorithm {
            "FIXEDWINDOW" => "SLIDINGLOG",
            _ => "FIXEDWINDOW",
        };
        let mut lines = vec![
            format!("RL.BLOCK {algorithm} 0"),
            format!("RL.RESET {algorithm} string"),
            format!("CL.THROTTLE {algorithm} 5 0 5"),
            format!("RL.CHARGE {algorithm} GCRA 1 1 31536000000 COST 1000"),
        ];
        for rest in [
            format!("0 {numbers}"),
            format!("{numbers} COST 0"),
            format!("{numbers} COST"),
            format!("{numbers} NX"),
            "10".to_string(),
        ] {
            lines.extend(calls(algorithm, algorithm, &rest));
        }
        lines.extend(calls(algorithm, other, "10 1000"));
        lines.extend(calls("string", algorithm, numbers));
        for line in lines {
            let reply = c.cmd(&words(&line));
            assert!(reply.is_error(), "{line}: {reply:?}");
            assert_eq!(state(&mut c), before, "{line}");
            checked += 1;
        }
    }
    assert_eq!(checked, 6 * (4 + 5 * 6 + 12));
    chain.assert_equal();
}

/// Random words behind every command: an answer each time, and an error changes nothing.
#[test]
fn no_words_whatever_crash_the_server_or_change_something_by_an_error() {
    const COMMANDS: [&str; 14] = [
        "RL.GCRA",
        "RL.TOKENBUCKET",
        "RL.LEAKYBUCKET",
        "RL.FIXEDWINDOW",
        "RL.SLIDINGWINDOW",
        "RL.SLIDINGLOG",
        "RL.PEEK",
        "RL.CHARGE",
        "RL.REFUND",
        "RL.ALL",
        "RL.BLOCK",
        "RL.RESET",
        "RL.INFO",
        "CL.THROTTLE",
    ];
    const WORDS: [&str; 22] = [
        "a",
        "b",
        "string",
        "",
        "1",
        "2",
        "3",
        "10",
        "1000",
        "0",
        "-1",
        "64",
        "1000000000",
        "31536000000",
        "18446744073709551616",
        "COST",
        "ALIGN",
        "GCRA",
        "FIXEDWINDOW",
        "SLIDINGWINDOW",
        "SLIDINGLOG",
        "LEAKYBUCKET",
    ];
    let server = recorder();
    let mut c = server.conn();
    cmd!(c, "SET", "string", "v");
    let mut random = Random(77);
    let (mut errors, mut answers) = (0, 0);
    let mut before = digest(&server);
    for _ in 0..4000 {
        let mut line = vec![random.one_of(&COMMANDS).as_bytes().to_vec()];
        if random.below(2) == 0 {
            // Half of the time one that is nearly right.
            let (algorithm, numbers, _) = *random.one_of(&ALGORITHMS);
            let key = *random.one_of(&["a", "b", "string"]);
            let lines = calls(key, algorithm, numbers);
            let right: &String = random.one_of(&lines);
            line = words(right);
            let at = 1 + random.below(line.len() as u64 - 1) as usize;
            match random.below(3) {
                0 => line[at] = random.one_of(&WORDS).as_bytes().to_vec(),
                1 => line.insert(at, random.one_of(&WORDS).as_bytes().to_vec()),
                _ => drop(line.remove(at)),
            }
        } else {
            for _ in 0..random.below(9) {
                line.push(random.one_of(&WORDS).as_bytes().to_vec());
            }
        }
        let reply = c.cmd(&line);
        let after = digest(&server);
        match reply.is_error() {
            true => {
                assert_eq!(after, before, "{line:?}: {reply:?}");
                errors += 1;
            }
            false => answers += 1,
        }
        before = after;
    }
    assert!(
        errors > 1000 && answers > 300,
        "{errors} errors, {answers} answers"
    );
    assert!(!server.log().contains("bug:"), "{}", server.log());
}
