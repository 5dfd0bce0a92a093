//! Changes the copy of an older image: names, contents, attributes and flags that differ, in this order.
//!
//! Removed files are freed before anything is placed, so that their room can be used. Attributes are compared at the end, when
//! nothing touches an inode's times any more; an inode that has them already is not written.

use ondisk::invariant;
use platfs::ondisk::inode::{FileType, InodeFlags, Timestamp};
use platfs::ondisk::units::InodeNumber;
use platfs::{Attributes, Error, NewInode, Pin, Times, Volume};

use super::contents::Contents;
use super::scan::{RemovedName, Scan};
use crate::builder::error::BuildError;
use crate::builder::fill::{copy_file, path_of};
use crate::builder::wanted::VolumeMetadata;
use crate::source::catalogue::Origin;
use crate::source::{DataReader, NodeId};
use crate::watch::{Meter, Stage};

/// Bytes written at once.
const PIECE: usize = 1 << 20;
/// Flags that a source can have.
const FLAGS: InodeFlags = InodeFlags::SYNC
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::TOPDIR);
/// Flags that forbid changes.
const FORBIDDING: InodeFlags = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND);

struct Applier<'a, 'c> {
    scan: &'a Scan<'c>,
    volume: &'a Volume,
    wanted: VolumeMetadata<'c>,
    meter: &'a mut Meter,
    /// By node: its inode.
    inodes: Vec<Option<InodeNumber>>,
    /// By node: flags that it shall have.
    flags: Vec<(NodeId, InodeFlags)>,
    clamped: u64,
}

/// Changes the volume; returns the number of files with a time that it can't hold.
///
/// # Errors
/// No room, an attribute that the volume can't hold; the source can't be read; the caller ends the work.
pub(super) fn apply<'c>(
    scan: &Scan<'c>,
    volume: &Volume,
    wanted: VolumeMetadata<'c>,
    meter: &mut Meter,
) -> Result<u64, BuildError> {
    let inodes = scan.kept.clone();
    let mut applier = Applier { scan, volume, wanted, meter, inodes, flags: Vec::new(), clamped: 0 };
    applier.unlock()?;
    let pins = applier.pins()?;
    scan.gone.iter().try_for_each(|gone| applier.remove(gone))?;
    applier.empty()?;
    // What was freed is free now.
    volume.sync()?;
    applier.names()?;
    drop(pins);
    applier.contents()?;
    applier.attributes()?;
    applier.flags()?;
    Ok(applier.clamped)
}

impl<'a> Applier<'a, '_> {
    fn inode(&self, node: NodeId) -> Option<InodeNumber> {
        self.inodes.get(node.index()).copied().flatten()
    }

    fn at(&self, node: NodeId) -> impl FnOnce(Error) -> BuildError + '_ {
        move |error| {
            let path = || path_of(self.scan.catalogue, node);
            BuildError::from(error).or_at(path, self.volume.format())
        }
    }

    /// Takes flags away that forbid changes; those that the source has come back at the end.
    fn unlock(&self) -> Result<(), BuildError> {
        let gone = self.scan.gone.iter().map(|gone| gone.inode);
        for number in self.scan.kept.iter().flatten().copied().chain(gone) {
            let own = self.volume.metadata(number)?.flags;
            if own.intersects(FORBIDDING) {
                self.volume.inode(number).set_flags(own.difference(FORBIDDING))?;
            }
        }
        Ok(())
    }

    /// Holds what gets a new name, so that it outlives its old one.
    fn pins(&self) -> Result<Vec<Pin<'a>>, BuildError> {
        let kept = self.scan.new.iter().filter_map(|new| self.scan.kept(new.node));
        kept.map(|number| Ok(self.volume.pin(number)?)).collect()
    }

    /// Removes a name, and of a directory all that is in it.
    fn remove(&self, gone: &RemovedName) -> Result<(), BuildError> {
        if !gone.is_directory {
            return Ok(self.volume.unlink(gone.directory, &gone.name)?);
        }
        // A directory is met twice: before and after what is in it.
        let mut waiting = vec![(gone.directory, gone.name.clone(), gone.inode, false)];
        while let Some((parent, name, number, is_empty)) = waiting.pop() {
            if is_empty {
                self.volume.rmdir(parent, &name)?;
                continue;
            }
            waiting.push((parent, name, number, true));
            let entries: Vec<_> = self.volume.read_dir(number)?.collect::<Result<_, _>>()?;
            for entry in entries {
                if self.volume.metadata(entry.inode)?.file_type == FileType::Directory {
                    waiting.push((number, entry.name, entry.inode, false));
                } else {
                    self.volume.unlink(number, &entry.name)?;
                }
            }
        }
        Ok(())
    }

    /// Frees the blocks of files that get new ones.
    fn empty(&self) -> Result<(), BuildError> {
        for (node, contents) in &self.scan.data {
            if let (Contents::Afresh, Some(number)) = (contents, self.scan.kept(*node)) {
                self.volume.truncate(number, 0).map_err(self.at(*node))?;
            }
        }
        Ok(())
    }

    /// Makes the names that are new, and the files that have no inode yet.
    fn names(&mut self) -> Result<(), BuildError> {
        self.meter.begin(Stage::Names, u64::try_from(self.scan.new.len()).ok(), None)?;
        for new in &self.scan.new {
            let directory = self.inode(new.directory).unwrap_or(InodeNumber::ROOT);
            match self.inode(new.node) {
                Some(number) => {
                    self.volume.link(number, directory, new.name).map_err(self.at(new.node))?;
                }
                None => {
                    let metadata = self.scan.catalogue.metadata(new.node);
                    let xattrs = self.wanted.xattrs(new.node);
                    let kind = self.wanted.kind(new.node, &metadata);
                    let attributes = self.wanted.attributes(&metadata);
                    let inode = NewInode { kind, attributes, xattrs: &xattrs };
                    let number =
                        self.volume.create(directory, new.name, &inode).map_err(self.at(new.node))?;
                    let slot = self.inodes.get_mut(new.node.index());
                    *invariant!(slot, "each node has a place for its inode") = Some(number);
                }
            }
            self.meter.file()?;
        }
        Ok(())
    }

    /// Writes the contents that differ.
    fn contents(&mut self) -> Result<(), BuildError> {
        let catalogue = self.scan.catalogue;
        let files = u64::try_from(self.scan.data.len()).ok();
        self.meter.begin(Stage::Data, files, None)?;
        let mut source = catalogue.reader();
        for (node, contents) in &self.scan.data {
            let Some(number) = self.inode(*node) else { continue };
            let written = match contents {
                Contents::Same => Ok(()),
                Contents::InPlace(_) => self.write_in_place(&mut source, *node, number, contents),
                Contents::Afresh => {
                    let to = (self.volume, number);
                    copy_file(to, (catalogue, *node), &mut source, self.meter)
                }
            };
            written.map_err(|error| error.or_at(|| path_of(catalogue, *node), self.volume.format()))?;
            let first = catalogue.extents(*node).next().map(|extent| extent.origin);
            if *contents == Contents::Afresh && matches!(first, Some(Origin::Host(_))) {
                self.flags.push((*node, source.flags()));
            }
            self.meter.file()?;
        }
        Ok(())
    }

    fn write_in_place(
        &mut self,
        source: &mut DataReader<'_>,
        node: NodeId,
        number: InodeNumber,
        contents: &Contents,
    ) -> Result<(), BuildError> {
        let Contents::InPlace(ranges) = contents else { return Ok(()) };
        let size = self.scan.catalogue.metadata(node).size;
        let mut writer = self.volume.writer(number, size)?;
        let mut buffer = Vec::new();
        for range in ranges {
            let mut at = range.start;
            while at < range.end {
                let len = usize::try_from(range.end - at).unwrap_or(PIECE).min(PIECE);
                buffer.resize(len, 0);
                if source.read_file(node, at, &mut buffer)? < len {
                    return Err(BuildError::Shrunk);
                }
                writer.write_all_at(at, &buffer)?;
                at += len as u64;
                self.meter.bytes(len)?;
            }
        }
        drop(writer);
        if self.volume.metadata(number)?.size != size {
            self.volume.truncate(number, size)?;
        }
        Ok(())
    }

    /// Sets owners, permissions, times and extended attributes where they differ.
    fn attributes(&mut self) -> Result<(), BuildError> {
        let catalogue = self.scan.catalogue;
        let steps = catalogue.walk().filter(|step| step.first).map(|step| step.node);
        for node in std::iter::once(catalogue.root()).chain(steps) {
            let Some(number) = self.inode(node) else { continue };
            let metadata = catalogue.metadata(node);
            let wanted = self.wanted.attributes(&metadata);
            let xattrs = self.wanted.xattrs(node);
            if sorted(self.volume.inode(number).xattrs().map_err(self.at(node))?) != sorted(xattrs.clone()) {
                self.volume.inode(number).set_xattrs(&xattrs).map_err(self.at(node))?;
            }
            let has = self.volume.metadata(number)?;
            let own =
                Attributes { permissions: has.permissions, uid: has.uid, gid: has.gid, times: has.times };
            let times = Times { create: has.times.create.and(wanted.times.create), ..wanted.times };
            self.clamped += u64::from(!is_held(&wanted.times, has.times.create.is_none()));
            if own != (Attributes { times, ..wanted }) {
                self.volume.inode(number).set_attributes(&wanted).map_err(self.at(node))?;
            }
        }
        Ok(())
    }

    /// Sets the flags that differ.
    fn flags(&mut self) -> Result<(), BuildError> {
        let catalogue = self.scan.catalogue;
        let mut read: std::collections::HashMap<NodeId, InodeFlags> = self.scan.flags.clone();
        read.extend(self.flags.iter().copied());
        for at in catalogue.walk().filter(|step| step.first).map(|step| step.node) {
            let Some(number) = self.inode(at) else { continue };
            let wanted = catalogue.flags(at) | read.get(&at).copied().unwrap_or(InodeFlags::empty());
            let own = self.volume.metadata(number)?.flags;
            if own.intersection(FLAGS) != wanted.intersection(FLAGS) {
                let flags = own.difference(FLAGS) | wanted;
                self.volume.inode(number).set_flags(flags).map_err(self.at(at))?;
            }
        }
        Ok(())
    }
}

fn sorted(mut xattrs: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<(Vec<u8>, Vec<u8>)> {
    xattrs.sort();
    xattrs
}

/// Returns true if inodes with or without room for more can hold all times.
fn is_held(times: &Times, is_old: bool) -> bool {
    let latest = if is_old { Timestamp::LATEST_OLD } else { Timestamp::LATEST_EXTRA };
    let Times { access, modify, change, create } = *times;
    let create = create.filter(|_| !is_old).unwrap_or(modify);
    [access, modify, change, create].iter().all(|time| (Timestamp::EARLIEST..=latest).contains(&time.seconds))
}
