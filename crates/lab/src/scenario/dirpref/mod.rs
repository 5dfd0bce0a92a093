//! Reproduces the comparison of FFS's directory rules (2001): unpacking and removing a ports tree
//! on volumes of 991 and 5,324 groups of 8 MB, in four modes of writing metadata.
//!
//! A group is 8,192 fragments of 1 KiB: a copy of the superblock and the group's maps in one FFS
//! block of 8 each, then 2,048 inodes of 128 bytes (newfs made one per 4 KiB), 64 in each block
//! of 8, then data. The engine's clusters are the fragments, which are also the blocks of an ext2
//! with groups of 8 MB. Every file and every directory takes one. Fragments are taken at the first free
//! place from the goal on under every policy, so that only the places of inodes differ, and whether
//! the policy keeps directories' blocks together. Inodes and maps are read and written in blocks of 8 KiB,
//! directories and files in fragments.
//!
//! Unpacking (`untar`) makes each directory and file in the order of the archive. Removing (`rm`) follows
//! with the cache as unpacking left it, all of it written; `cold rm` follows a remount. Both go depth
//! first in the order of the names, which is that of creation. Each workload ends with what is
//! still to be written. Costs: [`disk`], [`cache`].

mod cache;
mod disk;

use super::Setup;
use crate::measure;
use crate::numbers::float;
use crate::table::{Row, Rows};
use crate::tree::{Entry, Tree};
use cache::{Cache, Mode, Phase, Role};
use ondisk::units::{Cluster, ClusterRun, Group};
use placement::inode::policy::DIRECTORY_POLICIES;
use placement::{
    BlockPolicyKind, DirectoryPolicyKind, Engine, GroupContent, InodeContent, InodeEngine, InodeRequest,
    Layout, Request,
};
use std::collections::BTreeSet;
use std::sync::Arc;

const GROUP: u32 = 8_192;
/// Bytes of a fragment, the engine's cluster.
const FRAGMENT: u32 = 1_024;
const BLOCK: u32 = 8;
const INODES: u32 = 2_048;
const INODES_PER_BLOCK: u32 = 64;
/// Superblock copy, maps, inodes.
const HEADER: u32 = 2 * BLOCK + INODES / INODES_PER_BLOCK * BLOCK;
/// Inodes in use on an empty volume: two that were never used, and the root.
const RESERVED: u32 = 3;
const ROOT: u32 = 2;

const VOLUMES: [(&str, u32); 2] = [("8 GB", 991), ("40 GB", 5_324)];
const MODES: [(&str, Mode); 4] =
    [("normal", Mode::Normal), ("async", Mode::Async), ("sync", Mode::Sync), ("softdep", Mode::Softdep)];

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Untar,
    Remove,
    RemoveCold,
}

const OWN: [DirectoryPolicyKind; 4] = [
    DirectoryPolicyKind::Near,
    DirectoryPolicyKind::Spread,
    DirectoryPolicyKind::Dirpref,
    DirectoryPolicyKind::Orlov,
];

pub(crate) fn run(setup: &Setup) -> Rows {
    let mut rows = Vec::new();
    for (volume, groups) in VOLUMES {
        let placed: Vec<_> =
            policies(setup).into_iter().filter_map(|kind| Placed::new(groups, kind, setup)).collect();
        for (name, work) in [("untar", Work::Untar), ("rm", Work::Remove), ("cold rm", Work::RemoveCold)] {
            for (mode_name, mode) in MODES {
                let case = format!("{volume} {mode_name} {name}");
                if setup.wants(&case) {
                    rows.extend(placed.iter().map(|placed| placed.cell(&case, mode, work)));
                }
            }
        }
    }
    rows
}

fn policies(setup: &Setup) -> Vec<DirectoryPolicyKind> {
    if setup.policies.is_empty() {
        return OWN.to_vec();
    }
    let named = DIRECTORY_POLICIES.iter().filter(|row| setup.policies.iter().any(|p| p == row.name));
    named.map(|row| row.kind).collect()
}

/// A file or directory on the volume: its inode and its block.
struct Node {
    inode: u32,
    block: u64,
    entries: Option<Vec<Node>>,
}

/// The tree as a policy placed it.
struct Placed {
    policy: &'static str,
    root: Node,
    directories: u32,
    /// Groups the policy looked at.
    considered: u64,
}

/// A volume that is being filled.
struct Filling {
    space: Arc<Engine>,
    inodes: InodeEngine,
}

impl Placed {
    fn new(groups: u32, kind: DirectoryPolicyKind, setup: &Setup) -> Option<Placed> {
        let filling = Filling::new(groups, kind)?;
        let root = Node { inode: ROOT, block: filling.block(ROOT, true)?, entries: None };
        let tree = crate::tree::ports(if setup.quick { 4 } else { 1 });
        let hash = u32::try_from(crate::numbers::Numbers::new(setup.seed).below(1 << 31)).unwrap_or(0);
        let ports = filling.directory(&tree, ROOT, true, hash)?;
        let root = Node { entries: Some(vec![ports]), ..root };
        let considered = filling.inodes.groups_considered();
        Some(Placed { policy: kind.name(), root, directories: tree.counts().0, considered })
    }

    fn cell(&self, case: &str, mode: Mode, work: Work) -> Row {
        let mut machine = Machine { cache: Cache::new(mode), groups: BTreeSet::new() };
        let tops = || self.root.entries.iter().flatten();
        if work != Work::RemoveCold {
            tops().for_each(|node| machine.create(node, &self.root));
        }
        if work != Work::Untar {
            machine.cache.begin(Phase::Removing);
            tops().for_each(|node| machine.remove(node, &self.root));
        }
        machine.cache.flush();
        let disk = &machine.cache.disk;
        let values = vec![
            ("groups", float(u64::try_from(machine.groups.len()).unwrap_or(0))),
            ("misses", float(machine.cache.misses)),
            ("requests", float(disk.requests)),
            ("seeks", float(disk.seeks)),
            ("distance", float(disk.distance)),
            ("seconds", disk.milliseconds / 1_000.0),
            ("groups seen/mkdir", measure::ratio(self.considered, u64::from(self.directories))),
        ];
        Row { case: case.into(), policy: self.policy.into(), values }
    }
}

impl Filling {
    fn new(groups: u32, kind: DirectoryPolicyKind) -> Option<Filling> {
        let layout = Layout {
            clusters: u64::from(groups) * u64::from(GROUP),
            clusters_per_group: GROUP,
            groups,
            inodes_per_group: INODES,
            groups_per_flex: 1,
        };
        let space = Arc::new(Engine::new(layout, BlockPolicyKind::Lease).ok()?);
        let mut policy = kind.make();
        // Only policies that count in bytes have it.
        let _ = policy.set("cluster_bytes", FRAGMENT);
        let inodes = InodeEngine::with_policy(Arc::clone(&space), policy);
        for group in (0..groups).map(Group) {
            let header = ClusterRun { start: layout.group_start(group), count: HEADER };
            let content = GroupContent::Uninitialised { used: &[header] };
            space.describe_group(group, GROUP - HEADER, content).ok()?;
            let used = if group.0 == 0 { RESERVED } else { 0 };
            let content = InodeContent::Uninitialised { used };
            inodes.describe_group(group, INODES - used, u32::from(group.0 == 0), content).ok()?;
        }
        Some(Filling { space, inodes })
    }

    /// The block of a new file or directory.
    fn block(&self, inode: u32, is_directory: bool) -> Option<u64> {
        let start = u64::from(inode / INODES) * u64::from(GROUP) + u64::from(HEADER);
        let group = Group(inode / INODES);
        let area = if is_directory { 0 } else { self.inodes.directory_area(group) };
        let goal = Cluster(start + u64::from(area));
        let request = Request { stream: true, ..Request::data(goal, 1) };
        Some(self.space.allocate(&request).ok()?.keep().start.0)
    }

    fn inode(&self, parent: u32, is_directory: bool, top_level: bool, name_hash: u32) -> Option<u32> {
        let request = InodeRequest { parent, is_directory, top_level, name_hash, sequential: false };
        Some(self.inodes.allocate(&request).ok()?.keep())
    }

    fn directory(&self, tree: &Tree, parent: u32, top_level: bool, hash: u32) -> Option<Node> {
        let inode = self.inode(parent, true, top_level, hash)?;
        let block = self.block(inode, true)?;
        let mut entries = Vec::new();
        for entry in &tree.entries {
            entries.push(match entry {
                Entry::Directory(tree) => self.directory(tree, inode, false, hash)?,
                Entry::File(..) => {
                    let inode = self.inode(inode, false, false, 0)?;
                    Node { inode, block: self.block(inode, false)?, entries: None }
                }
            });
        }
        Some(Node { inode, block, entries: Some(entries) })
    }
}

/// A machine at work: which blocks each operation reads and writes, in FFS's order.
struct Machine {
    cache: Cache,
    groups: BTreeSet<u64>,
}

fn inode_block(inode: u32) -> u64 {
    let inside = 2 * BLOCK + inode % INODES / INODES_PER_BLOCK * BLOCK;
    u64::from(inode / INODES) * u64::from(GROUP) + u64::from(inside)
}

fn map_of(block: u64) -> u64 {
    block - block % u64::from(GROUP) + u64::from(BLOCK)
}

impl Machine {
    /// Maps of the groups of a node's inode and block.
    fn maps(&mut self, node: &Node) {
        for map in BTreeSet::from([inode_block(node.inode), node.block].map(map_of)) {
            self.groups.insert(map);
            self.cache.change_later(map, Role::Map);
        }
    }

    /// Looks a name up, takes an inode, writes it, then the name; a directory also gets its first
    /// block and raises its parent's link count before it is named.
    fn create(&mut self, node: &Node, parent: &Node) {
        self.cache.read(parent.block, Role::Directory);
        self.maps(node);
        self.cache.change(inode_block(node.inode), Role::Inode);
        if node.entries.is_some() {
            self.cache.change(inode_block(parent.inode), Role::Inode);
            self.cache.new_directory(node.block);
        }
        self.cache.change(parent.block, Role::Directory);
        match &node.entries {
            Some(entries) => entries.iter().for_each(|entry| self.create(entry, node)),
            None => {
                self.cache.new_contents(node.block);
                // Size and block, when the file is closed.
                self.cache.change_later(inode_block(node.inode), Role::Inode);
            }
        }
    }

    /// Empties a directory, removes the name, then clears the inode, then frees inode and block.
    fn remove(&mut self, node: &Node, parent: &Node) {
        self.cache.read(parent.block, Role::Directory);
        self.cache.read(inode_block(node.inode), Role::Inode);
        for entry in node.entries.iter().flatten() {
            self.remove(entry, node);
        }
        self.cache.change(parent.block, Role::Directory);
        self.cache.change(inode_block(node.inode), Role::Inode);
        self.maps(node);
        if node.entries.is_some() {
            self.cache.change_later(inode_block(parent.inode), Role::Inode);
        }
    }
}

#[cfg(test)]
mod tests;
