//! How much the two window counters let through about the boundary of two windows, against the
//! log, which counts exactly. The load is the worst for both.

use crate::chart::{self, seconds, Axes, Key, Panel, Result};
use crate::chart::{ADMITTED, FAINT_INK, INK, LIMITED};
use crate::load::{burst, SECOND};
use crate::simulation::{self, in_last_window, LIMIT};
use plotters::style::text_anchor::{HPos, VPos};
use sluice_core::limiter::{Algorithm, Policy};

const HEIGHT: u32 = 640;
const PANEL: u32 = 178;
const TOP: f64 = 52.0;

/// Opens the window that the first burst will fill. It lies just before an aligned window.
const OPENING: i64 = -50_000;
/// At the end of a window, at the beginning of the next, and again at the end of that one.
const BURSTS: [i64; 3] = [9_900_000, 10_100_000, 19_800_000];

pub(crate) fn draw() -> Result<String> {
    let mut load = vec![OPENING];
    load.extend(BURSTS.into_iter().flat_map(burst));
    let legend = [
        Key::Line(ADMITTED, "admitted in the last 10 s"),
        Key::Dashes(LIMITED, "the limit, 20 in 10 s"),
        Key::Line(FAINT_INK, "a window begins"),
    ];
    let subtitle = "One request just before 0 s, then 30 each at 9.9 s, 10.1 s and 19.8 s";
    let aligned = simulation::policy(Algorithm::FixedWindow)?
        .aligned(b"0")
        .map_err(|error| format!("ALIGN: {error:?}"))?;
    let panels = [
        ("FIXEDWINDOW with ALIGN 0", aligned, Some(0)),
        (
            "SLIDINGWINDOW",
            simulation::policy(Algorithm::SlidingWindow)?,
            Some(OPENING),
        ),
        (
            "SLIDINGLOG",
            simulation::policy(Algorithm::SlidingLog)?,
            None,
        ),
    ];

    let title = "What passes within one window's length";
    chart::page(HEIGHT, title, subtitle, &legend, |body| {
        let (first, rest) = body.split_vertically(PANEL);
        let (second, third) = rest.split_vertically(PANEL);
        for (area, (name, policy, windows)) in [&first, &second, &third].into_iter().zip(&panels) {
            let mut panel = Panel::new(
                area,
                &Axes {
                    x: -1.0..25.0,
                    y: 0.0..TOP,
                    y_name: "requests",
                    names_time: windows.is_none(),
                },
            )?;
            draw_panel(&mut panel, name, policy, *windows, &load)?;
        }
        Ok(())
    })
}

fn draw_panel(
    panel: &mut Panel<'_, '_>,
    name: &str,
    policy: &Policy,
    windows: Option<i64>,
    load: &[i64],
) -> Result<()> {
    if let Some(first) = windows {
        for n in 0..3 {
            let at = seconds(first + n * simulation::WINDOW);
            panel.line([(at, 0.0), (at, TOP)], FAINT_INK)?;
        }
    }
    let admitted = simulation::admitted(policy, load)?;
    let counts = in_last_window(admitted.iter().map(|call| call.at));
    let steps: Vec<_> = counts
        .iter()
        .map(|&(at, count)| (seconds(at), count as f64))
        .collect();
    panel.steps(&steps, ADMITTED, true)?;
    panel.limit(LIMIT as f64)?;

    let name_style = chart::text_at(INK, HPos::Left, VPos::Top);
    panel.write(name, (0.3, TOP - 2.0), name_style)?;
    let most = counts.iter().map(|(_, count)| *count).max().unwrap_or(0);
    let peak = counts.iter().find(|(_, count)| *count == most);
    let at = peak.map_or(0, |(at, _)| *at);
    let label = match most - LIMIT {
        0 => format!("at most {most}: the limit"),
        LIMIT => format!("up to {most}: 2 × limit"),
        more => format!("up to {most}: 2 × limit − {}", LIMIT - more),
    };
    let label_style = chart::text_at(ADMITTED, HPos::Left, VPos::Bottom);
    let above = (seconds(at + SECOND / 4), most as f64 + 2.0);
    panel.write(&label, above, label_style)
}
