//! Names in messages: bytes that need not be text, shown without harming a terminal.

use crate::text::Shown;
use std::fmt;

/// Shows bytes between back quotes, escaped as [`Shown`] does.
#[derive(Clone, Copy)]
pub struct Quoted<'a>(pub &'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", Shown(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_and_broken_text_are_escaped() {
        assert_eq!(Quoted("na\u{ef}ve".as_bytes()).to_string(), "`na\u{ef}ve`");
        assert_eq!(Quoted(b"a\x1b[2J").to_string(), "`a\\u{1b}[2J`");
        assert_eq!(Quoted(b"\xff").to_string(), "`\\xff`");
    }
}
