//! The half of the page that is Rust: a disk that the browser reads for it, and questions about the volume on it, asked
//! and answered in JSON.
//!
//! | module | owns |
//! | --- | --- |
//! | `boundary` | what JavaScript calls and is called for; the only unsafe code |
//! | `session` | the disk, the volume that is open, and which question goes where |
//! | `browse` | directories, files, attributes, extents |
//! | `survey` | the superblock, groups, the map |
//! | `look` | the check and the search, which report while they run |
//! | `pieces` | a disk of which pieces are kept in memory |
//!
//! Everything runs in a worker of the page, one call at a time. Nothing is ever written.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

#[cfg(target_arch = "wasm32")]
mod boundary;
mod browse;
mod look;
mod pieces;
mod session;
mod survey;
#[cfg(test)]
mod tests;

pub use pieces::{Pieces, Source};
pub use session::{Events, Session};
