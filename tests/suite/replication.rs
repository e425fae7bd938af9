//! What replicas get, and that they then hold the same state.

use crate::support::*;
use sluice_testbed::{Chain, Clock};

const HOUR_MS: i64 = 3_600_000;

/// What the chain propagated since `from` commands stood in the sub-replica's file.
pub(crate) struct Tap<'a> {
    chain: &'a Chain,
    from: usize,
}

impl<'a> Tap<'a> {
    pub(crate) fn on(chain: &'a Chain) -> Tap<'a> {
        // A sub-replica that an earlier test restarted may still be starting its file anew.
        wait_for_rewrites(&chain.sub);
        // So that no SELECT follows.
        cmd!(chain.primary.conn(), "SET", "tap", "1");
        cmd!(chain.primary.conn(), "DEL", "tap");
        chain.sync();
        let from = chain.sub.aof_commands().len();
        Tap { chain, from }
    }

    /// Everything new, as it came over both links.
    pub(crate) fn take(&mut self) -> Vec<Vec<Vec<u8>>> {
        self.chain.sync();
        let new = self.chain.sub.aof_commands().split_off(self.from);
        self.from += new.len();
        new
    }
}

/// Digests and the absolute expiry of every key are equal on all three.
#[track_caller]
fn assert_same(chain: &Chain) {
    chain.assert_equal();
    let [primary, replica, sub] = chain.servers().map(deadlines);
    assert_eq!(primary, replica);
    assert_eq!(replica, sub);
}

fn deadlines(server: &Server) -> Vec<(Vec<u8>, i64)> {
    let mut c = server.conn();
    let mut all: Vec<_> = cmd!(c, "KEYS", "*")
        .items()
        .iter()
        .map(|key| {
            let key = key.as_bytes().to_vec();
            let at = cmd!(c, "PEXPIRETIME", &key).as_int();
            (key, at)
        })
        .collect();
    all.sort();
    all
}

#[track_caller]
fn run(server: &Server, lines: &[(&str, Reply)]) {
    let mut c = server.conn();
    for (line, expected) in lines {
        assert_eq!(&c.cmd(&words(line)), expected, "{line}");
    }
}

#[test]
fn all_three_agree_after_every_kind_of_command() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "me", 5000).as_int();
    assert_same(&chain);
    let lines = [
        ("LOCK.ACQUIRE k me 9000".to_string(), int(token)),
        ("LOCK.ACQUIRE k other 9000".to_string(), nil()),
        ("LOCK.RENEW k me 20000".to_string(), int(20000)),
        (format!("LOCK.RENEW k me 30000 TOKEN {token}"), int(30000)),
        ("LOCK.RENEW k other 30000".to_string(), int(0)),
        (
            "LOCK.ACQUIRE m me 5000 META host-7".to_string(),
            int(token + 1),
        ),
        ("LOCK.RELEASE k me KEEP 700".to_string(), int(1)),
        ("LOCK.ACQUIRE k me 5000".to_string(), nil()),
        ("LOCK.RELEASE k me".to_string(), int(0)),
        ("LOCK.FORCERELEASE k".to_string(), int(1)),
        ("LOCK.GUARD g 41".to_string(), int(1)),
        ("LOCK.GUARD g 40".to_string(), int(0)),
        ("LOCK.GUARD g 42 PX 999999999".to_string(), int(1)),
        ("LOCK.RELEASE m me".to_string(), int(1)),
        ("LOCK.ACQUIRE z me 86400000".to_string(), int(token + 2)),
        ("EXPIRE z 5".to_string(), int(1)),
        ("LOCK.RENEW z me 1000".to_string(), int(86400000)),
        ("PERSIST z".to_string(), int(1)),
        ("LOCK.ACQUIRE z me 1".to_string(), int(token + 2)),
    ];
    for (line, expected) in lines {
        assert_eq!(c.cmd(&words(&line)), expected, "{line}");
        assert_same(&chain);
    }
    let long = [vec![0xff; 500], b"\0\r\n$*".to_vec()].concat();
    let meta = vec![0u8; 1024];
    cmd!(c, "LOCK.ACQUIRE", "b", &long, 5000, "META", &meta);
    assert_same(&chain);
    chain.clock().advance_ms(5001);
    cmd!(c, "LOCK.ACQUIRE", "b", "next", 5000);
    assert_same(&chain);
}

#[test]
fn replicas_get_effects_with_absolute_state_and_a_plain_del() {
    let chain = chain();
    let now = chain.clock().now_us();
    let mut tap = Tap::on(&chain);
    let mut c = chain.primary.conn();

    assert_eq!(
        cmd!(c, "LOCK.ACQUIRE", "k", UUID, 5000, "META", "m"),
        int(now)
    );
    let mut held = Held::at(now, 5000, UUID);
    held.meta = b"m".to_vec();
    let first = args!["sluice.lk", "k", held.effect(now)];
    assert_eq!(tap.take(), [first]);

    chain.clock().advance_ms(1500);
    let later = now + 1_500_000;
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", UUID, 9000), int(9000));
    held.deadline_ms = later as u64 / 1000 + 9000;
    let renewed = args!["sluice.lk", "k", held.effect(later)];
    assert_eq!(tap.take(), [renewed]);

    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", UUID, "KEEP", 300), int(1));
    let kept = effect(later, &kept_body(now as u64, later as u64 / 1000 + 300));
    assert_eq!(tap.take(), [args!["sluice.lk", "k", kept]]);

    assert_eq!(cmd!(c, "LOCK.FORCERELEASE", "k"), int(1));
    assert_eq!(tap.take(), [args!["DEL", "k"]]);

    cmd!(c, "LOCK.ACQUIRE", "k", UUID, 5000);
    tap.take();
    assert_eq!(cmd!(c, "LOCK.RELEASE", "k", UUID), int(1));
    assert_eq!(tap.take(), [args!["DEL", "k"]]);

    assert_eq!(cmd!(c, "LOCK.GUARD", "g", 77, "PX", 100), int(1));
    let guard = effect(later, &guard_body(77, later as u64 / 1000 + 100));
    assert_eq!(tap.take(), [args!["sluice.fn", "g", guard]]);
}

#[test]
fn several_writes_of_one_unit_are_wrapped() {
    let chain = chain();
    let now = chain.clock().now_us();
    let mut tap = Tap::on(&chain);
    let mut c = chain.primary.conn();
    let grant = |key: &str, token: i64| {
        let mut held = Held::at(now, 5000, "o");
        held.token = token as u64;
        args!["sluice.lk", key, held.effect(now)]
    };
    let acquire = |key: &str| args!["LOCK.ACQUIRE", key, "o", 5000];

    c.exec_multi(&[acquire("a"), acquire("b"), acquire("a")]);
    let unit = |commands: &[Vec<Vec<u8>>]| [&[args!["MULTI"]], commands, &[args!["EXEC"]]].concat();
    assert_eq!(tap.take(), unit(&[grant("a", now), grant("b", now + 1)]));

    c.exec_multi(&[acquire("c"), args!["LOCK.ACQUIRE", "a", "busy", 1]]);
    let propagated = tap.take();
    // One write in a transaction: some servers wrap it all the same.
    assert!(
        propagated == [grant("c", now + 2)] || propagated == unit(&[grant("c", now + 2)]),
        "{propagated:?}"
    );

    let script = "redis.call('LOCK.ACQUIRE', KEYS[1], 'o', 5000) return redis.call('LOCK.RELEASE', KEYS[2], 'o')";
    assert_eq!(c.eval(script, &["d", "c"], &[]), int(1));
    assert_eq!(tap.take(), unit(&[grant("d", now + 3), args!["DEL", "c"]]));
    assert_same(&chain);
}

#[test]
fn busy_negative_and_wrong_calls_propagate_nothing() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let now = cmd!(c, "LOCK.ACQUIRE", "k", "me", 5000).as_int();
    cmd!(c, "LOCK.RELEASE", "k", "me", "KEEP", 5000);
    cmd!(c, "LOCK.ACQUIRE", "l", "me", 5000);
    cmd!(c, "LOCK.GUARD", "g", 50);
    cmd!(c, "SET", "s", "v");
    chain.sync();
    let offset = || chain.primary.info("replication")["master_repl_offset"].clone();
    let before = offset();
    let wrong = err(WRONG_TYPE);
    run(
        &chain.primary,
        &[
            ("LOCK.ACQUIRE k me 1000", nil()),
            ("LOCK.ACQUIRE l you 1000", nil()),
            ("LOCK.ACQUIRE l me 1000", int(now + 1)),
            ("LOCK.ACQUIRE l me 5000", int(now + 1)),
            ("LOCK.RENEW l me 1", int(5000)),
            ("LOCK.RENEW l me 5000", int(5000)),
            ("LOCK.RENEW l you 1000", int(0)),
            ("LOCK.RENEW k me 1000", int(0)),
            ("LOCK.RENEW none me 1000", int(0)),
            ("LOCK.RELEASE l you", int(0)),
            ("LOCK.RELEASE l me TOKEN 1", int(0)),
            ("LOCK.RELEASE k me KEEP 9", int(0)),
            ("LOCK.RELEASE none me", int(0)),
            ("LOCK.FORCERELEASE none", int(0)),
            ("LOCK.FORCERELEASE l TOKEN 1", int(0)),
            (
                "LOCK.GUARD g 49 PX 999999999999",
                err("ERR PX must be an integer between 1 and 31536000000"),
            ),
            ("LOCK.GUARD g 49 PX 31536000000", int(0)),
            ("LOCK.GUARD g 50 PX 1", int(1)),
            ("LOCK.ACQUIRE s me 1000", wrong.clone()),
            ("LOCK.GUARD l 50", wrong.clone()),
            ("LOCK.RENEW g me 1000", wrong),
            ("LOCK.INFO none", nil()),
        ],
    );
    assert_eq!(
        c.eval("return redis.call('LOCK.ACQUIRE', 'l', 'you', 9)", &[], &[]),
        nil()
    );
    assert_eq!(c.exec_multi(&[words("LOCK.ACQUIRE l you 9")]), [nil()]);
    assert_eq!(offset(), before);
    assert_same(&chain);
}

#[test]
fn a_replica_with_another_clock_holds_the_same_state() {
    let primary = single();
    for off in [-HOUR_MS, HOUR_MS] {
        let clock = Clock::new();
        clock.freeze_at(primary.clock().now_us() + off * 1000);
        let replica = Options::new()
            .clock(&clock)
            .aof(Aof::Pure)
            .replica_of(&primary)
            .start();
        replica.wait_synced_with(&primary);
        let mut c = primary.conn();
        let token = cmd!(c, "LOCK.ACQUIRE", "k", UUID, 2 * HOUR_MS).as_int();
        cmd!(c, "LOCK.ACQUIRE", "short", "x", 1000);
        cmd!(c, "LOCK.ACQUIRE", "kept", "x", 1000);
        cmd!(c, "LOCK.RELEASE", "kept", "x", "KEEP", 3 * HOUR_MS);
        cmd!(c, "LOCK.GUARD", "g", 7);
        replica.wait_synced_with(&primary);
        let mut r = replica.conn();
        let digest = cmd!(c, "DEBUG", "DIGEST");
        assert_eq!(cmd!(r, "DEBUG", "DIGEST"), digest);
        for key in ["k", "kept", "g"] {
            let at = cmd!(c, "PEXPIRETIME", key);
            assert_eq!(cmd!(r, "PEXPIRETIME", key), at, "{key}");
        }
        // Read by the replica's own clock.
        let info = cmd!(r, "LOCK.INFO", "k");
        assert_eq!(info.field("token"), &int(token));
        assert_eq!(info.field("ttl_ms"), &int(2 * HOUR_MS - off));
        assert_eq!(cmd!(r, "LOCK.INFO", "short").is_nil(), off > 0);
        // Its own file gives the same again.
        replica.restart();
        replica.wait_synced_with(&primary);
        assert_eq!(cmd!(replica.conn(), "DEBUG", "DIGEST"), digest);
        cmd!(c, "FLUSHALL");
    }
}

#[test]
fn a_replica_that_stood_still_holds_the_same_state() {
    let chain = chain();
    let mut c = chain.primary.conn();
    chain.replica.sigstop();
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "me", 10_000).as_int();
    cmd!(c, "LOCK.ACQUIRE", "gone", "me", 1000);
    cmd!(c, "LOCK.GUARD", "g", 5, "PX", 10_000);
    chain.clock().advance_ms(4000);
    assert_eq!(
        cmd!(c, "LOCK.ACQUIRE", "gone", "you", 5000),
        int(token + 4_000_000)
    );
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", "me", 7000), int(7000));
    chain.clock().advance_ms(2000);
    chain.replica.sigcont();
    assert_same(&chain);
    for server in chain.servers() {
        let info = cmd!(server.conn(), "LOCK.INFO", "k");
        assert_eq!(info.field("ttl_ms"), &int(5000));
        assert_eq!(cmd!(server.conn(), "PTTL", "k"), int(5000));
        assert_eq!(cmd!(server.conn(), "PTTL", "g"), int(4000));
    }
}

#[test]
fn an_expired_lock_reads_as_free_on_a_replica() {
    let chain = chain();
    for server in chain.servers() {
        cmd!(server.conn(), "DEBUG", "SET-ACTIVE-EXPIRE", 0);
    }
    let mut c = chain.primary.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", "me", 1000);
    cmd!(c, "LOCK.ACQUIRE", "persisted", "me", 1000);
    cmd!(c, "PERSIST", "persisted");
    chain.clock().advance_ms(1000);
    chain.sync();
    for server in chain.servers() {
        assert!(!cmd!(server.conn(), "LOCK.INFO", "k").is_nil());
        assert!(!cmd!(server.conn(), "LOCK.INFO", "persisted").is_nil());
    }
    chain.clock().advance_ms(1);
    for server in [&chain.sub, &chain.replica, &chain.primary] {
        assert_eq!(cmd!(server.conn(), "LOCK.INFO", "k"), nil());
        assert_eq!(cmd!(server.conn(), "LOCK.INFO", "persisted"), nil());
    }
    assert_same(&chain);
}

#[test]
fn ttls_agree_everywhere() {
    let chain = chain();
    let mut c = chain.primary.conn();
    cmd!(c, "LOCK.ACQUIRE", "a", "me", 1234);
    cmd!(c, "LOCK.ACQUIRE", "b", "me", 1234);
    cmd!(c, "LOCK.RENEW", "b", "me", 4321);
    cmd!(c, "LOCK.ACQUIRE", "c", "me", 1234);
    cmd!(c, "LOCK.RELEASE", "c", "me", "KEEP", 99);
    cmd!(c, "LOCK.GUARD", "d", 1);
    chain.sync();
    for server in chain.servers() {
        let ttls = ["a", "b", "c", "d"].map(|key| cmd!(server.conn(), "PTTL", key).as_int());
        assert_eq!(ttls, [1234, 4321, 99, 604_800_000]);
    }
}

/// xorshift64*: the same numbers for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % sides
    }
}

fn random_command(dice: &mut Dice) -> String {
    let key = ["a", "b", "c", "d", "e"][dice.roll(5) as usize];
    let other = ["a", "b", "c", "d", "e"][dice.roll(5) as usize];
    let owner = ["me", "you", UUID][dice.roll(3) as usize];
    let ms = 1 + dice.roll(3000);
    let token = 1 + dice.roll(50);
    match dice.roll(24) {
        0..=5 => format!("LOCK.ACQUIRE {key} {owner} {ms}"),
        6 => format!("LOCK.ACQUIRE {key} {owner} {ms} META text-{ms}"),
        7..=8 => format!("LOCK.RELEASE {key} {owner}"),
        9 => format!("LOCK.RELEASE {key} {owner} KEEP {ms}"),
        10..=12 => format!("LOCK.RENEW {key} {owner} {ms}"),
        13 => format!("LOCK.FORCERELEASE {key}"),
        14..=15 => format!("LOCK.GUARD {key} {token} PX {ms}"),
        16 => format!("DEL {key}"),
        17 => format!("PEXPIRE {key} {ms}"),
        18 => format!("PERSIST {key}"),
        19 => format!("SET {key} v PX {ms}"),
        20 => format!("COPY {key} {other} REPLACE"),
        21 => format!("RENAME {key} {other}"),
        22 => format!("LOCK.INFO {key}"),
        _ => format!("UNLINK {key}"),
    }
}

#[test]
fn random_histories_end_equal() {
    let seed = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(1, |since| since.as_nanos() as u64 | 1);
    // Shown when the test fails.
    println!("seed: {seed}");
    let mut dice = Dice(seed);
    let chain = chain();
    let mut c = chain.primary.conn();
    let mut high = 0;
    for step in 0..300 {
        if dice.roll(6) == 0 {
            let ms = dice.roll(4000) as i64 - 1000;
            println!("{step}: clock {ms:+} ms");
            chain.clock().advance_ms(ms);
        }
        let line = random_command(&mut dice);
        let reply = c.cmd(&words(&line));
        println!("{step}: {line} -> {reply:?}");
        assert!(chain.primary.is_alive());
        let token = counter_of(&mut c);
        assert!(token >= high, "the mark fell from {high} to {token}");
        high = token;
        if step % 100 == 99 {
            chain.assert_equal();
        }
    }
    assert_same(&chain);
    // And again from the sub-replica's own file.
    chain.sub.kill9();
    chain.sub.start_again();
    assert_same(&chain);
}

fn counter_of(c: &mut Conn) -> i64 {
    let info = cmd!(c, "INFO", "sluice").as_text();
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("sluice_token_high_water:"));
    line.and_then(|value| value.parse().ok()).expect("the mark")
}

// --- roles ---

#[test]
fn a_failover_keeps_locks_and_tokens() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let token = cmd!(c, "LOCK.ACQUIRE", "k", UUID, 60_000).as_int();
    chain.sync();
    assert_eq!(cmd!(c, "FAILOVER"), ok());
    eventually("the roles are swapped", || {
        chain.replica.info("replication")["role"] == "master"
            && chain.primary.info("replication")["role"] == "slave"
    });
    chain.primary.wait_synced_with(&chain.replica);
    let mut r = chain.replica.conn();
    assert_eq!(cmd!(r, "LOCK.ACQUIRE", "k", "other", 1000), nil());
    assert_eq!(
        cmd!(r, "LOCK.RENEW", "k", UUID, 70_000, "TOKEN", token),
        int(70_000)
    );
    assert_eq!(cmd!(r, "LOCK.ACQUIRE", "l", "other", 1000), int(token + 1));
    chain.primary.wait_synced_with(&chain.replica);
    chain.sub.wait_synced_with(&chain.replica);
    let digest = cmd!(r, "DEBUG", "DIGEST");
    assert_eq!(cmd!(chain.primary.conn(), "DEBUG", "DIGEST"), digest);
    assert_eq!(cmd!(chain.sub.conn(), "DEBUG", "DIGEST"), digest);
}

#[test]
fn a_primary_that_becomes_a_replica_takes_the_other_data_set() {
    let old = Options::new().start();
    let new = single();
    old.clock().freeze_at(new.clock().now_us());
    cmd!(old.conn(), "LOCK.ACQUIRE", "k", "old", 60_000);
    cmd!(old.conn(), "LOCK.ACQUIRE", "only-old", "old", 60_000);
    let token = cmd!(new.conn(), "LOCK.ACQUIRE", "k", "new", 60_000).as_int();
    assert_eq!(cmd!(old.conn(), "REPLICAOF", "127.0.0.1", new.port()), ok());
    old.wait_synced_with(&new);
    assert_eq!(
        cmd!(old.conn(), "DEBUG", "DIGEST"),
        cmd!(new.conn(), "DEBUG", "DIGEST")
    );
    // The old primary had issued the higher one, and does not forget that.
    assert_eq!(cmd!(old.conn(), "REPLICAOF", "NO", "ONE"), ok());
    assert_eq!(
        cmd!(old.conn(), "LOCK.ACQUIRE", "l", "x", 1),
        int(token + 2)
    );
}

#[test]
fn write_commands_are_refused_on_a_replica() {
    let chain = chain();
    cmd!(chain.primary.conn(), "LOCK.ACQUIRE", "k", "me", 60_000);
    chain.sync();
    let mut r = chain.replica.conn();
    for line in [
        "LOCK.ACQUIRE k me 1000",
        "LOCK.RELEASE k me",
        "LOCK.RENEW k me 1000",
        "LOCK.FORCERELEASE k",
        "LOCK.GUARD g 1",
    ] {
        let reply = r.cmd(&words(line));
        assert_eq!(
            reply,
            err("READONLY You can't write against a read only replica."),
            "{line}"
        );
    }
    assert_same(&chain);
}

#[test]
fn a_writable_replica_survives_every_command() {
    let chain = chain();
    let mut c = chain.primary.conn();
    for key in ["k", "dead", "persisted"] {
        cmd!(c, "LOCK.ACQUIRE", key, "me", 1000);
    }
    cmd!(c, "PERSIST", "persisted");
    cmd!(c, "LOCK.GUARD", "g", 9, "PX", 1000);
    for server in [&chain.replica, &chain.sub] {
        cmd!(server.conn(), "CONFIG", "SET", "replica-read-only", "no");
        cmd!(server.conn(), "DEBUG", "SET-ACTIVE-EXPIRE", 0);
    }
    chain.sync();
    for round in 0..2 {
        for server in [&chain.replica, &chain.sub] {
            let mut r = server.conn();
            for line in [
                "LOCK.INFO k",
                "LOCK.ACQUIRE k me 2000",
                "LOCK.ACQUIRE dead you 2000",
                "LOCK.ACQUIRE persisted you 2000",
                "LOCK.ACQUIRE fresh me 2000",
                "LOCK.RENEW fresh me 3000",
                "LOCK.RELEASE fresh me KEEP 5000",
                "LOCK.FORCERELEASE fresh",
                "LOCK.RELEASE k me",
                "LOCK.GUARD g 10 PX 2000",
                "LOCK.GUARD g2 10",
                "COPY dead dead2",
                "DUMP dead",
                "RENAME dead2 dead3",
                "DEL dead3",
            ] {
                let reply = r.cmd(&words(line));
                let no_key = reply == err("ERR no such key");
                assert!(!reply.is_error() || no_key, "{line}: {reply:?}");
            }
            assert!(!r
                .exec_multi(&[words("LOCK.ACQUIRE k x 5"), words("LOCK.RELEASE k x")])
                .is_empty());
            assert!(server.is_alive(), "round {round}");
        }
        chain.clock().advance_ms(10_000);
    }
    // Leases that end on a replica are counted by the primary alone.
    assert!(!cmd!(c, "LOCK.ACQUIRE", "k", "again", 1000).is_nil());
    chain.sync();
}

// --- what the mark's own propagation must not do ---

/// A command that forks, sent to the primary, is not the replicas' business.
#[track_caller]
fn stays_with_the_primary(command: &str, stat: &str) {
    let chain = chain();
    let mut c = chain.primary.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", "me", 60_000);
    let reply = c.cmd(&words(command));
    assert!(!reply.is_error(), "{reply:?}");
    // What cron owes comes before the end of the child.
    no_child(&chain.primary);
    chain.sync();
    for server in [&chain.replica, &chain.sub] {
        let ran = server.info("commandstats");
        assert!(!ran.contains_key(stat), "a replica ran {command}");
    }
}

fn no_child(server: &Server) {
    eventually("the child is done", || {
        let info = server.info("persistence");
        info["rdb_bgsave_in_progress"] == "0"
            && info["aof_rewrite_in_progress"] == "0"
            && info["aof_rewrite_scheduled"] == "0"
    });
}

#[test]
fn bgsave_is_not_propagated() {
    stays_with_the_primary("BGSAVE", "cmdstat_bgsave");
}

#[test]
fn bgrewriteaof_is_not_propagated() {
    stays_with_the_primary("BGREWRITEAOF", "cmdstat_bgrewriteaof");
}

#[test]
fn switching_the_aof_on_is_not_propagated() {
    stays_with_the_primary("CONFIG SET appendonly yes", "cmdstat_config|set");
}

/// A full sync that forks inside PSYNC's own call.
#[track_caller]
fn primary_after_a_disk_based_sync() -> Server {
    let primary = Options::new()
        .config("repl-diskless-sync", "no")
        .aof(Aof::Pure)
        .start();
    primary.clock().freeze_at(T_US);
    cmd!(primary.conn(), "LOCK.ACQUIRE", "k", "me", 60_000);
    let replica = Options::new()
        .clock(primary.clock())
        .replica_of(&primary)
        .start();
    replica.wait_synced_with(&primary);
    cmd!(primary.conn(), "SET", "end", "1");
    primary
}

#[test]
fn a_disk_based_full_sync_propagates_no_psync() {
    let primary = primary_after_a_disk_based_sync();
    let names: Vec<_> = primary
        .aof_commands()
        .iter()
        .map(|words| String::from_utf8_lossy(&words[0]).into_owned())
        .filter(|name| name != "SELECT" && name != "sluice.hw")
        .collect();
    assert_eq!(names, ["sluice.lk", "SET"]);
}

#[test]
fn a_primary_restarts_from_the_aof_it_wrote_during_a_full_sync() {
    let primary = primary_after_a_disk_based_sync();
    let digest = cmd!(primary.conn(), "DEBUG", "DIGEST");
    primary.restart();
    assert_eq!(cmd!(primary.conn(), "DEBUG", "DIGEST"), digest);
}
