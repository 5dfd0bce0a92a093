//! Block policies and their registry.
//!
//! A policy sees a read-only [`View`] and returns a choice; the engine verifies and takes it. To
//! write a new one, copy a file of this directory and add a row to [`POLICIES`].

mod lease;
mod single;

use crate::request::{Refusal, Request};
use crate::view::View;
use ondisk::units::ClusterRun;

/// Decides which run answers a request.
pub trait BlockPolicy: Send + Sync {
    /// Chooses a run that the view shows as free, of at least `request.min` clusters.
    ///
    /// # Errors
    /// [`Refusal`] if there is none, or a bitmap must be loaded to tell.
    fn choose(&self, view: &View<'_>, request: &Request) -> Result<ClusterRun, Refusal>;
}

/// Names the block policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum BlockPolicyKind {
    /// Ours: exact search by run length near the goal.
    #[default]
    Lease,
    /// One block at a time from a goal, as ext2 and ext3 did.
    Single,
}

/// A row of the registry.
pub struct PolicyRow {
    /// What the row is for.
    pub kind: BlockPolicyKind,
    /// Name in options and reports.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Makes one for an engine.
    pub make: fn() -> Box<dyn BlockPolicy>,
}

/// All block policies.
pub const POLICIES: &[PolicyRow] = &[
    PolicyRow {
        kind: BlockPolicyKind::Lease,
        name: "lease",
        summary: "exact run search near the goal, tightest class first",
        make: || Box::new(lease::Lease),
    },
    PolicyRow {
        kind: BlockPolicyKind::Single,
        name: "single",
        summary: "one block at a time from a goal (ext2, ext3)",
        make: || Box::new(single::Single),
    },
];

impl BlockPolicyKind {
    /// The policy of this name; `None` if there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        POLICIES.iter().find(|row| row.name == name).map(|row| row.kind)
    }

    /// Its name in options and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        POLICIES.iter().find(|row| row.kind == self).map_or("", |row| row.name)
    }

    pub(crate) fn make(self) -> Box<dyn BlockPolicy> {
        POLICIES
            .iter()
            .find(|row| row.kind == self)
            .map_or_else(|| Box::new(lease::Lease) as _, |row| (row.make)())
    }
}
