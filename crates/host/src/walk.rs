//! Reading a tree of the host: each entry once, opened, in the order of the names.
//!
//! The one walk of every verb that copies such a tree. What a visitor gets was opened below an open directory, and its
//! facts are those of what was opened: whoever renames in the tree meanwhile changes which of his files are copied,
//! and reaches no others.

use crate::attributes::{Handle, Xattrs};
use crate::descent::Descent;
use crate::directory::Directory;
use crate::facts::Facts;
use crate::reach::{Opened, entry_of, split};
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
    /// Its directory; of the beginning the path leads there.
    above: Option<&'w Directory>,
}

impl Entry<'_> {
    /// The extended attributes of what was opened.
    ///
    /// # Errors
    /// The system's.
    pub fn xattrs(&self, opened: &Opened) -> io::Result<Xattrs> {
        match (opened, self.above, split(self.path)) {
            (Opened::File(file), ..) => Handle::of(file)?.xattrs(),
            (Opened::Directory(directory), ..) => Handle::of(directory)?.xattrs(),
            (_, Some(above), _) => above.handle(self.name)?.xattrs(),
            (_, None, Some((above, name))) => Directory::open(above)?.handle(name)?.xattrs(),
            (_, None, None) => Ok(Xattrs::new()),
        }
    }
}

/// Whatever takes the entries of a tree.
pub trait Visitor {
    /// Reason for an end before the end of the tree.
    type Failure;

    /// Takes the failure to look at, open or list an entry, which is left out then, or all that is in it.
    ///
    /// # Errors
    /// The walk ends.
    fn failed(&mut self, path: &Path, error: io::Error) -> Result<(), Self::Failure>;

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
fn names(directory: &mut Directory) -> io::Result<Vec<OsString>> {
    let mut names = directory.names()?;
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
/// Errors of the visitor; what can't be opened, as the visitor says it.
pub fn walk<V: Visitor>(
    path: &Path,
    (facts, opened): (Facts, Opened),
    visitor: &mut V,
) -> Result<(), V::Failure> {
    let name = path.file_name().unwrap_or_default();
    visitor.visit(&Entry { name, path, facts, depth: 0, above: None }, &opened)?;
    let Opened::Directory(mut base) = opened else { return Ok(()) };
    let names = listed(visitor, path, &mut base)?;
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

/// The names of a directory, the last first; none of one that can't be listed, if the walk goes on then.
fn listed<V: Visitor>(
    visitor: &mut V,
    path: &Path,
    directory: &mut Directory,
) -> Result<Vec<OsString>, V::Failure> {
    match names(directory) {
        Ok(names) => Ok(names),
        Err(error) => visitor.failed(path, error).map(|()| Vec::new()),
    }
}

impl<V: Visitor> Walk<'_, V> {
    fn entry(&mut self, name: &OsStr, path: PathBuf) -> Result<(), V::Failure> {
        let depth = self.levels.len();
        let opened = self.way.here().and_then(|here| {
            let (facts, opened) = entry_of(here, name)?;
            match opened {
                Opened::Directory(_) if depth > DEPTH_MAX => Err(io::Error::other("lies too deep")),
                opened => Ok((here, facts, opened)),
            }
        });
        let (above, facts, opened) = match opened {
            Ok(found) => found,
            Err(error) => return self.visitor.failed(&path, error),
        };
        let entry = Entry { name, path: &path, facts, depth, above: Some(above) };
        self.visitor.visit(&entry, &opened)?;
        let Opened::Directory(mut directory) = opened else { return Ok(()) };
        let names = listed(self.visitor, &path, &mut directory)?;
        if let Err(error) = self.way.go(name, directory) {
            self.visitor.failed(&path, error)?;
            return self.visitor.leave(&Entry { name, path: &path, facts, depth, above: None });
        }
        self.levels.push(Level { path, facts, names });
        Ok(())
    }

    fn leave(&mut self) -> Result<(), V::Failure> {
        self.way.leave();
        let Some(Level { path, facts, .. }) = self.levels.pop() else { return Ok(()) };
        let name = path.file_name().unwrap_or_default();
        self.visitor.leave(&Entry { name, path: &path, facts, depth: self.levels.len(), above: None })
    }
}

#[cfg(test)]
mod tests;
