//! Opens an image as a person names it, beside others who may use it.
//!
//! | module | owns |
//! | --- | --- |
//! | [`image`] | from a name to a device that is read: a file, a block device, a part of either, a volume of a store |
//! | [`mod@device`] | an image as a device, for programs: to read, write, check, or new |
//! | [`door`] | opening to write: who else uses an image, the locks, new files that take the place of others |
//! | [`stores`] | volumes of object stores in the place of images, by address and environment |
//! | [`keys`] | keys of encrypted files, from files or digits |
//! | [`marks`] | marks of multiple mount protection that this process holds |
//! | [`paths`] | paths of an image as text: patterns, and names as they are printed |
//! | [`precheck`], [`names`] | a check before anything is changed, and what inodes are called in it |
//! | [`undo`] | the undo file of a change of an image, and the way back by it |
//! | [`memory`] | memory that this process may use |
//! | [`process`] | what a process does for its secrets, if it is the command's own |
//! | [`explain`] | errors about a volume in words, with the remedy |
//! | [`locks`] | locks that no panic makes useless |
//!
//! Nothing is printed: [`marks::tell_to`] and [`stores::tell_to`] say who hears of what happens meanwhile. Excludes what
//! names mean (`platfs_image::named`), files below a directory (`platfs_host`), and what is on a device (`platfs`).

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![forbid(unsafe_code)]

pub mod device;
pub mod door;
pub mod explain;
mod hearer;
pub mod image;
mod kept;
pub mod keys;
pub mod locks;
pub mod marks;
pub mod memory;
pub mod names;
pub mod paths;
pub mod precheck;
pub mod process;
#[cfg(feature = "store")]
pub mod stores;
#[cfg(not(feature = "store"))]
#[path = "stores_left_out.rs"]
pub mod stores;
pub mod undo;
