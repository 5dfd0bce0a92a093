//! A device that stops taking writes: the failure is told, and nothing is written afterwards.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use platfs::device::{Device, MemoryDevice};
use platfs::mkfs::{FsType, Options, Plan};
use platfs::ondisk::units::InodeNumber;
use platfs::{Attributes, Error, Kind, NewInode, OpenOptions, Volume};

/// Takes so many writes and then none.
struct Failing {
    memory: MemoryDevice,
    left: AtomicU64,
    refused: AtomicU64,
}

impl Device for Failing {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.memory.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let taken = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if taken.is_err() {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return Err(io::Error::other("the device is gone"));
        }
        self.memory.write_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn whichever_write_fails_it_is_told_and_the_last() {
    let new = NewInode { kind: Kind::File, attributes: Attributes::default(), xattrs: &[] };
    for writes in 0.. {
        let bytes = 8 << 20;
        let memory = MemoryDevice::new(bytes);
        Plan::new(&Options::new(FsType::Ext4), bytes).unwrap().write(&memory).unwrap();
        let device = Arc::new(Failing { memory, left: AtomicU64::new(writes), refused: AtomicU64::new(0) });
        let volume = Volume::open(device.clone(), &OpenOptions::new().write(true).unordered(true)).unwrap();
        let done = volume.create(InodeNumber::ROOT, b"file", &new).and_then(|_| volume.sync());
        if done.is_ok() {
            assert!(
                writes > 4,
                "the mark; a sync writes bitmaps, descriptors, tables, the directory and the superblock"
            );
            return;
        }
        assert_eq!(device.refused.load(Ordering::SeqCst), 1, "the first refusal ends it");
        let next = volume.create(InodeNumber::ROOT, b"other", &new);
        assert!(matches!(next, Err(Error::WriteFailed)), "{next:?}");
        assert!(matches!(volume.sync(), Err(Error::WriteFailed)));
        assert_eq!(device.refused.load(Ordering::SeqCst), 1, "nothing more is tried");
    }
}
