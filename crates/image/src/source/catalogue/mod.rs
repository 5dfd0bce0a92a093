//! The merged tree that an image shall hold: names, attributes, and where the data lie.
//!
//! A [`CatalogueBuilder`] takes entries in any order, later ones replacing earlier ones as when an archive is
//! unpacked; [`CatalogueBuilder::finish`] turns it into a [`Catalogue`], which does not change any more and is the
//! same for equal contents, whatever their order: names are sorted by their bytes, directories that no entry
//! describes (mode 0755, owner 0) get the newest time of contents in the source.
//!
//! Memory: about 110 bytes per entry with a name of 15 bytes. Names, targets and attribute sets are kept once in
//! tables; nothing is kept of the data.

mod adjust;
mod builder;
mod error;
mod finish;
mod host;
mod make;
mod node;
mod peek;
mod resolve;
mod walk;

pub use super::attributes::{Attributes, Ids, Stamps};
pub use builder::{CatalogueBuilder, NewNode};
pub use error::CatalogueError;
pub use node::{Extent, Metadata, NodeId, NodeKind, Origin};
pub use walk::{Step, Walk};

use super::data::LostData;
use super::input::Section;
use crate::archive::{Device, Xattr};
use node::{Content, Node};
use ondisk::inode::InodeFlags;
use ondisk::invariant_or;
use ondisk::units::bounded;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A piece of the table of names.
#[derive(Clone, Copy, Debug)]
struct Name {
    start: u32,
    /// At most 255.
    len: u8,
}

/// One name in a directory.
#[derive(Clone, Copy, Debug)]
struct Child {
    name: Name,
    node: NodeId,
}

/// A directory of the host, by its parent and name; a source is its own parent.
#[derive(Clone, Copy, Debug)]
struct HostDirectory {
    parent: u32,
    name: Name,
}

/// A file of the host.
#[derive(Clone, Copy, Debug)]
struct HostFile {
    directory: u32,
    name: Name,
}

/// Counts of what a catalogue holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Directories, the root among them.
    pub directories: u64,
    /// Regular files, each once whatever its names.
    pub files: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices, fifos and sockets.
    pub specials: u64,
    /// Names in all directories.
    pub names: u64,
    /// Bytes of data, holes not counted.
    pub data_bytes: u64,
    /// Bytes of files, holes counted.
    pub apparent_bytes: u64,
}

impl Summary {
    /// Files of all kinds, each once: what a file system needs inodes for, the root among them.
    #[must_use]
    pub fn inodes(&self) -> u64 {
        self.directories + self.files + self.symlinks + self.specials
    }
}

/// A directory of the host that a source was read from. It stays open: its path may lead elsewhere by the time data are
/// read.
#[derive(Debug)]
pub(super) struct HostRoot {
    number: u32,
    /// For messages.
    path: PathBuf,
    pub(super) directory: platfs_host::Directory,
}

/// The merged tree. Shared freely between threads.
#[derive(Debug)]
pub struct Catalogue {
    nodes: Vec<Node>,
    names: Vec<u8>,
    /// By contents number: the range of `children`, of which the first part are no directories.
    directories: Vec<ChildRange>,
    children: Vec<Child>,
    extents: Vec<Extent>,
    stamps: Vec<Stamps>,
    xattrs: Vec<Box<[Xattr]>>,
    sections: Vec<Section>,
    /// Directories of the host that sources were read from, by their numbers.
    host_roots: Vec<HostRoot>,
    host_directories: Vec<HostDirectory>,
    host_files: Vec<HostFile>,
    flags: HashMap<NodeId, InodeFlags>,
    /// The first node of each layer.
    layers: Vec<u32>,
    /// Nodes that had the name of a node before.
    replaced: HashMap<NodeId, NodeId>,
    summary: Summary,
    pub(super) lost: LostData,
}

/// A directory's entries: those that are no directories first, each part sorted by name.
#[derive(Clone, Copy, Debug, Default)]
struct ChildRange {
    start: u32,
    plain: u32,
    end: u32,
}

impl Catalogue {
    /// The root directory.
    #[must_use]
    pub fn root(&self) -> NodeId {
        NodeId(0)
    }

    /// One more than the largest index of a node: for tables beside the catalogue. Some numbers below
    /// it may be without a name, and are met by no walk.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Number of layers that lie over each other: those of container images and of several sources; else one.
    #[must_use]
    pub fn layers(&self) -> usize {
        self.layers.len().max(1)
    }

    /// The layer that a file comes from, below [`Catalogue::layers`].
    #[must_use]
    pub fn layer_of(&self, id: NodeId) -> usize {
        self.layers.partition_point(|first| *first <= id.0).saturating_sub(1)
    }

    /// The file of a lower layer whose name a file has taken, if no other name is left of it.
    #[must_use]
    pub fn hidden_by(&self, id: NodeId) -> Option<NodeId> {
        let old = *self.replaced.get(&id)?;
        (self.layer_of(old) < self.layer_of(id) && self.node(old).links == 0).then_some(old)
    }

    /// Counts of all that has a name.
    #[must_use]
    pub fn summary(&self) -> Summary {
        self.summary
    }

    /// Returns the metadata of a file.
    #[must_use]
    pub fn metadata(&self, id: NodeId) -> Metadata {
        let node = self.node(id);
        let stamps =
            usize::try_from(node.stamps).ok().and_then(|place| self.stamps.get(place.checked_sub(1)?));
        Metadata {
            kind: node.kind,
            mode: node.mode,
            ids: node.ids,
            stamps: stamps.copied().unwrap_or(Stamps::all(node.modified)),
            links: node.links,
            size: node.size,
            device: if let Content::Device(device) = node.content { device } else { Device::default() },
        }
    }

    /// A file's extended attributes, sorted by name; ACLs in the encoding of Linux.
    #[must_use]
    pub fn xattrs(&self, id: NodeId) -> &[Xattr] {
        let place = self.node(id).xattrs.checked_sub(1);
        place.and_then(|place| self.xattrs.get(place as usize)).map(AsRef::as_ref).unwrap_or_default()
    }

    /// The number of files whose owner or group no mapping names, and the owner of the first.
    pub(super) fn unmapped(&self) -> Option<(u64, Ids)> {
        let named = |node: &&Node| node.unmapped && node.links > 0;
        let mut all = self.nodes.iter().filter(named);
        let first = all.next()?.ids;
        Some((1 + all.count() as u64, first))
    }

    /// True if an entry of the source described the root.
    pub(super) fn has_own_root(&self) -> bool {
        !self.node(self.root()).implied
    }

    /// Flags such as *immutable*, as far as they are known before data are read: of directories and of files without data.
    #[must_use]
    pub fn flags(&self, id: NodeId) -> InodeFlags {
        self.flags.get(&id).copied().unwrap_or(InodeFlags::empty())
    }

    /// Gives everything one owner.
    pub fn own_all(&mut self, ids: Ids) {
        self.nodes.iter_mut().for_each(|node| node.ids = ids);
    }

    /// A symbolic link's target; empty for all other kinds.
    #[must_use]
    pub fn target(&self, id: NodeId) -> &[u8] {
        let node = self.node(id);
        let Content::Target { start } = node.content else { return b"" };
        let (start, len) = (start as usize, bounded::<usize>(node.size));
        let target = self.names.get(start..start.saturating_add(len));
        invariant_or!(target, b"", "a target lies in the table")
    }

    /// The runs of a file's data, ascending, not overlapping, never empty; holes lie between. None for other kinds.
    pub fn extents(&self, id: NodeId) -> impl ExactSizeIterator<Item = Extent> + '_ {
        let node = self.node(id);
        let whole = match node.content {
            Content::Whole { origin, offset } => {
                Some(Extent { file_offset: 0, len: node.size, origin, origin_offset: offset })
            }
            _ => None,
        };
        let runs = match node.content {
            Content::Runs { first, count } => {
                let start = first as usize;
                let runs = self.extents.get(start..start.saturating_add(count as usize));
                invariant_or!(runs, &[], "runs of a file lie in the table")
            }
            _ => &[],
        };
        Extents { whole, runs }
    }

    /// Number of bytes of a file that are data, holes left out.
    #[must_use]
    pub fn data_bytes(&self, id: NodeId) -> u64 {
        self.extents(id).fold(0, |sum, extent| sum.saturating_add(extent.len))
    }

    /// A directory's entries: first those that are no directories, then the directories; each part
    /// in the order of the names' bytes. Empty for all other kinds.
    pub fn children(&self, id: NodeId) -> impl ExactSizeIterator<Item = (&[u8], NodeId)> {
        let range = self.range(id);
        let children = self.children.get(range.start as usize..range.end as usize);
        let children = invariant_or!(children, &[], "entries of a directory lie in the table");
        children.iter().map(|child| (self.name(child.name), child.node))
    }

    /// The entry of that name in a directory.
    #[must_use]
    pub fn lookup(&self, directory: NodeId, name: &[u8]) -> Option<NodeId> {
        let range = self.range(directory);
        [(range.start, range.plain), (range.plain, range.end)].into_iter().find_map(|(start, end)| {
            let part = self.children.get(start as usize..end as usize)?;
            let place = part.binary_search_by(|child| self.name(child.name).cmp(name)).ok()?;
            part.get(place).map(|child| child.node)
        })
    }

    /// The file at a path of names between slashes; symbolic links and `..` are not followed.
    #[must_use]
    pub fn find(&self, path: &[u8]) -> Option<NodeId> {
        let mut names = path.split(|&b| b == b'/').filter(|name| !name.is_empty());
        names.try_fold(self.root(), |directory, name| self.lookup(directory, name))
    }

    /// All entries in canonical order; see [`Walk`].
    #[must_use]
    pub fn walk(&self) -> Walk<'_> {
        Walk::new(self)
    }

    /// A section of an archive by its number.
    pub(super) fn section(&self, number: u32) -> Option<&Section> {
        self.sections.get(number as usize)
    }

    /// The path of a directory that the catalogue was read from, and the names of a file below it, the last
    /// first.
    pub(super) fn host_names(&self, number: u32) -> Option<(&Path, Vec<&[u8]>)> {
        let file = self.host_files.get(number as usize)?;
        let mut names = vec![self.name(file.name)];
        names.extend(self.host_directory_names(file.directory));
        let mut top = file.directory;
        while let Some((parent, _)) = self.host_parent(top) {
            top = parent;
        }
        Some((&self.host_root(top)?.path, names))
    }

    /// The directory of a file of the host.
    pub(super) fn host_directory(&self, file: u32) -> Option<(u32, &[u8])> {
        let file = self.host_files.get(file as usize)?;
        Some((file.directory, self.name(file.name)))
    }

    /// The parent and name of a directory of the host; `None` for a source itself.
    pub(super) fn host_parent(&self, directory: u32) -> Option<(u32, &[u8])> {
        // Parents are recorded before what they hold, so that climbing ends.
        let entry = self.host_directories.get(directory as usize)?;
        (entry.parent < directory).then(|| (entry.parent, self.name(entry.name)))
    }

    fn host_directory_names(&self, directory: u32) -> impl Iterator<Item = &[u8]> {
        let mut next = self.host_parent(directory);
        std::iter::from_fn(move || {
            let (parent, name) = next?;
            next = self.host_parent(parent);
            Some(name)
        })
    }

    /// A source that is a directory, by its number.
    pub(super) fn host_root(&self, number: u32) -> Option<&HostRoot> {
        let place = self.host_roots.binary_search_by_key(&number, |root| root.number).ok()?;
        self.host_roots.get(place)
    }

    fn range(&self, id: NodeId) -> ChildRange {
        match self.node(id).content {
            Content::Directory { contents } => {
                let range = self.directories.get(contents as usize).copied();
                invariant_or!(range, ChildRange::default(), "a directory has its entries")
            }
            _ => ChildRange::default(),
        }
    }

    fn name(&self, name: Name) -> &[u8] {
        let start = name.start as usize;
        let text = self.names.get(start..start + usize::from(name.len));
        invariant_or!(text, b"", "a name lies in the table")
    }

    /// Identifiers come from this catalogue; one of another is a mistake of the program, as with a slice's index.
    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.index()]
    }
}

/// The runs of one file.
struct Extents<'c> {
    whole: Option<Extent>,
    runs: &'c [Extent],
}

impl Iterator for Extents<'_> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        if let Some(extent) = self.whole.take() {
            return Some(extent);
        }
        let (first, rest) = self.runs.split_first()?;
        self.runs = rest;
        Some(*first)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.runs.len() + usize::from(self.whole.is_some());
        (len, Some(len))
    }
}

impl ExactSizeIterator for Extents<'_> {}

#[cfg(test)]
mod tests;
