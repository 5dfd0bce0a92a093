//! New files and directories: each appears whole, under its name, or not at all (I4).
//!
//! A new file has no name until it is finished, so that whatever ends the process, an error or a signal, also ends the
//! file. Where the file system can't do that, or `/proc` is not mounted, it has a random name beside its place, which is
//! removed on errors. A directory always has one.
//!
//! Nothing here opens a file that exists. [`Output::replacing`] lets the new file take the name of another one; the
//! caller must know whether that other file is still in use.

use crate::directory::Directory;
use crate::facts::{Facts, Kind};
use crate::random;
use crate::unfinished::{UNFINISHED, Unfinished, mark_as_used};
use rustix::fs::{AtFlags, OFlags};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

/// Symbolic links behind each other, as Linux counts.
const LINKS_MAX: usize = 40;

/// Permission bits of a new file, before the umask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privacy {
    /// As any new file: 0666.
    Ordinary,
    /// A copy of what only the owner may be meant to see: 0600.
    Private,
    /// A copy of a file with this mode: no bit that the source has not.
    As(u32),
}

impl Privacy {
    fn mode(self) -> u32 {
        match self {
            Privacy::Ordinary => 0o666,
            Privacy::Private => 0o600,
            // The owner can write what he makes, or he could not.
            Privacy::As(mode) => (mode & 0o666) | 0o200,
        }
    }
}

/// A file that is not there yet.
#[derive(Debug)]
pub struct Output {
    file: File,
    directory: Directory,
    name: OsString,
    /// The name it has meanwhile, if it needs one.
    temporary: Option<OsString>,
    /// That name goes if the process is asked to end.
    unfinished: Option<Unfinished>,
    replaces: bool,
}

/// Place of a new file: its directory, open, and its name there.
#[derive(Debug)]
pub struct OutputLocation {
    /// The directory.
    pub directory: Directory,
    /// The name.
    pub name: OsString,
    /// The path, for messages.
    pub path: PathBuf,
}

impl OutputLocation {
    /// The place that a path names; a link that has the name is not followed.
    ///
    /// # Errors
    /// The path ends in no name; its directory can't be opened.
    pub fn of(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or_else(|| invalid("is no name of a file"))?.to_owned();
        Ok(Self { directory: Directory::open(directory_of(path))?, name, path: path.to_owned() })
    }

    /// The place of a copy: in the directory that the path leads to, under the name that the original has there, or else
    /// the path itself.
    ///
    /// # Errors
    /// As [`OutputLocation::of`].
    pub fn of_copy(path: &Path, name: &OsStr) -> io::Result<Self> {
        match Directory::open(path) {
            Ok(directory) => Ok(Self { directory, name: name.to_owned(), path: path.join(name) }),
            Err(_) => Self::of(path),
        }
    }

    /// The place that a path leads to: its last component may be a link, also to what is not there yet.
    ///
    /// # Errors
    /// A link of another user in a sticky directory that all may write: whoever made it wants a privileged command to
    /// write elsewhere. Linux refuses it where `fs.protected_symlinks` is on; this does always.
    pub fn through(path: &Path) -> io::Result<Self> {
        let mut path = path.to_owned();
        for _ in 0..LINKS_MAX {
            let above = directory_of(&path);
            let name = path.file_name().ok_or_else(|| invalid("is no name of a file"))?.to_owned();
            let directory = Directory::open(above)?;
            match directory.look(&name) {
                Ok(facts) if facts.kind == Kind::Symlink => {
                    trusted(&directory.facts()?, &facts)?;
                    path = above.join(directory.read_link(&name)?);
                }
                _ => return Ok(OutputLocation { directory, name, path }),
            }
        }
        Err(rustix::io::Errno::LOOP.into())
    }

    /// Opens the regular file that has the name for reading. Where all may put files, it must be the user's own, or that of
    /// the directory's owner, as Linux has it with `fs.protected_regular` for files that are made.
    ///
    /// # Errors
    /// Another user's file; no regular file; the system's.
    pub fn open_own(&self) -> io::Result<(File, Facts)> {
        let (file, facts) = self.directory.open_file(&self.name)?;
        let directory = self.directory.facts()?;
        if is_strangers(&directory, &facts) {
            let what = format!("belongs to user {}, in a directory that all may write; remove it", facts.uid);
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        Ok((file, facts))
    }

    /// Removes what has the name, if it is no directory.
    ///
    /// # Errors
    /// The system's.
    pub fn remove(&self) -> io::Result<()> {
        self.directory.remove_file(&self.name)
    }

    /// True if something has the name, be it a link to nothing.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.directory.look(&self.name).is_ok()
    }
}

/// A directory where all may write, and remove what is their own.
fn is_shared(directory: &Facts) -> bool {
    const STICKY: u32 = 0o1000;
    const OTHERS_WRITE: u32 = 0o002;
    directory.mode & STICKY != 0 && directory.mode & OTHERS_WRITE != 0
}

/// Returns true for what is neither the user's own nor of the directory's owner, where all may write.
fn is_strangers(directory: &Facts, entry: &Facts) -> bool {
    is_shared(directory) && !entry.is_own() && entry.uid != directory.uid
}

/// Refuses a link or pipe that is neither the user's own nor of the directory's owner, where all may write.
fn trusted(directory: &Facts, entry: &Facts) -> io::Result<()> {
    if !is_strangers(directory, entry) {
        return Ok(());
    }
    let what = format!(
        "is {} of user {} in a directory that all may write; remove it, or name another place",
        entry.kind.noun(),
        entry.uid
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

fn directory_of(target: &Path) -> &Path {
    match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Path of an open file in `/proc`, if that is mounted: what gives a nameless file a name.
fn path_of(file: impl AsFd) -> Option<String> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    Path::new(&path).exists().then_some(path)
}

/// Path of a file whose name the user gave, with its last links followed: for whoever looks at what a new file would
/// replace.
///
/// # Errors
/// As [`Output::new`].
pub fn followed(target: &Path) -> io::Result<PathBuf> {
    Ok(OutputLocation::through(target)?.path)
}

impl Output {
    /// Begins a file of `size` bytes that shall get the name `target`, which must be free until then. Where that is a
    /// link to what is not there yet, the link stays, and its target is made.
    ///
    /// # Errors
    /// No file can be made in the directory; the name is another user's link in a directory that all may write.
    pub fn new(target: &Path, size: u64, privacy: Privacy) -> io::Result<Self> {
        let OutputLocation { directory, name, .. } = OutputLocation::through(target)?;
        Self::below(directory, &name, size, privacy)
    }

    /// Begins a file as [`Output::new`] does; what has the name at the end is replaced, and a bit that its mode lacks
    /// is missing in the new one, too.
    ///
    /// # Errors
    /// As [`Output::new`].
    pub fn replacing(target: &Path, size: u64, privacy: Privacy) -> io::Result<Self> {
        let mut output = Self::new(target, size, privacy)?;
        output.replaces = true;
        Ok(output)
    }

    /// Begins a file as [`Output::new`] does; a link that has the name is not followed, so it keeps the name from being
    /// free, or is replaced.
    ///
    /// # Errors
    /// No file can be made in the directory.
    pub fn in_place(target: &Path, size: u64, privacy: Privacy) -> io::Result<Self> {
        let OutputLocation { directory, name, .. } = OutputLocation::of(target)?;
        Self::below(directory, &name, size, privacy)
    }

    /// Begins a file of `size` bytes that shall get a name in an open directory.
    ///
    /// # Errors
    /// No file can be made there.
    pub fn below(directory: Directory, name: &OsStr, size: u64, privacy: Privacy) -> io::Result<Self> {
        let nameless = directory.create_nameless(privacy.mode()).ok().filter(|file| path_of(file).is_some());
        let (file, temporary) = match nameless {
            Some(file) => (file, None),
            None => {
                let name = random::name(UNFINISHED)?;
                (directory.create(&name, privacy.mode())?, Some(name))
            }
        };
        let name = name.to_owned();
        let unfinished = None;
        let mut output = Output { file, directory, name, temporary, unfinished, replaces: false };
        output.note()?;
        output.file.set_len(size)?;
        Ok(output)
    }

    /// Lets the file take the place of what has its name at the end.
    #[must_use]
    pub fn over_others(mut self) -> Self {
        self.replaces = true;
        self
    }

    /// The open file.
    ///
    /// # Errors
    /// If the handle can't be duplicated.
    pub fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// If the file can't be named, or the name is taken and shall not be replaced; then nothing of it is left.
    pub fn finish(mut self) -> io::Result<()> {
        if !self.replaces && self.temporary.is_none() {
            return self.link(&self.name);
        }
        if self.replaces {
            self.keep_private()?;
        }
        let name = match self.temporary.clone() {
            Some(name) => name,
            None => {
                let name = random::name(UNFINISHED)?;
                self.link(&name)?;
                self.temporary = Some(name.clone());
                self.note()?;
                name
            }
        };
        // What is left on an error goes with `self`.
        match self.replaces {
            true => self.directory.rename(&name, &self.directory, &self.name)?,
            false => self.directory.rename_to_free(&name, &self.directory, &self.name)?,
        }
        self.temporary = None;
        Ok(())
    }

    /// Notes the name that the file has meanwhile.
    fn note(&mut self) -> io::Result<()> {
        let name = self.temporary.as_deref();
        self.unfinished = name.map(|name| Unfinished::new(&self.directory, name)).transpose()?;
        Ok(())
    }

    /// Takes the bits from the file that the replaced one has not: what was private stays so.
    fn keep_private(&self) -> io::Result<()> {
        let old = match self.directory.look(&self.name) {
            Ok(old) if old.kind == Kind::File => old.mode,
            _ => return Ok(()),
        };
        let new = rustix::fs::fstat(&self.file)?.st_mode & 0o7777;
        if new & !old == 0 {
            return Ok(());
        }
        Ok(rustix::fs::fchmod(&self.file, rustix::fs::Mode::from_raw_mode(new & old))?)
    }

    /// Gives a nameless file a name, which must be free.
    fn link(&self, name: &OsStr) -> io::Result<()> {
        let path = path_of(&self.file).ok_or_else(|| io::Error::other("/proc is not mounted any more"))?;
        let flags = AtFlags::SYMLINK_FOLLOW;
        Ok(rustix::fs::linkat(rustix::fs::CWD, path, &self.directory, name, flags)?)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(name) = &self.temporary {
            // Best effort: an error here has no one to be returned to.
            let _ = self.directory.remove_file(name);
        }
    }
}

/// Opens a file that grows while work goes on, a log or a trace: a new one that only its owner may read, or the owner's own
/// one, which becomes as private. The end of what is in it is where writing begins, unless `afresh` empties it.
///
/// # Errors
/// The name leads to what is neither a regular file, a character device nor a pipe, to another user's file, or through a
/// link as [`Output::new`] refuses it.
pub fn private_log(path: &Path, afresh: bool) -> io::Result<File> {
    let OutputLocation { directory, name, .. } = OutputLocation::through(path)?;
    if let Ok(facts) = directory.look(&name)
        && matches!(facts.kind, Kind::CharDevice | Kind::Fifo)
    {
        // A terminal, what swallows all, or a program that reads; not one that a stranger put in the way.
        trusted(&directory.facts()?, &facts)?;
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        return Ok(rustix::fs::openat(&directory, &name, flags, rustix::fs::Mode::empty())?.into());
    }
    let file = match directory.create(&name, 0o600) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let (file, facts) = directory.open_to_write(&name)?;
            if facts.uid != rustix::process::geteuid().as_raw() {
                let what = format!("belongs to user {}; name another file", facts.uid);
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
            }
            rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(facts.mode & 0o600))?;
            file
        }
        made => made?,
    };
    if afresh {
        file.set_len(0)?;
    }
    rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
    Ok(file)
}

/// A directory that is not there yet.
#[derive(Debug)]
pub struct NewDirectory {
    above: Directory,
    name: OsString,
    temporary: Option<OsString>,
    made: Directory,
    unfinished: Option<Unfinished>,
}

impl NewDirectory {
    /// Begins a directory that shall get the name `target`, which must be free, or an empty directory.
    ///
    /// # Errors
    /// The name is taken; no directory can be made beside it.
    pub fn new(target: &Path) -> io::Result<Self> {
        let OutputLocation { directory, name, .. } = OutputLocation::of(target)?;
        Self::below(directory, &name)
    }

    /// Begins a directory in an open one, as [`NewDirectory::new`] does.
    ///
    /// # Errors
    /// As [`NewDirectory::new`].
    pub fn below(above: Directory, name: &OsStr) -> io::Result<Self> {
        let temporary = random::name(UNFINISHED)?;
        let made = above.make_directory(&temporary)?;
        mark_as_used(&made);
        let unfinished = Unfinished::new(&above, &temporary).ok();
        let new = Self { above, name: name.to_owned(), temporary: Some(temporary), made, unfinished };
        // Lists that the directory above hands down would come to files that have none.
        crate::Handle::of(&new.made)?.inherit_nothing()?;
        Ok(new)
    }

    /// The directory, to be filled.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.made
    }

    /// Gives the directory its name.
    ///
    /// # Errors
    /// The name is taken by anything but an empty directory; then nothing of the new one is left.
    pub fn finish(mut self) -> io::Result<()> {
        if let Some(name) = &self.temporary {
            let rename = || self.above.rename(name, &self.above, &self.name);
            match &self.unfinished {
                Some(unfinished) => unfinished.complete(rename)?,
                None => rename()?,
            }
        }
        self.temporary = None;
        Ok(())
    }
}

impl Drop for NewDirectory {
    fn drop(&mut self) {
        let Some(name) = &self.temporary else { return };
        // Only what was made here is removed, whatever has its name by now. An error has no one to be returned to.
        let own = self.above.look(name).ok().map(|facts| facts.id);
        if own.is_some() && own == self.made.facts().ok().map(|facts| facts.id) {
            let _ = self.above.remove_tree(name);
        }
    }
}

#[cfg(test)]
mod tests;
