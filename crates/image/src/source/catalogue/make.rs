//! From what an entry says to a node: contents, times and attributes go into their tables.

use super::builder::{CatalogueBuilder, Entry, NewNode};
use super::error::CatalogueError;
use super::node::{Content, Extent, Node, NodeKind, Origin};
use crate::archive::{Run, Times, Xattr, acl};
use crate::source::attributes::{Attributes, Stamps};

impl CatalogueBuilder {
    pub(super) fn make_node(
        &mut self,
        attributes: Attributes,
        new: NewNode<'_>,
        contents: Option<u32>,
    ) -> Result<Node, CatalogueError> {
        let (kind, size, content) = match new {
            NewNode::Directory => {
                let contents = contents.map_or_else(|| self.new_contents(), Ok)?;
                (NodeKind::Directory, 0, Content::Directory { contents })
            }
            NewNode::File { size, runs, origin } => {
                (NodeKind::File, size, self.file_content(size, runs, origin)?)
            }
            NewNode::Symlink(target) => {
                let start = self.add_bytes(target)?;
                (NodeKind::Symlink, target.len() as u64, Content::Target { start })
            }
            NewNode::CharDevice(device) => (NodeKind::CharDevice, 0, Content::Device(device)),
            NewNode::BlockDevice(device) => (NodeKind::BlockDevice, 0, Content::Device(device)),
            NewNode::Fifo => (NodeKind::Fifo, 0, Content::Nothing),
            NewNode::Socket => (NodeKind::Socket, 0, Content::Nothing),
        };
        Ok(Node {
            kind,
            implied: false,
            unmapped: self.options.leaves(attributes.ids),
            // That of a link means nothing to Linux, which makes all the same.
            mode: if kind == NodeKind::Symlink { 0o777 } else { attributes.mode & 0o7777 },
            ids: self.options.map_ids(attributes.ids),
            modified: attributes.times.modified,
            stamps: self.add_stamps(attributes.times)?,
            xattrs: self.add_xattrs(attributes.xattrs)?,
            links: 0,
            size,
            content,
        })
    }

    pub(super) fn file_content(
        &mut self,
        size: u64,
        runs: &[Run],
        origin: Origin,
    ) -> Result<Content, CatalogueError> {
        match runs {
            [] => Ok(Content::Empty),
            [run] if run.file_offset == 0 && run.len == size => {
                Ok(Content::Whole { origin, offset: run.archive_offset })
            }
            _ => {
                let first = u32::try_from(self.extents.len()).map_err(|_| CatalogueError::TooMany)?;
                let count = u32::try_from(runs.len()).map_err(|_| CatalogueError::TooMany)?;
                self.extents.extend(runs.iter().map(|run| Extent {
                    file_offset: run.file_offset,
                    len: run.len,
                    origin,
                    origin_offset: run.archive_offset,
                }));
                Ok(Content::Runs { first, count })
            }
        }
    }

    /// Runs of data beyond the first of each file, which each take a block at least.
    pub(in crate::source) fn pieces(&self) -> u64 {
        self.extents.len() as u64
    }

    /// Bytes of memory that the tree takes.
    pub(in crate::source) fn memory(&self) -> u64 {
        // An entry stands in the index, too.
        let entry = size_of::<Entry>() + size_of::<(u64, u32)>();
        let tables = [
            (self.nodes.len(), size_of::<Node>()),
            (self.entries.len(), entry),
            (self.extents.len(), size_of::<Extent>()),
            (self.stamps.len(), size_of::<Stamps>()),
            (self.names.len(), 1),
        ];
        tables.iter().map(|(count, size)| (count * size) as u64).sum::<u64>() + self.xattr_bytes
    }

    pub(super) fn add_stamps(&mut self, times: Times) -> Result<u32, CatalogueError> {
        let modified = times.modified;
        let stamps = Stamps {
            modified,
            accessed: times.accessed.unwrap_or(modified),
            changed: times.changed.unwrap_or(modified),
            created: times.created.unwrap_or(modified),
        };
        if stamps == Stamps::all(modified) {
            return Ok(0);
        }
        self.stamps.push(stamps);
        u32::try_from(self.stamps.len()).map_err(|_| CatalogueError::TooMany)
    }

    pub(super) fn add_xattrs(&mut self, mut xattrs: Vec<Xattr>) -> Result<u32, CatalogueError> {
        if self.options.no_xattrs {
            return Ok(0);
        }
        let before = xattrs.len();
        xattrs.retain(|xattr| is_kept(&xattr.name));
        self.dropped_xattrs += before - xattrs.len();
        if xattrs.is_empty() {
            return Ok(0);
        }
        if self.options.maps_ids() {
            xattrs.iter_mut().for_each(|xattr| self.options.map_xattr(xattr));
        }
        xattrs.sort_unstable();
        let set = xattrs.into_boxed_slice();
        if let Some(&place) = self.sets.get(&set) {
            return Ok(place);
        }
        self.xattr_bytes += set.iter().map(xattr_bytes).sum::<u64>();
        self.xattrs.push(set.clone());
        let place = u32::try_from(self.xattrs.len()).map_err(|_| CatalogueError::TooMany)?;
        self.sets.insert(set, place);
        Ok(place)
    }
}

/// Memory for an attribute, which stands in two tables.
fn xattr_bytes(xattr: &Xattr) -> u64 {
    2 * (size_of::<Xattr>() + xattr.name.len() + xattr.value.len()) as u64
}

/// Returns true if Linux has a place for an attribute of that name: archives of other systems bring more.
fn is_kept(name: &[u8]) -> bool {
    let namespaces: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    let rest = namespaces.iter().find_map(|namespace| name.strip_prefix(*namespace));
    rest.is_some_and(|rest| !rest.is_empty()) || matches!(name, acl::ACCESS | acl::DEFAULT)
}
