//! Which request needs which right, where the kernel leaves permissions to the mount (`own_permissions`).
//!
//! Owns: the rules of Linux's VFS by verb, in the order in which it applies them. Excludes the decision about a file
//! ([`platfs::rights`]) and who asks ([`Callers`](super::callers::Callers)). Where the kernel checks, nothing here does
//! anything.

use std::sync::atomic::{AtomicBool, Ordering};

use fuse::{Access, Caller, Errno, Replace, SetAttr, SetTime};
use ondisk::acl::Acl;
use ondisk::inode::{FileType, InodeFlags};
use ondisk::units::InodeNumber;
use platfs::rights::{self, Credentials, EXECUTE, Powers, READ, WRITE};
use platfs::{Error, Metadata};

use super::callers::{self, Callers};
use super::{Failed, Tree};
use crate::mount::options::Permissions;

/// Set-user-id; set-group-id with execution by the group: files with them are not linked by others.
const SET_UID: u16 = 0o4000;
const SET_GID_EXECUTE: u16 = 0o2010;
const STICKY: u16 = 0o1000;

/// Checks permissions.
pub struct Guard {
    callers: Callers,
    /// A request came for another user than the mount's.
    serves_others: AtomicBool,
    /// Others than owners link only files that they can read and write (`fs.protected_hardlinks`).
    protects_links: bool,
}

impl Guard {
    /// A guard where the mount is to check permissions: where that was asked for, or is possible and saves requests.
    /// A mount for reading only asks for nothing that could be saved.
    ///
    /// # Errors
    /// Why it can't be had although it was asked for.
    pub fn as_asked(asked: Permissions, for_others: bool, writable: bool) -> Result<Option<Self>, String> {
        match asked {
            Permissions::Kernel => Ok(None),
            Permissions::Own => Self::new()
                .map(Some)
                .map_err(|why| format!("mount option `own_permissions` can't be had: {why}")),
            Permissions::Auto if for_others || !writable => Ok(None),
            Permissions::Auto => Ok(Self::new().ok()),
        }
    }

    fn new() -> Result<Self, String> {
        let setting = platfs_host::system::read("/proc/sys/fs/protected_hardlinks").unwrap_or_default();
        let (callers, serves_others) = (Callers::new()?, AtomicBool::new(false));
        Ok(Guard { callers, serves_others, protects_links: setting.starts_with(b"1") })
    }

    /// Notes that somebody asks.
    pub(super) fn begin(&self, caller: Caller) {
        // Forgetting carries nobody.
        if caller.uid != self.callers.user().0
            && caller.pid != 0
            && !self.serves_others.load(Ordering::Relaxed)
        {
            self.serves_others.store(true, Ordering::Relaxed);
        }
    }

    fn who(&self) -> Credentials {
        self.callers.credentials(callers::current(), false)
    }

    /// Returns true if the caller may what is asked: by capabilities that it is known to have, or by all that it has.
    fn allows(&self, asked: impl Fn(&Credentials) -> bool) -> bool {
        let caller = callers::current();
        let known = self.callers.known_powers(caller);
        let by_powers = |powers| asked(&Credentials { powers, ..Credentials::new(caller.uid, caller.gid) });
        known.is_some_and(by_powers) || asked(&self.who())
    }
}

fn refuse_unless(holds: bool, errno: Errno) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(errno.into()) }
}

impl Tree {
    fn list_of(&self, file: &Metadata) -> Result<Option<Acl>, Failed> {
        let asked = self.terms.acl && rights::asks_list(file);
        Ok(if asked { self.volume.inode(file.inode).access_list()? } else { None })
    }

    /// Returns true if the caller has the rights `want`. Groups and capabilities are looked up only if they matter.
    fn may(&self, guard: &Guard, file: &Metadata, want: u16, for_access: bool) -> Result<bool, Failed> {
        let caller = callers::current();
        let list = if caller.uid == file.uid { None } else { self.list_of(file)? };
        if Credentials::new(caller.uid, caller.gid).may(file, list.as_ref(), want) {
            return Ok(true);
        }
        let asked = |who: &Credentials| who.may(file, list.as_ref(), want);
        Ok(if for_access { asked(&guard.callers.credentials(caller, true)) } else { guard.allows(asked) })
    }

    fn must(&self, guard: &Guard, file: &Metadata, want: u16) -> Result<(), Failed> {
        refuse_unless(self.may(guard, file, want, false)?, Errno::ACCESS)
    }

    fn must_own(guard: &Guard, file: &Metadata) -> Result<(), Failed> {
        let owns = callers::current().uid == file.uid || guard.allows(|who| who.owns(file));
        refuse_unless(owns, Errno::PERM)
    }

    /// The caller may use these rights of a file or directory.
    pub(super) fn guard(&self, number: InodeNumber, want: u16) -> Result<(), Failed> {
        let Some(guard) = &self.guard else { return Ok(()) };
        self.must(guard, &self.volume.metadata(number)?, want)
    }

    /// The caller may look up names in a directory.
    pub(super) fn guard_search(&self, directory: InodeNumber) -> Result<(), Failed> {
        self.guard(directory, EXECUTE)
    }

    /// The caller may add names to a directory.
    pub(super) fn guard_names(&self, directory: InodeNumber) -> Result<(), Failed> {
        self.guard(directory, WRITE | EXECUTE)
    }

    /// The caller may open a file so.
    pub(super) fn guard_opening(&self, number: InodeNumber, access: Access) -> Result<(), Failed> {
        let rights = [(access.read, READ), (access.write, WRITE), (access.execute, EXECUTE)];
        self.guard(number, rights.iter().filter(|(is_used, _)| *is_used).map(|(_, right)| right).sum())
    }

    /// The answer to access(2), and to chdir(2), which asks only whether a directory can be searched.
    pub(super) fn answer_access(&self, node: u64, wanted: u16) -> Result<(), Failed> {
        let Some(guard) = &self.guard else { return Err(Errno::NOSYS.into()) };
        let file = self.volume.metadata(self.inode(node)?)?;
        if wanted & WRITE != 0 && file.flags.contains(InodeFlags::IMMUTABLE) {
            return Err(Errno::PERM.into());
        }
        let is_search = file.file_type == FileType::Directory && wanted == EXECUTE;
        refuse_unless(self.may(guard, &file, wanted, !is_search)?, Errno::ACCESS)
    }

    /// Returns true if all who come in may search a directory, whatever their groups and capabilities: programs of the mount's user,
    /// and if others have come, everybody. Only then may the kernel keep its names, as it passes those without asking.
    pub(super) fn is_open(&self, parent: u64) -> bool {
        let Some(guard) = &self.guard else { return true };
        let open = || -> Result<bool, Failed> {
            let file = self.volume.metadata(self.inode(parent)?)?;
            let serves_others = guard.serves_others.load(Ordering::Relaxed);
            let (uid, gid) = guard.callers.user();
            if file.uid == uid && !serves_others {
                return Ok(file.permissions & 0o100 != 0);
            }
            let list = self.list_of(&file)?;
            let is_open = Credentials::new(uid, gid).may(&file, list.as_ref(), EXECUTE);
            // For a list, nobody can be sure to be named by it.
            Ok(is_open && (!serves_others || list.is_none() && file.permissions & 0o111 == 0o111))
        };
        open().unwrap_or(false)
    }

    /// The caller may take a name away, or put another file behind it.
    pub(super) fn guard_removal(&self, directory: InodeNumber, name: &[u8]) -> Result<(), Failed> {
        let Some(guard) = &self.guard else { return Ok(()) };
        let place = self.volume.metadata(directory)?;
        self.must(guard, &place, WRITE | EXECUTE)?;
        self.must_not_be_kept_off(guard, &place, name)
    }

    fn must_not_be_kept_off(&self, guard: &Guard, place: &Metadata, name: &[u8]) -> Result<(), Failed> {
        if place.permissions & STICKY == 0 || callers::current().uid == place.uid {
            return Ok(());
        }
        let file = match self.volume.lookup(place.inode, name) {
            Err(Error::NotFound) => return Ok(()),
            found => self.volume.metadata(found?)?,
        };
        refuse_unless(guard.allows(|who| !who.is_kept_off(place, &file)), Errno::PERM)
    }

    /// The caller may give a file another name in a directory.
    pub(super) fn guard_link(&self, file: InodeNumber, directory: InodeNumber) -> Result<(), Failed> {
        let Some(guard) = &self.guard else { return Ok(()) };
        let facts = self.volume.metadata(file)?;
        if guard.protects_links && Self::must_own(guard, &facts).is_err() {
            let lends =
                facts.permissions & SET_UID != 0 || facts.permissions & SET_GID_EXECUTE == SET_GID_EXECUTE;
            let is_plain = facts.file_type == FileType::Regular && !lends;
            let is_safe = is_plain && self.may(guard, &facts, READ | WRITE, false)?;
            refuse_unless(is_safe, Errno::PERM)?;
        }
        self.guard_names(directory)
    }

    /// The caller may move a name. A directory that gets another parent must be writable itself.
    pub(super) fn guard_rename(
        &self,
        from: (InodeNumber, &[u8]),
        to: (InodeNumber, &[u8]),
        replace: Replace,
    ) -> Result<(), Failed> {
        let Some(guard) = &self.guard else { return Ok(()) };
        self.guard_removal(from.0, from.1)?;
        self.guard_removal(to.0, to.1)?;
        if from.0 == to.0 {
            return Ok(());
        }
        let target = (replace == Replace::Exchange).then_some(to);
        for (directory, name) in [from].into_iter().chain(target) {
            let file = self.volume.metadata(self.volume.lookup(directory, name)?)?;
            if file.file_type == FileType::Directory {
                self.must(guard, &file, WRITE)?;
            }
        }
        Ok(())
    }

    /// The caller may change these attributes; the change that it comes to.
    pub(super) fn guard_change(&self, file: &Metadata, change: &SetAttr) -> Result<SetAttr, Failed> {
        let Some(guard) = self.guard.as_ref().filter(|_| !change.by_handle) else { return Ok(*change) };
        if change.size.is_some() {
            self.must(guard, file, WRITE)?;
        }
        self.guard_times(guard, file, change)?;
        if change.uid.is_some() || change.gid.is_some() {
            let Caller { uid, gid, .. } = callers::current();
            let plain = Credentials::new(uid, gid).may_give(file, change.uid, change.gid);
            let may = plain || guard.allows(|who| who.may_give(file, change.uid, change.gid));
            refuse_unless(may, Errno::PERM)?;
        }
        let Some(permissions) = change.permissions else { return Ok(*change) };
        Self::must_own(guard, file)?;
        let group = change.gid.unwrap_or(file.gid);
        let caller = callers::current();
        let settable = match Credentials::new(caller.uid, caller.gid).settable(permissions, group) {
            plain if plain == permissions => plain,
            _ if guard.allows(|who| who.settable(permissions, group) == permissions) => permissions,
            _ => guard.who().settable(permissions, group),
        };
        Ok(SetAttr { permissions: Some(settable), ..*change })
    }

    /// Both times become now by who may write; any other times are the owner's to set. The kernel itself brings the
    /// time of a change, with the other time as it is.
    fn guard_times(&self, guard: &Guard, file: &Metadata, change: &SetAttr) -> Result<(), Failed> {
        // A change of size brings times of its own.
        if change.size.is_some() || change.access.is_none() && change.modify.is_none() {
            return Ok(());
        }
        let modify = match change.modify {
            Some(SetTime::To(time)) => Some(time),
            _ => None,
        };
        if change.access.is_none()
            && modify == Some(super::time(file.times.modify))
            && change.change.is_some()
        {
            return Ok(());
        }
        let modify_is_now =
            change.modify == Some(SetTime::Now) || modify.is_some() && modify == change.change;
        if change.access == Some(SetTime::Now) && modify_is_now && self.may(guard, file, WRITE, false)? {
            return Ok(());
        }
        let is_touch = change.access == Some(SetTime::Now) && modify_is_now;
        match Self::must_own(guard, file) {
            Err(_) if is_touch => Err(Errno::ACCESS.into()),
            done => done,
        }
    }

    /// The caller may read or change an attribute. The kernel checks those of other name spaces.
    pub(super) fn guard_attribute(&self, number: InodeNumber, name: &[u8], want: u16) -> Result<(), Failed> {
        let Some(guard) = self.guard.as_ref().filter(|_| name.starts_with(b"user.")) else { return Ok(()) };
        let file = self.volume.metadata(number)?;
        let is_shared = file.file_type == FileType::Directory && file.permissions & STICKY != 0;
        if want & WRITE != 0 && is_shared {
            Self::must_own(guard, &file)?;
        }
        self.must(guard, &file, want)
    }

    /// Returns true if the set-group-id bit goes when the caller sets an access control list.
    pub(super) fn loses_set_gid(&self, number: InodeNumber) -> Result<bool, Failed> {
        const SET_GID: u16 = 0o2000;
        let Some(guard) = &self.guard else { return Ok(false) };
        let file = self.volume.metadata(number)?;
        Ok(file.permissions & SET_GID != 0 && !guard.allows(|who| who.settable(SET_GID, file.gid) != 0))
    }

    /// Returns true if the caller may do what owners may; where the kernel checks, whether it is the owner or has the capability.
    pub(super) fn is_owner(&self, caller: Caller, file: &Metadata) -> bool {
        match &self.guard {
            Some(guard) => Self::must_own(guard, file).is_ok(),
            None => caller.uid == file.uid || self.has(caller, Powers::FOWNER),
        }
    }
}
