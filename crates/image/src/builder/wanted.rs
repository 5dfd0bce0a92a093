//! Inodes of the volume, as the catalogue describes them.

use platfs::ondisk::inode::FileType;
use platfs::{Attributes, Kind, Times};

use crate::archive::Device;
use crate::source::catalogue::{Metadata, Stamps};
use crate::source::{Catalogue, NodeId, NodeKind};

/// Reads a catalogue in the terms of a volume.
#[derive(Clone, Copy)]
pub(super) struct VolumeMetadata<'c> {
    pub(super) catalogue: &'c Catalogue,
    /// Change, access and creation become the time of modification, so that equal contents give equal images.
    pub(super) settle_times: bool,
}

/// The type of an inode.
pub(super) fn file_type(kind: NodeKind) -> FileType {
    match kind {
        NodeKind::Directory => FileType::Directory,
        NodeKind::File => FileType::Regular,
        NodeKind::Symlink => FileType::Symlink,
        NodeKind::CharDevice => FileType::CharDevice,
        NodeKind::BlockDevice => FileType::BlockDevice,
        NodeKind::Fifo => FileType::Fifo,
        NodeKind::Socket => FileType::Socket,
    }
}

impl<'c> VolumeMetadata<'c> {
    /// Owner, permissions and times.
    pub(super) fn attributes(&self, metadata: &Metadata) -> Attributes {
        let stamps = if self.settle_times { Stamps::all(metadata.stamps.modified) } else { metadata.stamps };
        Attributes {
            permissions: metadata.mode,
            uid: metadata.ids.uid,
            gid: metadata.ids.gid,
            times: Times {
                access: stamps.accessed,
                modify: stamps.modified,
                change: stamps.changed,
                create: Some(stamps.created),
            },
        }
    }

    /// Extended attributes, sorted by name.
    pub(super) fn xattrs(&self, node: NodeId) -> Vec<(Vec<u8>, Vec<u8>)> {
        let all = self.catalogue.xattrs(node).iter();
        all.map(|xattr| (xattr.name.to_vec(), xattr.value.to_vec())).collect()
    }

    /// Returns the type of a new inode, with its contents.
    pub(super) fn kind(&self, node: NodeId, metadata: &Metadata) -> Kind<'c> {
        let Device { major, minor } = metadata.device;
        match metadata.kind {
            NodeKind::Directory => Kind::Directory,
            NodeKind::File => Kind::File,
            NodeKind::Symlink => Kind::Symlink(self.catalogue.target(node)),
            NodeKind::CharDevice => Kind::CharDevice(major, minor),
            NodeKind::BlockDevice => Kind::BlockDevice(major, minor),
            NodeKind::Fifo => Kind::Fifo,
            NodeKind::Socket => Kind::Socket,
        }
    }
}
