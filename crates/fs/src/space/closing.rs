//! Space of a volume that becomes smaller while it is open: nothing behind its new end is given out, and then it is gone.
//!
//! Owns: closing the end, what is still in use there, and bitmaps and counts of the groups that stay. Excludes: what moves
//! (`ops`), and when the end is cut (`shrink`).

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use ondisk::geometry::Geometry;
use ondisk::group::{GroupFlags, RawGroupDescriptor};
use ondisk::units::{Cluster, ClusterRun, Group, low_u32};
use placement::Refusal;

use super::{Descriptors, Space, groups};
use crate::cache::Role;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::txn::Update;

/// Clusters of the structures of a volume that lose their groups, and of those that keep them.
pub(crate) struct Structures {
    all: Vec<ClusterRun>,
    staying: Vec<ClusterRun>,
}

impl Structures {
    /// Of a volume that has this shape then.
    ///
    /// # Errors
    /// A broken descriptor.
    pub(crate) fn new(descriptors: &Descriptors, after: &Geometry) -> Result<Self> {
        let all = descriptors.structures()?.to_vec();
        Ok(Structures { all, staying: groups::structures_of(descriptors, after)? })
    }

    /// Clusters that go with their groups.
    pub(crate) fn leaving(&self) -> u64 {
        count(&self.all).saturating_sub(count(&self.staying))
    }

    /// Clusters of structures from a place on.
    pub(crate) fn behind(&self, end: u64) -> u64 {
        self.all.iter().map(|run| run.end().saturating_sub(run.start.0.max(end))).sum()
    }

    /// True if a group that stays has a part of its structures from a place on.
    pub(crate) fn stay_behind(&self, end: u64) -> bool {
        self.staying.iter().any(|run| run.end() > end)
    }

    /// The runs before a place that become free.
    fn freed(&self, end: u64) -> Vec<ClusterRun> {
        let mut freed = Vec::new();
        for run in &self.all {
            let mut at = run.start.0;
            let first = self.staying.partition_point(|kept| kept.end() <= at);
            let (_, kept) = self.staying.split_at(first);
            for kept in kept.iter().take_while(|kept| kept.start.0 < run.end()) {
                push(&mut freed, at, kept.start.0.min(end));
                at = kept.end();
            }
            push(&mut freed, at, run.end().min(end));
        }
        freed
    }
}

/// Changes to a volume that becomes smaller.
pub(crate) struct Shortened {
    /// Descriptors of groups that stay.
    pub(crate) changed: Vec<(Group, RawGroupDescriptor)>,
    /// Clusters that structures gave up.
    pub(crate) freed: Vec<ClusterRun>,
}

fn count(runs: &[ClusterRun]) -> u64 {
    runs.iter().map(|run| u64::from(run.count)).sum()
}

fn push(runs: &mut Vec<ClusterRun>, from: u64, to: u64) {
    if from < to {
        runs.push(ClusterRun { start: Cluster(from), count: low_u32(to - from) });
    }
}

impl Space {
    /// True if the end is closed.
    pub(crate) fn is_end_closed(&self) -> bool {
        self.writing.as_ref().is_some_and(|writing| writing.blocks.kept_behind_end().is_some())
    }

    /// From now on no block and no inode behind the end of a smaller shape is given out. Called again, takes what came free
    /// unseen. Nothing may be changed meanwhile, and all must be stable.
    ///
    /// # Errors
    /// [`Error::NoSpace`]: what is free there is promised. A bitmap that can't be believed or read. The end is open then.
    pub(crate) fn close_end(&self, after: &Geometry) -> Result<()> {
        let writing = self.writing()?;
        let closed = loop {
            match writing.blocks.close_end(Cluster(after.clusters())) {
                Ok(()) => break Ok(()),
                Err(Refusal::NoSpace) => break Err(Error::NoSpace),
                Err(Refusal::NeedBitmap(group)) => {
                    if let Err(error) = self.load_block_bitmap(writing, &*writing.cache, group) {
                        break Err(error);
                    }
                }
            }
        };
        if closed.is_err() {
            writing.blocks.open_end();
            return closed;
        }
        writing.inodes.close_groups(Group(after.groups));
        Ok(())
    }

    /// Gives all of the volume out again, after [`Space::close_end`]. Nothing may be changed meanwhile.
    pub(crate) fn open_end(&self) {
        let Some(writing) = &self.writing else { return };
        writing.blocks.open_end();
        writing.inodes.open_groups();
        writing.free_generation.fetch_add(1, Ordering::Release);
    }

    /// Inodes in use in the groups that a smaller shape has not, as of the last sync.
    ///
    /// # Errors
    /// A broken descriptor.
    pub(crate) fn inodes_behind(&self, after: &Geometry) -> Result<u64> {
        let descriptors = self.descriptors();
        let in_use = |group| {
            let free = descriptors.get(Group(group))?.free_inodes();
            Ok(u64::from(self.geometry.inodes_per_group.saturating_sub(free)))
        };
        (after.groups..self.geometry.groups).map(in_use).sum()
    }

    /// Free inodes in the groups that a shape has, as of the last sync.
    ///
    /// # Errors
    /// A broken descriptor.
    pub(crate) fn inodes_free_in(&self, groups: u32) -> Result<u64> {
        let descriptors = self.descriptors();
        (0..groups).map(|group| Ok(u64::from(descriptors.get(Group(group))?.free_inodes()))).sum()
    }

    /// Clusters behind the end of a smaller shape that files and directories use. What was freed and waits for a sync counts.
    ///
    /// # Errors
    /// A broken descriptor.
    pub(crate) fn in_use_behind(&self, after: &Geometry) -> Result<u64> {
        let end = after.clusters();
        let structures = Structures::new(&self.descriptors(), after)?;
        let all = self.geometry.clusters().saturating_sub(end);
        let kept = self.writing()?.blocks.kept_behind_end().unwrap_or(0);
        Ok(all.saturating_sub(kept).saturating_sub(structures.behind(end)))
    }

    /// Brings the bitmaps of the groups that stay into a smaller shape; the descriptors that this changes, and the clusters
    /// of structures that become free. Nothing behind the end may be in use.
    ///
    /// # Errors
    /// A broken descriptor or bitmap; the device's failure.
    pub(crate) fn shorten(&self, update: &mut Update<'_>, after: &Format) -> Result<Shortened> {
        let descriptors = self.descriptors();
        let (before, geometry) = (&self.geometry, &after.geometry);
        let structures = Structures::new(&descriptors, geometry)?;
        let mut freed: BTreeMap<u32, Vec<ClusterRun>> = BTreeMap::new();
        let all_freed = structures.freed(geometry.clusters());
        for run in &all_freed {
            for group in groups::groups_in(geometry, *run) {
                let parts = groups::within(geometry, std::slice::from_ref(run), group);
                freed.entry(group.0).or_default().extend(parts);
            }
        }
        let last = Group(geometry.groups.saturating_sub(1));
        // The bitmap of the last group is always there, as e2fsck wants it.
        let is_whole = before.group_clusters(last) == geometry.group_clusters(last);
        if !is_whole || descriptors.blocks_uninitialised(&descriptors.get(last)?) {
            freed.entry(last.0).or_default();
        }
        let mut changed = Vec::with_capacity(freed.len());
        for (group, runs) in freed {
            let group = Group(group);
            let (start, end) = groups::group_span(geometry, group);
            let old_end = groups::group_span(before, group).1;
            let cut = (old_end - end) - (structures.behind(end) - structures.behind(old_end));
            let mut raw = descriptors.get(group)?;
            let free = u64::from(raw.free_clusters()) + count(&runs);
            raw.set_free_clusters(low_u32(free.saturating_sub(cut)));
            let mut bitmap = descriptors.block_bitmap(&*update, group)?;
            for run in runs {
                groups::clear_bits(&mut bitmap, run.start.0 - start..run.end() - start);
            }
            let bits = u64::from(before.block_size.bytes()) * 8;
            groups::set_bits(&mut bitmap, end - start..bits);
            raw.set_flags(raw.flags().difference(GroupFlags::BLOCK_UNINIT));
            if let Some(checksum) = after.sealer.bitmap_checksum(&bitmap, geometry.clusters_per_group()) {
                raw.set_block_bitmap_checksum(checksum);
            }
            update.rewrite(raw.block_bitmap(), Role::Bitmap)?.copy_from_slice(&bitmap);
            changed.push((group, raw));
        }
        Ok(Shortened { changed, freed: all_freed })
    }
}
