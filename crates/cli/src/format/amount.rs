//! Numbers, sizes and places as options write them.

use platfs::mkfs::Amount;

use crate::console::Failure;
use crate::size::{Written, unit_shift};

/// The number as written, and the shift of the unit behind it, if there is one.
fn split<'t>(option: &str, text: &'t str) -> Result<(Written<'t>, Option<u32>), Failure> {
    let wrong = || {
        let meant = crate::size::meant(text).map(|meant| format!("; `{meant}` is one")).unwrap_or_default();
        Failure::Usage(format!("{option} {text}: not a number, with K, M, G or T for powers of 1,024{meant}"))
    };
    let written = Written::parse(text).ok_or_else(wrong)?;
    let shift = match written.unit {
        None => None,
        // Sectors, as in mke2fs.
        Some('s' | 'S') => Some(9),
        Some(unit) => Some(unit_shift(unit).ok_or_else(wrong)?),
    };
    Ok((written, shift))
}

fn too_large(option: &str, text: &str) -> Failure {
    Failure::Usage(format!("{option} {text}: too large"))
}

fn shifted(option: &str, text: &str, number: Written<'_>, shift: u32) -> Result<u64, Failure> {
    number.shifted(shift).ok_or_else(|| too_large(option, text))
}

/// A number that is shifted by `shift` bits unless it has a unit of its own.
pub(super) fn scaled(option: &str, text: &str, shift: u32) -> Result<u64, Failure> {
    let (number, unit) = split(option, text)?;
    shifted(option, text, number, unit.unwrap_or(shift))
}

/// A number, with a unit if wanted.
pub(super) fn bytes(option: &str, text: &str) -> Result<u64, Failure> {
    scaled(option, text, 0)
}

/// A number that fits its option's field.
pub(super) fn number<T: TryFrom<u64>>(option: &str, text: &str) -> Result<T, Failure> {
    T::try_from(bytes(option, text)?).map_err(|_| too_large(option, text))
}

/// A place or length: with a unit in bytes, without in blocks.
pub(super) fn amount(option: &str, text: &str) -> Result<Amount, Failure> {
    let (number, unit) = split(option, text)?;
    match unit {
        Some(shift) => Ok(Amount::Bytes(shifted(option, text, number, shift)?)),
        None => Ok(Amount::Blocks(shifted(option, text, number, 0)?)),
    }
}
