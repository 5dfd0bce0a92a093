//! Whether the thread may wait for the device: one that holds the writer's lock should not.
//!
//! It is said for the thread and not passed along, because it concerns every read below a verb, whatever
//! way it takes, and no verb itself.

use std::cell::Cell;

thread_local! {
    static HASTE: Cell<bool> = const { Cell::new(false) };
}

struct Restore(bool);

impl Drop for Restore {
    fn drop(&mut self) {
        HASTE.set(self.0);
    }
}

/// Does something that had better fail than wait: a block that is not in memory is
/// [`Error::NotCached`](crate::Error::NotCached).
pub(crate) fn in_haste<T>(hasty: bool, work: impl FnOnce() -> T) -> T {
    let _restore = Restore(HASTE.replace(hasty));
    work()
}

pub(super) fn is_on() -> bool {
    HASTE.get()
}
