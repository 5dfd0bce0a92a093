//! Time of day.
//!
//! Owns the choice of the clock. Nothing in this crate asks for the time but a build, which waits for that of its newest
//! file: programs that change volumes do.

use std::thread::sleep;
use std::time::Duration;

use platfs::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// The time in whole ticks of the host, as its kernel gives it to files and `time` to programs: a finer clock is ahead of
/// theirs, and e2fsck would now and then find that a volume was written in the future.
#[must_use]
pub fn now() -> Timestamp {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    Timestamp { seconds: now.tv_sec, nanoseconds: u32::try_from(now.tv_nsec).unwrap_or(0) }
}

/// The longest tick of a host's kernel, with room to spare: 10 ms where it counts a hundred in a second.
const TICK: Duration = Duration::from_millis(20);

/// Waits for the tick of the host that begins this second, if it is the next one. Linux stamps some files by a finer
/// clock than [`now`] (from 6.13 on, those that were looked at since their last change): a file made as a second begins
/// is of a second that the ticks have not reached. An image as new as that file would be written in the future, as
/// e2fsck and our own check see it.
///
/// A second further ahead is not waited for: its file's clock is another one.
pub(crate) fn reach(seconds: u64) {
    let Ok(wanted) = i64::try_from(seconds) else { return };
    let is_next = |now: Timestamp| {
        let left = 1_000_000_000_u32.saturating_sub(now.nanoseconds);
        now.seconds.checked_add(1) == Some(wanted) && Duration::from_nanos(left.into()) <= TICK
    };
    while is_next(now()) {
        sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    /// The host's finer clock, in whole seconds.
    fn fine() -> u64 {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }

    #[test]
    fn the_second_that_begins_is_reached_and_no_later_one() {
        for _ in 0..2 {
            let last = fine();
            while fine() == last {
                std::hint::spin_loop();
            }
            reach(last + 1);
            assert!(u64::try_from(now().seconds).is_ok_and(|now| now > last));
        }
        let far = fine() + 3600;
        reach(far);
        assert!(fine() < far);
    }
}
