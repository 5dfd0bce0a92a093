//! Reading what is encrypted (fscrypt): keys, names, contents, targets of links.
//!
//! Owns: which key an inode takes, the ciphers that follow from it, and how names are shown where there is no key.
//! Excludes: the bytes of policies (`ondisk::encryption`), where names and contents stand, and writing: with a key nothing
//! is written.

use std::borrow::Cow;
use std::fmt;

use ondisk::corrupt::Place;
use ondisk::dirhash::DirHash;
use ondisk::encryption::{self, AES_256_CTS, AES_256_XTS, Context, IV_INO_LBLK_64, KeyName, Shown};
use ondisk::inode::{Inode, InodeFlags};
use ondisk::units::InodeNumber;
use ondisk::xattr::{self, Entry, NameIndex, Value};

use crate::cache::{Blocks, Role};
use crate::ciphers::{self, Contents, Derived, Names, Purpose, Vector};
use crate::error::{Error, Result};
use crate::format::Format;
use crate::keys::{Key, Keyring};

/// Longest stored name.
const NAME_MAX: usize = 255;
/// Bytes before the target of an encrypted link: its length.
const TARGET_HEADER: usize = 2;

fn is_encrypted(inode: &Inode) -> bool {
    inode.flags().contains(InodeFlags::ENCRYPT)
}

/// An inode whose key is known.
struct Unlocked<'k> {
    context: Context,
    key: &'k Key,
    uuid: &'k [u8; 16],
    number: InodeNumber,
}

/// By what an encrypted inode is encrypted, if there is a key for it.
fn unlock<'k>(blocks: &dyn Blocks, format: &'k Format, inode: &Inode) -> Result<Option<Unlocked<'k>>> {
    let Keyring { keys, uuid } = &format.keys;
    if keys.is_empty() {
        return Ok(None);
    }
    let context = context(blocks, format, inode)?;
    let key = keys.iter().find(|key| key.is(&context.key));
    Ok(key.map(|key| Unlocked { context, key, uuid, number: inode.number() }))
}

fn context(blocks: &dyn Blocks, format: &Format, inode: &Inode) -> Result<Context> {
    let broken = |problem: &str| Error::corrupt(Place::Inode(inode.number()), problem);
    if let Some(value) = in_entries(&xattr::in_inode(inode)?) {
        return Context::parse(value).ok_or_else(|| broken("its encryption context makes no sense"));
    }
    let block = inode.attribute_block();
    if block.0 == 0 {
        return Err(broken("encrypted, without an encryption context; check the volume"));
    }
    format.refuse_foreign(inode.number(), block, 1)?;
    let bytes = blocks.read(block, Role::Attributes)?;
    let (_, entries) = xattr::in_block(block, &bytes)?;
    let value = in_entries(&entries);
    value.and_then(Context::parse).ok_or_else(|| broken("its encryption context makes no sense"))
}

fn in_entries<'a>(entries: &[Entry<'a>]) -> Option<&'a [u8]> {
    let is_context =
        |entry: &&Entry<'_>| entry.index == NameIndex::ENCRYPTION && entry.name == encryption::ATTRIBUTE;
    match entries.iter().find(is_context)?.value {
        Value::Here(value) => Some(value),
        Value::Inode { .. } => None,
    }
}

impl Unlocked<'_> {
    /// The key for a cipher.
    fn derive<const LEN: usize>(&self, cipher: u8, wanted: u8) -> Result<Derived<LEN>> {
        let Context { key, nonce, .. } = &self.context;
        if cipher != wanted {
            return Err(self.unknown(format!("cipher {cipher}")));
        }
        let master = &self.key.master[..];
        match (key, self.context.derivation()) {
            (KeyName::Descriptor(_), 0) => ciphers::derive_old(master, nonce)
                .ok_or_else(|| self.unknown(format!("a key of {} bytes with this cipher", master.len()))),
            (KeyName::Identifier(_), 0) => Ok(ciphers::derive(master, Purpose::File(nonce))),
            (KeyName::Identifier(_), IV_INO_LBLK_64) => {
                Ok(ciphers::derive(master, Purpose::Volume(cipher, self.uuid)))
            }
            (_, flags) => Err(self.unknown(format!("flags {flags:#x}"))),
        }
    }

    fn unknown(&self, what: impl fmt::Display) -> Error {
        Error::Unsupported(format!("encryption of inode {}: {what}", self.number))
    }

    /// The initialisation vector of a unit of the contents; the first is that of names, too.
    fn vector(&self, unit: u64) -> Vector {
        let high = match self.context.derivation() {
            IV_INO_LBLK_64 => u64::from(self.number.get()) << 32,
            _ => 0,
        };
        let mut vector = [0; ciphers::PIECE];
        vector[..8].copy_from_slice(&(unit | high).to_le_bytes());
        vector
    }

    fn names(&self) -> Result<Names> {
        Ok(Names::new(self.derive(self.context.names, AES_256_CTS)?, self.vector(0)))
    }
}

/// Deciphers the contents of a file.
pub(crate) struct Opened<'k> {
    of: Unlocked<'k>,
    cipher: Contents,
    /// Bytes that are deciphered at once, as a power of two.
    unit_log2: u32,
}

impl<'k> Opened<'k> {
    /// For a file that is encrypted with a known key; `None` for all others.
    ///
    /// # Errors
    /// A cipher that is not known; damage.
    pub(crate) fn for_file(blocks: &dyn Blocks, format: &'k Format, inode: &Inode) -> Result<Option<Self>> {
        if !is_encrypted(inode) {
            return Ok(None);
        }
        let Some(of) = unlock(blocks, format, inode)? else { return Ok(None) };
        let block_log2 = format.geometry.block_size.log2();
        let unit_log2 = match u32::from(of.context.unit_log2) {
            0 => block_log2,
            known @ 9.. if known <= block_log2 => known,
            other => return Err(of.unknown(format!("units of 2^{other} bytes"))),
        };
        let cipher = Contents::new(&*of.derive(of.context.contents, AES_256_XTS)?);
        Ok(Some(Opened { of, cipher, unit_log2 }))
    }

    /// Bytes that are deciphered at once.
    pub(crate) fn unit(&self) -> u64 {
        1 << self.unit_log2
    }

    /// Deciphers whole units that begin at an offset of the file.
    pub(crate) fn decrypt(&self, offset: u64, bytes: &mut [u8]) {
        let first = offset >> self.unit_log2;
        for (at, unit) in (first..).zip(bytes.chunks_mut(1 << self.unit_log2)) {
            self.cipher.decrypt(unit, self.of.vector(at));
        }
    }
}

/// True if an inode is encrypted with a key that is not known.
///
/// # Errors
/// Damage.
pub(crate) fn is_locked(blocks: &dyn Blocks, format: &Format, inode: &Inode) -> Result<bool> {
    Ok(is_encrypted(inode) && unlock(blocks, format, inode)?.is_none())
}

/// The target of an encrypted link, of what is stored; without a key in the form of names without one.
///
/// # Errors
/// Damage; a cipher that is not known.
pub(crate) fn target(
    blocks: &dyn Blocks,
    format: &Format,
    inode: &Inode,
    stored: Vec<u8>,
) -> Result<Vec<u8>> {
    if !is_encrypted(inode) {
        return Ok(stored);
    }
    let broken =
        || Error::corrupt(Place::Inode(inode.number()), "the target of an encrypted link makes no sense");
    let [low, high] = *stored.first_chunk::<TARGET_HEADER>().ok_or_else(broken)?;
    let len = usize::from(u16::from_le_bytes([low, high]));
    let cipher = stored.get(TARGET_HEADER..TARGET_HEADER + len).filter(|target| !target.is_empty());
    let cipher = cipher.ok_or_else(broken)?;
    match unlock(blocks, format, inode)? {
        Some(of) => of.names()?.decrypt(cipher).ok_or_else(broken),
        None => Ok(encryption::shown(DirHash { major: 0, minor: 0 }, cipher, ciphers::digest)),
    }
}

/// Names of an encrypted directory, as they are shown and as they are stored.
pub(crate) struct NamesOf {
    names: Option<Names>,
    padding: usize,
}

/// Meaning of a name in a directory.
pub(crate) enum Meaning {
    /// This stored name.
    Stored(Vec<u8>),
    /// A stored name that begins so.
    Long(Shown),
    /// None.
    Nothing,
}

impl NamesOf {
    /// For an encrypted directory; `None` for all others.
    ///
    /// # Errors
    /// A cipher that is not known; damage.
    pub(crate) fn for_directory(
        blocks: &dyn Blocks,
        format: &Format,
        directory: &Inode,
    ) -> Result<Option<Self>> {
        if !is_encrypted(directory) {
            return Ok(None);
        }
        Ok(Some(match unlock(blocks, format, directory)? {
            Some(of) => NamesOf { names: Some(of.names()?), padding: of.context.padding() },
            None => NamesOf { names: None, padding: 0 },
        }))
    }

    /// A stored name as it is shown; one that can't be deciphered as if there were no key.
    pub(crate) fn shown(&self, stored: &[u8], hash: impl FnOnce(&[u8]) -> DirHash) -> Vec<u8> {
        if matches!(stored, b"." | b"..") {
            return stored.to_vec();
        }
        let name = self.names.as_ref().and_then(|names| names.decrypt(stored));
        name.filter(|name| !name.contains(&b'/') && !matches!(&name[..], b"." | b".."))
            .unwrap_or_else(|| encryption::shown(hash(stored), stored, ciphers::digest))
    }

    /// Meaning of a name in this directory.
    pub(crate) fn meaning(&self, name: &[u8]) -> Meaning {
        if matches!(name, b"." | b"..") {
            return Meaning::Stored(name.to_vec());
        }
        match &self.names {
            Some(names) => {
                names.encrypt(name, self.padding, NAME_MAX).map_or(Meaning::Nothing, Meaning::Stored)
            }
            None => match Shown::parse(name) {
                Some(Shown { bytes, digest: None, .. }) => Meaning::Stored(bytes),
                Some(long) => Meaning::Long(long),
                None => Meaning::Nothing,
            },
        }
    }
}

/// True if a name without a key stands for a stored one.
pub(crate) fn means(shown: &Shown, stored: &[u8]) -> bool {
    shown.means(stored, ciphers::digest)
}

/// A name as the blocks of a directory have it.
pub(crate) type StoredName<'n> = Cow<'n, [u8]>;
