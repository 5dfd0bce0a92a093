//! Choice of the image's size: automatic, smallest, or that of a device. The space of contents on a volume
//! of a given shape is counted by `size`.

use std::sync::Arc;

use platfs::device::{Device, MemoryDevice};
use platfs::mkfs::Plan;

use super::aligned;
use super::error::BuildError;
use super::fill::Filler;
use super::job::Job;
use super::rehearsal;
use super::size::{self, Shape};
use super::{Free, Size, TRIES};
use crate::watch::Meter;

/// Room that an image of automatic size leaves: a tenth of the contents, and this much.
const HEAD_ROOM: u64 = 4 << 20;
/// Automatic sizes are whole multiples of this.
const AUTO_STEP: u64 = 1 << 20;
/// The part of a group that a chunk may be, if its data begin at multiples of it.
const ALIGN_MOST: u64 = 4;
/// Strides beyond which a refused format is not tried again: 1 TiB in steps of 1 KiB.
const STEPS_MAX: u64 = 1 << 30;
/// Where the search for a size begins: no volume is smaller.
const SMALLEST: u64 = 64 << 10;

impl Job<'_> {
    /// The size of a new image; that of a smallest one may still be a few blocks short.
    pub(super) fn planned_size(&self, meter: &mut Meter) -> Result<u64, BuildError> {
        match self.size {
            Size::Bytes(bytes) => Ok(bytes),
            Size::Auto => self.automatic_size(),
            Size::Free(free) => self.size_leaving(free),
            Size::Min => self.smallest_size(self.automatic_size()?, meter),
        }
    }

    /// The size of a volume on a device of `room` bytes, on which all is known to fit.
    pub(super) fn size_on_device(&self, room: u64, meter: &mut Meter) -> Result<u64, BuildError> {
        let given = match self.size {
            Size::Auto => room,
            Size::Bytes(_) | Size::Free(_) => {
                let given = self.planned_size(meter)?;
                if given > room {
                    return Err(BuildError::NoRoom { given, room });
                }
                given
            }
            Size::Min => {
                let least = self.smallest_that_fits(meter)?;
                if least <= room {
                    return Ok(least);
                }
                let error = Box::new(BuildError::Volume(platfs::Error::NoSpace));
                return Err(BuildError::DeviceTooSmall { given: room, least, error });
            }
        };
        let Err(error) = rehearsal::rehearse(self, given, meter) else { return Ok(given) };
        if matches!(error, BuildError::Cancelled(_)) {
            return Err(error);
        }
        match self.smallest_that_fits(meter) {
            // Where a smaller volume would hold them it is for something else.
            Ok(least) if least > given => {
                Err(BuildError::DeviceTooSmall { given, least, error: Box::new(error) })
            }
            Err(cancelled @ BuildError::Cancelled(_)) => Err(cancelled),
            _ => Err(error),
        }
    }

    /// The size of the smallest volume that was seen to hold the contents.
    fn smallest_that_fits(&self, meter: &mut Meter) -> Result<u64, BuildError> {
        let smallest = Job { size: Size::Min, ..self.clone() };
        let mut size = smallest.planned_size(meter)?;
        for _ in 0..TRIES {
            match rehearsal::rehearse(&smallest, size, meter) {
                Err(error) if error.is_lack_of_room() => size += smallest.block_on(size)?,
                done => return done.map(|()| size),
            }
        }
        Err(BuildError::Volume(platfs::Error::NoSpace))
    }

    /// Bytes of a block on a volume of that size.
    pub(super) fn block_on(&self, bytes: u64) -> Result<u64, BuildError> {
        Ok(u64::from(self.plan(bytes)?.geometry().block_size.bytes()))
    }

    /// Says what size would do, where that is the trouble.
    pub(super) fn too_small(&self, given: u64, error: BuildError) -> BuildError {
        if !error.is_lack_of_room() {
            return error;
        }
        match self.automatic_size() {
            Ok(automatic) => BuildError::TooSmall { given, automatic, error: Box::new(error) },
            Err(_) => error,
        }
    }

    /// The size at which `wanted` clusters are free. A volume of `n` more blocks has at most `n` more free
    /// ones, so that going up by what is missing never goes past the smallest answer. `growth` may say more than what is
    /// missing, or that no size is large enough.
    fn size_with_free(
        &self,
        start: u64,
        wanted: impl Fn(&Plan, u64) -> u64,
        growth: impl Fn(&Plan, u64) -> Result<u64, BuildError>,
    ) -> Result<u64, BuildError> {
        let block = |plan: &Plan| u64::from(plan.geometry().block_size.bytes());
        let mut bytes = self.smallest_accepted(start)?;
        loop {
            let plan = self.plan(bytes)?;
            let missing = wanted(&plan, bytes).saturating_sub(plan.free_blocks());
            if missing == 0 {
                return Ok(bytes);
            }
            let more = growth(&plan, missing)?.saturating_mul(block(&plan));
            let more = bytes.next_multiple_of(block(&plan)).saturating_add(more);
            bytes = self.smallest_accepted(more)?;
        }
    }

    /// The smallest size from `start` on that has room for the structures of the volume itself, in steps of the
    /// smallest block: found in strides that double, and then in halves.
    fn smallest_accepted(&self, start: u64) -> Result<u64, BuildError> {
        let unit = u64::from(self.format.block_size.unwrap_or(1024));
        let accepts = |steps: u64| self.plan(start.saturating_add(steps * unit));
        if accepts(0).is_ok() {
            return Ok(start);
        }
        let (mut refused, mut accepted) = (0, 1);
        while let Err(error) = accepts(accepted) {
            // No volume needs this much for its structures, so the cause is not a lack of room.
            if accepted > STEPS_MAX {
                return Err(error.into());
            }
            (refused, accepted) = (accepted, accepted * 2);
        }
        while accepted - refused > 1 {
            let middle = refused + (accepted - refused) / 2;
            if accepts(middle).is_ok() { accepted = middle } else { refused = middle }
        }
        Ok(start + accepted * unit)
    }

    /// Blocks that stay free where data begin at multiples of a chunk.
    fn align_blocks(&self, plan: &Plan) -> u64 {
        let Some(align) = self.align else { return 0 };
        let bytes = aligned::bytes(self.catalogue, &Shape::of(plan), align, plan.geometry());
        bytes >> plan.geometry().block_size.log2()
    }

    /// Each group cuts a chunk at both of its ends: chunks of half a group would never find the room that is counted.
    fn check_align(&self, plan: &Plan) -> Result<(), BuildError> {
        let geometry = plan.geometry();
        let group = u64::from(geometry.blocks_per_group) << geometry.block_size.log2();
        match self.align {
            Some(align) if align > group / ALIGN_MOST => {
                let (most, align) = ((group / ALIGN_MOST) >> 10, align >> 10);
                let problem = format!("{align} KiB: groups of this block size take {most} KiB at most");
                Err(platfs::Error::BadOption { option: "--align", problem }.into())
            }
            _ => Ok(()),
        }
    }

    fn automatic_size(&self) -> Result<u64, BuildError> {
        let wanted = |plan: &Plan, data: u64, names: u64| {
            let contents = data + names + self.align_blocks(plan);
            contents + contents / 10 + (HEAD_ROOM >> plan.geometry().block_size.log2())
        };
        self.size_with(wanted, |_, missing| Ok(missing))
    }

    /// The size with which that much stays free. Only what directories take is estimated, so that a part of that is all
    /// that is added.
    fn size_leaving(&self, free: Free) -> Result<u64, BuildError> {
        let contents =
            |plan: &Plan, data: u64, names: u64| data + names + names / 2 + self.align_blocks(plan);
        let least = self.size_with(contents, |_, missing| Ok(missing))?;
        let room = if let Free::Bytes(bytes) = free { bytes } else { 0 };
        let most = least.saturating_add(room).saturating_mul(Free::TIMES_MOST);
        let wanted = |plan: &Plan, data: u64, names: u64| {
            contents(plan, data, names).saturating_add(free.blocks_of(plan.superblock(), plan.geometry()))
        };
        let growth = |plan: &Plan, missing: u64| {
            let (geometry, reserved) = (plan.geometry(), plan.superblock().reserved_blocks_count());
            let has = geometry.blocks << geometry.block_size.log2();
            // Both parts are rounded up, so that two blocks need not be missing in a larger volume.
            let more = free.growth(missing.saturating_sub(2), reserved, geometry).filter(|_| has <= most);
            let refused =
                || platfs::Error::BadOption { option: "--size", problem: free.too_much(reserved, geometry) };
            Ok(more.ok_or_else(refused)?.max(missing))
        };
        self.size_with(wanted, growth)
    }

    /// The size at which as many blocks are free before anything is in it as `wanted` says of a plan, the blocks of data
    /// and those of names; a whole number of steps. For `growth` see [`Job::size_with_free`].
    fn size_with(
        &self,
        wanted: impl Fn(&Plan, u64, u64) -> u64,
        growth: impl Fn(&Plan, u64) -> Result<u64, BuildError>,
    ) -> Result<u64, BuildError> {
        let wanted = |plan: &Plan, bytes: u64| {
            let shape = Shape::of(plan);
            let blocks = |clusters: u64| clusters << plan.geometry().cluster_log2;
            let data = blocks(size::data_clusters(self.catalogue, &shape));
            let names = blocks(size::name_clusters(self.catalogue, &shape));
            wanted(plan, data, names).saturating_add((bytes % AUTO_STEP).min(1))
        };
        let start = self.catalogue.summary().data_bytes.max(SMALLEST).next_multiple_of(AUTO_STEP);
        self.check_align(&self.plan(self.smallest_accepted(start)?)?)?;
        let mut bytes = self.size_with_free(start, wanted, &growth)?;
        // What a whole step adds may begin a group, whose structures take more than that.
        while !bytes.is_multiple_of(AUTO_STEP) {
            bytes = self.size_with_free(bytes.next_multiple_of(AUTO_STEP), wanted, &growth)?;
        }
        Ok(bytes)
    }

    /// The smallest size: names, and files that may end up inside their inodes, are measured on a volume in
    /// memory that surely holds them; other data and maps are counted.
    fn smallest_size(&self, ample: u64, meter: &mut Meter) -> Result<u64, BuildError> {
        let ample = self.plan(ample)?;
        let names = self.measured_names(&ample, meter)?;
        let shape = Shape::of(&ample);
        let measured = size::clusters_of_maybe_inline(self.catalogue, &shape);
        let clusters = names + size::data_clusters(self.catalogue, &shape).saturating_sub(measured);
        let blocks = (clusters << ample.geometry().cluster_log2) + self.align_blocks(&ample);
        let start = blocks << ample.geometry().block_size.log2();
        self.size_with_free(start.max(SMALLEST), |_, _| blocks, |_, missing| Ok(missing))
    }

    fn measured_names(&self, plan: &Plan, meter: &mut Meter) -> Result<u64, BuildError> {
        let geometry = plan.geometry();
        let bytes = geometry.blocks << geometry.block_size.log2();
        let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes));
        plan.write(&*memory)?;
        let volume = self.open(memory)?;
        let free = || volume.space().free().map_or(0, |(clusters, _)| clusters);
        let before = free();
        let mut filler = Filler::new(self, &volume, meter);
        filler.names()?;
        filler.directories_over_the_first()?;
        filler.measure_inline(&Shape::of(plan))?;
        Ok(before - free())
    }
}
