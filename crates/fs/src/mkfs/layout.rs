//! Where the structures of a volume lie, for those that change its shape later.
//!
//! Excludes: what is in them, and the plan of a new volume.

pub use super::resize::{copies as reserved_copies, fill as fill_resize_inode, reserved as reserved_blocks};
pub use super::runs::Runs;
pub use super::tables::{Layout, Pack, Tables, superblock_groups};
