//! Soft updates: crashes of volumes that are written in phases. Every state that the device may be left in, of
//! recorded random runs, shows no damage before recovery; and after it, by opening the volume again or by
//! e2fsck, holds all that was promised.
//!
//! `PLATFS_SEED=n cargo test -p platfs --test softdep KIND` repeats the run of a failure.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "softdep/deep.rs"]
mod deep;
#[path = "softdep/faults.rs"]
mod faults;
#[path = "softdep/oracle.rs"]
mod oracle;
#[path = "crash/states.rs"]
#[allow(dead_code, reason = "shared with the tests of the journal")]
mod states;
#[path = "crash/workload.rs"]
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use deep::{Deep, Places};
use oracle::Promises;
use platfs::device::{Device, Event, FileDevice, MemoryDevice, Recorder};
use platfs::mkfs::{FsType, Options, Plan, parse_features};
use platfs::ondisk::units::BlockSize;
use platfs::{
    Allocate, Attributes, InodeNumber, Kind as NewKind, NewInode, OpenOptions, Ordering, Replace, Volume,
    WriteOptions,
};
use states::States;
use testkit::scratch::Scratch;
use testkit::tool;
use workload::{Model, Workload};

/// A kind of volume.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    fs_type: FsType,
    features: &'static str,
    block_size: u32,
    megabytes: u64,
    /// Bytes that may wait in memory.
    delay: u64,
    inodes: u64,
    /// Fewer than usual, for many groups.
    blocks_per_group: Option<u32>,
}

const KINDS: &[Kind] = &[
    Kind {
        name: "ext2_1k",
        fs_type: FsType::Ext2,
        features: "",
        block_size: 1024,
        megabytes: 4,
        delay: 0,
        inodes: 128,
        blocks_per_group: None,
    },
    Kind {
        name: "ext4_1k",
        fs_type: FsType::Ext4,
        features: "^has_journal",
        block_size: 1024,
        megabytes: 4,
        delay: 0,
        inodes: 128,
        blocks_per_group: None,
    },
    Kind {
        name: "ext4_4k",
        fs_type: FsType::Ext4,
        features: "^has_journal,^metadata_csum,uninit_bg",
        block_size: 4096,
        megabytes: 8,
        delay: 64 << 10,
        inodes: 128,
        blocks_per_group: None,
    },
    Kind {
        name: "bigalloc",
        fs_type: FsType::Ext4,
        features: "^has_journal,bigalloc",
        block_size: 1024,
        megabytes: 8,
        delay: 0,
        inodes: 128,
        blocks_per_group: None,
    },
    Kind {
        name: "ext2_deep",
        fs_type: FsType::Ext2,
        features: "dir_index",
        block_size: 1024,
        megabytes: 8,
        delay: 0,
        inodes: 512,
        blocks_per_group: None,
    },
    Kind {
        name: "ext4_deep",
        fs_type: FsType::Ext4,
        features: "^has_journal",
        block_size: 1024,
        megabytes: 8,
        delay: 64 << 10,
        inodes: 512,
        blocks_per_group: Some(1024),
    },
    Kind {
        name: "bigalloc_deep",
        fs_type: FsType::Ext4,
        features: "^has_journal,bigalloc",
        block_size: 1024,
        megabytes: 64,
        delay: 0,
        inodes: 512,
        blocks_per_group: None,
    },
];

/// What was recorded of a run.
struct Run {
    base: MemoryDevice,
    events: Vec<Event>,
    history: Vec<Model>,
    /// The attribute of each file, call by call; nothing where no call sets any.
    values: Vec<BTreeMap<u32, u8>>,
    inodes: BTreeMap<u32, InodeNumber>,
    /// Which inode each directory is, call by call; nothing where none is moved.
    directories: Vec<Places>,
}

fn copy(device: &MemoryDevice) -> MemoryDevice {
    let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
    device.read_at(0, &mut bytes).unwrap();
    MemoryDevice::from_bytes(&bytes)
}

fn options(kind: &Kind) -> OpenOptions {
    OpenOptions::new()
        .write(true)
        .ordering(Ordering::Softdep)
        .delay(kind.delay)
        .now(platfs::ondisk::inode::Timestamp { seconds: 1_700_000_000, nanoseconds: 0 })
}

fn made(kind: &Kind) -> MemoryDevice {
    let device = MemoryDevice::new(kind.megabytes << 20);
    let mut options = Options::new(kind.fs_type);
    options.features = parse_features(kind.features).unwrap();
    options.block_size = Some(kind.block_size);
    options.inodes = Some(kind.inodes);
    options.blocks_per_group = kind.blocks_per_group;
    Plan::new(&options, device.size()).unwrap().write(&device).unwrap();
    device
}

/// Every block by itself: neighbours are written at once, but a crash may come between them.
fn by_blocks(events: Vec<Event>, size: u64) -> Vec<Event> {
    let apart = |event| match event {
        Event::Write { offset, data } => {
            let mut parts = Vec::new();
            let mut at = 0;
            while at < data.len() {
                let place = offset + at as u64;
                let len = usize::try_from(size - place % size).unwrap().min(data.len() - at);
                parts.push(Event::Write { offset: place, data: Arc::from(&data[at..at + len]) });
                at += len;
            }
            parts
        }
        other => vec![other],
    };
    events.into_iter().flat_map(apart).collect()
}

fn record(kind: &Kind, seed: u64, calls: u64) -> Run {
    let base = made(kind);
    let recorder = Arc::new(Recorder::new(Arc::new(copy(&base))));
    let volume = Volume::open(recorder.clone(), &options(kind)).unwrap();
    let mut workload = Workload::new(&volume, &recorder, seed, kind.delay > 0);
    workload.run(calls);
    let (history, inodes) = (std::mem::take(&mut workload.history), workload.inodes.clone());
    drop(workload);
    volume.close().unwrap();
    let events = by_blocks(recorder.take(), u64::from(kind.block_size));
    Run { base, events, history, values: Vec::new(), inodes, directories: Vec::new() }
}

/// As [`record`], of larger things.
fn record_deep(kind: &Kind, seed: u64, calls: u64) -> Run {
    let base = made(kind);
    let recorder = Arc::new(Recorder::new(Arc::new(copy(&base))));
    let volume = Volume::open(recorder.clone(), &options(kind)).unwrap();
    let mut workload = Deep::new(&volume, &recorder, seed);
    workload.run(calls);
    let Deep { history, values, inodes, directories, .. } = workload;
    volume.close().unwrap();
    let events = by_blocks(recorder.take(), u64::from(kind.block_size));
    Run { base, events, history, values, inodes, directories }
}

/// Goes through the states of a run, to the first that is wrong.
fn enumerate(kind: &Kind, run: &Run, seed: u64, most: usize, e2fsck_every: usize) -> Result<usize, String> {
    let scratch = Scratch::new("softdep");
    let size = BlockSize::from_bytes(u64::from(kind.block_size)).unwrap();
    let states = States::new(Arc::new(copy(&run.base)), run.events.clone(), size, seed).in_whole_writes();
    let (mut count, mut first) = (0, None);
    states.all(|state| {
        count += 1;
        let promises = Promises {
            history: &run.history,
            inodes: &run.inodes,
            values: &run.values,
            directories: &run.directories,
            promised: usize::try_from(state.promised).unwrap(),
            begun: usize::try_from(state.begun).unwrap(),
        };
        let by_e2fsck = e2fsck_every > 0 && count % e2fsck_every == 0;
        let judged = oracle::before_recovery(state.device.clone())
            .and_then(|()| if by_e2fsck { oracle::e2fsck(state, &scratch, &promises) } else { Ok(()) })
            .and_then(|()| oracle::recovered(state.device.clone(), &options(kind), &promises));
        if let Err(what) = judged {
            if std::env::var_os("PLATFS_KEEP").is_some() {
                let device = state.again();
                let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
                device.read_at(0, &mut bytes).unwrap();
                std::fs::write("/var/tmp/softdep-state.img", bytes).unwrap();
            }
            first = Some(format!("{}, seed {seed}, {}: {what}", kind.name, state.name));
        }
        first.is_none() && count < most
    });
    first.map_or(Ok(count), Err)
}

fn seed(standard: u64) -> u64 {
    std::env::var("PLATFS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(standard)
}

fn kind(name: &str) -> &'static Kind {
    KINDS.iter().find(|kind| kind.name == name).unwrap()
}

fn in_suite(name: &str) {
    if !tool::have_tools(name, &["e2fsck"]) {
        return;
    }
    let run = record(kind(name), seed(1), 300);
    let count = enumerate(kind(name), &run, seed(1), 1000, 25).unwrap_or_else(|what| panic!("{what}"));
    println!("{name}: {count} states");
    assert!(count >= 600, "only {count} states");
}

/// `cargo test --release -p platfs --test softdep -- --ignored --nocapture`, with `PLATFS_STATES` for another number.
#[test]
#[ignore = "takes long"]
fn many_states() {
    let wanted = std::env::var("PLATFS_STATES").ok().and_then(|count| count.parse().ok()).unwrap_or(100_000);
    let only = std::env::var("PLATFS_KIND").ok();
    for kind in KINDS.iter().filter(|kind| only.as_ref().is_none_or(|only| kind.name == only)) {
        let (mut count, mut seed) = (0, seed(1000));
        while count < wanted {
            let deep = kind.name.ends_with("_deep");
            let run = if deep { record_deep(kind, seed, 150) } else { record(kind, seed, 200) };
            count += enumerate(kind, &run, seed, wanted, 50).unwrap_or_else(|what| panic!("{what}"));
            seed += 1;
        }
        println!("{}: {count} states up to seed {seed}", kind.name);
    }
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
    let write = OpenOptions::new().write(true).ordering(Ordering::Softdep);
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

fn in_suite_deep(name: &str) {
    if !tool::have_tools(name, &["e2fsck"]) {
        return;
    }
    let run = record_deep(kind(name), seed(1), 150);
    let count = enumerate(kind(name), &run, seed(1), 500, 25).unwrap_or_else(|what| panic!("{what}"));
    println!("{name}: {count} states");
    assert!(count >= 400, "only {count} states");
}

#[test]
fn ext2_deep() {
    in_suite_deep("ext2_deep");
}

#[test]
fn ext4_deep() {
    in_suite_deep("ext4_deep");
}

#[test]
fn bigalloc_deep() {
    in_suite_deep("bigalloc_deep");
}

/// Where a volume of one group keeps what faults tell apart.
fn places(device: &MemoryDevice) -> faults::Places {
    let volume = Volume::open(Arc::new(copy(device)), &OpenOptions::new()).unwrap();
    let format = volume.format();
    let raw = volume.space().descriptors().get(format, platfs::ondisk::units::Group(0)).unwrap();
    let at = |block| format.geometry.byte_offset(block);
    let table = at(raw.inode_table());
    let len = u64::from(format.geometry.inode_table_blocks()) * u64::from(format.geometry.block_size.bytes());
    faults::Places {
        bitmaps: vec![at(raw.block_bitmap()), at(raw.inode_bitmap())],
        inodes: table..table + len,
        inode_size: usize::from(format.geometry.inode_size),
    }
}

/// Faults that soft updates could have, put into what was recorded of right ones: each is found.
#[test]
fn faults_are_found() {
    for (name, fault) in faults::FAULTS {
        let found = (1..=FAULTY_RUNS).find_map(|seed| {
            let kind = kind("ext2_1k");
            let mut run = record(kind, seed, 300);
            run.events = faults::put(*fault, &places(&run.base), run.events);
            enumerate(kind, &run, seed, 2500, 0).err()
        });
        let found = found.unwrap_or_else(|| panic!("{name} is not found"));
        println!("{name}: {}", found.chars().take(160).collect::<String>());
    }
}

/// Runs in which a fault must show.
const FAULTY_RUNS: u64 = 4;

/// What is removed from a full volume makes room at once, though it is free only when its epoch is stable.
#[test]
fn a_full_volume_has_room_for_what_was_removed() {
    let base = made(kind("ext4_1k"));
    let volume = Volume::open(Arc::new(base), &options(kind("ext4_1k"))).unwrap();
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
fn remove_by_threads(files: u64, directories: u64, threads: u64, ordering: Ordering) -> (u64, u64) {
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
    oracle::is_clean(device).unwrap();
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
    remove_by_threads(8000, 40, 8, Ordering::Softdep);
}

/// `cargo test --release -p platfs --test softdep removal_of_a_million -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes"]
fn removal_of_a_million_files() {
    let files = std::env::var("PLATFS_FILES").ok().and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    let (made, removed) = remove_by_threads(files, files / 200, 8, Ordering::Softdep);
    println!("at most {made} MiB when they were made, {removed} MiB when they were removed");
    remove_by_threads(files, files / 200, 8, Ordering::Journal);
}

/// A sync flushes what there is, and no more often than that.
#[test]
fn a_sync_of_little_takes_few_flushes() {
    let recorder = Arc::new(Recorder::new(Arc::new(made(kind("ext4_1k")))));
    let volume = Volume::open(recorder.clone(), &options(kind("ext4_1k"))).unwrap();
    let new = NewInode { kind: NewKind::File, attributes: Attributes::default(), xattrs: &[] };
    let file = volume.create(InodeNumber::ROOT, b"file", &new).unwrap();
    let flushes = |work: &dyn Fn()| {
        drop(recorder.take());
        work();
        volume.sync_inode(file, false).unwrap();
        recorder.flushes()
    };
    let write = || volume.write_at(file, 0, &[7; 3000], WriteOptions::default()).unwrap();
    assert_eq!(flushes(&write), 4, "bits, record, name, times of the directory and sums");
    assert_eq!(flushes(&write), 1, "bytes");
    assert_eq!(flushes(&|| ()), 1);
    assert_eq!(flushes(&|| volume.truncate(file, 0).unwrap()), 3, "bytes before, record, bits");
}

/// An attribute block that two files share goes on being counted by both as long as both may lead to it.
#[test]
fn a_shared_attribute_block_is_not_changed_under_others() {
    let kind = kind("ext2_1k");
    let base = made(kind);
    let recorder = Arc::new(Recorder::new(Arc::new(base)));
    let new = NewInode { kind: NewKind::File, attributes: Attributes::default(), xattrs: &[] };
    let any = Volume::open(recorder.clone(), &OpenOptions::new().write(true)).unwrap();
    let mut model = Model::default();
    let (mut inodes, mut value) = (BTreeMap::new(), BTreeMap::new());
    for id in 1..=3_u32 {
        let name = format!("f{id}");
        let number = any.create(InodeNumber::ROOT, name.as_bytes(), &new).unwrap();
        any.set_xattr(number, b"user.v", &[5; 300]).unwrap();
        model.names.insert([b"/", name.as_bytes()].concat(), workload::Node::File(id));
        inodes.insert(id, number);
        value.insert(id, 5);
    }
    let blocks: BTreeSet<_> =
        inodes.values().map(|number| any.metadata(*number).unwrap().attribute_block).collect();
    assert_eq!(blocks.len(), 1, "they share a block");
    any.close().unwrap();
    let base = MemoryDevice::new(kind.megabytes << 20);
    let mut bytes = vec![0; usize::try_from(base.size()).unwrap()];
    recorder.read_at(0, &mut bytes).unwrap();
    base.write_at(0, &bytes).unwrap();
    drop(recorder.take());
    let volume = Volume::open(recorder.clone(), &options(kind)).unwrap();
    let mut values = vec![value.clone()];
    for (id, to) in [(1, Some(6)), (2, None), (3, Some(7)), (2, Some(7))] {
        recorder.mark(values.len() as u64);
        match to {
            Some(to) => {
                volume.set_xattr(inodes[&id], b"user.v", &[to; 300]).unwrap();
                value.insert(id, to);
            }
            None => {
                volume.remove_xattr(inodes[&id], b"user.v").unwrap();
                value.remove(&id);
            }
        }
        values.push(value.clone());
    }
    volume.close().unwrap();
    let history = vec![model; values.len()];
    let events = by_blocks(recorder.take(), u64::from(kind.block_size));
    let run = Run { base, events, history, values, inodes, directories: Vec::new() };
    let count = enumerate(kind, &run, 1, 1000, 8).unwrap_or_else(|what| panic!("{what}"));
    assert!(count > 20, "{count} states");
}

/// A directory that files were moved out of is replaced by another one: it must be found until they are found
/// where they went.
#[test]
fn a_replaced_directory_keeps_its_name_until_what_left_it_has_another() {
    let kind = kind("ext2_1k");
    let recorder = Arc::new(Recorder::new(Arc::new(made(kind))));
    let volume = Volume::open(recorder.clone(), &options(kind)).unwrap();
    let new = |kind| NewInode { kind, attributes: Attributes::default(), xattrs: &[] };
    let make = |name: &[u8]| volume.create(InodeNumber::ROOT, name, &new(NewKind::Directory)).unwrap();
    let (old, other, target) = (make(b"old"), make(b"other"), make(b"target"));
    let file = volume.create(old, b"f", &new(NewKind::File)).unwrap();
    volume.sync().unwrap();
    let mut bytes = vec![0; usize::try_from(recorder.size()).unwrap()];
    recorder.read_at(0, &mut bytes).unwrap();
    let base = MemoryDevice::from_bytes(&bytes);
    drop(recorder.take());
    recorder.mark(1);
    volume.rename(old, b"f", target, b"f", Replace::Yes).unwrap();
    recorder.mark(2);
    volume.rename(InodeNumber::ROOT, b"other", InodeNumber::ROOT, b"old", Replace::Yes).unwrap();
    volume.sync().unwrap();
    let model = |names: &[&str]| {
        let node = |name: &str| {
            if name.ends_with('f') { workload::Node::File(1) } else { workload::Node::Directory }
        };
        let names = names.iter().map(|name| (name.as_bytes().to_vec(), node(name))).collect();
        Model { names, files: BTreeMap::from([(1, workload::Contents::default())]) }
    };
    let history = vec![
        model(&["/old", "/old/f", "/other", "/target"]),
        model(&["/old", "/other", "/target", "/target/f"]),
        model(&["/old", "/target", "/target/f"]),
    ];
    let places = |all: &[(&str, InodeNumber)]| -> Places {
        let root = [(Vec::new(), InodeNumber::ROOT)].into_iter();
        root.chain(all.iter().map(|(path, number)| (path.as_bytes().to_vec(), *number))).collect()
    };
    let before = places(&[("/old", old), ("/other", other), ("/target", target)]);
    let directories = vec![before.clone(), before, places(&[("/old", other), ("/target", target)])];
    let events = by_blocks(recorder.take(), u64::from(kind.block_size));
    let inodes = BTreeMap::from([(1, file)]);
    let run = Run { base, events, history, values: Vec::new(), inodes, directories };
    enumerate(kind, &run, 1, 1000, 8).unwrap_or_else(|what| panic!("{what}"));
}

/// With `Normal` a change is stable when its verb returns, with `Sync` bytes are too: what the device has then is
/// enough, whatever comes.
#[test]
fn each_change_is_stable_when_it_returns() {
    for ordering in [Ordering::Normal, Ordering::Sync] {
        let device = Arc::new(made(kind("ext4_1k")));
        let write = options(kind("ext4_1k")).delay(1 << 20).ordering(ordering);
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
        assert_eq!(&bytes[..count], if ordering == Ordering::Sync { &b"bytes"[..] } else { b"" });
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
    let write = OpenOptions::new().write(true).ordering(Ordering::Softdep);
    let volume = Volume::open(device.clone(), &write).unwrap();
    assert_eq!(volume.superblock().s_last_orphan.get(), 0);
    volume.create(InodeNumber::ROOT, b"file", &new).unwrap();
    volume.close().unwrap();
    oracle::is_clean(device).unwrap();
}

#[test]
fn ext2_1k() {
    in_suite("ext2_1k");
}

#[test]
fn ext4_1k() {
    in_suite("ext4_1k");
}

#[test]
fn ext4_4k() {
    in_suite("ext4_4k");
}

#[test]
fn bigalloc() {
    in_suite("bigalloc");
}
