//! The half of the Python package that is Rust: images, files, building and checking, in calls that the half in Python puts
//! into the shapes of pathlib, io and os.
//!
//! | module | owns |
//! | --- | --- |
//! | `failure` | errors as `OSError` |
//! | `host` | a Python file object as a device |
//! | `image` | images and files |
//! | `make` | building and checking |
//!
//! No call holds Python's lock while it works on an image: other threads run. A device that is a Python object takes the
//! lock for its calls, so it must be free then.

mod failure;
mod host;
mod image;
mod make;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<image::Image>()?;
    module.add_class::<image::File>()?;
    module.add_function(wrap_pyfunction!(make::build, module)?)?;
    module.add_function(wrap_pyfunction!(make::examine, module)?)?;
    Ok(())
}
