//! The end of a volume that is to become smaller: what lies behind a place is given to nobody any more.
//!
//! Owns: closing the end, and opening it again. Excludes: the clusters that are kept meanwhile (`kept`), what moves out of
//! there, and the new shape.

use crate::engine::{Engine, Shared};
use crate::events::Event;
use crate::index::Scan;
use crate::index::map::Need;
use crate::policy;
use crate::request::{Denial, Refusal};
use ondisk::units::{Cluster, ClusterRun};

impl Engine {
    /// From now on nothing from this place on is given to anybody, whatever the policy: what is free there is taken, and what
    /// becomes free there is kept. Called again, takes what came free unseen. No request may run meanwhile.
    ///
    /// # Errors
    /// [`Refusal::NeedBitmap`]: load that group's bitmap and call again. [`Refusal::NoSpace`]: what is free there is
    /// promised to somebody, and is not free elsewhere; [`Engine::open_end`] makes it as it was.
    pub fn close_end(&self, from: Cluster) -> Result<(), Refusal> {
        let shared = &self.shared;
        shared.closing.set(Some(from));
        shared.reclaim(policy::Event::Pressure);
        let mut at = from;
        loop {
            let found = shared.map.next_fit(at, Need::of(1), &mut Scan::default());
            let Some(start) = found.map_err(Refusal::NeedBitmap)? else { return Ok(()) };
            let run = ClusterRun { start, count: shared.map.reach(start, u32::MAX).len };
            shared.keep_free(run)?;
            at = Cluster(run.end());
        }
    }

    /// Gives everything out again, after [`Engine::close_end`].
    pub fn open_end(&self) {
        self.shared.closing.set(None);
        for run in self.shared.closing.take() {
            // What is not loaded is free when it is.
            if let Err(Denial::NeedBitmap(_)) = self.shared.free(run) {
                self.shared.strays.add(run);
            }
        }
    }

    /// Unused clusters behind the end that was closed; `None` if none was.
    #[must_use]
    pub fn kept_behind_end(&self) -> Option<u64> {
        self.shared.closing.count()
    }
}

impl Shared {
    /// Takes a free run for good, out of what is available.
    fn keep_free(&self, run: ClusterRun) -> Result<(), Refusal> {
        if !self.ledger.take(u64::from(run.count)) {
            return Err(Refusal::NoSpace);
        }
        if self.map.take(run).is_err() {
            self.ledger.give(u64::from(run.count));
            return Err(Refusal::NoSpace);
        }
        self.closing.keep(run);
        self.policy.changed(&self.view(), run, true);
        self.account.report(|| Event::TakenExact(run));
        Ok(())
    }

    /// Gives a run back that nobody uses any more: to all, or to what is kept behind the end.
    pub(crate) fn free(&self, run: ClusterRun) -> Result<(), Denial> {
        let (before, behind) = self.closing.cut(run);
        if behind.count > 0 && !self.closing.within(behind.start.0, behind.end()).is_empty() {
            return Err(Denial::Mismatch { run, expected: "used" });
        }
        if before.count > 0 {
            self.give(before)?;
            self.ledger.give(u64::from(before.count));
        }
        if behind.count > 0 {
            self.closing.keep(behind);
        }
        Ok(())
    }
}
