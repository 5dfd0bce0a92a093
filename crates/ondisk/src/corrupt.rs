//! Errors about the bytes of a volume, with their place.
//!
//! Decoders return [`Corrupt`]; they never panic and never repair (I14). The reader of a structure adds
//! the place it came from.

use std::fmt;

use crate::units::{Block, Group, InodeNumber};

/// The structure and place a complaint is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The superblock, primary unless said otherwise.
    Superblock,
    /// A group descriptor.
    Descriptor(Group),
    /// The block bitmap of a group.
    BlockBitmap(Group),
    /// The inode bitmap of a group.
    InodeBitmap(Group),
    /// An inode record.
    Inode(InodeNumber),
    /// The block map (extent tree or indirect blocks) of an inode.
    Map(InodeNumber),
    /// The contents of a directory.
    Directory(InodeNumber),
    /// The extended attributes of an inode.
    Xattrs(InodeNumber),
    /// A metadata block; the message names its role.
    Block(Block),
    /// The journal.
    Journal,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Superblock => write!(f, "superblock"),
            Place::Descriptor(group) => write!(f, "descriptor of group {group}"),
            Place::BlockBitmap(group) => write!(f, "block bitmap of group {group}"),
            Place::InodeBitmap(group) => write!(f, "inode bitmap of group {group}"),
            Place::Inode(inode) => write!(f, "inode {inode}"),
            Place::Map(inode) => write!(f, "block map of inode {inode}"),
            Place::Directory(inode) => write!(f, "directory inode {inode}"),
            Place::Xattrs(inode) => write!(f, "extended attributes of inode {inode}"),
            Place::Block(block) => write!(f, "block {block}"),
            Place::Journal => write!(f, "journal"),
        }
    }
}

/// A structure that breaks a rule of the format.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct Corrupt {
    place: Place,
    problem: String,
}

impl Corrupt {
    /// A complaint: `problem` completes "PLACE: ..." and names the offending value.
    pub fn new(place: Place, problem: impl Into<String>) -> Self {
        Corrupt { place, problem: problem.into() }
    }

    /// Where the broken structure is.
    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }

    /// Returns the broken rule.
    #[must_use]
    pub fn problem(&self) -> &str {
        &self.problem
    }
}
