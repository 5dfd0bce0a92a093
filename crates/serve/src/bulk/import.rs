//! A tar archive into a directory: what `tar x` does, by the verbs of the library.
//!
//! Paths of the archive are not trusted: none leads out of the directory. A symbolic link to a directory stands for it, and
//! stays, as with `--keep-directory-symlink` of GNU tar (`way`).

use std::collections::HashMap;
use std::sync::Arc;

use ondisk::inode::FileType;
use ondisk::units::InodeNumber;
use platfs::rights::{EXECUTE, READ};
use platfs::{Attributes, Error, Inherited, Kind, NewInode};
use platfs_image::archive::{Entry, EntryKind, Input, Names, Reader, TABLE_MOST};

use super::ahead::Ahead;
use super::lists::{self, List, Lists};
use super::maker::{Contents, Maker, New, Place, What};
use super::way::Way;
use super::{Act, Asked, Halt, Held, Job, Xattrs, name};
use crate::refusal::Refusal;

/// How to import.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Existing files are replaced.
    pub force: bool,
}

/// A directory that entries go to, held so that its number means no other meanwhile.
struct Level<'j> {
    name: Vec<u8>,
    number: InodeNumber,
    reached: Reached<'j>,
    /// The actor may make files in it.
    changeable: bool,
}

/// The way to a directory from the one before.
enum Reached<'j> {
    /// It lies there.
    Directly(#[allow(dead_code, reason = "it is held")] Held<'j>),
    /// A symbolic link leads to it: all directories from the base down to it.
    Through(Way<'j>),
}

/// Attributes that a directory of the archive gets when the import leaves it, by inode and generation.
type Finals = HashMap<(InodeNumber, u32), (Attributes, bool)>;

struct Import<'j, I> {
    job: &'j Job<'j>,
    input: &'j I,
    maker: Maker<'j>,
    base: InodeNumber,
    levels: Vec<Level<'j>>,
    finals: Finals,
    lists: Lists,
    force: bool,
}

/// Unpacks an archive into a directory; returns what was odd about it.
///
/// # Errors
/// Errors of the volume, the archive or the watcher; all entries before it are there, each whole.
pub fn import<I: Input>(
    job: &Job<'_>,
    base: InodeNumber,
    input: &I,
    options: Options,
) -> Result<Vec<String>, Halt> {
    let input = &Ahead::new(input);
    let maker = Maker::new(job, options.force);
    let (levels, finals, lists) = (Vec::new(), Finals::new(), Lists::new(lists::MOST));
    let mut import = Import { job, input, maker, base, levels, finals, lists, force: options.force };
    // With the right to list it only, nothing in it is found.
    job.with_rights(b".", base, EXECUTE)?;
    let mut reader = Reader::new(input).over(Arc::new(names(job, base)));
    let broken = |error: platfs_image::archive::TarError| {
        let errno = match &*error.problem {
            platfs_image::archive::Problem::Io(error) => platfs_host::errno_of(error),
            _ => rustix::io::Errno::INVAL.raw_os_error(),
        };
        Halt::Stream(Refusal { errno, words: error.to_string() }.at("the archive"))
    };
    let done = loop {
        match reader.next_entry().map_err(broken) {
            Ok(Some(entry)) => match import.entry(&entry) {
                Ok(()) => {}
                Err(halt) => break Err(halt),
            },
            Ok(None) => break Ok(()),
            Err(halt) => break Err(halt),
        }
    };
    // What was read before a failure is made, and directories get their times.
    let ended = import.end();
    done.and(ended)?;
    Ok(reader.warnings().iter().map(ToString::to_string).collect())
}

impl<'j, I: Input> Import<'j, I> {
    fn entry(&mut self, entry: &Entry) -> Result<(), Halt> {
        let parts = parts(&entry.path)?;
        let Some((name, above)) = parts.split_last() else {
            // The directory itself.
            return if entry.kind == EntryKind::Directory { Ok(()) } else { name::check(&entry.path, b"") };
        };
        self.go_to(above, &entry.path)?;
        match entry.kind {
            EntryKind::Directory => self.directory(name, entry),
            EntryKind::HardLink => self.link(name, entry),
            _ => self.file(name, entry),
        }
    }

    /// The directory that entries go to now.
    fn here(&self) -> InodeNumber {
        self.levels.last().map_or(self.base, |level| level.number)
    }

    /// Goes to the directory of a path, making what is missing on the way.
    fn go_to(&mut self, above: &[&[u8]], path: &[u8]) -> Result<(), Halt> {
        let same = self.levels.iter().zip(above).take_while(|(level, name)| level.name == **name).count();
        while self.levels.len() > same {
            self.leave()?;
        }
        for name in above.iter().skip(same) {
            self.maker.flush()?;
            let found = self.job.find(self.here(), name).map_err(Halt::at(path))?;
            match found {
                Some(held) => self.enter(name, held, path)?,
                None => {
                    let permissions = 0o777 & !self.job.actor.umask;
                    let asked = Asked { permissions, owner: None, times: None, lists: false };
                    self.make_directory(name, asked, Vec::new(), path)?;
                }
            }
        }
        Ok(())
    }

    /// Goes down into a directory that exists.
    fn enter(&mut self, name: &[u8], held: Held<'j>, path: &[u8]) -> Result<(), Halt> {
        let facts = &held.facts;
        if facts.file_type == FileType::Symlink {
            let mut way = self.way(path)?;
            way.go(&[name], path)?;
            let (number, reached) = (way.here(), Reached::Through(way));
            self.levels.push(Level { name: name.to_vec(), number, reached, changeable: false });
            return Ok(());
        }
        if facts.file_type != FileType::Directory {
            return Err(Halt::at(path)(Error::NotDirectory));
        }
        self.job.allowed(path, facts, EXECUTE)?;
        let number = facts.inode;
        let reached = Reached::Directly(held);
        self.levels.push(Level { name: name.to_vec(), number, reached, changeable: false });
        Ok(())
    }

    /// The directories from the base down to the one that entries go to now.
    fn way(&self, path: &[u8]) -> Result<Way<'j>, Halt> {
        let through = |level: &Level<'j>| matches!(level.reached, Reached::Through(_));
        let last = self.levels.iter().rposition(through);
        let mut way = match last.and_then(|at| self.levels.get(at)).map(|level| &level.reached) {
            Some(Reached::Through(way)) => way.again(path)?,
            _ => Way::new(self.job, self.base),
        };
        let below = self.levels.iter().skip(last.map_or(0, |at| at + 1));
        below.map(|level| level.number).try_for_each(|number| way.down(number, path))?;
        Ok(way)
    }

    /// Sees to it that files can be made in the directory that entries go to.
    fn may_make(&mut self, path: &[u8]) -> Result<InodeNumber, Halt> {
        let here = self.here();
        match self.levels.last_mut() {
            Some(level) if level.changeable => {}
            Some(level) => {
                self.job.changeable(path, here)?;
                level.changeable = true;
            }
            None => {
                self.job.changeable(path, here)?;
            }
        }
        Ok(here)
    }

    /// Makes a directory and goes down into it.
    fn make_directory(&mut self, name: &[u8], asked: Asked, xattrs: Xattrs, path: &[u8]) -> Result<(), Halt> {
        name::check(path, name)?;
        self.job.must(path, Act::MakeDirectory)?;
        self.maker.flush()?;
        let failed = Halt::at(path);
        let here = self.may_make(path)?;
        let given = self.job.given(here, FileType::Directory, &asked).map_err(&failed)?;
        let own = self.job.settable(FileType::Directory, xattrs);
        let (Inherited { attributes: finally, xattrs: all }, list) = super::of_directory(given, own);
        // Its owner can fill it, whatever it may do later.
        let attributes = Attributes { permissions: finally.permissions | 0o700, ..finally };
        let new = NewInode { kind: Kind::Directory, attributes, xattrs: &all };
        let volume = self.job.now();
        let number = volume.create(here, name, &new).map_err(&failed)?;
        self.job.watcher.added(here, name);
        self.job.watcher.touched(here);
        self.job.count(|done| done.directories += 1);
        let held = self.job.find(here, name).map_err(&failed)?.filter(|held| held.facts.inode == number);
        let held = held.ok_or_else(|| failed(Error::NotFound))?;
        let key = (number, held.facts.generation);
        self.finals.insert(key, (finally, asked.times.is_some()));
        self.enter(name, held, path)?;
        let Some(list) = list else { return Ok(()) };
        let open = self.levels.iter().map(|level| level.number);
        let due = self.lists.add(List { of: key, path: path.to_vec(), list }, open);
        self.inherit(due)
    }

    fn directory(&mut self, name: &[u8], entry: &Entry) -> Result<(), Halt> {
        match self.job.find(self.here(), name).map_err(Halt::at(&entry.path))? {
            None => self.make_directory(name, asked(entry), xattrs(entry), &entry.path),
            // One that exists stays as it is.
            Some(held) => self.enter(name, held, &entry.path),
        }
    }

    fn file(&mut self, name: &[u8], entry: &Entry) -> Result<(), Halt> {
        let directory = self.may_make(&entry.path)?;
        let (major, minor) = (entry.device.major, entry.device.minor);
        let what = match entry.kind {
            EntryKind::Symlink => What::Symlink(entry.target.clone()),
            EntryKind::CharDevice => What::CharDevice(major, minor),
            EntryKind::BlockDevice => What::BlockDevice(major, minor),
            EntryKind::Fifo => What::Fifo,
            _ => What::File,
        };
        let input = self.input;
        let mut read = |run: &platfs_image::archive::Run, skip: u64, room: &mut [u8]| {
            let place = run.archive_offset.saturating_add(skip);
            input
                .read_exact_at(place, room)
                .map_err(|error| Halt::Stream(Refusal::from(error).at("the archive")))
        };
        let mut contents = Contents { size: entry.size, runs: &entry.runs, read: &mut read };
        let new = New { what, asked: asked(entry), xattrs: xattrs(entry) };
        self.maker.make(Place { directory, name, path: &entry.path }, new, &mut contents)
    }

    /// One more name of an earlier entry.
    fn link(&mut self, name: &[u8], entry: &Entry) -> Result<(), Halt> {
        name::check(&entry.path, name)?;
        self.job.must(&entry.path, Act::MakeFile)?;
        self.maker.flush()?;
        let failed = Halt::at(&entry.path);
        let directory = self.may_make(&entry.path)?;
        let target_parts = parts(&entry.target)?;
        let Some((last, above)) = target_parts.split_last() else {
            return Err(Halt::refused(&entry.path, "is a hard link to the directory of all"));
        };
        let mut way = Way::new(self.job, self.base);
        way.go(above, &entry.target)?;
        let held = self.job.child(way.here(), last, &entry.target)?;
        if way.here() != directory {
            self.job.must(&entry.path, Act::Link)?;
        }
        let (target, volume) = (held.facts.inode, self.job.now());
        if !self.job.who().owns(&held.facts) {
            return Err(Halt::Denied { path: entry.path.clone() });
        }
        let bulk = volume.bulk().of(self.job.who()).replacing(self.force);
        let replaced = match bulk.link(target, directory, name) {
            Err(Error::Exists) => return Err(Halt::refused(&entry.path, "exists; --force replaces it")),
            linked => linked.map_err(&failed)?,
        };
        if let Some(replaced) = replaced.filter(|replaced| replaced.links > 0) {
            self.job.watcher.relinked(replaced.inode);
        }
        self.job.watcher.added(directory, name);
        self.job.watcher.touched(directory);
        self.job.watcher.relinked(target);
        self.job.count(|done| done.files += 1);
        Ok(())
    }

    /// Leaves a directory: from now on it is as the archive says.
    fn leave(&mut self) -> Result<(), Halt> {
        self.maker.flush()?;
        let Some(level) = self.levels.pop() else { return Ok(()) };
        let failed = Halt::at(&level.name);
        let facts = self.job.volume.metadata(level.number).map_err(&failed)?;
        if let Some((finally, has_times)) = self.finals.get(&(level.number, facts.generation)) {
            let wanted = platfs::AttributeChange {
                permissions: (finally.permissions != facts.permissions).then_some(finally.permissions),
                access: has_times.then_some(finally.times.access),
                modify: has_times.then_some(finally.times.modify),
                ..platfs::AttributeChange::default()
            };
            self.job.now().inode(level.number).change(&wanted).map_err(&failed)?;
            self.job.watcher.touched(level.number);
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Halt> {
        let mut done = self.maker.flush();
        while !self.levels.is_empty() {
            done = done.and(self.leave());
        }
        let rest = self.lists.rest();
        done.and(self.inherit(rest))
    }

    /// From now on new files of these directories inherit what the archive says.
    fn inherit(&self, lists: Vec<List>) -> Result<(), Halt> {
        let mut done = Ok(());
        for List { of: (number, generation), path, list: (name, value) } in lists {
            // A directory that was removed meanwhile needs no list.
            if self.job.volume.metadata(number).is_ok_and(|facts| facts.generation == generation) {
                let set = self.job.now().inode(number).set_xattr(&name, &value).map_err(Halt::at(&path));
                self.job.watcher.touched(number);
                done = done.and(set);
            }
        }
        done
    }
}

/// Names of owners, by the tables below the directory that all goes to; none of a table that the actor may not read.
fn names(job: &Job<'_>, base: InodeNumber) -> Names {
    let table = |name: &[u8]| -> Option<Vec<u8>> {
        let mut way = Way::new(job, base);
        way.go(&[b"etc"], b"etc").ok()?;
        let Held { facts, .. } = &job.child(way.here(), name, name).ok()?;
        job.allowed(name, facts, READ).ok()?;
        if facts.file_type != FileType::Regular || facts.size > TABLE_MOST {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(facts.size).ok()?];
        let len = job.volume.read_at(facts.inode, 0, &mut bytes).ok()?;
        bytes.truncate(len);
        Some(bytes)
    };
    Names::of(&table(b"passwd").unwrap_or_default(), &table(b"group").unwrap_or_default())
}

/// The names of a path; none of the directory itself.
fn parts(path: &[u8]) -> Result<Vec<&[u8]>, Halt> {
    let parts: Vec<&[u8]> =
        path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")).collect();
    if parts.contains(&&b".."[..]) {
        return Err(Halt::refused(path, "leads upwards, which is not followed"));
    }
    Ok(parts)
}

fn asked(entry: &Entry) -> Asked {
    let access = entry.times.accessed.unwrap_or(entry.times.modified);
    Asked {
        permissions: entry.mode,
        owner: Some((entry.uid, entry.gid)),
        times: Some((access, entry.times.modified)),
        lists: false,
    }
}

fn xattrs(entry: &Entry) -> Xattrs {
    entry.xattrs.iter().map(|xattr| (xattr.name.to_vec(), xattr.value.to_vec())).collect()
}
