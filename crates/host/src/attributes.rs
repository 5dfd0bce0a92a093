//! Attributes of a file, set by a handle.
//!
//! A link or a device is not opened for its attributes: its handle has `O_PATH`, and the calls that such a handle
//! doesn't take go by its entry in `/proc/self/fd`, which leads to the file itself and to no name of it.

use crate::facts::Facts;
use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// Times to set: seconds and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Time of the last read.
    pub accessed: (i64, u32),
    /// Time of the last write.
    pub modified: (i64, u32),
}

/// A file of any type whose attributes are set.
#[derive(Debug)]
pub struct Handle {
    descriptor: OwnedFd,
    /// The handle stands for the file only (`O_PATH`).
    by_name: bool,
}

impl Handle {
    pub(crate) fn named(descriptor: OwnedFd) -> Self {
        Self { descriptor, by_name: true }
    }

    /// A handle of an open file or directory.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn of(opened: impl AsFd) -> io::Result<Self> {
        let descriptor = rustix::io::fcntl_dupfd_cloexec(opened, 0)?;
        Ok(Self { descriptor, by_name: false })
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
        let mode = Mode::from_raw_mode(mode & 0o7777);
        if self.by_name {
            return Ok(rustix::fs::chmodat(CWD, self.path(), mode, AtFlags::empty())?);
        }
        Ok(rustix::fs::fchmod(&self.descriptor, mode)?)
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

    /// Name of the handle itself; it leads to the file, even if that is a link.
    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.descriptor.as_raw_fd())
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
