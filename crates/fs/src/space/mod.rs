//! Free space of an open volume: joins the placement engines to bitmaps, descriptors and counters.
//!
//! Owns: loading bitmaps when an engine asks for them, and bringing what was allocated into
//! bitmaps and descriptors, once per group and sync. Excludes: choosing (placement does), and what
//! the space is for.
//!
//! Two views are kept apart (I10). The engines know what is free *now*, claims of unfinished updates
//! included. The disk's bitmaps change only by what committed updates allocated, gathered in a
//! ledger until the next sync: an update that is dropped leaves no trace on disk.

mod damage;
mod descriptors;
mod freeing;
mod grant;
mod groups;
mod ledger;
mod loading;
mod rebook;
mod reseal;
mod reserve;
mod stray;
mod trim;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard};

use ondisk::corrupt::Place;
use ondisk::inode::FileType;
use ondisk::units::{Block, BlockRun, Cluster, FileBlock, Group, InodeNumber, low_u32};
use placement::policy::BlockPolicy;
use placement::{
    Contradiction, DirectoryPolicyKind, Engine, InodeEngine, InodeGrant, InodeRefusal, InodeRequest, Layout,
    Promise, Refusal, Request,
};

use crate::cache::{Blocks, Cache, Role};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::locks::{self, lock};
use crate::txn::{Claim, Update};
use damage::Damage;
pub use descriptors::Descriptors;
use grant::UncommittedGrant;
use ledger::Ledger;
pub use ledger::Work;
pub(crate) use rebook::{Bookings, clusters, rebook};
pub(crate) use reseal::{Marked, reseal};
pub(crate) use trim::Trimmed;

/// Free space of one volume.
pub struct Space {
    descriptors: RwLock<Descriptors>,
    /// Only volumes open for writing have engines.
    writing: Option<Writing>,
}

struct Writing {
    format: Format,
    cache: Arc<Cache>,
    blocks: Arc<Engine>,
    inodes: InodeEngine,
    ledger: Arc<Mutex<Ledger>>,
    /// When a whole tree is being loaded: the cluster behind the last one taken. Everything is laid
    /// out from there on, whatever the goal.
    front: Option<AtomicU64>,
    /// Groups whose block bitmaps were given to the engine for freeing.
    loaded: Mutex<HashSet<u32>>,
    /// Groups whose bitmaps can't be believed.
    damage: Damage,
    /// How often freed space became free.
    settlements: AtomicU64,
    /// Free space that no verb can take for a moment.
    holding: trim::Holding,
    /// Bytes of what is known of groups that are kept.
    bound: Option<u64>,
}

/// What a file's data asks of the volume; lengths in blocks.
#[derive(Clone, Copy, Debug)]
pub struct DataRequest {
    /// Where the run would best begin.
    pub goal: Block,
    /// The file block that the first of them will hold: with `bigalloc` it decides the place inside
    /// the cluster.
    pub logical: FileBlock,
    /// Blocks wanted.
    pub count: u32,
    /// The file.
    pub owner: InodeNumber,
    /// The directory whose files should lie together, if it is known.
    pub directory: Option<InodeNumber>,
    /// The file may well grow behind this request.
    pub growing: bool,
}

/// Blocks taken for a file's data and not yet in its map. Dropping it gives back what was not used.
pub struct Reserved {
    grant: Option<UncommittedGrant>,
    next: Block,
    left: u32,
    cluster_log2: u32,
    first_data_block: u32,
}

impl Reserved {
    /// Moves the front to the next cluster not yet begun, and in it to the place that a file block
    /// must have: the rest of a begun cluster belongs to its neighbours in the file. Returns whether
    /// anything is left.
    pub fn align_to(&mut self, logical: FileBlock) -> bool {
        let mask = (1 << self.cluster_log2) - 1;
        let begun = low_u32(self.next.0 - u64::from(self.first_data_block)) & mask;
        let skip = (begun.wrapping_neg() & mask) + (logical.0 & mask);
        self.next.0 += u64::from(skip.min(self.left));
        self.left -= skip.min(self.left);
        self.left > 0
    }

    /// Uses up to `count` blocks from the front: their clusters become part of the update. Returns
    /// the run and the clusters that it begins, which are to be charged to the file.
    pub fn take(&mut self, space: &Space, update: &mut Update<'_>, count: u32) -> (BlockRun, u32) {
        let count = count.min(self.left);
        let run = BlockRun { start: self.next, count };
        self.next = Block(run.start.0 + u64::from(count));
        self.left -= count;
        let used_to = (self.next.0 - u64::from(self.first_data_block)).div_ceil(1 << self.cluster_log2);
        let begun = self.grant.as_ref().map_or(0, |grant| used_to.saturating_sub(grant.run().start.0));
        let clusters = low_u32(begun);
        match self.grant.take() {
            Some(grant) if clusters > 0 && clusters < grant.run().count => {
                let (used, rest) = grant.split(clusters);
                space.claim(update, used);
                self.grant = Some(rest);
            }
            Some(grant) if clusters > 0 => space.claim(update, grant),
            other => self.grant = other,
        }
        (run, clusters)
    }
}

struct TakenBlocks {
    grant: UncommittedGrant,
    ledger: Arc<Mutex<Ledger>>,
}

impl Claim for TakenBlocks {
    fn keep(self: Box<Self>) {
        lock(&self.ledger).took_blocks(self.grant.keep());
    }
}

struct TakenInode {
    grant: InodeGrant,
    directory: bool,
    inodes_per_group: u32,
    ledger: Arc<Mutex<Ledger>>,
}

impl Claim for TakenInode {
    fn keep(self: Box<Self>) {
        let Self { grant, directory, inodes_per_group, ledger } = *self;
        lock(&ledger).took_inode(grant.keep(), directory, inodes_per_group);
    }
}

fn out_of_step(what: Contradiction) -> Error {
    Error::corrupt(Place::Superblock, what.to_string())
}

impl Space {
    /// The space of a volume that is only read.
    ///
    /// # Errors
    /// As [`Descriptors::load`].
    pub fn for_reading(device: &dyn Device, format: &Format) -> Result<Self> {
        Ok(Space { descriptors: RwLock::new(Descriptors::load(device, format)?), writing: None })
    }

    /// The same of a volume that will be written: describes every group to the engines. Bitmaps
    /// are read when they are first needed. With `loading`, everything is laid out in the order in
    /// which it is asked for.
    ///
    /// # Errors
    /// Descriptors that contradict themselves.
    pub fn for_writing(
        self,
        format: &Format,
        cache: Arc<Cache>,
        policy: Box<dyn BlockPolicy>,
        directories: DirectoryPolicyKind,
        loading: bool,
    ) -> Result<Self> {
        let geometry = &format.geometry;
        let layout = Layout {
            clusters: geometry.clusters(),
            clusters_per_group: geometry.clusters_per_group(),
            groups: geometry.groups,
            inodes_per_group: geometry.inodes_per_group,
            groups_per_flex: geometry.groups_per_flex(),
        };
        let blocks = Arc::new(Engine::with_policy(layout, policy).map_err(out_of_step)?);
        let inodes = InodeEngine::new(Arc::clone(&blocks), directories);
        groups::describe_all(format, &self.descriptors(), &blocks, &inodes)?;
        let writing = Writing {
            format: format.clone(),
            cache,
            blocks,
            inodes,
            ledger: Arc::default(),
            front: loading.then(AtomicU64::default),
            loaded: Mutex::default(),
            damage: Damage::default(),
            settlements: AtomicU64::new(0),
            holding: trim::Holding::default(),
            bound: None,
        };
        Ok(Space { writing: Some(writing), ..self })
    }

    /// As it was, with a bound on the memory of what is known of groups.
    #[must_use]
    pub fn bounded(mut self, bytes: u64) -> Self {
        if let Some(writing) = &mut self.writing {
            writing.bound = Some(bytes);
        }
        self
    }

    fn writing(&self) -> Result<&Writing> {
        self.writing.as_ref().ok_or(Error::ReadOnly)
    }

    /// What the placement engine has counted.
    #[must_use]
    pub fn statistics(&self) -> Option<placement::Stats> {
        self.writing.as_ref().map(|writing| writing.blocks.stats())
    }

    /// Whether the volume is open for writing.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.writing.is_some()
    }

    /// The descriptors, to read.
    pub fn descriptors(&self) -> RwLockReadGuard<'_, Descriptors> {
        locks::read(&self.descriptors)
    }

    /// The block of an inode's record and the record's offset in it.
    ///
    /// # Errors
    /// A number behind the last inode; a broken descriptor.
    pub fn inode_place(&self, format: &Format, inode: InodeNumber) -> Result<(Block, usize)> {
        self.descriptors().inode_place(format, inode)
    }

    /// Free clusters and free inodes right now; `None` on a volume that is only read.
    #[must_use]
    pub fn free(&self) -> Option<(u64, u64)> {
        self.writing.as_ref().map(|writing| (writing.blocks.free_clusters(), writing.inodes.free_inodes()))
    }

    /// Promises clusters to writes that are delayed; `spared` clusters stay free beside them.
    ///
    /// # Errors
    /// [`Error::NoSpace`]: fewer are free and not promised.
    pub(crate) fn promise(&self, clusters: u64, spared: u64) -> Result<Promise> {
        let engine = &self.writing()?.blocks;
        reserve::refuse(engine, clusters, spared)?;
        engine.promise(clusters).map_err(|_| Error::NoSpace)
    }

    fn claim(&self, update: &mut Update<'_>, grant: UncommittedGrant) {
        if let Some(writing) = &self.writing {
            let geometry = &writing.format.geometry;
            groups::groups_in(geometry, grant.run()).for_each(|group| update.note_group(group));
            update.claim(TakenBlocks { grant, ledger: Arc::clone(&writing.ledger) });
        }
    }

    /// Takes a run of blocks for data, of the wanted length or the longest there is.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; a bitmap that can't be read.
    pub fn reserve_data(&self, update: &Update<'_>, request: &DataRequest) -> Result<Reserved> {
        let writing = self.writing()?;
        let geometry = &writing.format.geometry;
        let inside = request.logical.0 % geometry.blocks_per_cluster();
        let clusters = request.count.saturating_add(inside).div_ceil(geometry.blocks_per_cluster());
        let mut wanted = Request::data(geometry.cluster_of(request.goal), clusters);
        wanted.owner = u64::from(request.owner.get());
        wanted.offset = u64::from(request.logical.0) >> geometry.cluster_log2;
        wanted.extends = wanted.offset > 0;
        wanted.size = wanted.offset + u64::from(clusters);
        wanted.directory = request.directory.map_or(0, |directory| u64::from(directory.get()));
        wanted.growing = request.growing;
        let grant = self.allocate(writing, update, wanted)?;
        let run = grant.run();
        let start = geometry.cluster_start(run.start);
        let granted = u64::from(run.count) << geometry.cluster_log2;
        let mut reserved = Reserved {
            grant: Some(grant),
            next: start,
            left: low_u32(granted.min(u64::from(u32::MAX))),
            cluster_log2: geometry.cluster_log2,
            first_data_block: geometry.first_data_block,
        };
        reserved.align_to(request.logical);
        Ok(reserved)
    }

    /// Takes one block for metadata near a goal (with `bigalloc` the first of a whole cluster).
    /// Returns it and the blocks to charge to the inode it serves.
    ///
    /// # Errors
    /// As [`Space::reserve_data`].
    pub fn allocate_metadata(&self, update: &mut Update<'_>, goal: Block) -> Result<(Block, u64)> {
        let writing = self.writing()?;
        let geometry = &writing.format.geometry;
        let wanted = Request::metadata(geometry.cluster_of(goal), 1);
        let charged = u64::from(geometry.blocks_per_cluster());
        let grant = match self.allocate(writing, update, wanted) {
            Err(Error::NoSpace) => {
                return update.take_lent().map(|block| (block, charged)).ok_or(Error::NoSpace);
            }
            done => done?,
        };
        let block = geometry.cluster_start(grant.run().start);
        self.claim(update, grant);
        Ok((block, charged))
    }

    fn allocate(
        &self,
        writing: &Writing,
        update: &Update<'_>,
        mut request: Request,
    ) -> Result<UncommittedGrant> {
        if let Some(front) = &writing.front {
            request.goal = Cluster(front.load(Ordering::Relaxed));
            request.stream = true;
        }
        let grant = self.allocate_loaded(writing, update, request)?;
        if let Some(front) = &writing.front {
            front.store(grant.run().end(), Ordering::Relaxed);
        }
        Ok(grant)
    }

    /// Asks the engine, and gives it the bitmaps it wants to see.
    fn allocate_loaded(
        &self,
        writing: &Writing,
        update: &Update<'_>,
        mut request: Request,
    ) -> Result<UncommittedGrant> {
        let account = update.account();
        if account.is_none() {
            reserve::shorten(&writing.blocks, &mut request, update.spared())?;
        }
        // Each round loads one more bitmap or loses a group, so the groups bound the rounds.
        for _ in 0..=2 * u64::from(writing.format.geometry.groups) {
            match UncommittedGrant::take(&writing.blocks, account, &request) {
                Ok(grant) => match self.refuse_own(writing, grant.run()) {
                    Ok(()) => return Ok(grant),
                    Err(_) => {
                        // It must never be given out: it stays taken.
                        grant.keep();
                    }
                },
                Err(Refusal::NoSpace) => return Err(Error::NoSpace),
                Err(Refusal::NeedBitmap(group)) => match self.load_block_bitmap(writing, update, group) {
                    // The group is out of service from now on, and others may have space.
                    Err(Error::Corrupt(_)) => {}
                    done => done?,
                },
            }
            request.attempt += 1;
        }
        Err(Error::NoSpace)
    }

    /// Takes an inode for a new file in a directory.
    ///
    /// # Errors
    /// [`Error::NoInodes`]; a bitmap that can't be read.
    pub fn allocate_inode(
        &self,
        update: &mut Update<'_>,
        request: &InodeRequest,
        file_type: FileType,
    ) -> Result<InodeNumber> {
        let writing = self.writing()?;
        for _ in 0..=2 * u64::from(writing.format.geometry.groups) {
            let grant = match writing.inodes.allocate(request) {
                Ok(grant) => grant,
                Err(InodeRefusal::NoInodes) => return Err(self.lack_of_inodes(writing)),
                Err(InodeRefusal::NeedBitmap(group)) => {
                    match self.load_inode_bitmap(writing, &*update, group) {
                        // The group is out of service from now on, and others may have inodes.
                        Ok(()) | Err(Error::Corrupt(_)) => continue,
                        Err(error) => return Err(error),
                    }
                }
            };
            let number = InodeNumber::new(grant.index() + 1).ok_or(Error::NoInodes)?;
            let prepared = self.prepare_table(writing, update, number);
            match prepared.and_then(|()| self.refuse_in_use(writing, &*update, number)) {
                Err(Error::Corrupt(_)) => continue,
                done => done?,
            }
            let directory = file_type == FileType::Directory;
            update.note_group(Group(number.index() / writing.format.geometry.inodes_per_group));
            update.claim(TakenInode {
                grant,
                directory,
                inodes_per_group: writing.format.geometry.inodes_per_group,
                ledger: Arc::clone(&writing.ledger),
            });
            return Ok(number);
        }
        Err(Error::NoInodes)
    }

    /// Fills the blocks of the inode table that were never used, up to that of a new inode, with
    /// zeros: what a lazily initialised table holds there is not known.
    ///
    /// # Errors
    /// A record there is in use: the group is out of service then, and nothing was cleared.
    fn prepare_table(&self, writing: &Writing, update: &mut Update<'_>, number: InodeNumber) -> Result<()> {
        let geometry = &writing.format.geometry;
        let Some((group, index)) = geometry.locate_inode(number) else { return Ok(()) };
        if !writing.format.features.descriptor_csum() {
            return Ok(());
        }
        let descriptor = self.descriptors().get(&writing.format, group)?;
        let used =
            groups::used_inodes(&writing.format, &descriptor).max(lock(&writing.ledger).reached(group));
        let per_block = geometry.inodes_per_block();
        let block = |at: u32| Block(descriptor.inode_table().0 + u64::from(at));
        // One update may take several inodes; the second must not wipe the first.
        let unused = used.div_ceil(per_block)..=index / per_block;
        let unused: Vec<u32> = unused.filter(|at| !update.holds(block(*at))).collect();
        // A loader fills a table that it has just made.
        if writing.front.is_none() {
            for at in &unused {
                self.refuse_records(writing, &*update, group, *at)?;
            }
        }
        for at in unused {
            let role = geometry.inode_at(group, at * per_block).map_or(Role::Plain, Role::Inodes);
            update.create(block(at), role);
        }
        Ok(())
    }

    /// The inodes of a group that its bitmap marks as used, as of the last sync.
    ///
    /// # Errors
    /// A broken descriptor or bitmap.
    pub fn inodes_in_use(
        &self,
        blocks: &dyn Blocks,
        format: &Format,
        group: Group,
    ) -> Result<Vec<InodeNumber>> {
        let bitmap = groups::read_inode_bitmap(blocks, format, &self.descriptors(), group)?;
        let is_set =
            |index: u32| bitmap.get(index as usize / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1);
        let used = (0..format.geometry.inodes_per_group).filter(|index| is_set(*index));
        Ok(used.filter_map(|index| format.geometry.inode_at(group, index)).collect())
    }

    /// A group's block bitmap, for readers.
    ///
    /// # Errors
    /// A broken descriptor or bitmap; the device's failure.
    pub fn block_bitmap(&self, blocks: &dyn Blocks, format: &Format, group: Group) -> Result<Vec<u8>> {
        groups::read_block_bitmap(blocks, format, &self.descriptors(), group)
    }

    /// Whether the bitmap of its group says that an inode is in use.
    ///
    /// # Errors
    /// A broken bitmap or descriptor; the device's failure.
    pub(crate) fn is_used(&self, blocks: &dyn Blocks, format: &Format, number: InodeNumber) -> Result<bool> {
        let Some((group, index)) = format.geometry.locate_inode(number) else { return Ok(false) };
        let bitmap = groups::read_inode_bitmap(blocks, format, &self.descriptors(), group)?;
        Ok(bitmap.get(index as usize / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1))
    }

    /// Brings everything committed since the last time into bitmaps and descriptors. Returns the
    /// change of free clusters and free inodes of the whole volume, and the work itself: what it frees
    /// can be used again after [`Space::settle`].
    ///
    /// # Errors
    /// A bitmap that can't be read or contradicts what was allocated.
    pub fn write_back(&self, update: &mut Update<'_>) -> Result<(Change, Work)> {
        let writing = self.writing()?;
        let work = lock(&writing.ledger).take();
        let mut descriptors = locks::write(&self.descriptors);
        let change = groups::apply(&writing.format, &mut descriptors, update, &work)?;
        Ok((change, work))
    }

    /// Reads what the next [`Space::write_back`] will change, as far as that is known now, so that it
    /// need not wait for the device.
    ///
    /// # Errors
    /// The device's failure; a broken descriptor.
    pub fn warm_up(&self) -> Result<()> {
        let writing = self.writing()?;
        let touched = groups::touched(&writing.format.geometry, lock(&writing.ledger).work());
        for block in groups::read_for(&writing.format, &self.descriptors(), &touched)? {
            writing.cache.read(Block(block), Role::Plain)?;
        }
        Ok(())
    }

    /// Reads the block bitmaps of all groups, as Linux does behind a mount, so that placement knows all there is.
    ///
    /// # Errors
    /// The device's failure; not open for writing. What is wrong with bitmaps is in [`Space::damage`].
    pub fn load_bitmaps(&self) -> Result<()> {
        let writing = self.writing()?;
        let mut groups = (0..writing.format.geometry.groups).map(Group);
        groups.try_for_each(|group| match self.load_block_bitmap(writing, &*writing.cache, group) {
            Err(Error::Corrupt(_)) => Ok(()),
            done => done,
        })
    }

    /// Where the data of an inode's group may begin: behind the structures at its start.
    #[must_use]
    pub fn home(&self, format: &Format, inode: InodeNumber) -> Block {
        let group = format.geometry.locate_inode(inode).map_or(Group(0), |(group, _)| group);
        let header = format.geometry.group_header(group);
        Block(header.start.0 + u64::from(header.count))
    }

    /// Where contents of a file would best begin: behind what its group keeps for directories.
    #[must_use]
    pub fn contents_home(&self, format: &Format, inode: InodeNumber) -> Block {
        let home = self.home(format, inode);
        let (Some(writing), Some((group, _))) = (&self.writing, format.geometry.locate_inode(inode)) else {
            return home;
        };
        Block(home.0 + (u64::from(writing.inodes.directory_area(group)) << format.geometry.cluster_log2))
    }
}

/// By how much a sync changes the volume's counters of what is free.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Change {
    /// Clusters.
    pub clusters: i64,
    /// Inodes.
    pub inodes: i64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemoryDevice;
    use crate::mkfs::{FsType, Options, Plan};
    use crate::{OpenOptions, Volume};

    /// What an update took on account of a promise is still promised when the update is dropped: no other update can
    /// take it before the next try.
    #[test]
    fn a_dropped_update_gives_back_what_was_promised() {
        let device = Arc::new(MemoryDevice::new(8 << 20));
        Plan::new(&Options::new(FsType::Ext4), device.size()).unwrap().write(&*device).unwrap();
        let volume = Volume::open(device, &OpenOptions::new().write(true)).unwrap();
        let (free, _) = volume.space.free().unwrap();
        let promise = volume.space.promise(free - 5, 0).unwrap();
        let account = Arc::new(Mutex::new(promise));
        for taken in [1, 20, u32::MAX] {
            let dropped: Result<()> = volume.perform(&mut |update| {
                update.draw_on(&account);
                let (goal, _) = volume.space.allocate_metadata(update, Block(0))?;
                let request = DataRequest {
                    goal,
                    logical: FileBlock(0),
                    count: 20,
                    owner: InodeNumber::ROOT,
                    directory: None,
                    growing: false,
                };
                let mut reserved = volume.space.reserve_data(update, &request)?;
                reserved.take(&volume.space, update, taken);
                Err(Error::NotFound)
            });
            assert!(matches!(dropped, Err(Error::NotFound)));
            assert_eq!(lock(&account).count(), free - 5);
            assert_eq!(volume.space.free_after_sync().unwrap().0, 5);
            assert!(volume.space.promise(6, 0).is_err());
        }
        drop(account);
        assert_eq!(volume.space.free_after_sync().unwrap().0, free);
    }
}
