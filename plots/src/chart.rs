//! What the plots have in common: their look.

use crate::load::SECOND;
use plotters::coord::types::RangedCoordf64;
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::error::Error;
use std::ops::Range;

pub(crate) const INK: RGBColor = RGBColor(36, 41, 47);
pub(crate) const FAINT_INK: RGBColor = RGBColor(87, 96, 106);
const GRID: RGBColor = RGBColor(234, 238, 242);
pub(crate) const OFFERED: RGBColor = RGBColor(201, 208, 216);
pub(crate) const ADMITTED: RGBColor = RGBColor(9, 105, 218);
pub(crate) const SENT: RGBColor = RGBColor(219, 97, 9);
pub(crate) const LIMITED: RGBColor = RGBColor(207, 34, 46);

pub(crate) const WIDTH: u32 = 880;
/// Above the panels: title, what was called, legend.
const HEAD: u32 = 84;
/// Beside a panel: the y axis and its name.
const LEFT: u32 = 62;
const MARGIN: u32 = 18;
const TEXT: i32 = 16;

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A point of a panel: seconds and requests.
pub(crate) type Point = (f64, f64);

pub(crate) fn seconds(us: i64) -> f64 {
    us as f64 / SECOND as f64
}

/// What the legend says of one colour.
#[derive(Clone, Copy)]
pub(crate) enum Key {
    Bar(RGBColor, &'static str),
    Line(RGBColor, &'static str),
    Dashes(RGBColor, &'static str),
}

/// A page with its head; `draw` gets what is left of it.
pub(crate) fn page(
    height: u32,
    title: &str,
    subtitle: &str,
    legend: &[Key],
    draw: impl FnOnce(&Area<'_>) -> Result<()>,
) -> Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE)?;
        let (head, body) = root.split_vertically(HEAD);
        let bold = ("sans-serif", 24).into_font().style(FontStyle::Bold);
        let at = MARGIN as i32;
        head.draw(&Text::new(title.to_string(), (at, 12), bold.color(&INK)))?;
        head.draw(&Text::new(subtitle.to_string(), (at, 38), text(FAINT_INK)))?;
        draw_legend(&head, legend)?;
        draw(&body)?;
        root.present()?;
    }
    Ok(svg)
}

pub(crate) fn text(color: RGBColor) -> TextStyle<'static> {
    ("sans-serif", TEXT).into_font().color(&color)
}

pub(crate) fn text_at(color: RGBColor, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    text(color).pos(Pos::new(horizontal, vertical))
}

fn draw_legend(head: &Area<'_>, legend: &[Key]) -> Result<()> {
    const Y: i32 = 66;
    let mut x = MARGIN as i32;
    for key in legend {
        let label = match *key {
            Key::Bar(color, label) => {
                head.draw(&Rectangle::new(
                    [(x, Y - 6), (x + 22, Y + 6)],
                    color.filled(),
                ))?;
                label
            }
            Key::Line(color, label) => {
                let line = [(x, Y), (x + 22, Y)];
                head.draw(&PathElement::new(line, color.stroke_width(2)))?;
                label
            }
            Key::Dashes(color, label) => {
                let line = [(x, Y), (x + 22, Y)];
                let style = color.stroke_width(2);
                head.draw(&DashedPathElement::new(line, 6, 5, style))?;
                label
            }
        };
        let style = text_at(INK, HPos::Left, VPos::Center);
        head.draw(&Text::new(label, (x + 29, Y), style))?;
        // Nobody knows how wide the reader's font is: room for a wide one.
        x += 29 + 24 + label.chars().count() as i32 * 7;
    }
    Ok(())
}

/// One coordinate system of seconds and requests.
pub(crate) struct Panel<'a, 'b> {
    chart: ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>,
    x: Range<f64>,
}

/// The names of a panel's axes. Only the lowest one names the time.
pub(crate) struct Axes {
    pub(crate) x: Range<f64>,
    pub(crate) y: Range<f64>,
    pub(crate) y_name: &'static str,
    pub(crate) names_time: bool,
}

impl<'a, 'b> Panel<'a, 'b> {
    pub(crate) fn new(area: &'a Area<'b>, axes: &Axes) -> Result<Panel<'a, 'b>> {
        let mut chart = ChartBuilder::on(area)
            .margin_left(4)
            .margin_right(MARGIN)
            .margin_top(8)
            .margin_bottom(4)
            .x_label_area_size(if axes.names_time { 46 } else { 26 })
            .y_label_area_size(LEFT)
            .build_cartesian_2d(axes.x.clone(), axes.y.clone())?;
        let whole = |number: &f64| format!("{number:.0}");
        let mut mesh = chart.configure_mesh();
        mesh.x_labels(14)
            .y_labels(6)
            .max_light_lines(1)
            .bold_line_style(GRID)
            .light_line_style(GRID)
            .axis_style(FAINT_INK)
            .label_style(text(FAINT_INK))
            .axis_desc_style(text(INK))
            .x_label_formatter(&whole)
            .y_label_formatter(&whole)
            .y_desc(axes.y_name);
        if axes.names_time {
            mesh.x_desc("time in seconds");
        }
        mesh.draw()?;
        let x = axes.x.clone();
        Ok(Panel { chart, x })
    }

    /// Bars a second wide, from the instant that each begins with.
    pub(crate) fn bars(&mut self, counts: &[Point], color: RGBColor) -> Result<()> {
        let bar = |&(at, count): &Point| {
            Rectangle::new([(at + 0.1, 0.0), (at + 0.9, count)], color.filled())
        };
        let counts = counts.iter().filter(|(_, count)| *count > 0.0);
        self.chart.draw_series(counts.map(bar))?;
        Ok(())
    }

    /// A line that keeps each value until the next; `fill`: with the area below.
    pub(crate) fn steps(&mut self, values: &[Point], color: RGBColor, fill: bool) -> Result<()> {
        let mut line = vec![(self.x.start, 0.0)];
        for &(at, value) in values.iter().filter(|(at, _)| *at < self.x.end) {
            let before = line.last().map_or(0.0, |(_, value)| *value);
            line.push((at.max(self.x.start), before));
            line.push((at.max(self.x.start), value));
        }
        let last = line.last().map_or(0.0, |(_, value)| *value);
        line.push((self.x.end, last));
        if fill {
            let area = AreaSeries::new(line.iter().copied(), 0.0, color.mix(0.15));
            self.chart.draw_series(area)?;
        }
        let line = LineSeries::new(line, color.stroke_width(2));
        self.chart.draw_series(line)?;
        Ok(())
    }

    pub(crate) fn line(&mut self, line: [Point; 2], color: RGBColor) -> Result<()> {
        let line = LineSeries::new(line, color.stroke_width(1));
        self.chart.draw_series(line)?;
        Ok(())
    }

    /// The limit, from edge to edge.
    pub(crate) fn limit(&mut self, limit: f64) -> Result<()> {
        let line = [(self.x.start, limit), (self.x.end, limit)];
        let line = DashedLineSeries::new(line, 6, 5, LIMITED.stroke_width(2));
        self.chart.draw_series(line)?;
        Ok(())
    }

    pub(crate) fn write(
        &mut self,
        label: &str,
        at: Point,
        style: TextStyle<'static>,
    ) -> Result<()> {
        let label = Text::new(label.to_string(), at, style);
        self.chart.draw_series([label])?;
        Ok(())
    }
}
