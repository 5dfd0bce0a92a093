//! Numbers in header fields: octal text, and GNU's base-256 for what octal cannot hold.

/// Reads a numeric field. Octal digits may have blanks before and a blank or NUL after; an empty field
/// is 0. A first byte with the high bit set announces base-256, two's complement in the remaining bits.
/// `None` if it is neither, or does not fit.
#[must_use]
pub fn parse(field: &[u8]) -> Option<i64> {
    match field.first() {
        Some(first) if first & 0x80 != 0 => parse_base256(field),
        _ => parse_octal(field),
    }
}

fn parse_octal(field: &[u8]) -> Option<i64> {
    let start = field.iter().position(|&b| b != b' ').unwrap_or(field.len());
    let mut value: i64 = 0;
    for &byte in field.get(start..)? {
        match byte {
            b'0'..=b'7' => value = value.checked_mul(8)?.checked_add(i64::from(byte - b'0'))?,
            b' ' | 0 => break,
            _ => return None,
        }
    }
    Some(value)
}

fn parse_base256(field: &[u8]) -> Option<i64> {
    let (&first, rest) = field.split_first()?;
    let negative = first & 0x40 != 0;
    let low = i128::from(first & 0x3f);
    let mut value: i128 = if negative { low - 0x40 } else { low };
    for &byte in rest {
        // Fields are at most 12 bytes, 95 bits: but longer ones must not overflow either.
        value = value.checked_mul(256)?.checked_add(i128::from(byte))?;
    }
    i64::try_from(value).ok()
}

/// Writes `value` as octal digits with a closing NUL, or as base-256 if it needs more digits than
/// `field` has or is negative. `field` must be at least 8 bytes, as every numeric field of a header is.
pub fn write(field: &mut [u8], value: i64) {
    let digits = field.len().saturating_sub(1);
    let text = format!("{value:0digits$o}");
    if value >= 0 && text.len() <= digits {
        field.fill(0);
        for (slot, byte) in field.iter_mut().zip(text.bytes()) {
            *slot = byte;
        }
        return;
    }
    let mut rest = value;
    for slot in field.iter_mut().rev() {
        *slot = rest.to_le_bytes()[0];
        // Arithmetic shift: the sign fills from the left.
        rest >>= 8;
    }
    if let Some(first) = field.first_mut() {
        *first |= 0x80;
    }
}

/// Returns true if `value` fits `field_len - 1` octal digits.
#[must_use]
pub fn fits_octal(value: i64, field_len: usize) -> bool {
    let bits = 3 * field_len.saturating_sub(1);
    value >= 0 && (bits >= 63 || value >> bits == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octal_in_all_its_paddings() {
        assert_eq!(parse(b"0000644\0"), Some(0o644));
        assert_eq!(parse(b"   644 \0"), Some(0o644));
        assert_eq!(parse(b"644\0junk"), Some(0o644));
        assert_eq!(parse(b"77777777777\0"), Some((1 << 33) - 1));
        assert_eq!(parse(b"777777777777"), Some((1 << 36) - 1));
        assert_eq!(parse(b"\0\0\0\0\0\0\0\0"), Some(0));
        assert_eq!(parse(b"        "), Some(0));
        assert_eq!(parse(b"0000689\0"), None);
        assert_eq!(parse(b"-000001\0"), None);
        assert_eq!(parse(&[b'7'; 40]), None);
    }

    #[test]
    fn base256_of_both_signs() {
        assert_eq!(parse(b"\x80\0\0\0\0\0\0\x02\0\0\0\0"), Some(1 << 33));
        assert_eq!(parse(&[0xff; 12]), Some(-1));
        assert_eq!(parse(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x38"), Some(-200));
        assert_eq!(parse(b"\xbf\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), None);
        assert_eq!(parse(&[0xbf; 200]), None);
    }

    #[test]
    fn what_is_written_is_read() {
        for value in [0, 1, 0o7_777_777, 0o10_000_000, 1 << 33, -1, -200, i64::MAX, i64::MIN] {
            let mut field = [0; 12];
            write(&mut field, value);
            assert_eq!(parse(&field), Some(value), "{value}");
            assert_eq!(fits_octal(value, 12), field[0] & 0x80 == 0, "{value}");
        }
        let mut short = [0; 8];
        write(&mut short, 0o7_777_777);
        assert_eq!(&short, b"7777777\0");
        write(&mut short, 0o10_000_000);
        assert_eq!(parse(&short), Some(0o10_000_000));
    }
}
