//! What scenarios return, and how it is printed: text, CSV, JSON; over seeds with statistics.

use serde_json::{Value, json};
use std::fmt::Write;

/// Figures of one policy in one case.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) case: String,
    pub(crate) policy: String,
    pub(crate) values: Vec<(&'static str, f64)>,
}

/// Rows of one scenario under one seed.
pub(crate) type Rows = Vec<Row>;

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

/// A text table with a line per row.
pub(crate) fn text(rows: &Rows) -> String {
    let mut lines: Vec<Vec<String>> = Vec::new();
    let mut out = String::new();
    let mut names: Vec<&str> = Vec::new();
    for row in rows {
        let own: Vec<&str> = row.values.iter().map(|(name, _)| *name).collect();
        if own != names {
            flush(&mut lines, &mut out);
            names = own;
            let head = ["case", "policy"].into_iter().chain(names.iter().copied());
            lines.push(head.map(String::from).collect());
        }
        let cells = [row.case.clone(), row.policy.clone()].into_iter();
        lines.push(cells.chain(row.values.iter().map(|(_, value)| show(*value))).collect());
    }
    flush(&mut lines, &mut out);
    out
}

/// A text table with a column per row and a line per figure, for many figures of few policies.
pub(crate) fn columns(rows: &Rows) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let head = ["figure".to_string(), String::new()].into_iter();
    let mut lines = vec![head.chain(rows.iter().map(|row| row.policy.clone())).collect::<Vec<_>>()];
    for (at, (name, _)) in first.values.iter().enumerate() {
        let cells = rows.iter().map(|row| row.values.get(at).map_or_else(String::new, |(_, v)| show(*v)));
        lines.push([(*name).to_string(), String::new()].into_iter().chain(cells).collect());
    }
    let mut out = String::new();
    flush(&mut lines, &mut out);
    out
}

fn flush(lines: &mut Vec<Vec<String>>, out: &mut String) {
    out.push_str(&align(lines));
    lines.clear();
}

/// Lines of cells as text: two columns to the left, the others to the right.
pub(crate) fn align(lines: &[Vec<String>]) -> String {
    let mut out = String::new();
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| lines.iter().filter_map(|line| line.get(at)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for line in lines.iter() {
        for (at, (cell, width)) in line.iter().zip(&widths).enumerate() {
            // Writing to a string can't fail.
            let _ = if at < 2 { write!(out, "{cell:width$}  ") } else { write!(out, "{cell:>width$}  ") };
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

/// One line per figure.
pub(crate) fn csv(scenario: &str, seed: u64, rows: &Rows) -> String {
    let mut out = String::new();
    for row in rows {
        for (name, value) in &row.values {
            let _ = writeln!(out, "{scenario},{seed},{},{},{name},{value}", row.case, row.policy);
        }
    }
    out
}

/// The rows as a JSON value.
pub(crate) fn json(scenario: &str, seed: u64, rows: &Rows) -> Value {
    let figures = |row: &Row| row.values.iter().map(|(n, v)| ((*n).to_string(), json!(v))).collect();
    let row = |row: &Row| {
        let figures: serde_json::Map<String, Value> = figures(row);
        json!({ "case": row.case, "policy": row.policy, "figures": figures })
    };
    json!({ "scenario": scenario, "seed": seed, "rows": rows.iter().map(row).collect::<Vec<_>>() })
}

/// Statistics of one figure over seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) n: usize,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) median: f64,
    pub(crate) avg: f64,
    pub(crate) stddev: f64,
}

impl Summary {
    pub(crate) fn of(values: &[f64]) -> Option<Summary> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = |at: usize| sorted.get(at).copied().unwrap_or(min);
        let median = if n % 2 == 1 { middle(n / 2) } else { (middle(n / 2 - 1) + middle(n / 2)) / 2.0 };
        let count = f64::from(u32::try_from(n).unwrap_or(u32::MAX));
        let avg = sorted.iter().sum::<f64>() / count;
        let squares: f64 = sorted.iter().map(|v| (v - avg).powi(2)).sum();
        let stddev = if n > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
        Some(Summary { n, min, max, median, avg, stddev })
    }

    /// Whether the means differ significantly at 95 % by Welch's t test.
    pub(crate) fn differs(&self, other: &Summary) -> bool {
        let (a, b) = (self.variance(), other.variance());
        if self.n < 2 || other.n < 2 || a + b == 0.0 {
            return self.avg.to_bits() != other.avg.to_bits();
        }
        (self.avg - other.avg).abs() / (a + b).sqrt() > t95(freedom(self, other, (a, b)))
    }

    /// Ratio of the means, and the half of its interval of 95 % (by the delta method; zero where nothing
    /// varies). None if there is nothing to divide by.
    pub(crate) fn ratio(&self, other: &Summary) -> Option<(f64, f64)> {
        let ratio = self.avg / other.avg;
        if other.avg == 0.0 || !ratio.is_finite() {
            return None;
        }
        let (a, b) =
            (self.variance() / other.avg.powi(2), other.variance() * ratio.powi(2) / other.avg.powi(2));
        if self.n < 2 || other.n < 2 || a + b == 0.0 {
            return Some((ratio, 0.0));
        }
        Some((ratio, t95(freedom(self, other, (a, b))) * (a + b).sqrt()))
    }

    fn count(&self) -> f64 {
        f64::from(u32::try_from(self.n).unwrap_or(u32::MAX))
    }

    /// Of the mean.
    fn variance(&self) -> f64 {
        self.stddev.powi(2) / self.count()
    }
}

/// Degrees of freedom of a difference of two means of these variances (Welch and Satterthwaite).
fn freedom(one: &Summary, other: &Summary, (a, b): (f64, f64)) -> f64 {
    (a + b).powi(2) / (a.powi(2) / (one.count() - 1.0) + b.powi(2) / (other.count() - 1.0))
}

/// Two-sided 95 % quantile of Student's distribution, by the expansion of Cornish and Fisher.
fn t95(freedom: f64) -> f64 {
    const Z: f64 = 1.959_964;
    let v = freedom.max(1.0);
    if v < 2.0 {
        return 12.706;
    }
    Z + (Z.powi(3) + Z) / (4.0 * v) + (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / (96.0 * v * v)
}

/// A table of statistics: for each case and figure, each policy over all seeds, with a mark where
/// it differs significantly from the first policy of the case.
pub(crate) fn summarise(runs: &[Rows]) -> String {
    let mut lines = vec![
        ["case", "figure", "policy", "N", "Min", "Max", "Median", "Avg", "Stddev", ""]
            .map(String::from)
            .to_vec(),
    ];
    let Some(first) = runs.first() else { return String::new() };
    for (index, row) in first.iter().enumerate() {
        let lead = first.iter().position(|other| other.case == row.case).unwrap_or(index);
        for (figure, (name, _)) in row.values.iter().enumerate() {
            let column = |at: usize| -> Vec<f64> {
                let cell = |rows: &Rows| rows.get(at)?.values.get(figure).map(|(_, value)| *value);
                runs.iter().filter_map(cell).collect()
            };
            let (Some(own), Some(reference)) = (Summary::of(&column(index)), Summary::of(&column(lead)))
            else {
                continue;
            };
            let mark = if lead != index && own.differs(&reference) { "differs (95 %)" } else { "" };
            let figures = [own.min, own.max, own.median, own.avg, own.stddev].map(show);
            let mut line = vec![row.case.clone(), (*name).to_string(), row.policy.clone(), own.n.to_string()];
            line.extend(figures);
            line.push(mark.to_string());
            lines.push(line);
        }
    }
    let mut out = String::new();
    flush(&mut lines, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_those_of_ministat() {
        let a = Summary::of(&[350.0, 720.0, 570.0, 130.0, 10.0]).unwrap();
        assert_eq!((a.n, a.min, a.max, a.median, a.avg), (5, 10.0, 720.0, 350.0, 356.0));
        assert!((a.stddev - 296.0).abs() < 1.0, "{}", a.stddev);
        let b = Summary::of(&[970.0, 1360.0, 750.0, 840.0, 800.0]).unwrap();
        assert!(a.differs(&b));
        assert!(!a.differs(&a));
        let (ratio, half) = b.ratio(&a).unwrap();
        // By hand: standard error 1.033, 4.8 degrees of freedom.
        assert!((ratio - b.avg / a.avg).abs() < 1e-12 && (half - 2.69).abs() < 0.1, "{ratio} {half}");
        let zero = Summary { avg: 0.0, ..a };
        assert_eq!((a.ratio(&zero), a.ratio(&Summary { n: 1, ..a })), (None, Some((1.0, 0.0))));
        assert!((t95(8.0) - 2.306).abs() < 0.01);
    }

    #[test]
    fn tables_line_up() {
        let row = |policy: &str, value| Row {
            case: "x".into(),
            policy: policy.into(),
            values: vec![("extents", value)],
        };
        let rows = vec![row("lease", 1.0), row("single", 12.345)];
        assert_eq!(text(&rows), "case  policy  extents\nx     lease         1\nx     single    12.35\n");
        assert_eq!(csv("s", 3, &rows), "s,3,x,lease,extents,1\ns,3,x,single,extents,12.345\n");
    }
}
