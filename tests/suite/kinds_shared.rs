//! SHARED locks: readers, the writers that wait for them, upgrades and downgrades.

use crate::kinds_support::*;
use crate::support::*;
use crate::waiting_support::*;

// Readers --------------------------------------------------------------------------------------------

#[test]
fn readers_have_leases_and_tokens_of_their_own() {
    let server = single();
    let mut c = server.conn();
    let t = server.clock().now_us();
    all_answer(
        &mut c,
        [
            ("LOCK.ACQUIRE k a 1000 SHARED", int(t)),
            ("LOCK.ACQUIRE k b 5000 shared", int(t + 1)),
        ],
    );
    server.clock().advance_ms(100);
    assert_eq!(
        number(&mut c, "LOCK.ACQUIRE k c 300 SHARED"),
        t + 100_000,
        "the clock again"
    );
    let expected = [
        ("a".to_string(), t, 900),
        ("b".to_string(), t + 1, 4900),
        ("c".to_string(), t + 100_000, 300),
    ];
    assert_eq!(holders(&mut c, "k"), expected);
    // The latest deadline decides about the key.
    assert_eq!(cmd!(c, "PEXPIRETIME", "k"), int(t / 1000 + 5000));
    all_answer(
        &mut c,
        [
            ("LOCK.RENEW k a 2000", int(2000)),
            ("LOCK.RENEW k a 1", int(2000)),
            ("LOCK.RENEW k d 2000", int(0)),
        ],
    );
    let wrong = format!("LOCK.RENEW k a 9000 TOKEN {}", t + 1);
    assert_eq!(run(&mut c, &wrong), int(0));
    let left: Vec<i64> = holders(&mut c, "k").iter().map(|h| h.2).collect();
    assert_eq!(left, [2000, 4900, 300]);
    // In c's last millisecond it lives, in the next it does not.
    server.clock().advance_ms(300);
    assert_eq!(owners(&mut c, "k"), ["a", "b", "c"]);
    server.clock().advance_ms(1);
    assert_eq!(owners(&mut c, "k"), ["a", "b"]);
    assert_eq!(run(&mut c, "LOCK.RENEW k c 1000"), int(0));
    assert_eq!(run(&mut c, "LOCK.RELEASE k c"), int(0));
}

#[test]
fn readers_and_writers_exclude_each_other() {
    let server = recorder();
    let mut c = server.conn();
    number(&mut c, "LOCK.ACQUIRE s a 60000 SHARED");
    number(&mut c, "LOCK.ACQUIRE x a 60000");
    answers(
        &server,
        &[
            ("LOCK.ACQUIRE s w 1000", nil()),
            ("LOCK.ACQUIRE s w 1000 REENTRANT MAXHOLD 5", nil()),
            ("LOCK.ACQUIRE x b 1000 SHARED", nil()),
            ("LOCK.ACQUIRE x b 1000 SHARED BLOCK 1", nil()),
            ("LOCK.ACQUIRE s w 1000 BLOCK 1", nil()),
            ("LOCK.MACQUIRE 1 s w 1000", nil()),
            ("LOCK.MACQUIRE 1 s a 1000", nil()),
        ],
    );
}

#[test]
fn a_reader_that_asks_again_gets_its_token_and_never_loses_time() {
    let server = recorder();
    let mut c = server.conn();
    let t = number(&mut c, "LOCK.ACQUIRE k a 5000 SHARED META one");
    number(&mut c, "LOCK.ACQUIRE k b 1000 SHARED");
    // Shorter or as long: nothing to write.
    answers(
        &server,
        &[
            ("LOCK.ACQUIRE k a 1000 SHARED META two", int(t)),
            ("LOCK.ACQUIRE k a 5000 SHARED", int(t)),
            ("LOCK.ACQUIRE k a 5000 SHARED BLOCK 1000", int(t)),
        ],
    );
    assert_eq!(run(&mut c, "LOCK.ACQUIRE k a 9000 SHARED"), int(t));
    let all = holders(&mut c, "k");
    assert_eq!(all[0], ("a".to_string(), t, 9000));
    assert_eq!(all[1], ("b".to_string(), t + 1, 1000));
    assert_eq!(of_holder(&mut c, "k", "holds"), 1);
    let info = cmd!(c, "LOCK.INFO", "k");
    let meta = info.field("holders").items()[0].field("meta").clone();
    assert_eq!(meta, bulk("one"));
    assert_eq!(run(&mut c, "LOCK.RELEASE k a"), int(1));
    assert_eq!(run(&mut c, "LOCK.RELEASE k a"), int(0));
    assert_eq!(owners(&mut c, "k"), ["b"]);
}

#[test]
fn a_lapsed_reader_that_asks_again_is_a_new_one() {
    let server = single();
    let mut c = server.conn();
    let t = number(&mut c, "LOCK.ACQUIRE k a 100 SHARED");
    number(&mut c, "LOCK.ACQUIRE k b 60000 SHARED");
    server.clock().advance_ms(101);
    let again = number(&mut c, "LOCK.ACQUIRE k a 700 SHARED");
    assert_eq!(again, t + 101_000);
    let expected = [
        ("b".to_string(), t + 1, 60_000 - 101),
        ("a".to_string(), again, 700),
    ];
    assert_eq!(holders(&mut c, "k"), expected);
    assert_eq!(of_holder(&mut c, "k", "held_ms"), 101);
}

#[test]
fn an_exclusive_holder_that_asks_shared_stays_exclusive() {
    let server = recorder();
    let mut c = server.conn();
    let t = number(&mut c, "LOCK.ACQUIRE k a 5000");
    answers(&server, &[("LOCK.ACQUIRE k a 5000 SHARED", int(t))]);
    assert_eq!(run(&mut c, "LOCK.ACQUIRE k a 8000 SHARED"), int(t));
    assert_eq!(mode(&mut c, "k"), "exclusive");
    assert_eq!(holders(&mut c, "k"), [("a".to_string(), t, 8000)]);
    answers(&server, &[("LOCK.ACQUIRE k b 1000 SHARED", nil())]);
    assert_eq!(run(&mut c, "LOCK.RELEASE k a"), int(1));
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
}

/// redisson#891, redisson#4217.
#[test]
fn a_release_by_a_reader_does_not_touch_a_writer() {
    let server = recorder();
    let mut c = server.conn();
    let reader = number(&mut c, "LOCK.ACQUIRE k r 100 SHARED");
    server.clock().advance_ms(101);
    let writer = number(&mut c, "LOCK.ACQUIRE k w 60000");
    answers(
        &server,
        &[
            ("LOCK.RELEASE k r", int(0)),
            (&format!("LOCK.RELEASE k r TOKEN {reader}"), int(0)),
            (&format!("LOCK.RELEASE k w TOKEN {reader}"), int(0)),
            ("LOCK.RELEASE k r KEEP 1000", int(0)),
            ("LOCK.RENEW k r 1000", int(0)),
            ("LOCK.DOWNGRADE k r", int(0)),
            ("LOCK.MRELEASE 1 k r", int(0)),
        ],
    );
    assert_eq!(holders(&mut c, "k"), [("w".to_string(), writer, 60_000)]);
}

#[test]
fn a_token_of_another_reader_is_not_mine() {
    let server = recorder();
    let mut c = server.conn();
    let a = number(&mut c, "LOCK.ACQUIRE k a 60000 SHARED");
    let b = number(&mut c, "LOCK.ACQUIRE k b 60000 SHARED");
    answers(
        &server,
        &[
            (&format!("LOCK.RELEASE k a TOKEN {b}"), int(0)),
            (&format!("LOCK.RENEW k b 90000 TOKEN {a}"), int(0)),
            (&format!("LOCK.DOWNGRADE k b TOKEN {a}"), int(0)),
            (&format!("LOCK.DOWNGRADE k b TOKEN {b}"), int(1)),
        ],
    );
    assert_eq!(run(&mut c, &format!("LOCK.RELEASE k a TOKEN {a}")), int(1));
    assert_eq!(owners(&mut c, "k"), ["b"]);
}

#[test]
fn a_thousand_readers() {
    let server = single();
    let mut c = server.conn();
    let t = server.clock().now_us();
    let acquire = |i: usize| words(&format!("LOCK.ACQUIRE k r{i:04} {} SHARED", 1000 + i));
    let commands: Vec<_> = (0..1000).map(acquire).collect();
    let tokens = c.pipeline(&commands);
    let expected: Vec<_> = (0..1000).map(|i| int(t + i)).collect();
    assert_eq!(tokens, expected);
    assert_eq!(cmd!(c, "PTTL", "k").as_int(), 1999);
    // Half of them lapse, a quarter gives back.
    server.clock().advance_ms(1500);
    let release = |i: usize| words(&format!("LOCK.RELEASE k r{i:04}"));
    let commands: Vec<_> = (0..750).map(release).collect();
    let released = c.pipeline(&commands);
    let ones = released.iter().filter(|reply| **reply == int(1)).count();
    assert_eq!(ones, 250);
    let all = holders(&mut c, "k");
    assert_eq!(all.len(), 250);
    assert_eq!(all[0], ("r0750".to_string(), t + 750, 250));
    let mut writer = Waiter::queue(&server, "k", "w");
    let commands: Vec<_> = (750..1000).map(release).collect();
    assert_eq!(c.pipeline(&commands), vec![int(1); 250]);
    assert_eq!(writer.token(), t + 1_500_000);
}

// Writers that wait -----------------------------------------------------------------------------------

#[test]
fn a_waiting_writer_stops_new_readers() {
    let server = single();
    let mut c = server.conn();
    let a = number(&mut c, "LOCK.ACQUIRE k a 60000 SHARED");
    number(&mut c, "LOCK.ACQUIRE k b 60000 SHARED");
    let mut writer = Waiter::queue(&server, "k", "w");
    all_answer(
        &mut c,
        [
            ("LOCK.ACQUIRE k c 1000 SHARED", nil()),
            // Those that read already go on.
            ("LOCK.ACQUIRE k a 60000 SHARED", int(a)),
            ("LOCK.RENEW k a 70000", int(70_000)),
        ],
    );
    let mut late = Waiter::send(&server, "LOCK.ACQUIRE k d 60000 SHARED BLOCK 60000");
    assert_eq!(waiters(&mut c, "k"), 2);
    all_answer(
        &mut c,
        [("LOCK.RELEASE k a", int(1)), ("LOCK.RELEASE k b", int(1))],
    );
    writer.token();
    assert_eq!(owners(&mut c, "k"), ["w"]);
    late.still_waits();
    assert_eq!(run(&mut c, "LOCK.RELEASE k w"), int(1));
    late.token();
    assert_eq!(owners(&mut c, "k"), ["d"]);
}

#[test]
fn readers_come_in_when_the_writer_gave_up_waiting() {
    let server = single();
    let mut c = server.conn();
    let t = number(&mut c, "LOCK.ACQUIRE k a 60000 SHARED");
    let mut writer = Waiter::send(&server, "LOCK.ACQUIRE k w 60000 BLOCK 20000");
    let mut reader = Waiter::send(&server, "LOCK.ACQUIRE k b 60000 SHARED BLOCK 60000");
    server.clock().advance_mono_ms(20_001);
    assert_eq!(writer.answer(), nil());
    // Nobody releases anything: the reader must not wait for that.
    let came = reader.conn.recv_timeout(TWO_CRONS);
    assert_eq!(came, Some(int(t + 1)), "the reader waits for nobody");
    assert_eq!(owners(&mut c, "k"), ["a", "b"]);
}

#[test]
fn readers_come_in_when_the_waiting_writer_died() {
    let server = single();
    let mut c = server.conn();
    let t = number(&mut c, "LOCK.ACQUIRE k a 60000 SHARED");
    let writer = Waiter::queue(&server, "k", "w");
    let mut reader = Waiter::send(&server, "LOCK.ACQUIRE k b 60000 SHARED BLOCK 60000");
    cmd!(c, "CLIENT", "KILL", "ID", writer.id);
    let came = reader.conn.recv_timeout(TWO_CRONS);
    assert_eq!(came, Some(int(t + 1)), "the reader waits for nobody");
}

#[test]
fn readers_come_in_when_the_waiting_writer_is_unblocked() {
    let server = single();
    let mut c = server.conn();
    let t = number(&mut c, "LOCK.ACQUIRE k a 60000 SHARED");
    let mut writer = Waiter::queue(&server, "k", "w");
    let mut reader = Waiter::send(&server, "LOCK.ACQUIRE k b 60000 SHARED BLOCK 60000");
    assert_eq!(cmd!(c, "CLIENT", "UNBLOCK", writer.id), int(1));
    assert_eq!(writer.answer(), nil());
    let came = reader.conn.recv_timeout(TWO_CRONS);
    assert_eq!(came, Some(int(t + 1)), "the reader waits for nobody");
}

#[test]
fn a_place_is_a_readers_when_its_writer_gave_up() {
    let server = single();
    let mut c = server.conn();
    let t = number(&mut c, "LOCK.ACQUIRE k a 60000 SHARED");
    // One owner asks twice: exclusively, and to read.
    let mut write = Waiter::send(&server, "LOCK.ACQUIRE k b 60000 BLOCK 20000");
    let mut read = Waiter::send(&server, "LOCK.ACQUIRE k b 60000 SHARED BLOCK 60000");
    read.still_waits();
    server.clock().advance_mono_ms(20_001);
    assert_eq!(write.answer(), nil());
    let came = read.conn.recv_timeout(TWO_CRONS);
    assert_eq!(came, Some(int(t + 1)), "the reader waits for nobody");
}

#[test]
fn a_newcomer_does_not_pass_readers_whose_writer_gave_up() {
    let server = single();
    let mut c = server.conn();
    let t = number(&mut c, "LOCK.ACQUIRE k a 60000 SHARED");
    let mut write = Waiter::send(&server, "LOCK.ACQUIRE k w 60000 BLOCK 20000");
    let mut read = Waiter::send(&server, "LOCK.ACQUIRE k b 60000 SHARED BLOCK 60000");
    server.clock().advance_mono_ms(20_001);
    assert_eq!(run(&mut c, "LOCK.ACQUIRE k c 60000 SHARED"), int(t + 2));
    assert_eq!(write.answer(), nil());
    assert_eq!(read.token(), t + 1);
    assert_eq!(owners(&mut c, "k"), ["a", "b", "c"]);
}

#[test]
fn readers_come_in_when_a_shared_lock_takes_the_place_of_another() {
    for way in ["RENAME s k", "COPY s k REPLACE", "RESTORE"] {
        let server = single();
        let mut c = server.conn();
        let t = number(&mut c, "LOCK.ACQUIRE s a 60000 SHARED");
        number(&mut c, "LOCK.ACQUIRE k h 60000");
        let mut read = Waiter::send(&server, "LOCK.ACQUIRE k b 60000 SHARED BLOCK 60000");
        let done = match way {
            "RESTORE" => {
                let payload = cmd!(c, "DUMP", "s");
                cmd!(c, "RESTORE", "k", 60_000, payload.as_bytes(), "REPLACE")
            }
            line => run(&mut c, line),
        };
        assert!(!done.is_error(), "{way}: {done:?}");
        let came = read.conn.recv_timeout(TWO_CRONS);
        assert_eq!(came, Some(int(t + 2)), "{way}");
    }
}

#[test]
fn the_keys_end_follows_the_readers() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let now = chain.clock().now_ms();
    let ends = |at: i64| {
        chain.assert_equal();
        for server in chain.servers() {
            assert_eq!(cmd!(server.conn(), "PEXPIRETIME", "k"), int(now + at));
        }
    };
    number(&mut c, "LOCK.ACQUIRE k a 1000 SHARED");
    ends(1000);
    number(&mut c, "LOCK.ACQUIRE k b 9000 SHARED");
    ends(9000);
    number(&mut c, "LOCK.ACQUIRE k c 5000 SHARED");
    ends(9000);
    // The longest leaves.
    assert_eq!(run(&mut c, "LOCK.RELEASE k b"), int(1));
    ends(5000);
    assert_eq!(run(&mut c, "LOCK.RELEASE k a"), int(1));
    ends(5000);
    // A foreign PEXPIRE and PERSIST last until the next write.
    assert_eq!(run(&mut c, "PEXPIRE k 100"), int(1));
    ends(100);
    number(&mut c, "LOCK.ACQUIRE k d 200 SHARED");
    ends(5000);
    assert_eq!(run(&mut c, "PERSIST k"), int(1));
    number(&mut c, "LOCK.ACQUIRE k d 100 SHARED");
    ends(5000);
    assert_eq!(run(&mut c, "LOCK.RELEASE k c"), int(1));
    ends(200);
}

#[test]
fn waiting_readers_side_by_side_are_granted_in_one_unit() {
    let chain = chain();
    let server = &chain.primary;
    let mut c = server.conn();
    hold(&mut c, "k");
    let read = |o: &str| {
        let line = format!("LOCK.ACQUIRE k {o} 60000 SHARED BLOCK 60000");
        Waiter::send(server, &line)
    };
    let mut readers = [read("a"), read("b"), read("c")];
    let mut writer = Waiter::queue(server, "k", "w");
    let mut last = read("d");
    chain.clock().advance_ms(5);
    let t = chain.clock().now_us();
    let mut tap = crate::replication::Tap::on(&chain);
    assert_eq!(run(&mut c, "LOCK.RELEASE k h"), int(1));
    let tokens = readers.each_mut().map(Waiter::token);
    assert_eq!(tokens, [t, t + 1, t + 2]);
    assert_eq!(owners(&mut c, "k"), ["a", "b", "c"]);
    assert_eq!(waiters(&mut c, "k"), 2);
    let sent = tap.take();
    let names: Vec<String> = sent
        .iter()
        .map(|command| String::from_utf8_lossy(&command[0]).to_lowercase())
        .collect();
    assert_eq!(
        names,
        ["multi", "sluice.lk", "sluice.lk", "sluice.lk", "exec"]
    );
    chain.assert_equal();
    writer.still_waits();
    for o in ["a", "b", "c"] {
        assert_eq!(run(&mut c, &format!("LOCK.RELEASE k {o}")), int(1));
    }
    writer.token();
    assert_eq!(run(&mut c, "LOCK.RELEASE k w"), int(1));
    last.token();
    chain.assert_equal();
}

#[test]
fn a_dead_readers_lease_ends_on_time_whatever_others_renew() {
    let server = single();
    let mut c = server.conn();
    number(&mut c, "LOCK.ACQUIRE k dead 300 SHARED");
    number(&mut c, "LOCK.ACQUIRE k alive 300 SHARED");
    for _ in 0..5 {
        server.clock().advance_ms(60);
        assert_eq!(run(&mut c, "LOCK.RENEW k alive 300"), int(300));
        number(&mut c, "LOCK.ACQUIRE k alive 200 SHARED");
    }
    // +300: the dead one's last millisecond.
    assert_eq!(owners(&mut c, "k"), ["dead", "alive"]);
    server.clock().advance_ms(1);
    assert_eq!(owners(&mut c, "k"), ["alive"]);
    // Alone now, it may upgrade.
    assert_eq!(
        run(&mut c, "LOCK.ACQUIRE k alive 300"),
        int(server.clock().now_us())
    );
}

/// redisson#7098.
#[test]
fn a_writer_waits_exactly_for_the_last_live_reader() {
    let server = single();
    let mut c = server.conn();
    let t = server.clock().now_us();
    number(&mut c, "LOCK.ACQUIRE k a 300 SHARED");
    number(&mut c, "LOCK.ACQUIRE k b 300 SHARED");
    let mut writer = Waiter::queue(&server, "k", "w");
    server.clock().advance_ms(200);
    assert_eq!(run(&mut c, "LOCK.RENEW k b 5000"), int(5000));
    server.clock().advance_ms(200);
    assert_eq!(holders(&mut c, "k"), [("b".to_string(), t + 1, 4800)]);
    assert_eq!(waiters(&mut c, "k"), 1);
    writer.still_waits();
    server.clock().advance_ms(200);
    assert_eq!(run(&mut c, "LOCK.RELEASE k b"), int(1));
    assert_eq!(writer.token(), t + 600_000);
    assert_eq!(owners(&mut c, "k"), ["w"]);
}

#[test]
fn a_writer_gets_the_lock_when_the_last_reader_lapses() {
    let server = single();
    let mut c = server.conn();
    let t = server.clock().now_us();
    number(&mut c, "LOCK.ACQUIRE k a 300 SHARED");
    number(&mut c, "LOCK.ACQUIRE k b 900 SHARED");
    let mut writer = Waiter::queue(&server, "k", "w");
    server.clock().advance_ms(301);
    writer.still_waits();
    // a is over, b gives back: nobody is left.
    let mut other = server.conn();
    assert_eq!(run(&mut other, "LOCK.RELEASE k a"), int(0));
    writer.still_waits();
    server.clock().advance_ms(600);
    assert_eq!(writer.token(), t + 901_000);
}

// Upgrade and downgrade -------------------------------------------------------------------------------

#[test]
fn the_only_reader_is_upgraded_at_once() {
    let server = single();
    let mut c = server.conn();
    let t = number(
        &mut c,
        "LOCK.ACQUIRE k a 5000 SHARED REENTRANT MAXHOLD 8000 META m",
    );
    assert_eq!(number(&mut c, "LOCK.ACQUIRE k a 5000 SHARED REENTRANT"), t);
    server.clock().advance_ms(1000);
    // The deadline stays: it lies behind the new lease's end.
    let up = number(&mut c, "LOCK.ACQUIRE k a 10");
    assert_eq!(up, t + 1_000_000);
    assert_eq!(mode(&mut c, "k"), "exclusive");
    assert_eq!(holders(&mut c, "k"), [("a".to_string(), up, 4000)]);
    assert_eq!(of_holder(&mut c, "k", "holds"), 2);
    assert_eq!(of_holder(&mut c, "k", "held_ms"), 1000);
    all_answer(
        &mut c,
        [
            // MAXHOLD is the first grant's.
            ("LOCK.RENEW k a 60000", int(7000)),
            ("LOCK.ACQUIRE k b 10 SHARED", nil()),
            ("LOCK.ACQUIRE k a 10", int(up)),
            ("LOCK.RELEASE k a", int(1)),
            ("LOCK.RELEASE k a", int(1)),
            ("LOCK.RELEASE k a", int(0)),
        ],
    );
    // A longer lease is taken.
    number(&mut c, "LOCK.ACQUIRE l a 10 SHARED");
    let up = number(&mut c, "LOCK.ACQUIRE l a 5000");
    assert_eq!(holders(&mut c, "l"), [("a".to_string(), up, 5000)]);
    // The old token is nobody's.
    assert_eq!(
        run(&mut c, &format!("LOCK.RELEASE l a TOKEN {}", up - 1)),
        int(0)
    );
}

#[test]
fn one_of_two_readers_is_not_upgraded_and_never_waits() {
    let server = recorder();
    let mut c = server.conn();
    number(&mut c, "LOCK.ACQUIRE k a 5000 SHARED");
    number(&mut c, "LOCK.ACQUIRE k b 5000 SHARED");
    answers(
        &server,
        &[
            ("LOCK.ACQUIRE k a 5000", nil()),
            ("LOCK.ACQUIRE k a 5000 BLOCK 600000", nil()),
            ("LOCK.ACQUIRE k b 5000 BLOCK 600000", nil()),
            ("LOCK.ACQUIRE k b 5000 REENTRANT BLOCK 600000", nil()),
        ],
    );
    // With a writer in the queue too.
    let mut writer = Waiter::queue(&server, "k", "w");
    assert_eq!(run(&mut c, "LOCK.ACQUIRE k a 9000 BLOCK 600000"), nil());
    assert_eq!(waiters(&mut c, "k"), 1);
    assert_eq!(owners(&mut c, "k"), ["a", "b"]);
    all_answer(
        &mut c,
        [("LOCK.RELEASE k a", int(1)), ("LOCK.RELEASE k b", int(1))],
    );
    writer.token();
}

#[test]
fn an_upgrade_stands_before_the_queue() {
    let server = single();
    let mut c = server.conn();
    let t = number(&mut c, "LOCK.ACQUIRE k a 5000 SHARED");
    let mut writer = Waiter::queue(&server, "k", "w");
    let mut reader = Waiter::send(&server, "LOCK.ACQUIRE k b 5000 SHARED BLOCK 60000");
    assert_eq!(run(&mut c, "LOCK.ACQUIRE k a 9000 BLOCK 1000"), int(t + 1));
    assert_eq!(mode(&mut c, "k"), "exclusive");
    assert_eq!(waiters(&mut c, "k"), 2);
    // The queue goes by the new deadline: not served at the old one.
    server.clock().advance_ms(5001);
    writer.still_waits();
    assert_eq!(run(&mut c, "LOCK.RELEASE k a"), int(1));
    writer.token();
    reader.still_waits();
    // Also in a transaction and in a script.
    for how in ["MULTI", "EVAL"] {
        run(&mut c, "LOCK.FORCERELEASE k");
        cmd!(c, "DEL", "u");
        number(&mut c, "LOCK.ACQUIRE u a 60000 SHARED");
        let mut writer = Waiter::queue(&server, "u", "w");
        let up = if how == "MULTI" {
            c.exec_multi(&[words("LOCK.ACQUIRE u a 60000")])[0].clone()
        } else {
            c.eval(RUN, &["u"], &args!["LOCK.ACQUIRE", "a", 60000])
        };
        assert!(up.as_int() > t, "{how}: {up:?}");
        assert_eq!(run(&mut c, "LOCK.RELEASE u a"), int(1));
        writer.token();
    }
}

#[test]
fn a_lapsed_other_reader_does_not_stop_an_upgrade() {
    let server = single();
    let mut c = server.conn();
    number(&mut c, "LOCK.ACQUIRE k a 100 SHARED");
    number(&mut c, "LOCK.ACQUIRE k b 5000 SHARED");
    server.clock().advance_ms(100);
    assert_eq!(run(&mut c, "LOCK.ACQUIRE k b 5000"), nil());
    server.clock().advance_ms(1);
    let now = server.clock().now_us();
    assert_eq!(run(&mut c, "LOCK.ACQUIRE k b 5000"), int(now));
}

#[test]
fn downgrade_answers_1_to_the_holder_alone() {
    let server = recorder();
    let mut c = server.conn();
    let t = number(
        &mut c,
        "LOCK.ACQUIRE k a 5000 REENTRANT MAXHOLD 9000 META m",
    );
    number(&mut c, "LOCK.ACQUIRE k a 5000 REENTRANT");
    number(&mut c, "LOCK.ACQUIRE kept a 5000");
    run(&mut c, "LOCK.RELEASE kept a KEEP 5000");
    answers(
        &server,
        &[
            ("LOCK.DOWNGRADE k b", int(0)),
            (&format!("LOCK.DOWNGRADE k a TOKEN {}", t + 1), int(0)),
            ("LOCK.DOWNGRADE free a", int(0)),
            ("LOCK.DOWNGRADE kept a", int(0)),
            ("LOCK.DOWNGRADE k", err(&wrong_arity("lock.downgrade"))),
            ("LOCK.DOWNGRADE k a TOKEN", err(SYNTAX)),
            ("LOCK.DOWNGRADE k a TOKEN 1 TOKEN 1", err(SYNTAX)),
            ("LOCK.DOWNGRADE k a KEEP 1", err(SYNTAX)),
            (
                "LOCK.DOWNGRADE k a TOKEN 0",
                err("ERR TOKEN must be an integer between 1 and 9007199254740991"),
            ),
            (
                "LOCK.DOWNGRADE k ",
                err("ERR owner must be between 1 and 512 bytes long"),
            ),
        ],
    );
    server.clock().advance_ms(100);
    assert_eq!(
        run(&mut c, &format!("LOCK.DOWNGRADE k a token {t}")),
        int(1)
    );
    assert_eq!(mode(&mut c, "k"), "shared");
    assert_eq!(holders(&mut c, "k"), [("a".to_string(), t, 4900)]);
    assert_eq!(of_holder(&mut c, "k", "holds"), 2);
    assert_eq!(of_holder(&mut c, "k", "held_ms"), 100);
    answers(
        &server,
        &[
            ("LOCK.DOWNGRADE k a", int(1)),
            (&format!("LOCK.DOWNGRADE k a TOKEN {t}"), int(1)),
            (&format!("LOCK.DOWNGRADE k a TOKEN {}", t + 1), int(0)),
        ],
    );
    all_answer(
        &mut c,
        [
            ("LOCK.ACQUIRE k b 1000 SHARED", int(t + 100_000)),
            ("LOCK.RENEW k a 60000", int(8900)),
        ],
    );
    make_foreign_keys(&mut c);
    assert_eq!(run(&mut c, "LOCK.DOWNGRADE list a"), err(WRONG_TYPE));
}

#[test]
fn a_downgrade_wakes_the_readers_at_the_head_of_the_queue() {
    let server = single();
    let mut c = server.conn();
    let t = hold(&mut c, "k");
    let read = |o: &str| {
        let line = format!("LOCK.ACQUIRE k {o} 60000 SHARED BLOCK 60000");
        Waiter::send(&server, &line)
    };
    let mut first = [read("a"), read("b")];
    let mut writer = Waiter::queue(&server, "k", "w");
    let mut behind = read("c");
    assert_eq!(run(&mut c, "LOCK.DOWNGRADE k h"), int(1));
    assert_eq!(first.each_mut().map(Waiter::token), [t + 1, t + 2]);
    assert_eq!(owners(&mut c, "k"), ["h", "a", "b"]);
    writer.still_waits();
    behind.still_waits();
    // With a writer first nobody comes in.
    run(&mut c, "LOCK.ACQUIRE l h 60000");
    let mut writer = Waiter::queue(&server, "l", "w");
    assert_eq!(run(&mut c, "LOCK.DOWNGRADE l h"), int(1));
    writer.still_waits();
    assert_eq!(owners(&mut c, "l"), ["h"]);
    assert_eq!(run(&mut c, "LOCK.RELEASE l h"), int(1));
    writer.token();
}

// LOCK.INFO, KEEP, FORCERELEASE -----------------------------------------------------------------------

#[test]
fn info_shows_the_live_readers_in_the_order_of_their_grants() {
    let server = single();
    let (mut two, mut three) = (server.conn(), server.conn3());
    let t = number(&mut two, "LOCK.ACQUIRE k z 9000 SHARED META m");
    number(&mut two, "LOCK.ACQUIRE k over 100 SHARED");
    number(&mut two, "LOCK.ACQUIRE k a 2000 SHARED REENTRANT");
    number(&mut two, "LOCK.ACQUIRE k a 2000 SHARED REENTRANT");
    server.clock().advance_ms(250);
    let holder = |owner, token, holds, ttl, meta| {
        [
            ("owner", bulk(owner)),
            ("token", int(token)),
            ("holds", int(holds)),
            ("ttl_ms", int(ttl)),
            ("held_ms", int(250)),
            ("session", int(0)),
            ("meta", bulk(meta)),
        ]
    };
    let all = [
        holder("z", t, 1, 8750, "m"),
        holder("a", t + 2, 2, 1750, ""),
    ];
    let lock = |holders: Vec<Reply>| {
        [
            ("mode", bulk("shared")),
            ("token", int(t + 2)),
            ("ttl_ms", int(8750)),
            ("holders", array(holders)),
            ("waiters", int(0)),
        ]
    };
    let expected = lock(all.iter().map(|holder| flat(holder)).collect());
    assert_eq!(run(&mut two, "LOCK.INFO k"), flat(&expected));
    let expected = lock(all.iter().map(|holder| map(holder)).collect());
    assert_eq!(run(&mut three, "LOCK.INFO k"), map(&expected));
}

#[test]
fn info_shows_no_token_of_a_lapsed_reader() {
    let server = single();
    let mut c = server.conn();
    let t = number(&mut c, "LOCK.ACQUIRE k a 9000 SHARED");
    number(&mut c, "LOCK.ACQUIRE k b 100 SHARED");
    server.clock().advance_ms(101);
    assert_eq!(owners(&mut c, "k"), ["a"]);
    let info = cmd!(c, "LOCK.INFO", "k");
    assert_eq!(info.field("token"), &int(t));
}

#[test]
fn keep_counts_with_the_last_live_reader() {
    let server = single();
    let mut c = server.conn();
    let t = number(&mut c, "LOCK.ACQUIRE k a 60000 SHARED");
    number(&mut c, "LOCK.ACQUIRE k b 60000 SHARED");
    number(&mut c, "LOCK.ACQUIRE k over 100 SHARED");
    // Others read on: the lock is not freed, and so not kept.
    assert_eq!(run(&mut c, "LOCK.RELEASE k a KEEP 5000"), int(1));
    assert_eq!(mode(&mut c, "k"), "shared");
    assert_eq!(owners(&mut c, "k"), ["b", "over"]);
    server.clock().advance_ms(101);
    let mut writer = Waiter::queue(&server, "k", "w");
    assert_eq!(run(&mut c, "LOCK.RELEASE k b KEEP 5000"), int(1));
    assert_eq!(mode(&mut c, "k"), "kept");
    assert_eq!(cmd!(c, "PTTL", "k"), int(5000));
    let info = cmd!(c, "LOCK.INFO", "k");
    assert_eq!(info.field("token"), &int(t + 1));
    assert_eq!(run(&mut c, "LOCK.ACQUIRE k b 100 SHARED"), nil());
    writer.still_waits();
    server.clock().advance_ms(5001);
    assert_eq!(writer.token(), t + 5_102_000);
}

#[test]
fn forcerelease_ends_all_readers_and_leaves_one_line() {
    let server = single();
    server.clear_log();
    let mut c = server.conn();
    let t = number(&mut c, "LOCK.ACQUIRE k a 60000 SHARED");
    for reader in ["b", "c"] {
        number(&mut c, &format!("LOCK.ACQUIRE k {reader} 60000 SHARED"));
    }
    number(&mut c, "LOCK.ACQUIRE k over 100 SHARED");
    server.clock().advance_ms(101);
    let mut writer = Waiter::queue(&server, "k", "w");
    // A lapsed reader has no token any more.
    let over = format!("LOCK.FORCERELEASE k TOKEN {}", t + 3);
    assert_eq!(run(&mut c, &over), int(0));
    let one = format!("LOCK.FORCERELEASE k TOKEN {}", t + 1);
    assert_eq!(run(&mut c, &one), int(1));
    assert_eq!(writer.token(), server.clock().now_us());
    let log = server.log();
    let lines: Vec<&str> = log
        .lines()
        .filter(|l| l.contains("LOCK.FORCERELEASE"))
        .collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    // The first of the live ones, under its own token.
    let expected = format!(r#"LOCK.FORCERELEASE key="k" owner="a" and 2 more token={t} by "#);
    assert!(lines[0].contains(&expected), "{}", lines[0]);
    all_answer(
        &mut c,
        [
            ("LOCK.RELEASE k a", int(0)),
            ("LOCK.RENEW k b 1000", int(0)),
            ("LOCK.RELEASE k w", int(1)),
        ],
    );
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
}

#[test]
fn an_option_twice_or_unknown_is_a_syntax_error() {
    let server = recorder();
    let lines = [
        "SHARED SHARED",
        "REENTRANT REENTRANT",
        "SESSION SESSION",
        "MAXHOLD 1 MAXHOLD 1",
        "MAXHOLD",
        "SHARED 1",
        "EXCLUSIVE",
        "META",
        "SHARED META",
    ];
    let lines = lines.map(|options| format!("LOCK.ACQUIRE k o 1000 {options}"));
    refuses(&server, SYNTAX, &lines);
    // In any order and case.
    let mut c = server.conn();
    let line = "LOCK.ACQUIRE k o 1000 meta SHARED sHaReD maxhold 500 Session reentrant block 5";
    assert_eq!(number(&mut c, line), T_US);
    let info = cmd!(c, "LOCK.INFO", "k");
    assert_eq!(info.field("mode"), &bulk("shared"));
    let holder = &info.field("holders").items()[0];
    assert_eq!(holder.field("meta"), &bulk("SHARED"));
    assert_eq!(holder.field("session"), &int(1));
    assert_eq!(holder.field("ttl_ms"), &int(500));
}
