//! Where the contents of a removed file lay, and whether they are there still.
//!
//! Owns: maps of old records, with their nodes as they were then, and what became of the blocks since. Excludes: what
//! follows from that for the file.

use std::collections::HashMap;

use ondisk::corrupt::Place;
use ondisk::inode::{Inode, InodeFlags};
use ondisk::units::{Block, Group};
use platfs_device::map::{self, Failure, Run};
use platfs_device::{Error, Result};

use super::lives::Life;
use crate::history::{History, When};
use crate::owners::is_set;
use crate::raw_image::{RawImage, has_map};

/// Most comparisons of blocks with the past, in all: some seconds. A volume made to deceive could ask for any number.
const COMPARISONS_MAX: u64 = 1 << 31;
/// Most bytes of bitmaps that are kept.
const BITMAPS_MAX: usize = 64 << 20;

/// Fate of the blocks of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fate {
    /// Blocks with contents.
    pub blocks: u64,
    /// Those that were used again since, or are in use now.
    pub reused: u64,
}

/// Where contents lay.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Contents {
    pub(super) runs: Vec<Run>,
    pub(super) fate: Fate,
    /// Doubts about the map being that of the file's last day.
    pub(super) doubts: Vec<String>,
}

/// Follows maps and judges blocks.
pub(super) struct Judge<'g> {
    now: &'g RawImage,
    history: &'g History,
    bitmaps: HashMap<Group, Past>,
    kept: usize,
    /// Comparisons that may still be made.
    left: u64,
}

/// Versions of a group's bitmap, with the moments; the last is that of now.
type Past = Vec<(When, Option<Vec<u8>>)>;

impl<'g> Judge<'g> {
    pub(super) fn new(now: &'g RawImage, history: &'g History) -> Self {
        Judge { now, history, bitmaps: HashMap::new(), kept: 0, left: COMPARISONS_MAX }
    }

    /// The contents of a life.
    ///
    /// # Errors
    /// A map that can't be followed; the device's failure.
    pub(super) fn contents(&mut self, life: &Life) -> Result<Contents> {
        let mut found = Contents::default();
        if !has_map(&life.last) {
            return Ok(found);
        }
        let end = life.ended.filter(|_| !life.held).unwrap_or(usize::MAX);
        let mut nodes = 0;
        let map = map::walk(self.now.geometry(), &life.last, u64::MAX, |block| {
            nodes += 1;
            self.node(&life.last, block, end, &mut found.doubts)
        });
        let map = map.map_err(|failure| match failure {
            Failure::Read(error) => error,
            Failure::Broken(problem) => Error::corrupt(Place::Map(life.last.number()), problem),
        })?;
        let data: u64 = map.runs.iter().map(|run| run.count).sum();
        self.count(&life.last, data + nodes, &mut found.doubts);
        for run in &map.runs {
            found.fate.blocks += run.count;
            // Blocks that it still has are in use by itself.
            if !life.held {
                match self.reused(run, life)? {
                    Some(reused) => found.fate.reused += reused,
                    None => found.doubts.push("it is too large to be compared with the past".to_owned()),
                }
            }
        }
        found.doubts.dedup();
        for run in &map.runs {
            let Some(left) = self.left.checked_sub(run.count) else { break };
            self.left = left;
            if self.has_copies(run, life) {
                found.doubts.push("some of its contents went through the journal".to_owned());
                break;
            }
        }
        found.runs = map.runs;
        Ok(found)
    }

    /// A node of the map as it was just before a moment.
    fn node(&self, inode: &Inode, block: Block, end: When, doubts: &mut Vec<String>) -> Result<Vec<u8>> {
        let seed = self.now.sealer().inode_seed(inode.number(), inode.generation());
        let is_tree = inode.flags().contains(InodeFlags::EXTENTS);
        let past = self.history.copies(block).iter().rev().find(|(when, _)| *when < end);
        if let Some((_, copy)) = past {
            let bytes = self.history.contents(copy)?;
            if !is_tree || seed.extent_node_is_right(&bytes) {
                return Ok(bytes);
            }
        }
        doubts.push("the journal has no copy of a node of its map".to_owned());
        let bytes = self.now.block(block)?;
        if is_tree && !seed.extent_node_is_right(&bytes) {
            return Err(Error::corrupt(
                Place::Map(inode.number()),
                format!("its node in block {block} is gone"),
            ));
        }
        Ok(bytes)
    }

    /// Compares the blocks that the record charges with those of its map.
    fn count(&self, inode: &Inode, blocks: u64, doubts: &mut Vec<String>) {
        let geometry = self.now.geometry();
        if geometry.cluster_log2 > 0 {
            return;
        }
        let all = blocks + u64::from(inode.attribute_block().0 != 0);
        let charged = inode.sectors(geometry.block_size) >> (geometry.block_size.log2() - 9);
        if charged != all {
            doubts.push(format!("its record counts {charged} blocks, its map has {all}"));
        }
    }

    /// Blocks of a run that were in use again after the file was removed; `None` if there is too much to compare.
    fn reused(&mut self, run: &Run, life: &Life) -> Result<Option<u64>> {
        let mut reused = 0;
        let past = match self.now.bit_of(run.start) {
            Some((group, _)) => self.past(group)?.len() as u64,
            None => 1,
        };
        let Some(left) = run.count.checked_mul(past).and_then(|cost| self.left.checked_sub(cost)) else {
            return Ok(None);
        };
        self.left = left;
        for block in (run.start.0..run.start.0 + run.count).map(Block) {
            let Some((group, bit)) = self.now.bit_of(block) else { continue };
            let past = self.past(group)?;
            let from = life.ended.unwrap_or(life.seen);
            // Its own bits may still be set for a while: a large file is not freed at once.
            let mut was_free = false;
            let mut is_used = false;
            for (when, bitmap) in past {
                let is_in_use = bitmap.as_ref().is_some_and(|bitmap| is_set(bitmap, bit));
                let counts = *when >= from || *when == NOW;
                is_used |= counts && is_in_use && (was_free || *when == NOW);
                was_free |= counts && !is_in_use;
            }
            reused += u64::from(is_used);
        }
        Ok(Some(reused))
    }

    fn past(&mut self, group: Group) -> Result<&Past> {
        if !self.bitmaps.contains_key(&group) {
            if self.kept > BITMAPS_MAX {
                self.bitmaps.clear();
                self.kept = 0;
            }
            let block = self.now.descriptor(group)?.block_bitmap();
            let mut past = Past::new();
            for (when, copy) in self.history.copies(block) {
                past.push((*when, Some(self.history.contents(copy)?)));
            }
            past.push((NOW, self.now.block_bitmap(group)?));
            self.kept += past.len() * self.now.geometry().block_size.bytes_usize();
            self.bitmaps.insert(group, past);
        }
        self.bitmaps.get(&group).ok_or_else(|| Error::Invalid(format!("no bitmap of group {group}")))
    }

    /// True if the journal has copies of blocks while they were the file's.
    fn has_copies(&self, run: &Run, life: &Life) -> bool {
        (run.start.0..run.start.0 + run.count).any(|block| {
            let copies = self.history.copies(Block(block));
            let since = life.ended.unwrap_or(usize::MAX);
            let revoked = self.history.revoked(Block(block));
            // A copy of an earlier use of the block was revoked before the file had it.
            copies.iter().any(|(when, _)| {
                let is_old = revoked.iter().any(|by| by >= when && *by <= life.seen);
                *when > since || !is_old && *when >= life.after && *when > 0
            })
        })
    }
}

/// The moment of the volume as it is.
const NOW: When = usize::MAX;
