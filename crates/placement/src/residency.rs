//! Bitmaps in and out of memory: loading, loading ahead, and dropping what is on disk.
//!
//! Owns the part of [`Engine`] that deals with bitmaps as such. Excludes I/O: the caller reads what
//! it is asked for ([`crate::Refusal::NeedBitmap`]) or may want soon ([`Engine::wanted_bitmaps`]),
//! and says what it wrote ([`Engine::written`]); only then can a bitmap be dropped.

use crate::engine::Engine;
use crate::events::Event;
use crate::index::groups::Memory;
use crate::request::{Contradiction, Request};
use crate::stats::Counter;
use ondisk::units::Group;

impl Engine {
    /// Takes in a group's bitmap as it stands on disk, bit `n` of byte `n / 8` from the lowest up.
    /// It must not be older than what was last [`Engine::written`]. What is known already is left
    /// alone. Clusters of grants that were dropped while it was not in memory are free from now on.
    ///
    /// # Errors
    /// A bitmap too short for the group, or one that disagrees with the described free count; then
    /// the group is out of service and the rest of the volume usable.
    pub fn load_group(&self, group: Group, bitmap: &[u8]) -> Result<(), Contradiction> {
        self.load(group, bitmap).map(|_| ())
    }

    /// Takes a group out of service, because its bitmap can't be believed: its clusters count as used, and nothing
    /// in it is allocated or freed until it is described again.
    pub fn retire_group(&self, group: Group) {
        let before = self.shared.map.group_free(group);
        self.shared.map.retire_group(group);
        self.shared.accounting.adjust(u64::from(before), u64::from(self.shared.map.group_free(group)));
        self.shared.events.report(|| Event::Broken(group));
    }

    /// As [`Engine::load_group`], for a bitmap that was read ahead.
    ///
    /// # Errors
    /// As [`Engine::load_group`].
    pub fn prefetch_group(&self, group: Group, bitmap: &[u8]) -> Result<(), Contradiction> {
        let fresh = self.load(group, bitmap)?;
        self.shared.counters.add(Counter::BitmapsPrefetched, u64::from(fresh));
        Ok(())
    }

    fn load(&self, group: Group, bitmap: &[u8]) -> Result<bool, Contradiction> {
        let before = self.shared.map.group_free(group);
        let start = self.layout().group_start(group).0;
        let clusters = start..start + u64::from(self.layout().clusters_of(group));
        // In use until they are given back below, whatever the bitmap says of them.
        let mut still_used = self.shared.orphaned.within(clusters.start, clusters.end);
        still_used.extend(self.shared.closing.within(clusters.start, clusters.end));
        let loaded = self.shared.map.load(group, bitmap, &still_used);
        if loaded.is_err() {
            self.shared.accounting.adjust(u64::from(before), u64::from(self.shared.map.group_free(group)));
        }
        self.shared.counters.add(Counter::BitmapsLoaded, u64::from(loaded == Ok(true)));
        self.shared.free_orphaned(clusters);
        if loaded == Ok(true) {
            self.shared.policy.loaded(&self.shared.view(), group);
        }
        self.shared.keep_bound();
        self.shared.events.report(|| match loaded {
            Ok(_) => Event::Loaded(group),
            Err(_) => Event::Broken(group),
        });
        loaded
    }

    /// States that this bitmap of the group is on disk, so that it may be dropped from memory. True
    /// if it is what [`Engine::group_bitmap`] gives now; if not, the group stays.
    pub fn written(&self, group: Group, bitmap: &[u8]) -> bool {
        let _still = self.shared.bound.lock();
        self.shared.map.written(group, bitmap, &self.shared.policy.claims())
    }

    /// Bounds the memory of bitmaps and of what the index keeps for each of them
    /// ([`Memory::warm`] and [`Memory::bitmaps`]). When it is exceeded, bitmaps that were unused
    /// for longest are dropped, as far as they were [`Engine::written`] and nothing in them is set
    /// aside for growing files; their groups must be loaded again before they are used. The 64
    /// bitmaps loaded last stay in any case, and all that a request asked for until it is granted.
    pub fn set_memory_bound(&self, bytes: u64) {
        self.shared.bound.set(bytes);
        self.shared.keep_bound();
    }

    /// Drops bitmaps as [`Engine::set_memory_bound`] does, this once; returns how many.
    pub fn shrink_to(&self, bytes: u64) -> u32 {
        self.shared.bound.evict(bytes, 0, self.shared.holders())
    }

    /// Returns the memory of the free-space index.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.shared.map.memory()
    }

    /// True if a bitmap of the group must be loaded before all of it can be used.
    #[must_use]
    pub fn needs_bitmap(&self, group: Group) -> bool {
        self.shared.map.needs_bitmap(group)
    }

    /// Groups whose bitmaps requests like this one will soon need, to be read ahead
    /// ([`Engine::prefetch_group`]): the one behind the goal if the free run there leads into it
    /// before twice the wanted length, and, when no loaded group has a run of the wanted length,
    /// the nearest that may have it. Groups that need no I/O are never named.
    #[must_use]
    pub fn wanted_bitmaps(&self, request: &Request) -> Vec<Group> {
        let request = request.ordered(self.layout().clusters);
        let map = &self.shared.map;
        let here = map.reach(request.goal, request.want.saturating_mul(2));
        let mut groups: Vec<Group> = here.unknown.filter(|_| here.len > 0).into_iter().collect();
        if !map.has_any(request.want) {
            let next = map.unknown_with(request.goal, request.want);
            groups.extend(next.filter(|group| !groups.contains(group)));
        }
        groups
    }
}
