//! The free space of a volume: all regions, joined.
//!
//! Owns every bitmap bit and counter; the only code that changes them is [`FreeMap::take`] and
//! [`FreeMap::give`]. Each region has its own lock, held for the update of one region at a time,
//! so no two are ever held together. Runs that cross region or group edges are found by their
//! parts: `joins` has the class of "suffix of this region plus prefix of the next".

use super::body::{Body, Summary};
use super::class::{CLASSES, class_floor, class_of, classes_from};
use super::planes::Planes;
use super::region::{Fit, RunMap};
use crate::layout::{Layout, REGION};
use crate::request::{Contradiction, Denial};
use ondisk::units::{Cluster, ClusterRun, Group};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// All classes.
const ALL: u32 = u32::MAX;

/// What a group's bitmap holds, as far as the caller knows.
#[derive(Clone, Copy, Debug)]
pub enum GroupContent<'a> {
    /// The bitmap on disk must be read before anything in the group is allocated or freed.
    Unknown,
    /// The bitmap on disk is not initialised (`BLOCK_UNINIT`): everything is free but these runs.
    /// They are absolute, ascending and lie inside the group. The free count must agree.
    Uninitialised {
        /// The group's own structures and those of other groups which lie in it.
        used: &'a [ClusterRun],
    },
}

/// Length of the free space at some place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    /// Free clusters from the place on, cut at the limit asked for.
    pub(crate) len: u32,
    /// Set if the run ends only because this group's bitmap is unknown.
    pub(crate) unknown: Option<Group>,
}

/// Free space of a volume.
pub(crate) struct FreeMap {
    layout: Layout,
    regions: Box<[Mutex<Body>]>,
    /// Per region: suffix of it in the high half, prefix of the next in the low half.
    edges: Box<[AtomicU32]>,
    runs: Planes,
    joins: Planes,
    /// First region of each group with unknown bitmap, under the class of its free count.
    unknown: Planes,
    group_free: Box<[AtomicU32]>,
    free: AtomicU64,
    /// Free clusters of known regions by the class of their run (clipped to regions).
    by_class: [AtomicU64; CLASSES as usize],
}

impl FreeMap {
    pub(crate) fn new(layout: Layout) -> Self {
        let regions = layout.regions();
        FreeMap {
            layout,
            regions: (0..regions).map(|_| Mutex::new(Body::Unknown)).collect(),
            edges: (0..regions).map(|_| AtomicU32::new(0)).collect(),
            runs: Planes::new(regions),
            joins: Planes::new(regions),
            unknown: Planes::new(regions),
            group_free: (0..layout.groups).map(|_| AtomicU32::new(0)).collect(),
            free: AtomicU64::new(0),
            by_class: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn free(&self) -> u64 {
        self.free.load(Ordering::Acquire)
    }

    pub(crate) fn group_free(&self, group: Group) -> u32 {
        self.group_free.get(group.0 as usize).map_or(0, |n| n.load(Ordering::Acquire))
    }

    fn lock(&self, region: u32) -> Option<MutexGuard<'_, Body>> {
        // A panic can't leave a region half changed: every update is computed before it is stored.
        self.regions.get(region as usize).map(|m| m.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes one region under its lock and keeps what stands outside it in step.
    fn change<R>(&self, region: u32, act: impl FnOnce(&mut Body, u32) -> R) -> Option<R> {
        let len = self.layout.region_span(region).1;
        let mut body = self.lock(region)?;
        let before = body.summary(len);
        let result = act(&mut body, len);
        self.publish(region, before, body.summary(len));
        Some(result)
    }

    /// As [`FreeMap::change`], for changes of the whole region.
    fn replace(&self, region: u32, act: impl FnOnce(&mut Body, u32)) {
        self.change(region, |body, len| {
            self.account_body(body, len, false);
            act(body, len);
            self.account_body(body, len, true);
        });
    }

    fn account_body(&self, body: &Body, len: u32, appears: bool) {
        let mut at = 0;
        while let Some((low, high)) = body.run_from(at, len) {
            self.account(high - low, appears);
            at = high;
        }
    }

    /// Counts a maximal run of a region in or out.
    fn account(&self, length: u32, appears: bool) {
        let Some(total) = self.by_class.get(class_of(length) as usize) else { return };
        if appears {
            total.fetch_add(u64::from(length), Ordering::Relaxed);
        } else {
            total.fetch_sub(u64::from(length), Ordering::Relaxed);
        }
    }

    /// Shortest run that belongs to the longest runs which together have at most `reserve`
    /// clusters: runs below it can be used without touching these.
    pub(crate) fn long_runs(&self, reserve: u64) -> u32 {
        let mut sum = 0;
        for (class, total) in (0..CLASSES).zip(&self.by_class).rev() {
            sum += total.load(Ordering::Relaxed);
            if sum > reserve {
                return class_floor(class + 1);
            }
        }
        0
    }

    fn publish(&self, region: u32, before: Summary, after: Summary) {
        if before.mask != after.mask {
            self.runs.update(region, before.mask, after.mask);
        }
        if before.suffix != after.suffix {
            self.set_edge(region, |word| (word & 0xFFFF) | after.suffix << 16);
        }
        if before.prefix != after.prefix && region > 0 {
            self.set_edge(region - 1, |word| (word & 0xFFFF_0000) | after.prefix);
        }
    }

    fn set_edge(&self, region: u32, change: impl Fn(u32) -> u32) {
        let Some(edge) = self.edges.get(region as usize) else { return };
        let old = edge.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| Some(change(word)));
        let old = old.unwrap_or_default();
        let touched = joined_classes(old) | joined_classes(change(old));
        if joined_classes(old) == joined_classes(change(old)) {
            return;
        }
        // The other half of the edge belongs to a neighbour under another lock: whoever has
        // cleared a bit looks again, so that the last one leaves what is true.
        loop {
            let now = joined_classes(edge.load(Ordering::SeqCst));
            self.joins.update(region, touched & !now, now);
            if joined_classes(edge.load(Ordering::SeqCst)) == now {
                return;
            }
        }
    }

    /// States what is known of a group. Costs no memory while the group is untouched, unless its
    /// free space is split by the used runs.
    pub(crate) fn describe(
        &self,
        group: Group,
        free: u32,
        content: GroupContent<'_>,
    ) -> Result<(), Contradiction> {
        let size = self.layout.clusters_of(group);
        if group.0 >= self.layout.groups {
            return Err(Contradiction::NoSuchGroup(group));
        }
        if free > size {
            return Err(Contradiction::TooManyFree { group, free, size });
        }
        let first = self.layout.first_region(group);
        self.unknown.update(first, ALL, 0);
        self.set_group_free(group, free);
        match content {
            GroupContent::Unknown => {
                for region in first..first + self.layout.regions_per_group() {
                    self.replace(region, |body, _| *body = Body::Unknown);
                }
                if free > 0 {
                    self.unknown.set(first, class_of(free));
                }
                Ok(())
            }
            GroupContent::Uninitialised { used } => self.describe_free(group, free, used),
        }
    }

    fn describe_free(&self, group: Group, free: u32, used: &[ClusterRun]) -> Result<(), Contradiction> {
        let start = self.layout.group_start(group).0;
        let end = start + u64::from(self.layout.clusters_of(group));
        let mut behind = start;
        let mut counted = end - start;
        for run in used {
            if run.start.0 < behind || run.end() > end {
                return Err(Contradiction::UsedOutside { group });
            }
            behind = run.end();
            counted -= u64::from(run.count);
        }
        if counted != u64::from(free) {
            let counted = u32::try_from(counted).unwrap_or(u32::MAX);
            return Err(self.retire(group, counted, free));
        }
        let first = self.layout.first_region(group);
        for region in first..first + self.layout.regions_per_group() {
            self.replace(region, |body, len| {
                *body = Body::Plain((0, len));
                let base = self.layout.region_start(region);
                for run in used {
                    let low = clip(run.start.0, base, len);
                    let high = clip(run.end(), base, len);
                    body.take(low, high, len);
                }
            });
        }
        Ok(())
    }

    /// Takes a group out of service.
    fn retire(&self, group: Group, counted: u32, described: u32) -> Contradiction {
        let first = self.layout.first_region(group);
        self.unknown.update(first, ALL, 0);
        self.set_group_free(group, 0);
        for region in first..first + self.layout.regions_per_group() {
            self.replace(region, |body, _| *body = Body::Broken);
        }
        Contradiction::FreeCount { group, counted, described }
    }

    fn set_group_free(&self, group: Group, free: u32) {
        let Some(counter) = self.group_free.get(group.0 as usize) else { return };
        let before = counter.swap(free, Ordering::AcqRel);
        self.free.fetch_add(u64::from(free), Ordering::AcqRel);
        self.free.fetch_sub(u64::from(before), Ordering::AcqRel);
    }

    /// Indexes the bitmap of a group; does nothing if it is known already.
    pub(crate) fn load(&self, group: Group, bitmap: &[u8]) -> Result<(), Contradiction> {
        let size = self.layout.clusters_of(group);
        if group.0 >= self.layout.groups {
            return Err(Contradiction::NoSuchGroup(group));
        }
        let needed = size.div_ceil(8) as usize;
        if bitmap.len() < needed {
            return Err(Contradiction::ShortBitmap { group, bytes: bitmap.len(), needed });
        }
        let first = self.layout.first_region(group);
        if !self.lock(first).is_some_and(|body| body.is_unknown()) {
            return Ok(());
        }
        let (mut bodies, mut counted) = (Vec::new(), 0);
        for region in first..first + self.layout.regions_per_group() {
            let (offset, len) = self.layout.region_span(region);
            let map = RunMap::from_words(words_of(bitmap, offset, len), len);
            counted += map.free();
            bodies.push(Body::Mapped(Box::new(map)));
        }
        let described = self.group_free(group);
        if counted != described {
            return Err(self.retire(group, counted, described));
        }
        self.unknown.update(first, ALL, 0);
        for (region, fresh) in (first..).zip(bodies) {
            self.replace(region, |body, _| {
                if body.is_unknown() {
                    *body = fresh;
                }
            });
        }
        Ok(())
    }

    /// Writes the bitmap of a known group; bits past its end are set.
    pub(crate) fn render(&self, group: Group, out: &mut [u8]) -> Result<(), Denial> {
        out.fill(0xFF);
        let first = self.layout.first_region(group);
        for region in first..first + self.layout.regions_per_group() {
            let (offset, len) = self.layout.region_span(region);
            let Some(body) = self.lock(region) else { break };
            if body.is_unknown() {
                return Err(Denial::NeedBitmap(group));
            }
            let part = out.get_mut((offset / 8) as usize..).unwrap_or_default();
            for (index, bytes) in (0..len.div_ceil(64)).zip(part.chunks_mut(8)) {
                let word = body.word(index).to_le_bytes();
                let keep = bytes.len().min(8);
                bytes.copy_from_slice(word.get(..keep).unwrap_or_default());
            }
        }
        Ok(())
    }

    /// Words of a group's bitmap; `None` if unknown.
    pub(crate) fn group_words(&self, group: Group) -> Option<Vec<u64>> {
        let first = self.layout.first_region(group);
        let mut words = Vec::new();
        for region in first..first + self.layout.regions_per_group() {
            let len = self.layout.region_span(region).1;
            let body = self.lock(region)?;
            if body.is_unknown() {
                return None;
            }
            words.extend((0..len.div_ceil(64)).map(|index| body.word(index)));
        }
        Some(words)
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
            let Some((region, offset)) = self.layout.locate(at) else { return false };
            let piece = (self.layout.region_span(region).1 - offset).min(run.count - done);
            self.count_piece(self.layout.group_of_region(region), piece, used);
            done += piece;
        }
        true
    }

    fn apply(&self, run: ClusterRun, take: bool, counted: bool) -> Result<(), Denial> {
        let end = run.start.0.checked_add(u64::from(run.count));
        if run.count == 0 || end.is_none_or(|end| end > self.layout.clusters) {
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

    /// Applies to the part of a run that lies in its first region; tells the group and the length.
    fn apply_piece(&self, at: Cluster, count: u32, take: bool) -> Result<(Group, u32), Option<Denial>> {
        let (region, offset) = self.layout.locate(at).ok_or(None)?;
        let group = self.layout.group_of_region(region);
        let changed = self.change(region, |body, len| {
            if body.is_unknown() {
                return Err(Some(Denial::NeedBitmap(group)));
            }
            let end = offset.saturating_add(count).min(len);
            let done = if take {
                self.take_piece(body, offset, end, len)
            } else {
                self.give_piece(body, offset, end, len)
            };
            if done { Ok((group, end - offset)) } else { Err(None) }
        });
        changed.unwrap_or(Err(None))
    }

    fn take_piece(&self, body: &mut Body, start: u32, end: u32, len: u32) -> bool {
        let Some((low, high)) = body.run_at(start) else { return false };
        if !body.take(start, end, len) {
            return false;
        }
        self.account(high - low, false);
        self.account(start - low, true);
        self.account(high - end, true);
        true
    }

    fn give_piece(&self, body: &mut Body, start: u32, end: u32, len: u32) -> bool {
        if !body.give(start, end, len) {
            return false;
        }
        let (low, high) = body.run_at(start).unwrap_or((start, end));
        self.account(start - low, false);
        self.account(high - end, false);
        self.account(high - low, true);
        true
    }

    fn count_piece(&self, group: Group, piece: u32, take: bool) {
        let Some(counter) = self.group_free.get(group.0 as usize) else { return };
        if take {
            counter.fetch_sub(piece, Ordering::AcqRel);
            self.free.fetch_sub(u64::from(piece), Ordering::AcqRel);
        } else {
            counter.fetch_add(piece, Ordering::AcqRel);
            self.free.fetch_add(u64::from(piece), Ordering::AcqRel);
        }
    }

    /// Whether the group of a region whose body is unknown may have free clusters.
    fn worth_loading(&self, region: u32) -> Option<Group> {
        let group = self.layout.group_of_region(region);
        (self.group_free(group) > 0).then_some(group)
    }

    /// The group of `cluster` if its bitmap must be loaded to know whether it is free.
    pub(crate) fn unknown_at(&self, cluster: Cluster) -> Option<Group> {
        let (region, _) = self.layout.locate(cluster)?;
        if self.lock(region)?.is_unknown() { self.worth_loading(region) } else { None }
    }

    /// Free clusters from `start` on, over region and group edges, at most `limit`.
    pub(crate) fn reach(&self, start: Cluster, limit: u32) -> Reach {
        let mut len = 0;
        while len < limit {
            let at = Cluster(start.0.saturating_add(u64::from(len)));
            let Some((region, offset)) = self.layout.locate(at) else { break };
            let Some(body) = self.lock(region) else { break };
            if body.is_unknown() {
                drop(body);
                return Reach { len, unknown: self.worth_loading(region) };
            }
            let Some((_, end)) = body.run_at(offset) else { break };
            len = len.saturating_add(end - offset).min(limit);
            if end < self.layout.region_span(region).1 {
                break;
            }
        }
        Reach { len, unknown: None }
    }

    fn fit(&self, region: u32, align: u32) -> Fit {
        Fit { base: if align > 1 { self.layout.region_start(region) } else { 0 }, align }
    }

    /// First place at or after `from` with `count` free clusters; does not wrap. With `ask`, the
    /// group of an unknown bitmap that comes before any such place is the error.
    pub(crate) fn next_fit(
        &self,
        from: Cluster,
        count: u32,
        align: u32,
        ask: bool,
        scanned: &mut u64,
    ) -> Result<Option<Cluster>, Group> {
        let Some((mut region, mut offset)) = self.layout.locate(from) else { return Ok(None) };
        loop {
            if let Some(body) = self.lock(region) {
                if body.is_unknown() {
                    drop(body);
                    if let Some(group) = self.worth_loading(region).filter(|_| ask) {
                        return Err(group);
                    }
                } else if let Some(at) = body.first_fit(offset, count, self.fit(region, align), scanned) {
                    return Ok(Some(Cluster(self.layout.region_start(region) + u64::from(at))));
                }
            }
            if let Some(at) = self.spanning(region, offset, count, align, ask)? {
                return Ok(Some(at));
            }
            match self.next_candidate(region + 1, count, ask) {
                Some(next) => (region, offset) = (next, 0),
                None => return Ok(None),
            }
        }
    }

    /// Next region in which a run of `count` may begin.
    fn next_candidate(&self, from: u32, count: u32, ask: bool) -> Option<u32> {
        let inside = if count <= REGION { self.runs.next(from, classes_from(count)) } else { None };
        let over = self.joins.next(from, self.join_classes(count));
        let unknown = if ask { self.unknown.next(from, ALL) } else { None };
        [inside, over, unknown].into_iter().flatten().min()
    }

    /// Classes of joined edges at which a run of `count` may begin: it either lies in two regions,
    /// or covers the whole of the second.
    fn join_classes(&self, count: u32) -> u32 {
        classes_from(count.min(self.layout.shortest_inner_region()))
    }

    /// A run of `count` that begins at `offset` or later in `region` and crosses its end.
    fn spanning(
        &self,
        region: u32,
        offset: u32,
        count: u32,
        align: u32,
        ask: bool,
    ) -> Result<Option<Cluster>, Group> {
        let len = self.layout.region_span(region).1;
        if self.edges.get(region as usize).is_none_or(|edge| edge.load(Ordering::Acquire) >> 16 == 0) {
            return Ok(None);
        }
        let last = len.checked_sub(1).and_then(|at| self.lock(region)?.run_at(at));
        let Some((low, high)) = last else { return Ok(None) };
        let fit = self.fit(region, align);
        let Some(start) = fit.place((low.max(offset), high), 0).filter(|&start| start < high) else {
            return Ok(None);
        };
        let begin = Cluster(self.layout.region_start(region) + u64::from(start));
        let reach = self.reach(begin, count);
        match reach.unknown {
            _ if reach.len >= count => Ok(Some(begin)),
            Some(group) if ask => Err(group),
            _ => Ok(None),
        }
    }

    /// A place for `count` clusters in a run below `below`: the tightest class within 64 regions
    /// of the goal, then within 64 times as many, and so on; in each class the region nearest to
    /// the goal. With no bound, finds a run if one is known.
    pub(crate) fn near_fit(
        &self,
        goal: Cluster,
        count: u32,
        below: u32,
        align: u32,
        scanned: &mut u64,
    ) -> Option<Cluster> {
        let (home, offset) = self.layout.locate(goal)?;
        let bounded = below < u32::MAX;
        if count > REGION {
            return if bounded { None } else { self.far_fit(goal, count, align) };
        }
        if count >= below {
            return None;
        }
        let allowed = if bounded { !classes_from(below) } else { ALL };
        let here = Wanted { home, offset, count, below, align };
        for scope in 1..=self.runs.scopes() {
            let mut classes = self.runs.classes_around(home, scope) & classes_from(count) & allowed;
            while classes != 0 {
                let class = classes & classes.wrapping_neg();
                classes &= classes - 1;
                let found = self.runs.nearest(home, class);
                if let Some(at) = found.and_then(|region| self.fit_in(region, here, scanned)) {
                    return Some(at);
                }
            }
        }
        let any = self.any_fit(here, allowed, scanned);
        if bounded { any } else { any.or_else(|| self.far_fit(goal, count, align)) }
    }

    fn fit_in(&self, region: u32, wanted: Wanted, scanned: &mut u64) -> Option<Cluster> {
        let near = wanted.near(region);
        let fit = self.fit(region, wanted.align);
        let at = self.lock(region)?.best_fit(near, wanted.count, wanted.below, fit, scanned)?;
        Some(Cluster(self.layout.region_start(region) + u64::from(at)))
    }

    /// Visits every region that may hold a run of `count`: those of its own class need not, and
    /// alignment may spoil others.
    fn any_fit(&self, wanted: Wanted, allowed: u32, scanned: &mut u64) -> Option<Cluster> {
        let classes = classes_from(wanted.count) & allowed;
        for (from, upto) in [(wanted.home, u32::MAX), (0, wanted.home)] {
            let mut at = from;
            while let Some(region) = self.runs.next(at, classes).filter(|&r| r < upto) {
                if let Some(found) = self.fit_in(region, wanted, scanned) {
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
        let (home, offset) = self.layout.locate(goal)?;
        let around = self.runs.classes_around(home, self.runs.scopes()) & !classes_from(below);
        let region = self.runs.nearest(home, 1 << around.checked_ilog2()?)?;
        let near = Wanted { home, offset, count: 0, below, align: 1 }.near(region);
        let (low, high) = self.lock(region)?.longest_below(near, below)?;
        let start = Cluster(self.layout.region_start(region) + u64::from(low));
        Some(ClusterRun { start, count: (high - low).min(limit) })
    }

    /// A run of `count` over region edges, the first after the goal, else the first.
    fn far_fit(&self, goal: Cluster, count: u32, align: u32) -> Option<Cluster> {
        let (home, _) = self.layout.locate(goal)?;
        for (from, upto) in [(home, u32::MAX), (0, home)] {
            let mut at = from;
            while let Some(region) = self.joins.next(at, self.join_classes(count)).filter(|&r| r < upto) {
                if let Ok(Some(found)) = self.spanning(region, 0, count, align, false) {
                    return Some(found);
                }
                at = region + 1;
            }
        }
        None
    }

    /// A run of the largest class there is, nearest to the goal, cut at `limit`.
    pub(crate) fn longest(&self, goal: Cluster, limit: u32) -> Option<ClusterRun> {
        let (home, offset) = self.layout.locate(goal)?;
        let top = |planes: &Planes| planes.classes_around(home, planes.scopes()).checked_ilog2();
        let inside =
            top(&self.runs).and_then(|class| self.runs.nearest(home, 1 << class)).and_then(|region| {
                let (low, _) = self.lock(region)?.longest(if region == home { offset } else { 0 })?;
                Some(Cluster(self.layout.region_start(region) + u64::from(low)))
            });
        let over =
            top(&self.joins).and_then(|class| self.joins.nearest(home, 1 << class)).and_then(|region| {
                let last = self.layout.region_span(region).1.checked_sub(1)?;
                let (low, _) = self.lock(region)?.run_at(last)?;
                Some(Cluster(self.layout.region_start(region) + u64::from(low)))
            });
        let runs = [inside, over].into_iter().flatten();
        let runs = runs.map(|start| ClusterRun { start, count: self.reach(start, limit).len });
        runs.filter(|run| run.count > 0).max_by_key(|run| run.count)
    }

    /// Nearest group of unknown bitmap whose free count allows a run of `count`.
    pub(crate) fn unknown_with(&self, goal: Cluster, count: u32) -> Option<Group> {
        let (home, _) = self.layout.locate(goal)?;
        let region = self.unknown.nearest(home, classes_from(count))?;
        Some(self.layout.group_of_region(region))
    }

    /// First maximal free run that begins at or after `from`, in known groups.
    pub(crate) fn run_from(&self, from: u64) -> Option<ClusterRun> {
        let (mut region, mut offset) = self.layout.locate(Cluster(from))?;
        loop {
            let len = self.layout.region_span(region).1;
            let found = self.lock(region)?.run_from(offset, len);
            if let Some((low, _)) = found {
                let start = Cluster(self.layout.region_start(region) + u64::from(low));
                return Some(ClusterRun { start, count: self.reach(start, u32::MAX).len });
            }
            (region, offset) = (self.runs.next(region + 1, ALL)?, 0);
        }
    }

    /// Maximal free runs of `group`, clipped to regions, and its longest (statistics only).
    pub(crate) fn fragments(&self, group: Group) -> u32 {
        let first = self.layout.first_region(group);
        let regions = first..first + self.layout.regions_per_group();
        regions.filter_map(|region| Some(self.lock(region)?.runs())).sum()
    }
}

/// A search near a goal.
#[derive(Clone, Copy)]
struct Wanted {
    home: u32,
    offset: u32,
    count: u32,
    below: u32,
    align: u32,
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

/// Class of the run that the two halves of an edge make, as a set of at most one class.
fn joined_classes(edge: u32) -> u32 {
    let (suffix, prefix) = (edge >> 16, edge & 0xFFFF);
    if suffix == 0 || prefix == 0 { 0 } else { 1 << class_of(suffix + prefix) }
}

/// Position of an absolute cluster in the region at `base`, cut to it.
fn clip(cluster: u64, base: u64, len: u32) -> u32 {
    u32::try_from(cluster.saturating_sub(base)).unwrap_or(u32::MAX).min(len)
}

/// The words of a bitmap from bit `offset` (a multiple of 8) on; missing bits count as used.
fn words_of(bitmap: &[u8], offset: u32, len: u32) -> Box<[u64]> {
    let from = (offset / 8) as usize;
    let part = bitmap.get(from..).unwrap_or_default();
    let mut words = vec![u64::MAX; len.div_ceil(64) as usize].into_boxed_slice();
    for (word, bytes) in words.iter_mut().zip(part.chunks(8)) {
        let mut raw = [0xFF; 8];
        if let Some(head) = raw.get_mut(..bytes.len()) {
            head.copy_from_slice(bytes);
        }
        *word = u64::from_le_bytes(raw);
    }
    words
}
