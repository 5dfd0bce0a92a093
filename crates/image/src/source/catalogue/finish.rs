//! From a builder to a catalogue: what is reachable, in canonical order, with links counted.

use super::builder::CatalogueBuilder;
use super::node::{Content, NodeId, NodeKind};
use super::{Catalogue, Child, ChildRange, Summary};
use crate::archive::Timestamp;
use crate::source::attributes::Stamps;
use crate::source::data::LostData;
use crate::source::filter::Excludes;
use ondisk::invariant_or;
use ondisk::units::bounded;

impl CatalogueBuilder {
    /// Leaves out what the options exclude, sorts, counts links, sets the times of directories that no entry
    /// described, and brings times down to the latest allowed.
    #[must_use]
    pub fn finish(self) -> Catalogue {
        let (directories, children) = self.group();
        let mut catalogue = Catalogue {
            directories,
            children,
            nodes: self.nodes,
            names: self.names,
            extents: self.extents,
            stamps: self.stamps,
            xattrs: self.xattrs,
            sections: self.sections,
            host_roots: self.host_roots,
            host_directories: self.host_directories,
            host_files: self.host_files,
            flags: self.flags,
            layers: self.layers,
            replaced: self.replaced,
            summary: Summary::default(),
            lost: LostData::new(self.options.in_use),
        };
        if !self.options.exclude.is_empty() {
            catalogue.leave_out(&self.options.exclude, self.base);
        }
        let newest = catalogue.count();
        catalogue.set_times(newest, |stamps| self.options.clamp(stamps));
        catalogue
    }

    /// Entries by the contents that hold them, each range sorted: plain ones before directories.
    fn group(&self) -> (Vec<ChildRange>, Vec<Child>) {
        let mut ranges = vec![ChildRange::default(); self.contents as usize];
        let live = || self.entries.iter().filter_map(|entry| Some((entry, entry.node?)));
        for (entry, _) in live() {
            let range = ranges.get_mut(entry.parent as usize);
            invariant_or!(range, continue, "an entry lies in a directory").end += 1;
        }
        let mut start = 0;
        for range in &mut ranges {
            let count = range.end;
            // `plain` serves as the fill mark until the range is complete.
            *range = ChildRange { start, plain: start, end: start + count };
            start += count;
        }
        let unfilled = Child { name: super::Name { start: 0, len: 0 }, node: NodeId(0) };
        let mut children = vec![unfilled; start as usize];
        for (entry, node) in live() {
            let range = ranges.get_mut(entry.parent as usize);
            let range = invariant_or!(range, continue, "an entry lies in a directory");
            let slot = children.get_mut(range.plain as usize);
            *invariant_or!(slot, continue, "an entry that was counted has a place") =
                Child { name: entry.name, node };
            range.plain += 1;
        }
        for range in &mut ranges {
            let part = children.get_mut(range.start as usize..range.end as usize);
            self.sort(invariant_or!(part, continue, "entries of a directory lie in the table"), range);
        }
        (ranges, children)
    }

    fn sort(&self, part: &mut [Child], range: &mut ChildRange) {
        let is_directory = |child: &Child| self.contents_of(child.node).is_some();
        let text = |child: &Child| {
            let start = child.name.start as usize;
            self.names.get(start..start + usize::from(child.name.len)).unwrap_or_default()
        };
        part.sort_unstable_by(|a, b| (is_directory(a), text(a)).cmp(&(is_directory(b), text(b))));
        let plain = part.partition_point(|child| !is_directory(child));
        range.plain = range.start + bounded::<u32>(plain);
    }
}

impl Catalogue {
    /// Removes entries that match. Those of directories left out are no longer reached.
    fn leave_out(&mut self, exclude: &Excludes, base: NodeId) {
        // The path of a directory counts from the source's root: what stands above that is ours.
        let mut todo = vec![(self.root(), Vec::new(), base == self.root())];
        while let Some((directory, path, inside)) = todo.pop() {
            let Content::Directory { contents } = self.node(directory).content else { continue };
            let range = self.range(directory);
            let mut kept = range.start;
            let mut plain = range.start;
            for at in range.start..range.end {
                let child = self.children[at as usize];
                let name = self.name(child.name);
                let path = if path.is_empty() { name.to_vec() } else { [&path, name].join(&b'/') };
                if inside && exclude.matches(&path, name) {
                    continue;
                }
                self.children[kept as usize] = child;
                kept += 1;
                plain += u32::from(at < range.plain);
                if at >= range.plain {
                    let is_base = child.node == base;
                    todo.push((child.node, if is_base { Vec::new() } else { path }, inside || is_base));
                }
            }
            self.directories[contents as usize] = ChildRange { start: range.start, plain, end: kept };
        }
    }

    /// Counts links and sums; returns the newest time of contents of any entry.
    fn count(&mut self) -> Timestamp {
        let mut links = vec![0_u32; self.nodes.len()];
        let mut summary = Summary { directories: 1, ..Summary::default() };
        if let Some(root) = links.first_mut() {
            *root = 2;
        }
        let root = self.node(self.root());
        let mut newest = (!root.implied).then_some(root.modified);
        for step in self.walk() {
            summary.names += 1;
            let node = self.node(step.node);
            let is_directory = node.kind == NodeKind::Directory;
            links[step.node.index()] =
                links[step.node.index()].saturating_add(if is_directory { 2 } else { 1 });
            if is_directory {
                links[step.directory.index()] = links[step.directory.index()].saturating_add(1);
            }
            if step.first {
                summary.add(node.kind, node.size, self.data_bytes(step.node));
                newest = newest.max((!node.implied).then_some(node.modified));
            }
        }
        for (node, links) in self.nodes.iter_mut().zip(links) {
            node.links = links;
        }
        self.summary = summary;
        newest.unwrap_or_default()
    }

    fn set_times(&mut self, newest: Timestamp, clamp: impl Fn(Stamps) -> Stamps) {
        for node in &mut self.nodes {
            if node.implied {
                node.modified = newest;
            }
            node.modified = clamp(Stamps::all(node.modified)).modified;
        }
        for stamps in &mut self.stamps {
            *stamps = clamp(*stamps);
        }
    }
}

impl Summary {
    fn add(&mut self, kind: NodeKind, size: u64, data: u64) {
        match kind {
            NodeKind::Directory => self.directories += 1,
            NodeKind::File => {
                self.files += 1;
                self.data_bytes = self.data_bytes.saturating_add(data);
                self.apparent_bytes = self.apparent_bytes.saturating_add(size);
            }
            NodeKind::Symlink => self.symlinks += 1,
            NodeKind::CharDevice | NodeKind::BlockDevice | NodeKind::Fifo | NodeKind::Socket => {
                self.specials += 1
            }
        }
    }
}
