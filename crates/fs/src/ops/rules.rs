//! Rules of Linux that decide whether and how a file may change: flags, inheritance, special bits.
//!
//! The caller decides what a user may do (permissions, ownership, capabilities). What holds for all users
//! stands here: the flags *immutable*, *append only* and *verity* (`may`, the gate that each verb
//! passes), and which attributes and owners a file can have. The rules for new files and for the
//! set-user-id bits are functions, for the caller that knows the user.

use ondisk::inode::{FileType, Inode, InodeFlags};

use super::resize::Allocate;
use crate::error::{Error, Result};

/// Set-user-id bit.
pub const SET_UID: u16 = 0o4000;
/// Set-group-id bit.
pub const SET_GID: u16 = 0o2000;
/// Sticky bit.
pub const STICKY: u16 = 0o1000;
/// Where the capabilities of a program stand.
pub(super) const CAPABILITIES: &[u8] = b"security.capability";
/// Execution by the group: without it the set-group-id bit once meant mandatory locking.
const GROUP_EXECUTE: u16 = 0o0010;

/// The flags that users may set and clear on any inode, by [`Node::set_flags`](crate::Node::set_flags); those left
/// out are the volume's own business.
pub const SETTABLE: InodeFlags = InodeFlags::SECRM
    .union(InodeFlags::UNRM)
    .union(InodeFlags::COMPR)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::NOTAIL)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::TOPDIR)
    .union(InodeFlags::PROJINHERIT);

/// Operation that is about to be done to an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// It is opened for writing; with `append`, only behind its end.
    Open {
        /// Nothing but appending is asked for.
        append: bool,
    },
    /// Bytes are written from an offset on.
    Write {
        /// The first byte.
        offset: u64,
        /// By who opened the file before it became append-only.
        overwrites: bool,
    },
    /// Its size is set.
    Truncate,
    /// The space of a range changes.
    Allocate(Allocate),
    /// How its contents are mapped changes.
    Remap,
    /// Owner, permissions, times, extended attributes, project or generation change.
    Attributes,
    /// Both times become now; the right to write is enough for that.
    Touch,
    /// The directory gets a name, or a file without one is made in it.
    AddName,
    /// The directory loses a name, or a name of it comes to mean another file.
    LoseName,
    /// The file gets one more name.
    Link,
    /// The file loses a name, or moves.
    Unlink,
}

impl Operation {
    /// True if it is for changing bytes of the file or its size.
    fn is_of_contents(self) -> bool {
        matches!(
            self,
            Operation::Open { .. } | Operation::Write { .. } | Operation::Truncate | Operation::Allocate(_)
        )
    }

    /// The flags that forbid it, of the two that forbid most. The inode shows whether a write is
    /// behind the end.
    fn forbidden_by(self, inode: &Inode) -> InodeFlags {
        let appends = match self {
            Operation::Open { append } => append,
            Operation::Write { offset, overwrites } => overwrites || offset >= inode.size(),
            // Space may be added to a file that can be appended to, but nothing in it changed.
            Operation::Allocate(mode) => matches!(mode, Allocate::Extend | Allocate::KeepSize),
            Operation::Remap | Operation::Touch | Operation::AddName => true,
            Operation::Truncate
            | Operation::Attributes
            | Operation::LoseName
            | Operation::Link
            | Operation::Unlink => false,
        };
        if appends { InodeFlags::IMMUTABLE } else { InodeFlags::IMMUTABLE | InodeFlags::APPEND }
    }
}

/// The gate that each verb passes before it changes an inode that was there before: whether the flags
/// *immutable*, *append only* and *verity* allow it. What fs-verity has sealed stays as it is, with the tree of hashes
/// that lies behind its end.
///
/// # Errors
/// [`Error::NotPermitted`].
pub(super) fn may(inode: &Inode, operation: Operation) -> Result<()> {
    // A directory that was removed and is still in use must not be filled: its names would go with it, their files would not.
    if operation == Operation::AddName && inode.links() == 0 {
        return Err(Error::NotFound);
    }
    let found = inode.flags().intersection(operation.forbidden_by(inode));
    match () {
        () if found.contains(InodeFlags::IMMUTABLE) => Err(Error::NotPermitted("the file is immutable")),
        () if found.contains(InodeFlags::APPEND) => {
            Err(Error::NotPermitted("the file can only be appended to"))
        }
        () if inode.flags().contains(InodeFlags::VERITY) && operation.is_of_contents() => {
            Err(Error::NotPermitted("the file is sealed by fs-verity"))
        }
        () => Ok(()),
    }
}

/// A directory loses the name of a file.
pub(super) fn may_remove_name(directory: &Inode, child: &Inode) -> Result<()> {
    may(directory, Operation::LoseName)?;
    may(child, Operation::Unlink)
}

/// While a file stays immutable, none of its other flags changes.
pub(super) fn may_set_flags(inode: &Inode, flags: InodeFlags) -> Result<()> {
    let stays = inode.flags().intersection(flags).contains(InodeFlags::IMMUTABLE);
    if stays && flags != inode.flags() { may(inode, Operation::Attributes) } else { Ok(()) }
}

/// Refuses extended attributes that a file can't have. Those of users are for regular files and
/// directories only: on other files the right to write does not go with the right to use them.
pub(super) fn may_have_attribute(file_type: FileType, name: &[u8], value: Option<&[u8]>) -> Result<()> {
    if name.starts_with(b"user.") && !matches!(file_type, FileType::Regular | FileType::Directory) {
        let problem = "attributes of users (user.*) are for regular files and directories only";
        return Err(Error::NotPermitted(problem));
    }
    match value {
        Some(value) if name == CAPABILITIES && !is_capability(value) => Err(Error::Invalid(
            "security.capability: not 20 bytes of version 2 or 24 of version 3, as setcap writes them".into(),
        )),
        _ => Ok(()),
    }
}

/// True if Linux takes this for capabilities of a file.
fn is_capability(value: &[u8]) -> bool {
    // The version is in the last byte of the first word; the lowest bit of that word may be set.
    match value {
        [0 | 1, 0, 0, version, ..] => matches!((*version, value.len()), (2, 20) | (3, 24)),
        _ => false,
    }
}

/// The number that stands for no user and no group.
pub const NOBODY: u32 = u32::MAX;

/// Refuses ids that can't own a file.
pub(super) fn may_own(uid: Option<u32>, gid: Option<u32>) -> Result<()> {
    match [uid, gid].contains(&Some(NOBODY)) {
        true => Err(Error::Invalid(format!("{NOBODY} stands for no user and no group"))),
        false => Ok(()),
    }
}

/// True if the sticky bit of a directory keeps a user from removing or renaming a file in it: unless
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

/// Permissions after a user without the right to keep the special bits wrote to, truncated or
/// changed the owner of a regular file: running it must not lend rights to what that user put there.
#[must_use]
pub fn without_special_bits(permissions: u16) -> u16 {
    let group = if permissions & GROUP_EXECUTE != 0 { SET_GID } else { 0 };
    permissions & !(SET_UID | group)
}

/// Flags that a new file inherits from its directory: those set on trees as a whole. Regular files
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

    fn capability(word: u32, len: usize) -> Vec<u8> {
        let mut value = word.to_le_bytes().to_vec();
        value.resize(len, 0);
        value
    }

    #[test]
    fn capabilities_have_one_of_two_forms() {
        let good = [(0x0200_0000, 20), (0x0200_0001, 20), (0x0300_0000, 24)];
        assert!(good.iter().all(|(word, len)| is_capability(&capability(*word, *len))));
        let bad =
            [(0x0100_0000, 12), (0x0200_0000, 24), (0x0300_0000, 20), (0x0200_0002, 20), (0, 3), (0, 0)];
        assert!(!bad.iter().any(|(word, len)| is_capability(&capability(*word, *len)[..*len])));
    }

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
