//! Inodes without a name: freed, with all that has its only name below them.
//!
//! Below a directory without a name everything is reached by names, so that the survey counts one for each; it is
//! taken apart as a person would do it, from the innermost. What has a name elsewhere too only loses this one. A row
//! of directories of which each has its one name in the one before begins at one that has none, and so never comes back
//! to itself.

use ondisk::corrupt::Place;
use ondisk::inode::{FileType, Inode};
use ondisk::units::InodeNumber;

use super::{Leftovers, add};
use crate::dir::DirEntry;
use crate::error::{Error, Result};
use crate::ops::attrs::file_type;
use crate::ops::remove::lower_links;
use crate::order::is_used;
use crate::reclaiming::Work;
use crate::tx::Tx;

/// Names of a directory that are taken out before others are looked for.
const BATCH: usize = 256;

impl<'v> Leftovers<'v> {
    /// True if an inode is in use without an owner: it has no name, and no user keeps it beyond its last name.
    fn is_nameless(&self, node: &Inode) -> bool {
        let number = node.number();
        is_used(node.bytes())
            && self.surveyed(|survey| survey.knows(number) && survey.names(number) == 0)
            && self.volume.session.handles.orphan(number).is_none()
    }

    /// Begins to free an inode, if it has no name.
    pub(super) fn free_if_nameless(&self, work: &mut Work, number: InodeNumber) -> Result<()> {
        if !self.surveyed(|survey| survey.names(number) == 0) || self.is_special(number) {
            return Ok(());
        }
        let node = self.volume.view().inode(number)?;
        if !self.is_nameless(&node) {
            return Ok(());
        }
        if file_type(&node)? == FileType::Directory {
            work.nest.push(number);
            return Ok(());
        }
        self.delete_nameless(number)
    }

    /// Inodes of the volume itself, which have no names.
    fn is_special(&self, number: InodeNumber) -> bool {
        let raw = self.volume.superblock();
        let theirs = [
            raw.s_journal_inum,
            raw.s_orphan_file_inum,
            raw.s_usr_quota_inum,
            raw.s_grp_quota_inum,
            raw.s_prj_quota_inum,
        ];
        number.get() < self.volume.format.geometry.first_inode
            || theirs.iter().any(|theirs| theirs.get() == number.get())
    }

    fn delete_nameless(&self, number: InodeNumber) -> Result<()> {
        let mut done = false;
        self.update(|tx| {
            let mut node = tx.inode(number)?;
            done = self.is_nameless(&node);
            if !done {
                return Ok(());
            }
            if file_type(&node)? == FileType::Directory {
                tx.must_be_empty(&node)?;
            }
            node.raw_mut().i_links_count.set(0);
            tx.orphan_or_delete(node)
        })?;
        add(&self.volume.reclaiming.inodes, u64::from(done));
        Ok(())
    }

    /// Takes some names out of the innermost directory without a name, or frees it.
    pub(super) fn empty_nest(&self, work: &mut Work) -> Result<()> {
        let Some(number) = work.nest.last().copied() else { return Ok(()) };
        let node = self.volume.view().inode(number)?;
        let listed: Vec<DirEntry> = self.volume.view().entries(node)?.take(BATCH).collect::<Result<_>>()?;
        if listed.is_empty() {
            work.nest.pop();
            // One with a name goes with that.
            return if work.nest.is_empty() { self.delete_nameless(number) } else { Ok(()) };
        }
        for entry in &listed {
            if !self.take_out(number, entry)? {
                work.nest.push(entry.inode);
                break;
            }
        }
        Ok(())
    }

    /// Takes a name out of a directory that is to go; `false` if it leads to a directory that has to be emptied first.
    fn take_out(&self, directory: InodeNumber, entry: &DirEntry) -> Result<bool> {
        let (mut is_free, mut goes) = (true, false);
        self.update(|tx| {
            let child = tx.inode(entry.inode)?;
            if !is_used(child.bytes()) {
                let problem = format!("has a name of inode {}, which is not in use", entry.inode);
                return Err(Error::corrupt(Place::Directory(directory), problem));
            }
            let is_directory = file_type(&child)? == FileType::Directory;
            goes = self.surveyed(|survey| survey.names(entry.inode)) <= 1;
            is_free = !(is_directory && goes) || self.volume.view().entries(child.clone())?.next().is_none();
            if is_free { tx.take_name(directory, &entry.name, child, goes) } else { Ok(()) }
        })?;
        add(&self.volume.reclaiming.inodes, u64::from(is_free && goes));
        Ok(is_free)
    }
}

impl<'v> Tx<'v> {
    /// Takes a name out of a directory, and its inode away if it has no other.
    pub(super) fn take_name(
        &mut self,
        directory: InodeNumber,
        name: &[u8],
        child: Inode,
        goes: bool,
    ) -> Result<()> {
        let mut parent = self.directory(directory)?;
        self.dir(&mut parent).remove(name)?;
        let is_directory = file_type(&child)? == FileType::Directory;
        if is_directory {
            lower_links(&mut parent);
        }
        self.store(&mut parent)?;
        match (is_directory, goes) {
            (true, true) => self.lose_directory(child),
            (true, false) => Ok(()),
            (false, _) => self.lose_name(child),
        }
    }
}
