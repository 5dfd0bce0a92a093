//! Which attribute blocks hold what, so that inodes with equal attributes share one.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ondisk::units::Block;
use ondisk::xattr::{self, HEADER_LEN, REFERENCES_MAX};

use crate::cache::{Blocks, Role};
use crate::error::Result;
use crate::txn::{Claim, Update};

/// Blocks remembered; when there are more, all are forgotten, which costs some sharing and nothing
/// else.
const REMEMBERED_MAX: usize = 8192;

type Known = Arc<Mutex<Index>>;

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
#[derive(Clone, Default, Debug)]
pub(crate) struct AttributeBlocks {
    known: Known,
}

fn lock(known: &Known) -> MutexGuard<'_, Index> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A key that is the same in every run, so that images are reproducible.
fn key(block: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(block.get(HEADER_LEN..).unwrap_or_default());
    hasher.finish()
}

/// Becomes known when the update that wrote the block is committed, not before: a block of a dropped
/// update is free again and may come to hold anything.
struct Written {
    key: u64,
    block: Block,
    known: Known,
}

impl Claim for Written {
    fn keep(self: Box<Self>) {
        lock(&self.known).insert(self.key, self.block);
    }
}

impl AttributeBlocks {
    /// Takes one more reference to a known block with the same entries as `fresh`.
    pub(super) fn share(&self, update: &mut Update<'_>, fresh: &[u8]) -> Result<Option<Block>> {
        let Some(block) = lock(&self.known).blocks.get(&key(fresh)).copied() else { return Ok(None) };
        let bytes = update.read(block, Role::Attributes)?;
        let references = xattr::in_block(block, &bytes)?.0.h_refcount.get();
        let equal = bytes.get(HEADER_LEN..) == fresh.get(HEADER_LEN..);
        if !equal || references >= REFERENCES_MAX {
            return Ok(None);
        }
        xattr::set_references(update.edit(block, Role::Attributes)?, references + 1);
        Ok(Some(block))
    }

    /// Forgets a block that is being freed.
    pub(super) fn forget(&self, block: Block) {
        lock(&self.known).remove(block);
    }

    /// Remembers a block that this update fills with `fresh`, once it is committed.
    pub(super) fn remember(&self, update: &mut Update<'_>, block: Block, fresh: &[u8]) {
        lock(&self.known).remove(block);
        update.claim(Written { key: key(fresh), block, known: Arc::clone(&self.known) });
    }
}
