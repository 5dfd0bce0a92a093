//! Sizes as users write them: a number of bytes, or with K, M, G, T (powers of 1,024).

/// Reads a size.
///
/// # Errors
/// What is wrong with the text, to be put behind it.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.char_indices().last() {
        Some((at, unit)) => match unit.to_ascii_uppercase() {
            'K' => (&text[..at], 10),
            'M' => (&text[..at], 20),
            'G' => (&text[..at], 30),
            'T' => (&text[..at], 40),
            _ => (text, 0),
        },
        None => return Err("a size is missing".into()),
    };
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = if plain { digits.parse::<u64>().ok() } else { None };
    match number.map(|number| (number, number.checked_mul(1 << shift))) {
        Some((_, Some(size))) => Ok(size),
        Some((_, None)) => Err("more than 2^64 bytes".into()),
        None if plain => Err("more than 2^64 bytes".into()),
        None => Err("not a size: a number, and K, M, G or T for powers of 1,024".into()),
    }
}

/// A size for people: three digits and a unit, as `ls -h` rounds (up).
#[must_use]
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let step = (63 - bytes.max(1).leading_zeros()) / 10;
    let unit = UNITS.get(step as usize).copied().unwrap_or_default();
    let shift = 10 * step;
    let tenths = (u128::from(bytes) * 10).div_ceil(1 << shift);
    if step == 0 || tenths >= 100 {
        return format!("{} {unit}", u128::from(bytes).div_ceil(1 << shift));
    }
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024_and_overflow_is_told() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("3k"), Ok(3072));
        assert_eq!(parse_size("2T"), Ok(2 << 40));
        for wrong in ["", "K", "-1", "+1", "1.5G", "12Q", "99999999999999999999", "99999999T", "1\u{e9}"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn people_read_three_digits() {
        let shown = [0, 1023, 1024, 1536, 10 << 20, u64::MAX].map(human);
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "10 MiB", "16 EiB"]);
    }
}
