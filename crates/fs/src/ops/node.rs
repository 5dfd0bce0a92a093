//! One inode of a volume, by its number: what can be said of it and changed of it beside its contents.
//!
//! Owns: the handle. The verbs stand with what they change: `attrs` (extended attributes), `permissions` (owner,
//! mode, times, flags), `change` (several at once).

use ondisk::units::InodeNumber;

use crate::crypt;
use crate::error::Result;
use crate::volume::{VersionedInode, Volume};

/// One inode of a volume. It may be in use or not: each verb looks.
///
/// ```
/// # use platfs::{Result, Volume};
/// # fn lock(volume: &Volume) -> Result<()> {
/// let motd = volume.inode(volume.resolve(b"/etc/motd")?);
/// motd.set_permissions(0o444)?;
/// motd.set_xattr(b"user.note", b"read only")
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct Node<'v> {
    pub(super) volume: &'v Volume,
    pub(super) number: InodeNumber,
}

impl Volume {
    /// One inode, to see and change its attributes.
    #[must_use]
    pub fn inode(&self, number: InodeNumber) -> Node<'_> {
        Node { volume: self, number }
    }
}

impl Node<'_> {
    /// True if it is encrypted, and its key not known.
    ///
    /// # Errors
    /// Damage; the device's failure.
    pub fn is_locked(&self) -> Result<bool> {
        VersionedInode::read(self.volume, self.number)?
            .seqlock_read(|view, node| crypt::is_locked(view.blocks, view.format, node))
    }
}
