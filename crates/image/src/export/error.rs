//! Errors that end an export, with the file.

use crate::archive::WriteError;
use crate::text::Shown;
use crate::watch::Cancelled;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Error that ended an export.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// Something in the image cannot be read.
    #[error("{}: {error}", ShownPath(path))]
    Image {
        /// The path in the image.
        path: Vec<u8>,
        /// The library's words.
        error: platfs::Error,
    },
    /// Something in the older of two images cannot be read.
    #[error("{} in the older image: {error}", ShownPath(path))]
    Older {
        /// The path in both images.
        path: Vec<u8>,
        /// The library's words.
        error: platfs::Error,
    },
    /// A file whose name would be a whiteout in a layer.
    #[error(
        "{}: a layer can't hold a name that begins with .wh., which stands for a removal",
        ShownPath(path)
    )]
    Whiteout {
        /// The path in the image.
        path: Vec<u8>,
    },
    /// A name or target that nothing outside the image can have.
    #[error(
        "{}: {what} is empty, too long, or holds a slash or NUL; `plat check` shows more, and repairs it",
        ShownPath(path)
    )]
    Name {
        /// The path in the image.
        path: Vec<u8>,
        /// Part that is wrong: the name, or the link's target.
        what: &'static str,
    },
    /// The files of a damaged image claim more data than it has room for.
    #[error(
        "{}: the files hold more data than the volume: blocks are used twice; `plat check` shows more, and repairs it",
        ShownPath(path)
    )]
    Budget {
        /// The file at which the sum was exceeded.
        path: Vec<u8>,
    },
    /// The caller did not permit it.
    #[error("{}: permission denied", ShownPath(path))]
    Denied {
        /// The path in the image.
        path: Vec<u8>,
    },
    /// The archive cannot be written.
    #[error("{}: {error}", ShownPath(path))]
    Archive {
        /// The path in the image.
        path: Vec<u8>,
        /// Reason.
        error: WriteError,
    },
    /// A file of the host cannot be made.
    #[error("cannot {action} {}: {error}", path.display())]
    Host {
        /// Action that was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
    /// The output can't be made, or get its name.
    #[error("{}: {error}", path.display())]
    Output {
        /// The output.
        path: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
    /// The caller ended the work.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl ExportError {
    /// Returns true if the image is the reason, in something that others can be exported without.
    #[must_use]
    pub fn is_of_image(&self) -> bool {
        matches!(self, Self::Image { .. } | Self::Name { .. } | Self::Budget { .. })
    }
}

/// A path below the exported directory, which itself is a dot.
struct ShownPath<'a>(&'a [u8]);

impl fmt::Display for ShownPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Shown(if self.0.is_empty() { b"." } else { self.0 }).fmt(f)
    }
}
