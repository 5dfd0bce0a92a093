//! Growing the volume before it is changed, where it has to.
//!
//! A volume that is nearly full has its free space in pieces, and files would come to lie in pieces, too. So at least a
//! twentieth stays free: where less would, the volume gets what a new image of automatic size leaves free.
//!
//! Updates leave holes all over the volume, and what is new would be strewn over them: each zone that gets some of it
//! is fetched whole. So the volume grows, too, once the zones that are half free do not hold what is new; but not beyond
//! a fifth of free space, from which on holes are filled whatever it costs. With that a chain of images neither decays nor
//! grows beyond what its contents need.

use std::path::Path;
use std::sync::Arc;

use platfs::device::Device;
use platfs::ondisk::inode::Timestamp;
use platfs::{FreeRuns, Volume};
use platfs_reshape::draft::Limits;
use platfs_reshape::resize;

use super::contents::Contents;
use super::scan::Scan;
use crate::builder::error::BuildError;
use crate::builder::size::{Shape, file_clusters};
use crate::builder::{Free, Size};
use crate::output::{Output, device_of};

/// The part of the volume that stays free.
const LEAST_FREE: u64 = 20;
/// The part of what is used that is free on a volume that grew, and what is added to it, as on a new one.
const FREE: u64 = 10;
const HEAD_ROOM: u64 = 4 << 20;
/// The part of what is used up to which the volume grows for want of zones, as its divisor: a fifth of the whole.
const MOST_FREE: u64 = 4;
/// Clusters of a zone, as the policy `settled` has them, in bytes of a bitmap.
const ZONE: usize = 128 / 8;
/// Sizes are whole multiples of this.
const STEP: u64 = 1 << 20;
/// The part of new space that goes to the tables of groups, at most.
const TABLES: u64 = 16;
/// Memory that growing may take.
const MEMORY: u64 = 1 << 30;

/// Needs of the changes.
pub(super) struct SpaceNeeds<'a, 'c> {
    pub(super) scan: &'a Scan<'c>,
    pub(super) was: &'a Volume,
    pub(super) size: Size,
    pub(super) now: Timestamp,
}

impl SpaceNeeds<'_, '_> {
    /// Makes the volume in `output` as long as it has to be; the bytes by which it grew.
    ///
    /// # Errors
    /// A size that can't be; growing fails.
    pub(super) fn make(&self, output: &Output, path: &Path) -> Result<u64, BuildError> {
        let geometry = &self.was.format().geometry;
        let bytes = geometry.blocks << geometry.block_size.log2();
        let wanted = match self.size {
            Size::Bytes(stated) if stated < bytes => {
                return Err(BuildError::Like(format!(
                    "the older image has {bytes} bytes, and {stated} are asked for; --relayout makes it smaller"
                )));
            }
            Size::Bytes(stated) => stated,
            Size::Auto => self.automatic(bytes)?,
            Size::Free(free) => self.leaving(free, bytes)?,
            Size::Min => {
                let why = "a smallest image is laid out from the start: leave out --like or --size min, or add --relayout";
                return Err(BuildError::Like(why.into()));
            }
        };
        if wanted <= bytes { Ok(0) } else { self.grow(output, path, bytes, wanted) }
    }

    /// Bytes with which that much stays free for users.
    fn leaving(&self, free: Free, bytes: u64) -> Result<u64, BuildError> {
        let geometry = &self.was.format().geometry;
        let raw = self.was.superblock();
        let (taken, given) = self.clusters()?;
        let blocks = |clusters: u64| clusters << geometry.cluster_log2;
        let wanted = free.blocks_of(&raw, geometry).saturating_add(blocks(taken));
        let short_of = wanted.saturating_sub(raw.free_blocks_count().saturating_add(blocks(given)));
        // New space brings tables, and a larger share that is reserved.
        let reserved = raw.reserved_blocks_count();
        let short_of = short_of.saturating_add(short_of / 4);
        let more = free.growth(short_of, reserved.saturating_add(Free::tables(geometry)), geometry);
        let more = more.ok_or_else(|| BuildError::Like(free.too_much(reserved, geometry)))?;
        Ok(bytes
            .saturating_add(more.saturating_mul(u64::from(geometry.block_size.bytes())))
            .next_multiple_of(STEP))
    }

    /// Bytes with which enough stays free.
    fn automatic(&self, bytes: u64) -> Result<u64, BuildError> {
        if self.scan.is_empty() {
            return Ok(bytes);
        }
        let geometry = &self.was.format().geometry;
        let all = geometry.blocks >> geometry.cluster_log2;
        let raw = self.was.superblock();
        let free = raw.free_blocks_count() >> geometry.cluster_log2;
        let free_inodes = u64::from(raw.s_free_inodes_count.get());
        let (taken, given) = self.clusters()?;
        let inodes = self.scan.new.iter().filter(|new| self.scan.kept(new.node).is_none()).count() as u64;
        let left = free.saturating_add(given).saturating_sub(taken);
        let short_of = taken.saturating_sub(free.saturating_add(given));
        let used = (all - left).saturating_add(short_of);
        let roomy = self.roomy()?;
        let is_strewn = roomy < taken && left < used / MOST_FREE;
        if left >= all / LEAST_FREE && free_inodes >= inodes && !is_strewn {
            return Ok(bytes);
        }
        let unit = geometry.block_size.log2() + geometry.cluster_log2;
        let aim = used / FREE + (HEAD_ROOM >> unit) + short_of;
        let groups = inodes.saturating_sub(free_inodes).div_ceil(u64::from(geometry.inodes_per_group.max(1)));
        let for_inodes = groups.saturating_mul(u64::from(geometry.clusters_per_group()));
        let for_zones = aim.saturating_sub(roomy).min((used / MOST_FREE).saturating_sub(left));
        let more = aim.saturating_sub(left).max(for_inodes).max(if is_strewn { for_zones } else { 0 });
        let more = more.saturating_add(more / TABLES);
        Ok(bytes.saturating_add(more << unit).next_multiple_of(STEP))
    }

    /// Free clusters of the zones of which at least half is free.
    fn roomy(&self) -> Result<u64, BuildError> {
        let mut roomy = 0;
        FreeRuns::count(self.was, |_, bitmap| {
            let free = |zone: &[u8]| zone.iter().map(|byte| u64::from(byte.count_zeros())).sum::<u64>();
            // Bits behind the last cluster of a group are set.
            let zones = bitmap.chunks_exact(ZONE).map(free);
            roomy += zones.filter(|free| *free >= 4 * ZONE as u64).sum::<u64>();
        })?;
        Ok(roomy)
    }

    /// Clusters that the changes take, and those that they give back.
    fn clusters(&self) -> Result<(u64, u64), BuildError> {
        let (catalogue, shape) = (self.scan.catalogue, Shape::of_volume(self.was.format()));
        let unit = self.was.format().geometry.block_size.log2() + self.was.format().geometry.cluster_log2;
        let clusters = |sectors: u64| (sectors << 9) >> unit;
        let (mut taken, mut given) = (0_u64, 0_u64);
        for (node, contents) in &self.scan.data {
            if *contents == Contents::Afresh {
                taken = taken.saturating_add(file_clusters(catalogue, &shape, *node));
                if let Some(number) = self.scan.kept(*node) {
                    given = given.saturating_add(clusters(self.was.metadata(number)?.sectors));
                }
            }
        }
        for gone in self.scan.gone.iter().filter(|gone| !gone.is_directory) {
            let was = self.was.metadata(gone.inode)?;
            if was.links == 1 && !self.scan.kept.contains(&Some(gone.inode)) {
                given = given.saturating_add(clusters(was.sectors));
            }
        }
        // New directories, attributes that do not fit their inodes, and directories that become longer.
        let names = self.scan.new.iter().filter(|new| self.scan.kept(new.node).is_none()).count() as u64;
        Ok((taken.saturating_add(names), given))
    }

    fn grow(&self, output: &Output, path: &Path, had: u64, wanted: u64) -> Result<u64, BuildError> {
        let failed =
            |error: platfs_reshape::Error| BuildError::Like(format!("the volume can't grow: {error}"));
        let device = || device_of(output).map_err(BuildError::output("open", path));
        let plan = resize::Plan::new(Arc::new(device()?.without_flush()), wanted).map_err(failed)?;
        let bytes = plan.size_bytes().max(had);
        let lengthened = output.file().and_then(|file| file.set_len(bytes));
        lengthened.map_err(BuildError::output("lengthen", path))?;
        let device: Arc<dyn Device> = Arc::new(device()?.without_flush());
        let limits = Limits { memory: MEMORY, threads: 1, now: self.now };
        let change = plan.draft(device, had, &limits).map_err(failed)?;
        change.apply().map_err(BuildError::output("write", path))?;
        Ok(bytes - had)
    }
}
