//! A chart for each published ratio: the published factor and ours with its interval, on one logarithmic axis for a table.
//!
//! Owns the axis and the marks. Positions are shares of the width and sizes are pixels, so a chart is as wide as its
//! place and its marks keep their shape. Needs no script. Excludes the counts and the table of the same ratios, which
//! are [`super::ratios`]'s.

use std::fmt::Write;

use chart::escape;

use super::digest::{Digest, Table};
use crate::results::{Class, Size};
use crate::table::show;

/// Charts on a page at most.
const SHOWN: usize = 600;
/// Half of the height of a chart in pixels.
const MIDDLE: u32 = 11;
/// Share of the width, in percent, on each side of the axis: what lies outside of it stands there.
const MARGIN: f64 = 3.0;

/// The charts of the tables of a digest, in its order: what is left of [`SHOWN`] goes to the next table.
pub(super) fn charts(digest: &Digest) -> Vec<String> {
    let mut left = SHOWN;
    let mut chart = |table: &Table| {
        let shown = table.sizes.len().min(left);
        left -= shown;
        one_table(&table.sizes[..shown], table.sizes.len() - shown)
    };
    digest.tables.iter().map(&mut chart).collect()
}

fn one_table(sizes: &[Size], more: usize) -> String {
    if sizes.is_empty() {
        return String::new();
    }
    let axis = Axis::of(sizes);
    let mut out = "<figure class=\"claims\"><figcaption>Each published factor, a system over its baseline, and ours: a \
                   bar where it was published (wide: what the document itself varies), a mark for ours with its \
                   interval of 95 %. One is no effect; what is beyond the axis stands at its end.</figcaption>"
        .to_string();
    legend(&mut out);
    let _ = write!(out, "<div class=\"claim ends\"><span></span>{}<span></span></div>", axis.labels());
    for size in sizes {
        claim(&mut out, axis, size);
    }
    if more > 0 {
        let _ = write!(out, "<p class=\"soft small\">{more} more are in the table below.</p>");
    }
    out.push_str("</figure>\n");
    out
}

fn legend(out: &mut String) {
    out.push_str("<p class=\"kinds small\">");
    for class in Class::ALL.into_iter().filter(|class| *class != Class::Undefined) {
        let _ = write!(
            out,
            "<span class=\"kind\"><svg class=\"{}\" width=\"14\" height=\"22\" aria-hidden=\"true\">{}</svg>{}</span> ",
            style(class),
            mark(class, "50%"),
            class.name()
        );
    }
    out.push_str("</p>");
}

fn claim(out: &mut String, axis: Axis, size: &Size) {
    let what = escape(&format!("{}, {}: {} over {}", size.case, size.figure, size.system, size.over));
    let ours = match size.ratio {
        Some(ratio) if size.half > 0.0 => format!("{} \u{b1} {}", show(ratio), show(size.half)),
        Some(ratio) => show(ratio),
        None => "-".into(),
    };
    let published = size.published.map_or_else(|| "-".into(), show);
    let numbers = format!("{ours}; published {published}; {}", size.class.name());
    let _ = writeln!(
        out,
        "<div class=\"claim {}\"><span>{what}</span><svg role=\"img\" aria-label=\"{what}: {numbers}\" height=\"{}\">{}</svg>\
         <span class=\"soft\">{numbers}</span></div>",
        style(size.class),
        2 * MIDDLE,
        axis.drawing(size)
    );
}

/// The class of the style, which gives the shade.
fn style(class: Class) -> &'static str {
    match class {
        Class::Reproduced => "c0",
        Class::Near => "c1",
        Class::Direction => "c2",
        Class::Not => "c3",
        Class::Undefined => "c4",
    }
}

/// A mark of a shape of its own, so that classes differ without colours, too.
fn mark(class: Class, at: &str) -> String {
    let shape = match class {
        Class::Reproduced => return format!("<circle class=\"own\" cx=\"{at}\" cy=\"{MIDDLE}\" r=\"5\"/>"),
        Class::Near => "M0-6.5 6 0 0 6.5-6 0Z",
        Class::Direction => "M0-5.5 6 5H-6Z",
        Class::Not | Class::Undefined => "M-5-5 5 5M5-5-5 5",
    };
    format!("<svg x=\"{at}\" y=\"{MIDDLE}\" overflow=\"visible\"><path class=\"own\" d=\"{shape}\"/></svg>")
}

/// A logarithmic axis from one power of two or ten to another.
#[derive(Clone, Copy)]
struct Axis {
    low: f64,
    high: f64,
    /// Factor between marks of the axis.
    step: f64,
}

impl Axis {
    /// One that has all the factors of a table, and one, within a million to both sides.
    fn of(sizes: &[Size]) -> Axis {
        let values =
            sizes.iter().flat_map(|size| [size.ratio, size.published, size.low, size.high]).flatten();
        let values = values.filter(|value| value.is_finite() && *value > 0.0).map(|value| value.ln());
        let (low, high) = values.fold((0f64, 0f64), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = (low.max(-1e6f64.ln()), high.min(1e6f64.ln()));
        let step = if high - low > 64f64.ln() { 10f64 } else { 2.0 };
        let step = step.ln();
        // Ends are marks; what lies on one may be a little beyond it by rounding.
        let low = (low / step + 1e-9).floor() * step;
        let high = (high / step - 1e-9).ceil() * step;
        Axis { low, high: if high > low { high } else { low + step }, step }
    }

    /// The place of a factor in percent of the width; none and less are at the left end.
    fn at(self, factor: f64) -> f64 {
        let share = if factor > 0.0 { (factor.ln() - self.low) / (self.high - self.low) } else { -1.0 };
        let inner = 100.0 - 2.0 * MARGIN;
        // Beyond the axis: half of the margin away from it.
        (MARGIN + share * inner).clamp(MARGIN / 2.0, 100.0 - MARGIN / 2.0)
    }

    /// The logarithms of its marks.
    fn marks(self) -> impl Iterator<Item = f64> {
        let count = ((self.high - self.low) / self.step).round();
        (0..=40u32).map(f64::from).take_while(move |n| *n <= count).map(move |n| self.low + n * self.step)
    }

    /// The numbers of the axis.
    fn labels(self) -> String {
        let mut out = "<svg height=\"16\" aria-hidden=\"true\">".to_string();
        // Few enough for a narrow window.
        let each = (self.marks().count().div_ceil(7)).max(1);
        for mark in self.marks().step_by(each) {
            let factor = mark.exp();
            let text = if factor < 0.999 { format!("1/{}", number(1.0 / factor)) } else { number(factor) };
            let _ = write!(
                out,
                "<text x=\"{:.2}%\" y=\"12\" text-anchor=\"middle\">{text}</text>",
                self.at(factor)
            );
        }
        out + "</svg>"
    }

    fn drawing(self, size: &Size) -> String {
        let mut out = String::new();
        for mark in self.marks() {
            let class = if mark.abs() < 1e-9 { "base" } else { "axis" };
            let at = self.at(mark.exp());
            let _ =
                write!(out, "<line class=\"{class}\" x1=\"{at:.2}%\" x2=\"{at:.2}%\" y1=\"0\" y2=\"100%\"/>");
        }
        let finite = |value: Option<f64>| value.filter(|value| value.is_finite());
        if let (Some(low), Some(high)) = (finite(size.low), finite(size.high)) {
            let (low, high) = (self.at(low), self.at(high));
            let _ = write!(
                out,
                "<rect class=\"spread\" x=\"{low:.2}%\" y=\"3\" width=\"{:.2}%\" height=\"16\"/>",
                (high - low).max(0.0)
            );
        }
        if let Some(published) = finite(size.published) {
            let at = self.at(published);
            let _ = write!(out, "<line class=\"was\" x1=\"{at:.2}%\" x2=\"{at:.2}%\" y1=\"2\" y2=\"20\"/>");
        }
        if let Some(ratio) = finite(size.ratio) {
            if size.half > 0.0 && size.half.is_finite() {
                let (low, high) = (self.at(ratio - size.half), self.at(ratio + size.half));
                let _ = write!(
                    out,
                    "<line class=\"span\" x1=\"{low:.2}%\" x2=\"{high:.2}%\" y1=\"{MIDDLE}\" y2=\"{MIDDLE}\"/>"
                );
            }
            out.push_str(&mark(size.class, &format!("{:.2}%", self.at(ratio))));
        }
        out
    }
}

/// A mark's number: short for thousands.
fn number(value: f64) -> String {
    match value {
        _ if value >= 999_999.0 => format!("{:.0}M", value / 1e6),
        _ if value >= 9_999.0 => format!("{:.0}k", value / 1e3),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Record;

    fn size(class: Class, ratio: f64, published: f64) -> Size {
        let (ratio, published) = (Some(ratio), Some(published));
        Size { table: "S1".into(), case: "a<b".into(), ratio, published, class, ..Size::default() }
    }

    #[test]
    fn every_claim_has_a_chart_and_every_class_a_shape_of_its_own() {
        let sizes = [
            Size { half: 0.5, low: Some(3.0), high: Some(5.0), ..size(Class::Reproduced, 4.0, 4.1) },
            size(Class::Near, 2.0, 3.5),
            size(Class::Direction, 1.1, 8.0),
            size(Class::Not, 0.5, 2.0),
            Size { ratio: None, ..size(Class::Undefined, 0.0, 2.0) },
        ];
        let named = (0..).zip(sizes).map(|(n, size): (u32, Size)| Size { case: format!("a<{n}"), ..size });
        let charts = charts(&Digest::of(named.map(Record::from).collect()));
        let [chart] = &charts[..] else { panic!("one table") };
        assert_eq!(chart.matches("role=\"img\"").count(), 5);
        assert_eq!(chart.matches("class=\"was\"").count(), 5);
        assert_eq!(
            (chart.matches("class=\"span\"").count(), chart.matches("class=\"spread\"").count()),
            (1, 1)
        );
        assert!(chart.contains("a&lt;3") && !chart.contains("NaN") && !chart.contains("inf"));
        let shapes = Class::ALL.map(|class| mark(class, "1%"));
        assert!((0..4).all(|at| !shapes[..at].contains(&shapes[at])));
        assert!(charts_of_none());
    }

    fn charts_of_none() -> bool {
        let mut digest = Digest::of(vec![Record::from(size(Class::Near, 1.0, 1.0))]);
        digest.tables[0].sizes.clear();
        super::charts(&digest) == [String::new()]
    }

    /// A factor is as far from one as its inverse; ends are the axis' own, and what is beyond them is still seen.
    #[test]
    fn the_axis_is_logarithmic_and_holds_everything() {
        let axis = Axis::of(&[size(Class::Near, 3.0, 1.0 / 7.0)]);
        assert!((axis.low.exp() - 0.125).abs() < 1e-9 && (axis.high.exp() - 4.0).abs() < 1e-9);
        let one = axis.at(1.0);
        assert!((axis.at(2.0) - one - (one - axis.at(0.5))).abs() < 1e-9);
        assert!((axis.at(0.125) - MARGIN).abs() < 1e-9 && (axis.at(4.0) - 100.0 + MARGIN).abs() < 1e-9);
        for beyond in [0.0, -1.0, 1e-300] {
            assert!(axis.at(beyond) > 0.0 && axis.at(beyond) < MARGIN);
        }
        assert!(axis.at(f64::MAX) < 100.0);
        let wide = Axis::of(&[size(Class::Not, 1e300, 1e-300)]);
        assert!(
            wide.marks().count() <= 14 && wide.labels().contains(">1M<") && wide.labels().contains(">1<")
        );
        let same = Axis::of(&[size(Class::Reproduced, 1.0, 1.0)]);
        assert!(same.high > same.low && same.marks().count() >= 2);
    }

    #[test]
    fn a_page_of_very_many_claims_shows_some_of_them() {
        let many = (0..900).map(|n| Size { case: n.to_string(), ..size(Class::Near, 1.0, 2.0) });
        let second = Size { table: "S2".into(), ..size(Class::Near, 1.0, 2.0) };
        let charts = charts(&Digest::of(many.chain([second]).map(Record::from).collect()));
        assert_eq!(charts.concat().matches("role=\"img\"").count(), SHOWN);
        assert!(charts[0].contains("300 more") && charts[1].is_empty());
    }
}
