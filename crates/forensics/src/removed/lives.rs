//! Lives of inodes: from when a number was given to a file until the file was removed, by copies of inode tables.
//!
//! Owns: which records belong to one life, and its last record with a name. Excludes: what the record leads to.

use std::collections::{BTreeMap, BTreeSet};

use ondisk::features::Incompat;
use ondisk::inode::{FileType, Inode, TimeField, Timestamp};
use ondisk::units::{Block, Group, InodeNumber};
use platfs_device::{Error, Result};

use crate::history::{History, When};
use crate::raw_image::RawImage;

/// Most groups of a volume whose past is read: 128 TiB of them with blocks of 4 KiB.
const GROUPS_MAX: u32 = 1 << 20;

/// Identity of one use of an inode number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Use {
    generation: u32,
    created: Option<Timestamp>,
}

impl Use {
    pub(super) fn from_inode(inode: &Inode) -> Use {
        Use { generation: inode.generation(), created: inode.time(TimeField::Create) }
    }
}

/// A life that came to its end.
#[derive(Clone, Debug)]
pub(super) struct Life {
    /// The last record before the file was removed.
    pub(super) last: Inode,
    /// When that record was committed; 0 if it was on the volume before all that the journal holds.
    pub(super) seen: When,
    /// Nothing before this moment is of this life.
    pub(super) after: When,
    /// When the file was without a name; `None` if no transaction tells.
    pub(super) ended: Option<When>,
    /// It has no name, but all its blocks: a program had it open, and only a mount would take them away.
    pub(super) held: bool,
}

/// True if a file without a name still has its blocks. In place of the time of its removal stands the next such file.
pub(super) fn is_held(inode: &Inode, inodes: u32) -> bool {
    let is_waiting = inode.raw().i_dtime.get() <= inodes;
    inode.links() == 0 && inode.file_type().is_some() && inode.size() > 0 && is_waiting
}

/// Lives of all inodes of which the journal has copies.
#[derive(Default)]
pub(super) struct Lives {
    pub(super) ended: Vec<Life>,
    /// Records of directories at any time, with the moment.
    pub(super) directories: Vec<(When, Inode)>,
    /// When records appeared of files that are gone, and that never had a name in any transaction; with the last time at
    /// which one of them was removed, in seconds since 1970.
    pub(super) unseen: BTreeMap<When, u64>,
}

/// Where inode tables lie: first block, blocks, group.
pub(super) struct Tables(Vec<(u64, u64, Group)>);

impl Tables {
    pub(super) fn read(image: &RawImage) -> Result<Tables> {
        let geometry = image.geometry();
        if geometry.groups > GROUPS_MAX {
            let groups = geometry.groups;
            return Err(Error::Unsupported(format!("{groups} groups, of which the past is not searched")));
        }
        let count = u64::from(geometry.inode_table_blocks());
        let tables = (0..geometry.groups).map(Group).filter_map(|group| {
            let raw = image.descriptor(group).ok()?;
            Some((raw.inode_table().0, count, group))
        });
        let mut tables: Vec<_> = tables.collect();
        tables.sort_unstable();
        Ok(Tables(tables))
    }

    /// The number of the first inode in a block of a table.
    pub(super) fn first_in(&self, image: &RawImage, block: Block) -> Option<u32> {
        let at = self.0.partition_point(|(start, ..)| *start <= block.0).checked_sub(1)?;
        let (start, count, group) = *self.0.get(at)?;
        let inside = block.0.checked_sub(start).filter(|inside| *inside < count)?;
        let per_block = u64::from(image.geometry().inodes_per_block());
        let index = u32::try_from(inside.checked_mul(per_block)?).ok()?;
        Some(image.geometry().inode_at(group, index)?.get())
    }
}

fn is_named(inode: &Inode) -> bool {
    inode.links() > 0 && inode.file_type().is_some()
}

/// Goes through all copies of inode tables. `now` is the volume as it is after replay.
pub(super) fn collect(bare: &RawImage, now: &RawImage, tables: &Tables, history: &History) -> Result<Lives> {
    let mut lives = Lives::default();
    // Without copies that wait the volume has what is newest, and tells nothing of the past.
    let is_unclean = bare.features().incompat.contains(Incompat::RECOVER);
    let mut blocks: Vec<Block> =
        history.blocks().filter(|block| tables.first_in(now, *block).is_some()).collect();
    blocks.sort_unstable();
    for block in blocks {
        let Some(first) = tables.first_in(now, block) else { continue };
        // Before replay the volume may still have what was there before all copies.
        let before = is_unclean.then(|| bare.block(block)).transpose()?;
        let mut slots: BTreeMap<u32, Slot> = BTreeMap::new();
        let copies = history.copies(block).iter().map(|(when, copy)| (*when, Ok(copy)));
        for (when, source) in before.map(|bytes| (0, Err(bytes))).into_iter().chain(copies) {
            let bytes = match source {
                Ok(copy) => history.contents(copy)?,
                Err(bytes) => bytes,
            };
            let size = usize::from(now.geometry().inode_size);
            for (number, record) in (first..).zip(bytes.chunks_exact(size)) {
                let Some(number) = InodeNumber::new(number) else { continue };
                let inode = Inode::unjudged(number, record);
                if now.sealer().inode_is_right(&inode) || inode.mode() == 0 {
                    slots.entry(number.get()).or_default().take(when, inode, &mut lives);
                }
            }
        }
        for (number, slot) in slots {
            let Some(number) = InodeNumber::new(number) else { continue };
            slot.end(&now.inode(number)?, now.geometry().inodes(), &mut lives);
        }
    }
    Ok(lives)
}

/// State of one number, on the way through its records.
#[derive(Default)]
struct Slot {
    /// The life in progress: its last record, and when that was.
    open: Option<(When, Inode)>,
    /// No life before this moment is the one in progress.
    after: When,
    /// Lives that ended, to be handed over once it is clear that the file is gone.
    ended: Vec<Life>,
    /// Uses that had a name.
    named: BTreeSet<Use>,
    /// Uses without a name: when they were first seen, and the last time at which they were removed.
    nameless: BTreeMap<Use, (When, u64)>,
}

impl Slot {
    fn take(&mut self, when: When, inode: Inode, lives: &mut Lives) {
        let own = Use::from_inode(&inode);
        if !is_named(&inode) {
            self.close(Some(when));
            self.after = when;
            if inode.mode() != 0 && when > 0 {
                let (_, removed) = self.nameless.entry(own).or_insert((when, 0));
                *removed = u64::from(inode.raw().i_dtime.get());
            }
            return;
        }
        self.named.insert(own);
        if inode.file_type() == Some(FileType::Directory) {
            lives.directories.push((when, inode.clone()));
        }
        if self.open.as_ref().is_some_and(|(_, open)| Use::from_inode(open) != own) {
            self.close(Some(when));
            self.after = when;
        }
        self.open = Some((when, inode));
    }

    fn close(&mut self, ended: Option<When>) {
        if let Some((seen, last)) = self.open.take() {
            self.ended.push(Life { last, seen, after: self.after, ended, held: false });
        }
    }

    fn end(mut self, now: &Inode, inodes: u32, lives: &mut Lives) {
        self.close(None);
        let is = is_named(now).then(|| Use::from_inode(now));
        // A file that has a name again was not removed.
        let later: BTreeSet<Use> =
            self.ended.iter().filter(|life| life.seen > 0).map(|life| Use::from_inode(&life.last)).collect();
        // What stands on the volume may be newer than some of the copies.
        let is_new = |life: &Life| life.seen > 0 || !later.contains(&Use::from_inode(&life.last));
        let gone =
            self.ended.into_iter().filter(|life| is != Some(Use::from_inode(&life.last)) && is_new(life));
        lives.ended.extend(gone.map(|life| {
            match is_held(now, inodes) && Use::from_inode(now) == Use::from_inode(&life.last) {
                true => Life { last: now.clone(), held: true, ..life },
                false => life,
            }
        }));
        let unseen = self.nameless.iter().filter(|(one, _)| !self.named.contains(one) && is != Some(**one));
        for (_, (when, removed)) in unseen {
            let last = lives.unseen.entry(*when).or_default();
            *last = (*last).max(*removed);
        }
    }
}
