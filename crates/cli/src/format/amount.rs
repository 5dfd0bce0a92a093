//! Numbers, sizes and places as options write them.

use platfs::mkfs::Amount;

use crate::console::Failure;

/// Digits and the shift of the unit behind them, if there is one.
fn split(option: &str, text: &str) -> Result<(u64, Option<u32>), Failure> {
    let wrong =
        || Failure::Usage(format!("{option} {text}: not a number, with K, M, G or T for powers of 1,024"));
    let (digits, unit) = match text.char_indices().last() {
        Some((at, unit)) if !unit.is_ascii_digit() => (text.get(..at).unwrap_or_default(), Some(unit)),
        _ => (text, None),
    };
    let shift = match unit.map(|unit| unit.to_ascii_lowercase()) {
        None => None,
        Some('s') => Some(9),
        Some('k') => Some(10),
        Some('m') => Some(20),
        Some('g') => Some(30),
        Some('t') => Some(40),
        Some(_) => return Err(wrong()),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let number = digits.parse().map_err(|_| too_large(option, text))?;
    Ok((number, shift))
}

fn too_large(option: &str, text: &str) -> Failure {
    Failure::Failed(format!("{option} {text}: too large"))
}

fn shifted(option: &str, text: &str, number: u64, shift: u32) -> Result<u64, Failure> {
    number.checked_mul(1 << shift).ok_or_else(|| too_large(option, text))
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
        None => Ok(Amount::Blocks(number)),
    }
}
