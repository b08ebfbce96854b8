//! Charts as SVG, one file each, readable on white and in print.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::headlines::show;

const FONT: &str = "sans-serif";
const OURS: RGBColor = RGBColor(0, 122, 135);
const OTHERS: RGBColor = RGBColor(150, 160, 170);
const SERIES: [RGBColor; 4] =
    [RGBColor(0, 122, 135), RGBColor(214, 96, 40), RGBColor(90, 80, 160), RGBColor(110, 120, 130)];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// One bar of a chart.
pub struct Bar {
    pub label: String,
    pub value: f64,
    pub is_ours: bool,
}

/// Draws horizontal bars, one below the other, with their values.
pub fn bars(file: &Path, title: &str, bars: &[Bar]) -> Result<()> {
    let height = 70 + 34 * bars.len() as u32;
    let root = SVGBackend::new(file, (860, height)).into_drawing_area();
    draw_bars(&root, title, bars).map_err(|error| anyhow!("Failed to draw {}: {error}", file.display()))
}

fn draw_bars(root: &Area, title: &str, bars: &[Bar]) -> Result<()> {
    root.fill(&WHITE)?;
    let plain = |size: i32| (FONT, size).into_font().color(&BLACK);
    root.draw(&Text::new(title.to_owned(), (20, 18), plain(18)))?;
    let most = bars.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
    let (left, widest) = (320, 420.0);
    for (bar, row) in bars.iter().zip(0..) {
        let top = 56 + 34 * row;
        let right = left + (bar.value / most * widest).max(1.0) as i32;
        let color = if bar.is_ours { OURS } else { OTHERS };
        let label = plain(14).pos(Pos::new(HPos::Right, VPos::Center));
        root.draw(&Text::new(bar.label.clone(), (left - 10, top + 12), label))?;
        root.draw(&Rectangle::new([(left, top), (right, top + 24)], color.filled()))?;
        let value = plain(14).pos(Pos::new(HPos::Left, VPos::Center));
        root.draw(&Text::new(show(bar.value), (right + 8, top + 12), value))?;
    }
    root.present()?;
    Ok(())
}

/// A named line through points.
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// The titles of the axes of a line chart; both axes are logarithmic.
pub struct Axes<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub y: &'a str,
}

pub fn lines(file: &Path, axes: &Axes, lines: &[Line]) -> Result<()> {
    let root = SVGBackend::new(file, (860, 420)).into_drawing_area();
    draw_lines(&root, axes, lines).map_err(|error| anyhow!("Failed to draw {}: {error}", file.display()))
}

fn draw_lines(root: &Area, axes: &Axes, lines: &[Line]) -> Result<()> {
    root.fill(&WHITE)?;
    let all = || lines.iter().flat_map(|line| &line.points);
    let (x_min, x_max) = bounds(all().map(|point| point.0));
    // This leaves room for the legend.
    let x_max = x_max * (x_max / x_min).powf(0.2);
    let (y_min, y_max) = bounds(all().map(|point| point.1));
    let mut chart = ChartBuilder::on(root)
        .margin(20)
        .caption(axes.title, (FONT, 18))
        .x_label_area_size(45)
        .y_label_area_size(75)
        .build_cartesian_2d((x_min..x_max).log_scale(), (y_min..y_max).log_scale())?;
    chart
        .configure_mesh()
        .x_desc(axes.x)
        .y_desc(axes.y)
        .light_line_style(WHITE)
        .x_label_formatter(&|value| show_short(*value))
        .y_label_formatter(&|value| show_short(*value))
        .draw()?;
    for (line, color) in lines.iter().zip(SERIES.iter().cycle()) {
        let style = color.stroke_width(2);
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), style))?
            .label(line.name.as_str())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        chart.draw_series(line.points.iter().map(|point| Circle::new(*point, 3, color.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::MiddleRight)
        .border_style(OTHERS)
        .background_style(WHITE.mix(0.9))
        .draw()?;
    root.present()?;
    Ok(())
}

/// The bounds of an axis: a little more than the least and the most, all above zero.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (least, most) = values
        .filter(|value| *value > 0.0)
        .fold((f64::MAX, f64::MIN_POSITIVE), |(least, most), value| (least.min(value), most.max(value)));
    if least > most { (0.1, 1.0) } else { (least * 0.8, most * 1.4) }
}

fn show_short(value: f64) -> String {
    if value >= 1_000.0 {
        format!("{}k", value / 1_000.0)
    } else {
        format!("{}", (value * 1e3).round() / 1e3)
    }
}
