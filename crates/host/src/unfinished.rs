//! Names of what is not whole yet, for a process that is asked to end: it takes them away first.
//!
//! Most new files have no name until they are whole, and need nothing of this.

use crate::directory::Directory;
use crate::facts::{Id, Kind};
use crate::random;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Start of the names of what is not whole yet.
pub(crate) const UNFINISHED: &str = ".plat-";

/// A name, and what was made there.
struct UnfinishedName {
    number: u64,
    directory: Directory,
    name: OsString,
    made: Id,
}

static NAMES: Mutex<Vec<UnfinishedName>> = Mutex::new(Vec::new());
static NEXT: AtomicU64 = AtomicU64::new(0);

fn names() -> MutexGuard<'static, Vec<UnfinishedName>> {
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
        names().push(UnfinishedName {
            number,
            directory: directory.try_clone()?,
            name: name.to_owned(),
            made,
        });
        Ok(Unfinished(number))
    }

    /// Gives what is whole now its own name, by `rename`. Nothing is abandoned meanwhile: what is half removed must not get
    /// that name.
    ///
    /// # Errors
    /// It was abandoned; those of `rename`.
    pub(crate) fn complete(&self, rename: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut names = names();
        let at = names.iter().position(|named| named.number == self.0);
        // Something of what was abandoned may be left.
        let at = at.ok_or(ErrorKind::Interrupted)?;
        rename()?;
        names.swap_remove(at);
        Ok(())
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

fn abandon_those(are_meant: impl Fn(&UnfinishedName) -> bool) {
    for UnfinishedName { directory, name, made, .. } in names().extract_if(.., |named| are_meant(named)) {
        // Nobody is left to hear of an error. Other threads may go on filling a directory until it is gone. A name that
        // they add behind the removal keeps the directory, so the removal begins again, a bounded number of times.
        for _ in 0..ROUNDS {
            if !directory.look(&name).is_ok_and(|facts| facts.id == made) {
                break;
            }
            match directory.remove_tree(&name).map_err(|error| error.kind()) {
                Err(ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists | ErrorKind::NotFound) => {}
                _ => break,
            }
        }
    }
}

/// Attempts to remove a directory that is filled meanwhile.
const ROUNDS: u32 = 1000;

/// Tries to get a lock that others hold for the moment of a look.
const TRIES: u32 = 200;
/// Time between two tries.
const PAUSE: Duration = Duration::from_millis(1);
/// Time that a directory has from being made to being marked, before it counts as left behind.
const GRACE: Duration = Duration::from_millis(100);

/// Has others see that a directory is worked on. A look at it holds the lock for a moment, which is waited for; somebody who
/// holds it to annoy is not. Where the file system has no locks they can't see it.
pub(crate) fn mark_as_used(directory: &Directory) {
    mark_as_used_after(directory, || std::thread::sleep(PAUSE));
}

fn mark_as_used_after(directory: &Directory, mut pause: impl FnMut()) {
    for _ in 0..TRIES {
        match flock(directory, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => pause(),
            _ => return,
        }
    }
}

/// Names of directories in this one that are not whole and that nobody works on any more: a command of this user was
/// killed.
#[must_use]
pub fn left_behind(above: &Directory) -> Vec<OsString> {
    left_behind_after(above, || std::thread::sleep(GRACE))
}

/// Looks at what seems to be left again after a pause: it may have been made just now.
fn left_behind_after(above: &Directory, pause: impl FnOnce()) -> Vec<OsString> {
    let names = above.entries().into_iter().flatten().flatten();
    let mut names: Vec<OsString> = names.filter(|name| is_left_behind(above, name)).collect();
    if !names.is_empty() {
        pause();
        names.retain(|name| is_left_behind(above, name));
    }
    names
}

fn is_left_behind(above: &Directory, name: &OsStr) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let is_ours = |name: &OsStr| {
        let bytes = name.as_bytes();
        bytes.strip_prefix(UNFINISHED.as_bytes()).is_some_and(random::is_random)
    };
    let is_own = || above.look(name).is_ok_and(|facts| facts.kind == Kind::Directory && facts.uid == own);
    // What is locked by this look is let go with its handle.
    is_ours(name)
        && is_own()
        && above.enter(name).is_ok_and(|held| flock(&held, FlockOperation::NonBlockingLockExclusive).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_nobody_works_on_is_left_behind() {
        let above = tempfile::tempdir().unwrap();
        let directory = Directory::open(above.path()).unwrap();
        let new = crate::NewDirectory::below(directory.try_clone().unwrap(), OsStr::new("out")).unwrap();
        let others =
            [".plat-short", ".plat-abcdefgh234567zz", "plat-abcdefgh234567zzz", ".plat-\x1b[2Jabcdefgh2345"];
        for name in others {
            fs::create_dir(above.path().join(name)).unwrap();
        }
        fs::write(above.path().join(".plat-zz234567abcdefgh"), "a file").unwrap();
        assert_eq!(left_behind(&directory), [".plat-abcdefgh234567zz"]);
        // One that was made just before the look, and is marked only then.
        let other = directory.enter(OsStr::new(".plat-abcdefgh234567zz")).unwrap();
        assert!(left_behind_after(&directory, || mark_as_used(&other)).is_empty());
        drop(new);
    }

    #[test]
    fn a_look_at_a_new_directory_does_not_keep_it_unmarked() {
        let above = tempfile::tempdir().unwrap();
        let open = || Directory::open(above.path()).unwrap();
        let (mut looked, own) = (Some(open()), open());
        flock(looked.as_ref().unwrap(), FlockOperation::NonBlockingLockExclusive).unwrap();
        mark_as_used_after(&own, || drop(looked.take()));
        assert!(flock(open(), FlockOperation::NonBlockingLockExclusive).is_err());
    }

    /// Fills a new directory `out` while it is abandoned, and gives it its name; the number of files that it has then.
    fn abandoned_while_filled(most: u32) -> Option<usize> {
        let above = tempfile::tempdir().unwrap();
        let directory = Directory::open(above.path()).unwrap();
        let id = directory.facts().unwrap().id;
        let new = crate::NewDirectory::below(directory, OsStr::new("out")).unwrap();
        let inside = new.directory().try_clone().unwrap();
        // What was not whole is held until after the look, as a process that ends holds it.
        let held = std::thread::scope(|scope| {
            let filling = scope.spawn(move || {
                let made = (0..most).all(|number| new.directory().create(format!("{number}"), 0o600).is_ok());
                if made { Err(new.finish()) } else { Ok(new) }
            });
            while inside.look((most / 2).to_string()).is_err() {}
            abandon_those(|named| named.directory.facts().unwrap().id == id);
            filling.join().unwrap()
        });
        let left: Vec<_> = fs::read_dir(above.path()).unwrap().map(|one| one.unwrap().file_name()).collect();
        drop(held);
        assert!(left.iter().all(|name| name == "out"), "{left:?}");
        fs::read_dir(above.path().join("out")).ok().map(Iterator::count)
    }

    #[test]
    fn what_is_filled_meanwhile_goes_whole_or_is_whole() {
        for most in (0..30).map(|round| 20 + 4 * round) {
            let left = abandoned_while_filled(most);
            assert!(left.is_none_or(|count| count == most as usize), "{left:?} of {most}");
        }
    }

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
