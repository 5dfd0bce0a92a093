//! The ext2/3/4 file system in user space.
#![forbid(unsafe_code)]
#![allow(dead_code)] // while the ladder is being built rung by rung

mod cache;
pub mod device;
mod error;
mod format;
mod inode;
mod map;
mod space;
mod txn;

pub use error::{Error, Result};
