//! DUMP and RESTORE of limiters. A payload is untrusted input: it gives an error or a valid limiter,
//! and the server lives.

use crate::limiter_support::*;
use crate::support::*;

fn bad() -> Reply {
    err("ERR Bad data format")
}

/// The bytes in front of version and checksum.
fn without_footer(payload: &[u8]) -> &[u8] {
    &payload[..payload.len() - 10]
}

#[test]
fn the_stored_form_is_what_was_written_down() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "CONFIG", "SET", "rdbcompression", "no");
    let now = server.clock().now_us();
    cmd!(c, "RL.GCRA", "k", 9, 10, 60_000, "COST", 4);
    let state = Bucket::owing(4, now, (9, 10, 60_000));
    let found = dump_of(&mut c, "k");
    assert_eq!(without_footer(&found), without_footer(&state.dump()));
    // Debts beyond 64 bits.
    let most = MAX_TOKENS as u32;
    cmd!(
        c,
        "RL.GCRA",
        "k",
        most,
        most,
        MAX_PERIOD_MS,
        "COST",
        most - 5
    );
    let stored = u128::from(most - 5) * 31_536_000_000_000 + 4 * 31_536_000_000_000;
    let mut state = Bucket::owing(0, now, (most, most, MAX_PERIOD_MS as u64));
    state.debt = stored;
    let found = dump_of(&mut c, "k");
    assert_eq!(without_footer(&found), without_footer(&state.dump()));
}

#[test]
fn the_next_admission_gives_a_restored_limiter_its_ttl() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "RL.GCRA", "k", 9, 10, 60_000, "COST", 4);
    let payload = dump_of(&mut c, "k");
    for ttl in [0, 1, 1000, 24_000, 900_000] {
        assert_eq!(cmd!(c, "RESTORE", "k", ttl, &payload, "REPLACE"), ok());
        assert_eq!(cmd!(c, "PTTL", "k"), int(if ttl == 0 { -1 } else { ttl }));
        run(&mut c, &[("RL.GCRA k 9 10 60000", [1, 9, 4, 0, 30_000])]);
        assert_eq!(cmd!(c, "PTTL", "k"), int(30_001 + SLACK_MS), "{ttl}");
    }
    // Without one it is drained all the same.
    assert_eq!(cmd!(c, "RESTORE", "k", 0, &payload, "REPLACE"), ok());
    server.clock().advance_ms(24_000);
    assert_eq!(cmd!(c, "RL.INFO", "k"), nil());
    run(&mut c, &[("RL.GCRA k 9 10 60000", [1, 9, 8, 0, 6000])]);
    // A shorter one ends the debt early.
    assert_eq!(cmd!(c, "RESTORE", "k", 10, &payload, "REPLACE"), ok());
    server.clock().advance_ms(11);
    run(&mut c, &[("RL.GCRA k 9 10 60000", [1, 9, 8, 0, 6000])]);
}

#[test]
fn a_restored_overdraft_drains_and_its_times_saturate() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let now = chain.clock().now_us();
    // Three times the capacity, as post-paid charges can leave it.
    let over = Bucket::owing(15, now, (5, 5, 60_000));
    assert_eq!(cmd!(c, "RESTORE", "k", 0, over.dump()), ok());
    run(
        &mut c,
        &[
            ("RL.PEEK k GCRA 5 5 60000", [0, 5, 0, 132_000, 180_000]),
            ("RL.GCRA k 5 5 60000", [0, 5, 0, 132_000, 180_000]),
            // Under its own capacity it stands at any rate, under another it is cut to that.
            ("RL.PEEK k GCRA 5 10 60000", [0, 5, 0, 66_000, 90_000]),
            ("RL.PEEK k GCRA 4 5 60000", [0, 4, 0, 12_000, 48_000]),
            ("RL.PEEK k GCRA 20 5 60000", [1, 20, 5, 0, 180_000]),
        ],
    );
    assert_eq!(cmd!(c, "RL.INFO", "k").field("remaining"), &int(0));
    // The largest debt there can be, then seen at a thirtieth of a billionth of its rate.
    let most = MAX_TOKENS as u32;
    let mut century = Bucket::owing(0, now, (most, most, 1));
    century.debt = 100 * 31_536_000_000_000 * u128::from(most);
    assert_eq!(cmd!(c, "RESTORE", "m", 0, century.dump()), ok());
    let peek = cmd!(c, "RL.PEEK", "m", "GCRA", most, most, 1);
    let century_ms = 100 * MAX_PERIOD_MS;
    assert_eq!(peek, five([0, MAX_TOKENS, 0, century_ms, century_ms]));
    let slow = cmd!(c, "RL.PEEK", "m", "GCRA", most, most / 100, MAX_PERIOD_MS);
    assert_eq!(slow, five([0, MAX_TOKENS, 0, i64::MAX, i64::MAX]));
    // Denials extend the key as far as there are TTLs, and every server survives that.
    cmd!(c, "PEXPIRE", "m", 5000);
    let denial = cmd!(c, "RL.GCRA", "m", most, most / 100, MAX_PERIOD_MS);
    assert_eq!(denial, five([0, MAX_TOKENS, 0, i64::MAX, i64::MAX]));
    assert!(cmd!(c, "PTTL", "m").as_int() > century_ms);
    assert_same(&chain);
    for server in chain.servers() {
        let before = digest(server);
        assert_eq!(cmd!(server.conn(), "DEBUG", "RELOAD"), ok());
        assert_eq!(digest(server), before);
    }
    // One that is ahead of any clock is moved to now by the first write.
    let mut ahead = Bucket::owing(5, now, (5, 5, 60_000));
    ahead.at_us = (1 << 61) - 1;
    assert_eq!(cmd!(c, "RESTORE", "k", 0, ahead.dump(), "REPLACE"), ok());
    run(
        &mut c,
        &[
            ("RL.PEEK k GCRA 5 5 60000", [0, 5, 0, 12_000, 60_000]),
            ("RL.GCRA k 5 5 60000", [0, 5, 0, 12_000, 60_000]),
        ],
    );
    assert_eq!(cmd!(c, "PTTL", "k"), int(60_001 + SLACK_MS));
    assert_same(&chain);
}

#[test]
fn migrate_carries_a_limiter_to_another_server() {
    let (from, to) = (own(Options::new()), own(Options::new()));
    let mut c = from.conn();
    run(
        &mut c,
        &[("RL.GCRA k 9 10 60000 COST 9", [1, 9, 0, 0, 54_000])],
    );
    let state = digest_of(&mut c, "k");
    assert_eq!(
        cmd!(c, "MIGRATE", "127.0.0.1", to.port(), "k", 0, 5000),
        ok()
    );
    assert_eq!(cmd!(c, "RL.INFO", "k"), nil());
    let mut t = to.conn();
    assert_eq!(digest_of(&mut t, "k"), state);
    run(&mut t, &[("RL.GCRA k 9 10 60000", [0, 9, 0, 6000, 54_000])]);
}

/// What a stored limiter must be, said once more and apart from the module.
fn is_valid(blob: &[u8]) -> bool {
    if blob.len() != 38 || blob[0] != 1 || blob[1] != 0 {
        return false;
    }
    let number = |from: usize, to: usize| {
        blob[from..to]
            .iter()
            .rev()
            .fold(0u128, |number, byte| number << 8 | u128::from(*byte))
    };
    let (debt, at) = (number(2, 14), number(14, 22));
    let (capacity, count, period_ms) = (number(22, 26), number(26, 30), number(30, 38));
    let century_us: u128 = 100 * 31_536_000_000_000;
    let tokens = 1..=1_000_000_000;
    at < 1 << 61
        && tokens.contains(&capacity)
        && tokens.contains(&count)
        && (1..=31_536_000_000).contains(&period_ms)
        && capacity * period_ms * 1000 <= century_us * count
        && debt <= century_us * count
}

/// Restores every payload; each must be refused or, if valid, come back as the same bytes and work.
/// Says how many were valid.
#[track_caller]
fn restore_all(server: &Server, blobs: impl IntoIterator<Item = Vec<u8>>) -> usize {
    let mut c = server.conn();
    cmd!(c, "CONFIG", "SET", "rdbcompression", "no");
    let mut valid = 0;
    for blob in blobs {
        let payload = dump("sluice-rl", 1, &blob);
        let reply = cmd!(c, "RESTORE", "k", 0, &payload);
        let shown = blob.escape_ascii().to_string();
        if !is_valid(&blob) {
            assert_eq!(reply, bad(), "{shown}");
            assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
            continue;
        }
        valid += 1;
        assert_eq!(reply, ok(), "{shown}");
        let again = dump_of(&mut c, "k");
        assert_eq!(without_footer(&again), without_footer(&payload), "{shown}");
        assert!(!cmd!(c, "RL.INFO", "k").is_error(), "{shown}");
        for line in [
            "RL.PEEK k GCRA 9 10 60000",
            "RL.GCRA k 9 10 60000",
            "RL.TOKENBUCKET k 1000000000 10000000 31536000000",
            "RL.GCRA k 1 1 1",
        ] {
            let reply = c.cmd(&words(line));
            let integers: Vec<_> = reply.items().iter().map(Reply::as_int).collect();
            assert!(
                integers.iter().all(|integer| *integer >= 0),
                "{shown}: {reply:?}"
            );
            assert_eq!(integers[0] == 1, integers[3] == 0, "{shown}: {reply:?}");
        }
        assert_eq!(cmd!(c, "RL.RESET", "k"), int(1), "{shown}");
    }
    assert_eq!(counter(server, "rl_keys"), 0);
    valid
}

fn sample(server: &Server) -> Vec<u8> {
    Bucket::owing(4, server.clock().now_us(), (9, 10, 60_000)).stored()
}

#[test]
fn every_truncation_is_refused() {
    let server = single();
    let blob = sample(&server);
    let cut = (0..blob.len()).map(|len| blob[..len].to_vec());
    assert_eq!(restore_all(&server, cut), 0);
    let longer = [[&blob[..], b"\0"].concat(), [&blob[..], &blob[..]].concat()];
    assert_eq!(restore_all(&server, longer), 0);
    // The framing around it.
    let mut c = server.conn();
    let whole = dump("sluice-rl", 1, &blob);
    let body = without_footer(&whole);
    for len in 1..body.len() {
        let reply = cmd!(c, "RESTORE", "k", 0, checksummed(body[..len].to_vec()));
        assert_eq!(reply, bad(), "at {len}");
    }
    // And without a new checksum.
    let wrong = err("ERR DUMP payload version or checksum are wrong");
    for len in 0..whole.len() {
        assert_eq!(cmd!(c, "RESTORE", "k", 0, &whole[..len]), wrong, "at {len}");
    }
    assert_eq!(cmd!(c, "DBSIZE"), int(0));
    assert_eq!(counter(&server, "rl_keys"), 0);
    assert_eq!(cmd!(c, "RESTORE", "k", 0, &whole), ok());
}

#[test]
fn every_changed_byte_is_refused_or_means_another_valid_limiter() {
    let server = single();
    let blob = sample(&server);
    let changed = (0..blob.len()).flat_map(|at| {
        let old = blob[at];
        let flips = (0..8).map(|bit| old ^ (1 << bit));
        let values: Vec<u8> = flips.chain([0, 0xff]).filter(|v| *v != old).collect();
        let blob = blob.clone();
        values.into_iter().map(move |value| {
            let mut changed = blob.clone();
            changed[at] = value;
            changed
        })
    });
    let valid = restore_all(&server, changed);
    assert!(valid > 50, "{valid}");
}

#[test]
fn changed_framing_is_refused() {
    let server = single();
    let mut c = server.conn();
    let whole = dump("sluice-rl", 1, &sample(&server));
    let body = without_footer(&whole);
    // The module id, the opcode, the length and the end; see `restore`.
    for at in (2..9).chain([10, 11, body.len() - 1]) {
        for flip in [1, 2, 4, 0x20] {
            let mut changed = body.to_vec();
            changed[at] ^= flip;
            let reply = cmd!(c, "RESTORE", "k", 0, checksummed(changed));
            assert_eq!(reply, bad(), "byte {at} flipped by {flip}");
        }
    }
    let id = module_id("sluice-rl", 1).to_be_bytes();
    for opcode in [1u8, 2, 3, 4] {
        let payload = [&[7, 0x81], &id[..], &[opcode, 1, 0, 0, 0, 0, 0, 0, 0]].concat();
        assert_eq!(cmd!(c, "RESTORE", "k", 0, checksummed(payload)), bad());
    }
    // Other types' bytes under this name, and this one's under theirs.
    let now = server.clock().now_us();
    let lock = Held::at(now, 5000, UUID).stored();
    let guard = [&[1], &guard_body(5, 2_000_000_000_000)[..]].concat();
    for (name, blob) in [
        ("sluice-rl", &lock),
        ("sluice-rl", &guard),
        ("sluice-lk", &sample(&server)),
        ("sluice-fn", &sample(&server)),
    ] {
        assert_eq!(
            cmd!(c, "RESTORE", "k", 0, dump(name, 1, blob)),
            bad(),
            "{name}"
        );
    }
    assert_eq!(cmd!(c, "DBSIZE"), int(0));
    assert_eq!(counter(&server, "rl_keys"), 0);
}

#[test]
fn numbers_out_of_range_are_refused() {
    let server = single();
    let now = server.clock().now_us();
    let with = |change: &dyn Fn(&mut Bucket)| {
        let mut state = Bucket::owing(4, now, (9, 10, 60_000));
        change(&mut state);
        state.stored()
    };
    let most = MAX_TOKENS as u32;
    let year = MAX_PERIOD_MS as u64;
    let century = 100 * 31_536_000_000_000u128;
    let good = [
        with(&|b| b.debt = 0),
        with(&|b| b.debt = century * 10),
        with(&|b| b.at_us = 0),
        with(&|b| b.at_us = (1 << 61) - 1),
        with(&|b| (b.capacity, b.count) = (1, most)),
        with(&|b| (b.capacity, b.count, b.period_ms) = (most, most, year)),
        with(&|b| (b.capacity, b.count, b.period_ms) = (100, 1, year)),
    ];
    assert_eq!(restore_all(&server, good.clone()), good.len());
    let wrong = [
        with(&|b| b.debt = century * 10 + 1),
        with(&|b| b.debt = (1 << 96) - 1),
        with(&|b| b.at_us = 1 << 61),
        with(&|b| b.at_us = u64::MAX),
        with(&|b| b.capacity = 0),
        with(&|b| b.capacity = most + 1),
        with(&|b| b.count = 0),
        with(&|b| b.count = u32::MAX),
        with(&|b| b.period_ms = 0),
        with(&|b| b.period_ms = year + 1),
        with(&|b| b.period_ms = u64::MAX),
        with(&|b| (b.capacity, b.count, b.period_ms) = (101, 1, year)),
        vec![1],
        vec![0],
        Vec::new(),
    ];
    assert_eq!(restore_all(&server, wrong), 0);
}

#[test]
fn random_bytes_never_crash_the_server() {
    let server = single();
    let mut random = Random(1054);
    let blobs: Vec<Vec<u8>> = (0..1500)
        .map(|n| {
            let len = match n % 3 {
                0 => random.below(80) as usize,
                _ => 38,
            };
            let mut blob: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
            if len == 38 {
                // Right in all but its numbers, some of which are small enough.
                blob[..2].copy_from_slice(&[1, 0]);
                for at in [13, 21, 25, 29, 35, 36, 37] {
                    if random.below(4) > 0 {
                        blob[at] = 0;
                    }
                }
            }
            blob
        })
        .collect();
    restore_all(&server, blobs);
}

/// RedisBloom#1054: corrupt payloads with the right checksum, many times.
#[test]
fn refused_payloads_leave_no_memory_behind() {
    let server = single();
    let mut c = server.conn();
    let good = sample(&server);
    let mut newer = good.clone();
    newer[0] = 2;
    let mut unended = without_footer(&dump("sluice-rl", 1, &good)).to_vec();
    *unended.last_mut().expect("an end") = 5;
    let mut payloads = vec![
        dump("sluice-rl", 1, &newer),
        dump("sluice-rl", 2, &good),
        dump("sluice-rl", 1, &[&good[..], b"more"].concat()),
        // A value that was built and then found to be followed by something else.
        checksummed(unended),
    ];
    payloads.extend([0, 1, 2, 14, 22, 37].map(|len| dump("sluice-rl", 1, &good[..len])));
    let used = || {
        server.info("memory")["used_memory"]
            .parse::<i64>()
            .expect("a number")
    };
    for payload in &payloads {
        let round = |c: &mut Conn| {
            let replies = c.pipeline(&vec![args!["RESTORE", "k", 0, payload]; 100]);
            assert!(
                replies.iter().all(|reply| *reply == bad()),
                "{:?}",
                replies[0]
            );
        };
        round(&mut c);
        // A leak would show in each of the ten rounds; buffers of connections come and go.
        let least = (0..10)
            .map(|_| {
                let before = used();
                round(&mut c);
                used() - before
            })
            .min();
        assert!(least <= Some(0), "100 refusals leave {least:?} bytes");
    }
    assert_eq!(counter(&server, "rl_keys"), 0);
    assert_eq!(
        cmd!(c, "RESTORE", "k", 0, dump("sluice-rl", 1, &good)),
        ok()
    );
}

#[test]
fn a_refused_replace_leaves_the_old_value() {
    let server = recorder();
    let mut c = server.conn();
    run(
        &mut c,
        &[("RL.GCRA k 9 10 60000 COST 9", [1, 9, 0, 0, 54_000])],
    );
    let blob = sample(&server);
    let payload = dump("sluice-rl", 1, &blob[..20]);
    let reply = changes_nothing(&server, || cmd!(c, "RESTORE", "k", 0, payload, "REPLACE"));
    assert_eq!(reply, bad());
    run(&mut c, &[("RL.GCRA k 9 10 60000", [0, 9, 0, 6000, 54_000])]);
}

/// redis#13007: an encoding with a higher version byte in DUMP and RDB.
#[test]
fn a_newer_version_is_refused_and_named_in_the_log() {
    let newer = |version: u8| {
        format!(
            "<sluice> sluice-rl: encoding version {version} is newer than 1, the newest this \
             module reads: upgrade replicas before their primary"
        )
    };
    let server = own(Options::new());
    let mut c = server.conn();
    for version in [2, 255] {
        let mut blob = sample(&server);
        blob[0] = version;
        assert_eq!(
            cmd!(c, "RESTORE", "k", 0, dump("sluice-rl", 1, &blob)),
            bad()
        );
        server.wait_log(&newer(version));
    }
    // The same in the type's own version field, whatever follows.
    server.clear_log();
    assert_eq!(cmd!(c, "RESTORE", "k", 0, dump("sluice-rl", 3, b"")), bad());
    server.wait_log(&newer(3));
    assert_eq!(
        cmd!(c, "RESTORE", "k", 0, dump("sluice-rl", 1, b"\x01\x00")),
        bad()
    );
    server.wait_log("<sluice> sluice-rl: corrupt encoding refused");
    assert_eq!(cmd!(c, "DBSIZE"), int(0));

    // In a file it stops the start: half a data set is none.
    cmd!(c, "CONFIG", "SET", "rdbcompression", "no");
    cmd!(c, "CONFIG", "SET", "rdbchecksum", "no");
    cmd!(c, "RL.GCRA", "k", 9, 10, 60_000, "COST", 4);
    server.shutdown_save();
    let path = server.dir().join("dump.rdb");
    let mut bytes = std::fs::read(&path).expect("just saved");
    let blob = Bucket::owing(4, T_US, (9, 10, 60_000)).stored();
    let at = bytes.windows(blob.len()).position(|window| window == blob);
    bytes[at.expect("the stored form is in the file")] = 2;
    std::fs::write(&path, bytes).expect("the file is ours");
    let refused = Options::new()
        .config("dir", server.dir().display())
        .config("rdbchecksum", "no")
        .try_start();
    let log = refused.err().expect("it must not start").log;
    assert!(log.contains(&newer(2)), "{log}");
}
