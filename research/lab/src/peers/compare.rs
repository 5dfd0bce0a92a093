//! Figures of the systems side by side: ratios with their interval, statistics over rounds, a warning where noise
//! exceeds the effect, and whether ours are at least as good as the better of the two kernels.

use std::fmt::Write;

use super::TABLE;
use crate::better::Better;
use crate::experiment::verdict;
use crate::results::{Cell, Verdict};
use crate::table::{self, align, mean, show};

/// Figures that are judged.
const JUDGED: [&str; 6] =
    ["extents/file", "most extents", "runs added", "largest left %", ">=512 %", ">=2048 %"];

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

/// How one of ours does beside the better kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Win,
    Tie,
    Loss,
}

/// Differences of ours other than where blocks go.
const BESIDE_PLACEMENT: [(&str, &str); 2] = [
    ("library", "no system calls, and no pages of the kernel's between a client and the volume"),
    ("fuse", "a server in between, whose threads have the priority of `plat mount` (nice -15 for root)"),
];

/// For each case, each of ours and each figure that is judged: whether it is at least as good as the better kernel.
pub(super) fn verdicts(cells: &[Cell]) -> Vec<Verdict> {
    outcomes(cells).into_iter().map(|(_, verdict)| verdict).collect()
}

fn outcomes(cells: &[Cell]) -> Vec<(Outcome, Verdict)> {
    let mut all = Vec::new();
    let systems = table::systems(cells);
    for case in table::cases(cells) {
        for &own in systems.iter().filter(|system| is_ours(system)) {
            for figure in JUDGED {
                all.extend(judged(cells, case, own, figure, &systems));
            }
        }
    }
    all
}

/// None where there is nothing to compare: no kernel, or a volume without files, on which everything is equal.
fn judged(
    cells: &[Cell],
    case: &str,
    own: &str,
    figure: &str,
    systems: &[&str],
) -> Option<(Outcome, Verdict)> {
    if mean(cells, case, own, "files")? == 0.0 {
        return None;
    }
    let mine = mean(cells, case, own, figure)?;
    let sign = Better::of(figure)?.sign();
    let rivals = systems.iter().filter(|system| is_measure(system));
    let rivals = rivals.filter_map(|&system| Some((mean(cells, case, system, figure)?, system)));
    let (best, rival) = rivals.max_by(|a, b| (sign * a.0).total_cmp(&(sign * b.0)))?;
    // A difference that is not printed is none.
    let outcome = if show(mine) == show(best) {
        Outcome::Tie
    } else if sign * mine > sign * best {
        Outcome::Win
    } else {
        Outcome::Loss
    };
    let word = match outcome {
        Outcome::Win => "better than",
        Outcome::Tie => "as good as",
        Outcome::Loss => "worse than",
    };
    let detail = format!("{}, {word} {} of {rival}", show(mine), show(best));
    let text = format!("{case}: {figure} of {own} is at least as good as the kernel's best");
    Some((outcome, verdict(TABLE, text, outcome != Outcome::Loss, detail)))
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
    let outcomes = outcomes(cells);
    let count = |wanted| outcomes.iter().filter(|(outcome, _)| *outcome == wanted).count();
    let [wins, ties, losses] = [Outcome::Win, Outcome::Tie, Outcome::Loss].map(count);
    // Writing to a string can't fail.
    let _ = writeln!(
        out,
        "{} rows against the better of ext4 and XFS on volumes that hold files: {wins} won, {ties} tied, {losses} lost",
        outcomes.len()
    );
    for (_, verdict) in outcomes.iter().filter(|(outcome, _)| *outcome == Outcome::Loss) {
        let _ = writeln!(out, "  DOES NOT HOLD: {} ({})", verdict.text, verdict.detail);
    }
    let systems = table::systems(cells);
    for (name, what) in BESIDE_PLACEMENT {
        if systems.iter().any(|system| base(system) == name) {
            let _ = writeln!(out, "beside placement {name} differs by {what}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(system: &str, seed: u64, seconds: f64, extents: f64) -> Cell {
        let figures =
            [("seconds", seconds), ("files", 9.0), ("extents/file", extents), (">=512 %", 100.0 - extents)];
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
        assert!(text.contains("0 won, 0 tied, 2 lost"), "{text}");
        assert!(text.contains("beside placement library differs by no system calls"), "{text}");
        assert!(!text.contains("placement fuse"), "{text}");
        cells.retain(|cell| cell.system != "xfs");
        assert!(outcomes(&cells).iter().all(|(outcome, verdict)| *outcome == Outcome::Win && verdict.holds));
    }

    #[test]
    fn ties_are_no_wins_and_volumes_without_files_are_not_judged() {
        let tied = [cell("library", 1, 1.0, 2.0), cell("ext4", 1, 1.0, 2.0)];
        assert!(outcomes(&tied).iter().all(|(outcome, verdict)| *outcome == Outcome::Tie && verdict.holds));
        assert!(
            text(&tied).contains(
                "2 rows against the better of ext4 and XFS on volumes that hold files: 0 won, 2 tied"
            )
        );
        let mut empty = tied;
        for cell in &mut empty {
            cell.figures = [("seconds", 1.0), ("files", 0.0), ("extents/file", 0.0)].into_iter().collect();
        }
        assert!(outcomes(&empty).is_empty());
    }
}
