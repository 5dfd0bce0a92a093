//! The structures whose places a group's descriptor states: where each may lie, and what a backup of the descriptor
//! says. Excludes judging descriptors ([`super::descriptors`]) and the owners of blocks ([`super::places`]).

use std::fmt;

use ondisk::features::Incompat;
use ondisk::group::{GroupFlags, RawGroupDescriptor};
use ondisk::units::{Block, Group};

use super::kinds::{Kind, opening as kind};
use super::subject::Subject;

/// Most backups of descriptors that are read for one group.
const BACKUPS_TRIED: usize = 8;

/// A structure whose place a descriptor states.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Part {
    InodeTable,
    BlockBitmap,
    InodeBitmap,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::InodeTable => "inode table",
            Part::BlockBitmap => "block bitmap",
            Part::InodeBitmap => "inode bitmap",
        })
    }
}

impl Part {
    pub(super) const ALL: [Part; 3] = [Part::InodeTable, Part::BlockBitmap, Part::InodeBitmap];

    pub(super) fn of(self, raw: &RawGroupDescriptor) -> Block {
        match self {
            Part::InodeTable => raw.inode_table(),
            Part::BlockBitmap => raw.block_bitmap(),
            Part::InodeBitmap => raw.inode_bitmap(),
        }
    }

    pub(super) fn set(self, raw: &mut RawGroupDescriptor, place: Block) {
        match self {
            Part::InodeTable => raw.set_inode_table(place),
            Part::BlockBitmap => raw.set_block_bitmap(place),
            Part::InodeBitmap => raw.set_inode_bitmap(place),
        }
    }

    pub(super) fn blocks(self, subject: &Subject) -> u64 {
        if self == Part::InodeTable { u64::from(subject.geometry.inode_table_blocks()) } else { 1 }
    }

    /// The rule that each lies inside the volume, or its group.
    pub(super) fn outside(self) -> &'static Kind {
        match self {
            Part::InodeTable => &kind::INODE_TABLE_OUTSIDE,
            Part::BlockBitmap => &kind::BLOCK_BITMAP_OUTSIDE,
            Part::InodeBitmap => &kind::INODE_BITMAP_OUTSIDE,
        }
    }

    /// The rule that it has its blocks for itself.
    pub(super) fn collision(self) -> &'static Kind {
        match self {
            Part::InodeTable => &kind::INODE_TABLE_COLLIDES,
            Part::BlockBitmap => &kind::BLOCK_BITMAP_COLLIDES,
            Part::InodeBitmap => &kind::INODE_BITMAP_COLLIDES,
        }
    }

    /// Describes the repair of a structure in a wrong place.
    pub(super) fn repair(self, backup: Option<(Group, Block)>) -> String {
        match (backup, self) {
            (Some((from, place)), _) => format!("it is at block {place}, as the backup in group {from} says"),
            (None, Part::InodeTable) => {
                "no backup says where it is: all inodes of the group are lost".to_owned()
            }
            (None, _) => "it is rewritten in a free block".to_owned(),
        }
    }
}

/// The blocks where structures of a group may lie.
fn bounds(subject: &Subject, group: Group) -> (u64, u64) {
    let geometry = &subject.geometry;
    if subject.has_incompat(Incompat::FLEX_BG) {
        return (u64::from(geometry.first_data_block), geometry.blocks);
    }
    let start = geometry.group_start(group).0;
    (start, start + u64::from(geometry.group_blocks(group)))
}

/// Those blocks, in words.
pub(super) fn expected(subject: &Subject, group: Group) -> String {
    let (start, end) = bounds(subject, group);
    format!("in blocks {start}-{}", end - 1)
}

/// Returns true if a structure can lie at `place`, other structures not asked.
pub(super) fn is_possible(subject: &Subject, group: Group, part: Part, place: Block) -> bool {
    let (start, end) = bounds(subject, group);
    place.0 >= start.max(1) && place.0.checked_add(part.blocks(subject)).is_some_and(|last| last <= end)
}

/// Drops a group's marks of unused parts: its table and bitmaps are then read and written to their ends.
pub(super) fn forget_uninit(subject: &mut Subject, group: Group) {
    if let Some(raw) = subject.descriptor_mut(group) {
        raw.set_flags(raw.flags() - GroupFlags::INODE_UNINIT - GroupFlags::BLOCK_UNINIT);
        raw.set_unused_inodes(0);
    }
    subject.renewed.insert(group.0);
}

/// Gives a structure another place; `Block(0)` is none, until one is found for it.
pub(super) fn set_place(subject: &mut Subject, group: Group, part: Part, place: Block) {
    if let Some(raw) = subject.descriptor_mut(group) {
        part.set(raw, place);
    }
    subject.backups_follow = true;
    if part == Part::InodeTable || place.0 == 0 {
        forget_uninit(subject, group);
    }
    subject.renewed.insert(group.0);
}

/// A copy of the group's descriptor that is right and whose places for `parts` are possible, and the
/// group that holds it.
pub(super) fn backup_of(
    subject: &Subject,
    group: Group,
    parts: &[Part],
) -> Option<(Group, RawGroupDescriptor)> {
    let geometry = &subject.geometry;
    let size = usize::from(geometry.descriptor_size);
    let (index, at) =
        (group.0 / geometry.descriptors_per_block(), group.0 % geometry.descriptors_per_block());
    geometry.descriptor_copies(index).take(BACKUPS_TRIED).find_map(|(holder, place)| {
        let block = subject.block(place).ok()?;
        let bytes = block.get(at as usize * size..)?.get(..size)?;
        let raw = RawGroupDescriptor::parse(bytes);
        let rest = bytes.get(64..).unwrap_or_default();
        let good = subject.sealer.descriptor_is_right(group, &raw, rest)
            && parts.iter().all(|part| is_possible(subject, group, *part, part.of(&raw)));
        good.then_some((holder, raw))
    })
}
