//! Plan of an update: the inode of the older image that each file keeps, new and removed names, changed contents.
//!
//! A file keeps the inode that one of its names had, if its kind is the same. A new name gets the inode of a file that
//! lost its name if their contents are the same: it was renamed.

use std::collections::{BTreeMap, HashMap, HashSet};

use ondisk::invariant;
use ondisk::units::saturated;
use platfs::ondisk::inode::{FileType, InodeFlags};
use platfs::ondisk::units::InodeNumber;
use platfs::{Metadata as Was, Volume};

use super::Update;
use super::contents::{Contents, PIECE, Pair};
use crate::builder::error::BuildError;
use crate::builder::wanted::file_type;
use crate::source::catalogue::{Extent, Origin};
use crate::source::{Catalogue, DataReader, NodeId, NodeKind};
use crate::watch::{Meter, Stage};

/// Files of one length that are compared with a new one.
const CANDIDATES: usize = 4;
/// The directory for what a check finds; the source need not have it.
const LOST_FOUND: &[u8] = b"lost+found";

/// A name that the source has not.
pub(super) struct RemovedName {
    pub(super) directory: InodeNumber,
    pub(super) name: Vec<u8>,
    pub(super) inode: InodeNumber,
    pub(super) is_directory: bool,
}

/// A name that the older image has not.
pub(super) struct AddedName<'c> {
    pub(super) directory: NodeId,
    pub(super) name: &'c [u8],
    pub(super) node: NodeId,
}

/// Plan that turns the older image into the new one.
pub(super) struct Scan<'c> {
    pub(super) catalogue: &'c Catalogue,
    /// By node: the inode that it keeps.
    pub(super) kept: Vec<Option<InodeNumber>>,
    pub(super) gone: Vec<RemovedName>,
    /// Parents before what is in them.
    pub(super) new: Vec<AddedName<'c>>,
    /// Files whose contents change, with what is done about it, in the order of the walk.
    pub(super) data: Vec<(NodeId, Contents)>,
    /// Flags of files of the host, as far as there are any.
    pub(super) flags: HashMap<NodeId, InodeFlags>,
    pub(super) update: Update,
}

/// A directory of the source and the one of the older image that it keeps.
struct DirectoryPair {
    node: NodeId,
    number: InodeNumber,
    names: BTreeMap<Vec<u8>, (InodeNumber, FileType)>,
}

struct Scanner<'a, 'c> {
    scan: Scan<'c>,
    was: &'a Volume,
    source: DataReader<'c>,
    buffer: Vec<u8>,
    /// Inodes that a node keeps.
    claimed: HashMap<InodeNumber, NodeId>,
    both: Vec<DirectoryPair>,
    meter: &'a mut Meter,
}

impl<'c> Scan<'c> {
    /// Compares a source with an older image.
    ///
    /// # Errors
    /// Either can't be read; the caller ends the work.
    pub(super) fn of(catalogue: &'c Catalogue, was: &Volume, meter: &mut Meter) -> Result<Self, BuildError> {
        let scan = Scan {
            catalogue,
            kept: vec![None; catalogue.nodes()],
            gone: Vec::new(),
            new: Vec::new(),
            data: Vec::new(),
            flags: HashMap::new(),
            update: Update::default(),
        };
        let (source, claimed) = (catalogue.reader_within(PIECE), HashMap::new());
        let buffer = vec![0; PIECE];
        let mut scanner = Scanner { scan, was, source, buffer, claimed, both: Vec::new(), meter };
        // The order counts: inodes are claimed by name first, since a file that stays where it is must not lose its inode to
        // a copy of it elsewhere. Only what no name has claimed is left to `renamed`.
        scanner.claim(catalogue.root(), InodeNumber::ROOT)?;
        scanner.directories()?;
        scanner.names();
        let summary = catalogue.summary();
        scanner.meter.begin(Stage::Data, Some(summary.files), Some(summary.data_bytes))?;
        scanner.renamed()?;
        scanner.contents()?;
        Ok(scanner.scan)
    }

    /// The inode that a node keeps.
    pub(super) fn kept(&self, node: NodeId) -> Option<InodeNumber> {
        self.kept.get(node.index()).copied().flatten()
    }

    /// Returns true if the image becomes the older one, unchanged.
    pub(super) fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.new.is_empty() && self.data.is_empty()
    }
}

impl<'c> Scanner<'_, 'c> {
    fn claim(&mut self, node: NodeId, number: InodeNumber) -> Result<(), BuildError> {
        let slot = self.scan.kept.get_mut(node.index());
        *invariant!(slot, "each node has a place for its inode") = Some(number);
        self.claimed.insert(number, node);
        Ok(())
    }

    /// Goes through the directories that both have, and lets files keep their inodes.
    fn directories(&mut self) -> Result<(), BuildError> {
        let catalogue = self.scan.catalogue;
        let mut waiting = vec![(catalogue.root(), InodeNumber::ROOT)];
        while let Some((node, number)) = waiting.pop() {
            let both = DirectoryPair { node, number, names: self.names_of(number)? };
            for (name, child) in catalogue.children(node) {
                self.meter.file()?;
                let Some((inode, kind)) = both.names.get(name).copied() else { continue };
                // Hard links: a file keeps the inode of the first name that matches, and an inode goes to one file.
                if self.scan.kept(child).is_some() || self.claimed.contains_key(&inode) {
                    continue;
                }
                if self.is_kind(child, inode, kind)? {
                    self.claim(child, inode)?;
                    if kind == FileType::Directory {
                        waiting.push((child, inode));
                    }
                }
            }
            self.both.push(both);
        }
        Ok(())
    }

    fn names_of(
        &self,
        directory: InodeNumber,
    ) -> Result<BTreeMap<Vec<u8>, (InodeNumber, FileType)>, BuildError> {
        let mut names = BTreeMap::new();
        for entry in self.was.read_dir(directory)? {
            let entry = entry?;
            let kind = match entry.file_type {
                Some(kind) => kind,
                None => self.was.metadata(entry.inode)?.file_type,
            };
            names.insert(entry.name, (entry.inode, kind));
        }
        Ok(names)
    }

    /// Returns true if an inode can become what the source has: contents and attributes can change, nothing else.
    fn is_kind(&self, node: NodeId, inode: InodeNumber, kind: FileType) -> Result<bool, BuildError> {
        let metadata = self.scan.catalogue.metadata(node);
        if file_type(metadata.kind) != kind {
            return Ok(false);
        }
        Ok(match metadata.kind {
            NodeKind::Symlink => self.was.read_link(inode)? == self.scan.catalogue.target(node),
            NodeKind::CharDevice | NodeKind::BlockDevice => {
                let device = (metadata.device.major, metadata.device.minor);
                self.was.metadata(inode)?.device == Some(device)
            }
            _ => true,
        })
    }

    /// Finds the names that come and go.
    fn names(&mut self) {
        let catalogue = self.scan.catalogue;
        let mut stay: HashSet<(NodeId, &[u8])> = HashSet::new();
        for DirectoryPair { node, number, names } in std::mem::take(&mut self.both) {
            let kept = |name: &[u8]| catalogue.lookup(node, name).and_then(|child| self.scan.kept(child));
            stay.extend(catalogue.children(node).filter_map(|(name, _)| {
                let had = names.get(name).map(|(inode, _)| *inode);
                (had.is_some() && had == kept(name)).then_some((node, name))
            }));
            for (name, (inode, kind)) in names {
                let is_directory = kind == FileType::Directory;
                let child = catalogue.lookup(node, &name);
                // The source need not have lost+found, and e2fsck makes it again where it is missing.
                let is_own =
                    child.is_none() && number == InodeNumber::ROOT && name == LOST_FOUND && is_directory;
                let stays = child.is_some_and(|child| self.scan.kept(child) == Some(inode));
                if !stays && !is_own {
                    self.scan.gone.push(RemovedName { directory: number, name, inode, is_directory });
                }
            }
        }
        // Directories were visited in the order of a stack; sorted, the same sources give the same image.
        self.scan.gone.sort_by(|a, b| (a.directory, &a.name).cmp(&(b.directory, &b.name)));
        self.scan.update.removed = self.scan.gone.len() as u64;
        let new = catalogue.walk().filter(|step| !stay.contains(&(step.directory, step.name)));
        let new = new.map(|step| AddedName { directory: step.directory, name: step.name, node: step.node });
        self.scan.new = new.collect();
    }

    /// Lets new files have the inodes of files with the same contents that have lost their names.
    fn renamed(&mut self) -> Result<(), BuildError> {
        let mut lost: HashMap<u64, Vec<InodeNumber>> = HashMap::new();
        for (number, was) in self.lost_files()? {
            lost.entry(was.size).or_default().push(number);
        }
        let catalogue = self.scan.catalogue;
        for at in 0..self.scan.new.len() {
            let Some(node) = self.scan.new.get(at).map(|new| new.node) else { break };
            let metadata = catalogue.metadata(node);
            if metadata.kind != NodeKind::File || metadata.size == 0 || self.scan.kept(node).is_some() {
                continue;
            }
            // Contents are read only of files of equal size, and of few of them, so that many files of one size don't make
            // this quadratic.
            let Some(candidates) = lost.get_mut(&metadata.size) else { continue };
            let (source, buffer) = (&mut self.source, &mut self.buffer[..]);
            let mut pair = Pair { catalogue, source, was: self.was, buffer };
            let mut found = None;
            for (place, number) in candidates.iter().enumerate().take(CANDIDATES) {
                if pair.is_same(node, *number)? {
                    found = Some(place);
                    break;
                }
            }
            if let Some(place) = found {
                // Taken out of the list: two new files with equal contents must not share an inode.
                let number = candidates.remove(place);
                self.claim(node, number)?;
                self.scan.update.renamed += 1;
            }
        }
        Ok(())
    }

    /// Regular files with contents below the names that go, each once, unless another name keeps them.
    fn lost_files(&self) -> Result<Vec<(InodeNumber, Was)>, BuildError> {
        let mut lost = BTreeMap::new();
        let mut waiting: Vec<(InodeNumber, bool)> =
            // Reversed, since the last is taken first: names are visited rising.
            self.scan.gone.iter().rev().map(|gone| (gone.inode, gone.is_directory)).collect();
        while let Some((number, is_directory)) = waiting.pop() {
            if is_directory {
                let names = self.names_of(number)?;
                waiting.extend(names.into_values().map(|(inode, kind)| (inode, kind == FileType::Directory)));
            } else if !self.claimed.contains_key(&number) {
                let was = self.was.metadata(number)?;
                if was.file_type == FileType::Regular && was.size > 0 {
                    lost.insert(number, was);
                }
            }
        }
        Ok(lost.into_iter().collect())
    }

    /// Compares the contents of files that keep their inodes; new ones are written whole.
    fn contents(&mut self) -> Result<(), BuildError> {
        let mut changed = Vec::new();
        for (place, node) in self.by_place() {
            let contents = self.contents_of(node)?;
            if contents != Contents::Same {
                changed.push((place, node, contents));
            }
            let bytes = self.scan.catalogue.data_bytes(node);
            self.meter.bytes(saturated::<usize>(bytes))?;
        }
        // Comparing went in the order of the archive. Placing goes in the order of the walk, by which a layout depends on
        // the tree alone.
        changed.sort_by_key(|(place, ..)| *place);
        self.scan.data.extend(changed.into_iter().map(|(_, node, contents)| (node, contents)));
        Ok(())
    }

    /// The regular files with their places in the walk, in the order in which an archive has their data: so it is read
    /// once, in large pieces. Nothing depends on the order of comparing.
    fn by_place(&self) -> Vec<(u32, NodeId)> {
        let catalogue = self.scan.catalogue;
        let nodes = catalogue.walk().filter(|step| step.first).map(|step| step.node);
        let files = nodes.filter(|node| catalogue.metadata(*node).kind == NodeKind::File);
        let mut files: Vec<(u32, NodeId)> = (0..).zip(files).collect();
        files.sort_by_cached_key(|(_, node)| match catalogue.extents(*node).next() {
            Some(Extent { origin: Origin::Section(section), origin_offset, .. }) => {
                Some((section, origin_offset))
            }
            _ => None,
        });
        files
    }

    /// Decides how the contents of a file are updated.
    fn contents_of(&mut self, node: NodeId) -> Result<Contents, BuildError> {
        let catalogue = self.scan.catalogue;
        let has_data = catalogue.metadata(node).size > 0;
        let contents = match self.scan.kept(node) {
            Some(number) => {
                let (source, buffer) = (&mut self.source, &mut self.buffer[..]);
                let mut pair = Pair { catalogue, source, was: self.was, buffer };
                pair.compare(node, number)?
            }
            None if has_data => Contents::Afresh,
            None => Contents::Same,
        };
        // A file that is written whole is read again then, with its flags.
        if contents != Contents::Afresh {
            self.note_flags(node);
        }
        let update = &mut self.scan.update;
        match &contents {
            Contents::Same => update.same += u64::from(has_data),
            Contents::InPlace(_) => update.in_place += 1,
            Contents::Afresh => update.placed += 1,
        }
        Ok(contents)
    }

    /// Remembers the flags of a file of the host that was just read.
    fn note_flags(&mut self, node: NodeId) {
        let first = self.scan.catalogue.extents(node).next();
        let was_read = self.scan.kept(node).is_some();
        if was_read && matches!(first.map(|extent| extent.origin), Some(Origin::Host(_))) {
            let flags = self.source.flags();
            if !flags.is_empty() {
                self.scan.flags.insert(node, flags);
            }
        }
    }
}
