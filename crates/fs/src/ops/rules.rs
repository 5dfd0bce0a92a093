//! Rules of Linux that decide whether and how a file may change: flags, inheritance, special bits.
//!
//! Who may do what is the caller's to decide (permissions, ownership, capabilities). What holds for
//! everybody stands here: the flags *immutable* and *append only*, which the verbs check. The rules
//! for new files and for the set-user-id bits are functions, for the caller who knows on whose
//! behalf something is done.

use ondisk::inode::{FileType, Inode, InodeFlags};

use super::resize::Allocate;
use crate::error::{Error, Result};

/// Set-user-id bit.
pub const SET_UID: u16 = 0o4000;
/// Set-group-id bit.
pub const SET_GID: u16 = 0o2000;
/// Sticky bit.
pub const STICKY: u16 = 0o1000;
/// Execution by the group: without it the set-group-id bit once meant mandatory locking.
const GROUP_EXECUTE: u16 = 0o0010;

fn refuse(inode: &Inode, flags: InodeFlags) -> Result<()> {
    let found = inode.flags().intersection(flags);
    match () {
        () if found.contains(InodeFlags::IMMUTABLE) => Err(Error::NotPermitted("the file is immutable")),
        () if found.contains(InodeFlags::APPEND) => {
            Err(Error::NotPermitted("the file can only be appended to"))
        }
        () => Ok(()),
    }
}

/// An immutable file is never opened for writing.
pub(super) fn may_open_for_writing(inode: &Inode) -> Result<()> {
    refuse(inode, InodeFlags::IMMUTABLE)
}

/// A file to be appended to is written behind its end only. One that became immutable while it was
/// open goes on being written, as on Linux.
pub(super) fn may_write(inode: &Inode, offset: u64) -> Result<()> {
    if offset >= inode.size() { Ok(()) } else { refuse(inode, InodeFlags::APPEND) }
}

pub(super) fn may_truncate(inode: &Inode) -> Result<()> {
    refuse(inode, InodeFlags::IMMUTABLE | InodeFlags::APPEND)
}

/// Space may be added to a file that can be appended to, but nothing in it changed.
pub(super) fn may_allocate(inode: &Inode, mode: Allocate) -> Result<()> {
    let adds = matches!(mode, Allocate::Extend | Allocate::KeepSize);
    let append = if adds { InodeFlags::empty() } else { InodeFlags::APPEND };
    refuse(inode, append | InodeFlags::IMMUTABLE)
}

/// Owner, permissions, attributes.
pub(super) fn may_change_attributes(inode: &Inode) -> Result<()> {
    refuse(inode, InodeFlags::IMMUTABLE | InodeFlags::APPEND)
}

pub(super) fn may_add_name(directory: &Inode) -> Result<()> {
    refuse(directory, InodeFlags::IMMUTABLE)
}

pub(super) fn may_link(inode: &Inode) -> Result<()> {
    refuse(inode, InodeFlags::IMMUTABLE | InodeFlags::APPEND)
}

pub(super) fn may_remove_name(directory: &Inode, child: &Inode) -> Result<()> {
    refuse(directory, InodeFlags::IMMUTABLE | InodeFlags::APPEND)?;
    refuse(child, InodeFlags::IMMUTABLE | InodeFlags::APPEND)
}

/// Whether the sticky bit of a directory keeps a user from removing or renaming a file in it: unless
/// they own the file or the directory. The super-user may always.
#[must_use]
pub fn sticky_forbids(directory_mode: u16, directory_owner: u32, file_owner: u32, user: u32) -> bool {
    directory_mode & STICKY != 0 && user != file_owner && user != directory_owner
}

/// Group and permissions of a new file: in a directory with the set-group-id bit it belongs to the
/// directory's group, and a new directory gets the bit too.
#[must_use]
pub fn inherited(
    directory_mode: u16,
    directory_group: u32,
    file_type: FileType,
    permissions: u16,
    group: u32,
) -> (u16, u32) {
    if directory_mode & SET_GID == 0 {
        return (permissions, group);
    }
    let bit = if file_type == FileType::Directory { SET_GID } else { 0 };
    (permissions | bit, directory_group)
}

/// Permissions after somebody without the right to keep the special bits wrote to, truncated or
/// changed the owner of a regular file: running it must not lend rights to what they put there.
#[must_use]
pub fn without_special_bits(permissions: u16) -> u16 {
    let group = if permissions & GROUP_EXECUTE != 0 { SET_GID } else { 0 };
    permissions & !(SET_UID | group)
}

/// What a new file takes over of its directory's flags: what is set on trees as a whole. Regular files
/// take what makes sense for them, others hardly anything.
#[must_use]
pub fn inherited_flags(directory: InodeFlags, file_type: FileType) -> InodeFlags {
    let tree = InodeFlags::SECRM
        | InodeFlags::UNRM
        | InodeFlags::COMPR
        | InodeFlags::SYNC
        | InodeFlags::NODUMP
        | InodeFlags::NOATIME
        | InodeFlags::JOURNAL_DATA
        | InodeFlags::NOTAIL
        | InodeFlags::DIRSYNC
        | InodeFlags::PROJINHERIT
        | InodeFlags::CASEFOLD
        | InodeFlags::DAX;
    let directory_only = InodeFlags::DIRSYNC | InodeFlags::PROJINHERIT | InodeFlags::CASEFOLD;
    let mask = match file_type {
        FileType::Directory => tree,
        FileType::Regular => tree.difference(directory_only),
        _ => InodeFlags::NODUMP | InodeFlags::NOATIME,
    };
    directory.intersection(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_bits_go_but_not_that_of_locking() {
        assert_eq!(without_special_bits(0o6755), 0o755);
        assert_eq!(without_special_bits(0o6745), 0o2745);
        assert_eq!(without_special_bits(0o1777), 0o1777);
    }

    #[test]
    fn groups_are_inherited_from_marked_directories_only() {
        assert_eq!(inherited(0o755, 7, FileType::Directory, 0o700, 5), (0o700, 5));
        assert_eq!(inherited(0o2755, 7, FileType::Directory, 0o700, 5), (0o2700, 7));
        assert_eq!(inherited(0o2755, 7, FileType::Regular, 0o700, 5), (0o700, 7));
    }

    #[test]
    fn sticky_directories_protect_files_from_others() {
        assert!(sticky_forbids(0o1777, 0, 10, 11));
        assert!(!sticky_forbids(0o1777, 0, 10, 10));
        assert!(!sticky_forbids(0o1777, 11, 10, 11));
        assert!(!sticky_forbids(0o777, 0, 10, 11));
    }

    #[test]
    fn flags_go_down_trees() {
        let all = InodeFlags::NODUMP | InodeFlags::DIRSYNC | InodeFlags::INDEX | InodeFlags::IMMUTABLE;
        assert_eq!(inherited_flags(all, FileType::Directory), InodeFlags::NODUMP | InodeFlags::DIRSYNC);
        assert_eq!(inherited_flags(all, FileType::Regular), InodeFlags::NODUMP);
        assert_eq!(inherited_flags(all | InodeFlags::SYNC, FileType::Fifo), InodeFlags::NODUMP);
    }
}
