//! Manifests that are replaced while clean-ups renew them.
//!
//! A clean-up gives each manifest that is open for writing another number before it looks what the volume refers to. So a
//! writer that has written objects and not yet the manifest that names them can't write that any more: it looks again, and
//! writes them under other names. How long it was away meanwhile does not matter, and no clock does.
//!
//! Owns: that another number says nothing else. Excludes what the manifests say.

use crate::error::{Error, Result};
use crate::format::manifest::Manifest;
use crate::keys::key_of_manifest;
use crate::objects::Version;
use crate::store::Store;

/// The most that a renewal adds to a manifest's number, and the most that all of them add: numbers of two writers are
/// farther apart.
const STEP: u64 = 1 << 16;
const STEPS: u64 = 1 << 36;
/// Most times that others come between.
const TRIES: usize = 64;

/// Outcome of a replacement.
pub(crate) enum Replaced {
    /// With this manifest.
    Done(Box<Manifest>, Version),
    /// A clean-up renewed the old one: this is it now.
    Renewed(Box<Manifest>, Version),
}

/// True if one is the other, or was made of it by renewals.
pub(crate) fn is_same(now: &Manifest, before: &Manifest) -> bool {
    now.nonce.wrapping_sub(before.nonce) < STEPS && Manifest { nonce: before.nonce, ..now.clone() } == *before
}

/// Replaces a manifest by a new one.
///
/// # Errors
/// [`Error::Conflict`] if another program has written it; the store's.
pub(crate) fn replace(store: &Store, old: (&Manifest, &Version), new: &Manifest) -> Result<Replaced> {
    let refusal = match store.objects().replace(&key_of_manifest(&new.id), &new.encode(), old.1) {
        Ok(version) => return Ok(Replaced::Done(Box::new(new.clone()), version)),
        Err(refusal @ Error::Conflict(_)) => refusal,
        Err(error) => return Err(error),
    };
    let (now, version) = store.manifest_or_trace(&new.id)?;
    // What took effect without an answer may have been renewed since.
    if is_same(&now, new) {
        return Ok(Replaced::Done(Box::new(now), version));
    }
    match is_same(&now, old.0) {
        true => Ok(Replaced::Renewed(Box::new(now), version)),
        false => Err(refusal),
    }
}

/// Gives a manifest another number.
///
/// # Errors
/// [`Error::Conflict`] if it is another; the store's.
pub(crate) fn renew(store: &Store, now: &Manifest, version: &Version) -> Result<Manifest> {
    let step = 1 + crate::random::number() % STEP;
    let new = Manifest { nonce: now.nonce.wrapping_add(step), ..now.clone() };
    store.objects().replace(&key_of_manifest(&new.id), &new.encode(), version)?;
    Ok(new)
}

/// Renews the manifest of a volume that is open for writing: what it is now, and nobody replaces it any more by a version
/// from before.
pub(crate) fn renewed(store: &Store, mut now: Manifest, mut version: Version) -> Result<Manifest> {
    for _ in 0..TRIES {
        if !now.flags.open {
            return Ok(now);
        }
        match renew(store, &now, &version) {
            Ok(new) => return Ok(new),
            Err(Error::Conflict(_)) => (now, version) = store.manifest_or_trace(&now.id)?,
            Err(error) => return Err(error),
        }
    }
    Err(Error::Conflict(now.name))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::objects::{Fault, Memory, Patience};
    use crate::volume::Volume;

    #[test]
    fn a_replacement_without_an_answer_that_was_renewed_counts_and_anothers_does_not() {
        let objects = Arc::new(Memory::new());
        let patience = Patience::simulated();
        let store = Arc::new(Store::new(Arc::clone(&objects) as _, patience, None));
        std::mem::forget(Volume::create(&store, "one", 1 << 20, "test").unwrap());
        let (old, version) = store.named("one").unwrap();
        let next = |size| Manifest { size, nonce: crate::random::number(), ..old.clone() };
        let (mine, others) = (next(2 << 20), next(2 << 20));
        assert!(!is_same(&mine, &others), "the same words of another writer");
        // The first try takes effect, and a clean-up comes before the second.
        let (behind, inner, key) = (Arc::clone(&objects), mine.clone(), key_of_manifest(&mine.id));
        let mut is_first = true;
        objects.fail(move |what, _| {
            (what == "replace" && std::mem::take(&mut is_first)).then_some(Fault::Unanswered)
        });
        let again = Arc::new(Store::new(Arc::clone(&behind) as _, patience, None));
        let _ = again.objects().replace(&key, &inner.encode(), &version);
        objects.heal();
        let (now, now_version) = store.manifest_or_trace(&mine.id).unwrap();
        let renewed = renewed(&store, now, now_version).unwrap();
        assert!(is_same(&renewed, &mine) && renewed.nonce != mine.nonce);
        let done = replace(&store, (&old, &version), &mine).unwrap();
        assert!(matches!(done, Replaced::Done(now, _) if *now == renewed));
        let refused = replace(&store, (&old, &version), &others);
        assert!(matches!(refused, Err(Error::Conflict(_))));
    }
}
