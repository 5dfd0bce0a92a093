//! Snapshots and forks: a manifest more, however large the volume is; and taking a volume out.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};
use crate::format::manifest::{Flags, Manifest};
use crate::marks::{self, first_epoch};
use crate::replay::replay;
use crate::store::{Store, id_of, key_of_manifest};
use crate::view::{Reader, View};

/// Gives what a volume is now another name. A name with an `@` is a snapshot, which is never written.
///
/// Of a volume that is open for writing it is what was flushed last.
///
/// # Errors
/// There is no such volume, the new name is taken; damage; the store's.
pub fn fork(store: &Arc<Store>, from: &str, to: &str) -> Result<Manifest> {
    crate::address::checked_volume(to)?;
    marks::ready(store)?;
    let (old, _) = store.named(from)?;
    let mut manifest = Manifest {
        id: id_of(to),
        parent: old.id,
        name: to.to_owned(),
        holder: String::new(),
        flags: Flags { frozen: to.contains('@'), ..Flags::default() },
        created: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        epoch: first_epoch(),
        nonce: crate::random::number(),
        ..old.clone()
    };
    if !old.segments.is_empty() {
        // The log goes on in the old volume, and not in this one.
        let (mut view, reader) = (View::new(store, &old), Reader::new(Arc::clone(store)));
        manifest.segments = replay(store, &old, (&mut view, &reader), false)?.segments;
    }
    let key = key_of_manifest(&manifest.id);
    match store.objects().create(&key, &manifest.encode()) {
        Ok(_) => Ok(manifest),
        Err(Error::Exists(_)) => {
            let (taken, version) = store.manifest_or_trace(&manifest.id)?;
            if !taken.flags.removed {
                return Err(Error::Exists(to.to_owned()));
            }
            manifest.epoch = taken.epoch.saturating_add(1);
            store.objects().replace(&key, &manifest.encode(), &version)?;
            Ok(manifest)
        }
        Err(error) => Err(error),
    }
}

/// Takes a volume out. What only it refers to goes with the next clean-ups.
///
/// # Errors
/// There is none, it is open for writing; the store's.
pub fn remove(store: &Arc<Store>, name: &str) -> Result<()> {
    marks::ready(store)?;
    let (old, version) = store.named(name)?;
    if old.flags.open {
        return Err(Error::Open(old.holder));
    }
    let manifest = Manifest {
        flags: Flags { removed: true, ..old.flags },
        map: [0; 32],
        segments: Vec::new(),
        nonce: crate::random::number(),
        ..old
    };
    store.objects().replace(&key_of_manifest(&manifest.id), &manifest.encode(), &version).map(drop)
}
