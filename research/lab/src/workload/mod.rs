//! Workloads: what programs do, as streams of calls that follow from a seed, and the two ways to run them:
//! in model time on the library, in real time in any directory.
//!
//! To write a new one: a file here that makes phases, and a row in [`WORKLOADS`].

mod age;
mod append;
mod blogbench;
#[cfg(test)]
#[cfg(feature = "whole")]
mod clean;
mod database;
mod dbench;
mod dd;
mod fsmark;
mod geriatrix;
mod git;
#[cfg(feature = "whole")]
mod layers;
mod mail;
mod profile;
#[cfg(feature = "whole")]
mod replay;
mod run;
mod service;
#[cfg(feature = "whole")]
mod strace;
mod tiobench;
#[cfg(feature = "whole")]
mod tree;
mod windows;

pub(crate) use run::{Kinds, Outcome, Timing, in_model_time, in_real_time};

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::numbers::float;
use crate::system::{Op, Phase};

/// One client's ageing, cut into phases: `call` gives its next call until the space that is to be in use was written as
/// often as it is told, `whole` times in the end.
fn in_parts<A: Send + 'static>(
    parts: u64,
    whole: f64,
    ageing: &Arc<Mutex<A>>,
    call: fn(&mut A, f64) -> Option<Op>,
) -> Vec<Phase> {
    let part = |number: u64| {
        let ageing = Arc::clone(ageing);
        let end = if number == parts { whole } else { whole / float(parts) * float(number) };
        let calls = move || call(&mut ageing.lock().unwrap_or_else(PoisonError::into_inner), end);
        Phase::new("age", vec![Box::new(std::iter::from_fn(calls))])
    };
    (1..=parts).map(part).collect()
}

/// Size, seed and settings of a workload.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scale {
    /// Everything random follows from it.
    pub(crate) seed: u64,
    /// Small sizes, for a first look and for tests.
    pub(crate) quick: bool,
    /// Other settings, by name: numbers of clients, sizes, files to read.
    pub(crate) settings: BTreeMap<String, String>,
}

impl Scale {
    /// A number that was set, or its default; the quick default where small sizes are asked for.
    ///
    /// # Errors
    /// The setting is no whole number.
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
    /// Settings: name and meaning.
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
        name: "database",
        summary: "databases: a log made stable by each transaction, pages in random places at checkpoints",
        settings: database::SETTINGS,
        phases: database::phases,
    },
    Workload {
        name: "dd",
        summary: "files written whole side by side: one of 2 GB, or nine of 20 MB",
        settings: &[("files", "files at once"), ("size", "bytes of each"), ("block", "bytes of a write")],
        phases: dd::phases,
    },
    Workload {
        name: "tiobench",
        summary: "threads that write and read a file each, in order and at random",
        settings: &[
            ("threads", "threads, with a file each"),
            ("size", "bytes of all files"),
            ("block", "bytes of a call"),
            ("random", "random calls of all threads"),
            ("phases", "1: only what is written in order; 5: all"),
        ],
        phases: tiobench::phases,
    },
    Workload {
        name: "dbench",
        summary: "clients of a file server: a load file of dbench's, or one of our own making",
        settings: &[
            ("clients", "clients"),
            ("load", "load file in dbench's client format"),
            ("rounds", "length of our own load"),
            ("fsync", "1: a flush of the load is an fsync"),
        ],
        phases: dbench::phases,
    },
    Workload {
        name: "blogbench",
        summary: "a blog server: writers, rewriters, commenters and readers for a given time",
        settings: &[
            ("blogs", "blogs that are there at the start"),
            ("seconds", "time of the run"),
            ("writers", "clients that add blogs"),
            ("rewriters", "clients that replace articles"),
            ("commenters", "clients that write comments"),
            ("readers", "clients that read blogs"),
        ],
        phases: blogbench::phases,
    },
    Workload {
        name: "fsmark",
        summary: "many files of one size, by threads, made stable in several ways",
        settings: &[
            ("threads", "threads"),
            ("files", "files of all threads"),
            ("size", "bytes of each"),
            ("block", "bytes of a write"),
            ("per-directory", "files of a directory; 0: all are in the root"),
            (
                "sync",
                "none, each, behind or backwards: fsync of each file before its close, or of all behind the last",
            ),
        ],
        phases: fsmark::phases,
    },
    Workload {
        name: "geriatrix",
        summary: "ageing by the published profiles of Geriatrix: sizes, ages and directories",
        settings: geriatrix::SETTINGS,
        phases: geriatrix::phases,
    },
    Workload {
        name: "git",
        summary: "a history checked out commit by commit: loose objects, locks renamed into place, packs",
        settings: git::SETTINGS,
        phases: git::phases,
    },
    #[cfg(feature = "whole")]
    Workload {
        name: "layers",
        summary: "layers of container images: unpacked, whiteouts, the oldest removed",
        settings: layers::SETTINGS,
        phases: layers::phases,
    },
    Workload {
        name: "mail",
        summary: "a mail spool in maildirs: delivered, made stable, moved, read, deleted",
        settings: mail::SETTINGS,
        phases: mail::phases,
    },
    Workload {
        name: "profile",
        summary: "ageing by the profiles of published studies: sizes, victims, bursts",
        settings: profile::SETTINGS,
        phases: profile::phases,
    },
    #[cfg(feature = "whole")]
    Workload {
        name: "replay",
        summary: "what programs did, as strace recorded it",
        settings: replay::SETTINGS,
        phases: replay::phases,
    },
    Workload {
        name: "service",
        summary: "a file server: large files laid out at once, direct reads and writes, after days of replacing",
        settings: service::SETTINGS,
        phases: service::phases,
    },
    #[cfg(feature = "whole")]
    Workload {
        name: "tree",
        summary: "tar xf and rm -rf of a tree: the ports collection of 2001, or any archive",
        settings: &[
            ("tar", "an archive to take names and lengths from"),
            ("compute", "nanoseconds that tar computes for each entry"),
        ],
        phases: tree::phases,
    },
    Workload {
        name: "windows",
        summary: "clients that write files one after the other, a block at a time, and delete older ones",
        settings: windows::SETTINGS,
        phases: windows::phases,
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

#[cfg(test)]
#[cfg(feature = "whole")]
mod tests {
    use super::*;
    use crate::system::{Directory, Library, Mounting, Op};
    use platfs::mkfs::FsType;

    /// All but `replay`, which wants a trace and is tried with one elsewhere.
    fn by_themselves() -> impl Iterator<Item = &'static Workload> {
        WORKLOADS.iter().filter(|workload| workload.name != "replay")
    }

    /// The first calls of every client.
    fn calls(workload: &Workload, seed: u64) -> Vec<Vec<Op>> {
        let scale = Scale { seed, quick: true, ..Scale::default() };
        let phases = (workload.phases)(&scale).unwrap();
        phases.into_iter().flat_map(|phase| phase.clients).map(|calls| calls.take(3_000).collect()).collect()
    }

    #[test]
    fn the_same_seed_makes_the_same_calls_and_another_makes_others() {
        for workload in by_themselves() {
            let first = calls(workload, 1);
            assert!(first == calls(workload, 1), "{}", workload.name);
            if ["blogbench", "dbench", "tiobench"].contains(&workload.name) {
                assert!(first != calls(workload, 2), "{}", workload.name);
            }
        }
    }

    #[test]
    fn every_workload_runs_in_model_time_and_the_richest_in_a_directory() {
        for workload in by_themselves() {
            let mut scale = Scale { seed: 1, quick: true, ..Scale::default() };
            if workload.name == "blogbench" {
                scale.settings.insert("seconds".into(), "1".into());
            }
            let drive = crate::drive::Drive::named("sata-2010").unwrap();
            let library = Library::new(&Mounting::new(drive, 1 << 30, FsType::Ext4)).unwrap();
            let outcomes: Vec<_> = (workload.phases)(&scale)
                .unwrap()
                .into_iter()
                .map(|phase| in_model_time(&library, phase).unwrap())
                .collect();
            let works = |outcome: &Outcome| {
                outcome.megabytes_per_second() > 0.1 || outcome.kinds.contains_key("fallocate")
            };
            assert!(outcomes.iter().any(works), "{}", workload.name);
            assert!(outcomes.iter().all(|outcome| outcome.time < 3_600_000_000_000), "{}", workload.name);
            // The others sync too much for a test.
            if workload.name == "dbench" {
                let root =
                    std::env::temp_dir().join(format!("plat-lab-{}-{}", workload.name, std::process::id()));
                std::fs::create_dir(&root).unwrap();
                let directory = Directory::new(&root);
                for phase in (workload.phases)(&scale).unwrap() {
                    in_real_time(&directory, phase).unwrap();
                }
                std::fs::remove_dir_all(&root).unwrap();
            }
        }
    }
}
