//! What the server itself makes of semaphores: keys found in commands, permissions, WATCH, tracking,
//! events, counters, memory.

use crate::acl::{no_command, no_key, user};
use crate::sem_support::*;
use crate::support::*;
use crate::waiting_support::*;

/// Each command, and the permissions for the key that it needs.
const COMMANDS: [(&str, &str); 4] = [
    ("SEM.ACQUIRE k o 1000 5", "read and write"),
    ("SEM.RELEASE k o", "write"),
    ("SEM.RENEW k o 1000", "read and write"),
    ("SEM.INFO k", "read"),
];

#[test]
fn the_key_is_found_in_every_command() {
    let server = single();
    let mut c = server.conn();
    for (line, _) in COMMANDS {
        let getkeys = [args!["COMMAND", "GETKEYS"], words(line)].concat();
        assert_eq!(c.cmd(&getkeys), array([bulk("k")]), "{line}");
    }
    let long = words("COMMAND GETKEYS SEM.ACQUIRE k o 1 5 META k2 PERMITS 2 BLOCK 5 SESSION");
    assert_eq!(c.cmd(&long), array([bulk("k")]));
}

#[test]
fn key_permissions_are_asked_for_as_needed() {
    let server = recorder();
    for (rule, allowed) in [
        ("%R~k", &["read"][..]),
        ("%W~k", &["write"]),
        ("%RW~k", &["read", "write", "read and write"]),
        ("~k", &["read", "write", "read and write"]),
        ("~other", &[]),
    ] {
        let mut conn = user(&server, &["+@all", rule]);
        for (line, needs) in COMMANDS {
            let reply = conn.cmd(&words(line));
            if allowed.contains(&needs) {
                assert!(!reply.is_error(), "{rule}, {line}: {reply:?}");
            } else {
                assert_eq!(reply, no_key(), "{rule}, {line}");
            }
        }
        cmd!(server.conn(), "FLUSHALL");
    }
}

#[test]
fn an_application_needs_four_commands() {
    let server = recorder();
    let rules = ["~*", "+sem.acquire", "+sem.release", "+sem.renew"];
    let mut conn = user(&server, &rules);
    assert!(run(&mut conn, "SEM.ACQUIRE k a 1000 5").as_int() > 0);
    assert_eq!(run(&mut conn, "SEM.RENEW k a 1000"), int(1000));
    assert_eq!(run(&mut conn, "SEM.INFO k"), no_command("SEM.INFO k"));
    assert_eq!(run(&mut conn, "SEM.RELEASE k a"), int(1));
    let locks = no_command("LOCK.ACQUIRE k");
    assert_eq!(run(&mut conn, "LOCK.ACQUIRE k a 1000"), locks);
    if since_7_2() {
        let mut conn = user(&server, &["~*", "+@read"]);
        assert_eq!(run(&mut conn, "SEM.INFO k"), nil());
        let mut conn = user(&server, &["~*", "+@write", "-@dangerous"]);
        assert!(run(&mut conn, "SEM.ACQUIRE k a 1000 5").as_int() > 0);
    }
}

#[test]
fn flags_and_categories_say_what_a_command_does() {
    let server = single();
    let mut c = server.conn();
    for (name, flags, categories) in [
        (
            "sem.acquire",
            &["blocking", "denyoom", "fast", "module", "write"][..],
            &["@blocking", "@fast", "@write"][..],
        ),
        (
            "sem.release",
            &["fast", "module", "write"],
            &["@fast", "@write"],
        ),
        (
            "sem.renew",
            &["fast", "module", "write"],
            &["@fast", "@write"],
        ),
        ("sem.info", &["module", "readonly"], &["@read", "@slow"]),
    ] {
        let info = cmd!(c, "COMMAND", "INFO", name);
        let info = info.items()[0].items();
        let sorted = |reply: &Reply| {
            let mut texts: Vec<_> = reply.items().iter().map(Reply::as_text).collect();
            texts.sort();
            texts
        };
        assert_eq!(sorted(&info[2]), flags, "{name}");
        let categories = if since_7_2() { categories } else { &[] };
        assert_eq!(sorted(&info[6]), categories, "{name}");
    }
}

// WATCH and tracking ---------------------------------------------------------------------------------------

const HELD: &[&str] = &["SEM.ACQUIRE k a 1000 3 PERMITS 2"];
const FULL: &[&str] = &["SEM.ACQUIRE k a 1000 3 PERMITS 2", "SEM.ACQUIRE k b 2000 3"];

/// What was done to key `k` before, the command, and whether it changes the key.
const CASES: &[(&[&str], &str, bool)] = &[
    (&[], "SEM.ACQUIRE k a 1000 3", true),
    (HELD, "SEM.ACQUIRE k b 1000 3", true),
    (FULL, "SEM.ACQUIRE k d 1000 3", false),
    (HELD, "SEM.ACQUIRE k b 1000 3 PERMITS 2", false),
    (HELD, "SEM.ACQUIRE k a 1000 3 PERMITS 2", false),
    (HELD, "SEM.ACQUIRE k a 1 3 PERMITS 2 META m", false),
    (HELD, "SEM.ACQUIRE k a 1001 3 PERMITS 2", true),
    (HELD, "SEM.ACQUIRE k a 2000 3 PERMITS 1", false),
    (FULL, "SEM.ACQUIRE k a 1001 3 PERMITS 2", true),
    (HELD, "SEM.RENEW k a 1001", true),
    (FULL, "SEM.RENEW k a 1001", true),
    (HELD, "SEM.RENEW k a 1000", false),
    (HELD, "SEM.RENEW k b 2000", false),
    (HELD, "SEM.RENEW k a 2000 TOKEN 1", false),
    (&[], "SEM.RENEW k a 2000", false),
    (HELD, "SEM.RELEASE k a", true),
    (FULL, "SEM.RELEASE k a", true),
    (HELD, "SEM.RELEASE k b", false),
    (HELD, "SEM.RELEASE k a TOKEN 1", false),
    (&[], "SEM.RELEASE k a", false),
    (HELD, "SEM.INFO k", false),
    (HELD, "SEM.ACQUIRE k b 0 3", false),
    (HELD, "SEM.ACQUIRE k b 1000 3 PERMITS 4", false),
    (&["SET k v"], "SEM.ACQUIRE k a 1000 3", false),
    (&["SET k v"], "SEM.RELEASE k a", false),
];

fn set_up(c: &mut Conn, before: &[&str]) {
    cmd!(c, "DEL", "k");
    for line in before {
        assert!(!run(c, line).is_error(), "{line}");
    }
}

#[test]
fn only_changes_abort_a_watched_transaction_plainly_and_in_scripts() {
    let server = single();
    let (mut c, mut watcher) = (server.conn(), server.conn());
    for (before, line, changes) in CASES {
        for in_script in [false, true] {
            set_up(&mut c, before);
            assert_eq!(cmd!(watcher, "WATCH", "k"), ok());
            match in_script {
                true => c.eval("redis.pcall(unpack(ARGV))", &["k"], &words(line)),
                false => run(&mut c, line),
            };
            let exec = watcher.multi(&[args!["PING"]]);
            assert_eq!(exec.is_nil(), *changes, "{before:?}, {line}");
        }
    }
}

#[test]
fn only_changes_invalidate_a_cached_key() {
    let server = single();
    let (mut c, mut cache) = (server.conn(), server.conn3());
    let pushes = |cache: &mut Conn| -> Vec<Reply> {
        assert_eq!(cmd!(cache, "PING"), status("PONG"));
        std::iter::from_fn(|| pushed(cache)).collect()
    };
    assert_eq!(cmd!(cache, "CLIENT", "TRACKING", "ON"), ok());
    for (before, line, changes) in CASES {
        set_up(&mut c, before);
        cmd!(cache, "EXISTS", "k");
        pushes(&mut cache);
        // That push ended the tracking of the key.
        cmd!(cache, "SEM.INFO", "k");
        cmd!(cache, "EXISTS", "k");
        run(&mut c, line);
        let invalidation = Reply::Push(vec![bulk("invalidate"), array([bulk("k")])]);
        let expected = if *changes { vec![invalidation] } else { vec![] };
        assert_eq!(pushes(&mut cache), expected, "{before:?}, {line}");
    }
}

// Events and counters --------------------------------------------------------------------------------------

#[test]
fn events_tell_grants_and_releases_in_their_order() {
    let server = single();
    let (mut c, mut listener) = (server.conn(), server.conn());
    cmd!(c, "CONFIG", "SET", "notify-keyspace-events", "Kdx");
    cmd!(listener, "PSUBSCRIBE", "__keyspace@0__:k");
    acquire(&mut c, "k a 60000 2");
    acquire(&mut c, "k b 5000 2");
    // None of these is an event.
    for line in [
        "SEM.ACQUIRE k d 1 2",
        "SEM.ACQUIRE k a 1 2",
        "SEM.RENEW k a 70000",
        "SEM.RELEASE k d",
        "SEM.INFO k",
    ] {
        run(&mut c, line);
    }
    let mut w = wait_for(&server, "k w 60000 2");
    let mut x = wait_for(&server, "k x 60000 2");
    run(&mut c, "SEM.RELEASE k a");
    w.token();
    run(&mut c, "SEM.RELEASE k w");
    x.token();
    run(&mut c, "SEM.RELEASE k x");
    // One permit's lease ends and others stay: that is no event.
    acquire(&mut c, "k y 1000 2");
    server.clock().advance_ms(5001);
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
    for event in [
        "sem.granted",
        "sem.granted",
        "sem.released",
        "sem.granted",
        "sem.released",
        "sem.granted",
        "sem.released",
        "sem.granted",
        "expired",
    ] {
        let message = listener.recv();
        assert_eq!(message.items()[3], bulk(event), "{message:?}");
    }
    assert_eq!(pushed(&mut listener), None);
}

#[test]
fn without_class_d_there_are_no_events() {
    let server = single();
    let (mut c, mut listener) = (server.conn(), server.conn());
    cmd!(c, "CONFIG", "SET", "notify-keyspace-events", "Kg$lshzxet");
    cmd!(listener, "PSUBSCRIBE", "__key*__:k");
    acquire(&mut c, "k a 60000 2");
    acquire(&mut c, "k b 60000 2");
    run(&mut c, "SEM.RELEASE k a");
    assert_eq!(pushed(&mut listener), None);
}

#[test]
fn every_outcome_is_counted_exactly() {
    let server = single();
    let since = Since::now(&server);
    let mut c = server.conn();
    cmd!(c, "CONFIG", "SET", "sluice.max-waiters-per-key", 2);
    acquire(&mut c, "k a 60000 4 PERMITS 3");
    acquire(&mut c, "k b 1000 4");
    acquire(&mut c, "k a 60000 4 PERMITS 3");
    let mut conn = server.conn();
    for line in [
        // busy, lost, not the holder's, and errors, which count as nothing.
        "SEM.ACQUIRE k x 1000 4",
        "SEM.ACQUIRE k x 1000 4 PERMITS 2",
        "SEM.RENEW k x 1000",
        "SEM.RENEW k a 1000 TOKEN 1",
        "SEM.RENEW none x 1000",
        "SEM.RELEASE k x",
        "SEM.ACQUIRE k a 1000 4",
        "SEM.ACQUIRE k x 1000 4 PERMITS 5",
        "SEM.ACQUIRE k x 0 4",
    ] {
        run(&mut c, line);
    }
    assert_eq!(run(&mut c, "SEM.RENEW k b 1000"), int(1000));
    let mut w = wait_for(&server, "k w 60000 4");
    let mut short = Waiter::send(&server, "SEM.ACQUIRE k y 60000 4 BLOCK 20000");
    let line = "SEM.ACQUIRE k z 1000 4 BLOCK 1000";
    assert_eq!(run(&mut c, line), err(QUEUE_FULL));
    assert_eq!(counter(&server, "waiters"), 2);
    // b's lease ends, and w has its permit.
    server.clock().advance_ms(1001);
    w.token();
    server.clock().advance_mono_ms(20_001);
    assert_eq!(short.answer(), nil());
    acquire(&mut conn, "other s 60000 4 PERMITS 4 SESSION");
    drop(conn);
    eventually("it is free", || cmd!(c, "EXISTS", "other") == int(0));
    since.all_counted(&[
        ("sem_permits", 4),
        ("sem_keys", 1),
        ("sem_granted", 4),
        // The three that asked to wait were busy first.
        ("sem_busy", 5),
        ("sem_idempotent_retries", 1),
        ("sem_released", 0),
        ("sem_release_not_holder", 1),
        ("sem_renewed", 1),
        ("sem_renew_lost", 3),
        ("sem_wait_timeouts", 1),
        ("sem_queue_full", 1),
        ("sem_leases_expired", 1),
        ("sem_sessions_closed", 1),
    ]);
    assert_eq!(run(&mut c, "SEM.RELEASE k a"), int(3));
    assert_eq!(run(&mut c, "SEM.RELEASE k w"), int(1));
    since.all_counted(&[
        ("sem_permits", 0),
        ("sem_keys", 0),
        ("sem_released", 2),
        ("lock_granted", 0),
        ("lock_busy", 0),
        ("lock_released", 0),
        ("lock_leases_expired", 0),
        ("waiters", 0),
    ]);
}

/// A long-held semaphore's hold times are counted for every hold that ends, also in one that lives on.
#[test]
fn hold_and_wait_times_have_percentiles() {
    let server = Options::new().start();
    server.clock().freeze_at(T_US);
    let mut c = server.conn();
    for (holder, ms) in [("a", 100), ("b", 3000), ("d", 50_000)] {
        acquire(&mut c, "k stays 600000 2");
        acquire(&mut c, &format!("k {holder} 60000 2"));
        server.clock().advance_ms(ms);
        assert_eq!(run(&mut c, &format!("SEM.RELEASE k {holder}")), int(1));
    }
    let near = |name: &str, expected: i64| {
        let found = counter(&server, name);
        assert!((found - expected).abs() * 50 <= expected, "{name}:{found}");
    };
    near("sem_hold_ms_p50", 3000);
    near("sem_hold_ms_max", 50_000);
    // One that lapsed and was pruned has ended, too: at its lease.
    acquire(&mut c, "k lapses 100000 2");
    server.clock().advance_ms(100_001);
    acquire(&mut c, "k e 1000 2");
    assert_eq!(counter(&server, "sem_leases_expired"), 1);
    near("sem_hold_ms_max", 100_000);
    assert_eq!(counter(&server, "lock_hold_ms_max"), 0);

    assert_eq!(counter(&server, "sem_wait_us_max"), 0);
    let mut w = wait_for(&server, "k w 60000 2");
    server.clock().advance_mono_ms(30_000);
    run(&mut c, "SEM.RELEASE k e");
    w.token();
    let waited = counter(&server, "sem_wait_us_max");
    assert!((30_000_000..60_000_000).contains(&waited), "{waited}");
    assert_eq!(counter(&server, "lock_wait_us_max"), 0);
}

#[test]
fn memory_follows_the_holders_and_comes_back() {
    let server = single();
    let mut c = server.conn();
    let usage = |c: &mut Conn| cmd!(c, "MEMORY", "USAGE", "k", "SAMPLES", 0).as_int();
    acquire(&mut c, "k a 60000 1000000");
    let one = usage(&mut c);
    assert!((100..600).contains(&one), "{one}");
    let meta = "m".repeat(1000);
    acquire(&mut c, &format!("k b 60000 1000000 META {meta}"));
    let with_meta = usage(&mut c);
    assert!(with_meta >= one + 1000, "{with_meta}");
    run(&mut c, "SEM.RELEASE k b");
    let before = usage(&mut c);
    let commands: Vec<_> = (0..5000)
        .map(|n| words(&format!("SEM.ACQUIRE k holder-{n} 60000 1000000")))
        .collect();
    c.pipeline(&commands);
    let many = (usage(&mut c) - before) / 5000;
    assert!((100..600).contains(&many), "{many} bytes a holder");
    let commands: Vec<_> = (0..5000)
        .map(|n| words(&format!("SEM.RELEASE k holder-{n}")))
        .collect();
    c.pipeline(&commands);
    let after = usage(&mut c);
    assert!(after < before + 3000, "{before}, then {after}");
}
