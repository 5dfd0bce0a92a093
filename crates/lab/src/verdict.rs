//! Says in which cells the first policy of a table is not the best: a table of a thousand figures
//! is read by nobody.

use crate::numbers::float;
use crate::table::Rows;
use std::fmt::Write;

/// Figures of which more is better, and of which less is. Others are told, not judged.
const MORE: [&str; 8] =
    ["layout", "dynamic layout", "mean run", ">=64 %", ">=512 %", ">=2048 %", "aligned %", "near %"];
const LESS: [&str; 6] =
    ["extents/file", "extents/large", "seek sum", "calls/file", "travel/file", "groups/dir"];

/// The first policy of a table beside the best of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    pub(crate) ours: String,
    /// Cells that were judged.
    pub(crate) judged: usize,
    /// Cells in which the mean over the runs of another is better, told one by one.
    pub(crate) behind: Vec<String>,
}

/// None if there is nothing to compare.
pub(crate) fn compare(runs: &[Rows]) -> Option<Comparison> {
    let first = runs.first()?;
    let ours = first.first()?.policy.clone();
    let mut found = Comparison { ours: ours.clone(), ..Comparison::default() };
    for (index, row) in first.iter().enumerate().filter(|(_, row)| row.policy == ours) {
        let rivals: Vec<usize> = (0..first.len())
            .filter(|&at| first.get(at).is_some_and(|other| other.case == row.case && at != index))
            .collect();
        for (figure, (name, _)) in row.values.iter().enumerate() {
            let sign = if MORE.contains(name) { 1.0 } else { -1.0 };
            if rivals.is_empty() || !(MORE.contains(name) || LESS.contains(name)) {
                continue;
            }
            found.judged += 1;
            let own = mean(runs, index, figure);
            let best = rivals.iter().map(|&at| (sign * mean(runs, at, figure), at));
            let Some((value, at)) = best.max_by(|a, b| a.0.total_cmp(&b.0)) else { continue };
            if value > sign * own {
                let rival = first.get(at).map_or("", |row| row.policy.as_str());
                found.behind.push(format!("{}: {name} {own:.4}, {rival} {:.4}", row.case, value * sign));
            }
        }
    }
    (found.judged > 0).then_some(found)
}

/// The comparison for people; empty if there is none.
pub(crate) fn text(runs: &[Rows]) -> String {
    let Some(Comparison { ours, judged, behind }) = compare(runs) else { return String::new() };
    let count = behind.len();
    let mut out = format!("{ours}: {judged} cells compared with the best of the others, behind in {count}\n");
    for line in behind {
        // Writing to a string can't fail.
        let _ = writeln!(out, "  {line}");
    }
    out
}

fn mean(runs: &[Rows], row: usize, figure: usize) -> f64 {
    let values: Vec<f64> =
        runs.iter().filter_map(|rows| Some(rows.get(row)?.values.get(figure)?.1)).collect();
    values.iter().sum::<f64>() / float(u64::try_from(values.len()).unwrap_or(1).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Row;

    #[test]
    fn names_the_cells_that_are_lost() {
        let row = |policy: &str, extents, run| Row {
            case: "x".into(),
            policy: policy.into(),
            values: vec![("extents/file", extents), ("mean run", run), ("scanned", 9.0)],
        };
        let runs = [vec![row("lease", 1.0, 5.0), row("mballoc", 2.0, 7.0), row("single", 0.5, 1.0)]];
        assert_eq!(
            text(&runs),
            "lease: 2 cells compared with the best of the others, behind in 2\n  x: extents/file 1.0000, single 0.5000\n  \
             x: mean run 5.0000, mballoc 7.0000\n"
        );
        assert_eq!(text(&[vec![row("lease", 1.0, 5.0)]]), "");
    }
}
