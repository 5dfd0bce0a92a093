//! `lease`, the default: the exact run index decides.
//!
//! - **Loading in order**: at the goal, else the first sufficient run after it, around the volume.
//! - **Size known** (I16): behind the file's last cluster if enough is free there; small files then on
//!   their directory's [`shelf`], or beside its last file, or where those that follow find room; others in a hole shorter than a chunk, else at the end of a longer
//!   run where that costs the fewest completely free chunks; then the tightest free run near the
//!   goal that is not reserved.
//! - **Growing**: from the file's [`window`], which has the length that the file is likely to reach.
//! - **Reserve**: the longest free runs are kept back for large files. They are broken only when
//!   nothing else is long enough, and on a full volume files are split before they are.
//! - **Shortfall**: the longest run there is, so that the file gets the fewest pieces.

mod shelf;
mod window;

use super::tunable::{Settings, Tunable, ours};
use super::{BlockPolicy, Choice, Event};
use crate::request::{Kind, Refusal, Request};
use crate::view::View;
use ondisk::units::{Cluster, ClusterRun};
use shelf::Shelves;
use window::Windows;

const SMALL: Tunable =
    ours("lease_small", 16, 0..=512, "longest file in clusters that goes on a shelf of its directory");
const BESIDE: Tunable = ours(
    "lease_beside",
    32,
    0..=4_096,
    "clusters from a directory's last file, on either side, that are beside it",
);
const BESIDE_MOST: Tunable =
    ours("lease_beside_most", 64, 0..=512, "longest file in clusters that goes beside its predecessor");
const NICHE: Tunable = ours(
    "lease_niche",
    16,
    1..=4_096,
    "free runs from this length on, and eight times that on a volume that is not crowded, are left for larger files",
);
const OPENING: Tunable = ours(
    "lease_opening",
    24,
    0..=4_096,
    "clusters of a free run where a directory's small files go on, while a third is free; a sixth of that until it is crowded",
);
const CROWDED: Tunable = ours(
    "lease_crowded",
    6,
    1..=1_000,
    "a volume is crowded when less than this part of all clusters is free, as a divisor",
);
const TIGHT: Tunable = ours(
    "lease_tight",
    5,
    1..=1_000,
    "files are split before the reserve when less than this part is free, as a divisor",
);
const RESERVE: Tunable = ours(
    "lease_reserve",
    80,
    1..=1 << 20,
    "the longest free runs with this part of all clusters are the reserve, as a divisor",
);
const SHELF: Tunable =
    ours("lease_shelf", 384, 0..=32_768, "clusters of a shelf for the small files of a directory");

/// Parameters of the policy.
pub(super) const TUNABLES: &[Tunable] = &[
    SMALL,
    BESIDE,
    BESIDE_MOST,
    NICHE,
    OPENING,
    CROWDED,
    TIGHT,
    RESERVE,
    SHELF,
    window::FIRST,
    window::UNKNOWN,
    window::LARGEST,
    window::SHARE,
    window::SHARE_FIRST,
    window::AMPLE,
];

/// The values of the tunables.
struct Rules {
    small: u32,
    beside: u32,
    beside_most: u32,
    niche: u32,
    opening: u32,
    crowded: u64,
    tight: u64,
    reserve: u64,
}

/// See the module.
pub(crate) struct Lease {
    rules: Rules,
    shelves: Shelves,
    windows: Windows,
}

impl Lease {
    /// A policy with these settings.
    pub(crate) fn new(settings: &Settings) -> Self {
        let rules = Rules {
            small: settings.value(&SMALL),
            beside: settings.value(&BESIDE),
            beside_most: settings.value(&BESIDE_MOST),
            niche: settings.value(&NICHE),
            opening: settings.value(&OPENING),
            crowded: settings.value(&CROWDED).into(),
            tight: settings.value(&TIGHT).into(),
            reserve: settings.value(&RESERVE).into(),
        };
        Lease { rules, shelves: Shelves::new(settings.value(&SHELF)), windows: Windows::new(settings) }
    }
}

impl Rules {
    /// True if files are split rather than the reserve broken.
    fn is_tight(&self, view: &View<'_>) -> bool {
        view.free_clusters() < view.layout().clusters / self.tight
    }

    /// Length from which on a free run belongs to the reserve.
    fn reserved(&self, view: &View<'_>) -> u32 {
        view.long_runs(view.layout().clusters / self.reserve)
    }

    /// True if more than this part of all clusters is free, as a divisor.
    fn has_free(view: &View<'_>, part: u64) -> bool {
        view.free_clusters() > view.layout().clusters / part
    }

    /// Length from which on a free run is not cut for a file that would be beside another.
    fn niche(&self, view: &View<'_>) -> u32 {
        if Self::has_free(view, self.crowded) { self.niche.saturating_mul(8) } else { self.niche }
    }

    /// Length of the free runs in which the small files of a directory begin that have nothing beside them; 0 for any.
    fn opening(&self, view: &View<'_>) -> u32 {
        match () {
            () if Self::has_free(view, 3) => self.opening,
            () if Self::has_free(view, self.crowded) => self.opening / 6,
            () => 0,
        }
    }

    fn is_small(&self, request: &Request) -> bool {
        request.want <= self.small && !request.extends
    }
}

impl BlockPolicy for Lease {
    fn choose(&self, view: &View<'_>, request: &Request) -> Result<Choice, Refusal> {
        if request.stream {
            return match in_order(view, request)? {
                Some(start) => Ok(Choice::free(start, request.want)),
                None => shortfall(view, request),
            };
        }
        if request.growing && request.kind == Kind::Data {
            // The reserve is for large files, and this one may become one.
            let large = request.offset >= u64::from(View::CHUNK) && !self.rules.is_tight(view);
            let below = if large { u32::MAX } else { self.rules.reserved(view) };
            if let Some(choice) = self.windows.choose(view, request, below)? {
                return Ok(choice);
            }
        } else if let Some(choice) = self.windows.rest(view, request) {
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

    fn event(&self, view: &View<'_>, event: Event) -> Vec<ClusterRun> {
        match event {
            Event::Closed(owner) => self.windows.closed(view, owner),
            Event::Truncated(owner) => self.windows.give_up(view, owner),
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
        if let Some(group) = view.worth_loading(request) {
            return Err(Refusal::NeedBitmap(group));
        }
        let long = self.rules.reserved(view);
        if let Some(start) = self.together(view, request, long) {
            return Ok(Some(whole(start)));
        }
        let spared = self.sparing(view, request, long);
        if let Some(start) = spared.or_else(|| view.near_fit_below(request, long)) {
            self.opened(view, request, start);
            return Ok(Some(whole(start)));
        }
        if self.windows.hold(request.want.min(View::CHUNK)) {
            // Has the engine take the windows back and ask again.
            return Err(Refusal::NoSpace);
        }
        if self.rules.is_tight(view) {
            if let Some(group) = view.worth_asking(request) {
                return Err(Refusal::NeedBitmap(group));
            }
            let piece = view.longest_below(request, long).filter(|run| run.count >= request.min);
            if piece.is_some() {
                return Ok(piece);
            }
        }
        let found = view.near_fit(request);
        match view.unknown_with(request.goal, request.want) {
            Some(group) if found.is_none() && view.may_ask(request) => Err(Refusal::NeedBitmap(group)),
            _ => {
                if let Some(start) = found {
                    self.opened(view, request, start);
                }
                Ok(found.map(whole))
            }
        }
    }

    /// A place that leaves completely free chunks whole: a hole shorter than a chunk, else the
    /// ragged end of a longer run. Requests too small to matter are left to the tightest fit.
    fn sparing(&self, view: &View<'_>, request: &Request, long: u32) -> Option<Cluster> {
        if request.want <= self.rules.small {
            return None;
        }
        let hole = (request.want < View::CHUNK).then(|| view.near_fit_below(request, long.min(View::CHUNK)));
        hole.flatten().or_else(|| view.ragged_fit(request, long))
    }

    /// The files that follow a small one in its directory may go on behind it.
    fn opened(&self, view: &View<'_>, request: &Request, start: Cluster) {
        if self.rules.is_small(request) && request.directory != 0 {
            self.shelves.open(view, request, start);
        }
    }

    /// A place that keeps the files of a directory together: on its shelf, beside its last file, or where the small ones
    /// that follow have room.
    fn together(&self, view: &View<'_>, request: &Request, long: u32) -> Option<Cluster> {
        let rules = &self.rules;
        let is_small = rules.is_small(request);
        if request.directory == 0 || request.extends || !is_small && request.want > rules.beside_most {
            return None;
        }
        if is_small && let Some(start) = self.shelves.take(view, request) {
            return Some(start);
        }
        if !Rules::has_free(view, rules.crowded.saturating_mul(4)) {
            // So little is free that a hole cut for a neighbour tears the next file.
            return None;
        }
        let beside = view.tightest_beside(request, rules.beside, rules.niche(view).min(long));
        let room = rules.opening(view);
        if beside.is_some() || !is_small || room == 0 {
            return beside;
        }
        let roomy = Request { want: request.want.max(room), ..*request };
        let start = view.home_fit(&roomy, room.saturating_mul(4).min(long))?;
        self.opened(view, request, start);
        Some(start)
    }
}

fn in_order(view: &View<'_>, request: &Request) -> Result<Option<Cluster>, Refusal> {
    let found = view.next_fit(request, request.goal)?;
    if found.is_some() || request.goal == Cluster(0) { Ok(found) } else { view.next_fit(request, Cluster(0)) }
}

fn shortfall(view: &View<'_>, request: &Request) -> Result<Choice, Refusal> {
    let longest = view.longest(request);
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

#[cfg(test)]
mod tests;
