//! Words that options of the format take, for the completion of shells. Excludes what they mean.

use super::{ON_ERROR, SYSTEMS, TYPES, USAGES, changes, extended};

/// An option of [`super::FormatArgs`] or [`super::ChangeArgs`], and its words.
pub type Words = (&'static str, fn() -> Vec<&'static str>);

/// Options of a new volume.
pub const OF_VOLUMES: [Words; 6] = [
    ("fs_type", || names(&TYPES)),
    ("usage", || names(&USAGES)),
    ("on_error", || names(&ON_ERROR)),
    ("creator", || names(&SYSTEMS)),
    ("extended", || listed(extended::NAMES)),
    ("uuid", || UUIDS.to_vec()),
];

/// Options that change a volume.
pub const OF_CHANGES: [Words; 4] = [
    ("on_error", || names(&ON_ERROR)),
    ("quotas", || names(&changes::QUOTAS)),
    ("extended", || listed(changes::EXTENDED)),
    ("uuid", || UUIDS.to_vec()),
];

const UUIDS: [&str; 3] = ["random", "time", "clear"];

fn names<T>(table: &[(&'static str, T)]) -> Vec<&'static str> {
    table.iter().map(|(name, _)| *name).collect()
}

fn listed(names: &'static str) -> Vec<&'static str> {
    names.split(", ").collect()
}
