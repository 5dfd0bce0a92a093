//! The tree of hashes with which dm-verity checks a volume as it is read, as `veritysetup format` lays it out: a header,
//! then the levels, the root's block first. SHA-256, blocks of hashes of 4 KiB.
//!
//! Salt and UUID are derived from the volume's identifiers, so that the tree is a function of the image. Excluded: how a
//! root hash is signed or handed to a kernel.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use sha2::{Digest, Sha256};

use super::bmap::hex;
use super::contents::{Contents, PIECE, PIECE_LEN};
use ondisk::units::bounded;

/// Bytes of a block of hashes.
pub(super) const HASH_BLOCK: u64 = 4096;
const HASH_LEN: usize = 32;
/// Hashes in a block.
const HASHES: u64 = HASH_BLOCK / HASH_LEN as u64;
const HEADER_LEN: u64 = 512;
const SALT_ROOM: usize = 256;

/// The identity of a volume, from which that of its disk is derived.
#[derive(Clone, Copy, Debug)]
pub struct Seeds {
    /// UUID of the volume.
    pub uuid: [u8; 16],
    /// Its seed of directory hashes.
    pub hash_seed: [u8; 16],
    /// When it was made, in seconds since 1970.
    pub time: u64,
}

impl Seeds {
    fn derived(&self, what: &str) -> [u8; HASH_LEN] {
        let mut hash = Sha256::new();
        hash.update(what);
        hash.update(self.uuid);
        hash.update(self.hash_seed);
        hash.update(self.time.to_le_bytes());
        hash.finalize().into()
    }
}

/// A tree of hashes that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verity {
    /// The hash that everything hangs on.
    pub root: [u8; HASH_LEN],
    /// Bytes hashed before those of each block.
    pub salt: [u8; HASH_LEN],
    /// UUID of the tree.
    pub uuid: [u8; 16],
    /// Byte of the header, on the disk or in the file of its own.
    pub offset: u64,
    /// Bytes of a block of data.
    pub data_block: u64,
    /// Blocks of data.
    pub data_blocks: u64,
}

impl Verity {
    /// The root hash in hexadecimal digits.
    #[must_use]
    pub fn root_hash(&self) -> String {
        hex(&self.root)
    }

    /// The salt in hexadecimal digits.
    #[must_use]
    pub fn salt_text(&self) -> String {
        hex(&self.salt)
    }

    /// Bytes of a block of hashes.
    #[must_use]
    pub fn hash_block(&self) -> u64 {
        HASH_BLOCK
    }

    fn header(&self) -> Vec<u8> {
        let mut header = b"verity\0\0".to_vec();
        // Version of the header; hashes of salt and data in this order.
        header.extend(1_u32.to_le_bytes());
        header.extend(1_u32.to_le_bytes());
        header.extend(self.uuid);
        let mut algorithm = b"sha256".to_vec();
        algorithm.resize(32, 0);
        header.extend(algorithm);
        for size in [self.data_block, HASH_BLOCK] {
            header.extend(bounded::<u32>(size).to_le_bytes());
        }
        header.extend(self.data_blocks.to_le_bytes());
        header.extend(bounded::<u16>(HASH_LEN).to_le_bytes());
        header.extend([0; 6]);
        let mut salt = self.salt.to_vec();
        salt.resize(SALT_ROOM, 0);
        header.extend(salt);
        header.resize(usize::try_from(HASH_BLOCK).unwrap_or(512), 0);
        header
    }
}

/// Writes the tree of a disk into a file, from byte `offset` on, which is a multiple of [`HASH_BLOCK`].
pub(super) fn write(
    contents: &Contents,
    file: &File,
    offset: u64,
    seeds: &Seeds,
    alive: &mut dyn FnMut(u64) -> io::Result<()>,
) -> io::Result<Verity> {
    let data_block = if contents.len.is_multiple_of(HASH_BLOCK) { HASH_BLOCK } else { contents.block };
    let data_blocks = contents.len.div_ceil(data_block);
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&seeds.derived("verity uuid")[..16]);
    uuid[6] = uuid[6] & 0x0F | 0x40;
    uuid[8] = uuid[8] & 0x3F | 0x80;
    let salt = seeds.derived("verity salt");
    let mut verity = Verity { root: [0; HASH_LEN], salt, uuid, offset, data_block, data_blocks };
    let levels = levels(data_blocks, offset + HEADER_LEN.next_multiple_of(HASH_BLOCK));
    let mut tree = Tree { file, salt, levels, root: [0; HASH_LEN] };
    tree.of_data(contents, data_block, data_blocks, alive)?;
    for level in 1..=tree.levels.len() {
        tree.level(level)?;
    }
    verity.root = tree.root;
    file.write_all_at(&verity.header(), offset)?;
    Ok(verity)
}

/// Where each level lies, the one above the data first, with its blocks: in the file the last is the first.
fn levels(data_blocks: u64, start: u64) -> Vec<(u64, u64)> {
    let mut counts = Vec::new();
    let mut count = data_blocks;
    while count > 1 {
        count = count.div_ceil(HASHES);
        counts.push(count);
    }
    let mut at = start;
    let mut levels: Vec<(u64, u64)> = Vec::new();
    for count in counts.into_iter().rev() {
        levels.push((at, count));
        at += count * HASH_BLOCK;
    }
    levels.reverse();
    levels
}

struct Tree<'f> {
    file: &'f File,
    salt: [u8; HASH_LEN],
    levels: Vec<(u64, u64)>,
    root: [u8; HASH_LEN],
}

impl Tree<'_> {
    fn hash(&self, block: &[u8]) -> [u8; HASH_LEN] {
        let mut hash = Sha256::new();
        hash.update(self.salt);
        hash.update(block);
        hash.finalize().into()
    }

    /// Hashes the data into the level above it.
    fn of_data(
        &mut self,
        contents: &Contents,
        size: u64,
        count: u64,
        alive: &mut dyn FnMut(u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut piece = vec![0; PIECE_LEN];
        let whole = bounded::<usize>(size);
        let mut hashes = Vec::new();
        let (mut at, end) = (0, count * size);
        let mut written = 0;
        while at < end {
            contents.read(at, &mut piece)?;
            let blocks = bounded::<usize>((end - at).min(PIECE) / size);
            for block in piece.chunks_exact(whole).take(blocks) {
                self.root = self.hash(block);
                hashes.extend(self.root);
            }
            at += PIECE;
            alive(PIECE)?;
            if hashes.len() as u64 >= PIECE || at >= end {
                written += self.store(0, written, &mut hashes)?;
            }
        }
        Ok(())
    }

    /// Hashes the blocks of one level into the next; of the last one there is one, and its hash is the root.
    fn level(&mut self, level: usize) -> io::Result<()> {
        let Some((at, count)) = self.levels.get(level - 1).copied() else { return Ok(()) };
        let mut hashes = Vec::new();
        let mut written = 0;
        let mut block = vec![0; bounded::<usize>(HASH_BLOCK)];
        for number in 0..count {
            self.file.read_exact_at(&mut block, at + number * HASH_BLOCK)?;
            self.root = self.hash(&block);
            hashes.extend(self.root);
            if hashes.len() as u64 >= PIECE {
                written += self.store(level, written, &mut hashes)?;
            }
        }
        self.store(level, written, &mut hashes).map(|_| ())
    }

    /// Writes hashes into a level behind the `written` bytes that it has, in whole blocks; gives their bytes.
    fn store(&self, level: usize, written: u64, hashes: &mut Vec<u8>) -> io::Result<u64> {
        let Some((at, _)) = self.levels.get(level) else { return Ok(0) };
        let len = (hashes.len() as u64).next_multiple_of(HASH_BLOCK);
        hashes.resize(bounded::<usize>(len), 0);
        self.file.write_all_at(hashes, at + written)?;
        hashes.clear();
        Ok(len)
    }
}
