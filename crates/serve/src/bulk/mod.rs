//! Work on many files of a volume at once: unpacking archives, copying and removing trees.
//!
//! Owns: the work itself, on a plain image or inside the server of a mount, in batches that are whole: after each the
//! volume may be left as it is. The asking program is an [`Actor`], whose rights are checked as the kernel would
//! ([`platfs::rights`]). A [`Watcher`] passes on what others must know. Leaves to others: arguments and messages
//! (the command's), and how a request comes (`control`).

mod acts;
mod ahead;
pub mod convert;
pub mod copy;
pub mod defrag;
pub mod export;
pub mod forgiving;
pub mod import;
mod lists;
mod maker;
mod name;
pub mod put;
pub mod remove;
pub mod snapshot;
pub mod take;
mod way;

use std::fmt;
use std::sync::{Mutex, MutexGuard};

use ondisk::acl::Acl;
use ondisk::inode::{FileType, Timestamp};
use ondisk::units::InodeNumber;
use platfs::rights::{self, Credentials, EXECUTE, Powers, READ, WRITE};
use platfs::{CreateRequest, Error, Inherited, Metadata, Pin, Removed, Times, Volume};

pub use self::acts::{Act, Acts};
pub use self::name::Name;
use crate::refusal::Refusal;
use crate::sandbox;
use platfs_image::text::Shown;
use platfs_open::locks::locked;
use rustix::io::Errno;

/// Counts of the work done so far.
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

/// On whose behalf work is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Actor {
    /// User, groups and capabilities.
    pub credentials: Credentials,
    /// Permissions that its new files never get.
    pub umask: u16,
}

impl Actor {
    /// An actor that may do everything.
    #[must_use]
    pub fn root() -> Self {
        let credentials = Credentials { powers: Powers::ALL, ..Credentials::new(0, 0) };
        Actor { credentials, umask: 0o022 }
    }

    fn has(&self, powers: Powers) -> bool {
        self.credentials.powers.contains(powers)
    }

    /// Tells if the actor may do what is about all of the volume and takes these capabilities in Linux.
    #[must_use]
    pub fn keeps(&self, powers: Powers) -> bool {
        self.has(powers) || is_owner_of_server(self.credentials.uid)
    }
}

/// Tells if this server is a user's, and has no more rights than that user: who could do without it what it does.
#[must_use]
pub fn is_owner_of_server(user: u32) -> bool {
    user == rustix::process::geteuid().as_raw() && !sandbox::powers_before().contains(Powers::SYS_ADMIN)
}

/// Which extended attributes there are to be seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// Access control lists count.
    pub lists: bool,
    /// Those of users.
    pub of_users: bool,
    /// Any.
    pub any: bool,
}

impl Terms {
    /// All of them.
    pub const ALL: Terms = Terms { lists: true, of_users: true, any: true };

    /// Tells if an attribute of that name is for somebody to see, on a file that he may see: the one rule of calls on a
    /// mount and of live commands. `administers` says whether he has the administrator's capability.
    #[must_use]
    pub fn show(self, name: &[u8], administers: impl FnOnce() -> bool) -> bool {
        match name {
            _ if !self.any => false,
            _ if name.starts_with(b"system.posix_acl_") => self.lists,
            _ if name.starts_with(b"user.") => self.of_users,
            _ if name.starts_with(b"trusted.") => administers(),
            _ => true,
        }
    }
}

/// A part of the program that must know what is done, and may end it.
pub trait Watcher: Sync {
    /// The time that changes get.
    fn now(&self) -> Timestamp;

    /// The time that no file's is later than, where copies are to be the same each time. Times of access, which reading
    /// changes, are those of the contents then.
    fn latest(&self) -> Option<Timestamp> {
        None
    }

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

    /// Checks that the work goes on. Called between batches.
    ///
    /// # Errors
    /// Why it ends.
    fn go_on(&self, done: &Done) -> Result<(), Halt>;
}

/// An inode that stays what it is: it has a user.
pub struct Held<'j> {
    _pin: Pin<'j>,
    /// Metadata when it was taken hold of.
    pub facts: Metadata,
}

/// How often a name is looked up that means another file each time.
const TRIES: u32 = 32;

/// An extended attribute: its full name and its value.
type Xattr = (Vec<u8>, Vec<u8>);
type Xattrs = Vec<Xattr>;

/// Joins the attributes that a new file inherits from its directory with those that it brings along. Its own win over
/// inherited ones of the same name, and its mode follows an access list of its own.
fn with_own(given: Inherited, own: Xattrs) -> Inherited {
    let Inherited { mut attributes, xattrs: inherited } = given;
    let list = own.iter().find(|(name, _)| name == b"system.posix_acl_access");
    if let Some(list) = list.and_then(|(_, value)| Acl::from_xattr(value).ok())
        && !list.entries().is_empty()
    {
        attributes.permissions = attributes.permissions & 0o7000 | list.mode();
    }
    let is_new = |(name, _): &Xattr| !own.iter().any(|(known, _)| known == name);
    let inherited: Xattrs = inherited.into_iter().filter(is_new).collect();
    Inherited { attributes, xattrs: own.into_iter().chain(inherited).collect() }
}

/// Joins them for a new directory, and returns its own default list apart. The caller sets that list when the directory is
/// full: files that are copied into it have lists of their own, or none. Until then the directory has no default list, also
/// no inherited one.
fn of_directory(given: Inherited, own: Xattrs) -> (Inherited, Option<Xattr>) {
    let is_own = own.iter().any(|(name, _)| name == b"system.posix_acl_default");
    let mut all = with_own(given, own);
    let at = all.xattrs.iter().position(|(name, _)| is_own && name == b"system.posix_acl_default");
    let list = at.map(|at| all.xattrs.swap_remove(at));
    (all, list)
}

/// Why work ended before its end. What was done until then stays.
#[derive(Debug)]
pub enum Halt {
    /// The volume says no.
    At {
        /// The path as it was given or met.
        path: Vec<u8>,
        /// Error of the library.
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
    Stream(Refusal),
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

impl From<std::io::Error> for Halt {
    /// Of the work's own input or output.
    fn from(error: std::io::Error) -> Self {
        Halt::Stream(error.into())
    }
}

impl From<Halt> for Refusal {
    fn from(halt: Halt) -> Self {
        let words = halt.to_string();
        match halt {
            Halt::At { error, .. } => Refusal { errno: error.errno(), words },
            Halt::Denied { .. } => Refusal::new(Errno::ACCESS, words),
            Halt::Refused { .. } => Refusal::new(Errno::INVAL, words),
            Halt::Stream(why) => why,
            Halt::Stopped => Refusal::new(Errno::INTR, words),
        }
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
    /// Watcher of the work.
    pub watcher: &'j dyn Watcher,
    /// Which extended attributes there are.
    pub terms: Terms,
    /// Acts that the kernel lets the actor do.
    acts: Acts,
    done: Mutex<Done>,
}

/// Attributes asked for a new file, beside its kind and name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) permissions: u16,
    /// The owner to give it, where the actor may.
    pub(crate) owner: Option<(u32, u32)>,
    /// Times of access and of the contents.
    pub(crate) times: Option<(Timestamp, Timestamp)>,
    /// The copy has the access control lists of its original, or none as that: it inherits none from its directory.
    pub(crate) lists: bool,
}

impl<'j> Job<'j> {
    /// Work that has not begun.
    pub fn new(volume: &'j Volume, actor: &'j Actor, watcher: &'j dyn Watcher, terms: Terms) -> Self {
        Job { volume, actor, watcher, terms, acts: Acts::ALL, done: Mutex::default() }
    }

    /// With no more than these acts.
    #[must_use]
    pub fn with_acts(self, acts: Acts) -> Self {
        Job { acts, ..self }
    }

    /// The kernel lets the actor do that.
    fn must(&self, path: &[u8], act: Act) -> Result<(), Halt> {
        match self.acts.has(act) {
            true => Ok(()),
            false => Err(Halt::Denied { path: path.to_vec() }),
        }
    }

    /// Returns the counts of the work done so far.
    #[must_use]
    pub fn done(&self) -> Done {
        *self.counter()
    }

    fn count(&self, change: impl FnOnce(&mut Done)) {
        change(&mut self.counter());
    }

    fn counter(&self) -> MutexGuard<'_, Done> {
        locked(&self.done)
    }

    /// Checks that the work goes on.
    fn go_on(&self) -> Result<(), Halt> {
        let done = self.done();
        self.watcher.go_on(&done)
    }

    /// On whose behalf it is done.
    #[must_use]
    pub fn actor(&self) -> &'j Actor {
        self.actor
    }

    fn who(&self) -> &'j Credentials {
        &self.actor.credentials
    }

    /// The volume at this moment, on the actor's terms.
    fn now(&self) -> Volume {
        let volume = self.volume.at_time(self.watcher.now());
        match self.actor.has(Powers::SYS_RESOURCE) {
            true => volume,
            false => volume.on_behalf_of(self.who().uid, self.who().gid),
        }
    }

    /// Facts of an inode to which the actor has all of these rights.
    fn with_rights(&self, path: &[u8], number: InodeNumber, rights: u16) -> Result<Metadata, Halt> {
        let facts = self.volume.metadata(number).map_err(Halt::at(path))?;
        self.allowed(path, &facts, rights).map(|()| facts)
    }

    /// The actor has all of these rights to an inode that is held.
    fn allowed(&self, path: &[u8], facts: &Metadata, rights: u16) -> Result<(), Halt> {
        let asks = self.terms.lists && facts.uid != self.who().uid && rights::asks_list(facts);
        let list = match asks {
            true => self.volume.inode(facts.inode).access_list().map_err(Halt::at(path))?,
            false => None,
        };
        match self.who().may(facts, list.as_ref(), rights) {
            true => Ok(()),
            false => Err(Halt::Denied { path: path.to_vec() }),
        }
    }

    /// The file that a name of a directory leads to, for one who may follow its names; the directory itself for none.
    ///
    /// # Errors
    /// No right to it; nothing of that name.
    pub fn child(&self, directory: InodeNumber, name: &[u8], path: &[u8]) -> Result<Held<'j>, Halt> {
        let failed = Halt::at(path);
        if name.is_empty() {
            let pin = self.volume.pin(directory).map_err(&failed)?;
            return Ok(Held { _pin: pin, facts: self.volume.metadata(directory).map_err(failed)? });
        }
        self.with_rights(path, directory, EXECUTE)?;
        self.find(directory, name).map_err(&failed)?.ok_or_else(|| failed(Error::NotFound))
    }

    /// Finds the inode that a name of a directory leads to, if there is one.
    fn find(&self, directory: InodeNumber, name: &[u8]) -> Result<Option<Held<'j>>, Error> {
        for _ in 0..TRIES {
            let number = match self.volume.lookup(directory, name) {
                Err(Error::NotFound) => return Ok(None),
                found => found?,
            };
            if let Some(held) = self.hold(directory, name, number)? {
                return Ok(Some(held));
            }
        }
        Ok(None)
    }

    /// A file that a name of a directory led to when it was looked at; `None` if it does so no more. Before it is held,
    /// its number may be free or mean another file: nothing may be concluded from its record.
    fn hold(
        &self,
        directory: InodeNumber,
        name: &[u8],
        number: InodeNumber,
    ) -> Result<Option<Held<'j>>, Error> {
        let Ok(pin) = self.volume.pin(number) else { return Ok(None) };
        match self.volume.lookup(directory, name) {
            Ok(found) if found == number => {
                Ok(Some(Held { _pin: pin, facts: self.volume.metadata(number)? }))
            }
            Ok(_) | Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A directory whose names the actor may change.
    fn changeable(&self, path: &[u8], number: InodeNumber) -> Result<Metadata, Halt> {
        self.with_rights(path, number, WRITE | EXECUTE)
    }

    /// A directory whose names the actor may list and follow.
    fn listable(&self, path: &[u8], number: InodeNumber) -> Result<Metadata, Halt> {
        self.must(path, Act::List)?;
        self.with_rights(path, number, READ | EXECUTE)
    }

    /// Attributes of a new file: as Linux gives them to a program of the actor, and those that the actor may give beyond that.
    fn given(&self, directory: InodeNumber, file_type: FileType, asked: &Asked) -> Result<Inherited, Error> {
        let actor = self.actor;
        let owner = asked.owner.filter(|_| actor.has(Powers::CHOWN));
        // An actor that keeps the archive's owners keeps its modes too. But special bits lend what the owner may.
        let lends = actor.has(Powers::FOWNER) && actor.has(Powers::FSETID) && self.acts.has(Act::SetId);
        let (permissions, umask) = match (file_type, owner) {
            (FileType::Symlink, _) => (0o777, 0),
            (_, Some(_)) => (asked.permissions & if lends { 0o7777 } else { 0o777 }, 0),
            (_, None) => (asked.permissions & 0o777, actor.umask),
        };
        let wanted =
            CreateRequest { file_type, permissions, umask, uid: self.who().uid, gid: self.who().gid };
        let mut given = self.volume.inherit(directory, &wanted)?;
        if (!self.terms.lists || asked.lists) && !given.xattrs.is_empty() {
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
        let (access, modify) = match (asked.times, self.watcher.latest()) {
            (Some((_, modify)), Some(latest)) => (modify.min(latest), modify.min(latest)),
            (times, _) => times.unwrap_or((now, now)),
        };
        given.attributes.times = Times { access, modify, change: now, create: Some(now) };
        Ok(given)
    }

    /// Tells if an attribute of that name is for the actor to see, on a file that it may see.
    fn sees(&self, name: &[u8]) -> bool {
        self.terms.show(name, || self.actor.has(Powers::SYS_ADMIN))
    }

    /// The attributes that the actor may set on a file, of those that are asked for.
    fn settable(&self, file_type: FileType, asked: Xattrs) -> Xattrs {
        let before = asked.len();
        let has_bytes = matches!(file_type, FileType::Regular | FileType::Directory);
        let is_directory = file_type == FileType::Directory;
        let may = |name: &[u8]| match name {
            _ if !self.sees(name) => false,
            b"system.posix_acl_access" => file_type != FileType::Symlink,
            b"system.posix_acl_default" => is_directory,
            b"security.capability" => self.actor.has(Powers::SETFCAP),
            _ if name.starts_with(b"user.") => has_bytes,
            _ if name.starts_with(b"security.") => self.actor.has(Powers::SYS_ADMIN),
            _ => name.starts_with(b"trusted."),
        };
        let kept: Vec<_> = asked.into_iter().filter(|(name, _)| may(name)).collect();
        self.count(|done| done.attributes_left_out += (before - kept.len()) as u64);
        kept
    }
}
