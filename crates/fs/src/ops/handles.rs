//! Users of inodes, and inodes that outlive their last name: the orphan list.
//!
//! A file that is open when its last name goes stays until its last user is gone. Meanwhile it is
//! on the list that begins in the superblock and goes on through the deletion times of the inodes,
//! so that a check after a crash knows that it is to be deleted.

use ondisk::inode::{FileType, Inode, InodeFlags};
use ondisk::units::{Block, FileBlock, InodeNumber, low_u32};

use super::attrs::file_type;
use super::changing::{change, perform};
use super::flush::WriteBack;
use crate::cache::Blocks;
use crate::error::{Error, Result};
use crate::handles::Handles;
use crate::map;
use crate::order::RemovedDir;
use crate::ranges::FileBlocks;
use crate::tx::Tx;
use crate::txn::Claim;
use crate::volume::Volume;

/// A user of an inode: while there is one, the inode outlives its last name.
pub struct Pin<'v> {
    volume: &'v Volume,
    number: InodeNumber,
}

impl<'v> Pin<'v> {
    /// Of an inode that was pinned already.
    pub(super) fn already_counted(volume: &'v Volume, number: InodeNumber) -> Self {
        Pin { volume, number }
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.volume.session.handles.unpin(self.number);
    }
}

/// An inode that an update destroys. To be claimed behind all else that its end brings: when it can be
/// pinned again, the number is free, and nothing must be left of it.
struct DeletingInode<'v> {
    handles: &'v Handles,
    number: InodeNumber,
}

impl Claim for DeletingInode<'_> {
    fn commit(self: Box<Self>) {}
}

impl Drop for DeletingInode<'_> {
    fn drop(&mut self) {
        self.handles.unmark_deleting(self.number);
    }
}

/// A user of an inode that an update makes. An attempt that is dropped takes it along (I40).
struct NewInodePin<'v> {
    handles: &'v Handles,
    number: InodeNumber,
    is_kept: bool,
}

impl Claim for NewInodePin<'_> {
    fn commit(mut self: Box<Self>) {
        self.is_kept = true;
    }
}

impl Drop for NewInodePin<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.handles.unpin(self.number);
        }
    }
}

impl Volume {
    /// Holds an inode: if it loses its last name, its contents stay until the pin is dropped.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it is being destroyed.
    pub fn pin(&self, number: InodeNumber) -> Result<Pin<'_>> {
        if self.session.handles.pin(number) { Ok(Pin { volume: self, number }) } else { Err(Error::NotFound) }
    }
}

/// Users of inodes that a caller counts by itself, and the inodes that end with them.
#[derive(Clone, Copy)]
pub struct Uses<'v> {
    volume: &'v Volume,
}

impl Volume {
    /// Users of inodes, for a caller that counts them by itself.
    #[must_use]
    pub fn uses(&self) -> Uses<'_> {
        Uses { volume: self }
    }
}

impl<'v> Uses<'v> {
    /// One more user of an inode, as [`Volume::pin`], for callers that count by themselves; each is
    /// ended by [`Uses::release`].
    ///
    /// # Errors
    /// As [`Volume::pin`].
    pub fn retain(&self, number: InodeNumber) -> Result<()> {
        if self.volume.session.handles.pin(number) { Ok(()) } else { Err(Error::NotFound) }
    }

    /// Ends `times` uses of an inode. What was set aside for a file to grow into is free again after the last; bytes
    /// that wait take their places in it first, and a sync of the file reports it if they can't. A policy that follows a
    /// kernel keeps what was set aside until the last bytes are written back. True if it was the last use.
    pub fn release(&self, number: InodeNumber, times: u64) -> bool {
        self.release_then(number, times, || {})
    }

    /// As [`Uses::release`]. After the last use `ended` is done, before the number of a removed file can come to another
    /// one: a caller forgets there what it knows by the number. It must not use the volume.
    pub fn release_then(&self, number: InodeNumber, times: u64, ended: impl FnOnce()) -> bool {
        let volume = self.volume;
        let last = volume.session.handles.unpin_then(number, times, ended);
        if last {
            let rest = volume.session.delayed.end(number);
            // A kernel keeps what it set aside until the last bytes have their places, and lets them wait.
            if volume.space.wants_file() && volume.session.delayed.waits(number) {
                return last;
            }
            if rest {
                WriteBack::new(volume).written_back(number);
            }
            volume.space.closed(number);
        }
        last
    }

    /// Ends all uses by [`Uses::retain`], for a caller that will not tell of each.
    pub fn release_all(&self) {
        self.volume.session.handles.unpin_all();
    }

    /// Inodes that have lost their last name and still hold what they had, for their users or until they are destroyed.
    #[must_use]
    pub fn nameless(&self) -> Vec<InodeNumber> {
        self.volume.session.handles.nameless()
    }

    /// Destroys what has lost its last name and its last user, which the next change would do too.
    ///
    /// # Errors
    /// The device's failure.
    pub fn clear_away(&self) -> Result<()> {
        if self.volume.session.handles.has_deletable() { change(self.volume, |_| Ok(())) } else { Ok(()) }
    }

    /// Packs the maps that need it. It only saves space, so that a failure to do it is none.
    pub(super) fn tidy_maps(&self) {
        for number in self.volume.session.handles.take_untidy() {
            let _ = perform(self.volume, &mut |tx| {
                let mut node = tx.inode(number)?;
                if node.links() > 0 && tx.map(&mut node).tidy()? {
                    tx.store(&mut node)?;
                }
                Ok(())
            });
        }
    }

    /// Destroys orphans that nobody uses any more. One for whose end there is no space waits for the next change or sync.
    /// One that is damaged stays on the list, and the volume is marked for a check.
    ///
    /// # Errors
    /// The device's failure; all that were left wait.
    pub(super) fn reap(&self) -> Result<()> {
        let handles = &self.volume.session.handles;
        let (mut deletable, mut waiting) = (handles.take_deletable().into_iter(), Vec::new());
        let mut failed = Ok(());
        for number in deletable.by_ref() {
            match self.end_orphan(number) {
                Ok(()) => {}
                Err(Error::NoSpace | Error::NoInodes | Error::QuotaExceeded { .. }) => waiting.push(number),
                Err(error @ (Error::Io { .. } | Error::WriteFailed)) => {
                    waiting.push(number);
                    failed = Err(error);
                    break;
                }
                Err(_) => self.volume.session.note_damage(),
            }
        }
        handles.await_end(waiting.into_iter().chain(deletable));
        failed
    }

    /// Destroys an orphan, if it still is one that nobody uses.
    fn end_orphan(&self, number: InodeNumber) -> Result<()> {
        let handles = &self.volume.session.handles;
        let done = perform(self.volume, &mut |tx| {
            // Meanwhile it may have got a user, or a name.
            if handles.orphan(number).is_none() || !handles.mark_deleting(number) {
                return Ok(());
            }
            let deleting = DeletingInode { handles, number };
            let node = tx.inode(number)?;
            tx.leave_orphans(&node)?;
            tx.finish_orphan(node)?;
            tx.claim(deleting);
            Ok(())
        });
        match done {
            Err(Error::TooLargeForLog { .. }) => {
                self.finish_in_steps(number, &|tx, node| tx.leave_orphans(node))
            }
            done => done,
        }
    }

    /// Does with an orphan what [`Tx::finish_orphan`] does, in as many transactions as that takes; in the
    /// last it leaves the lists that it is on.
    pub(super) fn finish_in_steps(
        &self,
        number: InodeNumber,
        leave: &dyn Fn(&mut Tx<'v>, &Inode) -> Result<()>,
    ) -> Result<()> {
        let handles = &self.volume.session.handles;
        if !handles.mark_deleting(number) {
            return Ok(());
        }
        let cut = self.volume.view().inode(number).and_then(|node| {
            let kept = if node.links() == 0 { 0 } else { node.size() };
            self.cut_in_steps(number, self.volume.format.blocks_for(kept))
        });
        let done = cut.and_then(|()| {
            perform(self.volume, &mut |tx| {
                let node = tx.inode(number)?;
                leave(tx, &node)?;
                tx.finish_orphan(node)?;
                tx.on_commit(move || handles.unmark_deleting(number));
                Ok(())
            })
        });
        if done.is_err() {
            self.volume.session.handles.unmark_deleting(number);
        }
        done
    }

    /// Frees the blocks of a file from one on, the last first: in parts that fit the journal, with the file on
    /// the orphan list meanwhile, so that the next use of the volume goes on with it after a crash.
    pub(super) fn cut_in_steps(&self, number: InodeNumber, first: u64) -> Result<()> {
        let (mut end, mut most) = (1_u64 << 32, 1_u64 << 32);
        while end > first {
            let from = end.saturating_sub(most).max(first);
            let done = perform(self.volume, &mut |tx| {
                let mut node = tx.inode(number)?;
                tx.join_orphans(&mut node);
                tx.map(&mut node).unmap(FileBlocks::new(from, end))?;
                tx.store(&mut node)
            });
            match done {
                Err(Error::TooLargeForLog { .. }) if end - from > 1 => most = (end - from) / 2,
                done => {
                    done?;
                    end = from;
                    most *= 2;
                }
            }
        }
        Ok(())
    }
}

impl<'v> Tx<'v> {
    /// Notes a map that a check may find wasteful, to be looked at when the volume is synced.
    pub(crate) fn note_map(&self, node: &Inode) {
        if !self.session.is_loading() && map::may_be_untidy(node) {
            self.session.handles.note_untidy(node.number());
        }
    }

    /// Begins a use of an inode that this update makes: afterwards another thread could see it unused.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it is being destroyed.
    pub(super) fn begin_use(&mut self, number: InodeNumber) -> Result<()> {
        let handles = &self.session.handles;
        if !handles.pin(number) {
            return Err(Error::NotFound);
        }
        self.claim(NewInodePin { handles, number, is_kept: false });
        Ok(())
    }

    /// Deletes an inode that has lost its last name, or makes it an orphan while it is in use.
    pub(super) fn orphan_or_delete(&mut self, mut node: Inode) -> Result<()> {
        if !self.postpones_removal() && self.session.handles.mark_deleting(node.number()) {
            let deleting = DeletingInode { handles: &self.session.handles, number: node.number() };
            // A file that is being cut is on it with its names.
            self.leave_orphans(&node)?;
            self.destroy(node)?;
            self.claim(deleting);
            return Ok(());
        }
        self.join_orphans(&mut node);
        self.part_from_parent(&node, true)?;
        self.store(&mut node)
    }

    /// Where order counts: notes a directory that loses its name, so that it does not lead to a parent that
    /// goes before it.
    fn part_from_parent(&mut self, node: &Inode, lives: bool) -> Result<()> {
        if !self.order().takes_notes() || file_type(node)? != FileType::Directory {
            return Ok(());
        }
        let number = node.number();
        if !lives && !self.was_in_use(number)? {
            return Ok(());
        }
        let mut first = None;
        for at in 0..low_u32(self.format.blocks_for(node.size())) {
            let block = self.view().map(node).block_at(FileBlock(at))?;
            if !lives && self.is_own(block) {
                // The device has it as it was before it was moved, with names of inodes that go.
                return self.wait_for_commit();
            }
            first.get_or_insert(block);
        }
        if let Some(block) = first {
            let role = self.view().dir(node).first_role();
            let bytes = self.read(block, role)?;
            let removed = RemovedDir { directory: number, block: block.0, role, bytes, lives };
            self.note(|notes| notes.remove_directory(removed));
        }
        Ok(())
    }

    /// Puts an inode at the head of the orphan list, unless it is on it.
    pub(super) fn join_orphans(&mut self, node: &mut Inode) {
        let (number, session) = (node.number(), self.session);
        if session.handles.orphan(number).is_some() {
            return;
        }
        if !self.order().lists_orphans() {
            // No list could be kept in order. After a crash they are found by having no name.
            self.on_commit(move || session.handles.add_orphan(number));
            return;
        }
        node.raw_mut().i_dtime.set(session.superblock().s_last_orphan.get());
        let on_disk = self.format.physical_number(number);
        self.on_commit(move || {
            session.handles.add_orphan(number);
            session.edit_superblock(|raw| raw.s_last_orphan.set(on_disk.get()));
        });
    }

    /// Takes an inode off the orphan list, if it is on it; its own record is left to the caller.
    pub(super) fn leave_orphans(&mut self, node: &Inode) -> Result<()> {
        let (number, next) = (node.number(), node.raw().i_dtime.get());
        let session = self.session;
        let Some(before) = session.handles.orphan(number) else { return Ok(()) };
        if !self.order().lists_orphans() {
            self.on_commit(move || session.handles.remove_orphan(number));
            return Ok(());
        }
        if let Some(before) = before {
            let mut before = self.inode(before)?;
            before.raw_mut().i_dtime.set(next);
            self.store(&mut before)?;
        }
        self.on_commit(move || {
            session.handles.remove_orphan(number);
            if before.is_none() {
                session.edit_superblock(|raw| raw.s_last_orphan.set(next));
            }
        });
        Ok(())
    }

    /// A file without a name gets one, while it is still in use.
    pub(super) fn revive(&mut self, node: &mut Inode) -> Result<()> {
        if self.session.handles.orphan(node.number()).is_none() {
            return Err(Error::NotFound);
        }
        self.leave_orphans(node)?;
        node.raw_mut().i_dtime.set(0);
        Ok(())
    }

    fn release_translator(&mut self, node: &Inode) -> Result<()> {
        let block = Block(u64::from(node.raw().i_version_lo.get()));
        // Values of attributes in inodes of their own have a count there.
        let has_one = self.format.has_translators && !node.flags().contains(InodeFlags::EA_INODE);
        if has_one && block.0 != 0 && self.format.geometry.contains(block, 1) {
            self.free_metadata(block)?;
        }
        Ok(())
    }

    /// Frees all that an inode has, and the inode.
    pub(crate) fn destroy(&mut self, mut node: Inode) -> Result<()> {
        let (number, file_type) = (node.number(), file_type(&node)?);
        self.part_from_parent(&node, false)?;
        if node.has_map() {
            self.map(&mut node).unmap(FileBlocks::ALL)?;
        }
        self.release_xattrs(&node)?;
        self.release_translator(&node)?;
        self.free_inode(&node, file_type)?;
        let (session, space) = (self.session, self.space);
        self.on_commit(move || {
            session.delayed.forget(number);
            space.truncated(number);
        });
        Ok(())
    }
}
