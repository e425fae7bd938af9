//! Payloads and effects of every shape of a limiter that nobody should send: each gives an error and
//! changes nothing, and the server lives.

use crate::limiter_shapes_restore::*;
use crate::limiter_support::*;
use crate::support::*;

/// Each body must be refused and leave nothing.
#[track_caller]
fn refused<S: AsRef<str>>(server: &Server, bodies: impl IntoIterator<Item = (S, Vec<u8>)>) {
    let mut c = server.conn();
    for (name, body) in bodies {
        let reply = cmd!(c, "RESTORE", "k", 0, limiter_dump(&body));
        assert_eq!(reply, bad(), "{}: {}", name.as_ref(), body.escape_ascii());
    }
    assert_eq!(cmd!(c, "EXISTS", "k"), int(0));
    // A long log that was deleted before may still be on its way out.
    eventually("nothing is left", || counter(server, "rl_keys") == 0);
}

#[test]
fn a_payload_of_any_shape_that_was_cut_is_refused() {
    let server = single();
    for (name, body) in samples(server.clock().now_us()) {
        let cut = (0..body.len()).map(|len| (format!("{name} cut at {len}"), body[..len].to_vec()));
        refused(&server, cut);
        let longer = [&b"\0"[..], &[5], &body].map(|more| [&body[..], more].concat());
        refused(
            &server,
            longer.map(|body| (format!("{name} and more"), body)),
        );
        // The whole is none of it.
        let mut c = server.conn();
        assert_eq!(cmd!(c, "RESTORE", "k", 0, limiter_dump(&body)), ok());
        cmd!(c, "DEL", "k");
    }
}

#[test]
fn numbers_out_of_range_are_refused_in_every_shape() {
    let server = single();
    let t = server.clock().now_us();
    let at = t as u64;
    let one = [(at, 1)];
    let mut wrong = vec![
        ("fixed: nothing counted", fixed_window(POLICY, t, 0)),
        ("fixed: count", fixed_window(POLICY, t, MAX_COUNT + 1)),
        (
            "fixed: count of all bits",
            fixed_window(POLICY, t, u64::MAX),
        ),
        ("fixed: start", fixed_window(POLICY, END_OF_TIME, 1)),
        ("fixed: start before the epoch", fixed_window(POLICY, -1, 1)),
        (
            "sliding: nothing counted",
            sliding_window(POLICY, t, [0, 0]),
        ),
        (
            "sliding: current",
            sliding_window(POLICY, t, [MAX_COUNT + 1, 0]),
        ),
        (
            "sliding: previous",
            sliding_window(POLICY, t, [1, MAX_COUNT + 1]),
        ),
        (
            "sliding: start",
            sliding_window(POLICY, END_OF_TIME, [1, 1]),
        ),
        ("log: no entry", sliding_log(POLICY, 0, &[])),
        (
            "log: instant",
            sliding_log(POLICY, 0, &[(END_OF_TIME as u64, 1)]),
        ),
        (
            "log: second instant",
            sliding_log(POLICY, 0, &[(1, 1), (u64::MAX, 2)]),
        ),
        ("log: total is the base", sliding_log(POLICY, 1, &one)),
        ("log: total below the base", sliding_log(POLICY, 2, &one)),
        (
            "log: too much",
            sliding_log(POLICY, 0, &[(at, MAX_SPENT + 1)]),
        ),
        (
            "log: unsorted",
            sliding_log(POLICY, 0, &[(at, 1), (at - 1, 2)]),
        ),
        (
            "log: one instant twice",
            sliding_log(POLICY, 0, &[(at, 1), (at, 2)]),
        ),
        (
            "log: equal totals",
            sliding_log(POLICY, 0, &[(at, 1), (at + 1, 1)]),
        ),
        (
            "log: falling totals",
            sliding_log(POLICY, 0, &[(at, 5), (at + 1, 4)]),
        ),
        (
            "log: a total wraps",
            sliding_log(POLICY, u64::MAX, &[(at, 1), (at + 1, u64::MAX)]),
        ),
        ("log: the last of many falls", {
            let mut entries: Vec<_> = (0..600).map(|i| (at + i, 1 + i)).collect();
            entries[599].1 = 599;
            sliding_log(POLICY, 0, &entries)
        }),
        (
            "block: instants in the wrong order",
            blocked(t, t - 1, UNUSED),
        ),
        (
            "block: longer than a year",
            blocked(t, t + YEAR_US + 1, UNUSED),
        ),
        ("block: start", blocked(END_OF_TIME, END_OF_TIME, UNUSED)),
        ("block: end", blocked(END_OF_TIME - 1, END_OF_TIME, UNUSED)),
        ("block: nothing below", blocked(t, t + 1, b"")),
        (
            "block in a block",
            blocked(t, t + 1, &blocked(t, t + 1, UNUSED)),
        ),
        ("unused without a block", UNUSED.to_vec()),
        ("nothing", Vec::new()),
        // What is for effects only.
        ("a log's effect", log_step(POLICY, 0, 0, (t, 1))),
        (
            "a log's effect below a block",
            blocked(t, t + 1, &log_step(POLICY, 0, 0, (t, 1))),
        ),
    ];
    for policy in [
        (0, 60_000),
        (MOST + 1, 60_000),
        (u32::MAX, 60_000),
        (10, 0),
        (10, YEAR_MS + 1),
        (10, u64::MAX),
    ] {
        wrong.push(("fixed: policy", fixed_window(policy, t, 1)));
        wrong.push(("sliding: policy", sliding_window(policy, t, [1, 1])));
        wrong.push(("log: policy", sliding_log(policy, 0, &one)));
    }
    // And below a block.
    let below: Vec<_> = wrong
        .iter()
        .map(|(name, body)| (*name, blocked(t, t + 1, body)))
        .filter(|(name, _)| !name.contains("unused"))
        .collect();
    refused(&server, wrong);
    refused(&server, below);
    let unknown = (6..=255u8).map(|shape| (format!("shape {shape}"), vec![shape; 60]));
    refused(&server, unknown);
}

#[test]
fn a_log_that_lies_about_its_length_is_refused() {
    let server = single();
    let at = server.clock().now_us() as u64;
    let entries: Vec<_> = (0..300).map(|i| (at + i, 1 + i)).collect();
    let body = sliding_log(POLICY, 0, &entries);
    let lies = [0, 1, 299, 301, 16 * 300, 1 << 28, u32::MAX - 1, u32::MAX];
    refused(
        &server,
        lies.map(|count: u32| {
            let mut lie = body.clone();
            lie[21..25].copy_from_slice(&count.to_le_bytes());
            (format!("{count} entries"), lie)
        }),
    );
}

#[test]
fn a_refused_replace_leaves_every_shape_as_it_was() {
    let server = recorder();
    let mut c = server.conn();
    for (name, body) in samples(T_US) {
        let good = limiter_dump(&body);
        assert_eq!(cmd!(c, "RESTORE", "k", 60_000, good, "REPLACE"), ok());
        for wrong in [
            body[..body.len() - 1].to_vec(),
            [&body[..], b"x"].concat(),
            blocked(T_US, T_US + 1, &blocked(T_US, T_US + 1, &body)),
            sliding_log(POLICY, 0, &[(5, 1), (4, 2)]),
        ] {
            let payload = limiter_dump(&wrong);
            let refuse = || cmd!(c, "RESTORE", "k", 0, payload, "REPLACE");
            assert_eq!(changes_nothing(&server, refuse), bad(), "{name}");
        }
    }
}

/// redis#13007, for each shape.
#[test]
fn a_newer_version_of_any_shape_is_refused_and_named_in_the_log() {
    let server = own(Options::new());
    let mut c = server.conn();
    for (name, body) in samples(T_US) {
        for version in [2, 255] {
            server.clear_log();
            let blob = [&[version], &body[..]].concat();
            let reply = cmd!(c, "RESTORE", "k", 0, dump("sluice-rl", 1, &blob));
            assert_eq!(reply, bad(), "{name}");
            server.wait_log(&format!(
                "<sluice> sluice-rl: encoding version {version} is newer than 1, the newest \
                 this module reads: upgrade replicas before their primary"
            ));
        }
        let blob = [&[0], &body[..]].concat();
        assert_eq!(
            cmd!(c, "RESTORE", "k", 0, dump("sluice-rl", 1, &blob)),
            bad()
        );
        server.wait_log("<sluice> sluice-rl: corrupt encoding refused");
    }
}

/// RedisBloom#1054: corrupt payloads with the right checksum, a thousand times each.
#[test]
fn refused_payloads_of_no_shape_leave_memory_behind() {
    let server = single();
    let mut c = server.conn();
    let t = server.clock().now_us();
    let entries: Vec<_> = (0..600).map(|i| (t as u64 + i, 1 + i)).collect();
    let log = sliding_log(POLICY, 0, &entries);
    let mut falls = entries.clone();
    falls[599].1 = 1;
    let mut lies = log.clone();
    lies[21..25].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut payloads = vec![
        limiter_dump(&sliding_log(POLICY, 0, &falls)),
        limiter_dump(&lies),
        limiter_dump(&[&log[..], b"x"].concat()),
        limiter_dump(&blocked(t, t + 1, &[&log[..], b"x"].concat())),
        limiter_dump(&blocked(t, t + 1, &blocked(t, t + 1, &log))),
        dump("sluice-rl", 1, &[&[2], &log[..]].concat()),
    ];
    for (_, body) in samples(t) {
        payloads.push(limiter_dump(&body[..body.len() - 1]));
        // A value that was built and then found to be followed by something else.
        let whole = limiter_dump(&body);
        let mut unended = whole[..whole.len() - 10].to_vec();
        *unended.last_mut().expect("an end") = 5;
        payloads.push(checksummed(unended));
    }
    let used = || -> i64 {
        let memory = server.info("memory");
        memory["used_memory"].parse().expect("a number")
    };
    for payload in &payloads {
        let round = |c: &mut Conn| {
            let replies = c.pipeline(&vec![args!["RESTORE", "k", 0, payload]; 100]);
            let taken = replies.iter().find(|reply| **reply != bad());
            assert_eq!(taken, None);
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
}

#[test]
fn corrupt_effects_of_every_shape_in_the_file_are_refused_and_logged() {
    let server = recorder();
    let mut c = server.conn();
    let policy = "SLIDINGLOG 10 60000";
    assert!(!c.cmd(&words("RL.SLIDINGLOG k 10 60000 COST 4")).is_error());
    let (before, t) = (digest(&server), T_US);
    let step = |base, behind, at, total| log_step(POLICY, base, behind, (at, total));
    let mut wrong = vec![
        step(0, t, t, 1),
        step(0, t + 1, t, 1),
        step(1, 0, t, 1),
        step(2, 0, t, 1),
        step(0, 0, t, MAX_SPENT + 1),
        step(0, 0, END_OF_TIME, 1),
        step(0, -1, t, 1),
        log_step((0, 60_000), 0, 0, (t, 1)),
        log_step((10, 0), 0, 0, (t, 1)),
        blocked(t, t + YEAR_US + 1, &step(0, 0, t, 1)),
        blocked(t, t + 1, &blocked(t, t + 1, &step(0, 0, t, 1))),
        UNUSED.to_vec(),
        sliding_log(POLICY, 0, &[]),
        fixed_window(POLICY, t, 0),
        sliding_window(POLICY, t, [0, 0]),
    ];
    let bodies: Vec<_> = samples(t).into_iter().map(|(_, body)| body).collect();
    for body in bodies.iter().chain([&step(0, 0, t, 1)]) {
        wrong.push(body[..body.len() - 1].to_vec());
        wrong.push([&body[..], b"x"].concat());
    }
    let mut commands: Vec<_> = wrong
        .iter()
        .map(|body| limiter_effect("k", t, body))
        .collect();
    commands.push(limiter_effect("after", t, &step(0, 0, t, 1)));
    append_to_aof(&server, &commands);
    let corrupt = format!("<sluice> {EFFECT}: corrupt encoding refused");
    assert_eq!(server.log().matches(&corrupt).count(), wrong.len());
    assert_eq!(counter(&server, "effects_refused"), wrong.len() as i64);
    let mut c = server.conn();
    assert_eq!(
        cmd!(c, "DEL", "after"),
        int(1),
        "a good one behind bad ones is taken"
    );
    assert_eq!(digest(&server), before);
    run(
        &mut c,
        &[(&format!("RL.PEEK k {policy}"), [1, 10, 6, 0, 60_000])],
    );
}
