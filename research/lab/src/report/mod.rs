//! `plat-lab report`: files of results as one page, and as files of plots.

mod claims;
mod digest;
mod files;
mod markup;
mod plots;
mod ratios;

use crate::results;
use chart::page::Page;
use digest::Digest;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Files of results.
    #[arg(required = true)]
    results: Vec<PathBuf>,
    /// The page to write; it replaces what is there when it is whole.
    #[arg(short, long, value_name = "HTML", required_unless_present = "plots")]
    output: Option<PathBuf>,
    /// Writes the plots as SVG files into this directory.
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
}

/// Reads results and writes what was asked for.
///
/// # Errors
/// Files that can't be read or written, lines that are none.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let digest = Digest::of(results::read(&options.results)?);
    if digest.tables.is_empty() {
        return Err("no results: `plat-lab run SCENARIO --results FILE` makes some".into());
    }
    if let Some(path) = &options.output {
        let page = html(&digest);
        whole(path, page.as_bytes()).map_err(|error| format!("{}: {error}", path.display()))?;
        println!("{}: {} tables, {} KiB", path.display(), digest.tables.len(), page.len() / 1_024);
    }
    if let Some(dir) = &options.plots {
        let names = files::write(dir, &digest).map_err(|error| format!("{}: {error}", dir.display()))?;
        println!("{}: {} plots", dir.display(), names.len());
    }
    Ok(())
}

/// The page.
fn html(digest: &Digest) -> String {
    let (body, plots) = markup::body(digest);
    let data = serde_json::json!({ "systems": digest.systems, "plots": plots }).to_string();
    let script = include_str!("report.js");
    Page { title: "Laboratory of platfs", body: &body, data: &data, script }.html()
}

/// Writes a file under another name and renames it: it is there whole, or as it was.
fn whole(path: &std::path::Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let done = std::fs::write(&name, bytes).and_then(|()| std::fs::rename(&name, path));
    if done.is_err() {
        // Best effort: the error to report is the first.
        let _ = std::fs::remove_file(&name);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Aging, Cell, Curve, Extents, Line, Record, Verdict};

    #[test]
    fn a_page_says_when_sizes_were_small() {
        let cell = |quick: bool| {
            let mut parameters = serde_json::Map::new();
            parameters.insert("quick".into(), quick.into());
            html(&Digest::of(vec![Cell { table: "t".into(), parameters, ..Cell::default() }.into()]))
        };
        assert!(cell(true).contains("Sizes were small") && !cell(false).contains("Sizes were small"));
    }

    #[test]
    fn a_page_of_very_much_has_at_most_five_megabytes() {
        let mut records = Vec::new();
        for (table, case) in (0..20).flat_map(|table| (0..40).map(move |case| (table, case))) {
            let (table, case) = (format!("table {table}"), format!("case {case}"));
            for system in 0..6 {
                let figures = (0..12).map(|n| (format!("figure {n}"), f64::from(n) * 1.234_567)).collect();
                let system = format!("system {system}");
                records.push(Record::from(Cell {
                    table: table.clone(),
                    case: case.clone(),
                    system: system.clone(),
                    figures,
                    ..Cell::default()
                }));
                let files = vec![Extents { name: "x".repeat(200), runs: vec![(7, 1); 48] }; 4];
                let frame = Aging {
                    table: table.clone(),
                    case: case.clone(),
                    system,
                    groups: vec![9; 99],
                    files,
                    ..Aging::default()
                };
                records.push(frame.into());
            }
            records.push(
                Verdict {
                    table: table.clone(),
                    text: case,
                    detail: "y".repeat(100_000),
                    ..Verdict::default()
                }
                .into(),
            );
        }
        let line = Line { name: "long".into(), points: (0..99_999).map(|n| (f64::from(n), 1.0)).collect() };
        records.push(Curve { series: vec![line; 50], ..Curve::default() }.into());
        let page = html(&Digest::of(records));
        assert!(page.len() < 5 << 20, "{}", page.len());
    }
}
