//! sluice.rl-replication-interval-ms with windows, logs and blocks.

use crate::limiter_interval::{apart, undisturbed};
use crate::limiter_support::*;
use crate::support::*;

/// The remaining of a peek.
#[track_caller]
fn remaining(server: &Server, peek: &str) -> i64 {
    let reply = server.conn().cmd(&words(peek));
    reply.items()[2].as_int()
}

#[test]
fn a_hot_window_sends_its_whole_count_once_an_interval() {
    type Body = fn(i64, u64) -> Vec<u8>;
    const POLICY: (u32, u64) = (1000, 60_000);
    let fixed: Body = |start, count| fixed_window(POLICY, start, count);
    let sliding: Body = |start, count| sliding_window(POLICY, start, [count, 0]);
    for (algorithm, body) in [("FIXEDWINDOW", fixed), ("SLIDINGWINDOW", sliding)] {
        undisturbed(|| {
            let chain = chain();
            let mut c = apart(&chain, 1000);
            let mut tap = Tap::on(&chain);
            let start = chain.clock().now_us();
            let call = words(&format!("RL.{algorithm} k 1000 60000"));
            c.cmd(&call);
            assert_eq!(tap.take(), [limiter_effect("k", start, &body(start, 1))]);
            let mut sent = Vec::new();
            for n in 1..=35 {
                chain.clock().advance_ms(100);
                c.cmd(&call);
                let new = tap.take();
                if !new.is_empty() {
                    let now = start + n * 100_000;
                    let state = body(start, n as u64 + 1);
                    assert_eq!(new, [limiter_effect("k", now, &state)]);
                    assert_same(&chain);
                    sent.push(n * 100);
                }
            }
            assert_eq!(sent, [1000, 2000, 3000]);
        });
    }
}

/// The newest entry has what was not sent before: on the replica the calls of an interval are one,
/// at the last of their instants.
#[test]
fn a_hot_log_sends_the_newest_total_once_an_interval() {
    undisturbed(|| {
        let chain = chain();
        let mut c = apart(&chain, 400);
        let mut tap = Tap::on(&chain);
        let start = chain.clock().now_us();
        let policy = (1000, 60_000);
        let call = words("RL.SLIDINGLOG k 1000 60000");
        c.cmd(&call);
        let first = log_step(policy, 0, 0, (start, 1));
        assert_eq!(tap.take(), [limiter_effect("k", start, &first)]);
        let mut sent = Vec::new();
        for n in 1..=25 {
            chain.clock().advance_ms(100);
            c.cmd(&call);
            let new = tap.take();
            if !new.is_empty() {
                let now = start + n * 100_000;
                let step = log_step(policy, 0, now - 100_000, (now, n as u64 + 1));
                assert_eq!(new, [limiter_effect("k", now, &step)]);
                sent.push(n * 100);
                for server in chain.servers() {
                    let peek = "RL.PEEK k SLIDINGLOG 1000 60000";
                    let expected = [1, 1000, 999 - n, 0, 60_000];
                    run(&mut server.conn(), &[(peek, expected)]);
                }
            }
        }
        // A new entry moves the TTL: at once when it is beyond the slack of a second.
        assert_eq!(sent, [400, 800, 1100, 1500, 1900, 2200]);
        let entries = |server: &Server| {
            cmd!(server.conn(), "RL.INFO", "k")
                .field("entries")
                .as_int()
        };
        let found = chain.servers().map(entries);
        assert_eq!(found, [26, 7, 7]);
    });
}

/// What a replica knows of is never younger than it was on the primary.
#[test]
fn a_replica_that_was_caught_up_admits_no_more_than_its_primary() {
    let chain = chain();
    let mut random = Random(86);
    let mut c = apart(&chain, 300);
    for (key, policy) in [
        ("log", "SLIDINGLOG 400 4000"),
        ("fixed", "FIXEDWINDOW 400 4000"),
        ("sliding", "SLIDINGWINDOW 400 4000"),
        ("bucket", "GCRA 400 400 4000"),
    ] {
        let call = format!("RL.{}", policy.replacen(' ', &format!(" {key} "), 1));
        let peek = format!("RL.PEEK {key} {policy}");
        let mut compared = 0;
        for _ in 0..6 {
            // Some calls, of which the last may be held back.
            for _ in 0..20 {
                chain.clock().advance_us(random.below(150_000) as i64);
                let cost = 1 + random.below(9);
                c.cmd(&words(&format!("{call} COST {cost}")));
            }
            // One more, when its interval is over: now the replica has everything.
            chain.clock().advance_ms(300);
            c.cmd(&words(&format!("{call} COST 1")));
            for _ in 0..15 {
                chain.sync();
                let [primary, replica, sub] = chain.servers().map(|s| remaining(s, &peek));
                assert!(replica <= primary, "{policy}: {replica} of {primary}");
                assert_eq!(sub, replica);
                compared += i64::from(replica < primary);
                chain.clock().advance_us(random.below(90_000) as i64);
            }
        }
        // Only of a log the instants matter.
        assert_eq!(compared > 0, key == "log", "{policy}: {compared}");
    }
}

#[test]
fn without_an_interval_logs_agree_again_once_the_old_entries_have_left() {
    let chain = chain();
    let mut c = apart(&chain, HOUR_MS);
    let call = words("RL.SLIDINGLOG k 100 5000");
    for _ in 0..30 {
        chain.clock().advance_ms(30);
        c.cmd(&call);
    }
    chain.sync();
    let digests = |c: &mut Conn| {
        let mut replica = chain.replica.conn();
        [digest_of(c, "k"), digest_of(&mut replica, "k")]
    };
    let [primary, replica] = digests(&mut c);
    assert_ne!(primary, replica);
    apart(&chain, 0);
    for n in 0..51 {
        c.cmd(&call);
        chain.sync();
        let peek = "RL.PEEK k SLIDINGLOG 100 5000";
        assert!(
            remaining(&chain.replica, peek) <= remaining(&chain.primary, peek),
            "{n}"
        );
        chain.clock().advance_ms(100);
    }
    c.cmd(&call);
    chain.sync();
    let [primary, replica] = digests(&mut c);
    assert_eq!(primary, replica);
    assert_same(&chain);
}

#[test]
fn refunds_blocks_resets_and_longer_ttls_go_at_once() {
    for policy in [
        "GCRA 10 10 60000",
        "FIXEDWINDOW 10 60000",
        "SLIDINGWINDOW 10 60000",
        "SLIDINGLOG 10 60000",
    ] {
        let chain = chain();
        let mut c = apart(&chain, HOUR_MS);
        let (algorithm, numbers) = policy.split_once(' ').expect("a policy");
        let call = format!("RL.{algorithm} k {numbers}");
        let is_bucket = algorithm == "GCRA";
        let mut tap = Tap::on(&chain);
        let mut propagated = |line: &str| {
            let reply = c.cmd(&words(line));
            assert!(!reply.is_error(), "{line}: {reply:?}");
            tap.take().len()
        };
        assert_eq!(propagated(&format!("{call} COST 5")), 1);
        // A bucket's TTL grows with each cost.
        let held_back = usize::from(is_bucket);
        assert_eq!(propagated(&call), held_back, "{policy}");
        assert_eq!(propagated(&format!("RL.CHARGE k {policy}")), held_back);
        assert_eq!(propagated(&format!("RL.ALL 1 k {policy}")), held_back);
        assert_eq!(propagated(&format!("RL.REFUND k {policy}")), 1);
        assert_same(&chain);
        assert_eq!(propagated(&format!("RL.REFUND k {policy} COST 3")), 1);
        assert_same(&chain);
        assert_eq!(propagated(&format!("RL.CHARGE k {policy}")), held_back);
        assert_eq!(propagated("RL.BLOCK k 30000"), 1);
        assert_same(&chain);
        assert_eq!(propagated("RL.BLOCK k 20000"), 0);
        assert_eq!(propagated(&format!("RL.CHARGE k {policy}")), held_back);
        assert_eq!(propagated("RL.BLOCK k 90000"), 1);
        assert_same(&chain);
        assert_eq!(propagated(&format!("RL.CHARGE k {policy}")), 0);
        assert_eq!(propagated(&format!("RL.REFUND k {policy}")), 1);
        assert_eq!(propagated(&format!("RL.CHARGE k {policy}")), 0);
        assert_eq!(propagated("RL.RESET k"), 1);
        assert_same(&chain);
        assert_eq!(propagated(&call), 1);
        // Of another policy, and by a denial.
        let longer = policy.replace("60000", "61000");
        assert_eq!(propagated(&format!("RL.CHARGE k {longer} COST 12")), 1);
        assert_same(&chain);
        let denied = call.replace("60000", "3600000");
        assert_eq!(propagated(&denied), 1);
        assert_eq!(propagated(&denied), 0);
        assert_same(&chain);
        // Back to nothing used.
        assert_eq!(propagated(&format!("RL.REFUND k {longer} COST 1000")), 1);
        assert_same(&chain);
        assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
    }
}

#[test]
fn what_a_window_or_a_log_held_back_follows_by_itself() {
    let chain = chain();
    let mut c = apart(&chain, 1000);
    let policies = [
        ("fixed", "FIXEDWINDOW 1000 90000"),
        ("sliding", "SLIDINGWINDOW 1000 90000"),
        ("log", "SLIDINGLOG 1000 90000"),
    ];
    for (key, policy) in policies {
        let line = format!("RL.CHARGE {key} {policy} COST");
        run(
            &mut c,
            &[
                (
                    &format!("{line} 20"),
                    [
                        1,
                        1000,
                        980,
                        0,
                        if key == "sliding" { 180_000 } else { 90_000 },
                    ],
                ),
                (
                    &format!("{line} 500"),
                    [
                        1,
                        1000,
                        480,
                        0,
                        if key == "sliding" { 180_000 } else { 90_000 },
                    ],
                ),
            ],
        );
    }
    // 520 with no call any more.
    chain.clock().advance_ms(30_000);
    for (key, policy) in policies {
        let peek = format!("RL.PEEK {key} {policy}");
        for server in [&chain.replica, &chain.sub] {
            eventually("the replica knows of what was spent", || {
                remaining(server, &peek) == 480
            });
        }
    }
    assert_same(&chain);
}

#[test]
fn a_step_back_is_sent_at_once_whatever_the_shape() {
    for policy in [
        "FIXEDWINDOW 10 60000",
        "SLIDINGWINDOW 10 60000",
        "SLIDINGLOG 10 60000",
    ] {
        let chain = chain();
        let mut c = apart(&chain, HOUR_MS);
        let (algorithm, numbers) = policy.split_once(' ').expect("a policy");
        c.cmd(&words(&format!("RL.CHARGE k {policy} COST 10")));
        c.cmd(&words("RL.BLOCK k 5000"));
        for _ in 0..3 {
            let mut tap = Tap::on(&chain);
            chain.clock().advance_us(-1);
            for _ in 0..2 {
                c.cmd(&words(&format!("RL.{algorithm} k {numbers}")));
            }
            assert_eq!(tap.take().len(), 1, "{policy}");
            assert_same(&chain);
        }
    }
}

/// The key that goes on under another name, or as two, has not been sent yet.
#[test]
fn what_was_held_back_goes_with_the_next_call_under_another_name() {
    for line in ["RENAME k new", "COPY k new", "MOVE k 1", "SWAPDB 0 1"] {
        let chain = chain();
        let mut c = apart(&chain, 1000);
        run(
            &mut c,
            &[
                (
                    "RL.FIXEDWINDOW k 1000 90000 COST 20",
                    [1, 1000, 980, 0, 90_000],
                ),
                (
                    "RL.FIXEDWINDOW k 1000 90000 COST 500",
                    [1, 1000, 480, 0, 90_000],
                ),
            ],
        );
        assert!(!c.cmd(&words(line)).is_error(), "{line}");
        chain.clock().advance_ms(2000);
        let peek = |server: &Server| {
            let mut c = server.conn();
            if ["MOVE", "SWAPDB"].iter().any(|word| line.starts_with(word)) {
                cmd!(c, "SELECT", 1);
                return c.cmd(&words("RL.PEEK k FIXEDWINDOW 1000 90000"));
            }
            c.cmd(&words("RL.PEEK new FIXEDWINDOW 1000 90000"))
        };
        let expected = five([1, 1000, 480, 0, 88_000]);
        assert_eq!(peek(&chain.primary), expected, "{line}");
        // Nothing looks for it under a name that it did not have.
        chain.sync();
        assert_eq!(
            peek(&chain.replica),
            five([1, 1000, 980, 0, 88_000]),
            "{line}"
        );
        let call = match line.split(' ').next() {
            Some("MOVE" | "SWAPDB") => {
                cmd!(c, "SELECT", 1);
                "RL.FIXEDWINDOW k 1000 90000"
            }
            _ => "RL.FIXEDWINDOW new 1000 90000",
        };
        run(&mut c, &[(call, [1, 1000, 479, 0, 88_000])]);
        chain.sync();
        assert_eq!(
            peek(&chain.replica),
            five([1, 1000, 479, 0, 88_000]),
            "{line}"
        );
    }
}
