//! Sizes as users write them: a number of bytes, or with K, M, G, T (powers of 1,024), with a fraction where there is a
//! unit: 1.5G. Exact arithmetic; a rest of a byte is dropped.

/// Digits behind the point that count: more than any size can show.
const FRACTION_DIGITS: usize = 18;

/// A number as it was written, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written<'t> {
    whole: &'t str,
    fraction: &'t str,
    /// The letter behind it.
    pub unit: Option<char>,
}

impl<'t> Written<'t> {
    /// Takes a text apart: digits, perhaps a point and digits, perhaps one letter. `None` if it is anything else, or
    /// has a fraction and no unit.
    #[must_use]
    pub fn parse(text: &'t str) -> Option<Self> {
        let (number, unit) = match text.char_indices().last() {
            Some((at, unit)) if unit.is_ascii_alphabetic() => (text.get(..at)?, Some(unit)),
            _ => (text, None),
        };
        let (whole, fraction) = match number.split_once('.') {
            Some((whole, fraction)) if !fraction.is_empty() && unit.is_some() => (whole, fraction),
            Some(_) => return None,
            None => (number, ""),
        };
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let right = !whole.is_empty() && digits(whole) && digits(fraction);
        (right && fraction.len() <= FRACTION_DIGITS).then_some(Written { whole, fraction, unit })
    }

    /// The number times two to the `shift`; `None` if that is 2^64 or more.
    #[must_use]
    pub fn shifted(&self, shift: u32) -> Option<u64> {
        let whole: u64 = self.whole.parse().ok()?;
        let whole = u128::from(whole).checked_mul(1 << shift)?;
        // Below 10^18 times 2^40, and so far from the end of the numbers.
        let part: u128 = if self.fraction.is_empty() { 0 } else { self.fraction.parse().ok()? };
        let scale = 10_u128.pow(u32::try_from(self.fraction.len()).ok()?);
        u64::try_from(whole.checked_add(part.checked_mul(1 << shift)? / scale)?).ok()
    }
}

/// The power of two that a unit stands for.
#[must_use]
pub fn unit_shift(unit: char) -> Option<u32> {
    match unit.to_ascii_uppercase() {
        'K' => Some(10),
        'M' => Some(20),
        'G' => Some(30),
        'T' => Some(40),
        _ => None,
    }
}

/// A size with another spelling of its unit, as it is spelled here.
#[must_use]
pub fn meant(text: &str) -> Option<&str> {
    let short = ["iB", "ib", "B", "b"].iter().find_map(|unit| text.strip_suffix(unit))?;
    let is_known = |written: Written<'_>| written.unit.is_none_or(|unit| unit_shift(unit).is_some());
    Written::parse(short).is_some_and(is_known).then_some(short)
}

/// Reads a size.
///
/// # Errors
/// The fault of the text, to be put behind it.
pub fn parse_size(text: &str) -> Result<u64, String> {
    if text.is_empty() {
        return Err("a size is missing".into());
    }
    let written = Written::parse(text);
    let shift = written.and_then(|written| written.unit.map_or(Some(0), unit_shift));
    let (Some(written), Some(shift)) = (written, shift) else {
        let meant = meant(text).map(|meant| format!("; `{meant}` is one")).unwrap_or_default();
        return Err(format!(
            "not a size: a number, such as 4096, 512M or 1.5G, with K, M, G or T for powers of 1,024{meant}"
        ));
    };
    written.shifted(shift).ok_or_else(|| "more than 2^64 bytes".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024_and_overflow_is_reported() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("3k"), Ok(3072));
        assert_eq!(parse_size("2T"), Ok(2 << 40));
        assert_eq!(parse_size("1.5G"), Ok(3 << 29));
        assert_eq!(parse_size("0.3k"), Ok(307));
        assert_eq!(parse_size("16777215.999999999999999999T"), Ok(u64::MAX));
        let long = "0.1234567890123456789G";
        for wrong in [
            "",
            "K",
            "-1",
            "+1",
            "1.5",
            ".5G",
            "1.G",
            "1.5.1G",
            "1,5G",
            "1e3",
            long,
            "12Q",
            "99999999999999999999",
            "99999999T",
            "1\u{e9}",
        ] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        assert_eq!((meant("10GiB"), meant("10PB"), meant("5XB")), (Some("10G"), None, None));
    }
}
