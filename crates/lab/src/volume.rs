//! A volume without data: the engine, files as lists of runs, and the loop every file system has
//! around an allocator.

use crate::numbers::float;
use ondisk::units::{Cluster, ClusterRun, Group};
use placement::{Engine, GroupContent, Layout, Refusal, Request};

/// A file: its runs in file order, neighbours joined.
#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    pub(crate) key: u64,
    pub(crate) directory: u64,
    pub(crate) runs: Vec<ClusterRun>,
}

impl File {
    pub(crate) fn clusters(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.count)).sum()
    }

    /// Adds a run to the end.
    pub(crate) fn push(&mut self, run: ClusterRun) {
        match self.runs.last_mut() {
            Some(last) if last.end() == run.start.0 && last.count.checked_add(run.count).is_some() => {
                last.count += run.count;
            }
            _ => self.runs.push(run),
        }
    }
}

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    /// Its final size is known: delayed until it was closed.
    Whole,
    /// More is expected behind this piece.
    Growing,
}

/// A volume that is filled by one policy.
pub(crate) struct Volume {
    pub(crate) engine: Engine,
    next_key: u64,
    /// Largest request: how much a file system asks for at once.
    pub(crate) largest: u32,
}

impl Volume {
    /// A volume on an engine that was made elsewhere.
    pub(crate) fn on(engine: Engine) -> Volume {
        Volume { engine, next_key: 11, largest: u32::MAX }
    }

    /// Describes all groups as untouched.
    pub(crate) fn describe_empty(&self) -> Option<()> {
        let layout = *self.engine.layout();
        for group in (0..layout.groups).map(Group) {
            let free = layout.clusters_of(group);
            self.engine.describe_group(group, free, GroupContent::Uninitialised { used: &[] }).ok()?;
        }
        Some(())
    }

    /// A file without clusters.
    pub(crate) fn file(&mut self, directory: u64) -> File {
        self.next_key += 1;
        File { key: self.next_key, directory, runs: Vec::new() }
    }

    /// Adds `count` clusters to the end of a file; false if the volume is full. What was allocated
    /// until then stays.
    pub(crate) fn append(&self, file: &mut File, count: u32, goal: Cluster, writing: Writing) -> bool {
        let mut left = count;
        while left > 0 {
            let offset = file.clusters();
            let end = file.runs.last().map(|run| run.end());
            let want = left.min(self.largest);
            let request = Request {
                owner: file.key,
                directory: file.directory,
                offset,
                extends: end.is_some(),
                size: offset + u64::from(left),
                growing: writing == Writing::Growing,
                ..Request::data(end.map_or(goal, Cluster), want)
            };
            match self.engine.allocate(&request) {
                Ok(grant) => {
                    let run = grant.keep();
                    left -= run.count.min(left);
                    file.push(run);
                }
                Err(Refusal::NeedBitmap(_) | Refusal::NoSpace) => return false,
            }
        }
        true
    }

    /// The last writer of the file is gone.
    pub(crate) fn close(&self, file: &File) {
        self.engine.closed(file.key);
    }

    /// Frees a file's clusters.
    pub(crate) fn remove(&self, file: &File) {
        self.engine.truncated(file.key);
        for run in &file.runs {
            // Fails only for runs that are not in use, and these are.
            let _ = self.engine.free(*run);
        }
    }

    /// Share of the volume that is in use.
    pub(crate) fn fullness(&self) -> f64 {
        1.0 - float(self.engine.free_clusters()) / float(self.engine.layout().clusters)
    }
}

/// The geometry of mke2fs for this many full groups.
pub(crate) fn layout(groups: u32, clusters_per_group: u32) -> Layout {
    Layout {
        clusters: u64::from(groups) * u64::from(clusters_per_group),
        clusters_per_group,
        groups,
        inodes_per_group: 8_192,
        groups_per_flex: 16,
    }
}
