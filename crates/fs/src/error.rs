//! Errors of the library, in the families a caller can act on.

use std::io;

use ondisk::corrupt::{Corrupt, Place};
use ondisk::invariant::BrokenInvariant;
use ondisk::quota::QuotaKind;
use ondisk::units::BlockRun;

use crate::device;

/// Any failure of the library.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error("{action}: {source}")]
    Io {
        /// Action that failed, with its place.
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
    /// No free block is left.
    #[error("no space left on the volume")]
    NoSpace,
    /// No free inode is left.
    #[error("no inode left on the volume")]
    NoInodes,
    /// The name does not exist.
    #[error("no such file or directory")]
    NotFound,
    /// The name exists already.
    #[error("file exists")]
    Exists,
    /// A directory is needed here.
    #[error("not a directory")]
    NotDirectory,
    /// Not possible on a directory.
    #[error("is a directory")]
    IsDirectory,
    /// A directory with names in it.
    #[error("directory not empty")]
    NotEmpty,
    /// The flags of a file forbid it to all users.
    #[error("operation not permitted: {0}")]
    NotPermitted(&'static str),
    /// The directory's files belong to another project, which the file would have to join.
    #[error("the directory belongs to another project")]
    CrossProject,
    /// An id would use more than its limits allow.
    #[error("disk quota exceeded: {kind} {id} ({what})")]
    QuotaExceeded {
        /// Whose limit it is.
        kind: QuotaKind,
        /// The user, group or project.
        id: u32,
        /// Resource of which there would be too much.
        what: &'static str,
    },
    /// A name of more than 255 bytes.
    #[error("name too long ({0} bytes, at most 255)")]
    NameTooLong(usize),
    /// The file would outgrow what its map can hold.
    #[error("file too large: {0}")]
    FileTooLarge(String),
    /// A symbolic link's target that has no place in a block.
    #[error("a symbolic link's target has 1 to {1} bytes and no NUL, not {0}")]
    LinkTooLong(usize, usize),
    /// The extended attributes of an inode exceed what the format has room for.
    #[error("extended attributes too large: {0}")]
    XattrsTooLarge(String),
    /// The directory can't take another name.
    #[error("directory full: {0}")]
    DirectoryFull(String),
    /// The inode has as many names as the format can count.
    #[error("too many links")]
    TooManyLinks,
    /// Symbolic links lead to each other.
    #[error("too many levels of symbolic links")]
    SymlinkLoop,
    /// The argument makes no sense.
    #[error("invalid argument: {0}")]
    Invalid(String),
    /// An option for a new volume is wrong by itself or beside the others.
    #[error("{option}: {problem}")]
    BadOption {
        /// The option, as mke2fs calls it.
        option: &'static str,
        /// The value, and what is wrong with it.
        problem: String,
    },
    /// The change is larger than the journal, and of a kind that is made as a whole or not at all.
    #[error("unsupported: one change of {blocks} blocks, at most {most} have room in the journal")]
    TooLargeForLog {
        /// Blocks that it changes.
        blocks: usize,
        /// Blocks that a transaction may change.
        most: usize,
    },
    /// A file is encrypted, and no key for it is known.
    #[error("encrypted, and its key is not known")]
    Locked,
    /// Metadata could not be written earlier; the volume is not written any more.
    #[error("an earlier write failed: nothing more is written; check the volume")]
    WriteFailed,
    /// Another host has the volume, as its mark of multiple mount protection says; the text names it.
    #[error("in use by another host, as its mark of multiple mount protection says: {0}")]
    InUse(String),
    /// Another host has taken the volume while it was open here.
    #[error("another host has taken the volume (multiple mount protection): nothing more is written")]
    TakenOver,
    /// The volume was opened for reading only.
    #[error("the volume is open for reading only")]
    ReadOnly,
    /// A defect of this program: the call failed, and the volume may not be what it should.
    #[error(transparent)]
    Internal(#[from] BrokenInvariant),
}

/// The library's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A corruption complaint: `problem` completes "PLACE: ...".
    pub fn corrupt(place: Place, problem: impl Into<String>) -> Self {
        Error::Corrupt(Corrupt::new(place, problem))
    }

    /// A wrong option for a new volume.
    pub(crate) fn option(option: &'static str, problem: impl Into<String>) -> Self {
        Error::BadOption { option, problem: problem.into() }
    }

    /// A device failure while doing `action`.
    pub fn io(action: impl Into<String>, source: io::Error) -> Self {
        Error::Io { action: action.into(), source }
    }
}

/// Why an attempt at a verb came to no end.
#[derive(Debug)]
pub(crate) enum Flow {
    /// A block was not in memory, and the attempt may not wait for the device: it is begun again once the block is there,
    /// with those behind it that are worth reading too.
    Missing(BlockRun),
    /// There is no room for its changes before what was changed so far is committed: then it is begun again.
    Full,
    /// It can't be done.
    Failed(Error),
}

impl From<Error> for Flow {
    fn from(error: Error) -> Self {
        Flow::Failed(error)
    }
}

impl From<BrokenInvariant> for Flow {
    fn from(broken: BrokenInvariant) -> Self {
        Flow::Failed(broken.into())
    }
}

impl Flow {
    /// Error of an attempt that is not retried.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Flow::Failed(error) => error,
            Flow::Missing(run) => {
                Error::io(format!("reading block {}", run.start), io::ErrorKind::WouldBlock.into())
            }
            Flow::Full => Error::io("waiting for a commit", io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl From<device::Error> for Error {
    fn from(error: device::Error) -> Self {
        match error {
            device::Error::Io { action, source } => Error::Io { action, source },
            device::Error::Corrupt(corrupt) => Error::Corrupt(corrupt),
            device::Error::Unsupported(problem) => Error::Unsupported(problem),
            device::Error::InUse(host) => Error::InUse(host),
            device::Error::Invalid(problem) => Error::Invalid(problem),
            device::Error::Internal(broken) => Error::Internal(broken),
            // Fast commits are no obstacle where there is a writer.
            other => Error::Unsupported(other.to_string()),
        }
    }
}
