//! Rewrites a directory from its names: without an index if they fit one block or the volume has no indexes, else with
//! a new index. Its blocks of names are three quarters full, so that the next names find room.
//!
//! All names and then all blocks are held in memory: as much as the directory has bytes, twice.

use std::collections::HashSet;

use ondisk::dirent::{self, Layout, MIN_ENTRY_LEN, entries_without_tail, entry_len};
use ondisk::dirhash::{DirHash, HashVersion};
use ondisk::features::Compat;
use ondisk::htree::{self, IndexEntry, Kind, looks_like_node};
use ondisk::inode::{Inode, InodeFlags};
use ondisk::invariant_or;
use ondisk::units::{FileBlock, InodeNumber, bounded, low_u32};

use super::blocks::Blocks;
use super::edit::{self, NewName};
use super::hash::Hasher;
use super::leaf::Position;
use super::store;
use crate::facts::Facts;
use crate::slices::put;
use crate::subject::Subject;
use platfs_device::Result;

/// Bytes of `.` and `..`.
const DOTS: usize = 24;

/// An entry as it stands in its block, without slack, and its hash.
struct PackedEntry {
    hash: DirHash,
    bytes: Vec<u8>,
}

impl PackedEntry {
    fn new(name: &NewName, layout: Layout) -> Self {
        let type_code = if layout.file_types { name.file_type.entry_code() } else { 0 };
        let bytes = [&name.inode.get().to_le_bytes()[..], &[0, 0, 0, type_code]].concat();
        let mut kept = PackedEntry { hash: DirHash { major: 0, minor: 0 }, bytes };
        kept.set_name(&name.name);
        kept
    }

    fn name(&self) -> &[u8] {
        let len = self.bytes.get(6).map_or(0, |len| usize::from(*len));
        self.bytes.get(8..8 + len).unwrap_or_default()
    }

    fn set_name(&mut self, name: &[u8]) {
        self.bytes.truncate(8);
        self.bytes.extend_from_slice(name);
        self.bytes.resize(entry_len(name.len()), 0);
        put(&mut self.bytes, 6, &[bounded::<u8>(name.len())]);
    }
}

/// Adds names to a directory: where there is room, or by rewriting it. The inodes that found no place; a
/// name that is taken gets `~0` or the next free number behind it.
///
/// # Errors
/// Repairs take more memory than they may.
pub(crate) fn add_names(
    subject: &Subject,
    facts: &Facts,
    directory: InodeNumber,
    mut new: Vec<NewName>,
) -> Result<Vec<InodeNumber>> {
    let inodes = |names: &[NewName]| names.iter().map(|name| name.inode).collect();
    let mut taken = HashSet::new();
    edit::each_name(subject, directory, |name, _| _ = taken.insert(name.to_vec()));
    for name in &mut new {
        name.name = unique(&name.name, &taken);
        taken.insert(name.name.clone());
    }
    let Ok(inode) = subject.inode(directory) else { return Ok(inodes(&new)) };
    let left = edit::add(subject, &inode, new)?;
    let placed = left.is_empty() || rebuild(subject, facts, directory, &[], &left)?;
    Ok(if placed { Vec::new() } else { inodes(&left) })
}

/// Rewrites a directory: names at the positions `rename` get others, `new` ones are added. `false` if there
/// is no room on the volume; then nothing was changed.
///
/// # Errors
/// Repairs take more memory than they may.
pub(crate) fn rebuild(
    subject: &Subject,
    facts: &Facts,
    directory: InodeNumber,
    rename: &[Position],
    new: &[NewName],
) -> Result<bool> {
    let Ok(mut inode) = subject.inode(directory) else { return Ok(false) };
    let Ok(old) = Blocks::of(subject, &inode) else { return Ok(false) };
    let layout = subject.layout();
    let mut names_found = collect_names(subject, &inode, &old, rename, layout);
    names_found.names.extend(new.iter().map(|name| PackedEntry::new(name, layout)));
    let parent = names_found.parent.unwrap_or(InodeNumber::ROOT);
    let plan = Plan { layout, own: directory, parent };
    let mut store = |mut blocks: Vec<Vec<u8>>, is_indexed: bool| {
        seal(subject, &inode, &mut blocks, is_indexed);
        let mut flags = inode.flags();
        flags.set(InodeFlags::INDEX, is_indexed);
        inode.set_flags(flags);
        store::store(subject, facts, &mut inode, &old, &blocks)
    };
    if let Some(blocks) = with_index(subject, directory, &plan, &mut names_found.names)
        && store(blocks, true)?
    {
        return Ok(true);
    }
    // Without room for an index it goes without: its blocks are full then, and no names are lost.
    let mut blocks = plan.linear(&names_found.names);
    if !new.is_empty() {
        // A directory that just got names will get more: it keeps its blocks.
        while (blocks.len() as u64) < old.mapped() {
            blocks.push(plan.leaf(&[], 0));
        }
    }
    store(blocks, false)
}

/// The blocks of a directory with an index; `None` where it needs or can have none.
fn with_index(
    subject: &Subject,
    directory: InodeNumber,
    plan: &Plan,
    names: &mut [PackedEntry],
) -> Option<Vec<Vec<u8>>> {
    let size: usize = names.iter().map(|kept| kept.bytes.len()).sum();
    if DOTS + size <= plan.layout.leaf_space() || !subject.has_compat(Compat::DIR_INDEX) {
        return None;
    }
    let inode = subject.inode(directory).ok()?;
    let version = HashVersion::from_raw(subject.raw.s_def_hash_version).unwrap_or(HashVersion::HalfMd4);
    if !hash_all(subject, &inode, version, names) {
        return None;
    }
    let levels = htree::max_levels(subject.has_incompat(ondisk::features::Incompat::LARGEDIR));
    plan.indexed(names, version, levels)
}

struct DirectoryNames {
    names: Vec<PackedEntry>,
    parent: Option<InodeNumber>,
}

/// All names of a directory that can be read.
fn collect_names(
    subject: &Subject,
    inode: &Inode,
    old: &Blocks,
    rename: &[Position],
    layout: Layout,
) -> DirectoryNames {
    let stored = inode.flags().contains(InodeFlags::CASEFOLD | InodeFlags::ENCRYPT);
    let mut names_found = DirectoryNames { names: Vec::new(), parent: None };
    let mut others = Vec::new();
    for (at, block) in old.each() {
        let Ok(bytes) = subject.block(block) else { continue };
        if at.0 > 0 && inode.flags().contains(InodeFlags::INDEX) && looks_like_node(&bytes, layout) {
            continue;
        }
        let part = bytes.get(..edit::region(&bytes, layout)).unwrap_or_default();
        for entry in entries_without_tail(part, layout).map_while(std::result::Result::ok) {
            let Some(number) = entry.inode else { continue };
            if at.0 == 0 && matches!(entry.name, b"." | b"..") {
                names_found.parent = if entry.name == b".." { Some(number) } else { names_found.parent };
                continue;
            }
            let used = entry_len(entry.name.len()) + if stored { 8 } else { 0 };
            let bytes = part.get(entry.offset..entry.offset + used.min(entry.len)).unwrap_or_default();
            if rename.contains(&(at, entry.offset)) {
                others.push(names_found.names.len());
            }
            names_found
                .names
                .push(PackedEntry { hash: DirHash { major: 0, minor: 0 }, bytes: bytes.to_vec() });
        }
    }
    if !others.is_empty() {
        let mut taken: HashSet<Vec<u8>> = names_found.names.iter().map(|kept| kept.name().to_vec()).collect();
        for at in others {
            let kept =
                invariant_or!(names_found.names.get_mut(at), continue, "a name that was found has its place");
            let name = unique(kept.name(), &taken);
            kept.set_name(&name);
            taken.insert(name);
        }
    }
    names_found
}

/// The name, or if it is taken the name with `~0`, `~1`... behind it, cut where it would be too long.
fn unique(name: &[u8], taken: &HashSet<Vec<u8>>) -> Vec<u8> {
    if !taken.contains(name) {
        return name.to_vec();
    }
    // Ends: there are more numbers than names.
    for number in 0_u64.. {
        let suffix = format!("~{number}");
        let room = dirent::MAX_NAME_LEN - suffix.len();
        let mut other = name.get(..name.len().min(room)).unwrap_or_default().to_vec();
        other.extend_from_slice(suffix.as_bytes());
        if !taken.contains(&other) {
            return other;
        }
    }
    name.to_vec()
}

/// Hashes and sorts all names; `false` if the hash of one is not known.
fn hash_all(subject: &Subject, inode: &Inode, version: HashVersion, names: &mut [PackedEntry]) -> bool {
    // The root of an index by stored hashes is for programs that have keys.
    if inode.flags().contains(InodeFlags::CASEFOLD | InodeFlags::ENCRYPT) {
        return false;
    }
    let hasher = Hasher::new(&subject.raw, inode, version);
    for kept in names.iter_mut() {
        let Some(hash) = hasher.hash(kept.name(), &[]) else { return false };
        kept.hash = hash;
    }
    names.sort_unstable_by(|a, b| (a.hash, a.name()).cmp(&(b.hash, b.name())));
    true
}

/// Plan by which the blocks of a directory are made.
struct Plan {
    layout: Layout,
    own: InodeNumber,
    parent: InodeNumber,
}

impl Plan {
    fn block_len(&self) -> usize {
        self.layout.block_size.bytes_usize()
    }

    /// A block of entries behind the first `front` bytes, which are for `.` and `..`.
    fn leaf(&self, names: &[PackedEntry], front: usize) -> Vec<u8> {
        let space = self.layout.leaf_space();
        let mut block = vec![0; self.block_len()];
        let put_len = |at: usize, len: usize, block: &mut [u8]| {
            put(block, at + 4, &self.layout.encode_len(len));
        };
        let (mut at, mut last) = (0, 0);
        if front > 0 {
            dirent::init_directory(&mut block, self.layout, self.own, self.parent);
            (last, at) = (MIN_ENTRY_LEN, front);
            put_len(last, front - last, &mut block);
        }
        for kept in names {
            let end = at + kept.bytes.len();
            put(&mut block, at, &kept.bytes);
            put_len(at, kept.bytes.len(), &mut block);
            (last, at) = (at, end);
        }
        put_len(last, space - last, &mut block);
        if self.layout.checksums {
            dirent::put_tail(&mut block);
        }
        block
    }

    /// Blocks of entries, each filled up to `most` bytes, the first one behind `front`.
    fn leaves(&self, names: &[PackedEntry], front: usize, most: usize) -> Vec<(usize, usize)> {
        let mut pieces = Vec::new();
        let (mut start, mut used) = (0, front);
        for (at, kept) in names.iter().enumerate() {
            if used + kept.bytes.len() > most && at > start {
                pieces.push((start, at));
                (start, used) = (at, 0);
            } else if used + kept.bytes.len() > most && used > 0 {
                // Not even one fits beside `.` and `..`.
                pieces.push((start, at));
                used = 0;
            }
            used += kept.bytes.len();
        }
        pieces.push((start, names.len()));
        pieces
    }

    fn linear(&self, names: &[PackedEntry]) -> Vec<Vec<u8>> {
        let pieces = self.leaves(names, DOTS, self.layout.leaf_space());
        let blocks = pieces.iter().enumerate().map(|(at, (from, end))| {
            self.leaf(names.get(*from..*end).unwrap_or_default(), if at == 0 { DOTS } else { 0 })
        });
        blocks.collect()
    }

    /// Root, leaves, nodes; `None` if an index of `levels` levels cannot hold them.
    fn indexed(&self, names: &[PackedEntry], version: HashVersion, levels: u8) -> Option<Vec<Vec<u8>>> {
        let pieces = self.leaves(names, 0, self.layout.leaf_space() / 4 * 3);
        let mut blocks = vec![vec![0; self.block_len()]];
        let mut level = Vec::new();
        let mut before = None;
        for (from, end) in &pieces {
            let inside = names.get(*from..*end).unwrap_or_default();
            let first = inside.first().map_or(0, |kept| kept.hash.major);
            // The lowest bit says that names of this hash are in the leaf before, too.
            let hash = first | u32::from(before == Some(first));
            before = inside.last().map(|kept| kept.hash.major);
            level.push(IndexEntry { hash, block: FileBlock(low_u32(blocks.len() as u64)) });
            blocks.push(self.leaf(inside, 0));
        }
        let (node, root) = (Kind::Node.limit(self.layout), Kind::Root.limit(self.layout));
        let mut height = 1;
        while level.len() > usize::from(root) {
            height += 1;
            if height > levels {
                return None;
            }
            let mut above = Vec::new();
            for entries in level.chunks(usize::from(node)) {
                let mut block = vec![0; self.block_len()];
                htree::init_node(&mut block, self.layout, entries.iter().copied());
                let hash = entries.first().map_or(0, |entry| entry.hash);
                above.push(IndexEntry { hash, block: FileBlock(low_u32(blocks.len() as u64)) });
                blocks.push(block);
            }
            level = above;
        }
        let top = blocks.first_mut()?;
        let first = level.first()?.block;
        htree::init_root(top, self.layout, (self.own, self.parent), version, first);
        htree::raise_root(top, self.layout, height, first);
        for (position, entry) in level.iter().skip(1).enumerate() {
            htree::insert_after(top, Kind::Root, self.layout, position, *entry);
        }
        Some(blocks)
    }
}

/// Writes the checksums of new blocks.
fn seal(subject: &Subject, inode: &Inode, blocks: &mut [Vec<u8>], indexed: bool) {
    let seed = subject.seed_of(inode);
    for (at, block) in blocks.iter_mut().enumerate() {
        if dirent::has_tail(block) {
            seed.seal_directory_leaf(block);
        } else if indexed {
            let kind = if at == 0 { Kind::Root } else { Kind::Node };
            seed.seal_index_node(block, kind.entries_offset());
        }
    }
}
