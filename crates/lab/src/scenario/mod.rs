//! The scenarios: one file each, all in [`SCENARIOS`].

mod age;
mod criteria;

use crate::table::Rows;
use placement::BlockPolicyKind;
use placement::policy::POLICIES;

/// What a run is given.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Everything random follows from it.
    pub(crate) seed: u64,
    /// Small sizes, for tests.
    pub(crate) quick: bool,
    /// Policies asked for by name; empty for the scenario's own choice.
    pub(crate) policies: Vec<String>,
    /// Only cases whose name contains this.
    pub(crate) case: String,
}

impl Setup {
    /// The policies to run: those asked for, else those of the scenario.
    pub(crate) fn policies(&self, own: &[BlockPolicyKind]) -> Vec<BlockPolicyKind> {
        if self.policies.is_empty() {
            return own.to_vec();
        }
        POLICIES
            .iter()
            .filter(|row| self.policies.iter().any(|p| p == row.name))
            .map(|row| row.kind)
            .collect()
    }

    /// Whether a case was asked for.
    pub(crate) fn wants(&self, case: &str) -> bool {
        case.contains(&self.case)
    }
}

/// A row of the registry.
pub(crate) struct Scenario {
    /// Name on the command line.
    pub(crate) name: &'static str,
    /// What it reproduces, in one line.
    pub(crate) summary: &'static str,
    /// Runs it under one seed.
    pub(crate) run: fn(&Setup) -> Rows,
}

/// All scenarios.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "criteria",
        summary: "40,000 small files with a goal of 8 MiB on free runs of 4 MiB: mballoc's criteria (2023)",
        run: criteria::run,
    },
    Scenario {
        name: "age",
        summary: "create, append and delete until the volume is old: fragmentation of files and of free space",
        run: age::run,
    },
];
