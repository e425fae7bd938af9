//! Semaphores: one scenario for each promise.

use crate::sem_support::*;
use crate::support::*;
use crate::waiting_support::*;

#[test]
fn permits_are_granted_up_to_the_limit_and_given_back_once() {
    let server = single();
    let since = Since::now(&server);
    let mut c = server.conn();
    let a = acquire(&mut c, "k a 60000 3 PERMITS 2 META host-7");
    let b = acquire(&mut c, "k b 30000 3");
    assert!(b > a);
    assert_eq!(cmd!(c, "SEM.ACQUIRE", "k", "c", 60_000, 3), nil());
    holds(&mut c, "k", &[("a", 2), ("b", 1)]);
    let info = cmd!(c, "SEM.INFO", "k");
    assert_eq!(info.field("permits"), &int(3));
    assert_eq!(info.field("ttl_ms"), &int(60_000));
    assert_eq!(info.field("waiters"), &int(0));
    assert_eq!(
        info.field("holders").items()[0].field("meta"),
        &bulk("host-7")
    );
    assert_eq!(counter(&server, "sem_permits"), 3);
    assert_eq!(counter(&server, "sem_keys"), 1);

    assert_eq!(cmd!(c, "SEM.RELEASE", "k", "a", "TOKEN", b), int(0));
    assert_eq!(cmd!(c, "SEM.RELEASE", "k", "a", "TOKEN", a), int(2));
    assert_eq!(cmd!(c, "SEM.RELEASE", "k", "a"), int(0));
    assert_eq!(cmd!(c, "PTTL", "k"), int(30_000));
    assert_eq!(cmd!(c, "SEM.ACQUIRE", "k", "c", 1, 3, "permits", 3), nil());
    assert_eq!(cmd!(c, "SEM.RELEASE", "k", "b"), int(1));
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
    assert_eq!(cmd!(c, "SEM.INFO", "k"), nil());
    assert_eq!(counter(&server, "sem_permits"), 0);
    assert_eq!(counter(&server, "sem_keys"), 0);
    for (name, expected) in [
        ("sem_granted", 2),
        ("sem_busy", 2),
        ("sem_released", 2),
        ("sem_release_not_holder", 2),
        ("lock_granted", 0),
    ] {
        assert_eq!(since.counted(name), expected, "{name}");
    }
}

#[test]
fn a_retry_keeps_token_and_permits_and_extends() {
    let server = single();
    let since = Since::now(&server);
    let mut c = server.conn();
    let token = acquire(&mut c, "k a 1000 5 PERMITS 2");
    assert_eq!(acquire(&mut c, "k a 500 5 PERMITS 2"), token);
    assert_eq!(cmd!(c, "PTTL", "k"), int(1000));
    assert_eq!(acquire(&mut c, "k a 5000 2 PERMITS 2"), token);
    assert_eq!(cmd!(c, "PTTL", "k"), int(5000));
    holds(&mut c, "k", &[("a", 2)]);
    assert_eq!(cmd!(c, "SEM.RENEW", "k", "a", 100), int(5000));
    assert_eq!(cmd!(c, "SEM.RENEW", "k", "a", 9000), int(9000));
    assert_eq!(cmd!(c, "SEM.RENEW", "k", "b", 9000), int(0));
    assert_eq!(since.counted("sem_idempotent_retries"), 2);
    server.clock().advance_ms(9001);
    assert_eq!(cmd!(c, "SEM.RENEW", "k", "a", 9000), int(0));
    assert_eq!(cmd!(c, "SEM.RELEASE", "k", "a"), int(0));
}

#[test]
fn what_can_never_be_granted_is_an_error() {
    let server = recorder();
    let mut c = server.conn();
    acquire(&mut c, "k a 60000 5 PERMITS 2");
    cmd!(c, "LOCK.ACQUIRE", "lock", "a", 60_000);
    let changed = "ERR this holder asked for 2 permits before: PERMITS cannot change";
    let above = "ERR PERMITS 5 is above the limit of 3: it can never be granted";
    let limit = "ERR limit must be an integer between 1 and 1000000";
    let permits = "ERR PERMITS must be an integer between 1 and 1000000";
    let long = format!("SEM.ACQUIRE k {} 1 1", "x".repeat(513));
    answers(
        &server,
        &[
            ("SEM.ACQUIRE k b 1000 3 PERMITS 5", err(above)),
            ("SEM.ACQUIRE k a 1000 5", err(changed)),
            ("SEM.ACQUIRE k a 1000 5 PERMITS 3 BLOCK 1", err(changed)),
            ("SEM.ACQUIRE k b 1000 0", err(limit)),
            ("SEM.ACQUIRE k b 1000 1000001", err(limit)),
            ("SEM.ACQUIRE k b 1000 5 PERMITS 0", err(permits)),
            ("SEM.ACQUIRE k b 1000 5 PERMITS", err(SYNTAX)),
            ("SEM.ACQUIRE k b 1000 5 PERMITS 1 PERMITS 1", err(SYNTAX)),
            ("SEM.ACQUIRE k b 1000 5 SHARED", err(SYNTAX)),
            ("SEM.ACQUIRE lock b 1000 5", err(WRONG_TYPE)),
            ("SEM.RELEASE lock b", err(WRONG_TYPE)),
            ("SEM.INFO lock", err(WRONG_TYPE)),
            ("LOCK.ACQUIRE k b 1000", err(WRONG_TYPE)),
            (
                &long,
                err("ERR holder must be between 1 and 512 bytes long"),
            ),
        ],
    );
}

#[test]
fn a_lower_limit_revokes_nothing_and_grants_nothing_until_enough_is_back() {
    let server = single();
    let mut c = server.conn();
    for n in 0..5 {
        acquire(&mut c, &format!("k h{n} 60000 5"));
    }
    assert_eq!(cmd!(c, "SEM.ACQUIRE", "k", "x", 60_000, 2), nil());
    for n in 0..3 {
        cmd!(c, "SEM.RELEASE", "k", format!("h{n}"));
        assert_eq!(cmd!(c, "SEM.ACQUIRE", "k", "x", 60_000, 2), nil());
    }
    cmd!(c, "SEM.RELEASE", "k", "h3");
    acquire(&mut c, "k x 60000 2");
    holds(&mut c, "k", &[("h4", 1), ("x", 1)]);
}

#[test]
fn a_release_hands_over_to_those_at_the_head_and_nobody_overtakes_them() {
    let chain = chain();
    let server = &chain.primary;
    let mut c = server.conn();
    for n in 0..5 {
        acquire(&mut c, &format!("k h{n} 60000 5"));
    }
    let mut big = Waiter::send(server, "SEM.ACQUIRE k big 60000 5 PERMITS 3 BLOCK 60000");
    let mut small = Waiter::send(server, "SEM.ACQUIRE k small 60000 5 BLOCK 60000");
    let mut last = Waiter::send(server, "SEM.ACQUIRE k last 60000 5 BLOCK 60000");
    for n in 0..2 {
        assert_eq!(cmd!(c, "SEM.RELEASE", "k", format!("h{n}")), int(1));
        // Neither those behind it nor newcomers.
        assert_eq!(cmd!(c, "SEM.ACQUIRE", "k", "new", 60_000, 5), nil());
    }
    small.still_waits();
    assert_eq!(cmd!(c, "SEM.RELEASE", "k", "h2"), int(1));
    holds(&mut c, "k", &[("h3", 1), ("h4", 1), ("big", 3)]);
    let token = big.token();
    chain.assert_equal();
    assert_eq!(cmd!(c, "SEM.RELEASE", "k", "big", "TOKEN", token), int(3));
    holds(
        &mut c,
        "k",
        &[("h3", 1), ("h4", 1), ("small", 1), ("last", 1)],
    );
    assert!(small.token() < last.token());
    chain.assert_equal();
    assert_eq!(counter(server, "sem_permits"), 4);
    for replica in chain.servers() {
        holds(
            &mut replica.conn(),
            "k",
            &[("h3", 1), ("h4", 1), ("small", 1), ("last", 1)],
        );
        eventually("permits are counted", || {
            counter(replica, "sem_permits") == 4
        });
    }
    nobody_waits(server);
}

#[test]
fn the_last_release_hands_the_whole_key_over() {
    let chain = chain();
    let mut c = chain.primary.conn();
    acquire(&mut c, "k a 60000 2 PERMITS 2");
    let mut b = Waiter::send(&chain.primary, "SEM.ACQUIRE k b 60000 2 BLOCK 60000");
    let mut d = Waiter::send(&chain.primary, "SEM.ACQUIRE k d 60000 2 BLOCK 60000");
    assert_eq!(cmd!(c, "SEM.RELEASE", "k", "a"), int(2));
    assert!(b.token() < d.token());
    chain.assert_equal();
    holds(&mut chain.sub.conn(), "k", &[("b", 1), ("d", 1)]);
    cmd!(c, "SEM.RELEASE", "k", "b");
    cmd!(c, "SEM.RELEASE", "k", "d");
    chain.assert_equal();
    assert_eq!(cmd!(chain.sub.conn(), "EXISTS", "k"), int(0));
}

#[test]
fn each_deadline_wakes_the_queue_at_its_own_moment() {
    let chain = chain();
    let server = &chain.primary;
    let since = Since::now(server);
    let mut c = server.conn();
    for (holder, lease) in [("a", 1000), ("b", 2000), ("d", 60_000)] {
        acquire(&mut c, &format!("k {holder} {lease} 3"));
    }
    let mut two = Waiter::send(server, "SEM.ACQUIRE k two 60000 3 PERMITS 2 BLOCK 60000");
    chain.clock().advance_ms(1001);
    two.still_waits();
    assert_eq!(cmd!(c, "SEM.INFO", "k").field("permits"), &int(2));
    chain.clock().advance_ms(1000);
    two.token();
    holds(&mut c, "k", &[("d", 1), ("two", 2)]);
    assert_eq!(since.counted("sem_leases_expired"), 2);
    chain.assert_equal();
    assert_eq!(counter(server, "sem_permits"), 3);
}

#[test]
fn a_waiting_holder_that_asks_again_shares_its_place() {
    let server = single();
    let mut c = server.conn();
    acquire(&mut c, "k a 60000 2 PERMITS 2");
    let line = "SEM.ACQUIRE k b 60000 2 PERMITS 2 BLOCK 60000";
    let mut first = Waiter::send(&server, line);
    let mut again = Waiter::send(&server, line);
    let changed = err("ERR this holder asked for 2 permits before: PERMITS cannot change");
    assert_eq!(cmd!(c, "SEM.ACQUIRE", "k", "b", 60_000, 2), changed);
    let blocking = "SEM.ACQUIRE k b 60000 2 PERMITS 1 BLOCK 60000";
    assert_eq!(c.cmd(&words(blocking)), changed);
    cmd!(c, "SEM.RELEASE", "k", "a");
    assert_eq!(first.token(), again.token());
    holds(&mut c, "k", &[("b", 2)]);
}

#[test]
fn a_wait_ends_in_nil_and_counts_as_a_semaphores() {
    let server = single();
    let since = Since::now(&server);
    let mut c = server.conn();
    acquire(&mut c, "k a 60000 1");
    let mut waiter = Waiter::send(&server, "SEM.ACQUIRE k b 60000 1 BLOCK 30000");
    assert_eq!(cmd!(c, "SEM.INFO", "k").field("waiters"), &int(1));
    server.clock().advance_mono_ms(30_001);
    assert_eq!(waiter.answer(), nil());
    assert_eq!(since.counted("sem_wait_timeouts"), 1);
    assert_eq!(since.counted("lock_wait_timeouts"), 0);
    let replies = c.multi(&[words("SEM.ACQUIRE k b 1000 1 BLOCK 1000")]);
    assert_eq!(replies, array([nil()]));
    let script = "return redis.call('SEM.ACQUIRE', KEYS[1], 'b', 1, 1, 'SESSION')";
    assert!(cmd!(c, "EVAL", script, 1, "k").is_error());
}

#[test]
fn a_session_ends_with_its_connection_and_an_unread_grant_goes_on() {
    let server = single();
    let since = Since::now(&server);
    let mut c = server.conn();
    let mut conn = server.conn();
    acquire(&mut conn, "k a 60000 3 PERMITS 2 SESSION");
    acquire(&mut c, "k b 60000 3");
    let holder = cmd!(c, "SEM.INFO", "k").field("holders").items()[0].clone();
    assert_eq!(holder.field("session"), &int(1));
    let mut waiter = Waiter::send(&server, "SEM.ACQUIRE k d 60000 3 PERMITS 2 BLOCK 60000");
    drop(conn);
    waiter.token();
    holds(&mut c, "k", &[("b", 1), ("d", 2)]);
    assert_eq!(since.counted("sem_sessions_closed"), 1);
    assert_eq!(since.counted("lock_sessions_closed"), 0);

    // Killed in the unit of its grant.
    let dying = Waiter::send(&server, "SEM.ACQUIRE k e 60000 3 PERMITS 2 BLOCK 60000");
    let mut next = Waiter::send(&server, "SEM.ACQUIRE k f 60000 3 PERMITS 2 BLOCK 60000");
    let replies = c.multi(&[
        words("SEM.RELEASE k d"),
        words(&format!("CLIENT KILL ID {}", dying.id)),
    ]);
    assert_eq!(replies, array([int(2), int(1)]));
    next.token();
    holds(&mut c, "k", &[("b", 1), ("f", 2)]);
}

#[test]
fn files_and_copies_carry_all_holders() {
    let server = Options::new().aof(Aof::Pure).start();
    let mut c = server.conn();
    for n in 0..50 {
        acquire(
            &mut c,
            &format!("k holder-{n} 60000 2000 PERMITS {}", n + 1),
        );
    }
    let before = cmd!(c, "DEBUG", "DIGEST-VALUE", "k");
    rewrite_aof(&server);
    server.shutdown_nosave();
    server.start_again();
    let mut c = server.conn();
    assert_eq!(cmd!(c, "DEBUG", "DIGEST-VALUE", "k"), before);
    assert_eq!(cmd!(c, "COPY", "k", "copy"), int(1));
    assert_eq!(cmd!(c, "DEBUG", "DIGEST-VALUE", "copy"), before);
    let dump = cmd!(c, "DUMP", "k");
    assert_eq!(
        cmd!(c, "RESTORE", "restored", 60_000, dump.as_bytes()),
        ok()
    );
    assert_eq!(cmd!(c, "DEBUG", "DIGEST-VALUE", "restored"), before);
    assert_eq!(counter(&server, "sem_permits"), 3 * 50 * 51 / 2);
    cmd!(c, "FLUSHALL");
    assert_eq!(counter(&server, "sem_permits"), 0);
}

#[test]
fn a_queue_for_a_lock_on_a_key_that_became_a_semaphore_is_told() {
    let server = single();
    let mut c = server.conn();
    acquire(&mut c, "sem a 60000 1");
    let dump = cmd!(c, "DUMP", "sem");
    hold(&mut c, "k");
    let [mut first, mut second] = queue(&server, "k", ["a", "b"]);
    let mut conn = server.conn();
    // Before the deferred writer can look at the key.
    conn.send(&args!["RESTORE", "k", 60_000, dump.as_bytes(), "REPLACE"]);
    conn.send(&words("SEM.ACQUIRE k c 60000 1 BLOCK 60000"));
    assert_eq!(conn.recv(), ok());
    assert_eq!(first.answer(), err(WRONG_TYPE));
    assert_eq!(second.answer(), err(WRONG_TYPE));
    cmd!(c, "SEM.RELEASE", "k", "a");
    assert!(matches!(conn.recv(), Reply::Int(_)));
}

#[test]
fn a_queue_for_a_lock_goes_before_a_semaphore_on_a_free_key() {
    let server = single();
    let mut c = server.conn();
    hold(&mut c, "k");
    let [mut a] = queue(&server, "k", ["a"]);
    let replies = c.multi(&[words("DEL k"), words("SEM.ACQUIRE k s 60000 1")]);
    assert_eq!(replies, array([int(1), nil()]));
    a.token();
    assert_eq!(cmd!(c, "SEM.ACQUIRE", "k", "s", 60_000, 1), err(WRONG_TYPE));
}

#[test]
fn permits_are_counted_whatever_happens_to_their_key() {
    let server = single();
    let mut c = server.conn();
    let permits = |expected: i64| {
        // Large values are freed in the background.
        eventually("permits are counted", || {
            counter(&server, "sem_permits") == expected
        });
    };
    for n in 0..100 {
        acquire(&mut c, &format!("k h{n} 60000 1000 PERMITS 3"));
    }
    permits(300);
    cmd!(c, "SEM.RELEASE", "k", "h0");
    permits(297);
    cmd!(c, "COPY", "k", "copy");
    permits(594);
    cmd!(c, "RENAME", "k", "moved");
    permits(594);
    cmd!(c, "SEM.RELEASE", "moved", "h1");
    permits(591);
    cmd!(c, "SET", "copy", "v");
    permits(294);
    acquire(&mut c, "other a 1000 5 PERMITS 5");
    acquire(&mut c, "other b 2000 6");
    permits(300);
    server.clock().advance_ms(1001);
    // Reads only hide what is over.
    assert_eq!(cmd!(c, "SEM.INFO", "other").field("permits"), &int(1));
    permits(300);
    acquire(&mut c, "other c 2000 6");
    permits(296);
    server.clock().advance_ms(2001);
    assert_eq!(cmd!(c, "SEM.INFO", "other"), nil());
    permits(294);
    cmd!(c, "UNLINK", "moved");
    permits(0);
    assert_eq!(counter(&server, "sem_keys"), 0);
}

/// One that is waited for tells its waiter, and the next is looked at.
#[test]
fn a_queue_is_served_when_its_key_goes() {
    let server = single();
    let mut c = server.conn();
    for take in ["DEL k", "RENAME k elsewhere", "FLUSHALL", "SWAPDB 0 1"] {
        acquire(&mut c, "k a 60000 1");
        let mut b = Waiter::send(&server, "SEM.ACQUIRE k b 60000 1 BLOCK 60000");
        c.cmd(&words(take));
        b.token();
        cmd!(c, "SEM.RELEASE", "k", "b");
        cmd!(c, "FLUSHALL");
    }
    acquire(&mut c, "k a 60000 1");
    let mut b = Waiter::send(&server, "SEM.ACQUIRE k b 60000 1 BLOCK 60000");
    cmd!(c, "SET", "k", "v");
    assert_eq!(b.answer(), err(WRONG_TYPE));
    nobody_waits(&server);
}

#[test]
fn a_foreign_ttl_ends_it_early_and_the_next_write_sets_it_right() {
    let server = single();
    let mut c = server.conn();
    acquire(&mut c, "k a 60000 2");
    let mut b = Waiter::send(&server, "SEM.ACQUIRE k b 60000 2 PERMITS 2 BLOCK 60000");
    cmd!(c, "PEXPIRE", "k", 1000);
    let info = cmd!(c, "SEM.INFO", "k");
    assert_eq!(info.field("ttl_ms"), &int(1000));
    assert_eq!(info.field("holders").items()[0].field("ttl_ms"), &int(1000));
    server.clock().advance_ms(1001);
    b.token();
    cmd!(c, "PERSIST", "k");
    assert_eq!(cmd!(c, "SEM.RENEW", "k", "b", 1), int(60_000));
    assert_eq!(cmd!(c, "PTTL", "k"), int(60_000));
}
