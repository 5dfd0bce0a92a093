//! Names of inodes: paths from the root, found in one pass over all directories.
//!
//! Owns: which entries lead to an inode, and the paths that follow from them. Excludes: looking a path up, which is a
//! file system's work.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ondisk::dirent::{self, inline_parent};
use ondisk::inode::{Inode, InodeFlags};
use ondisk::units::InodeNumber;
use ondisk::xattr::{self, NameIndex, Value};
use platfs_device::Result;

use crate::raw_image::{RawImage, is_directory, note};

/// Most names of one inode that are kept.
const NAMES_MAX: usize = 1_000;
/// Most blocks of directories that are read, in all: 64 GiB of them with blocks of 4 KiB.
const BLOCKS_MAX: u64 = 1 << 24;
/// Deepest path.
const DEPTH_MAX: usize = 10_000;
/// Longest path, in bytes.
const PATH_MAX: usize = 64 << 10;

/// An entry that leads to an inode.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    parent: u32,
    name: Vec<u8>,
}

/// Paths of inodes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Names {
    /// By inode; those without a name are missing.
    pub paths: BTreeMap<u32, Vec<Vec<u8>>>,
    /// Structures that could not be read: paths may be missing.
    pub problems: Vec<String>,
}

/// Finds the paths of inodes.
///
/// # Errors
/// None at present: what can't be read is a problem in the result.
pub fn find(image: &RawImage, wanted: &BTreeSet<InodeNumber>) -> Result<Names> {
    let mut search = Search { wanted, directories: HashMap::new(), found: BTreeMap::new(), left: BLOCKS_MAX };
    let mut names = Names::default();
    let mut broken = Vec::new();
    image.inodes(&mut names.problems, |inode| {
        if is_directory(&inode)
            && let Err(error) = search.directory(image, &inode)
        {
            note(&mut broken, error.to_string());
        }
        Ok(())
    })?;
    names.problems.append(&mut broken);
    for (inode, entries) in &search.found {
        let paths = entries.iter().map(|entry| search.path(entry)).collect();
        names.paths.insert(*inode, paths);
    }
    if wanted.contains(&InodeNumber::ROOT) {
        names.paths.insert(InodeNumber::ROOT.get(), vec![b"/".to_vec()]);
    }
    Ok(names)
}

struct Search<'w> {
    wanted: &'w BTreeSet<InodeNumber>,
    /// An entry of each directory.
    directories: HashMap<u32, Entry>,
    found: BTreeMap<u32, Vec<Entry>>,
    left: u64,
}

impl Search<'_> {
    fn directory(&mut self, image: &RawImage, inode: &Inode) -> Result<()> {
        let layout = image.layout();
        if inode.flags().contains(InodeFlags::INLINE_DATA) {
            let (inside, behind) = inline_regions(inode);
            for region in [inside, behind] {
                self.entries(inode, layout, dirent::entries_without_tail(region, layout));
            }
            return Ok(());
        }
        for run in image.map(inode)?.runs.iter().filter(|run| !run.unwritten) {
            for block in run.start.0..run.start.0 + run.count.min(self.left) {
                let bytes = image.block(ondisk::units::Block(block))?;
                self.entries(inode, layout, dirent::entries(&bytes, layout));
            }
            self.left = self.left.saturating_sub(run.count);
        }
        Ok(())
    }

    fn entries(&mut self, parent: &Inode, layout: dirent::Layout, entries: dirent::Entries<'_>) {
        let parent = parent.number().get();
        for entry in entries.map_while(std::result::Result::ok) {
            let Some(inode) = entry.inode.filter(|_| entry.name != b"." && entry.name != b"..") else {
                continue;
            };
            let own = || Entry { parent, name: entry.name.to_vec() };
            let may_be_directory =
                entry.file_type(layout).is_none_or(|kind| kind == ondisk::inode::FileType::Directory);
            if may_be_directory {
                self.directories.entry(inode.get()).or_insert_with(own);
            }
            if self.wanted.contains(&inode) {
                let names = self.found.entry(inode.get()).or_default();
                if names.len() < NAMES_MAX {
                    names.push(own());
                }
            }
        }
    }

    /// The path of an entry; it begins with `<inode>` where it does not lead to the root.
    fn path(&self, entry: &Entry) -> Vec<u8> {
        let mut parts = vec![&entry.name[..]];
        let (mut parent, mut len) = (entry.parent, entry.name.len());
        let start = loop {
            if parent == InodeNumber::ROOT.get() {
                break Vec::new();
            }
            match self.directories.get(&parent) {
                Some(above) if parts.len() < DEPTH_MAX && len < PATH_MAX => {
                    parts.push(&above.name);
                    (parent, len) = (above.parent, len + above.name.len() + 1);
                }
                _ => break format!("<{parent}>").into_bytes(),
            }
        };
        parts.iter().rev().fold(start, |mut path, part| {
            path.push(b'/');
            path.extend_from_slice(part);
            path
        })
    }
}

/// The regions of an inline directory that hold entries: behind the parent in the record, and in its attribute.
fn inline_regions(inode: &Inode) -> (&[u8], &[u8]) {
    let own = &inode.raw().i_block;
    let inside = if inline_parent(own).is_some() { own.get(4..).unwrap_or_default() } else { &[] };
    (inside, inline_rest(inode))
}

/// Returns the part of an inode's contents that stands in its attribute.
pub(crate) fn inline_rest(inode: &Inode) -> &[u8] {
    let entries = xattr::in_inode(inode).unwrap_or_default();
    let data = entries.iter().find(|entry| entry.index == NameIndex::SYSTEM && entry.name == b"data");
    match data.map(|entry| entry.value) {
        Some(Value::Here(value)) => value,
        _ => &[],
    }
}
