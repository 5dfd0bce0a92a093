//! Files that move: in all orders of writing and on all kinds of maps, and beside writers.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use platfs::device::{Device, FileDevice};
use platfs::mkfs::{FsType, Options, Plan, parse_features};
use platfs::placement::BlockPolicyKind;
use platfs::{
    Allocate, Attributes, DataMode, Error, InodeFlags, InodeNumber, Kind, MapForm, NewInode, OpenOptions,
    Relocation, RelocationGoal, State, Volume, WriteOptions, WriteOrder,
};
use testkit::random::Random;
use testkit::scratch::Scratch;
use testkit::sparse;

const ROOT: InodeNumber = InodeNumber::ROOT;

/// A kind of volume.
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    fs_type: FsType,
    features: &'static str,
    block: u32,
    mib: u64,
}

const SHAPES: &[Shape] = &[
    Shape { name: "ext4_1k", fs_type: FsType::Ext4, features: "", block: 1024, mib: 32 },
    Shape { name: "ext4_4k", fs_type: FsType::Ext4, features: "", block: 4096, mib: 64 },
    Shape { name: "ext3_1k", fs_type: FsType::Ext3, features: "", block: 1024, mib: 32 },
    Shape { name: "ext2_1k", fs_type: FsType::Ext2, features: "", block: 1024, mib: 32 },
    Shape { name: "bigalloc", fs_type: FsType::Ext4, features: "bigalloc", block: 1024, mib: 64 },
    Shape { name: "no_journal", fs_type: FsType::Ext4, features: "^has_journal", block: 1024, mib: 32 },
];

fn made(scratch: &Scratch, shape: &Shape) -> PathBuf {
    let image = scratch.join("disk.img");
    let file = File::options().read(true).write(true).create_new(true).open(&image).unwrap();
    file.set_len(shape.mib << 20).unwrap();
    let mut options = Options::new(shape.fs_type);
    options.block_size = Some(shape.block);
    options.features = parse_features(shape.features).unwrap();
    Plan::new(&options, shape.mib << 20).unwrap().write(&FileDevice::new(file).unwrap()).unwrap();
    image
}

fn open(image: &Path, options: OpenOptions) -> Volume {
    let file = File::options().read(true).write(true).open(image).unwrap();
    let device: Arc<dyn Device> = Arc::new(FileDevice::new(file).unwrap().without_flush());
    Volume::open(device, &options.write(true)).unwrap()
}

fn create(volume: &Volume, name: &str) -> InodeNumber {
    let new = NewInode { kind: Kind::File, attributes: Attributes::default(), xattrs: &[] };
    volume.create(ROOT, name.as_bytes(), &new).unwrap()
}

/// Files in pieces: two that grew in turns, one with holes, one with space that was never written.
fn torn(volume: &Volume, block: usize) -> Vec<(InodeNumber, Vec<u8>)> {
    let mut random = Random(7);
    let names = ["one", "other", "holes", "kept"];
    let mut files: Vec<_> = names.iter().map(|name| (create(volume, name), Vec::new())).collect();
    for round in 0..60_u64 {
        for (at, (number, shadow)) in files.iter_mut().enumerate() {
            let skip = if at == 2 && round % 3 == 1 { 5 * block } else { 0 };
            let offset = shadow.len() + skip;
            let bytes = random.bytes(block as u64 - u64::from(round == 59));
            volume.write_at(*number, offset as u64, &bytes, WriteOptions::default()).unwrap();
            shadow.resize(offset, 0);
            shadow.extend(bytes);
            if at == 3 && round % 7 == 3 && shadow.len().is_multiple_of(block) {
                let more = 3 * block;
                match volume.allocate(*number, Allocate::Extend, shadow.len() as u64, more as u64) {
                    Err(Error::Unsupported(_)) => {}
                    done => {
                        done.unwrap();
                        shadow.resize(shadow.len() + more, 0);
                    }
                }
            }
        }
    }
    files
}

fn assert_holds(volume: &Volume, number: InodeNumber, shadow: &[u8]) {
    let mut read = vec![1; shadow.len() + 1];
    assert_eq!(volume.read_at(number, 0, &mut read).unwrap(), shadow.len());
    assert!(read[..shadow.len()] == *shadow, "inode {number}");
}

fn assert_sound(image: &Path) {
    let said = testkit::fsck::complaints(image);
    assert!(said.is_empty(), "e2fsck -fn: {said}");
}

/// The orders that a kind of volume can be written in.
fn orders(shape: &Shape) -> Vec<OpenOptions> {
    let journaled = shape.fs_type != FsType::Ext2 && !shape.features.contains("^has_journal");
    let open = OpenOptions::new;
    if journaled {
        return [DataMode::Ordered, DataMode::Writeback, DataMode::Journal]
            .map(|data| open().data(data).delay(1 << 20))
            .into();
    }
    [WriteOrder::Async, WriteOrder::Softdep, WriteOrder::Normal, WriteOrder::Sync]
        .map(|order| open().ordering(order).delay(1 << 20))
        .into()
}

/// In every order, on every kind of map: one piece where there was one for each write, the same bytes and times, and
/// e2fsck has nothing to say.
#[test]
fn files_in_pieces_become_one() {
    for shape in SHAPES {
        let scratch = Scratch::new("migrate");
        let image = made(&scratch, shape);
        let tear = OpenOptions::new().policy(BlockPolicyKind::Single).delay(0).unordered(true);
        let volume = open(&image, tear);
        let files = torn(&volume, shape.block as usize);
        volume.close().unwrap();
        for options in orders(shape) {
            let copy = scratch.join("copy.img");
            sparse::copy(&image, &copy).unwrap();
            let volume = open(&copy, options);
            for (number, shadow) in &files {
                let before = volume.metadata(*number).unwrap();
                let done = volume.inode(*number).relocate(&Relocation::default(), &|_| {}).unwrap();
                assert!(done.pieces_before > 3, "{}: {done:?}", shape.name);
                assert_eq!((done.pieces, done.busy), (1, false), "{}: {done:?}", shape.name);
                assert_eq!(volume.inode(*number).pieces().unwrap().0, 1, "{}", shape.name);
                assert_holds(&volume, *number, shadow);
                let after = volume.metadata(*number).unwrap();
                assert_eq!(
                    (before.times.modify, before.times.change),
                    (after.times.modify, after.times.change)
                );
                let again = volume.inode(*number).relocate(&Relocation::default(), &|_| {}).unwrap();
                assert_eq!(again.blocks, 0, "{}", shape.name);
            }
            volume.close().unwrap();
            assert_sound(&copy);
            let volume = open(&copy, OpenOptions::new().unordered(true));
            files.iter().for_each(|(number, shadow)| assert_holds(&volume, *number, shadow));
            volume.close().unwrap();
        }
    }
}

/// Unwritten blocks stay unwritten when they move, and nothing is copied for them.
#[test]
fn unwritten_space_moves_as_such() {
    let scratch = Scratch::new("migrate-unwritten");
    let image = made(&scratch, &SHAPES[0]);
    let volume = open(&image, OpenOptions::new().policy(BlockPolicyKind::Single).delay(0).unordered(true));
    let files = torn(&volume, 1024);
    let unwritten = |volume: &Volume| -> u64 {
        let map = volume.map(files[3].0).unwrap().map(Result::unwrap);
        map.filter(|segment| matches!(segment.state, State::Unwritten(_))).map(|segment| segment.count).sum()
    };
    let before = unwritten(&volume);
    assert!(before > 10);
    let done = volume.inode(files[3].0).relocate(&Relocation::default(), &|_| {}).unwrap();
    assert_eq!(unwritten(&volume), before);
    assert_eq!(done.blocks + before, volume.inode(files[3].0).pieces().unwrap().1);
    volume.close().unwrap();
    assert_sound(&image);
}

/// Towards the front and out of a range: the places are as asked, or the file stays.
#[test]
fn places_are_as_asked() {
    let scratch = Scratch::new("migrate-places");
    let image = made(&scratch, &SHAPES[0]);
    let volume = open(&image, OpenOptions::new().delay(1 << 20));
    let (first, second) = (create(&volume, "first"), create(&volume, "second"));
    for number in [first, second] {
        volume.write_at(number, 0, &[7; 300 << 10], WriteOptions::default()).unwrap();
    }
    volume.sync().unwrap();
    let place = |number| {
        let map = volume.map(number).unwrap().map(Result::unwrap);
        map.filter_map(|segment| match segment.state {
            State::Mapped(start) => Some(start.0),
            _ => None,
        })
        .next()
        .unwrap()
    };
    let (here, there) = (place(first).min(place(second)), place(first).max(place(second)));
    let (low, high) = if place(first) == here { (first, second) } else { (second, first) };
    let outside = Relocation {
        goal: RelocationGoal::Outside { start: here, end: here + 300 },
        ..Relocation::default()
    };
    let done = volume.inode(low).relocate(&outside, &|_| {}).unwrap();
    assert_eq!((done.pieces, done.blocks), (1, 300));
    assert!(place(low) >= here + 300 || place(low) + 300 <= here);
    volume.sync().unwrap();
    let front = Relocation { goal: RelocationGoal::Front, ..Relocation::default() };
    let done = volume.inode(high).relocate(&front, &|_| {}).unwrap();
    assert!(done.blocks == 300 && place(high) < there, "{done:?}");
    assert_holds(&volume, high, &[7; 300 << 10]);
    volume.close().unwrap();
    assert_sound(&image);
}

#[test]
fn what_must_not_move_is_refused() {
    let scratch = Scratch::new("migrate-refused");
    let image = made(&scratch, &SHAPES[0]);
    let volume = open(&image, OpenOptions::new());
    let number = create(&volume, "loader");
    volume.write_at(number, 0, &[7; 5000], WriteOptions::default()).unwrap();
    let extents = volume.metadata(number).unwrap().flags;
    volume.inode(number).set_flags(extents | InodeFlags::IMMUTABLE).unwrap();
    let relocate = |number| volume.inode(number).relocate(&Relocation::default(), &|_| {});
    assert!(matches!(relocate(number), Err(Error::NotPermitted(_))));
    assert!(matches!(relocate(ROOT), Err(Error::IsDirectory)));
    let journal = InodeNumber::new(8).unwrap();
    assert!(matches!(relocate(journal), Err(Error::Unsupported(_))));
    assert!(volume.inode(journal).convert_map(MapForm::Pointers).is_err());
    volume.close().unwrap();
}

/// Maps go to the other form and back; directories too.
#[test]
fn maps_change_their_form() {
    for shape in SHAPES.iter().filter(|shape| shape.fs_type == FsType::Ext4 && shape.features != "bigalloc") {
        for options in orders(shape) {
            let scratch = Scratch::new("migrate-convert");
            let image = made(&scratch, shape);
            let volume = open(&image, options);
            let files = torn(&volume, shape.block as usize);
            let long = create(&volume, "long");
            let bytes = Random(3).bytes(700 * u64::from(shape.block));
            volume.write_at(long, 0, &bytes, WriteOptions::default()).unwrap();
            // Behind the end: pointers can't hold it.
            volume.allocate(long, Allocate::KeepSize, bytes.len() as u64 - 100, 40_000).unwrap();
            for form in [MapForm::Pointers, MapForm::Extents] {
                for number in files.iter().map(|(number, _)| *number).chain([long, ROOT]) {
                    assert!(volume.inode(number).convert_map(form).unwrap(), "{}", shape.name);
                    assert!(!volume.inode(number).convert_map(form).unwrap());
                    let flags = volume.metadata(number).unwrap().flags;
                    assert_eq!(flags.contains(InodeFlags::EXTENTS), form == MapForm::Extents);
                }
                files.iter().for_each(|(number, shadow)| assert_holds(&volume, *number, shadow));
                assert_holds(&volume, long, &bytes);
                assert_eq!(volume.lookup(ROOT, b"long").unwrap(), long);
                volume.put_in_order().unwrap();
                assert_sound(&image);
            }
            volume.close().unwrap();
        }
    }
}

/// Four writers, each with a file and its shadow, while all files move all the time.
#[test]
fn files_move_beside_their_writers() {
    let scratch = Scratch::new("migrate-writers");
    let image = made(&scratch, &Shape { mib: 96, ..SHAPES[1] });
    let volume = open(&image, OpenOptions::new().delay(512 << 10));
    let numbers: Vec<_> = (0..4).map(|at| create(&volume, &format!("file{at}"))).collect();
    let (ended, moved) = (AtomicBool::new(false), AtomicU64::new(0));
    let (volume, ended, moved) = (&volume, &ended, &moved);
    let shadows: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let writers: Vec<_> = numbers
            .iter()
            .map(|number| scope.spawn(move || write_at_random(volume, *number, moved)))
            .collect();
        let mover = scope.spawn(move || {
            let mut random = Random(5);
            while !ended.load(Ordering::Relaxed) {
                let number = volume.lookup(ROOT, format!("file{}", random.below(4)).as_bytes()).unwrap();
                let goal = [
                    RelocationGoal::Wholeness,
                    RelocationGoal::Front,
                    RelocationGoal::Outside { start: 0, end: 9000 },
                ];
                let goal = *random.pick(&goal).unwrap();
                let wish = Relocation { most_pieces: 1 + random.below(8), goal, directory: Some(ROOT) };
                match volume.inode(number).relocate(&wish, &|_| {}) {
                    Ok(done) => drop(moved.fetch_add(u64::from(done.blocks > 0), Ordering::Relaxed)),
                    Err(error) => panic!("{error}"),
                }
                if random.one_in(8) {
                    volume.sync().unwrap();
                }
            }
        });
        let shadows = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        ended.store(true, Ordering::Relaxed);
        mover.join().unwrap();
        assert!(moved.load(Ordering::Relaxed) >= MOVES);
        shadows
    });
    numbers.iter().zip(&shadows).for_each(|(number, shadow)| assert_holds(volume, *number, shadow));
    volume.put_in_order().unwrap();
    assert_sound(&image);
}

/// Moves while others write.
const MOVES: u64 = 100;

fn write_at_random(volume: &Volume, number: InodeNumber, moved: &AtomicU64) -> Vec<u8> {
    let (mut random, mut shadow) = (Random(u64::from(number.get())), Vec::<u8>::new());
    for round in 0..100_000 {
        if round > 1500 && moved.load(Ordering::Relaxed) >= MOVES {
            break;
        }
        let offset = random.below(1_000_000) as usize;
        match random.below(12) {
            0 => {
                volume.truncate(number, offset as u64).unwrap();
                shadow.resize(offset, 0);
            }
            1 => {
                volume.allocate(number, Allocate::PunchHole, offset as u64, 30_000).unwrap();
                let end = shadow.len().min(offset + 30_000);
                shadow[offset.min(end)..end].fill(0);
            }
            2 => volume.allocate(number, Allocate::KeepSize, offset as u64, 60_000).unwrap(),
            3 => {
                let len = shadow.len().saturating_sub(offset).min(20_000);
                let mut read = vec![1; len];
                assert_eq!(volume.read_at(number, offset as u64, &mut read).unwrap(), len);
                assert!(read[..] == shadow[offset.min(shadow.len())..][..len]);
            }
            _ => {
                let len = 1 + random.below(20_000);
                let bytes = random.bytes(len);
                volume.write_at(number, offset as u64, &bytes, WriteOptions::default()).unwrap();
                shadow.resize(shadow.len().max(offset + bytes.len()), 0);
                shadow[offset..offset + bytes.len()].copy_from_slice(&bytes);
            }
        }
    }
    shadow
}

/// Between listing files and moving one, another program can remove it.
#[test]
fn a_file_that_was_removed_meanwhile_is_not_found() {
    for shape in SHAPES {
        let scratch = Scratch::new("removed");
        let image = made(&scratch, shape);
        let volume = open(&image, OpenOptions::new());
        let (number, _) = torn(&volume, shape.block as usize).swap_remove(0);
        volume.unlink(ROOT, b"one").unwrap();
        volume.sync().unwrap();
        let done = volume.inode(number).relocate(&Relocation::default(), &|_| {});
        assert!(matches!(done, Err(Error::NotFound)), "{}: {done:?}", shape.name);
        volume.close().unwrap();
    }
}
