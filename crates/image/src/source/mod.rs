//! Where images come from: directories, tar archives, OCI layouts and docker-save archives.
//!
//! Every source is read into one [`Catalogue`]: the merged tree that the image shall hold, with the
//! place of each file's data but without the data. `build` walks it in canonical order and copies.
//!
//! | module | owns |
//! | --- | --- |
//! | [`catalogue`] | the tree, its construction and its canonical walk |
//! | [`data`] | reading the contents of files, with read-ahead |
//! | [`input`] | archives at known places: files, spools, sections of them |
//! | [`compression`] | recognising and undoing gzip, zstd, xz |
//! | [`tar`] | archive entries into a catalogue; layers with whiteouts |
//! | [`directory`] | a directory of the host into a catalogue |
//! | [`oci`] | image layouts and docker-save archives: which layers, digests |
//! | [`filter`] | what is left out, whose the files become, which times are allowed |
//! | [`owners`] | names of owners, as the source tells them |
//! | [`open()`] | what a source is, by its content |
//!
//! This module excludes the tar format itself (`archive`) and everything about images.

pub mod catalogue;
pub mod compression;
pub mod data;
pub mod directory;
mod error;
pub mod filter;
pub mod input;
pub mod oci;
mod open;
pub mod owners;
pub mod tar;

pub use catalogue::{Builder, Catalogue, NodeId, NodeKind};
pub use data::DataReader;
pub use error::{SourceError, SourceWarning};
pub use filter::Options;
pub use open::{Opened, open, open_stream};
