//! Per group: describing it to the engines, reading its bitmaps, and applying what was taken and freed.

use std::collections::BTreeSet;

use ondisk::corrupt::Place;
use ondisk::geometry::Geometry;
use ondisk::group::{GroupFlags, RawGroupDescriptor};
use ondisk::units::{Block, BlockRun, Cluster, ClusterRun, Group, low_u32};
use placement::{Engine, GroupContent, InodeContent, InodeEngine};

use super::descriptors::Descriptors;
use super::pending::Work;
use super::{FreeDelta, out_of_step};
use crate::cache::{Blocks, Role};
use crate::error::{Error, Result};
use crate::format::Format;
use crate::txn::Update;

impl Descriptors {
    /// True if the block bitmap of a group was never written: its initial state is computed.
    pub(super) fn blocks_uninitialised(&self, raw: &RawGroupDescriptor) -> bool {
        self.format().features.descriptor_csum() && raw.flags().contains(GroupFlags::BLOCK_UNINIT)
    }

    /// True if no inode of a group was ever used.
    pub(super) fn inodes_uninitialised(&self, raw: &RawGroupDescriptor) -> bool {
        self.format().features.descriptor_csum() && raw.flags().contains(GroupFlags::INODE_UNINIT)
    }

    /// Inodes of a group's table that are in use or lie before one that is.
    pub(super) fn used_inodes(&self, raw: &RawGroupDescriptor) -> u32 {
        let per_group = self.format().geometry.inodes_per_group;
        match () {
            () if !self.format().features.descriptor_csum() => per_group,
            () if self.inodes_uninitialised(raw) => 0,
            () => per_group.saturating_sub(raw.unused_inodes()),
        }
    }

    /// A group's block bitmap as the disk has it, or would have it were it initialised.
    pub(super) fn block_bitmap(&self, blocks: &dyn Blocks, group: Group) -> Result<Vec<u8>> {
        let raw = self.get(group)?;
        let geometry = &self.format().geometry;
        if self.blocks_uninitialised(&raw) {
            let mut bitmap = vec![0; geometry.block_size.bytes_usize()];
            let (start, end) = group_span(geometry, group);
            for run in within(geometry, self.structures()?, group) {
                set_bits(&mut bitmap, run.start.0 - start..run.end() - start);
            }
            set_bits(&mut bitmap, end - start..u64::from(geometry.block_size.bytes()) * 8);
            return Ok(bitmap);
        }
        let bitmap = blocks.read(raw.block_bitmap(), Role::Bitmap)?;
        let right = self.format().sealer.bitmap_checksum(&bitmap, geometry.clusters_per_group());
        if right.is_some_and(|right| right != raw.block_bitmap_checksum()) {
            return Err(Error::corrupt(Place::BlockBitmap(group), "checksum is wrong"));
        }
        Ok(bitmap.to_vec())
    }

    /// A group's inode bitmap as the disk has it, or would have it were it initialised.
    pub(super) fn inode_bitmap(&self, blocks: &dyn Blocks, group: Group) -> Result<Vec<u8>> {
        let raw = self.get(group)?;
        let geometry = &self.format().geometry;
        if self.inodes_uninitialised(&raw) {
            let mut bitmap = vec![0; geometry.block_size.bytes_usize()];
            let bits = u64::from(geometry.block_size.bytes()) * 8;
            set_bits(&mut bitmap, u64::from(geometry.inodes_per_group)..bits);
            return Ok(bitmap);
        }
        let bitmap = blocks.read(raw.inode_bitmap(), Role::Bitmap)?;
        let right = self.format().sealer.bitmap_checksum(&bitmap, geometry.inodes_per_group);
        if right.is_some_and(|right| right != raw.inode_bitmap_checksum()) {
            return Err(Error::corrupt(Place::InodeBitmap(group), "checksum is wrong"));
        }
        Ok(bitmap.to_vec())
    }

    /// The blocks that are read to bring work into them: no bitmap that was never initialised.
    pub(super) fn read_for(&self, touched: &Touched) -> Result<BTreeSet<u64>> {
        let mut blocks = BTreeSet::new();
        for group in touched.clusters.union(&touched.inodes) {
            let raw = self.get(Group(*group))?;
            let geometry = &self.format().geometry;
            blocks.insert(geometry.descriptor_block(group / geometry.descriptors_per_block()).0);
            if touched.clusters.contains(group) && !self.blocks_uninitialised(&raw) {
                blocks.insert(raw.block_bitmap().0);
            }
            if touched.inodes.contains(group) && !self.inodes_uninitialised(&raw) {
                blocks.insert(raw.inode_bitmap().0);
            }
        }
        Ok(blocks)
    }
}

/// Where the structures of all groups lie, as sorted runs of clusters.
///
/// Needed for groups without a stored bitmap: with `flex_bg` they may hold tables of others.
pub(super) fn structures(descriptors: &Descriptors) -> Result<Vec<ClusterRun>> {
    structures_of(descriptors, &descriptors.format().geometry)
}

/// Clusters of the structures of a volume with these sizes, and no more groups than there are.
pub(super) fn structures_of(descriptors: &Descriptors, geometry: &Geometry) -> Result<Vec<ClusterRun>> {
    let table = geometry.inode_table_blocks();
    let mut runs = Vec::with_capacity(geometry.groups as usize * 2);
    for group in (0..geometry.groups).map(Group) {
        let raw = descriptors.get(group)?;
        let header = geometry.group_header(group);
        let all = [
            header,
            BlockRun { start: raw.block_bitmap(), count: 1 },
            BlockRun { start: raw.inode_bitmap(), count: 1 },
            BlockRun { start: raw.inode_table(), count: table },
        ];
        runs.extend(all.into_iter().filter(|run| run.count > 0).map(|run| clusters_of(geometry, run)));
    }
    runs.sort_unstable_by_key(|run| run.start);
    Ok(merged(runs))
}

/// The clusters that a run of blocks touches.
pub(super) fn clusters_of(geometry: &Geometry, run: BlockRun) -> ClusterRun {
    let first = geometry.cluster_of(run.start);
    let last = geometry.cluster_of(Block(run.start.0 + u64::from(run.count.max(1)) - 1));
    ClusterRun { start: first, count: low_u32(last.0 - first.0 + 1) }
}

pub(super) fn merged(sorted: Vec<ClusterRun>) -> Vec<ClusterRun> {
    let mut joined: Vec<ClusterRun> = Vec::with_capacity(sorted.len());
    for run in sorted {
        match joined.last_mut() {
            Some(last) if last.end() >= run.start.0 => {
                last.count = low_u32(last.end().max(run.end()) - last.start.0);
            }
            _ => joined.push(run),
        }
    }
    joined
}

/// True if a run of clusters touches sorted runs.
pub(super) fn touches(sorted: &[ClusterRun], run: ClusterRun) -> bool {
    let first = sorted.partition_point(|known| known.end() <= run.start.0);
    sorted.get(first).is_some_and(|known| known.start.0 < run.end())
}

/// The groups in which a run of clusters lies.
pub(super) fn groups_in(geometry: &Geometry, run: ClusterRun) -> impl Iterator<Item = Group> + use<> {
    let per_group = u64::from(geometry.clusters_per_group());
    (run.start.0 / per_group..=(run.end().max(1) - 1) / per_group).map(|group| Group(low_u32(group)))
}

pub(super) fn group_span(geometry: &Geometry, group: Group) -> (u64, u64) {
    let start = u64::from(group.0) * u64::from(geometry.clusters_per_group());
    (start, start + u64::from(geometry.group_clusters(group)))
}

/// The parts of sorted runs that lie in a group.
pub(super) fn within<'a>(
    geometry: &Geometry,
    runs: &'a [ClusterRun],
    group: Group,
) -> impl Iterator<Item = ClusterRun> + 'a {
    let (start, end) = group_span(geometry, group);
    let first = runs.partition_point(|run| run.end() <= start);
    let inside = runs.split_at(first).1.iter().take_while(move |run| run.start.0 < end);
    inside.map(move |run| {
        let from = run.start.0.max(start);
        ClusterRun { start: Cluster(from), count: low_u32(run.end().min(end) - from) }
    })
}

/// Gives the engines what each descriptor says.
pub(super) fn describe_all(
    format: &Format,
    descriptors: &Descriptors,
    blocks: &Engine,
    inodes: &InodeEngine,
) -> Result<()> {
    let geometry = &format.geometry;
    let structures = descriptors.structures()?;
    let mut used = Vec::new();
    for group in (0..geometry.groups).map(Group) {
        let raw = descriptors.get(group)?;
        if descriptors.inodes_uninitialised(&raw)
            && (raw.used_directories() > 0 || format.has_own_inodes(group))
        {
            let problem = "says that no inode of the group was ever used, which some are; check the volume";
            return Err(Error::corrupt(Place::Descriptor(group), problem));
        }
        let content = if descriptors.blocks_uninitialised(&raw) {
            used.clear();
            used.extend(within(geometry, structures, group));
            GroupContent::Uninitialised { used: &used }
        } else {
            GroupContent::Unknown
        };
        blocks.describe_group(group, raw.free_clusters(), content).map_err(out_of_step)?;
        describe_inodes(descriptors, inodes, group)?;
    }
    Ok(())
}

/// Gives the engine of inodes what a descriptor says.
pub(super) fn describe_inodes(descriptors: &Descriptors, inodes: &InodeEngine, group: Group) -> Result<()> {
    let raw = descriptors.get(group)?;
    let content = if descriptors.inodes_uninitialised(&raw) {
        InodeContent::Uninitialised { used: 0 }
    } else {
        InodeContent::Unknown
    };
    let described = inodes.describe_group(group, raw.free_inodes(), raw.used_directories(), content);
    described.map_err(out_of_step)
}

pub(super) fn set_bits(bitmap: &mut [u8], bits: impl Iterator<Item = u64>) {
    for bit in bits {
        let Some(byte) = usize::try_from(bit / 8).ok().and_then(|at| bitmap.get_mut(at)) else {
            debug_assert!(false, "bit {bit} lies behind a bitmap's end");
            return;
        };
        *byte |= 1 << (bit % 8);
    }
}

pub(super) fn clear_bits(bitmap: &mut [u8], bits: impl Iterator<Item = u64>) {
    for bit in bits {
        let Some(byte) = usize::try_from(bit / 8).ok().and_then(|at| bitmap.get_mut(at)) else {
            debug_assert!(false, "bit {bit} lies behind a bitmap's end");
            return;
        };
        *byte &= !(1 << (bit % 8));
    }
}

/// The groups in which sorted runs lie.
fn groups_of(geometry: &Geometry, runs: &[ClusterRun], into: &mut BTreeSet<u32>) {
    for run in runs {
        into.extend(groups_in(geometry, *run).map(|group| group.0));
    }
}

/// The groups of which anything was taken or freed.
pub(super) struct Touched {
    pub(super) clusters: BTreeSet<u32>,
    pub(super) inodes: BTreeSet<u32>,
}

pub(super) fn touched(geometry: &Geometry, work: &Work) -> Touched {
    let mut clusters = BTreeSet::new();
    groups_of(geometry, &work.taken, &mut clusters);
    groups_of(geometry, &work.freed, &mut clusters);
    let all = work.taken_inodes.iter().chain(&work.freed_inodes);
    let mut inodes: BTreeSet<u32> = all.map(|(index, _)| index / geometry.inodes_per_group).collect();
    inodes.extend(work.corrections.iter().map(|(group, _)| group.0));
    Touched { clusters, inodes }
}

/// The new free count of a group, or a complaint that names the count that can't be.
fn counted(group: Group, what: &str, free: u32, change: i64, most: u32) -> Result<u32> {
    let next = u32::try_from(i64::from(free) + change).ok().filter(|next| *next <= most);
    next.ok_or_else(|| {
        let problem = format!("counts {free} free {what}, which can't change by {change}");
        Error::corrupt(Place::Descriptor(group), problem)
    })
}

/// The part of a sorted list of inodes that lies in a group.
fn inodes_within(inodes: &[(u32, bool)], group: Group, per_group: u32) -> &[(u32, bool)] {
    let from = inodes.partition_point(|(index, _)| index / per_group < group.0);
    let to = inodes.partition_point(|(index, _)| index / per_group <= group.0);
    inodes.get(from..to).unwrap_or_default()
}

fn directories(inodes: &[(u32, bool)]) -> u32 {
    low_u32(inodes.iter().filter(|(_, directory)| *directory).count() as u64)
}

/// One past the last inode in use.
pub(super) fn last_used(bitmap: &[u8], per_group: u32) -> u32 {
    let is_set =
        |index: &u32| bitmap.get(*index as usize / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1);
    (0..per_group).rev().find(is_set).map_or(0, |last| last + 1)
}

/// Bitmaps and descriptors on their way to what was taken and freed, as part of an update.
pub(super) struct Booking<'b, 'v> {
    pub(super) descriptors: &'b mut Descriptors,
    pub(super) update: &'b mut Update<'v>,
}

impl Booking<'_, '_> {
    /// Brings what was taken and freed into bitmaps and descriptors, group by group.
    pub(super) fn apply(&mut self, work: &Work) -> Result<FreeDelta> {
        let mut change = FreeDelta::default();
        let touched = touched(&self.descriptors.format().geometry, work);
        for group in touched.clusters.into_iter().map(Group) {
            change.clusters += self.clusters(group, work)?;
        }
        for group in touched.inodes.into_iter().map(Group) {
            change.inodes += self.inodes(group, work)?;
        }
        Ok(change)
    }

    /// Stores a bitmap. What the disk has in the place of one that was not initialised is nobody's concern.
    fn store_bitmap(&mut self, block: Block, is_new: bool, bitmap: &[u8]) -> Result<()> {
        let bytes = if is_new {
            self.update.create(block, Role::Bitmap)
        } else {
            self.update.edit(block, Role::Bitmap)?
        };
        bytes.copy_from_slice(bitmap);
        Ok(())
    }

    fn clusters(&mut self, group: Group, work: &Work) -> Result<i64> {
        let geometry = self.descriptors.format().geometry;
        let geometry = &geometry;
        let mut raw = self.descriptors.get(group)?;
        let is_new = self.descriptors.blocks_uninitialised(&raw);
        let mut bitmap = self.descriptors.block_bitmap(&*self.update, group)?;
        let (start, _) = group_span(geometry, group);
        let mut change = 0;
        for run in within(geometry, &work.taken, group) {
            set_bits(&mut bitmap, run.start.0 - start..run.end() - start);
            change -= i64::from(run.count);
        }
        for run in within(geometry, &work.freed, group) {
            clear_bits(&mut bitmap, run.start.0 - start..run.end() - start);
            change += i64::from(run.count);
        }
        let most = geometry.group_clusters(group);
        raw.set_free_clusters(counted(group, "clusters", raw.free_clusters(), change, most)?);
        raw.set_flags(raw.flags().difference(GroupFlags::BLOCK_UNINIT));
        if let Some(checksum) =
            self.descriptors.format().sealer.bitmap_checksum(&bitmap, geometry.clusters_per_group())
        {
            raw.set_block_bitmap_checksum(checksum);
        }
        self.store_bitmap(raw.block_bitmap(), is_new, &bitmap)?;
        self.descriptors.set(self.update, group, raw)?;
        Ok(change)
    }

    fn inodes(&mut self, group: Group, work: &Work) -> Result<i64> {
        let per_group = self.descriptors.format().geometry.inodes_per_group;
        let taken = inodes_within(&work.taken_inodes, group, per_group);
        let freed = inodes_within(&work.freed_inodes, group, per_group);
        let mut raw = self.descriptors.get(group)?;
        let is_new = self.descriptors.inodes_uninitialised(&raw);
        let mut bitmap = self.descriptors.inode_bitmap(&*self.update, group)?;
        set_bits(&mut bitmap, taken.iter().map(|(index, _)| u64::from(index % per_group)));
        clear_bits(&mut bitmap, freed.iter().map(|(index, _)| u64::from(index % per_group)));
        let length = |inodes: &[(u32, bool)]| i64::from(low_u32(inodes.len() as u64));
        let change = length(freed) - length(taken);
        raw.set_free_inodes(counted(group, "inodes", raw.free_inodes(), change, per_group)?);
        let corrections = work.corrections.iter().filter(|(of, _)| *of == group).map(|(_, count)| count);
        // After a crash more may be freed than were counted: what is corrected with them is to be added first.
        let more = i64::from(directories(taken)) - i64::from(directories(freed)) + corrections.sum::<i64>();
        let directories = i64::from(raw.used_directories()) + more;
        let directories = u32::try_from(directories.max(0)).unwrap_or(per_group);
        raw.set_used_directories(directories);
        if self.descriptors.format().features.descriptor_csum() {
            // Freed inodes at the end of the table count as never used again: a check need not read them.
            raw.set_unused_inodes(per_group - last_used(&bitmap, per_group));
            raw.set_flags(raw.flags().difference(GroupFlags::INODE_UNINIT));
        }
        if let Some(checksum) = self.descriptors.format().sealer.bitmap_checksum(&bitmap, per_group) {
            raw.set_inode_bitmap_checksum(checksum);
        }
        self.store_bitmap(raw.inode_bitmap(), is_new, &bitmap)?;
        self.descriptors.set(self.update, group, raw)?;
        Ok(change)
    }
}
