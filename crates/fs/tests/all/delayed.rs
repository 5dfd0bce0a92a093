//! Delayed allocation: few extents, no promise broken, threads side by side.

mod full;

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use platfs::device::{Device, FileDevice, MemoryDevice};
use platfs::mkfs::{FsType, Options, Plan, parse_features};
use platfs::ondisk::inode::Timestamp;
use platfs::{
    Allocate, AttributeChange, Attributes, Error, InodeNumber, Kind, NewInode, OpenOptions, State, Times,
    Volume, WriteOptions,
};
use testkit::scratch::Scratch;

const NOW: i64 = 1_700_000_000;

fn options() -> OpenOptions {
    OpenOptions::new().write(true).unordered(true).now(Timestamp::from_seconds(NOW)).seed(1)
}

fn plan(fs_type: FsType, block: u32, features: &str, bytes: u64) -> Plan {
    let mut options = Options::new(fs_type);
    options.block_size = Some(block);
    options.features = parse_features(features).unwrap();
    Plan::new(&options, bytes).unwrap()
}

fn volume(bytes: u64, delay: u64) -> Volume {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes));
    plan(FsType::Ext4, 4096, "^has_journal", bytes).write(&*device).unwrap();
    Volume::open(device, &options().delay(delay)).unwrap()
}

fn create(volume: &Volume, name: &str) -> InodeNumber {
    let times = Times::all(Timestamp::from_seconds(NOW));
    let attributes = Attributes { permissions: 0o644, uid: 0, gid: 0, times };
    let new = NewInode { kind: Kind::File, attributes, xattrs: &[] };
    volume.create(InodeNumber::ROOT, name.as_bytes(), &new).unwrap()
}

fn write(volume: &Volume, inode: InodeNumber, offset: u64, data: &[u8]) {
    volume.write_at(inode, offset, data, WriteOptions::default()).unwrap();
}

/// Programs take what a whole file needs, and a mount does not hear of the close: no room is left behind such a file.
#[test]
fn files_that_take_their_space_at_once_lie_side_by_side() {
    let volume = volume(256 << 20, 0);
    let made = |number: u64| {
        let file = create(&volume, &format!("f{number}"));
        volume.allocate(file, Allocate::Extend, 0, 4096 * (1 + number % 40)).unwrap();
        unwritten(&volume, file)
    };
    let places: Vec<(u64, u64)> = (0..200).map(made).collect();
    let apart = places.windows(2).filter(|pair| pair[0].0 + pair[0].1 != pair[1].0);
    // What is left of a group may be too short for the next.
    assert!(apart.count() <= 4, "{places:?}");
}

/// The first block of a file that was never written to, and its blocks: they lie in one piece.
fn unwritten(volume: &Volume, inode: InodeNumber) -> (u64, u64) {
    let segments: Vec<_> = volume.open_file(inode).unwrap().segments().map(Result::unwrap).collect();
    match segments.as_slice() {
        [segment] => match segment.state {
            State::Unwritten(block) => (block.0, segment.count),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// The first block of a file.
fn place(volume: &Volume, inode: InodeNumber) -> u64 {
    match volume.open_file(inode).unwrap().segments().next().unwrap().unwrap().state {
        State::Mapped(block) => block.0,
        other => panic!("{other:?}"),
    }
}

fn extents(volume: &Volume, inode: InodeNumber) -> usize {
    let file = volume.open_file(inode).unwrap();
    let mut end = 0;
    let mut count = 0;
    for segment in file.segments() {
        let segment = segment.unwrap();
        if let State::Mapped(block) | State::Unwritten(block) = segment.state {
            count += usize::from(block.0 != end);
            end = block.0 + segment.count;
        }
    }
    count
}

/// Four files, a piece to each in turn; extents of each.
fn appended_in_turn(delay: u64, sync_each: bool) -> Vec<usize> {
    let volume = volume(64 << 20, delay);
    let files: Vec<_> = (0..4).map(|n| create(&volume, &format!("f{n}"))).collect();
    for piece in 0..400 {
        for file in &files {
            write(&volume, *file, piece * 8192, &[7; 8192]);
            if sync_each {
                volume.sync_inode(*file).unwrap();
            }
        }
    }
    files.iter().map(|file| extents(&volume, *file)).collect()
}

#[test]
fn files_appended_in_turn_are_in_one_piece() {
    assert_eq!(appended_in_turn(64 << 20, false), [1; 4]);
}

#[test]
fn without_delay_they_are_in_few() {
    let counts = appended_in_turn(0, false);
    assert!(counts.iter().all(|count| *count <= 4), "{counts:?}");
}

#[test]
fn made_stable_after_each_piece_they_are_in_few() {
    let counts = appended_in_turn(64 << 20, true);
    assert!(counts.iter().all(|count| *count <= 8), "{counts:?}");
}

#[test]
fn many_writers_beyond_the_memory_bound_get_long_runs() {
    let scratch = Scratch::new("many_writers");
    let file = File::options().read(true).write(true).create_new(true).open(scratch.join("i")).unwrap();
    file.set_len(1 << 30).unwrap();
    let device: Arc<dyn Device> = Arc::new(FileDevice::new(file).unwrap().without_flush());
    plan(FsType::Ext4, 4096, "^has_journal", 1 << 30).write(&*device).unwrap();
    let volume = Volume::open(device, &options().delay(8 << 20)).unwrap();
    let files: Vec<_> = (0..16).map(|n| create(&volume, &format!("f{n}"))).collect();
    for piece in 0..128 {
        for (index, inode) in files.iter().enumerate() {
            write(&volume, *inode, piece << 17, &[index as u8; 1 << 17]);
        }
    }
    let counts: Vec<_> = files.iter().map(|file| extents(&volume, *file)).collect();
    assert!(counts.iter().all(|count| *count <= 2), "{counts:?}");
    assert!(volume.dirty_bytes() <= 8 << 20);
    volume.close().unwrap();
}

#[test]
fn what_was_accepted_finds_space_to_the_last_block() {
    for (fs_type, block, features) in [
        (FsType::Ext4, 1024, "^has_journal"),
        (FsType::Ext4, 4096, "^has_journal,bigalloc"),
        (FsType::Ext2, 1024, ""),
    ] {
        let bytes: u64 = if features.contains("bigalloc") { 64 << 20 } else { 6 << 20 };
        let scratch = Scratch::new("full");
        let image = scratch.join("disk.img");
        let file = File::options().read(true).write(true).create_new(true).open(&image).unwrap();
        file.set_len(bytes).unwrap();
        let device: Arc<dyn Device> = Arc::new(FileDevice::new(file).unwrap());
        plan(fs_type, block, features, bytes).write(&*device).unwrap();
        let volume = Volume::open(device, &options().delay(1 << 30)).unwrap();
        let mut accepted = Vec::new();
        'fill: for round in 0_u64.. {
            let inode = create(&volume, &format!("f{round}"));
            // Every other block, so that maps are as large as they can be.
            for piece in 0..200 {
                let data = vec![(round + piece) as u8 | 1; block as usize];
                match volume.write_at(inode, piece * 2 * u64::from(block), &data, WriteOptions::default()) {
                    Ok(()) => accepted.push((inode, piece * 2 * u64::from(block), data)),
                    Err(Error::NoSpace) => break 'fill,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        volume.sync().unwrap();
        assert_eq!(volume.space().free().unwrap().0, 0, "{features}: space was left");
        for (inode, offset, data) in &accepted {
            let mut read = vec![0; data.len()];
            assert_eq!(volume.read_at(*inode, *offset, &mut read).unwrap(), data.len());
            assert!(read == *data, "inode {inode} at {offset}");
        }
        volume.close().unwrap();
        assert_eq!(testkit::fsck::complaints(&image), "");
    }
}

#[test]
fn files_that_take_space_little_by_little_lie_together() {
    let volume = volume(64 << 20, 0);
    let files: Vec<_> = (0..4).map(|n| create(&volume, &format!("f{n}"))).collect();
    for piece in 0..256 {
        for file in &files {
            volume.allocate(*file, Allocate::Extend, piece * 4096, 4096).unwrap();
        }
    }
    let counts: Vec<_> = files.iter().map(|file| extents(&volume, *file)).collect();
    // The first piece, without room behind it, and windows that double.
    assert!(counts.iter().all(|count| *count <= 5), "{counts:?}");
}

#[test]
fn files_that_are_closed_before_all_has_its_place_go_on_where_they_are() {
    let volume = volume(64 << 20, 1 << 30);
    let files = ["closed", "other"].map(|name| create(&volume, name));
    volume.uses().retain(files[0]).unwrap();
    for part in 0..4 {
        write(&volume, files[0], part * 65_536, &[7; 65_536]);
        if part == 1 {
            volume.write_back(None).unwrap();
        }
    }
    volume.uses().release(files[0], 1);
    write(&volume, files[1], 0, &vec![7; 1 << 20]);
    volume.sync_inode(files[1]).unwrap();
    volume.sync().unwrap();
    assert_eq!(files.map(|file| extents(&volume, file)), [1, 1]);
}

#[test]
fn what_grows_waits_for_its_end_while_other_bytes_can_be_written_back() {
    const DELAY: u64 = 16 << 20;
    let volume = volume(64 << 20, DELAY);
    let piece = vec![7; 65_536];
    let written = |name: &str, pieces: u64| {
        let file = create(&volume, name);
        volume.uses().retain(file).unwrap();
        (0..pieces).for_each(|at| write(&volume, file, at * 65_536, &piece));
        file
    };
    let growing = ["one", "two", "three", "four"].map(|name| written(name, 24));
    let closed = written("closed", 48);
    volume.uses().release(closed, 1);
    assert!(volume.dirty_bytes() > DELAY / 2);
    volume.write_back_ahead(Duration::ZERO).unwrap();
    assert_eq!(volume.dirty_bytes(), 4 * 24 * 65_536, "the closed one went");
    // Many that grow: the oldest go when nearly as much waits as may; one of an eighth of it goes at once.
    let more: Vec<_> = (0..5).map(|at| written(&format!("more{at}"), 20)).collect();
    volume.write_back_ahead(Duration::ZERO).unwrap();
    assert_eq!(volume.dirty_bytes(), (4 * 24 + 5 * 20) * 65_536, "all can still wait");
    let large = written("large", 32);
    assert!(volume.dirty_bytes() > DELAY - DELAY / 8);
    volume.write_back_ahead(Duration::ZERO).unwrap();
    let left = volume.dirty_bytes();
    assert_eq!(left, (3 * 24 + 5 * 20) * 65_536, "the large one, and the oldest");
    for (at, file) in growing.iter().chain(&more).chain([&closed, &large]).enumerate() {
        assert_eq!((at, extents(&volume, *file)), (at, 1));
    }
}

/// As a mount opens it: nothing is released while the kernel remembers it.
fn unreported(delay: u64) -> Volume {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    plan(FsType::Ext4, 4096, "^has_journal", 64 << 20).write(&*device).unwrap();
    Volume::open(device, &options().delay(delay).expect_closes(false)).unwrap()
}

#[test]
fn files_that_are_written_no_more_leave_no_room_though_nobody_closes_them() {
    let volume = unreported(8 << 20);
    let files: Vec<_> = (0..16).map(|n| create(&volume, &format!("f{n}"))).collect();
    for file in &files {
        for piece in 0..32 {
            write(&volume, *file, piece * 65_536, &[7; 65_536]);
        }
    }
    volume.sync().unwrap();
    let place = |file: &InodeNumber| {
        let segments: Vec<_> = volume.open_file(*file).unwrap().segments().map(Result::unwrap).collect();
        let blocks = segments.iter().filter_map(|segment| match segment.state {
            State::Mapped(block) => Some((block.0, segment.count)),
            _ => None,
        });
        blocks.collect::<Vec<_>>()
    };
    let mut places: Vec<_> = files.iter().flat_map(place).collect();
    places.sort_unstable();
    let gaps = places.windows(2).filter(|pair| pair[1].0 != pair[0].0 + pair[0].1).count();
    assert!(gaps <= 8, "{gaps} gaps: {places:?}");
}

#[test]
fn a_sync_of_all_leaves_no_room_behind_files_that_may_be_closed() {
    let volume = unreported(1 << 30);
    let files = ["one", "next", "last"].map(|name| create(&volume, name));
    for file in files {
        write(&volume, file, 0, &[7; 65_536]);
        write(&volume, file, 65_536, &[7; 65_536]);
    }
    volume.sync().unwrap();
    let [one, next, last] = files.map(|file| place(&volume, file));
    assert_eq!([next, last], [one + 32, one + 64]);
}

#[test]
fn files_that_nobody_tells_of_give_up_their_room_after_some_commits() {
    let volume = unreported(1 << 30);
    let files = ["idle", "next", "last"].map(|name| create(&volume, name));
    // Each is written back while it grows, and none is closed.
    for (at, file) in files.into_iter().enumerate() {
        write(&volume, file, 0, &[7; 65_536]);
        write(&volume, file, 65_536, &[7; 65_536]);
        volume.sync_inode(file).unwrap();
        if at > 0 {
            (0..6).for_each(|_| volume.commit().unwrap());
        }
    }
    let [idle, next, last] = files.map(|file| place(&volume, file));
    assert!(next > idle + 32, "{idle} {next}");
    assert!(last == idle + 32 || last == next + 32, "{idle} {next} {last}");
}

#[test]
fn files_are_not_torn_while_most_free_space_waits_for_a_sync() {
    let volume = volume(64 << 20, 1 << 30);
    let small: Vec<_> = (0..1000).map(|n| format!("s{n}")).collect();
    for name in &small {
        let inode = create(&volume, name);
        write(&volume, inode, 0, &[1; 4096]);
    }
    volume.write_back(None).unwrap();
    let mut large = Vec::new();
    while volume.space().free().unwrap().0 > 0 {
        let name = format!("l{}", large.len());
        let inode = create(&volume, &name);
        let room = volume.space().free().unwrap().0.min(256);
        volume.allocate(inode, Allocate::Extend, 0, room * 4096).unwrap();
        large.push(name);
    }
    // Holes of one block each are all that is free.
    for name in small.iter().step_by(2) {
        volume.unlink(InodeNumber::ROOT, name.as_bytes()).unwrap();
    }
    volume.sync().unwrap();
    assert!(volume.space().free().unwrap().0 >= 500);
    for name in large.iter().take(8) {
        volume.unlink(InodeNumber::ROOT, name.as_bytes()).unwrap();
    }
    let inode = create(&volume, "whole");
    write(&volume, inode, 0, &vec![7; 1 << 20]);
    volume.write_back(None).unwrap();
    assert_eq!(extents(&volume, inode), 1);
}

#[test]
fn preallocated_space_can_be_written_when_the_volume_is_full() {
    for delay in [0, 1 << 30] {
        let scratch = Scratch::new("preallocated");
        let image = scratch.join("disk.img");
        let file = File::options().read(true).write(true).create_new(true).open(&image).unwrap();
        file.set_len(6 << 20).unwrap();
        let device: Arc<dyn Device> = Arc::new(FileDevice::new(file).unwrap());
        plan(FsType::Ext4, 1024, "^has_journal", 6 << 20).write(&*device).unwrap();
        let volume = Volume::open(device, &options().delay(delay)).unwrap();
        let inode = create(&volume, "preallocated");
        volume.allocate(inode, Allocate::Extend, 0, 2 << 20).unwrap();
        let rest = create(&volume, "rest");
        let free = volume.space().free().unwrap().0 << 10;
        volume.allocate(rest, Allocate::Extend, 0, free).unwrap();
        assert_eq!(volume.space().free().unwrap().0, 0);
        for piece in 0..1000 {
            write(&volume, inode, piece * 2048 + 100, &[5; 300]);
        }
        volume.sync().unwrap();
        let mut read = vec![0; 2 << 20];
        assert_eq!(volume.read_at(inode, 0, &mut read).unwrap(), 2 << 20);
        for (at, byte) in read.iter().enumerate() {
            let is_written = at < 2_048_000 && (100..400).contains(&(at % 2048));
            assert_eq!(*byte == 5, is_written, "byte {at}");
        }
        volume.close().unwrap();
        assert_eq!(testkit::fsck::complaints(&image), "");
    }
}

#[test]
fn a_file_deleted_before_its_write_back_never_takes_space() {
    let volume = volume(32 << 20, 16 << 20);
    let keep = create(&volume, "keep");
    write(&volume, keep, 0, &[1; 4096]);
    volume.sync().unwrap();
    let free = volume.space().free().unwrap();
    let inode = create(&volume, "gone");
    write(&volume, inode, 0, &[1; 1 << 20]);
    assert_eq!(volume.metadata(inode).unwrap().sectors, 2048);
    volume.unlink(InodeNumber::ROOT, b"gone").unwrap();
    assert_eq!(volume.dirty_bytes(), 0);
    volume.sync().unwrap();
    assert_eq!(volume.space().free().unwrap(), free);
}

/// Copies at odd and even places, onto what is dirty, stable or a hole, against plain buffers.
#[test]
fn copies_are_what_was_read() {
    for (delay, seed) in [(0, 1), (1 << 20, 2), (64 << 20, 3)] {
        let volume = volume(64 << 20, delay);
        let mut random = testkit::random::Random(seed);
        let files = [create(&volume, "a"), create(&volume, "b")];
        let mut models = [random.bytes(100_000), Vec::new()];
        write(&volume, files[0], 0, &models[0]);
        for round in 0..400 {
            let (from, to) = (random.below(2) as usize, random.below(2) as usize);
            let unit = if random.one_in(2) { 4096 } else { 1 };
            let place = |random: &mut testkit::random::Random| random.below(200_000 / unit) * unit;
            let (start, at, len) = (place(&mut random), place(&mut random), 1 + random.below(70_000));
            let source = &models[from];
            let first = (start as usize).min(source.len());
            let piece = source[first..(first + len as usize).min(source.len())].to_vec();
            let overlap = from == to && start < at + len && at < start + len;
            if overlap {
                continue;
            }
            let copied =
                volume.copy_at((files[from], start), (files[to], at), len, WriteOptions::default()).unwrap();
            assert_eq!(copied, piece.len() as u64);
            let (target, end) = (&mut models[to], at as usize + piece.len());
            if !piece.is_empty() {
                target.resize(target.len().max(end), 0);
                target[at as usize..end].copy_from_slice(&piece);
            }
            match round % 50 {
                20 => volume.sync().unwrap(),
                40 => {
                    models[to].truncate(50_000);
                    volume.truncate(files[to], models[to].len() as u64).unwrap();
                }
                _ => {}
            }
            for (file, model) in files.iter().zip(&models) {
                let mut read = vec![7; model.len() + 10];
                assert_eq!(volume.read_at(*file, 0, &mut read).unwrap(), model.len());
                assert!(read[..model.len()] == *model, "delay {delay}, round {round}");
            }
        }
    }
}

#[test]
fn what_is_delayed_is_seen() {
    let volume = volume(32 << 20, 16 << 20);
    let inode = create(&volume, "f");
    write(&volume, inode, 5000, &[3; 3000]);
    let metadata = volume.metadata(inode).unwrap();
    assert_eq!((metadata.size, metadata.sectors), (8000, 8));
    let mut read = [9; 9000];
    assert_eq!(volume.read_at(inode, 0, &mut read).unwrap(), 8000);
    assert!(read[..5000].iter().all(|byte| *byte == 0) && read[5000..8000].iter().all(|byte| *byte == 3));
    volume.truncate(inode, 6000).unwrap();
    write(&volume, inode, 20_000, &[4; 1]);
    assert_eq!(volume.read_at(inode, 5990, &mut read).unwrap(), 9000);
    assert!(read[..10].iter().all(|byte| *byte == 3) && read[10..].iter().all(|byte| *byte == 0));
    volume.allocate(inode, Allocate::PunchHole, 0, 8192).unwrap();
    assert_eq!(volume.dirty_bytes(), 0);
    assert_eq!(volume.metadata(inode).unwrap().sectors, 8);
    assert_eq!(volume.seek(inode, 0, platfs::Seek::Data).unwrap(), Some(16384));
}

/// Times of writes may arrive after later ones of a truncation: the later times stay. Those of a
/// clock that was set back are taken.
#[test]
fn late_times_do_not_replace_later_ones() {
    let volume = volume(64 << 20, 0);
    let file = create(&volume, "f");
    let at = |seconds: i64| Some(Timestamp::from_seconds(NOW + seconds));
    let times = |modify: i64, change: i64, late: bool| {
        let wanted = AttributeChange { modify: at(modify), change: at(change), late, ..Default::default() };
        let found = volume.inode(file).change(&wanted).unwrap().times;
        (found.modify.seconds - NOW, found.change.seconds - NOW)
    };
    assert_eq!(times(100, 100, false), (100, 100));
    assert_eq!(times(98, 99, true), (100, 100));
    // A name that was given meanwhile is later, but the bytes are not known yet.
    assert_eq!(times(101, 99, true), (101, 100));
    assert_eq!(times(102, 102, true), (102, 102));
    assert_eq!(times(90, 90, false), (90, 90));
    assert_eq!(times(20, 20, true), (20, 20));
}

#[test]
fn a_change_answers_what_the_inode_then_says() {
    let volume = volume(32 << 20, 16 << 20);
    let inode = create(&volume, "f");
    write(&volume, inode, 0, &[3; 5000]);
    let wanted = AttributeChange { permissions: Some(0o600), uid: Some(7), ..AttributeChange::default() };
    let changed = volume.inode(inode).change(&wanted).unwrap();
    assert_eq!((changed.permissions, changed.uid, changed.size, changed.sectors), (0o600, 7, 5000, 16));
    assert_eq!(changed, volume.metadata(inode).unwrap());
}

/// Each block of a shared file names its last writer, and how often it wrote; writers own blocks of their own,
/// cut across the block size, so that they meet in the same blocks.
#[test]
fn writers_readers_and_write_back_side_by_side() {
    const PIECE: u64 = 3000;
    let volume = volume(64 << 20, 300_000);
    let inode = create(&volume, "f");
    thread::scope(|scope| {
        for owner in 0..4_u64 {
            let volume = &volume;
            scope.spawn(move || {
                let mut random = owner + 1;
                let mut counts = [0_u8; 40];
                for _ in 0..3000 {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let slot = (random >> 40) % 40;
                    let offset = (slot * 4 + owner) * PIECE;
                    let count = &mut counts[slot as usize];
                    if random >> 33 & 1 == 0 {
                        *count = count.wrapping_add(1).max(1);
                        write(volume, inode, offset, &[*count; PIECE as usize]);
                    } else if *count > 0 {
                        let mut read = [0; PIECE as usize];
                        assert_eq!(volume.read_at(inode, offset, &mut read).unwrap(), PIECE as usize);
                        assert!(read.iter().all(|byte| byte == count), "owner {owner} slot {slot}");
                    }
                }
            });
        }
        let volume = &volume;
        scope.spawn(move || (0..60).for_each(|_| volume.sync().unwrap()));
        scope.spawn(move || (0..200).for_each(|_| volume.write_back(None).unwrap()));
    });
    volume.close().unwrap();
}

/// A write-back that had taken a file's bytes, and lost the race with the removal of its last name, once
/// gave blocks to an inode that was free, or another file by then.
#[test]
fn what_is_removed_while_it_is_written_back_leaves_nothing() {
    const EACH: usize = 6000;
    let volume = volume(32 << 20, 1 << 20);
    let free = volume.space().free_after_sync().unwrap().0;
    let make = |name: &str| {
        for _ in 0..EACH {
            let inode = create(&volume, name);
            write(&volume, inode, 0, &[7; 8192]);
            volume.unlink(InodeNumber::ROOT, name.as_bytes()).unwrap();
        }
    };
    thread::scope(|scope| {
        let makers = ["one", "two"].map(|name| {
            scope.spawn({
                let make = &make;
                move || make(name)
            })
        });
        while !makers.iter().all(thread::ScopedJoinHandle::is_finished) {
            volume.write_back(None).unwrap();
        }
    });
    volume.sync().unwrap();
    assert_eq!(volume.space().free_after_sync().unwrap().0, free);
}

#[test]
fn files_that_were_closed_leave_no_gaps_behind_them() {
    let volume = volume(64 << 20, 4 << 20);
    let free_runs = |volume: &Volume| {
        let bitmap = volume.block_bitmap(platfs::ondisk::units::Group(0)).unwrap();
        let free = |bit: usize| bitmap[bit / 8] >> (bit % 8) & 1 == 0;
        (1..16_384).filter(|&bit| free(bit) && !free(bit - 1)).count()
    };
    let before = free_runs(&volume);
    for name in 0..40 {
        let file = create(&volume, &format!("{name}"));
        volume.uses().retain(file).unwrap();
        for part in 0..6 {
            // Each sync finds a file that grows, and room for more is set aside.
            write(&volume, file, part * 65_536, &[7; 32_768]);
            write(&volume, file, part * 65_536 + 32_768, &[7; 32_768]);
            volume.sync_inode(file).unwrap();
        }
        if name % 2 == 0 {
            write(&volume, file, 6 * 65_536, &[7; 32_768]);
        }
        volume.uses().release(file, 1);
    }
    volume.sync().unwrap();
    assert!(free_runs(&volume) <= before + 2, "{before} {}", free_runs(&volume));
}

/// Small files of two pieces each that take more than may wait, so that writers themselves write back; how many
/// don't lie behind the one before.
fn gaps_between_small_files(options: &OpenOptions) -> usize {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    plan(FsType::Ext4, 4096, "^has_journal", 64 << 20).write(&*device).unwrap();
    let volume = Volume::open(device, &options.clone().delay(1 << 20)).unwrap();
    let mut files = Vec::new();
    for name in 0..600 {
        let file = create(&volume, &format!("{name}"));
        volume.uses().retain(file).unwrap();
        write(&volume, file, 0, &[7; 2048]);
        write(&volume, file, 2048, &[7; 2048]);
        volume.uses().release(file, 1);
        files.push(file);
    }
    volume.sync().unwrap();
    let places: Vec<u64> = files.iter().map(|file| place(&volume, *file)).collect();
    places.windows(2).filter(|pair| pair[1] != pair[0] + 1).count()
}

#[test]
fn small_files_that_were_closed_before_their_write_back_lie_side_by_side() {
    let gaps = gaps_between_small_files(&options());
    assert!(gaps <= 6, "{gaps} gaps");
}

/// Counts what is read.
struct Counting(MemoryDevice, AtomicU64);

impl Device for Counting {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn a_sync_reads_no_bitmap_that_it_leaves_alone_or_that_was_never_initialised() {
    let device = Arc::new(Counting(MemoryDevice::new(256 << 20), AtomicU64::new(0)));
    plan(FsType::Ext4, 1024, "^has_journal", 256 << 20).write(&*device).unwrap();
    let open = || Volume::open(device.clone(), &options()).unwrap();
    let grow = |volume: &Volume, inode, offset| {
        volume.allocate(inode, Allocate::Extend, offset, 100 << 20).unwrap();
        let before = device.1.load(Ordering::Relaxed);
        volume.sync().unwrap();
        device.1.load(Ordering::Relaxed) - before
    };
    // 12 groups and more each time, of which none was used before; their descriptors are in few blocks.
    let first = open();
    let file = create(&first, "a");
    let reads = grow(&first, file, 0);
    assert!(reads <= 6, "{reads} reads");
    first.close().unwrap();
    // Once more: the group with the end of the file has a bitmap now, and its inode bitmap does not matter.
    let again = open();
    let reads = grow(&again, file, 100 << 20);
    assert!(reads <= 6, "{reads} reads");
    again.close().unwrap();
}

/// Before a block of a table is used for the first time its records are looked at: it is read, but not alone.
#[test]
fn new_files_read_a_new_table_in_stretches() {
    const FILES: u64 = 1000;
    let device = Arc::new(Counting(MemoryDevice::new(256 << 20), AtomicU64::new(0)));
    plan(FsType::Ext4, 4096, "^has_journal", 256 << 20).write(&*device).unwrap();
    let volume = Volume::open(device.clone(), &options()).unwrap();
    let before = device.1.load(Ordering::Relaxed);
    for number in 0..FILES {
        create(&volume, &format!("file-{number}"));
    }
    let reads = device.1.load(Ordering::Relaxed) - before;
    // 63 blocks of tables are begun.
    assert!(reads <= 12, "{reads} reads");
    volume.close().unwrap();
}

/// Fills a volume to the last block by a file of its own.
fn fill(volume: &Volume, name: &str) -> InodeNumber {
    let file = create(volume, name);
    let mut at = 0;
    for piece in [1 << 20, 1 << 16, 4096] {
        loop {
            match volume.write_at(file, at, &vec![1; piece], WriteOptions::default()) {
                Ok(()) => at += piece as u64,
                Err(Error::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
    file
}

/// A kernel has taken bytes from their writer, with space promised to them, and hands them over when others have taken
/// all the rest. They come in another order, in pieces, and some of them twice.
#[test]
fn bytes_that_are_expected_find_room_on_a_full_volume() {
    const LEN: u64 = 3 << 20;
    let scratch = Scratch::new("bytes_that_are_expected");
    for (fs_type, block) in [(FsType::Ext4, 4096), (FsType::Ext4, 1024), (FsType::Ext2, 1024)] {
        let image = scratch.join(format!("{fs_type:?}-{block}"));
        let file = File::options().read(true).write(true).create_new(true).open(&image).unwrap();
        file.set_len(24 << 20).unwrap();
        let device: Arc<dyn Device> = Arc::new(FileDevice::new(file).unwrap());
        plan(fs_type, block, "^has_journal", 24 << 20).write(&*device).unwrap();
        let volume = Volume::open(device, &options().delay(1 << 20)).unwrap();
        let taken = WriteOptions { taken: true, ..WriteOptions::default() };
        let (file, other) = (create(&volume, "file"), create(&volume, "other"));
        write(&volume, file, 100_000, &[3; 10_000]);
        for offset in (0..LEN).step_by(1 << 18) {
            volume.expect(file, offset, 1 << 18).unwrap();
            volume.expect(file, offset + 5000, 70_000).unwrap();
        }
        volume.expect(other, 0, 10_000).unwrap();
        let full = fill(&volume, "full");
        assert!(matches!(volume.expect(other, 10 << 20, 1 << 20), Err(Error::NoSpace)));
        volume.expect(full, 0, 100_000).expect("what has its blocks needs nothing");
        for offset in (0..LEN).step_by(1 << 16).collect::<Vec<_>>().into_iter().rev() {
            volume.write_at(file, offset, &[9; 1 << 16], taken).unwrap();
            volume.write_at(file, offset + 1000, &[9; 5000], taken).unwrap();
        }
        volume.write_at(other, 0, &[8; 10_000], taken).unwrap();
        volume.sync().unwrap();
        let mut found = vec![0; LEN as usize];
        assert_eq!(volume.read_at(file, 0, &mut found).unwrap(), found.len());
        assert!(found.iter().all(|byte| *byte == 9));
        volume.close().unwrap();
        assert_eq!(testkit::fsck::complaints(&image), "");
    }
}

#[test]
fn what_is_expected_no_more_is_free_again() {
    let volume = volume(32 << 20, 1 << 20);
    let file = create(&volume, "file");
    let free = volume.space().free_after_sync();
    volume.expect(file, 0, 8 << 20).unwrap();
    let left = volume.space().free_after_sync();
    assert!(left.unwrap().0 + 2048 <= free.unwrap().0, "{free:?} {left:?}");
    volume.expect(file, 4096, 4 << 20).unwrap();
    assert_eq!(volume.space().free_after_sync(), left, "twice is once");
    // A part comes; what it needed less than it might have is free.
    volume.write_at(file, 0, &[1; 4 << 20], WriteOptions { taken: true, ..WriteOptions::default() }).unwrap();
    volume.expect_no_more(file);
    volume.sync().unwrap();
    assert_eq!(volume.space().free_after_sync().unwrap().0 + 1024, free.unwrap().0);
    // All of it came: nothing is left behind.
    volume.expect(file, 4 << 20, 1 << 20).unwrap();
    volume.write_at(file, 4 << 20, &[1; 1 << 20], WriteOptions::default()).unwrap();
    volume.sync().unwrap();
    assert_eq!(volume.space().free_after_sync().unwrap().0 + 1280, free.unwrap().0);
}
