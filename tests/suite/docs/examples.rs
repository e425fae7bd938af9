//! Every example of the pages is replayed, as redis-cli would show it.

use std::{
    collections::BTreeMap,
    fmt::Write,
    io::Write as _,
    process::{Command, Stdio},
};

use sluice_testbed::Clock;

use super::Page;
use crate::support::*;
use crate::waiting_support::is_blocked;

/// Where every example starts: 2026-11-30 12:00:00 UTC, in µs.
const NOON_US: i64 = 1_796_040_000_000_000;

impl Page {
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
}

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
