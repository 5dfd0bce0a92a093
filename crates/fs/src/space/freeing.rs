//! Giving space up: clusters and inodes leave with an update, and are free after the sync that
//! brought their bitmaps to disk.
//!
//! Until then they stay used in the engines, so that nothing which the disk still says is in use can
//! be given away twice. What is freed is checked beforehand: it must be in use, not be a structure
//! of the volume, and not be on its way out already.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use ondisk::corrupt::Place;
use ondisk::inode::FileType;
use ondisk::units::{Block, BlockRun, ClusterRun, Group, InodeNumber};
use placement::Denial;

use super::pending::{PendingSpace, Work};
use super::{Space, SpaceMut, Writing, groups};
use crate::cache::Blocks;
use crate::error::{Error, Result};
use crate::locks::lock;
use crate::txn::Claim;

/// Part of a volume that is worth a sync of its own once it waits for one.
const MUCH: u64 = 64;

/// Clusters that leave with an update.
struct LeavingBlocks {
    run: ClusterRun,
    pending: Arc<Mutex<PendingSpace>>,
    kept: bool,
}

impl Claim for LeavingBlocks {
    fn commit(mut self: Box<Self>) {
        self.kept = true;
        lock(&self.pending).freed_blocks(self.run);
    }
}

impl Drop for LeavingBlocks {
    fn drop(&mut self) {
        if !self.kept {
            lock(&self.pending).stay(self.run);
        }
    }
}

/// An inode that leaves with an update.
struct LeavingInode {
    index: u32,
    directory: bool,
    pending: Arc<Mutex<PendingSpace>>,
    kept: bool,
}

impl Claim for LeavingInode {
    fn commit(mut self: Box<Self>) {
        self.kept = true;
        lock(&self.pending).freed_inode(self.index, self.directory);
    }
}

impl Drop for LeavingInode {
    fn drop(&mut self) {
        if !self.kept {
            lock(&self.pending).stay_inode(self.index);
        }
    }
}

fn denied(denial: Denial) -> Error {
    Error::corrupt(Place::Superblock, format!("what was freed is not in use: {denial}"))
}

impl SpaceMut<'_, '_> {
    /// Frees whole clusters with an self.update.
    ///
    /// # Errors
    /// Clusters that are not in use, hold a structure of the volume, or are being freed already:
    /// then two owners claim them, and nothing is freed.
    pub(crate) fn free_clusters(&mut self, run: ClusterRun) -> Result<()> {
        let writing = self.writing;
        let wrong = |problem: &str| {
            let start = writing.format.geometry.cluster_start(run.start);
            let clusters = run.count;
            Err(Error::corrupt(Place::Block(start), format!("{clusters} clusters to be freed {problem}")))
        };
        if run.end() > writing.format.geometry.clusters() {
            return wrong("lie outside the volume");
        }
        if writing.format.zone.touches(&writing.format.geometry, run) {
            return wrong("hold structures of the volume");
        }
        {
            let mut pending = self.space.with_known(writing, &*self.update, run)?;
            if !writing.blocks.is_used(run) {
                return wrong("are not in use");
            }
            if !pending.leave(run) {
                // Two owners would get them (I11).
                return wrong("belong to somebody else too");
            }
        }
        groups::groups_in(&writing.format.geometry, run).for_each(|group| self.update.note_group(group));
        self.update.claim(LeavingBlocks { run, pending: Arc::clone(&writing.pending), kept: false });
        Ok(())
    }

    /// Frees a block of metadata (with `bigalloc` the cluster of which it is the first) and drops
    /// it from the cache. Returns the blocks that are no longer charged to the inode it served.
    ///
    /// # Errors
    /// As [`SpaceMut::free_clusters`].
    pub(crate) fn free_metadata(&mut self, block: Block) -> Result<u64> {
        let writing = self.writing;
        let geometry = &writing.format.geometry;
        let run = ClusterRun { start: geometry.cluster_of(block), count: 1 };
        self.free_clusters(run)?;
        self.update.forget(BlockRun { start: block, count: 1 });
        Ok(u64::from(geometry.blocks_per_cluster()))
    }

    /// Frees an inode with an update; its record is the caller's.
    ///
    /// # Errors
    /// An inode that is not in use, reserved, or being freed already.
    pub(crate) fn free_inode(&mut self, number: InodeNumber, file_type: FileType) -> Result<()> {
        let writing = self.writing;
        let geometry = &writing.format.geometry;
        let index = self.space.numbers.physical_number(number).index();
        let group = self.space.locate(number).map(|(group, _)| group);
        let Some(group) = group.filter(|_| number.get() >= geometry.first_inode) else {
            return Err(Error::corrupt(Place::Inode(number), "is not one that can be freed"));
        };
        if writing.inodes.is_used(index).is_none() {
            self.space.load_inode_bitmap(writing, &*self.update, group)?;
        }
        let mut pending = lock(&writing.pending);
        if writing.inodes.is_used(index) != Some(true) || !pending.leave_inode(index) {
            return Err(Error::corrupt(Place::Inode(number), "to be freed is not in use"));
        }
        drop(pending);
        let directory = file_type == FileType::Directory;
        self.update.note_group(group);
        self.update.claim(LeavingInode {
            index,
            directory,
            pending: Arc::clone(&writing.pending),
            kept: false,
        });
        Ok(())
    }
}

impl Space {
    /// The pending changes, once the bitmaps of the groups of a run are known: as long as it is locked nothing settles, so that what
    /// stops leaving is free at the same moment, and no bitmap is dropped.
    fn with_known<'w>(
        &self,
        writing: &'w Writing,
        blocks: &dyn Blocks,
        run: ClusterRun,
    ) -> Result<MutexGuard<'w, PendingSpace>> {
        loop {
            for group in groups::groups_in(&writing.format.geometry, run) {
                self.know_group(writing, blocks, group)?;
            }
            let pending = lock(&writing.pending);
            let loaded = lock(&writing.loaded);
            if groups::groups_in(&writing.format.geometry, run).all(|group| loaded.contains(&group.0)) {
                return Ok(pending);
            }
        }
    }

    /// The bitmap of a group must be known before anything in it is freed.
    fn know_group(&self, writing: &Writing, blocks: &dyn Blocks, group: Group) -> Result<()> {
        self.refuse_damaged(writing, group)?;
        if lock(&writing.loaded).contains(&group.0) {
            return Ok(());
        }
        self.load_block_bitmap(writing, blocks, group)?;
        lock(&writing.loaded).insert(group.0);
        Ok(())
    }

    /// True if a sync, maybe one under way, makes space or inodes free that are wanted now.
    #[must_use]
    pub fn holds_freed(&self) -> bool {
        self.writing.as_ref().is_some_and(|writing| lock(&writing.pending).unsettled() != (0, 0))
    }

    /// True if files would be fragmented for want of space that only waits for a sync: more waits than is free, and
    /// it is no small part of the volume.
    #[must_use]
    pub fn holds_most(&self) -> bool {
        self.writing.as_ref().is_some_and(|writing| {
            let waiting = lock(&writing.pending).unsettled().0;
            waiting > writing.blocks.free_clusters() && waiting > writing.format.geometry.clusters() / MUCH
        })
    }

    /// How often freed space became free so far.
    #[must_use]
    pub fn free_generation(&self) -> u64 {
        self.writing.as_ref().map_or(0, |writing| writing.free_generation.load(Ordering::Acquire))
    }

    /// Clusters and inodes that are free once a sync has been made, without clusters that are promised to bytes in memory.
    #[must_use]
    pub fn free_after_sync(&self) -> Option<(u64, u64)> {
        let writing = self.writing.as_ref()?;
        // Under the lock nothing settles, which would be counted twice or not at all.
        let pending = lock(&writing.pending);
        let (clusters, inodes) = pending.unsettled();
        Some((
            writing.blocks.available_clusters() + clusters + self.held(),
            writing.inodes.free_inodes() + inodes,
        ))
    }

    /// The work of a [`Space::write_back`] is on disk: what it freed can be used again (I18).
    ///
    /// # Errors
    /// Space that was not in use after all.
    pub fn free_committed(&self, work: &Work) -> Result<()> {
        let writing = self.writing()?;
        let mut pending = lock(&writing.pending);
        writing.blocks.free_all(work.freed.iter().copied()).map_err(denied)?;
        for (index, directory) in &work.freed_inodes {
            writing.inodes.free(*index, *directory).map_err(denied)?;
        }
        pending.settled(work);
        if let Some(bytes) = writing.bound {
            let touched = groups::touched(&writing.format.geometry, work).clusters;
            self.forget(writing, &pending, touched.into_iter().map(Group), bytes)?;
        }
        writing.free_generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Drops what is known of groups beyond a bound on memory. Their bitmaps are read again from the cache, where what the
    /// next sync frees looks free too early: nothing may be on its way out.
    pub(super) fn forget(
        &self,
        writing: &Writing,
        pending: &PendingSpace,
        groups: impl IntoIterator<Item = Group>,
        bytes: u64,
    ) -> Result<()> {
        for group in groups {
            let bitmap = self.descriptors().block_bitmap(&*writing.cache, group)?;
            writing.blocks.written(group, &bitmap);
        }
        if !pending.is_leaving() && writing.blocks.shrink_to(bytes) > 0 {
            lock(&writing.loaded).retain(|group| !writing.blocks.needs_bitmap(Group(*group)));
        }
        Ok(())
    }

    /// A file lost its last writer: what was set aside for its growth is free again.
    pub fn closed(&self, owner: InodeNumber) {
        if let Some(writing) = &self.writing {
            writing.blocks.closed(u64::from(owner.get()));
        }
    }

    /// A file was cut or removed: what was set aside for its growth is free again.
    pub fn truncated(&self, owner: InodeNumber) {
        if let Some(writing) = &self.writing {
            writing.blocks.truncated(u64::from(owner.get()));
        }
    }
}
