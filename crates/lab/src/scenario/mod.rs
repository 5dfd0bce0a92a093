//! The scenarios: one file each, all in [`SCENARIOS`].

mod age;
mod cost;
mod criteria;
mod writers;

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
        name: "alloc-cost",
        summary: "calls and cycles per block for files of 5 kB, 600 kB and 12,445 kB (2004)",
        run: cost::run,
    },
    Scenario {
        name: "nine-writers",
        summary: "nine files of 20 MB written in turns, with and without delayed allocation (2004)",
        run: writers::nine,
    },
    Scenario {
        name: "stream-writers",
        summary: "1 GB in 4 to 32 files written in turns (2004)",
        run: writers::streams,
    },
    Scenario {
        name: "windows",
        summary: "1 to 16 clients writing files in turns: hits of reservation windows (2010)",
        run: writers::windows,
    },
    Scenario {
        name: "appenders",
        summary: "64 files grown to 1 GiB by fallocate of 4 KiB on 200 GiB (2025)",
        run: writers::appenders,
    },
    Scenario {
        name: "threads",
        summary: "1 to 64 threads allocating and freeing on one volume of 100 GiB",
        run: cost::threads,
    },
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
