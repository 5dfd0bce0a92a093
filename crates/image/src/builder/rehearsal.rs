//! Rehearsal of a build, to learn that the image fits a device before anything is written there: what is there is lost with
//! the first write.
//!
//! The build is made in memory as it will be made, but for the contents of files. Where there is plenty of
//! room their blocks are only counted; where there is not, they are allocated one by one, filled with zeros,
//! which take no memory.

use std::sync::Arc;

use platfs::Volume;
use platfs::device::{Device, MemoryDevice};

use super::error::BuildError;
use super::fill::Filler;
use super::job::Job;
use super::size::{Shape, data_clusters};
use crate::watch::Meter;

/// Clusters that maps may take beyond what is counted, for each group and for the whole: free space is
/// divided at the tables of groups, and each division may cost a file an extent more.
const SPARE_PER_GROUP: u64 = 4;
const SPARE: u64 = 64;

/// Fails as a build on `size` bytes would.
pub(super) fn rehearse(job: &Job<'_>, size: u64, meter: &mut Meter) -> Result<(), BuildError> {
    let plan = job.plan(size)?;
    let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new(size));
    plan.write(&*memory)?;
    let volume = job.open(memory)?;
    let mut filler = Filler::new(job, &volume, meter);
    filler.names()?;
    let shape = Shape::of(&plan);
    let groups = u64::from(plan.geometry().groups);
    let spare = SPARE + SPARE_PER_GROUP.saturating_mul(groups);
    let wanted = data_clusters(job.catalogue, &shape).saturating_add(spare);
    let is_ample = free_clusters(&volume) >= wanted.saturating_add(wanted / 64);
    filler.rehearse_data(&shape, is_ample)?;
    platfs::quota::rebuild(&volume)?;
    volume.sync()?;
    Ok(())
}

fn free_clusters(volume: &Volume) -> u64 {
    volume.space().free().map_or(0, |(clusters, _)| clusters)
}
