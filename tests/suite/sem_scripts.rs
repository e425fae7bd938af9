//! Semaphores in transactions, scripts and functions: the same replies, one unit, one instant.

use crate::sem_support::*;
use crate::support::*;
use crate::waiting_support::load_function;

/// All on key `k`.
const SCENARIO: [&str; 15] = [
    "SEM.ACQUIRE k a 60000 3 PERMITS 2 META m",
    "SEM.ACQUIRE k b 50000 3",
    "SEM.ACQUIRE k d 60000 3",
    "SEM.ACQUIRE k d 60000 3 BLOCK 1000",
    "SEM.ACQUIRE k a 70000 3 PERMITS 2",
    "SEM.ACQUIRE k d 60000 4",
    "SEM.RENEW k b 80000",
    "SEM.RENEW k b 10",
    "SEM.RENEW k stranger 10",
    "SEM.RELEASE k stranger",
    "SEM.RELEASE k a",
    "SEM.RELEASE k a",
    "SEM.ACQUIRE k e 60000 3 PERMITS 2",
    "SEM.ACQUIRE k f 60000 4 PERMITS 2",
    "SEM.INFO k",
];

/// A server in whose frozen instant every run of the scenario is the same.
fn server() -> Server {
    let server = Options::new().start();
    server.clock().freeze_at(T_US);
    server
}

fn commands() -> Vec<Vec<Vec<u8>>> {
    SCENARIO.iter().map(|line| words(line)).collect()
}

#[test]
fn the_scenario_is_the_same_in_every_unit() {
    let plain = server();
    let mut c = plain.conn();
    // Plainly nothing may wait: BLOCK would.
    let without_block = |line: &&str| run(&mut c, line.trim_end_matches(" BLOCK 1000"));
    let replies: Vec<Reply> = SCENARIO.iter().map(without_block).collect();
    assert_eq!(replies[0], int(T_US));
    assert_eq!(replies[3], nil());
    assert_eq!(replies[7], int(80_000));
    assert_eq!(replies[10], int(2));
    assert_eq!(replies[12], nil());
    let digest = cmd!(c, "DEBUG", "DIGEST");

    let transaction = server();
    let mut c = transaction.conn();
    assert_eq!(c.exec_multi(&commands()), replies);
    assert_eq!(cmd!(c, "DEBUG", "DIGEST"), digest);

    let script = server();
    let mut c = script.conn();
    let each = "local word = {} for each in ARGV[1]:gmatch('%S+') do word[#word + 1] = each end
        return redis.call(unpack(word))";
    let all: Vec<_> = SCENARIO
        .iter()
        .map(|line| c.eval(each, &["k"], &[line.as_bytes().to_vec()]))
        .collect();
    assert_eq!(all, replies);
    assert_eq!(cmd!(c, "DEBUG", "DIGEST"), digest);

    let function = server();
    let mut c = function.conn();
    load_function(&mut c);
    for (line, reply) in SCENARIO.iter().zip(&replies) {
        let mut rest = words(line);
        rest.remove(1);
        let call = [args!["FCALL", "run", 1, "k"], rest].concat();
        assert_eq!(c.cmd(&call), *reply, "{line}");
    }
    assert_eq!(cmd!(c, "DEBUG", "DIGEST"), digest);
}

#[test]
fn a_unit_is_one_unit_for_replicas_too() {
    let chain = chain();
    let mut c = chain.primary.conn();
    c.exec_multi(&commands());
    chain.assert_equal();
    let script = "redis.call('SEM.ACQUIRE', KEYS[1], 'x', 60000, 9)
        redis.call('SEM.ACQUIRE', KEYS[2], 'x', 60000, 9, 'PERMITS', 9)
        return redis.call('SEM.RELEASE', KEYS[1], 'x')";
    assert_eq!(c.eval(script, &["k", "other"], &[]), int(1));
    chain.assert_equal();
    for server in chain.servers() {
        holds(&mut server.conn(), "other", &[("x", 9)]);
    }
}

#[test]
fn a_script_sees_maps_when_it_asks_for_resp3() {
    let server = single();
    let mut c = server.conn();
    let token = acquire(&mut c, "k a 1000 5 PERMITS 4 META m");
    let script = "redis.setresp(3)
        local info = redis.call('SEM.INFO', KEYS[1]).map
        local holder = info.holders[1].map
        return {info.permits, info.ttl_ms, info.waiters, holder.holder, holder.token, holder.meta}";
    let expected = [int(4), int(1000), int(0), bulk("a"), int(token), bulk("m")];
    assert_eq!(c.eval(script, &["k"], &[]), array(expected));
}

#[test]
fn an_error_ends_a_script_and_leaves_the_rest_of_a_transaction() {
    let server = single();
    let mut c = server.conn();
    acquire(&mut c, "k a 60000 5 PERMITS 4");
    let script = "redis.call('SEM.ACQUIRE', KEYS[1], 'b', 1000, 5)
        redis.call('SEM.ACQUIRE', KEYS[1], 'a', 1000, 5)
        redis.call('SEM.RELEASE', KEYS[1], 'a')";
    let reply = c.eval(script, &["k"], &[]).as_text();
    let error = permits_changed(4).as_text();
    assert!(reply.starts_with(&error), "{reply}");
    holds(&mut c, "k", &[("a", 4), ("b", 1)]);
    let replies = c.exec_multi(&[
        words("SEM.ACQUIRE k a 1000 5"),
        words("SEM.ACQUIRE k x 1000 5 PERMITS 6"),
        words("SEM.RELEASE k a"),
    ]);
    assert_eq!(replies[0], permits_changed(4));
    assert!(replies[1].is_error());
    assert_eq!(replies[2], int(4));
    // A discarded one takes nothing.
    cmd!(c, "MULTI");
    run(&mut c, "SEM.ACQUIRE k x 1000 5");
    cmd!(c, "DISCARD");
    holds(&mut c, "k", &[("b", 1)]);
}

#[test]
fn read_only_scripts_may_look_and_nothing_else() {
    let server = recorder();
    let mut c = server.conn();
    acquire(&mut c, "k a 60000 5");
    let call = "return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))";
    changes_nothing(&server, || {
        let info = cmd!(c, "EVAL_RO", call, 1, "k", "SEM.INFO");
        assert_eq!(info.field("permits"), &int(1));
        for line in [
            args!["SEM.ACQUIRE", "b", 1000, 5],
            args!["SEM.RENEW", "a", 1000],
            args!["SEM.RELEASE", "a"],
        ] {
            let all = [args!["EVAL_RO", call, 1, "k"], line].concat();
            let refused = c.cmd(&all).as_text();
            assert!(refused.contains("read-only script"), "{refused}");
        }
    });
}

#[test]
fn a_transaction_is_one_instant_where_the_server_has_one() {
    let server = single();
    server.clock().run();
    let replies = server.conn().exec_multi(&[
        words("SEM.ACQUIRE k a 60000 9"),
        words("SEM.ACQUIRE k short 1 9"),
        args!["DEBUG", "SLEEP", "0.03"],
        words("SEM.ACQUIRE k b 60000 9"),
        words("SEM.RELEASE k short"),
    ]);
    let between = replies[3].as_int() - replies[0].as_int();
    if since_7_2() {
        assert_eq!(between, 2, "the clock stood, the counter went on");
        assert_eq!(replies[4], int(1));
    } else {
        assert!(between >= 30_000, "{between}");
        assert_eq!(replies[4], int(0));
    }
}
