//! Every shape of a lock, on replicas and in files.

use crate::kinds_support::*;
use crate::replication::Tap;
use crate::support::*;
use crate::waiting_support::TWO_CRONS;
use sluice_testbed::Chain;

const KEYS: [&str; 10] = [
    "plain", "options", "multi", "one", "two", "many", "lapsed", "kept", "down", "first",
];

/// A lock of every shape. What has lapsed and was not pruned is stored all the same.
#[track_caller]
fn make_shapes(server: &Server) {
    let mut c = server.conn();
    let mut lines: Vec<String> = [
        "LOCK.ACQUIRE plain a 60000",
        "LOCK.ACQUIRE options a 60000 REENTRANT MAXHOLD 70000 META host-7",
        "LOCK.ACQUIRE options a 60000 REENTRANT",
        "LOCK.MACQUIRE 1 multi a 60000",
        "LOCK.ACQUIRE one a 60000 SHARED",
        "LOCK.ACQUIRE two a 60000 SHARED MAXHOLD 61000 META m",
        "LOCK.ACQUIRE two b 90000 SHARED REENTRANT",
        "LOCK.ACQUIRE two b 90000 SHARED REENTRANT",
        "LOCK.ACQUIRE lapsed a 60000 SHARED",
        "LOCK.ACQUIRE lapsed b 100 SHARED",
        "LOCK.ACQUIRE lapsed c 100 SHARED META m",
        "LOCK.ACQUIRE kept a 60000 SHARED",
        "LOCK.RELEASE kept a KEEP 60000",
        "LOCK.ACQUIRE down a 60000 REENTRANT MAXHOLD 65000",
        "LOCK.DOWNGRADE down a",
        "LOCK.ACQUIRE down b 100 SHARED",
        "LOCK.ACQUIRE first z 100 SHARED",
        "LOCK.ACQUIRE first a 60000 SHARED",
    ]
    .map(String::from)
    .to_vec();
    lines.extend((0..200).map(|i| {
        let lease = if i % 3 == 0 { 100 } else { 60_000 + i };
        format!("LOCK.ACQUIRE many reader-{i} {lease} SHARED META meta-{i}")
    }));
    lines.extend((0..40).map(|i| format!("LOCK.RENEW many reader-{i} 70000")));
    let commands: Vec<_> = lines.iter().map(|line| words(line)).collect();
    for (line, reply) in lines.iter().zip(c.pipeline(&commands)) {
        assert!(reply.as_int() > 0, "{line}: {reply:?}");
    }
    server.clock().advance_ms(150);
    assert_eq!(owners(&mut c, "lapsed"), ["a"]);
    assert_eq!(owners(&mut c, "down"), ["a"]);
}

/// Digest, end and what LOCK.INFO shows of every shape.
#[track_caller]
fn shapes(server: &Server) -> Vec<(&'static str, Reply, Reply, Reply)> {
    let mut c = server.conn();
    let one = |key| {
        let digest = cmd!(c, "DEBUG", "DIGEST-VALUE", key);
        let end = cmd!(c, "PEXPIRETIME", key);
        (key, digest, end, cmd!(c, "LOCK.INFO", key))
    };
    KEYS.map(one).to_vec()
}

#[test]
fn every_shape_is_equal_on_a_chain() {
    let chain = Chain::start();
    make_shapes(&chain.primary);
    chain.assert_equal();
    let expected = shapes(&chain.primary);
    assert_eq!(shapes(&chain.replica), expected);
    assert_eq!(shapes(&chain.sub), expected);
    // The sub-replica's file has what came over both links.
    chain.sub.kill9();
    chain.sub.start_again();
    chain.assert_equal();
    assert_eq!(shapes(&chain.sub), expected);
    rewrite_aof(&chain.sub);
    chain.sub.kill9();
    chain.sub.start_again();
    assert_eq!(shapes(&chain.sub), expected);
    // A full sync brings the same.
    let replica = Options::new()
        .clock(chain.clock())
        .replica_of(&chain.primary)
        .start();
    replica.wait_synced_with(&chain.primary);
    assert_eq!(shapes(&replica), expected);
    // What comes then prunes alike.
    let mut c = chain.primary.conn();
    number(&mut c, "LOCK.ACQUIRE lapsed d 60000 SHARED");
    number(&mut c, "LOCK.ACQUIRE many d 60000 SHARED");
    number(&mut c, "LOCK.RELEASE many reader-1");
    number(&mut c, "LOCK.RENEW down a 64000");
    number(&mut c, "LOCK.ACQUIRE one a 60000");
    chain.assert_equal();
    assert_eq!(shapes(&chain.replica), shapes(&chain.primary));
    replica.wait_synced_with(&chain.primary);
    assert_eq!(shapes(&replica), shapes(&chain.primary));
}

#[test]
fn every_shape_survives_reloads_and_an_rdb() {
    let server = own(Options::new());
    make_shapes(&server);
    let expected = shapes(&server);
    assert_eq!(cmd!(server.conn(), "DEBUG", "RELOAD"), ok());
    assert_eq!(shapes(&server), expected);
    server.restart_saving();
    assert_eq!(shapes(&server), expected);
}

fn survives_in_an_aof(aof: Aof) {
    let server = own(Options::new().aof(aof));
    make_shapes(&server);
    let expected = shapes(&server);
    server.kill9();
    server.start_again();
    assert_eq!(shapes(&server), expected);
    for round in 0..2 {
        rewrite_aof(&server);
        server.kill9();
        server.start_again();
        assert_eq!(shapes(&server), expected, "rewrite {round}");
    }
    assert_eq!(cmd!(server.conn(), "DEBUG", "LOADAOF"), ok());
    assert_eq!(shapes(&server), expected);
}

#[test]
fn every_shape_survives_a_pure_aof_and_its_rewrites() {
    survives_in_an_aof(Aof::Pure);
}

#[test]
fn every_shape_survives_an_aof_with_an_rdb_preamble_and_its_rewrites() {
    survives_in_an_aof(Aof::Preamble);
}

#[test]
fn every_shape_survives_dump_restore_and_copy() {
    let chain = chain();
    make_shapes(&chain.primary);
    let mut c = chain.primary.conn();
    for key in KEYS {
        let digest = cmd!(c, "DEBUG", "DIGEST-VALUE", key);
        let end = cmd!(c, "PEXPIRETIME", key).as_int();
        let info = cmd!(c, "LOCK.INFO", key);
        let payload = cmd!(c, "DUMP", key);
        let restored = cmd!(c, "RESTORE", "restored", end, payload.as_bytes(), "ABSTTL");
        assert_eq!(restored, ok(), "{key}");
        assert_eq!(cmd!(c, "COPY", key, "copied"), int(1), "{key}");
        for copy in ["restored", "copied"] {
            assert_eq!(cmd!(c, "DEBUG", "DIGEST-VALUE", copy), digest, "{key}");
            assert_eq!(cmd!(c, "LOCK.INFO", copy), info, "{key}");
        }
        assert_eq!(cmd!(c, "DUMP", "copied"), payload, "{key}");
        chain.assert_equal();
        cmd!(c, "DEL", "restored", "copied");
    }
}

// The exact effects -----------------------------------------------------------------------------------

#[derive(Clone)]
struct Reader {
    held: Held,
    max_ms: u64,
}

impl Reader {
    fn new(now_us: i64, token: i64, lease: u64, owner: &str) -> Reader {
        let mut held = Held::at(now_us, lease, owner);
        held.token = token as u64;
        Reader { held, max_ms: 0 }
    }

    /// A hold, wherever it stands.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.held.body().split_off(1);
        bytes[24..32].copy_from_slice(&self.max_ms.to_le_bytes());
        bytes
    }

    fn effect(&self, now_us: i64) -> Vec<Vec<u8>> {
        let body = [&[16], &self.bytes()[..]].concat();
        args!["sluice.lk", "k", effect(now_us, &body)]
    }

    fn gone(&self, now_us: i64) -> Vec<Vec<u8>> {
        let body = [&[17], &self.held.token.to_le_bytes()[..]].concat();
        args!["sluice.lk", "k", effect(now_us, &body)]
    }

    /// A lock with this reader and no other.
    fn alone(&self, now_us: i64) -> Vec<Vec<u8>> {
        let body = [&[2, 1, 0, 0, 0], &self.bytes()[..]].concat();
        args!["sluice.lk", "k", effect(now_us, &body)]
    }

    fn exclusive(&self, now_us: i64) -> Vec<Vec<u8>> {
        let body = [&[0], &self.bytes()[..]].concat();
        args!["sluice.lk", "k", effect(now_us, &body)]
    }
}

#[test]
fn an_effect_carries_one_reader_and_never_the_whole_set() {
    let chain = chain();
    let clock = chain.clock();
    let t = clock.now_us();
    let mut c = chain.primary.conn();
    let mut tap = Tap::on(&chain);
    let mut a = Reader::new(t, t, 5000, "a");
    let mut b = Reader::new(t, t + 1, 700, "b");
    b.max_ms = b.held.granted_ms + 800;
    b.held.meta = b"m".to_vec();
    let over = Reader::new(t, t + 2, 100, "over");

    number(&mut c, "LOCK.ACQUIRE k a 5000 SHARED");
    assert_eq!(tap.take(), [a.alone(t)]);
    number(&mut c, "LOCK.ACQUIRE k b 700 SHARED MAXHOLD 800 META m");
    assert_eq!(tap.take(), [b.effect(t)]);
    number(&mut c, "LOCK.ACQUIRE k over 100 SHARED");
    assert_eq!(tap.take(), [over.effect(t)]);
    chain.assert_equal();

    number(&mut c, "LOCK.ACQUIRE k b 900 SHARED REENTRANT");
    b.held.holds = 2;
    b.held.deadline_ms = b.max_ms;
    assert_eq!(tap.take(), [b.effect(t)]);

    clock.advance_ms(50);
    number(&mut c, "LOCK.RENEW k a 9000");
    a.held.deadline_ms = a.held.granted_ms + 9050;
    assert_eq!(tap.take(), [a.effect(t + 50_000)]);
    // Nothing moves.
    number(&mut c, "LOCK.RENEW k a 8000");
    run(&mut c, "LOCK.ACQUIRE k w 8000");
    run(&mut c, "LOCK.INFO k");
    assert_eq!(tap.take(), Vec::<Vec<Vec<u8>>>::new());

    // Prunes the lapsed one, without a word of it.
    clock.advance_ms(100);
    chain.assert_equal();
    number(&mut c, "LOCK.RELEASE k b");
    b.held.holds = 1;
    assert_eq!(tap.take(), [b.effect(t + 150_000)]);
    chain.assert_equal();
    number(&mut c, "LOCK.RELEASE k b");
    assert_eq!(tap.take(), [b.gone(t + 150_000)]);
    chain.assert_equal();

    // An upgrade, and down again.
    let up = t + 150_000;
    assert_eq!(number(&mut c, "LOCK.ACQUIRE k a 10"), up);
    a.held.token = up as u64;
    assert_eq!(tap.take(), [a.exclusive(up)]);
    number(&mut c, "LOCK.DOWNGRADE k a");
    assert_eq!(tap.take(), [a.alone(up)]);
    chain.assert_equal();
    number(&mut c, "LOCK.RELEASE k a KEEP 500");
    let until = (up / 1000 + 500) as u64;
    let kept = effect(up, &kept_body(up as u64, until));
    assert_eq!(tap.take(), [args!["sluice.lk", "k", kept]]);
    number(&mut c, "LOCK.FORCERELEASE k");
    assert_eq!(tap.take(), [args!["DEL", "k"]]);
    chain.assert_equal();
}

#[test]
fn the_last_reader_leaves_a_plain_del_also_with_lapsed_ones() {
    let chain = chain();
    let mut c = chain.primary.conn();
    number(&mut c, "LOCK.ACQUIRE k a 5000 SHARED");
    number(&mut c, "LOCK.ACQUIRE k over 100 SHARED");
    chain.clock().advance_ms(101);
    let mut tap = Tap::on(&chain);
    number(&mut c, "LOCK.RELEASE k a");
    assert_eq!(tap.take(), [args!["DEL", "k"]]);
    chain.assert_equal();
}

#[test]
fn with_a_thousand_readers_an_effect_is_as_small_as_with_one() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let commands: Vec<_> = (0..1000)
        .map(|i| words(&format!("LOCK.ACQUIRE k reader-{i:03} 60000 SHARED")))
        .collect();
    let mut tap = Tap::on(&chain);
    c.pipeline(&commands);
    number(&mut c, "LOCK.RENEW k reader-500 90000");
    number(&mut c, "LOCK.ACQUIRE k reader-501 90000 SHARED REENTRANT");
    number(&mut c, "LOCK.RELEASE k reader-502");
    let sent = tap.take();
    assert_eq!(sent.len(), 1003);
    for command in sent {
        assert!(command[2].len() < 80, "{} bytes", command[2].len());
    }
    chain.assert_equal();
    // Nor does a rewrite write one that is larger.
    rewrite_aof(&chain.sub);
    let largest = chain.sub.aof_commands().into_iter().flatten();
    assert!(largest.map(|word| word.len()).max().unwrap_or(0) < 1000);
    chain.sub.kill9();
    chain.sub.start_again();
    chain.assert_equal();
}

#[test]
fn a_ttl_that_strayed_is_set_right_without_the_whole_set() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let commands: Vec<_> = (0..300)
        .map(|i| words(&format!("LOCK.ACQUIRE k reader-{i:03} 60000 SHARED")))
        .collect();
    c.pipeline(&commands);
    // One that is over and still stored: what mends the TTL prunes nobody, nowhere.
    number(&mut c, "LOCK.ACQUIRE k short 1 SHARED");
    chain.clock().advance_ms(5);
    let end = cmd!(c, "PEXPIRETIME", "k");
    for stray in ["PERSIST k", "PEXPIRE k 500"] {
        for line in [
            "LOCK.RENEW k reader-001 1000",
            "LOCK.ACQUIRE k reader-002 1000 SHARED",
            "LOCK.MRENEW 1 k reader-003 1000",
        ] {
            assert_eq!(run(&mut c, stray), int(1));
            let mut tap = Tap::on(&chain);
            number(&mut c, line);
            assert_eq!(cmd!(c, "PEXPIRETIME", "k"), end, "{stray}, {line}");
            let sent = tap.take();
            let largest = sent.iter().flatten().map(Vec::len).max();
            assert!(largest < Some(1000), "{stray}, {line}: {largest:?} bytes");
            chain.assert_equal();
            let mut sub = chain.sub.conn();
            assert_eq!(cmd!(sub, "PEXPIRETIME", "k"), end, "{stray}, {line}");
        }
    }
}

// A random history ------------------------------------------------------------------------------------

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        // xorshift64
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.roll(all.len() as u64) as usize]
    }
}

fn random_line(dice: &mut Dice, token: i64) -> String {
    let key = dice.of(&["k0", "k1", "k2"]);
    let owner = dice.of(&["a", "b", "c", "d", "e"]);
    let ms = [1, 50, 300, 2000, 60_000][dice.roll(5) as usize];
    let with_token = if dice.roll(4) == 0 {
        format!(" TOKEN {token}")
    } else {
        String::new()
    };
    match dice.roll(20) {
        0..=8 => {
            let mut line = format!("LOCK.ACQUIRE {key} {owner} {ms}");
            for option in [" SHARED", " SHARED", " REENTRANT", " SESSION"] {
                if dice.roll(3) == 0 && !line.contains(option) {
                    line += option;
                }
            }
            if dice.roll(3) == 0 {
                line += &format!(" MAXHOLD {}", 1 + dice.roll(5000));
            }
            if dice.roll(5) == 0 {
                line += " META note";
            }
            if dice.roll(6) == 0 {
                line += " BLOCK 1";
            }
            line
        }
        9..=10 => format!("LOCK.RENEW {key} {owner} {ms}{with_token}"),
        11..=12 => format!("LOCK.RELEASE {key} {owner}{with_token}"),
        13 => format!("LOCK.RELEASE {key} {owner} KEEP {ms}"),
        14 => format!("LOCK.DOWNGRADE {key} {owner}{with_token}"),
        15 => format!("LOCK.MACQUIRE 2 k1 k2 {owner} {ms}"),
        16 => format!("LOCK.MRENEW 2 k0 {} {owner} {ms}", dice.of(&["k1", "k2"])),
        17 => format!("LOCK.MRELEASE 3 k0 k1 k2 {owner}{with_token}"),
        18 => match dice.roll(3) {
            0 => format!("LOCK.FORCERELEASE {key}{with_token}"),
            1 => format!("PERSIST {key}"),
            _ => format!("PEXPIRE {key} {ms}"),
        },
        _ => match dice.roll(4) {
            0 => format!("DEL {key}"),
            1 => "RENAME k0 k1".to_string(),
            2 => "COPY k1 k2 REPLACE".to_string(),
            _ => format!("LOCK.ACQUIRE {key} {owner} {ms} SHARED"),
        },
    }
}

/// Digests, and when each key ends.
#[track_caller]
fn same(chain: &Chain) {
    chain.assert_equal();
    let [primary, replica, sub] = chain.servers().map(|server| {
        let mut c = server.conn();
        ["k0", "k1", "k2"].map(|key| cmd!(c, "PEXPIRETIME", key))
    });
    assert_eq!((&replica, &sub), (&primary, &primary));
}

fn random_history(seed: u64) {
    eprintln!("seed {seed}");
    let mut dice = Dice(seed);
    let chain = chain();
    let server = &chain.primary;
    let mut conns = [server.conn(), server.conn(), server.conn()];
    let mut token = 1;
    let mut granted = 0;
    for step in 0..400 {
        let line = random_line(&mut dice, token);
        let which = dice.roll(3) as usize;
        let reply = if dice.roll(8) == 0 && !line.contains("BLOCK") {
            conns[which].exec_multi(&[words(&line)])[0].clone()
        } else {
            run(&mut conns[which], &line)
        };
        match reply {
            Reply::Int(number) if line.contains("ACQUIRE") => {
                token = number;
                granted += 1;
            }
            Reply::Error(ref text) => assert_eq!(text, "ERR no such key", "{line}"),
            _ => {}
        }
        match dice.roll(6) {
            0 => chain.clock().advance_us(1 + dice.roll(100_000) as i64),
            1 => chain.clock().advance_ms(dice.roll(400) as i64),
            _ => {}
        }
        // A session ends.
        if dice.roll(25) == 0 {
            conns[which] = server.conn();
        }
        if step % 50 == 49 {
            same(&chain);
        }
    }
    assert!(granted > 50, "{granted} of 400");
    drop(conns);
    std::thread::sleep(TWO_CRONS);
    same(&chain);
    let digest = cmd!(server.conn(), "DEBUG", "DIGEST");
    assert_eq!(cmd!(server.conn(), "DEBUG", "RELOAD"), ok());
    assert_eq!(cmd!(server.conn(), "DEBUG", "DIGEST"), digest);
}

#[test]
fn random_histories_of_all_kinds_end_equal() {
    // A seed of one's own: SLUICE_SEED=….
    let given = std::env::var("SLUICE_SEED").ok();
    let seeds: Vec<u64> = match given.and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => {
            let now = std::time::SystemTime::now();
            let since = now.duration_since(std::time::UNIX_EPOCH);
            let fresh = since.expect("after 1970").as_nanos() as u64 | 1;
            vec![1, 88_172_645_463_325_252, fresh]
        }
    };
    for seed in seeds {
        random_history(seed);
    }
}

/// Every byte of a dumped shared lock changed, and every shorter payload, with a right
/// checksum: refused, or another lock that works; the server lives and nothing leaks.
#[test]
fn a_damaged_dump_of_readers_is_refused_or_is_another_lock() {
    let server = single();
    let mut c = server.conn();
    for owner in ["a", "b", "c"] {
        cmd!(c, "LOCK.ACQUIRE", "k", owner, 60_000, "SHARED", "META", "m");
    }
    let payload = cmd!(c, "DUMP", "k").as_bytes().to_vec();
    // The last ten bytes are the server's version and checksum.
    let body = payload[..payload.len() - 10].to_vec();
    cmd!(c, "DEL", "k");
    let mut refused = 0;
    let shorter = (0..body.len()).map(|len| body[..len].to_vec());
    // The first ten bytes name the type: another one there is not ours to refuse.
    let changed = (10..body.len()).flat_map(|at| {
        [1, 0x80, 0xff].map(|flip| {
            let mut damaged = body.clone();
            damaged[at] ^= flip;
            damaged
        })
    });
    for damaged in shorter.chain(changed) {
        let reply = cmd!(c, "RESTORE", "k", 0, checksummed(damaged));
        if reply.is_error() {
            assert_eq!(reply, err("ERR Bad data format"));
            assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
            refused += 1;
            continue;
        }
        assert!(!cmd!(c, "LOCK.INFO", "k").is_error());
        assert!(!cmd!(c, "LOCK.ACQUIRE", "k", "d", 1000, "SHARED").is_error());
        assert!(!cmd!(c, "LOCK.RENEW", "k", "a", 1000).is_error());
        assert!(!cmd!(c, "LOCK.RELEASE", "k", "b").is_error());
        cmd!(c, "DEL", "k");
    }
    assert!(refused > body.len(), "{refused}");
    assert_eq!(counter(&server, "lock_keys"), 0);
}
