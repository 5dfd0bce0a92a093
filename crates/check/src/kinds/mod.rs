//! Every rule that a check knows: identifier, severity, and what it means, in one table per pass.

pub(super) mod directories;
pub(super) mod inodes;
pub(super) mod opening;
pub(super) mod space;

/// Severity of an issue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Nothing is lost and nothing will be: a count or an optional field is off, or work is left over
    /// that a mount would do.
    Untidy,
    /// The volume must not be written before it is repaired: what is there could be overwritten.
    Wrong,
    /// Something is lost already, or the repair takes something away.
    Damage,
    /// A structure that the rest depends on is wrong.
    Fatal,
}

impl Severity {
    /// It in a word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Severity::Untidy => "untidy",
            Severity::Wrong => "wrong",
            Severity::Damage => "damage",
            Severity::Fatal => "fatal",
        }
    }

    /// Consequence for the volume, in words.
    #[must_use]
    pub fn weight(self) -> &'static str {
        match self {
            Severity::Untidy => "nothing is lost and nothing will be",
            Severity::Wrong => "the volume must not be written before it is repaired",
            Severity::Damage => "something is lost already, or the repair takes it away",
            Severity::Fatal => "what the rest of the volume depends on",
        }
    }
}

/// One rule.
#[derive(PartialEq, Eq, Debug)]
pub struct Kind {
    /// Stable, in kebab case, begins with what it is about: `inode-links`.
    pub id: &'static str,
    /// Its severity.
    pub severity: Severity,
    /// True if its repair loses nothing, so that it may be made without asking (`-p`).
    pub safe: bool,
    /// A line for people.
    pub title: &'static str,
    /// Purpose of the rule and how it comes to be broken, in sentences.
    pub means: &'static str,
    /// Effect of the repair, and its risk.
    pub risk: &'static str,
}

impl Kind {
    /// True for a finding about the clock of a host and not about the volume: a host without a clock begins in the past
    /// at each start. It is no reason for a check, stands in the way of no change, and a volume is sound with it.
    #[must_use]
    pub fn is_of_a_clock(&self) -> bool {
        [opening::MOUNTED_LATER.id, opening::WRITTEN_LATER.id].contains(&self.id)
    }
}

/// All kinds, in the order of the passes.
pub fn all() -> impl Iterator<Item = &'static Kind> {
    [opening::ALL, inodes::ALL, directories::ALL, space::ALL].into_iter().flatten().copied()
}

/// Declares a table of kinds: each becomes a `static` of its name, and all stand in `ALL`.
macro_rules! kinds {
    ($($name:ident = $id:literal, $severity:ident, $safe:ident: $title:literal, $means:literal, $risk:literal;)*) => {
        $(
            pub(crate) static $name: $crate::kinds::Kind = $crate::kinds::Kind {
                id: $id,
                severity: $crate::kinds::Severity::$severity,
                safe: $crate::kinds::kinds!(@$safe),
                title: $title,
                means: $means,
                risk: $risk,
            };
        )*
        pub(crate) static ALL: &[&$crate::kinds::Kind] = &[$(&$name),*];
    };
    (@safe) => { true };
    (@asks) => { false };
}
use kinds;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn identifiers_are_unique_and_every_kind_is_explained() {
        let mut seen = HashSet::new();
        for kind in all() {
            assert!(seen.insert(kind.id), "{} stands twice", kind.id);
            assert!(
                kind.id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
                "{}",
                kind.id
            );
            assert!(!kind.title.is_empty() && !kind.means.is_empty() && !kind.risk.is_empty(), "{}", kind.id);
        }
    }
}
