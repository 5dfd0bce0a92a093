//! Counting what all inodes in use hold.

use ondisk::features::RoCompat;
use ondisk::quota::{self, QuotaKind};
use ondisk::units::{Group, InodeNumber};

use super::{Quota, UsageTable, number_of, quota_inode};
use crate::charges::Holding;
use crate::error::Result;
use crate::file::{Allocation, WriteHint};
use crate::ops::change;
use crate::order::is_used;
use crate::tx::View;
use crate::volume::Volume;

/// Ids whose counts are corrected with one update.
const AT_ONCE: usize = 64;

impl Quota<'_> {
    /// Counts what all inodes in use hold, and corrects the quota files; for how many ids that was needed. Limits stay.
    /// Nobody may change the volume meanwhile.
    ///
    /// # Errors
    /// A broken inode, bitmap or quota file; the device's failure.
    pub fn recount(self) -> Result<u64> {
        let mut corrected = 0;
        loop {
            let was_pending = self.volume.reclaiming.is_pending();
            corrected += self.recount_once()?;
            // For space something was reclaimed that had been counted.
            if !was_pending || self.volume.reclaiming.is_pending() {
                return Ok(corrected);
            }
        }
    }

    fn recount_once(self) -> Result<u64> {
        let volume = self.volume;
        volume.sync()?;
        let tables = Count::of_all(volume, volume.view())?;
        let mut corrected = 0;
        for (kind, table) in QuotaKind::ALL.into_iter().zip(&tables) {
            let Some(file) = volume.session.quota_files.file(kind) else { continue };
            let stated = self.records(kind)?;
            let used = |id: &u32| table.get(id).copied().unwrap_or_default();
            let wrong = stated.iter().filter(|(id, record)| record.usage != used(id)).map(|(id, _)| *id);
            let new = table.keys().filter(|id| !stated.contains_key(id)).copied();
            let ids: Vec<u32> = wrong.chain(new).collect();
            for some in ids.chunks(AT_ONCE) {
                change(volume, |tx| {
                    some.iter().try_for_each(|id| {
                        tx.edit_record((kind, *id), file, |record| record.usage = used(id))
                    })
                })?;
            }
            corrected += ids.len() as u64;
        }
        Ok(corrected)
    }
}

/// Rewrites the quota files of a volume that is being loaded from the inodes in use, without limits; nothing happens on a
/// volume without the `quota` feature.
///
/// # Errors
/// A broken inode or bitmap, no space for a longer file, the device's failure.
pub fn rebuild(volume: &Volume) -> Result<()> {
    if !volume.format.has_ro_compat(RoCompat::QUOTA) {
        return Ok(());
    }
    // Bitmaps on disk say which inodes are in use.
    volume.sync()?;
    let superblock = volume.superblock();
    let tables = Count::of_all(volume, volume.view())?;
    for (kind, table) in QuotaKind::ALL.into_iter().zip(&tables) {
        if let Some(number) = quota_inode(&superblock, kind) {
            store(volume, number, &quota::encode(kind, table))?;
        }
    }
    Ok(())
}

fn store(volume: &Volume, number: InodeNumber, contents: &[u8]) -> Result<()> {
    change(volume, |tx| {
        let mut node = tx.inode(number)?;
        let hint = WriteHint { end: contents.len() as u64, growing: false, reserved: false };
        tx.contents(&mut node).write(&mut Allocation::default(), 0, contents, &hint)?;
        tx.store(&mut node)
    })
}

/// Usage by owner, group and project.
pub(super) struct Count<'v> {
    view: View<'v>,
    tables: [UsageTable; 3],
    /// Inodes without links that were deleted count only where they may be on a list of orphans.
    lists_orphans: bool,
}

impl<'v> Count<'v> {
    /// Counts the usage of the ids of one kind, as [`Count::of_all`].
    pub(super) fn of_kind(volume: &Volume, view: View<'v>, kind: QuotaKind) -> Result<UsageTable> {
        let [user, group, project] = Self::of_all(volume, view)?;
        Ok(match kind {
            QuotaKind::User => user,
            QuotaKind::Group => group,
            QuotaKind::Project => project,
        })
    }

    /// The root directory and all inodes that are not reserved count, but not the quota files and the orphan file.
    pub(super) fn of_all(volume: &Volume, view: View<'v>) -> Result<[UsageTable; 3]> {
        let superblock = &volume.superblock();
        let lists_orphans = volume.order.lists_orphans();
        let mut count = Count { view, tables: Default::default(), lists_orphans };
        let geometry = &view.format.geometry;
        let quota_files = QuotaKind::ALL.map(|kind| number_of(superblock, kind));
        let hidden =
            |number: u32| number == superblock.s_orphan_file_inum.get() || quota_files.contains(&number);
        for group in (0..geometry.groups).map(Group) {
            for number in view.space.inodes_in_use(view.blocks, group)? {
                let counts = number.get() >= geometry.first_inode && !hidden(number.get());
                if number == InodeNumber::ROOT || counts {
                    count.add(number)?;
                }
            }
        }
        Ok(count.tables)
    }

    fn add(&mut self, number: InodeNumber) -> Result<()> {
        let (view, geometry) = (self.view, &self.view.format.geometry);
        let inode = view.inode(number)?;
        if !self.lists_orphans && !is_used(inode.bytes()) {
            return Ok(());
        }
        // Values in inodes of their own count for those that refer to them, and are part of their blocks.
        let Some(holding) = Holding::of_inode(&inode, geometry.block_size, geometry.inodes()) else {
            return Ok(());
        };
        let inodes = 1 + view.xattrs(&inode).value_inodes()?;
        for (table, id) in self.tables.iter_mut().zip(holding.ids) {
            let usage = table.entry(id).or_default();
            usage.bytes = usage.bytes.saturating_add(holding.bytes);
            usage.inodes += inodes;
        }
        Ok(())
    }
}
