//! The ciphers of fscrypt, and how their keys follow from a master key.
//!
//! Source: the documentation of Linux ("Filesystem-level encryption (fscrypt)"). Keys are wiped when they are dropped, and so
//! are the ciphers made of them; the state in which HKDF derives them is not. Excludes which key a file takes.

use aes::Aes256;
use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, InnerIvInit, KeyInit};
use cts::{CbcCs3, Decrypt, Encrypt};
use hkdf::Hkdf;
use sha2::{Digest, Sha256, Sha512};
use xts_mode::Xts128;
use zeroize::Zeroizing;

/// Bytes that the cipher takes at once.
pub(crate) const PIECE: usize = 16;
/// Bytes of the key for contents: two of AES-256.
pub(crate) const CONTENTS_KEY: usize = 64;
/// Bytes of the key for names.
pub(crate) const NAMES_KEY: usize = 32;

/// A key that follows from a master key.
pub(crate) type Derived<const LEN: usize> = Zeroizing<[u8; LEN]>;

/// An initialisation vector.
pub(crate) type Vector = [u8; PIECE];

/// Purpose of a key that is derived from a policy of version 2.
#[derive(Clone, Copy)]
pub(crate) enum Purpose<'a> {
    /// The name of the master key.
    Identifier,
    /// One file, by its nonce.
    File(&'a [u8]),
    /// All files of one cipher on a volume, by the cipher and the volume's UUID.
    Volume(u8, &'a [u8; 16]),
}

/// Derives a key from a master key (HKDF with SHA-512).
pub(crate) fn derive<const LEN: usize>(master: &[u8], purpose: Purpose<'_>) -> Derived<LEN> {
    let (context, about) = match purpose {
        Purpose::Identifier => (1, Vec::new()),
        Purpose::File(nonce) => (2, nonce.to_vec()),
        Purpose::Volume(cipher, uuid) => (4, [&[cipher][..], uuid].concat()),
    };
    let info = [&b"fscrypt\0"[..], &[context], &about].concat();
    let mut key = Zeroizing::new([0; LEN]);
    // Fails only for more than 255 digests.
    let expanded = Hkdf::<Sha512>::new(None, master).expand(&info, &mut *key);
    debug_assert!(expanded.is_ok());
    key
}

/// The key of a file with a policy of version 1: the master key, enciphered with the nonce as key.
pub(crate) fn derive_old<const LEN: usize>(master: &[u8], nonce: &[u8; 16]) -> Option<Derived<LEN>> {
    let mut key: Derived<LEN> = Zeroizing::new(*master.first_chunk()?);
    let cipher = aes::Aes128::new(&Array(*nonce));
    for piece in key.chunks_exact_mut(PIECE) {
        cipher.encrypt_block(piece.try_into().ok()?);
    }
    Some(key)
}

/// The name that tools give a master key for policies of version 1.
pub(crate) fn descriptor(master: &[u8]) -> [u8; 8] {
    let twice = Sha512::digest(Sha512::digest(master));
    std::array::from_fn(|at| twice[at])
}

/// SHA-256.
pub(crate) fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// For contents.
pub(crate) struct Contents(Xts128<Aes256>);

impl Contents {
    pub(crate) fn new(key: &[u8; CONTENTS_KEY]) -> Self {
        let half = |from: usize| {
            let half: Derived<NAMES_KEY> = Zeroizing::new(std::array::from_fn(|at| key[from + at]));
            Aes256::new((&*half).into())
        };
        Contents(Xts128::new(half(0), half(32)))
    }

    /// Deciphers one unit, a multiple of 16 bytes.
    pub(crate) fn decrypt(&self, unit: &mut [u8], vector: Vector) {
        if unit.len() >= PIECE {
            self.0.decrypt_sector(unit, Array(vector));
        }
    }
}

/// For names and targets of links.
pub(crate) struct Names {
    key: Derived<NAMES_KEY>,
    vector: Vector,
}

impl Names {
    pub(crate) fn new(key: Derived<NAMES_KEY>, vector: Vector) -> Self {
        Names { key, vector }
    }

    /// The stored name for a name; `None` if it is longer than `most` padded.
    pub(crate) fn encrypt(&self, name: &[u8], padding: usize, most: usize) -> Option<Vec<u8>> {
        let len = name.len().max(PIECE).next_multiple_of(padding).min(most);
        if name.len() > len {
            return None;
        }
        let mut stored = name.to_vec();
        stored.resize(len, 0);
        let cipher = Aes256::new((&*self.key).into());
        if let Ok(one) = <[u8; PIECE]>::try_from(&stored[..]) {
            // With one block there is nothing to steal from, and it is plain CBC.
            let mut block = Array(std::array::from_fn(|at| one[at] ^ self.vector[at]));
            cipher.encrypt_block(&mut block);
            return Some(block.to_vec());
        }
        let cipher = CbcCs3::<Aes256>::inner_iv_init(cipher, &Array(self.vector));
        cipher.encrypt(&mut stored).ok().map(|()| stored)
    }

    /// The name behind a stored one; `None` if it can't be one.
    pub(crate) fn decrypt(&self, stored: &[u8]) -> Option<Vec<u8>> {
        let mut name = stored.to_vec();
        let cipher = Aes256::new((&*self.key).into());
        if let Ok(one) = <[u8; PIECE]>::try_from(stored) {
            let mut block = Array(one);
            cipher.decrypt_block(&mut block);
            name = block.iter().zip(self.vector).map(|(byte, with)| byte ^ with).collect();
        } else {
            let cipher = CbcCs3::<Aes256>::inner_iv_init(cipher, &Array(self.vector));
            cipher.decrypt(&mut name).ok()?;
        }
        let len = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        name.truncate(len);
        (!name.is_empty()).then_some(name)
    }
}
