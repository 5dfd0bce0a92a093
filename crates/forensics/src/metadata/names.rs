//! Names made unreadable: as long as before, different where they were different, and the same for the same key.
//!
//! Owns: the exchange of names. It can't be undone without the key, which nobody keeps. Excludes: where names stand.

use ondisk::dirhash::{HashVersion, NameHasher};

/// Bytes that a name may have, of all 256.
const LETTERS: u32 = 254;
/// The directory at the root that checkers look for by name.
const FOUND: &[u8] = b"lost+found";

/// Exchanges names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    hasher: NameHasher,
}

impl Names {
    /// The exchange for a key.
    pub(super) fn new(key: [u32; 4]) -> Self {
        Names { hasher: NameHasher::new(HashVersion::HalfMd4, true, key) }
    }

    /// Exchanges a name in place. `.`, `..` and `lost+found` stay, and no other name becomes one of them.
    pub(super) fn name(&self, name: &mut [u8]) {
        let stays = |name: &[u8]| matches!(name, b"." | b"..") || name == FOUND;
        if name.is_empty() || stays(name) {
            return;
        }
        // The exchange is one to one, so that this ends: the names that stay are three.
        loop {
            self.once(name);
            if !stays(name) {
                return;
            }
        }
    }

    /// Exchanges each part of a path.
    pub(super) fn path(&self, path: &mut [u8]) {
        path.split_mut(|byte| *byte == b'/').for_each(|part| self.name(part));
    }

    /// Each byte is moved by a number that the bytes before it give, as they were: so the exchange is one to one.
    fn once(&self, name: &mut [u8]) {
        let was = name.to_vec();
        for (at, byte) in name.iter_mut().enumerate() {
            let before = was.get(..at).unwrap_or_default();
            let hash = self.hasher.hash(before);
            let by =
                (hash.major >> 1) ^ hash.minor ^ u32::try_from(at).unwrap_or(0).wrapping_mul(0x9E37_79B9);
            if let Some(letter) = letter_of(*byte) {
                *byte = byte_of((letter + by % LETTERS) % LETTERS);
            }
        }
    }
}

/// The number of a byte among those that names may have.
fn letter_of(byte: u8) -> Option<u32> {
    match byte {
        0 | b'/' => None,
        byte if byte < b'/' => Some(u32::from(byte) - 1),
        byte => Some(u32::from(byte) - 2),
    }
}

fn byte_of(letter: u32) -> u8 {
    let byte = if letter + 1 < u32::from(b'/') { letter + 1 } else { letter + 2 };
    u8::try_from(byte).unwrap_or(b'x')
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_stay_different_and_as_long() {
        let names = Names::new([1, 2, 3, 4]);
        let mut all = BTreeSet::new();
        for first in (1..=255_u8).filter(|byte| *byte != b'/') {
            for second in (1..=255_u8).filter(|byte| *byte != b'/') {
                let mut name = [first, second];
                names.name(&mut name);
                assert!(!name.contains(&0) && !name.contains(&b'/'));
                assert!(&name != b".." || (first, second) == (b'.', b'.'));
                all.insert(name);
            }
        }
        assert_eq!(all.len(), 254 * 254);
        let mut path = *b"/usr/bin/../lib";
        names.path(&mut path);
        assert_eq!((path[0], path[4], &path[8..12]), (b'/', b'/', &b"/../"[..]));
        assert_ne!(&path[1..4], b"usr");
        let mut found = *b"lost+found";
        names.name(&mut found);
        assert_eq!(&found, b"lost+found");
    }
}
