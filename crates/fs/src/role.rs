//! Roles of metadata blocks, and with them their checksums.
//!
//! Owns: the roles, and which checksum belongs to each. Excludes: the blocks, and where they lie (`cache`).

use ondisk::seal::{InodeSeed, Sealer};
use ondisk::units::{Block, Group, InodeNumber};

/// Role of a metadata block, as far as its checksum and the order of its changes are concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// No checksum of its own: indirect blocks, targets of symbolic links; blocks that are read without
    /// knowing what they are.
    Plain,
    /// Bytes of a file on their way through the journal; no checksum either.
    Data,
    /// A bitmap, whose checksum is in the descriptor.
    Bitmap,
    /// Group descriptors from this one on; each has its own checksum.
    Descriptors(Group),
    /// Records of inodes from this one on; each has its own checksum.
    Inodes(InodeNumber),
    /// Directory leaf with a tail.
    DirectoryLeaf(InodeSeed),
    /// Directory index node whose count stands at the offset.
    IndexNode(InodeSeed, usize),
    /// Extent node below the inode.
    ExtentNode(InodeSeed),
    /// External extended attributes.
    Attributes,
}

impl Role {
    pub(crate) fn is_right(self, sealer: &Sealer, block: Block, bytes: &[u8]) -> bool {
        match self {
            Role::Plain | Role::Data | Role::Bitmap | Role::Descriptors(_) | Role::Inodes(_) => true,
            Role::DirectoryLeaf(seed) => seed.directory_leaf_is_right(bytes),
            Role::IndexNode(seed, at) => seed.index_node_is_right(bytes, at),
            Role::ExtentNode(seed) => seed.extent_node_is_right(bytes),
            Role::Attributes => sealer.attribute_block_is_right(block, bytes),
        }
    }

    pub(crate) fn seal(self, sealer: &Sealer, block: Block, bytes: &mut [u8]) {
        match self {
            Role::Plain | Role::Data | Role::Bitmap | Role::Descriptors(_) | Role::Inodes(_) => {}
            Role::DirectoryLeaf(seed) => seed.seal_directory_leaf(bytes),
            Role::IndexNode(seed, at) => seed.seal_index_node(bytes, at),
            Role::ExtentNode(seed) => seed.seal_extent_node(bytes),
            Role::Attributes => sealer.seal_attribute_block(block, bytes),
        }
    }

    /// Returns this role for another inode.
    pub(crate) fn with_seed(self, seed: InodeSeed) -> Self {
        match self {
            Role::DirectoryLeaf(_) => Role::DirectoryLeaf(seed),
            Role::IndexNode(_, at) => Role::IndexNode(seed, at),
            Role::ExtentNode(_) => Role::ExtentNode(seed),
            other => other,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Plain | Role::Data => "block",
            Role::Bitmap => "bitmap",
            Role::Descriptors(_) => "block of descriptors",
            Role::Inodes(_) => "inode table",
            Role::DirectoryLeaf(_) => "directory block",
            Role::IndexNode(..) => "directory index node",
            Role::ExtentNode(_) => "extent node",
            Role::Attributes => "extended attribute block",
        }
    }
}
