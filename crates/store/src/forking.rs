//! Snapshots and forks: a manifest more, however large the volume is; and taking a volume out.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};
use crate::format::manifest::{Flags, Manifest};
use crate::keys::{id_of, key_of_manifest};
use crate::known::returned;
use crate::leases::Lease;
use crate::marks::{self, first_epoch};
use crate::objects::Version;
use crate::renewal::is_same;
use crate::replay::replay;
use crate::store::Store;
use crate::survey::volumes;
use crate::view::{Reader, View};

/// Most changes of the volume while it is forked.
const TRIES: usize = 16;

/// Gives what a volume is now another name. A name with an `@` is a snapshot, which is never written.
///
/// Of a volume that is open for writing it is what was flushed last.
///
/// # Errors
/// There is no such volume, the new name is taken; damage; the store's.
pub fn fork(store: &Arc<Store>, from: &str, to: &str) -> Result<Manifest> {
    crate::address::checked_volume(to)?;
    marks::ready(store)?;
    let (mut old, _) = store.named(from)?;
    let mut new = forked(store, &old, to, first_epoch())?;
    let mut claim = claimed(store, &mut new)?;
    for _ in 0..TRIES {
        // What the old one referred to until the claim was there was not removed. Otherwise it may be what a clean-up
        // removes just now.
        let now = match store.named(from) {
            Ok((now, _)) if is_same(&now, &old) => {
                store.objects().replace(&key_of_manifest(&new.id), &new.encode(), &claim)?;
                return Ok(new);
            }
            now => now.map(|(now, _)| now),
        };
        let next = now.and_then(|now| Ok((forked(store, &now, to, new.epoch)?, now)));
        match next {
            Ok(next) => (new, old) = next,
            Err(error) => {
                store.objects().replace(&key_of_manifest(&new.id), &removed(&new).encode(), &claim)?;
                return Err(error);
            }
        }
        claim = store.objects().replace(&key_of_manifest(&new.id), &pending(&new).encode(), &claim)?;
    }
    store.objects().replace(&key_of_manifest(&new.id), &removed(&new).encode(), &claim)?;
    Err(Error::Conflict(from.to_owned()))
}

/// Claims the name of a fork: no volume yet, and clean-ups keep what it refers to.
fn claimed(store: &Store, new: &mut Manifest) -> Result<Version> {
    let key = key_of_manifest(&new.id);
    match store.objects().create(&key, &pending(new).encode()) {
        Err(Error::Exists(_)) => {}
        done => return done,
    }
    let (taken, version) = store.manifest_or_trace(&new.id)?;
    if !taken.flags.removed {
        return Err(Error::Exists(new.name.clone()));
    }
    new.epoch = taken.epoch.saturating_add(1);
    let claim = store.objects().replace(&key, &pending(new).encode(), &version)?;
    returned(store, &new.id)?;
    Ok(claim)
}

/// A fork that is being made. It is published only when it is known that all it refers to is there: whoever makes it may
/// be killed at any time.
fn pending(new: &Manifest) -> Manifest {
    Manifest { flags: Flags { removed: true, ..new.flags }, nonce: crate::random::number(), ..new.clone() }
}

/// The manifest of a fork.
fn forked(store: &Arc<Store>, old: &Manifest, to: &str, epoch: u64) -> Result<Manifest> {
    let mut manifest = Manifest {
        id: id_of(to),
        parent: old.id,
        name: to.to_owned(),
        holder: String::new(),
        flags: Flags { frozen: to.contains('@'), ..Flags::default() },
        created: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        epoch,
        nonce: crate::random::number(),
        ..old.clone()
    };
    if !old.segments.is_empty() {
        // The log goes on in the old volume, and not in this one.
        let (mut view, reader) = (View::new(store, old), Reader::new(Arc::clone(store)));
        manifest.segments = replay(store, old, &mut view, &reader, false)?.segments;
    }
    Ok(manifest)
}

/// Gives a volume another name, and its snapshots with it.
///
/// # Errors
/// There is no such volume, it is open for writing, a name is taken; damage; the store's. What was renamed before that has
/// its new name.
pub fn rename(store: &Arc<Store>, from: &str, to: &str) -> Result<()> {
    crate::address::checked_volume(to)?;
    if from.contains('@') != to.contains('@') {
        return Err(Error::Invalid("a snapshot can't become a volume by its name; fork it".into()));
    }
    marks::ready(store)?;
    let front = format!("{from}@");
    let mut names = vec![(from.to_owned(), to.to_owned())];
    for other in volumes(store, false)? {
        if let Some(snapshot) = other.name.strip_prefix(&front) {
            names.push((other.name.clone(), format!("{to}@{snapshot}")));
        }
    }
    names.iter().try_for_each(|(from, to)| renamed(store, from, to))
}

fn renamed(store: &Arc<Store>, from: &str, to: &str) -> Result<()> {
    let (epoch, trace) = match store.manifest_or_trace(&id_of(to)) {
        Err(Error::Missing(_)) => (first_epoch(), None),
        Ok((trace, version)) if trace.flags.removed => (trace.epoch.saturating_add(1), Some(version)),
        Ok(_) => return Err(Error::Exists(to.to_owned())),
        Err(error) => return Err(error),
    };
    let lease = Lease::take(store, to)?;
    let (old, version) = store.named(from)?;
    if old.flags.open {
        return Err(Error::Open(old.holder));
    }
    let new = Manifest { created: old.created, ..forked(store, &old, to, epoch)? };
    if trace.is_some() {
        returned(store, &new.id)?;
    }
    let written = lease.write(&new, trace.as_ref())?;
    match store.objects().replace(&key_of_manifest(&old.id), &removed(&old).encode(), &version) {
        Ok(_) => lease.end(),
        // Whoever opened it meanwhile has it.
        Err(error @ Error::Conflict(_)) => {
            store.objects().replace(&key_of_manifest(&new.id), &removed(&new).encode(), &written)?;
            Err(error)
        }
        // It may have taken effect: both names are better than none.
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
    store.objects().replace(&key_of_manifest(&old.id), &removed(&old).encode(), &version).map(drop)
}

/// Returns the manifest that stays of a volume that was removed.
pub(crate) fn removed(old: &Manifest) -> Manifest {
    Manifest {
        flags: Flags { removed: true, open: false, ..old.flags },
        map: [0; 32],
        segments: Vec::new(),
        nonce: crate::random::number(),
        ..old.clone()
    }
}
