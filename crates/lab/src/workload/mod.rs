//! Workloads: what programs do, as streams of calls that follow from a seed, and the two ways to run them:
//! in model time on the library, in real time in any directory.
//!
//! To write a new one: a file here that makes phases, and a row in [`WORKLOADS`].

mod age;
mod append;
mod dd;
mod run;

pub(crate) use run::{Outcome, in_model_time, in_real_time};

use std::collections::BTreeMap;

use crate::system::Phase;

/// What a workload is given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scale {
    /// Everything random follows from it.
    pub(crate) seed: u64,
    /// Small sizes, for a first look and for tests.
    pub(crate) quick: bool,
    /// What else was set, by name: numbers of clients, sizes, files to read.
    pub(crate) settings: BTreeMap<String, String>,
}

impl Scale {
    /// A number that was set, or its default; the quick default where small sizes are asked for.
    ///
    /// # Errors
    /// What was set is no whole number.
    pub(crate) fn number(&self, name: &str, default: u64, quick: u64) -> Result<u64, String> {
        match self.settings.get(name) {
            Some(text) => text.parse().map_err(|_| format!("{name}={text}: not a whole number")),
            None if self.quick => Ok(quick),
            None => Ok(default),
        }
    }
}

/// A row of the registry.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    /// What can be set: name and meaning.
    pub(crate) settings: &'static [(&'static str, &'static str)],
    pub(crate) phases: fn(&Scale) -> Result<Vec<Phase>, String>,
}

/// All workloads.
pub(crate) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "age",
        summary: "create, append, rewrite, truncate and delete until a volume is full to a level and written over",
        settings: age::SETTINGS,
        phases: age::phases,
    },
    Workload {
        name: "append",
        summary: "files grown side by side in small appends, a client each",
        settings: append::SETTINGS,
        phases: append::phases,
    },
    Workload {
        name: "dd",
        summary: "files written whole side by side: one of 2 GB, or nine of 20 MB",
        settings: &[("files", "files at once"), ("size", "bytes of each"), ("block", "bytes of a write")],
        phases: dd::phases,
    },
];

impl Workload {
    /// The workload of this name.
    ///
    /// # Errors
    /// There is none; the message names all.
    pub(crate) fn named(name: &str) -> Result<&'static Workload, String> {
        let names = || WORKLOADS.iter().map(|workload| workload.name).collect::<Vec<_>>().join(", ");
        let found = WORKLOADS.iter().find(|workload| workload.name == name);
        found.ok_or_else(|| format!("no workload is called {name}; there are {}", names()))
    }
}
