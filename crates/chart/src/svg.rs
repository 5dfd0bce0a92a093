//! Charts as SVG text: lines over a number, groups of bars, and the map of a volume. Bytes depend on
//! the data only.

pub mod map;

use crate::colours::{INK, PAPER, Pair, RULE, SOFT, fill, hex, series, style};
use crate::escape;
use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
/// Least and largest room for the legend, and of a character in it.
const LEGEND: (f64, f64) = (150.0, 300.0);
const CHARACTER: f64 = 6.6;
/// Longest name of a legend in characters.
const LONGEST: usize = 40;
/// Least distance of names below bars.
const APART: f64 = 34.0;
/// Lines with fewer points have a mark at each: one point alone is no line.
const FEW: usize = 12;
/// Length of a dash.
const DASH: usize = 7;

/// Frame around the data.
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

#[expect(clippy::cast_precision_loss, reason = "places on a picture")]
fn float(count: usize) -> f64 {
    count as f64
}

/// The begin of an axis: at zero, unless all values lie far from it and close together.
fn begin(low: f64, high: f64) -> f64 {
    if low >= 0.0 && low < 0.6 * high { 0.0 } else { low }
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
    /// The place at which the data ends and the legend begins.
    right: f64,
}

impl Canvas {
    fn new(frame: Frame<'_>, x: (f64, f64), y: (f64, f64), names: &[&str]) -> Canvas {
        let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let legend = (40.0 + CHARACTER * float(longest)).clamp(LEGEND.0, LEGEND.1);
        let mut canvas = Canvas { out: String::new(), x, y, right: WIDTH - legend };
        canvas.add(&format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {HEIGHT:.0}\" role=\"img\" font-family=\"sans-serif\" font-size=\"12\">"
        ));
        canvas.add(&format!("<title>{}: {}</title>", escape(frame.title), escape(frame.y)));
        canvas.add(&style(&classes(names.len())));
        canvas.add(&format!("<rect width=\"{WIDTH:.0}\" height=\"{HEIGHT:.0}\" {}/>", fill("paper", PAPER)));
        canvas.text(
            (LEFT, 22.0),
            "start",
            &format!("<tspan font-size=\"15\">{}</tspan>", escape(frame.title)),
        );
        canvas.text(((LEFT + canvas.right) / 2.0, HEIGHT - 10.0), "middle", &escape(frame.x));
        let middle = (TOP + HEIGHT - BOTTOM) / 2.0;
        canvas.add(&format!(
            "<text x=\"16\" y=\"{middle:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {middle:.1})\" {}>{}</text>",
            fill("ink", INK),
            escape(frame.y)
        ));
        canvas
    }

    fn add(&mut self, element: &str) {
        // Writing to a string can't fail.
        let _ = writeln!(self.out, "{element}");
    }

    fn text(&mut self, (x, y): (f64, f64), anchor: &str, text: &str) {
        let ink = fill("ink", INK);
        self.add(&format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {ink}>{text}</text>"));
    }

    fn across(&self, value: f64) -> f64 {
        LEFT + (value - self.x.0) / (self.x.1 - self.x.0) * (self.right - LEFT)
    }

    fn up(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - (value - self.y.0) / (self.y.1 - self.y.0) * (HEIGHT - TOP - BOTTOM)
    }

    fn rule(&mut self, from: (f64, f64), to: (f64, f64), (class, colour): (&str, Pair)) {
        self.add(&format!(
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" class=\"{class}\" stroke=\"{}\"/>",
            from.0,
            from.1,
            to.0,
            to.1,
            hex(colour.0)
        ));
    }

    fn marks_up(&mut self, step: f64) {
        let mut value = self.y.0;
        while value <= self.y.1 + step / 2.0 {
            let y = self.up(value);
            self.rule((LEFT, y), (self.right, y), AXIS);
            self.text((LEFT - 6.0, y + 4.0), "end", &label(value, step));
            value += step;
        }
    }

    fn marks_across(&mut self, step: f64) {
        let mut value = self.x.0;
        while value <= self.x.1 + step / 2.0 {
            let x = self.across(value);
            self.rule((x, HEIGHT - BOTTOM), (x, HEIGHT - BOTTOM + 5.0), BASE);
            self.text((x, HEIGHT - BOTTOM + 18.0), "middle", &label(value, step));
            value += step;
        }
    }

    fn legend(&mut self, names: &[&str]) {
        let mut y = TOP + 10.0;
        for (at, name) in names.iter().enumerate() {
            let x = self.right + 12.0;
            let own = fill(&format!("s{at}"), series(at));
            self.add(&format!("<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" {own}/>", y - 10.0));
            self.text((x + 18.0, y), "start", &escape(&short(name)));
            y += 18.0_f64.min((HEIGHT - TOP - 10.0) / float(names.len()));
        }
    }

    /// A line; of those that cover each other each has dashes where the others have gaps.
    fn line(&mut self, at: usize, points: &[(f64, f64)], own: usize, all: usize) {
        let points: Vec<_> = points.iter().map(|&(x, y)| (self.across(x), self.up(y))).collect();
        let mut path = String::new();
        for (x, y) in &points {
            let _ = write!(path, "{x:.1},{y:.1} ");
        }
        let dashes = match all {
            0 | 1 => String::new(),
            _ => format!(
                " stroke-dasharray=\"{DASH} {}\" stroke-dashoffset=\"-{}\"",
                DASH * (all - 1),
                DASH * own
            ),
        };
        let colour = series(at);
        self.add(&format!(
            "<polyline points=\"{}\" fill=\"none\" class=\"s{at}-\" stroke=\"{}\" stroke-width=\"2\"{dashes}/>",
            path.trim_end(),
            hex(colour.0)
        ));
        let marks = if points.len() < FEW { &*points } else { &[] };
        for (x, y) in marks {
            let own = fill(&format!("s{at}"), colour);
            self.add(&format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" {own}/>"));
        }
    }

    fn finish(mut self) -> String {
        self.rule((LEFT, TOP), (LEFT, HEIGHT - BOTTOM), BASE);
        self.rule((LEFT, HEIGHT - BOTTOM), (self.right, HEIGHT - BOTTOM), BASE);
        self.add("</svg>");
        self.out
    }
}

const AXIS: (&str, Pair) = ("axis-", RULE);
const BASE: (&str, Pair) = ("base-", SOFT);

/// Everything in a drawing that has a colour of its own where it is dark.
fn classes(count: usize) -> Vec<(String, Pair)> {
    let own = (0..count).flat_map(|at| [(format!("s{at}"), series(at)), (format!("s{at}-"), series(at))]);
    let around = [("paper", PAPER), ("ink", INK), AXIS, BASE];
    around.into_iter().map(|(class, colour)| (class.to_owned(), colour)).chain(own).collect()
}

/// A name as a legend has room for it.
fn short(name: &str) -> String {
    if name.chars().count() <= LONGEST {
        return name.to_owned();
    }
    name.chars().take(LONGEST - 1).chain(std::iter::once('\u{2026}')).collect()
}

fn range(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = values.fold(f64::NEG_INFINITY, f64::max);
    if low.is_finite() && high.is_finite() { (low, high) } else { (0.0, 1.0) }
}

/// Lines over a common axis. The vertical axis begins at zero, or says where it begins.
#[must_use]
pub fn lines(frame: Frame<'_>, lines: &[Line]) -> String {
    let all = lines.iter().flat_map(|line| line.points.iter().copied());
    let x = range(all.clone().map(|(x, _)| x));
    let y = range(all.map(|(_, y)| y));
    let (x_low, x_high, x_step) = ticks(x.0.min(0.0), x.1);
    let (y_low, y_high, y_step) = ticks(begin(y.0, y.1), y.1);
    let from =
        if y_low > 0.0 { format!("{}, from {}", frame.y, label(y_low, y_step)) } else { frame.y.into() };
    let names: Vec<&str> = lines.iter().map(|line| &*line.name).collect();
    let frame = Frame { y: &from, ..frame };
    let mut canvas = Canvas::new(frame, (x_low, x_high), (y_low, y_high), &names);
    canvas.marks_up(y_step);
    canvas.marks_across(x_step);
    for (at, line) in lines.iter().enumerate() {
        let same = |others: &[Line]| others.iter().filter(|other| other.points == line.points).count();
        canvas.line(at, &line.points, same(lines.get(..at).unwrap_or_default()), same(lines));
    }
    canvas.legend(&names);
    canvas.finish()
}

/// Groups of bars: one group per name of `groups`, one bar in each per series.
#[must_use]
pub fn bars(frame: Frame<'_>, groups: &[String], series_of_bars: &[(String, Vec<f64>)]) -> String {
    let (_, high, step) =
        ticks(0.0, range(series_of_bars.iter().flat_map(|(_, v)| v.iter().copied())).1.max(1e-9));
    let names: Vec<&str> = series_of_bars.iter().map(|(name, _)| &**name).collect();
    let mut canvas = Canvas::new(frame, (0.0, float(groups.len()).max(1.0)), (0.0, high), &names);
    canvas.marks_up(step);
    let width = 0.8 / float(series_of_bars.len()).max(1.0);
    let mut last = f64::NEG_INFINITY;
    for (group, name) in groups.iter().enumerate() {
        let middle = canvas.across(float(group) + 0.5);
        if middle - last > APART {
            canvas.text((middle, HEIGHT - BOTTOM + 18.0), "middle", &escape(name));
            last = middle;
        }
        for (at, (_, values)) in series_of_bars.iter().enumerate() {
            let value = values.get(group).copied().unwrap_or(0.0);
            let left = canvas.across(float(group) + 0.1 + width * float(at));
            let right = canvas.across(float(group) + 0.1 + width * float(at + 1));
            let (top, bottom) = (canvas.up(value), canvas.up(0.0));
            canvas.add(&format!(
                "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" {}/>",
                right - left,
                bottom - top,
                fill(&format!("s{at}"), series(at))
            ));
        }
    }
    canvas.legend(&names);
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

    /// The values of an attribute of all elements of a kind.
    fn values<'t>(text: &'t str, element: &str, attribute: &str) -> Vec<&'t str> {
        let elements = text.lines().filter(|line| line.starts_with(element));
        let value = |line: &'t str| line.split(&format!("{attribute}=\"")).nth(1)?.split('"').next();
        elements.filter_map(value).collect()
    }

    #[test]
    fn lines_differ_in_colour_and_none_hides_another() {
        let frame = Frame { title: "t", x: "x", y: "extents" };
        let line =
            |at: u32| Line { name: format!("system {at}"), points: vec![(0.0, f64::from(at)), (1.0, 2.0)] };
        let text = lines(frame, &(0..30).map(line).collect::<Vec<_>>());
        let colours: std::collections::BTreeSet<_> =
            values(&text, "<polyline", "stroke").into_iter().collect();
        assert_eq!(colours.len(), 30);
        assert!(!text.contains("dasharray"), "none is covered");
        let rows = values(&text, "<text", "y").into_iter().filter_map(|y| y.parse::<f64>().ok());
        assert!(rows.fold(0.0, f64::max) < HEIGHT, "thirty names have room");
        let covered = lines(frame, &[line(1), line(5), line(1)]);
        assert_eq!(values(&covered, "<polyline", "stroke-dasharray"), ["7 7", "7 7"]);
        assert_eq!(values(&covered, "<polyline", "stroke-dashoffset"), ["-0", "-7"]);
        let alone = Line { name: "one".into(), points: vec![(3.0, 4.0)] };
        assert_eq!(values(&lines(frame, &[alone]), "<circle", "r"), ["3"]);
    }

    #[test]
    fn axes_begin_at_zero_or_say_where() {
        let frame = Frame { title: "t", x: "x", y: "extents" };
        let drawn = |low: f64, high: f64| {
            lines(frame, &[Line { name: "n".into(), points: vec![(0.0, low), (1.0, high)] }])
        };
        assert!(drawn(1.0, 4.0).contains(">extents</text>") && drawn(1.0, 4.0).contains(">0<"));
        let close = drawn(1.002, 1.013);
        assert!(close.contains(">extents, from 1.00"), "{close}");
        let dark = "@media (prefers-color-scheme: dark)";
        assert!(close.contains("<title>t: extents, from 1.00") && close.contains(dark));
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
