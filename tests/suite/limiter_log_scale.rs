//! SLIDINGLOG with as many entries as a limiter may have: what they cost, and that no call touches
//! them all.

use crate::limiter_support::*;
use crate::support::*;

const COUNT: u64 = 100_000;
const POLICY: (u32, u64) = (COUNT as u32, 60_000);
const PEEK: &str = "RL.PEEK k SLIDINGLOG 100000 60000";
const CALL: &str = "RL.SLIDINGLOG k 100000 60000";
/// Bytes of the list of as many chunks as the log has: 512 places of 32 bytes.
const LIST: i64 = 512 * 32;
/// Entries that leave with one that comes, at most: as many as lie in a chunk.
const MOST_PRUNED: i64 = 256;
const ENTRY: i64 = 16;

/// A log with an entry of cost 1 in each µs, the last of them just over.
fn full_log(now_us: i64) -> Vec<u8> {
    let start = now_us as u64 - COUNT;
    let entries: Vec<_> = (0..COUNT).map(|i| (start + i, i + 1)).collect();
    limiter_dump(&sliding_log(POLICY, 0, &entries))
}

#[track_caller]
fn restore(server: &Server) -> Conn {
    let mut c = server.conn();
    let payload = full_log(server.clock().now_us());
    assert_eq!(cmd!(c, "RESTORE", "k", 0, payload, "REPLACE"), ok());
    c
}

fn usage(c: &mut Conn) -> i64 {
    cmd!(c, "MEMORY", "USAGE", "k").as_int()
}

// --- what it costs ---

#[test]
fn an_entry_costs_sixteen_bytes_and_all_are_given_back() {
    let server = own(Options::new().config("latency-tracking", "no"));
    // What the first use of everything leaves, and of the thread that frees.
    drop(restore(&server));
    cmd!(server.conn(), "UNLINK", "k");
    let before = used_at_rest(&server);
    let gone = |what: &str| {
        let left = used_at_rest(&server) - before;
        println!("{}: after {what} {left} bytes are left", flavour().name);
        // 1,600,000 it were; a connection's buffers may still be there.
        assert!(left < 200_000, "after {what} {left} bytes are left");
        assert_eq!(counter(&server, "rl_keys"), 0);
    };
    for what in ["DEL", "UNLINK", "expiry", "RL.RESET", "overwriting"] {
        let mut c = restore(&server);
        let usage = usage(&mut c) as f64 / COUNT as f64;
        let line = match what {
            "expiry" => args!["PEXPIREAT", "k", 1],
            "overwriting" => args!["SET", "k", "v", "PXAT", 1],
            word => args![word, "k"],
        };
        drop(c);
        let used = (used_at_rest(&server) - before) as f64 / COUNT as f64;
        println!(
            "{}: {used:.2} bytes an entry, MEMORY USAGE {usage:.2}",
            flavour().name
        );
        assert!((16.0..=16.6).contains(&usage), "{usage} bytes an entry");
        assert!((16.0..=17.0).contains(&used), "{used} bytes an entry");
        let reply = server.conn().cmd(&line);
        assert!(!reply.is_error(), "{what}: {reply:?}");
        gone(what);
    }
}

#[test]
fn a_log_that_grew_call_by_call_costs_no_more() {
    let server = own(Options::new().config("latency-tracking", "no"));
    let grow = |key: &str, count: u64| {
        let mut c = server.conn();
        let line = words(&format!("RL.SLIDINGLOG {key} 100000 60000"));
        for _ in 0..count {
            server.clock().advance_us(1);
            c.send(&line);
            assert_eq!(c.recv().items()[0], int(1));
        }
    };
    grow("warm-up", 10);
    cmd!(server.conn(), "DEL", "warm-up");
    let before = used_at_rest(&server);
    let count = 20_000;
    grow("k", count);
    let used = (used_at_rest(&server) - before) as f64 / count as f64;
    println!("{}: {used:.2} bytes an entry", flavour().name);
    assert!((16.0..=17.5).contains(&used), "{used} bytes an entry");
    assert_eq!(
        cmd!(server.conn(), "RL.INFO", "k").field("entries"),
        &int(count as i64)
    );
}

#[test]
fn a_long_log_is_freed_in_the_background() {
    let server = own(Options::new());
    let mut c = restore(&server);
    let freed = || -> i64 {
        let stats = server.info("memory");
        stats["lazyfreed_objects"].parse().expect("a number")
    };
    let before = freed();
    assert_eq!(cmd!(c, "UNLINK", "k"), int(1));
    eventually("a thread has freed it", || freed() == before + 1);
    // One with a few entries is not worth a thread's while.
    for _ in 0..5 {
        server.clock().advance_us(1);
        c.cmd(&words(CALL));
    }
    assert_eq!(cmd!(c, "UNLINK", "k"), int(1));
    assert_eq!(freed(), before + 1);
    assert_eq!(counter(&server, "rl_keys"), 0);
}

// --- exact answers ---

#[test]
fn a_full_log_answers_to_the_microsecond() {
    let server = single();
    let mut c = restore(&server);
    let usage_before = usage(&mut c);
    // The first entry leaves 100,000 µs before a window from now is over.
    run(
        &mut c,
        &[
            (PEEK, [0, 100_000, 0, 59_900, 60_000]),
            (CALL, [0, 100_000, 0, 59_900, 60_000]),
            (
                &format!("{CALL} COST 50000"),
                [0, 100_000, 0, 59_950, 60_000],
            ),
            (
                &format!("{PEEK} COST 50001"),
                [0, 100_000, 0, 59_950, 60_000],
            ),
            (
                &format!("{PEEK} COST 50002"),
                [0, 100_000, 0, 59_951, 60_000],
            ),
            (
                &format!("{CALL} COST 100000"),
                [0, 100_000, 0, 60_000, 60_000],
            ),
        ],
    );
    assert_eq!(usage(&mut c), usage_before, "a denial changes nothing");
    let info = cmd!(c, "RL.INFO", "k");
    for (field, value) in [("used", 100_000), ("entries", 100_000), ("remaining", 0)] {
        assert_eq!(info.field(field), &int(value), "{field}");
    }
    server.clock().advance_us(59_899_999);
    run(&mut c, &[(CALL, [0, 100_000, 0, 1, 100])]);
    server.clock().advance_us(1);
    run(
        &mut c,
        &[
            (CALL, [1, 100_000, 0, 0, 60_000]),
            (CALL, [0, 100_000, 0, 1, 60_000]),
        ],
    );
    // 1000 µs later another thousand has left.
    server.clock().advance_us(1000);
    run(
        &mut c,
        &[
            (&format!("{CALL} COST 1001"), [0, 100_000, 1000, 1, 59_999]),
            (&format!("{CALL} COST 1000"), [1, 100_000, 0, 0, 60_000]),
            (
                "RL.REFUND k SLIDINGLOG 100000 60000 COST 900",
                [1, 100_000, 900, 0, 60_000],
            ),
            // All of the newest two, and of the others what is left of it.
            (
                "RL.REFUND k SLIDINGLOG 100000 60000 COST 50101",
                [1, 100_000, 51_001, 0, 49],
            ),
        ],
    );
    let info = cmd!(c, "RL.INFO", "k");
    for (field, value) in [("used", 48_999), ("entries", 48_999)] {
        assert_eq!(info.field(field), &int(value), "{field}");
    }
    // What was given back is no more in memory; of what lapsed some is, and the queue of chunks.
    assert!(usage(&mut c) < (48_999 + 1001) * ENTRY + 25_000);
}

#[test]
fn lapsed_entries_leave_in_bounded_steps() {
    let chain = chain();
    let mut c = restore(&chain.primary);
    cmd!(c, "CONFIG", "SET", "rdbcompression", "no");
    chain.clock().advance_ms(60_000);
    run(&mut c, &[(PEEK, [1, 100_000, 100_000, 0, 0])]);
    assert_eq!(cmd!(c, "RL.INFO", "k"), nil());
    let mut before = usage(&mut c);
    assert!(before > COUNT as i64 * ENTRY);
    // The last of them leave with the 391st call.
    for calls in 1..=391 {
        // Peeks prune nothing, and neither do denials.
        let reset = if calls == 1 { 0 } else { 60_000 };
        run(&mut c, &[(PEEK, [1, 100_000, 100_001 - calls, 0, reset])]);
        if calls > 1 {
            let denial = c.cmd(&words(&format!("{CALL} COST 100000")));
            assert_eq!(denial.items()[0], int(0));
        }
        assert_eq!(usage(&mut c), before);
        run(&mut c, &[(CALL, [1, 100_000, 100_000 - calls, 0, 60_000])]);
        let after = usage(&mut c);
        let left = before - after;
        // The list of chunks becomes half as long now and then.
        let most = MOST_PRUNED * ENTRY + LIST / 2 + 64;
        assert!((0..=most).contains(&left), "{calls}: {left}");
        before = after;
    }
    // All that is left is one entry.
    assert!(before < 700, "{before}");
    let now = chain.clock().now_us() as u64;
    let rest = limiter_dump(&sliding_log(POLICY, COUNT, &[(now, COUNT + 391)]));
    let found = dump_of(&mut c, "k");
    assert_eq!(found[..found.len() - 10], rest[..rest.len() - 10]);
    assert_same(&chain);
}

// --- files and replicas ---

#[test]
fn a_full_log_survives_files_and_reaches_replicas() {
    let chain = chain();
    let mut c = restore(&chain.primary);
    chain.clock().advance_us(59_900_500);
    run(&mut c, &[(CALL, [1, 100_000, 500, 0, 60_000])]);
    assert_same(&chain);
    for server in chain.servers() {
        let before = digest(server);
        assert_eq!(cmd!(server.conn(), "DEBUG", "RELOAD"), ok());
        assert_eq!(digest(server), before);
        run(&mut server.conn(), &[(PEEK, [1, 100_000, 500, 0, 60_000])]);
    }
    // The sub-replica's file, rewritten: one effect has it all.
    rewrite_aof(&chain.sub);
    let commands = chain.sub.aof_commands();
    let of_key: Vec<_> = commands.iter().filter(|c| c[0] == b"sluice.rl").collect();
    assert_eq!(of_key.len(), 1);
    let before = digest(&chain.sub);
    assert_eq!(cmd!(chain.sub.conn(), "DEBUG", "LOADAOF"), ok());
    assert_eq!(digest(&chain.sub), before);
    let mut tap = Tap::on(&chain);
    run(&mut c, &[(CALL, [1, 100_000, 499, 0, 60_000])]);
    let sent = tap.take();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0][2].len(), 54);
    assert_same(&chain);
}
