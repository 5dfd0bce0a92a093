//! Images and files. Python's half decides what paths and modes mean; here are the calls.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use platfs::mkfs::{FsType, Options};
use platfs::{FileType, OpenOptions, State, Timestamp};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::failure;
use crate::host::HostFile;

/// The time.
pub(crate) fn clock() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanoseconds: since.subsec_nanos(),
    }
}

/// `ext2`, `ext3` or `ext4`.
pub(crate) fn type_of(name: &str) -> PyResult<FsType> {
    match name {
        "ext2" => Ok(FsType::Ext2),
        "ext3" => Ok(FsType::Ext3),
        "ext4" => Ok(FsType::Ext4),
        _ => Err(failure::value(format!("{name}: no type of a volume; ext2, ext3 or ext4"))),
    }
}

/// Something that can be closed once, by any thread.
struct Closable<T>(Mutex<Option<T>>);

impl<T> Closable<T> {
    fn new(value: T) -> Self {
        Closable(Mutex::new(Some(value)))
    }

    fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Held for a moment only: never while something else is waited for.
    fn with<R>(&self, look: impl FnOnce(&T) -> R) -> PyResult<R> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().map(look).ok_or_else(failure::closed)
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

/// What os.stat_result is made of, in its order.
type Facts = (u32, u64, u64, u32, u32, u32, u64, Times, (u64, u64, u64));
/// Seconds and nanoseconds of access, change of contents, change of the inode.
type Times = ((i64, u32), (i64, u32), (i64, u32));

fn facts(of: &platfs::Metadata) -> Facts {
    let time = |at: Timestamp| (at.seconds, at.nanoseconds);
    let times = (time(of.times.access), time(of.times.modify), time(of.times.change));
    let device = of.device.map_or((0, 0), |(major, minor)| (u64::from(major), u64::from(minor)));
    let inode = u64::from(of.inode.get());
    let (mode, links) = (u32::from(of.mode()), u32::from(of.links));
    (mode, inode, 0, links, of.uid, of.gid, of.size, times, (of.sectors, device.0, device.1))
}

/// The letter of a type.
fn letter(of: FileType) -> &'static str {
    match of {
        FileType::Regular => "-",
        FileType::Directory => "d",
        FileType::Symlink => "l",
        FileType::CharDevice => "c",
        FileType::BlockDevice => "b",
        FileType::Fifo => "p",
        FileType::Socket => "s",
    }
}

impl Image {
    fn of(image: platfs::Image, writes: bool) -> Self {
        Image { image: Closable::new(image), writes }
    }

    /// A call about a path, without Python's lock; what is changed gets the time.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        path: &[u8],
        call: impl FnOnce(&platfs::Image) -> platfs::Result<T> + Send,
    ) -> PyResult<T> {
        let (image, writes) = (self.image.with(Clone::clone)?, self.writes);
        py.detach(move || {
            let image = if writes { image.at_time(clock())? } else { image };
            call(&image)
        })
        .map_err(failure::at(path))
    }
}

#[pymethods]
impl Image {
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, write: bool, force: bool) -> PyResult<Self> {
        let options = OpenOptions::new().write(write).force(force).now(clock());
        let shown = path.display().to_string();
        let image = py.detach(|| options.open(&path)).map_err(failure::opening(shown))?;
        Ok(Image::of(image, write))
    }

    #[staticmethod]
    fn open_object(py: Python<'_>, object: Py<PyAny>, write: bool, force: bool) -> PyResult<Self> {
        let device = Arc::new(HostFile::new(py, object)?);
        let options = OpenOptions::new().write(write).force(force).now(clock());
        let image = py.detach(|| platfs::Image::on(device, &options)).map_err(failure::of)?;
        Ok(Image::of(image, write))
    }

    #[staticmethod]
    fn format(py: Python<'_>, path: PathBuf, size: u64, r#type: &str, label: &[u8]) -> PyResult<Self> {
        let mut format = Options::new(type_of(r#type)?);
        format.label = label.to_vec();
        format.time = u64::try_from(clock().seconds).unwrap_or(0);
        let options = OpenOptions::new().now(clock());
        let shown = path.display().to_string();
        let made = py.detach(|| platfs::Image::format_file(&path, size, &format, &options));
        Ok(Image::of(made.map_err(failure::opening(shown))?, true))
    }

    #[getter]
    fn writable(&self) -> bool {
        self.writes
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self.image.take() {
            Some(image) => py.detach(|| image.close()).map_err(failure::of),
            None => Ok(()),
        }
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let image = self.image.with(Clone::clone)?;
        py.detach(|| image.sync()).map_err(failure::of)
    }

    fn stat(&self, py: Python<'_>, path: &[u8], follow: bool) -> PyResult<Facts> {
        let ask =
            |image: &platfs::Image| if follow { image.metadata(path) } else { image.symlink_metadata(path) };
        self.call(py, path, ask).map(|found| facts(&found))
    }

    /// Names with their inodes and letters of types.
    fn list<'py>(&self, py: Python<'py>, path: &[u8]) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let entries = self.call(py, path, |image| {
            let mut found = Vec::new();
            for entry in image.read_dir(path)? {
                let entry = entry?;
                found.push((
                    entry.name().to_vec(),
                    u64::from(entry.inode().get()),
                    letter(entry.file_type()?),
                ));
            }
            Ok(found)
        })?;
        let tuple = |(name, inode, letter): (Vec<u8>, u64, &str)| {
            (PyBytes::new(py, &name), inode, letter).into_pyobject(py)
        };
        entries.into_iter().map(tuple).collect()
    }

    fn read_link<'py>(&self, py: Python<'py>, path: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let target = self.call(py, path, |image| image.read_link(path))?;
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
        Ok(File { file: Closable::new(Arc::new(file)) })
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

    fn rename(&self, py: Python<'_>, from: &[u8], to: &[u8]) -> PyResult<()> {
        self.call(py, from, |image| image.rename(from, to))
    }

    fn link(&self, py: Python<'_>, original: &[u8], path: &[u8]) -> PyResult<()> {
        self.call(py, path, |image| image.hard_link(original, path))
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
        let names = self.call(py, path, |image| image.xattr_names(path))?;
        Ok(names.iter().map(|name| PyBytes::new(py, name)).collect())
    }

    fn xattr<'py>(&self, py: Python<'py>, path: &[u8], name: &[u8]) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let value = self.call(py, path, |image| image.xattr(path, name))?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }

    fn set_xattr(&self, py: Python<'_>, path: &[u8], name: &[u8], value: &[u8]) -> PyResult<()> {
        self.call(py, path, |image| image.set_xattr(path, name, value))
    }

    fn remove_xattr(&self, py: Python<'_>, path: &[u8], name: &[u8]) -> PyResult<()> {
        self.call(py, path, |image| image.remove_xattr(path, name))
    }

    /// The map of a file: block of the file, blocks, block of the volume or nothing, written.
    fn extents(&self, py: Python<'_>, path: &[u8]) -> PyResult<Vec<(u64, u64, Option<u64>, bool)>> {
        self.call(py, path, |image| {
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

/// An open file.
#[pyclass(frozen, module = "platfs._native")]
pub(crate) struct File {
    file: Closable<Arc<platfs::File>>,
}

impl Drop for File {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            Python::attach(|py| py.detach(|| drop(file)));
        }
    }
}

/// Bytes of one call at most: what a caller asks for is cut to it, as read(2) does.
const MOST: usize = 64 << 20;

impl File {
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&platfs::File) -> platfs::Result<T> + Send,
    ) -> PyResult<T> {
        let file = self.file.with(Clone::clone)?;
        // Dropped there, too: the last handle closes the volume.
        py.detach(move || call(&file)).map_err(failure::of)
    }
}

#[pymethods]
impl File {
    /// At most `most` bytes from an offset.
    fn read<'py>(&self, py: Python<'py>, offset: u64, most: usize) -> PyResult<Bound<'py, PyBytes>> {
        let data = self.call(py, |file| {
            let left = file.metadata()?.size.saturating_sub(offset);
            let mut buffer = vec![0; most.min(MOST).min(usize::try_from(left).unwrap_or(usize::MAX))];
            let done = file.read_at(offset, &mut buffer)?;
            buffer.truncate(done);
            Ok(buffer)
        })?;
        Ok(PyBytes::new(py, &data))
    }

    fn write(&self, py: Python<'_>, offset: u64, data: &[u8]) -> PyResult<()> {
        self.call(py, |file| file.write_at(offset, data))
    }

    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        self.call(py, |file| Ok(file.metadata()?.size))
    }

    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        self.call(py, |file| file.set_len(size))
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, platfs::File::sync_all)
    }

    fn close(&self, py: Python<'_>) {
        if let Some(file) = self.file.take() {
            py.detach(|| drop(file));
        }
    }
}
