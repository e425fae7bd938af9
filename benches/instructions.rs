//! Counts the instructions that a command costs the server, with valgrind's callgrind.
//!
//! `make bench-instructions` measures every row of [`scenarios::ROWS`] and compares what our own
//! code costs with the committed `benches/instructions.tsv`; more than [`TOLERANCE`] dearer fails.
//! `SLUICE_BENCH_ACCEPT=1` writes that file anew. Words after `--` choose rows by their names, and
//! `memory` the bytes per key.

#[path = "instructions/callgrind.rs"]
mod callgrind;
#[path = "instructions/figures.rs"]
mod figures;
#[path = "instructions/memory.rs"]
mod memory;
#[path = "instructions/scenarios.rs"]
mod scenarios;

use figures::{Build, Committed, Figure};
use scenarios::{Scenario, ROWS};
use std::process::ExitCode;

/// How much dearer "ours" may get, in percent.
const TOLERANCE: f64 = 3.0;

/// How many servers a row gets at most; the cheapest counts. Every server seeds its hash function at
/// random, and with bad luck a name that each command looks up (that of our effect, `DEL`) stands
/// last in a crowded bucket, which is worth up to 2.5 %.
const SERVERS: usize = 3;

fn main() -> ExitCode {
    // Cargo itself passes `--bench`.
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .map(|arg| arg.to_lowercase())
        .collect();
    let accept = std::env::var_os("SLUICE_BENCH_ACCEPT").is_some_and(|value| value == "1");
    if accept && !words.is_empty() {
        eprintln!("SLUICE_BENCH_ACCEPT writes the whole file: do not choose rows");
        return ExitCode::FAILURE;
    }
    let chosen = |row: &&Scenario| {
        let name = row.name.to_lowercase();
        words.is_empty() || words.iter().any(|word| name.contains(word))
    };

    let build = Build::under_test();
    let committed = Committed::read();
    println!("{build}\ninstructions per command, pipelines of 50\n");
    if !committed.is_comparable_with(&build) {
        println!(
            "not comparable: the committed figures are of {}\n",
            committed.build
        );
    }

    println!(
        "{:<44} {:>8} {:>8}  ours against the committed",
        "scenario", "ours", "whole"
    );
    let mut figures = Vec::new();
    let mut dearer = Vec::new();
    for row in ROWS.iter().filter(chosen) {
        let change_of = |figure: &Figure| committed.change(&build, row.name, figure);
        let figure = measure(row, |figure| !accept && !change_of(figure).is_dearer());
        let change = change_of(&figure);
        println!(
            "{:<44} {:>8} {:>8}  {change}",
            row.name,
            figures::cell(figure.ours),
            figure.whole
        );
        if change.is_dearer() {
            dearer.push(row.name);
        }
        figures.push((row.name, figure));
    }
    if words.is_empty() || words.iter().any(|word| word == "memory") {
        memory::report();
    }

    if accept {
        figures::write(&build, &figures);
        println!("\nwritten: {}", figures::path().display());
    } else if !dearer.is_empty() {
        println!("\nmore than {TOLERANCE} % dearer: {}", dearer.join("; "));
        println!("SLUICE_BENCH_ACCEPT=1 accepts the new figures");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Measures a row, on more servers until it `is_settled`. Rows that are not ours are not compared,
/// and get one.
fn measure(row: &Scenario, is_settled: impl Fn(&Figure) -> bool) -> Figure {
    let mut cheapest = callgrind::measure(row);
    for _ in 1..SERVERS {
        if row.entry.is_none() || is_settled(&cheapest) {
            break;
        }
        let again = callgrind::measure(row);
        if again.ours < cheapest.ours {
            cheapest = again;
        }
    }
    cheapest
}
