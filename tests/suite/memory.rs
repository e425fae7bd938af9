//! What a lock costs, and that it is given back.

use crate::support::*;

/// 19 bytes.
fn key(i: usize) -> String {
    format!("lock:{i:014}")
}

#[test]
fn memory_usage_counts_the_value_and_a_long_owner() {
    let server = single();
    let mut c = server.conn();
    // A guard in front, to leave out what the server adds for the key itself.
    assert_eq!(cmd!(c, "LOCK.GUARD", "k", 1), int(1));
    let guard = cmd!(c, "MEMORY", "USAGE", "k").as_int();
    let mut usage = |owner: &[u8], meta: &[u8]| {
        cmd!(c, "DEL", "k");
        assert!(!cmd!(c, "LOCK.ACQUIRE", "k", owner, 1000, "META", meta).is_error());
        cmd!(c, "MEMORY", "USAGE", "k").as_int() - guard + 16
    };
    assert_eq!(usage(UUID.as_bytes(), b""), VALUE);
    assert_eq!(usage(b"x", b""), VALUE);
    assert_eq!(usage(UUID.as_bytes(), b"123456789"), VALUE);
    assert_eq!(usage(UUID.as_bytes(), b"1234567890"), VALUE + 46);
    assert_eq!(usage(&[b'x'; 46], b""), VALUE + 46);
    assert_eq!(usage(&[b'x'; 512], b""), VALUE + 512);
    assert_eq!(usage(&[b'x'; 512], &[b'y'; 1024]), VALUE + 1536);
    cmd!(c, "LOCK.RELEASE", "k", "nobody");
    cmd!(c, "LOCK.FORCERELEASE", "k");
    cmd!(c, "LOCK.ACQUIRE", "k", &[b'x'; 512][..], 1000);
    cmd!(c, "LOCK.RELEASE", "k", &[b'x'; 512][..], "KEEP", 1000);
    assert_eq!(cmd!(c, "MEMORY", "USAGE", "k").as_int() - guard + 16, VALUE);
}

/// A lock with its owner inline, in bytes. The design allows one allocation of at most 96.
const VALUE: i64 = 96;
const _: () = assert!(VALUE <= 96);

#[test]
fn a_lock_costs_one_allocation_of_96_bytes() {
    let server = Options::new().start();
    let mut c = server.conn();
    bytes_per_key(&server, |i| args!["SET", key(i), "warm-up"]);
    let empty = {
        cmd!(c, "FLUSHALL", "SYNC");
        used_at_rest(&server)
    };
    // A string of 20 bytes with a TTL: 161 bytes on 7.0.15 and 100 on 8.2.3, of which its own part
    // is known, so that the rest is what the server takes for any key.
    let string = bytes_per_key(&server, |i| {
        args!["SET", key(i), [b'v'; 20], "PX", 3_600_000]
    });
    let lock = bytes_per_key(&server, |i| args!["LOCK.ACQUIRE", key(i), UUID, 3_600_000]);
    println!("{}: string {string:.1}, lock {lock:.1}", flavour().name);
    assert_eq!(counter(&server, "lock_keys"), 10_000);
    let extra = lock - string;
    // Measured on the prototype: 241 - 161 and 188 - 100.
    let most = match (flavour().kind, flavour().version.0) {
        (Kind::Redis, 7) => 80.0,
        _ => 88.0,
    };
    // Noise of the server's own buffers aside, which a larger size class would exceed.
    assert!(
        extra <= most + 8.0,
        "a lock costs {extra:.1} bytes more than a string"
    );

    for part in 0..10 {
        let release = |i| args!["LOCK.RELEASE", key(i), UUID];
        let replies = c.pipeline(
            &(part * 1000..(part + 1) * 1000)
                .map(release)
                .collect::<Vec<_>>(),
        );
        assert!(replies.iter().all(|reply| *reply == int(1)));
    }
    assert_eq!(counter(&server, "lock_keys"), 0);
    let mut left = 0;
    eventually("memory is back", || {
        left = used(&server) - empty;
        // The locks alone were 960,000; a table of the server's may not have shrunk yet.
        left < 400_000
    });
    println!("left after all are released: {left} bytes");
}

#[test]
fn long_owners_are_given_back() {
    let server = Options::new().start();
    let mut c = server.conn();
    let (owner, meta) = ([b'x'; 512], [b'y'; 1024]);
    let round = |c: &mut Conn| {
        let mut lines = Vec::new();
        for _ in 0..200 {
            lines.push(args!["LOCK.ACQUIRE", "k", owner, 1000, "META", meta]);
            lines.push(args!["LOCK.RENEW", "k", owner, 2000]);
            lines.push(args!["COPY", "k", "l", "REPLACE"]);
            lines.push(args!["LOCK.RELEASE", "k", owner, "KEEP", 10]);
            lines.push(args!["LOCK.FORCERELEASE", "k"]);
            lines.push(args!["LOCK.ACQUIRE", "k", owner, 1000, "META", meta]);
            lines.push(args!["LOCK.INFO", "k"]);
            lines.push(args!["LOCK.ACQUIRE", "k", "other", 1000, "META", meta]);
            lines.push(args!["LOCK.RELEASE", "k", owner]);
            lines.push(args!["LOCK.GUARD", "k", 5]);
            lines.push(args!["DEL", "k"]);
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
fn the_defragmenter_moves_locks_and_harms_none() {
    let server = Options::new().start();
    let mut c = server.conn();
    let reply = cmd!(c, "CONFIG", "SET", "activedefrag", "yes");
    if reply.is_error() {
        println!("skipped: {} cannot defragment: {reply:?}", flavour().name);
        return;
    }
    cmd!(c, "CONFIG", "SET", "activedefrag", "no");
    let owner = |i: usize| match i % 3 {
        0 => UUID.as_bytes().to_vec(),
        1 => vec![b'x'; 100 + i % 400],
        _ => format!("owner-{i}").into_bytes(),
    };
    let count = 60_000;
    for start in (0..count).step_by(2000) {
        let line = |i| match i % 10 {
            9 => args!["LOCK.GUARD", key(i), i + 1],
            _ => args!["LOCK.ACQUIRE", key(i), owner(i), 3_600_000, "META", "m"],
        };
        let lines: Vec<_> = (start..start + 2000).map(line).collect();
        assert!(c.pipeline(&lines).iter().all(|reply| !reply.is_error()));
    }
    // Holes everywhere: one of eight stays.
    let stays = |i: &usize| i.is_multiple_of(8);
    for start in (0..count).step_by(2000) {
        let gone = (start..start + 2000).filter(|i| !stays(i));
        let mut line = args!["DEL"];
        line.extend(gone.map(|i| key(i).into_bytes()));
        c.cmd(&line);
    }
    let digest = cmd!(c, "DEBUG", "DIGEST");
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
    eventually("memory is moved", || hits() > 5000);
    eventually("the defragmenter comes to rest", || {
        let before = hits();
        std::thread::sleep(std::time::Duration::from_millis(200));
        hits() == before
    });
    cmd!(c, "CONFIG", "SET", "activedefrag", "no");
    println!("{} allocations moved", hits());
    assert_eq!(cmd!(c, "DEBUG", "DIGEST"), digest);
    for i in (0..count).filter(stays) {
        if i % 10 == 9 {
            assert_eq!(cmd!(c, "LOCK.GUARD", key(i), i), int(0));
            continue;
        }
        let info = cmd!(c, "LOCK.INFO", key(i));
        let holder = &info.field("holders").items()[0];
        assert_eq!(holder.field("owner"), &bulk(owner(i)));
        assert_eq!(holder.field("meta"), &bulk("m"));
        assert_eq!(cmd!(c, "LOCK.RELEASE", key(i), owner(i)), int(1));
    }
    assert_eq!(counter(&server, "lock_keys"), 0);
}
