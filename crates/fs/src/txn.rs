//! Updates: the changes of one verb to metadata, all or nothing.
//!
//! An [`Update`] stages copies of the blocks it changes and holds the space it takes as owned
//! grants. [`Update::commit`] publishes everything at once; dropping an update that was not
//! committed leaves blocks and free space as they were (invariant I8). So a verb can fail at any
//! point, for lack of space or over a corrupt block, without undoing anything by hand.
//!
//! Today's ordering is *unordered*: published blocks reach the device in any order until a sync.

use std::sync::Arc;

use ondisk::units::{Block, BlockRun};

use crate::cache::{Blocks, Cache, Role};
use crate::error::Result;

struct Staged {
    block: Block,
    role: Role,
    bytes: Arc<[u8]>,
}

/// Something taken that goes back by itself unless it is kept: free space, an inode number.
pub trait Claim {
    /// Makes it permanent.
    fn keep(self: Box<Self>);
}

/// The changes of one verb, not yet visible to others.
pub struct Update<'v> {
    cache: &'v Cache,
    staged: Vec<Staged>,
    claims: Vec<Box<dyn Claim + Send + 'v>>,
    forgotten: Vec<BlockRun>,
}

impl<'v> Update<'v> {
    /// An update without changes.
    pub fn new(cache: &'v Cache) -> Self {
        Update { cache, staged: Vec::new(), claims: Vec::new(), forgotten: Vec::new() }
    }

    fn position(&self, block: Block) -> Option<usize> {
        self.staged.iter().rposition(|staged| staged.block == block)
    }

    /// The bytes of a block, to change; verified for its role when it is read.
    ///
    /// # Errors
    /// As [`Blocks::read`].
    pub fn edit(&mut self, block: Block, role: Role) -> Result<&mut [u8]> {
        let position = match self.position(block) {
            Some(position) => position,
            None => {
                let bytes = self.cache.read(block, role)?;
                self.staged.push(Staged { block, role, bytes });
                self.staged.len() - 1
            }
        };
        let staged = &mut self.staged[position];
        staged.role = role;
        Ok(Arc::make_mut(&mut staged.bytes))
    }

    /// A block whose old contents do not matter, as zeros, to fill.
    pub fn create(&mut self, block: Block, role: Role) -> &mut [u8] {
        let zeros: Arc<[u8]> = vec![0; self.cache.block_len()].into();
        let position = match self.position(block) {
            Some(position) => {
                self.staged[position] = Staged { block, role, bytes: zeros };
                position
            }
            None => {
                self.staged.push(Staged { block, role, bytes: zeros });
                self.staged.len() - 1
            }
        };
        Arc::make_mut(&mut self.staged[position].bytes)
    }

    /// Whether the update changes a block.
    #[must_use]
    pub fn holds(&self, block: Block) -> bool {
        self.position(block).is_some()
    }

    /// Binds something taken to this update.
    pub fn claim(&mut self, claim: impl Claim + Send + 'v) {
        self.claims.push(Box::new(claim));
    }

    /// Notes that blocks stop being metadata: staged and cached copies are dropped on commit.
    pub fn forget(&mut self, run: BlockRun) {
        self.forgotten.push(run);
        let gone = run.start.0..run.start.0 + u64::from(run.count);
        self.staged.retain(|staged| !gone.contains(&staged.block.0));
    }

    /// Makes all changes visible and all claims permanent.
    pub fn commit(self) {
        for run in self.forgotten {
            for offset in 0..u64::from(run.count) {
                self.cache.forget(Block(run.start.0 + offset));
            }
        }
        self.cache.publish(self.staged.into_iter().map(|staged| (staged.block, staged.role, staged.bytes)));
        for claim in self.claims {
            claim.keep();
        }
    }
}

impl Blocks for Update<'_> {
    fn read(&self, block: Block, role: Role) -> Result<Arc<[u8]>> {
        match self.position(block) {
            Some(position) => Ok(Arc::clone(&self.staged[position].bytes)),
            None => self.cache.read(block, role),
        }
    }
}
