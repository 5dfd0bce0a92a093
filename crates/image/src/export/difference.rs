//! Difference between a volume and an older one, both ways: by path, and as a layer.
//!
//! A filter between the walk and a sink: what is the same is not passed on, and a name that is gone becomes a whiteout, as
//! layers of OCI images have them (`.wh.NAME`, empty). Compared are type, contents, permissions, owner, time of
//! modification, attributes, device, target, and which names belong to one file; not inode numbers, and no other times.

use super::{Contents, ExportError, Item, Loss, Sink, join};
use crate::source::whiteout::WHITEOUT;
use crate::watch::{Meter, Watch};
use ondisk::inode::FileType;
use ondisk::units::{InodeNumber, bounded};
use platfs::{Metadata, Reader, Seek, Volume};
use std::collections::{HashMap, HashSet};

/// Bytes compared at once.
const PIECE: u64 = 1 << 20;

/// Change of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathChange {
    /// Only the newer volume has it.
    Added,
    /// Only the older volume has it; of a directory, all that is in it is gone, too.
    Removed,
    /// Both have it, and these differ.
    Changed(Vec<Aspect>),
}

/// Aspect in which a file that both have can differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aspect {
    /// The type.
    Type,
    /// The bytes, or a symbolic link's target.
    Contents,
    /// Permissions.
    Mode,
    /// Owner or group.
    Owner,
    /// The time of modification.
    Time,
    /// Extended attributes.
    Attributes,
    /// The number of a device.
    Device,
    /// Other names of the file.
    Links,
}

impl Aspect {
    /// Its name in output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Aspect::Type => "type",
            Aspect::Contents => "contents",
            Aspect::Mode => "mode",
            Aspect::Owner => "owner",
            Aspect::Time => "time",
            Aspect::Attributes => "attributes",
            Aspect::Device => "device",
            Aspect::Links => "links",
        }
    }
}

/// Gets each change: the path without a slash in front, and what became of it.
pub type OnChange<'t> = dyn Fn(&[u8], &PathChange) + Sync + 't;

/// A sink that keeps nothing.
pub struct NullSink;

impl Sink for NullSink {
    fn enter(&mut self, _: &Item<'_>) -> Result<(), ExportError> {
        Ok(())
    }

    fn leave(&mut self) -> Result<(), ExportError> {
        Ok(())
    }

    fn file(&mut self, _: &Item<'_>, _: &mut Contents<'_>) -> Result<(), ExportError> {
        Ok(())
    }

    fn link(&mut self, _: &Item<'_>, _: &[u8]) -> Result<(), ExportError> {
        Ok(())
    }

    fn lose(&mut self, _: Loss, _: &[u8]) {}
}

/// Passes on what differs.
pub(super) struct Difference<'a> {
    sink: &'a mut dyn Sink,
    was: &'a Volume,
    now: &'a Volume,
    tell: &'a OnChange<'a>,
    /// Names have the meaning that they have in a layer.
    is_layer: bool,
    /// Of the directories that the walk is in: that of the older volume, and whether the sink was given it.
    open: Vec<(Option<InodeNumber>, bool)>,
    /// Inodes of the newer volume by those of the older one.
    became: HashMap<InodeNumber, InodeNumber>,
    /// By first path of a file with several names: the inode that it had.
    firsts: HashMap<Vec<u8>, Option<InodeNumber>>,
    /// First paths that were passed on.
    passed: HashSet<Vec<u8>>,
}

impl<'a> Difference<'a> {
    pub(super) fn new(
        sink: &'a mut dyn Sink,
        was: &'a Volume,
        now: &'a Volume,
        tell: &'a OnChange<'a>,
        is_layer: bool,
    ) -> Self {
        let (became, firsts, passed) = (HashMap::new(), HashMap::new(), HashSet::new());
        Difference { sink, was, now, tell, is_layer, open: Vec::new(), became, firsts, passed }
    }

    /// Finds the older volume's inode at the path of an item.
    fn older(&self, item: &Item<'_>) -> Result<Option<InodeNumber>, ExportError> {
        let Some((above, _)) = self.open.last() else { return Ok(Some(InodeNumber::ROOT)) };
        let Some(above) = above else { return Ok(None) };
        match self.was.lookup(*above, item.name) {
            Ok(found) => Ok(Some(found)),
            Err(platfs::Error::NotFound) => Ok(None),
            Err(error) => Err(older(item.path)(error)),
        }
    }

    /// Returns the aspects in which an item and an inode of the older volume differ.
    fn differs(&self, item: &Item<'_>, number: InodeNumber) -> Result<Vec<Aspect>, ExportError> {
        let failed = older(item.path);
        let (was, now) = (self.was.metadata(number).map_err(&failed)?, item.metadata);
        if was.file_type != now.file_type {
            // Of another type, nothing else can be compared, and all of it is exported anyway.
            return Ok(vec![Aspect::Type]);
        }
        let xattrs = self.was.inode(number).xattrs().map_err(&failed)?;
        let mut found = Vec::new();
        let mut note = |differs: bool, aspect| found.extend(differs.then_some(aspect));
        // Neither size of directories nor change times count: they follow from other changes, or from copying.
        note(!self.has_same_contents(item, number, &was)?, Aspect::Contents);
        note(was.permissions != now.permissions, Aspect::Mode);
        note((was.uid, was.gid) != (now.uid, now.gid), Aspect::Owner);
        note(was.times.modify != now.times.modify, Aspect::Time);
        note(!is_same_set(xattrs, item), Aspect::Attributes);
        note(was.device != now.device, Aspect::Device);
        Ok(found)
    }

    fn has_same_contents(
        &self,
        item: &Item<'_>,
        number: InodeNumber,
        was: &Metadata,
    ) -> Result<bool, ExportError> {
        let failed = older(item.path);
        match was.file_type {
            FileType::Symlink => Ok(self.was.read_link(number).map_err(failed)? == item.target),
            FileType::Regular if was.size != item.metadata.size => Ok(false),
            FileType::Regular => {
                let newer = |error| ExportError::Image { path: item.path.to_vec(), error };
                let now = (self.now, item.metadata.inode);
                let now = Side { volume: now.0, number: now.1, file: now.0.open_file(now.1).map_err(newer)? };
                let file = self.was.open_file(number).map_err(&failed)?;
                let was = Side { volume: self.was, number, file };
                same_bytes(&was, &now, item.metadata.size).map_err(failed)
            }
            _ => Ok(true),
        }
    }

    /// Tells of the names that an older directory has and the newer one has not, and makes whiteouts of them.
    fn gone(&mut self, item: &Item<'_>, number: InodeNumber) -> Result<(), ExportError> {
        let entries: Result<Vec<_>, _> = self.was.read_dir(number).and_then(Iterator::collect);
        let mut entries = entries.map_err(older(item.path))?;
        // An index lists by hash, whose seed differs from volume to volume; output must not.
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        for entry in entries {
            // lost+found is part of a format, not of a tree: a whiteout of it would remove nothing that users see.
            let is_own = item.path.is_empty() && entry.name == b"lost+found";
            match self.now.lookup(item.metadata.inode, &entry.name) {
                Err(platfs::Error::NotFound) if !is_own => {}
                Err(platfs::Error::NotFound) | Ok(_) => continue,
                Err(error) => return Err(ExportError::Image { path: item.path.to_vec(), error }),
            }
            let path = join(item.path, &entry.name);
            super::check_name(&path, &entry.name, false)?;
            (self.tell)(&path, &PathChange::Removed);
            self.whiteout(item, &entry.name)?;
        }
        Ok(())
    }

    fn whiteout(&mut self, item: &Item<'_>, name: &[u8]) -> Result<(), ExportError> {
        let name = [WHITEOUT, name].concat();
        let path = join(item.path, &name);
        // A whiteout is an empty file with the directory's owner and times, so that equal volumes give equal layers.
        let metadata = Metadata {
            file_type: FileType::Regular,
            permissions: 0o644,
            size: 0,
            links: 1,
            device: None,
            ..item.metadata.clone()
        };
        let white = Item {
            path: &path,
            name: &name,
            metadata: &metadata,
            xattrs: Vec::new(),
            target: Vec::new(),
            runs: Vec::new(),
        };
        let mut meter = Meter::new(Watch::default());
        let inode = item.metadata.inode;
        let (meter, keep, room) = (&mut meter, None, &mut Vec::new());
        self.sink.file(&white, &mut Contents { volume: self.now, inode, path: &path, meter, keep, room })
    }

    /// Tells what became of an item; whether it is to be passed on.
    fn judge(
        &self,
        item: &Item<'_>,
        older: Option<InodeNumber>,
        also: &[Aspect],
    ) -> Result<bool, ExportError> {
        let change = match older {
            None => PathChange::Added,
            Some(number) => {
                let mut aspects = self.differs(item, number)?;
                aspects.extend(also);
                if aspects.is_empty() {
                    return Ok(false);
                }
                PathChange::Changed(aspects)
            }
        };
        // Readers of a layer would take the file for the removal of another.
        if self.is_layer && item.name.starts_with(WHITEOUT) {
            return Err(ExportError::Whiteout { path: item.path.to_vec() });
        }
        (self.tell)(item.path, &change);
        Ok(true)
    }

    fn is_directory(&self, number: InodeNumber, path: &[u8]) -> Result<bool, ExportError> {
        Ok(self.was.metadata(number).map_err(older(path))?.file_type == FileType::Directory)
    }
}

impl Sink for Difference<'_> {
    fn enter(&mut self, item: &Item<'_>) -> Result<(), ExportError> {
        let found = self.older(item)?;
        let passes = self.judge(item, found, &[])?;
        if passes {
            self.sink.enter(item)?;
        }
        let directory = match found {
            Some(number) if self.is_directory(number, item.path)? => Some(number),
            _ => None,
        };
        // The OCI specification asks for whiteouts before their siblings.
        if let Some(number) = directory {
            self.gone(item, number)?;
        }
        self.open.push((directory, passes));
        Ok(())
    }

    fn leave(&mut self) -> Result<(), ExportError> {
        match self.open.pop() {
            Some((_, true)) => self.sink.leave(),
            _ => Ok(()),
        }
    }

    fn file(&mut self, item: &Item<'_>, data: &mut Contents<'_>) -> Result<(), ExportError> {
        let found = self.older(item)?;
        // One file of the older volume can't become two.
        let is_taken = found.is_some_and(|number| {
            *self.became.entry(number).or_insert(item.metadata.inode) != item.metadata.inode
        });
        let also: &[Aspect] = if is_taken { &[Aspect::Links] } else { &[] };
        let passes = self.judge(item, found, also)?;
        if item.metadata.links > 1 {
            self.firsts.insert(item.path.to_vec(), found);
            if passes {
                self.passed.insert(item.path.to_vec());
            }
        }
        if passes { self.sink.file(item, data) } else { Ok(()) }
    }

    fn link(&mut self, item: &Item<'_>, first: &[u8]) -> Result<(), ExportError> {
        let found = self.older(item)?;
        let is_same = found.is_some() && self.firsts.get(first) == Some(&found);
        // The first name was not passed on, because nothing changed; neither is this one, which would lead nowhere.
        if is_same && !self.passed.contains(first) {
            return Ok(());
        }
        if !is_same {
            let change = found.map_or(PathChange::Added, |_| PathChange::Changed(vec![Aspect::Links]));
            (self.tell)(item.path, &change);
        }
        self.sink.link(item, first)
    }

    fn lose(&mut self, loss: Loss, path: &[u8]) {
        self.sink.lose(loss, path);
    }
}

/// A file of one of the two volumes.
struct Side<'v> {
    volume: &'v Volume,
    number: InodeNumber,
    file: Reader<'v>,
}

impl Side<'_> {
    /// The first byte from a place on that is in no hole.
    fn data(&self, from: u64, size: u64) -> Result<u64, platfs::Error> {
        Ok(self.volume.seek(self.number, from, Seek::Data)?.unwrap_or(size))
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<(), platfs::Error> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(at + done as u64, rest)? {
                0 => break,
                count => done += count,
            }
        }
        Ok(())
    }
}

/// Compares two files of one length; what is a hole in both is not read.
fn same_bytes(was: &Side<'_>, now: &Side<'_>, size: u64) -> Result<bool, platfs::Error> {
    let mut at = 0;
    let (mut one, mut two) = (Vec::new(), Vec::new());
    while at < size {
        at = was.data(at, size)?.min(now.data(at, size)?);
        let len = bounded::<usize>(PIECE.min(size.saturating_sub(at)));
        for (side, buffer) in [(was, &mut one), (now, &mut two)] {
            buffer.clear();
            buffer.resize(len, 0);
            side.read(at, buffer)?;
        }
        if one != two {
            return Ok(false);
        }
        at += len as u64;
    }
    Ok(true)
}

fn is_same_set(mut was: Vec<(Vec<u8>, Vec<u8>)>, item: &Item<'_>) -> bool {
    let mut now: Vec<(Vec<u8>, Vec<u8>)> =
        item.xattrs.iter().map(|xattr| (xattr.name.to_vec(), xattr.value.to_vec())).collect();
    was.sort();
    now.sort();
    was == now
}

/// An error of the older volume.
fn older(path: &[u8]) -> impl Fn(platfs::Error) -> ExportError + '_ {
    |error| ExportError::Older { path: path.to_vec(), error }
}
