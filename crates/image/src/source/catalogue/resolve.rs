//! From paths to the directories that hold them: cleaned, judged, symbolic links followed inside the tree.

use super::builder::CatalogueBuilder;
use super::error::{CatalogueError, clean};
use super::node::{Content, Node, NodeId};
use crate::archive::limits;

/// Symbolic links followed for one path, as Linux limits them.
const MAX_HOPS: usize = 40;

impl CatalogueBuilder {
    /// The file at `path`, symbolic links above it followed.
    ///
    /// # Errors
    /// Those of paths.
    pub fn find(&mut self, path: &[u8]) -> Result<Option<NodeId>, CatalogueError> {
        if clean(path)?.is_empty() {
            return Ok(Some(self.base));
        }
        let Some((parent, name)) = self.existing_parent(path)? else { return Ok(None) };
        Ok(self.lookup(parent, name).and_then(|at| self.entry_node(at)))
    }

    /// The contents that hold `path`, made where missing, and its last name; `None` for the root.
    pub(super) fn parent<'p>(&mut self, path: &'p [u8]) -> Result<Option<(u32, &'p [u8])>, CatalogueError> {
        self.split(path, true)
    }

    pub(super) fn existing_parent<'p>(
        &mut self,
        path: &'p [u8],
    ) -> Result<Option<(u32, &'p [u8])>, CatalogueError> {
        self.split(path, false)
    }

    pub(super) fn split<'p>(
        &mut self,
        path: &'p [u8],
        make: bool,
    ) -> Result<Option<(u32, &'p [u8])>, CatalogueError> {
        let end = path.iter().rposition(|&b| b != b'/').map_or(0, |last| last + 1);
        let trimmed = path.get(..end).unwrap_or_default();
        let cut = trimmed.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
        let (above, name) = trimmed.split_at(cut);
        let plain = !name.is_empty() && name != b"." && name != b".." && name.len() <= limits::NAME_BYTES;
        if let Some((_, contents)) = self.last_parent.as_ref().filter(|(last, _)| plain && last == above) {
            return Ok(Some((*contents, name)));
        }
        let mut names = clean(path)?;
        let Some(name) = names.pop() else { return Ok(None) };
        let Some(contents) = self.resolve(path, &names, make)? else { return Ok(None) };
        if plain {
            self.last_parent = Some((above.to_vec(), contents));
        }
        Ok(Some((contents, name)))
    }

    /// Follows names from the source's root to a directory's contents.
    pub(super) fn resolve(
        &mut self,
        path: &[u8],
        names: &[&[u8]],
        make: bool,
    ) -> Result<Option<u32>, CatalogueError> {
        let mut above = vec![self.base];
        let mut todo: Vec<Vec<u8>> = names.iter().rev().map(|name| name.to_vec()).collect();
        let mut hops = 0;
        while let Some(name) = todo.pop() {
            let here = *above.last().unwrap_or(&self.base);
            let contents = self.contents_of(here).unwrap_or(0);
            if name == b".." {
                if above.len() > 1 {
                    above.pop();
                }
                continue;
            }
            let found = self.lookup(contents, &name).and_then(|at| self.entry_node(at));
            let Some(id) = found else {
                if !make {
                    return Ok(None);
                }
                above.push(self.make_parent(contents, &name)?);
                continue;
            };
            if self.contents_of(id).is_some() {
                above.push(id);
                continue;
            }
            hops += 1;
            let Some(target) = self.target_of(id) else {
                match make {
                    // Nothing is there that could be removed or linked to.
                    false => return Ok(None),
                    true if self.is_of_lower_layer(id) => {
                        above.push(self.make_parent(contents, &name)?);
                        continue;
                    }
                    true => return Err(CatalogueError::NotADirectory(path.to_vec())),
                }
            };
            if hops > MAX_HOPS {
                return Err(CatalogueError::Circle(path.to_vec()));
            }
            if target.starts_with(b"/") {
                above.truncate(1);
            }
            let parts = target.split(|&b| b == b'/').filter(|part| !matches!(*part, b"" | b"."));
            let parts: Vec<Vec<u8>> = parts.map(<[u8]>::to_vec).collect();
            if parts.iter().any(|part| part.len() > limits::NAME_BYTES) {
                return Err(CatalogueError::LongName(path.to_vec()));
            }
            todo.extend(parts.into_iter().rev());
        }
        Ok(above.last().and_then(|&id| self.contents_of(id)))
    }

    pub(super) fn make_parent(&mut self, contents: u32, name: &[u8]) -> Result<NodeId, CatalogueError> {
        let own = self.new_contents()?;
        let id = self.push_node(Node::implied(own))?;
        self.add_name(contents, name, id)?;
        Ok(id)
    }

    /// A layer replaces what lies below it, with what it has in a directory of that name too.
    fn is_of_lower_layer(&self, id: NodeId) -> bool {
        self.layers.last().is_some_and(|first| id.0 < *first)
    }

    pub(super) fn target_of(&self, id: NodeId) -> Option<Vec<u8>> {
        let node = self.nodes.get(id.index())?;
        let Content::Target { start } = node.content else { return None };
        let start = start as usize;
        self.names.get(start..start.checked_add(usize::try_from(node.size).ok()?)?).map(<[u8]>::to_vec)
    }
}
