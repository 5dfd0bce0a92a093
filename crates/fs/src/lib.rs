//! The ext2/3/4 file system in user space: verbs on a volume.
//!
//! The front door is in the shape of `std::fs`:
//!
//! ```no_run
//! let image = platfs::Image::open("disk.img")?;
//! for entry in image.read_dir("/etc")? {
//!     println!("{}", String::from_utf8_lossy(entry?.name()));
//! }
//! println!("{}", image.read_to_string("/etc/os-release")?);
//! # Ok::<(), platfs::Error>(())
//! ```
//!
//! Behind it are the verbs of a [`Volume`], which name files by inode number, as a kernel does:
//!
//! ```no_run
//! use std::io::Read;
//! use std::sync::Arc;
//! use platfs::device::FileDevice;
//! use platfs::{OpenOptions, Volume};
//!
//! let device = FileDevice::new(std::fs::File::open("disk.img")?)?;
//! let volume = Volume::open(Arc::new(device), &OpenOptions::new())?;
//! let mut text = String::new();
//! volume.open_file(volume.resolve(b"/etc/os-release")?)?.read_to_string(&mut text)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The examples of this crate read an image, build one by verbs, check one, and put a volume on a device and under a
//! policy of one's own.
//!
//! The modules form a ladder; each calls only those below it:
//!
//! | rung | owns |
//! | --- | --- |
//! | [`Image`], [`Dir`], [`File`] (`api`) | paths and handles |
//! | `opening`, `ops` | opening, the verbs |
//! | `file`, `dir`, `xattr`, `inline` | contents, names, attributes |
//! | `map`, `inode` | file block to disk block; records in the tables |
//! | [`Volume`] | one attempt at a verb, syncs, readers of one moment |
//! | `tx` | what a verb hands down: the volume, its changes, its context |
//! | `space` | bitmaps, descriptors and the placement engines |
//! | `txn` | updates: all or nothing |
//! | `order`, `session` | in which order changes reach the device; what is known in memory only |
//! | `cache`, `dirty` | metadata blocks in memory, verified and sealed; written bytes that wait for their blocks |
//! | [`device`] | bytes |
//!
//! A verb is a function of `Tx`; what it reads and changes are views of it: `tx.map(&mut inode).unmap(blocks)`,
//! `tx.dir(&mut inode).add(name, ..)`, `tx.xattrs(..)`, `tx.contents(..)`. Readers have the same of a `View`.
//!
//! [`journal`] and [`mkfs`] stand beside the ladder; the latter uses only `device` and the format crate.
//!
//! The library never prints, reads no environment, and takes clock and randomness as values
//! ([`OpenOptions`]): what it writes is a function of its inputs.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![forbid(unsafe_code)]
#![warn(unnameable_types)]

mod admission;
mod api;
mod bits;
mod bytes;
mod cache;
mod charges;
pub mod check;
mod ciphers;
mod context;
mod crypt;
mod dir;
mod dirty;
mod error;
mod file;
mod format;
pub mod growth;
mod handles;
mod hashing;
mod inline;
mod inode;
pub mod journal;
mod keys;
mod locks;
mod map;
pub mod mkfs;
mod numbers;
mod opening;
mod ops;
mod options;
mod order;
pub mod placing;
pub mod quota;
mod ranges;
mod reclaiming;
mod role;
mod session;
pub mod shrink;
mod sizes;
mod space;
mod trim;
mod tx;
mod txn;
mod usage;
mod versioned;
mod versions;
mod volume;
mod write_batch;
mod xattr;
mod zone;

pub use admission::read_superblock;
pub use api::{Dir, Entry, File, FreeRuns, FreeSpace, Image, Pieces, ReadDir, Tree};
pub use dir::{DirEntry, DirName, NameSizes};
pub use dirty::ErrorCursor;
pub use error::{Error, Result};
pub use format::Format;
pub use keys::Key;
pub use map::{MapForm, Segment, State};
pub use ondisk;
pub use ondisk::inode::{FileType, InodeFlags, Timestamp};
pub use ondisk::units::InodeNumber;
pub use ops::{
    AccessTimes, Allocate, AttributeChange, Attributes, Bulk, CreateRequest, FileMap, Inherited, Kind,
    Leftovers, Loader, Metadata, NewInode, Node, Pin, Reader, Reclaimed, Relocated, Relocation,
    RelocationGoal, Removed, Replace, Seek, Times, Uses, Walk, Whole, WriteOptions, Writer, rights, rules,
};
pub use options::{DataMode, OpenOptions, WriteOrder};
pub use placement;
pub use platfs_device as device;
pub use volume::{Volume, for_process};
