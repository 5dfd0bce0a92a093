//! Where the blocks of a directory are, as its map says.
//!
//! The map was checked by the pass over inodes; what may still be wrong in it (because its repair was
//! not wanted) is left out. Whatever the bytes, the walk ends: no run overlaps one before it, all runs
//! together have no more blocks than the volume, and nodes that add nothing are soon given up.

use std::io;

use ondisk::block_map::{self, DIRECT, ROOT_SLOTS};
use ondisk::extent::{Entries, Node};
use ondisk::inode::{Inode, InodeFlags};
use ondisk::units::{Block, FileBlock, bounded};

use crate::subject::Subject;

/// Nodes without anything new that are looked at before the rest of a map is left out.
const BARREN_MAX: u32 = 64;

/// Neighbouring blocks of a directory that are neighbours on the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) first: FileBlock,
    pub(crate) start: Block,
    pub(crate) count: u32,
}

/// The map of a directory.
#[derive(Default)]
pub(crate) struct Blocks {
    /// Rising, without overlap.
    pub(crate) runs: Vec<Run>,
    /// Blocks of the map itself.
    pub(crate) nodes: Vec<Block>,
    total: u64,
    barren: u32,
}

impl Blocks {
    /// The map of an inode with a map.
    pub(crate) fn of(subject: &Subject, inode: &Inode) -> io::Result<Self> {
        let mut blocks = Blocks::default();
        blocks.read(subject, inode)?;
        Ok(blocks)
    }

    /// Reads the map of an inode in place of what was here before.
    pub(crate) fn read(&mut self, subject: &Subject, inode: &Inode) -> io::Result<()> {
        self.runs.clear();
        self.nodes.clear();
        (self.total, self.barren) = (0, 0);
        let root = &inode.raw().i_block;
        if inode.flags().contains(InodeFlags::INLINE_DATA) {
            return Ok(());
        }
        if inode.flags().contains(InodeFlags::EXTENTS) {
            return match Node::parse(root) {
                Ok(node) => self.extents(subject, node),
                Err(_) => Ok(()),
            };
        }
        let mut logical = 0;
        for (slot, pointer) in pointers(root).enumerate().take(ROOT_SLOTS) {
            let depth = bounded::<u32>(slot).saturating_sub(DIRECT - 1);
            self.pointer(subject, pointer, depth, logical)?;
            logical += block_map::span(subject.geometry.block_size, depth);
        }
        Ok(())
    }

    /// One past the last mapped block.
    pub(crate) fn end(&self) -> u64 {
        self.runs.last().map_or(0, |run| u64::from(run.first.0) + u64::from(run.count))
    }

    /// Blocks that are mapped.
    pub(crate) fn mapped(&self) -> u64 {
        self.total
    }

    /// Where a block is; `None` in a hole.
    pub(crate) fn find(&self, block: FileBlock) -> Option<Block> {
        let at = self.runs.partition_point(|run| run.first <= block).checked_sub(1)?;
        let run = self.runs.get(at)?;
        let inside = block.0 - run.first.0;
        (inside < run.count).then(|| Block(run.start.0 + u64::from(inside)))
    }

    /// All mapped blocks in order.
    pub(crate) fn each(&self) -> impl Iterator<Item = (FileBlock, Block)> + '_ {
        self.runs.iter().flat_map(|run| {
            (0..run.count)
                .map(|at| (FileBlock(run.first.0.saturating_add(at)), Block(run.start.0 + u64::from(at))))
        })
    }

    fn add(&mut self, subject: &Subject, run: Run) {
        let geometry = &subject.geometry;
        let free = self.total.saturating_add(u64::from(run.count)) <= geometry.blocks;
        let after = u64::from(run.first.0) >= self.end();
        if run.count == 0 || !free || !after || !geometry.contains(run.start, u64::from(run.count)) {
            self.barren += 1;
            return;
        }
        self.total += u64::from(run.count);
        match self.runs.last_mut() {
            Some(last)
                if last.first.0.checked_add(last.count) == Some(run.first.0)
                    && last.start.0 + u64::from(last.count) == run.start.0
                    && last.count.checked_add(run.count).is_some() =>
            {
                last.count += run.count;
            }
            _ => self.runs.push(run),
        }
    }

    fn extents(&mut self, subject: &Subject, root: Node) -> io::Result<()> {
        let mut waiting: Vec<(u16, Block)> = Vec::new();
        let mut node = root;
        loop {
            match node.entries {
                Entries::Leaf(extents) => {
                    for extent in extents {
                        self.add(
                            subject,
                            Run { first: extent.logical, start: extent.start, count: extent.count },
                        );
                    }
                }
                Entries::Index(children) => {
                    waiting.extend(children.iter().rev().map(|child| (node.depth - 1, child.node)));
                }
            }
            node = loop {
                let Some((depth, block)) = waiting.pop() else { return Ok(()) };
                if self.barren > BARREN_MAX {
                    return Ok(());
                }
                if !subject.geometry.contains(block, 1) {
                    self.barren += 1;
                    continue;
                }
                match Node::parse(&subject.block(block)?) {
                    Ok(node) if node.depth == depth => {
                        self.nodes.push(block);
                        break node;
                    }
                    _ => self.barren += 1,
                }
            };
        }
    }

    /// Reads the blocks below a pointer; at most three levels.
    fn pointer(&mut self, subject: &Subject, pointer: u32, depth: u32, logical: u64) -> io::Result<()> {
        let start = Block(u64::from(pointer));
        let Ok(first) = u32::try_from(logical).map(FileBlock) else { return Ok(()) };
        if pointer == 0 || self.barren > BARREN_MAX || !subject.geometry.contains(start, 1) {
            return Ok(());
        }
        if depth == 0 {
            self.add(subject, Run { first, start, count: 1 });
            return Ok(());
        }
        self.nodes.push(start);
        let before = self.total;
        let below = block_map::span(subject.geometry.block_size, depth - 1);
        let mut at = logical;
        for pointer in pointers(&subject.block(start)?) {
            self.pointer(subject, pointer, depth - 1, at)?;
            at += below;
        }
        self.barren += u32::from(self.total == before);
        Ok(())
    }
}

fn pointers(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let (words, _) = bytes.as_chunks();
    words.iter().map(|word| u32::from_le_bytes(*word))
}
