//! What a request is raised to: the window of the file that is allocated at once.

use crate::layout::Layout;
use crate::request::Request;

/// The goal of a search: a window of the file, and where on the volume it should begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Goal {
    /// First file cluster of the window.
    pub(super) logical: u64,
    /// Clusters of the window.
    pub(super) len: u32,
    /// Whether the exact place is tried first.
    pub(super) exact: bool,
}

/// The window for a file that does not share a locality group: the ladder of the kernel on the
/// size in bytes, cut to what lies behind the allocated part and to a group.
///
/// With `forced` it has that many clusters instead.
pub(super) fn window(request: &Request, forced: u32, layout: &Layout) -> Goal {
    let group = layout.clusters_per_group;
    let (start, len) = if forced > 0 { (request.offset, u64::from(forced)) } else { ladder(request, layout) };
    let end = (start + len).max(request.offset + u64::from(request.want));
    // Up to the request the file is taken to be dense, so its window begins there at the earliest.
    let allocated = if request.offset > 0 && request.extends { request.offset } else { start };
    let mut start = start.max(allocated).min(request.offset);
    if end - start > u64::from(group) {
        start = start.max(request.offset / u64::from(group) * u64::from(group));
    }
    // Such a window may end inside the request; the kernel knows no minimum, which it must hold.
    if end.min(start + u64::from(group)) < request.offset + u64::from(request.min) {
        start = request.offset;
    }
    let len = u32::try_from((end - start).min(u64::from(group))).unwrap_or(group);
    Goal { logical: start, len: len.max(request.want), exact: request.extends && start == request.offset }
}

/// Start and length of the window, in clusters. Blocks of less than 4 KiB bound it as in the kernel, whose buddies
/// were thought to be no longer.
fn ladder(request: &Request, layout: &Layout) -> (u64, u64) {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    let bytes = layout.cluster_bytes().max(1);
    let want = u64::from(request.want);
    let size = (request.offset + want).max(request.size).saturating_mul(bytes);
    let limit = 2 * u64::from(layout.block_bytes);
    let aligned = |window: u64| {
        let clusters = (window / bytes).max(1);
        (request.offset / clusters * clusters, clusters)
    };
    if size <= 16 * KIB {
        return (0, (16 * KIB).div_ceil(bytes));
    }
    if size <= MIB {
        return (0, size.next_power_of_two().div_ceil(bytes));
    }
    if size <= 4 * MIB || limit <= 2 * KIB {
        return aligned(2 * MIB);
    }
    if size <= 8 * MIB || limit <= 4 * KIB {
        return aligned(4 * MIB);
    }
    if want * bytes <= 8 * MIB || limit <= 8 * KIB {
        return aligned(8 * MIB);
    }
    (request.offset, want)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondisk::units::Cluster;

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

    fn windows<const N: usize>(layout: &Layout, cases: [(u64, u32); N]) -> [(u64, u32); N] {
        cases.map(|(offset, want)| {
            let size = offset + u64::from(want);
            let request = Request { offset, size, ..Request::data(Cluster(0), want) };
            let goal = window(&request, 0, layout);
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
    fn a_window_cut_to_a_small_group_holds_the_minimum() {
        let request = Request { min: 55, offset: 8_180, size: 8_275, ..Request::data(Cluster(0), 95) };
        let goal = window(&request, 0, &layout(4_096, 1, 256));
        assert!(goal.logical + u64::from(goal.len) >= 8_180 + 55, "{goal:?}");
    }
}
