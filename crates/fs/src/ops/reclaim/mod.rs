//! Reclaiming what a crash left of a volume that soft updates write, while the volume is in use (I32 to I34).
//!
//! Owns: the stages of it, each in small parts between which verbs go on; a verb that needs its result helps it along.
//! Excludes: what precedes the use of the volume (`opening`), and the counting (`order`).
//!
//! ```text
//!  Survey       every inode that was marked in use at opening: what it leads to, names, links
//!  Clusters     that were marked at opening, have no owner, and were not given away since
//!  Inodes       that are marked, and whose records say that they are not in use
//!  Links        of files with fewer names
//!  Nameless     inodes, with all that has its only name below them
//!  Directories  with two names, or whose `..` leads elsewhere; their links; how many there are
//!  Attributes   blocks with fewer users than they count
//! ```
//!
//! All is done by updates as verbs make them, so that a crash in between leaves what any crash leaves.

mod look;
mod nameless;
mod stages;

use std::sync::atomic::{AtomicU64, Ordering};

use ondisk::units::InodeNumber;

use crate::error::{Error, Result};
use crate::locks::lock;
use crate::ops::changing::perform;
use crate::ops::orphans::OrphanLists;
use crate::ops::sync::sync_metadata;
use crate::order::Survey;
pub use crate::reclaiming::Reclaimed;
use crate::reclaiming::{Stage, Work};
use crate::space::Marked;
use crate::tx::Tx;
use crate::volume::Volume;

fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// Leftovers of a crash on a volume with soft updates: space and inodes in use that have no owner. They are
/// reclaimed while the volume is in use.
#[derive(Clone, Copy)]
pub struct Leftovers<'v> {
    volume: &'v Volume,
}

impl Volume {
    /// Returns the leftovers of a crash, to be reclaimed.
    #[must_use]
    pub fn leftovers(&self) -> Leftovers<'_> {
        Leftovers { volume: self }
    }
}

impl<'v> Leftovers<'v> {
    /// The lists that name orphans.
    pub(crate) fn orphan_lists(&self) -> OrphanLists<'v> {
        OrphanLists::new(self.volume)
    }

    /// Takes note of what has to be reclaimed, before the volume is used.
    pub(crate) fn begin(&self, marked: Marked) {
        let Some(mut held) = self.volume.order.survey() else { return };
        let geometry = &self.volume.format.geometry;
        let survey = Survey::new(marked.inodes, geometry.groups, geometry.inodes_per_group);
        let state = &self.volume.reclaiming;
        state.total.store(survey.total(), Ordering::Relaxed);
        *held = Some(survey);
        self.volume.space.watch(true);
        let clusters = marked.clusters;
        *lock(&state.work) =
            Some(Work { stage: Stage::Survey, at: 0, clusters, strays: Vec::new(), nest: Vec::new() });
        state.pending.store(true, Ordering::Release);
    }

    /// Reclaims what is left, together with other threads that do; nothing if nothing is, or if it was stopped. To be called by a thread that has nothing else to do, while verbs go on.
    ///
    /// # Errors
    /// Damage that soft updates do not leave: reclaiming ends, and the volume stays marked as not in order. The
    /// device's failure.
    pub fn reclaim(&self) -> Result<()> {
        while self.reclaim_some()? {}
        Ok(())
    }

    /// Does a small part of that; says whether anything is left.
    ///
    /// # Errors
    /// As [`Leftovers::reclaim`].
    pub fn reclaim_some(&self) -> Result<bool> {
        let state = &self.volume.reclaiming;
        if !state.is_pending() || state.stopped.load(Ordering::Acquire) {
            return Ok(false);
        }
        let mut held = lock(&state.work);
        let Some(work) = held.as_mut() else { return Ok(false) };
        self.volume.syncing().mark_changed()?;
        match self.advance(work) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(error @ (Error::Io { .. } | Error::WriteFailed | Error::NoSpace)) => return Err(error),
            Err(error) => {
                state.failed.store(true, Ordering::Release);
                self.end();
                *held = None;
                return Err(error);
            }
        }
        sync_metadata(self.volume)?;
        self.end();
        *held = None;
        drop(held);
        self.volume.syncing().mark_if_idle()?;
        Ok(false)
    }

    fn end(&self) {
        if let Some(mut survey) = self.volume.order.survey() {
            *survey = None;
        }
        self.volume.space.watch(false);
        self.volume.reclaiming.pending.store(false, Ordering::Release);
    }

    /// Leaves the rest to the next use of the volume, which stays marked as not in order.
    pub fn stop(&self) {
        self.volume.reclaiming.stopped.store(true, Ordering::Release);
    }

    /// How far reclaiming has come; nothing where nothing is left.
    #[must_use]
    pub fn left(&self) -> Option<Reclaimed> {
        self.volume.reclaiming.is_pending().then(|| self.reclaimed())
    }

    /// Counts what was reclaimed since the volume was opened.
    #[must_use]
    pub fn reclaimed(&self) -> Reclaimed {
        let state = &self.volume.reclaiming;
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Reclaimed {
            seen: of(&state.seen),
            total: of(&state.total),
            inodes: of(&state.inodes),
            blocks: of(&state.blocks),
        }
    }

    /// Space that is wanted may be what is left to be reclaimed: all of it is, and free then. Whether there was any.
    pub(crate) fn reclaim_for_space(&self) -> Result<bool> {
        if !self.volume.reclaiming.is_pending() || self.volume.reclaiming.stopped.load(Ordering::Acquire) {
            return Ok(false);
        }
        self.reclaim()?;
        Ok(true)
    }

    /// Before a directory is moved or goes that was there when the volume was opened: it may have another name, until
    /// all is reclaimed.
    pub(super) fn settle_directory(&self, directory: InodeNumber, name: &[u8]) -> Result<()> {
        if !self.volume.reclaiming.is_pending() {
            return Ok(());
        }
        let Ok(number) = self.volume.lookup(directory, name) else { return Ok(()) };
        let knows = || self.surveyed(|survey| survey.knows(number));
        let is_directory =
            self.volume.view().inode(number)?.file_type() == Some(ondisk::inode::FileType::Directory);
        if is_directory && knows() { self.reclaim() } else { Ok(()) }
    }

    /// An update of reclaiming. What it needs may be what it has just freed.
    fn update(&self, mut verb: impl FnMut(&mut Tx<'v>) -> Result<()>) -> Result<()> {
        match perform(self.volume, &mut verb) {
            Err(Error::NoSpace) => {
                sync_metadata(self.volume)?;
                perform(self.volume, &mut verb)
            }
            done => done,
        }
    }

    /// Asks the survey, of which there is one while anything is left.
    fn surveyed<T: Default>(&self, ask: impl FnOnce(&mut Survey) -> T) -> T {
        let mut survey = self.volume.order.survey();
        // Without a survey nothing is reclaimed, and nothing is said of any inode.
        survey.as_mut().and_then(|survey| survey.as_mut()).map(ask).unwrap_or_default()
    }
}
