//! Errors of entries that cannot stand in the tree: paths judged.

use crate::archive::limits;
use crate::text::Quoted;

/// Reason for which an entry cannot stand in the tree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogueError {
    /// A path with `..`.
    #[error("the path {} leads upwards; such entries are refused", Quoted(.0))]
    Upwards(Vec<u8>),
    /// A name longer than file systems allow.
    #[error("a name in the path {} has more than 255 bytes", Quoted(.0))]
    LongName(Vec<u8>),
    /// Something other than a directory for the root.
    #[error("{} stands for the root, but is no directory", Quoted(.0))]
    Root(Vec<u8>),
    /// A parent that is neither a directory nor a symbolic link.
    #[error("{} lies below something that is no directory", Quoted(.0))]
    NotADirectory(Vec<u8>),
    /// Symbolic links in a circle.
    #[error("the symbolic links above {} lead in a circle", Quoted(.0))]
    Circle(Vec<u8>),
    /// A hard link to nothing: its other name comes later or never.
    #[error("the hard link {} leads to {}, which no earlier entry made", Quoted(.path), Quoted(.target))]
    NoTarget {
        /// The link.
        path: Vec<u8>,
        /// Name that it leads to.
        target: Vec<u8>,
    },
    /// A hard link to a directory.
    #[error("the hard link {} leads to a directory", Quoted(.0))]
    LinkToDirectory(Vec<u8>),
    /// More than 2^32 files, names, or 4 GiB of names.
    #[error("the source has too many files")]
    TooMany,
}

/// The names of a path: slashes and `.` vanish, `..` and long names are refused.
pub(super) fn clean(path: &[u8]) -> Result<Vec<&[u8]>, CatalogueError> {
    let mut names = Vec::new();
    for name in path.split(|&b| b == b'/') {
        match name {
            b"" | b"." => {}
            b".." => return Err(CatalogueError::Upwards(path.to_vec())),
            _ if name.len() > limits::NAME_BYTES => return Err(CatalogueError::LongName(path.to_vec())),
            _ => names.push(name),
        }
    }
    Ok(names)
}
