//! Windows: clusters claimed behind the end of a growing file, in memory only.
//!
//! A window doubles each time it is used up, in place while the clusters behind it are free. The
//! first one lies where a small file would lie. When a file has outgrown it and can't go on in
//! place, it moves to the longest run of a class that still leaves it room to grow, so that
//! writers side by side end with one extent per region of 32,768 clusters.

use super::super::{Choice, Source};
use crate::request::{Refusal, Request};
use crate::stats::Counter;
use crate::view::View;
use ondisk::units::{Cluster, ClusterRun};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Clusters of the first window.
const FIRST: u32 = 32;
/// Largest window.
const LARGEST: u32 = 32_768;
/// Room a file looks for when it moves, from the most to the least.
const ROOM: [u32; 4] = [32_768, 8_192, 1_024, 128];
/// Independent tables, so that threads with different files don't meet.
const SHARDS: usize = 16;

/// A claimed run behind the end of a file, and how long the next one shall be.
#[derive(Clone, Copy)]
struct Window {
    run: ClusterRun,
    next: u32,
}

/// The windows of all files.
#[derive(Default)]
pub(super) struct Windows {
    shards: [Mutex<BTreeMap<u64, Window>>; SHARDS],
}

impl Windows {
    fn shard(&self, owner: u64) -> Option<MutexGuard<'_, BTreeMap<u64, Window>>> {
        let index = usize::try_from(owner).unwrap_or(0) % SHARDS;
        Some(self.shards.get(index)?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Clusters for a growing file: from its window, or with a new one. `None` leaves the choice
    /// to the search for files of known size.
    pub(super) fn choose(&self, view: &View<'_>, request: &Request) -> Result<Option<Choice>, Refusal> {
        if let Some(choice) = self.rest(request) {
            view.note(Counter::WindowHits, 1);
            return Ok(Some(choice));
        }
        view.note(Counter::WindowMisses, 1);
        let ahead = self.size(view, request);
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
        let moves = request.offset >= u64::from(FIRST);
        let rooms = ROOM.iter().copied().filter(|&room| moves && room > wish);
        for room in rooms.chain([wish, request.want]) {
            if let Some(start) = view.near_fit(&Request { want: room, ..*request }) {
                return Ok(Some(with_surplus(request, start, wish.min(room.max(request.want)))));
            }
        }
        Ok(None)
    }

    /// Clusters of the file's window, if the request goes on there.
    pub(super) fn rest(&self, request: &Request) -> Option<Choice> {
        let mut windows = self.shard(request.owner)?;
        let window = windows.get_mut(&request.owner)?;
        let run = window.run;
        if run.count < request.min || run.count == 0 || !request.extends || run.start != request.goal {
            return None;
        }
        let count = run.count.min(request.want);
        window.run = ClusterRun { start: Cluster(run.start.0 + u64::from(count)), count: run.count - count };
        Some(Choice { run: ClusterRun { start: run.start, count }, source: Source::Claimed })
    }

    /// Clusters to claim beyond the request: twice the last window, but no more than the file
    /// already has or a 64th of what is free.
    fn size(&self, view: &View<'_>, request: &Request) -> u32 {
        let last = self.shard(request.owner).and_then(|windows| Some(windows.get(&request.owner)?.next));
        let file = u32::try_from(request.offset.saturating_add(u64::from(request.want))).unwrap_or(LARGEST);
        let free = u32::try_from(view.free_clusters() / 64).unwrap_or(LARGEST);
        last.unwrap_or(FIRST).min(file.max(FIRST)).min(free).min(LARGEST)
    }

    /// Remembers the surplus of a choice. What was left of an older window is given up.
    pub(super) fn taken(&self, view: &View<'_>, request: &Request, choice: &Choice) -> Vec<ClusterRun> {
        let Source::FreeWithSurplus(whole) = choice.source else { return Vec::new() };
        let Some(mut windows) = self.shard(request.owner) else { return Vec::new() };
        let start = Cluster(choice.run.end());
        let count = whole.count - choice.run.count;
        let before = windows.get(&request.owner).copied();
        let next = before.map_or(FIRST, |window| window.next).saturating_mul(2).min(LARGEST);
        windows.insert(request.owner, Window { run: ClusterRun { start, count }, next });
        view.note(Counter::Preallocated, u64::from(count));
        before.map(|window| window.run).filter(|run| run.count > 0).into_iter().collect()
    }

    /// Gives up the window of a file.
    pub(super) fn give_up(&self, owner: u64) -> Vec<ClusterRun> {
        let window = self.shard(owner).and_then(|mut windows| windows.remove(&owner));
        window.map(|window| window.run).filter(|run| run.count > 0).into_iter().collect()
    }

    /// Gives up all windows.
    pub(super) fn give_up_all(&self) -> Vec<ClusterRun> {
        let mut runs = Vec::new();
        for shard in &self.shards {
            let windows = std::mem::take(&mut *shard.lock().unwrap_or_else(PoisonError::into_inner));
            runs.extend(windows.into_values().map(|window| window.run).filter(|run| run.count > 0));
        }
        runs
    }

    /// All that is claimed.
    pub(super) fn claims(&self) -> Vec<ClusterRun> {
        let mut runs = Vec::new();
        for shard in &self.shards {
            let windows = shard.lock().unwrap_or_else(PoisonError::into_inner);
            runs.extend(windows.values().map(|window| window.run).filter(|run| run.count > 0));
        }
        runs
    }
}

fn with_surplus(request: &Request, start: Cluster, count: u32) -> Choice {
    let whole = ClusterRun { start, count };
    let run = ClusterRun { start, count: request.want };
    Choice { run, source: if count > request.want { Source::FreeWithSurplus(whole) } else { Source::Free } }
}
