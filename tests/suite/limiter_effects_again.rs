//! Effects of limiters that are applied more than once, or passed on.

use sluice_testbed::Chain;

use crate::limiter_shapes::*;
use crate::limiter_support::*;
use crate::support::*;

type Command = Vec<Vec<u8>>;

/// All that makes the shapes, with refunds, steps back and prunings, as it was propagated.
fn history() -> (Server, Vec<Command>, Reply) {
    let server = recorder();
    Shapes::fill(&server);
    let mut c = server.conn();
    for line in [
        "RL.REFUND long SLIDINGLOG 1200 11000 COST 300",
        "RL.REFUND sliding! SLIDINGWINDOW 10 60000 COST 3",
        "RL.REFUND fixed FIXEDWINDOW 10 60000 COST 4",
        "RL.REFUND overdraft! GCRA 5 5 60000 COST 4",
    ] {
        assert!(!c.cmd(&words(line)).is_error(), "{line}");
    }
    server.clock().advance_ms(-1000);
    for case in &CASES {
        let line = format!("RL.CHARGE {} {}", case.key, case.policy);
        assert!(!c.cmd(&words(&line)).is_error(), "{line}");
    }
    let (commands, digest) = (server.aof_commands(), digest(&server));
    (server, commands, digest)
}

#[test]
fn effects_applied_twice_give_the_same() {
    let (server, commands, expected) = history();
    let twice = |commands: &[Command]| -> Vec<Command> {
        commands
            .iter()
            .flat_map(|c| [c.clone(), c.clone()])
            .collect()
    };
    // From nothing, and then all of it again on top of what that gave.
    let other = Options::new().aof(Aof::Pure).clock(server.clock()).start();
    append_to_aof(&other, &twice(&commands));
    assert_eq!(digest(&other), expected);
    append_to_aof(&other, &twice(&commands));
    assert_eq!(digest(&other), expected);
    assert_eq!(counter(&other, "effects_refused"), 0);
    assert_eq!(deadlines(&other), deadlines(&server));
}

#[test]
fn replicas_pass_on_every_effect_as_it_came() {
    let chain = Chain::start_with(|options| options.aof(Aof::Pure));
    for server in chain.servers() {
        wait_for_rewrites(server);
    }
    let mut c = chain.primary.conn();
    cmd!(c, "SET", "start", 1);
    Shapes::fill(&chain.primary);
    cmd!(c, "RL.RESET", "long", "only!");
    cmd!(c, "SET", "end", 1);
    assert_same(&chain);
    let between = chain.servers().map(|server| {
        let commands = server.aof_commands();
        let place = |key: &str| {
            let is_it = |command: &Command| command.get(1).is_some_and(|k| k == key.as_bytes());
            commands.iter().position(is_it).expect("it is there")
        };
        commands[place("start")..place("end")].to_vec()
    });
    let [primary, replica, sub] = between;
    assert!(primary.len() > 2600, "{}", primary.len());
    assert_eq!(replica, primary);
    assert_eq!(sub, primary);
}

/// As on a replica that has lost the key, or holds something else under its name.
#[test]
fn the_effect_of_a_log_makes_one_whatever_is_there() {
    let server = recorder();
    let mut c = server.conn();
    let policy = (10, 60_000);
    for line in [
        "SET string v",
        "RL.GCRA bucket 5 5 60000",
        "RL.BLOCK blocked 5000",
        "RL.FIXEDWINDOW window 5 60000",
        "LOCK.GUARD guard 5",
    ] {
        assert!(!c.cmd(&words(line)).is_error(), "{line}");
    }
    let keys = ["none", "string", "bucket", "blocked", "window", "guard"];
    let step = log_step(policy, 100, T_US - 5, (T_US, 104));
    let blocked_step = blocked(T_US, T_US + 7_000_000, &step);
    let mut commands = vec![args!["SELECT", 0]];
    commands.extend(keys.map(|key| limiter_effect(key, T_US, &step)));
    append_to_aof(&server, &commands);
    let mut c = server.conn();
    cmd!(c, "CONFIG", "SET", "rdbcompression", "no");
    let check = |c: &mut Conn, body: &[u8], peek: [i64; 5]| {
        for key in keys {
            let (found, expected) = (dump_of(c, key), limiter_dump(body));
            let len = expected.len() - 10;
            assert_eq!(found[..len], expected[..len], "{key}");
            run(c, &[(&format!("RL.PEEK {key} SLIDINGLOG 10 60000"), peek)]);
            let end = deadline_ms(T_US, 60_000_000);
            assert_eq!(cmd!(c, "PEXPIRETIME", key), int(end), "{key}");
        }
    };
    let log = sliding_log(policy, 100, &[(T_US as u64, 104)]);
    check(&mut c, &log, [1, 10, 6, 0, 60_000]);
    // With a block, and without it again.
    append_to_aof(
        &server,
        &keys.map(|key| limiter_effect(key, T_US, &blocked_step)),
    );
    let mut c = server.conn();
    cmd!(c, "CONFIG", "SET", "rdbcompression", "no");
    check(
        &mut c,
        &blocked(T_US, T_US + 7_000_000, &log),
        [0, 10, 0, 7000, 60_000],
    );
    append_to_aof(&server, &keys.map(|key| limiter_effect(key, T_US, &step)));
    let mut c = server.conn();
    cmd!(c, "CONFIG", "SET", "rdbcompression", "no");
    check(&mut c, &log, [1, 10, 6, 0, 60_000]);
}
