//! Reading metadata with or without waiting for the device.
//!
//! Owns: which blocks were missed by a reader that may not wait. Excludes: what is done then (`volume`): the attempt is
//! dropped, the block is read, and the whole is tried again.

use std::cell::Cell;
use std::io;
use std::sync::Arc;

use ondisk::units::{Block, BlockRun};

use super::{Blocks, Cache, Role};
use crate::error::{Error, Result};

/// The cache as it is read by a verb that may, or may not, wait for the device. One that holds the writer's lock should
/// not: all others that change something would wait with it.
///
/// A read that would have to wait fails with [`io::ErrorKind::WouldBlock`]. What counts is [`Reading::missing`]: an
/// error may be taken for something else on its way up, or passed over.
pub(crate) struct Reading<'c> {
    cache: &'c Cache,
    may_wait: bool,
    /// Blocks of which those behind the first are wanted soon.
    wanted: Cell<Option<BlockRun>>,
    missing: Cell<Option<BlockRun>>,
}

impl<'c> Reading<'c> {
    pub(crate) fn new(cache: &'c Cache, may_wait: bool) -> Self {
        Reading { cache, may_wait, wanted: Cell::new(None), missing: Cell::new(None) }
    }

    pub(crate) fn cache(&self) -> &'c Cache {
        self.cache
    }

    /// The first block that was not in memory, where waiting was not allowed, with wanted ones behind it: what was read
    /// since is not all there is.
    pub(crate) fn missing(&self) -> Option<BlockRun> {
        self.missing.get()
    }

    /// If one of these is missing, those behind it are worth reading with it.
    pub(crate) fn want(&self, run: BlockRun) {
        self.wanted.set(Some(run));
    }

    fn miss(&self, block: Block) {
        let behind = |run: BlockRun| {
            let before = u32::try_from(block.0.checked_sub(run.start.0)?).ok()?;
            run.count.checked_sub(before).filter(|count| *count > 0)
        };
        let count = self.wanted.get().and_then(behind).unwrap_or(1);
        self.missing.set(Some(BlockRun { start: block, count }));
    }
}

impl Blocks for Reading<'_> {
    fn read(&self, block: Block, role: Role) -> Result<Arc<[u8]>> {
        if self.may_wait {
            return self.cache.read(block, role);
        }
        if let Some(bytes) = self.cache.held(block, role)? {
            return Ok(bytes);
        }
        if self.missing.get().is_none() {
            self.miss(block);
        }
        Err(Error::io(format!("reading block {block}"), io::ErrorKind::WouldBlock.into()))
    }

    fn read_data(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.cache.read_data(offset, buffer)
    }
}
