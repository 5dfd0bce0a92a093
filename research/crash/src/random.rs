//! Random calls in a small universe of names.

use platfs::{Allocate, MapForm, RelocationGoal};
use testkit::random::Random;

use crate::calls::Caller;
use crate::model::Node;
use crate::workload::RandomProfile;

/// Pieces of a file.
const LONGEST: u64 = 90;

/// Blocks of 1 KiB that a volume may have, whose size changes: the least, and how many more.
const SMALLEST: u64 = 4000;
const SIZES: u64 = 8000;

/// Chooses calls.
pub(crate) struct Chooser<'w, 'v> {
    pub(crate) caller: &'w mut Caller<'v>,
    pub(crate) random: Random,
    pub(crate) profile: RandomProfile,
}

impl Chooser<'_, '_> {
    /// Makes the files that exist before the first call that counts.
    pub(crate) fn prepare(&mut self) {
        if self.profile.crowded {
            for number in 0..60 {
                let path = long_name(b"", number);
                self.caller.create(&path);
            }
        }
        if let Some(room) = self.profile.room {
            self.caller.fill_up(room);
        }
    }

    /// Random calls, the last a sync.
    pub(crate) fn run(&mut self, calls: u64) {
        for _ in 0..calls {
            self.step();
        }
        self.caller.sync();
    }

    /// A path of a small universe below a directory that exists.
    fn path(&mut self) -> Vec<u8> {
        let directories: Vec<_> = self.caller.model.directories().map(|(path, _)| path.to_vec()).collect();
        let directory = self.random.pick(&directories).unwrap().clone();
        if self.profile.crowded && self.random.below(4) > 0 {
            return long_name(&directory, self.random.below(80));
        }
        [&directory[..], format!("/n{}", self.random.below(5)).as_bytes()].concat()
    }

    fn free_path(&mut self) -> Option<Vec<u8>> {
        Some(self.path()).filter(|path| !self.caller.model.names.contains_key(path))
    }

    fn a_file(&mut self) -> Option<(Vec<u8>, u32)> {
        let files = self.caller.model.file_names().filter(|(path, _)| *path != b"/filler");
        let files: Vec<_> = files.map(|(path, id)| (path.to_vec(), id)).collect();
        self.random.pick(&files).cloned()
    }

    fn step(&mut self) {
        if self.profile.moving && self.random.one_in(3) {
            self.move_one();
            return;
        }
        if self.profile.changing && self.random.one_in(5) {
            self.change_whole();
            return;
        }
        if self.profile.sharing && self.random.one_in(2) {
            self.change_shared();
            return;
        }
        let choice = self.random.below(32);
        // Where there is nothing to do it to, nothing is done.
        let _ = self.step_with_names(choice);
    }

    /// A call that promises nothing by itself.
    pub(crate) fn step_quietly(&mut self) {
        let choice = self.random.below(27);
        let _ = self.step_with_names(choice);
    }

    /// A file moves, or its map changes form.
    fn move_one(&mut self) {
        let Some((_, id)) = self.a_file() else { return };
        let some = self.random.below(3000);
        match self.random.below(6) {
            0 | 1 if self.caller.extents => {
                self.caller.convert(id, MapForm::Pointers);
                // All else can be done to extents only.
                self.caller.convert(id, MapForm::Extents);
            }
            2 | 3 => self.caller.relocate(id, RelocationGoal::Front),
            4 => self.caller.relocate(id, RelocationGoal::Outside { start: some, end: some + 1000 }),
            _ => self.caller.relocate(id, RelocationGoal::Wholeness),
        }
    }

    /// The attributes of a file become like those of others. A value of 40 bytes stays in the inode until a list comes
    /// to it, one of 300 has a block.
    fn change_shared(&mut self) {
        let Some((_, id)) = self.a_file() else { return };
        match self.random.below(8) {
            0..=3 => {
                let (len, which) = ([40, 300][usize::from(self.random.one_in(2))], self.random.below(3));
                self.caller.set_value(id, &vec![b'a' + u8::try_from(which).unwrap(); len]);
            }
            4 | 5 => self.caller.set_list(id, false),
            6 => self.caller.set_list(id, true),
            _ if self.caller.model.files[&id].attribute.is_some() => self.caller.remove_attribute(id),
            _ => {}
        }
    }

    /// The volume as a whole changes.
    fn change_whole(&mut self) {
        let some = self.random.next();
        match self.random.below(8) {
            0 | 1 => self.caller.relabel(format!("label {}", some % 1000).as_bytes()),
            2 | 3 => self.caller.switch_counting(usize::from(some.is_multiple_of(3))),
            4 => self.caller.limit((some % 50) << 20),
            // Sizes take a journal, or wait until the volume is not in use.
            _ if self.caller.is_phased => self.caller.limit((some % 50) << 20),
            _ => self.caller.resize((SMALLEST + some % SIZES) << 10),
        }
    }

    fn step_with_names(&mut self, choice: u64) -> Option<()> {
        match choice {
            0..=3 => {
                let path = self.free_path()?;
                self.caller.create(&path);
            }
            4 | 5 => {
                let path = self.free_path().filter(|path| path.len() <= 9)?;
                self.caller.make_directory(&path);
            }
            6 => {
                let model = &self.caller.model;
                let empty: Vec<_> = (model.directories())
                    .filter(|(path, _)| !path.is_empty() && model.is_empty(path))
                    .map(|(path, _)| path.to_vec())
                    .collect();
                let path = self.random.pick(&empty).cloned()?;
                self.caller.remove_directory(&path);
            }
            7 => {
                let ((_, id), path) = (self.a_file()?, self.free_path()?);
                self.caller.link(id, &path);
            }
            8 => {
                let path = self.free_path()?;
                self.caller.symlink(&path);
            }
            9..=11 => {
                let names = self.caller.model.names.iter();
                let names =
                    names.filter(|(path, node)| !matches!(node, Node::Directory(_)) && *path != b"/filler");
                let names: Vec<_> = names.map(|(path, _)| path.clone()).collect();
                let path = self.random.pick(&names).cloned()?;
                self.caller.unlink(&path);
            }
            12 | 13 => {
                let ((from, id), to) = (self.a_file()?, self.path());
                let there = self.caller.model.names.get(&to);
                if there != Some(&Node::File(id)) && !matches!(there, Some(Node::Directory(_))) {
                    self.caller.rename(&from, &to);
                }
            }
            _ => {
                let (_, id) = self.a_file()?;
                self.step_with_file(choice, id);
            }
        }
        Some(())
    }

    fn step_with_file(&mut self, choice: u64, id: u32) {
        let len = self.caller.model.pieces(id) as u64;
        match choice {
            14..=18 => {
                let from = self.random.below(len + 4).min(LONGEST - 1);
                let count = 1 + self.random.below((LONGEST - from).min(24));
                self.caller.write(id, from, count);
            }
            19 => {
                let size = self.random.below(len + 6);
                self.caller.truncate(id, size);
            }
            20 => {
                let size = self.random.below(len.max(1));
                self.caller.truncate(id, size);
                self.caller.write(id, size, 1 + size % 7);
            }
            21 | 22 => self.step_with_space(id, len),
            23 => {
                let long = [20, 300][usize::from(self.random.one_in(2))];
                self.caller.set_attribute(id, long);
            }
            24 if self.caller.model.files[&id].attribute.is_some() => self.caller.remove_attribute(id),
            25 | 26 => self.caller.hold(id),
            27 => {
                // Of half of them the bytes alone. One number, so that the runs of all seeds stay the same.
                if self.random.next().is_multiple_of(2) {
                    self.caller.fsync(id);
                } else {
                    self.caller.fdatasync(id);
                }
            }
            28 => self.caller.sync(),
            _ => {}
        }
    }

    fn step_with_space(&mut self, id: u32, len: u64) {
        if len == 0 {
            return;
        }
        let from = self.random.below(len);
        let count = 1 + self.random.below(20);
        let unit = self.caller.unit;
        if !self.caller.extents {
            return self.caller.allocate(id, Allocate::PunchHole, from, count);
        }
        let (first, some) = (from / unit * unit, unit * (1 + count / 8));
        match self.random.below(8) {
            0 | 1 => self.caller.allocate(id, Allocate::PunchHole, from, count),
            2 => self.caller.allocate(id, Allocate::ZeroRange, from, count),
            3 => self.caller.allocate(id, Allocate::ZeroRangeKeepSize, from, count),
            4 => self.caller.allocate(id, Allocate::Extend, from, count + 10),
            5 => self.caller.allocate(id, Allocate::KeepSize, from, count + 10),
            6 if first + some < len => self.caller.allocate(id, Allocate::CollapseRange, first, some),
            _ if first < len && len + some < LONGEST * 2 => {
                self.caller.allocate(id, Allocate::InsertRange, first, some);
            }
            _ => {}
        }
    }
}

fn long_name(directory: &[u8], number: u64) -> Vec<u8> {
    [directory, format!("/{number:03}{}", "-long".repeat(12)).as_bytes()].concat()
}
