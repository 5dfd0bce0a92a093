//! Rules of both kinds of maps: how blocks become claims, and when a walk has to end.

use std::sync::atomic::Ordering;

use ondisk::extent::Extent;
use ondisk::inode::{FileType, InodeFlags};
use ondisk::units::{Block, FileBlock};

use super::contents::Mapped;
use super::record::{Claim, Examination};
use super::special::Role;
use crate::kinds::Kind;
use crate::reporter::Finding;

/// The walk over a map, and what is left of it where it must be mended.
#[derive(Default)]
pub(super) struct Walk {
    pub(super) mapped: Mapped,
    /// True if what was found is to be rewritten.
    pub(super) mends: bool,
    /// True if something stays broken that can't be rewritten.
    pub(super) leaves: bool,
    /// True if nodes of it lie in blocks of something else; only known aloud.
    pub(super) lent: bool,
    /// Extents to keep; only gathered aloud.
    pub(super) kept: Vec<Extent>,
    /// Nodes that are the map's own; only gathered aloud.
    pub(super) own: Vec<Block>,
}

impl Examination<'_, '_, '_, '_> {
    /// Returns true if one more node of a map may be read.
    pub(super) fn may_read_node(&self) -> bool {
        let take = |left: u64| left.checked_sub(1);
        self.pass.nodes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Returns true if a node can't be this map's own, as something sound has it: it must not be written.
    pub(super) fn is_foreign(&self, block: Block) -> bool {
        let cluster = self.subject().geometry.cluster_of(block).0;
        self.pass.guards && !self.reporter.is_silent() && self.pass.facts.claimed.contains(cluster)
    }

    pub(super) fn is_resize(&self) -> bool {
        self.pass.special.role(self.inode().number()) == Role::Resize
    }

    /// Blocks a directory of this volume may have; `None` for as many as a map has.
    pub(super) fn most_directory_blocks(&self) -> Option<u64> {
        let subject = self.subject();
        let is_dir = self.inode().file_type() == Some(FileType::Directory);
        let large = subject.has_incompat(ondisk::features::Incompat::LARGEDIR);
        let limited = is_dir && !large && self.inode().raw().i_size_high.get() == 0;
        // 2 GiB, as directories' sizes have 31 bits.
        limited.then(|| 1 << (31 - subject.geometry.block_size.log2()))
    }

    /// The file block from which on everything goes, of a file that was about to be cut; only aloud.
    pub(super) fn cut_end(&self) -> Option<u64> {
        let inode = self.inode();
        let cuts = !self.reporter.is_silent()
            && self.subject().cut_wanted.contains(&inode.number())
            && inode.file_type() == Some(FileType::Regular)
            && !self.has(InodeFlags::VERITY);
        cuts.then(|| self.subject().geometry.block_size.blocks_for(inode.size()))
    }

    pub(super) fn is_directory(&self) -> bool {
        self.inode().file_type() == Some(FileType::Directory)
    }

    /// Where blocks are lost to a directory, names are.
    pub(super) fn lose_names(&self) {
        if self.is_directory() {
            self.pass.facts.names_lost();
        }
    }

    /// Reports a fault of the map; returns true if it is to be mended.
    pub(super) fn tell_map(
        &mut self,
        kind: &'static Kind,
        at: (Option<Block>, Option<u64>),
        found: impl FnOnce() -> String,
        repair: &str,
    ) -> bool {
        let place = self.place();
        self.reporter.found(kind, || {
            let mut place = place;
            place.block = at.0;
            place.file_block = at.1.and_then(|block| u32::try_from(block).ok()).map(FileBlock);
            Finding::new(place, found(), repair)
        })
    }

    fn claim(&mut self, start: u64, count: u64, node: bool) {
        if let Some(last) = self.scratch.claims.last_mut()
            && last.start.0 + last.count == start
            && last.node == node
            && self.pass.subject.geometry.cluster_log2 == 0
        {
            last.count += count;
            return;
        }
        self.scratch.claims.push(Claim { start: Block(start), count, node });
    }

    /// Claims a node of the map, which has a cluster to itself.
    pub(super) fn claim_node(&mut self, mapped: &mut Mapped, block: Block) {
        mapped.clusters += 1;
        if self.pass.special.role(self.inode().number()) != Role::Resize {
            self.claim(block.0, 1, true);
        }
    }

    /// Claims the one block of its map that the inode for more descriptors has to itself.
    pub(super) fn claim_reserved(&mut self, block: Block) {
        self.claim(block.0, 1, true);
    }

    /// Claims a run of contents: whole clusters, but for the first where the run before lies in it too.
    pub(super) fn claim_run(&mut self, mapped: &mut Mapped, extent: &Extent) {
        let log2 = self.subject().geometry.cluster_log2;
        let (start, end) = (extent.start.0, extent.end());
        let logical = u64::from(extent.logical.0);
        mapped.fragmented |= mapped.previous != 0 && mapped.previous + 1 != start;
        let again = log2 > 0 && mapped.previous != 0 && mapped.previous >> log2 == start >> log2;
        let crooked = log2 > 0 && self.is_crooked(mapped, logical, start);
        let from = ((start >> log2) + u64::from(again)) << log2;
        if from < end {
            let clusters = (end - from).div_ceil(1 << log2);
            mapped.clusters += clusters;
            self.claim(from.max(1), end - from.max(1), false);
        }
        if crooked {
            // Two claims of the same clusters: they are moved to where they belong like shared ones.
            let twice = Claim { start: extent.start, count: end - start, node: false };
            self.scratch.claims.extend([twice, twice]);
        }
        mapped.end = extent.logical_end();
        if !extent.unwritten {
            mapped.written_end = extent.logical_end();
        }
        mapped.previous = end - 1;
    }

    /// Returns true if a run does not lie in its cluster as the file's blocks lie in theirs, or tears a cluster of
    /// the file apart.
    fn is_crooked(&self, mapped: &Mapped, logical: u64, start: u64) -> bool {
        let log2 = self.subject().geometry.cluster_log2;
        let mask = (1_u64 << log2) - 1;
        logical & mask != start & mask
            || mapped.previous != 0
                && logical & mask != 0
                && mapped.end > 0
                && logical >> log2 == (mapped.end - 1) >> log2
                && start >> log2 != mapped.previous >> log2
    }

    /// Counts and claims again what is left of a map.
    pub(super) fn recount(&mut self, kept: &[Extent], nodes: &[Block], from: usize) -> Mapped {
        self.scratch.claims.truncate(from);
        let mut mapped = Mapped::default();
        for node in nodes {
            self.claim_node(&mut mapped, *node);
        }
        for extent in kept {
            self.claim_run(&mut mapped, extent);
        }
        mapped.is_tree = !nodes.is_empty();
        mapped
    }
}
