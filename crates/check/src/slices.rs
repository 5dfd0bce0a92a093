//! Access to bytes and tables in memory by numbers of a volume.
//!
//! Owns: the conversion to an index, reading a word, and a write that must stay inside. Excludes checks of bounds: the
//! caller makes them before, so that no bytes of a volume lead outside.

use ondisk::invariant_or;
use ondisk::units::saturated;

/// Index of a number in a table in memory. A number beyond the address space gives an index that no table has.
pub(super) fn as_index(number: u64) -> usize {
    saturated::<usize>(number)
}

/// Number of 32 bits at a place; 0 if that lies outside.
pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// Writes `with` over the bytes from `at` on, which the caller knows to lie inside.
pub(super) fn put(bytes: &mut [u8], at: usize, with: &[u8]) {
    let to = at.checked_add(with.len()).and_then(|end| bytes.get_mut(at..end));
    invariant_or!(to, return, "bytes are written inside of what has them").copy_from_slice(with);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_at_their_place() {
        let mut bytes = [0; 4];
        put(&mut bytes, 1, &[7, 8]);
        assert_eq!(bytes, [0, 7, 8, 0]);
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic = "bytes are written inside of what has them")]
    fn a_write_beyond_the_end_is_a_defect() {
        let mut bytes = [0; 4];
        put(&mut bytes, 3, &[7, 8]);
        assert_eq!(bytes, [0; 4]);
    }
}
