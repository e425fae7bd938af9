//! Locks and guards under the server's own commands for keys.

use crate::support::*;
use sluice_testbed::Chain;

const HOUR_MS: i64 = 3_600_000;

#[track_caller]
fn assert_live(server: &Server, locks: i64, guards: i64) {
    let live = (counter(server, "lock_keys"), counter(server, "guard_keys"));
    assert_eq!(live, (locks, guards));
}

/// Equal on all three, and so are the numbers of live keys.
#[track_caller]
fn assert_all(chain: &Chain, locks: i64, guards: i64) {
    chain.assert_equal();
    for server in chain.servers() {
        assert_live(server, locks, guards);
    }
}

#[test]
fn types_have_their_names() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "lock", "me", 1000);
    cmd!(c, "LOCK.GUARD", "guard", 1);
    cmd!(c, "SET", "string", "v");
    assert_eq!(cmd!(c, "TYPE", "lock"), status("sluice-lk"));
    assert_eq!(cmd!(c, "TYPE", "guard"), status("sluice-fn"));
    for (type_name, key) in [
        ("sluice-lk", "lock"),
        ("sluice-fn", "guard"),
        ("string", "string"),
    ] {
        assert_eq!(
            cmd!(c, "SCAN", 0, "TYPE", type_name, "COUNT", 100),
            array([bulk("0"), array([bulk(key)])])
        );
    }
    assert!(!cmd!(c, "OBJECT", "ENCODING", "lock").is_error());
    assert_eq!(cmd!(c, "OBJECT", "REFCOUNT", "lock"), int(1));
}

#[test]
fn a_copy_has_the_state_the_ttl_and_the_token() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let long = vec![b'x'; 512];
    let token = cmd!(c, "LOCK.ACQUIRE", "k", &long, 5000, "META", "m").as_int();
    cmd!(c, "LOCK.GUARD", "g", 9, "PX", 7000);
    cmd!(c, "LOCK.ACQUIRE", "kept", "me", 5000);
    cmd!(c, "LOCK.RELEASE", "kept", "me", "KEEP", 3000);
    for (key, ttl) in [("k", 5000), ("g", 7000), ("kept", 3000)] {
        let copy = format!("{key}-copy");
        assert_eq!(cmd!(c, "COPY", key, &copy), int(1));
        assert_eq!(cmd!(c, "COPY", key, &copy), int(0));
        assert_eq!(cmd!(c, "COPY", key, key, "DB", 2), int(1));
        assert_eq!(cmd!(c, "PTTL", &copy), int(ttl));
        assert_eq!(
            cmd!(c, "DEBUG", "DIGEST-VALUE", &copy),
            cmd!(c, "DEBUG", "DIGEST-VALUE", key)
        );
    }
    assert_all(&chain, 6, 3);
    assert_eq!(cmd!(c, "LOCK.INFO", "k-copy"), cmd!(c, "LOCK.INFO", "k"));
    // Two locks from here on.
    assert_eq!(
        cmd!(c, "LOCK.RENEW", "k-copy", &long, 9000, "TOKEN", token),
        int(9000)
    );
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", &long), int(1));
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k-copy", "you", 1000), nil());
    assert_eq!(cmd!(c, "LOCK.GUARD", "g", 10), int(1));
    assert_eq!(cmd!(c, "LOCK.GUARD", "g-copy", 9), int(1));
    assert_all(&chain, 5, 3);
}

#[test]
fn a_copy_replaces_whatever_is_there() {
    let chain = chain();
    let mut c = chain.primary.conn();
    for old in [
        "SET t v",
        "LOCK.GUARD t 7",
        "LOCK.ACQUIRE t you 900",
        "SADD t v",
    ] {
        cmd!(c, "FLUSHALL", "SYNC");
        let token = cmd!(c, "LOCK.ACQUIRE", "k", "me", 5000);
        c.cmd(&words(old));
        assert_eq!(cmd!(c, "COPY", "k", "t"), int(0));
        assert_eq!(cmd!(c, "COPY", "k", "t", "REPLACE"), int(1));
        assert_eq!(cmd!(c, "LOCK.INFO", "t").field("token"), &token);
        assert_eq!(cmd!(c, "PTTL", "t"), int(5000));
        assert_all(&chain, 2, 0);
        cmd!(c, "SET", "s", "v");
        assert_eq!(cmd!(c, "COPY", "s", "k", "REPLACE"), int(1));
        assert_all(&chain, 1, 0);
    }
}

#[test]
fn a_renamed_lock_is_held_under_its_new_name() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "me", 5000, "META", "m").as_int();
    cmd!(c, "LOCK.GUARD", "g", 9, "PX", 7000);
    let info = cmd!(c, "LOCK.INFO", "k");
    assert_eq!(cmd!(c, "RENAME", "k", "l"), ok());
    assert_eq!(cmd!(c, "RENAMENX", "g", "h"), int(1));
    assert_eq!(cmd!(c, "LOCK.INFO", "k"), nil());
    assert_eq!(cmd!(c, "LOCK.INFO", "l"), info);
    assert_eq!(cmd!(c, "PTTL", "l"), int(5000));
    assert_eq!(cmd!(c, "PTTL", "h"), int(7000));
    assert_all(&chain, 1, 1);
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", "me", 9000), int(0));
    assert_eq!(
        cmd!(c, "LOCK.RENEW", "l", "me", 9000, "TOKEN", token),
        int(9000)
    );
    assert_eq!(cmd!(c, "LOCK.GUARD", "h", 8), int(0));
    // Over a lock of someone else.
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "you", 5000), int(token + 1));
    assert_eq!(cmd!(c, "RENAMENX", "l", "k"), int(0));
    assert_eq!(cmd!(c, "RENAME", "l", "k"), ok());
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "you"), int(0));
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "me", "TOKEN", token), int(1));
    assert_all(&chain, 0, 1);
}

#[test]
fn a_moved_lock_is_held_in_the_other_database() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "me", 5000).as_int();
    cmd!(c, "LOCK.GUARD", "g", 9, "PX", 7000);
    assert_eq!(cmd!(c, "MOVE", "k", 3), int(1));
    assert_eq!(cmd!(c, "MOVE", "g", 3), int(1));
    assert_eq!(cmd!(c, "LOCK.INFO", "k"), nil());
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "you", 5000), int(token + 1));
    assert_eq!(cmd!(c, "MOVE", "k", 3), int(0));
    assert_all(&chain, 2, 1);
    cmd!(c, "SELECT", 3);
    assert_eq!(cmd!(c, "PTTL", "k"), int(5000));
    assert_eq!(cmd!(c, "PTTL", "g"), int(7000));
    assert_eq!(
        cmd!(c, "LOCK.RENEW", "k", "me", 6000, "TOKEN", token),
        int(6000)
    );
    assert_eq!(cmd!(c, "LOCK.GUARD", "g", 8), int(0));
    chain.assert_equal();
}

#[test]
fn databases_can_be_swapped() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "me", 5000).as_int();
    cmd!(c, "SELECT", 1);
    cmd!(c, "LOCK.ACQUIRE", "k", "you", 6000);
    cmd!(c, "LOCK.GUARD", "g", 9);
    assert_eq!(cmd!(c, "SWAPDB", 0, 1), ok());
    assert_all(&chain, 2, 1);
    assert_eq!(
        cmd!(c, "LOCK.RENEW", "k", "me", 7000, "TOKEN", token),
        int(7000)
    );
    cmd!(c, "SELECT", 0);
    assert_eq!(
        cmd!(c, "LOCK.RENEW", "k", "you", 8000, "TOKEN", token + 1),
        int(8000)
    );
    assert_eq!(cmd!(c, "LOCK.GUARD", "g", 8), int(0));
    assert_all(&chain, 2, 1);
}

#[test]
fn live_keys_are_counted_however_they_come_and_go() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let fill = |c: &mut Conn| {
        for i in 0..10 {
            cmd!(c, "LOCK.ACQUIRE", format!("k{i}"), "me", HOUR_MS);
            cmd!(c, "LOCK.GUARD", format!("g{i}"), 5);
        }
    };
    fill(&mut c);
    assert_all(&chain, 10, 10);
    for (line, locks, guards) in [
        ("DEL k0 g0", 9, 9),
        ("UNLINK k1 g1", 8, 8),
        ("SET k2 v", 7, 8),
        ("GETDEL k2", 7, 8),
        ("LOCK.RELEASE k3 me", 6, 8),
        ("LOCK.RELEASE k4 me KEEP 9999", 6, 8),
        ("LOCK.FORCERELEASE k4", 5, 8),
        ("COPY k5 c5", 6, 8),
        ("COPY k5 c5 REPLACE", 6, 8),
        ("COPY g5 c5 REPLACE", 5, 9),
        ("RENAME k5 g5", 5, 8),
        ("MOVE k6 1", 5, 8),
        ("SWAPDB 0 1", 5, 8),
        ("SWAPDB 0 1", 5, 8),
        ("LOCK.ACQUIRE k7 me 1000", 5, 8),
        ("LOCK.ACQUIRE new me 1000", 6, 8),
        ("PEXPIREAT new 1", 5, 8),
        ("FLUSHDB SYNC", 1, 0),
    ] {
        assert!(!c.cmd(&words(line)).is_error(), "{line}");
        let live = || {
            let server = &chain.primary;
            (counter(server, "lock_keys"), counter(server, "guard_keys"))
        };
        assert_eq!(live(), (locks, guards), "{line}");
    }
    assert_all(&chain, 1, 0);
    fill(&mut c);
    assert_eq!(cmd!(c, "FLUSHALL", "SYNC"), ok());
    assert_all(&chain, 0, 0);
}

#[test]
fn lazily_freed_keys_are_counted_down_in_the_background() {
    let chain = chain();
    let mut c = chain.primary.conn();
    for setting in [
        "lazyfree-lazy-user-del",
        "lazyfree-lazy-expire",
        "lazyfree-lazy-server-del",
    ] {
        cmd!(c, "CONFIG", "SET", setting, "yes");
    }
    let long = vec![b'x'; 512];
    let acquire = |i| args!["LOCK.ACQUIRE", format!("k{i}"), &long, 1000];
    let all_gone = |how: &str| {
        eventually(how, || {
            chain.servers().iter().all(|server| {
                counter(server, "lock_keys") == 0 && cmd!(server.conn(), "DBSIZE") == int(0)
            })
        });
    };
    for how in [
        "FLUSHALL",
        "FLUSHALL ASYNC",
        "FLUSHDB ASYNC",
        "UNLINK",
        "DEL",
        "expiry",
    ] {
        c.pipeline(&(0..200).map(acquire).collect::<Vec<_>>());
        assert_live(&chain.primary, 200, 0);
        match how {
            "expiry" => chain.clock().advance_ms(1001),
            "DEL" | "UNLINK" => {
                let mut all = args![how];
                all.extend((0..200).map(|i| format!("k{i}").into_bytes()));
                assert_eq!(c.cmd(&all), int(200));
            }
            _ => assert_eq!(c.cmd(&words(how)), ok()),
        }
        all_gone(how);
    }
    chain.assert_equal();
}

#[test]
fn the_digest_is_over_stored_state() {
    let chain = chain();
    let mut c = chain.primary.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", "me", 5000);
    cmd!(c, "LOCK.GUARD", "g", 9);
    let digest = |key: &str| {
        chain.sync();
        let all = chain
            .servers()
            .map(|server| cmd!(server.conn(), "DEBUG", "DIGEST-VALUE", key).items()[0].clone());
        assert_eq!(all[0], all[1]);
        assert_eq!(all[1], all[2]);
        all[0].as_text()
    };
    let first = digest("k");
    assert_ne!(first, "0".repeat(40));
    let guard = digest("g");
    assert_ne!(first, guard);
    // Neither reading nor time changes it.
    cmd!(c, "LOCK.INFO", "k");
    chain.clock().advance_ms(100);
    assert_eq!(digest("k"), first);
    cmd!(c, "LOCK.RENEW", "k", "me", 5000);
    let renewed = digest("k");
    assert_ne!(renewed, first);
    cmd!(c, "LOCK.RELEASE", "k", "me", "KEEP", 5000);
    assert_ne!(digest("k"), renewed);
    cmd!(c, "LOCK.GUARD", "g", 10);
    assert_ne!(digest("g"), guard);
}

#[test]
fn sort_and_set_over_a_lock_free_it() {
    let chain = chain();
    let mut c = chain.primary.conn();
    cmd!(c, "RPUSH", "list", 2, 1);
    for line in [
        "SORT list STORE k",
        "SET k v",
        "BITOP NOT k list2",
        "RENAME list2 k",
    ] {
        cmd!(c, "DEL", "k");
        cmd!(c, "SET", "list2", "v");
        cmd!(c, "LOCK.ACQUIRE", "k", "me", 5000);
        assert!(!c.cmd(&words(line)).is_error(), "{line}");
        assert_live(&chain.primary, 0, 0);
        assert_eq!(cmd!(c, "LOCK.RENEW", "k", "me", 5000), err(WRONG_TYPE));
    }
    assert_all(&chain, 0, 0);
}

#[test]
fn an_evicted_lock_is_free() {
    let server = Options::new().start();
    server.clock().freeze_at(T_US);
    let mut c = server.conn();
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "me", HOUR_MS).as_int();
    cmd!(c, "CONFIG", "SET", "maxmemory-policy", "allkeys-random");
    cmd!(c, "CONFIG", "SET", "maxmemory", "1");
    cmd!(c, "SET", "s", "v");
    cmd!(c, "CONFIG", "SET", "maxmemory", "0");
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", "me", HOUR_MS), int(0));
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "you", HOUR_MS), int(token + 1));
    assert_live(&server, 1, 0);
    // Not a lease that ran out.
    assert_eq!(counter(&server, "lock_leases_expired"), 0);
}
