//! Everything behind the `plat` command: the library half exists so that tests and fuzz targets can
//! reach the adapters. It is no public interface; programs use the crate `platfs`.

pub mod archive;
pub mod source;
