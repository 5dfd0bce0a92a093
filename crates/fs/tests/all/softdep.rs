//! Soft updates: how many flushes they take, what is stable when, room on a full volume. What crashes leave is
//! gone through in `research/crash`.

#![cfg(target_os = "linux")]
use std::collections::BTreeSet;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use platfs::check::{self, Decision, Issue, Sink, check};
use platfs::device::{Device, Event, FileDevice, MemoryDevice, Recorder};
use platfs::mkfs::{FsType, Options, Plan, parse_features};
use platfs::{
    Allocate, Attributes, InodeNumber, Kind as NewKind, NewInode, OpenOptions, Replace, Volume, WriteOptions,
    WriteOrder,
};
use testkit::scratch::Scratch;

fn options() -> OpenOptions {
    OpenOptions::new().write(true).ordering(WriteOrder::Softdep)
}

/// A volume of 4 MiB without a journal.
fn made() -> MemoryDevice {
    let device = MemoryDevice::new(4 << 20);
    let mut options = Options::new(FsType::Ext4);
    options.features = parse_features("^has_journal").unwrap();
    options.block_size = Some(1024);
    options.inodes = Some(128);
    Plan::new(&options, device.size()).unwrap().write(&device).unwrap();
    device
}

fn copy(device: &MemoryDevice) -> MemoryDevice {
    let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
    device.read_at(0, &mut bytes).unwrap();
    MemoryDevice::from_bytes(&bytes)
}

#[derive(Default)]
struct Issues(Vec<Issue>);

impl Sink for Issues {
    fn issue(&mut self, issue: Issue) -> Decision {
        self.0.push(issue);
        Decision::Leave
    }
}

fn assert_clean(device: Arc<dyn Device>) {
    let mut issues = Issues::default();
    check(device, &check::Options::default(), &mut issues).unwrap();
    assert!(issues.0.is_empty(), "{:?}", issues.0);
}

/// Many files come to be, as from an archive: an epoch takes at most eight flushes, however many.
#[test]
fn an_epoch_of_many_files_takes_few_flushes() {
    let device = MemoryDevice::new(64 << 20);
    let mut how = Options::new(FsType::Ext4);
    how.features = parse_features("^has_journal").unwrap();
    how.inodes = Some(12_000);
    Plan::new(&how, device.size()).unwrap().write(&device).unwrap();
    let recorder = Arc::new(Recorder::new(Arc::new(device)));
    let write = OpenOptions::new().write(true).ordering(WriteOrder::Softdep);
    let volume = Volume::open(recorder.clone(), &write).unwrap();
    let make = |directory, name: &str, kind| {
        let new = NewInode { kind, attributes: Attributes::default(), xattrs: &[] };
        volume.create(directory, name.as_bytes(), &new).unwrap()
    };
    for directory in 0..100 {
        let directory = make(InodeNumber::ROOT, &format!("d{directory}"), NewKind::Directory);
        for file in 0..100 {
            let file = make(directory, &format!("f{file}"), NewKind::File);
            volume.write_at(file, 0, &[7; 700], WriteOptions::default()).unwrap();
        }
    }
    volume.sync().unwrap();
    let events = recorder.take();
    let superblocks =
        events.iter().filter(|event| matches!(event, Event::Write { offset: 1024, .. })).count();
    let flushes = events.iter().filter(|event| **event == Event::Flush).count();
    // One of each is the mark of a volume in use; an epoch writes the superblock first and last.
    let epochs = (superblocks - 1) / 2;
    println!("{flushes} flushes, {epochs} epochs");
    assert!(epochs >= 1 && flushes - 1 <= 8 * epochs, "{flushes} flushes of {epochs} epochs");
    assert!(epochs <= 3, "{epochs} epochs for what fits memory");
}

/// Files removed from a full volume make room at once, though their space is free only when its epoch is stable.
#[test]
fn a_full_volume_has_room_for_what_was_removed() {
    let base = made();
    let volume = Volume::open(Arc::new(base), &options()).unwrap();
    let new = NewInode { kind: NewKind::File, attributes: Attributes::default(), xattrs: &[] };
    let name = |number: u64| format!("f{number}").into_bytes();
    let write = |number: u64| {
        let file = volume.create(InodeNumber::ROOT, &name(number), &new)?;
        volume.write_at(file, 0, &[7; 40 << 10], WriteOptions::default())
    };
    let filled = (0..).find(|number| write(*number).is_err()).unwrap();
    assert!(filled > 50, "{filled} files");
    let _ = volume.unlink(InodeNumber::ROOT, &name(filled));
    for number in 0..200 {
        volume.unlink(InodeNumber::ROOT, &name(number)).unwrap();
        write(filled + number).unwrap_or_else(|error| panic!("file {number}: {error}"));
    }
    volume.close().unwrap();
}

/// Many threads remove files of a volume that is nearly full, and somebody writes at the same time: nobody is told
/// that it is full, and what waits in memory stays bounded. The most memory that the process had, in MiB, after the
/// files were made and after they were removed.
fn remove_by_threads(files: u64, directories: u64, threads: u64, ordering: WriteOrder) -> (u64, u64) {
    let scratch = Scratch::new("softdep");
    let image =
        File::options().read(true).write(true).create_new(true).open(scratch.join("disk.img")).unwrap();
    image.set_len((files * 1200).next_multiple_of(1 << 20) + (24 << 20)).unwrap();
    let device = Arc::new(FileDevice::new(image).unwrap());
    let mut how = Options::new(FsType::Ext4);
    how.inodes = Some(files + directories + 1000);
    how.block_size = Some(1024);
    Plan::new(&how, device.size()).unwrap().write(&*device).unwrap();
    let volume = Volume::open(device.clone(), &OpenOptions::new().write(true).ordering(ordering)).unwrap();
    let new = |kind| NewInode { kind, attributes: Attributes::default(), xattrs: &[] };
    let make = |number: u64| {
        let name = format!("d{number}");
        let directory = volume.create(InodeNumber::ROOT, name.as_bytes(), &new(NewKind::Directory)).unwrap();
        for file in 0..files / directories {
            volume.create(directory, format!("f{file}").as_bytes(), &new(NewKind::File)).unwrap();
        }
        directory
    };
    let begun = std::time::Instant::now();
    let all: Vec<_> = (0..directories).map(make).collect();
    volume.sync().unwrap();
    println!("{ordering:?}: {files} files made in {:.1} s", begun.elapsed().as_secs_f64());
    // All but a little is taken.
    let filler = volume.create(InodeNumber::ROOT, b"filler", &new(NewKind::File)).unwrap();
    let (free, _) = volume.space().free().unwrap();
    volume.allocate(filler, Allocate::Extend, 0, (free - 300) << 10).unwrap();
    volume.sync().unwrap();
    let (made, begun) = (most_memory(), std::time::Instant::now());
    let left = AtomicU64::new(threads);
    thread::scope(|scope| {
        for thread in 0..threads {
            let (volume, all, left) = (&volume, &all, &left);
            scope.spawn(move || {
                for (number, directory) in
                    (0..directories).zip(all).filter(|(number, _)| number % threads == thread)
                {
                    for file in 0..files / directories {
                        volume.unlink(*directory, format!("f{file}").as_bytes()).unwrap();
                    }
                    volume.rmdir(InodeNumber::ROOT, format!("d{number}").as_bytes()).unwrap();
                }
                left.fetch_sub(1, Relaxed);
            });
        }
        while left.load(Relaxed) > 0 {
            // Each takes most of what is left, over and over.
            let file = volume.create(InodeNumber::ROOT, b"writer", &new(NewKind::File)).unwrap();
            volume.write_at(file, 0, &[7; 150 << 10], WriteOptions::default()).unwrap();
            volume.unlink(InodeNumber::ROOT, b"writer").unwrap();
        }
    });
    volume.close().unwrap();
    println!("{ordering:?}: removed in {:.1} s", begun.elapsed().as_secs_f64());
    assert_clean(device);
    (made, most_memory())
}

/// Most memory that this process had, in MiB.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

#[test]
fn many_threads_remove_from_a_full_volume() {
    remove_by_threads(8000, 40, 8, WriteOrder::Softdep);
}

/// `cargo test --release -p platfs --test all softdep::removal_of_a_million -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes"]
fn removal_of_a_million_files() {
    let files = std::env::var("PLATFS_FILES").ok().and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    let (made, removed) = remove_by_threads(files, files / 200, 8, WriteOrder::Softdep);
    println!("at most {made} MiB when they were made, {removed} MiB when they were removed");
    remove_by_threads(files, files / 200, 8, WriteOrder::Journal);
}

/// A sync flushes what there is, and no more often than that.
#[test]
fn a_sync_of_little_takes_few_flushes() {
    let recorder = Arc::new(Recorder::new(Arc::new(made())));
    let volume = Volume::open(recorder.clone(), &options()).unwrap();
    let new = NewInode { kind: NewKind::File, attributes: Attributes::default(), xattrs: &[] };
    let file = volume.create(InodeNumber::ROOT, b"file", &new).unwrap();
    let flushes = |work: &dyn Fn()| {
        drop(recorder.take());
        work();
        volume.sync_inode(file).unwrap();
        recorder.flushes()
    };
    let write = || volume.write_at(file, 0, &[7; 3000], WriteOptions::default()).unwrap();
    assert_eq!(flushes(&write), 4, "bits, record, name, times of the directory and sums");
    assert_eq!(flushes(&write), 1, "bytes");
    assert_eq!(flushes(&|| ()), 1);
    assert_eq!(flushes(&|| volume.truncate(file, 0).unwrap()), 3, "bytes before, record, bits");
}

/// With `Normal` a change is stable when its verb returns, with `Sync` bytes are too: what the device has then is
/// enough, whatever comes.
#[test]
fn each_change_is_stable_when_it_returns() {
    for ordering in [WriteOrder::Normal, WriteOrder::Sync] {
        let device = Arc::new(made());
        let write = options().delay(1 << 20).ordering(ordering);
        let volume = Volume::open(device.clone(), &write).unwrap();
        let names_there = || {
            let again = Volume::open(Arc::new(copy(&device)), &write).unwrap();
            let names = again.read_dir(InodeNumber::ROOT).unwrap().map(|entry| entry.unwrap().name);
            names.filter(|name| name != b"lost+found").collect::<BTreeSet<_>>()
        };
        let new = NewInode { kind: NewKind::File, attributes: Attributes::default(), xattrs: &[] };
        let names =
            |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect::<BTreeSet<_>>();
        let one = volume.create(InodeNumber::ROOT, b"one", &new).unwrap();
        assert_eq!(names_there(), names(&["one"]));
        volume.link(one, InodeNumber::ROOT, b"two").unwrap();
        assert_eq!(names_there(), names(&["one", "two"]));
        volume.rename(InodeNumber::ROOT, b"one", InodeNumber::ROOT, b"three", Replace::Yes).unwrap();
        assert_eq!(names_there(), names(&["three", "two"]));
        volume.unlink(InodeNumber::ROOT, b"two").unwrap();
        assert_eq!(names_there(), names(&["three"]));
        volume.write_at(one, 0, b"bytes", WriteOptions::default()).unwrap();
        let again = Volume::open(Arc::new(copy(&device)), &write).unwrap();
        let mut bytes = [0; 5];
        let count = again.read_at(one, 0, &mut bytes).unwrap();
        assert_eq!(&bytes[..count], if ordering == WriteOrder::Sync { &b"bytes"[..] } else { b"" });
    }
}

/// Files without a name that another way of writing left on its list are gone before the first change.
#[test]
fn orphans_of_a_journal_are_reclaimed() {
    let device = Arc::new(MemoryDevice::new(8 << 20));
    Plan::new(&Options::new(FsType::Ext4), device.size()).unwrap().write(&*device).unwrap();
    let journaled = Volume::open(device.clone(), &OpenOptions::new().write(true)).unwrap();
    let new = NewInode { kind: NewKind::File, attributes: Attributes::default(), xattrs: &[] };
    let (number, pin) = journaled.create_unnamed(InodeNumber::ROOT, &new).unwrap();
    journaled.write_at(number, 0, &[1; 5000], WriteOptions::default()).unwrap();
    journaled.commit().unwrap();
    std::mem::forget(pin);
    drop(journaled);
    let write = OpenOptions::new().write(true).ordering(WriteOrder::Softdep);
    let volume = Volume::open(device.clone(), &write).unwrap();
    assert_eq!(volume.superblock().s_last_orphan.get(), 0);
    volume.create(InodeNumber::ROOT, b"file", &new).unwrap();
    volume.close().unwrap();
    assert_clean(device);
}
