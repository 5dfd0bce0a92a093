//! Serves a volume to others: as a mount of the running system, with changes of it while it is used, and as a network block
//! device.
//!
//! | module | owns |
//! | --- | --- |
//! | [`mount`] | a volume as a directory: options, the translation of the kernel's requests, threads |
//! | [`live`] | live verbs: copies, removals, snapshots, another size, quota, of a mounted volume |
//! | [`control`] | the protocol of live verbs between a program and the server of a mount |
//! | [`bulk`] | work on many files: copies, removals, archives, defragmentation, snapshots |
//! | [`nbd`] | a volume's bytes as a network block device |
//! | [`sandbox`] | the cage of a server: all that it gives up before it looks at an image |
//! | [`sizes`], [`free_runs`] | figures in reports |
//! | [`refusal`] | refusals in words, with their numbers |
//!
//! ```no_run
//! use platfs_serve::live::Live;
//! use platfs_serve::mount::Mount;
//!
//! let mut mounted = Mount::image("disk.img", "noatime".parse()?)?.at("/mnt")?;
//! std::fs::create_dir("/mnt/new")?;
//! Live::at("/mnt").snapshot(&std::fs::File::create_new("snapshot.img")?)?;
//! mounted.unmount()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Excludes arguments, output and the process in the background, which are the command's; opening an image by its name, which
//! is `platfs_open`'s; and the conversation with the kernel, which is the crate `fuse`'s.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod bulk;
pub mod control;
pub mod free_runs;
pub mod live;
pub mod mount;
pub mod nbd;
pub mod refusal;
pub mod sandbox;
pub mod sizes;
