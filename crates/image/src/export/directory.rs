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
use platfs_host::{Descent, Directory, Facts, Handle, Kind};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Makes files of the host.
pub(super) struct DirectorySink {
    base: Directory,
    way: Descent,
    /// The name that the directory gets, for messages.
    place: PathBuf,
    levels: Vec<Level>,
    /// Devices could not be made.
    lacks_devices: bool,
    losses: Losses,
}

/// A directory entered and not left.
struct Level {
    path: Vec<u8>,
    metadata: Metadata,
    xattrs: Vec<Xattr>,
}

impl DirectorySink {
    /// Puts files into a new directory that becomes `place`. The exported directory itself becomes that one.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(super) fn new(base: Directory, place: &Path) -> io::Result<Self> {
        let (losses, lacks_devices) = (Losses::default(), false);
        let way = Descent::new(base.try_clone()?);
        Ok(Self { base, way, place: place.to_owned(), levels: Vec::new(), lacks_devices, losses })
    }

    /// Returns the losses so far.
    pub(super) fn losses(&self) -> &Losses {
        &self.losses
    }

    fn here(&mut self, path: &[u8]) -> Result<&Directory, ExportError> {
        let place = &self.place;
        self.way.here().map_err(|error| {
            let path = place.join(OsStr::from_bytes(path));
            ExportError::Host { action: "enter the directory of", path, error }
        })
    }

    fn failed(&self, action: &'static str, path: &[u8], error: io::Error) -> ExportError {
        ExportError::Host { action, path: self.place.join(OsStr::from_bytes(path)), error }
    }

    fn regular(&mut self, item: &Item<'_>, data: &mut Contents<'_>) -> Result<(), ExportError> {
        // Nobody else comes to it before the base has its own mode, so it has its own from the beginning. The owner may write
        // until the attributes are set, for which Linux looks at the mode; `dress` takes that away.
        let mode = u32::from(item.metadata.permissions) & 0o777 | 0o600;
        let made = self.here(item.path)?.create(OsStr::from_bytes(item.name), mode);
        let file = made.map_err(|error| self.failed("make", item.path, error))?;
        let wrote = |error| {
            let path = self.place.join(OsStr::from_bytes(item.path));
            ExportError::Host { action: "write", path, error }
        };
        let mut end = 0;
        data.pieces(&item.runs, |at, piece| {
            end = at + piece.len() as u64;
            file.write_all_at(piece, at).map_err(wrote)
        })?;
        // A hole at the end.
        if end < item.metadata.size {
            file.set_len(item.metadata.size).map_err(wrote)?;
        }
        self.dress(&Handle::from(file), item.path, item.metadata, &item.xattrs)
    }

    /// Gives a new file the attributes that it has not yet. The owner comes first, since setting it clears capabilities and
    /// set-user bits; the times last.
    fn dress(
        &mut self,
        handle: &Handle,
        path: &[u8],
        metadata: &Metadata,
        xattrs: &[Xattr],
    ) -> Result<(), ExportError> {
        let has = handle.facts().map_err(|error| self.failed("look at", path, error))?;
        let owned = self.give_away(handle, &has, metadata);
        let owned = owned.map_err(|error| self.failed("set the owner of", path, error))?;
        for xattr in xattrs {
            if handle.set_xattr(&xattr.name, &xattr.value).is_err() {
                self.losses.note(Loss::Xattr, path);
            }
        }
        if metadata.file_type != FileType::Symlink {
            let mode = self.mode(path, metadata, owned);
            // An access control list changes the mode.
            if mode != has.mode || !xattrs.is_empty() {
                handle.set_mode(mode).map_err(|error| self.failed("set the mode of", path, error))?;
            }
        }
        handle.set_times(&times(metadata)).map_err(|error| self.failed("set the times of", path, error))
    }

    /// Gives a file its owner, where that can be done; says whether it has the right one.
    fn give_away(&self, handle: &Handle, has: &Facts, metadata: &Metadata) -> io::Result<bool> {
        let (uid, gid) = (metadata.uid, metadata.gid);
        // The number of all ones means "leave it" to the system.
        if (has.uid, has.gid) == (uid, gid) || uid == u32::MAX || gid == u32::MAX {
            return Ok((has.uid, has.gid) == (uid, gid));
        }
        // Others give no files away, and in a user namespace there is no such user.
        let refused = [Errno::PERM, Errno::INVAL].map(Errno::raw_os_error);
        match handle.set_owner(uid, gid) {
            Err(error) if error.raw_os_error().is_some_and(|error| refused.contains(&error)) => Ok(false),
            done => done.map(|()| true),
        }
    }

    /// The permission bits; those that lend the owner's rights only where the owner is the right one.
    fn mode(&mut self, path: &[u8], metadata: &Metadata, own: bool) -> u32 {
        if !own {
            self.losses.note(Loss::Owner, path);
        }
        let mask = if own { 0o7777 } else { 0o1777 };
        u32::from(metadata.permissions) & mask
    }

    /// The open directory of a path that counts from the base, and the last name.
    fn above<'p>(&self, path: &'p [u8]) -> io::Result<(Directory, &'p OsStr)> {
        let (above, last) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (path.get(..at).unwrap_or_default(), path.get(at + 1..).unwrap_or_default()),
            None => (&[][..], path),
        };
        Ok((self.base.descend(OsStr::from_bytes(above))?, OsStr::from_bytes(last)))
    }
}

impl Sink for DirectorySink {
    fn enter(&mut self, item: &Item<'_>) -> Result<(), ExportError> {
        let is_base = self.levels.is_empty() && item.path.is_empty();
        if !is_base {
            let made = self.way.make(OsStr::from_bytes(item.name));
            made.map_err(|error| self.failed("make", item.path, error))?;
        }
        self.levels.push(Level {
            path: item.path.to_vec(),
            metadata: item.metadata.clone(),
            xattrs: item.xattrs.clone(),
        });
        Ok(())
    }

    fn leave(&mut self) -> Result<(), ExportError> {
        let Some(level) = self.levels.pop() else { return Ok(()) };
        let opened = self.way.here().map(drop);
        // Above the base there is nothing to go to.
        let opened = opened.and_then(|()| self.way.leave().map_or_else(|| self.base.try_clone(), Ok));
        let handle = Handle::from(opened.map_err(|error| self.failed("enter", &level.path, error))?);
        self.dress(&handle, &level.path, &level.metadata, &level.xattrs)
    }

    fn file(&mut self, item: &Item<'_>, data: &mut Contents<'_>) -> Result<(), ExportError> {
        if item.metadata.file_type == FileType::Regular {
            return self.regular(item, data);
        }
        let is_device = matches!(item.metadata.file_type, FileType::CharDevice | FileType::BlockDevice);
        let here = self.here(item.path)?;
        match make(here, item) {
            Ok(()) => {
                let handle = here.handle(OsStr::from_bytes(item.name));
                let handle = handle.map_err(|error| self.failed("open", item.path, error))?;
                self.dress(&handle, item.path, item.metadata, &item.xattrs)
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && is_device => {
                self.lacks_devices = true;
                self.losses.note(Loss::Device, item.path);
                Ok(())
            }
            Err(error) => Err(self.failed("make", item.path, error)),
        }
    }

    fn link(&mut self, item: &Item<'_>, first: &[u8]) -> Result<(), ExportError> {
        let linked = self
            .above(first)
            .and_then(|(above, last)| above.link(last, self.way.here()?, OsStr::from_bytes(item.name)));
        match linked {
            // The first name was a device that could not be made.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.lacks_devices => {
                self.losses.note(Loss::Device, item.path);
                Ok(())
            }
            linked => linked.map_err(|error| self.failed("link", item.path, error)),
        }
    }

    fn lose(&mut self, loss: Loss, path: &[u8]) {
        self.losses.note(loss, path);
    }
}

/// Makes a symbolic link, device, fifo or socket.
fn make(here: &Directory, item: &Item<'_>) -> io::Result<()> {
    let name = OsStr::from_bytes(item.name);
    let kind = match item.metadata.file_type {
        FileType::Symlink => return here.symlink(&item.target, name),
        FileType::CharDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::Socket => Kind::Socket,
        FileType::Fifo | FileType::Regular | FileType::Directory => Kind::Fifo,
    };
    let device = item.device();
    here.make_node(name, kind, (device.major, device.minor))
}

fn times(metadata: &Metadata) -> platfs_host::Times {
    let spec = |time: Timestamp| (time.seconds, time.nanoseconds);
    platfs_host::Times { accessed: spec(metadata.times.access), modified: spec(metadata.times.modify) }
}
