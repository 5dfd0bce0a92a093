//! Leaked space: clusters and inodes that a crash left marked as in use without an owner are found and freed (I34).
//!
//! Clusters that were marked when the volume was opened may have been given away since; so it is noted which were
//! taken or freed. The caller holds the writer's lock, so that no update is in flight.

use std::sync::{Arc, Mutex};

use ondisk::inode::FileType;
use ondisk::units::{Cluster, ClusterRun, Group, InodeNumber};

use super::pending::PendingSpace;
use super::{Space, SpaceMut};
use crate::error::Result;
use crate::locks::lock;
use crate::txn::Claim;

/// By how much the descriptor of a group counts too few directories; put right by an update.
struct Miscounted {
    group: Group,
    directories: i64,
    pending: Arc<Mutex<PendingSpace>>,
}

impl Claim for Miscounted {
    fn commit(self: Box<Self>) {
        lock(&self.pending).correct(self.group, self.directories);
    }
}

impl Space {
    /// True if anything was taken or freed that a sync has yet to bring to bitmaps.
    pub(crate) fn has_work(&self) -> bool {
        self.writing.as_ref().is_some_and(|writing| lock(&writing.pending).has_work())
    }

    /// Begins to note which clusters are taken or freed, or ends it.
    pub(crate) fn watch(&self, on: bool) {
        if let Some(writing) = &self.writing {
            lock(&writing.pending).watch(on.then(|| writing.format.geometry.clusters()));
        }
    }

    /// True if a cluster was taken or freed since [`Space::watch`].
    pub(crate) fn was_touched(&self, cluster: Cluster) -> bool {
        self.writing.as_ref().is_some_and(|writing| lock(&writing.pending).was_touched(cluster.0))
    }
}

impl SpaceMut<'_, '_> {
    /// Frees what of some clusters, that belonged to nobody when the volume was opened, still does; how many that is.
    ///
    /// # Errors
    /// As [`SpaceMut::free_clusters`].
    pub(crate) fn free_stray_clusters(&mut self, run: ClusterRun) -> Result<u64> {
        let mut freed = 0;
        let mut part: Option<ClusterRun> = None;
        for at in run.start.0..=run.end() {
            let is_stray = at < run.end() && !self.space.was_touched(Cluster(at));
            match &mut part {
                Some(part) if is_stray => part.count += 1,
                None if is_stray => part = Some(ClusterRun { start: Cluster(at), count: 1 }),
                _ => {
                    if let Some(part) = part.take() {
                        self.free_clusters(part)?;
                        freed += u64::from(part.count);
                    }
                }
            }
        }
        Ok(freed)
    }

    /// Frees an inode whose record says that it is not in use, if it is marked so; whether it is.
    ///
    /// # Errors
    /// As [`SpaceMut::free_inode`].
    pub(crate) fn free_stray_inode(&mut self, number: InodeNumber) -> Result<bool> {
        let writing = self.writing;
        let index = self.space.numbers.physical_number(number).index();
        if writing.inodes.is_used(index).is_none()
            && let Some((group, _)) = self.space.locate(number)
        {
            self.space.load_inode_bitmap(writing, &*self.update, group)?;
        }
        if writing.inodes.is_used(index) != Some(true) || lock(&writing.pending).is_leaving_inode(index) {
            return Ok(false);
        }
        // Whether it was counted as a directory is seen to for its whole group.
        self.free_inode(number, FileType::Regular)?;
        Ok(true)
    }

    /// Corrects the number of directories that a group counts to `are`: it may count too many, and too few where one was to go and
    /// another to come.
    ///
    /// # Errors
    /// A broken descriptor.
    pub(crate) fn correct_directories(&mut self, group: Group, are: u32) -> Result<()> {
        let writing = self.writing;
        let per_group = writing.format.geometry.inodes_per_group;
        let described = self.space.descriptors().get(group)?.used_directories();
        let to_come = lock(&writing.pending).directories_to_come(group, per_group);
        let directories = i64::from(are) - i64::from(described) - to_come;
        if directories != 0 {
            self.update.note_group(group);
            self.update.claim(Miscounted { group, directories, pending: Arc::clone(&writing.pending) });
        }
        Ok(())
    }
}
