//! The documentation, held against the server: every example is replayed, every table compared.

mod examples;
mod guides;
mod operations;
mod pages;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::support::*;

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

/// The commands for clients, by the server's own names.
fn commands(conn: &mut Conn) -> BTreeSet<String> {
    let list = cmd!(conn, "COMMAND", "LIST", "FILTERBY", "MODULE", "sluice");
    let names = list.items().iter().map(Reply::as_text);
    let names: BTreeSet<_> = names.filter(|name| !name.starts_with("sluice.")).collect();
    assert!(names.len() >= 28, "{names:?}");
    names
}
