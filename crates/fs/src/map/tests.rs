//! Maps against a naive model: after random insertions every file block is where the model has it.

use std::collections::BTreeMap;
use std::sync::Arc;

use ondisk::block_map;
use ondisk::extent::{Entries, Node};
use ondisk::inode::{FileType, Inode};
use ondisk::units::{Block, FileBlock, InodeNumber};
use proptest::prelude::*;

use super::{LastLeaf, NewRun, State};
use crate::device::{Device, MemoryDevice};
use crate::mkfs::{FsType, Options, Plan};
use crate::options::{OpenOptions, WriteOrder};
use crate::ranges::FileBlocks;
use crate::tx::Tx;
use crate::volume::Volume;

/// By file block: disk block, and whether it is unwritten.
type Model = BTreeMap<u32, (u64, bool)>;

fn volume(fs_type: FsType, block_size: u32) -> Volume {
    opened(fs_type, block_size, &OpenOptions::new().write(true).unordered(true))
}

/// A volume of which nodes that the device leads to move before they change.
fn soft_volume() -> Volume {
    opened(FsType::Ext4, 1024, &OpenOptions::new().write(true).ordering(WriteOrder::Softdep))
}

fn opened(fs_type: FsType, block_size: u32, open: &OpenOptions) -> Volume {
    let mut options = Options::new(fs_type);
    options.block_size = Some(block_size);
    let bytes = 64 << 20;
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes));
    Plan::new(&options, bytes).unwrap().write(&*device).unwrap();
    let mut volume = Volume::open(device, open).unwrap();
    // The places of these tests are made up.
    let shared = Arc::get_mut(&mut volume.core.shared).unwrap();
    shared.format = crate::versioned::Versioned::new(shared.format.without_zone());
    volume
}

fn file(volume: &Volume) -> Inode {
    let mut inode = Inode::blank(InodeNumber::constant(12), volume.format.geometry.inode_size);
    inode.raw_mut().i_mode.set(FileType::Regular.mode_bits());
    volume.tx(volume.context()).map(&mut inode).init();
    inode
}

/// Inserts what of a run is still a hole in the model, in both.
fn add(tx: &mut Tx<'_>, inode: &mut Inode, model: &mut Model, run: NewRun) {
    let mut left = run.count;
    while left > 0 {
        let done = run.count - left;
        let at = run.logical.0 + done;
        let free = (at..at + left).take_while(|block| !model.contains_key(block)).count();
        let free = u32::try_from(free).unwrap();
        if free > 0 {
            let start = Block(run.start.0 + u64::from(done));
            let piece = NewRun { logical: FileBlock(at), start, count: free, unwritten: run.unwritten };
            tx.map(inode).insert(piece).unwrap();
            model.extend((0..free).map(|n| (at + n, (start.0 + u64::from(n), run.unwritten))));
        }
        left -= free.max(1);
    }
}

fn verify(tx: &Tx<'_>, inode: &Inode, model: &Model, end: u64) {
    let mut covered = 0;
    for segment in tx.view().map(inode).segments(FileBlocks::new(0, end)) {
        let segment = segment.unwrap();
        assert_eq!(u64::from(segment.logical.0), covered, "no gap and no overlap");
        covered += segment.count;
        for offset in 0..segment.count {
            let at = segment.logical.0 + u32::try_from(offset).unwrap();
            let expected = model.get(&at).copied();
            let found = match segment.state {
                State::Hole => None,
                State::Mapped(start) => Some((start.0 + offset, false)),
                State::Unwritten(start) => Some((start.0 + offset, true)),
            };
            assert_eq!(found, expected, "file block {at}");
        }
    }
    assert_eq!(covered, end);
    let (mut near, map) = (LastLeaf::default(), tx.view().map(inode));
    for at in (0..end).step_by(7).map(|at| FileBlock(u32::try_from(at).unwrap())) {
        assert_eq!(map.lookup_near(&mut near, at).unwrap(), map.lookup(at).unwrap());
    }
}

/// Runs of a file of 4,000 blocks, on disk blocks inside the volume.
fn runs() -> impl Strategy<Value = Vec<(u32, u64, u32, bool)>> {
    prop::collection::vec((0_u32..4000, 9000_u64..30_000, 1_u32..40, any::<bool>()), 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn extents(runs in runs()) {
        let volume = volume(FsType::Ext4, 1024);
        let mut inode = file(&volume);
        let mut tx = volume.tx(volume.context());
        let mut model = Model::new();
        for (logical, start, count, unwritten) in runs {
            let run = NewRun { logical: FileBlock(logical), start: Block(start), count, unwritten };
            add(&mut tx, &mut inode, &mut model, run);
        }
        verify(&tx, &inode, &model, 4200);
    }

    #[test]
    fn block_pointers(runs in runs()) {
        let volume = volume(FsType::Ext2, 1024);
        let mut inode = file(&volume);
        let mut tx = volume.tx(volume.context());
        let mut model = Model::new();
        for (logical, start, count, _) in runs {
            // Across the borders of the inode, one, two and three levels.
            let logical = FileBlock(if logical % 3 == 0 { logical } else { logical % 600 });
            let run = NewRun { logical, start: Block(start), count, unwritten: false };
            add(&mut tx, &mut inode, &mut model, run);
        }
        verify(&tx, &inode, &model, 4200);
    }
}

/// Ranges of file blocks that rise and do not overlap.
fn ranges() -> impl Strategy<Value = Vec<FileBlocks>> {
    let steps = prop::collection::vec((0_u64..60, 1_u64..30), 1..120);
    steps.prop_map(|steps| {
        let mut at = 0;
        let range = |(gap, count)| {
            let start = at + gap;
            at = start + count;
            FileBlocks::new(start, at)
        };
        steps.into_iter().map(range).collect()
    })
}

/// Gives what is mapped in some ranges a state, in both.
fn convert(tx: &mut Tx<'_>, inode: &mut Inode, model: &mut Model, ranges: &[FileBlocks], unwritten: bool) {
    if unwritten {
        for range in ranges {
            tx.map(inode).set_unwritten(*range, true).unwrap();
        }
    } else {
        tx.map(inode).set_all_written(ranges).unwrap();
    }
    for range in ranges {
        let blocks = u32::try_from(range.start).unwrap()..u32::try_from(range.end).unwrap();
        model.range_mut(blocks).for_each(|(_, block)| block.1 = unwritten);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn many_ranges_get_a_state_at_once(
        runs in runs(),
        rounds in prop::collection::vec((ranges(), any::<bool>()), 1..6),
        soft in any::<bool>(),
    ) {
        let volume = if soft { soft_volume() } else { volume(FsType::Ext4, 1024) };
        let mut inode = file(&volume);
        let mut model = Model::new();
        let mut tx = volume.tx(volume.context());
        for (logical, start, count, _) in runs {
            // Long extents without holes between them, and short ones.
            let run = NewRun { logical: FileBlock(logical), start: Block(start), count: 8 * count, unwritten: true };
            add(&mut tx, &mut inode, &mut model, run);
        }
        for (ranges, unwritten) in rounds {
            convert(&mut tx, &mut inode, &mut model, &ranges, unwritten);
            verify(&tx, &inode, &model, 4200);
        }
    }
}

#[test]
fn conversions_of_one_leaf_share_its_change() {
    let volume = volume(FsType::Ext4, 1024);
    let mut inode = file(&volume);
    let mut model = Model::new();
    let mut tx = volume.tx(volume.context());
    let run = NewRun { logical: FileBlock(0), start: Block(9000), count: 20_000, unwritten: true };
    add(&mut tx, &mut inode, &mut model, run);
    let second: Vec<_> = (0..5000).map(|at| FileBlocks::new(4 * at, 4 * at + 1)).collect();
    convert(&mut tx, &mut inode, &mut model, &second, false);
    verify(&tx, &inode, &model, 20_000);
    // 10,000 extents fill 120 leaves of 84; half full ones would be 238.
    let nodes = tx.view().map(&inode).sealed_blocks().unwrap().len();
    assert!(nodes < 170, "{nodes} nodes");
    // All of them are one extent again.
    convert(&mut tx, &mut inode, &mut model, &[FileBlocks::new(0, 20_000)], false);
    verify(&tx, &inode, &model, 20_000);
    tx.map(&mut inode).tidy().unwrap();
    assert!(tx.view().map(&inode).sealed_blocks().unwrap().is_empty());
    assert_eq!(inode.sectors(volume.format.geometry.block_size), 0);
}

#[test]
fn the_longest_extents_of_both_kinds_become_each_other() {
    let volume = volume(FsType::Ext4, 1024);
    let mut inode = file(&volume);
    let mut tx = volume.tx(volume.context());
    let run = NewRun { logical: FileBlock(0), start: Block(9000), count: 32_768, unwritten: false };
    tx.map(&mut inode).insert(run).unwrap();
    for unwritten in [true, false] {
        tx.map(&mut inode).set_unwritten(FileBlocks::new(0, 32_768), unwritten).unwrap();
        let pieces: Vec<_> = tx.view().map(&inode).segments(FileBlocks::new(0, 32_768)).collect();
        // 32,767 blocks are the most that an extent says of itself to be unwritten.
        assert_eq!(pieces.len(), if unwritten { 2 } else { 1 });
    }
}

#[test]
fn a_tree_of_three_levels_grows_from_both_ends() {
    let volume = volume(FsType::Ext4, 1024);
    for rising in [true, false] {
        let mut inode = file(&volume);
        let mut tx = volume.tx(volume.context());
        let mut model = Model::new();
        for step in 0..10_000_u32 {
            let at = if rising { step } else { 9999 - step };
            let start = Block(9000 + u64::from(at) * 2);
            let run = NewRun { logical: FileBlock(2 * at), start, count: 1, unwritten: false };
            add(&mut tx, &mut inode, &mut model, run);
        }
        // 84 entries fit a node of 1 KiB: 10,000 extents need leaves, a level above them, and the root.
        let depth = u16::from_le_bytes([inode.raw().i_block[6], inode.raw().i_block[7]]);
        assert!(depth >= 2, "depth {depth}");
        verify(&tx, &inode, &model, 20_000);
    }
}

/// A leaf that begins before its neighbour ends is right by itself. A change of it would carry its first key past that
/// neighbour's: an error, and no index that nobody can read.
#[test]
fn a_leaf_that_does_not_fit_its_index_is_not_stored() {
    let volume = volume(FsType::Ext4, 1024);
    let mut inode = file(&volume);
    let mut tx = volume.tx(volume.context());
    for at in 0..200_u32 {
        let start = Block(9000 + u64::from(at) * 2);
        let run = NewRun { logical: FileBlock(2 * at), start, count: 1, unwritten: false };
        tx.map(&mut inode).insert(run).unwrap();
    }
    let root = Node::parse(&inode.raw().i_block).unwrap();
    let Entries::Index(children) = root.entries else { panic!("the tree has no index") };
    assert!(root.depth == 1 && children.len() > 1);
    let role = tx.view().map(&inode).node_role();
    let leaf = tx.edit(children.last().unwrap().node, role).unwrap();
    leaf[12..16].copy_from_slice(&1_u32.to_le_bytes());
    let run = NewRun { logical: FileBlock(1000), start: Block(9001), count: 1, unwritten: false };
    let refused = tx.map(&mut inode).insert(run).unwrap_err();
    assert!(refused.to_string().contains("out of order"), "{refused}");
}

#[test]
fn an_index_without_entries_is_damage_for_readers_and_writers() {
    let volume = volume(FsType::Ext4, 1024);
    let mut inode = file(&volume);
    let mut tx = volume.tx(volume.context());
    Node { depth: 1, capacity: 4, entries: Entries::Index(Vec::new()) }.store(&mut inode.raw_mut().i_block);
    let refused = tx.view().map(&inode).lookup(FileBlock(0)).unwrap_err();
    assert!(matches!(refused, crate::Error::Corrupt(_)), "{refused}");
    let run = NewRun { logical: FileBlock(0), start: Block(9000), count: 1, unwritten: false };
    let refused = tx.map(&mut inode).insert(run).unwrap_err();
    assert!(matches!(refused, crate::Error::Corrupt(_)), "{refused}");
}

#[test]
fn the_last_block_of_a_triple_indirection_is_reached() {
    let volume = volume(FsType::Ext2, 1024);
    let mut inode = file(&volume);
    let mut tx = volume.tx(volume.context());
    let limit = block_map::limit(volume.format.geometry.block_size);
    let last = FileBlock(u32::try_from(limit - 1).unwrap());
    let run = NewRun { logical: last, start: Block(9000), count: 1, unwritten: false };
    tx.map(&mut inode).insert(run).unwrap();
    let found = tx.view().map(&inode).lookup(last).unwrap();
    assert_eq!((found.count, found.state), (1, State::Mapped(Block(9000))));
    // The hole before it is crossed in few steps, not block by block.
    assert!(tx.view().map(&inode).segments(FileBlocks::new(0, limit)).count() < 20);
    let behind = NewRun { count: 2, ..run };
    assert!(tx.map(&mut inode).insert(behind).is_err());
}
