//! Every shape of a limiter in files, on replicas and under the server's own commands for keys.

use crate::limiter_shapes::*;
use crate::limiter_support::*;
use crate::support::*;

#[test]
fn each_key_lives_as_long_as_it_matters_and_a_second() {
    let chain = chain();
    Shapes::fill(&chain.primary);
    let now = chain.clock().now_us();
    let mut c = chain.primary.conn();
    for (key, from_us, us) in [
        ("bucket", now, 34_285_715),
        ("bucket!", now, 34_285_715),
        ("overdraft", now, 276_000_000),
        ("overdraft!", now, 276_000_000),
        ("fixed", now, 60_000_000),
        ("fixed!", now, 60_000_000),
        // The window began a second ago; the next one counts it as its previous.
        ("sliding", now - 1_000_000, 120_000_000),
        ("sliding!", now - 1_000_000, 120_000_000),
        ("short", now, 30_000_000),
        ("short!", now, 30_000_000),
        ("long!", now, 20_000_000),
        ("only!", now, 20_000_000),
    ] {
        let end = deadline_ms(from_us, us);
        assert_eq!(cmd!(c, "PEXPIRETIME", key), int(end), "{key}");
    }
    // Its TTL is moved once a second only.
    let left = cmd!(c, "PTTL", "long").as_int();
    assert!((11_000..=11_001 + SLACK_MS).contains(&left), "{left}");
    assert_same(&chain);
    // Gone to the millisecond.
    leave_expired(&mut c);
    chain.clock().advance_ms(21_001);
    assert_eq!(cmd!(c, "EXISTS", "only!", "long!", "short"), int(3));
    chain.clock().advance_ms(1);
    assert_eq!(cmd!(c, "EXISTS", "only!", "long!", "short"), int(1));
}

// --- files ---

#[test]
fn every_shape_survives_debug_reload_on_all_three() {
    let chain = chain();
    let shapes = Shapes::fill(&chain.primary);
    assert_same(&chain);
    for server in chain.servers() {
        shapes.assert_is(server);
        assert_eq!(cmd!(server.conn(), "DEBUG", "RELOAD"), ok());
        shapes.assert_is(server);
    }
    // Effects go on from what was loaded, in the middle of a log too.
    let mut c = chain.primary.conn();
    for (line, expected) in [
        (
            "RL.SLIDINGLOG long 1200 11000 COST 100",
            [1, 1200, 0, 0, 11_000],
        ),
        ("RL.SLIDINGLOG short 5 30000", [1, 5, 0, 0, 30_000]),
        (
            "RL.FIXEDWINDOW fixed 10 60000 COST 6",
            [1, 10, 0, 0, 60_000],
        ),
    ] {
        run(&mut c, &[(line, expected)]);
        assert_same(&chain);
    }
}

#[test]
fn every_shape_survives_a_restart_from_an_rdb() {
    let server = own(Options::new());
    let shapes = Shapes::fill(&server);
    server.restart_saving();
    shapes.assert_is(&server);
}

#[test]
fn every_shape_survives_kills_and_rewrites_of_the_aof() {
    for aof in [Aof::Pure, Aof::Preamble] {
        let server = own(Options::new().aof(aof));
        let shapes = Shapes::fill(&server);
        // The effects as they came.
        server.kill9();
        server.start_again();
        shapes.assert_is(&server);
        // The rewritten file, and then one rewritten from what was loaded from that.
        for _ in 0..2 {
            rewrite_aof(&server);
            server.kill9();
            server.start_again();
            shapes.assert_is(&server);
        }
        assert_eq!(cmd!(server.conn(), "DEBUG", "LOADAOF"), ok());
        shapes.assert_is(&server);
    }
}

/// brandur/redis-cell: after a restart from the AOF the state is shifted by the downtime.
#[test]
fn three_seconds_of_downtime_shift_no_shape() {
    for (aof, rewrite) in [
        (Aof::Off, false),
        (Aof::Pure, false),
        (Aof::Pure, true),
        (Aof::Preamble, true),
    ] {
        let server = own(Options::new().aof(aof));
        let shapes = Shapes::fill(&server);
        if rewrite {
            rewrite_aof(&server);
        }
        match aof {
            Aof::Off => assert!(server.shutdown_save().success()),
            _ => server.kill9(),
        }
        server.clock().advance_ms(3000);
        server.start_again();
        shapes.assert_stored(&server);
        assert_verdicts(&server, |case| case.later);
    }
}

#[test]
fn what_lapsed_while_the_server_was_down_is_as_good_as_new() {
    for aof in [Aof::Off, Aof::Pure, Aof::Preamble] {
        let server = own(Options::new().aof(aof));
        Shapes::fill(&server);
        match aof {
            Aof::Off => assert!(server.shutdown_save().success()),
            _ => server.kill9(),
        }
        server.clock().advance_ms(HOUR_MS);
        server.start_again();
        assert_verdicts(&server, |case| {
            let limit = case.now[1];
            [1, limit, limit, 0, 0]
        });
        let mut c = server.conn();
        for case in &CASES {
            assert_eq!(cmd!(c, "RL.INFO", case.key), nil(), "{}", case.key);
            // Also for another algorithm: nothing is used.
            let line = format!("RL.FIXEDWINDOW {} 3 1000", case.key);
            run(&mut c, &[(&line, [1, 3, 2, 0, 1000])]);
        }
        assert_eq!(cmd!(c, "DBSIZE"), int(CASES.len() as i64));
    }
}

#[test]
fn a_rewritten_pure_aof_has_each_shape_in_one_effect() {
    let server = recorder();
    Shapes::fill(&server);
    rewrite_aof(&server);
    let mut c = server.conn();
    cmd!(c, "CONFIG", "SET", "rdbcompression", "no");
    let commands = server.aof_commands();
    let now = server.clock().now_us();
    for case in &CASES {
        // What DUMP answers, between the type's framing and the checksum, is what is stored.
        let payload = dump_of(&mut c, case.key);
        let of_key: Vec<_> = commands
            .iter()
            .filter(|c| c.get(1).is_some_and(|key| key == case.key.as_bytes()))
            .collect();
        let end = cmd!(c, "PEXPIRETIME", case.key).as_int();
        assert_eq!(of_key[1..], [&args!["PEXPIREAT", case.key, end]]);
        let blob = &of_key[0][2];
        assert_eq!(of_key[0], &args![EFFECT, case.key, blob]);
        assert_eq!(blob[..9], effect(now, &[])[..], "{}", case.key);
        let again = limiter_dump(&blob[9..]);
        let len = payload.len() - 10;
        assert_eq!(again[..len], payload[..len], "{}", case.key);
    }
}

// --- replicas ---

#[test]
fn a_full_sync_brings_every_shape_to_a_replica_and_on_to_its_own() {
    let primary = own(Options::new());
    let shapes = Shapes::fill(&primary);
    let follow = |of: &Server| {
        let server = Options::new()
            .clock(primary.clock())
            .aof(Aof::Pure)
            .replica_of(of)
            .start();
        server.wait_synced_with(of);
        server
    };
    let replica = follow(&primary);
    let sub = follow(&replica);
    shapes.assert_is(&replica);
    shapes.assert_is(&sub);
    // Their own files.
    for server in [&sub, &replica] {
        wait_for_rewrites(server);
        assert_eq!(cmd!(server.conn(), "DEBUG", "LOADAOF"), ok());
        shapes.assert_is(server);
    }
}

#[test]
fn a_replica_with_another_clock_holds_the_same_shapes() {
    for off_ms in [-HOUR_MS, HOUR_MS] {
        let primary = own(Options::new());
        let replica = Options::new().aof(Aof::Pure).replica_of(&primary).start();
        replica.clock().freeze_at(T_US + off_ms * 1000);
        replica.wait_synced_with(&primary);
        wait_for_rewrites(&replica);
        let shapes = Shapes::fill(&primary);
        // Also what prunes and gives back, by the primary's clock.
        for line in [
            "RL.CHARGE long SLIDINGLOG 1200 11000 COST 70",
            "RL.REFUND long SLIDINGLOG 1200 11000 COST 70",
        ] {
            assert!(!primary.conn().cmd(&words(line)).is_error(), "{line}");
        }
        replica.wait_synced_with(&primary);
        shapes.assert_is(&primary);
        // Its own file gives the same again. Ahead of its primary it shows what is over as gone.
        for _ in 0..2 {
            assert_eq!(digest(&replica), digest(&primary));
            if off_ms < 0 {
                shapes.assert_stored(&replica);
            }
            assert_eq!(cmd!(replica.conn(), "DEBUG", "LOADAOF"), ok());
        }
    }
}

#[test]
fn a_replica_that_stalled_has_the_same_shapes() {
    let chain = chain();
    chain.replica.sigstop();
    let shapes = Shapes::fill(&chain.primary);
    chain.clock().advance_ms(3000);
    chain.replica.sigcont();
    assert_same(&chain);
    for server in chain.servers() {
        shapes.assert_stored(server);
        assert_verdicts(server, |case| case.later);
    }
}

/// Each kind of write to each shape, with what follows from a step back, a foreign TTL and
/// another policy.
#[test]
fn all_three_agree_after_each_command() {
    let chain = chain();
    let mut c = chain.primary.conn();
    for policy in [
        "GCRA 10 10 60000",
        "FIXEDWINDOW 10 60000",
        "FIXEDWINDOW 10 60000 ALIGN 777",
        "SLIDINGWINDOW 10 60000",
        "SLIDINGLOG 10 60000",
    ] {
        let (algorithm, numbers) = policy.split_once(' ').expect("a policy");
        for (advance_us, line) in [
            (0, format!("RL.{algorithm} k {numbers}")),
            (1, format!("RL.{algorithm} k {numbers} COST 3")),
            (0, format!("RL.{algorithm} k {numbers} COST 3")),
            (0, format!("RL.{algorithm} k {numbers} COST 10")),
            (999, format!("RL.CHARGE k {policy} COST 30")),
            (-1, format!("RL.{algorithm} k {numbers}")),
            (-5_000_000, format!("RL.{algorithm} k {numbers}")),
            (0, format!("RL.REFUND k {policy} COST 17")),
            (-1_000_000, format!("RL.REFUND k {policy}")),
            (0, "PEXPIRE k 100".into()),
            (0, format!("RL.CHARGE k {policy}")),
            (7, "RL.BLOCK k 90000".into()),
            (0, "RL.BLOCK k 1000".into()),
            (-2_000_000, format!("RL.{algorithm} k {numbers}")),
            (-2_000_000, "RL.BLOCK k 1000".into()),
            (-2_000_000, format!("RL.CHARGE k {policy}")),
            (1_000_000, format!("RL.CHARGE k {policy} COST 2")),
            (0, "PERSIST k".into()),
            (0, format!("RL.REFUND k {policy} COST 9")),
            (61_000_000, format!("RL.CHARGE k {policy}")),
            (30_000_000, format!("RL.{algorithm} k {numbers} COST 2")),
            (0, "RL.BLOCK k 1000".into()),
            (0, format!("RL.REFUND k {policy} COST 1000000000")),
            (1_000_000, format!("RL.{algorithm} k {numbers} COST 2")),
            (1, format!("RL.REFUND k {policy} COST 1000000000")),
            (0, format!("RL.ALL 2 k l {policy} COST 4 GCRA 5 1 1000")),
            (0, "RL.RESET k l".into()),
        ] {
            chain.clock().advance_us(advance_us);
            let reply = c.cmd(&words(&line));
            assert!(!reply.is_error(), "{line}: {reply:?}");
            assert_same(&chain);
        }
        assert_eq!(cmd!(c, "DBSIZE"), int(0));
    }
}

// --- the server's commands for keys ---

#[test]
fn dump_and_restore_give_every_shape_again() {
    let chain = chain();
    let shapes = Shapes::fill(&chain.primary);
    let mut c = chain.primary.conn();
    for case in &CASES {
        let key = case.key;
        let payload = dump_of(&mut c, key);
        let end = cmd!(c, "PEXPIRETIME", key).as_int();
        let busy = cmd!(c, "RESTORE", key, 0, &payload);
        assert_eq!(busy, err("BUSYKEY Target key name already exists."));
        // Over another shape, by a relative TTL.
        let left = end - chain.clock().now_ms();
        let other = CASES.iter().find(|other| other.policy != case.policy);
        let other = other.expect("another").key;
        assert_eq!(cmd!(c, "COPY", other, "target"), int(1));
        let replaced = cmd!(c, "RESTORE", "target", left, &payload, "REPLACE");
        assert_eq!(replaced, ok(), "{key}");
        assert_eq!(digest_of(&mut c, "target"), digest_of(&mut c, key), "{key}");
        assert_eq!(cmd!(c, "PEXPIRETIME", "target"), int(end));
        cmd!(c, "DEL", "target", key);
        assert_eq!(cmd!(c, "RESTORE", key, end, &payload, "ABSTTL"), ok());
    }
    shapes.assert_is(&chain.primary);
    assert_same(&chain);
    for server in [&chain.replica, &chain.sub] {
        shapes.assert_is(server);
    }
}

#[test]
fn copies_of_every_shape_are_limiters_of_their_own() {
    let chain = chain();
    let shapes = Shapes::fill(&chain.primary);
    let mut c = chain.primary.conn();
    for case in &CASES {
        let key = case.key;
        assert_eq!(cmd!(c, "COPY", key, "copy"), int(1));
        assert_eq!(cmd!(c, "COPY", key, key, "DB", 2), int(1));
        assert_eq!(digest_of(&mut c, "copy"), digest_of(&mut c, key));
        assert_eq!(cmd!(c, "PTTL", "copy"), cmd!(c, "PTTL", key));
        // Whatever is done to the one, the other stands.
        let refund = c.cmd(&words(&format!("RL.REFUND copy {} COST 3", case.policy)));
        assert!(!refund.is_error(), "{key}: {refund:?}");
        let charge = c.cmd(&words(&format!("RL.CHARGE copy {} COST 7", case.policy)));
        assert!(!charge.is_error(), "{key}: {charge:?}");
        assert_ne!(digest_of(&mut c, "copy"), digest_of(&mut c, key));
        cmd!(c, "RL.BLOCK", "copy", 30_000);
        let peek = c.cmd(&words(&format!("RL.PEEK copy {}", case.policy)));
        assert_eq!(peek.items()[0], int(0), "{key}");
        chain.assert_equal();
        assert_eq!(cmd!(c, "RL.RESET", "copy"), int(1));
        cmd!(c, "SELECT", 2);
        assert_eq!(cmd!(c, "RL.RESET", key), int(1));
        cmd!(c, "SELECT", 0);
    }
    shapes.assert_is(&chain.primary);
    assert_same(&chain);
}

#[test]
fn renames_and_moves_carry_every_shape() {
    let chain = chain();
    let shapes = Shapes::fill(&chain.primary);
    let mut c = chain.primary.conn();
    for case in &CASES {
        let (key, state) = (case.key, digest_of(&mut c, case.key));
        let fresh = [1, case.now[1], case.now[1], 0, 0];
        let peek = |key: &str| format!("RL.PEEK {key} {}", case.policy);
        assert_eq!(cmd!(c, "RENAME", key, "new"), ok());
        assert_eq!(digest_of(&mut c, "new"), state, "{key}");
        run(&mut c, &[(&peek("new"), case.now), (&peek(key), fresh)]);
        assert_eq!(cmd!(c, "MOVE", "new", 3), int(1));
        run(&mut c, &[(&peek("new"), fresh)]);
        cmd!(c, "SELECT", 3);
        assert_eq!(digest_of(&mut c, "new"), state, "{key}");
        run(&mut c, &[(&peek("new"), case.now)]);
        chain.assert_equal();
        assert_eq!(cmd!(c, "MOVE", "new", 0), int(1));
        cmd!(c, "SELECT", 0);
        assert_eq!(cmd!(c, "RENAME", "new", key), ok());
    }
    shapes.assert_is(&chain.primary);
    assert_same(&chain);
}

#[test]
fn migrate_carries_every_shape_to_another_server() {
    let from = own(Options::new());
    let to = Options::new().clock(from.clock()).start();
    let shapes = Shapes::fill(&from);
    let mut migrate = args!["MIGRATE", "127.0.0.1", to.port(), "", 0, 5000, "KEYS"];
    migrate.extend(CASES.iter().map(|case| case.key.as_bytes().to_vec()));
    assert_eq!(from.conn().cmd(&migrate), ok());
    shapes.assert_is(&to);
    assert_eq!(counter(&from, "rl_keys"), 0);
}
