//! Changes of single files of a tree, beside what its source says: kinds and owners by a table, labels, whiteouts.

use super::builder::{CatalogueBuilder, NewNode};
use super::error::CatalogueError;
use super::node::{Content, NodeId, NodeKind};
use super::{Attributes, Catalogue, Ids};
use crate::archive::Xattr;
use ondisk::units::bounded;

impl CatalogueBuilder {
    /// Puts a file at `path` that no source describes: its times are those of a directory that no entry describes.
    pub(in crate::source) fn put_plain(
        &mut self,
        path: &[u8],
        mode: u16,
        new: NewNode<'_>,
    ) -> Result<NodeId, CatalogueError> {
        let id = self.put(path, Attributes { mode, ..Attributes::default() }, new)?;
        self.node_mut(id).implied = true;
        Ok(id)
    }

    /// Returns the kind of a file.
    pub(in crate::source) fn kind(&self, id: NodeId) -> Option<NodeKind> {
        self.nodes.get(id.index()).map(|node| node.kind)
    }

    /// Removes a name of a directory known by its node. None there is no error.
    pub(in crate::source) fn remove_at(&mut self, directory: NodeId, name: &[u8]) {
        let found = self.contents_of(directory).and_then(|contents| self.lookup(contents, name));
        if let Some(entry) = found.and_then(|at| self.entries.get_mut(at as usize)) {
            entry.node = None;
            self.last_parent = None;
        }
    }

    /// Empties a directory known by its node; nothing else is changed.
    pub(in crate::source) fn empty(&mut self, id: NodeId) -> Result<(), CatalogueError> {
        if self.contents_of(id).is_some() {
            let contents = self.new_contents()?;
            self.node_mut(id).content = Content::Directory { contents };
            self.last_parent = None;
        }
        Ok(())
    }
}

impl Catalogue {
    /// Gives a file an owner.
    pub(in crate::source) fn own(&mut self, id: NodeId, ids: Ids) {
        self.node_mut(id).ids = ids;
    }

    /// Gives a file permission bits.
    pub(in crate::source) fn permit(&mut self, id: NodeId, mode: u16) {
        self.node_mut(id).mode = mode & 0o7777;
    }

    /// The set of attributes that a set becomes with one more, in place of one of its name: its place in the table.
    /// Files that share a set share the new one, too, if the caller remembers the place.
    pub(in crate::source) fn with_xattr(&mut self, set: u32, attribute: &Xattr) -> u32 {
        let known = set.checked_sub(1).and_then(|place| self.xattrs.get(place as usize));
        let mut set: Vec<Xattr> = known.map(|set| set.to_vec()).unwrap_or_default();
        set.retain(|known| known.name != attribute.name);
        set.push(attribute.clone());
        set.sort_unstable();
        self.xattrs.push(set.into_boxed_slice());
        bounded::<u32>(self.xattrs.len())
    }

    /// The place of a file's set of attributes; 0 if it has none.
    pub(in crate::source) fn xattr_set(&self, id: NodeId) -> u32 {
        self.nodes.get(id.index()).map_or(0, |node| node.xattrs)
    }

    /// Gives a file a set of attributes.
    pub(in crate::source) fn set_xattr_set(&mut self, id: NodeId, set: u32) {
        self.node_mut(id).xattrs = set;
    }

    /// Gives the root an attribute, in place of one of its name.
    pub fn mark_root(&mut self, attribute: &Xattr) {
        let set = self.with_xattr(self.xattr_set(self.root()), attribute);
        self.set_xattr_set(self.root(), set);
    }
}
