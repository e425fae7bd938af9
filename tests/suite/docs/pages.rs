//! The pages of the commands and their rows in the README: they state what the server says.

use std::{collections::BTreeSet, path::Path};

use super::{collect, commands, quoted, Page};
use crate::support::*;

#[test]
fn every_command_has_its_page_its_rows_and_its_line_in_the_changelog() {
    let server = single();
    let commands = commands(&mut server.conn());
    let mut pages = BTreeSet::new();
    collect(Path::new("docs/commands"), true, &mut pages);
    let expected = commands
        .iter()
        .map(|name| format!("docs/commands/{name}.md"));
    assert_eq!(pages, expected.collect());

    let readme = Page::read("README.md").table("Commands");
    let mut rows = BTreeSet::new();
    for cell in readme.column("command") {
        let syntax = quoted(cell);
        let name = syntax.split(' ').next().unwrap_or_default().to_lowercase();
        assert!(
            cell.ends_with(&format!("](docs/commands/{name}.md)")),
            "{cell}"
        );
        let page = Page::of(&name);
        assert_eq!(page.syntax(), syntax, "README and {}", page.name);
        let title = format!("# {}\n", name.to_uppercase());
        assert!(page.text.starts_with(&title), "title of {}", page.name);
        assert!(rows.insert(name), "{syntax}: two rows");
    }
    assert_eq!(rows, commands, "README");

    let changelog = Page::read("CHANGELOG.md").text;
    for name in &commands {
        let mentioned = changelog.contains(&format!("`{}`", name.to_uppercase()));
        assert!(mentioned, "CHANGELOG: {name}");
    }
}

#[test]
fn every_line_of_syntax_is_what_command_docs_say() {
    let server = single();
    for name in commands(&mut server.conn()) {
        let page = Page::of(&name);
        let docs = cmd!(server.conn3(), "COMMAND", "DOCS", &name);
        let args = docs.field(&name).field("arguments");
        let declared: Vec<_> = args
            .items()
            .iter()
            .map(|arg| declared(arg, &page))
            .collect();
        let expected = format!("{} {}", name.to_uppercase(), declared.join(" "));
        assert_eq!(options_by_word(page.syntax()), expected);
    }
}

/// An argument of COMMAND DOCS in the notation of the pages, without the value of an option.
fn declared(arg: &Reply, page: &Page) -> String {
    let text = |field| arg.map_get(field).map(Reply::as_text);
    let flags = arg.map_get("flags").map_or(&[][..], Reply::items);
    let has = |flag: &str| flags.iter().any(|seen| seen.as_text() == flag);
    let name = match (text("name"), text("type").as_deref()) {
        (_, Some("oneof")) => {
            assert_eq!(policies_of(arg, page), documented_policies());
            let refers =
                page.name.ends_with("/rl.peek.md") || page.links().contains(&"rl.peek.md#policies");
            assert!(refers, "{}: where are policies explained?", page.name);
            "<policy>".to_string()
        }
        (_, Some("block")) => {
            let parts = arg.field("arguments").items().iter();
            let parts: Vec<_> = parts.map(|part| declared(part, page)).collect();
            // One pair of angles is enough.
            format!("<{}>", parts.join(" ").replace(['<', '>'], ""))
        }
        (name, _) => name.expect("arguments have names"),
    };
    match text("token") {
        Some(word) if has("optional") => format!("[{word}]"),
        Some(word) => word,
        None if has("multiple") => format!("{name} [{name} …]"),
        None if has("optional") => format!("[{name}]"),
        None => name,
    }
}

/// The policies that COMMAND DOCS offers for one argument.
fn policies_of(choices: &Reply, page: &Page) -> Vec<String> {
    let policy = |choice: &Reply| {
        let parts = choice.field("arguments").items().iter();
        let parts: Vec<_> = parts.map(|part| declared(part, page)).collect();
        parts.join(" ")
    };
    choices
        .field("arguments")
        .items()
        .iter()
        .map(policy)
        .collect()
}

/// The grammar of policies, which stands in one place.
pub(super) fn documented_policies() -> Vec<String> {
    let table = Page::of("rl.peek").table("Policies");
    let policies = table.column("policy").into_iter().map(quoted);
    policies.map(options_by_word).collect()
}

/// `[WORD value]` shortened to `[WORD]`.
fn options_by_word(syntax: &str) -> String {
    let mut words = Vec::new();
    let mut rest = syntax.split(' ');
    while let Some(word) = rest.next() {
        let is_option = |inside: &str| inside.chars().all(|c| c.is_ascii_uppercase());
        if word.strip_prefix('[').is_some_and(is_option) {
            let value = rest.next().and_then(|value| value.split_once(']'));
            let (_, behind) = value.unwrap_or_else(|| panic!("no value: {syntax}"));
            words.push(format!("{word}]{behind}"));
        } else {
            words.push(word.to_string());
        }
    }
    words.join(" ")
}

/// What a limiter's own command takes behind the key is what stands behind its name in a policy.
#[test]
fn policies_are_what_the_commands_of_the_algorithms_take() {
    for policy in documented_policies() {
        let (algorithm, numbers) = policy.split_once(' ').expect("numbers");
        let page = Page::of(&format!("rl.{}", algorithm.to_lowercase()));
        let expected = format!("RL.{algorithm} key {numbers} [COST]");
        assert_eq!(options_by_word(page.syntax()), expected);
    }
}

/// The words, without regard to their order.
fn set_of<'a>(words: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    words.into_iter().map(str::to_lowercase).collect()
}

#[test]
fn the_facts_of_every_page_are_the_servers() {
    let server = single();
    let mut c = server.conn();
    let acl = Page::read("docs/operations.md").table("ACL");
    for name in commands(&mut c) {
        let page = Page::of(&name);
        let facts = page.table("Facts");
        let docs = cmd!(server.conn3(), "COMMAND", "DOCS", &name);
        let docs = docs.field(&name);
        assert_eq!(
            facts.value("complexity"),
            docs.field("complexity").as_text(),
            "{name}"
        );
        assert_eq!(
            facts.value("since"),
            docs.field("since").as_text(),
            "{name}"
        );

        let info = cmd!(c, "COMMAND", "INFO", &name);
        let info = info.items()[0].items();
        let set = |reply: &Reply| -> BTreeSet<String> {
            let words = reply
                .items()
                .iter()
                .map(|word| word.as_text().to_lowercase());
            words.filter(|word| word != "module").collect()
        };
        let flags = facts.value("command flags");
        assert_eq!(set_of(flags.split(' ')), set(&info[2]), "{name}");
        let errors = page.table("Errors");
        let errors = errors.column("text");
        let lists = |start: &str| errors.iter().any(|cell| cell.starts_with(start));
        for (flag, error) in [("denyoom", "`OOM "), ("write", "`READONLY ")] {
            let expected = flags.split(' ').any(|word| word == flag);
            assert_eq!(lists(error), expected, "{}: {error}", page.name);
        }
        let (_, keys) = facts
            .value("key")
            .split_once("key flags ")
            .expect("key flags");
        let spec = info[8].items()[0].field("flags");
        assert_eq!(set_of(keys.split(' ')), set(spec), "{name}");

        let categories = |cell: &str| set_of(cell.split(' ').filter(|w| w.starts_with('@')));
        let on_page = categories(facts.value("ACL categories"));
        let row = acl.rows.iter().find(|row| row[0] == name.to_uppercase());
        let row = row.unwrap_or_else(|| panic!("{name}: not in the table of ACL"));
        assert_eq!(categories(&row[2]), on_page, "{name}");
        if since_7_2() {
            assert_eq!(on_page, set(&info[6]), "{name}");
        }
    }
}

/// Those of the key and those of a holder, both in the order of the page.
#[test]
fn every_field_of_the_info_of_locks_and_semaphores_is_explained_and_no_other() {
    let server = single();
    let mut c = server.conn();
    for (acquire, command) in [
        ("LOCK.ACQUIRE lock a 60000", "LOCK.INFO lock"),
        ("SEM.ACQUIRE sem a 60000 5", "SEM.INFO sem"),
    ] {
        assert!(c.cmd(&words(acquire)).as_int() > 0);
        let info = c.cmd(&words(command));
        let names = |map: &Reply| -> Vec<String> {
            let pairs = map.items().chunks(2);
            pairs.map(|pair| pair[0].as_text()).collect()
        };
        let mut shown = names(&info);
        shown.extend(names(&info.field("holders").items()[0]));
        let name = command.split(' ').next().unwrap_or_default();
        let page = Page::of(&name.to_lowercase());
        let rows = page.section("Reply").lines();
        let rows = rows.filter(|line| line.starts_with("| `"));
        assert_eq!(rows.map(quoted).collect::<Vec<_>>(), shown, "{command}");
    }
}

/// The fields of every algorithm, each in the order of the page.
#[test]
fn every_field_of_rl_info_is_explained_and_no_other() {
    let server = single();
    let mut c = server.conn();
    let table = Page::of("rl.info").table("Reply");
    let explained = table.column("field").into_iter().map(quoted);
    let explained: Vec<_> = explained.map(String::from).collect();
    let mut seen = BTreeSet::new();
    for line in [
        "RL.GCRA k 5 5 1000",
        "RL.FIXEDWINDOW k 5 1000",
        "RL.SLIDINGWINDOW k 5 1000",
        "RL.SLIDINGLOG k 5 1000",
        "RL.BLOCK k 1000",
    ] {
        cmd!(c, "DEL", "k");
        assert!(!c.cmd(&words(line)).is_error(), "{line}");
        let info = cmd!(c, "RL.INFO", "k");
        let shown = info.items().chunks(2).map(|pair| pair[0].as_text());
        let shown: Vec<_> = shown.collect();
        let in_order: Vec<_> = explained.iter().filter(|f| shown.contains(f)).collect();
        assert_eq!(shown.iter().collect::<Vec<_>>(), in_order, "{line}");
        seen.extend(shown);
    }
    assert_eq!(seen, explained.into_iter().collect());
}
