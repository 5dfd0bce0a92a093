//! Bringing into bitmaps and descriptors what a crash kept from them: blocks and inodes that are known to be in use,
//! or free, wherever an engine would have put them (fast commits of a journal).

use ondisk::corrupt::Place;
use ondisk::geometry::Geometry;
use ondisk::inode::Timestamp;
use ondisk::units::{Block, BlockRun, Cluster, ClusterRun, Group};

use super::descriptors::Descriptors;
use super::groups::{self, Booking};
use super::pending::Work;
use crate::cache::{Cache, Role};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::order::Order;
use crate::txn::Update;

/// Changes to book; runs of clusters in any order.
#[derive(Default, Debug)]
pub(crate) struct Bookings {
    /// Clusters that lose their owner.
    pub(crate) freed: Vec<ClusterRun>,
    /// Clusters that then get one; each once.
    pub(crate) taken: Vec<ClusterRun>,
    /// Inodes that come into use, counted from 0 over the volume, and whether each is a directory.
    pub(crate) inodes: Vec<(u32, bool)>,
    /// Directories by which descriptors of groups miscount then.
    pub(crate) corrections: Vec<(Group, i64)>,
}

/// Books all of it; the cache writes it.
///
/// # Errors
/// Clusters that are free already, or in use by somebody else; broken bitmaps or descriptors.
pub(crate) fn rebook(cache: &Cache, descriptors: &mut Descriptors, all: Bookings) -> Result<()> {
    let order = Order::default();
    let mut update = Update::new(cache, &order, Context::new(Timestamp::default()));
    let freed = disjoint(all.freed)?;
    let mut booking = Booking { descriptors, update: &mut update };
    booking.judge(&freed, true)?;
    booking.apply(&Work { freed, ..Work::default() })?;
    for (index, _) in &all.inodes {
        booking.empty_table(*index)?;
    }
    let taken = disjoint(all.taken)?;
    booking.judge(&taken, false)?;
    let mut taken_inodes = all.inodes;
    taken_inodes.sort_unstable();
    let work = Work { taken, taken_inodes, corrections: all.corrections, ..Work::default() };
    booking.apply(&work)?;
    update.commit();
    cache.write_out(&cache.collect())
}

/// The clusters in which runs of blocks of one file lie.
pub(crate) fn clusters(geometry: &Geometry, runs: &[BlockRun]) -> Vec<ClusterRun> {
    let mut clusters: Vec<ClusterRun> =
        runs.iter().filter(|run| run.count > 0).map(|run| groups::clusters_of(geometry, *run)).collect();
    clusters.sort_unstable_by_key(|run| run.start);
    groups::merged(clusters)
}

impl Booking<'_, '_> {
    /// Fills the blocks of a table that were never used, up to that of an inode, with zeros: what a lazily initialised
    /// table holds there is anybody's guess.
    fn empty_table(&mut self, index: u32) -> Result<()> {
        let format = self.descriptors.format();
        let geometry = &format.geometry;
        let (group, inside) = (Group(index / geometry.inodes_per_group), index % geometry.inodes_per_group);
        let raw = self.descriptors.get(group)?;
        let per_block = geometry.inodes_per_block();
        for at in self.descriptors.used_inodes(&raw).div_ceil(per_block)..=inside / per_block {
            let block = Block(raw.inode_table().0 + u64::from(at));
            if format.features.descriptor_csum() && !self.update.holds(block) {
                let role = geometry.inode_at(group, at * per_block).map_or(Role::Plain, Role::Inodes);
                self.update.create(block, role);
            }
        }
        Ok(())
    }

    /// Refuses clusters that are not as they must be: in use by whom they are taken from, or free.
    fn judge(&self, runs: &[ClusterRun], are_used: bool) -> Result<()> {
        let geometry = &self.descriptors.format().geometry;
        let structures = self.descriptors.structures()?;
        let owned = runs.iter().find(|run| groups::touches(structures, **run));
        if let Some(run) = owned {
            let problem = format!("gives a file a structure of the volume, at cluster {}", run.start);
            return Err(Error::corrupt(Place::Journal, problem));
        }
        let mut touched = runs.iter().flat_map(|run| groups::groups_in(geometry, *run)).collect::<Vec<_>>();
        touched.dedup();
        for group in touched {
            let bitmap = self.descriptors.block_bitmap(&*self.update, group)?;
            let (start, _) = groups::group_span(geometry, group);
            for run in groups::within(geometry, runs, group) {
                let wrong =
                    (run.start.0..run.end()).find(|cluster| is_set(&bitmap, cluster - start) != are_used);
                if let Some(cluster) = wrong {
                    let state = if are_used { "is free already" } else { "is in use by somebody else" };
                    let block = geometry.cluster_start(Cluster(cluster));
                    return Err(Error::corrupt(
                        Place::Journal,
                        format!("takes block {block}, which {state}"),
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Runs in order, which must not overlap.
fn disjoint(mut runs: Vec<ClusterRun>) -> Result<Vec<ClusterRun>> {
    runs.sort_unstable_by_key(|run| run.start);
    match runs.windows(2).find(|pair| matches!(pair, [before, behind] if before.end() > behind.start.0)) {
        Some([_, run]) => {
            Err(Error::corrupt(Place::Journal, format!("gives cluster {} two owners", run.start)))
        }
        _ => Ok(runs),
    }
}

fn is_set(bitmap: &[u8], bit: u64) -> bool {
    let byte = usize::try_from(bit / 8).ok().and_then(|at| bitmap.get(at));
    byte.is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
}
