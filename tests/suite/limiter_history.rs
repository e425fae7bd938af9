//! Random histories of limiters of all kinds: whatever was done, primary, replicas and files agree.

use crate::limiter_support::*;
use crate::support::*;

/// Few keys and few policies, so that each meets what others left: rates and windows that lapse
/// within a history, and logs of more than a chunk.
fn random_line(random: &mut Random) -> String {
    let key = *random.one_of(&["a", "b", "c"]);
    let other = *random.one_of(&["a", "b", "c", "d"]);
    let policies = [
        "GCRA 20 5 1000",
        "TOKENBUCKET 20 7 1000",
        "LEAKYBUCKET 30 5 1000",
        "FIXEDWINDOW 20 3000",
        "FIXEDWINDOW 20 3000 ALIGN 777",
        "FIXEDWINDOW 30 5000",
        "SLIDINGWINDOW 20 3000",
        "SLIDINGWINDOW 30 2000",
        "SLIDINGLOG 400 3000",
        "SLIDINGLOG 300 3000",
        "SLIDINGLOG 400 9000",
        "SLIDINGLOG 400 3000",
    ];
    let policy = *random.one_of(&policies);
    let also = *random.one_of(&policies);
    let cost = 1 + random.below(15);
    let ms = 1 + random.below(3000);
    match random.below(34) {
        0..=11 => format!(
            "RL.{} COST {cost}",
            policy.replacen(' ', &format!(" {key} "), 1)
        ),
        12..=16 => format!("RL.CHARGE {key} {policy} COST {}", cost * cost),
        17..=20 => format!("RL.REFUND {key} {policy} COST {cost}"),
        21 => format!("RL.REFUND {key} {policy} COST 1000000000"),
        22..=23 => format!("RL.BLOCK {key} {ms}"),
        24..=25 => format!("RL.ALL 2 {key} e {policy} COST {cost} {also}"),
        26 => format!("RL.PEEK {key} {policy}"),
        27 => format!("RL.RESET {key}"),
        28 => format!("COPY {key} {other} REPLACE"),
        29 => format!("RENAME {key} {other}"),
        30 => format!("PEXPIRE {key} {ms}"),
        31 => format!("PERSIST {key}"),
        32 => format!("CL.THROTTLE {key} 19 5 1 {}", cost as i64 - 7),
        _ => format!("DEL {key}"),
    }
}

fn history(seed: u64) {
    // Shown when the test fails.
    println!("seed: {seed}");
    let mut random = Random(seed);
    let chain = chain();
    let mut c = chain.primary.conn();
    let mut errors = 0;
    for step in 0..600 {
        match random.below(12) {
            0..=5 => chain.clock().advance_us(random.below(20_000) as i64),
            6 => chain.clock().advance_ms(random.below(2500) as i64),
            7 => chain.clock().advance_us(-(random.below(30_000) as i64)),
            8 if random.below(8) == 0 => chain.clock().advance_ms(-HOUR_MS),
            _ => {}
        }
        let line = random_line(&mut random);
        // Mostly a call many times, so that logs grow.
        let times = if line.starts_with("RL.SLIDINGLOG") {
            20
        } else {
            1
        };
        for _ in 0..times {
            let reply = c.cmd(&words(&line));
            println!("{step}: {line} -> {reply:?}");
            if let Reply::Error(text) = &reply {
                let expected = text.starts_with("ERR key holds a")
                    || text == "ERR no such key"
                    || text.starts_with("ERR quantity")
                    || text.starts_with("ERR source and");
                assert!(expected, "{line}: {text}");
                errors += 1;
            }
            if times > 1 {
                chain.clock().advance_us(random.below(2000) as i64);
            }
        }
        if step % 20 == 19 {
            assert_same(&chain);
        }
        if step % 200 == 199 {
            // Expired keys that nobody has touched would not be loaded.
            c.cmd(&words("EXISTS a b c d e"));
            chain.sync();
            for server in [&chain.replica, &chain.primary] {
                let before = digest(server);
                assert_eq!(cmd!(server.conn(), "DEBUG", "RELOAD"), ok());
                assert_eq!(digest(server), before);
            }
        }
    }
    c.cmd(&words("EXISTS a b c d e"));
    assert_same(&chain);
    println!("{errors} errors");
    for server in chain.servers() {
        assert_eq!(counter(server, "effects_refused"), 0);
    }
    // And again from the sub-replica's own file, rewritten or not.
    for rewrite in [false, true] {
        if rewrite {
            rewrite_aof(&chain.sub);
        }
        chain.sub.kill9();
        chain.sub.start_again();
        assert_same(&chain);
    }
}

#[test]
fn random_histories_of_limiters_end_equal() {
    // A seed of one's own: SLUICE_SEED=….
    let given = std::env::var("SLUICE_SEED").ok();
    let seeds: Vec<u64> = match given.and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            let fresh = since.expect("after 1970").as_nanos() as u64;
            vec![1, 2, fresh]
        }
    };
    for seed in seeds {
        history(seed);
    }
}

/// Any policy whatever, with numbers that are small, large, or shared by several.
fn any_policy(random: &mut Random) -> String {
    let tokens = [1, 2, 5, 1000, 100_000, MAX_TOKENS - 1, MAX_TOKENS];
    let times = [
        1,
        7,
        1000,
        60_000,
        HOUR_MS,
        MAX_PERIOD_MS - 1,
        MAX_PERIOD_MS,
    ];
    let (limit, count) = (random.one_of(&tokens), random.one_of(&tokens));
    let ms = random.one_of(&times);
    match random.below(8) {
        0 => format!("GCRA {limit} {count} {ms}"),
        1 => format!("LEAKYBUCKET {limit} {count} {ms}"),
        // The same capacity at any rate: an overdraft stands under its own.
        2 | 3 => format!("TOKENBUCKET 5 {count} {ms}"),
        4 => format!("FIXEDWINDOW {limit} {ms}"),
        5 => format!("FIXEDWINDOW {limit} {ms} ALIGN {}", random.one_of(&times)),
        6 => format!("SLIDINGWINDOW {limit} {ms}"),
        _ => format!("SLIDINGLOG {} {ms}", limit.min(&100_000)),
    }
}

/// What any calls leave is a limiter that can be saved, loaded and sent to replicas.
#[test]
fn whatever_calls_leave_can_be_loaded() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let mut random = Random(20_260_725);
    for step in 0..3000 {
        match random.below(10) {
            0..=3 => chain.clock().advance_us(random.below(2000) as i64),
            4 => chain.clock().advance_ms(random.below(100_000) as i64),
            5 => chain.clock().advance_ms(-(random.below(100_000) as i64)),
            _ => {}
        }
        let policy = any_policy(&mut random);
        let cost = *random.one_of(&[1, 2, 5, 999, 1_000_000, MAX_TOKENS]);
        let line = match random.below(20) {
            0..=4 => format!("RL.{}", policy.replacen(' ', " k ", 1)),
            5..=10 => format!("RL.CHARGE k {policy} COST {cost}"),
            11..=15 => format!("RL.REFUND k {policy} COST {cost}"),
            16 => format!("RL.ALL 1 k {policy}"),
            17 => format!("RL.BLOCK k {}", 1 + random.below(200_000)),
            18 => format!("RL.PEEK k {policy}"),
            _ => "RL.RESET k".to_string(),
        };
        let reply = c.cmd(&words(&line));
        println!("{step}: {line} -> {reply:?}");
        let now = chain.clock().now_us();
        if let Reply::Error(text) = &reply {
            let expected = text.contains("limiter, not") || text.contains("100 years");
            assert!(expected, "{line}: {text}");
        }
        if cmd!(c, "EXISTS", "k") == int(1) {
            let payload = dump_of(&mut c, "k");
            let again = cmd!(c, "RESTORE", "again", 1000, &payload, "REPLACE");
            assert_eq!(again, ok(), "{step}: {line} at {now}");
        }
        if step % 50 == 49 {
            assert_same(&chain);
            assert_eq!(counter(&chain.replica, "effects_refused"), 0);
        }
    }
}
