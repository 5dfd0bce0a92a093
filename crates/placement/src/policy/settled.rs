//! `settled`: for changes of an image of which as much as possible shall stay as it is.
//!
//! An image that hosts fetch in pieces costs what its changed pieces cost. So the bytes that are new should share as few
//! zones as possible (a zone: 128 clusters, 512 KiB with blocks of 4 KiB). Rules, in order:
//!
//! 1. Behind the file's last cluster, if all of the request fits there; structures at their goal's nearest run.
//! 2. Behind what was placed last, whatever file that was.
//! 3. The first run that is long enough in the zone of what was placed last.
//! 4. The zone with the most free clusters of those that have a run long enough: what lies free at the end of the volume
//!    first, then the zones that lost most. Longer requests than a zone take the tightest run there is.
//! 5. The longest run.
//!
//! Owns no claims: the place is a hint, which each use verifies. Zones are looked for in the 64 groups from the goal's on.

use super::tunable::{self, Settings, Tunable};
use super::{BlockPolicy, Choice};
use crate::request::{Kind, Refusal, Request};
use crate::sync::{Mutex, PoisonError};
use crate::view::View;
use ondisk::units::{Cluster, Group};

/// Clusters of a zone.
const ZONE: Tunable = Tunable {
    name: "zone",
    default: 128,
    least: 8,
    most: 32_768,
    about: "clusters of a zone; changes share as few as possible",
    source: tunable::Source::Ours,
};
/// Parameters of the policy.
pub(super) const TUNABLES: &[Tunable] = &[ZONE];
/// Groups that one request looks at for a zone.
const GROUPS: u32 = 64;

/// See the module.
pub(crate) struct Settled {
    zone: u32,
    /// Behind what was placed last.
    next: Mutex<Option<Cluster>>,
}

impl Settled {
    pub(crate) fn new(settings: &Settings) -> Self {
        Settled { zone: settings.value(&ZONE), next: Mutex::default() }
    }

    fn next(&self) -> Option<Cluster> {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place behind what was placed last, or in the same zone.
    fn near_last(&self, view: &View<'_>, want: u32) -> Option<Cluster> {
        let last = self.next()?;
        if view.reach(last, want) >= want {
            return Some(last);
        }
        let layout = view.layout();
        let group = layout.group_of(Cluster(last.0.saturating_sub(1)));
        let inside = u32::try_from(last.0.saturating_sub(1) - layout.group_start(group).0).ok()?;
        let zone = inside / self.zone;
        let runs = free_runs(view, group)?;
        let found = runs.iter().find(|run| run.start / self.zone == zone && run.count >= want)?;
        Some(Cluster(layout.group_start(group).0 + u64::from(found.start)))
    }

    /// The first long enough run of the zone with the most free clusters.
    fn roomiest(&self, view: &View<'_>, request: &Request) -> Result<Option<Cluster>, Refusal> {
        let layout = view.layout();
        let first = layout.group_of(request.goal).0;
        let mut best: Option<(u32, Cluster)> = None;
        for step in 0..GROUPS.min(layout.groups) {
            let group = Group((first + step) % layout.groups);
            if view.group_free(group) < request.want {
                continue;
            }
            if view.needs_bitmap(group) && view.may_ask(request) {
                return Err(Refusal::NeedBitmap(group));
            }
            let Some(runs) = free_runs(view, group) else { continue };
            let Some((free, start)) = self.best_of(&runs, request.want) else { continue };
            if best.is_none_or(|(most, _)| free > most) {
                best = Some((free, Cluster(layout.group_start(group).0 + u64::from(start))));
            }
        }
        Ok(best.map(|(_, start)| start))
    }

    /// Free clusters of the best zone of a group, and where a run of it begins.
    fn best_of(&self, runs: &[Free], want: u32) -> Option<(u32, u32)> {
        let zones = runs.last().map_or(0, |run| (run.start + run.count - 1) / self.zone + 1);
        let mut free = vec![0_u32; zones as usize];
        let mut fits = vec![None; zones as usize];
        for run in runs {
            let end = run.start + run.count;
            for zone in run.start / self.zone..=(end - 1) / self.zone {
                let from = run.start.max(zone * self.zone);
                free[zone as usize] += end.min((zone + 1) * self.zone) - from;
                if end - from >= want {
                    fits[zone as usize].get_or_insert(from);
                }
            }
        }
        let zones = free.iter().zip(&fits).filter_map(|(free, fits)| Some((*free, (*fits)?)));
        zones.reduce(|best, zone| if zone.0 > best.0 { zone } else { best })
    }
}

/// Free clusters that follow each other, counted from the start of their group.
struct Free {
    start: u32,
    count: u32,
}

/// The free runs of a group; `None` if its bitmap is not known.
fn free_runs(view: &View<'_>, group: Group) -> Option<Vec<Free>> {
    let clusters = view.layout().clusters_of(group);
    let words = view.group_words(group)?;
    let mut runs: Vec<Free> = Vec::new();
    let mut at = 0;
    while at < clusters {
        let word = words.get(at as usize / 64).copied().unwrap_or(u64::MAX) >> (at % 64);
        let bits = (64 - at % 64).min(clusters - at);
        let used = word.trailing_ones().min(bits);
        let free = if used == bits { 0 } else { (word >> used).trailing_zeros().min(bits - used) };
        if free > 0 {
            match runs.last_mut() {
                Some(last) if last.start + last.count == at + used => last.count += free,
                _ => runs.push(Free { start: at + used, count: free }),
            }
        }
        at += used + free;
    }
    Some(runs)
}

/// The least that will do: over the edge of two regions, which the longest run does not cross.
fn least(view: &View<'_>, request: &Request) -> Result<Choice, Refusal> {
    if let Some(start) = view.near_fit(&Request { want: request.min, ..*request }) {
        return Ok(Choice::free(start, request.min));
    }
    Err(view.unknown_with(request.goal, 1).map_or(Refusal::NoSpace, Refusal::NeedBitmap))
}

impl BlockPolicy for Settled {
    fn choose(&self, view: &View<'_>, request: &Request) -> Result<Choice, Refusal> {
        if request.extends && view.fits_at_goal(request)? {
            return Ok(Choice::free(request.goal, request.want));
        }
        let is_small = request.want <= self.zone && request.kind == Kind::Data;
        if is_small {
            let near = self.near_last(view, request.want);
            let found = if near.is_some() { near } else { self.roomiest(view, request)? };
            if let Some(start) = found {
                return Ok(Choice::free(start, request.want));
            }
        }
        if let Some(start) = view.near_fit(request) {
            return Ok(Choice::free(start, request.want));
        }
        if let Some(group) = view.unknown_with(request.goal, request.want) {
            return Err(Refusal::NeedBitmap(group));
        }
        if let Some(run) = view.longest(request).filter(|run| run.count >= request.min) {
            return Ok(Choice::free(run.start, run.count));
        }
        least(view, request)
    }

    fn taken(&self, _view: &View<'_>, request: &Request, choice: &Choice) -> Vec<ondisk::units::ClusterRun> {
        if request.kind == Kind::Data {
            *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(Cluster(choice.run.end()));
        }
        Vec::new()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use crate::{BlockPolicyKind, Engine, GroupContent, Layout, Request};
    use ondisk::units::{Cluster, Group};

    /// One group in which only these runs are free.
    fn engine(free: &[(u64, u32)]) -> Result<Engine, Box<dyn std::error::Error>> {
        let layout = Layout {
            clusters: 32_768,
            clusters_per_group: 32_768,
            groups: 1,
            inodes_per_group: 64,
            groups_per_flex: 1,
            block_bytes: 4096,
            blocks_per_cluster: 1,
        };
        let mut bitmap = vec![0xFF_u8; 4096];
        for at in free.iter().flat_map(|(start, count)| *start..start + u64::from(*count)) {
            bitmap[usize::try_from(at)? / 8] &= !(1 << (at % 8));
        }
        let engine = Engine::with_policy(layout, BlockPolicyKind::Settled.make())?;
        let count = free.iter().map(|(_, count)| count).sum();
        engine.describe_group(Group(0), count, GroupContent::Unknown)?;
        engine.load_group(Group(0), &bitmap)?;
        Ok(engine)
    }

    #[test]
    fn what_is_new_shares_zones_and_fills_the_emptiest_first() -> Result<(), Box<dyn std::error::Error>> {
        // A tight hole near the goal, a zone with two holes, one with one, and a file's hole of two zones.
        let engine = engine(&[(100, 2), (1_280, 60), (1_350, 20), (2_560, 70), (5_120, 256)])?;
        let place =
            |count| engine.allocate(&Request::data(Cluster(90), count)).map(|grant| grant.into_run().start.0);
        // Whole zones first, one behind the other, over their borders.
        assert_eq!([place(2)?, place(100)?, place(100)?], [5_120, 5_122, 5_222]);
        // What the last zone has no room for begins the next: 80 clusters free are more than 70.
        assert_eq!([place(58)?, place(2)?, place(20)?], [1_280, 1_338, 1_350]);
        // Then the next with most room; the rest of the first comes last.
        assert_eq!([place(54)?, place(54)?], [2_560, 5_322]);
        Ok(())
    }

    #[test]
    fn a_request_gets_its_length_wherever_a_run_has_it() -> Result<(), Box<dyn std::error::Error>> {
        let engine = engine(&[(1_000, 300), (2_000, 301), (9_000, 130)])?;
        let place = |count| engine.allocate(&Request::data(Cluster(0), count)).map(|grant| grant.into_run());
        let run = place(301)?;
        assert_eq!((run.start.0, run.count), (2_000, 301));
        let run = place(131)?;
        assert_eq!((run.start.0, run.count), (1_000, 131));
        let run = place(400)?;
        assert_eq!(run.count, 169, "the longest piece");
        Ok(())
    }
}
