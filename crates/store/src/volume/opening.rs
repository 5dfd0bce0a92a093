//! Taking a volume over: its manifest gets the next epoch, and the epoch before gets a seal.
//!
//! From the new manifest on nobody else begins an epoch without a newer one. From the seal on the writer of the epoch
//! before can't add to it: its next object would have the seal's key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use super::batch::Batch;
use super::{Head, Slot, State, Volume};
use crate::ahead::Ahead;
use crate::error::{Error, Result};
use crate::format::manifest::{Flags, Manifest, SEGMENTS_MAX, SIZE_MAX, Segment};
use crate::marks;
use crate::objects::Version;
use crate::replay::{End, replay};
use crate::store::{Store, id_of, key_of_manifest};
use crate::view::{Reader, View};

/// How often another opening may come between.
const TRIES: usize = 16;
/// Characters that say who has a volume; with the mark of the process they are fewer bytes than a manifest may have.
const HOLDER_CHARS: usize = 64;

impl Volume {
    /// Makes a new volume of zeros and opens it.
    ///
    /// # Errors
    /// The name is taken; the size is too large; as [`Volume::open`].
    pub fn create(store: &Arc<Store>, name: &str, size: u64, holder: &str) -> Result<Self> {
        if size > SIZE_MAX {
            return Err(Error::Invalid(format!(
                "{size} bytes are too many for a volume, at most {SIZE_MAX}"
            )));
        }
        crate::address::checked_volume(name)?;
        marks::ready(store)?;
        let id = id_of(name);
        let old = match store.manifest_or_trace(&id) {
            Err(Error::Missing(_)) => None,
            Ok((old, version)) if old.flags.removed => Some((old.epoch, version)),
            Ok(_) => return Err(Error::Exists(name.to_owned())),
            Err(error) => return Err(error),
        };
        let manifest = Manifest {
            id,
            parent: [0; 16],
            name: name.to_owned(),
            holder: String::new(),
            flags: Flags::default(),
            size,
            created: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            epoch: old.as_ref().map_or_else(marks::first_epoch, |(epoch, _)| epoch.saturating_add(1)),
            nonce: crate::random::number(),
            map: [0; 32],
            segments: Vec::new(),
        };
        let (key, bytes) = (key_of_manifest(&id), manifest.encode());
        match old {
            Some((_, version)) => store.objects().replace(&key, &bytes, &version)?,
            None => store.objects().create(&key, &bytes)?,
        };
        Self::open(store, name, holder, false)
    }

    /// Opens a volume for writing. `holder` says to others who has it. One that somebody has open already is taken over
    /// only with `take_over`: the holder before can write nothing from then on.
    ///
    /// # Errors
    /// There is none, it is a snapshot, or open; damage; the store's.
    pub fn open(store: &Arc<Store>, name: &str, holder: &str, take_over: bool) -> Result<Self> {
        marks::ready(store)?;
        for _ in 0..TRIES {
            let (old, version) = store.named(name)?;
            let manifest = next(&old, holder, take_over)?;
            let key = key_of_manifest(&manifest.id);
            match store.objects().replace(&key, &manifest.encode(), &version) {
                Ok(version) => return Self::begun(store, &old, manifest, version),
                Err(Error::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Conflict(name.to_owned()))
    }

    /// The volume in its new epoch, once those before have ended.
    fn begun(store: &Arc<Store>, old: &Manifest, manifest: Manifest, version: Version) -> Result<Self> {
        let mut view = View::new(store, old);
        let reader = Arc::new(Reader::new(Arc::clone(store)));
        let End { segments, before } = replay(store, old, (&mut view, &reader), true)?;
        let View { base, log, targets } = view;
        let since = segments.iter().map(|segment| segment.end - segment.first).sum();
        let next_slot = u32::try_from(targets.len()).unwrap_or(u32::MAX);
        let stored = (0..).zip(&targets).map(|(slot, target)| (slot, Slot::Stored(*target)));
        let mut slots: HashMap<u32, Slot> = stored.collect();
        slots.insert(next_slot, Slot::Gathered);
        let size = manifest.size;
        let state =
            State { base: Arc::new(base), written: log.clone(), slots, next_slot, batch: Batch::default() };
        let head = Head {
            manifest,
            version,
            seq: 0,
            before,
            stable: log,
            targets,
            since,
            unsent: None,
            fenced: None,
        };
        Ok(Volume {
            store: Arc::clone(store),
            ahead: Ahead::new(Arc::clone(&reader), size),
            reader,
            size,
            head: Mutex::new(head),
            state: RwLock::new(state),
        })
    }
}

/// The manifest of the next epoch.
fn next(old: &Manifest, holder: &str, take_over: bool) -> Result<Manifest> {
    if old.flags.frozen {
        return Err(Error::Invalid(format!("{}: is a snapshot, which is never written; fork it", old.name)));
    }
    if old.flags.open && !take_over && !crate::holder::is_gone(&old.holder) {
        return Err(Error::Open(old.holder.clone()));
    }
    if old.segments.len() >= SEGMENTS_MAX {
        return Err(Error::Invalid(format!("{}: was taken over too often without a checkpoint", old.name)));
    }
    let mut manifest = old.clone();
    manifest.epoch = old.epoch.saturating_add(1);
    manifest.flags.open = true;
    manifest.nonce = crate::random::number();
    manifest.holder =
        format!("{} ({})", holder.chars().take(HOLDER_CHARS).collect::<String>(), crate::holder::mark());
    manifest.segments.push(Segment {
        volume: manifest.id,
        epoch: manifest.epoch,
        first: 0,
        end: u64::MAX,
        before: [0; 32],
    });
    Ok(manifest)
}
