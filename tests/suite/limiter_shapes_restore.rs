//! RESTORE of every shape of a limiter: a payload that is taken is a limiter that works.

use crate::limiter_support::*;
use crate::support::*;

pub(crate) const YEAR_MS: u64 = MAX_PERIOD_MS as u64;
pub(crate) const YEAR_US: i64 = MAX_PERIOD_MS * 1000;
pub(crate) const MOST: u32 = MAX_TOKENS as u32;
/// Counts stop here.
pub(crate) const MAX_COUNT: u64 = 1 << 53;
/// Instants are below this.
pub(crate) const END_OF_TIME: i64 = 1 << 61;
/// The most that a log can have counted.
pub(crate) const MAX_SPENT: u64 = 1 << 53;
pub(crate) const POLICY: (u32, u64) = (10, 60_000);

pub(crate) fn bad() -> Reply {
    err("ERR Bad data format")
}

/// A body of each shape, in use at `now`.
pub(crate) fn samples(now: i64) -> Vec<(&'static str, Vec<u8>)> {
    let t = now as u64;
    let entries = |count: u64| -> Vec<(u64, u64)> {
        (1..=count).map(|i| (t - count + i, 100 + 2 * i)).collect()
    };
    let open = [
        ("bucket", Bucket::owing(4, now, (9, 10, 60_000)).body()),
        ("overdraft", Bucket::owing(40, now, (9, 10, 60_000)).body()),
        ("fixed", fixed_window(POLICY, now, 3)),
        ("sliding", sliding_window(POLICY, now, [3, 4])),
        ("short", sliding_log(POLICY, 100, &entries(3))),
        // In the second chunk.
        ("long", sliding_log(POLICY, 100, &entries(260))),
    ];
    let mut all = open.to_vec();
    for (name, body) in &open {
        all.push((name, blocked(now, now + 5_000_000, body)));
    }
    all.push(("only blocked", blocked(now, now + 5_000_000, UNUSED)));
    all
}

/// Uses whatever limiter is in `k` in every way there is: five integers or an error that says why,
/// and what is then stored can be loaded again, here and on replicas.
#[track_caller]
fn works(c: &mut Conn, name: &str) {
    for policy in [
        "GCRA 9 10 60000",
        "TOKENBUCKET 1000000000 10000000 31536000000",
        "LEAKYBUCKET 1 1 1",
        "FIXEDWINDOW 10 60000",
        "FIXEDWINDOW 1000000000 31536000000 ALIGN 31536000000",
        "SLIDINGWINDOW 10 60000",
        "SLIDINGWINDOW 1 1",
        "SLIDINGLOG 10 60000",
        "SLIDINGLOG 100000 31536000000",
    ] {
        let call = policy.replacen(' ', " k ", 1);
        for line in [
            format!("RL.PEEK k {policy}"),
            format!("RL.{call}"),
            format!("RL.CHARGE k {policy} COST 1000000000"),
            format!("RL.REFUND k {policy}"),
            format!("RL.ALL 1 k {policy}"),
            "RL.INFO k".to_string(),
        ] {
            let reply = c.cmd(&words(&line));
            match &reply {
                Reply::Error(text) => assert!(
                    text.contains("limiter, not") || text.contains("100 years"),
                    "{name}, {line}: {text}"
                ),
                Reply::Array(items)
                    if line.starts_with("RL.INFO") || line.starts_with("RL.ALL") =>
                {
                    assert!(items.len() > 2, "{name}, {line}");
                }
                Reply::Array(items) => {
                    let negative = items.iter().find(|item| item.as_int() < 0);
                    assert_eq!(negative, None, "{name}, {line}: {reply:?}");
                }
                other => assert!(other.is_nil(), "{name}, {line}: {other:?}"),
            }
        }
        if cmd!(c, "EXISTS", "k") == int(1) {
            let payload = dump_of(c, "k");
            let again = cmd!(c, "RESTORE", "again", 0, &payload, "REPLACE");
            assert_eq!(again, ok(), "{name}, {policy}");
            assert_eq!(dump_of(c, "again"), payload, "{name}, {policy}");
        }
    }
    assert!(!cmd!(c, "RL.BLOCK", "k", 1000).is_error());
    assert!(!cmd!(c, "RL.RESET", "k", "again").is_error());
}

/// Each body, as of now, must come back as the same bytes, and work, on replicas too.
#[track_caller]
fn accepted(bodies: impl Fn(i64) -> Vec<(&'static str, Vec<u8>)>) {
    let chain = chain();
    let now = chain.clock().now_us();
    let mut c = chain.primary.conn();
    cmd!(c, "CONFIG", "SET", "rdbcompression", "no");
    for (name, body) in bodies(now) {
        let payload = limiter_dump(&body);
        assert_eq!(cmd!(c, "RESTORE", "k", 0, &payload), ok(), "{name}");
        let (found, len) = (dump_of(&mut c, "k"), payload.len() - 10);
        assert_eq!(found[..len], payload[..len], "{name}");
        works(&mut c, name);
        chain.assert_equal();
        for server in chain.servers() {
            assert_eq!(counter(server, "effects_refused"), 0, "{name}");
        }
    }
}

#[test]
fn each_shape_is_stored_as_it_was_written_down() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "CONFIG", "SET", "rdbcompression", "no");
    let t = server.clock().now_us();
    let mut holds = |lines: &[&str], body: &[u8]| {
        for line in lines {
            assert!(!c.cmd(&words(line)).is_error(), "{line}");
        }
        let (found, expected) = (dump_of(&mut c, "k"), limiter_dump(body));
        let len = expected.len() - 10;
        assert_eq!(found[..len], expected[..len], "{lines:?}");
    };
    let below = Bucket::owing(40, t, (9, 10, 60_000)).body();
    holds(&["RL.CHARGE k GCRA 9 10 60000 COST 40"], &below);
    holds(&["RL.BLOCK k 5000"], &blocked(t, t + 5_000_000, &below));
    holds(
        &["RL.RESET k", "RL.FIXEDWINDOW k 10 60000 COST 3"],
        &fixed_window(POLICY, t, 3),
    );
    holds(
        &["RL.RESET k", "RL.BLOCK k 5000"],
        &blocked(t, t + 5_000_000, UNUSED),
    );
    holds(&["RL.RESET k", "RL.SLIDINGWINDOW k 10 60000 COST 4"], &{
        sliding_window(POLICY, t, [4, 0])
    });
    server.clock().advance_ms(60_000);
    let t = t + 60_000_000;
    holds(&["RL.SLIDINGWINDOW k 10 60000 COST 3"], &{
        sliding_window(POLICY, t, [3, 4])
    });
    holds(&["RL.RESET k", "RL.SLIDINGLOG k 10 60000 COST 2"], &{
        sliding_log(POLICY, 0, &[(t as u64, 2)])
    });
    server.clock().advance_us(59_999_999);
    let last = t as u64 + 59_999_999;
    holds(&["RL.SLIDINGLOG k 10 60000"], &{
        sliding_log(POLICY, 0, &[(t as u64, 2), (last, 3)])
    });
    server.clock().advance_us(1);
    holds(&["RL.SLIDINGLOG k 10 60000"], &{
        sliding_log(POLICY, 2, &[(last, 3), (last + 1, 4)])
    });
}

#[test]
fn every_changed_byte_of_every_shape_is_refused_or_means_another_limiter() {
    let server = single();
    let mut c = server.conn();
    let mut counts = [0, 0];
    for (name, body) in samples(server.clock().now_us()) {
        // Of a long log the head, and an entry at each end of a chunk.
        let places = (0..body.len()).filter(|at| body.len() < 1000 || at % 251 < 60);
        for at in places {
            for flip in [1, 0x80, 0xff] {
                let mut changed = body.clone();
                changed[at] ^= flip;
                let reply = cmd!(c, "RESTORE", "k", 0, limiter_dump(&changed));
                let shown = format!("{name}, byte {at} flipped by {flip}");
                counts[usize::from(reply.is_error())] += 1;
                if reply.is_error() {
                    assert_eq!(reply, bad(), "{shown}");
                    continue;
                }
                works(&mut c, &shown);
            }
        }
    }
    let [taken, refused] = counts;
    println!("{taken} are limiters, {refused} are not");
    assert!(taken > 500 && refused > 500, "{counts:?}");
    assert_eq!(counter(&server, "rl_keys"), 0);
}

#[test]
fn the_largest_numbers_of_every_shape_work() {
    let last = END_OF_TIME - 1;
    let most = (MOST, YEAR_MS);
    accepted(|t| {
        vec![
            (
                "fixed at the end of time",
                fixed_window(most, last, MAX_COUNT),
            ),
            ("fixed at the epoch", fixed_window(most, 0, 1)),
            ("fixed, shortest", fixed_window((1, 1), t, MAX_COUNT)),
            (
                "sliding at the end of time",
                sliding_window(most, last, [MAX_COUNT; 2]),
            ),
            ("sliding, full", sliding_window(most, t, [MAX_COUNT; 2])),
            (
                "sliding, shortest",
                sliding_window((1, 1), t, [MAX_COUNT; 2]),
            ),
            (
                "sliding, previous only",
                sliding_window(POLICY, t, [0, MAX_COUNT]),
            ),
            (
                "log at both ends",
                sliding_log(most, 0, &[(0, 1), (last as u64, 2)]),
            ),
            ("log around the end of u64", {
                sliding_log(
                    POLICY,
                    u64::MAX - 1,
                    &[(t as u64 - 1, u64::MAX), (t as u64, 3)],
                )
            }),
            (
                "log with a limit above the setting",
                sliding_log(most, 0, &[(t as u64, 1)]),
            ),
            ("block of no length", blocked(t, t, UNUSED)),
            ("block at the end of time", blocked(last, last, UNUSED)),
            (
                "block of a year",
                blocked(t, t + YEAR_US, &fixed_window(most, last, MAX_COUNT)),
            ),
            (
                "block ahead of the clock",
                blocked(last - YEAR_US, last, UNUSED),
            ),
            (
                "block long over",
                blocked(0, 1, &sliding_window(POLICY, t, [1, 1])),
            ),
        ]
    });
}

/// Else the server would not start from its own file, and replicas would refuse the effect.
#[track_caller]
fn can_be_loaded(chain: &sluice_testbed::Chain) {
    chain.assert_equal();
    for server in chain.servers() {
        assert_eq!(counter(server, "effects_refused"), 0);
    }
    let mut c = chain.primary.conn();
    if cmd!(c, "EXISTS", "k") == int(1) {
        let payload = dump_of(&mut c, "k");
        assert_eq!(cmd!(c, "RESTORE", "again", 0, payload), ok());
        assert_eq!(cmd!(c, "DEBUG", "RELOAD"), ok());
    }
}

/// However much a log has counted, what it becomes can be stored and loaded.
#[test]
fn the_largest_total_of_a_log_works() {
    accepted(|t| {
        vec![
            (
                "log, all at once",
                sliding_log(POLICY, 0, &[(t as u64, MAX_SPENT)]),
            ),
            (
                "log, all but one",
                sliding_log(
                    POLICY,
                    5,
                    &[(t as u64 - 1, MAX_SPENT), (t as u64, MAX_SPENT + 4)],
                ),
            ),
        ]
    });
}

/// A charge that drains in a few years is an overdraft of a billion years at the rate of another
/// caller, who gives one token back. What is owed then is what drains in 100 years.
#[test]
fn an_overdraft_given_back_under_a_slower_policy_can_be_loaded() {
    for refund in [
        "RL.REFUND k GCRA 5 1 31536000000",
        "RL.REFUND k TOKENBUCKET 5 1 31536000000 COST 5",
        "CL.THROTTLE k 4 1 31536000 -1",
    ] {
        let chain = chain();
        let mut c = chain.primary.conn();
        let charge = "RL.CHARGE k GCRA 5 5 1000 COST 1000000000";
        assert!(!c.cmd(&words(charge)).is_error());
        let century_s = 100 * MAX_PERIOD_MS / 1000;
        let expected = match refund.starts_with("RL") {
            true => [1, 5, 0, 0, century_s * 1000],
            false => [0, 5, 0, -1, century_s],
        };
        assert_eq!(c.cmd(&words(refund)), five(expected), "{refund}");
        can_be_loaded(&chain);
        // And nobody has found quota: 96 years until one fits.
        run(
            &mut c,
            &[(
                "RL.PEEK k GCRA 5 1 31536000000",
                [0, 5, 0, 96 * MAX_PERIOD_MS, century_s * 1000],
            )],
        );
    }
}

/// The same with the largest overdraft there is, whose ticks at another rate do not fit.
#[test]
fn the_largest_overdraft_is_not_cut_short_by_a_refund_under_another_policy() {
    let chain = chain();
    let now = chain.clock().now_us();
    let mut c = chain.primary.conn();
    let mut most = Bucket::owing(0, now, (5, MOST, 1));
    most.debt = 100 * YEAR_US as u128 * u128::from(MOST);
    assert_eq!(cmd!(c, "RESTORE", "k", 0, limiter_dump(&most.body())), ok());
    let refund = "RL.REFUND k GCRA 5 1000000000 31536000000";
    run(&mut c, &[(refund, [1, 5, 0, 0, 100 * MAX_PERIOD_MS])]);
    can_be_loaded(&chain);
    let peek = c.cmd(&words("RL.PEEK k GCRA 5 1000000000 31536000000"));
    assert_eq!(peek.items()[..3], [int(0), int(5), int(0)]);
    assert_eq!(peek.items()[4], int(100 * MAX_PERIOD_MS));
}

#[test]
fn a_server_starts_with_what_the_largest_total_became() {
    let server = own(Options::new());
    let mut c = server.conn();
    let body = sliding_log(POLICY, 0, &[(T_US as u64, MAX_SPENT)]);
    assert_eq!(cmd!(c, "RESTORE", "k", 0, limiter_dump(&body)), ok());
    let charge = cmd!(c, "RL.CHARGE", "k", "SLIDINGLOG", 10, 60_000);
    assert_eq!(charge, five([0, 10, 0, 60_000, 60_000]));
    assert_eq!(cmd!(c, "RL.INFO", "k").field("used"), &int(1 << 53));
    let before = digest(&server);
    server.restart_saving();
    assert_eq!(digest(&server), before);
}
