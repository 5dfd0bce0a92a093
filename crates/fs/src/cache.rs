//! Metadata blocks in memory.
//!
//! Owns: one copy of each block in use, whether it must be written, and its role, which tells how
//! its checksum is verified when it comes and written when it leaves. Excludes: what blocks mean,
//! and when dirty ones may go out (the rung above decides).
//!
//! Blocks are handed out as shared snapshots: a reader keeps the bytes it began with, takes no lock
//! while it looks at them, and a change makes a new copy only if somebody still holds the old one.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ondisk::corrupt::Place;
use ondisk::seal::{InodeSeed, Sealer};
use ondisk::units::{Block, BlockSize};

use crate::device::Device;
use crate::error::{Error, Result};

/// What a metadata block is, as far as its checksum is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// No checksum of its own: bitmaps (theirs is in the descriptor), tables (each record has its
    /// own), indirect blocks, targets of symbolic links.
    Plain,
    /// Directory leaf with a tail.
    DirectoryLeaf(InodeSeed),
    /// Directory index node whose count stands at the offset.
    IndexNode(InodeSeed, usize),
    /// Extent node below the inode.
    ExtentNode(InodeSeed),
    /// External extended attributes.
    Attributes,
}

impl Role {
    fn is_right(self, sealer: &Sealer, block: Block, bytes: &[u8]) -> bool {
        match self {
            Role::Plain => true,
            Role::DirectoryLeaf(seed) => seed.directory_leaf_is_right(bytes),
            Role::IndexNode(seed, at) => seed.index_node_is_right(bytes, at),
            Role::ExtentNode(seed) => seed.extent_node_is_right(bytes),
            Role::Attributes => sealer.attribute_block_is_right(block, bytes),
        }
    }

    fn seal(self, sealer: &Sealer, block: Block, bytes: &mut [u8]) {
        match self {
            Role::Plain => {}
            Role::DirectoryLeaf(seed) => seed.seal_directory_leaf(bytes),
            Role::IndexNode(seed, at) => seed.seal_index_node(bytes, at),
            Role::ExtentNode(seed) => seed.seal_extent_node(bytes),
            Role::Attributes => sealer.seal_attribute_block(block, bytes),
        }
    }
}

/// Where metadata blocks can be read from: the cache, or an update that sees its own changes.
pub trait Blocks {
    /// The bytes of a block, its checksum verified for the role.
    ///
    /// # Errors
    /// The device's failure, a block behind the end, or a wrong checksum.
    fn read(&self, block: Block, role: Role) -> Result<Arc<[u8]>>;
}

struct Entry {
    bytes: Arc<[u8]>,
    role: Role,
    dirty: bool,
}

/// Block numbers need mixing, not protection: one multiplication spreads runs of numbers well.
#[derive(Default)]
struct BlockHasher(u64);

impl Hasher for BlockHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The 64-bit golden ratio, as in Fibonacci hashing; the rotation moves the well-mixed high
        // bits to where the table looks first.
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(26);
    }
}

type Entries = HashMap<u64, Entry, BuildHasherDefault<BlockHasher>>;

/// The metadata blocks of one volume.
pub struct Cache {
    device: Arc<dyn Device>,
    block_size: BlockSize,
    sealer: Sealer,
    entries: Mutex<Entries>,
    /// Clean blocks are dropped when more than this many blocks are held.
    capacity: usize,
}

/// Memory for metadata blocks before clean ones are dropped.
const CACHE_BYTES: usize = 64 << 20;

impl Cache {
    /// An empty cache over a device.
    pub fn new(device: Arc<dyn Device>, block_size: BlockSize, sealer: Sealer) -> Self {
        let capacity = CACHE_BYTES / block_size.bytes_usize();
        Cache { device, block_size, sealer, entries: Mutex::default(), capacity }
    }

    /// Bytes of a block.
    pub(crate) fn block_len(&self) -> usize {
        self.block_size.bytes_usize()
    }

    /// The device below.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load(&self, block: Block, role: Role) -> Result<Arc<[u8]>> {
        let mut bytes = vec![0; self.block_size.bytes_usize()];
        let offset = block.0.checked_mul(u64::from(self.block_size.bytes()));
        let offset = offset.ok_or_else(|| Error::corrupt(Place::Block(block), "lies behind the end"))?;
        self.device
            .read_at(offset, &mut bytes)
            .map_err(|source| Error::io(format!("reading block {block}"), source))?;
        self.verified(block, role, Arc::from(bytes))
    }

    fn verified(&self, block: Block, role: Role, bytes: Arc<[u8]>) -> Result<Arc<[u8]>> {
        if role.is_right(&self.sealer, block, &bytes) {
            return Ok(bytes);
        }
        Err(Error::corrupt(Place::Block(block), format!("checksum of the {} is wrong", role.name())))
    }

    /// Verifies a clean block for another role than it came with. One that came without a role (the
    /// reader had to look at it to know) keeps this one, so that it is verified once.
    fn specify(&self, block: Block, role: Role, bytes: Arc<[u8]>) -> Result<Arc<[u8]>> {
        let bytes = self.verified(block, role, bytes)?;
        if let Some(entry) = self.lock().get_mut(&block.0)
            && entry.role == Role::Plain
            && Arc::ptr_eq(&entry.bytes, &bytes)
        {
            entry.role = role;
        }
        Ok(bytes)
    }

    /// Takes over changed blocks, all at once.
    pub(crate) fn publish(&self, changed: impl IntoIterator<Item = (Block, Role, Arc<[u8]>)>) {
        let mut entries = self.lock();
        for (block, role, bytes) in changed {
            entries.insert(block.0, Entry { bytes, role, dirty: true });
        }
    }

    /// Drops a block that no longer is metadata, unwritten changes included.
    pub(crate) fn forget(&self, block: Block) {
        self.lock().remove(&block.0);
    }

    /// Whether more blocks are held than the memory bound allows; once the changed ones are
    /// written they can be dropped.
    pub(crate) fn is_crowded(&self) -> bool {
        self.lock().len() > self.capacity
    }

    /// Writes every changed block in device order, sealed; does not flush the device.
    ///
    /// # Errors
    /// The device's failure; blocks not yet written stay dirty.
    pub(crate) fn write_back(&self) -> Result<()> {
        let mut dirty: Vec<(u64, Role, Arc<[u8]>)> = {
            let entries = self.lock();
            let dirty = entries.iter().filter(|(_, entry)| entry.dirty);
            dirty.map(|(block, entry)| (*block, entry.role, Arc::clone(&entry.bytes))).collect()
        };
        dirty.sort_unstable_by_key(|(block, ..)| *block);
        let mut outgoing = vec![0; self.block_size.bytes_usize()];
        for (block, role, bytes) in dirty {
            outgoing.copy_from_slice(&bytes);
            role.seal(&self.sealer, Block(block), &mut outgoing);
            self.device
                .write_at(block * u64::from(self.block_size.bytes()), &outgoing)
                .map_err(|source| Error::io(format!("writing block {block}"), source))?;
            if let Some(entry) = self.lock().get_mut(&block)
                && Arc::ptr_eq(&entry.bytes, &bytes)
            {
                entry.dirty = false;
            }
        }
        self.make_room(&mut self.lock());
        Ok(())
    }

    /// Keeps the memory of clean blocks bounded. The entry of most use is not known, and need not
    /// be: everything clean goes, which costs a reload of a few blocks each time the bound is met.
    fn make_room(&self, entries: &mut Entries) {
        if entries.len() > self.capacity {
            entries.retain(|_, entry| entry.dirty);
        }
    }
}

impl Blocks for Cache {
    fn read(&self, block: Block, role: Role) -> Result<Arc<[u8]>> {
        let held = {
            let entries = self.lock();
            entries.get(&block.0).map(|entry| (Arc::clone(&entry.bytes), entry.role, entry.dirty))
        };
        if let Some((bytes, known, dirty)) = held {
            // A changed block is sealed only when it leaves; a clean one was verified for one role.
            return if dirty || known == role || role == Role::Plain {
                Ok(bytes)
            } else {
                self.specify(block, role, bytes)
            };
        }
        let bytes = self.load(block, role)?;
        let mut entries = self.lock();
        self.make_room(&mut entries);
        let entry = entries.entry(block.0).or_insert(Entry { bytes, role, dirty: false });
        Ok(Arc::clone(&entry.bytes))
    }
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::Plain => "block",
            Role::DirectoryLeaf(_) => "directory block",
            Role::IndexNode(..) => "directory index node",
            Role::ExtentNode(_) => "extent node",
            Role::Attributes => "extended attribute block",
        }
    }
}
