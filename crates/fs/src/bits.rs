//! A set of numbers below a bound: one bit for each.

use ondisk::units::bounded;

/// The set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bits {
    words: Vec<u64>,
    len: u64,
}

fn word_and_bit(at: u64) -> (usize, u64) {
    (bounded::<usize>(at / 64), 1 << (at % 64))
}

impl Bits {
    /// None of the numbers below `len`.
    pub(crate) fn new(len: u64) -> Self {
        Bits { words: vec![0; bounded::<usize>(len.div_ceil(64))], len }
    }

    pub(crate) fn has(&self, at: u64) -> bool {
        let (word, bit) = word_and_bit(at);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Adds a number; one that is not below the bound is left out.
    pub(crate) fn add(&mut self, at: u64) {
        let (word, bit) = word_and_bit(at);
        if let Some(word) = self.words.get_mut(word).filter(|_| at < self.len) {
            *word |= bit;
        }
    }

    /// Takes a number out; says whether it was there.
    pub(crate) fn take(&mut self, at: u64) -> bool {
        let (word, bit) = word_and_bit(at);
        let Some(word) = self.words.get_mut(word) else { return false };
        let was_there = *word & bit != 0;
        *word &= !bit;
        was_there
    }

    /// The first number from one on.
    pub(crate) fn next(&self, from: u64) -> Option<u64> {
        let (first, _) = word_and_bit(from);
        let mut mask = !0 << (from % 64);
        for (index, word) in self.words.iter().enumerate().skip(first) {
            if word & mask != 0 {
                return Some(index as u64 * 64 + u64::from((word & mask).trailing_zeros()));
            }
            mask = !0;
        }
        None
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_added() {
        let mut bits = Bits::new(130);
        for at in [0, 63, 64, 129, 130, 1 << 40] {
            bits.add(at);
        }
        assert_eq!(bits.count(), 4);
        assert!(bits.take(63) && !bits.take(63) && !bits.has(63) && !bits.has(130));
        let mut found = Vec::new();
        let mut from = 0;
        while let Some(at) = bits.next(from) {
            found.push(at);
            from = at + 1;
        }
        assert_eq!(found, [0, 64, 129]);
    }
}
