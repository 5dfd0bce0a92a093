//! Random calls on larger things: directories of many blocks, maps of many pieces, directories that move, attributes
//! in blocks of their own, files that are open without a name.

use platfs::Allocate;
use testkit::random::Random;

use crate::calls::Caller;
use crate::model::Node;

/// Names in a directory: in blocks of 1 KiB an index of many leaves.
const NAMES: u64 = 120;
/// Pieces of a file; every other block of one takes more extents than an inode and a node hold.
const LONGEST: u64 = 700;
/// Directories below each other.
const DEEPEST: usize = 4;

/// Chooses calls.
pub(crate) struct DeepChooser<'w, 'v> {
    pub(crate) caller: &'w mut Caller<'v>,
    pub(crate) random: Random,
}

fn name(path: &[u8]) -> &[u8] {
    let at = path.iter().rposition(|byte| *byte == b'/').unwrap();
    &path[at + 1..]
}

impl DeepChooser<'_, '_> {
    /// A tree with large directories.
    pub(crate) fn prepare(&mut self) {
        for directory in [&b"/a"[..], b"/b", b"/a/c"] {
            self.caller.make_directory(directory);
        }
        for _ in 0..90 {
            self.create();
        }
    }

    /// Random calls, the last a sync.
    pub(crate) fn run(&mut self, calls: u64) {
        for _ in 0..calls {
            let choice = self.random.below(43);
            // Where there is nothing to do it to, nothing is done.
            let _ = self.step(choice);
        }
        for id in self.caller.held.clone() {
            self.caller.hold(id);
        }
        self.caller.sync();
    }

    fn step(&mut self, choice: u64) -> Option<()> {
        match choice {
            0..=9 => self.create(),
            10..=13 => {
                let (path, _) = self.a_file()?;
                self.caller.unlink(&path);
            }
            14..=18 => self.rename()?,
            19 => self.exchange()?,
            20 | 21 => {
                let ((_, id), path) = (self.a_file()?, self.path(b'f'));
                if !self.caller.model.names.contains_key(&path) {
                    self.caller.link(id, &path);
                }
            }
            22..=25 => {
                let (_, id) = self.a_file()?;
                let (from, count) = (self.random.below(30), 1 + self.random.below(12));
                self.caller.write(id, from, count);
            }
            31 | 32 => {
                let path = self.path(b'd');
                if path.iter().filter(|byte| **byte == b'/').count() <= DEEPEST
                    && !self.caller.model.names.contains_key(&path)
                {
                    self.caller.make_directory(&path);
                }
            }
            33 => self.remove_directory()?,
            34 | 35 => self.move_directory()?,
            36 => {
                let (path, id) = self.a_file()?;
                if !self.caller.held.contains(&id) {
                    self.caller.hold(id);
                }
                self.caller.unlink(&path);
            }
            37 => {
                let id = *self.caller.held.last()?;
                self.caller.hold(id);
            }
            38 => self.caller.sync(),
            40 => self.thin_out()?,
            41 | 42 => {
                let path = self.a_directory(0)?;
                self.caller.pack(&path);
            }
            _ => {
                let (_, id) = self.a_file()?;
                self.step_with_file(choice, id)?;
            }
        }
        Some(())
    }

    fn step_with_file(&mut self, choice: u64, id: u32) -> Option<()> {
        let len = self.caller.model.pieces(id) as u64;
        match choice {
            26 => {
                let size = self.random.below(len + 6);
                self.caller.truncate(id, size);
            }
            27 => {
                let from = self.random.below(len.checked_sub(4)?);
                self.caller.allocate(id, Allocate::PunchHole, from, 4);
            }
            28 | 29 => self.caller.set_attribute(id, 300),
            30 => {
                self.caller.model.files[&id].attribute.as_ref()?;
                self.caller.remove_attribute(id);
            }
            _ => self.write_apart(id),
        }
        Some(())
    }

    fn path(&mut self, kind: u8) -> Vec<u8> {
        let all: Vec<_> = self.caller.model.directories().map(|(path, _)| path.to_vec()).collect();
        let directory = self.random.pick(&all).unwrap().clone();
        let number = self.random.below(if kind == b'd' { 3 } else { NAMES });
        let rest = "long".repeat(usize::try_from(number % 9).unwrap());
        [&directory[..], b"/", &[kind], format!("{number}{rest}").as_bytes()].concat()
    }

    fn a_file(&mut self) -> Option<(Vec<u8>, u32)> {
        let files: Vec<_> = self.caller.model.file_names().map(|(path, id)| (path.to_vec(), id)).collect();
        self.random.pick(&files).cloned()
    }

    /// A directory whose path is longer than `longer` bytes.
    fn a_directory(&mut self, longer: usize) -> Option<Vec<u8>> {
        let all = self.caller.model.directories().map(|(path, _)| path.to_vec());
        let all: Vec<_> = all.filter(|path| path.len() > longer).collect();
        self.random.pick(&all).cloned()
    }

    fn create(&mut self) {
        let path = self.path(b'f');
        if !self.caller.model.names.contains_key(&path) {
            self.caller.create(&path);
        }
    }

    fn rename(&mut self) -> Option<()> {
        let ((from, id), mut to) = (self.a_file()?, self.path(b'f'));
        if self.random.one_in(3) {
            // One that exists.
            to = self.a_file()?.0;
        }
        if self.caller.model.file(&to) != Some(id) {
            self.caller.rename(&from, &to);
        }
        Some(())
    }

    fn exchange(&mut self) -> Option<()> {
        let ((one, a), (other, b)) = (self.a_file()?, self.a_file()?);
        if a != b {
            self.caller.exchange(&one, &other);
        }
        Some(())
    }

    /// Writes every other block, so that each takes an extent of its own.
    fn write_apart(&mut self, id: u32) {
        let mut from = self.random.below(LONGEST / 2);
        for _ in 0..12 {
            self.caller.write(id, from, 2);
            from += 4 + 12 * self.random.below(2);
        }
    }

    /// Takes a directory away with all that is in it, sometimes after some of it was moved out.
    fn remove_directory(&mut self) -> Option<()> {
        let path = self.a_directory(3)?;
        let inside: Vec<_> = self.caller.model.inside(&path).map(<[u8]>::to_vec).collect();
        for inside in inside.into_iter().rev() {
            if let Node::Directory(_) = self.caller.model.names[&inside] {
                self.caller.remove_directory(&inside);
                continue;
            }
            let to = [b"/", name(&inside)].concat();
            if self.random.one_in(4) && !self.caller.model.names.contains_key(&to) {
                self.caller.rename(&inside, &to);
            } else {
                self.caller.unlink(&inside);
            }
        }
        self.caller.remove_directory(&path);
        Some(())
    }

    /// Takes many names of a directory away, so that leaves of its index lose their last.
    fn thin_out(&mut self) -> Option<()> {
        let path = self.a_directory(0)?;
        let inside: Vec<_> = self.caller.model.inside(&path).map(<[u8]>::to_vec).collect();
        for inside in inside {
            let is_file = matches!(self.caller.model.names[&inside], Node::File(_));
            if is_file && !self.random.one_in(4) {
                self.caller.unlink(&inside);
            }
        }
        Some(())
    }

    /// Also over an empty one.
    fn move_directory(&mut self) -> Option<()> {
        let (from, to) = (self.a_directory(2)?, self.path(b'd'));
        let model = &self.caller.model;
        let is_inside = to.starts_with(&[&from[..], b"/"].concat()) || to == from;
        let is_free = !model.names.contains_key(&to)
            || model.directory(&to).is_some() && model.is_empty(&to) && !from.starts_with(&to);
        if !is_inside && is_free {
            self.caller.rename(&from, &to);
        }
        Some(())
    }
}
