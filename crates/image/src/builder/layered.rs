//! Inodes and directories layer by layer, so that those of a layer are the same whatever lies over it.
//!
//! The inodes of a layer follow each other in the order of the walk. A file that has taken the name of another one gets the
//! inode that the other would have. A directory lies with those of its layer, in as many blocks as its names take in
//! that layer at most. If the names of higher layers need more, that place stays free, and it lies with the
//! directories of the layer that needs them.
//!
//! Owns: the order of inodes and directories where data are aligned. Excludes: data (`aligned`), how a name is made
//! (`fill`).

use ondisk::invariant_or;
use platfs::ondisk::geometry::Geometry;
use platfs::ondisk::units::{Cluster, InodeNumber};
use platfs::{DirName, NameSizes};

use super::error::BuildError;
use super::fill::{Filler, known_name, path_of};
use super::size::{Shape, inode_clusters};
use super::wanted::file_type;
use crate::source::{Catalogue, NodeId, NodeKind};

/// A directory of the merged tree.
pub(super) struct Directory {
    node: NodeId,
    parent: NodeId,
    layer: usize,
    /// The clusters that its names take at most: with those up to a layer, where that is more than before.
    rooms: Vec<(usize, u64)>,
}

/// The layer to whose inodes a node belongs: that of the lowest file with its name.
fn layer_of(catalogue: &Catalogue, node: NodeId) -> usize {
    let mut lowest = node;
    // Each lies in a lower layer than the one before.
    while let Some(hidden) = catalogue.hidden_by(lowest) {
        lowest = hidden;
    }
    catalogue.layer_of(lowest)
}

impl Directory {
    /// The layer in which a name is made: not before the directory itself.
    fn layer_of_name(&self, catalogue: &Catalogue, node: NodeId) -> usize {
        layer_of(catalogue, node).max(self.layer)
    }

    fn measure(&mut self, filler: &Filler<'_>, own: &[platfs::DirEntry]) {
        let format = filler.volume.format();
        let geometry = &format.geometry;
        let mut by_layer: Vec<Vec<usize>> = vec![Vec::new(); filler.catalogue.layers()];
        for (name, node) in filler.catalogue.children(self.node) {
            let layer = self.layer_of_name(filler.catalogue, node);
            invariant_or!(by_layer.get_mut(layer), continue, "a name lies in a layer").push(name.len());
        }
        let mut sizes = NameSizes::default();
        own.iter().for_each(|entry| sizes.add(entry.name.len()));
        for (layer, names) in by_layer.into_iter().enumerate().skip(self.layer) {
            names.into_iter().for_each(|len| sizes.add(len));
            // One that can't be is refused where it is written.
            let blocks = sizes.blocks_at_most(geometry.block_size, &format.features).unwrap_or(1);
            let clusters = blocks.div_ceil(1 << geometry.cluster_log2);
            if self.rooms.last().is_none_or(|(_, before)| clusters > *before) {
                self.rooms.push((layer, clusters));
            }
        }
    }
}

/// All directories, each before those in it.
fn directories(catalogue: &Catalogue) -> Vec<Directory> {
    let root = catalogue.root();
    let mut all = vec![Directory { node: root, parent: root, layer: 0, rooms: Vec::new() }];
    // The layers of the directories around a step, by depth.
    let mut around = vec![0];
    for step in catalogue.walk() {
        if catalogue.metadata(step.node).kind == NodeKind::Directory {
            around.truncate(step.depth);
            let above = *invariant_or!(around.last(), &0, "the root is around each step");
            let layer = layer_of(catalogue, step.node).max(above);
            around.push(layer);
            all.push(Directory { node: step.node, parent: step.directory, layer, rooms: Vec::new() });
        }
    }
    all
}

/// A place for the blocks of inodes of higher layers: near the end, where nothing of the first layer comes to lie.
fn place_of_higher(catalogue: &Catalogue, shape: &Shape, geometry: &Geometry) -> Cluster {
    let nodes = catalogue.walk().filter(|step| step.first && layer_of(catalogue, step.node) > 0);
    let clusters: u64 = nodes.map(|step| inode_clusters(catalogue, shape, step.node)).sum();
    Cluster((geometry.blocks >> geometry.cluster_log2).saturating_sub(clusters + 1))
}

impl Filler<'_> {
    /// Creates every inode, and the directories of the first layer; [`Filler::directories_over_the_first`] makes the
    /// others.
    ///
    /// # Errors
    /// As [`Filler::names`].
    pub(super) fn names_by_layer(&mut self) -> Result<(), BuildError> {
        let root = self.catalogue.root();
        self.adopt(root, InodeNumber::ROOT)
            .map_err(|error| BuildError::at(b"/", error, self.volume.format()))?;
        let mut directories = directories(self.catalogue);
        for layer in 0..self.catalogue.layers() {
            if layer == 1 {
                let format = self.volume.format();
                let shape = Shape::of_volume(format);
                let place = place_of_higher(self.catalogue, &shape, &format.geometry);
                self.volume.loader()?.go_on_at(place);
            }
            for directory in &directories {
                self.inodes_of(directory, layer)?;
            }
        }
        for directory in &mut directories {
            let own = self.own_names(directory)?;
            directory.measure(self, &own);
        }
        self.directories = directories;
        self.volume.loader()?.go_on_at(Cluster(0));
        self.directories_of(0)
    }

    /// The directories of all layers but the first, behind each other.
    ///
    /// # Errors
    /// As [`Filler::names`].
    pub(super) fn directories_over_the_first(&mut self) -> Result<(), BuildError> {
        (1..self.catalogue.layers()).try_for_each(|layer| self.directories_of(layer))
    }

    /// The directories that lie with a layer, and the places of those that have outgrown it.
    pub(super) fn directories_of(&mut self, layer: usize) -> Result<(), BuildError> {
        let directories = std::mem::take(&mut self.directories);
        for directory in &directories {
            let Some(at) = directory.rooms.iter().position(|(from, _)| *from == layer) else { continue };
            let start = self.volume.loader()?.room_ahead(1)?.map_or(0, |run| run.start.0);
            let is_last = at + 1 == directory.rooms.len();
            if is_last {
                self.write_directory(directory)?;
            }
            let room = directory.rooms.get(at).map_or(0, |(_, room)| *room);
            // One block is the one that it has, or has got just now.
            let is_exact = room == 1 && (is_last || self.adopted.contains(&directory.node));
            if !is_exact {
                self.volume.loader()?.go_on_at(Cluster(start + room));
            }
        }
        self.directories = directories;
        Ok(())
    }

    /// The names that a directory of the fresh volume has already.
    fn own_names(&self, directory: &Directory) -> Result<Vec<platfs::DirEntry>, BuildError> {
        let number = self.inode(directory.node).filter(|_| self.adopted.contains(&directory.node));
        let names = number.map_or(Ok(Vec::new()), |number| self.known_names(number));
        names.map_err(|error| self.failed(directory.node, error))
    }

    fn failed(&self, node: NodeId, error: platfs::Error) -> BuildError {
        BuildError::from(error).or_at(|| path_of(self.catalogue, node), self.volume.format())
    }

    /// Makes the inodes of a directory that belong to a layer.
    fn inodes_of(&mut self, directory: &Directory, layer: usize) -> Result<(), BuildError> {
        let Some(number) = self.inode(directory.node).filter(|_| directory.layer <= layer) else {
            return Ok(());
        };
        let own = self.own_names(directory)?;
        for (name, node) in self.catalogue.children(directory.node) {
            if directory.layer_of_name(self.catalogue, node) == layer {
                let made = self.name(number, name, node, &own);
                made.map_err(|error| self.failed(node, error))?;
                self.meter.file()?;
            }
        }
        Ok(())
    }

    fn write_directory(&mut self, directory: &Directory) -> Result<(), BuildError> {
        let inode = |node| self.inode(node).unwrap_or(InodeNumber::ROOT);
        let own = self.own_names(directory)?;
        let mut names: Vec<DirName<'_>> = own.iter().map(known_name).collect();
        for (name, node) in self.catalogue.children(directory.node) {
            if own.iter().all(|entry| entry.name != name) {
                let kind = self.catalogue.metadata(node).kind;
                names.push(DirName { name, inode: inode(node), file_type: file_type(kind) });
            }
        }
        if names.len() == own.len() && !own.is_empty() {
            return Ok(());
        }
        let written =
            self.volume.loader()?.write_names(inode(directory.node), inode(directory.parent), &names);
        written.map_err(|error| self.failed(directory.node, error))
    }
}
