//! Storage below an image: what a name means to `platfs-open`, a part of it in bytes, or a Python object.

use std::path::PathBuf;
use std::sync::Arc;

use platfs::device::partitions::{Partition, partitions as listed};
use platfs::device::{Device, Window};
use platfs_open::stores::{self, StoreOptions};
use platfs_open::{device, image};
use platfs_store::Push;
use pyo3::prelude::*;

use crate::failure;
use crate::host::HostFile;

/// How Python names it: by a name or an object, and which part of it.
#[derive(FromPyObject)]
pub(crate) struct Named {
    /// A path, or the address of a volume in a store.
    #[pyo3(item)]
    name: Option<PathBuf>,
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

/// Purpose of an opening.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Read,
    Write,
    /// A check that repairs.
    Repair,
}

/// Returns true if a text is the address of a store, as `file:///srv/store#NAME`.
#[pyfunction]
pub(crate) fn is_address(text: &str) -> bool {
    stores::is_meant(text.as_ref())
}

impl Named {
    /// Name in messages.
    pub(crate) fn shown(&self) -> String {
        let named = self.name.as_ref().map(|name| image::shown(name.as_os_str()).to_string());
        named.unwrap_or_else(|| "the file object".into())
    }

    /// Tells if it is a path of the host: what it names can be read by several processes at once.
    pub(crate) fn is_path(&self) -> bool {
        self.name.as_ref().is_some_and(|name| !stores::is_meant(name.as_os_str()))
    }

    /// Opens it. Others are kept off what is opened for writing.
    pub(crate) fn open(self, py: Python<'_>, purpose: Purpose) -> PyResult<Arc<dyn Device>> {
        let (shown, offset, length) = (self.shown(), self.offset, self.length);
        let options = options(self.cache, self.take_over);
        let whole = match (self.name, self.object) {
            (Some(name), _) => failure::run(py, || match purpose {
                Purpose::Read => device::read(name.as_os_str(), &options),
                Purpose::Write => device::write(name.as_os_str(), &options),
                Purpose::Repair => device::check(name.as_os_str(), &options),
            })?
            .map_err(failure::image(shown.clone()))?,
            (None, Some(object)) => Arc::new(HostFile::new(py, object)?),
            (None, None) => return Err(failure::value("no image is named")),
        };
        if offset == 0 && length.is_none() {
            return Ok(whole);
        }
        let length = length.unwrap_or(whole.size().saturating_sub(offset));
        Ok(Arc::new(Window::new(whole, offset, length).map_err(failure::host(shown))?))
    }

    /// Makes a new file or volume of a store, of zeros, and opens it for writing.
    pub(crate) fn make(self, py: Python<'_>, size: u64) -> PyResult<Arc<dyn Device>> {
        let (shown, options) = (self.shown(), options(self.cache, self.take_over));
        let name = self.name.ok_or_else(|| failure::value("a path, or the address of a volume"))?;
        failure::run(py, || device::create(name.as_os_str(), size, &options))?.map_err(failure::image(shown))
    }
}

fn options(cache: Option<(PathBuf, u64)>, take_over: bool) -> StoreOptions {
    let holder = format!("a Python program, process {}", std::process::id());
    StoreOptions { cache, take_over, holder: Some(holder) }
}

/// Number, first byte, bytes, name.
type Shown = (u32, u64, u64, Option<String>);

/// The partitions of a disk.
#[pyfunction]
pub(crate) fn partitions(py: Python<'_>, named: Named) -> PyResult<Vec<Shown>> {
    let shown = named.shown();
    let disk = named.open(py, Purpose::Read)?;
    let all = failure::run(py, || listed(&*disk))?.map_err(failure::table(shown))?;
    let facts = |one: Partition| (one.number, one.start, one.size, one.name);
    Ok(all.into_iter().map(facts).collect())
}

/// Brings an image into a store: bytes of the image, chunks, chunks that were not there, bytes sent.
#[pyfunction]
pub(crate) fn push(
    py: Python<'_>,
    named: Named,
    address: &str,
    replace: bool,
) -> PyResult<(u64, u64, u64, u64)> {
    let device = named.open(py, Purpose::Read)?;
    let how = Push { force: replace, ..Push::default() };
    let done = failure::run(py, || {
        let address = stores::address(address.as_ref())?;
        platfs_store::push(&stores::store(&address)?, &*device, address.volume()?, &how)
    })?;
    let done = done.map_err(failure::store(address.to_owned()))?;
    Ok((done.size, done.chunks, done.new_chunks, done.sent_bytes))
}
