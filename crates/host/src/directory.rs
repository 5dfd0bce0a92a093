//! An open directory, and what can be done with the names in it.

use crate::attributes::{Handle, XattrReader, Xattrs, XattrsOf};
use crate::facts::{Facts, Kind};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, RenameFlags, SeekFrom};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path};

/// Bytes of names that are read at once.
const LISTED_AT_ONCE: usize = 32 << 10;

const ENTER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An open directory. Each name is one component in it; a symbolic link is an entry, never a way.
#[derive(Debug)]
pub struct Directory {
    descriptor: OwnedFd,
}

/// A name that stays in its directory.
fn component(name: &OsStr) -> io::Result<&OsStr> {
    let bytes = name.as_bytes();
    match bytes {
        b"" | b"." | b".." => Err(refused("it is no name of a file")),
        _ if bytes.contains(&b'/') => Err(refused("a name has no slash")),
        _ if bytes.contains(&0) => Err(refused("a name has no zero byte")),
        _ => Ok(name),
    }
}

fn refused(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

impl Directory {
    /// Opens a directory that the user named: links lead on, as for any command.
    ///
    /// # Errors
    /// It is no directory; the system's.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(path.as_ref(), flags, Mode::empty())?;
        Ok(Self { descriptor })
    }

    /// Opens a directory in this one.
    ///
    /// # Errors
    /// The name is no component, or leads to no directory (a link to one is none); the system's.
    pub fn enter(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let name = component(name.as_ref())?;
        let descriptor = match rustix::fs::openat(self, name, ENTER, Mode::empty()) {
            // Linux says ENOTDIR of a link with O_DIRECTORY and ELOOP without: one answer for both.
            Err(Errno::LOOP) => return Err(Errno::NOTDIR.into()),
            opened => opened?,
        };
        Ok(Self { descriptor })
    }

    /// Opens a directory below this one, component by component. An empty path is this directory.
    ///
    /// # Errors
    /// As [`Directory::enter`]; a component that leads up, or an absolute path.
    pub fn descend(&self, path: impl AsRef<Path>) -> io::Result<Self> {
        let mut here = self.try_clone()?;
        for component in path.as_ref().components() {
            match component {
                Component::CurDir => {}
                Component::Normal(name) => here = here.enter(name)?,
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(refused("the path leads out of its directory"));
                }
            }
        }
        Ok(here)
    }

    /// Opens a directory below this one as [`Directory::descend`] does, and makes those that are missing, for their
    /// owner only, or its group where this one has the set-group-id bit. Each is stable in the one above it when this returns.
    ///
    /// # Errors
    /// As [`Directory::descend`] and [`Directory::make_directory`].
    pub fn descend_or_make(&self, path: impl AsRef<Path>) -> io::Result<Self> {
        let mut here = self.try_clone()?;
        for component in path.as_ref().components() {
            let Component::Normal(name) = component else {
                return Err(refused("the path leads out of its directory"));
            };
            here = match here.enter(name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => here.enter_or_make(name)?,
                entered => entered?,
            };
        }
        Ok(here)
    }

    fn enter_or_make(&self, name: &OsStr) -> io::Result<Self> {
        let below = match self.make_directory(name) {
            // Another program was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.enter(name),
            made => made,
        }?;
        if let Some(bits) = self.of_group()? {
            Handle::of(&below)?.set_mode(bits)?;
        }
        self.sync()?;
        Ok(below)
    }

    /// The permission bits of a directory whose set-group-id bit says that it is its group's, too.
    fn of_group(&self) -> io::Result<Option<u32>> {
        const SET_GROUP_ID: u32 = 0o2000;
        let mode = self.facts()?.mode;
        Ok((mode & SET_GROUP_ID != 0).then_some(mode & 0o2770))
    }

    /// Makes a file that only its owner may use, open for reading and writing; where the directory has the set-group-id
    /// bit its group may read and write it as far as the directory.
    ///
    /// # Errors
    /// As [`Directory::create`].
    pub fn create_private(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let file = self.create(name, 0o600)?;
        if let Some(bits) = self.of_group()? {
            Handle::of(&file)?.set_mode(0o600 | bits & 0o060)?;
        }
        Ok(file)
    }

    /// Opens a directory that the user named, and makes it and those above it where they are missing, for their owner
    /// only.
    ///
    /// # Errors
    /// As [`Directory::open`] and [`Directory::make_directory`].
    pub fn open_or_make(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        match (Self::open(path), path.parent(), path.file_name()) {
            (Err(error), Some(above), Some(name)) if error.kind() == io::ErrorKind::NotFound => {
                let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
                Self::open_or_make(above)?.enter_or_make(name)
            }
            (opened, ..) => opened,
        }
    }

    /// A second handle of the same directory.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { descriptor: rustix::io::fcntl_dupfd_cloexec(&self.descriptor, 0)? })
    }

    /// Facts of the directory itself.
    ///
    /// # Errors
    /// The system's.
    pub fn facts(&self) -> io::Result<Facts> {
        Ok(Facts::from_stat(&rustix::fs::fstat(&self.descriptor)?))
    }

    /// Facts of an entry; of a link those of the link.
    ///
    /// # Errors
    /// There is none; the system's.
    pub fn look(&self, name: impl AsRef<OsStr>) -> io::Result<Facts> {
        let name = component(name.as_ref())?;
        Ok(Facts::from_stat(&rustix::fs::statat(self, name, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    /// True if the name is taken, by whatever.
    ///
    /// # Errors
    /// It can't be told.
    pub fn has(&self, name: impl AsRef<OsStr>) -> io::Result<bool> {
        match self.look(name) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Opens a regular file for reading, and gives the facts of what was opened.
    ///
    /// # Errors
    /// It is none: a link, pipe or device is named, not opened, and a pipe without a writer is no reason to wait.
    pub fn open_file(&self, name: impl AsRef<OsStr>) -> io::Result<(File, Facts)> {
        self.open_regular(name.as_ref(), OFlags::RDONLY)
    }

    /// Opens a regular file for reading and writing, and gives the facts of what was opened.
    ///
    /// # Errors
    /// As [`Directory::open_file`].
    pub fn open_to_write(&self, name: impl AsRef<OsStr>) -> io::Result<(File, Facts)> {
        self.open_regular(name.as_ref(), OFlags::RDWR)
    }

    fn open_regular(&self, name: &OsStr, access: OFlags) -> io::Result<(File, Facts)> {
        // To open a device can have an effect, so it is looked at before; and after, since names change.
        regular(&self.look(name)?)?;
        self.open_seen(name, access)
    }

    /// Opens for reading what was a regular file when the caller looked, a moment ago.
    ///
    /// # Errors
    /// As [`Directory::open_file`]. A device or pipe that has taken the name since that look is opened, and closed at once:
    /// where time has passed, [`Directory::open_file`] looks again.
    pub fn open_listed(&self, name: impl AsRef<OsStr>) -> io::Result<(File, Facts)> {
        self.open_seen(name.as_ref(), OFlags::RDONLY)
    }

    fn open_seen(&self, name: &OsStr, access: OFlags) -> io::Result<(File, Facts)> {
        let name = component(name)?;
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(self, name, flags, Mode::empty()) {
            Err(Errno::LOOP) => return Err(not_regular(Kind::Symlink)),
            opened => File::from(opened?),
        };
        let facts = Facts::from_stat(&rustix::fs::fstat(&file)?);
        regular(&facts)?;
        Ok((file, facts))
    }

    /// Makes a file, open for reading and writing; its mode is `mode` less the umask.
    ///
    /// # Errors
    /// The name is taken; the system's.
    pub fn create(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<File> {
        let name = component(name.as_ref())?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(self, name, flags, Mode::from_raw_mode(mode))?.into())
    }

    /// Opens a regular file for reading and writing, or makes an empty one as [`Directory::create_private`] does.
    ///
    /// # Errors
    /// As [`Directory::open_to_write`] and [`Directory::create`].
    pub fn open_or_create(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let name = name.as_ref();
        match self.create_private(name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.open_to_write(name).map(|(file, _)| file)
            }
            made => made,
        }
    }

    /// Makes an empty file without a name, open for reading and writing; it is gone with its handle.
    ///
    /// # Errors
    /// The file system knows no such files; the system's.
    pub fn create_nameless(&self, mode: u32) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(self, c".", flags, Mode::from_raw_mode(mode))?.into())
    }

    /// Makes a directory that only its owner may use, and opens it.
    ///
    /// # Errors
    /// The name is taken; another user's directory has taken the place of the new one; the system's.
    pub fn make_directory(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let name = component(name.as_ref())?;
        rustix::fs::mkdirat(self, name, Mode::RWXU)?;
        let made = self.enter(name)?;
        // Linux makes and opens a directory by two calls. Between them another one could have taken the name.
        if self.is_of_caller(made.facts()?.uid)? { Ok(made) } else { Err(replaced()) }
    }

    /// Tells if that is the owner of what the caller makes here.
    fn is_of_caller(&self, owner: u32) -> io::Result<bool> {
        Ok(owner == rustix::process::geteuid().as_raw() || owner == self.owner_given()?)
    }

    /// Owner of a new file here, which a file system may show as another than the caller. It is made and opened by one
    /// call: nobody can put another in its place.
    fn owner_given(&self) -> io::Result<u32> {
        let name = crate::random::name(".plat-")?;
        let probe = self.create(&name, 0)?;
        let owner = rustix::fs::fstat(&probe)?.st_uid;
        self.remove_file(&name)?;
        Ok(owner)
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// The name is taken; the system's.
    pub fn symlink(&self, target: &[u8], name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(OsStr::from_bytes(target), self, component(name.as_ref())?)?)
    }

    /// Target of a symbolic link.
    ///
    /// # Errors
    /// It is no link; the system's.
    pub fn read_link(&self, name: impl AsRef<OsStr>) -> io::Result<OsString> {
        let target = rustix::fs::readlinkat(self, component(name.as_ref())?, Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()))
    }

    /// Makes a device, named pipe or socket that only its owner may use.
    ///
    /// # Errors
    /// The name is taken; the kind is made otherwise; the system's.
    pub fn make_node(
        &self,
        name: impl AsRef<OsStr>,
        kind: Kind,
        (major, minor): (u32, u32),
    ) -> io::Result<()> {
        let name = component(name.as_ref())?;
        let kind = match kind {
            Kind::CharDevice => FileType::CharacterDevice,
            Kind::BlockDevice => FileType::BlockDevice,
            Kind::Fifo => FileType::Fifo,
            Kind::Socket => FileType::Socket,
            Kind::File | Kind::Directory | Kind::Symlink | Kind::Unknown => {
                return Err(refused("it is neither a device, a pipe nor a socket"));
            }
        };
        let number = rustix::fs::makedev(major, minor);
        Ok(rustix::fs::mknodat(self, name, kind, Mode::RUSR | Mode::WUSR, number)?)
    }

    /// A handle of an entry of any type, to set its attributes: what is set concerns what was opened now.
    ///
    /// # Errors
    /// There is none; the system's.
    pub fn handle(&self, name: impl AsRef<OsStr>) -> io::Result<Handle> {
        let name = component(name.as_ref())?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Handle::named(rustix::fs::openat(self, name, flags, Mode::empty())?))
    }

    /// A handle of what the caller has just made here, to set its attributes. Linux makes and opens all but regular files by
    /// two calls: between them another one could have taken the name.
    ///
    /// # Errors
    /// The file of that name is of another kind, another user's, or has several names; the system's.
    pub fn made(&self, name: impl AsRef<OsStr>, kind: Kind) -> io::Result<Handle> {
        let handle = self.handle(name)?;
        let facts = handle.facts()?;
        let is_new = facts.kind == kind && (kind == Kind::Directory || facts.links == 1);
        if is_new && self.is_of_caller(facts.uid)? { Ok(handle) } else { Err(replaced()) }
    }

    /// Gives a file of this directory a second name in another one.
    ///
    /// # Errors
    /// The new name is taken; the system's.
    pub fn link(&self, name: impl AsRef<OsStr>, to: &Self, new: impl AsRef<OsStr>) -> io::Result<()> {
        let (name, new) = (component(name.as_ref())?, component(new.as_ref())?);
        Ok(rustix::fs::linkat(self, name, to, new, AtFlags::empty())?)
    }

    /// Renames an entry; what has the new name gives way, as rename(2) has it.
    ///
    /// # Errors
    /// The system's.
    pub fn rename(&self, name: impl AsRef<OsStr>, to: &Self, new: impl AsRef<OsStr>) -> io::Result<()> {
        let (name, new) = (component(name.as_ref())?, component(new.as_ref())?);
        Ok(rustix::fs::renameat(self, name, to, new)?)
    }

    /// Renames an entry that is no directory to a name that must be free.
    ///
    /// # Errors
    /// The new name is taken; the system's.
    pub fn rename_to_free(
        &self,
        name: impl AsRef<OsStr>,
        to: &Self,
        new: impl AsRef<OsStr>,
    ) -> io::Result<()> {
        let (name, new) = (component(name.as_ref())?, component(new.as_ref())?);
        match rustix::fs::renameat_with(self, name, to, new, RenameFlags::NOREPLACE) {
            // Not every file system knows how; a second name is refused just as surely.
            Err(Errno::INVAL | Errno::NOSYS) => {
                self.link(name, to, new)?;
                self.remove_file(name)
            }
            renamed => Ok(renamed?),
        }
    }

    /// Removes an entry that is no directory.
    ///
    /// # Errors
    /// The system's.
    pub fn remove_file(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(self, component(name.as_ref())?, AtFlags::empty())?)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// It isn't empty; the system's.
    pub fn remove_directory(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(self, component(name.as_ref())?, AtFlags::REMOVEDIR)?)
    }

    /// Names in the directory, in the order of the system, without `.` and `..`.
    ///
    /// # Errors
    /// It can't be read.
    pub fn entries(&self) -> io::Result<Entries> {
        // A descriptor of its own: a position in a directory belongs to the opening, which `try_clone` shares.
        let opened = rustix::fs::openat(self, c".", ENTER, Mode::empty())?;
        Ok(Entries { directory: rustix::fs::Dir::new(opened)? })
    }

    /// All names in the directory, as [`Directory::entries`] gives them, without a second opening of it: its position, which
    /// handles of [`Directory::try_clone`] share, is at the end after that.
    ///
    /// # Errors
    /// It can't be read.
    pub fn names(&mut self) -> io::Result<Vec<OsString>> {
        rustix::fs::seek(&self.descriptor, SeekFrom::Start(0))?;
        let mut names = Vec::new();
        let mut room = Vec::with_capacity(LISTED_AT_ONCE);
        let mut entries = RawDir::new(&self.descriptor, room.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name.to_vec()));
            }
        }
        Ok(names)
    }

    /// The extended attributes of an entry of that kind, but for those that the caller may not see. Where `/proc` is not
    /// mounted, only files and directories seem to have some.
    ///
    /// # Errors
    /// The system's, with what was tried.
    pub fn xattrs(
        &self,
        name: impl AsRef<OsStr>,
        kind: Kind,
        reader: &mut XattrReader,
    ) -> Result<Xattrs, (&'static str, io::Error)> {
        let name = component(name.as_ref()).map_err(|error| ("list the attributes of", error))?;
        // Linux before 6.13 has no call relative to a directory.
        if let Some(entry) = reader.path_of(self.as_fd(), name) {
            let read = reader.read(XattrsOf::Entry(entry.as_os_str()));
            return read.map_err(|(what, error)| (what, error.into()));
        }
        let opened: OwnedFd = match kind {
            Kind::File => self.open_listed(name).map(|(file, _)| file.into()),
            Kind::Directory => self.enter(name).map(OwnedFd::from),
            _ => return Ok(Xattrs::new()),
        }
        .map_err(|error| ("open", error))?;
        reader.read(XattrsOf::Open(opened.as_fd())).map_err(|(what, error)| (what, error.into()))
    }

    /// Makes the names in the directory stable.
    ///
    /// # Errors
    /// The system's.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.descriptor)?)
    }
}

impl From<OwnedFd> for Directory {
    /// Takes what was opened as a directory.
    fn from(descriptor: OwnedFd) -> Self {
        Self { descriptor }
    }
}

impl From<Directory> for OwnedFd {
    fn from(directory: Directory) -> Self {
        directory.descriptor
    }
}

impl From<Directory> for Handle {
    fn from(directory: Directory) -> Self {
        Handle::from(File::from(directory.descriptor))
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Names in a directory.
#[derive(Debug)]
pub struct Entries {
    directory: rustix::fs::Dir,
}

impl Iterator for Entries {
    type Item = io::Result<OsString>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = match self.directory.next()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error.into())),
            };
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                return Some(Ok(OsString::from_vec(name.to_vec())));
            }
        }
    }
}

fn regular(facts: &Facts) -> io::Result<()> {
    if facts.kind == Kind::File { Ok(()) } else { Err(not_regular(facts.kind)) }
}

fn not_regular(kind: Kind) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("is {}, not a regular file", kind.noun()))
}

/// Says that what was made is not what has its name now.
fn replaced() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "another file took the place of the new one")
}

#[cfg(test)]
mod tests;
