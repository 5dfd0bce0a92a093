//! Removal of a tree that was made and shall not stay.

use crate::directory::Directory;
use crate::facts::Kind;
use crate::random;
use std::ffi::{OsStr, OsString};
use std::io;

/// Directories kept open below each other. A tree that is deeper is cut: its lower part is moved to the top.
const OPEN: usize = 64;

impl Directory {
    /// Removes an entry with all that is in it; links are removed, not followed.
    ///
    /// # Errors
    /// Something can't be removed; the rest may be gone.
    pub fn remove_tree(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        let name = name.as_ref();
        if self.look(name)?.kind != Kind::Directory {
            return self.remove_file(name);
        }
        self.enter(name)?.clear()?;
        self.remove_directory(name)
    }

    /// Removes all that is in the directory.
    fn clear(&self) -> io::Result<()> {
        // The stack holds each directory with its name in the one before it.
        let mut stack: Vec<(Directory, OsString)> = vec![(self.try_clone()?, OsString::new())];
        while let Some((here, _)) = stack.last() {
            match first_directory(here)? {
                Some(below) if stack.len() > OPEN => here.rename(&below, self, random::name(".deep-")?)?,
                Some(below) => {
                    let entered = here.enter(&below)?;
                    stack.push((entered, below));
                }
                None => {
                    let name = stack.pop().map(|(_, name)| name).unwrap_or_default();
                    if let Some((above, _)) = stack.last() {
                        above.remove_directory(&name)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Removes files of a directory until the first directory in it.
fn first_directory(here: &Directory) -> io::Result<Option<OsString>> {
    for name in here.entries()? {
        let name = name?;
        if here.look(&name)?.kind == Kind::Directory {
            return Ok(Some(name));
        }
        here.remove_file(&name)?;
    }
    Ok(None)
}
