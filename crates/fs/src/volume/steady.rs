//! Reading what lies in several blocks while others change the volume, without a lock.
//!
//! A reader notes the version of an inode, reads what it needs through the cache, and looks at the version
//! again. If it has changed, what was read may be a mix of before and after, or come from a block that
//! was freed; an error that was met may be a consequence of that. Then it begins again (I20).

use ondisk::inode::Inode;
use ondisk::units::InodeNumber;

use crate::cache::{Blocks, Reading, Role};
use crate::error::Result;
use crate::locks::lock;
use crate::tx::View;
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

    /// Reads an inode, for a verb that looks at it and at what it leads to.
    pub(crate) fn see(&self, number: InodeNumber) -> Result<Seen<'_>> {
        let version = self.cache.versions().changed(number);
        Ok(Seen { volume: self, node: self.view().inode(number)?, version })
    }
}

/// An inode as a verb has read it, and whether it still is so: it is read again only if it may have changed.
pub(crate) struct Seen<'v> {
    volume: &'v Volume,
    node: Inode,
    /// The version that the inode had; `None` if that is not known.
    version: Option<u64>,
}

impl<'v> Seen<'v> {
    /// An inode that was read before.
    pub(crate) fn of(volume: &'v Volume, node: Inode) -> Self {
        Seen { volume, node, version: None }
    }

    pub(crate) fn volume(&self) -> &'v Volume {
        self.volume
    }

    pub(crate) fn number(&self) -> InodeNumber {
        self.node.number()
    }

    /// The inode as it was read last.
    pub(crate) fn node(&self) -> &Inode {
        &self.node
    }

    /// The inode as it is now.
    pub(crate) fn refreshed(&mut self) -> Result<&Inode> {
        if !self.is_still() {
            self.read_again()?;
        }
        Ok(&self.node)
    }

    fn is_still(&self) -> bool {
        let is_still = |version| self.volume.cache.versions().is_still(self.number(), version);
        !self.volume.space.is_writable() || self.version.is_some_and(is_still)
    }

    fn read_again(&mut self) -> Result<()> {
        self.version = self.volume.cache.versions().changed(self.number());
        self.node = self.volume.view().inode(self.number())?;
        Ok(())
    }

    /// What `read` finds of the inode and the blocks that it leads to, as of one moment. It may be called several
    /// times, and reads by the view that it gets; the inode is the one of that moment.
    pub(crate) fn steady<T>(&mut self, mut read: impl FnMut(View<'_>, &Inode) -> Result<T>) -> Result<T> {
        let volume = self.volume;
        for _ in 0..TRIES {
            if self.version.is_none() && volume.space.is_writable() {
                self.read_again()?;
            }
            let found = read(volume.view(), &self.node);
            if self.is_still() {
                return found;
            }
            self.version = None;
            std::thread::yield_now();
        }
        for _ in 0..TRIES {
            // The writer is locked now, so all verbs that change something would wait for the device with this reader.
            let reading = Reading::new(&volume.cache, false);
            let found = {
                let _writing = lock(&volume.writer);
                self.read_again()?;
                read(View::new(&reading, &volume.format, &volume.space), &self.node)
            };
            let Some(missing) = reading.missing() else { return found };
            let _ = volume.cache.read(missing, Role::Plain);
        }
        let _writing = lock(&volume.writer);
        self.read_again()?;
        read(volume.view(), &self.node)
    }
}
