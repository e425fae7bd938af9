//! LOCK.MACQUIRE, LOCK.MRENEW and LOCK.MRELEASE: several keys, all or nothing.

use crate::kinds_support::*;
use crate::replication::Tap;
use crate::support::*;
use crate::waiting_support::*;

const NUMKEYS: &str = "ERR numkeys must be an integer between 1 and 1024";
const TOO_FEW: &str = "ERR numkeys is more than the keys that follow";
const TWICE: &str = "ERR the same key is given twice";
const READONLY: &str = "READONLY You can't write against a read only replica.";

// All or nothing --------------------------------------------------------------------------------------

#[test]
fn all_keys_are_taken_under_one_token() {
    let server = single();
    let mut c = server.conn();
    let before = counter(&server, "lock_granted");
    let t = number(&mut c, "LOCK.MACQUIRE 3 a b c o 5000");
    assert_eq!(t, server.clock().now_us());
    for key in ["a", "b", "c"] {
        assert_eq!(mode(&mut c, key), "exclusive");
        assert_eq!(holders(&mut c, key), [("o".to_string(), t, 5000)]);
        assert_eq!(cmd!(c, "PTTL", key), int(5000));
    }
    assert_eq!(counter(&server, "lock_granted"), before + 1);
    // The next token is the next number.
    assert_eq!(number(&mut c, "LOCK.ACQUIRE d o 1000"), t + 1);
    // They are locks like any other.
    all_answer(
        &mut c,
        [
            ("LOCK.ACQUIRE a o 1000", int(t)),
            ("LOCK.RENEW b o 9000", int(9000)),
            ("LOCK.RELEASE c o", int(1)),
            ("LOCK.MRELEASE 3 a b c o", int(2)),
        ],
    );
}

/// redisson#4456.
#[test]
fn when_the_second_of_three_is_busy_nothing_is_taken() {
    let server = recorder();
    let mut c = server.conn();
    number(&mut c, "LOCK.ACQUIRE b other 60000");
    number(&mut c, "LOCK.ACQUIRE s other 60000 SHARED");
    number(&mut c, "LOCK.ACQUIRE kept other 60000");
    run(&mut c, "LOCK.RELEASE kept other KEEP 60000");
    for busy in ["b", "s", "kept"] {
        answers(
            &server,
            &[
                (&format!("LOCK.MACQUIRE 3 a {busy} c o 5000"), nil()),
                (&format!("LOCK.MACQUIRE 3 {busy} a c o 5000"), nil()),
                (&format!("LOCK.MACQUIRE 3 a c {busy} o 5000"), nil()),
            ],
        );
    }
    assert_eq!(cmd!(c, "EXISTS", "a", "c"), int(0));
    // No token was used up: three grants since T.
    assert_eq!(number(&mut c, "LOCK.ACQUIRE d o 1000"), T_US + 3);
}

#[test]
fn lapsed_locks_are_free() {
    let server = single();
    let mut c = server.conn();
    number(&mut c, "LOCK.ACQUIRE a other 1000");
    number(&mut c, "LOCK.ACQUIRE b other 1000");
    run(&mut c, "PERSIST b");
    number(&mut c, "LOCK.ACQUIRE c other 1000 SHARED");
    run(&mut c, "PERSIST c");
    server.clock().advance_ms(1001);
    let t = number(&mut c, "LOCK.MACQUIRE 4 a b c d o 5000");
    for key in ["a", "b", "c", "d"] {
        assert_eq!(holders(&mut c, key), [("o".to_string(), t, 5000)]);
        assert_eq!(cmd!(c, "PTTL", key), int(5000), "{key}");
    }
}

#[test]
fn the_retry_of_one_call_gets_its_token() {
    let server = recorder();
    let mut c = server.conn();
    let t = number(&mut c, "LOCK.MACQUIRE 3 a b c o 5000");
    answers(
        &server,
        &[
            ("LOCK.MACQUIRE 3 a b c o 5000", int(t)),
            ("LOCK.MACQUIRE 3 c a b o 1000", int(t)),
            ("LOCK.MACQUIRE 2 a c o 1000", int(t)),
            ("LOCK.MACQUIRE 3 a b c other 1000", nil()),
        ],
    );
    assert_eq!(run(&mut c, "LOCK.MACQUIRE 3 a b c o 9000"), int(t));
    for key in ["a", "b", "c"] {
        assert_eq!(holders(&mut c, key), [("o".to_string(), t, 9000)]);
        assert_eq!(of_holder(&mut c, key, "holds"), 1);
    }
    // Also while others queue.
    let mut waiter = Waiter::queue(&server, "b", "w");
    assert_eq!(run(&mut c, "LOCK.MACQUIRE 3 a b c o 9500"), int(t));
    assert_eq!(run(&mut c, "LOCK.MRELEASE 3 a b c o"), int(3));
    waiter.token();
}

#[test]
fn what_is_held_in_part_or_by_several_calls_is_nil() {
    let server = recorder();
    let mut c = server.conn();
    number(&mut c, "LOCK.ACQUIRE a o 60000");
    number(&mut c, "LOCK.ACQUIRE b o 60000");
    number(&mut c, "LOCK.MACQUIRE 2 c d o 60000");
    number(&mut c, "LOCK.ACQUIRE s o 60000 SHARED");
    answers(
        &server,
        &[
            ("LOCK.MACQUIRE 2 a b o 60000", nil()),
            ("LOCK.MACQUIRE 2 a free o 60000", nil()),
            ("LOCK.MACQUIRE 2 free a o 60000", nil()),
            ("LOCK.MACQUIRE 3 c d free o 60000", nil()),
            ("LOCK.MACQUIRE 3 c d a o 60000", nil()),
            // A shared hold is no hold by this call, and no upgrade.
            ("LOCK.MACQUIRE 1 s o 60000", nil()),
        ],
    );
    // One of two was lost: no retry any more.
    run(&mut c, "LOCK.FORCERELEASE d");
    answers(&server, &[("LOCK.MACQUIRE 2 c d o 60000", nil())]);
    // And taken again by itself: another grant.
    number(&mut c, "LOCK.ACQUIRE d o 60000");
    answers(&server, &[("LOCK.MACQUIRE 2 c d o 60000", nil())]);
}

#[test]
fn it_does_not_overtake_a_queue() {
    let server = single();
    let mut c = server.conn();
    hold(&mut c, "b");
    let mut waiter = Waiter::queue(&server, "b", "w");
    let t = server.clock().now_us();
    // The lock is free in the middle of the transaction, and somebody waits for it.
    let replies = c.exec_multi(&[
        words("DEL b"),
        words("LOCK.MACQUIRE 2 a b o 60000"),
        words("EXISTS a b"),
    ]);
    assert_eq!(replies, [int(1), nil(), int(0)]);
    assert_eq!(waiter.token(), t + 1);
    // Nor in a script.
    let mut second = Waiter::queue(&server, "b", "w2");
    let script = "redis.call('DEL', KEYS[2])
        return redis.call('LOCK.MACQUIRE', 2, KEYS[1], KEYS[2], 'o', 60000)";
    assert_eq!(c.eval(script, &["a", "b"], &[]), nil());
    second.token();
    assert_eq!(cmd!(c, "EXISTS", "a"), int(0));
}

#[test]
fn a_wait_that_ended_does_not_stop_it() {
    let server = single();
    let mut c = server.conn();
    leave_expired(&mut c);
    run(&mut c, "LOCK.ACQUIRE b h 1000");
    let mut waiter = Waiter::send(&server, "LOCK.ACQUIRE b w 60000 BLOCK 20000");
    server.clock().advance_mono_ms(20_001);
    server.clock().advance_ms(1001);
    let t = server.clock().now_us();
    assert_eq!(run(&mut c, "LOCK.MACQUIRE 2 a b o 1000"), int(t));
    assert_eq!(waiter.answer(), nil());
}

#[test]
fn it_works_in_transactions_and_scripts() {
    let server = single();
    let mut c = server.conn();
    let t = server.clock().now_us();
    let replies = c.exec_multi(&[
        words("LOCK.MACQUIRE 2 a b o 1000"),
        words("LOCK.MRENEW 2 a b o 5000"),
        words("LOCK.MACQUIRE 2 b c p 1000"),
        words("LOCK.MRELEASE 2 a b o"),
    ]);
    assert_eq!(replies, [int(t), int(5000), nil(), int(2)]);
    let script = "return {redis.call('LOCK.MACQUIRE', 2, KEYS[1], KEYS[2], 'o', 1000),
        redis.call('LOCK.MRENEW', 2, KEYS[1], KEYS[2], 'o', 3000),
        redis.call('LOCK.MRELEASE', 2, KEYS[1], KEYS[2], 'o')}";
    assert_eq!(
        c.eval(script, &["a", "b"], &[]),
        array([int(t + 1), int(3000), int(2)])
    );
}

// MRENEW ----------------------------------------------------------------------------------------------

#[test]
fn mrenew_answers_the_shortest_lease_left() {
    let server = single();
    let mut c = server.conn();
    let t = number(&mut c, "LOCK.MACQUIRE 3 a b c o 5000");
    run(&mut c, "LOCK.RENEW b o 60000");
    all_answer(
        &mut c,
        [
            ("LOCK.MRENEW 3 a b c o 7000", int(7000)),
            ("LOCK.MRENEW 1 b o 7000", int(60_000)),
            // Never shortens.
            ("LOCK.MRENEW 3 a b c o 1000", int(7000)),
        ],
    );
    let with = format!("LOCK.MRENEW 3 a b c o 8000 TOKEN {t}");
    assert_eq!(run(&mut c, &with), int(8000));
    assert_eq!(cmd!(c, "PTTL", "b"), int(60_000));
    // A hold with MAXHOLD is clipped, the others are not; a shared one is renewed too.
    number(&mut c, "LOCK.ACQUIRE m o 100 MAXHOLD 500");
    number(&mut c, "LOCK.ACQUIRE s o 100 SHARED");
    number(&mut c, "LOCK.ACQUIRE s p 100 SHARED");
    assert_eq!(run(&mut c, "LOCK.MRENEW 3 a m s o 9000"), int(500));
    assert_eq!(cmd!(c, "PTTL", "a"), int(9000));
    assert_eq!(cmd!(c, "PTTL", "m"), int(500));
    let left: Vec<i64> = holders(&mut c, "s").iter().map(|h| h.2).collect();
    assert_eq!(left, [9000, 100]);
}

#[test]
fn mrenew_is_0_and_renews_nothing_when_one_is_lost() {
    let server = recorder();
    let mut c = server.conn();
    let t = number(&mut c, "LOCK.MACQUIRE 3 a b c o 5000");
    number(&mut c, "LOCK.ACQUIRE mine o 5000");
    let lost = counter(&server, "lock_renew_lost");
    answers(
        &server,
        &[
            ("LOCK.MRENEW 3 a b c other 9000", int(0)),
            ("LOCK.MRENEW 4 a b c free o 9000", int(0)),
            (
                &format!("LOCK.MRENEW 3 a b c o 9000 TOKEN {}", t + 1),
                int(0),
            ),
            // Another grant has another token.
            (&format!("LOCK.MRENEW 2 a mine o 9000 TOKEN {t}"), int(0)),
        ],
    );
    assert_eq!(counter(&server, "lock_renew_lost"), lost + 4);
    // Taken over.
    run(&mut c, "LOCK.FORCERELEASE b");
    number(&mut c, "LOCK.ACQUIRE b other 5000");
    // Kept.
    number(&mut c, "LOCK.ACQUIRE kept o 5000");
    run(&mut c, "LOCK.RELEASE kept o KEEP 5000");
    answers(
        &server,
        &[
            ("LOCK.MRENEW 3 a b c o 9000", int(0)),
            ("LOCK.MRENEW 2 a kept o 9000", int(0)),
            ("LOCK.MRENEW 2 a c o 5000", int(5000)),
        ],
    );
    // Lapsed.
    server.clock().advance_ms(5001);
    assert_eq!(run(&mut c, "LOCK.MRENEW 2 a c o 9000"), int(0));
    assert_eq!(cmd!(c, "EXISTS", "a", "c"), int(0));
}

// MRELEASE --------------------------------------------------------------------------------------------

#[test]
fn mrelease_answers_how_many_it_released() {
    let server = recorder();
    let mut c = server.conn();
    let t = number(&mut c, "LOCK.MACQUIRE 3 a b c o 5000");
    answers(
        &server,
        &[
            ("LOCK.MRELEASE 3 a b c other", int(0)),
            ("LOCK.MRELEASE 2 x y o", int(0)),
            (&format!("LOCK.MRELEASE 3 a b c o TOKEN {}", t + 1), int(0)),
        ],
    );
    assert_eq!(run(&mut c, "LOCK.RELEASE b o"), int(1));
    number(&mut c, "LOCK.ACQUIRE b other 5000");
    let all = format!("LOCK.MRELEASE 4 a b c x o TOKEN {t}");
    assert_eq!(run(&mut c, &all), int(2));
    assert_eq!(run(&mut c, &all), int(0));
    assert_eq!(owners(&mut c, "b"), ["other"]);
    assert_eq!(cmd!(c, "EXISTS", "a", "b", "c"), int(1));
    // One hold of each.
    number(&mut c, "LOCK.ACQUIRE r o 5000 REENTRANT");
    number(&mut c, "LOCK.ACQUIRE r o 5000 REENTRANT");
    number(&mut c, "LOCK.ACQUIRE s o 5000 SHARED");
    number(&mut c, "LOCK.ACQUIRE s p 5000 SHARED");
    assert_eq!(run(&mut c, "LOCK.MRELEASE 2 r s o"), int(2));
    assert_eq!(of_holder(&mut c, "r", "holds"), 1);
    assert_eq!(owners(&mut c, "s"), ["p"]);
}

#[test]
fn mrelease_hands_over_to_the_waiters_in_its_own_unit() {
    let chain = chain();
    let server = &chain.primary;
    let mut c = server.conn();
    let now = chain.clock().now_us();
    number(&mut c, "LOCK.MACQUIRE 3 a b c o 60000");
    let mut on_b = Waiter::queue(server, "b", "w");
    let mut on_c = Waiter::send(server, "LOCK.ACQUIRE c w 60000 SHARED BLOCK 60000");
    let mut second = Waiter::queue(server, "b", "w2");
    let mut tap = Tap::on(&chain);
    assert_eq!(run(&mut c, "LOCK.MRELEASE 3 a b c o"), int(3));
    assert_eq!((on_b.token(), on_c.token()), (now + 1, now + 2));
    second.still_waits();
    let mut held = Held::at(now, 60_000, "w");
    held.token += 1;
    let sent = tap.take();
    assert_eq!(sent[0], args!["MULTI"]);
    assert_eq!(sent[1], args!["DEL", "a"]);
    assert_eq!(sent[2], args!["sluice.lk", "b", held.effect(now)]);
    assert_eq!(sent[3][..2], args!["sluice.lk", "c"]);
    assert_eq!(sent[4], args!["EXEC"]);
    assert_eq!(sent.len(), 5);
    chain.assert_equal();
}

// Errors ----------------------------------------------------------------------------------------------

#[test]
fn numkeys_must_fit() {
    let server = recorder();
    number(&mut server.conn(), "LOCK.MACQUIRE 2 a b o 60000");
    for text in no_integers_up_to(1024) {
        refuses(
            &server,
            NUMKEYS,
            &[
                format!("LOCK.MACQUIRE {text} a b o 1000"),
                format!("LOCK.MRENEW {text} a b o 1000"),
                format!("LOCK.MRELEASE {text} a b o"),
            ],
        );
    }
    refuses(
        &server,
        TOO_FEW,
        &[
            "LOCK.MACQUIRE 5 a b o 1000",
            "LOCK.MACQUIRE 1024 a b o 1000",
            "LOCK.MRENEW 5 a b o 1000",
            "LOCK.MRELEASE 4 a b o",
        ],
    );
    // As many keys as words, but nothing is left for the owner or the lease.
    let mut c = server.conn();
    changes_nothing(&server, || {
        for line in [
            "LOCK.MACQUIRE 4 a b o 1000",
            "LOCK.MACQUIRE 3 a b o 1000",
            "LOCK.MRENEW 4 a b o 1000",
            "LOCK.MRENEW 3 a b o 1000",
            "LOCK.MRELEASE 3 a b o",
        ] {
            let reply = run(&mut c, line).as_text();
            assert!(
                reply.starts_with("ERR wrong number of arguments"),
                "{line}: {reply}"
            );
        }
    });
}

#[test]
fn one_key_twice_is_an_error() {
    let server = recorder();
    let mut c = server.conn();
    refuses(
        &server,
        TWICE,
        &[
            "LOCK.MACQUIRE 2 a a o 1000",
            "LOCK.MACQUIRE 3 a b a o 1000",
            "LOCK.MRENEW 2 a a o 1000",
            "LOCK.MRELEASE 2 a a o",
        ],
    );
    // The owner may be called as a key is, and so may be keys with a zero or without a byte.
    number(&mut c, "LOCK.MACQUIRE 2 o b o 1000");
    number(&mut c, "LOCK.MACQUIRE 2  z p 1000");
    let t = cmd!(c, "LOCK.MACQUIRE", 2, b"x\0", b"x", "o", 1000);
    assert!(t.as_int() > 0);
}

#[test]
fn other_errors_come_before_any_key_is_touched() {
    let server = recorder();
    let mut c = server.conn();
    number(&mut c, "LOCK.MACQUIRE 2 a b o 60000");
    let lease = "ERR lease_ms must be an integer between 1 and 86400000";
    for text in ["0", "-1", "86400001", "x", "01"] {
        refuses(
            &server,
            lease,
            &[
                format!("LOCK.MACQUIRE 2 a b o {text}"),
                format!("LOCK.MACQUIRE 2 c d o {text}"),
                format!("LOCK.MRENEW 2 a b o {text}"),
            ],
        );
    }
    refuses(
        &server,
        "ERR owner must be between 1 and 512 bytes long",
        &[
            "LOCK.MACQUIRE 2 a b  1000",
            "LOCK.MRENEW 2 a b  1000",
            "LOCK.MRELEASE 2 a b ",
        ],
    );
    refuses(
        &server,
        SYNTAX,
        &[
            "LOCK.MACQUIRE 2 a b o 1000 BLOCK 5",
            "LOCK.MACQUIRE 2 c d o 1000 SHARED",
            "LOCK.MACQUIRE 2 a b o 1000 x",
            "LOCK.MRENEW 2 a b o 1000 TOKEN",
            "LOCK.MRENEW 2 a b o 1000 TOKEN 1 TOKEN 1",
            "LOCK.MRENEW 2 a b o 1000 KEEP 1",
            "LOCK.MRELEASE 2 a b o TOKEN",
            "LOCK.MRELEASE 2 a b o KEEP 5",
        ],
    );
    refuses(
        &server,
        "ERR TOKEN must be an integer between 1 and 9007199254740991",
        &[
            "LOCK.MRENEW 2 a b o 1000 TOKEN 0",
            "LOCK.MRELEASE 2 a b o TOKEN 9007199254740992",
        ],
    );
    refuses(
        &server,
        &wrong_arity("lock.macquire"),
        &["LOCK.MACQUIRE", "LOCK.MACQUIRE 1 a o"],
    );
    refuses(&server, &wrong_arity("lock.mrenew"), &["LOCK.MRENEW 1 a o"]);
    refuses(
        &server,
        &wrong_arity("lock.mrelease"),
        &["LOCK.MRELEASE 1 a"],
    );
}

#[test]
fn a_key_of_another_type_changes_none_of_them() {
    let server = recorder();
    let mut c = server.conn();
    number(&mut c, "LOCK.MACQUIRE 2 a b o 60000");
    number(&mut c, "LOCK.ACQUIRE busy other 60000");
    run(&mut c, "LOCK.GUARD guard 5");
    let mut foreign = make_foreign_keys(&mut c).to_vec();
    foreign.push("guard");
    for key in foreign {
        refuses(
            &server,
            WRONG_TYPE,
            &[
                format!("LOCK.MACQUIRE 3 c d {key} o 1000"),
                format!("LOCK.MACQUIRE 3 {key} c d o 1000"),
                // Also when another one is busy, whichever comes first.
                format!("LOCK.MACQUIRE 2 busy {key} o 1000"),
                format!("LOCK.MRENEW 3 a b {key} o 90000"),
                format!("LOCK.MRENEW 3 free {key} a o 90000"),
                format!("LOCK.MRELEASE 3 a b {key} o"),
                format!("LOCK.MRELEASE 3 a {key} b o"),
            ],
        );
    }
}

// The server's side -----------------------------------------------------------------------------------

#[test]
fn the_server_finds_the_keys() {
    let server = single();
    let mut c = server.conn();
    for line in [
        "COMMAND GETKEYS LOCK.MACQUIRE 2 a b o 1000",
        "COMMAND GETKEYS LOCK.MRENEW 2 a b o 1000",
        "COMMAND GETKEYS LOCK.MRENEW 2 a b o 1000 TOKEN 5",
        "COMMAND GETKEYS LOCK.MRELEASE 2 a b o",
        "COMMAND GETKEYS LOCK.MRELEASE 2 a b o TOKEN 5",
    ] {
        assert_eq!(run(&mut c, line), array([bulk("a"), bulk("b")]), "{line}");
    }
    for line in [
        "COMMAND GETKEYS LOCK.MACQUIRE 9 a b o 1000",
        "COMMAND GETKEYS LOCK.MACQUIRE x a b o 1000",
    ] {
        assert!(run(&mut c, line).is_error(), "{line}");
    }
    let line = "COMMAND GETKEYS LOCK.DOWNGRADE k o TOKEN 5";
    assert_eq!(run(&mut c, line), array([bulk("k")]));
}

fn no_key() -> Reply {
    err(match since_7_2() {
        true => "NOPERM No permissions to access a key",
        false => "NOPERM this user has no permissions to access one of the keys used as arguments",
    })
}

#[test]
fn a_user_needs_permission_for_every_key() {
    let server = recorder();
    let mut c = server.conn();
    number(&mut c, "LOCK.ACQUIRE b p 60000");
    let set = "ACL SETUSER u reset on nopass +@all ~a ~c %R~read %W~write";
    assert_eq!(run(&mut c, set), ok());
    let mut u = server.conn();
    assert_eq!(run(&mut u, "AUTH u any"), ok());
    number(&mut u, "LOCK.MACQUIRE 2 a c o 60000");
    changes_nothing(&server, || {
        for line in [
            "LOCK.MACQUIRE 2 a b o 1000",
            "LOCK.MACQUIRE 2 b a o 1000",
            "LOCK.MACQUIRE 3 a c b o 1000",
            "LOCK.MACQUIRE 1 b o 1000",
            "LOCK.MACQUIRE 2 a read o 1000",
            "LOCK.MACQUIRE 2 a write o 1000",
            "LOCK.MRENEW 2 a b o 90000",
            "LOCK.MRENEW 2 a read o 90000",
            "LOCK.MRENEW 2 a write o 90000",
            "LOCK.MRELEASE 2 a b o",
            "LOCK.MRELEASE 2 a read o",
            "LOCK.DOWNGRADE b p",
        ] {
            assert_eq!(run(&mut u, line), no_key(), "{line}");
        }
        // The server does not see the keys of these, and lets them through.
        for numkeys in [
            "0",
            "-1",
            "x",
            "",
            "01",
            "+1",
            "1.0",
            "9",
            "1024",
            "1025",
            "4294967297",
            "18446744073709551617",
            "2 ",
            "\t1",
        ] {
            for command in ["LOCK.MACQUIRE", "LOCK.MRENEW", "LOCK.MRELEASE"] {
                let mut line = args![command, numkeys, "b", "p"];
                if command != "LOCK.MRELEASE" {
                    line.push(b"90000".to_vec());
                }
                let reply = u.cmd(&line);
                assert!(reply.is_error(), "{command} {numkeys}: {reply:?}");
            }
        }
    });
    // Write permission is enough to give back.
    assert_eq!(run(&mut u, "LOCK.MRELEASE 2 a write o"), int(1));
}

/// A cluster of one node that serves every slot but that of `{gone}`.
fn cluster() -> Server {
    let server = Options::new()
        .cluster()
        .config("cluster-require-full-coverage", "no")
        .start();
    let mut c = server.conn();
    let gone = number(&mut c, "CLUSTER KEYSLOT {gone}");
    for (first, last) in [(0, gone - 1), (gone + 1, 16_383)] {
        assert_eq!(cmd!(c, "CLUSTER", "ADDSLOTSRANGE", first, last), ok());
    }
    eventually("the cluster is up", || {
        let info = run(&mut c, "CLUSTER INFO").as_text();
        info.contains("cluster_state:ok")
    });
    server
}

#[test]
fn keys_of_one_slot_are_taken_in_a_cluster() {
    let server = cluster();
    let mut c = server.conn();
    let t = number(&mut c, "LOCK.MACQUIRE 2 {t}a {t}b o 60000");
    all_answer(
        &mut c,
        [
            ("LOCK.MACQUIRE 2 {t}a {t}b o 1", int(t)),
            ("LOCK.MRENEW 2 {t}a {t}b o 90000", int(90_000)),
            ("LOCK.MRELEASE 2 {t}a {t}b o", int(2)),
        ],
    );
}

#[test]
fn keys_of_several_slots_are_refused_in_a_cluster() {
    let server = cluster();
    let mut c = server.conn();
    let cross = err("CROSSSLOT Keys in request don't hash to the same slot");
    for line in [
        "LOCK.MACQUIRE 2 a b o 1000",
        "LOCK.MRENEW 2 a b o 1000",
        "LOCK.MRELEASE 2 a b o",
    ] {
        assert_eq!(run(&mut c, line), cross, "{line}");
    }
    assert_eq!(cmd!(c, "DBSIZE"), int(0));
}

/// The server takes the positions of keys as the module names them: one beyond the last
/// argument would be read outside of them.
#[test]
fn numkeys_beyond_the_arguments_is_an_error_in_a_cluster_too() {
    let server = cluster();
    let mut c = server.conn();
    let too_few = err("ERR numkeys is more than the keys that follow");
    for command in ["MACQUIRE", "MRENEW", "MRELEASE"] {
        for numkeys in [4, 5, 6, 1024] {
            let line = format!("LOCK.{command} {numkeys} {{k}}1 {{k}}2 {{k}}3");
            for _ in 0..50 {
                assert_eq!(run(&mut c, &line), too_few, "{line}");
            }
        }
        for numkeys in ["-1", "x", "0", "99999999999999999999"] {
            let line = format!("LOCK.{command} {numkeys} {{k}}1 {{k}}2 {{k}}3");
            let range = err("ERR numkeys must be an integer between 1 and 1024");
            assert_eq!(run(&mut c, &line), range, "{line}");
        }
    }
    assert_eq!(cmd!(c, "DBSIZE"), int(0));
}

/// Where another node had the slot, the answer would be MOVED.
#[test]
fn keys_of_a_slot_that_is_not_here_are_refused_in_a_cluster() {
    let server = cluster();
    let mut c = server.conn();
    let not_here = err("CLUSTERDOWN Hash slot not served");
    for line in [
        "LOCK.ACQUIRE {gone} o 1000",
        "LOCK.DOWNGRADE {gone} o",
        "LOCK.MACQUIRE 1 {gone} o 1000",
        "LOCK.MRENEW 1 {gone} o 1000",
        "LOCK.MRELEASE 1 {gone} o",
    ] {
        assert_eq!(run(&mut c, line), not_here, "{line}");
    }
    assert_eq!(cmd!(c, "DBSIZE"), int(0));
}

#[test]
fn the_effects_are_one_unit() {
    let chain = chain();
    let now = chain.clock().now_us();
    let mut c = chain.primary.conn();
    let mut tap = Tap::on(&chain);
    let effect = |key: &str, lease| {
        let held = Held::at(now, lease, "o");
        args!["sluice.lk", key, held.effect(now)]
    };
    let unit = |commands: &[Vec<Vec<u8>>]| [&[args!["MULTI"]], commands, &[args!["EXEC"]]].concat();
    number(&mut c, "LOCK.MACQUIRE 3 a b c o 5000");
    let taken = ["a", "b", "c"].map(|key| effect(key, 5000));
    assert_eq!(tap.take(), unit(&taken));
    chain.assert_equal();
    assert_eq!(run(&mut c, "LOCK.MACQUIRE 3 a b c o 5000"), int(now));
    assert_eq!(run(&mut c, "LOCK.MACQUIRE 3 a b c p 5000"), nil());
    assert_eq!(tap.take(), Vec::<Vec<Vec<u8>>>::new());
    run(&mut c, "LOCK.MRENEW 2 a c o 9000");
    assert_eq!(tap.take(), unit(&[effect("a", 9000), effect("c", 9000)]));
    run(&mut c, "LOCK.MRELEASE 3 a b c o");
    let gone = ["a", "b", "c"].map(|key| args!["DEL", key]);
    assert_eq!(tap.take(), unit(&gone));
    chain.assert_equal();
}

#[test]
fn over_maxmemory_only_taking_is_refused() {
    let server = recorder();
    let mut c = server.conn();
    number(&mut c, "LOCK.MACQUIRE 3 a b c o 5000");
    assert_eq!(run(&mut c, "CONFIG SET maxmemory 1"), ok());
    let oom = "OOM command not allowed when used memory > 'maxmemory'.";
    refuses(&server, oom, &["LOCK.MACQUIRE 2 x y o 1000"]);
    all_answer(
        &mut c,
        [
            ("LOCK.MRENEW 3 a b c o 9000", int(9000)),
            ("LOCK.DOWNGRADE c o", int(1)),
            ("LOCK.MRELEASE 3 a b c o", int(3)),
        ],
    );
    run(&mut c, "CONFIG SET maxmemory 0");
}

#[test]
fn a_replica_refuses_them() {
    let chain = chain();
    number(&mut chain.primary.conn(), "LOCK.MACQUIRE 2 a b o 60000");
    chain.sync();
    let mut r = chain.replica.conn();
    for line in [
        "LOCK.MACQUIRE 2 a b o 1000",
        "LOCK.MRENEW 2 a b o 1000",
        "LOCK.MRELEASE 2 a b o",
        "LOCK.DOWNGRADE a o",
    ] {
        assert_eq!(run(&mut r, line), err(READONLY), "{line}");
    }
    chain.assert_equal();
}

#[test]
fn a_thousand_and_twenty_four_keys_are_as_many_as_may_be() {
    let server = single();
    let mut c = server.conn();
    let line = |command: &str, n: usize| {
        let mut all = args![command, n];
        all.extend((0..n).map(|i| format!("k{i}").into_bytes()));
        all.push(b"o".to_vec());
        all
    };
    let mut acquire = line("LOCK.MACQUIRE", 1024);
    acquire.push(b"60000".to_vec());
    let t = c.cmd(&acquire);
    assert_eq!(t, int(server.clock().now_us()));
    assert_eq!(c.cmd(&acquire), t);
    let mut more = line("LOCK.MACQUIRE", 1025);
    more.push(b"60000".to_vec());
    assert_eq!(c.cmd(&more), err(NUMKEYS));
    assert_eq!(c.cmd(&line("LOCK.MRELEASE", 1024)), int(1024));
    assert_eq!(cmd!(c, "DBSIZE"), int(0));
}
