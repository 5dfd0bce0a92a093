//! Copies a catalogue into an empty volume, in canonical order.
//!
//! Names first, then data: all directories then lie together at the front of the volume, each in one
//! piece, and the data of a directory's files follow each other without a directory block between.
//! `order` decides which file comes next where a free run ends.

use ondisk::invariant;
use ondisk::units::{bounded, saturated};
use platfs::ondisk::inode::{FileType, InodeFlags, Timestamp};
use platfs::ondisk::units::InodeNumber;
use platfs::{DirName, NewInode, Times, Volume};

use super::error::BuildError;
use super::job::Job;
use super::layered::Directory;
use super::size::{Shape, may_be_inline};
use super::wanted::{VolumeMetadata, file_type};
use crate::source::catalogue::{Extent, Metadata, Origin};
use crate::source::{Catalogue, DataReader, NodeId, NodeKind};
use crate::text::Quoted;
use crate::watch::Meter;

/// Bytes handed to the volume at once.
const PIECE: usize = 1 << 20;

/// Where the bytes of files come from.
pub(super) trait Contents {
    /// Bytes of `extent` from its byte `skip` on, [`PIECE`] at most; none past its end.
    fn piece(&mut self, extent: &Extent, skip: u64) -> Result<&[u8], BuildError>;

    /// Flags of the file of the host that was read last.
    fn flags(&self) -> InodeFlags {
        InodeFlags::empty()
    }
}

impl Contents for DataReader<'_> {
    fn piece(&mut self, extent: &Extent, skip: u64) -> Result<&[u8], BuildError> {
        Ok(self.window(extent, skip, PIECE)?)
    }

    fn flags(&self) -> InodeFlags {
        DataReader::flags(self)
    }
}

/// As many zeros as there would be bytes.
struct Zeros(Vec<u8>);

impl Contents for Zeros {
    fn piece(&mut self, extent: &Extent, skip: u64) -> Result<&[u8], BuildError> {
        let left = saturated::<usize>(extent.len.saturating_sub(skip));
        Ok(self.0.get(..left.min(self.0.len())).unwrap_or_default())
    }
}

/// A directory whose names are to be made.
struct Open {
    node: NodeId,
    path: Vec<u8>,
    parent: InodeNumber,
    /// Its inode was made here: it has neither blocks nor names yet.
    is_new: bool,
}

impl Open {
    /// The path for messages.
    fn shown(&self) -> &[u8] {
        if self.path.is_empty() { b"/" } else { &self.path }
    }
}

/// A name that a fresh volume has.
pub(super) fn known_name(entry: &platfs::DirEntry) -> DirName<'_> {
    // Volumes that do not store types have directories only.
    let file_type = entry.file_type.unwrap_or(FileType::Directory);
    DirName { name: &entry.name, inode: entry.inode, file_type }
}

/// Copies names and attributes; remembers which inode each node became.
pub(super) struct Filler<'a> {
    pub(super) catalogue: &'a Catalogue,
    pub(super) volume: &'a Volume,
    pub(super) meter: &'a mut Meter,
    wanted: VolumeMetadata<'a>,
    /// By node: its inode, once it has one.
    inodes: Vec<Option<InodeNumber>>,
    /// Files with data, in the order of the walk.
    pub(super) files: Vec<NodeId>,
    /// Flags that come last: they forbid what is still to be done.
    flags: Vec<(InodeNumber, InodeFlags)>,
    /// The latest time that the volume's inodes can hold, in seconds.
    latest: i64,
    /// Bytes of the chunks at whose multiples data begin, if they do.
    pub(super) align: Option<u64>,
    /// Bytes that this leaves free.
    pub(super) align_cost: u64,
    /// Directories that the volume had before.
    pub(super) adopted: Vec<NodeId>,
    /// All directories, where data begin at multiples of a chunk.
    pub(super) directories: Vec<Directory>,
    /// Files with a time outside of what the volume can hold.
    clamped: u64,
}

impl<'a> Filler<'a> {
    /// For an empty volume, opened for loading.
    pub(super) fn new(job: &Job<'a>, volume: &'a Volume, meter: &'a mut Meter) -> Self {
        let catalogue = job.catalogue;
        let wanted = VolumeMetadata { catalogue, settle_times: job.settle_times };
        let inodes = vec![None; catalogue.nodes()];
        let latest = match volume.format().geometry.inode_size {
            128 => Timestamp::LATEST_OLD,
            _ => Timestamp::LATEST_EXTRA,
        };
        let (files, flags) = (Vec::new(), Vec::new());
        let (adopted, directories) = (Vec::new(), Vec::new());
        Filler {
            catalogue,
            volume,
            meter,
            wanted,
            inodes,
            files,
            flags,
            latest,
            align: job.align,
            align_cost: 0,
            adopted,
            directories,
            clamped: 0,
        }
    }

    /// Creates every inode and name: of each directory first the inodes, then, with all names known, the blocks.
    ///
    /// # Errors
    /// No space or inodes, an attribute that the volume can't hold; named by its path.
    pub(super) fn names(&mut self) -> Result<(), BuildError> {
        if self.align.is_some() {
            return self.names_by_layer();
        }
        let root = self.catalogue.root();
        self.adopt(root, InodeNumber::ROOT)
            .map_err(|error| BuildError::at(b"/", error, self.volume.format()))?;
        let mut open = vec![Open { node: root, path: Vec::new(), parent: InodeNumber::ROOT, is_new: false }];
        while let Some(directory) = open.pop() {
            let below = open.len();
            let number = self.inode(directory.node).unwrap_or(InodeNumber::ROOT);
            let volume = self.volume;
            let failed = |error| BuildError::at(directory.shown(), error, volume.format());
            let own = if directory.is_new { Vec::new() } else { self.known_names(number).map_err(failed)? };
            let mut names: Vec<DirName<'_>> = own.iter().map(known_name).collect();
            for (name, node) in self.catalogue.children(directory.node) {
                let path = || [directory.path.as_slice(), b"/", name].concat();
                let made = self.name(number, name, node, &own);
                let inode = made.map_err(|error| BuildError::at(&path(), error, volume.format()))?;
                self.meter.file()?;
                let kind = self.catalogue.metadata(node).kind;
                let is_new = !own.iter().any(|entry| entry.name == name);
                if is_new {
                    names.push(DirName { name, inode, file_type: file_type(kind) });
                }
                if kind == NodeKind::Directory {
                    open.push(Open { node, path: path(), parent: number, is_new });
                }
            }
            // Those that the volume has already and that get nothing stay as they are.
            if names.len() > own.len() || own.is_empty() {
                self.volume.loader()?.write_names(number, directory.parent, &names).map_err(failed)?;
            }
            // The stack gives back the last one first.
            open[below..].reverse();
        }
        Ok(())
    }

    pub(super) fn inode(&self, node: NodeId) -> Option<InodeNumber> {
        self.inodes.get(node.index()).copied().flatten()
    }

    /// The names of a directory that a fresh volume has.
    pub(super) fn known_names(&self, directory: InodeNumber) -> Result<Vec<platfs::DirEntry>, platfs::Error> {
        self.volume.read_dir(directory)?.collect()
    }

    /// The inode for a name in a directory of which the volume has the names `own` already.
    pub(super) fn name(
        &mut self,
        parent: InodeNumber,
        name: &[u8],
        node: NodeId,
        own: &[platfs::DirEntry],
    ) -> Result<InodeNumber, platfs::Error> {
        let metadata = self.catalogue.metadata(node);
        // A fresh volume has a directory for lost files; the source may bring its own.
        match own.iter().find(|entry| entry.name == name) {
            Some(entry) if metadata.kind == NodeKind::Directory => {
                self.adopt(node, entry.inode)?;
                return Ok(entry.inode);
            }
            Some(_) => return Err(platfs::Error::Exists),
            None => {}
        }
        if let Some(known) = self.inode(node) {
            self.volume.loader()?.link(known)?;
            return Ok(known);
        }
        let xattrs = self.wanted.xattrs(node);
        let kind = self.wanted.kind(node, &metadata);
        let new = NewInode { kind, attributes: self.wanted.attributes(&metadata), xattrs: &xattrs };
        let number = self.volume.loader()?.create(parent, name, &new)?;
        self.note(node, number, &metadata)?;
        Ok(number)
    }

    /// Files with a time that became the earliest or latest the volume can hold.
    pub(super) fn clamped(&self) -> u64 {
        self.clamped
    }

    fn note(&mut self, node: NodeId, number: InodeNumber, metadata: &Metadata) -> Result<(), platfs::Error> {
        let Times { access, modify, change, create } = self.wanted.attributes(metadata).times;
        let holds = |time: &Timestamp| (Timestamp::EARLIEST..=self.latest).contains(&time.seconds);
        // Old inodes have no time of creation.
        let create = create.filter(|_| self.latest != Timestamp::LATEST_OLD).unwrap_or(modify);
        self.clamped += u64::from(![access, modify, change, create].iter().all(holds));
        let flags = self.catalogue.flags(node);
        if !flags.is_empty() {
            self.flags.push((number, flags));
        }
        *invariant!(self.inodes.get_mut(node.index()), "each node has a place for its inode") = Some(number);
        if metadata.kind == NodeKind::File && metadata.size > 0 {
            self.files.push(node);
        }
        Ok(())
    }

    /// Lets a directory of the source be one that the volume has already.
    pub(super) fn adopt(&mut self, node: NodeId, number: InodeNumber) -> Result<(), platfs::Error> {
        let metadata = self.catalogue.metadata(node);
        self.volume.inode(number).set_attributes(&self.wanted.attributes(&metadata))?;
        let xattrs = self.wanted.xattrs(node);
        if !xattrs.is_empty() {
            self.volume.inode(number).set_xattrs(&xattrs)?;
        }
        self.note(node, number, &metadata)?;
        self.adopted.push(node);
        Ok(())
    }

    /// Gives the files that may end up inside their inodes zeros for data: whether they do depends on
    /// their lengths and attributes only.
    ///
    /// # Errors
    /// As [`Filler::data`].
    pub(super) fn measure_inline(&self, shape: &Shape) -> Result<(), BuildError> {
        for node in &self.files {
            if let Some(number) = self.inode(*node)
                && may_be_inline(self.catalogue, shape, *node)
            {
                let size = self.catalogue.metadata(*node).size;
                let zeros = vec![0; bounded::<usize>(size)];
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
    pub(super) fn rehearse_data(&mut self, shape: &Shape, ample: bool) -> Result<(), BuildError> {
        if !ample {
            return self.lay(&mut Zeros(vec![0; PIECE]), shape);
        }
        self.directories_over_the_first()?;
        for node in &self.files {
            if let Some(number) = self.inode(*node) {
                let done = self.volume.extend(number, self.catalogue.metadata(*node).size);
                let failed =
                    |error| BuildError::from(error).or_at(|| self.path_of(*node), self.volume.format());
                done.map_err(failed)?;
                self.meter.file()?;
            }
        }
        Ok(())
    }

    /// Copies the data of one file.
    ///
    /// # Errors
    /// No space, a file larger than the volume's format allows, a source that can't be read; named
    /// by its path where the source is not to blame.
    pub(super) fn file(&mut self, contents: &mut dyn Contents, node: NodeId) -> Result<(), BuildError> {
        let Some(number) = self.inode(node) else { return Ok(()) };
        let copied = copy_file((self.volume, number), (self.catalogue, node), contents, self.meter);
        copied.map_err(|error| error.or_at(|| self.path_of(node), self.volume.format()))?;
        let flags = match self.catalogue.extents(node).next().map(|extent| extent.origin) {
            Some(Origin::Host(_)) => contents.flags(),
            _ => InodeFlags::empty(),
        };
        if !flags.is_empty() {
            self.flags.push((number, flags));
        }
        Ok(self.meter.file()?)
    }

    /// Sets flags such as *immutable*, now that everything else is done.
    ///
    /// # Errors
    /// As for any change of an inode.
    pub(super) fn flags(&self) -> Result<(), BuildError> {
        for (number, flags) in &self.flags {
            let own = self.volume.metadata(*number)?.flags;
            self.volume.inode(*number).set_flags(own | *flags)?;
        }
        Ok(())
    }

    fn path_of(&self, wanted: NodeId) -> String {
        path_of(self.catalogue, wanted)
    }
}

/// A path of a node, for messages only: found by walking again.
pub(super) fn path_of(catalogue: &Catalogue, wanted: NodeId) -> String {
    let mut parents: Vec<(usize, Vec<u8>)> = vec![(0, Vec::new())];
    for step in catalogue.walk() {
        parents.truncate(step.depth);
        let above = parents.last().map(|(_, path)| path.as_slice()).unwrap_or_default();
        let path = [above, b"/", step.name].concat();
        if step.node == wanted {
            return Quoted(&path).to_string();
        }
        if catalogue.metadata(step.node).kind == NodeKind::Directory {
            parents.push((step.depth, path));
        }
    }
    String::from("a file")
}

/// Copies the data of one file into an inode that has none.
pub(super) fn copy_file(
    (volume, number): (&Volume, InodeNumber),
    (catalogue, node): (&Catalogue, NodeId),
    contents: &mut dyn Contents,
    meter: &mut Meter,
) -> Result<(), BuildError> {
    let size = catalogue.metadata(node).size;
    let mut writer = volume.writer(number, size)?;
    let mut end = 0;
    for extent in catalogue.extents(node) {
        writer.begin_stretch(extent.file_offset + extent.len);
        copy_extent(contents, &mut writer, &extent, meter)?;
        end = extent.file_offset + extent.len;
    }
    drop(writer);
    if end < size {
        volume.extend(number, size)?;
    }
    Ok(())
}

fn copy_extent(
    contents: &mut dyn Contents,
    writer: &mut platfs::Writer<'_>,
    extent: &Extent,
    meter: &mut Meter,
) -> Result<(), BuildError> {
    let mut done = 0;
    while done < extent.len {
        let piece = contents.piece(extent, done)?;
        if piece.is_empty() {
            return Err(BuildError::Shrunk);
        }
        writer.write_all_at(extent.file_offset + done, piece)?;
        done += piece.len() as u64;
        meter.bytes(piece.len())?;
    }
    Ok(())
}
