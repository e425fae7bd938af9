//! Where and for whom the limiters' commands run (replicas, a full server, ACL, a cluster), and what
//! the server knows about them.

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

/// Each command, and the permissions for the key that it needs.
const COMMANDS: &[(&str, &str)] = &[
    ("RL.GCRA k 9 1 60000", "read and write"),
    ("RL.TOKENBUCKET k 9 1 60000", "read and write"),
    ("RL.PEEK k GCRA 9 1 60000", "read"),
    ("RL.INFO k", "read"),
    ("RL.RESET k", "write"),
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
    for rule in ["~k", "%RW~k*", "~*", "allkeys"] {
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
    let no_reset = ["~*", "+@all", "-rl.reset", "-RL.TOKENBUCKET"];
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
            _ => &["@fast", "@write"],
        };
        assert_eq!(categories, expected, "{command}");
    }
    let cases: [(&[&str], &[&str]); 4] = [
        (&["+@write", "-@dangerous"], &["rl.gcra", "rl.tokenbucket"]),
        (&["+@read"], &["rl.peek", "rl.info"]),
        (&["+@dangerous"], &["rl.reset"]),
        (&["+@slow"], &["rl.reset"]),
    ];
    for (rules, expected) in cases {
        // No category reaches them where they have none.
        let expected = if since_7_2() { expected } else { &[] };
        let found = permitted(&server, &[&["~*", "+auth"], rules].concat());
        assert_eq!(found, expected, "{rules:?}");
    }
}

// --- COMMAND INFO, GETKEYS, DOCS ---

/// A command as COMMAND INFO and COMMAND DOCS show it.
struct Declared {
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    /// The last key: 1 for the first word only, −1 for all.
    last: i64,
    key: &'static [&'static str],
    summary: &'static str,
    complexity: &'static str,
    args: &'static str,
}

const DECLARED: &[Declared] = &[
    Declared {
        name: "rl.gcra",
        arity: -5,
        flags: &["denyoom", "fast", "module", "write"],
        last: 1,
        key: &["RW", "access", "update"],
        summary: "Admits a call or not: a smooth rate, with a burst at one instant from idle.",
        complexity: "O(1)",
        args: "key:key burst:integer count:integer period_ms:integer [COST cost:integer]",
    },
    Declared {
        name: "rl.tokenbucket",
        arity: -5,
        flags: &["denyoom", "fast", "module", "write"],
        last: 1,
        key: &["RW", "access", "update"],
        summary: "Admits a call or not: takes tokens from a bucket that refills continuously.",
        complexity: "O(1)",
        args: "key:key capacity:integer refill:integer period_ms:integer [COST cost:integer]",
    },
    Declared {
        name: "rl.peek",
        arity: -6,
        flags: &["fast", "module", "readonly"],
        last: 1,
        key: &["RO", "access"],
        summary: "Answers what a limiter would say to a call, and spends nothing.",
        complexity: "O(1)",
        args: "key:key policy:oneof(\
            gcra:block(GCRA algorithm:pure-token \
            burst:integer count:integer period_ms:integer) \
            tokenbucket:block(TOKENBUCKET algorithm:pure-token \
            capacity:integer refill:integer period_ms:integer)) [COST cost:integer]",
    },
    Declared {
        name: "rl.reset",
        arity: -2,
        flags: &["module", "write"],
        last: -1,
        key: &["RW", "delete"],
        summary: "Makes limiters as good as new.",
        complexity: "O(N) with the number of keys",
        args: "key:key...",
    },
    Declared {
        name: "rl.info",
        arity: 2,
        flags: &["fast", "module", "readonly"],
        last: 1,
        key: &["RO", "access"],
        summary: "Shows the state of a limiter, under the policy of its last admission.",
        complexity: "O(1)",
        args: "key:key",
    },
];

/// Redis 8 hides internal commands from clients.
fn hides_internal_commands() -> bool {
    flavour().kind == Kind::Redis && flavour().version >= (8, 0, 0)
}

#[test]
fn command_info_shows_flags_arity_and_keys() {
    let server = single();
    let mut c = server.conn();
    for command in DECLARED {
        let name = command.name;
        let reply = cmd!(c, "COMMAND", "INFO", name);
        let info = reply.items()[0].items();
        assert_eq!(info[0], bulk(name));
        assert_eq!(info[1], int(command.arity), "{name}");
        assert_eq!(sorted(info[2].items()), command.flags, "{name}");
        assert_eq!(info[3..6], [int(1), int(command.last), int(1)], "{name}");
        assert_eq!(info[7], array([]), "tips of {name}");
        let [spec] = info[8].items() else {
            panic!("{name}: {:?}", info[8]);
        };
        assert_eq!(sorted(spec.field("flags").items()), command.key, "{name}");
        let begin = spec.field("begin_search");
        assert_eq!(begin.field("type"), &bulk("index"));
        assert_eq!(begin.field("spec").field("index"), &int(1));
        let find = spec.field("find_keys");
        assert_eq!(find.field("type"), &bulk("range"));
        let last = if command.last < 0 { -1 } else { 0 };
        for (field, value) in [("lastkey", last), ("keystep", 1), ("limit", 0)] {
            assert_eq!(find.field("spec").field(field), &int(value), "{name}");
        }
    }
}

/// An argument of COMMAND DOCS in one line.
fn describe_arg(arg: &Reply) -> String {
    let text = |field| arg.map_get(field).map_or(String::new(), Reply::as_text);
    let flags = arg
        .map_get("flags")
        .map_or(vec![], |flags| sorted(flags.items()));
    let mut line = format!("{}:{}", text("name"), text("type"));
    if let Some(inner) = arg.map_get("arguments") {
        line += &format!("({})", describe_args(inner));
    }
    if !text("token").is_empty() {
        line = format!("{} {line}", text("token"));
    }
    for flag in flags {
        line = match flag.as_str() {
            "optional" => format!("[{line}]"),
            "multiple" => format!("{line}..."),
            _ => panic!("{arg:?}"),
        };
    }
    line
}

fn describe_args(args: &Reply) -> String {
    let lines: Vec<_> = args.items().iter().map(describe_arg).collect();
    lines.join(" ")
}

#[test]
fn command_docs_describe_every_argument() {
    let server = single();
    for command in DECLARED {
        let name = command.name;
        // RESP3 gives maps, which tell fields and values apart.
        let reply = cmd!(server.conn3(), "COMMAND", "DOCS", name);
        let docs = reply.field(name);
        for (field, value) in [
            ("summary", command.summary),
            ("since", "0.1.0"),
            ("complexity", command.complexity),
            ("group", "module"),
            ("module", "sluice"),
        ] {
            assert_eq!(docs.field(field).as_text(), value, "{field} of {name}");
        }
        let args = docs.field("arguments");
        assert_eq!(describe_args(args), command.args, "{name}");
        assert_eq!(args.items()[0].field("key_spec_index"), &int(0), "{name}");
    }
}

#[test]
fn keys_are_found_in_every_call() {
    let server = single();
    let mut c = server.conn();
    for (call, keys) in [
        ("rl.gcra k 10 10 1000", &["k"][..]),
        ("rl.gcra k 10 10 1000 COST 5", &["k"]),
        ("rl.tokenbucket k 10 10 1000", &["k"]),
        ("rl.peek k GCRA 10 10 1000 COST 5", &["k"]),
        ("rl.info k", &["k"]),
        ("rl.reset k", &["k"]),
        ("rl.reset k l  m k", &["k", "l", "", "m", "k"]),
    ] {
        let mut get_keys = args!["COMMAND", "GETKEYS"];
        get_keys.extend(words(call));
        assert_eq!(c.cmd(&get_keys), array(keys.iter().map(bulk)), "{call}");
        get_keys[1] = b"GETKEYSANDFLAGS".to_vec();
        let reply = c.cmd(&get_keys);
        let command = DECLARED
            .iter()
            .find(|command| call.starts_with(command.name));
        for (found, key) in reply.items().iter().zip(keys) {
            assert_eq!(found.items()[0], bulk(key), "{call}");
            let flags = sorted(found.items()[1].items());
            assert_eq!(flags, command.expect("declared").key, "{call}");
        }
    }
    for call in ["rl.gcra k 10 10", "rl.peek k GCRA 10 10", "rl.info k k"] {
        let mut get_keys = args!["COMMAND", "GETKEYS"];
        get_keys.extend(words(call));
        let error = "ERR Invalid number of arguments specified for command";
        assert_eq!(c.cmd(&get_keys), err(error), "{call}");
    }
}

#[test]
fn these_are_all_the_limiter_commands_and_their_effect() {
    let server = single();
    let mut c = server.conn();
    let list = cmd!(c, "COMMAND", "LIST", "FILTERBY", "MODULE", "sluice");
    let list = sorted(list.items());
    let ours: Vec<_> = list.iter().filter(|name| name.starts_with("rl.")).collect();
    let mut expected: Vec<_> = DECLARED.iter().map(|command| command.name).collect();
    expected.sort();
    assert_eq!(ours, expected);
    let shown = list.iter().any(|name| name == EFFECT);
    assert_eq!(shown, !hides_internal_commands());
}

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
