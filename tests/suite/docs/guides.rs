//! The guides and the README: links, costs, plots, targets and dependencies.

use std::{collections::BTreeSet, fs, path::Path};

use super::{pages::documented_policies, root, Page};

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
