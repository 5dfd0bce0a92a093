//! Charts as SVG text: lines over a number, groups of bars, and the map of a volume. Bytes depend on
//! the data only.

pub mod map;

use crate::escape;
use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 40.0;
const RIGHT: f64 = 150.0;
const BOTTOM: f64 = 50.0;

/// Colours that differ for any kind of sight (Okabe and Ito 2008).
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999933"];

/// What stands around the data.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Above all.
    pub title: &'a str,
    /// Name of the horizontal axis.
    pub x: &'a str,
    /// Name of the vertical axis.
    pub y: &'a str,
}

/// A named line.
#[derive(Clone, Debug)]
pub struct Line {
    /// For the legend.
    pub name: String,
    /// In the order in which they are joined.
    pub points: Vec<(f64, f64)>,
}

fn colour(at: usize) -> &'static str {
    COLOURS.get(at % COLOURS.len()).copied().unwrap_or("#000000")
}

/// A range that is not empty, and distances of 1, 2 or 5 times a power of ten for about five marks.
fn ticks(low: f64, high: f64) -> (f64, f64, f64) {
    let span = if high > low { high - low } else { 1.0f64.max(low.abs() * 0.1) };
    let rough = span / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= rough).unwrap_or(power);
    ((low / step).floor() * step, ((low + span) / step).ceil() * step, step)
}

/// A mark's number without superfluous digits.
fn label(value: f64, step: f64) -> String {
    match step {
        _ if step >= 1_000_000.0 => format!("{:.0}M", value / 1e6),
        _ if step >= 10_000.0 => format!("{:.0}k", value / 1e3),
        _ if step >= 1.0 => format!("{value:.0}"),
        _ if step >= 0.1 => format!("{value:.1}"),
        _ if step >= 0.01 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// The drawing so far, and the range of its values.
struct Canvas {
    out: String,
    x: (f64, f64),
    y: (f64, f64),
}

impl Canvas {
    fn new(frame: Frame<'_>, x: (f64, f64), y: (f64, f64)) -> Canvas {
        let mut canvas = Canvas { out: String::new(), x, y };
        canvas.add(&format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {HEIGHT:.0}\" font-family=\"sans-serif\" font-size=\"12\">"
        ));
        canvas.add(&format!("<rect width=\"{WIDTH:.0}\" height=\"{HEIGHT:.0}\" fill=\"#ffffff\"/>"));
        canvas.text(
            (LEFT, 22.0),
            "start",
            &format!("<tspan font-size=\"15\">{}</tspan>", escape(frame.title)),
        );
        canvas.text(((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 10.0), "middle", &escape(frame.x));
        let middle = (TOP + HEIGHT - BOTTOM) / 2.0;
        canvas.add(&format!(
            "<text x=\"16\" y=\"{middle:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {middle:.1})\">{}</text>",
            escape(frame.y)
        ));
        canvas
    }

    fn add(&mut self, element: &str) {
        // Writing to a string can't fail.
        let _ = writeln!(self.out, "{element}");
    }

    fn text(&mut self, (x, y): (f64, f64), anchor: &str, text: &str) {
        self.add(&format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"));
    }

    fn across(&self, value: f64) -> f64 {
        LEFT + (value - self.x.0) / (self.x.1 - self.x.0) * (WIDTH - LEFT - RIGHT)
    }

    fn up(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - (value - self.y.0) / (self.y.1 - self.y.0) * (HEIGHT - TOP - BOTTOM)
    }

    fn rule(&mut self, from: (f64, f64), to: (f64, f64), colour: &str) {
        self.add(&format!(
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\"/>",
            from.0, from.1, to.0, to.1
        ));
    }

    fn marks_up(&mut self, step: f64) {
        let mut value = self.y.0;
        while value <= self.y.1 + step / 2.0 {
            let y = self.up(value);
            self.rule((LEFT, y), (WIDTH - RIGHT, y), "#dddddd");
            self.text((LEFT - 6.0, y + 4.0), "end", &label(value, step));
            value += step;
        }
    }

    fn marks_across(&mut self, step: f64) {
        let mut value = self.x.0;
        while value <= self.x.1 + step / 2.0 {
            let x = self.across(value);
            self.rule((x, HEIGHT - BOTTOM), (x, HEIGHT - BOTTOM + 5.0), "#444444");
            self.text((x, HEIGHT - BOTTOM + 18.0), "middle", &label(value, step));
            value += step;
        }
    }

    fn legend(&mut self, names: impl Iterator<Item = String>) {
        let mut y = TOP + 10.0;
        for (at, name) in names.enumerate() {
            let x = WIDTH - RIGHT + 12.0;
            self.add(&format!(
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{}\"/>",
                y - 10.0,
                colour(at)
            ));
            self.text((x + 18.0, y), "start", &escape(&name));
            y += 18.0;
        }
    }

    fn finish(mut self) -> String {
        self.rule((LEFT, TOP), (LEFT, HEIGHT - BOTTOM), "#444444");
        self.rule((LEFT, HEIGHT - BOTTOM), (WIDTH - RIGHT, HEIGHT - BOTTOM), "#444444");
        self.add("</svg>");
        self.out
    }
}

fn range(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = values.fold(f64::NEG_INFINITY, f64::max);
    if low.is_finite() && high.is_finite() { (low, high) } else { (0.0, 1.0) }
}

/// Lines over a common axis; the vertical axis covers what occurs.
#[must_use]
pub fn lines(frame: Frame<'_>, lines: &[Line]) -> String {
    let all = lines.iter().flat_map(|line| line.points.iter().copied());
    let x = range(all.clone().map(|(x, _)| x));
    let y = range(all.map(|(_, y)| y));
    let (x_low, x_high, x_step) = ticks(x.0.min(0.0), x.1);
    let (y_low, y_high, y_step) = ticks(y.0, y.1);
    let mut canvas = Canvas::new(frame, (x_low, x_high), (y_low, y_high));
    canvas.marks_up(y_step);
    canvas.marks_across(x_step);
    for (at, line) in lines.iter().enumerate() {
        let mut path = String::new();
        for &(x, y) in &line.points {
            let _ = write!(path, "{:.1},{:.1} ", canvas.across(x), canvas.up(y));
        }
        canvas.add(&format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>",
            path.trim_end(),
            colour(at)
        ));
    }
    canvas.legend(lines.iter().map(|line| line.name.clone()));
    canvas.finish()
}

/// Groups of bars: one group per name of `groups`, one bar in each per series.
#[must_use]
pub fn bars(frame: Frame<'_>, groups: &[String], series: &[(String, Vec<f64>)]) -> String {
    let (_, high, step) = ticks(0.0, range(series.iter().flat_map(|(_, v)| v.iter().copied())).1.max(1e-9));
    let count = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    let mut canvas = Canvas::new(frame, (0.0, count(groups.len()).max(1.0)), (0.0, high));
    canvas.marks_up(step);
    let width = 0.8 / count(series.len()).max(1.0);
    for (group, name) in groups.iter().enumerate() {
        let middle = canvas.across(count(group) + 0.5);
        canvas.text((middle, HEIGHT - BOTTOM + 18.0), "middle", &escape(name));
        for (at, (_, values)) in series.iter().enumerate() {
            let value = values.get(group).copied().unwrap_or(0.0);
            let left = canvas.across(count(group) + 0.1 + width * count(at));
            let right = canvas.across(count(group) + 0.1 + width * count(at + 1));
            let (top, bottom) = (canvas.up(value), canvas.up(0.0));
            canvas.add(&format!(
                "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"/>",
                right - left,
                bottom - top,
                colour(at)
            ));
        }
    }
    canvas.legend(series.iter().map(|(name, _)| name.clone()));
    canvas.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_lie_on_round_numbers_around_the_data() {
        assert_eq!(ticks(0.0, 4.7), (0.0, 5.0, 1.0));
        let (low, high, step) = ticks(1.002, 1.013);
        assert!((low, high) == (1.0, 1.014) || high < 1.016, "{low} {high} {step}");
        assert!(step > 0.0019 && step < 0.0051, "{step}");
        let (low, high, step) = ticks(3.0, 3.0);
        assert!(low <= 3.0 && high > low && step > 0.0);
    }

    #[test]
    fn charts_are_closed_and_named() {
        let frame = Frame { title: "a < b", x: "time", y: "extents" };
        let line = Line { name: "lease".into(), points: vec![(0.0, 1.0), (5.0, 2.0)] };
        let text = lines(frame, &[line]);
        assert!(text.starts_with("<svg") && text.ends_with("</svg>\n"));
        assert!(text.contains("a &lt; b") && text.contains(">lease<") && text.contains("polyline"));
        let text = bars(frame, &["1".into(), "2".into()], &[("lease".into(), vec![1.0, 3.0])]);
        assert_eq!(text.matches("<rect").count(), 1 + 1 + 2, "background, legend, bars");
        assert!(!text.contains("NaN") && !lines(frame, &[]).contains("NaN"));
    }
}
