//! Errors between a volume and its store.

use std::io;
use std::time::Duration;

use platfs_device::invariant::BrokenInvariant;

/// A failure of a store, or of what it holds.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such object.
    #[error("{0}: no such object in the store")]
    Missing(String),
    /// There is no such volume.
    #[error("the store has no volume of that name")]
    NoVolume,
    /// An object of that name is there already.
    #[error("{0}: exists in the store")]
    Exists(String),
    /// The object was replaced since it was read.
    #[error("{0}: was replaced by another program meanwhile")]
    Conflict(String),
    /// An object is not what its name, its checksum or its format says.
    #[error("{object}: damaged in the store: {problem}")]
    Damaged {
        /// Its key.
        object: String,
        /// Broken rule.
        problem: String,
    },
    /// The store did not answer, or not in time. It may be tried again.
    #[error("the store does not answer: {0}")]
    Unavailable(String),
    /// The store has too much to do, and says when it may be tried again.
    #[error("the store asks for less: {why}")]
    Busy {
        /// Words of the store.
        why: String,
        /// Time to wait.
        after: Duration,
    },
    /// The store says no.
    #[error("the store refuses: {0}")]
    Refused(String),
    /// The volume could not be closed in order.
    #[error("{why}; {what}")]
    Unclosed {
        /// Last error of the store.
        why: Box<Error>,
        /// Data that the store does not have, and where it is.
        what: String,
    },
    /// Another host has the volume now; nothing more is written from here.
    #[error("another program has taken over the volume: {0}; nothing written since its last sync is kept")]
    Fenced(String),
    /// A volume of that name is open for writing.
    #[error("is open for writing: {0}; `PLAT_STORE_TAKEOVER=1` takes it over if that host is gone")]
    Open(String),
    /// The argument makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// A defect of this program.
    #[error(transparent)]
    Internal(#[from] BrokenInvariant),
    /// A file of this host failed.
    #[error("{action}: {why}")]
    Host {
        /// Action that failed.
        action: String,
        /// The system's words.
        why: String,
    },
}

/// The result of what speaks with a store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A complaint about an object's contents.
    pub(crate) fn damaged(object: impl Into<String>, problem: impl Into<String>) -> Self {
        Error::Damaged { object: object.into(), problem: problem.into() }
    }

    /// A failure of this host's own files.
    pub(crate) fn host(action: impl Into<String>, why: &io::Error) -> Self {
        Error::Host { action: action.into(), why: why.to_string() }
    }

    /// True if the same request may succeed later.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(self, Error::Unavailable(_) | Error::Busy { .. })
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Missing(_) | Error::NoVolume => io::ErrorKind::NotFound,
            Error::Damaged { .. } => io::ErrorKind::InvalidData,
            Error::Unavailable(_) | Error::Busy { .. } => io::ErrorKind::TimedOut,
            Error::Refused(_) => io::ErrorKind::PermissionDenied,
            Error::Open(_) => io::ErrorKind::ResourceBusy,
            Error::Exists(_) => io::ErrorKind::AlreadyExists,
            Error::Invalid(_) => io::ErrorKind::InvalidInput,
            Error::Unclosed { why, .. } => {
                return io::Error::new(io::Error::from((**why).clone()).kind(), error);
            }
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
