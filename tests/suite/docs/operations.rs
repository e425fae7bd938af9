//! What operators read and type: ACL users, INFO, events, lines of the log, and settings.

use std::collections::{BTreeMap, BTreeSet};

use sluice_testbed::module_path;

use super::{commands, quoted, Page};
use crate::support::*;
use crate::waiting_support::Waiter;

#[test]
fn the_acl_users_of_the_guide_can_be_made() {
    let server = single();
    let mut c = server.conn();
    let guide = Page::read("docs/operations.md");
    let lines = guide
        .section("ACL")
        .lines()
        .filter_map(|l| l.strip_prefix("    "));
    let mut granted = BTreeSet::new();
    for line in lines.filter(|line| line.starts_with("ACL SETUSER")) {
        assert_eq!(c.cmd(&words(line)), ok(), "{line}");
        granted.extend(
            line.split(' ')
                .filter_map(|word| word.strip_prefix('+'))
                .map(String::from),
        );
    }
    assert_eq!(granted, commands(&mut c));
}

#[test]
fn every_field_of_info_is_explained_and_no_other() {
    let server = single();
    let info = cmd!(server.conn(), "INFO", "sluice").as_text();
    let shown: Vec<_> = info
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(field, _)| field)
        .collect();
    let explained = Page::read("docs/operations.md").table("INFO sluice");
    let explained: Vec<_> = explained.column("field").into_iter().map(quoted).collect();
    assert_eq!(explained, shown);
    for page in Page::all() {
        for mention in page
            .text
            .split('`')
            .filter(|span| span.starts_with("sluice_"))
        {
            assert!(shown.contains(&mention), "{}: {mention}", page.name);
        }
    }
}

/// A grant, a hand-over, a force, and an end of a lease; then the same of permits.
#[test]
fn the_keyspace_events_of_the_guide_are_sent() {
    let server = single();
    let guide = Page::read("docs/operations.md");
    let table = guide.table("Keyspace events");
    let named: BTreeSet<_> = table.column("event").into_iter().map(quoted).collect();
    let section = guide.section("Keyspace events");
    let mut lines = section.lines().filter_map(|l| l.strip_prefix("    "));
    let enable = lines.next().expect("a line that enables them");
    let mut c = server.conn();
    assert_eq!(c.cmd(&words(enable)), ok());
    let mut subscriber = server.conn();
    subscriber.send(&args!["PSUBSCRIBE", "__keyevent@0__:*"]);
    subscriber.recv();

    let mut sent = Vec::new();
    let mut events = |expected: &[&str]| {
        let next = |_: &&str| match subscriber.recv() {
            Reply::Array(message) => message[2].as_text().replace("__keyevent@0__:", ""),
            other => panic!("no message: {other:?}"),
        };
        let came: Vec<_> = expected.iter().map(next).collect();
        assert_eq!(came, expected);
        sent.extend(came);
    };
    cmd!(c, "LOCK.ACQUIRE", "k", "a", 60_000);
    events(&["lock.granted"]);
    let _b = Waiter::send(&server, "LOCK.ACQUIRE k b 60000 BLOCK 60000");
    let _c = Waiter::send(&server, "LOCK.ACQUIRE k c 1 BLOCK 60000");
    cmd!(c, "LOCK.RELEASE", "k", "a");
    events(&["lock.released", "lock.granted"]);
    cmd!(c, "LOCK.FORCERELEASE", "k");
    events(&["lock.forced", "lock.granted"]);
    server.clock().advance_ms(2);
    events(&["expired"]);
    cmd!(c, "SEM.ACQUIRE", "s", "a", 60_000, 2, "PERMITS", 2);
    events(&["sem.granted"]);
    let _d = Waiter::send(&server, "SEM.ACQUIRE s d 1 2 BLOCK 60000");
    let _e = Waiter::send(&server, "SEM.ACQUIRE s e 1 2 BLOCK 60000");
    cmd!(c, "SEM.RELEASE", "s", "a");
    events(&["sem.released", "sem.granted", "sem.granted"]);
    server.clock().advance_ms(2);
    events(&["expired"]);
    assert_eq!(
        sent.iter().map(String::as_str).collect::<BTreeSet<_>>(),
        named
    );
}

/// The lines that operators' commands leave, as far as the words are ours.
#[test]
fn the_log_lines_of_the_guide_are_written() {
    let server = single();
    server.clear_log();
    let mut c = server.conn();
    cmd!(c, "LOCK.ACQUIRE", "job:nightly", "6f1c2a9e", 60_000);
    cmd!(c, "LOCK.FORCERELEASE", "job:nightly");
    let tokens = ["6f1c2a9e", "90ac33d8", "e5b07716"]
        .map(|reader| cmd!(c, "LOCK.ACQUIRE", "job:nightly", reader, 60_000, "SHARED").as_int());
    cmd!(c, "LOCK.FORCERELEASE", "job:nightly");
    for key in ["api:user:42", "api:user:43"] {
        cmd!(c, "RL.GCRA", key, 1, 1, 60_000);
    }
    cmd!(c, "RL.RESET", "api:user:42", "api:user:43");
    cmd!(c, "RL.BLOCK", "api:user:42", 600_000);
    let log = server.log();
    let of_the_first = format!(" and 2 more token={} ", tokens[0]);
    assert!(log.contains(&of_the_first), "{of_the_first}: {log}");
    for (command, page) in [
        ("LOCK.FORCERELEASE ", "docs/commands/lock.forcerelease.md"),
        ("RL.RESET ", "docs/commands/rl.reset.md"),
        ("RL.BLOCK ", "docs/commands/rl.block.md"),
    ] {
        // The token depends on what the server issued before.
        let shape = |line: &str| {
            let line = &line[line.find(command).expect("in the line")..];
            let line = line.split(" by client id=").next().unwrap_or_default();
            line.split(" token=").next().unwrap_or_default().to_string()
        };
        let written = log.lines().filter(|line| line.contains(command));
        let written: Vec<_> = written.map(shape).collect();
        assert!(!written.is_empty(), "no line of {command}: {log}");
        let page = Page::read(page);
        let lines = page.section("The log line").lines();
        let shown = lines.filter_map(|line| line.strip_prefix("    "));
        assert_eq!(shown.map(shape).collect::<Vec<_>>(), written);
        let guide = Page::read("docs/operations.md").table("The log");
        let rows = guide.column("line");
        for line in written {
            assert!(rows.iter().any(|cell| cell.contains(&line)), "{line}");
        }
    }
}

#[test]
fn every_setting_is_documented_with_its_default_and_range() {
    let server = single();
    let mut c = server.conn();
    let shown = cmd!(c, "CONFIG", "GET", "sluice.*");
    let defaults: BTreeMap<String, String> = shown
        .items()
        .chunks(2)
        .map(|pair| (pair[0].as_text(), pair[1].as_text()))
        .collect();
    let example = Page::read("redis.conf.example").text;
    let lines = example.lines().filter(|line| line.starts_with("sluice."));
    let lines = lines.map(|line| line.split_once(' ').expect("a value"));
    let in_example: BTreeMap<_, _> = lines.map(|(n, v)| (n.to_string(), v.to_string())).collect();
    assert_eq!(in_example, defaults);

    let first_word = |cell: &str| cell.split(' ').next().unwrap_or_default().to_string();
    for (page, heading) in [
        ("README.md", "Configuration"),
        ("docs/operations.md", "Settings"),
    ] {
        let table = Page::read(page).table(heading);
        let names = table
            .column("setting")
            .into_iter()
            .map(|cell| quoted(cell).to_string());
        let values = table.column("default").into_iter().map(first_word);
        assert_eq!(
            names.zip(values).collect::<BTreeMap<_, _>>(),
            defaults,
            "{page}"
        );
        for (name, range) in table
            .column("setting")
            .into_iter()
            .zip(table.column("range"))
        {
            let name = quoted(name);
            let range = first_word(range);
            let (least, most) = range.split_once("..=").expect("a range");
            let bound = |text: &str| text.parse::<i64>().expect("a number");
            let mut set = |value: i64| cmd!(c, "CONFIG", "SET", name, value);
            assert_eq!(set(bound(least)), ok(), "{page}: {name}");
            assert_eq!(set(bound(most)), ok(), "{page}: {name}");
            assert!(set(bound(least) - 1).is_error(), "{page}: {name}");
            assert!(set(bound(most) + 1).is_error(), "{page}: {name}");
        }
    }
    let list = cmd!(c, "COMMAND", "LIST", "FILTERBY", "MODULE", "sluice");
    let names = list.items().iter().map(Reply::as_text);
    let effects: BTreeSet<_> = names.filter(|name| name.starts_with("sluice.")).collect();
    if effects.is_empty() {
        return; // Redis 8 hides them, so that a mention cannot be checked.
    }
    for page in Page::all() {
        let spans = page.text.split('`');
        let spans = spans.filter(|span| span.starts_with("sluice."));
        for mention in spans.filter_map(|span| span.split([' ', ':']).next()) {
            let known = defaults.contains_key(mention) || effects.contains(mention);
            assert!(known || mention == "sluice.so", "{}: {mention}", page.name);
        }
    }
}

#[test]
fn the_example_of_a_configuration_loads() {
    let example = Page::read("redis.conf.example").text;
    let lines = example
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let lines: Vec<_> = lines
        .map(|line| line.split_once(' ').expect("a value"))
        .collect();
    let mut options = Options::new().without_module();
    for (name, value) in &lines {
        options = if *name == "loadmodule" {
            assert_eq!(*value, "/usr/local/lib/redis/modules/sluice.so");
            let module = module_path().expect("tests have a module");
            options.config(name, module.display())
        } else {
            options.config(name, value)
        };
    }
    let server = options.start();
    let mut c = server.conn();
    assert!(lines.iter().any(|(name, _)| *name == "loadmodule"));
    for (name, value) in lines.iter().filter(|(name, _)| *name != "loadmodule") {
        let seen = cmd!(c, "CONFIG", "GET", name);
        assert_eq!(seen.field(name), &bulk(value), "{name}");
    }
    assert!(cmd!(c, "LOCK.ACQUIRE", "k", "o", 1000).as_int() > 0);
}
