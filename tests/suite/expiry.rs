//! Leases that end: noticed by whoever comes first, told to replicas, counted once; and TTLs that
//! someone else has changed.

use crate::replication::Tap;
use crate::support::*;
use sluice_testbed::Chain;

const HOUR_MS: i64 = 3_600_000;

/// A chain on which nothing expires until it is touched.
fn lazy(chain: &Chain) -> &Chain {
    for server in chain.servers() {
        leave_expired(&mut server.conn());
    }
    chain
}

/// What the primary propagates when a key is found expired.
fn gone(key: &str) -> Vec<Vec<u8>> {
    match flavour().kind {
        Kind::Redis => args!["DEL", key],
        Kind::Valkey => args!["UNLINK", key],
    }
}

/// What reached the sub-replica's file while `act` ran, without MULTI and EXEC, which servers put
/// around a deletion and a write as they see fit.
fn propagated(chain: &Chain, act: impl FnOnce(&mut Conn)) -> Vec<Vec<Vec<u8>>> {
    let mut tap = Tap::on(chain);
    act(&mut chain.primary.conn());
    let mut new = tap.take();
    new.retain(|command| command[0] != b"MULTI" && command[0] != b"EXEC");
    new
}

/// A command, its reply, and the effect it then has.
type Case = (&'static str, Reply, Option<Vec<Vec<u8>>>);

/// What each command answers to a lock whose lease is over.
fn after_the_end(now_us: i64) -> Vec<Case> {
    let granted = Held::at(now_us, 500, "new").effect(now_us);
    let guard = effect(now_us, &guard_body(3, now_us as u64 / 1000 + 700));
    vec![
        (
            "LOCK.ACQUIRE k new 500",
            int(now_us),
            Some(args!["sluice.lk", "k", granted]),
        ),
        ("LOCK.RELEASE k old", int(0), None),
        ("LOCK.RELEASE k old KEEP 900", int(0), None),
        ("LOCK.RENEW k old 500", int(0), None),
        ("LOCK.FORCERELEASE k", int(0), None),
        ("LOCK.INFO k", nil(), None),
        (
            "LOCK.GUARD k 3 PX 700",
            int(1),
            Some(args!["sluice.fn", "k", guard]),
        ),
    ]
}

/// Lets a lock expire and runs a command on it, as `run` does; with and without a TTL on the key.
fn finds_it_expired(run: fn(&mut Conn, &[Vec<u8>]) -> Reply) {
    let chain = chain();
    let chain = lazy(&chain);
    let cases = after_the_end(0).len();
    for case in 0..cases {
        cmd!(chain.primary.conn(), "LOCK.ACQUIRE", "k", "old", 1000);
        chain.clock().advance_ms(1001);
        let (line, expected, then) = after_the_end(chain.clock().now_us()).swap_remove(case);
        let expired = counter(&chain.primary, "lock_leases_expired");
        let new = propagated(chain, |c| {
            assert_eq!(run(c, &words(line)), expected, "{line}")
        });
        let mut wanted = vec![gone("k")];
        wanted.extend(then);
        assert_eq!(new, wanted, "{line}");
        chain.assert_equal();
        assert_eq!(
            counter(&chain.primary, "lock_leases_expired"),
            expired + 1,
            "{line}"
        );
        cmd!(chain.primary.conn(), "DEL", "k");
    }
    assert_eq!(counter(&chain.replica, "lock_leases_expired"), 0);
    assert_eq!(counter(&chain.sub, "lock_leases_expired"), 0);
}

#[test]
fn a_command_finds_the_lease_over() {
    finds_it_expired(|c, command| c.cmd(command));
}

#[test]
fn a_transaction_finds_the_lease_over() {
    finds_it_expired(|c, command| c.exec_multi(&[command.to_vec()]).remove(0));
}

#[test]
fn a_script_finds_the_lease_over() {
    finds_it_expired(|c, command| {
        let mut all = args!["EVAL", "return redis.call(unpack(ARGV))", 1, "k"];
        all.extend_from_slice(command);
        c.cmd(&all)
    });
}

#[test]
fn a_guard_that_is_over_forgets() {
    let chain = chain();
    let chain = lazy(&chain);
    let mut c = chain.primary.conn();
    let expired = counter(&chain.primary, "lock_leases_expired");
    cmd!(c, "LOCK.GUARD", "g", 9, "PX", 1000);
    chain.clock().advance_ms(1000);
    assert_eq!(cmd!(c, "LOCK.GUARD", "g", 8), int(0));
    chain.clock().advance_ms(1);
    let now = chain.clock().now_us();
    let new = propagated(chain, |c| {
        assert_eq!(cmd!(c, "LOCK.GUARD", "g", 8, "PX", 100), int(1));
    });
    let guard = effect(now, &guard_body(8, now as u64 / 1000 + 100));
    assert_eq!(new, [gone("g"), args!["sluice.fn", "g", guard]]);
    chain.assert_equal();
    // No lease of a lock has ended.
    assert_eq!(counter(&chain.primary, "lock_leases_expired"), expired);
}

#[test]
fn a_deadline_is_the_last_living_millisecond() {
    let server = single();
    let mut c = server.conn();
    leave_expired(&mut c);
    let start = server.clock().now_us();
    for late_us in [0, 999 - start % 1000] {
        let granted = server.clock().now_us();
        cmd!(c, "LOCK.ACQUIRE", "k", "me", 1000);
        // The deadline counts from the floor: its last microsecond.
        let end = (granted / 1000 + 1000) * 1000 + 999;
        server.clock().freeze_at(end);
        assert_eq!(
            cmd!(c, "LOCK.ACQUIRE", "k", "you", 1000),
            nil(),
            "{late_us}"
        );
        assert_eq!(cmd!(c, "LOCK.INFO", "k").field("ttl_ms"), &int(0));
        assert_eq!(cmd!(c, "PTTL", "k"), int(0));
        server.clock().advance_us(1);
        assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "you", 1000), int(end + 1));
        cmd!(c, "DEL", "k");
        server.clock().advance_us(late_us);
    }
}

// --- a TTL that someone else changed ---

#[test]
fn a_shorter_foreign_ttl_ends_the_lock_early() {
    let server = single();
    let mut c = server.conn();
    leave_expired(&mut c);
    for line in ["PEXPIRE k 400", "PEXPIREAT k {at}"] {
        cmd!(c, "LOCK.ACQUIRE", "k", "me", 1000);
        let line = line.replace("{at}", &(server.clock().now_ms() + 400).to_string());
        assert_eq!(c.cmd(&words(&line)), int(1));
        assert_eq!(cmd!(c, "LOCK.INFO", "k").field("ttl_ms"), &int(400));
        server.clock().advance_ms(400);
        assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "you", 1000), nil());
        server.clock().advance_ms(1);
        assert_eq!(cmd!(c, "LOCK.INFO", "k"), nil());
        assert_eq!(cmd!(c, "LOCK.RENEW", "k", "me", 1000), int(0));
        assert!(!cmd!(c, "LOCK.ACQUIRE", "k", "you", 1000).is_nil());
        cmd!(c, "DEL", "k");
    }
}

#[test]
fn a_longer_foreign_ttl_and_persist_do_not_prolong_the_lock() {
    let chain = chain();
    let mut c = chain.primary.conn();
    for line in ["PEXPIRE k 999999", "PERSIST k"] {
        cmd!(c, "LOCK.ACQUIRE", "k", "me", 1000);
        assert_eq!(c.cmd(&words(line)), int(1));
        assert_eq!(cmd!(c, "LOCK.INFO", "k").field("ttl_ms"), &int(1000));
        chain.clock().advance_ms(1000);
        assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "you", 1000), nil());
        chain.clock().advance_ms(1);
        assert_eq!(cmd!(c, "EXISTS", "k"), int(1));
        for server in chain.servers() {
            assert_eq!(cmd!(server.conn(), "LOCK.INFO", "k"), nil());
        }
        assert_eq!(cmd!(c, "LOCK.RENEW", "k", "me", 1000), int(0));
        assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "me"), int(0));
        assert_eq!(cmd!(c, "LOCK.FORCERELEASE", "k"), int(0));
        let now = chain.clock().now_us();
        let new = propagated(&chain, |c| {
            assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "you", 2000), int(now));
        });
        let held = Held::at(now, 2000, "you");
        assert_eq!(new, [args!["sluice.lk", "k", held.effect(now)]]);
        chain.assert_equal();
        for server in chain.servers() {
            assert_eq!(cmd!(server.conn(), "PTTL", "k"), int(2000));
        }
        cmd!(c, "DEL", "k");
    }
}

#[test]
fn a_kept_lock_is_not_prolonged_either() {
    let server = single();
    let mut c = server.conn();
    let expired = counter(&server, "lock_leases_expired");
    cmd!(c, "LOCK.ACQUIRE", "k", "me", 1000);
    cmd!(c, "LOCK.RELEASE", "k", "me", "KEEP", 500);
    cmd!(c, "PERSIST", "k");
    server.clock().advance_ms(500);
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "me", 1000), nil());
    server.clock().advance_ms(1);
    assert_eq!(cmd!(c, "LOCK.INFO", "k"), nil());
    assert!(!cmd!(c, "LOCK.ACQUIRE", "k", "me", 1000).is_nil());
    assert_eq!(cmd!(c, "PTTL", "k"), int(1000));
    // It was released, so no lease was lost.
    assert_eq!(counter(&server, "lock_leases_expired"), expired);
}

/// Every write of the holder sets a strayed TTL right, and tells replicas; when there is nothing to
/// set right, nothing is told.
#[test]
fn the_next_write_sets_a_strayed_ttl_right() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let now = chain.clock().now_us();
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "me", 5000);
    cmd!(c, "LOCK.GUARD", "g", 9, "PX", 5000);
    let held = Held::at(now, 5000, "me");
    let lock = args!["sluice.lk", "k", held.effect(now)];
    let until = now as u64 / 1000 + 5000;
    let guard = args!["sluice.fn", "g", effect(now, &guard_body(9, until))];
    for (line, key, reply, repaired) in [
        ("LOCK.RENEW k me 1", "k", int(5000), &lock),
        ("LOCK.RENEW k me 5000", "k", int(5000), &lock),
        ("LOCK.ACQUIRE k me 1", "k", token.clone(), &lock),
        ("LOCK.ACQUIRE k me 5000", "k", token, &lock),
        ("LOCK.GUARD g 9 PX 1", "g", int(1), &guard),
    ] {
        for stray in [
            "PEXPIRE {} 3000",
            "PEXPIRE {} 900000",
            "PERSIST {}",
            "PEXPIRE {} 4999",
        ] {
            let stray = stray.replace("{}", key);
            assert_eq!(c.cmd(&words(&stray)), int(1), "{stray}");
            let new = propagated(&chain, |c| assert_eq!(c.cmd(&words(line)), reply, "{line}"));
            assert_eq!(&new, std::slice::from_ref(repaired), "{line} after {stray}");
            for server in chain.servers() {
                assert_eq!(
                    cmd!(server.conn(), "PTTL", key),
                    int(5000),
                    "{line} after {stray}"
                );
            }
            let again = propagated(&chain, |c| assert_eq!(c.cmd(&words(line)), reply));
            assert_eq!(again, [] as [Vec<Vec<u8>>; 0]);
        }
    }
    chain.assert_equal();
}

#[test]
fn replies_that_change_nothing_leave_a_strayed_ttl() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", "me", 5000);
    cmd!(c, "LOCK.GUARD", "g", 9, "PX", 5000);
    cmd!(c, "PERSIST", "k");
    cmd!(c, "PERSIST", "g");
    changes_nothing(&server, || {
        for (line, reply) in [
            ("LOCK.ACQUIRE k you 9000", nil()),
            ("LOCK.RENEW k you 9000", int(0)),
            ("LOCK.RENEW k me 9000 TOKEN 1", int(0)),
            ("LOCK.RELEASE k you", int(0)),
            ("LOCK.FORCERELEASE k TOKEN 1", int(0)),
            ("LOCK.GUARD g 8", int(0)),
        ] {
            assert_eq!(c.cmd(&words(line)), reply, "{line}");
        }
    });
    assert_eq!(cmd!(c, "PTTL", "k"), int(-1));
    assert_eq!(cmd!(c, "PTTL", "g"), int(-1));
}

#[test]
fn a_ttl_in_the_past_deletes_the_lock() {
    let chain = chain();
    let mut c = chain.primary.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", "me", 5000);
    assert_eq!(cmd!(c, "PEXPIREAT", "k", 1), int(1));
    assert_eq!(cmd!(c, "LOCK.INFO", "k"), nil());
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", "me", 5000), int(0));
    chain.assert_equal();
}

// --- the clock steps ---

#[test]
fn a_clock_that_steps_back_stretches_the_lease_by_the_step() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "me", 1000);
    cmd!(c, "LOCK.GUARD", "g", 9, "PX", 1000);
    chain.sync();
    chain.clock().advance_ms(-HOUR_MS);
    for server in chain.servers() {
        let info = cmd!(server.conn(), "LOCK.INFO", "k");
        assert_eq!(info.field("ttl_ms"), &int(HOUR_MS + 1000));
        assert_eq!(info.field("holders").items()[0].field("held_ms"), &int(0));
    }
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "you", 1000), nil());
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", "me", 1000), int(HOUR_MS + 1000));
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "me", 1000), token);
    assert_eq!(cmd!(c, "LOCK.GUARD", "g", 8), int(0));
    // Released and taken at the earlier time: the lease counts from there, the token rises.
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "me"), int(1));
    assert_eq!(
        cmd!(c, "LOCK.ACQUIRE", "k", "you", 1000),
        int(token.as_int() + 1)
    );
    assert_eq!(cmd!(c, "PTTL", "k"), int(1000));
    chain.assert_equal();
}

#[test]
fn a_clock_that_steps_forward_ends_the_lease() {
    let chain = chain();
    let mut c = chain.primary.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", "me", 60_000);
    cmd!(c, "LOCK.ACQUIRE", "l", "me", 2 * HOUR_MS);
    chain.clock().advance_ms(HOUR_MS);
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", "me", 60_000), int(0));
    assert_eq!(cmd!(c, "LOCK.RENEW", "l", "me", 1), int(HOUR_MS));
    assert_eq!(
        cmd!(c, "LOCK.ACQUIRE", "k", "you", 60_000),
        int(chain.clock().now_us())
    );
    chain.assert_equal();
}

#[test]
fn the_farthest_deadline_works() {
    let server = single();
    let mut c = server.conn();
    leave_expired(&mut c);
    cmd!(
        c,
        "CONFIG",
        "SET",
        "sluice.lock-max-lease-ms",
        31_536_000_000i64
    );
    cmd!(c, "LOCK.ACQUIRE", "k", "me", 31_536_000_000i64);
    assert_eq!(cmd!(c, "PTTL", "k"), int(31_536_000_000));
    server.clock().advance_ms(31_536_000_000);
    assert_eq!(cmd!(c, "LOCK.INFO", "k").field("ttl_ms"), &int(0));
    server.clock().advance_ms(1);
    assert_eq!(cmd!(c, "LOCK.INFO", "k"), nil());
}

// --- the counter of lost leases ---

#[test]
fn a_lost_lease_is_counted_once_by_the_active_expiry() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let before = counter(&chain.primary, "lock_leases_expired");
    for i in 0..20 {
        cmd!(c, "LOCK.ACQUIRE", i, "me", 1000);
    }
    cmd!(c, "LOCK.GUARD", "g", 9, "PX", 1000);
    chain.clock().advance_ms(1001);
    eventually("all have expired everywhere", || {
        chain
            .servers()
            .iter()
            .all(|server| cmd!(server.conn(), "DBSIZE") == int(0))
    });
    assert_eq!(counter(&chain.primary, "lock_leases_expired"), before + 20);
    assert_eq!(counter(&chain.replica, "lock_leases_expired"), 0);
    assert_eq!(counter(&chain.sub, "lock_leases_expired"), 0);
}

#[test]
fn a_lost_lease_is_counted_once_however_it_is_noticed() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "DEBUG", "SET-ACTIVE-EXPIRE", 0);
    let mut expected = counter(&server, "lock_leases_expired");
    for (stray, notice) in [
        ("", "EXISTS k"),
        ("", "LOCK.INFO k"),
        ("", "LOCK.ACQUIRE k you 1"),
        ("", "SET k v"),
        ("", "DEL k"),
        ("PERSIST k", "LOCK.ACQUIRE k you 1"),
        ("PERSIST k", "DEL k"),
        ("PERSIST k", "UNLINK k"),
        ("PERSIST k", "SET k v"),
        ("PEXPIRE k 2000", "LOCK.ACQUIRE k you 1"),
        // First noticed by one that leaves it there.
        ("PERSIST k", "LOCK.RENEW k me 1000"),
        ("PERSIST k", "LOCK.RELEASE k me"),
        ("PERSIST k", "LOCK.INFO k"),
    ] {
        cmd!(c, "LOCK.ACQUIRE", "k", "me", 1000);
        if !stray.is_empty() {
            assert_eq!(c.cmd(&words(stray)), int(1));
        }
        server.clock().advance_ms(1001);
        let reply = c.cmd(&words(notice));
        assert!(!reply.is_error(), "{notice}: {reply:?}");
        for _ in 0..2 {
            cmd!(c, "LOCK.RENEW", "k", "me", 1);
        }
        cmd!(c, "FLUSHALL", "SYNC");
        cmd!(c, "EXISTS", "k");
        expected += 1;
        let leaves_it =
            notice.starts_with("LOCK.R") || (notice.ends_with("INFO k") && !stray.is_empty());
        if leaves_it {
            // Only FLUSHALL took it away, and that reports no key.
            expected -= 1;
        }
        assert_eq!(
            counter(&server, "lock_leases_expired"),
            expected,
            "{stray}, {notice}"
        );
    }
}

#[test]
fn a_released_kept_or_deleted_lock_is_no_lost_lease() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let before = counter(&chain.primary, "lock_leases_expired");
    for line in [
        "LOCK.RELEASE k me",
        "LOCK.RELEASE k me KEEP 10",
        "LOCK.FORCERELEASE k",
        "DEL k",
        "UNLINK k",
        "SET k v PX 10",
        "FLUSHALL",
        "RENAME k other",
    ] {
        cmd!(c, "LOCK.ACQUIRE", "k", "me", 1000);
        assert!(!c.cmd(&words(line)).is_error());
        assert_eq!(
            counter(&chain.primary, "lock_leases_expired"),
            before,
            "{line}"
        );
        cmd!(c, "DEL", "other");
        chain.clock().advance_ms(1001);
        cmd!(c, "LOCK.INFO", "k");
        cmd!(c, "LOCK.ACQUIRE", "k", "me", 1000);
        cmd!(c, "LOCK.RELEASE", "k", "me");
    }
    cmd!(c, "LOCK.ACQUIRE", "k", "me", 1000);
    cmd!(c, "LOCK.RELEASE", "k", "me", "KEEP", 10);
    chain.clock().advance_ms(11);
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
    assert_eq!(counter(&chain.primary, "lock_leases_expired"), before);
    chain.assert_equal();
}

/// Nobody may get a lock while its holder is still told that it holds it. Redis 8's active
/// expiry deletes every key in its deadline's own millisecond, ours too: documented.
#[test]
fn the_active_expiry_leaves_the_deadlines_own_millisecond() {
    if flavour().kind == Kind::Redis && flavour().version.0 >= 8 {
        return println!("skipped: {} expires keys 1 ms early", flavour().name);
    }
    let server = single();
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", "me", 1000);
    cmd!(c, "SET", "over", "v", "PX", 999);
    server.clock().advance_ms(1000);
    eventually("the active expiry has run", || {
        server.info("stats")["expired_keys"] != "0"
    });
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "you", 1000), nil());
}
