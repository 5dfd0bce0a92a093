//! Names of inodes and places in a report.
//!
//! Owns: the words. Excludes finding the paths, which is the check's.

use std::collections::HashMap;

use ondisk::units::InodeNumber;
use platfs::check::{Location, Outcome};

use platfs_image::text::Shown;

use crate::paths::joined;

/// Paths of inodes, as far as they are known.
#[derive(Default)]
pub struct Names(HashMap<InodeNumber, Vec<u8>>);

impl Names {
    /// Paths of inodes, in the volume as it was repaired.
    #[must_use]
    pub fn of(inodes: impl IntoIterator<Item = InodeNumber>, outcome: &Outcome) -> Self {
        let inodes: Vec<InodeNumber> = inodes.into_iter().collect();
        let paths = outcome.paths(&inodes);
        Names(inodes.into_iter().zip(paths).filter_map(|(inode, path)| Some((inode, path?))).collect())
    }

    /// Tells if one of these inodes has neither a path nor a part of its own.
    #[must_use]
    pub fn lack_any(&self, inodes: impl IntoIterator<Item = InodeNumber>) -> bool {
        inodes.into_iter().any(|inode| role(inode).is_none() && self.path(inode).is_none())
    }

    /// Adds paths that inodes without one have in another state of the volume.
    pub fn add(&mut self, inodes: impl IntoIterator<Item = InodeNumber>, outcome: &Outcome) {
        let lacking = inodes.into_iter().filter(|inode| self.path(*inode).is_none());
        let lacking: Vec<InodeNumber> = lacking.collect();
        let paths = outcome.paths(&lacking);
        self.0.extend(lacking.into_iter().zip(paths).filter_map(|(inode, path)| Some((inode, path?))));
    }

    /// The path of an inode.
    #[must_use]
    pub fn path(&self, inode: InodeNumber) -> Option<&[u8]> {
        self.0.get(&inode).map(Vec::as_slice)
    }

    /// An inode as people read it: `/etc/passwd (inode 12)`, `inode 12`, `inode 8, the journal`.
    #[must_use]
    pub fn inode(&self, inode: InodeNumber) -> String {
        if let Some(role) = role(inode) {
            return format!("inode {inode}, {role}");
        }
        match self.path(inode) {
            Some(path) => format!("{} (inode {inode})", Shown(path)),
            None => format!("inode {inode}"),
        }
    }

    /// A place as people read it; empty for the volume as a whole.
    #[must_use]
    pub fn place(&self, place: &Location) -> String {
        let mut parts = Vec::new();
        match (place.inode, &place.name) {
            (Some(directory), Some(name)) => match self.path(directory) {
                Some(path) => parts.push(Shown(&joined(path, name)).to_string()),
                None => parts.push(format!("\"{}\" in inode {directory}", Shown(name))),
            },
            (Some(inode), None) => parts.push(self.inode(inode)),
            _ => {}
        }
        parts.extend(place.file_block.map(|block| format!("its block {block}")));
        parts.extend(place.group.map(|group| format!("group {group}")));
        parts.extend(place.block.map(|block| format!("block {block}")));
        parts.join(", ")
    }
}

/// Role of a reserved inode.
fn role(inode: InodeNumber) -> Option<&'static str> {
    Some(match inode.get() {
        1 => "the bad blocks",
        2 => "the root directory",
        3 => "the user quota",
        4 => "the group quota",
        5 => "the boot loader",
        6 => "the undelete directory",
        7 => "the reserved descriptors",
        8 => "the journal",
        9 => "the exclude inode",
        10 => "the replica inode",
        _ => return None,
    })
}
