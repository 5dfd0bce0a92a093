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
use platfs_host::{Descent, Directory, Handle, Kind};
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
    privileged: bool,
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
        let privileged = rustix::process::geteuid().is_root();
        let losses = Losses::default();
        let way = Descent::new(base.try_clone()?);
        Ok(Self { base, way, place: place.to_owned(), levels: Vec::new(), privileged, losses })
    }

    /// What was lost.
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
        let made = self.here(item.path)?.create(OsStr::from_bytes(item.name), 0o600);
        let file = made.map_err(|error| self.failed("make", item.path, error))?;
        let place = self.place.join(OsStr::from_bytes(item.path));
        let wrote = |error| ExportError::Host { action: "write", path: place.clone(), error };
        file.set_len(item.metadata.size).map_err(wrote)?;
        data.pieces(&item.runs, |at, piece| file.write_all_at(piece, at).map_err(wrote))?;
        self.dress(&Handle::of(&file).map_err(wrote)?, item.path, (item.metadata, &item.xattrs))
    }

    /// Gives a file its attributes. The owner comes first, since setting it clears capabilities and set-user bits; the
    /// times last.
    fn dress(
        &mut self,
        handle: &Handle,
        path: &[u8],
        (metadata, xattrs): (&Metadata, &[Xattr]),
    ) -> Result<(), ExportError> {
        let owned = self.give_away(handle, metadata);
        let owned = owned.map_err(|error| self.failed("set the owner of", path, error))?;
        for xattr in xattrs {
            if handle.set_xattr(&xattr.name, &xattr.value).is_err() {
                self.losses.note(Loss::Xattr, path);
            }
        }
        if metadata.file_type != FileType::Symlink {
            let mode = self.mode(path, metadata, owned);
            handle.set_mode(mode).map_err(|error| self.failed("set the mode of", path, error))?;
        }
        handle.set_times(&times(metadata)).map_err(|error| self.failed("set the times of", path, error))
    }

    /// Gives a file its owner, where that can be done; says whether it has the right one.
    fn give_away(&self, handle: &Handle, metadata: &Metadata) -> io::Result<bool> {
        let Some((uid, gid)) = self.owner(metadata) else {
            let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
            return Ok(self.privileged || (uid, gid) == (metadata.uid, metadata.gid));
        };
        match handle.set_owner(uid, gid) {
            // In a user namespace there is no such user.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => Ok(false),
            done => done.map(|()| true),
        }
    }

    fn owner(&self, metadata: &Metadata) -> Option<(u32, u32)> {
        // The number of all ones means "leave it" to the system.
        let valid = |id: u32| id != u32::MAX;
        let settable = self.privileged && valid(metadata.uid) && valid(metadata.gid);
        settable.then_some((metadata.uid, metadata.gid))
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
        let handle = self.way.here().and_then(Handle::of);
        let handle = handle.map_err(|error| self.failed("enter", &level.path, error))?;
        // Above the base there is nothing to go to.
        self.way.leave();
        self.dress(&handle, &level.path, (&level.metadata, &level.xattrs))
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
                self.dress(&handle, item.path, (item.metadata, &item.xattrs))
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && is_device => {
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
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.privileged => {
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
