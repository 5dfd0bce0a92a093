//! Verbs that change something: as one update each, tried until nothing interrupts it.
//!
//! Owns: what is done when an attempt misses a block, space or room in the running transaction. Excludes: the attempt
//! (`volume`), and what verbs do.

use super::sync::{make_space, sync_metadata};
use crate::error::{Error, Flow, Result};
use crate::tx::Tx;
use crate::volume::Volume;

/// Times a verb makes a sync for space that others then take before it.
const SYNCS_FOR_SPACE: u32 = 16;

/// Blocks that a verb may find missing before it waits for them with the writer's lock.
const MISSES: u32 = 64;

/// Does a verb that changes something: as one update, or not at all (I8). If it finds no space
/// while some is only waiting for a sync, the sync is made and the verb tried again: so it
/// must not leave anything behind in what it borrows when it fails.
pub(crate) fn change<'v, T>(volume: &'v Volume, mut verb: impl FnMut(&mut Tx<'v>) -> Result<T>) -> Result<T> {
    if !volume.space.is_writable() {
        return Err(Error::ReadOnly);
    }
    volume.syncing().mark_changed()?;
    volume.uses().reap()?;
    let (mut left, mut need) = (SYNCS_FOR_SPACE, None);
    loop {
        let free_generation = volume.space.free_generation();
        let done = perform(volume, &mut verb);
        if need.is_none() && matches!(done, Err(Error::NoSpace | Error::NoInodes)) {
            need = volume.space.low_space();
        }
        match done {
            Err(Error::NoSpace | Error::NoInodes) if left > 0 && make_space(volume, free_generation)? => {
                left -= 1
            }
            done => {
                let done = done?;
                volume.syncing().relieve()?;
                if volume.order.syncs_changes() {
                    sync_metadata(volume)?;
                }
                return Ok(done);
            }
        }
    }
}

/// Does a verb as one update, whatever space it finds. Where it would wait for the device, it is dropped, the block
/// read with nobody kept waiting, and the verb begun again. What is too large for the journal is tried once more
/// without what can be done later.
pub(crate) fn perform<'v, T>(
    volume: &'v Volume,
    verb: &mut impl FnMut(&mut Tx<'v>) -> Result<T>,
) -> Result<T> {
    let mut left = if volume.session.options.loading { 0 } else { MISSES };
    let mut postponing = false;
    loop {
        let mut verb = |tx: &mut Tx<'v>| {
            if postponing {
                tx.postpone_removal();
            }
            verb(tx)
        };
        match volume.attempt(&mut verb, left == 0) {
            Err(Flow::Missing(run)) => {
                left = left.saturating_sub(1);
                volume.cache.fetch(run);
            }
            Err(Flow::Full) => volume.syncing().commit()?,
            Err(Flow::Failed(Error::TooLargeForLog { .. })) if !postponing => postponing = true,
            Err(Flow::Failed(error)) => return Err(error),
            Ok(done) => {
                if postponing {
                    // What fails here is met by the next change.
                    let _ = volume.uses().reap();
                }
                return Ok(done);
            }
        }
    }
}
