//! Open files: bytes at offsets. Positions and modes are of Python's half.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::failure;
use crate::image::{Closable, Owner};

/// An open file.
#[pyclass(frozen, module = "platfs._native")]
pub(crate) struct File {
    file: Closable<Arc<platfs::File>>,
    path: Vec<u8>,
}

impl Drop for File {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            Python::attach(|py| py.detach(|| drop(file)));
        }
    }
}

impl File {
    pub(crate) fn of(file: platfs::File, path: &[u8], owner: Owner) -> Self {
        File { file: Closable::new(Arc::new(file), owner), path: path.to_vec() }
    }

    fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&platfs::File) -> platfs::Result<T> + Send,
    ) -> PyResult<T> {
        let file = self.file.with(Clone::clone)?;
        // Dropped there, too: the last handle closes the volume.
        failure::run(py, move || call(&file))?.map_err(|error| failure::at(&self.path)(error))
    }
}

#[pymethods]
impl File {
    /// At most `most` bytes from an offset.
    fn read<'py>(&self, py: Python<'py>, offset: u64, most: usize) -> PyResult<Bound<'py, PyBytes>> {
        let size = self.size(py)?;
        let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut done = 0;
        // Nobody else sees the object before it is made: the bytes go where they stay.
        let read = PyBytes::new_with(py, most.min(left), |buffer| {
            done = self.call(py, |file| file.read_at(offset, buffer))?;
            Ok(())
        })?;
        // A file that was cut meanwhile.
        let all = read.as_bytes();
        Ok(if done == all.len() { read } else { PyBytes::new(py, all.get(..done).unwrap_or_default()) })
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

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self.file.take() {
            Some(file) => failure::run(py, || drop(file)),
            None => Ok(()),
        }
    }
}
