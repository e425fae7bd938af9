//! Limiters in files, on replicas and under the server's own commands for keys: the same state
//! everywhere and after everything, and exactly the effects that this takes.

use crate::limiter_support::*;
use crate::support::*;

/// Limiters of every kind and size, with TTLs that are theirs, grown, and strayed.
struct Zoo {
    digest: Reply,
    /// Of each key: RL.INFO, a peek, PEXPIRETIME.
    seen: Vec<(Vec<u8>, [Reply; 3])>,
}

const KEYS: [&[u8]; 9] = [
    b"gcra",
    b"bucket",
    b"century",
    b"huge",
    b"k\xff\0\r\n",
    b"grown",
    b"shorter",
    b"longer",
    b"rebased",
];

impl Zoo {
    fn fill(server: &Server) -> Zoo {
        let mut c = server.conn();
        run(
            &mut c,
            &[("RL.GCRA rebased 5 5 60000 COST 5", [1, 5, 0, 0, 60_000])],
        );
        server.clock().advance_us(-1234);
        for (line, key, numbers) in [
            ("RL.GCRA", KEYS[0], [10, 7, 60_000, 4]),
            ("RL.TOKENBUCKET", KEYS[1], [100, 97, 60_011, 41]),
            ("RL.GCRA", KEYS[2], [100, 1, MAX_PERIOD_MS, 100]),
            (
                "RL.GCRA",
                KEYS[3],
                [MAX_TOKENS, MAX_TOKENS, MAX_PERIOD_MS, MAX_TOKENS],
            ),
            ("RL.GCRA", KEYS[4], [2, 1, HOUR_MS, 1]),
            ("RL.GCRA", KEYS[5], [9, 10, 60_000, 9]),
            ("RL.GCRA", KEYS[6], [9, 10, HOUR_MS, 9]),
            ("RL.GCRA", KEYS[7], [9, 10, HOUR_MS, 9]),
        ] {
            let [limit, count, period, cost] = numbers;
            let reply = cmd!(c, line, key, limit, count, period, "COST", cost);
            assert_eq!(reply.items()[0], int(1));
        }
        run(
            &mut c,
            &[
                ("RL.GCRA rebased 5 5 60000", [0, 5, 0, 12_000, 60_000]),
                ("RL.GCRA grown 9 10 3600000", [0, 9, 0, 360_000, 3_240_000]),
            ],
        );
        cmd!(c, "PEXPIRE", "shorter", 1_000_000);
        cmd!(c, "PEXPIRE", "longer", 9_000_000);
        Zoo::of(server)
    }

    fn of(server: &Server) -> Zoo {
        let mut c = server.conn();
        let look = |key: &[u8]| {
            let replies = [
                cmd!(c, "RL.INFO", key),
                cmd!(
                    c,
                    "RL.PEEK",
                    key,
                    "TOKENBUCKET",
                    1000,
                    3,
                    77_777,
                    "COST",
                    999
                ),
                cmd!(c, "PEXPIRETIME", key),
            ];
            (key.to_vec(), replies)
        };
        Zoo {
            seen: KEYS.into_iter().map(look).collect(),
            digest: digest(server),
        }
    }

    #[track_caller]
    fn assert_is(&self, server: &Server) {
        let found = Zoo::of(server);
        assert_eq!(found.seen, self.seen);
        assert_eq!(found.digest, self.digest);
        assert_eq!(counter(server, "rl_keys"), KEYS.len() as i64);
    }
}

// --- files ---

#[test]
fn everything_survives_debug_reload_on_all_three() {
    let chain = chain();
    let zoo = Zoo::fill(&chain.primary);
    assert_same(&chain);
    for server in chain.servers() {
        zoo.assert_is(server);
        assert_eq!(cmd!(server.conn(), "DEBUG", "RELOAD"), ok());
        zoo.assert_is(server);
    }
    assert_same(&chain);
    cmd!(chain.primary.conn(), "RL.GCRA", "gcra", 10, 7, 60_000);
    assert_same(&chain);
}

#[test]
fn everything_survives_a_restart_from_an_rdb() {
    let server = own(Options::new());
    let zoo = Zoo::fill(&server);
    server.restart_saving();
    zoo.assert_is(&server);
    assert!(!cmd!(server.conn(), "BGSAVE").is_error());
    eventually("the RDB is saved", || {
        server.info("persistence")["rdb_bgsave_in_progress"] == "0"
    });
    server.kill9();
    server.start_again();
    zoo.assert_is(&server);
}

#[test]
fn everything_survives_debug_loadaof() {
    let server = own(Options::new().aof(Aof::Pure));
    let zoo = Zoo::fill(&server);
    assert_eq!(cmd!(server.conn(), "DEBUG", "LOADAOF"), ok());
    zoo.assert_is(&server);
}

#[test]
fn everything_survives_kills_and_rewrites_of_the_aof() {
    for aof in [Aof::Pure, Aof::Preamble] {
        let server = own(Options::new().aof(aof));
        let zoo = Zoo::fill(&server);
        // The effects as they came.
        server.kill9();
        server.start_again();
        zoo.assert_is(&server);
        // The rewritten file, and then one rewritten from what was loaded from that.
        for _ in 0..2 {
            rewrite_aof(&server);
            zoo.assert_is(&server);
            server.kill9();
            server.start_again();
            zoo.assert_is(&server);
        }
    }
}

#[test]
fn a_rewritten_pure_aof_has_one_effect_for_each_key() {
    let server = recorder();
    let mut c = server.conn();
    assert_eq!(admitted(&mut c, "RL.GCRA k 9 10 60000", 20), 9);
    assert_eq!(admitted(&mut c, "RL.GCRA l 9 10 60000", 2), 2);
    rewrite_aof(&server);
    let commands = server.aof_commands();
    let policy = (9, 10, 60_000);
    for (key, tokens) in [("k", 9), ("l", 2)] {
        let of_key = commands
            .iter()
            .filter(|c| c.get(1).is_some_and(|k| k == key.as_bytes()));
        let state = Bucket::owing(tokens, T_US, policy).effect_on(key, T_US);
        let end = cmd!(c, "PEXPIRETIME", key).as_int();
        let expire = args!["PEXPIREAT", key, end];
        assert_eq!(of_key.collect::<Vec<_>>(), [&state, &expire]);
    }
}

#[test]
fn what_came_after_the_fork_of_a_rewrite_is_kept_too() {
    for aof in [Aof::Pure, Aof::Preamble] {
        let server = own(Options::new().aof(aof));
        let mut c = server.conn();
        let line = |i| args!["RL.GCRA", format!("k{i}"), 5, 1, HOUR_MS];
        c.pipeline(&(0..500).map(line).collect::<Vec<_>>());
        // In one write, so that it arrives while the child works.
        let mut lines = vec![args!["BGREWRITEAOF"]];
        lines.extend((250..750).map(line));
        lines.extend((0..100).map(|i| args!["RL.RESET", format!("k{i}")]));
        c.pipeline(&lines);
        wait_for_rewrites(&server);
        let before = digest(&server);
        server.kill9();
        server.start_again();
        assert_eq!(cmd!(server.conn(), "DBSIZE"), int(650));
        assert_eq!(digest(&server), before);
        assert_eq!(counter(&server, "rl_keys"), 650);
    }
}

/// brandur/redis-cell: after a restart from the AOF the state is shifted by the downtime.
#[test]
fn three_seconds_of_downtime_shift_nothing() {
    for (aof, rewrite) in [
        (Aof::Off, false),
        (Aof::Pure, false),
        (Aof::Pure, true),
        (Aof::Preamble, true),
    ] {
        let server = own(Options::new().aof(aof));
        let mut c = server.conn();
        assert_eq!(admitted(&mut c, "RL.GCRA k 5 5 10000", 6), 5);
        let before = digest(&server);
        if rewrite {
            rewrite_aof(&server);
        }
        match aof {
            Aof::Off => assert!(server.shutdown_save().success()),
            _ => server.kill9(),
        }
        server.clock().advance_ms(3000);
        server.start_again();
        assert_eq!(digest(&server), before, "{aof:?} {rewrite}");
        let mut c = server.conn();
        // Three seconds have drained one and a half tokens, as they would have without a restart.
        run(&mut c, &[("RL.PEEK k GCRA 5 5 10000", [1, 5, 1, 0, 7000])]);
        assert_eq!(cmd!(c, "PTTL", "k"), int(7001 + SLACK_MS));
        assert_eq!(admitted(&mut c, "RL.GCRA k 5 5 10000", 6), 1);
    }
}

#[test]
fn what_drained_while_the_server_was_down_is_as_good_as_new() {
    for aof in [Aof::Off, Aof::Pure, Aof::Preamble] {
        let server = own(Options::new().aof(aof));
        cmd!(server.conn(), "RL.GCRA", "k", 5, 5, 10_000, "COST", 5);
        match aof {
            Aof::Off => assert!(server.shutdown_save().success()),
            _ => server.kill9(),
        }
        server.clock().advance_ms(HOUR_MS);
        server.start_again();
        let mut c = server.conn();
        run(&mut c, &[("RL.GCRA k 5 5 10000", [1, 5, 4, 0, 2000])]);
        assert_eq!(cmd!(c, "DBSIZE"), int(1));
    }
}

// --- replicas ---

#[test]
fn all_three_agree_after_every_kind_of_command() {
    let chain = chain();
    let mut c = chain.primary.conn();
    for (advance_us, line) in [
        (0, "RL.GCRA k 10 10 60000"),
        (0, "RL.GCRA k 10 10 60000 COST 7"),
        (0, "RL.GCRA k 10 10 60000 COST 7"),
        (1, "RL.TOKENBUCKET k 20 7 60000"),
        (999, "RL.GCRA k 10 10 3600000 COST 9"),
        (-5_000_000, "RL.GCRA k 10 10 60000 COST 9"),
        (-1, "RL.PEEK k GCRA 10 10 60000"),
        (-1, "RL.GCRA k 10 10 60000 COST 1"),
        (0, "PEXPIRE k 100"),
        (0, "RL.GCRA k 10 10 60000 COST 9"),
        (0, "RL.GCRA k 30 10 60000 COST 9"),
        (0, "PERSIST k"),
        (7_654_321, "RL.GCRA k 30 10 60000 COST 3"),
        (0, "RL.RESET k missing"),
        (
            0,
            "RL.GCRA k 1000000000 1000000000 31536000000 COST 1000000000",
        ),
        (0, "RL.TOKENBUCKET k 1000000000 999999999 31536000000"),
        (0, "RL.GCRA l 1 1000000000 1"),
        (1, "RL.GCRA l 1 1000000000 1"),
        (1_000_000, "RL.GCRA l 1 1000000000 1"),
        (2_000_000, "RL.GCRA l 1 1000000000 1"),
        (0, "DEL k l"),
    ] {
        chain.clock().advance_us(advance_us);
        let reply = c.cmd(&words(line));
        assert!(!reply.is_error(), "{line}: {reply:?}");
        assert_same(&chain);
    }
}

/// brandur/redis-cell: a replica that was stalled for 2 s has the state shifted by the delay.
#[test]
fn a_replica_that_stalled_for_two_seconds_has_the_same_state() {
    let chain = chain();
    let mut c = chain.primary.conn();
    assert_eq!(admitted(&mut c, "RL.GCRA k 10 10 60000", 5), 5);
    chain.sync();
    chain.replica.sigstop();
    assert_eq!(admitted(&mut c, "RL.GCRA k 10 10 60000", 6), 5);
    cmd!(c, "RL.GCRA", "l", 3, 1, 1000);
    chain.clock().advance_ms(2000);
    chain.replica.sigcont();
    assert_same(&chain);
    for server in chain.servers() {
        let mut c = server.conn();
        run(
            &mut c,
            &[
                ("RL.PEEK k GCRA 10 10 60000", [0, 10, 0, 4000, 58_000]),
                ("RL.PEEK l GCRA 3 1 1000", [1, 3, 3, 0, 0]),
            ],
        );
    }
}

#[test]
fn a_new_replica_gets_the_state_and_a_promoted_one_goes_on_with_it() {
    let primary = own(Options::new());
    let zoo = Zoo::fill(&primary);
    let replica = Options::new()
        .clock(primary.clock())
        .replica_of(&primary)
        .start();
    replica.wait_synced_with(&primary);
    zoo.assert_is(&replica);
    assert_eq!(cmd!(replica.conn(), "REPLICAOF", "NO", "ONE"), ok());
    primary.kill9();
    zoo.assert_is(&replica);
    let mut c = replica.conn();
    run(
        &mut c,
        &[
            ("RL.GCRA rebased 5 5 60000", [0, 5, 0, 12_000, 60_000]),
            ("RL.GCRA grown 9 10 3600000", [0, 9, 0, 360_000, 3_240_000]),
        ],
    );
    replica.clock().advance_ms(12_000);
    run(
        &mut c,
        &[("RL.GCRA rebased 5 5 60000", [1, 5, 0, 0, 60_000])],
    );
}

#[test]
fn a_promoted_replica_whose_clock_lags_locks_nobody_out() {
    let primary = own(Options::new());
    let replica = Options::new().replica_of(&primary).start();
    replica.clock().freeze_at(T_US - HOUR_MS * 1000);
    replica.wait_synced_with(&primary);
    assert_eq!(admitted(&mut primary.conn(), "RL.GCRA k 5 5 1000", 6), 5);
    replica.wait_synced_with(&primary);
    assert_eq!(digest(&replica), digest(&primary));
    let mut c = replica.conn();
    run(&mut c, &[("RL.PEEK k GCRA 5 5 1000", [0, 5, 0, 200, 1000])]);
    assert_eq!(cmd!(c, "REPLICAOF", "NO", "ONE"), ok());
    run(&mut c, &[("RL.GCRA k 5 5 1000", [0, 5, 0, 200, 1000])]);
    assert_eq!(cmd!(c, "PTTL", "k"), int(1001 + SLACK_MS));
    replica.clock().advance_ms(200);
    run(&mut c, &[("RL.GCRA k 5 5 1000", [1, 5, 0, 0, 1000])]);
}

// --- effects ---

#[test]
fn each_admission_is_one_effect_and_nothing_else_is_any() {
    let server = recorder();
    let mut c = server.conn();
    let policy = (3, 10, 60_000);
    let mut expected = vec![args!["SELECT", 0]];
    for tokens in 1..=3 {
        cmd!(c, "RL.GCRA", "k", 3, 10, 60_000);
        expected.push(Bucket::owing(tokens, T_US, policy).effect_on("k", T_US));
    }
    for line in [
        "RL.GCRA k 3 10 60000",
        "RL.TOKENBUCKET k 3 10 60000 COST 3",
        "RL.PEEK k GCRA 3 10 60000",
        "RL.PEEK l GCRA 3 10 3600000",
        "RL.INFO k",
        "RL.GCRA k 3 10 60000 COST 4",
        "RL.RESET missing",
    ] {
        c.cmd(&words(line));
    }
    assert_eq!(server.aof_commands(), expected);
    // 7654.321 ms later, one and a bit have drained. Ticks: 60 million a token, 10 drain in a µs.
    server.clock().advance_us(7_654_321);
    let now = T_US + 7_654_321;
    cmd!(c, "RL.TOKENBUCKET", "k", 3, 10, 60_000);
    let mut state = Bucket::owing(4, now, policy);
    state.debt -= 76_543_210;
    expected.push(state.effect_on("k", now));
    assert_eq!(server.aof_commands(), expected);
    // Under another policy the debt is in that one's ticks.
    cmd!(c, "RL.GCRA", b"k", 9, 1, 7, "COST", 2);
    state.debt = (state.debt * 7000).div_ceil(60_000_000) + 2 * 7000;
    (state.capacity, state.count, state.period_ms) = (9, 1, 7);
    expected.push(state.effect_on("k", now));
    cmd!(c, "RL.RESET", "k", "k");
    expected.push(args!["DEL", "k"]);
    let key = b"\0\xff";
    cmd!(
        c,
        "RL.GCRA",
        key,
        MAX_TOKENS,
        MAX_TOKENS,
        MAX_PERIOD_MS,
        "COST",
        MAX_TOKENS
    );
    let most = (MAX_TOKENS as u32, MAX_TOKENS as u32, MAX_PERIOD_MS as u64);
    expected.push(Bucket::owing(MAX_TOKENS as u128, now, most).effect_on(key, now));
    assert_eq!(server.aof_commands(), expected);
}

#[test]
fn replicas_get_the_same_effects_and_pass_them_on() {
    let chain = chain();
    let now = chain.clock().now_us();
    let mut tap = Tap::on(&chain);
    let mut c = chain.primary.conn();
    assert_eq!(admitted(&mut c, "RL.GCRA k 2 1 60000", 5), 2);
    let effects = [1, 2].map(|n| Bucket::owing(n, now, (2, 1, 60_000)).effect_on("k", now));
    assert_eq!(tap.take(), effects);
    cmd!(c, "SELECT", 3);
    cmd!(c, "RL.TOKENBUCKET", "k", 2, 1, 60_000);
    let effect = Bucket::owing(1, now, (2, 1, 60_000)).effect_on("k", now);
    assert_eq!(tap.take(), [args!["SELECT", 3], effect]);
    assert_same(&chain);
    // They count nothing: the calls were the primary's.
    for server in [&chain.replica, &chain.sub] {
        assert_eq!(counter(server, "rl_gcra_allowed"), 0);
        assert_eq!(counter(server, "rl_keys"), 2);
    }
}

#[test]
fn effects_are_idempotent_and_overwrite_what_is_there() {
    let server = recorder();
    let mut c = server.conn();
    Zoo::fill(&server);
    cmd!(c, "RL.GCRA", "gone", 5, 5, 1000);
    cmd!(c, "RL.RESET", "gone");
    cmd!(c, "SET", "s", "v");
    cmd!(c, "LOCK.GUARD", "g", 5);
    let zoo = Zoo::of(&server);
    let commands = server.aof_commands();
    let twice: Vec<_> = commands
        .iter()
        .flat_map(|command| [command.clone(), command.clone()])
        .chain(commands.clone())
        .collect();
    append_to_aof(&server, &twice);
    zoo.assert_is(&server);
    let now = server.clock().now_us();
    let state = Bucket::owing(2, now, (5, 1, 60_000));
    append_to_aof(
        &server,
        &[
            args!["SELECT", 0],
            state.effect_on("s", now),
            state.effect_on("g", now),
        ],
    );
    let mut c = server.conn();
    for key in ["s", "g"] {
        assert_eq!(cmd!(c, "TYPE", key), status("sluice-rl"));
        let peek = cmd!(c, "RL.PEEK", key, "GCRA", 5, 1, 60_000);
        assert_eq!(peek, five([1, 5, 3, 0, 120_000]));
        assert_eq!(
            cmd!(c, "PEXPIRETIME", key),
            int(deadline_ms(now, 120_000_000))
        );
    }
}

/// redis#13007 for effects, and anything else that nobody should send.
#[test]
fn bad_effects_in_the_file_are_refused_and_logged() {
    let server = recorder();
    let mut c = server.conn();
    cmd!(c, "RL.GCRA", "k", 5, 5, 60_000, "COST", 3);
    let before = digest(&server);
    let good = Bucket::owing(1, T_US, (5, 5, 60_000));
    let blob = effect(T_US, &good.body());
    let versioned = |version: u8| [&[version], &blob[1..]].concat();
    let newer = |version: u8| {
        format!(
            "<sluice> {EFFECT}: encoding version {version} is newer than 1, the \
             newest this module reads: upgrade replicas before their primary"
        )
    };
    let corrupt = format!("<sluice> {EFFECT}: corrupt encoding refused");
    let with = |change: &dyn Fn(&mut Bucket)| {
        let mut state = good.clone();
        change(&mut state);
        effect(T_US, &state.body())
    };
    let mut of_another_shape = blob.clone();
    of_another_shape[9] = 1;
    let corrupt_blobs = [
        versioned(0),
        Vec::new(),
        blob[..blob.len() - 1].to_vec(),
        [&blob[..], b"x"].concat(),
        of_another_shape,
        with(&|state| state.capacity = 0),
        with(&|state| state.count = MAX_TOKENS as u32 + 1),
        with(&|state| state.period_ms = 0),
        with(&|state| state.at_us = 1 << 61),
        with(&|state| state.debt = 1 << 95),
        Held::at(T_US, 5000, "o").effect(T_US),
    ];
    let mut commands: Vec<_> = corrupt_blobs
        .iter()
        .map(|blob| args![EFFECT, "k", blob])
        .collect();
    for version in [2, 255] {
        commands.push(args![EFFECT, "k", versioned(version)]);
    }
    commands.push(good.effect_on("after", T_US));
    append_to_aof(&server, &commands);
    let log = server.log();
    assert_eq!(log.matches(&corrupt).count(), corrupt_blobs.len());
    for version in [2, 255] {
        assert_eq!(log.matches(&newer(version)).count(), 1);
    }
    assert_eq!(
        counter(&server, "effects_refused"),
        commands.len() as i64 - 1
    );
    let mut c = server.conn();
    assert_eq!(
        cmd!(c, "DEL", "after"),
        int(1),
        "a good one behind bad ones is taken"
    );
    assert_eq!(digest(&server), before);
}

// --- the server's commands for keys ---

#[test]
fn copies_moves_and_renames_carry_the_state() {
    let chain = chain();
    let mut c = chain.primary.conn();
    cmd!(c, "RL.GCRA", "k", 9, 10, 60_000, "COST", 4);
    let state = digest_of(&mut c, "k");
    let ttl = cmd!(c, "PTTL", "k");
    assert_eq!(cmd!(c, "COPY", "k", "copy"), int(1));
    assert_eq!(cmd!(c, "COPY", "k", "copy"), int(0));
    assert_eq!(cmd!(c, "COPY", "k", "k", "DB", 2), int(1));
    assert_eq!(digest_of(&mut c, "copy"), state);
    assert_eq!(cmd!(c, "PTTL", "copy"), ttl);
    // Two limiters from here on.
    run(
        &mut c,
        &[
            ("RL.GCRA copy 9 10 60000 COST 5", [1, 9, 0, 0, 54_000]),
            ("RL.PEEK k GCRA 9 10 60000", [1, 9, 5, 0, 24_000]),
        ],
    );
    assert_eq!(cmd!(c, "RENAME", "k", "new"), ok());
    assert_eq!(digest_of(&mut c, "new"), state);
    assert_eq!(cmd!(c, "PTTL", "new"), ttl);
    run(&mut c, &[("RL.PEEK k GCRA 9 10 60000", [1, 9, 9, 0, 0])]);
    assert_eq!(cmd!(c, "MOVE", "new", 3), int(1));
    run(&mut c, &[("RL.PEEK new GCRA 9 10 60000", [1, 9, 9, 0, 0])]);
    assert_eq!(cmd!(c, "SWAPDB", 0, 3), ok());
    run(
        &mut c,
        &[
            ("RL.PEEK new GCRA 9 10 60000", [1, 9, 5, 0, 24_000]),
            ("RL.PEEK copy GCRA 9 10 60000", [1, 9, 9, 0, 0]),
        ],
    );
    assert_eq!(cmd!(c, "SWAPDB", 3, 0), ok());
    run(
        &mut c,
        &[("RL.PEEK copy GCRA 9 10 60000", [0, 9, 0, 6000, 54_000])],
    );
    // Over something else, and something else over it.
    cmd!(c, "SET", "s", "v");
    assert_eq!(cmd!(c, "COPY", "copy", "s", "REPLACE"), int(1));
    run(
        &mut c,
        &[("RL.PEEK s GCRA 9 10 60000", [0, 9, 0, 6000, 54_000])],
    );
    cmd!(c, "SET", "t", "v");
    assert_eq!(cmd!(c, "RENAME", "t", "s"), ok());
    assert_eq!(cmd!(c, "GET", "s"), bulk("v"));
    chain.assert_equal();
    for server in chain.servers() {
        assert_eq!(counter(server, "rl_keys"), 3);
    }
}

#[test]
fn scan_finds_limiters_by_type() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "RL.GCRA", "k", 1, 1, 1000);
    cmd!(c, "SET", "s", "v");
    cmd!(c, "LOCK.GUARD", "g", 5);
    let found = cmd!(c, "SCAN", 0, "TYPE", "sluice-rl", "COUNT", 100);
    assert_eq!(found, array([bulk("0"), array([bulk("k")])]));
    assert_eq!(cmd!(c, "TYPE", "k"), status("sluice-rl"));
}

#[test]
fn dump_and_restore_give_the_same_state() {
    let chain = chain();
    let zoo = Zoo::fill(&chain.primary);
    let mut c = chain.primary.conn();
    for (key, _) in &zoo.seen {
        let payload = cmd!(c, "DUMP", key).as_bytes().to_vec();
        let at = cmd!(c, "PEXPIRETIME", key).as_int();
        let state = cmd!(c, "DEBUG", "DIGEST-VALUE", key);
        cmd!(c, "DEL", key);
        assert_eq!(cmd!(c, "RESTORE", key, at, &payload, "ABSTTL"), ok());
        assert_eq!(cmd!(c, "DEBUG", "DIGEST-VALUE", key), state);
        let again = cmd!(c, "RESTORE", key, at, &payload);
        assert_eq!(again, err("BUSYKEY Target key name already exists."));
    }
    zoo.assert_is(&chain.primary);
    assert_same(&chain);
}
