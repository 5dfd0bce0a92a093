//! UUIDs: given, random, from the time, or none; and what time it is.

use platfs_image::builder::identity::version_4;

use crate::console::Failure;

/// Which UUID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UuidChoice {
    /// This one.
    Given([u8; 16]),
    /// A random one (version 4).
    Random,
    /// One from the time and a random node (version 1).
    Time,
    /// Zeros.
    Clear,
}

/// Reads a UUID, or `random`, `time`, `clear` (or `null`).
pub(super) fn choice(option: &str, text: &str) -> Result<UuidChoice, Failure> {
    match text {
        "random" => return Ok(UuidChoice::Random),
        "time" => return Ok(UuidChoice::Time),
        "clear" | "null" => return Ok(UuidChoice::Clear),
        _ => {}
    }
    match parse(text) {
        Some(bytes) => Ok(UuidChoice::Given(bytes)),
        None => Err(Failure::Usage(format!("{option} {text}: not a UUID, random, time or clear"))),
    }
}

/// Five groups of hexadecimal digits with hyphens between.
fn parse(text: &str) -> Option<[u8; 16]> {
    let lengths = [8, 4, 4, 4, 12];
    let groups: Vec<&str> = text.split('-').collect();
    let right = groups.len() == lengths.len()
        && groups
            .iter()
            .zip(lengths)
            .all(|(group, len)| group.len() == len && group.bytes().all(|b| b.is_ascii_hexdigit()));
    let number = right.then(|| u128::from_str_radix(&groups.concat(), 16).ok())??;
    Some(number.to_be_bytes())
}

impl UuidChoice {
    /// The bytes; `time` is in seconds since 1970.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn bytes(self, time: u64) -> Result<[u8; 16], Failure> {
        match self {
            UuidChoice::Given(bytes) => Ok(bytes),
            UuidChoice::Clear => Ok([0; 16]),
            UuidChoice::Random => Ok(version_4(random()?)),
            UuidChoice::Time => Ok(version_1(time, random()?)),
        }
    }
}

fn random() -> Result<[u8; 16], Failure> {
    let mut bytes = [0; 16];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(len) if len == bytes.len() => Ok(bytes),
        _ => Err(Failure::Failed("the system gives no random numbers".into())),
    }
}

/// A UUID of version 1 (RFC 9562, 5.1): steps of 100 ns since 1582-10-15, then clock sequence and
/// node, both random, the node marked as no hardware address.
fn version_1(time: u64, random: [u8; 16]) -> [u8; 16] {
    const FROM_1582_TO_1970: u64 = 0x01B2_1DD2_1381_4000;
    // The lowest steps are random too, so that UUIDs of one second differ.
    let step = u64::from(u16::from_le_bytes([random[0], random[1]]));
    let steps = time.saturating_mul(10_000_000).saturating_add(FROM_1582_TO_1970).saturating_add(step);
    let [a, b, c, d, e, f, g, h] = steps.to_be_bytes();
    let mut bytes = random;
    bytes[..8].copy_from_slice(&[e, f, g, h, c, d, a & 0x0F | 0x10, b]);
    bytes[8] = bytes[8] & 0x3F | 0x80;
    bytes[10] |= 1;
    bytes
}
