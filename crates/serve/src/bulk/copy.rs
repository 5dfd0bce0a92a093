//! A file or a tree beside itself: what `cp -r` does, by the verbs of the library.

use std::collections::{HashMap, HashSet};

use ondisk::inode::{FileType, InodeFlags};
use ondisk::units::InodeNumber;
use platfs::rights::{EXECUTE, READ};
use platfs::{AttributeChange, Attributes, Error, Inherited, Kind, Metadata, NewInode, Pin, State};
use platfs_image::archive::Run;

use super::maker::{Contents, Maker, New, Place, What};
use super::{Act, Asked, Halt, Held, Job, Name, Xattr, Xattrs};
use platfs_open::paths::joined;

/// Directories below each other.
const DEPTH_MAX: usize = 1000;

/// How to copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Directories, too, with all that is in them.
    pub recursive: bool,
    /// Existing files are replaced; directories never are.
    pub force: bool,
    /// Owners, times, special bits, attributes and links between files are kept.
    pub preserve: bool,
}

/// Where a copy goes, and what messages call it.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The directory.
    pub directory: InodeNumber,
    /// The name.
    pub name: &'a Name,
    /// All of the path.
    pub path: &'a [u8],
}

/// A directory that is being copied.
struct Level<'j> {
    from: InodeNumber,
    to: InodeNumber,
    _held: (Held<'j>, Pin<'j>),
    path: Vec<u8>,
    directories: Vec<(Vec<u8>, InodeNumber)>,
    finally: Attributes,
    /// The default list of the original. The copy gets it at the end: the files in it have lists of their own.
    default_list: Option<Xattr>,
}

struct Copy<'j> {
    job: &'j Job<'j>,
    options: Options,
    maker: Maker<'j>,
    levels: Vec<Level<'j>>,
    seen: HashSet<InodeNumber>,
    /// The copies of files with several names.
    firsts: HashMap<InodeNumber, (InodeNumber, Vec<u8>)>,
}

/// Copies what a name leads to.
///
/// # Errors
/// Errors of the volume or the watcher; all files before it are there, each whole.
pub fn copy(
    job: &Job<'_>,
    source: InodeNumber,
    path: &[u8],
    to: Target<'_>,
    options: Options,
) -> Result<(), Halt> {
    job.changeable(to.path, to.directory)?;
    let source = job.child(source, b"", path)?;
    let maker = Maker::new(job, options.force);
    let mut copy =
        Copy { job, options, maker, levels: Vec::new(), seen: HashSet::new(), firsts: HashMap::new() };
    let done = if source.facts.file_type == FileType::Directory {
        if !options.recursive {
            return Err(Halt::refused(path, "is a directory; --recursive copies it"));
        }
        job.must(to.path, Act::MakeDirectory)?;
        outside(job, source.facts.inode, to)?;
        copy.tree(source, path, to)
    } else {
        copy.file(&source.facts, path, to.directory, to.name.bytes())
    };
    let ended = copy.maker.flush();
    let mut finished = Ok(());
    while let Some(level) = copy.levels.pop() {
        finished = finished.and(copy.finish(&level));
    }
    done.and(ended).and(finished)
}

/// Refuses to copy a directory into itself.
fn outside(job: &Job<'_>, source: InodeNumber, to: Target<'_>) -> Result<(), Halt> {
    let mut here = to.directory;
    for _ in 0..DEPTH_MAX * 4 {
        if here == source {
            return Err(Halt::refused(to.path, "lies in the directory that is to be copied"));
        }
        if here == InodeNumber::ROOT {
            return Ok(());
        }
        here = job.volume.lookup(here, b"..").map_err(Halt::at(to.path))?;
    }
    Err(Halt::refused(to.path, "lies too deep"))
}

impl<'j> Copy<'j> {
    fn tree(&mut self, source: Held<'j>, path: &[u8], to: Target<'_>) -> Result<(), Halt> {
        self.enter(source, path, to.directory, to.name.bytes())?;
        while let Some(level) = self.levels.last_mut() {
            match level.directories.pop() {
                Some((name, number)) => {
                    let (from, to, path) = (level.from, level.to, joined(&level.path, &name));
                    // Somebody may have removed it since it was listed.
                    if let Some(held) = self.job.hold(from, &name, number).map_err(Halt::at(&path))? {
                        self.enter(held, &path, to, &name)?;
                    }
                }
                None => {
                    self.maker.flush()?;
                    let Some(level) = self.levels.pop() else { break };
                    self.finish(&level)?;
                }
            }
            self.job.go_on()?;
        }
        Ok(())
    }

    fn enter(&mut self, held: Held<'j>, path: &[u8], above: InodeNumber, name: &[u8]) -> Result<(), Halt> {
        self.maker.flush()?;
        let failed = Halt::at(path);
        let (facts, from) = (held.facts.clone(), held.facts.inode);
        self.job.must(path, Act::List)?;
        self.job.allowed(path, &facts, READ | EXECUTE)?;
        if self.levels.len() >= DEPTH_MAX || !self.seen.insert(from) {
            return Err(Halt::refused(path, "lies too deep, or is its own parent"));
        }
        let asked = self.asked(&facts);
        let given = self.job.given(above, FileType::Directory, &asked).map_err(&failed)?;
        let (given, default_list) = super::of_directory(given, self.xattrs(&facts, path)?);
        let Inherited { attributes: finally, xattrs: all } = given;
        let attributes = Attributes { permissions: finally.permissions | 0o700, ..finally };
        let volume = self.job.now();
        let new = NewInode { kind: Kind::Directory, attributes, xattrs: &all };
        let to = volume.create(above, name, &new).map_err(&failed)?;
        self.seen.insert(to);
        self.job.watcher.added(above, name);
        self.job.watcher.touched(above);
        self.job.count(|done| done.directories += 1);
        let held = (held, self.job.volume.pin(to).map_err(&failed)?);
        let (path, directories) = (path.to_vec(), Vec::new());
        self.levels.push(Level { from, to, _held: held, path, directories, finally, default_list });
        self.files()
    }

    /// Copies the files of the directory that the work is in, and notes its directories.
    fn files(&mut self) -> Result<(), Halt> {
        let Some((from, to, path)) =
            self.levels.last().map(|level| (level.from, level.to, level.path.clone()))
        else {
            return Ok(());
        };
        let mut directories = Vec::new();
        for entry in self.job.volume.read_dir(from).map_err(Halt::at(&path))? {
            let entry = entry.map_err(Halt::at(&path))?;
            let path = joined(&path, &entry.name);
            match self.job.hold(from, &entry.name, entry.inode).map_err(Halt::at(&path))? {
                None => {}
                Some(held) if held.facts.file_type == FileType::Directory => {
                    directories.push((entry.name, entry.inode));
                }
                Some(held) => self.file(&held.facts, &path, to, &entry.name)?,
            }
        }
        directories.reverse();
        if let Some(level) = self.levels.last_mut() {
            level.directories = directories;
        }
        Ok(())
    }

    /// From now on a directory is as its original, as far as that is asked for.
    fn finish(&self, level: &Level<'_>) -> Result<(), Halt> {
        let failed = Halt::at(&level.path);
        if let Some((name, value)) = &level.default_list {
            self.job.now().inode(level.to).set_xattr(name, value).map_err(&failed)?;
        }
        let facts = self.job.volume.metadata(level.to).map_err(&failed)?;
        let wanted = AttributeChange {
            permissions: (level.finally.permissions != facts.permissions)
                .then_some(level.finally.permissions),
            access: self.options.preserve.then_some(level.finally.times.access),
            modify: self.options.preserve.then_some(level.finally.times.modify),
            ..AttributeChange::default()
        };
        if wanted != AttributeChange::default() {
            self.job.now().inode(level.to).change(&wanted).map_err(&failed)?;
            self.job.watcher.touched(level.to);
        }
        Ok(())
    }

    fn asked(&self, facts: &Metadata) -> Asked {
        let kept = self.options.preserve;
        Asked {
            permissions: facts.permissions,
            owner: kept.then_some((facts.uid, facts.gid)),
            times: kept.then_some((facts.times.access, facts.times.modify)),
            lists: kept,
        }
    }

    fn xattrs(&self, facts: &Metadata, path: &[u8]) -> Result<Xattrs, Halt> {
        if !self.options.preserve {
            return Ok(Vec::new());
        }
        let all = self.job.volume.inode(facts.inode).xattrs().map_err(Halt::at(path))?;
        Ok(self.job.settable(facts.file_type, all))
    }

    fn file(
        &mut self,
        facts: &Metadata,
        path: &[u8],
        directory: InodeNumber,
        name: &[u8],
    ) -> Result<(), Halt> {
        let from = facts.inode;
        if self.options.preserve && facts.links > 1 && self.link(facts, path, directory, name)? {
            return Ok(());
        }
        if facts.flags.contains(InodeFlags::ENCRYPT)
            && self.job.volume.inode(from).is_locked().map_err(Halt::at(path))?
        {
            return Err(Halt::refused(path, "is encrypted"));
        }
        let what = self.what(facts, path)?;
        let runs = if what == What::File { self.runs(facts, path)? } else { Vec::new() };
        let volume = self.job.volume;
        let mut read = |run: &Run, skip: u64, room: &mut [u8]| {
            let count = volume.read_at(from, run.file_offset + skip, room).map_err(Halt::at(path))?;
            // It may have become shorter meanwhile.
            room.iter_mut().skip(count).for_each(|byte| *byte = 0);
            Ok(())
        };
        let size = if what == What::File { facts.size } else { 0 };
        let mut contents = Contents { size, runs: &runs, read: &mut read };
        let new = New { what, asked: self.asked(facts), xattrs: self.xattrs(facts, path)? };
        self.maker.make(Place { directory, name, path }, new, &mut contents)?;
        if self.options.preserve && facts.links > 1 {
            self.firsts.insert(from, (directory, name.to_vec()));
        }
        Ok(())
    }

    fn what(&self, facts: &Metadata, path: &[u8]) -> Result<What, Halt> {
        let (major, minor) = facts.device.unwrap_or_default();
        Ok(match facts.file_type {
            FileType::Regular => {
                self.job.must(path, Act::ReadFile)?;
                self.job.allowed(path, facts, READ)?;
                What::File
            }
            FileType::Symlink => {
                What::Symlink(self.job.volume.read_link(facts.inode).map_err(Halt::at(path))?)
            }
            FileType::CharDevice => What::CharDevice(major, minor),
            FileType::BlockDevice => What::BlockDevice(major, minor),
            FileType::Fifo => What::Fifo,
            FileType::Socket => What::Socket,
            FileType::Directory => return Err(Halt::at(path)(Error::IsDirectory)),
        })
    }

    /// Gives the copy of a file one more name, if there is one already.
    fn link(
        &mut self,
        facts: &Metadata,
        path: &[u8],
        directory: InodeNumber,
        name: &[u8],
    ) -> Result<bool, Halt> {
        let Some((first, known)) = self.firsts.get(&facts.inode).cloned() else { return Ok(false) };
        self.job.must(path, if first == directory { Act::MakeFile } else { Act::Link })?;
        self.maker.flush()?;
        let volume = self.job.now();
        let Ok(copy) = volume.lookup(first, &known) else { return Ok(false) };
        volume.link(copy, directory, name).map_err(Halt::at(path))?;
        self.job.watcher.added(directory, name);
        self.job.watcher.touched(directory);
        self.job.watcher.relinked(copy);
        self.job.count(|done| done.files += 1);
        Ok(true)
    }

    /// The runs of data of a file; small ones are read whole.
    fn runs(&self, facts: &Metadata, path: &[u8]) -> Result<Vec<Run>, Halt> {
        const WHOLE: u64 = 64 << 10;
        let run = |file_offset, len| Run { file_offset, len, archive_offset: 0 };
        if facts.size <= WHOLE {
            return Ok(if facts.size == 0 { Vec::new() } else { vec![run(0, facts.size)] });
        }
        let failed = Halt::at(path);
        let reader = self.job.volume.open_file(facts.inode).map_err(&failed)?;
        let (mut runs, mut mapped): (Vec<Run>, bool) = (Vec::new(), false);
        for segment in reader.segments() {
            let segment = segment.map_err(&failed)?;
            mapped = true;
            let (start, len) = reader.bytes_of(&segment);
            let len = len.min(facts.size.saturating_sub(start));
            match (segment.state, runs.last_mut()) {
                (State::Hole | State::Unwritten(_), _) => {}
                (State::Mapped(_), Some(last)) if last.file_offset + last.len == start => last.len += len,
                (State::Mapped(_), _) => runs.push(run(start, len)),
            }
        }
        Ok(if mapped { runs } else { vec![run(0, facts.size)] })
    }
}
