//! Volumes on object stores: images as chunks that all images share, and volumes that are written as logs of objects.
//!
//! Owns: the format ([`format`](mod@format), `docs/store.md` byte by byte), the stores that objects lie in ([`objects`]),
//! and volumes as a [`Device`](platfs_device::Device): [`Stored`] to read, [`Volume`] to write. Excludes file systems: a
//! volume is bytes here.
//!
//! `file://` and memory need no further crate. S3, Google Cloud Storage and Azure are features (`s3`, `gs`, `az`).

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![forbid(unsafe_code)]

mod address;
mod ahead;
mod cache;
mod census;
mod cleaning;
mod compacting;
mod error;
mod extents;
mod fetching;
mod forking;
pub mod format;
mod holder;
mod keys;
mod known;
mod leases;
mod local;
mod marks;
mod masking;
pub mod objects;
mod pieces;
mod pushing;
mod random;
mod reading;
mod renewal;
mod replay;
mod store;
mod survey;
#[cfg(test)]
mod tests;
mod together;
mod view;
mod volume;

pub use address::{Address, is_address};
pub use cache::Cache;
pub use cleaning::{Cleaned, clean};
pub use compacting::{Compacted, compact};
pub use error::{Error, Result};
pub use forking::{fork, remove, rename};
pub use keys::{Kind, id_of, key_of, key_of_log, key_of_manifest};
pub use local::LocalLog;
pub use marks::{is_made, ready};
pub use masking::masked;
pub use pieces::Pieces;
pub use pushing::{Push, Pushed, Watch, push};
pub use reading::Stored;
pub use store::Store;
pub use survey::{Finding, Stats, stats, verify, volumes};
pub use volume::Volume;
