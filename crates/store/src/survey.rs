//! What a store holds: its volumes, what they refer to, and whether all of that is there and right.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Error, Result};
use crate::format::log;
use crate::format::manifest::Manifest;
use crate::format::map::{MAP_MAX, Target, leaves};
use crate::format::{Hash, VolumeId, unhex};
use crate::keys::{Kind, Named, key_of, key_of_log};
use crate::known::known;
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
/// Most objects that volumes may refer to together, some hundreds of bytes of memory each: chunks of 8 TiB.
const MARKED: usize = 1 << 24;
/// How often a volume may be written while it is looked at.
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
        match known(store) {
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

/// What a volume refers to.
#[derive(Default)]
pub(crate) struct Marked {
    /// Keys.
    pub(crate) keys: BTreeSet<String>,
    /// What holds data, by its key.
    pub(crate) targets: BTreeMap<String, (Target, u64)>,
    /// Epochs whose objects count from a number on, of volumes that are open.
    pub(crate) growing: BTreeMap<(VolumeId, u64), u64>,
}

/// Objects that all threads together have noted, whatever they share of them: that is what takes memory.
pub(crate) struct Room {
    taken: AtomicUsize,
    most: usize,
}

impl Default for Room {
    fn default() -> Self {
        Room { taken: AtomicUsize::new(0), most: MARKED }
    }
}

impl Room {
    fn take(&self, volume: &str) -> Result<()> {
        let most = self.most;
        match self.taken.fetch_add(1, Ordering::Relaxed) < most {
            true => Ok(()),
            false => Err(Error::Invalid(format!("{volume}: the volumes refer to more than {most} objects"))),
        }
    }
}

impl Marked {
    /// Notes a target.
    fn target(&mut self, (target, size): (Target, u64), (room, volume): (&Room, &str)) -> Result<()> {
        let key = key_of_target(&target);
        if self.targets.insert(key.clone(), (target, size)).is_none() {
            room.take(volume)?;
        }
        self.keys.insert(key);
        Ok(())
    }

    pub(crate) fn add(&mut self, other: Marked) {
        self.keys.extend(other.keys);
        self.targets.extend(other.targets);
        for (epoch, first) in other.growing {
            let known = self.growing.entry(epoch).or_insert(first);
            *known = first.min(*known);
        }
    }
}

/// What volumes refer to.
pub(crate) fn marked(store: &Arc<Store>, manifests: &[Manifest]) -> Result<Marked> {
    let room = Room::default();
    let mark = |manifest: &Manifest, own: &mut Marked| match mark(store, manifest, (own, &room)) {
        // A claim comes before it is known that all is there.
        Err(Error::Damaged { .. } | Error::Missing(_)) if manifest.is_pending() => Ok(()),
        done => done,
    };
    let mut all = Marked::default();
    together(manifests, store.at_once(REQUESTS), mark)?.into_iter().for_each(|own| all.add(own));
    Ok(all)
}

/// What volumes refer to, for one that removes nothing: each as it is when that is read.
pub(crate) fn marked_now(store: &Arc<Store>, manifests: &[Manifest]) -> Result<Marked> {
    let room = Room::default();
    let mark = |manifest: &Manifest, own: &mut Marked| mark_now(store, manifest, (own, &room));
    let mut all = Marked::default();
    together(manifests, store.at_once(REQUESTS), mark)?.into_iter().for_each(|own| all.add(own));
    Ok(all)
}

/// Adds what a volume refers to. One that was written or removed meanwhile is looked at again: what it was before may be
/// gone by now.
fn mark_now(store: &Arc<Store>, manifest: &Manifest, (all, room): (&mut Marked, &Room)) -> Result<()> {
    let mut manifest = manifest.clone();
    for _ in 0..TRIES {
        let mut own = Marked::default();
        let done = mark(store, &manifest, (&mut own, room));
        if done.is_ok() {
            all.add(own);
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
fn mark(store: &Arc<Store>, manifest: &Manifest, (marked, room): (&mut Marked, &Room)) -> Result<()> {
    let mut view = View::new(store, manifest);
    let reader = Reader::new(Arc::clone(store));
    let end = replay(store, manifest, (&mut view, &reader), false)?;
    for (segment, ended) in manifest.segments.iter().zip(&end.segments) {
        (ended.first..ended.end).for_each(|seq| {
            marked.keys.insert(key_of_log(&segment.volume, segment.epoch, seq));
        });
    }
    for segment in manifest.segments.iter().filter(|segment| segment.end == u64::MAX) {
        marked.growing.insert((segment.volume, segment.epoch), segment.first);
    }
    for target in &view.targets {
        marked.target((*target, manifest.size), (room, &manifest.name))?;
    }
    mark_map(store, &view.base, manifest, (marked, room))
}

fn mark_map(
    store: &Arc<Store>,
    base: &Base,
    manifest: &Manifest,
    (marked, room): (&mut Marked, &Room),
) -> Result<()> {
    if manifest.map == [0; 32] {
        return Ok(());
    }
    marked.keys.insert(key_of(Kind::Map, &manifest.map));
    let names = base.names()?.to_vec();
    let there: Vec<(u64, Hash)> =
        (0..leaves(manifest.size)).zip(names).filter(|(_, name)| *name != [0; 32]).collect();
    for (at, (number, name)) in there.iter().enumerate() {
        if at % LEAVES == 0 && there.len() > 1 {
            let some = there.get(at..there.len().min(at + LEAVES)).unwrap_or_default();
            let fetch =
                |(_, name): &(u64, Hash), (): &mut ()| store.contents(Kind::Map, name, MAP_MAX).map(drop);
            together(some, store.at_once(LEAVES), fetch)?;
        }
        marked.keys.insert(key_of(Kind::Map, name));
        for target in &base.leaf(*number)?.objects {
            marked.target((*target, manifest.size), (room, &manifest.name))?;
        }
    }
    Ok(())
}

fn key_of_target(target: &Target) -> String {
    match target {
        Target::Chunk { hash, .. } => key_of(Kind::Chunk, hash),
        Target::Log { volume, epoch, seq, .. } => key_of_log(volume, *epoch, *seq),
    }
}

/// What a store holds, in numbers.
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

/// Whether an object is referred to, or may be by the time that somebody looks. A seal stays for good: it is what a writer
/// that was taken over long ago runs into.
pub(crate) fn is_used(marked: &Marked, listed: &Listed) -> bool {
    let key = &listed.key;
    let is_seal = key.starts_with("vol/") && listed.size <= log::SEAL as u64;
    if marked.keys.contains(key) || key.ends_with("/manifest") || is_seal {
        return true;
    }
    let Some(Named::Log(volume, epoch, seq)) = Named::of(key) else { return false };
    marked.growing.get(&(volume, epoch)).is_some_and(|first| seq >= *first)
}

/// What is wrong with a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The volume.
    pub volume: String,
    /// What is wrong.
    pub problem: String,
}

/// A volume's objects that hold data, each with the most bytes of a volume that has it.
type Held = BTreeMap<String, (Target, u64, String)>;

/// Reads everything that volumes refer to from the store itself, and verifies it; objects that were read.
///
/// # Errors
/// The store's; damage is no error here, but handed to `found`.
pub fn verify(store: &Arc<Store>, found: &mut dyn FnMut(Finding)) -> Result<u64> {
    // Not what is kept on this host of it: that may be right where the store is not.
    let store = &Arc::new(store.itself());
    let manifests = volumes(store, false)?;
    let room = Room::default();
    let look = |manifest: &Manifest, (held, findings): &mut (Held, Vec<Finding>)| {
        let mut marked = Marked::default();
        let done = mark_now(store, manifest, (&mut marked, &room));
        noted(&manifest.name, done, "", findings)?;
        let with_name = |(key, (target, size))| (key, (target, size, manifest.name.clone()));
        held.extend(marked.targets.into_iter().map(with_name));
        Ok(())
    };
    let (mut held, mut findings) = (Held::new(), Vec::new());
    for (some, problems) in together(&manifests, store.at_once(REQUESTS), look)? {
        held.extend(some);
        findings.extend(problems);
    }
    let reader = Reader::new(Arc::clone(store));
    let held: Vec<(Target, u64, String)> = held.into_values().collect();
    let read = |(target, size, name): &(Target, u64, String), findings: &mut Vec<Finding>| {
        let remedy = match target {
            Target::Chunk { .. } => "; `plat push --repair` of an image that has it mends it",
            Target::Log { .. } => "; `plat push --force` of an image of the volume replaces it",
        };
        noted(name, reader.verify(target, *size), remedy, findings)
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
        let marked = |most| {
            let (mut marked, room) = (Marked::default(), Room { taken: AtomicUsize::new(0), most });
            mark_now(&store, &manifests[0], (&mut marked, &room)).map(|()| marked.targets.len())
        };
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
