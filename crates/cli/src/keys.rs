//! Keys of encrypted files, from the command line.
//!
//! Owns: the option and its words. Excludes reading them (`platfs_open::keys`). The words of the command line itself stay
//! where the kernel and the parser have them: servers take no key in digits, and commands warn of one.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use clap::Args;
use platfs::Key;
use platfs_open::keys::{self, KeyError, Warning};

use crate::console::Failure;

/// The keys that a command is given.
#[derive(Args, Clone, Default)]
pub struct KeyArgs {
    /// A key of encrypted files (fscrypt): a file with its 16 to 64 bytes, or with those in hexadecimal, or the
    /// digits themselves, which other users can see. `DESCRIPTOR:` before it is the name by which policies of version 1 call
    /// it. May be repeated.
    #[arg(long = "key", value_name = "FILE|HEX")]
    keys: Vec<OsString>,
}

impl fmt::Debug for KeyArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyArgs({})", self.keys.len())
    }
}

impl KeyArgs {
    /// The files that may hold them.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        self.keys.iter().map(|key| keys::file_of(key)).collect()
    }

    /// The keys. What is said to `warn` concerns those that others may see.
    ///
    /// # Errors
    /// A file that can't be read, or holds no key.
    pub fn read(&self, mut warn: impl FnMut(String)) -> Result<Vec<Key>, Failure> {
        let mut warn = |warning: Warning| warn(worded(&warning));
        self.keys.iter().map(|key| Ok(keys::read(key, &mut warn)?)).collect()
    }
}

/// A warning with the option that it is about.
fn worded(warning: &Warning) -> String {
    let colon = if warning.file.is_some() { "" } else { ":" };
    format!("--key{colon} {warning}")
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::File { file, error } => Failure::about(format!("--key {file}"), error),
            error => Failure::Failed(format!("--key: {error}").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_in_no_message() {
        let hex = "0123456789abcdef".repeat(4);
        let args = KeyArgs { keys: vec![["0011223344556677", &hex].join(":").into()] };
        let mut said = Vec::new();
        assert!(!format!("{args:?}").contains("0123") && args.read(|what| said.push(what)).is_ok());
        assert!(said.len() == 1 && said[0].starts_with("--key: other users see"), "{said:?}");
    }
}
