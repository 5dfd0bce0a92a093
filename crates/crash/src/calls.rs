//! Calls that change a small tree, one thing each, with the model after each of them and what is promised.

use std::collections::{BTreeMap, BTreeSet};

use platfs::device::Recorder;
use platfs::ondisk::features::Incompat;
use platfs::ondisk::units::InodeNumber;
use platfs::{Allocate, Attributes, Error, Kind, NewInode, Replace, Volume, WriteOptions};

use crate::model::{Contents, Model, Node, PIECE, Piece, bytes_of};
use crate::states::OF_FILE;

/// Set in a mark: all calls up to its number are promised.
pub const PROMISED: u64 = 1 << 63;
/// The mark of a sync of one file up to a call, where bytes of others may wait in memory: names are promised,
/// and what this file holds.
fn of_file(id: u32, call: u64) -> u64 {
    PROMISED | OF_FILE | u64::from(id) << 32 | call
}

/// The only attribute of files.
pub const ATTRIBUTE: &[u8] = b"user.value";

/// A run: what was done, and the models by call.
pub struct Workload<'v> {
    pub volume: &'v Volume,
    recorder: &'v Recorder,
    inodes: BTreeMap<u32, InodeNumber>,
    pub directories: BTreeMap<Vec<u8>, InodeNumber>,
    pub model: Model,
    pub history: Vec<Model>,
    /// Files that somebody has open.
    pub held: BTreeSet<u32>,
    next: u32,
    version: u32,
    /// Bytes may wait in memory.
    delayed: bool,
    /// Pieces of the unit in which ranges move.
    pub unit: u64,
    /// Files are mapped by extents, and all can be done to their space.
    pub extents: bool,
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let at = path.iter().rposition(|byte| *byte == b'/').unwrap();
    (&path[..at], &path[at + 1..])
}

fn at(pieces: u64) -> usize {
    usize::try_from(pieces).unwrap()
}

fn new(kind: Kind<'_>) -> NewInode<'_> {
    NewInode { kind, attributes: Attributes::default(), xattrs: &[] }
}

impl<'v> Workload<'v> {
    pub fn new(volume: &'v Volume, recorder: &'v Recorder, delayed: bool) -> Self {
        let geometry = &volume.format().geometry;
        let unit = u64::from(geometry.blocks_per_cluster()) << geometry.block_size.log2();
        Workload {
            volume,
            recorder,
            inodes: BTreeMap::new(),
            directories: BTreeMap::from([(Vec::new(), InodeNumber::ROOT)]),
            model: Model::default(),
            history: vec![Model::default()],
            held: BTreeSet::new(),
            next: 1,
            version: 0,
            delayed,
            unit: unit / PIECE as u64,
            extents: volume.format().features.incompat.contains(Incompat::EXTENTS),
        }
    }

    /// Goes on where another run left a volume.
    pub fn resume(&mut self, model: &Model) {
        for (path, node) in &model.names {
            let number = self.volume.resolve(path).unwrap();
            match node {
                Node::Directory => drop(self.directories.insert(path.clone(), number)),
                Node::File(id) => drop(self.inodes.insert(*id, number)),
                Node::Link(_) => {}
            }
        }
        self.next = model.files.keys().max().map_or(1, |id| id + 1);
        self.version =
            model.files.values().flat_map(|file| &file.pieces).map(|piece| piece.version).max().unwrap_or(0);
        self.model = model.clone();
        self.history = vec![model.clone()];
    }

    /// Forgets how it came to this: what was recorded so far is the beginning.
    pub fn begin_here(&mut self) {
        self.sync();
        self.history = vec![self.model.clone()];
    }

    /// One call that changes one thing, between two marks.
    fn call(
        &mut self,
        verb: impl FnOnce(&Volume) -> Result<(), Error>,
        change: impl FnOnce(&mut Model),
    ) -> bool {
        self.recorder.mark(self.history.len() as u64);
        let mut next = self.model.clone();
        change(&mut next);
        // The state in which it is done counts from here: a crash may come inside the call.
        self.history.push(next.clone());
        match verb(self.volume) {
            Ok(()) => {
                self.model = next;
                true
            }
            Err(Error::NoSpace | Error::NoInodes) => {
                *self.history.last_mut().unwrap() = self.model.clone();
                false
            }
            Err(error) => panic!("call {}: {error}", self.history.len() - 1),
        }
    }

    fn promised(&self) {
        self.recorder.mark(PROMISED | (self.history.len() as u64 - 1));
    }

    pub fn sync(&mut self) {
        self.volume.sync().unwrap();
        self.promised();
    }

    /// The journal keeps the order of all changes: a sync of one file promises all, but for bytes that wait.
    pub fn fsync(&mut self, id: u32, data_only: bool) {
        self.volume.sync_inode(self.inodes[&id], data_only).unwrap();
        if self.delayed {
            self.recorder.mark(of_file(id, self.history.len() as u64 - 1));
        } else {
            self.promised();
        }
    }

    fn place<'p>(&self, path: &'p [u8]) -> (InodeNumber, &'p [u8]) {
        let (directory, name) = split(path);
        (self.directories[directory], name)
    }

    pub fn create(&mut self, path: &[u8]) {
        let ((directory, name), id) = (self.place(path), self.next);
        let mut number = None;
        let done = self.call(
            |volume| {
                number = Some(volume.create(directory, name, &new(Kind::File))?);
                Ok(())
            },
            |model| {
                model.names.insert(path.to_vec(), Node::File(id));
                model.files.insert(id, Contents::default());
            },
        );
        if done {
            self.next += 1;
            self.inodes.insert(id, number.unwrap());
        }
    }

    pub fn make_directory(&mut self, path: &[u8]) {
        let (directory, name) = self.place(path);
        let mut number = None;
        let done = self.call(
            |volume| {
                number = Some(volume.create(directory, name, &new(Kind::Directory))?);
                Ok(())
            },
            |model| drop(model.names.insert(path.to_vec(), Node::Directory)),
        );
        if done {
            self.directories.insert(path.to_vec(), number.unwrap());
        }
    }

    pub fn remove_directory(&mut self, path: &[u8]) {
        let (directory, name) = self.place(path);
        self.call(|volume| volume.rmdir(directory, name), |model| drop(model.names.remove(path)));
        self.directories.remove(path);
    }

    /// A target that takes a block of metadata, which begins like one of the journal.
    pub fn symlink(&mut self, path: &[u8]) {
        let (directory, name) = self.place(path);
        let target = [&[0xC0, 0x3B, 0x39, 0x98][..], &[b't'; 90]].concat();
        self.call(
            |volume| volume.create(directory, name, &new(Kind::Symlink(&target))).map(drop),
            |model| drop(model.names.insert(path.to_vec(), Node::Link(target.clone()))),
        );
    }

    pub fn link(&mut self, id: u32, path: &[u8]) {
        let ((directory, name), number) = (self.place(path), self.inodes[&id]);
        self.call(
            |volume| volume.link(number, directory, name),
            |model| drop(model.names.insert(path.to_vec(), Node::File(id))),
        );
    }

    pub fn unlink(&mut self, path: &[u8]) {
        let (directory, name) = self.place(path);
        self.call(|volume| volume.unlink(directory, name), |model| drop(model.names.remove(path)));
    }

    pub fn rename(&mut self, from: &[u8], to: &[u8]) {
        let ((directory, name), (target, new)) = (self.place(from), self.place(to));
        let below = [from, b"/"].concat();
        let moved = |path: &[u8]| [to, &path[from.len()..]].concat();
        self.call(
            |volume| volume.rename(directory, name, target, new, Replace::Yes),
            |model| {
                let old = std::mem::take(&mut model.names);
                let mut gone = BTreeMap::new();
                for (path, node) in old {
                    if path == from || path.starts_with(&below) {
                        gone.insert(moved(&path), node);
                    } else {
                        model.names.insert(path, node);
                    }
                }
                model.names.extend(gone);
            },
        );
        for (path, number) in std::mem::take(&mut self.directories) {
            let inside = path == from || path.starts_with(&below);
            self.directories.insert(if inside { moved(&path) } else { path }, number);
        }
    }

    pub fn write(&mut self, id: u32, from: u64, count: u64) {
        self.version += 1;
        let (number, version) = (self.inodes[&id], self.version);
        let range = at(from)..at(from + count);
        let pieces: Vec<Piece> =
            range.clone().map(|index| Piece { version, index: u32::try_from(index).unwrap() }).collect();
        let bytes: Vec<u8> = pieces.iter().flat_map(|piece| bytes_of(id, *piece)).collect();
        self.call(
            |volume| volume.write_at(number, from * PIECE as u64, &bytes, WriteOptions::default()),
            |model| {
                let to = &mut model.files.get_mut(&id).unwrap().pieces;
                to.resize(to.len().max(range.end), Piece::default());
                to[range].copy_from_slice(&pieces);
            },
        );
    }

    pub fn truncate(&mut self, id: u32, size: u64) {
        let number = self.inodes[&id];
        self.call(
            |volume| volume.truncate(number, size * PIECE as u64),
            |model| model.files.get_mut(&id).unwrap().pieces.resize(at(size), Piece::default()),
        );
    }

    /// Changes space; ranges that move must be of whole units, inside the file.
    pub fn allocate(&mut self, id: u32, mode: Allocate, from: u64, count: u64) {
        let number = self.inodes[&id];
        let (low, high) = (at(from), at(from + count));
        self.call(
            |volume| volume.allocate(number, mode, from * PIECE as u64, count * PIECE as u64),
            |model| {
                let contents = model.files.get_mut(&id).unwrap();
                let pieces = &mut contents.pieces;
                if matches!(mode, Allocate::Extend | Allocate::ZeroRange) {
                    pieces.resize(pieces.len().max(high), Piece::default());
                }
                match mode {
                    Allocate::Extend | Allocate::KeepSize => {}
                    Allocate::CollapseRange => drop(pieces.drain(low..high)),
                    Allocate::InsertRange => {
                        drop(pieces.splice(low..low, vec![Piece::default(); high - low]));
                    }
                    _ => {
                        let end = high.min(pieces.len());
                        pieces[low.min(end)..end].fill(Piece::default());
                    }
                }
                contents.shifts += u32::from(matches!(mode, Allocate::CollapseRange | Allocate::InsertRange));
            },
        );
    }

    /// An attribute of a length: short ones stand in the inode, long ones in a block of their own.
    pub fn set_attribute(&mut self, id: u32, len: usize) {
        self.version += 1;
        let (number, value) = (self.inodes[&id], self.version.to_le_bytes().repeat(len.div_ceil(4)));
        self.call(
            |volume| volume.set_xattr(number, ATTRIBUTE, &value),
            |model| model.files.get_mut(&id).unwrap().attribute = Some(value.clone()),
        );
    }

    pub fn remove_attribute(&mut self, id: u32) {
        let number = self.inodes[&id];
        self.call(
            |volume| volume.remove_xattr(number, ATTRIBUTE),
            |model| model.files.get_mut(&id).unwrap().attribute = None,
        );
    }

    /// Opens a file, or closes it: one that loses its last name meanwhile is an orphan.
    pub fn hold(&mut self, id: u32) {
        let number = self.inodes[&id];
        if self.held.insert(id) {
            self.volume.retain(number).unwrap();
        } else {
            self.held.remove(&id);
            self.volume.release(number, 1);
        }
    }

    /// Takes all space but so many blocks, with a file that is left alone.
    pub fn fill_up(&mut self, left: u64) {
        self.create(b"/filler");
        let number = self.inodes[&(self.next - 1)];
        let log2 = self.volume.format().geometry.block_size.log2();
        let free = |volume: &Volume| {
            volume.sync().unwrap();
            volume.space().free().unwrap().0
        };
        let mut end = 0;
        while free(self.volume) > left {
            let more = (free(self.volume) - left).div_ceil(2) << log2;
            match self.volume.allocate(number, Allocate::KeepSize, end, more) {
                Ok(()) => end += more,
                Err(_) => break,
            }
        }
    }
}
