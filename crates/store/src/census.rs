//! Census of volumes, for a program that removes what none of them refers to.
//!
//! No list is believed alone: a server that leaves a volume out of one would have all of it removed. Each manifest that is
//! listed must be readable, two kinds of lists must agree, and volumes that the last clean-up saw, that others were made
//! of, or that wrote what others refer to must be among those that were read.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use crate::error::{Error, Result};
use crate::forking::removed;
use crate::format::manifest::Manifest;
use crate::format::map::Target;
use crate::format::{VolumeId, hex, unhex};
use crate::keys::{KeyKind, key_of_manifest};
use crate::known::{self, KnownVolumes};
use crate::leases::VOID_AFTER;
use crate::objects::{Listed, Version};
use crate::renewal::renewed;
use crate::store::Store;
use crate::survey::{Marked, REQUESTS, marked};
use crate::together::together;

/// Most times that volumes are made while others are looked at.
const TRIES: usize = 64;

/// The volumes of a store, and what they refer to.
pub(crate) struct Census {
    /// Their references.
    pub(crate) marked: Marked,
    /// Volumes whose manifests were read, removed ones too.
    read: BTreeSet<VolumeId>,
    /// Those of them that were removed.
    removed: BTreeSet<VolumeId>,
    /// List of the last clean-up.
    known: (KnownVolumes, Option<Version>),
    /// Other volumes that manifests name.
    named: BTreeSet<VolumeId>,
}

impl Census {
    /// Reads all volumes, and what they refer to. With a time, that of the store, whoever writes one names nothing that it
    /// wrote before, and forks whose makers were lost long ago are given up.
    ///
    /// A volume gets what it refers to from its own writer, or when it is made of another that has it still. So all that
    /// is referred to has been seen when a list names nobody new.
    pub(crate) fn take(store: &Arc<Store>, now: Option<SystemTime>) -> Result<Self> {
        let (marked, known) = (Marked::default(), known::read(store)?);
        let (read, removed, named) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut census = Census { marked, read, removed, known, named };
        let directories = store.objects().names("vol/")?;
        let mut new: Vec<VolumeId> = directories.iter().filter_map(|name| unhex(name)).collect();
        let listed = (0..TRIES).find_map(|_| census.grown(store, std::mem::take(&mut new), now, &mut new));
        match listed {
            Some(listed) => census.agree(store, &listed?)?,
            None => return Err(Error::Refused("volumes are made faster than they are looked at".into())),
        }
        Ok(census)
    }

    /// Reads volumes, and lists again: nothing if there are new ones, else all whose manifests are listed.
    fn grown(
        &mut self,
        store: &Arc<Store>,
        some: Vec<VolumeId>,
        now: Option<SystemTime>,
        new: &mut Vec<VolumeId>,
    ) -> Option<Result<BTreeSet<VolumeId>>> {
        let listed = self.add(store, &some, now).and_then(|()| listed(store));
        match listed {
            Ok(listed) => {
                new.extend(listed.difference(&self.read));
                new.is_empty().then_some(Ok(listed))
            }
            Err(error) => Some(Err(error)),
        }
    }

    fn add(&mut self, store: &Arc<Store>, volumes: &[VolumeId], now: Option<SystemTime>) -> Result<()> {
        let read = |id: &VolumeId, found: &mut Vec<Manifest>| {
            match (store.manifest_or_trace(id), now) {
                (Ok((manifest, version)), Some(now)) => {
                    let manifest = given_up(store, manifest, &version, now)?;
                    found.push(renewed(store, manifest, version)?);
                }
                (Ok((manifest, _)), None) => found.push(manifest),
                // A directory of a volume that is just made; if it is listed it must be there.
                (Err(Error::Missing(_)), _) => {}
                (Err(error), _) => return Err(error),
            }
            Ok(())
        };
        let mut found = together(volumes, store.at_once(REQUESTS), read)?.concat();
        self.read.extend(found.iter().map(|manifest| manifest.id));
        let is_trace = |manifest: &Manifest| manifest.flags.removed && !manifest.is_pending();
        self.removed.extend(found.iter().filter(|manifest| is_trace(manifest)).map(|manifest| manifest.id));
        found.retain(|manifest| !is_trace(manifest));
        self.named.extend(found.iter().map(|manifest| manifest.parent).filter(|id| *id != [0; 16]));
        self.marked.add(marked(store, &found)?);
        Ok(())
    }

    /// Checks that all lists of volumes agree.
    fn agree(&self, store: &Store, listed: &BTreeSet<VolumeId>) -> Result<()> {
        let lies = |id: &VolumeId| {
            let volume = hex(id);
            let why = format!(
                "its lists disagree on volume {volume}: nothing is removed while they can't be trusted"
            );
            Err(Error::Refused(why))
        };
        if let Some(id) = self.read.difference(listed).next() {
            return lies(id);
        }
        let writers = self.marked.targets.values().filter_map(|(target, _)| match target {
            Target::Log { volume, .. } => Some(volume),
            Target::Chunk { .. } => None,
        });
        let all = self.known.0.all.iter().chain(&self.named).chain(writers);
        let Some(id) = all.filter(|id| !self.read.contains(*id)).min() else { return Ok(()) };
        match store.manifest_or_trace(id) {
            Ok(_) => lies(id),
            Err(Error::Missing(key)) => Err(Error::Refused(format!(
                "{key} is missing, and a clean-up or another volume knows it: nothing is removed; put it back, or remove \
                 `gc/volumes` and the volumes that were made of it if it is gone for good"
            ))),
            Err(error) => Err(error),
        }
    }

    /// Writes down which volumes there are, for the next.
    pub(crate) fn write_down(&self, store: &Store) -> Result<()> {
        let new = KnownVolumes { all: self.read.clone(), removed: self.removed.clone() };
        known::write_down(store, (&self.known.0, &self.known.1), new)
    }
}

/// The trace of a fork that was begun long ago, whose maker can't publish it any more then; else what there is.
fn given_up(store: &Store, now: Manifest, version: &Version, time: SystemTime) -> Result<Manifest> {
    if !now.is_pending() {
        return Ok(now);
    }
    let key = key_of_manifest(&now.id);
    let age = |listed: Listed| time.duration_since(listed.modified).unwrap_or_default();
    if store.objects().head(&key)?.map(age).is_none_or(|age| age <= VOID_AFTER) {
        return Ok(now);
    }
    let trace = removed(&now);
    match store.objects().replace(&key, &trace.encode(), version) {
        Ok(_) => Ok(trace),
        // Somebody has that name now, and what the volume refers to.
        Err(Error::Conflict(_)) => store.manifest_or_trace(&now.id).map(|(now, _)| now),
        Err(error) => Err(error),
    }
}

/// The volumes whose manifests are listed.
///
/// # Errors
/// Objects of a log without a manifest; the store's.
fn listed(store: &Store) -> Result<BTreeSet<VolumeId>> {
    let (mut manifests, mut writers) = (BTreeSet::new(), BTreeSet::new());
    store.objects().list("vol/", &mut |listed| {
        match KeyKind::parse(&listed.key) {
            Some(KeyKind::Manifest(id)) => drop(manifests.insert(id)),
            Some(KeyKind::Log(id, ..)) => drop(writers.insert(id)),
            _ => {}
        }
        Ok(())
    })?;
    match writers.difference(&manifests).next() {
        None => Ok(manifests),
        Some(id) => {
            let key = key_of_manifest(id);
            let why = format!("{key} is missing beside objects of its log: nothing is removed; put it back");
            Err(Error::Refused(why))
        }
    }
}
