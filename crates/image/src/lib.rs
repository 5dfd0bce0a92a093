//! Builds ext2, ext3 and ext4 images from directories, tar archives and OCI images, and turns images back
//! into archives and directories. Without root, without a mount, without other programs.
//!
//! ```
//! use platfs_image::{Builder, Size, Source};
//! # let directory = tempfile::tempdir()?;
//! # std::fs::create_dir(directory.path().join("tree"))?;
//! # std::fs::write(directory.path().join("tree/hello"), "hello")?;
//! # let (tree, image) = (directory.path().join("tree"), directory.path().join("disk.img"));
//!
//! let source = Source::open(&tree)?;
//! let built = Builder::new(&source).size(Size::Min).build(&image)?;
//! println!("{} files in {} bytes", built.contents.files, built.bytes);
//! # assert_eq!(built.contents.files, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Source`] is a directory, a tar archive (plain or packed with gzip, zstd or xz), an OCI image layout, a
//! docker-save archive, or a tree that a program makes with a [`CatalogueBuilder`]. A [`Builder`] makes an image of it,
//! as a new file or on any [`platfs::device::Device`]. An [`Exporter`] goes the other way.
//!
//! Each of the three shows its progress to a [`Watch`], which can end the work. Errors name the file, the entry or the
//! structure, and what would help. What fails or is ended leaves no half-written file behind.
//!
//! | module | owns |
//! | --- | --- |
//! | [`builder`] | a source becomes an image: sizes, formats, identifiers, the order of data |
//! | [`source`] | directories, tar archives, OCI layouts and docker-save archives as one tree |
//! | [`disk`] | images in the formats of others, and what goes beside them |
//! | [`export`] | an image becomes an archive or a directory |
//! | [`archive`] | the tar format |
//! | [`output`] | new files, which appear whole or not at all |
//! | [`named`], [`size`] | what users call images and parts of disks; sizes as they write them |
//! | [`clock`] | the time that is written into volumes |
//! | [`watch`] | progress, and ending the work |
//! | [`text`] | names in messages |
//!
//! The library never prints, and reads nothing of the environment but where temporary files go. An image is a function
//! of its source and the builder's options. What volumes look like, and how they are written, is [`platfs`]'s.
//!
//! [`CatalogueBuilder`]: source::CatalogueBuilder

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![forbid(unsafe_code)]
#![deny(missing_docs, unnameable_types)]
// Without archives, parts of the catalogue and its bounds that only they use are left alone.
#![cfg_attr(not(feature = "archives"), allow(dead_code))]

// The examples, which are tested, name the crate as its users do.
#[cfg(test)]
extern crate self as platfs_image;

pub mod archive;
pub mod builder;
pub mod clock;
pub mod disk;
pub mod export;
pub mod named;
pub mod output;
pub mod size;
pub mod source;
#[cfg(test)]
mod tests;
pub mod text;
pub mod watch;

pub use builder::{BuildError, Builder, Built, Free, Size};
pub use export::{ExportError, Exporter, Packing};
pub use source::{IdRange, Owner, Source, SourceError, SourceOptions};
pub use watch::{Cancelled, Progress, Stage, Watch};
