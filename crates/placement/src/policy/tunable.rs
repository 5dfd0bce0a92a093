//! Tunables of policies: settable by name, each with its default, range and meaning.

use super::{BlockPolicy, BlockPolicyKind, POLICIES, PolicyRow};
use std::ops::RangeInclusive;

/// A row of a policy's table of tunables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunable {
    /// Name: the kernel's where it has one.
    pub name: &'static str,
    /// Value when nothing is said.
    pub default: u32,
    /// Least value.
    pub least: u32,
    /// Greatest value.
    pub most: u32,
    /// Description, in one line.
    pub about: &'static str,
    /// Where the parameter comes from: its name, its default and its meaning.
    pub source: Source,
}

/// Where a parameter comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// ext4: its files in `/sys/fs/ext4` and its mount options.
    Ext4,
    /// ext3's reservation windows, as ext2 got them in 2010 too.
    Reservation,
    /// XFS: its mount options and its mkfs.
    Xfs,
    /// FreeBSD: tunefs and its ext2fs.
    FreeBsd,
    /// This project.
    Ours,
    /// No file system: it repeats a condition of an experiment.
    Experiment,
}

impl Source {
    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Source::Ext4 => "ext4",
            Source::Reservation => "ext3",
            Source::Xfs => "XFS",
            Source::FreeBsd => "FreeBSD",
            Source::Ours => "ours",
            Source::Experiment => "experiments",
        }
    }
}

/// A row of ours.
pub(crate) const fn ours(
    name: &'static str,
    default: u32,
    bounds: RangeInclusive<u32>,
    about: &'static str,
) -> Tunable {
    let (least, most) = (*bounds.start(), *bounds.end());
    Tunable { name, default, least, most, about, source: Source::Ours }
}

/// Reason for which a tunable can't be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// The policy has no tunable of this name.
    #[error("{policy} has no tunable {name}; it has {known}")]
    Unknown {
        /// The policy.
        policy: &'static str,
        /// Name that was given.
        name: String,
        /// Names that there are.
        known: String,
    },
    /// The value is outside the range.
    #[error("{name} is from {least} to {most}, not {value}")]
    Range {
        /// The tunable.
        name: &'static str,
        /// Least value.
        least: u32,
        /// Greatest value.
        most: u32,
        /// Value that was given.
        value: u32,
    },
}

/// Values that were checked against a policy's table.
#[derive(Clone, Debug, Default)]
pub struct Settings(Vec<(&'static str, u32)>);

impl Settings {
    /// Iterates over what was set, in order; of several values under one name the last holds.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u32)> + '_ {
        self.0.iter().copied()
    }

    /// The value of a tunable.
    #[must_use]
    pub fn value(&self, tunable: &Tunable) -> u32 {
        let set = self.0.iter().rev().find(|(name, _)| *name == tunable.name);
        set.map_or(tunable.default, |(_, value)| *value)
    }
}

/// Checks values by name against the table of a policy.
///
/// # Errors
/// [`SettingError`] for the first that is unknown or outside its range.
pub fn settings(
    policy: &'static str,
    tunables: &'static [Tunable],
    values: &[(&str, u32)],
) -> Result<Settings, SettingError> {
    let check = |&(name, value): &(&str, u32)| {
        let tunable = tunables.iter().find(|tunable| tunable.name == name);
        let unknown = || SettingError::Unknown { policy, name: name.to_string(), known: known(tunables) };
        tunable.ok_or_else(unknown)?.checked(value).map(|value| (value.0.name, value.1))
    };
    values.iter().map(check).collect::<Result<_, _>>().map(Settings)
}

fn known(tunables: &[Tunable]) -> String {
    let names: Vec<&str> = tunables.iter().map(|tunable| tunable.name).collect();
    if names.is_empty() { "none".to_string() } else { names.join(", ") }
}

impl Tunable {
    /// The value, if it is in the range.
    pub(crate) fn checked(&'static self, value: u32) -> Result<(&'static Tunable, u32), SettingError> {
        let Tunable { name, least, most, .. } = *self;
        let inside = (least..=most).contains(&value);
        if inside { Ok((self, value)) } else { Err(SettingError::Range { name, least, most, value }) }
    }
}

impl PolicyRow {
    /// Checks values by name against the table.
    ///
    /// # Errors
    /// [`SettingError`] for the first that is unknown or outside its range.
    pub fn settings(&self, values: &[(&str, u32)]) -> Result<Settings, SettingError> {
        settings(self.name, self.tunables, values)
    }
}

impl BlockPolicyKind {
    /// The registry's row of this policy.
    #[must_use]
    pub fn row(self) -> &'static PolicyRow {
        // Every kind has a row (a test says so); the first is that of the default.
        POLICIES.iter().find(|row| row.kind == self).unwrap_or(&POLICIES[0])
    }

    /// Makes the policy with these values of its tunables.
    ///
    /// # Errors
    /// [`SettingError`] for the first that is unknown or outside its range.
    pub fn tuned(self, values: &[(&str, u32)]) -> Result<Box<dyn BlockPolicy>, SettingError> {
        let row = self.row();
        Ok((row.make)(&row.settings(values)?))
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn names_and_ranges_are_checked_and_every_default_is_one() {
        for row in POLICIES {
            assert_eq!(row.kind.row().name, row.name);
            for tunable in row.tunables {
                assert!((tunable.least..=tunable.most).contains(&tunable.default), "{}", tunable.name);
                assert!(row.kind.tuned(&[(tunable.name, tunable.least)]).is_ok(), "{}", tunable.name);
            }
        }
        let mballoc = BlockPolicyKind::Mballoc.row();
        let settings = mballoc.settings(&[("mb_max_to_scan", 50), ("mb_max_to_scan", 60)]).unwrap();
        let tunable = mballoc.tunables.iter().find(|tunable| tunable.name == "mb_max_to_scan").unwrap();
        assert_eq!((settings.value(tunable), Settings::default().value(tunable)), (60, 200));
        let error = mballoc.settings(&[("mb_max", 1)]).unwrap_err();
        assert!(error.to_string().contains("mb_max_to_scan, mb_min_to_scan"), "{error}");
        let error = BlockPolicyKind::Prealloc8.tuned(&[("mb_stats", 1)]).err().unwrap();
        assert_eq!(error.to_string(), "prealloc8 has no tunable mb_stats; it has none");
        let error = mballoc.settings(&[("no_normalize", 2)]).unwrap_err();
        assert_eq!(error.to_string(), "no_normalize is from 0 to 1, not 2");
    }
}
