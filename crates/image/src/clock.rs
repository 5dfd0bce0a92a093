//! What time it is.
//!
//! Owns the choice of the clock. Nothing in this crate asks for the time: programs that change volumes do.

use platfs::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// The time in whole ticks of the host, as its kernel gives it to files and `time` to programs: a finer clock is ahead of
/// theirs, and e2fsck would now and then find that a volume was written in the future.
#[must_use]
pub fn now() -> Timestamp {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    Timestamp { seconds: now.tv_sec, nanoseconds: u32::try_from(now.tv_nsec).unwrap_or(0) }
}
