//! Random calls in a small universe of names.

use platfs::Allocate;
use testkit::random::Random;

use crate::calls::Workload;
use crate::model::Node;

/// Pieces of a file.
const LONGEST: u64 = 90;

/// What the runs of a kind of volume are like.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Taste {
    /// Names are long and many, so that directories get blocks and indexes.
    pub crowded: bool,
    /// Blocks that are left free at the beginning.
    pub room: Option<u64>,
}

/// Chooses calls.
pub struct Chooser<'w, 'v> {
    pub workload: &'w mut Workload<'v>,
    pub random: Random,
    pub taste: Taste,
}

impl Chooser<'_, '_> {
    /// What there is before the first call that counts.
    pub fn prepare(&mut self) {
        if self.taste.crowded {
            for number in 0..60 {
                let path = long_name(b"", number);
                self.workload.create(&path);
            }
        }
        if let Some(room) = self.taste.room {
            self.workload.fill_up(room);
        }
    }

    /// So many random calls, the last a sync.
    pub fn run(&mut self, calls: u64) {
        for _ in 0..calls {
            self.step();
        }
        self.workload.sync();
    }

    /// A path of a small universe below a directory that exists.
    fn path(&mut self) -> Vec<u8> {
        let directories: Vec<_> = self.workload.directories.keys().cloned().collect();
        let directory = self.random.pick(&directories).unwrap().clone();
        if self.taste.crowded && self.random.below(4) > 0 {
            return long_name(&directory, self.random.below(80));
        }
        [&directory[..], format!("/n{}", self.random.below(5)).as_bytes()].concat()
    }

    fn free_path(&mut self) -> Option<Vec<u8>> {
        Some(self.path()).filter(|path| !self.workload.model.names.contains_key(path))
    }

    fn a_file(&mut self) -> Option<(Vec<u8>, u32)> {
        let names = self.workload.model.names.iter();
        let files: Vec<_> = names
            .filter(|(path, _)| *path != b"/filler")
            .filter_map(
                |(path, node)| if let Node::File(id) = node { Some((path.clone(), *id)) } else { None },
            )
            .collect();
        self.random.pick(&files).cloned()
    }

    fn step(&mut self) {
        let choice = self.random.below(32);
        // Where there is nothing to do it to, nothing is done.
        let _ = self.step_with_names(choice);
    }

    fn step_with_names(&mut self, choice: u64) -> Option<()> {
        match choice {
            0..=3 => {
                let path = self.free_path()?;
                self.workload.create(&path);
            }
            4 | 5 => {
                let path = self.free_path().filter(|path| path.len() <= 9)?;
                self.workload.make_directory(&path);
            }
            6 => {
                let model = &self.workload.model;
                let directories = self.workload.directories.keys();
                let empty: Vec<_> =
                    directories.filter(|path| !path.is_empty() && model.is_empty(path)).cloned().collect();
                let path = self.random.pick(&empty).cloned()?;
                self.workload.remove_directory(&path);
            }
            7 => {
                let ((_, id), path) = (self.a_file()?, self.free_path()?);
                self.workload.link(id, &path);
            }
            8 => {
                let path = self.free_path()?;
                self.workload.symlink(&path);
            }
            9..=11 => {
                let names = self.workload.model.names.iter();
                let names = names.filter(|(path, node)| **node != Node::Directory && *path != b"/filler");
                let names: Vec<_> = names.map(|(path, _)| path.clone()).collect();
                let path = self.random.pick(&names).cloned()?;
                self.workload.unlink(&path);
            }
            12 | 13 => {
                let ((from, id), to) = (self.a_file()?, self.path());
                let there = self.workload.model.names.get(&to);
                if there != Some(&Node::File(id)) && there != Some(&Node::Directory) {
                    self.workload.rename(&from, &to);
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
        let len = self.workload.model.pieces(id) as u64;
        match choice {
            14..=18 => {
                let from = self.random.below(len + 4).min(LONGEST - 1);
                let count = 1 + self.random.below((LONGEST - from).min(24));
                self.workload.write(id, from, count);
            }
            19 => {
                let size = self.random.below(len + 6);
                self.workload.truncate(id, size);
            }
            20 => {
                let size = self.random.below(len.max(1));
                self.workload.truncate(id, size);
                self.workload.write(id, size, 1 + size % 7);
            }
            21 | 22 => self.step_with_space(id, len),
            23 => {
                let long = [20, 300][usize::from(self.random.one_in(2))];
                self.workload.set_attribute(id, long);
            }
            24 if self.workload.model.files[&id].attribute.is_some() => self.workload.remove_attribute(id),
            25 | 26 => self.workload.hold(id),
            27 => self.workload.fsync(id, self.random.one_in(2)),
            28 => self.workload.sync(),
            _ => {}
        }
    }

    fn step_with_space(&mut self, id: u32, len: u64) {
        if len == 0 {
            return;
        }
        let from = self.random.below(len);
        let count = 1 + self.random.below(20);
        let unit = self.workload.unit;
        if !self.workload.extents {
            return self.workload.allocate(id, Allocate::PunchHole, from, count);
        }
        let (first, some) = (from / unit * unit, unit * (1 + count / 8));
        match self.random.below(8) {
            0 | 1 => self.workload.allocate(id, Allocate::PunchHole, from, count),
            2 => self.workload.allocate(id, Allocate::ZeroRange, from, count),
            3 => self.workload.allocate(id, Allocate::ZeroRangeKeepSize, from, count),
            4 => self.workload.allocate(id, Allocate::Extend, from, count + 10),
            5 => self.workload.allocate(id, Allocate::KeepSize, from, count + 10),
            6 if first + some < len => self.workload.allocate(id, Allocate::CollapseRange, first, some),
            _ if first < len && len + some < LONGEST * 2 => {
                self.workload.allocate(id, Allocate::InsertRange, first, some);
            }
            _ => {}
        }
    }
}

fn long_name(directory: &[u8], number: u64) -> Vec<u8> {
    [directory, format!("/{number:03}{}", "-long".repeat(12)).as_bytes()].concat()
}
