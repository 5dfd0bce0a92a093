//! The reserved blocks, which verbs of users without a right to them leave alone.

use placement::{Engine, Request};

use crate::error::{Error, Result};
use ondisk::units::saturated;

/// Refuses a number of clusters if fewer than `spared` would stay free.
pub(super) fn refuse(engine: &Engine, clusters: u64, spared: u64) -> Result<()> {
    let is_there = spared == 0 || engine.available_clusters() >= clusters.saturating_add(spared);
    if is_there { Ok(()) } else { Err(Error::NoSpace) }
}

/// Makes a request no longer than what leaves `spared` clusters free.
pub(super) fn shorten(engine: &Engine, request: &mut Request, spared: u64) -> Result<()> {
    if spared == 0 {
        return Ok(());
    }
    let left = engine.available_clusters().saturating_sub(spared);
    let most = saturated::<u32>(left);
    if most < request.min.max(1) {
        return Err(Error::NoSpace);
    }
    request.want = request.want.min(most);
    Ok(())
}
