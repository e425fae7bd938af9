//! Bytes that a key takes in the server: a lock next to the string that plays one, and each kind of
//! limiter.

use sluice_testbed::Options;

const KEYS: usize = 10_000;
const OWNER: &str = "f47ac10b-58cc-4372-a567-0e02b2c3d479";

/// What is measured, and how often the command runs on each key.
struct Row {
    name: &'static str,
    /// `{key}` and `{owner}` are replaced.
    command: &'static str,
    times: usize,
    keys: usize,
}

impl Row {
    const fn new(name: &'static str, command: &'static str) -> Row {
        Row {
            name,
            command,
            times: 1,
            keys: KEYS,
        }
    }

    /// Of a log; fewer keys where they are long.
    const fn log(name: &'static str, times: usize, keys: usize) -> Row {
        Row {
            times,
            keys,
            ..Row::new(name, "RL.SLIDINGLOG {key} 100000 6000000")
        }
    }
}

const ROWS: &[Row] = &[
    Row::new("LOCK.ACQUIRE", "LOCK.ACQUIRE {key} {owner} 600000"),
    Row::new("SET NX PX", "SET {key} {owner} NX PX 600000"),
    Row::new("RL.GCRA", "RL.GCRA {key} 10 10 600000"),
    Row::new("RL.FIXEDWINDOW", "RL.FIXEDWINDOW {key} 10 600000"),
    Row::new("RL.SLIDINGWINDOW", "RL.SLIDINGWINDOW {key} 10 600000"),
    Row::log("RL.SLIDINGLOG, 1 entry", 1, KEYS),
    Row::log("RL.SLIDINGLOG, 10 entries", 10, KEYS),
    Row::log("RL.SLIDINGLOG, 100 entries", 100, KEYS),
    Row::log("RL.SLIDINGLOG, 1,000 entries", 1000, 1000),
    Row::log("RL.SLIDINGLOG, 100,000 entries", 100_000, 10),
    Row::new("RL.BLOCK, nothing used", "RL.BLOCK {key} 600000"),
];

pub(crate) fn report() {
    println!("\nbytes per key (used_memory, tables of the keyspace included)\n");
    for row in ROWS {
        println!("{:<44} {:>8}", row.name, bytes_per_key(row));
    }
}

fn bytes_per_key(row: &Row) -> u64 {
    let server = Options::new().without_clock().start();
    let used = || -> u64 {
        let memory = server.info("memory");
        memory["used_memory"].parse().expect("a number of bytes")
    };
    let before = used();
    let command = |n: usize| -> Vec<Vec<u8>> {
        let key = format!("lock:{{{n:06}}}:abcdef");
        let word = |word: &str| word.replace("{key}", &key).replace("{owner}", OWNER);
        row.command
            .split(' ')
            .map(|text| word(text).into())
            .collect()
    };
    let calls = row.times * row.keys;
    let mut conn = server.conn();
    for first in (0..calls).step_by(500) {
        let pipeline = first..calls.min(first + 500);
        let commands: Vec<_> = pipeline.map(|n| command(n % row.keys)).collect();
        for reply in conn.pipeline(&commands) {
            assert!(!reply.is_error(), "{reply:?}");
        }
    }
    // The server frees a connection, and the second table of a dictionary that has grown, in its own
    // time.
    drop(conn);
    std::thread::sleep(std::time::Duration::from_millis(500));
    (used() - before) / row.keys as u64
}
