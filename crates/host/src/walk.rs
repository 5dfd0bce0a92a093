//! Reading a tree of the host: each entry once, opened, in the order of the names.
//!
//! The one walk of every verb that copies such a tree. What a visitor gets was opened below an open directory, and its
//! facts are those of what was opened: whoever renames in the tree meanwhile changes which of his files are copied,
//! and reaches no others.

use crate::descent::Descent;
use crate::directory::Directory;
use crate::facts::Facts;
use crate::reach::{Opened, entry_of};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

/// Directories below each other.
const DEPTH_MAX: usize = 1000;

/// An entry of a tree.
#[derive(Debug)]
pub struct Entry<'w> {
    /// Name in its directory.
    pub name: &'w OsStr,
    /// Path as the user would write it, for messages only.
    pub path: &'w Path,
    /// Facts of what was opened.
    pub facts: Facts,
    /// Directories above it in the tree.
    pub depth: usize,
}

/// Whatever takes the entries of a tree.
pub trait Visitor {
    /// Reason for an end before the end of the tree.
    type Failure;

    /// The failure to look at or open an entry.
    fn failed(&self, path: &Path, error: io::Error) -> Self::Failure;

    /// Takes an entry; of a directory, all that is in it comes next.
    ///
    /// # Errors
    /// The walk ends.
    fn visit(&mut self, entry: &Entry<'_>, opened: &Opened) -> Result<(), Self::Failure>;

    /// Takes the end of a directory.
    ///
    /// # Errors
    /// The walk ends.
    fn leave(&mut self, entry: &Entry<'_>) -> Result<(), Self::Failure>;
}

/// Names of a directory in their order.
fn names(directory: &Directory) -> io::Result<Vec<OsString>> {
    let mut names = directory.entries()?.collect::<io::Result<Vec<_>>>()?;
    names.sort();
    // The next one is the last of the list.
    names.reverse();
    Ok(names)
}

/// A directory that was entered.
struct Level {
    path: PathBuf,
    facts: Facts,
    names: Vec<OsString>,
}

struct Walk<'w, V> {
    visitor: &'w mut V,
    way: Descent,
    levels: Vec<Level>,
}

/// Hands an opened file to a visitor, or a directory with all that is in it. `path` is for messages.
///
/// # Errors
/// What the visitor says; what can't be opened, as the visitor says it.
pub fn walk<V: Visitor>(
    path: &Path,
    (facts, opened): (Facts, Opened),
    visitor: &mut V,
) -> Result<(), V::Failure> {
    let name = path.file_name().unwrap_or_default();
    visitor.visit(&Entry { name, path, facts, depth: 0 }, &opened)?;
    let Opened::Directory(base) = opened else { return Ok(()) };
    let names = names(&base).map_err(|error| visitor.failed(path, error))?;
    let levels = vec![Level { path: path.to_owned(), facts, names }];
    let mut walk = Walk { visitor, way: Descent::new(base), levels };
    while let Some(level) = walk.levels.last_mut() {
        match level.names.pop() {
            Some(name) => {
                let path = level.path.join(&name);
                walk.entry(&name, path)?;
            }
            None => walk.leave()?,
        }
    }
    Ok(())
}

impl<V: Visitor> Walk<'_, V> {
    fn entry(&mut self, name: &OsStr, path: PathBuf) -> Result<(), V::Failure> {
        let depth = self.levels.len();
        let opened = self.way.here().and_then(|here| entry_of(here, name));
        let (facts, opened) = opened.map_err(|error| self.visitor.failed(&path, error))?;
        if depth > DEPTH_MAX {
            return Err(self.visitor.failed(&path, io::Error::other("lies too deep")));
        }
        self.visitor.visit(&Entry { name, path: &path, facts, depth }, &opened)?;
        let Opened::Directory(directory) = opened else { return Ok(()) };
        let listed = names(&directory).and_then(|names| self.way.go(name, directory).map(|()| names));
        let names = listed.map_err(|error| self.visitor.failed(&path, error))?;
        self.levels.push(Level { path, facts, names });
        Ok(())
    }

    fn leave(&mut self) -> Result<(), V::Failure> {
        self.way.leave();
        let Some(Level { path, facts, .. }) = self.levels.pop() else { return Ok(()) };
        let name = path.file_name().unwrap_or_default();
        self.visitor.leave(&Entry { name, path: &path, facts, depth: self.levels.len() })
    }
}

#[cfg(test)]
mod tests;
