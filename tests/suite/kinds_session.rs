//! SESSION: holds that end with their connection.

use crate::kinds_support::*;
use crate::support::*;
use crate::waiting_support::*;
use sluice_testbed::Chain;

const IN_SCRIPT: &str = "ERR SESSION is not possible in a script: it has no connection to bind to";

#[track_caller]
fn becomes_free(c: &mut Conn, key: &str) {
    eventually(&format!("{key} is free"), || {
        cmd!(c, "EXISTS", key) == int(0)
    });
}

#[track_caller]
fn stays(c: &mut Conn, key: &str, expected: &[&str]) {
    std::thread::sleep(TWO_CRONS);
    assert_eq!(owners(c, key), expected, "{key}");
}

#[track_caller]
fn session(c: &mut Conn, key: &str) -> i64 {
    of_holder(c, key, "session")
}

// The connection closes -------------------------------------------------------------------------------

#[test]
fn a_session_ends_with_its_connection_however_that_ends() {
    type End = fn(Conn, &mut Conn);
    let ends: [(&str, End); 4] = [
        ("close", |conn, _| drop(conn)),
        ("QUIT", |mut conn, _| {
            assert_eq!(cmd!(conn, "QUIT"), ok());
        }),
        ("CLIENT KILL", |mut conn, c| {
            let id = conn.client_id();
            assert_eq!(cmd!(c, "CLIENT", "KILL", "ID", id), int(1));
        }),
        ("a protocol error", |mut conn, _| {
            conn.send_raw(b"*1\r\nnot a bulk\r\n");
        }),
    ];
    let server = single();
    let mut c = server.conn();
    for (what, end) in ends {
        let before = counter(&server, "lock_sessions_closed");
        let mut conn = server.conn();
        for line in [
            "LOCK.ACQUIRE x a 86400000 SESSION",
            "LOCK.ACQUIRE s a 86400000 SHARED SESSION",
            "LOCK.ACQUIRE r a 86400000 REENTRANT SESSION",
            "LOCK.ACQUIRE r a 86400000 REENTRANT",
            "LOCK.ACQUIRE none a 86400000",
        ] {
            number(&mut conn, line);
        }
        assert_eq!(session(&mut c, "x"), 1);
        assert_eq!(session(&mut c, "none"), 0);
        end(conn, &mut c);
        for key in ["x", "s", "r"] {
            becomes_free(&mut c, key);
        }
        assert_eq!(owners(&mut c, "none"), ["a"], "{what}");
        let closed = counter(&server, "lock_sessions_closed");
        assert_eq!(closed, before + 3, "{what}");
        cmd!(c, "DEL", "none");
    }
}

#[test]
fn other_connections_end_without_harm() {
    let server = single();
    let mut c = server.conn();
    let mut conn = server.conn();
    number(&mut conn, "LOCK.ACQUIRE k a 60000 SESSION");
    for _ in 0..3 {
        let mut other = server.conn();
        // Busy, a look, and a hold elsewhere.
        assert_eq!(run(&mut other, "LOCK.ACQUIRE k b 1000 SESSION"), nil());
        run(&mut other, "LOCK.INFO k");
        number(&mut other, "LOCK.ACQUIRE l a 1000 SESSION");
        drop(other);
        becomes_free(&mut c, "l");
    }
    stays(&mut c, "k", &["a"]);
    assert_eq!(run(&mut c, "LOCK.RELEASE k a"), int(1));
}

#[test]
fn what_the_owner_gave_back_is_not_freed_again() {
    let server = single();
    let mut c = server.conn();
    for give_back in [
        "LOCK.RELEASE k a",
        "LOCK.FORCERELEASE k",
        "DEL k",
        "UNLINK k",
        "FLUSHALL",
        "MRELEASE",
    ] {
        let mut conn = server.conn();
        number(&mut conn, "LOCK.ACQUIRE k a 60000 SESSION");
        match give_back {
            "MRELEASE" => run(&mut c, "LOCK.MRELEASE 1 k a"),
            line => run(&mut c, line),
        };
        // The same owner on another connection, without SESSION.
        let t = number(&mut c, "LOCK.ACQUIRE k a 60000");
        assert_eq!(session(&mut c, "k"), 0, "{give_back}");
        drop(conn);
        stays(&mut c, "k", &["a"]);
        assert_eq!(run(&mut c, &format!("LOCK.RELEASE k a TOKEN {t}")), int(1));
    }
}

#[test]
fn the_lease_is_the_backstop() {
    let server = single();
    let mut c = server.conn();
    let mut conn = server.conn();
    number(&mut conn, "LOCK.ACQUIRE k a 1000 SESSION");
    server.clock().advance_ms(1001);
    assert_eq!(run(&mut conn, "LOCK.RENEW k a 1000"), int(0));
    number(&mut c, "LOCK.ACQUIRE k a 60000");
    drop(conn);
    stays(&mut c, "k", &["a"]);
}

#[test]
fn the_next_waiter_is_granted_when_the_session_ends() {
    let server = single();
    let mut c = server.conn();
    let mut conn = server.conn();
    let t = number(&mut conn, "LOCK.ACQUIRE k a 60000 SESSION");
    let mut next = Waiter::send(&server, "LOCK.ACQUIRE k b 60000 SESSION BLOCK 60000");
    let mut last = Waiter::queue(&server, "k", "c");
    assert_eq!(session(&mut c, "k"), 1);
    drop(conn);
    assert_eq!(next.token(), t + 1);
    // Acquired by waiting: bound to the connection that waited.
    assert_eq!(session(&mut c, "k"), 1);
    last.still_waits();
    drop(next);
    assert_eq!(last.token(), t + 2);
    assert_eq!(session(&mut c, "k"), 0);
    drop(last);
    stays(&mut c, "k", &["c"]);
}

#[test]
fn a_waiter_that_closes_before_its_grant_leaves_nothing() {
    let server = single();
    let mut c = server.conn();
    hold(&mut c, "k");
    let waiter = Waiter::send(&server, "LOCK.ACQUIRE k b 60000 SESSION BLOCK 60000");
    drop(waiter);
    nobody_waits(&server);
    assert_eq!(run(&mut c, "LOCK.RELEASE k h"), int(1));
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
}

#[test]
fn readers_have_sessions_of_their_own() {
    let server = single();
    let mut c = server.conn();
    let (mut one, mut two) = (server.conn(), server.conn());
    number(&mut one, "LOCK.ACQUIRE k a 60000 SHARED SESSION");
    number(&mut two, "LOCK.ACQUIRE k b 60000 SHARED SESSION");
    number(&mut c, "LOCK.ACQUIRE k c 60000 SHARED");
    number(&mut two, "LOCK.ACQUIRE k d 60000 SHARED SESSION REENTRANT");
    number(&mut two, "LOCK.ACQUIRE k d 60000 SHARED SESSION REENTRANT");
    let info = cmd!(c, "LOCK.INFO", "k");
    let bound: Vec<i64> = info
        .field("holders")
        .items()
        .iter()
        .map(|holder| holder.field("session").as_int())
        .collect();
    assert_eq!(bound, [1, 1, 0, 1]);
    let mut writer = Waiter::queue(&server, "k", "w");
    drop(two);
    eventually("two readers left", || owners(&mut c, "k") == ["a", "c"]);
    writer.still_waits();
    assert_eq!(run(&mut c, "LOCK.RELEASE k c"), int(1));
    drop(one);
    writer.token();
    assert_eq!(owners(&mut c, "k"), ["w"]);
}

#[test]
fn a_reader_that_leaves_takes_no_other_binding_along() {
    let server = single();
    let mut c = server.conn();
    let (mut one, mut two) = (server.conn(), server.conn());
    number(&mut one, "LOCK.ACQUIRE k a 60000 SHARED SESSION");
    number(&mut two, "LOCK.ACQUIRE k b 100 SHARED SESSION");
    number(&mut two, "LOCK.ACQUIRE k c 60000 SHARED SESSION");
    number(&mut two, "LOCK.ACQUIRE k d 60000 SHARED");
    assert_eq!(run(&mut c, "LOCK.RELEASE k c"), int(1));
    server.clock().advance_ms(101);
    // Prunes b.
    assert_eq!(run(&mut c, "LOCK.RENEW k d 90000"), int(90_000));
    assert_eq!(session(&mut c, "k"), 1);
    drop(two);
    stays(&mut c, "k", &["a", "d"]);
    drop(one);
    eventually("a left", || owners(&mut c, "k") == ["d"]);
}

// Rebinding -------------------------------------------------------------------------------------------

#[test]
fn a_session_retry_binds_to_the_new_connection() {
    for shared in ["", " SHARED"] {
        let server = single();
        let mut c = server.conn();
        let (mut old, mut new) = (server.conn(), server.conn());
        let line = format!("LOCK.ACQUIRE k a 60000 SESSION{shared}");
        let t = number(&mut old, &line);
        assert_eq!(number(&mut new, &line), t);
        drop(old);
        stays(&mut c, "k", &["a"]);
        assert_eq!(session(&mut c, "k"), 1);
        drop(new);
        becomes_free(&mut c, "k");
    }
}

#[test]
fn a_retry_without_session_does_not_unbind() {
    let server = single();
    let mut c = server.conn();
    let mut conn = server.conn();
    let t = number(&mut conn, "LOCK.ACQUIRE k a 60000 SESSION");
    assert_eq!(number(&mut c, "LOCK.ACQUIRE k a 60000"), t);
    assert_eq!(number(&mut c, "LOCK.ACQUIRE k a 60000 REENTRANT"), t);
    assert_eq!(run(&mut c, "LOCK.RENEW k a 70000"), int(70_000));
    assert_eq!(run(&mut c, "LOCK.RELEASE k a"), int(1));
    assert_eq!(session(&mut c, "k"), 1);
    drop(conn);
    becomes_free(&mut c, "k");
}

#[test]
fn a_session_retry_binds_what_was_not_bound() {
    let server = single();
    let mut c = server.conn();
    let t = number(&mut c, "LOCK.ACQUIRE k a 60000");
    let mut conn = server.conn();
    assert_eq!(number(&mut conn, "LOCK.ACQUIRE k a 60000 SESSION"), t);
    assert_eq!(session(&mut c, "k"), 1);
    drop(conn);
    becomes_free(&mut c, "k");
}

#[test]
fn upgrade_and_downgrade_keep_the_binding() {
    let server = single();
    let mut c = server.conn();
    let mut conn = server.conn();
    number(&mut conn, "LOCK.ACQUIRE up a 60000 SHARED SESSION");
    number(&mut conn, "LOCK.ACQUIRE down a 60000 SESSION");
    // From another connection, without a word of SESSION.
    number(&mut c, "LOCK.ACQUIRE up a 60000");
    assert_eq!(mode(&mut c, "up"), "exclusive");
    assert_eq!(session(&mut c, "up"), 1);
    assert_eq!(run(&mut c, "LOCK.DOWNGRADE down a"), int(1));
    assert_eq!(mode(&mut c, "down"), "shared");
    assert_eq!(session(&mut c, "down"), 1);
    drop(conn);
    becomes_free(&mut c, "up");
    becomes_free(&mut c, "down");
}

#[test]
fn an_upgrade_with_session_binds_to_its_own_connection() {
    let server = single();
    let mut c = server.conn();
    let (mut old, mut new) = (server.conn(), server.conn());
    number(&mut old, "LOCK.ACQUIRE k a 60000 SHARED SESSION");
    number(&mut new, "LOCK.ACQUIRE k a 60000 SESSION");
    drop(old);
    stays(&mut c, "k", &["a"]);
    drop(new);
    becomes_free(&mut c, "k");
}

#[test]
fn the_two_waits_of_one_owner_are_bound_to_the_later_connection() {
    let server = single();
    let mut c = server.conn();
    let t = hold(&mut c, "k");
    let line = "LOCK.ACQUIRE k a 60000 SESSION BLOCK 60000";
    let mut old = Waiter::send(&server, line);
    let mut new = Waiter::send(&server, line);
    assert_eq!(run(&mut c, "LOCK.RELEASE k h"), int(1));
    assert_eq!((old.token(), new.token()), (t + 1, t + 1));
    drop(old);
    stays(&mut c, "k", &["a"]);
    drop(new);
    becomes_free(&mut c, "k");
}

// What drops the binding ------------------------------------------------------------------------------

#[test]
fn what_moves_or_copies_a_key_drops_the_binding_and_keeps_the_lease() {
    let server = single();
    let mut c = server.conn();
    let mut conn = server.conn();
    for key in ["renamed", "back", "moved", "copied", "restored"] {
        let line = format!("LOCK.ACQUIRE {key} a 60000 SESSION");
        number(&mut conn, &line);
    }
    assert_eq!(run(&mut c, "RENAME renamed renamed2"), ok());
    assert_eq!(run(&mut c, "RENAME back back2"), ok());
    assert_eq!(run(&mut c, "RENAME back2 back"), ok());
    assert_eq!(run(&mut c, "MOVE moved 1"), int(1));
    assert_eq!(run(&mut c, "COPY copied copied2"), int(1));
    let payload = cmd!(c, "DUMP", "restored");
    let again = cmd!(
        c,
        "RESTORE",
        "restored",
        60_000,
        payload.as_bytes(),
        "REPLACE"
    );
    assert_eq!(again, ok());
    for key in ["renamed2", "back", "copied2", "restored"] {
        assert_eq!(session(&mut c, key), 0, "{key}");
    }
    assert_eq!(session(&mut c, "copied"), 1);
    let mut one = server.conn();
    cmd!(one, "SELECT", 1);
    assert_eq!(session(&mut one, "moved"), 0);
    drop(conn);
    becomes_free(&mut c, "copied");
    stays(&mut one, "moved", &["a"]);
    for key in ["renamed2", "back", "copied2", "restored"] {
        assert_eq!(owners(&mut c, key), ["a"], "{key}");
        assert_eq!(cmd!(c, "PTTL", key), int(60_000), "{key}");
    }
}

#[test]
fn a_swapped_database_drops_the_bindings() {
    let server = single();
    let mut c = server.conn();
    let mut conn = server.conn();
    number(&mut conn, "LOCK.ACQUIRE k a 60000 SESSION");
    assert_eq!(run(&mut c, "SWAPDB 0 1"), ok());
    assert_eq!(run(&mut c, "SWAPDB 0 1"), ok());
    assert_eq!(session(&mut c, "k"), 0);
    drop(conn);
    stays(&mut c, "k", &["a"]);
}

#[test]
fn a_reload_and_a_restart_drop_the_binding_and_keep_the_lease() {
    for aof in [Aof::Off, Aof::Pure, Aof::Preamble] {
        let server = own(Options::new().aof(aof));
        let mut conn = server.conn();
        let t = number(&mut conn, "LOCK.ACQUIRE k a 60000 SESSION");
        let r = number(&mut conn, "LOCK.ACQUIRE s a 60000 SHARED SESSION");
        let held = |c: &mut Conn| {
            for (key, token) in [("k", t), ("s", r)] {
                assert_eq!(session(c, key), 0);
                assert_eq!(holders(c, key), [("a".to_string(), token, 60_000)]);
            }
        };
        let mut c = server.conn();
        assert_eq!(cmd!(c, "DEBUG", "RELOAD"), ok());
        held(&mut c);
        drop(conn);
        std::thread::sleep(TWO_CRONS);
        held(&mut c);
        // Bound again, by a connection that the stop closes.
        let mut conn = server.conn();
        assert_eq!(number(&mut conn, "LOCK.ACQUIRE k a 60000 SESSION"), t);
        assert_eq!(
            number(&mut conn, "LOCK.ACQUIRE s a 60000 SHARED SESSION"),
            r
        );
        match aof {
            Aof::Off => server.restart_saving(),
            _ => server.restart(),
        }
        // Ids of connections start anew: these free nothing.
        for _ in 0..20 {
            let mut c = server.conn();
            run(&mut c, "PING");
        }
        std::thread::sleep(TWO_CRONS);
        held(&mut server.conn());
    }
}

#[test]
fn a_promotion_drops_the_binding_and_keeps_the_lease() {
    let chain = chain();
    let mut conn = chain.primary.conn();
    let t = number(&mut conn, "LOCK.ACQUIRE k a 60000 SESSION");
    number(&mut conn, "LOCK.ACQUIRE s a 60000 SHARED SESSION");
    chain.sync();
    let mut r = chain.replica.conn();
    assert_eq!(session(&mut r, "k"), 0);
    assert_eq!(cmd!(r, "REPLICAOF", "NO", "ONE"), ok());
    drop(conn);
    becomes_free(&mut chain.primary.conn(), "k");
    stays(&mut r, "k", &["a"]);
    assert_eq!(holders(&mut r, "k"), [("a".to_string(), t, 60_000)]);
    assert_eq!(owners(&mut r, "s"), ["a"]);
    assert_eq!(run(&mut r, "LOCK.RENEW k a 70000"), int(70_000));
}

/// A primary that follows another for a while and keeps its data over that.
fn demoted() -> (Chain, Conn, i64) {
    let chain = Chain::start();
    let (old, new) = (&chain.primary, &chain.replica);
    let mut conn = old.conn();
    let t = number(&mut conn, "LOCK.ACQUIRE k a 600000 SESSION");
    chain.sync();
    assert_eq!(cmd!(new.conn(), "REPLICAOF", "NO", "ONE"), ok());
    let follow = cmd!(old.conn(), "REPLICAOF", "127.0.0.1", new.port());
    assert_eq!(follow, ok());
    old.wait_synced_with(new);
    (chain, conn, t)
}

#[test]
fn a_demotion_drops_the_binding() {
    let (chain, _conn, _) = demoted();
    assert_eq!(session(&mut chain.primary.conn(), "k"), 0);
}

/// The new primary went on by the lease, as its clients do; when the old one is promoted again, it
/// frees nothing.
#[test]
fn a_connection_that_closed_on_a_replica_frees_nothing_after_its_promotion() {
    let (chain, conn, t) = demoted();
    let old = &chain.primary;
    drop(conn);
    std::thread::sleep(TWO_CRONS);
    // The owner lives on, and works with the new primary.
    let mut c = chain.replica.conn();
    assert_eq!(run(&mut c, "LOCK.RENEW k a 700000"), int(700_000));
    old.wait_synced_with(&chain.replica);
    let mut c = old.conn();
    assert_eq!(cmd!(c, "REPLICAOF", "NO", "ONE"), ok());
    stays(&mut c, "k", &["a"]);
    assert_eq!(of_holder(&mut c, "k", "token"), t);
}

#[test]
fn a_binding_does_not_come_back_with_a_promotion() {
    let (chain, conn, _) = demoted();
    let mut c = chain.primary.conn();
    assert_eq!(cmd!(c, "REPLICAOF", "NO", "ONE"), ok());
    drop(conn);
    stays(&mut c, "k", &["a"]);
}

#[test]
fn the_end_of_a_session_reaches_the_replicas() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let mut conn = chain.primary.conn();
    number(&mut conn, "LOCK.ACQUIRE k a 60000 SESSION");
    number(&mut conn, "LOCK.ACQUIRE s a 60000 SHARED SESSION");
    number(&mut c, "LOCK.ACQUIRE s b 60000 SHARED");
    number(&mut conn, "LOCK.ACQUIRE q a 60000 SESSION");
    let mut waiter = Waiter::queue(&chain.primary, "q", "w");
    drop(conn);
    let token = waiter.token();
    becomes_free(&mut c, "k");
    eventually("a left", || owners(&mut c, "s") == ["b"]);
    chain.assert_equal();
    let mut sub = chain.sub.conn();
    assert_eq!(cmd!(sub, "EXISTS", "k"), int(0));
    assert_eq!(owners(&mut sub, "s"), ["b"]);
    is_held_by(&mut sub, "q", "w", token);
}

/// What has lapsed is nobody's any more: the end of its session changes nothing, here as little as on
/// the replicas.
#[test]
fn the_end_of_a_session_changes_no_lapsed_hold() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let mut conn = chain.primary.conn();
    for _ in 0..2 {
        number(&mut conn, "LOCK.ACQUIRE s a 100 SHARED SESSION REENTRANT");
        number(&mut conn, "LOCK.ACQUIRE x a 100 SESSION REENTRANT");
    }
    number(&mut c, "LOCK.ACQUIRE s b 60000 SHARED");
    run(&mut c, "PERSIST x");
    chain.clock().advance_ms(101);
    chain.assert_equal();
    let digest = |c: &mut Conn| ["s", "x"].map(|key| cmd!(c, "DEBUG", "DIGEST-VALUE", key));
    let before = digest(&mut c);
    drop(conn);
    std::thread::sleep(TWO_CRONS);
    assert_eq!(digest(&mut c), before);
    chain.assert_equal();
    assert_eq!(owners(&mut c, "s"), ["b"]);
}

#[test]
fn a_connection_that_is_reset_is_still_the_same() {
    let server = single();
    let mut c = server.conn();
    let mut conn = server.conn();
    number(&mut conn, "LOCK.ACQUIRE k a 60000 SESSION");
    assert_eq!(run(&mut conn, "RESET"), status("RESET"));
    stays(&mut c, "k", &["a"]);
    assert!(!run(&mut conn, "HELLO 3").is_error());
    assert_eq!(session(&mut c, "k"), 1);
    drop(conn);
    becomes_free(&mut c, "k");
}

#[test]
fn a_session_ends_in_its_own_database() {
    let server = single();
    let mut c = server.conn();
    let mut conn = server.conn();
    cmd!(conn, "SELECT", 3);
    number(&mut conn, "LOCK.ACQUIRE k a 60000 SESSION");
    number(&mut c, "LOCK.ACQUIRE k a 60000");
    let mut three = server.conn();
    cmd!(three, "SELECT", 3);
    drop(conn);
    becomes_free(&mut three, "k");
    stays(&mut c, "k", &["a"]);
}

#[test]
fn while_writes_are_paused_the_end_of_a_session_waits() {
    let server = single();
    let mut c = server.conn();
    let mut conn = server.conn();
    number(&mut conn, "LOCK.ACQUIRE k a 600000 SESSION");
    assert_eq!(run(&mut c, "CLIENT PAUSE 600000 WRITE"), ok());
    drop(conn);
    stays(&mut c, "k", &["a"]);
    assert_eq!(run(&mut c, "CLIENT UNPAUSE"), ok());
    becomes_free(&mut c, "k");
}

// Scripts and transactions ----------------------------------------------------------------------------

#[test]
fn session_in_a_script_is_an_error() {
    let server = recorder();
    let mut c = server.conn();
    hold(&mut c, "held");
    let library = "#!lua name=t\nredis.register_function('run', function(keys, args)
        return redis.pcall(args[1], keys[1], unpack(args, 2)) end)";
    cmd!(c, "FUNCTION", "LOAD", library);
    changes_nothing(&server, || {
        for key in ["held", "free"] {
            for options in ["SESSION", "SHARED SESSION", "SESSION BLOCK 100"] {
                let line = words(&format!("LOCK.ACQUIRE h 1000 {options}"));
                let script = "return redis.pcall(ARGV[1], KEYS[1], unpack(ARGV, 2))";
                let reply = c.eval(script, &[key], &line);
                assert_eq!(reply, err(IN_SCRIPT), "{key} {options}");
                let mut call = args!["FCALL", "run", 1, key];
                call.extend(line);
                assert_eq!(c.cmd(&call), err(IN_SCRIPT), "{key} {options}");
            }
        }
    });
    // Other errors come first: what is wrong anyway is wrong there too.
    let reply = c.eval(
        "return redis.pcall('LOCK.ACQUIRE', KEYS[1], 'a', 0, 'SESSION')",
        &["k"],
        &[],
    );
    assert_eq!(
        reply,
        err("ERR lease_ms must be an integer between 1 and 86400000")
    );
}

#[test]
fn session_in_a_transaction_is_bound_to_the_client() {
    let server = single();
    let mut c = server.conn();
    let mut conn = server.conn();
    let replies = conn.exec_multi(&[
        words("LOCK.ACQUIRE k a 60000 SESSION"),
        words("LOCK.ACQUIRE l a 60000 SHARED SESSION"),
    ]);
    assert!(replies[0].as_int() < replies[1].as_int());
    assert_eq!(session(&mut c, "k"), 1);
    assert_eq!(session(&mut c, "l"), 1);
    stays(&mut c, "k", &["a"]);
    drop(conn);
    becomes_free(&mut c, "k");
    becomes_free(&mut c, "l");
}

#[test]
fn many_sessions_end_at_once() {
    let server = single();
    let mut c = server.conn();
    let mut conn = server.conn();
    let commands: Vec<_> = (0..2000)
        .map(|i| {
            words(&format!(
                "LOCK.ACQUIRE k{} o{i} 60000 SHARED SESSION",
                i % 100
            ))
        })
        .collect();
    conn.pipeline(&commands);
    assert_eq!(cmd!(c, "DBSIZE"), int(100));
    drop(conn);
    eventually("all are free", || cmd!(c, "DBSIZE") == int(0));
}
