//! The index of a directory, block by block: what leads where, and the names in each leaf with their hashes.
//!
//! Owns: the walk from the root to the leaves. Excludes: whether the index is right, which the check judges.

use ondisk::corrupt::Place;
use ondisk::dirent;
use ondisk::dirhash::{DirHash, NameHasher};
use ondisk::features::Incompat;
use ondisk::htree::{BrokenIndex, Index, IndexEntry, Kind, Root};
use ondisk::inode::{FileType, Inode, InodeFlags};
use ondisk::superblock::FLAG_UNSIGNED_HASH;
use ondisk::units::{Block, FileBlock};
use platfs_device::map::Map;
use platfs_device::{Error, Result};

use crate::raw_image::{RawImage, note};

/// A name in a leaf.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    /// The name.
    pub name: Vec<u8>,
    /// The inode.
    pub inode: u32,
    /// The hash of the name; `None` where it takes a key or a table of letters.
    pub hash: Option<DirHash>,
}

/// Content of a directory's block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Holds {
    /// Entries that lead to other blocks.
    Index {
        /// Entries that fit.
        limit: u16,
        /// The entries.
        entries: Vec<IndexEntry>,
    },
    /// Names.
    Names(Vec<Named>),
}

/// A block of the directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Blocks above it.
    pub depth: u8,
    /// File block of the directory.
    pub file_block: FileBlock,
    /// Where it lies.
    pub block: Block,
    /// Content of the block.
    pub holds: Holds,
}

/// An index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    /// The hash, and the levels of index blocks.
    pub root: Root,
    /// True if characters are taken as unsigned by the hash.
    pub unsigned: bool,
    /// Blocks, each before those it leads to.
    pub nodes: Vec<Node>,
    /// Structures that could not be read or break a rule.
    pub problems: Vec<String>,
}

/// Reads the index of a directory; nothing if it has none.
///
/// # Errors
/// It is no directory; a map or a root that breaks a rule of the format; the device's failure.
pub fn read(image: &RawImage, inode: &Inode) -> Result<Option<Tree>> {
    if inode.file_type() != Some(FileType::Directory) {
        return Err(Error::Invalid(format!("inode {} is no directory", inode.number())));
    }
    let flags = inode.flags();
    if !flags.contains(InodeFlags::INDEX) || flags.contains(InodeFlags::INLINE_DATA) {
        return Ok(None);
    }
    let map = image.map(inode)?;
    let place = Place::Directory(inode.number());
    let first = block_of(&map, FileBlock(0)).ok_or_else(|| Error::corrupt(place, "has no first block"))?;
    let large = image.features().incompat.contains(Incompat::LARGEDIR);
    let root = Root::parse(&image.block(first)?, image.layout(), large)
        .map_err(|broken| Error::corrupt(place, broken.to_string()))?;
    let raw = image.superblock();
    let unsigned = raw.s_flags.get() & FLAG_UNSIGNED_HASH != 0;
    let is_plain = !flags.intersects(InodeFlags::CASEFOLD | InodeFlags::ENCRYPT);
    let seed = raw.s_hash_seed.map(|word| word.get());
    let hasher = is_plain.then(|| NameHasher::new(root.version, unsigned, seed));
    let mut walk =
        Walk { image, map: &map, hasher, levels: root.levels, nodes: Vec::new(), problems: Vec::new() };
    walk.descend()?;
    let Walk { nodes, problems, .. } = walk;
    Ok(Some(Tree { root, unsigned, nodes, problems }))
}

fn block_of(map: &Map, block: FileBlock) -> Option<Block> {
    let logical = u64::from(block.0);
    let at = map.runs.partition_point(|run| run.logical <= logical).checked_sub(1)?;
    let run = map.runs.get(at).filter(|run| logical - run.logical < run.count)?;
    Some(Block(run.start.0 + logical - run.logical))
}

struct Walk<'w> {
    image: &'w RawImage,
    map: &'w Map,
    hasher: Option<NameHasher>,
    levels: u8,
    nodes: Vec<Node>,
    problems: Vec<String>,
}

impl Walk<'_> {
    /// Each block is met once in a sound index, so that blocks of the directory bound the walk.
    fn descend(&mut self) -> Result<()> {
        let most = self.map.runs.iter().map(|run| run.count).sum::<u64>();
        let mut waiting = vec![(FileBlock(0), 0)];
        while let Some((file_block, depth)) = waiting.pop() {
            if self.nodes.len() as u64 >= most {
                note(&mut self.problems, "the index leads to more blocks than the directory has".to_owned());
                return Ok(());
            }
            let Some(block) = block_of(self.map, file_block) else {
                note(&mut self.problems, format!("the index leads to block {file_block}, which is a hole"));
                continue;
            };
            let bytes = self.image.block(block)?;
            let holds = if depth < self.levels { self.index(&bytes, depth) } else { Ok(self.names(&bytes)) };
            match holds {
                Ok(holds) => {
                    if let Holds::Index { entries, .. } = &holds {
                        waiting.extend(entries.iter().rev().map(|entry| (entry.block, depth + 1)));
                    }
                    self.nodes.push(Node { depth, file_block, block, holds });
                }
                Err(broken) => note(&mut self.problems, format!("block {file_block} {broken}")),
            }
        }
        Ok(())
    }

    fn index(&self, bytes: &[u8], depth: u8) -> std::result::Result<Holds, BrokenIndex> {
        let kind = if depth == 0 { Kind::Root } else { Kind::Node };
        let index = Index::parse(bytes, kind, self.image.layout())?;
        Ok(Holds::Index { limit: kind.limit(self.image.layout()), entries: index.iter().collect() })
    }

    fn names(&self, bytes: &[u8]) -> Holds {
        let entries = dirent::entries(bytes, self.image.layout()).map_while(std::result::Result::ok);
        let names = entries.filter_map(|entry| {
            let inode = entry.inode?.get();
            let hash = self.hasher.map(|hasher| hasher.hash(entry.name));
            Some(Named { name: entry.name.to_vec(), inode, hash })
        });
        Holds::Names(names.collect())
    }
}
