//! A request as the kernel's allocation context has it: from what it is served, and what is looked for.
//!
//! Source: Linux 6.18, `ext4_mb_initialize_context`, `ext4_mb_group_or_file`, `ext4_mb_normalize_request` and
//! `ext4_mb_normalize_group_request`.

use super::normalise::{Goal, window};
use super::prealloc::Preallocations;
use super::tunables::Tunables;
use crate::layout::Layout;
use crate::request::{FileState, Kind, Mapped, Request};
use ondisk::units::bounded;

/// The way in which a request is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// From the pool of the CPU's locality group.
    Pool(u32),
    /// Near the last window of its stream.
    Stream,
    /// Exactly, near its own goal.
    Plain,
}

/// A request, and what is known of its file.
pub(super) struct Ask<'r> {
    pub(super) request: &'r Request,
    pub(super) file: FileState,
    pub(super) mode: Mode,
    /// It is not raised.
    is_exact: bool,
}

/// The state of the file; where no file system tells it, the file counts as dense.
fn file_of(request: &Request, layout: &Layout) -> FileState {
    let ratio = u64::from(layout.blocks_per_cluster);
    let dense = || {
        let goes_on = request.extends && request.offset > 0;
        let disk = (request.goal.0 * ratio).checked_sub(1).filter(|_| goes_on);
        let before = disk.map(|disk| Mapped { logical: request.offset * ratio - 1, disk });
        FileState {
            bytes: request.size.saturating_mul(layout.cluster_bytes()),
            goal: request.goal,
            before,
            behind: None,
            reserved: false,
            is_open: request.growing,
        }
    };
    request.file.unwrap_or_else(dense)
}

impl<'r> Ask<'r> {
    pub(super) fn new(request: &'r Request, tunables: &Tunables, layout: &Layout) -> Self {
        let file = file_of(request, layout);
        let is_data = request.kind == Kind::Data && !request.stream;
        let mode = if is_data { mode(request, &file, tunables, layout) } else { Mode::Plain };
        let is_exact = mode == Mode::Plain || file.reserved || tunables.no_normalize != 0;
        Ask { request, file, mode, is_exact }
    }

    /// True if space that was set aside may serve it.
    pub(super) fn may_use_windows(&self) -> bool {
        self.request.kind == Kind::Data
    }

    pub(super) fn goal(&self, windows: &Preallocations, tunables: &Tunables, layout: &Layout) -> Goal {
        let (request, ratio) = (self.request, u64::from(layout.blocks_per_cluster));
        let want = request.want;
        // Blocks of an index may be asked for at their very place.
        let exact = (request.kind == Kind::Metadata && request.extends).then_some(self.file.goal);
        let plain = Goal { logical: request.offset, len: want, full: want, exact, near: self.file.goal };
        match self.mode {
            _ if self.is_exact => plain,
            Mode::Plain => plain,
            // What is looked for in vain is forgotten then: only a file's own request keeps its window
            // (`ext4_mb_scan_groups_best_avail`, which goes back to the length before it was raised).
            Mode::Pool(_) => {
                Goal { len: tunables.group_prealloc(layout).min(layout.clusters_per_group), ..plain }
            }
            Mode::Stream => {
                let (before, behind) = windows.around(request.owner, request.offset);
                let between = (before.map(|end| end * ratio), behind.map(|start| start * ratio));
                window(request, &self.file, between, tunables.forced_goal, layout)
            }
        }
    }
}

/// Small files share a pool; others have windows of their own, but for one that is complete and closed.
fn mode(request: &Request, file: &FileState, tunables: &Tunables, layout: &Layout) -> Mode {
    let end = (request.offset + u64::from(request.want)).saturating_mul(layout.blocks_per_cluster.into());
    let size = file.bytes.div_ceil(layout.block_bytes.max(1).into());
    if tunables.forced_goal == 0 && end.max(size) <= u64::from(tunables.mb_stream_req) {
        let cpu = request.owner % u64::from(tunables.cpus.max(1));
        return Mode::Pool(bounded::<u32>(cpu));
    }
    let is_done = end == size && !file.is_open && tunables.forced_goal == 0;
    if is_done { Mode::Plain } else { Mode::Stream }
}
