//! Images and files. Python's half decides what paths and modes mean; here are the calls.

use std::sync::{Arc, Mutex, PoisonError};

use platfs::mkfs::{FsType, Options};
use platfs::{Attributes, Kind, NewInode, OpenOptions, State, Times, Timestamp};
use platfs_image::clock;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::facts::{self, letter};
use crate::failure;
use crate::figures::{self, Count, Free, Totals, Worst};
use crate::file::File;
use crate::ground::{Named, Purpose};

/// `ext2`, `ext3` or `ext4`.
pub(crate) fn type_of(name: &str) -> PyResult<FsType> {
    match name {
        "ext2" => Ok(FsType::Ext2),
        "ext3" => Ok(FsType::Ext3),
        "ext4" => Ok(FsType::Ext4),
        _ => Err(failure::value(format!("{name}: no type of a volume; ext2, ext3 or ext4"))),
    }
}

/// Process that something belongs to; nothing where each process may use it that was forked off.
pub(crate) type Owner = Option<u32>;

/// Something that can be closed once, by any thread of its process.
///
/// A process that was forked off has a copy of what its parent has in memory: two writers that know nothing of each other,
/// on one image. In it calls fail, and what is dropped writes nothing.
pub(crate) struct Closable<T> {
    held: Mutex<Option<T>>,
    owner: Owner,
}

impl<T> Closable<T> {
    pub(crate) fn new(value: T, owner: Owner) -> Self {
        Closable { held: Mutex::new(Some(value)), owner }
    }

    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    /// Process that it belongs to, if that is another one.
    fn elsewhere(&self) -> Owner {
        self.owner.filter(|owner| *owner != std::process::id())
    }

    /// Takes it out, to be closed; nothing in a process that it does not belong to.
    pub(crate) fn take(&self) -> Option<T> {
        // The lock may have been held by another thread in the moment of the fork.
        if self.elsewhere().is_some() {
            if let Ok(mut held) = self.held.try_lock() {
                std::mem::forget(held.take());
            }
            return None;
        }
        self.held.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Puts back what was taken out, and is not closed after all.
    pub(crate) fn put(&self, value: T) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
    }

    /// Held for a moment only: never while something else is waited for.
    pub(crate) fn with<R>(&self, look: impl FnOnce(&T) -> R) -> PyResult<R> {
        if let Some(owner) = self.elsewhere() {
            return Err(failure::inherited(owner));
        }
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().map(look).ok_or_else(failure::closed)
    }
}

impl<T> Drop for Closable<T> {
    fn drop(&mut self) {
        // In a process that it does not belong to nothing may be dropped.
        drop(self.take());
    }
}

/// An open image.
#[pyclass(frozen, module = "platfs._native")]
pub(crate) struct Image {
    image: Closable<platfs::Image>,
    writes: bool,
}

impl Drop for Image {
    fn drop(&mut self) {
        if let Some(image) = self.image.take() {
            // The last handle closes the volume, which may write to a Python object.
            Python::attach(|py| py.detach(|| drop(image)));
        }
    }
}

impl Image {
    fn of(image: platfs::Image, writes: bool, shared: bool) -> Self {
        let owner = (!shared).then(std::process::id);
        Image { image: Closable::new(image, owner), writes }
    }

    /// A call about a path, without Python's lock. What it changes gets the time of the image's opening.
    fn look<T: Send>(
        &self,
        py: Python<'_>,
        path: &[u8],
        call: impl FnOnce(&platfs::Image) -> platfs::Result<T> + Send,
    ) -> PyResult<T> {
        let image = self.image.with(Clone::clone)?;
        // Dropped there, too: the last handle closes the volume.
        failure::run(py, move || call(&image))?.map_err(failure::at(path))
    }

    /// Calls the library with a time for what is changed.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        path: &[u8],
        call: impl FnOnce(&platfs::Image) -> platfs::Result<T> + Send,
    ) -> PyResult<T> {
        if !self.writes {
            return self.look(py, path, call);
        }
        self.look(py, path, |image| call(&image.at_time(clock::now())?))
    }
}

/// A stretch of a file's map: block of the file, blocks, block of the volume or nothing, written.
type Piece = (u64, u64, Option<u64>, bool);
/// Pieces and path of a file.
type Fragmented<'py> = (u64, Bound<'py, PyBytes>);

/// A name in a directory: its bytes, inode, letter of the type, and facts if they are wanted and can be had.
type Listed = (Vec<u8>, u64, &'static str, Option<platfs::Metadata>);

fn listed(image: &platfs::Image, path: &[u8], facts: bool) -> platfs::Result<Vec<Listed>> {
    let mut found = Vec::new();
    for entry in image.read_dir(path)? {
        let entry = entry?;
        let known = if facts { entry.metadata().ok() } else { None };
        let letter = match &known {
            Some(known) => letter(known.file_type),
            None => letter(entry.file_type()?),
        };
        found.push((entry.name().to_vec(), u64::from(entry.inode().get()), letter, known));
    }
    Ok(found)
}

fn block_size(image: &platfs::Image) -> u32 {
    image.volume().format().geometry.block_size.bytes()
}

/// Metadata of the file that a path leads to, or of the symbolic link itself.
fn metadata(image: &platfs::Image, path: &[u8], follow: bool) -> platfs::Result<platfs::Metadata> {
    if follow { image.metadata(path) } else { image.symlink_metadata(path) }
}

#[pymethods]
impl Image {
    #[staticmethod]
    fn open(py: Python<'_>, named: Named, write: bool, force: bool) -> PyResult<Self> {
        let options = OpenOptions::new().write(write).force(force).now(clock::now());
        let (shown, shared) = (named.shown(), named.is_path() && !write);
        let device = named.open(py, if write { Purpose::Write } else { Purpose::Read })?;
        let image = failure::run(py, || {
            let image = platfs::Image::on(Arc::clone(&device), &options);
            image.map_err(|error| failure::unopened(&*device, &error, shown))
        })?;
        Ok(Image::of(image?, write, shared))
    }

    /// Makes a file or a volume of a store, with an empty volume in it.
    #[staticmethod]
    fn format(py: Python<'_>, named: Named, size: u64, r#type: &str, label: &[u8]) -> PyResult<Self> {
        let mut format = Options::new(type_of(r#type)?);
        format.label = label.to_vec();
        format.time = u64::try_from(clock::now().seconds).unwrap_or(0);
        let options = OpenOptions::new().now(clock::now());
        let shown = named.shown();
        let device = named.make(py, size)?;
        let made = failure::run(py, || platfs::Image::format(device, &format, &options))?;
        Ok(Image::of(made.map_err(|error| failure::opening(shown)(&error))?, true, false))
    }

    #[getter]
    fn writable(&self) -> bool {
        self.writes
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let (Some(image), writes) = (self.image.take(), self.writes) else { return Ok(()) };
        let closed = failure::run(py, move || {
            if writes {
                image.sync()?;
            }
            match image.close() {
                // Files that are open keep the volume: the last of them closes it.
                Err(platfs::Error::Invalid(_)) => Ok(()),
                closed => closed,
            }
        });
        closed?.map_err(failure::of)
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let image = self.image.with(Clone::clone)?;
        failure::run(py, move || image.sync())?.map_err(failure::of)
    }

    /// An `os.stat_result`.
    fn stat<'py>(&self, py: Python<'py>, path: &[u8], follow: bool) -> PyResult<Bound<'py, PyAny>> {
        let (found, block) =
            self.look(py, path, |image| Ok((metadata(image, path, follow)?, block_size(image))))?;
        facts::result(py, &found, block)
    }

    /// Nanoseconds since 1970, if the volume knows when the file was made.
    fn created(&self, py: Python<'_>, path: &[u8], follow: bool) -> PyResult<Option<i128>> {
        let found = self.look(py, path, |image| metadata(image, path, follow))?;
        Ok(found.times.create.map(facts::nanoseconds))
    }

    /// Names with their inodes, letters of types, and facts if they are wanted.
    fn names<'py>(&self, py: Python<'py>, path: &[u8], facts: bool) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let (entries, block) =
            self.look(py, path, |image| Ok((listed(image, path, facts)?, block_size(image))))?;
        let tuple = |(name, inode, letter, known): Listed| {
            let known = known.map(|known| facts::result(py, &known, block)).transpose()?;
            (PyBytes::new(py, &name), inode, letter, known).into_pyobject(py)
        };
        entries.into_iter().map(tuple).collect()
    }

    fn read_link<'py>(&self, py: Python<'py>, path: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let target = self.look(py, path, |image| image.read_link(path))?;
        Ok(PyBytes::new(py, &target))
    }

    /// Opens a file: `create` makes a missing one, `exclusive` makes it, `truncate` empties it.
    fn file(
        &self,
        py: Python<'_>,
        path: &[u8],
        create: bool,
        exclusive: bool,
        truncate: bool,
    ) -> PyResult<File> {
        let file = self.call(py, path, |image| {
            if exclusive || create && !image.exists(path)? {
                return image.create_new(path);
            }
            let file = image.file(path)?;
            if truncate {
                file.set_len(0)?;
            }
            Ok(file)
        })?;
        Ok(File::of(file, path, self.image.owner()))
    }

    fn mkdir(&self, py: Python<'_>, path: &[u8], mode: u16) -> PyResult<()> {
        self.call(py, path, |image| {
            image.create_dir(path)?;
            image.set_permissions(path, mode & 0o7777)
        })
    }

    fn make_dirs(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.call(py, path, |image| image.create_dir_all(path))
    }

    fn unlink(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.call(py, path, |image| image.remove_file(path))
    }

    fn rmdir(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.call(py, path, |image| image.remove_dir(path))
    }

    fn remove_all(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.call(py, path, |image| image.remove_dir_all(path))
    }

    fn rename(&self, py: Python<'_>, source: &[u8], to: &[u8]) -> PyResult<()> {
        self.call(py, source, |image| image.rename(source, to))
    }

    fn link(&self, py: Python<'_>, original: &[u8], path: &[u8]) -> PyResult<()> {
        self.call(py, path, |image| image.hard_link(original, path))
    }

    /// Makes a file of any type but a directory or a link; `device` is major and minor number.
    fn mknod(&self, py: Python<'_>, path: &[u8], mode: u32, device: (u32, u32)) -> PyResult<()> {
        let kind = match mode & 0o170_000 {
            0 | 0o100_000 => Kind::File,
            0o020_000 => Kind::CharDevice(device.0, device.1),
            0o060_000 => Kind::BlockDevice(device.0, device.1),
            0o010_000 => Kind::Fifo,
            0o140_000 => Kind::Socket,
            _ => return Err(failure::value("mode: a regular file, a device, a pipe or a socket")),
        };
        let permissions = u16::try_from(mode & 0o7777).unwrap_or_default();
        let attributes = Attributes { permissions, times: Times::all(clock::now()), ..Attributes::default() };
        self.call(py, path, |image| image.make(path, &NewInode { kind, attributes, xattrs: &[] }).map(drop))
    }

    fn symlink(&self, py: Python<'_>, target: &[u8], path: &[u8]) -> PyResult<()> {
        self.call(py, path, |image| image.symlink(target, path))
    }

    fn chmod(&self, py: Python<'_>, path: &[u8], mode: u16) -> PyResult<()> {
        self.call(py, path, |image| image.set_permissions(path, mode & 0o7777))
    }

    fn chown(&self, py: Python<'_>, path: &[u8], uid: u32, gid: u32) -> PyResult<()> {
        self.call(py, path, |image| image.set_owner(path, uid, gid))
    }

    /// Times in nanoseconds since 1970.
    fn utime(&self, py: Python<'_>, path: &[u8], access: i128, modify: i128) -> PyResult<()> {
        let (access, modify) = (moment(access)?, moment(modify)?);
        self.call(py, path, |image| image.set_times(path, access, modify))
    }

    fn xattrs<'py>(&self, py: Python<'py>, path: &[u8]) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let names = self.look(py, path, |image| image.xattr_names(path))?;
        Ok(names.iter().map(|name| PyBytes::new(py, name)).collect())
    }

    fn xattr<'py>(&self, py: Python<'py>, path: &[u8], name: &[u8]) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let value = self.look(py, path, |image| image.xattr(path, name))?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }

    fn set_xattr(&self, py: Python<'_>, path: &[u8], name: &[u8], value: &[u8]) -> PyResult<()> {
        self.call(py, path, |image| image.set_xattr(path, name, value))
    }

    fn remove_xattr(&self, py: Python<'_>, path: &[u8], name: &[u8]) -> PyResult<()> {
        self.call(py, path, |image| image.remove_xattr(path, name))
    }

    /// The map of a file.
    fn extents(&self, py: Python<'_>, path: &[u8]) -> PyResult<Vec<Piece>> {
        self.look(py, path, |image| {
            let map = image.volume().map(image.inode_of(path)?)?;
            map.map(|segment| {
                let segment = segment?;
                let (block, written) = match segment.state {
                    State::Hole => (None, false),
                    State::Mapped(block) => (Some(block.0), true),
                    State::Unwritten(block) => (Some(block.0), false),
                };
                Ok((u64::from(segment.logical.0), segment.count, block, written))
            })
            .collect()
        })
    }

    /// The pieces of a file and its blocks.
    fn pieces(&self, py: Python<'_>, path: &[u8]) -> PyResult<(u64, u64)> {
        let found = self.look(py, path, |image| figures::pieces(image.volume(), image.inode_of(path)?))?;
        Ok((found.pieces(), found.blocks()))
    }

    /// Counts the files below a path, and lists the most fragmented.
    fn frag<'py>(
        &self,
        py: Python<'py>,
        path: &[u8],
        worst: usize,
    ) -> PyResult<(Totals, Vec<Fragmented<'py>>)> {
        let (totals, worst): (Totals, Worst) = self.look(py, path, |image| {
            let above = path.strip_suffix(b"/").unwrap_or(path);
            Count::below(image.volume(), image.inode_of(path)?, above, worst)
        })?;
        Ok((totals, worst.into_iter().map(|(pieces, path)| (pieces, PyBytes::new(py, &path))).collect()))
    }

    /// How free space is cut up.
    fn freefrag(&self, py: Python<'_>) -> PyResult<Free> {
        self.look(py, b"/", |image| figures::free(image.volume()))
    }
}

/// A time from nanoseconds.
fn moment(nanoseconds: i128) -> PyResult<Timestamp> {
    let seconds = i64::try_from(nanoseconds.div_euclid(1_000_000_000));
    let rest = u32::try_from(nanoseconds.rem_euclid(1_000_000_000));
    match (seconds, rest) {
        (Ok(seconds), Ok(nanoseconds)) => Ok(Timestamp { seconds, nanoseconds }),
        _ => Err(failure::value("a time out of range")),
    }
}
