//! Names in messages: bytes that need not be text.
//!
//! A name may hold any byte but `/` and NUL. As text it is shown as it is where that is harmless and
//! unambiguous, with `\xHH` and the like for all else, so that no archive or image can play with a terminal
//! and two names never look the same.

use std::fmt;

/// Bytes as text: control characters, backslashes and what is not UTF-8 escaped.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(pub &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\\' => f.write_str("\\\\")?,
                    c if is_unseen(c) => write!(f, "{}", c.escape_default())?,
                    c => fmt::Write::write_char(f, c)?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Controls, and the marks that turn the direction of what follows or can't be seen at all.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

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
    fn names_are_shown_harmless_and_different() {
        let shown = |bytes: &[u8]| Shown(bytes).to_string();
        assert_eq!(shown("na\u{ef}ve name".as_bytes()), "na\u{ef}ve name");
        assert_eq!(shown(b"a\nb\x1b[2J"), "a\\nb\\u{1b}[2J");
        assert_eq!(shown(b"\xffx"), "\\xffx");
        assert_eq!(shown(b"\\xff"), "\\\\xff");
        assert_eq!(shown("\u{202e}".as_bytes()), "\\u{202e}");
    }

    #[test]
    fn controls_and_broken_text_are_escaped() {
        assert_eq!(Quoted("na\u{ef}ve".as_bytes()).to_string(), "`na\u{ef}ve`");
        assert_eq!(Quoted(b"a\x1b[2J").to_string(), "`a\\u{1b}[2J`");
        assert_eq!(Quoted(b"\xff").to_string(), "`\\xff`");
    }
}
