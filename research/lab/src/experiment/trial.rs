//! Cells that run a workload on a new volume: of the library in model time, or of the placement engine alone.

use platfs::placement::Counter;
use serde_json::{Map, Value};

use crate::digest;
use crate::jobs::{Found, Job, Key};
use crate::measure;
use crate::numbers::float;
use crate::plan::Plan;
use crate::results::{Aging, Cell, Criteria, Figures, Record};
use crate::system::{EngineAlone, Library, Modelled, Mounting};
use crate::workload::{Outcome, Scale, Workload, in_model_time};

/// Figures by name.
pub(super) type Values = Vec<(&'static str, f64)>;

/// A case on the library, and what is measured of all its phases.
pub(super) type Measured = (Case, fn(&[Outcome]) -> Values);

/// Work of a cell, and what was published of it.
#[derive(Clone, Default)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) workload: &'static str,
    pub(super) settings: Vec<(&'static str, String)>,
    pub(super) published: Figures,
    /// How long it takes beside others of the table.
    pub(super) weight: u64,
    /// Samples that are taken along the way if they are wanted; 0: none.
    pub(super) samples: u32,
}

/// A cell's system and seed, in a table of a plan.
#[derive(Clone, Copy)]
pub(super) struct CellContext<'p> {
    pub(super) table: &'static str,
    pub(super) system: &'p str,
    pub(super) seed: u64,
    pub(super) plan: &'p Plan,
}

impl CellContext<'_> {
    /// The key of a cell, whose figures depend on some parameters.
    pub(super) fn key(&self, case: &str, parameters: impl IntoIterator<Item = (&'static str, Value)>) -> Key {
        let own = parameters.into_iter().map(|(name, value)| (name.to_string(), value));
        let sets = self.plan.sets.iter().map(|set| (set.to_string(), true.into()));
        let machine = self.plan.machine.iter().map(|change| (change.to_string(), true.into()));
        Key {
            table: self.table.into(),
            case: case.into(),
            system: self.system.into(),
            seed: self.seed,
            parameters: own.chain(sets).chain(machine).collect::<Map<_, _>>(),
        }
    }
}

/// Settings that are numbers.
pub(super) fn numbers<const N: usize>(settings: [(&'static str, u64); N]) -> Vec<(&'static str, String)> {
    settings.into_iter().map(|(name, value)| (name, value.to_string())).collect()
}

impl Case {
    fn scale(&self, at: &CellContext<'_>) -> Scale {
        let settings = self.settings.iter().map(|(name, value)| ((*name).to_string(), value.clone()));
        Scale { seed: at.seed, quick: at.plan.quick, settings: settings.collect() }
    }

    /// On the library, in model time: the figures that `measure` makes of all phases, and what every cell has.
    ///
    /// # Errors
    /// There is no such workload.
    pub(super) fn on_library(
        self,
        at: CellContext<'_>,
        mut mounting: Mounting,
        measure: fn(&[Outcome]) -> Values,
    ) -> Result<Job, String> {
        mounting.tunables.extend(at.plan.directory_tunables(mounting.directories));
        let workload = Workload::named(self.workload)?;
        let scale = self.scale(&at);
        let parameters = [
            ("drive", mounting.drive.name.into()),
            ("workload", self.workload.into()),
            ("settings", serde_json::json!(scale.settings)),
            ("files", digest::of_files(&scale.settings)),
            ("quick", scale.quick.into()),
        ];
        let key = at.key(&self.name, parameters);
        let Case { published, weight, .. } = self;
        let run = move |key: &Key| {
            let library = Library::new(&mounting)?;
            let phases = (workload.phases)(&scale)?.into_iter();
            let outcomes =
                phases.map(|phase| in_model_time(&library, phase)).collect::<Result<Vec<_>, _>>()?;
            let drive = library.figures();
            let common = [
                ("requests", float(drive.reads + drive.writes)),
                ("seeks", float(drive.seeks)),
                ("allocator calls", float(library.statistics().get(Counter::Reqs))),
            ];
            let figures = measure(&outcomes).into_iter().chain(common).collect();
            Ok(vec![Cell { figures, published, ..key.cell() }.into()])
        };
        Ok(Job { key, memory: 256 << 20, weight, run: Box::new(run) })
    }

    /// On an engine alone: the figures that `measure` makes of what it leaves.
    ///
    /// # Errors
    /// There is no such workload.
    pub(super) fn on_engine(
        self,
        at: CellContext<'_>,
        make: impl FnOnce() -> Result<EngineAlone, String> + Send + 'static,
        measure: fn(&EngineAlone) -> Values,
    ) -> Result<Job, String> {
        let workload = Workload::named(self.workload)?;
        let mut scale = self.scale(&at);
        let parameters = [
            ("workload", self.workload.into()),
            ("settings", serde_json::json!(scale.settings)),
            ("files", digest::of_files(&scale.settings)),
            ("quick", scale.quick.into()),
        ];
        let key = at.key(&self.name, parameters);
        // Of the first seed alone: they cost as much as the ageing, and the report has room for one run of a cell.
        let samples = if at.plan.samples && at.seed == at.plan.seed { self.samples } else { 0 };
        if samples > 0 {
            scale.settings.insert("parts".into(), samples.to_string());
        }
        let run = move |key: &Key| {
            let alone = make()?;
            let mut found = run_on_engine(&alone, (workload.phases)(&scale)?, samples > 0, key)?;
            // Counters first: what settling does is not the workload's.
            found.push(counted(key, &alone).into());
            alone.engine().release_claims();
            let figures = measure(&alone).into_iter().collect();
            found.push(Cell { figures, ..key.cell() }.into());
            Ok(found)
        };
        Ok(Job { key, memory: 256 << 20, weight: self.weight, run: Box::new(run) })
    }
}

/// Runs all phases; where samples are wanted, takes one behind each that did something.
fn run_on_engine(
    alone: &EngineAlone,
    phases: Vec<crate::system::Phase>,
    samples: bool,
    key: &Key,
) -> Result<Found, String> {
    let (mut found, mut operations, mut step) = (Found::new(), 0, 0.0);
    for phase in phases {
        let outcome = in_model_time(alone, phase)?;
        let calls = outcome.kinds.values().map(|timing| timing.calls).sum::<u64>();
        (operations, step) = (operations + calls, step + 1.0);
        if samples && calls > 0 {
            found.push(sample(alone, key, step, operations).into());
        }
    }
    Ok(found)
}

/// The volume at this moment.
fn sample(alone: &EngineAlone, key: &Key, step: f64, operations: u64) -> Aging {
    let (engine, files) = (alone.engine(), alone.files());
    let value = |values: Values, wanted| {
        values.into_iter().find(|(name, _)| *name == wanted).map_or(0.0, |(_, value)| value)
    };
    let clusters = engine.layout().clusters;
    Aging {
        table: key.table.clone(),
        case: key.case.clone(),
        system: key.system.clone(),
        seed: key.seed,
        step,
        fullness: 1.0 - float(engine.free_clusters()) / float(clusters.max(1)),
        operations,
        extents_per_file: value(measure::files(files.iter()), "extents/file"),
        free_runs: engine.free_runs().count() as u64,
        free_bins: measure::histogram(engine),
        groups: measure::groups(engine),
        clusters,
        files: measure::worst(files.iter()),
    }
}

/// Counts of an engine in a cell.
fn counted(key: &Key, alone: &EngineAlone) -> Criteria {
    of_key(key, Criteria::of(&alone.engine().stats()))
}

/// Gives counts the names of a cell.
pub(super) fn of_key(key: &Key, criteria: Criteria) -> Criteria {
    let Key { table, case, system, seed, .. } = key.clone();
    Criteria { table, case, system, seed, ..criteria }
}

/// The cells among some records.
pub(crate) fn cells(records: impl IntoIterator<Item = Record>) -> Vec<Cell> {
    let cell = |record| match record {
        Record::Cell(cell) => Some(cell),
        _ => None,
    };
    records.into_iter().filter_map(cell).collect()
}

/// Seconds of all phases.
pub(super) fn seconds(outcomes: &[Outcome]) -> Values {
    vec![("seconds", outcomes.iter().map(Outcome::seconds).sum())]
}

/// The rate of one phase.
pub(super) fn rate(outcomes: &[Outcome], phase: &str) -> Values {
    let rate = outcomes.iter().find(|outcome| outcome.name == phase).map(Outcome::megabytes_per_second);
    rate.map(|rate| ("MB/s", rate)).into_iter().collect()
}
