//! Normalisation of a request: the window of the file that is allocated at once.
//!
//! All of it is counted in blocks, as in Linux; the window that comes out has whole clusters.

use crate::layout::Layout;
use crate::request::{FileState, Request};
use ondisk::units::{Cluster, saturated};
use std::ops::Range;

/// A window of the file, and the place on the volume where it should begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Goal {
    /// First file cluster of the window.
    pub(super) logical: u64,
    /// Clusters of the window. They may be fewer than those of the request.
    pub(super) len: u32,
    /// The length that is looked for where no shortened one was found.
    pub(super) full: u32,
    /// A place that is tried before any search.
    pub(super) exact: Option<Cluster>,
    /// Where the search begins.
    pub(super) near: Cluster,
}

/// Blocks before and behind which other windows of the file lie.
pub(super) type Between = (Option<u64>, Option<u64>);

/// The window for a file that does not share a locality group: a ladder on the size in bytes, cut to what lies
/// between the mapped neighbours and between other windows, and to a group. A window that touches a neighbour is
/// tried at the place that goes on from it, the one before last.
///
/// With `forced` it has that many clusters instead. Source: Linux 6.18, `ext4_mb_normalize_request` and
/// `ext4_mb_pa_adjust_overlap`.
pub(super) fn window(
    request: &Request,
    file: &FileState,
    between: Between,
    forced: u32,
    layout: &Layout,
) -> Goal {
    let ratio = u64::from(layout.blocks_per_cluster);
    let group = u64::from(layout.clusters_per_group) * ratio;
    let logical = request.offset * ratio;
    let (start, len) = match forced {
        0 => ladder(request, file, layout),
        clusters => (logical, u64::from(clusters) * ratio),
    };
    let end = start.max(logical / group * group) + len;
    let start = start.max(logical / group * group);
    let start = file.before.map_or(start, |before| start.max(before.logical + 1));
    let end = file.behind.map_or(end, |behind| end.min(behind.logical)).min(start + group);
    let cut_start = between.0.map_or(start, |other| start.max(other));
    let cut_end = between.1.map_or(end, |other| end.min(other));
    // What other windows of the file leave holds the request's first block; else all bets are off.
    let whole = cut_start <= logical && logical < cut_end;
    let (start, end) = if whole { (cut_start, cut_end) } else { (logical, logical + ratio) };
    let len = saturated::<u32>((end - start).div_ceil(ratio));
    let (exact, near) = goes_on(file, start..end, ratio);
    Goal { logical: start.div_ceil(ratio), len, full: len, exact, near: near.unwrap_or(file.goal) }
}

/// The place of a window that touches a mapped neighbour.
fn goes_on(file: &FileState, window: Range<u64>, ratio: u64) -> (Option<Cluster>, Option<Cluster>) {
    let behind = file.behind.filter(|behind| behind.logical == window.end);
    let leads = behind.and_then(|behind| behind.disk.checked_sub(window.end - window.start));
    let before = file.before.filter(|before| before.logical + 1 == window.start);
    let place = before.map(|before| before.disk + 1).or(leads).map(|block| Cluster(block / ratio));
    (place, place)
}

/// Start and length of the window, in blocks. Small blocks bound it, since buddies were thought to be no longer once.
fn ladder(request: &Request, file: &FileState, layout: &Layout) -> (u64, u64) {
    const MIB: u64 = 1 << 20;
    let (block, ratio) = (u64::from(layout.block_bytes), u64::from(layout.blocks_per_cluster));
    let (logical, want) = (request.offset * ratio, u64::from(request.want) * ratio);
    let size = (logical + want).saturating_mul(block).max(file.bytes);
    let limit = 2 * block;
    let aligned = |window: u64| {
        let blocks = (window / block).max(1);
        (logical / blocks * blocks, blocks)
    };
    if size <= MIB {
        return (0, size.max(16 << 10).next_power_of_two() / block);
    }
    if size <= 4 * MIB || limit <= 2 << 10 {
        return aligned(2 * MIB);
    }
    if size <= 8 * MIB || limit <= 4 << 10 {
        return aligned(4 * MIB);
    }
    if want * block <= 8 * MIB || limit <= 8 << 10 {
        return aligned(8 * MIB);
    }
    (logical, want)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Mapped;

    fn layout(block_bytes: u32, blocks_per_cluster: u32, clusters_per_group: u32) -> Layout {
        Layout {
            clusters: 1 << 20,
            clusters_per_group,
            groups: (1 << 20) / clusters_per_group,
            inodes_per_group: 8_192,
            groups_per_flex: 16,
            block_bytes,
            blocks_per_cluster,
        }
    }

    const EMPTY: FileState =
        FileState { bytes: 0, goal: Cluster(0), before: None, behind: None, reserved: false, is_open: true };

    fn windows<const N: usize>(layout: &Layout, cases: [(u64, u32); N]) -> [(u64, u32); N] {
        cases.map(|(offset, want)| {
            let request = Request { offset, ..Request::data(Cluster(0), want) };
            let goal = window(&request, &EMPTY, (None, None), 0, layout);
            (goal.logical, goal.len)
        })
    }

    #[test]
    fn windows_follow_the_ladder() {
        let cases = [(0, 1), (0, 20), (0, 257), (1_000, 1), (2_000, 10), (10_000, 10)];
        let expected = [(0, 4), (0, 32), (0, 512), (512, 512), (1_024, 1_024), (8_192, 2_048)];
        assert_eq!(windows(&layout(4_096, 1, 32_768), cases), expected);
    }

    /// Files of 16 KiB, 80 KiB, 3 MiB and 40 MiB: the windows have the bytes of the kernel's ladder whatever a cluster
    /// is. With blocks of 1 KiB none has more than 2 MiB.
    #[test]
    fn windows_are_counted_in_bytes() {
        let small = windows(&layout(1_024, 1, 8_192), [(0, 16), (0, 80), (3_000, 72), (40_000, 960)]);
        assert_eq!(small, [(0, 16), (0, 128), (2_048, 2_048), (38_912, 2_048)]);
        let large = windows(&layout(65_536, 1, 65_528), [(0, 1), (0, 2), (47, 1), (639, 1)]);
        assert_eq!(large, [(0, 1), (0, 2), (32, 32), (512, 128)]);
        let clusters = windows(&layout(4_096, 16, 32_768), [(0, 1), (0, 2), (47, 1), (639, 1)]);
        assert_eq!(clusters, large);
    }

    #[test]
    fn a_window_may_be_shorter_than_the_request() {
        // 639 blocks of a file of 2.5 MiB: 2 MiB at once, and the rest then.
        assert_eq!(windows(&layout(4_096, 1, 32_768), [(0, 639), (512, 127)]), [(0, 512), (512, 512)]);
    }

    #[test]
    fn a_window_lies_between_its_neighbours_and_goes_on_from_them() {
        let layout = layout(4_096, 1, 32_768);
        let request = Request { offset: 600, ..Request::data(Cluster(0), 1) };
        let goal = |before, behind, between| {
            let file = FileState { bytes: 3 << 20, goal: Cluster(7), before, behind, ..EMPTY };
            window(&request, &file, between, 0, &layout)
        };
        let at = |logical, disk| Some(Mapped { logical, disk });
        let of = |goal: Goal| (goal.logical, goal.len, goal.exact.map(|at| at.0), goal.near.0);
        assert_eq!(of(goal(None, None, (None, None))), (512, 512, None, 7));
        assert_eq!(of(goal(at(580, 9_000), None, (None, None))), (581, 443, Some(9_001), 9_001));
        assert_eq!(of(goal(at(500, 9_000), at(700, 8_000), (None, None))), (512, 188, Some(7_812), 7_812));
        assert_eq!(of(goal(at(580, 9_000), at(700, 8_000), (None, None))), (581, 119, Some(9_001), 9_001));
        // Windows of the file cut it off from what it would go on from.
        assert_eq!(of(goal(at(580, 9_000), None, (Some(590), Some(650)))), (590, 60, None, 7));
    }
}
