//! Preallocated space on full volumes: what was promised to a file takes its bytes to the last block, and e2fsck has
//! nothing to say of it.

use std::sync::Arc;

use platfs::device::{Device, MemoryDevice};
use platfs::mkfs::FsType;
use platfs::{Allocate, Error, InodeNumber, Volume, WriteOptions, WriteOrder};
use testkit::random::Random;
use testkit::scratch::Scratch;
use testkit::{fsck, sparse, tool};

use super::{create, options, plan, write};

const B: u64 = 4096;

struct Bench {
    device: Arc<MemoryDevice>,
    volume: Volume,
    ordering: WriteOrder,
}

impl Bench {
    fn new(bytes: u64, block: u32, features: &str, ordering: WriteOrder) -> Self {
        let device = Arc::new(MemoryDevice::new(bytes));
        plan(FsType::Ext4, block, features, bytes).write(&*device).unwrap();
        let how = options().ordering(ordering).delay(8 << 20);
        let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, &how).unwrap();
        Bench { device, volume, ordering }
    }

    /// Fills all that is free, to the last block.
    fn fill(&self, inode: InodeNumber) {
        let (mut at, mut len) = (self.volume.metadata(inode).unwrap().size, 1 << 20);
        while len >= 1024 {
            match self.volume.write_at(inode, at, &vec![b'b'; len], WriteOptions::default()) {
                Ok(()) => at += len as u64,
                Err(Error::NoSpace) => len /= 4,
                Err(error) => panic!("{error}"),
            }
            let _ = self.volume.sync_inode(inode);
        }
    }

    fn read(&self, inode: InodeNumber) -> Vec<u8> {
        let mut bytes = vec![0; self.volume.metadata(inode).unwrap().size as usize];
        assert_eq!(self.volume.read_at(inode, 0, &mut bytes).unwrap(), bytes.len());
        bytes
    }

    /// Closes the volume: e2fsck is silent, and after opening it again the same is read.
    fn judge(self, files: &[(InodeNumber, Vec<u8>)], what: &str) {
        self.volume.close().unwrap();
        let mut bytes = vec![0; self.device.size() as usize];
        self.device.read_at(0, &mut bytes).unwrap();
        let scratch = Scratch::new("full-judge");
        let image = scratch.join("image");
        sparse::write(&image, bytes).unwrap();
        let said = fsck::complaints(&image);
        assert!(said.is_empty(), "{what}: {said}");
        let volume = Volume::open(self.device.clone(), &options().ordering(self.ordering)).unwrap();
        let again = Bench { device: self.device, volume, ordering: self.ordering };
        for (inode, expected) in files {
            assert!(again.read(*inode) == *expected, "{what}: inode {inode} holds other bytes");
        }
    }
}

/// Bytes in the middle of space that was preallocated behind the end of a file whose map has no room left.
#[test]
fn a_write_behind_the_end_of_a_file_on_a_full_volume_leaves_it_sound() {
    if !tool::have_tools("a full volume", &["e2fsck"]) {
        return;
    }
    for (features, ordering) in [
        ("", WriteOrder::Journal),
        ("^has_journal", WriteOrder::Async),
        ("^has_journal", WriteOrder::Softdep),
    ] {
        let bench = Bench::new(16 << 20, 4096, features, ordering);
        let file = create(&bench.volume, "f");
        for block in [0, 10, 20] {
            write(&bench.volume, file, block * B, &[b'a'; B as usize]);
            bench.volume.sync_inode(file).unwrap();
        }
        bench.volume.allocate(file, Allocate::KeepSize, 40 * B, 40 * B).unwrap();
        let filler = create(&bench.volume, "g");
        bench.volume.sync().unwrap();
        bench.fill(filler);
        write(&bench.volume, file, 50 * B, &[b'c'; B as usize]);
        bench.volume.sync_inode(file).unwrap();
        // What is left of the space is the file's still: all but a few blocks, that its map took.
        for block in 51..72 {
            write(&bench.volume, file, block * B, &[b'd'; B as usize]);
            bench.volume.sync_inode(file).unwrap();
        }
        let mut expected = vec![0; 72 * B as usize];
        for (block, byte) in [(0, b'a'), (10, b'a'), (20, b'a'), (50, b'c')] {
            expected[block * B as usize..][..B as usize].fill(byte);
        }
        expected[51 * B as usize..].fill(b'd');
        assert!(bench.read(file) == expected);
        bench.judge(&[(file, expected)], features);
    }
}

/// Scattered blocks of preallocated space, many in each write-back, until most of them are written.
#[test]
fn scattered_blocks_of_a_preallocated_file_are_written_in_every_order() {
    if !tool::have_tools("scattered blocks", &["e2fsck"]) {
        return;
    }
    for (seed, (features, ordering)) in [
        ("", WriteOrder::Journal),
        ("^has_journal", WriteOrder::Async),
        ("^has_journal", WriteOrder::Softdep),
        ("^has_journal,bigalloc", WriteOrder::Softdep),
    ]
    .into_iter()
    .enumerate()
    {
        let (block, blocks) = (1024, 12 << 10);
        let bench = Bench::new(48 << 20, block, features, ordering);
        let file = create(&bench.volume, "f");
        bench.volume.allocate(file, Allocate::Extend, 0, u64::from(block) * blocks).unwrap();
        bench.volume.sync().unwrap();
        let mut random = Random(seed as u64);
        let mut expected = vec![0; block as usize * blocks as usize];
        for round in 1..8_u8 {
            for _ in 0..blocks / 3 {
                let at = block as usize * random.below(blocks) as usize;
                expected[at..at + block as usize].fill(round);
                write(&bench.volume, file, at as u64, &expected[at..at + block as usize]);
            }
            bench.volume.sync_inode(file).unwrap();
            assert!(bench.read(file) == expected, "{features} {ordering:?}, round {round}");
        }
        bench.judge(&[(file, expected)], features);
    }
}

/// A file as it should read.
struct Model {
    inode: InodeNumber,
    bytes: Vec<u8>,
}

impl Model {
    fn step(&mut self, bench: &Bench, random: &mut Random, block: u64) {
        let volume = &bench.volume;
        let (from, count) = (random.below(120), 1 + random.below(30));
        let (offset, len) = (from * block + random.below(2) * 100, count * block - random.below(2) * 50);
        let allocate = |mode| match volume.allocate(self.inode, mode, offset, len) {
            Ok(()) => true,
            Err(Error::NoSpace) => false,
            Err(error) => panic!("{error}"),
        };
        let end = (offset + len) as usize;
        match random.below(12) {
            0..=2 => {
                allocate(Allocate::KeepSize);
            }
            3 => {
                if allocate(Allocate::Extend) {
                    self.bytes.resize(self.bytes.len().max(end), 0);
                }
            }
            4 => {
                if allocate(Allocate::PunchHole) {
                    let end = end.min(self.bytes.len());
                    self.bytes.get_mut(offset as usize..end).unwrap_or_default().fill(0);
                }
            }
            5 => {
                if allocate(Allocate::ZeroRangeKeepSize) {
                    let end = end.min(self.bytes.len());
                    self.bytes.get_mut(offset as usize..end).unwrap_or_default().fill(0);
                }
            }
            6 => {
                match volume.truncate(self.inode, offset) {
                    Ok(()) => self.bytes.resize(offset as usize, 0),
                    // Where changes are ordered, a map that is changed moves.
                    Err(Error::NoSpace) => assert_eq!(bench.ordering, WriteOrder::Softdep),
                    Err(error) => panic!("{error}"),
                }
            }
            7 => {
                let _ = volume.sync_inode(self.inode);
            }
            _ => {
                let len = 1 + random.below(3 * block) as usize;
                self.write(bench, random, offset as usize, len);
            }
        }
    }

    fn write(&mut self, bench: &Bench, random: &mut Random, offset: usize, len: usize) {
        let data = vec![1 + random.below(255) as u8; len];
        let done = bench.volume.write_at(self.inode, offset as u64, &data, WriteOptions::default());
        let mut new = self.bytes.clone();
        new.resize(new.len().max(offset + len), 0);
        new[offset..offset + len].copy_from_slice(&data);
        match done {
            Ok(()) => self.bytes = new,
            Err(Error::NoSpace) => {
                // Blocks that it had already may have taken their part.
                let found = bench.read(self.inode);
                assert!(found.len() <= new.len());
                for (at, byte) in found.iter().enumerate() {
                    let old = self.bytes.get(at).copied().unwrap_or(0);
                    assert!(*byte == old || *byte == new[at], "byte {at}");
                }
                self.bytes = found;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Many mixes of preallocating, punching, writing and making stable where hardly anything is free.
#[test]
fn mixes_on_full_volumes_lose_nothing_and_leave_them_sound() {
    if !tool::have_tools("mixes on full volumes", &["e2fsck"]) {
        return;
    }
    let kinds = [
        (1024, "", WriteOrder::Journal),
        (1024, "^has_journal", WriteOrder::Async),
        (4096, "^has_journal", WriteOrder::Async),
        (1024, "^has_journal", WriteOrder::Softdep),
        (4096, "^has_journal,bigalloc", WriteOrder::Async),
    ];
    let seeds = std::env::var("PLATFS_STEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(30);
    for seed in 0..seeds {
        let (block, features, ordering) = kinds[seed as usize % kinds.len()];
        let bytes = if block == 1024 { 8 << 20 } else { 24 << 20 };
        let bench = Bench::new(bytes, block, features, ordering);
        let mut random = Random(seed);
        let filler = create(&bench.volume, "filler");
        let mut models: Vec<Model> = (0..3)
            .map(|number| Model { inode: create(&bench.volume, &format!("f{number}")), bytes: Vec::new() })
            .collect();
        for round in 0..160 {
            if round % 40 == 10 {
                bench.fill(filler);
            }
            let which = random.below(3) as usize;
            models[which].step(&bench, &mut random, u64::from(block));
            if round % 20 == 0 {
                assert!(bench.read(models[which].inode) == models[which].bytes, "seed {seed}, round {round}");
            }
        }
        // Until now bytes may wait for space; once there is some they are there.
        let what = format!("seed {seed}, {features} {ordering:?}");
        bench.volume.unlink(InodeNumber::ROOT, b"filler").unwrap();
        bench.volume.sync().unwrap();
        for model in &models {
            // The first may report a write-back that failed while the volume was full.
            let _ = bench.volume.sync_inode(model.inode);
            let synced = bench.volume.sync_inode(model.inode);
            assert!(synced.is_ok(), "{what}: {synced:?}, free {:?}", bench.volume.space().free());
            assert!(bench.read(model.inode) == model.bytes, "{what}");
        }
        bench.judge(&models.into_iter().map(|model| (model.inode, model.bytes)).collect::<Vec<_>>(), &what);
    }
}
