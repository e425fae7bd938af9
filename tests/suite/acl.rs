//! What ACL rules can say about the commands and their keys.

use crate::support::*;

/// Each command, and the permissions for the key that it needs.
const COMMANDS: &[(&str, &str)] = &[
    ("LOCK.ACQUIRE k o 1000", "read and write"),
    ("LOCK.RELEASE k o", "write"),
    ("LOCK.RENEW k o 1000", "read and write"),
    ("LOCK.INFO k", "read"),
    ("LOCK.FORCERELEASE k", "write"),
    ("LOCK.GUARD kg 5", "read and write"),
];

/// A connection of a user `u` with these rules and no others.
pub(crate) fn user(server: &Server, rules: &[&str]) -> Conn {
    let mut set_user = args!["ACL", "SETUSER", "u", "reset", "on", "nopass"];
    set_user.extend(rules.iter().map(|rule| rule.as_bytes().to_vec()));
    assert_eq!(server.conn().cmd(&set_user), ok(), "{rules:?}");
    let mut conn = server.conn();
    assert_eq!(cmd!(conn, "AUTH", "u", "any"), ok());
    conn
}

fn name(command: &str) -> String {
    command.split(' ').next().unwrap().to_lowercase()
}

pub(crate) fn no_command(command: &str) -> Reply {
    let name = name(command);
    err(&match since_7_2() {
        true => format!("NOPERM User u has no permissions to run the '{name}' command"),
        false => format!("NOPERM this user has no permissions to run the '{name}' command"),
    })
}

pub(crate) fn no_key() -> Reply {
    err(match since_7_2() {
        true => "NOPERM No permissions to access a key",
        false => "NOPERM this user has no permissions to access one of the keys used as arguments",
    })
}

/// The same two inside a script.
fn no_command_in_script(command: &str) -> Reply {
    let name = name(command);
    err(&match since_7_2() {
        true => format!(
            "ERR ACL failure in script: User u has no permissions to run the '{name}' command"
        ),
        false => "ERR The user executing the script can't run this command or subcommand".into(),
    })
}

fn no_key_in_script() -> Reply {
    err(match since_7_2() {
        true => "ERR ACL failure in script: No permissions to access a key",
        false => {
            "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments"
        }
    })
}

/// Which of the commands this user may run, by name. Checks the texts of the refusals, plainly, in
/// MULTI and in a script, and that those change nothing.
fn allowed(
    server: &Server,
    conn: &mut Conn,
    refusal: fn(&str) -> Reply,
    in_script: fn(&str) -> Reply,
) -> Vec<String> {
    let mut allowed = Vec::new();
    for (command, _) in COMMANDS {
        let reply = conn.cmd(&words(command));
        if !reply.as_error().starts_with("NOPERM") {
            assert!(!reply.is_error(), "{command}: {reply:?}");
            allowed.push(name(command));
            continue;
        }
        changes_nothing(server, || {
            assert_eq!(reply, refusal(command), "{command}");
            cmd!(conn, "MULTI");
            assert_eq!(conn.cmd(&words(command)), refusal(command), "{command}");
            cmd!(conn, "DISCARD");
            let script = "return redis.pcall(unpack(ARGV))";
            let scripted = conn.eval(script, &[], &words(command));
            assert_eq!(scripted, in_script(command), "{command}");
        });
    }
    allowed
}

/// The line of an error, nothing of another reply.
trait AsError {
    fn as_error(&self) -> &str;
}

impl AsError for Reply {
    fn as_error(&self) -> &str {
        match self {
            Reply::Error(line) => line,
            _ => "",
        }
    }
}

#[test]
fn key_permissions_are_asked_for_as_needed() {
    let server = recorder();
    let with = |rule: &str| {
        let mut conn = user(&server, &["+@all", rule]);
        allowed(&server, &mut conn, |_| no_key(), |_| no_key_in_script())
    };
    let needing = |needs: &[&str]| -> Vec<String> {
        let commands = COMMANDS.iter().filter(|(_, need)| needs.contains(need));
        commands.map(|(command, _)| name(command)).collect()
    };
    cmd!(server.conn(), "LOCK.ACQUIRE", "other", "o", 60_000);
    assert_eq!(with("%R~k*"), needing(&["read"]));
    cmd!(server.conn(), "LOCK.ACQUIRE", "k", "o", 1000);
    assert_eq!(with("%W~k*"), needing(&["write"]));
    assert_eq!(
        cmd!(server.conn(), "EXISTS", "k"),
        int(0),
        "it was released"
    );
    assert!(with("~other").is_empty());
    assert!(with("~K").is_empty());
    assert!(with("resetchannels").is_empty());
}

#[test]
fn both_permissions_together_allow_everything() {
    let server = single();
    for rules in [
        &["~k*"][..],
        &["%RW~k*"],
        &["%R~k*", "%W~k*"],
        &["~*"],
        &["allkeys"],
    ] {
        for (command, _) in COMMANDS {
            let mut conn = user(&server, &[&["+@all"], rules].concat());
            cmd!(server.conn(), "DEL", "k");
            let reply = conn.cmd(&words(command));
            assert!(!reply.is_error(), "{rules:?}, {command}: {reply:?}");
        }
    }
}

#[test]
fn lists_of_commands_work_on_every_server() {
    let server = recorder();
    let application = [
        "+lock.acquire",
        "+lock.release",
        "+lock.renew",
        "+lock.info",
        "+multi",
        "+discard",
        "+eval",
    ];
    let rules = [&["~*"][..], &application].concat();
    let mut conn = user(&server, &rules);
    assert_eq!(
        allowed(&server, &mut conn, no_command, no_command_in_script),
        ["lock.acquire", "lock.release", "lock.renew", "lock.info"]
    );
    cmd!(server.conn(), "FLUSHALL");

    let operator = [
        "+lock.info",
        "+lock.forcerelease",
        "+multi",
        "+discard",
        "+eval",
    ];
    let mut conn = user(&server, &[&["~*"][..], &operator].concat());
    assert_eq!(
        allowed(&server, &mut conn, no_command, no_command_in_script),
        ["lock.info", "lock.forcerelease"]
    );
    cmd!(server.conn(), "FLUSHALL");

    let mut conn = user(
        &server,
        &["~*", "+@all", "-lock.forcerelease", "-LOCK.GUARD"],
    );
    assert_eq!(
        allowed(&server, &mut conn, no_command, no_command_in_script),
        ["lock.acquire", "lock.release", "lock.renew", "lock.info"]
    );
}

#[test]
fn a_selector_opens_one_command_for_other_keys() {
    let server = single();
    let mut c = server.conn();
    for key in ["app:k", "k"] {
        cmd!(c, "LOCK.ACQUIRE", key, "o", 1000);
    }
    let mut conn = user(&server, &["+@all", "~app:*", "(+lock.info %R~*)"]);
    assert_eq!(cmd!(conn, "LOCK.RENEW", "app:k", "o", 1000), int(1000));
    assert!(!cmd!(conn, "LOCK.INFO", "k").is_nil());
    assert_eq!(cmd!(conn, "LOCK.RENEW", "k", "o", 1000), no_key());
}

#[test]
fn categories_say_what_a_command_does() {
    let server = single();
    let mut c = server.conn();
    let categories = |c: &mut Conn, name: &str| -> Vec<String> {
        let info = cmd!(c, "COMMAND", "INFO", name);
        let categories = info.items()[0].items()[6].items();
        let mut categories: Vec<_> = categories.iter().map(Reply::as_text).collect();
        categories.sort();
        categories
    };
    for (command, _) in COMMANDS {
        let expected: &[&str] = match *command {
            _ if !since_7_2() => &[],
            "LOCK.INFO k" => &["@read", "@slow"],
            "LOCK.FORCERELEASE k" => &["@dangerous", "@slow", "@write"],
            "LOCK.ACQUIRE k o 1000" => &["@blocking", "@fast", "@write"],
            _ => &["@fast", "@write"],
        };
        assert_eq!(categories(&mut c, &name(command)), expected, "{command}");
    }
    // Redis 7.2 and Valkey 8 leave the commands of modules out here.
    if flavour().kind == Kind::Redis && flavour().version >= (8, 0, 0) {
        let dangerous = cmd!(c, "ACL", "CAT", "dangerous");
        assert!(dangerous.items().contains(&bulk("lock.forcerelease")));
        assert!(!dangerous.items().contains(&bulk("lock.acquire")));
    }
}

#[test]
fn rules_by_category_work_where_module_commands_have_any() {
    let server = recorder();
    let application = ["lock.acquire", "lock.release", "lock.renew", "lock.guard"];
    let cases: [(&[&str], &[&str]); 4] = [
        (&["+@write", "-@dangerous"], &application),
        (&["+@read"], &["lock.info"]),
        (&["+@dangerous"], &["lock.forcerelease"]),
        (
            &["+@all", "-@write", "+@write", "-@dangerous"],
            &[
                "lock.acquire",
                "lock.release",
                "lock.renew",
                "lock.info",
                "lock.guard",
            ],
        ),
    ];
    for (rules, expected) in cases {
        cmd!(server.conn(), "FLUSHALL");
        // Whatever the check itself needs; these name no command of ours.
        let needed = ["~*", "+eval", "+multi", "+discard", "+auth"];
        let mut conn = user(&server, &[&needed[..], rules].concat());
        let mut expected: Vec<&str> = expected.to_vec();
        if !since_7_2() {
            // No categories at all: only +@all reaches them, and nothing takes them away again.
            expected = match rules[0] {
                "+@all" => COMMANDS_BY_NAME.to_vec(),
                _ => vec![],
            };
        }
        let found = allowed(&server, &mut conn, no_command, no_command_in_script);
        assert_eq!(found, expected, "{rules:?}");
    }
}

const COMMANDS_BY_NAME: [&str; 6] = [
    "lock.acquire",
    "lock.release",
    "lock.renew",
    "lock.info",
    "lock.forcerelease",
    "lock.guard",
];

#[test]
fn a_refusal_stands_in_the_acl_log() {
    let server = single();
    let mut conn = user(&server, &["+@all", "-lock.acquire", "%R~k*"]);
    cmd!(conn, "LOCK.ACQUIRE", "k", "o", 1000);
    cmd!(conn, "LOCK.RENEW", "k", "o", 1000);
    let log = cmd!(server.conn(), "ACL", "LOG");
    let [key, command] = log.items() else {
        panic!("{log:?}");
    };
    assert_eq!(command.field("reason"), &bulk("command"));
    assert_eq!(command.field("object"), &bulk("lock.acquire"));
    assert_eq!(key.field("reason"), &bulk("key"));
    assert_eq!(key.field("object"), &bulk("k"));
    assert_eq!(key.field("username"), &bulk("u"));
}
