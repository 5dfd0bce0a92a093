//! Random changes of larger things: directories of many blocks, maps of many pieces, directories that move, attributes in blocks of
//! their own, files that are open without a name. What they promise is told as the smaller workload tells it.

use std::collections::BTreeMap;

use platfs::device::Recorder;
use platfs::{Allocate, Attributes, Error, InodeNumber, Kind, NewInode, Replace, Volume, WriteOptions};
use testkit::random::Random;

use crate::workload::{Contents, Model, Node, PIECE, PROMISED, piece};

/// Names in a directory: in blocks of 1 KiB an index of many leaves.
const NAMES: u64 = 120;
/// Pieces of a file; every other block of one takes more extents than an inode and a node hold.
const LONGEST: u64 = 700;

/// Directories by path.
pub type Places = BTreeMap<Vec<u8>, InodeNumber>;

/// A run.
pub struct Deep<'v> {
    volume: &'v Volume,
    recorder: &'v Recorder,
    random: Random,
    model: Model,
    value: BTreeMap<u32, u8>,
    pub history: Vec<Model>,
    /// The attribute of each file, call by call.
    pub values: Vec<BTreeMap<u32, u8>>,
    pub inodes: BTreeMap<u32, InodeNumber>,
    /// Which inode each directory is, call by call.
    pub directories: Vec<Places>,
    places: Places,
    open: Vec<InodeNumber>,
    next: u32,
    version: u32,
}

fn parent(path: &[u8]) -> &[u8] {
    let at = path.iter().rposition(|byte| *byte == b'/').unwrap();
    &path[..at]
}

fn name(path: &[u8]) -> &[u8] {
    &path[parent(path).len() + 1..]
}

fn new(kind: Kind<'_>) -> NewInode<'_> {
    NewInode { kind, attributes: Attributes::default(), xattrs: &[] }
}

impl<'v> Deep<'v> {
    pub fn new(volume: &'v Volume, recorder: &'v Recorder, seed: u64) -> Self {
        Deep {
            volume,
            recorder,
            random: Random(seed),
            model: Model::default(),
            value: BTreeMap::new(),
            history: vec![Model::default()],
            values: vec![BTreeMap::new()],
            inodes: BTreeMap::new(),
            directories: vec![Places::from([(Vec::new(), InodeNumber::ROOT)])],
            places: Places::from([(Vec::new(), InodeNumber::ROOT)]),
            open: Vec::new(),
            next: 1,
            version: 0,
        }
    }

    /// A tree with large directories, and then so many random calls, the last a sync.
    pub fn run(&mut self, calls: u64) {
        for directory in [&b"/a"[..], b"/b", b"/a/c"] {
            self.make_directory(directory.to_vec());
        }
        for _ in 0..90 {
            self.create();
        }
        self.sync();
        for _ in 0..calls {
            let choice = self.random.below(40);
            self.step(choice);
        }
        for number in std::mem::take(&mut self.open) {
            self.volume.release(number, 1);
        }
        self.sync();
    }

    fn step(&mut self, choice: u64) {
        match choice {
            0..=9 => self.create(),
            10..=13 => self.unlink(),
            14..=18 => self.rename(),
            19 => self.exchange(),
            20 | 21 => self.link(),
            22..=25 => self.write(),
            26 => self.truncate(),
            27 => self.punch(),
            28 | 29 => self.set_value(),
            30 => self.drop_value(),
            31 | 32 => {
                let path = self.path(b'd');
                self.make_directory(path);
            }
            33 => self.remove_directory(),
            34 | 35 => self.move_directory(),
            36 => self.open_one(),
            37 => self.close_one(),
            38 => self.sync(),
            _ => self.write_apart(),
        }
    }

    fn call(
        &mut self,
        verb: impl FnOnce(&Volume) -> Result<(), Error>,
        change: impl FnOnce(&mut Model),
    ) -> bool {
        self.recorder.mark(self.history.len() as u64);
        let mut next = self.model.clone();
        change(&mut next);
        self.history.push(next.clone());
        self.values.push(self.value.clone());
        self.directories.push(self.places.clone());
        match verb(self.volume) {
            Ok(()) => {
                self.model = next;
                true
            }
            // Names in different blocks are not exchanged; a full volume has room after the next sync.
            Err(Error::Unsupported(_) | Error::NoSpace | Error::NoInodes) => {
                *self.history.last_mut().unwrap() = self.model.clone();
                false
            }
            Err(error) => panic!("call {}: {error}", self.history.len() - 1),
        }
    }

    fn sync(&mut self) {
        self.volume.sync().unwrap();
        self.recorder.mark(PROMISED | (self.history.len() as u64 - 1));
    }

    /// Directories are as they are now after the last call.
    fn note_places(&mut self) {
        *self.directories.last_mut().unwrap() = self.places.clone();
    }

    fn existing(&self) -> Vec<Vec<u8>> {
        self.places.keys().cloned().collect()
    }

    fn path(&mut self, kind: u8) -> Vec<u8> {
        let all = self.existing();
        let directory = self.random.pick(&all).unwrap().clone();
        let number = if kind == b'd' { self.random.below(3) } else { self.random.below(NAMES) };
        let rest = "long".repeat(usize::try_from(number % 9).unwrap());
        [&directory[..], b"/", &[kind], format!("{number}{rest}").as_bytes()].concat()
    }

    fn at(&self, path: &[u8]) -> InodeNumber {
        self.places[path]
    }

    fn a_file(&mut self) -> Option<(Vec<u8>, u32)> {
        let files = self.model.names.iter().filter_map(|(path, node)| match node {
            Node::File(id) => Some((path.clone(), *id)),
            _ => None,
        });
        let files: Vec<_> = files.collect();
        self.random.pick(&files).cloned()
    }

    fn create(&mut self) {
        let path = self.path(b'f');
        if self.model.names.contains_key(&path) {
            return;
        }
        let (directory, id) = (self.at(parent(&path)), self.next);
        let mut number = None;
        let done = self.call(
            |volume| {
                number = Some(volume.create(directory, name(&path), &new(Kind::File))?);
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

    fn unlink(&mut self) {
        let Some((path, _)) = self.a_file() else { return };
        let directory = self.at(parent(&path));
        self.call(|volume| volume.unlink(directory, name(&path)), |model| drop(model.names.remove(&path)));
    }

    fn rename(&mut self) {
        let (Some((from, id)), mut to) = (self.a_file(), self.path(b'f')) else { return };
        if self.random.one_in(3) {
            // One that exists.
            to = self.a_file().unwrap().0;
        }
        if self.model.names.get(&to) == Some(&Node::File(id)) {
            return;
        }
        let (old, target) = (self.at(parent(&from)), self.at(parent(&to)));
        self.call(
            |volume| volume.rename(old, name(&from), target, name(&to), Replace::Yes),
            |model| {
                let node = model.names.remove(&from).unwrap();
                model.names.insert(to.clone(), node);
            },
        );
    }

    fn exchange(&mut self) {
        let (Some((one, a)), Some((other, b))) = (self.a_file(), self.a_file()) else { return };
        if a == b {
            return;
        }
        let (old, target) = (self.at(parent(&one)), self.at(parent(&other)));
        self.call(
            |volume| volume.rename(old, name(&one), target, name(&other), Replace::Exchange),
            |model| {
                model.names.insert(one.clone(), Node::File(b));
                model.names.insert(other.clone(), Node::File(a));
            },
        );
    }

    fn link(&mut self) {
        let (Some((_, id)), path) = (self.a_file(), self.path(b'f')) else { return };
        if self.model.names.contains_key(&path) {
            return;
        }
        let (directory, number) = (self.at(parent(&path)), self.inodes[&id]);
        self.call(
            |volume| volume.link(number, directory, name(&path)),
            |model| drop(model.names.insert(path.clone(), Node::File(id))),
        );
    }

    fn write_range(&mut self, id: u32, from: u64, count: u64) {
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

    fn write(&mut self) {
        let Some((_, id)) = self.a_file() else { return };
        let from = self.random.below(30);
        let count = 1 + self.random.below(12);
        self.write_range(id, from, count);
    }

    /// Every other block, so that each takes an extent of its own.
    fn write_apart(&mut self) {
        let Some((_, id)) = self.a_file() else { return };
        let mut from = self.random.below(LONGEST / 2);
        for _ in 0..12 {
            self.write_range(id, from, 2);
            from += 4 + 12 * self.random.below(2);
        }
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

    fn punch(&mut self) {
        let Some((_, id)) = self.a_file() else { return };
        let len = self.model.files[&id].0.len() as u64;
        if len < 8 {
            return;
        }
        let (from, number) = (self.random.below(len - 4), self.inodes[&id]);
        self.call(
            |volume| volume.allocate(number, Allocate::PunchHole, from * PIECE as u64, 4 * PIECE as u64),
            |model| {
                let at = usize::try_from(from).unwrap();
                model.files.get_mut(&id).unwrap().0[at..at + 4].fill(0);
            },
        );
    }

    fn set_value(&mut self) {
        let Some((_, id)) = self.a_file() else { return };
        let (number, value) = (self.inodes[&id], 1 + u8::try_from(self.random.below(200)).unwrap());
        let before = self.value.insert(id, value);
        if !self.call(|volume| volume.set_xattr(number, b"user.v", &[value; 300]), |_| {}) {
            match before {
                Some(before) => self.value.insert(id, before),
                None => self.value.remove(&id),
            };
        }
    }

    fn drop_value(&mut self) {
        let with: Vec<_> = self.value.keys().copied().collect();
        let Some(id) = self.random.pick(&with).copied() else { return };
        if !self.model.names.values().any(|node| *node == Node::File(id)) {
            return;
        }
        let number = self.inodes[&id];
        self.value.remove(&id);
        self.call(|volume| volume.remove_xattr(number, b"user.v"), |_| {});
    }

    fn make_directory(&mut self, path: Vec<u8>) {
        if self.model.names.contains_key(&path) || path.iter().filter(|byte| **byte == b'/').count() > 4 {
            return;
        }
        let directory = self.at(parent(&path));
        let mut number = None;
        self.call(
            |volume| {
                number = Some(volume.create(directory, name(&path), &new(Kind::Directory))?);
                Ok(())
            },
            |model| drop(model.names.insert(path.clone(), Node::Directory)),
        );
        self.places.extend(number.map(|number| (path, number)));
        self.note_places();
    }

    fn below(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let inside = [path, b"/"].concat();
        self.model.names.keys().filter(|other| other.starts_with(&inside)).cloned().collect()
    }

    /// Takes a directory away with all that is in it, sometimes after some of it was moved out.
    fn remove_directory(&mut self) {
        let all: Vec<_> = self.existing().into_iter().filter(|path| path.len() > 3).collect();
        let Some(path) = self.random.pick(&all).cloned() else { return };
        for inside in self.below(&path).into_iter().rev() {
            let directory = self.at(parent(&inside));
            let kind = self.model.names[&inside].clone();
            if let (Node::File(_), true) = (&kind, self.random.one_in(4)) {
                let to = [b"/".to_vec(), name(&inside).to_vec()].concat();
                if !self.model.names.contains_key(&to) {
                    self.call(
                        |volume| {
                            volume.rename(
                                directory,
                                name(&inside),
                                InodeNumber::ROOT,
                                name(&to),
                                Replace::Yes,
                            )
                        },
                        |model| {
                            let node = model.names.remove(&inside).unwrap();
                            model.names.insert(to.clone(), node);
                        },
                    );
                    continue;
                }
            }
            self.call(
                |volume| match kind {
                    Node::Directory => volume.rmdir(directory, name(&inside)),
                    _ => volume.unlink(directory, name(&inside)),
                },
                |model| drop(model.names.remove(&inside)),
            );
            self.places.remove(&inside);
            self.note_places();
        }
        let directory = self.at(parent(&path));
        self.call(|volume| volume.rmdir(directory, name(&path)), |model| drop(model.names.remove(&path)));
        self.places.remove(&path);
        self.note_places();
    }

    fn move_directory(&mut self) {
        let all: Vec<_> = self.existing().into_iter().filter(|path| path.len() > 2).collect();
        let (Some(from), to) = (self.random.pick(&all).cloned(), self.path(b'd')) else { return };
        let is_inside = to.starts_with(&[&from[..], b"/"].concat()) || to == from;
        // An empty one may be replaced.
        let is_free = match self.model.names.get(&to) {
            None => true,
            Some(node) => *node == Node::Directory && self.below(&to).is_empty() && !from.starts_with(&to),
        };
        if is_inside || !is_free {
            return;
        }
        let (old, target, inside) = (self.at(parent(&from)), self.at(parent(&to)), self.below(&from));
        let done = self.call(
            |volume| volume.rename(old, name(&from), target, name(&to), Replace::Yes),
            |model| {
                for path in inside.iter().chain([&from]) {
                    let node = model.names.remove(path).unwrap();
                    model.names.insert([&to[..], &path[from.len()..]].concat(), node);
                }
            },
        );
        for path in inside.iter().chain([&from]).filter(|_| done) {
            if let Some(number) = self.places.remove(path) {
                self.places.insert([&to[..], &path[from.len()..]].concat(), number);
            }
        }
        self.note_places();
    }

    fn open_one(&mut self) {
        let Some((path, id)) = self.a_file() else { return };
        self.volume.retain(self.inodes[&id]).unwrap();
        self.open.push(self.inodes[&id]);
        let directory = self.at(parent(&path));
        self.call(|volume| volume.unlink(directory, name(&path)), |model| drop(model.names.remove(&path)));
    }

    fn close_one(&mut self) {
        if let Some(number) = self.open.pop() {
            self.volume.release(number, 1);
        }
    }
}
