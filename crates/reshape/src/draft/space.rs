//! Taking and giving back blocks and inodes: bitmaps, their checksums, and the counts that follow.

use ondisk::geometry::Geometry;
use ondisk::group::{GroupFlags, RawGroupDescriptor};
use ondisk::invariant_or;
use ondisk::units::{Block, Group, InodeNumber, low_u32};

use super::Draft;
use crate::Result;
use crate::error::refused;

/// Most free runs that are remembered in the search for some; more would be too many for any map.
const RUNS_MAX: usize = 1 << 17;

fn bit(bytes: &[u8], at: u32) -> bool {
    bytes.get((at / 8) as usize).is_none_or(|byte| byte >> (at % 8) & 1 == 1)
}

fn set(bytes: &mut [u8], at: u32, on: bool) {
    let byte = invariant_or!(bytes.get_mut((at / 8) as usize), return, "a group's clusters have bits");
    *byte = *byte & !(1 << (at % 8)) | u8::from(on) << (at % 8);
}

/// A bitmap with `count` bits that are clear, and all behind them set.
fn padded(len: usize, count: u32) -> Vec<u8> {
    let mut bytes = vec![0xFF; len];
    bytes.iter_mut().take((count / 8) as usize).for_each(|byte| *byte = 0);
    for at in count / 8 * 8..count {
        set(&mut bytes, at, false);
    }
    bytes
}

impl Draft {
    /// A group's descriptor.
    #[must_use]
    pub fn descriptor(&self, group: Group) -> RawGroupDescriptor {
        self.table.get(group)
    }

    /// Edits a group's descriptor.
    pub fn edit_descriptor(&mut self, group: Group, edit: impl FnOnce(&mut RawGroupDescriptor)) {
        self.table.edit(group, edit);
    }

    fn has_flag(&self, group: Group, flag: GroupFlags) -> bool {
        self.features().descriptor_csum() && self.table.get(group).flags().contains(flag)
    }

    /// The block bitmap of a group; of one that was not begun, as Linux begins it.
    ///
    /// # Errors
    /// The device's failure.
    pub fn block_bitmap(&self, group: Group) -> Result<Vec<u8>> {
        let raw = self.table.get(group);
        if !self.has_flag(group, GroupFlags::BLOCK_UNINIT) {
            return self.block(raw.block_bitmap());
        }
        let geometry = &self.geometry;
        let mut bytes = padded(geometry.block_size.bytes_usize(), geometry.group_clusters(group));
        let header = geometry.group_header(group);
        let table = u64::from(geometry.inode_table_blocks());
        let parts = [
            (header.start, u64::from(header.count)),
            (raw.block_bitmap(), 1),
            (raw.inode_bitmap(), 1),
            (raw.inode_table(), table),
        ];
        for (start, count) in parts {
            for at in (start.0..start.0.saturating_add(count)).map(Block) {
                if geometry.group_of_block(at) == Some(group) {
                    set(&mut bytes, cluster_in(geometry, group, at), true);
                }
            }
        }
        Ok(bytes)
    }

    /// Stages the block bitmap of a group; flags, checksum and counts follow.
    ///
    /// # Errors
    /// More changes than the memory may hold.
    pub fn put_block_bitmap(&mut self, group: Group, bytes: &[u8]) -> Result<()> {
        let clusters = self.geometry.group_clusters(group);
        let free = (0..clusters).filter(|at| !bit(bytes, *at)).count();
        let free = low_u32(free as u64);
        let sum = self.sealer.bitmap_checksum(bytes, self.geometry.clusters_per_group());
        self.put_block(self.table.get(group).block_bitmap(), bytes)?;
        let before = self.table.get(group).free_clusters();
        let ratio = u64::from(self.geometry.blocks_per_cluster());
        let blocks = self.raw.free_blocks_count() + u64::from(free) * ratio;
        self.raw.set_free_blocks_count(blocks.saturating_sub(u64::from(before) * ratio));
        self.table.edit(group, |raw| {
            raw.set_flags(raw.flags() - GroupFlags::BLOCK_UNINIT);
            raw.set_free_clusters(free);
            if let Some(sum) = sum {
                raw.set_block_bitmap_checksum(sum);
            }
        });
        Ok(())
    }

    /// Gives back runs of blocks. Clusters that others use a part of must not be among them.
    ///
    /// # Errors
    /// A block that is free already, or lies outside; more changes than the memory may hold.
    pub fn release(&mut self, runs: &[(Block, u64)]) -> Result<()> {
        self.mark(runs, false)?;
        self.released.extend(runs);
        Ok(())
    }

    /// Takes runs of blocks that are free.
    ///
    /// # Errors
    /// A block that is taken already, or lies outside; more changes than the memory may hold.
    pub fn claim(&mut self, runs: &[(Block, u64)]) -> Result<()> {
        self.mark(runs, true)
    }

    fn mark(&mut self, runs: &[(Block, u64)], on: bool) -> Result<()> {
        let mut clusters: Vec<(u64, u64)> = Vec::new();
        for (start, count) in runs.iter().filter(|(_, count)| *count > 0) {
            if !self.geometry.contains(*start, *count) {
                return refused(format!("blocks {start}+{count} lie outside the volume"));
            }
            let last = self.geometry.cluster_of(Block(start.0 + count - 1)).0;
            clusters.push((self.geometry.cluster_of(*start).0, last + 1));
        }
        clusters.sort_unstable();
        let per_group = u64::from(self.geometry.clusters_per_group());
        // Neighbouring runs may share a cluster.
        let mut done = 0;
        for group in groups_of(&clusters, per_group) {
            let mut bytes = self.block_bitmap(group)?;
            let base = u64::from(group.0) * per_group;
            let first = clusters.partition_point(|(_, end)| *end <= base);
            for (start, end) in clusters.iter().skip(first).take_while(|(start, _)| *start < base + per_group)
            {
                for at in (*start).max(base).max(done)..(*end).min(base + per_group) {
                    let index = low_u32(at - base);
                    if bit(&bytes, index) == on {
                        let block = self.geometry.cluster_start(ondisk::units::Cluster(at));
                        let state = if on { "taken" } else { "free" };
                        return refused(format!("block {block} is {state} already"));
                    }
                    set(&mut bytes, index, on);
                    done = at + 1;
                }
            }
            self.put_block_bitmap(group, &bytes)?;
        }
        Ok(())
    }

    /// Finds and takes free blocks: one run if there is one, else few, the nearest behind `goal` first. Whole clusters.
    ///
    /// # Errors
    /// Too few free blocks; the device's failure.
    pub fn take(&mut self, goal: Block, count: u64) -> Result<Vec<(Block, u64)>> {
        let ratio = u64::from(self.geometry.blocks_per_cluster());
        if self.raw.free_blocks_count() < count.next_multiple_of(ratio) {
            let free = self.raw.free_blocks_count();
            return refused(format!("{count} blocks are needed, but only {free} are free"));
        }
        let wanted = count.div_ceil(ratio);
        let goal = self.geometry.group_of_block(goal).unwrap_or(Group(0));
        let mut found: Vec<(u64, u64)> = Vec::new();
        for group in (goal.0..self.geometry.groups).chain(0..goal.0).map(Group) {
            if self.table.get(group).free_clusters() == 0 {
                continue;
            }
            self.free_runs(group, &mut found)?;
            if let Some((start, _)) = found.iter().find(|(_, len)| *len >= wanted) {
                found = vec![(*start, wanted)];
                break;
            }
            if found.len() > RUNS_MAX {
                found.sort_unstable_by_key(|(start, len)| (std::cmp::Reverse(*len), *start));
                found.truncate(RUNS_MAX / 2);
            }
        }
        // Without one that is long enough: the longest.
        found.sort_unstable_by_key(|(start, len)| (std::cmp::Reverse(*len), *start));
        let mut left = wanted;
        let mut runs = Vec::new();
        for (start, len) in found {
            let len = len.min(left);
            if len > 0 {
                runs.push((self.geometry.cluster_start(ondisk::units::Cluster(start)), len * ratio));
            }
            left -= len;
        }
        if left > 0 {
            return refused(format!("{count} blocks are needed, and fewer are free"));
        }
        runs.sort_unstable();
        self.claim(&runs)?;
        Ok(runs)
    }

    /// Finds and takes one run of free blocks in a group, or if `anywhere` else in one of the others; `None` if there is
    /// none that long.
    ///
    /// # Errors
    /// The device's failure; more changes than the memory may hold.
    pub fn take_run(&mut self, group: Group, count: u64, anywhere: bool) -> Result<Option<Block>> {
        let ratio = u64::from(self.geometry.blocks_per_cluster());
        let others = if anywhere { self.geometry.groups } else { group.0 + 1 };
        for group in (group.0..others).chain(0..if anywhere { group.0 } else { 0 }).map(Group) {
            if u64::from(self.table.get(group).free_clusters()) * ratio < count {
                continue;
            }
            let mut found = Vec::new();
            self.free_runs(group, &mut found)?;
            if let Some((start, _)) = found.iter().find(|(_, len)| len * ratio >= count) {
                let start = self.geometry.cluster_start(ondisk::units::Cluster(*start));
                self.claim(&[(start, count)])?;
                return Ok(Some(start));
            }
        }
        Ok(None)
    }

    /// Adds the free runs of a group, in clusters; one that continues the last joins it.
    fn free_runs(&self, group: Group, found: &mut Vec<(u64, u64)>) -> Result<()> {
        let bytes = self.block_bitmap(group)?;
        let base = u64::from(group.0) * u64::from(self.geometry.clusters_per_group());
        for at in (0..self.geometry.group_clusters(group)).filter(|at| !bit(&bytes, *at)) {
            let at = base + u64::from(at);
            match found.last_mut() {
                Some((start, len)) if *start + *len == at => *len += 1,
                _ => found.push((at, 1)),
            }
        }
        Ok(())
    }

    /// The inode bitmap of a group; of one that was not begun, an empty one.
    ///
    /// # Errors
    /// The device's failure.
    pub fn inode_bitmap(&self, group: Group) -> Result<Vec<u8>> {
        if self.has_flag(group, GroupFlags::INODE_UNINIT) {
            return Ok(padded(self.geometry.block_size.bytes_usize(), self.geometry.inodes_per_group));
        }
        self.block(self.table.get(group).inode_bitmap())
    }

    /// Stages the inode bitmap of a group; flags, checksum and counts follow. Inodes behind those that were used before
    /// must be zeroed by the caller.
    ///
    /// # Errors
    /// More changes than the memory may hold.
    pub fn put_inode_bitmap(&mut self, group: Group, bytes: &[u8]) -> Result<()> {
        let count = self.geometry.inodes_per_group;
        let free = low_u32((0..count).filter(|at| !bit(bytes, *at)).count() as u64);
        let used_end = (0..count).rev().find(|at| bit(bytes, *at)).map_or(0, |at| at + 1);
        let sum = self.sealer.bitmap_checksum(bytes, count);
        self.put_block(self.table.get(group).inode_bitmap(), bytes)?;
        let before = self.table.get(group).free_inodes();
        let all = self.raw.s_free_inodes_count.get() + free;
        self.raw.s_free_inodes_count.set(all.saturating_sub(before));
        self.table.edit(group, |raw| {
            let tail = count - used_end;
            raw.set_unused_inodes(raw.unused_inodes().min(tail));
            raw.set_flags(raw.flags() - GroupFlags::INODE_UNINIT);
            raw.set_free_inodes(free);
            if let Some(sum) = sum {
                raw.set_inode_bitmap_checksum(sum);
            }
        });
        Ok(())
    }

    /// Takes the first free inode that is not reserved; its record is zeros.
    ///
    /// # Errors
    /// None is free; the device's failure.
    pub fn take_inode(&mut self) -> Result<InodeNumber> {
        for group in (0..self.geometry.groups).map(Group) {
            if self.table.get(group).free_inodes() == 0 {
                continue;
            }
            let fresh = self.has_flag(group, GroupFlags::INODE_UNINIT);
            let mut bytes = self.inode_bitmap(group)?;
            let number = |at: u32| self.geometry.inode_at(group, at);
            let found = (0..self.geometry.inodes_per_group).find_map(|at| {
                let number = number(at).filter(|number| number.get() >= self.geometry.first_inode)?;
                (!bit(&bytes, at)).then_some((at, number))
            });
            let Some((at, number)) = found else { continue };
            set(&mut bytes, at, true);
            if fresh {
                self.zero_table_until(group, at)?;
            }
            self.put_inode_bitmap(group, &bytes)?;
            self.clear_inode(number)?;
            return Ok(number);
        }
        refused("no inode is free")
    }

    /// Clears the records of a group up to one, which were never used.
    fn zero_table_until(&self, group: Group, last: u32) -> Result<()> {
        for at in 0..=last {
            if let Some(number) = self.geometry.inode_at(group, at) {
                self.clear_inode(number)?;
            }
        }
        Ok(())
    }

    /// Gives back an inode, whose record becomes one that was never used.
    ///
    /// # Errors
    /// A number that the volume does not have; the device's failure.
    pub fn release_inode(&mut self, number: InodeNumber) -> Result<()> {
        let Some((group, index)) = self.geometry.locate_inode(number) else {
            return refused(format!("the volume has no inode {number}"));
        };
        let mut bytes = self.inode_bitmap(group)?;
        set(&mut bytes, index, false);
        self.clear_inode(number)?;
        self.put_inode_bitmap(group, &bytes)
    }
}

/// The cluster of a block, counted from the first of its group.
fn cluster_in(geometry: &Geometry, group: Group, block: Block) -> u32 {
    low_u32(geometry.cluster_of(block).0 - u64::from(group.0) * u64::from(geometry.clusters_per_group()))
}

/// The groups that sorted runs of clusters lie in, each once.
fn groups_of(clusters: &[(u64, u64)], per_group: u64) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (start, end) in clusters {
        for group in start / per_group..=(end - 1) / per_group {
            let group = Group(low_u32(group));
            if groups.last() != Some(&group) {
                groups.push(group);
            }
        }
    }
    groups
}
