//! The seed of a volume's checksums, from what they seal.
//!
//! For given bytes CRC-32C maps each seed to another sum, so that a sound structure says with which seed it was sealed.
//! Owns that way back, for structures whose checksum is stored with all its 32 bits. Excludes the way there
//! ([`crate::seal`]).

use crate::dirent;
use crate::inode::{Inode, OLD_SIZE};
use crate::seal::DIRECTORY_TAIL_LEN;
use crate::units::InodeNumber;

/// The reflected polynomial of CRC-32C.
const POLYNOMIAL: u32 = 0x82F6_3B78;
/// Offset of the low half of an inode's checksum, and of the high half.
const CHECKSUM_LOW: usize = 0x7C;
const CHECKSUM_HIGH: usize = OLD_SIZE + 2;

/// The seed from which `data` leads to `sum`.
#[must_use]
pub fn seed_before(sum: u32, data: &[u8]) -> u32 {
    let back = |sum: u32| if sum >> 31 == 1 { (sum ^ POLYNOMIAL) << 1 | 1 } else { sum << 1 };
    data.iter().rev().fold(sum, |sum, byte| (0..8).fold(sum, |sum, _| back(sum)) ^ u32::from(*byte))
}

/// The volume's seed, from that of an inode's structures.
fn of_volume(seed: u32, number: InodeNumber, generation: u32) -> u32 {
    seed_before(seed_before(seed, &generation.to_le_bytes()), &number.get().to_le_bytes())
}

/// The volume's seed by an inode; `None` where its record has room for half of a checksum, or is blank.
#[must_use]
pub fn by_inode(inode: &Inode) -> Option<u32> {
    if inode.extra_size() < 4 || inode.bytes().iter().all(|byte| *byte == 0) {
        return None;
    }
    let sum = u32::from(inode.extra().i_checksum_hi.get()) << 16 | u32::from(inode.raw().i_checksum_lo.get());
    let mut record = inode.bytes().to_vec();
    for at in [CHECKSUM_LOW, CHECKSUM_HIGH] {
        record.get_mut(at..at + 2)?.fill(0);
    }
    Some(of_volume(seed_before(sum, &record), inode.number(), inode.generation()))
}

/// The volume's seed by a directory leaf; `None` where it has no checksum.
#[must_use]
pub fn by_directory_leaf(directory: &Inode, leaf: &[u8]) -> Option<u32> {
    let span = leaf.get(..leaf.len().checked_sub(DIRECTORY_TAIL_LEN)?)?;
    if !dirent::has_tail(leaf) {
        return None;
    }
    let sum = u32::from_le_bytes(*leaf.last_chunk()?);
    Some(of_volume(seed_before(sum, span), directory.number(), directory.generation()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::{Features, RoCompat};
    use crate::seal::{Sealer, crc32c};

    #[test]
    fn what_is_sealed_says_with_which_seed() {
        let uuid = [0x5A; 16];
        let features = Features { ro_compat: RoCompat::METADATA_CSUM, ..Features::default() };
        let sealer = Sealer::new(features, uuid, 0);
        let mut inode = Inode::blank(InodeNumber::constant(12), 256);
        inode.raw_mut().i_mode.set(0x41ED);
        inode.raw_mut().i_generation.set(0xDEAD_BEEF);
        inode.edit_extra(|extra| extra.i_extra_isize.set(32));
        sealer.seal_inode(&mut inode);
        assert_eq!(by_inode(&inode), Some(crc32c(!0, &uuid)));
        let mut leaf = [7; 1024];
        dirent::put_tail(&mut leaf);
        sealer.inode_seed(inode.number(), inode.generation()).seal_directory_leaf(&mut leaf);
        assert_eq!(by_directory_leaf(&inode, &leaf), Some(crc32c(!0, &uuid)));
        assert_eq!(by_directory_leaf(&inode, &[]), None);
        assert_eq!(by_inode(&Inode::blank(InodeNumber::constant(12), 128)), None);
    }
}
