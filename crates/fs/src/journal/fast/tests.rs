//! Fast commits written by hand: what each record comes to, what a cut leaves, and records that can't be.

use ondisk::features::Incompat;
use ondisk::inode::{Inode, Timestamp};
use ondisk::journal::fast_commit::Area;
use ondisk::journal::{JOURNAL_CHECKSUM_CRC32C, JournalIncompat};
use ondisk::superblock::SUPERBLOCK_OFFSET;
use ondisk::units::InodeNumber;
use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::super::{replay, replayed};
use crate::admission::read_superblock;
use crate::check::{self, Decision, Issue, Sink};
use crate::device::{Device, Event, MemoryDevice, Recorder};
use crate::format::Format;
use crate::mkfs::{FsType, Options, Plan};
use crate::{Attributes, Kind, NewInode, OpenOptions, State, Volume, WriteOptions};
use platfs_device::journal::Log;
use std::sync::Arc;

const BLOCK: usize = 1024;
const TRANSACTION: u32 = 5;
const CREATE: u16 = 3;
const LINK: u16 = 4;
const UNLINK: u16 = 5;
const INODE: u16 = 6;

/// A volume with a directory (12) with one file (13) of 5,000 bytes and another file (14) beside it, and fast commits.
fn volume(area: &Area) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    let mut options = Options::new(FsType::Ext4);
    (options.block_size, options.journal.size) = (Some(1024), Some(2 << 20));
    Plan::new(&options, device.size()).unwrap().write(&*device).unwrap();
    let volume = Volume::open(device.clone(), &OpenOptions::new().write(true)).unwrap();
    let new = |kind| NewInode { kind, attributes: Attributes::default(), xattrs: &[] };
    let directory = volume.create(InodeNumber::ROOT, b"directory", &new(Kind::Directory)).unwrap();
    let inside = volume.create(directory, b"inside", &new(Kind::File)).unwrap();
    volume.write_at(inside, 0, &[7; 5000], WriteOptions::default()).unwrap();
    let beside = volume.create(InodeNumber::ROOT, b"beside", &new(Kind::File)).unwrap();
    assert_eq!([directory.get(), inside.get(), beside.get()], [12, 13, 14]);
    volume.close().unwrap();
    pend(&device, area);
    device
}

/// Has a log without transactions wait for replay, and behind it an area of fast commits.
fn pend(device: &Arc<MemoryDevice>, area: &Area) {
    let mut raw = read_superblock(&**device).unwrap();
    let format = Format::from_superblock(&raw).unwrap();
    let mut features = raw.features();
    features.incompat |= Incompat::RECOVER;
    raw.set_features(features);
    format.sealer.seal_superblock(&mut raw);
    device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes()).unwrap();
    let shared: Arc<dyn Device> = device.clone();
    let log = Log::find(&shared, &raw).unwrap();
    let mut superblock = log.superblock;
    superblock.s_feature_incompat.set((JournalIncompat::FAST_COMMIT | JournalIncompat::CSUM_V3).bits());
    superblock.s_checksum_type = JOURNAL_CHECKSUM_CRC32C;
    superblock.s_num_fc_blks.set(64);
    superblock.s_start.set(1);
    superblock.s_sequence.set(TRANSACTION);
    superblock.seal();
    device.write_at(log.offset(0).unwrap(), superblock.as_bytes()).unwrap();
    device.write_at(log.offset(1).unwrap(), &[0; BLOCK]).unwrap();
    for (block, bytes) in superblock.fast_commit_area().zip(area.bytes().chunks(BLOCK)) {
        device.write_at(log.offset(block).unwrap(), bytes).unwrap();
    }
}

fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

fn area() -> Area {
    Area::new(TRANSACTION, BLOCK)
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn name(area: &mut Area, kind: u16, parent: u32, inode: u32, name: &[u8]) {
    area.put(kind, &[&words(&[parent, inode])[..], name].concat());
}

fn record(area: &mut Area, number: u32, mode: u16, size: u64) {
    let mut inode = Inode::blank(InodeNumber::new(number).unwrap(), 256);
    inode.raw_mut().i_mode.set(mode);
    inode.raw_mut().i_links_count.set(1);
    inode.raw_mut().i_generation.set(9);
    inode.set_time(ondisk::inode::TimeField::Change, Timestamp::from_seconds(1000));
    inode.set_flags(ondisk::inode::InodeFlags::EXTENTS);
    inode.set_size(size);
    area.put(INODE, &[&words(&[number])[..], &inode.bytes()[..160]].concat());
}

fn range(area: &mut Area, inode: u32, logical: u32, count: u16, start: u32) {
    let [low, high] = [count.to_le_bytes(), [0; 2]];
    area.put(1, &[&words(&[inode, logical])[..], &low, &high, &words(&[start])[..]].concat());
}

/// A new file with two blocks of data in free space.
fn created() -> Area {
    let mut area = area();
    record(&mut area, 15, 0o100_644, 2000);
    range(&mut area, 15, 0, 2, 14_000);
    name(&mut area, CREATE, 12, 15, b"created");
    area.seal(TRANSACTION);
    area
}

/// Everything that is wrong.
#[derive(Default)]
struct Ears(Vec<Issue>);

impl Sink for Ears {
    fn issue(&mut self, issue: Issue) -> Decision {
        self.0.push(issue);
        Decision::Leave
    }
}

fn wrong(device: &Arc<dyn Device>) -> Vec<Issue> {
    let mut ears = Ears::default();
    check::check(Arc::clone(device), &check::Options::default(), &mut ears).unwrap();
    ears.0
}

/// The volume with its fast commits, which is sound.
fn with(area: &Area) -> Volume {
    let (device, recovery) = replayed(volume(area)).unwrap();
    assert_eq!(recovery.missing(), None);
    assert_eq!(wrong(&device), []);
    Volume::open(device, &OpenOptions::new()).unwrap()
}

fn damage(area: &Area) -> String {
    let device = volume(area);
    let before = bytes_of(&device);
    let refusal = Volume::open(device.clone(), &OpenOptions::new().write(true)).err().unwrap().to_string();
    assert!(bytes_of(&device) == before, "a volume that is refused was written");
    let (_, recovery) = replayed(device).unwrap();
    assert_eq!(recovery.fast_commits, 0);
    let missing = recovery.missing().unwrap();
    assert!(refusal.contains(&missing), "{refusal}");
    missing
}

#[test]
fn a_new_file_is_there_with_its_blocks() {
    let volume = with(&created());
    let found = volume.metadata(volume.resolve(b"/directory/created").unwrap()).unwrap();
    assert_eq!((found.size, found.links), (2000, 1));
}

#[test]
fn names_come_and_go_and_links_follow() {
    let mut area = area();
    name(&mut area, UNLINK, 12, 13, b"inside");
    name(&mut area, LINK, 2, 14, b"twice");
    name(&mut area, LINK, 2, 99, b"of nothing");
    area.seal(TRANSACTION);
    let volume = with(&area);
    assert!(volume.resolve(b"/directory/inside").is_err() && volume.resolve(b"/of nothing").is_err());
    assert_eq!(volume.metadata(volume.resolve(b"/twice").unwrap()).unwrap().links, 2);
}

#[test]
fn a_directory_goes_and_its_number_becomes_a_file() {
    let mut area = area();
    name(&mut area, UNLINK, 12, 13, b"inside");
    name(&mut area, UNLINK, 2, 12, b"directory");
    record(&mut area, 12, 0o100_600, 0);
    name(&mut area, CREATE, 2, 12, b"file");
    area.seal(TRANSACTION);
    let volume = with(&area);
    assert_eq!(volume.resolve(b"/file").unwrap().get(), 12);
    assert_eq!(volume.metadata(InodeNumber::ROOT).unwrap().links, 3);
}

#[test]
fn directories_get_their_names() {
    let mut area = area();
    record(&mut area, 15, 0o040_755, 1024);
    name(&mut area, CREATE, 2, 15, b"made");
    area.seal(TRANSACTION);
    for number in 0..60 {
        record(&mut area, 16 + number, 0o100_600, 0);
        name(&mut area, CREATE, 15, 16 + number, format!("a file with a long name, {number}").as_bytes());
    }
    area.seal(TRANSACTION);
    let volume = with(&area);
    assert_eq!(volume.read_dir(volume.resolve(b"/made").unwrap()).unwrap().count(), 60);
    assert_eq!(volume.metadata(InodeNumber::ROOT).unwrap().links, 5);
}

#[test]
fn ranges_take_the_place_of_others() {
    let mut area = area();
    range(&mut area, 13, 1, 2, 14_000);
    area.put(2, &words(&[13, 0, 1]));
    area.seal(TRANSACTION);
    let volume = with(&area);
    let file = volume.resolve(b"/directory/inside").unwrap();
    let mut byte = [9];
    volume.read_at(file, 0, &mut byte).unwrap();
    assert_eq!(byte, [0], "the first block is a hole");
    volume.read_at(file, 4000, &mut byte).unwrap();
    assert_eq!(byte, [7]);
}

/// Each prefix of the writes of a replay is itself replayed to the same volume.
#[test]
fn replay_can_be_cut_short_anywhere() {
    let base = volume(&created());
    let recorder = Arc::new(Recorder::new(Arc::new(MemoryDevice::from_bytes(&bytes_of(&base)))));
    let shared: Arc<dyn Device> = recorder.clone();
    assert_eq!(replay(&shared).unwrap().fast_commits, 1);
    let writes: Vec<(u64, Vec<u8>)> = recorder
        .take()
        .into_iter()
        .filter_map(|event| {
            if let Event::Write { offset, data } = event { Some((offset, data.to_vec())) } else { None }
        })
        .collect();
    assert!(writes.len() > 10);
    for cut in 0..=writes.len() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&bytes_of(&base)));
        writes.iter().take(cut).for_each(|(offset, bytes)| device.write_at(*offset, bytes).unwrap());
        replay(&device).unwrap();
        assert_eq!(wrong(&device), [], "cut behind {cut} writes");
        let volume = Volume::open(device, &OpenOptions::new()).unwrap();
        assert_eq!(volume.resolve(b"/directory/created").unwrap().get(), 15, "cut behind {cut} writes");
    }
}

#[test]
fn records_that_contradict_the_volume_are_damage_by_name() {
    let told = |write: &dyn Fn(&mut Area), said: &str| {
        let mut area = area();
        write(&mut area);
        area.seal(TRANSACTION);
        let missing = damage(&area);
        assert!(missing.contains(said), "{missing}");
    };
    told(&|area| range(area, 13, 0, 8, 16_380), "which can't be");
    told(&|area| range(area, 13, 10, 1, 3), "structure");
    let taken = with(&created());
    let mut segments = taken.map(taken.resolve(b"/directory/inside").unwrap()).unwrap();
    let State::Mapped(block) = segments.next().unwrap().unwrap().state else { panic!("a hole") };
    told(&|area| range(area, 14, 0, 1, u32::try_from(block.0).unwrap()), "in use by somebody else");
    told(&|area| record(area, 8, 0o100_644, 0), "inode 8");
    told(&|area| record(area, 13, 0o040_755, 0), "another type");
    told(&|area| name(area, LINK, 2, 14, b".."), "'..'");
    told(&|area| name(area, LINK, 13, 14, b"x"), "no directory");
    let moved = |area: &mut Area| {
        name(area, UNLINK, 2, 12, b"directory");
        name(area, LINK, 2, 12, b"second");
    };
    told(&moved, "moves directory 12");
    let twice = |area: &mut Area| {
        name(area, CREATE, 2, 16, b"first");
        name(area, LINK, 2, 16, b"second");
        record(area, 16, 0o040_755, 0);
    };
    told(&twice, "2 names");
    let circle = |area: &mut Area| {
        for (number, parent) in [(16, 17), (17, 16)] {
            name(area, CREATE, parent, number, b"x");
            record(area, number, 0o040_755, 0);
        }
    };
    told(&circle, "below itself");
    let itself = |area: &mut Area| {
        name(area, CREATE, 16, 16, b"x");
        record(area, 16, 0o040_755, 0);
    };
    told(&itself, "below itself");
    told(&|area| name(area, UNLINK, 2, 12, b"directory"), "'inside' still is");
}

#[test]
fn what_is_not_whole_does_not_count() {
    let mut area = created();
    name(&mut area, UNLINK, 2, 14, b"beside");
    let volume = with(&area);
    assert!(volume.resolve(b"/directory/created").is_ok() && volume.resolve(b"/beside").is_ok());
}

fn any_record() -> impl Strategy<Value = (u16, Vec<u8>)> {
    let inode = prop_oneof![Just(2_u32), 11_u32..20];
    let named = (
        CREATE..=UNLINK,
        inode.clone(),
        inode.clone(),
        prop_oneof!["inside", "beside", "directory", "[a-c]"],
    )
        .prop_map(|(kind, parent, inode, name)| {
            (kind, [&words(&[parent, inode])[..], name.as_bytes()].concat())
        });
    let added =
        (inode.clone(), 0_u32..9, 1_u16..4, 13_990_u32..14_010).prop_map(|(inode, logical, count, start)| {
            let head = words(&[inode, logical]);
            (1, [&head[..], &count.to_le_bytes(), &[0; 2], &words(&[start])].concat())
        });
    let deleted = (inode.clone(), 0_u32..9, 0_u32..9)
        .prop_map(|(inode, first, count)| (2, words(&[inode, first, count])));
    let whole = (
        inode,
        prop_oneof![Just(0o100_644_u16), Just(0o040_755), Just(0o120_777), Just(0o010_600)],
        0_u64..9000,
    )
        .prop_map(|(number, mode, size)| {
            let mut area = Area::headless(BLOCK);
            record(&mut area, number, mode, size);
            (INODE, area.bytes()[4..].to_vec())
        });
    prop_oneof![3 => named, 2 => added, 1 => deleted, 3 => whole]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Whatever records say: they are damage, or the volume has no blocks with two owners or none.
    #[test]
    fn any_records_are_refused_or_leave_maps_and_bitmaps_that_fit(records in prop::collection::vec(any_record(), 0..12)) {
        let mut area = area();
        records.iter().for_each(|(kind, value)| area.put(*kind, value));
        area.seal(TRANSACTION);
        let (device, recovery) = replayed(volume(&area)).unwrap();
        prop_assert!(recovery.fast_commits == 1 || recovery.missing().is_some());
        let found: Vec<_> = wrong(&device).into_iter().filter(|issue| !EXCUSED.contains(&issue.kind.id)).collect();
        prop_assert!(found.is_empty(), "{found:?}");
    }
}

/// Issues about facts that only records state: how large a file is, and what a symbolic link or a pipe holds.
const EXCUSED: [&str; 4] = ["inode-size", "inode-type", "symlink-flags", "symlink-target"];

/// A check without a writer refuses the volume, since it would judge it without changes that were promised.
#[test]
fn a_check_without_a_writer_refuses_fast_commits() {
    let device = volume(&created());
    let mut ears = Ears::default();
    let refused = platfs_check::check(device.clone(), &check::Options::default(), &mut ears);
    assert!(matches!(refused.err(), Some(platfs_check::Error::FastCommits(1))));
    let before = bytes_of(&device);
    let shared: Arc<dyn Device> = device.clone();
    assert!(platfs_device::journal::replay(&shared, &platfs_device::journal::NoWriter).is_err());
    assert!(bytes_of(&device) == before);
}
