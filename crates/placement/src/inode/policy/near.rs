//! `near`, the default: what is read together lies together.
//!
//! Source: ours. From Orlov (ext4): counting in flex groups, top-level directories spread, the
//! limits that keep room for what directories will hold. From FFS (2013): an area at the start of
//! each group's data for blocks of directories.
//! Rules:
//! - A top-level directory: among 64 flex groups from a place its name decides, the one with the
//!   fewest directories of those with at least the mean of free inodes and clusters; if none of the
//!   64 has it, the first behind them that has. Up to 64 flex groups (128 GiB at 4 KiB and 16
//!   groups) that is the rule of ext4; above, the work no longer grows with the volume.
//! - Others: the flex group where the parent's last directory went (the parent's own at first) or
//!   the first behind it within the limits of `orlov`; a long row of siblings does not look at the
//!   full groups behind it again and again.
//! - Files: the parent's group, the first free number, so that files of a tree that is written
//!   directory by directory are dense. A directory whose files keep being torn apart by others
//!   (four breaks) is filled side by side with them: it gets a lease of 16 consecutive numbers,
//!   then 32, then 64, which the policy keeps other directories off while others are free.
//! - A lease is a hint in memory: it ends with the directory, with 256 other directories used, or
//!   where no number outside of leases is free in the group.

use super::orlov::in_limits;
use super::{DirectoryPolicy, Goal, InodeView, cycle, mean_inodes_or_any};
use crate::inode::InodeRequest;
use crate::inode::recent::Recent;
use crate::layout::Layout;
use crate::policy::tunable::{Settings, Tunable, ours};
use crate::sync::{Mutex, MutexGuard, PoisonError};
use ondisk::units::{Group, saturated};
use std::collections::BTreeMap;

/// Flex groups among which a top-level directory chooses.
const CANDIDATES: Tunable =
    ours("near_candidates", 64, 1..=65_536, "flex groups among which a top-level directory chooses");
/// A tree written depth first breaks a directory's row once for each subdirectory that has files in between.
const BREAKS: Tunable = ours(
    "near_breaks",
    4,
    1..=1 << 20,
    "breaks in the numbers of a directory's files before it gets a lease",
);
/// 16 inodes of 256 bytes fill a block of 4 KiB.
const FIRST: Tunable = ours("near_first_lease", 16, 1..=1_024, "inode numbers of a first lease");
const MOST: Tunable = ours("near_lease", 64, 1..=65_536, "inode numbers of a lease at most");
/// Parameters of the policy.
pub(super) const TUNABLES: &[Tunable] = &[CANDIDATES, BREAKS, FIRST, MOST];

/// Free runs and leases that are looked at for a new lease: in a torn group there may be none, and a
/// lease is worth no long search.
const TRIES: u32 = 32;
/// See the module.
pub struct Near {
    candidates: usize,
    state: Mutex<NearState>,
}

struct NearState {
    breaks: u32,
    /// Numbers of a first lease, to whose multiples all begin, and of the largest.
    sizes: (u32, u32),
    directories: Recent<Directory>,
    /// Leases by their first inode: one past the last, and the directory.
    leases: BTreeMap<u32, (u32, u32)>,
}

/// State of a directory that gets names.
#[derive(Default)]
struct Directory {
    /// The flex group of its last subdirectory.
    flex: Option<u32>,
    /// Inode of its last file.
    last: Option<u32>,
    breaks: u32,
    lease: Option<u32>,
    /// Numbers its next lease will have.
    size: u32,
}

impl Near {
    /// A policy with these settings.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let first = settings.value(&FIRST);
        let known = NearState {
            breaks: settings.value(&BREAKS),
            sizes: (first, settings.value(&MOST).max(first)),
            directories: Recent::default(),
            leases: BTreeMap::new(),
        };
        let candidates = saturated::<usize>(settings.value(&CANDIDATES));
        Near { candidates, state: Mutex::new(known) }
    }

    fn lock(&self) -> MutexGuard<'_, NearState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn top_level(&self, view: &InodeView<'_>, hash: u32) -> Option<u32> {
        let flexes = view.layout().flex_groups();
        let mean = view.totals().mean_of(flexes);
        let roomy = |flex: u32| {
            let counts = view.flex(flex);
            let fits = counts.inodes >= mean.inodes.max(1) && counts.clusters >= mean.clusters;
            fits.then_some((counts.dirs, flex))
        };
        let mut order = cycle(hash.checked_rem(flexes)?, flexes);
        let near = order.by_ref().take(self.candidates).filter_map(roomy).min_by_key(|(dirs, _)| *dirs);
        near.or_else(|| order.find_map(roomy)).map(|(_, flex)| flex)
    }
}

impl DirectoryPolicy for Near {
    fn for_directory(&self, view: &InodeView<'_>, request: &InodeRequest) -> Goal {
        let layout = view.layout();
        let parent = view.group_of(request.parent);
        let known = self.lock();
        let chosen = if request.top_level {
            self.top_level(view, request.name_hash)
        } else {
            let last = known.directories.peek(request.parent).and_then(|directory| directory.flex);
            in_limits(
                view,
                last.unwrap_or(layout.flex_of(parent)),
                view.totals().mean_of(layout.flex_groups()),
            )
        };
        let group = chosen.and_then(|flex| view.first_in_flex(flex));
        known.unleased(view, group.unwrap_or_else(|| mean_inodes_or_any(view, parent, view.totals())))
    }

    fn for_file(&self, view: &InodeView<'_>, request: &InodeRequest) -> Goal {
        let home = view.group_of(request.parent);
        let mut known = self.lock();
        known.leased(view, request.parent, home).unwrap_or_else(|| known.unleased(view, home))
    }

    fn created(&self, view: &InodeView<'_>, request: &InodeRequest, index: u32) {
        let mut known = self.lock();
        let directory = known.touch(request.parent);
        if request.is_directory {
            directory.flex = Some(view.layout().flex_of(view.group_of(index)));
            return;
        }
        match directory.last {
            Some(last) if last.checked_add(1) != Some(index) => directory.breaks += 1,
            _ => {}
        }
        directory.last = Some(index);
    }

    fn freed(&self, _view: &InodeView<'_>, index: u32, was_directory: bool) {
        if was_directory {
            let mut known = self.lock();
            let gone = known.directories.remove(index);
            known.drop_lease(gone);
        }
    }

    /// A cluster for each directory that the limits let into an empty volume's group, and never
    /// more than a sixteenth of the group.
    fn directory_area(&self, layout: &Layout) -> u32 {
        (layout.inodes_per_group / 16).min(layout.clusters_per_group / 16)
    }
}

impl NearState {
    fn touch(&mut self, directory: u32) -> &mut Directory {
        let (_, forgotten) = self.directories.touch(directory);
        self.drop_lease(forgotten);
        self.directories.touch(directory).0
    }

    fn drop_lease(&mut self, gone: Option<Directory>) {
        if let Some(start) = gone.and_then(|directory| directory.lease) {
            self.leases.remove(&start);
        }
    }

    /// The lease an inode lies in: where it ends.
    fn lease_at(&self, index: u32) -> Option<u32> {
        let (_, &(end, _)) = self.leases.range(..=index).next_back()?;
        (index < end).then_some(end)
    }

    /// The first free number of a group outside of leases; if there is none, the first free one.
    fn unleased(&self, view: &InodeView<'_>, group: Group) -> Goal {
        let base = group.0.saturating_mul(view.layout().inodes_per_group);
        let mut from = 0;
        while let Some(free) = view.next_free(group, from) {
            match self.lease_at(base.saturating_add(free)) {
                None => return Goal { group, from: free },
                Some(end) => from = end - base,
            }
        }
        Goal::in_group(group)
    }

    /// The next number of the directory's lease; a new lease where one is due.
    fn leased(&mut self, view: &InodeView<'_>, owner: u32, group: Group) -> Option<Goal> {
        let base = group.0.saturating_mul(view.layout().inodes_per_group);
        let directory = self.directories.peek(owner)?;
        let (breaks, size) = (directory.breaks, directory.size.clamp(self.sizes.0, self.sizes.1));
        if let Some(start) = directory.lease {
            let end = self.leases.get(&start).map_or(start, |(end, _)| *end);
            let free = view.next_free(group, start.checked_sub(base)?);
            if let Some(from) = free.filter(|free| base + free < end) {
                return Some(Goal { group, from });
            }
            self.leases.remove(&start);
        }
        let is_due = breaks >= self.breaks;
        let start = if is_due { self.find_lease(view, group, size) } else { None };
        let directory = self.touch(owner);
        directory.lease = start.map(|from| base + from);
        if is_due && start.is_none() {
            // Not again for each file.
            directory.breaks = 0;
        }
        let from = start?;
        directory.size = size * 2;
        self.leases.insert(base + from, (base + from + size, owner));
        Some(Goal { group, from })
    }

    /// The first numbers of a group that are all free, in no lease, and begin at a multiple of a first lease.
    fn find_lease(&self, view: &InodeView<'_>, group: Group, size: u32) -> Option<u32> {
        let base = group.0.saturating_mul(view.layout().inodes_per_group);
        let mut from = 0;
        for _ in 0..TRIES {
            let (start, end) = view.next_free_run(group, from)?;
            let start = start.next_multiple_of(self.sizes.0);
            let (low, high) = (base + start, (base + start).saturating_add(size));
            let lease = self.leases.range(..high).next_back().filter(|(_, (end, _))| *end > low);
            match lease {
                Some((_, (lease, _))) => from = lease - base,
                None if start + size <= end => return Some(start),
                None => from = end.max(start),
            }
        }
        None
    }
}
