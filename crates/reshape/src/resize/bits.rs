//! One bitmap in memory: a bit for each cluster or inode of a group.

use ondisk::units::low_u32;

/// A bitmap block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Bits(Vec<u8>);

impl Bits {
    /// A bitmap as it was read.
    pub(super) fn from_bytes(bytes: Vec<u8>) -> Self {
        Bits(bytes)
    }

    /// A block of `len` bytes whose first `bits` bits are clear; those behind are set, as the format wants.
    pub(super) fn new(len: usize, bits: u32) -> Self {
        let mut new = Bits(vec![0; len]);
        new.set(bits, new.len());
        new
    }

    /// Bits of the block.
    pub(super) fn len(&self) -> u32 {
        low_u32(self.0.len() as u64 * 8)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn get(&self, at: u32) -> bool {
        self.0.get(at as usize / 8).is_none_or(|byte| byte >> (at % 8) & 1 == 1)
    }

    pub(super) fn set(&mut self, from: u32, to: u32) {
        self.change(from, to, |byte, mask| byte | mask);
    }

    pub(super) fn clear(&mut self, from: u32, to: u32) {
        self.change(from, to, |byte, mask| byte & !mask);
    }

    fn change(&mut self, from: u32, to: u32, edit: impl Fn(u8, u8) -> u8) {
        let mut at = from;
        while at < to {
            let Some(byte) = self.0.get_mut(at as usize / 8) else { return };
            let whole = at.is_multiple_of(8) && to - at >= 8;
            let mask = if whole { 0xFF } else { 1 << (at % 8) };
            *byte = edit(*byte, mask);
            at += if whole { 8 } else { 1 };
        }
    }

    /// Clear bits of the first `bits`.
    pub(super) fn count_clear(&self, bits: u32) -> u32 {
        let whole = self.0.iter().take(bits as usize / 8).map(|byte| byte.count_zeros()).sum::<u32>();
        (bits / 8 * 8..bits).fold(whole, |sum, at| sum + u32::from(!self.get(at)))
    }

    /// The first run of bits of a kind at or behind `from`, before `limit`.
    pub(super) fn next_run(&self, from: u32, limit: u32, kind: bool) -> Option<(u32, u32)> {
        let start = self.next(from, limit, kind)?;
        Some((start, self.next(start, limit, !kind).unwrap_or(limit)))
    }

    fn next(&self, mut at: u32, limit: u32, kind: bool) -> Option<u32> {
        let skip = if kind { 0 } else { 0xFF };
        while at < limit {
            if at.is_multiple_of(8) && self.0.get(at as usize / 8) == Some(&skip) {
                at += 8;
            } else if self.get(at) == kind {
                return Some(at);
            } else {
                at += 1;
            }
        }
        None
    }
}
