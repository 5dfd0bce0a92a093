//! Links that a directory states: kept apart until it is known that the directory is sound.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use ondisk::inode::FileType;
use ondisk::units::InodeNumber;

use crate::facts::Facts;

/// Names and parent of one directory.
#[derive(Default)]
pub(crate) struct DirectoryLinks {
    /// The inodes of its names.
    pub(crate) names: Vec<InodeNumber>,
    /// The inode of `..`.
    pub(crate) dotdot: Option<InodeNumber>,
}

impl DirectoryLinks {
    pub(super) fn clear(&mut self) {
        self.names.clear();
        self.dotdot = None;
    }
}

/// Parents as threads find them, by row of [`Facts::directories`].
pub(super) struct Tree {
    /// Number of the parent, or 0.
    parents: Vec<AtomicU32>,
    /// Number of what `..` says, or 0.
    dotdots: Vec<AtomicU32>,
    /// Directories (by row) with the other parents that name them, too.
    pub(super) more: Mutex<Vec<(usize, InodeNumber)>>,
}

impl Tree {
    pub(super) fn new(directories: usize) -> Self {
        let cells = || (0..directories).map(|_| AtomicU32::new(0)).collect();
        Tree { parents: cells(), dotdots: cells(), more: Mutex::default() }
    }

    /// Takes what the sound directory of a row says: links and parents.
    pub(super) fn keep(&self, facts: &Facts, row: usize, found: &DirectoryLinks) {
        let Some(own) = facts.directories.get(row).map(|row| row.inode) else { return };
        facts.links.raise(u64::from(own.index()));
        if let Some(cell) = self.dotdots.get(row) {
            cell.store(found.dotdot.map_or(0, InodeNumber::get), Ordering::Relaxed);
        }
        for name in &found.names {
            facts.links.raise(u64::from(name.index()));
            if facts.file_type(*name) == Some(FileType::Directory) {
                self.claim(facts, *name, own);
            }
        }
    }

    fn claim(&self, facts: &Facts, child: InodeNumber, parent: InodeNumber) {
        let Some(row) = facts.directory(child) else { return };
        let Some(cell) = self.parents.get(row) else { return };
        if cell.compare_exchange(0, parent.get(), Ordering::Relaxed, Ordering::Relaxed).is_err() {
            self.more.lock().unwrap_or_else(PoisonError::into_inner).push((row, parent));
        }
    }

    pub(super) fn parent(&self, row: usize) -> Option<InodeNumber> {
        self.parents.get(row).and_then(|cell| InodeNumber::new(cell.load(Ordering::Relaxed)))
    }

    pub(super) fn set_parent(&self, row: usize, parent: InodeNumber) {
        if let Some(cell) = self.parents.get(row) {
            cell.store(parent.get(), Ordering::Relaxed);
        }
    }

    pub(super) fn dotdot(&self, row: usize) -> Option<InodeNumber> {
        self.dotdots.get(row).and_then(|cell| InodeNumber::new(cell.load(Ordering::Relaxed)))
    }
}
