//! LOCK.ACQUIRE … BLOCK: who is granted the lock, when, and what is propagated.

use std::time::{Duration, Instant};

use sluice_testbed::Chain;

use crate::replication::Tap;
use crate::support::*;
use crate::waiting_support::*;

// The hand-over at RELEASE ----------------------------------------------------------------------

#[test]
fn a_release_hands_over_to_the_head_of_the_queue() {
    let server = single();
    let (mut c, clock) = (server.conn(), server.clock());
    let first = hold(&mut c, "k");
    let line = format!("LOCK.ACQUIRE k {UUID} 5000 BLOCK 60000 META host-7");
    let mut waiter = Waiter::send(&server, &line);
    assert_eq!(waiters(&mut c, "k"), 1);
    is_held_by(&mut c, "k", "h", first);

    // The lease starts at the grant, not when the wait did.
    clock.advance_ms(1500);
    let now = clock.now_us();
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "h"), int(1));
    // Before any other client runs.
    is_held_by(&mut c, "k", UUID, now);
    assert_eq!(waiter.answer(), int(now));
    assert_eq!(cmd!(c, "PTTL", "k"), int(5000));
    let deadline = now / 1000 + 5000;
    assert_eq!(cmd!(c, "PEXPIRETIME", "k"), int(deadline));
    let info = cmd!(c, "LOCK.INFO", "k");
    assert_eq!(info.field("waiters"), &int(0));
    let holder = &info.field("holders").items()[0];
    assert_eq!(holder.field("meta"), &bulk("host-7"));
    assert_eq!(holder.field("held_ms"), &int(0));
    assert_eq!(holder.field("holds"), &int(1));
    nobody_waits(&server);
    assert_eq!(cmd!(waiter.conn, "LOCK.RELEASE", "k", UUID), int(1));
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
}

#[test]
fn the_token_of_a_grant_rises_within_one_microsecond_too() {
    let server = single();
    let mut c = server.conn();
    let token = hold(&mut c, "k");
    let [mut a, mut b] = queue(&server, "k", ["a", "b"]);
    cmd!(c, "LOCK.RELEASE", "k", "h");
    assert_eq!(a.token(), token + 1);
    cmd!(c, "LOCK.RELEASE", "k", "a");
    assert_eq!(b.token(), token + 2);
}

#[test]
fn twenty_waiters_are_served_in_the_order_they_came() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let mut last = hold(&mut c, "k");
    let owners: Vec<String> = (0..20).map(|n| format!("owner-{}", n * 7 % 20)).collect();
    let queued: Vec<Waiter> = owners
        .iter()
        .map(|owner| Waiter::queue(&chain.primary, "k", owner))
        .collect();
    let mut holder = "h".to_string();
    for (n, (mut waiter, owner)) in queued.into_iter().zip(owners).enumerate() {
        assert_eq!(waiters(&mut c, "k"), 20 - n as i64);
        assert_eq!(cmd!(c, "LOCK.RELEASE", "k", &holder), int(1));
        let token = waiter.token();
        assert!(token > last);
        is_held_by(&mut c, "k", &owner, token);
        (holder, last) = (owner, token);
    }
    chain.assert_equal();
    is_held_by(&mut chain.sub.conn(), "k", &holder, last);
    nobody_waits(&chain.primary);
}

#[test]
fn the_longest_and_oddest_bytes_wait_like_any_other() {
    let server = single();
    let mut c = server.conn();
    for key in [b"".to_vec(), b"\0\r\n".to_vec(), vec![0xff; 70_000]] {
        cmd!(c, "LOCK.ACQUIRE", &key, "h", 60_000);
        let (owner, meta) = (vec![0u8; 512], vec![b'\n'; 1024]);
        let mut conn = server.conn();
        let id = conn.client_id();
        conn.send(&args![
            "lock.acquire",
            &key,
            &owner,
            60_000,
            "meta",
            &meta,
            "bLoCk",
            60_000
        ]);
        eventually("it waits", || is_blocked(&mut c, id));
        cmd!(c, "LOCK.RELEASE", &key, "h");
        let token = conn.recv().as_int();
        let info = cmd!(c, "LOCK.INFO", &key);
        let holder = &info.field("holders").items()[0];
        assert_eq!(holder.field("owner"), &bulk(&owner));
        assert_eq!(holder.field("meta"), &bulk(&meta));
        assert_eq!(holder.field("token"), &int(token));
    }
}

#[test]
fn a_free_lock_is_granted_at_once_with_block_too() {
    let server = single();
    let mut c = server.conn();
    let now = server.clock().now_us();
    let line = "LOCK.ACQUIRE k a 1000 BLOCK 5000 META m";
    assert_eq!(c.cmd(&words(line)), int(now));
    // A retry of the holder never waits.
    assert_eq!(c.cmd(&words(line)), int(now));
    assert_eq!(counter(&server, "waiters"), 0);
}

#[test]
fn in_resp3_the_answers_are_the_same() {
    let server = single();
    let mut c = server.conn();
    let token = hold(&mut c, "k");
    let line = "LOCK.ACQUIRE k a 1000 BLOCK 60000";
    let mut granted = Waiter::send_on(&server, server.conn3(), line);
    let mut times_out =
        Waiter::send_on(&server, server.conn3(), "LOCK.ACQUIRE k b 1000 BLOCK 30000");
    server.clock().advance_mono_ms(30_001);
    assert_eq!(times_out.answer(), nil());
    cmd!(c, "LOCK.RELEASE", "k", "h");
    assert_eq!(granted.answer(), int(token + 1));
}

#[test]
fn commands_behind_a_blocked_one_run_after_its_grant() {
    let server = single();
    let mut c = server.conn();
    let token = hold(&mut c, "k");
    let mut waiter = Waiter::queue(&server, "k", "a");
    waiter.conn.send(&args!["LOCK.RELEASE", "k", "a"]);
    waiter.conn.send(&args!["PING"]);
    waiter.still_waits();
    cmd!(c, "LOCK.RELEASE", "k", "h");
    let answers = [waiter.answer(), waiter.answer(), waiter.answer()];
    assert_eq!(answers, [int(token + 1), int(1), status("PONG")]);
    assert_eq!(cmd!(c, "LOCK.INFO", "k"), nil());
}

#[test]
fn a_client_can_wait_again_and_again() {
    let server = single();
    let mut c = server.conn();
    let mut waiter = server.conn();
    let id = waiter.client_id();
    for key in ["k", "l", "k", "m", "k"] {
        let token = hold(&mut c, key);
        waiter.send(&args!["LOCK.ACQUIRE", key, "a", 1000, "BLOCK", 60_000]);
        eventually("it waits", || is_blocked(&mut c, id));
        cmd!(c, "LOCK.RELEASE", key, "h");
        assert_eq!(waiter.recv(), int(token + 1));
        assert_eq!(cmd!(waiter, "LOCK.RELEASE", key, "a"), int(1));
    }
}

#[test]
fn queues_of_different_keys_and_databases_know_nothing_of_each_other() {
    let server = single();
    let (mut c, mut in_1) = (server.conn(), server.conn());
    cmd!(in_1, "SELECT", 1);
    hold(&mut c, "k");
    hold(&mut c, "l");
    hold(&mut in_1, "k");
    let mut k = Waiter::queue(&server, "k", "a");
    let mut l = Waiter::queue(&server, "l", "a");
    let mut conn = server.conn();
    cmd!(conn, "SELECT", 1);
    let mut k1 = Waiter::send_on(&server, conn, "LOCK.ACQUIRE k a 60000 BLOCK 60000");
    cmd!(c, "LOCK.RELEASE", "l", "h");
    let token = l.token();
    k.still_waits();
    k1.still_waits();
    cmd!(in_1, "LOCK.RELEASE", "k", "h");
    assert_eq!(k1.token(), token + 1);
    k.still_waits();
    cmd!(c, "LOCK.RELEASE", "k", "h");
    assert_eq!(k.token(), token + 2);
}

#[test]
fn waiting_itself_changes_nothing() {
    let server = recorder();
    let mut c = server.conn();
    hold(&mut c, "k");
    let waiter = changes_nothing(&server, || Waiter::queue(&server, "k", "a"));
    // Nor does one that leaves.
    changes_nothing(&server, || {
        drop(waiter);
        nobody_waits(&server);
    });
}

// What a hand-over propagates and tells -----------------------------------------------------------

#[test]
fn a_hand_over_is_one_effect_and_no_del() {
    let chain = chain();
    let mut c = chain.primary.conn();
    hold(&mut c, "k");
    let mut waiter = Waiter::send(&chain.primary, "LOCK.ACQUIRE k a 5000 BLOCK 60000 META m");
    let mut tap = Tap::on(&chain);
    chain.clock().advance_ms(10);
    let now = chain.clock().now_us();
    cmd!(c, "LOCK.RELEASE", "k", "h");
    assert_eq!(waiter.answer(), int(now));
    let mut held = Held::at(now, 5000, "a");
    held.meta = b"m".to_vec();
    // No SELECT, no MULTI: it came bare.
    assert_eq!(tap.take(), [args!["sluice.lk", "k", held.effect(now)]]);
    chain.assert_equal();
    for follower in [&chain.replica, &chain.sub] {
        is_held_by(&mut follower.conn(), "k", "a", now);
        assert_eq!(cmd!(follower.conn(), "PTTL", "k"), int(5000));
    }
    // And a replay of the file makes the same of it.
    chain.sub.restart();
    chain.assert_equal();
    is_held_by(&mut chain.sub.conn(), "k", "a", now);
}

#[test]
fn the_primarys_own_file_has_the_same() {
    let server = recorder();
    let mut c = server.conn();
    hold(&mut c, "k");
    let mut waiter = Waiter::queue(&server, "k", "a");
    let before = server.aof_commands().len();
    cmd!(c, "LOCK.RELEASE", "k", "h");
    let token = waiter.token();
    let mut held = Held::at(T_US, 60_000, "a");
    held.token = token as u64;
    let effect = args!["sluice.lk", "k", held.effect(T_US)];
    assert_eq!(server.aof_commands()[before..], [effect]);
    server.restart();
    is_held_by(&mut server.conn(), "k", "a", token);
}

#[test]
fn released_is_told_before_granted() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "CONFIG", "SET", "notify-keyspace-events", "Kd");
    hold(&mut c, "k");
    let queued = queue(&server, "k", ["a", "b", "c"]);
    let mut listener = server.conn();
    cmd!(listener, "PSUBSCRIBE", "__keyspace@0__:k");
    cmd!(c, "LOCK.RELEASE", "k", "h");
    cmd!(c, "LOCK.FORCERELEASE", "k");
    cmd!(c, "DEL", "k");
    for mut waiter in queued {
        waiter.token();
    }
    cmd!(c, "LOCK.RELEASE", "k", "c");
    let events = [
        "lock.released",
        "lock.granted",
        "lock.forced",
        "lock.granted",
        "lock.granted",
        "lock.released",
    ];
    for event in events {
        let message = listener.recv();
        assert_eq!(message.items()[3], bulk(event), "{message:?}");
    }
    assert_eq!(pushed(&mut listener), None);
}

#[test]
fn only_class_d_shows_the_events() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "CONFIG", "SET", "notify-keyspace-events", "EKg$lshzxetn");
    hold(&mut c, "k");
    let mut waiter = Waiter::queue(&server, "k", "a");
    let mut listener = server.conn();
    cmd!(listener, "PSUBSCRIBE", "__key*__:*");
    cmd!(c, "LOCK.RELEASE", "k", "h");
    waiter.token();
    assert_eq!(cmd!(c, "PING"), status("PONG"));
    let came = listener.recv_timeout(Duration::from_millis(50));
    // ModuleTypeSetValue of a new key may say "new"; nothing of ours may show.
    assert_eq!(came, None);
}

#[test]
fn a_hand_over_aborts_watch_and_invalidates_caches() {
    let server = single();
    let mut c = server.conn();
    hold(&mut c, "k");
    let mut waiter = Waiter::queue(&server, "k", "a");
    let mut watcher = server.conn();
    cmd!(watcher, "WATCH", "k");
    let mut cache = server.conn3();
    cmd!(cache, "CLIENT", "TRACKING", "ON", "BCAST");
    cmd!(c, "LOCK.RELEASE", "k", "h");
    waiter.token();
    assert_eq!(watcher.multi(&[args!["PING"]]), nil());
    cmd!(cache, "PING");
    let push = pushed(&mut cache).expect("an invalidation");
    assert_eq!(push.items()[1], array([bulk("k")]));
}

// Retries and renewals with waiters present ---------------------------------------------------------

#[test]
fn the_holders_retry_is_its_own_with_waiters_present() {
    let chain = chain();
    let server = &chain.primary;
    let (mut c, clock) = (server.conn(), server.clock());
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "h", 1000);
    let mut a = Waiter::queue(server, "k", "a");
    // In every place where a newcomer would get nil.
    let retry = "LOCK.ACQUIRE k h 1000";
    assert_eq!(c.cmd(&words(retry)), token);
    assert_eq!(c.cmd(&words("LOCK.ACQUIRE k h 1000 BLOCK 5000")), token);
    assert_eq!(c.exec_multi(&[words(retry)])[0], token);
    assert_eq!(
        c.eval(RUN, &["k"], &args!["LOCK.ACQUIRE", "h", 1000]),
        token
    );
    assert_eq!(waiters(&mut c, "k"), 1);
    // One that extends moves the next look at the queue.
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "h", 5000), token);
    clock.advance_ms(1001);
    a.still_waits();
    clock.advance_ms(4000);
    assert_eq!(a.token(), clock.now_us());
    chain.assert_equal();
}

#[test]
fn a_renewal_lets_the_queue_wait_longer() {
    let server = single();
    let mut c = server.conn();
    leave_expired(&mut c);
    cmd!(c, "LOCK.ACQUIRE", "k", "h", 1000);
    let mut a = Waiter::queue(&server, "k", "a");
    server.clock().advance_ms(500);
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", "h", 3000), int(3000));
    server.clock().advance_ms(501);
    a.still_waits();
    // Its last millisecond is still the holder's.
    server.clock().advance_ms(2499);
    a.still_waits();
    server.clock().advance_ms(1);
    assert_eq!(a.token(), server.clock().now_us());
}

#[test]
fn the_retry_of_an_owner_that_was_granted_gets_that_token() {
    let server = single();
    let mut c = server.conn();
    hold(&mut c, "k");
    let [mut a, mut b] = queue(&server, "k", ["a", "b"]);
    cmd!(c, "LOCK.RELEASE", "k", "h");
    let token = a.token();
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "a", 1), int(token));
    let line = "LOCK.ACQUIRE k a 1 BLOCK 1000";
    assert_eq!(c.cmd(&words(line)), int(token));
    b.still_waits();
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "a"), int(1));
    assert_eq!(b.token(), token + 1);
}

// No barging ------------------------------------------------------------------------------------------

/// A lock whose lease has just ended, with `a` in its queue; a server that cleans nothing up by
/// itself. Cron may have served the queue already when the newcomer comes: its answer is the same.
fn just_ended(server: &Server) -> Waiter {
    let mut c = server.conn();
    leave_expired(&mut c);
    cmd!(c, "LOCK.ACQUIRE", "k", "h", 1000);
    let waiter = Waiter::queue(server, "k", "a");
    server.clock().advance_ms(1001);
    waiter
}

#[test]
fn between_a_leases_end_and_its_clean_up_the_queue_goes_first() {
    load_and_try(&[
        &|c| cmd!(c, "LOCK.ACQUIRE", "k", "new", 1000),
        // The old holder is a newcomer as well.
        &|c| cmd!(c, "LOCK.ACQUIRE", "k", "h", 1000),
        &|c| c.exec_multi(&[words("LOCK.ACQUIRE k new 1000")]).remove(0),
        &|c| {
            c.exec_multi(&[words("LOCK.ACQUIRE k new 1000 BLOCK 5000")])
                .remove(0)
        },
        &|c| c.eval(RUN, &["k"], &args!["LOCK.ACQUIRE", "new", 1000]),
        &|c| {
            c.eval(
                RUN,
                &["k"],
                &args!["LOCK.ACQUIRE", "new", 1000, "BLOCK", 500],
            )
        },
        &|c| cmd!(c, "FCALL", "run", 1, "k", "LOCK.ACQUIRE", "new", 1000),
        // Even when the key is touched, and so deleted, by something else before.
        &|c| {
            c.pipeline(&[
                args!["EXISTS", "k"],
                args!["LOCK.ACQUIRE", "k", "new", 1000],
            ])
            .remove(1)
        },
        &|c| {
            c.exec_multi(&[args!["DEL", "k"], args!["LOCK.ACQUIRE", "k", "new", 1000]])
                .remove(1)
        },
        // A script that asks again and again.
        &|c| {
            let script = "for i = 1, 100 do
                    local token = redis.call('LOCK.ACQUIRE', KEYS[1], 'new', 1000)
                    if token then return token end
                end
                return redis.call('LOCK.ACQUIRE', KEYS[1], 'new', 1000, 'BLOCK', 100)";
            c.eval(script, &["k"], &[])
        },
    ]);

    #[track_caller]
    fn load_and_try(newcomers: &[&dyn Fn(&mut Conn) -> Reply]) {
        for (n, newcomer) in newcomers.iter().enumerate() {
            let server = single();
            let mut c = server.conn();
            load_function(&mut c);
            let mut a = just_ended(&server);
            assert_eq!(newcomer(&mut c), nil(), "newcomer {n}");
            let token = a.token();
            is_held_by(&mut c, "k", "a", token);
            assert_eq!(counter(&server, "waiters"), 0);
        }
    }
}

#[test]
fn a_newcomer_with_block_queues_behind_the_queue_of_an_ended_lease() {
    let server = single();
    let mut c = server.conn();
    let mut a = just_ended(&server);
    let mut new = Waiter::queue(&server, "k", "new");
    let token = a.token();
    is_held_by(&mut c, "k", "a", token);
    new.still_waits();
    cmd!(c, "LOCK.RELEASE", "k", "a");
    assert_eq!(new.token(), token + 1);
}

#[test]
fn a_waiters_own_plain_retry_serves_the_queue() {
    let server = single();
    let mut c = server.conn();
    let mut a = just_ended(&server);
    // It is the head itself that asks: granted first, so this is a retry.
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000).as_int();
    assert_eq!(a.token(), token);
    assert_eq!(cmd!(c, "PTTL", "k"), int(60_000));
}

#[test]
fn a_lease_that_ended_in_a_key_that_stays_is_no_way_in_either() {
    // A foreign PERSIST: the key outlives the deadline inside.
    let server = single();
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", "h", 1000);
    cmd!(c, "PERSIST", "k");
    let mut a = Waiter::queue(&server, "k", "a");
    server.clock().advance_ms(1001);
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "new", 1000), nil());
    let token = a.token();
    is_held_by(&mut c, "k", "a", token);
    assert_eq!(cmd!(c, "PTTL", "k"), int(60_000));
}

#[test]
fn a_lease_that_ended_in_a_key_that_stays_is_counted_as_expired() {
    let server = single();
    let mut c = server.conn();
    for newcomer_asks in [false, true] {
        let expired = counter(&server, "lock_leases_expired");
        cmd!(c, "LOCK.ACQUIRE", "k", "h", 1000);
        cmd!(c, "PERSIST", "k");
        let mut a = Waiter::queue(&server, "k", "a");
        server.clock().advance_ms(1001);
        if newcomer_asks {
            cmd!(c, "LOCK.ACQUIRE", "k", "new", 1000);
        }
        a.token();
        assert_eq!(counter(&server, "lock_leases_expired"), expired + 1);
        cmd!(c, "LOCK.RELEASE", "k", "a");
    }
}

#[test]
fn from_the_pipeline_that_frees_the_lock_the_queue_still_goes_first() {
    let chain = chain();
    let server = &chain.primary;
    let mut c = server.conn();
    for line in [
        "LOCK.RELEASE k h",
        "LOCK.FORCERELEASE k",
        "DEL k",
        "UNLINK k",
        "FLUSHDB",
        "FLUSHALL ASYNC",
        "PEXPIRE k -1",
        "RENAME k elsewhere",
        "MOVE k 1",
        "SWAPDB 0 1",
    ] {
        hold(&mut c, "k");
        let [mut a, mut b] = queue(server, "k", ["a", "b"]);
        let new = "LOCK.ACQUIRE k new 1000";
        let replies = c.pipeline(&[
            words(line),
            words(new),
            args!["MULTI"],
            words(new),
            args!["EXEC"],
            words("LOCK.INFO k"),
        ]);
        assert!(!replies[0].is_error(), "{line}: {:?}", replies[0]);
        assert_eq!(replies[1], nil(), "{line}");
        assert_eq!(replies[4], array([nil()]), "{line}");
        let token = a.token();
        is_held_by(&mut c, "k", "a", token);
        let holders = replies[5].field("holders");
        assert_eq!(holders.items()[0].field("owner"), &bulk("a"), "{line}");
        b.still_waits();
        chain.assert_equal();
        is_held_by(&mut chain.replica.conn(), "k", "a", token);

        // And one with BLOCK queues behind.
        let mut conn = server.conn();
        conn.send_raw(
            &[
                resp(&args!["DEL", "k"]),
                resp(&words("LOCK.ACQUIRE k c 60000 BLOCK 60000")),
            ]
            .concat(),
        );
        assert_eq!(conn.recv(), int(1));
        let mut c_waits = Waiter { id: 0, conn };
        assert_eq!(b.token(), token + 1);
        c_waits.still_waits();
        cmd!(c, "FLUSHALL");
        assert_eq!(c_waits.token(), token + 2);
        cmd!(c, "FLUSHALL");
        nobody_waits(server);
    }
}

#[test]
fn in_the_transaction_that_frees_the_lock_a_newcomer_is_busy() {
    let chain = chain();
    let mut c = chain.primary.conn();
    load_function(&mut c);
    for line in ["LOCK.RELEASE k h", "DEL k", "FLUSHDB", "SET k v"] {
        hold(&mut c, "k");
        let [mut a, mut b] = queue(&chain.primary, "k", ["a", "b"]);
        let replies = c.exec_multi(&[
            words(line),
            words("DEL k")[..].to_vec(),
            words("LOCK.ACQUIRE k new 1000"),
            words("LOCK.ACQUIRE k new 1000 BLOCK 1000"),
        ]);
        assert_eq!(replies[2..], [nil(), nil()], "{line}");
        if line.starts_with("LOCK") {
            // The grant to a was made, and then deleted.
            let token = a.token();
            assert_eq!(b.token(), token + 1);
            is_held_by(&mut c, "k", "b", token + 1);
        } else {
            let token = a.token();
            is_held_by(&mut c, "k", "a", token);
            b.still_waits();
        }
        chain.assert_equal();
        cmd!(c, "DEL", "k");
        if !line.starts_with("LOCK") {
            b.token();
        }
        cmd!(c, "DEL", "k");
        nobody_waits(&chain.primary);
    }
}

#[test]
fn while_anyone_waits_an_acquire_in_a_transaction_or_script_is_nil_at_once() {
    let server = single();
    let mut c = server.conn();
    load_function(&mut c);
    hold(&mut c, "k");
    let mut a = Waiter::queue(&server, "k", "a");
    let started = Instant::now();
    for options in [args![], args!["BLOCK", 60_000]] {
        let line = [args!["LOCK.ACQUIRE", "k", "new", 1000], options.clone()].concat();
        assert_eq!(c.exec_multi(&[line]), [nil()]);
        let line = [args!["LOCK.ACQUIRE", "new", 1000], options].concat();
        assert_eq!(c.eval(RUN, &["k"], &line), nil());
        let fcall = [args!["FCALL", "run", 1, "k"], line].concat();
        assert_eq!(c.cmd(&fcall), nil());
    }
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(waiters(&mut c, "k"), 1);
    cmd!(c, "LOCK.RELEASE", "k", "h");
    a.token();
}

#[test]
fn block_in_a_transaction_or_script_still_takes_a_free_lock() {
    let server = single();
    let mut c = server.conn();
    let now = server.clock().now_us();
    let line = words("LOCK.ACQUIRE k a 1000 BLOCK 5000");
    assert_eq!(c.exec_multi(&[line]), [int(now)]);
    let reply = c.eval(RUN, &["l"], &args!["LOCK.ACQUIRE", "a", 1000, "BLOCK", 500]);
    assert_eq!(reply, int(now + 1));
    // Its syntax is checked there as well.
    let line = words("LOCK.ACQUIRE k a 1000 BLOCK 0");
    let error = err("ERR BLOCK must be an integer between 1 and 600000");
    assert_eq!(c.exec_multi(&[line]), [error]);
}

#[test]
fn a_release_in_a_transaction_grants_in_that_unit() {
    let chain = chain();
    let mut c = chain.primary.conn();
    hold(&mut c, "k");
    let mut a = Waiter::queue(&chain.primary, "k", "a");
    let now = chain.clock().now_us();
    let mut tap = Tap::on(&chain);
    let replies = c.exec_multi(&[
        args!["SET", "x", "1"],
        args!["LOCK.RELEASE", "k", "h"],
        args!["LOCK.INFO", "k"],
        args!["LOCK.ACQUIRE", "k", "h", 1000],
        args!["SET", "y", "1"],
    ]);
    let token = a.token();
    let holders = replies[2].field("holders");
    assert_eq!(holders.items()[0].field("owner"), &bulk("a"));
    assert_eq!(replies[3], nil());
    let mut held = Held::at(now, 60_000, "a");
    held.token = token as u64;
    let expected = [
        args!["MULTI"],
        args!["SET", "x", "1"],
        args!["sluice.lk", "k", held.effect(now)],
        args!["SET", "y", "1"],
        args!["EXEC"],
    ];
    assert_eq!(tap.take(), expected);
    chain.assert_equal();
}

#[test]
fn a_release_in_a_script_or_function_grants_in_that_unit() {
    let chain = chain();
    let mut c = chain.primary.conn();
    load_function(&mut c);
    type Run = fn(&mut Conn) -> Reply;
    let ways: [Run; 2] = [
        |c| c.eval(RUN, &["k"], &args!["LOCK.RELEASE", "h"]),
        |c| cmd!(c, "FCALL", "run", 1, "k", "LOCK.RELEASE", "h"),
    ];
    for run in ways {
        hold(&mut c, "k");
        let mut a = Waiter::queue(&chain.primary, "k", "a");
        let now = chain.clock().now_us();
        let mut tap = Tap::on(&chain);
        assert_eq!(run(&mut c), int(1));
        let token = a.token();
        let mut held = Held::at(now, 60_000, "a");
        held.token = token as u64;
        assert_eq!(tap.take(), [args!["sluice.lk", "k", held.effect(now)]]);
        chain.assert_equal();
        cmd!(c, "DEL", "k");
    }
}

// Every way a lock becomes free wakes the queue --------------------------------------------------------

/// A holds `k`, two wait; `free` frees it. The first is granted, here and on the replicas, and the
/// second waits on until that one is done.
#[track_caller]
fn wakes(chain: &Chain, what: &str, free: impl FnOnce(&mut Conn)) {
    let server = &chain.primary;
    let mut c = server.conn();
    let old = hold(&mut c, "k");
    let [mut a, mut b] = queue(server, "k", ["a", "b"]);
    free(&mut c);
    let token = a.token();
    assert!(token > old, "{what}");
    is_held_by(&mut c, "k", "a", token);
    assert_eq!(waiters(&mut c, "k"), 1, "{what}");
    chain.assert_equal();
    for follower in [&chain.replica, &chain.sub] {
        is_held_by(&mut follower.conn(), "k", "a", token);
    }
    // The old holder finds out, unless its lock lives on under another name.
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", "h", 1000), int(0), "{what}");
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "h"), int(0), "{what}");
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "a"), int(1), "{what}");
    let next = b.token();
    assert!(next > token, "{what}");
    is_held_by(&mut c, "k", "b", next);
    cmd!(c, "FLUSHALL");
    nobody_waits(server);
    chain.assert_equal();
}

#[test]
fn every_command_that_removes_the_key_wakes_the_queue() {
    let chain = chain();
    for line in [
        "LOCK.RELEASE k h",
        "LOCK.FORCERELEASE k",
        "DEL k",
        "UNLINK k",
        "DEL x k y",
        "FLUSHDB",
        "FLUSHDB SYNC",
        "FLUSHDB ASYNC",
        "FLUSHALL",
        "FLUSHALL SYNC",
        "FLUSHALL ASYNC",
        "PEXPIRE k 0",
        "PEXPIREAT k 1",
        "EXPIRE k -1",
        "RENAME k elsewhere",
        "RENAMENX k elsewhere",
        "MOVE k 1",
        "SWAPDB 0 1",
        "SUNIONSTORE k nothing",
        "ZUNIONSTORE k 1 nothing",
        "SORT nothing STORE k",
        "BITOP NOT k nothing",
        "GEOSEARCHSTORE k nothing FROMLONLAT 0 0 BYRADIUS 1 m",
    ] {
        wakes(&chain, line, |c| {
            let reply = c.cmd(&words(line));
            assert!(!reply.is_error(), "{line}: {reply:?}");
        });
        // The same from a transaction and from a script.
        wakes(&chain, &format!("{line} in MULTI"), |c| {
            c.exec_multi(&[args!["SET", "x", 1], words(line), args!["SET", "y", 1]]);
        });
        if !line.starts_with("FLUSHALL") && !line.starts_with("SWAPDB") {
            wakes(&chain, &format!("{line} in EVAL"), |c| {
                let script = "return redis.call(unpack(ARGV))";
                let reply = c.eval(script, &["k"], &words(line));
                assert!(!reply.is_error(), "{line}: {reply:?}");
            });
        }
    }
}

#[test]
fn the_end_of_the_lease_wakes_the_queue() {
    let chain = chain();
    wakes(&chain, "lease end", |_| chain.clock().advance_ms(60_001));
    // With nothing that would clean the key up by itself, neither before nor after.
    leave_expired(&mut chain.primary.conn());
    wakes(&chain, "lease end, no active expiry", |_| {
        chain.clock().advance_ms(60_001);
    });
    wakes(&chain, "of a key that stays", |c| {
        assert_eq!(cmd!(c, "PERSIST", "k"), int(1));
        chain.clock().advance_ms(60_001);
    });
    wakes(&chain, "of a key with a longer TTL", |c| {
        assert_eq!(cmd!(c, "PEXPIRE", "k", 1_000_000), int(1));
        chain.clock().advance_ms(60_001);
    });
}

#[test]
fn the_last_millisecond_of_a_lease_is_the_holders() {
    let server = single();
    let mut c = server.conn();
    leave_expired(&mut c);
    cmd!(c, "LOCK.ACQUIRE", "k", "h", 1000);
    let mut a = Waiter::queue(&server, "k", "a");
    server.clock().advance_ms(1000);
    a.still_waits();
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "new", 1000), nil());
    server.clock().advance_ms(1);
    a.token();
}

#[test]
fn the_end_of_a_lease_is_the_del_and_then_the_effect() {
    let chain = chain();
    let mut c = chain.primary.conn();
    leave_expired(&mut c);
    cmd!(c, "LOCK.ACQUIRE", "k", "h", 1000);
    let mut a = Waiter::queue(&chain.primary, "k", "a");
    let mut tap = Tap::on(&chain);
    chain.clock().advance_ms(1001);
    let now = chain.clock().now_us();
    assert_eq!(a.answer(), int(now));
    let removed = match flavour().kind {
        Kind::Redis => args!["DEL", "k"],
        Kind::Valkey => args!["UNLINK", "k"],
    };
    let effect = args!["sluice.lk", "k", Held::at(now, 60_000, "a").effect(now)];
    assert_eq!(tap.take(), [args!["MULTI"], removed, effect, args!["EXEC"]]);
}

#[test]
fn on_a_running_clock_the_end_of_the_lease_wakes_the_queue() {
    let server = single();
    server.clock().run();
    let mut c = server.conn();
    let started = Instant::now();
    cmd!(c, "LOCK.ACQUIRE", "k", "h", 150);
    let [mut a, mut b] = ["a", "b"]
        .map(|owner| Waiter::send(&server, &format!("LOCK.ACQUIRE k {owner} 150 BLOCK 60000")));
    let first = a.token();
    assert!(started.elapsed() >= Duration::from_millis(150));
    let second = b.token();
    assert!(started.elapsed() >= Duration::from_millis(300));
    assert!(second >= first + 150_000);
    assert!(started.elapsed() < Duration::from_secs(3));
}

#[test]
fn a_lock_that_is_kept_wakes_the_queue_only_after_that() {
    let chain = chain();
    let server = &chain.primary;
    let mut c = server.conn();
    leave_expired(&mut c);
    let old = hold(&mut c, "k");
    let [mut a, mut b] = queue(server, "k", ["a", "b"]);
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "h", "KEEP", 500), int(1));
    let info = cmd!(c, "LOCK.INFO", "k");
    assert_eq!(info.field("mode"), &bulk("kept"));
    assert_eq!(info.field("waiters"), &int(2));
    a.still_waits();
    chain.clock().advance_ms(500);
    a.still_waits();
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "new", 1000), nil());
    chain.clock().advance_ms(1);
    let token = a.token();
    assert!(token > old);
    chain.assert_equal();
    is_held_by(&mut chain.replica.conn(), "k", "a", token);
    // One that waits for a kept lock, and FORCERELEASE that ends the keep.
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "a", "KEEP", 50_000), int(1));
    let mut late = Waiter::queue(server, "k", "late");
    assert_eq!(cmd!(c, "LOCK.FORCERELEASE", "k"), int(1));
    assert_eq!(b.token(), token + 1);
    cmd!(c, "LOCK.RELEASE", "k", "b");
    assert_eq!(late.token(), token + 2);
    chain.assert_equal();
}

#[test]
fn an_eviction_wakes_the_queue() {
    let chain = chain();
    for policy in [
        "allkeys-random",
        "allkeys-lru",
        "volatile-ttl",
        "volatile-random",
    ] {
        wakes(&chain, policy, |c| {
            // In one write, so that what is granted then is not evicted as well.
            let replies = c.pipeline(&[
                args!["CONFIG", "SET", "maxmemory-policy", policy],
                args!["CONFIG", "SET", "maxmemory", 1],
                args!["SET", "x", 1],
                args!["CONFIG", "SET", "maxmemory", 0],
            ]);
            assert!(replies[2].as_text().starts_with("OOM"), "{replies:?}");
        });
    }
}

#[test]
fn another_type_over_the_lock_is_wrongtype_for_all_who_wait() {
    let chain = chain();
    let server = &chain.primary;
    let mut c = server.conn();
    for line in [
        "SET k v",
        "SETEX k 100 v",
        "MSET x 1 k v",
        "SUNIONSTORE k set",
        "ZRANGESTORE k zset 0 -1",
        "SORT set ALPHA STORE k",
        "BITOP NOT k string",
        "COPY string k REPLACE",
        "COPY guard k REPLACE",
        "RENAME string k",
        "RENAME guard k",
    ] {
        make_foreign_keys(&mut c);
        cmd!(c, "LOCK.GUARD", "guard", 5);
        hold(&mut c, "k");
        let [mut a, mut b] = queue(server, "k", ["a", "b"]);
        let mut other_key = {
            hold(&mut c, "l");
            Waiter::queue(server, "l", "a")
        };
        let reply = c.cmd(&words(line));
        assert!(!reply.is_error(), "{line}: {reply:?}");
        assert_eq!(a.answer(), err(WRONG_TYPE), "{line}");
        assert_eq!(b.answer(), err(WRONG_TYPE), "{line}");
        assert_eq!(counter(server, "waiters"), 1, "{line}");
        chain.assert_equal();
        cmd!(c, "LOCK.RELEASE", "l", "h");
        other_key.token();
        cmd!(c, "FLUSHALL");
        nobody_waits(server);
    }
}

#[test]
fn restore_of_another_type_is_wrongtype_too() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "SET", "s", "v");
    let payload = cmd!(c, "DUMP", "s").as_bytes().to_vec();
    hold(&mut c, "k");
    let mut a = Waiter::queue(&server, "k", "a");
    assert_eq!(cmd!(c, "RESTORE", "k", 0, payload, "REPLACE"), ok());
    assert_eq!(a.answer(), err(WRONG_TYPE));
    nobody_waits(&server);
}

#[test]
fn behind_another_lock_put_in_its_place_the_queue_goes_on_waiting() {
    let chain = chain();
    let server = &chain.primary;
    let (mut c, clock) = (server.conn(), chain.clock());
    leave_expired(&mut c);
    type Put = fn(&mut Conn);
    let ways: [(&str, Put); 6] = [
        ("RESTORE REPLACE", |c| {
            let payload = cmd!(c, "DUMP", "other").as_bytes().to_vec();
            assert_eq!(cmd!(c, "RESTORE", "k", 0, payload, "REPLACE"), ok());
        }),
        ("DEL, RESTORE", |c| {
            let payload = cmd!(c, "DUMP", "other").as_bytes().to_vec();
            let replies = c.pipeline(&[args!["DEL", "k"], args!["RESTORE", "k", 5000, payload]]);
            assert_eq!(replies, [int(1), ok()]);
        }),
        ("COPY REPLACE", |c| {
            assert_eq!(cmd!(c, "COPY", "other", "k", "REPLACE"), int(1));
        }),
        ("RENAME onto", |c| {
            assert_eq!(cmd!(c, "RENAME", "other", "k"), ok());
        }),
        ("SET, then RENAME onto", |c| {
            let replies = c.pipeline(&[args!["SET", "k", "v"], args!["RENAME", "other", "k"]]);
            assert_eq!(replies, [ok(), ok()]);
        }),
        ("MOVE to", |c| {
            let replies = c.pipeline(&[
                args!["MOVE", "other", 1],
                args!["DEL", "k"],
                args!["SELECT", 1],
                args!["RENAME", "other", "k"],
                args!["MOVE", "k", 0],
                args!["SELECT", 0],
            ]);
            assert_eq!(replies[4], int(1));
        }),
    ];
    for (what, put) in ways {
        for by_release in [true, false] {
            cmd!(c, "LOCK.ACQUIRE", "other", "o", 5000);
            hold(&mut c, "k");
            let [mut a, mut b] = queue(server, "k", ["a", "b"]);
            put(&mut c);
            a.still_waits();
            assert_eq!(waiters(&mut c, "k"), 2, "{what}");
            assert_eq!(holder(&mut c, "k").unwrap().0, "o", "{what}");
            if by_release {
                assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "o"), int(1), "{what}");
            } else {
                clock.advance_ms(5000);
                a.still_waits();
                clock.advance_ms(1);
            }
            let token = a.token();
            is_held_by(&mut c, "k", "a", token);
            b.still_waits();
            chain.assert_equal();
            is_held_by(&mut chain.sub.conn(), "k", "a", token);
            cmd!(c, "FLUSHALL");
            b.token();
            cmd!(c, "FLUSHALL");
            nobody_waits(server);
        }
    }
}

#[test]
fn a_renamed_lock_stays_its_holders_under_the_new_name() {
    let chain = chain();
    let server = &chain.primary;
    let mut c = server.conn();
    let old = hold(&mut c, "k");
    cmd!(c, "LOCK.ACQUIRE", "m", "x", 60_000);
    let mut on_k = Waiter::queue(server, "k", "a");
    let mut on_m = Waiter::queue(server, "m", "b");
    // Away from the waiters of k, onto the lock that others wait for.
    assert_eq!(cmd!(c, "RENAME", "k", "m"), ok());
    let token = on_k.token();
    is_held_by(&mut c, "k", "a", token);
    is_held_by(&mut c, "m", "h", old);
    on_m.still_waits();
    chain.assert_equal();
    assert_eq!(cmd!(c, "LOCK.RELEASE", "m", "h"), int(1));
    assert_eq!(on_m.token(), token + 1);
    chain.assert_equal();
}

#[test]
fn after_swapdb_the_waiters_of_both_look_at_their_own_database() {
    let chain = chain();
    let server = &chain.primary;
    let mut in_0 = server.conn();
    let mut in_1 = server.conn();
    cmd!(in_1, "SELECT", 1);
    let waiter_in_1 = |owner: &str| {
        let mut conn = server.conn();
        cmd!(conn, "SELECT", 1);
        let line = format!("LOCK.ACQUIRE k {owner} 60000 BLOCK 60000");
        Waiter::send_on(server, conn, &line)
    };
    // Both held: everybody waits for whoever holds the key of that name there now.
    cmd!(in_0, "LOCK.ACQUIRE", "k", "h0", 60_000);
    cmd!(in_1, "LOCK.ACQUIRE", "k", "h1", 60_000);
    let mut a0 = Waiter::queue(server, "k", "a0");
    let mut a1 = waiter_in_1("a1");
    assert_eq!(cmd!(in_0, "SWAPDB", 0, 1), ok());
    a0.still_waits();
    a1.still_waits();
    assert_eq!(cmd!(in_0, "LOCK.RELEASE", "k", "h0"), int(0));
    assert_eq!(cmd!(in_0, "LOCK.RELEASE", "k", "h1"), int(1));
    let token = a0.token();
    assert_eq!(cmd!(in_1, "LOCK.RELEASE", "k", "h0"), int(1));
    assert_eq!(a1.token(), token + 1);
    chain.assert_equal();

    // Only one is, and the other gets it.
    cmd!(in_0, "FLUSHALL");
    let old = hold(&mut in_1, "k");
    let mut a1 = waiter_in_1("a1");
    assert_eq!(cmd!(in_0, "SWAPDB", 1, 0), ok());
    let token = a1.token();
    is_held_by(&mut in_1, "k", "a1", token);
    is_held_by(&mut in_0, "k", "h", old);
    chain.assert_equal();
    let mut replica = chain.replica.conn();
    is_held_by(&mut replica, "k", "h", old);
    cmd!(replica, "SELECT", 1);
    is_held_by(&mut replica, "k", "a1", token);

    // The lease that ends first after the swap is the other one's.
    cmd!(in_0, "FLUSHALL");
    cmd!(in_0, "LOCK.ACQUIRE", "k", "h0", 50_000);
    cmd!(in_1, "LOCK.ACQUIRE", "k", "h1", 1000);
    let mut a0 = Waiter::queue(server, "k", "a0");
    cmd!(in_0, "SWAPDB", 0, 1);
    a0.still_waits();
    chain.clock().advance_ms(1001);
    a0.token();
    chain.assert_equal();
}

#[test]
fn a_flush_of_one_database_leaves_the_others_queue_alone() {
    let server = single();
    let (mut c, mut in_1) = (server.conn(), server.conn());
    cmd!(in_1, "SELECT", 1);
    let old = hold(&mut c, "k");
    let mut a = Waiter::queue(&server, "k", "a");
    hold(&mut in_1, "k");
    cmd!(in_1, "FLUSHDB");
    a.still_waits();
    is_held_by(&mut c, "k", "h", old);
    cmd!(c, "LOCK.RELEASE", "k", "h");
    a.token();
}

#[test]
fn a_reload_keeps_the_queue_and_looks_at_what_was_loaded() {
    let server = single();
    let mut c = server.conn();
    let old = hold(&mut c, "k");
    let [mut a, mut b] = queue(&server, "k", ["a", "b"]);
    assert_eq!(cmd!(c, "DEBUG", "RELOAD"), ok());
    a.still_waits();
    is_held_by(&mut c, "k", "h", old);
    assert_eq!(waiters(&mut c, "k"), 2);
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "h"), int(1));
    let token = a.token();
    is_held_by(&mut c, "k", "a", token);

    // From a file in which the lock is not.
    cmd!(c, "DEL", "k");
    let token = b.token();
    cmd!(c, "DEL", "k");
    assert_eq!(cmd!(c, "SAVE"), ok());
    hold(&mut c, "k");
    let mut late = Waiter::queue(&server, "k", "late");
    assert_eq!(cmd!(c, "DEBUG", "RELOAD", "NOSAVE"), ok());
    let next = late.token();
    assert!(next > token);
    is_held_by(&mut c, "k", "late", next);
    nobody_waits(&server);
}

#[test]
fn a_foreign_expire_that_shortens_wakes_the_queue_early() {
    let chain = chain();
    wakes(&chain, "PEXPIRE", |c| {
        assert_eq!(cmd!(c, "PEXPIRE", "k", 100), int(1));
        chain.clock().advance_ms(101);
    });
    // A renewal sets it right again.
    let mut c = chain.primary.conn();
    hold(&mut c, "k");
    let mut a = Waiter::queue(&chain.primary, "k", "a");
    cmd!(c, "PEXPIRE", "k", 100);
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", "h", 10), int(60_000));
    chain.clock().advance_ms(101);
    a.still_waits();
    cmd!(c, "LOCK.RELEASE", "k", "h");
    a.token();
}

#[test]
fn with_active_expiry_off_a_shortened_ttl_ends_when_anybody_looks() {
    let server = single();
    let mut c = server.conn();
    leave_expired(&mut c);
    hold(&mut c, "k");
    let mut a = Waiter::queue(&server, "k", "a");
    cmd!(c, "PEXPIRE", "k", 100);
    server.clock().advance_ms(101);
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "new", 1000), nil());
    let token = a.token();
    is_held_by(&mut c, "k", "a", token);
}

#[test]
fn waiters_on_many_keys_are_all_woken_by_one_flush() {
    let chain = chain();
    let server = &chain.primary;
    let mut c = server.conn();
    let keys: Vec<String> = (0..50).map(|n| format!("k{n}")).collect();
    for key in &keys {
        hold(&mut c, key);
    }
    let queued: Vec<Waiter> = keys
        .iter()
        .map(|key| Waiter::queue(server, key, "a"))
        .collect();
    cmd!(c, "FLUSHALL");
    for (mut waiter, key) in queued.into_iter().zip(&keys) {
        let token = waiter.token();
        is_held_by(&mut c, key, "a", token);
    }
    chain.assert_equal();
    assert_eq!(cmd!(chain.sub.conn(), "DBSIZE"), int(50));
    nobody_waits(server);
}

#[test]
fn leases_of_many_keys_end_each_in_its_time() {
    let server = single();
    let mut c = server.conn();
    // The one that is waited for last ends first.
    let leases = [5000, 3000, 9000, 1000, 7000];
    let mut queued = Vec::new();
    for lease in leases {
        let key = format!("k{lease}");
        cmd!(c, "LOCK.ACQUIRE", &key, "h", lease);
        queued.push((lease, Waiter::queue(&server, &key, "a")));
    }
    queued.sort_by_key(|(lease, _)| *lease);
    let mut passed = 0;
    for n in 0..queued.len() {
        let lease = queued[n].0;
        server.clock().advance_ms(lease + 1 - passed);
        passed = lease + 1;
        assert_eq!(queued[n].1.token(), server.clock().now_us());
        if let Some((_, next)) = queued.get_mut(n + 1) {
            next.still_waits();
        }
    }
}

// The same owner twice -----------------------------------------------------------------------------------

#[test]
fn one_grant_answers_all_waiters_of_an_owner() {
    let chain = chain();
    let server = &chain.primary;
    let mut c = server.conn();
    let old = hold(&mut c, "k");
    let line = |lease: i64, meta: &str| format!("LOCK.ACQUIRE k a {lease} BLOCK 60000 META {meta}");
    let mut first = Waiter::send(server, &line(1000, "first"));
    let mut second = Waiter::send(server, &line(5000, "second"));
    let mut third = Waiter::send(server, &line(3000, "third"));
    assert_eq!(waiters(&mut c, "k"), 3);
    let granted = counter(server, "lock_granted");
    let mut tap = Tap::on(&chain);
    cmd!(c, "LOCK.RELEASE", "k", "h");
    for waiter in [&mut first, &mut second, &mut third] {
        assert_eq!(waiter.answer(), int(old + 1));
    }
    assert_eq!(tap.take().len(), 1, "one effect");
    assert_eq!(counter(server, "lock_granted"), granted + 1);
    let info = cmd!(c, "LOCK.INFO", "k");
    assert_eq!(info.field("waiters"), &int(0));
    let holder = &info.field("holders").items()[0];
    assert_eq!(holder.field("holds"), &int(1));
    assert_eq!(holder.field("meta"), &bulk("first"));
    // The longest lease that any of them asked for.
    assert_eq!(holder.field("ttl_ms"), &int(5000));
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "a"), int(1));
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "a"), int(0));
    chain.assert_equal();
}

#[test]
fn an_owner_that_waits_twice_has_the_place_of_the_first() {
    let server = single();
    let mut c = server.conn();
    hold(&mut c, "k");
    let mut a1 = Waiter::queue(&server, "k", "a");
    let mut b = Waiter::queue(&server, "k", "b");
    let mut a2 = Waiter::queue(&server, "k", "a");
    let mut d = Waiter::queue(&server, "k", "d");
    let mut b2 = Waiter::queue(&server, "k", "b");
    cmd!(c, "LOCK.RELEASE", "k", "h");
    let token = a1.token();
    assert_eq!(a2.token(), token);
    assert_eq!(waiters(&mut c, "k"), 3);
    cmd!(c, "LOCK.RELEASE", "k", "a");
    assert_eq!(b.token(), token + 1);
    assert_eq!(b2.token(), token + 1);
    d.still_waits();
    cmd!(c, "LOCK.RELEASE", "k", "b");
    assert_eq!(d.token(), token + 2);
}

#[test]
fn the_first_of_two_that_leaves_leaves_the_place_to_the_second() {
    type Leave = fn(&mut Conn, &mut Waiter);
    let ways: [(&str, Leave); 3] = [
        ("CLIENT KILL", |c, first| {
            assert_eq!(cmd!(c, "CLIENT", "KILL", "ID", first.id), int(1));
        }),
        ("CLIENT UNBLOCK", |c, first| {
            assert_eq!(cmd!(c, "CLIENT", "UNBLOCK", first.id), int(1));
        }),
        ("nothing", |_, _| ()),
    ];
    for (what, leave) in ways {
        let server = single();
        let mut c = server.conn();
        hold(&mut c, "k");
        let mut first = Waiter::send(&server, "LOCK.ACQUIRE k a 60000 BLOCK 30000");
        let mut b = Waiter::queue(&server, "k", "b");
        let mut second = Waiter::queue(&server, "k", "a");
        leave(&mut c, &mut first);
        if what == "nothing" {
            server.clock().advance_mono_ms(30_001);
            assert_eq!(first.answer(), nil());
        }
        eventually("it left", || counter(&server, "waiters") == 2);
        cmd!(c, "LOCK.RELEASE", "k", "h");
        let token = second.token();
        is_held_by(&mut c, "k", "a", token);
        b.still_waits();
        cmd!(c, "LOCK.RELEASE", "k", "a");
        assert_eq!(b.token(), token + 1, "{what}");
    }
}

#[test]
fn an_owner_that_left_for_good_queues_at_the_end() {
    let server = single();
    let mut c = server.conn();
    hold(&mut c, "k");
    let [a, mut b] = queue(&server, "k", ["a", "b"]);
    cmd!(c, "CLIENT", "KILL", "ID", a.id);
    eventually("it left", || counter(&server, "waiters") == 1);
    let mut again = Waiter::queue(&server, "k", "a");
    cmd!(c, "LOCK.RELEASE", "k", "h");
    let token = b.token();
    cmd!(c, "LOCK.RELEASE", "k", "b");
    assert_eq!(again.token(), token + 1);
}

#[test]
fn a_waiting_owner_that_asks_without_block_is_busy_and_keeps_its_place() {
    let server = single();
    let mut c = server.conn();
    hold(&mut c, "k");
    let [mut a, mut b] = queue(&server, "k", ["a", "b"]);
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "a", 1000), nil());
    assert_eq!(waiters(&mut c, "k"), 2);
    cmd!(c, "LOCK.RELEASE", "k", "h");
    let token = a.token();
    cmd!(c, "LOCK.RELEASE", "k", "a");
    assert_eq!(b.token(), token + 1);
}

// Odd places -------------------------------------------------------------------------------------------------

#[test]
fn a_script_that_selects_another_database_grants_there() {
    let server = single();
    let mut c = server.conn();
    let mut in_1 = server.conn();
    cmd!(in_1, "SELECT", 1);
    let old = hold(&mut c, "k");
    hold(&mut in_1, "k");
    let mut in_0_waits = Waiter::queue(&server, "k", "a0");
    let mut conn = server.conn();
    cmd!(conn, "SELECT", 1);
    let mut in_1_waits = Waiter::send_on(&server, conn, "LOCK.ACQUIRE k a1 60000 BLOCK 60000");
    let script = "redis.call('SELECT', 1) return redis.call('LOCK.RELEASE', KEYS[1], 'h')";
    assert_eq!(c.eval(script, &["k"], &[]), int(1));
    let token = in_1_waits.token();
    is_held_by(&mut in_1, "k", "a1", token);
    in_0_waits.still_waits();
    is_held_by(&mut c, "k", "h", old);
    cmd!(c, "LOCK.RELEASE", "k", "h");
    in_0_waits.token();
}

#[test]
fn a_restored_lock_that_is_over_already_wakes_the_queue() {
    let chain = chain();
    let mut c = chain.primary.conn();
    cmd!(c, "LOCK.ACQUIRE", "old", "o", 1000);
    let payload = cmd!(c, "DUMP", "old").as_bytes().to_vec();
    let ended = chain.clock().now_ms() + 1000;
    chain.clock().advance_ms(2000);
    leave_expired(&mut c);
    wakes(&chain, "no TTL", |c| {
        assert_eq!(cmd!(c, "RESTORE", "k", 0, &payload, "REPLACE"), ok());
    });
    wakes(&chain, "a TTL", |c| {
        assert_eq!(cmd!(c, "RESTORE", "k", 9000, &payload, "REPLACE"), ok());
    });
    wakes(&chain, "a TTL in the past", |c| {
        let reply = cmd!(c, "RESTORE", "k", ended, &payload, "REPLACE", "ABSTTL");
        assert_eq!(reply, ok());
    });
}

#[test]
fn a_grant_of_the_deferred_writer_is_seen_by_watch_and_caches() {
    let server = single();
    let mut c = server.conn();
    leave_expired(&mut c);
    cmd!(c, "LOCK.ACQUIRE", "k", "h", 1000);
    cmd!(c, "PERSIST", "k");
    let mut a = Waiter::queue(&server, "k", "a");
    let mut watcher = server.conn();
    cmd!(watcher, "WATCH", "k");
    let mut cache = server.conn3();
    cmd!(cache, "CLIENT", "TRACKING", "ON", "BCAST");
    server.clock().advance_ms(1001);
    a.token();
    assert_eq!(watcher.multi(&[args!["PING"]]), nil());
    cmd!(cache, "PING");
    let push = pushed(&mut cache).expect("an invalidation");
    assert_eq!(push.items()[1], array([bulk("k")]));
}
