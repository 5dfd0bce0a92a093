//! Which attribute blocks hold what, so that inodes with equal attributes share one.

use std::collections::HashMap;
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

    /// What remembers that a block holds `fresh`: to be called when the update that writes the block is
    /// committed, not before. A block of a dropped update is free again and may come to hold anything.
    pub(crate) fn remember<'s>(&'s self, block: Block, fresh: &[u8]) -> impl FnOnce() + Send + use<'s> {
        let key = key(fresh);
        move || self.lock().insert(key, block)
    }
}
