//! Directories over a memory device, their blocks laid out in a row: no map, no allocation.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use ondisk::dirent;
use ondisk::features::{Features, RoCompat};
use ondisk::geometry::{BackupRule, Geometry};
use ondisk::htree::Root;
use ondisk::inode::Timestamp;
use ondisk::seal::Sealer;
use ondisk::superblock::RawSuperblock;
use ondisk::units::BlockSize;
use proptest::prelude::*;
use zerocopy::FromZeros;

use super::*;
use crate::cache::Cache;
use crate::context::Context;
use crate::device::MemoryDevice;
use crate::options::OpenOptions;
use crate::order::Order;
use crate::session::Session;
use crate::space::Space;
use crate::tx::View;
use crate::txn::Update;

/// Block `n` of a directory lies at block `FIRST + n` of the device.
const FIRST: u64 = 16;

struct Row;

impl BlockMap for Row {
    fn block_at(&self, _: Map<'_>, at: FileBlock) -> Result<Block> {
        Ok(Block(FIRST + u64::from(at.0)))
    }
}

impl Growth for Row {
    fn renew(&self, _: &mut Tx<'_>, _: &mut Inode, _: FileBlocks) -> Result<Block> {
        Err(Error::NoSpace)
    }

    fn was_in_use(&self, _: &Tx<'_>, _: InodeNumber) -> Result<bool> {
        Ok(true)
    }

    fn append(&self, _: &mut Tx<'_>, _: &mut Inode, at: FileBlock) -> Result<Block> {
        Ok(Block(FIRST + u64::from(at.0)))
    }

    fn cut(&self, _: &mut Tx<'_>, _: &mut Inode, _: FileBlock) -> Result<()> {
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
struct Setup {
    block_size: BlockSize,
    checksums: bool,
    file_types: bool,
    indexed: bool,
    large: bool,
    version: u8,
    unsigned: bool,
}

impl Setup {
    fn small() -> Self {
        Setup {
            block_size: BlockSize::from_bytes(1024).unwrap(),
            checksums: true,
            file_types: true,
            indexed: true,
            large: false,
            version: 1,
            unsigned: false,
        }
    }

    fn with_blocks_of(self, bytes: u64) -> Self {
        Setup { block_size: BlockSize::from_bytes(bytes).unwrap(), ..self }
    }

    fn format(self) -> Format {
        let mut features = Features::default();
        features.compat.set(Compat::DIR_INDEX, self.indexed);
        features.incompat.set(Incompat::FILETYPE, self.file_types);
        features.incompat.set(Incompat::LARGEDIR, self.large);
        features.ro_compat.set(RoCompat::METADATA_CSUM, self.checksums);
        Format {
            geometry: geometry(self.block_size),
            features,
            sealer: Sealer::new(features, [7; 16], 0),
            hash_seed: [1, 2, 3, 4],
            hash_version: self.version,
            unsigned_hash: self.unsigned,
            has_translators: false,
            zone: crate::zone::Zone::default(),
            keys: crate::keys::Keyring::default(),
            numbers: Arc::default(),
        }
    }
}

fn geometry(block_size: BlockSize) -> Geometry {
    Geometry {
        block_size,
        cluster_log2: 0,
        blocks: 1 << 30,
        first_data_block: 0,
        blocks_per_group: 8192,
        inodes_per_group: 8192,
        groups: 1 << 17,
        inode_size: 256,
        descriptor_size: 32,
        first_inode: 11,
        reserved_descriptor_blocks: 0,
        first_meta_bg: None,
        backups: BackupRule::Powers,
        flex_log2: 0,
    }
}

/// A directory on a device of its own.
struct Bench {
    format: Format,
    cache: Cache,
    space: Space,
    session: Session,
    order: Order,
    dir: Inode,
}

fn inode(number: u32) -> InodeNumber {
    InodeNumber::new(number).unwrap()
}

impl Bench {
    fn new(setup: Setup) -> Self {
        let format = setup.format();
        let cache = Cache::new(Arc::new(MemoryDevice::new(1 << 34)), setup.block_size, format.sealer);
        let mut dir = Inode::blank(inode(12), 256);
        dir.raw_mut().i_mode.set(0x41ED);
        let mut bench = Bench::over(format, cache, dir);
        bench.change(|writer| writer.init(InodeNumber::ROOT)).unwrap();
        bench
    }

    fn over(format: Format, cache: Cache, dir: Inode) -> Self {
        // Nothing here takes space.
        let one_group = Format { geometry: Geometry { groups: 1, ..format.geometry }, ..format.clone() };
        let space = Space::for_reading(&**cache.device(), &one_group, false).unwrap();
        let session = Session::new(&OpenOptions::new(), RawSuperblock::new_zeroed(), &format.geometry);
        Bench { format, cache, space, session, order: Order::default(), dir }
    }

    fn tx(&self) -> Tx<'_> {
        let context = Context::new(Timestamp::default());
        let view = View { blocks: &self.cache, format: &self.format, space: &self.space };
        Tx::new(view, &self.session, Update::new(&self.cache, &self.order, context))
    }

    fn change<T>(&mut self, change: impl FnOnce(&mut DirMut<'_, '_>) -> Result<T>) -> Result<T> {
        let mut tx = self.tx();
        let mut dir = self.dir.clone();
        let done = change(&mut DirMut::new(&mut tx, &mut dir, &Row))?;
        tx.commit();
        self.dir = dir;
        Ok(done)
    }

    fn insert(&mut self, name: &[u8], number: u32) -> Result<()> {
        self.change(|writer| writer.insert(name, inode(number), FileType::Regular))
    }

    fn reader(&self) -> Dir<'_> {
        Dir::new(&self.cache, &self.format, &self.dir, &Row)
    }

    fn lookup(&self, name: &[u8]) -> Option<u32> {
        self.reader().search(name).unwrap().map(|(found, _)| found.get())
    }

    fn listing(&self) -> Result<Vec<DirEntry>> {
        linear::Listing::new(&self.cache, &self.format, &Row, self.dir.clone())?.collect()
    }

    /// This directory, read from the device by a fresh cache.
    fn reopened(&self) -> Self {
        self.cache.write_back().unwrap();
        let cache =
            Cache::new(Arc::clone(self.cache.device()), self.format.geometry.block_size, self.format.sealer);
        Bench::over(self.format.clone(), cache, self.dir.clone())
    }

    fn levels(&self) -> u8 {
        let bytes = self.cache.read(Block(FIRST), self.reader().index_role(Kind::Root)).unwrap();
        Root::parse(&bytes, self.reader().layout, true).unwrap().levels
    }

    /// Overwrites bytes of a file block on the device, without a checksum.
    fn damage(&self, at: u64, offset: usize, bytes: &[u8]) {
        let place = (FIRST + at) * self.cache.block_len() as u64 + offset as u64;
        self.cache.device().write_at(place, bytes).unwrap();
    }
}

fn assert_holds(bench: &Bench, model: &BTreeMap<Vec<u8>, u32>) {
    for (name, number) in model {
        assert_eq!(bench.lookup(name), Some(*number), "{:?}", String::from_utf8_lossy(name));
    }
    let mut listed: Vec<_> =
        bench.listing().unwrap().into_iter().map(|entry| (entry.name, entry.inode.get())).collect();
    listed.sort();
    assert_eq!(listed, model.iter().map(|(name, number)| (name.clone(), *number)).collect::<Vec<_>>());
    let mut listed: Vec<_> = Listed::new(bench).map(|entry| entry.unwrap().name).collect();
    listed.sort();
    assert!(listed.iter().eq(model.keys()));
}

fn fill(bench: &mut Bench, count: u32, name: impl Fn(u32) -> String) -> BTreeMap<Vec<u8>, u32> {
    let mut model = BTreeMap::new();
    for number in 0..count {
        let name = name(number).into_bytes();
        bench.insert(&name, 100 + number).unwrap();
        model.insert(name, 100 + number);
    }
    model
}

#[test]
fn a_new_directory_has_two_names_and_lists_none() {
    let bench = Bench::new(Setup::small());
    assert_eq!((bench.lookup(b"."), bench.lookup(b".."), bench.lookup(b"x")), (Some(12), Some(2), None));
    assert_eq!(bench.listing().unwrap(), []);
    assert_eq!(bench.dir.size(), 1024);
}

#[test]
fn one_block_is_linear_and_two_are_indexed() {
    let mut bench = Bench::new(Setup::small());
    // Each entry takes 16 bytes; beside `.`, `..` and the tail 61 fit.
    fill(&mut bench, 61, |number| format!("name{number:04}"));
    assert_eq!((bench.dir.size(), bench.dir.flags().contains(InodeFlags::INDEX)), (1024, false));
    bench.insert(b"another", 7).unwrap();
    assert_eq!((bench.dir.size(), bench.dir.flags().contains(InodeFlags::INDEX)), (3072, true));
    assert_eq!((bench.levels(), bench.lookup(b"another"), bench.lookup(b"..")), (1, Some(7), Some(2)));
    assert_eq!(bench.listing().unwrap().len(), 62);
}

#[test]
fn without_the_feature_blocks_are_added_at_the_end() {
    let mut bench = Bench::new(Setup { indexed: false, ..Setup::small() });
    let model = fill(&mut bench, 200, |number| format!("name{number:04}"));
    assert_eq!((bench.dir.size(), bench.dir.flags().contains(InodeFlags::INDEX)), (4 * 1024, false));
    assert_holds(&bench.reopened(), &model);
}

#[test]
fn an_index_of_two_levels_is_full_and_large_dir_gives_a_third() {
    // The longest names in the smallest blocks: three to a leaf, so that few of them fill it all.
    let name = |number: u32| format!("{number:0>255}");
    let mut bench = Bench::new(Setup { checksums: false, ..Setup::small() });
    let mut held = 0;
    let refusal = loop {
        match bench.insert(name(held).as_bytes(), 100 + held) {
            Ok(()) => held += 1,
            Err(refusal) => break refusal,
        }
    };
    assert!(matches!(refusal, Error::DirectoryFull(_)), "{refusal}");
    assert_eq!(bench.levels(), 2);
    // Half full at the worst: 124 nodes of 64 leaves with two names each.
    assert!(held > 15_000, "full after {held} names");
    assert!((0..held).all(|number| bench.lookup(name(number).as_bytes()) == Some(100 + number)));

    bench.format.features.incompat.set(Incompat::LARGEDIR, true);
    for number in held..held + 3_000 {
        bench.insert(name(number).as_bytes(), 100 + number).unwrap();
    }
    assert_eq!(bench.levels(), 3);
    let bench = bench.reopened();
    assert!((0..held + 3_000).all(|number| bench.lookup(name(number).as_bytes()) == Some(100 + number)));
    assert_eq!(u32::try_from(bench.listing().unwrap().len()), Ok(held + 3_000));
}

/// Ends of names that have one legacy hash, 0x0D9E44E2, behind 247 times `x`: found by search.
const COLLIDING: [&str; 12] = [
    "aaaaaaaa", "vrebzacm", "pvioebpv", "tyfagbkh", "hvyxnbfl", "ukyvrbaf", "ascgsbfi", "vwywybot",
    "fnbudcwy", "mzmsfclh", "aooliczl", "gqusmcvz",
];

#[test]
fn names_of_one_hash_go_on_from_leaf_to_leaf() {
    let mut bench = Bench::new(Setup { version: 0, ..Setup::small() });
    let mut model = fill(&mut bench, 300, |number| format!("noise{number}"));
    let hasher = ondisk::dirhash::NameHasher::new(ondisk::dirhash::HashVersion::Legacy, false, [0; 4]);
    for (number, end) in (5000..).zip(COLLIDING) {
        let name = format!("{}{end}", "x".repeat(247)).into_bytes();
        assert_eq!(hasher.hash(&name).major, 0x0D9E_44E2);
        bench.insert(&name, number).unwrap();
        model.insert(name, number);
    }
    // A leaf of 1 KiB holds three of these names, so the twelve need at least four leaves.
    let reader = bench.reader();
    let root = bench.cache.read(Block(FIRST), reader.index_role(Kind::Root)).unwrap();
    let index = ondisk::htree::Index::parse(&root, Kind::Root, reader.layout).unwrap();
    let going_on = index.iter().filter(|entry| entry.hash == 0x0D9E_44E2 | 1).count();
    assert!(going_on >= 3, "{going_on} leaves go on with the hash");
    model.extend(fill_more(&mut bench, 300..600));
    assert_holds(&bench.reopened(), &model);
}

/// The blocks of an index are led to once each, and no leaf is empty.
fn assert_tidy(bench: &Bench) {
    let reader = bench.reader();
    if !bench.dir.flags().contains(InodeFlags::INDEX) {
        return;
    }
    assert!(htree::is_sound(&reader).unwrap());
    for at in (1..reader.count().unwrap()).map(FileBlock) {
        let Some((bytes, layout)) = linear::list_block(&reader, at).unwrap() else { continue };
        assert!(dirent::entries(&bytes, layout).any(|entry| entry.unwrap().inode.is_some()), "block {at}");
    }
}

fn shuffled(names: impl Iterator<Item = Vec<u8>>, seed: u64) -> Vec<Vec<u8>> {
    let hash = |name: &Vec<u8>| {
        name.iter().fold(seed, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
    };
    let mut names: Vec<_> = names.collect();
    names.sort_by_key(hash);
    names
}

#[test]
fn leaves_that_lose_their_last_name_are_given_back() {
    for (seed, version) in [(1, 0), (2, 1), (3, 2)] {
        let setup = Setup { version, checksums: seed != 2, ..Setup::small() };
        let mut bench = Bench::new(setup);
        let mut model = fill(&mut bench, 900, |number| format!("name{number:04}"));
        let most = bench.dir.size();
        for (count, name) in shuffled(model.clone().into_keys(), seed).into_iter().enumerate() {
            bench.change(|writer| change::remove(writer, &name)).unwrap();
            model.remove(&name);
            if count % 50 == 0 {
                assert_tidy(&bench);
                assert_holds(&bench.reopened(), &model);
            }
        }
        assert!(most > 10 * 1024);
        assert_eq!((bench.dir.size(), bench.dir.flags().contains(InodeFlags::INDEX)), (1024, false));
        assert_eq!((bench.lookup(b"."), bench.lookup(b"..")), (Some(12), Some(2)));
        let model = fill_more(&mut bench, 0..200);
        assert_holds(&bench.reopened(), &model);
    }
}

/// The longest names in the smallest blocks make an index of three levels with few of them.
#[test]
fn an_index_loses_its_nodes_and_levels() {
    let mut bench = Bench::new(Setup { checksums: false, large: true, ..Setup::small() });
    let mut model = BTreeMap::new();
    for number in 0.. {
        if model.len() > 100 && bench.levels() == 3 {
            break;
        }
        let name = format!("{number:0>255}").into_bytes();
        bench.insert(&name, 100 + number).unwrap();
        model.insert(name, 100 + number);
    }
    let mut levels = vec![3];
    // Down from the highest hash, so that whole nodes lose their leaves.
    let hasher = htree::hasher(&bench.format, ondisk::dirhash::HashVersion::HalfMd4);
    let mut names: Vec<_> = model.clone().into_keys().collect();
    names.sort_by_key(|name| std::cmp::Reverse(hasher.hash(name)));
    for (count, name) in names.into_iter().enumerate() {
        bench.change(|writer| change::remove(writer, &name)).unwrap();
        model.remove(&name);
        if count % 1500 == 0 || model.len() < 30 {
            assert_tidy(&bench);
            assert!(model.keys().take(200).all(|name| bench.lookup(name).is_some()));
        }
        if bench.dir.flags().contains(InodeFlags::INDEX) && bench.levels() != levels[levels.len() - 1] {
            levels.push(bench.levels());
        }
    }
    assert_eq!((levels, bench.dir.size()), (vec![3, 2, 1], 1024));
}

#[test]
fn neighbouring_leaves_are_joined_when_a_directory_is_packed() {
    for version in 0..3 {
        let mut bench = Bench::new(Setup { version, ..Setup::small() });
        let mut model = fill(&mut bench, 1200, |number| format!("name{number:04}"));
        for name in shuffled(model.clone().into_keys(), 3).into_iter().skip(150) {
            remove(&mut bench, &name);
            model.remove(&name);
        }
        let before = bench.dir.size();
        let (mut from, mut steps) = (0, 0);
        while let Packed::Until(hash) = bench.change(|writer| writer.pack(from)).unwrap() {
            assert_tidy_index(&bench);
            (from, steps) = (hash, steps + 1);
        }
        assert_tidy(&bench);
        assert_holds(&bench.reopened(), &model);
        // 150 names of 16 bytes: three quarters of four leaves, and the root.
        assert!(bench.dir.size() <= 6 * 1024, "{before} -> {} in {steps} steps", bench.dir.size());
        assert_eq!((before - bench.dir.size()) / 1024, steps);
        for name in model.clone().into_keys().skip(20) {
            remove(&mut bench, &name);
            model.remove(&name);
        }
        let mut from = 0;
        while let Packed::Until(hash) = bench.change(|writer| writer.pack(from)).unwrap() {
            from = hash;
        }
        assert_eq!((bench.dir.size(), bench.dir.flags().contains(InodeFlags::INDEX)), (1024, false));
        assert_holds(&bench.reopened(), &model);
    }
}

fn assert_tidy_index(bench: &Bench) {
    let is_indexed = bench.dir.flags().contains(InodeFlags::INDEX);
    assert!(!is_indexed || htree::is_sound(&bench.reader()).unwrap());
}

#[test]
fn names_leave_a_directory_whose_index_is_damaged() {
    let mut bench = Bench::new(Setup { checksums: false, ..Setup::small() });
    let mut model = fill(&mut bench, 300, |number| format!("name{number:04}"));
    bench.cache.write_back().unwrap();
    // The second entry leads where the first one leads.
    bench.damage(0, 44, &[1, 0, 0, 0]);
    let mut bench = bench.reopened();
    for name in shuffled(model.clone().into_keys(), 5) {
        if let Ok(Some(_)) = bench.change(|writer| change::remove(writer, &name)) {
            model.remove(&name);
        }
    }
    let left = bench.listing().unwrap().into_iter().map(|entry| entry.name).collect::<Vec<_>>();
    assert!(left.iter().all(|name| model.contains_key(name)) && left.len() == model.len());
}

fn fill_more(bench: &mut Bench, numbers: std::ops::Range<u32>) -> BTreeMap<Vec<u8>, u32> {
    let mut model = BTreeMap::new();
    for number in numbers {
        let name = format!("more{number}").into_bytes();
        bench.insert(&name, number + 9000).unwrap();
        model.insert(name, number + 9000);
    }
    model
}

/// Names that come and go while a directory is listed by pieces.
struct Changing {
    bench: Bench,
    model: BTreeMap<Vec<u8>, u32>,
    /// Those that were there since the listing began.
    stayed: BTreeMap<Vec<u8>, u32>,
    random: u64,
}

impl Changing {
    fn number(&mut self, below: usize) -> usize {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.random >> 33).unwrap() % below
    }

    fn change(&mut self) {
        for _ in 0..self.number(60) {
            let number = self.number(100_000);
            let name = match self.number(8) {
                0 => format!("{}{}", "x".repeat(247), COLLIDING[number % COLLIDING.len()]),
                1 => format!("{number:0>200}"),
                _ => format!("name{number}"),
            };
            let name = name.into_bytes();
            if !self.model.contains_key(&name) {
                self.bench.insert(&name, 7).unwrap();
                self.model.insert(name, 7);
            }
        }
        for _ in 0..self.number(50) {
            let at = self.number(self.model.len().max(1));
            let Some(name) = self.model.keys().nth(at).cloned() else { break };
            self.bench.change(|writer| change::remove(writer, &name)).unwrap();
            self.model.remove(&name);
            self.stayed.remove(&name);
        }
    }

    /// Lists by pieces with changes in between.
    fn list(&mut self) -> Vec<Vec<u8>> {
        let (mut seen, mut position) = (Vec::new(), 0);
        self.stayed = self.model.clone();
        loop {
            let sequence = [Sequence::Positions, Sequence::Stored][self.number(2)];
            let batch = self.bench.reader().batch(position, sequence).unwrap();
            if batch.entries.is_empty() {
                return seen;
            }
            let count = match sequence {
                Sequence::Positions => 1 + self.number(batch.entries.len()),
                Sequence::Stored => batch.entries.len(),
            };
            let is_whole = count == batch.entries.len();
            let taken = batch.entries.into_iter().take(count);
            for (entry, next) in taken {
                position = next;
                seen.push(entry.name);
            }
            position = if is_whole { batch.next } else { position };
            self.change();
        }
    }
}

#[test]
fn a_listing_has_each_name_once_while_others_come_and_go() {
    for seed in 0..24_u8 {
        let mut bench = Bench::new(Setup { version: seed % 3, ..Setup::small() });
        let model =
            fill(&mut bench, [0, 20, 60, 900][usize::from(seed) % 4], |number| format!("first{number:04}"));
        let mut changing = Changing { bench, model, stayed: BTreeMap::new(), random: u64::from(seed) };
        for _ in 0..4 {
            let mut seen = changing.list();
            assert_eq!(&seen[..2], [b".".to_vec(), b"..".to_vec()]);
            let all = seen.len();
            seen.sort();
            seen.dedup();
            assert_eq!(seen.len(), all, "seed {seed}: a name came twice");
            let missing = changing.stayed.keys().find(|name| seen.binary_search(name).is_err());
            assert_eq!(missing, None, "seed {seed}");
        }
        assert_holds(&changing.bench.reopened(), &changing.model);
    }
}

#[test]
fn a_listing_of_a_damaged_index_has_all_names_that_are_stored() {
    let mut bench = Bench::new(Setup { checksums: false, ..Setup::small() });
    let model = fill(&mut bench, 300, |number| format!("name{number:04}"));
    bench.cache.write_back().unwrap();
    // Levels, the count of entries, the second leaf twice, a hash out of order.
    let damages: [(usize, &[u8]); 4] =
        [(30, &[200]), (34, &[2, 0]), (36, &[2, 0, 0, 0]), (48, &[1, 0, 0, 0])];
    for (offset, bytes) in damages {
        let mut before = vec![0; 1024];
        bench.cache.device().read_at(FIRST * 1024, &mut before).unwrap();
        bench.damage(0, offset, bytes);
        let damaged = bench.reopened();
        assert!(!htree::is_sound(&damaged.reader()).unwrap(), "byte {offset}");
        let mut names: Vec<_> = Listed::new(&damaged).map(|entry| entry.unwrap().name).collect();
        names.sort();
        assert!(names.iter().eq(model.keys()), "byte {offset}");
        bench.damage(0, 0, &before);
    }
    assert!(htree::is_sound(&bench.reopened().reader()).unwrap());
}

/// A whole listing by batches, without the dots.
struct Listed<'b> {
    bench: &'b Bench,
    position: u64,
    batch: std::vec::IntoIter<(DirEntry, u64)>,
}

impl<'b> Listed<'b> {
    fn new(bench: &'b Bench) -> Self {
        Listed { bench, position: 0, batch: Vec::new().into_iter() }
    }
}

impl Iterator for Listed<'_> {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((entry, _)) = self.batch.find(|(entry, _)| !matches!(&entry.name[..], b"." | b"..")) {
                return Some(Ok(entry));
            }
            match self.bench.reader().batch(self.position, Sequence::Stored) {
                Ok(batch) if batch.entries.is_empty() => return None,
                Ok(batch) => {
                    // Else it might never end.
                    assert!(batch.next > self.position);
                    self.position = batch.next;
                    self.batch = batch.entries.into_iter();
                }
                Err(error) if self.position == u64::MAX => panic!("{error}"),
                Err(error) => {
                    self.position = u64::MAX;
                    return Some(Err(error));
                }
            }
        }
    }
}

/// Removes a name behind the back of the code under test.
fn remove(bench: &mut Bench, name: &[u8]) {
    let reader = bench.reader();
    let (role, layout) = (reader.leaf_role(), reader.layout);
    let leaves = (1..reader.count().unwrap()).map(|at| Block(FIRST + u64::from(at)));
    for block in leaves.collect::<Vec<_>>() {
        let bytes = bench.cache.read(block, role).unwrap();
        if let Some(entry) = dirent::find(&bytes, layout, name).unwrap() {
            let mut tx = bench.tx();
            assert!(dirent::remove(tx.edit(block, role).unwrap(), layout, entry.offset).unwrap());
            tx.commit();
            return;
        }
    }
    panic!("{name:?} is not there");
}

#[test]
fn scattered_room_in_a_leaf_is_used_before_it_is_split() {
    let mut bench = Bench::new(Setup { checksums: false, ..Setup::small() });
    let mut model = fill(&mut bench, 200, |number| format!("name{number:04}"));
    for number in (0..200).step_by(2) {
        let name = format!("name{number:04}").into_bytes();
        remove(&mut bench, &name);
        model.remove(&name);
    }
    let size = bench.dir.size();
    // Too long for one hole of 16 or 32 bytes, not for all the holes of a leaf.
    for number in 0..6u32 {
        let name = format!("{number:0>150}").into_bytes();
        bench.insert(&name, 7).unwrap();
        model.insert(name, 7);
    }
    assert_eq!(bench.dir.size(), size);
    assert_holds(&bench.reopened(), &model);
}

#[test]
fn leaves_that_lost_all_names_take_new_ones() {
    for checksums in [false, true] {
        let mut bench = Bench::new(Setup { checksums, ..Setup::small() });
        let model = fill(&mut bench, 300, |number| format!("name{number:04}"));
        for name in model.keys() {
            remove(&mut bench, name);
        }
        assert_eq!(bench.reopened().listing().unwrap(), []);
        let size = bench.dir.size();
        let model = fill_more(&mut bench, 0..100);
        assert_eq!(bench.dir.size(), size);
        assert_holds(&bench.reopened(), &model);
    }
}

#[test]
fn readers_pass_over_a_broken_index_and_writers_refuse_it() {
    let mut bench = Bench::new(Setup { checksums: false, ..Setup::small() });
    let model = fill(&mut bench, 300, |number| format!("name{number:04}"));
    // Hash version, information length, levels, flags, limit, count, first leaf: root itself, outside.
    let damages: [(usize, &[u8]); 8] = [
        (28, &[6]),
        (29, &[0]),
        (30, &[200]),
        (31, &[1]),
        (32, &[0xFF, 0xFF]),
        (34, &[0, 0]),
        (36, &[0, 0, 0, 0]),
        (36, &[0xFF, 0xFF, 0xFF, 0x0F]),
    ];
    for (offset, bytes) in damages {
        let sound = bench.reopened();
        let mut before = vec![0; 1024];
        sound.cache.device().read_at(FIRST * 1024, &mut before).unwrap();
        bench.damage(0, offset, bytes);
        let mut damaged = sound.reopened();
        assert_holds(&damaged, &model);
        // Hashes below the second entry's lead to the damaged first one.
        let refused = (0..50).filter(|number| damaged.insert(format!("x{number}").as_bytes(), 5).is_err());
        assert!(refused.count() > 0, "byte {offset}");
        bench.damage(0, 0, &before);
    }
}

#[test]
fn an_index_that_leads_in_a_circle_ends() {
    let mut bench = Bench::new(Setup { checksums: false, version: 0, ..Setup::small() });
    fill(&mut bench, 300, |number| format!("name{number:04}"));
    bench.cache.write_back().unwrap();
    let hash = ondisk::dirhash::NameHasher::new(ondisk::dirhash::HashVersion::Legacy, false, [0; 4]);
    let hash = hash.hash(b"absent").major;
    // Every entry behind the first: the wanted hash going on, in the first leaf.
    let entry: Vec<u8> = (hash | 1).to_le_bytes().into_iter().chain([1, 0, 0, 0]).collect();
    bench.damage(0, 34, &124u16.to_le_bytes());
    bench.damage(0, 40, &entry.repeat(123));
    assert_eq!(bench.reopened().lookup(b"absent"), None);
}

#[test]
fn broken_entries_end_the_listing_with_their_place() {
    let mut bench = Bench::new(Setup { checksums: false, indexed: false, ..Setup::small() });
    fill(&mut bench, 200, |number| format!("name{number:04}"));
    bench.cache.write_back().unwrap();
    bench.damage(1, 16 + 4, &[7, 0]);
    let damaged = bench.reopened();
    let listing = linear::Listing::new(&damaged.cache, &damaged.format, &Row, damaged.dir.clone()).unwrap();
    let (names, errors): (Vec<_>, Vec<_>) = listing.partition(std::result::Result::is_ok);
    // Block 0 holds 62 names, block 1 one before the damage.
    assert_eq!((names.len(), errors.len()), (63, 1));
    let told = errors[0].as_ref().unwrap_err().to_string();
    assert_eq!(told, "directory inode 12: file block 1: entry at byte 16: length 7 is below 12");
    assert!(damaged.reader().search(b"name0199").is_err());
}

#[test]
fn a_changed_bit_shows_under_checksums() {
    let mut bench = Bench::new(Setup::small());
    fill(&mut bench, 300, |number| format!("name{number:04}"));
    bench.cache.write_back().unwrap();
    bench.damage(1, 9, b"X");
    assert!(bench.reopened().listing().is_err());
}

#[test]
fn names_are_learned_once_and_never_taken_for_absent() {
    let mut bench = Bench::new(Setup { indexed: false, ..Setup::small() });
    let model = fill(&mut bench, 500, |number| format!("name{number:04}"));
    let known = KnownNames::default();
    assert!(bench.reader().is_known(&known, b"name0007").unwrap());
    assert!(model.keys().all(|name| bench.reader().is_known(&known, name).unwrap()));
    // With all names known, an absent one is known without reading a block.
    let damaged = bench.reopened();
    damaged.damage(3, 0, &[0xFF; 16]);
    assert!(!damaged.reader().is_known(&known, b"absent").unwrap());
    assert!(damaged.reader().is_known(&known, b"name0499").is_err());
    // A name of an update that was dropped is kept, and the blocks decide.
    known.add(inode(12), b"dropped");
    assert!(!bench.reader().is_known(&known, b"dropped").unwrap());
    known.add(inode(13), b"elsewhere");
    assert_eq!(known.may_hold(inode(12), b"elsewhere"), Some(false));
    assert_eq!(known.may_hold(inode(13), b"elsewhere"), None);
}

#[test]
fn what_linux_leaves_in_a_root_is_no_tail() {
    let mut bench = Bench::new(Setup::small());
    let model = fill(&mut bench, 300, |number| format!("name{number:04}"));
    // Turning a leaf into a root, Linux keeps the middle of the tail: 12, 0, 0, 0xDE.
    let role = bench.reader().index_role(Kind::Root);
    let mut tx = bench.tx();
    tx.edit(Block(FIRST), role).unwrap()[1016..1020].copy_from_slice(&[12, 0, 0, 0xDE]);
    tx.commit();
    assert_holds(&bench.reopened(), &model);
}

#[test]
fn directories_that_would_be_damaged_are_refused() {
    for flag in [InodeFlags::ENCRYPT, InodeFlags::CASEFOLD] {
        let mut bench = Bench::new(Setup::small());
        bench.dir.set_flags(flag);
        assert!(matches!(bench.insert(b"x", 5), Err(Error::Unsupported(_))));
    }
    let mut bench = Bench::new(Setup::small());
    fill(&mut bench, 100, |number| format!("name{number:04}"));
    bench.format.features.compat.set(Compat::DIR_INDEX, false);
    assert!(matches!(bench.insert(b"x", 5), Err(Error::Unsupported(_))));
    bench.dir.set_size(1 << 50);
    assert!(bench.reader().search(b"x").is_err(), "larger than the volume");
    for (name, expected) in [(vec![b'x'; 256], "name too long"), (vec![], "invalid"), (vec![b'/'], "invalid")]
    {
        let told = Bench::new(Setup::small()).insert(&name, 5).unwrap_err().to_string();
        assert!(told.starts_with(expected), "{told}");
    }
}

#[test]
fn inline_entries_are_listed_with_both_dots() {
    let format = Setup::small().format();
    let layout = Layout::new(format.geometry.block_size, &format.features);
    let bare = Layout { checksums: false, ..layout };
    let mut contents = [0; 60 + 24];
    contents[0] = 2;
    let first = Record::new(Name::new(b"first").unwrap(), inode(20), FileType::Regular, layout);
    let second = Record::new(Name::new(b"second").unwrap(), inode(21), FileType::Symlink, layout);
    for (range, record) in [(4..60, first), (60..84, second)] {
        let region = &mut contents[range];
        let len = u16::try_from(region.len()).unwrap();
        region[4..6].copy_from_slice(&len.to_le_bytes());
        let room = dirent::find_room(region, bare, record.needs()).unwrap().unwrap();
        dirent::insert_at(region, bare, room, &record);
    }
    let dir = Inode::blank(inode(12), 256);
    let all = linear::inline_entries(&format, &dir, &contents[..60], &contents[60..]).unwrap();
    let all: Vec<_> = all.iter().map(|entry| (&entry.name[..], entry.inode.get())).collect();
    assert_eq!(all, [(&b"."[..], 12), (b"..", 2), (b"first", 20), (b"second", 21)]);
    contents[64] = 3;
    assert!(linear::inline_entries(&format, &dir, &contents[..60], &contents[60..]).is_err());
    assert!(linear::inline_entries(&format, &dir, &[0; 3], &[]).is_err());
}

fn setups() -> impl Strategy<Value = Setup> {
    let shape = (10u32..=16, any::<bool>(), any::<bool>(), any::<bool>(), 0u8..3, any::<bool>());
    shape.prop_map(|(log2, checksums, file_types, indexed, version, unsigned)| Setup {
        block_size: BlockSize::from_log2(log2).unwrap(),
        checksums,
        file_types,
        indexed,
        large: false,
        version,
        unsigned,
    })
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_filter("not in names", |byte| !matches!(byte, 0 | b'/'));
    prop_oneof![
        prop::collection::vec(byte.clone(), 2..40),
        prop::collection::vec(byte, 200..=255),
        (0u32..500).prop_map(|number| format!("file{number:03}").into_bytes()),
    ]
    .prop_filter("not there from the start", |name| name != b"..")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_directory_holds_what_a_map_holds(setup in setups(), names in prop::collection::vec(name(), 0..600)) {
        let mut bench = Bench::new(setup);
        let mut model = BTreeMap::new();
        for (number, name) in (50..).zip(names) {
            prop_assert_eq!(bench.lookup(&name), model.get(&name).copied());
            if let Entry::Vacant(absent) = model.entry(name) {
                bench.insert(absent.key(), number).unwrap();
                absent.insert(number);
            }
        }
        assert_holds(&bench, &model);
        let reopened = bench.reopened();
        assert_holds(&reopened, &model);
        let dot = reopened.reader().search(b".").unwrap().unwrap();
        prop_assert_eq!(dot, (inode(12), setup.file_types.then_some(FileType::Directory)));
    }

    #[test]
    fn damage_never_panics_and_never_loops(
        setup in setups(),
        damages in prop::collection::vec((0u64..6, any::<u16>(), prop::collection::vec(any::<u8>(), 1..9)), 1..12),
    ) {
        let setup = Setup { checksums: false, ..setup }.with_blocks_of(1024);
        let mut bench = Bench::new(setup);
        fill(&mut bench, 250, |number| format!("name{number:04}"));
        bench.cache.write_back().unwrap();
        for (block, offset, bytes) in damages {
            bench.damage(block, usize::from(offset % 1016), &bytes);
        }
        let mut bench = bench.reopened();
        let _ = bench.listing();
        let _ = Listed::new(&bench).take_while(Result::is_ok).count();
        for number in 0..20 {
            let _ = bench.reader().search(format!("name{number:04}").as_bytes());
            let _ = bench.insert(format!("new{number:04}").as_bytes(), 5);
        }
    }

    #[test]
    fn any_bytes_are_read_without_harm(
        setup in setups(),
        blocks in prop::collection::vec(prop::collection::vec(prop_oneof![any::<u8>(), Just(0), Just(1)], 64..1024), 1..4),
        index in any::<bool>(),
    ) {
        let setup = Setup { checksums: false, ..setup }.with_blocks_of(1024);
        let mut bench = Bench::new(setup);
        bench.dir.set_size(blocks.len() as u64 * 1024);
        if index {
            bench.dir.set_flags(InodeFlags::INDEX);
        }
        for (at, bytes) in (0..).zip(&blocks) {
            bench.damage(at, 0, bytes);
        }
        let mut bench = bench.reopened();
        let _ = bench.listing();
        let _ = Listed::new(&bench).take_while(Result::is_ok).count();
        let _ = bench.reader().search(b"name");
        let _ = bench.insert(b"name", 5);
        let _ = linear::inline_entries(&bench.format, &bench.dir, &blocks[0][..60], &blocks[0][60..]);
    }
}
