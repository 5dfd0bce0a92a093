//! Names in messages: bytes that need not be text, shown without harming a terminal.

use std::fmt;

/// Shows bytes between back quotes: valid UTF-8 without control characters as it is, all else escaped.
#[derive(Clone, Copy)]
pub struct Quoted<'a>(pub &'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(self.0) {
            Ok(text) if !text.chars().any(char::is_control) => write!(f, "`{text}`"),
            _ => write!(f, "`{}`", self.0.escape_ascii()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_and_broken_text_are_escaped() {
        assert_eq!(Quoted("na\u{ef}ve".as_bytes()).to_string(), "`na\u{ef}ve`");
        assert_eq!(Quoted(b"a\x1b[2J").to_string(), "`a\\x1b[2J`");
        assert_eq!(Quoted(b"\xff").to_string(), "`\\xff`");
    }
}
