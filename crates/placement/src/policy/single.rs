//! `single`: a block at a time from a goal, as ext2 and ext3 without reservation did.
//!
//! Rules followed: the goal itself if free; else the next free bit up to the next multiple of 64
//! blocks; else the next completely free byte of the bitmap in the group, or up to seven blocks before
//! it that are free; else the next free bit in the group; then the same in the following groups, around
//! the volume. A request gets one block whatever it wants, unless its minimum is more: then the first run
//! of that length.
//!
//! With `rule` 1, instead, as FreeBSD's ext2fs in the summer of 2010, which had lost where a file's last block lay: the goal of
//! a block that follows the file's last one is the block of the volume that has its number in the file; others go
//! from the goal given. The goal itself if free; else the next completely free byte of the bitmap from the goal's byte on,
//! in its group, then from the group's start; else the next free bit in the same order; then the groups behind.
//!
//! Where a process is known ([`Request::process`]) and `colour` is 1, a file begins in a sixteenth of its group: the one
//! of the process's number, as in Linux 2.6. `window` and `window-dynamic` do the same.
//!
//! The step back from the byte is why files that grow side by side alternate block by block: the byte
//! before is the one another file has just begun.

use super::tunable::{self, Settings, Tunable};
use super::{BlockPolicy, Choice, Event};
use crate::request::{Refusal, Request};
use crate::sync::{Mutex, PoisonError};
use crate::view::View;
use ondisk::units::{Cluster, ClusterRun};
use std::collections::BTreeMap;

/// Choice between the two rules.
const RULE: Tunable = Tunable {
    name: "rule",
    default: 0,
    least: 0,
    most: 1,
    about: "0: ext2 and ext3, 1: FreeBSD's ext2fs of 2010",
    source: tunable::Source::FreeBsd,
};
/// Switch by which processes begin files in parts of a group of their own.
pub(super) const COLOUR: Tunable = Tunable {
    name: "colour",
    default: 1,
    least: 0,
    most: 1,
    about: "1: a file begins in the sixteenth of its group that its process has",
    source: tunable::Source::Reservation,
};
/// Parameters of the policy.
pub(super) const TUNABLES: &[Tunable] = &[RULE, COLOUR];

/// See the module.
#[derive(Default)]
pub(crate) struct Single {
    /// With rule 1, the block of each file being written that would follow.
    next: Option<Mutex<BTreeMap<u64, u64>>>,
    coloured: bool,
}

impl Single {
    pub(crate) fn new(settings: &Settings) -> Self {
        Single {
            next: (settings.value(&RULE) == 1).then(Mutex::default),
            coloured: settings.value(&COLOUR) == 1,
        }
    }
}

impl BlockPolicy for Single {
    fn choose(&self, view: &View<'_>, request: &Request) -> Result<Choice, Refusal> {
        let mut one = Request { want: request.min, ..*request };
        if self.coloured {
            one.goal = begun(view, request);
        }
        let run = |start| Choice::free(start, one.want);
        if let Some(next) = &self.next {
            return by_bytes(view, &lost(next, &one))?.map(run).ok_or(Refusal::NoSpace);
        }
        if view.fits_at_goal(&one)? {
            return Ok(run(one.goal));
        }
        let first = view.next_fit(&one, one.goal)?;
        let Some(first) = first else {
            return view.next_fit(&one, Cluster(0))?.map(run).ok_or(Refusal::NoSpace);
        };
        let near = one.goal.0.next_multiple_of(64).max(one.goal.0 + 1);
        if first.0 < near || one.want > 8 {
            return Ok(run(first));
        }
        let byte = view.next_byte(one.goal)?;
        let group = view.layout().group_of(first);
        let inside = byte.filter(|at| view.layout().group_of(*at) == group);
        Ok(run(inside.map_or(first, |at| back(view, at, first))))
    }

    fn event(&self, _view: &View<'_>, event: Event) -> Vec<ClusterRun> {
        if let Some(next) = &self.next {
            let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                Event::Closed(owner) | Event::Truncated(owner) => drop(next.remove(&owner)),
                Event::Pressure => next.clear(),
            }
        }
        Vec::new()
    }
}

/// The goal, or the start of the sixteenth of its group in which the process begins files.
pub(super) fn begun(view: &View<'_>, request: &Request) -> Cluster {
    if request.process == 0 {
        return request.goal;
    }
    let layout = view.layout();
    let group = layout.group_of(request.goal);
    let part = u64::from(layout.clusters_of(group)) / 16;
    Cluster(layout.group_start(group).0 + u64::from(request.process % 16) * part)
}

/// The request with the goal that rule 1 has for it. What a file began with, 0, is taken for its last block.
fn lost(next: &Mutex<BTreeMap<u64, u64>>, request: &Request) -> Request {
    if request.owner == 0 {
        return *request;
    }
    let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
    let following = next.entry(request.owner).or_insert(1);
    if request.offset != *following {
        return *request;
    }
    *following += 1;
    Request { goal: Cluster(request.offset), ..*request }
}

/// The goal, else free bytes, else free bits: those of the goal's group from its byte on, all of them, those behind.
fn by_bytes(view: &View<'_>, request: &Request) -> Result<Option<Cluster>, Refusal> {
    if view.fits_at_goal(request)? {
        return Ok(Some(request.goal));
    }
    let layout = view.layout();
    let group = layout.group_of(request.goal);
    let start = layout.group_start(group);
    let end = Cluster(start.0 + u64::from(layout.clusters_of(group)));
    let byte = Cluster(request.goal.0 - (request.goal.0 - start.0) % 8);
    let inside = |found: Option<Cluster>| found.filter(|at| *at < end);
    // A free byte has no room for a longer minimum.
    let in_bytes = request.want <= 8;
    for from in [byte, start].into_iter().filter(|_| in_bytes) {
        if let Some(found) = inside(view.next_byte(from)?) {
            return Ok(Some(found));
        }
    }
    for from in [byte, start] {
        if let Some(found) = inside(view.next_fit(request, from)?) {
            return Ok(Some(found));
        }
    }
    if let Some(found) = view.next_byte(end)?.filter(|_| in_bytes) {
        return Ok(Some(found));
    }
    let behind = view.next_fit(request, end)?;
    if behind.is_some() { Ok(behind) } else { view.next_fit(request, Cluster(0)) }
}

/// Up to seven free blocks before a free byte, none of them before `first`.
fn back(view: &View<'_>, byte: Cluster, first: Cluster) -> Cluster {
    let least = first.0.max(byte.0.saturating_sub(7));
    let taken = (least..byte.0).rev().find(|at| view.reach(Cluster(*at), 1) == 0);
    Cluster(taken.map_or(least, |at| at + 1))
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use crate::{BlockPolicyKind, Engine, GroupContent, Layout, Request};
    use ondisk::units::{Cluster, Group};

    fn one_group(policy: Box<dyn crate::policy::BlockPolicy>) -> Result<Engine, Box<dyn std::error::Error>> {
        let layout = Layout {
            clusters: 32_768,
            clusters_per_group: 32_768,
            groups: 1,
            inodes_per_group: 64,
            groups_per_flex: 1,
            block_bytes: 4_096,
            blocks_per_cluster: 1,
        };
        let engine = Engine::with_policy(layout, policy)?;
        engine.describe_group(Group(0), 32_768, GroupContent::Uninitialised { used: &[] })?;
        Ok(engine)
    }

    #[test]
    fn rule_1_gives_every_block_of_a_file_in_order_a_byte_of_its_own()
    -> Result<(), Box<dyn std::error::Error>> {
        let engine = one_group(BlockPolicyKind::Single.tuned(&[("rule", 1)])?)?;
        // What a volume begins with.
        engine.allocate(&Request { min: 4_004, ..Request::data(Cluster(0), 4_004) })?.into_run();
        let block = |owner, offset, goal| {
            let request = Request { owner, offset, ..Request::data(Cluster(goal), 1) };
            engine.allocate(&request).map(|grant| grant.into_run().start.0)
        };
        assert_eq!([block(7, 0, 4_000)?, block(7, 1, 4_009)?, block(7, 2, 4_017)?], [4_008, 4_016, 4_024]);
        // Out of order it goes by the goal, and so does another file's first block.
        assert_eq!([block(7, 9, 4_017)?, block(8, 0, 4_018)?], [4_017, 4_018]);
        assert_eq!(block(7, 3, 4_025)?, 4_032);
        engine.closed(7);
        assert_eq!(block(7, 4, 4_033)?, 4_033);
        // A longer minimum than a byte has room for.
        let long = Request { min: 9, owner: 10, ..Request::data(Cluster(4_034), 9) };
        assert_eq!(engine.allocate(&long)?.into_run().start.0, 4_034);
        // Without free bytes single blocks are taken: that loop ends with 4,004.
        while block(9, 0, 4_000)?.is_multiple_of(8) {}
        assert_eq!([block(9, 0, 0)?, block(9, 0, 4_006)?], [4_005, 4_006]);
        Ok(())
    }

    #[test]
    fn processes_begin_files_in_sixteenths_of_a_group_of_their_own() -> Result<(), Box<dyn std::error::Error>>
    {
        for policy in [BlockPolicyKind::Single, BlockPolicyKind::Window, BlockPolicyKind::WindowDynamic] {
            for (colour, expected) in [(1, [0, 4_096, 6_144, 3, 4_097]), (0, [0, 1, 2, 3, 4])] {
                let engine = one_group(policy.tuned(&[("colour", colour)])?)?;
                let block = |process, goal| {
                    let request = Request { process, ..Request::data(Cluster(goal), 1) };
                    engine.allocate(&request).map(|grant| grant.into_run().start.0)
                };
                // 18 has the place of 2; one that goes on behind other blocks goes by its goal.
                let begun = [block(0, 0)?, block(2, 0)?, block(3, 0)?, block(0, 3)?, block(18, 0)?];
                assert_eq!(begun, expected, "{policy:?}");
            }
        }
        Ok(())
    }

    #[test]
    fn files_that_grow_side_by_side_alternate_block_by_block() -> Result<(), Box<dyn std::error::Error>> {
        let engine = one_group(BlockPolicyKind::Single.make())?;
        let mut goals = [Cluster(1_000); 9];
        for step in 0..900u64 {
            let goal = &mut goals[usize::try_from(step % 9)?];
            let run = engine.allocate(&Request::data(*goal, 1))?.into_run();
            assert_eq!(run.start, Cluster(1_000 + step));
            *goal = Cluster(run.end());
        }
        Ok(())
    }
}
