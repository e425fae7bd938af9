//! Draws the plots of docs/plots from the limiters themselves, on a clock that is only counted:
//! `make plots`. The same bytes on every machine.

mod boundary;
mod chart;
mod load;
mod same_load;
mod simulation;

use sluice_core::limiter::Algorithm;
use std::error::Error;
use std::path::{Path, PathBuf};

/// Every plot: its file's name, and what is in it.
fn plots() -> Result<Vec<(String, String)>, Box<dyn Error>> {
    let mut plots = Algorithm::ALL
        .into_iter()
        .map(|algorithm| {
            let name = algorithm.name().to_lowercase();
            Ok((format!("{name}.svg"), same_load::draw(algorithm)?))
        })
        .collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    plots.push(("boundary.svg".to_string(), boundary::draw()?));
    Ok(plots)
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/plots")
}

fn main() -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(directory())?;
    for (name, svg) in plots()? {
        std::fs::write(directory().join(&name), svg)?;
        println!("docs/plots/{name}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// What the documentation shows is what the limiters do.
    #[test]
    fn the_committed_plots_are_those_of_the_limiters() {
        for (name, svg) in plots().expect("the plots can be drawn") {
            let committed = std::fs::read_to_string(directory().join(&name)).unwrap_or_default();
            assert!(
                committed == svg,
                "docs/plots/{name} is not what the limiters do now: run `make plots` and look at it"
            );
        }
    }

    #[test]
    fn no_plot_is_left_that_nobody_draws() {
        let drawn = plots().expect("the plots can be drawn");
        let drawn: BTreeSet<_> = drawn.into_iter().map(|(name, _)| name).collect();
        let committed = std::fs::read_dir(directory()).expect("docs/plots is there");
        let committed: BTreeSet<_> = committed
            .map(|file| file.expect("a file").file_name().into_string())
            .map(|name| name.expect("a name in UTF-8"))
            .collect();
        assert_eq!(committed, drawn);
    }
}
