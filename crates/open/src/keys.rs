//! Keys of encrypted files, as a person gives them: a file, or digits.
//!
//! Owns: what is done for a secret that comes in here. The process hides before it has one, the bytes that were read are
//! wiped, and no message repeats what may be one. Excludes the words of the command line, which stay where the kernel and
//! the parser have them: who takes such words must warn of digits or refuse them ([`is_spelled`]).

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use platfs::Key;
use platfs_host::errno_of;
use platfs_image::text::Shown;
use zeroize::Zeroizing;

use crate::process;

/// Longest file that may hold a key: 64 bytes in hexadecimal, and the end of the line.
const LONGEST: u64 = 130;
/// Digits of the descriptor before a key.
const DESCRIPTOR: usize = 16;
/// Digits of the shortest key: what has as many and nothing else may be one, whether it is well formed or not.
const SPELLED: usize = 32;
/// Warning of a key that is no file.
const SEEN: &str = "other users see its digits in the list of processes; put them into a file";

/// Warning about a key: about the file that it stands in, or about digits on the command line, which are not repeated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Warning {
    /// The file, as it is shown.
    pub file: Option<String>,
    /// The reason.
    pub why: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{file}: {}", self.why),
            None => f.write_str(&self.why),
        }
    }
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A file that can't be read.
    #[error("{file}: {error}")]
    File {
        /// The file, as it is shown.
        file: String,
        /// The system's reason.
        error: io::Error,
    },
    /// The word is no name of a file, and no key.
    #[error("is neither a file nor bytes in hexadecimal, two digits each")]
    Digits,
    /// The bytes are no key.
    #[error(transparent)]
    Key(#[from] platfs::Error),
}

impl KeyError {
    /// The number that Linux has for it.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            KeyError::File { error, .. } => errno_of(error),
            KeyError::Digits => errno_of(&io::ErrorKind::InvalidInput.into()),
            KeyError::Key(error) => error.errno(),
        }
    }
}

/// The file that a key stands in, if it does not stand in its name.
#[must_use]
pub fn file_of(named: &OsStr) -> PathBuf {
    PathBuf::from(parted(named).1)
}

/// The descriptor before a key, and the rest.
fn parted(named: &OsStr) -> (Option<Zeroizing<Vec<u8>>>, &OsStr) {
    let bytes = named.as_bytes();
    let descriptor =
        bytes.get(..DESCRIPTOR).and_then(digits).filter(|_| bytes.get(DESCRIPTOR) == Some(&b':'));
    match descriptor {
        Some(_) => (descriptor, OsStr::from_bytes(bytes.get(DESCRIPTOR + 1..).unwrap_or_default())),
        None => (None, named),
    }
}

/// True if the word on the command line may be the key itself and no name of a file: then no message may show it.
#[must_use]
pub fn is_spelled(named: &OsStr) -> bool {
    let rest = parted(named).1;
    let bytes = rest.as_bytes();
    // A colon stands behind the name of a key.
    let are_digits = bytes.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b':');
    let may_be = bytes.len() >= SPELLED && are_digits || digits(bytes).is_some();
    may_be && !platfs_host::path::is_there(rest)
}

/// One key, as a person names it: the digits themselves, or a file that has them or the bytes. What is said to `warn`
/// concerns keys that others may see.
///
/// # Errors
/// A file that can't be read, or holds no key.
pub fn read(named: &OsStr, warn: &mut dyn FnMut(Warning)) -> Result<Key, KeyError> {
    process::hide();
    let (descriptor, rest) = parted(named);
    let master = if is_spelled(named) {
        warn(Warning { file: None, why: SEEN.to_owned() });
        digits(rest.as_bytes()).ok_or(KeyError::Digits)?
    } else {
        of_file(rest, warn)?
    };
    let key = Key::new(&master)?;
    let descriptor = descriptor.and_then(|descriptor| descriptor.as_slice().try_into().ok());
    Ok(descriptor.map_or(key.clone(), |descriptor| key.with_descriptor(descriptor)))
}

fn of_file(path: &OsStr, warn: &mut dyn FnMut(Warning)) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let file = Shown(path.as_bytes()).to_string();
    let read = platfs_host::read_secret(Path::new(path), LONGEST);
    let (facts, bytes) = read.map_err(|error| KeyError::File { file: file.clone(), error })?;
    if let Some(why) = facts.exposure() {
        warn(Warning { file: Some(file), why: why.to_string() });
    }
    Ok(digits(bytes.trim_ascii()).unwrap_or(bytes))
}

/// Bytes in hexadecimal.
fn digits(text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    if text.is_empty() || !text.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    // Of its full length from the beginning: a vector that grows leaves copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len() / 2));
    for pair in text.chunks_exact(2) {
        bytes.push(digit(pair[0])? << 4 | digit(pair[1])?);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_bytes() {
        assert_eq!(digits(b"00ffA0").as_deref(), Some(&vec![0, 255, 0xA0]));
        assert_eq!((digits(b""), digits(b"0"), digits(b"0g")), (None, None, None));
    }

    #[test]
    fn what_may_be_a_key_is_in_no_message() {
        let hex = "0123456789abcdef".repeat(4);
        let named = ["0011223344556677", &hex].join(":");
        let mut said = Vec::new();
        assert!(read(named.as_ref(), &mut |what| said.push(what.why)).is_ok());
        assert!(said.len() == 1 && said[0].contains("other users see"), "{said:?}");
        for wrong in [&hex[1..], &hex[..30], &format!("{hex}{hex}ab"), &format!("{hex}:")] {
            let said = read(OsStr::new(wrong), &mut |what| said.push(what.why)).unwrap_err().to_string();
            assert!(!said.contains("0123") && !said.contains("1234"), "{said}");
        }
        assert!(said.iter().all(|said| !said.contains("0123")), "{said:?}");
        assert!(!is_spelled(OsStr::new("/etc/key")) && !is_spelled(OsStr::new("a.key")));
    }

    #[test]
    fn a_key_that_others_may_read_is_warned_of() {
        use std::os::unix::fs::PermissionsExt;
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("key");
        std::fs::write(&path, [7; 32]).unwrap();
        let mut said = Vec::new();
        for mode in [0o600, 0o640] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            read(path.as_os_str(), &mut |what| said.push(what.why)).unwrap();
        }
        assert!(said.len() == 1 && said[0].contains("mode 0640"), "{said:?}");
    }
}
