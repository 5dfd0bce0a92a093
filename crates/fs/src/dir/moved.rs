//! Names of inodes that get other numbers on disk, and what a directory holds of its own number and its parent's.
//!
//! Owns: finding names by where they lead, whatever they mean (they may be enciphered or ignore case), and changing that in
//! place. All numbers are those on disk here. Excludes: which inodes get other numbers (`shrink`), and what else depends on
//! an inode's number (`ops`).

use ondisk::corrupt::Place;
use ondisk::dirent::{self, Layout};
use ondisk::inode::InodeFlags;
use ondisk::seal::InodeSeed;
use ondisk::units::{FileBlock, InodeNumber};

use super::inside::PARENT_LEN;
use super::{Dir, DirMut, linear};
use crate::bytes;
use crate::cache::{Blocks, Role};
use crate::error::{Error, Result};
use crate::inline;

fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// The offsets of names that lead to a number.
fn spots(
    entries: dirent::Entries<'_>,
    to: InodeNumber,
) -> std::result::Result<Vec<usize>, dirent::BrokenEntry> {
    let mut offsets = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.inode == Some(to) && !is_dot(entry.name) {
            offsets.push(entry.offset);
        }
    }
    Ok(offsets)
}

fn put(bytes: &mut [u8], offset: usize, number: InodeNumber) -> Result<()> {
    Ok(bytes::put(bytes, offset, &number.get().to_le_bytes())?)
}

impl Dir<'_> {
    /// The names of a file block that lead to certain numbers on disk: the numbers.
    fn leading_in(
        &self,
        at: FileBlock,
        is_meant: &dyn Fn(InodeNumber) -> bool,
        to: &mut Vec<(InodeNumber, FileBlock)>,
    ) -> Result<()> {
        let mut see = |entries: dirent::Entries<'_>| {
            for entry in entries {
                let entry = entry.map_err(|broken| self.broken(at, broken))?;
                to.extend(
                    entry
                        .inode
                        .filter(|inode| !is_dot(entry.name) && is_meant(*inode))
                        .map(|inode| (inode, at)),
                );
            }
            Ok(())
        };
        if self.dir.flags().contains(InodeFlags::INLINE_DATA) {
            let (head, tail) = inline::parts(self.dir)?;
            see(dirent::entries_without_tail(head.split_at(PARENT_LEN).1, self.layout))?;
            return see(dirent::entries_without_tail(tail, self.layout));
        }
        let Some((bytes, layout)) = linear::list_block(self, at)? else { return Ok(()) };
        see(dirent::entries(&bytes, layout))
    }

    /// Numbers on disk to which names lead, each with the file block of its name: in one file block, or in all.
    ///
    /// # Errors
    /// A broken directory; the device's failure.
    pub(crate) fn leading_to(
        &self,
        at: Option<FileBlock>,
        is_meant: &dyn Fn(InodeNumber) -> bool,
    ) -> Result<Vec<(InodeNumber, FileBlock)>> {
        let is_inline = self.dir.flags().contains(InodeFlags::INLINE_DATA);
        let count = if is_inline { 1 } else { self.len()? };
        let all = match at {
            Some(at) => at.0.min(count)..at.0.saturating_add(1).min(count),
            None => 0..count,
        };
        let mut found = Vec::new();
        all.map(FileBlock).try_for_each(|at| self.leading_in(at, is_meant, &mut found))?;
        Ok(found)
    }
}

impl DirMut<'_, '_> {
    /// Lets the names of a file block that lead to a number on disk lead to another.
    ///
    /// # Errors
    /// A broken directory; the device's failure.
    pub(crate) fn lead_elsewhere(&mut self, at: FileBlock, from: InodeNumber, to: InodeNumber) -> Result<()> {
        if self.dir.flags().contains(InodeFlags::INLINE_DATA) {
            return self.lead_inline(from, to);
        }
        let reader = self.reader();
        let Some((bytes, layout)) = linear::list_block(&reader, at)? else { return Ok(()) };
        let offsets =
            spots(dirent::entries(&bytes, layout), from).map_err(|broken| reader.broken(at, broken))?;
        let (block, role) = (reader.block_at(at)?, self.role_of(at, &bytes));
        let bytes = self.tx.edit(block, role)?;
        offsets.into_iter().try_for_each(|offset| put(bytes, offset, to))
    }

    fn lead_inline(&mut self, from: InodeNumber, to: InodeNumber) -> Result<()> {
        let layout = Layout { checksums: false, ..self.layout };
        let (head, tail) = inline::parts(self.dir)?;
        let (mut head, mut tail) = (head.to_vec(), tail.to_vec());
        for part in [head.split_at_mut(PARENT_LEN).1, &mut tail] {
            let offsets = spots(dirent::entries_without_tail(part, layout), from);
            let offsets = offsets.map_err(|broken| self.reader().broken(FileBlock(0), broken))?;
            offsets.into_iter().try_for_each(|offset| put(part, offset, to))?;
        }
        inline::set_parts(self.dir, &head, &tail)
    }

    /// Lets `.` or `..` lead to a number on disk.
    ///
    /// # Errors
    /// A broken directory; the device's failure.
    pub(crate) fn set_dot(&mut self, name: &[u8], to: InodeNumber) -> Result<()> {
        if self.dir.flags().contains(InodeFlags::INLINE_DATA) {
            if name == b".." {
                put(&mut self.dir.raw_mut().i_block, 0, to)?;
            }
            return Ok(());
        }
        let (reader, at) = (self.reader(), FileBlock(0));
        if reader.len()? == 0 {
            return Ok(());
        }
        let problem =
            || Error::corrupt(Place::Directory(reader.dir.number()), "does not begin with `.` and `..`");
        let (bytes, layout) = linear::list_block(&reader, at)?.ok_or_else(problem)?;
        let found = dirent::find(&bytes, layout, name).map_err(|broken| reader.broken(at, broken))?;
        let offset = found.ok_or_else(problem)?.offset;
        let (block, role) = (reader.block_at(at)?, reader.first_role());
        put(self.tx.edit(block, role)?, offset, to)
    }

    /// Gives its blocks the checksums of another number. Nothing in them may be changed after it in the same update.
    ///
    /// # Errors
    /// A broken directory; the device's failure.
    pub(crate) fn reseal(&mut self, seed: InodeSeed) -> Result<()> {
        let is_inline = self.dir.flags().contains(InodeFlags::INLINE_DATA);
        if is_inline || !self.tx.format.sealer.covers_metadata() {
            return Ok(());
        }
        for at in (0..self.reader().len()?).map(FileBlock) {
            let block = self.reader().block_at(at)?;
            let bytes = self.tx.read(block, Role::Plain)?;
            let role = self.role_of(at, &bytes);
            self.tx.reseal(block, role, seed)?;
        }
        Ok(())
    }
}
