//! The way down from a directory to one below it.
//!
//! A tree can be deeper than a process may have descriptors. So only the lowest directories of the way stay open; one
//! above them is opened again, name by name, when the way leads back to it, and must be the one that it was.

use crate::directory::Directory;
use crate::facts::Id;
use std::ffi::{OsStr, OsString};
use std::io;

/// Directories that stay open.
const OPEN: usize = 64;

/// A way down: its beginning stays open, and each step is a name in the directory before it.
#[derive(Debug)]
pub struct Descent {
    base: Directory,
    levels: Vec<Level>,
}

#[derive(Debug)]
struct Level {
    name: OsString,
    id: Id,
    open: Option<Directory>,
}

impl Descent {
    /// A way that begins, and ends for now, at `base`.
    #[must_use]
    pub fn new(base: Directory) -> Self {
        Self { base, levels: Vec::new() }
    }

    /// Steps down from the beginning.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.levels.len()
    }

    /// The directory where the way ends.
    ///
    /// # Errors
    /// It, or one above it, was moved or replaced since; the system's.
    pub fn here(&mut self) -> io::Result<&Directory> {
        let depth = self.levels.len();
        let closed = self.levels.iter().rev().take_while(|level| level.open.is_none()).count();
        for at in depth - closed..depth {
            let (name, id) = self.levels.get(at).map(|level| (&level.name, level.id)).ok_or_else(moved)?;
            let opened = self.open_at(at).enter(name)?;
            if opened.facts()?.id != id {
                return Err(moved());
            }
            if let Some(level) = self.levels.get_mut(at) {
                level.open = Some(opened);
            }
            if depth - at >= OPEN {
                self.close(at.checked_sub(1));
            }
        }
        Ok(self.open_at(depth))
    }

    fn close(&mut self, at: Option<usize>) {
        if let Some(level) = at.and_then(|at| self.levels.get_mut(at)) {
            level.open = None;
        }
    }

    /// An open directory of the way.
    fn open_at(&self, depth: usize) -> &Directory {
        let level = depth.checked_sub(1).and_then(|at| self.levels.get(at));
        level.and_then(|level| level.open.as_ref()).unwrap_or(&self.base)
    }

    /// Goes down to a directory.
    ///
    /// # Errors
    /// As [`Directory::enter`] and [`Descent::here`].
    pub fn enter(&mut self, name: impl AsRef<OsStr>) -> io::Result<()> {
        let entered = self.here()?.enter(name.as_ref())?;
        self.go(name.as_ref(), entered)
    }

    /// Makes a directory that only its owner may use, and goes down to it.
    ///
    /// # Errors
    /// As [`Directory::make_directory`] and [`Descent::here`].
    pub fn make(&mut self, name: impl AsRef<OsStr>) -> io::Result<()> {
        let made = self.here()?.make_directory(name.as_ref())?;
        self.go(name.as_ref(), made)
    }

    /// Goes down to a directory that is open already and has that name here.
    ///
    /// # Errors
    /// The system's.
    pub fn go(&mut self, name: &OsStr, directory: Directory) -> io::Result<()> {
        let id = directory.facts()?.id;
        self.levels.push(Level { name: name.to_owned(), id, open: Some(directory) });
        self.close(self.levels.len().checked_sub(OPEN + 1));
        Ok(())
    }

    /// Goes up by one directory, and gives the one that it leaves where that is open; at the beginning nothing is done.
    pub fn leave(&mut self) -> Option<Directory> {
        self.levels.pop()?.open
    }
}

fn moved() -> io::Error {
    io::Error::other("a directory above was moved or replaced while work in it went on")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_deeper_than_what_stays_open_leads_back() {
        let top = tempfile::tempdir().unwrap();
        let mut way = Descent::new(Directory::open(top.path()).unwrap());
        let mut ids = vec![way.here().unwrap().facts().unwrap().id];
        for depth in 0..3 * OPEN {
            way.make(format!("d{depth}")).unwrap();
            ids.push(way.here().unwrap().facts().unwrap().id);
            assert!(way.levels.iter().filter(|level| level.open.is_some()).count() <= OPEN);
        }
        while let Some(id) = ids.pop() {
            assert_eq!(way.here().unwrap().facts().unwrap().id, id);
            assert!(way.levels.iter().filter(|level| level.open.is_some()).count() <= OPEN);
            way.leave();
        }
    }

    #[test]
    fn a_directory_that_was_replaced_is_not_taken_for_the_old_one() {
        let top = tempfile::tempdir().unwrap();
        let mut way = Descent::new(Directory::open(top.path()).unwrap());
        for depth in 0..=OPEN + 1 {
            way.make(format!("d{depth}")).unwrap();
        }
        std::fs::rename(top.path().join("d0"), top.path().join("moved")).unwrap();
        std::fs::create_dir(top.path().join("d0")).unwrap();
        for _ in 0..=OPEN {
            way.leave();
        }
        assert!(way.here().unwrap_err().to_string().contains("moved or replaced"));
    }
}
