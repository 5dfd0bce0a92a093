//! Tunables under the kernel's names and with its defaults, and the three generations.

use crate::layout::Layout;
use crate::policy::tunable::{Settings, Source, Tunable, ours};
use std::ops::RangeInclusive;

const fn row(name: &'static str, default: u32, bounds: RangeInclusive<u32>, about: &'static str) -> Tunable {
    Tunable { source: Source::Ext4, ..ours(name, default, bounds, about) }
}

const fn of_experiments(
    name: &'static str,
    default: u32,
    bounds: RangeInclusive<u32>,
    about: &'static str,
) -> Tunable {
    Tunable { source: Source::Experiment, ..ours(name, default, bounds, about) }
}

/// Parameters, with the defaults of [`Tunables::new`].
pub const TUNABLES: &[Tunable] = &[
    row("mb_max_to_scan", 200, 0..=u32::MAX, "free runs after which a scan takes the best one seen"),
    row("mb_min_to_scan", 10, 0..=u32::MAX, "free runs seen before one that is longer than wanted is taken"),
    row("mb_order2_req", 2, 0..=32, "smallest order that is looked for among buddies"),
    row("mb_stream_req", 16, 0..=u32::MAX, "files up to this many blocks share a preallocation"),
    row(
        "mb_group_prealloc",
        0,
        0..=1 << 19,
        "clusters a locality group preallocates; 0: those of 512 blocks, at least 32",
    ),
    row("mb_best_avail_max_trim_order", 3, 0..=31, "halvings of the goal in search of the best available"),
    row(
        "mb_max_linear_groups",
        0,
        0..=u32::MAX,
        "groups scanned in order before the sets; 4 on rotating disks",
    ),
    row(
        "mb_optimize_scan",
        2,
        0..=2,
        "0: groups are scanned in order, without the sets; 2: so on volumes of less than 16 groups",
    ),
    row(
        "stripe",
        0,
        0..=1 << 19,
        "clusters of a RAID stripe, to which goals are raised and aligned; 0: as the volume says",
    ),
    of_experiments("cpus", 1, 1..=65_536, "processors, each with a locality group"),
    of_experiments(
        "streams",
        0,
        0..=65_536,
        "goals of large files that are remembered, as many as processors are possible; 0: as cpus",
    ),
    of_experiments("forced_goal", 0, 0..=1 << 19, "clusters every request is raised to; 0: as its file says"),
    of_experiments(
        "searchers",
        1,
        1..=65_536,
        "searches that go on at once; those that end with the best run seen all see the same one",
    ),
    of_experiments("no_normalize", 0, 0..=1, "1: requests are not raised, as fallocate asks for"),
];

/// Kernel whose selection is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// Up to 6.4: no trimming to the best available length; every run is measured.
    UpTo64,
    /// 6.5 to 6.16: `best_avail`, short runs skipped, groups in lists by age of their order.
    From65,
    /// 6.17: several stream goals, sets by group number, traversed to the end before the start.
    From617,
}

/// Settings of [`super::Mballoc`], each with the kernel's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// Kernel whose selection is followed.
    pub generation: Generation,
    /// CPUs, of which each has a locality group; the file's key chooses.
    pub cpus: u32,
    /// Stream goals of 6.17: one for each processor that is possible; 0: as many as `cpus`.
    pub streams: u32,
    /// Free runs after which a scan takes the best one seen.
    pub mb_max_to_scan: u32,
    /// Free runs that are at least seen before a sufficient one that is not exact is taken.
    pub mb_min_to_scan: u32,
    /// Smallest order that is looked for among buddies.
    pub mb_order2_req: u32,
    /// Files up to this many blocks share a locality group's preallocation.
    pub mb_stream_req: u32,
    /// Clusters a locality group preallocates; 0: see `Tunables::group_prealloc`.
    pub mb_group_prealloc: u32,
    /// Steps of two by which `best_avail` trims at most.
    pub mb_best_avail_max_trim_order: u32,
    /// Groups scanned in order before the sets are asked, as on rotating disks.
    pub mb_max_linear_groups: u32,
    /// 0: groups are scanned in order, without the sets; 2: so on small volumes.
    pub mb_optimize_scan: u32,
    /// Clusters of a RAID stripe; 0 is none.
    pub stripe: u32,
    /// Clusters a request is raised to when the file's own window is not to decide; 0 is off.
    /// (For reproducing a run whose normalised length is known.)
    pub forced_goal: u32,
    /// Searches that go on at once. Of those that end because enough was scanned, one gets the best run that all of them saw,
    /// and the others take the first free one (the kernel's `lost_chunks`).
    pub searchers: u32,
    /// 1: requests are not raised, as `fallocate` asks for; 0 otherwise.
    pub no_normalize: u32,
}

impl Tunables {
    /// The kernel's defaults.
    #[must_use]
    pub fn new(generation: Generation) -> Self {
        Tunables {
            generation,
            cpus: 1,
            streams: 0,
            mb_max_to_scan: 200,
            mb_min_to_scan: 10,
            mb_order2_req: 2,
            mb_stream_req: 16,
            mb_group_prealloc: 0,
            mb_best_avail_max_trim_order: 3,
            mb_max_linear_groups: 0,
            mb_optimize_scan: 2,
            stripe: 0,
            forced_goal: 0,
            searchers: 1,
            no_normalize: 0,
        }
    }

    /// The defaults but for what is set.
    #[must_use]
    pub fn tuned(generation: Generation, settings: &Settings) -> Self {
        let mut tunables = Self::new(generation);
        for (name, value) in settings.iter() {
            tunables.set(name, value);
        }
        tunables
    }

    /// Sets the tunable of this name; `false` if there is none.
    pub fn set(&mut self, name: &str, value: u32) -> bool {
        let slot = match name {
            "cpus" => &mut self.cpus,
            "streams" => &mut self.streams,
            "mb_max_to_scan" => &mut self.mb_max_to_scan,
            "mb_min_to_scan" => &mut self.mb_min_to_scan,
            "mb_order2_req" => &mut self.mb_order2_req,
            "mb_stream_req" => &mut self.mb_stream_req,
            "mb_group_prealloc" => &mut self.mb_group_prealloc,
            "mb_best_avail_max_trim_order" => &mut self.mb_best_avail_max_trim_order,
            "mb_optimize_scan" => &mut self.mb_optimize_scan,
            "mb_max_linear_groups" => &mut self.mb_max_linear_groups,
            "stripe" => &mut self.stripe,
            "forced_goal" => &mut self.forced_goal,
            "searchers" => &mut self.searchers,
            "no_normalize" => &mut self.no_normalize,
            _ => return false,
        };
        *slot = value;
        true
    }

    /// True if groups are found by their sets: on volumes of 16 groups and more, unless it is said (Linux 6.18,
    /// `ext4_fill_super` with `MB_DEFAULT_LINEAR_SCAN_THRESHOLD`).
    pub(super) fn has_sets(&self, layout: &Layout) -> bool {
        const LEAST: u32 = 16;
        match self.mb_optimize_scan {
            0 => false,
            1 => true,
            _ => layout.groups >= LEAST,
        }
    }

    /// Stream goals: no more than a quarter of the groups (`ext4_mb_init`).
    pub(super) fn streams(&self, layout: &Layout) -> u32 {
        let possible = if self.streams == 0 { self.cpus } else { self.streams };
        possible.min(layout.groups.div_ceil(4)).max(1)
    }

    /// Clusters a locality group preallocates: those of 512 blocks but at least 32, in whole stripes.
    pub(super) fn group_prealloc(&self, layout: &Layout) -> u32 {
        let clusters = match self.mb_group_prealloc {
            0 => (512 / layout.blocks_per_cluster.max(1)).max(32),
            set => set,
        };
        clusters.checked_next_multiple_of(self.stripe.max(1)).unwrap_or(clusters)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn the_table_and_the_struct_agree() {
        let plain = Tunables::new(Generation::From617);
        for tunable in TUNABLES {
            let mut tunables = plain;
            assert!(tunables.set(tunable.name, tunable.default), "{}", tunable.name);
            assert_eq!(tunables, plain, "{}", tunable.name);
            assert!(tunables.set(tunable.name, tunable.default ^ 1) && tunables != plain, "{}", tunable.name);
        }
    }
}
