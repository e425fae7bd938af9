//! WATCH and client-side caching: a reply that changed nothing aborts no transaction and
//! invalidates no cache; a change does both, once.

use crate::support::*;

/// What was done to key `k` before, the command, and whether it changes the key.
const CASES: &[(&[&str], &str, bool)] = &[
    (&[], "LOCK.ACQUIRE k a 1000", true),
    (HELD, "LOCK.ACQUIRE k b 1000", false),
    (HELD, "LOCK.ACQUIRE k a 1000", false),
    (HELD, "LOCK.ACQUIRE k a 1 META other", false),
    (HELD, "LOCK.ACQUIRE k a 1001", true),
    (KEPT, "LOCK.ACQUIRE k a 1000", false),
    (HELD, "LOCK.RENEW k a 1001", true),
    (HELD, "LOCK.RENEW k a 1000", false),
    (HELD, "LOCK.RENEW k b 2000", false),
    (HELD, "LOCK.RENEW k a 2000 TOKEN 1", false),
    (KEPT, "LOCK.RENEW k a 2000", false),
    (&[], "LOCK.RENEW k a 2000", false),
    (HELD, "LOCK.RELEASE k a", true),
    (HELD, "LOCK.RELEASE k a KEEP 1000", true),
    (HELD, "LOCK.RELEASE k b", false),
    (HELD, "LOCK.RELEASE k a TOKEN 1", false),
    (HELD, "LOCK.RELEASE k a TOKEN 1 KEEP 9", false),
    (KEPT, "LOCK.RELEASE k a", false),
    (KEPT, "LOCK.RELEASE k a KEEP 9", false),
    (&[], "LOCK.RELEASE k a", false),
    (HELD, "LOCK.INFO k", false),
    (&[], "LOCK.INFO k", false),
    (HELD, "LOCK.FORCERELEASE k", true),
    (KEPT, "LOCK.FORCERELEASE k", true),
    (HELD, "LOCK.FORCERELEASE k TOKEN 1", false),
    (KEPT, "LOCK.FORCERELEASE k TOKEN 1", false),
    (&[], "LOCK.FORCERELEASE k", false),
    (&[], "LOCK.GUARD k 5", true),
    (GUARDED, "LOCK.GUARD k 6", true),
    (GUARDED, "LOCK.GUARD k 5", false),
    (GUARDED, "LOCK.GUARD k 5 PX 604800001", true),
    (GUARDED, "LOCK.GUARD k 4", false),
    (GUARDED, "LOCK.GUARD k 4 PX 604800001", false),
    // Errors.
    (HELD, "LOCK.ACQUIRE k a 0", false),
    (HELD, "LOCK.RENEW k a 2000 TOKEN x", false),
    (HELD, "LOCK.RELEASE k a KEEP 0", false),
    (HELD, "LOCK.RELEASE k a NOW", false),
    (HELD, "LOCK.FORCERELEASE k NOW", false),
    (HELD, "LOCK.GUARD k 5", false),
    (GUARDED, "LOCK.GUARD k 0", false),
    (GUARDED, "LOCK.ACQUIRE k a 1000", false),
    (&["SET k v"], "LOCK.ACQUIRE k a 1000", false),
    (&["SET k v"], "LOCK.FORCERELEASE k", false),
];

const HELD: &[&str] = &["LOCK.ACQUIRE k a 1000"];
const KEPT: &[&str] = &["LOCK.ACQUIRE k a 1000", "LOCK.RELEASE k a KEEP 1000"];
const GUARDED: &[&str] = &["LOCK.GUARD k 5"];

fn set_up(conn: &mut Conn, before: &[&str]) {
    cmd!(conn, "DEL", "k");
    for line in before {
        assert!(!conn.cmd(&words(line)).is_error(), "{line}");
    }
}

fn invalidation() -> Reply {
    Reply::Push(vec![bulk("invalidate"), array([bulk("k")])])
}

/// The pushes that came in so far.
fn pushes(conn: &mut Conn) -> Vec<Reply> {
    assert_eq!(cmd!(conn, "PING"), status("PONG"));
    std::iter::from_fn(|| pushed(conn)).collect()
}

#[test]
fn only_changes_abort_a_watched_transaction() {
    let server = single();
    let (mut c, mut watcher) = (server.conn(), server.conn());
    for (before, command, changes) in CASES {
        set_up(&mut c, before);
        assert_eq!(cmd!(watcher, "WATCH", "k"), ok());
        c.cmd(&words(command));
        let exec = watcher.multi(&[args!["PING"]]);
        let aborted = exec.is_nil();
        assert_eq!(aborted, *changes, "{before:?}, {command}");
    }
}

#[test]
fn only_changes_invalidate_a_cached_key() {
    let server = single();
    let (mut c, mut cache) = (server.conn(), server.conn3());
    assert_eq!(cmd!(cache, "CLIENT", "TRACKING", "ON"), ok());
    for (before, command, changes) in CASES {
        set_up(&mut c, before);
        cmd!(cache, "EXISTS", "k");
        pushes(&mut cache);
        // That push ended the tracking of the key.
        cmd!(cache, "EXISTS", "k");
        c.cmd(&words(command));
        let expected = if *changes {
            vec![invalidation()]
        } else {
            vec![]
        };
        assert_eq!(pushes(&mut cache), expected, "{before:?}, {command}");
    }
}

#[test]
fn only_changes_are_broadcast() {
    let server = single();
    let (mut c, mut cache) = (server.conn(), server.conn3());
    assert_eq!(cmd!(cache, "CLIENT", "TRACKING", "ON", "BCAST"), ok());
    for (before, command, changes) in CASES {
        set_up(&mut c, before);
        pushes(&mut cache);
        c.cmd(&words(command));
        let expected = if *changes {
            vec![invalidation()]
        } else {
            vec![]
        };
        assert_eq!(pushes(&mut cache), expected, "{before:?}, {command}");
    }
}

#[test]
fn the_same_holds_for_commands_in_scripts() {
    let server = single();
    let (mut c, mut watcher) = (server.conn(), server.conn());
    let script = "redis.pcall(unpack(ARGV))";
    for (before, command, changes) in CASES {
        set_up(&mut c, before);
        assert_eq!(cmd!(watcher, "WATCH", "k"), ok());
        c.eval(script, &["k"], &words(command));
        let exec = watcher.multi(&[args!["PING"]]);
        let aborted = exec.is_nil();
        assert_eq!(aborted, *changes, "{before:?}, {command}");
    }
}

#[test]
fn a_cached_info_is_invalidated_by_the_next_grant() {
    let server = single();
    let (mut c, mut cache) = (server.conn(), server.conn3());
    assert_eq!(cmd!(cache, "CLIENT", "TRACKING", "ON"), ok());
    // That there is none can be cached as well.
    assert_eq!(cmd!(cache, "LOCK.INFO", "k"), nil());
    cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000);
    assert_eq!(pushes(&mut cache), [invalidation()]);
    // Once, until it is looked at again.
    cmd!(c, "LOCK.RENEW", "k", "a", 2000);
    assert_eq!(pushes(&mut cache), []);
    assert!(!cmd!(cache, "LOCK.INFO", "k").is_nil());
    cmd!(c, "LOCK.RELEASE", "k", "a");
    assert_eq!(pushes(&mut cache), [invalidation()]);
}

#[test]
fn a_client_that_wants_no_news_of_its_own_changes_gets_none() {
    let server = single();
    let (mut c, mut cache) = (server.conn(), server.conn3());
    let tracking = cmd!(cache, "CLIENT", "TRACKING", "ON", "BCAST", "NOLOOP");
    assert_eq!(tracking, ok());
    cmd!(cache, "LOCK.ACQUIRE", "k", "a", 1000);
    cmd!(cache, "LOCK.RENEW", "k", "a", 2000);
    cmd!(cache, "LOCK.RELEASE", "k", "a");
    assert_eq!(pushes(&mut cache), []);
    cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000);
    assert_eq!(pushes(&mut cache), [invalidation()]);
}

#[test]
fn a_transaction_that_watches_the_lock_runs_while_the_hold_lasts() {
    // What a holder does that wants its writes and its lock to be one thing.
    let server = single();
    let (mut a, mut b) = (server.conn(), server.conn());
    cmd!(a, "LOCK.ACQUIRE", "k", "a", 1000);
    for (ms, runs) in [(1000, true), (1, false)] {
        cmd!(a, "WATCH", "k");
        server.clock().advance_ms(ms);
        assert_eq!(cmd!(b, "LOCK.ACQUIRE", "k", "b", 1000).is_nil(), runs);
        let exec = a.multi(&[args!["SET", "row", "by a"]]);
        assert_eq!(!exec.is_nil(), runs);
    }
}
