//! `lease`, the default: the exact run index decides.
//!
//! - **Loading in order**: at the goal, else the first sufficient run after it, around the volume.
//! - **Size known**: behind the file's last cluster if enough is free there; small files then on
//!   their directory's [`shelf`]; then the tightest free run near the goal that is not reserved.
//! - **Growing**: from the file's [`window`], which doubles and moves to a region of its own.
//! - **Reserve**: the longest free runs are kept back for large files. They are broken only when
//!   nothing else is long enough, and on a full volume files are split before they are.
//! - **Shortfall**: the longest run there is, so that the file gets the fewest pieces.

mod shelf;
mod window;

use super::{BlockPolicy, Choice, Event};
use crate::request::{Kind, Refusal, Request};
use crate::view::View;
use ondisk::units::{Cluster, ClusterRun};
use shelf::Shelves;
use window::Windows;

/// Longest file that is put beside its predecessor rather than where it fits best.
const SMALL: u32 = 16;
/// Longest free run that small files of a directory use up from its start.
const NICHE: u32 = 32;
/// Small files are put beside each other only when more than one cluster in this many is free.
const CROWDED: u64 = 6;
/// Files are split rather than the reserve broken when less than one in this many is free.
const TIGHT: u64 = 3;

/// See the module.
#[derive(Default)]
pub(crate) struct Lease {
    shelves: Shelves,
    windows: Windows,
}

impl BlockPolicy for Lease {
    fn choose(&self, view: &View<'_>, request: &Request) -> Result<Choice, Refusal> {
        if request.stream {
            return match in_order(view, request)? {
                Some(start) => Ok(Choice::free(start, request.want)),
                None => shortfall(view, request),
            };
        }
        if request.growing && request.align == 1 && request.kind == Kind::Data {
            if let Some(choice) = self.windows.choose(view, request)? {
                return Ok(choice);
            }
        } else if let Some(choice) = self.windows.rest(request) {
            return Ok(choice);
        }
        match self.nearby(view, request)? {
            Some(run) => Ok(Choice::free(run.start, run.count)),
            None => shortfall(view, request),
        }
    }

    fn taken(&self, view: &View<'_>, request: &Request, choice: &Choice) -> Vec<ClusterRun> {
        self.windows.taken(view, request, choice)
    }

    fn event(&self, _view: &View<'_>, event: Event) -> Vec<ClusterRun> {
        match event {
            Event::Closed(owner) | Event::Truncated(owner) => self.windows.give_up(owner),
            Event::Pressure => self.windows.give_up_all(),
        }
    }

    fn claims(&self) -> Vec<ClusterRun> {
        self.windows.claims()
    }
}

impl Lease {
    fn nearby(&self, view: &View<'_>, request: &Request) -> Result<Option<ClusterRun>, Refusal> {
        let whole = |start| ClusterRun { start, count: request.want };
        // Without a key the caller says nothing of files: its goal is all there is to go by.
        if (request.extends || request.owner == 0) && view.fits_at_goal(request)? {
            return Ok(Some(whole(request.goal)));
        }
        if let Some(group) = view.unknown_at(request.goal)
            && view.may_ask(request)
        {
            return Err(Refusal::NeedBitmap(group));
        }
        let small = request.want <= SMALL && !request.extends && request.align == 1;
        if small && let Some(start) = self.beside(view, request) {
            return Ok(Some(whole(start)));
        }
        let long = view.long_runs(reserve(view));
        if let Some(start) = view.near_fit_below(request, long) {
            if small && request.directory != 0 {
                self.shelves.open(view, request, start);
            }
            return Ok(Some(whole(start)));
        }
        if view.free_clusters() < view.layout().clusters / TIGHT && request.align == 1 {
            let piece = view.longest_below(request, long).filter(|run| run.count >= request.min);
            if piece.is_some() {
                return Ok(piece);
            }
        }
        let found = view.near_fit(request);
        match view.unknown_with(request.goal, request.want) {
            Some(group) if found.is_none() && view.may_ask(request) => Err(Refusal::NeedBitmap(group)),
            _ => {
                if small
                    && request.directory != 0
                    && let Some(start) = found
                {
                    self.shelves.open(view, request, start);
                }
                Ok(found.map(whole))
            }
        }
    }

    /// A place for a small file beside the last one of its directory.
    fn beside(&self, view: &View<'_>, request: &Request) -> Option<Cluster> {
        if request.directory != 0
            && let Some(start) = self.shelves.take(view, request)
        {
            return Some(start);
        }
        if view.free_clusters() < view.layout().clusters / CROWDED {
            return None;
        }
        let niche = view.reach(request.goal, NICHE);
        (niche >= request.want && niche < NICHE).then_some(request.goal)
    }
}

fn in_order(view: &View<'_>, request: &Request) -> Result<Option<Cluster>, Refusal> {
    let found = view.next_fit(request, request.goal)?;
    if found.is_some() || request.goal == Cluster(0) { Ok(found) } else { view.next_fit(request, Cluster(0)) }
}

/// Clusters of the longest free runs that are kept back: with the share `f` of the volume free,
/// 0.8 f^2 of it, but at least an eightieth of it. Found by ageing four profiles to 50 ... 95 %
/// and demanding that no measure of free space is worse than with mballoc.
fn reserve(view: &View<'_>) -> u64 {
    let (clusters, free) = (view.layout().clusters, view.free_clusters());
    let share = free.saturating_mul(1_024) / clusters.max(1);
    (clusters / 1_024 * share * share / 1_280).max(clusters / 80)
}

fn shortfall(view: &View<'_>, request: &Request) -> Result<Choice, Refusal> {
    let longest = if request.align > 1 { None } else { view.longest(request) };
    let known = longest.map_or(0, |run| run.count);
    if let Some(group) = view.unknown_with(request.goal, known.saturating_mul(2).max(1))
        && (known < request.min || view.may_ask(request))
    {
        return Err(Refusal::NeedBitmap(group));
    }
    if let Some(run) = longest.filter(|run| run.count >= request.min) {
        return Ok(Choice::free(run.start, run.count));
    }
    let least = Request { want: request.min, ..*request };
    if let Some(start) = view.near_fit(&least) {
        return Ok(Choice::free(start, request.min));
    }
    match view.unknown_with(request.goal, 1) {
        Some(group) => Err(Refusal::NeedBitmap(group)),
        None => Err(Refusal::NoSpace),
    }
}
