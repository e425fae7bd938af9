//! Semaphores and their waiters where servers change: roles, pauses, restarts, slots of a cluster.

use std::time::Instant;

use crate::sem_support::*;
use crate::support::*;
use crate::waiting_cluster::{assert_sent_away, Cluster};
use crate::waiting_failover::{assert_quiet, assert_unblocked, follow, let_wait, pair};
use crate::waiting_support::*;

// Roles and pauses ---------------------------------------------------------------------------------------

#[test]
fn a_demoted_primary_sends_its_waiters_away_and_the_promoted_one_grants_anew() {
    let (old, new) = pair();
    let mut c = old.conn();
    let a = acquire(&mut c, "k a 60000 3 PERMITS 2");
    let b = acquire(&mut c, "k b 5000 3");
    let mut waiters: Vec<Conn> = (0..2)
        .map(|n| let_wait(&old, &format!("SEM.ACQUIRE k w{n} 60000 3 BLOCK 60000")))
        .collect();
    new.wait_synced_with(&old);
    assert_eq!(run(&mut new.conn(), "REPLICAOF NO ONE"), ok());
    follow(&old, &new);
    for waiter in &mut waiters {
        assert_unblocked(waiter);
    }
    old.wait_synced_with(&new);
    let line = "SEM.ACQUIRE k w0 60000 3 BLOCK 60000";
    let refused = run(&mut old.conn(), line).as_text();
    assert!(refused.starts_with("READONLY"), "{refused}");
    holds(&mut old.conn(), "k", &[("a", 2), ("b", 1)]);

    // The leases go on, and so do the limits and the tokens.
    let mut c = new.conn();
    assert_eq!(run(&mut c, "SEM.RENEW k a 70000"), int(70_000));
    assert_eq!(run(&mut c, "SEM.ACQUIRE k w0 1000 3"), nil());
    let mut waiters: Vec<Waiter> = (0..3)
        .map(|n| wait_for(&new, &format!("k w{n} 60000 3")))
        .collect();
    new.clock().advance_ms(5001);
    let first = waiters[0].token();
    assert!(first > b && b > a);
    assert_eq!(run(&mut c, &format!("SEM.RELEASE k a TOKEN {a}")), int(2));
    assert_eq!(waiters[1].token(), first + 1);
    assert_eq!(waiters[2].token(), first + 2);
    old.wait_synced_with(&new);
    let digest = |server: &Server| cmd!(server.conn(), "DEBUG", "DIGEST");
    assert_eq!(digest(&old), digest(&new));
    assert_eq!(counter(&old, "sem_granted"), 2, "granted on a replica");
    assert_quiet(&old);
    assert_quiet(&new);
}

#[test]
fn a_session_that_ends_as_the_role_changes_is_the_new_primarys_to_keep() {
    let (old, new) = pair();
    let mut conn = old.conn();
    acquire(&mut conn, "k a 60000 1 SESSION");
    new.wait_synced_with(&old);
    assert_eq!(run(&mut new.conn(), "REPLICAOF NO ONE"), ok());
    follow(&old, &new);
    drop(conn);
    old.wait_synced_with(&new);
    std::thread::sleep(TWO_CRONS);
    for server in [&old, &new] {
        holds(&mut server.conn(), "k", &[("a", 1)]);
        assert_eq!(of_holder(&mut server.conn(), "k", "a", "session"), 0);
    }
    assert_quiet(&old);
}

#[test]
fn what_ends_as_the_role_changes_is_granted_by_the_new_primary_alone() {
    let (old, new) = pair();
    let mut c = old.conn();
    acquire(&mut c, "k a 60000 1");
    let mut waiter = let_wait(&old, "SEM.ACQUIRE k w 60000 1 BLOCK 60000");
    new.wait_synced_with(&old);
    // DEL only queues the grant; in the same turn of its loop the server turns into a replica.
    let replies = c.pipeline(&[
        args!["DEL", "k"],
        args!["REPLICAOF", "127.0.0.1", new.port()],
    ]);
    assert_eq!(replies, [int(1), ok()]);
    assert_unblocked(&mut waiter);
    assert_eq!(counter(&old, "sem_granted"), 1);
    assert_quiet(&old);
}

#[test]
fn during_a_pause_nothing_is_granted_and_waits_end() {
    let chain = chain();
    let server = &chain.primary;
    let mut c = server.conn();
    acquire(&mut c, "k a 1000 2");
    acquire(&mut c, "k b 2000 2");
    let mut short = Waiter::send(server, "SEM.ACQUIRE k short 60000 2 BLOCK 20000");
    let mut w = Waiter::send(server, "SEM.ACQUIRE k w 60000 2 PERMITS 2 BLOCK 500000");
    assert_eq!(cmd!(c, "CLIENT", "PAUSE", 1_000_000, "WRITE"), ok());
    chain.clock().advance_ms(1001);
    short.still_waits();
    assert_eq!(cmd!(c, "SEM.INFO", "k").field("permits"), &int(1));
    server.clock().advance_mono_ms(20_001);
    assert_eq!(short.answer(), nil());
    chain.clock().advance_ms(1000);
    w.still_waits();
    assert_eq!(cmd!(c, "CLIENT", "UNPAUSE"), ok());
    w.token();
    holds(&mut c, "k", &[("w", 2)]);
    chain.assert_equal();
}

#[test]
fn a_server_with_waiters_stops_and_starts() {
    let server = Options::new().aof(Aof::Pure).start();
    server.clock().freeze_at(T_US);
    let mut c = server.conn();
    let a = acquire(&mut c, "k a 60000 1");
    let waiter = let_wait(&server, "SEM.ACQUIRE k w 60000 1 BLOCK 60000");
    server.restart();
    drop(waiter);
    let mut c = server.conn();
    holds(&mut c, "k", &[("a", 1)]);
    let mut w = wait_for(&server, "k w 60000 1");
    assert_eq!(run(&mut c, "SEM.RELEASE k a"), int(1));
    assert!(w.token() > a);
}

// Cluster ---------------------------------------------------------------------------------------------------

fn ask(server: &Server, line: &str) -> Reply {
    run(&mut server.conn(), line)
}

#[test]
fn a_semaphore_that_migrates_is_granted_at_the_target_alone() {
    let cluster = Cluster::start();
    let (slot, from, to) = cluster.place("{a}k");
    let (source, target) = (&cluster.nodes[from], &cluster.nodes[to]);
    let a = ask(source, "SEM.ACQUIRE {a}k a 60000 3 PERMITS 2").as_int();
    let b = ask(source, "SEM.ACQUIRE {a}k b 60000 3").as_int();
    let lines = [0, 1].map(|n| format!("SEM.ACQUIRE {{a}}k w{n} 60000 3 PERMITS 2 BLOCK 60000"));
    let mut waiters: Vec<Conn> = lines.iter().map(|line| let_wait(source, line)).collect();

    cluster.open_slot(slot, from, to);
    cluster.migrate("{a}k", from, to);
    let gone = Instant::now();
    cluster.close_slot(slot, from, to);
    for waiter in &mut waiters {
        assert_sent_away(waiter, gone);
    }
    assert_quiet(source);
    let moved = ask(source, &lines[0]).as_text();
    assert!(moved.starts_with("MOVED"), "{moved}");

    // The same holders again, where the permits are now.
    let mut waiters: Vec<Conn> = lines.iter().map(|line| let_wait(target, line)).collect();
    assert_eq!(ask(target, "SEM.RENEW {a}k b 70000"), int(70_000));
    let info = ask(target, "SEM.INFO {a}k");
    assert_eq!(info.field("permits"), &int(3));
    assert_eq!(info.field("holders").items()[0].field("token"), &int(a));
    assert_eq!(ask(target, "SEM.RELEASE {a}k a"), int(2));
    let first = waiters[0].recv().as_int();
    assert!(first > b);
    assert_eq!(ask(target, "SEM.RELEASE {a}k w0"), int(2));
    assert!(waiters[1].recv().as_int() > first);
    assert_eq!(counter(source, "sem_granted"), 2, "granted at the source");
    assert_quiet(target);
}

#[test]
fn while_its_slot_is_migrating_a_semaphore_that_is_still_here_is_served_here() {
    let cluster = Cluster::start();
    let (slot, from, to) = cluster.place("{a}k");
    let (source, target) = (&cluster.nodes[from], &cluster.nodes[to]);
    ask(source, "SEM.ACQUIRE {a}k a 60000 2");
    ask(source, "SEM.ACQUIRE {a}k b 60000 2");
    let mut here = let_wait(source, "SEM.ACQUIRE {a}k here 60000 2 BLOCK 60000");
    let mut there = let_wait(source, "SEM.ACQUIRE {a}k there 60000 2 BLOCK 60000");
    cluster.open_slot(slot, from, to);
    assert_eq!(ask(source, "SEM.RELEASE {a}k a"), int(1));
    let token = here.recv().as_int();
    cluster.migrate("{a}k", from, to);
    assert_sent_away(&mut there, Instant::now());
    cluster.close_slot(slot, from, to);
    let mut there = let_wait(target, "SEM.ACQUIRE {a}k there 60000 2 BLOCK 60000");
    assert_eq!(ask(target, "SEM.RELEASE {a}k b"), int(1));
    assert!(there.recv().as_int() > token);
    assert_quiet(source);
    assert_quiet(target);
}

/// Served there only to those who ASK: a waiter, whom nobody asks again, is sent away too.
#[test]
fn a_waiter_at_the_importing_node_is_told_that_the_slot_moves() {
    let cluster = Cluster::start();
    let (slot, from, to) = cluster.place("{a}k");
    let (source, target) = (&cluster.nodes[from], &cluster.nodes[to]);
    ask(source, "SEM.ACQUIRE {a}k a 60000 1");
    cluster.open_slot(slot, from, to);
    cluster.migrate("{a}k", from, to);
    let mut waiter = target.conn();
    assert_eq!(cmd!(waiter, "ASKING"), ok());
    waiter.send(&words("SEM.ACQUIRE {a}k w 60000 1 BLOCK 60000"));
    let moves = "TRYAGAIN the key's slot is moving: ask again where it is served";
    assert_eq!(waiter.recv(), err(moves));
    cluster.close_slot(slot, from, to);
    assert_quiet(target);
}

#[test]
fn what_becomes_free_in_a_migrating_slot_is_not_granted_there() {
    let cluster = Cluster::start();
    // By the last lease, and by a DEL: in both cases the next ACQUIRE belongs to the target.
    for (key, lease) in [("{a}ends", 300), ("{b}deleted", 60_000)] {
        let (slot, from, to) = cluster.place(key);
        let (source, target) = (&cluster.nodes[from], &cluster.nodes[to]);
        let granted = counter(source, "sem_granted");
        let first = ask(source, &format!("SEM.ACQUIRE {key} a {lease} 1")).as_int();
        let again = format!("SEM.ACQUIRE {key} w 60000 1 BLOCK 60000");
        let mut waiter = let_wait(source, &again);
        cluster.open_slot(slot, from, to);
        if lease > 1000 {
            assert_eq!(ask(source, &format!("DEL {key}")), int(1));
        }
        assert_sent_away(&mut waiter, Instant::now());
        assert_eq!(counter(source, "sem_granted"), granted + 1);
        let asked = ask(source, &again).as_text();
        assert!(asked.starts_with("ASK"), "{asked}");
        let replies = target.conn().pipeline(&[args!["ASKING"], words(&again)]);
        assert!(replies[1].as_int() > first, "{replies:?}");
        cluster.close_slot(slot, from, to);
        assert_eq!(ask(target, &format!("SEM.RENEW {key} a 1000")), int(0));
        assert_quiet(source);
    }
}
