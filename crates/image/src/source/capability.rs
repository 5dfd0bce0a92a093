//! Capabilities of a file: the attribute in which Linux keeps them (`linux/capability.h`).
//!
//! Version 2 is a word of version and flag and two sets of two words; version 3 has the user behind them that is root where
//! they hold. All little-endian.

use ondisk::units::{high_u32, low_u32};

/// The attribute.
pub(super) const NAME: &[u8] = b"security.capability";
const VERSION_MASK: u32 = 0xff00_0000;
const VERSION_2: u32 = 0x0200_0000;
const VERSION_3: u32 = 0x0300_0000;
/// The sets take effect when a program begins.
const EFFECTIVE: u32 = 1;
/// Bytes of version 2, behind which version 3 has the user.
const SETS: usize = 20;

/// The attribute for another root user; that of the image itself needs no mention. `None` where it names none.
pub(super) fn for_root(value: &[u8], map: impl Fn(u32) -> u32) -> Option<Vec<u8>> {
    let (word, _) = value.split_first_chunk::<4>()?;
    let (sets, root) = value.split_at_checked(SETS)?;
    let (word, root) = (u32::from_le_bytes(*word), u32::from_le_bytes(root.try_into().ok()?));
    if word & VERSION_MASK != VERSION_3 {
        return None;
    }
    match map(root) {
        0 => {
            let word = word & !VERSION_MASK | VERSION_2;
            Some([&word.to_le_bytes(), sets.get(4..)?].concat())
        }
        root => Some([sets, &root.to_le_bytes()].concat()),
    }
}

/// The attribute that permits these capabilities, in effect.
pub(super) fn effective(permitted: u64) -> Vec<u8> {
    [VERSION_2 | EFFECTIVE, low_u32(permitted), 0, high_u32(permitted), 0]
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_user_moves_and_that_of_the_image_is_not_mentioned() {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let inside = words(&[0x0300_0001, 1 << 13, 0, 0, 0, 100_000]);
        assert_eq!(for_root(&inside, |id| id - 100_000), Some(words(&[0x0200_0001, 1 << 13, 0, 0, 0])));
        assert_eq!(for_root(&inside, |id| id + 1), Some(words(&[0x0300_0001, 1 << 13, 0, 0, 0, 100_001])));
        for other in [words(&[0x0200_0001, 1 << 13, 0, 0, 0]), words(&[0x0300_0001]), Vec::new()] {
            assert_eq!(for_root(&other, |id| id + 1), None);
        }
    }
}
