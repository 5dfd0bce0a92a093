//! Every checksum of the format: its seed, its span, checking it and writing it (I9).
//!
//! Source: the ext4 data structure documentation of Linux ("Checksums"). Two schemes exist:
//! `metadata_csum` (CRC-32C of every metadata structure) and the older `gdt_csum` (CRC-16 of group
//! descriptors only). The journal's checksums stand with the journal.
//!
//! Verification returns whether the stored checksum is right; the caller knows the place and makes
//! the complaint. All functions are no-ops that verify as right where the volume has no checksums.

use crate::extent;
use crate::features::{Features, Incompat, RoCompat};
use crate::group::RawGroupDescriptor;
use crate::inode::{EXTRA_SIZE, Inode, OLD_SIZE};
use crate::invariant_or;
use crate::superblock::{RawSuperblock, SUPERBLOCK_LEN};
use crate::units::{Block, Group, InodeNumber, high_u16, low_u16};

/// CRC-32C without the usual inversion before and after, as the kernel chains it.
#[must_use]
pub fn crc32c(seed: u32, data: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, data)
}

/// CRC-16 with the reflected polynomial 0xA001 (ANSI), as descriptors use it.
#[must_use]
pub fn crc16(seed: u16, data: &[u8]) -> u16 {
    data.iter().fold(seed, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xA001 } else { crc >> 1 })
    })
}

/// Bytes at the end of a directory leaf that hold its checksum, in the shape of an empty entry.
pub const DIRECTORY_TAIL_LEN: usize = 12;
/// Offset of the checksum in a multiple-mount-protection block.
const MMP_CHECKSUM_OFFSET: usize = 0x3FC;

/// Bytes of an inode's record on most volumes.
const USUAL_SIZE: usize = 256;
/// Bytes in front of an inode's record for its checksum: its number and generation.
const SEED_LEN: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scheme {
    None,
    Crc16 { uuid: [u8; 16] },
    Crc32c { seed: u32 },
}

/// The checksum scheme of a volume and the seed of an inode's structures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sealer {
    scheme: Scheme,
    /// Linux hashes attribute values with the volume's seed whatever the scheme.
    value_seed: u32,
    wide_descriptors: bool,
}

/// Seed of the structures that belong to one inode: its record, extent nodes, directory blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InodeSeed(Option<u32>);

fn put(bytes: &mut [u8], at: usize, value: u32) {
    let to = invariant_or!(bytes.get_mut(at..at + 4), return, "a structure has room for its checksum");
    to.copy_from_slice(&value.to_le_bytes());
}

fn stored(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes)
}

/// Bytes that the seed of an inode's structures is made of, beside that of the volume.
fn seed_bytes(number: InodeNumber, generation: u32) -> [u8; SEED_LEN] {
    (u64::from(generation) << 32 | u64::from(number.get())).to_le_bytes()
}

impl Sealer {
    /// The scheme a superblock asks for.
    #[must_use]
    pub fn from_superblock(raw: &RawSuperblock) -> Self {
        Self::new(raw.features(), raw.s_uuid, raw.s_checksum_seed.get())
    }

    /// The scheme for feature words, UUID and (with `metadata_csum_seed`) the stored seed.
    #[must_use]
    pub fn new(features: Features, uuid: [u8; 16], stored_seed: u32) -> Self {
        let from_uuid = || crc32c(!0, &uuid);
        let seed = if features.incompat.contains(Incompat::CSUM_SEED) { stored_seed } else { from_uuid() };
        let scheme = if features.metadata_csum() {
            Scheme::Crc32c { seed }
        } else if features.ro_compat.contains(RoCompat::GDT_CSUM) {
            Scheme::Crc16 { uuid }
        } else {
            Scheme::None
        };
        Sealer { scheme, value_seed: seed, wide_descriptors: features.incompat.contains(Incompat::BIT64) }
    }

    /// True if directory leaves, extent nodes and the like carry checksums.
    #[must_use]
    pub fn covers_metadata(&self) -> bool {
        matches!(self.scheme, Scheme::Crc32c { .. })
    }

    fn seed(&self) -> Option<u32> {
        match self.scheme {
            Scheme::Crc32c { seed } => Some(seed),
            _ => None,
        }
    }

    /// Seed of the structures of one inode.
    #[must_use]
    pub fn inode_seed(&self, number: InodeNumber, generation: u32) -> InodeSeed {
        let both = seed_bytes(number, generation);
        InodeSeed(self.seed().map(|seed| crc32c(seed, &both)))
    }

    /// True if the superblock's checksum is right.
    #[must_use]
    pub fn superblock_is_right(&self, raw: &RawSuperblock) -> bool {
        self.seed().is_none() || raw.s_checksum.get() == superblock_checksum(raw)
    }

    /// Writes the superblock's checksum.
    pub fn seal_superblock(&self, raw: &mut RawSuperblock) {
        if self.seed().is_some() {
            let checksum = superblock_checksum(raw);
            raw.s_checksum.set(checksum);
        }
    }

    /// The checksum of a descriptor of `size` bytes, whose bytes behind 64 are `rest`.
    fn descriptor_checksum(&self, group: Group, raw: &RawGroupDescriptor, rest: &[u8]) -> Option<u16> {
        // spec: gd
        let mut whole = [0; 64];
        raw.store(&mut whole);
        let number = group.0.to_le_bytes();
        let (head, tail) = (whole.get(..0x1E)?, whole.get(0x20..)?);
        let tail = if self.wide_descriptors { tail } else { &[] };
        match self.scheme {
            Scheme::None => None,
            Scheme::Crc16 { uuid } => {
                let crc = crc16(crc16(crc16(!0, &uuid), &number), head);
                Some(crc16(crc16(crc, tail), rest))
            }
            Scheme::Crc32c { seed } => {
                let crc = crc32c(crc32c(crc32c(seed, &number), head), &[0, 0]);
                Some(low_u16(crc32c(crc32c(crc, tail), rest)))
            }
        }
    }

    /// True if a descriptor's checksum is right; `rest` is what follows its first 64 bytes.
    #[must_use]
    pub fn descriptor_is_right(&self, group: Group, raw: &RawGroupDescriptor, rest: &[u8]) -> bool {
        self.descriptor_checksum(group, raw, rest).is_none_or(|right| raw.bg_checksum.get() == right)
    }

    /// Writes a descriptor's checksum.
    pub fn seal_descriptor(&self, group: Group, raw: &mut RawGroupDescriptor, rest: &[u8]) {
        if let Some(right) = self.descriptor_checksum(group, raw, rest) {
            raw.bg_checksum.set(right);
        }
    }

    /// The checksum of a bitmap's first `bits / 8` bytes as descriptors store it: the low half only
    /// in 32-byte descriptors. `None` without `metadata_csum`.
    #[must_use]
    pub fn bitmap_checksum(&self, bitmap: &[u8], bits: u32) -> Option<u32> {
        let span = bitmap.get(..bits as usize / 8).unwrap_or(bitmap);
        let crc = crc32c(self.seed()?, span);
        Some(if self.wide_descriptors { crc } else { crc & 0xFFFF })
    }

    /// The checksum of an inode record as (low half, high half if the record has room for it).
    fn inode_checksum(&self, number: InodeNumber, inode: &Inode) -> Option<(u16, Option<u16>)> {
        // spec: inode
        let seed = self.seed()?;
        let bytes = inode.bytes();
        let has_high = inode.extra_size() >= 4;
        // What the seed is made of, and the record with both checksum fields read as zero. Inodes are sealed and verified
        // all the time, so what is of the usual size goes in one piece.
        let (mut usual, mut longer);
        let whole = if bytes.len() <= USUAL_SIZE {
            usual = [0; SEED_LEN + USUAL_SIZE];
            usual.get_mut(..SEED_LEN + bytes.len())?
        } else {
            longer = vec![0; SEED_LEN + bytes.len()];
            &mut longer[..]
        };
        let (both, record) = whole.split_first_chunk_mut::<SEED_LEN>()?;
        *both = seed_bytes(number, inode.generation());
        record.copy_from_slice(bytes);
        *record.get_mut(0x7C..)?.first_chunk_mut()? = [0; 2];
        if has_high {
            *record.get_mut(OLD_SIZE + 2..)?.first_chunk_mut()? = [0; 2];
        }
        let crc = crc32c(seed, whole);
        Some((low_u16(crc), has_high.then(|| high_u16(crc))))
    }

    /// True if an inode record's checksum is right. Records of only zeros are never sealed and
    /// count as right.
    #[must_use]
    pub fn inode_is_right(&self, inode: &Inode) -> bool {
        self.inode_is_right_as(inode.number(), inode)
    }

    /// Checks as [`Sealer::inode_is_right`] a record that stands where the inode of another number has its own.
    #[must_use]
    pub fn inode_is_right_as(&self, number: InodeNumber, inode: &Inode) -> bool {
        let Some((low, high)) = self.inode_checksum(number, inode) else { return true };
        let right = inode.raw().i_checksum_lo.get() == low
            && high.is_none_or(|high| inode.extra().i_checksum_hi.get() == high);
        right || inode.bytes().iter().all(|byte| *byte == 0)
    }

    /// Writes an inode record's checksum.
    pub fn seal_inode(&self, inode: &mut Inode) {
        self.seal_inode_as(inode.number(), inode);
    }

    /// Seals as [`Sealer::seal_inode`] a record that will stand where the inode of another number has its own.
    pub fn seal_inode_as(&self, number: InodeNumber, inode: &mut Inode) {
        debug_assert!(inode.extra_size() <= EXTRA_SIZE || inode.bytes().len() > OLD_SIZE);
        if let Some((low, high)) = self.inode_checksum(number, inode) {
            inode.raw_mut().i_checksum_lo.set(low);
            if let Some(high) = high {
                inode.edit_extra(|extra| extra.i_checksum_hi.set(high));
            }
        }
    }

    /// Checksum of an external attribute block, its own field (offset 16) read as zero.
    fn attribute_block_checksum(&self, block: Block, bytes: &[u8]) -> Option<u32> {
        // spec: xattr
        let crc = crc32c(self.seed()?, &block.0.to_le_bytes());
        let crc = crc32c(crc32c(crc, bytes.get(..16)?), &[0; 4]);
        Some(crc32c(crc, bytes.get(20..)?))
    }

    /// True if an external attribute block's checksum is right.
    #[must_use]
    pub fn attribute_block_is_right(&self, block: Block, bytes: &[u8]) -> bool {
        self.attribute_block_checksum(block, bytes).is_none_or(|right| stored(bytes, 16) == Some(right))
    }

    /// Writes an external attribute block's checksum.
    pub fn seal_attribute_block(&self, block: Block, bytes: &mut [u8]) {
        if let Some(right) = self.attribute_block_checksum(block, bytes) {
            put(bytes, 16, right);
        }
    }

    /// Hash of an attribute value that is kept in an inode of its own, on volumes with and without
    /// checksums.
    #[must_use]
    pub fn attribute_value_hash(&self, value: &[u8]) -> u32 {
        // spec: ea-inode: the seed does not depend on metadata_csum.
        crc32c(self.value_seed, value)
    }

    /// Writes the checksum of a multiple-mount-protection block.
    pub fn seal_mmp(&self, bytes: &mut [u8]) {
        // spec: mmp
        if let (Some(seed), Some(span)) = (self.seed(), bytes.get(..MMP_CHECKSUM_OFFSET)) {
            let right = crc32c(seed, span);
            put(bytes, MMP_CHECKSUM_OFFSET, right);
        }
    }
}

fn superblock_checksum(raw: &RawSuperblock) -> u32 {
    // spec: sb: the seed is all ones, not that of the volume, which stands in these bytes.
    use zerocopy::IntoBytes;
    crc32c(!0, raw.as_bytes().get(..SUPERBLOCK_LEN - 4).unwrap_or_default())
}

impl InodeSeed {
    fn extent_node_checksum(self, bytes: &[u8]) -> Option<(usize, u32)> {
        let tail = extent::Node::tail_offset(bytes);
        Some((tail, crc32c(self.0?, bytes.get(..tail)?)))
    }

    /// True if the checksum of an extent node block (not the root in the inode) is right.
    #[must_use]
    pub fn extent_node_is_right(self, bytes: &[u8]) -> bool {
        match self.extent_node_checksum(bytes) {
            Some((tail, right)) => stored(bytes, tail) == Some(right),
            None => self.0.is_none(),
        }
    }

    /// Writes the checksum of an extent node block.
    pub fn seal_extent_node(self, bytes: &mut [u8]) {
        if let Some((tail, right)) = self.extent_node_checksum(bytes) {
            put(bytes, tail, right);
        }
    }

    fn directory_leaf_checksum(self, bytes: &[u8]) -> Option<u32> {
        Some(crc32c(self.0?, bytes.get(..bytes.len().checked_sub(DIRECTORY_TAIL_LEN)?)?))
    }

    /// True if the checksum in a directory leaf's tail is right. That a tail is there at all is for
    /// the directory decoder to see.
    #[must_use]
    pub fn directory_leaf_is_right(self, bytes: &[u8]) -> bool {
        match self.directory_leaf_checksum(bytes) {
            Some(right) => stored(bytes, bytes.len() - 4) == Some(right),
            None => self.0.is_none(),
        }
    }

    /// Writes the checksum into a directory leaf's tail.
    pub fn seal_directory_leaf(self, bytes: &mut [u8]) {
        if let Some(right) = self.directory_leaf_checksum(bytes) {
            put(bytes, bytes.len() - 4, right);
        }
    }

    /// Checksum of an index node whose entries begin with a count at `count_offset`: everything up
    /// to the last used entry, the tail's reserved word, and four zero bytes.
    fn index_node_checksum(self, bytes: &[u8], count_offset: usize) -> Option<(usize, u32)> {
        // spec: htree
        let words = bytes.get(count_offset..count_offset + 4)?;
        let (limit, count) = match words {
            &[a, b, c, d] => (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])),
            _ => return None,
        };
        let tail = count_offset + 8 * usize::from(limit);
        let crc = crc32c(self.0?, bytes.get(..count_offset + 8 * usize::from(count))?);
        Some((tail + 4, crc32c(crc32c(crc, bytes.get(tail..tail + 4)?), &[0; 4])))
    }

    /// True if the checksum of a directory index node is right.
    #[must_use]
    pub fn index_node_is_right(self, bytes: &[u8], count_offset: usize) -> bool {
        match self.index_node_checksum(bytes, count_offset) {
            Some((at, right)) => stored(bytes, at) == Some(right),
            None => self.0.is_none(),
        }
    }

    /// Writes the checksum of a directory index node.
    pub fn seal_index_node(self, bytes: &mut [u8], count_offset: usize) {
        if let Some((at, right)) = self.index_node_checksum(bytes, count_offset) {
            put(bytes, at, right);
        }
    }

    /// Checksum of a block of the orphan file, which also covers its place on the volume.
    #[must_use]
    pub fn orphan_block_checksum(self, block: Block, bytes: &[u8]) -> Option<u32> {
        let crc = crc32c(self.0?, &block.0.to_le_bytes());
        Some(crc32c(crc, bytes.get(..bytes.len().checked_sub(8)?)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        // The check values of the CRC catalogue for "123456789".
        assert_eq!(!crc32c(!0, b"123456789"), 0xE306_9283);
        assert_eq!(crc16(0, b"123456789"), 0xBB3D);
    }

    fn sealer() -> Sealer {
        let features =
            Features { ro_compat: RoCompat::METADATA_CSUM, incompat: Incompat::BIT64, ..Features::default() };
        Sealer::new(features, [7; 16], 0)
    }

    #[test]
    fn every_flipped_bit_of_a_sealed_inode_shows() {
        let sealer = sealer();
        let mut inode = Inode::blank(InodeNumber::constant(12), 256);
        inode.raw_mut().i_mode.set(0x81A4);
        sealer.seal_inode(&mut inode);
        assert!(sealer.inode_is_right(&inode));
        for at in 0..256 {
            // The extra size itself decides what is covered; damage there is caught by parsing.
            if (128..130).contains(&at) {
                continue;
            }
            let mut damaged = inode.clone();
            damaged.bytes_mut()[at] ^= 0x10;
            assert!(!sealer.inode_is_right(&damaged), "byte {at}");
        }
    }

    #[test]
    fn hostile_index_limits_never_reach_outside() {
        let seed = sealer().inode_seed(InodeNumber::ROOT, 0);
        let mut bytes = [0xFF; 1024];
        assert!(!seed.index_node_is_right(&bytes, 8));
        seed.seal_index_node(&mut bytes, 8);
        assert!(!seed.directory_leaf_is_right(&[]));
        assert!(!seed.extent_node_is_right(&bytes[..4]));
    }

    #[test]
    fn descriptors_seal_in_both_schemes() {
        for ro_compat in [RoCompat::METADATA_CSUM, RoCompat::GDT_CSUM] {
            let sealer = Sealer::new(Features { ro_compat, ..Features::default() }, [9; 16], 0);
            let mut raw = RawGroupDescriptor::zeroed();
            raw.set_free_inodes(5);
            sealer.seal_descriptor(Group(3), &mut raw, &[]);
            assert!(sealer.descriptor_is_right(Group(3), &raw, &[]));
            assert!(!sealer.descriptor_is_right(Group(4), &raw, &[]));
        }
    }
}
