//! REENTRANT and MAXHOLD.

use crate::kinds_support::*;
use crate::support::*;
use crate::waiting_support::*;

// REENTRANT -------------------------------------------------------------------------------------------

#[test]
fn as_many_releases_are_needed_as_it_was_entered() {
    for shared in ["", " SHARED"] {
        let server = single();
        let mut c = server.conn();
        let line = format!("LOCK.ACQUIRE k a 5000 REENTRANT{shared}");
        let t = number(&mut c, &line);
        if !shared.is_empty() {
            number(&mut c, "LOCK.ACQUIRE k other 60000 SHARED");
        }
        for holds in 2..=4 {
            assert_eq!(number(&mut c, &line), t);
            assert_eq!(of_holder(&mut c, "k", "holds"), holds);
        }
        // Without REENTRANT it is a retry, which adds nothing.
        let plain = format!("LOCK.ACQUIRE k a 5000{shared}");
        assert_eq!(number(&mut c, &plain), t);
        assert_eq!(of_holder(&mut c, "k", "holds"), 4);
        for left in (1..=3).rev() {
            assert_eq!(run(&mut c, "LOCK.RELEASE k a KEEP 5000"), int(1));
            assert_eq!(of_holder(&mut c, "k", "holds"), left);
            assert_eq!(of_holder(&mut c, "k", "token"), t);
        }
        let release = format!("LOCK.RELEASE k a TOKEN {t}");
        assert_eq!(run(&mut c, &release), int(1));
        assert_eq!(run(&mut c, &release), int(0));
        let expected: &[&str] = if shared.is_empty() { &[] } else { &["other"] };
        assert_eq!(owners(&mut c, "k"), expected);
    }
}

#[test]
fn reentrant_enters_what_was_taken_without_it() {
    let server = single();
    let mut c = server.conn();
    let t = number(&mut c, "LOCK.ACQUIRE k a 5000");
    all_answer(
        &mut c,
        [
            ("LOCK.ACQUIRE k a 100 REENTRANT", int(t)),
            ("LOCK.ACQUIRE k a 100 REENTRANT BLOCK 1000", int(t)),
            ("LOCK.ACQUIRE k b 100 REENTRANT", nil()),
        ],
    );
    assert_eq!(of_holder(&mut c, "k", "holds"), 3);
    // Never shortens, and extends like any retry.
    assert_eq!(cmd!(c, "PTTL", "k"), int(5000));
    number(&mut c, "LOCK.ACQUIRE k a 9000 REENTRANT");
    assert_eq!(cmd!(c, "PTTL", "k"), int(9000));
}

#[test]
fn an_entry_counts_for_the_waiters_too() {
    let server = single();
    let mut c = server.conn();
    number(&mut c, "LOCK.ACQUIRE k a 5000 REENTRANT");
    let mut w = Waiter::queue(&server, "k", "w");
    // The holder's own entry does not queue.
    number(&mut c, "LOCK.ACQUIRE k a 5000 REENTRANT");
    assert_eq!(run(&mut c, "LOCK.RELEASE k a"), int(1));
    w.still_waits();
    assert_eq!(run(&mut c, "LOCK.RELEASE k a"), int(1));
    w.token();
}

#[test]
fn entries_end_with_the_lease_all_at_once() {
    let server = single();
    let mut c = server.conn();
    for _ in 0..3 {
        number(&mut c, "LOCK.ACQUIRE k a 1000 REENTRANT");
    }
    server.clock().advance_ms(1001);
    assert_eq!(run(&mut c, "LOCK.RELEASE k a"), int(0));
    let t = number(&mut c, "LOCK.ACQUIRE k a 1000 REENTRANT");
    assert_eq!(t, server.clock().now_us());
    assert_eq!(of_holder(&mut c, "k", "holds"), 1);
    number(&mut c, "LOCK.ACQUIRE k a 1000 REENTRANT");
    assert_eq!(run(&mut c, "LOCK.FORCERELEASE k"), int(1));
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
}

#[test]
fn entries_and_retries_are_counted_apart() {
    let server = single();
    let mut c = server.conn();
    let of = |name: &str| counter(&server, name);
    let before = [
        of("lock_granted"),
        of("lock_reentered"),
        of("lock_idempotent_retries"),
    ];
    for line in [
        "LOCK.ACQUIRE k a 1000 REENTRANT",
        "LOCK.ACQUIRE k a 1000 REENTRANT",
        "LOCK.ACQUIRE k a 1000 REENTRANT",
        "LOCK.ACQUIRE k a 1000",
    ] {
        number(&mut c, line);
    }
    assert_eq!(of("lock_granted"), before[0] + 1);
    assert_eq!(of("lock_reentered"), before[1] + 2);
    assert_eq!(of("lock_idempotent_retries"), before[2] + 1);
}

#[test]
fn two_waits_of_one_owner_are_one_hold_also_with_reentrant() {
    let server = single();
    let mut c = server.conn();
    let t = hold(&mut c, "k");
    let line = "LOCK.ACQUIRE k a 60000 REENTRANT BLOCK 60000";
    let mut waits = [Waiter::send(&server, line), Waiter::send(&server, line)];
    run(&mut c, "LOCK.RELEASE k h");
    assert_eq!(waits.each_mut().map(Waiter::token), [t + 1; 2]);
    assert_eq!(of_holder(&mut c, "k", "holds"), 1);
}

// MAXHOLD ---------------------------------------------------------------------------------------------

const MAXHOLD_RANGE: &str = "ERR MAXHOLD must be an integer between 1 and 86400000";

#[test]
fn maxhold_out_of_range_is_refused() {
    let server = recorder();
    let lines: Vec<String> = no_integers_up_to(86_400_000)
        .iter()
        .map(|text| format!("LOCK.ACQUIRE k o 1000 MAXHOLD {text}"))
        .collect();
    refuses(&server, MAXHOLD_RANGE, &lines);
    let mut c = server.conn();
    // As far as a lease may go, which is a setting.
    number(&mut c, "LOCK.ACQUIRE k o 1000 MAXHOLD 86400000");
    cmd!(c, "CONFIG", "SET", "sluice.lock-max-lease-ms", 5000);
    refuses(
        &server,
        "ERR MAXHOLD must be an integer between 1 and 5000",
        &["LOCK.ACQUIRE l o 1000 MAXHOLD 5001"],
    );
}

#[test]
fn nothing_carries_a_hold_past_its_maxhold() {
    for shared in ["", " SHARED"] {
        let server = single();
        let mut c = server.conn();
        leave_expired(&mut c);
        // The first lease.
        let first = format!("LOCK.ACQUIRE k a 5000{shared} MAXHOLD 1000");
        let t = number(&mut c, &first);
        assert_eq!(cmd!(c, "PTTL", "k"), int(1000));
        server.clock().advance_ms(400);
        let retry = format!("LOCK.ACQUIRE k a 5000{shared}");
        let longer = format!("LOCK.ACQUIRE k a 5000{shared} MAXHOLD 86400000");
        let enter = format!("LOCK.ACQUIRE k a 5000{shared} REENTRANT MAXHOLD 86400000");
        let multi = "LOCK.MRENEW 1 k a 5000";
        for (line, reply) in [
            ("LOCK.RENEW k a 5000", int(600)),
            ("LOCK.RENEW k a 1", int(600)),
            (&retry, int(t)),
            (&longer, int(t)),
            (&enter, int(t)),
            (multi, int(600)),
        ] {
            assert_eq!(run(&mut c, line), reply, "{line}");
            assert_eq!(holders(&mut c, "k"), [("a".to_string(), t, 600)], "{line}");
            assert_eq!(cmd!(c, "PTTL", "k"), int(600), "{line}");
        }
        assert_eq!(of_holder(&mut c, "k", "holds"), 2);
        if shared.is_empty() {
            // DOWNGRADE keeps it too.
            assert_eq!(run(&mut c, "LOCK.DOWNGRADE k a"), int(1));
            assert_eq!(run(&mut c, "LOCK.RENEW k a 5000"), int(600));
        }
        // Its last millisecond, with none left, and the first without it.
        server.clock().advance_ms(600);
        assert_eq!(run(&mut c, "LOCK.RENEW k a 5000"), int(0));
        server.clock().advance_ms(1);
        assert_eq!(run(&mut c, "LOCK.RENEW k a 5000"), int(0));
        assert_eq!(run(&mut c, "LOCK.RELEASE k a"), int(0));
        assert_eq!(run(&mut c, "LOCK.INFO k"), nil());
        // A new grant starts anew.
        let again = number(&mut c, "LOCK.ACQUIRE k a 5000");
        assert_eq!(again, server.clock().now_us());
        assert_eq!(run(&mut c, "LOCK.RENEW k a 9000"), int(9000));
    }
}

/// redisson#5115, redisson#3521: the worker is dead, its watchdog lives.
#[test]
fn a_watchdog_that_never_dies_does_not_keep_the_lock() {
    let server = single();
    let mut c = server.conn();
    let t = number(&mut c, "LOCK.ACQUIRE k a 300 MAXHOLD 1000");
    let mut writer = Waiter::queue(&server, "k", "w");
    for (at, left) in [(200, 300), (400, 300), (600, 300), (800, 200), (900, 100)] {
        let now = (server.clock().now_us() - t) / 1000;
        server.clock().advance_ms(at - now);
        assert_eq!(run(&mut c, "LOCK.RENEW k a 300"), int(left), "+{at}");
    }
    writer.still_waits();
    server.clock().advance_ms(101);
    assert_eq!(writer.token(), t + 1_001_000);
    assert_eq!(run(&mut c, "LOCK.RENEW k a 300"), int(0));
}

#[test]
fn maxhold_counts_from_the_grant_not_from_the_wait() {
    let server = single();
    let mut c = server.conn();
    hold(&mut c, "k");
    let line = "LOCK.ACQUIRE k a 500 MAXHOLD 1000 BLOCK 60000";
    let mut waiter = Waiter::send(&server, line);
    server.clock().advance_ms(20_000);
    assert_eq!(run(&mut c, "LOCK.RELEASE k h"), int(1));
    let token = waiter.token();
    assert_eq!(holders(&mut c, "k"), [("a".to_string(), token, 500)]);
    assert_eq!(run(&mut c, "LOCK.RENEW k a 5000"), int(1000));
    // A waiting reader's too.
    run(&mut c, "LOCK.ACQUIRE l h 60000");
    let line = "LOCK.ACQUIRE l a 5000 MAXHOLD 700 SHARED BLOCK 60000";
    let mut waiter = Waiter::send(&server, line);
    server.clock().advance_ms(20_000);
    assert_eq!(run(&mut c, "LOCK.RELEASE l h"), int(1));
    waiter.token();
    assert_eq!(cmd!(c, "PTTL", "l"), int(700));
}

#[test]
fn each_reader_has_its_own_maxhold() {
    let server = single();
    let mut c = server.conn();
    let t = number(&mut c, "LOCK.ACQUIRE k a 5000 SHARED MAXHOLD 1000");
    number(&mut c, "LOCK.ACQUIRE k b 5000 SHARED");
    number(&mut c, "LOCK.ACQUIRE k c 5000 SHARED MAXHOLD 6000");
    all_answer(
        &mut c,
        [
            ("LOCK.RENEW k a 9000", int(1000)),
            ("LOCK.RENEW k b 9000", int(9000)),
            ("LOCK.RENEW k c 9000", int(6000)),
        ],
    );
    let expected = [
        ("a".to_string(), t, 1000),
        ("b".to_string(), t + 1, 9000),
        ("c".to_string(), t + 2, 6000),
    ];
    assert_eq!(holders(&mut c, "k"), expected);
}

/// MAXHOLD and the number of entries, however the server comes to hold the lock.
#[track_caller]
fn still_clipped(server: &Server, t: i64) {
    let mut c = server.conn();
    let gone = (server.clock().now_us() - t) / 1000;
    for key in ["x", "s"] {
        let renewed = run(&mut c, &format!("LOCK.RENEW {key} a 60000"));
        assert_eq!(renewed, int(9000 - gone), "{key}");
        assert_eq!(of_holder(&mut c, key, "holds"), 2, "{key}");
    }
    let retry = run(&mut c, "LOCK.ACQUIRE x a 60000");
    assert_eq!(retry, int(t));
    assert_eq!(cmd!(c, "PTTL", "x"), int(9000 - gone));
}

#[track_caller]
fn clip(server: &Server) -> i64 {
    let mut c = server.conn();
    let t = number(&mut c, "LOCK.ACQUIRE x a 5000 REENTRANT MAXHOLD 9000");
    number(&mut c, "LOCK.ACQUIRE x a 5000 REENTRANT");
    number(&mut c, "LOCK.ACQUIRE s b 5000 SHARED");
    number(
        &mut c,
        "LOCK.ACQUIRE s a 5000 SHARED REENTRANT MAXHOLD 9000",
    );
    number(&mut c, "LOCK.ACQUIRE s a 5000 SHARED REENTRANT");
    run(&mut c, "LOCK.RELEASE s b");
    t
}

#[test]
fn maxhold_and_entries_survive_reload_and_restart() {
    for (aof, rewrite) in [
        (Aof::Off, false),
        (Aof::Pure, false),
        (Aof::Pure, true),
        (Aof::Preamble, true),
    ] {
        let server = own(Options::new().aof(aof));
        let t = clip(&server);
        server.clock().advance_ms(1000);
        assert_eq!(cmd!(server.conn(), "DEBUG", "RELOAD"), ok());
        still_clipped(&server, t);
        if rewrite {
            rewrite_aof(&server);
        }
        match aof {
            Aof::Off => server.restart_saving(),
            _ => {
                server.kill9();
                server.start_again();
            }
        }
        server.clock().advance_ms(1000);
        still_clipped(&server, t);
        server.clock().advance_ms(7001);
        let mut c = server.conn();
        assert_eq!(run(&mut c, "LOCK.RENEW x a 1000"), int(0), "{aof:?}");
        assert_eq!(run(&mut c, "LOCK.RENEW s a 1000"), int(0), "{aof:?}");
    }
}

#[test]
fn maxhold_and_entries_survive_a_promotion_a_dump_and_a_copy() {
    let chain = chain();
    let t = clip(&chain.primary);
    chain.clock().advance_ms(1000);
    chain.assert_equal();
    let mut c = chain.primary.conn();
    for key in ["x", "s"] {
        let payload = cmd!(c, "DUMP", key);
        assert_eq!(cmd!(c, "COPY", key, format!("{key}2")), int(1));
        let restored = cmd!(c, "RESTORE", format!("{key}3"), 0, payload.as_bytes());
        assert_eq!(restored, ok());
        for copy in ["2", "3"] {
            let line = format!("LOCK.RENEW {key}{copy} a 60000");
            assert_eq!(run(&mut c, &line), int(8000), "{line}");
        }
    }
    chain.assert_equal();
    assert_eq!(cmd!(chain.replica.conn(), "REPLICAOF", "NO", "ONE"), ok());
    still_clipped(&chain.replica, t);
    let mut c = chain.replica.conn();
    assert_eq!(run(&mut c, "LOCK.RENEW x3 a 60000"), int(8000));
}
