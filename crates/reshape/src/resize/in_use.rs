//! A volume that becomes larger or smaller while it is in use.
//!
//! Owns: which sizes it can have, where the structures of new groups lie (in the new groups, whatever is free before them,
//! since others take of that meanwhile), and in which order inodes leave an end that is cut. Excludes: the changes
//! themselves ([`platfs::growth`], [`platfs::shrink`]).

use std::cell::Cell;

use ondisk::geometry::Geometry;
use ondisk::superblock::RawSuperblock;
use ondisk::units::Group;
use platfs::Volume;
use platfs::growth::{self, Growth};
use platfs::mkfs::layout::{Layout, Runs, Tables};
use platfs::shrink::{self, Closed, Shrinkage};

use super::shape::{self, Tail};
use crate::Result;
use crate::error::refused;

/// The size that a volume in use would have, as near to `bytes` as can be.
///
/// # Errors
/// A size that it can't have while it is in use.
pub fn size_in_use(volume: &Volume, bytes: u64) -> Result<Geometry> {
    let before = volume.format().geometry;
    let blocks = bytes >> before.block_size.log2();
    let old = volume.superblock();
    let (raw, after) = sizes(&old, &before, blocks)?;
    if after.blocks < before.blocks {
        Shrinkage::plan(volume, &raw)?;
        return Ok(after);
    }
    if raw.features() != old.features() || after.group_header(Group(0)) != before.group_header(Group(0)) {
        return refused(format!(
            "{} blocks need descriptors for which there is no room: unmount the volume, and change its size then",
            after.blocks
        ));
    }
    Ok(after)
}

/// The superblock and the sizes of a volume with this many blocks, or a little less. The second backup of `sparse_super2`
/// stays where it is, as in Linux.
fn sizes(old: &RawSuperblock, before: &Geometry, blocks: u64) -> Result<(RawSuperblock, Geometry)> {
    if blocks == before.blocks {
        return Ok((*old, *before));
    }
    let mut raw = shape::plan(old, blocks, Tail::Useful)?.raw;
    raw.s_backup_bgs = old.s_backup_bgs;
    raw.s_first_meta_bg = old.s_first_meta_bg;
    let after = Geometry::from_superblock(&raw)?;
    Ok((raw, after))
}

/// Makes a volume in use larger: `bytes` bytes, or a little less. The device must be as long, and read as zeros from the
/// byte `zeros_from` on. A growth that is too large for the journal is made in steps, each of which is a whole one.
///
/// # Errors
/// As [`size_in_use`]; what the volume says. It has the size that it had then, or that of a step.
pub fn grow_in_use(volume: &Volume, bytes: u64, mut zeros_from: u64) -> Result<Geometry> {
    let wanted = size_in_use(volume, bytes)?;
    let mut step = wanted.groups;
    loop {
        let before = volume.format().geometry;
        if before.blocks == wanted.blocks {
            growth::write_backups(volume)?;
            return Ok(before);
        }
        let groups = before.groups.saturating_add(step).min(wanted.groups);
        let blocks =
            if groups == wanted.groups { wanted.blocks } else { before.group_start(Group(groups)).0 };
        let growth = growth_to(volume, blocks, zeros_from)?;
        match growth::grow(volume, &growth) {
            Err(platfs::Error::TooLargeForLog { .. }) if groups > before.groups + 1 => {
                step = (groups - before.groups) / 2;
                // Structures for the larger step stand there now.
                zeros_from = u64::MAX;
            }
            done => done?,
        }
    }
}

fn growth_to(volume: &Volume, blocks: u64, zeros_from: u64) -> Result<Growth> {
    let before = volume.format().geometry;
    let (raw, after) = sizes(&volume.superblock(), &before, blocks)?;
    let layout = Layout { geometry: after, packed: false, stride: raw.s_raid_stride.get() };
    let mut tables = Vec::new();
    if after.groups > before.groups {
        for pack in layout.pack_of(Group(before.groups))..layout.packs() {
            tables.extend(new_tables(&layout, pack, before.groups)?);
        }
    }
    Ok(Growth { raw, tables, zeros_from })
}

/// The tables of the groups of a pack from the group `first` on.
fn new_tables(layout: &Layout, pack: u32, first: u32) -> Result<Vec<Tables>> {
    let old = first.saturating_sub(layout.groups_of(pack).start) as usize;
    let mut used = Runs::default();
    used.insert(0, layout.geometry.group_start(Group(first)).0);
    // Only their number counts: what lies behind them is not free.
    let there = vec![Tables { block_bitmap: 0, inode_bitmap: 0, inode_table: 0 }; old];
    if old == 0 {
        return Ok(layout.pack(pack)?.tables);
    }
    Ok(layout.pack_behind(pack, &there, used)?.tables.into_iter().skip(old).collect())
}

/// Passes over all inodes that find nothing more to move, until it is given up.
const PATIENCE: u32 = 4;

/// Hears of the progress of a volume that becomes smaller.
pub trait Watch {
    /// Bytes that have been copied so far. `false` calls the work off after the file that moves: the volume keeps its size.
    fn goes_on(&self, copied: u64) -> bool;
}

/// Amount of work to empty the end of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShrinkWork {
    /// Blocks that move.
    pub blocks: u64,
    /// Inodes that get other numbers on disk.
    pub inodes: u64,
}

/// Returns the work if a volume in use became smaller.
///
/// # Errors
/// As [`size_in_use`].
pub fn moves_in_use(volume: &Volume, bytes: u64) -> Result<ShrinkWork> {
    let before = volume.format().geometry;
    let (raw, after) = sizes(&volume.superblock(), &before, bytes >> before.block_size.log2())?;
    if after.blocks >= before.blocks {
        return Ok(ShrinkWork::default());
    }
    let shrinkage = Shrinkage::plan(volume, &raw)?;
    Ok(ShrinkWork { blocks: shrinkage.blocks_to_move(), inodes: shrinkage.inodes_to_move(volume)? })
}

/// The smallest size that a volume can have while it is in use, by what it holds now: files of the volume itself stay where
/// they are, and a part stays free for those who write meanwhile.
///
/// # Errors
/// A volume that can't become smaller in use at all; the device's failure.
pub fn smallest_in_use(volume: &Volume) -> Result<Geometry> {
    let before = volume.format().geometry;
    let size = |blocks: u64| {
        let (raw, after) = sizes(&volume.superblock(), &before, blocks)?;
        if after.blocks < before.blocks {
            Shrinkage::plan(volume, &raw)?;
        }
        Ok::<_, crate::Error>(after)
    };
    let (mut short, mut enough) = (0, before.blocks >> before.cluster_log2);
    // A volume that is refused whatever its size says why.
    let mut least = size(enough << before.cluster_log2)?;
    while short + 1 < enough {
        let clusters = u64::midpoint(short, enough);
        match size(clusters << before.cluster_log2) {
            Ok(after) => (enough, least) = (clusters, after),
            Err(_) => short = clusters,
        }
    }
    Ok(least)
}

/// Makes a volume in use smaller: `bytes` bytes, or a little less; gives its shape and what moved.
///
/// # Errors
/// As [`size_in_use`]; no space before the new end, as others took it; what the volume says. It has the size that it had
/// then, and what has moved stays where it is.
pub fn shrink_in_use(volume: &Volume, bytes: u64, watch: &dyn Watch) -> Result<(Geometry, ShrinkWork)> {
    let before = volume.format().geometry;
    let (raw, after) = sizes(&volume.superblock(), &before, bytes >> before.block_size.log2())?;
    let mut closed = shrink::close(volume, Shrinkage::plan(volume, &raw)?)?;
    let mut leaving = Evacuation { watch, left: ShrinkWork::default(), copied: Cell::new(0) };
    let mut idle = 0;
    loop {
        volume.sync()?;
        if closed.in_use()? == 0 && closed.inodes_in_use()? == 0 && closed.cut()? {
            return Ok((after, leaving.left));
        }
        let had = leaving.left;
        leaving.renumber(&closed)?;
        leaving.pass(&closed, before.groups)?;
        idle = if leaving.left == had { idle + 1 } else { 0 };
        if idle >= PATIENCE {
            let (blocks, inodes) = (closed.in_use()?, closed.inodes_in_use()?);
            return refused(format!(
                "{blocks} blocks behind that end belong to no file that could be found, and of {inodes} inodes not all \
                 names were found: `plat check` the volume"
            ));
        }
    }
}

/// Inodes on their way from the end.
struct Evacuation<'l> {
    watch: &'l dyn Watch,
    left: ShrinkWork,
    /// Bytes.
    copied: Cell<u64>,
}

impl Evacuation<'_> {
    fn called_off<T>() -> Result<T> {
        refused("called off: the volume has the size that it had")
    }

    /// All inodes behind the end get other numbers.
    fn renumber(&mut self, closed: &Closed<'_>) -> Result<()> {
        let pass = closed.renumber(&|| self.watch.goes_on(self.copied.get()))?;
        self.left.inodes += pass.done;
        if pass.called_off { Self::called_off() } else { Ok(()) }
    }

    /// All inodes that have to leave by now.
    fn pass(&mut self, closed: &Closed<'_>, groups: u32) -> Result<()> {
        let pace = |bytes| {
            self.copied.set(self.copied.get() + bytes);
            self.watch.goes_on(self.copied.get());
        };
        for group in 0..groups {
            for number in closed.inodes_of(group)? {
                if !self.watch.goes_on(self.copied.get()) {
                    return Self::called_off();
                }
                self.left.blocks += closed.leave(number, &pace)?;
            }
        }
        Ok(())
    }
}
