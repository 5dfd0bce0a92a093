//! `prealloc8`: the old preallocation of ext2.
//!
//! Rules followed: clusters are allocated one at a time as by `single`; with each, up to seven
//! free ones right behind it are set aside, and the file's next request takes from them if it goes
//! on there, else they are given up. ext2 marked them in the bitmap on disk, so a crash lost them;
//! here they are claims in memory, which allocates the same. Requests with a minimum over one and
//! metadata set nothing aside.

use super::single::Single;
use super::{BlockPolicy, Choice, Event, Source};
use crate::request::{Kind, Refusal, Request};
use crate::stats::Counter;
use crate::sync::{Mutex, PoisonError};
use crate::view::View;
use ondisk::units::{Cluster, ClusterRun};
use std::collections::BTreeMap;

/// Clusters set aside behind an allocated one.
const AHEAD: u32 = 7;

/// See the module.
#[derive(Default)]
pub(crate) struct Prealloc8 {
    ahead: Mutex<BTreeMap<u64, ClusterRun>>,
}

impl BlockPolicy for Prealloc8 {
    fn choose(&self, view: &View<'_>, request: &Request) -> Result<Choice, Refusal> {
        let plain = request.min > 1 || request.kind == Kind::Metadata;
        if plain || request.owner == 0 {
            return Single::default().choose(view, request);
        }
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(run) = ahead.get_mut(&request.owner)
            && run.count > 0
            && run.start == request.goal
        {
            let start = run.start;
            *run = ClusterRun { start: Cluster(start.0 + 1), count: run.count - 1 };
            view.note(Counter::WindowHits, 1);
            return Ok(Choice { run: ClusterRun { start, count: 1 }, source: Source::Claimed });
        }
        drop(ahead);
        view.note(Counter::WindowMisses, 1);
        let choice = Single::default().choose(view, request)?;
        let count = view.reach(choice.run.start, 1 + AHEAD);
        if count <= choice.run.count {
            return Ok(choice);
        }
        let whole = ClusterRun { start: choice.run.start, count };
        Ok(Choice { run: choice.run, source: Source::FreeWithSurplus(whole) })
    }

    fn taken(&self, view: &View<'_>, request: &Request, choice: &Choice) -> Vec<ClusterRun> {
        let Source::FreeWithSurplus(whole) = choice.source else { return Vec::new() };
        let count = whole.count - choice.run.count;
        view.note(Counter::Preallocated, u64::from(count));
        let rest = ClusterRun { start: Cluster(choice.run.end()), count };
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        ahead.insert(request.owner, rest).filter(|run| run.count > 0).into_iter().collect()
    }

    fn event(&self, _view: &View<'_>, event: Event) -> Vec<ClusterRun> {
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let runs = match event {
            Event::Closed(owner) | Event::Truncated(owner) => ahead.remove(&owner).into_iter().collect(),
            Event::Pressure => std::mem::take(&mut *ahead).into_values().collect::<Vec<_>>(),
        };
        runs.into_iter().filter(|run| run.count > 0).collect()
    }

    fn claims(&self) -> Vec<ClusterRun> {
        let ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        ahead.values().copied().filter(|run| run.count > 0).collect()
    }
}
