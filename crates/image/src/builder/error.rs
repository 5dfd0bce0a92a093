//! Errors of builds, with the place and the remedy.

use std::io;
use std::path::{Path, PathBuf};

use super::fit;
use crate::source::SourceError;
use crate::text::Quoted;
use crate::watch::Cancelled;
use ondisk::invariant::BrokenInvariant;

/// Reason for which an image could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The source.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A defect of this program.
    #[error(transparent)]
    Internal(#[from] BrokenInvariant),
    /// A source became shorter while it was read.
    #[error("the source became shorter while it was read")]
    Shrunk,
    /// The volume, apart from any file.
    #[error("{0}")]
    Volume(#[from] platfs::Error),
    /// The volume, at a file.
    #[error("{path}: {error}{remedy}")]
    At {
        /// The file, quoted.
        path: String,
        /// Error of the library.
        error: platfs::Error,
        /// Format that would hold the file, if one would, in the options of mke2fs; with what goes before it.
        remedy: &'static str,
    },
    /// Fewer inodes were asked for than the contents need.
    #[error("{option}: {free} inodes are free for files, and the contents need {wanted}; {remedy}")]
    TooFewInodes {
        /// The option that says how many, as mke2fs calls it.
        option: &'static str,
        /// Free inodes of a fresh volume.
        free: u32,
        /// Those that are needed.
        wanted: u64,
        /// Option to ask for.
        remedy: String,
    },
    /// The contents do not fit the size that was asked for.
    #[error(
        "{error}: {given} bytes are too small for the contents; an image of automatic size has {automatic}"
    )]
    TooSmall {
        /// Bytes asked for.
        given: u64,
        /// Bytes that an image of automatic size has.
        automatic: u64,
        /// Where it failed.
        error: Box<BuildError>,
    },
    /// The contents do not fit a device that is there already.
    #[error("{error}: it has {given} bytes, and the contents need {least}; nothing was written")]
    DeviceTooSmall {
        /// Bytes that may be used.
        given: u64,
        /// Bytes of the smallest volume that holds the contents.
        least: u64,
        /// Error that says what is missing.
        error: Box<BuildError>,
    },
    /// The size that was asked for is more than a device has.
    #[error("it has {room} bytes, and {given} are asked for; nothing was written")]
    NoRoom {
        /// Bytes asked for.
        given: u64,
        /// Bytes there are.
        room: u64,
    },
    /// The older image that this one shall be like can't be its pattern.
    #[error("--like: {0}")]
    Like(String),
    /// Another format than raw, or something beside the image, on a device.
    #[error("other formats, maps of blocks and trees of hashes go with images that are files")]
    Device,
    /// The output.
    #[error("cannot {action} {}: {error}", path.display())]
    Output {
        /// Action that was tried.
        action: &'static str,
        /// The output.
        path: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
    /// The caller ended the work.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl BuildError {
    /// A failure of the volume at a file.
    pub(super) fn at(path: &[u8], error: platfs::Error, format: &platfs::Format) -> Self {
        let remedy = fit::remedy(&error, format);
        BuildError::At { path: Quoted(path).to_string(), error, remedy }
    }

    /// Names the file, unless the error says where already.
    pub(super) fn or_at(self, path: impl FnOnce() -> String, format: &platfs::Format) -> Self {
        match self {
            BuildError::Volume(error) => {
                let remedy = fit::remedy(&error, format);
                BuildError::At { path: path(), error, remedy }
            }
            other => other,
        }
    }

    /// A failure of the output at `path`.
    pub fn output(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| BuildError::Output { action, path: path.to_owned(), error }
    }

    /// Returns true if the caller ended the work, while the source was read or later.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(self, BuildError::Cancelled(_) | BuildError::Source(SourceError::Cancelled(_)))
    }

    /// Returns true if more space or inodes would help.
    pub(super) fn is_lack_of_room(&self) -> bool {
        let (BuildError::Volume(error) | BuildError::At { error, .. }) = self else { return false };
        matches!(error, platfs::Error::NoSpace | platfs::Error::NoInodes)
    }
}
