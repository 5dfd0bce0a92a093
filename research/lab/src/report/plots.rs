//! Data of the page's plots, as JSON: short names and few digits, and of aging runs as many frames as fit.

use super::digest::{Digest, Figure, Run, Table};
use crate::results::{Aging, Extents};
use crate::summary::Summary;
use serde_json::{Value, json};

/// Bytes that all aging runs together may take.
const ROOM: usize = 2_900_000;
/// Cells of a heat map at most.
const CELLS: usize = 960;
/// Points of a line at most.
const POINTS: usize = 300;
/// Places along a strip.
const PLACES: u64 = 1_024;

/// Levels of detail of aging runs: frames of each, files in each.
const DETAILS: [(usize, usize); 7] = [(48, 14), (32, 12), (24, 10), (16, 8), (12, 6), (8, 4), (4, 0)];

/// A drawing: what it shows, and its data.
pub(crate) struct Plot {
    pub(crate) caption: String,
    pub(crate) data: Value,
}

/// Returns true if two systems at least can be compared by a figure that varies.
fn worth(figure: &Figure) -> bool {
    let all: Vec<f64> = figure.columns.iter().flat_map(super::digest::Column::values).collect();
    let (low, high) = all.iter().fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
    figure.columns.iter().filter(|column| !column.values().is_empty()).count() > 1 && high > low
}

/// A row for each case, a dot for each system: at most three figures of a table.
pub(crate) fn dots(table: &Table, figures: &[String]) -> Vec<Plot> {
    let mut plots = Vec::new();
    for name in figures {
        let own = |figure: &&Figure| figure.name == *name && worth(figure);
        let rows: Vec<_> = table
            .cases
            .iter()
            .filter_map(|case| Some((case, case.figures.iter().find(own)?)))
            .take(32)
            .collect();
        if rows.is_empty() || plots.len() == 3 {
            continue;
        }
        let series: Vec<Value> = (0..table.systems.len())
            .map(|at| {
                let column = |row: &(_, &Figure)| row.1.columns.get(at).cloned().unwrap_or_default();
                let values = rows.iter().map(|row| Summary::of(&column(row).values()).map(|s| short(s.avg)));
                let published = rows.iter().map(|row| column(row).published);
                json!({ "s": table.systems[at], "values": values.collect::<Vec<_>>(), "published": published.collect::<Vec<_>>() })
            })
            .collect();
        let published = rows.iter().any(|row| row.1.columns.iter().any(|column| column.published.is_some()));
        let names: Vec<&str> = rows.iter().map(|(case, _)| case.name.as_str()).collect();
        plots.push(Plot {
            caption: format!(
                "{name}: each system in each case{}",
                if published { "; hollow: published" } else { "" }
            ),
            data: json!({ "kind": "dots", "x": name, "rows": names, "series": series }),
        });
    }
    plots
}

/// The curves of a table; lines whose name is a system have its colour.
pub(crate) fn curves(digest: &Digest, table: &Table) -> Vec<Plot> {
    let plot = |curve: &crate::results::Curve| {
        let series = curve.series.iter().map(|line| {
            let system = digest.systems.iter().position(|name| *name == line.name);
            // The last among them.
            let each = line.points.len().div_ceil(POINTS).max(1);
            let points = line.points.iter().rev().step_by(each).rev();
            let points: Vec<_> = points.map(|(x, y)| (short(*x), short(*y))).collect();
            json!({ "s": system, "name": line.name, "points": points })
        });
        Plot {
            caption: curve.name.clone(),
            data: json!({ "kind": "lines", "x": curve.x, "y": curve.y, "series": series.collect::<Vec<_>>() }),
        }
    };
    table
        .curves
        .iter()
        .filter(|curve| curve.series.iter().any(|line| !line.points.is_empty()))
        .map(plot)
        .collect()
}

/// Shares of the criteria in what was asked for.
pub(crate) fn criteria(table: &Table) -> Option<Plot> {
    let mut parts: Vec<String> = Vec::new();
    for (name, _) in table.criteria.iter().flat_map(|line| &line.hits.0) {
        if !parts.contains(name) {
            parts.push(name.clone());
        }
    }
    let row = |line: &crate::results::Criteria| {
        let hits =
            |name: &String| line.hits.0.iter().find(|(own, _)| own == name).map_or(0.0, |(_, hits)| *hits);
        let values: Vec<f64> = parts.iter().map(hits).collect();
        json!({ "name": format!("{}, {}", line.case, line.system), "system": line.system, "values": values })
    };
    let rows: Vec<Value> = table.criteria.iter().take(40).map(row).collect();
    (!rows.is_empty()).then(|| Plot {
        caption: "Which criterion was met: share of the requests, from the first that is tried to the last"
            .into(),
        data: json!({ "kind": "criteria", "parts": parts, "rows": rows }),
    })
}

/// The aging runs of all tables, in as much detail as there is room for; of very many cases the first.
pub(crate) fn aging(digest: &Digest) -> Vec<Option<Plot>> {
    let least = DETAILS.last().copied().unwrap_or_default();
    let fewer = [32, 16, 8, 4, 2, 1].map(|cases| (least, cases));
    let mut plots = Vec::new();
    for (detail, cases) in DETAILS.map(|detail| (detail, usize::MAX)).into_iter().chain(fewer) {
        plots = digest.tables.iter().map(|table| one_aging(table, detail, cases)).collect();
        let size: usize = plots.iter().flatten().map(|plot: &Plot| plot.data.to_string().len()).sum();
        if size <= ROOM {
            break;
        }
    }
    plots
}

fn one_aging(table: &Table, detail: (usize, usize), most: usize) -> Option<Plot> {
    let mut cases: Vec<(&str, Vec<&Run>)> = Vec::new();
    for run in &table.aging {
        match cases.iter_mut().find(|(name, _)| *name == run.case) {
            // One seed of each system: the first.
            Some((_, runs)) if runs.iter().any(|other| other.system == run.system) => {}
            Some((_, runs)) => runs.push(run),
            None => cases.push((&run.case, vec![run])),
        }
    }
    let first = cases.first()?.1.first()?;
    let caption = format!("The volume as it ages, seed {}: move along the run, or play it", first.seed);
    let case = |(name, runs): &(&str, Vec<&Run>)| json!({ "name": name, "runs": runs.iter().map(|run| one_run(run, detail.0, detail.1)).collect::<Vec<_>>() });
    let cases: Vec<Value> = cases.iter().take(most).map(case).collect();
    Some(Plot { caption, data: json!({ "kind": "aging", "cases": cases }) })
}

fn one_run(run: &Run, shots: usize, files: usize) -> Value {
    let track = run.frames.iter().map(|frame| {
        json!([
            short(frame.step),
            short(frame.fullness),
            frame.operations,
            short(frame.extents_per_file),
            frame.free_runs
        ])
    });
    // Evenly chosen, the last among them.
    let last = run.frames.len().saturating_sub(1);
    let count = shots.min(run.frames.len()).max(1);
    let chosen = (1..=count).map(|n| if count == 1 { last } else { (n - 1) * last / (count - 1) });
    let shot = |at: usize| {
        let frame = &run.frames[at];
        json!({ "at": at, "bins": bins(frame), "groups": groups(&frame.groups), "files": strips(frame, files) })
    };
    let groups = run.frames.first().map_or(0, |frame| frame.groups.len());
    json!({
        "s": run.system, "track": track.collect::<Vec<_>>(), "shots": chosen.map(shot).collect::<Vec<_>>(),
        "groups": groups, "clusters": run.frames.first().map_or(0, |frame| frame.clusters),
    })
}

/// Shares of the free space in percent.
fn bins(frame: &Aging) -> Vec<f64> {
    let all = crate::numbers::float(frame.free_bins.iter().sum::<u64>().max(1));
    frame.free_bins.iter().map(|n| short(100.0 * crate::numbers::float(*n) / all)).collect()
}

/// Letters for levels; several groups make a cell where there are many.
fn groups(all: &[u8]) -> String {
    let each = all.len().div_ceil(CELLS).max(1);
    let level = |cell: &[u8]| {
        let used: u64 = cell.iter().map(|group| u64::from(*group)).sum();
        chart::level(used, 255 * u64::try_from(cell.len()).unwrap_or(1))
    };
    chart::letters(all.chunks(each).map(|cell| Some(level(cell))))
}

fn strips(frame: &Aging, files: usize) -> Vec<Value> {
    let strip = |file: &Extents| {
        let mut places: Vec<u64> = Vec::new();
        let scale = |v: u64| {
            let at = u128::from(v) * u128::from(PLACES) / u128::from(frame.clusters.max(1));
            u64::try_from(at).unwrap_or(PLACES).min(PLACES)
        };
        for (start, length) in &file.runs {
            let (from, to) = (scale(*start), scale(start.saturating_add(*length)));
            places.extend([from, to - from]);
        }
        json!([file.name, file.runs.len(), places])
    };
    frame.files.iter().take(files).map(strip).collect()
}

/// Five digits are more than a drawing shows.
pub(crate) fn short(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let digits = 5.0 - value.abs().log10().ceil().clamp(-12.0, 5.0);
    let power = 10f64.powf(digits);
    (value * power).round() / power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_close() {
        for value in [0.0, 1.0, 1_234_567.0, 0.000_123_456_7, 99.999_99, -2.345_678_9] {
            assert!((short(value) - value).abs() <= value.abs() * 1e-4, "{value}: {}", short(value));
        }
        assert_eq!((short(f64::NAN), short(2.345_678_9)), (0.0, 2.3457));
    }

    #[test]
    fn groups_become_letters_and_many_share_one() {
        assert_eq!(groups(&[0, 1, 128, 254, 255]), "ABf-_");
        let many = vec![255; 4_000];
        assert_eq!(groups(&many).len(), 800);
        assert!(groups(&many).chars().all(|c| c == '_'));
    }

    #[test]
    fn details_go_before_the_page_grows_too_large() {
        let frame = |step: u32| Aging {
            step: step.into(),
            groups: vec![7; 900],
            clusters: 1 << 20,
            files: (0..16).map(|n| Extents { name: n.to_string(), runs: vec![(n, 1); 48] }).collect(),
            ..Aging::default()
        };
        let run = Run { frames: (0..48).map(frame).collect(), ..Run::default() };
        let runs = (0..40).map(|system| Run { system, ..run.clone() }).collect();
        let digest = Digest { tables: vec![Table { aging: runs, ..Table::default() }], ..Digest::default() };
        let plots = aging(&digest);
        let plot = plots[0].as_ref().unwrap();
        assert!(plot.data.to_string().len() <= ROOM);
        let shots = plot.data["cases"][0]["runs"][0]["shots"].as_array().unwrap();
        assert!(shots.len() >= 4 && shots.last().unwrap()["at"] == 47);
    }
}
