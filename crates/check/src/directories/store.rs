//! The new blocks of a directory put where its old ones are: those left over are given back, those that
//! lack are taken, and the map is rewritten where it has to change.

use ondisk::block_map::{self, DIRECT, ROOT_SLOTS};
use ondisk::extent::{self, Child, Entries, Extent, MAX_WRITTEN, Node};
use ondisk::inode::{I_BLOCK_LEN, Inode, InodeFlags};
use ondisk::units::{Block, FileBlock, low_u32};

use super::blocks::Blocks;
use crate::facts::Facts;
use crate::staged::staging;
use crate::subject::Subject;
use platfs_device::Result;

/// Stores the contents of a directory, its map, size and record. `false` if there is no room for it;
/// then nothing was changed.
///
/// # Errors
/// Repairs take more memory than they may.
pub(super) fn store(
    subject: &Subject,
    facts: &Facts,
    inode: &mut Inode,
    old: &Blocks,
    contents: &[Vec<u8>],
) -> Result<bool> {
    let have: Vec<Block> = old.each().map(|(_, block)| block).collect();
    let dense = old.end() == old.mapped();
    let mut placed = have.clone();
    if !(dense && contents.len() == have.len()) {
        let Some(blocks) = place(subject, facts, &have, contents.len(), dense) else { return Ok(false) };
        let mut map =
            NewMap { subject, facts, spare: old.nodes.clone(), used: Vec::new(), blocks: Vec::new() };
        let mut root = [0; I_BLOCK_LEN];
        let extents = inode.flags().contains(InodeFlags::EXTENTS);
        let made =
            if extents { map.extents(&blocks, inode, &mut root) } else { map.pointers(&blocks, &mut root) };
        if made.is_none() {
            let used = std::mem::take(&mut map.used);
            release(subject, facts, blocks.iter().chain(&used), have.iter().chain(&old.nodes));
            return Ok(false);
        }
        for (block, bytes) in &map.blocks {
            subject.write(*block, bytes).map_err(staging("a directory"))?;
        }
        let clusters = |data: &[Block], nodes: &[Block]| -> u64 {
            let mut all: Vec<_> =
                data.iter().chain(nodes).map(|block| subject.geometry.cluster_of(*block)).collect();
            all.sort_unstable();
            all.dedup();
            all.len() as u64
        };
        let (before, after) = (clusters(&have, &old.nodes), clusters(&blocks, &map.used));
        let sectors =
            u64::from(subject.geometry.blocks_per_cluster()) << (subject.geometry.block_size.log2() - 9);
        let stated = inode.sectors(subject.geometry.block_size);
        let new = (stated + after * sectors).saturating_sub(before * sectors);
        let used = std::mem::take(&mut map.used);
        release(subject, facts, have.iter().chain(&old.nodes), blocks.iter().chain(&used));
        inode.set_sectors(new, subject.geometry.block_size);
        inode.raw_mut().i_block = root;
        placed = blocks;
    }
    for (block, bytes) in placed.iter().zip(contents) {
        subject.write(*block, bytes).map_err(staging("a directory"))?;
    }
    inode.set_size((contents.len() * subject.block_len()) as u64);
    subject.write_inode(inode).map_err(staging("a directory"))?;
    Ok(true)
}

/// Gives back what was used and is not any more.
fn release<'b>(
    subject: &Subject,
    facts: &Facts,
    before: impl Iterator<Item = &'b Block>,
    after: impl Iterator<Item = &'b Block>,
) {
    let mut kept: Vec<_> = after.map(|block| subject.geometry.cluster_of(*block)).collect();
    kept.sort_unstable();
    for block in before {
        if kept.binary_search(&subject.geometry.cluster_of(*block)).is_err() {
            facts.release(subject, *block, 1);
        }
    }
}

/// Where `want` blocks go: to those that are there, and behind them.
fn place(subject: &Subject, facts: &Facts, have: &[Block], want: usize, dense: bool) -> Option<Vec<Block>> {
    let per_cluster = subject.geometry.blocks_per_cluster() as usize;
    // In clusters a block stands where its place in the file says: what a gap moved must move whole.
    let keep = if dense || per_cluster == 1 { want.min(have.len()) } else { 0 };
    let mut blocks = have.get(..keep)?.to_vec();
    while blocks.len() < want {
        let last = blocks.last().copied();
        let next = match last {
            Some(last) if !blocks.len().is_multiple_of(per_cluster) => Block(last.0 + 1),
            last => {
                let goal = last.or(have.first().copied()).map_or(Block(0), |last| Block(last.0 + 1));
                let goal = Block(goal.0.min(subject.geometry.blocks - 1));
                let Some(next) = facts.allocate(subject, goal, 1) else {
                    release(subject, facts, blocks.iter(), have.iter());
                    return None;
                };
                next
            }
        };
        blocks.push(next);
    }
    Some(blocks)
}

/// A map that is being made.
struct NewMap<'a> {
    subject: &'a Subject,
    facts: &'a Facts,
    /// Blocks of the old map.
    spare: Vec<Block>,
    /// Blocks of the new one.
    used: Vec<Block>,
    blocks: Vec<(Block, Vec<u8>)>,
}

impl NewMap<'_> {
    fn take(&mut self) -> Option<Block> {
        let block = match self.spare.pop() {
            Some(block) => block,
            None => self.facts.allocate(
                self.subject,
                Block(u64::from(self.subject.geometry.first_data_block)),
                1,
            )?,
        };
        self.used.push(block);
        Some(block)
    }

    fn extents(&mut self, blocks: &[Block], inode: &Inode, root: &mut [u8; I_BLOCK_LEN]) -> Option<()> {
        let mut list: Vec<Extent> = Vec::new();
        for (at, block) in blocks.iter().enumerate() {
            match list.last_mut() {
                Some(last) if last.end() == block.0 && last.count < MAX_WRITTEN => last.count += 1,
                _ => list.push(Extent {
                    logical: FileBlock(low_u32(at as u64)),
                    start: *block,
                    count: 1,
                    unwritten: false,
                }),
            }
        }
        let seed = self.subject.seed_of(inode);
        let in_root = usize::from(extent::capacity(I_BLOCK_LEN));
        if list.len() <= in_root {
            Node { depth: 0, capacity: extent::capacity(I_BLOCK_LEN), entries: Entries::Leaf(list) }
                .store(root);
            return Some(());
        }
        let len = self.subject.block_len();
        let capacity = extent::capacity(len);
        let make = |map: &mut Self, logical: FileBlock, depth: u16, entries: Entries| {
            let mut bytes = vec![0; len];
            Node { depth, capacity, entries }.store(&mut bytes);
            seed.seal_extent_node(&mut bytes);
            let node = map.take()?;
            map.blocks.push((node, bytes));
            Some(Child { logical, node })
        };
        let mut level = Vec::new();
        for piece in list.chunks(usize::from(capacity)) {
            let logical = piece.first()?.logical;
            level.push(make(self, logical, 0, Entries::Leaf(piece.to_vec()))?);
        }
        let mut depth = 1;
        while level.len() > in_root {
            let mut above = Vec::new();
            for piece in level.chunks(usize::from(capacity)) {
                let logical = piece.first()?.logical;
                above.push(make(self, logical, depth, Entries::Index(piece.to_vec()))?);
            }
            (level, depth) = (above, depth + 1);
        }
        Node { depth, capacity: extent::capacity(I_BLOCK_LEN), entries: Entries::Index(level) }.store(root);
        Some(())
    }

    fn pointers(&mut self, blocks: &[Block], root: &mut [u8; I_BLOCK_LEN]) -> Option<()> {
        let mut rest = blocks;
        let size = self.subject.geometry.block_size;
        let (words, _) = root.as_chunks_mut::<4>();
        for (slot, word) in words.iter_mut().enumerate().take(ROOT_SLOTS) {
            let depth = u32::try_from(slot).ok()?.saturating_sub(DIRECT - 1);
            let here = usize::try_from(block_map::span(size, depth)).ok()?.min(rest.len());
            let (front, behind) = rest.split_at(here);
            *word = self.pointer(front, depth)?.to_le_bytes();
            rest = behind;
        }
        rest.is_empty().then_some(())
    }

    /// The pointer to blocks at a depth of at most three.
    fn pointer(&mut self, blocks: &[Block], depth: u32) -> Option<u32> {
        let Some(first) = blocks.first() else { return Some(0) };
        if depth == 0 {
            return u32::try_from(first.0).ok();
        }
        let below = usize::try_from(block_map::span(self.subject.geometry.block_size, depth - 1)).ok()?;
        let mut bytes = Vec::new();
        for piece in blocks.chunks(below) {
            bytes.extend_from_slice(&self.pointer(piece, depth - 1)?.to_le_bytes());
        }
        bytes.resize(self.subject.block_len(), 0);
        let node = self.take()?;
        self.blocks.push((node, bytes));
        u32::try_from(node.0).ok()
    }
}
