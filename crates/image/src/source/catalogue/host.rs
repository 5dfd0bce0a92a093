//! Entries from a directory of the host: parents are known by their nodes, no path is looked up.

use super::builder::{CatalogueBuilder, NewNode};
use super::error::CatalogueError;
use super::node::{NodeId, Origin};
use super::{HostDirectory, HostFile, HostRoot, Name};
use crate::source::attributes::Attributes;
use platfs_host::Directory;
use std::path::Path;

impl CatalogueBuilder {
    /// Begins a directory of the host as source: its own number.
    pub(in crate::source) fn host_root(
        &mut self,
        path: &Path,
        directory: Directory,
    ) -> Result<u32, CatalogueError> {
        let number = u32::try_from(self.host_directories.len()).map_err(|_| CatalogueError::TooMany)?;
        self.host_roots.push(HostRoot { number, path: path.to_owned(), directory });
        self.host_directories.push(HostDirectory { parent: number, name: Name { start: 0, len: 0 } });
        Ok(number)
    }

    /// Puts a directory of the host into `parent` of the catalogue; one that is there already keeps what it holds.
    pub(in crate::source) fn put_host_directory(
        &mut self,
        parent: NodeId,
        host_parent: u32,
        name: &[u8],
        attributes: Attributes,
    ) -> Result<(NodeId, u32), CatalogueError> {
        let found = self.contents_of(parent).and_then(|contents| self.lookup(contents, name));
        let held = found.and_then(|at| self.entry_node(at)).filter(|id| self.contents_of(*id).is_some());
        let id = match held {
            Some(id) => {
                let node = self.make_node(attributes, NewNode::Directory, self.contents_of(id))?;
                self.set_node(id, node);
                id
            }
            None => self.put_at(parent, name, attributes, NewNode::Directory)?,
        };
        let number = u32::try_from(self.host_directories.len()).map_err(|_| CatalogueError::TooMany)?;
        let name = self.add_text(name)?;
        self.host_directories.push(HostDirectory { parent: host_parent, name });
        Ok((id, number))
    }

    /// Remembers a file of the host whose data are read later.
    pub(in crate::source) fn add_host_file(
        &mut self,
        directory: u32,
        name: &[u8],
    ) -> Result<Origin, CatalogueError> {
        let number = u32::try_from(self.host_files.len()).map_err(|_| CatalogueError::TooMany)?;
        let name = self.add_text(name)?;
        self.host_files.push(HostFile { directory, name });
        Ok(Origin::Host(number))
    }

    /// Puts a new file into a directory known by its node.
    pub(in crate::source) fn put_at(
        &mut self,
        parent: NodeId,
        name: &[u8],
        attributes: Attributes,
        new: NewNode<'_>,
    ) -> Result<NodeId, CatalogueError> {
        let contents =
            self.contents_of(parent).ok_or_else(|| CatalogueError::NotADirectory(name.to_vec()))?;
        let node = self.make_node(attributes, new, None)?;
        let id = self.push_node(node)?;
        self.add_name(contents, name, id)?;
        Ok(id)
    }

    /// Gives a file one more name in a directory known by its node.
    pub(in crate::source) fn link_at(
        &mut self,
        parent: NodeId,
        name: &[u8],
        id: NodeId,
    ) -> Result<(), CatalogueError> {
        let contents =
            self.contents_of(parent).ok_or_else(|| CatalogueError::NotADirectory(name.to_vec()))?;
        self.add_name(contents, name, id)
    }

    /// The directory that the source's root becomes.
    pub(in crate::source) fn base(&self) -> NodeId {
        self.base
    }
}
