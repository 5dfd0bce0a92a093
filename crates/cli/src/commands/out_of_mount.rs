//! Files out of a mount, by the kernel, each whole or not at all: what `plat get` does there.
//!
//! A path in the mount means what it means in the image: its links stay below the directory that was named. What is
//! below it, and the copy, are reached by open directories only.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use platfs_host::{
    CopiedAttributes, Descent, Directory, Entry, Facts, Handle, Kind, NewDirectory, Opened, OutputLocation,
    Privacy, Visitor, Xattrs, inside, walk,
};

use super::get::{outside, place};
use super::kept::{Links, Lost};
use super::live;
use crate::bulk::Done;
use crate::commands::replaced::EXISTS;
use crate::console::{Console, Failure};
use crate::door::output::Output;
use crate::text::Shown;

/// How to get.
#[derive(Clone, Copy)]
pub(super) struct How {
    pub(super) recursive: bool,
    pub(super) force: bool,
}

/// Copies a file of a mount, or a directory with all that is in it, to a name of the host.
pub(super) fn get(
    (console, done): (&mut Console<'_>, &mut Done),
    (directory, source): (&OsStr, &OsStr),
    out: &Path,
    how: How,
) -> Result<(), Failure> {
    let shown = live::below(directory, source);
    let failed = |error: io::Error| outside(&shown, error);
    let mount = Directory::open(directory).map_err(failed)?;
    let found = inside(&mount, Path::new(source)).map_err(failed)?;
    if matches!(found.1, Opened::Directory(_)) && !how.recursive {
        return Err(outside(&shown, "is a directory; --recursive copies it"));
    }
    if out == Path::new("-") {
        let Opened::File(file) = &found.1 else {
            return Err(outside(&shown, "is no file, and only contents of files go to standard output"));
        };
        return match std::io::copy(&mut &*file, &mut console.out) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::from(error)),
            copied => copied.map(drop).map_err(failed),
        };
    }
    let place = place(source, out)?;
    let target = &place.path;
    if place.is_taken() && (!how.force || found.0.kind == Kind::Directory) {
        let what = match found.0.kind {
            Kind::Directory => "exists; directories are not replaced",
            _ => EXISTS,
        };
        return Err(Failure::exists(Shown(target.as_os_str().as_bytes()), what));
    }
    match &found.1 {
        Opened::File(file) => {
            file_to(file, &found.0, (&place, how.force))?;
            live::add(done, &Done { files: 1, bytes: found.0.size, ..Done::default() });
            Ok(())
        }
        Opened::Directory(_) => {
            let there = |error: io::Error| outside(target, error);
            let new = place
                .directory
                .try_clone()
                .and_then(|above| NewDirectory::below(above, &place.name))
                .map_err(there)?;
            let way = Descent::new(new.directory().try_clone().map_err(there)?);
            let links = Links::new(new.directory()).map_err(there)?;
            let (lists, lost) = (Vec::new(), Lost::default());
            let mut copies = Copies { console, done, way, target, links, lists, lost };
            walk(&shown, found, &mut copies)?;
            let Copies { console, lost, .. } = copies;
            lost.say(console, &shown);
            new.finish().map_err(there)
        }
        Opened::Link(_) | Opened::Other => Err(outside(&shown, NO_COPY)),
    }
}

const NO_COPY: &str = "can't be copied by itself";

/// A file beside its place, moved there when it is whole.
fn file_to(
    from: &std::fs::File,
    facts: &Facts,
    (place, force): (&OutputLocation, bool),
) -> Result<(), Failure> {
    let copy = || {
        let output = Output::begin(place, 0, Privacy::Private, force)?;
        let fresh = output.file()?;
        platfs_host::copy(from, &fresh, facts.size)?;
        dress(&Handle::of(&fresh)?, facts)?;
        output.finish()
    };
    copy().map_err(|error: io::Error| outside(&place.path, error))
}

/// Gives a copy its permissions and times. Set-id and sticky bits have no meaning for another owner.
fn dress(copy: &Handle, facts: &Facts) -> io::Result<()> {
    copy.dress(CopiedAttributes { owner: None, xattrs: &Xattrs::new(), facts }).map(drop)
}

/// Makes copies below a new directory.
struct Copies<'a, 'c> {
    console: &'a mut Console<'c>,
    done: &'a mut Done,
    way: Descent,
    /// The name that the directory gets, for messages.
    target: &'a Path,
    /// The extended attributes of the directories of the way.
    lists: Vec<Xattrs>,
    links: Links,
    lost: Lost,
}

impl Copies<'_, '_> {
    fn make(&mut self, entry: &Entry<'_>, opened: &Opened) -> io::Result<()> {
        let (name, facts) = (entry.name, &entry.facts);
        let xattrs = entry.xattrs(opened)?;
        if let Opened::Directory(_) = opened {
            self.lists.push(xattrs);
            self.done.directories += 1;
            // The one that was named is there.
            if entry.depth > 0 {
                self.way.make(name)?;
                self.links.enter(name);
            }
            return Ok(());
        }
        let here = self.way.here()?;
        if let Some(first) = self.links.first(facts.id).filter(|_| facts.links > 1) {
            let (above, known) = first?;
            self.done.files += 1;
            return above.link(known, here, name);
        }
        let copy = match opened {
            Opened::File(from) => {
                let fresh = here.create(name, 0o600)?;
                platfs_host::copy(from, &fresh, facts.size)?;
                self.done.bytes += facts.size;
                Handle::of(&fresh)?
            }
            Opened::Link(target) => {
                here.symlink(target.as_bytes(), name)?;
                here.handle(name)?
            }
            Opened::Directory(_) | Opened::Other => {
                here.make_node(name, facts.kind, facts.device)?;
                here.handle(name)?
            }
        };
        self.done.files += 1;
        if facts.links > 1 {
            self.links.note(facts.id, name);
        }
        self.dress(&copy, facts, &xattrs)
    }

    /// Gives a copy all that its original has, as far as possible.
    fn dress(&mut self, copy: &Handle, facts: &Facts, xattrs: &Xattrs) -> io::Result<()> {
        let owner = Some((facts.uid, facts.gid));
        self.lost.add(copy.dress(CopiedAttributes { owner, xattrs, facts })?);
        Ok(())
    }
}

impl Visitor for Copies<'_, '_> {
    type Failure = Failure;

    fn failed(&mut self, path: &Path, error: io::Error) -> Result<(), Failure> {
        Err(outside(path, error))
    }

    fn visit(&mut self, entry: &Entry<'_>, opened: &Opened) -> Result<(), Failure> {
        match self.make(entry, opened) {
            // A device is the administrator's to make.
            Err(error)
                if matches!(opened, Opened::Other) && error.kind() == io::ErrorKind::PermissionDenied =>
            {
                self.console.warn(format!("{}: left out: {error}", entry.path.display()));
                Ok(())
            }
            made => made.map_err(|error| outside(self.target, format!("{}: {error}", entry.path.display()))),
        }
    }

    fn leave(&mut self, entry: &Entry<'_>) -> Result<(), Failure> {
        let xattrs = self.lists.pop().unwrap_or_default();
        let here = self.way.here().and_then(Handle::of);
        let made = here.and_then(|here| self.dress(&here, &entry.facts, &xattrs));
        self.way.leave();
        self.links.leave();
        made.map_err(|error| outside(self.target, error))
    }
}
