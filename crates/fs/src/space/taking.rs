//! Space as an update takes it: clusters for data and metadata, inodes.
//!
//! Owns: asking the engines, giving them the bitmaps they want to see, and what an update holds until it is committed.
//! Excludes: giving space up (`freeing`).

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use ondisk::inode::FileType;
use ondisk::units::{Block, BlockRun, Cluster, FileBlock, Group, InodeNumber, low_u32};
use placement::{FileState, InodeGrant, InodeRefusal, InodeRequest, Refusal, Request};

use super::grant::UncommittedGrant;
use super::pending::PendingSpace;
use super::{Space, Writing, groups, reserve};
use crate::cache::Role;
use crate::error::{Error, Result};
use crate::locks::lock;
use crate::txn::{Claim, Update};

/// Blocks of an inode table that are looked at with the first one, before they are used for the first time. As many as
/// ext4 reads ahead (`inode_readahead_blks`).
const TABLE_AHEAD: u32 = 32;

/// The space of a volume, as an update takes it and gives it up.
pub(crate) struct SpaceMut<'a, 'v> {
    pub(super) space: &'a Space,
    pub(super) writing: &'a Writing,
    pub(super) update: &'a mut Update<'v>,
}

impl Space {
    /// Space to be taken and given up with an update.
    ///
    /// # Errors
    /// Not open for writing.
    pub(crate) fn with<'a, 'v>(&'a self, update: &'a mut Update<'v>) -> Result<SpaceMut<'a, 'v>> {
        Ok(SpaceMut { space: self, writing: self.writing()?, update })
    }
}

/// Request for the blocks of a file's data; lengths in blocks.
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
    /// See [`Request::process`].
    pub process: u32,
    /// See [`Request::file`].
    pub file: Option<FileState>,
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
}

struct TakenBlocks {
    grant: UncommittedGrant,
    pending: Arc<Mutex<PendingSpace>>,
}

impl Claim for TakenBlocks {
    fn commit(self: Box<Self>) {
        lock(&self.pending).took_blocks(self.grant.keep());
    }
}

struct TakenInode {
    grant: InodeGrant,
    directory: bool,
    inodes_per_group: u32,
    pending: Arc<Mutex<PendingSpace>>,
}

impl Claim for TakenInode {
    fn commit(self: Box<Self>) {
        let Self { grant, directory, inodes_per_group, pending } = *self;
        lock(&pending).took_inode(grant.into_index(), directory, inodes_per_group);
    }
}

impl SpaceMut<'_, '_> {
    fn claim(&mut self, grant: UncommittedGrant) {
        let geometry = &self.writing.format.geometry;
        groups::groups_in(geometry, grant.run()).for_each(|group| self.update.note_group(group));
        self.update.claim(TakenBlocks { grant, pending: Arc::clone(&self.writing.pending) });
    }

    /// Uses up to `count` blocks from the front of what is reserved: their clusters become part of the update. Returns
    /// the run and the clusters that it begins, which are to be charged to the file.
    pub(crate) fn take(&mut self, reserved: &mut Reserved, count: u32) -> (BlockRun, u32) {
        let count = count.min(reserved.left);
        let run = BlockRun { start: reserved.next, count };
        reserved.next = Block(run.start.0 + u64::from(count));
        reserved.left -= count;
        let used_to =
            (reserved.next.0 - u64::from(reserved.first_data_block)).div_ceil(1 << reserved.cluster_log2);
        let begun = reserved.grant.as_ref().map_or(0, |grant| used_to.saturating_sub(grant.run().start.0));
        let clusters = low_u32(begun);
        match reserved.grant.take() {
            Some(grant) if clusters > 0 && clusters < grant.run().count => {
                let (used, rest) = grant.split(clusters);
                self.claim(used);
                reserved.grant = Some(rest);
            }
            Some(grant) if clusters > 0 => self.claim(grant),
            other => reserved.grant = other,
        }
        (run, clusters)
    }

    /// Takes a run of blocks for data, as long as wanted or as long as can be had.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; a bitmap that can't be read.
    pub(crate) fn reserve_data(&self, request: &DataRequest) -> Result<Reserved> {
        let writing = self.writing;
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
        wanted.process = request.process;
        wanted.file = request.file;
        let grant = self.allocate(wanted)?;
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
    /// As [`SpaceMut::reserve_data`].
    pub(crate) fn allocate_metadata(&mut self, goal: Block) -> Result<(Block, u64)> {
        let writing = self.writing;
        let geometry = &writing.format.geometry;
        let wanted = Request::metadata(geometry.cluster_of(goal), 1);
        let charged = u64::from(geometry.blocks_per_cluster());
        let grant = match self.allocate(wanted) {
            Err(Error::NoSpace) => {
                return self.update.borrow_block().map(|block| (block, charged)).ok_or(Error::NoSpace);
            }
            done => done?,
        };
        let block = geometry.cluster_start(grant.run().start);
        self.claim(grant);
        Ok((block, charged))
    }

    pub(super) fn allocate(&self, mut request: Request) -> Result<UncommittedGrant> {
        if let Some(front) = &self.writing.front {
            request.goal = Cluster(front.load(Ordering::Relaxed));
            request.stream = true;
        }
        let grant = self.allocate_loaded(request)?;
        if let Some(front) = &self.writing.front {
            front.store(grant.run().end(), Ordering::Relaxed);
        }
        Ok(grant)
    }

    /// Asks the engine, and gives it the bitmaps it wants to see.
    fn allocate_loaded(&self, mut request: Request) -> Result<UncommittedGrant> {
        let writing = self.writing;
        let account = self.update.account();
        if account.is_none() {
            reserve::shorten(&writing.blocks, &mut request, self.update.spared())?;
        }
        // Each round loads one more bitmap or loses a group, so the groups bound the rounds.
        for _ in 0..=2 * u64::from(writing.format.geometry.groups) {
            match UncommittedGrant::take(&writing.blocks, account, &request) {
                Ok(grant) => match self.space.refuse_own(writing, grant.run()) {
                    Ok(()) => return Ok(grant),
                    Err(_) => {
                        // Nobody may ever have it: it stays taken.
                        grant.keep();
                    }
                },
                Err(Refusal::NoSpace) => return Err(Error::NoSpace),
                Err(Refusal::NeedBitmap(group)) => {
                    match self.space.load_block_bitmap(writing, &*self.update, group) {
                        // The group is out of service from now on, and others may have space.
                        Err(Error::Corrupt(_)) => {}
                        done => done?,
                    }
                }
            }
            request.attempt += 1;
        }
        Err(Error::NoSpace)
    }

    /// Takes an inode for a new file in a directory.
    ///
    /// # Errors
    /// [`Error::NoInodes`]; a bitmap that can't be read.
    pub(crate) fn allocate_inode(
        &mut self,
        request: &InodeRequest,
        file_type: FileType,
    ) -> Result<InodeNumber> {
        let writing = self.writing;
        for _ in 0..=2 * u64::from(writing.format.geometry.groups) {
            let grant = match writing.inodes.allocate(request) {
                Ok(grant) => grant,
                Err(InodeRefusal::NoInodes) => return Err(self.space.lack_of_inodes(writing)),
                Err(InodeRefusal::NeedBitmap(group)) => {
                    match self.space.load_inode_bitmap(writing, &*self.update, group) {
                        // The group is out of service from now on, and others may have inodes.
                        Ok(()) | Err(Error::Corrupt(_)) => continue,
                        Err(error) => return Err(error),
                    }
                }
            };
            let number = InodeNumber::new(grant.index() + 1).ok_or(Error::NoInodes)?;
            let prepared = self.prepare_table(number);
            match prepared.and_then(|()| self.space.refuse_in_use(writing, &*self.update, number)) {
                Err(Error::Corrupt(_)) => continue,
                done => done?,
            }
            let directory = file_type == FileType::Directory;
            self.update.note_group(Group(number.index() / writing.format.geometry.inodes_per_group));
            self.update.claim(TakenInode {
                grant,
                directory,
                inodes_per_group: writing.format.geometry.inodes_per_group,
                pending: Arc::clone(&writing.pending),
            });
            return Ok(self.space.numbers.logical_number(number));
        }
        Err(Error::NoInodes)
    }

    /// Fills the blocks of the inode table that were never used, up to that of a new inode, with
    /// zeros: what a lazily initialised table holds there is anybody's guess.
    ///
    /// # Errors
    /// A record there is in use: the group is out of service then, and nothing was cleared.
    fn prepare_table(&mut self, number: InodeNumber) -> Result<()> {
        let writing = self.writing;
        let geometry = &writing.format.geometry;
        let Some((group, index)) = geometry.locate_inode(number) else { return Ok(()) };
        if !writing.format.features.descriptor_csum() {
            return Ok(());
        }
        let descriptor = self.space.descriptors().get(group)?;
        let used =
            self.space.descriptors().used_inodes(&descriptor).max(lock(&writing.pending).reached(group));
        let per_block = geometry.inodes_per_block();
        let block = |at: u32| Block(descriptor.inode_table().0 + u64::from(at));
        // One update may take several inodes; the second must not wipe the first.
        let unused = used.div_ceil(per_block)..=index / per_block;
        let unused: Vec<u32> = unused.filter(|at| !self.update.holds(block(*at))).collect();
        // A loader fills a table that it has just made.
        if writing.front.is_none() {
            if let Some(first) = unused.first() {
                let count = geometry.inode_table_blocks().saturating_sub(*first).min(TABLE_AHEAD);
                self.update.want(BlockRun { start: block(*first), count });
            }
            for at in &unused {
                self.space.refuse_records(writing, &*self.update, group, *at)?;
            }
        }
        for at in unused {
            let role = geometry.inode_at(group, at * per_block).map_or(Role::Plain, Role::Inodes);
            self.update.create(block(at), role);
        }
        Ok(())
    }
}
