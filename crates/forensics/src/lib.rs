//! Evidence in the bytes of a volume beyond its files: owners of blocks, transactions of the journal, removed files.
//!
//! Owns: reading a volume without trust in any one part of it ([`RawImage`]), [`owners`] of blocks, [`names`] of inodes,
//! the transactions that still lie in a [journal](log), what a superblock says in [words](facts). Excludes: judging a volume (`platfs-check`), changing it, and
//! everything about terminals.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![forbid(unsafe_code)]

pub mod facts;
pub mod history;
pub mod htree;
pub mod log;
pub mod metadata;
pub mod names;
pub mod owners;
mod raw_image;
pub mod removed;
pub mod used;
pub mod words;

pub use ondisk;
pub use platfs_device as device;
pub use platfs_device::{Error, Result};
pub use raw_image::RawImage;
