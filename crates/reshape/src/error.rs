//! Errors for which a volume is not changed.

/// Reason for which a volume is not changed. Nothing was written then, unless the device failed while a change was applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The volume can't be read.
    #[error(transparent)]
    Volume(#[from] platfs_device::Error),
    /// The volume as it is does not allow the change; the text says why, and the remedy if there is one.
    #[error("{0}")]
    Refused(String),
    /// No run is long enough for an inode table; the text says which.
    #[error("{0}")]
    NoRun(String),
    /// The volume's files would not fit.
    #[error("what the volume holds does not fit: {0} blocks more are needed at least")]
    NoRoom(u64),
    /// No volume could be changed so.
    #[error("{0}")]
    Usage(String),
    /// A defect of this program.
    #[error(transparent)]
    Internal(#[from] ondisk::invariant::BrokenInvariant),
}

/// The result of what changes a volume.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A failure of the device while doing `action`.
    pub fn io(action: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let action = action.into();
        move |source| Error::Volume(platfs_device::Error::io(action, source))
    }
}

/// A refusal.
///
/// # Errors
/// Always.
pub(crate) fn refused<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Refused(why.into()))
}

/// Makes an error for a broken rule of the format.
pub(crate) fn corrupt(place: ondisk::corrupt::Place, what: impl Into<String>) -> Error {
    Error::Volume(platfs_device::Error::corrupt(place, what))
}

impl From<platfs::Error> for Error {
    fn from(error: platfs::Error) -> Self {
        Error::Refused(error.to_string())
    }
}

impl From<ondisk::corrupt::Corrupt> for Error {
    fn from(corrupt: ondisk::corrupt::Corrupt) -> Self {
        Error::Volume(corrupt.into())
    }
}
