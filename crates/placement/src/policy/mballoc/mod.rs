//! `mballoc`: the multi-block allocator of ext4 as a baseline, in three generations.
//!
//! Rules followed, per request: a preallocation of the file or (for small files) of the CPU's
//! locality group if it has room; else the request is raised to a window (`normalise`), looked
//! for at the exact goal if the file continues there, then by the criteria (`search`); what the
//! window has beyond the request becomes a preallocation, dropped when the file is closed or cut,
//! or when space is short.
//!
//! Deviations: one lock for the whole policy, so no group is ever skipped as busy, and a choice is
//! lost to another CPU only as the tunable `searchers` says; the part of a file before a request that continues it is taken to be
//! allocated without holes; a group's
//! bitmap is asked for when a thorough criterion reaches it, cheap ones skip it; no read-ahead of
//! bitmaps; the runs that wait for a commit are kept by the engine.

mod group;
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
use crate::sync::{Mutex, MutexGuard, PoisonError};
use crate::view::View;
use group::Buddy;
use normalise::{Goal, window};
use ondisk::units::{Cluster, ClusterRun, Group};
use prealloc::Preallocations;
use search::{Search, mean_key};
use sets::Sets;
use std::collections::BTreeMap;

/// Remembered stream goals of 6.17 at most: one per CPU, and a quarter of the groups.
const STREAMS: u32 = 64;

/// See the module.
pub struct Mballoc {
    tunables: Tunables,
    state: Mutex<State>,
}

/// All in-core state.
#[derive(Default)]
struct State {
    buddies: BTreeMap<u32, Buddy>,
    orders: Sets,
    means: Sets,
    top: u32,
    scanned_all: bool,
    preallocations: Preallocations,
    streams: BTreeMap<u32, u32>,
    /// Searches still to lose the best run that one of their number took.
    losers: u32,
    /// Windows of the choices that were made and not yet taken, by owner.
    pending: BTreeMap<u64, Goal>,
}

impl State {
    /// The buddy cache of a group; `None` if the group does not exist.
    fn load(&mut self, view: &View<'_>, group: u32) -> Result<Option<&Buddy>, Refusal> {
        let size = view.layout().clusters_of(Group(group));
        if size == 0 {
            return Ok(None);
        }
        if self.buddies.contains_key(&group) {
            // Counts outlive the bitmap, as the kernel's group info does; scanning needs it back.
            if view.needs_bitmap(Group(group)) {
                return Err(Refusal::NeedBitmap(Group(group)));
            }
        } else {
            let words = view.group_words(Group(group)).ok_or(Refusal::NeedBitmap(Group(group)));
            let words = match words {
                Err(_) if view.group_free(Group(group)) == 0 => return Ok(None),
                other => other?,
            };
            view.note(Counter::BuddiesGenerated, 1);
            self.buddies.insert(group, Buddy::new(words, size, self.top));
            self.sort(group);
        }
        Ok(self.buddies.get(&group))
    }

    fn sort(&mut self, group: u32) {
        let Some(buddy) = self.buddies.get(&group) else { return };
        let mean = (buddy.free > 0).then(|| mean_key(buddy.mean(), self.top));
        let order = buddy.largest_order();
        self.means.place(group, mean);
        self.orders.place(group, order);
    }

    /// Drops the buddy cache of a group, which stays in its sets as it was until it is loaded.
    fn forget(&mut self, group: u32) {
        self.buddies.remove(&group);
    }

    fn mark(&mut self, layout: &Layout, run: ClusterRun, used: bool) {
        let mut at = run.start;
        while at.0 < run.end() {
            let group = layout.group_of(at);
            let base = layout.group_start(group).0;
            let end = run.end().min(base + u64::from(layout.clusters_of(group)));
            if end <= at.0 {
                return;
            }
            if let Some(buddy) = self.buddies.get_mut(&group.0) {
                let inside = |cluster: u64| u32::try_from(cluster - base).unwrap_or(u32::MAX);
                buddy.mark(inside(at.0), inside(end), used);
                self.sort(group.0);
            }
            at = Cluster(end);
        }
    }

    /// Indexes every group that is known, once: the sets must hold all of them.
    fn prepare(&mut self, view: &View<'_>) {
        if self.scanned_all {
            return;
        }
        let layout = view.layout();
        self.top = layout.clusters_per_group.checked_ilog2().unwrap_or(0).saturating_sub(2).clamp(1, 17);
        self.scanned_all = true;
        for group in 0..layout.groups {
            // Groups that are not loaded are added when a thorough criterion asks for them.
            let _ = self.load(view, group);
        }
    }
}

/// How a request is served.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// From the pool of the CPU's locality group.
    Pool(u32),
    /// With a window of its own, near the last window of its stream.
    Stream,
    /// Exactly.
    Plain,
}

impl Mballoc {
    /// A policy with these tunables.
    #[must_use]
    pub fn new(tunables: Tunables) -> Self {
        Mballoc { tunables, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mode(&self, layout: &Layout, request: &Request) -> Mode {
        if request.kind == Kind::Metadata || request.stream {
            return Mode::Plain;
        }
        let end = request.offset + u64::from(request.want);
        let own = request.growing
            || end != request.size
            || self.tunables.forced_goal > 0
            || self.tunables.no_normalize != 0;
        let blocks = end.max(request.size).saturating_mul(layout.blocks_per_cluster.into());
        let small = blocks <= u64::from(self.tunables.mb_stream_req);
        if small && self.tunables.forced_goal == 0 && self.tunables.no_normalize == 0 {
            let cpu = request.owner % u64::from(self.tunables.cpus.max(1));
            return Mode::Pool(u32::try_from(cpu).unwrap_or(0));
        }
        if own { Mode::Stream } else { Mode::Plain }
    }

    fn stream_key(&self, layout: &Layout, owner: u64) -> u32 {
        let count = match self.tunables.generation {
            Generation::From617 => self.tunables.cpus.min(layout.groups.div_ceil(4)).clamp(1, STREAMS),
            _ => 1,
        };
        u32::try_from(owner % u64::from(count)).unwrap_or(0)
    }

    fn goal(&self, state: &State, request: &Request, mode: Mode, layout: &Layout) -> Goal {
        let group = layout.clusters_per_group;
        let plain = Goal { logical: request.offset, len: request.want, exact: request.extends };
        match mode {
            Mode::Plain => plain,
            Mode::Stream if self.tunables.no_normalize != 0 => Goal { exact: false, ..plain },
            Mode::Pool(_) => {
                let len = self.tunables.group_prealloc(layout).min(group).max(request.want);
                Goal { len, ..plain }
            }
            Mode::Stream => {
                let mut goal = window(request, self.tunables.forced_goal, layout);
                let end = request.offset + u64::from(request.want);
                if let Some(next) = state.preallocations.next_window(request.owner, end) {
                    let room = u32::try_from(next.saturating_sub(goal.logical)).unwrap_or(u32::MAX);
                    goal.len = goal.len.min(room).max(request.want);
                }
                goal
            }
        }
    }

    fn allocate(&self, state: &mut State, view: &View<'_>, request: &Request) -> Result<Choice, Refusal> {
        let layout = *view.layout();
        let mode = self.mode(&layout, request);
        let goal = self.goal(state, request, mode, &layout);
        let group = layout.group_of(request.goal).0;
        let lens = (goal.len.min(layout.clusters_per_group), request.want);
        let mut search = Search::new(view, self.tunables, request.kind, lens, group);
        let mut found = if goal.exact { search.at_goal(state, request.goal)? } else { None };
        if found.is_none() {
            let stream = self.stream_key(&layout, request.owner);
            let last = state.streams.get(&stream).copied().filter(|_| mode == Mode::Stream);
            search.home = last.unwrap_or(group);
            found = search.run(state)?;
            let hit = found.filter(|run| Some(layout.group_of(run.start).0) == last).is_some();
            view.note(Counter::StreamGoalHits, u64::from(hit));
        }
        let Some(run) = found.filter(|run| run.count >= request.min) else {
            return minimum(view, request);
        };
        if mode == Mode::Stream {
            let stream = self.stream_key(&layout, request.owner);
            state.streams.insert(stream, layout.group_of(run.start).0);
        }
        Ok(place(state, request, goal, mode, run))
    }
}

/// Which part of the found run is granted; the rest becomes a preallocation.
fn place(state: &mut State, request: &Request, goal: Goal, mode: Mode, whole: ClusterRun) -> Choice {
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
        let mut state = self.lock();
        state.prepare(view);
        let prepared = match self.mode(view.layout(), request) {
            Mode::Plain if request.kind == Kind::Metadata => None,
            Mode::Pool(cpu) => {
                let own = state.preallocations.use_window(request);
                own.or_else(|| state.preallocations.use_pool(cpu, request))
            }
            _ => state.preallocations.use_window(request),
        };
        if let Some(run) = prepared {
            view.note(Counter::WindowHits, 1);
            return Ok(Choice { run, source: Source::Claimed });
        }
        if request.kind == Kind::Data {
            view.note(Counter::WindowMisses, 1);
        }
        self.allocate(&mut state, view, request)
    }

    fn taken(&self, view: &View<'_>, request: &Request, choice: &Choice) -> Vec<ClusterRun> {
        let mut state = self.lock();
        match choice.source {
            Source::Claimed => Vec::new(),
            Source::Free => {
                state.mark(view.layout(), choice.run, true);
                Vec::new()
            }
            Source::FreeWithSurplus(whole) => {
                state.mark(view.layout(), whole, true);
                view.note(Counter::Preallocated, u64::from(whole.count - choice.run.count));
                let goal = state.pending.remove(&request.owner);
                let given_up = match self.mode(view.layout(), request) {
                    Mode::Pool(cpu) => {
                        let start = Cluster(choice.run.end());
                        let count = whole.count - choice.run.count;
                        state.preallocations.add_pool(cpu, ClusterRun { start, count })
                    }
                    _ => {
                        let logical = goal.map_or(request.offset, |goal| goal.logical);
                        state.preallocations.add_window(request.owner, logical, whole, choice.run)
                    }
                };
                for run in &given_up {
                    state.mark(view.layout(), *run, false);
                }
                given_up
            }
        }
    }

    /// Changes of several threads reach the buddies in another order than the bitmap: a group they
    /// are wrong about is generated again when it is looked at next.
    fn lost(&self, view: &View<'_>, choice: &Choice) {
        let whole = if let Source::FreeWithSurplus(whole) = choice.source { whole } else { choice.run };
        let layout = view.layout();
        let groups = layout.group_of(whole.start).0..=layout.group_of(Cluster(whole.end() - 1)).0;
        let mut state = self.lock();
        for group in groups {
            state.forget(group);
        }
    }

    fn changed(&self, view: &View<'_>, run: ClusterRun, used: bool) {
        self.lock().mark(view.layout(), run, used);
    }

    fn event(&self, view: &View<'_>, event: Event) -> Vec<ClusterRun> {
        let mut state = self.lock();
        let runs = match event {
            Event::Closed(owner) | Event::Truncated(owner) => state.preallocations.drop_file(owner),
            Event::Pressure => state.preallocations.drop_all(),
        };
        for run in &runs {
            state.mark(view.layout(), *run, false);
        }
        runs
    }

    fn claims(&self) -> Vec<ClusterRun> {
        self.lock().preallocations.claims()
    }
}

#[cfg(test)]
mod tests;
