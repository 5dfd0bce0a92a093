//! Changes that do not come through the kernel: what the control channel needs of a mount.
//!
//! The kernel locks a directory while it looks up or lists its names, and while it changes them. The channel's work does
//! not. So an answer about a name can be wrong by the time it is sent, and the kernel would keep it. Two rules prevent
//! that. Work that has changed a name looks whether the kernel may know it, and if so, tells it to ask again. And while
//! such work goes on, an inode that was found by a name is first noted as known to the kernel, and then looked up again:
//! either the answer is still right, or it is not sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fuse::{Caller, Entry};
use ondisk::inode::FileType;
use ondisk::units::InodeNumber;
use platfs::device::SnapshotDevice;
use platfs::rights::Powers;
use platfs::{Error, Volume};

use super::callers;
use super::{Failed, Tree};
use crate::bulk::{Terms, is_owner_of_server};
use crate::control::{Asked, Served, Tickets, Views};
use crate::mount::outside;

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
        let actor = callers::actor(caller).ok_or(fuse::Errno::PERM)?;
        let file_system = self.tickets.file_system().ok_or(fuse::Errno::OPNOTSUPP)?;
        let views = Views::of(caller.pid, outside::root_of(caller.pid), file_system);
        let views = views.map_err(|error| format!("the mounts of the program are not known: {error}"));
        let (inode, generation, thread) = (facts.inode, facts.generation, callers::current());
        let grant = self.tickets.issue(Asked { inode, generation, actor, thread, views });
        Ok(grant.ok_or(fuse::Errno::OPNOTSUPP)?.encode())
    }

    /// Names an inode to the kernel that was found by a name at some moment.
    pub(super) fn hand_out_found(
        &self,
        (mut found, at): (InodeNumber, Moment),
        directory: InodeNumber,
        name: &[u8],
    ) -> Result<Entry, Failed> {
        let mut failures = 0;
        loop {
            let handed = self.hand_out(found, || self.named(directory, found));
            if self.beside.is_quiet_since(at) {
                return handed;
            }
            match (handed, self.volume.lookup(directory, name)) {
                (Ok(entry), Ok(now)) if now == found => return Ok(entry),
                (Ok(entry), again) => {
                    self.take_back(entry.node, 1);
                    found = again?;
                }
                // What was removed between the two looks fails; what fails again and again is damage.
                (Err(failed), Ok(now)) => {
                    failures += u32::from(now == found);
                    if failures > TRIES {
                        return Err(failed);
                    }
                    found = now;
                }
                (Err(_), Err(error)) => return Err(error.into()),
            }
        }
    }
}

/// How often an inode that can't be handed out is looked up again.
const TRIES: u32 = 8;

/// Work that changes names beside the kernel.
#[derive(Default)]
pub(super) struct Beside {
    /// Pieces of work that began, and those that ended.
    begun: AtomicU64,
    ended: AtomicU64,
}

/// A moment without such work, or none.
#[derive(Clone, Copy)]
pub(super) struct Moment(Option<u64>);

impl Beside {
    /// This moment, to be asked for before a name is looked at.
    pub(super) fn now(&self) -> Moment {
        // In this order: work that ends in between counts as going on.
        let ended = self.ended.load(Ordering::SeqCst);
        let begun = self.begun.load(Ordering::SeqCst);
        Moment((begun == ended).then_some(begun))
    }

    /// Returns true if no name can have changed beside the kernel since then.
    fn is_quiet_since(&self, moment: Moment) -> bool {
        moment.0.is_some_and(|begun| self.begun.load(Ordering::SeqCst) == begun)
    }
}

impl Served for Tree {
    fn volume(&self) -> &Volume {
        &self.volume
    }

    fn is_writable(&self) -> bool {
        Tree::is_writable(self)
    }

    fn terms(&self) -> Terms {
        let super::Terms { acl, user_xattr, xattr, .. } = self.terms;
        Terms { lists: acl && xattr, of_users: user_xattr, any: xattr }
    }

    fn begin_beside(&self) {
        self.beside.begun.fetch_add(1, Ordering::SeqCst);
    }

    fn end_beside(&self) {
        self.beside.ended.fetch_add(1, Ordering::SeqCst);
    }

    fn failed(&self, error: &Error) {
        if super::errno::is_damage(error) {
            self.log.complain(format!("control channel: {error}"));
        }
        self.after_damage(error);
    }

    fn keeping(&self) -> Option<Arc<SnapshotDevice>> {
        self.keeping.get().cloned()
    }

    fn keeps(&self, peer: fuse::Caller) -> bool {
        let has = || callers::actor(peer).is_some_and(|actor| actor.keeps(Powers::SYS_ADMIN));
        is_owner_of_server(peer.uid) || has()
    }

    fn give_up(&self) {
        platfs_open::stores::give_up();
    }

    fn settle(&self) -> Result<(), Error> {
        if !Tree::is_writable(self) {
            return Ok(());
        }
        self.volume_now().sync().inspect_err(|error| self.after_damage(error))
    }
}
