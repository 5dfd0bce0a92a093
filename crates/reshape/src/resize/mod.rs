//! Another size for a volume.
//!
//! ```text
//!  OldVolume --shape--> sizes --new_tables--> structures --survey, moves--> Plan --draft--> Staged
//!  (as it is)                          (headers, tables)  (files in the way)
//! ```
//!
//! A [`Plan`] only reads. [`Plan::draft`] has the check judge the old volume, then writes to blocks that it does not use,
//! which harms nothing when it is cut off, and leaves all else staged in memory: the switch from the old volume to the new one, which the caller has
//! judged, makes undoable, and applies. Excludes files, terminals, and the end of the image file.

mod bits;
mod careful;
mod carry;
mod charges;
mod homes;
mod in_use;
mod inodes;
mod kept;
mod moves;
mod names;
mod new_tables;
mod old_volume;
mod room;
mod shape;
mod smallest;
mod space;
mod survey;
mod tree;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::draft::{Change, Limits, judge, refuse_unsound};
use crate::error::refused;
use crate::{Error, Result};
use ondisk::features::Incompat;
use ondisk::geometry::Geometry;
use ondisk::seal::Sealer;
use ondisk::superblock::RawSuperblock;
use ondisk::units::{Block, InodeNumber};
use platfs::mkfs::layout::Runs;
use platfs_check::Staged;
use platfs_device::Device;

use careful::Careful;
use carry::Carrier;
use homes::Moved;
pub use in_use::{ShrinkWork, Watch, grow_in_use, moves_in_use, shrink_in_use, size_in_use, smallest_in_use};
use inodes::Inodes;
use moves::Moves;
use names::Namer;
use new_tables::NewTables;
use old_volume::OldVolume;
use shape::{Shape, Tail};
use space::Space;
use survey::{InTheWay, Survey, survey};

/// A new size, decided: where everything will lie.
pub struct Plan {
    before: Arc<OldVolume>,
    shape: Shape,
    places: NewTables,
    space: Space,
    inodes: Inodes,
    survey: Survey,
    moves: Moves,
    moved: Vec<Moved>,
    numbers: BTreeMap<u32, InodeNumber>,
    /// The check found the old volume sound.
    is_sound: bool,
}

impl Plan {
    /// Plans a volume of `bytes` bytes, or a little less where a rest is of no use. The device is only read; it may be
    /// shorter than the volume is to be.
    ///
    /// # Errors
    /// A volume that is not in order; a size that is out of range; too little room.
    pub fn new(device: Arc<dyn Device>, bytes: u64) -> Result<Plan> {
        let before = Arc::new(OldVolume::read(device)?);
        let blocks = bytes >> before.geometry.block_size.log2();
        let useful = shape::plan(&before.raw, blocks, Tail::Useful);
        let planned = useful.and_then(|shape| Plan::with_shape(&before, shape));
        if planned.is_ok() || blocks >= before.geometry.blocks {
            return planned;
        }
        // A last group of any size may help where room is short.
        let any =
            shape::plan(&before.raw, blocks, Tail::Any).and_then(|shape| Plan::with_shape(&before, shape));
        any.or(planned)
    }

    /// Plans a volume of the same size with descriptors of the other width (`64bit`): what lies where descriptors will
    /// moves.
    ///
    /// # Errors
    /// A volume that is not in order, or too large for narrow descriptors; too little room.
    pub fn of_width(device: Arc<dyn Device>, wide: bool) -> Result<Plan> {
        let before = Arc::new(OldVolume::read(device)?);
        let shape = shape::of_width(&before.raw, wide)?;
        Plan::with_shape(&before, shape)
    }

    /// Plans the smallest volume that there can be: with one block less it would not hold what it holds.
    ///
    /// # Errors
    /// A volume that is not in order.
    pub fn smallest(device: Arc<dyn Device>) -> Result<Plan> {
        smallest::plan(&Arc::new(OldVolume::read(device)?))
    }

    fn with_shape(before: &Arc<OldVolume>, shape: Shape) -> Result<Plan> {
        let places = new_tables::plan(before, &shape.geometry)?;
        let mut plan = Plan::with_places(before, shape, places)?;
        plan.make_way()?;
        Ok(plan)
    }

    /// A plan in which files are still in the way.
    fn with_places(before: &Arc<OldVolume>, shape: Shape, mut places: NewTables) -> Result<Plan> {
        let after = shape.geometry;
        let structures = homes::staying(&places, &after);
        let mut space = Space::new(Arc::clone(before), after, structures);
        space.look_at_changes()?;
        let moved = homes::find(before, &mut places, &mut space)?;
        Ok(Plan {
            before: Arc::clone(before),
            shape,
            places,
            space,
            inodes: Inodes::default(),
            survey: Survey::default(),
            moves: Moves::default(),
            moved,
            numbers: BTreeMap::new(),
            is_sound: false,
        })
    }

    /// Finds new places for files, and new numbers for inodes, where the new shape leaves none.
    fn make_way(&mut self) -> Result<()> {
        let groups = new_tables::kept(&self.before.geometry, &self.shape.geometry);
        let way = InTheWay { evicted: &self.places.evicted, groups };
        let waiting = used_by_files(&self.before, way.evicted)?;
        if waiting.count_within(0, u64::MAX) == 0 && !way.renumbers(&self.before) {
            return Ok(());
        }
        self.survey = survey(&self.before, &way)?;
        self.numbers = names::assign(&self.before, groups, &self.survey.owners, &mut self.inodes)?;
        let singles = self.singles()?;
        self.moves = moves::assign(&mut self.space, &self.survey.owners, &singles, way.evicted)?;
        let left = self.moves.vacated();
        match waiting.within(0, u64::MAX).find(|(start, end)| left.count_within(*start, *end) < end - start) {
            None => Ok(()),
            Some((start, end)) => refused(format!(
                "no file is known for blocks in {start} to {} that are marked as used; `plat check` says more",
                end - 1
            )),
        }
    }

    /// Blocks of the volume's own that stand alone.
    fn singles(&self) -> Result<Vec<Block>> {
        let mut singles = Vec::new();
        if write::keeps_descriptors(&self.before.raw) && write::keeps_descriptors(&self.shape.raw) {
            singles.push(self.top()?);
        }
        if let Some(block) = mmp_block(&self.before.raw) {
            if !self.before.geometry.contains(block, 1) {
                return refused(format!("its mmp block {block} lies outside of it"));
            }
            singles.push(block);
        }
        Ok(singles)
    }

    /// The double-indirect block of the resize inode.
    fn top(&self) -> Result<Block> {
        kept::top(&self.before.record(InodeNumber::RESIZE)?.1, &self.before.geometry)
    }

    /// Blocks of files and of the volume's own that are copied.
    #[must_use]
    pub fn blocks_moved(&self) -> u64 {
        self.moves.blocks() + self.moved.iter().map(|(.., count)| count).sum::<u64>()
    }

    /// Files that get another inode number.
    #[must_use]
    pub fn inodes_moved(&self) -> usize {
        self.numbers.len()
    }

    /// Sizes as they are.
    #[must_use]
    pub fn before(&self) -> &Geometry {
        &self.before.geometry
    }

    /// Sizes as they will be.
    #[must_use]
    pub fn after(&self) -> &Geometry {
        &self.shape.geometry
    }

    /// True if the volume has this size already.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.before.geometry == self.shape.geometry
    }

    /// Bytes of the volume as it will be.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.shape.geometry.blocks << self.shape.geometry.block_size.log2()
    }

    /// Has the check judge the old volume, which is only read. [`Plan::draft`] begins with it; who changes anything else
    /// before asks first.
    ///
    /// # Errors
    /// The check finds anything.
    pub fn judge(&mut self, limits: &Limits) -> Result<()> {
        if !self.is_sound {
            refuse_unsound(&self.before.device, limits)?;
            self.is_sound = true;
        }
        Ok(())
    }

    /// Writes what harms nothing to `device`, which has room for both volumes, and gives the rest as a change, which the
    /// check has judged. Before the first write it has judged the old volume: what a bitmap calls free is free. The device reads as zeros from the byte `zeros_from` on: its old end, where it was made longer
    /// for this.
    ///
    /// # Errors
    /// The check finds anything; the device's failures; more to stage than memory may hold.
    pub fn draft(mut self, device: Arc<dyn Device>, zeros_from: u64, limits: &Limits) -> Result<Change> {
        if device.size() < self.size_bytes() {
            let (have, need) = (device.size(), self.size_bytes());
            return refused(format!("the device has {have} bytes, the volume needs {need}"));
        }
        self.judge(limits)?;
        let staged = Arc::new(Staged::new(Arc::clone(&device), limits.memory));
        let before = Arc::clone(&self.before);
        let careful = Careful::new(&before, Arc::clone(&device), Arc::clone(&staged));
        self.write(&careful, zeros_from, limits)?;
        careful.flush().map_err(Error::io("flushing what was copied"))?;
        let judged = judge(&(Arc::clone(&staged) as Arc<dyn Device>), limits, &[])?;
        if let Some(why) = judged.refusal {
            return refused(format!("the volume was not changed; it would not be sound: {why}"));
        }
        Change::new(device, staged, Vec::new()).map_err(Error::io("staging the superblock"))
    }

    fn write(&mut self, device: &dyn Device, zeros_from: u64, limits: &Limits) -> Result<()> {
        let geometry = self.shape.geometry;
        let sealer = Sealer::from_superblock(&self.shape.raw);
        let mut raw = self.shape.raw;
        self.carry(device, sealer, &mut raw)?;
        self.resize_inode(device, &sealer)?;
        let tables = &self.places.tables;
        self.overhead(&mut raw);
        let mut times = raw.times();
        times.written = limits.now.since_1970();
        raw.set_times(times);
        let writer = write::Writer {
            before: &self.before,
            raw,
            geometry,
            sealer,
            tables,
            space: &self.space,
            inodes: &self.inodes,
            device,
            zeros_from,
        };
        writer.run()
    }

    /// Brings tables, files and names to their new places.
    fn carry(&self, device: &dyn Device, sealer: Sealer, raw: &mut RawSuperblock) -> Result<()> {
        let (after, tables) = (&self.shape.geometry, &self.places.tables[..]);
        let mut carrier = Carrier {
            before: &self.before,
            moves: &self.moves,
            numbers: &self.numbers,
            tables,
            after,
            sealer,
            device,
            attributes: BTreeSet::new(),
            charged: Vec::new(),
        };
        for (from, to, count) in &self.moved {
            carrier.copy(*from, *to, *count)?;
        }
        for owner in &self.survey.owners {
            carrier.carry(owner, raw)?;
        }
        carrier.charge(raw)?;
        if let Some(block) = mmp_block(&self.before.raw) {
            let to = self.moves.to(block);
            if to != block {
                carrier.copy(block, to, 1)?;
                raw.s_mmp_block.set(to.0);
            }
        }
        let namer = Namer {
            before: &self.before,
            moves: &self.moves,
            numbers: &self.numbers,
            tables,
            after,
            sealer,
            device,
        };
        self.survey.directories.iter().try_for_each(|directory| namer.directory(*directory))?;
        self.survey.valued.iter().try_for_each(|inode| namer.values(*inode))
    }

    /// The resize inode follows the shape.
    fn resize_inode(&mut self, device: &dyn Device, sealer: &Sealer) -> Result<()> {
        if !write::keeps_descriptors(&self.before.raw) {
            return Ok(());
        }
        let (geometry, top) = (self.shape.geometry, self.top()?);
        let tables = &self.places.tables;
        if write::keeps_descriptors(&self.shape.raw) {
            return kept::store(device, &geometry, tables, sealer, self.moves.to(top));
        }
        kept::clear(device, &geometry, tables)?;
        self.space.mark(top.0, top.0 + 1, false)
    }

    /// Corrects the count of blocks that structures take; where nothing was counted, nothing is.
    fn overhead(&self, raw: &mut RawSuperblock) {
        let (old, new) = (&self.before.geometry, &self.shape.geometry);
        let stored = u64::from(raw.s_overhead_clusters.get());
        if stored == 0 {
            return;
        }
        let count = |runs: Runs, geometry: &Geometry| runs.count_within(0, u64::MAX) >> geometry.cluster_log2;
        let was = count(self.before.structures(), old);
        let is = count(self.places.structures(new), new);
        let sum = (stored + is).saturating_sub(was);
        raw.s_overhead_clusters.set(u32::try_from(sum).unwrap_or(0));
    }
}

/// The block of multiple mount protection.
fn mmp_block(raw: &RawSuperblock) -> Option<Block> {
    let protected = raw.features().incompat.contains(Incompat::MMP);
    Some(Block(raw.s_mmp_block.get())).filter(|block| protected && block.0 != 0)
}

/// Evicted blocks that are used, but not by structures of groups; whole clusters.
fn used_by_files(before: &OldVolume, evicted: &Runs) -> Result<Runs> {
    let mut used = Runs::default();
    let geometry = &before.geometry;
    let structures = before.structures();
    for (start, end) in evicted.within(0, geometry.blocks) {
        let mut at = start;
        while let Some(group) = geometry.group_of_block(Block(at)).filter(|_| at < end) {
            let first = geometry.group_start(group).0;
            let stop = (first + u64::from(geometry.blocks_per_group)).min(end);
            let bits = before.bitmap(group)?;
            let (mut from, to) = old_volume::span(geometry, first, at, stop);
            while let Some((a, b)) = bits.next_run(from, to, true) {
                let log2 = geometry.cluster_log2;
                used.insert(first + (u64::from(a) << log2), first + (u64::from(b) << log2));
                from = b;
            }
            at = stop;
        }
    }
    for (start, end) in structures.within(0, geometry.blocks) {
        used.remove(start, end);
    }
    Ok(used)
}
