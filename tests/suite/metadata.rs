//! What the server knows about the commands: COMMAND INFO, GETKEYS and DOCS, and what follows from
//! their flags.

use crate::support::*;

/// A command as COMMAND INFO and COMMAND DOCS show it.
struct Declared {
    /// A call; its second word is the key.
    call: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    key: &'static [&'static str],
    summary: &'static str,
    /// name, type, and the option's word if it is one
    args: &'static [(&'static str, &'static str, &'static str)],
}

const KEY: (&str, &str, &str) = ("key", "key", "");
const OWNER: (&str, &str, &str) = ("owner", "string", "");
const LEASE: (&str, &str, &str) = ("lease_ms", "integer", "");
const TOKEN: (&str, &str, &str) = ("token", "integer", "TOKEN");

const DECLARED: &[Declared] = &[
    Declared {
        call: "lock.acquire k o 1000",
        arity: -4,
        flags: &["blocking", "denyoom", "fast", "module", "write"],
        key: &["RW", "access", "update"],
        summary: "Takes a lock for a lease, if it is free, and answers its fencing token.",
        args: &[
            KEY,
            OWNER,
            LEASE,
            ("shared", "pure-token", "SHARED"),
            ("reentrant", "pure-token", "REENTRANT"),
            ("wait_ms", "integer", "BLOCK"),
            ("ms", "integer", "MAXHOLD"),
            ("session", "pure-token", "SESSION"),
            ("text", "string", "META"),
        ],
    },
    Declared {
        call: "lock.release k o",
        arity: -3,
        flags: &["fast", "module", "write"],
        key: &["RW", "delete"],
        summary: "Gives a lock back, if this owner holds it.",
        args: &[KEY, OWNER, TOKEN, ("ms", "integer", "KEEP")],
    },
    Declared {
        call: "lock.renew k o 1000",
        arity: -4,
        flags: &["fast", "module", "write"],
        key: &["RW", "access", "update"],
        summary: "Extends the lease of a lock, if this owner still holds it.",
        args: &[KEY, OWNER, LEASE, TOKEN],
    },
    Declared {
        call: "lock.info k",
        arity: 2,
        flags: &["module", "readonly"],
        key: &["RO", "access"],
        summary: "Shows who holds a lock, for how long, and under which token.",
        args: &[KEY],
    },
    Declared {
        call: "lock.forcerelease k",
        arity: -2,
        flags: &["module", "write"],
        key: &["RW", "delete"],
        summary: "Frees a lock whoever holds it, and writes that into the server's log.",
        args: &[KEY, TOKEN],
    },
    Declared {
        call: "lock.guard k 5",
        arity: -3,
        flags: &["denyoom", "fast", "module", "write"],
        key: &["RW", "access", "update"],
        summary: "Accepts a fencing token unless a higher one was seen here before.",
        args: &[KEY, ("token", "integer", ""), ("ms", "integer", "PX")],
    },
];

const EFFECTS: [&str; 3] = ["sluice.fn", "sluice.lk", "sluice.hw"];

impl Declared {
    fn name(&self) -> &'static str {
        self.call.split(' ').next().unwrap()
    }
}

fn sorted(texts: &[Reply]) -> Vec<String> {
    let mut texts: Vec<_> = texts.iter().map(Reply::as_text).collect();
    texts.sort();
    texts
}

/// Readers of one lock make it dearer.
fn complexity(name: &str) -> &'static str {
    match name {
        "lock.acquire" | "lock.release" | "lock.renew" => "O(1), or O(log N) with N readers",
        "lock.info" | "lock.forcerelease" => "O(N) with the number of readers",
        _ => "O(1)",
    }
}

/// Redis 8 hides internal commands from clients.
fn hides_internal_commands() -> bool {
    flavour().kind == Kind::Redis && flavour().version >= (8, 0, 0)
}

#[test]
fn command_info_shows_flags_arity_and_key() {
    let server = single();
    let mut c = server.conn();
    for command in DECLARED {
        let name = command.name();
        let reply = cmd!(c, "COMMAND", "INFO", name);
        let info = reply.items()[0].items();
        assert_eq!(info[0], bulk(name));
        assert_eq!(info[1], int(command.arity), "{name}");
        assert_eq!(sorted(info[2].items()), command.flags, "{name}");
        assert_eq!(info[3..6], [int(1), int(1), int(1)], "{name}");
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
        for (field, value) in [("lastkey", 0), ("keystep", 1), ("limit", 0)] {
            assert_eq!(find.field("spec").field(field), &int(value), "{name}");
        }
        assert_eq!(info[9], array([]), "subcommands of {name}");
    }
}

#[test]
fn command_docs_describe_every_argument() {
    let server = single();
    for command in DECLARED {
        let name = command.name();
        // RESP3 gives maps, which tell fields and values apart.
        let reply = cmd!(server.conn3(), "COMMAND", "DOCS", name);
        let docs = reply.field(name);
        for (field, value) in [
            ("summary", command.summary),
            ("since", "0.1.0"),
            ("complexity", complexity(name)),
            ("group", "module"),
            ("module", "sluice"),
        ] {
            assert_eq!(docs.field(field).as_text(), value, "{field} of {name}");
        }
        let args = docs.field("arguments").items();
        let seen: Vec<_> = args.iter().map(describe_arg).collect();
        let expected = command.args.iter().map(|(name, kind, word)| {
            let word = word.to_string();
            (
                name.to_string(),
                kind.to_string(),
                word.clone(),
                !word.is_empty(),
            )
        });
        assert_eq!(seen, expected.collect::<Vec<_>>(), "{name}");
        assert_eq!(args[0].field("key_spec_index"), &int(0), "{name}");
    }
}

/// Name, type, option's word, and whether it may be left out.
fn describe_arg(arg: &Reply) -> (String, String, String, bool) {
    let text = |field| arg.map_get(field).map_or(String::new(), Reply::as_text);
    let flags = arg
        .map_get("flags")
        .map_or(vec![], |flags| sorted(flags.items()));
    assert!(flags.iter().all(|flag| flag == "optional"), "{arg:?}");
    (text("name"), text("type"), text("token"), !flags.is_empty())
}

#[test]
fn the_key_is_found_in_every_call() {
    let server = single();
    let mut c = server.conn();
    let key = b"\0k\r\n\xff";
    for command in DECLARED {
        let mut get_keys = args!["COMMAND", "GETKEYS"];
        get_keys.extend(words(command.call));
        get_keys[3] = key.to_vec();
        assert_eq!(c.cmd(&get_keys), array([bulk(key)]), "{}", command.call);
        get_keys[1] = b"GETKEYSANDFLAGS".to_vec();
        let found = c.cmd(&get_keys);
        let [found] = found.items() else {
            panic!("{}: {found:?}", command.call);
        };
        assert_eq!(found.items()[0], bulk(key));
        assert_eq!(sorted(found.items()[1].items()), command.key);
    }
}

#[test]
fn a_call_of_the_wrong_length_has_no_keys() {
    let server = single();
    for call in [
        "lock.acquire k o",
        "lock.renew k o",
        "lock.info k k",
        "lock.guard k",
        "lock.release k",
    ] {
        let mut get_keys = args!["COMMAND", "GETKEYS"];
        get_keys.extend(words(call));
        let error = "ERR Invalid number of arguments specified for command";
        assert_eq!(server.conn().cmd(&get_keys), err(error), "{call}");
    }
}

#[test]
fn options_are_never_taken_for_keys() {
    let server = single();
    for call in [
        "lock.acquire k o 1000 META text",
        "lock.release k o TOKEN 5 KEEP 6",
        "lock.renew k o 1000 TOKEN 5",
        "lock.forcerelease k TOKEN 5",
        "lock.guard k 5 PX 6",
    ] {
        let mut get_keys = args!["COMMAND", "GETKEYS"];
        get_keys.extend(words(call));
        assert_eq!(server.conn().cmd(&get_keys), array([bulk("k")]), "{call}");
    }
}

#[test]
fn these_are_all_the_lock_commands_and_their_effects() {
    let server = single();
    let mut c = server.conn();
    let list = cmd!(c, "COMMAND", "LIST", "FILTERBY", "MODULE", "sluice");
    let list = sorted(list.items());
    let of = |prefix: &str| -> Vec<&str> {
        let names = list.iter().map(String::as_str);
        names.filter(|name| name.starts_with(prefix)).collect()
    };
    let mut expected: Vec<&str> = DECLARED.iter().map(Declared::name).collect();
    // Declared in `kinds_multi.rs` and `kinds_shared.rs`.
    expected.extend([
        "lock.downgrade",
        "lock.macquire",
        "lock.mrenew",
        "lock.mrelease",
    ]);
    expected.sort();
    assert_eq!(of("lock."), expected);
    for effect in EFFECTS {
        let shown = of("sluice.").contains(&effect);
        assert_eq!(shown, !hides_internal_commands(), "{effect}");
    }
    let modules = cmd!(c, "MODULE", "LIST");
    let mut modules = modules.items().iter();
    let ours = modules.find(|module| module.field("name") == &bulk("sluice"));
    assert_eq!(ours.expect("not loaded").field("ver"), &int(100));
}

#[test]
fn internal_commands_are_hidden_or_say_what_they_are() {
    let server = single();
    let mut c = server.conn();
    for name in EFFECTS {
        let keyed = name != "sluice.hw";
        let reply = cmd!(c, "COMMAND", "INFO", name);
        let get_keys = match keyed {
            true => cmd!(c, "COMMAND", "GETKEYSANDFLAGS", name, "k", "effect"),
            false => cmd!(c, "COMMAND", "GETKEYSANDFLAGS", name, "effect"),
        };
        let docs = cmd!(server.conn3(), "COMMAND", "DOCS", name);
        if hides_internal_commands() {
            assert_eq!(reply, array([nil()]), "{name}");
            assert_eq!(docs, Reply::Map(vec![]), "{name}");
            assert_eq!(get_keys, err("ERR Invalid command specified"), "{name}");
            continue;
        }
        let info = reply.items()[0].items();
        assert_eq!(info[1], int(if keyed { 3 } else { 2 }), "{name}");
        // Neither for a loading server nor for a full one: an effect is a fact.
        assert_eq!(
            sorted(info[2].items()),
            ["fast", "module", "write"],
            "{name}"
        );
        if since_7_2() {
            let categories = ["@dangerous", "@fast", "@write"];
            assert_eq!(sorted(info[6].items()), categories, "{name}");
        }
        let summary = docs.field(name).field("summary");
        assert_eq!(summary, &bulk("Internal: state propagated by the primary."));
        if keyed {
            let found = get_keys.items()[0].items();
            assert_eq!(found[0], bulk("k"), "{name}");
            assert_eq!(sorted(found[1].items()), ["OW", "update"], "{name}");
        } else {
            assert_eq!(get_keys, err("ERR The command has no key arguments"));
        }
    }
}

const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

#[test]
fn over_maxmemory_only_what_takes_memory_is_refused() {
    let server = recorder();
    let mut c = server.conn();
    for key in ["renewed", "released", "kept", "forced", "shown"] {
        cmd!(c, "LOCK.ACQUIRE", key, "o", 1000);
    }
    cmd!(c, "LOCK.GUARD", "guard", 5);
    assert_eq!(cmd!(c, "CONFIG", "SET", "maxmemory", 1), ok());
    // Refused whatever the answer would have been: the server does not ask us.
    refuses(
        &server,
        OOM,
        &[
            "LOCK.ACQUIRE free o 1000",
            "LOCK.ACQUIRE shown o 1000",
            "LOCK.ACQUIRE shown other 1000",
            "LOCK.GUARD guard 6",
            "LOCK.GUARD new 6",
        ],
    );
    assert_eq!(cmd!(c, "LOCK.RENEW", "renewed", "o", 2000), int(2000));
    assert_eq!(cmd!(c, "PTTL", "renewed"), int(2000));
    assert_eq!(cmd!(c, "LOCK.RELEASE", "released", "o"), int(1));
    assert_eq!(cmd!(c, "LOCK.RELEASE", "kept", "o", "KEEP", 500), int(1));
    assert_eq!(cmd!(c, "PTTL", "kept"), int(500));
    assert_eq!(cmd!(c, "LOCK.FORCERELEASE", "forced"), int(1));
    assert_eq!(cmd!(c, "LOCK.FORCERELEASE", "kept"), int(1));
    assert!(!cmd!(c, "LOCK.INFO", "shown").is_nil());
    assert_eq!(cmd!(c, "CONFIG", "SET", "maxmemory", 0), ok());
    assert!(cmd!(c, "LOCK.ACQUIRE", "free", "o", 1000).as_int() > 0);
}

#[test]
fn over_maxmemory_scripts_and_functions_may_still_free() {
    // MULTI is no question: the server queues nothing at all then.
    let server = single();
    let mut c = server.conn();
    for key in ["a", "b", "c", "d"] {
        cmd!(c, "LOCK.ACQUIRE", key, "o", 1000);
    }
    let library = "#!lua name=sluice_tests
        redis.register_function{
            function_name = 'release', flags = {'allow-oom'},
            callback = function(KEYS, ARGV) return redis.call('LOCK.RELEASE', KEYS[1], ARGV[1]) end
        }";
    cmd!(c, "FUNCTION", "LOAD", library);
    cmd!(c, "CONFIG", "SET", "maxmemory", 1);
    let release = "return redis.call('LOCK.RELEASE', KEYS[1], ARGV[1])";
    assert_eq!(c.eval(release, &["b"], &args!["o"]), int(1));
    assert_eq!(cmd!(c, "FCALL", "release", 1, "c", "o"), int(1));
    let renew = "return redis.call('LOCK.RENEW', KEYS[1], ARGV[1], 2000)";
    assert_eq!(c.eval(renew, &["d"], &args!["o"]), int(2000));

    let acquire = "return redis.pcall('LOCK.ACQUIRE', KEYS[1], ARGV[1], 1000)";
    assert_eq!(c.eval(acquire, &["a"], &args!["o"]), err(OOM));
    let guard = "return redis.pcall('LOCK.GUARD', KEYS[1], 5)";
    assert_eq!(c.eval(guard, &["g"], &[]), err(OOM));
    assert_eq!(
        cmd!(c, "EXISTS", "a", "b", "c", "g"),
        int(1),
        "only a is left"
    );
}

#[test]
fn a_replica_takes_no_writes_from_clients() {
    let chain = chain();
    let mut c = chain.primary.conn();
    cmd!(c, "LOCK.ACQUIRE", "k", "o", 60_000);
    cmd!(c, "LOCK.GUARD", "g", 5);
    chain.sync();
    let error = "READONLY You can't write against a read only replica.";
    for server in [&chain.replica, &chain.sub] {
        let mut c = server.conn();
        let held = cmd!(c, "LOCK.INFO", "k");
        for call in [
            "LOCK.ACQUIRE free o 1000",
            "LOCK.ACQUIRE k o 1000",
            "LOCK.ACQUIRE k other 1000",
            "LOCK.RELEASE k o",
            "LOCK.RENEW k o 1000",
            "LOCK.FORCERELEASE k",
            "LOCK.GUARD g 6",
        ] {
            assert_eq!(c.cmd(&words(call)), err(error), "{call}");
            let script = "return redis.pcall(unpack(ARGV))";
            assert_eq!(c.eval(script, &[], &words(call)), err(error), "{call}");
            let queued = c.multi(&[words(call)]);
            assert!(queued.as_text().starts_with("EXECABORT"), "{call}");
        }
        assert_eq!(cmd!(c, "LOCK.INFO", "k"), held);
        assert_eq!(held.field("mode"), &bulk("exclusive"));
    }
    chain.assert_equal();
}
