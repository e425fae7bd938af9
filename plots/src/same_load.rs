//! One algorithm under the load that all get: what came and what was admitted each second, and
//! how much had been admitted within a window's length.

use crate::chart::{self, seconds, Axes, Key, Panel, Point, Result};
use crate::chart::{ADMITTED, LIMITED, OFFERED, SENT};
use crate::load::{self, SECOND};
use crate::simulation::{self, in_last_window, LIMIT};
use sluice_core::limiter::Algorithm;

const HEIGHT: u32 = 520;
const UPPER_PANEL: u32 = 208;
const SECONDS: usize = 60;

pub(crate) fn draw(algorithm: Algorithm) -> Result<String> {
    let load = load::bursty();
    let admitted = simulation::admitted(&simulation::policy(algorithm)?, &load)?;
    let holds = algorithm == Algorithm::LeakyBucket;
    let subtitle = format!(
        "RL.{} key {}: {} of {} requests admitted",
        algorithm.name(),
        simulation::numbers(algorithm).join(" "),
        admitted.len(),
        load.len()
    );
    let mut legend = vec![
        Key::Bar(OFFERED, "offered"),
        Key::Bar(ADMITTED, "admitted"),
        Key::Dashes(LIMITED, "the limit, 20 in 10 s"),
    ];
    if holds {
        legend.insert(2, Key::Line(SENT, "goes out, once held for wait_ms"));
    }

    chart::page(HEIGHT, algorithm.name(), &subtitle, &legend, |body| {
        let (upper, lower) = body.split_vertically(UPPER_PANEL);
        let mut each_second = Panel::new(
            &upper,
            &Axes {
                x: 0.0..SECONDS as f64,
                y: 0.0..34.0,
                y_name: "requests per second",
                names_time: false,
            },
        )?;
        each_second.bars(&per_second(load.iter().copied()), OFFERED)?;
        each_second.bars(&per_second(admitted.iter().map(|call| call.at)), ADMITTED)?;
        let mut last_window = Panel::new(
            &lower,
            &Axes {
                x: 0.0..SECONDS as f64,
                y: 0.0..45.0,
                y_name: "requests in the last 10 s",
                names_time: true,
            },
        )?;
        let counted = |instants: Vec<i64>| points(in_last_window(instants.into_iter()));
        let at = admitted.iter().map(|call| call.at).collect();
        last_window.steps(&counted(at), ADMITTED, true)?;
        if holds {
            let out: Vec<i64> = admitted.iter().map(|call| call.out).collect();
            each_second.steps(&per_second(out.iter().copied()), SENT, false)?;
            last_window.steps(&counted(out), SENT, false)?;
        }
        last_window.limit(LIMIT as f64)
    })
}

/// How many of these instants lie in each second.
fn per_second(instants: impl Iterator<Item = i64>) -> Vec<Point> {
    let mut counts = [0.0; SECONDS];
    for at in instants {
        if let Some(count) = counts.get_mut((at / SECOND) as usize) {
            *count += 1.0;
        }
    }
    let counts = counts.into_iter().enumerate();
    counts.map(|(at, count)| (at as f64, count)).collect()
}

fn points(counts: Vec<(i64, i64)>) -> Vec<Point> {
    let point = |(at, count)| (seconds(at), count as f64);
    counts.into_iter().map(point).collect()
}
