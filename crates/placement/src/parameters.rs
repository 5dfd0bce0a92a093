//! The parameters of all policies in one table, and what places a volume: two policies and what is set of them.
//!
//! Owns: the table ([`parameters`]), the words for it ([`Placing::read`] and its `Display`), and how several sources go
//! over each other. Excludes: what a parameter does (its policy), and where the words are kept (the file system).

use crate::inode::policy::{DIRECTORY_POLICIES, DirectoryPolicy, DirectoryPolicyKind};
use crate::policy::tunable::{SettingError, Tunable};
use crate::policy::{BlockPolicy, BlockPolicyKind, POLICIES};
use std::collections::BTreeMap;
use std::fmt;

/// Decision that a policy makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decides {
    /// Where blocks go.
    Blocks,
    /// Where directories and inodes go.
    Inodes,
}

/// A parameter and the policies that have it.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Its name, default, range, meaning and source.
    pub tunable: &'static Tunable,
    /// Decision that its policies make.
    pub decides: Decides,
    /// Their names.
    pub policies: Vec<&'static str>,
}

/// All parameters, in the order of the registries.
#[must_use]
pub fn parameters() -> Vec<Parameter> {
    let of_blocks = POLICIES.iter().map(|row| (Decides::Blocks, row.name, row.tunables));
    let of_inodes = DIRECTORY_POLICIES.iter().map(|row| (Decides::Inodes, row.name, row.tunables));
    let mut all: Vec<Parameter> = Vec::new();
    for (decides, policy, tunables) in of_blocks.chain(of_inodes) {
        for tunable in tunables {
            match all.iter_mut().find(|known| known.tunable.name == tunable.name) {
                Some(known) => known.policies.push(policy),
                None => all.push(Parameter { tunable, decides, policies: vec![policy] }),
            }
        }
    }
    all
}

/// The parameter of this name.
#[must_use]
pub fn parameter(name: &str) -> Option<Parameter> {
    parameters().into_iter().find(|known| known.tunable.name == name)
}

/// Reason for which words of placement are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacingError {
    /// Neither `alloc`, `dirs` nor a parameter.
    #[error("there is no parameter `{0}` of placement")]
    Unknown(String),
    /// A word without a value, or one that is no number.
    #[error("`{0}`: say NAME=VALUE, with a whole number")]
    Value(String),
    /// No such policy.
    #[error("`{name}` is one of {known}, not `{value}`")]
    Policy {
        /// `alloc` or `dirs`.
        name: &'static str,
        /// Value that was given.
        value: String,
        /// The names of all policies.
        known: String,
    },
    /// The value is outside the range.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A field of the volume has its value.
    #[error("`{0}` is kept in the superblock: `plat tune -E stripe_width=BLOCKS` sets it")]
    Elsewhere(&'static str),
    /// The policy that was chosen has no such parameter.
    #[error("`{name}` is a parameter of {of}, and `{chosen}` is chosen")]
    Other {
        /// The parameter.
        name: &'static str,
        /// The policies that have it.
        of: String,
        /// The policy that was chosen.
        chosen: &'static str,
    },
}

/// Policies of a volume: for blocks, and for directories and inodes.
pub struct Policies {
    /// Chooses blocks.
    pub blocks: Box<dyn BlockPolicy>,
    /// Chooses inodes, those of directories above all.
    pub inodes: Box<dyn DirectoryPolicy>,
}

/// Placement of a volume: policies, if they were chosen, and parameters, as far as they were set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placing {
    /// Policy for blocks.
    pub blocks: Option<BlockPolicyKind>,
    /// Where directories and inodes go.
    pub inodes: Option<DirectoryPolicyKind>,
    values: BTreeMap<&'static str, u32>,
}

impl Placing {
    /// Reads `alloc=POLICY`, `dirs=POLICY` and `PARAMETER=NUMBER`, separated by commas.
    ///
    /// # Errors
    /// The first word that can't be had.
    pub fn read(text: &str) -> Result<Self, PlacingError> {
        let mut placing = Placing::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').ok_or_else(|| PlacingError::Value(word.into()))?;
            if !placing.take(name, value)? {
                return Err(PlacingError::Unknown(name.into()));
            }
        }
        Ok(placing)
    }

    /// Takes one word; `false` if its name is none of placement's.
    ///
    /// # Errors
    /// A value that the name can't have.
    pub fn take(&mut self, name: &str, value: &str) -> Result<bool, PlacingError> {
        match name {
            "alloc" => {
                let known = POLICIES.iter().map(|row| (row.name, row.kind));
                self.blocks = Some(one_of("alloc", value, known)?);
            }
            "dirs" => {
                let known = DIRECTORY_POLICIES.iter().map(|row| (row.name, row.kind));
                self.inodes = Some(one_of("dirs", value, known)?);
            }
            _ => {
                let Some(parameter) = parameter(name) else { return Ok(false) };
                let number = value.parse();
                let number = number.map_err(|_| PlacingError::Value(format!("{name}={value}")))?;
                self.set(parameter.tunable, number)?;
            }
        }
        Ok(true)
    }

    /// Sets a parameter.
    ///
    /// # Errors
    /// A value outside its range.
    pub fn set(&mut self, tunable: &'static Tunable, value: u32) -> Result<(), SettingError> {
        let (tunable, value) = tunable.checked(value)?;
        self.values.insert(tunable.name, value);
        Ok(())
    }

    /// Takes a parameter or a policy back, by the name that set it; whether it was set.
    pub fn unset(&mut self, name: &str) -> bool {
        match name {
            "alloc" => self.blocks.take().is_some(),
            "dirs" => self.inodes.take().is_some(),
            _ => self.values.remove(name).is_some(),
        }
    }

    /// The value that was set.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<u32> {
        self.values.get(name).copied()
    }

    /// True if nothing was chosen and set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// This over another one: what is said here holds. Where another policy is chosen here, the other's parameters
    /// that it does not have are dropped.
    #[must_use]
    pub fn over(&self, under: &Placing) -> Placing {
        let mut both = under.clone();
        if let Some(kind) = self.blocks {
            both.blocks = Some(kind);
            both.retain_policy(Decides::Blocks, kind.name());
        }
        if let Some(kind) = self.inodes {
            both.inodes = Some(kind);
            both.retain_policy(Decides::Inodes, kind.name());
        }
        both.values.extend(&self.values);
        both
    }

    /// Drops parameters that a policy does not have.
    fn retain_policy(&mut self, decides: Decides, policy: &str) {
        self.values.retain(|name, _| {
            parameter(name).is_some_and(|known| known.decides != decides || known.policies.contains(&policy))
        });
    }

    /// Chooses the policies that are not: the first of the registry that has all parameters which were set, as they say
    /// which one is meant.
    #[must_use]
    pub fn completed(mut self) -> Placing {
        let has = |known: &[Tunable], decides| {
            let mine = self.values.keys().filter_map(|name| parameter(name));
            let mut mine = mine.filter(|parameter| parameter.decides == decides);
            mine.all(|wanted| known.iter().any(|tunable| tunable.name == wanted.tunable.name))
        };
        let blocks = || POLICIES.iter().find(|row| has(row.tunables, Decides::Blocks)).map(|row| row.kind);
        let inodes =
            || DIRECTORY_POLICIES.iter().find(|row| has(row.tunables, Decides::Inodes)).map(|row| row.kind);
        let (blocks, inodes) = (self.blocks.or_else(blocks), self.inodes.or_else(inodes));
        self.blocks = blocks;
        self.inodes = inodes;
        self
    }

    /// Both policies, made with what was set.
    ///
    /// # Errors
    /// A parameter that the policy which was chosen does not have.
    pub fn make(&self) -> Result<Policies, PlacingError> {
        let (blocks, inodes) = (self.blocks.unwrap_or_default(), self.inodes.unwrap_or_default());
        let of_blocks = self.values_of(Decides::Blocks, blocks.name())?;
        let of_inodes = self.values_of(Decides::Inodes, inodes.name())?;
        Ok(Policies { blocks: blocks.tuned(&of_blocks)?, inodes: inodes.tuned(&of_inodes)? })
    }

    fn values_of(
        &self,
        decides: Decides,
        chosen: &'static str,
    ) -> Result<Vec<(&'static str, u32)>, PlacingError> {
        let known = self.values.iter().filter_map(|(name, value)| Some((parameter(name)?, *value)));
        let mine = known.filter(|(parameter, _)| parameter.decides == decides);
        mine.map(|(parameter, value)| {
            let (name, of) = (parameter.tunable.name, &parameter.policies);
            if of.contains(&chosen) {
                return Ok((name, value));
            }
            Err(PlacingError::Other { name, of: of.join(", "), chosen })
        })
        .collect()
    }
}

impl fmt::Display for Placing {
    /// The words that [`Placing::read`] takes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policies = [
            self.blocks.map(|kind| format!("alloc={}", kind.name())),
            self.inodes.map(|kind| format!("dirs={}", kind.name())),
        ];
        let values = self.values.iter().map(|(name, value)| format!("{name}={value}"));
        let words: Vec<String> = policies.into_iter().flatten().chain(values).collect();
        f.write_str(&words.join(","))
    }
}

fn one_of<T>(
    name: &'static str,
    value: &str,
    known: impl Iterator<Item = (&'static str, T)> + Clone,
) -> Result<T, PlacingError> {
    let found = known.clone().find(|(word, _)| *word == value);
    found.map(|(_, kind)| kind).ok_or_else(|| {
        let words: Vec<&str> = known.map(|(word, _)| word).collect();
        PlacingError::Policy { name, value: value.into(), known: words.join(", ") }
    })
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_one_parameter_whatever_policies_have_it() {
        let all = parameters();
        for parameter in &all {
            let same = all.iter().filter(|other| other.tunable.name == parameter.tunable.name);
            assert_eq!(same.count(), 1);
            for row in POLICIES {
                let same = row.tunables.iter().find(|tunable| tunable.name == parameter.tunable.name);
                assert!(same.is_none_or(|same| same == parameter.tunable));
                assert_eq!(same.is_some(), parameter.policies.contains(&row.name));
            }
            let mut placing = Placing::default();
            placing.set(parameter.tunable, parameter.tunable.most).unwrap();
            assert_eq!(Placing::read(&placing.to_string()), Ok(placing.clone()));
            assert!(placing.completed().make().is_ok(), "{}", parameter.tunable.name);
        }
        assert!(all.iter().any(|known| known.policies == ["mballoc", "mballoc-6.5", "mballoc-6.4"]));
    }

    #[test]
    fn parameters_choose_their_policy_and_others_are_refused() {
        let read = |text| Placing::read(text).unwrap().completed();
        assert_eq!(read("mb_max_to_scan=50,avgfpdir=2").blocks, Some(BlockPolicyKind::Mballoc));
        assert_eq!(read("avgfpdir=2").inodes, Some(DirectoryPolicyKind::Dirpref));
        assert_eq!(read("rsv_max=64").blocks, Some(BlockPolicyKind::WindowDynamic));
        assert_eq!(read("").to_string(), "alloc=lease,dirs=near");
        let both = "rsv_default=9,lease_tight=4";
        let error = read(both).make().err().unwrap().to_string();
        assert_eq!(error, "`rsv_default` is a parameter of window, window-dynamic, and `lease` is chosen");
        for (text, part) in [
            ("alloc=best", "`alloc` is one of lease, mballoc"),
            ("lease_small", "say NAME=VALUE"),
            ("lease_small=x", "whole number"),
            ("lease_small=513", "from 0 to 512"),
            ("shade=3", "no parameter `shade`"),
        ] {
            let error = Placing::read(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_said_later_holds_and_drops_parameters_of_other_policies() {
        let kept = Placing::read("alloc=mballoc-6.4,mb_max_to_scan=50,dirs=dirpref,avgfpdir=3").unwrap();
        let over = |text| Placing::read(text).unwrap().over(&kept).to_string();
        assert_eq!(over(""), kept.to_string());
        assert_eq!(
            over("mb_max_to_scan=60,alloc=mballoc"),
            "alloc=mballoc,dirs=dirpref,avgfpdir=3,mb_max_to_scan=60"
        );
        assert_eq!(over("alloc=lease,lease_small=8"), "alloc=lease,dirs=dirpref,avgfpdir=3,lease_small=8");
        assert_eq!(over("dirs=near"), "alloc=mballoc-6.4,dirs=near,mb_max_to_scan=50");
        let mut placing = kept.clone();
        assert!(placing.unset("avgfpdir") && placing.unset("alloc") && !placing.unset("rule"));
        assert_eq!(placing.to_string(), "dirs=dirpref,mb_max_to_scan=50");
    }
}
