//! Why there is no mount.

use std::io;

use platfs_open::image::ImageError;
use platfs_open::keys::KeyError;

/// A failure to mount, or of a mount at its end, about an image or a directory.
#[derive(Debug, thiserror::Error)]
#[error("{subject}: {why}")]
pub struct MountError {
    /// The image or directory, as it is shown.
    pub subject: String,
    /// The reason.
    pub why: Why,
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
    #[error("{0}")]
    Said(String),
}

impl From<String> for Why {
    fn from(text: String) -> Self {
        Why::Said(text)
    }
}

impl From<&str> for Why {
    fn from(text: &str) -> Self {
        Why::Said(text.to_owned())
    }
}
