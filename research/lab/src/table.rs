//! Cells as tables: text, CSV, JSON; over seeds with statistics; what was published beside what was measured.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::{Value, json};

use crate::results::{Cell, Class, Size, Verdict};
use crate::summary::Summary;

/// Prints a number without noise: whole ones plain, others with four significant digits.
pub(crate) fn show(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e15 {
        return format!("{value:.0}");
    }
    let digits = if value.abs() >= 100.0 {
        1
    } else if value.abs() >= 10.0 {
        2
    } else {
        4
    };
    format!("{value:.digits$}")
}

/// Columns of text beyond which a table is broken.
const WIDE: usize = 140;
/// Columns of a table that name its lines, and are repeated where it is broken.
const NAMES: usize = 2;

/// Lines of cells as text: two columns to the left, the others to the right. A table that is too wide is broken into several,
/// each with the names of the lines.
pub(crate) fn align(lines: &[Vec<String>]) -> String {
    let mut out = String::new();
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| {
        lines.iter().filter_map(|line| line.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for part in parts(&widths) {
        for line in lines {
            let shown = (0..NAMES).chain(part.clone());
            for (cell, width) in shown.clone().filter_map(|at| line.get(at).zip(widths.get(at))).take(NAMES) {
                // Writing to a string can't fail.
                let _ = write!(out, "{cell:width$}  ");
            }
            for (cell, width) in shown.skip(NAMES).filter_map(|at| line.get(at).zip(widths.get(at))) {
                let _ = write!(out, "{cell:>width$}  ");
            }
            out.truncate(out.trim_end_matches(' ').len());
            out.push('\n');
        }
    }
    out
}

/// Columns behind the names, as many at a time as fit beside these; one at least.
fn parts(widths: &[usize]) -> Vec<std::ops::Range<usize>> {
    let names: usize = widths.iter().take(NAMES).map(|width| width + 2).sum();
    let (mut all, mut from, mut used) = (Vec::new(), NAMES, names);
    for (at, width) in widths.iter().enumerate().skip(NAMES) {
        if at > from && used + width > WIDE {
            all.push(from..at);
            (from, used) = (at, names);
        }
        used += width + 2;
    }
    all.push(from..widths.len().max(from));
    all
}

/// Each name once, in the order of its first appearance.
pub(crate) fn in_order<'n>(names: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    let mut seen = BTreeSet::new();
    names.filter(|name| seen.insert(*name)).collect()
}

/// Names of the cases of cells.
pub(crate) fn cases(cells: &[Cell]) -> Vec<&str> {
    in_order(cells.iter().map(|cell| &*cell.case))
}

/// Names of the systems of cells.
pub(crate) fn systems(cells: &[Cell]) -> Vec<&str> {
    in_order(cells.iter().map(|cell| &*cell.system))
}

/// Names of the figures of a case.
fn figures<'c>(cells: &'c [Cell], case: &str) -> Vec<&'c str> {
    let own = cells.iter().filter(|cell| cell.case == case);
    in_order(own.flat_map(|cell| cell.figures.0.iter().map(|(name, _)| &**name)))
}

/// Statistics of a figure over the seeds of a case and a system.
pub(crate) fn summary(cells: &[Cell], case: &str, system: &str, figure: &str) -> Option<Summary> {
    let own = cells.iter().filter(|cell| cell.case == case && cell.system == system);
    Summary::of(&own.filter_map(|cell| cell.figures.get(figure)).collect::<Vec<_>>())
}

/// The mean of a figure over the seeds of a case and a system.
pub(crate) fn mean(cells: &[Cell], case: &str, system: &str, figure: &str) -> Option<f64> {
    summary(cells, case, system, figure).map(|summary| summary.avg)
}

/// Published figure for a case and a system.
pub(crate) fn published(cells: &[Cell], case: &str, system: &str, figure: &str) -> Option<f64> {
    cells.iter().find(|cell| cell.case == case && cell.system == system)?.published.get(figure)
}

/// The table of some cells: what was published of them beside what was measured; else statistics, if there are several
/// seeds; else a line per cell. `order` names the figures that published tables show.
pub(crate) fn text(cells: &[Cell], order: &[&str]) -> String {
    let seeds: BTreeSet<u64> = cells.iter().map(|cell| cell.seed).collect();
    if cells.iter().any(|cell| !cell.published.is_empty()) {
        beside_published(cells, order)
    } else if seeds.len() > 1 {
        statistics(cells)
    } else {
        rows(cells)
    }
}

/// A line per cell, with a head wherever the figures are others.
fn rows(cells: &[Cell]) -> String {
    let mut lines: Vec<Vec<String>> = Vec::new();
    let mut out = String::new();
    let mut names: Vec<&str> = Vec::new();
    for cell in cells {
        let own: Vec<&str> = cell.figures.0.iter().map(|(name, _)| &**name).collect();
        if own != names {
            out.push_str(&align(&std::mem::take(&mut lines)));
            names = own;
            let head = ["case", "system"].into_iter().chain(names.iter().copied());
            lines.push(head.map(String::from).collect());
        }
        let line = [cell.case.clone(), cell.system.clone()].into_iter();
        lines.push(line.chain(cell.figures.0.iter().map(|(_, value)| show(*value))).collect());
    }
    out.push_str(&align(&lines));
    out
}

/// A line per figure and a column per system, for many figures of one case: means over seeds.
pub(crate) fn columns(cells: &[Cell], case: &str, head: [&str; 2]) -> String {
    let systems = systems(cells);
    let head = head.into_iter().chain(systems.iter().copied());
    let mut lines: Vec<Vec<String>> = vec![head.map(String::from).collect()];
    for figure in figures(cells, case) {
        let value = |system: &&str| mean(cells, case, system, figure).map_or_else(String::new, show);
        let names = if lines[0][0] == "figure" { [figure, ""] } else { ["", figure] };
        lines.push(names.map(String::from).into_iter().chain(systems.iter().map(value)).collect());
    }
    align(&lines)
}

/// A line per case and figure, two columns per system: published, and the mean of what was measured.
fn beside_published(cells: &[Cell], order: &[&str]) -> String {
    let systems = systems(cells);
    let head = systems.iter().flat_map(|name| [format!("{name}: published"), "reproduced".into()]);
    let mut lines = vec![["case".to_string(), "figure".to_string()].into_iter().chain(head).collect()];
    for case in cases(cells) {
        for figure in order {
            let columns = systems.iter().flat_map(|system| {
                let was = published(cells, case, system, figure);
                [was, mean(cells, case, system, figure)].map(|value| value.map_or_else(String::new, show))
            });
            let line: Vec<String> =
                [case.to_string(), (*figure).to_string()].into_iter().chain(columns).collect();
            if line.iter().skip(2).any(|cell| !cell.is_empty()) {
                lines.push(line);
            }
        }
    }
    align(&lines)
}

/// A line per case, figure and system: statistics over seeds, and the ratio to the first system of the case.
pub(crate) fn statistics(cells: &[Cell]) -> String {
    let mut lines = vec![head(["case", "figure", "system"])];
    for case in cases(cells) {
        for figure in figures(cells, case) {
            lines.extend(compared(cells, case, figure).into_iter().map(|line| {
                [case.to_string(), figure.to_string()].into_iter().chain(line).collect::<Vec<_>>()
            }));
        }
    }
    let mut out = align(&lines);
    let noisy = lines.iter().filter(|line| line.last().is_some_and(|note| note == NOISE)).count();
    if noisy > 0 {
        // Writing to a string can't fail.
        let _ = writeln!(out, "{noisy} differences are within the noise: more seeds would show more");
    }
    out
}

/// The head of a table of statistics, behind names.
pub(crate) fn head<const N: usize>(names: [&str; N]) -> Vec<String> {
    let rest = ["N", "Min", "Max", "Median", "Avg", "Stddev", "ratio", "+-", ""];
    names.into_iter().chain(rest).map(String::from).collect()
}

const NOISE: &str = "noise exceeds the effect";

/// A line per system: its name, statistics of a figure, and how it compares with the first system that has the figure.
pub(crate) fn compared(cells: &[Cell], case: &str, figure: &str) -> Vec<Vec<String>> {
    let all: Vec<(&str, Summary)> = systems(cells)
        .into_iter()
        .filter_map(|system| Some((system, summary(cells, case, system, figure)?)))
        .collect();
    let Some((_, first)) = all.first().copied() else { return Vec::new() };
    let line = |(at, (system, own)): (usize, &(&str, Summary))| {
        let (ratio, half) = own.ratio(&first).unzip();
        let note = match () {
            () if at == 0 => "",
            () if own.avg.to_bits() == first.avg.to_bits() => "same",
            () if own.n < 2 || first.n < 2 => "one run: no confidence",
            () if own.differs(&first) => "differs (95 %)",
            () => NOISE,
        };
        let figures = [own.min, own.max, own.median, own.avg, own.stddev].map(Some);
        let figures = figures.into_iter().chain([ratio, half]);
        let names = [(*system).to_string(), own.n.to_string()].into_iter();
        let figures = figures.map(|value| value.map_or_else(String::new, show));
        names.chain(figures).chain([note.to_string()]).collect()
    };
    all.iter().enumerate().map(line).collect()
}

/// A line for each verdict.
pub(crate) fn verdicts(verdicts: &[Verdict]) -> String {
    let mut out = String::new();
    for verdict in verdicts {
        let holds = if verdict.holds { "holds" } else { "DOES NOT HOLD" };
        // Writing to a string can't fail.
        let _ = writeln!(out, "  {holds}: {} ({})", verdict.text, verdict.detail);
    }
    out
}

/// How many ratios are in each class.
pub(crate) fn counts(sizes: &[Size]) -> String {
    let count = |class: &Class| sizes.iter().filter(|size| size.class == *class).count();
    let classes = Class::ALL.iter().map(|class| format!("{} {}", count(class), class.name()));
    format!("{} published ratios: {}", sizes.len(), classes.collect::<Vec<_>>().join(", "))
}

/// A line for each published ratio.
pub(crate) fn sizes(sizes: &[Size]) -> String {
    let head = ["case", "ratio of", "ours", "+-", "published", "bounds", "times apart", ""];
    let mut lines: Vec<Vec<String>> = vec![head.map(String::from).to_vec()];
    let number = |value: Option<f64>| value.map_or_else(|| "-".into(), show);
    for size in sizes {
        let apart = size.ratio.zip(size.published).map(|(is, was)| is / was);
        let bounds = size.low.zip(size.high);
        lines.push(vec![
            size.case.clone(),
            format!("{}: {} over {}", size.figure, size.system, size.over),
            number(size.ratio),
            if size.half > 0.0 { show(size.half) } else { String::new() },
            number(size.published),
            bounds.map_or_else(String::new, |(low, high)| format!("{}..{}", show(low), show(high))),
            number(apart.filter(|apart| apart.is_finite())),
            size.class.name().into(),
        ]);
    }
    align(&lines)
}

/// One line per figure.
pub(crate) fn csv(cells: &[Cell]) -> String {
    let mut out = String::new();
    for Cell { table, case, system, seed, figures, .. } in cells {
        for (name, value) in &figures.0 {
            let _ = writeln!(out, "{table},{seed},{case},{system},{name},{value}");
        }
    }
    out
}

/// The cells of a table as JSON, a line per seed.
pub(crate) fn json(table: &str, cells: &[Cell]) -> String {
    let mut out = String::new();
    for seed in cells.iter().map(|cell| cell.seed).collect::<BTreeSet<_>>() {
        let row = |cell: &Cell| json!({ "case": cell.case, "policy": cell.system, "figures": cell.figures });
        let rows: Vec<Value> = cells.iter().filter(|cell| cell.seed == seed).map(row).collect();
        let _ = writeln!(out, "{}", json!({ "scenario": table, "seed": seed, "rows": rows }));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(system: &str, seed: u64, value: f64) -> Cell {
        let figures = [("extents", value)].into_iter().collect();
        Cell { table: "s".into(), case: "x".into(), system: system.into(), seed, figures, ..Cell::default() }
    }

    #[test]
    fn tables_line_up() {
        let cells = [cell("lease", 3, 1.0), cell("single", 3, 12.345)];
        assert_eq!(
            text(&cells, &[]),
            "case  system  extents\nx     lease         1\nx     single    12.35\n"
        );
        assert_eq!(csv(&cells), "s,3,x,lease,extents,1\ns,3,x,single,extents,12.345\n");
        assert_eq!(
            columns(&cells, "x", ["figure", ""]),
            "figure     lease  single\nextents        1   12.35\n"
        );
        let value: Value = serde_json::from_str(&json("s", &cells)).unwrap();
        assert_eq!(value["rows"][1]["figures"]["extents"], 12.345);
    }

    #[test]
    fn a_wide_table_is_broken_and_its_lines_keep_their_names() {
        let line = |first: &str, cell: &str| {
            let cells = (0..60).map(|at| format!("{cell}-{at}"));
            [first.to_owned(), "system".to_owned()].into_iter().chain(cells).collect::<Vec<_>>()
        };
        let shown = align(&[line("case", "figure"), line("x", "1")]);
        assert!(shown.lines().all(|line| line.len() <= WIDE), "{shown}");
        assert!(shown.lines().all(|line| line.starts_with("case") || line.starts_with("x ")), "{shown}");
        for at in 0..60 {
            assert_eq!(shown.split_whitespace().filter(|cell| *cell == format!("figure-{at}")).count(), 1);
        }
        // One cell that is wider than a line stands alone.
        let long = "y".repeat(2 * WIDE);
        let lines = [vec!["a".into(), "b".into(), long.clone(), "c".into()]];
        assert_eq!(align(&lines), format!("a  b  {long}\na  b  c\n"));
    }

    #[test]
    fn several_seeds_give_statistics_and_published_figures_stand_beside() {
        let mut cells = vec![cell("lease", 1, 1.0), cell("single", 1, 3.0)];
        cells.extend([
            cell("lease", 2, 1.0),
            cell("single", 2, 3.1),
            cell("xfs", 1, 1.0),
            cell("xfs", 2, 1.0),
        ]);
        cells.extend([cell("noisy", 1, 0.5), cell("noisy", 2, 2.5)]);
        let shown = text(&cells, &[]);
        let line = |system: &str| shown.lines().find(|line| line.contains(system)).unwrap();
        assert!(line("single").contains("3.0500") && line("single").ends_with("differs (95 %)"), "{shown}");
        assert!(line("xfs").ends_with("same") && line("noisy").ends_with(NOISE), "{shown}");
        assert!(
            shown.ends_with("1 differences are within the noise: more seeds would show more\n"),
            "{shown}"
        );
        cells[0].published = [("extents", 9.0)].into_iter().collect();
        assert!(text(&cells, &["extents"]).contains("lease: published"));
    }
}
