//! The half of the Python package that is Rust: images, files, building and checking, in calls that the half in Python puts
//! into the shapes of pathlib, io and os.
//!
//! | module | owns |
//! | --- | --- |
//! | `facts` | metadata as `os.stat_result` |
//! | `failure` | errors and panics as `OSError` |
//! | `figures` | fragmentation as numbers |
//! | `file` | open files |
//! | `ground` | what an image lies on: files, parts of them, volumes of stores, Python objects |
//! | `host` | a Python file object as a device |
//! | `image` | images, and what is done in them by paths |
//! | `make` | building and checking |
//! | `mount` | mounts, and work in them while they are used |
//!
//! No call holds Python's lock while it works on an image: other threads run. A device that is a Python object takes the
//! lock for its calls, so it must be free then.

mod facts;
mod failure;
mod figures;
mod file;
mod ground;
mod host;
mod image;
mod make;
mod mount;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("NotAnImage", module.py().get_type::<failure::NotAnImage>())?;
    module.add_class::<image::Image>()?;
    module.add_class::<file::File>()?;
    module.add_function(wrap_pyfunction!(make::build, module)?)?;
    module.add_function(wrap_pyfunction!(make::examine, module)?)?;
    module.add_class::<mount::Mountpoint>()?;
    module.add_class::<mount::LiveMount>()?;
    module.add_function(wrap_pyfunction!(mount::mount, module)?)?;
    module.add_function(wrap_pyfunction!(ground::is_address, module)?)?;
    module.add_function(wrap_pyfunction!(ground::partitions, module)?)?;
    module.add_function(wrap_pyfunction!(ground::push, module)?)?;
    module.add_function(wrap_pyfunction!(failure::panics, module)?)?;
    Ok(())
}
