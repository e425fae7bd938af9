//! Faults of other lock implementations, as reported in the field, and the right answer here.
//!
//! One test per report that plain locks can have; each names its source.

use crate::support::*;

/// redisson#7272: a renewal that was under way when the holder released comes in late.
#[test]
fn a_late_renewal_does_not_bring_a_released_lock_back() {
    let server = single();
    let (mut worker, mut watchdog) = (server.conn(), server.conn());
    let token = cmd!(worker, "LOCK.ACQUIRE", "k", "a", 30_000);
    server.clock().advance_ms(10_000);
    assert_eq!(cmd!(watchdog, "LOCK.RENEW", "k", "a", 30_000), int(30_000));
    assert_eq!(cmd!(worker, "LOCK.RELEASE", "k", "a"), int(1));
    assert_eq!(cmd!(watchdog, "LOCK.RENEW", "k", "a", 30_000), int(0));
    let with_token = cmd!(
        watchdog,
        "LOCK.RENEW",
        "k",
        "a",
        30_000,
        "TOKEN",
        token.as_int()
    );
    assert_eq!(with_token, int(0));
    assert_eq!(cmd!(worker, "EXISTS", "k"), int(0));
    // Nor does it touch whoever came next.
    cmd!(worker, "LOCK.ACQUIRE", "k", "b", 1000);
    assert_eq!(cmd!(watchdog, "LOCK.RENEW", "k", "a", 30_000), int(0));
    assert_eq!(cmd!(worker, "PTTL", "k"), int(1000));
}

/// redlock-rb#76: the reply to ACQUIRE is lost, and the client asks again with the same owner.
#[test]
fn a_lost_reply_costs_nothing() {
    let server = single();
    let mut lost = server.conn();
    lost.send(&args!["LOCK.ACQUIRE", "k", UUID, 1000]);
    eventually("the request arrives", || {
        cmd!(server.conn(), "EXISTS", "k") == int(1)
    });
    drop(lost);
    let granted = server.clock().now_us();
    server.clock().advance_ms(200);
    let mut c = server.conn();
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", UUID, 1000), int(granted));
    let info = cmd!(c, "LOCK.INFO", "k");
    assert_eq!(info.field("holders").items().len(), 1);
    assert_eq!(info.field("holders").items()[0].field("holds"), &int(1));
    assert_eq!(info.field("ttl_ms"), &int(1000));
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", UUID), int(1));
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
}

/// ShedLock#2583: a holder whose lease is over releases, and its successor's lock is gone.
#[test]
fn an_expired_holder_cannot_release_its_successor() {
    let server = recorder();
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "job", "pod-1", 1000);
    server.clock().advance_ms(1001);
    let token = cmd!(c, "LOCK.ACQUIRE", "job", "pod-2", 1000);
    answers(&server, &[("LOCK.RELEASE job pod-1", int(0))]);
    let info = cmd!(c, "LOCK.INFO", "job");
    assert_eq!(info.field("token"), &token);
    assert_eq!(
        info.field("holders").items()[0].field("owner"),
        &bulk("pod-2")
    );
}

/// node redis-semaphore PR#177: the refresh of a lapsed lock takes it again, behind the back of the
/// application that believes it never lost it.
#[test]
fn a_refresh_never_takes_a_lapsed_lock_again() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000);
    server.clock().advance_ms(1001);
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", "a", 1000), int(0));
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
    assert!(cmd!(c, "LOCK.ACQUIRE", "k", "b", 1000).as_int() > 0);
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", "a", 1000), int(0));
}

/// redisson#1110, #2144: a second, shorter lease by the same owner cuts the first one short.
#[test]
fn a_second_shorter_lease_does_not_shorten_the_first() {
    let server = single();
    let (mut first, mut second) = (server.conn(), server.conn());
    let token = cmd!(first, "LOCK.ACQUIRE", "k", "a", 60_000);
    assert_eq!(cmd!(second, "LOCK.ACQUIRE", "k", "a", 100), token);
    assert_eq!(cmd!(second, "LOCK.RENEW", "k", "a", 100), int(60_000));
    server.clock().advance_ms(101);
    assert_eq!(cmd!(second, "LOCK.ACQUIRE", "k", "b", 100), nil());
    assert_eq!(cmd!(first, "PTTL", "k"), int(60_000 - 101));
}

/// redisson#2116, node-redlock#56: nobody can tell who holds a lock and for how long, or free it.
#[test]
fn an_operator_sees_who_holds_it_and_forces_it() {
    let server = single();
    server.clear_log();
    let mut c = server.conn();
    let meta = "host=web-3 pid=4711";
    let token = cmd!(c, "LOCK.ACQUIRE", "k", UUID, 60_000, "META", meta);
    server.clock().advance_ms(45_000);
    let info = cmd!(c, "LOCK.INFO", "k");
    let holder = &info.field("holders").items()[0];
    assert_eq!(holder.field("owner"), &bulk(UUID));
    assert_eq!(holder.field("meta"), &bulk(meta));
    assert_eq!(holder.field("held_ms"), &int(45_000));
    assert_eq!(holder.field("ttl_ms"), &int(15_000));
    // With the token: not whoever may hold it by the time the operator has typed this.
    let token = token.as_int();
    assert_eq!(
        cmd!(c, "LOCK.FORCERELEASE", "k", "TOKEN", token - 1),
        int(0)
    );
    assert_eq!(cmd!(c, "LOCK.FORCERELEASE", "k", "TOKEN", token), int(1));
    server.wait_log(&format!("owner=\"{UUID}\" token={token} by client id="));
    assert_eq!(cmd!(c, "LOCK.INFO", "k"), nil());
}

/// node-redlock#288: to the caller, busy and failed look the same.
#[test]
fn busy_is_a_nil_and_failed_is_an_error() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000);
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "b", 1000), nil());
    cmd!(c, "SET", "string", "v");
    let failures = [
        cmd!(c, "LOCK.ACQUIRE", "string", "b", 1000),
        cmd!(c, "LOCK.ACQUIRE", "k", "b", 0),
        cmd!(c, "LOCK.ACQUIRE", "k", "b"),
    ];
    assert!(failures.iter().all(Reply::is_error), "{failures:?}");
    cmd!(c, "CONFIG", "SET", "maxmemory", 1);
    assert!(cmd!(c, "LOCK.ACQUIRE", "k", "b", 1000).is_error());
}

/// redisson#5066, #659, for a lock: what is released twice is released once.
#[test]
fn a_double_release_gives_nothing_away() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000);
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "a"), int(1));
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "a"), int(0));
    cmd!(c, "LOCK.ACQUIRE", "k", "b", 1000);
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "a"), int(0));
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000), nil());
}

/// redisson#7321: a hidden WAIT makes every acquire as slow as the slowest replica.
#[test]
fn no_acquire_waits_for_replicas_unless_the_client_does() {
    let chain = chain();
    let mut c = chain.primary.conn();
    chain.replica.sigstop();
    let now = chain.clock().now_us();
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "a", 60_000), int(now));
    chain.replica.sigcont();
    assert_eq!(cmd!(c, "WAIT", 1, 5000), int(1));
    let held = cmd!(chain.replica.conn(), "LOCK.INFO", "k");
    assert_eq!(held.field("token"), &int(now));
}

/// redis#8623: a full server refuses what would make room.
#[test]
fn a_full_server_still_lets_go() {
    let server = single();
    let mut c = server.conn();
    for key in ["plain", "eval", "fcall", "renew"] {
        cmd!(c, "LOCK.ACQUIRE", key, "a", 1000);
    }
    let library = "#!lua name=sluice_tests
        redis.register_function{
            function_name = 'release', flags = {'allow-oom'},
            callback = function(KEYS, ARGV) return redis.call('LOCK.RELEASE', KEYS[1], ARGV[1]) end
        }";
    cmd!(c, "FUNCTION", "LOAD", library);
    cmd!(c, "CONFIG", "SET", "maxmemory", 1);
    let oom = "OOM command not allowed when used memory > 'maxmemory'.";
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "new", "a", 1000), err(oom));
    assert_eq!(cmd!(c, "LOCK.RELEASE", "plain", "a"), int(1));
    let release = "return redis.call('LOCK.RELEASE', KEYS[1], ARGV[1])";
    assert_eq!(c.eval(release, &["eval"], &args!["a"]), int(1));
    assert_eq!(cmd!(c, "FCALL", "release", 1, "fcall", "a"), int(1));
    assert_eq!(cmd!(c, "LOCK.RENEW", "renew", "a", 5000), int(5000));
    assert_eq!(cmd!(c, "DBSIZE"), int(1));
}

/// RedLock.net#101: the memory fills up, and a held lock is evicted.
#[test]
fn an_evicted_lock_is_lost_to_its_holder_and_the_next_token_is_higher() {
    let server = single();
    let mut c = server.conn();
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "a", 60_000).as_int();
    let used: u64 = server.info("memory")["used_memory"].parse().unwrap();
    cmd!(c, "CONFIG", "SET", "maxmemory-policy", "allkeys-random");
    cmd!(c, "CONFIG", "SET", "maxmemory", used + 2_000_000);
    let ballast = vec![b'x'; 200_000];
    let evicted = (0..5000).any(|n| {
        cmd!(c, "SET", n, ballast);
        cmd!(c, "EXISTS", "k") == int(0)
    });
    assert!(evicted);
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", "a", 60_000), int(0));
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "a"), int(0));
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "b", 60_000), int(token + 1));
}
