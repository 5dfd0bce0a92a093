//! Tools that the tests of platfs share: nothing here is part of the product.
//!
//! - [`again`]: a test that runs once more in a process of its own.
//! - [`browser`]: a browser without a window.
//! - [`clock`]: the time that the reference tools see.
//! - [`scratch`]: a directory that is removed again.
//! - [`tool`]: running the reference tools, and saying loudly what cannot run here.
//! - [`mount`]: the kernel's (or fuse2fs's) view of an image, as a guard that unmounts.
//! - [`fsck`]: `e2fsck -fn` as a judge.
//! - [`snapshot`]: a tree as a list of facts, and the differences between two.
//! - [`view`]: the tree of an image by the kernel or fuse2fs.
//! - [`odd`]: a source tree with every oddity.
//! - [`sparse`]: images on disk, with holes in place of zeros.
//! - [`mapped`]: a part of a file in memory.
//! - [`random`]: numbers from a seed.
//! - [`unclean`]: images as a crash of the kernel leaves them, with changes in the journal.
//! - [`many`]: an archive of any number of small files.
//! - [`images`]: golden images by the reference tools, each with a premise that is checked.
//!
//! Functions of this crate panic with a readable message when the machine does not do what a test needs: that is a failed test. What
//! the machine cannot do at all (no root, no loop device, a missing tool) is asked beforehand, and skipped by [`tool::skip`].

pub mod again;
pub mod browser;
pub mod clock;
pub mod fsck;
pub mod images;
pub mod many;
pub mod mapped;
pub mod mount;
pub mod odd;
pub mod random;
pub mod scratch;
pub mod snapshot;
pub mod sparse;
pub mod tool;
pub mod unclean;
pub mod view;

/// The tutorial's program runs with the other tests. It stands here because a published package can't include what lies
/// outside of its directory.
#[cfg(doctest)]
#[doc = include_str!("../../../research/docs/tutorial.md")]
struct Tutorial;
