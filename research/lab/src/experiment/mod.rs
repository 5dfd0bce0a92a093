//! The experiments: a workload on systems, with what was published of it, and verdicts.
//!
//! An experiment is a file here and a row in [`EXPERIMENTS`]: its jobs measure cells, its judge compares them. The first
//! five are the tables of the documents that founded the field, measured again in model time next to what they
//! published: absolute times of old machines are no target; ratios, orders and counts are.

mod age;
mod best;
mod cost;
mod criteria;
mod index;
mod locks;
mod s0;
mod s1;
mod s2;
mod s3;
mod s4;
mod size;
mod trial;
mod writers;

pub(crate) use size::{Baseline, HIGH, LOW, sizes};
pub(crate) use trial::cells;

use crate::jobs::Job;
use crate::plan::Plan;
use crate::results::{Cell, Verdict};

/// A row of the registry.
pub(crate) struct Experiment {
    /// Name on the command line, and of its table in results.
    pub(crate) name: &'static str,
    /// Second name; empty: none.
    pub(crate) also: &'static str,
    /// Where it is from, and what is compared.
    pub(crate) about: &'static str,
    /// The figures that stand beside published ones, in their order; others are in the results only.
    pub(crate) figures: &'static [&'static str],
    pub(crate) kind: Kind,
    /// Base of the published figures' comparison.
    pub(crate) baseline: Baseline,
    pub(crate) jobs: fn(&Plan) -> Result<Vec<Job>, String>,
    pub(crate) judge: fn(&[Cell]) -> Vec<Verdict>,
}

/// Judgement that the cells of an experiment must pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The shapes that a founding document published: a run fails where one does not hold.
    Founding,
    /// Counts: how the first system compares with the best of the others.
    Counts,
    /// Times of this machine: its cells run one at a time, and each time again.
    Times,
}

/// All of them.
pub(crate) const EXPERIMENTS: &[Experiment] = &[
    s0::TABLE,
    s1::TABLE,
    s2::TABLE,
    s3::TABLE,
    s4::TABLE,
    cost::ALLOC_COST,
    writers::NINE,
    writers::STREAMS,
    writers::WINDOWS,
    writers::APPENDERS,
    cost::THREADS,
    locks::GROUP_LOCKS,
    criteria::CRITERIA,
    index::INDEX_COST,
    age::AGE,
    age::GERIATRIX,
];

/// The tables of the founding documents.
pub(crate) fn founding() -> impl Iterator<Item = &'static Experiment> {
    EXPERIMENTS.iter().filter(|experiment| experiment.kind == Kind::Founding)
}

impl Experiment {
    /// The experiment of this name.
    pub(crate) fn named(name: &str) -> Option<&'static Experiment> {
        let is_it = |experiment: &&Experiment| experiment.name == name || experiment.also == name;
        EXPERIMENTS.iter().filter(|_| !name.is_empty()).find(is_it)
    }
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

/// Everything that an experiment finds.
#[cfg(test)]
pub(crate) fn records(experiment: &Experiment, plan: &Plan) -> Vec<crate::results::Record> {
    let jobs = (experiment.jobs)(plan).unwrap();
    crate::jobs::run(jobs, crate::jobs::Bounds::default(), &[], &|_| Ok(()))
        .unwrap()
        .into_iter()
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Figures;

    /// The cells of an experiment with small sizes.
    pub(super) fn measured(experiment: &Experiment, case: &str, policies: &[&str]) -> Vec<Cell> {
        let policies = policies.iter().map(|name| (*name).to_string()).collect();
        let plan = Plan { seed: 1, quick: true, case: case.into(), policies, ..Plan::default() };
        cells(records(experiment, &plan))
    }

    /// Returns the cells with figures of a system multiplied.
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

    #[test]
    fn names_are_of_one_experiment_each() {
        let names: Vec<&str> = EXPERIMENTS.iter().flat_map(|row| [row.name, row.also]).collect();
        for name in names.iter().filter(|name| !name.is_empty()) {
            assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{name}");
            assert!(Experiment::named(name).is_some());
        }
        assert!(Experiment::named("").is_none());
        assert_eq!(Experiment::named("dirpref").map(|row| row.name), Some("S2"));
    }
}
