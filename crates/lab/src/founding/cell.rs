//! Cells that run one workload on one volume in model time.

use platfs::placement::Counter;

use crate::jobs::{Job, Key};
use crate::numbers::float;
use crate::results::{Cell, Figures};
use crate::system::{Library, Mounting};
use crate::workload::{Outcome, Scale, Workload, in_model_time};

/// What is run, and what was published of it.
pub(super) struct Spec {
    pub(super) table: &'static str,
    pub(super) case: String,
    pub(super) system: &'static str,
    pub(super) seed: u64,
    pub(super) quick: bool,
    pub(super) mounting: Mounting,
    pub(super) workload: &'static str,
    pub(super) settings: Vec<(&'static str, u64)>,
    /// The figures of the outcomes of all phases, beside those that every cell has.
    pub(super) measure: fn(&[Outcome]) -> Vec<(&'static str, f64)>,
    pub(super) published: Vec<(&'static str, f64)>,
    pub(super) weight: u64,
}

impl Spec {
    pub(super) fn job(self) -> Result<Job, String> {
        let workload = Workload::named(self.workload)?;
        let settings = self.settings.iter().map(|(name, value)| ((*name).to_string(), value.to_string()));
        let scale = Scale { seed: self.seed, quick: self.quick, settings: settings.collect() };
        let parameters = [
            ("drive", self.mounting.drive.name.into()),
            ("workload", self.workload.into()),
            ("settings", serde_json::json!(scale.settings)),
            ("quick", self.quick.into()),
        ];
        let key = Key {
            table: self.table.into(),
            case: self.case,
            system: self.system.into(),
            seed: self.seed,
            parameters: parameters.map(|(name, value)| (name.to_string(), value)).into_iter().collect(),
        };
        let Spec { mounting, measure, published, weight, .. } = self;
        let run = move |key: &Key| {
            let library = Library::new(&mounting)?;
            let mut outcomes = Vec::new();
            for phase in (workload.phases)(&scale)? {
                outcomes.push(in_model_time(&library, phase)?);
            }
            let drive = library.figures();
            let common = [
                ("requests", float(drive.reads + drive.writes)),
                ("seeks", float(drive.seeks)),
                ("allocator calls", float(library.statistics().get(Counter::Reqs))),
            ];
            let figures = Figures::from_iter(measure(&outcomes).into_iter().chain(common));
            let published = Figures::from_iter(published);
            Ok(vec![Cell { figures, published, ..key.cell() }.into()])
        };
        Ok(Job { key, memory: 256 << 20, weight, run: Box::new(run) })
    }
}

/// Seconds of all phases.
pub(super) fn seconds(outcomes: &[Outcome]) -> Vec<(&'static str, f64)> {
    vec![("seconds", outcomes.iter().map(Outcome::seconds).sum())]
}

/// The rate of one phase.
pub(super) fn rate(outcomes: &[Outcome], phase: &str) -> Vec<(&'static str, f64)> {
    let rate = outcomes.iter().find(|outcome| outcome.name == phase).map(Outcome::megabytes_per_second);
    rate.map(|rate| ("MB/s", rate)).into_iter().collect()
}
