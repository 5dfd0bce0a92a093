//! Builds ext2, ext3 and ext4 images from directories, tar archives and OCI images, and turns images back
//! into archives and directories.
//!
//! | module | owns |
//! | --- | --- |
//! | [`builder`] | a source becomes an image: sizes, formats, identifiers, the order of data |
//! | [`source`] | directories, tar archives, OCI layouts and docker-save archives as one tree |
//! | [`export`] | an image becomes an archive or a directory |
//! | [`archive`] | the tar format |
//! | [`output`] | new files, which appear whole or not at all |
//! | [`text`] | names in messages |
//!
//! The library never prints and reads no environment. What volumes look like, and how they are written, is
//! [`platfs`]'s.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod archive;
pub mod builder;
pub mod export;
pub mod output;
pub mod source;
pub mod text;
