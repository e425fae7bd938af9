//! Faults reported in the field about waiting for a lock, each by its source and as a scenario.

use std::{
    env,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::support::*;
use crate::waiting_support::*;

/// redisson#1763, spring-integration#3716: a release at any moment around the start of a wait. The
/// waiter is granted; no wake-up is lost.
#[test]
fn a_release_around_the_start_of_a_wait_is_never_missed() {
    let server = single();
    let (mut holder, mut waiter) = (server.conn(), server.conn());
    let line = words("LOCK.ACQUIRE k a 60000 BLOCK 60000");
    for n in 0..400u64 {
        hold(&mut holder, "k");
        // Neither waits for the other's reply; a little apart, now this way and now that.
        let apart = Duration::from_micros(n * 7 % 200);
        if n % 2 == 0 {
            waiter.send(&line);
            thread::sleep(apart);
            holder.send(&args!["LOCK.RELEASE", "k", "h"]);
        } else {
            holder.send(&args!["LOCK.RELEASE", "k", "h"]);
            thread::sleep(apart);
            waiter.send(&line);
        }
        assert_eq!(holder.recv(), int(1), "round {n}");
        let token = waiter.recv().as_int();
        is_held_by(&mut holder, "k", "a", token);
        assert_eq!(cmd!(waiter, "LOCK.RELEASE", "k", "a"), int(1));
    }
    nobody_waits(&server);
}

/// The same around every other end of a hold.
#[test]
fn an_end_of_any_kind_around_the_start_of_a_wait_is_never_missed() {
    let server = single();
    let (mut other, mut waiter) = (server.conn(), server.conn());
    let line = words("LOCK.ACQUIRE k a 60000 BLOCK 60000");
    for n in 0..300u64 {
        hold(&mut other, "k");
        let end = match n % 6 {
            0 => "DEL k",
            1 => "LOCK.FORCERELEASE k",
            2 => "FLUSHALL ASYNC",
            3 => "PEXPIRE k -1",
            4 => "SWAPDB 0 1",
            _ => "RENAME k elsewhere",
        };
        let apart = Duration::from_micros(n * 11 % 200);
        if n / 6 % 2 == 0 {
            waiter.send(&line);
            thread::sleep(apart);
            other.send(&words(end));
        } else {
            other.send(&words(end));
            thread::sleep(apart);
            waiter.send(&line);
        }
        assert!(!other.recv().is_error());
        let token = waiter.recv().as_int();
        is_held_by(&mut other, "k", "a", token);
        cmd!(other, "FLUSHALL");
    }
    nobody_waits(&server);
}

/// redisson#3730: the holder's lease ends while others queue. The first waiter is granted soon
/// after the deadline. (How soon is for the benchmarks: other tests run beside this one.)
#[test]
fn the_end_of_a_lease_is_enough_for_the_first_waiter() {
    let server = single();
    server.clock().run();
    let mut c = server.conn();
    for _ in 0..5 {
        let old = cmd!(c, "LOCK.ACQUIRE", "k", "h", 100).as_int();
        let deadline_us = old / 1000 * 1000 + 100_000;
        let [mut a, mut b] = queue(&server, "k", ["a", "b"]);
        // The token is the clock's at the grant.
        let late_us = a.token() - deadline_us;
        assert!((1..1_000_000).contains(&late_us), "{late_us} us late");
        assert_eq!(b.conn.recv_timeout(Duration::from_millis(20)), None);
        cmd!(c, "LOCK.RELEASE", "k", "a");
        b.token();
        cmd!(c, "LOCK.RELEASE", "k", "b");
    }
}

/// redisson#3004: a waiter waits longer than five minutes. It is still served in its turn, up to
/// its own bound.
#[test]
fn a_long_wait_is_served_in_its_turn() {
    let server = single();
    let (mut c, clock) = (server.conn(), server.clock());
    let line = |owner: &str| format!("LOCK.ACQUIRE k {owner} 900000 BLOCK 600000");
    cmd!(c, "LOCK.ACQUIRE", "k", "h", 900_000);
    let mut a = Waiter::send(&server, &line("a"));
    let mut b = Waiter::send(&server, &line("b"));
    // Nine minutes, as they pass on all clocks.
    for _ in 0..9 {
        clock.advance_ms(60_000);
        clock.advance_mono_ms(60_000);
        thread::sleep(Duration::from_millis(120));
    }
    let mut late = Waiter::send(&server, &line("late"));
    a.still_waits();
    cmd!(c, "LOCK.RELEASE", "k", "h");
    let token = a.token();
    b.still_waits();
    clock.advance_mono_ms(60_000);
    assert_eq!(b.answer(), nil());
    late.still_waits();
    cmd!(c, "LOCK.RELEASE", "k", "a");
    assert!(late.token() > token);
}

/// python-redis-lock#58, node-redlock#218: a newcomer tries at the instant of release or expiry
/// while others queue. Busy: the queue goes first.
#[test]
fn a_newcomer_at_the_instant_of_release_or_expiry_is_busy() {
    let server = single();
    let mut c = server.conn();
    let mut last = hold(&mut c, "k");
    let mut holder = "h".to_string();
    for n in 0..20 {
        let owner = format!("o{n}");
        let mut waiter = Waiter::queue(&server, "k", &owner);
        // Many newcomers, each on a connection of its own, in the same turn of the loop as the end.
        let mut newcomers: Vec<Conn> = (0..10).map(|_| server.conn()).collect();
        if n % 2 == 0 {
            c.send(&args!["LOCK.RELEASE", "k", &holder]);
        } else {
            server.clock().advance_ms(60_001);
        }
        for (m, newcomer) in newcomers.iter_mut().enumerate() {
            newcomer.send(&args!["LOCK.ACQUIRE", "k", format!("new{m}"), 1000]);
        }
        if n % 2 == 0 {
            assert_eq!(c.recv(), int(1));
        }
        for newcomer in &mut newcomers {
            assert_eq!(newcomer.recv(), nil());
        }
        let token = waiter.token();
        assert!(token > last);
        is_held_by(&mut c, "k", &owner, token);
        (holder, last) = (owner, token);
    }
}

/// redis#13017: CLIENT UNBLOCK of a waiter, in each mode, twice in a row, and right before and after
/// the RELEASE that grants it. In the end there is one holder, and nobody is blocked.
#[test]
fn client_unblock_around_a_release_leaves_one_holder() {
    let server = single();
    let mut c = server.conn();
    for (how, answer) in [
        (args![], nil()),
        (args!["TIMEOUT"], nil()),
        (args!["ERROR"], err(UNBLOCKED)),
    ] {
        for before in [true, false] {
            hold(&mut c, "k");
            let mut a = Waiter::queue(&server, "k", "a");
            let mut b = Waiter::queue(&server, "k", "b");
            let unblock = [args!["CLIENT", "UNBLOCK", a.id], how.clone()].concat();
            let release = args!["LOCK.RELEASE", "k", "h"];
            let commands = if before {
                vec![unblock.clone(), unblock, release]
            } else {
                vec![release, unblock.clone(), unblock]
            };
            let replies = c.pipeline(&commands);
            if before {
                assert_eq!(replies, [1, 0, 1].map(int));
            }
            // After the release it may be too late: then a holds the lock. Redis 7.0 leaves a client
            // that is sent away in that very turn without a reply.
            let came = a.conn.recv_timeout(Duration::from_secs(1));
            if let Some(Reply::Int(token)) = came {
                assert!(!before);
                is_held_by(&mut c, "k", "a", token);
                assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "a"), int(1));
            } else if let Some(came) = came {
                assert_eq!(came, answer);
            } else {
                assert!(!before && answer == nil() && !since_7_2());
            }
            let token = b.token();
            is_held_by(&mut c, "k", "b", token);
            assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "b"), int(1));
            assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
            nobody_waits(&server);
        }
    }
}

/// redis#8623: noeviction, over maxmemory, with waiters: a release in whatever form still grants,
/// a renewal works, and an ACQUIRE is refused.
#[test]
fn over_maxmemory_a_release_still_grants() {
    let chain = chain();
    let server = &chain.primary;
    let mut c = server.conn();
    load_function(&mut c);
    hold(&mut c, "k");
    let [mut a, mut b, mut d] = queue(server, "k", ["a", "b", "d"]);
    cmd!(c, "LOCK.ACQUIRE", "other", "h", 1000);
    let mut on_other = Waiter::queue(server, "other", "o");
    cmd!(c, "RL.TOKENBUCKET", "bucket", 5, 1, 1000);
    cmd!(c, "CONFIG", "SET", "maxmemory-policy", "noeviction");
    cmd!(c, "CONFIG", "SET", "maxmemory", 1);
    for line in [
        "LOCK.ACQUIRE k x 1000",
        "LOCK.ACQUIRE free x 1000",
        "LOCK.ACQUIRE k x 1000 BLOCK 1000",
    ] {
        let reply = c.cmd(&words(line));
        assert!(reply.as_text().starts_with("OOM "), "{line}: {reply:?}");
    }
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", "h", 90_000), int(90_000));
    assert_eq!(cmd!(c, "RL.RESET", "bucket"), int(1));

    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "h"), int(1));
    let token = a.token();
    let reply = c.eval(RUN, &["k"], &args!["LOCK.RELEASE", "a"]);
    assert_eq!(reply, int(1));
    assert_eq!(b.token(), token + 1);
    let reply = cmd!(c, "FCALL", "run", 1, "k", "LOCK.RELEASE", "b");
    assert_eq!(reply, int(1));
    assert_eq!(d.token(), token + 2);
    // What the deferred writer does is no client's command.
    chain.clock().advance_ms(1001);
    on_other.token();
    chain.assert_equal();
    is_held_by(&mut chain.replica.conn(), "k", "d", token + 2);
    cmd!(c, "CONFIG", "SET", "maxmemory", 0);
}

/// RedLock.net#101: allkeys-random; a holds k, b waits; fill the memory. b is granted at the
/// eviction, with a higher token; a's RENEW and RELEASE answer 0.
#[test]
fn an_evicted_lock_goes_to_its_waiter() {
    let server = single();
    let mut c = server.conn();
    let old = cmd!(c, "LOCK.ACQUIRE", "k", "a", 60_000).as_int();
    let mut b = Waiter::queue(&server, "k", "b");
    let used: u64 = server.info("memory")["used_memory"].parse().unwrap();
    cmd!(c, "CONFIG", "SET", "maxmemory-policy", "allkeys-random");
    let started = Instant::now();
    let mut n = 0;
    // Few and large, so that k is soon hit. The pressure lasts for one turn of the server's
    // loop, b's grant comes in the next: else its lock could go as well.
    let token = loop {
        n += 1;
        c.pipeline(&[
            args!["CONFIG", "SET", "maxmemory", used + 1_000_000],
            args!["SET", format!("filler-{n}"), vec![b'x'; 50_000]],
            args!["CONFIG", "SET", "maxmemory", 0],
        ]);
        if cmd!(c, "LOCK.RENEW", "k", "a", 60_000) == int(0) {
            break b.token();
        }
        assert!(started.elapsed() < Duration::from_secs(20), "never evicted");
    };
    assert!(token > old);
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", "a", 1000), int(0));
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "a"), int(0));
    is_held_by(&mut c, "k", "b", token);
}

const PORT: &str = "SLUICE_TEST_WAITERS_PORT";
const CROWD: usize = 200;

/// Not a test: the process that the next one kills.
#[test]
#[ignore = "run by the_waiters_of_a_killed_process_are_gone"]
fn as_a_process_of_two_hundred_waiters() {
    let Ok(port) = env::var(PORT) else {
        return;
    };
    let port = port.parse().expect("a port");
    let mut crowd: Vec<Conn> = (0..CROWD).map(|_| Conn::connect(port)).collect();
    for (n, conn) in crowd.iter_mut().enumerate() {
        let owner = format!("{UUID}-{n}");
        conn.send(&args!["LOCK.ACQUIRE", "k", owner, 60_000, "BLOCK", 600_000]);
    }
    thread::sleep(Duration::from_secs(60));
}

/// redisson#6150: 200 waiters from one process, kill -9 it; a new process asks. It waits at most the
/// running lease, one waiter is counted, and the memory is back.
#[test]
fn the_waiters_of_a_killed_process_are_gone() {
    let server = Options::new().start();
    let clock = server.clock();
    clock.freeze_at(T_US);
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", "h", 30_000);
    // The first crowd leaves what the server keeps for good: a few clients in reserve. It frees the
    // others a few at a time.
    crowd_comes_and_dies(&server);
    let settled = || {
        let mut last = 0;
        eventually("the memory settles", || {
            thread::sleep(Duration::from_millis(700));
            let used: i64 = server.info("memory")["used_memory"].parse().unwrap();
            std::mem::replace(&mut last, used) == used
        });
        last
    };
    let before = settled();
    crowd_comes_and_dies(&server);
    let leaked = settled() - before;
    assert!(leaked < 2_000, "{leaked} bytes");
    let mut new = Waiter::queue(&server, "k", "new");
    assert_eq!(waiters(&mut c, "k"), 1);
    clock.advance_ms(29_000);
    new.still_waits();
    clock.advance_ms(1001);
    assert_eq!(new.token(), clock.now_us());
    assert_eq!(counter(&server, "waiters_peak"), CROWD as i64);
}

fn crowd_comes_and_dies(server: &Server) {
    // Not by its path: a build may replace the file while this runs.
    let mut process = Command::new("/proc/self/exe")
        .args(["--ignored", "--exact"])
        .arg("waiting_cases::as_a_process_of_two_hundred_waiters")
        .env(PORT, server.port().to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("can be started again");
    eventually("200 wait", || counter(server, "waiters") == CROWD as i64);
    process.kill().expect("it runs");
    process.wait().expect("it is our child");
    nobody_waits(server);
}

/// redisson#7272: a late renewal arrives after the release, which granted a waiter. 0, and the
/// waiter's lock is as it was.
#[test]
fn a_late_renewal_does_not_touch_the_waiters_lock() {
    let server = single();
    let mut c = server.conn();
    let old = hold(&mut c, "k");
    let mut a = Waiter::send(&server, "LOCK.ACQUIRE k a 5000 BLOCK 60000");
    cmd!(c, "LOCK.RELEASE", "k", "h");
    let token = a.token();
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", "h", 60_000), int(0));
    assert_eq!(
        cmd!(c, "LOCK.RENEW", "k", "h", 60_000, "TOKEN", old),
        int(0)
    );
    // Not even with the owner that holds it now, under the old token.
    assert_eq!(
        cmd!(c, "LOCK.RENEW", "k", "a", 60_000, "TOKEN", old),
        int(0)
    );
    is_held_by(&mut c, "k", "a", token);
    assert_eq!(cmd!(c, "PTTL", "k"), int(5000));
}

/// ShedLock#2583, redis-semaphore (node) PR#177: the holder, whose lease ended while another waited,
/// renews and releases. 0 both times, and its successor's lock stands.
#[test]
fn an_expired_holder_cannot_harm_its_successor() {
    let server = single();
    let mut c = server.conn();
    leave_expired(&mut c);
    for line in ["LOCK.RELEASE k h", "LOCK.RENEW k h 60000"] {
        cmd!(c, "LOCK.ACQUIRE", "k", "h", 1000);
        let mut a = Waiter::queue(&server, "k", "a");
        server.clock().advance_ms(1001);
        // Before or after the queue was served.
        assert_eq!(c.cmd(&words(line)), int(0));
        let token = a.token();
        is_held_by(&mut c, "k", "a", token);
        assert_eq!(c.cmd(&words(line)), int(0));
        is_held_by(&mut c, "k", "a", token);
        cmd!(c, "LOCK.RELEASE", "k", "a");
    }
}

/// redlock-rb#76: the reply to an ACQUIRE is lost, here that of a wait which ended in a grant. The
/// client asks again with the same owner: the same token, one hold.
#[test]
fn a_lost_grant_is_found_again_by_its_owner() {
    let server = single();
    let mut c = server.conn();
    let old = hold(&mut c, "k");
    let [a, mut b] = queue(&server, "k", ["a", "b"]);
    cmd!(c, "LOCK.RELEASE", "k", "h");
    // The reply is on its way into a connection that its client has given up.
    eventually("it was handed over", || !is_blocked(&mut c, a.id));
    drop(a);
    let mut again = server.conn();
    let line = "LOCK.ACQUIRE k a 60000 BLOCK 60000";
    assert_eq!(again.cmd(&words(line)), int(old + 1));
    assert_eq!(cmd!(again, "LOCK.RELEASE", "k", "a"), int(1));
    assert_eq!(b.token(), old + 2);
}

/// redisson#2116, node-redlock#56: who holds it, for how long, how many wait; and force it.
#[test]
fn an_operator_sees_the_queue_and_moves_it_on() {
    let server = single();
    let mut c = server.conn();
    let old = cmd!(c, "LOCK.ACQUIRE", "k", "h", 60_000, "META", "host-1").as_int();
    let [mut a, _b] = queue(&server, "k", ["a", "b"]);
    server.clock().advance_ms(10_000);
    let info = cmd!(c, "LOCK.INFO", "k");
    assert_eq!(info.field("waiters"), &int(2));
    let holder = &info.field("holders").items()[0];
    assert_eq!(holder.field("held_ms"), &int(10_000));
    assert_eq!(holder.field("meta"), &bulk("host-1"));
    // With a token that is no holder's any more, nothing happens.
    let stale = cmd!(c, "LOCK.FORCERELEASE", "k", "TOKEN", old + 1);
    assert_eq!(stale, int(0));
    a.still_waits();
    assert_eq!(cmd!(c, "LOCK.FORCERELEASE", "k", "TOKEN", old), int(1));
    let token = a.token();
    assert!(token > old);
    // A second operator with the same command is too late for a.
    assert_eq!(cmd!(c, "LOCK.FORCERELEASE", "k", "TOKEN", old), int(0));
    is_held_by(&mut c, "k", "a", token);
}

/// node-redlock#288: busy and failed look the same. A wait that came to nothing is a nil reply, a
/// failure is an error.
#[test]
fn a_wait_that_came_to_nothing_is_no_error_and_a_failure_is() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "CONFIG", "SET", "sluice.max-waiters-per-key", 3);
    hold(&mut c, "k");
    let mut times_out = Waiter::send(&server, "LOCK.ACQUIRE k a 1000 BLOCK 20000");
    let mut unblocked = Waiter::queue(&server, "k", "b");
    let mut wrong_type = Waiter::queue(&server, "k", "d");
    let full = c.cmd(&words("LOCK.ACQUIRE k e 1000 BLOCK 1000"));
    assert_eq!(full, err(QUEUE_FULL));
    server.clock().advance_mono_ms(20_001);
    assert_eq!(times_out.answer(), nil());
    cmd!(c, "CLIENT", "UNBLOCK", unblocked.id, "ERROR");
    assert_eq!(unblocked.answer(), err(UNBLOCKED));
    cmd!(c, "SET", "k", "v");
    assert_eq!(wrong_type.answer(), err(WRONG_TYPE));
}

/// The client of redisson#5762 with a lock instead of a permit: two clients hand it to each other
/// many times. No wait beyond the hand-over itself, and none is lost.
#[test]
fn two_clients_hand_a_lock_to_each_other() {
    let server = single();
    const ROUNDS: i64 = 1000;
    let started = Instant::now();
    thread::scope(|scope| {
        for owner in ["a", "b"] {
            let mut conn = server.conn();
            scope.spawn(move || {
                let line = words(&format!("LOCK.ACQUIRE k {owner} 60000 BLOCK 60000"));
                let mut last = 0;
                for _ in 0..ROUNDS {
                    let token = conn.cmd(&line).as_int();
                    assert!(token > last);
                    last = token;
                    assert_eq!(cmd!(conn, "LOCK.RELEASE", "k", owner), int(1));
                }
            });
        }
    });
    // A single poll interval of a polling client is 10 ms.
    assert!(started.elapsed() < Duration::from_secs(20));
    let highest = counter(&server, "token_high_water");
    assert_eq!(highest, server.clock().now_us() + 2 * ROUNDS - 1);
    nobody_waits(&server);
    assert_eq!(cmd!(server.conn(), "EXISTS", "k"), int(0));
}
