//! In which figures the first system of a table is not the best: a table of a thousand figures is not read.

use std::fmt::Write;

use super::verdict;
use crate::better::Better;
use crate::results::{Cell, Verdict};
use crate::table::{cases, mean, systems};

/// Figures that are judged. Others are printed only.
const JUDGED: [&str; 14] = [
    "layout",
    "dynamic layout",
    "mean run",
    ">=64 %",
    ">=512 %",
    ">=2048 %",
    "aligned %",
    "near %",
    "extents/file",
    "extents/large",
    "seek sum",
    "calls/file",
    "travel/file",
    "groups/dir",
];

/// Judges if the first system of a table is at least as good as the best of the others in every case and figure, by the
/// means over seeds; which are not, line by line.
pub(super) fn judge(cells: &[Cell]) -> Vec<Verdict> {
    let (Some(first), systems) = (cells.first(), systems(cells)) else { return Vec::new() };
    let (mut judged, mut behind) = (0, String::new());
    for case in cases(cells) {
        let Some(own) = cells.iter().find(|cell| cell.case == case && cell.system == first.system) else {
            continue;
        };
        for (figure, _) in &own.figures.0 {
            let Some(better) = Better::of(figure).filter(|_| JUDGED.contains(&&**figure)) else { continue };
            let sign = better.sign();
            let value = |system: &str| mean(cells, case, system, figure);
            let rivals = systems.iter().filter(|system| **system != first.system);
            let rivals = rivals.filter_map(|system| Some((value(system)?, *system)));
            let best = rivals.max_by(|a, b| (sign * a.0).total_cmp(&(sign * b.0)));
            let (Some((best, rival)), Some(own)) = (best, value(&first.system)) else { continue };
            judged += 1;
            if sign * best > sign * own {
                // Writing to a string can't fail.
                let _ = write!(behind, "\n    {case}: {figure} {own:.4}, {rival} {best:.4}");
            }
        }
    }
    let lost = behind.lines().count().saturating_sub(1);
    let not = if lost == 0 { "" } else { "; not in" };
    let detail = format!("in {} of {judged} figures{not}{behind}", judged - lost);
    let text = format!("{} is at least as good as the best of the others", first.system);
    if judged == 0 { Vec::new() } else { vec![verdict(&first.table, text, lost == 0, detail)] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_are_lost_are_named() {
        let cell = |system: &str, extents, run| Cell {
            table: "t".into(),
            case: "x".into(),
            system: system.into(),
            figures: [("extents/file", extents), ("mean run", run), ("scanned", 9.0)].into_iter().collect(),
            ..Cell::default()
        };
        let cells = [cell("lease", 1.0, 5.0), cell("mballoc", 2.0, 7.0), cell("single", 0.5, 1.0)];
        let [verdict] = &judge(&cells)[..] else { panic!("one verdict") };
        assert_eq!(
            verdict.detail,
            "in 0 of 2 figures; not in\n    x: extents/file 1.0000, single 0.5000\n    \
             x: mean run 5.0000, mballoc 7.0000"
        );
        assert!(!verdict.holds && verdict.text.starts_with("lease is at least as good"));
        let better = judge(&[cell("lease", 0.5, 7.0), cells[1].clone()]);
        assert!(better[0].holds && better[0].detail == "in 2 of 2 figures");
        assert_eq!(judge(&cells[..1]), []);
    }
}
