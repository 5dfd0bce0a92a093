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
    CopiedAttributes, Descent, Directory, Entry, Facts, Handle, Kind, Opened, OutputLocation, Visitor,
    Xattrs, inside, named, walk,
};
use platfs_image::source::SourceOptions;

use super::kept::{Links, Lost};
use super::live;
use super::put::{LeftOut, refused_alone};
use crate::bulk::Done;
use crate::console::{Console, Failure};
use crate::control::client::Found;
use crate::control::protocol::{Verb, flag};
use crate::larger;
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
) -> Result<Done, Failure> {
    let Some((target, sources)) = paths.split_last() else { return Err(live::no_path(directory)) };
    let mount = Directory::open(directory).map_err(|error| live::host(directory, error))?;
    let target = Target { mount, path: Path::new(target), shown: live::below(directory, target) };
    if sources.len() > 1 && target.directory().is_err() {
        return Err(live::host(
            target.shown.as_os_str(),
            "several files need an existing directory to go to",
        ));
    }
    let mut sum = Done::default();
    for source in sources {
        let place = target.place(source);
        let done = place.and_then(|place| one((console, &mut sum), Path::new(source), place, *how));
        if let Err(failure) = done {
            console.complain(larger::remedied(failure, directory, || larger::bytes_of(source)))?;
        }
    }
    live::settle(directory)?;
    Ok(sum)
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
    fn place(&self, source: &OsStr) -> Result<OutputLocation, Failure> {
        if let Ok(directory) = self.directory() {
            let name = Path::new(source).file_name().filter(|_| source != "-");
            let name = name.ok_or_else(|| live::host(source, "has no name for a copy"))?.to_owned();
            let path = self.shown.join(&name);
            return Ok(OutputLocation { directory, name, path });
        }
        let failed = |error: io::Error| live::host(self.shown.as_os_str(), error);
        let name = self.path.file_name();
        let name = name.ok_or_else(|| live::host(self.shown.as_os_str(), "is no name of a file"))?;
        let above = self.path.parent().filter(|above| !above.as_os_str().is_empty());
        let above = above.unwrap_or(Path::new("."));
        let directory = directory_at(&self.mount, above).map_err(failed)?;
        Ok(OutputLocation { directory, name: name.to_owned(), path: self.shown.clone() })
    }
}

/// A failure of the kernel in the mount: what is full there is the volume.
fn in_mount(path: &Path, error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::StorageFull => live::host(path.as_os_str(), platfs::Error::NoSpace),
        _ => live::host(path.as_os_str(), error),
    }
}

fn directory_at(mount: &Directory, path: &Path) -> io::Result<Directory> {
    match inside(mount, path)?.1 {
        Opened::Directory(directory) => Ok(directory),
        _ => Err(io::ErrorKind::NotADirectory.into()),
    }
}

fn one(
    (console, done): (&mut Console<'_>, &mut Done),
    source: &Path,
    place: OutputLocation,
    how: How,
) -> Result<(), Failure> {
    let failed = |error: io::Error| live::host(source.as_os_str(), error);
    let OutputLocation { directory, name, path } = place;
    let links = Links::new(&directory).map_err(failed)?;
    let mut copies = Copies {
        console,
        done,
        way: Descent::new(directory),
        links,
        lists: Vec::new(),
        lost: Lost::default(),
        left_out: LeftOut::default(),
        name,
        path,
        how,
    };
    if source == Path::new("-") {
        let spool = SourceOptions::new().spooled(progress::stdin(), "standard input");
        let spool = spool.map_err(|error| Failure::Failed(error.to_string().into()))?;
        let file = spool.file().ok_or_else(|| Failure::Failed("standard input: no file".into()))?;
        let (name, path) = (copies.name.clone(), copies.path.clone());
        let copied = copies.contents(file, &name).and_then(|copy| copies.own(&copy));
        let mount = larger::mount_of(path.as_os_str());
        return copied.map_err(|failure| larger::remedied(failure, mount, || spool.bytes()));
    }
    let found = named(source).map_err(failed)?;
    if let Some(what) = refused_alone(&found).filter(|_| !how.recursive) {
        return Err(live::host(source.as_os_str(), what));
    }
    walk(source, found, &mut copies)?;
    let Copies { console, lost, left_out, .. } = copies;
    lost.say(console, source);
    left_out.into_result(source.as_os_str())
}

/// A copy without the lists that its directory hands down. What lies in the first directory inherits none then.
fn bare(copy: Handle, depth: usize) -> io::Result<Handle> {
    if depth == 0 {
        copy.inherit_nothing()?;
    }
    Ok(copy)
}

/// Makes copies of a tree of the host.
struct Copies<'a, 'c> {
    console: &'a mut Console<'c>,
    done: &'a mut Done,
    way: Descent,
    links: Links,
    /// The extended attributes of the directories of the way.
    lists: Vec<Xattrs>,
    lost: Lost,
    left_out: LeftOut,
    /// Name and path of the first one.
    name: OsString,
    path: PathBuf,
    how: How,
}

impl Copies<'_, '_> {
    fn there(&self, error: io::Error) -> Failure {
        in_mount(&self.path, error)
    }

    /// A file, by the server, which does it at once. It says which one it has made: that one gets its owner and set-id bits,
    /// and no other that somebody puts in its place.
    fn contents(&mut self, file: &File, name: &OsStr) -> Result<Handle, Failure> {
        let flags = if self.how.force { flag::FORCE } else { 0 };
        let shown = if self.way.depth() == 0 { self.path.clone() } else { self.path.join(name) };
        let found = self.way.here().and_then(|here| Found::below(here, name, &shown));
        let found = found.map_err(|error| self.there(error))?;
        let (done, lines) = live::ask_with((Verb::Put, flags), found, file)?;
        self.done.files += 1;
        self.done.bytes += done.bytes;
        let number = lines.first().and_then(|line| line.parse().ok());
        let copy = self.way.here().and_then(|here| here.made(name, Kind::File));
        let copy = copy.and_then(|copy| match copy.facts()?.id.inode {
            inode if Some(inode) == number => Ok(copy),
            _ => Err(io::Error::other("another file took the place of the new one")),
        });
        copy.map_err(|error| live::host(shown.as_os_str(), error))
    }

    fn own(&self, copy: &Handle) -> Result<(), Failure> {
        let Some((uid, gid)) = self.how.owner else { return Ok(()) };
        copy.set_owner(uid, gid).map_err(|error| self.there(error))
    }

    /// Makes what the kernel makes at once, in place of what is no directory where that is asked for.
    fn make<T>(&mut self, name: &OsStr, made: impl Fn(&Directory) -> io::Result<T>) -> io::Result<T> {
        let (here, force) = (self.way.here()?, self.how.force);
        match made(here) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && force => {
                here.remove_file(name)?;
                made(here)
            }
            done => done,
        }
    }

    fn entry(&mut self, entry: &Entry<'_>, opened: &Opened, name: &OsStr) -> Result<(), Failure> {
        let there = in_mount;
        let has_others = self.how.recursive && entry.facts.links > 1;
        if let Some(first) = self.links.first(entry.facts.id).filter(|_| has_others) {
            let linked =
                first.and_then(|(above, known)| self.make(name, |here| above.link(&known, here, name)));
            self.done.files += u64::from(linked.is_ok());
            return linked.map_err(|error| there(&self.path, error));
        }
        let kind = entry.facts.kind;
        let copy = match opened {
            Opened::File(file) => self.contents(file, name)?,
            Opened::Link(target) => {
                let make = |here: &Directory| here.symlink(target.as_bytes(), name);
                let made = self.make(name, |here| make(here).and_then(|()| here.made(name, kind)));
                let made = made.map_err(|error| there(&self.path, error))?;
                self.done.files += 1;
                made
            }
            Opened::Directory(_) | Opened::Other => {
                let make = |here: &Directory| here.make_node(name, kind, entry.facts.device);
                match self.make(name, |here| make(here).and_then(|()| here.made(name, kind))) {
                    // A device is the administrator's to make.
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                        self.left_out.note(entry.path, &error.to_string());
                        return Ok(());
                    }
                    made => {
                        let made = made.map_err(|error| there(&self.path, error))?;
                        self.done.files += 1;
                        made
                    }
                }
            }
        };
        if has_others {
            self.links.note(entry.facts.id, name);
        }
        if !self.how.recursive {
            return self.own(&copy);
        }
        let xattrs = self.xattrs(entry, opened);
        let copy = if kind == Kind::Symlink { Ok(copy) } else { bare(copy, entry.depth) };
        self.dress(copy, &entry.facts, &xattrs)
    }

    fn xattrs(&mut self, entry: &Entry<'_>, opened: &Opened) -> Xattrs {
        entry.xattrs(opened).unwrap_or_else(|error| {
            self.left_out.note(entry.path, &format!("its attributes: {error}"));
            Xattrs::new()
        })
    }

    fn dress(&mut self, copy: io::Result<Handle>, facts: &Facts, xattrs: &Xattrs) -> Result<(), Failure> {
        let owner = Some(self.how.owner.unwrap_or((facts.uid, facts.gid)));
        let lacks = copy.and_then(|copy| copy.dress(CopiedAttributes { owner, xattrs, facts }));
        self.lost.add(lacks.map_err(|error| self.there(error))?);
        Ok(())
    }
}

impl Visitor for Copies<'_, '_> {
    type Failure = Failure;

    fn failed(&mut self, path: &Path, error: io::Error) -> Result<(), Failure> {
        self.left_out.note(path, &error.to_string());
        Ok(())
    }

    fn visit(&mut self, entry: &Entry<'_>, opened: &Opened) -> Result<(), Failure> {
        let name = if entry.depth == 0 { self.name.clone() } else { entry.name.to_owned() };
        if !matches!(opened, Opened::Directory(_)) {
            return self.entry(entry, opened, &name);
        }
        let xattrs = self.xattrs(entry, opened);
        let made = self.way.make(&name).and_then(|()| Handle::of(self.way.here()?));
        made.and_then(|made| bare(made, entry.depth)).map_err(|error| self.there(error))?;
        self.done.directories += 1;
        self.links.enter(&name);
        self.lists.push(xattrs);
        Ok(())
    }

    fn leave(&mut self, entry: &Entry<'_>) -> Result<(), Failure> {
        let xattrs = self.lists.pop().unwrap_or_default();
        let made = self.way.here().and_then(Handle::of);
        let dressed = self.dress(made, &entry.facts, &xattrs);
        self.way.leave();
        self.links.leave();
        dressed
    }
}
