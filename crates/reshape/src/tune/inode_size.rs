//! Larger inode records: each group gets a new table, and the old one is given back.

use ondisk::features::{Incompat, RoCompat};
use ondisk::geometry::Geometry;
use ondisk::inode::{EXTRA_SIZE, Inode, OLD_SIZE};
use ondisk::superblock::RawSuperblock;
use ondisk::units::{Block, Group, InodeNumber};
use platfs_device::Device;

use super::TuneWork;
use crate::Result;
use crate::error::{Error, refused};

/// Gives inodes `size` bytes. Each group's table goes to its block of `places`, which is free but for the table that it has
/// now; to any free run if there are none.
pub(super) fn change(work: &mut TuneWork<'_>, size: u16, places: &[Block]) -> Result<()> {
    let before = *work.draft.geometry();
    if size == before.inode_size {
        return Ok(());
    }
    let most = before.block_size.bytes();
    if !size.is_power_of_two() || u32::from(size) < 128 || u32::from(size) > most {
        return Err(Error::Usage(format!(
            "inodes of {size} bytes are not a power of two from 128 to {most}"
        )));
    }
    if size < before.inode_size {
        return refused(format!("inodes have {} bytes, and never get fewer", before.inode_size));
    }
    if work.draft.features().ro_compat.contains(RoCompat::BIGALLOC) {
        return refused("the size of inodes can't change with bigalloc: tables share clusters");
    }
    work.deepen()?;
    let blocks = table_blocks(work.draft.superblock(), size)?;
    let mut after = *work.draft.superblock();
    after.s_inode_size.set(size);
    if before.inode_size == 128 {
        after.s_min_extra_isize.set(EXTRA_SIZE);
        after.s_want_extra_isize.set(EXTRA_SIZE);
    }
    let records = read_all(work)?;
    let moved = if places.is_empty() {
        tables(work, before.inode_table_blocks(), blocks)?
    } else {
        tables_at(work, before.inode_table_blocks(), blocks, places)?
    };
    work.draft.reshape(|raw| {
        let free = raw.free_blocks_count();
        *raw = after;
        raw.set_free_blocks_count(free);
    })?;
    for (group, place) in moved {
        work.draft.edit_descriptor(group, |raw| raw.set_inode_table(place));
    }
    for (number, old) in records {
        let mut inode = Inode::blank(number, size);
        inode.bytes_mut().fill(0);
        let used = old.len().min(inode.bytes().len());
        if let (Some(to), Some(from)) = (inode.bytes_mut().get_mut(..used), old.get(..used)) {
            to.copy_from_slice(from);
        }
        if used == OLD_SIZE
            && let Some(to) = inode.bytes_mut().get_mut(OLD_SIZE..OLD_SIZE + 2)
        {
            to.copy_from_slice(&EXTRA_SIZE.to_le_bytes());
        }
        work.draft.put_inode(&mut inode)?;
    }
    overhead(work, u64::from(blocks) - u64::from(before.inode_table_blocks()))
}

/// All records that were ever used.
fn read_all(work: &TuneWork<'_>) -> Result<Vec<(InodeNumber, Vec<u8>)>> {
    let size = usize::from(work.draft.geometry().inode_size);
    let mut records = Vec::new();
    for (group, begun) in work.draft.tables_begun() {
        let mut bytes = vec![0; begun as usize * size];
        let Some(first) = work.draft.geometry().inode_at(group, 0) else { continue };
        let offset = work.draft.inode_offset(first)?;
        work.draft.device().read_at(offset, &mut bytes).map_err(Error::io("reading an inode table"))?;
        for (at, record) in (0..).zip(bytes.chunks_exact(size)) {
            if let Some(number) =
                work.draft.geometry().inode_at(group, at).filter(|_| record.iter().any(|b| *b != 0))
            {
                records.push((number, record.to_vec()));
            }
        }
    }
    Ok(records)
}

/// Gives the old tables back and takes room for new ones, which may lie over the old.
fn tables(work: &mut TuneWork<'_>, had: u32, has: u32) -> Result<Vec<(Group, Block)>> {
    let flexible = work.draft.features().incompat.contains(Incompat::FLEX_BG);
    let mut moved = Vec::new();
    for group in (0..work.draft.geometry().groups).map(Group) {
        let old = work.draft.descriptor(group).inode_table();
        work.draft.release(&[(old, u64::from(had))])?;
        let Some(place) = work.draft.take_run(group, u64::from(has), flexible)? else {
            return Err(Error::NoRun(format!(
                "the inode table of group {group} needs {has} free blocks in one piece, and there are none{}",
                if flexible { "" } else { " in the group" }
            )));
        };
        work.draft.zero_first(&[(place, u64::from(has))])?;
        moved.push((group, place));
    }
    Ok(moved)
}

/// Gives the old tables back and takes these places for new ones.
fn tables_at(work: &mut TuneWork<'_>, had: u32, has: u32, places: &[Block]) -> Result<Vec<(Group, Block)>> {
    let old = |group| (work.draft.descriptor(group).inode_table(), u64::from(had));
    let given: Vec<_> = (0..work.draft.geometry().groups).map(Group).map(old).collect();
    work.draft.release(&given)?;
    let taken: Vec<_> = places.iter().map(|place| (*place, u64::from(has))).collect();
    work.draft.claim(&taken)?;
    work.draft.zero_first(&taken)?;
    Ok((0..).map(Group).zip(places.iter().copied()).collect())
}

/// Blocks of a table of records of `size` bytes.
pub(super) fn table_blocks(raw: &RawSuperblock, size: u16) -> Result<u32> {
    let mut after = *raw;
    after.s_inode_size.set(size);
    Ok(Geometry::from_superblock(&after)?.inode_table_blocks())
}

/// Corrects the blocks that Linux does not count as space for files, where they are noted.
fn overhead(work: &mut TuneWork<'_>, more: u64) -> Result<()> {
    let groups = u64::from(work.draft.geometry().groups);
    let raw = work.draft.superblock_mut();
    let noted = raw.s_overhead_clusters.get();
    if noted > 0 {
        raw.s_overhead_clusters.set(u32::try_from(u64::from(noted) + more * groups).unwrap_or(0));
    }
    Ok(())
}
