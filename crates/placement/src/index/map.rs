//! The free space of a volume: all regions, joined.
//!
//! Owns every bitmap bit and counter; the only code that changes them is [`FreeMap::take`] and
//! [`FreeMap::give`] here, and what becomes known or forgotten of whole groups in [`super::groups`].
//! Runs that cross region or group edges are found by their parts: `joins` has the size of "suffix
//! of this region plus prefix of the next", in octaves.

use super::Scan;
use super::census::Totals;
use super::class::{CLASSES, class_floor, class_of, classes_from, classes_upto};
use super::planes::Planes;
use super::region::{CHUNK, Fit, Lengths, NearLimits, Span, Spare};
use super::sparse::Sparse;
use super::state::{Look, Summary};
use super::store::{Body, Locked, Store};
use super::tally::Tally;
use crate::layout::{Grid, Layout, REGION};
use crate::request::Denial;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::timing::Timer;
use ondisk::units::{Cluster, ClusterRun, Group, saturated};

/// All classes.
const ALL: u32 = u32::MAX;

/// Sums kept over all regions: free clusters of known regions by the class of their run (clipped
/// to regions), then free clusters of all groups.
const SUMS: usize = CLASSES as usize + 1;
pub(super) const FREE: usize = CLASSES as usize;

/// Regions a search for a sparing place looks at.
const SPARING_REGIONS: usize = 4;
/// As `SPARING_REGIONS`, for requests under a chunk, of which there are many: more gains nothing there.
const SMALL_REGIONS: usize = 1;

/// Length of the free space at some place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    /// Free clusters from the place on, cut at the limit asked for.
    pub(crate) len: u32,
    /// Set if the run ends only because this group's bitmap is unknown.
    pub(crate) unknown: Option<Group>,
}

/// Octaves of runs over an edge: the longest has 65,536 clusters.
const OCTAVES: u32 = 16;

/// Free counts of 64 groups.
pub(super) struct Counts([AtomicU32; 64]);

impl Default for Counts {
    fn default() -> Self {
        Counts(std::array::from_fn(|_| AtomicU32::new(0)))
    }
}

/// Free space of a volume.
pub(crate) struct FreeMap {
    pub(super) grid: Grid,
    pub(super) store: Store,
    pub(super) runs: Planes<{ CLASSES as usize }>,
    pub(super) joins: Planes<{ OCTAVES as usize }>,
    /// First region of each group with unknown bitmaps: under the class of its free count, or of
    /// the longest run where that is remembered.
    pub(super) unknown: Planes<{ CLASSES as usize }>,
    pub(super) group_free: Sparse<Counts>,
    pub(super) sums: Tally<SUMS>,
    /// Free clusters whose bitmap is unknown.
    pub(super) unknown_free: AtomicU64,
    /// True once bitmaps had to be dropped.
    pub(super) short_of_memory: AtomicBool,
}

impl FreeMap {
    pub(crate) fn new(layout: Layout) -> Self {
        let grid = Grid::new(layout);
        let regions = grid.regions();
        FreeMap {
            grid,
            store: Store::new(regions),
            runs: Planes::new(regions),
            joins: Planes::new(regions),
            unknown: Planes::new(regions),
            group_free: Sparse::new(layout.groups.div_ceil(64)),
            sums: Tally::for_total(layout.clusters),
            unknown_free: AtomicU64::new(0),
            short_of_memory: AtomicBool::new(false),
        }
    }

    pub(crate) fn layout(&self) -> &Layout {
        self.grid.layout()
    }

    /// Free clusters, exact but for what other threads do at this moment.
    pub(crate) fn free(&self) -> u64 {
        self.sums.exact(FREE)
    }

    /// Free clusters as policies see them: cheap, exact when there is one thread.
    pub(crate) fn free_about(&self) -> u64 {
        self.sums.near(FREE)
    }

    /// Times a thread waited for the lock of a region.
    pub(crate) fn waits(&self) -> u64 {
        self.store.waits()
    }

    /// Measures the locks of regions.
    pub(crate) fn timer(&self) -> &Timer {
        &self.store.timer
    }

    pub(crate) fn group_free(&self, group: Group) -> u32 {
        let counts = self.group_free.get(group.0 / 64);
        let counter = counts.and_then(|counts| counts.0.get((group.0 % 64) as usize));
        counter.map_or(0, |n| n.load(Ordering::Acquire))
    }

    pub(super) fn group_counter(&self, group: Group) -> Option<&AtomicU32> {
        self.group_free.make(group.0 / 64)?.0.get((group.0 % 64) as usize)
    }

    pub(super) fn lock(&self, region: u32) -> Option<Locked<'_>> {
        self.store.lock(region)
    }

    /// Changes a whole region that is locked, and keeps what stands outside it in step.
    pub(super) fn replace(&self, region: u32, body: &mut Body<'_>, act: impl FnOnce(&mut Body<'_>, u32)) {
        let len = self.grid.len(region);
        let before = body.look().summary(len);
        self.account_body(body, false);
        act(body, len);
        self.account_body(body, true);
        self.publish(region, before, body.look().summary(len));
    }

    fn account_body(&self, body: &Body<'_>, appears: bool) {
        match body.look() {
            Look::Unknown => {}
            Look::Plain((from, to)) => self.account(to - from, appears),
            Look::Mapped(map) => self.account_all(&map.totals(), appears),
        }
    }

    /// Counts all runs of a region in or out.
    pub(super) fn account_all(&self, totals: &Totals, appears: bool) {
        for (class, &total) in totals.iter().enumerate().filter(|(_, total)| **total > 0) {
            let total = i64::from(total);
            self.sums.change([(class, if appears { total } else { -total })]);
        }
    }

    /// Counts a maximal run of a region in or out.
    fn account(&self, length: u32, appears: bool) {
        self.sums.change([if appears { added_run(length) } else { removed_run(length) }]);
    }

    /// Shortest run that belongs to the longest runs which together have at most `reserve`
    /// clusters: runs below it can be used without touching these. Where only a part of the
    /// volume is known, the known runs stand for all.
    pub(crate) fn long_runs(&self, reserve: u64) -> u32 {
        let unknown = self.unknown_free.load(Ordering::Relaxed);
        let reserve = match self.free_about() {
            _ if unknown == 0 => reserve,
            free => reserve / 1_024 * (free.saturating_sub(unknown).saturating_mul(1_024) / free.max(1)),
        };
        let mut sum = 0u64;
        for (class, total) in (0..CLASSES).rev().zip(self.sums.near_all().skip(1)) {
            sum = sum.saturating_add(total);
            if sum > reserve {
                return class_floor(class + 1);
            }
        }
        0
    }

    /// Those of `classes` in which a run lies inside a region.
    fn present(&self, classes: u32) -> u32 {
        self.runs.classes_around(0, self.runs.scopes()) & classes
    }

    fn publish(&self, region: u32, before: Summary, after: Summary) {
        if before.mask != after.mask {
            self.runs.update(region, before.mask, after.mask);
        }
        if before.suffix != after.suffix {
            self.set_suffix(region, after.suffix);
        }
        if before.prefix != after.prefix {
            self.set_prefix(region, after.prefix);
        }
    }

    fn set_suffix(&self, region: u32, suffix: u32) {
        self.set_edge(region, |word| (word & 0xFFFF) | suffix << 16);
    }

    fn set_prefix(&self, region: u32, prefix: u32) {
        if let Some(before) = region.checked_sub(1) {
            self.set_edge(before, |word| (word & 0xFFFF_0000) | prefix);
        }
    }

    fn set_edge(&self, region: u32, change: impl Fn(u32) -> u32) {
        let Some(edge) = self.store.made_edge(region) else { return };
        let old = edge.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| Some(change(word)));
        let old = old.unwrap_or_default();
        let touched = joined_classes(old) | joined_classes(change(old));
        if joined_classes(old) == joined_classes(change(old)) {
            return;
        }
        // The other half of the edge belongs to a neighbour under another lock: the thread that
        // cleared a bit looks again, so that the last one leaves what is true.
        loop {
            let now = joined_classes(edge.load(Ordering::SeqCst));
            self.joins.update(region, touched & !now, now);
            if joined_classes(edge.load(Ordering::SeqCst)) == now {
                return;
            }
        }
    }

    /// Takes a run; nothing changes unless all of it is free.
    pub(crate) fn take(&self, run: ClusterRun) -> Result<(), Denial> {
        self.apply(run, true, true)
    }

    /// Gives a run back; nothing changes unless all of it is used.
    pub(crate) fn give(&self, run: ClusterRun) -> Result<(), Denial> {
        self.apply(run, false, true)
    }

    /// Takes a run out of all searches; the counters still show it as free.
    pub(crate) fn take_uncounted(&self, run: ClusterRun) -> Result<(), Denial> {
        self.apply(run, true, false)
    }

    /// Gives back what [`FreeMap::take_uncounted`] took.
    pub(crate) fn give_uncounted(&self, run: ClusterRun) -> Result<(), Denial> {
        self.apply(run, false, false)
    }

    /// Counts a run that is out of all searches as used or free; `false` outside the volume.
    pub(crate) fn count(&self, run: ClusterRun, used: bool) -> bool {
        let mut done = 0;
        while done < run.count {
            let at = Cluster(run.start.0 + u64::from(done));
            let Some((region, offset)) = self.grid.locate(at) else { return false };
            let piece = (self.grid.len(region) - offset).min(run.count - done);
            self.count_piece(self.grid.group_of_region(region), piece, used);
            done += piece;
        }
        true
    }

    fn apply(&self, run: ClusterRun, take: bool, counted: bool) -> Result<(), Denial> {
        let end = run.start.0.checked_add(u64::from(run.count));
        if run.count == 0 || end.is_none_or(|end| end > self.grid.layout().clusters) {
            return Err(Denial::Outside(run));
        }
        let mut done = 0;
        while done < run.count {
            let at = Cluster(run.start.0 + u64::from(done));
            match self.apply_piece(at, run.count - done, take) {
                Ok((group, count)) => {
                    if counted {
                        self.count_piece(group, count, take);
                    }
                    done += count;
                }
                Err(denial) => {
                    self.undo(ClusterRun { start: run.start, count: done }, take, counted);
                    return Err(denial
                        .unwrap_or(Denial::Mismatch { run, expected: if take { "free" } else { "used" } }));
                }
            }
        }
        Ok(())
    }

    fn undo(&self, run: ClusterRun, taken: bool, counted: bool) {
        let mut undone = 0;
        while undone < run.count {
            let at = Cluster(run.start.0 + u64::from(undone));
            let Ok((group, piece)) = self.apply_piece(at, run.count - undone, !taken) else { return };
            if counted {
                self.count_piece(group, piece, !taken);
            }
            undone += piece;
        }
    }

    /// Applies to the part of a run that lies in its first region; returns the group and the length.
    fn apply_piece(&self, at: Cluster, count: u32, take: bool) -> Result<(Group, u32), Option<Denial>> {
        let (region, offset) = self.grid.locate(at).ok_or(None)?;
        let group = self.grid.group_of_region(region);
        let Some(mut locked) = self.lock(region) else { return Err(Some(Denial::NeedBitmap(group))) };
        let mut body = locked.body();
        if body.look().is_unknown() {
            return Err(Some(Denial::NeedBitmap(group)));
        }
        let (before, len) = (body.look().mask(), self.grid.len(region));
        let end = offset.saturating_add(count).min(len);
        let run = if take { body.take(offset, end, len) } else { body.give(offset, end, len) };
        let whole = run.ok_or(None)?;
        let after = body.look().mask();
        if before != after {
            self.runs.update(region, before, after);
        }
        self.account_piece(region, whole, (offset, end), take);
        Ok((group, end - offset))
    }

    /// Keeps sums and edges in step with a free run `whole` that `part` was cut out of or has
    /// completed; its region is locked.
    fn account_piece(&self, region: u32, whole: Span, part: Span, cut: bool) {
        let (low, high) = whole;
        let (left, right) = (part.0 - low, high - part.1);
        self.sums.change(match cut {
            true => [removed_run(high - low), added_run(left), added_run(right)],
            false => [added_run(high - low), removed_run(left), removed_run(right)],
        });
        if low == 0 {
            self.set_prefix(region, if cut { part.0 } else { high });
        }
        if high == self.grid.len(region) {
            self.set_suffix(region, high - if cut { part.1 } else { low });
        }
    }

    fn count_piece(&self, group: Group, piece: u32, take: bool) {
        let Some(counter) = self.group_counter(group) else { return };
        if take {
            counter.fetch_sub(piece, Ordering::AcqRel);
            self.sums.subtract(FREE, u64::from(piece));
        } else {
            counter.fetch_add(piece, Ordering::AcqRel);
            self.sums.add(FREE, u64::from(piece));
        }
    }

    /// Returns the group of a region whose bitmap is not loaded, if it may have free clusters.
    fn worth_loading(&self, region: u32) -> Option<Group> {
        let group = self.grid.group_of_region(region);
        (self.group_free(group) > 0).then_some(group)
    }

    /// The group of `cluster` if its bitmap must be loaded to know whether it is free.
    pub(crate) fn unknown_at(&self, cluster: Cluster) -> Option<Group> {
        let (region, _) = self.grid.locate(cluster)?;
        if self.store.is_unknown(region) { self.worth_loading(region) } else { None }
    }

    /// Free clusters from `start` on, over region and group edges, at most `limit`.
    pub(crate) fn reach(&self, start: Cluster, limit: u32) -> Reach {
        let mut len = 0;
        while len < limit {
            let at = Cluster(start.0.saturating_add(u64::from(len)));
            let Some((region, offset)) = self.grid.locate(at) else { break };
            let Some(body) = self.lock(region) else { break };
            if body.look().is_unknown() {
                drop(body);
                return Reach { len, unknown: self.worth_loading(region) };
            }
            let Some((_, end)) = body.look().run_at(offset) else { break };
            len = len.saturating_add(end - offset).min(limit);
            if end < self.grid.len(region) {
                break;
            }
        }
        Reach { len, unknown: None }
    }

    fn fit(&self, region: u32, align: u32) -> Fit {
        Fit { base: if align > 1 { self.grid.start(region) } else { 0 }, align }
    }

    /// First place at or after `from` that has what is needed; does not wrap. The group of an
    /// unknown bitmap that comes before any such place is the error.
    pub(crate) fn next_fit(
        &self,
        from: Cluster,
        need: Need,
        scan: &mut Scan,
    ) -> Result<Option<Cluster>, Group> {
        let Some((mut region, mut offset)) = self.grid.locate(from) else { return Ok(None) };
        loop {
            if let Some(body) = self.lock(region) {
                if body.look().is_unknown() {
                    drop(body);
                    if let Some(group) = self.worth_loading(region) {
                        return Err(group);
                    }
                } else {
                    let fit = self.fit(region, need.align);
                    if let Some(at) = body.look().first_fit(offset, need.count, fit, scan) {
                        return Ok(Some(Cluster(self.grid.start(region) + u64::from(at))));
                    }
                }
            }
            if let Some(at) = self.spanning(region, offset, need, true)? {
                return Ok(Some(at));
            }
            match self.next_candidate(region + 1, need.count) {
                Some(next) => (region, offset) = (next, 0),
                None => return Ok(None),
            }
        }
    }

    /// Next region in which a run of `count` may begin.
    fn next_candidate(&self, from: u32, count: u32) -> Option<u32> {
        let inside = if count <= REGION { self.runs.next(from, classes_from(count)) } else { None };
        let over = self.joins.next(from, self.join_classes(count));
        [inside, over, self.next_unknown(from)].into_iter().flatten().min()
    }

    /// Next region with an unknown bitmap, or the first region of a group that has one.
    fn next_unknown(&self, from: u32) -> Option<u32> {
        // Groups are noted at their first region; in the middle of one each has to be asked.
        let inside =
            from < self.grid.regions() && self.grid.first_region(self.grid.group_of_region(from)) < from;
        let here = inside.then(|| self.grid.regions_of(self.grid.group_of_region(from)));
        let mut rest = here.into_iter().flatten().filter(|&region| region >= from);
        rest.find(|&region| self.store.is_unknown(region)).or_else(|| self.unknown.next(from, ALL))
    }

    /// Classes of joined edges at which a run of `count` may begin: it either lies in two regions,
    /// or covers the whole of the second.
    fn join_classes(&self, count: u32) -> u32 {
        u32::MAX << octave(count.min(self.grid.shortest_inner_region()))
    }

    /// A run as needed that begins at `offset` or later in `region` and crosses its end. With `ask`,
    /// a group that must be known first is the error.
    fn spanning(&self, region: u32, offset: u32, need: Need, ask: bool) -> Result<Option<Cluster>, Group> {
        let len = self.grid.len(region);
        if self.store.edge(region).is_none_or(|edge| edge.load(Ordering::Acquire) >> 16 == 0) {
            return Ok(None);
        }
        let last = len.checked_sub(1).and_then(|at| self.lock(region)?.look().run_at(at));
        let Some((low, high)) = last else { return Ok(None) };
        let fit = self.fit(region, need.align);
        let Some(start) = fit.start_in((low.max(offset), high), 0).filter(|&start| start < high) else {
            return Ok(None);
        };
        let begin = Cluster(self.grid.start(region) + u64::from(start));
        let reach = self.reach(begin, need.count);
        match reach.unknown {
            _ if reach.len >= need.count => Ok(Some(begin)),
            Some(group) if ask => Err(group),
            _ => Ok(None),
        }
    }

    /// A place for `count` clusters in a run below `below`: the tightest class within 64 regions
    /// of the goal, then within 64 times as many, and so on; in each class the region nearest to
    /// the goal. With no bound, finds a run if one is known.
    pub(crate) fn near_fit(&self, goal: Cluster, count: u32, below: u32, scan: &mut Scan) -> Option<Cluster> {
        let (home, offset) = self.grid.locate(goal)?;
        let bounded = below < u32::MAX;
        if count > REGION {
            return if bounded { None } else { self.far_fit(goal, count) };
        }
        if count >= below {
            return None;
        }
        let allowed = if bounded { !classes_from(below) } else { ALL };
        if bounded && self.present(classes_from(count) & allowed) == 0 {
            return None;
        }
        let here = Wanted { home, offset, count, below };
        for scope in 1..=self.runs.scopes() {
            let mut classes = self.runs.classes_around(home, scope) & classes_from(count) & allowed;
            while classes != 0 {
                let class = classes & classes.wrapping_neg();
                classes &= classes - 1;
                let found = self.runs.nearest(home, class);
                if let Some(at) = found.and_then(|region| self.fit_in(region, here, scan)) {
                    return Some(at);
                }
            }
        }
        let any = self.any_fit(here, allowed, scan);
        if bounded { any } else { any.or_else(|| self.far_fit(goal, count)) }
    }

    /// A place for `count` clusters in a run below `below`, in the region of the goal.
    pub(crate) fn home_fit(&self, goal: Cluster, count: u32, below: u32, scan: &mut Scan) -> Option<Cluster> {
        let (home, offset) = self.grid.locate(goal)?;
        self.fit_in(home, Wanted { home, offset, count, below }, scan)
    }

    fn fit_in(&self, region: u32, wanted: Wanted, scan: &mut Scan) -> Option<Cluster> {
        let near = wanted.near(region);
        let at = self.lock(region)?.look().best_fit(near, wanted.count, wanted.below, scan)?;
        Some(Cluster(self.grid.start(region) + u64::from(at)))
    }

    /// See [`super::region::RunMap::beside`]; in the region of the goal.
    pub(crate) fn tightest_beside(
        &self,
        goal: Cluster,
        count: u32,
        limits: NearLimits,
        scan: &mut Scan,
    ) -> Option<Cluster> {
        let (region, offset) = self.grid.locate(goal)?;
        let at = self.lock(region)?.look().tightest_beside(offset, count, limits, scan)?;
        Some(Cluster(self.grid.start(region) + u64::from(at)))
    }

    /// A place for `count` clusters in a run of at least a chunk, in one of the [`SPARING_REGIONS`]
    /// next regions that have one (fewer for small requests), where it costs the fewest completely
    /// free chunks; of equals as [`Spare`] orders them. Returns the place and the number of chunks.
    pub(crate) fn sparing_fit(
        &self,
        goal: Cluster,
        count: u32,
        among: Lengths,
        scan: &mut Scan,
    ) -> Option<(Cluster, u32)> {
        let (home, _) = self.grid.locate(goal)?;
        let longest = among.limit.min(among.below.checked_sub(1)?);
        let classes = self.present(classes_from(count.max(CHUNK)) & classes_upto(longest));
        if classes == 0 {
            return None;
        }
        let patience = if count < CHUNK { SMALL_REGIONS } else { SPARING_REGIONS };
        let regions = self.runs.around(home, classes).take(patience);
        let mut best: Option<(Spare, u32)> = None;
        for region in regions {
            let found = self.lock(region)?.look().sparing(count, among, scan);
            best = best.into_iter().chain(found.map(|spare| (spare, region))).min_by_key(|found| found.0);
            if best.is_some_and(|(spare, _)| spare.lost == 0) {
                break;
            }
        }
        let (spare, region) = best?;
        Some((Cluster(self.grid.start(region) + u64::from(spare.start)), spare.lost))
    }

    /// Visits every region that may hold a run of `count`: those of its own class need not.
    fn any_fit(&self, wanted: Wanted, allowed: u32, scan: &mut Scan) -> Option<Cluster> {
        let classes = classes_from(wanted.count) & allowed;
        for (from, upto) in [(wanted.home, u32::MAX), (0, wanted.home)] {
            let mut at = from;
            while let Some(region) = self.runs.next(at, classes).filter(|&r| r < upto) {
                if let Some(found) = self.fit_in(region, wanted, scan) {
                    return Some(found);
                }
                at = region + 1;
            }
        }
        None
    }

    /// A run of the largest class below `below` (a class boundary), nearest to the goal, cut at
    /// `limit`.
    pub(crate) fn longest_below(&self, goal: Cluster, below: u32, limit: u32) -> Option<ClusterRun> {
        let (home, offset) = self.grid.locate(goal)?;
        let around = self.runs.classes_around(home, self.runs.scopes()) & !classes_from(below);
        let region = self.runs.nearest(home, 1 << around.checked_ilog2()?)?;
        let near = Wanted { home, offset, count: 0, below }.near(region);
        let (low, high) = self.lock(region)?.look().longest_below(near, below)?;
        let start = Cluster(self.grid.start(region) + u64::from(low));
        Some(ClusterRun { start, count: (high - low).min(limit) })
    }

    /// A run of `count` over region edges, the first after the goal, else the first.
    fn far_fit(&self, goal: Cluster, count: u32) -> Option<Cluster> {
        let (home, _) = self.grid.locate(goal)?;
        for (from, upto) in [(home, u32::MAX), (0, home)] {
            let mut at = from;
            while let Some(region) = self.joins.next(at, self.join_classes(count)).filter(|&r| r < upto) {
                if let Ok(Some(found)) = self.spanning(region, 0, Need::anywhere(count), false) {
                    return Some(found);
                }
                at = region + 1;
            }
        }
        None
    }

    /// A run of the largest class there is, nearest to the goal, cut at `limit`.
    pub(crate) fn longest(&self, goal: Cluster, limit: u32) -> Option<ClusterRun> {
        let (home, offset) = self.grid.locate(goal)?;
        let longest = self.runs.classes_around(home, self.runs.scopes()).checked_ilog2();
        let widest = self.joins.classes_around(home, self.joins.scopes()).checked_ilog2();
        let inside = longest.and_then(|class| self.runs.nearest(home, 1 << class)).and_then(|region| {
            let (low, _) = self.lock(region)?.look().longest(if region == home { offset } else { 0 })?;
            Some(Cluster(self.grid.start(region) + u64::from(low)))
        });
        let over = widest.and_then(|class| self.joins.nearest(home, 1 << class)).and_then(|region| {
            let last = self.grid.len(region).checked_sub(1)?;
            let (low, _) = self.lock(region)?.look().run_at(last)?;
            Some(Cluster(self.grid.start(region) + u64::from(low)))
        });
        let runs = [inside, over].into_iter().flatten();
        let runs = runs.map(|start| ClusterRun { start, count: self.reach(start, limit).len });
        runs.filter(|run| run.count > 0).max_by_key(|run| run.count)
    }

    /// True if a known region among the 4,096 around `goal` has a run of `count`, as far as classes
    /// show.
    pub(crate) fn has_near(&self, goal: Cluster, count: u32) -> bool {
        let Some((home, _)) = self.grid.locate(goal) else { return false };
        let scopes = 1..=self.runs.scopes().min(2);
        scopes.into_iter().any(|scope| self.runs.classes_around(home, scope) & guaranteed_from(count) != 0)
    }

    /// True if any known region has a run of `count`, as far as classes show.
    pub(crate) fn has_any(&self, count: u32) -> bool {
        self.runs.classes_around(0, self.runs.scopes()) & guaranteed_from(count) != 0
    }

    /// Nearest group of unknown bitmap whose free count allows a run of `count`.
    pub(crate) fn unknown_with(&self, goal: Cluster, count: u32) -> Option<Group> {
        let (home, _) = self.grid.locate(goal)?;
        let region = self.unknown.nearest(home, classes_from(count))?;
        Some(self.grid.group_of_region(region))
    }

    /// True if all of a run is known to be in use; so is what lies in groups out of service.
    pub(crate) fn is_used(&self, run: ClusterRun) -> bool {
        let mut at = run.start.0;
        while at < run.end() {
            let Some((region, offset)) = self.grid.locate(Cluster(at)) else { return false };
            let len = self.grid.len(region);
            let end = run.end().saturating_sub(at).saturating_add(u64::from(offset)).min(u64::from(len));
            let Some(body) = self.lock(region) else { return false };
            let look = body.look();
            let free = look.run_at(offset).or_else(|| look.run_from(offset, len));
            if look.is_unknown() || free.is_some_and(|(low, _)| u64::from(low) < end) {
                return false;
            }
            at += u64::from(len - offset);
        }
        true
    }

    /// First maximal free run that begins at or after `from`, in known groups.
    pub(crate) fn run_from(&self, from: u64) -> Option<ClusterRun> {
        let (mut region, mut offset) = self.grid.locate(Cluster(from))?;
        loop {
            let len = self.grid.len(region);
            let found = self.lock(region)?.look().run_from(offset, len);
            if let Some((low, _)) = found {
                let start = Cluster(self.grid.start(region) + u64::from(low));
                return Some(ClusterRun { start, count: self.reach(start, u32::MAX).len });
            }
            (region, offset) = (self.runs.next(region + 1, ALL)?, 0);
        }
    }
}

/// Run that a search looks for.
#[derive(Clone, Copy)]
pub(crate) struct Need {
    /// Free clusters in a row.
    pub(crate) count: u32,
    /// They begin at a multiple of this.
    pub(crate) align: u32,
}

impl Need {
    /// `count` clusters, anywhere.
    pub(crate) fn anywhere(count: u32) -> Self {
        Need { count, align: 1 }
    }
}

/// A search near a goal.
#[derive(Clone, Copy)]
struct Wanted {
    home: u32,
    offset: u32,
    count: u32,
    below: u32,
}

impl Wanted {
    /// The place inside `region` that is nearest to the goal.
    fn near(self, region: u32) -> u32 {
        match region.cmp(&self.home) {
            std::cmp::Ordering::Less => REGION - 1,
            std::cmp::Ordering::Equal => self.offset,
            std::cmp::Ordering::Greater => 0,
        }
    }
}

/// Classes all of whose members hold a run of `count`.
fn guaranteed_from(count: u32) -> u32 {
    let class = class_of(count);
    if class_floor(class) < count { u32::MAX.checked_shl(class + 1).unwrap_or(0) } else { u32::MAX << class }
}

/// Octave of a run over an edge.
fn octave(count: u32) -> u32 {
    count.max(1).ilog2().min(OCTAVES - 1)
}

/// Octave of the run that the two halves of an edge make, as a set of at most one.
fn joined_classes(edge: u32) -> u32 {
    let (suffix, prefix) = (edge >> 16, edge & 0xFFFF);
    if suffix == 0 || prefix == 0 { 0 } else { 1 << octave(suffix + prefix) }
}

/// Position of an absolute cluster in the region at `base`, cut to it.
pub(super) fn clip(cluster: u64, base: u64, len: u32) -> u32 {
    saturated::<u32>(cluster.saturating_sub(base)).min(len)
}

/// Change of the sums when a maximal run of a region appears.
fn added_run(length: u32) -> (usize, i64) {
    (class_of(length) as usize, i64::from(length))
}

/// Change of the sums when a maximal run of a region is no more.
fn removed_run(length: u32) -> (usize, i64) {
    (class_of(length) as usize, -i64::from(length))
}
