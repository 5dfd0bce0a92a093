//! Faults of an archive, and its mere oddities. Each names its place.

use super::acl::AclError;
use super::pax::PaxError;
use super::sparse::SparseError;
use crate::text::Quoted;
use std::fmt;
use std::io;

/// Fault at one place of an archive.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The device failed.
    #[error("cannot read: {0}")]
    Io(#[from] io::Error),
    /// The archive ends within an entry.
    #[error("the archive is cut short: {needed} bytes are needed, {present} are there")]
    Truncated {
        /// Length that it would need.
        needed: u64,
        /// Length that it has.
        present: u64,
    },
    /// The very first block is no header.
    #[error("this is no tar archive: a source must be a directory, a tar archive or a container image")]
    NotTar,
    /// A header's checksum does not hold.
    #[error("no tar header stands here (its checksum is wrong)")]
    Checksum,
    /// A field that holds no number, or one out of range.
    #[error("the header field {0} holds no valid number")]
    Field(&'static str),
    /// See [`PaxError`].
    #[error(transparent)]
    Pax(#[from] PaxError),
    /// See [`SparseError`].
    #[error(transparent)]
    Sparse(#[from] SparseError),
    /// See [`AclError`].
    #[error(transparent)]
    Acl(#[from] AclError),
    /// An extended header, path or target longer than [`super::limits`] allows.
    #[error("{what} of {len} bytes is longer than the limit of {limit}")]
    Long {
        /// Thing that is too long, in words.
        what: &'static str,
        /// Its length.
        len: u64,
        /// The bound.
        limit: u64,
    },
    /// A name with a NUL byte, or an empty one where one is needed.
    #[error("{0} is empty or contains a NUL byte")]
    Name(&'static str),
    /// A kind of entry that cannot be turned into a file.
    #[error("entries of type {:?} are not supported", char::from(*.0))]
    Type(u8),
    /// Extended headers with no entry after them.
    #[error("extended headers stand at the end, and no entry follows")]
    Dangling,
}

/// A problem and its place.
#[derive(Debug)]
pub struct TarError {
    /// The byte of the archive where the header concerned begins.
    pub offset: u64,
    /// The entry's path, once known.
    pub path: Option<Vec<u8>>,
    /// The fault. Boxed: errors are rare and results travel often.
    pub problem: Box<Problem>,
}

impl fmt::Display for TarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "entry {}: ", Quoted(path))?;
        }
        write!(f, "{} (at byte {} of the archive)", self.problem, self.offset)
    }
}

impl std::error::Error for TarError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.problem {
            Problem::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// Something odd that did not keep the archive from being read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TarWarning {
    /// The two zero blocks at the end are missing: the archive may have been cut between entries.
    NoEndMarker,
    /// A single zero block between entries.
    LoneZeroBlock {
        /// Its place.
        offset: u64,
    },
    /// An entry without meaning for a file system was left out.
    Skipped {
        /// Its place.
        offset: u64,
        /// Its type letter.
        type_flag: u8,
    },
    /// More than a tape record's padding follows the end marker; it is not read.
    Trailing {
        /// The place after the marker.
        offset: u64,
        /// Number of bytes that follow.
        len: u64,
    },
}

impl fmt::Display for TarWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEndMarker => write!(f, "the archive has no end marker; it may be cut short"),
            Self::LoneZeroBlock { offset } => write!(f, "a lone zero block at byte {offset}"),
            Self::Skipped { offset, type_flag } => {
                write!(f, "an entry of type {:?} at byte {offset} is left out", char::from(*type_flag))
            }
            Self::Trailing { offset, len } => {
                write!(f, "{len} bytes after the archive's end marker (byte {offset}) are not read")
            }
        }
    }
}
