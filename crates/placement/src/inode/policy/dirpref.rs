//! `dirpref`: the directory rule of the Berkeley fast file system since 2001.
//!
//! Source: the change of FFS's `dirpref` in April 2001 and its tunables.
//! Rules:
//! - A first-level directory: from a place its name decides, the group with the fewest directories
//!   among those with at least the mean of free inodes and free clusters.
//! - Others: the first group from the parent's on with fewer directories than the mean plus a
//!   sixteenth of the inodes, free inodes and clusters at most a quarter of a group under the
//!   mean, and fewer directories in a row than `maxcontigdirs`; else the first with the mean of
//!   free inodes.
//! - `maxcontigdirs` is the bytes of a group over the expected bytes of a directory (the product
//!   of `avgfilesize` and `avgfpdir`, or what directories hold on average if that is more), at
//!   most 255 and the inodes of a group over `avgfpdir`, at least 1.
//! - A byte for each group counts directories in a row: +1 for a directory created in it, -1 for
//!   any other inode.
//! - Other inodes go to their directory's group; where it is full, as in `spread`.
//!
//! Deviations: the original begins at a random group for first-level directories. The later
//! variants, three quarters of the mean in place of a quarter of a group under it and the free
//! bytes in place of all bytes of a group, are not followed.

use super::spread::rehash;
use super::{Counts, DirectoryPolicy, Goal, InodeView, cycle, fewest_dirs, mean_inodes_or_any};
use crate::inode::InodeRequest;
use crate::policy::tunable::{Settings, Source, Tunable};
use crate::sync::{Mutex, PoisonError};
use ondisk::units::Group;
use std::collections::BTreeMap;

/// Expected bytes of a file.
const SIZE: Tunable = Tunable {
    name: "avgfilesize",
    default: 16_384,
    least: 1,
    most: 1 << 30,
    about: "bytes that a file is expected to have",
    source: Source::FreeBsd,
};
/// Expected files of a directory.
const FILES: Tunable = Tunable {
    name: "avgfpdir",
    default: 64,
    least: 1,
    most: 1 << 20,
    about: "files that a directory is expected to have",
    source: Source::FreeBsd,
};
/// Parameters, under the names and with the defaults of FFS.
pub(super) const TUNABLES: &[Tunable] = &[SIZE, FILES];

/// See the module.
pub struct Dirpref {
    avgfilesize: u32,
    avgfpdir: u32,
    contigdirs: GroupBytes,
}

impl Dirpref {
    /// A policy with these settings.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        Dirpref {
            avgfilesize: settings.value(&SIZE),
            avgfpdir: settings.value(&FILES),
            contigdirs: GroupBytes::default(),
        }
    }

    fn max_contig_dirs(&self, view: &InodeView<'_>, mean: Counts) -> u8 {
        let layout = view.layout();
        let cluster = layout.cluster_bytes();
        let size = u64::from(layout.clusters_per_group) * cluster;
        let used = size.saturating_sub(mean.clusters * cluster);
        let current = used.checked_div(mean.dirs).unwrap_or(0);
        let expected = u64::from(self.avgfilesize) * u64::from(self.avgfpdir);
        let by_bytes = size.checked_div(expected.max(current)).unwrap_or(255).min(255);
        let by_inodes = layout.inodes_per_group.checked_div(self.avgfpdir).unwrap_or(255);
        u8::try_from(by_bytes.min(u64::from(by_inodes)).clamp(1, 255)).unwrap_or(255)
    }

    fn in_limits(&self, view: &InodeView<'_>, start: u32) -> Option<u32> {
        let layout = view.layout();
        let mean = view.totals().mean_of(layout.groups);
        let inodes = u64::from(layout.inodes_per_group);
        let max_dirs = (mean.dirs + inodes / 16).min(inodes);
        let min_inodes = mean.inodes.saturating_sub(inodes / 4);
        let min_clusters = mean.clusters.saturating_sub(u64::from(layout.clusters_per_group) / 4);
        let in_a_row = self.max_contig_dirs(view, mean);
        cycle(start, layout.groups).find(|&group| {
            let counts = view.group(Group(group));
            counts.dirs < max_dirs
                && counts.inodes >= min_inodes
                && counts.clusters >= min_clusters
                && self.contigdirs.get(Group(group)) < in_a_row
        })
    }
}

impl DirectoryPolicy for Dirpref {
    fn for_directory(&self, view: &InodeView<'_>, request: &InodeRequest) -> Goal {
        let groups = view.layout().groups.max(1);
        let parent = view.group_of(request.parent);
        let start = if request.top_level { request.name_hash % groups } else { parent.0 };
        let chosen = if request.top_level {
            let mean = view.totals().mean_of(groups);
            fewest_dirs(cycle(start, groups), mean, |group| view.group(Group(group)))
        } else {
            self.in_limits(view, start)
        };
        Goal::in_group(chosen.map_or_else(|| mean_inodes_or_any(view, Group(start), view.totals()), Group))
    }

    fn elsewhere(&self, view: &InodeView<'_>, _request: &InodeRequest, home: Group) -> Vec<Group> {
        rehash(view, home)
    }

    fn created(&self, view: &InodeView<'_>, request: &InodeRequest, index: u32) {
        self.contigdirs.step(view.group_of(index), request.is_directory);
    }
}

/// A byte for each group that rises with directories and falls with other inodes. Only bytes
/// above zero cost memory.
#[derive(Default)]
pub(super) struct GroupBytes(Mutex<BTreeMap<u32, u8>>);

impl GroupBytes {
    pub(super) fn get(&self, group: Group) -> u8 {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bytes.get(&group.0).copied().unwrap_or(0)
    }

    pub(super) fn step(&self, group: Group, up: bool) {
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = bytes.get(&group.0).copied().unwrap_or(0);
        match if up { before.saturating_add(1) } else { before.saturating_sub(1) } {
            0 => bytes.remove(&group.0),
            after => bytes.insert(group.0, after),
        };
    }
}
