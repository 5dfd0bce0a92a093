//! `xfs`: an allocator after XFS, as its published descriptions have it (Sweeney and others, "Scalability in the
//! XFS File System", 1996, and the documentation of its `agcount` and `allocsize`).
//!
//! Rules followed: the volume is cut into few allocation groups. A file's first extent is near its inode, in
//! whose group its directory's files are; later ones go on behind the last. In the goal's group free runs are
//! found by offset, the first long enough behind the goal, then from the start of the group; in the others by
//! length, the tightest that holds all; where none does, the longest of all. A file that grows gets as much again as it has behind its end, at least 64 KiB and less when little is free, which is given up with
//! the last close. Blocks are chosen when they are written back, as the caller delays them.
//!
//! Deviations: free runs cross allocation groups; of the search by offset in both directions from the goal
//! only the forward half is done from the goal itself; metadata follows the same rules without surplus.

use super::tunable::{self, Settings, Tunable};
use super::{BlockPolicy, Choice, Event, Source};
use crate::request::{Kind, Refusal, Request};
use crate::stats::Counter;
use crate::sync::{Mutex, MutexGuard, PoisonError};
use crate::view::View;
use ondisk::units::{Cluster, ClusterRun};
use std::collections::BTreeMap;

const GROUPS: Tunable = Tunable {
    name: "agcount",
    default: 4,
    least: 1,
    most: 65_536,
    about: "allocation groups of the volume",
    source: tunable::Source::Xfs,
};
const LEAST: Tunable = Tunable {
    name: "allocsize",
    default: 64,
    least: 4,
    most: 1_048_576,
    about: "least KiB behind the end of a file that grows",
    source: tunable::Source::Xfs,
};
/// Parameters of the policy.
pub(super) const TUNABLES: &[Tunable] = &[GROUPS, LEAST];

/// Most bytes behind the end of a file.
const MOST: u64 = 8 << 30;

/// See the module.
pub(crate) struct Xfs {
    groups: u64,
    /// KiB.
    least: u64,
    /// Claimed behind the ends of growing files.
    ahead: Mutex<BTreeMap<u64, ClusterRun>>,
}

impl Xfs {
    pub(crate) fn new(settings: &Settings) -> Self {
        Xfs {
            groups: settings.value(&GROUPS).into(),
            least: settings.value(&LEAST).into(),
            ahead: Mutex::default(),
        }
    }

    fn ahead(&self) -> MutexGuard<'_, BTreeMap<u64, ClusterRun>> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Clusters that the file has behind its end, if the request goes on there.
    fn claimed(&self, request: &Request) -> Option<Choice> {
        let mut ahead = self.ahead();
        let run = ahead.get_mut(&request.owner)?;
        if run.count < request.min || run.count == 0 || !request.extends || run.start != request.goal {
            return None;
        }
        let taken = ClusterRun { start: run.start, count: request.want.min(run.count) };
        *run = ClusterRun { start: Cluster(taken.end()), count: run.count - taken.count };
        Some(Choice { run: taken, source: Source::Claimed })
    }

    /// Clusters that a file is to have behind its end.
    fn surplus(&self, view: &View<'_>, request: &Request) -> u32 {
        let own = request.growing && request.owner != 0 && request.kind == Kind::Data;
        if !own || request.stream {
            return 0;
        }
        let percent = view.free_clusters() * 100 / view.layout().clusters.max(1);
        let less = 2 * 5u64.saturating_sub(percent);
        let size = request.offset + u64::from(request.want);
        let bytes = view.layout().cluster_bytes().max(1);
        let least = (self.least << 10).div_ceil(bytes);
        u32::try_from(size.clamp(least, (MOST / bytes).max(least)) >> less).unwrap_or(0)
    }

    /// A run of the wanted length: by offset in the allocation group of the goal, by length elsewhere.
    fn fit(&self, view: &View<'_>, request: &Request) -> Result<Option<Cluster>, Refusal> {
        let size = view.layout().clusters.div_ceil(self.groups).max(1);
        let home = request.goal.0 / size * size;
        for from in [request.goal.0, home] {
            let found = view.next_fit(request, Cluster(from))?;
            if found.is_some_and(|at| at.0 < home + size) {
                return Ok(found);
            }
        }
        let found = view.near_fit(request);
        match view.unknown_with(request.goal, request.want) {
            Some(group) if found.is_none() && view.may_ask(request) => Err(Refusal::NeedBitmap(group)),
            _ => Ok(found),
        }
    }
}

impl BlockPolicy for Xfs {
    fn choose(&self, view: &View<'_>, request: &Request) -> Result<Choice, Refusal> {
        if let Some(choice) = self.claimed(request) {
            view.note(Counter::WindowHits, 1);
            return Ok(choice);
        }
        let surplus = self.surplus(view, request);
        view.note(Counter::WindowMisses, u64::from(surplus > 0));
        let whole = Request { want: request.want.saturating_add(surplus), ..*request };
        if request.extends && view.fits_at_goal(request)? {
            return Ok(with_surplus(view, &whole, request, request.goal));
        }
        if surplus > 0
            && let Some(start) = self.fit(view, &whole)?
        {
            return Ok(with_surplus(view, &whole, request, start));
        }
        if let Some(start) = self.fit(view, request)? {
            return Ok(Choice::free(start, request.want));
        }
        let longest = view.longest(request).filter(|run| run.count >= request.min);
        if let Some(run) = longest {
            return Ok(Choice::free(run.start, run.count));
        }
        let least = Request { want: request.min, ..*request };
        let start = view.next_fit(&least, Cluster(0))?.ok_or(Refusal::NoSpace)?;
        Ok(Choice::free(start, request.min))
    }

    fn taken(&self, view: &View<'_>, request: &Request, choice: &Choice) -> Vec<ClusterRun> {
        let Source::FreeWithSurplus(whole) = choice.source else { return Vec::new() };
        let count = whole.count - choice.run.count;
        view.note(Counter::Preallocated, u64::from(count));
        let rest = ClusterRun { start: Cluster(choice.run.end()), count };
        self.ahead().insert(request.owner, rest).filter(|run| run.count > 0).into_iter().collect()
    }

    fn event(&self, _view: &View<'_>, event: Event) -> Vec<ClusterRun> {
        let mut ahead = self.ahead();
        let runs: Vec<_> = match event {
            Event::Closed(owner) | Event::Truncated(owner) => ahead.remove(&owner).into_iter().collect(),
            Event::Pressure => std::mem::take(&mut *ahead).into_values().collect(),
        };
        runs.into_iter().filter(|run| run.count > 0).collect()
    }

    fn claims(&self) -> Vec<ClusterRun> {
        self.ahead().values().copied().filter(|run| run.count > 0).collect()
    }
}

/// The wanted clusters at a place, and as much of the rest as is free behind them.
fn with_surplus(view: &View<'_>, whole: &Request, request: &Request, start: Cluster) -> Choice {
    let run = ClusterRun { start, count: request.want };
    let count = if whole.want > request.want { view.reach(start, whole.want) } else { 0 };
    if count <= run.count {
        return Choice::free(start, run.count);
    }
    Choice { run, source: Source::FreeWithSurplus(ClusterRun { start, count }) }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use crate::{BlockPolicyKind, Engine, GroupContent, Layout, Request};
    use ondisk::units::{Cluster, ClusterRun, Group};

    fn engine() -> Result<Engine, Box<dyn std::error::Error>> {
        let layout = Layout {
            clusters: 4 * 32_768,
            clusters_per_group: 32_768,
            groups: 4,
            inodes_per_group: 64,
            groups_per_flex: 1,
            block_bytes: 4_096,
            blocks_per_cluster: 1,
        };
        let engine = Engine::new(layout, BlockPolicyKind::Xfs)?;
        for group in (0..4).map(Group) {
            engine.describe_group(group, 32_768, GroupContent::Uninitialised { used: &[] })?;
        }
        Ok(engine)
    }

    fn grow(
        engine: &Engine,
        owner: u64,
        goal: u64,
        offset: u64,
        want: u32,
    ) -> Result<ClusterRun, crate::Refusal> {
        let request = Request {
            owner,
            offset,
            extends: offset > 0,
            growing: true,
            ..Request::data(Cluster(goal), want)
        };
        engine.allocate(&request).map(crate::Grant::into_run)
    }

    #[test]
    fn room_behind_a_growing_file_doubles_with_it_and_goes_with_its_close()
    -> Result<(), Box<dyn std::error::Error>> {
        let engine = engine()?;
        let mut files = [(0, 0, 0); 2];
        for _ in 0..64 {
            for (owner, (end, size, moves)) in (1..).zip(&mut files) {
                let run = grow(&engine, owner, *end, *size, 4)?;
                *moves += u32::from(run.start.0 != *end);
                (*end, *size) = (run.end(), *size + 4);
            }
        }
        let [(end, _, moves), (_, _, others)] = files;
        assert!(moves <= 5 && others <= 5, "{moves} and {others} moves");
        // What is set aside counts as free, but no other file gets it.
        assert_eq!(engine.free_clusters(), 4 * 32_768 - 512);
        assert_ne!(grow(&engine, 3, end, 0, 4)?.start.0, end);
        engine.closed(1);
        assert_eq!(grow(&engine, 4, end, 0, 4)?.start.0, end);
        Ok(())
    }

    #[test]
    fn a_group_is_searched_whole_before_the_next() -> Result<(), Box<dyn std::error::Error>> {
        let engine = engine()?;
        let take =
            |goal, count| engine.allocate(&Request::data(Cluster(goal), count)).map(crate::Grant::into_run);
        let first = take(32_768, 32_768)?;
        assert_eq!(first.start, Cluster(32_768));
        engine.free(ClusterRun { start: first.start, count: 1_000 })?;
        // What lies before the goal in its group comes before what lies behind the group.
        assert_eq!(take(65_000, 900)?.start, Cluster(32_768));
        let other = take(65_000, 900)?.start.0;
        assert!(!(32_768..65_536).contains(&other), "{other}");
        Ok(())
    }
}
