//! How long things live: the volume as long as any handle of it, an inode as long as a handle of the file.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ondisk::units::InodeNumber;

use crate::error::{Error, Result};
use crate::volume::Volume;

/// A volume that handles share. The last of them puts it in order.
pub(super) struct Shared {
    volume: Volume,
    is_closed: AtomicBool,
}

impl Shared {
    pub(super) fn new(volume: Volume) -> Arc<Self> {
        let is_writable = volume.options.write;
        Arc::new(Shared { volume, is_closed: AtomicBool::new(!is_writable) })
    }

    pub(super) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Makes everything stable and marks the volume as closed cleanly, once.
    pub(super) fn close(&self) -> Result<()> {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.volume.clear_away()?;
        self.volume.put_in_order()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Whoever wants to know calls `Image::close` or syncs first: as with files of the system.
        let _ = self.close();
    }
}

/// A user of an inode: what it holds stays, even without a name.
pub(super) struct Node {
    shared: Arc<Shared>,
    number: InodeNumber,
}

impl Node {
    pub(super) fn new(shared: &Arc<Shared>, number: InodeNumber) -> Result<Self> {
        shared.volume.retain(number)?;
        Ok(Node { shared: Arc::clone(shared), number })
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn volume(&self) -> &Volume {
        &self.shared.volume
    }

    pub(super) fn number(&self) -> InodeNumber {
        self.number
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shared.volume.release(self.number, 1);
    }
}

/// The volume, once nobody else has it.
pub(super) fn alone(shared: Arc<Shared>) -> Result<Arc<Shared>> {
    match Arc::strong_count(&shared) {
        1 => Ok(shared),
        count => {
            Err(Error::Invalid(format!("{} files or directories of the image are still open", count - 1)))
        }
    }
}
