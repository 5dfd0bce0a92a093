//! Parts of a volume in words and in JSON, with the paths of the inodes that they belong to.

use std::collections::BTreeSet;

use ondisk::units::{Block, InodeNumber};
use platfs_forensics::names::{self, Names};
use platfs_forensics::owners::{self, Owners, Part};
use platfs_forensics::{RawImage, Result};
use serde_json::{Map, Value};

use crate::text::{Shown, put_bytes};

/// Owners of blocks, and the names of those that are files.
pub(super) struct Named {
    pub(super) owners: Owners,
    pub(super) names: Names,
}

impl Named {
    /// Two passes over the volume, however many blocks there are.
    pub(super) fn of(ground: &RawImage, blocks: &[Block]) -> Result<Named> {
        let owners = owners::find(ground, blocks)?;
        let inodes: BTreeSet<InodeNumber> =
            owners.found.iter().filter_map(|owner| owner.part.inode()).collect();
        let names = if inodes.is_empty() { Names::default() } else { names::find(ground, &inodes)? };
        Ok(Named { owners, names })
    }

    /// Problems that kept parts from being found.
    pub(super) fn problems(&self) -> impl Iterator<Item = &String> {
        self.owners.problems.iter().chain(&self.names.problems)
    }

    /// Returns true if the bitmap has a block in use.
    pub(super) fn in_use(&self, block: Block) -> Option<bool> {
        let states = &self.owners.in_use;
        let at = states.binary_search_by_key(&block, |(known, _)| *known).ok()?;
        states.get(at).and_then(|(_, state)| *state)
    }

    fn paths(&self, part: &Part) -> &[Vec<u8>] {
        let paths = part.inode().and_then(|inode| self.names.paths.get(&inode.get()));
        paths.map_or(&[], |paths| paths)
    }

    /// The owners of a block, each in words.
    pub(super) fn words(&self, block: Block, inodes_per_block: u32) -> Vec<String> {
        let owners = self.owners.of_block(block).iter();
        let words = owners.map(|owner| {
            let paths: Vec<String> =
                self.paths(&owner.part).iter().map(|path| Shown(path).to_string()).collect();
            let paths = if paths.is_empty() { String::new() } else { format!(": {}", paths.join(", ")) };
            format!("{}{paths}", in_words(&owner.part, inodes_per_block))
        });
        words.collect()
    }

    /// A block as JSON.
    pub(super) fn object(&self, block: Block) -> Map<String, Value> {
        let mut object = Map::new();
        object.insert("block".to_owned(), block.0.into());
        object.insert("in_use".to_owned(), self.in_use(block).into());
        object.insert("owners".to_owned(), self.owners(block));
        object
    }

    /// The owners of a block as JSON.
    pub(super) fn owners(&self, block: Block) -> Value {
        let owners = self.owners.of_block(block).iter().map(|owner| {
            let mut object = facts(&owner.part);
            if owner.part.inode().is_some() {
                let paths = self.paths(&owner.part).iter().map(|path| {
                    let mut named = Map::new();
                    put_bytes(&mut named, "path", path);
                    Value::Object(named)
                });
                object.insert("names".to_owned(), Value::Array(paths.collect()));
            }
            Value::Object(object)
        });
        Value::Array(owners.collect())
    }
}

/// The inodes that have a purpose of their own.
fn purpose(inode: InodeNumber) -> Option<&'static str> {
    match inode.get() {
        1 => Some("bad blocks"),
        7 => Some("kept for growth"),
        8 => Some("the journal"),
        _ => None,
    }
}

fn in_words(part: &Part, inodes_per_block: u32) -> String {
    let of = |inode: InodeNumber| match purpose(inode) {
        Some(purpose) => format!("inode {inode} ({purpose})"),
        None => format!("inode {inode}"),
    };
    match *part {
        Part::Boot => "before the superblock".to_owned(),
        Part::Superblock(group) => format!("superblock, in group {group}"),
        Part::Descriptors(group) => format!("group descriptors, in group {group}"),
        Part::ReservedDescriptors(group) => format!("kept for group descriptors, in group {group}"),
        Part::BlockBitmap(group) => format!("block bitmap of group {group}"),
        Part::InodeBitmap(group) => format!("inode bitmap of group {group}"),
        Part::InodeTable(group, first) => {
            let last = u64::from(first.get()) + u64::from(inodes_per_block) - 1;
            format!("inode table of group {group}, inodes {first} to {last}")
        }
        Part::Mmp => "multiple mount protection".to_owned(),
        Part::Data { inode, file_block, unwritten } => {
            let unwritten = if unwritten { " (unwritten)" } else { "" };
            format!("data of {}, file block {file_block}{unwritten}", of(inode))
        }
        Part::Map(inode) => format!("map of {}", of(inode)),
        Part::Attributes(inode) => format!("attributes of {}", of(inode)),
    }
}

/// Kind of a part, as JSON names it.
fn kind(part: &Part) -> &'static str {
    match part {
        Part::Boot => "boot",
        Part::Superblock(_) => "superblock",
        Part::Descriptors(_) => "descriptors",
        Part::ReservedDescriptors(_) => "reserved-descriptors",
        Part::BlockBitmap(_) => "block-bitmap",
        Part::InodeBitmap(_) => "inode-bitmap",
        Part::InodeTable(..) => "inode-table",
        Part::Mmp => "mmp",
        Part::Data { inode, .. } if *inode == InodeNumber::JOURNAL => "journal",
        Part::Data { .. } => "data",
        Part::Map(_) => "map",
        Part::Attributes(_) => "attributes",
    }
}

fn facts(part: &Part) -> Map<String, Value> {
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("part", kind(part).into());
    if let Some(group) = part.group() {
        put("group", group.0.into());
    }
    if let Some(inode) = part.inode() {
        put("inode", inode.get().into());
    }
    match *part {
        Part::Data { file_block, unwritten, .. } => {
            put("file_block", file_block.into());
            put("unwritten", unwritten.into());
        }
        Part::InodeTable(_, first) => {
            put("first_inode", first.get().into());
        }
        _ => {}
    }
    object
}
