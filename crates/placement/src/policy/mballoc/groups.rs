//! The groups: a buddy cache for each under a lock of its own, as in the kernel, and the sets that they are in.
//!
//! A group's lock is held while its free runs are looked at, and what is chosen is marked under it. What decides whether
//! a group is looked at at all is read without it. Under a group's lock that of the sets may be taken, and no other one.

use super::group::Buddy;
use super::search::mean_key;
use super::sets::Sets;
use crate::layout::Layout;
use crate::request::Refusal;
use crate::stats::{Counter, Criterion};
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::sync::{Mutex, PoisonError};
use crate::timing::Timed;
use crate::view::View;
use ondisk::units::{Cluster, ClusterRun, Group, bounded};
use std::sync::OnceLock;

/// All groups of a volume.
#[derive(Default)]
pub(super) struct Groups {
    slots: OnceLock<Box<[Slot]>>,
    sets: Mutex<GroupSets>,
    is_ready: AtomicBool,
    readying: Mutex<()>,
}

/// Groups by their largest free order, and by their mean free run.
#[derive(Default)]
struct GroupSets {
    orders: Sets,
    means: Sets,
}

#[derive(Default)]
struct Slot {
    buddy: Mutex<Option<Buddy>>,
    is_known: AtomicBool,
    free: AtomicU32,
    mean: AtomicU32,
    /// One more than the order; 0: nothing is free.
    largest: AtomicU32,
}

/// Counts of a group that are read without its lock.
#[derive(Clone, Copy)]
pub(super) struct Summary {
    pub(super) free: u32,
    pub(super) mean: u32,
    pub(super) largest: Option<u32>,
}

impl Summary {
    pub(super) fn from_buddy(buddy: &Buddy) -> Self {
        Summary { free: buddy.free, mean: buddy.mean(), largest: buddy.largest_order() }
    }
}

/// The largest order that a buddy can have.
pub(super) fn top(layout: &Layout) -> u32 {
    layout.clusters_per_group.checked_ilog2().unwrap_or(0).saturating_sub(2).clamp(1, 17)
}

impl Groups {
    fn slot(&self, group: u32) -> Option<&Slot> {
        self.slots.get()?.get(group as usize)
    }

    /// Indexes every group that is known, once: the sets must hold all of them.
    pub(super) fn prepare(&self, view: &View<'_>) {
        if self.is_ready.load(Ordering::Acquire) {
            return;
        }
        let groups = view.layout().groups;
        self.slots.get_or_init(|| (0..groups).map(|_| Slot::default()).collect());
        let _readying = self.readying.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_ready.load(Ordering::Acquire) {
            for group in 0..groups {
                // Groups that are not loaded are added when they are.
                let _ = self.lock(view, group);
            }
            self.is_ready.store(true, Ordering::Release);
        }
    }

    /// The bitmap of a group is known now. Before all are indexed there is nothing to do.
    pub(super) fn index_group(&self, view: &View<'_>, group: u32) {
        if self.is_ready.load(Ordering::Acquire) {
            let _ = self.lock(view, group);
        }
    }

    /// Returns a group's counts; `None` if its buddy cache was never made, or is to be made again.
    pub(super) fn summary(&self, group: u32) -> Option<Summary> {
        let slot = self.slot(group).filter(|slot| slot.is_known.load(Ordering::Acquire))?;
        let largest = slot.largest.load(Ordering::Relaxed).checked_sub(1);
        let [free, mean] = [&slot.free, &slot.mean].map(|value| value.load(Ordering::Relaxed));
        Some(Summary { free, mean, largest })
    }

    /// The buddy cache of a group, made if need be, under the group's lock; `None` if the group does not exist.
    pub(super) fn lock<'a>(
        &'a self,
        view: &'a View<'a>,
        group: u32,
    ) -> Result<Option<LockedBuddy<'a>>, Refusal> {
        let Some(slot) = self.slot(group) else { return Ok(None) };
        self.loaded(
            view,
            LockedBuddy { groups: self, view, slot, group, buddy: view.lock_group(&slot.buddy) },
        )
    }

    /// Locks as [`Groups::lock`], if no other thread holds it at this moment.
    pub(super) fn try_lock<'a>(
        &'a self,
        view: &'a View<'a>,
        group: u32,
    ) -> Result<Option<LockedBuddy<'a>>, Refusal> {
        let Some(slot) = self.slot(group) else { return Ok(None) };
        let Some(buddy) = view.try_lock_group(&slot.buddy) else { return Ok(None) };
        self.loaded(view, LockedBuddy { groups: self, view, slot, group, buddy })
    }

    fn loaded<'a>(
        &self,
        view: &View<'_>,
        mut held: LockedBuddy<'a>,
    ) -> Result<Option<LockedBuddy<'a>>, Refusal> {
        let (group, size) = (Group(held.group), view.layout().clusters_of(Group(held.group)));
        if size == 0 {
            return Ok(None);
        }
        if held.buddy.is_some() {
            // Counts outlive the bitmap, as the kernel's group info does; scanning needs it back.
            return if view.needs_bitmap(group) { Err(Refusal::NeedBitmap(group)) } else { Ok(Some(held)) };
        }
        let Some(words) = view.group_words(group) else {
            return if view.group_free(group) == 0 { Ok(None) } else { Err(Refusal::NeedBitmap(group)) };
        };
        view.note(Counter::BuddiesGenerated, 1);
        *held.buddy = Some(Buddy::new(words, size, top(view.layout())));
        held.sort();
        Ok(Some(held))
    }

    /// Groups of a criterion's sets under a key, at this moment: those from the first to before the second of `numbers`,
    /// rising, or without them all, by age.
    pub(super) fn members(
        &self,
        view: &View<'_>,
        criterion: Criterion,
        key: u32,
        numbers: Option<(u32, u32)>,
    ) -> Vec<u32> {
        let both = view.lock(&self.sets);
        let sets = if criterion == Criterion::PowerTwoAligned { &both.orders } else { &both.means };
        match numbers {
            Some((from, to)) => sets.by_number(key, from, to).collect(),
            None => sets.by_age(key).collect(),
        }
    }

    /// Marks a run used or free in the buddy caches that there are.
    pub(super) fn mark(&self, view: &View<'_>, run: ClusterRun, used: bool) {
        let layout = view.layout();
        let mut at = run.start;
        while at.0 < run.end() {
            let group = layout.group_of(at);
            let base = layout.group_start(group).0;
            let end = run.end().min(base + u64::from(layout.clusters_of(group)));
            if end <= at.0 {
                return;
            }
            if let Some(slot) = self.slot(group.0) {
                let inside = |cluster: u64| bounded::<u32>(cluster - base);
                let buddy = view.lock_mark(&slot.buddy);
                LockedBuddy { groups: self, view, slot, group: group.0, buddy }.mark(
                    inside(at.0),
                    inside(end),
                    used,
                );
            }
            at = Cluster(end);
        }
    }

    /// Drops the buddy cache of a group, which stays in its sets as it was until it is loaded.
    pub(super) fn forget(&self, view: &View<'_>, group: u32) {
        if let Some(slot) = self.slot(group) {
            let mut buddy = view.lock_mark(&slot.buddy);
            slot.is_known.store(false, Ordering::Release);
            *buddy = None;
        }
    }
}

/// A group under its lock.
pub(super) struct LockedBuddy<'a> {
    groups: &'a Groups,
    view: &'a View<'a>,
    slot: &'a Slot,
    group: u32,
    buddy: Timed<'a, Option<Buddy>>,
}

impl LockedBuddy<'_> {
    pub(super) fn buddy(&self) -> Option<&Buddy> {
        self.buddy.as_ref()
    }

    /// Marks a part of the group used or free.
    pub(super) fn mark(&mut self, from: u32, to: u32, used: bool) {
        if self.buddy.as_mut().is_some_and(|buddy| buddy.mark(from, to, used)) {
            self.sort();
        }
    }

    /// Puts the group where it belongs.
    fn sort(&self) {
        let Some(buddy) = self.buddy() else { return };
        let Summary { free, mean, largest } = Summary::from_buddy(buddy);
        self.slot.free.store(free, Ordering::Relaxed);
        self.slot.mean.store(mean, Ordering::Relaxed);
        self.slot.largest.store(largest.map_or(0, |order| order + 1), Ordering::Relaxed);
        self.slot.is_known.store(true, Ordering::Release);
        let key = (free > 0).then(|| mean_key(mean, top(self.view.layout())));
        let mut both = self.view.lock(&self.groups.sets);
        both.means.insert(self.group, key);
        both.orders.insert(self.group, largest);
    }
}
