//! Which bitmaps are in memory: loading, loading ahead, dropping under a bound.
//!
//! Owns the part of [`Engine`] that deals with bitmaps as such. Excludes I/O: the caller reads what
//! it is asked for ([`crate::Refusal::NeedBitmap`]) or may want soon ([`Engine::wanted_bitmaps`]),
//! and says what it wrote ([`Engine::written`]); only then can a bitmap be dropped.

use crate::engine::{Engine, Shared};
use crate::events;
use crate::index::groups::Memory;
use crate::policy::Event;
use crate::request::{Contradiction, Request};
use crate::stats::Counter;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Mutex, PoisonError};
use ondisk::units::{ClusterRun, Group};

/// Bitmaps that stay although the bound is exceeded: those loaded last. A request or a free may
/// need several groups at once, and each must still be there when the last one comes.
const RECENT: u32 = 64;

/// The bound on memory for bitmaps and their summaries.
pub(crate) struct Bound {
    bytes: AtomicU64,
    /// Memory in use from which dropping is tried again.
    next: AtomicU64,
    /// Bitmaps loaded last that stay: [`RECENT`], and one more for each that a request had to ask for
    /// since anything was last granted or freed, so that it comes to an end however many it needs.
    recent: AtomicU32,
    /// Held while claims are compared with what is dropped or written.
    serial: Mutex<()>,
}

impl Default for Bound {
    fn default() -> Self {
        let most = || AtomicU64::new(u64::MAX);
        Bound { bytes: most(), next: most(), recent: AtomicU32::new(RECENT), serial: Mutex::default() }
    }
}

impl Bound {
    /// Something was granted or freed, or needs one more bitmap.
    pub(crate) fn went_on(&self, needs_bitmap: bool) {
        if needs_bitmap {
            self.recent.fetch_add(1, Ordering::Relaxed);
        } else if self.recent.load(Ordering::Relaxed) != RECENT {
            self.recent.store(RECENT, Ordering::Relaxed);
        }
    }
}

impl Engine {
    /// Takes in a group's bitmap as it stands on disk, bit `n` of byte `n / 8` from the lowest up.
    /// It must not be older than what was last [`Engine::written`]. What is known already is left
    /// alone, and what is in quarantine counts as used whatever the bitmap says.
    ///
    /// # Errors
    /// A bitmap too short for the group, or one that disagrees with the described free count; then
    /// the group is out of service and the rest of the volume usable.
    pub fn load_group(&self, group: Group, bitmap: &[u8]) -> Result<(), Contradiction> {
        self.take_in(group, bitmap).map(|_| ())
    }

    /// Takes a group out of service, because its bitmap can't be believed: its clusters count as used, and nothing
    /// in it is allocated or freed until it is described again.
    pub fn retire_group(&self, group: Group) {
        let before = self.shared.map.group_free(group);
        self.shared.map.retire_group(group);
        self.shared.ledger.adjust(before, self.shared.map.group_free(group));
        self.shared.account.tell(|| events::Event::Broken(group));
    }

    /// As [`Engine::load_group`], for a bitmap that was read ahead.
    ///
    /// # Errors
    /// As [`Engine::load_group`].
    pub fn prefetch_group(&self, group: Group, bitmap: &[u8]) -> Result<(), Contradiction> {
        let fresh = self.take_in(group, bitmap)?;
        self.shared.counters.add(Counter::BitmapsPrefetched, u64::from(fresh));
        Ok(())
    }

    fn take_in(&self, group: Group, bitmap: &[u8]) -> Result<bool, Contradiction> {
        let before = self.shared.map.group_free(group);
        let held = self.in_quarantine(group);
        let loaded = self.shared.map.load(group, bitmap, &held);
        if loaded.is_err() {
            self.shared.ledger.adjust(before, self.shared.map.group_free(group));
        }
        self.shared.counters.add(Counter::BitmapsLoaded, u64::from(loaded == Ok(true)));
        self.shared.keep_bound();
        self.shared.account.tell(|| match loaded {
            Ok(_) => events::Event::Loaded(group),
            Err(_) => events::Event::Broken(group),
        });
        loaded
    }

    fn in_quarantine(&self, group: Group) -> Vec<ClusterRun> {
        let start = self.layout().group_start(group).0;
        self.shared.quarantine.within(start, start + u64::from(self.layout().clusters_of(group)))
    }

    /// Compares a known group with its bitmap and free count as the caller has them, and indexes
    /// it anew where they differ (counted as `stale_index`). True if they did. All that policies
    /// have set aside is given up before. Runs that were granted and not kept must be used in the
    /// bitmap, and no other thread may change the group meanwhile.
    ///
    /// # Errors
    /// As [`Engine::load_group`]; [`Contradiction::OutOfService`] for a group that is.
    pub fn refresh_group(
        &self,
        group: Group,
        free_clusters: u32,
        bitmap: &[u8],
    ) -> Result<bool, Contradiction> {
        self.shared.reclaim(Event::Pressure);
        let before = self.shared.map.group_free(group);
        let held = self.in_quarantine(group);
        let stale = self.shared.map.refresh(group, free_clusters, bitmap, &held);
        let after = self.shared.map.group_free(group);
        self.shared.ledger.adjust(before, after);
        if stale != Ok(false) {
            self.shared.policy.refreshed(&self.shared.view(), group);
        }
        self.shared.counters.add(Counter::StaleIndex, u64::from(stale == Ok(true)));
        stale
    }

    /// States that this bitmap of the group is on disk, so that it may be dropped from memory. True
    /// if it is what [`Engine::group_bitmap`] tells now; if not, the group stays.
    pub fn written(&self, group: Group, bitmap: &[u8]) -> bool {
        let _serial = self.shared.bound.serial.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.map.written(group, bitmap, &self.shared.policy.claims())
    }

    /// Bounds the memory of bitmaps and of what the index keeps for each of them
    /// ([`Memory::warm`] and [`Memory::bitmaps`]). When it is exceeded, bitmaps that were unused
    /// for longest are dropped, as far as they were [`Engine::written`] and nothing in them is set
    /// aside for growing files; their groups must be loaded again before they are used. The 64
    /// bitmaps loaded last stay in any case, and all that a request asked for until it is granted.
    pub fn set_memory_bound(&self, bytes: u64) {
        self.shared.bound.bytes.store(bytes, Ordering::Relaxed);
        self.shared.bound.next.store(bytes, Ordering::Relaxed);
        self.shared.keep_bound();
    }

    /// Drops bitmaps as [`Engine::set_memory_bound`] does, this once; tells how many.
    pub fn shrink_to(&self, bytes: u64) -> u32 {
        self.shared.evict(bytes, 0)
    }

    /// What the free-space index occupies.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.shared.map.memory()
    }

    /// Whether a bitmap of the group must be loaded before all of it can be used.
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

impl Shared {
    /// Drops bitmaps if the bound is exceeded.
    pub(crate) fn keep_bound(&self) {
        let next = self.bound.next.load(Ordering::Relaxed);
        if next == u64::MAX || self.map.memory_in_use() <= next {
            return;
        }
        let bytes = self.bound.bytes.load(Ordering::Relaxed);
        self.evict(bytes - bytes / 16, self.bound.recent.load(Ordering::Relaxed));
        // What can't be dropped now is not looked through again at once.
        let next = self.map.memory_in_use().saturating_add(bytes / 16).max(bytes);
        self.bound.next.store(next, Ordering::Relaxed);
    }

    fn evict(&self, bytes: u64, recent: u32) -> u32 {
        let _serial = self.bound.serial.lock().unwrap_or_else(PoisonError::into_inner);
        let dropped = self.map.evict(bytes, recent, &self.policy.claims());
        self.counters.add(Counter::BitmapsEvicted, u64::from(dropped));
        dropped
    }
}
