//! Errors as Python knows them: `OSError` with errno and text, which becomes `FileNotFoundError` and the like by itself.

use std::io;

use platfs_image::{BuildError, SourceError};
use pyo3::PyErr;
use pyo3::exceptions::{PyOSError, PyValueError};

/// EINVAL, ENOSPC and EIO of Linux.
const INVALID: i32 = 22;
const FULL: i32 = 28;
const IO: i32 = 5;

/// An error of the library.
pub(crate) fn of(error: platfs::Error) -> PyErr {
    PyOSError::new_err((error.errno(), error.to_string()))
}

/// An error of the library about a path, which the exception names.
pub(crate) fn at(path: &[u8]) -> impl Fn(platfs::Error) -> PyErr {
    let path = String::from_utf8_lossy(path).into_owned();
    move |error| PyOSError::new_err((error.errno(), error.to_string(), path.clone()))
}

/// An error of opening or making an image: what the host says of the file counts.
pub(crate) fn opening(path: String) -> impl Fn(platfs::Error) -> PyErr {
    move |error| {
        let host = if let platfs::Error::Io { source, .. } = &error { source.raw_os_error() } else { None };
        PyOSError::new_err((host.unwrap_or(error.errno()), error.to_string(), path.clone()))
    }
}

/// An error of the host about a path.
pub(crate) fn host(path: String) -> impl Fn(io::Error) -> PyErr {
    move |error| PyOSError::new_err((error.raw_os_error().unwrap_or(IO), error.to_string(), path.clone()))
}

/// An error of a device.
pub(crate) fn device(error: &io::Error) -> PyErr {
    PyOSError::new_err((error.raw_os_error().unwrap_or(IO), error.to_string()))
}

/// An error of a build.
pub(crate) fn build(error: &BuildError) -> PyErr {
    let number = match error {
        BuildError::Source(error) => return source(error),
        BuildError::Volume(error) | BuildError::At { error, .. } => error.errno(),
        BuildError::TooSmall { .. }
        | BuildError::DeviceTooSmall { .. }
        | BuildError::TooFewInodes { .. }
        | BuildError::NoRoom { .. } => FULL,
        BuildError::Output { error, .. } => error.raw_os_error().unwrap_or(IO),
        BuildError::Shrunk => IO,
        _ => INVALID,
    };
    PyOSError::new_err((number, error.to_string()))
}

/// An error of a source of images.
pub(crate) fn source(error: &SourceError) -> PyErr {
    let number = match error {
        SourceError::Host { error, .. } => error.raw_os_error().unwrap_or(IO),
        _ => INVALID,
    };
    PyOSError::new_err((number, error.to_string()))
}

/// A value that can't be.
pub(crate) fn value(text: impl Into<String>) -> PyErr {
    PyValueError::new_err(text.into())
}

/// Something is closed already.
pub(crate) fn closed() -> PyErr {
    value("the image or file is closed")
}
