//! DUMP and RESTORE of semaphores. A payload is untrusted input: whatever is wrong with it, the
//! answer is an error, nothing is stored, nothing leaks, and the server lives.

use crate::sem_support::*;
use crate::support::*;

const DAY_US: u64 = 24 * 3_600_000_000;

fn bad() -> Reply {
    err("ERR Bad data format")
}

/// The bytes in front of version and checksum.
fn without_footer(payload: &[u8]) -> &[u8] {
    &payload[..payload.len() - 10]
}

/// Three holders that a server may have stored.
fn sample(server: &Server) -> Vec<Hold> {
    let now = server.clock().now_us();
    let mut holds: Vec<Hold> = ["a", "holder-b", UUID]
        .iter()
        .zip([2, 1, 1000])
        .map(|(holder, permits)| Hold::at(now, 5000 + u64::from(permits), permits, holder))
        .collect();
    for (n, hold) in (0..).zip(&mut holds) {
        hold.token += n;
    }
    holds[1].meta = b"host-7".to_vec();
    holds
}

/// `sample` with one change.
fn changed(server: &Server, change: impl FnOnce(&mut Vec<Hold>)) -> Vec<u8> {
    let mut holds = sample(server);
    change(&mut holds);
    stored(&holds)
}

/// What a stored semaphore must be, said once more and apart from the module: `None` when it is not.
fn parse(blob: &[u8], highest_token: u64) -> Option<Vec<Hold>> {
    let mut rest = blob;
    let mut take = |len: usize| {
        let (head, tail) = rest.split_at_checked(len)?;
        rest = tail;
        Some(head.to_vec())
    };
    let number = |bytes: Vec<u8>| {
        let bytes = bytes.iter().rev();
        bytes.fold(0u64, |number, byte| number << 8 | u64::from(*byte))
    };
    if number(take(1)?) != 1 {
        return None;
    }
    let count = number(take(4)?);
    let mut holds: Vec<Hold> = Vec::new();
    for _ in 0..count {
        let mut hold = Hold {
            token: number(take(8)?),
            deadline_ms: number(take(8)?),
            granted_ms: number(take(8)?),
            permits: number(take(4)?) as u32,
            holder: Vec::new(),
            meta: Vec::new(),
        };
        let (holder, meta) = (number(take(2)?), number(take(2)?));
        hold.holder = take(holder as usize)?;
        hold.meta = take(meta as usize)?;
        let last = holds.last().map_or(0, |hold| hold.token);
        let is_good = last < hold.token
            && hold.token <= highest_token.min(LAST_TOKEN)
            && hold.deadline_ms < 1 << 53
            && hold.granted_ms <= hold.deadline_ms
            && (1..=1_000_000).contains(&hold.permits)
            && (1..=512).contains(&holder)
            && meta <= 1024
            && holds.iter().all(|other| other.holder != hold.holder);
        if !is_good {
            return None;
        }
        holds.push(hold);
    }
    (count > 0 && rest.is_empty()).then_some(holds)
}

/// Restores every payload; each must be refused or, if valid, come back as the same bytes. Says how
/// many were valid.
#[track_caller]
fn restore_all(server: &Server, blobs: impl IntoIterator<Item = Vec<u8>>) -> usize {
    let mut c = server.conn();
    cmd!(c, "CONFIG", "SET", "rdbcompression", "no");
    let now = server.clock().now_us() as u64;
    let mut valid = 0;
    for blob in blobs {
        let mark = high_water(server);
        let payload = dump("sluice-sm", 1, &blob);
        let reply = cmd!(c, "RESTORE", "k", 0, &payload);
        let shown = blob.escape_ascii().to_string();
        match parse(&blob, (mark as u64).max(now + DAY_US)) {
            Some(holds) => {
                valid += 1;
                assert_eq!(reply, ok(), "{shown}");
                let again = cmd!(c, "DUMP", "k");
                let again = without_footer(again.as_bytes());
                assert_eq!(again, without_footer(&payload), "{shown}");
                let permits: i64 = holds.iter().map(|hold| i64::from(hold.permits)).sum();
                assert_eq!(counter(server, "sem_permits"), permits, "{shown}");
                assert!(!cmd!(c, "SEM.INFO", "k").is_error());
                assert_eq!(cmd!(c, "DEL", "k"), int(1));
            }
            None => {
                assert_eq!(reply, bad(), "{shown}");
                assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
                assert_eq!(high_water(server), mark, "the mark moved: {shown}");
            }
        }
    }
    assert_eq!(counter(server, "sem_keys"), 0);
    assert_eq!(counter(server, "sem_permits"), 0);
    valid
}

#[test]
fn the_stored_form_is_what_was_written_down() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "CONFIG", "SET", "rdbcompression", "no");
    acquire(&mut c, "k a 5002 9 PERMITS 2");
    acquire(&mut c, "k holder-b 5001 9 META host-7");
    acquire(&mut c, &format!("k {UUID} 6000 9999 PERMITS 1000"));
    let dumped = cmd!(c, "DUMP", "k");
    let expected = sem_dump(&sample(&server));
    assert_eq!(without_footer(dumped.as_bytes()), without_footer(&expected));
    assert_eq!(cmd!(c, "RESTORE", "copy", 6000, &expected), ok());
    let digest = cmd!(c, "DEBUG", "DIGEST-VALUE", "k");
    assert_eq!(cmd!(c, "DEBUG", "DIGEST-VALUE", "copy"), digest);
}

#[test]
fn every_cut_is_refused() {
    let server = single();
    let blob = stored(&sample(&server));
    let cuts = (0..blob.len()).map(|len| blob[..len].to_vec());
    assert_eq!(restore_all(&server, cuts), 0);
    let longer = [&b"\0"[..], b"more", &blob, &blob[5..]].map(|rest| [&blob[..], rest].concat());
    assert_eq!(restore_all(&server, longer), 0);
    assert_eq!(restore_all(&server, [blob]), 1);
}

#[test]
fn every_changed_byte_is_refused_or_means_another_semaphore() {
    let server = single();
    let blob = stored(&sample(&server));
    let all = (0..blob.len()).flat_map(|at| {
        let old = blob[at];
        let values = [old ^ 1, old ^ 0x80, 0, 0xff, old.wrapping_add(1)];
        let values = values.into_iter().filter(move |value| *value != old);
        let blob = &blob;
        values.map(move |value| {
            let mut other = blob.clone();
            other[at] = value;
            other
        })
    });
    assert!(restore_all(&server, all.collect::<Vec<_>>()) > 100);
}

#[test]
fn every_field_has_its_range() {
    let server = single();
    type Change = fn(&mut Vec<Hold>);
    let refused: &[Change] = &[
        |h| h.clear(),
        |h| h[0].token = 0,
        |h| h[2].token = 1 << 53,
        |h| h[2].token = u64::MAX,
        |h| h[1].token = h[0].token,
        |h| h.swap(0, 1),
        |h| h[1].holder = h[0].holder.clone(),
        |h| h[1].deadline_ms = 1 << 53,
        |h| h[1].deadline_ms = u64::MAX,
        |h| h[1].deadline_ms = h[1].granted_ms - 1,
        |h| h[1].granted_ms = u64::MAX,
        |h| h[0].permits = 0,
        |h| h[2].permits = 1_000_001,
        |h| h[2].permits = u32::MAX,
        |h| h[1].holder = Vec::new(),
        |h| h[1].holder = vec![b'x'; 513],
        |h| h[1].holder = vec![b'x'; 65_535],
        |h| h[2].meta = vec![b'x'; 1025],
    ];
    let blobs = refused.iter().map(|change| changed(&server, change));
    assert_eq!(restore_all(&server, blobs), 0);
    let taken: &[Change] = &[
        |h| h[0].token = 1,
        |h| h.truncate(1),
        |h| h[1].deadline_ms = h[1].granted_ms,
        |h| h[1].deadline_ms = (1 << 53) - 1,
        |h| h[1].granted_ms = 0,
        |h| h[0].permits = 1,
        |h| h[1].holder = vec![0xff; 512],
        |h| h[2].meta = vec![0; 1024],
    ];
    let blobs = taken.iter().map(|change| changed(&server, change));
    assert_eq!(restore_all(&server, blobs), taken.len());
    // A count that the bytes do not hold, however large.
    let good = stored(&sample(&server));
    let counts = [0u32, 1, 2, 4, 100_000, 100_001, u32::MAX].map(|count| {
        let mut other = good.clone();
        other[1..5].copy_from_slice(&count.to_le_bytes());
        other
    });
    assert_eq!(restore_all(&server, counts), 0);
}

#[test]
fn a_token_may_be_a_day_ahead_and_no_microsecond_more() {
    let server = single();
    let mut c = server.conn();
    let now = server.clock().now_us() as u64;
    acquire(&mut c, "mine a 5000 1");
    let mark = high_water(&server);
    for which in 0..3 {
        let mut holds = sample(&server);
        holds.truncate(which + 1);
        holds[which].token = now + DAY_US + 1;
        let reply = cmd!(c, "RESTORE", "k", 0, sem_dump(&holds));
        assert_eq!(reply, bad());
        assert_eq!(high_water(&server), mark);
    }
    server.wait_log("<sluice> sluice-sm");
    let mut holds = sample(&server);
    holds[2].token = now + DAY_US;
    assert_eq!(cmd!(c, "RESTORE", "k", 0, sem_dump(&holds)), ok());
    assert_eq!(high_water(&server) as u64, now + DAY_US);
    assert_eq!(acquire(&mut c, "k new 5000 9999") as u64, now + DAY_US + 1);
    // What this server has issued may come back at any time.
    let dump = cmd!(c, "DUMP", "k");
    assert_eq!(cmd!(c, "RESTORE", "again", 0, dump.as_bytes()), ok());
}

#[test]
fn a_newer_version_is_refused_and_named_in_the_log() {
    let server = single();
    let mut c = server.conn();
    let newer = |version: u8| {
        format!(
            "<sluice> sluice-sm: encoding version {version} is newer than 1, the newest this \
             module reads: upgrade replicas before their primary"
        )
    };
    let mut blob = stored(&sample(&server));
    for version in [2, 255] {
        blob[0] = version;
        let reply = cmd!(c, "RESTORE", "k", 0, dump("sluice-sm", 1, &blob));
        assert_eq!(reply, bad());
        server.wait_log(&newer(version));
    }
    // In the type's own version field, whatever follows.
    server.clear_log();
    blob[0] = 1;
    let reply = cmd!(c, "RESTORE", "k", 0, dump("sluice-sm", 2, &blob));
    assert_eq!(reply, bad());
    server.wait_log(&newer(2));
    let reply = cmd!(c, "RESTORE", "k", 0, dump("sluice-sm", 1, b"\0"));
    assert_eq!(reply, bad());
    server.wait_log("<sluice> sluice-sm: corrupt encoding refused");
    // Another type's bytes under this name, and these under another's.
    let lock = Held::at(server.clock().now_us(), 5000, "x").stored();
    for payload in [dump("sluice-sm", 1, &lock), dump("sluice-lk", 1, &blob)] {
        assert_eq!(cmd!(c, "RESTORE", "k", 0, payload), bad());
    }
    assert_eq!(cmd!(c, "DBSIZE"), int(0));
}

#[test]
fn a_newer_version_in_an_rdb_file_stops_the_start() {
    let server = Options::new().start();
    server.clock().freeze_at(T_US);
    let mut c = server.conn();
    cmd!(c, "CONFIG", "SET", "rdbcompression", "no");
    cmd!(c, "CONFIG", "SET", "rdbchecksum", "no");
    acquire(&mut c, "k holder-in-the-file 5000 9 PERMITS 4");
    server.shutdown_save();
    let path = server.dir().join("dump.rdb");
    let mut bytes = std::fs::read(&path).unwrap();
    let blob = stored(&[Hold::at(T_US, 5000, 4, "holder-in-the-file")]);
    let at = bytes.windows(blob.len()).position(|window| window == blob);
    bytes[at.expect("the stored form is in the file")] = 2;
    std::fs::write(&path, bytes).unwrap();
    let refused = Options::new()
        .config("dir", server.dir().display())
        .config("rdbchecksum", "no")
        .try_start();
    let log = refused.err().expect("half a data set is none").log;
    assert!(
        log.contains("<sluice> sluice-sm: encoding version 2 is newer than 1"),
        "{log}"
    );
}

/// RedisBloom#1054: payloads cut after the second of three entries, with the right checksum, many
/// times: an error each time and no leak.
#[test]
fn refused_payloads_leave_no_memory_behind() {
    let server = single();
    let mut c = server.conn();
    let mut holds = sample(&server);
    for hold in &mut holds {
        hold.meta = vec![b'y'; 1024];
    }
    let long = stored(&holds);
    let two = stored(&holds[..2]).len();
    let mut ahead = holds.clone();
    ahead[2].token = LAST_TOKEN;
    let mut unended = dump("sluice-sm", 1, &long);
    unended.truncate(unended.len() - 11);
    unended.push(5);
    let payloads = [
        dump("sluice-sm", 1, &long[..two]),
        dump("sluice-sm", 1, &long[..two + 30]),
        dump("sluice-sm", 1, &long[..long.len() - 1]),
        dump("sluice-sm", 1, &[&long[..], b"more"].concat()),
        sem_dump(&ahead),
        // A value that was built and then found to be followed by something else.
        checksummed(unended),
    ];
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
    assert_eq!(counter(&server, "sem_keys"), 0);
    assert_eq!(counter(&server, "sem_permits"), 0);
    assert_eq!(cmd!(c, "RESTORE", "k", 0, sem_dump(&holds)), ok());
}

#[test]
fn a_restored_semaphore_is_as_limited_as_it_was() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let a = acquire(&mut c, "k a 5000 3 PERMITS 2");
    acquire(&mut c, "k b 2000 3");
    let dump = cmd!(c, "DUMP", "k");
    for ttl in [0, 1000, 50_000] {
        let restored = cmd!(c, "RESTORE", "k", ttl, dump.as_bytes(), "REPLACE");
        assert_eq!(restored, ok());
        chain.assert_equal();
        assert_eq!(run(&mut c, "SEM.ACQUIRE k x 1 3"), nil());
        assert_eq!(acquire(&mut c, "k a 1 3 PERMITS 2"), a);
        assert_eq!(cmd!(c, "PTTL", "k"), int(5000), "after a ttl of {ttl}");
        chain.assert_equal();
    }
    let refused = cmd!(c, "RESTORE", "k", 0, dump.as_bytes());
    assert_eq!(refused, err("BUSYKEY Target key name already exists."));
    chain.clock().advance_ms(2001);
    acquire(&mut c, "k x 1 3");
    chain.assert_equal();
    // One that is over altogether is as good as none.
    chain.clock().advance_ms(5000);
    assert_eq!(cmd!(c, "RESTORE", "k", 0, dump.as_bytes(), "REPLACE"), ok());
    assert_eq!(cmd!(c, "SEM.INFO", "k"), nil());
    assert!(acquire(&mut c, "k y 1000 3 PERMITS 3") > a);
    chain.assert_equal();
}
