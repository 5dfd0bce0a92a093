//! The canonical order: a directory's entries in name order, its files first and then its subdirectories,
//! each followed by its own entries.

use super::{Catalogue, Child, NodeId};
use ondisk::invariant_or;

/// One name met by a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'c> {
    /// The directory that holds the name.
    pub directory: NodeId,
    /// The name.
    pub name: &'c [u8],
    /// The file it names.
    pub node: NodeId,
    /// True if the walk met no other name of this file before: its data are due now.
    pub first: bool,
    /// Number of directories above: 1 for the root's entries.
    pub depth: usize,
}

/// Walks a catalogue without recursion: trees may be as deep as paths are long. The root itself is not met.
///
/// ```text
/// a  z  b/  b/x  b/c/  b/c/y  d/       of the files a, b/c/y, b/x, z and the empty directory d
/// ```
#[derive(Debug)]
pub struct Walk<'c> {
    catalogue: &'c Catalogue,
    /// Open directories: the node, and its entries that are still to be met.
    open: Vec<(NodeId, &'c [Child])>,
    /// One bit per node that several names may have.
    seen: Vec<u64>,
}

impl<'c> Walk<'c> {
    pub(super) fn new(catalogue: &'c Catalogue) -> Self {
        let mut walk = Self { catalogue, open: Vec::new(), seen: vec![0; catalogue.nodes().div_ceil(64)] };
        walk.enter(catalogue.root());
        walk
    }

    fn enter(&mut self, directory: NodeId) {
        let range = self.catalogue.range(directory);
        let children = self.catalogue.children.get(range.start as usize..range.end as usize);
        self.open.push((directory, invariant_or!(children, &[], "entries of a directory lie in the table")));
    }

    /// Marks a node as met; true the first time.
    fn mark(&mut self, node: NodeId) -> bool {
        let bit = 1 << (node.index() % 64);
        let Some(word) = self.seen.get_mut(node.index() / 64) else { return true };
        let first = *word & bit == 0;
        *word |= bit;
        first
    }
}

impl<'c> Iterator for Walk<'c> {
    type Item = Step<'c>;

    fn next(&mut self) -> Option<Step<'c>> {
        loop {
            let depth = self.open.len();
            let (directory, children) = self.open.last_mut()?;
            let Some((child, rest)) = children.split_first() else {
                self.open.pop();
                continue;
            };
            *children = rest;
            let directory = *directory;
            let first = self.mark(child.node);
            // Children stand after all plain entries, so that descending at once keeps the order.
            if matches!(self.catalogue.node(child.node).content, super::Content::Directory { .. }) {
                self.enter(child.node);
            }
            return Some(Step {
                directory,
                name: self.catalogue.name(child.name),
                node: child.node,
                first,
                depth,
            });
        }
    }
}
