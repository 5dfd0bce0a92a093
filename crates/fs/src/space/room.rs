//! Clusters taken before the update that gives them to a file: for blocks that move, which get their bytes first.
//!
//! Owns: the clusters in between. A dropped [`Room`] gives back what no update took for good, and an attempt that is
//! dropped leaves the room as it was. Excludes: which bytes go there, and when the map leads there.

use std::sync::{Arc, Mutex};

use ondisk::units::{Block, ClusterRun, InodeNumber, low_u32};
use placement::Request;

use super::grant::UncommittedGrant;
use super::groups;
use super::pending::PendingSpace;
use super::taking::SpaceMut;
use crate::error::{Error, Result};
use crate::locks::lock;
use crate::txn::Claim;

/// Request for room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoomRequest {
    /// The file.
    pub(crate) owner: InodeNumber,
    /// The directory whose files should lie together, if it is known.
    pub(crate) directory: Option<InodeNumber>,
    /// Where the first run would best begin.
    pub(crate) goal: Block,
    /// All clusters together.
    pub(crate) clusters: u32,
    /// Runs that they may come in, at most.
    pub(crate) most_runs: u64,
    /// The first place at or after the goal that holds a run, rather than the best.
    pub(crate) first_fit: bool,
}

/// Clusters that are in use for the engine, and lead nowhere yet.
pub(crate) struct Room {
    grants: Arc<Mutex<Vec<UncommittedGrant>>>,
    runs: Vec<ClusterRun>,
}

impl Room {
    /// Its runs, in the order in which the file is to use them; neighbours are one.
    pub(crate) fn runs(&self) -> &[ClusterRun] {
        &self.runs
    }

    fn add(&mut self, grant: UncommittedGrant) {
        let run = grant.run();
        match self.runs.last_mut() {
            Some(last) if last.end() == run.start.0 && last.count.checked_add(run.count).is_some() => {
                last.count += run.count;
            }
            _ => self.runs.push(run),
        }
        lock(&self.grants).push(grant);
    }
}

/// All of a room as a part of an update.
struct GivenRoom {
    grants: Arc<Mutex<Vec<UncommittedGrant>>>,
    pending: Arc<Mutex<PendingSpace>>,
}

impl Claim for GivenRoom {
    fn commit(self: Box<Self>) {
        let grants = std::mem::take(&mut *lock(&self.grants));
        let mut pending = lock(&self.pending);
        grants.into_iter().for_each(|grant| pending.took_blocks(grant.keep()));
    }
}

impl SpaceMut<'_, '_> {
    /// Takes clusters in a limited number of runs; `None` if they can't be had so.
    ///
    /// # Errors
    /// A bitmap that can't be read.
    pub(crate) fn room(&self, wanted: &RoomRequest) -> Result<Option<Room>> {
        let geometry = &self.writing.format.geometry;
        let mut room = Room { grants: Arc::default(), runs: Vec::new() };
        let (mut done, mut goal) = (0, geometry.cluster_of(wanted.goal));
        while done < wanted.clusters {
            let count = (wanted.clusters - done).min(geometry.clusters_per_group());
            let mut request = Request::data(goal, count);
            // One more run is allowed where the last was not the last.
            let is_last = room.runs.len() as u64 + 1 >= wanted.most_runs;
            request.min = if is_last { count } else { 1 };
            request.owner = u64::from(wanted.owner.get());
            request.directory = wanted.directory.map_or(0, |directory| u64::from(directory.get()));
            (request.offset, request.extends) = (u64::from(done), done > 0);
            (request.size, request.stream) = (u64::from(wanted.clusters), wanted.first_fit);
            let grant = match self.allocate(request) {
                Err(Error::NoSpace) => return Ok(None),
                grant => grant?,
            };
            (done, goal) = (done + grant.run().count, ondisk::units::Cluster(grant.run().end()));
            room.add(grant);
            if room.runs.len() as u64 > wanted.most_runs {
                return Ok(None);
            }
        }
        Ok(Some(room))
    }

    /// Makes all of a room a part of the update; returns the blocks to charge to the file.
    pub(crate) fn give_room(&mut self, room: &Room) -> u64 {
        let geometry = &self.writing.format.geometry;
        let mut clusters = 0;
        for run in &room.runs {
            groups::groups_in(geometry, *run).for_each(|group| self.update.note_group(group));
            clusters += u64::from(run.count);
        }
        let (grants, pending) = (Arc::clone(&room.grants), Arc::clone(&self.writing.pending));
        self.update.claim(GivenRoom { grants, pending });
        clusters << geometry.cluster_log2
    }
}

/// The clusters of some runs, one after the other.
pub(crate) struct ClustersOf<'r> {
    runs: &'r [ClusterRun],
}

impl<'r> ClustersOf<'r> {
    /// Those of a room.
    pub(crate) fn new(runs: &'r [ClusterRun]) -> Self {
        ClustersOf { runs }
    }

    /// The n-th cluster with those that follow it in its run; `None` behind the last.
    pub(crate) fn from(&self, n: u64) -> Option<ClusterRun> {
        let mut before = 0;
        for run in self.runs {
            let count = u64::from(run.count);
            if n < before + count {
                let skipped = n - before;
                let start = ondisk::units::Cluster(run.start.0 + skipped);
                return Some(ClusterRun { start, count: low_u32(count - skipped) });
            }
            before += count;
        }
        None
    }
}
