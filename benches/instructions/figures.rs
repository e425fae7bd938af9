//! The committed figures, and what has changed against them.

use sluice_testbed::{flavour, module_path};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Instructions per command.
#[derive(Clone, Copy)]
pub(crate) struct Figure {
    /// From the entry of our handler down, the server's API functions included; `None` for commands
    /// that are not ours.
    pub(crate) ours: Option<u64>,
    /// Of the whole server process: reading, dispatch, replying, propagation and the event loop.
    pub(crate) whole: u64,
}

/// What figures depend on. Those of another build cannot be compared.
#[derive(PartialEq, Eq)]
pub(crate) struct Build {
    server: String,
    compiler: String,
}

impl Build {
    pub(crate) fn under_test() -> Build {
        Build {
            server: format!("{}, {}", flavour().name, std::env::consts::ARCH),
            compiler: compiler_of_module(),
        }
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; module built by {}", self.server, self.compiler)
    }
}

/// As the compiler left it in the module, which need not be the one that built this program.
fn compiler_of_module() -> String {
    const MARK: &[u8] = b"rustc version ";
    let path = module_path().expect("the instructions of the module are counted: name one");
    let module = fs::read(&path).unwrap_or_else(|error| panic!("no module {path:?}: {error}"));
    let version = module
        .windows(MARK.len())
        .position(|bytes| bytes == MARK)
        .and_then(|at| module[at + MARK.len()..].split(|byte| *byte <= b' ').next())
        .unwrap_or(b"an unknown version");
    format!("rustc {}", String::from_utf8_lossy(version))
}

/// The file as it is committed.
pub(crate) struct Committed {
    pub(crate) build: Build,
    rows: Vec<(String, Option<u64>)>,
}

/// What happened to "ours" of a row.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    /// In percent; positive is dearer.
    Percent(f64),
    /// The committed file does not have the row.
    New,
    /// Of another build, or a row that is not ours.
    NotCompared,
}

impl Change {
    pub(crate) fn is_dearer(&self) -> bool {
        matches!(self, Change::Percent(percent) if *percent > crate::TOLERANCE)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Percent(percent) => write!(f, "{percent:+.1} %"),
            Change::New => f.write_str("new"),
            Change::NotCompared => Ok(()),
        }
    }
}

impl Committed {
    /// A file that is missing has no rows, and is of no build.
    pub(crate) fn read() -> Committed {
        let text = fs::read_to_string(path()).unwrap_or_default();
        let header = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix("# ")?.strip_prefix(name))
                .unwrap_or("nothing")
                .to_string()
        };
        let row = |line: &str| {
            let mut cells = line.split('\t');
            Some((cells.next()?.to_string(), cells.next()?.parse().ok()))
        };
        Committed {
            build: Build {
                server: header("server: "),
                compiler: header("module built by: "),
            },
            rows: text
                .lines()
                .filter(|line| !line.starts_with('#'))
                .filter_map(row)
                .collect(),
        }
    }

    pub(crate) fn is_comparable_with(&self, build: &Build) -> bool {
        self.build == *build
    }

    pub(crate) fn change(&self, build: &Build, name: &str, figure: &Figure) -> Change {
        let Some(ours) = figure.ours.filter(|_| self.is_comparable_with(build)) else {
            return Change::NotCompared;
        };
        match self.rows.iter().find(|(row, _)| row == name) {
            Some((_, Some(before))) => {
                Change::Percent((ours as f64 / *before as f64 - 1.0) * 100.0)
            }
            _ => Change::New,
        }
    }
}

pub(crate) fn write(build: &Build, figures: &[(&str, Figure)]) {
    let mut text = format!(
        "# Instructions per command: see docs/benchmarks.md. Written by SLUICE_BENCH_ACCEPT=1.\n\
         # server: {}\n# module built by: {}\n# scenario\tours\twhole\n",
        build.server, build.compiler
    );
    for (name, figure) in figures {
        text += &format!("{name}\t{}\t{}\n", cell(figure.ours), figure.whole);
    }
    fs::write(path(), text).expect("the figures cannot be written");
}

pub(crate) fn cell(ours: Option<u64>) -> String {
    ours.map_or_else(|| "-".to_string(), |ours| ours.to_string())
}

pub(crate) fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/instructions.tsv")
}
