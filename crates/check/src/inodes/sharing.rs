//! Clusters with several owners: one owner keeps each of them, the others get copies.
//!
//! No file loses contents: it reads from its copies what it read before. Structures of the volume come first among
//! owners, then hidden files, blocks of attributes, nodes of maps, directories, files; of two of a kind the lower inode.
//! Only where the volume has no room for copies, a map loses the blocks. The journal, which was replayed before, is
//! given up then, and no file loses to it.
//!
//! Memory: some 60 bytes for each shared cluster. Copies take none beside ([`Subject::copy`]).

use std::collections::{HashMap, HashSet};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use ondisk::block_map;
use ondisk::extent::{Extent, MAX_UNWRITTEN, MAX_WRITTEN};
use ondisk::features::Compat;
use ondisk::inode::{FileType, InodeFlags};
use ondisk::invariant;
use ondisk::units::{Block, FileBlock, Group, InodeNumber, bounded, low_u32};

use super::Pass;
use super::record::{Claim, Examination, Scratch};
use super::special::Role;
use crate::facts::Facts;
use crate::issue::{Decision, Issue, Location, Sink};
use crate::kinds::inodes::BLOCKS_SHARED;
use crate::reporter::{Finding, Report};
use crate::slices::put;
use crate::slices::word;
use crate::staged::staging;
use crate::subject::Subject;
use platfs_device::Result;

/// Ranks of owners, the better ones first.
const HIDDEN: u8 = 0;
const ATTRIBUTES: u8 = 1;
const NODE: u8 = 2;
const DIRECTORY: u8 = 3;
const FILE: u8 = 4;
/// One that claims more of others than there is room for copies of: most likely a broken length.
const GREEDY: u8 = 5;
/// The journal, where there is no room for copies of what it shares.
const YIELDING: u8 = 6;
/// Clusters that other repairs may need.
const RESERVE: u64 = 4;

/// The best owner of a shared cluster.
#[derive(Clone, Copy, Debug)]
struct BestOwner {
    /// `None` where it belongs to a structure of the volume.
    owner: Option<InodeNumber>,
    rank: u8,
    /// Claims of the best owner.
    own: u32,
}

/// Clusters that an inode has to leave to others.
struct ClustersToLeave {
    /// Clusters of its contents and map, rising.
    clusters: Vec<u64>,
    /// The cluster of its block of attributes, if all that have the block must leave it.
    attributes: Option<u64>,
}

impl ClustersToLeave {
    fn count(&self) -> u64 {
        self.clusters.len() as u64 + u64::from(self.attributes.is_some())
    }
}

/// Most times that a block is read as a node: to find owners, and some times to rewrite a map.
const NODE_READS: u64 = 8;

/// Passes on no issue and leaves all as it is.
struct NullSink;

impl Sink for NullSink {
    fn issue(&mut self, _: Issue) -> Decision {
        Decision::Leave
    }
}

/// Shared clusters, with the best owner of each.
struct Plan<'a> {
    subject: &'a Subject,
    facts: &'a Facts,
    best: HashMap<u64, BestOwner>,
    /// Inodes that claim any of them.
    claimants: Vec<InodeNumber>,
    /// For each block of attributes the inode that claims it for all inodes that have it.
    holders: HashMap<u64, InodeNumber>,
    /// New places of blocks of attributes.
    attributes: HashMap<u64, Block>,
    /// Clusters that their best owner still uses, and such that it does without.
    kept: HashSet<u64>,
    left: HashSet<u64>,
    /// True if the journal was given up.
    journal_gone: bool,
}

/// Gives every shared cluster one owner; returns true if the journal has no blocks any more, and is to be given up.
///
/// # Errors
/// Repairs take more memory than they may.
pub(crate) fn resolve(subject: &Subject, facts: &Facts, report: &mut Report<'_>) -> Result<bool> {
    let mut plan = Plan {
        subject,
        facts,
        best: HashMap::new(),
        claimants: Vec::new(),
        holders: HashMap::new(),
        attributes: HashMap::new(),
        kept: HashSet::new(),
        left: HashSet::new(),
        journal_gone: false,
    };
    plan.layout();
    let pass = Pass { guards: false, ..Pass::new(subject, facts) };
    pass.nodes.store(subject.geometry.blocks.saturating_mul(NODE_READS), Ordering::Relaxed);
    plan.owners(&pass);
    let claimants = std::mem::take(&mut plan.claimants);
    let mut scratch = Scratch::new(subject);
    for number in claimants {
        plan.part(&pass, number, &mut scratch, report).map_err(staging("copies"))?;
    }
    plan.release();
    Ok(plan.journal_gone)
}

impl Plan<'_> {
    fn cluster(&self, block: u64) -> u64 {
        self.subject.geometry.cluster_of(Block(block)).0
    }

    /// Number of clusters without an owner.
    fn free(&self) -> u64 {
        self.subject.geometry.clusters().saturating_sub(self.facts.claimed.count())
    }

    /// Notes the clusters that structures of the volume claim.
    fn layout(&mut self) {
        let geometry = self.subject.geometry;
        for group in (0..geometry.groups).map(Group) {
            let header = geometry.group_header(group);
            let mut parts = vec![(header.start.0, u64::from(header.count))];
            if let Some(raw) = self.subject.descriptor(group) {
                parts.push((raw.block_bitmap().0, 1));
                parts.push((raw.inode_bitmap().0, 1));
                parts.push((raw.inode_table().0, u64::from(geometry.inode_table_blocks())));
            }
            for (start, count) in
                parts.into_iter().filter(|(start, count)| geometry.contains(Block(*start), *count))
            {
                for cluster in self.cluster(start)..=self.cluster(start + count.max(1) - 1) {
                    if count > 0 && self.facts.shared.contains(cluster) {
                        self.best.insert(cluster, BestOwner { owner: None, rank: 0, own: 0 });
                    }
                }
            }
        }
    }

    /// All claims of inodes in use, compared.
    fn owners(&mut self, pass: &Pass<'_>) {
        let mut scratch = Scratch::new(self.subject);
        let mut sink = NullSink;
        let mut mute = Report::new(&mut sink);
        let mut claimants = Vec::new();
        let mut found = Vec::new();
        let free = self.free();
        for index in self.facts.used.iter() {
            let Some(number) = u32::try_from(index + 1).ok().and_then(InodeNumber::new) else { continue };
            let Some(offset) = self.subject.inode_offset(number) else { continue };
            if scratch.load(self.subject, number, offset).is_err() {
                continue;
            }
            let rank = rank(pass, &scratch);
            let mut reporter = mute.aloud();
            let mut examination = Examination::new(pass, &mut scratch, &mut reporter);
            let attributes = examination.attribute_block();
            examination.contents_alone();
            found.clear();
            for claim in &scratch.claims {
                let rank = if claim.node { rank.min(NODE) } else { rank };
                let clusters = self.cluster(claim.start.0)..=self.cluster(claim.start.0 + claim.count - 1);
                found.extend(clusters.filter(|at| self.facts.shared.contains(*at)).map(|at| (at, rank)));
            }
            let own = self.cluster(attributes.0);
            let touches = attributes.0 != 0 && self.facts.shared.contains(own);
            if touches && *self.holders.entry(attributes.0).or_insert(number) == number {
                found.push((own, ATTRIBUTES.min(rank)));
            }
            if !found.is_empty() || touches {
                claimants.push(number);
            }
            let greedy = found.len() as u64 + RESERVE > free;
            for (cluster, rank) in &found {
                let rank = match *rank {
                    _ if greedy && self.is_journal(number) => YIELDING,
                    rank if greedy && rank > HIDDEN => GREEDY,
                    rank => rank,
                };
                self.compare(*cluster, number, rank);
            }
        }
        self.claimants = claimants;
    }

    fn compare(&mut self, cluster: u64, number: InodeNumber, rank: u8) {
        let best = self.best.entry(cluster).or_insert(BestOwner { owner: Some(number), rank, own: 0 });
        if best.owner == Some(number) {
            best.own += 1;
            best.rank = best.rank.min(rank);
        } else if best.owner.is_some() && rank < best.rank {
            *best = BestOwner { owner: Some(number), rank, own: 1 };
        }
    }

    /// Returns true if an inode has to leave a cluster, or uses it twice.
    fn leaves(&self, cluster: u64, number: InodeNumber) -> bool {
        self.best.get(&cluster).is_some_and(|best| best.owner != Some(number) || best.own > 1)
    }

    /// Reports an inode that must leave clusters, and gives it copies.
    fn part(
        &mut self,
        pass: &Pass<'_>,
        number: InodeNumber,
        scratch: &mut Scratch,
        report: &mut Report<'_>,
    ) -> std::io::Result<()> {
        let Some(offset) = self.subject.inode_offset(number) else { return Ok(()) };
        scratch.load(self.subject, number, offset)?;
        let mut sink = NullSink;
        let mut mute = Report::new(&mut sink);
        let mut reporter = mute.aloud();
        let mut examination = Examination::new(pass, scratch, &mut reporter);
        examination.contents_alone();
        let attributes = examination.attribute_block();
        if let Some(place) = self.attributes.get(&attributes.0) {
            // It was reported with the first inode that had the block.
            examination.scratch.inode.set_attribute_block(*place);
            examination.changed = true;
        }
        let leaving = self.leaving(&examination.scratch.claims, number, attributes);
        if leaving.count() == 0 {
            return examination.mend();
        }
        let copies = leaving.count() + RESERVE <= self.free();
        let role = pass.special.role(number);
        let repair = match role {
            Role::Resize | Role::BadBlocks => "",
            _ if copies => "the file gets copies of its own, and reads as before",
            _ if self.is_journal(number) => {
                "there is no room for copies: the journal is given up; a new one is made by tune2fs -j"
            }
            _ => "there is no room for copies: the file loses the blocks",
        };
        if !report.found(&BLOCKS_SHARED, self.finding(number, &leaving, repair)) {
            let mut contested = self.subject.contested.lock().unwrap_or_else(PoisonError::into_inner);
            contested.extend(leaving.clusters.iter().copied().chain(leaving.attributes));
            drop(contested);
            self.kept.extend(leaving.clusters);
            return examination.mend();
        }
        if !copies && self.is_journal(number) {
            let claims = examination.scratch.claims.iter();
            let blocks: Vec<_> = claims.map(|claim| (claim.start, claim.count)).collect();
            self.give_up_journal(&blocks);
            return Ok(());
        }
        if leaving.attributes.is_some() {
            self.move_attributes(&mut examination, attributes)?;
        }
        if !leaving.clusters.is_empty() {
            self.move_contents(&mut examination, number, copies)?;
        }
        examination.cut();
        examination.scratch.claims.clear();
        examination.contents_alone();
        examination.mend()
    }

    /// Returns the clusters that an inode with these claims has to leave.
    fn leaving(&self, claims: &[Claim], number: InodeNumber, attributes: Block) -> ClustersToLeave {
        let clusters = claims
            .iter()
            .flat_map(|claim| self.cluster(claim.start.0)..=self.cluster(claim.start.0 + claim.count - 1));
        let mut clusters: Vec<u64> = clusters.filter(|cluster| self.leaves(*cluster, number)).collect();
        clusters.sort_unstable();
        clusters.dedup();
        let own = self.cluster(attributes.0);
        let holder = self.holders.get(&attributes.0).filter(|_| !self.attributes.contains_key(&attributes.0));
        let moves = holder.is_some_and(|holder| self.leaves(own, *holder));
        ClustersToLeave { clusters, attributes: moves.then_some(own) }
    }

    fn move_contents(
        &mut self,
        examination: &mut Examination<'_, '_, '_, '_>,
        number: InodeNumber,
        copies: bool,
    ) -> std::io::Result<()> {
        let (used, left) = (HashSet::new(), Vec::new());
        let mut mover = Mover { plan: self, number, copies, last: None, next: None, used, left };
        examination.part(&mut mover)?;
        let Mover { used, left, .. } = mover;
        self.left.extend(left.into_iter().filter(|cluster| !used.contains(cluster)));
        self.kept.extend(used);
        Ok(())
    }

    fn finding(&self, number: InodeNumber, leaving: &ClustersToLeave, repair: &str) -> Finding {
        let count = leaving.count();
        let first = leaving.clusters.first().copied().or(leaving.attributes).unwrap_or_default();
        let block = self.subject.geometry.cluster_start(ondisk::units::Cluster(first));
        let other = match self.best.get(&first).and_then(|best| best.owner) {
            None => "structures of the volume".to_owned(),
            Some(other) if other == number => "this file too, at another place".to_owned(),
            Some(other) => format!("inode {other}"),
        };
        let what = if self.subject.geometry.cluster_log2 == 0 { "blocks" } else { "clusters" };
        let found = format!("{count} {what} from {block} on belong to {other}");
        Finding::new(Location::inode(number).at_block(block), found, repair)
    }

    /// Returns true if an inode is the journal, and not only taken for it.
    fn is_journal(&self, number: InodeNumber) -> bool {
        number == InodeNumber::JOURNAL
            && self.subject.raw.s_journal_inum.get() == number.get()
            && self.subject.has_compat(Compat::HAS_JOURNAL)
    }

    /// Takes back the claims of the journal on blocks that only it has. Of shared blocks only its share goes.
    fn give_up_journal(&mut self, blocks: &[(Block, u64)]) {
        self.journal_gone = true;
        for (start, count) in blocks {
            for cluster in self.cluster(start.0)..=self.cluster(start.0 + count.max(&1) - 1) {
                match self.best.get(&cluster) {
                    Some(best) if best.owner == Some(InodeNumber::JOURNAL) => _ = self.left.insert(cluster),
                    Some(_) => {}
                    None => {
                        let first = self.subject.geometry.cluster_start(ondisk::units::Cluster(cluster));
                        self.facts.release(self.subject, first, 1);
                    }
                }
            }
        }
    }

    fn move_attributes(
        &mut self,
        examination: &mut Examination<'_, '_, '_, '_>,
        block: Block,
    ) -> std::io::Result<()> {
        let place = self.facts.allocate(self.subject, block, 1);
        let mut bytes = self.subject.block(block)?;
        if let Some(place) = place {
            self.subject.sealer.seal_attribute_block(place, &mut bytes);
            self.subject.write(place, &bytes)?;
        }
        let place = place.unwrap_or(Block(0));
        self.attributes.insert(block.0, place);
        examination.scratch.inode.set_attribute_block(place);
        Ok(())
    }

    /// Frees the clusters that all their owners gave up.
    fn release(&self) {
        for (cluster, best) in &self.best {
            let unused = best.own > 1 || self.left.contains(cluster);
            let gone = best.owner.is_some() && unused && !self.kept.contains(cluster);
            if gone && self.facts.claimed.remove(*cluster) {
                self.facts.gave_up();
            }
        }
    }
}

fn rank(pass: &Pass<'_>, scratch: &Scratch) -> u8 {
    match pass.special.role(scratch.inode.number()) {
        Role::Ordinary | Role::Root if scratch.inode.file_type() == Some(FileType::Directory) => DIRECTORY,
        Role::Ordinary | Role::Root => FILE,
        _ => HIDDEN,
    }
}

/// The blocks of one file on their way to clusters of its own.
pub(super) struct Mover<'a, 'p> {
    plan: &'a Plan<'p>,
    number: InodeNumber,
    /// True if there is room for copies of its contents.
    copies: bool,
    /// The file's cluster that was looked at last: itself, where it lay, where it lies; `None` where it
    /// is lost.
    last: Option<(u64, u64, Option<u64>)>,
    /// The block behind the last copy: the search for room goes on there, and looks at no cluster twice.
    next: Option<Block>,
    /// Clusters that the file keeps.
    used: HashSet<u64>,
    /// Shared clusters that it owned and does without.
    left: Vec<u64>,
}

impl Mover<'_, '_> {
    fn log2(&self) -> u32 {
        self.plan.subject.geometry.cluster_log2
    }

    /// Returns true if a cluster may stay the file's own; a shared one once.
    fn keeps(&mut self, cluster: u64) -> bool {
        let Some(best) = self.plan.best.get(&cluster) else { return true };
        best.owner == Some(self.number) && self.used.insert(cluster)
    }

    /// Where a block of contents is to lie; `None` where there is no room for it.
    fn place(&mut self, logical: u64, block: u64) -> Option<u64> {
        let log2 = self.log2();
        let mask = (1_u64 << log2) - 1;
        let (file, from) = (logical >> log2, block >> log2);
        let to = match self.last {
            Some((last, _, to)) if last == file => to,
            _ => {
                let straight = logical & mask == block & mask;
                if straight && self.keeps(self.plan.cluster(block)) {
                    Some(from)
                } else if self.copies {
                    self.allocate(block).map(|block| block >> log2)
                } else {
                    None
                }
            }
        };
        self.last = Some((file, from, to));
        to.map(|to| to << log2 | logical & mask)
    }

    /// Returns true if a node may stay the file's own.
    fn owns(&self, node: Block) -> bool {
        let best = self.plan.best.get(&self.plan.cluster(node.0));
        best.is_none_or(|best| best.owner == Some(self.number))
    }

    /// Says whether a node of the file's own stays one.
    fn settle(&mut self, node: Block, stays: bool) {
        let cluster = self.plan.cluster(node.0);
        if stays {
            self.used.insert(cluster);
        } else if self.plan.best.contains_key(&cluster) {
            self.left.push(cluster);
        } else {
            self.plan.facts.release(self.plan.subject, node, 1);
        }
    }

    fn allocate(&mut self, goal: u64) -> Option<u64> {
        let goal = self.next.unwrap_or(Block(goal));
        let found = self.plan.facts.allocate(self.plan.subject, goal, 1)?;
        self.next = found.checked_add(1);
        Some(found.0)
    }

    /// Where a node is to lie.
    fn node(&mut self, block: u64) -> Option<u64> {
        if self.keeps(self.plan.cluster(block)) { Some(block) } else { self.allocate(block) }
    }

    fn copy(&self, from: u64, to: u64) -> std::io::Result<()> {
        if from == to { Ok(()) } else { self.plan.subject.copy(Block(from), Block(to)) }
    }

    /// Extents of a file with their blocks in clusters of its own.
    fn extents(&mut self, kept: &[Extent]) -> std::io::Result<Vec<Extent>> {
        let mut moved: Vec<Extent> = Vec::new();
        for extent in kept {
            let blocks = (extent.start.0..extent.end()).zip(u64::from(extent.logical.0)..);
            for (block, logical) in blocks {
                let Some(to) = self.place(logical, block) else { continue };
                if !extent.unwritten {
                    self.copy(block, to)?;
                }
                let most = if extent.unwritten { MAX_UNWRITTEN } else { MAX_WRITTEN };
                match moved.last_mut() {
                    Some(last)
                        if last.logical_end() == logical
                            && last.end() == to
                            && last.unwritten == extent.unwritten
                            && last.count < most =>
                    {
                        last.count += 1;
                    }
                    _ => moved.push(Extent {
                        logical: FileBlock(bounded::<u32>(logical)),
                        start: Block(to),
                        count: 1,
                        unwritten: extent.unwritten,
                    }),
                }
            }
        }
        Ok(moved)
    }
}

impl Examination<'_, '_, '_, '_> {
    /// Rewrites the map with what shared clusters held in clusters of its own.
    fn part(&mut self, mover: &mut Mover<'_, '_>) -> std::io::Result<()> {
        if self.has(InodeFlags::EXTENTS) {
            let walk = self.walk_extents();
            let moved = mover.extents(&walk.kept)?;
            let goal = moved.first().map_or(Block(0), |extent| extent.start);
            // The tree gets new nodes, as far as there is room: the old one counts until the inode leads to
            // the new one, and others may still have to copy what it shares.
            let own: Vec<Block> = walk.own.into_iter().filter(|node| mover.owns(*node)).collect();
            let mut spare = own.iter().copied();
            let used = self.rebuild(&moved, &[], || {
                mover.plan.facts.allocate(mover.plan.subject, goal, 1).or_else(|| spare.next())
            });
            for node in own {
                mover.settle(node, used.contains(&node));
            }
            return Ok(());
        }
        let mut root = self.inode().raw().i_block;
        let mut base = 0;
        for slot in 0..block_map::ROOT_SLOTS {
            let depth = bounded::<u32>(slot.saturating_sub(11));
            let at = slot * block_map::POINTER_LEN;
            let bytes = invariant!(root.get_mut(at..at + block_map::POINTER_LEN), "an inode has 15 pointers");
            self.part_pointers(bytes, depth, base, mover)?;
            base += block_map::span(self.subject().geometry.block_size, depth);
        }
        self.scratch.inode.raw_mut().i_block = root;
        Ok(())
    }

    fn part_pointers(
        &mut self,
        bytes: &mut [u8],
        depth: u32,
        base: u64,
        mover: &mut Mover<'_, '_>,
    ) -> std::io::Result<()> {
        let span = block_map::span(self.subject().geometry.block_size, depth);
        for (at, index) in (0..bytes.len()).step_by(block_map::POINTER_LEN).zip(0..) {
            let block = u64::from(word(bytes, at));
            if block == 0 || !self.subject().geometry.contains(Block(block), 1) {
                continue;
            }
            let logical = base + index * span;
            let to = if depth == 0 { mover.place(logical, block) } else { mover.node(block) };
            let to = to.unwrap_or(0);
            if depth > 0 && to != 0 && self.may_read_node() {
                let mut node = self.subject().block(Block(block))?;
                self.part_pointers(&mut node, depth - 1, logical, mover)?;
                self.subject().write(Block(to), &node)?;
            } else if to != 0 {
                mover.copy(block, to)?;
            }
            put(bytes, at, &low_u32(to).to_le_bytes());
        }
        Ok(())
    }
}
