//! What several files of the suite share.

use std::time::{Duration, Instant};

pub(crate) use sluice_testbed::{
    args, array, bulk, chain, cmd, err, eventually, flavour, int, nil, ok, single, status, Aof,
    Conn, Kind, Options, Reply, Server,
};

/// An owner as clients make them: 36 bytes.
pub(crate) const UUID: &str = "f47ac10b-58cc-4372-a567-0e02b2c3d479";

pub(crate) const WRONG_TYPE: &str =
    "WRONGTYPE Operation against a key holding the wrong kind of value";

/// A fresh instant for servers that a test starts itself, in µs; not at the start of its
/// millisecond.
pub(crate) const T_US: i64 = 2_000_000_000_123_457;

/// A server whose append-only file shows what it propagates, its clock frozen at [`T_US`].
#[track_caller]
pub(crate) fn recorder() -> Server {
    let server = Options::new().aof(Aof::Pure).start();
    server.clock().freeze_at(T_US);
    server
}

/// A command as one would type it. Two spaces in a row enclose an empty argument.
pub(crate) fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ')
        .map(|word| word.as_bytes().to_vec())
        .collect()
}

/// Whether a database still is what it was, seen from every side.
#[derive(Debug, PartialEq)]
struct Footprint {
    digest: Reply,
    /// Of each key: name and PEXPIRETIME. The digest has only that there is one.
    deadlines: Vec<(Reply, Reply)>,
    dirty: String,
    /// Bytes propagated to the append-only file, if there is one.
    aof: Option<String>,
}

impl Footprint {
    fn of(server: &Server, conn: &mut Conn) -> Self {
        let mut keys = cmd!(conn, "KEYS", "*").items().to_vec();
        keys.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        let deadline = |key: Reply| {
            let at = cmd!(conn, "PEXPIRETIME", key.as_bytes());
            (key, at)
        };
        let deadlines = keys.into_iter().map(deadline).collect();
        let info = server.info("persistence");
        Self {
            digest: cmd!(conn, "DEBUG", "DIGEST"),
            deadlines,
            dirty: info["rdb_changes_since_last_save"].clone(),
            aof: info.get("aof_current_size").cloned(),
        }
    }
}

/// Runs `act` and checks that it wrote and propagated nothing, aborted no WATCH and invalidated no
/// client's cache. What it propagates shows on a [`recorder`].
#[track_caller]
pub(crate) fn changes_nothing<T>(server: &Server, act: impl FnOnce() -> T) -> T {
    let mut conn = server.conn();
    let before = Footprint::of(server, &mut conn);
    let mut watch = args!["WATCH", "k"];
    watch.extend(
        before
            .deadlines
            .iter()
            .map(|(key, _)| key.as_bytes().to_vec()),
    );
    let mut watcher = server.conn();
    assert_eq!(watcher.cmd(&watch), ok());
    let mut cache = server.conn3();
    assert_eq!(cmd!(cache, "CLIENT", "TRACKING", "ON", "BCAST"), ok());

    let result = act();

    assert_eq!(cmd!(cache, "PING"), status("PONG"));
    assert_eq!(pushed(&mut cache), None, "a client's cache was invalidated");
    // Empty: over maxmemory the server takes no command into a transaction.
    assert_eq!(watcher.multi(&[]), array([]), "WATCH was aborted");
    assert_eq!(Footprint::of(server, &mut conn), before);
    result
}

/// A push that came before the last reply.
pub(crate) fn pushed(conn: &mut Conn) -> Option<Reply> {
    conn.recv_timeout(std::time::Duration::ZERO)
}

/// Checks that each command, as one would type it, answers exactly this and changes nothing.
#[track_caller]
pub(crate) fn answers(server: &Server, cases: &[(&str, Reply)]) {
    let mut conn = server.conn();
    changes_nothing(server, || {
        for (line, reply) in cases {
            assert_eq!(conn.cmd(&words(line)), *reply, "{line}");
        }
    });
}

/// Checks that each command answers this error and changes nothing.
#[track_caller]
pub(crate) fn refuses<S: AsRef<str>>(server: &Server, error: &str, lines: &[S]) {
    let cases: Vec<_> = lines
        .iter()
        .map(|line| (line.as_ref(), err(error)))
        .collect();
    answers(server, &cases);
}

/// What is no integer in `1..=max`, whatever it is used for.
pub(crate) fn no_integers_up_to(max: u64) -> Vec<String> {
    let mut texts: Vec<String> = [
        "",
        "0",
        "-1",
        "-0",
        "+1",
        "01",
        "00",
        "1.0",
        "1.5",
        "1e3",
        "0x10",
        "1_000",
        "1,000",
        "abc",
        "1a",
        "a1",
        "1\0",
        "1\t",
        "\t1",
        "\u{661}",
        "nan",
        "inf",
        "-9223372036854775808",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "18446744073709551617",
        "99999999999999999999",
        "100000000000000000001",
        "340282366920938463463374607431768211457",
    ]
    .map(String::from)
    .to_vec();
    texts.push((max + 1).to_string());
    texts.push(format!("0{max}"));
    texts.push("1".repeat(1000));
    texts
}

/// Keys of every type but ours, each named after its type.
pub(crate) fn make_foreign_keys(conn: &mut Conn) -> [&'static str; 6] {
    for line in [
        "SET string v",
        "RPUSH list v",
        "HSET hash f v",
        "SADD set v",
        "ZADD zset 1 v",
        "XADD stream * f v",
    ] {
        let reply = conn.cmd(&words(line));
        assert!(!reply.is_error(), "{line}: {reply:?}");
    }
    ["string", "list", "hash", "set", "zset", "stream"]
}

pub(crate) const SYNTAX: &str = "ERR syntax error";

/// The server's own refusal of a command with too few or too many words.
pub(crate) fn wrong_arity(command: &str) -> String {
    format!("ERR wrong number of arguments for '{command}' command")
}

/// Whether the server has one instant for a whole MULTI or script, and ACL categories for the
/// commands of modules: Redis 7.2 and Valkey have.
pub(crate) fn since_7_2() -> bool {
    flavour().kind == Kind::Valkey || flavour().version >= (7, 2, 0)
}

// --- stored states, effects and DUMP payloads as bytes, written down from the format alone ---

/// The counter's end: tokens stay below 2^53.
pub(crate) const LAST_TOKEN: u64 = (1 << 53) - 1;

/// A held lock in its stored form without the version byte.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) token: u64,
    pub(crate) deadline_ms: u64,
    pub(crate) granted_ms: u64,
    pub(crate) holds: u32,
    pub(crate) owner: Vec<u8>,
    pub(crate) meta: Vec<u8>,
}

impl Held {
    /// Granted now for `lease_ms`, under the token of this microsecond.
    pub(crate) fn at(now_us: i64, lease_ms: u64, owner: impl AsRef<[u8]>) -> Held {
        let (token, granted_ms) = (now_us as u64, now_us as u64 / 1000);
        Held {
            token,
            deadline_ms: granted_ms + lease_ms,
            granted_ms,
            holds: 1,
            owner: owner.as_ref().to_vec(),
            meta: Vec::new(),
        }
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        let mut out = vec![0]; // exclusive
        out.extend(self.token.to_le_bytes());
        out.extend(self.deadline_ms.to_le_bytes());
        out.extend(self.granted_ms.to_le_bytes());
        // No MAXHOLD.
        out.extend(0u64.to_le_bytes());
        out.extend(self.holds.to_le_bytes());
        out.extend((self.owner.len() as u16).to_le_bytes());
        out.extend((self.meta.len() as u16).to_le_bytes());
        out.extend(&self.owner);
        out.extend(&self.meta);
        out
    }

    pub(crate) fn stored(&self) -> Vec<u8> {
        [&[1], &self.body()[..]].concat()
    }

    pub(crate) fn effect(&self, now_us: i64) -> Vec<u8> {
        effect(now_us, &self.body())
    }

    pub(crate) fn dump(&self) -> Vec<u8> {
        dump("sluice-lk", 1, &self.stored())
    }
}

/// A kept lock, and a guard: both are a token and an end.
pub(crate) fn kept_body(token: u64, until_ms: u64) -> Vec<u8> {
    [&[1], &guard_body(token, until_ms)[..]].concat()
}

pub(crate) fn guard_body(token: u64, until_ms: u64) -> Vec<u8> {
    [token.to_le_bytes(), until_ms.to_le_bytes()].concat()
}

/// An effect: version, the primary's clock in microseconds, state.
pub(crate) fn effect(now_us: i64, body: &[u8]) -> Vec<u8> {
    [&[1], &now_us.to_le_bytes()[..], body].concat()
}

/// What DUMP answers for a module value that is one string: type byte, module id, opcode 5
/// (a string) and its bytes, opcode 0 (end), RDB version, checksum.
pub(crate) fn dump(type_name: &str, encver: u64, blob: &[u8]) -> Vec<u8> {
    let mut out = vec![7];
    out.push(0x81);
    out.extend(module_id(type_name, encver).to_be_bytes());
    out.push(5);
    out.extend(rdb_string(blob));
    out.push(0);
    checksummed(out)
}

/// Appends RDB version 10, which every server reads, and the checksum.
pub(crate) fn checksummed(mut payload: Vec<u8>) -> Vec<u8> {
    payload.extend(10u16.to_le_bytes());
    let crc = crc64(&payload);
    payload.extend(crc.to_le_bytes());
    payload
}

/// A type's nine characters, six bits each, and ten bits of encoding version.
pub(crate) fn module_id(type_name: &str, encver: u64) -> u64 {
    const CHARSET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let name = type_name.bytes().fold(0u64, |id, byte| {
        let at = CHARSET.iter().position(|&c| c == byte);
        id << 6 | at.expect("a character of type names") as u64
    });
    name << 10 | encver
}

/// A string in an RDB, uncompressed.
pub(crate) fn rdb_string(bytes: &[u8]) -> Vec<u8> {
    let mut out = match bytes.len() {
        len @ ..64 => vec![len as u8],
        len @ ..16384 => vec![0x40 | (len >> 8) as u8, len as u8],
        len => [&[0x80], &(len as u32).to_be_bytes()[..]].concat(),
    };
    out.extend(bytes);
    out
}

/// CRC-64/Jones, as Redis has it.
pub(crate) fn crc64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ u64::from(byte), |crc, _| {
            (crc >> 1) ^ (0x95ac_9329_ac4b_c9b5 * (crc & 1))
        })
    })
}

/// A command as it stands in an append-only file or on a replication link.
pub(crate) fn resp(command: &[Vec<u8>]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", command.len()).into_bytes();
    for word in command {
        out.extend(format!("${}\r\n", word.len()).into_bytes());
        out.extend(word);
        out.extend(b"\r\n");
    }
    out
}

/// A counter of `INFO sluice`, without the prefix.
pub(crate) fn counter(server: &Server, name: &str) -> i64 {
    let fields = server.info("sluice");
    let field = format!("sluice_{name}");
    match fields.get(&field) {
        Some(value) => value.parse().expect("counters are integers"),
        None => panic!("no {field} in {fields:?}"),
    }
}

/// Rewrites the append-only file and waits until that is done.
pub(crate) fn rewrite_aof(server: &Server) {
    wait_for_rewrites(server);
    let reply = cmd!(server.conn(), "BGREWRITEAOF");
    assert!(!reply.is_error(), "{reply:?}");
    wait_for_rewrites(server);
    assert_eq!(
        server.info("persistence")["aof_last_bgrewrite_status"],
        "ok"
    );
}

/// Restarts the server with more commands at the end of its append-only file, as a primary of
/// another version (or a broken disk) would have left them.
#[track_caller]
pub(crate) fn append_to_aof(server: &Server, commands: &[Vec<Vec<u8>>]) {
    use std::io::Write;
    server.shutdown_nosave();
    let dir = server.dir().join("appendonlydir");
    let last = std::fs::read_dir(&dir)
        .expect("the server has an AOF")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.to_string_lossy().ends_with(".incr.aof"))
        .max()
        .expect("an AOF has an increment");
    let mut file = std::fs::File::options()
        .append(true)
        .open(last)
        .expect("the increment is ours");
    for command in commands {
        file.write_all(&resp(command)).expect("cannot append");
    }
    server.start_again();
}

/// Waits until no rewrite of the append-only file is running or about to.
pub(crate) fn wait_for_rewrites(server: &Server) {
    eventually("no rewrite of the AOF is running", || {
        let info = server.info("persistence");
        info["aof_rewrite_in_progress"] == "0" && info["aof_rewrite_scheduled"] == "0"
    });
}

/// Lets expired keys lie until they are touched. For tests that look at the deadline's own
/// millisecond: the active expiry of Redis 8 deletes a key in it, one millisecond before the same
/// server would find it expired.
pub(crate) fn leave_expired(c: &mut Conn) {
    assert_eq!(cmd!(c, "DEBUG", "SET-ACTIVE-EXPIRE", 0), ok());
}

/// `used_memory`.
pub(crate) fn used(server: &Server) -> i64 {
    server.info("memory")["used_memory"]
        .parse()
        .expect("a number")
}

/// `used_memory` once it has come to rest: tables are moved to their new size a millisecond in every
/// tenth of a second, and buffers of connections go a little after these.
pub(crate) fn used_at_rest(server: &Server) -> i64 {
    let mut last = used(server);
    let mut since = Instant::now();
    eventually("the memory in use comes to rest", || {
        let now = used(server);
        if (now - last).abs() > 1000 {
            (last, since) = (now, Instant::now());
        }
        since.elapsed() > Duration::from_millis(250)
    });
    last
}

/// Bytes for each of 10,000 values that `line` makes, tables of the server included.
pub(crate) fn bytes_per_key(server: &Server, line: impl Fn(usize) -> Vec<Vec<u8>>) -> f64 {
    cmd!(server.conn(), "FLUSHALL", "SYNC");
    let before = used_at_rest(server);
    // A connection of its own, whose buffers go with it.
    let mut c = server.conn();
    for part in 0..10 {
        let lines: Vec<_> = (part * 1000..(part + 1) * 1000).map(&line).collect();
        assert!(c.pipeline(&lines).iter().all(|reply| !reply.is_error()));
    }
    assert_eq!(cmd!(c, "DBSIZE"), int(10_000));
    drop(c);
    (used_at_rest(server) - before) as f64 / 10_000.0
}
