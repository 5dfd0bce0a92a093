//! Block status of a range, as `base:allocation` has it.
//!
//! Owns: joining what the device knows of its holes with what the volume on it calls free. A free block that takes room is
//! a hole that need not read as zeros: clients that copy bytes copy it, those that know volumes need not.

use super::Export;

/// No room is taken.
pub(super) const HOLE: u32 = 1;
/// It reads as zeros.
pub(super) const ZERO: u32 = 2;

/// Most extents of one answer: what the rest holds is asked for by another request.
pub(super) const MOST: usize = 4096;

/// The extents of a range that lies inside the export, as length and flags: up to `most`, and one at least of a range that
/// is not empty.
pub(super) fn extents(export: &Export, offset: u64, len: u32, most: usize) -> Vec<(u32, u32)> {
    let end = offset.saturating_add(len.into());
    let mut at = offset;
    let mut found: Vec<(u32, u32)> = Vec::new();
    // Neighbours that are the same count as one; the steps are bounded all the same.
    for _ in 0..MOST * 2 {
        if at >= end {
            break;
        }
        let (stop, flags) = first(export, at, end);
        // Both lie in a range whose length has 32 bits.
        let step = u32::try_from(stop - at).unwrap_or(len);
        let is_full = found.len() >= most;
        match found.last_mut() {
            Some((last, same)) if *same == flags => *last = last.saturating_add(step),
            _ if is_full => break,
            _ => found.push((step, flags)),
        }
        at = stop;
    }
    found
}

/// Where the first extent ends, which is behind `at`, and its flags.
fn first(export: &Export, at: u64, end: u64) -> (u64, u32) {
    let data = export.device.data_from(at).min(end);
    if data > at {
        return (data, HOLE | ZERO);
    }
    let hole = export.device.hole_from(at).min(end);
    let stop = if hole > at { hole } else { end };
    match &export.unused {
        Some(unused) => {
            let (is_free, until) = unused.run(at, stop);
            (until, if is_free { HOLE } else { 0 })
        }
        None => (stop, 0),
    }
}
