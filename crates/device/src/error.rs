//! Errors below the verbs: the device, the bytes, or a limit of this code.

use std::io;

use ondisk::corrupt::{Corrupt, Place};
use ondisk::invariant::BrokenInvariant;

/// A failure of reading a volume, replaying its journal or checking it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error("{action}: {source}")]
    Io {
        /// Action that failed, with the place.
        action: String,
        /// The device's own words.
        source: io::Error,
    },
    /// The volume breaks a rule of the format.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The volume needs something that this code does not do; neither its fault nor the caller's.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// Another host has the volume, as its mark of multiple mount protection says; the text names it.
    #[error("in use by another host, as its mark of multiple mount protection says: {0}")]
    InUse(String),
    /// The argument makes no sense.
    #[error("invalid argument: {0}")]
    Invalid(String),
    /// The journal ends with fast commits, and the caller has no writer that could bring them in.
    #[error(
        "unsupported: the journal ends with {0} fast commits, which only a writer can bring in: have the volume \
         mounted once"
    )]
    FastCommits(u32),
    /// A defect of this program.
    #[error(transparent)]
    Internal(#[from] BrokenInvariant),
}

/// The result of what reads volumes.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A corruption complaint: `problem` completes "PLACE: ...".
    pub fn corrupt(place: Place, problem: impl Into<String>) -> Self {
        Error::Corrupt(Corrupt::new(place, problem))
    }

    /// A device failure while doing `action`.
    pub fn io(action: impl Into<String>, source: io::Error) -> Self {
        Error::Io { action: action.into(), source }
    }
}
