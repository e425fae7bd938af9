//! Measures one scenario: a server of its own under callgrind, with the module.
//!
//! One run gives both figures. Callgrind writes a profile when the server enters [`MARK`], a command
//! that is sent before and after the measured ones, so that the second profile is what happened in
//! between. "Whole" is all of it. "Ours" is what callgrind saw below the entry of the command: the
//! inclusive cost of the calls that lead there. This needs no signals and no debugger's link to the
//! server, as callgrind_control does, and only symbols of our own.

use crate::figures::Figure;
use crate::scenarios::Scenario;
use sluice_testbed::{args, Conn, Options, Reply, Server};
use std::fs;

/// Commands measured, after a warm-up of the same kind.
const MEASURED: usize = 2_000;
const WARM_UP: usize = 500;
const PIPELINE: usize = 50;

/// Other keys, with a TTL, that are there when a row works on many keys. Together with those that the
/// row adds they stay within the 8,192 buckets the server's tables have by then: none grows while we
/// measure, and none shrinks when a row deletes its keys. Rows with one hot key have it for
/// themselves: whom it shares its bucket with is chance, and worth up to 6 %.
const OTHER_KEYS: usize = 5_500;

/// The entry of the command that cuts the profiles, and the command.
const MARK: (&str, &str) = ("sluice_lock_forcerelease", "LOCK.FORCERELEASE no:such:key");

/// What the server does ten times a second or so, by the clock and not for a command. Subtracted;
/// servers without the symbol keep it.
const CRON: &str = "serverCron";

/// The one key of the rows that have one.
const HOT: &str = "lock:{hotkey}:abcdef";

/// Starts a server, runs the row and reads the profile.
pub(crate) fn measure(row: &Scenario) -> Figure {
    let server = start(row);
    let mut conn = server.conn();
    let sha = row.script.map(|script| {
        let loaded = conn.cmd(&args!["SCRIPT", "LOAD", script]);
        loaded.as_text()
    });
    let expand = |template: &str, n: usize| command(template, n, sha.as_deref());

    if let Some((fill, times)) = row.filled {
        let state = filled(fill, times);
        let restored = conn.cmd(&args!["RESTORE", HOT, 600_000, state]);
        assert!(!restored.is_error(), "{restored:?}");
    }
    if row.measured.contains("{key}") {
        run(&mut conn, (0..OTHER_KEYS).map(other_key));
    }
    if let Some(setup) = row.setup {
        let times = if setup.contains("{key}") {
            WARM_UP + MEASURED
        } else {
            1
        };
        run(&mut conn, (0..times).map(|n| expand(setup, n)));
    }
    run(&mut conn, (0..WARM_UP).map(|n| expand(row.measured, n)));
    mark(&mut conn);
    let commands = (WARM_UP..WARM_UP + MEASURED).map(|n| expand(row.measured, n));
    run(&mut conn, commands);
    mark(&mut conn);

    let profile = Profile::read(&server);
    if let Some(entry) = row.entry {
        let calls = profile.below(entry).calls;
        assert_eq!(calls, MEASURED as u64, "{}: calls of {entry}", row.name);
    }
    let each = |instructions: u64| (instructions as f64 / MEASURED as f64).round() as u64;
    Figure {
        ours: row
            .entry
            .map(|entry| each(profile.below(entry).instructions)),
        whole: each(profile.total - profile.below(CRON).instructions),
    }
}

/// What DUMP says of the hot key after as many commands, on a server that is not slowed down.
fn filled(fill: &str, times: usize) -> Vec<u8> {
    let server = Options::new().without_clock().start();
    let mut conn = server.conn();
    run(&mut conn, (0..times).map(|n| command(fill, n, None)));
    conn.cmd(&args!["DUMP", HOT]).as_bytes().to_vec()
}

fn start(row: &Scenario) -> Server {
    let cut = format!("--dump-before={}", MARK.0);
    let callgrind = [
        "valgrind",
        "--tool=callgrind",
        "--callgrind-out-file=callgrind.out",
        // Names in full, which are simpler to read, and no lines, which nobody needs.
        "--compress-strings=no",
        "--compress-pos=no",
        "--dump-line=no",
        &cut,
    ];
    let options = Options::new()
        .without_clock()
        .wrapper(&callgrind)
        .config("hz", 1);
    let options = if row.aof {
        options
            .config("appendonly", "yes")
            .config("appendfsync", "no")
    } else {
        options
    };
    options.start()
}

/// One command of a template; see [`crate::scenarios`].
fn command(template: &str, n: usize, sha: Option<&str>) -> Vec<Vec<u8>> {
    let word = |word: &str| {
        word.replace("{key}", &format!("lock:{{{n:06}}}:abcdef"))
            .replace("{hot}", HOT)
            .replace("{owner}", "f47ac10b-58cc-4372-a567-0e02b2c3d479")
            .replace("{other}", "16fd2706-8baf-433b-82eb-8c7fada847da")
            .replace("{n}", &(700_000 + n).to_string())
            .replace("{sha}", sha.unwrap_or_default())
            .into_bytes()
    };
    template.split(' ').map(word).collect()
}

fn other_key(n: usize) -> Vec<Vec<u8>> {
    args!["SET", format!("othr:{{{n:06}}}:abcdef"), "x", "PX", 600_000]
}

/// Sends the commands in pipelines. A row whose commands fail measures nothing: that panics.
fn run(conn: &mut Conn, commands: impl Iterator<Item = Vec<Vec<u8>>>) {
    let commands: Vec<_> = commands.collect();
    for chunk in commands.chunks(PIPELINE) {
        for reply in conn.pipeline(chunk) {
            assert!(!reply.is_error(), "{reply:?}");
        }
    }
}

fn mark(conn: &mut Conn) {
    assert_eq!(conn.cmd(&command(MARK.1, 0, None)), Reply::Int(0));
}

/// What callgrind wrote between the two marks.
struct Profile {
    total: u64,
    text: String,
}

/// The calls that lead to a function, and what they cost, inclusive.
#[derive(Default)]
struct Below {
    calls: u64,
    instructions: u64,
}

impl Profile {
    fn read(server: &Server) -> Profile {
        // The first profile goes up to the first mark.
        let path = server.dir().join("callgrind.out.2");
        let text = fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("no profile {path:?}: {error}\n{}", server.log()));
        let total = text
            .lines()
            .find_map(|line| line.strip_prefix("totals: "))
            .and_then(|total| total.parse().ok())
            .expect("a profile has its totals");
        Profile { total, text }
    }

    /// Each call stands in three lines: `cfn=name`, `calls=number position`, `position cost`.
    fn below(&self, function: &str) -> Below {
        let mut below = Below::default();
        let mut lines = self.text.lines();
        while let Some(line) = lines.next() {
            if line.strip_prefix("cfn=") != Some(function) {
                continue;
            }
            let mut number = |before: &str, column: usize| -> u64 {
                lines
                    .next()
                    .and_then(|line| line.strip_prefix(before)?.split(' ').nth(column))
                    .and_then(|number| number.parse().ok())
                    .expect("the lines of a call")
            };
            below.calls += number("calls=", 0);
            below.instructions += number("", 1);
        }
        below
    }
}
