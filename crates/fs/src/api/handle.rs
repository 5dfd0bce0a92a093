//! Lifetimes: the volume lives until its last handle goes, an inode until the last handle of the file goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ondisk::inode::Timestamp;
use ondisk::units::InodeNumber;

use crate::error::{Error, Result};
use crate::volume::Volume;

/// The life of an open volume. Its end closes the volume.
struct Life {
    volume: Volume,
    is_closed: AtomicBool,
}

impl Life {
    /// Makes everything stable and marks the volume as closed cleanly, once.
    fn close(&self) -> Result<()> {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.volume.uses().clear_away()?;
        self.volume.put_in_order()
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // A caller that wants to know syncs first, or calls `Image::close`: as with files of the system.
        let _ = self.close();
    }
}

/// A volume as some handles share it: their changes get one time.
pub(super) struct Shared {
    volume: Volume,
    life: Arc<Life>,
}

impl Shared {
    pub(super) fn new(volume: Volume) -> Arc<Self> {
        let is_closed = AtomicBool::new(!volume.space.is_writable());
        let own = volume.at_time(volume.now());
        Arc::new(Shared { volume: own, life: Arc::new(Life { volume, is_closed }) })
    }

    /// Returns a handle of this volume at another time.
    pub(super) fn at_time(&self, now: Timestamp) -> Arc<Self> {
        Arc::new(Shared { volume: self.volume.at_time(now), life: Arc::clone(&self.life) })
    }

    pub(super) fn volume(&self) -> &Volume {
        &self.volume
    }
}

/// Closes a volume, if there is no other handle of it.
pub(super) fn close(shared: &Arc<Shared>) -> Result<()> {
    let others = Arc::strong_count(shared) + Arc::strong_count(&shared.life) - 2;
    match others {
        0 => shared.life.close(),
        _ => Err(Error::Invalid(format!("{others} files or directories of the image are still open"))),
    }
}

/// A user of an inode: what it holds stays, even without a name.
pub(super) struct Node {
    shared: Arc<Shared>,
    number: InodeNumber,
}

impl Node {
    pub(super) fn new(shared: &Arc<Shared>, number: InodeNumber) -> Result<Self> {
        shared.volume.uses().retain(number)?;
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
        self.shared.volume.uses().release(self.number, 1);
    }
}
