//! Reading metadata with or without waiting for the device.
//!
//! Owns: which block was missed by a reader that may not wait. Excludes: what is done then (`volume`): the attempt is
//! dropped, the block is read, and the whole is tried again.

use std::cell::Cell;
use std::io;
use std::sync::Arc;

use ondisk::units::Block;

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
    missing: Cell<Option<Block>>,
}

impl<'c> Reading<'c> {
    pub(crate) fn new(cache: &'c Cache, may_wait: bool) -> Self {
        Reading { cache, may_wait, missing: Cell::new(None) }
    }

    pub(crate) fn cache(&self) -> &'c Cache {
        self.cache
    }

    /// The first block that was not in memory, where waiting was not allowed: what was read since is not all there is.
    pub(crate) fn missing(&self) -> Option<Block> {
        self.missing.get()
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
            self.missing.set(Some(block));
        }
        Err(Error::io(format!("reading block {block}"), io::ErrorKind::WouldBlock.into()))
    }

    fn read_data(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.cache.read_data(offset, buffer)
    }
}
