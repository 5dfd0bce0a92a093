//! Work on many files of a volume at once: unpacking archives, copying and removing trees.
//!
//! Owns: the work itself, on a plain image or inside the server of a mount, in batches that are whole: after each the
//! volume may be left as it is. Whoever asks is an [`Actor`], whose rights are checked as the kernel would. Who else
//! must know is a [`Watcher`]. Leaves to others: arguments and messages (`commands`), and how a request comes
//! (`control`).

pub mod actor;
pub mod copy;
pub mod export;
pub mod import;
mod maker;
pub mod put;
pub mod remove;

use std::cell::RefCell;
use std::fmt;

use ondisk::inode::{FileType, Timestamp};
use ondisk::units::InodeNumber;
use platfs::{Error, Inherited, Metadata, Removed, Times, Volume, Wanted};

use self::actor::{Actor, READ, SEARCH, WRITE};
use crate::text::Shown;

/// What has been done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Done {
    /// Files of all kinds but directories that were made, removed or read.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Bytes of contents.
    pub bytes: u64,
    /// Attributes that the actor may not set, and that were left out.
    pub attributes_left_out: u64,
}

/// Who must know what is done, and may end it.
pub trait Watcher {
    /// The time that changes get.
    fn now(&self) -> Timestamp;

    /// A directory has got a name, or one of its names means another file. The work itself is one user of the
    /// directory.
    fn added(&self, directory: InodeNumber, name: &[u8]) {
        let _ = (directory, name);
    }

    /// A directory has lost a name.
    fn removed(&self, directory: InodeNumber, removed: &Removed) {
        let _ = (directory, removed);
    }

    /// Names of a directory, or its attributes, have changed. The work itself is one user of it.
    fn touched(&self, directory: InodeNumber) {
        let _ = directory;
    }

    /// A file has more or fewer names than before.
    fn relinked(&self, number: InodeNumber) {
        let _ = number;
    }

    /// Whether the work goes on. Called between batches.
    ///
    /// # Errors
    /// Why it ends.
    fn go_on(&self, done: &Done) -> Result<(), Halt>;
}

/// Extended attributes by full name.
type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Why work ended before its end. What was done until then stays.
#[derive(Debug)]
pub enum Halt {
    /// The volume says no.
    At {
        /// The path as it was given or met.
        path: Vec<u8>,
        /// What it says.
        error: Error,
    },
    /// The actor may not.
    Denied {
        /// The path.
        path: Vec<u8>,
    },
    /// A path that is not taken.
    Refused {
        /// The path.
        path: Vec<u8>,
        /// Why.
        what: String,
    },
    /// The archive can't be read, or the output not written.
    Stream(String),
    /// It was asked to stop.
    Stopped,
}

impl Halt {
    /// The volume says no at a path.
    pub(crate) fn at(path: &[u8]) -> impl Fn(Error) -> Self + '_ {
        move |error| Halt::At { path: path.to_vec(), error }
    }

    /// A path is refused.
    pub(crate) fn refused(path: &[u8], what: impl Into<String>) -> Self {
        Halt::Refused { path: path.to_vec(), what: what.into() }
    }
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Halt::At { path, error } => write!(f, "{}: {error}", Shown(path)),
            Halt::Denied { path } => write!(f, "{}: permission denied", Shown(path)),
            Halt::Refused { path, what } => write!(f, "{}: {what}", Shown(path)),
            Halt::Stream(what) => write!(f, "{what}"),
            Halt::Stopped => write!(f, "stopped"),
        }
    }
}

/// One piece of work: on which volume, on whose behalf, and who watches.
pub struct Job<'j> {
    /// The volume.
    pub volume: &'j Volume,
    /// On whose behalf.
    pub actor: &'j Actor,
    /// Who watches.
    pub watcher: &'j dyn Watcher,
    /// Access control lists count.
    pub lists: bool,
    done: RefCell<Done>,
}

/// What is asked of a new file, beside its kind and name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) permissions: u16,
    /// The owner to give it, where the actor may.
    pub(crate) owner: Option<(u32, u32)>,
    /// Times of access and of the contents.
    pub(crate) times: Option<(Timestamp, Timestamp)>,
}

impl<'j> Job<'j> {
    /// Work that has not begun.
    pub fn new(volume: &'j Volume, actor: &'j Actor, watcher: &'j dyn Watcher, lists: bool) -> Self {
        Job { volume, actor, watcher, lists, done: RefCell::default() }
    }

    /// What has been done so far.
    #[must_use]
    pub fn done(&self) -> Done {
        *self.done.borrow()
    }

    fn count(&self, change: impl FnOnce(&mut Done)) {
        change(&mut self.done.borrow_mut());
    }

    /// Whether the work goes on.
    fn go_on(&self) -> Result<(), Halt> {
        let done = self.done();
        self.watcher.go_on(&done)
    }

    /// The volume at this moment, on the actor's terms.
    fn now(&self) -> Volume {
        self.volume.at_time(self.watcher.now()).on_behalf_of(self.actor.uid, self.actor.gid)
    }

    /// Facts of an inode to which the actor has all of these rights.
    fn with_rights(&self, path: &[u8], number: InodeNumber, rights: u16) -> Result<Metadata, Halt> {
        let facts = self.volume.metadata(number).map_err(Halt::at(path))?;
        match self.actor.may(self.volume, &facts, rights, self.lists).map_err(Halt::at(path))? {
            true => Ok(facts),
            false => Err(Halt::Denied { path: path.to_vec() }),
        }
    }

    /// What a name of a directory leads to, for one who may follow its names; the directory itself for no name.
    ///
    /// # Errors
    /// No right to it; nothing of that name.
    pub fn child(&self, directory: InodeNumber, name: &[u8], path: &[u8]) -> Result<InodeNumber, Halt> {
        if name.is_empty() {
            return Ok(directory);
        }
        self.with_rights(path, directory, SEARCH)?;
        self.volume.lookup(directory, name).map_err(Halt::at(path))
    }

    /// A directory whose names the actor may change.
    fn changeable(&self, path: &[u8], number: InodeNumber) -> Result<Metadata, Halt> {
        self.with_rights(path, number, WRITE | SEARCH)
    }

    /// A directory whose names the actor may list and follow.
    fn listable(&self, path: &[u8], number: InodeNumber) -> Result<Metadata, Halt> {
        self.with_rights(path, number, READ | SEARCH)
    }

    /// What a new file gets: as Linux gives it to a program of the actor, and what the actor may give it beyond that.
    fn given(&self, directory: InodeNumber, file_type: FileType, asked: &Asked) -> Result<Inherited, Error> {
        let actor = self.actor;
        let owner = asked.owner.filter(|_| actor.may_give_away());
        // Who keeps owners keeps modes too: both are the archive's.
        let (permissions, umask) = match (file_type, owner) {
            (FileType::Symlink, _) => (0o777, 0),
            (_, Some(_)) => (asked.permissions & 0o7777, 0),
            (_, None) => (asked.permissions & 0o777, actor.umask),
        };
        let wanted = Wanted { file_type, permissions, umask, uid: actor.uid, gid: actor.gid };
        let mut given = self.volume.inherit(directory, &wanted)?;
        if !self.lists && !given.xattrs.is_empty() {
            given.xattrs.clear();
            given.attributes.permissions =
                given.attributes.permissions & 0o7000 | permissions & 0o777 & !umask;
        }
        if let Some((uid, gid)) = owner {
            (given.attributes.uid, given.attributes.gid) = (uid, gid);
            if given.xattrs.is_empty() {
                given.attributes.permissions = permissions;
            }
        }
        let now = self.watcher.now();
        let (access, modify) = asked.times.unwrap_or((now, now));
        given.attributes.times = Times { access, modify, change: now, create: Some(now) };
        Ok(given)
    }

    /// The attributes that the actor may set, of those that are asked for.
    fn settable(&self, asked: Xattrs) -> Xattrs {
        let before = asked.len();
        let may = |name: &[u8]| match name {
            _ if name.starts_with(b"system.posix_acl_") => self.lists,
            _ => name.starts_with(b"user.") || self.actor.is_administrator(),
        };
        let kept: Vec<_> = asked.into_iter().filter(|(name, _)| may(name)).collect();
        self.count(|done| done.attributes_left_out += (before - kept.len()) as u64);
        kept
    }
}

/// A name that can stand in a directory.
pub(crate) fn check_name(path: &[u8], name: &[u8]) -> Result<(), Halt> {
    let plain = !name.is_empty() && !matches!(name, b"." | b"..") && !name.contains(&b'/');
    match plain && !name.contains(&0) && name.len() <= 255 {
        true => Ok(()),
        false => Err(Halt::refused(path, "has no name that a file can have")),
    }
}
