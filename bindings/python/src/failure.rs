//! Errors as Python knows them: `OSError` with errno and text, which becomes `FileNotFoundError` and the like by itself. And
//! [`run`], which every call into the library goes through: without Python's lock, and a panic becomes an exception.

use std::error::Error;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use platfs::device::partitions::TableError;
use platfs::device::{Device, lookalike};
use platfs_host::errno_of;
use platfs_image::named::PartError;
use platfs_image::{BuildError, SourceError};
use platfs_open::image::ImageError;
use platfs_open::stores;
use platfs_serve::mount::error::MountError;
use pyo3::create_exception;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

/// Error numbers of Linux.
mod number {
    pub(super) const IO: i32 = 5;
    pub(super) const BAD_FILE: i32 = 9;
    pub(super) const INVALID: i32 = 22;
    pub(super) const FULL: i32 = 28;
}

/// Runs a call of the library without Python's lock. A panic, which is an error in the library, becomes `OSError` with EIO.
pub(crate) fn run<T: Send>(py: Python<'_>, call: impl FnOnce() -> T + Send) -> PyResult<T> {
    py.detach(|| catch_unwind(AssertUnwindSafe(call))).map_err(|_| panicked())
}

/// Makes the exception for a panic.
pub(crate) fn panicked() -> PyErr {
    PyOSError::new_err((
        number::IO,
        "an error in the library itself: it panicked; please report it, with what was printed",
    ))
}

/// Panics in a call of the library, so that the tests see what becomes of it.
#[pyfunction]
pub(crate) fn panics(py: Python<'_>) -> PyResult<()> {
    run(py, || {
        if std::hint::black_box(true) {
            panic!("on purpose, for the tests")
        }
    })
}

/// The exception of a Python object, if one is behind a failure.
fn raised(error: &io::Error) -> Option<PyErr> {
    let inner = error.get_ref()?.downcast_ref::<PyErr>()?;
    Some(Python::attach(|py| inner.clone_ref(py)))
}

/// An `OSError`. If a Python object of the caller raised something, that exception itself, unchanged.
fn os_error(number: i32, text: String, path: Option<String>, raised: Option<PyErr>) -> PyErr {
    raised.unwrap_or_else(|| match path {
        Some(path) => PyOSError::new_err((number, text, path)),
        None => PyOSError::new_err((number, text)),
    })
}

fn with_path(error: &platfs::Error, number: i32, path: Option<String>) -> PyErr {
    let cause = if let platfs::Error::Io { source, .. } = error { raised(source) } else { None };
    os_error(number, error.to_string(), path, cause)
}

/// An error of the library.
pub(crate) fn of(error: platfs::Error) -> PyErr {
    with_path(&error, error.errno(), None)
}

/// An error of the library about a path, which the exception names.
pub(crate) fn at(path: &[u8]) -> impl Fn(platfs::Error) -> PyErr + use<> {
    let path = String::from_utf8_lossy(path).into_owned();
    move |error| with_path(&error, error.errno(), Some(path.clone()))
}

create_exception!(platfs, NotAnImage, PyOSError, "The file or device holds no ext2, ext3 or ext4 volume.");

/// Makes the error of an opening that failed: a [`NotAnImage`] if there is no superblock.
pub(crate) fn unopened(device: &dyn Device, error: &platfs::Error, path: String) -> PyErr {
    if !matches!(error, platfs::Error::Corrupt(_)) || platfs::read_superblock(device).is_ok() {
        return opening(path)(error);
    }
    let hint = lookalike(device, &path).map(|hint| format!("; {hint}")).unwrap_or_default();
    NotAnImage::new_err((number::INVALID, format!("it holds no ext2, ext3 or ext4 volume{hint}"), path))
}

/// An error of opening or making an image: what the host says of the file counts.
pub(crate) fn opening(path: String) -> impl Fn(&platfs::Error) -> PyErr {
    move |error| {
        let host = if let platfs::Error::Io { source, .. } = error { Some(errno_of(source)) } else { None };
        with_path(error, host.unwrap_or(error.errno()), Some(path.clone()))
    }
}

/// An error of the host about a path.
pub(crate) fn host(path: String) -> impl Fn(io::Error) -> PyErr {
    move |error| os_error(errno_of(&error), error.to_string(), Some(path.clone()), raised(&error))
}

/// An error of a table of partitions.
pub(crate) fn table(disk: String) -> impl Fn(TableError) -> PyErr {
    move |error| {
        let cause = if let TableError::Io(host) = &error { raised(host) } else { None };
        let error = PartError::from(error);
        os_error(error.errno(), error.to_string(), Some(disk.clone()), cause)
    }
}

/// An error of opening an image by its name.
pub(crate) fn image(name: String) -> impl Fn(ImageError) -> PyErr {
    move |error| match error {
        // The name itself can't be meant.
        ImageError::NotWhole => value(format!("{name} {error}")),
        error => os_error(error.errno(), error.to_string(), Some(name.clone()), None),
    }
}

/// An error of a store about an address.
pub(crate) fn store(address: String) -> impl Fn(stores::Error) -> PyErr {
    move |error| image(address.clone())(error.into())
}

/// An error of a mount.
pub(crate) fn mount(error: MountError) -> PyErr {
    os_error(error.errno(), error.why.to_string(), Some(error.subject), None)
}

/// An error of a device.
pub(crate) fn device(error: &io::Error) -> PyErr {
    os_error(errno_of(error), error.to_string(), None, raised(error))
}

/// An error of a build.
pub(crate) fn build(error: &BuildError) -> PyErr {
    let number = match error {
        BuildError::Source(error) => return source(error),
        BuildError::Volume(error) | BuildError::At { error, .. } => error.errno(),
        BuildError::TooSmall { .. }
        | BuildError::DeviceTooSmall { .. }
        | BuildError::TooFewInodes { .. }
        | BuildError::NoRoom { .. } => number::FULL,
        BuildError::Output { error, .. } => errno_of(error),
        BuildError::Shrunk | BuildError::Internal(_) => number::IO,
        _ => number::INVALID,
    };
    PyOSError::new_err((number, error.to_string()))
}

/// An error of a source of images.
pub(crate) fn source(error: &SourceError) -> PyErr {
    let number = match error {
        SourceError::Host { error, .. } => errno_of(error),
        SourceError::Internal(_) => number::IO,
        _ => number::INVALID,
    };
    PyOSError::new_err((number, error.to_string()))
}

/// A value that can't be.
pub(crate) fn value(text: impl Into<String>) -> PyErr {
    PyValueError::new_err(text.into())
}

/// Why a value can't be.
pub(crate) fn wrong(error: &dyn Error) -> PyErr {
    value(error.to_string())
}

/// Something belongs to the process that this one was forked off from.
pub(crate) fn inherited(owner: u32) -> PyErr {
    let text = format!(
        "the image was opened by process {owner}, which this one was forked from: open it here again"
    );
    PyOSError::new_err((number::BAD_FILE, text))
}

/// Something is closed already.
pub(crate) fn closed() -> PyErr {
    value("the image or file is closed")
}
