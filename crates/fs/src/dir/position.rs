//! Listing from a position on, without a memory of what was listed before.
//!
//! Where a volume has indexes, a position is the hash of a name, as in the kernel's driver: a name keeps its place
//! while blocks are split, joined and moved, and when a directory of one block gets an index. Names are listed in the
//! order of their hashes, which is also that of the leaves. Long directories without an index, and those whose index is
//! damaged, are listed in the order in which they are stored: a position is then the byte at which an entry's record
//! begins, behind [`STORED`]; of directories in their inode it counts entries. Entries that are added or removed do not
//! move others there.
//!
//! A position of hashes, from the top: 31 bits by which the index is ordered, 24 that the name has beside, and 8 that
//! count the names which agree in those. More than 256 of such names may be listed in part.

use ondisk::dirent;
use ondisk::dirhash::HashVersion;
use ondisk::features::Compat;
use ondisk::inode::InodeFlags;
use ondisk::units::{FileBlock, saturated};

use super::picks::{self, HashRange, Picks};
use super::{Dir, DirEntry, htree, linear, listed};
use crate::error::{Error, Result};

/// Positions in the order in which entries are stored begin here, where a volume has hashes too.
const STORED: u64 = (0x7FFF_FFFF << 32) | 16;
/// Behind all names in the order of their hashes.
const END: u64 = STORED - 1;

/// In which order the names of one batch come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sequence {
    /// By position: the listing may go on behind any of them.
    Positions,
    /// As they are stored: the listing goes on behind all of them.
    Stored,
}

/// Some names, and where the listing goes on behind them.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Each with the position behind it; none at the end.
    pub(crate) entries: Vec<(DirEntry, u64)>,
    /// The position behind all of them.
    pub(crate) next: u64,
}

impl Dir<'_> {
    /// The next entries from `position` on: those of a block or of a few; none at the end. `.` and `..` are among
    /// them.
    ///
    /// # Errors
    /// A broken directory, once all entries before the damage were listed; the device's failure.
    pub(crate) fn batch(&self, position: u64, sequence: Sequence) -> Result<Batch> {
        let mut batch = self.found(position, sequence)?;
        self.show(batch.entries.iter_mut().map(|(entry, _)| entry))?;
        Ok(batch)
    }

    /// As [`Dir::batch`], with the names as they are stored.
    fn found(&self, position: u64, sequence: Sequence) -> Result<Batch> {
        let Some(version) = self.hashes() else { return self.as_stored(position, 0) };
        if let Some(place) = position.checked_sub(STORED) {
            return self.as_stored(place, STORED);
        }
        if position == 0 && !self.lists_by_hash()? {
            return self.as_stored(0, STORED);
        }
        if self.is_indexed() && !self.is_inline() {
            return self.by_index(position, sequence);
        }
        self.by_hash(Picks::new(htree::hasher(self.format, version), position), sequence)
    }

    /// The hash by which the names are in order, where the volume has indexes and the names' own bytes are hashed.
    pub(super) fn hashes(&self) -> Option<HashVersion> {
        let known = self.format.features.compat.contains(Compat::DIR_INDEX)
            && !self.dir.flags().contains(InodeFlags::CASEFOLD);
        HashVersion::from_raw(self.format.hash_version).filter(|_| known)
    }

    fn is_inline(&self) -> bool {
        self.dir.flags().contains(InodeFlags::INLINE_DATA)
    }

    /// True if a listing that begins here is one by hash. A directory of one block may get an index meanwhile.
    fn lists_by_hash(&self) -> Result<bool> {
        if self.is_inline() {
            return Ok(true);
        }
        if self.is_indexed() { htree::is_sound(self) } else { Ok(self.count()? <= 1) }
    }

    /// Leaf by leaf in the order of the index.
    fn by_index(&self, position: u64, sequence: Sequence) -> Result<Batch> {
        let root = htree::root(self)?;
        let mut picks = Picks::new(htree::hasher(self.format, root.version), position);
        if picks.wants_dots() {
            self.pick(&mut picks, FileBlock(0), HashRange::ALL)?;
        }
        if position >= END {
            return Ok(Batch::default());
        }
        let mut hash = picks::hash_at(position);
        let mut left = self.count()?;
        loop {
            let stretch = htree::stretch(self, hash)?;
            for leaf in &stretch.leaves {
                left = left.checked_sub(1).ok_or_else(|| self.broken(*leaf, "its index has no end"))?;
                if let Err(error) = self.pick(&mut picks, *leaf, stretch.reach) {
                    return self.before_damage(picks, sequence, error);
                }
            }
            let next = stretch.reach.end.map_or(END, picks::first_of);
            let batch = picks.take_batch(next, sequence);
            if !batch.entries.is_empty() {
                return Ok(batch);
            }
            hash = match stretch.reach.end {
                None => return Ok(Batch::default()),
                Some(end) if end > hash => end,
                Some(_) => return Err(self.broken(FileBlock(0), "the hashes of its index are not in order")),
            };
        }
    }

    /// All blocks, whatever is in them, in the order of hashes.
    fn by_hash(&self, mut picks: Picks, sequence: Sequence) -> Result<Batch> {
        if self.is_inline() {
            for entry in linear::entries_inside(self.format, self.dir)? {
                picks.add(&entry.name, HashRange::ALL, || entry.clone());
            }
            return Ok(picks.take_batch(END, sequence));
        }
        for at in (0..self.count()?).map(FileBlock) {
            if let Err(error) = self.pick(&mut picks, at, HashRange::ALL) {
                return self.before_damage(picks, sequence, error);
            }
        }
        Ok(picks.take_batch(END, sequence))
    }

    /// Entries found before some damage, or the damage if there are none.
    fn before_damage(&self, mut picks: Picks, sequence: Sequence, error: Error) -> Result<Batch> {
        picks.stop_here();
        let batch = picks.take_batch(END, sequence);
        if batch.entries.is_empty() { Err(error) } else { Ok(batch) }
    }

    /// The names of a block.
    fn pick(&self, picks: &mut Picks, at: FileBlock, reach: HashRange) -> Result<()> {
        let Some((bytes, layout)) = linear::list_block(self, at)? else { return Ok(()) };
        for entry in dirent::entries(&bytes, layout) {
            let entry = entry.map_err(|broken| self.broken(at, broken))?;
            if let Some(inode) = entry.inode {
                let inode = self.format.logical_number(inode);
                let found =
                    || DirEntry { name: entry.name.to_vec(), inode, file_type: entry.file_type(layout) };
                picks.add(entry.name, reach, found);
            }
        }
        picks.keep_least();
        Ok(())
    }

    /// The entries of the first block that has any from a place on, in the order in which they are stored.
    fn as_stored(&self, place: u64, base: u64) -> Result<Batch> {
        if self.is_inline() {
            let all = linear::entries_inside(self.format, self.dir)?;
            let skipped = saturated::<usize>(place);
            return Ok(Batch::new(all.into_iter().zip(base + 1..).skip(skipped).collect()));
        }
        let log2 = self.format.geometry.block_size.log2();
        let count = self.count()?;
        let Ok(first) = u32::try_from(place >> log2) else { return Ok(Batch::default()) };
        for at in (first..count).map(FileBlock) {
            let start = u64::from(at.0) << log2;
            if base.checked_add(start + (1 << log2)).is_none_or(|end| end > i64::MAX.cast_unsigned()) {
                return Err(self.broken(at, "a list of names can't be read so far; check the volume"));
            }
            let entries = block_from(self, at, start, base, place)?;
            if !entries.is_empty() {
                return Ok(Batch::new(entries));
            }
        }
        Ok(Batch::default())
    }
}

impl Batch {
    fn new(entries: Vec<(DirEntry, u64)>) -> Self {
        Batch { next: entries.last().map_or(0, |(_, next)| *next), entries }
    }
}

fn block_from(
    reader: &Dir<'_>,
    at: FileBlock,
    start: u64,
    base: u64,
    place: u64,
) -> Result<Vec<(DirEntry, u64)>> {
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
        if offset >= place {
            batch.extend(
                listed(reader.format, layout, &entry).map(|found| (found, base + offset + entry.len as u64)),
            );
        }
    }
    Ok(batch)
}
