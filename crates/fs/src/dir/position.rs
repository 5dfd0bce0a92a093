//! Listing from a position on, without a memory of what was listed before.
//!
//! A position is the byte of the directory at which the next entry's record begins; of directories in
//! their inode it counts entries. Entries that are added or removed do not move others, so a position
//! stays right while a linear directory changes: if its record was joined to the one before, the
//! listing goes on behind it. Only the split of an indexed directory's block moves names, and a listing
//! that is under way may then show one of them twice or not at all.

use ondisk::dirent;
use ondisk::inode::InodeFlags;
use ondisk::units::FileBlock;

use super::{Dir, DirEntry, linear, listed};
use crate::error::Result;
use crate::inline;

impl Dir<'_> {
    /// The entries of the first block that has any from `position` on, each with the position behind it;
    /// none at the end. `.` and `..` are among them.
    ///
    /// # Errors
    /// A broken directory, once all entries before the damage were listed; the device's failure.
    pub(crate) fn entries_from(&self, position: u64) -> Result<Vec<(DirEntry, u64)>> {
        if self.dir.flags().contains(InodeFlags::INLINE_DATA) {
            let all = linear::inline_entries(self.format, self.dir, inline::parts(self.dir)?)?;
            let skipped = usize::try_from(position).unwrap_or(usize::MAX);
            return Ok(all.into_iter().zip(1..).skip(skipped).collect());
        }
        let log2 = self.format.geometry.block_size.log2();
        let count = self.count()?;
        let Ok(first) = u32::try_from(position >> log2) else { return Ok(Vec::new()) };
        for at in first..count {
            let block_start = u64::from(at) << log2;
            let batch = block_from(self, FileBlock(at), block_start, position)?;
            if !batch.is_empty() {
                return Ok(batch);
            }
        }
        Ok(Vec::new())
    }
}

fn block_from(reader: &Dir<'_>, at: FileBlock, start: u64, position: u64) -> Result<Vec<(DirEntry, u64)>> {
    let mut batch = Vec::new();
    let Some((bytes, layout)) = linear::list_block(reader, at)? else { return Ok(batch) };
    for entry in dirent::entries(&bytes, layout) {
        let entry = match entry {
            Ok(entry) => entry,
            // What was found comes first; a reader that goes on behind it meets the damage again.
            Err(_) if !batch.is_empty() => break,
            Err(broken) => return Err(reader.broken(at, broken)),
        };
        let offset = start + entry.offset as u64;
        if offset >= position {
            batch.extend(listed(layout, &entry).map(|found| (found, offset + entry.len as u64)));
        }
    }
    Ok(batch)
}
