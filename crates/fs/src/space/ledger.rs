//! What committed updates took since the last sync.

use std::collections::HashMap;

use ondisk::units::{ClusterRun, Group};

/// Runs of clusters and inodes taken, in the order of their commits.
#[derive(Default, Debug)]
pub(super) struct Ledger {
    work: Work,
    /// Per group: inodes of the table that are in use or lie before one that is. Survives syncs.
    reached: HashMap<u32, u32>,
}

/// What a sync has to bring to disk.
#[derive(Default, Debug)]
pub(super) struct Work {
    /// Clusters allocated.
    pub(super) blocks: Vec<ClusterRun>,
    /// Inodes allocated, counted from 0 over the volume, and whether each is a directory.
    pub(super) inodes: Vec<(u32, bool)>,
}

impl Ledger {
    pub(super) fn took_blocks(&mut self, run: ClusterRun) {
        match self.work.blocks.last_mut() {
            Some(last) if last.end() == run.start.0 && last.count.checked_add(run.count).is_some() => {
                last.count += run.count;
            }
            _ => self.work.blocks.push(run),
        }
    }

    pub(super) fn took_inode(&mut self, index: u32, directory: bool, inodes_per_group: u32) {
        self.work.inodes.push((index, directory));
        let reached = self.reached.entry(index / inodes_per_group).or_default();
        *reached = (*reached).max(index % inodes_per_group + 1);
    }

    /// How far a group's table has been reached since the volume was opened; 0 if not at all.
    pub(super) fn reached(&self, group: Group) -> u32 {
        self.reached.get(&group.0).copied().unwrap_or(0)
    }

    /// Hands over the work, sorted.
    pub(super) fn take(&mut self) -> Work {
        let mut work = std::mem::take(&mut self.work);
        work.blocks.sort_unstable_by_key(|run| run.start);
        work.inodes.sort_unstable();
        work
    }
}
