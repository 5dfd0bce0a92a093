//! The door to every image that the command, its servers and `platfs-open` write: none of them opens what exists for writing,
//! or lets a file take the place of another, by any other way (I37).
//!
//! | module | owns |
//! | --- | --- |
//! | `ground` | which bytes a name means, down to the file below partitions and loop devices |
//! | `mounts` | the kernel's table of mounts |
//! | `users` | what the kernel does with those bytes, and how that is said |
//! | `claim` | the locks |
//! | [`meant`] | whether outputs and sources are the same file |
//! | [`output`] | new files that take the place of others |
//!
//! [`Alone`] is for changing an image in place, [`share`] for reading one that must not change meanwhile,
//! [`replace`] for a file that takes the name of another, [`writer_of`] warns readers of a writer.
//! Files are known by device and inode, never by the text of a path. What can't be seen from here is not
//! excluded: a file behind a loop device that was opened by a name that is gone; other machines, but for volumes
//! with multiple mount protection, whose mark is taken ([`marks`]).

mod claim;
mod ground;
pub mod meant;
pub mod mounts;
pub mod output;
mod users;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use platfs::device::mmp::Purpose as For;
use platfs::device::{self, Device, FileDevice, Window};
use platfs_host::OutputLocation;
use platfs_host::path;
use platfs_image::text::Shown;

use crate::image::{self, ImageError, ImageSpec, Part, User, open_file};
use crate::kept::Kept;
use crate::marks;
use crate::stores;
use claim::Kind;
use ground::Ground;
pub use mounts::{Mount, mounted_on, of_ours};
pub use output::build_file;
use users::Purpose;

/// A file or block device that is open, and which bytes of it are meant.
struct Found {
    file: File,
    path: PathBuf,
    is_block: bool,
    /// The size is not that of the file: it may grow.
    growable: bool,
    start: u64,
    room: u64,
    ground: Ground,
}

impl Found {
    fn new(name: &OsStr, write: bool) -> Result<Self, ImageError> {
        let spec = image::parse(name);
        let file = open_file(&spec, write)?;
        let facts = file.metadata()?;
        let is_block = facts.file_type().is_block_device();
        let whole = FileDevice::new(file.try_clone()?)?;
        let (start, room) = if write { spec.place(&whole) } else { spec.readable(&whole) }?;
        // The kernel's own name for a partition is what others use.
        let node = if is_block && spec.part != Part::Whole {
            ground::partition_at(facts.rdev(), start, room)
        } else {
            None
        };
        if let Some(path) = node {
            let file = open_file(&ImageSpec { path: path.clone(), part: Part::Whole }, write)?;
            let ground = Ground::of(&path, 0, u64::MAX)?;
            return Ok(Found { file, path, is_block, growable: false, start: 0, room, ground });
        }
        let end = match spec.part {
            Part::Whole | Part::From(_) => u64::MAX,
            Part::Partition(_) | Part::Named(_) => start.saturating_add(room),
        };
        let ground = Ground::of(&spec.path, start, end)?;
        let growable = !is_block && spec.part == Part::Whole;
        Ok(Found { file, path: spec.path, is_block, growable, start, room, ground })
    }
}

/// An image that is open for writing and not in use otherwise. Only the door makes one.
pub struct Alone {
    found: Found,
    held: Vec<File>,
}

impl Alone {
    /// Opens an existing image, or a part of one, to be written in place.
    ///
    /// # Errors
    /// See [`ImageError`]; [`ImageError::InUse`] names who has it.
    pub fn open(name: &OsStr) -> Result<Self, ImageError> {
        let found = Found::new(name, true)?;
        let mut held = claim::lock(&found.file, &found.ground, Kind::Alone)?;
        if let Some(user) = users::find(&found.ground, Purpose::Write) {
            return Err(ImageError::InUse(user));
        }
        if found.is_block && claim::is_write_protected(&found.file) {
            let why = "the device is write-protected; `blockdev --setrw` lifts that where it can be lifted";
            return Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, why).into());
        }
        if found.is_block {
            held.extend(claim::exclusively(&found.path, &found.ground)?);
        }
        Ok(Alone { found, held })
    }

    /// The open file or block device.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.found.file
    }

    /// The named image or part as it is now, as a device that does not outlive this value's locks by itself.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn view(&self) -> io::Result<Arc<dyn Device>> {
        let whole: Arc<dyn Device> = Arc::new(FileDevice::new(self.found.file.try_clone()?)?);
        if self.found.start == 0 && self.found.room == whole.size() {
            return Ok(whole);
        }
        Ok(Arc::new(Window::new(whole, self.found.start, self.found.room)?))
    }

    /// Tells if it is a block device.
    #[must_use]
    pub fn is_block_device(&self) -> bool {
        self.found.is_block
    }

    /// Tells if its end may be moved: all of a regular file is meant.
    #[must_use]
    pub fn is_growable(&self) -> bool {
        self.found.growable
    }

    /// The first byte that is meant.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.found.start
    }

    /// The bytes that there are from there on.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.found.room
    }

    /// The named image or part, as a device. Other programs are kept off while it lives.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn into_device(self) -> io::Result<Arc<dyn Device>> {
        let room = self.room();
        self.into_window(0, room)
    }

    /// `size` bytes from the byte `offset` on of what is meant; a file that is shorter grows.
    ///
    /// # Errors
    /// Whatever the system says; a range that is not there and can't be made.
    pub fn into_window(self, offset: u64, size: u64) -> io::Result<Arc<dyn Device>> {
        let Alone { found: Found { file, growable, start, .. }, held } = self;
        let start = start.checked_add(offset).ok_or(io::ErrorKind::InvalidInput)?;
        let end = start.checked_add(size).ok_or(io::ErrorKind::InvalidInput)?;
        if growable && file.metadata()?.len() < end {
            file.set_len(end)?;
        }
        let whole: Arc<dyn Device> = Arc::new(FileDevice::new(file)?);
        let inner = if start == 0 && size == whole.size() {
            whole
        } else {
            Arc::new(Window::new(whole, start, size)?)
        };
        Ok(Arc::new(Kept::new(inner, held)))
    }

    /// As [`Alone::into_device`], with the mark of a volume that has multiple mount protection.
    fn into_marked(self, name: &OsStr, purpose: For) -> Result<Arc<dyn Device>, ImageError> {
        let inner = take_mark(self.view()?, name, purpose)?;
        Ok(Arc::new(Kept::new(inner, self.into_locks())))
    }

    /// The locks that keep others off, without the image itself.
    #[must_use]
    pub fn into_locks(self) -> Vec<File> {
        let Alone { found, mut held } = self;
        held.push(found.file);
        held
    }
}

/// Keeps other hosts off the volume on a device, if it has multiple mount protection.
///
/// # Errors
/// Another host has it: [`ImageError::InUse`]. The device's failure.
pub fn take_mark(inner: Arc<dyn Device>, name: &OsStr, purpose: For) -> Result<Arc<dyn Device>, ImageError> {
    let label = Path::new(name).file_name().unwrap_or(name).as_bytes();
    marks::take(inner, purpose, (image::shown(name).to_string(), label)).map_err(|error| match error {
        device::Error::InUse(why) => ImageError::InUse(User::Host(why)),
        error => ImageError::Io(io::Error::other(error)),
    })
}

/// Opens an existing image, or a part of one, to be written in place; others are kept off as long as the
/// device lives. One with a change that was cut off is no volume, and refused.
///
/// # Errors
/// See [`ImageError`].
pub fn open_write(name: &OsStr) -> Result<Arc<dyn Device>, ImageError> {
    refuse_unfinished(name)?;
    open_unfinished(name)
}

/// As [`open_write`], for a check: a volume with multiple mount protection bears the mark of one meanwhile.
///
/// # Errors
/// See [`ImageError`].
pub fn open_check(name: &OsStr) -> Result<Arc<dyn Device>, ImageError> {
    refuse_unfinished(name)?;
    open_for(name, Some(For::Check))
}

/// As [`open_write`], for who passes bytes on to others, which see to the volume themselves.
///
/// # Errors
/// See [`ImageError`].
pub fn open_bytes(name: &OsStr) -> Result<Arc<dyn Device>, ImageError> {
    refuse_unfinished(name)?;
    open_for(name, None)
}

/// The files and block devices that are opened for an image: what it stands on, other nodes of the same bytes, and for who
/// writes it the loop devices that stand on it.
#[must_use]
pub fn around(name: &OsStr, write: bool) -> Vec<PathBuf> {
    let spec = image::parse(name);
    let Ok(wanted) = Ground::of(&spec.path, 0, u64::MAX) else { return vec![spec.path] };
    let parts = |block| ground::partitions(block).into_iter().map(|(_, _, path)| path);
    let below = wanted.layers().iter().map(|layer| layer.path.clone());
    let mut all: Vec<PathBuf> = below.chain(wanted.block().into_iter().flat_map(parts)).collect();
    if write {
        let meets = |block| Ground::of_block(block).is_some_and(|ground| ground.meets(&wanted));
        for (block, path) in ground::loops().into_iter().filter(|(block, _)| meets(*block)) {
            all.extend(std::iter::once(path).chain(parts(block)));
        }
    }
    all
}

fn refuse_unfinished(name: &OsStr) -> Result<(), ImageError> {
    let way = way_back(name);
    if path::is_there(&way) {
        return Err(ImageError::Unfinished(Shown(way.as_os_str().as_bytes()).to_string()));
    }
    Ok(())
}

/// As [`open_write`], also where a change was cut off: for what takes it back, or writes over everything.
///
/// # Errors
/// See [`ImageError`].
pub fn open_unfinished(name: &OsStr) -> Result<Arc<dyn Device>, ImageError> {
    open_for(name, Some(For::Write))
}

/// As [`open_unfinished`], also of a volume that bears the mark of another host which is gone: the mark is cleared. With
/// `force` nobody waits to see whether it is.
///
/// # Errors
/// See [`ImageError`].
pub fn open_deserted(name: &OsStr, force: bool) -> Result<Arc<dyn Device>, ImageError> {
    open_for(name, Some(For::Clear { force }))
}

fn open_for(name: &OsStr, purpose: Option<For>) -> Result<Arc<dyn Device>, ImageError> {
    if stores::is_meant(name) {
        return Ok(stores::open_write(name)?);
    }
    let alone = Alone::open(name)?;
    match purpose {
        Some(purpose) => alone.into_marked(name, purpose),
        None => Ok(alone.into_device()?),
    }
}

/// Where the way back of a change of an image is kept while it is under way: a hidden file beside it, and for a block
/// device in the working directory.
#[must_use]
pub fn way_back(name: &OsStr) -> PathBuf {
    let spec = image::parse(name);
    let full = Path::new(name);
    let mut hidden = OsString::from(".");
    hidden.push(full.file_name().unwrap_or(name));
    hidden.push(".plat-undo");
    let is_file = path::is_file(&spec.path);
    let directory = match spec.part {
        _ if !is_file => None,
        Part::Whole => full.parent(),
        _ => spec.path.parent(),
    };
    directory.map_or_else(|| PathBuf::from(&hidden), |directory| directory.join(&hidden))
}

/// Keeps an image from being written through the door. It ends with this value, or with the process.
#[derive(Debug)]
pub struct Shared {
    _held: Vec<File>,
}

/// Keeps writers off an image; others may read it, too.
///
/// # Errors
/// See [`ImageError`]; if another program writes, it is [`ImageError::InUse`].
pub fn share(name: &OsStr) -> Result<Shared, ImageError> {
    if stores::is_meant(name) {
        // What is read there is what it was at one moment, also while a program writes.
        return Ok(Shared { _held: Vec::new() });
    }
    let found = Found::new(name, false)?;
    let mut held = claim::lock(&found.file, &found.ground, Kind::Shared)?;
    if let Some(user) = users::find(&found.ground, Purpose::Read) {
        return Err(ImageError::InUse(user));
    }
    held.push(found.file);
    Ok(Shared { _held: held })
}

/// The user that may be changing an image that is only read, if there is one.
#[must_use]
pub fn writer_of(name: &OsStr) -> Option<User> {
    let found = Found::new(name, false).ok()?;
    claim::writer(&found.file, &found.ground).or_else(|| users::find(&found.ground, Purpose::Read))
}

/// True if the file system with this number is a mount of the image, by the kernel or by a server.
#[must_use]
pub fn holds(name: &OsStr, file_system: u64) -> bool {
    Found::new(name, false).is_ok_and(|found| users::is_mounted_as(&found.ground, file_system))
}

/// Tells if the lock that a mount holds is free.
///
/// # Errors
/// The image can't be opened.
pub fn is_free(image: &Path) -> Result<bool, ImageError> {
    if stores::is_meant(image.as_os_str()) {
        return Ok(stores::is_free(image.as_os_str())?);
    }
    let found = Found::new(image.as_os_str(), false)?;
    Ok(claim::holder(&found.file, &found.ground, Kind::Alone).is_none())
}

/// The right to let a new file take the name of another, which is not in use as an image.
#[derive(Debug)]
pub struct Replacing {
    _held: Vec<File>,
}

/// Asks for it. A name that is not taken is free.
///
/// # Errors
/// The user of the file that has the name.
pub fn replace(target: &Path) -> io::Result<Replacing> {
    let Ok(place) = OutputLocation::of(target) else { return Ok(Replacing { _held: Vec::new() }) };
    if !place.directory.look(&place.name).is_ok_and(|facts| facts.kind == platfs_host::Kind::File) {
        return Ok(Replacing { _held: Vec::new() });
    }
    let in_use = |user: User| io::Error::other(ImageError::InUse(user));
    let ground = Ground::of(target, 0, u64::MAX)?;
    let mut held = Vec::new();
    if let Ok((file, _)) = place.directory.open_to_write(&place.name) {
        held = claim::lock(&file, &ground, Kind::Alone).map_err(io::Error::other)?;
        held.push(file);
    } else if let Ok((file, _)) = place.directory.open_file(&place.name)
        && let Some(user) = claim::holder(&file, &ground, Kind::Alone)
    {
        return Err(in_use(user));
    }
    users::find(&ground, Purpose::Replace).map_or(Ok(Replacing { _held: held }), |user| Err(in_use(user)))
}

#[cfg(test)]
mod tests;
