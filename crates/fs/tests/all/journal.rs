//! Writing with a journal: how much it costs, and that nothing of it shows when all is well.

#![cfg(target_os = "linux")]
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use platfs::device::{Device, Event, FileDevice, MemoryDevice, Recorder};
use platfs::mkfs::{FsType, Options, Plan, parse_features};
use platfs::ondisk::journal::{JOURNAL_SUPERBLOCK_LEN, RawJournalSuperblock};
use platfs::ondisk::units::InodeNumber;
use platfs::{
    Allocate, Attributes, DataMode, Kind, MapForm, NewInode, OpenOptions, State, Volume, WriteOptions,
};
use testkit::scratch::Scratch;
use testkit::{fsck, sparse, tool};
use zerocopy::IntoBytes;

fn new(kind: Kind<'static>) -> NewInode<'static> {
    NewInode { kind, attributes: Attributes::default(), xattrs: &[] }
}

fn writing() -> OpenOptions {
    OpenOptions::new().write(true)
}

fn made(device: &dyn Device, fs_type: FsType, features: &str, block_size: u32, journal: u64) {
    let mut options = Options::new(fs_type);
    options.features = parse_features(features).unwrap();
    options.block_size = Some(block_size);
    options.journal.size = Some(journal);
    Plan::new(&options, device.size()).unwrap().write(device).unwrap();
}

fn recorded(megabytes: u64) -> (Arc<Recorder>, Volume) {
    let memory = MemoryDevice::new(megabytes << 20);
    made(&memory, FsType::Ext4, "", 4096, 8 << 20);
    let recorder = Arc::new(Recorder::new(Arc::new(memory)));
    let volume = Volume::open(recorder.clone(), &writing()).unwrap();
    (recorder, volume)
}

#[test]
fn a_thousand_files_and_one_sync_of_a_file_take_three_flushes_at_most() {
    let (recorder, volume) = recorded(64);
    let mut last = InodeNumber::ROOT;
    for number in 0..1000 {
        last =
            volume.create(InodeNumber::ROOT, format!("file {number}").as_bytes(), &new(Kind::File)).unwrap();
    }
    volume.sync_inode(last).unwrap();
    assert!(recorder.flushes() <= 3, "{} flushes", recorder.flushes());
    let before = recorder.flushes();
    volume.sync_inode(last).unwrap();
    assert!(recorder.flushes() <= before + 1, "a sync without changes is one flush");
}

#[test]
fn bytes_over_others_are_stable_with_one_flush() {
    let (recorder, volume) = recorded(64);
    let file = volume.create(InodeNumber::ROOT, b"file", &new(Kind::File)).unwrap();
    let other = volume.create(InodeNumber::ROOT, b"other", &new(Kind::File)).unwrap();
    let write = |inode, at: u64, byte| {
        volume.write_at(inode, at, &[byte; 4096], WriteOptions::default()).unwrap();
    };
    let cost = |sync: &dyn Fn()| {
        drop(recorder.take());
        sync();
        let (flushes, events) = (recorder.flushes(), recorder.take());
        (events.iter().filter(|event| matches!(event, Event::Write { .. })).count(), flushes)
    };
    (0..4).for_each(|block| write(file, block << 12, 1));
    let grown = cost(&|| volume.inode(file).sync_data().unwrap());
    assert!(grown.0 > 1 && grown.1 > 1, "a file that grew needs a commit: {grown:?}");
    write(file, 4096, 2);
    assert_eq!(cost(&|| volume.inode(file).sync_data().unwrap()), (0, 1));
    // What others did does not count, and the times come with the next commit.
    write(other, 0, 3);
    write(file, 8192, 4);
    assert_eq!(cost(&|| volume.inode(file).sync_data().unwrap()), (0, 1));
    write(file, 0, 5);
    let whole = cost(&|| volume.sync_inode(file).unwrap());
    assert!(whole.0 > 1 && whole.1 > 1, "{whole:?}");
    // Blocks that hold their first bytes since the last commit.
    volume.allocate(file, Allocate::Extend, 16384, 8192).unwrap();
    volume.sync().unwrap();
    write(file, 16384, 6);
    let filled = cost(&|| volume.inode(file).sync_data().unwrap());
    assert!(filled.1 > 1, "{filled:?}");
    volume.close().unwrap();
}

/// A device whose flushes take a while, as those of disks do: meanwhile others ask for theirs.
struct Slow(Arc<Recorder>);

impl Device for Slow {
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.0.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.write_at(offset, data)
    }
    fn flush(&self) -> std::io::Result<()> {
        std::thread::sleep(std::time::Duration::from_millis(10));
        self.0.flush()
    }
}

#[test]
fn many_syncs_share_a_commit() {
    let memory = MemoryDevice::new(64 << 20);
    made(&memory, FsType::Ext4, "", 4096, 8 << 20);
    let recorder = Arc::new(Recorder::new(Arc::new(memory)));
    let volume = Volume::open(Arc::new(Slow(recorder.clone())), &writing()).unwrap();
    let syncs = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..32 {
            let (volume, syncs) = (&volume, &syncs);
            scope.spawn(move || {
                for round in 0..10 {
                    let name = format!("{thread}-{round}");
                    let file = volume.create(InodeNumber::ROOT, name.as_bytes(), &new(Kind::File)).unwrap();
                    volume.write_at(file, 0, name.as_bytes(), WriteOptions::default()).unwrap();
                    volume.sync_inode(file).unwrap();
                    syncs.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    // Two flushes for each commit.
    let (syncs, commits) = (syncs.into_inner(), recorder.flushes().div_ceil(2));
    assert!(syncs >= 4 * commits, "{syncs} syncs, {commits} commits");
}

fn on_disk(image: &Path, fs_type: FsType, features: &str, block_size: u32) -> Arc<FileDevice> {
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(image).unwrap();
    file.set_len(48 << 20).unwrap();
    let device = Arc::new(FileDevice::new(file).unwrap().without_flush());
    made(&*device, fs_type, features, block_size, u64::from(block_size) * 1024);
    device
}

/// Names, data, directories that come and go: many times what the log holds, from eight threads.
fn churn(volume: &Volume, rounds: u32) {
    std::thread::scope(|scope| {
        for thread in 0..8_u32 {
            scope.spawn(move || {
                let directory = new(Kind::Directory);
                for round in 0..rounds {
                    let name = format!("d{thread}-{}", round % 3);
                    let inside = volume.create(InodeNumber::ROOT, name.as_bytes(), &directory).unwrap();
                    for file in 0..40 {
                        let name = format!("file with a long name, number {file}");
                        let number = volume.create(inside, name.as_bytes(), &new(Kind::File)).unwrap();
                        let bytes = vec![thread.to_le_bytes()[0]; 700 * file];
                        volume.write_at(number, 0, &bytes, WriteOptions::default()).unwrap();
                        if file % 16 == 7 {
                            volume.sync_inode(number).unwrap();
                        }
                    }
                    for file in 0..40 {
                        let name = format!("file with a long name, number {file}");
                        volume.unlink(inside, name.as_bytes()).unwrap();
                    }
                    volume.rmdir(InodeNumber::ROOT, name.as_bytes()).unwrap();
                }
            });
        }
    });
}

#[test]
fn far_more_than_the_log_holds_goes_through_it() {
    let test = "far_more_than_the_log_holds_goes_through_it";
    if !tool::have_tools(test, &["e2fsck"]) {
        return;
    }
    for (fs_type, features, block_size, delay) in [
        (FsType::Ext3, "", 1024, 0),
        (FsType::Ext4, "", 1024, 4 << 20),
        (FsType::Ext4, "64bit,inline_data", 4096, 4 << 20),
    ] {
        let scratch = Scratch::new("journal-churn");
        let image = scratch.join("disk.img");
        let device = on_disk(&image, fs_type, features, block_size);
        let volume = Volume::open(device.clone(), &writing().delay(delay)).unwrap();
        churn(&volume, 12);
        volume.sync().unwrap();
        // As a crash here leaves it.
        let crashed = scratch.join("crashed.img");
        sparse::copy(&image, &crashed).unwrap();
        let said = tool::command("e2fsck").args(["-fy"]).arg(&crashed).output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains("recovering journal") && !said.contains("? yes"), "{said}");
        volume.close().unwrap();
        fsck::assert_clean(&image);
    }
}

/// The writes that were recorded, and how many flushes came before each.
fn writes(recorder: &Recorder) -> Vec<(u64, Arc<[u8]>, usize)> {
    let mut flushes = 0;
    let mut writes = Vec::new();
    for event in recorder.take() {
        match event {
            Event::Write { offset, data } => writes.push((offset, data, flushes)),
            Event::Flush => flushes += 1,
            Event::Mark(_) => {}
        }
    }
    writes
}

/// A commit block of which only the first sector comes to the device is whole: behind it are zeros, not what the log held
/// there before. e2fsck and Linux call a log corrupt whose last commit block has another checksum.
#[test]
fn where_a_commit_block_comes_are_zeros() {
    let memory = Arc::new(MemoryDevice::new(16 << 20));
    made(&*memory, FsType::Ext4, "", 1024, 1 << 20);
    let mut contents = vec![0; 16 << 20];
    memory.read_at(0, &mut contents).unwrap();
    let recorder = Arc::new(Recorder::new(memory));
    let volume = Volume::open(recorder.clone(), &writing()).unwrap();
    let mut commits = 0;
    for number in 0..200 {
        volume.create(InodeNumber::ROOT, format!("file {number}").as_bytes(), &new(Kind::File)).unwrap();
        volume.sync().unwrap();
        for (offset, data, _) in writes(&recorder) {
            let place = usize::try_from(offset).unwrap()..usize::try_from(offset).unwrap() + data.len();
            if data.len() == 1024 && data[..8] == [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 2] {
                assert!(contents[place.clone()].iter().all(|byte| *byte == 0), "commit {commits}");
                commits += 1;
            }
            contents[place].copy_from_slice(&data);
        }
    }
    assert_eq!(commits, 200, "the log of 1,024 blocks is used several times");
    volume.close().unwrap();
}

/// Pointers can't say that blocks read as zeros. The zeros that are written for that come behind the commit by which
/// those blocks read as zeros: before it a crash would show zeros beside bytes that are older.
#[test]
fn zeros_for_block_pointers_wait_for_the_commit() {
    let memory = MemoryDevice::new(64 << 20);
    made(&memory, FsType::Ext4, "", 4096, 8 << 20);
    let recorder = Arc::new(Recorder::new(Arc::new(memory)));
    let volume = Volume::open(recorder.clone(), &writing().data(DataMode::Journal)).unwrap();
    let file = volume.create(InodeNumber::ROOT, b"file", &new(Kind::File)).unwrap();
    volume.write_at(file, 0, &[7; 8 * 4096], WriteOptions::default()).unwrap();
    volume.sync().unwrap();
    let first = volume.map(file).unwrap().next().unwrap().unwrap();
    let State::Mapped(start) = first.state else { panic!("{first:?}") };
    drop(writes(&recorder));
    volume.allocate(file, Allocate::ZeroRangeKeepSize, 4096, 2 * 4096).unwrap();
    volume.inode(file).convert_map(MapForm::Pointers).unwrap();
    let place = (start.0 + 1) * 4096;
    let zeroed = writes(&recorder).into_iter().find(|(offset, ..)| *offset == place).unwrap();
    assert!(zeroed.1.iter().all(|byte| *byte == 0) && zeroed.2 >= 2, "{} flushes before it", zeroed.2);
    volume.close().unwrap();
}

/// The journal's superblock.
fn log_of(volume: &Volume) -> RawJournalSuperblock {
    let mut bytes = [0; JOURNAL_SUPERBLOCK_LEN];
    volume.open_file(InodeNumber::new(8).unwrap()).unwrap().read_at(0, &mut bytes).unwrap();
    RawJournalSuperblock::parse(&bytes).unwrap()
}

/// The log of the next opening goes on behind that of the last, whose transactions tell of removed files. A place outside
/// the log is none.
#[test]
fn an_empty_log_goes_on_behind_its_last_transactions() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    made(&*device, FsType::Ext4, "", 4096, 8 << 20);
    let opened = || Volume::open(device.clone() as Arc<dyn Device>, &writing()).unwrap();
    let mut last = 0;
    for name in [&b"one"[..], b"two", b"three"] {
        let volume = opened();
        volume.create(InodeNumber::ROOT, name, &new(Kind::File)).unwrap();
        volume.sync().unwrap();
        let log = log_of(&volume);
        assert_eq!(log.s_start.get(), if last == 0 { log.s_first.get() } else { last });
        volume.close().unwrap();
        let log = log_of(&opened());
        last = log.s_head.get();
        assert!(log.is_clean() && last > log.s_first.get(), "{last}");
    }
    let volume = opened();
    let mut log = log_of(&volume);
    log.s_head.set(log.log_end());
    log.seal();
    let segment = volume.open_file(InodeNumber::new(8).unwrap()).unwrap().segments().next().unwrap().unwrap();
    let State::Mapped(start) = segment.state else { panic!("{segment:?}") };
    drop(volume);
    device.write_at(start.0 * 4096, log.as_bytes()).unwrap();
    let volume = opened();
    volume.create(InodeNumber::ROOT, b"four", &new(Kind::File)).unwrap();
    volume.sync().unwrap();
    assert_eq!(log_of(&volume).s_start.get(), log.s_first.get());
}
