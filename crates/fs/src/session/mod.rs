//! In-memory state of an open volume, beside its blocks.
//!
//! Owns: how it was opened, the superblock in memory, the users of inodes, bytes that wait for their blocks, and
//! hints that save searching. Leaves to others: the blocks (`cache`), free space (`space`), and what is done with
//! any of it.

mod attributes;
mod followed;
mod names;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use ondisk::geometry::Geometry;
use ondisk::superblock::{RawSuperblock, STATE_ERROR};
use ondisk::units::{InodeNumber, low_u32};

use crate::charges::QuotaFiles;
use crate::dirty::Delayed;
use crate::handles::Handles;
use crate::options::OpenOptions;
pub(crate) use attributes::{AttributeBlocks, Filled};
pub(crate) use followed::Followed;
pub(crate) use names::{KnownNames, Names, WORTH};

/// In-memory state of one opening of a volume.
pub(crate) struct Session {
    /// How the volume was opened.
    pub(crate) options: OpenOptions,
    /// The users of inodes.
    pub(crate) handles: Handles,
    /// Delayed writes, which have no blocks yet.
    pub(crate) delayed: Delayed,
    /// Names of the directory that was last added to.
    pub(crate) known_names: KnownNames,
    /// Where inodes that are about to get other numbers get names.
    pub(crate) followed: Followed,
    /// Attribute blocks that other inodes may share.
    pub(crate) attribute_blocks: AttributeBlocks,
    /// Quota files.
    pub(crate) quota_files: QuotaFiles,
    superblock: Mutex<RawSuperblock>,
    /// Inodes made since the volume was opened.
    created: AtomicU64,
}

impl Session {
    pub(crate) fn new(options: &OpenOptions, superblock: RawSuperblock, geometry: &Geometry) -> Self {
        // A loader's usage is counted when all is there.
        let quota_files = match options.loading {
            true => QuotaFiles::default(),
            false => QuotaFiles::new(&superblock, geometry.first_inode, options.limits),
        };
        Session {
            options: options.clone(),
            handles: Handles::default(),
            delayed: Delayed::new(geometry.block_size.log2(), options.delay, options.expect_closes),
            known_names: KnownNames::default(),
            followed: Followed::default(),
            attribute_blocks: AttributeBlocks::default(),
            quota_files,
            superblock: Mutex::new(superblock),
            created: AtomicU64::new(0),
        }
    }

    /// The superblock as last read or written.
    pub(crate) fn superblock(&self) -> RawSuperblock {
        *self.superblock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the superblock in memory; the next sync writes it.
    pub(crate) fn edit_superblock(&self, change: impl FnOnce(&mut RawSuperblock)) {
        change(&mut self.superblock.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Notes that structures of the volume are damaged.
    pub(crate) fn note_damage(&self) {
        self.edit_superblock(|raw| raw.s_state.set(raw.s_state.get() | STATE_ERROR));
    }

    /// True if a whole tree is being loaded: layout and times are as the loader says.
    pub(crate) fn is_loading(&self) -> bool {
        self.options.loading
    }

    /// A generation for a new inode. Generations differ between uses of a number because the seed differs between
    /// openings, and because every new inode but a loader's is another step. Mixing function: SplitMix64.
    pub(crate) fn generation(&self, number: InodeNumber) -> u32 {
        let step = if self.is_loading() { 0 } else { self.created.fetch_add(1, Ordering::Relaxed) };
        let seed = self.options.seed.wrapping_add(step.rotate_left(32));
        let mut mixed = seed.wrapping_add(u64::from(number.get()).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        low_u32(mixed ^ mixed >> 31)
    }
}
