//! `plat-lab run founding`: the tables of the documents that founded the field, measured again in model
//! time, next to what they published, and a verdict on each shape.
//!
//! A table is a file here and a row in [`TABLES`]: its jobs measure cells, its judge compares them. Absolute
//! times of old machines are no target; ratios, orders and counts are.

mod cell;
mod s0;
mod s1;
mod s2;
mod s3;
mod s4;

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::jobs::{Bounds, Job};
use crate::results::{Cell, Record, Results, Verdict};
use crate::table::{Summary, align, show};

/// What tables are given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    pub(crate) seed: u64,
    /// Seeds of tables that publish statistics; others need one.
    pub(crate) seeds: u64,
    /// Small sizes, for a first look and for tests: shapes need not hold.
    pub(crate) quick: bool,
}

/// A table.
pub(crate) struct Table {
    pub(crate) name: &'static str,
    /// Where it is from, and what is compared.
    pub(crate) about: &'static str,
    /// Its figures, in the order in which they are printed; others are in the results only.
    pub(crate) figures: &'static [&'static str],
    pub(crate) jobs: fn(&Scope) -> Result<Vec<Job>, String>,
    pub(crate) judge: fn(&[Cell]) -> Vec<Verdict>,
}

/// Seeds of tables that publish statistics, if not told: the documents have means of five.
pub(crate) const SEEDS: u64 = 5;

/// All tables.
pub(crate) const TABLES: &[Table] = &[s0::TABLE, s1::TABLE, s2::TABLE, s3::TABLE, s4::TABLE];

/// Runs the tables whose name contains `only`, prints each as soon as it is done, and says whether all
/// verdicts hold. With results, what an earlier run found there is taken over.
///
/// # Errors
/// A cell that could not be measured; the file of results.
pub(crate) fn run(
    tables: &[Table],
    scope: &Scope,
    only: &str,
    bounds: Bounds,
    results: Option<(&Results, &[Record])>,
) -> Result<bool, String> {
    let mut all_hold = true;
    for table in tables.iter().filter(|table| table.name.contains(only)) {
        let keep = |found: &[Record]| match results {
            Some((results, _)) => found.iter().try_for_each(|record| results.add(record.clone())),
            None => Ok(()),
        };
        let earlier = results.map_or(&[][..], |(_, earlier)| earlier);
        let found = crate::jobs::run((table.jobs)(scope)?, bounds, earlier, &keep)?;
        let cells = cells(found.into_iter().flatten());
        let verdicts = (table.judge)(&cells);
        keep(&verdicts.iter().cloned().map(Record::from).collect::<Vec<_>>())?;
        all_hold &= verdicts.iter().all(|verdict| verdict.holds);
        print!("{}", text(table, &cells, &verdicts));
    }
    Ok(all_hold)
}

fn cells(records: impl Iterator<Item = Record>) -> Vec<Cell> {
    let cell = |record| match record {
        Record::Cell(cell) => Some(cell),
        _ => None,
    };
    records.filter_map(cell).collect()
}

/// The value of a figure: the mean over the seeds of a case and a system.
pub(crate) fn mean(cells: &[Cell], case: &str, system: &str, figure: &str) -> Option<f64> {
    summary(cells, case, system, figure).map(|summary| summary.avg)
}

/// Statistics of a figure over the seeds of a case and a system.
pub(crate) fn summary(cells: &[Cell], case: &str, system: &str, figure: &str) -> Option<Summary> {
    let own = cells.iter().filter(|cell| cell.case == case && cell.system == system);
    Summary::of(&own.filter_map(|cell| value(&cell.figures.0, figure)).collect::<Vec<_>>())
}

/// What was published for a case and a system.
pub(crate) fn published(cells: &[Cell], case: &str, system: &str, figure: &str) -> Option<f64> {
    let own = cells.iter().find(|cell| cell.case == case && cell.system == system)?;
    value(&own.published.0, figure)
}

fn value(figures: &[(String, f64)], name: &str) -> Option<f64> {
    figures.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
}

/// A verdict, with what it goes by.
pub(crate) fn verdict(
    table: &str,
    text: impl Into<String>,
    holds: bool,
    detail: impl Into<String>,
) -> Verdict {
    Verdict { table: table.into(), text: text.into(), holds, detail: detail.into() }
}

/// A line per case and figure, two columns per system: published and reproduced.
fn text(table: &Table, cells: &[Cell], verdicts: &[Verdict]) -> String {
    let mut seen = BTreeSet::new();
    let cases: Vec<&str> = cells.iter().map(|cell| &*cell.case).filter(|case| seen.insert(*case)).collect();
    seen.clear();
    let systems: Vec<&str> =
        cells.iter().map(|cell| &*cell.system).filter(|name| seen.insert(*name)).collect();
    let head = systems.iter().flat_map(|name| [format!("{name}: published"), "reproduced".into()]);
    let mut lines = vec![["case".to_string(), "figure".to_string()].into_iter().chain(head).collect()];
    for case in cases {
        for figure in table.figures {
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
    let mut out = format!("{}: {}\n{}", table.name, table.about, align(&lines));
    for verdict in verdicts {
        let holds = if verdict.holds { "holds" } else { "DOES NOT HOLD" };
        // Writing to a string can't fail.
        let _ = writeln!(out, "  {holds}: {} ({})", verdict.text, verdict.detail);
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::Key;
    use crate::results::Figures;

    /// The cells of a table with small sizes and two seeds.
    pub(super) fn measured(table: &Table) -> Vec<Cell> {
        let scope = Scope { seed: 1, seeds: 2, quick: true };
        let jobs = (table.jobs)(&scope).unwrap();
        cells(crate::jobs::run(jobs, Bounds::default(), &[], &|_| Ok(())).unwrap().into_iter().flatten())
    }

    /// The same cells, with figures of a system multiplied.
    pub(super) fn scaled(cells: &[Cell], system: &str, factors: &[(&str, f64)]) -> Vec<Cell> {
        let scale = |cell: &Cell| {
            let factor = |name: &str| {
                factors.iter().find(|(known, _)| *known == name).map_or(1.0, |(_, factor)| *factor)
            };
            let figures = cell.figures.0.iter().map(|(name, value)| (name.clone(), value * factor(name)));
            let figures =
                if cell.system == system { Figures(figures.collect()) } else { cell.figures.clone() };
            Cell { figures, ..cell.clone() }
        };
        cells.iter().map(scale).collect()
    }

    fn jobs(scope: &Scope) -> Result<Vec<Job>, String> {
        let systems = [("old", 4.0), ("new", 2.0)];
        let all = systems.into_iter().flat_map(|(system, seconds)| {
            (scope.seed..scope.seed + scope.seeds).map(move |seed| {
                let key = Key {
                    table: "T".into(),
                    case: "untar".into(),
                    system: system.into(),
                    seed,
                    parameters: serde_json::Map::new(),
                };
                let run = move |key: &Key| {
                    let figures =
                        Figures::from_iter([("seconds", seconds + f64::from(u32::try_from(seed).unwrap()))]);
                    let published = Figures::from_iter([("seconds", seconds * 10.0)]);
                    Ok(vec![Cell { figures, published, ..key.cell() }.into()])
                };
                Job { key, memory: 1, weight: 1, run: Box::new(run) }
            })
        });
        Ok(all.collect())
    }

    fn judge(cells: &[Cell]) -> Vec<Verdict> {
        let of = |system| mean(cells, "untar", system, "seconds").unwrap();
        vec![verdict("T", "new is faster", of("new") < of("old"), format!("{} < {}", of("new"), of("old")))]
    }

    #[test]
    fn a_table_has_published_and_reproduced_columns_and_verdicts() {
        let table = Table { name: "T", about: "a test", figures: &["seconds"], jobs, judge };
        let scope = Scope { seed: 1, seeds: 2, quick: true };
        let found = crate::jobs::run(jobs(&scope).unwrap(), Bounds::default(), &[], &|_| Ok(())).unwrap();
        let cells = cells(found.into_iter().flatten());
        let shown = text(&table, &cells, &judge(&cells));
        let wanted = "T: a test\n\
            case   figure   old: published  reproduced  new: published  reproduced\n\
            untar  seconds              40      5.5000              20      3.5000\n\
            \x20 holds: new is faster (3.5 < 5.5)\n\n";
        assert_eq!(shown, wanted);
        let worse: Vec<Cell> = cells
            .iter()
            .cloned()
            .map(|cell| Cell { figures: Figures::from_iter([("seconds", 1.0)]), ..cell })
            .collect();
        assert!(!judge(&worse)[0].holds && text(&table, &worse, &judge(&worse)).contains("DOES NOT HOLD"));
    }

    #[test]
    fn an_interrupted_run_goes_on_and_prints_the_same() {
        let table = || Table { name: "T", about: "a test", figures: &["seconds"], jobs, judge };
        let scope = Scope { seed: 1, seeds: 2, quick: true };
        let path = std::env::temp_dir().join(format!("plat-lab-founding-{}.jsonl", std::process::id()));
        let results = Results::append(&path).unwrap();
        assert!(run(&[table()], &scope, "", Bounds::default(), Some((&results, &[]))).unwrap());
        let earlier = crate::results::read(std::slice::from_ref(&path)).unwrap();
        assert!(run(&[table()], &scope, "", Bounds::default(), Some((&results, &earlier))).unwrap());
        let all = crate::results::read(std::slice::from_ref(&path)).unwrap();
        std::fs::remove_file(&path).unwrap();
        let cells =
            |records: &[Record]| records.iter().filter(|record| matches!(record, Record::Cell(_))).count();
        assert_eq!((cells(&earlier), cells(&all)), (4, 4));
    }
}
