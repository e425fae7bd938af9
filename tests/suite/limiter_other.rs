//! A key that holds another algorithm's state than the policy names, and another policy of the same
//! algorithm.

use crate::limiter_support::*;
use crate::support::*;

/// As errors call it, the call that fills it under ten a second, and when it is as good as new.
const SHAPES: [(&str, &str, i64); 4] = [
    ("bucket", "GCRA 10 10 1000", 1000),
    ("FIXEDWINDOW", "FIXEDWINDOW 10 1000", 1000),
    ("SLIDINGWINDOW", "SLIDINGWINDOW 10 1000", 2000),
    ("SLIDINGLOG", "SLIDINGLOG 10 1000", 1000),
];

fn call(policy: &str, cost: i64) -> String {
    let (algorithm, numbers) = policy.split_once(' ').expect("numbers");
    format!("RL.{algorithm} k {numbers} COST {cost}")
}

/// Every command with this policy on key `k`.
fn commands(policy: &str) -> Vec<String> {
    let mut lines = vec![
        call(policy, 1),
        call(policy, 10),
        format!("RL.PEEK k {policy}"),
        format!("RL.CHARGE k {policy} COST 50"),
        format!("RL.REFUND k {policy}"),
        format!("RL.ALL 1 k {policy}"),
        format!("RL.ALL 2 other k GCRA 10 10 1000 {policy}"),
        format!("RL.ALL 2 k other {policy} GCRA 10 10 1000"),
    ];
    if policy.starts_with("GCRA") {
        let numbers = policy.strip_prefix("GCRA").expect("just checked");
        lines.push(format!("RL.TOKENBUCKET k{numbers}"));
        lines.push(format!("RL.LEAKYBUCKET k{numbers}"));
        for quantity in [1, 0, -1, 99] {
            lines.push(format!("CL.THROTTLE k 9 10 1 {quantity}"));
        }
    }
    lines
}

fn pairs() -> impl Iterator<
    Item = (
        (&'static str, &'static str, i64),
        (&'static str, &'static str),
    ),
> {
    SHAPES.into_iter().flat_map(|held| {
        let others = SHAPES.into_iter().filter(move |other| other.0 != held.0);
        others.map(move |(name, policy, _)| (held, (name, policy)))
    })
}

#[test]
fn another_algorithm_on_a_live_key_is_an_error_and_changes_nothing() {
    let server = recorder();
    let mut c = server.conn();
    let mut checked = 0;
    for ((held, policy, reset_ms), (wanted, other)) in pairs() {
        cmd!(c, "DEL", "k");
        assert_eq!(c.cmd(&words(&call(policy, 10))).items()[0], int(1));
        let error = format!("ERR key holds a {held} limiter, not {wanted}");
        let lines = commands(other);
        refuses(&server, &error, &lines);
        // Until its very last µs.
        server.clock().advance_us(reset_ms * 1000 - 1);
        refuses(&server, &error, &lines);
        checked += 1;
    }
    assert_eq!(checked, 12);
}

#[test]
fn a_drained_key_is_simply_new_to_another_algorithm() {
    let chain = chain();
    let mut c = chain.primary.conn();
    for ((_, policy, reset_ms), (wanted, other)) in pairs() {
        for (n, line) in commands(other).into_iter().enumerate() {
            cmd!(c, "DEL", "k", "other");
            c.cmd(&words(&call(policy, 10)));
            chain.clock().advance_ms(reset_ms);
            assert_eq!(cmd!(c, "EXISTS", "k"), int(1), "within the slack");
            let found = c.cmd(&words(&line));
            cmd!(c, "DEL", "other");
            // As on a key that never was.
            let alone = c.cmd(&words(&line.replace(" k", " fresh")));
            assert_eq!(found, alone, "{policy}: {line}");
            if n == 0 {
                let info = cmd!(c, "RL.INFO", "k");
                assert_eq!(info.field("algorithm"), &bulk(wanted), "{line}");
                // What is left of the old TTL may do, if it is longer by the slack at most.
                let ends = ["k", "fresh"].map(|key| cmd!(c, "PEXPIRETIME", key).as_int());
                assert!((ends[1] - SLACK_MS..=ends[1]).contains(&ends[0]), "{line}");
            }
            cmd!(c, "DEL", "fresh");
        }
        assert_same(&chain);
    }
}

#[test]
fn a_block_does_not_hide_whose_state_it_is() {
    let server = recorder();
    let mut c = server.conn();
    for ((held, policy, _), (wanted, other)) in pairs() {
        cmd!(c, "DEL", "k");
        c.cmd(&words(&call(policy, 10)));
        cmd!(c, "RL.BLOCK", "k", 60_000);
        let error = format!("ERR key holds a {held} limiter, not {wanted}");
        refuses(&server, &error, &commands(other));
        // Drained below the block: then it is only blocked.
        server.clock().advance_ms(2000);
        let denied = five([0, 10, 0, 58_000, 58_000]);
        answers(&server, &[(&call(other, 1), denied)]);
    }
}

#[test]
fn a_reset_makes_room_for_another_algorithm() {
    let server = single();
    let mut c = server.conn();
    for ((_, policy, _), (_, other)) in pairs() {
        cmd!(c, "DEL", "k");
        c.cmd(&words(&call(policy, 10)));
        assert_eq!(cmd!(c, "RL.RESET", "k"), int(1));
        assert_eq!(c.cmd(&words(&call(other, 10))).items()[0], int(1));
    }
}

// --- another limit, another window ---

#[test]
fn a_raised_limit_counts_what_is_used_and_a_lowered_one_denies() {
    let server = single();
    let mut c = server.conn();
    for (key, algorithm, resets) in [
        ("f", "FIXEDWINDOW", [1000, 1000, 1000]),
        ("s", "SLIDINGWINDOW", [2000, 2000, 2000]),
        ("l", "SLIDINGLOG", [1000, 1000, 1000]),
    ] {
        let line = |limit: i64| format!("RL.{algorithm} {key} {limit} 1000");
        let [first, raised, lowered] = resets;
        assert_eq!(admitted(&mut c, &line(5), 9), 5, "{algorithm}");
        run(
            &mut c,
            &[
                (
                    &format!("RL.PEEK {key} {algorithm} 8 1000"),
                    [1, 8, 3, 0, first],
                ),
                (&format!("{} COST 3", line(8)), [1, 8, 0, 0, raised]),
            ],
        );
        let denied = c.cmd(&words(&line(3)));
        assert_eq!(denied.items()[..3], [int(0), int(3), int(0)], "{algorithm}");
        assert_eq!(denied.items()[4], int(lowered), "{algorithm}");
        assert_eq!(cmd!(c, "RL.INFO", key).field("limit"), &int(8));
    }
    // One window later the fixed one is empty, half of the sliding one's eight weigh.
    server.clock().advance_ms(1500);
    run(
        &mut c,
        &[
            ("RL.FIXEDWINDOW f 3 1000", [1, 3, 2, 0, 1000]),
            ("RL.SLIDINGWINDOW s 3 1000", [0, 3, 0, 250, 500]),
            ("RL.SLIDINGLOG l 3 1000", [1, 3, 2, 0, 1000]),
        ],
    );
}

#[test]
fn another_window_reads_the_start_the_counts_and_the_entries_as_its_own() {
    let server = single();
    let mut c = server.conn();
    for algorithm in ["FIXEDWINDOW", "SLIDINGWINDOW", "SLIDINGLOG"] {
        let key = algorithm;
        c.cmd(&words(&format!("RL.{algorithm} {key} 5 1000 COST 5")));
    }
    server.clock().advance_ms(600);
    run(
        &mut c,
        &[
            // Half a second is over already, a minute is not.
            ("RL.PEEK FIXEDWINDOW FIXEDWINDOW 5 500", [1, 5, 5, 0, 0]),
            (
                "RL.PEEK FIXEDWINDOW FIXEDWINDOW 5 60000",
                [0, 5, 0, 59_400, 59_400],
            ),
            ("RL.PEEK SLIDINGLOG SLIDINGLOG 5 500", [1, 5, 5, 0, 0]),
            (
                "RL.PEEK SLIDINGLOG SLIDINGLOG 5 60000",
                [0, 5, 0, 59_400, 59_400],
            ),
            // 100 ms into the window after it, of which 400 ms weigh.
            (
                "RL.PEEK SLIDINGWINDOW SLIDINGWINDOW 5 500",
                [1, 5, 1, 0, 400],
            ),
        ],
    );
    // A denial under a longer window keeps the key for as long, and stores nothing.
    for algorithm in ["FIXEDWINDOW", "SLIDINGLOG"] {
        let line = format!("RL.{algorithm} {algorithm} 5 60000");
        let before = digest_of(&mut c, algorithm);
        run(&mut c, &[(&line, [0, 5, 0, 59_400, 59_400])]);
        assert_eq!(digest_of(&mut c, algorithm), before);
        let end = deadline_ms(server.clock().now_us(), 59_400_000);
        assert_eq!(cmd!(c, "PEXPIRETIME", algorithm), int(end), "{line}");
        assert_eq!(cmd!(c, "RL.INFO", algorithm).field("window_ms"), &int(1000));
    }
}
