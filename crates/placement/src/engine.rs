//! The block engine: asks the policy, verifies, takes.
//!
//! Owns the free space of a volume as the allocator sees it. Excludes I/O: where a bitmap is
//! needed the caller is told which, loads it and asks again. Excludes durability: what a grant
//! means on disk, and when a freed run may be reused, the caller decides.

use crate::index::map::{FreeMap, GroupContent};
use crate::layout::Layout;
use crate::policy::{BlockPolicy, BlockPolicyKind};
use crate::request::{Contradiction, Denial, Refusal, Request};
use crate::stats::{Counters, Stats};
use crate::view::View;
use ondisk::units::{Cluster, ClusterRun, Group};
use std::sync::Arc;

/// Races in a row after which a request is refused rather than tried again.
const MAX_LOST: u32 = 10_000;

/// Free space of a volume and the policy that hands it out. All verbs take `&self` and may be
/// called from many threads; single-threaded runs are a function of their calls.
pub struct Engine {
    map: Arc<FreeMap>,
    policy: Box<dyn BlockPolicy>,
    counters: Counters,
}

impl Engine {
    /// An engine that knows the geometry and nothing of the groups: until each is described, it
    /// counts as full.
    ///
    /// # Errors
    /// [`Contradiction::Layout`] for an impossible geometry.
    pub fn new(layout: Layout, policy: BlockPolicyKind) -> Result<Self, Contradiction> {
        layout.check()?;
        let map = Arc::new(FreeMap::new(layout));
        Ok(Engine { map, policy: policy.make(), counters: Counters::default() })
    }

    /// Geometry of the volume.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        self.map.layout()
    }

    /// States what the descriptor of a group says; to be called once for each group, before
    /// anything in it is used. An untouched group costs no memory beyond its slot.
    ///
    /// # Errors
    /// A group that doesn't exist, a free count above its size, used runs outside it, or (for an
    /// uninitialised group) a free count that disagrees with the used runs; in the last case the
    /// group is out of service and the rest of the volume usable.
    pub fn describe_group(
        &self,
        group: Group,
        free_clusters: u32,
        content: GroupContent<'_>,
    ) -> Result<(), Contradiction> {
        self.map.describe(group, free_clusters, content)
    }

    /// Takes in a group's bitmap as it stands on disk, bit `n` of byte `n / 8` from the lowest up.
    /// A group that is known already is left alone.
    ///
    /// # Errors
    /// A bitmap too short for the group, or one that disagrees with the described free count; then
    /// the group is out of service and the rest of the volume usable.
    pub fn load_group(&self, group: Group, bitmap: &[u8]) -> Result<(), Contradiction> {
        self.map.load(group, bitmap)
    }

    /// Finds and takes a run.
    ///
    /// # Errors
    /// [`Refusal::NeedBitmap`]: load that group's bitmap, raise `request.attempt` by one and ask
    /// again. [`Refusal::NoSpace`]: no run of the minimum length is free.
    pub fn allocate(&self, request: &Request) -> Result<Grant, Refusal> {
        self.counters.request();
        let request = request.ordered(self.layout().clusters);
        let view = View { map: &self.map, counters: &self.counters };
        for _ in 0..MAX_LOST {
            let run = self.policy.choose(&view, &request)?;
            if self.map.take(run).is_ok() {
                self.counters.granted(run.start == request.goal, run.count >= request.want);
                return Ok(Grant { map: Arc::clone(&self.map), run });
            }
            self.counters.lost();
        }
        Err(Refusal::NoSpace)
    }

    /// Takes exactly this run.
    ///
    /// # Errors
    /// [`Denial`] if a part is used, outside, or unknown; then nothing was taken.
    pub fn take_exact(&self, run: ClusterRun) -> Result<Grant, Denial> {
        self.map.take(run)?;
        Ok(Grant { map: Arc::clone(&self.map), run })
    }

    /// Gives a run back that was allocated for good; it can be granted again at once.
    ///
    /// # Errors
    /// [`Denial::NeedBitmap`]: load that group, then free again. Otherwise a part of the run was
    /// free already or lies outside the volume. In all cases nothing was freed.
    pub fn free(&self, run: ClusterRun) -> Result<(), Denial> {
        self.map.give(run)
    }

    /// Free clusters of the volume, exact: unknown groups count with what their descriptors say,
    /// clusters of grants not yet kept count as used.
    #[must_use]
    pub fn free_clusters(&self) -> u64 {
        self.map.free()
    }

    /// Free clusters of a group.
    #[must_use]
    pub fn group_free(&self, group: Group) -> u32 {
        self.map.group_free(group)
    }

    /// Whether the group's bitmap must be loaded before it can be used.
    #[must_use]
    pub fn needs_bitmap(&self, group: Group) -> bool {
        self.map.unknown_at(self.layout().group_start(group)).is_some()
    }

    /// Writes the group's bitmap into `out`: bit `n` of byte `n / 8` from the lowest up is set for
    /// a used cluster, and all bits past the group's end are set.
    ///
    /// # Errors
    /// [`Denial::NeedBitmap`] for a group whose bitmap was never loaded.
    pub fn group_bitmap(&self, group: Group, out: &mut [u8]) -> Result<(), Denial> {
        self.map.render(group, out)
    }

    /// Whether the cluster is free; `None` if its group is not loaded (or has nothing free).
    #[must_use]
    pub fn is_free(&self, cluster: Cluster) -> Option<bool> {
        let reach = self.map.reach(cluster, 1);
        if reach.unknown.is_some() { None } else { Some(reach.len > 0) }
    }

    /// The maximal free runs of all known groups, ascending; runs over group edges are one.
    pub fn free_runs(&self) -> impl Iterator<Item = ClusterRun> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let run = self.map.run_from(at)?;
            at = run.end();
            Some(run)
        })
    }

    /// Maximal free runs of one group, counted per region of 32,768 clusters.
    #[must_use]
    pub fn group_fragments(&self, group: Group) -> u32 {
        self.map.fragments(group)
    }

    /// The counters so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.counters.snapshot()
    }
}

/// Clusters that are taken but not yet anyone's for good: dropping the grant gives them back.
#[must_use = "dropping a grant gives its clusters back"]
pub struct Grant {
    map: Arc<FreeMap>,
    run: ClusterRun,
}

impl Grant {
    /// The granted run.
    #[must_use]
    pub fn run(&self) -> ClusterRun {
        self.run
    }

    /// Makes the grant permanent.
    pub fn keep(mut self) -> ClusterRun {
        let run = self.run;
        self.run.count = 0;
        run
    }

    /// Cuts the grant in two: its first `count` clusters (all, if it has fewer) and the rest.
    /// Either may be empty.
    pub fn split(mut self, count: u32) -> (Grant, Grant) {
        let head = count.min(self.run.count);
        let rest =
            ClusterRun { start: Cluster(self.run.start.0 + u64::from(head)), count: self.run.count - head };
        self.run.count = head;
        let rest = Grant { map: Arc::clone(&self.map), run: rest };
        (self, rest)
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if self.run.count > 0 {
            // Fails only if someone freed these clusters by address, which they did not own.
            let given = self.map.give(self.run);
            debug_assert!(given.is_ok(), "a granted run was freed by address: {given:?}");
        }
    }
}

impl std::fmt::Debug for Grant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Grant").field(&self.run).finish()
    }
}
