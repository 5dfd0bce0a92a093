//! The scenarios: one file each, all in [`SCENARIOS`].

mod age;
mod bigalloc;
mod cost;
mod criteria;
mod dirpref;
mod index;
mod writers;

use crate::counters::Ledger;
use crate::replay::Tape;
use crate::series::Series;
use crate::table::Rows;
use crate::volume::{Volume, layout};
use placement::policy::POLICIES;
use placement::policy::tunable::SettingError;
use placement::{BlockPolicyKind, Engine, Layout};

/// What a run is given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setup {
    /// Everything random follows from it.
    pub(crate) seed: u64,
    /// Small sizes, for tests.
    pub(crate) quick: bool,
    /// Policies asked for by name; empty for the scenario's own choice.
    pub(crate) policies: Vec<String>,
    /// Only cases whose name contains this.
    pub(crate) case: String,
    /// Tunables set on the command line.
    pub(crate) sets: Vec<Setting>,
    /// Where the requests go.
    pub(crate) tape: Tape,
    /// Where runs leave the counters of their engines.
    pub(crate) counters: Ledger,
    /// Where runs leave samples for plots.
    pub(crate) series: Series,
}

/// A tunable set on the command line, for one policy or for all that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    policy: Option<String>,
    name: String,
    value: u32,
}

impl std::fmt::Display for Setting {
    /// As it is said on the command line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let policy = self.policy.as_ref().map(|policy| format!("{policy}:")).unwrap_or_default();
        write!(f, "{policy}{}={}", self.name, self.value)
    }
}

impl Setting {
    /// Reads `name=value` or `policy:name=value`.
    ///
    /// # Errors
    /// What is wrong, and what would be right.
    pub(crate) fn read(text: &str) -> Result<Setting, String> {
        let (key, value) = text.split_once('=').ok_or_else(|| format!("{text}: say name=value"))?;
        let (policy, name) = match key.split_once(':') {
            Some((policy, name)) => (Some(policy), name),
            None => (None, key),
        };
        let number = value.parse().map_err(|_| format!("{text}: {value} is not a whole number"))?;
        let rows = POLICIES.iter().filter(|row| policy.is_none_or(|policy| policy == row.name));
        let checked: Vec<_> = rows.map(|row| row.settings(&[(name, number)])).collect();
        match checked.iter().find(|checked| checked.is_ok()).or(checked.first()) {
            None => Err(format!("{text}: no policy is called {}", policy.unwrap_or_default())),
            Some(Ok(_)) => Ok(Setting { policy: policy.map(String::from), name: name.into(), value: number }),
            Some(Err(error)) if policy.is_some() || matches!(error, SettingError::Range { .. }) => {
                Err(format!("{text}: {error}"))
            }
            Some(Err(_)) => {
                let mut errors = checked.iter().filter_map(|checked| checked.as_ref().err());
                let range = errors.find(|error| matches!(error, SettingError::Range { .. }));
                Err(range.map_or_else(
                    || format!("{text}: no policy has a tunable {name}; `plat-lab list` names them"),
                    |error| format!("{text}: {error}"),
                ))
            }
        }
    }
}

impl Setup {
    /// An engine with a policy, the tunables that the scenario gives it (as far as it has them) and
    /// those of the command line.
    pub(crate) fn engine(
        &self,
        layout: Layout,
        policy: BlockPolicyKind,
        own: &[(&str, u32)],
    ) -> Option<Engine> {
        let row = policy.row();
        let meant = |setting: &&Setting| setting.policy.as_deref().is_none_or(|name| name == row.name);
        let said = self.sets.iter().filter(meant).map(|setting| (setting.name.as_str(), setting.value));
        let all = own.iter().copied().chain(said);
        let has = |name: &str| row.tunables.iter().any(|tunable| tunable.name == name);
        let values: Vec<(&str, u32)> = all.filter(|(name, _)| has(name)).collect();
        Engine::with_sink(layout, policy.tuned(&values).ok()?, self.tape.sink(&layout)).ok()
    }

    /// An empty volume of `groups` groups.
    pub(crate) fn volume(
        &self,
        groups: u32,
        clusters_per_group: u32,
        policy: BlockPolicyKind,
    ) -> Option<Volume> {
        let volume = Volume::on(self.engine(layout(groups, clusters_per_group), policy, &[])?);
        volume.describe_empty()?;
        Some(volume)
    }

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
        name: "dirpref",
        summary: "a ports tree unpacked and removed on volumes of 8 and 40 GB: directory policies (2001)",
        run: dirpref::run,
    },
    Scenario {
        name: "bigalloc",
        summary: "an aged file server in blocks of 4 KiB and in clusters: metadata reads per call (2011)",
        run: bigalloc::run,
    },
    Scenario {
        name: "index-cost",
        summary: "time of an allocation and a free on fragmented volumes, memory per TiB, time to build",
        run: index::run,
    },
    Scenario {
        name: "age",
        summary: "create, append and delete until the volume is old: fragmentation of files and of free space",
        run: age::run,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_wrong_ones_explained() {
        let read = Setting::read("mballoc-6.4:mb_max_to_scan=50").unwrap();
        assert_eq!((read.policy.as_deref(), read.value), (Some("mballoc-6.4"), 50));
        assert_eq!(read.to_string(), "mballoc-6.4:mb_max_to_scan=50");
        assert_eq!(Setting::read("mb_max_to_scan=50").unwrap().policy, None);
        for (text, part) in [
            ("mb_max_to_scan", "say name=value"),
            ("mb_max_to_scan=x", "not a whole number"),
            ("nobody:mb_max_to_scan=1", "no policy is called nobody"),
            ("mb_scan=1", "no policy has a tunable mb_scan"),
            ("prealloc8:mb_max_to_scan=1", "it has none"),
            ("no_normalize=7", "from 0 to 1"),
        ] {
            let error = Setting::read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
