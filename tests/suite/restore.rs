//! DUMP and RESTORE. A payload is untrusted input: whatever is wrong with it, the answer is an
//! error, nothing is stored, nothing leaks, and the server lives.

use crate::support::*;

const HOUR_MS: i64 = 3_600_000;
const DAY_US: u64 = 24 * 3_600_000_000;

fn bad() -> Reply {
    err("ERR Bad data format")
}

#[track_caller]
fn dump_of(c: &mut Conn, key: &str) -> Vec<u8> {
    cmd!(c, "DUMP", key).as_bytes().to_vec()
}

// --- good payloads ---

#[test]
fn the_checksum_is_the_servers() {
    assert_eq!(crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    let server = single();
    let mut c = server.conn();
    cmd!(c, "SET", "s", "text");
    let payload = checksummed(b"\0\x04text".to_vec());
    assert_eq!(cmd!(c, "RESTORE", "t", 0, &payload), ok());
    assert_eq!(cmd!(c, "GET", "t"), bulk("text"));
}

/// The bytes behind the framing's end and in front of version and checksum.
fn without_footer(payload: &[u8]) -> &[u8] {
    &payload[..payload.len() - 10]
}

#[test]
fn the_stored_form_is_what_was_written_down() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "CONFIG", "SET", "rdbcompression", "no");
    let now = server.clock().now_us();
    let now_ms = now as u64 / 1000;
    cmd!(c, "LOCK.ACQUIRE", "k", UUID, 5000, "META", "host-7");
    let mut held = Held::at(now, 5000, UUID);
    held.meta = b"host-7".to_vec();
    assert_eq!(
        without_footer(&dump_of(&mut c, "k")),
        without_footer(&held.dump())
    );

    cmd!(c, "LOCK.RELEASE", "k", UUID, "KEEP", 700);
    let kept = [&[1], &kept_body(now as u64, now_ms + 700)[..]].concat();
    let kept = dump("sluice-lk", 1, &kept);
    assert_eq!(without_footer(&dump_of(&mut c, "k")), without_footer(&kept));

    cmd!(c, "LOCK.GUARD", "g", 99, "PX", 800);
    let guard = [&[1], &guard_body(99, now_ms + 800)[..]].concat();
    let guard = dump("sluice-fn", 1, &guard);
    assert_eq!(
        without_footer(&dump_of(&mut c, "g")),
        without_footer(&guard)
    );
}

#[test]
fn dump_and_restore_give_the_same_state() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let long = [0xffu8; 512];
    let meta = [0u8; 1024];
    let token = cmd!(c, "LOCK.ACQUIRE", "held", UUID, 5000, "META", "m").as_int();
    cmd!(c, "LOCK.ACQUIRE", "long", &long, 5000, "META", &meta);
    cmd!(c, "LOCK.ACQUIRE", "kept", UUID, 5000);
    cmd!(c, "LOCK.RELEASE", "kept", UUID, "KEEP", 6000);
    cmd!(c, "LOCK.GUARD", "guard", 7);
    for key in ["held", "long", "kept", "guard"] {
        let payload = dump_of(&mut c, key);
        let ttl = cmd!(c, "PTTL", key);
        let digest = cmd!(c, "DEBUG", "DIGEST-VALUE", key);
        let copy = format!("{key}-copy");
        assert_eq!(cmd!(c, "RESTORE", &copy, ttl.as_int(), &payload), ok());
        assert_eq!(cmd!(c, "DEBUG", "DIGEST-VALUE", &copy), digest, "{key}");
        assert_eq!(cmd!(c, "PTTL", &copy), ttl);
        assert_eq!(dump_of(&mut c, &copy), payload);

        let at = cmd!(c, "PEXPIRETIME", key).as_int();
        let moved = args!["RESTORE", &copy, at, &payload, "REPLACE", "ABSTTL"];
        assert_eq!(c.cmd(&moved), ok());
        assert_eq!(cmd!(c, "PEXPIRETIME", &copy), int(at));
    }
    let info = cmd!(c, "LOCK.INFO", "held-copy");
    assert_eq!(info, cmd!(c, "LOCK.INFO", "held"));
    assert_eq!(info.field("token"), &int(token));
    assert_eq!(counter(&chain.primary, "lock_keys"), 6);
    assert_eq!(counter(&chain.primary, "guard_keys"), 2);
    chain.assert_equal();
}

#[test]
fn restore_replaces_only_when_told_to() {
    let chain = chain();
    let mut c = chain.primary.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", "old", 5000);
    let payload = dump_of(&mut c, "k");
    cmd!(c, "LOCK.FORCERELEASE", "k");
    let token = cmd!(c, "LOCK.ACQUIRE", "k", "new", 9000).as_int();
    let busy = err("BUSYKEY Target key name already exists.");
    assert_eq!(cmd!(c, "RESTORE", "k", 0, &payload), busy);
    assert_eq!(cmd!(c, "LOCK.INFO", "k").field("token"), &int(token));
    assert_eq!(cmd!(c, "RESTORE", "k", 5000, &payload, "REPLACE"), ok());
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", "new", 9000), int(0));
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", "old", 1), int(5000));
    // Over another type, and another type over a lock.
    cmd!(c, "SET", "s", "text");
    let text = dump_of(&mut c, "s");
    assert_eq!(cmd!(c, "RESTORE", "s", 5000, &payload, "REPLACE"), ok());
    assert_eq!(cmd!(c, "TYPE", "s"), status("sluice-lk"));
    assert_eq!(cmd!(c, "RESTORE", "k", 0, &text, "REPLACE"), ok());
    assert_eq!(cmd!(c, "GET", "k"), bulk("text"));
    assert_eq!(counter(&chain.primary, "lock_keys"), 1);
    chain.assert_equal();
}

#[test]
fn a_shorter_ttl_ends_a_restored_lock_early() {
    let server = single();
    let mut c = server.conn();
    leave_expired(&mut c);
    cmd!(c, "LOCK.ACQUIRE", "k", UUID, 5000);
    let payload = dump_of(&mut c, "k");
    cmd!(c, "DEL", "k");
    assert_eq!(cmd!(c, "RESTORE", "k", 2000, &payload), ok());
    assert_eq!(cmd!(c, "LOCK.INFO", "k").field("ttl_ms"), &int(2000));
    server.clock().advance_ms(2000);
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "other", 1000), nil());
    server.clock().advance_ms(1);
    assert_eq!(cmd!(c, "LOCK.INFO", "k"), nil());
    assert_eq!(cmd!(c, "LOCK.RENEW", "k", UUID, 1000), int(0));
    assert!(cmd!(c, "LOCK.ACQUIRE", "k", "other", 1000).as_int() > 0);
}

#[test]
fn no_ttl_and_a_longer_ttl_never_prolong_a_restored_lock() {
    let server = single();
    let mut c = server.conn();
    for ttl in [0, 50_000] {
        cmd!(c, "LOCK.ACQUIRE", "k", UUID, 5000);
        cmd!(c, "LOCK.GUARD", "g", 9, "PX", 5000);
        let (lock, guard) = (dump_of(&mut c, "k"), dump_of(&mut c, "g"));
        cmd!(c, "DEL", "k", "g");
        assert_eq!(cmd!(c, "RESTORE", "k", ttl, &lock), ok());
        assert_eq!(cmd!(c, "RESTORE", "g", ttl, &guard), ok());
        assert_eq!(cmd!(c, "PTTL", "k"), int(if ttl == 0 { -1 } else { ttl }));
        assert_eq!(cmd!(c, "LOCK.INFO", "k").field("ttl_ms"), &int(5000));
        server.clock().advance_ms(5000);
        assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "other", 1000), nil());
        assert_eq!(cmd!(c, "LOCK.GUARD", "g", 8), int(0));
        server.clock().advance_ms(1);
        assert_eq!(cmd!(c, "EXISTS", "k", "g"), int(2));
        assert_eq!(cmd!(c, "LOCK.INFO", "k"), nil());
        assert_eq!(cmd!(c, "LOCK.RENEW", "k", UUID, 1000), int(0));
        assert_eq!(cmd!(c, "LOCK.RELEASE", "k", UUID), int(0));
        assert!(cmd!(c, "LOCK.ACQUIRE", "k", "other", 1000).as_int() > 0);
        assert_eq!(cmd!(c, "PTTL", "k"), int(1000));
        assert_eq!(cmd!(c, "LOCK.GUARD", "g", 8, "PX", 600), int(1));
        assert_eq!(cmd!(c, "PTTL", "g"), int(600));
        cmd!(c, "DEL", "k", "g");
    }
}

#[test]
fn the_next_write_gives_a_restored_lock_its_ttl() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", UUID, 5000);
    let payload = dump_of(&mut c, "k");
    for line in [
        format!("LOCK.RENEW k {UUID} 1"),
        format!("LOCK.ACQUIRE k {UUID} 1"),
    ] {
        for ttl in [0, 1000, 50_000] {
            assert_eq!(cmd!(c, "RESTORE", "k", ttl, &payload, "REPLACE"), ok());
            assert!(c.cmd(&words(&line)).as_int() > 0);
            assert_eq!(cmd!(c, "PTTL", "k"), int(5000), "{line} after ttl {ttl}");
        }
    }
}

#[test]
fn a_lock_that_is_over_may_be_restored_and_is_free() {
    let server = single();
    let mut c = server.conn();
    let now = server.clock().now_us();
    let mut lock = Held::at(now, 5000, "x");
    lock.granted_ms -= 10_000;
    lock.deadline_ms -= 10_000;
    assert_eq!(cmd!(c, "RESTORE", "k", 0, lock.dump()), ok());
    assert_eq!(cmd!(c, "LOCK.INFO", "k"), nil());
    assert_eq!(cmd!(c, "LOCK.ACQUIRE", "k", "y", 1000), int(now + 1));
}

// --- bad payloads ---

/// What a stored lock must be, said once more and apart from the module: `None` when it is not.
fn is_valid_lock(blob: &[u8], now_us: u64, high: u64) -> bool {
    let u64_at = |at: usize| {
        blob.get(at..at + 8)
            .map(|b| u64::from_le_bytes(b.try_into().unwrap()))
    };
    let u16_at = |at: usize| {
        blob.get(at..at + 2)
            .map(|b| u16::from_le_bytes(b.try_into().unwrap()))
    };
    let check = || -> Option<bool> {
        if *blob.first()? != 1 {
            return None;
        }
        let token = u64_at(2)?;
        let token_ok = (1..=LAST_TOKEN.min(high.max(now_us + DAY_US))).contains(&token);
        let instant_ok = |ms: u64| ms < 1 << 53;
        match *blob.get(1)? {
            0 => {
                let (deadline, granted, max) = (u64_at(10)?, u64_at(18)?, u64_at(26)?);
                let holds = u32::from_le_bytes(blob.get(34..38)?.try_into().unwrap());
                let (owner, meta) = (u16_at(38)?, u16_at(40)?);
                let exact = blob.len() == 42 + usize::from(owner) + usize::from(meta);
                Some(
                    token_ok
                        && instant_ok(deadline)
                        && instant_ok(granted)
                        && granted <= deadline
                        && instant_ok(max)
                        && (max == 0 || deadline <= max)
                        && holds > 0
                        && (1..=512).contains(&owner)
                        && meta <= 1024
                        && exact,
                )
            }
            1 => Some(token_ok && instant_ok(u64_at(10)?) && blob.len() == 18),
            _ => None,
        }
    };
    check().unwrap_or(false)
}

/// Restores every payload; each must be refused or, if `valid`, come back as the same bytes.
#[track_caller]
fn restore_all(server: &Server, blobs: impl IntoIterator<Item = Vec<u8>>) {
    let mut c = server.conn();
    cmd!(c, "CONFIG", "SET", "rdbcompression", "no");
    let now = server.clock().now_us() as u64;
    for blob in blobs {
        let high = counter_now(&mut c);
        let payload = dump("sluice-lk", 1, &blob);
        let reply = cmd!(c, "RESTORE", "k", 0, &payload);
        let shown = blob.escape_ascii().to_string();
        if is_valid_lock(&blob, now, high) {
            assert_eq!(reply, ok(), "{shown}");
            let again = dump_of(&mut c, "k");
            assert_eq!(without_footer(&again), without_footer(&payload), "{shown}");
            assert!(!cmd!(c, "LOCK.INFO", "k").is_error());
            assert_eq!(cmd!(c, "DEL", "k"), int(1));
        } else {
            assert_eq!(reply, bad(), "{shown}");
            assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
            assert_eq!(counter_now(&mut c), high, "the mark moved: {shown}");
        }
    }
    assert_eq!(counter(server, "lock_keys"), 0);
}

fn counter_now(c: &mut Conn) -> u64 {
    let info = cmd!(c, "INFO", "sluice").as_text();
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("sluice_token_high_water:"));
    line.and_then(|value| value.parse().ok()).expect("the mark")
}

fn sample(server: &Server) -> Held {
    let mut held = Held::at(server.clock().now_us(), 5000, UUID);
    held.meta = b"host-7".to_vec();
    held
}

#[test]
fn every_truncation_is_refused() {
    let server = single();
    let blob = sample(&server).stored();
    restore_all(&server, (0..blob.len()).map(|len| blob[..len].to_vec()));
    let kept = [&[1], &kept_body(5, 2_000_000_000_000)[..]].concat();
    restore_all(&server, (0..kept.len()).map(|len| kept[..len].to_vec()));

    let mut c = server.conn();
    let guard = [&[1], &guard_body(5, 2_000_000_000_000)[..]].concat();
    for len in 0..guard.len() {
        let payload = dump("sluice-fn", 1, &guard[..len]);
        assert_eq!(cmd!(c, "RESTORE", "g", 0, payload), bad());
    }
    assert_eq!(counter(&server, "guard_keys"), 0);
}

#[test]
fn every_truncation_of_the_framing_is_refused() {
    let server = single();
    let mut c = server.conn();
    // The reader goes on into the version behind a body that is cut; with a kept lock the bytes
    // there never make up for what is missing.
    let now_ms = server.clock().now_ms() as u64;
    let whole = dump("sluice-lk", 1, &[&[1], &kept_body(5, now_ms)[..]].concat());
    let body = without_footer(&whole);
    // An empty body has no type byte to read.
    for len in 1..body.len() {
        let payload = checksummed(body[..len].to_vec());
        assert_eq!(cmd!(c, "RESTORE", "k", 0, &payload), bad(), "at {len}");
        assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
    }
    assert_eq!(counter(&server, "lock_keys"), 0);
    assert_eq!(cmd!(c, "RESTORE", "k", 0, &whole), ok());
}

#[test]
fn every_changed_byte_is_refused_or_means_another_valid_lock() {
    let server = single();
    let blob = sample(&server).stored();
    let changed = (0..blob.len()).flat_map(|at| {
        let blob = blob.clone();
        let old = blob[at];
        let values = [old ^ 1, old ^ 0x80, 0, 0xff, old.wrapping_add(1)];
        values
            .into_iter()
            .filter(move |v| *v != old)
            .map(move |value| {
                let mut changed = blob.clone();
                changed[at] = value;
                changed
            })
    });
    restore_all(&server, changed);
}

#[test]
fn changed_framing_is_refused() {
    let server = single();
    let mut c = server.conn();
    let held = sample(&server);
    let whole = held.dump();
    let body = without_footer(&whole);
    // The module id (2..10), the opcode (10), the length (11) and the end (last), with the two top
    // bits, which say how a length is written, and the encoding version (in byte 9) left to others.
    for at in (2..9).chain([10, 11, body.len() - 1]) {
        for flip in [1, 2, 4, 0x20] {
            let mut changed = body.to_vec();
            changed[at] ^= flip;
            let reply = cmd!(c, "RESTORE", "k", 0, checksummed(changed));
            assert_eq!(reply, bad(), "byte {at} flipped by {flip}");
            assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
        }
    }
    // Another kind of value where the string should be.
    let id = module_id("sluice-lk", 1).to_be_bytes();
    for opcode in [1u8, 2, 3, 4] {
        let payload = [&[7, 0x81], &id[..], &[opcode, 1, 0, 0, 0, 0, 0, 0, 0]].concat();
        assert_eq!(cmd!(c, "RESTORE", "k", 0, checksummed(payload)), bad());
    }
    // A guard's bytes under a lock's name, and the other way round.
    let guard = [&[1], &guard_body(5, 2_000_000_000_000)[..]].concat();
    assert_eq!(
        cmd!(c, "RESTORE", "k", 0, dump("sluice-lk", 1, &guard)),
        bad()
    );
    assert_eq!(
        cmd!(c, "RESTORE", "k", 0, dump("sluice-fn", 1, &held.stored())),
        bad()
    );
    assert_eq!(counter(&server, "lock_keys"), 0);
    assert_eq!(counter(&server, "guard_keys"), 0);
}

#[test]
fn numbers_out_of_range_are_refused() {
    let server = single();
    let good = sample(&server);
    let with = |change: &dyn Fn(&mut Held)| {
        let mut held = good.clone();
        change(&mut held);
        held.stored()
    };
    let far = 1u64 << 53;
    restore_all(
        &server,
        [
            with(&|l| l.token = 0),
            with(&|l| l.token = far),
            with(&|l| l.token = u64::MAX),
            with(&|l| l.token = 1),
            with(&|l| l.deadline_ms = far),
            with(&|l| l.deadline_ms = far - 1),
            with(&|l| l.deadline_ms = u64::MAX),
            with(&|l| l.deadline_ms = l.granted_ms - 1),
            with(&|l| l.deadline_ms = l.granted_ms),
            with(&|l| (l.granted_ms, l.deadline_ms) = (far, far)),
            with(&|l| l.granted_ms = 0),
            with(&|l| l.holds = 0),
            with(&|l| l.holds = u32::MAX),
            with(&|l| l.owner = Vec::new()),
            with(&|l| l.owner = vec![b'x'; 512]),
            with(&|l| l.owner = vec![b'x'; 513]),
            with(&|l| l.owner = vec![b'x'; 65535]),
            with(&|l| l.meta = vec![b'x'; 1024]),
            with(&|l| l.meta = vec![b'x'; 1025]),
            [&good.stored()[..], b"\0"].concat(),
            [&good.stored()[..], &good.stored()[..]].concat(),
            [&[1], &kept_body(0, 5)[..]].concat(),
            [&[1], &kept_body(far, 5)[..]].concat(),
            [&[1], &kept_body(5, far)[..]].concat(),
            [&[1], &kept_body(5, far - 1)[..]].concat(),
            [&[1], &kept_body(5, 5)[..], &[0]].concat(),
            vec![1, 2],
            vec![0],
            Vec::new(),
        ],
    );
    let mut c = server.conn();
    for (token, until, expected) in [
        (0, 5, bad()),
        (far, 5, bad()),
        (LAST_TOKEN, far, bad()),
        (LAST_TOKEN, far - 1, ok()),
    ] {
        let blob = [&[1], &guard_body(token, until)[..]].concat();
        let payload = dump("sluice-fn", 1, &blob);
        assert_eq!(cmd!(c, "RESTORE", "g", 0, payload, "REPLACE"), expected);
    }
    let trailing = [&[1], &guard_body(5, 5)[..], &[9]].concat();
    assert_eq!(
        cmd!(c, "RESTORE", "h", 0, dump("sluice-fn", 1, &trailing)),
        bad()
    );
}

#[test]
fn a_newer_version_is_refused_and_named_in_the_log() {
    let server = single();
    let mut c = server.conn();
    let newer = |type_name: &str, version: u8| {
        format!(
            "<sluice> {type_name}: encoding version {version} is newer than 1, the newest this \
             module reads: upgrade replicas before their primary"
        )
    };
    let mut blob = sample(&server).stored();
    blob[0] = 2;
    assert_eq!(
        cmd!(c, "RESTORE", "k", 0, dump("sluice-lk", 1, &blob)),
        bad()
    );
    server.wait_log(&newer("sluice-lk", 2));
    blob[0] = 255;
    assert_eq!(
        cmd!(c, "RESTORE", "k", 0, dump("sluice-lk", 1, &blob)),
        bad()
    );
    server.wait_log(&newer("sluice-lk", 255));
    let guard = [&[3], &guard_body(5, 5)[..]].concat();
    assert_eq!(
        cmd!(c, "RESTORE", "k", 0, dump("sluice-fn", 1, &guard)),
        bad()
    );
    server.wait_log(&newer("sluice-fn", 3));

    // The same in the type's own version field, whatever follows.
    server.clear_log();
    blob[0] = 1;
    assert_eq!(
        cmd!(c, "RESTORE", "k", 0, dump("sluice-lk", 2, &blob)),
        bad()
    );
    server.wait_log(&newer("sluice-lk", 2));
    assert_eq!(cmd!(c, "RESTORE", "k", 0, dump("sluice-fn", 7, b"")), bad());
    server.wait_log(&newer("sluice-fn", 7));
    assert_eq!(
        cmd!(c, "RESTORE", "k", 0, dump("sluice-lk", 1, b"\0")),
        bad()
    );
    server.wait_log("<sluice> sluice-lk: corrupt encoding refused");
    assert_eq!(
        cmd!(c, "RESTORE", "k", 0, dump("sluice-fn", 1, b"\x01x")),
        bad()
    );
    server.wait_log("<sluice> sluice-fn: corrupt encoding refused");
    assert_eq!(cmd!(c, "DBSIZE"), int(0));
}

#[test]
fn a_newer_version_in_an_rdb_file_stops_the_start() {
    let server = Options::new().start();
    server.clock().freeze_at(T_US);
    let mut c = server.conn();
    cmd!(c, "CONFIG", "SET", "rdbcompression", "no");
    cmd!(c, "CONFIG", "SET", "rdbchecksum", "no");
    cmd!(c, "LOCK.ACQUIRE", "k", "owner-in-the-file", 5000);
    server.shutdown_save();
    // The file with another version byte; without a checksum, which is then not verified.
    let path = server.dir().join("dump.rdb");
    let mut bytes = std::fs::read(&path).unwrap();
    let blob = Held::at(T_US, 5000, "owner-in-the-file").stored();
    let at = bytes.windows(blob.len()).position(|window| window == blob);
    bytes[at.expect("the stored form is in the file")] = 2;
    std::fs::write(&path, bytes).unwrap();
    let refused = Options::new()
        .config("dir", server.dir().display())
        .config("rdbchecksum", "no")
        .try_start();
    let log = refused.err().expect("half a data set is none").log;
    assert!(
        log.contains("<sluice> sluice-lk: encoding version 2 is newer than 1"),
        "{log}"
    );
}

#[test]
fn refused_payloads_leave_no_memory_behind() {
    let server = single();
    let mut c = server.conn();
    let good = sample(&server);
    let mut long = good.clone();
    long.owner = vec![b'x'; 512];
    long.meta = vec![b'y'; 1024];
    let mut old_version = long.stored();
    old_version[0] = 2;
    let mut ahead = long.clone();
    ahead.token = LAST_TOKEN;
    let long = long.stored();
    let mut unended = dump("sluice-lk", 1, &long);
    unended.truncate(unended.len() - 11);
    unended.push(5);
    let mut payloads: Vec<Vec<u8>> = [1, 20, 33, 34, 300, long.len() - 1]
        .map(|len| dump("sluice-lk", 1, &long[..len]))
        .to_vec();
    payloads.extend([
        dump("sluice-lk", 1, &[&long[..], b"more"].concat()),
        dump("sluice-lk", 1, &old_version),
        dump("sluice-lk", 2, &long),
        ahead.dump(),
        // A value that was built and then found to be followed by something else.
        checksummed(unended),
    ]);
    let round = |c: &mut Conn, payload: &Vec<u8>| {
        let line = args!["RESTORE", "k", 0, payload];
        let replies = c.pipeline(&vec![line; 100]);
        assert!(
            replies.iter().all(|reply| *reply == bad()),
            "{:?}",
            replies[0]
        );
    };
    let used = || server.info("memory")["used_memory"].parse::<i64>().unwrap();
    for payload in &payloads {
        round(&mut c, payload);
        // A leak would show in each of the ten rounds; buffers of connections come and go.
        let least = (0..10)
            .map(|_| {
                let before = used();
                round(&mut c, payload);
                used() - before
            })
            .min();
        assert!(least <= Some(0), "100 refusals leave {least:?} bytes");
    }
    assert_eq!(counter(&server, "lock_keys"), 0);
    assert_eq!(cmd!(c, "RESTORE", "k", 0, good.dump()), ok());
}

#[test]
fn a_refused_replace_leaves_the_old_value() {
    let server = single();
    let mut c = server.conn();
    let token = cmd!(c, "LOCK.ACQUIRE", "k", UUID, 5000).as_int();
    let blob = sample(&server).stored();
    let payload = dump("sluice-lk", 1, &blob[..20]);
    let reply = changes_nothing(&server, || cmd!(c, "RESTORE", "k", 0, payload, "REPLACE"));
    assert_eq!(reply, bad());
    assert_eq!(cmd!(c, "LOCK.INFO", "k").field("token"), &int(token));
}

#[test]
fn restore_into_the_past_stores_nothing() {
    let server = single();
    let mut c = server.conn();
    let held = sample(&server);
    let past = server.clock().now_ms() - HOUR_MS;
    assert_eq!(cmd!(c, "RESTORE", "k", past, held.dump(), "ABSTTL"), ok());
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
    assert_eq!(counter(&server, "lock_keys"), 0);
}

#[test]
fn migrate_carries_a_lock_to_another_server() {
    let (from, to) = (single(), Options::new().start());
    to.clock().freeze_at(from.clock().now_us());
    let mut c = from.conn();
    let token = cmd!(c, "LOCK.ACQUIRE", "k", UUID, 5000, "META", "m").as_int();
    let info = cmd!(c, "LOCK.INFO", "k");
    let moved = cmd!(c, "MIGRATE", "127.0.0.1", to.port(), "k", 0, 5000);
    assert_eq!(moved, ok());
    assert_eq!(cmd!(c, "LOCK.INFO", "k"), nil());
    let mut t = to.conn();
    assert_eq!(cmd!(t, "LOCK.INFO", "k"), info);
    assert_eq!(
        cmd!(t, "LOCK.RENEW", "k", UUID, 9000, "TOKEN", token),
        int(9000)
    );
    assert_eq!(cmd!(t, "LOCK.ACQUIRE", "l", UUID, 9000), int(token + 1));
}

/// The value is read before its end mark: what it says must not count when that is wrong.
/// The server finds the payload's end wrong only after the value in it was taken: the mark
/// may have risen, but never beyond what an accepted payload could bring.
#[test]
fn a_payload_refused_behind_its_value_moves_the_mark_within_the_cap() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "mine", UUID, 5000);
    let mut held = sample(&server);
    held.token += DAY_US;
    let mut payload = without_footer(&held.dump()).to_vec();
    *payload.last_mut().expect("the end mark") = 5;
    assert_eq!(cmd!(c, "RESTORE", "k", 0, checksummed(payload)), bad());
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
    assert_eq!(counter_now(&mut c), held.token);
}
