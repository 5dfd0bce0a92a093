//! Loading and dropping bitmaps of whole groups.
//!
//! Owns the way of a group between described, known, cold (its bitmap was dropped; free count and
//! longest run are remembered) and out of service. A region is dropped only while what is here is
//! known to be on disk ([`FreeMap::written`]) and no policy claims anything in it, so that loading
//! the bitmap again gives back exactly what was dropped.

use super::class::class_of;
use super::map::{FREE, FreeMap, clip};
use super::region::{self, RunMap, fill, ones};
use super::state::State;
use super::store::LockedGroup;
use crate::request::{Contradiction, Denial};
use crate::sync::atomic::Ordering;
use ondisk::units::{ClusterRun, Group, saturated};

/// All classes.
const ALL: u32 = u32::MAX;

/// Content of a group's bitmap, as far as the caller knows it.
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

/// Bytes the free-space index occupies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Bytes for every described region whether its bitmap is loaded or not: states, edges, bit
    /// planes, free counts, locks, and the directories that lead to them.
    pub fixed: u64,
    /// Summaries of regions whose bitmap is loaded, unused room included.
    pub warm: u64,
    /// The loaded bitmaps themselves.
    pub bitmaps: u64,
    /// Regions of 32,768 clusters whose bitmap is loaded.
    pub warm_regions: u64,
}

impl Memory {
    /// Everything but the bitmaps.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.fixed + self.warm
    }
}

impl FreeMap {
    fn lock_group(&self, group: Group) -> LockedGroup<'_> {
        self.store.lock_all(self.grid.regions_of(group))
    }

    /// Free clusters of the group whose bitmap is unknown.
    fn unknown_part(&self, group: Group, locked: &LockedGroup<'_>) -> u32 {
        let mut sum = 0;
        for region in locked.regions.clone() {
            match locked.state(region) {
                // Never read: then no region of the group was.
                State::Unknown => return self.group_free(group),
                State::Cold(free) => sum += free,
                _ => {}
            }
        }
        sum
    }

    fn no_longer_unknown(&self, group: Group, locked: &LockedGroup<'_>) {
        self.unknown.update(self.grid.first_region(group), ALL, 0);
        let part = u64::from(self.unknown_part(group, locked));
        self.unknown_free.fetch_sub(part, Ordering::Relaxed);
    }

    /// States what is known of a group. Costs no memory while the group is untouched, unless its
    /// free space is split by the used runs.
    pub(crate) fn describe(
        &self,
        group: Group,
        free: u32,
        content: GroupContent<'_>,
    ) -> Result<(), Contradiction> {
        let size = self.grid.layout().clusters_of(group);
        if group.0 >= self.grid.layout().groups {
            return Err(Contradiction::NoSuchGroup(group));
        }
        if free > size {
            return Err(Contradiction::TooManyFree { group, free, size });
        }
        let mut locked = self.lock_group(group);
        self.no_longer_unknown(group, &locked);
        self.set_group_free(group, free);
        match content {
            GroupContent::Unknown => {
                self.set_all(&mut locked, State::Unknown);
                self.unknown_free.fetch_add(u64::from(free), Ordering::Relaxed);
                if free > 0 {
                    self.unknown.set(self.grid.first_region(group), class_of(free));
                }
                Ok(())
            }
            GroupContent::Uninitialised { used } => self.describe_free(group, &mut locked, free, used),
        }
    }

    fn set_all(&self, locked: &mut LockedGroup<'_>, state: State) {
        for region in locked.regions.clone() {
            if let Some(mut body) = locked.body(region) {
                self.replace(region, &mut body, |body, _| body.set(state));
            }
        }
    }

    fn describe_free(
        &self,
        group: Group,
        locked: &mut LockedGroup<'_>,
        free: u32,
        used: &[ClusterRun],
    ) -> Result<(), Contradiction> {
        let start = self.grid.layout().group_start(group).0;
        let end = start + u64::from(self.grid.layout().clusters_of(group));
        let mut behind = start;
        let mut counted = end - start;
        for run in used {
            if run.start.0 < behind || run.end() > end {
                // Nothing is known of the group then, and nothing may be used.
                self.retire(group, locked);
                return Err(Contradiction::UsedOutside { group });
            }
            behind = run.end();
            counted -= u64::from(run.count);
        }
        if counted != u64::from(free) {
            self.retire(group, locked);
            let counted = saturated::<u32>(counted);
            return Err(Contradiction::FreeCount { group, counted, described: free });
        }
        for region in locked.regions.clone() {
            let Some(mut body) = locked.body(region) else { continue };
            self.replace(region, &mut body, |body, len| {
                body.set(State::Plain((0, len)));
                let base = self.grid.start(region);
                for run in used {
                    let low = clip(run.start.0, base, len);
                    let high = clip(run.end(), base, len);
                    body.take(low, high, len);
                }
            });
        }
        Ok(())
    }

    /// Takes a group out of service, whatever is known of it.
    pub(crate) fn retire_group(&self, group: Group) {
        if group.0 >= self.grid.layout().groups {
            return;
        }
        let mut locked = self.lock_group(group);
        self.no_longer_unknown(group, &locked);
        self.retire(group, &mut locked);
    }

    /// Takes a group out of service.
    fn retire(&self, group: Group, locked: &mut LockedGroup<'_>) {
        self.set_group_free(group, 0);
        self.set_all(locked, State::Broken);
    }

    fn set_group_free(&self, group: Group, free: u32) {
        let Some(counter) = self.group_counter(group) else { return };
        let before = counter.swap(free, Ordering::AcqRel);
        self.sums.add(FREE, u64::from(free));
        self.sums.subtract(FREE, u64::from(before));
    }

    fn check_bitmap(&self, group: Group, bitmap: &[u8]) -> Result<(), Contradiction> {
        if group.0 >= self.grid.layout().groups {
            return Err(Contradiction::NoSuchGroup(group));
        }
        let needed = self.grid.layout().clusters_of(group).div_ceil(8) as usize;
        if bitmap.len() < needed {
            return Err(Contradiction::ShortBitmap { group, bytes: bitmap.len(), needed });
        }
        Ok(())
    }

    /// A region of a group's bitmap, with the runs that are `held` marked as used.
    fn map_of(&self, region: u32, bitmap: &[u8], held: &[ClusterRun]) -> RunMap {
        let (offset, len) = (self.grid.offset(region), self.grid.len(region));
        let base = self.grid.start(region);
        let mut words = words_of(bitmap, offset, len);
        for run in held {
            fill(&mut words, clip(run.start.0, base, len), clip(run.end(), base, len), true);
        }
        RunMap::from_words(words, len)
    }

    /// Indexes the bitmap of a group where it is unknown; true if it was. The runs that are `held`
    /// count as used, whatever the bitmap says.
    pub(crate) fn load(
        &self,
        group: Group,
        bitmap: &[u8],
        held: &[ClusterRun],
    ) -> Result<bool, Contradiction> {
        self.check_bitmap(group, bitmap)?;
        let mut locked = self.lock_group(group);
        if !locked.any_unknown() {
            return Ok(false);
        }
        self.store.tick();
        let (mut maps, mut counted) = (Vec::new(), 0);
        for region in locked.regions.clone() {
            if locked.state(region).is_unknown() {
                let map = self.map_of(region, bitmap, held);
                counted += map.free();
                maps.push((region, map));
            }
        }
        let described = self.unknown_part(group, &locked);
        self.no_longer_unknown(group, &locked);
        if counted != described {
            self.retire(group, &mut locked);
            return Err(Contradiction::FreeCount { group, counted, described });
        }
        self.install(&mut locked, maps);
        Ok(true)
    }

    fn install(&self, locked: &mut LockedGroup<'_>, maps: Vec<(u32, RunMap)>) {
        for (region, map) in maps {
            let Some(mut body) = locked.body(region) else { continue };
            self.replace(region, &mut body, |body, _| match map.only_run() {
                Some(run) => body.set(State::Plain(run)),
                None => body.set_map(map),
            });
        }
    }

    /// States that this bitmap is on disk. Where it is what is known here, but for what is
    /// claimed, the region may be dropped from memory; true if that is so for the whole group.
    pub(crate) fn written(&self, group: Group, bitmap: &[u8], claims: &[ClusterRun]) -> bool {
        if self.check_bitmap(group, bitmap).is_err() {
            return false;
        }
        let mut all = true;
        let mut locked = self.lock_group(group);
        for region in locked.regions.clone() {
            let (offset, len) = (self.grid.offset(region), self.grid.len(region));
            let base = self.grid.start(region);
            let mut words = words_of(bitmap, offset, len);
            // What is claimed is free on disk and used here.
            let mut free = true;
            for run in claims {
                let (from, to) = (clip(run.start.0, base, len), clip(run.end(), base, len));
                free &= ones(&words, from, to) == 0;
                fill(&mut words, from, to, true);
            }
            let Some(mut body) = locked.body(region) else { continue };
            let same = free
                && (0u32..)
                    .zip(&words)
                    .all(|(at, &word)| tail(body.look().word(at), at, len) == tail(word, at, len));
            if same {
                body.mark_stored();
            }
            all &= same;
        }
        all
    }

    /// Drops bitmaps, those unused for longest first, until warm regions need at most `bound`
    /// bytes. Keeps what is not on disk as it is here, regions with `claims`, and what was used since
    /// `recent` other bitmaps were loaded. Returns the number of bitmaps dropped.
    pub(crate) fn evict(&self, bound: u64, recent: u32, claims: &[ClusterRun]) -> u32 {
        let now = self.store.now();
        let mut candidates = Vec::new();
        for stripe in self.store.stripes() {
            let old = stripe.iter().filter(|warm| now.wrapping_sub(warm.used) >= recent);
            candidates.extend(old.map(|warm| (now.wrapping_sub(warm.used), warm.region)));
        }
        // By age, so that the first ones are the right ones whatever is in between.
        candidates.sort_unstable_by_key(|&(age, region)| (std::cmp::Reverse(age), region));
        let mut claimed: Vec<u32> = claims.iter().flat_map(|run| self.regions_of(*run)).collect();
        claimed.sort_unstable();
        let mut dropped = 0;
        for (_, region) in candidates {
            if self.memory_in_use() <= bound {
                break;
            }
            if claimed.binary_search(&region).is_err() && self.drop_bitmap(region) {
                dropped += 1;
            }
        }
        if dropped > 0 {
            self.short_of_memory.store(true, Ordering::Relaxed);
        }
        dropped
    }

    /// True if bitmaps had to be dropped: from then on each one that is loaded costs another.
    pub(crate) fn is_short_of_memory(&self) -> bool {
        self.short_of_memory.load(Ordering::Relaxed)
    }

    fn regions_of(&self, run: ClusterRun) -> impl Iterator<Item = u32> {
        let region = |cluster| self.grid.locate(cluster).map_or(u32::MAX, |(region, _)| region);
        let last = ondisk::units::Cluster(run.end().saturating_sub(1));
        region(run.start)..=region(last).min(u32::MAX - 1)
    }

    /// Bytes of warm regions with their bitmaps.
    pub(crate) fn memory_in_use(&self) -> u64 {
        let (regions, bitmaps) = self.store.warm();
        regions * super::sparse::bytes_of::<super::store::Warm>() + bitmaps
    }

    /// Drops the bitmap of one region, if that loses nothing.
    fn drop_bitmap(&self, region: u32) -> bool {
        let Some(mut locked) = self.lock(region) else { return false };
        let mut body = locked.body();
        let super::state::Look::Mapped(map) = body.look() else { return false };
        if let Some(run) = map.only_run() {
            self.replace(region, &mut body, |body, _| body.set(State::Plain(run)));
            return false;
        }
        if map.changed() {
            return false;
        }
        let (free, longest) = (map.free(), map.mask().checked_ilog2());
        self.replace(region, &mut body, |body, _| body.set(State::Cold(free)));
        self.unknown_free.fetch_add(u64::from(free), Ordering::Relaxed);
        if let Some(class) = longest {
            let first = self.grid.first_region(self.grid.group_of_region(region));
            self.unknown.set(first, class);
        }
        true
    }

    /// Returns the memory of the index.
    pub(crate) fn memory(&self) -> Memory {
        let planes = self.runs.bytes() + self.joins.bytes() + self.unknown.bytes();
        let (warm_regions, bitmaps) = self.store.warm();
        Memory {
            fixed: self.store.fixed_bytes() + planes + self.group_free.bytes(),
            warm: self.store.warm_bytes(),
            bitmaps,
            warm_regions,
        }
    }

    /// Writes the bitmap of a known group; bits past its end are set.
    pub(crate) fn render(&self, group: Group, out: &mut [u8]) -> Result<(), Denial> {
        out.fill(0xFF);
        for region in self.grid.regions_of(group) {
            let (offset, len) = (self.grid.offset(region), self.grid.len(region));
            let Some(locked) = self.lock(region) else { return Err(Denial::NeedBitmap(group)) };
            let look = locked.look();
            if look.is_unknown() {
                return Err(Denial::NeedBitmap(group));
            }
            let part = out.get_mut((offset / 8) as usize..).unwrap_or_default();
            for (index, bytes) in (0..len.div_ceil(64)).zip(part.chunks_mut(8)) {
                let word = look.word(index).to_le_bytes();
                let keep = bytes.len().min(8);
                bytes.copy_from_slice(word.get(..keep).unwrap_or_default());
            }
        }
        Ok(())
    }

    /// Words of a group's bitmap; `None` if unknown.
    pub(crate) fn group_words(&self, group: Group) -> Option<Vec<u64>> {
        let mut words = Vec::new();
        for region in self.grid.regions_of(group) {
            let len = self.grid.len(region);
            let locked = self.lock(region)?;
            let look = locked.look();
            if look.is_unknown() {
                return None;
            }
            words.extend((0..len.div_ceil(64)).map(|index| look.word(index)));
        }
        Some(words)
    }

    /// True if a bitmap of the group must be loaded before all of it can be used.
    pub(crate) fn needs_bitmap(&self, group: Group) -> bool {
        self.group_free(group) > 0 && self.grid.regions_of(group).any(|region| self.store.is_unknown(region))
    }
}

/// A word of a bitmap with the bits from the region's end on set.
fn tail(word: u64, index: u32, len: u32) -> u64 {
    match len.saturating_sub(index * 64) {
        0 => u64::MAX,
        rest if rest < 64 => word | u64::MAX << rest,
        _ => word,
    }
}

/// The words of a bitmap from bit `offset` (a multiple of 8) on; missing bits count as used.
fn words_of(bitmap: &[u8], offset: u32, len: u32) -> Box<[u64]> {
    region::words_of(bitmap.get((offset / 8) as usize..).unwrap_or_default(), len)
}
