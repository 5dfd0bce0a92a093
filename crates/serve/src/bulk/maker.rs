//! New files in batches: small ones of a directory together in one update, large ones piece by piece without a name,
//! which they get when they are whole.

use std::ops::Range;

use ondisk::inode::FileType;
use ondisk::units::InodeNumber;
use platfs::rights::Powers;
use platfs::{Attributes, Error, Inherited, Kind, NewInode, Removed, Whole};
use platfs_image::archive::Run;

use super::{Act, Asked, Halt, Job, Xattrs, name};

/// Files that are made in one update at most, and bytes of them: others want their turn.
const FILES: usize = 64;
const BYTES: usize = 1 << 20;
/// Bytes read and written at once of a large file.
const PIECE: usize = 1 << 20;

/// Kind of a new file; as [`Kind`], but its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum What {
    File,
    Symlink(Vec<u8>),
    CharDevice(u32, u32),
    BlockDevice(u32, u32),
    Fifo,
    Socket,
}

impl What {
    fn kind(&self) -> Kind<'_> {
        match self {
            What::File => Kind::File,
            What::Symlink(target) => Kind::Symlink(target),
            What::CharDevice(major, minor) => Kind::CharDevice(*major, *minor),
            What::BlockDevice(major, minor) => Kind::BlockDevice(*major, *minor),
            What::Fifo => Kind::Fifo,
            What::Socket => Kind::Socket,
        }
    }

    /// Acts that making one stands for.
    fn acts(&self) -> &'static [Act] {
        match self {
            What::File => &[Act::MakeFile, Act::WriteFile],
            What::Symlink(_) => &[Act::MakeSymlink],
            What::CharDevice(..) => &[Act::MakeCharDevice],
            What::BlockDevice(..) => &[Act::MakeBlockDevice],
            What::Fifo => &[Act::MakeFifo],
            What::Socket => &[Act::MakeSocket],
        }
    }

    fn file_type(&self) -> FileType {
        match self {
            What::File => FileType::Regular,
            What::Symlink(_) => FileType::Symlink,
            What::CharDevice(..) => FileType::CharDevice,
            What::BlockDevice(..) => FileType::BlockDevice,
            What::Fifo => FileType::Fifo,
            What::Socket => FileType::Socket,
        }
    }
}

/// Where a new file goes.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// Its directory, in which the actor may make files.
    pub(super) directory: InodeNumber,
    /// Its name.
    pub(super) name: &'a [u8],
    /// All of its path, for messages.
    pub(super) path: &'a [u8],
}

/// A new file without its contents.
pub(super) struct New {
    pub(super) what: What,
    pub(super) asked: Asked,
    pub(super) xattrs: Xattrs,
}

/// Fills a buffer from a byte of a run on.
pub(super) type Fill<'a> = dyn FnMut(&Run, u64, &mut [u8]) -> Result<(), Halt> + 'a;

/// The contents of a file: what lies between runs is a hole.
pub(super) struct Contents<'a> {
    pub(super) size: u64,
    pub(super) runs: &'a [Run],
    /// Fills a buffer from a byte of a run on.
    pub(super) read: &'a mut Fill<'a>,
}

impl Contents<'_> {
    /// Bytes of contents, if they are few and without a hole.
    fn small(&self) -> Option<usize> {
        let whole = match self.runs {
            [] => self.size == 0,
            [run] => run.file_offset == 0 && run.len == self.size,
            _ => false,
        };
        usize::try_from(self.size).ok().filter(|size| whole && *size <= BYTES)
    }
}

struct Pending {
    name: Vec<u8>,
    path: Vec<u8>,
    what: What,
    attributes: Attributes,
    xattrs: Xattrs,
    data: Range<usize>,
}

impl Pending {
    fn whole<'a>(&'a self, data: &'a [u8]) -> Whole<'a> {
        let new = NewInode { kind: self.what.kind(), attributes: self.attributes, xattrs: &self.xattrs };
        Whole { name: &self.name, new, data: data.get(self.data.clone()).unwrap_or_default() }
    }
}

/// Makes files.
pub(super) struct Maker<'j> {
    job: &'j Job<'j>,
    /// Existing files are replaced.
    force: bool,
    directory: Option<InodeNumber>,
    pending: Vec<Pending>,
    data: Vec<u8>,
}

impl<'j> Maker<'j> {
    pub(super) fn new(job: &'j Job<'j>, force: bool) -> Self {
        Maker { job, force, directory: None, pending: Vec::new(), data: Vec::new() }
    }

    /// Makes a file, at the latest when [`Maker::flush`] is called.
    pub(super) fn make(&mut self, at: Place<'_>, new: New, contents: &mut Contents<'_>) -> Result<(), Halt> {
        name::check(at.path, at.name)?;
        let len = contents.small();
        let is_full = self.pending.len() >= FILES || self.data.len() + len.unwrap_or(0) > BYTES;
        if is_full || self.directory != Some(at.directory) || len.is_none() {
            self.flush()?;
        }
        self.directory = Some(at.directory);
        let (pending, len) = match (self.pending(at, new)?, len) {
            (pending, Some(len)) => (pending, len),
            (pending, None) => return self.large(at, pending, contents).map(drop),
        };
        let begin = self.data.len();
        self.data.resize(begin + len, 0);
        let room = self.data.get_mut(begin..).unwrap_or_default();
        if let Some(run) = contents.runs.first().filter(|_| !room.is_empty()) {
            (contents.read)(run, 0, room)?;
        }
        self.pending.push(Pending { data: begin..begin + len, ..pending });
        Ok(())
    }

    /// Makes a file at once and alone; its inode.
    pub(super) fn alone(
        &mut self,
        at: Place<'_>,
        new: New,
        contents: &mut Contents<'_>,
    ) -> Result<InodeNumber, Halt> {
        name::check(at.path, at.name)?;
        self.flush()?;
        let pending = self.pending(at, new)?;
        self.large(at, pending, contents)
    }

    fn pending(&self, at: Place<'_>, new: New) -> Result<Pending, Halt> {
        let New { what, asked, xattrs } = new;
        what.acts().iter().try_for_each(|act| self.job.must(at.path, *act))?;
        let is_device = matches!(what, What::CharDevice(..) | What::BlockDevice(..));
        if is_device && !self.job.actor.has(Powers::MKNOD) {
            return Err(Halt::Denied { path: at.path.to_vec() });
        }
        let given = self.job.given(at.directory, what.file_type(), &asked).map_err(Halt::at(at.path))?;
        let own = self.job.settable(what.file_type(), xattrs);
        let Inherited { attributes, xattrs } = super::with_own(given, own);
        let (name, path) = (at.name.to_vec(), at.path.to_vec());
        Ok(Pending { name, path, what, attributes, xattrs, data: 0..0 })
    }

    /// Makes all that waits.
    pub(super) fn flush(&mut self) -> Result<(), Halt> {
        let Some(directory) = self.directory.filter(|_| !self.pending.is_empty()) else { return Ok(()) };
        let (pending, data) = (std::mem::take(&mut self.pending), std::mem::take(&mut self.data));
        self.all(directory, &pending, &data)?;
        self.job.watcher.touched(directory);
        self.data = data;
        self.data.clear();
        self.job.go_on()
    }

    /// Makes these files: together, or where that fails in smaller parts, down to single ones.
    fn all(&self, directory: InodeNumber, pending: &[Pending], data: &[u8]) -> Result<(), Halt> {
        let volume = self.job.now();
        let files: Vec<Whole<'_>> = pending.iter().map(|file| file.whole(data)).collect();
        let bulk = volume.bulk().of(self.job.who()).replacing(self.force);
        let (made, one) = (bulk.create(directory, &files), pending.len() == 1);
        match (made, pending.first()) {
            (Ok(replaced), _) => {
                pending.iter().for_each(|file| self.made(directory, &file.name, file.data.len() as u64));
                replaced.iter().for_each(|replaced| self.replaced(replaced));
                Ok(())
            }
            (Err(error), Some(file)) if one || !is_shared(&error) => Err(refused(&file.path, error)),
            (Err(_), _) => {
                let (first, rest) = pending.split_at(pending.len() / 2);
                self.all(directory, first, data)?;
                self.all(directory, rest, data)
            }
        }
    }

    fn made(&self, directory: InodeNumber, name: &[u8], bytes: u64) {
        self.job.watcher.added(directory, name);
        self.job.count(|done| {
            done.files += 1;
            done.bytes += bytes;
        });
    }

    /// A file lost its name to a new one. The kernel asks for the name again in any case.
    fn replaced(&self, replaced: &Removed) {
        if replaced.links > 0 {
            self.job.watcher.relinked(replaced.inode);
        }
    }

    /// Makes a large file, or one with holes.
    fn large(
        &mut self,
        at: Place<'_>,
        file: Pending,
        contents: &mut Contents<'_>,
    ) -> Result<InodeNumber, Halt> {
        let volume = self.job.now();
        let failed = Halt::at(at.path);
        let exists = volume.lookup(at.directory, at.name).is_ok();
        if exists && !self.force {
            return Err(refused(at.path, Error::Exists));
        }
        let new = NewInode { kind: Kind::File, attributes: file.attributes, xattrs: &[] };
        let (number, _pin) = volume.create_unnamed(at.directory, &new).map_err(&failed)?;
        self.pieces(at, number, contents)?;
        let times = file.attributes.times;
        let node = volume.inode(number);
        if !file.xattrs.is_empty() {
            node.set_xattrs(&file.xattrs).map_err(&failed)?;
        }
        node.set_times(Some(times.access), Some(times.modify)).map_err(&failed)?;
        let bulk = volume.bulk().of(self.job.who()).replacing(self.force);
        let replaced = bulk.link(number, at.directory, at.name).map_err(|error| refused(at.path, error))?;
        self.made(at.directory, at.name, 0);
        replaced.iter().for_each(|replaced| self.replaced(replaced));
        self.job.watcher.touched(at.directory);
        self.job.go_on().map(|()| number)
    }

    /// Writes the contents of a large file.
    fn pieces(
        &mut self,
        at: Place<'_>,
        number: InodeNumber,
        contents: &mut Contents<'_>,
    ) -> Result<(), Halt> {
        let volume = self.job.now();
        let failed = Halt::at(at.path);
        let mut writer = volume.writer(number, contents.size).map_err(&failed)?;
        let mut end = 0;
        for run in contents.runs {
            end = run.file_offset.saturating_add(run.len);
            writer.begin_stretch(end);
            let mut done = 0;
            while done < run.len {
                let len = usize::try_from(run.len - done).unwrap_or(PIECE).min(PIECE);
                self.data.resize(len, 0);
                (contents.read)(run, done, &mut self.data)?;
                writer.write_all_at(run.file_offset + done, &self.data).map_err(&failed)?;
                done += len as u64;
                self.job.count(|done| done.bytes += len as u64);
                self.job.go_on()?;
            }
        }
        self.data.clear();
        drop(writer);
        if end < contents.size { volume.extend(number, contents.size).map_err(&failed) } else { Ok(()) }
    }
}

/// Returns true if a failure may be that of one file among several, or of their number.
fn is_shared(error: &Error) -> bool {
    !matches!(
        error,
        Error::Io { .. }
            | Error::WriteFailed
            | Error::TakenOver
            | Error::Corrupt(_)
            | Error::ReadOnly
            | Error::Internal(_)
    )
}

/// A failure to make a file, with the remedy.
fn refused(path: &[u8], error: Error) -> Halt {
    match error {
        Error::Exists => Halt::refused(path, "exists; --force replaces it"),
        error => Halt::At { path: path.to_vec(), error },
    }
}
