//! File data on its way to blocks that a published map leads to already.
//!
//! Owns: the gate between those writes and a commit. Where a crash must not show what others had left in those blocks,
//! a commit waits until every such write has ended (I23). Excludes: the writes (`ops::flush`).

use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::locks;

/// The writes of file data that are in flight.
#[derive(Default)]
pub(crate) struct DataWrites(RwLock<()>);

/// One of them: held from before a map is published until its blocks hold their bytes.
pub(crate) struct DataWrite<'o>(#[expect(dead_code, reason = "held for its drop")] RwLockReadGuard<'o, ()>);

/// Held while none may begin.
pub(crate) struct NoDataWrites<'o>(
    #[expect(dead_code, reason = "held for its drop")] RwLockWriteGuard<'o, ()>,
);

impl DataWrites {
    /// Begins one.
    pub(super) fn begin(&self) -> DataWrite<'_> {
        DataWrite(locks::read(&self.0))
    }

    /// Waits until all have ended, and keeps others from beginning.
    pub(super) fn wait(&self) -> NoDataWrites<'_> {
        NoDataWrites(locks::write(&self.0))
    }
}
