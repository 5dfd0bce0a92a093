//! How large an effect is beside the published one: each ratio of a published system to its baseline, judged by size.
//!
//! Owns: which ratios a document published, ours of the same cells, and their classes. Excludes: orders and thresholds,
//! which are verdicts of each table.

use crate::results::{Cell, Class, Size};
use crate::summary::Summary;
use crate::table::{cases, in_order, published, summary, systems};

/// Base that the published figures of a table are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Baseline {
    /// Nothing was published.
    None,
    /// Another system, in the same case.
    System(&'static str),
    /// One system, in another case.
    Case(&'static str),
}

/// A figure's name and these give the lowest and the highest that was published of it.
pub(crate) const LOW: &str = " low";
pub(crate) const HIGH: &str = " high";

/// Ratios that differ by no more are the same effect.
const REPRODUCED: f64 = 1.25;
/// And by no more, near.
const NEAR: f64 = 2.0;

/// Two places of a table.
struct Pair<'c> {
    case: &'c str,
    system: &'c str,
    figure: &'c str,
    base: (&'c str, &'c str),
}

/// All ratios that were published of a table, with ours.
pub(crate) fn sizes(baseline: Baseline, cells: &[Cell]) -> Vec<Size> {
    let mut sizes = Vec::new();
    for case in cases(cells) {
        for system in systems(cells) {
            for figure in figures(cells, case, system) {
                let base = match baseline {
                    Baseline::System(base) if base != system => (case, base),
                    Baseline::Case(base) if base != case => (base, system),
                    _ => continue,
                };
                sizes.extend(Pair { case, system, figure, base }.judge(cells));
            }
        }
    }
    sizes
}

/// The figures that were published of a case and a system.
fn figures<'c>(cells: &'c [Cell], case: &str, system: &str) -> Vec<&'c str> {
    let own = cells.iter().filter(|cell| cell.case == case && cell.system == system);
    let names = own.flat_map(|cell| cell.published.0.iter().map(|(name, _)| &**name));
    in_order(names.filter(|name| !name.ends_with(LOW) && !name.ends_with(HIGH)))
}

impl Pair<'_> {
    fn judge(&self, cells: &[Cell]) -> Option<Size> {
        let Pair { case, system, figure, base } = *self;
        let was = |(case, system): (&str, &str)| published(cells, case, system, figure);
        let (of, over) = (was((case, system))?, was(base)?);
        let then = (over != 0.0).then(|| of / over);
        let is = |(case, system): (&str, &str)| summary(cells, case, system, figure);
        let measured = is((case, system)).zip(is(base));
        let ours = measured.and_then(|(own, base)| own.ratio(&base));
        let spread = self.spread(cells, of, over);
        let (ratio, half) = ours.unzip();
        Some(Size {
            table: cells.first()?.table.clone(),
            case: case.into(),
            figure: figure.into(),
            system: system.into(),
            over: if base.0 == case { base.1.into() } else { base.0.into() },
            ratio,
            half: half.unwrap_or(0.0),
            published: then,
            low: spread.map(|(low, _)| low),
            high: spread.map(|(_, high)| high),
            // What was measured and has nothing to divide by shows no effect where the document does.
            class: match (measured, ratio, then) {
                (Some(_), None, Some(_)) => Class::Not,
                _ => classed(ratio, then, spread),
            },
        })
    }

    /// The lowest and highest ratio of what was published, where ranges were.
    fn spread(&self, cells: &[Cell], of: f64, over: f64) -> Option<(f64, f64)> {
        let Pair { case, system, figure, base } = *self;
        let bound = |(case, system): (&str, &str), end: &str| {
            published(cells, case, system, &format!("{figure}{end}"))
        };
        let own = (bound((case, system), LOW), bound((case, system), HIGH));
        let other = (bound(base, LOW), bound(base, HIGH));
        own.0.or(other.0)?;
        let (low, high) = (own.0.unwrap_or(of), own.1.unwrap_or(of));
        Some((low / other.1.unwrap_or(over), high / other.0.unwrap_or(over)))
    }
}

/// The class of a ratio beside the published one.
fn classed(is: Option<f64>, was: Option<f64>, spread: Option<(f64, f64)>) -> Class {
    let (Some(is), Some(was)) = (is, was) else { return Class::Undefined };
    if !is.is_finite() || !was.is_finite() {
        return Class::Undefined;
    }
    if spread.is_some_and(|(low, high)| (low..=high).contains(&is)) {
        return Class::Reproduced;
    }
    if is <= 0.0 || was <= 0.0 {
        // Nothing left of something is only the same as nothing left.
        return if is == was { Class::Reproduced } else { Class::Not };
    }
    let apart = (is.ln() - was.ln()).abs();
    match () {
        () if apart <= REPRODUCED.ln() => Class::Reproduced,
        () if apart <= NEAR.ln() => Class::Near,
        () if is.ln() * was.ln() > 0.0 => Class::Direction,
        () => Class::Not,
    }
}

/// The lowest and highest mean that fits a published mean and deviation of a number of runs, at 95 %, under the names of
/// a figure.
pub(super) fn bounds(figure: &str, runs: usize, mean: f64, deviation: f64) -> [(String, f64); 2] {
    let summary = Summary { n: runs, min: mean, max: mean, median: mean, avg: mean, stddev: deviation };
    let half = summary.half();
    [(format!("{figure}{LOW}"), mean - half), (format!("{figure}{HIGH}"), mean + half)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Figures;

    fn cell(case: &str, system: &str, figures: &[(&str, f64)], published: &[(&str, f64)]) -> Cell {
        let named = |values: &[(&str, f64)]| Figures::from_iter(values.iter().copied());
        let (table, case, system) = ("T".into(), case.into(), system.into());
        Cell { table, case, system, figures: named(figures), published: named(published), ..Cell::default() }
    }

    #[test]
    fn ratios_are_classed_by_their_distance_from_the_published_one() {
        let class = |is, was| classed(Some(is), Some(was), None);
        assert_eq!(class(2.0, 2.4), Class::Reproduced);
        assert_eq!(class(0.5, 0.41), Class::Reproduced);
        assert_eq!(class(2.0, 3.9), Class::Near);
        assert_eq!(class(2.0, 4.1), Class::Direction);
        assert_eq!(class(0.4, 0.15), Class::Direction);
        assert_eq!(class(1.5, 0.6), Class::Not);
        assert_eq!(class(0.0, 0.0), Class::Reproduced);
        assert_eq!(class(0.1, 0.0), Class::Not);
        assert_eq!(class(f64::INFINITY, 2.0), Class::Undefined);
        assert_eq!(classed(None, Some(1.0), None), Class::Undefined);
        assert_eq!(classed(Some(2.0), Some(5.0), Some((1.9, 8.0))), Class::Reproduced);
    }

    #[test]
    fn each_published_pair_is_judged_once() {
        let cells = [
            cell("a", "old", &[("s", 10.0), ("x", 1.0)], &[("s", 100.0), ("s low", 90.0), ("s high", 110.0)]),
            cell("a", "new", &[("s", 5.0), ("x", 1.0)], &[("s", 25.0)]),
            cell("a", "ours", &[("s", 5.0)], &[]),
            cell("b", "old", &[("s", 4.0)], &[("s", 100.0)]),
        ];
        let found = sizes(Baseline::System("old"), &cells);
        assert_eq!(found.len(), 1);
        let size = &found[0];
        assert_eq!((&*size.case, &*size.system, &*size.over, &*size.figure), ("a", "new", "old", "s"));
        assert_eq!((size.ratio, size.published, size.class), (Some(0.5), Some(0.25), Class::Near));
        assert!((size.low.unwrap() - 25.0 / 110.0).abs() < 1e-9);
        let found = sizes(Baseline::Case("a"), &cells);
        assert_eq!(found.len(), 1);
        assert_eq!((&*found[0].case, &*found[0].over, found[0].class), ("b", "a", Class::Not));
        assert!(sizes(Baseline::None, &cells).is_empty());
    }

    #[test]
    fn where_ours_has_nothing_to_divide_by_the_effect_is_not_there() {
        let hits = |system, ours, published| cell("a", system, &[("c3", ours)], &[("c3", published)]);
        let of = |old, new| {
            sizes(Baseline::System("old"), &[hits("old", old, 35_534.0), hits("new", new, 6_064.0)])
        };
        let class =
            |sizes: Vec<Size>| sizes.into_iter().map(|size| (size.ratio, size.class)).collect::<Vec<_>>();
        assert_eq!(class(of(0.0, 0.0)), [(None, Class::Not)]);
        assert_eq!(class(of(1_000.0, 0.0)), [(Some(0.0), Class::Not)]);
        let unmeasured = [hits("old", 1.0, 35_534.0), cell("a", "new", &[], &[("c3", 6_064.0)])];
        assert_eq!(class(sizes(Baseline::System("old"), &unmeasured)), [(None, Class::Undefined)]);
    }

    #[test]
    fn a_published_deviation_gives_bounds_of_the_mean() {
        // Student's distribution with four degrees of freedom: 2.776.
        let [(low_name, low), (_, high)] = bounds("MB/s", 5, 50.0, 2.0);
        assert_eq!(low_name, "MB/s low");
        assert!((high - 50.0 - 2.776 * 2.0 / 5f64.sqrt()).abs() < 0.05, "{high}");
        assert!((low + high - 100.0).abs() < 1e-9);
    }
}
