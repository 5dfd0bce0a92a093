//! The front door: an image as a tree of files, in the shape of `std::fs`.
//!
//! Owns: paths, handles that keep their file, and the ways to open and to make an image. Excludes: everything that a volume
//! does; each call here is one or a few verbs of [`Volume`], which name files by inode number. Who wants more (holes,
//! preallocation, flags, the map of a file) finds it there: [`Image::volume`], [`Dir::inode_of`], [`File::inode`].
//!
//! | module | owns |
//! | --- | --- |
//! | `image` | opening, making and closing |
//! | `dir` | paths and what is done by them |
//! | `entry` | listing a directory, and a whole tree |
//! | `file` | one open file |
//! | `handle` | how long volume and inode live |
//! | `metadata` | the questions of `std::fs::Metadata` |
//! | `space` | what a volume tells of its space |
//! | `errno` | errors as the system's numbers and as `std::io::Error` |
//!
//! Paths are bytes, as in the image: `"/etc/passwd"`, `b"\xFF"`, `String`, `Vec<u8>`. They begin at the directory that is
//! asked, with a slash in front at the root of the image. Symbolic links stay inside of the image.

mod dir;
mod entry;
mod errno;
mod file;
mod handle;
mod image;
mod metadata;
mod space;

pub use dir::Dir;
pub use entry::{Entry, ReadDir, Tree};
pub use file::File;
pub use image::Image;
pub use space::FreeSpace;

#[cfg(doc)]
use crate::Volume;

/// Handles go from thread to thread, and are used by several at once.
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
