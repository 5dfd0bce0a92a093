//! Discarding all that is free: only that, once it is free for good, and no verb is kept from it for long.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use platfs::mkfs::parse_features;

use super::*;

type Callback = Box<dyn Fn() + Send + Sync>;

/// A device that remembers discards, and fills what is discarded with bytes that no verb wrote.
struct Forgetful {
    inner: FileDevice,
    discards: Mutex<Vec<Range<u64>>>,
    unit: AtomicU64,
    keeps_all: AtomicBool,
    /// Called in each discard.
    during: OnceLock<Callback>,
}

impl Device for Forgetful {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        if self.keeps_all.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.discards.lock().unwrap().push(offset..offset + len);
        if let Some(during) = self.during.get() {
            during();
        }
        self.inner.write_at(offset, &vec![0xA5; usize::try_from(len).unwrap()])
    }

    fn discard_unit(&self) -> io::Result<u64> {
        Ok(self.unit.load(Ordering::Relaxed))
    }
}

impl Forgetful {
    fn new(image: &Path, fs_type: FsType, features: &str) -> Arc<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(image).unwrap();
        file.set_len(32 << 20).unwrap();
        let inner = FileDevice::new(file).unwrap().without_flush();
        let mut options = Options::new(fs_type);
        options.block_size = Some(1024);
        options.features = parse_features(features).unwrap();
        Plan::new(&options, inner.size()).unwrap().write(&inner).unwrap();
        Arc::new(Forgetful {
            inner,
            discards: Mutex::default(),
            unit: AtomicU64::new(1),
            keeps_all: AtomicBool::new(false),
            during: OnceLock::new(),
        })
    }

    fn open(self: &Arc<Self>, delay: u64) -> Volume {
        let options = OpenOptions::new().write(true).now(Timestamp::from_seconds(1_000_000_000)).delay(delay);
        Volume::open(Arc::clone(self) as Arc<dyn Device>, &options).unwrap()
    }

    /// Ranges discarded since the last call, in the longest runs: nothing twice.
    fn take(&self) -> Vec<Range<u64>> {
        let mut all = std::mem::take(&mut *self.discards.lock().unwrap());
        all.sort_by_key(|range| range.start);
        let mut joined: Vec<Range<u64>> = Vec::new();
        for range in all {
            match joined.last_mut() {
                Some(last) if last.end >= range.start => {
                    assert_eq!(last.end, range.start, "told twice");
                    last.end = range.end;
                }
                _ => joined.push(range),
            }
        }
        joined
    }
}

fn bytes(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

fn holds(volume: &Volume, number: InodeNumber, byte: u8, len: usize) {
    let mut back = vec![0; len];
    assert_eq!(volume.read_at(number, 0, &mut back).unwrap(), len);
    assert!(back.iter().all(|is| *is == byte));
}

const ALL: Range<u64> = 0..u64::MAX;
const LEN: usize = 6 << 20;

#[test]
fn all_that_is_free_for_good_is_reported_to_the_device() {
    for (fs_type, features, cluster) in
        [(FsType::Ext2, "", 1024), (FsType::Ext4, "", 1024), (FsType::Ext4, "bigalloc", 16384)]
    {
        let scratch = Scratch::new("trim");
        let image = scratch.join("disk.img");
        let device = Forgetful::new(&image, fs_type, features);
        let volume = device.open(0);
        let (kept, gone) = (file(&volume, b"kept"), file(&volume, b"gone"));
        for number in [kept, gone] {
            volume.write_at(number, 0, &vec![5; LEN], WriteOptions::default()).unwrap();
        }
        volume.sync().unwrap();
        volume.unlink(ROOT, b"gone").unwrap();
        let free = volume.space().free().unwrap();
        // What was removed waits for its commit.
        let first = volume.trim(ALL, 0).unwrap();
        let told = device.take();
        assert_eq!(first, bytes(&told));
        assert!(first <= free.0 * cluster && first + (1 << 20) > free.0 * cluster, "{first} {free:?}");
        assert_eq!(volume.space().free().unwrap(), free);
        volume.sync().unwrap();
        let second = volume.trim(ALL, 0).unwrap();
        assert_eq!(second, bytes(&device.take()));
        assert!(second >= first + LEN as u64, "{first} {second}");
        holds(&volume, kept, 5, LEN);
        let other = file(&volume, b"other");
        volume.write_at(other, 0, &vec![7; LEN], WriteOptions::default()).unwrap();
        volume.close().unwrap();
        fsck::assert_clean(&image);
        let volume = device.open(0);
        // Groups that this mount has not looked at are read for it.
        let third = volume.trim(ALL, 0).unwrap();
        assert!(third + (8 << 20) > second && third < second, "{second} {third}");
        holds(&volume, kept, 5, LEN);
        holds(&volume, other, 7, LEN);
        volume.close().unwrap();
        fsck::assert_clean(&image);
    }
}

#[test]
fn ranges_and_least_lengths_are_kept() {
    let scratch = Scratch::new("trim-range");
    let image = scratch.join("disk.img");
    let device = Forgetful::new(&image, FsType::Ext4, "");
    let volume = device.open(0);
    // Files of 8 KiB, of which each second one goes.
    let names: Vec<_> = (0..200).map(|number| format!("{number}").into_bytes()).collect();
    for name in &names {
        let number = file(&volume, name);
        volume.write_at(number, 0, &[3; 8 << 10], WriteOptions::default()).unwrap();
    }
    for name in names.iter().step_by(2) {
        volume.unlink(ROOT, name).unwrap();
    }
    volume.sync().unwrap();
    let all = volume.trim(ALL, 0).unwrap();
    let small = device.take();
    assert!(small.iter().filter(|range| range.end - range.start < 64 << 10).count() > 10, "{small:?}");
    let long = volume.trim(ALL, 64 << 10).unwrap();
    assert!(long < all && device.take().iter().all(|range| range.end - range.start >= 64 << 10));
    // The device has no use for less than it frees.
    device.unit.store(64 << 10, Ordering::Relaxed);
    assert_eq!(volume.trim(ALL, 0).unwrap(), long);
    device.unit.store(1, Ordering::Relaxed);
    device.take();
    let part = (9 << 20) + 100..(20 << 20) + 100;
    let told = volume.trim(part.clone(), 0).unwrap();
    let within = device.take();
    assert!(told > 1 << 20 && bytes(&within) == told);
    assert!(within.iter().all(|range| range.start >= 9 << 20 && range.end <= 20 << 20), "{within:?}");
    for wrong in [32 << 20..u64::MAX, 0..1023] {
        assert!(matches!(volume.trim(wrong, 0), Err(Error::Invalid(_))));
    }
    assert!(matches!(volume.trim(ALL, 9 << 20), Err(Error::Invalid(_))));
    device.unit.store(1 << 30, Ordering::Relaxed);
    assert_eq!(volume.trim(ALL, 0).unwrap(), 0);
    device.unit.store(1, Ordering::Relaxed);
    device.keeps_all.store(true, Ordering::Relaxed);
    assert!(matches!(volume.trim(ALL, 0), Err(Error::Unsupported(_))));
    volume.close().unwrap();
    fsck::assert_clean(&image);
    let volume = Volume::open(device, &OpenOptions::new()).unwrap();
    assert!(matches!(volume.trim(ALL, 0), Err(Error::ReadOnly)));
}

#[test]
fn nobody_finds_the_volume_full_for_what_is_held() {
    for delay in [0, 16 << 20] {
        let scratch = Scratch::new("trim-full");
        let image = scratch.join("disk.img");
        let device = Forgetful::new(&image, FsType::Ext4, "");
        let volume = Arc::new(device.open(delay));
        let number = file(&volume, b"large");
        let (begin, begun) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let (begin, ended) = (Mutex::new(Some(begin)), Mutex::new(ended));
        let during = Box::new(move || {
            if let Some(begin) = begin.lock().unwrap().take() {
                begin.send(()).unwrap();
            }
            // It waits for this discard to end; if not, it has time to fail: at each piece, as on a busy machine.
            let _: Result<(), _> = ended.lock().unwrap().recv_timeout(Duration::from_millis(100));
        });
        assert!(device.during.set(during).is_ok());
        let writer = {
            let volume = Arc::clone(&volume);
            thread::spawn(move || {
                begun.recv().unwrap();
                // All but what the map of the file may need.
                let held_too = volume.space().free_after_sync().unwrap().0 - 100;
                let data = vec![9; usize::try_from(held_too * 1024).unwrap()];
                let done = volume.write_at(number, 0, &data, WriteOptions::default());
                let _ = end.send(());
                done.map(|()| data.len())
            })
        };
        volume.trim(ALL, 0).unwrap();
        let len = writer.join().unwrap().unwrap();
        volume.sync().unwrap();
        holds(&volume, number, 9, len);
        Arc::into_inner(volume).unwrap().close().unwrap();
        fsck::assert_clean(&image);
    }
}

#[test]
fn writers_go_on_beside_it() {
    let scratch = Scratch::new("trim-beside");
    let image = scratch.join("disk.img");
    let device = Forgetful::new(&image, FsType::Ext4, "");
    let volume = device.open(4 << 20);
    let write = |thread: u8| {
        for round in 0..40_u8 {
            let name = [b'a' + thread, b'0' + round % 5];
            let _ = volume.unlink(ROOT, &name);
            let number = file(&volume, &name);
            volume.write_at(number, 0, &vec![thread + 1; 300 << 10], WriteOptions::default()).unwrap();
            if round % 3 == 0 {
                volume.sync().unwrap();
            }
            holds(&volume, number, thread + 1, 300 << 10);
        }
    };
    thread::scope(|scope| {
        let writers: Vec<_> = (0..3).map(|thread| scope.spawn(move || write(thread))).collect();
        loop {
            assert!(volume.trim(ALL, 0).unwrap() > 8 << 20);
            if writers.iter().all(thread::ScopedJoinHandle::is_finished) {
                break;
            }
        }
    });
    volume.sync().unwrap();
    volume.trim(ALL, 0).unwrap();
    for thread in 0..3 {
        for round in 0..5 {
            let number = volume.resolve(&[b'/', b'a' + thread, b'0' + round]).unwrap();
            holds(&volume, number, thread + 1, 300 << 10);
        }
    }
    volume.close().unwrap();
    fsck::assert_clean(&image);
}

#[test]
fn what_is_being_reported_is_given_to_nobody() {
    let scratch = Scratch::new("trim-taken");
    let image = scratch.join("disk.img");
    let device = Forgetful::new(&image, FsType::Ext4, "");
    let volume = Arc::new(device.open(0));
    let files = Arc::new(Mutex::new(Vec::new()));
    let (weak, list) = (Arc::downgrade(&volume), Arc::clone(&files));
    // In each discard a file is written, before the bytes of what is discarded are gone.
    let during = Box::new(move || {
        let volume = weak.upgrade().unwrap();
        let mut list = list.lock().unwrap();
        if list.len() < 12 {
            let number = file(&volume, format!("{}", list.len()).as_bytes());
            volume.write_at(number, 0, &vec![3; 1 << 20], WriteOptions::default()).unwrap();
            list.push(number);
        }
    });
    assert!(device.during.set(during).is_ok());
    volume.trim(ALL, 0).unwrap();
    let files = std::mem::take(&mut *files.lock().unwrap());
    assert_eq!(files.len(), 12);
    files.iter().for_each(|number| holds(&volume, *number, 3, 1 << 20));
    Arc::into_inner(volume).unwrap().close().unwrap();
    fsck::assert_clean(&image);
}
