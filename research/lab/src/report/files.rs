//! The plots as SVG files: curves, and at the end of each aging run its heat map and where its files lie.

use super::digest::{Digest, Run, Table};
use chart::svg::map::{Map, Strip};
use chart::svg::{Frame, Line, lines};
use std::path::Path;

/// Writes all plots into a directory, which is made if need be; returns their names.
///
/// # Errors
/// Errors of the file system.
pub(crate) fn write(dir: &Path, digest: &Digest) -> std::io::Result<Vec<String>> {
    std::fs::create_dir_all(dir)?;
    let drawn = draw(digest);
    for (name, text) in &drawn {
        std::fs::write(dir.join(name), text)?;
    }
    Ok(drawn.into_iter().map(|(name, _)| name).collect())
}

/// Names and contents; no name twice.
fn draw(digest: &Digest) -> Vec<(String, String)> {
    let mut out: Vec<(String, String)> = Vec::new();
    for table in &digest.tables {
        let curves = table.curves.iter().map(|curve| {
            let own =
                curve.series.iter().map(|line| Line { name: line.name.clone(), points: line.points.clone() });
            let frame = Frame { title: &curve.name, x: &curve.x, y: &curve.y };
            (format!("{} {}", table.name, curve.name), lines(frame, &own.collect::<Vec<_>>()))
        });
        for (name, text) in curves.chain(aging(digest, table)) {
            let stem = stem(&name);
            let taken = |name: &str| out.iter().any(|(other, _)| other == name);
            let mut names =
                (1..).map(|n| if n == 1 { format!("{stem}.svg") } else { format!("{stem}-{n}.svg") });
            if let Some(name) = names.find(|name| !taken(name)) {
                out.push((name, text));
            }
        }
    }
    out
}

/// A part of a file's name that means nothing to a shell.
fn stem(name: &str) -> String {
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    plain.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-").chars().take(120).collect()
}

fn aging(digest: &Digest, table: &Table) -> Vec<(String, String)> {
    let mut cases: Vec<&str> = table.aging.iter().map(|run| run.case.as_str()).collect();
    cases.dedup();
    let mut out = Vec::new();
    for case in cases {
        let own: Vec<&Run> = table.aging.iter().filter(|run| run.case == case).collect();
        let name = |run: &Run| digest.systems.get(run.system).cloned().unwrap_or_default();
        let first = own.first().map_or(0, |run| run.seed);
        let series: Vec<Line> = own
            .iter()
            .filter(|run| run.seed == first)
            .map(|run| Line {
                name: name(run),
                points: run.frames.iter().map(|f| (f.step, f.extents_per_file)).collect(),
            })
            .collect();
        let title = format!("{} {case}", table.name);
        let frame = Frame { title: &title, x: "progress of the run", y: "extents per file" };
        out.push((format!("{title} extents"), lines(frame, &series)));
        for run in own.iter().filter(|run| run.seed == first) {
            let title = format!("{title} {}", name(run));
            out.extend(run.frames.last().map(|frame| (format!("{title} map"), map(&title, frame))));
        }
    }
    out
}

fn map(title: &str, frame: &crate::results::Aging) -> String {
    let levels: Vec<u8> = frame.groups.iter().map(|share| chart::level((*share).into(), 255)).collect();
    let strips: Vec<Strip> =
        frame.files.iter().map(|file| Strip { name: file.name.clone(), runs: file.runs.clone() }).collect();
    let notes = [
        format!(
            "{:.0} % full after {} operations; a cell is a group",
            100.0 * frame.fullness,
            frame.operations
        ),
        format!(
            "{:.3} extents per file, {} free runs; the files in the most pieces:",
            frame.extents_per_file, frame.free_runs
        ),
    ];
    Map { title, notes: &notes, levels: &levels, strips: &strips, total: frame.clusters }.svg()
}
