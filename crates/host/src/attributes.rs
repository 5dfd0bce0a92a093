//! Attributes of a file, read and set by a handle.
//!
//! A link or a device is not opened for its attributes: its handle has `O_PATH`, and the calls that such a handle
//! doesn't take go by its entry in `/proc/self/fd`, which leads to the file itself and to no name of it.
//!
//! Owners and modes are set by functions of the C library, which fakeroot and pseudo answer.

use crate::facts::{Facts, Kind};
use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Times to set: seconds and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Time of the last read.
    pub accessed: (i64, u32),
    /// Time of the last write.
    pub modified: (i64, u32),
}

/// Extended attributes, as full name and value.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Room for most values and lists of names. It is tried first, since the kernel makes as much room itself for each call.
const XATTR_FEW: usize = 1 << 10;
/// The most that Linux returns of a value, or of a list of names.
const XATTR_MAX: usize = 64 << 10;
/// Answers of Linux where a file system has no attributes.
const NO_XATTRS: [Errno; 2] = [Errno::OPNOTSUPP, Errno::PERM];

/// Access control lists.
const LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
/// The value that stands for no list: a version, and no entry.
const NO_LIST: [u8; 4] = [2, 0, 0, 0];

/// A file whose extended attributes are asked for.
#[derive(Clone, Copy, Debug)]
pub enum XattrsOf<'a> {
    /// An open one.
    Open(BorrowedFd<'a>),
    /// The file that a path leads to.
    Path(&'a OsStr),
    /// The entry with this path itself, be it a link.
    Entry(&'a OsStr),
}

impl XattrsOf<'_> {
    fn list(self, room: &mut [u8]) -> Result<usize, Errno> {
        match self {
            XattrsOf::Open(file) => rustix::fs::flistxattr(file, room),
            XattrsOf::Path(path) => rustix::fs::listxattr(path, room),
            XattrsOf::Entry(path) => rustix::fs::llistxattr(path, room),
        }
    }

    fn get(self, name: &OsStr, room: &mut [u8]) -> Result<usize, Errno> {
        match self {
            XattrsOf::Open(file) => rustix::fs::fgetxattr(file, name, room),
            XattrsOf::Path(path) => rustix::fs::getxattr(path, name, room),
            XattrsOf::Entry(path) => rustix::fs::lgetxattr(path, name, room),
        }
    }
}

/// Reads extended attributes, of many files with the same memory.
#[derive(Debug)]
pub struct XattrReader {
    /// Room for one value, or the list of names.
    buffer: Vec<u8>,
    /// The directory in which open files have paths, if `/proc` is mounted.
    paths: Option<PathBuf>,
}

impl Default for XattrReader {
    fn default() -> Self {
        // The process is found faster by its number than by `self`.
        let own = Path::new("/proc").join(std::fs::read_link("/proc/self").unwrap_or_default());
        XattrReader { buffer: vec![0; XATTR_MAX], paths: Some(own.join("fd")).filter(|paths| paths.exists()) }
    }
}

impl XattrReader {
    #[cfg(test)]
    pub(crate) fn without_paths() -> Self {
        XattrReader { paths: None, ..Self::default() }
    }

    /// True if the attributes of everything can be asked for: open files have paths in `/proc`.
    #[must_use]
    pub fn has_paths(&self) -> bool {
        self.paths.is_some()
    }

    /// A path of an entry of an open directory.
    pub(crate) fn path_of(&self, directory: BorrowedFd<'_>, name: &OsStr) -> Option<PathBuf> {
        Some(self.paths.as_ref()?.join(directory.as_raw_fd().to_string()).join(name))
    }

    /// The extended attributes of a file, but for those that the caller may not see.
    ///
    /// # Errors
    /// The system's, with what was tried.
    pub fn read(&mut self, of: XattrsOf<'_>) -> Result<Xattrs, (&'static str, Errno)> {
        let len = match within(&mut self.buffer, |room| of.list(room)) {
            Err(error) if NO_XATTRS.contains(&error) => 0,
            listed => listed.map_err(|error| ("list the attributes of", error))?,
        };
        let names = self.buffer.get(..len).unwrap_or_default().to_vec();
        let mut found = Xattrs::new();
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            match within(&mut self.buffer, |room| of.get(OsStr::from_bytes(name), room)) {
                Ok(len) => found.push((name.to_vec(), self.buffer.get(..len).unwrap_or_default().to_vec())),
                // Listed, but gone or not for the caller: trusted attributes belong to the administrator.
                Err(error) if error == Errno::NODATA || NO_XATTRS.contains(&error) => {}
                Err(error) => return Err(("read the attributes of", error)),
            }
        }
        Ok(found)
    }
}

/// Asks with little room first, and with all where that is too little.
fn within(buffer: &mut [u8], ask: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<usize, Errno> {
    match ask(buffer.get_mut(..XATTR_FEW).unwrap_or_default()) {
        Err(Errno::RANGE) => ask(buffer),
        asked => asked,
    }
}

/// Attributes that a copy gets from its original.
#[derive(Clone, Copy, Debug)]
pub struct CopiedAttributes<'a> {
    /// The owner, where the copy is not to keep the one that it has.
    pub owner: Option<(u32, u32)>,
    /// The extended attributes.
    pub xattrs: &'a Xattrs,
    /// Kind, mode and times.
    pub facts: &'a Facts,
}

/// Attributes that a copy could not get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissingAttributes {
    /// Its owner, and with it the set-id bits.
    pub owner: bool,
    /// Extended attributes.
    pub xattrs: u64,
}

/// A file of any type whose attributes are set.
#[derive(Debug)]
pub struct Handle {
    descriptor: File,
    /// The handle stands for the file only (`O_PATH`).
    by_name: bool,
}

impl Handle {
    pub(crate) fn named(descriptor: OwnedFd) -> Self {
        Self { descriptor: descriptor.into(), by_name: true }
    }

    /// A handle of an open file or directory.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn of(opened: impl AsFd) -> io::Result<Self> {
        let descriptor = rustix::io::fcntl_dupfd_cloexec(opened, 0)?;
        Ok(Self { descriptor: descriptor.into(), by_name: false })
    }

    /// Facts of the file.
    ///
    /// # Errors
    /// The system's.
    pub fn facts(&self) -> io::Result<Facts> {
        Ok(Facts::from_stat(&rustix::fs::fstat(&self.descriptor)?))
    }

    /// Sets owner and group. It comes before attributes and mode, since it clears capabilities and set-id bits.
    ///
    /// # Errors
    /// The caller may not; the system's.
    pub fn set_owner(&self, uid: u32, gid: u32) -> io::Result<()> {
        // All ones would mean "leave it" to the system.
        if uid == u32::MAX || gid == u32::MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "4294967295 is no number of an owner"));
        }
        let owner = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        Ok(rustix::fs::chownat(&self.descriptor, c"", owner.0, owner.1, AtFlags::EMPTY_PATH)?)
    }

    /// Sets the permission bits; of a link nothing, as it has none.
    ///
    /// # Errors
    /// The system's.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        let mode = mode & 0o7777;
        // Not rustix's `fchmod` and `chmodat`, which pass the C library by.
        match self.by_name {
            true => Ok(rustix::fs::chmod(self.path(), Mode::from_raw_mode(mode))?),
            false => self.descriptor.set_permissions(Permissions::from_mode(mode)),
        }
    }

    /// Sets the times. It comes last, since other changes set them, too.
    ///
    /// # Errors
    /// The system's.
    pub fn set_times(&self, times: &Times) -> io::Result<()> {
        let spec = |(seconds, nanos): (i64, u32)| Timespec {
            tv_sec: seconds,
            tv_nsec: nanos.min(999_999_999).into(),
        };
        let times = Timestamps { last_access: spec(times.accessed), last_modification: spec(times.modified) };
        match self.by_name {
            true => Ok(rustix::fs::utimensat(&self.descriptor, c"", &times, AtFlags::EMPTY_PATH)?),
            false => Ok(rustix::fs::futimens(&self.descriptor, &times)?),
        }
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// The file system or the caller's rights refuse it.
    pub fn set_xattr(&self, name: &[u8], value: &[u8]) -> io::Result<()> {
        let (name, flags) = (OsStr::from_bytes(name), XattrFlags::empty());
        match self.by_name {
            true => Ok(rustix::fs::setxattr(self.path(), name, value, flags)?),
            false => Ok(rustix::fs::fsetxattr(&self.descriptor, name, value, flags)?),
        }
    }

    /// The extended attributes, but for those that the caller may not see.
    ///
    /// # Errors
    /// The system's.
    pub fn xattrs(&self) -> io::Result<Xattrs> {
        let path = self.path();
        let of = if self.by_name {
            XattrsOf::Path(OsStr::new(&path))
        } else {
            XattrsOf::Open(self.descriptor.as_fd())
        };
        match XattrReader::default().read(of) {
            // Without /proc a link has no path that leads to it.
            Err((_, Errno::NOENT)) if self.by_name => Ok(Xattrs::new()),
            read => read.map_err(|(_, error)| error.into()),
        }
    }

    /// Takes away the access control lists that a new file got of its directory: for a copy that is to have those of its
    /// original, or none. A new directory hands them down to no file then.
    ///
    /// # Errors
    /// The system's.
    pub fn inherit_nothing(&self) -> io::Result<()> {
        for name in LISTS {
            if let Err(error) = self.set_xattr(name, &NO_LIST) {
                // File systems refuse it in several ways where there are no lists.
                if self.xattrs()?.iter().any(|(known, _)| known == name) {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Gives a copy what its original has, as far as the caller may. The owner comes first, since setting it clears
    /// capabilities and set-id bits; bits that lend the owner's rights are set only where the owner is right.
    ///
    /// # Errors
    /// The mode or the times can't be set.
    pub fn dress(&self, wanted: CopiedAttributes<'_>) -> io::Result<MissingAttributes> {
        let CopiedAttributes { owner, xattrs, facts } = wanted;
        let mut lacks = MissingAttributes::default();
        if let Some((uid, gid)) = owner {
            let has = self.facts()?;
            lacks.owner = (has.uid, has.gid) != (uid, gid) && self.set_owner(uid, gid).is_err();
        }
        for (name, value) in xattrs {
            lacks.xattrs += u64::from(self.set_xattr(name, value).is_err());
        }
        if facts.kind != Kind::Symlink {
            let lends = owner.is_some() && !lacks.owner;
            self.set_mode(facts.mode & if lends { 0o7777 } else { 0o777 })?;
        }
        self.set_times(&Times { accessed: facts.accessed, modified: facts.modified })?;
        Ok(lacks)
    }

    /// Name of the handle itself; it leads to the file, even if that is a link.
    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.descriptor.as_raw_fd())
    }
}

impl From<File> for Handle {
    /// The handle of a file that is needed for nothing else any more.
    fn from(descriptor: File) -> Self {
        Self { descriptor, by_name: false }
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
