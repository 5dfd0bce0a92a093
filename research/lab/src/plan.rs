//! The settings of a run of an experiment: seeds, sizes, systems, cases, tunables.

use placement::inode::policy::DIRECTORY_POLICIES;
use placement::policy::POLICIES;
use placement::policy::tunable::{self, SettingError, Tunable};
use placement::{BlockPolicyKind, DirectoryPolicyKind, Engine, Layout};

use crate::drive::{Drive, ParameterSetting};
use crate::system::{EngineAlone, Writing, describe_empty, layout};
use crate::tape::Tape;

/// The settings of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// Everything random follows from it.
    pub(crate) seed: u64,
    /// Number of seeds, if it was said.
    pub(crate) seeds: Option<u64>,
    /// Small sizes, for a first look and for tests: shapes need not hold.
    pub(crate) quick: bool,
    /// Policies asked for by name; empty for the experiment's own choice.
    pub(crate) policies: Vec<String>,
    /// Only cases whose name contains this.
    pub(crate) case: String,
    /// Tunables set on the command line.
    pub(crate) sets: Vec<Setting>,
    /// Parameters of the machine set on the command line.
    pub(crate) machine: Vec<ParameterSetting>,
    /// Where the requests of engines go.
    pub(crate) tape: Tape,
    /// True if samples along the way are wanted of experiments that age, of the first seed.
    pub(crate) samples: bool,
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
    /// The fault of the text, and what would be right.
    pub(crate) fn read(text: &str) -> Result<Setting, String> {
        let (key, value) = text.split_once('=').ok_or_else(|| format!("{text}: say name=value"))?;
        let (policy, name) = match key.split_once(':') {
            Some((policy, name)) => (Some(policy), name),
            None => (None, key),
        };
        let number = value.parse().map_err(|_| format!("{text}: {value} is not a whole number"))?;
        let of_blocks = POLICIES.iter().map(|row| (row.name, row.tunables));
        let of_inodes = DIRECTORY_POLICIES.iter().map(|row| (row.name, row.tunables));
        let rows = of_blocks.chain(of_inodes).filter(|row| policy.is_none_or(|policy| policy == row.0));
        let check = |(row, tunables)| tunable::settings(row, tunables, &[(name, number)]);
        let checked: Vec<_> = rows.map(check).collect();
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
                    || format!("{text}: no policy has a parameter {name}; `plat-lab list` names them"),
                    |error| format!("{text}: {error}"),
                ))
            }
        }
    }
}

impl Plan {
    /// The seeds; `usual` many if their number was not said.
    pub(crate) fn seeds(&self, usual: u64) -> std::ops::Range<u64> {
        self.seed..self.seed.saturating_add(self.seeds.unwrap_or(usual).max(1))
    }

    /// A drive in its machine, with what was set on the command line.
    ///
    /// # Errors
    /// No drive has the name.
    pub(crate) fn drive(&self, name: &str) -> Result<&'static Drive, String> {
        Ok(Drive::named(name)?.changed(&self.machine))
    }

    /// Tunables of a policy that were set on the command line, behind those of the experiment as far as it has them.
    pub(crate) fn tunables(&self, policy: BlockPolicyKind, own: &[(&str, u32)]) -> Vec<(String, u32)> {
        let row = policy.row();
        self.said(row.name, row.tunables, own)
    }

    /// Tunables of a policy for directories, which has none of an experiment.
    pub(crate) fn directory_tunables(&self, policy: DirectoryPolicyKind) -> Vec<(String, u32)> {
        let row = policy.row();
        self.said(row.name, row.tunables, &[])
    }

    fn said(&self, policy: &str, tunables: &[Tunable], own: &[(&str, u32)]) -> Vec<(String, u32)> {
        let meant = |setting: &&Setting| setting.policy.as_deref().is_none_or(|name| name == policy);
        let said = self.sets.iter().filter(meant).map(|setting| (setting.name.as_str(), setting.value));
        let all = own.iter().copied().chain(said);
        let has = |name: &str| tunables.iter().any(|tunable| tunable.name == name);
        all.filter(|(name, _)| has(name)).map(|(name, value)| (name.into(), value)).collect()
    }

    /// An engine with a policy, the tunables that the experiment gives it (as far as it has them) and those of the
    /// command line.
    ///
    /// # Errors
    /// The policy or the engine refuses them.
    pub(crate) fn engine(
        &self,
        layout: Layout,
        policy: BlockPolicyKind,
        own: &[(&str, u32)],
    ) -> Result<Engine, String> {
        let tunables = self.tunables(policy, own);
        let values: Vec<(&str, u32)> = tunables.iter().map(|(name, value)| (&**name, *value)).collect();
        let policy = policy.tuned(&values).map_err(|error| error.to_string())?;
        Engine::with_sink(layout, policy, self.tape.sink(&layout)).map_err(|error| error.to_string())
    }

    /// An empty volume of groups of 32,768 clusters of 4 KiB.
    ///
    /// # Errors
    /// See [`Plan::engine`].
    pub(crate) fn volume(
        &self,
        groups: u32,
        policy: BlockPolicyKind,
        own: &[(&str, u32)],
        writing: Writing,
    ) -> Result<EngineAlone, String> {
        let engine = self.engine(layout(groups, 32_768), policy, own)?;
        describe_empty(&engine).ok_or("the engine refuses an empty volume")?;
        Ok(EngineAlone::new(engine, 4096, writing))
    }

    /// The policies to run: those asked for, else those of the experiment.
    pub(crate) fn policies(&self, own: &[BlockPolicyKind]) -> Vec<BlockPolicyKind> {
        if self.policies.is_empty() {
            return own.to_vec();
        }
        POLICIES.iter().filter(|row| self.asks_for(row.name)).map(|row| row.kind).collect()
    }

    /// Returns true if a policy was asked for by this name.
    pub(crate) fn asks_for(&self, name: &str) -> bool {
        self.policies.iter().any(|asked| asked == name)
    }

    /// Returns true if a case was asked for.
    pub(crate) fn wants(&self, case: &str) -> bool {
        case.contains(&self.case)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_wrong_ones_explained() {
        let read = Setting::read("mballoc-6.4:mb_max_to_scan=50").unwrap();
        assert_eq!((read.policy.as_deref(), read.value), (Some("mballoc-6.4"), 50));
        assert_eq!(read.to_string(), "mballoc-6.4:mb_max_to_scan=50");
        assert_eq!(Setting::read("mb_max_to_scan=50").unwrap().policy, None);
        let sets = ["dirpref:avgfpdir=3", "near_breaks=9", "avgfilesize=1"];
        let plan = Plan { sets: sets.map(|text| Setting::read(text).unwrap()).into(), ..Plan::default() };
        let of_dirpref = [("avgfpdir".to_string(), 3), ("avgfilesize".to_string(), 1)];
        assert_eq!(plan.directory_tunables(DirectoryPolicyKind::Dirpref), of_dirpref);
        assert_eq!(plan.directory_tunables(DirectoryPolicyKind::Near), [("near_breaks".to_string(), 9)]);
        for (text, part) in [
            ("mb_max_to_scan", "say name=value"),
            ("mb_max_to_scan=x", "not a whole number"),
            ("nobody:mb_max_to_scan=1", "no policy is called nobody"),
            ("mb_scan=1", "no policy has a parameter mb_scan"),
            ("prealloc8:mb_max_to_scan=1", "it has none"),
            ("no_normalize=7", "from 0 to 1"),
        ] {
            let error = Setting::read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
