//! Space of a volume that grows while it is open.
//!
//! Owns: what the engines and the descriptors of the larger volume know, and the end of the last group, which may have
//! been short. Excludes: which groups are new and where their structures lie (`growth`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use ondisk::group::RawGroupDescriptor;
use ondisk::units::Group;
use placement::InodeEngine;
use placement::parameters::Policies;

use super::damage::Damage;
use super::descriptors::{Descriptors, Tables};
use super::{Space, Writing, groups, layout_of, out_of_step, trim};
use crate::cache::Role;
use crate::error::Result;
use crate::format::Format;
use crate::locks::lock;
use crate::txn::Update;

impl Space {
    /// Gives the last group the clusters that it has in a larger volume; its descriptor then, and by how many clusters it
    /// grew.
    ///
    /// # Errors
    /// A broken descriptor or bitmap; the device's failure.
    pub(crate) fn lengthen_last(
        &self,
        update: &mut Update<'_>,
        after: &Format,
    ) -> Result<(Group, RawGroupDescriptor, u32)> {
        let last = Group(self.geometry.groups.saturating_sub(1));
        let (old, new) = (self.geometry.group_clusters(last), after.geometry.group_clusters(last));
        let descriptors = self.descriptors();
        let mut raw = descriptors.get(last)?;
        let added = new.saturating_sub(old);
        if added == 0 {
            return Ok((last, raw, 0));
        }
        raw.set_free_clusters(raw.free_clusters().saturating_add(added));
        if !descriptors.blocks_uninitialised(&raw) {
            // Only one that is right is changed.
            descriptors.block_bitmap(&*update, last)?;
            let bitmap = update.edit(raw.block_bitmap(), Role::Bitmap)?;
            groups::clear_bits(bitmap, u64::from(old)..u64::from(new));
            let checksum = after.sealer.bitmap_checksum(bitmap, after.geometry.clusters_per_group());
            if let Some(checksum) = checksum {
                raw.set_block_bitmap_checksum(checksum);
            }
        }
        Ok((last, raw, added))
    }

    /// The space of the larger volume, with these descriptors. The engines know what is on disk: everything must be stable.
    /// Until [`Space::take_over`] this one counts.
    ///
    /// # Errors
    /// Descriptors that contradict themselves.
    pub(crate) fn grown(
        &self,
        format: &Format,
        descriptors: Descriptors,
        policies: Policies,
    ) -> Result<Space> {
        let old = self.writing()?;
        let layout = layout_of(&format.geometry);
        old.blocks.release_claims();
        let blocks = old.blocks.successor(layout, policies.blocks).map_err(out_of_step)?;
        let blocks = Arc::new(blocks);
        let inodes = InodeEngine::with_policy(Arc::clone(&blocks), policies.inodes);
        groups::describe_all(format, &descriptors, &blocks, &inodes)?;
        let writing = Writing {
            format: format.clone(),
            cache: Arc::clone(&old.cache),
            blocks,
            inodes,
            pending: Arc::clone(&old.pending),
            front: None,
            loaded: Mutex::default(),
            damage: Damage::default(),
            free_generation: AtomicU64::new(self.free_generation() + 1),
            holding: trim::Holding::default(),
            bound: old.bound,
        };
        let tables = Tables::new(format.geometry.groups);
        let descriptors = RwLock::new(descriptors);
        let numbers = Arc::clone(&self.numbers);
        Ok(Space { geometry: format.geometry, descriptors, tables, numbers, writing: Some(writing) })
    }

    /// Takes the place of the space before, which nothing is taken from any more. What is promised stays promised.
    pub(crate) fn take_over(&self, before: &Space) {
        if let (Some(new), Some(old)) = (&self.writing, &before.writing) {
            new.blocks.take_over(&old.blocks);
            lock(&new.pending).forget_groups(self.geometry.groups);
            // Those that wait for space look again.
            old.free_generation.fetch_add(1, Ordering::Release);
        }
    }
}
