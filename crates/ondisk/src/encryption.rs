//! By what an encrypted inode is encrypted: the attribute `encryption.c`, and names without a key.
//!
//! Source: the documentation of Linux ("Filesystem-level encryption (fscrypt)") and its user interface headers. Owns the
//! bytes; keys and ciphers belong to the file system library.

use crate::dirhash::DirHash;

/// Name of the attribute, behind its kind.
pub const ATTRIBUTE: &[u8] = b"c";
/// Bytes of a nonce.
pub const NONCE_LEN: usize = 16;
/// AES-256 in XTS mode, for contents.
pub const AES_256_XTS: u8 = 1;
/// AES-256 in CBC mode with ciphertext stealing, for names.
pub const AES_256_CTS: u8 = 4;
/// One key for all files of a policy; the inode's number is part of each initialisation vector.
pub const IV_INO_LBLK_64: u8 = 0x08;
/// The two lowest bits of the flags: names are padded to 4, 8, 16 or 32 bytes.
const PADDING: u8 = 0x03;
/// Bytes of a stored name that a name without a key shows.
const SHOWN: usize = 149;
/// Bytes of its hash before them.
const HASHES: usize = 8;
/// Bytes of the digest of the rest behind them.
pub const DIGEST_LEN: usize = 32;

/// Name of the key that a policy takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KeyName {
    /// Policies of version 1: a name that the user chose.
    Descriptor([u8; 8]),
    /// Version 2: a name that follows from the key.
    Identifier([u8; 16]),
}

/// The policy of an inode, and what only it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context {
    /// Name of the policy's key.
    pub key: KeyName,
    /// Cipher of contents.
    pub contents: u8,
    /// Cipher of names and of targets of links.
    pub names: u8,
    /// Padding, and how keys are derived.
    pub flags: u8,
    /// Bytes that are encrypted at once, as a power of two; 0 for those of a block.
    pub unit_log2: u8,
    /// Number that only this inode has.
    pub nonce: [u8; NONCE_LEN],
}

impl Context {
    /// Decodes the value of the attribute; `None` if it is of no known version, or makes no sense.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        // spec: encryption
        let (key, unit_log2, rest) = match *value.first()? {
            1 if value.len() == 28 => (KeyName::Descriptor(*value.get(4..)?.first_chunk()?), 0, 12),
            2 if value.len() == 40 => {
                (KeyName::Identifier(*value.get(8..)?.first_chunk()?), *value.get(4)?, 24)
            }
            _ => return None,
        };
        Some(Context {
            key,
            contents: *value.get(1)?,
            names: *value.get(2)?,
            flags: *value.get(3)?,
            unit_log2,
            nonce: *value.get(rest..)?.first_chunk()?,
        })
    }

    /// Bytes to a multiple of which names are padded.
    #[must_use]
    pub fn padding(&self) -> usize {
        4 << (self.flags & PADDING)
    }

    /// Returns the rule by which keys and initialisation vectors are derived: the flags without the padding.
    #[must_use]
    pub fn derivation(&self) -> u8 {
        self.flags & !PADDING
    }
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Encodes a stored name as it is shown without a key: its hash and its bytes, or of a long one the first of them and a
/// digest of the others, in base64 for addresses. `digest` is SHA-256.
#[must_use]
pub fn shown(hash: DirHash, stored: &[u8], digest: impl FnOnce(&[u8]) -> [u8; DIGEST_LEN]) -> Vec<u8> {
    let mut bytes = [hash.major.to_le_bytes(), hash.minor.to_le_bytes()].concat();
    match stored.split_at_checked(SHOWN) {
        Some((first, rest)) if !rest.is_empty() => {
            bytes.extend(first);
            bytes.extend(digest(rest));
        }
        _ => bytes.extend(stored),
    }
    let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for piece in bytes.chunks(3) {
        let word = piece.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
        let word = word << (8 * (3 - piece.len()));
        for digit in 0..=piece.len() {
            text.push(DIGITS[(word >> (18 - 6 * digit) & 63) as usize]);
        }
    }
    text
}

/// Stored name that a name shown without a key stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shown {
    /// Hash of the stored name.
    pub hash: DirHash,
    /// The stored name, or how it begins.
    pub bytes: Vec<u8>,
    /// Digest of the rest of a long one.
    pub digest: Option<[u8; DIGEST_LEN]>,
}

impl Shown {
    /// Decodes such a name; `None` if it is none.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut all = Vec::with_capacity(text.len());
        for piece in text.chunks(4) {
            let mut word = 0u32;
            for digit in piece {
                let value = DIGITS.iter().position(|known| known == digit)?;
                word = word << 6 | u32::try_from(value).ok()?;
            }
            let count = match piece.len() {
                4 => 3,
                3 => 2,
                2 => 1,
                _ => return None,
            };
            let bytes = (word << (6 * (4 - piece.len()))).to_be_bytes();
            // The bits behind the last byte are zero.
            if bytes.get(1 + count..)?.iter().any(|byte| *byte != 0) {
                return None;
            }
            all.extend(bytes.get(1..=count)?);
        }
        let word = |at: usize| Some(u32::from_le_bytes(*all.get(at..)?.first_chunk()?));
        let hash = DirHash { major: word(0)?, minor: word(4)? };
        let stored = all.get(HASHES..).filter(|stored| !stored.is_empty())?;
        match stored.split_at_checked(SHOWN) {
            Some((first, rest)) if !rest.is_empty() => {
                let digest = Some(rest.try_into().ok()?);
                Some(Shown { hash, bytes: first.to_vec(), digest })
            }
            _ => Some(Shown { hash, bytes: stored.to_vec(), digest: None }),
        }
    }

    /// Returns true if it stands for a stored name.
    #[must_use]
    pub fn means(&self, stored: &[u8], digest: impl FnOnce(&[u8]) -> [u8; DIGEST_LEN]) -> bool {
        match self.digest {
            None => self.bytes == stored,
            Some(wanted) => {
                let rest = stored.strip_prefix(&self.bytes[..]);
                rest.is_some_and(|rest| !rest.is_empty() && digest(rest) == wanted)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(bytes: &[u8]) -> [u8; DIGEST_LEN] {
        [u8::try_from(bytes.len()).unwrap(); DIGEST_LEN]
    }

    #[test]
    fn names_are_shown_and_understood() {
        let hash = DirHash { major: 0x0102_0304, minor: 0xF0E0_D0C0 };
        for len in [1_u32, 16, 32, 148, 149, 150, 160, 255] {
            let stored: Vec<u8> = (0..len).map(|at| at.wrapping_mul(7).to_le_bytes()[0]).collect();
            let text = shown(hash, &stored, digest);
            assert!(text.len() <= 255 && text.iter().all(|byte| DIGITS.contains(byte)));
            let found = Shown::parse(&text).unwrap();
            assert_eq!(found.hash, hash);
            assert!(found.means(&stored, digest), "{len}");
            let other: Vec<u8> = stored.iter().map(|byte| byte ^ 1).collect();
            assert!(!found.means(&other, digest));
            assert!(!found.means(&stored[1..], digest));
        }
    }

    #[test]
    fn other_names_are_none_of_these() {
        for text in [&b""[..], b"A", b"hello", b"AAAAAAAAAAA", b"a name", b"AAAAAAAAAAAAAAB", b"\xFF"] {
            assert_eq!(Shown::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn contexts_of_both_versions() {
        let mut one = vec![1, 1, 4, 3];
        one.extend([7; 8]);
        one.extend([9; 16]);
        let found = Context::parse(&one).unwrap();
        assert_eq!((found.key, found.nonce, found.padding()), (KeyName::Descriptor([7; 8]), [9; 16], 32));
        let mut two = vec![2, 1, 4, 8, 12, 0, 0, 0];
        two.extend([7; 16]);
        two.extend([9; 16]);
        let found = Context::parse(&two).unwrap();
        assert_eq!((found.key, found.unit_log2, found.padding()), (KeyName::Identifier([7; 16]), 12, 4));
        assert_eq!(found.derivation(), IV_INO_LBLK_64);
        for bad in [&[][..], &[0], &[3; 40], &one[..27], &two[..28]] {
            assert_eq!(Context::parse(bad), None);
        }
    }
}
