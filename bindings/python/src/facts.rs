//! Metadata as `os.stat_result`.

use platfs::{FileType, Metadata, Timestamp};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};

static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Nanoseconds since 1970.
pub(crate) fn nanoseconds(at: Timestamp) -> i128 {
    i128::from(at.seconds) * 1_000_000_000 + i128::from(at.nanoseconds)
}

#[expect(clippy::cast_precision_loss, reason = "as os.stat_result has it")]
fn float(at: Timestamp) -> f64 {
    at.seconds as f64 + f64::from(at.nanoseconds) / 1e9
}

/// The number of a device, as makedev(3) of Linux makes it.
fn device(major: u32, minor: u32) -> u64 {
    let (major, minor) = (u64::from(major), u64::from(minor));
    (major & 0xFFFF_F000) << 32 | (major & 0xFFF) << 8 | (minor & 0xFFFF_FF00) << 12 | minor & 0xFF
}

/// An `os.stat_result`; `block` is the size of the volume's blocks.
pub(crate) fn result<'py>(py: Python<'py>, of: &Metadata, block: u32) -> PyResult<Bound<'py, PyAny>> {
    let number = of.device.map_or(0, |(major, minor)| device(major, minor));
    let times = [of.times.access, of.times.modify, of.times.change];
    // i64 holds nanoseconds up to the year 2262; times beyond are rare.
    let exact = |at: Timestamp| -> PyResult<Bound<'py, PyAny>> {
        let wide = nanoseconds(at);
        Ok(match i64::try_from(wide) {
            Ok(narrow) => narrow.into_pyobject(py)?.into_any(),
            Err(_) => wide.into_pyobject(py)?.into_any(),
        })
    };
    let mut all = Vec::with_capacity(19);
    let mut put = |value: u64| -> PyResult<()> {
        all.push(value.into_pyobject(py)?.into_any());
        Ok(())
    };
    for value in [of.mode().into(), of.inode.get().into(), 0, of.links.into(), of.uid.into()] {
        put(value)?;
    }
    put(of.gid.into())?;
    put(of.size)?;
    for at in times {
        all.push(at.seconds.into_pyobject(py)?.into_any());
    }
    for at in times {
        all.push(float(at).into_pyobject(py)?.into_any());
    }
    for at in times {
        all.push(exact(at)?);
    }
    for value in [block.into(), of.sectors, number] {
        all.push(value.into_pyobject(py)?.into_any());
    }
    CLASS.import(py, "os", "stat_result")?.call1((PyTuple::new(py, all)?,))
}

/// The letter of a type.
pub(crate) fn letter(of: FileType) -> &'static str {
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
