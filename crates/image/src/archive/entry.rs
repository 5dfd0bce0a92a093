//! One entry of an archive, free of how it was encoded.

pub use platfs::ondisk::inode::Timestamp;

/// The times of a file. Those that an archive does not have are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Last change of contents.
    pub modified: Timestamp,
    /// Last access.
    pub accessed: Option<Timestamp>,
    /// Last change of the inode.
    pub changed: Option<Timestamp>,
    /// Creation.
    pub created: Option<Timestamp>,
}

/// A device number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    /// The driver.
    pub major: u32,
    /// The unit.
    pub minor: u32,
}

/// An extended attribute. Values are in the encoding that Linux's `getxattr` returns, ACLs included.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xattr {
    /// The full name, with its namespace: `user.comment`.
    pub name: Box<[u8]>,
    /// The value.
    pub value: Box<[u8]>,
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// One more name of an earlier entry.
    HardLink,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
}

/// A run of a file's data. What lies between runs is a hole and reads as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where it belongs in the file, in bytes.
    pub file_offset: u64,
    /// Its length in bytes; never 0.
    pub len: u64,
    /// Where it lies in the archive, in bytes.
    pub archive_offset: u64,
}

/// One entry of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The byte of the archive at which the entry's first header begins.
    pub offset: u64,
    /// The path as recorded: neither cleaned nor judged.
    pub path: Vec<u8>,
    /// Type of the entry.
    pub kind: EntryKind,
    /// The target of a symbolic link, or the path of a hard link's other name. Else empty.
    pub target: Vec<u8>,
    /// Permission bits with set-user, set-group and sticky: below 0o10000.
    pub mode: u16,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The number of a device; else zero.
    pub device: Device,
    /// The times.
    pub times: Times,
    /// A file's length in bytes, holes counted. Else zero.
    pub size: u64,
    /// Extended attributes in the order of the archive, each name once.
    pub xattrs: Vec<Xattr>,
    /// A file's data in ascending order, not overlapping.
    pub runs: Vec<Run>,
}
