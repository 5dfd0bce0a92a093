//! The ext2/3/4 file system in user space.
#![forbid(unsafe_code)]

pub mod device;
mod error;

pub use error::{Error, Result};
