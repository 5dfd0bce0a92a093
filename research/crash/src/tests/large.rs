//! Changes that are larger than the log: made in parts, and finished after a crash in between.

use std::sync::Arc;

use platfs::device::{Device, Event, MemoryDevice, Recorder};
use platfs::mkfs::{FsType, Options, Plan, parse_features};
use platfs::ondisk::features::RoCompat;
use platfs::ondisk::orphan_file;
use platfs::ondisk::units::BlockSize;
use platfs::{
    Allocate, Attributes, Error, InodeNumber, Kind, NewInode, OpenOptions, Segment, State, Volume,
    WriteOptions,
};

use zerocopy::IntoBytes;

use crate::oracle::is_clean;
use crate::run::apply;
use crate::states::States;

const BLOCK_LEN: usize = 1024;
const BLOCK: u64 = BLOCK_LEN as u64;
const SIZE: u64 = 4300 << 20;
/// Over 400 groups of 8 MiB, each of which costs three blocks of the log, which has 1,024.
const LENGTH: u64 = 3600 << 20;
const KEPT_LEN: usize = 100_000;
const KEPT: u64 = KEPT_LEN as u64;

fn made() -> MemoryDevice {
    let device = MemoryDevice::new(SIZE);
    let mut options = Options::new(FsType::Ext4);
    options.block_size = Some(1024);
    options.journal.size = Some(1024 * BLOCK);
    options.inodes = Some(20_000);
    options.features = parse_features("orphan_file").unwrap();
    Plan::new(&options, SIZE).unwrap().write(&device).unwrap();
    device
}

fn writing() -> OpenOptions {
    OpenOptions::new().write(true)
}

/// Blocks of a file, and its size; `None` without the name.
fn facts(volume: &Volume) -> Option<(u64, u64)> {
    let number = match volume.lookup(InodeNumber::ROOT, b"large") {
        Err(Error::NotFound) => return None,
        number => number.unwrap(),
    };
    let facts = volume.metadata(number).unwrap();
    Some((facts.sectors * 512 / BLOCK, facts.size))
}

/// Records a change of a large file, and looks at what recovery makes of every prefix of it.
fn survives(
    change: impl FnOnce(&Volume, InodeNumber),
    allowed: impl Fn(Option<(u64, u64)>) -> bool,
) -> usize {
    let recorder = Arc::new(Recorder::new(Arc::new(made())));
    let volume = Volume::open(recorder.clone(), &writing()).unwrap();
    let new = NewInode { kind: Kind::File, attributes: Attributes::default(), xattrs: &[] };
    let number = volume.create(InodeNumber::ROOT, b"large", &new).unwrap();
    let free = volume.space().free_after_sync();
    volume.allocate(number, Allocate::Extend, 0, LENGTH).unwrap();
    volume.write_at(number, 0, &[7; KEPT_LEN], WriteOptions::default()).unwrap();
    volume.sync().unwrap();
    let base = Arc::new(made());
    apply(&base, recorder.take());
    change(&volume, number);
    let groups = volume.format().geometry.groups;
    assert!(
        groups > 500
            && volume.space().free_after_sync() >= free.map(|(blocks, inodes)| (blocks - 400, inodes))
    );
    volume.sync().unwrap();
    let events = recorder.take();
    let commits = events.iter().filter(|event| **event == Event::Flush).count() / 2;
    assert!(commits > 1, "it went in one transaction");
    let size = BlockSize::from_bytes(BLOCK).unwrap();
    let (mut count, mut wrong) = (0, None);
    States::new(base, events, size, 1).prefixes(|state| {
        count += 1;
        let volume = Volume::open(state.device.clone(), &writing()).unwrap();
        let found = facts(&volume);
        volume.close().unwrap();
        let complaint = is_clean(state.device.clone()).err();
        if !allowed(found) || complaint.is_some() {
            wrong = Some(format!("{}: {found:?}, {complaint:?}", state.name));
        }
        wrong.is_none()
    });
    assert_eq!(wrong, None);
    count
}

fn is_whole(found: Option<(u64, u64)>) -> bool {
    found.is_some_and(|(blocks, size)| blocks >= LENGTH / BLOCK && size == LENGTH)
}

#[test]
fn removal_of_more_than_the_log_holds_is_whole_or_not_done() {
    let count = survives(
        |volume, _| volume.unlink(InodeNumber::ROOT, b"large").unwrap(),
        |found| found.is_none() || is_whole(found),
    );
    println!("{count} states");
    assert!(count >= 6);
}

#[test]
fn a_cut_of_more_than_the_log_holds_is_whole_or_not_done() {
    let is_cut = |(blocks, size): (u64, u64)| size == KEPT && blocks <= KEPT.div_ceil(BLOCK) + 8;
    survives(
        |volume, number| volume.truncate(number, KEPT).unwrap(),
        |found| is_whole(found) || found.is_some_and(is_cut),
    );
}

#[test]
fn holes_and_space_of_more_than_the_log_holds_come_in_parts() {
    survives(
        |volume, number| {
            volume.allocate(number, Allocate::PunchHole, BLOCK, LENGTH).unwrap();
            assert!(facts(volume).is_some_and(|(blocks, size)| blocks < 20 && size == LENGTH));
        },
        |found| found.is_some_and(|(_, size)| size == LENGTH),
    );
}

/// Bytes written back at once that need more blocks of maps than the log has.
#[test]
fn write_back_of_more_than_the_log_holds_goes_in_parts() {
    const PIECES: u64 = 84_000;
    let device = MemoryDevice::new(400 << 20);
    let mut options = Options::new(FsType::Ext4);
    options.block_size = Some(1024);
    options.journal.size = Some(1024 * BLOCK);
    Plan::new(&options, 400 << 20).unwrap().write(&device).unwrap();
    let volume = Volume::open(Arc::new(device), &writing().delay(1 << 30)).unwrap();
    let new = NewInode { kind: Kind::File, attributes: Attributes::default(), xattrs: &[] };
    let number = volume.create(InodeNumber::ROOT, b"comb", &new).unwrap();
    let keep = WriteOptions { keep_times: true, ..WriteOptions::default() };
    for piece in 0..PIECES {
        volume.write_at(number, piece * 2 * BLOCK, &piece.to_le_bytes(), keep).unwrap();
    }
    volume.sync().unwrap();
    assert_eq!(volume.dirty_bytes(), 0);
    let mut bytes = [0; 8];
    for piece in (0..PIECES).step_by(97) {
        volume.read_at(number, piece * 2 * BLOCK, &mut bytes).unwrap();
        assert_eq!(u64::from_le_bytes(bytes), piece);
    }
}

/// Has the orphan file name inodes, and the list none, as Linux leaves them.
fn name_in_file(device: &Arc<Recorder>, numbers: &[InodeNumber]) {
    let volume = Volume::open(device.clone(), &OpenOptions::new()).unwrap();
    let (format, mut raw) = (volume.format(), volume.superblock());
    let file = InodeNumber::new(raw.s_orphan_file_inum.get()).unwrap();
    let Some(Ok(Segment { state: State::Mapped(start), .. })) = volume.map(file).unwrap().next() else {
        panic!("the orphan file has no blocks")
    };
    let seed = format.sealer.inode_seed(file, volume.metadata(file).unwrap().generation);
    let mut bytes = [0; BLOCK_LEN];
    orphan_file::write(seed, start, numbers, &mut bytes);
    device.write_at(format.geometry.byte_offset(start), &bytes).unwrap();
    raw.s_last_orphan.set(0);
    let mut features = raw.features();
    features.ro_compat |= RoCompat::ORPHAN_PRESENT;
    raw.set_features(features);
    format.sealer.seal_superblock(&mut raw);
    device.write_at(1024, raw.as_bytes()).unwrap();
}

/// Each orphan takes a transaction of its own: after a crash between, the file once named one that was gone.
#[test]
fn the_orphan_file_is_worked_off_one_by_one() {
    let recorder = Arc::new(Recorder::new(Arc::new(made())));
    let volume = Volume::open(recorder.clone(), &writing()).unwrap();
    let new = NewInode { kind: Kind::File, attributes: Attributes::default(), xattrs: &[] };
    let numbers = [&b"one"[..], b"other"].map(|name| {
        let number = volume.create(InodeNumber::ROOT, name, &new).unwrap();
        volume.allocate(number, Allocate::Extend, 0, LENGTH / 2).unwrap();
        volume.uses().retain(number).unwrap();
        volume.unlink(InodeNumber::ROOT, name).unwrap();
        number
    });
    volume.close().unwrap();
    name_in_file(&recorder, &numbers);
    let base = Arc::new(made());
    apply(&base, recorder.take());
    Volume::open(recorder.clone(), &writing()).unwrap().close().unwrap();
    let events = recorder.take();
    assert!(events.iter().filter(|event| **event == Event::Flush).count() > 6, "it went in one transaction");
    let (mut count, mut wrong) = (0, None);
    States::new(base, events, BlockSize::from_bytes(BLOCK).unwrap(), 1).prefixes(|state| {
        count += 1;
        let opened = Volume::open(state.device.clone(), &writing()).and_then(Volume::close);
        let complaint = opened.err().map(|error| error.to_string());
        wrong = complaint.or_else(|| is_clean(state.device.clone()).err());
        wrong.is_none()
    });
    assert_eq!(wrong, None, "behind {count} writes");
}
