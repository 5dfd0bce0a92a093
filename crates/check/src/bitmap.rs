//! One bitmap of one group: its bytes as they are, compared with what was found in use.

use ondisk::units::{Block, low_u32};

use super::paged::Bits;
use super::subject::Subject;

/// A bitmap as it stands on the device.
pub(super) enum Stored {
    /// Its bytes.
    Bytes(Vec<u8>),
    /// Marked as not begun: the bits it would have, as far as the group's own structures set them.
    Uninit(Bits),
    /// The device can't read it, in its words.
    Unreadable(String),
    /// Nothing of it counts: it is rebuilt.
    Void,
}

impl Stored {
    /// Reads the bitmap at `place`.
    pub(super) fn read(subject: &Subject, place: Block) -> Stored {
        match subject.block(place) {
            Ok(bytes) => Stored::Bytes(bytes),
            Err(error) => Stored::Unreadable(error.to_string()),
        }
    }

    /// The 64 bits from `at` on.
    fn window(&self, at: u64) -> Option<u64> {
        match self {
            Stored::Bytes(bytes) => {
                let from = usize::try_from(at / 8).ok()?;
                let mut word = [0; 8];
                for (to, byte) in word.iter_mut().zip(bytes.get(from..).unwrap_or_default()) {
                    *to = *byte;
                }
                Some(u64::from_le_bytes(word))
            }
            Stored::Uninit(bits) => Some(bits.window(at)),
            Stored::Unreadable(_) | Stored::Void => None,
        }
    }

    /// Returns true if the bitmap marks a number as in use; `None` where it can't be read.
    pub(super) fn has(&self, at: u64) -> Option<bool> {
        self.window(at & !7).map(|word| word >> (at & 7) & 1 == 1)
    }

    /// Returns true if every bit from `from` to the end of the block is set.
    pub(super) fn is_padded(&self, from: u32) -> bool {
        let Stored::Bytes(bytes) = self else { return true };
        let (byte, bit) = ((from / 8) as usize, from % 8);
        let partial = bit == 0 || bytes.get(byte).is_none_or(|byte| byte >> bit == 0xFF >> bit);
        let whole = byte + usize::from(bit != 0);
        partial && bytes.get(whole..).unwrap_or_default().iter().all(|byte| *byte == 0xFF)
    }
}

/// Differences between a bitmap and the blocks or inodes found in use.
#[derive(Default)]
pub(super) struct Compared {
    /// Numbers in use that it calls free, without an explanation.
    pub(super) missing: Vec<u64>,
    /// Numbers without a user that it calls used, without an explanation.
    pub(super) idle: Vec<u64>,
    /// True if there are differences.
    pub(super) differs: bool,
    /// True if any of them is not reported.
    pub(super) unreported: bool,
    /// Found in use.
    pub(super) found: u32,
    /// Used as the bitmap says; as found where it says nothing.
    pub(super) stated: u32,
}

/// Compares `count` bits with the numbers of `found` from `base` on. `reported` says which differences, of
/// (in use, marked free) and (free, marked in use), are reported; it gets the first number of a word and
/// its differing bits, and returns those to report.
pub(super) fn compare(
    stored: &Stored,
    found: &Bits,
    base: u64,
    count: u32,
    reported: impl Fn(u64, u64, u64) -> (u64, u64),
) -> Compared {
    let mut compared = Compared::default();
    for at in (0..u64::from(count)).step_by(64) {
        let left = u64::from(count) - at;
        let mask = if left >= 64 { u64::MAX } else { (1 << left) - 1 };
        let used = found.window(base + at) & mask;
        let says = stored.window(at).map_or(used, |word| word & mask);
        compared.found += used.count_ones();
        compared.stated += says.count_ones();
        if used == says {
            continue;
        }
        compared.differs = true;
        let (missing, idle) = reported(base + at, used & !says, says & !used);
        compared.unreported |= missing | idle != used ^ says;
        collect(&mut compared.missing, base + at, missing);
        collect(&mut compared.idle, base + at, idle);
    }
    compared.differs |= matches!(stored, Stored::Unreadable(_) | Stored::Void);
    compared
}

fn collect(numbers: &mut Vec<u64>, base: u64, mut bits: u64) {
    while bits != 0 {
        numbers.push(base + u64::from(bits.trailing_zeros()));
        bits &= bits - 1;
    }
}

/// The bytes of a block for `count` bits of `found` from `base` on, padded with ones; bits in `except`
/// (relative to `base`) are the opposite of what was found.
pub(super) fn bytes(found: &Bits, base: u64, count: u32, block_len: usize, except: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(block_len);
    for at in (0..block_len as u64 * 8).step_by(64) {
        let left = u64::from(count).saturating_sub(at);
        let mask = if left >= 64 { u64::MAX } else { (1 << left) - 1 };
        bytes.extend_from_slice(&(found.window(base + at) & mask | !mask).to_le_bytes());
    }
    for number in except {
        let at = number.saturating_sub(base);
        if let Some(byte) = usize::try_from(at / 8).ok().and_then(|at| bytes.get_mut(at)) {
            *byte ^= 1 << (at % 8);
        }
    }
    bytes
}

/// Most ranges that are listed by their numbers.
const RANGES_LISTED: usize = 6;

/// Numbers as ranges: `5, 7-9`, each number `each` units wide, from `zero` on.
pub(super) fn ranges(numbers: &[u64], zero: u64, each: u64) -> String {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, end)) if *end == *number => *end += 1,
            _ => runs.push((*number, number + 1)),
        }
    }
    let mut words: Vec<_> = runs
        .iter()
        .take(RANGES_LISTED)
        .map(|(from, end)| match (zero + from * each, zero + end * each - 1) {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first}-{last}"),
        })
        .collect();
    if runs.len() > RANGES_LISTED {
        words.push(format!("and {} more", low_u32((runs.len() - RANGES_LISTED) as u64)));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_come_back_as_bytes_and_compare_equal() {
        let found = Bits::new(1000);
        found.insert_range(100, 170, |_| ());
        let block = bytes(&found, 96, 80, 32, &[]);
        assert_eq!(block.len(), 32);
        assert_eq!((block[0], block[9], block[10]), (0xF0, 0x03, 0xFF));
        let stored = Stored::Bytes(block);
        assert!(stored.is_padded(80) && !stored.is_padded(74));
        let same = compare(&stored, &found, 96, 80, |_, missing, idle| (missing, idle));
        assert!(!same.differs);
        assert_eq!((same.found, same.stated), (70, 70));
        found.remove(120);
        found.insert(175);
        let other = compare(&stored, &found, 96, 80, |_, missing, idle| (missing, idle));
        assert_eq!((other.missing, other.idle), (vec![175], vec![120]));
    }

    #[test]
    fn ranges_are_listed_in_words() {
        assert_eq!(ranges(&[3, 4, 5, 9], 1, 1), "4-6, 10");
        assert_eq!(ranges(&[3], 0, 4), "12-15");
        assert_eq!(ranges(&[1, 3, 5, 7, 9, 11, 13, 15], 0, 1), "1, 3, 5, 7, 9, 11, and 2 more");
    }
}
