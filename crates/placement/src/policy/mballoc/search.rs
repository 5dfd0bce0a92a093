//! The criteria: which groups are scanned in which order, and which free run is taken.
//!
//! A search marks the run that it finds as used, under the lock of its group: at once where the run is what was wanted, and
//! after another look where it is the best of those that were seen. Then another search may have it by now, and this one
//! takes the first free run that it meets.

use super::group::Buddy;
use super::groups::{Groups, LockedBuddy, Summary, top};
use super::tunables::{Generation, Tunables};
use crate::request::{Kind, Refusal};
use crate::stats::{Counter, Criterion, CriterionStats};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::view::View;
use ondisk::units::{Cluster, ClusterRun, Group, bounded};

/// A request as the criteria see it.
pub(super) struct Search<'a> {
    pub(super) view: &'a View<'a>,
    pub(super) groups: &'a Groups,
    /// Searches still to lose the best run that one of their number took.
    pub(super) losers: &'a AtomicU32,
    pub(super) tunables: Tunables,
    pub(super) kind: Kind,
    /// Length looked for; `best_avail` trims it.
    pub(super) goal: u32,
    /// Length before trimming.
    pub(super) full: u32,
    /// Least length: that of the request before it was raised.
    pub(super) least: u32,
    /// Group the search begins with.
    pub(super) home: u32,
    found: u32,
    /// The first run there is, however short (the kernel's `HINT_FIRST`).
    takes_first: bool,
    best: Option<BestExtent>,
    /// Part of the best run that is marked.
    marked: Option<ClusterRun>,
    state: Status,
    counts: CriterionStats,
}

#[derive(Clone, Copy)]
struct BestExtent {
    group: u32,
    start: u32,
    len: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    Continue,
    Break,
    Taken,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        (view, groups, losers): (&'a View<'a>, &'a Groups, &'a AtomicU32),
        tunables: Tunables,
        kind: Kind,
        lens: (u32, u32),
        home: u32,
    ) -> Self {
        Search {
            view,
            groups,
            losers,
            tunables,
            kind,
            goal: lens.0,
            full: lens.0,
            least: lens.1,
            home,
            found: 0,
            takes_first: false,
            best: None,
            marked: None,
            state: Status::Continue,
            counts: CriterionStats::default(),
        }
    }

    /// Exactly at `goal`, if the whole length is free there.
    pub(super) fn at_goal(&mut self, goal: Cluster) -> Result<Option<ClusterRun>, Refusal> {
        let layout = *self.view.layout();
        let group = layout.group_of(goal);
        let offset = bounded::<u32>(goal.0 - layout.group_start(group).0);
        let Some(mut held) = self.groups.lock(self.view, group.0)? else { return Ok(None) };
        let fits = |buddy: &Buddy| buddy.is_free(offset) && buddy.extent(offset, self.goal) >= self.goal;
        if !held.buddy().is_some_and(fits) {
            return Ok(None);
        }
        let stripe = u64::from(self.tunables.stripe);
        if u64::from(self.goal) == stripe && !goal.0.is_multiple_of(stripe) {
            return Ok(None);
        }
        held.mark(offset, offset.saturating_add(self.goal), true);
        // The kernel counts it in all, though no criterion did it.
        self.view.note(Counter::ExtentsScanned, 1);
        Ok(Some(ClusterRun { start: goal, count: self.goal }))
    }

    /// Goes through the criteria.
    pub(super) fn run(&mut self) -> Result<Option<ClusterRun>, Refusal> {
        let order = self.power_of_two();
        let first = if order.is_some() { 0 } else { 1 };
        for criterion in Criterion::ALL.into_iter().skip(first) {
            let trims = self.tunables.generation != Generation::UpTo64 && self.kind == Kind::Data;
            if criterion == Criterion::BestAvailLen && !trims {
                continue;
            }
            let walked = self.walk(criterion, order.unwrap_or(0));
            let ended = self.state != Status::Continue;
            let lost = self.state == Status::Break && self.loses();
            let taken = if ended && !lost { self.take_best() } else { None };
            self.counts.hits = u64::from(taken.is_some());
            self.counts.useless_loops = u64::from(!ended && self.counts_exhausted(criterion));
            self.view.note_criterion(criterion, std::mem::take(&mut self.counts));
            walked?;
            if taken.is_some() {
                self.view.note(Counter::Breaks, u64::from(self.state == Status::Break));
                return Ok(taken);
            }
            if ended {
                return self.first();
            }
            if criterion == Criterion::BestAvailLen && self.has_sets() {
                self.goal = self.full;
            }
        }
        match self.take_best() {
            None if self.best.is_some() => self.first(),
            taken => Ok(taken),
        }
    }

    /// True if a criterion that ends without a run counts as a useless loop: all since 6.17, before only those that went
    /// through all groups in order.
    fn counts_exhausted(&self, criterion: Criterion) -> bool {
        self.tunables.generation == Generation::From617
            || criterion >= Criterion::GoalLenSlow
            || !self.has_sets()
    }

    /// True if another of the searches that go on at once took the best run before this one, as the tunable says.
    fn loses(&self) -> bool {
        let others = self.tunables.searchers.saturating_sub(1);
        let next = |losers: u32| Some(losers.checked_sub(1).unwrap_or(others));
        self.losers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok_and(|losers| losers > 0)
    }

    /// The run that was found, marked. If it was only the best that was seen, what is left of it now.
    pub(super) fn take_best(&self) -> Option<ClusterRun> {
        if self.marked.is_some() {
            return self.marked;
        }
        let found = self.best?;
        let run = self.run_of(found);
        let mut held = self.groups.lock(self.view, found.group).ok()??;
        let buddy = held.buddy().filter(|buddy| buddy.is_free(found.start))?;
        let count = run.count.min(buddy.next_used(found.start) - found.start);
        held.mark(found.start, found.start + count, true);
        Some(ClusterRun { count, ..run })
    }

    /// The first free run, of a search that lost the best one.
    pub(super) fn first(&mut self) -> Result<Option<ClusterRun>, Refusal> {
        self.view.note(Counter::Lost, 1);
        (self.takes_first, self.best, self.state) = (true, None, Status::Continue);
        let walked = self.walk(Criterion::AnyFree, 0);
        self.counts.hits = u64::from(self.marked.is_some());
        self.view.note_criterion(Criterion::AnyFree, std::mem::take(&mut self.counts));
        walked?;
        Ok(self.marked)
    }

    fn run_of(&self, found: BestExtent) -> ClusterRun {
        let base = self.view.layout().group_start(Group(found.group)).0;
        let start = Cluster(base + u64::from(found.start));
        ClusterRun { start, count: found.len.min(self.goal) }
    }

    /// The order to look for among buddies, if the goal is a power of two of fitting size.
    fn power_of_two(&self) -> Option<u32> {
        let order = self.goal.checked_ilog2()?;
        let fls = order + 1;
        let fits = fls >= self.tunables.mb_order2_req && fls <= self.top() + 1;
        (self.goal.is_power_of_two() && fits).then_some(order)
    }

    fn top(&self) -> u32 {
        top(self.view.layout())
    }

    pub(super) fn walk(&mut self, criterion: Criterion, order: u32) -> Result<(), Refusal> {
        match criterion {
            Criterion::PowerTwoAligned | Criterion::GoalLenFast | Criterion::BestAvailLen
                if self.has_sets() =>
            {
                self.walk_sets(criterion, order)
            }
            _ => self.walk_all(criterion, order),
        }
    }

    fn has_sets(&self) -> bool {
        self.tunables.has_sets(self.view.layout())
    }

    fn walk_all(&mut self, criterion: Criterion, order: u32) -> Result<(), Refusal> {
        let groups = self.view.layout().groups;
        for group in (self.home..groups).chain(0..self.home.min(groups)) {
            self.scan(group, criterion, order)?;
            if self.state != Status::Continue {
                break;
            }
        }
        Ok(())
    }

    /// The keys to visit, each with the length that is looked for in it.
    fn keys(&self, criterion: Criterion, order: u32) -> Vec<(u32, u32)> {
        match criterion {
            Criterion::PowerTwoAligned => (order..=self.top()).map(|key| (key, self.goal)).collect(),
            Criterion::BestAvailLen => {
                let high = self.goal.checked_ilog2().unwrap_or(0);
                let mut low = high.saturating_sub(self.tunables.mb_best_avail_max_trim_order);
                let stripe = self.tunables.stripe;
                if stripe > 0 && 1 << low < stripe {
                    low = stripe.checked_ilog2().unwrap_or(0);
                }
                if 1 << low < self.least {
                    low = self.least.checked_ilog2().map_or(0, |order| order + 1);
                }
                let lens = (low..=high).rev().map(|order| self.striped(1 << order));
                lens.map(|len| (mean_key(len, self.top()), len)).collect()
            }
            _ => (mean_key(self.goal, self.top())..=self.top()).map(|key| (key, self.goal)).collect(),
        }
    }

    /// A trimmed length, raised to whole stripes.
    fn striped(&self, len: u32) -> u32 {
        len.checked_next_multiple_of(self.tunables.stripe.max(1)).unwrap_or(len)
    }

    fn walk_sets(&mut self, criterion: Criterion, order: u32) -> Result<(), Refusal> {
        let groups = self.view.layout().groups;
        let keys = self.keys(criterion, order);
        let newest = self.tunables.generation == Generation::From617;
        let linear = self.tunables.mb_max_linear_groups.max(u32::from(!newest)).min(groups);
        for group in (self.home..groups).chain(0..self.home.min(groups)).take(linear as usize) {
            self.scan(group, criterion, order)?;
        }
        // The sets are asked from where the groups in order ended (6.17, `ext4_mb_scan_groups`).
        let next = self.home.saturating_add(linear).checked_rem(groups).unwrap_or(0);
        let ranges = if newest { vec![(next, groups), (0, next)] } else { vec![(0, groups)] };
        for range in ranges {
            for &(key, len) in &keys {
                // What was found keeps the length that it was looked for with.
                if self.state != Status::Continue {
                    return Ok(());
                }
                if criterion == Criterion::BestAvailLen {
                    self.goal = len;
                }
                // As they are now: a group that another thread changes meanwhile is looked at under its lock, or not at all.
                let members = self.groups.members(self.view, criterion, key, newest.then_some(range));
                for group in members {
                    if self.state != Status::Continue {
                        return Ok(());
                    }
                    // Counted in its set, and once more when it is looked at.
                    self.counts.groups_considered += 1;
                    self.scan(group, criterion, order)?;
                }
            }
        }
        Ok(())
    }

    fn good(&self, known: Summary, group: u32, criterion: Criterion, order: u32) -> bool {
        if known.free == 0 {
            return false;
        }
        match criterion {
            Criterion::PowerTwoAligned => {
                let flex = self.view.layout().groups_per_flex;
                let kept = self.kind == Kind::Data && flex >= 4 && group.is_multiple_of(flex);
                !kept && known.free >= self.goal && known.largest >= Some(order)
            }
            Criterion::GoalLenFast | Criterion::BestAvailLen => known.mean >= self.goal,
            Criterion::GoalLenSlow => known.free >= self.goal,
            Criterion::AnyFree => true,
        }
    }

    /// Locks a group to look at it. From 6.17 on one that another thread holds is passed by, unless everything is taken.
    fn lock(&self, group: u32, criterion: Criterion) -> Result<Option<LockedBuddy<'a>>, Refusal> {
        if self.tunables.generation == Generation::From617 && criterion != Criterion::AnyFree {
            return self.groups.try_lock(self.view, group);
        }
        self.groups.lock(self.view, group)
    }

    fn scan(&mut self, group: u32, criterion: Criterion, order: u32) -> Result<(), Refusal> {
        if self.state != Status::Continue {
            return Ok(());
        }
        let cheap = criterion < Criterion::GoalLenSlow;
        let flex = self.view.layout().groups_per_flex;
        // Volumes without flex groups have no such start.
        let starts_flex = flex > 1 && group.is_multiple_of(flex);
        self.counts.groups_considered += 1;
        // What is kept of a group decides whether its bitmap is needed at all.
        let known = self.groups.summary(group);
        if known.is_some_and(|known| !self.good(known, group, criterion, order)) {
            return Ok(());
        }
        let locked = match self.lock(group, criterion) {
            // A bitmap is read for a cheap criterion only at the start of a flex group (`ext4_mb_good_group_nolock`).
            Err(Refusal::NeedBitmap(_)) if cheap && !starts_flex && known.is_none() => return Ok(()),
            other => other?,
        };
        let Some(mut held) = locked else { return Ok(()) };
        let Some(buddy) =
            held.buddy().filter(|buddy| self.good(Summary::from_buddy(buddy), group, criterion, order))
        else {
            return Ok(());
        };
        self.view.note(Counter::GroupsScanned, 1);
        let before = self.found;
        self.look(buddy, group, criterion, order);
        let seen = u64::from(self.found - before);
        self.counts.extents_scanned += seen;
        self.view.note(Counter::ExtentsScanned, seen);
        self.view.note_scan(Group(group), seen);
        if let Some(found) = self.best.filter(|best| self.state == Status::Taken && best.group == group) {
            let run = self.run_of(found);
            held.mark(found.start, found.start + run.count, true);
            self.marked = Some(run);
        }
        Ok(())
    }

    /// Looks at the free runs of a group.
    fn look(&mut self, buddy: &Buddy, group: u32, criterion: Criterion, order: u32) {
        if criterion == Criterion::PowerTwoAligned {
            return self.scan_buddies(buddy, group, order);
        }
        let cheap = criterion < Criterion::GoalLenSlow;
        let stripes = self.tunables.stripe > 0 && self.goal.is_multiple_of(self.tunables.stripe);
        if cheap && stripes {
            self.scan_stripes(buddy, group);
        }
        let skips = cheap && self.tunables.generation != Generation::UpTo64;
        self.scan_runs(buddy, group, skips);
    }

    fn scan_buddies(&mut self, buddy: &Buddy, group: u32, order: u32) {
        for order in (order..32).filter(|&order| buddy.count(order) > 0) {
            if let Some(start) = buddy.first_of_order(order) {
                self.found += 1;
                self.best = Some(BestExtent { group, start, len: self.goal });
                self.state = Status::Taken;
                self.view.note(Counter::TwoPowerHits, 1);
                return;
            }
        }
    }

    /// The first whole stripe that is free, with what follows it.
    fn scan_stripes(&mut self, buddy: &Buddy, group: u32) {
        let stripe = self.tunables.stripe;
        let base = self.view.layout().group_start(Group(group)).0;
        let first = base.next_multiple_of(u64::from(stripe)) - base;
        let mut start = bounded::<u32>(first);
        while start < buddy.size() {
            // No longer than the stripe needs, whatever is looked for (`ext4_mb_scan_aligned`).
            let len = if buddy.is_free(start) { buddy.extent(start, stripe) } else { 0 };
            if len >= stripe {
                self.found += 1;
                self.best = Some(BestExtent { group, start, len });
                self.state = Status::Taken;
                return;
            }
            let Some(next) = start.checked_add(stripe) else { return };
            start = next;
        }
    }

    fn scan_runs(&mut self, buddy: &Buddy, group: u32, skip_short: bool) {
        let mut at = buddy.next_free(0);
        while at < buddy.size() && self.state == Status::Continue {
            if skip_short {
                let end = buddy.next_used(at);
                if end - at < self.goal {
                    at = buddy.next_free(end);
                    continue;
                }
            }
            let len = buddy.extent(at, self.goal);
            self.measure(BestExtent { group, start: at, len });
            at = buddy.next_free(at + len);
        }
        self.check_limits(true);
    }

    fn measure(&mut self, found: BestExtent) {
        self.found += 1;
        if found.len == self.goal || self.takes_first {
            self.best = Some(found);
            self.state = Status::Taken;
            return;
        }
        let Some(best) = self.best else {
            self.best = Some(found);
            return;
        };
        let better = if best.len < self.goal {
            found.len > best.len
        } else {
            found.len > self.goal && found.len < best.len
        };
        if better {
            self.best = Some(found);
        }
        self.check_limits(false);
    }

    fn check_limits(&mut self, group_ends: bool) {
        if self.state == Status::Taken {
            return;
        }
        if self.found > self.tunables.mb_max_to_scan {
            self.state = Status::Break;
        } else if self.best.is_some_and(|best| best.len >= self.goal)
            && (group_ends || self.found > self.tunables.mb_min_to_scan)
        {
            self.state = Status::Taken;
        }
    }
}

/// Key of a mean free run in the sets: the kernel's `mb_avg_fragment_size_order`.
pub(super) fn mean_key(len: u32, top: u32) -> u32 {
    len.checked_ilog2().map_or(0, |order| (order + 1).saturating_sub(2)).min(top)
}
