//! Blocks of the orphan file (`orphan_file`): inode numbers, then a tail of magic and checksum.
//!
//! Source: the ext4 data structure documentation of Linux ("Orphan File"). The checksum stands in
//! [`crate::seal`]; it covers the block's place on the volume.

use crate::corrupt::{Corrupt, Place};
use crate::seal::InodeSeed;
use crate::units::{Block, InodeNumber, low_u32};

/// `ob_magic` in the tail.
pub const ORPHAN_MAGIC: u32 = 0x0B10_CA04;
/// Bytes of the tail.
pub const ORPHAN_TAIL_LEN: usize = 8;

/// Makes `bytes` (one block) a block of the orphan file at `place` that lists these inodes, as far as it has
/// room for them.
pub fn write(seed: InodeSeed, place: Block, inodes: &[InodeNumber], bytes: &mut [u8]) {
    bytes.fill(0);
    let Some(tail) = bytes.len().checked_sub(ORPHAN_TAIL_LEN) else { return };
    for (to, inode) in bytes.chunks_exact_mut(4).take(tail / 4).zip(inodes) {
        to.copy_from_slice(&inode.get().to_le_bytes());
    }
    let checksum = seed.orphan_block_checksum(place, bytes).unwrap_or(0);
    let words = ORPHAN_MAGIC.to_le_bytes().into_iter().chain(checksum.to_le_bytes());
    for (to, from) in bytes.iter_mut().skip(tail).zip(words) {
        *to = from;
    }
}

/// The inodes that a block of the orphan file at `place` lists.
///
/// # Errors
/// A wrong magic or checksum.
pub fn entries(seed: InodeSeed, place: Block, bytes: &[u8]) -> Result<Vec<InodeNumber>, Corrupt> {
    // spec: orphan
    let bad = |problem: &str| Corrupt::new(Place::Block(place), format!("of the orphan file {problem}"));
    let tail = bytes.len().checked_sub(ORPHAN_TAIL_LEN).ok_or_else(|| bad("is too short"))?;
    let word =
        |at: usize| bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_le_bytes);
    if word(tail) != ORPHAN_MAGIC {
        return Err(bad("has a wrong magic"));
    }
    if seed.orphan_block_checksum(place, bytes).is_some_and(|right| right != word(tail + 4)) {
        return Err(bad("has a wrong checksum"));
    }
    Ok((0..tail / 4).filter_map(|index| InodeNumber::new(word(index * 4))).collect())
}

/// Blocks that mke2fs gives the orphan file of a volume of `blocks` blocks: 32 on small volumes,
/// 512 from 2^21 blocks on, in proportion between.
#[must_use]
pub fn default_blocks(blocks: u64) -> u32 {
    const SMALL: u64 = 128 * 1024;
    const LARGE: u64 = 2 * 1024 * 1024;
    let over = blocks.clamp(SMALL, LARGE) - SMALL;
    low_u32(32 + over * (512 - 32) / (LARGE - SMALL))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::{Features, RoCompat};
    use crate::seal::Sealer;

    #[test]
    fn empty_blocks_read_back_and_damage_shows() {
        let features = Features { ro_compat: RoCompat::METADATA_CSUM, ..Features::default() };
        let seed = Sealer::new(features, [3; 16], 0).inode_seed(InodeNumber::constant(12), 0);
        let mut bytes = [0xFF; 1024];
        let listed = [InodeNumber::constant(12), InodeNumber::constant(70_000)];
        write(seed, Block(77), &listed, &mut bytes);
        assert_eq!(entries(seed, Block(77), &bytes).unwrap(), listed);
        write(seed, Block(77), &[], &mut bytes);
        assert_eq!(entries(seed, Block(77), &bytes).unwrap(), []);
        assert!(entries(seed, Block(78), &bytes).is_err(), "the place is covered");
        bytes[5] = 1;
        assert!(entries(seed, Block(77), &bytes).is_err());
        assert!(entries(seed, Block(77), &[0; 7]).is_err());
    }

    #[test]
    fn sizes_are_those_of_mke2fs() {
        assert_eq!([0, 131_072, 153_600, 2_097_152, u64::MAX].map(default_blocks), [32, 32, 37, 512, 512]);
    }
}
