//! Permits: who may have how many, for how long, and that none is ever minted or lost.

use crate::sem_support::*;
use crate::support::*;

// Limits ----------------------------------------------------------------------------------------------

#[test]
fn the_limit_belongs_to_the_call() {
    let server = single();
    let mut c = server.conn();
    acquire(&mut c, "k a 60000 2");
    acquire(&mut c, "k b 60000 2");
    assert_eq!(run(&mut c, "SEM.ACQUIRE k d 60000 2"), nil());
    // Raised: for this call, and no other.
    acquire(&mut c, "k d 60000 3");
    assert_eq!(run(&mut c, "SEM.ACQUIRE k e 60000 3"), nil());
    acquire(&mut c, "k e 60000 10 PERMITS 7");
    assert_eq!(run(&mut c, "SEM.ACQUIRE k f 60000 10"), nil());
    holds(&mut c, "k", &[("a", 1), ("b", 1), ("d", 1), ("e", 7)]);
    // Lowered: revokes nothing, and grants when enough is back, by release or by lease.
    for (release, is_granted) in [("e", false), ("d", false), ("b", true)] {
        assert_eq!(run(&mut c, "SEM.ACQUIRE k x 60000 1"), nil());
        assert!(number(&mut c, &format!("SEM.RELEASE k {release}")) > 0);
        let reply = run(&mut c, "SEM.ACQUIRE k x 60000 2");
        assert_eq!(!reply.is_nil(), is_granted, "{release}");
    }
    holds(&mut c, "k", &[("a", 1), ("x", 1)]);
}

#[test]
fn permits_come_back_one_by_one_at_their_own_deadlines() {
    let server = single();
    let mut c = server.conn();
    leave_expired(&mut c);
    for n in 1..=7 {
        acquire(&mut c, &format!("k h{n} {} 7", n * 1000));
    }
    for n in 1..=7i64 {
        // The last millisecond of a lease is its holder's.
        server.clock().advance_ms(if n == 1 { 1000 } else { 999 });
        assert_eq!(run(&mut c, "SEM.ACQUIRE k x 60000 7"), nil(), "{n}");
        assert_eq!(
            cmd!(c, "SEM.INFO", "k").field("permits"),
            &int(7),
            "the one granted last in the place of {n}"
        );
        assert_eq!(of_holder(&mut c, "k", &format!("h{n}"), "ttl_ms"), 0);
        server.clock().advance_ms(1);
        assert_eq!(cmd!(c, "SEM.RENEW", "k", format!("h{n}"), 1000), int(0));
        assert_eq!(cmd!(c, "SEM.RELEASE", "k", format!("h{n}")), int(0));
        if n < 7 {
            acquire(&mut c, &format!("k x{n} 60000 7"));
        }
    }
    let info = cmd!(c, "SEM.INFO", "k");
    assert_eq!(info.field("permits"), &int(6));
    assert_eq!(held(&mut c, "k").len(), 6);
}

/// opik#6688: five of five are held; a call with a limit of 1 is busy, no number is negative
/// anywhere; three are released, and a limit of 3 grants with two others live.
#[test]
fn a_limit_below_what_is_held_shows_no_negative_number() {
    let server = single();
    let mut c = server.conn();
    for n in 0..5 {
        acquire(&mut c, &format!("k h{n} 60000 5"));
    }
    assert_eq!(run(&mut c, "SEM.ACQUIRE k x 1000 1"), nil());
    let info = format!("{:?}", cmd!(c, "SEM.INFO", "k"));
    assert!(!info.contains('-'), "{info}");
    for (name, value) in server.info("sluice") {
        assert!(!value.starts_with('-'), "{name}:{value}");
    }
    for n in 0..3 {
        assert_eq!(run(&mut c, &format!("SEM.RELEASE k h{n}")), int(1));
    }
    acquire(&mut c, "k x 1000 3");
    holds(&mut c, "k", &[("h3", 1), ("h4", 1), ("x", 1)]);
}

// Giving back ------------------------------------------------------------------------------------------

/// redisson#5066, #659: a permit that is released twice, by the wrong holder, or late.
#[test]
fn no_release_ever_mints_a_permit() {
    let server = single();
    let mut c = server.conn();
    leave_expired(&mut c);
    let a = acquire(&mut c, "k a 60000 3 PERMITS 2");
    let b = acquire(&mut c, "k b 1000 3");
    for (line, answer) in [
        ("SEM.RELEASE k stranger".to_string(), 0),
        (format!("SEM.RELEASE k stranger TOKEN {a}"), 0),
        (format!("SEM.RELEASE k a TOKEN {b}"), 0),
        (format!("SEM.RELEASE k a TOKEN {a}"), 2),
        (format!("SEM.RELEASE k a TOKEN {a}"), 0),
        ("SEM.RELEASE k a".to_string(), 0),
    ] {
        assert_eq!(run(&mut c, &line), int(answer), "{line}");
    }
    // Two are free, and not one more.
    acquire(&mut c, "k d 60000 3 PERMITS 2");
    assert_eq!(run(&mut c, "SEM.ACQUIRE k e 60000 3"), nil());
    // Late: b's lease is over, another has its permit.
    server.clock().advance_ms(1001);
    acquire(&mut c, "k e 60000 3");
    for _ in 0..3 {
        assert_eq!(run(&mut c, "SEM.RELEASE k b"), int(0));
        assert_eq!(run(&mut c, &format!("SEM.RELEASE k b TOKEN {b}")), int(0));
    }
    assert_eq!(run(&mut c, "SEM.ACQUIRE k f 60000 3"), nil());
    holds(&mut c, "k", &[("d", 2), ("e", 1)]);
    // One that holds again under another token is not released with the old one.
    run(&mut c, "SEM.RELEASE k e");
    let again = acquire(&mut c, "k b 60000 3");
    assert_eq!(run(&mut c, &format!("SEM.RELEASE k b TOKEN {b}")), int(0));
    assert_eq!(
        run(&mut c, &format!("SEM.RELEASE k b TOKEN {again}")),
        int(1)
    );
}

#[test]
fn the_key_goes_with_the_last_permit() {
    let server = single();
    let mut c = server.conn();
    for n in 0..100 {
        acquire(&mut c, &format!("k h{n} 60000 100"));
    }
    for n in (0..100).rev() {
        assert_eq!(cmd!(c, "EXISTS", "k"), int(1));
        assert_eq!(run(&mut c, &format!("SEM.RELEASE k h{n}")), int(1));
    }
    assert_eq!(cmd!(c, "DBSIZE"), int(0));
    // With the last lease, too.
    acquire(&mut c, "k a 1000 2");
    acquire(&mut c, "k b 2000 2");
    server.clock().advance_ms(2000);
    assert_eq!(cmd!(c, "EXISTS", "k"), int(1));
    server.clock().advance_ms(1);
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
    assert_eq!(counter(&server, "sem_permits"), 0);
}

// The same holder again ---------------------------------------------------------------------------------

#[test]
fn a_retry_is_the_same_grant() {
    let server = single();
    let since = Since::now(&server);
    let mut c = server.conn();
    let token = acquire(&mut c, "k a 10000 3 PERMITS 3 META first");
    server.clock().advance_ms(4000);
    // Under whatever limit that allows the permits, and with other options.
    for (line, left) in [
        ("k a 1000 3 PERMITS 3", 6000),
        ("k a 6000 1000000 PERMITS 3 META second", 6000),
        ("k a 6001 3 PERMITS 3", 6001),
        ("k a 20000 3 PERMITS 3 BLOCK 1000", 20_000),
    ] {
        assert_eq!(acquire(&mut c, line), token, "{line}");
        assert_eq!(cmd!(c, "PTTL", "k"), int(left), "{line}");
    }
    holds(&mut c, "k", &[("a", 3)]);
    let info = cmd!(c, "SEM.INFO", "k");
    let holder = &info.field("holders").items()[0];
    assert_eq!(holder.field("meta"), &bulk("first"));
    assert_eq!(holder.field("held_ms"), &int(4000));
    since.all_counted(&[("sem_granted", 1), ("sem_idempotent_retries", 4)]);
    // After its release, or its lease, it is a new one.
    run(&mut c, "SEM.RELEASE k a");
    let second = acquire(&mut c, "k a 1000 3 PERMITS 2");
    assert!(second > token);
    server.clock().advance_ms(1001);
    assert!(acquire(&mut c, "k a 1000 3 PERMITS 1") > second);
    holds(&mut c, "k", &[("a", 1)]);
}

#[test]
fn a_retry_with_other_permits_is_an_error_that_says_so() {
    let server = recorder();
    let mut c = server.conn();
    acquire(&mut c, "k a 10000 10 PERMITS 4");
    acquire(&mut c, "k b 10000 10");
    answers(
        &server,
        &[
            ("SEM.ACQUIRE k a 10000 10", permits_changed(4)),
            ("SEM.ACQUIRE k a 10000 10 PERMITS 1", permits_changed(4)),
            ("SEM.ACQUIRE k a 10000 10 PERMITS 3", permits_changed(4)),
            ("SEM.ACQUIRE k a 99999 10 PERMITS 5", permits_changed(4)),
            ("SEM.ACQUIRE k b 99999 10 PERMITS 2", permits_changed(1)),
            (
                "SEM.ACQUIRE k b 1 10 PERMITS 2 BLOCK 99",
                permits_changed(1),
            ),
        ],
    );
}

#[test]
fn a_retry_is_the_holders_own_however_full_it_is() {
    let server = single();
    let mut c = server.conn();
    let a = acquire(&mut c, "k a 10000 5 PERMITS 2");
    acquire(&mut c, "k b 10000 5 PERMITS 3");
    let mut w = wait_for(&server, "k w 10000 5");
    // Lowered to its own share: it asks for nothing new.
    assert_eq!(acquire(&mut c, "k a 20000 2 PERMITS 2"), a);
    let retry = words("SEM.ACQUIRE k a 30000 2 PERMITS 2");
    assert_eq!(c.exec_multi(std::slice::from_ref(&retry)), [int(a)]);
    assert_eq!(
        c.eval("return redis.call(unpack(ARGV))", &["k"], &retry),
        int(a)
    );
    w.still_waits();
}

// Renewal ------------------------------------------------------------------------------------------------

#[test]
fn a_renewal_moves_one_deadline_and_never_back() {
    let server = single();
    let since = Since::now(&server);
    let mut c = server.conn();
    let a = acquire(&mut c, "k a 10000 3");
    let b = acquire(&mut c, "k b 20000 3");
    for (line, left) in [
        ("SEM.RENEW k a 5000".to_string(), 10_000),
        ("SEM.RENEW k a 10000".to_string(), 10_000),
        ("SEM.RENEW k a 15000".to_string(), 15_000),
        (format!("SEM.RENEW k a 16000 TOKEN {a}"), 16_000),
        (format!("SEM.RENEW k a 90000 TOKEN {b}"), 0),
        ("SEM.RENEW k stranger 90000".to_string(), 0),
    ] {
        assert_eq!(run(&mut c, &line), int(left), "{line}");
    }
    assert_eq!(of_holder(&mut c, "k", "a", "ttl_ms"), 16_000);
    assert_eq!(of_holder(&mut c, "k", "b", "ttl_ms"), 20_000);
    assert_eq!(of_holder(&mut c, "k", "a", "token"), a);
    server.clock().advance_ms(20_001);
    assert_eq!(run(&mut c, "SEM.RENEW k a 90000"), int(0));
    assert_eq!(run(&mut c, "SEM.RENEW k b 90000"), int(0));
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
    since.all_counted(&[("sem_renewed", 4), ("sem_renew_lost", 4)]);
}

/// redis-semaphore (node) PR#177: a lapsed lease is not taken anew by a refresh, not even while the
/// permit is free.
#[test]
fn a_lost_lease_is_lost_while_others_keep_the_key() {
    let server = single();
    let mut c = server.conn();
    let a = acquire(&mut c, "k a 1000 3");
    acquire(&mut c, "k b 60000 3");
    server.clock().advance_ms(1001);
    for line in [
        "SEM.RENEW k a 60000".to_string(),
        format!("SEM.RENEW k a 60000 TOKEN {a}"),
    ] {
        assert_eq!(run(&mut c, &line), int(0));
    }
    holds(&mut c, "k", &[("b", 1)]);
}

#[test]
fn the_ttl_is_the_latest_live_deadline() {
    let chain = chain();
    let mut c = chain.primary.conn();
    acquire(&mut c, "k a 1000 9");
    acquire(&mut c, "k b 5000 9");
    acquire(&mut c, "k d 3000 9");
    for (line, ttl) in [
        ("PING", 5000),
        ("SEM.RENEW k a 4000", 5000),
        ("SEM.RENEW k a 6000", 6000),
        ("SEM.RELEASE k a", 5000),
        ("SEM.ACQUIRE k e 5500 9", 5500),
        ("SEM.ACQUIRE k d 7000 9", 7000),
        ("SEM.RELEASE k d", 5500),
        ("SEM.RELEASE k b", 5500),
        ("SEM.ACQUIRE k f 1 9", 5500),
        ("SEM.RELEASE k e", 1),
    ] {
        assert!(!run(&mut c, line).is_error());
        assert_eq!(cmd!(c, "PTTL", "k"), int(ttl), "{line}");
        chain.assert_equal();
        let end = cmd!(c, "PEXPIRETIME", "k");
        assert_eq!(cmd!(chain.sub.conn(), "PEXPIRETIME", "k"), end, "{line}");
    }
}

// Foreign TTLs and stepping clocks ------------------------------------------------------------------------

#[test]
fn a_foreign_ttl_ends_early_and_never_prolongs() {
    let server = single();
    let mut c = server.conn();
    leave_expired(&mut c);
    acquire(&mut c, "k a 5000 3");
    acquire(&mut c, "k b 2000 3");
    cmd!(c, "PEXPIRE", "k", 3000);
    assert_eq!(cmd!(c, "SEM.INFO", "k").field("ttl_ms"), &int(3000));
    assert_eq!(of_holder(&mut c, "k", "a", "ttl_ms"), 3000);
    assert_eq!(of_holder(&mut c, "k", "b", "ttl_ms"), 2000);
    // The next write sets it right, and so does what changes nothing else.
    for line in [
        "SEM.RENEW k a 1",
        "SEM.ACQUIRE k a 1 3",
        "SEM.RENEW k b 1",
        "SEM.ACQUIRE k d 1 3",
        "SEM.RELEASE k d",
    ] {
        for stray in ["PEXPIRE k 3000", "PERSIST k", "PEXPIRE k 9000"] {
            run(&mut c, stray);
            assert!(number(&mut c, line) > 0, "{line}");
            assert_eq!(cmd!(c, "PTTL", "k"), int(5000), "{line} after {stray}");
            run(&mut c, "SEM.ACQUIRE k d 1 3");
        }
    }
    for stray in ["PERSIST k", "PEXPIRE k 60000"] {
        run(&mut c, "DEL k");
        acquire(&mut c, "k a 5000 1");
        run(&mut c, stray);
        server.clock().advance_ms(5000);
        assert_eq!(run(&mut c, "SEM.ACQUIRE k b 1000 1"), nil());
        server.clock().advance_ms(1);
        assert_eq!(cmd!(c, "EXISTS", "k"), int(1));
        assert_eq!(cmd!(c, "SEM.INFO", "k"), nil());
        assert_eq!(run(&mut c, "SEM.RENEW k a 1000"), int(0));
        assert_eq!(run(&mut c, "SEM.RELEASE k a"), int(0));
        acquire(&mut c, "k b 1000 1");
        holds(&mut c, "k", &[("b", 1)]);
        assert_eq!(cmd!(c, "PTTL", "k"), int(1000));
    }
    // Shorter: with it everything ends.
    cmd!(c, "PEXPIRE", "k", 100);
    server.clock().advance_ms(101);
    acquire(&mut c, "k d 1000 1");
}

#[test]
fn a_step_back_stretches_leases_and_mints_nothing() {
    let chain = chain();
    let clock = chain.clock();
    let mut c = chain.primary.conn();
    let a = acquire(&mut c, "k a 5000 2");
    acquire(&mut c, "k b 1000 2");
    clock.advance_ms(1001);
    // What counts as over now, does not after the step.
    assert_eq!(cmd!(c, "SEM.INFO", "k").field("permits"), &int(1));
    assert_eq!(run(&mut c, "SEM.ACQUIRE k x 1 2 PERMITS 2"), nil());
    clock.advance_ms(-3_600_000);
    assert_eq!(cmd!(c, "SEM.INFO", "k").field("permits"), &int(2));
    assert_eq!(run(&mut c, "SEM.ACQUIRE k x 1000 2"), nil());
    assert_eq!(of_holder(&mut c, "k", "a", "ttl_ms"), 3_603_999);
    assert_eq!(of_holder(&mut c, "k", "a", "held_ms"), 0);
    assert_eq!(run(&mut c, "SEM.RENEW k a 1000"), int(3_603_999));
    assert_eq!(run(&mut c, "SEM.ACQUIRE k a 1000 2"), int(a));
    // One that lapsed and is back is its holder's: to give back once.
    assert_eq!(run(&mut c, "SEM.RELEASE k b"), int(1));
    assert_eq!(run(&mut c, "SEM.RELEASE k b"), int(0));
    // Tokens rise all the same.
    assert_eq!(acquire(&mut c, "k x 1000 2"), a + 2);
    assert_eq!(run(&mut c, "SEM.ACQUIRE k y 1000 2"), nil());
    chain.assert_equal();
    clock.advance_ms(3_600_000);
    acquire(&mut c, "k y 1000 2");
    holds(&mut c, "k", &[("a", 1), ("y", 1)]);
    chain.assert_equal();
}

#[test]
fn a_step_forward_ends_leases_and_no_more() {
    let server = single();
    let mut c = server.conn();
    let a = acquire(&mut c, "k a 86400000 2 PERMITS 2");
    server.clock().advance_ms(86_400_001);
    assert_eq!(run(&mut c, "SEM.RELEASE k a"), int(0));
    assert!(acquire(&mut c, "k b 1000 2 PERMITS 2") > a + 86_400_000_000);
    holds(&mut c, "k", &[("b", 2)]);
}
