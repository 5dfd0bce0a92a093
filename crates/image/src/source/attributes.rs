//! Attributes of a file in a source, beside its name, kind and contents.

use crate::archive::{Times, Timestamp, Xattr};

/// The owner and group of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// The four times of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    /// Last change of contents.
    pub modified: Timestamp,
    /// Last access; that of the last change where the source has none.
    pub accessed: Timestamp,
    /// Last change of the inode; that of contents where the source has none.
    pub changed: Timestamp,
    /// Creation; the last change of contents where the source has none.
    pub created: Timestamp,
}

impl Stamps {
    /// All four the same.
    #[must_use]
    pub fn all(time: Timestamp) -> Self {
        Self { modified: time, accessed: time, changed: time, created: time }
    }
}

/// Attributes of a new file.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    /// Permission bits with set-user, set-group and sticky.
    pub mode: u16,
    /// Owner and group.
    pub ids: Ids,
    /// The times.
    pub times: Times,
    /// Extended attributes.
    pub xattrs: Vec<Xattr>,
}
