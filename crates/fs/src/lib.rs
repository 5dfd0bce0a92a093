//! The ext2/3/4 file system in user space.
#![forbid(unsafe_code)]
#![allow(dead_code)] // while the ladder is being built rung by rung

mod cache;
pub mod device;
mod dir;
mod error;
mod file;
mod format;
mod inline;
mod inode;
mod map;
mod ops;
mod space;
mod txn;
mod volume;
mod xattr;

pub use error::{Error, Result};
pub use format::Format;
pub use map::{Segment, State};
pub use ondisk;
pub use ops::{Attributes, DirEntry, File, Kind, Metadata, NewInode, Times, Writer};
pub use placement;
pub use volume::{OpenOptions, Volume, read_superblock};
