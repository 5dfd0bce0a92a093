//! An open volume: the facts of its format, its metadata cache and its free space.
//!
//! Owns: what an open volume consists of, and the superblock in memory. Excludes: opening (`opening`), how changes are
//! made (`attempt`) and made stable (`sync`), and the verbs (`ops`).

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use ondisk::features::Incompat;
use ondisk::inode::{Inode, TimeField, Timestamp};
use ondisk::superblock::RawSuperblock;
use ondisk::units::Group;

use crate::cache::Cache;
use crate::dir::KnownNames;
use crate::dirty::Delayed;
use crate::error::Result;
use crate::format::Format;
use crate::handles::Handles;
use crate::journal::Recovery;
use crate::locks::lock;
use crate::ops::Reclaiming;
use crate::options::OpenOptions;
use crate::order::Order;
use crate::space::Space;
use crate::sync::Syncs;
use crate::versions::SPACE;
use crate::xattr::AttributeBlocks;

/// An open ext2, ext3 or ext4 volume. Verbs take `&self` and may be called from many threads.
pub struct Volume {
    pub(crate) format: Format,
    pub(crate) cache: Arc<Cache>,
    pub(crate) space: Space,
    pub(crate) options: OpenOptions,
    /// Attribute blocks that other inodes may share.
    pub(crate) attribute_blocks: AttributeBlocks,
    /// What was written and has no blocks yet.
    pub(crate) delayed: Delayed,
    /// Names of the directory that was last added to.
    pub(crate) known_names: KnownNames,
    /// Held by each verb that changes something, and by a sync while it collects what there is to be
    /// written: an update in flight is never synced.
    pub(crate) writer: Mutex<()>,
    pub(crate) superblock: Mutex<RawSuperblock>,
    /// Who may write metadata to the device, and what the device was told.
    pub(crate) syncs: Syncs,
    /// Inodes in use without a name.
    pub(crate) handles: Handles,
    pub(crate) now: Mutex<Timestamp>,
    /// Inodes made since the volume was opened.
    pub(crate) created: AtomicU64,
    pub(crate) recovery: Option<Recovery>,
    /// In which order changes reach the device.
    pub(crate) order: Order,
    /// What a crash left, and is to be reclaimed.
    pub(crate) reclaiming: Reclaiming,
}

impl Volume {
    /// The facts of the volume's format.
    #[must_use]
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// The superblock as last read or written.
    #[must_use]
    pub fn superblock(&self) -> RawSuperblock {
        *lock(&self.superblock)
    }

    /// Group descriptors and free counts.
    #[must_use]
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Whether the journal may hold changes that were not brought to their places, because the volume was
    /// opened so ([`OpenOptions::noload`]): reading shows it without them.
    #[must_use]
    pub fn needs_recovery(&self) -> bool {
        self.format.has_incompat(Incompat::RECOVER)
    }

    /// Whether changes go through a journal.
    #[must_use]
    pub fn uses_journal(&self) -> bool {
        self.order.has_journal()
    }

    /// Whether a crash at any time leaves a volume that needs no person to repair it.
    #[must_use]
    pub fn keeps_order(&self) -> bool {
        self.order.survives_crashes()
    }

    /// What replay of the journal did when the volume was opened, if there was need of it. A volume that
    /// is only read was replayed in memory: the device is as it was.
    #[must_use]
    pub fn recovery(&self) -> Option<&Recovery> {
        self.recovery.as_ref()
    }

    /// A group's block bitmap: bit `n` is cluster `n` of the group, set if in use; bits behind its last
    /// cluster are set. Groups whose bitmap is not initialised are shown as if it were.
    ///
    /// # Errors
    /// A broken descriptor or bitmap; the device's failure.
    pub fn block_bitmap(&self, group: Group) -> Result<Vec<u8>> {
        self.steady(SPACE, || self.space.block_bitmap(&*self.cache, &self.format, group))
    }

    /// The time that changes get from now on; the library reads no clock.
    pub fn set_now(&self, now: Timestamp) {
        *lock(&self.now) = now;
    }

    /// The time that changes get.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        *lock(&self.now)
    }

    /// Sets times of an inode to now. A loader states all times itself.
    pub(crate) fn touch(&self, inode: &mut Inode, fields: &[TimeField]) {
        if !self.options.loading {
            let now = self.now();
            fields.iter().for_each(|field| inode.set_time(*field, now));
        }
    }

    /// Changes the superblock in memory; the next sync writes it.
    pub(crate) fn edit_superblock(&self, change: impl FnOnce(&mut RawSuperblock)) {
        change(&mut lock(&self.superblock));
    }
}
