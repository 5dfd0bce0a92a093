//! Names of what is not whole yet, for a process that is asked to end: it takes them away first.
//!
//! Most new files have no name until they are whole, and need nothing of this.

use crate::directory::Directory;
use crate::facts::Id;
use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A name, and what was made there.
struct Named {
    number: u64,
    directory: Directory,
    name: OsString,
    made: Id,
}

static NAMES: Mutex<Vec<Named>> = Mutex::new(Vec::new());
static NEXT: AtomicU64 = AtomicU64::new(0);

fn names() -> MutexGuard<'static, Vec<Named>> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file or directory that is not whole while this lives. On errors it is removed by whoever made it.
#[derive(Debug)]
pub(crate) struct Unfinished(u64);

impl Unfinished {
    /// Notes a name that was made just now.
    ///
    /// # Errors
    /// It is gone; no handle of the directory is to be had.
    pub(crate) fn new(directory: &Directory, name: &OsStr) -> io::Result<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let made = directory.look(name)?.id;
        names().push(Named { number, directory: directory.try_clone()?, name: name.to_owned(), made });
        Ok(Unfinished(number))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        names().retain(|named| named.number != self.0);
    }
}

/// Removes all that is unfinished, for a process that ends now: whoever is at work on it fails. Only what was made under a
/// name is removed, whatever has the name by now.
pub fn abandon() {
    abandon_those(|_| true);
}

fn abandon_those(are_meant: impl Fn(&Named) -> bool) {
    for Named { directory, name, made, .. } in names().extract_if(.., |named| are_meant(named)) {
        if directory.look(&name).is_ok_and(|facts| facts.id == made) {
            // Best effort: nobody is left to hear of an error.
            let _ = directory.remove_tree(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_what_is_unfinished_goes() {
        let above = tempfile::tempdir().unwrap();
        let directory = Directory::open(above.path()).unwrap();
        let path = |name: &str| above.path().join(name);
        for name in ["whole", "file", "replaced"] {
            fs::write(path(name), "").unwrap();
        }
        fs::create_dir_all(path("tree").join("below")).unwrap();
        let noted = |name: &str| Unfinished::new(&directory, OsStr::new(name)).unwrap();
        drop(noted("whole"));
        let _noted = [noted("file"), noted("tree"), noted("replaced")];
        fs::write(path("other"), "").unwrap();
        fs::rename(path("other"), path("replaced")).unwrap();
        // Other tests of this process are at work on theirs.
        let id = |directory: &Directory| directory.facts().unwrap().id;
        abandon_those(|named| id(&named.directory) == id(&directory));
        let left = ["whole", "file", "tree", "replaced"].map(|name| path(name).exists());
        assert_eq!(left, [true, false, false, true]);
    }
}
