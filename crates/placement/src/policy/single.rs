//! `single`: a block at a time from a goal, as ext2 and ext3 without reservation did.
//!
//! Rules followed: the goal itself if free; else the next free bit up to the next multiple of 64
//! blocks; else the next completely free byte of the bitmap in the group, or up to seven blocks before
//! it that are free; else the next free bit in the group; then the same in the following groups, around
//! the volume. A request gets one block whatever it wants, unless its minimum is more: then the first run
//! of that length.
//!
//! The step back from the byte is why files that grow side by side alternate block by block: the byte
//! before is the one another file has just begun.

use super::{BlockPolicy, Choice};
use crate::request::{Refusal, Request};
use crate::view::View;
use ondisk::units::Cluster;

/// See the module.
pub(crate) struct Single;

impl BlockPolicy for Single {
    fn choose(&self, view: &View<'_>, request: &Request) -> Result<Choice, Refusal> {
        let one = Request { want: request.min, ..*request };
        let run = |start| Choice::free(start, one.want);
        if view.fits_at_goal(&one)? {
            return Ok(run(one.goal));
        }
        let first = view.next_fit(&one, one.goal)?;
        let Some(first) = first else {
            return view.next_fit(&one, Cluster(0))?.map(run).ok_or(Refusal::NoSpace);
        };
        let near = one.goal.0.next_multiple_of(64).max(one.goal.0 + 1);
        if first.0 < near || one.want > 8 || one.align > 1 {
            return Ok(run(first));
        }
        let byte = view.next_fit(&Request { want: 8, align: 8, ..one }, one.goal)?;
        let group = view.layout().group_of(first);
        let inside = byte.filter(|at| view.layout().group_of(*at) == group);
        Ok(run(inside.map_or(first, |at| back(view, at, first))))
    }
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

    #[test]
    fn files_that_grow_side_by_side_alternate_block_by_block() -> Result<(), Box<dyn std::error::Error>> {
        let layout = Layout {
            clusters: 32_768,
            clusters_per_group: 32_768,
            groups: 1,
            inodes_per_group: 64,
            groups_per_flex: 1,
        };
        let engine = Engine::new(layout, BlockPolicyKind::Single)?;
        engine.describe_group(Group(0), 32_768, GroupContent::Uninitialised { used: &[] })?;
        let mut goals = [Cluster(1_000); 9];
        for step in 0..900u64 {
            let goal = &mut goals[usize::try_from(step % 9)?];
            let run = engine.allocate(&Request::data(*goal, 1))?.keep();
            assert_eq!(run.start, Cluster(1_000 + step));
            *goal = Cluster(run.end());
        }
        Ok(())
    }
}
