//! Block pointers: twelve in the inode, and those in pointer blocks below it.

use ondisk::block_map::{self, DIRECT, ROOT_SLOTS};
use ondisk::extent::Extent;
use ondisk::inode::I_BLOCK_LEN;
use ondisk::units::{Block, FileBlock, bounded};

use super::contents::Mapped;
use super::map::Walk;
use super::record::Examination;
use super::special::Role;
use crate::kinds::Kind;
use crate::kinds::inodes::{BAD_BLOCKS, DIRECTORY_TOO_LARGE, POINTER_BLOCK, POINTER_RANGE};
use crate::slices::put;
use crate::slices::word;

/// Repair of the inode that keeps blocks for descriptors.
const RESIZE_REPAIR: &str = "the inode is recreated; which blocks it has follows from the size of the volume";

/// Pointers that stand together.
#[derive(Clone, Copy)]
struct Level {
    /// Pointer blocks between each of them and contents.
    depth: u32,
    /// File block of the first.
    base: u64,
    /// The block that they stand in, if it is not the inode.
    node: Option<Block>,
}

/// Pointers of one node that have the same fault.
struct BadPointers {
    kind: &'static Kind,
    what: &'static str,
    count: u64,
    first: u64,
    /// Their offsets in the node.
    at: Vec<usize>,
}

impl BadPointers {
    fn new(kind: &'static Kind, what: &'static str) -> Self {
        BadPointers { kind, what, count: 0, first: 0, at: Vec::new() }
    }

    fn add(&mut self, pointer: u64, at: usize) {
        self.first = if self.count == 0 { pointer } else { self.first };
        self.count += 1;
        self.at.push(at);
    }
}

impl Examination<'_, '_, '_, '_> {
    /// Walks the pointers and mends them.
    pub(super) fn indirect(&mut self) -> Mapped {
        let walk = self.walk_pointers();
        if walk.mends && self.is_resize() {
            // All of it follows from the geometry; its nodes are blocks of the layout.
            self.scratch.inode.bytes_mut().fill(0);
            self.scratch.claims.clear();
            self.pass.special.want_resize();
            self.cut();
            return Mapped::default();
        }
        walk.mapped
    }

    pub(super) fn walk_pointers(&mut self) -> Walk {
        let mut walk = Walk::default();
        let mut root = self.inode().raw().i_block;
        let direct = DIRECT as usize * block_map::POINTER_LEN;
        let (low, high) = root.split_at_mut(direct);
        let mut changed = self.pointers(low, Level { depth: 0, base: 0, node: None }, &mut walk);
        let mut base = u64::from(DIRECT);
        for depth in 1..=3 {
            let at = (depth as usize - 1) * block_map::POINTER_LEN;
            if !self.reporter.any()
                && let Some(slot) = high.get_mut(at..at + block_map::POINTER_LEN)
            {
                changed |= self.pointers(slot, Level { depth, base, node: None }, &mut walk);
            }
            base += block_map::span(self.subject().geometry.block_size, depth);
        }
        debug_assert_eq!(root.len(), ROOT_SLOTS * block_map::POINTER_LEN);
        debug_assert_eq!(root.len(), I_BLOCK_LEN);
        if changed {
            self.lose_names();
            self.scratch.inode.raw_mut().i_block = root;
            self.cut();
        }
        walk
    }

    /// Examines pointers that stand together; returns true if some of them were cleared.
    fn pointers(&mut self, bytes: &mut [u8], level: Level, walk: &mut Walk) -> bool {
        let Level { depth, base, .. } = level;
        let span = block_map::span(self.subject().geometry.block_size, depth);
        let most = self.most_directory_blocks().map_or(u64::MAX, |most| most + 1);
        let mut outside = BadPointers::new(&POINTER_RANGE, "lead outside the volume");
        let mut behind = BadPointers::new(&DIRECTORY_TOO_LARGE, "are too many");
        let mut structures = BadPointers::new(&BAD_BLOCKS, "lead to structures of the volume");
        let mut changed = false;
        for (at, index) in (0..bytes.len()).step_by(block_map::POINTER_LEN).zip(0..) {
            let pointer = u64::from(word(bytes, at));
            let logical = base + index * span;
            if pointer == 0 {
                continue;
            }
            if self.cut_end().is_some_and(|end| logical >= end) {
                clear(bytes, at);
                changed = true;
                continue;
            }
            let bad = if !self.subject().geometry.contains(Block(pointer), 1) {
                &mut outside
            } else if depth == 0 && logical >= most || logical >= 1 << 32 {
                &mut behind
            } else if depth == 0 && self.is_bad_structure(Block(pointer)) {
                &mut structures
            } else {
                if depth == 0 {
                    self.pointed(pointer, logical, walk);
                } else if !self.pointer_block(Block(pointer), depth, logical, walk) {
                    clear(bytes, at);
                    changed = true;
                }
                if self.reporter.any() {
                    return false;
                }
                continue;
            };
            bad.add(pointer, at);
        }
        for bad in [outside, behind, structures] {
            let cleared = self.bad_pointers(&bad, level, bytes);
            walk.mends |= cleared;
            changed |= cleared;
        }
        changed
    }

    fn bad_pointers(&mut self, bad: &BadPointers, level: Level, bytes: &mut [u8]) -> bool {
        if bad.count == 0 {
            return false;
        }
        let found = || format!("{} block pointers {}, the first is {}", bad.count, bad.what, bad.first);
        let repair = if self.is_resize() {
            RESIZE_REPAIR
        } else if *bad.kind == BAD_BLOCKS {
            "the blocks are taken off the list, and used as before"
        } else {
            "the pointers are cleared: their parts of the file read as zeros"
        };
        if !self.tell_map(bad.kind, (level.node, Some(level.base)), found, repair) {
            return false;
        }
        for at in &bad.at {
            clear(bytes, *at);
        }
        true
    }

    /// Returns true if this is the list of bad blocks, and the block in it belongs to a structure of the volume.
    fn is_bad_structure(&self, block: Block) -> bool {
        self.pass.special.role(self.inode().number()) == Role::BadBlocks && self.pass.is_structure(block)
    }

    /// A block of contents.
    fn pointed(&mut self, pointer: u64, logical: u64, walk: &mut Walk) {
        let logical = FileBlock(bounded::<u32>(logical));
        let extent = Extent { logical, start: Block(pointer), count: 1, unwritten: false };
        let mut mapped = walk.mapped;
        if self.pass.special.role(self.inode().number()) == Role::Resize {
            mapped.clusters += 1;
            mapped.end = extent.logical_end();
            mapped.written_end = mapped.end;
        } else {
            self.claim_run(&mut mapped, &extent);
        }
        walk.mapped = mapped;
        if !self.reporter.is_silent() {
            match walk.kept.last_mut() {
                Some(last)
                    if last.logical_end() == u64::from(logical.0)
                        && last.end() == pointer
                        && last.count < 32_768 =>
                {
                    last.count += 1;
                }
                _ => walk.kept.push(extent),
            }
        }
    }

    /// A pointer block inside the volume; false where its pointer is to be cleared.
    fn pointer_block(&mut self, block: Block, depth: u32, base: u64, walk: &mut Walk) -> bool {
        let mut bytes = self.scratch.nodes.pop().unwrap_or_default();
        bytes.resize(self.subject().block_len(), 0);
        let problem = if self.may_read_node() {
            match self.subject().read(block, &mut bytes) {
                _ if self.is_foreign(block) && !self.is_resize() => {
                    Some("it belongs to something else".to_owned())
                }
                Ok(()) => self.is_no_pointer_block(&bytes),
                Err(problem) => Some(problem.to_string()),
            }
        } else {
            Some("maps lead to more nodes than the volume has blocks".to_owned())
        };
        let mut keep = true;
        if let Some(problem) = problem {
            let repair = if self.is_resize() {
                RESIZE_REPAIR
            } else {
                "the pointer to it is cleared: that part of the file reads as zeros"
            };
            keep = !self.tell_map(&POINTER_BLOCK, (Some(block), Some(base)), || problem, repair);
            walk.mends |= !keep;
        } else {
            let mut mapped = walk.mapped;
            self.claim_pointer_block(&mut mapped, block, depth);
            walk.mapped = mapped;
            let level = Level { depth: depth - 1, base, node: Some(block) };
            if self.pointers(&mut bytes, level, walk) && !self.is_resize() {
                self.stage(block, &bytes);
                self.cut();
            }
            if !self.reporter.is_silent() {
                walk.own.push(block);
            }
        }
        self.scratch.nodes.push(bytes);
        keep
    }

    fn claim_pointer_block(&mut self, mapped: &mut Mapped, block: Block, depth: u32) {
        mapped.fragmented |= mapped.previous != 0 && mapped.previous + 1 != block.0;
        mapped.previous = block.0;
        if self.pass.special.role(self.inode().number()) == Role::Resize && depth == 2 {
            self.claim_reserved(block);
        }
        self.claim_node(mapped, block);
    }

    /// Returns the reason for which a block can't be one of pointers: most of its words lead nowhere.
    fn is_no_pointer_block(&self, bytes: &[u8]) -> Option<String> {
        let geometry = &self.subject().geometry;
        let pointers = bytes.chunks_exact(4).map(|bytes| u64::from(word(bytes, 0))).filter(|at| *at != 0);
        let (mut bad, mut all) = (0_u32, 0_u32);
        for pointer in pointers {
            all += 1;
            bad += u32::from(!geometry.contains(Block(pointer), 1));
        }
        (bad > 8 && bad > all / 2).then(|| format!("{bad} of {all} pointers lead outside the volume"))
    }
}

fn clear(bytes: &mut [u8], at: usize) {
    put(bytes, at, &[0; block_map::POINTER_LEN]);
}
