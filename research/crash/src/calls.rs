//! Calls that change a small tree, one thing each, with the model after each of them and what is promised.

use std::collections::{BTreeMap, BTreeSet};

use platfs::device::Recorder;
use platfs::ondisk::features::Incompat;
use platfs::ondisk::units::InodeNumber;
use platfs::{
    Allocate, Attributes, Error, Kind, MapForm, NewInode, Relocation, RelocationGoal, Replace, Volume,
    WriteOptions,
};

use crate::model::{ATTRIBUTE, Contents, LIST, Model, Node, PIECE, Piece, ROOT, VolumeState, bytes_of};
use crate::order::Promise;
use crate::run::Mark;
use crate::workload::Workload;

/// Makes calls on a volume, and keeps the models by call.
pub(crate) struct Caller<'v> {
    pub(crate) volume: &'v Volume,
    recorder: &'v Recorder,
    pub(crate) model: Model,
    pub(crate) history: Vec<Model>,
    /// Which inode each file and directory is.
    pub(crate) inodes: BTreeMap<u32, InodeNumber>,
    /// Open files.
    pub(crate) held: BTreeSet<u32>,
    next: u32,
    version: u32,
    /// Bytes may wait in memory.
    delayed: bool,
    /// Promise of each call.
    promise: Promise,
    pub(crate) is_phased: bool,
    /// Pieces of the unit in which ranges move.
    pub(crate) unit: u64,
    /// Files are mapped by extents, and all can be done to their space.
    pub(crate) extents: bool,
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let at = path.iter().rposition(|byte| *byte == b'/').unwrap();
    (&path[..at], &path[at + 1..])
}

fn at(pieces: u64) -> usize {
    usize::try_from(pieces).unwrap()
}

/// Each file has an owner of its own, and some a group.
fn new(kind: Kind<'_>, id: u32) -> NewInode<'_> {
    let attributes = Attributes { uid: id.wrapping_mul(77), gid: id % 3, ..Attributes::default() };
    NewInode { kind, attributes, xattrs: &[] }
}

impl<'v> Caller<'v> {
    pub(crate) fn new(volume: &'v Volume, recorder: &'v Recorder, workload: &Workload) -> Self {
        let geometry = &volume.format().geometry;
        let unit = u64::from(geometry.blocks_per_cluster()) << geometry.block_size.log2();
        let model = Model { whole: VolumeState::of(volume).unwrap(), ..Model::default() };
        Caller {
            volume,
            recorder,
            history: vec![model.clone()],
            model,
            inodes: BTreeMap::from([(ROOT, InodeNumber::ROOT)]),
            held: BTreeSet::new(),
            next: ROOT + 1,
            version: 0,
            delayed: workload.delay > 0,
            promise: workload.order.promise(),
            is_phased: workload.order.is_phased(),
            unit: unit / PIECE as u64,
            extents: volume.format().features.incompat.contains(Incompat::EXTENTS),
        }
    }

    /// Goes on with what another run left: the model of its tree, which inode everything is, and the last version of a
    /// piece. The volume as a whole is known already.
    pub(crate) fn resume(&mut self, model: Model, inodes: BTreeMap<u32, InodeNumber>, version: u32) {
        self.next = inodes.keys().max().map_or(ROOT, |last| *last) + 1;
        let whole = std::mem::take(&mut self.model.whole);
        (self.model, self.inodes, self.version) = (Model { whole, ..model }, inodes, version);
    }

    /// Does a part of what a crash left to be reclaimed.
    pub(crate) fn reclaim_some(&self) {
        self.volume.leftovers().reclaim_some().unwrap();
    }

    /// Does all of it.
    pub(crate) fn reclaim(&self) {
        self.volume.leftovers().reclaim().unwrap();
    }

    /// Forgets how it came to this: what was recorded so far is the beginning.
    pub(crate) fn begin_here(&mut self) {
        self.sync();
        self.history = vec![self.model.clone()];
    }

    /// One call that changes one thing, between two marks; nothing where there is no room.
    pub(crate) fn call(
        &mut self,
        verb: impl FnOnce(&Volume) -> Result<(), Error>,
        change: impl FnOnce(&mut Model),
    ) {
        self.call_unless(|error| matches!(error, Error::NoSpace | Error::NoInodes), verb, change);
    }

    /// A call that may be refused with some errors.
    pub(crate) fn call_unless(
        &mut self,
        is_refusal: impl Fn(&Error) -> bool,
        verb: impl FnOnce(&Volume) -> Result<(), Error>,
        change: impl FnOnce(&mut Model),
    ) {
        self.mark(Mark::Started(self.history.len() as u64));
        let mut next = self.model.clone();
        change(&mut next);
        // The state in which it is done counts from here: a crash may come inside the call.
        self.history.push(next.clone());
        match verb(self.volume) {
            Ok(()) => {
                self.model = next;
                match self.promise {
                    Promise::Nothing => {}
                    Promise::Names => self.names_are_stable(),
                    Promise::All => self.promised(),
                }
            }
            Err(error) if is_refusal(&error) => {
                *self.history.last_mut().unwrap() = self.model.clone();
            }
            Err(error) => panic!("call {}: {error}", self.history.len() - 1),
        }
    }

    fn mark(&self, mark: Mark) {
        self.recorder.mark(mark.word());
    }

    /// The last call that was made.
    fn last(&self) -> u64 {
        self.history.len() as u64 - 1
    }

    /// Names are promised, and of the bytes that may wait in memory those of one file.
    fn promised_of(&self, file: u32) {
        self.mark(Mark::PromisedOf { file, call: self.last() });
    }

    /// Everything but bytes that wait is stable: no file has the number of the root.
    pub(crate) fn names_are_stable(&self) {
        self.promised_of(ROOT);
    }

    fn promised(&self) {
        self.mark(Mark::Promised(self.last()));
    }

    pub(crate) fn sync(&mut self) {
        self.volume.sync().unwrap();
        self.promised();
    }

    /// A sync of one file promises all that was changed before, but for bytes of others that wait.
    pub(crate) fn fsync(&mut self, id: u32) {
        self.volume.sync_inode(self.inodes[&id]).unwrap();
        if self.delayed { self.promised_of(id) } else { self.promised() }
    }

    /// A sync of one file's bytes promises these alone, though others may be stable too.
    pub(crate) fn fdatasync(&mut self, id: u32) {
        self.volume.inode(self.inodes[&id]).sync_data().unwrap();
        self.mark(Mark::PromisedBytes { file: id, call: self.last() });
    }

    fn place<'p>(&self, path: &'p [u8]) -> (InodeNumber, &'p [u8]) {
        let (directory, name) = split(path);
        (self.inodes[&self.model.directory(directory).unwrap()], name)
    }

    fn make(&mut self, path: &[u8], kind: Kind<'_>, node: impl Fn(u32) -> Node) {
        let ((directory, name), id) = (self.place(path), self.next);
        let mut number = None;
        self.call(
            |volume| {
                number = Some(volume.create(directory, name, &new(kind, id))?);
                Ok(())
            },
            |model| {
                model.names.insert(path.to_vec(), node(id));
                if let Node::File(id) = node(id) {
                    model.files.insert(id, Contents::default());
                }
            },
        );
        if let Some(number) = number {
            self.next += 1;
            self.inodes.insert(id, number);
        }
    }

    pub(crate) fn create(&mut self, path: &[u8]) {
        self.make(path, Kind::File, Node::File);
    }

    pub(crate) fn make_directory(&mut self, path: &[u8]) {
        self.make(path, Kind::Directory, Node::Directory);
    }

    pub(crate) fn remove_directory(&mut self, path: &[u8]) {
        let (directory, name) = self.place(path);
        self.call(|volume| volume.rmdir(directory, name), |model| drop(model.names.remove(path)));
    }

    /// A target that takes a block of metadata, which begins like one of the journal.
    pub(crate) fn symlink(&mut self, path: &[u8]) {
        let target = [&[0xC0, 0x3B, 0x39, 0x98][..], &[b't'; 90]].concat();
        self.make(path, Kind::Symlink(&target), |_| Node::Link(target.clone()));
    }

    pub(crate) fn link(&mut self, id: u32, path: &[u8]) {
        let ((directory, name), number) = (self.place(path), self.inodes[&id]);
        self.call(
            |volume| volume.link(number, directory, name),
            |model| drop(model.names.insert(path.to_vec(), Node::File(id))),
        );
    }

    pub(crate) fn unlink(&mut self, path: &[u8]) {
        let (directory, name) = self.place(path);
        self.call(|volume| volume.unlink(directory, name), |model| drop(model.names.remove(path)));
    }

    /// Gives back what a directory does not need: nothing that a program sees changes.
    pub(crate) fn pack(&mut self, path: &[u8]) {
        let number = self.inodes[&self.model.directory(path).unwrap()];
        self.call(|volume| volume.inode(number).pack().map(drop), |_| {});
    }

    pub(crate) fn rename(&mut self, from: &[u8], to: &[u8]) {
        let ((directory, name), (target, new)) = (self.place(from), self.place(to));
        self.call(
            |volume| volume.rename(directory, name, target, new, Replace::Yes),
            |model| model.rename(from, to),
        );
    }

    /// Has two names lead to what the other led to. Soft updates do it only where they stand in one block.
    pub(crate) fn exchange(&mut self, one: &[u8], other: &[u8]) {
        let ((directory, name), (target, new)) = (self.place(one), self.place(other));
        let is_phased = self.is_phased;
        self.call_unless(
            |error| is_phased && matches!(error, Error::Unsupported(_)) || matches!(error, Error::NoSpace),
            |volume| volume.rename(directory, name, target, new, Replace::Exchange),
            |model| {
                let [of_one, of_other] = [one, other].map(|path| model.names[path].clone());
                model.names.insert(one.to_vec(), of_other);
                model.names.insert(other.to_vec(), of_one);
            },
        );
    }

    pub(crate) fn write(&mut self, id: u32, from: u64, count: u64) {
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

    pub(crate) fn truncate(&mut self, id: u32, size: u64) {
        let number = self.inodes[&id];
        self.call(
            |volume| volume.truncate(number, size * PIECE as u64),
            |model| model.files.get_mut(&id).unwrap().pieces.resize(at(size), Piece::default()),
        );
    }

    /// Changes space; ranges that move must be of whole units, inside the file.
    pub(crate) fn allocate(&mut self, id: u32, mode: Allocate, from: u64, count: u64) {
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

    /// Moves a file, which changes nothing that can be seen.
    pub(crate) fn relocate(&mut self, id: u32, goal: RelocationGoal) {
        let number = self.inodes[&id];
        let wish = Relocation { most_pieces: 8, goal, directory: None };
        self.call(|volume| volume.inode(number).relocate(&wish, &|_| {}).map(drop), |_| {});
    }

    /// Gives the map of a file another form, if it can have it.
    pub(crate) fn convert(&mut self, id: u32, form: MapForm) {
        let number = self.inodes[&id];
        self.call_unless(
            |error| matches!(error, Error::NoSpace | Error::Unsupported(_)),
            |volume| volume.inode(number).convert_map(form).map(drop),
            |_| {},
        );
    }

    /// An attribute of a length: short ones stand in the inode, long ones in a block of their own.
    pub(crate) fn set_attribute(&mut self, id: u32, len: usize) {
        self.version += 1;
        self.set_value(id, &self.version.to_le_bytes().repeat(len.div_ceil(4)));
    }

    pub(crate) fn set_value(&mut self, id: u32, value: &[u8]) {
        let number = self.inodes[&id];
        self.call(
            |volume| volume.inode(number).set_xattr(ATTRIBUTE, value),
            |model| model.files.get_mut(&id).unwrap().attribute = Some(value.to_vec()),
        );
    }

    /// Sets an access control list. Without a `named` group in it it says the mode only: it is stored, and taken back.
    pub(crate) fn set_list(&mut self, id: u32, named: bool) {
        let number = self.inodes[&id];
        let groups: &[(u16, u32)] =
            if named { &[(4, u32::MAX), (8, 77), (16, u32::MAX)] } else { &[(4, u32::MAX)] };
        let mut value = 2_u32.to_le_bytes().to_vec();
        for (tag, who) in [(1, u32::MAX)].iter().chain(groups).chain(&[(32, u32::MAX)]) {
            value.extend([&tag.to_le_bytes()[..], &6_u16.to_le_bytes(), &who.to_le_bytes()].concat());
        }
        self.call(
            |volume| volume.inode(number).set_xattr(LIST, &value),
            |model| model.files.get_mut(&id).unwrap().has_list = named,
        );
    }

    pub(crate) fn remove_attribute(&mut self, id: u32) {
        let number = self.inodes[&id];
        self.call(
            |volume| volume.inode(number).remove_xattr(ATTRIBUTE),
            |model| model.files.get_mut(&id).unwrap().attribute = None,
        );
    }

    /// Opens a file, or closes it: one that loses its last name meanwhile is an orphan.
    pub(crate) fn hold(&mut self, id: u32) {
        let number = self.inodes[&id];
        if self.held.insert(id) {
            self.volume.uses().retain(number).unwrap();
        } else {
            self.held.remove(&id);
            self.volume.uses().release(number, 1);
        }
    }

    /// Takes all space but `left` blocks, with a file that no call touches later.
    pub(crate) fn fill_up(&mut self, left: u64) {
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
