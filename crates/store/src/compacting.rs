//! Gives space back that objects of a log hold though little of them is still in use.
//!
//! An object of a log goes when nothing refers to it. Of one that is mostly overwritten the rest is written again, as any
//! program might write it: so this can be interrupted anywhere, and what it wrote is as stable as all else. Small objects
//! are packed that way, too. Objects that other volumes refer to stay in any case, and are left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use platfs_device::Device;

use crate::error::Result;
use crate::format::map::{LEAF_SPAN, Target, leaves};
use crate::store::Store;
use crate::survey::{marked_now, volumes};
use crate::view::Run;
use crate::volume::{LEAST, SMALL, Volume};

/// Bytes that are read and written at once.
const STEP: usize = 1 << 20;

/// Result of a compaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Compacted {
    /// Objects of logs that the volume referred to.
    pub objects: u64,
    /// Of these, those that nothing refers to any more.
    pub emptied: u64,
    /// Their bytes of data, which the next clean-ups give back.
    pub freed_bytes: u64,
    /// Bytes that were written again for that.
    pub moved_bytes: u64,
}

/// Empties those objects of a volume's log of whose data at most `percent` are in use, and small ones if there are several.
///
/// # Errors
/// There is no such volume, it is open for writing or a snapshot; damage; the store's.
pub fn compact(store: &Arc<Store>, name: &str, holder: &str, percent: u8) -> Result<Compacted> {
    let volume = Volume::open(store, name, holder, false)?;
    volume.shorten()?;
    let live = live(&volume)?;
    let held = held_by_others(store, name)?;
    let is_small = |target: &Target| (target.len() as usize) < SMALL && !held.contains(target);
    let packs = live.keys().filter(|target| is_small(target)).count() >= LEAST;
    let is_sparse = |target: &Target, live: u64| {
        let is_mostly_overwritten = live * 100 <= u64::from(target.len()) * u64::from(percent);
        (is_mostly_overwritten && !held.contains(target)) || (packs && is_small(target))
    };
    let sparse: BTreeMap<Target, u64> =
        live.iter().filter(|(target, live)| is_sparse(target, **live)).map(|(t, l)| (*t, *l)).collect();
    let sum = |numbers: &mut dyn Iterator<Item = u64>| numbers.fold(0, u64::saturating_add);
    let done = Compacted {
        objects: live.len() as u64,
        emptied: sparse.len() as u64,
        freed_bytes: sum(&mut sparse.keys().map(|target| target.len().into())),
        moved_bytes: sum(&mut sparse.values().copied()),
    };
    if !sparse.is_empty() {
        each_of_log(&volume, &mut |target, start, len| match sparse.contains_key(&target) {
            true => rewrite(&volume, start, len),
            false => Ok(()),
        })?;
    }
    volume.close()?;
    Ok(done)
}

/// Bytes that a volume uses of each object of a log.
fn live(volume: &Volume) -> Result<BTreeMap<Target, u64>> {
    let mut live = BTreeMap::new();
    each_of_log(volume, &mut |target, _, len| {
        let bytes: &mut u64 = live.entry(target).or_default();
        *bytes = bytes.saturating_add(len);
        Ok(())
    })?;
    Ok(live)
}

/// Hands over the ranges of a volume that lie in objects of logs, by the map as it is now.
fn each_of_log(volume: &Volume, each: &mut dyn FnMut(Target, u64, u64) -> Result<()>) -> Result<()> {
    let base = volume.map();
    for number in 0..leaves(volume.size()) {
        let start = number * LEAF_SPAN;
        let runs: Vec<Run> = base.pieces(start, LEAF_SPAN.min(volume.size() - start))?;
        for (start, len, place) in runs {
            if let Some((target @ Target::Log { .. }, _)) = place {
                each(target, start, len)?;
            }
        }
    }
    Ok(())
}

/// Returns the objects that other volumes refer to: they stay.
fn held_by_others(store: &Arc<Store>, name: &str) -> Result<BTreeSet<Target>> {
    let mut others = volumes(store, false)?;
    others.retain(|manifest| manifest.name != name);
    Ok(marked_now(store, &others)?.targets.into_values().map(|(target, _)| target).collect())
}

fn rewrite(volume: &Volume, start: u64, len: u64) -> Result<()> {
    let failed = |why: std::io::Error| crate::Error::host("writing again what is in use", &why);
    let (mut at, end) = (start, start.saturating_add(len));
    let mut buffer = vec![0; STEP];
    while at < end {
        let count = usize::try_from(end - at).unwrap_or(STEP).min(STEP);
        let bytes = buffer.get_mut(..count).unwrap_or_default();
        volume.read_at(at, bytes).map_err(failed)?;
        volume.write_at(at, bytes).map_err(failed)?;
        at += count as u64;
    }
    Ok(())
}
