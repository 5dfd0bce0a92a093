//! Bytes of objects, and back: `docs/store.md` has them all.
//!
//! | module | owns |
//! | --- | --- |
//! | `manifest` | a volume's manifest |
//! | `map` | which bytes of a volume are where |
//! | `log` | objects of a log |
//! | `packed` | contents that are named by their hash, compressed |
//! | `bytes` | numbers in bytes |
//!
//! Excludes where objects are. Everything here is a function of bytes that nobody vouches for: lengths are bounded before
//! they are used, and what can't be is refused with the place.

mod bytes;
pub mod log;
pub mod manifest;
pub mod map;
pub mod packed;

/// BLAKE3 of something.
pub type Hash = [u8; 32];

/// The identifier of a volume.
pub type VolumeId = [u8; 16];

/// Hexadecimal, as in keys.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes of hexadecimal as [`hex`] writes it.
#[must_use]
pub fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut out = [0; N];
    let digits = text.as_bytes();
    if digits.len() != 2 * N || digits.iter().any(|d| !matches!(d, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (byte, pair) in out.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(out)
}

/// The hash of some bytes.
#[must_use]
pub fn hash(bytes: &[u8]) -> Hash {
    *blake3::hash(bytes).as_bytes()
}

/// Broken rule of an object's bytes.
pub type Wrong = String;
