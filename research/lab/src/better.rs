//! The figures of which less is better, and those of which more is.
//!
//! Owns: both lists. Excludes: which figures an experiment judges.

/// Times, and what costs time or cuts files and free space into pieces.
const LESS: [&str; 20] = [
    "model_seconds",
    "seconds",
    "seeks",
    "reads",
    "writes",
    "flushes",
    "requests",
    "misses",
    "extents/file",
    "extents_per_file",
    "extents/large",
    "most extents",
    "runs added",
    "free runs",
    "free_runs",
    "scanned/file",
    "calls/file",
    "seek sum",
    "travel/file",
    "groups/dir",
];

/// Speeds, and shares of what lies well.
const MORE: [&str; 12] = [
    "MB/s",
    "mb_per_second",
    "files/s",
    "layout",
    "dynamic layout",
    "mean run",
    "aligned %",
    "near %",
    "largest left %",
    ">=64 %",
    ">=512 %",
    ">=2048 %",
];

/// The better of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    /// The smaller.
    Less,
    /// The larger.
    More,
}

impl Better {
    /// The direction in which a figure is better, if that is known.
    pub(crate) fn of(figure: &str) -> Option<Better> {
        match (LESS.contains(&figure), MORE.contains(&figure)) {
            (true, _) => Some(Better::Less),
            (_, true) => Some(Better::More),
            _ => None,
        }
    }

    /// The factor of a value with which the larger is the better.
    pub(crate) fn sign(self) -> f64 {
        if self == Better::Less { -1.0 } else { 1.0 }
    }

    /// In words.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Better::Less => "less is better",
            Better::More => "more is better",
        }
    }
}
