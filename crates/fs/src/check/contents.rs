//! Where the contents of the volume's own small files lie: journal, orphan file, quota files.
//!
//! Excludes judging of maps ([`super::inodes`]): what is not plainly right is an error here.

use ondisk::block_map::{DIRECT, pointers_per_block};
use ondisk::extent::{Entries, Node};
use ondisk::inode::{Inode, InodeFlags};
use ondisk::units::{Block, InodeNumber};

use super::subject::Subject;

/// Most blocks of tree nodes that are read for one map.
const NODES_MAX: usize = 1 << 16;

/// A run of blocks of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub(super) logical: u64,
    pub(super) start: Block,
    pub(super) count: u64,
}

/// An inode in use, as its record stands.
pub(super) fn inode(subject: &Subject, number: u32) -> Result<Inode, String> {
    let number = InodeNumber::new(number).ok_or("there is no inode 0")?;
    let offset = subject.inode_offset(number).ok_or_else(|| format!("there is no inode {number}"))?;
    let mut bytes = vec![0; usize::from(subject.geometry.inode_size)];
    crate::device::Device::read_at(&*subject.device, offset, &mut bytes)
        .map_err(|error| error.to_string())?;
    Inode::parse(number, &bytes).map_err(|error| error.problem().to_owned())
}

/// The runs of a file, in the order of its contents.
pub(super) fn runs(subject: &Subject, inode: &Inode) -> Result<Vec<Run>, String> {
    runs_and_nodes(subject, inode).map(|(runs, _)| runs)
}

/// The runs of a file, and the blocks that its map takes.
pub(super) fn runs_and_nodes(subject: &Subject, inode: &Inode) -> Result<(Vec<Run>, Vec<Block>), String> {
    let mut walk = Walk { subject, runs: Vec::new(), nodes: Vec::new() };
    let root = &inode.raw().i_block[..];
    if inode.flags().contains(InodeFlags::INLINE_DATA) {
        return Err("its contents are in the inode".to_owned());
    }
    if inode.flags().contains(InodeFlags::EXTENTS) {
        walk.extents(root)?;
    } else {
        walk.pointers(root)?;
    }
    if walk.runs.is_sorted_by(|one, other| one.logical + one.count <= other.logical) {
        Ok((walk.runs, walk.nodes))
    } else {
        Err("its map is out of order".to_owned())
    }
}

/// The blocks of a file that has them all, from its first to its end.
pub(super) fn blocks(subject: &Subject, inode: &Inode) -> Result<Vec<Block>, String> {
    let len = subject.geometry.block_size.blocks_for(inode.size());
    let runs = runs(subject, inode)?;
    let mapped: u64 = runs.iter().map(|run| run.count).sum();
    let dense = runs.first().is_none_or(|run| run.logical == 0)
        && runs.windows(2).all(|pair| match pair {
            [one, other] => one.logical + one.count == other.logical,
            _ => true,
        });
    if !dense || mapped < len {
        return Err("it has holes".to_owned());
    }
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    Ok(runs.iter().flat_map(|run| (0..run.count).map(|at| Block(run.start.0 + at))).take(len).collect())
}

struct Walk<'a> {
    subject: &'a Subject,
    runs: Vec<Run>,
    nodes: Vec<Block>,
}

impl Walk<'_> {
    fn read(&mut self, block: Block) -> Result<Vec<u8>, String> {
        self.nodes.push(block);
        if self.nodes.len() > NODES_MAX {
            return Err("its map does not end".to_owned());
        }
        self.subject.block(block).map_err(|error| error.to_string())
    }

    fn add(&mut self, logical: u64, start: Block, count: u64) -> Result<(), String> {
        if !self.subject.geometry.contains(start, count) {
            return Err(format!("block {start} lies outside the volume"));
        }
        match self.runs.last_mut() {
            Some(last) if last.logical + last.count == logical && last.start.0 + last.count == start.0 => {
                last.count += count;
            }
            _ => self.runs.push(Run { logical, start, count }),
        }
        Ok(())
    }

    /// Nodes below have exactly one level less each, so that a walk ends.
    fn extents(&mut self, root: &[u8]) -> Result<(), String> {
        let mut waiting = vec![Node::parse(root)?];
        while let Some(node) = waiting.pop() {
            match node.entries {
                Entries::Leaf(extents) => {
                    for extent in extents {
                        self.add(u64::from(extent.logical.0), extent.start, u64::from(extent.count))?;
                    }
                }
                Entries::Index(children) => {
                    // The first is popped first.
                    for child in children.iter().rev() {
                        let below = Node::parse(&self.read(child.node)?)?;
                        if below.depth + 1 != node.depth {
                            return Err("its extent tree has a wrong depth".to_owned());
                        }
                        waiting.push(below);
                    }
                }
            }
        }
        Ok(())
    }

    fn pointers(&mut self, root: &[u8]) -> Result<(), String> {
        let per_block = u64::from(pointers_per_block(self.subject.geometry.block_size));
        let words: Vec<u32> = words(root).collect();
        let mut logical = 0;
        for (slot, word) in words.iter().enumerate() {
            let depth = slot.saturating_sub(DIRECT as usize - 1);
            let span = per_block.pow(u32::try_from(depth).unwrap_or(3).min(3));
            self.below(*word, logical, depth, per_block)?;
            logical += span;
        }
        Ok(())
    }

    /// At most three levels.
    fn below(&mut self, word: u32, logical: u64, depth: usize, per_block: u64) -> Result<(), String> {
        if word == 0 {
            return Ok(());
        }
        if depth == 0 {
            return self.add(logical, Block(u64::from(word)), 1);
        }
        let block = self.read(Block(u64::from(word)))?;
        let span = per_block.pow(u32::try_from(depth - 1).unwrap_or(0));
        for (at, word) in words(&block).enumerate() {
            self.below(word, logical + at as u64 * span, depth - 1, per_block)?;
        }
        Ok(())
    }
}

/// The little-endian words of a map.
pub(super) fn words(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks_exact(4).filter_map(|word| word.try_into().ok()).map(u32::from_le_bytes)
}
