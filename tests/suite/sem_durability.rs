//! Semaphores on replicas and in files: what is sent, and that everybody stores the same.

use crate::kinds_support::own;
use crate::replication::Tap;
use crate::sem_support::*;
use crate::support::*;
use sluice_testbed::Chain;

const KEYS: [&str; 6] = ["one", "few", "many", "lapsed", "meta", "renewed"];

/// Semaphores of every shape. What has lapsed and was not pruned is stored all the same.
#[track_caller]
fn make_shapes(server: &Server) {
    let mut c = server.conn();
    let mut lines: Vec<String> = [
        "SEM.ACQUIRE one a 60000 1",
        "SEM.ACQUIRE few a 60000 1000000 PERMITS 999000",
        "SEM.ACQUIRE few b 90000 1000000 PERMITS 999",
        "SEM.ACQUIRE lapsed a 100 9 PERMITS 2",
        "SEM.ACQUIRE lapsed b 60000 9",
        "SEM.ACQUIRE lapsed d 100 9 META m",
        "SEM.ACQUIRE meta a 60000 9 META host-7",
        "SEM.ACQUIRE renewed a 1000 9",
        "SEM.ACQUIRE renewed b 2000 9",
        "SEM.RENEW renewed a 70000",
        "SEM.ACQUIRE renewed b 70000 9",
    ]
    .map(String::from)
    .to_vec();
    lines.extend((0..200).map(|n| {
        let lease = if n % 3 == 0 { 100 } else { 60_000 + n };
        let permits = n % 7 + 1;
        format!("SEM.ACQUIRE many holder-{n} {lease} 5000 PERMITS {permits} META meta-{n}")
    }));
    lines.extend(
        (0..200)
            .step_by(5)
            .map(|n| format!("SEM.RELEASE many holder-{n}")),
    );
    let commands: Vec<_> = lines.iter().map(|line| words(line)).collect();
    for (line, reply) in lines.iter().zip(c.pipeline(&commands)) {
        assert!(reply.as_int() > 0, "{line}: {reply:?}");
    }
    server.clock().advance_ms(150);
    holds(&mut c, "lapsed", &[("b", 1)]);
}

/// Digest, end and what SEM.INFO shows of every shape.
#[track_caller]
fn shapes(server: &Server) -> Vec<(&'static str, Reply, Reply, Reply)> {
    let mut c = server.conn();
    let one = |key| {
        let digest = cmd!(c, "DEBUG", "DIGEST-VALUE", key);
        let end = cmd!(c, "PEXPIRETIME", key);
        (key, digest, end, cmd!(c, "SEM.INFO", key))
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
    let permits = counter(&chain.primary, "sem_permits");
    for follower in [&chain.replica, &chain.sub] {
        assert_eq!(counter(follower, "sem_permits"), permits);
        assert_eq!(high_water(follower), high_water(&chain.primary));
    }
    // The sub-replica's file has what came over both links.
    chain.sub.kill9();
    chain.sub.start_again();
    chain.assert_equal();
    rewrite_aof(&chain.sub);
    chain.sub.kill9();
    chain.sub.start_again();
    assert_eq!(shapes(&chain.sub), expected);
    // A full sync brings the same.
    let options = Options::new().clock(chain.clock());
    let replica = options.replica_of(&chain.primary).start();
    replica.wait_synced_with(&chain.primary);
    assert_eq!(shapes(&replica), expected);
    // What comes then prunes alike.
    let mut c = chain.primary.conn();
    for line in [
        "SEM.ACQUIRE lapsed e 60000 9",
        "SEM.ACQUIRE many e 60000 5000",
        "SEM.RELEASE many holder-1",
        "SEM.RENEW meta a 90000",
        "SEM.RELEASE one a",
    ] {
        assert!(number(&mut c, line) > 0, "{line}");
    }
    chain.assert_equal();
    assert_eq!(shapes(&chain.replica), shapes(&chain.primary));
    replica.wait_synced_with(&chain.primary);
    assert_eq!(shapes(&replica), shapes(&chain.primary));
    let permits = counter(&chain.primary, "sem_permits");
    for follower in [&chain.replica, &chain.sub, &replica] {
        assert_eq!(counter(follower, "sem_permits"), permits);
    }
}

#[test]
fn every_shape_survives_reloads_and_an_rdb() {
    let server = own(Options::new());
    make_shapes(&server);
    let expected = shapes(&server);
    let mark = high_water(&server);
    let permits = counter(&server, "sem_permits");
    assert_eq!(cmd!(server.conn(), "DEBUG", "RELOAD"), ok());
    assert_eq!(shapes(&server), expected);
    assert_eq!(counter(&server, "sem_permits"), permits);
    server.restart_saving();
    assert_eq!(shapes(&server), expected);
    assert_eq!(counter(&server, "sem_permits"), permits);
    assert_eq!(high_water(&server), mark);
}

fn survives_in_an_aof(aof: Aof) {
    let server = own(Options::new().aof(aof));
    make_shapes(&server);
    let expected = shapes(&server);
    let mark = high_water(&server);
    server.kill9();
    server.start_again();
    assert_eq!(shapes(&server), expected);
    for round in 0..2 {
        rewrite_aof(&server);
        server.kill9();
        server.start_again();
        assert_eq!(shapes(&server), expected, "rewrite {round}");
        assert_eq!(high_water(&server), mark, "rewrite {round}");
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
        let info = cmd!(c, "SEM.INFO", key);
        let payload = cmd!(c, "DUMP", key);
        let restored = cmd!(c, "RESTORE", "restored", end, payload.as_bytes(), "ABSTTL");
        assert_eq!(restored, ok(), "{key}");
        assert_eq!(cmd!(c, "COPY", key, "copied"), int(1), "{key}");
        for copy in ["restored", "copied"] {
            assert_eq!(cmd!(c, "DEBUG", "DIGEST-VALUE", copy), digest, "{key}");
            assert_eq!(cmd!(c, "SEM.INFO", copy), info, "{key}");
            assert_eq!(cmd!(c, "PEXPIRETIME", copy), int(end), "{key}");
        }
        assert_eq!(cmd!(c, "DUMP", "copied"), payload, "{key}");
        chain.assert_equal();
        cmd!(c, "DEL", "restored", "copied");
    }
}

#[test]
fn leases_end_while_the_server_is_down() {
    for aof in [Aof::Pure, Aof::Off] {
        let server = own(Options::new().aof(aof));
        let mut c = server.conn();
        acquire(&mut c, "k a 1000 2");
        acquire(&mut c, "k b 60000 2");
        acquire(&mut c, "gone a 1000 2 PERMITS 2");
        server.shutdown_save();
        server.clock().advance_ms(1001);
        server.start_again();
        let mut c = server.conn();
        holds(&mut c, "k", &[("b", 1)]);
        assert_eq!(run(&mut c, "SEM.RENEW k a 1000"), int(0));
        assert_eq!(cmd!(c, "SEM.INFO", "gone"), nil());
        acquire(&mut c, "k d 1000 2");
        acquire(&mut c, "gone d 1000 2 PERMITS 2");
    }
}

#[test]
fn a_promoted_replica_knows_all_permits_and_issues_higher_tokens() {
    let primary = own(Options::new());
    let options = Options::new().clock(primary.clock());
    let replica = options.replica_of(&primary).start();
    replica.wait_synced_with(&primary);
    let mut c = primary.conn();
    let a = acquire(&mut c, "k a 60000 3 PERMITS 2");
    let b = acquire(&mut c, "k b 1000 3");
    replica.wait_synced_with(&primary);
    primary.kill9();
    let mut c = replica.conn();
    assert_eq!(cmd!(c, "REPLICAOF", "NO", "ONE"), ok());
    assert_eq!(run(&mut c, "SEM.ACQUIRE k x 1000 3"), nil());
    assert_eq!(acquire(&mut c, "k a 60000 3 PERMITS 2"), a);
    assert_eq!(
        run(&mut c, &format!("SEM.RENEW k b 2000 TOKEN {b}")),
        int(2000)
    );
    // Behind the old primary's clock.
    replica.clock().advance_ms(-500);
    let mut w = wait_for(&replica, "k w 60000 3 PERMITS 3");
    assert_eq!(run(&mut c, &format!("SEM.RELEASE k a TOKEN {a}")), int(2));
    replica.clock().advance_ms(2501);
    assert!(w.token() > b);
}

// The exact effects -----------------------------------------------------------------------------------

fn sm(payload: Vec<u8>) -> Vec<Vec<u8>> {
    args!["sluice.sm", "k", payload]
}

#[test]
fn an_effect_carries_one_holder_and_never_the_whole_set() {
    let chain = chain();
    let clock = chain.clock();
    let t = clock.now_us();
    let mut c = chain.primary.conn();
    let mut tap = Tap::on(&chain);
    let nothing = Vec::<Vec<Vec<u8>>>::new();
    let mut a = Hold::at(t, 5000, 2, "a");
    let mut b = Hold::at(t, 700, 1, "b");
    b.token += 1;
    b.meta = b"m".to_vec();
    let mut over = Hold::at(t, 100, 3, "over");
    over.token += 2;

    acquire(&mut c, "k a 5000 9 PERMITS 2");
    assert_eq!(tap.take(), [sm(whole_effect(t, &[a.clone()]))]);
    acquire(&mut c, "k b 700 9 META m SESSION");
    assert_eq!(tap.take(), [sm(b.effect(t))]);
    acquire(&mut c, "k over 100 9 PERMITS 3");
    assert_eq!(tap.take(), [sm(over.effect(t))]);
    chain.assert_equal();

    clock.advance_us(50_000);
    acquire(&mut c, "k b 900 9 META other");
    b.deadline_ms += 250;
    assert_eq!(tap.take(), [sm(b.effect(t + 50_000))]);
    assert_eq!(run(&mut c, "SEM.RENEW k a 9000"), int(9000));
    a.deadline_ms += 4050;
    assert_eq!(tap.take(), [sm(a.effect(t + 50_000))]);
    // Nothing moves.
    for line in [
        "SEM.RENEW k a 8000",
        "SEM.ACQUIRE k a 1 9 PERMITS 2",
        "SEM.ACQUIRE k x 8000 6",
        "SEM.ACQUIRE k a 8000 9",
        "SEM.RENEW k x 8000",
        "SEM.RELEASE k x",
        "SEM.INFO k",
    ] {
        run(&mut c, line);
    }
    assert_eq!(tap.take(), nothing);

    // Prunes the lapsed one, without a word of it.
    clock.advance_ms(100);
    chain.assert_equal();
    assert_eq!(run(&mut c, "SEM.RELEASE k b"), int(1));
    assert_eq!(tap.take(), [sm(b.gone(t + 150_000))]);
    chain.assert_equal();
    // A strayed TTL is mended by saying again what one holder has, which prunes nobody.
    cmd!(c, "PERSIST", "k");
    assert_eq!(run(&mut c, "SEM.RENEW k a 1"), int(8900));
    assert_eq!(tap.take(), [args!["PERSIST", "k"], sm(a.effect(0))]);
    assert_eq!(run(&mut c, "SEM.RELEASE k a"), int(2));
    assert_eq!(tap.take(), [args!["DEL", "k"]]);
    chain.assert_equal();
}

#[test]
fn the_last_holder_leaves_a_plain_del_also_with_lapsed_ones() {
    let chain = chain();
    let mut c = chain.primary.conn();
    acquire(&mut c, "k a 5000 9");
    acquire(&mut c, "k over 100 9");
    chain.clock().advance_ms(101);
    let mut tap = Tap::on(&chain);
    assert_eq!(run(&mut c, "SEM.RELEASE k a"), int(1));
    assert_eq!(tap.take(), [args!["DEL", "k"]]);
    chain.assert_equal();
}

#[test]
fn a_hand_over_is_what_left_and_what_came_in_one_unit() {
    let chain = chain();
    let t = chain.clock().now_us();
    let server = &chain.primary;
    let mut c = server.conn();
    acquire(&mut c, "k a 60000 2");
    acquire(&mut c, "k b 60000 2");
    let mut tap = Tap::on(&chain);
    let mut w = wait_for(server, "k w 60000 2");
    let mut both = wait_for(server, "k both 60000 2 PERMITS 2");
    assert_eq!(run(&mut c, "SEM.RELEASE k a"), int(1));
    assert_eq!(w.token(), t + 2);
    let gone = Hold::at(t, 60_000, 1, "a").gone(t);
    let mut came = Hold::at(t, 60_000, 1, "w");
    came.token += 2;
    let unit = [args!["MULTI"], sm(gone), sm(came.effect(t)), args!["EXEC"]];
    assert_eq!(tap.take(), unit);
    run(&mut c, "SEM.RELEASE k w");
    tap.take();
    // The last one's release: the new state, and no DEL.
    run(&mut c, "SEM.RELEASE k b");
    assert_eq!(both.token(), t + 3);
    let mut came = Hold::at(t, 60_000, 2, "both");
    came.token += 3;
    assert_eq!(tap.take(), [sm(whole_effect(t, &[came]))]);
    chain.assert_equal();
}

#[test]
fn a_rewrite_writes_one_bounded_effect_for_each_holder() {
    let server = recorder();
    let mut c = server.conn();
    let mut holds: Vec<Hold> = (1..=3u32)
        .map(|n| {
            let lease = u64::from(n) * 1000;
            let mut hold = Hold::at(T_US, lease, n, format!("h{n}"));
            hold.token += u64::from(n) - 1;
            hold.meta = b"m".to_vec();
            acquire(&mut c, &format!("k h{n} {lease} 9 PERMITS {n} META m"));
            hold
        })
        .collect();
    server.clock().advance_ms(1500);
    rewrite_aof(&server);
    let written: Vec<_> = server
        .aof_commands()
        .into_iter()
        .filter(|command| command[0] == b"sluice.sm")
        .collect();
    // The lapsed one as well, for it is stored.
    let expected: Vec<_> = holds.iter().map(|hold| sm(hold.effect(0))).collect();
    assert_eq!(written, expected);
    holds.remove(0);
    server.kill9();
    server.start_again();
    let live: Vec<_> = holds.iter().map(|h| h.token as i64).collect();
    let mut c = server.conn();
    for (n, token) in (2..).zip(live) {
        assert_eq!(of_holder(&mut c, "k", &format!("h{n}"), "token"), token);
    }
}

/// A file that was rewritten without preamble says of our keys what is inside them, and no more:
/// that somebody took the TTL away is not in it.
#[test]
fn a_rewritten_file_gives_a_persisted_key_the_ttl_of_its_deadlines() {
    let server = Options::new().aof(Aof::Pure).start();
    server.clock().freeze_at(T_US);
    let mut c = server.conn();
    acquire(&mut c, "k a 60000 3");
    assert_eq!(cmd!(c, "PERSIST", "k"), int(1));
    assert_eq!(cmd!(c, "PTTL", "k"), int(-1));
    cmd!(c, "BGREWRITEAOF");
    wait_for_rewrites(&server);
    server.restart();
    let mut c = server.conn();
    assert_eq!(cmd!(c, "PTTL", "k"), int(60_000));
    holds(&mut c, "k", &[("a", 1)]);
}
