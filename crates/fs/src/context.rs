//! The terms of a verb: its time, its user, and whether it may wait.
//!
//! These are values that are handed down and never kept for a thread or a volume, so that what is done for one request
//! can't be seen by another.

use ondisk::inode::Timestamp;

/// The terms of a verb.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    /// The time that changes get.
    pub(crate) now: Timestamp,
    /// Clusters that must stay free: the reserve, for a user without a right to it.
    pub(crate) spared: u64,
    /// True if limits of quota count for the user.
    pub(crate) limited: bool,
    /// True if metadata that is not in memory may be waited for.
    pub(crate) may_wait: bool,
    /// The process that asks, where that is known; else 0.
    pub(crate) process: u32,
}

impl Context {
    /// Of a verb that may take all space, and wait.
    pub(crate) fn new(now: Timestamp) -> Self {
        Context { now, spared: 0, limited: false, may_wait: true, process: 0 }
    }
}
