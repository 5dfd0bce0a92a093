//! The end of a volume that is to become smaller: what lies behind a place is given to nobody any more.
//!
//! Owns: closing the end, and opening it again. Excludes: the clusters that are kept meanwhile (`shrink_reservation`), what moves out of
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
            let found = shared.map.next_fit(at, Need::anywhere(1), &mut Scan::default());
            let Some(start) = found.map_err(Refusal::NeedBitmap)? else { return Ok(()) };
            let run = ClusterRun { start, count: shared.map.reach(start, u32::MAX).len };
            shared.keep_free(run)?;
            at = Cluster(run.end());
        }
    }

    /// Gives everything out again, after [`Engine::close_end`].
    pub fn open_end(&self) {
        self.shared.closing.set(None);
        for run in self.shared.closing.drain() {
            // What is not loaded is free when it is.
            if let Err(Denial::NeedBitmap(_)) = self.shared.free(run) {
                self.shared.orphaned.add(run);
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
        if !self.accounting.take(u64::from(run.count)) {
            return Err(Refusal::NoSpace);
        }
        if self.map.take(run).is_err() {
            self.accounting.give(u64::from(run.count));
            return Err(Refusal::NoSpace);
        }
        self.closing.insert(run);
        self.policy.changed(&self.view(), run, true);
        self.events.report(|| Event::TakenExact(run));
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
            self.accounting.give(u64::from(before.count));
        }
        if behind.count > 0 {
            self.closing.insert(behind);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::groups::GroupContent;
    use crate::layout::Layout;
    use crate::policy::{BlockPolicyKind, POLICIES};
    use crate::request::Request;
    use ondisk::units::Group;

    const PER_GROUP: u32 = 2048;
    const END: u64 = 5000;

    fn engine(policy: BlockPolicyKind) -> Engine {
        let layout = Layout {
            clusters: 4 * u64::from(PER_GROUP) - 300,
            clusters_per_group: PER_GROUP,
            groups: 4,
            inodes_per_group: 64,
            groups_per_flex: 1,
            block_bytes: 4096,
            blocks_per_cluster: 1,
        };
        let engine = Engine::new(layout, policy).unwrap();
        for group in (0..4).map(Group) {
            let free = engine.layout().clusters_of(group);
            engine.describe_group(group, free, GroupContent::Uninitialised { used: &[] }).unwrap();
        }
        engine
    }

    /// Takes and frees at random, with files that grow and end; what is in use then.
    fn churn(
        engine: &Engine,
        state: &mut u64,
        used: &mut Vec<ClusterRun>,
        mut taken: impl FnMut(ClusterRun),
    ) {
        let mut random = |below: u64| {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (*state >> 33) % below
        };
        for _ in 0..600 {
            let want = u32::try_from(random(90)).unwrap() + 1;
            let mut request = Request::data(Cluster(random(engine.layout().clusters)), want);
            request.owner = random(9) + 1;
            request.growing = random(2) == 0;
            if let Ok(grant) = engine.allocate(&request) {
                taken(grant.run());
                // Some updates are dropped.
                if random(8) > 0 {
                    used.push(grant.into_run());
                }
            }
            if random(3) == 0 && !used.is_empty() {
                let at = usize::try_from(random(used.len() as u64)).unwrap();
                engine.free(used.swap_remove(at)).unwrap();
            }
            match random(20) {
                0 => engine.closed(random(9) + 1),
                1 => engine.truncated(random(9) + 1),
                _ => {}
            }
        }
    }

    #[test]
    fn nothing_behind_a_closed_end_is_given_out_under_any_policy() {
        for policy in POLICIES.iter().map(|row| row.kind) {
            let engine = engine(policy);
            let (mut state, mut used) = (7, Vec::new());
            churn(&engine, &mut state, &mut used, |_| {});
            engine.close_end(Cluster(END)).unwrap();
            churn(&engine, &mut state, &mut used, |run| assert!(run.end() <= END, "{policy:?}: {run:?}"));
            let (staying, leaving): (Vec<_>, Vec<_>) = used.into_iter().partition(|run| run.end() <= END);
            for run in leaving {
                assert!(engine.is_used(run), "{policy:?}");
                engine.free(run).unwrap();
                assert!(!engine.is_used(run) && engine.free(run).is_err(), "{policy:?}");
            }
            let all = engine.layout().clusters;
            assert_eq!(engine.kept_behind_end(), Some(all - END), "{policy:?}");
            engine.release_claims();
            let in_use: u64 = staying.iter().map(|run| u64::from(run.count)).sum();
            assert_eq!((engine.free_clusters(), engine.available_clusters()), (END - in_use, END - in_use));
            engine.open_end();
            assert_eq!((engine.free_clusters(), engine.available_clusters()), (all - in_use, all - in_use));
            assert_eq!(engine.kept_behind_end(), None);
            let run = ClusterRun { start: Cluster(END), count: u32::try_from(all - END).unwrap() };
            engine.take_exact(run).unwrap().into_run();
        }
    }

    #[test]
    fn what_is_promised_keeps_an_end_open() {
        let engine = engine(BlockPolicyKind::Lease);
        let _promise = engine.promise(END + 1).unwrap();
        assert_eq!(engine.close_end(Cluster(END)), Err(Refusal::NoSpace));
        engine.open_end();
        assert_eq!(engine.available_clusters(), engine.layout().clusters - END - 1);
    }
}
