//! The front door: an image as a tree of files, in the shape of `std::fs`.
//!
//! Owns: paths, handles that keep their file, and the ways to open and to make an image. Excludes: everything that a volume
//! does. Each call here is one or a few verbs of [`Volume`], which name files by inode number. Holes, preallocation, flags
//! and the map of a file are to be had there: [`Image::volume`], [`Dir::inode_of`], [`File::inode`].
//!
//! | module | owns |
//! | --- | --- |
//! | `image` | opening, making and closing |
//! | `dir` | paths and what is done by them |
//! | `entry` | listing a directory, and a whole tree |
//! | `file` | one open file |
//! | `handle` | how long volume and inode live |
//! | `metadata` | the questions of `std::fs::Metadata` |
//! | `pieces` | in how many pieces files and free space lie |
//! | `space` | free space, group descriptors, damage |
//! | `errno` | errors as the system's numbers and as `std::io::Error` |
//!
//! Paths are bytes, as in the image: `"/etc/passwd"`, `b"\xFF"`, `String`, `Vec<u8>`. A path begins at the directory whose
//! method is called, or at the root of the image if it begins with a slash. Symbolic links never lead out of the image.

mod dir;
mod entry;
mod errno;
mod file;
mod handle;
mod image;
mod metadata;
mod pieces;
mod space;

pub use dir::Dir;
pub use entry::{Entry, ReadDir, Tree};
pub use file::File;
pub use image::Image;
pub use pieces::{FreeRuns, Pieces};
pub use space::FreeSpace;

#[cfg(doc)]
use crate::Volume;

/// Handles can be sent to other threads and shared between them.
const fn is_shared<T: Send + Sync + 'static>() {}
const _: () = {
    is_shared::<Image>();
    is_shared::<Dir>();
    is_shared::<File>();
    is_shared::<Entry>();
    is_shared::<crate::Volume>();
    is_shared::<crate::Error>();
    is_shared::<crate::OpenOptions>();
};
