//! Where each group's bitmaps and inode table lie.
//!
//! Groups are laid out in packs whose tables stand together: a flex group, all groups
//! (`packed_meta_blocks`), or each group for itself. A pack depends on nothing outside it, so any
//! pack can be computed alone; that keeps huge volumes cheap. The search order is mke2fs's, so that
//! the places are the same.

use ondisk::geometry::Geometry;
use ondisk::units::{Block, Group};

use super::runs::Runs;
use super::shape::invalid;
use crate::Result;

/// Places of one group's bitmaps and table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tables {
    /// Block of the block bitmap.
    pub block_bitmap: u64,
    /// Block of the inode bitmap.
    pub inode_bitmap: u64,
    /// First block of the inode table.
    pub inode_table: u64,
}

/// Some groups whose tables stand together, and what is used in them.
#[derive(Clone, Debug)]
pub struct Pack {
    /// Of each of its groups.
    pub tables: Vec<Tables>,
    /// Used blocks of the pack's groups; whole clusters.
    pub used: Runs,
}

/// How groups are gathered in packs.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Sizes of the volume.
    pub geometry: Geometry,
    /// All groups in one pack.
    pub packed: bool,
    /// Blocks per disk of a RAID, to spread the bitmaps of groups that stand alone.
    pub stride: u16,
}

impl Layout {
    fn groups_per_pack(&self) -> u32 {
        if self.packed { self.geometry.groups } else { self.geometry.groups_per_flex() }
    }

    /// Packs of the volume.
    #[must_use]
    pub fn packs(&self) -> u32 {
        self.geometry.groups.div_ceil(self.groups_per_pack())
    }

    /// The pack a group belongs to.
    #[must_use]
    pub fn pack_of(&self, group: Group) -> u32 {
        group.0 / self.groups_per_pack()
    }

    /// The groups of a pack.
    #[must_use]
    pub fn groups_of(&self, pack: u32) -> std::ops::Range<u32> {
        let first = pack.saturating_mul(self.groups_per_pack());
        first..first.saturating_add(self.groups_per_pack()).min(self.geometry.groups)
    }

    /// The blocks of a range of groups.
    #[must_use]
    pub fn span(&self, groups: &std::ops::Range<u32>) -> std::ops::Range<u64> {
        let start = self.geometry.group_start(Group(groups.start)).0;
        start..self.geometry.group_start(Group(groups.end)).0.min(self.geometry.blocks)
    }

    /// Lays a pack out.
    ///
    /// # Errors
    /// Tables that leave no room.
    pub fn pack(&self, pack: u32) -> Result<Pack> {
        self.pack_behind(pack, &[], Runs::default())
    }

    /// Lays out the groups of a pack that come behind those whose tables exist already, around what is `used`.
    ///
    /// # Errors
    /// Tables that leave no room.
    pub fn pack_behind(&self, pack: u32, kept: &[Tables], mut used: Runs) -> Result<Pack> {
        let groups = self.groups_of(pack);
        for group in groups.clone() {
            let header = self.geometry.group_header(Group(group));
            used.insert(header.start.0, header.start.0 + u64::from(header.count));
        }
        let mut search = Search { layout: self, span: self.span(&groups), groups, used };
        let tables = if self.packed {
            search.in_three_rows()?
        } else if self.geometry.flex_log2 > 0 {
            search.in_flex_group(kept)?
        } else {
            search.alone()?
        };
        Ok(Pack { tables, used: search.used.rounded_out(self.geometry.cluster_log2) })
    }
}

struct Search<'a> {
    layout: &'a Layout,
    groups: std::ops::Range<u32>,
    span: std::ops::Range<u64>,
    used: Runs,
}

impl Search<'_> {
    fn table_len(&self) -> u64 {
        u64::from(self.layout.geometry.inode_table_blocks())
    }

    fn take(&mut self, from: u64, len: u64) -> Result<u64> {
        let Some(found) = self.used.find_free(from, self.span.end, len) else {
            let group = self.groups.start;
            return invalid(format!("the tables of group {group} and its neighbours leave no room"));
        };
        self.used.insert(found, found + len);
        Ok(found)
    }

    /// One group by itself: bitmaps first (moved along by the stride), then the table.
    fn alone(&mut self) -> Result<Vec<Tables>> {
        let (start, last) = (self.span.start, self.span.end - 1);
        let mut from = start;
        let stride = u64::from(self.layout.stride);
        let shift = stride * u64::from(self.groups.start);
        if let (true, Some(free)) = (stride > 0, self.used.find_free(start, self.span.end, 1)) {
            let behind = free + self.table_len();
            from = behind + shift % last.saturating_sub(behind).saturating_add(1);
            if from >= last {
                from = start;
            }
        }
        let block_bitmap = self.take(from, 1).or_else(|_| self.take(start, 1))?;
        let inode_bitmap = self.take(from, 1).or_else(|_| self.take(start, 1))?;
        let inode_table = self.take(start, self.table_len())?;
        Ok(vec![Tables { block_bitmap, inode_bitmap, inode_table }])
    }

    /// Block bitmaps of all groups, inode bitmaps of all groups, tables of all groups.
    fn in_three_rows(&mut self) -> Result<Vec<Tables>> {
        let empty = Tables { block_bitmap: 0, inode_bitmap: 0, inode_table: 0 };
        let mut tables = vec![empty; self.groups.len()];
        let mut from = self.span.start;
        for entry in &mut tables {
            from = self.take(from, 1)?;
            entry.block_bitmap = from;
        }
        for entry in &mut tables {
            from = self.take(from, 1)?;
            entry.inode_bitmap = from;
        }
        for entry in &mut tables {
            from = self.take(from, self.table_len())?;
            entry.inode_table = from;
        }
        Ok(tables)
    }

    /// Group after group, each kind behind the last of its kind, with room left for the others.
    fn in_flex_group(&mut self, kept: &[Tables]) -> Result<Vec<Tables>> {
        let len = self.table_len();
        // mke2fs leaves room for as many bitmaps as there are groups, but a whole flex group's for one.
        let room = match self.groups.len() as u64 {
            1 => u64::from(self.layout.geometry.groups_per_flex()),
            groups => groups,
        };
        let mut tables = kept.to_vec();
        for group in self.groups.clone().skip(kept.len()) {
            let rest = u64::from(self.groups.end - group);
            let last = tables.last().copied();
            let block_bitmap = self.take_row(last.map(|t| t.block_bitmap + 1), rest, 1)?;
            let goal = last.map_or(block_bitmap + room, |t| t.inode_bitmap + 1);
            let inode_bitmap = self.take_row(Some(goal), rest, 1)?;
            let goal = last.map_or(inode_bitmap + room, |t| t.inode_table + len);
            let inode_table = self.take_row(Some(goal), rest, len)?;
            tables.push(Tables { block_bitmap, inode_bitmap, inode_table });
        }
        Ok(tables)
    }

    /// Takes `len` blocks at `goal`; where they are not free, at the first place with room for the
    /// `rest` groups that follow too (within limits), or else for this one.
    fn take_row(&mut self, goal: Option<u64>, rest: u64, len: u64) -> Result<u64> {
        if let Some(goal) = goal
            && self.used.find_free(goal, self.span.end, len) == Some(goal)
        {
            return self.take(goal, len);
        }
        let room = (rest * len).min(u64::from(self.layout.geometry.blocks_per_group / 4));
        let from = self.used.find_free(self.span.start, self.span.end, room).unwrap_or(self.span.start);
        self.take(from, len)
    }
}

/// The groups that hold a superblock, rising.
#[must_use]
pub fn superblock_groups(geometry: &Geometry) -> Vec<u32> {
    use ondisk::geometry::BackupRule;
    let groups = geometry.groups;
    let mut held: Vec<u32> = match geometry.backups {
        BackupRule::Every => return (0..groups).collect(),
        BackupRule::Stated(stated) => stated.into_iter().chain([0]).collect(),
        BackupRule::Powers => {
            let powers = |base: u32| std::iter::successors(Some(base), move |power| power.checked_mul(base));
            [3, 5, 7].into_iter().flat_map(powers).chain([0, 1]).collect()
        }
    };
    held.retain(|group| *group < groups);
    held.sort_unstable();
    held.dedup();
    held
}

/// Blocks that superblocks and descriptors take in all groups together.
pub(super) fn header_blocks(geometry: &Geometry) -> u64 {
    let held_in = |group: Group| u64::from(geometry.meta_descriptor_held_by(group).is_some());
    let with_superblock: u64 = superblock_groups(geometry)
        .into_iter()
        .map(|group| u64::from(geometry.group_header(Group(group)).count) - held_in(Group(group)))
        .sum();
    let per_meta = geometry.descriptors_per_block();
    let in_meta_groups: u64 = (0..geometry.descriptor_blocks())
        .filter(|_| geometry.first_meta_bg.is_some())
        .map(|index| {
            let first = index * per_meta;
            let members = [0, 1, per_meta - 1].map(|position| first.saturating_add(position));
            members
                .into_iter()
                .filter(|group| *group < geometry.groups)
                .map(|group| held_in(Group(group)))
                .sum::<u64>()
        })
        .sum();
    with_superblock + in_meta_groups
}

/// First block that a file of an inode of `group` may take: where its flex group begins.
pub(super) fn inode_goal(geometry: &Geometry, group: Group) -> Block {
    geometry.group_start(Group(group.0 >> geometry.flex_log2 << geometry.flex_log2))
}
