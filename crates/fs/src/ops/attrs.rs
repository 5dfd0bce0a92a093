//! Attributes of inodes: reading them, and setting times and sizes.

use ondisk::features::RoCompat;
use ondisk::inode::{FileType, Inode, InodeFlags, TimeField, Timestamp};
use ondisk::units::{Block, InodeNumber};

use super::changing::change;
use super::node::Node;
use super::rules::{self, Operation};
use crate::error::{Error, Result};
use crate::format::Format;
use crate::tx::Tx;
use crate::volume::{VersionedInode, Volume};

/// The four times of an inode; creation is `None` where the record has no room for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// Last access.
    pub access: Timestamp,
    /// Last modification of the contents.
    pub modify: Timestamp,
    /// Last change of the inode.
    pub change: Timestamp,
    /// Creation.
    pub create: Option<Timestamp>,
}

impl Times {
    /// All four at one moment.
    #[must_use]
    pub fn all(at: Timestamp) -> Self {
        Times { access: at, modify: at, change: at, create: Some(at) }
    }

    pub(crate) fn store(&self, inode: &mut Inode) {
        inode.set_time(TimeField::Access, self.access);
        inode.set_time(TimeField::Modify, self.modify);
        inode.set_time(TimeField::Change, self.change);
        if let Some(create) = self.create {
            inode.set_time(TimeField::Create, create);
        }
    }
}

/// Owner, permissions and times of an inode, set together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Attributes {
    /// The lower twelve mode bits.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group owner.
    pub gid: u32,
    /// Times.
    pub times: Times,
}

impl Attributes {
    pub(crate) fn store(&self, inode: &mut Inode) {
        let file_type = inode.mode() & 0xF000;
        inode.raw_mut().i_mode.set(file_type | self.permissions & 0o7777);
        inode.set_owner(self.uid, self.gid);
        self.times.store(inode);
    }
}

/// Metadata of an inode, as `stat` shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metadata {
    /// The inode's number.
    pub inode: InodeNumber,
    /// File type.
    pub file_type: FileType,
    /// Permission bits with set-user-id, set-group-id and sticky bits (the lower twelve).
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group owner.
    pub gid: u32,
    /// Project; zero where there is none.
    pub project: u32,
    /// Bytes of contents.
    pub size: u64,
    /// Names.
    pub links: u16,
    /// Space charged, in 512-byte sectors.
    pub sectors: u64,
    /// Times.
    pub times: Times,
    /// Inode flags.
    pub flags: InodeFlags,
    /// Generation.
    pub generation: u32,
    /// Device number as (major, minor), for devices.
    pub device: Option<(u32, u32)>,
    /// External attribute block, if there is one.
    pub attribute_block: Option<Block>,
}

impl Volume {
    /// Metadata of an inode.
    ///
    /// # Errors
    /// A number behind the last inode, a broken record, a type without a meaning; the device's
    /// failure.
    pub fn metadata(&self, number: InodeNumber) -> Result<Metadata> {
        // Before the inode is looked at: what is written back meanwhile is counted there then.
        let waits = waits(self, number);
        Metadata::from_inode(&self.format, &self.view().inode(number)?, waits)
    }
}

/// Returns the dirty part of a file.
pub(super) fn waits(volume: &Volume, number: InodeNumber) -> Waits {
    let Some(file) = volume.session.delayed.find(number) else { return Waits::default() };
    let state = file.state();
    Waits { end: state.pages.end(), blocks: state.clusters << volume.format.geometry.cluster_log2 }
}

/// Dirty part of a file: one past its last byte, and blocks.
#[derive(Clone, Copy, Default)]
pub(super) struct Waits {
    end: u64,
    blocks: u64,
}

impl Metadata {
    /// Metadata of an inode, with the dirty part that was noted before the inode was read.
    pub(super) fn from_inode(format: &Format, inode: &Inode, waits: Waits) -> Result<Self> {
        let block_size = format.geometry.block_size;
        let file_type = file_type(inode)?;
        // Inodes of 128 bytes have no time of creation; the other three are always there.
        let time = |field| inode.time(field).unwrap_or_default();
        let is_device = matches!(file_type, FileType::CharDevice | FileType::BlockDevice);
        Ok(Metadata {
            inode: inode.number(),
            file_type,
            permissions: inode.mode() & 0o7777,
            uid: inode.uid(),
            gid: inode.gid(),
            project: inode.project(),
            size: inode.size().max(waits.end),
            links: inode.links(),
            sectors: inode.sectors(block_size) + (waits.blocks << (block_size.log2() - 9)),
            times: Times {
                access: time(TimeField::Access),
                modify: time(TimeField::Modify),
                change: time(TimeField::Change),
                create: inode.time(TimeField::Create),
            },
            flags: inode.flags(),
            generation: inode.generation(),
            device: is_device.then(|| inode.device()),
            attribute_block: Some(inode.attribute_block()).filter(|block| block.0 != 0),
        })
    }
}

impl Node<'_> {
    /// All extended attributes as (full name, value), in name order.
    ///
    /// # Errors
    /// Broken attributes; the device's failure.
    pub fn xattrs(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        VersionedInode::read(self.volume, self.number)?.seqlock_read(|view, node| view.xattrs(node).all())
    }

    /// The full names of all extended attributes, without reading values kept elsewhere.
    ///
    /// # Errors
    /// As [`Node::xattrs`].
    pub fn xattr_names(&self) -> Result<Vec<Vec<u8>>> {
        VersionedInode::read(self.volume, self.number)?.seqlock_read(|view, node| view.xattrs(node).names())
    }

    /// The value of an extended attribute by its full name; `None` where there is none.
    ///
    /// # Errors
    /// As [`Node::xattrs`].
    pub fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        VersionedInode::read(self.volume, self.number)?
            .seqlock_read(|view, node| view.xattrs(node).value(name))
    }

    /// Sets one extended attribute, new or not, by its full name. Nothing changes if it has that value already, but for
    /// access control lists, which the mode follows.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] for those of users on what is neither a regular file nor a directory;
    /// capabilities in no form that Linux takes; as [`Node::set_xattrs`].
    pub fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<()> {
        change(self.volume, |tx| {
            let mut inode = tx.inode(self.number)?;
            rules::may(&inode, Operation::Attributes)?;
            rules::may_have_attribute(file_type(&inode)?, name, Some(value))?;
            let is_list = name.starts_with(b"system.");
            if !is_list && tx.view().xattrs(&inode).value(name)?.as_deref() == Some(value) {
                return Ok(());
            }
            tx.xattrs(&mut inode).set(name, value)?;
            tx.follow_list(&mut inode, name)?;
            tx.touch(&mut inode, &[TimeField::Change]);
            tx.store(&mut inode)
        })
    }

    /// Removes one extended attribute by its full name.
    ///
    /// # Errors
    /// [`Error::NotFound`] where there is none; as [`Node::set_xattrs`].
    pub fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        self.change_inode(|tx, inode| {
            rules::may_have_attribute(file_type(inode)?, name, None)?;
            tx.xattrs(inode).remove(name)
        })
    }

    /// Replaces all extended attributes.
    ///
    /// # Errors
    /// A name without a known prefix, a value that does not fit, no space.
    pub fn set_xattrs(&self, attributes: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        self.change_inode(|tx, inode| tx.xattrs(inode).set_all(attributes))
    }

    /// Sets owner, permissions and all times of an inode.
    ///
    /// # Errors
    /// [`Error::NotPermitted`]; a broken record; the device's failure.
    pub fn set_attributes(&self, attributes: &Attributes) -> Result<()> {
        change(self.volume, |tx| {
            let mut inode = tx.inode(self.number)?;
            if !self.volume.session.is_loading() {
                rules::may(&inode, Operation::Attributes)?;
            }
            attributes.store(&mut inode);
            tx.store(&mut inode)
        })
    }
}

impl<'v> Tx<'v> {
    /// Files over 2 GiB are announced by a feature of the volume.
    pub(crate) fn note_size(&mut self, size: u64) {
        if size > i32::MAX as u64 && !self.format.has_ro_compat(RoCompat::LARGE_FILE) {
            self.name_feature(|features| features.ro_compat |= RoCompat::LARGE_FILE);
        }
    }
}

pub(super) fn file_type(inode: &Inode) -> Result<FileType> {
    inode.file_type().ok_or_else(|| {
        let mode = inode.mode();
        let problem = format!("mode {mode:#08o} has no meaning: the inode is not in use or damaged");
        Error::corrupt(ondisk::corrupt::Place::Inode(inode.number()), problem)
    })
}
