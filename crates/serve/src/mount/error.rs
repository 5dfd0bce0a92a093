//! Errors of a mount: it does not come about, does not do what it is asked, or can't be closed in order.
//!
//! Owns: the reason, and what it is about. Excludes the words and numbers, which are those of the errors below.

use std::io;

use platfs_host::errno_of;
use platfs_open::image::ImageError;
use platfs_open::keys::KeyError;

use crate::refusal::Refusal;

/// A failure to mount, of live work in a mount, or of a mount at its end, about an image, a directory or a path.
#[derive(Debug, thiserror::Error)]
#[error("{subject}: {why}")]
pub struct MountError {
    /// The image, directory or path, as it is shown.
    pub subject: String,
    /// The reason.
    pub why: Why,
}

impl MountError {
    /// The number that Linux has for it.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match &self.why {
            Why::Image(error) => error.errno(),
            Why::Key(error) => error.errno(),
            Why::Host(error) => errno_of(error),
            Why::Said(refusal) => refusal.errno,
        }
    }
}

/// The reason of a [`MountError`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// The image can't be opened.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A key can't be had.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The system says no.
    #[error(transparent)]
    Host(#[from] io::Error),
    /// In words, with the remedy.
    #[error(transparent)]
    Said(#[from] Refusal),
}

impl From<String> for Why {
    fn from(text: String) -> Self {
        Why::Said(text.into())
    }
}

impl From<&str> for Why {
    fn from(text: &str) -> Self {
        Why::Said(text.into())
    }
}
