//! sluice.rl-replication-interval-ms: how often a key sends an effect, and what never waits.

use sluice_testbed::Chain;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::time::{Duration, Instant};

use crate::limiter_support::*;
use crate::support::*;

const INTERVAL: &str = "sluice.rl-replication-interval-ms";

/// What is held back follows by itself on the real clock, once the interval is over by both
/// clocks. A scenario that counts effects therefore says nothing if the machine was too busy
/// to run it at once: then it is run again.
pub(crate) fn undisturbed(scenario: impl Fn()) {
    for _ in 0..5 {
        let started = Instant::now();
        match catch_unwind(AssertUnwindSafe(&scenario)) {
            Ok(()) => return,
            Err(failure) if started.elapsed() < Duration::from_millis(400) => {
                resume_unwind(failure)
            }
            Err(_) => println!("too slow: once more"),
        }
    }
    panic!("too slow five times in a row");
}

/// A chain on which effects of one key are at least `ms` apart.
pub(crate) fn apart(chain: &Chain, ms: i64) -> Conn {
    let mut c = chain.primary.conn();
    assert_eq!(cmd!(c, "CONFIG", "SET", INTERVAL, ms), ok());
    c
}

#[test]
fn the_interval_is_zero_unless_set_and_has_a_range() {
    let server = own(Options::new());
    let mut c = server.conn();
    assert_eq!(
        cmd!(c, "CONFIG", "GET", INTERVAL),
        array([bulk(INTERVAL), bulk("0")])
    );
    for (value, taken) in [
        ("1", true),
        ("3600000", true),
        ("0", true),
        ("1000", true),
        ("-1", false),
        ("3600001", false),
        ("x", false),
        ("", false),
    ] {
        let reply = cmd!(c, "CONFIG", "SET", INTERVAL, value);
        assert_eq!(!reply.is_error(), taken, "{value}: {reply:?}");
    }
    assert_eq!(
        cmd!(c, "CONFIG", "GET", INTERVAL).field(INTERVAL),
        &bulk("1000")
    );
    let configured = Options::new().config(INTERVAL, 250).start();
    let shown = cmd!(configured.conn(), "CONFIG", "GET", INTERVAL);
    assert_eq!(shown.field(INTERVAL), &bulk("250"));
}

#[test]
fn a_hot_key_sends_one_effect_per_interval() {
    undisturbed(|| {
        let chain = chain();
        let mut c = apart(&chain, 1000);
        let start = chain.clock().now_us();
        let mut tap = Tap::on(&chain);
        // Five seconds' worth at once, so that the TTL holds for all that follows.
        let policy = (10_000, 1000, 1000);
        cmd!(c, "RL.GCRA", "k", 10_000, 1000, 1000, "COST", 5000);
        assert_eq!(
            tap.take(),
            [Bucket::owing(5000, start, policy).effect_on("k", start)]
        );
        let mut sent = Vec::new();
        for n in 1..=490 {
            chain.clock().advance_ms(10);
            cmd!(c, "RL.GCRA", "k", 10_000, 1000, 1000);
            let new = tap.take();
            if !new.is_empty() {
                // The whole state, with what was not sent before.
                let now = start + n * 10_000;
                let tokens = 5000 - n * 10 + n;
                let state = Bucket::owing(tokens as u128, now, policy);
                assert_eq!(new, [state.effect_on("k", now)]);
                assert_same(&chain);
                sent.push(n * 10);
            }
        }
        assert_eq!(sent, [1000, 2000, 3000, 4000]);
    });
}

#[test]
fn each_key_has_its_own_interval() {
    undisturbed(|| {
        let chain = chain();
        let mut c = apart(&chain, 1000);
        let mut tap = Tap::on(&chain);
        // 100 ms each, so that the TTL of the first lasts for all that follow.
        let mut effects = |c: &mut Conn, key: &str| {
            cmd!(c, "RL.GCRA", key, 100, 10, 1000);
            tap.take().len()
        };
        cmd!(c, "RL.GCRA", "a", 100, 10, 1000, "COST", 3);
        assert_eq!(effects(&mut c, "a"), 1);
        chain.clock().advance_ms(500);
        assert_eq!(effects(&mut c, "b"), 1);
        assert_eq!(effects(&mut c, "a"), 0);
        chain.clock().advance_ms(499);
        assert_eq!(effects(&mut c, "a"), 0);
        chain.clock().advance_ms(1);
        assert_eq!(effects(&mut c, "a"), 1);
        assert_eq!(effects(&mut c, "b"), 0);
        assert_eq!(effects(&mut c, "a"), 0);
        chain.clock().advance_ms(500);
        assert_eq!(effects(&mut c, "b"), 1);
    });
}

#[test]
fn an_extended_ttl_and_a_reset_always_go_at_once() {
    let chain = chain();
    let mut c = apart(&chain, HOUR_MS);
    let start = chain.clock().now_us();
    let policy = (10_000, 1000, 1000);
    let mut tap = Tap::on(&chain);
    let effect = |tokens| Bucket::owing(tokens, start, policy).effect_on("k", start);
    let line = |cost: i64| args!["RL.GCRA", "k", 10_000, 1000, 1000, "COST", cost];
    c.cmd(&line(1));
    assert_eq!(tap.take(), [effect(1)]);
    // Up to the slack nothing goes; what goes beyond it takes all along.
    c.cmd(&line(500));
    c.cmd(&line(500));
    assert!(tap.take().is_empty());
    c.cmd(&line(1));
    assert_eq!(tap.take(), [effect(1002)]);
    assert_same(&chain);
    // A denial under a slower policy.
    cmd!(c, "RL.GCRA", "k", 1002, 1, 1000);
    let end = deadline_ms(start, 1_002_000_000);
    assert_eq!(tap.take(), [args!["PEXPIREAT", "k", end]]);
    assert_same(&chain);
    // Another policy, though the TTL would do: a replica must not go on with the old one.
    let other = Bucket::owing(1003, start, (10_001, 1000, 1000));
    cmd!(c, "RL.GCRA", "k", 10_001, 1000, 1000);
    assert_eq!(tap.take(), [other.effect_on("k", start)]);
    cmd!(c, "RL.GCRA", "k", 10_001, 1000, 1000);
    assert!(tap.take().is_empty());
    c.cmd(&line(1));
    assert_eq!(tap.take(), [effect(1005)]);
    // A foreign TTL that is put right.
    cmd!(c, "PERSIST", "k");
    c.cmd(&line(1));
    assert_eq!(tap.take(), [args!["PERSIST", "k"], effect(1006)]);
    assert_same(&chain);
    // A reset, and what comes first after it.
    c.cmd(&line(1));
    assert!(tap.take().is_empty());
    cmd!(c, "RL.RESET", "k");
    assert_eq!(tap.take(), [args!["DEL", "k"]]);
    c.cmd(&line(7));
    assert_eq!(tap.take(), [effect(7)]);
    assert_same(&chain);
}

#[test]
fn a_step_back_never_silences_a_key() {
    undisturbed(|| {
        let chain = chain();
        let mut c = apart(&chain, 1000);
        let policy = (10_000, 1000, 1000);
        for step_ms in [1, 50, 999, 1000, HOUR_MS, 24 * HOUR_MS] {
            cmd!(c, "DEL", "k");
            let mut tap = Tap::on(&chain);
            cmd!(c, "RL.GCRA", "k", 10_000, 1000, 1000, "COST", 900);
            assert_eq!(tap.take().len(), 1);
            cmd!(c, "RL.GCRA", "k", 10_000, 1000, 1000);
            assert!(tap.take().is_empty());
            chain.clock().advance_ms(-step_ms);
            let now = chain.clock().now_us();
            cmd!(c, "RL.GCRA", "k", 10_000, 1000, 1000);
            let state = Bucket::owing(902, now, policy);
            assert_eq!(
                tap.take(),
                [state.effect_on("k", now)],
                "back by {step_ms} ms"
            );
            assert_same(&chain);
            // From there it is as quiet as before, and not for longer.
            chain.clock().advance_ms(998);
            cmd!(c, "RL.GCRA", "k", 10_000, 1000, 1000);
            assert!(tap.take().is_empty());
            chain.clock().advance_ms(2);
            cmd!(c, "RL.GCRA", "k", 10_000, 1000, 1000);
            assert_eq!(tap.take().len(), 1);
        }
    });
}

/// The effect that goes at once carries the whole state, so the next ordinary one is due an
/// interval later.
#[test]
fn an_effect_that_goes_at_once_starts_the_interval_anew() {
    undisturbed(|| {
        let chain = chain();
        let mut c = apart(&chain, 5000);
        let mut tap = Tap::on(&chain);
        let line = |cost: i64| args!["RL.GCRA", "k", 10_000, 1000, 1000, "COST", cost];
        c.cmd(&line(7000));
        assert_eq!(tap.take().len(), 1);
        chain.clock().advance_ms(4999);
        // It needs another TTL.
        c.cmd(&line(2000));
        assert_eq!(tap.take().len(), 1);
        chain.clock().advance_ms(1);
        c.cmd(&line(1));
        assert!(
            tap.take().is_empty(),
            "5000 ms after the first and 1 ms after the second"
        );
        chain.clock().advance_ms(4998);
        c.cmd(&line(1));
        assert!(tap.take().is_empty());
        chain.clock().advance_ms(1);
        c.cmd(&line(1));
        assert_eq!(tap.take().len(), 1);
    });
}

/// A key that goes and comes back within an interval is listed once.
#[test]
fn what_is_held_back_takes_no_more_memory_for_a_key_that_comes_and_goes() {
    let server = own(Options::new().config("latency-tracking", "no"));
    let mut c = server.conn();
    assert_eq!(cmd!(c, "CONFIG", "SET", INTERVAL, HOUR_MS), ok());
    let call = words("RL.FIXEDWINDOW k 1000 60000");
    let round = [call.clone(), call, words("RL.RESET k")];
    let rounds: Vec<_> = (0..1000).flat_map(|_| round.clone()).collect();
    c.pipeline(&rounds);
    let before = used_at_rest(&server);
    for _ in 0..10 {
        c.pipeline(&rounds);
    }
    let grown = used_at_rest(&server) - before;
    assert!(grown < 100_000, "{grown} bytes for 10,000 rounds");
}

#[test]
fn a_denial_that_moves_the_state_back_goes_at_once() {
    let chain = chain();
    let mut c = apart(&chain, HOUR_MS);
    cmd!(c, "RL.GCRA", "k", 5, 1, 60_000, "COST", 5);
    let mut tap = Tap::on(&chain);
    for _ in 0..3 {
        chain.clock().advance_us(-1);
        let now = chain.clock().now_us();
        cmd!(c, "RL.GCRA", "k", 5, 1, 60_000);
        cmd!(c, "RL.GCRA", "k", 5, 1, 60_000);
        let state = Bucket::owing(5, now, (5, 1, 60_000));
        assert_eq!(tap.take(), [state.effect_on("k", now)]);
    }
    assert_same(&chain);
}

#[test]
fn a_new_interval_holds_from_the_next_call() {
    undisturbed(|| {
        let chain = chain();
        let mut c = apart(&chain, 0);
        let mut tap = Tap::on(&chain);
        let mut effects = |c: &mut Conn| {
            let reply = cmd!(c, "RL.GCRA", "k", 10_000, 1000, 1000);
            assert_eq!(reply.items()[0], int(1), "{reply:?}");
            tap.take().len()
        };
        assert_eq!([effects(&mut c), effects(&mut c)], [1, 1]);
        apart(&chain, 500);
        assert_eq!(effects(&mut c), 0);
        chain.clock().advance_ms(300);
        assert_eq!(effects(&mut c), 0);
        apart(&chain, 300);
        assert_eq!([effects(&mut c), effects(&mut c)], [1, 0]);
        apart(&chain, HOUR_MS);
        chain.clock().advance_ms(500);
        assert_eq!(effects(&mut c), 0);
        apart(&chain, 0);
        assert_eq!([effects(&mut c), effects(&mut c)], [1, 1]);
        assert_same(&chain);
    });
}

#[test]
fn a_transaction_and_a_script_keep_the_interval_too() {
    undisturbed(|| {
        let chain = chain();
        let mut c = apart(&chain, 1000);
        let mut tap = Tap::on(&chain);
        let line = words("RL.GCRA k 10000 1000 1000");
        let first = words("RL.GCRA k 10000 1000 1000 COST 100");
        c.exec_multi(&[&[first][..], &vec![line.clone(); 4]].concat());
        assert_eq!(tap.take().len(), 1);
        let script = "for i = 1, 5 do redis.call(unpack(ARGV)) end";
        c.eval(script, &["k"], &line);
        assert!(tap.take().is_empty());
        chain.clock().advance_ms(1000);
        c.eval(script, &["k"], &line);
        assert_eq!(tap.take().len(), 1);
    });
}

#[test]
fn what_was_admitted_longer_ago_than_the_interval_is_not_forgotten() {
    let chain = chain();
    let mut c = apart(&chain, 1000);
    // 50 s of debt, and half a second more, which needs no new TTL.
    cmd!(c, "RL.GCRA", "k", 100_000, 1000, 1000, "COST", 50_000);
    cmd!(c, "RL.GCRA", "k", 100_000, 1000, 1000, "COST", 500);
    chain.clock().advance_ms(30_000);
    let peek = words("RL.PEEK k GCRA 100000 1000 1000");
    let expected = five([1, 100_000, 79_500, 0, 20_500]);
    assert_eq!(c.cmd(&peek), expected);
    let mut replica = chain.replica.conn();
    eventually("30 s later the replica knows of what was spent", || {
        replica.cmd(&peek) == expected
    });
}
