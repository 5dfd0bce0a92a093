//! Which issues endanger others: before their repair, a change elsewhere in the volume may overwrite or free what
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

/// Kinds of bitmaps: what is in use must not be marked free.
const BITMAPS: &[&Kind] = &[&space::BLOCK_BITMAP, &space::INODE_BITMAP];

/// Kinds of counts of users: what has more users than it counts is freed too early.
const USERS: &[&Kind] = &[&directories::INODE_LINKS, &inodes::XATTR_REFERENCES, &inodes::VALUE_REFERENCES];

impl Issue {
    /// Whether a change elsewhere in the volume may overwrite or free what belongs to a file that has no fault, before
    /// this is repaired. What a crash leaves for the next mount does not count.
    #[must_use]
    pub fn endangers_others(&self) -> bool {
        let is_one_of = |kinds: &[&Kind]| kinds.iter().any(|kind| kind.id == self.kind.id);
        // Of a count the issue says what is stated and what was found in use.
        let counts_too_few = || {
            let number = |text: &str| text.parse::<u64>().ok();
            number(&self.found).zip(number(&self.expected)).is_none_or(|(stated, users)| stated < users)
        };
        is_one_of(ALWAYS)
            || is_one_of(BITMAPS) && self.found.contains(space::USED_MARKED_FREE)
            || is_one_of(USERS) && counts_too_few()
    }
}
