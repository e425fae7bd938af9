//! Waits for permits that end otherwise than by a release: time, death, and what happens to the key.

use std::time::Duration;

use crate::sem_support::*;
use crate::support::*;
use crate::waiting_stress::Abrupt;
use crate::waiting_support::*;

#[test]
fn a_wait_that_is_over_is_nil_and_lets_those_behind_through() {
    let server = single();
    let since = Since::now(&server);
    let mut c = server.conn();
    acquire(&mut c, "k a 60000 3 PERMITS 2");
    let line = "SEM.ACQUIRE k big 60000 3 PERMITS 3 BLOCK 20000";
    let mut big = Waiter::send(&server, line);
    let mut small = wait_for(&server, "k small 60000 3");
    server.clock().advance_mono_ms(15_000);
    small.still_waits();
    server.clock().advance_mono_ms(5001);
    assert_eq!(big.answer(), nil());
    // One was free for it all the time.
    small.token();
    holds(&mut c, "k", &[("a", 2), ("small", 1)]);
    since.all_counted(&[("sem_wait_timeouts", 1), ("lock_wait_timeouts", 0)]);
    nobody_waits(&server);
}

#[test]
fn waits_that_ended_are_answered_before_a_grant_of_the_same_instant() {
    let server = single();
    let mut c = server.conn();
    acquire(&mut c, "k a 60000 1");
    let mut late = Waiter::send(&server, "SEM.ACQUIRE k late 60000 1 BLOCK 20000");
    let mut next = wait_for(&server, "k next 60000 1");
    // Before cron or the timer can see it.
    server.sigstop();
    server.clock().advance_mono_ms(20_001);
    c.send(&words("SEM.RELEASE k a"));
    server.sigcont();
    assert_eq!(c.recv(), int(1));
    assert_eq!(late.answer(), nil());
    next.token();
    holds(&mut c, "k", &[("next", 1)]);
}

#[test]
fn client_unblock_sends_a_waiter_away_and_serves_the_next() {
    let server = single();
    let mut c = server.conn();
    for (how, answer) in [
        (args![], nil()),
        (args!["TIMEOUT"], nil()),
        (args!["ERROR"], err(UNBLOCKED)),
    ] {
        acquire(&mut c, "k a 60000 3 PERMITS 2");
        let mut big = wait_for(&server, "k big 60000 3 PERMITS 2");
        let mut small = wait_for(&server, "k small 60000 3");
        let unblock = [args!["CLIENT", "UNBLOCK", big.id], how].concat();
        assert_eq!(c.cmd(&unblock), int(1));
        assert_eq!(c.cmd(&unblock), int(0));
        assert_eq!(big.answer(), answer);
        small.token();
        holds(&mut c, "k", &[("a", 2), ("small", 1)]);
        // The connection is good for more.
        assert_eq!(run(&mut big.conn, "SEM.ACQUIRE k big 1 3 PERMITS 2"), nil());
        cmd!(c, "DEL", "k");
    }
    nobody_waits(&server);
}

#[test]
fn one_more_than_may_wait_is_queuefull() {
    let server = single();
    let since = Since::now(&server);
    let mut c = server.conn();
    cmd!(c, "CONFIG", "SET", "sluice.max-waiters-per-key", 2);
    acquire(&mut c, "k a 60000 1");
    let mut first = wait_for(&server, "k w1 60000 1");
    let second = wait_for(&server, "k w2 60000 1");
    let line = "SEM.ACQUIRE k w3 60000 1 BLOCK 60000";
    assert_eq!(run(&mut c, line), err(QUEUE_FULL));
    assert_eq!(run(&mut c, "SEM.ACQUIRE k w3 60000 1"), nil());
    since.all_counted(&[("sem_queue_full", 1), ("lock_queue_full", 0)]);
    drop(second);
    eventually("there is room", || counter(&server, "waiters") == 1);
    let mut third = Waiter::send(&server, line);
    cmd!(c, "SEM.RELEASE", "k", "a");
    first.token();
    cmd!(c, "SEM.RELEASE", "k", "w1");
    third.token();
}

#[test]
fn a_waiter_that_disconnects_gives_its_place_up() {
    let server = single();
    let mut c = server.conn();
    acquire(&mut c, "k a 60000 3 PERMITS 2");
    let big = wait_for(&server, "k big 60000 3 PERMITS 3");
    let mut small = wait_for(&server, "k small 60000 3");
    drop(big);
    small.token();
    holds(&mut c, "k", &[("a", 2), ("small", 1)]);
    nobody_waits(&server);
}

/// A grant whose client is gone before it could be handed over is undone, and goes on.
#[test]
fn a_grant_to_clients_that_are_gone_goes_to_those_behind() {
    let chain = chain();
    let server = &chain.primary;
    let mut c = server.conn();
    acquire(&mut c, "k a 60000 4 PERMITS 3");
    acquire(&mut c, "k b 60000 4");
    let dying = [1, 2, 3].map(|n| wait_for(server, &format!("k dying{n} 60000 4")));
    let mut next = wait_for(server, "k next 60000 4 PERMITS 2");
    let mut last = wait_for(server, "k last 60000 4");
    let mut unit = vec![words("SEM.RELEASE k a")];
    unit.extend(
        dying
            .iter()
            .map(|dying| words(&format!("CLIENT KILL ID {}", dying.id))),
    );
    assert_eq!(c.exec_multi(&unit), [int(3), int(1), int(1), int(1)]);
    next.token();
    last.token();
    holds(&mut c, "k", &[("b", 1), ("next", 2), ("last", 1)]);
    chain.assert_equal();
    // The only one, on a key that it had for itself.
    cmd!(c, "DEL", "k");
    acquire(&mut c, "k a 60000 1");
    let dying = wait_for(server, "k dying 60000 1");
    let kill = words(&format!("CLIENT KILL ID {}", dying.id));
    c.exec_multi(&[words("SEM.RELEASE k a"), kill]);
    eventually("it is free", || cmd!(c, "EXISTS", "k") == int(0));
    chain.assert_equal();
    nobody_waits(server);
}

/// redis#14677 with permits: waiters close with a reset in the moment of their grant.
#[test]
fn waiters_that_reset_their_connections_leave_no_ghost() {
    let server = single();
    let mut c = server.conn();
    for round in 0..100 {
        acquire(&mut c, "k a 60000 2 PERMITS 2");
        let line = "SEM.ACQUIRE k gone 60000 2 PERMITS 2 BLOCK 60000";
        let gone = Abrupt::waits(&server, line);
        eventually("it waits", || counter(&server, "waiters") == 1);
        let mut next = server.conn();
        next.send(&words("SEM.ACQUIRE k next 60000 2 BLOCK 60000"));
        eventually("both wait", || counter(&server, "waiters") == 2);
        if round % 2 == 0 {
            c.send(&words("SEM.RELEASE k a"));
            gone.vanish();
        } else {
            gone.vanish();
            c.send(&words("SEM.RELEASE k a"));
        }
        assert_eq!(c.recv(), int(2));
        // It had its reply, or not: a dead holder that had keeps its lease.
        match next.recv_timeout(Duration::from_millis(100)) {
            Some(reply) => assert!(reply.as_int() > 0),
            None => {
                holds(&mut c, "k", &[("gone", 2)]);
                assert_eq!(cmd!(c, "SEM.RELEASE", "k", "gone"), int(2));
                assert!(next.recv().as_int() > 0);
            }
        }
        assert_eq!(cmd!(c, "SEM.RELEASE", "k", "next"), int(1));
        assert_eq!(cmd!(c, "DBSIZE"), int(0));
    }
    nobody_waits(&server);
    assert!(!server.log().contains("panic"));
}

#[test]
fn whatever_takes_the_key_away_wakes_its_queue() {
    let chain = chain();
    let server = &chain.primary;
    let mut c = server.conn();
    for take in [
        "DEL k",
        "UNLINK k",
        "FLUSHDB",
        "FLUSHALL ASYNC",
        "RENAME k elsewhere",
        "MOVE k 5",
        "SWAPDB 0 1",
        "PEXPIRE k -1",
        "RESTORE",
    ] {
        acquire(&mut c, "k a 60000 2");
        acquire(&mut c, "k b 60000 2");
        let mut both = wait_for(server, "k both 60000 2 PERMITS 2");
        let mut next = wait_for(server, "k next 60000 2");
        if take == "RESTORE" {
            // By a semaphore with as little room: the queue waits for that one.
            acquire(&mut c, "other z 60000 2");
            let dump = cmd!(c, "DUMP", "other");
            cmd!(c, "DEL", "other");
            let restored = cmd!(c, "RESTORE", "k", 60_000, dump.as_bytes(), "REPLACE");
            assert_eq!(restored, ok());
            both.still_waits();
            assert_eq!(cmd!(c, "SEM.RELEASE", "k", "z"), int(1));
        } else {
            assert!(!run(&mut c, take).is_error(), "{take}");
        }
        let token = both.token();
        holds(&mut c, "k", &[("both", 2)]);
        // The old holders have nothing there any more.
        for line in ["SEM.RELEASE k a", "SEM.RENEW k b 1000"] {
            assert_eq!(run(&mut c, line), int(0), "{take}");
        }
        cmd!(c, "SEM.RELEASE", "k", "both", "TOKEN", token);
        next.token();
        chain.assert_equal();
        cmd!(c, "FLUSHALL");
    }
    nobody_waits(server);
}

#[test]
fn a_renamed_semaphore_takes_its_holders_along_and_no_waiters() {
    let server = single();
    let mut c = server.conn();
    acquire(&mut c, "k a 60000 2 PERMITS 2");
    acquire(&mut c, "other b 60000 2");
    let mut at_k = wait_for(&server, "k w 60000 2");
    let mut at_other = wait_for(&server, "other x 60000 2 PERMITS 2");
    assert_eq!(run(&mut c, "RENAME k other"), ok());
    at_k.token();
    at_other.still_waits();
    holds(&mut c, "other", &[("a", 2)]);
    assert_eq!(cmd!(c, "SEM.RELEASE", "other", "b"), int(0));
    assert_eq!(cmd!(c, "SEM.RELEASE", "other", "a"), int(2));
    at_other.token();
}

#[test]
fn another_type_over_the_key_is_wrongtype_for_all_who_wait() {
    let server = single();
    let mut c = server.conn();
    for take in ["SET k v", "COPY string k REPLACE", "RENAME string k"] {
        cmd!(c, "SET", "string", "v");
        acquire(&mut c, "k a 60000 1");
        let mut waiters = ["b", "d"].map(|w| wait_for(&server, &format!("k {w} 60000 1")));
        assert!(!run(&mut c, take).is_error());
        for waiter in &mut waiters {
            assert_eq!(waiter.answer(), err(WRONG_TYPE), "{take}");
        }
        assert_eq!(cmd!(c, "GET", "k"), bulk("v"));
        cmd!(c, "FLUSHALL");
    }
    nobody_waits(&server);
}

/// Queues for locks and for permits on one name: whoever comes first makes the free key its kind,
/// and the others are told.
#[test]
fn waiters_for_locks_and_permits_on_one_name() {
    let server = single();
    let mut c = server.conn();
    hold(&mut c, "k");
    // While it is a lock nobody waits for permits.
    let line = "SEM.ACQUIRE k s 60000 5 BLOCK 60000";
    assert_eq!(run(&mut c, line), err(WRONG_TYPE));
    let [mut lock_a, mut lock_b] = queue(&server, "k", ["a", "b"]);
    // In one turn it goes and comes back as a semaphore: the queue of locks goes first.
    let mut permit = server.conn();
    permit.send(&args!["MULTI"]);
    permit.send(&words("DEL k"));
    permit.send(&words("SEM.ACQUIRE k s 60000 5"));
    permit.send(&args!["EXEC"]);
    let replies: Vec<Reply> = (0..4).map(|_| permit.recv()).collect();
    assert_eq!(replies[3], array([int(1), nil()]));
    let a = lock_a.token();
    is_held_by(&mut c, "k", "a", a);
    lock_b.still_waits();
    cmd!(c, "LOCK.RELEASE", "k", "a");
    lock_b.token();
    cmd!(c, "LOCK.RELEASE", "k", "b");

    // The other way round.
    acquire(&mut c, "k s 60000 1");
    let mut permits = ["t", "u"].map(|w| wait_for(&server, &format!("k {w} 60000 1")));
    let line = "LOCK.ACQUIRE k a 60000 BLOCK 60000";
    assert_eq!(run(&mut c, line), err(WRONG_TYPE));
    let replies = c.exec_multi(&[words("DEL k"), words("LOCK.ACQUIRE k a 60000")]);
    assert_eq!(replies, [int(1), nil()]);
    permits[0].token();
    assert_eq!(cmd!(c, "SEM.RELEASE", "k", "t"), int(1));
    permits[1].token();
    // A lock put in its place.
    let mut x = wait_for(&server, "k x 60000 1");
    cmd!(c, "LOCK.ACQUIRE", "lock", "a", 60_000);
    cmd!(c, "RENAME", "lock", "k");
    assert_eq!(x.answer(), err(WRONG_TYPE));
    nobody_waits(&server);
}

/// A holder at the head asks for other permits than it has got by another way meanwhile.
#[test]
fn a_waiter_that_holds_other_permits_when_its_turn_comes_is_told() {
    let server = single();
    let mut c = server.conn();
    acquire(&mut c, "other w 60000 5 PERMITS 3");
    acquire(&mut c, "k a 60000 2 PERMITS 2");
    let mut w = wait_for(&server, "k w 60000 2 PERMITS 2");
    let mut x = wait_for(&server, "k x 60000 5 PERMITS 2");
    run(&mut c, "RENAME other k");
    assert_eq!(w.answer(), permits_changed(3));
    x.token();
    holds(&mut c, "k", &[("w", 3), ("x", 2)]);
    // One that holds the same is answered with its token.
    let held = acquire(&mut c, "same y 60000 5 PERMITS 3");
    let mut y = wait_for(&server, "k y 70000 5 PERMITS 3");
    run(&mut c, "RENAME same k");
    assert_eq!(y.token(), held);
    assert_eq!(of_holder(&mut c, "k", "y", "ttl_ms"), 70_000);
}
