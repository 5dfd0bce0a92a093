//! Extent trees: every node and entry, and the tree that is left where some of it is broken.
//!
//! As little as can be is lost: an entry that reaches over its bounds keeps the part inside, a
//! broken node takes only what hangs below it. The tree is then rewritten, packed into the nodes
//! that it has.

use ondisk::extent::{self, Child, ENTRY_LEN, Entries, Extent, Head, MAX_DEPTH, Node};
use ondisk::units::{Block, FileBlock, saturated};

use super::contents::Mapped;
use super::fields::is_extent_head;
use super::map::Walk;
use super::record::Examination;
use crate::kinds::Kind;
use crate::kinds::inodes::{
    DIRECTORY_HOLE, DIRECTORY_TOO_LARGE, DIRECTORY_UNWRITTEN, EXTENT_DEPTH, EXTENT_EMPTY, EXTENT_INDEX_START,
    EXTENT_NODE, EXTENT_NODE_CHECKSUM, EXTENT_NODE_DEPTH, EXTENT_ORDER, EXTENT_RANGE, EXTENT_ROOT,
};
use crate::reporter::Finding;

/// Levels below a root that are followed: deeper than any tree that a program wrote, and few enough for the
/// stack. Trees deeper than [`MAX_DEPTH`] are rewritten.
const DEEPEST: u16 = 32;

/// Bounds of a node: the levels below it, and the file blocks that it may map, from one on, up to where its right
/// neighbour begins.
#[derive(Clone, Copy)]
struct Bounds {
    depth: u16,
    from: u64,
    until: Option<u64>,
    /// True if no entry of the same node comes behind.
    last: bool,
}

fn entry(bytes: &[u8], index: u16) -> &[u8] {
    let at = ENTRY_LEN * (usize::from(index) + 1);
    bytes.get(at..at + ENTRY_LEN).unwrap_or_default()
}

/// Takes from extents what is behind a file block; returns true if that was anything.
fn cut_at(extents: &mut Vec<Extent>, end: u64) -> bool {
    let behind = extents.iter().any(|extent| extent.logical_end() > end);
    extents.retain(|extent| u64::from(extent.logical.0) < end);
    for extent in extents {
        let most = end - u64::from(extent.logical.0);
        extent.count = saturated::<u32>(most).min(extent.count);
    }
    behind
}

impl Examination<'_, '_, '_, '_> {
    /// Levels below the root that a map of all 2^32 file blocks needs.
    fn most_depth(&self) -> u16 {
        let per_node = u32::from(extent::capacity(self.subject().block_len()));
        u16::try_from(1 + (31 - 2) / per_node.max(2).ilog2()).unwrap_or(MAX_DEPTH)
    }

    /// Walks the tree and mends it.
    pub(super) fn extents(&mut self) -> Mapped {
        let claims = self.scratch.claims.len();
        let mut walk = self.walk_extents();
        if let Some(end) = self.cut_end() {
            walk.mends |= cut_at(&mut walk.kept, end);
        }
        if self.reporter.is_silent() || !walk.mends || walk.leaves {
            return walk.mapped;
        }
        if walk.lent && !self.fits(&walk) {
            // Its own nodes do not hold it. First it gets copies of those that are not; the next check goes on.
            return walk.mapped;
        }
        self.lose_names();
        // A tree of the same entries or fewer, packed, needs no more nodes than it had.
        let nodes = self.rebuild(&walk.kept, &walk.own, || None);
        self.recount(&walk.kept, &nodes, claims)
    }

    /// Returns true if the nodes that are the tree's own hold all that is left of it.
    fn fits(&self, walk: &Walk) -> bool {
        let per_node = usize::from(extent::capacity(self.subject().block_len()));
        let (mut level, mut nodes) = (walk.kept.len(), 0);
        while level > 4 {
            level = level.div_ceil(per_node);
            nodes += level;
        }
        nodes <= walk.own.len()
    }

    /// Walks the tree.
    pub(super) fn walk_extents(&mut self) -> Walk {
        let mut root = self.inode().raw().i_block;
        let mut walk = Walk::default();
        if !is_extent_head(&root) && !self.root(&mut root, &mut walk) {
            return Walk { leaves: true, ..Walk::default() };
        }
        let stated = Head::read(&root).depth;
        let quick = self.reporter.is_silent() && Head::read(&root).count > 0;
        let depth = if quick { stated } else { self.true_depth(&root) };
        walk.mapped.is_tree = depth > 0;
        if depth != stated || depth > self.most_depth() || stated > MAX_DEPTH {
            let found = || format!("a tree of {stated} levels below its root, where there are {depth}");
            let repair = "the tree is rewritten with as many levels as it needs";
            walk.mends |= self.tell_map(&EXTENT_DEPTH, (None, None), found, repair);
            if !walk.mends {
                // Nothing is known of the map then; nor may a hostile depth be followed.
                return Walk { leaves: true, ..walk };
            }
        }
        self.node(&root, Bounds { depth, from: 0, until: None, last: true }, &mut walk);
        walk
    }

    /// Levels below the root: what it says, unless the nodes below it or its entries agree on something
    /// else. At most [`DEEPEST`].
    fn true_depth(&self, root: &[u8]) -> u16 {
        let head = Head::read(root);
        let mut bytes = vec![0; self.subject().block_len()];
        let mut below = Vec::new();
        for index in 0..head.count {
            let node = Child::read(entry(root, index)).node;
            let read =
                self.subject().geometry.contains(node, 1) && self.subject().read(node, &mut bytes).is_ok();
            let depth = Head::read(&bytes).depth;
            if read && is_extent_head(&bytes) && (depth != 0 || self.are_extents(&bytes)) && depth < DEEPEST {
                below.push(depth + 1);
            }
        }
        let (first, stated) = (below.first().copied(), head.depth);
        match first {
            _ if head.count == 0 || self.are_extents(root) => 0,
            _ if below.contains(&stated) => stated,
            Some(depth) if (depth == 1 || below.len() > 1) && below.iter().all(|other| *other == depth) => {
                depth
            }
            _ => stated.min(DEEPEST),
        }
    }

    /// Returns true if all entries of a node could be those of a leaf.
    fn are_extents(&self, node: &[u8]) -> bool {
        let mut end = 0;
        (0..Head::read(node).count).all(|index| {
            let extent = Extent::read(entry(node, index));
            // Entries of an index, read as extents, begin at block 0.
            let fits = extent.count > 0 && extent.start.0 > 0 && u64::from(extent.logical.0) >= end;
            end = extent.logical_end();
            fits && self.subject().geometry.contains(extent.start, u64::from(extent.count))
        })
    }

    /// A root that is no node; returns true if something could be made of it.
    fn root(&mut self, root: &mut [u8; 60], walk: &mut Walk) -> bool {
        let head = Head::read(root);
        let signs = [
            head.magic == extent::EXTENT_MAGIC,
            (2..=4).contains(&head.capacity),
            head.count <= 4 && head.depth <= MAX_DEPTH,
        ];
        let readable = signs.iter().filter(|sign| **sign).count() >= 2 && head.depth <= MAX_DEPTH;
        let zero = root.iter().all(|byte| *byte == 0);
        let mends = self.tell(&EXTENT_ROOT, |inode| {
            let found =
                format!("magic {:#06x}, {} entries of at most {}", head.magic, head.count, head.capacity);
            let repair = if readable {
                "its head is rewritten, what it lists is kept".to_owned()
            } else if zero {
                "an empty map is written".to_owned()
            } else {
                format!("the map is lost: all {} bytes of contents go", inode.size())
            };
            Finding::unplaced(found, repair)
        });
        if !mends {
            return false;
        }
        let fresh = Head {
            magic: extent::EXTENT_MAGIC,
            count: if readable { head.count.min(4) } else { 0 },
            capacity: 4,
            depth: if readable { head.depth } else { 0 },
        };
        if !readable {
            root.fill(0);
        }
        fresh.store(root);
        walk.mends = true;
        true
    }

    /// The entries of a node.
    fn node(&mut self, bytes: &[u8], bounds: Bounds, walk: &mut Walk) {
        let count = Head::read(bytes).count;
        for index in 0..count {
            if bounds.depth == 0 {
                let found = Extent::read(entry(bytes, index));
                let over =
                    if self.reporter.is_silent() { None } else { self.over(bytes, index, bounds, walk) };
                let until = [bounds.until, over].into_iter().flatten().min();
                self.leaf_entry(found, Bounds { until, last: index + 1 == count, ..bounds }, walk);
            } else {
                let child = Child::read(entry(bytes, index));
                let next =
                    (index + 1 < count).then(|| u64::from(Child::read(entry(bytes, index + 1)).logical.0));
                let (depth, until) = (bounds.depth - 1, next.or(bounds.until));
                self.subtree(child, Bounds { depth, until, ..bounds }, walk);
            }
            if self.reporter.any() {
                return;
            }
        }
    }

    /// Walks the tree below an entry of an index node.
    fn subtree(&mut self, child: Child, bounds: Bounds, walk: &mut Walk) {
        let mut bytes = self.scratch.nodes.pop().unwrap_or_default();
        bytes.resize(self.subject().block_len(), 0);
        match self.read_node(child, bounds.depth, &mut bytes) {
            Ok(()) => self.child(child, &bytes, bounds, walk),
            Err(problem) => {
                let at = (Some(child.node), Some(u64::from(child.logical.0)));
                let repair = "what the node listed is lost to the file; all else of it is kept";
                if self.tell_map(&EXTENT_NODE, at, || problem, repair) {
                    walk.mends = true;
                } else {
                    walk.leaves = true;
                }
            }
        }
        self.scratch.nodes.push(bytes);
    }

    fn read_node(&self, child: Child, depth: u16, bytes: &mut [u8]) -> Result<(), String> {
        let subject = self.subject();
        if !subject.geometry.contains(child.node, 1) {
            return Err("the node lies outside the volume".into());
        }
        if !self.may_read_node() {
            return Err("maps lead to more nodes than the volume has blocks".into());
        }
        subject.read(child.node, bytes).map_err(|problem| problem.to_string())?;
        let head = Head::read(bytes);
        if self.is_foreign(child.node) && !self.is_own_in_foreign(depth, bytes) {
            return Err("the node belongs to something else".into());
        }
        if !is_extent_head(bytes) {
            let Head { magic, count, capacity, .. } = head;
            return Err(format!("no node: magic {magic:#06x}, {count} entries of at most {capacity}"));
        }
        if head.count == 0 {
            return Err("a node without entries".into());
        }
        Ok(())
    }

    /// Returns true if a block that something else claims holds a node of this tree all the same: then the tree gets a
    /// copy of it, as of any block that is shared.
    fn is_own_in_foreign(&self, depth: u16, bytes: &[u8]) -> bool {
        is_extent_head(bytes)
            && Head::read(bytes).depth == depth
            && self.subject().seed_of(self.inode()).extent_node_is_right(bytes)
    }

    fn child(&mut self, child: Child, bytes: &[u8], bounds: Bounds, walk: &mut Walk) {
        let first = FileBlock(u32::from_le_bytes(
            entry(bytes, 0).get(..4).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default(),
        ));
        let at = (Some(child.node), Some(u64::from(child.logical.0)));
        let mut reported = false;
        if first != child.logical {
            reported = true;
            let found = || format!("begins with file block {first}, its parent says {}", child.logical);
            walk.mends |= self.tell_map(&EXTENT_INDEX_START, at, found, "the parent is set right");
        }
        let (stated, depth) = (Head::read(bytes).depth, bounds.depth);
        if stated != depth {
            reported = true;
            let found = || format!("says {stated} levels are below it, there are {depth}");
            walk.mends |= self.tell_map(&EXTENT_NODE_DEPTH, at, found, "the depth is set right");
        }
        let before = walk.mends;
        self.node(bytes, Bounds { from: u64::from(first.0), ..bounds }, walk);
        let seed = self.subject().seed_of(self.inode());
        if !seed.extent_node_is_right(bytes) && !reported && before == walk.mends && !walk.leaves {
            let found = || "the node's checksum is wrong, its entries are right".to_owned();
            walk.mends |= self.tell_map(&EXTENT_NODE_CHECKSUM, at, found, "the checksum is recomputed");
        }
        let mut mapped = walk.mapped;
        self.claim_node(&mut mapped, child.node);
        walk.mapped = mapped;
        if !self.reporter.is_silent() {
            if self.is_foreign(child.node) {
                walk.lent = true;
            } else {
                walk.own.push(child.node);
            }
        }
    }

    /// Where an entry must end because it, and not the next, is wrong: it reaches over all of the next, or
    /// stands behind those that follow.
    fn over(&self, bytes: &[u8], index: u16, bounds: Bounds, walk: &Walk) -> Option<u64> {
        let count = Head::read(bytes).count;
        let at = |index: u16| (index < count).then(|| Extent::read(entry(bytes, index)));
        let (found, next, after) = (at(index)?, at(index + 1)?, at(index + 2));
        let from = bounds.from.max(walk.mapped.end);
        let begins = u64::from(next.logical.0);
        let wrong = if found.logical > next.logical {
            after.is_some_and(|after| after.logical <= found.logical && after.logical > next.logical)
        } else {
            found.logical < next.logical && found.logical_end() >= next.logical_end()
        };
        (wrong && next.count > 0 && begins >= from).then_some(begins)
    }

    /// An entry of a leaf.
    fn leaf_entry(&mut self, found: Extent, bounds: Bounds, walk: &mut Walk) {
        let mut extent = found;
        if let Some((kind, words)) = self.fault(&mut extent, bounds, walk) {
            let at = (Some(found.start), Some(u64::from(found.logical.0)));
            let lost = found.count - extent.count;
            let repair = if lost == 0 {
                "the entry goes, nothing is lost with it".to_owned()
            } else {
                format!("{lost} of the {} blocks are lost to the file", found.count)
            };
            if self.tell_map(kind, at, || words, &repair) {
                walk.mends = true;
            } else {
                // Claimed only where that is possible at all.
                extent = found;
                walk.leaves |= extent.end() > self.subject().geometry.blocks;
            }
            if extent.count == 0 || walk.leaves {
                return;
            }
        }
        if self.is_directory() {
            self.directory_entry(&mut extent, walk);
        }
        let mut mapped = walk.mapped;
        self.claim_run(&mut mapped, &extent);
        walk.mapped = mapped;
        if !self.reporter.is_silent() {
            walk.kept.push(extent);
        }
    }

    /// Returns the fault of an entry, if it has one; cuts the entry down to the part that can stay.
    fn fault(&self, extent: &mut Extent, bounds: Bounds, walk: &Walk) -> Option<(&'static Kind, String)> {
        let geometry = &self.subject().geometry;
        let found = *extent;
        let mut fault: Option<(&'static Kind, String)> = None;
        if extent.count == 0 {
            return Some((&EXTENT_EMPTY, format!("an entry of no blocks at file block {}", found.logical)));
        }
        // Block 0 holds the superblock or the boot sector.
        if found.start.0 == 0 || !geometry.contains(found.start, 1) {
            extent.count = 0;
            return Some((&EXTENT_RANGE, format!("blocks from {} on lie outside the volume", found.start)));
        }
        if found.end() > geometry.blocks {
            // How much of it is true is not known; blocks behind the contents are the least likely.
            let contents = geometry.block_size.blocks_for(self.inode().size());
            let inside = contents.saturating_sub(u64::from(found.logical.0));
            extent.count = ondisk::units::low_u32(inside.min(geometry.blocks - found.start.0));
            fault = Some((&EXTENT_RANGE, format!("ends at block {}, behind the volume", found.end())));
        }
        let from = bounds.from.max(walk.mapped.end);
        let logical = u64::from(found.logical.0);
        if logical < from {
            let ahead = saturated::<u32>(from - logical).min(extent.count);
            extent.count -= ahead;
            extent.logical.0 = found.logical.0.saturating_add(ahead);
            extent.start.0 += u64::from(ahead);
            fault.get_or_insert((&EXTENT_ORDER, format!("begins at file block {logical}, behind {from}")));
        }
        let until = bounds.until.unwrap_or(1 << 32);
        let may = bounds.last && self.is_beyond_contents(extent);
        if extent.count > 0 && extent.logical_end() > until && !may {
            let over = saturated::<u32>(extent.logical_end() - until);
            extent.count -= over.min(extent.count);
            fault.get_or_insert((
                &EXTENT_ORDER,
                format!("reaches over file block {until}, where the next begins"),
            ));
        }
        if let Some(most) = self.most_directory_blocks()
            && extent.count > 0
            && extent.logical_end() > most
        {
            let over = saturated::<u32>(extent.logical_end() - most);
            extent.count -= over.min(extent.count);
            fault.get_or_insert((
                &DIRECTORY_TOO_LARGE,
                format!("file block {} of a directory", found.logical),
            ));
        }
        fault
    }

    /// Returns true if an entry only keeps blocks for later, behind the end of the contents.
    fn is_beyond_contents(&self, extent: &Extent) -> bool {
        let blocks = self.subject().geometry.block_size.blocks_for(self.inode().size());
        extent.unwritten && extent.logical_end() > blocks && extent.logical_end() <= 1 << 32
    }

    /// Directories have neither holes nor blocks that are not written.
    fn directory_entry(&mut self, extent: &mut Extent, walk: &mut Walk) {
        let at = (Some(extent.start), Some(u64::from(extent.logical.0)));
        if extent.unwritten {
            let found = || format!("{} blocks of a directory are marked as never written", extent.count);
            let repair = "the mark goes; names in the blocks are looked at";
            if self.tell_map(&DIRECTORY_UNWRITTEN, at, found, repair) {
                extent.unwritten = false;
                walk.mends = true;
            }
        }
        let (end, logical) = (walk.mapped.end, u64::from(extent.logical.0));
        if logical > end {
            let mask = (1_u64 << self.subject().geometry.cluster_log2) - 1;
            let down =
                if mask == 0 { end } else { (end.next_multiple_of(mask + 1)) | (extent.start.0 & mask) };
            let found = || format!("no blocks from file block {end} to {}", logical - 1);
            if down < logical
                && self.tell_map(&DIRECTORY_HOLE, at, found, "the blocks behind move down, nothing is lost")
            {
                extent.logical = FileBlock(u32::try_from(down).unwrap_or(extent.logical.0));
                walk.mends = true;
            }
        }
    }

    /// Rewrites a tree of extents, into nodes that the inode has and those that `more` gives; the
    /// nodes it needs.
    pub(super) fn rebuild(
        &mut self,
        kept: &[Extent],
        own: &[Block],
        mut more: impl FnMut() -> Option<Block>,
    ) -> Vec<Block> {
        let mut used = Vec::new();
        let mut level = Entries::Leaf(kept.to_vec());
        let mut depth = 0;
        let mut free = own.iter().copied();
        while len(&level) > 4 {
            let parts = split(&level, usize::from(extent::capacity(self.subject().block_len())));
            let mut parents = Vec::new();
            for part in parts {
                let Some(node) = free.next().or_else(&mut more) else { break };
                parents.push(Child { logical: first(&part), node });
                self.store_node(part, depth, node);
                used.push(node);
            }
            level = Entries::Index(parents);
            depth += 1;
        }
        let i_block = &mut self.scratch.inode.raw_mut().i_block;
        i_block.fill(0);
        Node { depth, capacity: 4, entries: level }.store(i_block);
        self.cut();
        used
    }

    fn store_node(&mut self, entries: Entries, depth: u16, node: Block) {
        let mut bytes = vec![0; self.subject().block_len()];
        let capacity = extent::capacity(bytes.len());
        Node { depth, capacity, entries }.store(&mut bytes);
        self.subject().seed_of(self.inode()).seal_extent_node(&mut bytes);
        self.stage(node, &bytes);
    }
}

fn len(entries: &Entries) -> usize {
    match entries {
        Entries::Leaf(extents) => extents.len(),
        Entries::Index(children) => children.len(),
    }
}

fn first(entries: &Entries) -> FileBlock {
    let first = match entries {
        Entries::Leaf(extents) => extents.first().map(|extent| extent.logical),
        Entries::Index(children) => children.first().map(|child| child.logical),
    };
    first.unwrap_or_default()
}

fn split(entries: &Entries, most: usize) -> Vec<Entries> {
    match entries {
        Entries::Leaf(extents) => extents.chunks(most).map(|part| Entries::Leaf(part.to_vec())).collect(),
        Entries::Index(children) => children.chunks(most).map(|part| Entries::Index(part.to_vec())).collect(),
    }
}
