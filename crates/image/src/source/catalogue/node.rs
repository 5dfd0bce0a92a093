//! Nodes of a catalogue: compact, about a hundred bytes for each file with its name.

use crate::archive::{Device, Timestamp};
use crate::source::attributes::{Ids, Stamps};

/// A file of the catalogue, whatever its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(in crate::source) u32);

impl NodeId {
    /// The node at a place.
    #[cfg(test)]
    pub(crate) fn of_index(index: u32) -> Self {
        NodeId(index)
    }

    /// The node's place in the catalogue, below [`super::Catalogue::nodes`]: for tables beside it.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket; only directories of a host have them.
    Socket,
}

/// Metadata of a file, apart from names and contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The kind.
    pub kind: NodeKind,
    /// Permission bits with set-user, set-group and sticky: below 0o10000.
    pub mode: u16,
    /// Owner and group.
    pub ids: Ids,
    /// Times.
    pub stamps: Stamps,
    /// Link count as a file system has it: names of a file; 2 and the subdirectories of a directory.
    pub links: u32,
    /// Length in bytes: of a file with its holes, or of a symbolic link's target. Else 0.
    pub size: u64,
    /// The number of a device; else zero.
    pub device: Device,
}

/// Where bytes lie: a section held by the catalogue, or a file of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A section by its number.
    Section(u32),
    /// A file of the source directory by its number.
    Host(u32),
}

/// A run of a file's data. What lies between runs is a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where it belongs in the file, in bytes.
    pub file_offset: u64,
    /// Its length in bytes; never 0.
    pub len: u64,
    /// Where the bytes lie.
    pub origin: Origin,
    /// The first byte in the origin.
    pub origin_offset: u64,
}

/// Data that differ by kind.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    /// A directory's contents: entries point here, not at the node, so that giving a directory new contents
    /// detaches all that was in it.
    Directory { contents: u32 },
    /// A file without data: empty or one hole.
    Empty,
    /// A file whose data lie in one piece; the extent covers the whole file.
    Whole { origin: Origin, offset: u64 },
    /// A file of several runs: a range of the table of extents.
    Runs { first: u32, count: u32 },
    /// A symbolic link: its target in the table of names, `size` bytes long.
    Target { start: u32 },
    /// A device.
    Device(Device),
    /// A fifo or socket.
    Nothing,
}

/// One file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) kind: NodeKind,
    /// Made because a path needed it; its times come when the catalogue is finished.
    pub(super) implied: bool,
    /// Its owner or group is one that the mappings say nothing about.
    pub(super) unmapped: bool,
    pub(super) mode: u16,
    pub(super) ids: Ids,
    pub(super) modified: Timestamp,
    /// Other times: 0 if all are `modified`, else one more than the place in their table.
    pub(super) stamps: u32,
    /// 0 for none, else one more than the place in the table of attribute sets.
    pub(super) xattrs: u32,
    pub(super) links: u32,
    pub(super) size: u64,
    pub(super) content: Content,
}

impl Node {
    /// A directory that no entry described.
    pub(super) fn implied(contents: u32) -> Self {
        Self {
            kind: NodeKind::Directory,
            implied: true,
            unmapped: false,
            mode: 0o755,
            ids: Ids::default(),
            modified: Timestamp::default(),
            stamps: 0,
            xattrs: 0,
            links: 0,
            size: 0,
            content: Content::Directory { contents },
        }
    }
}
