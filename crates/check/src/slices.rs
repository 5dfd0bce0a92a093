//! Places in memory: indexes from numbers of the volume, and bytes written over others.
//!
//! Owns: the conversion, and the assertion that a write stays inside. Excludes the bounds themselves, which the caller
//! has checked: bytes of the volume must not bring a place here that is outside.

/// Index of a number in a table in memory. A number beyond the address space gives an index that no table has.
pub(super) fn as_index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Writes over the bytes at a place that lies inside.
pub(super) fn put(bytes: &mut [u8], at: usize, with: &[u8]) {
    let len = bytes.len();
    let to = at.checked_add(with.len()).and_then(|end| bytes.get_mut(at..end));
    debug_assert!(to.is_some(), "{} bytes at {at} lie inside of {len}", with.len());
    if let Some(to) = to {
        to.copy_from_slice(with);
    }
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
    #[cfg_attr(debug_assertions, should_panic = "2 bytes at 3 lie inside of 4")]
    fn a_write_beyond_the_end_is_a_defect() {
        let mut bytes = [0; 4];
        put(&mut bytes, 3, &[7, 8]);
        assert_eq!(bytes, [0; 4]);
    }
}
