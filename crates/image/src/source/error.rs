//! Errors of sources that cannot become an image, and warnings about odd ones.

use super::catalogue::CatalogueError;
use super::filter::FilterError;
use crate::archive::{TarError, TarWarning};
use crate::text::Quoted;
use crate::watch::Cancelled;
use ondisk::invariant::BrokenInvariant;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Reason for which a source cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// A file or directory of the host failed.
    #[error("cannot {action} {}: {error}", path.display())]
    Host {
        /// The attempt: "open", "read".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
    /// A defect of this program.
    #[error(transparent)]
    Internal(#[from] BrokenInvariant),
    /// There is no room for the file that keeps an unpacked archive or a stream meanwhile.
    #[error("{}: no room for what is unpacked, or comes as a stream ({error}); TMPDIR names another directory", place.display())]
    Spool {
        /// The directory of that file.
        place: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
    /// A stream that is no archive; it may have no end.
    #[error("{stream}: is no tar archive: it does not begin with the header of an entry")]
    NoArchive {
        /// The stream, as given.
        stream: String,
    },
    /// A file that is no archive, but a volume, a disk or the like.
    #[error("{archive}: is {is}; a source is a directory, an archive or a container image")]
    Foreign {
        /// The source, as given.
        archive: String,
        /// Its kind.
        is: &'static str,
    },
    /// An archive, or an image made of layers, and this build reads none.
    #[error("{archive}: only directories can be read: this build was made without archives")]
    LeftOut {
        /// The source, as given.
        archive: String,
    },
    /// An archive is broken.
    #[error("{archive}: {error}")]
    Tar {
        /// The archive, as given.
        archive: String,
        /// The fault and its place.
        error: TarError,
    },
    /// An entry cannot stand in a file system's tree.
    #[error("{archive}: {error}")]
    Tree {
        /// The source, as given.
        archive: String,
        /// The fault and its place.
        error: CatalogueError,
    },
    /// Compressed data are broken.
    #[error("{archive}: cannot decompress ({format}): {error}")]
    Compression {
        /// The archive, as given.
        archive: String,
        /// The format's name.
        format: &'static str,
        /// The decoder's answer.
        error: io::Error,
    },
    /// A source becomes more bytes than it may: those that all its archives and layers unpack to, or blocks of data that
    /// lie scattered in sparse files.
    #[error(
        "{archive}: a source of {packed} bytes becomes {unpacked} and more: {}; a larger limit (--max-size) takes it",
        if *given { "past the limit that was given" } else { "no archive of files is packed so well" }
    )]
    TooLarge {
        /// The archive or layer where the limit was passed.
        archive: String,
        /// Bytes of the source.
        packed: u64,
        /// Bytes that they became.
        unpacked: u64,
        /// The limit was said, and is not the usual one.
        given: bool,
    },
    /// A source names more files and attributes than it may.
    #[error(
        "{archive}: the names and attributes in {bytes} bytes of a source take {memory} bytes of memory and more: {}; \
        a larger limit (--max-size) takes it",
        if *given { "past the limit that was given" } else { "no archive holds so many" }
    )]
    TooMany {
        /// The archive or layer where the limit was passed.
        archive: String,
        /// Bytes of the source.
        bytes: u64,
        /// Memory that the tree takes.
        memory: u64,
        /// The limit was said, and is not the usual one.
        given: bool,
    },
    /// An OCI layout or docker-save archive contradicts itself or asks for what is not there.
    #[error("{image}: {problem}")]
    Image {
        /// The source, as given.
        image: String,
        /// The fault, and the remedy where there is one.
        problem: String,
    },
    /// A file of an overlayfs layer that is not whole without lower ones.
    #[error("{archive}: {} {problem}", Quoted(path))]
    Overlayfs {
        /// The layer, as given.
        archive: String,
        /// The file.
        path: Vec<u8>,
        /// The fault, and the remedy.
        problem: &'static str,
    },
    /// A line of a table that goes with a source: of devices, of labels.
    #[error("{file}: line {line}: {problem}")]
    Line {
        /// The table, as given.
        file: String,
        /// The line, from 1 on.
        line: usize,
        /// The fault.
        problem: String,
    },
    /// A table that goes with a source lacks something.
    #[error("{table}: {problem}")]
    Table {
        /// The table, as given.
        table: String,
        /// The lack, and the remedy.
        problem: String,
    },
    /// An option is wrong.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The caller ended the work.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl SourceError {
    pub(super) fn line(file: &str, line: usize, problem: String) -> Self {
        Self::Line { file: file.to_owned(), line, problem }
    }

    /// A failure of the host at `path`.
    pub fn host(action: &'static str, path: impl AsRef<Path>, error: impl Into<io::Error>) -> Self {
        Self::Host { action, path: path.as_ref().to_owned(), error: error.into() }
    }
}

/// Something odd that did not keep a source from being used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceWarning {
    /// About an archive.
    Tar {
        /// The archive, as given.
        archive: String,
        /// The oddity.
        warning: TarWarning,
    },
    /// A file of the host was left out: its kind or attributes cannot be read or kept.
    LeftOut {
        /// The file.
        path: Vec<u8>,
        /// Reason.
        reason: &'static str,
    },
    /// An archive is damaged or cut off; what stands before was taken.
    Cut {
        /// The archive, as given.
        archive: String,
        /// The fault, and its place.
        problem: String,
    },
    /// A file of the host lost data while it was copied.
    Lost {
        /// The file.
        path: PathBuf,
        /// The change to the file, and the data that stand in its place.
        reason: &'static str,
    },
    /// Owners or groups that no mapping is about, where there are mappings.
    Unmapped {
        /// The number of files that have them.
        count: u64,
        /// The owner and group of the first.
        first: (u32, u32),
    },
    /// Only its owner may enter the root directory.
    ClosedRoot {
        /// Its permission bits.
        mode: u16,
    },
    /// The configuration of a container image is missing or damaged: its files are there, and the way to start it is not.
    NoConfiguration {
        /// The configuration, by its digest.
        name: String,
        /// The fault, with the image and the blob.
        problem: String,
    },
    /// No path of the tree matches a table of labels.
    NoLabels {
        /// The table.
        table: String,
    },
    /// More files of the host were left out than are named.
    MoreLeftOut {
        /// Number of further ones.
        count: usize,
    },
    /// `/proc` is not mounted: a directory's links, devices and pipes can't be asked for their attributes.
    NoPaths,
    /// Extended attributes of other systems, whose names Linux does not know.
    DroppedXattrs {
        /// Their number.
        count: usize,
    },
}

impl SourceWarning {
    /// True if the source lacks something that it should have.
    #[must_use]
    pub fn is_lack(&self) -> bool {
        matches!(self, Self::Cut { .. } | Self::Lost { .. })
    }
}

impl fmt::Display for SourceWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tar { archive, warning } => write!(f, "{archive}: {warning}"),
            Self::LeftOut { path, reason } => write!(f, "{} is left out: {reason}", Quoted(path)),
            Self::Cut { problem, .. } => {
                write!(f, "{problem}; what stands before is taken, and what follows lacks")
            }
            Self::Lost { path, reason } => write!(f, "{}: {reason}", path.display()),
            Self::Unmapped { count, first: (uid, gid) } => write!(
                f,
                "{count} files keep an owner or group that no range of --map-uid or --map-gid holds (the first: {uid}:{gid})"
            ),
            Self::ClosedRoot { mode } => write!(
                f,
                "only its owner may enter the root directory: it has mode {mode:04o} in the source, as mktemp makes \
                it; -E root_perms=0755 lets all enter"
            ),
            Self::NoConfiguration { name, problem } => {
                write!(f, "{name} can't be read: {problem}; fetch the image again")
            }
            Self::NoLabels { table } => write!(
                f,
                "{table}: no path matches, and no file is labelled by it; --mount-point says where the volume will be \
                mounted"
            ),
            Self::MoreLeftOut { count } => write!(f, "{count} more files and directories are left out"),
            Self::NoPaths => {
                write!(
                    f,
                    "/proc is not mounted: extended attributes of links, devices and pipes are left out"
                )
            }
            Self::DroppedXattrs { count } => {
                write!(f, "{count} extended attributes are left out: their namespaces are not those of Linux")
            }
        }
    }
}
