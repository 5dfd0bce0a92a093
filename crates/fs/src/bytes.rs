//! Parts of blocks and buffers that are there by construction.
//!
//! Owns: taking and filling such a part; one that is missing is a defect of this program. Excludes parts whose place
//! comes from bytes of an image: their absence is damage of the volume.

use std::ops::Range;

use ondisk::invariant::BrokenInvariant;

const INSIDE: &str = "a part of a block or buffer lies inside of it";

/// A part of some bytes.
///
/// # Errors
/// A part that lies outside: a broken invariant.
#[track_caller]
pub(crate) fn part(bytes: &[u8], range: Range<usize>) -> Result<&[u8], BrokenInvariant> {
    match bytes.get(range) {
        Some(part) => Ok(part),
        None => Err(BrokenInvariant::new(INSIDE)),
    }
}

/// A part of some bytes, to change.
///
/// # Errors
/// As [`part`].
#[track_caller]
pub(crate) fn part_mut(bytes: &mut [u8], range: Range<usize>) -> Result<&mut [u8], BrokenInvariant> {
    match bytes.get_mut(range) {
        Some(part) => Ok(part),
        None => Err(BrokenInvariant::new(INSIDE)),
    }
}

/// Puts bytes to a place in others.
///
/// # Errors
/// As [`part`].
#[track_caller]
pub(crate) fn put(bytes: &mut [u8], at: usize, new: &[u8]) -> Result<(), BrokenInvariant> {
    part_mut(bytes, at..at.saturating_add(new.len()))?.copy_from_slice(new);
    Ok(())
}

/// A length or offset that was bounded before, as one in memory.
///
/// # Errors
/// One that memory can't have: a broken invariant.
#[track_caller]
pub(crate) fn length(bytes: u64) -> Result<usize, BrokenInvariant> {
    match usize::try_from(bytes) {
        Ok(length) => Ok(length),
        Err(_) => Err(BrokenInvariant::new("a length that was bounded fits memory")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_taken_and_filled() {
        let mut bytes = [1, 2, 3, 4];
        assert_eq!(put(&mut bytes, 1, &[7, 8]), Ok(()));
        assert_eq!(part(&bytes, 0..3), Ok(&[1, 7, 8][..]));
        assert_eq!(length(4), Ok(4));
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic = "lies inside")]
    fn bytes_outside_are_a_broken_invariant() {
        assert!(put(&mut [0; 4], 3, &[1, 2]).is_err());
    }
}
