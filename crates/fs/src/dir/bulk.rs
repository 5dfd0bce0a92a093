//! Directories written whole: all names are known, so that the blocks can be counted and taken in one run.
//!
//! Owns: how names divide into blocks, and the index over them. Excludes: inodes, and whether names differ, which
//! the caller knows. Leaves of an index are filled to three quarters, so that the next names find room; to the
//! brim where the index could not reach all of them otherwise.

use std::ops::Range;

use ondisk::dirent::{self, Layout, Name, Record};
use ondisk::dirhash::HashVersion;
use ondisk::features::{Compat, Features, Incompat};
use ondisk::htree::{self as index, IndexEntry, Kind};
use ondisk::inode::{FileType, Inode, InodeFlags};
use ondisk::units::{Block, BlockSize, FileBlock, InodeNumber, low_u32};

use super::{DirMut, SMALL_DIR_MAX, htree};
use crate::error::{Error, Result};
use crate::file::{Allocation, Unplaced};
use crate::space::DataRequest;
use crate::tx::Tx;
use ondisk::invariant;

/// Bytes of `.` and `..`.
const DOTS: u64 = 24;

/// A name that a directory is to hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirName<'n> {
    /// The name.
    pub name: &'n [u8],
    /// Inode that it names.
    pub inode: InodeNumber,
    /// The type of that.
    pub file_type: FileType,
}

/// Sizes of the names of a directory, before they are written: enough to bound its blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NameSizes {
    bytes: u64,
    longest: u64,
}

impl NameSizes {
    /// One name more.
    pub fn add(&mut self, name_len: usize) {
        let entry = dirent::entry_len(name_len) as u64;
        self.bytes = self.bytes.saturating_add(entry);
        self.longest = self.longest.max(entry);
    }

    /// Blocks that a directory of these names takes at most on a volume with such blocks and features; `None` if
    /// it may be that none can hold them.
    #[must_use]
    pub fn blocks_at_most(&self, block_size: BlockSize, features: &Features) -> Option<u64> {
        let space = Layout::new(block_size, features).leaf_space() as u64;
        // A block is left when not even the longest fits any more.
        let leaves = |fill: u64| self.bytes.div_ceil((fill + 4).saturating_sub(self.longest).max(1));
        let blocks = if self.bytes + DOTS <= space {
            1
        } else if features.compat.contains(Compat::DIR_INDEX) {
            let reach =
                |leaves: &u64| index_blocks(*leaves, block_size, features).map(|nodes| nodes + leaves);
            reach(&leaves(space / 4 * 3)).or_else(|| reach(&leaves(space)))?
        } else {
            leaves(space) + 1
        };
        let large = features.incompat.contains(Incompat::LARGEDIR);
        let bytes = blocks.checked_mul(u64::from(block_size.bytes()))?;
        (large || bytes < SMALL_DIR_MAX).then_some(blocks)
    }
}

/// Blocks of an index over a number of leaves; `None` if one of the levels that are allowed can't reach them.
fn index_blocks(leaves: u64, block_size: BlockSize, features: &Features) -> Option<u64> {
    let layout = Layout::new(block_size, features);
    let (root, node) = (u64::from(Kind::Root.limit(layout)), u64::from(Kind::Node.limit(layout)));
    let (mut blocks, mut width, mut levels) = (1, leaves, 1);
    while width > root {
        width = width.div_ceil(node);
        blocks += width;
        levels += 1;
    }
    let large = features.incompat.contains(Incompat::LARGEDIR);
    let reachable = blocks + leaves <= u64::from(index::MAX_BLOCKS);
    (reachable && levels <= index::max_levels(large)).then_some(blocks)
}

impl DirMut<'_, '_> {
    /// Gives a new directory all its names. It has no block yet, or those of an empty one, which are kept if the names
    /// fit the first.
    ///
    /// # Errors
    /// [`Error::DirectoryFull`], [`Error::NoSpace`]; a name that can't be one.
    pub(crate) fn write_whole(&mut self, parent: InodeNumber, names: &[DirName<'_>]) -> Result<()> {
        self.tx.session.known_names.forget(self.dir.number());
        let layout = self.layout;
        let physical = |number| self.tx.format.physical_number(number);
        let parent = physical(parent);
        let dots = dirent::dots(layout, physical(self.dir.number()), parent);
        let mut records = dots.to_vec();
        for name in names {
            let checked = Name::new(name.name).map_err(|bad| Error::Invalid(bad.to_string()))?;
            records.push(Record::new(checked, physical(name.inode), name.file_type, layout));
        }
        let size: usize = records.iter().map(Record::needs).sum();
        if size <= layout.leaf_space() && self.dir.size() > 0 {
            let block = self.reader().block_at(FileBlock(0))?;
            return self.refill_leaf(FileBlock(0), block, records);
        }
        let format = self.tx.format;
        let version = HashVersion::from_raw(format.hash_version);
        let indexed = size > layout.leaf_space() && format.features.compat.contains(Compat::DIR_INDEX);
        match version.filter(|_| indexed) {
            Some(version) => write_indexed(self, parent, version, records.split_off(2)),
            None => write_linear(self, &records),
        }
    }
}

fn write_linear(writer: &mut DirMut<'_, '_>, records: &[Record<'_>]) -> Result<()> {
    let pieces = divide(records.iter().map(Record::needs), writer.layout.leaf_space());
    let blocks = allocate(writer, pieces.len() as u64)?;
    for (at, (piece, block)) in (0..).zip(pieces.into_iter().zip(blocks)) {
        let inside = invariant!(records.get(piece), "names are divided into parts of their list");
        writer.fill_leaf(FileBlock(at), block, inside.iter().copied())?;
    }
    Ok(())
}

fn write_indexed(
    writer: &mut DirMut<'_, '_>,
    parent: InodeNumber,
    version: HashVersion,
    records: Vec<Record<'_>>,
) -> Result<()> {
    let hasher = htree::hasher(writer.tx.format, version);
    let mut hashed: Vec<_> = records.into_iter().map(|record| (hasher.hash(record.name()), record)).collect();
    hashed.sort_unstable_by(|(a, left), (b, right)| (a, left.name()).cmp(&(b, right.name())));
    let (format, space) = (writer.tx.format, writer.layout.leaf_space());
    let divided = |fill| {
        let pieces = divide(hashed.iter().map(|(_, record)| record.needs()), fill);
        let nodes = index_blocks(pieces.len() as u64, format.geometry.block_size, &format.features)?;
        Some((pieces, nodes))
    };
    let Some((pieces, nodes)) = divided(space / 4 * 3).or_else(|| divided(space)) else {
        return Err(Error::DirectoryFull(format!(
            "no index of blocks of this size reaches {} names",
            hashed.len()
        )));
    };
    let blocks = allocate(writer, pieces.len() as u64 + nodes)?;
    writer.dir.set_flags(writer.dir.flags() | InodeFlags::INDEX);
    let mut entries = Vec::with_capacity(pieces.len());
    let mut before = None;
    for (at, piece) in (1..).zip(pieces) {
        let inside = invariant!(hashed.get(piece), "names are divided into parts of their list");
        let first = inside.first().map_or(0, |(hash, _)| hash.major);
        // The lowest bit says that names of this hash are in the leaf before, too.
        let hash = first | u32::from(before == Some(first));
        before = inside.last().map(|(hash, _)| hash.major);
        entries.push(IndexEntry { hash, block: FileBlock(at) });
        writer.fill_leaf(
            FileBlock(at),
            at_file_block(&blocks, at)?,
            inside.iter().map(|(_, record)| *record),
        )?;
    }
    write_index(writer, parent, version, entries, &blocks)
}

/// Nodes behind the leaves, level by level, and the root over the last. The parent is called as on disk.
fn write_index(
    writer: &mut DirMut<'_, '_>,
    parent: InodeNumber,
    version: HashVersion,
    mut level: Vec<IndexEntry>,
    blocks: &[Block],
) -> Result<()> {
    let layout = writer.layout;
    let (mut at, mut levels) = (low_u32(level.len() as u64) + 1, 1_u8);
    while level.len() > usize::from(Kind::Root.limit(layout)) {
        let role = writer.reader().index_role(Kind::Node);
        let mut above = Vec::new();
        for entries in level.chunks(usize::from(Kind::Node.limit(layout))) {
            let block = at_file_block(blocks, at)?;
            writer.hide_until_link(block)?;
            index::init_node(writer.tx.create(block, role), layout, entries.iter().copied());
            let hash = entries.first().map_or(0, |entry| entry.hash);
            above.push(IndexEntry { hash, block: FileBlock(at) });
            at += 1;
        }
        level = above;
        levels += 1;
    }
    let role = writer.reader().index_role(Kind::Root);
    let first = level.first().map_or(FileBlock(1), |entry| entry.block);
    let own = writer.tx.format.physical_number(writer.dir.number());
    let root = at_file_block(blocks, 0)?;
    writer.hide_until_link(root)?;
    let bytes = writer.tx.create(root, role);
    index::init_root(bytes, layout, (own, parent), version, first);
    index::raise_root(bytes, layout, levels, first);
    for (position, entry) in level.iter().skip(1).enumerate() {
        index::insert_after(bytes, Kind::Root, layout, position, *entry);
    }
    Ok(())
}

fn at_file_block(blocks: &[Block], at: u32) -> Result<Block> {
    blocks.get(at as usize).copied().ok_or(Error::NoSpace)
}

/// Pieces of at most `most` bytes, or of one entry.
fn divide(sizes: impl Iterator<Item = usize>, most: usize) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    let (mut start, mut used, mut end) = (0, 0, 0);
    for size in sizes {
        if used + size > most && end > start {
            pieces.push(start..end);
            (start, used) = (end, 0);
        }
        used += size;
        end += 1;
    }
    pieces.push(start..end);
    pieces
}

/// Takes all blocks of the directory, in one run where there is one, instead of those that it has.
fn allocate(writer: &mut DirMut<'_, '_>, count: u64) -> Result<Vec<Block>> {
    let format = writer.tx.format;
    let bytes = count << format.geometry.block_size.log2();
    if bytes >= SMALL_DIR_MAX && !format.has_incompat(Incompat::LARGEDIR) {
        return Err(Error::DirectoryFull(format!("it would take {bytes} bytes")));
    }
    if writer.dir.size() > 0 {
        writer.growth.cut(writer.tx, writer.dir, FileBlock(0))?;
    }
    let count = low_u32(count);
    let mut blocks = Vec::with_capacity(count as usize);
    let mut ahead = Allocation::default();
    loop {
        let at = low_u32(blocks.len() as u64);
        if at >= count {
            break;
        }
        let ask = |tx: &Tx<'_>, dir: &Inode| {
            Ok(DataRequest {
                goal: tx.space.home(dir.number()),
                logical: FileBlock(at),
                count: count - at,
                owner: dir.number(),
                directory: None,
                growing: false,
                process: 0,
                file: None,
            })
        };
        let hole = Unplaced { logical: FileBlock(at), count: count - at, unwritten: false, ask: &ask };
        let run = ahead.map(writer.tx, writer.dir, hole)?;
        blocks.extend((run.start.0..).map(Block).take(run.count as usize));
    }
    writer.dir.set_size(bytes);
    Ok(blocks)
}
