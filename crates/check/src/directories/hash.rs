//! Hashes of names: those that an index is ordered by, and one to find repeated names with.

use ondisk::dirhash::{DirHash, HashVersion, NameHasher};
use ondisk::inode::{Inode, InodeFlags};
use ondisk::superblock::{FLAG_UNSIGNED_HASH, RawSuperblock};

/// The hash version of directories whose names are both encrypted and without case: it needs the key, so
/// each entry holds its hash.
pub(super) const STORED: u8 = 6;

/// Hash of the names of one directory.
#[derive(Clone, Copy)]
pub(super) enum Hasher {
    /// By their bytes.
    Exact(NameHasher),
    /// Without case, which is known here for ASCII only.
    Folded(NameHasher),
    /// The hash stands behind each name.
    Stored,
}

impl Hasher {
    /// The hash of a directory's index with a version that was checked.
    pub(super) fn new(raw: &RawSuperblock, inode: &Inode, version: HashVersion) -> Self {
        let seed = raw.s_hash_seed.map(|word| word.get());
        let hasher = NameHasher::new(version, raw.s_flags.get() & FLAG_UNSIGNED_HASH != 0, seed);
        if inode.flags().contains(InodeFlags::CASEFOLD) {
            Hasher::Folded(hasher)
        } else {
            Hasher::Exact(hasher)
        }
    }

    /// The hash of a name, given the bytes of its entry behind it; `None` if it is not known.
    pub(super) fn hash(&self, name: &[u8], behind: &[u8]) -> Option<DirHash> {
        match self {
            Hasher::Exact(hasher) => Some(hasher.hash(name)),
            Hasher::Folded(hasher) => name.is_ascii().then(|| hasher.hash(&name.to_ascii_lowercase())),
            Hasher::Stored => {
                let (major, rest) = behind.split_first_chunk()?;
                let minor = rest.first_chunk()?;
                Some(DirHash { major: u32::from_le_bytes(*major), minor: u32::from_le_bytes(*minor) })
            }
        }
    }
}

/// A hash of 64 bits to find repeated names with (FNV-1a by words): equal names have equal ones; that
/// two others have is looked into, so that it costs time only.
pub(super) fn of_name(name: &[u8]) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64 ^ name.len() as u64;
    let (words, rest) = name.as_chunks();
    for word in words {
        hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash ^= hash >> 29;
    }
    for byte in rest {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3);
    }
    hash ^ hash >> 31
}
