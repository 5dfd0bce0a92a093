//! Storage below an image: a file or a block device, a part of one, a volume of an object store, a Python object.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use platfs::device::partitions::{Partition, partitions as listed};
use platfs::device::{Device, FileDevice, Window};
use platfs_image::named::{ImageSpec, Part, PartError};
use platfs_store::objects::Patience;
use platfs_store::{Address, Cache, Push, Store, Stored, Volume};
use pyo3::prelude::*;

use crate::failure;
use crate::host::HostFile;

/// How Python names it: one of the first three, and which part of it.
#[derive(FromPyObject)]
pub(crate) struct Named {
    #[pyo3(item)]
    path: Option<PathBuf>,
    #[pyo3(item)]
    address: Option<String>,
    #[pyo3(item)]
    object: Option<Py<PyAny>>,
    /// First byte.
    #[pyo3(item)]
    offset: u64,
    /// Bytes; all behind the first if it is not said.
    #[pyo3(item)]
    length: Option<u64>,
    /// A directory for what is read of a store, and its most bytes.
    #[pyo3(item)]
    cache: Option<(PathBuf, u64)>,
    #[pyo3(item)]
    take_over: bool,
}

/// Returns true if a text is the address of a store, as `file:///srv/store#NAME`.
#[pyfunction]
pub(crate) fn is_address(text: &str) -> bool {
    platfs_store::is_address(text.as_bytes())
}

impl Named {
    /// Name in messages.
    pub(crate) fn shown(&self) -> String {
        match (&self.path, &self.address) {
            (Some(path), _) => path.display().to_string(),
            (None, Some(address)) => address.clone(),
            (None, None) => "the file object".into(),
        }
    }

    /// Tells if it is a path of the host: what it names can be read by several processes at once.
    pub(crate) fn is_path(&self) -> bool {
        self.path.is_some()
    }

    /// Opens it. A file that is opened for writing is locked against other writers.
    pub(crate) fn open(self, py: Python<'_>, write: bool) -> PyResult<Arc<dyn Device>> {
        let (shown, offset, length) = (self.shown(), self.offset, self.length);
        let whole = match (self.path, self.address, self.object) {
            (Some(path), _, _) => {
                failure::run(py, || file(&path, write))?.map_err(failure::part(shown.clone()))?
            }
            (None, Some(address), _) => {
                let (cache, take_over) = (self.cache, self.take_over);
                failure::run(py, || stored(&address, write, cache, take_over))?
                    .map_err(failure::store(shown.clone()))?
            }
            (None, None, Some(object)) => Arc::new(HostFile::new(py, object)?),
            (None, None, None) => return Err(failure::value("no image is named")),
        };
        if offset == 0 && length.is_none() {
            return Ok(whole);
        }
        let length = length.unwrap_or(whole.size().saturating_sub(offset));
        Ok(Arc::new(Window::new(whole, offset, length).map_err(failure::host(shown))?))
    }

    /// Makes a new file or volume of a store, of zeros, and opens it for writing.
    pub(crate) fn make(self, py: Python<'_>, size: u64) -> PyResult<Arc<dyn Device>> {
        let shown = self.shown();
        match (self.path, self.address) {
            (Some(path), _) if ImageSpec::parse(path.as_os_str()).part != Part::Whole => {
                Err(failure::value(format!("{shown} is a part of a disk; this makes a new file")))
            }
            (Some(path), _) => failure::run(py, || new_file(path, size))?.map_err(failure::host(shown)),
            (None, Some(address)) => {
                failure::run(py, || new_volume(&address, size))?.map_err(failure::store(shown))
            }
            (None, None) => Err(failure::value("a path, or the address of a volume")),
        }
    }
}

/// A file or block device, or the part of it that a name with an `@` means.
pub(crate) fn file(path: &Path, write: bool) -> Result<Arc<dyn Device>, PartError> {
    ImageSpec::parse(path.as_os_str()).open(write)
}

/// Number, first byte, bytes, name.
type Shown = (u32, u64, u64, Option<String>);

/// The partitions of a disk.
#[pyfunction]
pub(crate) fn partitions(py: Python<'_>, named: Named) -> PyResult<Vec<Shown>> {
    let shown = named.shown();
    let disk = named.open(py, false)?;
    let all = failure::run(py, || listed(&*disk))?.map_err(|error| failure::part(shown)(error.into()))?;
    let facts = |one: Partition| (one.number, one.start, one.size, one.name);
    Ok(all.into_iter().map(facts).collect())
}

/// The store of an address, and the name of the volume in it.
fn store_of(address: &str, cache: Option<(PathBuf, u64)>) -> platfs_store::Result<(Arc<Store>, String)> {
    let address = Address::parse(address)?;
    let name = address.volume()?.to_owned();
    let cache = cache.map(|(directory, most)| Cache::new(directory, most));
    Ok((Arc::new(Store::new(address.objects()?, Patience::default(), cache)), name))
}

/// This program, for others to whom it is in the way.
fn holder() -> String {
    format!("a Python program, process {}", std::process::id())
}

fn stored(
    address: &str,
    write: bool,
    cache: Option<(PathBuf, u64)>,
    take_over: bool,
) -> platfs_store::Result<Arc<dyn Device>> {
    let (store, name) = store_of(address, cache)?;
    Ok(if write {
        Arc::new(ClosedOnDrop(Volume::open(&store, &name, &holder(), take_over)?))
    } else {
        Arc::new(Stored::open(&store, &name)?)
    })
}

/// Makes a file of zeros, which nobody else can open for writing.
fn new_file(path: PathBuf, size: u64) -> io::Result<Arc<dyn Device>> {
    let file = File::options().read(true).write(true).create_new(true).open(path)?;
    file.set_len(size)?;
    Ok(Arc::new(FileDevice::locked(file)?))
}

/// Makes a volume of zeros in a store.
fn new_volume(address: &str, size: u64) -> platfs_store::Result<Arc<dyn Device>> {
    let (store, name) = store_of(address, None)?;
    Ok(Arc::new(ClosedOnDrop(Volume::create(&store, &name, size, &holder())?)))
}

/// Brings an image into a store: bytes of the image, chunks, chunks that were not there, bytes sent.
#[pyfunction]
pub(crate) fn push(
    py: Python<'_>,
    named: Named,
    address: &str,
    replace: bool,
) -> PyResult<(u64, u64, u64, u64)> {
    let device = named.open(py, false)?;
    let how = Push { force: replace, ..Push::default() };
    let done = failure::run(py, || {
        let (store, name) = store_of(address, None)?;
        platfs_store::push(&store, &*device, &name, &how)
    })?;
    let done = done.map_err(failure::store(address.to_owned()))?;
    Ok((done.size, done.chunks, done.new_chunks, done.sent_bytes))
}

/// A volume of a store that is open for writing, and is closed when it is dropped, so that others learn that it is free. A
/// failure to close loses nothing that was flushed.
struct ClosedOnDrop(Volume);

impl Drop for ClosedOnDrop {
    fn drop(&mut self) {
        let _ = self.0.close();
    }
}

impl Device for ClosedOnDrop {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.discard(offset, len)
    }

    fn discard_unit(&self) -> io::Result<u64> {
        self.0.discard_unit()
    }

    fn lengthen(&self, to: Option<u64>) -> io::Result<u64> {
        self.0.lengthen(to)
    }

    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.write_zeros(offset, len)
    }
}
