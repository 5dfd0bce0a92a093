//! A journal on another device that is gone: the volume goes on without it and without what only it had.
//!
//! Owns: when that is meant, and the one change that it is. Excludes: bringing the volume in order then (`plat check`).

use std::sync::Arc;

use ondisk::features::{Compat, FeatureBit, Incompat};
use ondisk::superblock::{RawSuperblock, STATE_VALID};
use platfs::mkfs::FeatureEdit;
use platfs_device::{Device, read_superblock};

use super::hidden::forget_journal;
use super::{Request, Tuned};
use crate::Result;
use crate::draft::{Draft, Limits};
use crate::error::refused;

/// True if a journal on another device waits to be replayed.
fn waits_elsewhere(raw: &RawSuperblock) -> bool {
    let features = raw.features();
    features.compat.contains(Compat::HAS_JOURNAL)
        && features.incompat.contains(Incompat::RECOVER)
        && raw.s_journal_inum.get() == 0
}

/// True if the request is to give up a journal that waits on another device.
pub(super) fn is_meant(request: &Request, raw: &RawSuperblock) -> bool {
    let gives_up = FeatureEdit::Clear(FeatureBit::Compat(Compat::HAS_JOURNAL));
    request.force && waits_elsewhere(raw) && request.features.contains(&gives_up)
}

/// Gives up the journal by a change of superblocks alone: the volume counts as not closed then, and has to be checked.
pub(super) fn give_up(device: &Arc<dyn Device>, request: &Request, limits: Limits) -> Result<Tuned> {
    let rest = Request { features: Vec::new(), ..request.clone() };
    if !rest.is_empty() || request.features.len() > 1 {
        return refused("a journal that is lost is given up alone: ask for the other changes after a check");
    }
    let before = read_superblock(&**device)?;
    let mut draft = Draft::open_as_it_is(Arc::clone(device), limits)?;
    draft.reshape(|raw| {
        forget_journal(raw);
        let mut features = raw.features();
        features.compat -= Compat::HAS_JOURNAL;
        features.incompat -= Incompat::RECOVER;
        raw.set_features(features);
        raw.s_state.set(raw.s_state.get() & !STATE_VALID);
    })?;
    let after = *draft.superblock();
    let note = "changes that only the lost journal had are gone: `plat check -y` brings the volume in order";
    Ok(Tuned { change: draft.finish_fields()?, before, after, notes: vec![note.into()] })
}
