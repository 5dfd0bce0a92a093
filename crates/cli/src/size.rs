//! Sizes as users write them, and as they are shown.

use platfs_image::Free;

pub use platfs_forensics::words::human;
pub use platfs_image::size::{Written, meant, parse_size, unit_shift};

/// Reads `auto+SIZE` or `auto+N%`: contents, and what is to stay free. `None` if it is neither.
#[must_use]
pub fn parse_free(text: &str) -> Option<Result<Free, String>> {
    let text = text.strip_prefix("auto+")?;
    let Some(part) = text.strip_suffix('%') else { return Some(parse_size(text).map(Free::Bytes)) };
    let part = part.parse().ok().filter(|part| (1..=Free::PERCENT_MOST).contains(part));
    Some(
        part.map(Free::Percent)
            .ok_or_else(|| format!("not a part of a volume: 1% to {}%", Free::PERCENT_MOST)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_room_is_a_size_or_a_part() {
        assert_eq!(parse_free("auto+1.5M"), Some(Ok(Free::Bytes(3 << 19))));
        assert_eq!(parse_free("auto+20%"), Some(Ok(Free::Percent(20))));
        assert!(["auto", "min", "20%", "100M"].iter().all(|text| parse_free(text).is_none()));
        for wrong in ["auto+", "auto+0%", "auto+81%", "auto+%", "auto+-1M", "auto+1.5%", "auto+auto"] {
            assert!(parse_free(wrong).unwrap().is_err(), "{wrong}");
        }
    }
}
