//! Inodes in use on the future volume, for groups in which they change.

use std::collections::BTreeMap;

use ondisk::group::{GroupFlags, RawGroupDescriptor};
use ondisk::units::Group;

use super::bits::Bits;

/// A group's inodes.
pub(super) struct InodeGroup {
    pub(super) bits: Bits,
    pub(super) directories: u32,
    /// Inodes at the end of the table that were never used; it reads as zeros there.
    pub(super) unused: u32,
}

/// Groups whose inodes change.
#[derive(Default)]
pub(super) struct Inodes {
    groups: BTreeMap<u32, InodeGroup>,
}

impl Inodes {
    /// Takes note of a group's new state.
    pub(super) fn change(&mut self, group: Group, state: InodeGroup) {
        self.groups.insert(group.0, state);
    }

    /// A group whose inodes change.
    pub(super) fn group(&self, group: Group) -> Option<&InodeGroup> {
        self.groups.get(&group.0)
    }
}

impl InodeGroup {
    /// Stores its counts in a descriptor.
    pub(super) fn describe(&self, has_flags: bool, per_group: u32, raw: &mut RawGroupDescriptor) {
        raw.set_free_inodes(self.bits.count_clear(per_group));
        raw.set_used_directories(self.directories);
        if has_flags {
            raw.set_unused_inodes(self.unused);
            raw.set_flags(raw.flags() - GroupFlags::INODE_UNINIT);
        }
    }
}
