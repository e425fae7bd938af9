//! RL.ALL: several limiters, of which all are charged or none.

use crate::limiter_support::*;
use crate::support::*;

const NUMKEYS: &str = "ERR numkeys must be an integer between 1 and 64";
const TOO_FEW: &str = "ERR numkeys is more than the keys that follow";
const TWICE: &str = "ERR the same key is given twice";

/// The reply: allowed, binding, and the five of each.
fn all<const N: usize>(allowed: i64, binding: i64, fives: [[i64; 5]; N]) -> Reply {
    let fives = fives.map(five);
    array([int(allowed), int(binding)].into_iter().chain(fives))
}

#[track_caller]
fn runs(conn: &mut Conn, line: &str, expected: Reply) {
    assert_eq!(conn.cmd(&words(line)), expected, "{line}");
}

// --- replies ---

#[test]
fn the_reply_has_the_verdict_of_each_policy() {
    let server = single();
    for (n, mut c) in [server.conn(), server.conn3()].into_iter().enumerate() {
        let line = format!(
            "RL.ALL 3 a{n} b{n} c{n} GCRA 2 1 1000 FIXEDWINDOW 9 60000 COST 4 \
             SLIDINGLOG 7 500 COST 2"
        );
        let fives = |a, b, c| [[1, 2, a, 0, 1000 * (2 - a)], b, c];
        runs(
            &mut c,
            &line,
            all(1, -1, fives(1, [1, 9, 5, 0, 60_000], [1, 7, 5, 0, 500])),
        );
        runs(
            &mut c,
            &line,
            all(1, -1, fives(0, [1, 9, 1, 0, 60_000], [1, 7, 3, 0, 500])),
        );
        // Two deny, the window for longer. Each five is what a peek says, that of the third too.
        let denied = [
            [0, 2, 0, 1000, 2000],
            [0, 9, 1, 60_000, 60_000],
            [1, 7, 3, 0, 500],
        ];
        runs(&mut c, &line, all(0, 1, denied));
        runs(&mut c, &line, all(0, 1, denied));
        for (key, policy, five_of) in [
            ("a", "GCRA 2 1 1000", denied[0]),
            ("b", "FIXEDWINDOW 9 60000 COST 4", denied[1]),
            ("c", "SLIDINGLOG 7 500 COST 2", denied[2]),
        ] {
            run(&mut c, &[(&format!("RL.PEEK {key}{n} {policy}"), five_of)]);
        }
    }
}

#[test]
fn one_policy_is_a_call() {
    let server = single();
    let mut c = server.conn();
    for (policy, reset_ms) in [
        ("GCRA 5 5 1000", 600),
        ("TOKENBUCKET 5 5 1000", 600),
        ("LEAKYBUCKET 5 5 1000", 600),
        ("FIXEDWINDOW 5 1000", 1000),
        ("FIXEDWINDOW 5 31536000000 COST 3", MAX_PERIOD_MS),
        ("SLIDINGWINDOW 5 1000", 2000),
        ("SLIDINGLOG 5 1000", 1000),
    ] {
        cmd!(c, "DEL", "k", "l");
        let cost = if policy.contains("COST") {
            ""
        } else {
            " COST 3"
        };
        let line = format!("RL.ALL 1 k {policy}{cost}");
        runs(&mut c, &line, all(1, -1, [[1, 5, 2, 0, reset_ms]]));
        let (algorithm, numbers) = policy.split_once(' ').expect("numbers");
        c.cmd(&words(&format!("RL.{algorithm} l {numbers}{cost}")));
        assert_eq!(digest_of(&mut c, "k"), digest_of(&mut c, "l"), "{policy}");
    }
}

#[test]
fn a_queue_says_its_hold_among_others() {
    let server = single();
    let mut c = server.conn();
    let line = "RL.ALL 2 q w LEAKYBUCKET 3 10 1000 FIXEDWINDOW 2 1000";
    runs(
        &mut c,
        line,
        all(1, -1, [[1, 3, 2, 0, 100], [1, 2, 1, 0, 1000]]),
    );
    runs(
        &mut c,
        line,
        all(1, -1, [[1, 3, 1, 100, 200], [1, 2, 0, 0, 1000]]),
    );
    // Only the window denies; the queue would hold it.
    runs(
        &mut c,
        line,
        all(0, 1, [[1, 3, 1, 200, 200], [0, 2, 0, 1000, 1000]]),
    );
}

/// rate-limiter-flexible#280 and its like: several limits, one denies, and the others were charged.
#[test]
fn whichever_denies_nothing_is_charged() {
    let server = recorder();
    let mut c = server.conn();
    // Sizes and positions.
    for count in 1..=8 {
        for denying in 0..count {
            cmd!(c, "FLUSHALL");
            let keys: Vec<_> = (0..count).map(|i| format!("k{i}")).collect();
            // Every algorithm somewhere.
            let policies: Vec<_> = (0..count).map(|i| POLICIES[(i + denying) % 6]).collect();
            let line = format!("RL.ALL {count} {} {}", keys.join(" "), policies.join(" "));
            let (algorithm, numbers) = policies[denying].split_once(' ').expect("numbers");
            let fill = format!("RL.{algorithm} k{denying} {numbers} COST 5");
            assert_eq!(c.cmd(&words(&fill)).items()[0], int(1));
            let reply = changes_nothing(&server, || c.cmd(&words(&line)));
            assert_eq!(reply.items().len(), 2 + count);
            assert_eq!(reply.items()[..2], [int(0), int(denying as i64)], "{line}");
            for (i, five) in reply.items()[2..].iter().enumerate() {
                let [allowed, remaining] = [0, 2].map(|at| five.items()[at].as_int());
                let expected = if i == denying { [0, 0] } else { [1, 5] };
                assert_eq!([allowed, remaining], expected, "{i} of {line}");
            }
            assert_eq!(cmd!(c, "DBSIZE"), int(1), "{line}");
        }
    }
}

const POLICIES: [&str; 6] = [
    "GCRA 5 1 60000",
    "FIXEDWINDOW 5 60000",
    "SLIDINGWINDOW 5 60000",
    "SLIDINGLOG 5 60000",
    "TOKENBUCKET 5 1 60000",
    "LEAKYBUCKET 5 1 60000",
];

#[test]
fn the_longest_wait_binds_and_the_first_of_equal_ones() {
    let server = single();
    let mut c = server.conn();
    for (a, b, d) in [
        ("GCRA 1 1 1000", "GCRA 1 1 2000", "GCRA 1 1 3000"),
        ("GCRA 1 1 3000", "GCRA 1 1 2000", "GCRA 1 1 1000"),
        ("GCRA 1 1 2000", "GCRA 1 1 3000", "GCRA 1 1 1000"),
        ("GCRA 1 1 3000", "GCRA 1 1 3000", "GCRA 1 1 1000"),
        ("GCRA 1 1 1000", "GCRA 1 1 3000", "GCRA 1 1 3000"),
        ("GCRA 1 1 3000", "FIXEDWINDOW 1 3000", "SLIDINGLOG 1 3000"),
        ("GCRA 1 1 1000", "FIXEDWINDOW 1 3000", "SLIDINGLOG 1 3000"),
        // In µs: 333.333… and 333.334 ms are the same in the reply.
        ("GCRA 1 3 1000", "GCRA 1 500000 167000000", "GCRA 1 1 1"),
        ("GCRA 1 1 1000", "GCRA 5 1 60000", "GCRA 5 1 60000"),
    ] {
        cmd!(c, "DEL", "a", "b", "d");
        let line = format!("RL.ALL 3 a b d {a} {b} {d}");
        assert_eq!(c.cmd(&words(&line)).items()[0], int(1), "{line}");
        let reply = c.cmd(&words(&line));
        // By hand: the first of the longest waits.
        let waits: Vec<_> = [a, b, d].map(wait_us).to_vec();
        let longest = waits.iter().max().expect("three");
        let binding = waits.iter().position(|wait| wait == longest);
        let binding = binding.expect("it is one of them") as i64;
        assert_eq!(reply.items()[..2], [int(0), int(binding)], "{line}");
    }
}

/// After a call of 1, how long the next one waits.
fn wait_us(policy: &str) -> i64 {
    let words: Vec<&str> = policy.split(' ').collect();
    let number = |at: usize| words[at].parse::<i64>().expect("a number");
    match words[0] {
        "GCRA" if number(1) > 1 => 0,
        "GCRA" => (number(3) * 1000 + number(2) - 1) / number(2),
        _ => number(2) * 1000,
    }
}

#[test]
fn several_bands_of_one_client_are_one_call() {
    let server = single();
    let mut c = server.conn();
    let line = "RL.ALL 2 s m GCRA 10 10 1000 GCRA 100 100 60000";
    let mut count = 0;
    // Ten a second, and a hundred a minute, of which 100 at once and 1.667 a second after that.
    for _ in 0..120 {
        count += (0..12)
            .filter(|_| c.cmd(&words(line)).items()[0] == int(1))
            .count();
        server.clock().advance_ms(500);
    }
    assert_eq!(count, 100 + 99);
}

#[test]
fn blocked_keys_deny_and_bind() {
    let server = recorder();
    let mut c = server.conn();
    let line = "RL.ALL 3 a b d GCRA 1 1 1000 FIXEDWINDOW 1 1000 SLIDINGLOG 1 1000";
    cmd!(c, "RL.BLOCK", "b", 700);
    let free = |limit, remaining| [1, limit, remaining, 0, 0];
    answers(
        &server,
        &[(
            line,
            all(0, 1, [free(1, 1), [0, 1, 0, 700, 700], free(1, 1)]),
        )],
    );
    cmd!(c, "RL.GCRA", "a", 1, 1, 1000);
    answers(
        &server,
        &[(
            line,
            all(
                0,
                0,
                [[0, 1, 0, 1000, 1000], [0, 1, 0, 700, 700], free(1, 1)],
            ),
        )],
    );
    cmd!(c, "RL.BLOCK", "d", 5000);
    let reply = c.cmd(&words(line));
    assert_eq!(reply.items()[..2], [int(0), int(2)]);
    server.clock().advance_ms(5000);
    assert_eq!(c.cmd(&words(line)).items()[..2], [int(1), int(-1)]);
}

// --- arguments ---

#[test]
fn costs_and_offsets_belong_to_the_policy_before_them() {
    let server = own(Options::new());
    let mut c = server.conn();
    let day = 86_400_000;
    runs(
        &mut c,
        &format!(
            "rl.all 4 a b c d fixedwindow 9 {day} align 0 cost 2 FixedWindow 9 {day} COST 3 \
             ALIGN 7200000 gcra 9 9 9000 Cost 4 FIXEDWINDOW 9 {day}"
        ),
        all(
            1,
            -1,
            [
                [1, 9, 7, 0, 73_599_877],
                [1, 9, 6, 0, 80_799_877],
                [1, 9, 5, 0, 4000],
                [1, 9, 8, 0, day],
            ],
        ),
    );
}

#[test]
fn as_many_as_64_keys_are_taken() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let line = |count: usize| {
        let keys: Vec<_> = (0..count).map(|i| format!("k{i}")).collect();
        let policies: Vec<_> = (0..count).map(|i| POLICIES[i % 6]).collect();
        format!("RL.ALL {count} {} {}", keys.join(" "), policies.join(" "))
    };
    for n in 1..=5 {
        let reply = c.cmd(&words(&line(64)));
        assert_eq!(reply.items().len(), 66);
        assert_eq!(reply.items()[..2], [int(1), int(-1)]);
        assert!(reply.items()[2..]
            .iter()
            .all(|five| five.items()[2] == int(5 - n)));
    }
    let denied = c.cmd(&words(&line(64)));
    assert_eq!(denied.items()[0], int(0));
    assert_eq!(cmd!(c, "DBSIZE"), int(64));
    assert_eq!(c.cmd(&words(&line(65))), err(NUMKEYS));
    assert_same(&chain);
}

#[test]
fn what_does_not_fit_is_an_error_and_charges_nothing() {
    let server = half_used();
    let mut c = server.conn();
    cmd!(c, "SET", "string", "v");
    cmd!(c, "RL.FIXEDWINDOW", "window", 10, 60_000);
    cmd!(c, "LOCK.ACQUIRE", "lock", "me", HOUR_MS);
    let g = "GCRA 10 10 1000";
    let arity = wrong_arity("rl.all");
    for (error, lines) in [
        (
            NUMKEYS,
            vec![
                format!("RL.ALL 0 k {g}"),
                format!("RL.ALL -1 k {g}"),
                format!("RL.ALL x k {g}"),
                format!("RL.ALL  k {g}"),
                format!("RL.ALL 01 k {g}"),
                format!("RL.ALL 65 k {g}"),
                format!("RL.ALL 99999999999999999999 k {g}"),
            ],
        ),
        (
            TOO_FEW,
            vec![format!("RL.ALL 6 k {g}"), format!("RL.ALL 64 k {g}")],
        ),
        (
            TWICE,
            vec![
                format!("RL.ALL 2 k k {g} {g}"),
                format!("RL.ALL 3 a k a {g} {g} {g}"),
                format!("RL.ALL 3   k {g} {g} {g}"),
            ],
        ),
        (
            &arity,
            vec![
                // One policy for two keys, and half of one.
                format!("RL.ALL 2 k l {g}"),
                format!("RL.ALL 2 k l {g} COST 2"),
                format!("RL.ALL 2 k l {g} GCRA 10 10"),
                format!("RL.ALL 2 k l {g} FIXEDWINDOW 10"),
            ],
        ),
        (
            SYNTAX,
            vec![
                // Three policies for two keys, and what is none.
                format!("RL.ALL 2 k l {g} {g} {g}"),
                format!("RL.ALL 1 k {g} {g}"),
                format!("RL.ALL 1 k {g} COST"),
                format!("RL.ALL 1 k {g} COST 1 COST 1"),
                format!("RL.ALL 1 k {g} ALIGN 0"),
                format!("RL.ALL 2 k l FIXEDWINDOW 1 1 ALIGN 0 ALIGN 0 {g}"),
                format!("RL.ALL 2 k l {g} COST 1 FOO 10 10 1000"),
                format!("RL.ALL 2 k l {g} RL.GCRA 10 10 1000"),
                format!("RL.ALL 2 k l {g} CL.THROTTLE 10 10 1000"),
                // A key too many is taken for a policy.
                format!("RL.ALL 1 k l {g}"),
            ],
        ),
        (
            "ERR count must be an integer between 1 and 1000000000",
            vec![
                format!("RL.ALL 2 k l {g} GCRA 10 0 1000"),
                format!("RL.ALL 2 k l GCRA 10 0 1000 GCRA 10 0 0"),
            ],
        ),
        (
            "ERR COST 11 is above the limit of 10: it can never be admitted",
            vec![
                format!("RL.ALL 2 k l {g} COST 11 {g}"),
                format!("RL.ALL 2 k l {g} {g} COST 11"),
            ],
        ),
        (
            "ERR a full bucket must drain within 100 years: check the policy",
            vec![format!("RL.ALL 2 k l {g} GCRA 101 1 31536000000")],
        ),
        (
            WRONG_TYPE,
            ["string", "lock"]
                .into_iter()
                .flat_map(|key| {
                    [
                        format!("RL.ALL 3 {key} k new {g} {g} {g}"),
                        format!("RL.ALL 3 k {key} new {g} {g} {g}"),
                        format!("RL.ALL 3 k new {key} {g} {g} {g}"),
                    ]
                })
                .collect(),
        ),
        (
            "ERR key holds a FIXEDWINDOW limiter, not bucket",
            vec![
                format!("RL.ALL 3 window k new {g} {g} {g}"),
                format!("RL.ALL 3 k window new {g} {g} {g}"),
                format!("RL.ALL 3 k new window {g} {g} {g}"),
                // Also if another denies.
                format!("RL.ALL 2 k window {g} COST 10 {g}"),
            ],
        ),
    ] {
        refuses(&server, error, &lines);
    }
    refuses(
        &server,
        &wrong_arity("rl.all"),
        &[
            "RL.ALL",
            "RL.ALL 1",
            "RL.ALL 1 k",
            "RL.ALL 1 k FIXEDWINDOW 10",
        ],
    );
    assert_eq!(cmd!(c, "EXISTS", "l", "new", "a"), int(0));
}
