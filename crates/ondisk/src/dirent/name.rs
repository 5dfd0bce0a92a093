//! Names of directory entries, legal by construction.

/// Longest name, in bytes.
pub const MAX_NAME_LEN: usize = 255;

/// A name that a directory may hold: 1 to 255 bytes, without `/` and NUL.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Name<'n>(&'n [u8]);

/// Reason for which bytes can't be a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadName {
    /// No bytes.
    #[error("name is empty")]
    Empty,
    /// More than 255 bytes.
    #[error("name of {0} bytes, at most 255")]
    TooLong(usize),
    /// Holds a `/` or NUL.
    #[error("name holds byte {0:#04x}")]
    Byte(u8),
}

impl<'n> Name<'n> {
    /// Checks bytes for a name.
    ///
    /// # Errors
    /// The rule that they break.
    pub fn new(bytes: &'n [u8]) -> Result<Self, BadName> {
        match bytes.len() {
            0 => return Err(BadName::Empty),
            len if len > MAX_NAME_LEN => return Err(BadName::TooLong(len)),
            _ => {}
        }
        match bytes.iter().find(|byte| matches!(byte, 0 | b'/')) {
            Some(byte) => Err(BadName::Byte(*byte)),
            None => Ok(Name(bytes)),
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(self) -> &'n [u8] {
        self.0
    }

    /// True if it is `.` or `..`, which every directory has from the start.
    #[must_use]
    pub fn is_dots(self) -> bool {
        matches!(self.0, b"." | b"..")
    }
}
