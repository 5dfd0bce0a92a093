//! A file or a tree of the host into a directory: what `cp -a` does between file systems, by the verbs of the library.
//!
//! Owns: what is kept of files of the host, and how a copy ends of which a part can't be read. Excludes: standard input,
//! and copies by the kernel into mounts, where only contents come through here ([`super::put`]).

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ondisk::inode::{FileType, Timestamp};
use ondisk::units::InodeNumber;
use platfs::{AttributeChange, Attributes, Inherited, Kind, NewInode, Pin};
use platfs_host::{Entry, Facts, Id, Kind as HostKind, Opened, Visitor, walk};
use platfs_image::archive::Run;

use super::copy::Target;
use super::maker::{Contents, Maker, New, Place, What};
use super::{Asked, Halt, Job, Xattr, Xattrs};
use platfs_open::paths::joined;

/// Options of a copy from the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Owners, attributes and links between files are kept, and directories come with all that is in them.
    pub whole: bool,
    /// Existing files are replaced; directories never are.
    pub force: bool,
    /// The owner that all copies get; without it, copies keep the owners of their originals.
    pub owner: Option<(u32, u32)>,
}

/// Attributes for a copy, from the facts of its original.
pub(super) fn asked(facts: &Facts, owner: Option<(u32, u32)>) -> Asked {
    let time = |(seconds, nanoseconds)| Timestamp { seconds, nanoseconds };
    Asked {
        permissions: u16::try_from(facts.mode & 0o7777).unwrap_or(0o644),
        owner,
        times: Some((time(facts.accessed), time(facts.modified))),
        lists: false,
    }
}

/// Where the data of a file lie in its first `size` bytes; what lies between is a hole.
pub(super) fn runs_of(file: &File, size: u64) -> io::Result<Vec<Run>> {
    let run = |(file_offset, len)| Run { file_offset, len, archive_offset: file_offset };
    platfs_host::runs(file, size).map(|found| found.map(run).map_err(io::Error::from)).collect()
}

/// Fills a buffer from a file of the host, with zeros where it became shorter.
pub(super) fn fill(file: &File, at: u64, mut room: &mut [u8]) -> io::Result<()> {
    let mut at = at;
    while !room.is_empty() {
        match file.read_at(room, at) {
            Ok(0) => break,
            Ok(count) => {
                room = room.get_mut(count..).unwrap_or_default();
                at += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    room.fill(0);
    Ok(())
}

/// Says what of the host is left out, and why.
pub type LeftOut<'a> = dyn FnMut(&Path, &str) + 'a;

/// Takes what was opened of the host, of a directory all that is in it. What can't be read is left out, with a word to
/// `left_out`.
///
/// # Errors
/// Those of the volume and of the watcher; all files before them are there, each whole.
pub fn take(
    job: &Job<'_>,
    (source, found): (&Path, (Facts, Opened)),
    to: Target<'_>,
    options: Options,
    left_out: &mut LeftOut<'_>,
) -> Result<(), Halt> {
    job.changeable(to.path, to.directory)?;
    let maker = Maker::new(job, options.force);
    let mut taking = Taking { job, maker, to, options, levels: Vec::new(), firsts: HashMap::new(), left_out };
    let done = walk(source, found, &mut taking);
    let ended = taking.maker.flush();
    // What was made before a failure is as its original, and that failure is the one to tell.
    let mut finished = Ok(());
    while let Some(level) = taking.levels.pop() {
        finished = finished.and(taking.finish(&level));
    }
    done.and(ended).and(finished)
}

/// A directory that was made and not left.
struct Level<'j> {
    number: InodeNumber,
    _pin: Pin<'j>,
    path: Vec<u8>,
    finally: Attributes,
    /// The default list, which the directory gets when all is in it.
    default_list: Option<Xattr>,
}

struct Taking<'j, 'r> {
    job: &'j Job<'j>,
    maker: Maker<'j>,
    /// Where the first one goes.
    to: Target<'r>,
    options: Options,
    levels: Vec<Level<'j>>,
    /// The copies of files with several names.
    firsts: HashMap<Id, (InodeNumber, Vec<u8>)>,
    left_out: &'r mut LeftOut<'r>,
}

impl<'j> Taking<'j, '_> {
    fn asked(&self, facts: &Facts) -> Asked {
        let own = if self.options.whole { (facts.uid, facts.gid) } else { (0, 0) };
        Asked { lists: self.options.whole, ..asked(facts, Some(self.options.owner.unwrap_or(own))) }
    }

    fn xattrs(&mut self, entry: &Entry<'_>, opened: &Opened) -> Xattrs {
        if !self.options.whole {
            return Xattrs::new();
        }
        entry.xattrs(opened).unwrap_or_else(|error| {
            (self.left_out)(entry.path, &format!("its attributes are left out: {error}"));
            Xattrs::new()
        })
    }

    fn directory(&mut self, entry: &Entry<'_>, at: Place<'_>, xattrs: Xattrs) -> Result<(), Halt> {
        super::name::check(at.path, at.name)?;
        self.maker.flush()?;
        let failed = Halt::at(at.path);
        let given = self.job.given(at.directory, FileType::Directory, &self.asked(&entry.facts));
        let given = given.map_err(&failed)?;
        let own = self.job.settable(FileType::Directory, xattrs);
        let (Inherited { attributes: finally, xattrs: all }, default_list) = super::of_directory(given, own);
        let attributes = Attributes { permissions: finally.permissions | 0o700, ..finally };
        let new = NewInode { kind: Kind::Directory, attributes, xattrs: &all };
        let number = self.job.now().create(at.directory, at.name, &new).map_err(&failed)?;
        let pin = self.job.volume.pin(number).map_err(&failed)?;
        self.job.watcher.added(at.directory, at.name);
        self.job.watcher.touched(at.directory);
        self.job.count(|done| done.directories += 1);
        self.levels.push(Level { number, _pin: pin, path: at.path.to_vec(), finally, default_list });
        self.job.go_on()
    }

    /// From now on a directory is as its original.
    fn finish(&self, level: &Level<'_>) -> Result<(), Halt> {
        let failed = Halt::at(&level.path);
        let volume = self.job.now();
        let node = volume.inode(level.number);
        if let Some((name, value)) = &level.default_list {
            node.set_xattr(name, value).map_err(&failed)?;
        }
        let facts = self.job.volume.metadata(level.number).map_err(&failed)?;
        let finally = &level.finally;
        let wanted = AttributeChange {
            permissions: (finally.permissions != facts.permissions).then_some(finally.permissions),
            access: Some(finally.times.access),
            modify: Some(finally.times.modify),
            ..AttributeChange::default()
        };
        node.change(&wanted).map(drop).map_err(failed)
    }

    fn file(&mut self, entry: &Entry<'_>, opened: &Opened, at: Place<'_>) -> Result<(), Halt> {
        let facts = &entry.facts;
        let has_others = self.options.whole && facts.links > 1;
        if has_others && self.link(facts.id, at)? {
            return Ok(());
        }
        let (file, size) = match opened {
            Opened::File(file) => (Some(file), facts.size),
            _ => (None, 0),
        };
        let what = match (facts.kind, opened) {
            (_, Opened::Link(target)) => What::Symlink(target.as_bytes().to_vec()),
            (HostKind::CharDevice, _) => What::CharDevice(facts.device.0, facts.device.1),
            (HostKind::BlockDevice, _) => What::BlockDevice(facts.device.0, facts.device.1),
            (HostKind::Fifo, _) => What::Fifo,
            (HostKind::Socket, _) => What::Socket,
            _ => What::File,
        };
        let runs = file.map_or(Ok(Vec::new()), |file| runs_of(file, size))?;
        let mut read = |run: &Run, skip: u64, room: &mut [u8]| match file {
            Some(file) => Ok(fill(file, run.archive_offset.saturating_add(skip), room)?),
            None => Ok(()),
        };
        let xattrs = self.xattrs(entry, opened);
        let new = New { what, asked: self.asked(facts), xattrs };
        self.maker.make(at, new, &mut Contents { size, runs: &runs, read: &mut read })?;
        if has_others {
            self.firsts.insert(facts.id, (at.directory, at.name.to_vec()));
        }
        Ok(())
    }

    /// Gives the copy of a file one more name, if there is one already.
    fn link(&mut self, id: Id, at: Place<'_>) -> Result<bool, Halt> {
        let Some((first, known)) = self.firsts.get(&id).cloned() else { return Ok(false) };
        self.maker.flush()?;
        let failed = Halt::at(at.path);
        let volume = self.job.now();
        let copy = volume.lookup(first, &known).map_err(&failed)?;
        volume.link(copy, at.directory, at.name).map_err(failed)?;
        self.job.watcher.added(at.directory, at.name);
        self.job.watcher.touched(at.directory);
        self.job.count(|done| done.files += 1);
        Ok(true)
    }
}

impl Visitor for Taking<'_, '_> {
    type Failure = Halt;

    fn failed(&mut self, path: &Path, error: io::Error) -> Result<(), Halt> {
        (self.left_out)(path, &error.to_string());
        Ok(())
    }

    fn visit(&mut self, entry: &Entry<'_>, opened: &Opened) -> Result<(), Halt> {
        let (directory, name, path) = match self.levels.last() {
            Some(level) => {
                let name = entry.name.as_bytes().to_vec();
                let path = joined(&level.path, &name);
                (level.number, name, path)
            }
            None => (self.to.directory, self.to.name.bytes().to_vec(), self.to.path.to_vec()),
        };
        let at = Place { directory, name: &name, path: &path };
        if matches!(opened, Opened::Directory(_)) {
            let xattrs = self.xattrs(entry, opened);
            return self.directory(entry, at, xattrs);
        }
        match self.file(entry, opened, at) {
            Err(Halt::Stream(why)) if self.options.whole => {
                (self.left_out)(entry.path, &why.words);
                Ok(())
            }
            done => done,
        }
    }

    fn leave(&mut self, _: &Entry<'_>) -> Result<(), Halt> {
        self.maker.flush()?;
        match self.levels.pop() {
            Some(level) => self.finish(&level),
            None => Ok(()),
        }
    }
}
