//! The bytes of ext2, ext3 and ext4 volumes as typed values, and back.
//!
//! This crate owns the format and nothing else: it does no I/O, keeps no caches, takes no decisions
//! about placement or order, has no `unsafe` and never panics on any bytes.
//!
//! ```text
//!  byte 0   1024                                                                    end
//!  | boot  | superblock |  group 0                | group 1 ... | group N-1         |
//!                       |  [superblock + descriptors + reserved descriptors]        |
//!                       |  block bitmap, inode bitmap, inode table, data blocks     |
//! ```
//!
//! Reading order: [`units`], [`superblock`], [`geometry`], [`group`], [`inode`], then the maps
//! ([`extent`], [`block_map`]) and directories ([`dirent`], [`htree`], [`dirhash`]). [`seal`] holds every checksum, [`corrupt`] every
//! complaint about bytes, and [`invariant`](mod@invariant) every complaint about our own code.
//!
//! Each structure comes in two layers: a raw struct with the kernel's field names that keeps every
//! bit, and checked accessors with our names. Writing edits the raw struct, so bits that this code
//! does not know survive (I12).

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![forbid(unsafe_code)]

pub mod acl;
pub mod block_map;
pub mod corrupt;
pub mod dirent;
pub mod dirhash;
pub mod encryption;
pub mod extent;
pub mod features;
pub mod file_size;
pub mod geometry;
pub mod group;
pub mod htree;
pub mod inode;
pub mod invariant;
pub mod journal;
pub mod mmp;
pub mod orphan_file;
pub mod quota;
pub mod seal;
pub mod superblock;
pub mod units;
pub mod unseal;
pub mod xattr;
