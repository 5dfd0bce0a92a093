//! Takes entries in any order and merges them as unpacking would.
//!
//! Rules: a later entry of the same path replaces an earlier one; a directory met again keeps what it holds and takes the
//! new attributes; anything else met where a directory stood makes an end of all that was in it. Missing parents are made. A
//! symbolic link where a parent is needed is followed inside the tree (`..` stops at its root), as a system
//! unpacking into a directory of its own would do. Paths that lead upwards by themselves are refused.

use super::error::{CatalogueError, clean};
use super::node::{Content, Extent, Node, NodeId, Origin};
use super::{HostDirectory, HostFile, HostRoot, Name};
use crate::archive::{Device, Run, Xattr};
use crate::source::attributes::{Attributes, Stamps};
use crate::source::filter::FilterError;
use crate::source::input::Section;
use crate::source::options::SourceOptions;
use ondisk::inode::InodeFlags;
use ondisk::invariant_or;
use ondisk::units::bounded;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::os::unix::ffi::OsStrExt;

/// Kind of a new file, with its contents.
#[derive(Clone, Copy, Debug)]
pub enum NewNode<'a> {
    /// A directory.
    Directory,
    /// A regular file whose data lie in a section.
    File {
        /// The length with holes.
        size: u64,
        /// The data, places counted from the section's first byte.
        runs: &'a [Run],
        /// Where the data lie.
        origin: Origin,
    },
    /// A symbolic link with its target.
    Symlink(&'a [u8]),
    /// A character device.
    CharDevice(Device),
    /// A block device.
    BlockDevice(Device),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

/// Keys are hashes already.
#[derive(Clone, Copy, Default)]
pub(super) struct Unhashed(u64);

impl Hasher for Unhashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// A name under construction. Those of one hash are chained.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// The contents that hold it.
    pub(super) parent: u32,
    pub(super) name: Name,
    /// `None` after its removal.
    pub(super) node: Option<NodeId>,
    next: u32,
}

const NO_ENTRY: u32 = u32::MAX;

/// A catalogue under construction.
pub struct CatalogueBuilder {
    pub(super) options: SourceOptions,
    pub(super) nodes: Vec<Node>,
    pub(super) names: Vec<u8>,
    pub(super) entries: Vec<Entry>,
    pub(super) extents: Vec<Extent>,
    pub(super) stamps: Vec<Stamps>,
    pub(super) xattrs: Vec<Box<[Xattr]>>,
    pub(super) sections: Vec<Section>,
    pub(super) flags: HashMap<NodeId, InodeFlags>,
    pub(super) layers: Vec<u32>,
    /// Where there are layers: what had the name of a node before.
    pub(super) replaced: HashMap<NodeId, NodeId>,
    pub(super) host_roots: Vec<HostRoot>,
    pub(super) host_directories: Vec<HostDirectory>,
    pub(super) host_files: Vec<HostFile>,
    /// Number of contents so far; those of the root are 0.
    pub(super) contents: u32,
    /// The directory that the source's root becomes.
    pub(super) base: NodeId,
    /// Bytes in the attribute sets.
    pub(super) xattr_bytes: u64,
    /// Attribute sets met before.
    pub(super) sets: HashMap<Box<[Xattr]>, u32>,
    /// From the hash of contents and name to the first entry of the chain. The hash is keyed, so that no
    /// archive can be made to fill one chain.
    index: HashMap<u64, u32, BuildHasherDefault<Unhashed>>,
    hasher: RandomState,
    /// Attributes left out because Linux has no place for them.
    pub(in crate::source) dropped_xattrs: usize,
    /// The last parent looked up: entries of one directory mostly follow each other.
    pub(super) last_parent: Option<(Vec<u8>, u32)>,
}

impl Default for CatalogueBuilder {
    /// Begins with a root directory; entries are taken as they are.
    fn default() -> Self {
        Self::begin(SourceOptions::default())
    }
}

impl CatalogueBuilder {
    /// Begins with a root directory, and the prefix below it if there is one.
    ///
    /// # Errors
    /// [`FilterError::Prefix`], [`FilterError::Overlap`].
    pub fn new(options: SourceOptions) -> Result<Self, FilterError> {
        options.check_ranges()?;
        let prefix = options.prefix.clone().unwrap_or_default();
        let mut builder = Self::begin(options);
        let wrong = |_| FilterError::Prefix(prefix.clone());
        for name in clean(prefix.as_os_str().as_bytes()).map_err(wrong)? {
            let contents = builder.contents_of(builder.base).unwrap_or(0);
            builder.base = builder.make_parent(contents, name).map_err(wrong)?;
        }
        Ok(builder)
    }

    fn begin(options: SourceOptions) -> Self {
        Self {
            options,
            nodes: vec![Node::implied(0)],
            names: Vec::new(),
            entries: Vec::new(),
            extents: Vec::new(),
            stamps: Vec::new(),
            xattrs: Vec::new(),
            sections: Vec::new(),
            flags: HashMap::new(),
            layers: Vec::new(),
            replaced: HashMap::new(),
            host_roots: Vec::new(),
            host_directories: Vec::new(),
            host_files: Vec::new(),
            contents: 1,
            base: NodeId(0),
            xattr_bytes: 0,
            sets: HashMap::new(),
            index: HashMap::default(),
            hasher: RandomState::new(),
            dropped_xattrs: 0,
            last_parent: None,
        }
    }

    /// Returns the options of reading the source.
    pub(in crate::source) fn options(&self) -> &SourceOptions {
        &self.options
    }

    /// Notes the flags of a node.
    pub fn set_flags(&mut self, node: NodeId, flags: InodeFlags) {
        match flags.is_empty() {
            true => drop(self.flags.remove(&node)),
            false => drop(self.flags.insert(node, flags)),
        }
    }

    /// Begins a layer of its own, over all that was put before.
    pub fn begin_layer(&mut self) {
        self.layers.push(bounded::<u32>(self.nodes.len()));
    }

    /// Adds an archive whose data files may use.
    pub fn add_section(&mut self, section: Section) -> Origin {
        self.sections.push(section);
        Origin::Section(bounded::<u32>(self.sections.len() - 1))
    }

    /// Puts a regular file with these contents at `path`.
    ///
    /// ```
    /// use platfs_image::source::CatalogueBuilder;
    /// use platfs_image::source::catalogue::{Attributes, NewNode};
    /// use platfs_image::{Builder, Source};
    /// # let directory = tempfile::tempdir()?;
    /// # let image = directory.path().join("disk.img");
    ///
    /// let mut tree = CatalogueBuilder::default();
    /// let mode = |mode| Attributes { mode, ..Attributes::default() };
    /// tree.put_bytes(b"etc/hostname", mode(0o644), "box\n")?;
    /// tree.put(b"etc/mtab", mode(0o777), NewNode::Symlink(b"/proc/mounts"))?;
    /// let built = Builder::new(&Source::from(tree.finish())).build(&image)?;
    /// assert_eq!((built.contents.files, built.contents.symlinks), (1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`CatalogueBuilder::put`].
    pub fn put_bytes(
        &mut self,
        path: &[u8],
        attributes: Attributes,
        contents: impl Into<Vec<u8>>,
    ) -> Result<NodeId, CatalogueError> {
        let contents = contents.into();
        let size = contents.len() as u64;
        let origin = self.add_section(Section::of_bytes(contents));
        let run = [Run { file_offset: 0, len: size, archive_offset: 0 }];
        let runs = if size == 0 { &[][..] } else { &run };
        self.put(path, attributes, NewNode::File { size, runs, origin })
    }

    /// Puts a file at `path`.
    ///
    /// # Errors
    /// Any [`CatalogueError`] but those about hard links.
    pub fn put(
        &mut self,
        path: &[u8],
        attributes: Attributes,
        new: NewNode<'_>,
    ) -> Result<NodeId, CatalogueError> {
        let Some((parent, name)) = self.parent(path)? else {
            return self.put_root(path, attributes, new);
        };
        let found = self.lookup(parent, name);
        let existing = found.and_then(|at| self.entry_node(at));
        // An entry of a directory that is there changes the attributes, as tar does, and keeps what the directory holds.
        if let (Some(id), NewNode::Directory) = (existing, new)
            && let Some(contents) = self.contents_of(id)
        {
            let node = self.make_node(attributes, new, Some(contents))?;
            self.set_node(id, node);
            return Ok(id);
        }
        let node = self.make_node(attributes, new, None)?;
        let id = self.push_node(node)?;
        self.point(parent, name, found, id)?;
        Ok(id)
    }

    /// Gives the file at `target` one more name.
    ///
    /// # Errors
    /// Any [`CatalogueError`].
    pub fn link(&mut self, path: &[u8], target: &[u8]) -> Result<NodeId, CatalogueError> {
        let missing = || CatalogueError::NoTarget { path: path.to_vec(), target: target.to_vec() };
        let id = self.find(target)?.ok_or_else(missing)?;
        if self.contents_of(id).is_some() {
            return Err(CatalogueError::LinkToDirectory(path.to_vec()));
        }
        let (parent, name) = self.parent(path)?.ok_or_else(|| CatalogueError::Root(path.to_vec()))?;
        self.add_name(parent, name, id)?;
        Ok(id)
    }

    /// Points a name at a file, whatever it named before.
    pub(super) fn add_name(&mut self, parent: u32, name: &[u8], id: NodeId) -> Result<(), CatalogueError> {
        let found = self.lookup(parent, name);
        self.point(parent, name, found, id)
    }

    /// Removes what is at `path`, with all below it. Nothing there is no error.
    ///
    /// # Errors
    /// Those of paths.
    pub fn remove(&mut self, path: &[u8]) -> Result<(), CatalogueError> {
        let Some((parent, name)) = self.existing_parent(path)? else { return Ok(()) };
        if let Some(entry) = self.lookup(parent, name).and_then(|at| self.entries.get_mut(at as usize)) {
            entry.node = None;
            self.last_parent = None;
        }
        Ok(())
    }

    /// Empties the directory at `path`. None there is no error.
    ///
    /// # Errors
    /// Those of paths.
    pub fn clear(&mut self, path: &[u8]) -> Result<(), CatalogueError> {
        match self.find(path)? {
            Some(id) => self.empty(id),
            None => Ok(()),
        }
    }

    fn put_root(
        &mut self,
        path: &[u8],
        attributes: Attributes,
        new: NewNode<'_>,
    ) -> Result<NodeId, CatalogueError> {
        let (NewNode::Directory, Some(contents)) = (new, self.contents_of(self.base)) else {
            return Err(CatalogueError::Root(path.to_vec()));
        };
        let node = self.make_node(attributes, new, Some(contents))?;
        self.set_node(self.base, node);
        Ok(self.base)
    }

    pub(super) fn contents_of(&self, id: NodeId) -> Option<u32> {
        match self.nodes.get(id.index())?.content {
            Content::Directory { contents } => Some(contents),
            _ => None,
        }
    }

    pub(super) fn new_contents(&mut self) -> Result<u32, CatalogueError> {
        let contents = self.contents;
        self.contents = contents.checked_add(1).ok_or(CatalogueError::TooMany)?;
        Ok(contents)
    }

    pub(super) fn push_node(&mut self, node: Node) -> Result<NodeId, CatalogueError> {
        let id = u32::try_from(self.nodes.len()).map_err(|_| CatalogueError::TooMany)?;
        self.nodes.push(node);
        Ok(NodeId(id))
    }

    pub(super) fn set_node(&mut self, id: NodeId, node: Node) {
        *self.node_mut(id) = node;
    }

    /// Identifiers come from this builder, which removes no node.
    pub(super) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.index()]
    }

    fn hash(&self, parent: u32, name: &[u8]) -> u64 {
        self.hasher.hash_one((parent, name))
    }

    /// The place of the entry, which may have been removed.
    pub(super) fn lookup(&self, parent: u32, name: &[u8]) -> Option<u32> {
        let mut at = *self.index.get(&self.hash(parent, name))?;
        loop {
            let entry = self.entries.get(at as usize)?;
            if entry.parent == parent && self.name(entry.name) == name {
                return Some(at);
            }
            at = entry.next;
        }
    }

    pub(super) fn entry_node(&self, at: u32) -> Option<NodeId> {
        self.entries.get(at as usize)?.node
    }

    pub(super) fn name(&self, name: Name) -> &[u8] {
        let start = name.start as usize;
        let text = self.names.get(start..start + usize::from(name.len));
        invariant_or!(text, b"", "a name lies in the table")
    }

    /// Points the entry found, or a new one, at a node.
    fn point(
        &mut self,
        parent: u32,
        name: &[u8],
        found: Option<u32>,
        id: NodeId,
    ) -> Result<(), CatalogueError> {
        if let Some(entry) = found.and_then(|at| self.entries.get_mut(at as usize)) {
            let replaced = entry.node.replace(id);
            if let Some(old) = replaced {
                self.last_parent = None;
                if !self.layers.is_empty() && old != id {
                    self.replaced.insert(id, old);
                }
            }
            return Ok(());
        }
        let name_at = self.add_text(name)?;
        let at = u32::try_from(self.entries.len())
            .ok()
            .filter(|&at| at != NO_ENTRY)
            .ok_or(CatalogueError::TooMany)?;
        let next = self.index.insert(self.hash(parent, name), at).unwrap_or(NO_ENTRY);
        self.entries.push(Entry { parent, name: name_at, node: Some(id), next });
        Ok(())
    }

    /// Keeps a name.
    pub(super) fn add_text(&mut self, name: &[u8]) -> Result<Name, CatalogueError> {
        let len = u8::try_from(name.len()).map_err(|_| CatalogueError::LongName(name.to_vec()))?;
        Ok(Name { start: self.add_bytes(name)?, len })
    }

    pub(super) fn add_bytes(&mut self, bytes: &[u8]) -> Result<u32, CatalogueError> {
        let start = u32::try_from(self.names.len()).map_err(|_| CatalogueError::TooMany)?;
        self.names.extend_from_slice(bytes);
        Ok(start)
    }
}
