//! Devices that fail: the failure is reported, nothing is written afterwards, and what was promised is there when the
//! device works again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use platfs::check::{self, Decision, Issue, Sink, check};
use platfs::device::{Device, MemoryDevice};
use platfs::mkfs::{FsType, Options, Plan};
use platfs::ondisk::units::{Group, InodeNumber};
use platfs::{Attributes, DataMode, Error, Kind, NewInode, OpenOptions, Volume, WriteOptions};

/// Failure of the device at its last good write or flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// One write or flush fails.
    Once,
    /// It takes nothing any more.
    Worn,
    /// It is gone: it can't be read either.
    Gone,
    /// One read comes short; these are counted instead.
    Short,
}

/// Takes a number of writes and flushes.
struct Failing {
    memory: MemoryDevice,
    left: AtomicU64,
    fault: Fault,
    failed: AtomicBool,
    /// Writes that were taken or refused after the first failure.
    later: AtomicU64,
}

impl Failing {
    fn new(memory: MemoryDevice, left: u64, fault: Fault) -> Self {
        let left = AtomicU64::new(left);
        Failing { memory, left, fault, failed: AtomicBool::new(false), later: AtomicU64::new(0) }
    }

    fn ask(&self, is_write: bool) -> io::Result<()> {
        if self.fault == Fault::Short {
            return Ok(());
        }
        if self.failed.load(Ordering::SeqCst) {
            self.later.fetch_add(u64::from(is_write), Ordering::SeqCst);
            return if self.fault == Fault::Once {
                Ok(())
            } else {
                Err(io::Error::other("the device is gone"))
            };
        }
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Ok(());
        }
        self.failed.store(true, Ordering::SeqCst);
        Err(io::Error::from_raw_os_error(5))
    }
}

impl Device for Failing {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if self.fault == Fault::Gone && self.failed.load(Ordering::SeqCst) {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        let count = |left: u64| left.checked_sub(1);
        if self.fault == Fault::Short
            && self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count).is_err()
            && !self.failed.swap(true, Ordering::SeqCst)
        {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        self.memory.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.ask(true)?;
        self.memory.write_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.ask(false)
    }
}

fn new() -> NewInode<'static> {
    NewInode { kind: Kind::File, attributes: Attributes::default(), xattrs: &[] }
}

#[test]
fn whichever_write_fails_it_is_reported_and_the_last() {
    for writes in 0.. {
        let bytes = 8 << 20;
        let memory = MemoryDevice::new(bytes);
        Plan::new(&Options::new(FsType::Ext4), bytes).unwrap().write(&memory).unwrap();
        let device = Arc::new(Failing::new(memory, writes, Fault::Worn));
        let volume = Volume::open(device.clone(), &OpenOptions::new().write(true).unordered(true)).unwrap();
        let done = volume.create(InodeNumber::ROOT, b"file", &new()).and_then(|_| volume.sync());
        if done.is_ok() {
            assert!(
                writes > 4,
                "the mark; a sync writes bitmaps, descriptors, tables, the directory and the superblock"
            );
            return;
        }
        assert_eq!(device.later.load(Ordering::SeqCst), 0, "the first refusal ends it");
        let next = volume.create(InodeNumber::ROOT, b"other", &new());
        assert!(matches!(next, Err(Error::WriteFailed)), "{next:?}");
        assert!(matches!(volume.sync(), Err(Error::WriteFailed)));
        assert_eq!(device.later.load(Ordering::SeqCst), 0, "nothing more is tried");
    }
}

fn made(bytes: u64, fs_type: FsType) -> MemoryDevice {
    let memory = MemoryDevice::new(bytes);
    let mut options = Options::new(fs_type);
    options.block_size = Some(1024);
    options.journal.size = Some(1 << 20);
    options.inodes = Some(64);
    Plan::new(&options, bytes).unwrap().write(&memory).unwrap();
    // Bytes of other files, which no reader must see.
    let memory = Arc::new(memory);
    let volume = Volume::open(memory.clone(), &OpenOptions::new()).unwrap();
    let geometry = &volume.format().geometry;
    for group in 0..geometry.groups {
        let bitmap = volume.block_bitmap(Group(group)).unwrap();
        let first = u64::from(geometry.first_data_block) + u64::from(group) * 8192;
        for bit in (0..8192_u64).filter(|bit| bitmap[usize::try_from(bit / 8).unwrap()] >> (bit % 8) & 1 == 0)
        {
            memory.write_at((first + bit) * 1024, &[0xEE; 1024]).unwrap();
        }
    }
    drop(volume);
    Arc::into_inner(memory).unwrap()
}

/// Contents of a file, by its name.
fn contents(name: &str) -> Vec<u8> {
    name.bytes().cycle().take(500 + 701 * usize::from(name.as_bytes()[1] % 16)).collect()
}

/// Makes, syncs and removes files, whatever fails; the names that were promised.
fn work(volume: &Volume) -> Vec<String> {
    let mut promised: Vec<String> = Vec::new();
    for round in 0..12_u8 {
        let name = format!("f{}{round}", char::from(b'a' + round));
        let Ok(number) = volume.create(InodeNumber::ROOT, name.as_bytes(), &new()) else { continue };
        if volume.write_at(number, 0, &contents(&name), WriteOptions::default()).is_err() {
            continue;
        }
        match round % 4 {
            0 | 1 => {
                if volume.sync_inode(number).is_ok() {
                    promised.push(name);
                }
            }
            2 => {
                let _ = volume.unlink(InodeNumber::ROOT, name.as_bytes());
            }
            _ => {
                let _ = volume.truncate(number, 100);
            }
        }
    }
    promised
}

/// The first thing that a check complains of, but for the mark of errors.
struct Complaint(Option<String>);

impl Sink for Complaint {
    fn issue(&mut self, issue: Issue) -> Decision {
        self.0.get_or_insert_with(|| format!("{issue:?}"));
        Decision::Leave
    }
}

fn options(data: DataMode, delay: u64) -> OpenOptions {
    OpenOptions::new().write(true).data(data).delay(delay)
}

/// Lets the request behind the `left`-th fail; whether one did.
fn fails(left: u64, fault: Fault, (data, delay): (DataMode, u64)) -> bool {
    let told = format!("{fault:?} behind {left}, {data:?}, {delay}");
    let device = Arc::new(Failing::new(made(8 << 20, FsType::Ext4), left, fault));
    let volume = match Volume::open(device.clone(), &options(data, delay)) {
        Err(Error::Io { .. }) if fault == Fault::Short => return true,
        opened => opened.unwrap(),
    };
    let promised = work(&volume);
    let closed = volume.sync();
    if fault == Fault::Short && !matches!(volume.sync(), Err(Error::WriteFailed)) {
        // Nothing but what was asked for then is the worse for it.
        volume.sync().unwrap();
    }
    let failed = device.failed.load(Ordering::SeqCst);
    if failed && matches!(volume.sync(), Err(Error::WriteFailed)) {
        let before = device.later.load(Ordering::SeqCst);
        assert!(volume.create(InodeNumber::ROOT, b"later", &new()).is_err(), "{told}");
        assert!(volume.put_in_order().is_err(), "{told}");
        assert_eq!(device.later.load(Ordering::SeqCst), before, "{told}: written after the end");
    } else if !failed {
        closed.unwrap();
    }
    drop(volume);
    let memory = &device.memory;
    let mut bytes = vec![0; 8 << 20];
    memory.read_at(0, &mut bytes).unwrap();
    let memory = Arc::new(MemoryDevice::from_bytes(&bytes));
    recovered(&memory, &promised, &told);
    failed
}

/// The device works again: what was promised is there, and no file shows what is not its own.
fn recovered(memory: &Arc<MemoryDevice>, promised: &[String], told: &str) {
    let volume = Volume::open(memory.clone(), &options(DataMode::Ordered, 0).force(true)).unwrap();
    for name in promised {
        let number = volume.lookup(InodeNumber::ROOT, name.as_bytes());
        let number = number.unwrap_or_else(|error| panic!("{told}: {name}: {error}"));
        let mut bytes = vec![0; contents(name).len()];
        volume.read_at(number, 0, &mut bytes).unwrap();
        assert!(bytes == contents(name), "{told}: {name}");
    }
    for entry in volume.read_dir(InodeNumber::ROOT).unwrap() {
        let entry = entry.unwrap();
        let Ok(facts) = volume.metadata(entry.inode) else { panic!("{told}: an entry without an inode") };
        if facts.file_type != platfs::ondisk::inode::FileType::Regular {
            continue;
        }
        let name = String::from_utf8(entry.name.to_vec()).unwrap();
        let mut bytes = vec![0; usize::try_from(facts.size).unwrap()];
        volume.read_at(entry.inode, 0, &mut bytes).unwrap();
        let own = bytes.iter().zip(contents(&name)).all(|(found, own)| *found == own || *found == 0);
        assert!(own, "{told}: {name} shows what is not its own");
    }
    volume.close().unwrap();
    let mut complaint = Complaint(None);
    check(memory.clone(), &check::Options::default(), &mut complaint).unwrap();
    let said = complaint.0.filter(|said| !said.contains("error"));
    assert_eq!(said, None, "{told}");
}

#[test]
fn whichever_request_fails_what_was_promised_is_there_again() {
    for mode in [(DataMode::Ordered, 0), (DataMode::Ordered, 1 << 20), (DataMode::Journal, 0)] {
        let mut count = 0;
        for fault in [Fault::Once, Fault::Worn, Fault::Gone, Fault::Short] {
            let ends = (0..).find(|left| !fails(*left, fault, mode)).unwrap();
            count += ends;
        }
        println!("{mode:?}: {count} failures");
        assert!(count > 60, "{mode:?}: {count}");
    }
}

#[test]
fn a_failure_of_metadata_stands_in_the_journal() {
    let mut recorded = 0;
    for left in 0..40 {
        let device = Arc::new(Failing::new(made(8 << 20, FsType::Ext3), left, Fault::Once));
        let volume = Volume::open(device.clone(), &options(DataMode::Ordered, 0)).unwrap();
        work(&volume);
        let ended = matches!(volume.sync(), Err(Error::WriteFailed));
        drop(volume);
        if !ended || left < 3 {
            continue;
        }
        let recovery = platfs::journal::replay(&(device as Arc<dyn Device>)).unwrap();
        assert_eq!(recovery.recorded_error, Some(5), "behind {left}");
        recorded += 1;
    }
    assert!(recorded > 10, "{recorded}");
}

#[test]
fn each_open_file_hears_once_of_bytes_that_were_lost() {
    let device = Arc::new(Failing::new(made(8 << 20, FsType::Ext4), u64::MAX, Fault::Once));
    let volume = Volume::open(device.clone(), &options(DataMode::Ordered, 1 << 20)).unwrap();
    let number = volume.create(InodeNumber::ROOT, b"file", &new()).unwrap();
    let (mut one, mut other) = (volume.inode(number).error_cursor(), volume.inode(number).error_cursor());
    volume.sync().unwrap();
    volume.write_at(number, 0, &[7; 5000], WriteOptions::default()).unwrap();
    device.left.store(0, Ordering::SeqCst);
    // With the number of the error, which a program is to get.
    let failed = volume.write_back(None);
    assert!(
        matches!(&failed, Err(Error::Io { source, .. }) if source.raw_os_error() == Some(5)),
        "{failed:?}"
    );
    let mut later = volume.inode(number).error_cursor();
    for heard in [&mut one, &mut other] {
        assert!(matches!(volume.inode(number).sync_opened(heard), Err(Error::Io { .. })));
        volume.inode(number).sync_opened(heard).unwrap();
    }
    // It was opened when nobody had heard.
    assert!(volume.inode(number).sync_opened(&mut later).is_err());
    let mut last = volume.inode(number).error_cursor();
    volume.inode(number).sync_opened(&mut last).unwrap();
    volume.sync_inode(number).unwrap();
    let mut bytes = [1; 5000];
    volume.read_at(number, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 5000], "they are lost, and what others left does not show");
    volume.close().unwrap();
}

/// A file without a name that could not be removed, as its map could not be read, is removed by the next change that can.
#[test]
fn an_orphan_whose_end_fails_ends_later() {
    let device = Arc::new(Failing::new(made(8 << 20, FsType::Ext4), u64::MAX, Fault::Gone));
    let open = || Volume::open(device.clone(), &options(DataMode::Ordered, 0)).unwrap();
    let volume = open();
    let number = volume.create(InodeNumber::ROOT, b"file", &new()).unwrap();
    for at in 0..100 {
        volume.write_at(number, at * 16384, &[7; 4096], WriteOptions::default()).unwrap();
    }
    volume.close().unwrap();
    let volume = open();
    volume.uses().retain(number).unwrap();
    volume.unlink(InodeNumber::ROOT, b"file").unwrap();
    assert!(volume.uses().release(number, 1));
    device.failed.store(true, Ordering::SeqCst);
    assert!(matches!(volume.uses().clear_away(), Err(Error::Io { .. })));
    device.failed.store(false, Ordering::SeqCst);
    volume.uses().clear_away().unwrap();
    volume.close().unwrap();
    let mut complaint = Complaint(None);
    check(device, &check::Options::default(), &mut complaint).unwrap();
    assert_eq!(complaint.0, None);
}
