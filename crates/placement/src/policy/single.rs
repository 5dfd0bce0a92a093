//! `single`: a block at a time from a goal, as ext2 and ext3 without reservation did.
//!
//! Rules followed: the goal itself if free; else the next free bit up to the next multiple of 64
//! blocks; else the next completely free byte of the bitmap in the group; else the next free bit
//! in the group; then the same in the following groups, around the volume. A request gets one
//! block whatever it wants, unless its minimum is more: then the first run of that length.

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
        Ok(run(byte.filter(|at| view.layout().group_of(*at) == group).unwrap_or(first)))
    }
}
