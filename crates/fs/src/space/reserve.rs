//! Space that verbs on behalf of others than the super-user leave alone.
//!
//! How much that is is said for the thread and not passed along: it concerns every place that takes space,
//! and no verb itself. Who says nothing may take all.

use std::cell::Cell;

use placement::{Engine, Request};

use crate::error::{Error, Result};

thread_local! {
    /// Clusters that must stay free.
    static KEPT: Cell<u64> = const { Cell::new(0) };
}

struct Restore(u64);

impl Drop for Restore {
    fn drop(&mut self) {
        KEPT.set(self.0);
    }
}

/// Does something that leaves so many clusters free.
pub(crate) fn leaving<T>(clusters: u64, work: impl FnOnce() -> T) -> T {
    let _restore = Restore(KEPT.replace(clusters));
    work()
}

/// Refuses clusters that are not to be taken.
pub(super) fn refuse(engine: &Engine, clusters: u64) -> Result<()> {
    let kept = KEPT.get();
    let is_there = kept == 0 || engine.available_clusters() >= clusters.saturating_add(kept);
    if is_there { Ok(()) } else { Err(Error::NoSpace) }
}

/// Makes a request no longer than what may be taken.
pub(super) fn shorten(engine: &Engine, request: &mut Request) -> Result<()> {
    let kept = KEPT.get();
    if kept == 0 {
        return Ok(());
    }
    let left = engine.available_clusters().saturating_sub(kept);
    let most = u32::try_from(left).unwrap_or(u32::MAX);
    if most < request.min.max(1) {
        return Err(Error::NoSpace);
    }
    request.want = request.want.min(most);
    Ok(())
}
