//! Groups whose bitmaps can't be believed: they are out of service, and the rest of the volume is used.
//!
//! A bitmap is looked at once, when it is read first: a structure of the volume that it calls free would be given to a
//! file (I36). What is found is kept for reports; nothing in such a group is allocated or freed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use ondisk::corrupt::{Corrupt, Place};
use ondisk::group::GroupFlags;
use ondisk::inode::Inode;
use ondisk::units::{Block, ClusterRun, Group, InodeNumber};

use super::{Space, Writing, groups};
use crate::bytes;
use crate::cache::{Blocks, Role};
use crate::error::{Error, Result};
use crate::locks::lock;

/// Damage that was met, by group.
#[derive(Default)]
pub(super) struct Damage {
    blocks: Mutex<BTreeMap<u32, Corrupt>>,
    inodes: Mutex<BTreeMap<u32, Corrupt>>,
    /// Some was met since the last question.
    is_news: AtomicBool,
    /// There is some. Asked after each change, so it takes no lock.
    is_any: AtomicBool,
}

impl Damage {
    /// Notes why a group is out of service; the complaint comes back.
    fn note(&self, wrong: &Corrupt) {
        let (list, group) = match wrong.place() {
            Place::BlockBitmap(group) => (&self.blocks, group),
            Place::InodeBitmap(group) => (&self.inodes, group),
            _ => return,
        };
        lock(list).entry(group.0).or_insert_with(|| wrong.clone());
        self.is_any.store(true, Ordering::Release);
        self.is_news.store(true, Ordering::Release);
    }
}

/// The first bit of a range that is clear.
fn first_clear(bitmap: &[u8], bits: Range<u64>) -> Option<u64> {
    let mut bit = bits.start;
    while bit < bits.end {
        // What a bitmap does not have it does not call used.
        let byte = usize::try_from(bit / 8).ok().and_then(|at| bitmap.get(at)).copied().unwrap_or(0);
        if bit.is_multiple_of(8) && byte == 0xFF {
            bit += 8;
        } else if byte >> (bit % 8) & 1 == 0 {
            return Some(bit);
        } else {
            bit += 1;
        }
    }
    None
}

impl Writing {
    /// Finds blocks of the volume's own structures that a block bitmap calls free; its counts are judged elsewhere.
    fn blocks_wrong(&self, group: Group, bitmap: &[u8]) -> Option<String> {
        let geometry = &self.format.geometry;
        let (start, _) = groups::group_span(geometry, group);
        self.format.zone.clusters_in(geometry, group).into_iter().find_map(|run| {
            let clear = first_clear(bitmap, run.start.0 - start..run.end() - start)?;
            let block = geometry.cluster_start(ondisk::units::Cluster(start + clear));
            Some(format!("says that block {block} is free, which the volume's own structures take"))
        })
    }

    /// Finds wrong bits of an inode bitmap: it calls free an inode that the volume keeps for itself, or in use one of
    /// a part of the table that was never used.
    fn inodes_wrong(&self, group: Group, bitmap: &[u8], used: u32) -> Option<String> {
        let geometry = &self.format.geometry;
        let reserved = (1..geometry.first_inode).filter_map(InodeNumber::new);
        let own = reserved.take_while(|_| group.0 == 0).chain(self.format.zone.files());
        for number in own {
            if let Some((_, index)) = geometry.locate_inode(number).filter(|(of, _)| *of == group)
                && first_clear(bitmap, u64::from(index)..u64::from(index) + 1).is_some()
            {
                return Some(format!("says that inode {number} is free, which the volume keeps for itself"));
            }
        }
        let last = groups::last_used(bitmap, geometry.inodes_per_group);
        (last > used).then(|| {
            format!(
                "says that {last} inodes of the table are reached, the descriptor that {used} were ever used"
            )
        })
    }
}

impl Space {
    /// Damage that keeps groups out of service.
    #[must_use]
    pub fn damage(&self) -> Vec<Corrupt> {
        let is_any = |writing: &&Writing| writing.damage.is_any.load(Ordering::Acquire);
        let Some(writing) = self.writing.as_ref().filter(is_any) else { return Vec::new() };
        let of = |list: &Mutex<BTreeMap<u32, Corrupt>>| lock(list).values().cloned().collect::<Vec<_>>();
        [of(&writing.damage.blocks), of(&writing.damage.inodes)].concat()
    }

    /// True if damage was met since the last call.
    pub(crate) fn has_news_of_damage(&self) -> bool {
        let is_news = |writing: &Writing| {
            let news = &writing.damage.is_news;
            news.load(Ordering::Acquire) && news.swap(false, Ordering::AcqRel)
        };
        self.writing.as_ref().is_some_and(is_news)
    }

    /// Why the blocks of a group can't be believed, if so.
    pub(super) fn refuse_damaged(&self, writing: &Writing, group: Group) -> Result<()> {
        lock(&writing.damage.blocks).get(&group.0).map_or(Ok(()), |wrong| Err(wrong.clone().into()))
    }

    /// Why no inode is to be had: damage, where there is any.
    pub(super) fn lack_of_inodes(&self, writing: &Writing) -> Error {
        let list = lock(&writing.damage.inodes);
        list.values().next().map_or(Error::NoInodes, |wrong| wrong.clone().into())
    }

    /// Takes the blocks of a group out of service.
    pub(super) fn retire_blocks(&self, writing: &Writing, group: Group, problem: String) -> Error {
        let problem = format!("{problem}: nothing in the group is used; check the volume");
        let wrong = Corrupt::new(Place::BlockBitmap(group), problem);
        writing.blocks.retire_group(group);
        writing.damage.note(&wrong);
        wrong.into()
    }

    /// Takes the inodes of a group out of service.
    pub(super) fn retire_inodes(&self, writing: &Writing, group: Group, problem: String) -> Error {
        let problem = format!("{problem}: no inode of the group is given away; check the volume");
        let wrong = Corrupt::new(Place::InodeBitmap(group), problem);
        writing.inodes.retire_group(group);
        writing.damage.note(&wrong);
        wrong.into()
    }

    /// Gives the engine the block bitmap of a group.
    ///
    /// # Errors
    /// One that can't be believed: the group is out of service then. The device's failure.
    pub(super) fn load_block_bitmap(
        &self,
        writing: &Writing,
        blocks: &dyn Blocks,
        group: Group,
    ) -> Result<()> {
        self.refuse_damaged(writing, group)?;
        let read = self.descriptors().block_bitmap(blocks, group);
        let bitmap = match read {
            Err(Error::Corrupt(wrong)) => {
                return Err(self.retire_blocks(writing, group, wrong.problem().to_owned()));
            }
            read => read?,
        };
        if let Some(problem) = writing.blocks_wrong(group, &bitmap) {
            return Err(self.retire_blocks(writing, group, problem));
        }
        let loaded = writing.blocks.load_group(group, &bitmap);
        loaded.map_err(|what| self.retire_blocks(writing, group, what.to_string()))
    }

    /// Gives the engine the inode bitmap of a group.
    ///
    /// # Errors
    /// As [`Space::load_block_bitmap`].
    pub(super) fn load_inode_bitmap(
        &self,
        writing: &Writing,
        blocks: &dyn Blocks,
        group: Group,
    ) -> Result<()> {
        if let Some(wrong) = lock(&writing.damage.inodes).get(&group.0) {
            return Err(wrong.clone().into());
        }
        let (read, used) = {
            let descriptors = self.descriptors();
            let read = descriptors.inode_bitmap(blocks, group);
            (read, descriptors.used_inodes(&descriptors.get(group)?))
        };
        let bitmap = match read {
            Err(Error::Corrupt(wrong)) => {
                return Err(self.retire_inodes(writing, group, wrong.problem().to_owned()));
            }
            read => read?,
        };
        let used = used.max(lock(&writing.pending).reached(group));
        if let Some(problem) = writing.inodes_wrong(group, &bitmap, used) {
            return Err(self.retire_inodes(writing, group, problem));
        }
        let loaded = writing.inodes.load_group(group, &bitmap);
        loaded.map_err(|what| self.retire_inodes(writing, group, what.to_string()))
    }

    /// Refuses clusters that the engine gave away if they are the volume's own: the descriptor of a group without a
    /// bitmap may lie too.
    pub(super) fn refuse_own(&self, writing: &Writing, run: ClusterRun) -> Result<()> {
        let geometry = &writing.format.geometry;
        if !writing.format.zone.touches(geometry, run) {
            return Ok(());
        }
        let mut wrong = Ok(());
        for group in groups::groups_in(geometry, run) {
            let problem = "calls free what the volume's own structures take".to_owned();
            wrong = Err(self.retire_blocks(writing, group, problem));
        }
        wrong
    }

    /// Refuses an inode that its bitmap calls free if its record says that it has names.
    pub(super) fn refuse_in_use(
        &self,
        writing: &Writing,
        blocks: &dyn Blocks,
        number: InodeNumber,
    ) -> Result<()> {
        let format = &writing.format;
        let (block, offset) = self.place_on_disk(number)?;
        let table = blocks.read(block, Role::Plain)?;
        let size = usize::from(format.geometry.inode_size);
        let bytes = bytes::part(&table, offset..offset + size)?;
        let Ok(record) = Inode::parse(number, bytes) else { return Ok(()) };
        let group = Group(number.index() / format.geometry.inodes_per_group);
        if record.links() == 0 {
            return Ok(());
        }
        let links = record.links();
        let problem = format!("says that inode {number} is free, which has {links} names by its record");
        Err(self.retire_inodes(writing, group, problem))
    }

    /// Refuses a block of an inode table that the descriptor calls never used if a record in it says that its inode has
    /// names: the descriptor lies, and clearing the block would take the file away. A table that was not cleared
    /// since the volume was made may hold records of an older volume; there only a right checksum, which depends on
    /// the volume's UUID, makes a record count.
    pub(super) fn refuse_records(
        &self,
        writing: &Writing,
        blocks: &dyn Blocks,
        group: Group,
        at: u32,
    ) -> Result<()> {
        let format = &writing.format;
        let raw = self.descriptors().get(group)?;
        let was_cleared = raw.flags().contains(GroupFlags::INODE_ZEROED);
        if !was_cleared && !format.sealer.covers_metadata() {
            return Ok(());
        }
        let table = blocks.read(Block(raw.inode_table().0 + u64::from(at)), Role::Plain)?;
        let geometry = &format.geometry;
        let first = at.saturating_mul(geometry.inodes_per_block());
        for (index, bytes) in (first..).zip(table.chunks_exact(usize::from(geometry.inode_size))) {
            let Some(number) = geometry.inode_at(group, index) else { break };
            let Ok(record) = Inode::parse(number, bytes) else { continue };
            if record.links() > 0 && (was_cleared || format.sealer.inode_is_right(&record)) {
                let links = record.links();
                let problem =
                    format!("counts inode {number} as never used, which has {links} names by its record");
                return Err(self.retire_inodes(writing, group, problem));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::first_clear;

    #[test]
    fn the_first_clear_bit_of_a_range_is_found() {
        let mut bitmap = [0xFF; 8];
        assert_eq!(first_clear(&bitmap, 0..64), None);
        assert_eq!(first_clear(&bitmap, 60..65), Some(64));
        bitmap[3] = 0b1110_1111;
        assert_eq!(first_clear(&bitmap, 0..64), Some(28));
        assert_eq!(first_clear(&bitmap, 28..29), Some(28));
        assert_eq!(first_clear(&bitmap, 29..64), None);
        assert_eq!(first_clear(&bitmap, 5..28), None);
    }
}
