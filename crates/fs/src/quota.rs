//! Quota files brought in line with what the inodes use.
//!
//! Owns: counting usage and rewriting the hidden quota files of a volume that has them. Excludes:
//! enforcing limits. Limits in the old files are not kept, so this is for volumes that were just
//! made and loaded.

use std::collections::BTreeMap;

use ondisk::features::RoCompat;
use ondisk::inode::InodeFlags;
use ondisk::quota::{self, QuotaKind, Usage};
use ondisk::superblock::RawSuperblock;
use ondisk::units::{Group, InodeNumber};

use crate::error::Result;
use crate::file::{Ahead, WriteHint};
use crate::ops::change;
use crate::volume::Volume;

type UsageTable = BTreeMap<u32, Usage>;

/// Rewrites the quota files of a volume from the inodes in use; nothing happens on a volume
/// without the `quota` feature.
///
/// # Errors
/// A broken inode or bitmap, no space for a longer file, the device's failure.
pub fn rebuild(volume: &Volume) -> Result<()> {
    if !volume.format.has_ro_compat(RoCompat::QUOTA) {
        return Ok(());
    }
    // Bitmaps on disk say which inodes are in use.
    volume.sync()?;
    let tables = Count::of_all(volume)?;
    let superblock = volume.superblock();
    for (kind, table) in QuotaKind::ALL.into_iter().zip(&tables) {
        if let Some(number) = InodeNumber::new(quota_inode(&superblock, kind)) {
            store(volume, number, &quota::encode(kind, table))?;
        }
    }
    Ok(())
}

fn quota_inode(superblock: &RawSuperblock, kind: QuotaKind) -> u32 {
    match kind {
        QuotaKind::User => superblock.s_usr_quota_inum.get(),
        QuotaKind::Group => superblock.s_grp_quota_inum.get(),
        QuotaKind::Project => superblock.s_prj_quota_inum.get(),
    }
}

/// Usage by owner, group and project.
struct Count<'v> {
    volume: &'v Volume,
    tables: [UsageTable; 3],
}

impl<'v> Count<'v> {
    /// The root directory and all inodes that are not reserved count, but not the quota files and the orphan file.
    fn of_all(of: &'v Volume) -> Result<[UsageTable; 3]> {
        let mut count = Count { volume: of, tables: Default::default() };
        let geometry = &of.format.geometry;
        let superblock = of.superblock();
        let quota_files = QuotaKind::ALL.map(|kind| quota_inode(&superblock, kind));
        let hidden =
            |number: u32| number == superblock.s_orphan_file_inum.get() || quota_files.contains(&number);
        for group in (0..geometry.groups).map(Group) {
            for number in of.space.inodes_in_use(&*of.cache, group)? {
                let counts = number.get() >= geometry.first_inode && !hidden(number.get());
                if number == InodeNumber::ROOT || counts {
                    count.add(number)?;
                }
            }
        }
        Ok(count.tables)
    }

    fn add(&mut self, number: InodeNumber) -> Result<()> {
        let view = self.volume.view();
        let inode = view.inode(number)?;
        // Values in inodes of their own count for those that refer to them, and are part of their blocks.
        if inode.flags().contains(InodeFlags::EA_INODE) {
            return Ok(());
        }
        let inodes = 1 + view.xattrs(&inode).value_inodes()?;
        let bytes = inode.sectors(view.format.geometry.block_size) * 512;
        for (table, id) in self.tables.iter_mut().zip([inode.uid(), inode.gid(), inode.project()]) {
            let usage = table.entry(id).or_default();
            usage.bytes += bytes;
            usage.inodes += inodes;
        }
        Ok(())
    }
}

fn store(volume: &Volume, number: InodeNumber, contents: &[u8]) -> Result<()> {
    change(volume, |tx| {
        let mut node = tx.inode(number)?;
        let hint = WriteHint { end: contents.len() as u64, growing: false };
        tx.contents(&mut node).write(&mut Ahead::default(), 0, contents, &hint)?;
        tx.store(&mut node)
    })
}
