//! `lease`, the default: the exact run index decides.
//!
//! 1. At the goal, if enough is free there.
//! 2. Loading in order: the first sufficient run after the goal, then from the volume's start.
//! 3. Else the tightest class nearest to the goal.
//! 4. No run is long enough: the longest there is, so that the file gets the fewest pieces.

use super::{BlockPolicy, Choice};
use crate::request::{Refusal, Request};
use crate::view::View;
use ondisk::units::{Cluster, ClusterRun};

/// See the module.
pub(crate) struct Lease;

impl BlockPolicy for Lease {
    fn choose(&self, view: &View<'_>, request: &Request) -> Result<Choice, Refusal> {
        let found = if request.stream { in_order(view, request)? } else { nearby(view, request)? };
        match found {
            Some(start) => Ok(Choice::free(start, request.want)),
            None => shortfall(view, request).map(|run| Choice::free(run.start, run.count)),
        }
    }
}

fn in_order(view: &View<'_>, request: &Request) -> Result<Option<Cluster>, Refusal> {
    let found = view.next_fit(request, request.goal)?;
    if found.is_some() || request.goal == Cluster(0) { Ok(found) } else { view.next_fit(request, Cluster(0)) }
}

fn nearby(view: &View<'_>, request: &Request) -> Result<Option<Cluster>, Refusal> {
    if view.fits_at_goal(request)? {
        return Ok(Some(request.goal));
    }
    let found = view.near_fit(request);
    match view.unknown_with(request.goal, request.want) {
        Some(group) if found.is_none() && view.may_ask(request) => Err(Refusal::NeedBitmap(group)),
        _ => Ok(found),
    }
}

fn shortfall(view: &View<'_>, request: &Request) -> Result<ClusterRun, Refusal> {
    let longest = if request.align > 1 { None } else { view.longest(request) };
    let known = longest.map_or(0, |run| run.count);
    if let Some(group) = view.unknown_with(request.goal, known.saturating_mul(2).max(1))
        && (known < request.min || view.may_ask(request))
    {
        return Err(Refusal::NeedBitmap(group));
    }
    if let Some(run) = longest.filter(|run| run.count >= request.min) {
        return Ok(run);
    }
    let least = Request { want: request.min, ..*request };
    if let Some(start) = view.near_fit(&least) {
        return Ok(ClusterRun { start, count: request.min });
    }
    match view.unknown_with(request.goal, 1) {
        Some(group) => Err(Refusal::NeedBitmap(group)),
        None => Err(Refusal::NoSpace),
    }
}
