//! Users of inodes, and inodes that outlive their last name: the orphan list.
//!
//! A file that is open when its last name goes stays until its last user is gone. Meanwhile it is
//! on the list that begins in the superblock and goes on through the deletion times of the inodes,
//! so that a check after a crash knows that it is to be deleted.

use ondisk::inode::{FileType, Inode};
use ondisk::units::{FileBlock, InodeNumber, low_u32};

use super::attrs::file_type;
use crate::cache::Blocks;
use crate::error::{Error, Result};
use crate::handles::Handles;
use crate::order::RemovedDir;
use crate::tx::Tx;
use crate::txn::Claim;
use crate::volume::Volume;
use crate::{dir, file, inode, map, xattr};

/// A user of an inode: while there is one, the inode outlives its last name.
pub struct Pin<'v> {
    volume: &'v Volume,
    number: InodeNumber,
}

impl<'v> Pin<'v> {
    /// Of an inode that was pinned already.
    pub(super) fn held(volume: &'v Volume, number: InodeNumber) -> Self {
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
struct Dying<'v> {
    handles: &'v Handles,
    number: InodeNumber,
}

impl Claim for Dying<'_> {
    fn keep(self: Box<Self>) {}
}

impl Drop for Dying<'_> {
    fn drop(&mut self) {
        self.handles.spare(self.number);
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

    /// Destroys orphans that nobody uses any more. One that can't be destroyed stays on the list for
    /// the next check.
    pub(crate) fn reap(&self) -> Result<()> {
        for number in self.session.handles.take_doomed() {
            let mut done = self.perform(&mut |update| {
                // Meanwhile it may have got a user, or a name.
                if self.session.handles.orphan(number).is_none() || !self.session.handles.doom(number) {
                    return Ok(());
                }
                let dying = Dying { handles: &self.session.handles, number };
                let node = self.load_in(update, number)?;
                self.leave_orphans(update, &node)?;
                self.finish_orphan(update, node)?;
                update.claim(dying);
                Ok(())
            });
            if let Err(Error::TooLargeForLog { .. }) = done {
                done = self.finish_in_steps(number, &|update, node| self.leave_orphans(update, node));
            }
            if let Err(error @ (Error::Io { .. } | Error::WriteFailed)) = done {
                return Err(error);
            }
        }
        Ok(())
    }

    /// What becomes of an inode that has lost its last name: it goes at once, or it becomes an orphan.
    pub(super) fn bury<'v>(&'v self, update: &mut Tx<'v>, mut node: Inode) -> Result<()> {
        if !update.postpones_removal() && self.session.handles.doom(node.number()) {
            let dying = Dying { handles: &self.session.handles, number: node.number() };
            // A file that is being cut is on it with its names.
            self.leave_orphans(update, &node)?;
            self.destroy(update, node)?;
            update.claim(dying);
            return Ok(());
        }
        self.join_orphans(update, &mut node);
        self.part_from_parent(update, &node, true)?;
        inode::store(update, &self.format, &self.space, &mut node)
    }

    /// Where order counts: notes a directory that loses its name, so that it does not lead to a parent that
    /// goes before it.
    fn part_from_parent(&self, update: &mut Tx<'_>, node: &Inode, lives: bool) -> Result<()> {
        if !self.order.takes_notes() || file_type(node)? != FileType::Directory {
            return Ok(());
        }
        let number = node.number();
        if !lives && !inode::was_in_use(update, &self.format, &self.space, number)? {
            return Ok(());
        }
        let mut first = None;
        for at in 0..low_u32(file::blocks_of(&self.format, node.size())) {
            let block = map::block_at(&*update, &self.format, node, FileBlock(at))?;
            if !lives && update.is_own(block) {
                // The device has it as it was before it was moved, with names of inodes that go.
                return update.wait_for_commit();
            }
            first.get_or_insert(block);
        }
        if let Some(block) = first {
            let role = dir::first_role(&self.format, node);
            let bytes = update.read(block, role)?;
            let removed = RemovedDir { directory: number, block: block.0, role, bytes, lives };
            update.note(|notes| notes.remove_directory(removed));
        }
        Ok(())
    }

    /// Puts an inode at the head of the orphan list, unless it is on it.
    pub(super) fn join_orphans<'v>(&'v self, update: &mut Tx<'v>, node: &mut Inode) {
        let number = node.number();
        if self.session.handles.orphan(number).is_some() {
            return;
        }
        if !self.order.lists_orphans() {
            // No list could be kept in order. After a crash they are found by having no name.
            update.on_commit(move || self.session.handles.add_orphan(number));
            return;
        }
        node.raw_mut().i_dtime.set(self.superblock().s_last_orphan.get());
        update.on_commit(move || {
            self.session.handles.add_orphan(number);
            self.session.edit_superblock(|raw| raw.s_last_orphan.set(number.get()));
        });
    }

    /// Takes an inode off the orphan list, if it is on it; its own record is left to the caller.
    pub(super) fn leave_orphans<'v>(&'v self, update: &mut Tx<'v>, node: &Inode) -> Result<()> {
        let (number, next) = (node.number(), node.raw().i_dtime.get());
        let Some(before) = self.session.handles.orphan(number) else { return Ok(()) };
        if !self.order.lists_orphans() {
            update.on_commit(move || self.session.handles.remove_orphan(number));
            return Ok(());
        }
        if let Some(before) = before {
            let mut before = inode::load(&*update, &self.format, &self.space, before)?;
            before.raw_mut().i_dtime.set(next);
            inode::store(update, &self.format, &self.space, &mut before)?;
        }
        update.on_commit(move || {
            self.session.handles.remove_orphan(number);
            if before.is_none() {
                self.session.edit_superblock(|raw| raw.s_last_orphan.set(next));
            }
        });
        Ok(())
    }

    /// A file without a name gets one, as long as somebody still has it.
    pub(super) fn revive<'v>(&'v self, update: &mut Tx<'v>, node: &mut Inode) -> Result<()> {
        if self.session.handles.orphan(node.number()).is_none() {
            return Err(Error::NotFound);
        }
        self.leave_orphans(update, node)?;
        node.raw_mut().i_dtime.set(0);
        Ok(())
    }

    /// Does with an orphan what [`Volume::finish_orphan`] does, in as many transactions as that takes; in the
    /// last it leaves the lists that it is on.
    pub(super) fn finish_in_steps<'v>(
        &'v self,
        number: InodeNumber,
        leave: &dyn Fn(&mut Tx<'v>, &Inode) -> Result<()>,
    ) -> Result<()> {
        if !self.session.handles.doom(number) {
            return Ok(());
        }
        let cut = self.load(number).and_then(|node| {
            let kept = if node.links() == 0 { 0 } else { node.size() };
            self.cut_in_steps(number, file::blocks_of(&self.format, kept))
        });
        let done = cut.and_then(|()| {
            self.perform(&mut |update| {
                let node = self.load_in(update, number)?;
                leave(update, &node)?;
                self.finish_orphan(update, node)?;
                update.on_commit(move || self.session.handles.spare(number));
                Ok(())
            })
        });
        if done.is_err() {
            self.session.handles.spare(number);
        }
        done
    }

    /// Frees the blocks of a file from one on, the last first: in parts that fit the journal, with the file on
    /// the orphan list meanwhile, so that the next use of the volume goes on with it after a crash.
    pub(super) fn cut_in_steps(&self, number: InodeNumber, first: u64) -> Result<()> {
        let (mut end, mut most) = (1_u64 << 32, 1_u64 << 32);
        while end > first {
            let from = end.saturating_sub(most).max(first);
            let done = self.perform(&mut |update| {
                let mut node = self.load_in(update, number)?;
                self.join_orphans(update, &mut node);
                map::unmap(&self.format, &self.space, update, &mut node, from, end)?;
                inode::store(update, &self.format, &self.space, &mut node)
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

    /// Frees all that an inode has, and the inode.
    pub(crate) fn destroy<'v>(&'v self, update: &mut Tx<'v>, mut node: Inode) -> Result<()> {
        let (number, file_type) = (node.number(), file_type(&node)?);
        self.part_from_parent(update, &node, false)?;
        if node.has_map() {
            map::unmap(&self.format, &self.space, update, &mut node, 0, 1 << 32)?;
        }
        xattr::release_all(self, update, &node)?;
        self.free_inode(update, &node, file_type)?;
        update.on_commit(move || {
            self.session.delayed.forget(number);
            self.space.truncated(number);
        });
        Ok(())
    }

    /// Frees an inode that has nothing left. Its record keeps the generation and the time.
    pub(crate) fn free_inode(&self, update: &mut Tx<'_>, node: &Inode, file_type: FileType) -> Result<()> {
        let mut gone = Inode::blank(node.number(), self.format.geometry.inode_size);
        // A time as low as an inode number would be taken for a link of the orphan list.
        let least = self.superblock().times().written.max(u64::from(self.format.geometry.inodes()) + 1);
        let now = u64::try_from(self.now().seconds).unwrap_or(0).max(least);
        gone.raw_mut().i_generation = node.raw().i_generation;
        gone.raw_mut().i_dtime.set(u32::try_from(now).unwrap_or(u32::MAX));
        inode::store(update, &self.format, &self.space, &mut gone)?;
        self.space.free_inode(update, node.number(), file_type)
    }

    /// Notes a map that a check may find wasteful, to be looked at when the volume is synced.
    pub(crate) fn note_map(&self, node: &Inode) {
        if !self.session.options.loading && map::may_be_untidy(node) {
            self.session.handles.note_untidy(node.number());
        }
    }

    /// Packs the maps that need it. It only saves space, so that a failure to do it is none.
    pub(crate) fn tidy_maps(&self) {
        for number in self.session.handles.take_untidy() {
            let _ = self.perform(&mut |update| {
                let mut node = self.load_in(update, number)?;
                if node.links() > 0 && map::tidy(&self.format, &self.space, update, &mut node)? {
                    inode::store(update, &self.format, &self.space, &mut node)?;
                }
                Ok(())
            });
        }
    }
}
