//! Copies a catalogue into an empty volume, in canonical order.
//!
//! Names first, then data: all directories then lie together at the front of the volume, each in one
//! piece, and the data of a directory's files follow each other without a directory block between.

use platfs::ondisk::units::InodeNumber;
use platfs::{Attributes, Kind, NewInode, Times, Volume};

use super::BuildError;
use super::size::{Shape, may_be_inline};
use crate::archive::{Device, Quoted};
use crate::source::catalogue::{Extent, Metadata, Stamps};
use crate::source::{Catalogue, DataReader, NodeId, NodeKind};

/// Bytes handed to the volume at once.
const PIECE: usize = 1 << 20;

/// Told how far the copying is.
pub trait Progress {
    /// So many more bytes of data were copied.
    fn advance(&mut self, bytes: u64);
}

/// Where the bytes of files come from.
trait Contents {
    /// Bytes of `extent` from its byte `skip` on, [`PIECE`] at most; none past its end.
    fn piece(&mut self, extent: &Extent, skip: u64) -> Result<&[u8], BuildError>;
}

impl Contents for DataReader<'_> {
    fn piece(&mut self, extent: &Extent, skip: u64) -> Result<&[u8], BuildError> {
        Ok(self.window(extent, skip, PIECE)?)
    }
}

/// As many zeros as there would be bytes.
struct Zeros(Vec<u8>);

impl Contents for Zeros {
    fn piece(&mut self, extent: &Extent, skip: u64) -> Result<&[u8], BuildError> {
        let left = usize::try_from(extent.len.saturating_sub(skip)).unwrap_or(usize::MAX);
        Ok(self.0.get(..left.min(self.0.len())).unwrap_or_default())
    }
}

/// Nobody looks on.
struct Unseen;

impl Progress for Unseen {
    fn advance(&mut self, _bytes: u64) {}
}

/// Copies names and attributes; remembers which inode each node became.
pub struct Filler<'a> {
    catalogue: &'a Catalogue,
    volume: &'a Volume,
    /// Change, access and creation become the time of modification, so that equal contents give
    /// equal images.
    settle_times: bool,
    /// By node: its inode, once it has one.
    inodes: Vec<Option<InodeNumber>>,
    /// Files with data, in the order of the walk.
    files: Vec<NodeId>,
}

impl<'a> Filler<'a> {
    /// For an empty volume, opened for loading.
    pub fn new(catalogue: &'a Catalogue, volume: &'a Volume, settle_times: bool) -> Self {
        let inodes = vec![None; catalogue.nodes()];
        Filler { catalogue, volume, settle_times, inodes, files: Vec::new() }
    }

    /// Creates every inode and name.
    ///
    /// # Errors
    /// No space or inodes, an attribute that the volume can't hold; named by its path.
    pub fn names(&mut self) -> Result<(), BuildError> {
        let root = self.catalogue.root();
        self.adopt(root, InodeNumber::ROOT).map_err(|error| BuildError::at(b"/", error))?;
        let mut open = vec![(root, Vec::new())];
        while let Some((directory, path)) = open.pop() {
            let below = open.len();
            let is_directory = |node: NodeId| self.catalogue.metadata(node).kind == NodeKind::Directory;
            let children = || self.catalogue.children(directory);
            let path_of = |name: &[u8]| [path.as_slice(), b"/", name].concat();
            // A new directory takes a block: last, so that this one's blocks lie together.
            let files = children().filter(|(_, node)| !is_directory(*node));
            for (name, node) in files.chain(children().filter(|(_, node)| is_directory(*node))) {
                self.name(directory, name, node).map_err(|error| BuildError::at(&path_of(name), error))?;
                if is_directory(node) {
                    open.push((node, path_of(name)));
                }
            }
            // The stack gives back the last one first.
            open[below..].reverse();
        }
        Ok(())
    }

    fn inode(&self, node: NodeId) -> Option<InodeNumber> {
        self.inodes.get(node.index()).copied().flatten()
    }

    fn name(&mut self, directory: NodeId, name: &[u8], node: NodeId) -> Result<(), platfs::Error> {
        let parent = self.inode(directory).unwrap_or(InodeNumber::ROOT);
        if let Some(known) = self.inode(node) {
            return self.volume.link(known, parent, name);
        }
        let metadata = self.catalogue.metadata(node);
        let xattrs = self.xattrs(node);
        let kind = self.kind(node, &metadata);
        let new = NewInode { kind, attributes: self.attributes(&metadata), xattrs: &xattrs };
        match self.volume.create(parent, name, &new) {
            Ok(number) => self.note(node, number, &metadata),
            // A fresh volume has a directory for lost files; the source may bring its own.
            Err(platfs::Error::Exists) if metadata.kind == NodeKind::Directory => {
                let number = self.volume.lookup(parent, name)?;
                self.adopt(node, number)?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn note(&mut self, node: NodeId, number: InodeNumber, metadata: &Metadata) {
        if let Some(slot) = self.inodes.get_mut(node.index()) {
            *slot = Some(number);
        }
        if metadata.kind == NodeKind::File && metadata.size > 0 {
            self.files.push(node);
        }
    }

    /// Lets a directory of the source be one that the volume has already.
    fn adopt(&mut self, node: NodeId, number: InodeNumber) -> Result<(), platfs::Error> {
        let metadata = self.catalogue.metadata(node);
        self.volume.set_attributes(number, &self.attributes(&metadata))?;
        let xattrs = self.xattrs(node);
        if !xattrs.is_empty() {
            self.volume.set_xattrs(number, &xattrs)?;
        }
        self.note(node, number, &metadata);
        Ok(())
    }

    fn attributes(&self, metadata: &Metadata) -> Attributes {
        let stamps = if self.settle_times { Stamps::all(metadata.stamps.modified) } else { metadata.stamps };
        Attributes {
            permissions: metadata.mode,
            uid: metadata.ids.uid,
            gid: metadata.ids.gid,
            times: Times {
                access: stamps.accessed,
                modify: stamps.modified,
                change: stamps.changed,
                create: Some(stamps.created),
            },
        }
    }

    fn xattrs(&self, node: NodeId) -> Vec<(Vec<u8>, Vec<u8>)> {
        let all = self.catalogue.xattrs(node).iter();
        all.map(|xattr| (xattr.name.to_vec(), xattr.value.to_vec())).collect()
    }

    fn kind(&self, node: NodeId, metadata: &Metadata) -> Kind<'a> {
        let Device { major, minor } = metadata.device;
        match metadata.kind {
            NodeKind::Directory => Kind::Directory,
            NodeKind::File => Kind::File,
            NodeKind::Symlink => Kind::Symlink(self.catalogue.target(node)),
            NodeKind::CharDevice => Kind::CharDevice(major, minor),
            NodeKind::BlockDevice => Kind::BlockDevice(major, minor),
            NodeKind::Fifo => Kind::Fifo,
            NodeKind::Socket => Kind::Socket,
        }
    }

    /// Gives the files that may end up inside their inodes zeros for data: whether they do depends on
    /// their lengths and attributes only.
    ///
    /// # Errors
    /// As [`Filler::data`].
    pub fn measure_inline(&self, shape: &Shape) -> Result<(), BuildError> {
        for node in &self.files {
            if let Some(number) = self.inode(*node)
                && may_be_inline(self.catalogue, shape, *node)
            {
                let size = self.catalogue.metadata(*node).size;
                let zeros = vec![0; usize::try_from(size).unwrap_or(0)];
                self.volume.writer(number, size)?.write_all_at(0, &zeros)?;
            }
        }
        Ok(())
    }

    /// Does what [`Filler::data`] does, with zeros, or where room is `ample` with nothing: then only the sizes
    /// are tried.
    ///
    /// # Errors
    /// As [`Filler::data`], but for the source.
    pub fn rehearse_data(&self, ample: bool) -> Result<(), BuildError> {
        let mut zeros = Zeros(vec![0; PIECE]);
        for node in &self.files {
            if let Some(number) = self.inode(*node) {
                let done = if ample {
                    self.volume.extend(number, self.catalogue.metadata(*node).size).map_err(BuildError::from)
                } else {
                    self.copy(&mut zeros, *node, number, &mut Unseen)
                };
                done.map_err(|error| error.or_at(|| self.path_of(*node)))?;
            }
        }
        Ok(())
    }

    /// Copies the data of every file, in the order of the walk.
    ///
    /// # Errors
    /// No space, a file larger than the volume's format allows, a source that can't be read; named
    /// by its path where the source is not to blame.
    pub fn data(&self, progress: &mut dyn Progress) -> Result<(), BuildError> {
        let mut reader = self.catalogue.reader();
        for node in &self.files {
            if let Some(number) = self.inode(*node) {
                let copied = self.copy(&mut reader, *node, number, progress);
                copied.map_err(|error| error.or_at(|| self.path_of(*node)))?;
            }
        }
        Ok(())
    }

    fn copy(
        &self,
        contents: &mut dyn Contents,
        node: NodeId,
        number: InodeNumber,
        progress: &mut dyn Progress,
    ) -> Result<(), BuildError> {
        let size = self.catalogue.metadata(node).size;
        let mut writer = self.volume.writer(number, size)?;
        let mut end = 0;
        for extent in self.catalogue.extents(node) {
            writer.begin_stretch(extent.file_offset + extent.len);
            copy_extent(contents, &mut writer, &extent, progress)?;
            end = extent.file_offset + extent.len;
        }
        drop(writer);
        if end < size {
            self.volume.extend(number, size)?;
        }
        Ok(())
    }

    /// A path of a node, for messages only: found by walking again.
    fn path_of(&self, wanted: NodeId) -> String {
        let mut parents: Vec<(usize, Vec<u8>)> = vec![(0, Vec::new())];
        for step in self.catalogue.walk() {
            parents.truncate(step.depth);
            let above = parents.last().map(|(_, path)| path.as_slice()).unwrap_or_default();
            let path = [above, b"/", step.name].concat();
            if step.node == wanted {
                return Quoted(&path).to_string();
            }
            if self.catalogue.metadata(step.node).kind == NodeKind::Directory {
                parents.push((step.depth, path));
            }
        }
        String::from("a file")
    }
}

fn copy_extent(
    contents: &mut dyn Contents,
    writer: &mut platfs::Writer<'_>,
    extent: &Extent,
    progress: &mut dyn Progress,
) -> Result<(), BuildError> {
    let mut done = 0;
    while done < extent.len {
        let piece = contents.piece(extent, done)?;
        if piece.is_empty() {
            return Err(BuildError::Shrunk);
        }
        writer.write_all_at(extent.file_offset + done, piece)?;
        done += piece.len() as u64;
        progress.advance(piece.len() as u64);
    }
    Ok(())
}
