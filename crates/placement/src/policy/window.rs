//! `window` and `window-dynamic`: reservation windows in memory, as ext3 had them and ext2 got in
//! 2010.
//!
//! Rules followed: every file has a window, a range of clusters that no other file's window
//! overlaps and that held a free cluster when it was chosen. Clusters are taken from the goal, else
//! from the first free one of the window. A new window is the first gap of its size between the
//! others behind the goal, inside the goal's group, then inside the following groups; if it holds
//! nothing free, the search goes on at the first free cluster behind. The fixed window has 8
//! clusters; the dynamic one doubles up to 1,024 whenever it is replaced and more than half of it
//! was used. A longer request raises the size. Windows end with the last close or a truncation;
//! under pressure they are ignored. With `rsv_kept` those of that many closed files stay until they are cut or removed, as
//! in FreeBSD's ext2fs of 2010, whose windows lived as long as the inode was in memory: new files keep out of the small
//! holes beside old ones.
//!
//! Deviations: no skipping of groups that have fewer free clusters than the window is long; starts
//! are not rounded to bytes of the bitmap; one lock for all windows (as the kernel's tree).

use super::single::{COLOUR, begun};
use super::tunable::{self, Settings, Tunable};
use super::{BlockPolicy, Choice, Event};
use crate::request::{Kind, Refusal, Request};
use crate::stats::Counter;
use crate::sync::{Mutex, PoisonError};
use crate::view::View;
use ondisk::units::{Cluster, ClusterRun, saturated};
use std::collections::{BTreeMap, VecDeque};

/// Clusters of a window that is new or fixed.
const WINDOW: Tunable = Tunable {
    name: "rsv_default",
    default: 8,
    least: 1,
    most: 1_027,
    about: "clusters of a new or fixed window",
    source: tunable::Source::Reservation,
};
/// Clusters up to which a dynamic window doubles.
const LARGEST: Tunable = Tunable {
    name: "rsv_max",
    default: 1_024,
    least: 1,
    most: 32_768,
    about: "clusters up to which a window doubles",
    source: tunable::Source::Reservation,
};
/// Closed files whose windows stay.
const KEPT: Tunable = Tunable {
    name: "rsv_kept",
    default: 0,
    least: 0,
    most: 1_000_000,
    about: "closed files whose windows stay",
    source: tunable::Source::FreeBsd,
};
/// Parameters of fixed windows.
pub(super) const FIXED: &[Tunable] = &[WINDOW, KEPT, COLOUR];
/// Parameters of dynamic windows.
pub(super) const DYNAMIC: &[Tunable] = &[WINDOW, LARGEST, KEPT, COLOUR];

#[derive(Clone, Copy)]
struct Window {
    start: u64,
    end: u64,
    used: u32,
}

#[derive(Default)]
struct Windows {
    /// Window of each file.
    of: BTreeMap<u64, Window>,
    /// End of each window by its start.
    ranges: BTreeMap<u64, u64>,
    /// Files whose windows stay, those closed first at the front; perhaps more than once.
    closed: VecDeque<u64>,
}

/// See the module.
pub(crate) struct ReservationWindow {
    first: u32,
    largest: u32,
    kept: usize,
    coloured: bool,
    windows: Mutex<Windows>,
}

impl ReservationWindow {
    /// Windows of 8 clusters.
    pub(crate) fn fixed(settings: &Settings) -> Self {
        Self::sized(settings, settings.value(&WINDOW))
    }

    /// Windows that double up to 1,024 clusters.
    pub(crate) fn dynamic(settings: &Settings) -> Self {
        Self::sized(settings, settings.value(&LARGEST))
    }

    fn sized(settings: &Settings, largest: u32) -> Self {
        let first = settings.value(&WINDOW);
        ReservationWindow {
            first,
            largest: largest.max(first),
            kept: usize::try_from(settings.value(&KEPT)).unwrap_or(0),
            coloured: settings.value(&COLOUR) == 1,
            windows: Mutex::default(),
        }
    }
}

impl Windows {
    fn drop_window(&mut self, owner: u64) -> Option<Window> {
        let window = self.of.remove(&owner)?;
        self.ranges.remove(&window.start);
        Some(window)
    }

    /// First start at or after `from` of a gap of `size` between windows, and before `limit`.
    fn gap(&self, from: u64, size: u64, limit: u64) -> Option<u64> {
        let mut start = from;
        if let Some((_, &end)) = self.ranges.range(..=from).next_back() {
            start = start.max(end);
        }
        for (&other, &end) in self.ranges.range(start..) {
            if other >= start + size {
                break;
            }
            start = end;
        }
        (start + size <= limit).then_some(start)
    }
}

impl BlockPolicy for ReservationWindow {
    fn choose(&self, view: &View<'_>, request: &Request) -> Result<Choice, Refusal> {
        let goal = if self.coloured { begun(view, request) } else { request.goal };
        let request = &Request { goal, ..*request };
        let plain = request.min > 1 || request.kind == Kind::Metadata;
        if plain || request.owner == 0 {
            return any(view, request);
        }
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(window) = windows.of.get_mut(&request.owner) {
            let inside = (window.start..window.end).contains(&request.goal.0);
            let from = if inside { request.goal.0 } else { window.start };
            if let Some(run) = free_in(view, request, from, window.end)? {
                window.used = window.used.saturating_add(run.count);
                view.note(Counter::WindowHits, 1);
                return Ok(Choice::free(run.start, run.count));
            }
        }
        view.note(Counter::WindowMisses, 1);
        let before = windows.drop_window(request.owner);
        let size = u64::from(next_size(before, self.first, self.largest).max(request.want));
        let Some(start) = window_start(view, &windows, request, size)? else { return any(view, request) };
        let Some(run) = free_in(view, request, start.max(window_goal(request, start, size)), start + size)?
        else {
            return any(view, request);
        };
        windows.ranges.insert(start, start + size);
        windows.of.insert(request.owner, Window { start, end: start + size, used: run.count });
        Ok(Choice::free(run.start, run.count))
    }

    fn event(&self, _view: &View<'_>, event: Event) -> Vec<ClusterRun> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Closed(owner) => {
                windows.closed.push_back(owner);
                while windows.closed.len() > self.kept
                    && let Some(oldest) = windows.closed.pop_front()
                {
                    windows.drop_window(oldest);
                }
            }
            Event::Truncated(owner) => {
                windows.drop_window(owner);
            }
            Event::Pressure => *windows = Windows::default(),
        }
        Vec::new()
    }
}

/// The goal if it lies in the window and something is free behind it, else the window's start.
fn window_goal(request: &Request, start: u64, size: u64) -> u64 {
    if (start..start + size).contains(&request.goal.0) { request.goal.0 } else { start }
}

fn next_size(before: Option<Window>, first: u32, largest: u32) -> u32 {
    let Some(window) = before else { return first };
    let size = u32::try_from(window.end - window.start).unwrap_or(largest);
    if window.used > size / 2 { size.saturating_mul(2).min(largest) } else { size.min(largest) }.max(first)
}

/// First free clusters of `from..end`, as many as wanted.
fn free_in(view: &View<'_>, request: &Request, from: u64, end: u64) -> Result<Option<ClusterRun>, Refusal> {
    let one = Request { want: 1, ..*request };
    let Some(start) = view.next_fit(&one, Cluster(from))?.filter(|at| at.0 < end) else { return Ok(None) };
    let room = saturated::<u32>(end - start.0);
    let count = view.reach(start, request.want.min(room));
    Ok((count > 0).then_some(ClusterRun { start, count }))
}

/// Start of a new window: the first gap in the goal's group, else in the groups behind it, in
/// which something is free.
fn window_start(
    view: &View<'_>,
    windows: &Windows,
    request: &Request,
    size: u64,
) -> Result<Option<u64>, Refusal> {
    let layout = view.layout();
    let home = layout.group_of(request.goal).0;
    let one = Request { want: 1, ..*request };
    for group in (home..layout.groups).chain(0..home).map(ondisk::units::Group) {
        let base = layout.group_start(group).0;
        let end = base + u64::from(layout.clusters_of(group));
        let mut from = if group.0 == home { request.goal.0 } else { base };
        while let Some(start) = windows.gap(from, size, end) {
            let Some(free) = view.next_fit(&one, Cluster(start))? else { break };
            if free.0 < start + size {
                return Ok(Some(start));
            }
            from = free.0;
        }
    }
    Ok(None)
}

/// Without regard to windows: what is free at the goal or behind it.
fn any(view: &View<'_>, request: &Request) -> Result<Choice, Refusal> {
    let least = Request { want: request.min, ..*request };
    let mut found = view.next_fit(&least, request.goal)?;
    if found.is_none() {
        found = view.next_fit(&least, Cluster(0))?;
    }
    let start = found.ok_or(Refusal::NoSpace)?;
    let count = view.reach(start, request.want);
    Ok(Choice::free(start, count.max(request.min)))
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use crate::{BlockPolicyKind, Engine, GroupContent, Layout, Request};
    use ondisk::units::{Cluster, Group};

    #[test]
    fn windows_of_closed_files_stay_as_reported_and_no_longer_than_the_files()
    -> Result<(), Box<dyn std::error::Error>> {
        let first_of_others = |kept| -> Result<Vec<u64>, Box<dyn std::error::Error>> {
            let layout = Layout {
                clusters: 32_768,
                clusters_per_group: 32_768,
                groups: 1,
                inodes_per_group: 64,
                groups_per_flex: 1,
                block_bytes: 4_096,
                blocks_per_cluster: 1,
            };
            let engine = Engine::with_policy(layout, BlockPolicyKind::Window.tuned(&[("rsv_kept", kept)])?)?;
            engine.describe_group(Group(0), 32_768, GroupContent::Uninitialised { used: &[] })?;
            let one = |owner| {
                let request = Request { owner, ..Request::data(Cluster(800), 1) };
                let found = engine.allocate(&request).map(|grant| grant.into_run().start.0);
                engine.closed(owner);
                found
            };
            let mut found = vec![one(1)?, one(2)?, one(3)?];
            engine.truncated(2);
            found.push(one(4)?);
            Ok(found)
        };
        assert_eq!(first_of_others(0)?, [800, 801, 802, 803]);
        assert_eq!(first_of_others(9)?, [800, 808, 816, 809]);
        // The third takes the first one's window from it.
        assert_eq!(first_of_others(1)?, [800, 808, 801, 809]);
        Ok(())
    }
}
