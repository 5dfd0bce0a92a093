//! Lines of results as tables: for each table its cases, figures and systems, each in the order in which they first occur,
//! and cells in the order of their jobs: it does not depend on which ended first.
//! Results that a later run of the command repeats take the place of the earlier ones.

use crate::experiment::{HIGH, LOW};
use crate::results::{Aging, Cell, Criteria, Curve, Record, Session, Size, Skipped, Verdict};
use std::collections::BTreeSet;

/// Everything of all files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Digest {
    pub(crate) sessions: Vec<Session>,
    /// Something was measured with `--quick`.
    pub(crate) is_small: bool,
    /// All systems; a place in it is a system's colour.
    pub(crate) systems: Vec<String>,
    pub(crate) tables: Vec<Table>,
    /// Skipped records that belong to no table.
    pub(crate) skipped: Vec<Skipped>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) name: String,
    /// Places in [`Digest::systems`]; the others are compared with the first.
    pub(crate) systems: Vec<usize>,
    pub(crate) cases: Vec<Case>,
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) sizes: Vec<Size>,
    pub(crate) curves: Vec<Curve>,
    pub(crate) aging: Vec<Run>,
    pub(crate) criteria: Vec<Criteria>,
    pub(crate) skipped: Vec<Skipped>,
    /// Places in [`Digest::sessions`] of what it was made by.
    pub(crate) sessions: BTreeSet<usize>,
    pub(crate) seeds: BTreeSet<u64>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) figures: Vec<Figure>,
}

/// One figure of one case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figure {
    pub(crate) name: String,
    /// In the order of the table's systems.
    pub(crate) columns: Vec<Column>,
}

/// One figure of one case of one system.
#[derive(Clone, Debug, Default)]
pub(crate) struct Column {
    runs: Vec<Value>,
    pub(crate) published: Option<f64>,
    /// The lowest and the highest that were published.
    pub(crate) bounds: [Option<f64>; 2],
}

#[derive(Clone, Debug)]
struct Value {
    session: usize,
    seed: u64,
    value: f64,
}

impl Column {
    pub(crate) fn values(&self) -> Vec<f64> {
        self.runs.iter().map(|run| run.value).collect()
    }
}

/// The frames of one aging run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    pub(crate) session: usize,
    pub(crate) case: String,
    pub(crate) system: usize,
    pub(crate) seed: u64,
    pub(crate) frames: Vec<Aging>,
}

impl Digest {
    /// Sorts lines into tables; those of the founding documents come first.
    pub(crate) fn of(records: Vec<Record>) -> Digest {
        let mut digest = Digest::default();
        digest.name(&records);
        for record in records {
            digest.add(record);
        }
        for table in &mut digest.tables {
            table.even();
            table.order(&digest.systems);
        }
        digest.tables.sort_by_key(|table| match founding(&table.name) {
            Some(number) => (0, number),
            None => (1, 0),
        });
        digest
    }

    /// Gives tables, systems, cases and figures their places.
    fn name(&mut self, records: &[Record]) {
        let cells = || {
            records
                .iter()
                .filter_map(|record| if let Record::Cell(cell) = record { Some(cell) } else { None })
        };
        let mut tables: Vec<(&str, Vec<&Cell>)> = Vec::new();
        for cell in cells() {
            let at = place(&mut tables, |(name, _)| *name == cell.table, || (&cell.table, Vec::new()));
            tables[at].1.push(cell);
        }
        for (_, mut cells) in tables {
            cells.sort_by_key(|cell| cell.job);
            for cell in cells {
                let system = self.system(&cell.system);
                let table = self.unsigned(&cell.table);
                let column = place(&mut table.systems, |known| *known == system, || system);
                let case = table.case(&cell.case);
                cell.figures.0.iter().for_each(|(name, _)| _ = case.column(name, column));
            }
        }
    }

    fn add(&mut self, record: Record) {
        match record {
            Record::Session(session) => {
                self.is_small |= session.command.split_whitespace().any(|word| word == "--quick");
                self.sessions.push(session);
            }
            Record::Cell(cell) => {
                self.is_small |= cell.parameters.get("quick") == Some(&true.into());
                self.cell(cell);
            }
            Record::Verdict(verdict) => {
                let table = self.table(&verdict.table);
                table.verdicts.retain(|old| old.text != verdict.text);
                table.verdicts.push(verdict);
            }
            Record::Size(size) => {
                let table = self.table(&size.table);
                let place =
                    |size: &Size| [&size.case, &size.figure, &size.system, &size.over].map(String::clone);
                table.sizes.retain(|old| place(old) != place(&size));
                table.sizes.push(size);
            }
            Record::Curve(curve) => {
                let table = self.table(&curve.table);
                table.curves.retain(|old| old.name != curve.name);
                table.curves.push(curve);
            }
            Record::Aging(frame) => self.frame(frame),
            Record::Criteria(line) => {
                let table = self.table(&line.table);
                table.criteria.retain(|old| (&old.case, &old.system) != (&line.case, &line.system));
                table.criteria.push(line);
            }
            Record::Skipped(skipped) if skipped.table.is_empty() => {
                self.skipped.retain(|old| old.system != skipped.system);
                self.skipped.push(skipped);
            }
            Record::Skipped(skipped) => {
                let table = self.table(&skipped.table);
                table.skipped.retain(|old| old.system != skipped.system);
                table.skipped.push(skipped);
            }
            Record::Other => {}
        }
    }

    /// A table, to which the session at hand adds.
    fn table(&mut self, name: &str) -> &mut Table {
        let session = self.sessions.len().saturating_sub(1);
        let table = self.unsigned(name);
        table.sessions.insert(session);
        table
    }

    fn unsigned(&mut self, name: &str) -> &mut Table {
        let new = || Table { name: name.into(), ..Table::default() };
        let at = place(&mut self.tables, |table| table.name == name, new);
        &mut self.tables[at]
    }

    fn system(&mut self, name: &str) -> usize {
        place(&mut self.systems, |known| known == name, || name.into())
    }

    fn cell(&mut self, cell: Cell) {
        let (system, session) = (self.system(&cell.system), self.sessions.len());
        let table = self.table(&cell.table);
        table.seeds.insert(cell.seed);
        let column = place(&mut table.systems, |known| *known == system, || system);
        let case = table.case(&cell.case);
        for (name, value) in cell.figures.0 {
            let runs = &mut case.column(&name, column).runs;
            runs.retain(|run| run.seed != cell.seed || run.session == session);
            runs.push(Value { session, seed: cell.seed, value });
        }
        for (name, value) in cell.published.0 {
            let ends = [LOW, HIGH].iter().zip(0..);
            let bound = ends.filter_map(|(end, at)| Some((name.strip_suffix(end)?.to_string(), at))).next();
            let (name, at) = bound.map_or((name, None), |(name, at)| (name, Some(at)));
            let name = case.counterpart(name);
            let column = case.column(&name, column);
            *at.map_or(&mut column.published, |at: usize| &mut column.bounds[at]) = Some(value);
        }
    }

    fn frame(&mut self, frame: Aging) {
        let (system, session) = (self.system(&frame.system), self.sessions.len());
        let table = self.table(&frame.table);
        place(&mut table.systems, |known| *known == system, || system);
        let same = |run: &Run| (run.system, run.seed) == (system, frame.seed) && run.case == frame.case;
        table.aging.retain(|run| !same(run) || run.session == session);
        let run = place(&mut table.aging, same, || Run {
            session,
            case: frame.case.clone(),
            system,
            seed: frame.seed,
            frames: Vec::new(),
        });
        table.aging[run].frames.push(frame);
    }
}

impl Case {
    fn column(&mut self, figure: &str, system: usize) -> &mut Column {
        let at = place(
            &mut self.figures,
            |own| own.name == figure,
            || Figure { name: figure.into(), columns: Vec::new() },
        );
        let columns = &mut self.figures[at].columns;
        if columns.len() <= system {
            columns.resize(system + 1, Column::default());
        }
        &mut columns[system]
    }

    /// The figure beside which a published one stands: of its own name, or in the model what that was in seconds.
    fn counterpart(&self, name: String) -> String {
        let has = |name: &str| self.figures.iter().any(|figure| figure.name == name);
        let model = format!("model_{name}");
        if !has(&name) && has(&model) { model } else { name }
    }
}

impl Table {
    fn case(&mut self, name: &str) -> &mut Case {
        let new = || Case { name: name.into(), figures: Vec::new() };
        let at = place(&mut self.cases, |case| case.name == name, new);
        &mut self.cases[at]
    }

    /// Puts what stands beside cells into their order.
    fn order(&mut self, systems: &[String]) {
        let (cases, own) = (&self.cases, &self.systems);
        let case = |name: &str| cases.iter().position(|case| case.name == name);
        let column = |system: usize| own.iter().position(|known| *known == system);
        self.aging.sort_by_key(|run| (case(&run.case), column(run.system), run.seed));
        let system = |name: &str| systems.iter().position(|known| known == name).and_then(column);
        self.criteria.sort_by_key(|line| (case(&line.case), system(&line.system)));
    }

    /// Gives each figure a column for each system.
    fn even(&mut self) {
        for figure in self.cases.iter_mut().flat_map(|case| &mut case.figures) {
            figure.columns.resize(self.systems.len(), Column::default());
        }
    }

    /// Returns true if it compares with systems that are not ours.
    pub(crate) fn has_peers(&self, systems: &[String]) -> bool {
        const PEERS: [&str; 5] = ["kernel", "ext4", "xfs", "btrfs", "fuse2fs"];
        let word = |name: &str| name.split([' ', ',']).next().unwrap_or_default().to_lowercase();
        let is_peer = |name: &String| PEERS.contains(&word(name).as_str());
        self.systems.iter().filter_map(|system| systems.get(*system)).any(is_peer)
    }
}

/// The number of the founding document that a table reproduces.
pub(crate) fn founding(table: &str) -> Option<u32> {
    table.strip_prefix('S')?.split(' ').next()?.parse().ok()
}

/// The place of what answers, made if there is none.
fn place<T>(all: &mut Vec<T>, is: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> usize {
    all.iter().position(is).unwrap_or_else(|| {
        all.push(new());
        all.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(table: &str, system: &str, seed: u64, value: f64) -> Record {
        Record::Cell(Cell {
            table: table.into(),
            case: "untar".into(),
            system: system.into(),
            seed,
            figures: [("model_seconds", value)].into_iter().collect(),
            published: [("seconds", 252.0), ("seconds low", 240.0), ("seconds high", 260.0)]
                .into_iter()
                .collect(),
            ..Cell::default()
        })
    }

    #[test]
    fn later_runs_replace_the_same_seeds_and_repetitions_add_up() {
        let session = || Record::Session(Session::default());
        let mut records = vec![session(), cell("age", "lease", 1, 5.0), cell("age", "lease", 1, 6.0)];
        let values = |records: &[Record]| {
            let digest = Digest::of(records.to_vec());
            digest.tables[0].cases[0].figures[0].columns[0].values()
        };
        assert_eq!(values(&records), [5.0, 6.0]);
        records.extend([cell("age", "lease", 2, 7.0), session(), cell("age", "lease", 1, 8.0)]);
        assert_eq!(values(&records), [7.0, 8.0]);
        assert_eq!(Digest::of(records).tables[0].sessions.len(), 2);
    }

    #[test]
    fn cells_stand_in_the_order_of_jobs_whoever_ended_first() {
        let record = |job: usize| {
            let cell = Cell {
                table: "t".into(),
                case: format!("case {}", job / 2),
                system: format!("system {}", job % 2),
                figures: [(format!("figure {}", job / 2), 1.0)].into_iter().collect(),
                job: Some(job),
                ..Cell::default()
            };
            let frame = Aging {
                table: "t".into(),
                case: cell.case.clone(),
                system: cell.system.clone(),
                ..Aging::default()
            };
            [Record::Aging(frame), Record::Cell(cell)]
        };
        let shown = |order: [usize; 4]| {
            let digest = Digest::of(order.into_iter().flat_map(record).collect());
            let table = &digest.tables[0];
            let cases: Vec<_> =
                table.cases.iter().map(|case| (case.name.clone(), case.figures[0].name.clone())).collect();
            let aging: Vec<_> = table.aging.iter().map(|run| (run.case.clone(), run.system)).collect();
            (digest.systems.clone(), table.systems.clone(), cases, aging)
        };
        let wanted = shown([0, 1, 2, 3]);
        assert_eq!(wanted.0, ["system 0", "system 1"]);
        for order in [[3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
            assert_eq!(shown(order), wanted);
        }
    }

    #[test]
    fn founding_tables_come_first_with_what_was_published_beside_what_was_measured() {
        let records = vec![
            cell("age", "lease", 1, 1.0),
            cell("S2 ports tree", "spread", 1, 2.0),
            cell("S0 dbench", "xfs-like", 1, 3.0),
            cell("S2 ports tree", "kernel ext4", 1, 4.0),
        ];
        let digest = Digest::of(records);
        let names: Vec<&str> = digest.tables.iter().map(|table| table.name.as_str()).collect();
        assert_eq!(names, ["S0 dbench", "S2 ports tree", "age"]);
        let table = &digest.tables[1];
        assert_eq!((table.systems.len(), table.cases[0].figures.len()), (2, 1));
        let column = &table.cases[0].figures[0].columns[1];
        assert_eq!((column.published, column.bounds), (Some(252.0), [Some(240.0), Some(260.0)]));
        assert!(table.has_peers(&digest.systems) && !digest.tables[0].has_peers(&digest.systems));
    }
}
