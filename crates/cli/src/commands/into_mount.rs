//! Files of the host into a mount, each whole or not at all: what `plat put` does there.
//!
//! A path in the mount means what it means in the image: its links stay below the directory that was named. What is
//! below it, and the tree of the host, are reached by open directories only.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use platfs_host::{
    Descent, Directory, Entry, Facts, Handle, Opened, Place, Times, Visitor, inside, named, walk,
};
use platfs_image::source::SourceOptions;

use super::live;
use crate::console::{Console, Failure};
use crate::control::client::Found;
use crate::control::protocol::{Verb, flag};
use crate::progress;

/// How to put.
#[derive(Clone, Copy)]
pub(super) struct How {
    pub(super) recursive: bool,
    pub(super) force: bool,
    pub(super) owner: Option<(u32, u32)>,
}

/// Copies files to the last of the paths, which lies below a directory of a mount.
pub(super) fn put(
    console: &mut Console<'_>,
    directory: &OsStr,
    paths: &[OsString],
    how: &How,
) -> Result<(), Failure> {
    let Some((target, sources)) = paths.split_last() else { return Err(live::no_path(directory)) };
    let mount = Directory::open(directory).map_err(|error| live::host(directory, error))?;
    let target = Target { mount, path: Path::new(target), shown: live::below(directory, target) };
    if sources.len() > 1 && target.directory().is_err() {
        return Err(live::host(
            target.shown.as_os_str(),
            "several files need an existing directory to go to",
        ));
    }
    for source in sources {
        let done = target.place(source).and_then(|place| one(console, Path::new(source), place, *how));
        if let Err(failure) = done {
            console.complain(failure)?;
        }
    }
    live::settle(directory)
}

/// Where files go.
struct Target<'a> {
    mount: Directory,
    path: &'a Path,
    shown: PathBuf,
}

impl Target<'_> {
    fn directory(&self) -> io::Result<Directory> {
        directory_at(&self.mount, self.path)
    }

    /// Where something goes that is to have the name of `source`: into the target if that is a directory, else exactly
    /// there.
    fn place(&self, source: &OsStr) -> Result<Place, Failure> {
        if let Ok(directory) = self.directory() {
            let name = Path::new(source).file_name().filter(|_| source != "-");
            let name = name.ok_or_else(|| live::host(source, "has no name for a copy"))?.to_owned();
            let path = self.shown.join(&name);
            return Ok(Place { directory, name, path });
        }
        let failed = |error: io::Error| live::host(self.shown.as_os_str(), error);
        let name = self.path.file_name();
        let name = name.ok_or_else(|| live::host(self.shown.as_os_str(), "is no name of a file"))?;
        let above = self.path.parent().filter(|above| !above.as_os_str().is_empty());
        let above = above.unwrap_or(Path::new("."));
        let directory = directory_at(&self.mount, above).map_err(failed)?;
        Ok(Place { directory, name: name.to_owned(), path: self.shown.clone() })
    }
}

fn directory_at(mount: &Directory, path: &Path) -> io::Result<Directory> {
    match inside(mount, path)?.1 {
        Opened::Directory(directory) => Ok(directory),
        _ => Err(io::ErrorKind::NotADirectory.into()),
    }
}

fn one(console: &mut Console<'_>, source: &Path, place: Place, how: How) -> Result<(), Failure> {
    let failed = |error: io::Error| live::host(source.as_os_str(), error);
    let Place { directory, name, path } = place;
    let mut copies = Copies { console, way: Descent::new(directory), name, path, how };
    if source == Path::new("-") {
        let spool = SourceOptions::new().spooled(progress::stdin(), "standard input");
        let spool = spool.map_err(|error| Failure::Failed(error.to_string()))?;
        let file = spool.file().ok_or_else(|| Failure::Failed("standard input: no file".into()))?;
        let name = copies.name.clone();
        return copies.file(file, &name);
    }
    walk(source, named(source).map_err(failed)?, &mut copies)
}

/// Makes copies of a tree of the host.
struct Copies<'a, 'c> {
    console: &'a mut Console<'c>,
    way: Descent,
    /// Name and path of the first one.
    name: OsString,
    path: PathBuf,
    how: How,
}

impl Copies<'_, '_> {
    fn there(&self, error: io::Error) -> Failure {
        live::host(self.path.as_os_str(), error)
    }

    /// A file, by the server, which does it at once.
    fn file(&mut self, file: &File, name: &OsStr) -> Result<(), Failure> {
        let flags = if self.how.force { flag::FORCE } else { 0 };
        let shown = if self.way.depth() == 0 { self.path.clone() } else { self.path.join(name) };
        let found = self.way.here().and_then(|here| Found::below(here, name, &shown));
        let found = found.map_err(|error| self.there(error))?;
        live::ask_with(self.console, (Verb::Put, flags), found, file)?;
        self.own(name)
    }

    fn own(&mut self, name: &OsStr) -> Result<(), Failure> {
        let Some((uid, gid)) = self.how.owner else { return Ok(()) };
        let owned = self.way.here().and_then(|here| here.handle(name)?.set_owner(uid, gid));
        owned.map_err(|error| self.there(error))
    }

    /// A link, in place of what is no directory where that is asked for.
    fn link(&mut self, target: &OsStr, name: &OsStr) -> Result<(), Failure> {
        let force = self.how.force;
        let made = self.way.here().and_then(|here| match here.symlink(target.as_bytes(), name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && force => {
                here.remove_file(name)?;
                here.symlink(target.as_bytes(), name)
            }
            made => made,
        });
        made.map_err(|error| self.there(error))?;
        self.own(name)
    }

    /// What a directory gets when it is full.
    fn dress(&mut self, facts: &Facts) -> io::Result<()> {
        let made = Handle::of(self.way.here()?)?;
        if let Some((uid, gid)) = self.how.owner {
            made.set_owner(uid, gid)?;
        }
        made.set_mode(facts.mode)?;
        made.set_times(&Times { accessed: facts.accessed, modified: facts.modified })
    }
}

impl Visitor for Copies<'_, '_> {
    type Failure = Failure;

    fn failed(&self, path: &Path, error: io::Error) -> Failure {
        live::host(path.as_os_str(), error)
    }

    fn visit(&mut self, entry: &Entry<'_>, opened: &Opened) -> Result<(), Failure> {
        let name = if entry.depth == 0 { self.name.clone() } else { entry.name.to_owned() };
        let refused = |what| Err(live::host(entry.path.as_os_str(), what));
        match opened {
            Opened::File(file) => self.file(file, &name),
            Opened::Link(target) => self.link(target, &name),
            Opened::Directory(_) if !self.how.recursive => refused("is a directory; --recursive copies it"),
            Opened::Directory(_) => {
                let made = self.way.make(&name);
                made.map_err(|error| self.there(error))
            }
            Opened::Other => refused("is neither a file, a directory nor a symbolic link"),
        }
    }

    fn leave(&mut self, entry: &Entry<'_>) -> Result<(), Failure> {
        let dressed = self.dress(&entry.facts);
        self.way.leave();
        dressed.map_err(|error| self.there(error))
    }
}
