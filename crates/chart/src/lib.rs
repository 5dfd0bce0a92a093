//! Figures as pictures: [`svg`] draws files, [`page`] makes HTML pages whose charts are drawn by the browser from data.
//!
//! Owns how things look, and how untrusted names get into markup. Knows no file system and reads nothing: what is drawn
//! is numbers and names.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![forbid(unsafe_code)]

mod colours;
pub mod page;
pub mod svg;

/// Text as it stands in markup, also between quotes.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // XML has no place for other controls, however they are written.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Returns the used part as a level from 0 to 63: 0 only for nothing and 63 only for all of it.
#[must_use]
pub fn level(used: u64, all: u64) -> u8 {
    match used {
        0 => 0,
        used if used >= all => 63,
        used => {
            let level = u128::from(used) * 63 / u128::from(all);
            u8::try_from(level).unwrap_or(62).clamp(1, 62)
        }
    }
}

/// Levels as a letter each, for the data of a page (`draw.levels` reads them); a point for what has none.
pub fn letters(levels: impl Iterator<Item = Option<u8>>) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let letter = |level: u8| char::from(LETTERS.get(usize::from(level)).copied().unwrap_or(b'_'));
    levels.map(|level| level.map_or('.', letter)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_controls_are_escaped() {
        assert_eq!(escape("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
        assert_eq!(escape("a\u{1b}[2J\u{0}\n"), "a\u{fffd}[2J\u{fffd}\n");
    }

    #[test]
    fn only_nothing_is_empty_and_only_all_is_full() {
        assert_eq!([level(0, 100), level(1, u64::MAX), level(50, 100)], [0, 1, 31]);
        let levels = [0, 1, 128, 254, 255].map(|used| Some(level(used, 255)));
        assert_eq!(letters(levels.into_iter().chain([None])), "ABf-_.");
        assert_eq!([level(99_999, 100_000), level(100, 100), level(7, 0)], [62, 63, 63]);
    }
}
