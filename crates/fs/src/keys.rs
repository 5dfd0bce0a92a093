//! Master keys of encrypted files.
//!
//! Owns: what a key is called. Excludes: which key an inode takes, and what follows from it (`crypt`).

use std::fmt;
use std::sync::Arc;

use ondisk::encryption::KeyName;
use zeroize::Zeroizing;

use crate::ciphers::{self, Purpose};
use crate::error::{Error, Result};

/// Bytes of a master key.
const KEY_LEN: std::ops::RangeInclusive<usize> = 16..=64;

/// A master key for encrypted files. Each policy says by a name which one it takes. Its bytes are wiped when the last copy
/// is dropped.
#[derive(Clone)]
pub struct Key {
    pub(crate) master: Arc<Zeroizing<Box<[u8]>>>,
    identifier: [u8; 16],
    descriptor: [u8; 8],
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:016x})", u128::from_be_bytes(self.identifier) >> 64)
    }
}

impl Key {
    /// A key of 16 to 64 bytes. Policies of version 2 name it by an identifier that follows from it, those of version 1
    /// by a descriptor: that which the usual tools give it, unless [`Key::with_descriptor`] says another.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another length.
    pub fn new(master: &[u8]) -> Result<Self> {
        if !KEY_LEN.contains(&master.len()) {
            return Err(Error::Invalid(format!("a key has 16 to 64 bytes, not {}", master.len())));
        }
        Ok(Key {
            identifier: *ciphers::derive(master, Purpose::Identifier),
            descriptor: ciphers::descriptor(master),
            master: Arc::new(Zeroizing::new(master.into())),
        })
    }

    /// Returns this key for policies of version 1, which know it by a descriptor.
    #[must_use]
    pub fn with_descriptor(self, descriptor: [u8; 8]) -> Self {
        Key { descriptor, ..self }
    }

    pub(crate) fn is(&self, name: &KeyName) -> bool {
        match name {
            KeyName::Descriptor(descriptor) => self.descriptor == *descriptor,
            KeyName::Identifier(identifier) => self.identifier == *identifier,
        }
    }
}

/// The keys with which a volume was opened.
#[derive(Clone, Default, Debug)]
pub(crate) struct Keyring {
    pub(crate) keys: Arc<[Key]>,
    pub(crate) uuid: [u8; 16],
}

impl Keyring {
    pub(crate) fn new(keys: &[Key], uuid: [u8; 16]) -> Self {
        Keyring { keys: keys.into(), uuid }
    }
}
