//! LOCK.ACQUIRE … BLOCK: every way a waiter leaves other than by a grant, what is counted, and the
//! settings.

use std::time::{Duration, Instant};

use crate::support::*;
use crate::waiting_support::*;

const MAX_WAIT: &str = "sluice.lock-max-wait-ms";
const MAX_WAITERS: &str = "sluice.max-waiters-per-key";
const HOUR_MS: i64 = 3_600_000;

// Time runs out -------------------------------------------------------------------------------------

#[test]
fn a_wait_that_is_over_is_nil() {
    let server = recorder();
    let mut c = server.conn();
    let token = hold(&mut c, "k");
    let before = counter(&server, "lock_wait_timeouts");
    changes_nothing(&server, || {
        let mut waiter = Waiter::send(&server, "LOCK.ACQUIRE k a 1000 BLOCK 300000");
        server.clock().advance_mono_ms(299_000);
        waiter.still_waits();
        server.clock().advance_mono_ms(1001);
        assert_eq!(waiter.answer(), nil());
        // It is a client like any other again.
        assert_eq!(cmd!(waiter.conn, "PING"), status("PONG"));
    });
    assert_eq!(counter(&server, "lock_wait_timeouts"), before + 1);
    nobody_waits(&server);
    is_held_by(&mut c, "k", "h", token);
}

#[test]
fn a_wait_takes_as_long_as_was_asked_for() {
    let server = single();
    let mut c = server.conn();
    hold(&mut c, "k");
    // The wall clock stands still meanwhile.
    for wait_ms in [1, 20, 250] {
        let started = Instant::now();
        let line = format!("LOCK.ACQUIRE k a 1000 BLOCK {wait_ms}");
        assert_eq!(c.cmd(&words(&line)), nil());
        let took = started.elapsed();
        assert!(took >= Duration::from_millis(wait_ms), "{took:?}");
        assert!(took < Duration::from_millis(wait_ms + 1500), "{took:?}");
    }
}

#[test]
fn the_shortest_wait_ends_first_wherever_it_stands() {
    let server = single();
    let mut c = server.conn();
    hold(&mut c, "k");
    let mut queued: Vec<Waiter> = [500_000, 100_000, 400_000, 200_000, 300_000]
        .iter()
        .enumerate()
        .map(|(n, ms)| Waiter::send(&server, &format!("LOCK.ACQUIRE k o{n} 60000 BLOCK {ms}")))
        .collect();
    for n in [1, 3, 4, 2] {
        server.clock().advance_mono_ms(100_001);
        assert_eq!(queued[n].answer(), nil());
    }
    assert_eq!(waiters(&mut c, "k"), 1);
    cmd!(c, "LOCK.RELEASE", "k", "h");
    is_held_by(&mut c, "k", "o0", server.clock().now_us() + 1);
    queued[0].token();
}

#[test]
fn waits_that_ended_are_answered_before_a_grant_of_the_same_instant() {
    let server = single();
    type Free = fn(&Server, &mut Conn);
    let ways: [(&str, Free); 5] = [
        ("RELEASE", |_, c| {
            assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "h"), int(1));
        }),
        ("RELEASE in MULTI", |_, c| {
            assert_eq!(c.exec_multi(&[args!["LOCK.RELEASE", "k", "h"]]), [int(1)]);
        }),
        ("FORCERELEASE", |_, c| {
            assert_eq!(cmd!(c, "LOCK.FORCERELEASE", "k"), int(1));
        }),
        ("DEL", |_, c| {
            assert_eq!(cmd!(c, "DEL", "k"), int(1));
        }),
        ("lease end", |server, _| server.clock().advance_ms(60_001)),
    ];
    for (what, free) in ways {
        let mut c = server.conn();
        hold(&mut c, "k");
        let mut short = Waiter::send(&server, "LOCK.ACQUIRE k short 60000 BLOCK 20000");
        let mut long = Waiter::send(&server, "LOCK.ACQUIRE k long 60000 BLOCK 500000");
        server.clock().advance_mono_ms(20_001);
        free(&server, &mut c);
        assert_eq!(short.answer(), nil(), "{what}");
        let token = long.token();
        is_held_by(&mut c, "k", "long", token);

        // With nobody else the lock is free, and there is no key.
        let mut short = Waiter::send(&server, "LOCK.ACQUIRE k short 60000 BLOCK 20000");
        server.clock().advance_mono_ms(20_001);
        assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "long"), int(1));
        assert_eq!(cmd!(c, "EXISTS", "k"), int(0), "{what}");
        assert_eq!(short.answer(), nil(), "{what}");
        nobody_waits(&server);
    }
}

#[test]
fn a_newcomer_does_not_count_those_whose_wait_is_over() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "CONFIG", "SET", MAX_WAITERS, 1);
    hold(&mut c, "k");
    let mut a = Waiter::send(&server, "LOCK.ACQUIRE k a 60000 BLOCK 20000");
    let mut conn = server.conn();
    let id = conn.client_id();
    server.clock().advance_mono_ms(20_001);
    conn.send(&words("LOCK.ACQUIRE k b 60000 BLOCK 20000"));
    assert_eq!(a.answer(), nil());
    eventually("b waits", || is_blocked(&mut c, id));
    cmd!(c, "LOCK.RELEASE", "k", "h");
    assert!(conn.recv().as_int() > 0);
}

#[test]
fn a_wait_that_ended_is_no_reason_to_refuse_a_newcomer_the_free_lock() {
    let server = single();
    let mut c = server.conn();
    leave_expired(&mut c);
    cmd!(c, "LOCK.ACQUIRE", "k", "h", 1000);
    let mut a = Waiter::send(&server, "LOCK.ACQUIRE k a 60000 BLOCK 20000");
    server.clock().advance_mono_ms(20_001);
    server.clock().advance_ms(1001);
    // Whether cron was faster or not.
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "new", 1000);
    assert_eq!(token, int(server.clock().now_us()));
    assert_eq!(a.answer(), nil());
}

// Errors before anybody waits ------------------------------------------------------------------------

#[test]
fn waits_out_of_range_are_refused() {
    let server = recorder();
    hold(&mut server.conn(), "held");
    let error = "ERR BLOCK must be an integer between 1 and 600000";
    // Held or free: checked before the key is looked at.
    for key in ["held", "free"] {
        let lines: Vec<String> = no_integers_up_to(600_000)
            .iter()
            .map(|text| format!("LOCK.ACQUIRE {key} o 1000 BLOCK {text}"))
            .collect();
        refuses(&server, error, &lines);
    }
    assert_eq!(counter(&server, "waiters"), 0);
}

#[test]
fn unfinished_and_repeated_block_is_a_syntax_error() {
    let server = recorder();
    hold(&mut server.conn(), "held");
    let lines = [
        "BLOCK",
        "BLOCK 5 BLOCK",
        "BLOCK 5 BLOCK 5",
        "BLOCK 5 META",
        "META BLOCK 5",
        "BLOCK 5 6",
        "WAIT 5",
        "BLOCK META m",
        "BLOCKS 5",
    ];
    // "META BLOCK 5": the text is BLOCK, and 5 is no option. "BLOCK META m": META is no integer.
    for line in lines.iter().filter(|line| **line != "BLOCK META m") {
        refuses(
            &server,
            SYNTAX,
            &[format!("LOCK.ACQUIRE held o 1000 {line}")],
        );
    }
    refuses(
        &server,
        "ERR BLOCK must be an integer between 1 and 600000",
        &["LOCK.ACQUIRE held o 1000 BLOCK META m"],
    );
}

#[test]
fn the_other_errors_come_before_the_wait() {
    let server = recorder();
    let mut c = server.conn();
    hold(&mut c, "held");
    let keys = make_foreign_keys(&mut c);
    let lines: Vec<String> = keys
        .iter()
        .map(|key| format!("LOCK.ACQUIRE {key} o 1000 BLOCK 60000"))
        .collect();
    refuses(&server, WRONG_TYPE, &lines);
    refuses(
        &server,
        "ERR lease_ms must be an integer between 1 and 86400000",
        &["LOCK.ACQUIRE held o 0 BLOCK 60000"],
    );
    refuses(
        &server,
        "ERR owner must be between 1 and 512 bytes long",
        &["LOCK.ACQUIRE held  1000 BLOCK 60000"],
    );
    let long = "m".repeat(1025);
    refuses(
        &server,
        "ERR META must be between 0 and 1024 bytes long",
        &[format!("LOCK.ACQUIRE held o 1000 BLOCK 60000 META {long}")],
    );
    assert_eq!(counter(&server, "waiters"), 0);
}

#[test]
fn one_more_than_may_wait_is_queuefull() {
    let server = recorder();
    let mut c = server.conn();
    cmd!(c, "CONFIG", "SET", MAX_WAITERS, 3);
    hold(&mut c, "k");
    let mut queued = queue(&server, "k", ["a", "b", "c"]);
    let before = counter(&server, "lock_queue_full");
    refuses(
        &server,
        QUEUE_FULL,
        &[
            "LOCK.ACQUIRE k d 60000 BLOCK 60000",
            // One that waits already takes no place, but a client.
            "LOCK.ACQUIRE k a 60000 BLOCK 60000",
        ],
    );
    assert_eq!(counter(&server, "lock_queue_full"), before + 2);
    // Without BLOCK, and for the holder, nothing is full.
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "d", 1000), nil());
    let retry = c.cmd(&words("LOCK.ACQUIRE k h 1000 BLOCK 60000"));
    assert_eq!(retry, int(T_US));
    // Another key has a queue of its own.
    hold(&mut c, "l");
    let mut other = Waiter::queue(&server, "l", "d");
    // A place that was left can be taken.
    cmd!(c, "CLIENT", "KILL", "ID", queued[1].id);
    eventually("it left", || waiters(&mut c, "k") == 2);
    let mut d = Waiter::queue(&server, "k", "d");
    refuses(&server, QUEUE_FULL, &["LOCK.ACQUIRE k e 1000 BLOCK 1000"]);
    // And one that was granted.
    cmd!(c, "LOCK.RELEASE", "k", "h");
    queued[0].token();
    let mut e = Waiter::queue(&server, "k", "e");
    cmd!(c, "LOCK.RELEASE", "k", "a");
    queued[2].token();
    cmd!(c, "LOCK.RELEASE", "k", "c");
    d.token();
    cmd!(c, "LOCK.RELEASE", "k", "d");
    e.token();
    cmd!(c, "LOCK.RELEASE", "l", "h");
    other.token();
}

#[test]
fn a_lower_bound_sends_nobody_away_who_waits() {
    let server = single();
    let mut c = server.conn();
    hold(&mut c, "k");
    let mut queued = queue(&server, "k", ["a", "b", "c"]);
    cmd!(c, "CONFIG", "SET", MAX_WAITERS, 1);
    assert_eq!(waiters(&mut c, "k"), 3);
    let refused = c.cmd(&words("LOCK.ACQUIRE k d 1000 BLOCK 1000"));
    assert_eq!(refused, err(QUEUE_FULL));
    let mut holder = "h";
    for (waiter, owner) in queued.iter_mut().zip(["a", "b", "c"]) {
        cmd!(c, "LOCK.RELEASE", "k", holder);
        waiter.token();
        holder = owner;
    }
}

// Settings ----------------------------------------------------------------------------------------------

#[test]
fn the_settings_have_their_defaults_and_ranges() {
    let server = single();
    let mut c = server.conn();
    for (name, default, max) in [
        (MAX_WAIT, 600_000i64, 86_400_000i64),
        (MAX_WAITERS, 10_000, 1_000_000),
    ] {
        let get = |c: &mut Conn| cmd!(c, "CONFIG", "GET", name).field(name).as_int();
        let shown = cmd!(c, "CONFIG", "GET", name);
        assert_eq!(shown, array([bulk(name), bulk(default.to_string())]));
        for value in [1, max, default] {
            assert_eq!(cmd!(c, "CONFIG", "SET", name, value), ok());
            assert_eq!(get(&mut c), value);
        }
        let range = format!("argument must be between 1 and {max} inclusive");
        let no_integer = "argument couldn't be parsed into an integer";
        for (value, why) in [
            ("0", range.as_str()),
            ("-1", &range),
            (&(max + 1).to_string(), &range),
            ("9223372036854775807", &range),
            ("9223372036854775808", no_integer),
            ("abc", no_integer),
            ("", no_integer),
            ("1.5", no_integer),
        ] {
            let error =
                format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}");
            let reply = cmd!(c, "CONFIG", "SET", name, value);
            assert_eq!(reply, err(&error), "{name} {value}");
            assert_eq!(get(&mut c), default);
        }
        let upper = name.to_uppercase();
        assert_eq!(cmd!(c, "CONFIG", "SET", &upper, 5), ok());
        assert_eq!(get(&mut c), 5);
    }
}

#[test]
fn the_configuration_file_sets_them() {
    let server = Options::new()
        .config(MAX_WAIT, 5000)
        .config(MAX_WAITERS, 1)
        .start();
    let mut c = server.conn();
    hold(&mut c, "k");
    let beyond = c.cmd(&words("LOCK.ACQUIRE k a 1000 BLOCK 5001"));
    let error = err("ERR BLOCK must be an integer between 1 and 5000");
    assert_eq!(beyond, error);
    let mut a = Waiter::send(&server, "LOCK.ACQUIRE k a 1000 BLOCK 5000");
    let second = c.cmd(&words("LOCK.ACQUIRE k b 1000 BLOCK 5000"));
    assert_eq!(second, err(QUEUE_FULL));
    cmd!(c, "LOCK.RELEASE", "k", "h");
    a.token();
    for (name, value) in [(MAX_WAIT, "0"), (MAX_WAITERS, "1000001")] {
        assert!(Options::new().config(name, value).try_start().is_err());
    }
}

#[test]
fn a_new_bound_for_waits_holds_from_the_next_command() {
    let server = single();
    let mut c = server.conn();
    hold(&mut c, "k");
    let mut a = Waiter::send(&server, "LOCK.ACQUIRE k a 60000 BLOCK 600000");
    cmd!(c, "CONFIG", "SET", MAX_WAIT, 1000);
    let beyond = c.cmd(&words("LOCK.ACQUIRE k b 1000 BLOCK 1001"));
    let error = err("ERR BLOCK must be an integer between 1 and 1000");
    assert_eq!(beyond, error);
    // It cuts no running wait short.
    server.clock().advance_mono_ms(590_000);
    a.still_waits();
    cmd!(c, "LOCK.RELEASE", "k", "h");
    a.token();
    // A day, the most there is.
    cmd!(c, "CONFIG", "SET", MAX_WAIT, 86_400_000);
    let line = "LOCK.ACQUIRE k b 60000 BLOCK 86400000";
    let mut b = Waiter::send(&server, line);
    server.clock().advance_mono_ms(86_300_000);
    b.still_waits();
    server.clock().advance_mono_ms(100_001);
    assert_eq!(b.answer(), nil());
}

// Disconnects, CLIENT KILL, CLIENT UNBLOCK ---------------------------------------------------------------

#[test]
fn a_waiter_that_disconnects_gives_its_place_up() {
    type Go = fn(&mut Conn, Waiter);
    let ways: [(&str, Go); 3] = [
        ("close", |_, waiter| drop(waiter)),
        ("CLIENT KILL", |c, waiter| {
            assert_eq!(cmd!(c, "CLIENT", "KILL", "ID", waiter.id), int(1));
        }),
        ("close with commands on the way", |_, mut waiter| {
            waiter.conn.send(&args!["SET", "after", "1"]);
        }),
    ];
    for (what, go) in ways {
        let server = single();
        let mut c = server.conn();
        hold(&mut c, "k");
        let a = Waiter::queue(&server, "k", "a");
        let mut b = Waiter::queue(&server, "k", "b");
        let d = Waiter::queue(&server, "k", "d");
        go(&mut c, a);
        eventually(what, || waiters(&mut c, "k") == 2);
        go(&mut c, d);
        eventually(what, || waiters(&mut c, "k") == 1);
        let before = cmd!(c, "LOCK.INFO", "k").field("token").as_int();
        assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "h"), int(1));
        assert_eq!(b.token(), before + 1, "{what}");
        assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "b"), int(1));
        assert_eq!(cmd!(c, "EXISTS", "k"), int(0), "{what}");
        nobody_waits(&server);
    }
}

#[test]
fn a_kill_of_all_clients_empties_the_queue() {
    let server = single();
    let mut c = server.conn();
    hold(&mut c, "k");
    let _queued = queue(&server, "k", ["a", "b", "c"]);
    let killed = cmd!(c, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
    assert!(killed.as_int() >= 3);
    nobody_waits(&server);
    assert_eq!(waiters(&mut c, "k"), 0);
    cmd!(c, "LOCK.RELEASE", "k", "h");
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
}

#[test]
fn client_unblock_sends_a_waiter_away() {
    let server = recorder();
    let mut c = server.conn();
    let token = hold(&mut c, "k");
    for (how, answer) in [
        (args![], nil()),
        (args!["TIMEOUT"], nil()),
        (args!["ERROR"], err(UNBLOCKED)),
    ] {
        changes_nothing(&server, || {
            let mut a = Waiter::queue(&server, "k", "a");
            let unblock = [args!["CLIENT", "UNBLOCK", a.id], how.clone()].concat();
            // Twice in a row.
            let replies = c.pipeline(&[unblock.clone(), unblock.clone()]);
            assert_eq!(replies, [int(1), int(0)], "{how:?}");
            assert_eq!(a.answer(), answer, "{how:?}");
            assert_eq!(c.cmd(&unblock), int(0));
            nobody_waits(&server);
            // Alive, and with nothing more to come.
            assert_eq!(cmd!(a.conn, "PING"), status("PONG"));
            assert_eq!(pushed(&mut a.conn), None);
        });
    }
    is_held_by(&mut c, "k", "h", token);
    cmd!(c, "LOCK.RELEASE", "k", "h");
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
}

#[test]
fn an_unblocked_waiter_of_a_resp3_connection_gets_a_null() {
    let server = single();
    let mut c = server.conn();
    hold(&mut c, "k");
    let line = "LOCK.ACQUIRE k a 1000 BLOCK 60000";
    let mut a = Waiter::send_on(&server, server.conn3(), line);
    assert_eq!(cmd!(c, "CLIENT", "UNBLOCK", a.id), int(1));
    assert_eq!(a.answer(), nil());
    let mut a = Waiter::send_on(&server, a.conn, line);
    assert_eq!(cmd!(c, "CLIENT", "UNBLOCK", a.id, "ERROR"), int(1));
    assert_eq!(a.answer(), err(UNBLOCKED));
}

#[test]
fn unblocked_just_before_the_release_a_waiter_gets_nothing() {
    let server = single();
    let mut c = server.conn();
    for (how, answer) in [
        (args![], nil()),
        (args!["TIMEOUT"], nil()),
        (args!["ERROR"], err(UNBLOCKED)),
    ] {
        for in_multi in [false, true] {
            let old = hold(&mut c, "k");
            let mut a = Waiter::queue(&server, "k", "a");
            let unblock = [args!["CLIENT", "UNBLOCK", a.id], how.clone()].concat();
            let commands = [unblock, args!["LOCK.RELEASE", "k", "h"]];
            let replies = if in_multi {
                c.exec_multi(&commands)
            } else {
                c.pipeline(&commands)
            };
            assert_eq!(replies, [int(1), int(1)]);
            assert_eq!(a.answer(), answer);
            assert_eq!(cmd!(c, "EXISTS", "k"), int(0), "{how:?}");
            nobody_waits(&server);

            // With another behind it, that one is granted.
            assert_eq!(hold(&mut c, "k"), old + 1);
            let mut a = Waiter::send_on(&server, a.conn, "LOCK.ACQUIRE k a 1000 BLOCK 60000");
            let mut b = Waiter::queue(&server, "k", "b");
            let unblock = [args!["CLIENT", "UNBLOCK", a.id], how.clone()].concat();
            c.pipeline(&[unblock, args!["LOCK.RELEASE", "k", "h"]]);
            assert_eq!(a.answer(), answer);
            assert_eq!(b.token(), old + 2);
            is_held_by(&mut c, "k", "b", old + 2);
            cmd!(c, "LOCK.RELEASE", "k", "b");
        }
    }
}

#[test]
fn unblocked_just_after_the_release_there_is_one_holder_or_none() {
    let chain = chain();
    let server = &chain.primary;
    let mut c = server.conn();
    for how in [args![], args!["TIMEOUT"], args!["ERROR"]] {
        for (in_multi, with_next) in [(false, false), (false, true), (true, false), (true, true)] {
            let what = format!("{how:?}, MULTI: {in_multi}, another waits: {with_next}");
            let old = hold(&mut c, "k");
            let mut a = Waiter::queue(server, "k", "a");
            let mut b = with_next.then(|| Waiter::queue(server, "k", "b"));
            let unblock = [args!["CLIENT", "UNBLOCK", a.id], how.clone()].concat();
            let commands = [args!["LOCK.RELEASE", "k", "h"], unblock.clone(), unblock];
            let replies = if in_multi {
                c.exec_multi(&commands)
            } else {
                c.pipeline(&commands)
            };
            assert_eq!(replies[0], int(1), "{what}");
            let is_error = how == args!["ERROR"];
            let answer = a.conn.recv_timeout(Duration::from_secs(1));
            match answer {
                // Too late (Redis 7.2 and later, Valkey): CLIENT UNBLOCK answers 1 there and does
                // nothing.
                Some(Reply::Int(token)) => {
                    assert_eq!(token, old + 1, "{what}");
                    is_held_by(&mut c, "k", "a", token);
                    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "a"), int(1));
                }
                Some(Reply::Error(text)) if is_error => assert_eq!(text, UNBLOCKED),
                Some(Reply::Nil) if !is_error => {}
                // A fault of Redis 7.0: the client gets no reply at all. It is documented.
                None if !is_error && !since_7_2() => {}
                other => panic!("{what}: {replies:?}, {other:?}"),
            }
            // One reply at most, and the connection can be used on.
            assert_eq!(cmd!(a.conn, "PING"), status("PONG"), "{what}");
            assert_eq!(pushed(&mut a.conn), None, "{what}");
            // Whatever the client was told, the lock agrees.
            match &mut b {
                Some(b) => {
                    let token = b.token();
                    assert_eq!(token, old + 2, "{what}");
                    is_held_by(&mut c, "k", "b", token);
                    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "b"), int(1));
                }
                None => eventually("the lock is free", || cmd!(c, "EXISTS", "k") == int(0)),
            }
            nobody_waits(server);
            chain.assert_equal();
        }
    }
}

// Dying in the instant of the grant -------------------------------------------------------------------------

/// Runs the commands as a pipeline, a transaction, or with the first in a script.
fn run_as(c: &mut Conn, way: &str, commands: &[Vec<Vec<u8>>]) -> Vec<Reply> {
    match way {
        "pipeline" => c.pipeline(commands),
        "MULTI" => c.exec_multi(commands),
        _ => unreachable!(),
    }
}

#[test]
fn a_grant_to_a_client_that_is_gone_goes_to_the_next() {
    let chain = chain();
    let server = &chain.primary;
    let mut c = server.conn();
    for way in ["pipeline", "MULTI"] {
        let old = hold(&mut c, "k");
        let [a, mut b, mut d] = queue(server, "k", ["a", "b", "d"]);
        let replies = run_as(
            &mut c,
            way,
            &[
                args!["LOCK.RELEASE", "k", "h"],
                args!["LOCK.INFO", "k"],
                args!["CLIENT", "KILL", "ID", a.id],
            ],
        );
        assert_eq!((&replies[0], &replies[2]), (&int(1), &int(1)));
        let holders = replies[1].field("holders");
        assert_eq!(holders.items()[0].field("owner"), &bulk("a"));
        // The token of the grant that nobody read stays used.
        assert_eq!(b.token(), old + 2, "{way}");
        is_held_by(&mut c, "k", "b", old + 2);
        d.still_waits();
        chain.assert_equal();
        is_held_by(&mut chain.sub.conn(), "k", "b", old + 2);
        cmd!(c, "LOCK.RELEASE", "k", "b");
        d.token();
        cmd!(c, "LOCK.RELEASE", "k", "d");
        nobody_waits(server);
    }
}

#[test]
fn a_grant_to_the_only_waiter_that_is_gone_frees_the_lock() {
    let chain = chain();
    let server = &chain.primary;
    let mut c = server.conn();
    for way in ["pipeline", "MULTI"] {
        let old = hold(&mut c, "k");
        let a = Waiter::queue(server, "k", "a");
        let kill = args!["CLIENT", "KILL", "ID", a.id];
        run_as(&mut c, way, &[args!["LOCK.RELEASE", "k", "h"], kill]);
        eventually("the lock is free", || cmd!(c, "EXISTS", "k") == int(0));
        chain.assert_equal();
        assert_eq!(cmd!(chain.sub.conn(), "EXISTS", "k"), int(0));
        assert_eq!(hold(&mut c, "k"), old + 2, "{way}");
        cmd!(c, "LOCK.RELEASE", "k", "h");
        nobody_waits(server);
    }
}

#[test]
fn all_who_die_in_that_instant_are_passed_over() {
    let server = single();
    let mut c = server.conn();
    hold(&mut c, "k");
    let dying = queue(&server, "k", ["a", "b", "d"]);
    let mut last = Waiter::queue(&server, "k", "e");
    let mut commands = vec![args!["LOCK.RELEASE", "k", "h"]];
    for waiter in &dying {
        commands.push(args!["CLIENT", "KILL", "ID", waiter.id]);
    }
    c.pipeline(&commands);
    let token = last.token();
    is_held_by(&mut c, "k", "e", token);
    nobody_waits(&server);
}

#[test]
fn a_client_that_closes_as_it_is_granted_leaves_no_ghost() {
    // The server sees the close somewhere around the release.
    let server = single();
    let mut c = server.conn();
    for n in 0..100 {
        hold(&mut c, "k");
        let a = Waiter::queue(&server, "k", "a");
        let mut b = Waiter::queue(&server, "k", "b");
        if n % 2 == 0 {
            drop(a);
            cmd!(c, "LOCK.RELEASE", "k", "h");
        } else {
            c.send(&args!["LOCK.RELEASE", "k", "h"]);
            drop(a);
            c.recv();
        }
        // Either b is granted, or a was before the server saw that it is gone: a holder like any
        // other, whose lease stands.
        let came = b.conn.recv_timeout(Duration::from_millis(100));
        if came.is_none() {
            assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "a"), int(1));
            b.token();
        }
        assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "b"), int(1));
    }
    nobody_waits(&server);
}

#[test]
fn one_of_two_waiters_of_an_owner_that_lives_keeps_the_grant() {
    let server = single();
    let mut c = server.conn();
    for dies in [0, 1] {
        let old = hold(&mut c, "k");
        let [first, second] = queue(&server, "k", ["a", "a"]);
        let mut pair = [first, second];
        c.pipeline(&[
            args!["LOCK.RELEASE", "k", "h"],
            args!["CLIENT", "KILL", "ID", pair[dies].id],
        ]);
        assert_eq!(pair[1 - dies].token(), old + 1);
        std::thread::sleep(TWO_CRONS);
        is_held_by(&mut c, "k", "a", old + 1);
        cmd!(c, "LOCK.RELEASE", "k", "a");
    }
    // Both gone: nobody's.
    let old = hold(&mut c, "k");
    let [first, second] = queue(&server, "k", ["a", "a"]);
    let mut b = Waiter::queue(&server, "k", "b");
    c.pipeline(&[
        args!["LOCK.RELEASE", "k", "h"],
        args!["CLIENT", "KILL", "ID", first.id],
        args!["CLIENT", "KILL", "ID", second.id],
    ]);
    assert_eq!(b.token(), old + 2);
}

#[test]
fn a_grant_is_not_undone_once_its_owner_has_learned_of_it_elsewhere() {
    // The client timed out, closed its connection and asked again on another, all in the turn of
    // the grant: it was told the token, so it holds the lock.
    let server = single();
    let mut c = server.conn();
    let old = hold(&mut c, "k");
    let a = Waiter::queue(&server, "k", "a");
    let mut b = Waiter::queue(&server, "k", "b");
    let replies = c.pipeline(&[
        args!["LOCK.RELEASE", "k", "h"],
        args!["CLIENT", "KILL", "ID", a.id],
        args!["LOCK.ACQUIRE", "k", "a", 60_000],
    ]);
    assert_eq!(replies, [int(1), int(1), int(old + 1)]);
    b.still_waits();
    is_held_by(&mut c, "k", "a", old + 1);
}

#[test]
fn a_grant_is_not_undone_once_its_owner_has_renewed_it() {
    let server = single();
    let mut c = server.conn();
    let old = hold(&mut c, "k");
    let [a, mut b] = queue(&server, "k", ["a", "b"]);
    let replies = c.pipeline(&[
        args!["LOCK.RELEASE", "k", "h"],
        args!["CLIENT", "KILL", "ID", a.id],
        args!["LOCK.RENEW", "k", "a", 90_000],
    ]);
    assert_eq!(replies, [int(1), int(1), int(90_000)]);
    b.still_waits();
    is_held_by(&mut c, "k", "a", old + 1);
}

#[test]
fn undoing_a_grant_touches_nobody_elses_lock() {
    let server = single();
    let mut c = server.conn();
    // Lost and taken by another in the same instant.
    for line in ["DEL k", "FLUSHALL", "LOCK.FORCERELEASE k", "RENAME k l"] {
        let old = hold(&mut c, "k");
        let a = Waiter::queue(&server, "k", "a");
        let replies = c.pipeline(&[
            args!["LOCK.RELEASE", "k", "h"],
            args!["CLIENT", "KILL", "ID", a.id],
            words(line),
            args!["LOCK.ACQUIRE", "k", "new", 60_000],
        ]);
        assert_eq!(replies[3], int(old + 2), "{line}");
        std::thread::sleep(TWO_CRONS);
        is_held_by(&mut c, "k", "new", old + 2);
        cmd!(c, "FLUSHALL");
    }
    // Of the same owner, under a new token.
    let old = hold(&mut c, "k");
    let a = Waiter::queue(&server, "k", "a");
    let replies = c.pipeline(&[
        args!["LOCK.RELEASE", "k", "h"],
        args!["CLIENT", "KILL", "ID", a.id],
        args!["DEL", "k"],
        args!["LOCK.ACQUIRE", "k", "a", 60_000],
    ]);
    assert_eq!(replies[3], int(old + 2));
    std::thread::sleep(TWO_CRONS);
    is_held_by(&mut c, "k", "a", old + 2);
    // Overwritten by another type.
    cmd!(c, "DEL", "k");
    hold(&mut c, "k");
    let a = Waiter::queue(&server, "k", "a");
    c.pipeline(&[
        args!["LOCK.RELEASE", "k", "h"],
        args!["CLIENT", "KILL", "ID", a.id],
        args!["SET", "k", "v"],
    ]);
    std::thread::sleep(TWO_CRONS);
    assert_eq!(cmd!(c, "GET", "k"), bulk("v"));
}

#[test]
fn a_grant_that_nobody_read_is_undone_after_a_pause() {
    let chain = chain();
    let server = &chain.primary;
    let mut c = server.conn();
    let old = hold(&mut c, "k");
    let [a, mut b] = queue(server, "k", ["a", "b"]);
    c.pipeline(&[
        args!["LOCK.RELEASE", "k", "h"],
        args!["CLIENT", "KILL", "ID", a.id],
        args!["CLIENT", "PAUSE", 1_000_000, "WRITE"],
    ]);
    b.still_waits();
    assert_eq!(cmd!(c, "CLIENT", "UNPAUSE"), ok());
    assert_eq!(b.token(), old + 2);
    chain.assert_equal();
}

#[test]
fn after_the_reply_a_dead_holder_keeps_its_lease() {
    let server = single();
    let mut c = server.conn();
    hold(&mut c, "k");
    let [mut a, mut b] = queue(&server, "k", ["a", "b"]);
    cmd!(c, "LOCK.RELEASE", "k", "h");
    let token = a.token();
    drop(a);
    b.still_waits();
    is_held_by(&mut c, "k", "a", token);
    server.clock().advance_ms(60_001);
    b.token();
}

// The server's state ---------------------------------------------------------------------------------------

#[test]
fn a_change_of_role_sends_all_away() {
    let (server, primary) = (Options::new().start(), Options::new().start());
    let mut c = server.conn();
    let old = hold(&mut c, "k");
    let [mut a, mut b] = queue(&server, "k", ["a", "b"]);
    let reply = cmd!(c, "REPLICAOF", "127.0.0.1", primary.port());
    assert_eq!(reply, ok());
    for waiter in [&mut a, &mut b] {
        let answer = waiter.answer();
        assert!(answer.as_text().starts_with("UNBLOCKED "), "{answer:?}");
    }
    nobody_waits(&server);
    // A replica lets nobody wait.
    let readonly = c.cmd(&words("LOCK.ACQUIRE k a 1000 BLOCK 1000"));
    assert!(readonly.as_text().starts_with("READONLY"), "{readonly:?}");
    server.wait_synced_with(&primary);
    assert_eq!(cmd!(c, "REPLICAOF", "NO", "ONE"), ok());
    let token = hold(&mut c, "k");
    assert!(token > old);
    let mut a = Waiter::queue(&server, "k", "a");
    cmd!(c, "LOCK.RELEASE", "k", "h");
    assert!(a.token() > token);
}

#[test]
fn a_grant_in_the_turn_of_a_demotion_is_never_written_on_the_replica() {
    let primary = Options::new().start();
    let server = Options::new().start();
    let mut c = server.conn();
    hold(&mut c, "k");
    let _queued = queue(&server, "k", ["a", "b"]);
    c.pipeline(&[
        args!["DEL", "k"],
        args!["REPLICAOF", "127.0.0.1", primary.port()],
    ]);
    nobody_waits(&server);
    server.wait_synced_with(&primary);
    assert_eq!(cmd!(c, "DBSIZE"), int(0));
    assert!(server.is_alive());
}

#[test]
fn during_a_pause_nothing_is_granted_but_waits_end() {
    let chain = chain();
    let server = &chain.primary;
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", "h", 1000);
    let mut short = Waiter::send(server, "LOCK.ACQUIRE k short 60000 BLOCK 20000");
    let mut a = Waiter::send(server, "LOCK.ACQUIRE k a 60000 BLOCK 500000");
    assert_eq!(cmd!(c, "CLIENT", "PAUSE", 1_000_000, "WRITE"), ok());
    chain.clock().advance_ms(1001);
    a.still_waits();
    assert_eq!(cmd!(c, "LOCK.INFO", "k"), nil());
    server.clock().advance_mono_ms(20_001);
    assert_eq!(short.answer(), nil());
    a.still_waits();
    assert_eq!(counter(server, "waiters"), 1);
    // UNBLOCK and death work as ever.
    let mut late = a;
    assert_eq!(cmd!(c, "CLIENT", "UNPAUSE"), ok());
    let token = late.token();
    is_held_by(&mut c, "k", "a", token);
    chain.assert_equal();
    is_held_by(&mut chain.replica.conn(), "k", "a", token);
}

#[test]
fn during_a_pause_waiters_can_leave() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", "h", 1000);
    let [mut a, b, mut d] = queue(&server, "k", ["a", "b", "d"]);
    cmd!(c, "CLIENT", "PAUSE", 1_000_000, "WRITE");
    server.clock().advance_ms(1001);
    assert_eq!(cmd!(c, "CLIENT", "UNBLOCK", a.id, "ERROR"), int(1));
    assert_eq!(a.answer(), err(UNBLOCKED));
    drop(b);
    eventually("they left", || counter(&server, "waiters") == 1);
    d.still_waits();
    cmd!(c, "CLIENT", "UNPAUSE");
    d.token();
    nobody_waits(&server);
}

#[test]
fn a_pause_that_ends_by_itself_ends_for_the_queue_as_well() {
    let server = single();
    let mut c = server.conn();
    server.clock().run();
    cmd!(c, "LOCK.ACQUIRE", "k", "h", 100);
    let mut a = Waiter::send(&server, "LOCK.ACQUIRE k a 60000 BLOCK 60000");
    let started = Instant::now();
    cmd!(c, "CLIENT", "PAUSE", 700, "WRITE");
    a.token();
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(690), "{took:?}");
    assert!(took < Duration::from_secs(4), "{took:?}");
}

#[test]
fn a_lock_deleted_before_a_pause_is_granted_after_it() {
    let chain = chain();
    let mut c = chain.primary.conn();
    hold(&mut c, "k");
    let mut a = Waiter::queue(&chain.primary, "k", "a");
    c.pipeline(&[
        args!["DEL", "k"],
        args!["CLIENT", "PAUSE", 1_000_000, "WRITE"],
    ]);
    a.still_waits();
    cmd!(c, "CLIENT", "UNPAUSE");
    let token = a.token();
    chain.assert_equal();
    is_held_by(&mut chain.sub.conn(), "k", "a", token);
}

// Clocks that step ---------------------------------------------------------------------------------------------

#[test]
fn a_step_back_stretches_the_lease_and_not_the_wait() {
    let server = single();
    let (mut c, clock) = (server.conn(), server.clock());
    let old = cmd!(c, "LOCK.ACQUIRE", "k", "h", 1000).as_int();
    let mut short = Waiter::send(&server, "LOCK.ACQUIRE k short 60000 BLOCK 20000");
    let mut a = Waiter::send(&server, "LOCK.ACQUIRE k a 60000 BLOCK 500000");
    clock.advance_ms(-HOUR_MS);
    clock.advance_ms(1001);
    a.still_waits();
    is_held_by(&mut c, "k", "h", old);
    clock.advance_mono_ms(20_001);
    assert_eq!(short.answer(), nil());
    clock.advance_ms(HOUR_MS - 1001);
    a.still_waits();
    clock.advance_ms(1001);
    assert!(a.token() > old);
}

#[test]
fn after_a_step_back_a_release_grants_a_higher_token_and_a_full_lease() {
    let chain = chain();
    let (mut c, clock) = (chain.primary.conn(), chain.clock());
    let old = hold(&mut c, "k");
    let [mut a, mut b] = queue(&chain.primary, "k", ["a", "b"]);
    clock.advance_ms(-HOUR_MS);
    cmd!(c, "LOCK.RELEASE", "k", "h");
    assert_eq!(a.token(), old + 1);
    assert_eq!(cmd!(c, "PTTL", "k"), int(60_000));
    // Its lease ends a minute later by the clock as it is now.
    clock.advance_ms(60_001);
    assert_eq!(b.token(), old + 2);
    chain.assert_equal();
}

#[test]
fn a_step_forward_ends_the_lease_and_not_the_wait() {
    let server = single();
    let (mut c, clock) = (server.conn(), server.clock());
    hold(&mut c, "k");
    let [mut a, mut b] = queue(&server, "k", ["a", "b"]);
    clock.advance_ms(HOUR_MS);
    assert_eq!(a.token(), clock.now_us());
    b.still_waits();
    clock.advance_ms(-HOUR_MS);
    b.still_waits();
    is_held_by(&mut c, "k", "a", clock.now_us() + HOUR_MS * 1000);
    cmd!(c, "LOCK.RELEASE", "k", "a");
    b.token();
}

#[test]
fn steps_of_a_running_clock_neither_lose_nor_prolong_a_wait() {
    let server = single();
    let (mut c, clock) = (server.conn(), server.clock());
    clock.run();
    for step in [HOUR_MS, -HOUR_MS, -HOUR_MS, HOUR_MS] {
        // A lease that outlives the steps.
        cmd!(c, "LOCK.ACQUIRE", "k", "h", 10 * HOUR_MS);
        let started = Instant::now();
        let mut a = Waiter::send(&server, "LOCK.ACQUIRE k a 1000 BLOCK 400");
        clock.advance_ms(step);
        assert_eq!(a.answer(), nil());
        let took = started.elapsed();
        assert!(took >= Duration::from_millis(400), "{took:?}");
        assert!(took < Duration::from_secs(2), "{took:?}");
        // DEL, whose timer may wait for the clock.
        let mut b = Waiter::queue(&server, "k", "b");
        let started = Instant::now();
        clock.advance_ms(step);
        cmd!(c, "DEL", "k");
        b.token();
        assert!(started.elapsed() < Duration::from_secs(2));
        cmd!(c, "DEL", "k");
        clock.advance_ms(-2 * step);
    }
}

// What is counted ------------------------------------------------------------------------------------------------

/// The counters that waiting has to do with.
fn counters(server: &Server) -> [i64; 6] {
    [
        "waiters",
        "waiters_peak",
        "lock_wait_timeouts",
        "lock_queue_full",
        "lock_granted",
        "lock_released",
    ]
    .map(|name| counter(server, name))
}

#[test]
fn everything_is_counted_exactly() {
    // A server of its own: the counters are those since its start.
    let server = Options::new().start();
    let clock = server.clock();
    clock.freeze_at(T_US);
    let mut c = server.conn();
    assert_eq!(counters(&server), [0; 6]);
    hold(&mut c, "k");
    let mut a = Waiter::queue(&server, "k", "a");
    let mut b = Waiter::queue(&server, "k", "b");
    let mut short = Waiter::send(&server, "LOCK.ACQUIRE k s 1000 BLOCK 20000");
    hold(&mut c, "l");
    let mut other = Waiter::queue(&server, "l", "o");
    assert_eq!(counters(&server), [4, 4, 0, 0, 2, 0]);
    assert_eq!(server.info("clients")["blocked_clients"], "4");
    clock.advance_mono_ms(20_001);
    assert_eq!(short.answer(), nil());
    assert_eq!(counters(&server), [3, 4, 1, 0, 2, 0]);
    cmd!(c, "LOCK.RELEASE", "k", "h");
    a.token();
    assert_eq!(counters(&server), [2, 4, 1, 0, 3, 1]);
    cmd!(c, "CONFIG", "SET", MAX_WAITERS, 1);
    let full = c.cmd(&words("LOCK.ACQUIRE k x 1000 BLOCK 1000"));
    assert_eq!(full, err(QUEUE_FULL));
    assert_eq!(counters(&server), [2, 4, 1, 1, 3, 1]);
    cmd!(c, "LOCK.FORCERELEASE", "k");
    b.token();
    assert_eq!(counters(&server), [1, 4, 1, 1, 4, 1]);
    clock.advance_ms(60_001);
    other.token();
    assert_eq!(counters(&server), [0, 4, 1, 1, 5, 1]);
    // h's on l, and b's on k by whoever finds it.
    cmd!(c, "EXISTS", "k");
    eventually("both ended leases are counted", || {
        counter(&server, "lock_leases_expired") == 2
    });
    assert_eq!(server.info("clients")["blocked_clients"], "0");
    // The peak stays, and rises only above itself.
    let mut again = Waiter::queue(&server, "l", "a");
    assert_eq!(counters(&server), [1, 4, 1, 1, 5, 1]);
    cmd!(c, "LOCK.RELEASE", "l", "o");
    again.token();
}

#[test]
fn neither_a_kill_nor_an_unblock_by_error_counts_as_a_timeout() {
    let server = single();
    let mut c = server.conn();
    hold(&mut c, "k");
    let before = counter(&server, "lock_wait_timeouts");
    let [a, mut b] = queue(&server, "k", ["a", "b"]);
    cmd!(c, "CLIENT", "KILL", "ID", a.id);
    cmd!(c, "CLIENT", "UNBLOCK", b.id, "ERROR");
    b.answer();
    nobody_waits(&server);
    assert_eq!(counter(&server, "lock_wait_timeouts"), before);
}

#[test]
fn wait_and_hold_times_have_percentiles() {
    let server = Options::new().start();
    let clock = server.clock();
    clock.freeze_at(T_US);
    let mut c = server.conn();
    let names = |what: &str| ["p50", "p95", "p99", "max"].map(|q| format!("{what}_{q}"));
    let values = |what: &str| names(what).map(|name| counter(&server, &name));
    assert_eq!(values("lock_wait_us"), [0; 4]);
    assert_eq!(values("lock_hold_ms"), [0; 4]);
    hold(&mut c, "k");
    let mut a = Waiter::queue(&server, "k", "a");
    clock.advance_mono_ms(40_000);
    clock.advance_ms(7000);
    cmd!(c, "LOCK.RELEASE", "k", "h");
    a.token();
    for wait_us in values("lock_wait_us") {
        // Real time passes as well; two digits are kept.
        assert!((39_600_000..50_000_000).contains(&wait_us), "{wait_us}");
    }
    for hold_ms in values("lock_hold_ms") {
        assert!((6930..=7070).contains(&hold_ms), "{hold_ms}");
    }
    // A hundred waits of nearly nothing: the long one is the last percent.
    for n in 0..100 {
        let mut b = Waiter::queue(&server, "k", &format!("b{n}"));
        cmd!(c, "LOCK.FORCERELEASE", "k");
        b.token();
    }
    let [p50, p95, _, max] = values("lock_wait_us");
    assert!(p50 < 5_000_000 && p95 < 10_000_000, "{p50} {p95}");
    assert!((39_600_000..50_000_000).contains(&max), "{max}");
    // A wait that ends in nothing is not among them, a lease that ended is.
    let mut nobody = Waiter::send(&server, "LOCK.ACQUIRE k x 1000 BLOCK 590000");
    clock.advance_mono_ms(590_001);
    assert_eq!(nobody.answer(), nil());
    assert_eq!(values("lock_wait_us")[3], max);
    clock.advance_ms(60_001);
    cmd!(c, "EXISTS", "k");
    eventually("the lease's hold is counted", || {
        (59_400..=60_700).contains(&values("lock_hold_ms")[3])
    });
}

#[test]
fn a_reader_that_lapses_among_others_has_held_until_its_lease_ended() {
    let server = Options::new().start();
    let clock = server.clock();
    clock.freeze_at(T_US);
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", "stays", 600_000, "SHARED");
    cmd!(c, "LOCK.ACQUIRE", "k", "lapses", 50_000, "SHARED");
    clock.advance_ms(50_001);
    assert_eq!(counter(&server, "lock_hold_ms_max"), 0);
    cmd!(c, "LOCK.ACQUIRE", "k", "next", 1000, "SHARED");
    assert_eq!(counter(&server, "lock_leases_expired"), 1);
    let held_ms = counter(&server, "lock_hold_ms_max");
    assert!((49_500..=50_500).contains(&held_ms), "{held_ms}");
}

#[test]
fn lock_info_counts_clients_not_places() {
    let server = single();
    let (mut c, mut three) = (server.conn(), server.conn3());
    hold(&mut c, "k");
    let _queued = queue(&server, "k", ["a", "b", "a"]);
    assert_eq!(waiters(&mut c, "k"), 3);
    assert_eq!(waiters(&mut three, "k"), 3);
    // Of this key, in this database.
    hold(&mut c, "l");
    assert_eq!(waiters(&mut c, "l"), 0);
    cmd!(c, "SELECT", 1);
    hold(&mut c, "k");
    assert_eq!(waiters(&mut c, "k"), 0);
    // Also in a transaction and in a script.
    cmd!(c, "SELECT", 0);
    let replies = c.exec_multi(&[args!["LOCK.INFO", "k"]]);
    assert_eq!(replies[0].field("waiters"), &int(3));
    assert_eq!(
        c.eval(RUN, &["k"], &args!["LOCK.INFO"]).field("waiters"),
        &int(3)
    );
}

#[test]
fn on_a_replica_lock_info_shows_no_waiters() {
    let chain = chain();
    let mut c = chain.primary.conn();
    hold(&mut c, "k");
    let _a = Waiter::queue(&chain.primary, "k", "a");
    chain.sync();
    assert_eq!(waiters(&mut chain.replica.conn(), "k"), 0);
    assert_eq!(counter(&chain.replica, "waiters"), 0);
}

// The end of everything --------------------------------------------------------------------------------------------

#[test]
fn with_no_token_left_the_waiters_are_told_and_the_lock_is_free() {
    let server = Options::new().start();
    server.clock().freeze_at(LAST_TOKEN as i64);
    let mut c = server.conn();
    assert_eq!(hold(&mut c, "k"), LAST_TOKEN as i64);
    let [mut a, mut b] = queue(&server, "k", ["a", "b"]);
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "h"), int(1));
    let error = err("ERR no fencing token is left below 2^53: check the server's clock");
    assert_eq!(a.answer(), error);
    assert_eq!(b.answer(), error);
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
    nobody_waits(&server);
}

#[test]
fn a_server_with_waiters_stops_and_starts() {
    let server = Options::new().aof(Aof::Pure).start();
    let mut c = server.conn();
    hold(&mut c, "k");
    hold(&mut c, "l");
    let [mut a, _b] = queue(&server, "k", ["a", "b"]);
    let _on_l = Waiter::queue(&server, "l", "a");
    cmd!(c, "LOCK.RELEASE", "k", "h");
    let token = a.token();
    assert!(server.shutdown_nosave().success());
    server.start_again();
    let mut c = server.conn();
    is_held_by(&mut c, "k", "a", token);
    assert_eq!(waiters(&mut c, "k"), 0);
    nobody_waits(&server);
    // Whoever waited asks again, and the holder's release reaches it.
    let mut b = Waiter::queue(&server, "k", "b");
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", "a"), int(1));
    assert!(b.token() > token);
}
