//! Reading what lies in several blocks while others change the volume, without a lock.
//!
//! A reader notes the version of an inode, reads what it needs through the cache, and looks at the version
//! again. If it has changed, what was read may be a mix of before and after, or come from a block that
//! was freed; an error that was met may be a consequence of that. Then it begins again (I20).

use ondisk::inode::Inode;
use ondisk::units::InodeNumber;

use crate::cache::Reading;
use crate::error::Result;
use crate::locks::lock;
use crate::tx::View;
use crate::volume::{Core, Volume};

/// Looks before a reader keeps writers out. An update is published in microseconds, so that only an inode
/// that is changed all the time, or one in many blocks that were not in memory, comes this far.
const TRIES: u32 = 64;

impl Core {
    /// Reads an inode and the blocks that it leads to, as of one moment. `read` may be called
    /// several times.
    pub(crate) fn seqlock_read<T>(
        &self,
        number: InodeNumber,
        mut read: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        if !self.space.is_writable() {
            return read();
        }
        let versions = self.cache.versions();
        for _ in 0..TRIES {
            // An odd count: a writer is publishing right now, which takes microseconds.
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

/// An inode as a verb has read it, and whether it still is so: it is read again only if it may have changed.
pub(crate) struct VersionedInode<'v> {
    volume: &'v Volume,
    node: Inode,
    /// The version that the inode had; `None` if that is not known.
    version: Option<u64>,
}

impl<'v> VersionedInode<'v> {
    /// Reads an inode, for a verb that looks at it and at what it leads to.
    pub(crate) fn read(volume: &'v Volume, number: InodeNumber) -> Result<Self> {
        let version = volume.cache.versions().changed(number);
        Ok(VersionedInode { volume, node: volume.view().inode(number)?, version })
    }

    /// An inode that was read before.
    pub(crate) fn unversioned(volume: &'v Volume, node: Inode) -> Self {
        VersionedInode { volume, node, version: None }
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
            self.read_again(self.volume.view())?;
        }
        Ok(&self.node)
    }

    fn is_still(&self) -> bool {
        let is_still = |version| self.volume.cache.versions().is_still(self.number(), version);
        !self.volume.space.is_writable() || self.version.is_some_and(is_still)
    }

    fn read_again(&mut self, view: View<'_>) -> Result<()> {
        self.version = self.volume.cache.versions().changed(self.number());
        self.node = view.inode(self.number())?;
        Ok(())
    }

    /// Reads the inode and the blocks that it leads to, as of one moment. `read` may be called several
    /// times, and reads by the view that it gets; the inode is the one of that moment.
    pub(crate) fn seqlock_read<T>(
        &mut self,
        mut read: impl FnMut(View<'_>, &Inode) -> Result<T>,
    ) -> Result<T> {
        let volume = self.volume;
        for _ in 0..TRIES {
            if self.version.is_none() && volume.space.is_writable() {
                self.read_again(volume.view())?;
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
                let view = View { blocks: &reading, ..volume.view() };
                self.read_again(view).and_then(|()| read(view, &self.node))
            };
            let Some(missing) = reading.missing() else { return found };
            volume.cache.fetch(missing);
        }
        let _writing = lock(&volume.writer);
        self.read_again(volume.view())?;
        read(volume.view(), &self.node)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, OnceLock, Weak};

    use ondisk::units::BlockRun;

    use super::*;
    use crate::OpenOptions;
    use crate::device::{Device, MemoryDevice};
    use crate::mkfs::{FsType, Options, Plan};
    use crate::volume::Shared;

    /// A device that counts reads while a writer is kept out of its volume.
    #[derive(Default)]
    struct Watched {
        volume: OnceLock<Weak<Shared>>,
        reads_in_lock: AtomicU32,
    }

    struct Watching(MemoryDevice, Arc<Watched>);

    impl Device for Watching {
        fn size(&self) -> u64 {
            self.0.size()
        }

        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
            let shared = self.1.volume.get().and_then(Weak::upgrade);
            if shared.is_some_and(|shared| shared.writer.try_lock().is_err()) {
                self.1.reads_in_lock.fetch_add(1, Ordering::Relaxed);
            }
            self.0.read_at(offset, buffer)
        }

        fn write_at(&self, offset: u64, buffer: &[u8]) -> io::Result<()> {
            self.0.write_at(offset, buffer)
        }

        fn flush(&self) -> io::Result<()> {
            self.0.flush()
        }
    }

    /// A reader that keeps writers out finds the inode's record cold: it lets them in before it waits for the device.
    #[test]
    fn a_cold_record_is_not_waited_for_with_the_writers_lock() {
        let watched = Arc::new(Watched::default());
        let device = Watching(MemoryDevice::new(8 << 20), Arc::clone(&watched));
        Plan::new(&Options::new(FsType::Ext4), device.size()).unwrap().write(&device).unwrap();
        let volume = Volume::open(Arc::new(device), &OpenOptions::new().write(true)).unwrap();
        watched.volume.set(Arc::downgrade(&volume.shared)).unwrap();
        let root = InodeNumber::ROOT;
        let (table, _) = volume.space.place_on_disk(root).unwrap();
        let (mut calls, mut last) = (0, None);
        let links = VersionedInode::read(&volume, root).unwrap().seqlock_read(|_, node| {
            calls += 1;
            if volume.writer.try_lock().is_ok() {
                // Changed all the time, and not in memory any more when writers are kept out.
                volume.cache.versions().during(&[root], &[], || {});
                volume.cache.forget(BlockRun { start: table, count: 1 }, |_, _, _| {});
            }
            last = Some(node.number());
            Ok(node.links())
        });
        assert_eq!(links.unwrap(), 3);
        assert_eq!((calls, last), (TRIES + 1, Some(root)));
        assert_eq!(watched.reads_in_lock.load(Ordering::Relaxed), 0);
    }
}
