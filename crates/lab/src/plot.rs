//! Plots of a collected series: per case, measures over time and the free space by length of run
//! at the end, with a line or bar for each policy.

use crate::numbers::float;
use crate::series::Point;
use chart::svg::{Frame, Line, bars, lines};
use std::path::Path;

/// Measures that are drawn over time, and the axis they stand at.
const OVER_TIME: [(&str, &str, &str); 3] = [
    ("extents/file", "extents", "extents per file"),
    ("mean run", "mean-run", "mean free run, clusters"),
    (">=512 %", "long-runs", "free space in runs of at least 512 clusters, %"),
];

/// Writes the plots of all cases into a directory, which is made if need be; tells their names.
///
/// # Errors
/// What the file system says.
pub(crate) fn write(dir: &Path, points: &[Point]) -> std::io::Result<Vec<String>> {
    std::fs::create_dir_all(dir)?;
    let mut names = Vec::new();
    for (name, text) in draw(points) {
        std::fs::write(dir.join(&name), text)?;
        names.push(name);
    }
    Ok(names)
}

/// File names and contents.
fn draw(points: &[Point]) -> Vec<(String, String)> {
    let mut out = Vec::new();
    let mut runs: Vec<(&str, u64)> = points.iter().map(|p| (p.case.as_str(), p.seed)).collect();
    runs.sort_unstable();
    runs.dedup();
    for (case, seed) in runs {
        let own: Vec<&Point> = points.iter().filter(|p| p.case == case && p.seed == seed).collect();
        let stem: String = case.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let stem = format!("{}-seed{seed}", stem.trim_matches('-'));
        for (measure, suffix, axis) in OVER_TIME {
            let frame = Frame { title: case, x: "volume's fill written over, times", y: axis };
            out.push((format!("{stem}-{suffix}.svg"), lines(frame, &over_time(&own, measure))));
        }
        out.push((format!("{stem}-free-runs.svg"), histogram(case, &own)));
    }
    out
}

/// Policies in the order in which they first occur.
fn policies(points: &[&Point]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for point in points {
        if !names.contains(&point.policy) {
            names.push(point.policy.clone());
        }
    }
    names
}

fn over_time(points: &[&Point], measure: &str) -> Vec<Line> {
    let value = |point: &Point| point.values.iter().find(|(name, _)| *name == measure).map(|(_, v)| *v);
    let line = |name: String| {
        let own = points.iter().filter(|point| point.policy == name);
        Line { points: own.filter_map(|point| Some((point.at, value(point)?))).collect(), name }
    };
    policies(points).into_iter().map(line).collect()
}

/// Shares of the free space by length of run, at the last sample of each policy.
fn histogram(case: &str, points: &[&Point]) -> String {
    let mut series = Vec::new();
    for name in policies(points) {
        let Some(last) = points.iter().rev().find(|point| point.policy == name) else { continue };
        let all: u64 = last.histogram.iter().sum();
        let share = |n: &u64| 100.0 * float(*n) / float(all.max(1));
        series.push((name, last.histogram.iter().map(share).collect::<Vec<f64>>()));
    }
    let bins = series.iter().map(|(_, shares)| shares.len()).max().unwrap_or(0);
    let names: Vec<String> = (0..bins).map(bin_name).collect();
    let frame = Frame { title: case, x: "clusters of the run, from", y: "share of the free space, %" };
    bars(frame, &names, &series)
}

/// Shortest run of a bin, in short.
fn bin_name(bin: usize) -> String {
    if bin < 10 { format!("{}", 1u32 << bin) } else { format!("{}Ki", 1u64 << (bin - 10).min(40)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_and_seed_has_its_plots() {
        let point = |case: &str, policy: &str, at: f64| Point {
            case: case.into(),
            policy: policy.into(),
            seed: 1,
            at,
            values: vec![("extents/file", 1.0 + at)],
            histogram: vec![1, 2, 3],
            fullness: 0.8,
            operations: 1,
            groups: Vec::new(),
            clusters: 0,
            worst: Vec::new(),
        };
        let points = [
            point("git 80 %", "lease", 0.5),
            point("git 80 %", "mballoc", 0.5),
            point("git 80 %", "lease", 1.0),
            point("large 80 %", "lease", 0.5),
        ];
        let drawn = draw(&points);
        assert_eq!(drawn.len(), 8);
        assert_eq!(drawn[0].0, "git-80-seed1-extents.svg");
        assert_eq!(drawn[0].1.matches("<polyline").count(), 2);
        assert!(drawn.iter().all(|(_, text)| !text.contains("NaN")));
        assert_eq!(drawn, draw(&points));
    }
}
