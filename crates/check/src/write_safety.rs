//! Issues that endanger others: before their repair, a change elsewhere in the volume may overwrite or free what
//! belongs to a file that has no fault.
//!
//! Owns: that decision. An image made to deceive has right checksums, and a verb can't see from where it stands that a
//! bitmap, a count or a map lies; only a check of all owners can. Excludes: damage that stays where it is, such as a
//! broken name or map, and space or records that are marked in use and are not: nothing is written to them.
//! A count of unused inodes that is too high does no harm either: soft updates leave one after a crash, and no verb
//! takes a record beyond it without looking whether that is in use.

use super::issue::Issue;
use super::kinds::{Kind, directories, inodes, opening, space};

/// Kinds that endanger others whatever the issue says.
const ALWAYS: &[&Kind] = &[
    &opening::BLOCK_BITMAP_OUTSIDE,
    &opening::INODE_BITMAP_OUTSIDE,
    &opening::INODE_TABLE_OUTSIDE,
    &opening::BLOCK_BITMAP_COLLIDES,
    &opening::INODE_BITMAP_COLLIDES,
    &opening::INODE_TABLE_COLLIDES,
    &opening::GROUP_UNINIT,
    &opening::INODES_UNINIT,
    &opening::RESIZE_INODE,
    &opening::ORPHAN_LIST,
    &opening::ORPHAN_FILE,
    &opening::ORPHAN_FILE_NUMBER,
    &opening::JOURNAL_INODE,
    &opening::TWO_JOURNALS,
    &inodes::BLOCKS_SHARED,
    &directories::ENTRY_UNUSED,
    &space::BLOCKS_UNINIT,
];

/// Kinds that endanger others where something is in use beyond what is stated: a bitmap then gives it away, and a count of
/// users frees it too early.
const WHERE_OVERUSED: &[&Kind] = &[
    &space::BLOCK_BITMAP,
    &space::INODE_BITMAP,
    &directories::INODE_LINKS,
    &inodes::XATTR_REFERENCES,
    &inodes::VALUE_REFERENCES,
];

impl Issue {
    /// Returns true if a change elsewhere in the volume may overwrite or free what belongs to a file that has no fault, before
    /// this is repaired. What a crash leaves for the next mount does not count.
    #[must_use]
    pub fn endangers_others(&self) -> bool {
        let is_one_of = |kinds: &[&Kind]| kinds.iter().any(|kind| kind.id == self.kind.id);
        is_one_of(ALWAYS) || self.is_overused && is_one_of(WHERE_OVERUSED)
    }
}
