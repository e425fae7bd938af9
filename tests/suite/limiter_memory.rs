//! What a limiter costs, that it is given back, and the counters of INFO.

use crate::limiter_support::*;
use crate::support::*;

/// 19 bytes.
fn key(i: usize) -> String {
    format!("user:{i:014}")
}

#[test]
fn memory_usage_of_a_limiter_is_at_most_48_bytes_beside_the_key() {
    let server = single();
    let mut c = server.conn();
    // A guard, which is 16 bytes, leaves out what the server adds for the key itself.
    cmd!(c, "LOCK.GUARD", "k", 1);
    let key_alone = cmd!(c, "MEMORY", "USAGE", "k").as_int() - 16;
    for line in [
        "RL.GCRA k 1 1 1000",
        "RL.TOKENBUCKET k 1000000000 1000000000 31536000000 COST 1000000000",
    ] {
        cmd!(c, "DEL", "k");
        c.cmd(&words(line));
        let usage = cmd!(c, "MEMORY", "USAGE", "k").as_int() - key_alone;
        assert!((1..=48).contains(&usage), "{line}: {usage}");
    }
}

#[test]
fn a_limiter_costs_one_allocation_of_48_bytes_and_gives_it_back() {
    // Else each command's first call leaves a histogram of 40,000 bytes behind.
    let server = Options::new().config("latency-tracking", "no").start();
    bytes_per_key(&server, |i| args!["SET", key(i), "warm-up"]);
    cmd!(server.conn(), "FLUSHALL", "SYNC");
    let empty = used_at_rest(&server);
    // A string of 20 bytes with a TTL: 161 bytes on 7.0.15 and 100 on 8.2.3 in all.
    let string = bytes_per_key(&server, |i| args!["SET", key(i), [b'v'; 20], "PX", HOUR_MS]);
    let limiter = bytes_per_key(&server, |i| args!["RL.GCRA", key(i), 5, 5, HOUR_MS]);
    println!(
        "{}: string {string:.1}, limiter {limiter:.1}",
        flavour().name
    );
    assert_eq!(counter(&server, "rl_keys"), 10_000);
    // A value of our own of 48 bytes: 193 and 140.
    let most = match (flavour().kind, flavour().version.0) {
        (Kind::Redis, 7) => 32.0,
        _ => 40.0,
    };
    let extra = limiter - string;
    assert!(
        extra <= most + 4.0,
        "a limiter costs {extra:.1} bytes more than a string"
    );

    let mut c = server.conn();
    for part in 0..10 {
        let mut reset = args!["RL.RESET"];
        reset.extend((part * 1000..(part + 1) * 1000).map(|i| key(i).into_bytes()));
        assert_eq!(c.cmd(&reset), int(1000));
    }
    drop(c);
    assert_eq!(counter(&server, "rl_keys"), 0);
    let left = used_at_rest(&server) - empty;
    println!("left after all are reset: {left} bytes");
    assert!(left < 100_000, "{left} bytes are left of 10,000 limiters");
}

#[test]
fn calls_leave_no_memory_behind() {
    let server = Options::new().start();
    let mut c = server.conn();
    let round = |c: &mut Conn| {
        let mut lines = Vec::new();
        for _ in 0..300 {
            for line in [
                "RL.GCRA k 2 1 60000",
                "RL.TOKENBUCKET k 2 1 60000",
                "RL.GCRA k 2 1 60000",
                "RL.GCRA k 2 1 3600000",
                "RL.PEEK k GCRA 2 1 60000",
                "RL.INFO k",
                "COPY k l REPLACE",
                "RL.GCRA k 9 1 60000",
                "RL.RESET k l missing",
            ] {
                lines.push(words(line));
            }
        }
        assert!(c.pipeline(&lines).iter().all(|reply| !reply.is_error()));
    };
    round(&mut c);
    // A leak shows in every round; buffers of connections come and go.
    let least = (0..10)
        .map(|_| {
            let before = used(&server);
            round(&mut c);
            used(&server) - before
        })
        .min();
    assert!(least <= Some(0), "a round leaves {least:?} bytes");
}

#[test]
fn the_defragmenter_moves_limiters_and_harms_none() {
    let server = Options::new().start();
    server.clock().freeze();
    let mut c = server.conn();
    let reply = cmd!(c, "CONFIG", "SET", "activedefrag", "yes");
    if reply.is_error() {
        println!("skipped: {} cannot defragment: {reply:?}", flavour().name);
        return;
    }
    cmd!(c, "CONFIG", "SET", "activedefrag", "no");
    let count = 60_000;
    for start in (0..count).step_by(2000) {
        // A log has allocations of its own, which stay where they are.
        let line = |i| match i % 16 {
            0 => args!["RL.SLIDINGLOG", key(i), 100, HOUR_MS, "COST", 1 + i % 100],
            _ => args!["RL.GCRA", key(i), 100, 1, HOUR_MS, "COST", 1 + i % 100],
        };
        let lines: Vec<_> = (start..start + 2000).map(line).collect();
        assert!(c.pipeline(&lines).iter().all(|reply| !reply.is_error()));
    }
    // Holes everywhere: one of eight stays.
    let stays = |i: &usize| i.is_multiple_of(8);
    for start in (0..count).step_by(2000) {
        let mut line = args!["DEL"];
        line.extend(
            (start..start + 2000)
                .filter(|i| !stays(i))
                .map(|i| key(i).into_bytes()),
        );
        c.cmd(&line);
    }
    let before = digest(&server);
    for (name, value) in [
        ("active-defrag-threshold-lower", "1"),
        ("active-defrag-ignore-bytes", "1"),
        ("active-defrag-cycle-min", "60"),
        ("active-defrag-cycle-max", "75"),
        ("activedefrag", "yes"),
    ] {
        assert_eq!(cmd!(c, "CONFIG", "SET", name, value), ok(), "{name}");
    }
    let hits = || -> i64 {
        server.info("stats")["active_defrag_hits"]
            .parse()
            .expect("a number")
    };
    eventually("memory is moved", || hits() > 3000);
    cmd!(c, "CONFIG", "SET", "activedefrag", "no");
    println!("{} allocations moved", hits());
    assert_eq!(digest(&server), before);
    for i in (0..count).filter(stays).step_by(9) {
        let peek = match i % 16 {
            0 => cmd!(c, "RL.PEEK", key(i), "SLIDINGLOG", 100, HOUR_MS),
            _ => cmd!(c, "RL.PEEK", key(i), "GCRA", 100, 1, HOUR_MS),
        };
        assert_eq!(peek.items()[2], int(99 - (i % 100) as i64));
    }
    assert_eq!(counter(&server, "rl_keys"), 7500);
}

/// The counters of limiters, as one line.
fn counters(server: &Server) -> [i64; 8] {
    [
        "rl_gcra_allowed",
        "rl_gcra_denied",
        "rl_gcra_peeked",
        "rl_tokenbucket_allowed",
        "rl_tokenbucket_denied",
        "rl_tokenbucket_peeked",
        "rl_reset",
        "rl_keys",
    ]
    .map(|name| counter(server, name))
}

#[test]
fn counters_count_exactly_what_happened() {
    let server = recorder();
    let mut c = server.conn();
    assert_eq!(counters(&server), [0; 8]);
    cmd!(c, "SET", "string", "v");
    for (line, expected) in [
        ("RL.GCRA k 2 1 60000", [1, 0, 0, 0, 0, 0, 0, 1]),
        ("RL.GCRA k 2 1 60000 COST 2", [1, 1, 0, 0, 0, 0, 0, 1]),
        ("RL.TOKENBUCKET k 2 1 60000", [1, 1, 0, 1, 0, 0, 0, 1]),
        ("RL.TOKENBUCKET k 2 1 60000", [1, 1, 0, 1, 1, 0, 0, 1]),
        (
            "RL.TOKENBUCKET l 5 1 60000 COST 5",
            [1, 1, 0, 2, 1, 0, 0, 2],
        ),
        ("RL.PEEK k GCRA 2 1 60000", [1, 1, 1, 2, 1, 0, 0, 2]),
        (
            "RL.PEEK new TOKENBUCKET 2 1 60000",
            [1, 1, 1, 2, 1, 1, 0, 2],
        ),
        ("RL.INFO k", [1, 1, 1, 2, 1, 1, 0, 2]),
        // Errors are neither.
        ("RL.GCRA k 0 1 60000", [1, 1, 1, 2, 1, 1, 0, 2]),
        ("RL.GCRA k 2 1 60000 COST 3", [1, 1, 1, 2, 1, 1, 0, 2]),
        ("RL.TOKENBUCKET k 2 1 60000 NX", [1, 1, 1, 2, 1, 1, 0, 2]),
        ("RL.GCRA string 2 1 60000", [1, 1, 1, 2, 1, 1, 0, 2]),
        ("RL.PEEK string GCRA 2 1 60000", [1, 1, 1, 2, 1, 1, 0, 2]),
        ("RL.RESET k string", [1, 1, 1, 2, 1, 1, 0, 2]),
        ("RL.RESET k k missing l", [1, 1, 1, 2, 1, 1, 2, 0]),
        ("RL.RESET k", [1, 1, 1, 2, 1, 1, 2, 0]),
    ] {
        c.cmd(&words(line));
        assert_eq!(counters(&server), expected, "{line}");
    }
    c.eval(
        "return redis.call(unpack(ARGV))",
        &["k"],
        &words("RL.GCRA k 1 1 1000"),
    );
    c.exec_multi(&vec![words("RL.GCRA k 1 1 1000"); 3]);
    assert_eq!(counters(&server), [2, 4, 1, 2, 1, 1, 2, 1]);
    // They are since the load; what lives is counted from what was loaded.
    server.restart();
    assert_eq!(counters(&server), [0, 0, 0, 0, 0, 0, 0, 1]);
    let everything = cmd!(server.conn(), "INFO", "everything").as_text();
    for name in [
        "gcra_allowed",
        "gcra_denied",
        "gcra_peeked",
        "reset",
        "keys",
    ] {
        assert!(everything.contains(&format!("sluice_rl_{name}:")), "{name}");
    }
}

#[test]
fn live_keys_are_counted_whatever_becomes_of_them() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let make = |c: &mut Conn| {
        cmd!(c, "FLUSHALL", "SYNC");
        for key in ["a", "b", "c"] {
            cmd!(c, "RL.GCRA", key, 2, 1, 60_000);
        }
    };
    make(&mut c);
    let payload = dump_of(&mut c, "a");
    let restore = args!["RESTORE", "b", 0, &payload, "REPLACE"];
    for (command, expected) in [
        (words("RL.GCRA a 2 1 60000"), 3),
        (words("DEL a b"), 1),
        (words("UNLINK a"), 2),
        (words("SET a v"), 2),
        (words("COPY a d"), 4),
        (words("COPY a b REPLACE"), 3),
        (words("RENAME a b"), 2),
        (words("RENAME a d"), 3),
        (words("MOVE a 5"), 3),
        (words("SWAPDB 0 5"), 3),
        (restore, 3),
        (words("PEXPIRE a 0"), 2),
        (words("SUNIONSTORE a missing"), 2),
        (words("FLUSHDB SYNC"), 0),
        (words("FLUSHALL SYNC"), 0),
        (words("FLUSHALL ASYNC"), 0),
    ] {
        make(&mut c);
        let reply = c.cmd(&command);
        assert!(!reply.is_error(), "{command:?}: {reply:?}");
        chain.sync();
        for server in chain.servers() {
            eventually("the background thread has freed its share", || {
                counter(server, "rl_keys") == expected
            });
        }
        chain.assert_equal();
    }
}

#[test]
fn evicted_limiters_are_not_counted_any_more() {
    let server = Options::new().start();
    let mut c = server.conn();
    let charges = (0..5000).map(|i| args!["RL.GCRA", key(i), 5, 5, HOUR_MS]);
    c.pipeline(&charges.collect::<Vec<_>>());
    cmd!(c, "CONFIG", "SET", "maxmemory-policy", "allkeys-random");
    cmd!(c, "CONFIG", "SET", "maxmemory", used(&server) - 200_000);
    // A call that has to make room for itself.
    eventually("some are evicted", || {
        let reply = cmd!(c, "RL.GCRA", "new", 1_000_000, 5, HOUR_MS / 100_000);
        assert!(
            !reply.is_error() || reply.as_text().starts_with("OOM"),
            "{reply:?}"
        );
        server.info("stats")["evicted_keys"] != "0"
    });
    cmd!(c, "CONFIG", "SET", "maxmemory", 0);
    let live = cmd!(c, "DBSIZE").as_int();
    assert!(live < 5000, "{live}");
    assert_eq!(counter(&server, "rl_keys"), live);
}

/// What a key of each shape in its smallest use takes beside one of a bucket: a log's head, its queue
/// of chunks and an entry are allocations of their own, and so is a block with the shape below it.
#[test]
fn each_shape_costs_what_its_numbers_need() {
    let server = Options::new().config("latency-tracking", "no").start();
    bytes_per_key(&server, |i| args!["SET", key(i), "warm-up"]);
    let bucket = bytes_per_key(&server, |i| args!["RL.GCRA", key(i), 5, 5, HOUR_MS]);
    for (name, most, line) in [
        ("bucket", 0.0, "RL.GCRA K 5 5 3600000"),
        ("overdraft", 0.0, "RL.CHARGE K GCRA 5 5 3600000 COST 50"),
        ("FIXEDWINDOW", 0.0, "RL.FIXEDWINDOW K 5 3600000"),
        ("SLIDINGWINDOW", 0.0, "RL.SLIDINGWINDOW K 5 3600000"),
        ("SLIDINGLOG", 112.0, "RL.SLIDINGLOG K 5 3600000"),
        ("blocked only", 64.0, "RL.BLOCK K 3600000"),
    ] {
        let words = words(line);
        let cost = bytes_per_key(&server, |i| {
            let named = |word: &Vec<u8>| match word.as_slice() {
                b"K" => key(i).into_bytes(),
                _ => word.clone(),
            };
            words.iter().map(named).collect()
        });
        println!(
            "{}: {name} {cost:.1}, {:.1} more than a bucket",
            flavour().name,
            cost - bucket
        );
        assert!(
            cost - bucket <= most + 4.0,
            "{name}: {:.1} more",
            cost - bucket
        );
    }
}

#[test]
fn memory_usage_has_a_block_and_a_log_in_it() {
    let server = single();
    let mut c = server.conn();
    let usage = |c: &mut Conn| cmd!(c, "MEMORY", "USAGE", "k").as_int();
    cmd!(c, "RL.GCRA", "k", 5, 5, 1000);
    let bucket = usage(&mut c);
    cmd!(c, "RL.BLOCK", "k", 1000);
    // Its two ends, and the shape that was there.
    assert_eq!(usage(&mut c) - bucket, 56);
    for (line, extra) in [
        ("RL.FIXEDWINDOW k 5 1000", 0..=0),
        ("RL.SLIDINGWINDOW k 5 1000", 0..=0),
        ("RL.SLIDINGLOG k 5 1000", 112..=112),
    ] {
        cmd!(c, "RL.RESET", "k");
        c.cmd(&words(line));
        let more = usage(&mut c) - bucket;
        println!("{line}: {more}");
        assert!(extra.contains(&more), "{line}: {more}");
    }
    // A few entries take a little more room than they need, not a chunk.
    let one = usage(&mut c);
    for n in 2..=300i64 {
        server.clock().advance_us(1);
        cmd!(c, "RL.SLIDINGLOG", "k", 1000, 1000);
        let entries = usage(&mut c) - one + 16;
        // Room of a quarter more or four; the second chunk is whole.
        let most = if n <= 256 {
            n * 20 + 64
        } else {
            n * 16 + 4096 + 128
        };
        assert!((n * 16..=most).contains(&entries), "{n}: {entries}");
    }
}
