//! Format of a mounted volume: the facts of its superblock that never change while it is open.

use std::sync::Arc;

use ondisk::features::{Features, Incompat, RoCompat};
use ondisk::geometry::Geometry;
use ondisk::seal::{InodeSeed, Sealer};
use ondisk::superblock::{CREATOR_HURD, FLAG_UNSIGNED_HASH, RawSuperblock};

use ondisk::corrupt::{Corrupt, Place};
use ondisk::inode::Inode;
use ondisk::units::{Block, Group, InodeNumber};

use crate::error::{Error, Result};
use crate::keys::Keyring;
use crate::numbers::Numbers;
use crate::zone::{BAD_BLOCKS, Zone};

/// Facts of the superblock that every rung needs.
#[derive(Clone, Debug)]
pub struct Format {
    /// Sizes and counts.
    pub geometry: Geometry,
    /// Feature words.
    pub features: Features,
    /// Checksums.
    pub sealer: Sealer,
    /// Seed of directory hashes; four zero words mean the fixed default seed.
    pub hash_seed: [u32; 4],
    /// Hash version of new directory indexes: 0 legacy, 1 half-MD4, 2 TEA; the unsigned variants
    /// are given by [`Format::unsigned_hash`].
    pub hash_version: u8,
    /// True if directory hashes treat characters as unsigned.
    pub unsigned_hash: bool,
    /// Files have a block with the name of their translator, as those of the Hurd.
    pub(crate) has_translators: bool,
    /// The keys of encrypted files.
    pub(crate) keys: Keyring,
    /// Inodes that have other numbers on disk than those by which they are known.
    pub(crate) numbers: Arc<Numbers>,
    /// Where the volume's own structures lie, once descriptors were read.
    pub(crate) zone: Zone,
}

impl Format {
    /// Takes the facts from a superblock.
    ///
    /// # Errors
    /// Whatever contradicts itself in the geometry.
    pub fn from_superblock(raw: &RawSuperblock) -> Result<Self, Corrupt> {
        Ok(Format {
            geometry: Geometry::from_superblock(raw)?,
            features: raw.features(),
            sealer: Sealer::from_superblock(raw),
            hash_seed: raw.s_hash_seed.map(|word| word.get()),
            hash_version: raw.s_def_hash_version,
            unsigned_hash: raw.s_flags.get() & FLAG_UNSIGNED_HASH != 0,
            has_translators: raw.s_creator_os.get() == CREATOR_HURD,
            keys: Keyring::default(),
            numbers: Arc::default(),
            zone: Zone::default(),
        })
    }

    /// Seed of the checksums of an inode's structures.
    #[must_use]
    pub fn seed_of(&self, inode: &Inode) -> InodeSeed {
        self.sealer.inode_seed(self.physical_number(inode.number()), inode.generation())
    }

    /// Returns the on-disk number of an inode.
    pub(crate) fn physical_number(&self, number: InodeNumber) -> InodeNumber {
        self.numbers.physical_number(number)
    }

    /// Returns the in-memory number of the inode with this number on disk.
    pub(crate) fn logical_number(&self, number: InodeNumber) -> InodeNumber {
        self.numbers.logical_number(number)
    }

    /// Copies the facts, without the zone.
    pub(crate) fn without_zone(&self) -> Format {
        Format {
            geometry: self.geometry,
            features: self.features,
            sealer: self.sealer,
            hash_seed: self.hash_seed,
            hash_version: self.hash_version,
            unsigned_hash: self.unsigned_hash,
            has_translators: self.has_translators,
            keys: self.keys.clone(),
            numbers: Arc::clone(&self.numbers),
            zone: Zone::default(),
        }
    }

    /// Blocks that hold a number of bytes.
    pub(crate) fn blocks_for(&self, bytes: u64) -> u64 {
        self.geometry.block_size.blocks_for(bytes)
    }

    /// True if the incompatible feature is on.
    #[must_use]
    pub fn has_incompat(&self, feature: Incompat) -> bool {
        self.features.incompat.contains(feature)
    }

    /// True if the read-only compatible feature is on.
    #[must_use]
    pub fn has_ro_compat(&self, feature: RoCompat) -> bool {
        self.features.ro_compat.contains(feature)
    }

    /// Refuses blocks to which an inode leads if they lie outside the volume or are not for files.
    ///
    /// # Errors
    /// Damage to the inode's map, with what it leads to.
    pub(crate) fn refuse_foreign(&self, inode: InodeNumber, start: Block, count: u64) -> Result<()> {
        let problem = if self.geometry.contains(start, count) {
            // The list of bad blocks and the room for descriptors to come lie where structures do.
            if inode == BAD_BLOCKS || inode == InodeNumber::RESIZE {
                return Ok(());
            }
            let Some(met) = self.zone.met(&self.geometry, inode, start, count) else { return Ok(()) };
            met
        } else {
            format!("{count} blocks at {start} lie outside the volume")
        };
        Err(Error::corrupt(Place::Map(inode), problem))
    }

    /// True if a group has inodes that the volume keeps for itself.
    pub(crate) fn has_own_inodes(&self, group: Group) -> bool {
        let in_group =
            |number: &InodeNumber| self.geometry.locate_inode(*number).is_some_and(|(of, _)| of == group);
        group.0 == 0 || self.zone.files().any(|number| in_group(&number))
    }

    /// True if an inode is one that the volume keeps for itself, so that no name leads to it. A journal that was added
    /// later has one.
    pub(crate) fn is_kept(&self, number: InodeNumber) -> bool {
        let reserved = number.get() < self.geometry.first_inode && number != InodeNumber::ROOT;
        let journal = self.zone.journal();
        reserved || self.zone.has_file(number) && journal != Some(number)
    }
}
