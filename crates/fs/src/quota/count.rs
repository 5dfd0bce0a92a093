//! Counting what all inodes in use hold.

use ondisk::features::RoCompat;
use ondisk::quota::{self, QuotaKind};
use ondisk::superblock::RawSuperblock;
use ondisk::units::{Group, InodeNumber};

use super::{UsageTable, number_of, quota_inode};
use crate::charges::Holding;
use crate::error::Result;
use crate::file::{Ahead, WriteHint};
use crate::ops::change;
use crate::tx::View;
use crate::volume::Volume;

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
    let tables = Count::of_all(volume.view(), &superblock)?;
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
        let hint = WriteHint { end: contents.len() as u64, growing: false };
        tx.contents(&mut node).write(&mut Ahead::default(), 0, contents, &hint)?;
        tx.store(&mut node)
    })
}

/// Usage by owner, group and project.
pub(super) struct Count<'v> {
    view: View<'v>,
    tables: [UsageTable; 3],
}

impl<'v> Count<'v> {
    /// The root directory and all inodes that are not reserved count, but not the quota files and the orphan file.
    pub(super) fn of_all(view: View<'v>, superblock: &RawSuperblock) -> Result<[UsageTable; 3]> {
        let mut count = Count { view, tables: Default::default() };
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
        // Values in inodes of their own count for those that refer to them, and are part of their blocks.
        let Some(holding) = Holding::of(&inode, geometry.block_size, geometry.inodes()) else {
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
