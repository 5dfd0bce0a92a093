//! Keys of encrypted files, from the command line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use platfs::Key;

use crate::console::Failure;

/// Longest file that may hold a key: 64 bytes in hexadecimal, and the end of the line.
const LONGEST: u64 = 130;
/// Digits of the descriptor before a key.
const DESCRIPTOR: usize = 16;

/// The keys that a command is given.
#[derive(Args, Debug, Clone, Default)]
pub struct KeyArgs {
    /// A key of encrypted files (fscrypt): a file with its 16 to 64 bytes, or with those in hexadecimal, or the
    /// digits themselves, which other users can see. `DESCRIPTOR:` before it is the name by which policies of version 1 call
    /// it. May be repeated.
    #[arg(long = "key", value_name = "FILE|HEX")]
    keys: Vec<OsString>,
}

impl KeyArgs {
    /// The files that may hold them.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        self.keys.iter().map(|key| file_of(key)).collect()
    }

    /// The keys. What is said to `warn` concerns files that others may read.
    ///
    /// # Errors
    /// A file that can't be read, or holds no key.
    pub fn read(&self, mut warn: impl FnMut(String)) -> Result<Vec<Key>, Failure> {
        self.keys.iter().map(|key| read(key, &mut warn)).collect()
    }
}

/// The file that a key stands in, if it does not stand in its name.
#[must_use]
pub fn file_of(named: &OsStr) -> PathBuf {
    PathBuf::from(parted(named).1)
}

/// The descriptor before a key, and the rest.
fn parted(named: &OsStr) -> (Option<Vec<u8>>, &OsStr) {
    let bytes = named.as_bytes();
    let descriptor =
        bytes.get(..DESCRIPTOR).and_then(digits).filter(|_| bytes.get(DESCRIPTOR) == Some(&b':'));
    match descriptor {
        Some(_) => (descriptor, OsStr::from_bytes(bytes.get(DESCRIPTOR + 1..).unwrap_or_default())),
        None => (None, named),
    }
}

/// One key, as the command line names it.
///
/// # Errors
/// As [`KeyArgs::read`].
pub fn read(named: &OsStr, warn: &mut dyn FnMut(String)) -> Result<Key, Failure> {
    let (descriptor, rest) = parted(named);
    let master = match digits(rest.as_bytes()).filter(|_| !Path::new(rest).exists()) {
        Some(master) => master,
        None => of_file(rest, warn)?,
    };
    let key = Key::new(&master).map_err(|error| Failure::Failed(format!("--key: {error}")))?;
    let descriptor = descriptor.and_then(|descriptor| descriptor.try_into().ok());
    Ok(descriptor.map_or(key.clone(), |descriptor| key.with_descriptor(descriptor)))
}

fn of_file(path: &OsStr, warn: &mut dyn FnMut(String)) -> Result<Vec<u8>, Failure> {
    let shown = || format!("--key {}", path.display());
    let (facts, bytes) =
        platfs_host::read_named(Path::new(path), LONGEST).map_err(|error| Failure::about(shown(), error))?;
    if let Some(why) = facts.exposure() {
        warn(format!("{}: {why}", shown()));
    }
    Ok(digits(bytes.trim_ascii()).unwrap_or(bytes))
}

/// Bytes in hexadecimal.
fn digits(text: &[u8]) -> Option<Vec<u8>> {
    if text.is_empty() || !text.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    text.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_bytes() {
        assert_eq!(digits(b"00ffA0"), Some(vec![0, 255, 0xA0]));
        assert_eq!((digits(b""), digits(b"0"), digits(b"0g")), (None, None, None));
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
            read(path.as_os_str(), &mut |what| said.push(what)).unwrap();
        }
        assert!(said.len() == 1 && said[0].contains("mode 0640"), "{said:?}");
    }
}
