//! `plat put`: copies files into an image, each whole or not at all.
//!
//! A file is written without a name and gets it when it is whole; an existing one is replaced by a
//! rename.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::Args;
use ondisk::inode::{FileType, Timestamp};
use ondisk::units::InodeNumber;
use platfs::{Attributes, Error, Kind, NewInode, Replace, Times, Volume};
use platfs_host::{Entry, Facts, Kind as HostKind, Opened, Visitor, walk};

use super::{into_mount, live};
use crate::console::{Console, Failure};
use crate::owner::parse_owner;
use crate::progress;
use crate::reading::OpenImage;
use crate::text::Shown;
use crate::writing::{self, Place, Target};
use platfs_image::clock;

/// Arguments of `plat put`.
#[derive(Args, Debug)]
pub struct Put {
    #[command(flatten)]
    image: Target,
    /// Files of the host (`-` is standard input), and behind them where they go in the image: a
    /// directory, or the name of a single file's copy.
    #[arg(required = true, num_args = 2.., value_name = "FILE... PATH")]
    paths: Vec<OsString>,
    /// Directories, too, with all that is in them.
    #[arg(short, long)]
    recursive: bool,
    /// Existing files are replaced; directories never are.
    #[arg(short, long)]
    force: bool,
    /// The owner of the copies; where it is not given root, and in a mount who asks.
    #[arg(long, value_name = "UID:GID", value_parser = parse_owner)]
    owner: Option<(u32, u32)>,
}

/// Bytes copied at once.
const CHUNK: usize = 1 << 20;

fn host(path: &OsStr, what: impl std::fmt::Display) -> Failure {
    Failure::about(Shown(path.as_bytes()), what)
}

impl Put {
    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        if live::is_directory(self.image.name()) {
            return into_mount::put(console, self.image.name(), &self.paths, &self.how());
        }
        writing::change_towards(&self.image, &self.paths, console, |image, source, target| {
            if source == "-" && writing::is_directory(image, target) {
                let target = Shown(target.as_bytes());
                return Err(Failure::Usage(format!(
                    "standard input has no name for a file in {target}; give one: `plat put {} - {target}/NAME`",
                    image.name
                )));
            }
            let to = writing::target(image, source, target);
            let Place { directory, name } = writing::place(image, &to)?;
            self.one(image, source, &To { directory, name, path: &to })
        })
    }

    fn one(&self, image: &OpenImage, source: &OsStr, to: &To<'_>) -> Result<(), Failure> {
        let mut copies = Copies { put: self, image, to, way: Vec::new() };
        if source == "-" {
            let attributes = self.attributes(0o644, image.volume.now(), image.volume.now());
            return copies.file(Contents { source, data: &mut progress::stdin(), size: 0 }, attributes, to);
        }
        let found = platfs_host::named(Path::new(source)).map_err(|error| host(source, error))?;
        walk(Path::new(source), found, &mut copies)
    }

    fn how(&self) -> into_mount::How {
        into_mount::How { recursive: self.recursive, force: self.force, owner: self.owner }
    }

    fn attributes(&self, permissions: u16, access: Timestamp, modify: Timestamp) -> Attributes {
        let now = clock::now();
        let times = Times { access, modify, change: now, create: Some(now) };
        let (uid, gid) = self.owner.unwrap_or_default();
        Attributes { permissions, uid, gid, times }
    }

    /// Removes what a copy replaces, if it may.
    fn clear(&self, volume: &Volume, directory: InodeNumber, name: &[u8]) -> platfs::Result<()> {
        if !self.force {
            return Ok(());
        }
        match volume.unlink(directory, name) {
            Err(Error::NotFound) => Ok(()),
            done => done,
        }
    }
}

/// Where a copy goes.
struct To<'a> {
    directory: InodeNumber,
    name: &'a [u8],
    /// All of it, for messages.
    path: &'a OsStr,
}

/// The contents of a copy.
struct Contents<'a> {
    /// What messages call it.
    source: &'a OsStr,
    data: &'a mut dyn Read,
    /// Bytes, as far as is known.
    size: u64,
}

/// Makes copies of a tree of the host.
struct Copies<'a> {
    put: &'a Put,
    image: &'a OpenImage,
    /// Where the first one goes.
    to: &'a To<'a>,
    /// Directories made and not left, with their paths.
    way: Vec<(InodeNumber, Vec<u8>)>,
}

impl Copies<'_> {
    /// Makes what is neither a file nor a directory.
    fn special(&self, kind: Kind<'_>, attributes: Attributes, to: &To<'_>) -> Result<(), Failure> {
        let (put, volume) = (self.put, &self.image.volume);
        let new = NewInode { kind, attributes, xattrs: &[] };
        let done = put
            .clear(volume, to.directory, to.name)
            .and_then(|()| volume.create(to.directory, to.name, &new));
        done.map(|_| ()).map_err(|error| self.refused(to, &error))
    }

    fn refused(&self, to: &To<'_>, error: &Error) -> Failure {
        let path = to.path.as_bytes();
        if matches!(error, Error::Exists) && !self.put.force {
            let subject = format!("{}: {}", self.image.name, Shown(path));
            return Failure::about(subject, "exists; --force replaces it");
        }
        self.image.failure(path, error)
    }

    fn file(&self, contents: Contents<'_>, attributes: Attributes, to: &To<'_>) -> Result<(), Failure> {
        let Contents { source, data, size } = contents;
        let (volume, directory, name) = (&self.image.volume, to.directory, to.name);
        let failed = |error: &Error| self.refused(to, error);
        match volume.lookup(directory, name) {
            Ok(_) if !self.put.force => return Err(failed(&Error::Exists)),
            Ok(_) | Err(Error::NotFound) => {}
            // A directory that can't be read takes no name: nothing is written for it.
            Err(error) => return Err(failed(&error)),
        }
        let new = NewInode { kind: Kind::File, attributes, xattrs: &[] };
        let (number, _pin) = volume.create_unnamed(directory, &new).map_err(|error| failed(&error))?;
        let mut writer = volume.writer(number, size).map_err(|error| failed(&error))?;
        let mut buffer = vec![0; CHUNK];
        let mut at = 0;
        loop {
            let count = fill(data, &mut buffer).map_err(|error| host(source, error))?;
            let Some(piece) = buffer.get(..count).filter(|piece| !piece.is_empty()) else { break };
            writer.write_all_at(at, piece).map_err(|error| failed(&error))?;
            at += count as u64;
        }
        drop(writer);
        let times = attributes.times;
        volume
            .inode(number)
            .set_times(Some(times.access), Some(times.modify))
            .map_err(|error| failed(&error))?;
        name_it(volume, number, directory, name, self.put.force).map_err(|error| failed(&error))
    }

    fn directory(&mut self, attributes: Attributes, to: &To<'_>) -> Result<(), Failure> {
        let new = NewInode { kind: Kind::Directory, attributes, xattrs: &[] };
        let made = self.image.volume.create(to.directory, to.name, &new);
        let path = to.path.as_bytes();
        let made = made.map_err(|error| self.image.failure(path, &error))?;
        self.way.push((made, path.to_vec()));
        Ok(())
    }

    fn take(&mut self, entry: &Entry<'_>, opened: &Opened, to: &To<'_>) -> Result<(), Failure> {
        let source = entry.path.as_os_str();
        let attributes = self.attributes(&entry.facts);
        match opened {
            Opened::File(file) => {
                let mut data = file;
                let contents = Contents { source, data: &mut data, size: entry.facts.size };
                self.file(contents, attributes, to)
            }
            Opened::Directory(_) if !self.put.recursive => {
                Err(host(source, "is a directory; --recursive copies it"))
            }
            Opened::Directory(_) => self.directory(attributes, to),
            Opened::Link(target) => self.special(Kind::Symlink(target.as_bytes()), attributes, to),
            Opened::Other if entry.facts.kind == HostKind::Fifo => self.special(Kind::Fifo, attributes, to),
            Opened::Other => Err(host(source, "is neither a file, a directory nor a symbolic link")),
        }
    }

    fn attributes(&self, facts: &Facts) -> Attributes {
        let permissions = u16::try_from(facts.mode).unwrap_or(0o644);
        self.put.attributes(permissions, timestamp(facts.accessed), timestamp(facts.modified))
    }
}

fn timestamp((seconds, nanoseconds): (i64, u32)) -> Timestamp {
    Timestamp { seconds, nanoseconds }
}

impl Visitor for Copies<'_> {
    type Failure = Failure;

    fn failed(&self, path: &Path, error: io::Error) -> Failure {
        host(path.as_os_str(), error)
    }

    fn visit(&mut self, entry: &Entry<'_>, opened: &Opened) -> Result<(), Failure> {
        let Some((directory, above)) = self.way.last() else {
            let to = self.to;
            return self.take(entry, opened, to);
        };
        let (directory, name) = (*directory, entry.name.as_bytes());
        let path = crate::reading::joined(above, name);
        self.take(entry, opened, &To { directory, name, path: OsStr::from_bytes(&path) })
    }

    fn leave(&mut self, entry: &Entry<'_>) -> Result<(), Failure> {
        let Some((made, path)) = self.way.pop() else { return Ok(()) };
        let (access, modify) = (timestamp(entry.facts.accessed), timestamp(entry.facts.modified));
        let done = self.image.volume.inode(made).set_times(Some(access), Some(modify));
        done.map_err(|error| self.image.failure(&path, &error))
    }
}

/// As much as the buffer holds, less only at the end.
fn fill(data: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match data.read(rest) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Gives a whole file its name, in place of what had it.
fn name_it(
    volume: &Volume,
    number: InodeNumber,
    directory: InodeNumber,
    name: &[u8],
    force: bool,
) -> platfs::Result<()> {
    match volume.link(number, directory, name) {
        Err(Error::Exists) if force => {}
        done => return done,
    }
    let existing = volume.lookup(directory, name)?;
    if volume.metadata(existing)?.file_type == FileType::Directory {
        return Err(Error::IsDirectory);
    }
    let beside = format!(".plat-put-{number}");
    volume.link(number, directory, beside.as_bytes())?;
    volume.rename(directory, beside.as_bytes(), directory, name, Replace::Yes)
}
