//! A name that can stand in a directory.

use super::Halt;

/// One component of a path: 1 to 255 bytes, neither `.` nor `..`, without `/` and zero.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Name(Vec<u8>);

impl Name {
    /// The name, if it is one.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        is_name(bytes).then(|| Name(bytes.to_vec()))
    }

    /// The name at the end of a path.
    ///
    /// # Errors
    /// It is none.
    pub fn of(path: &[u8], bytes: &[u8]) -> Result<Self, Halt> {
        check(path, bytes).map(|()| Name(bytes.to_vec()))
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Refuses a path whose last part is no name.
pub(super) fn check(path: &[u8], bytes: &[u8]) -> Result<(), Halt> {
    match is_name(bytes) {
        true => Ok(()),
        false => Err(Halt::refused(path, "has no name that a file can have")),
    }
}

/// Tells if bytes are a name.
fn is_name(bytes: &[u8]) -> bool {
    let is_plain = !matches!(bytes, b"" | b"." | b"..") && bytes.len() <= 255;
    is_plain && !bytes.iter().any(|byte| matches!(byte, b'/' | 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_component() {
        for name in [&b"a"[..], b"...", b".a", b"\xff", &[b'n'; 255]] {
            assert_eq!(Name::new(name).unwrap().bytes(), name);
        }
        for other in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0", &[b'n'; 256]] {
            assert_eq!(Name::new(other), None, "{other:?}");
        }
    }
}
