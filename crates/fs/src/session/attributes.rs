//! Index of attribute blocks by their contents, so that inodes with equal attributes share one.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ondisk::units::Block;
use ondisk::xattr::HEADER_LEN;

/// Blocks remembered; when there are more, all are forgotten, which costs some sharing and nothing
/// else.
const REMEMBERED_MAX: usize = 8192;

/// Both directions, so that rewriting a block costs no search.
#[derive(Default, Debug)]
struct Index {
    blocks: HashMap<u64, Block>,
    keys: HashMap<Block, u64>,
}

impl Index {
    fn insert(&mut self, key: u64, block: Block) {
        if self.keys.len() >= REMEMBERED_MAX {
            *self = Index::default();
        }
        self.blocks.insert(key, block);
        self.keys.insert(block, key);
    }

    fn remove(&mut self, block: Block) {
        if let Some(key) = self.keys.remove(&block)
            && self.blocks.get(&key) == Some(&block)
        {
            self.blocks.remove(&key);
        }
    }
}

/// The attribute blocks of a volume that were written since it was opened, by their contents.
/// Only a hint: a block is compared byte for byte before it is shared.
#[derive(Default, Debug)]
pub(crate) struct AttributeBlocks(Mutex<Index>);

/// A key that is the same in every run, so that images are reproducible.
fn key(block: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(block.get(HEADER_LEN..).unwrap_or_default());
    hasher.finish()
}

impl AttributeBlocks {
    fn lock(&self) -> MutexGuard<'_, Index> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block that may hold the same entries as `fresh`.
    pub(crate) fn like(&self, fresh: &[u8]) -> Option<Block> {
        self.lock().blocks.get(&key(fresh)).copied()
    }

    /// Forgets a block that is being freed or rewritten.
    pub(crate) fn forget(&self, block: Block) {
        self.lock().remove(block);
    }

    /// Remembers what an update filled, once it is committed and as far as it still `publishes` the blocks. A block that
    /// it freed again, or that a dropped update took, may come to hold anything.
    pub(crate) fn take_in(&self, filled: Filled, publishes: impl Fn(Block) -> bool) {
        let mut index = self.lock();
        for (block, key) in filled.0.into_iter().filter(|(block, _)| publishes(*block)) {
            index.remove(block);
            index.insert(key, block);
        }
    }
}

/// The attribute blocks that an update fills, which nobody shares before its commit.
#[derive(Default, Debug)]
pub(crate) struct Filled(BTreeMap<Block, u64>);

impl Filled {
    /// Notes that a block holds `fresh` from now on.
    pub(crate) fn note(&mut self, block: Block, fresh: &[u8]) {
        self.0.insert(block, key(fresh));
    }
}
