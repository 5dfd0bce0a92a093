//! Verbs beside syncs, and readers beside writers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use platfs::device::{Device, FileDevice};
use platfs::mkfs::{FsType, Options, Plan, parse_features};
use platfs::ondisk::units::InodeNumber;
use platfs::{Attributes, Kind, NewInode, OpenOptions, Volume};
use testkit::fsck;
use testkit::scratch::Scratch;

const ROOT: InodeNumber = InodeNumber::ROOT;
fn new_file() -> NewInode<'static> {
    NewInode { kind: Kind::File, attributes: Attributes::default(), xattrs: &[] }
}

/// A device whose flushes wait while it is shut.
struct Gated {
    file: FileDevice,
    shut: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicBool,
    flushes: AtomicU64,
}

impl Gated {
    fn new(image: &Path, bytes: u64, fs_type: FsType, features: &str) -> Arc<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(image).unwrap();
        file.set_len(bytes).unwrap();
        let file = FileDevice::new(file).unwrap().without_flush();
        let mut options = Options::new(fs_type);
        options.block_size = Some(1024);
        options.features = parse_features(features).unwrap();
        Plan::new(&options, bytes).unwrap().write(&file).unwrap();
        Arc::new(Gated {
            file,
            shut: Mutex::default(),
            opened: Condvar::new(),
            waiting: AtomicBool::new(false),
            flushes: AtomicU64::new(0),
        })
    }

    fn shut(&self) {
        *self.shut.lock().unwrap() = true;
        self.waiting.store(false, Ordering::SeqCst);
    }

    fn open(&self) {
        *self.shut.lock().unwrap() = false;
        self.opened.notify_all();
    }

    fn until_somebody_waits(&self) {
        while !self.waiting.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Device for Gated {
    fn size(&self) -> u64 {
        self.file.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        let mut shut = self.shut.lock().unwrap();
        while *shut {
            self.waiting.store(true, Ordering::SeqCst);
            shut = self.opened.wait(shut).unwrap();
        }
        self.file.flush()
    }
}

fn open(device: &Arc<Gated>) -> Volume {
    Volume::open(device.clone(), &OpenOptions::new().write(true).unordered(true)).unwrap()
}

fn write(volume: &Volume, inode: InodeNumber, data: &[u8]) -> platfs::Result<()> {
    volume.writer(inode, data.len() as u64)?.write_all_at(0, data)
}

#[test]
fn verbs_go_on_while_a_sync_waits_for_the_device() {
    let scratch = Scratch::new("sync-beside");
    let image = scratch.join("disk.img");
    let device = Gated::new(&image, 32 << 20, FsType::Ext4, "");
    let volume = open(&device);
    let first = volume.create(ROOT, b"first", &new_file()).unwrap();
    write(&volume, first, &[1; 100_000]).unwrap();
    device.shut();
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| volume.sync());
        device.until_somebody_waits();
        let second = volume.create(ROOT, b"second", &new_file()).unwrap();
        write(&volume, second, &[2; 100_000]).unwrap();
        volume.unlink(ROOT, b"first").unwrap();
        assert_eq!(volume.lookup(ROOT, b"second").unwrap(), second);
        assert!(!sync.is_finished());
        device.open();
        sync.join().unwrap().unwrap();
    });
    volume.close().unwrap();
    fsck::assert_clean(&image);
}

#[test]
fn syncs_that_wait_for_one_are_done_by_the_next() {
    let scratch = Scratch::new("sync-group");
    let device = Gated::new(&scratch.join("disk.img"), 32 << 20, FsType::Ext4, "");
    let volume = open(&device);
    volume.create(ROOT, b"file", &new_file()).unwrap();
    device.shut();
    let before = device.flushes.load(Ordering::SeqCst);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| volume.sync());
        device.until_somebody_waits();
        let others: Vec<_> = (0..8).map(|_| scope.spawn(|| volume.sync())).collect();
        std::thread::sleep(Duration::from_millis(100));
        device.open();
        first.join().unwrap().unwrap();
        others.into_iter().for_each(|other| other.join().unwrap().unwrap());
    });
    let flushes = device.flushes.load(Ordering::SeqCst) - before;
    assert!(flushes < 9, "{flushes} flushes for nine syncs");
    volume.close().unwrap();
}

/// I18.
#[test]
fn what_a_sync_frees_is_free_once_it_is_durable_and_who_needs_it_waits() {
    let scratch = Scratch::new("sync-frees");
    let image = scratch.join("disk.img");
    let device = Gated::new(&image, 16 << 20, FsType::Ext2, "");
    let volume = open(&device);
    let large = vec![7; 9 << 20];
    let old = volume.create(ROOT, b"old", &new_file()).unwrap();
    write(&volume, old, &large).unwrap();
    volume.sync().unwrap();
    volume.unlink(ROOT, b"old").unwrap();
    let new = volume.create(ROOT, b"new", &new_file()).unwrap();
    device.shut();
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| volume.sync());
        device.until_somebody_waits();
        let writer = scope.spawn(|| write(&volume, new, &large));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!writer.is_finished(), "the space is not free yet");
        device.open();
        sync.join().unwrap().unwrap();
        writer.join().unwrap().unwrap();
    });
    volume.close().unwrap();
    fsck::assert_clean(&image);
}

#[test]
fn many_threads_fill_delete_and_sync_without_losing_space() {
    let scratch = Scratch::new("sync-full");
    let image = scratch.join("disk.img");
    let device = Gated::new(&image, 8 << 20, FsType::Ext4, "^has_journal");
    let volume = open(&device);
    let free = volume.space().free_after_sync().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8_u32 {
            let volume = &volume;
            scope.spawn(move || {
                for round in 0..40_u32 {
                    let name = format!("{thread}-{round}").into_bytes();
                    let Ok(file) = volume.create(ROOT, &name, &new_file()) else { continue };
                    let done = write(volume, file, &vec![1; 700_000]);
                    assert!(matches!(done, Ok(()) | Err(platfs::Error::NoSpace)), "{done:?}");
                    if round % 7 == 0 {
                        volume.sync().unwrap();
                    }
                    volume.unlink(ROOT, &name).unwrap();
                }
            });
        }
    });
    volume.sync().unwrap();
    assert_eq!(volume.space().free_after_sync().unwrap(), free);
    assert_eq!(volume.space().free().unwrap(), free);
    volume.close().unwrap();
    fsck::assert_clean(&image);
}
