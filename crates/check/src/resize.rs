//! The resize inode: it owns the blocks behind the descriptors that are kept for more of them, so that
//! a volume can grow.
//!
//! Its map is one double indirect block; that lists the kept blocks of group 0, and each of these, as
//! an indirect block, lists its copies in the groups with backups. All follows from the geometry.

use ondisk::block_map::pointers_per_block;
use ondisk::features::Compat;
use ondisk::inode::{FileType, Inode, TimeField};
use ondisk::units::{Block, Group, InodeNumber, low_u32};

use super::contents::{self, words};
use super::facts::Facts;
use super::issue::Location;
use super::kinds::opening as kind;
use super::log::clear_inode;
use super::reporter::{Finding, Report};
use super::slices::{as_index, put};
use super::staged::staging;
use super::subject::Subject;
use platfs_device::Result;

/// The pointer to the double indirect block in `i_block`.
const DOUBLE: usize = 13;

/// Checks the resize inode. One that is wrong is emptied here and rebuilt by [`finish`].
///
/// # Errors
/// Repairs take more memory than they may.
pub(super) fn check(subject: &mut Subject, facts: &Facts, report: &mut Report<'_>) -> Result<()> {
    let number = InodeNumber::RESIZE;
    let inode = contents::inode(subject, number.get());
    if !subject.has_compat(Compat::RESIZE_INODE) {
        let used = inode.is_ok_and(|inode| inode.raw().i_block.iter().any(|byte| *byte != 0));
        let finding =
            Finding::new(Location::inode(number), "has blocks without resize_inode", "it is emptied");
        if used && report.found(&kind::RESIZE_INODE_UNUSED, finding) {
            clear_inode(subject, facts, number.get())?;
        }
        return Ok(());
    }
    let Err(problem) = inode.and_then(|inode| judge(subject, &inode)) else { return Ok(()) };
    let repair = "it is recreated; which blocks it has follows from the size of the volume";
    if report.found(&kind::RESIZE_INODE, Finding::new(Location::inode(number), problem, repair)) {
        clear_inode(subject, facts, number.get())?;
        subject.resize_wanted = true;
    }
    Ok(())
}

/// First kept block of group 0, and the groups with copies.
fn kept(subject: &Subject) -> (u64, Vec<u64>) {
    let geometry = &subject.geometry;
    let first = geometry.superblock_block(Group(0)).0 + 1 + u64::from(geometry.descriptor_blocks());
    let copies = (1..geometry.groups)
        .filter(|group| geometry.backups.has_superblock(Group(*group)))
        .map(|group| u64::from(group) * u64::from(geometry.blocks_per_group))
        .collect();
    (first, copies)
}

fn judge(subject: &Subject, inode: &Inode) -> Result<(), String> {
    let pointers: Vec<u32> = words(&inode.raw().i_block).collect();
    let double = pointers.get(DOUBLE).copied().unwrap_or(0);
    if inode.links() == 0 || inode.file_type() != Some(FileType::Regular) {
        return Err("it is no file in use".to_owned());
    }
    if pointers.iter().enumerate().any(|(at, pointer)| at != DOUBLE && *pointer != 0) {
        return Err("its map has more than a double indirect block".to_owned());
    }
    if double == 0 || !subject.geometry.contains(Block(u64::from(double)), 1) {
        return Err(format!("its double indirect block is {double}"));
    }
    let read = |block: u64| -> Result<Vec<u32>, String> {
        let bytes = subject.block(Block(block)).map_err(|error| error.to_string())?;
        Ok(words(&bytes).collect())
    };
    let table = read(u64::from(double))?;
    let (first, copies) = kept(subject);
    let per_block = u64::from(pointers_per_block(subject.geometry.block_size));
    for index in 0..u64::from(subject.geometry.reserved_descriptor_blocks) {
        let slot = (u64::from(subject.geometry.descriptor_blocks()) + index) % per_block;
        let stands = table.get(as_index(slot)).copied().unwrap_or(0);
        if u64::from(stands) != first + index {
            return Err(format!("entry {slot} of its map is {stands}, not {}", first + index));
        }
        let listed = read(first + index)?;
        for (at, copy) in copies.iter().enumerate() {
            let stands = listed.get(at).copied().unwrap_or(0);
            if u64::from(stands) != first + index + copy {
                return Err(format!(
                    "entry {at} of block {} is {stands}, not {}",
                    first + index,
                    first + index + copy
                ));
            }
        }
    }
    Ok(())
}

/// Rebuilds the resize inode where it was wrong, once free blocks are known.
///
/// # Errors
/// Repairs take more memory than they may.
pub(super) fn finish(subject: &mut Subject, facts: &Facts) -> Result<()> {
    if !subject.resize_wanted {
        return Ok(());
    }
    let staging = staging("the resize inode");
    let Some(double) = facts.allocate(subject, subject.geometry.group_start(Group(0)), 1) else {
        return Ok(());
    };
    let Ok(pointer) = u32::try_from(double.0) else { return Ok(()) };
    let (first, copies) = kept(subject);
    let per_block = u64::from(pointers_per_block(subject.geometry.block_size));
    let mut table = vec![0; subject.block_len()];
    let reserved = u64::from(subject.geometry.reserved_descriptor_blocks);
    for index in 0..reserved {
        let slot = (u64::from(subject.geometry.descriptor_blocks()) + index) % per_block;
        put_pointer(&mut table, slot, first + index);
        let mut listed = vec![0; subject.block_len()];
        for (at, copy) in copies.iter().enumerate() {
            put_pointer(&mut listed, at as u64, first + index + copy);
        }
        subject.write(Block(first + index), &listed).map_err(staging)?;
    }
    subject.write(double, &table).map_err(staging)?;
    let number = InodeNumber::RESIZE;
    let mut inode = Inode::blank(number, subject.geometry.inode_size);
    inode.raw_mut().i_mode.set(0o100_600);
    inode.raw_mut().i_links_count.set(1);
    if let Some(slot) = inode.raw_mut().i_block.chunks_exact_mut(4).nth(DOUBLE) {
        slot.copy_from_slice(&pointer.to_le_bytes());
    }
    let block_size = subject.geometry.block_size;
    inode.set_size((12 + per_block + per_block * per_block) << block_size.log2());
    // Each block counts as the cluster that it takes.
    let blocks = (1 + reserved * (1 + copies.len() as u64)) << subject.geometry.cluster_log2;
    inode.set_sectors(blocks << (block_size.log2() - 9), block_size);
    for field in [TimeField::Access, TimeField::Change, TimeField::Modify] {
        inode.set_time(field, subject.now);
    }
    subject.write_inode(&mut inode).map_err(staging)
}

fn put_pointer(block: &mut [u8], slot: u64, value: u64) {
    put(block, as_index(slot).saturating_mul(4), &low_u32(value).to_le_bytes());
}
