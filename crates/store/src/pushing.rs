//! Brings an image into a store: only chunks that are not there travel, and the volume appears when all are.

use platfs_device::invariant;
use platfs_device::units::bounded;
use std::ops::Range;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use platfs_device::Device;

use crate::error::{Error, Result};
use crate::format::manifest::{Flags, Manifest, SIZE_MAX};
use crate::format::map::{CHUNK, Extent, LEAF_SPAN, Leaf, Map, Target, leaves};
use crate::format::{Hash, hash};
use crate::keys::{Kind, id_of, key_of};
use crate::known::returned;
use crate::leases::Lease;
use crate::marks;
use crate::pieces::Pieces;
use crate::store::Store;

/// Requests side by side.
const WORKERS: usize = 8;

/// Result of a push.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pushed {
    /// Bytes of the image.
    pub size: u64,
    /// Chunks that are not zeros.
    pub chunks: u64,
    /// Of these, those that were not in the store.
    pub new_chunks: u64,
    /// Bytes of these, as they are.
    pub new_bytes: u64,
    /// Bytes that were sent for them.
    pub sent_bytes: u64,
}

/// Hears how far a push is, by any of its threads; a failure calls it off.
pub type Watch<'p> = dyn Fn(&Pushed) -> Result<()> + Sync + 'p;

/// Options of a push.
#[derive(Default)]
pub struct Push<'p> {
    /// Replaces a volume of that name.
    pub force: bool,
    /// Reads what is there already, and sends again what is damaged. Replaces a volume of that name, too.
    pub repair: bool,
    /// Bytes that matter, in order; others are taken for zeros. All, if nothing is said.
    pub only: Option<Vec<Range<u64>>>,
    /// Hears how far it is, and may call it off.
    pub watch: Option<&'p Watch<'p>>,
}

#[derive(Default)]
struct Progress {
    chunks: AtomicU64,
    new_chunks: AtomicU64,
    new_bytes: AtomicU64,
    sent_bytes: AtomicU64,
}

impl Progress {
    fn now(&self, size: u64) -> Pushed {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Pushed {
            size,
            chunks: read(&self.chunks),
            new_chunks: read(&self.new_chunks),
            new_bytes: read(&self.new_bytes),
            sent_bytes: read(&self.sent_bytes),
        }
    }
}

/// A chunk of the image, by its number.
type ChunkOfImage = (u64, Hash, u32);

/// Pushes an image under a name.
///
/// # Errors
/// The name is taken and `force` is not set, or a volume of that name is open; the image's; the store's.
pub fn push(store: &Arc<Store>, image: &dyn Device, name: &str, how: &Push<'_>) -> Result<Pushed> {
    crate::address::checked_volume(name)?;
    let size = image.size();
    if size > SIZE_MAX {
        return Err(Error::Invalid(format!("{size} bytes are too many for a volume, at most {SIZE_MAX}")));
    }
    marks::ready(store)?;
    let old = taken(store, name, how.force || how.repair)?;
    let lease = Lease::take(store, name)?;
    let itself = how.repair.then(|| store.itself());
    let job = Job { store, itself, image, how, lease: &lease, progress: Progress::default(), size };
    let chunks = job.chunks()?;
    let map = written_map(store, size, &chunks)?;
    let manifest = Manifest {
        id: id_of(name),
        parent: [0; 16],
        name: name.to_owned(),
        holder: String::new(),
        flags: Flags { frozen: name.contains('@'), ..Flags::default() },
        size,
        created: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        epoch: old.as_ref().map_or_else(marks::first_epoch, |(old, _)| old.epoch.saturating_add(1)),
        nonce: crate::random::number(),
        map,
        segments: Vec::new(),
    };
    // No clean-up is under way that has seen it removed.
    if old.as_ref().is_some_and(|(old, _)| old.flags.removed) {
        returned(store, &manifest.id)?;
    }
    lease.write(&manifest, old.as_ref().map(|(_, version)| version))?;
    let done = job.progress.now(size);
    lease.end()?;
    Ok(done)
}

/// The manifest that has the name now.
fn taken(store: &Store, name: &str, force: bool) -> Result<Option<(Manifest, crate::objects::Version)>> {
    match store.manifest_or_trace(&id_of(name)) {
        Err(Error::Missing(_)) => Ok(None),
        Ok((old, version)) if old.flags.removed => Ok(Some((old, version))),
        Ok((old, _)) if old.flags.open => Err(Error::Open(old.holder)),
        Ok(_) if !force => Err(Error::Exists(name.to_owned())),
        found => found.map(Some),
    }
}

struct Job<'j> {
    store: &'j Store,
    /// The store without what is kept of it here, for a repair.
    itself: Option<Store>,
    image: &'j dyn Device,
    how: &'j Push<'j>,
    lease: &'j Lease,
    progress: Progress,
    size: u64,
}

impl Job<'_> {
    /// All chunks, each in the store when this returns.
    fn chunks(&self) -> Result<Vec<ChunkOfImage>> {
        let pieces = Pieces::new(self.image, CHUNK as u64);
        let failed = AtomicBool::new(false);
        let found: Mutex<Vec<ChunkOfImage>> = Mutex::default();
        let failure: Mutex<Option<Error>> = Mutex::default();
        let work = || {
            let mut buffer = vec![0; CHUNK];
            while !failed.load(Ordering::Relaxed) {
                let Some(piece) = pieces.take() else { return };
                match self.one(piece.start / CHUNK as u64, &mut buffer) {
                    Ok(None) => {}
                    Ok(Some(one)) => found.lock().unwrap_or_else(PoisonError::into_inner).push(one),
                    Err(error) => {
                        failed.store(true, Ordering::Relaxed);
                        failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    }
                }
            }
        };
        match self.store.at_once(WORKERS) {
            1 => work(),
            workers => std::thread::scope(|scope| {
                // Without a thread the others do its work.
                let begin = |_| drop(std::thread::Builder::new().spawn_scoped(scope, work));
                (1..workers).for_each(begin);
                work();
            }),
        }
        if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        found.sort_unstable();
        Ok(found)
    }

    fn one(&self, number: u64, buffer: &mut [u8]) -> Result<Option<ChunkOfImage>> {
        let start = number * CHUNK as u64;
        let len = (self.size - start).min(CHUNK as u64);
        let bytes = usize::try_from(len).ok().and_then(|len| buffer.get_mut(..len));
        let bytes = invariant!(bytes, "the buffer has room for a chunk");
        self.read(start, bytes)?;
        if let Some(watch) = self.how.watch {
            watch(&self.progress.now((start + len).min(self.size)))?;
        }
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let name = hash(bytes);
        self.progress.chunks.fetch_add(1, Ordering::Relaxed);
        let key = key_of(Kind::Chunk, &name);
        let is_there = !self.lease.is_condemned(&key) && self.is_there(&key, &name)?;
        if !is_there {
            let packed = crate::format::packed::pack(bytes);
            self.store.objects().put(&key, &packed)?;
            self.progress.new_chunks.fetch_add(1, Ordering::Relaxed);
            self.progress.new_bytes.fetch_add(len, Ordering::Relaxed);
            self.progress.sent_bytes.fetch_add(packed.len() as u64, Ordering::Relaxed);
        }
        Ok(Some((number, name, bounded::<u32>(len))))
    }

    fn is_there(&self, key: &str, name: &Hash) -> Result<bool> {
        let Some(itself) = &self.itself else { return Ok(self.store.objects().head(key)?.is_some()) };
        match itself.chunk(name) {
            Ok(_) => Ok(true),
            Err(Error::Damaged { .. } | Error::Missing(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The bytes of a chunk, with zeros where nothing matters.
    fn read(&self, start: u64, bytes: &mut [u8]) -> Result<()> {
        let failed = |why: std::io::Error| Error::host(format!("reading the image at byte {start}"), &why);
        let end = start + bytes.len() as u64;
        let Some(only) = &self.how.only else { return self.image.read_at(start, bytes).map_err(failed) };
        bytes.fill(0);
        let first = only.partition_point(|range| range.end <= start);
        for range in only.get(first..).unwrap_or_default() {
            let (from, to) = (range.start.max(start), range.end.min(end));
            if from >= to {
                break;
            }
            let at = |place: u64| usize::try_from(place - start).ok();
            let piece = at(from).zip(at(to)).and_then(|(from, to)| bytes.get_mut(from..to));
            let piece = invariant!(piece, "the part of a range in a chunk lies in it");
            self.image.read_at(from, piece).map_err(failed)?;
        }
        Ok(())
    }
}

/// Writes the map of an image; the name of its root.
fn written_map(store: &Store, size: u64, chunks: &[ChunkOfImage]) -> Result<Hash> {
    let mut names = Vec::new();
    let mut rest = chunks;
    for number in 0..leaves(size) {
        let end = (number + 1).saturating_mul(LEAF_SPAN);
        let count = rest.partition_point(|(chunk, _, _)| chunk * (CHUNK as u64) < end);
        let (own, behind) = rest.split_at(count);
        rest = behind;
        names.push(if own.is_empty() { [0; 32] } else { written(store, &Map::Leaf(leaf(own)))? });
    }
    root(names, |index| written(store, index))
}

/// The name of the root over these leaves.
pub(crate) fn root(names: Vec<Hash>, write: impl Fn(&Map) -> Result<Hash>) -> Result<Hash> {
    if names.iter().all(|name| *name == [0; 32]) {
        return Ok([0; 32]);
    }
    match names[..] {
        [one] => Ok(one),
        _ => write(&Map::Index(names)),
    }
}

/// Writes a map under a name that all who write the same share: whoever does has a lease.
fn written(store: &Store, map: &Map) -> Result<Hash> {
    store.put_contents(Kind::Map, &map.encode())
}

fn leaf(chunks: &[ChunkOfImage]) -> Leaf {
    let mut leaf = Leaf::default();
    let mut known = std::collections::HashMap::new();
    for (number, name, len) in chunks {
        let object = *known.entry(*name).or_insert_with(|| {
            leaf.objects.push(Target::Chunk { hash: *name, len: *len });
            bounded::<u32>(leaf.objects.len() - 1)
        });
        leaf.extents.push(Extent { start: number * CHUNK as u64, len: *len, object, offset: 0 });
    }
    leaf
}
