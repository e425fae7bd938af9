//! RL.INFO of every algorithm, and what INFO counts of each.

use crate::support::*;

/// Checks the fields of RL.INFO and their order, in both protocols.
#[track_caller]
fn shows(server: &Server, key: &str, algorithm: &str, numbers: &[(&str, i64)]) {
    let mut pairs = vec![("algorithm", bulk(algorithm))];
    pairs.extend(numbers.iter().map(|(field, value)| (*field, int(*value))));
    let flat = pairs.iter().cloned().flat_map(|(f, v)| [bulk(f), v]);
    assert_eq!(cmd!(server.conn(), "RL.INFO", key), array(flat));
    let map = pairs.iter().cloned().map(|(f, v)| (bulk(f), v)).collect();
    assert_eq!(cmd!(server.conn3(), "RL.INFO", key), Reply::Map(map));
}

#[test]
fn a_fixed_window_shows_its_count() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "RL.FIXEDWINDOW", "k", 10, 1000, "COST", 4);
    server.clock().advance_us(250_001);
    let fields = [
        ("limit", 10),
        ("window_ms", 1000),
        ("used", 4),
        ("remaining", 6),
        ("reset_ms", 750),
        ("blocked_ms", 0),
    ];
    shows(&server, "k", "FIXEDWINDOW", &fields);
    // Under the policy of what was last counted, whatever was denied or looked at since.
    cmd!(c, "RL.FIXEDWINDOW", "k", 5, 1000, "COST", 5);
    cmd!(c, "RL.PEEK", "k", "FIXEDWINDOW", 99, 5000);
    shows(&server, "k", "FIXEDWINDOW", &fields);
    server.clock().advance_us(749_999);
    assert_eq!(cmd!(c, "RL.INFO", "k"), nil());
}

#[test]
fn a_sliding_window_shows_both_counts() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "RL.SLIDINGWINDOW", "k", 10, 1000, "COST", 4);
    server.clock().advance_us(1_500_000);
    cmd!(c, "RL.SLIDINGWINDOW", "k", 10, 1000, "COST", 3);
    shows(
        &server,
        "k",
        "SLIDINGWINDOW",
        &[
            ("limit", 10),
            ("window_ms", 1000),
            ("current", 3),
            ("previous", 4),
            ("remaining", 5),
            ("reset_ms", 1500),
            ("blocked_ms", 0),
        ],
    );
    server.clock().advance_us(500_000);
    shows(
        &server,
        "k",
        "SLIDINGWINDOW",
        &[
            ("limit", 10),
            ("window_ms", 1000),
            ("current", 0),
            ("previous", 3),
            ("remaining", 7),
            ("reset_ms", 1000),
            ("blocked_ms", 0),
        ],
    );
    server.clock().advance_us(1_000_000);
    assert_eq!(cmd!(c, "RL.INFO", "k"), nil());
}

#[test]
fn a_log_shows_what_lies_within_the_window() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "RL.SLIDINGLOG", "k", 10, 1000, "COST", 4);
    server.clock().advance_us(600_000);
    cmd!(c, "RL.SLIDINGLOG", "k", 10, 1000, "COST", 3);
    let fields = |used, entries, remaining, reset_ms, blocked_ms| {
        [
            ("limit", 10),
            ("window_ms", 1000),
            ("used", used),
            ("entries", entries),
            ("remaining", remaining),
            ("reset_ms", reset_ms),
            ("blocked_ms", blocked_ms),
        ]
    };
    shows(&server, "k", "SLIDINGLOG", &fields(7, 2, 3, 1000, 0));
    server.clock().advance_us(400_000);
    shows(&server, "k", "SLIDINGLOG", &fields(3, 1, 7, 600, 0));
    cmd!(c, "RL.BLOCK", "k", 5000);
    shows(&server, "k", "SLIDINGLOG", &fields(3, 1, 0, 5000, 5000));
}

#[test]
fn all_buckets_show_the_same() {
    let server = single();
    let mut c = server.conn();
    for algorithm in ["GCRA", "TOKENBUCKET", "LEAKYBUCKET"] {
        cmd!(c, "DEL", "k");
        c.cmd(&words(&format!("RL.{algorithm} k 10 10 1000 COST 4")));
        shows(
            &server,
            "k",
            "bucket",
            &[
                ("limit", 10),
                ("count", 10),
                ("period_ms", 1000),
                ("remaining", 6),
                ("reset_ms", 400),
                ("blocked_ms", 0),
            ],
        );
    }
    cmd!(c, "DEL", "k");
    cmd!(c, "CL.THROTTLE", "k", 9, 10, 60, 4);
    shows(
        &server,
        "k",
        "bucket",
        &[
            ("limit", 10),
            ("count", 10),
            ("period_ms", 60_000),
            ("remaining", 6),
            ("reset_ms", 24_000),
            ("blocked_ms", 0),
        ],
    );
}

#[test]
fn an_overdraft_shows_as_nothing_that_remains() {
    let server = single();
    let mut c = server.conn();
    for (key, policy, reset_ms) in [
        ("b", "GCRA 10 10 1000", 2500),
        ("f", "FIXEDWINDOW 10 1000", 1000),
        ("s", "SLIDINGWINDOW 10 1000", 2000),
        ("l", "SLIDINGLOG 10 1000", 1000),
    ] {
        c.cmd(&words(&format!("RL.CHARGE {key} {policy} COST 25")));
        let info = cmd!(c, "RL.INFO", key);
        assert_eq!(info.field("remaining"), &int(0), "{policy}");
        assert_eq!(info.field("reset_ms"), &int(reset_ms), "{policy}");
    }
}

// --- INFO sluice ---

const ALGORITHMS: [&str; 6] = [
    "gcra",
    "tokenbucket",
    "leakybucket",
    "fixedwindow",
    "slidingwindow",
    "slidinglog",
];

/// Of each algorithm: allowed, denied, peeked, charged, refunded.
fn counters(server: &Server) -> [[i64; 5]; 6] {
    let fields = server.info("sluice");
    ALGORITHMS.map(|algorithm| {
        ["allowed", "denied", "peeked", "charged", "refunded"].map(|outcome| {
            let name = format!("sluice_rl_{algorithm}_{outcome}");
            fields[&name].parse().expect("a number")
        })
    })
}

const POLICIES: [&str; 6] = [
    "GCRA 5 1 60000",
    "TOKENBUCKET 5 1 60000",
    "LEAKYBUCKET 5 1 60000",
    "FIXEDWINDOW 5 60000",
    "SLIDINGWINDOW 5 60000",
    "SLIDINGLOG 5 60000",
];

#[test]
fn the_outcomes_of_each_algorithm_are_counted() {
    let server = recorder();
    let mut c = server.conn();
    let mut expected = [[0; 5]; 6];
    assert_eq!(counters(&server), expected);
    for (i, policy) in POLICIES.into_iter().enumerate() {
        let (algorithm, numbers) = policy.split_once(' ').expect("numbers");
        let key = format!("k{i}");
        let lines = [
            (format!("RL.{algorithm} {key} {numbers}"), 3, 0),
            (format!("RL.{algorithm} {key} {numbers} COST 4"), 2, 1),
            (format!("RL.PEEK {key} {policy} COST 5"), 4, 2),
            (format!("RL.PEEK new {policy}"), 1, 2),
            (format!("RL.CHARGE {key} {policy} COST 100"), 2, 3),
            (format!("RL.REFUND {key} {policy} COST 7"), 3, 4),
            (format!("RL.REFUND new {policy}"), 1, 4),
        ];
        for (line, times, outcome) in lines {
            for _ in 0..times {
                let reply = c.cmd(&words(&line));
                assert!(!reply.is_error(), "{line}: {reply:?}");
                expected[i][outcome] += 1;
                assert_eq!(counters(&server), expected, "{line}");
            }
        }
        // Errors and looks are nothing.
        for line in [
            format!("RL.{algorithm} {key} {numbers} COST 6"),
            format!("RL.{algorithm} {key} {numbers} COST"),
            format!("RL.PEEK {key} {policy} NX"),
            format!("RL.CHARGE {key} {policy} COST 0"),
            format!("RL.REFUND {key} {policy} COST x"),
            format!("RL.ALL 2 {key} other {policy} {policy} COST 6"),
            format!("RL.INFO {key}"),
        ] {
            c.cmd(&words(&line));
            assert_eq!(counters(&server), expected, "{line}");
        }
    }
    server.restart();
    assert_eq!(counters(&server), [[0; 5]; 6], "since the load");
}

/// Allowed, each counts; denied, those that deny.
#[test]
fn a_call_on_several_counts_for_each_algorithm() {
    let server = recorder();
    let mut c = server.conn();
    let all = "RL.ALL 3 a b c GCRA 2 1 60000 FIXEDWINDOW 5 60000 SLIDINGLOG 2 60000";
    let mut seen = [[0; 5]; 6];
    for allowed in [1, 1, 0, 0] {
        assert_eq!(c.cmd(&words(all)).items()[0], int(allowed));
        match allowed {
            1 => [0, 3, 5].map(|i| seen[i][0] += 1).len(),
            _ => [0, 5].map(|i| seen[i][1] += 1).len(),
        };
        assert_eq!(counters(&server), seen);
    }
}

#[test]
fn blocks_and_resets_are_counted() {
    let server = recorder();
    let mut c = server.conn();
    let both = || ["rl_blocks", "rl_reset", "rl_keys"].map(|name| counter(&server, name));
    for (line, expected) in [
        ("RL.BLOCK k 1000", [1, 0, 1]),
        ("RL.BLOCK k 10", [2, 0, 1]),
        ("RL.BLOCK k 0", [2, 0, 1]),
        ("RL.BLOCK l 1000", [3, 0, 2]),
        ("RL.RESET k l m", [3, 2, 0]),
        // Denied while blocked: that is the algorithm's.
        ("RL.BLOCK k 1000", [4, 2, 1]),
        ("RL.GCRA k 1 1 1000", [4, 2, 1]),
    ] {
        c.cmd(&words(line));
        assert_eq!(both(), expected, "{line}");
    }
    assert_eq!(counter(&server, "rl_gcra_denied"), 1);
}

/// CL.THROTTLE is GCRA by another name.
#[test]
fn a_throttle_counts_as_gcra() {
    let server = recorder();
    let mut c = server.conn();
    for (line, expected) in [
        ("CL.THROTTLE k 1 1 60", [1, 0, 0, 0, 0]),
        ("CL.THROTTLE k 1 1 60 1", [2, 0, 0, 0, 0]),
        ("CL.THROTTLE k 1 1 60 1", [2, 1, 0, 0, 0]),
        ("CL.THROTTLE k 1 1 60 0", [2, 1, 1, 0, 0]),
        ("CL.THROTTLE k 1 1 60 3", [2, 2, 1, 0, 0]),
        ("CL.THROTTLE k 1 1 60 -1", [2, 2, 1, 0, 1]),
        ("CL.THROTTLE new 1 1 60 -1", [2, 2, 1, 0, 2]),
        ("CL.THROTTLE k 1 0 60", [2, 2, 1, 0, 2]),
    ] {
        c.cmd(&words(line));
        assert_eq!(counters(&server)[0], expected, "{line}");
    }
    assert_eq!(counters(&server)[1..], [[0; 5]; 5]);
}

#[test]
fn the_counters_are_in_every_form_of_info() {
    let server = single();
    for section in ["sluice", "everything"] {
        let text = cmd!(server.conn(), "INFO", section).as_text();
        for algorithm in ALGORITHMS {
            for outcome in ["allowed", "denied", "peeked", "charged", "refunded"] {
                let line = format!("sluice_rl_{algorithm}_{outcome}:");
                assert_eq!(text.matches(&line).count(), 1, "{line}");
            }
        }
        assert!(text.contains("sluice_rl_blocks:"));
        assert!(!text.contains("sluice_rl_peeked"));
    }
}
