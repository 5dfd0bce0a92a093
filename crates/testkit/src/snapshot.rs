//! A directory tree as a list of facts, and the differences between two such lists.
//!
//! Owns what "the same tree" means in tests. Of a directory its size is left out, and its link count is not compared but checked against its
//! children, since host file systems count them differently. Access and change times are left out: looking changes the first, the second
//! can't be set.

mod compare;
mod take;

#[cfg(test)]
mod tests;

pub use compare::{assert_same, differences};
pub use take::{digest, target_digest};

use std::collections::BTreeMap;
use std::ops::Range;

/// Fields to compare, beside those that always are.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Holes are compared after data ranges were rounded outward to this many bytes (a power of two); 0 leaves them out.
    pub hole_granularity: u64,
    /// Nanoseconds of modification times count; without, whole seconds only (128-byte inodes).
    pub nanoseconds: bool,
    /// Modification times are compared at all.
    pub times: bool,
    /// Extended attributes, and with them ACLs and capabilities, count.
    pub xattrs: bool,
    /// Owners and groups count.
    pub owners: bool,
    /// Sockets count: tar cannot carry them.
    pub sockets: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            hole_granularity: 64 * 1024,
            nanoseconds: true,
            times: true,
            xattrs: true,
            owners: true,
            sockets: true,
        }
    }
}

/// The facts of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The type bits and the permission bits of `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time: seconds since 1970, nanoseconds.
    pub mtime: (i64, i64),
    /// Number of names; of a directory what the file system says.
    pub links: u64,
    /// Of a directory: how many directories are in it.
    pub subdirectories: u64,
    /// Device number of a device, else 0.
    pub device: u64,
    /// Size in bytes; 0 for a directory.
    pub size: u64,
    /// Digest of the bytes, independent of how holes are stored; of a symlink, of its target.
    pub digest: u64,
    /// Byte ranges that hold data, as the file system reports them.
    pub data: Vec<Range<u64>>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first name, in byte order, of the file that this name is a further link of.
    pub link_of: Option<Vec<u8>>,
}

impl Entry {
    /// The type bits of the mode.
    pub fn kind(&self) -> u32 {
        self.mode & 0o170_000
    }

    /// Returns true if this is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind() == 0o040_000
    }

    /// Returns true if this is a socket.
    pub fn is_socket(&self) -> bool {
        self.kind() == 0o140_000
    }
}

/// A tree: facts by path relative to its root, which itself is the empty path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Facts by path.
    pub entries: BTreeMap<Vec<u8>, Entry>,
}
