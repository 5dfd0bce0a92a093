//! Verbs beside syncs, and readers beside writers.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use platfs::device::{Device, FileDevice};
use platfs::mkfs::{FsType, Options, Plan, parse_features};
use platfs::ondisk::units::{Group, InodeNumber};
use platfs::{Attributes, Error, Kind, NewInode, OpenOptions, Replace, Volume, WriteOptions};
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

/// Path of the kernel's figures of this thread.
fn this_thread() -> PathBuf {
    Path::new("/proc").join(std::fs::read_link("/proc/thread-self").unwrap()).join("stat")
}

/// Waits until a thread waits for something.
fn until_asleep(thread: &Path) {
    let sleeps = || std::fs::read_to_string(thread).unwrap().rsplit_once(')').unwrap().1.starts_with(" S");
    while !sleeps() {
        std::thread::sleep(Duration::from_millis(1));
    }
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
        let (tell, told) = std::sync::mpsc::channel();
        let others: Vec<_> = (0..8)
            .map(|_| {
                let (tell, volume) = (tell.clone(), &volume);
                scope.spawn(move || {
                    tell.send(this_thread()).unwrap();
                    volume.sync()
                })
            })
            .collect();
        for thread in told.iter().take(8) {
            until_asleep(&thread);
        }
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

/// A small random generator (SplitMix64), one per thread.
struct Random(u64);

impl Random {
    fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).unwrap()
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % bound
    }
}

/// Bytes that say whose they are and where they belong.
fn bytes_of(id: u64, offset: u64, len: usize) -> Vec<u8> {
    let words = (offset / 16..).flat_map(|at| [id, at * 16]).flat_map(u64::to_le_bytes);
    words.take(len).collect()
}

/// Whose bytes these are, if they are not all zeros; they must be of one file and in their places.
fn owner_of(bytes: &[u8], offset: u64) -> Option<u64> {
    let mut owner = None;
    for (index, record) in bytes.chunks_exact(16).enumerate() {
        let word = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().unwrap());
        if (word(0), word(8)) == (0, 0) {
            continue;
        }
        assert_eq!(word(8), offset + 16 * index as u64, "bytes of another place");
        assert_eq!(*owner.get_or_insert(word(0)), word(0), "bytes of two files");
    }
    owner
}

const NAMES: u64 = 120;
const BLOCKS_MAX: usize = 40;

fn name_in(random: &mut Random) -> Vec<u8> {
    format!("a-rather-long-name-of-a-file-{}", random.below(NAMES)).into_bytes()
}

fn is_expected(done: Result<(), Error>) {
    assert!(matches!(done, Ok(()) | Err(Error::NotFound | Error::Exists | Error::NoSpace)), "{done:?}");
}

/// One step of a writer; every error but those of names and space fails.
fn change_something(volume: &Volume, dirs: &[InodeNumber], id: u64, random: &mut Random) {
    let dir = dirs[random.index(dirs.len())];
    let (name, other) = (name_in(random), name_in(random));
    match random.below(10) {
        0..=4 => {
            let done = volume.create(dir, &name, &new_file()).and_then(|file| {
                let _pin = volume.pin(file)?;
                if volume.lookup(dir, &name)? != file {
                    // Removed already, and the inode may be another file's.
                    return Ok(());
                }
                for piece in 0..1 + random.below(4) {
                    let (offset, len) = (piece * 10 * 1024, 1024 * (1 + random.index(10)));
                    volume.write_at(file, offset, &bytes_of(id, offset, len), WriteOptions::default())?;
                }
                volume.truncate(file, 1024 * random.index(BLOCKS_MAX) as u64)
            });
            is_expected(done);
        }
        5 | 6 => is_expected(volume.unlink(dir, &name)),
        7 => is_expected(volume.rename(dir, &name, dirs[0], &other, Replace::Yes)),
        8 => is_expected(volume.lookup(dir, &name).and_then(|file| {
            let _pin = volume.pin(file)?;
            // The name may have gone before the pin, and the inode to another file: its size may be any.
            if volume.lookup(dir, &name)? == file { volume.truncate(file, 512) } else { Ok(()) }
        })),
        _ => is_expected(volume.sync()),
    }
}

/// One step of a reader; every error but a missing name fails.
fn look_at_something(volume: &Volume, dirs: &[InodeNumber], random: &mut Random) {
    let dir = dirs[random.index(dirs.len())];
    let kept = format!("kept-name-that-makes-the-directory-long-{}", random.below(NAMES)).into_bytes();
    volume.lookup(dir, &kept).unwrap();
    if random.below(8) == 0 {
        let names: Vec<_> = volume.read_dir(dir).unwrap().map(|entry| entry.unwrap().name).collect();
        assert!(names.iter().all(|name| name.starts_with(b"a-rather-") || name.starts_with(b"kept-")));
    }
    volume.block_bitmap(Group(0)).unwrap();
    let name = name_in(random);
    let file = match volume.lookup(dir, &name) {
        Ok(found) => found,
        Err(error) => return is_expected(Err(error)),
    };
    let Ok(_pin) = volume.pin(file) else { return };
    if volume.lookup(dir, &name).is_ok_and(|still| still == file) {
        let mut buffer = vec![0; BLOCKS_MAX * 1024];
        let mut owner = None;
        for _ in 0..3 {
            let offset = 16 * random.index(BLOCKS_MAX * 64) as u64;
            let len = volume.read_at(file, offset, &mut buffer).unwrap();
            if let Some(found) = owner_of(&buffer[..len], offset) {
                assert_eq!(*owner.get_or_insert(found), found, "bytes of two files");
            }
        }
        volume.inode(file).xattrs().unwrap();
        assert!(volume.map(file).unwrap().all(|segment| segment.is_ok()));
    }
}

/// I20: what readers see is of one moment and of one file, whatever happens meanwhile.
fn stress(fs_type: FsType, features: &str, delay: u64, journaled: bool) {
    const STEPS: u64 = 400;
    let scratch = Scratch::new("readers-beside");
    let image = scratch.join("disk.img");
    let device = Gated::new(&image, 8 << 20, fs_type, features);
    let options = OpenOptions::new().write(true).unordered(!journaled).delay(delay);
    let volume = Volume::open(device.clone(), &options).unwrap();
    let directory = NewInode { kind: Kind::Directory, ..new_file() };
    let dirs = [b"one", b"two"].map(|name| volume.create(ROOT, name, &directory).unwrap());
    for (dir, number) in dirs.iter().flat_map(|dir| (0..NAMES).map(move |number| (*dir, number))) {
        let name = format!("kept-name-that-makes-the-directory-long-{number}").into_bytes();
        volume.create(dir, &name, &new_file()).unwrap();
    }
    let ids = AtomicU64::new(1);
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let (volume, ids, dirs) = (&volume, &ids, &dirs);
            scope.spawn(move || {
                let mut random = Random(thread);
                for _ in 0..STEPS {
                    if thread % 2 == 0 {
                        change_something(volume, dirs, ids.fetch_add(1, Ordering::Relaxed), &mut random);
                    } else {
                        look_at_something(volume, dirs, &mut random);
                    }
                }
            });
        }
    });
    volume.close().unwrap();
    fsck::assert_clean(&image);
}

#[test]
fn readers_beside_writers_of_extents() {
    stress(FsType::Ext4, "", 0, false);
}

#[test]
fn readers_beside_writers_that_are_delayed() {
    stress(FsType::Ext4, "", 1 << 20, false);
}

#[test]
fn readers_beside_writers_of_block_pointers() {
    stress(FsType::Ext2, "dir_index", 256 << 10, false);
}

#[test]
fn readers_beside_writers_with_a_journal() {
    stress(FsType::Ext4, "", 0, true);
    stress(FsType::Ext3, "", 256 << 10, true);
}
