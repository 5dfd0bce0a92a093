//! Taking a volume over: its manifest gets the next epoch, and the epoch before gets a seal.
//!
//! From the new manifest on nobody else begins an epoch without a newer one. From the seal on the writer of the epoch
//! before can't add to it: its next object would have the seal's key.

use std::sync::{Arc, Mutex, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use super::local::Local;
use super::packing::Small;
use super::{Core, Head, State, Volume};
use crate::ahead::Ahead;
use crate::error::{Error, Result};
use crate::format::manifest::{Flags, Manifest, SEGMENTS_MAX, SIZE_MAX, Segment};
use crate::holder;
use crate::keys::{id_of, key_of_manifest};
use crate::known::returned;
use crate::local::{LocalLog, Log, Record};
use crate::marks;
use crate::objects::Version;
use crate::renewal::{Replaced, replace};
use crate::replay::{End, replay};
use crate::store::Store;
use crate::view::{Reader, View};

/// Most times that another opening comes between.
const TRIES: usize = 16;

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
            Some((_, version)) => {
                store.objects().replace(&key, &bytes, &version)?;
                returned(store, &id)?;
            }
            None => drop(store.objects().create(&key, &bytes)?),
        }
        Self::open(store, name, holder, false)
    }

    /// Opens a volume for writing. `holder` says to others who has it. One that somebody has open already is taken over
    /// only with `take_over`: the holder before can write nothing from then on.
    ///
    /// # Errors
    /// There is none, it is a snapshot, or open; damage; the store's.
    pub fn open(store: &Arc<Store>, name: &str, holder: &str, take_over: bool) -> Result<Self> {
        Self::opened(store, name, holder, take_over, None)
    }

    /// As [`Volume::open`], with a log on this host: a flush ends when that is stable, and objects follow in order. What
    /// an earlier opening left in the log, as a process that was killed does, goes on from here.
    ///
    /// # Errors
    /// As there; the log is another process's, or damaged; what a file of this host can have.
    pub fn open_local(
        store: &Arc<Store>,
        name: &str,
        holder: (&str, bool),
        place: &LocalLog,
    ) -> Result<Self> {
        Self::opened(store, name, holder.0, holder.1, Some(Log::take(place)?))
    }

    fn opened(
        store: &Arc<Store>,
        name: &str,
        holder: &str,
        take_over: bool,
        mut log: Option<Log>,
    ) -> Result<Self> {
        marks::ready(store)?;
        let mut notes = Vec::new();
        for _ in 0..TRIES {
            let (old, version) = store.named(name)?;
            let left = holder::log(&old.holder).filter(|_| old.flags.open);
            let own = left.filter(|(token, _)| log.as_ref().is_some_and(|log| log.token == *token));
            // The log of this host is the one that the volume was open with: nobody had it since.
            let mut manifest = next(&old, own.is_some() || take_over)?;
            if let Some(log) = &mut log
                && own.is_none()
            {
                notes.extend(log.renew(&manifest.id)?);
            }
            let sent = own.map_or(0, |(_, sent)| sent);
            manifest.holder = holder::named(holder, log.as_ref().map(|log| (log.token, sent)));
            match replace(store, (&old, &version), &manifest) {
                Ok(Replaced::Done(manifest, version)) => {
                    let begun =
                        OpenedHead { old, manifest: *manifest, version, words: holder.to_owned(), sent };
                    return Self::begun(store, begun, log, notes);
                }
                Ok(Replaced::Renewed(..)) | Err(Error::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Conflict(name.to_owned()))
    }

    /// The volume in its new epoch, once those before have ended.
    fn begun(store: &Arc<Store>, begun: OpenedHead, log: Option<Log>, notes: Vec<String>) -> Result<Self> {
        let OpenedHead { old, manifest, version, words, mut sent } = begun;
        let mut view = View::new(store, &old);
        let reader = Arc::new(Reader::new(Arc::clone(store)));
        let End { segments, before, local } = replay(store, &old, &mut view, &reader, true)?;
        let View { base, log: stable, targets } = view;
        let since = segments.iter().map(|segment| segment.end - segment.first).sum();
        let mut state = State::new(base, stable.clone(), &targets);
        let mut beginning = None;
        if let Some(log) = log {
            sent = sent.max(local.get(&log.token).copied().unwrap_or(0));
            let records;
            (beginning, records) = begin(log, &manifest, sent)?;
            records.into_iter().for_each(|record| state.wait(record));
        }
        let size = manifest.size;
        let head = Head {
            manifest,
            version,
            tried: None,
            words,
            seq: 0,
            before,
            stable,
            targets,
            small: Small::default(),
            since,
            sent,
            unsent: None,
            fenced: None,
        };
        let core = Core {
            store: Arc::clone(store),
            ahead: Ahead::new(Arc::clone(&reader), size),
            reader,
            size,
            head: Mutex::new(head),
            state: RwLock::new(state),
            local: beginning,
        };
        Volume::start(Arc::new(core), notes)
    }
}

/// Progress of an opening.
struct OpenedHead {
    old: Manifest,
    manifest: Manifest,
    version: Version,
    words: String,
    /// The last record of the local log that the store has for certain.
    sent: u64,
}

/// The local log from where the store is, and the records that wait for that.
fn begin(log: Log, manifest: &Manifest, sent: u64) -> Result<(Option<Local>, Vec<Record>)> {
    let (mut parts, mut records) = log.parts((&manifest.id, manifest.size))?;
    let last = records.last().map_or(0, |record| record.number).max(sent);
    records.retain(|record| record.number > sent);
    if let Some(first) = records.first()
        && first.number != sent + 1
    {
        let problem = format!("begins with record {}, and the store has those up to {sent}", first.number);
        return Err(Error::damaged(log.directory().display().to_string(), problem));
    }
    parts.forget(sent, false);
    let waiting = records.iter().map(|record| u64::from(record.data_len)).sum();
    Ok((Some(Local::new(log, parts, sent, last, waiting)), records))
}

/// The manifest of the next epoch.
fn next(old: &Manifest, take_over: bool) -> Result<Manifest> {
    if old.flags.frozen {
        return Err(Error::Invalid(format!("{}: is a snapshot, which is never written; fork it", old.name)));
    }
    // What was written last by a process that has ended may lie in its local log, and only there.
    let is_gone = || holder::is_gone(&old.holder) && holder::log(&old.holder).is_none();
    if old.flags.open && !take_over && !is_gone() {
        return Err(Error::Open(old.holder.clone()));
    }
    if old.segments.len() >= SEGMENTS_MAX {
        return Err(Error::Invalid(format!("{}: was taken over too often without a checkpoint", old.name)));
    }
    let mut manifest = old.clone();
    manifest.epoch = old.epoch.saturating_add(1);
    manifest.flags.open = true;
    manifest.nonce = crate::random::number();
    manifest.segments.push(Segment {
        volume: manifest.id,
        epoch: manifest.epoch,
        first: 0,
        end: u64::MAX,
        before: [0; 32],
    });
    Ok(manifest)
}
