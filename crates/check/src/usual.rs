//! Where a group's inode table lies if no descriptor and no backup says so: as programs that make volumes place it.
//!
//! A guess counts only where what lies there is a table of inodes. Excludes bitmaps, which are written again wherever
//! there is room.

use ondisk::features::Incompat;
use ondisk::inode::{FileType, Inode};
use ondisk::units::{Block, Group, InodeNumber};

use super::parts::{Part, is_possible};
use super::subject::Subject;

/// Inodes of a table that are looked at.
const LOOKED_AT: u64 = 64;

/// The place of a group's inode table by the usual layouts; `None` where no table is there.
pub(super) fn table(subject: &Subject, group: Group) -> Option<Block> {
    let mut places = candidates(subject, group).into_iter();
    places.find(|place| {
        is_possible(subject, group, Part::InodeTable, *place) && is_table(subject, group, *place)
    })
}

/// Places behind the group's own bitmaps, or in the first group of its flexible group, where all bitmaps of one kind
/// come first and then all tables. A short flexible group has room for as many bitmaps as it has groups, or as a whole
/// one has.
fn candidates(subject: &Subject, group: Group) -> Vec<Block> {
    let geometry = &subject.geometry;
    let behind = |group: Group| {
        let header = geometry.group_header(group);
        header.start.0 + u64::from(header.count)
    };
    let own = behind(group) + 2;
    if !subject.has_incompat(Incompat::FLEX_BG) {
        return vec![Block(own)];
    }
    let whole = geometry.groups_per_flex();
    let first = group.0 - group.0 % whole;
    let there = whole.min(geometry.groups - first);
    let table = u64::from(geometry.inode_table_blocks());
    let before = u64::from(group.0 - first) * table;
    let together = [there, whole].map(|bitmaps| behind(Group(first)) + 2 * u64::from(bitmaps) + before);
    together.into_iter().chain([own]).map(Block).collect()
}

/// Tells if a table of the group's inodes lies at `place`: the root directory is in that of the first group, and no
/// record of any is something else.
fn is_table(subject: &Subject, group: Group, place: Block) -> bool {
    let geometry = &subject.geometry;
    let size = usize::from(geometry.inode_size);
    let count = LOOKED_AT.min(geometry.inodes_per_group.into());
    let blocks = geometry.block_size.blocks_for(count * size as u64);
    let mut bytes = vec![0; geometry.block_size.bytes_usize() * usize::try_from(blocks).unwrap_or(1)];
    if subject.read(place, &mut bytes).is_err() {
        return false;
    }
    let first = u64::from(group.0) * u64::from(geometry.inodes_per_group) + 1;
    let mut has_root = group.0 != 0;
    for (number, record) in (first..first + count).zip(bytes.chunks_exact(size)) {
        let number = u32::try_from(number).ok().and_then(InodeNumber::new);
        let Some(inode) = number.and_then(|number| Inode::parse(number, record).ok()) else { return false };
        if !is_record(subject, &inode) {
            return false;
        }
        has_root |= inode.number() == InodeNumber::ROOT && inode.file_type() == Some(FileType::Directory);
    }
    has_root
}

/// Tells if a record is one of an inode, or empty (zeros).
fn is_record(subject: &Subject, inode: &Inode) -> bool {
    if inode.bytes().iter().all(|byte| *byte == 0) {
        return true;
    }
    if subject.sealer.covers_metadata() {
        return subject.sealer.inode_is_right(inode);
    }
    // Reserved inodes may have no mode.
    let reserved = inode.number().get() < subject.geometry.first_inode;
    inode.file_type().is_some() || reserved && inode.raw().i_mode.get() == 0
}
