//! Plots of volumes that aged: per case, measures over time and the free space by length of run
//! at the end, with a line or bar for each system.

use crate::numbers::float;
use crate::results::Aging;
use crate::table::in_order;
use chart::svg::{Frame, Line, bars, lines};
use std::path::Path;

/// A measure that is drawn over time: what it is of a frame, the end of its file's name, and its axis.
type Measure = (fn(&Aging) -> f64, &'static str, &'static str);

const OVER_TIME: [Measure; 3] = [
    (|frame| frame.extents_per_file, "extents", "extents per file"),
    (mean_run, "mean-run", "mean free run, clusters"),
    (long_runs, "long-runs", "free space in runs of at least 512 clusters, %"),
];

fn mean_run(frame: &Aging) -> f64 {
    float(frame.free_bins.iter().sum()) / float(frame.free_runs.max(1))
}

/// Of 2^9 clusters and more.
fn long_runs(frame: &Aging) -> f64 {
    let all: u64 = frame.free_bins.iter().sum();
    100.0 * float(frame.free_bins.iter().skip(9).sum()) / float(all.max(1))
}

/// Writes the plots of all cases into a directory, which is made if need be; returns their names.
///
/// # Errors
/// Errors of the file system.
pub(crate) fn write(dir: &Path, frames: &[Aging]) -> std::io::Result<Vec<String>> {
    std::fs::create_dir_all(dir)?;
    let mut names = Vec::new();
    for (name, text) in draw(frames) {
        std::fs::write(dir.join(&name), text)?;
        names.push(name);
    }
    Ok(names)
}

/// File names and contents.
fn draw(frames: &[Aging]) -> Vec<(String, String)> {
    let mut out = Vec::new();
    let mut runs: Vec<(&str, u64)> = frames.iter().map(|p| (p.case.as_str(), p.seed)).collect();
    runs.sort_unstable();
    runs.dedup();
    for (case, seed) in runs {
        let own: Vec<&Aging> = frames.iter().filter(|p| p.case == case && p.seed == seed).collect();
        let stem: String = case.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let stem = format!("{}-seed{seed}", stem.trim_matches('-'));
        for (measure, suffix, axis) in OVER_TIME {
            let frame = Frame { title: case, x: "progress of the run", y: axis };
            out.push((format!("{stem}-{suffix}.svg"), lines(frame, &over_time(&own, measure))));
        }
        out.push((format!("{stem}-free-runs.svg"), histogram(case, &own)));
    }
    out
}

/// Systems in the order in which they first occur.
fn systems(frames: &[&Aging]) -> Vec<String> {
    in_order(frames.iter().map(|frame| &*frame.system)).into_iter().map(String::from).collect()
}

fn over_time(frames: &[&Aging], measure: fn(&Aging) -> f64) -> Vec<Line> {
    let line = |name: String| {
        let own = frames.iter().filter(|frame| frame.system == name);
        Line { points: own.map(|frame| (frame.step, measure(frame))).collect(), name }
    };
    systems(frames).into_iter().map(line).collect()
}

/// Shares of the free space by length of run, at the last sample of each policy.
fn histogram(case: &str, frames: &[&Aging]) -> String {
    let mut series = Vec::new();
    for name in systems(frames) {
        let Some(last) = frames.iter().rev().find(|frame| frame.system == name) else { continue };
        let all: u64 = last.free_bins.iter().sum();
        let share = |n: &u64| 100.0 * float(*n) / float(all.max(1));
        series.push((name, last.free_bins.iter().map(share).collect::<Vec<f64>>()));
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
        let frame = |case: &str, system: &str, step: f64| Aging {
            case: case.into(),
            system: system.into(),
            seed: 1,
            step,
            extents_per_file: 1.0 + step,
            free_runs: 6,
            free_bins: vec![1, 2, 3],
            ..Aging::default()
        };
        let frames = [
            frame("git 80 %", "lease", 0.5),
            frame("git 80 %", "mballoc", 0.5),
            frame("git 80 %", "lease", 1.0),
            frame("large 80 %", "lease", 0.5),
        ];
        let drawn = draw(&frames);
        assert_eq!(drawn.len(), 8);
        assert_eq!(drawn[0].0, "git-80-seed1-extents.svg");
        assert_eq!(drawn[0].1.matches("<polyline").count(), 2);
        assert!(drawn.iter().all(|(_, text)| !text.contains("NaN")));
        assert_eq!(drawn, draw(&frames));
    }
}
