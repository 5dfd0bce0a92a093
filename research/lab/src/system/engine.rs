//! The placement engine alone, with no file system around it: a file is a list of runs, and no byte is moved.
//!
//! Owns the loop that every file system has around an allocator, and the names that calls use. Excludes maps, holes
//! and metadata: a file has clusters from its first byte to its last, directories and symbolic links have none.
//! Time is a count of calls, so that clients take turns.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ondisk::units::{Cluster, Group};
use placement::{Engine, GroupContent, Layout, Refusal, Request};

use super::{Client, Modelled, Name, Op, Slot, System};
use crate::file::File;
use crate::traffic::Figures;

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    /// Its final size is known: nothing is placed before the close.
    Whole,
    /// More is expected behind this piece.
    Growing,
}

/// The root directory's number; others have numbers from [`FIRST`] on, in the order in which they are made.
const ROOT: u64 = 2;
const FIRST: u64 = 100;
/// The number before that of the first file.
const BEFORE: u64 = 11;
/// Space of fewer bytes that is reserved at once behind some will be followed by more, as the library has it.
const LITTLE: u64 = 1 << 20;

/// An engine with files.
pub(crate) struct EngineAlone {
    engine: Engine,
    /// Bytes of a cluster.
    cluster: u64,
    writing: Writing,
    now: AtomicU64,
    held: Mutex<EngineState>,
}

/// Files and directories that the calls have made.
struct EngineState {
    names: HashMap<Name, Entry>,
    files: HashMap<u64, EngineFile>,
    directories: u64,
    next: u64,
    /// Where the last file that was made in each directory ends: the goal of its next.
    ends: HashMap<u64, Cluster>,
    refused: u64,
}

#[derive(Clone, Copy)]
enum Entry {
    File(u64),
    Directory(u64),
    Symlink,
}

struct EngineFile {
    file: File,
    names: u32,
    /// Clusters that wait for their place.
    waiting: u32,
}

/// The geometry of mke2fs for this many full groups.
pub(crate) fn layout(groups: u32, clusters_per_group: u32) -> Layout {
    Layout {
        clusters: u64::from(groups) * u64::from(clusters_per_group),
        clusters_per_group,
        groups,
        inodes_per_group: 8_192,
        groups_per_flex: 16,
        block_bytes: 4_096,
        blocks_per_cluster: 1,
    }
}

/// Describes all groups of an engine as untouched.
pub(crate) fn describe_empty(engine: &Engine) -> Option<()> {
    let layout = *engine.layout();
    for group in (0..layout.groups).map(Group) {
        let free = layout.clusters_of(group);
        engine.describe_group(group, free, GroupContent::Uninitialised { used: &[] }).ok()?;
    }
    Some(())
}

/// Adds `count` clusters to the end of a file; false if the volume is full. What was allocated until then stays.
pub(crate) fn extend(engine: &Engine, file: &mut File, count: u32, goal: Cluster, writing: Writing) -> bool {
    let mut left = count;
    while left > 0 {
        let offset = file.clusters();
        let end = file.runs().last().map(|run| run.end());
        let request = Request {
            owner: file.key,
            directory: file.directory,
            offset,
            extends: end.is_some(),
            size: offset + u64::from(left),
            growing: writing == Writing::Growing,
            ..Request::data(end.map_or(goal, Cluster), left)
        };
        match engine.allocate(&request) {
            Ok(grant) => {
                let run = grant.into_run();
                left -= run.count.min(left);
                file.push(run);
            }
            Err(Refusal::NeedBitmap(_) | Refusal::NoSpace) => return false,
        }
    }
    true
}

/// Frees a file's clusters from a place on.
pub(crate) fn cut(engine: &Engine, file: &mut File, clusters: u64) {
    engine.truncated(file.key);
    // From the first on: some policies remember what was freed last.
    for run in file.cut(clusters).into_iter().rev() {
        // Fails only for runs that are not in use, and these are.
        let _ = engine.free(run);
    }
}

impl EngineAlone {
    /// A volume on an engine whose groups are described, in clusters of a number of bytes.
    pub(crate) fn new(engine: Engine, cluster: u64, writing: Writing) -> Self {
        let held = EngineState {
            names: HashMap::new(),
            files: HashMap::new(),
            directories: 0,
            next: BEFORE,
            ends: HashMap::new(),
            refused: 0,
        };
        let cluster = cluster.max(1);
        EngineAlone { engine, cluster, writing, now: AtomicU64::new(0), held: Mutex::new(held) }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// All files, in the order in which they were made.
    pub(crate) fn files(&self) -> Vec<File> {
        let mut files: Vec<File> = self.held().files.values().map(|known| known.file.clone()).collect();
        files.sort_unstable_by_key(|file| file.key);
        files
    }

    /// Calls for which there was no room.
    pub(crate) fn refused(&self) -> u64 {
        self.held().refused
    }

    fn held(&self) -> MutexGuard<'_, EngineState> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the first file of a directory goes: a fixed spread over groups, the same for every policy. Files of the
    /// root go to the beginning.
    fn goal(&self, held: &EngineState, directory: u64) -> Cluster {
        if directory == ROOT {
            return Cluster(0);
        }
        let home = || {
            let layout = self.engine.layout();
            let group = directory.wrapping_mul(0x9E37_79B1) % u64::from(layout.groups.max(1));
            layout.group_start(Group(u32::try_from(group).unwrap_or(0)))
        };
        held.ends.get(&directory).copied().unwrap_or_else(home)
    }

    /// Adds clusters to a file; whether there was room for all.
    fn place(&self, held: &mut EngineState, key: u64, count: u32, writing: Writing) -> bool {
        let Some(directory) = held.files.get(&key).map(|known| known.file.directory) else { return true };
        let goal = self.goal(held, directory);
        let Some(known) = held.files.get_mut(&key) else { return true };
        let placed = extend(&self.engine, &mut known.file, count, goal, writing);
        held.refused += u64::from(!placed);
        placed
    }

    /// Places what waits of a file.
    fn place_waiting(&self, held: &mut EngineState, key: u64) -> bool {
        let waiting = held.files.get_mut(&key).map_or(0, |known| std::mem::take(&mut known.waiting));
        waiting == 0 || self.place(held, key, waiting, self.writing)
    }

    fn cut(&self, held: &mut EngineState, key: u64, clusters: u64) {
        let Some(known) = held.files.get_mut(&key) else { return };
        let lies = known.file.clusters();
        known.waiting = u32::try_from(clusters.saturating_sub(lies)).unwrap_or(0).min(known.waiting);
        cut(&self.engine, &mut known.file, clusters);
    }

    /// A name is gone; with its last one a file is.
    fn forget(&self, held: &mut EngineState, path: &str) -> Result<(), String> {
        match held.names.remove(path) {
            Some(Entry::File(key)) => {
                let names = held.files.get_mut(&key).map_or(0, |known| {
                    known.names -= 1;
                    known.names
                });
                if names == 0 {
                    self.cut(held, key, 0);
                    held.files.remove(&key);
                }
                Ok(())
            }
            Some(_) => Ok(()),
            None => Err("not found".into()),
        }
    }
}

impl EngineState {
    /// The directory in which a path stands.
    fn above(&self, path: &str) -> Result<u64, String> {
        match path.rsplit_once('/') {
            None => Ok(ROOT),
            Some((above, _)) => match self.names.get(above) {
                Some(Entry::Directory(number)) => Ok(*number),
                _ => Err("no such directory".into()),
            },
        }
    }

    fn file(&self, path: &str) -> Result<u64, String> {
        match self.names.get(path) {
            Some(Entry::File(key)) => Ok(*key),
            _ => Err("no such file".into()),
        }
    }

    fn create(&mut self, path: &Name) -> Result<u64, String> {
        let directory = self.above(path)?;
        self.next += 1;
        let file = File::new(self.next, directory);
        self.files.insert(self.next, EngineFile { file, names: 1, waiting: 0 });
        self.names.insert(path.clone(), Entry::File(self.next));
        Ok(self.next)
    }

    /// Renames, with all that is below.
    fn rename(&mut self, from: &str, to: &str) -> Result<(), String> {
        let entry = self.names.remove(from).ok_or("not found")?;
        self.names.insert(to.into(), entry);
        if let Entry::Directory(_) = entry {
            let begin = format!("{from}/");
            let below: Vec<Name> =
                self.names.keys().filter(|path| path.starts_with(&*begin)).cloned().collect();
            for path in below {
                if let Some(entry) = self.names.remove(&path) {
                    self.names.insert(format!("{to}/{}", &path[begin.len()..]).into(), entry);
                }
            }
        }
        Ok(())
    }
}

impl System for EngineAlone {
    fn client(&self) -> Box<dyn Client + '_> {
        Box::new(Program { alone: self, open: HashMap::new() })
    }
}

impl Modelled for EngineAlone {
    fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    fn set_now(&self, now: u64) {
        self.now.store(now, Ordering::Relaxed);
    }

    fn tick(&self, _until: u64) -> Result<(), String> {
        Ok(())
    }

    fn figures(&self) -> Figures {
        Figures::default()
    }
}

/// A client: its open files, and whether it made them.
struct Program<'e> {
    alone: &'e EngineAlone,
    open: HashMap<Slot, (u64, bool)>,
}

impl Program<'_> {
    fn key(&self, slot: Slot) -> Result<u64, String> {
        self.open.get(&slot).map(|(key, _)| *key).ok_or_else(|| "no file is open in this slot".into())
    }

    fn open(&mut self, held: &mut EngineState, slot: Slot, path: &Name, create: bool) -> Result<(), String> {
        let found = held.names.contains_key(path);
        let key = if create && !found { held.create(path)? } else { held.file(path)? };
        if create && found {
            self.alone.cut(held, key, 0);
        }
        self.open.insert(slot, (key, create && !found));
        Ok(())
    }

    /// Clusters up to the end of a range, all that are not there.
    fn reach(&self, held: &mut EngineState, slot: Slot, end: u64, writing: Writing) -> Result<bool, String> {
        let (key, alone) = (self.key(slot)?, self.alone);
        let Some(known) = held.files.get_mut(&key) else { return Err("the file is gone".into()) };
        let lies = known.file.clusters() + u64::from(known.waiting);
        let more = u32::try_from(end.div_ceil(alone.cluster).saturating_sub(lies)).unwrap_or(u32::MAX);
        if writing == Writing::Whole && alone.writing == Writing::Whole {
            known.waiting = known.waiting.saturating_add(more);
            return Ok(true);
        }
        Ok(more == 0 || alone.place_waiting(held, key) && alone.place(held, key, more, writing))
    }

    fn write(&self, held: &mut EngineState, slot: Slot, offset: u64, len: u64) -> Result<u64, String> {
        if self.reach(held, slot, offset.saturating_add(len), self.alone.writing)? {
            return Ok(len);
        }
        // As much as there was room for.
        let lies = held.files.get(&self.key(slot)?).map_or(0, |known| known.file.clusters());
        Ok((lies * self.alone.cluster).saturating_sub(offset).min(len))
    }

    /// Closes a file, and notes where its directory goes on if the file was made whole.
    fn close(&mut self, held: &mut EngineState, slot: Slot) -> Result<(), String> {
        let Some((key, is_new)) = self.open.remove(&slot) else {
            return Err("no file is open in this slot".into());
        };
        self.alone.place_waiting(held, key);
        self.alone.engine.closed(key);
        if let Some(file) = held.files.get(&key).map(|known| &known.file)
            && is_new
            && let Some(last) = file.runs().last()
        {
            held.ends.insert(file.directory, Cluster(last.end()));
        }
        Ok(())
    }

    fn call(&mut self, op: &Op) -> Result<u64, String> {
        let alone = self.alone;
        let held = &mut *alone.held();
        match op {
            Op::MakeDirectory(path) => {
                held.above(path)?;
                held.names.insert(path.clone(), Entry::Directory(FIRST + held.directories));
                held.directories += 1;
            }
            Op::Open { slot, path, create } => self.open(held, *slot, path, *create)?,
            Op::Write { slot, offset, len } | Op::Direct { slot, offset, len, write: true } => {
                return self.write(held, *slot, *offset, *len);
            }
            Op::Read { len, .. } | Op::Direct { len, .. } => return Ok(*len),
            Op::Reserve { slot, offset, len } => {
                let writing = if *offset > 0 && *len < LITTLE { Writing::Growing } else { Writing::Whole };
                self.reach(held, *slot, offset.saturating_add(*len), writing)?;
                // It takes its clusters in the call, also where writes wait for the close.
                alone.place_waiting(held, self.key(*slot)?);
            }
            Op::Truncate { slot, len } => alone.cut(held, self.key(*slot)?, len.div_ceil(alone.cluster)),
            // Runs have no place in the file of their own: a hole would shift what lies behind it.
            Op::Punch { .. } => return Err("an engine alone has no holes".into()),
            Op::Sync { slot, .. } => _ = alone.place_waiting(held, self.key(*slot)?),
            Op::SyncAll => {
                let mut keys: Vec<u64> = held.files.keys().copied().collect();
                // In the order in which they were made: a run must not depend on a hash.
                keys.sort_unstable();
                keys.into_iter().for_each(|key| _ = alone.place_waiting(held, key));
            }
            Op::Close(slot) => self.close(held, *slot)?,
            Op::Remove(path) | Op::RemoveDirectory(path) => alone.forget(held, path)?,
            Op::Rename(from, to) => {
                // The file that had the new name loses it.
                if from != to && held.names.contains_key(to) {
                    alone.forget(held, to)?;
                }
                held.rename(from, to)?;
            }
            Op::Link(from, to) => {
                let key = held.file(from)?;
                held.names.insert(to.clone(), Entry::File(key));
                held.files.entry(key).and_modify(|known| known.names += 1);
            }
            Op::Symlink { path, .. } => _ = held.names.insert(path.clone(), Entry::Symlink),
            Op::Status(_) | Op::Look(_) | Op::List(_) | Op::DropCaches | Op::Think(_) => {}
        }
        Ok(0)
    }
}

impl Client for Program<'_> {
    fn perform(&mut self, op: &Op) -> Result<u64, String> {
        self.alone.now.fetch_add(1, Ordering::Relaxed);
        self.call(op).map_err(|error| format!("{op:?}: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use placement::BlockPolicyKind;

    fn alone(writing: Writing) -> EngineAlone {
        let engine = Engine::new(layout(2, 32_768), BlockPolicyKind::Lease).unwrap();
        describe_empty(&engine).unwrap();
        EngineAlone::new(engine, 4096, writing)
    }

    fn open(path: &str) -> Op {
        Op::Open { slot: 0, path: path.into(), create: true }
    }

    fn write(offset: u64, len: u64) -> Op {
        Op::Write { slot: 0, offset, len }
    }

    #[test]
    fn names_lead_to_files_and_the_last_one_frees_them() {
        let alone = alone(Writing::Growing);
        let mut client = alone.client();
        let mut perform = |op: Op| client.perform(&op);
        perform(Op::MakeDirectory("a".into())).unwrap();
        perform(open("a/x")).unwrap();
        assert_eq!(perform(write(0, 10_000)), Ok(10_000));
        perform(Op::Close(0)).unwrap();
        assert_eq!(alone.engine().free_clusters(), 65_536 - 3);
        perform(Op::Link("a/x".into(), "y".into())).unwrap();
        perform(Op::Rename("a".into(), "b".into())).unwrap();
        perform(Op::Open { slot: 0, path: "b/x".into(), create: false }).unwrap();
        perform(Op::Truncate { slot: 0, len: 4097 }).unwrap();
        perform(Op::Close(0)).unwrap();
        assert_eq!((alone.files()[0].clusters(), alone.engine().free_clusters()), (2, 65_536 - 2));
        perform(Op::Remove("b/x".into())).unwrap();
        assert_eq!(alone.files().len(), 1);
        perform(Op::Remove("y".into())).unwrap();
        assert_eq!((alone.files().len(), alone.engine().free_clusters()), (0, 65_536));
        assert!(perform(Op::Remove("y".into())).unwrap_err().contains("not found"));
    }

    #[test]
    fn what_is_delayed_is_placed_whole_and_what_finds_no_room_is_counted() {
        let alone = alone(Writing::Whole);
        let mut client = alone.client();
        let mut perform = |op: Op| client.perform(&op).unwrap();
        perform(open("x"));
        (0..10).for_each(|piece| _ = perform(write(piece * 4096, 4096)));
        assert_eq!(alone.engine().free_clusters(), 65_536);
        perform(Op::Close(0));
        assert_eq!(alone.engine().stats().get(placement::Counter::Reqs), 1);
        assert_eq!((alone.files()[0].clusters(), alone.refused()), (10, 0));
        perform(open("large"));
        perform(write(0, 1 << 30));
        perform(Op::Sync { slot: 0, data_only: false });
        assert_eq!((alone.engine().free_clusters(), alone.refused()), (0, 1));
        perform(Op::Remove("large".into()));
        assert_eq!(alone.engine().free_clusters(), 65_536 - 10);
    }
}
