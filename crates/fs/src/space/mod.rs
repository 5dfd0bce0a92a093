//! Free space of an open volume: joins the placement engines to bitmaps, descriptors and counters.
//!
//! Owns: loading bitmaps when an engine asks for them, and bringing what was allocated into
//! bitmaps and descriptors, once per group and sync. Excludes: choosing (placement does), and what
//! the space is for.
//!
//! Two views are kept apart (I10). The engines know what is free *now*, claims of unfinished updates
//! included. The disk's bitmaps change only by what committed updates allocated, gathered in a
//! pending until the next sync: an update that is dropped leaves no trace on disk.

mod closing;
mod damage;
mod descriptors;
mod freeing;
mod grant;
mod groups;
mod growing;
mod loading;
mod pending;
mod rebook;
mod reseal;
mod reserve;
mod room;
mod stray;
mod taking;
mod trim;

use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard};

use ondisk::corrupt::Place;
use ondisk::geometry::Geometry;
use ondisk::units::{Block, Group, InodeNumber};
use placement::parameters::Policies;
use placement::{Contradiction, Engine, InodeEngine, Layout, Promise};

use crate::cache::{Blocks, Cache, Role};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::locks::{self, lock};
use crate::numbers::Numbers;
use crate::txn::Update;
pub(crate) use closing::{Shortened, Structures};
use damage::Damage;
pub use descriptors::Descriptors;
use descriptors::Tables;
use pending::PendingSpace;
pub use pending::Work;
pub(crate) use rebook::{Bookings, clusters, rebook};
pub(crate) use reseal::{Marked, reseal};
pub(crate) use room::{ClustersOf, Room, RoomRequest};
pub(crate) use taking::{DataRequest, Reserved, SpaceMut};
pub(crate) use trim::Trimmed;

/// Free space of one volume.
pub struct Space {
    geometry: Geometry,
    descriptors: RwLock<Descriptors>,
    tables: Tables,
    numbers: Arc<Numbers>,
    /// Only volumes open for writing have engines.
    writing: Option<Writing>,
}

struct Writing {
    format: Format,
    cache: Arc<Cache>,
    blocks: Arc<Engine>,
    inodes: InodeEngine,
    pending: Arc<Mutex<PendingSpace>>,
    /// When a whole tree is being loaded: the cluster behind the last one taken. Everything is laid
    /// out from there on, whatever the goal.
    front: Option<AtomicU64>,
    /// Groups whose block bitmaps were given to the engine for freeing.
    loaded: Mutex<HashSet<u32>>,
    /// Groups whose bitmaps can't be believed.
    damage: Damage,
    /// How often freed space became free.
    free_generation: AtomicU64,
    /// Free space that no verb can take for a moment.
    holding: trim::Holding,
    /// Bytes of what is known of groups that are kept.
    bound: Option<u64>,
}

/// A volume's shape, as placement sees it.
fn layout_of(geometry: &Geometry) -> Layout {
    Layout {
        clusters: geometry.clusters(),
        clusters_per_group: geometry.clusters_per_group(),
        groups: geometry.groups,
        inodes_per_group: geometry.inodes_per_group,
        groups_per_flex: geometry.groups_per_flex(),
        block_bytes: geometry.block_size.bytes(),
        blocks_per_cluster: 1 << geometry.cluster_log2,
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
    pub fn for_reading(device: &dyn Device, format: &Format, lenient: bool) -> Result<Self> {
        let descriptors = RwLock::new(Descriptors::load(device, format, lenient)?);
        let geometry = format.geometry;
        let (tables, numbers) = (Tables::new(geometry.groups), Arc::clone(&format.numbers));
        Ok(Space { geometry, descriptors, tables, numbers, writing: None })
    }

    /// Opens the space of a volume that will be written: describes every group to the engines. Bitmaps
    /// are read when they are first needed. With `loading`, everything is laid out in the order in
    /// which it is asked for.
    ///
    /// # Errors
    /// Descriptors that contradict themselves.
    pub fn for_writing(
        self,
        format: &Format,
        cache: Arc<Cache>,
        policies: Policies,
        loading: bool,
    ) -> Result<Self> {
        let layout = layout_of(&format.geometry);
        let blocks = Arc::new(Engine::with_policy(layout, policies.blocks).map_err(out_of_step)?);
        let inodes = InodeEngine::with_policy(Arc::clone(&blocks), policies.inodes);
        groups::describe_all(format, &self.descriptors(), &blocks, &inodes)?;
        let writing = Writing {
            format: format.clone(),
            cache,
            blocks,
            inodes,
            pending: Arc::default(),
            front: loading.then(AtomicU64::default),
            loaded: Mutex::default(),
            damage: Damage::default(),
            free_generation: AtomicU64::new(0),
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

    /// Statistics of the placement engine.
    #[must_use]
    pub fn statistics(&self) -> Option<placement::Stats> {
        self.writing.as_ref().map(|writing| writing.blocks.stats())
    }

    /// See [`placement::Engine::keep_scans`].
    pub fn keep_scans(&self) {
        if let Some(writing) = &self.writing {
            writing.blocks.keep_scans();
        }
    }

    /// See [`placement::Engine::take_scans`].
    pub fn take_scans(&self) -> Vec<(Option<Group>, u64)> {
        self.writing.as_ref().map(|writing| writing.blocks.take_scans()).unwrap_or_default()
    }

    /// True if the volume is open for writing.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.writing.is_some()
    }

    /// The descriptors, to read.
    pub fn descriptors(&self) -> RwLockReadGuard<'_, Descriptors> {
        locks::read(&self.descriptors)
    }

    /// The block of an inode's record and the record's offset in it. The inode is called as on disk.
    ///
    /// # Errors
    /// A number behind the last inode; a broken descriptor.
    pub(crate) fn place_on_disk(&self, inode: InodeNumber) -> Result<(Block, usize)> {
        let (block, inside) = self.record_on_disk(inode)?;
        Ok((block, inside as usize * usize::from(self.geometry.inode_size)))
    }

    /// The block of an inode's record, and how many records are in front of it there. The inode is called as on disk.
    ///
    /// # Errors
    /// As [`Space::place_on_disk`].
    pub(crate) fn record_on_disk(&self, inode: InodeNumber) -> Result<(Block, u32)> {
        let geometry = &self.geometry;
        let Some((group, index)) = geometry.locate_inode(inode) else {
            let problem = format!("the volume has {} inodes", geometry.inodes());
            return Err(Error::corrupt(Place::Inode(inode), problem));
        };
        let table = self.tables.table_of(group, || self.descriptors().inode_table(group))?;
        let per_block = geometry.inodes_per_block();
        Ok((Block(table.0 + u64::from(index / per_block)), index % per_block))
    }

    /// The group in which an inode lies on disk, and its index there.
    fn locate(&self, inode: InodeNumber) -> Option<(Group, u32)> {
        self.geometry.locate_inode(self.numbers.physical_number(inode))
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

    /// The inodes of a group that its bitmap marks as used, as of the last sync.
    ///
    /// # Errors
    /// A broken descriptor or bitmap.
    pub fn inodes_in_use(&self, blocks: &dyn Blocks, group: Group) -> Result<Vec<InodeNumber>> {
        let bitmap = self.descriptors().inode_bitmap(blocks, group)?;
        let is_set =
            |index: u32| bitmap.get(index as usize / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1);
        let used = (0..self.geometry.inodes_per_group).filter(|index| is_set(*index));
        let number =
            |index| self.geometry.inode_at(group, index).map(|number| self.numbers.logical_number(number));
        Ok(used.filter_map(number).collect())
    }

    /// A group's block bitmap, for readers.
    ///
    /// # Errors
    /// A broken descriptor or bitmap; the device's failure.
    pub fn block_bitmap(&self, blocks: &dyn Blocks, group: Group) -> Result<Vec<u8>> {
        self.descriptors().block_bitmap(blocks, group)
    }

    /// True if the bitmap of its group says that an inode is in use.
    ///
    /// # Errors
    /// A broken bitmap or descriptor; the device's failure.
    pub(crate) fn is_used(&self, blocks: &dyn Blocks, number: InodeNumber) -> Result<bool> {
        let Some((group, index)) = self.locate(number) else { return Ok(false) };
        let bitmap = self.descriptors().inode_bitmap(blocks, group)?;
        Ok(bitmap.get(index as usize / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1))
    }

    /// Brings everything committed since the last time into bitmaps and descriptors. Returns the
    /// change of free clusters and free inodes of the whole volume, and the work itself: what it frees
    /// can be used again after [`Space::free_committed`].
    ///
    /// # Errors
    /// A bitmap that can't be read or contradicts what was allocated.
    pub fn write_back(&self, update: &mut Update<'_>) -> Result<(FreeDelta, Work)> {
        let writing = self.writing()?;
        let work = lock(&writing.pending).take();
        let mut descriptors = locks::write(&self.descriptors);
        let mut booking = groups::Booking { descriptors: &mut descriptors, update };
        let change = booking.apply(&work)?;
        Ok((change, work))
    }

    /// Reads what the next [`Space::write_back`] will change, as far as that is known now, so that it
    /// need not wait for the device.
    ///
    /// # Errors
    /// The device's failure; a broken descriptor.
    pub fn warm_up(&self) -> Result<()> {
        let writing = self.writing()?;
        let touched = groups::touched(&writing.format.geometry, lock(&writing.pending).work());
        for block in self.descriptors().read_for(&touched)? {
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
    pub fn home(&self, inode: InodeNumber) -> Block {
        let group = self.locate(inode).map_or(Group(0), |(group, _)| group);
        let header = self.geometry.group_header(group);
        Block(header.start.0 + u64::from(header.count))
    }

    /// True if placement wants to know more of files ([`placement::Request::file`]).
    pub(crate) fn wants_file(&self) -> bool {
        self.writing.as_ref().is_some_and(|writing| writing.blocks.wants_file())
    }

    /// See [`Engine::writes_folios`].
    pub(crate) fn writes_folios(&self) -> bool {
        self.writing.as_ref().is_some_and(|writing| writing.blocks.writes_folios())
    }

    /// Where ext4 looks first for blocks of a file that has none: the second group of its flex group, as the first is
    /// for directories and others; without delay at one of sixteen places, by the process. Source: Linux 6.18,
    /// `ext4_inode_to_goal_block`.
    pub(crate) fn first_goal(
        &self,
        inode: InodeNumber,
        process: u32,
        delays: bool,
        is_regular: bool,
    ) -> Block {
        const FLEX_FROM: u32 = 4;
        const COLOURS: u64 = 16;
        let geometry = &self.geometry;
        let group = self.locate(inode).map_or(0, |(group, _)| group.0);
        let flex = layout_of(geometry).groups_per_flex;
        let group = if flex >= FLEX_FROM { group / flex * flex + u32::from(is_regular) } else { group };
        let per_group = u64::from(geometry.blocks_per_group);
        let start = u64::from(geometry.first_data_block) + u64::from(group) * per_group;
        let last = geometry.blocks.saturating_sub(1);
        if delays {
            return Block(start);
        }
        let room = if start + per_group <= last { per_group } else { last.saturating_sub(start) };
        Block(start + u64::from(process) % COLOURS * (room / COLOURS))
    }

    /// Where contents of a file would best begin: behind what its group keeps for directories.
    #[must_use]
    pub fn contents_home(&self, inode: InodeNumber) -> Block {
        let home = self.home(inode);
        let (Some(writing), Some((group, _))) = (&self.writing, self.locate(inode)) else {
            return home;
        };
        Block(home.0 + (u64::from(writing.inodes.directory_area(group)) << self.geometry.cluster_log2))
    }

    /// True if the policy for directories wants their blocks to come and go as in Linux.
    pub(crate) fn keeps_directories_as_linux(&self) -> bool {
        self.writing.as_ref().is_some_and(|writing| writing.inodes.keeps_blocks_as_linux())
    }
}

/// By how much a sync changes the volume's counters of what is free.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct FreeDelta {
    /// Clusters.
    pub clusters: i64,
    /// Inodes.
    pub inodes: i64,
}

#[cfg(test)]
mod tests {
    use ondisk::units::FileBlock;

    use super::*;
    use crate::device::MemoryDevice;
    use crate::mkfs::{FsType, Options, Plan};
    use crate::{OpenOptions, Volume};

    /// Space that an update took from a promise is still promised when the update is dropped: no other update can
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
            let dropped: Result<()> = crate::ops::change(&volume, |tx| {
                tx.draw_on(&account);
                let mut space = tx.space_mut()?;
                let (goal, _) = space.allocate_metadata(Block(0))?;
                let request = DataRequest {
                    goal,
                    logical: FileBlock(0),
                    count: 20,
                    owner: InodeNumber::ROOT,
                    directory: None,
                    growing: false,
                    process: 0,
                    file: None,
                };
                let mut reserved = space.reserve_data(&request)?;
                space.take(&mut reserved, taken);
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
