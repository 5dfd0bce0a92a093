//! Contents of a store: its volumes, what they refer to, and checks that all of that is there and right.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};
use crate::format::log;
use crate::format::manifest::Manifest;
use crate::format::map::{MAP_MAX, Target};
use crate::format::{Hash, VolumeId, unhex};
use crate::keys::{KeyKind, Kind, key_of, key_of_log};
use crate::known;
use crate::objects::Listed;
use crate::renewal::is_same;
use crate::replay::replay;
use crate::store::Store;
use crate::together::together;
use crate::view::{Base, Reader, View};

/// Volumes that are looked at side by side, and leaves of each: no more than a process remembers.
pub(crate) const REQUESTS: usize = 16;
const LEAVES: usize = 8;
/// Most bytes that the manifests of all volumes take in memory.
const MANIFESTS: usize = 256 << 20;
/// Most objects that volumes may refer to together, some hundreds of bytes of memory each: chunks of 8 TiB. What several
/// volumes share counts once.
const MARKED: usize = 1 << 24;
/// Most writes of a volume while it is looked at.
const TRIES: usize = 16;

/// The manifests of a store, those of removed volumes as well if asked for.
///
/// # Errors
/// A damaged manifest; the store's.
pub fn volumes(store: &Store, removed: bool) -> Result<Vec<Manifest>> {
    let mut names: Vec<VolumeId> =
        store.objects().names("vol/")?.iter().filter_map(|name| unhex(name)).collect();
    if !removed {
        // As many as there ever were: they are not read one by one.
        match known::read(store) {
            Ok((known, _)) => names.retain(|id| !known.removed.contains(id)),
            Err(Error::Damaged { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let bytes = AtomicUsize::new(0);
    let read = |id: &VolumeId, found: &mut Vec<Manifest>| {
        if bytes.load(Ordering::Relaxed) > MANIFESTS {
            let why = format!("vol/: the manifests of all volumes take more than {} MiB", MANIFESTS >> 20);
            return Err(Error::Invalid(why));
        }
        match store.manifest_or_trace(id) {
            Ok((manifest, _)) if removed || !manifest.flags.removed => {
                bytes.fetch_add(manifest.weight(), Ordering::Relaxed);
                found.push(manifest);
            }
            // Objects of a log whose manifest is gone.
            Ok(_) | Err(Error::Missing(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    };
    let mut found = together(&names, store.at_once(REQUESTS), read)?.concat();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// References of a volume.
#[derive(Default)]
pub(crate) struct Marked {
    /// Keys.
    pub(crate) keys: BTreeSet<String>,
    /// Objects with data, by key, each with a volume that has it.
    pub(crate) targets: BTreeMap<String, (Target, Arc<Owner>)>,
    /// Epochs whose objects count from a number on, of volumes that are open.
    pub(crate) growing: BTreeMap<(VolumeId, u64), u64>,
}

/// A volume that has an object.
pub(crate) struct Owner {
    name: String,
    /// Bytes.
    size: u64,
}

/// A bound of the memory that the notes of all threads take.
struct Room {
    /// Objects to which the volumes refer that were looked at. Each counts once, however many share it.
    all: Mutex<Marked>,
    /// Objects of `all`, and those of each volume that is looked at, which are not in `all` yet.
    taken: AtomicUsize,
    most: usize,
    /// They were more than `most`.
    is_full: AtomicBool,
}

impl Room {
    fn new(most: usize) -> Self {
        Room { all: Mutex::default(), taken: AtomicUsize::new(0), most, is_full: AtomicBool::new(false) }
    }

    fn all(&self) -> MutexGuard<'_, Marked> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a volume refers to, unless others that were looked at do so too.
    fn note(&self, own: &mut Marked, target: Target, owner: &Arc<Owner>) -> Result<()> {
        let key = key_of_target(&target);
        if own.targets.contains_key(&key) || self.all().targets.contains_key(&key) {
            return Ok(());
        }
        if self.taken.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.is_full.store(true, Ordering::Relaxed);
            let (volume, most) = (&owner.name, self.most);
            return Err(Error::Invalid(format!("{volume}: the volumes refer to more than {most} objects")));
        }
        own.keys.insert(key.clone());
        own.targets.insert(key, (target, Arc::clone(owner)));
        Ok(())
    }

    /// Keeps what a volume refers to, and gives back what others that were looked at meanwhile share of it.
    fn merge(&self, own: Marked) {
        let mut all = self.all();
        let (noted, before) = (own.targets.len(), all.targets.len());
        all.add(own);
        let new = all.targets.len() - before;
        self.taken.fetch_sub(noted - new, Ordering::Relaxed);
    }

    /// Gives all of it back.
    fn forget(&self, own: Marked) {
        self.taken.fetch_sub(own.targets.len(), Ordering::Relaxed);
    }
}

/// Looks at each volume; what they refer to, and what `look` gathered beside that.
fn looked_at<G: Default + Send>(
    store: &Store,
    most: usize,
    manifests: &[Manifest],
    look: impl Fn(&Manifest, &Room, &mut G) -> Result<()> + Sync,
) -> Result<(Marked, Vec<G>)> {
    let by = |threads: usize| {
        let room = Room::new(most);
        let done = together(manifests, threads, |manifest, gathered| look(manifest, &room, gathered));
        (done, room)
    };
    let (mut done, mut room) = by(store.at_once(REQUESTS));
    // Volumes that are looked at side by side note what they share once for each. One by one they don't.
    if done.is_err() && room.is_full.load(Ordering::Relaxed) {
        drop(room);
        (done, room) = by(1);
    }
    Ok((room.all.into_inner().unwrap_or_else(PoisonError::into_inner), done?))
}

impl Marked {
    pub(crate) fn add(&mut self, other: Marked) {
        self.keys.extend(other.keys);
        self.targets.extend(other.targets);
        for (epoch, first) in other.growing {
            let known = self.growing.entry(epoch).or_insert(first);
            *known = first.min(*known);
        }
    }
}

/// Collects the references of volumes.
pub(crate) fn marked(store: &Arc<Store>, manifests: &[Manifest]) -> Result<Marked> {
    let look = |manifest: &Manifest, room: &Room, (): &mut ()| {
        let mut own = Marked::default();
        let done = mark(store, manifest, &mut own, room);
        room.merge(own);
        match done {
            // A claim comes before it is known that all is there.
            Err(Error::Damaged { .. } | Error::Missing(_)) if manifest.is_pending() => Ok(()),
            done => done,
        }
    };
    looked_at(store, MARKED, manifests, look).map(|(all, _)| all)
}

/// Collects the references of volumes, for one that removes nothing: each as it is when that is read.
pub(crate) fn marked_now(store: &Arc<Store>, manifests: &[Manifest]) -> Result<Marked> {
    let look = |manifest: &Manifest, room: &Room, (): &mut ()| mark_now(store, manifest, room);
    looked_at(store, MARKED, manifests, look).map(|(all, _)| all)
}

/// Adds what a volume refers to. One that was written or removed meanwhile is looked at again: what it was before may be
/// gone by now.
fn mark_now(store: &Arc<Store>, manifest: &Manifest, room: &Room) -> Result<()> {
    let mut manifest = manifest.clone();
    for _ in 0..TRIES {
        let mut own = Marked::default();
        let done = mark(store, &manifest, &mut own, room);
        match done {
            Ok(()) => room.merge(own),
            Err(_) => room.forget(own),
        }
        if !matches!(done, Err(Error::Damaged { .. } | Error::Missing(_))) {
            return done;
        }
        match store.manifest(&manifest.id) {
            Ok((now, _)) if is_same(&now, &manifest) => return done,
            Ok((now, _)) => manifest = now,
            Err(Error::Missing(_)) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Err(Error::Unavailable(format!("{}: is written faster than it is looked at", manifest.name)))
}

/// Adds what a volume refers to.
fn mark(store: &Arc<Store>, manifest: &Manifest, marked: &mut Marked, room: &Room) -> Result<()> {
    let mut view = View::new(store, manifest);
    let reader = Reader::new(Arc::clone(store));
    let end = replay(store, manifest, &mut view, &reader, false)?;
    for (segment, ended) in manifest.segments.iter().zip(&end.segments) {
        (ended.first..ended.end).for_each(|seq| {
            marked.keys.insert(key_of_log(&segment.volume, segment.epoch, seq));
        });
    }
    for segment in manifest.segments.iter().filter(|segment| segment.end == u64::MAX) {
        marked.growing.insert((segment.volume, segment.epoch), segment.first);
    }
    let owner = Arc::new(Owner { name: manifest.name.clone(), size: manifest.size });
    view.targets.iter().try_for_each(|target| room.note(marked, *target, &owner))?;
    if manifest.map == [0; 32] {
        return Ok(());
    }
    marked.keys.insert(key_of(Kind::Map, &manifest.map));
    // A volume without bytes has no leaf.
    if manifest.size == 0 {
        return Ok(());
    }
    mark_leaves(store, &view.base, marked, |marked, target| room.note(marked, target, &owner))
}

/// Adds the leaves of a map, and hands over what they refer to.
fn mark_leaves(
    store: &Arc<Store>,
    base: &Base,
    marked: &mut Marked,
    note: impl Fn(&mut Marked, Target) -> Result<()>,
) -> Result<()> {
    let names = base.names()?.to_vec();
    let there: Vec<(u64, Hash)> = (0..).zip(names).filter(|(_, name)| *name != [0; 32]).collect();
    for (at, (number, name)) in there.iter().enumerate() {
        if at % LEAVES == 0 && there.len() > 1 {
            let some = there.get(at..there.len().min(at + LEAVES)).unwrap_or_default();
            let fetch =
                |(_, name): &(u64, Hash), (): &mut ()| store.contents(Kind::Map, name, MAP_MAX).map(drop);
            together(some, store.at_once(LEAVES), fetch)?;
        }
        marked.keys.insert(key_of(Kind::Map, name));
        let leaf = base.leaf(*number)?;
        leaf.objects.iter().try_for_each(|target| note(marked, *target))?;
    }
    Ok(())
}

fn key_of_target(target: &Target) -> String {
    match target {
        Target::Chunk { hash, .. } => key_of(Kind::Chunk, hash),
        Target::Log { volume, epoch, seq, .. } => key_of_log(volume, *epoch, *seq),
    }
}

/// Contents of a store, in numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Volumes, snapshots among them.
    pub volumes: u64,
    /// Bytes of these together, holes included.
    pub volume_bytes: u64,
    /// Objects in the store, and their bytes.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects that no volume refers to.
    pub unused_objects: u64,
    /// Their bytes.
    pub unused_bytes: u64,
}

/// Counts what a store holds.
///
/// # Errors
/// Damage; the store's.
pub fn stats(store: &Arc<Store>) -> Result<Stats> {
    let mut stats = Stats::default();
    let manifests = volumes(store, false)?;
    for manifest in &manifests {
        stats.volumes += 1;
        stats.volume_bytes = stats.volume_bytes.saturating_add(manifest.size);
    }
    let marked = marked_now(store, &manifests)?;
    for prefix in PREFIXES {
        store.objects().list(prefix, &mut |listed| {
            stats.objects += 1;
            stats.bytes = stats.bytes.saturating_add(listed.size);
            if !is_used(&marked, &listed) {
                stats.unused_objects += 1;
                stats.unused_bytes = stats.unused_bytes.saturating_add(listed.size);
            }
            Ok(())
        })?;
    }
    Ok(stats)
}

/// Where data are.
pub(crate) const PREFIXES: [&str; 3] = ["chunk/", "map/", "vol/"];

/// True if an object is referred to, or may be by the time that somebody looks. A seal stays for good: it is what a writer
/// that was taken over long ago runs into.
pub(crate) fn is_used(marked: &Marked, listed: &Listed) -> bool {
    let key = &listed.key;
    let is_seal = key.starts_with("vol/") && listed.size <= log::SEAL as u64;
    if marked.keys.contains(key) || key.ends_with("/manifest") || is_seal {
        return true;
    }
    let Some(KeyKind::Log(volume, epoch, seq)) = KeyKind::parse(key) else { return false };
    marked.growing.get(&(volume, epoch)).is_some_and(|first| seq >= *first)
}

/// Damage in a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The volume.
    pub volume: String,
    /// Damage, in words.
    pub problem: String,
}

/// Reads everything that volumes refer to from the store itself, and verifies it; objects that were read.
///
/// # Errors
/// The store's; damage is no error here, but handed to `found`.
pub fn verify(store: &Arc<Store>, found: &mut dyn FnMut(Finding)) -> Result<u64> {
    // Not what is kept on this host of it: that may be right where the store is not.
    let store = &Arc::new(store.itself());
    let manifests = volumes(store, false)?;
    let look = |manifest: &Manifest, room: &Room, findings: &mut Vec<Finding>| {
        noted(&manifest.name, mark_now(store, manifest, room), "", findings)
    };
    let (marked, findings) = looked_at(store, MARKED, &manifests, look)?;
    let mut findings = findings.concat();
    let reader = Reader::new(Arc::clone(store));
    let held: Vec<(Target, Arc<Owner>)> = marked.targets.into_values().collect();
    let read = |(target, owner): &(Target, Arc<Owner>), findings: &mut Vec<Finding>| {
        let remedy = match target {
            Target::Chunk { .. } => "; `plat push --repair` of an image that has it mends it",
            Target::Log { .. } => "; `plat push --force` of an image of the volume replaces it",
        };
        noted(&owner.name, reader.verify(target, owner.size), remedy, findings)
    };
    findings.extend(together(&held, store.at_once(REQUESTS), read)?.concat());
    findings.sort_by(|a, b| (&a.volume, &a.problem).cmp(&(&b.volume, &b.problem)));
    findings.into_iter().for_each(found);
    Ok((manifests.len() + held.len()) as u64)
}

/// Notes damage; other failures stay.
fn noted(volume: &str, done: Result<()>, remedy: &str, findings: &mut Vec<Finding>) -> Result<()> {
    match done {
        Err(problem @ (Error::Damaged { .. } | Error::Missing(_))) => {
            findings.push(Finding { volume: volume.to_owned(), problem: format!("{problem}{remedy}") });
            Ok(())
        }
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use platfs_device::{Device, MemoryDevice};

    use super::*;
    use crate::forking::fork;
    use crate::format::map::{Leaf, Map};
    use crate::format::packed::pack;
    use crate::objects::{Memory, Objects, Patience};
    use crate::pushing::{Push, push};

    fn store() -> (Arc<Memory>, Arc<Store>) {
        let objects = Arc::new(Memory::new());
        (Arc::clone(&objects), Arc::new(Store::new(objects, Patience::default(), None)))
    }

    #[test]
    fn what_volumes_refer_to_is_bounded() {
        let (_, store) = store();
        let device = MemoryDevice::new(8 << 20);
        (0..8_u8).for_each(|at| device.write_at(u64::from(at) << 20, &[at + 1]).unwrap());
        push(&store, &device, "one", &Push::default()).unwrap();
        let manifests = volumes(&store, false).unwrap();
        let marked = |most| looked(&store, most, &manifests);
        assert_eq!(marked(8).unwrap(), 8);
        let said = marked(7).unwrap_err().to_string();
        assert_eq!(said, "one: the volumes refer to more than 7 objects");
    }

    #[test]
    fn a_map_that_is_longer_than_usual_is_read_and_one_that_is_too_long_is_not() {
        let (objects, store) = store();
        let chunk = |at: u32| Target::Chunk { hash: crate::format::hash(&at.to_le_bytes()), len: 4096 };
        let leaf = Leaf { objects: (0..50_000).map(chunk).collect(), extents: Vec::new() };
        let bytes = Map::Leaf(leaf.clone()).encode();
        let name = store.put_contents(Kind::Map, &bytes).unwrap();
        let manifest = Manifest { size: 1 << 20, map: name, ..example() };
        let base = View::new(&store, &manifest).base;
        assert_eq!(*base.leaf(0).unwrap(), leaf);
        // A few bytes that become more than any map has.
        let long = vec![0; MAP_MAX + 1];
        let name = crate::format::hash(&long);
        objects.put(&key_of(Kind::Map, &name), &pack(&long)).unwrap();
        let said = store.contents(Kind::Map, &name, MAP_MAX).unwrap_err().to_string();
        assert!(said.contains(&key_of(Kind::Map, &name)) && said.contains(&MAP_MAX.to_string()), "{said}");
    }

    fn looked(store: &Arc<Store>, most: usize, manifests: &[Manifest]) -> Result<usize> {
        let look = |manifest: &Manifest, room: &Room, (): &mut ()| mark_now(store, manifest, room);
        looked_at(store, most, manifests, look).map(|(all, _)| all.targets.len())
    }

    #[test]
    fn what_volumes_share_counts_once() {
        let (_, store) = store();
        let device = MemoryDevice::new(8 << 20);
        (0..8_u8).for_each(|at| device.write_at(u64::from(at) << 20, &[at + 1]).unwrap());
        push(&store, &device, "one", &Push::default()).unwrap();
        for name in ["two", "three"] {
            fork(&store, "one", name).unwrap();
        }
        let manifests = volumes(&store, false).unwrap();
        assert_eq!(manifests.len(), 3);
        assert_eq!(looked(&store, 8, &manifests).unwrap(), 8);
        assert!(looked(&store, 7, &manifests).is_err());
        // One that was looked at, and one whose looking-at ended: neither takes room for good.
        let room = Room::new(8);
        for manifest in &manifests {
            mark_now(&store, manifest, &room).unwrap();
            let mut own = Marked::default();
            mark(&store, &Manifest { map: manifest.map, ..example() }, &mut own, &room).unwrap();
            room.forget(own);
        }
        assert_eq!(room.taken.load(Ordering::Relaxed), 8);
    }

    fn example() -> Manifest {
        Manifest {
            id: [1; 16],
            parent: [0; 16],
            name: "one".into(),
            holder: String::new(),
            flags: crate::format::manifest::Flags::default(),
            size: 0,
            created: 0,
            epoch: 0,
            nonce: 0,
            map: [0; 32],
            segments: Vec::new(),
        }
    }
}
