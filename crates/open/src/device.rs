//! Images as devices for programs.
//!
//! Owns: the choice between files and stores by name, and one call for each use. Excludes the door and the stores, and what
//! is on the device. Each device closes what it holds when it is dropped.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use platfs::device::Device;

use crate::door;
use crate::image::{self, ImageError, Part};
use crate::stores::{self, StoreOptions};

/// Opens an image for reading.
///
/// # Errors
/// See [`ImageError`].
pub fn read(name: &OsStr, options: &StoreOptions) -> Result<Arc<dyn Device>, ImageError> {
    match stores::is_meant(name) {
        true => Ok(stores::open_read_by(name, options)?),
        false => image::open_read(name),
    }
}

/// Opens an image to be written in place; others are kept off as long as the device lives.
///
/// # Errors
/// See [`ImageError`].
pub fn write(name: &OsStr, options: &StoreOptions) -> Result<Arc<dyn Device>, ImageError> {
    match stores::is_meant(name) {
        true => Ok(stores::open_write_by(name, options)?),
        false => door::open_write(name),
    }
}

/// Opens an image as [`write()`] does, for a check: a volume with multiple mount protection bears the mark of one meanwhile.
///
/// # Errors
/// See [`ImageError`].
pub fn check(name: &OsStr, options: &StoreOptions) -> Result<Arc<dyn Device>, ImageError> {
    match stores::is_meant(name) {
        true => write(name, options),
        false => door::open_check(name),
    }
}

/// Makes a new file, or a new volume of a store, of `bytes` zeros, and opens it to be written.
///
/// # Errors
/// See [`ImageError`]; the name is taken, or names a part of a disk.
pub fn create(name: &OsStr, bytes: u64, options: &StoreOptions) -> Result<Arc<dyn Device>, ImageError> {
    if stores::is_meant(name) {
        return Ok(stores::create_by(name, bytes, options)?);
    }
    match image::parse(name).part {
        Part::Whole => door::output::create(Path::new(name), bytes),
        _ => Err(ImageError::NotWhole),
    }
}
