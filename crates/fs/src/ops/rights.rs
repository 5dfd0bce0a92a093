//! Access decisions on files: owner, mode, access control list, capabilities, as Linux
//! decides it.
//!
//! Owns: the decision, as functions of values. Excludes what holds for everybody (flags: [`rules`](super::rules)),
//! where credentials come from, and which verb needs which right.

use ondisk::acl::{Acl, Subject};
use ondisk::inode::{FileType, Inode};

use super::attrs::Metadata;
use super::rules::{SET_GID, sticky_forbids};

/// Read, in the bits of a mode's class.
pub const READ: u16 = 4;
/// Write.
pub const WRITE: u16 = 2;
/// Execute a file, search a directory.
pub const EXECUTE: u16 = 1;

/// Capabilities of a program, by the bits that Linux gives them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Powers(u64);

impl Powers {
    /// Give files to others.
    pub const CHOWN: Powers = Powers(1);
    /// Pass over modes and lists.
    pub const DAC_OVERRIDE: Powers = Powers(1 << 1);
    /// Read every file, search every directory.
    pub const DAC_READ_SEARCH: Powers = Powers(1 << 2);
    /// Do what owners may.
    pub const FOWNER: Powers = Powers(1 << 3);
    /// Keep set-user-id and set-group-id bits.
    pub const FSETID: Powers = Powers(1 << 4);
    /// Make device nodes.
    pub const MKNOD: Powers = Powers(1 << 27);
    /// Give capabilities to programs.
    pub const SETFCAP: Powers = Powers(1 << 31);
    /// Pass over limits of quota and take reserved blocks.
    pub const SYS_RESOURCE: Powers = Powers(1 << 24);
    /// Administer the system.
    pub const SYS_ADMIN: Powers = Powers(1 << 21);
    /// All.
    pub const ALL: Powers = Powers(u64::MAX);

    /// From the bits, as `/proc/PID/status` shows them.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Powers(bits)
    }

    /// True if all of these are among them.
    #[must_use]
    pub fn contains(self, others: Powers) -> bool {
        self.0 & others.0 == others.0
    }
}

/// On whose behalf something is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups. `None`: not known, and then only what they can't change is granted.
    pub groups: Option<Vec<u32>>,
    /// Capabilities.
    pub powers: Powers,
}

impl Credentials {
    /// A user and a group of whom no more is known.
    #[must_use]
    pub fn new(uid: u32, gid: u32) -> Self {
        Credentials { uid, gid, groups: None, powers: Powers::default() }
    }

    /// Returns if the user is in a group; `None` where that is not known.
    fn is_in(&self, group: u32) -> Option<bool> {
        if group == self.gid {
            return Some(true);
        }
        self.groups.as_ref().map(|groups| groups.contains(&group))
    }

    /// True if this user may do what owners of a file may.
    #[must_use]
    pub fn owns(&self, file: &Metadata) -> bool {
        self.uid == file.uid || self.powers.contains(Powers::FOWNER)
    }

    /// True if all of `want` is granted on a file with this access control list.
    #[must_use]
    pub fn may(&self, file: &Metadata, list: Option<&Acl>, want: u16) -> bool {
        self.is_granted(file, list, want) || self.overrides(file, want)
    }

    /// By mode and list alone. The mask of a list stands in the mode: where it grants nothing, no list is asked.
    fn is_granted(&self, file: &Metadata, list: Option<&Acl>, want: u16) -> bool {
        let mode = file.permissions;
        if self.uid == file.uid {
            return covers(mode >> 6, want);
        }
        let list = list.filter(|_| mode & 0o070 != 0);
        let named = list.and_then(|list| permissions_of(list, Subject::User(self.uid)));
        if let Some(named) = named {
            return covers(named & mode >> 3, want);
        }
        let mut is_member = false;
        let mut all_grant = covers(mode, want);
        for (group, granted) in groups_of(file, list) {
            let grants = covers(granted, want);
            match self.is_in(group) {
                Some(true) if grants => return true,
                Some(true) => is_member = true,
                Some(false) => {}
                None => all_grant &= grants,
            }
        }
        !is_member && all_grant
    }

    /// As [`Credentials::is_kept_off`], for records that an update has at hand.
    pub(super) fn is_kept_off_of(&self, directory: &Inode, file: &Inode) -> bool {
        sticky_forbids(directory.mode(), directory.uid(), file.uid(), self.uid)
            && !self.powers.contains(Powers::FOWNER)
    }

    fn overrides(&self, file: &Metadata, want: u16) -> bool {
        let is_directory = file.file_type == FileType::Directory;
        let only_looks = if is_directory { want & WRITE == 0 } else { want == READ };
        if only_looks && self.powers.contains(Powers::DAC_READ_SEARCH) {
            return true;
        }
        let runs = !is_directory && want & EXECUTE != 0 && file.permissions & 0o111 == 0;
        !runs && self.powers.contains(Powers::DAC_OVERRIDE)
    }

    /// True if a file may be given to an owner and a group; `None` leaves one as it is.
    #[must_use]
    pub fn may_give(&self, file: &Metadata, uid: Option<u32>, gid: Option<u32>) -> bool {
        if self.powers.contains(Powers::CHOWN) {
            return true;
        }
        let is_owner = self.uid == file.uid;
        let keeps_owner = uid.is_none_or(|uid| is_owner && uid == file.uid);
        let joins = |gid: u32| is_owner && (gid == file.gid || self.is_in(gid) == Some(true));
        keeps_owner && gid.is_none_or(joins)
    }

    /// The mode that `permissions` come to when this user sets them on a file of a group: the set-group-id bit is for
    /// members.
    #[must_use]
    pub fn settable(&self, permissions: u16, group: u32) -> u16 {
        let keeps = self.is_in(group) == Some(true) || self.powers.contains(Powers::FSETID);
        if keeps { permissions } else { permissions & !SET_GID }
    }

    /// True if the sticky bit of a directory keeps this user from removing or moving a file in it.
    #[must_use]
    pub fn is_kept_off(&self, directory: &Metadata, file: &Metadata) -> bool {
        sticky_forbids(directory.permissions, directory.uid, file.uid, self.uid)
            && !self.powers.contains(Powers::FOWNER)
    }
}

/// True if the access control list of a file is asked, if it has one: the mask of a list stands in the mode.
#[must_use]
pub fn asks_list(file: &Metadata) -> bool {
    file.permissions & 0o070 != 0 && file.file_type != FileType::Symlink
}

fn covers(granted: u16, want: u16) -> bool {
    want & 7 & !granted == 0
}

fn permissions_of(list: &Acl, subject: Subject) -> Option<u16> {
    list.entries().iter().find(|entry| entry.subject == subject).map(|entry| entry.permissions)
}

/// The groups that a file grants something to, each with what.
fn groups_of<'l>(file: &Metadata, list: Option<&'l Acl>) -> impl Iterator<Item = (u32, u16)> + use<'l> {
    let (gid, mask) = (file.gid, file.permissions >> 3 & 7);
    let entries = list.map(Acl::entries).unwrap_or_default();
    let listed = entries.iter().filter_map(move |entry| match entry.subject {
        Subject::OwningGroup => Some((gid, entry.permissions & mask)),
        Subject::Group(group) => Some((group, entry.permissions & mask)),
        _ => None,
    });
    listed.chain(list.is_none().then_some((gid, mask)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondisk::acl::Acl;

    fn file(file_type: FileType, permissions: u16) -> Metadata {
        Metadata {
            inode: ondisk::units::InodeNumber::ROOT,
            file_type,
            permissions,
            uid: 10,
            gid: 20,
            project: 0,
            size: 0,
            links: 1,
            sectors: 0,
            times: super::super::attrs::Times::default(),
            flags: ondisk::inode::InodeFlags::empty(),
            generation: 0,
            device: None,
            attribute_block: None,
        }
    }

    fn user(uid: u32, groups: Option<&[u32]>, powers: Powers) -> Credentials {
        Credentials { uid, gid: uid, groups: groups.map(<[u32]>::to_vec), powers }
    }

    const NONE: Powers = Powers(0);

    fn list(entries: &[(u16, u16, u32)]) -> Acl {
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        for (tag, permissions, identity) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(permissions.to_le_bytes());
            bytes.extend(identity.to_le_bytes());
        }
        Acl::from_xattr(&bytes).unwrap()
    }

    #[test]
    fn the_first_class_that_fits_decides() {
        let of = file(FileType::Regular, 0o047);
        assert!(!user(10, Some(&[20]), NONE).may(&of, None, READ), "the owner, whatever the others may");
        assert!(user(11, Some(&[20]), NONE).may(&of, None, READ));
        assert!(!user(11, Some(&[20]), NONE).may(&of, None, WRITE), "the group, whatever the others may");
        assert!(user(11, Some(&[]), NONE).may(&of, None, READ | WRITE | EXECUTE));
    }

    #[test]
    fn unknown_groups_grant_only_what_they_can_not_change() {
        let asks = |mode, want| user(11, None, NONE).may(&file(FileType::Regular, mode), None, want);
        assert!(!asks(0o040, READ) && !asks(0o004, READ) && asks(0o044, READ));
        assert!(user(20, None, NONE).may(&file(FileType::Regular, 0o040), None, READ), "its own group");
    }

    #[test]
    fn lists_grant_by_name_under_their_mask() {
        // Owner rw-, user 11 rwx, group r--, group 30 rw-, mask rw-, others ---.
        let none = u32::MAX;
        let list =
            list(&[(1, 6, none), (2, 7, 11), (4, 4, none), (8, 6, 30), (0x10, 6, none), (0x20, 0, none)]);
        let of = file(FileType::Regular, 0o660);
        let may = |who: &Credentials, want| who.may(&of, Some(&list), want);
        let named = user(11, Some(&[]), NONE);
        assert!(may(&named, READ | WRITE) && !may(&named, EXECUTE), "the mask takes execution");
        let member = user(12, Some(&[20]), NONE);
        assert!(may(&member, READ) && !may(&member, WRITE));
        assert!(may(&user(12, Some(&[20, 30]), NONE), WRITE), "one group is enough");
        assert!(!may(&user(12, Some(&[]), NONE), READ));
        let closed = file(FileType::Regular, 0o604);
        assert!(named.may(&closed, Some(&list), READ), "a mask of nothing leaves the mode alone");
    }

    #[test]
    fn capabilities_pass_over_modes() {
        let (plain, directory) = (file(FileType::Regular, 0), file(FileType::Directory, 0));
        let all = user(0, Some(&[]), Powers::ALL);
        assert!(all.may(&plain, None, READ | WRITE) && !all.may(&plain, None, EXECUTE));
        assert!(all.may(&file(FileType::Regular, 0o100), None, EXECUTE));
        assert!(all.may(&directory, None, READ | WRITE | EXECUTE));
        let reader = user(0, Some(&[]), Powers::DAC_READ_SEARCH);
        assert!(reader.may(&plain, None, READ) && !reader.may(&plain, None, READ | WRITE));
        assert!(reader.may(&directory, None, READ | EXECUTE) && !reader.may(&directory, None, WRITE));
    }

    #[test]
    fn owners_give_files_to_their_groups_only() {
        let of = file(FileType::Regular, 0o644);
        let owner = user(10, Some(&[30]), NONE);
        assert!(owner.may_give(&of, None, Some(30)) && owner.may_give(&of, Some(10), Some(20)));
        assert!(!owner.may_give(&of, Some(11), None) && !owner.may_give(&of, None, Some(31)));
        assert!(!user(11, Some(&[]), NONE).may_give(&of, Some(10), None));
        assert!(user(0, None, Powers::CHOWN).may_give(&of, Some(0), Some(0)));
        assert!(owner.may_give(&of, None, None));
    }

    #[test]
    fn set_group_id_is_for_members() {
        assert_eq!(user(10, Some(&[20]), NONE).settable(0o2755, 20), 0o2755);
        assert_eq!(user(10, Some(&[]), NONE).settable(0o2755, 20), 0o755);
        assert_eq!(user(10, None, Powers::FSETID).settable(0o2755, 20), 0o2755);
    }
}
