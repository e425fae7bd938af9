//! The documentation, held against the server: every example is replayed, every table compared.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use sluice_testbed::{module_path, Clock};

use crate::support::*;
use crate::waiting_support::{is_blocked, Waiter};

/// Where every example starts: 2026-11-30 12:00:00 UTC, in µs.
const NOON_US: i64 = 1_796_040_000_000_000;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A file of the repository.
struct Page {
    /// From the root, as in "docs/fencing.md".
    name: String,
    text: String,
}

impl Page {
    #[track_caller]
    fn read(name: &str) -> Page {
        let text = fs::read_to_string(root().join(name));
        Page {
            name: name.to_string(),
            text: text.unwrap_or_else(|error| panic!("{name}: {error}")),
        }
    }

    /// Every Markdown page of the repository.
    fn all() -> Vec<Page> {
        let mut names = BTreeSet::new();
        collect(Path::new(""), false, &mut names);
        collect(Path::new("docs"), true, &mut names);
        names.iter().map(|name| Page::read(name)).collect()
    }

    /// The page of a command, named as the server does.
    fn of(command: &str) -> Page {
        Page::read(&format!("docs/commands/{command}.md"))
    }

    /// The first indented line: how the command is typed.
    #[track_caller]
    fn syntax(&self) -> &str {
        let mut lines = self.text.lines();
        let line = lines.find_map(|line| line.strip_prefix("    "));
        line.unwrap_or_else(|| panic!("{}: no line of syntax", self.name))
    }

    /// What stands under a heading, to the next one of its level.
    #[track_caller]
    fn section(&self, heading: &str) -> &str {
        let start = format!("\n## {heading}\n");
        let Some((_, rest)) = self.text.split_once(&start) else {
            panic!("{}: no section {heading:?}", self.name);
        };
        rest.split("\n## ").next().unwrap_or_default()
    }

    /// The one table under a heading.
    #[track_caller]
    fn table(&self, heading: &str) -> Table {
        let cells = |line: &str| -> Option<Vec<String>> {
            let inside = line.strip_prefix('|')?.strip_suffix('|')?;
            Some(inside.split('|').map(|c| c.trim().to_string()).collect())
        };
        let mut rows: Vec<_> = self.section(heading).lines().filter_map(cells).collect();
        assert!(rows.len() > 2, "{}: no table in {heading:?}", self.name);
        let header = rows.remove(0);
        rows.remove(0); // the line of dashes
        Table { header, rows }
    }

    fn examples(&self) -> Vec<Example> {
        let mut examples = Vec::new();
        let mut open: Option<(String, Example)> = None;
        for (i, line) in self.text.lines().enumerate() {
            match (line.strip_prefix("```"), open.take()) {
                (Some(kind), None) => {
                    let example = Example {
                        at: format!("{}:{}", self.name, i + 1),
                        lines: Vec::new(),
                    };
                    open = Some((kind.to_string(), example));
                }
                (Some(_), Some((kind, example))) if kind == "redis-cli" => examples.push(example),
                (Some(_), Some(_)) => {}
                (None, Some((kind, mut example))) => {
                    example.lines.push(line.to_string());
                    open = Some((kind, example));
                }
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a block that never ends", self.name);
        examples
    }

    /// Where the links of this page point to, as written.
    fn links(&self) -> Vec<&str> {
        let behind = self.text.split("](").skip(1);
        behind.filter_map(|rest| rest.split(')').next()).collect()
    }

    /// The fragment that each heading can be linked by, as GitHub makes it.
    fn anchors(&self) -> Vec<String> {
        let headings = self.text.lines().filter(|line| line.starts_with('#'));
        let anchor = |heading: &str| {
            let text = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
            text.chars()
                .filter(kept)
                .collect::<String>()
                .replace(' ', "-")
        };
        headings.map(anchor).collect()
    }
}

fn collect(dir: &Path, deep: bool, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(root().join(dir)).expect("the repository is readable") {
        let path = dir.join(entry.expect("readable").file_name());
        if path.extension().is_some_and(|ending| ending == "md") {
            names.insert(path.to_string_lossy().into_owned());
        } else if deep && root().join(&path).is_dir() {
            collect(&path, deep, names);
        }
    }
}

struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    #[track_caller]
    fn column(&self, title: &str) -> Vec<&str> {
        let at = self.header.iter().position(|cell| cell == title);
        let at = at.unwrap_or_else(|| panic!("no column {title:?} in {:?}", self.header));
        self.rows.iter().map(|row| row[at].as_str()).collect()
    }

    /// The cell behind the one in the first column.
    #[track_caller]
    fn value(&self, name: &str) -> &str {
        let row = self.rows.iter().find(|row| row[0] == name);
        &row.unwrap_or_else(|| panic!("no row {name:?}"))[1]
    }
}

/// What stands first between backquotes.
#[track_caller]
fn quoted(cell: &str) -> &str {
    cell.split('`')
        .nth(1)
        .unwrap_or_else(|| panic!("nothing quoted in {cell:?}"))
}

// --- examples ---

/// A block of input and output, as redis-cli shows them on a terminal. In an example with
/// several terminals the number of the terminal stands before its prompt: `2> ` is input,
/// `-- waits --` below it says that no answer comes yet, `2< ` is the answer when it comes,
/// and `-- 2 disconnects --` closes its connection.
struct Example {
    /// Page and line.
    at: String,
    lines: Vec<String>,
}

enum Step {
    /// Input on a terminal, and the lines that follow.
    Ask(char, String, Vec<String>),
    /// The answer to an input that waited.
    Late(char, String),
    LaterMs(i64),
    Disconnect(char),
}

/// The terminal of an example that has only one.
const ONLY: char = ' ';
const WAITS: &str = "-- waits --";

impl Example {
    #[track_caller]
    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for line in &self.lines {
            if let Some(input) = line.strip_prefix("> ") {
                steps.push(Step::Ask(ONLY, input.to_string(), Vec::new()));
            } else if let Some((terminal, input)) = on_numbered(line, "> ") {
                steps.push(Step::Ask(terminal, input.to_string(), Vec::new()));
            } else if let Some((terminal, answer)) = on_numbered(line, "< ") {
                steps.push(Step::Late(terminal, answer.to_string()));
            } else if let Some(ms) = later_ms(line) {
                steps.push(Step::LaterMs(ms));
            } else if let Some(terminal) = disconnects(line) {
                steps.push(Step::Disconnect(terminal));
            } else if let Some(Step::Ask(_, _, output)) = steps.last_mut() {
                output.push(line.to_string());
            } else {
                panic!("{}: output without input: {line:?}", self.at);
            }
        }
        let asks = steps.iter().any(|step| matches!(step, Step::Ask(..)));
        assert!(asks, "{}: an example without any input", self.at);
        steps
    }

    /// Runs it on a server that is as new as the reader's, and says where it answers otherwise.
    fn replay(&self) -> Result<(), String> {
        let clock = Clock::new();
        clock.freeze_at(NOON_US);
        let server = Options::new().clock(&clock).start();
        let mut terminals = BTreeMap::new();
        let mut differences = String::new();
        for step in self.steps() {
            let (terminal, input, shown) = match step {
                Step::LaterMs(ms) => {
                    clock.advance_ms(ms);
                    continue;
                }
                Step::Disconnect(terminal) => {
                    let closed = terminals.remove(&terminal);
                    assert!(closed.is_some(), "{}: no terminal {terminal}", self.at);
                    continue;
                }
                Step::Ask(terminal, input, shown) => (terminal, Some(input), shown.join("\n")),
                Step::Late(terminal, shown) => (terminal, None, shown),
            };
            let conn = terminals.entry(terminal).or_insert_with(|| server.conn());
            let id = (shown == WAITS).then(|| conn.client_id());
            if let Some(input) = &input {
                let words = split(input);
                conn.send(&words.unwrap_or_else(|| panic!("{}: quotes in {input}", self.at)));
            }
            if let Some(id) = id {
                let mut other = server.conn();
                eventually(&format!("{}: {input:?} waits", self.at), || {
                    is_blocked(&mut other, id)
                });
                continue;
            }
            let answer = on_terminal(&conn.recv(), "");
            if answer != shown + "\n" {
                let input = input.unwrap_or_default();
                let _ = write!(differences, "{}: {terminal}> {input}\n{answer}", self.at);
            }
        }
        if differences.is_empty() {
            Ok(())
        } else {
            Err(differences)
        }
    }
}

/// `2> input` or `2< answer`
fn on_numbered<'a>(line: &'a str, mark: &str) -> Option<(char, &'a str)> {
    let terminal = line.chars().next().filter(char::is_ascii_digit)?;
    Some((terminal, line[1..].strip_prefix(mark)?))
}

/// `-- 2 disconnects --`
fn disconnects(line: &str) -> Option<char> {
    let terminal = line.strip_prefix("-- ")?.strip_suffix(" disconnects --")?;
    terminal.chars().next().filter(|_| terminal.len() == 1)
}

/// `-- 20 ms later --` or `-- 2 seconds later --`
fn later_ms(line: &str) -> Option<i64> {
    let inside = line.strip_prefix("-- ")?.strip_suffix(" later --")?;
    let (number, unit) = inside.split_once(' ')?;
    let ms_each = match unit {
        "ms" => 1,
        "second" | "seconds" => 1000,
        _ => return None,
    };
    Some(number.parse::<i64>().ok()? * ms_each)
}

/// The words of a line typed into redis-cli; `None` for a quote that does not close.
fn split(line: &str) -> Option<Vec<Vec<u8>>> {
    let mut rest = line.as_bytes();
    let mut words = Vec::new();
    loop {
        rest = rest.trim_ascii_start();
        let Some(&first) = rest.first() else {
            return Some(words);
        };
        let mut word = Vec::new();
        if first == b'"' || first == b'\'' {
            rest = take_quoted(&rest[1..], first, &mut word)?;
            if rest.first().is_some_and(|next| !next.is_ascii_whitespace()) {
                return None;
            }
        } else {
            let end = rest.iter().position(u8::is_ascii_whitespace);
            let (taken, left) = rest.split_at(end.unwrap_or(rest.len()));
            word.extend(taken);
            rest = left;
        }
        words.push(word);
    }
}

/// Takes a word to its closing quote, and answers what is behind it.
fn take_quoted<'a>(mut rest: &'a [u8], quote: u8, word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, len) = match *rest {
            [end, ..] if end == quote => return Some(&rest[1..]),
            [b'\\', b'x', high, low, ..]
                if quote == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                let digits = [high, low];
                let digits = std::str::from_utf8(&digits).ok()?;
                (u8::from_str_radix(digits, 16).ok()?, 4)
            }
            [b'\\', escaped, ..] if quote == b'"' => {
                let byte = match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => other,
                };
                (byte, 2)
            }
            [b'\\', b'\'', ..] => (b'\'', 2),
            [byte, ..] => (byte, 1),
            [] => return None,
        };
        word.push(byte);
        rest = &rest[len..];
    }
}

/// A reply as redis-cli prints it in RESP2. Lines but the first are indented by `indent`.
fn on_terminal(reply: &Reply, indent: &str) -> String {
    match reply {
        Reply::Nil => "(nil)\n".to_string(),
        Reply::Int(value) => format!("(integer) {value}\n"),
        Reply::Status(line) => format!("{line}\n"),
        Reply::Error(line) => format!("(error) {line}\n"),
        Reply::Bulk(bytes) => format!("\"{}\"\n", escaped(bytes)),
        Reply::Array(items) if items.is_empty() => "(empty array)\n".to_string(),
        Reply::Array(items) => {
            let width = items.len().to_string().len();
            let deeper = format!("{indent}{:1$}", "", width + 2);
            let mut out = String::new();
            for (i, item) in items.iter().enumerate() {
                let before = if i == 0 { "" } else { indent };
                let item = on_terminal(item, &deeper);
                let _ = write!(out, "{before}{:>width$}) {item}", i + 1);
            }
            out
        }
        other => panic!("not in RESP2: {other:?}"),
    }
}

fn escaped(bytes: &[u8]) -> String {
    let mut out = String::new();
    for &byte in bytes {
        let _ = match byte {
            b'\\' | b'"' => write!(out, "\\{}", byte as char),
            b'\n' => write!(out, "\\n"),
            b'\r' => write!(out, "\\r"),
            b'\t' => write!(out, "\\t"),
            7 => write!(out, "\\a"),
            8 => write!(out, "\\b"),
            b' '..=b'~' => write!(out, "{}", byte as char),
            _ => write!(out, "\\x{byte:02x}"),
        };
    }
    out
}

/// Beside the pages of commands: those that show what they say.
const NEED_EXAMPLES: [&str; 3] = [
    "README.md",
    "docs/choosing-a-limiter.md",
    "docs/migrate-from-redis-cell.md",
];

#[test]
fn every_example_answers_as_shown() {
    let mut wrong = String::new();
    for page in Page::all() {
        let examples = page.examples();
        let marks = page.text.matches("```redis-cli").count();
        assert_eq!(examples.len(), marks, "{}: blocks", page.name);
        let needs_one =
            page.name.starts_with("docs/commands/") || NEED_EXAMPLES.contains(&&*page.name);
        assert!(
            !needs_one || !examples.is_empty(),
            "{}: no example",
            page.name
        );
        for example in examples {
            if let Err(differences) = example.replay() {
                wrong += &differences;
            }
        }
    }
    assert!(wrong.is_empty(), "examples that answer otherwise:\n{wrong}");
}

#[test]
fn an_example_that_is_wrong_is_noticed() {
    let replay = |text: &str| {
        let lines = text.lines().map(String::from).collect();
        let at = "here".to_string();
        Example { at, lines }.replay()
    };
    let right = "> LOCK.ACQUIRE k o 5\n(integer) 1796040000000000\n-- 6 ms later --\n> LOCK.INFO k\n(nil)\n> EXISTS k\n(integer) 0";
    assert_eq!(replay(right), Ok(()));
    for (from, to) in [
        ("000000\n", "000001\n"),
        ("6 ms", "5 ms"),
        ("(nil)\n", ""),
        ("(nil)", "(nil)\n"),
        ("(nil)", " (nil)"),
        ("(integer) 0", "0"),
    ] {
        assert!(right.contains(from));
        assert!(replay(&right.replacen(from, to, 1)).is_err(), "{from:?}");
    }

    let right = "1> LOCK.ACQUIRE k a 5\n(integer) 1796040000000000\n2> LOCK.ACQUIRE k b 5 BLOCK 60000\n-- waits --\n1> LOCK.RELEASE k a\n(integer) 1\n2< (integer) 1796040000000001";
    assert_eq!(replay(right), Ok(()));
    for (from, to) in [("000001", "000002"), ("(integer) 1\n", "(integer) 0\n")] {
        assert!(right.contains(from));
        assert!(replay(&right.replacen(from, to, 1)).is_err(), "{from:?}");
    }
}

/// Quotes, escapes and indents are redis-cli's own.
#[test]
fn words_and_replies_are_those_of_redis_cli() {
    let lines = [
        r#"ECHO "a b\x00\xff\n\r\t\a\b\\\"'\q""#,
        r#"ECHO 'it\'s \n "so"'"#,
        r#"   ECHO   plain\x41   "#,
        r#"ECHO """#,
        r#"EVAL "return {1, {'a', {}, {2, {'b', 'c'}}}, false, redis.status_reply('OK')}" 0"#,
        r#"EVAL "local t = {} for i = 1, 12 do t[i] = {i, {i}} end return t" 0"#,
        r#"EVAL "return {}" 0"#,
        "GET nothing",
        "PING",
        "NO.SUCH command",
    ];
    let server = single();
    let mut conn = server.conn();
    let ours: String = lines
        .iter()
        .map(|line| on_terminal(&conn.cmd(&split(line).expect("quotes close")), ""))
        .collect();
    let mut redis_cli = Command::new("redis-cli");
    redis_cli.args(["--no-raw", "-p", &server.port().to_string()]);
    redis_cli.stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut redis_cli) = redis_cli.spawn() else {
        println!("skipped: no redis-cli on the path");
        return;
    };
    let typed = lines.join("\n") + "\n";
    let mut stdin = redis_cli.stdin.take().expect("piped");
    stdin.write_all(typed.as_bytes()).expect("redis-cli reads");
    drop(stdin);
    let output = redis_cli.wait_with_output().expect("redis-cli ends");
    assert_eq!(ours, String::from_utf8_lossy(&output.stdout));
    for open in [r#"ECHO "a"#, "ECHO 'a", r#"ECHO "a"b"#, r#"ECHO "a\"#] {
        assert_eq!(split(open), None, "{open}");
    }
}

// --- commands ---

/// The commands for clients, by the server's own names.
fn commands(conn: &mut Conn) -> BTreeSet<String> {
    let list = cmd!(conn, "COMMAND", "LIST", "FILTERBY", "MODULE", "sluice");
    let names = list.items().iter().map(Reply::as_text);
    let names: BTreeSet<_> = names.filter(|name| !name.starts_with("sluice.")).collect();
    assert!(names.len() >= 28, "{names:?}");
    names
}

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
fn documented_policies() -> Vec<String> {
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

// --- INFO and settings ---

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

// --- the repository ---

#[test]
fn every_link_between_pages_leads_somewhere() {
    let mut links = 0;
    for page in Page::all() {
        for link in page.links() {
            if link.contains("://") {
                continue;
            }
            links += 1;
            let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => page.name.clone(),
                path => {
                    let dir = Path::new(&page.name).parent().expect("pages are files");
                    dir.join(path).to_string_lossy().into_owned()
                }
            };
            let exists = root().join(&target).exists();
            assert!(exists, "{}: {link} leads nowhere", page.name);
            let found = fragment.is_empty()
                || Page::read(&target)
                    .anchors()
                    .iter()
                    .any(|anchor| anchor == fragment);
            assert!(found, "{}: {link}: no such heading", page.name);
        }
    }
    assert!(links > 20, "only {links} links were found");
}

/// The figures of the guide are those of the benchmarks: whoever measures anew corrects both.
#[test]
fn the_costs_in_the_guide_are_those_that_were_measured() {
    let benchmarks = Page::read("docs/benchmarks.md").table("Figures");
    let whole = |scenario: &str| {
        let row = benchmarks.rows.iter().find(|row| row[0] == scenario);
        row.unwrap_or_else(|| panic!("no scenario {scenario:?}"))[2].clone()
    };
    let guide = Page::read("docs/choosing-a-limiter.md").table("What they cost");
    for row in &guide.rows {
        let algorithm = row[0].split(',').next().unwrap_or_default();
        let denied = match algorithm {
            "SLIDINGLOG" => "denied, 10 entries",
            _ => "denied",
        };
        if algorithm == "the same" {
            let of_long_log = |cell: &str, scenario: &str| {
                let expected = format!("{} with 100,000", whole(scenario));
                assert_eq!(cell, expected, "{scenario}");
            };
            of_long_log(&row[2], "RL.SLIDINGLOG, allowed, 100,000 entries");
            of_long_log(&row[3], "RL.SLIDINGLOG, denied, 100,000 entries");
            continue;
        }
        for (cell, call) in row[2..].iter().zip(["allowed, hot key", denied, "new key"]) {
            let scenario = format!("RL.{algorithm}, {call}");
            assert_eq!(*cell, whole(&scenario), "{scenario}");
        }
    }
}

/// Each algorithm has a plot in the guide, and none is there that nobody shows.
#[test]
fn the_guide_shows_every_plot() {
    let guide = Page::read("docs/choosing-a-limiter.md");
    let links = guide.links().into_iter();
    let shown: BTreeSet<_> = links
        .filter_map(|link| link.strip_prefix("plots/"))
        .collect();
    let policies = documented_policies();
    let algorithms = policies.iter().map(|policy| policy.split(' ').next());
    let mut expected: BTreeSet<_> = algorithms
        .map(|name| format!("{}.svg", name.expect("a name").to_lowercase()))
        .collect();
    expected.insert("boundary.svg".to_string());
    assert_eq!(shown, expected.iter().map(String::as_str).collect());
    for name in &expected {
        let plot = Page::read(&format!("docs/plots/{name}")).text;
        assert!(plot.starts_with("<svg "), "{name}");
    }
    let files = fs::read_dir(root().join("docs/plots")).expect("plots are there");
    let files = files.map(|file| file.expect("readable").file_name());
    let files: BTreeSet<_> = files
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    assert_eq!(files, expected);
}

#[test]
fn the_readme_names_the_two_targets_for_a_new_user() {
    let readme = Page::read("README.md").text;
    let makefile = Page::read("Makefile").text;
    for target in ["run", "test"] {
        assert!(readme.contains(&format!("    make {target} ")), "{target}");
        let rule = makefile
            .lines()
            .any(|line| line.starts_with(&format!("{target}:")));
        assert!(rule, "{target}");
    }
}

#[test]
fn the_readme_says_why_each_dependency_is_there() {
    let mut declared = BTreeSet::new();
    for manifest in [
        "Cargo.toml",
        "core/Cargo.toml",
        "plots/Cargo.toml",
        "tests/Cargo.toml",
        "tests/bed/Cargo.toml",
    ] {
        let mut in_dependencies = false;
        for line in Page::read(manifest).text.lines() {
            if line.starts_with('[') {
                in_dependencies = line.ends_with("dependencies]");
            } else if let Some((name, _)) = line.split_once(" = ").filter(|_| in_dependencies) {
                declared.insert(name.to_string());
            }
        }
    }
    declared.retain(|name| !name.starts_with("sluice-"));
    let table = Page::read("README.md").table("How it is built");
    let names = table.column("dependency").into_iter();
    let explained = names.map(|cell| cell.split(' ').next().unwrap_or_default().to_string());
    assert_eq!(explained.collect::<BTreeSet<_>>(), declared);
}
