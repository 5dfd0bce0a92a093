//! The index of a directory, walked from its root: what each block of the directory is, and which hashes
//! its names may have.
//!
//! An index is made of nothing but the names, so any fault in it has the same repair: it is rebuilt.
//! That is why the walk ends at the first one. Each block is taken once, so that the walk ends whatever the
//! blocks say.

use std::io;

use ondisk::dirent::Layout;
use ondisk::features::Incompat;
use ondisk::htree::{BrokenIndex, Index, Kind as Level, ROOT_ENTRIES, Root, looks_like_node};
use ondisk::inode::{Inode, InodeFlags};
use ondisk::seal::InodeSeed;
use ondisk::units::{FileBlock, bounded};

use super::blocks::Blocks;
use super::hash::{Hasher, STORED};
use crate::kinds::Kind;
use crate::kinds::directories::{
    INDEX_CHECKSUM, INDEX_COUNT, INDEX_LIMIT, INDEX_MISSING, INDEX_NODE, INDEX_ORDER, INDEX_OUTSIDE,
    INDEX_ROOT, INDEX_TWICE,
};
use crate::slices::as_index;
use crate::subject::Subject;

/// Hashes are even; this one is above all.
const HASH_MAX: u32 = 0xFFFF_FFFE;

/// Role of a block in an indexed directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// Nothing leads to it.
    Unknown,
    /// The root or a node of the index.
    Index,
    /// A block of names whose hashes lie between these, both included.
    Leaf(u32, u32),
}

/// A fault: its kind, where, and what is there.
pub(super) struct Fault {
    pub(super) kind: &'static Kind,
    pub(super) file_block: FileBlock,
    pub(super) found: String,
}

/// Reason for which the walk ended early.
pub(super) enum Stop {
    Fault(Fault),
    Unreadable(io::Error),
}

fn fault(kind: &'static Kind, file_block: FileBlock, found: impl Into<String>) -> Stop {
    Stop::Fault(Fault { kind, file_block, found: found.into() })
}

/// A block of the index that waits to be read: where, and the hashes below it.
struct Waiting {
    file_block: FileBlock,
    least: u32,
    most: u32,
}

/// The walk over one index.
pub(super) struct Walk<'a> {
    pub(super) subject: &'a Subject,
    pub(super) layout: Layout,
    pub(super) inode: &'a Inode,
    pub(super) seed: InodeSeed,
    pub(super) blocks: &'a Blocks,
    /// By file block.
    pub(super) roles: &'a mut Vec<Role>,
}

impl Walk<'_> {
    /// Walks from the root, whose bytes are given.
    pub(super) fn run(&mut self, root_bytes: &[u8]) -> Result<Hasher, Stop> {
        self.roles.clear();
        self.roles.resize(as_index(self.blocks.end()), Role::Unknown);
        let (hasher, levels) = self.root(root_bytes)?;
        self.take(FileBlock(0), FileBlock(0), Role::Index)?;
        let whole = Waiting { file_block: FileBlock(0), least: 0, most: HASH_MAX };
        let mut level = Vec::new();
        self.children(root_bytes, Level::Root, &whole, &mut level)?;
        for _ in 1..levels {
            let mut below = Vec::new();
            for node in &level {
                self.node(node, &mut below)?;
            }
            level = below;
        }
        for leaf in &level {
            self.take(leaf.file_block, leaf.file_block, Role::Leaf(leaf.least, leaf.most))?;
        }
        match self.roles.iter().position(|role| *role == Role::Unknown) {
            Some(missing) if !self.may_have_holes() || self.is_mapped(missing) => {
                let block = FileBlock(bounded::<u32>(missing));
                Err(fault(&INDEX_MISSING, block, "nothing leads to this block"))
            }
            _ => Ok(hasher),
        }
    }

    /// Volumes with large directories may leave out emptied blocks.
    fn may_have_holes(&self) -> bool {
        self.subject.has_incompat(Incompat::LARGEDIR)
    }

    fn is_mapped(&self, block: usize) -> bool {
        u32::try_from(block).is_ok_and(|block| self.blocks.find(FileBlock(block)).is_some())
    }

    /// Head of the root: hash and levels.
    fn root(&self, bytes: &[u8]) -> Result<(Hasher, u8), Stop> {
        let broken = |problem: BrokenIndex| fault(&INDEX_ROOT, FileBlock(0), problem.to_string());
        let flags = self.inode.flags();
        let stored = flags.contains(InodeFlags::CASEFOLD | InodeFlags::ENCRYPT);
        let version_at = ROOT_ENTRIES - 4;
        if stored != (bytes.get(version_at) == Some(&STORED)) {
            let version = bytes.get(version_at).copied().unwrap_or(0);
            return Err(broken(BrokenIndex::HashVersion(version)));
        }
        let large = self.may_have_holes();
        if !stored {
            let root = Root::parse(bytes, self.layout, large).map_err(broken)?;
            return Ok((Hasher::new(&self.subject.raw, self.inode, root.version), root.levels));
        }
        // The rest of the root is judged as if the version were one that is known.
        let mut known = bytes.to_vec();
        if let Some(version) = known.get_mut(version_at) {
            *version = 1;
        }
        let root = Root::parse(&known, self.layout, large).map_err(broken)?;
        Ok((Hasher::Stored, root.levels))
    }

    fn node(&mut self, node: &Waiting, below: &mut Vec<Waiting>) -> Result<(), Stop> {
        self.take(node.file_block, node.file_block, Role::Index)?;
        let Some(block) = self.blocks.find(node.file_block) else {
            return Err(fault(&INDEX_NODE, node.file_block, "a hole in place of a node"));
        };
        let bytes = self.subject.block(block).map_err(Stop::Unreadable)?;
        self.children(&bytes, Level::Node, node, below)
    }

    /// Gives a block its role, which it must not have yet.
    fn take(&mut self, block: FileBlock, from: FileBlock, role: Role) -> Result<(), Stop> {
        match self.roles.get_mut(as_index(u64::from(block.0))) {
            Some(cell) if *cell == Role::Unknown => {
                *cell = role;
                Ok(())
            }
            Some(_) => Err(fault(&INDEX_TWICE, block, "more than one entry leads to this block")),
            None => Err(fault(&INDEX_OUTSIDE, from, format!("an entry leads to block {block}"))),
        }
    }

    fn children(
        &self,
        bytes: &[u8],
        level: Level,
        node: &Waiting,
        below: &mut Vec<Waiting>,
    ) -> Result<(), Stop> {
        let at = node.file_block;
        let parsed = Index::parse(bytes, level, self.layout).map_err(|problem| {
            let kind = match problem {
                BrokenIndex::Limit(..) => &INDEX_LIMIT,
                BrokenIndex::Count(..) => &INDEX_COUNT,
                _ => &INDEX_NODE,
            };
            fault(kind, at, problem.to_string())
        })?;
        if !self.seed.index_node_is_right(bytes, level.entries_offset()) {
            return Err(fault(&INDEX_CHECKSUM, at, "the checksum does not fit"));
        }
        let mut before = node.least;
        for (position, entry) in parsed.iter().enumerate() {
            let least = if position == 0 { node.least } else { entry.hash & !1 };
            if least < before || least > node.most {
                let found = format!("hash {least:#010x} behind {before:#010x}");
                return Err(fault(&INDEX_ORDER, at, found));
            }
            if self.roles.get(as_index(u64::from(entry.block.0))).is_none() {
                let found = format!("leads to block {} of {}", entry.block, self.roles.len());
                return Err(fault(&INDEX_OUTSIDE, at, found));
            }
            // The range of a block ends where the next one's begins: names of that hash may be in both.
            let most = parsed.get(position + 1).map_or(node.most, |next| next.hash & !1);
            below.push(Waiting { file_block: entry.block, least, most });
            before = least;
        }
        Ok(())
    }
}

/// Returns true if a block where names should be is one of the index instead.
pub(super) fn is_misplaced_node(bytes: &[u8], layout: Layout) -> bool {
    looks_like_node(bytes, layout) && Index::parse(bytes, Level::Node, layout).is_ok()
}
