//! Random changes of a small tree, and what they promise: the model after each call.

use std::collections::BTreeMap;

use platfs::device::Recorder;
use platfs::ondisk::units::InodeNumber;
use platfs::{Attributes, Error, Kind, NewInode, Replace, Volume, WriteOptions};
use testkit::random::Random;

/// Bytes of which a write is made; each piece says whose it is.
pub const PIECE: usize = 512;
/// Set in a mark: all calls up to its number are promised.
pub const PROMISED: u64 = 1 << 63;
/// Pieces of a file.
const LONGEST: u64 = 90;

/// What a name leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Node {
    Directory,
    File(u32),
    Link(Vec<u8>),
}

/// The contents of a file: for each piece the version that wrote it, 0 if none did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contents(pub Vec<u32>);

/// All there is after a call.
#[derive(Clone, Default)]
pub struct Model {
    pub names: BTreeMap<Vec<u8>, Node>,
    pub files: BTreeMap<u32, Contents>,
}

/// The bytes of a piece.
pub fn piece(id: u32, version: u32, index: usize) -> Vec<u8> {
    if version == 0 {
        return vec![0; PIECE];
    }
    let index = u32::try_from(index).unwrap();
    // "PLAT", or now and then what begins blocks of a journal.
    let mark = if version % 4 == 3 { 0x9839_3BC0 } else { 0x5441_4C50 };
    [mark, id, version, index]
        .iter()
        .flat_map(|word: &u32| word.to_le_bytes())
        .collect::<Vec<_>>()
        .repeat(PIECE / 16)
}

/// A run: what was done, and the models by call.
pub struct Workload<'v> {
    volume: &'v Volume,
    recorder: &'v Recorder,
    random: Random,
    /// Which inode each file is.
    pub inodes: BTreeMap<u32, InodeNumber>,
    directories: BTreeMap<Vec<u8>, InodeNumber>,
    model: Model,
    pub history: Vec<Model>,
    next: u32,
    version: u32,
    delayed: bool,
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let at = path.iter().rposition(|byte| *byte == b'/').unwrap();
    (&path[..at], &path[at + 1..])
}

impl<'v> Workload<'v> {
    pub fn new(volume: &'v Volume, recorder: &'v Recorder, seed: u64, delayed: bool) -> Self {
        Workload {
            volume,
            recorder,
            random: Random(seed),
            inodes: BTreeMap::new(),
            directories: BTreeMap::from([(Vec::new(), InodeNumber::ROOT)]),
            model: Model::default(),
            history: vec![Model::default()],
            next: 1,
            version: 0,
            delayed,
        }
    }

    /// So many random calls, the last a sync.
    pub fn run(&mut self, calls: u64) {
        for _ in 0..calls {
            let choice = self.random.below(20);
            self.step(choice);
        }
        self.sync();
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

    /// A path of a small universe below a directory that exists.
    fn path(&mut self) -> Vec<u8> {
        let directories: Vec<_> = self.directories.keys().cloned().collect();
        let directory = self.random.pick(&directories).unwrap().clone();
        [&directory[..], format!("/n{}", self.random.below(5)).as_bytes()].concat()
    }

    fn a_file(&mut self) -> Option<(Vec<u8>, u32)> {
        let files: Vec<_> = self
            .model
            .names
            .iter()
            .filter_map(
                |(path, node)| if let Node::File(id) = node { Some((path.clone(), *id)) } else { None },
            )
            .collect();
        self.random.pick(&files).cloned()
    }

    fn place<'p>(&self, path: &'p [u8]) -> (InodeNumber, &'p [u8]) {
        let (directory, name) = split(path);
        (self.directories[directory], name)
    }

    fn step(&mut self, choice: u64) {
        match choice {
            0..=3 => self.create(),
            4..=8 => self.write(),
            9 => self.truncate(),
            10 | 11 => self.unlink(),
            12 | 13 => self.rename(),
            14 => self.make_directory(),
            15 => self.remove_directory(),
            16 => self.link(),
            17 => self.symlink(),
            18 => self.fsync(),
            _ => self.sync(),
        }
    }

    fn create(&mut self) {
        let path = self.path();
        if self.model.names.contains_key(&path) {
            return;
        }
        let ((directory, name), id) = (self.place(&path), self.next);
        let mut number = None;
        let done = self.call(
            |volume| {
                let new = NewInode { kind: Kind::File, attributes: Attributes::default(), xattrs: &[] };
                number = Some(volume.create(directory, name, &new)?);
                Ok(())
            },
            |model| {
                model.names.insert(path.clone(), Node::File(id));
                model.files.insert(id, Contents::default());
            },
        );
        if done {
            self.next += 1;
            self.inodes.insert(id, number.unwrap());
        }
    }

    fn write(&mut self) {
        let Some((_, id)) = self.a_file() else { return };
        let old = self.model.files[&id].0.len() as u64;
        let from = self.random.below(old + 4).min(LONGEST - 1);
        let count = 1 + self.random.below((LONGEST - from).min(24));
        self.version += 1;
        let (number, version) = (self.inodes[&id], self.version);
        let range = usize::try_from(from).unwrap()..usize::try_from(from + count).unwrap();
        let bytes: Vec<u8> = range.clone().flat_map(|index| piece(id, version, index)).collect();
        self.call(
            |volume| volume.write_at(number, from * PIECE as u64, &bytes, WriteOptions::default()),
            |model| {
                let pieces = &mut model.files.get_mut(&id).unwrap().0;
                pieces.resize(pieces.len().max(range.end), 0);
                pieces[range].fill(version);
            },
        );
    }

    fn truncate(&mut self) {
        let Some((_, id)) = self.a_file() else { return };
        let size = self.random.below(self.model.files[&id].0.len() as u64 + 6);
        let number = self.inodes[&id];
        self.call(
            |volume| volume.truncate(number, size * PIECE as u64),
            |model| model.files.get_mut(&id).unwrap().0.resize(usize::try_from(size).unwrap(), 0),
        );
    }

    fn unlink(&mut self) {
        let names: Vec<_> = self
            .model
            .names
            .iter()
            .filter(|(_, node)| **node != Node::Directory)
            .map(|(path, _)| path.clone())
            .collect();
        let Some(path) = self.random.pick(&names).cloned() else { return };
        let (directory, name) = self.place(&path);
        self.call(|volume| volume.unlink(directory, name), |model| drop(model.names.remove(&path)));
    }

    fn rename(&mut self) {
        let (Some((from, id)), to) = (self.a_file(), self.path()) else { return };
        let same = self.model.names.get(&to) == Some(&Node::File(id));
        if same || self.model.names.get(&to) == Some(&Node::Directory) {
            return;
        }
        let ((directory, name), (target, new)) = (self.place(&from), self.place(&to));
        self.call(
            |volume| volume.rename(directory, name, target, new, Replace::Yes),
            |model| {
                let node = model.names.remove(&from).unwrap();
                model.names.insert(to.clone(), node);
            },
        );
    }

    fn make_directory(&mut self) {
        let path = self.path();
        if self.model.names.contains_key(&path) || path.len() > 9 {
            return;
        }
        let (directory, name) = self.place(&path);
        let mut number = None;
        let done = self.call(
            |volume| {
                let new = NewInode { kind: Kind::Directory, attributes: Attributes::default(), xattrs: &[] };
                number = Some(volume.create(directory, name, &new)?);
                Ok(())
            },
            |model| drop(model.names.insert(path.clone(), Node::Directory)),
        );
        if done {
            self.directories.insert(path, number.unwrap());
        }
    }

    fn remove_directory(&mut self) {
        let is_empty = |path: &[u8]| {
            let inside = [path, b"/"].concat();
            !self.model.names.keys().any(|other| other.starts_with(&inside))
        };
        let empty: Vec<_> =
            self.directories.keys().filter(|path| !path.is_empty() && is_empty(path)).cloned().collect();
        let Some(path) = self.random.pick(&empty).cloned() else { return };
        let (directory, name) = self.place(&path);
        self.call(|volume| volume.rmdir(directory, name), |model| drop(model.names.remove(&path)));
        self.directories.remove(&path);
    }

    fn link(&mut self) {
        let (Some((_, id)), path) = (self.a_file(), self.path()) else { return };
        if self.model.names.contains_key(&path) {
            return;
        }
        let ((directory, name), number) = (self.place(&path), self.inodes[&id]);
        self.call(
            |volume| volume.link(number, directory, name),
            |model| drop(model.names.insert(path.clone(), Node::File(id))),
        );
    }

    /// A target that takes a block of metadata, which begins like one of the journal.
    fn symlink(&mut self) {
        let path = self.path();
        if self.model.names.contains_key(&path) {
            return;
        }
        let (directory, name) = self.place(&path);
        let target = [&[0xC0, 0x3B, 0x39, 0x98][..], &[b't'; 90]].concat();
        self.call(
            |volume| {
                let new =
                    NewInode { kind: Kind::Symlink(&target), attributes: Attributes::default(), xattrs: &[] };
                volume.create(directory, name, &new).map(drop)
            },
            |model| drop(model.names.insert(path.clone(), Node::Link(target.clone()))),
        );
    }

    fn fsync(&mut self) {
        let Some((_, id)) = self.a_file() else { return };
        if self.delayed {
            // Of other files it would promise nothing.
            return self.sync();
        }
        self.volume.sync_inode(self.inodes[&id], false).unwrap();
        // The journal keeps the order of all changes, and nothing is delayed here.
        self.promised();
    }
}
