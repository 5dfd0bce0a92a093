//! Figures of the systems side by side: ratios with their interval, statistics over rounds, a warning where noise
//! exceeds the effect, and whether ours are at least as good as the better of the two kernels.

use std::fmt::Write;

use super::TABLE;
use crate::experiment::verdict;
use crate::results::{Cell, Verdict};
use crate::table::{self, align, mean, show};

/// What is judged: figures of which less is better, and of which more is.
const LESS: &[&str] = &["extents/file", "most extents", "runs added"];
const MORE: &[&str] = &["largest left %", ">=512 %", ">=2048 %"];

fn base(system: &str) -> &str {
    system.split(':').next().unwrap_or(system)
}

fn is_ours(system: &str) -> bool {
    matches!(base(system), "library" | "fuse")
}

/// The file systems of the kernel that ours are measured by.
fn is_measure(system: &str) -> bool {
    matches!(base(system), "ext4" | "xfs")
}

/// For each case, each of ours and each figure that is judged: whether it is at least as good as the better kernel.
pub(super) fn verdicts(cells: &[Cell]) -> Vec<Verdict> {
    let mut all = Vec::new();
    let systems = table::systems(cells);
    for case in table::cases(cells) {
        for &own in systems.iter().filter(|system| is_ours(system)) {
            for figure in LESS.iter().chain(MORE) {
                all.extend(judged(cells, case, own, figure, &systems));
            }
        }
    }
    all
}

fn judged(cells: &[Cell], case: &str, own: &str, figure: &str, systems: &[&str]) -> Option<Verdict> {
    let mine = mean(cells, case, own, figure)?;
    let sign = if LESS.contains(&figure) { -1.0 } else { 1.0 };
    let rivals = systems.iter().filter(|system| is_measure(system));
    let rivals = rivals.filter_map(|&system| Some((mean(cells, case, system, figure)?, system)));
    let (best, rival) = rivals.max_by(|a, b| (sign * a.0).total_cmp(&(sign * b.0)))?;
    let holds = sign * mine >= sign * best;
    let detail = format!("{} against {} of {rival}", show(mine), show(best));
    Some(verdict(
        TABLE,
        format!("{case}: {figure} of {own} is at least as good as the kernel's best"),
        holds,
        detail,
    ))
}

/// A table per case: a line per figure, a column per system; statistics of times, with ratios to the first system;
/// and the rows that ours lose.
pub(super) fn text(cells: &[Cell]) -> String {
    let mut out = String::new();
    for case in table::cases(cells) {
        out.push_str(&table::columns(cells, case, [case, "figure"]));
        let mut times = vec![table::head(["seconds", ""])];
        let lines = table::compared(cells, case, "seconds");
        times.extend(
            lines.into_iter().map(|line| [String::new()].into_iter().chain(line).collect::<Vec<_>>()),
        );
        out.push_str(&align(&times));
        out.push('\n');
    }
    let verdicts = verdicts(cells);
    let lost: Vec<_> = verdicts.iter().filter(|verdict| !verdict.holds).collect();
    // Writing to a string can't fail.
    let _ = writeln!(out, "{} rows against the better of ext4 and XFS, {} lost", verdicts.len(), lost.len());
    for verdict in lost {
        let _ = writeln!(out, "  DOES NOT HOLD: {} ({})", verdict.text, verdict.detail);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(system: &str, seed: u64, seconds: f64, extents: f64) -> Cell {
        let figures = [("seconds", seconds), ("extents/file", extents), (">=512 %", 100.0 - extents)];
        Cell {
            table: TABLE.into(),
            case: "x: y".into(),
            system: system.into(),
            seed,
            figures: figures.into_iter().collect(),
            ..Cell::default()
        }
    }

    #[test]
    fn ours_are_judged_by_the_better_kernel_and_noise_is_reported() {
        let mut cells = Vec::new();
        for seed in 1..=4 {
            let wobble = f64::from(u32::try_from(seed).unwrap());
            cells.push(cell("library", seed, 1.0 + wobble / 100.0, 2.0));
            cells.push(cell("ext4", seed, 3.0 + wobble / 100.0, 3.0));
            cells.push(cell("xfs", seed, 1.0 + wobble / 90.0, 1.5));
            cells.push(cell("fuse2fs", seed, 9.0, 1.0));
        }
        let judged = verdicts(&cells);
        assert_eq!(judged.len(), 2);
        assert!(judged.iter().all(|verdict| !verdict.holds && verdict.detail.ends_with("xfs")), "{judged:?}");
        let text = text(&cells);
        let line = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        assert!(line("ext4").contains("differs (95 %)"), "{text}");
        assert!(line("xfs").contains("noise exceeds the effect"), "{text}");
        assert!(text.contains("2 rows against the better of ext4 and XFS, 2 lost"), "{text}");
        cells.retain(|cell| cell.system != "xfs");
        assert!(verdicts(&cells).iter().all(|verdict| verdict.holds));
    }
}
