//! A Python file object as a device: `seek`, `read`, `write` and `flush` are called, one thread at a time.
//!
//! A thread that waits for the turn must not hold Python's lock, because the thread whose turn it is needs it. So all calls into
//! the library are made without it.

use std::io::{self, ErrorKind};
use std::sync::{Mutex, PoisonError};

use platfs::device::Device;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A binary file object that can seek.
pub(crate) struct HostFile {
    object: Py<PyAny>,
    size: u64,
    turn: Mutex<()>,
}

impl HostFile {
    /// Asks the object for its size.
    pub(crate) fn new(py: Python<'_>, object: Py<PyAny>) -> PyResult<Self> {
        let size = object.call_method1(py, "seek", (0, 2))?.extract(py)?;
        Ok(HostFile { object, size, turn: Mutex::new(()) })
    }

    /// A call on the object, with the turn and Python's lock held. What it raises is kept for `failure`.
    fn call<T>(&self, call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> io::Result<T> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        Python::attach(|py| call(self.object.bind(py)).map_err(io::Error::other))
    }

    fn within(&self, offset: u64, len: usize, kind: ErrorKind) -> io::Result<()> {
        let end = u64::try_from(len).ok().and_then(|len| offset.checked_add(len));
        if end.is_some_and(|end| end <= self.size) { Ok(()) } else { Err(kind.into()) }
    }
}

/// Reads into all of a buffer from where the object stands.
fn fill(object: &Bound<'_, PyAny>, mut buffer: &mut [u8]) -> PyResult<bool> {
    while !buffer.is_empty() {
        let read = object.call_method1("read", (buffer.len(),))?;
        let bytes: &[u8] = read.extract()?;
        // An object that gives more than it was asked for is as wrong as one that gives nothing.
        let Some((done, rest)) =
            (!bytes.is_empty()).then(|| buffer.split_at_mut_checked(bytes.len())).flatten()
        else {
            return Ok(false);
        };
        done.copy_from_slice(bytes);
        buffer = rest;
    }
    Ok(true)
}

/// Writes all bytes where the object stands; raw objects may take less at a time.
fn empty(object: &Bound<'_, PyAny>, mut data: &[u8]) -> PyResult<bool> {
    while !data.is_empty() {
        let done = object.call_method1("write", (PyBytes::new(object.py(), data),))?;
        let done: usize = done.extract()?;
        match data.get(done..) {
            Some(rest) if done > 0 => data = rest,
            _ => return Ok(false),
        }
    }
    Ok(true)
}

impl Device for HostFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.within(offset, buffer.len(), ErrorKind::UnexpectedEof)?;
        let whole = self.call(|object| {
            object.call_method1("seek", (offset,))?;
            fill(object, buffer)
        })?;
        if whole { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.within(offset, data.len(), ErrorKind::WriteZero)?;
        let whole = self.call(|object| {
            object.call_method1("seek", (offset,))?;
            empty(object, data)
        })?;
        if whole { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
    }

    fn flush(&self) -> io::Result<()> {
        self.call(|object| object.call_method0("flush").map(drop))
    }
}
