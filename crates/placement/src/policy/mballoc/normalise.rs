//! What a request is raised to: the window of the file that is allocated at once.

use super::tunables::Tunables;
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
pub(super) fn window(request: &Request, tunables: &Tunables, group: u32) -> Goal {
    let (start, len) = if tunables.forced_goal > 0 {
        (request.offset, u64::from(tunables.forced_goal))
    } else {
        ladder(request, u64::from(tunables.cluster_bytes.max(1)))
    };
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

/// Start and length of the window, in clusters.
fn ladder(request: &Request, bytes: u64) -> (u64, u64) {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    let want = u64::from(request.want);
    let size = (request.offset + want).max(request.size) * bytes;
    let limit = 2 * bytes;
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
    use super::super::tunables::Generation;
    use super::*;
    use ondisk::units::Cluster;

    #[test]
    fn windows_follow_the_ladder() {
        let tunables = Tunables::new(Generation::From65);
        let case = |offset: u64, want: u32| {
            let size = offset + u64::from(want);
            let request = Request { offset, size, ..Request::data(Cluster(0), want) };
            let goal = window(&request, &tunables, 32_768);
            (goal.logical, goal.len)
        };
        assert_eq!(case(0, 1), (0, 4));
        assert_eq!(case(0, 20), (0, 32));
        assert_eq!(case(0, 257), (0, 512));
        assert_eq!(case(1_000, 1), (512, 512));
        assert_eq!(case(2_000, 10), (1_024, 1_024));
        assert_eq!(case(10_000, 10), (8_192, 2_048));
    }

    #[test]
    fn a_window_cut_to_a_small_group_holds_the_minimum() {
        let tunables = Tunables::new(Generation::From65);
        let request = Request { min: 55, offset: 8_180, size: 8_275, ..Request::data(Cluster(0), 95) };
        let goal = window(&request, &tunables, 256);
        assert!(goal.logical + u64::from(goal.len) >= 8_180 + 55, "{goal:?}");
    }
}
