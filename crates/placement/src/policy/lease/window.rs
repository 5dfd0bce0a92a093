//! Windows: clusters claimed behind the end of a growing file, in memory only.
//!
//! A claim costs nothing until it is used and is given up at close, so the first window is as long
//! as the file may well become: several times what files of this directory grew by after their
//! first request, or half a region where none was closed yet. Each further one is twice as long, in
//! place while the clusters behind it are free, else in the tightest run that holds it. So writers
//! side by side don't meet, and files that come in one piece don't cut up long runs.

use super::super::tunable::{Settings, Tunable, ours};
use super::super::{Choice, Source};
use crate::request::{Refusal, Request};
use crate::stats::Counter;
use crate::sync::{Mutex, MutexGuard, PoisonError};
use crate::view::View;
use ondisk::units::{Cluster, ClusterRun, saturated};
use std::collections::BTreeMap;

pub(super) const FIRST: Tunable = ours("lease_window_least", 32, 1..=32_768, "clusters of a window at least");
/// Half of what a region holds, so that the next one, twice as long, has room behind it.
pub(super) const UNKNOWN: Tunable = ours(
    "lease_window_unknown",
    16_384,
    0..=1 << 20,
    "clusters of a first window where no file of the directory has grown yet",
);
pub(super) const LARGEST: Tunable =
    ours("lease_window_most", 131_072, 1..=1 << 24, "clusters of a window at most");
pub(super) const SHARE: Tunable = ours(
    "lease_window_share",
    64,
    1..=1 << 20,
    "a window is at most this part of the free clusters, as a divisor",
);
/// Where 64 files begin to grow side by side on 2 GiB or more, three quarters of what is free stay whole.
pub(super) const SHARE_FIRST: Tunable = ours(
    "lease_first_window_share",
    256,
    1..=1 << 20,
    "a first window of more than 2,048 clusters is at most this part of the free ones, as a divisor",
);
pub(super) const AMPLE: Tunable = ours(
    "lease_window_ample",
    4,
    1..=1_024,
    "a first window has this many times the room that files of the directory grew by",
);
/// See [`SHARE_FIRST`].
const LONG: u32 = 2048;
/// Independent tables, so that threads with different files don't meet.
const SHARDS: usize = 16;
/// Directories a table remembers.
const DIRECTORIES: usize = 256;

/// A claimed run behind the end of a file, which may be empty.
#[derive(Clone, Copy)]
struct Window {
    run: ClusterRun,
    /// Length of the next one.
    next: u32,
    directory: u64,
    /// Clusters of the file after its first request in a window, and now.
    first: u32,
    size: u32,
}

/// Windows by file, and clusters by which files grew by directory.
#[derive(Default)]
struct Table {
    windows: BTreeMap<u64, Window>,
    grown: BTreeMap<u64, u32>,
}

/// The windows of all files.
pub(super) struct Windows {
    sizes: Sizes,
    shards: [Mutex<Table>; SHARDS],
}

/// The values of the tunables.
struct Sizes {
    first: u32,
    unknown: u32,
    largest: u32,
    share: u64,
    share_first: u64,
    ample: u32,
}

impl Windows {
    pub(super) fn new(settings: &Settings) -> Self {
        let first = settings.value(&FIRST);
        let sizes = Sizes {
            first,
            unknown: settings.value(&UNKNOWN),
            largest: settings.value(&LARGEST).max(first),
            share: settings.value(&SHARE).into(),
            share_first: settings.value(&SHARE_FIRST).into(),
            ample: settings.value(&AMPLE),
        };
        Windows { sizes, shards: Default::default() }
    }

    fn shard<'a>(&'a self, view: &View<'_>, key: u64) -> Option<MutexGuard<'a, Table>> {
        let index = usize::try_from(key).unwrap_or(0) % SHARDS;
        Some(view.lock(self.shards.get(index)?))
    }

    fn all(&self) -> impl Iterator<Item = MutexGuard<'_, Table>> {
        self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Clusters for a growing file: from its window, or with a new one in a run of less than
    /// `below`. `None` leaves the choice to the search for files of known size.
    pub(super) fn choose(
        &self,
        view: &View<'_>,
        request: &Request,
        below: u32,
    ) -> Result<Option<Choice>, Refusal> {
        if let Some(choice) = self.rest(view, request) {
            view.note(Counter::WindowHits, 1);
            return Ok(Some(choice));
        }
        view.note(Counter::WindowMisses, 1);
        let ahead = self.size(view, request);
        if ahead == 0 {
            return Ok(None);
        }
        let wish = request.want.saturating_add(ahead);
        if request.extends {
            let here = view.reach(request.goal, wish);
            if here >= request.want {
                return Ok(Some(with_surplus(request, request.goal, here)));
            }
            if let Some(group) = view.unknown_at(request.goal)
                && view.may_ask(request)
            {
                return Err(Refusal::NeedBitmap(group));
            }
        }
        let rooms = std::iter::successors(Some(wish), |room| Some(room / 2));
        for room in rooms.take_while(|&room| room > request.want) {
            if let Some(start) = view.near_fit_below(&Request { want: room, ..*request }, below) {
                return Ok(Some(with_surplus(request, start, room)));
            }
        }
        Ok(None)
    }

    /// Clusters of the file's window, if the request goes on there.
    pub(super) fn rest(&self, view: &View<'_>, request: &Request) -> Option<Choice> {
        let mut table = self.shard(view, request.owner)?;
        let window = table.windows.get_mut(&request.owner)?;
        let run = window.run;
        if run.count < request.min || run.count == 0 || !request.extends || run.start != request.goal {
            return None;
        }
        let count = run.count.min(request.want);
        window.run = ClusterRun { start: Cluster(run.start.0 + u64::from(count)), count: run.count - count };
        window.size = clusters(request).max(window.size);
        Some(Choice { run: ClusterRun { start: run.start, count }, source: Source::Claimed })
    }

    /// Clusters to claim beyond the request. For the first one of a file what its directory
    /// teaches; then twice the last window and at least what the file has; never much of what is
    /// free.
    fn size(&self, view: &View<'_>, request: &Request) -> u32 {
        let sizes = &self.sizes;
        let last =
            self.shard(view, request.owner).and_then(|table| Some(table.windows.get(&request.owner)?.next));
        let grown = |directory| self.shard(view, directory)?.grown.get(&directory).copied();
        let part = |share| u32::try_from(view.free_clusters() / share).unwrap_or(sizes.largest);
        let size = if request.offset > 0 {
            last.unwrap_or(sizes.first).max(clusters(request)).max(sizes.first)
        } else {
            let taught = match grown(request.directory) {
                Some(0) => 0,
                Some(ahead) => ahead.saturating_mul(sizes.ample).max(sizes.first),
                None => sizes.unknown,
            };
            taught.min(part(sizes.share_first).max(LONG))
        };
        size.min(part(sizes.share)).min(sizes.largest)
    }

    /// Remembers a growing file and the surplus of the choice. What was left of an older window is
    /// given up.
    pub(super) fn taken(&self, view: &View<'_>, request: &Request, choice: &Choice) -> Vec<ClusterRun> {
        let surplus = match choice.source {
            Source::FreeWithSurplus(whole) => whole.count - choice.run.count,
            Source::Free if request.growing => 0,
            Source::Free | Source::Claimed => return Vec::new(),
        };
        let Some(mut table) = self.shard(view, request.owner) else { return Vec::new() };
        let before = table.windows.get(&request.owner).copied();
        let window = Window {
            run: ClusterRun { start: Cluster(choice.run.end()), count: surplus },
            next: surplus.saturating_mul(2).min(self.sizes.largest),
            directory: request.directory,
            first: before.map_or(clusters(request), |window| window.first),
            size: clusters(request),
        };
        table.windows.insert(request.owner, window);
        view.note(Counter::Preallocated, u64::from(surplus));
        before.map(|window| window.run).filter(|run| run.count > 0).into_iter().collect()
    }

    /// Gives up the window of a file that is closed, and learns by how much it grew: more at once,
    /// less by and by.
    pub(super) fn closed(&self, view: &View<'_>, owner: u64) -> Vec<ClusterRun> {
        let Some(window) = self.shard(view, owner).and_then(|mut table| table.windows.remove(&owner)) else {
            return Vec::new();
        };
        if let Some(mut table) = self.shard(view, window.directory) {
            if table.grown.len() >= DIRECTORIES {
                table.grown.clear();
            }
            let grown = table.grown.entry(window.directory).or_insert(0);
            *grown = window.size.saturating_sub(window.first).max(*grown - grown.div_ceil(8));
        }
        Some(window.run).filter(|run| run.count > 0).into_iter().collect()
    }

    /// Gives up the window of a file that was cut.
    pub(super) fn give_up(&self, view: &View<'_>, owner: u64) -> Vec<ClusterRun> {
        let window = self.shard(view, owner).and_then(|mut table| table.windows.remove(&owner));
        window.map(|window| window.run).filter(|run| run.count > 0).into_iter().collect()
    }

    /// Gives up all windows.
    pub(super) fn give_up_all(&self) -> Vec<ClusterRun> {
        let taken = self.all().flat_map(|mut table| std::mem::take(&mut table.windows).into_values());
        taken.map(|window| window.run).filter(|run| run.count > 0).collect()
    }

    /// True if windows claim at least `count` clusters together: many short ones can hold most of what is free.
    pub(super) fn hold(&self, count: u32) -> bool {
        let mut sum = 0u64;
        self.all().any(|table| {
            sum += table.windows.values().map(|window| u64::from(window.run.count)).sum::<u64>();
            sum >= u64::from(count)
        })
    }

    /// All that is claimed.
    pub(super) fn claims(&self) -> Vec<ClusterRun> {
        let mut runs = Vec::new();
        for table in self.all() {
            runs.extend(table.windows.values().map(|window| window.run).filter(|run| run.count > 0));
        }
        runs
    }
}

/// Clusters the file has with the request.
fn clusters(request: &Request) -> u32 {
    saturated::<u32>(request.offset.saturating_add(u64::from(request.want)))
}

fn with_surplus(request: &Request, start: Cluster, count: u32) -> Choice {
    let whole = ClusterRun { start, count };
    let run = ClusterRun { start, count: request.want };
    Choice { run, source: if count > request.want { Source::FreeWithSurplus(whole) } else { Source::Free } }
}

#[cfg(test)]
mod tests;
