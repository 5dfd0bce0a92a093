//! On whose behalf something is done, and what the kernel would let them do.
//!
//! Owns: identity, groups, capabilities and umask of a program; the rules of permissions by owner, group, mode, access
//! control list and capability. Leaves to others: what flags of a file forbid to everybody (`platfs::rules`).

use ondisk::acl::{Acl, Subject};
use ondisk::inode::FileType;
use platfs::{Error, Metadata, Volume, rules};

/// Rights, as the three bits of a mode have them.
pub const READ: u16 = 4;
/// To write a file, to change the names of a directory.
pub const WRITE: u16 = 2;
/// To follow the names of a directory.
pub const SEARCH: u16 = 1;

/// Capabilities, by their numbers in Linux.
const CHOWN: u64 = 1 << 0;
const DAC_OVERRIDE: u64 = 1 << 1;
const DAC_READ_SEARCH: u64 = 1 << 2;
const FOWNER: u64 = 1 << 3;
const SYS_ADMIN: u64 = 1 << 21;
const MKNOD: u64 = 1 << 27;

/// A program, as far as its rights go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Actor {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// Permissions that its new files never get.
    pub umask: u16,
    /// Effective capabilities, a bit for each.
    pub capabilities: u64,
}

impl Actor {
    /// Who may do everything.
    #[must_use]
    pub fn root() -> Self {
        Actor { uid: 0, gid: 0, groups: Vec::new(), umask: 0o022, capabilities: u64::MAX }
    }

    fn has(&self, capability: u64) -> bool {
        self.capabilities & capability != 0
    }

    fn is_in(&self, group: u32) -> bool {
        self.gid == group || self.groups.contains(&group)
    }

    /// Whether it may give files to others.
    #[must_use]
    pub fn may_give_away(&self) -> bool {
        self.has(CHOWN)
    }

    /// Whether it may make device nodes.
    #[must_use]
    pub fn may_make_devices(&self) -> bool {
        self.has(MKNOD)
    }

    /// Whether it may set attributes of the system (`security.*`, `trusted.*`).
    #[must_use]
    pub fn is_administrator(&self) -> bool {
        self.has(SYS_ADMIN)
    }

    /// Whether it counts as the owner of a file.
    #[must_use]
    pub fn owns(&self, facts: &Metadata) -> bool {
        self.uid == facts.uid || self.has(FOWNER)
    }

    /// Whether the sticky bit of a directory lets it take the name of a file.
    #[must_use]
    pub fn may_take(&self, directory: &Metadata, child: &Metadata) -> bool {
        let forbids = rules::sticky_forbids(directory.permissions, directory.uid, child.uid, self.uid);
        !forbids || self.has(FOWNER)
    }

    /// Whether the sticky bit of a directory has to be looked at for each of its files.
    #[must_use]
    pub fn is_bound_in(&self, directory: &Metadata) -> bool {
        directory.permissions & rules::STICKY != 0 && self.uid != directory.uid && !self.has(FOWNER)
    }

    /// Whether it has all of these rights; `lists` says whether access control lists count.
    ///
    /// # Errors
    /// A list that can't be read.
    pub fn may(&self, volume: &Volume, facts: &Metadata, rights: u16, lists: bool) -> Result<bool, Error> {
        let granted = match self.by_list(volume, facts, rights, lists)? {
            Some(granted) => granted,
            None => self.by_mode(facts, rights),
        };
        Ok(granted || self.by_capability(facts, rights))
    }

    fn by_mode(&self, facts: &Metadata, rights: u16) -> bool {
        let shift = match () {
            () if self.uid == facts.uid => 6,
            () if self.is_in(facts.gid) => 3,
            () => 0,
        };
        facts.permissions >> shift & rights == rights
    }

    fn by_capability(&self, facts: &Metadata, rights: u16) -> bool {
        let is_directory = facts.file_type == FileType::Directory;
        let can_run = is_directory || rights & SEARCH == 0 || facts.permissions & 0o111 != 0;
        if self.has(DAC_OVERRIDE) && can_run {
            return true;
        }
        let looks_only = if is_directory { rights & WRITE == 0 } else { rights == READ };
        self.has(DAC_READ_SEARCH) && looks_only
    }

    /// What the access control list says; `None` where there is none that counts. The owner's rights stand in the
    /// mode, and a group class without rights makes the list void, as in Linux.
    fn by_list(
        &self,
        volume: &Volume,
        facts: &Metadata,
        rights: u16,
        lists: bool,
    ) -> Result<Option<bool>, Error> {
        if !lists || self.uid == facts.uid || facts.permissions & 0o070 == 0 {
            return Ok(None);
        }
        let Some(value) = volume.inode(facts.inode).xattr(b"system.posix_acl_access")? else {
            return Ok(None);
        };
        let list = Acl::from_xattr(&value).map_err(|problem| Error::Invalid(problem.to_string()))?;
        Ok(Some(self.granted(&list, facts.gid, rights)))
    }

    fn granted(&self, list: &Acl, group: u32, rights: u16) -> bool {
        let all = |permissions: u16| permissions & rights == rights;
        let entries = list.entries();
        let mask =
            entries.iter().find(|entry| entry.subject == Subject::Mask).map_or(7, |mask| mask.permissions);
        let named = entries.iter().find(|entry| entry.subject == Subject::User(self.uid));
        if let Some(named) = named {
            return all(named.permissions & mask);
        }
        let mut of_groups = entries.iter().filter(|entry| match entry.subject {
            Subject::OwningGroup => self.is_in(group),
            Subject::Group(named) => self.is_in(named),
            _ => false,
        });
        let Some(first) = of_groups.next() else {
            return entries.iter().any(|entry| entry.subject == Subject::Others && all(entry.permissions));
        };
        all(first.permissions & mask) || of_groups.any(|entry| all(entry.permissions & mask))
    }
}
