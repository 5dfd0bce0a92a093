//! Where images come from: directories, tar archives, OCI layouts and docker-save archives.
//!
//! Every source is read into one [`Catalogue`]: the merged tree that the image shall hold, with the
//! place of each file's data but without the data. [`crate::builder`] walks it in canonical order and copies.
//!
//! | module | owns |
//! | --- | --- |
//! | [`catalogue`] | the tree, its construction and its canonical walk |
//! | `attributes` | what is said of a file beside name, kind and contents |
//! | `data` | reading the contents of files, with read-ahead |
//! | `input` | archives at known places: files, spools, sections of them |
//! | `compression` | recognising and undoing gzip, zstd, xz |
//! | `tar` | archive entries into a catalogue; layers with whiteouts |
//! | `directory` | a directory of the host into a catalogue |
//! | `oci` | image layouts and docker-save archives: which layers, digests |
//! | `options`, `filter` | what is left out, whose the files become, which times are allowed |
//! | `owners` | names of owners, from the source itself |
//! | `foreign`, `capability` | what is no archive, by name; the root user of capabilities |
//! | `overlayfs`, `whiteout` | whiteouts and attributes of overlayfs in layers; whiteouts by their names |
//! | `open` | what a source is, by its content |
//! | `devices`, `contexts`, `fs_config`, `lines` | tables beside a source: devices and owners, labels, Android's owners |
//! | `reading` | what goes along: the place of spools, progress, oddities |
//!
//! A new kind of source takes four steps: a module whose `read` puts entries into a [`CatalogueBuilder`] and counts
//! them with the meter of `reading`; its recognition by content in `open`; its failures in [`SourceError`]; a case in
//! `crates/cli/tests/all/build_sources.rs`. A program that has its tree in memory needs none of them: it fills a
//! [`CatalogueBuilder`] and makes a [`Source`] of it.
//!
//! `archived`, `oci` and `tar` are there with the feature `archives` only; `archived_left_out` stands for the first without it.
//!
//! This module excludes the tar format itself ([`crate::archive`]) and everything about images.

#[cfg(feature = "archives")]
mod archived;
#[cfg(not(feature = "archives"))]
#[path = "archived_left_out.rs"]
mod archived;
mod attributes;
mod bounds;
mod capability;
pub mod catalogue;
mod compression;
mod contexts;
mod data;
mod devices;
mod directory;
mod error;
mod filter;
mod foreign;
mod fs_config;
mod input;
mod lines;
#[cfg(feature = "archives")]
mod oci;
mod open;
mod options;
mod overlayfs;
mod owners;
mod reading;
#[cfg(feature = "archives")]
mod tar;
pub(crate) mod whiteout;

pub use catalogue::{Catalogue, CatalogueBuilder, NodeId, NodeKind};
pub use contexts::FileContexts;
pub use data::DataReader;
pub use devices::DeviceTable;
pub use error::{SourceError, SourceWarning};
pub use filter::{FilterError, IdRange, Owner, OwnerId};
pub use fs_config::FsConfig;
pub use input::Section;
pub use open::{Layer, Source};
pub use options::SourceOptions;
