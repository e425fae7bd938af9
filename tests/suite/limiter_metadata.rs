//! Where and for whom the limiters' commands run (replicas, a full server, ACL, a cluster), and what
//! the server knows about them.

use crate::limiter_declared::hides_internal_commands;
use crate::limiter_support::*;
use crate::support::*;

const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";
const READ_ONLY: &str = "READONLY You can't write against a read only replica.";

fn sorted(texts: &[Reply]) -> Vec<String> {
    let mut texts: Vec<_> = texts.iter().map(Reply::as_text).collect();
    texts.sort();
    texts
}

// --- replicas, a full server ---

#[test]
fn a_replica_answers_peeks_and_refuses_the_rest() {
    let chain = chain();
    let mut c = chain.primary.conn();
    run(
        &mut c,
        &[("RL.GCRA k 2 1 60000 COST 2", [1, 2, 0, 0, 120_000])],
    );
    chain.sync();
    chain.clock().advance_ms(20_000);
    for server in [&chain.replica, &chain.sub] {
        let mut r = server.conn();
        let cases = [
            ("RL.PEEK k GCRA 2 1 60000", [0, 2, 0, 40_000, 100_000]),
            (
                "RL.PEEK k GCRA 2 1 60000 COST 2",
                [0, 2, 0, 100_000, 100_000],
            ),
            ("RL.PEEK k TOKENBUCKET 3 3 60000", [1, 3, 2, 0, 20_000]),
            ("RL.PEEK new GCRA 2 1 60000", [1, 2, 2, 0, 0]),
        ];
        run(&mut r, &cases);
        assert_eq!(cmd!(r, "RL.INFO", "k").field("reset_ms"), &int(100_000));
        for call in [
            "RL.GCRA k 2 1 60000",
            "RL.GCRA new 2 1 60000",
            "RL.TOKENBUCKET k 2 1 60000",
            "RL.LEAKYBUCKET k 2 1 60000",
            "RL.FIXEDWINDOW new 2 60000",
            "RL.SLIDINGWINDOW new 2 60000",
            "RL.SLIDINGLOG new 2 60000",
            "RL.ALL 1 k GCRA 2 1 60000",
            "RL.CHARGE k GCRA 2 1 60000",
            "RL.REFUND k GCRA 2 1 60000",
            "RL.BLOCK k 1000",
            "CL.THROTTLE k 2 1 60",
            // One that would only look.
            "CL.THROTTLE k 2 1 60 0",
            "RL.RESET k",
            "RL.RESET new",
        ] {
            assert_eq!(r.cmd(&words(call)), err(READ_ONLY), "{call}");
            let script = "return redis.pcall(unpack(ARGV))";
            assert_eq!(r.eval(script, &[], &words(call)), err(READ_ONLY), "{call}");
            let queued = r.multi(&[words(call)]);
            assert!(queued.as_text().starts_with("EXECABORT"), "{call}");
        }
        let peek = words("RL.PEEK k GCRA 2 1 60000");
        let expected = five([0, 2, 0, 40_000, 100_000]);
        let replies = r.exec_multi(std::slice::from_ref(&peek));
        assert_eq!(replies[0], expected);
        assert_eq!(
            r.eval("return redis.call(unpack(ARGV))", &[], &peek),
            expected
        );
    }
    // Past the key's end a replica says what the primary would, and deletes nothing.
    cmd!(c, "DEBUG", "SET-ACTIVE-EXPIRE", 0);
    chain.clock().advance_ms(HOUR_MS);
    for server in [&chain.replica, &chain.sub] {
        let mut r = server.conn();
        run(&mut r, &[("RL.PEEK k GCRA 2 1 60000", [1, 2, 2, 0, 0])]);
        assert_eq!(cmd!(r, "RL.INFO", "k"), nil());
        assert_eq!(cmd!(r, "DBSIZE"), int(1));
    }
    assert_same(&chain);
}

#[test]
fn over_maxmemory_only_what_takes_memory_is_refused() {
    let server = recorder();
    let mut c = server.conn();
    for key in ["k", "l", "m"] {
        cmd!(c, "RL.GCRA", key, 2, 1, 60_000);
    }
    cmd!(c, "RL.SLIDINGLOG", "log", 2, 60_000, "COST", 2);
    assert_eq!(cmd!(c, "CONFIG", "SET", "maxmemory", 1), ok());
    refuses(
        &server,
        OOM,
        &[
            "RL.GCRA k 2 1 60000",
            "RL.GCRA new 2 1 60000",
            "RL.GCRA k 2 1 60000 COST 2",
            "RL.TOKENBUCKET k 2 1 60000",
            "RL.TOKENBUCKET new 2 1 60000",
            "RL.LEAKYBUCKET k 2 1 60000",
            "RL.FIXEDWINDOW new 2 60000",
            "RL.SLIDINGWINDOW new 2 60000",
            "RL.SLIDINGLOG new 2 60000",
            "RL.ALL 2 k new GCRA 2 1 60000 GCRA 2 1 60000",
            "RL.CHARGE k GCRA 2 1 60000",
            "RL.BLOCK k 1000",
            "CL.THROTTLE k 1 1 60",
            "CL.THROTTLE k 1 1 60 -1",
        ],
    );
    answers(
        &server,
        &[
            ("RL.PEEK k GCRA 2 1 60000", five([1, 2, 1, 0, 60_000])),
            ("RL.PEEK new TOKENBUCKET 2 1 60000", five([1, 2, 2, 0, 0])),
        ],
    );
    assert_eq!(cmd!(c, "RL.INFO", "k").field("remaining"), &int(1));
    run(
        &mut c,
        &[
            ("RL.REFUND l GCRA 2 1 60000", [1, 2, 2, 0, 0]),
            ("RL.REFUND log SLIDINGLOG 2 60000", [1, 2, 1, 0, 60_000]),
        ],
    );
    assert_eq!(cmd!(c, "EXISTS", "l"), int(0));
    assert_eq!(cmd!(c, "RL.RESET", "k", "new"), int(1));
    assert_eq!(cmd!(c, "CONFIG", "SET", "maxmemory", 0), ok());
    run(&mut c, &[("RL.GCRA k 2 1 60000", [1, 2, 1, 0, 60_000])]);
}

#[test]
fn without_enough_replicas_peeks_still_work() {
    let server = half_used();
    let mut c = server.conn();
    cmd!(c, "CONFIG", "SET", "min-replicas-to-write", 1);
    refuses(
        &server,
        "NOREPLICAS Not enough good replicas to write.",
        &[
            "RL.GCRA k 10 10 1000",
            "RL.TOKENBUCKET k 10 10 1000",
            "RL.LEAKYBUCKET k 10 10 1000",
            "RL.FIXEDWINDOW new 10 1000",
            "RL.SLIDINGWINDOW new 10 1000",
            "RL.SLIDINGLOG new 10 1000",
            "RL.ALL 1 k GCRA 10 10 1000",
            "RL.CHARGE k GCRA 10 10 1000",
            "RL.REFUND k GCRA 10 10 1000",
            "RL.BLOCK k 1000",
            "CL.THROTTLE k 10 10 1",
            "RL.RESET k",
        ],
    );
    run(&mut c, &[("RL.PEEK k GCRA 10 10 1000", [1, 10, 5, 0, 500])]);
    assert_eq!(cmd!(c, "RL.INFO", "k").field("remaining"), &int(5));
}

#[test]
fn while_writes_are_paused_peeks_still_work() {
    let server = single();
    let mut c = server.conn();
    cmd!(c, "RL.GCRA", "k", 1, 1, 1000);
    cmd!(c, "CLIENT", "PAUSE", 600_000, "WRITE");
    run(
        &mut c,
        &[("RL.PEEK k GCRA 1 1 1000", [0, 1, 0, 1000, 1000])],
    );
    let mut waiting = server.conn();
    waiting.send(&args!["RL.GCRA", "k", 1, 1, 1000]);
    // Past the key's end, which nobody may delete now.
    server.clock().advance_ms(3000);
    run(&mut c, &[("RL.PEEK k GCRA 1 1 1000", [1, 1, 1, 0, 0])]);
    assert_eq!(cmd!(c, "RL.INFO", "k"), nil());
    assert_eq!(cmd!(c, "CLIENT", "UNPAUSE"), ok());
    assert_eq!(waiting.recv(), five([1, 1, 0, 0, 1000]));
}

// --- ACL ---

/// Each command, and the permissions for the key that it needs. Keys differ by algorithm.
const COMMANDS: &[(&str, &str)] = &[
    ("RL.GCRA k 9 1 60000", "read and write"),
    ("RL.TOKENBUCKET k 9 1 60000", "read and write"),
    ("RL.LEAKYBUCKET k 9 1 60000", "read and write"),
    ("RL.FIXEDWINDOW kf 9 60000", "read and write"),
    ("RL.SLIDINGWINDOW ks 9 60000", "read and write"),
    ("RL.SLIDINGLOG kl 9 60000", "read and write"),
    ("RL.ALL 1 k GCRA 9 1 60000", "read and write"),
    ("RL.CHARGE k GCRA 9 1 60000", "read and write"),
    ("RL.REFUND k GCRA 9 1 60000", "read and write"),
    ("RL.BLOCK kb 1000", "read and write"),
    ("CL.THROTTLE k 9 1 60", "read and write"),
    ("RL.PEEK k GCRA 9 1 60000", "read"),
    ("RL.INFO k", "read"),
    ("RL.RESET k", "write"),
];

const UPDATING: [&str; 11] = [
    "rl.gcra",
    "rl.tokenbucket",
    "rl.leakybucket",
    "rl.fixedwindow",
    "rl.slidingwindow",
    "rl.slidinglog",
    "rl.all",
    "rl.charge",
    "rl.refund",
    "rl.block",
    "cl.throttle",
];

fn name(command: &str) -> String {
    let (name, _) = command.split_once(' ').expect("a key");
    name.to_lowercase()
}

/// A connection of a user `u` with these rules and no others.
fn user(server: &Server, rules: &[&str]) -> Conn {
    let mut set_user = args!["ACL", "SETUSER", "u", "reset", "on", "nopass"];
    set_user.extend(rules.iter().map(|rule| rule.as_bytes().to_vec()));
    assert_eq!(server.conn().cmd(&set_user), ok(), "{rules:?}");
    let mut conn = server.conn();
    assert_eq!(cmd!(conn, "AUTH", "u", "any"), ok());
    conn
}

/// Which commands this user may run; the others must be refused by ACL and change nothing.
fn permitted(server: &Server, rules: &[&str]) -> Vec<String> {
    let mut conn = user(server, rules);
    let mut permitted = Vec::new();
    for (command, _) in COMMANDS {
        let mut refused = false;
        let mut reply = conn.cmd(&words(command));
        if let Reply::Error(line) = &reply {
            assert!(line.starts_with("NOPERM"), "{rules:?}, {command}: {line}");
            refused = true;
            reply = changes_nothing(server, || conn.cmd(&words(command)));
        }
        assert_eq!(reply.is_error(), refused);
        if !refused {
            permitted.push(name(command));
        }
    }
    permitted
}

fn needing(needs: &[&str]) -> Vec<String> {
    let commands = COMMANDS.iter().filter(|(_, need)| needs.contains(need));
    commands.map(|(command, _)| name(command)).collect()
}

#[test]
fn key_permissions_are_asked_for_as_needed() {
    let server = recorder();
    cmd!(server.conn(), "RL.GCRA", "k", 9, 1, 60_000);
    assert_eq!(permitted(&server, &["+@all", "%R~k*"]), needing(&["read"]));
    assert_eq!(permitted(&server, &["+@all", "%W~k*"]), needing(&["write"]));
    assert_eq!(cmd!(server.conn(), "EXISTS", "k"), int(0), "it was reset");
    let all = needing(&["read", "write", "read and write"]);
    for rule in ["~k*", "%RW~k*", "~*", "allkeys"] {
        assert_eq!(permitted(&server, &["+@all", rule]), all, "{rule}");
    }
    assert!(permitted(&server, &["+@all", "~other"]).is_empty());
    assert!(permitted(&server, &["+@all", "~K"]).is_empty());
}

#[test]
fn a_reset_needs_permission_for_every_key() {
    let server = single();
    let mut c = server.conn();
    for key in ["app:a", "app:b", "other"] {
        cmd!(c, "RL.GCRA", key, 9, 1, 60_000);
    }
    let mut conn = user(&server, &["+@all", "%W~app:*"]);
    for line in [
        "RL.RESET app:a other",
        "RL.RESET other app:a",
        "RL.RESET app:a app:b missing",
    ] {
        assert!(
            conn.cmd(&words(line)).as_text().starts_with("NOPERM"),
            "{line}"
        );
    }
    assert_eq!(cmd!(c, "DBSIZE"), int(3));
    assert_eq!(cmd!(conn, "RL.RESET", "app:a", "app:b"), int(2));
}

#[test]
fn lists_of_commands_work_on_every_server() {
    let server = recorder();
    let application = ["~*", "+rl.gcra", "+rl.peek"];
    assert_eq!(permitted(&server, &application), ["rl.gcra", "rl.peek"]);
    let operator = ["~*", "+rl.peek", "+rl.info", "+rl.reset"];
    assert_eq!(
        permitted(&server, &operator),
        ["rl.peek", "rl.info", "rl.reset"]
    );
    let mut no_reset = vec!["~*", "+@all", "-rl.reset"];
    let taken = UPDATING[1..].iter().map(|name| format!("-{name}"));
    let taken: Vec<_> = taken.collect();
    no_reset.extend(taken.iter().map(String::as_str));
    assert_eq!(
        permitted(&server, &no_reset),
        ["rl.gcra", "rl.peek", "rl.info"]
    );
}

#[test]
fn categories_say_what_a_command_does() {
    let server = recorder();
    let mut c = server.conn();
    for (command, _) in COMMANDS {
        let info = cmd!(c, "COMMAND", "INFO", name(command));
        let categories = sorted(info.items()[0].items()[6].items());
        let expected: &[&str] = match name(command).as_str() {
            _ if !since_7_2() => &[],
            "rl.peek" | "rl.info" => &["@fast", "@read"],
            "rl.reset" => &["@dangerous", "@slow", "@write"],
            "rl.block" => &["@dangerous", "@fast", "@write"],
            "rl.all" => &["@slow", "@write"],
            _ => &["@fast", "@write"],
        };
        assert_eq!(categories, expected, "{command}");
    }
    let harmless: Vec<&str> = UPDATING
        .into_iter()
        .filter(|name| *name != "rl.block")
        .collect();
    let cases: [(&[&str], &[&str]); 4] = [
        (&["+@write", "-@dangerous"], &harmless),
        (&["+@read"], &["rl.peek", "rl.info"]),
        (&["+@dangerous"], &["rl.block", "rl.reset"]),
        (&["+@slow"], &["rl.all", "rl.reset"]),
    ];
    for (rules, expected) in cases {
        // No category reaches them where they have none.
        let expected = if since_7_2() { expected } else { &[] };
        let found = permitted(&server, &[&["~*", "+auth"], rules].concat());
        assert_eq!(found, expected, "{rules:?}");
    }
}

// --- the effect, a cluster ---

#[test]
fn the_effect_is_refused_to_clients() {
    let server = half_used();
    let mut c = server.conn();
    let effect = Bucket::owing(0, T_US, (10, 10, 1000)).effect_on("k", T_US);
    let refusal = match hides_internal_commands() {
        true => format!("ERR unknown command '{EFFECT}'"),
        false => "ERR internal command: accepted only from the primary or the append-only file"
            .to_string(),
    };
    changes_nothing(&server, || {
        let plain = c.cmd(&effect).as_text();
        assert!(plain.starts_with(&refusal), "{plain}");
        let script = "return redis.pcall(unpack(ARGV))";
        assert!(c.eval(script, &["k"], &effect).is_error());
        match c.multi(std::slice::from_ref(&effect)) {
            Reply::Array(replies) => assert!(replies[0].is_error()),
            reply => assert!(reply.as_text().starts_with("EXECABORT"), "{reply:?}"),
        }
    });
    if !hides_internal_commands() {
        assert_eq!(counter(&server, "effects_refused"), 3);
    }
}

#[test]
fn in_a_cluster_the_keys_of_a_reset_share_a_slot() {
    let server = Options::new().cluster().start();
    let mut c = server.conn();
    assert_eq!(cmd!(c, "CLUSTER", "ADDSLOTSRANGE", 0, 16_383), ok());
    eventually("the cluster serves", || {
        // It waits for two seconds of the wall clock.
        server.clock().advance_ms(500);
        cmd!(c, "CLUSTER", "INFO")
            .as_text()
            .contains("cluster_state:ok")
    });
    for key in ["{t}a", "{t}b", "c"] {
        let reply = cmd!(c, "RL.GCRA", key, 1, 1, HOUR_MS);
        assert_eq!(reply, five([1, 1, 0, 0, HOUR_MS]));
    }
    let error = "CROSSSLOT Keys in request don't hash to the same slot";
    assert_eq!(cmd!(c, "RL.RESET", "{t}a", "c"), err(error));
    assert_eq!(cmd!(c, "RL.RESET", "{t}a", "{t}b", "{t}missing"), int(2));
    assert_eq!(cmd!(c, "RL.RESET", "c"), int(1));
}

#[test]
fn a_replica_peeks_at_every_algorithm_as_its_primary_does() {
    let chain = chain();
    let mut c = chain.primary.conn();
    let policies = [
        "GCRA 10 10 60000",
        "TOKENBUCKET 10 10 60000",
        "LEAKYBUCKET 10 10 60000",
        "FIXEDWINDOW 10 60000",
        "FIXEDWINDOW 10 60000 ALIGN 1000",
        "SLIDINGWINDOW 10 60000",
        "SLIDINGLOG 10 60000",
    ];
    for (n, policy) in policies.iter().enumerate() {
        let (algorithm, numbers) = policy.split_once(' ').expect("numbers");
        c.cmd(&words(&format!("RL.{algorithm} k{n} {numbers} COST 4")));
        c.cmd(&words(&format!("RL.CHARGE b{n} {policy} COST 25")));
        cmd!(c, "RL.BLOCK", format!("b{n}"), 5000);
    }
    for step_ms in [0, 1, 17_000, 30_000, 13_000, 40_000] {
        chain.clock().advance_ms(step_ms);
        chain.sync();
        for (n, policy) in policies.iter().enumerate() {
            for key in [format!("k{n}"), format!("b{n}")] {
                for line in [
                    format!("RL.PEEK {key} {policy} COST 7"),
                    format!("RL.INFO {key}"),
                ] {
                    let expected = c.cmd(&words(&line));
                    for server in [&chain.replica, &chain.sub] {
                        let found = server.conn().cmd(&words(&line));
                        assert_eq!(found, expected, "+{step_ms}: {line}");
                    }
                }
            }
        }
    }
}
