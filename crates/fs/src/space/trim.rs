//! Free runs that no verb can take for a moment, so that the device can discard them.
//!
//! Owns: finding them, group by group, and holding them. Excludes the device. What a run is free of is the engines' own
//! word: space that was freed and still waits for its commit is in use there, and so is what is set aside for growing
//! files. No bitmap changes. A verb that finds no space while some is held waits for it ([`Space::await_held`]), and from
//! then to its end nothing more is held ([`Space::low_space`]).

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ondisk::units::{Cluster, ClusterRun, Group, low_u32};
use placement::{Denial, Grant};

use super::{Space, Writing, groups};
use crate::error::{Error, Result};
use crate::locks::lock;

/// Part of what is available that is held at most at a time.
const SHARE: u64 = 16;

/// How often a run is tried again after a verb took a part of it.
const TRIES: u32 = 4;

/// How long the next piece waits for verbs in need. On a full volume one may follow the other without an end.
const PATIENCE: Duration = Duration::from_secs(1);

/// How much is held, and news that something no longer is, or that a verb in need has come to its end.
#[derive(Default)]
pub(super) struct Holding {
    clusters: AtomicU64,
    low_space: AtomicU64,
    ended: (Mutex<()>, Condvar),
}

impl Holding {
    /// Lets verbs in need go first. A verb looks for space a limited number of times, and each piece that is held could
    /// make one look fail.
    fn begin(&self, clusters: u32) {
        let mut listening = lock(&self.ended.0);
        let begun = Instant::now();
        while self.low_space.load(Ordering::Acquire) > 0
            && let Some(rest) = PATIENCE.checked_sub(begun.elapsed())
        {
            let waited = self.ended.1.wait_timeout(listening, rest);
            listening = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        self.clusters.fetch_add(u64::from(clusters), Ordering::AcqRel);
    }

    /// `clusters` clusters are no longer held; with `free_generation`, because they are free again.
    fn end(&self, clusters: u32, free_generation: Option<&AtomicU64>) {
        let _listening = lock(&self.ended.0);
        self.clusters.fetch_sub(u64::from(clusters), Ordering::AcqRel);
        if let Some(free_generation) = free_generation {
            free_generation.fetch_add(1, Ordering::Release);
        }
        self.ended.1.notify_all();
    }
}

/// A verb that found no space: until this is dropped nothing more is held.
pub(crate) struct LowSpace<'s>(&'s Holding);

impl Drop for LowSpace<'_> {
    fn drop(&mut self) {
        let _listening = lock(&self.0.ended.0);
        self.0.low_space.fetch_sub(1, Ordering::AcqRel);
        self.0.ended.1.notify_all();
    }
}

/// A free run that no verb can take until this is dropped.
pub(crate) struct HeldRun<'s> {
    grant: Option<Grant>,
    writing: &'s Writing,
}

impl HeldRun<'_> {
    pub(crate) fn run(&self) -> ClusterRun {
        self.grant.as_ref().map_or(ClusterRun { start: Cluster(0), count: 0 }, Grant::run)
    }
}

impl Drop for HeldRun<'_> {
    fn drop(&mut self) {
        let count = self.run().count;
        self.grant = None;
        // It is free once more: those that found none look again.
        self.writing.holding.end(count, Some(&self.writing.free_generation));
    }
}

/// Free runs that are wanted, in clusters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trimmed {
    /// Shorter ones are left.
    pub(crate) min: u32,
    /// Where a run is cut, so that it is not held as a whole, it is cut at a multiple of this.
    pub(crate) unit: u32,
}

impl Space {
    /// Hands the free runs of a range to `work`, one at a time, each kept from all verbs meanwhile. Runs end with their
    /// groups. Groups whose bitmaps can't be believed are left out.
    ///
    /// # Errors
    /// The device's failure; what `work` gives; a volume that is only read.
    pub(crate) fn hold_free(
        &self,
        range: Range<u64>,
        wanted: Trimmed,
        mut work: impl FnMut(&HeldRun<'_>) -> Result<()>,
    ) -> Result<()> {
        let writing = self.writing()?;
        let geometry = &writing.format.geometry;
        let mut at = range.start;
        while at < range.end {
            let group = Group(low_u32(at / u64::from(geometry.clusters_per_group())));
            let end = groups::group_span(geometry, group).1.min(range.end);
            let next = self.hold_in_group(writing, at..end, wanted, &mut work)?;
            self.forget_group(writing, group)?;
            // A group that ends where it begins would be looked at for ever.
            at = next.max(end).max(at + 1);
        }
        Ok(())
    }

    /// As [`Space::hold_free`], for a part of a group. Returns where the next free run may be.
    fn hold_in_group(
        &self,
        writing: &Writing,
        range: Range<u64>,
        wanted: Trimmed,
        work: &mut impl FnMut(&HeldRun<'_>) -> Result<()>,
    ) -> Result<u64> {
        let per_group = u64::from(writing.format.geometry.clusters_per_group());
        let group = Group(low_u32(range.start / per_group));
        let (mut at, mut lost) = (range.start, 0);
        while at < range.end {
            let mut rest = match self.free_run(writing, group, at..range.end, wanted.min)? {
                Ok(run) => run,
                Err(next) => return Ok(next),
            };
            at = rest.end();
            if rest.count < wanted.min {
                continue;
            }
            while rest.count > 0 {
                let piece = piece(rest, &writing.blocks, wanted.unit);
                match self.hold(writing, piece)? {
                    Some(held) => {
                        work(&held)?;
                        lost = 0;
                    }
                    // A verb took a part of it: what is left is looked for.
                    None if lost < TRIES => {
                        lost += 1;
                        at = rest.start.0;
                        break;
                    }
                    None => lost = 0,
                }
                rest = ClusterRun { start: Cluster(piece.end()), count: rest.count - piece.count };
            }
        }
        Ok(range.end)
    }

    /// The first free run of a part of a group, or where to go on if there is none.
    fn free_run(
        &self,
        writing: &Writing,
        group: Group,
        range: Range<u64>,
        min: u32,
    ) -> Result<Result<ClusterRun, u64>> {
        let per_group = u64::from(writing.format.geometry.clusters_per_group());
        // A bitmap may be dropped again before it is used; not so often.
        for _ in 0..TRIES {
            let found = match writing.blocks.run_from(Cluster(range.start), min, 1) {
                Ok(Some(run)) if run.start.0 >= range.end => return Ok(Err(run.start.0)),
                // With no more than what is left here, no other group is looked at.
                Ok(Some(run)) => writing.blocks.run_from(run.start, 1, low_u32(range.end - run.start.0)),
                Ok(None) => return Ok(Err(u64::MAX)),
                Err(unknown) => Err(unknown),
            };
            match found {
                Ok(Some(run)) if run.start.0 < range.end => return Ok(Ok(run)),
                Ok(_) => return Ok(Err(range.end)),
                Err(unknown) if unknown == group => {
                    match self.load_block_bitmap(writing, &*writing.cache, group) {
                        Err(Error::Corrupt(_)) => return Ok(Err(range.end)),
                        done => done?,
                    }
                }
                Err(unknown) => return Ok(Err(u64::from(unknown.0) * per_group)),
            }
        }
        Ok(Err(range.end))
    }

    /// Holds a run, if all of it is free and not promised.
    fn hold<'s>(&self, writing: &'s Writing, run: ClusterRun) -> Result<Option<HeldRun<'s>>> {
        // Before it is taken: a verb that then finds no space must see that some is held.
        writing.holding.begin(run.count);
        let wrong = match writing.blocks.take_exact(run) {
            Ok(grant) if self.refuse_own(writing, run).is_ok() => {
                return Ok(Some(HeldRun { grant: Some(grant), writing }));
            }
            Ok(grant) => {
                // It must never be given out: it stays taken.
                grant.into_run();
                None
            }
            Err(denial) => Some(denial),
        };
        writing.holding.end(run.count, None);
        match wrong {
            Some(Denial::NeedBitmap(group)) => {
                match self.load_block_bitmap(writing, &*writing.cache, group) {
                    Ok(()) | Err(Error::Corrupt(_)) => Ok(None),
                    Err(error) => Err(error),
                }
            }
            _ => Ok(None),
        }
    }

    /// From now on nothing more is held, for a verb that found no space and looks again.
    pub(crate) fn low_space(&self) -> Option<LowSpace<'_>> {
        let holding = &self.writing.as_ref()?.holding;
        let _listening = lock(&holding.ended.0);
        holding.low_space.fetch_add(1, Ordering::AcqRel);
        Some(LowSpace(holding))
    }

    /// Waits until something that is held is free again, unless that has happened since `free_generation`; says whether it
    /// is worth looking again.
    pub(crate) fn await_held(&self, free_generation: u64) -> bool {
        let Some(writing) = &self.writing else { return false };
        let holding = &writing.holding;
        let mut listening = lock(&holding.ended.0);
        while holding.clusters.load(Ordering::Acquire) > 0 && self.free_generation() == free_generation {
            listening = holding.ended.1.wait(listening).unwrap_or_else(PoisonError::into_inner);
        }
        self.free_generation() != free_generation
    }

    /// Clusters that are held, and as good as free.
    pub(super) fn held(&self) -> u64 {
        self.writing.as_ref().map_or(0, |writing| writing.holding.clusters.load(Ordering::Acquire))
    }

    /// Keeps the bound on memory after a group was looked at.
    fn forget_group(&self, writing: &Writing, group: Group) -> Result<()> {
        let Some(bytes) = writing.bound else { return Ok(()) };
        let pending = lock(&writing.pending);
        self.forget(writing, &pending, [group], bytes)
    }
}

/// As much of the beginning of a run as is held at a time: little of what is available, so that no verb finds the
/// volume full, and no more than others can wait for.
fn piece(run: ClusterRun, engine: &placement::Engine, unit: u32) -> ClusterRun {
    let most = low_u32((engine.available_clusters() / SHARE).max(u64::from(unit)));
    if run.count <= most {
        return run;
    }
    let end = run.start.0 + u64::from(most);
    let cut = end - end % u64::from(unit.max(1));
    let end = if cut > run.start.0 { cut } else { end };
    ClusterRun { count: low_u32(end - run.start.0), ..run }
}
