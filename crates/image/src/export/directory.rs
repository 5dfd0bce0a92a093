//! Exported files into a directory of the host, and never outside it (I7).
//!
//! Every name is used relative to an open directory, one component at a time, and no symbolic link is ever
//! followed: neither those of the image, nor those that another program puts there meanwhile. Every file is
//! new (`O_EXCL`); what exists already is an error. A directory gets its attributes after all that is in it, since
//! filling it changes its times and may need permissions that it shall not have.

use super::{Contents, ExportError, Item, Loss, Losses, Sink};
use crate::archive::{Timestamp, Xattr};
use ondisk::inode::FileType;
use platfs::Metadata;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Directories kept open on the way down; those above are opened again when the walk comes back.
const OPEN: usize = 128;
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Makes files of the host.
pub(super) struct DirectorySink {
    base: OwnedFd,
    /// The directory that `base` is, for messages.
    place: PathBuf,
    levels: Vec<Level>,
    privileged: bool,
    losses: Losses,
}

/// A directory entered and not left.
struct Level {
    /// Empty for the base itself.
    name: Vec<u8>,
    path: Vec<u8>,
    open: Option<OwnedFd>,
    metadata: Metadata,
    xattrs: Vec<Xattr>,
}

impl DirectorySink {
    /// Puts files into the directory `place`, which exists. The exported directory itself becomes `place`.
    ///
    /// # Errors
    /// [`ExportError::Host`].
    pub(super) fn new(place: &Path) -> Result<Self, ExportError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(place, flags, Mode::empty());
        let base = opened.map_err(|error| host("open", place, error))?;
        let privileged = rustix::process::geteuid().is_root();
        let losses = Losses::default();
        Ok(Self { base, place: place.to_owned(), levels: Vec::new(), privileged, losses })
    }

    /// What was lost.
    pub(super) fn losses(&self) -> &Losses {
        &self.losses
    }

    /// The open directory at `depth`: opened again, from the nearest above that is open, where it was closed.
    fn directory(&mut self, depth: usize) -> Result<BorrowedFd<'_>, Errno> {
        let mut from = depth;
        while from > 0 && self.levels.get(from - 1).is_some_and(|level| level.open.is_none()) {
            from -= 1;
        }
        for at in from..depth {
            let name = self.levels.get(at).map(|level| level.name.clone()).unwrap_or_default();
            let opened = match name.is_empty() {
                true => rustix::fs::openat(&self.base, c".", DIRECTORY, Mode::empty())?,
                false => rustix::fs::openat(self.opened(at), name.as_slice(), DIRECTORY, Mode::empty())?,
            };
            if let Some(level) = self.levels.get_mut(at) {
                level.open = Some(opened);
            }
        }
        Ok(self.opened(depth))
    }

    /// The directory at `depth`, which [`Self::directory`] has opened. The base stands above all.
    fn opened(&self, depth: usize) -> BorrowedFd<'_> {
        let level = depth.checked_sub(1).and_then(|at| self.levels.get(at));
        level.and_then(|level| level.open.as_ref()).unwrap_or(&self.base).as_fd()
    }

    fn here(&mut self) -> Result<OwnedFd, Errno> {
        let depth = self.levels.len();
        rustix::io::fcntl_dupfd_cloexec(self.directory(depth)?, 0)
    }

    fn failed(&self, action: &'static str, path: &[u8], error: Errno) -> ExportError {
        host(action, &self.place.join(OsStr::from_bytes(path)), error)
    }

    fn regular(&mut self, item: &Item<'_>, data: &mut Contents<'_>) -> Result<(), ExportError> {
        let here = self.here().map_err(|error| self.failed("enter the directory of", item.path, error))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(&here, item.name, flags, Mode::RUSR | Mode::WUSR);
        let file = File::from(made.map_err(|error| self.failed("make", item.path, error))?);
        let place = self.place.join(OsStr::from_bytes(item.path));
        let wrote = |error| ExportError::Host { action: "write", path: place.clone(), error };
        file.set_len(item.metadata.size).map_err(wrote)?;
        data.pieces(&item.runs, |at, piece| file.write_all_at(piece, at).map_err(wrote))?;
        self.dress_open(file.as_fd(), item.path, item.metadata, &item.xattrs)
    }

    /// Gives an open file or directory its attributes. The owner comes first, since setting it clears capabilities
    /// and set-user bits; the times last.
    fn dress_open(
        &mut self,
        file: BorrowedFd<'_>,
        path: &[u8],
        metadata: &Metadata,
        xattrs: &[Xattr],
    ) -> Result<(), ExportError> {
        let owned = match self.owner(metadata) {
            Some((uid, gid)) => rustix::fs::fchown(file, Some(uid), Some(gid)),
            None => Ok(()),
        };
        owned.map_err(|error| self.failed("set the owner of", path, error))?;
        for xattr in xattrs {
            let name = OsStr::from_bytes(&xattr.name);
            if rustix::fs::fsetxattr(file, name, &xattr.value, XattrFlags::empty()).is_err() {
                self.losses.note(Loss::Xattr, path);
            }
        }
        let mode = self.mode(path, metadata);
        let set = rustix::fs::fchmod(file, mode).and_then(|()| rustix::fs::futimens(file, &times(metadata)));
        set.map_err(|error| self.failed("set mode and times of", path, error))
    }

    /// Gives something that cannot be opened its attributes, by its name.
    fn dress_named(&mut self, here: &OwnedFd, item: &Item<'_>) -> Result<(), ExportError> {
        let named = AtFlags::SYMLINK_NOFOLLOW;
        if let Some((uid, gid)) = self.owner(item.metadata) {
            let owned = rustix::fs::chownat(here, item.name, Some(uid), Some(gid), named);
            owned.map_err(|error| self.failed("set the owner of", item.path, error))?;
        }
        // A path through the open directory: there is no call relative to one.
        let mut by_path = format!("/proc/self/fd/{}/", here.as_raw_fd()).into_bytes();
        by_path.extend_from_slice(item.name);
        for xattr in &item.xattrs {
            let (path, name) = (OsStr::from_bytes(&by_path), OsStr::from_bytes(&xattr.name));
            if rustix::fs::lsetxattr(path, name, &xattr.value, XattrFlags::empty()).is_err() {
                self.losses.note(Loss::Xattr, item.path);
            }
        }
        if item.metadata.file_type != FileType::Symlink {
            // What was just made under this name is no link, and others may not write here.
            let mode = self.mode(item.path, item.metadata);
            let set = rustix::fs::chmodat(here, item.name, mode, AtFlags::empty());
            set.map_err(|error| self.failed("set the mode of", item.path, error))?;
        }
        let timed = rustix::fs::utimensat(here, item.name, &times(item.metadata), named);
        timed.map_err(|error| self.failed("set the times of", item.path, error))
    }

    fn owner(&self, metadata: &Metadata) -> Option<(Uid, Gid)> {
        // The number of all ones means "leave it" to the system.
        let valid = |id: u32| id != u32::MAX;
        let settable = self.privileged && valid(metadata.uid) && valid(metadata.gid);
        settable.then(|| (Uid::from_raw(metadata.uid), Gid::from_raw(metadata.gid)))
    }

    /// The permission bits; those that lend the owner's rights only where the owner is the right one.
    fn mode(&mut self, path: &[u8], metadata: &Metadata) -> Mode {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let own = self.privileged || (uid, gid) == (metadata.uid, metadata.gid);
        if !own {
            self.losses.note(Loss::Owner, path);
        }
        let mask = if own { 0o7777 } else { 0o1777 };
        Mode::from_raw_mode(u32::from(metadata.permissions) & mask)
    }

    /// Makes a symbolic link, device, fifo or socket.
    fn make(&self, here: &OwnedFd, item: &Item<'_>) -> Result<(), Errno> {
        let kind = match item.metadata.file_type {
            FileType::Symlink => return rustix::fs::symlinkat(item.target.as_slice(), here, item.name),
            FileType::CharDevice => rustix::fs::FileType::CharacterDevice,
            FileType::BlockDevice => rustix::fs::FileType::BlockDevice,
            FileType::Socket => rustix::fs::FileType::Socket,
            FileType::Fifo | FileType::Regular | FileType::Directory => rustix::fs::FileType::Fifo,
        };
        let device = item.device();
        let number = rustix::fs::makedev(device.major, device.minor);
        rustix::fs::mknodat(here, item.name, kind, Mode::RUSR | Mode::WUSR, number)
    }
}

impl Sink for DirectorySink {
    fn enter(&mut self, item: &Item<'_>) -> Result<(), ExportError> {
        let is_base = self.levels.is_empty() && item.path.is_empty();
        if !is_base {
            let here =
                self.here().map_err(|error| self.failed("enter the directory of", item.path, error))?;
            let made = rustix::fs::mkdirat(&here, item.name, Mode::RWXU);
            made.map_err(|error| self.failed("make", item.path, error))?;
        }
        self.levels.push(Level {
            name: if is_base { Vec::new() } else { item.name.to_vec() },
            path: item.path.to_vec(),
            open: None,
            metadata: item.metadata.clone(),
            xattrs: item.xattrs.clone(),
        });
        if let Some(above) = self.levels.len().checked_sub(OPEN).and_then(|at| self.levels.get_mut(at)) {
            above.open = None;
        }
        Ok(())
    }

    fn leave(&mut self) -> Result<(), ExportError> {
        let here = self.here();
        let Some(level) = self.levels.pop() else { return Ok(()) };
        let here = here.map_err(|error| self.failed("enter", &level.path, error))?;
        self.dress_open(here.as_fd(), &level.path, &level.metadata, &level.xattrs)
    }

    fn file(&mut self, item: &Item<'_>, data: &mut Contents<'_>) -> Result<(), ExportError> {
        if item.metadata.file_type == FileType::Regular {
            return self.regular(item, data);
        }
        let here = self.here().map_err(|error| self.failed("enter the directory of", item.path, error))?;
        let is_device = matches!(item.metadata.file_type, FileType::CharDevice | FileType::BlockDevice);
        match self.make(&here, item) {
            Ok(()) => self.dress_named(&here, item),
            Err(Errno::PERM) if is_device => {
                self.losses.note(Loss::Device, item.path);
                Ok(())
            }
            Err(error) => Err(self.failed("make", item.path, error)),
        }
    }

    fn link(&mut self, item: &Item<'_>, first: &[u8]) -> Result<(), ExportError> {
        let failed = |sink: &Self, error| sink.failed("link", item.path, error);
        let here = self.here().map_err(|error| failed(self, error))?;
        let mut names: Vec<&[u8]> = first.split(|&b| b == b'/').collect();
        let last = names.pop().unwrap_or_default();
        let mut above =
            rustix::io::fcntl_dupfd_cloexec(&self.base, 0).map_err(|error| failed(self, error))?;
        for name in names {
            let opened = rustix::fs::openat(&above, name, DIRECTORY, Mode::empty());
            above = opened.map_err(|error| failed(self, error))?;
        }
        match rustix::fs::linkat(&above, last, &here, item.name, AtFlags::empty()) {
            Ok(()) => Ok(()),
            // The first name was a device that could not be made.
            Err(Errno::NOENT) if !self.privileged => {
                self.losses.note(Loss::Device, item.path);
                Ok(())
            }
            Err(error) => Err(failed(self, error)),
        }
    }

    fn lose(&mut self, loss: Loss, path: &[u8]) {
        self.losses.note(loss, path);
    }
}

fn host(action: &'static str, path: &Path, error: Errno) -> ExportError {
    ExportError::Host { action, path: path.to_owned(), error: error.into() }
}

fn times(metadata: &Metadata) -> Timestamps {
    let spec = |time: Timestamp| Timespec {
        tv_sec: time.seconds,
        tv_nsec: time.nanoseconds.min(999_999_999).into(),
    };
    Timestamps { last_access: spec(metadata.times.access), last_modification: spec(metadata.times.modify) }
}
