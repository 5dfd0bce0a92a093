//! The time that the reference tools see.

use rustix::time::{ClockId, clock_gettime};

/// Seconds since 1970 in whole ticks, as `time` gives them: by a finer clock e2fsck now and then finds that a volume was
/// written in the future.
#[must_use]
pub fn seconds() -> i64 {
    clock_gettime(ClockId::RealtimeCoarse).tv_sec
}
