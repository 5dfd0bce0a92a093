//! Changes that do not come through the kernel: what the control channel needs of a mount.
//!
//! The kernel locks a directory while it looks up or lists its names, and while it changes them. The channel's work does
//! not. So an answer about a name can be wrong by the time it is sent, and the kernel would keep it. Two rules prevent
//! that. Work that changed a name says so here before it looks whether the kernel may know that name, and if so, tells
//! it to ask again. An answer that names an inode is looked up again if such a change came between its first look and
//! the moment when its inode was noted as known to the kernel.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fuse::{Caller, Entry};
use ondisk::inode::FileType;
use ondisk::units::InodeNumber;
use platfs::{Error, Volume};

use super::{Failed, Tree};
use crate::control::{Served, Tickets, actor_of};

impl Tree {
    /// The tickets that this mount has given.
    #[must_use]
    pub fn tickets(&self) -> Arc<Tickets> {
        Arc::clone(&self.tickets)
    }

    /// A ticket for the control channel, for a program that has a directory open.
    pub(super) fn ticket(&self, caller: Caller, node: u64) -> Result<Vec<u8>, Failed> {
        let facts = self.volume.metadata(self.inode(node)?)?;
        if facts.file_type != FileType::Directory {
            return Err(fuse::Errno::NOTDIR.into());
        }
        let actor = actor_of(caller)?;
        let grant = self.tickets.issue(facts.inode, facts.generation, actor);
        Ok(grant.ok_or(fuse::Errno::OPNOTSUPP)?.encode())
    }

    /// How often names changed beside the kernel, to be asked before a name is looked at.
    pub(super) fn renamings(&self) -> u64 {
        self.renamings.load(Ordering::SeqCst)
    }

    /// Names an inode to the kernel that was found when names had changed so often. Where they have changed since, it
    /// is looked up again.
    pub(super) fn hand_out_settled(
        &self,
        (mut found, mut since): (InodeNumber, u64),
        directory: InodeNumber,
        name: &[u8],
    ) -> Result<Entry, Failed> {
        loop {
            let handed = self.hand_out(found, || self.named(directory, found));
            let before = self.renamings();
            if before == since {
                return handed;
            }
            let again = self.volume.lookup(directory, name);
            if handed.is_ok() && matches!(again, Ok(now) if now == found) {
                return handed;
            }
            if let Ok(entry) = handed {
                self.take_back(entry.node, 1);
            }
            (found, since) = (again?, before);
        }
    }
}

impl Served for Tree {
    fn volume(&self) -> &Volume {
        &self.volume
    }

    fn is_writable(&self) -> bool {
        Tree::is_writable(self)
    }

    fn has_lists(&self) -> bool {
        self.terms.acl
    }

    fn names_changed(&self) {
        self.renamings.fetch_add(1, Ordering::SeqCst);
    }

    fn failed(&self, error: &Error) {
        if super::errno::is_damage(error) {
            self.log.complain(format!("control channel: {error}"));
        }
        self.after_damage(error);
    }

    fn settle(&self) -> Result<(), Error> {
        if !Tree::is_writable(self) {
            return Ok(());
        }
        self.volume_now().sync().inspect_err(|error| self.after_damage(error))
    }
}
