//! Bytes that a lock takes in the server, next to the string that plays one.

use sluice_testbed::{args, Options};

const KEYS: usize = 10_000;
const OWNER: &str = "f47ac10b-58cc-4372-a567-0e02b2c3d479";

pub(crate) fn report() {
    println!("\nbytes per key, of {KEYS} (used_memory, tables of the keyspace included)\n");
    let lock = bytes_per_key(|key| args!["LOCK.ACQUIRE", key, OWNER, 600_000]);
    let string = bytes_per_key(|key| args!["SET", key, OWNER, "NX", "PX", 600_000]);
    println!("{:<44} {lock:>8}", "LOCK.ACQUIRE");
    println!("{:<44} {string:>8}", "SET NX PX");
}

fn bytes_per_key(command: impl Fn(String) -> Vec<Vec<u8>>) -> u64 {
    let server = Options::new().without_clock().start();
    let used = || -> u64 {
        let memory = server.info("memory");
        memory["used_memory"].parse().expect("a number of bytes")
    };
    let before = used();
    let commands: Vec<_> = (0..KEYS)
        .map(|n| command(format!("lock:{{{n:06}}}:abcdef")))
        .collect();
    let mut conn = server.conn();
    for chunk in commands.chunks(500) {
        for reply in conn.pipeline(chunk) {
            assert!(!reply.is_error(), "{reply:?}");
        }
    }
    // The server frees a connection, and the second table of a dictionary that has grown, in its own
    // time.
    drop(conn);
    std::thread::sleep(std::time::Duration::from_millis(500));
    (used() - before) / KEYS as u64
}
