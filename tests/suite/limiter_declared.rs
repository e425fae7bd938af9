//! What the server knows about the limiters' commands: COMMAND INFO, GETKEYS and DOCS.

use crate::limiter_support::*;
use crate::support::*;

/// A command as COMMAND INFO and COMMAND DOCS show it.
struct Declared {
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    keys: Keys,
    key: &'static [&'static str],
    summary: &'static str,
    complexity: &'static str,
    args: &'static str,
}

/// Which of the words are keys.
#[derive(Clone, Copy, PartialEq)]
enum Keys {
    First,
    All,
    /// As many as the first word says, behind it.
    Counted,
}

const UPDATING: &[&str] = &["denyoom", "fast", "module", "write"];
const UPDATED: &[&str] = &["RW", "access", "update"];

macro_rules! policies {
    () => {
        "policy:oneof(\
            gcra:block(GCRA algorithm:pure-token \
            burst:integer count:integer period_ms:integer) \
            tokenbucket:block(TOKENBUCKET algorithm:pure-token \
            capacity:integer refill:integer period_ms:integer) \
            leakybucket:block(LEAKYBUCKET algorithm:pure-token \
            capacity:integer leak:integer period_ms:integer) \
            fixedwindow:block(FIXEDWINDOW algorithm:pure-token \
            limit:integer window_ms:integer [ALIGN offset_ms:integer]) \
            slidingwindow:block(SLIDINGWINDOW algorithm:pure-token \
            limit:integer window_ms:integer) \
            slidinglog:block(SLIDINGLOG algorithm:pure-token \
            limit:integer window_ms:integer)) [COST cost:integer]"
    };
}

/// A limiter of the table below: all that its kind has in common is left out.
const fn limiter(
    name: &'static str,
    arity: i64,
    summary: &'static str,
    args: &'static str,
) -> Declared {
    Declared {
        name,
        arity,
        flags: UPDATING,
        keys: Keys::First,
        key: UPDATED,
        summary,
        complexity: "O(1)",
        args,
    }
}

/// Of a command that takes any policy.
const OF_ANY: &str = "O(1), or O(log N) with N calls in a SLIDINGLOG";

const DECLARED: &[Declared] = &[
    limiter(
        "rl.gcra",
        -5,
        "Admits a call or not: a smooth rate, with a burst at one instant from idle.",
        "key:key burst:integer count:integer period_ms:integer [COST cost:integer]",
    ),
    limiter(
        "rl.tokenbucket",
        -5,
        "Admits a call or not: takes tokens from a bucket that refills continuously.",
        "key:key capacity:integer refill:integer period_ms:integer [COST cost:integer]",
    ),
    limiter(
        "rl.leakybucket",
        -5,
        "Admits a call or not, and says how long to hold it: a queue that drains evenly.",
        "key:key capacity:integer leak:integer period_ms:integer [COST cost:integer]",
    ),
    limiter(
        "rl.fixedwindow",
        -4,
        "Admits a call or not: counts calls in windows that start anew.",
        "key:key limit:integer window_ms:integer [ALIGN offset_ms:integer] [COST cost:integer]",
    ),
    limiter(
        "rl.slidingwindow",
        -4,
        "Admits a call or not: counts calls in a window, the one before weighted.",
        "key:key limit:integer window_ms:integer [COST cost:integer]",
    ),
    Declared {
        complexity: "O(log N) with N calls in the window",
        ..limiter(
            "rl.slidinglog",
            -4,
            "Admits a call or not: keeps every call of the window, exactly.",
            "key:key limit:integer window_ms:integer [COST cost:integer]",
        )
    },
    Declared {
        name: "rl.all",
        arity: -6,
        flags: &["denyoom", "module", "movablekeys", "write"],
        keys: Keys::Counted,
        key: UPDATED,
        summary: "Admits a call under several limiters, or charges none of them.",
        complexity: "O(N log N) with the number of keys",
        args: concat!(
            "numkeys:integer key:key... call:block(",
            policies!(),
            ")..."
        ),
    },
    Declared {
        complexity: OF_ANY,
        ..limiter(
            "rl.charge",
            -5,
            "Charges a limiter without asking, into overdraft if need be.",
            concat!("key:key ", policies!()),
        )
    },
    Declared {
        flags: &["fast", "module", "write"],
        complexity: OF_ANY,
        ..limiter(
            "rl.refund",
            -5,
            "Gives back what a limiter was charged.",
            concat!("key:key ", policies!()),
        )
    },
    limiter(
        "rl.block",
        3,
        "Denies everything on a limiter for a time.",
        "key:key ms:integer",
    ),
    limiter(
        "cl.throttle",
        -5,
        "The command of redis-cell: GCRA, in seconds.",
        "key:key max_burst:integer count:integer period:integer [quantity:integer]",
    ),
    Declared {
        flags: &["fast", "module", "readonly"],
        key: &["RO", "access"],
        complexity: OF_ANY,
        ..limiter(
            "rl.peek",
            -5,
            "Answers what a limiter would say to a call, and spends nothing.",
            concat!("key:key ", policies!()),
        )
    },
    Declared {
        name: "rl.reset",
        arity: -2,
        flags: &["module", "write"],
        keys: Keys::All,
        key: &["RW", "delete"],
        summary: "Makes limiters as good as new.",
        complexity: "O(N) with the number of keys",
        args: "key:key...",
    },
    Declared {
        flags: &["fast", "module", "readonly"],
        key: &["RO", "access"],
        complexity: OF_ANY,
        ..limiter(
            "rl.info",
            2,
            "Shows the state of a limiter, under the policy of its last admission.",
            "key:key",
        )
    },
];

/// Redis 8 hides internal commands from clients.
pub(crate) fn hides_internal_commands() -> bool {
    flavour().kind == Kind::Redis && flavour().version >= (8, 0, 0)
}

fn sorted(texts: &[Reply]) -> Vec<String> {
    let mut texts: Vec<_> = texts.iter().map(Reply::as_text).collect();
    texts.sort();
    texts
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
        // The old form of key positions; Redis 7.0 gives what a module said itself.
        if command.keys != Keys::Counted {
            let last = if command.keys == Keys::All { -1 } else { 1 };
            assert_eq!(info[3..6], [int(1), int(last), int(1)], "{name}");
        }
        assert_eq!(info[7], array([]), "tips of {name}");
        let [spec] = info[8].items() else {
            panic!("{name}: {:?}", info[8]);
        };
        assert_eq!(sorted(spec.field("flags").items()), command.key, "{name}");
        let begin = spec.field("begin_search");
        assert_eq!(begin.field("type"), &bulk("index"));
        assert_eq!(begin.field("spec").field("index"), &int(1));
        let find = spec.field("find_keys");
        let (kind, fields) = match command.keys {
            Keys::First => ("range", [("lastkey", 0), ("keystep", 1), ("limit", 0)]),
            Keys::All => ("range", [("lastkey", -1), ("keystep", 1), ("limit", 0)]),
            Keys::Counted => {
                let fields = [("keynumidx", 0), ("firstkey", 1), ("keystep", 1)];
                ("keynum", fields)
            }
        };
        assert_eq!(find.field("type"), &bulk(kind), "{name}");
        for (field, value) in fields {
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
        let key = args
            .items()
            .iter()
            .find(|arg| arg.field("name") == &bulk("key"));
        let spec = key.expect("a key").field("key_spec_index");
        assert_eq!(spec, &int(0), "{name}");
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
        ("rl.leakybucket k 10 10 1000", &["k"]),
        ("rl.fixedwindow k 10 1000 ALIGN 5 COST 5", &["k"]),
        ("rl.slidingwindow k 10 1000", &["k"]),
        ("rl.slidinglog k 10 1000", &["k"]),
        ("rl.charge k SLIDINGLOG 10 1000", &["k"]),
        ("rl.refund k GCRA 10 10 1000 COST 5", &["k"]),
        ("rl.block k 1000", &["k"]),
        ("cl.throttle k 10 10 1", &["k"]),
        ("cl.throttle k 10 10 1 5", &["k"]),
        ("rl.all 1 k GCRA 10 10 1000", &["k"]),
        (
            "rl.all 3 k l m GCRA 1 1 1 COST 1 SLIDINGLOG 1 1 FIXEDWINDOW 1 1 ALIGN 5",
            &["k", "l", "m"],
        ),
        // What a policy needs is the command's own question, not the server's.
        ("rl.all 2 k l GCRA 10", &["k", "l"]),
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
            .find(|command| call.split(' ').next() == Some(command.name));
        for (found, key) in reply.items().iter().zip(keys) {
            assert_eq!(found.items()[0], bulk(key), "{call}");
            let flags = sorted(found.items()[1].items());
            assert_eq!(flags, command.expect("declared").key, "{call}");
        }
    }
    for call in [
        "rl.gcra k 10 10",
        "rl.fixedwindow k 10",
        "rl.peek k SLIDINGLOG 10",
        "rl.block k",
        "rl.block k 5 5",
        "cl.throttle k 10 10",
        "rl.all 1 k GCRA 10",
        "rl.info k k",
    ] {
        let mut get_keys = args!["COMMAND", "GETKEYS"];
        get_keys.extend(words(call));
        let error = "ERR Invalid number of arguments specified for command";
        assert_eq!(c.cmd(&get_keys), err(error), "{call}");
    }
    for numkeys in ["9", "0", "-1", "x", "", "01", "99999999999999999999"] {
        let mut get_keys = args!["COMMAND", "GETKEYS", "rl.all", numkeys];
        get_keys.extend(words("k l GCRA 10 10 1000"));
        assert!(c.cmd(&get_keys).is_error(), "{numkeys}");
    }
}

#[test]
fn these_are_all_the_limiter_commands_and_their_effect() {
    let server = single();
    let mut c = server.conn();
    let list = cmd!(c, "COMMAND", "LIST", "FILTERBY", "MODULE", "sluice");
    let list = sorted(list.items());
    let ours: Vec<_> = list
        .iter()
        .filter(|name| name.starts_with("rl.") || name.starts_with("cl."))
        .collect();
    let mut expected: Vec<_> = DECLARED.iter().map(|command| command.name).collect();
    expected.sort();
    assert_eq!(ours, expected);
    let shown = list.iter().any(|name| name == EFFECT);
    assert_eq!(shown, !hides_internal_commands());
}
