//! A volume as a directory of the running system.
//!
//! Owns: mount options, the server of a mount from its beginning to its end, and the translation of the kernel's requests to
//! verbs on a volume. Excludes the conversation with the kernel, which is the crate `fuse`'s, and arguments, messages and the
//! process in the background, which are the command's.

pub mod appearance;
mod errno;
pub mod error;
mod keeper;
pub mod log;
pub mod moving;
pub mod opening;
pub mod options;
pub mod outside;
mod passing;
pub mod places;
pub mod prefetch;
mod questions;
pub mod quotas;
pub mod remount;
mod serving;
pub mod statistics;
pub mod trace;
pub mod tree;
pub mod trimming;
pub mod tuning;

pub use options::MountOptions;
pub use serving::{Mount, Mounted, Prepared, connection, usual_threads};
