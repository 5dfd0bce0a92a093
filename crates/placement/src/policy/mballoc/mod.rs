//! `mballoc`: the multi-block allocator of ext4 as a baseline, in three generations.
//!
//! Rules followed, per request: a preallocation of the file or (for small files) of the CPU's
//! locality group if it has room (`ask`, `prealloc`); else the request is raised to a window
//! (`normalise`), looked for where it goes on from a mapped neighbour, then by the criteria
//! (`search`); what the window has beyond the request becomes a preallocation, dropped when the
//! file is closed or cut, or when space is short.
//!
//! Groups have locks as in the kernel (`groups`): threads wait for each other where they look at the same group, and a
//! choice is lost to another thread as there. Where one thread searches at a time, as in model time, the tunable
//! `searchers` says how many would have lost.
//!
//! Deviations: one lock for all preallocations; where no file system says what it knows of a file, the part of it before
//! a request that continues it is taken to be allocated without holes; no read-ahead of bitmaps; the runs that wait for
//! a commit are kept by the engine.

mod ask;
mod group;
mod groups;
mod normalise;
mod prealloc;
mod search;
mod sets;
mod tunables;

pub use tunables::{Generation, TUNABLES, Tunables};

use super::{BlockPolicy, Choice, Event, Source};
use crate::layout::Layout;
use crate::request::{Kind, Refusal, Request};
use crate::stats::Counter;
use crate::sync::atomic::AtomicU32;
use crate::sync::{Mutex, PoisonError};
use crate::view::View;
use ask::{Ask, Mode};
use groups::Groups;
use normalise::Goal;
use ondisk::units::{Cluster, ClusterRun, Group, bounded};
use prealloc::Preallocations;
use search::Search;
use std::collections::BTreeMap;

/// See the module.
pub struct Mballoc {
    tunables: Tunables,
    groups: Groups,
    state: Mutex<State>,
    /// Searches still to lose the best run that one of their number took.
    losers: AtomicU32,
}

/// In-core state but for that of groups.
#[derive(Default)]
struct State {
    preallocations: Preallocations,
    streams: BTreeMap<u32, u32>,
    /// Windows of the choices that were made and not yet taken, by owner.
    pending: BTreeMap<u64, Goal>,
}

impl Mballoc {
    /// A policy with these tunables.
    #[must_use]
    pub fn new(tunables: Tunables) -> Self {
        Mballoc { tunables, groups: Groups::default(), state: Mutex::default(), losers: AtomicU32::new(0) }
    }

    /// The stream of a file: the file's number decides since 6.17 (`ext4_mb_regular_allocator`).
    fn stream_key(&self, layout: &Layout, owner: u64) -> u32 {
        let count = match self.tunables.generation {
            Generation::From617 => self.tunables.streams(layout),
            _ => 1,
        };
        bounded::<u32>(owner % u64::from(count))
    }

    fn allocate(&self, view: &View<'_>, ask: &Ask<'_>) -> Result<Choice, Refusal> {
        let (layout, request) = (*view.layout(), ask.request);
        let (goal, last) = {
            let state = view.lock(&self.state);
            // Streams begin in the first group, not where their file would.
            let last = state.streams.get(&self.stream_key(&layout, request.owner)).copied().unwrap_or(0);
            let goal = ask.goal(&state.preallocations, &self.tunables, &layout);
            (goal, Some(last).filter(|_| ask.mode == Mode::Stream))
        };
        let Some(run) = self.search(view, request, goal, last)? else { return minimum(view, request) };
        if run.count < request.min {
            self.groups.mark(view, run, false);
            return minimum(view, request);
        }
        let mut state = view.lock(&self.state);
        if ask.mode == Mode::Stream {
            let stream = self.stream_key(&layout, request.owner);
            state.streams.insert(stream, layout.group_of(run.start).0);
        }
        Ok(choice_within(&mut state, request, goal, ask.mode, run))
    }

    /// Makes the window's rest behind the request a preallocation; returns what is dropped instead.
    fn set_aside(
        &self,
        view: &View<'_>,
        request: &Request,
        whole: ClusterRun,
        used: ClusterRun,
    ) -> Vec<ClusterRun> {
        let mut state = view.lock(&self.state);
        let goal = state.pending.remove(&request.owner);
        if let Mode::Pool(cpu) = Ask::new(request, &self.tunables, view.layout()).mode {
            let (start, count) = (Cluster(used.end()), whole.count - used.count);
            return state.preallocations.add_pool(cpu, ClusterRun { start, count });
        }
        let logical = goal.map_or(request.offset, |goal| goal.logical);
        state.preallocations.add_window(request.owner, logical, whole, used)
    }

    /// A run, which is marked as used. The search begins in the group where the stream was last, if it was anywhere.
    fn search(
        &self,
        view: &View<'_>,
        request: &Request,
        goal: Goal,
        last: Option<u32>,
    ) -> Result<Option<ClusterRun>, Refusal> {
        let layout = view.layout();
        let lens = (goal.len.min(layout.clusters_per_group), request.want);
        let home = last.unwrap_or(layout.group_of(goal.near).0);
        let mut search =
            Search::new((view, &self.groups, &self.losers), self.tunables, request.kind, lens, home);
        search.full = goal.full;
        if let Some(exact) = goal.exact
            && let Some(run) = search.at_goal(exact)?
        {
            return Ok(Some(run));
        }
        let found = search.run()?;
        let hit = found.filter(|run| Some(layout.group_of(run.start).0) == last).is_some();
        view.note(Counter::StreamGoalHits, u64::from(hit));
        Ok(found)
    }
}

/// Returns the part of the found run that is granted; the rest becomes a preallocation.
fn choice_within(state: &mut State, request: &Request, goal: Goal, mode: Mode, whole: ClusterRun) -> Choice {
    if whole.count <= request.want || mode == Mode::Plain {
        return Choice::free(whole.start, whole.count.min(request.want));
    }
    let logical =
        if mode == Mode::Stream { window_start(request, goal, whole.count) } else { request.offset };
    let skip = request.offset - logical;
    let start = Cluster(whole.start.0 + skip);
    let left = u64::from(whole.count) - skip;
    let count = u32::try_from(left.min(u64::from(request.want))).unwrap_or(request.want);
    state.pending.insert(request.owner, Goal { logical, ..goal });
    Choice { run: ClusterRun { start, count }, source: Source::FreeWithSurplus(whole) }
}

/// The kernel knows no minimum over one cluster: such requests get exactly their minimum from the
/// run index.
fn minimum(view: &View<'_>, request: &Request) -> Result<Choice, Refusal> {
    if let Some(start) = view.near_fit(&Request { want: request.min, ..*request }) {
        return Ok(Choice::free(start, request.min));
    }
    match view.unknown_with(request.goal, 1) {
        Some(group) => Err(Refusal::NeedBitmap(group)),
        None => Err(Refusal::NoSpace),
    }
}

/// Where in the file a run of `count` lies that is shorter than the window or fills it: at the
/// window's end if that covers enough of the request, else at its start if that covers the
/// whole request, else at the request.
fn window_start(request: &Request, goal: Goal, count: u32) -> u64 {
    let reaches = |logical: u64| logical + u64::from(count) >= request.offset + u64::from(request.min);
    // A window that another one cuts short may end before the request does.
    if count >= goal.len && reaches(goal.logical) {
        return goal.logical;
    }
    let end = goal.logical + u64::from(goal.len);
    let late = end.saturating_sub(u64::from(count));
    let served = end.saturating_sub(request.offset);
    if request.offset >= late && served >= u64::from(request.min) {
        return late;
    }
    let covers = goal.logical + u64::from(count) >= request.offset + u64::from(request.want);
    if covers { goal.logical } else { request.offset }
}

impl BlockPolicy for Mballoc {
    fn choose(&self, view: &View<'_>, request: &Request) -> Result<Choice, Refusal> {
        self.groups.prepare(view);
        let ask = Ask::new(request, &self.tunables, view.layout());
        let prepared = if ask.may_use_windows() {
            let mut state = view.lock(&self.state);
            let own = state.preallocations.use_window(request);
            match ask.mode {
                Mode::Pool(cpu) => own.or_else(|| state.preallocations.use_pool(cpu, request, ask.file.goal)),
                _ => own,
            }
        } else {
            None
        };
        if let Some(run) = prepared {
            view.note(Counter::WindowHits, 1);
            return Ok(Choice { run, source: Source::Claimed });
        }
        if request.kind == Kind::Data {
            view.note(Counter::WindowMisses, 1);
        }
        self.allocate(view, &ask)
    }

    fn taken(&self, view: &View<'_>, request: &Request, choice: &Choice) -> Vec<ClusterRun> {
        match choice.source {
            Source::Claimed => view.lock(&self.state).preallocations.take_dropped(),
            Source::Free => {
                self.groups.mark(view, choice.run, true);
                Vec::new()
            }
            Source::FreeWithSurplus(whole) => {
                self.groups.mark(view, whole, true);
                view.note(Counter::Preallocated, u64::from(whole.count - choice.run.count));
                self.set_aside(view, request, whole, choice.run)
            }
        }
    }

    /// Changes of several threads reach the buddies in another order than the bitmap: a group they
    /// are wrong about is generated again when it is looked at next.
    fn lost(&self, view: &View<'_>, choice: &Choice) {
        let whole = if let Source::FreeWithSurplus(whole) = choice.source { whole } else { choice.run };
        let layout = view.layout();
        for group in layout.group_of(whole.start).0..=layout.group_of(Cluster(whole.end() - 1)).0 {
            self.groups.forget(view, group);
        }
    }

    fn wants_file(&self) -> bool {
        true
    }

    /// ext4 has them since 6.16.
    fn writes_folios(&self) -> bool {
        self.tunables.generation == Generation::From617
    }

    /// A read-ahead makes the buddy cache, too (`ext4_mb_prefetch_fini`): the group enters its sets.
    fn loaded(&self, view: &View<'_>, group: Group) {
        self.groups.index_group(view, group.0);
    }

    fn changed(&self, view: &View<'_>, run: ClusterRun, used: bool) {
        self.groups.mark(view, run, used);
    }

    fn event(&self, view: &View<'_>, event: Event) -> Vec<ClusterRun> {
        let mut state = view.lock(&self.state);
        match event {
            Event::Closed(owner) | Event::Truncated(owner) => state.preallocations.drop_file(owner),
            Event::Pressure => state.preallocations.drop_all(),
        }
    }

    fn claims(&self) -> Vec<ClusterRun> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).preallocations.claims()
    }
}

#[cfg(test)]
mod tests;
