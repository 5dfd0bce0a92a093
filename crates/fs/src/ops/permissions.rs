//! Owner, permissions, times, flags and project of an inode, each changed alone; what a new file gets of
//! its directory.

use ondisk::acl::Acl;
use ondisk::features::RoCompat;
use ondisk::inode::{FileType, Inode, InodeFlags, TimeField, Timestamp};
use ondisk::units::InodeNumber;

use super::attrs::{Attributes, Times, file_type};
use super::changing::change;
use super::names::directory_only;
use super::node::Node;
use super::rules::{self, CAPABILITIES, Operation};
use crate::error::{Error, Result};
use crate::tx::{Tx, View};
use crate::volume::{VersionedInode, Volume};

const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";

/// When reading changes the time of access.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AccessTimes {
    /// At every read.
    Strict,
    /// When it is not behind that of the last change, or a day old.
    #[default]
    Relative,
    /// Never.
    Off,
}

impl AccessTimes {
    /// True if a read at `now` is to be noted.
    #[must_use]
    pub fn due(self, times: &Times, flags: InodeFlags, now: Timestamp) -> bool {
        const DAY: i64 = 24 * 60 * 60;
        if flags.contains(InodeFlags::NOATIME) {
            return false;
        }
        match self {
            AccessTimes::Off => false,
            AccessTimes::Strict => times.access != now,
            AccessTimes::Relative => {
                times.access <= times.modify
                    || times.access <= times.change
                    || now.seconds.saturating_sub(times.access.seconds) >= DAY
            }
        }
    }
}

/// A file about to be made, as the program says that asks for it.
#[derive(Clone, Copy, Debug)]
pub struct CreateRequest {
    /// File type.
    pub file_type: FileType,
    /// Permissions asked for, the umask not yet applied.
    pub permissions: u16,
    /// Permissions that new files of the program never get, where the directory has no list for them.
    pub umask: u16,
    /// The program's user.
    pub uid: u32,
    /// The program's group.
    pub gid: u32,
}

/// Attributes that a new file inherits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inherited {
    /// Owner, permissions, times.
    pub attributes: Attributes,
    /// Access control lists, by full name.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Volume {
    /// Attributes and extended attributes of a new file by the rules of Linux: the group of a directory
    /// with the set-group-id bit, the directory's default list in place of the umask.
    ///
    /// # Errors
    /// Not a directory; broken attributes.
    pub fn inherit(&self, directory: InodeNumber, wanted: &CreateRequest) -> Result<Inherited> {
        let mut seen = VersionedInode::read(self, directory)?;
        let default = seen.seqlock_read(|view, node| list(view, directory_only(node)?, DEFAULT_LIST))?;
        let parent = seen.node();
        let (permissions, gid) =
            rules::inherited(parent.mode(), parent.gid(), wanted.file_type, wanted.permissions, wanted.gid);
        let times = Times::all(self.now());
        let mut attributes = Attributes { permissions, uid: wanted.uid, gid, times };
        let Some(default) = default.filter(|_| wanted.file_type != FileType::Symlink) else {
            attributes.permissions &= !(wanted.umask & 0o777);
            return Ok(Inherited { attributes, xattrs: Vec::new() });
        };
        let mut lists = Vec::new();
        let access = default.inherited(permissions);
        attributes.permissions = permissions & !0o777 | access.mode();
        if !access.is_just_a_mode() {
            lists.push((ACCESS_LIST.to_vec(), access.to_xattr()));
        }
        if wanted.file_type == FileType::Directory {
            lists.push((DEFAULT_LIST.to_vec(), default.to_xattr()));
        }
        Ok(Inherited { attributes, xattrs: lists })
    }
}

impl Node<'_> {
    /// Sets the lower twelve mode bits; an access control list follows.
    ///
    /// # Errors
    /// [`Error::NotPermitted`]; broken structures; no space for a changed list.
    pub fn set_permissions(&self, permissions: u16) -> Result<()> {
        self.change_inode(|tx, node| {
            store_permissions(node, permissions);
            tx.lead_list(node, permissions)
        })
    }

    /// Sets owner and group; `None` leaves one as it is. Of all but directories the special bits and the
    /// capabilities go: they were lent by the owner before.
    ///
    /// # Errors
    /// The number that stands for no user; as [`Node::set_permissions`].
    pub fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        rules::may_own(uid, gid)?;
        self.change_inode(|tx, node| tx.give_to(node, uid, gid))
    }

    /// The access control list, if there is one beside the mode.
    ///
    /// # Errors
    /// Broken attributes; the device's failure.
    pub fn access_list(&self) -> Result<Option<Acl>> {
        VersionedInode::read(self.volume, self.number)?
            .seqlock_read(|view, node| list(view, node, ACCESS_LIST))
    }

    /// Refuses to open a file for writing that its flags protect; with `append`, writing only behind its end.
    ///
    /// # Errors
    /// [`Error::NotPermitted`]; a broken record.
    pub fn may_open(&self, append: bool) -> Result<()> {
        rules::may(&self.volume.view().inode(self.number)?, Operation::Open { append })
    }

    /// Sets the times of access and of the contents; `None` leaves one as it is.
    ///
    /// # Errors
    /// As [`Node::set_permissions`].
    pub fn set_times(&self, access: Option<Timestamp>, modify: Option<Timestamp>) -> Result<()> {
        self.change_inode(|_, node| {
            if let Some(access) = access {
                node.set_time(TimeField::Access, access);
            }
            if let Some(modify) = modify {
                node.set_time(TimeField::Modify, modify);
            }
            Ok(())
        })
    }

    /// Notes that a file was read, where its time of access is due.
    ///
    /// # Errors
    /// A broken record; the device's failure.
    pub fn note_access(&self, mode: AccessTimes) -> Result<()> {
        let facts = self.volume.metadata(self.number)?;
        if !self.volume.space.is_writable() || !mode.due(&facts.times, facts.flags, self.volume.now()) {
            return Ok(());
        }
        change(self.volume, |tx| {
            let mut node = tx.inode(self.number)?;
            node.set_time(TimeField::Access, tx.context.now);
            tx.store(&mut node)
        })
    }

    /// Sets the flags that users may set (immutable, append only, no dump ...); the others stay.
    ///
    /// # Errors
    /// A flag that is not a user's to change; [`Error::NotPermitted`] for other flags of a file that stays
    /// immutable; broken structures.
    pub fn set_flags(&self, flags: InodeFlags) -> Result<()> {
        change(self.volume, |tx| {
            let mut node = tx.inode(self.number)?;
            rules::may_set_flags(&node, flags)?;
            let changed = flags.symmetric_difference(node.flags()).difference(rules::SETTABLE);
            if !changed.is_empty() {
                return Err(Error::Unsupported(format!("changing the flags {:#x}", changed.bits())));
            }
            let directory_only = InodeFlags::DIRSYNC | InodeFlags::TOPDIR;
            if file_type(&node)? != FileType::Directory && flags.intersects(directory_only) {
                return Err(Error::Invalid("only directories can have these flags".into()));
            }
            node.set_flags(flags);
            tx.touch(&mut node, &[TimeField::Change]);
            tx.store(&mut node)
        })
    }

    /// Sets the project that a file belongs to.
    ///
    /// # Errors
    /// A volume without projects; as [`Node::set_permissions`].
    pub fn set_project(&self, project: u32) -> Result<()> {
        if !self.volume.format.has_ro_compat(RoCompat::PROJECT) {
            return Err(Error::Unsupported("the volume has no projects".into()));
        }
        self.change_inode(|_, node| {
            node.edit_extra(|extra| extra.i_projid.set(project));
            Ok(())
        })
    }

    pub(super) fn change_inode(&self, verb: impl Fn(&mut Tx<'_>, &mut Inode) -> Result<()>) -> Result<()> {
        change(self.volume, |tx| {
            let mut node = tx.inode(self.number)?;
            rules::may(&node, Operation::Attributes)?;
            verb(tx, &mut node)?;
            tx.touch(&mut node, &[TimeField::Change]);
            tx.store(&mut node)
        })
    }
}

impl VersionedInode<'_> {
    /// As [`Tx::lose_privileges`], before contents of a file change, where it has any.
    pub(super) fn lose_privileges(&mut self, bits: bool) -> Result<()> {
        let (volume, number) = (self.volume(), self.number());
        let mode = self.node().mode();
        let has_bits = bits && rules::without_special_bits(mode) != mode;
        if !has_bits && self.seqlock_read(|view, node| view.xattrs(node).value(CAPABILITIES))?.is_none() {
            return Ok(());
        }
        change(volume, |tx| {
            let mut node = tx.inode(number)?;
            tx.lose_privileges(&mut node, bits)?;
            tx.touch(&mut node, &[TimeField::Change]);
            tx.store(&mut node)
        })
    }
}

impl<'v> Tx<'v> {
    /// Gives a file to an owner.
    pub(super) fn give_to(&mut self, node: &mut Inode, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        node.set_owner(uid.unwrap_or(node.uid()), gid.unwrap_or(node.gid()));
        if file_type(node)? == FileType::Directory {
            return Ok(());
        }
        self.lose_privileges(node, true)
    }

    /// Takes from a file what running it lends: its capabilities, and with `bits` the special bits.
    pub(super) fn lose_privileges(&mut self, node: &mut Inode, bits: bool) -> Result<()> {
        if bits {
            let kept = rules::without_special_bits(node.mode());
            store_permissions(node, kept);
        }
        match self.xattrs(node).remove(CAPABILITIES) {
            Ok(()) | Err(Error::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Makes the access control list, where there is one, follow the mode.
    pub(super) fn lead_list(&mut self, node: &mut Inode, permissions: u16) -> Result<()> {
        let Some(list) = list(self.view(), node, ACCESS_LIST)? else { return Ok(()) };
        let list = list.with_mode(permissions).to_xattr();
        self.xattrs(node).set(ACCESS_LIST, &list)
    }

    /// Sets an access control list as Linux does: the mode follows it, and one that says no more than the
    /// mode is not kept.
    pub(super) fn follow_list(&mut self, node: &mut Inode, name: &[u8]) -> Result<()> {
        if name != ACCESS_LIST || self.session.is_loading() {
            return Ok(());
        }
        let Some(list) = list(self.view(), node, ACCESS_LIST)? else { return Ok(()) };
        store_permissions(node, node.mode() & 0o7000 | list.mode());
        if list.is_just_a_mode() { self.xattrs(node).remove(ACCESS_LIST) } else { Ok(()) }
    }
}

/// An access control list of an inode.
fn list(view: View<'_>, node: &Inode, name: &[u8]) -> Result<Option<Acl>> {
    // No list without attributes, which most inodes lack.
    let Some(value) = view.xattrs(node).value(name)? else { return Ok(None) };
    let list = Acl::from_xattr(&value);
    list.map(Some)
        .map_err(|problem| Error::corrupt(ondisk::corrupt::Place::Xattrs(node.number()), problem.to_string()))
}

pub(super) fn store_permissions(node: &mut Inode, permissions: u16) {
    let file_type = node.mode() & 0xF000;
    node.raw_mut().i_mode.set(file_type | permissions & 0o7777);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_is_noted_when_it_tells_something_new() {
        let at = Timestamp::from_seconds;
        let times = Times { access: at(100), modify: at(50), change: at(50), create: None };
        let none = InodeFlags::empty();
        assert!(AccessTimes::Strict.due(&times, none, at(101)));
        assert!(!AccessTimes::Relative.due(&times, none, at(101)));
        assert!(AccessTimes::Relative.due(&times, none, at(100 + 24 * 3600)));
        let changed = Times { change: at(100), ..times };
        assert!(AccessTimes::Relative.due(&changed, none, at(101)));
        assert!(!AccessTimes::Strict.due(&changed, InodeFlags::NOATIME, at(101)));
        assert!(!AccessTimes::Off.due(&changed, none, at(101)));
    }
}
