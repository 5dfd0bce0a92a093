//! Facts of a file: those of `stat`, in plain numbers.

use rustix::fs::{FileType, Stat};

/// Type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A type that Linux doesn't know.
    Unknown,
}

impl Kind {
    /// The type as a noun with its article, for messages.
    #[must_use]
    pub fn noun(self) -> &'static str {
        match self {
            Kind::File => "a regular file",
            Kind::Directory => "a directory",
            Kind::Symlink => "a symbolic link",
            Kind::CharDevice => "a character device",
            Kind::BlockDevice => "a block device",
            Kind::Fifo => "a named pipe",
            Kind::Socket => "a socket",
            Kind::Unknown => "a file of unknown type",
        }
    }
}

/// Identity of a file while it exists: its file system and its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    /// Number of the file system.
    pub device: u64,
    /// Number of the inode.
    pub inode: u64,
}

/// Facts of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its type.
    pub kind: Kind,
    /// Permission bits with set-id and sticky bits (`0o7777`).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Blocks of 512 bytes that hold its data.
    pub blocks: u64,
    /// Names.
    pub links: u64,
    /// Identity.
    pub id: Id,
    /// Time of the last read: seconds and nanoseconds.
    pub accessed: (i64, u32),
    /// Time of the last write.
    pub modified: (i64, u32),
    /// Major and minor number of a device.
    pub device: (u32, u32),
}

impl Facts {
    /// True if it is of the user of this process.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.uid == rustix::process::geteuid().as_raw()
    }

    /// Returns the reason for which a regular file is no place for a secret, if it is none: others may read it, or another
    /// user may change it.
    #[must_use]
    pub fn exposure(&self) -> Option<String> {
        let others = self.mode & 0o077;
        match self.kind {
            Kind::File if !self.is_own() => Some(format!("it belongs to user {}", self.uid)),
            Kind::File if others != 0 => {
                Some(format!("others may use it (mode {:04o}); `chmod 600` makes it private", self.mode))
            }
            _ => None,
        }
    }

    /// Facts from what the system says.
    pub(crate) fn from_stat(stat: &Stat) -> Self {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink,
            FileType::CharacterDevice => Kind::CharDevice,
            FileType::BlockDevice => Kind::BlockDevice,
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::Unknown => Kind::Unknown,
        };
        Self {
            kind,
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
            #[allow(clippy::useless_conversion)] // 32 bits on some processors
            links: u64::from(stat.st_nlink),
            id: Id { device: stat.st_dev, inode: stat.st_ino },
            accessed: (stat.st_atime, nanos(stat.st_atime_nsec)),
            modified: (stat.st_mtime, nanos(stat.st_mtime_nsec)),
            device: (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)),
        }
    }
}

/// Nanoseconds in the type that a processor's C library has for them. Linux keeps them below 10^9; other systems behind a
/// network mount may not.
fn nanos(raw: impl TryInto<u32>) -> u32 {
    raw.try_into().map_or(0, |nanos| nanos.min(999_999_999))
}
