//! Calls of a mount beside those of programs: several attributes of an inode changed
//! at once, and a note of damage.

use ondisk::features::RoCompat;
use ondisk::inode::{FileType, Inode, TimeField, Timestamp};

use super::attrs::{Metadata, file_type, waits};
use super::changing::change;
use super::node::Node;
use super::permissions::store_permissions;
use super::rules::{self, Operation};
use crate::error::{Error, Result};
use crate::volume::Volume;

/// Attributes to change together; `None` leaves one as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AttributeChange {
    /// The lower twelve mode bits; an access control list follows.
    pub permissions: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Time of the last access.
    pub access: Option<Timestamp>,
    /// Time of the last change of the contents.
    pub modify: Option<Timestamp>,
    /// Time of the last change of the inode; `None` is now.
    pub change: Option<Timestamp>,
    /// Set-user-id and set-group-id bits and capabilities go, as the rules for changed files say. A new
    /// owner takes them anyway.
    pub drop_privileges: bool,
    /// Both times are those of now, and nothing else changes: the right to write is enough for that.
    pub touch: bool,
    /// The times of contents and inode may be older than others that have come already, which then stay: a kernel that
    /// keeps times itself sends those of writes beside other changes of the inode.
    pub late: bool,
}

/// How much older late times can be, in seconds. If it is more, a clock was set back.
const LATE: i64 = 60;

impl AttributeChange {
    /// True if only the times of earlier writes change: these may be stored even
    /// of a file that by now can't be changed.
    fn is_news_of_writes(&self) -> bool {
        let rest = AttributeChange { modify: None, change: None, late: false, ..*self };
        self.modify.is_some() && self.change.is_some() && rest == AttributeChange::default()
    }

    /// The times of contents and inode that an inode gets.
    fn times_for(&self, node: &Inode, now: Timestamp) -> (Option<Timestamp>, Timestamp) {
        let changed = self.change.unwrap_or(now);
        let newer = node
            .time(TimeField::Change)
            .filter(|was| self.late && changed < *was && was.seconds.saturating_sub(changed.seconds) <= LATE);
        let later = |sent: Timestamp| node.time(TimeField::Modify).map_or(sent, |was| was.max(sent));
        match newer {
            Some(was) => (self.modify.map(later), was),
            None => (self.modify, changed),
        }
    }
}

impl Volume {
    /// Notes that structures of the volume are damaged: a check is due, and until then it is not opened
    /// for writing again.
    pub fn note_damage(&self) {
        self.session.note_damage();
    }
}

impl Node<'_> {
    /// Changes attributes of an inode together; what it says of itself then.
    ///
    /// # Errors
    /// [`Error::NotPermitted`]; an owner that stands for no user; broken structures; no space for a changed
    /// access control list. Then nothing has changed.
    pub fn change(&self, wanted: &AttributeChange) -> Result<Metadata> {
        rules::may_own(wanted.uid, wanted.gid)?;
        let waits = waits(self.volume, self.number);
        let node = change(self.volume, |tx| {
            let mut node = tx.inode(self.number)?;
            if !wanted.is_news_of_writes() {
                rules::may(&node, if wanted.touch { Operation::Touch } else { Operation::Attributes })?;
            }
            if let Some(permissions) = wanted.permissions {
                store_permissions(&mut node, permissions);
                tx.lead_list(&mut node, permissions)?;
            }
            if wanted.uid.is_some() || wanted.gid.is_some() {
                tx.give_to(&mut node, wanted.uid, wanted.gid)?;
            }
            if wanted.drop_privileges && file_type(&node)? == FileType::Regular {
                tx.lose_privileges(&mut node, true)?;
            }
            let (modify, changed) = wanted.times_for(&node, tx.context.now);
            let times = [(TimeField::Access, wanted.access), (TimeField::Modify, modify)];
            for (field, time) in times {
                if let Some(time) = time {
                    node.set_time(field, time);
                }
            }
            node.set_time(TimeField::Change, changed);
            tx.store(&mut node)?;
            Ok(node)
        })?;
        Metadata::from_inode(&self.volume.format, &node, waits)
    }

    /// Sets the generation of an inode.
    ///
    /// # Errors
    /// [`Error::NotPermitted`]; broken structures.
    pub fn set_generation(&self, generation: u32) -> Result<()> {
        if self.volume.format.has_ro_compat(RoCompat::METADATA_CSUM) {
            // The blocks of a file are sealed with it.
            return Err(Error::Unsupported("on a volume with checksums generations are fixed".into()));
        }
        change(self.volume, |tx| {
            let mut node = tx.inode(self.number)?;
            rules::may(&node, Operation::Attributes)?;
            node.raw_mut().i_generation.set(generation);
            tx.touch(&mut node, &[TimeField::Change]);
            tx.store(&mut node)
        })
    }
}
