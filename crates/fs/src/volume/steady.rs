//! Reading what lies in several blocks while others change the volume, without a lock.
//!
//! A reader notes the version of an inode, reads what it needs through the cache, and looks at the version
//! again. If it has changed, what was read may be a mix of before and after, or come from a block that
//! was freed; an error that was met may be a consequence of that. Then it begins anew (I20).

use ondisk::units::InodeNumber;

use crate::error::Result;
use crate::locks::lock;
use crate::volume::Volume;

/// Looks before a reader keeps writers out. An update is published in microseconds, so that only an inode
/// that is changed all the time, or one in many blocks that were not in memory, comes this far.
const TRIES: u32 = 64;

impl Volume {
    /// What `read` finds of an inode and the blocks that it leads to, as of one moment. It may be called
    /// several times.
    pub(crate) fn steady<T>(&self, number: InodeNumber, mut read: impl FnMut() -> Result<T>) -> Result<T> {
        if !self.space.is_writable() {
            return read();
        }
        let versions = self.cache.versions();
        for _ in 0..TRIES {
            let Some(version) = versions.changed(number) else {
                std::thread::yield_now();
                continue;
            };
            let found = read();
            if versions.is_still(number, version) {
                return found;
            }
        }
        let _writing = lock(&self.writer);
        read()
    }
}
