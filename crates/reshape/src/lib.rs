//! Changes of an ext2/3/4 volume that no mount makes: parameters, features, the shape.
//!
//! Owns: the draft of such a change in memory, judged by the check before a byte is written, and the ways to change a
//! volume in it. Excludes: files and names of a volume (`platfs`), the check itself (`platfs_check`), undo files,
//! locks and the terminal (the caller's).
//!
//! ```text
//!  image --read--> Draft --edits in memory--> Draft --judged by the check--> Change --apply--> image
//! ```

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![forbid(unsafe_code)]

pub mod draft;
mod error;
pub mod resize;
#[cfg(test)]
mod tests;
pub mod tune;

pub use error::{Error, Result};
