//! A volume that becomes smaller while it is open: its end is closed, what lies there leaves, and the end is cut.
//!
//! Owns: whether a volume can become smaller in use, closing the end and opening it again, which inodes have to leave, and
//! the one update that makes the volume smaller. Excludes: which sizes a volume can have (`platfs_reshape`), how an inode
//! leaves (`ops`), making the device shorter.
//!
//! 1. Everything is made stable, and the end is closed: no block and no inode behind it is given out ([`close`]).
//! 2. Inodes behind the end get other numbers, one by one ([`Closed::renumber`]); programs go on with those that they know.
//!    Then what lies behind the end leaves, inode by inode, each as files move. A crash finds each inode under its old number
//!    or its new one, each block in its old place or in its new one, and the volume has the size that it had.
//! 3. Everything is made stable once more. If nothing is in use behind the end, one update, and so one transaction of the
//!    journal, has the bitmaps, the descriptors, the list of blocks kept for descriptors, and the superblock. It is brought
//!    to its place before others change anything ([`Closed::cut`]).
//! 4. Backups are written; cut off before, they are of the larger volume, and are written again when the volume is given the
//!    size that it has.

mod renumbering;

use std::sync::{Arc, Mutex};

use ondisk::features::Compat;
use ondisk::geometry::Geometry;
use ondisk::inode::InodeFlags;
use ondisk::superblock::RawSuperblock;
use ondisk::units::{Block, BlockRun, Group, InodeNumber};

use crate::context::Context;
use crate::error::{Error, Flow, Result};
use crate::format::Format;
use crate::locks::lock;
use crate::ops::{end_of, leave, reaches};
use crate::placing;
use crate::sizes::{Reshape, copy_sizes, refused, resize_top, write_backups};
use crate::space::{Shortened, Structures};
use crate::txn::Account;
use crate::versions::SPACE;
use crate::volume::{VersionedInode, Volume};
pub use renumbering::Pass;

/// A smaller shape of a volume, which it can have while it is in use.
#[derive(Debug)]
pub struct Shrinkage {
    raw: RawSuperblock,
    before: Geometry,
    after: Format,
    /// Blocks that are in use behind the new end by now, structures of groups that go left out.
    in_use: u64,
}

impl Shrinkage {
    /// The shape of a superblock with other sizes. Nothing else of it counts.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the reason, and the size that would do: the volume has no journal; inodes or files of the
    /// volume itself lie behind the end; what is in use does not fit.
    pub fn plan(volume: &Volume, raw: &RawSuperblock) -> Result<Self> {
        if !volume.space.is_writable() {
            return Err(Error::ReadOnly);
        }
        if !volume.uses_journal() {
            return refused("a volume becomes smaller in use only through a journal");
        }
        // Counts of what is in use are those of what is stable.
        volume.sync()?;
        let mut sized = volume.superblock();
        copy_sizes(&mut sized, raw);
        let before = volume.format.geometry;
        let mut after = Format::from_superblock(&sized)?;
        after.keys = volume.format.keys.clone();
        after.numbers = Arc::clone(&volume.format.numbers);
        after.features = volume.format.features;
        let mut shrinkage = Shrinkage { raw: sized, before, after, in_use: 0 };
        shrinkage.must_suit()?;
        shrinkage.structures_must_stay(volume)?;
        shrinkage.inodes_must_fit(volume)?;
        shrinkage.own_files_must_stay(volume)?;
        shrinkage.in_use = shrinkage.must_fit(volume)?;
        Ok(shrinkage)
    }

    /// The first block behind the new end.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.after.geometry.blocks
    }

    /// Blocks that have to move, by what was stable when it was made.
    #[must_use]
    pub fn blocks_to_move(&self) -> u64 {
        self.in_use
    }

    /// Inodes that have to get other numbers, by what is stable.
    ///
    /// # Errors
    /// A broken descriptor.
    pub fn inodes_to_move(&self, volume: &Volume) -> Result<u64> {
        volume.space.inodes_behind(&self.after.geometry)
    }

    fn must_suit(&self) -> Result<()> {
        let (before, after) = (&self.before, &self.after.geometry);
        let same = Geometry {
            blocks: before.blocks,
            groups: before.groups,
            reserved_descriptor_blocks: before.reserved_descriptor_blocks,
            ..*after
        };
        if after.blocks >= before.blocks {
            return Err(Error::Invalid("the volume would not be smaller".into()));
        }
        let headers = [before, after].map(|of| of.group_header(Group(0)));
        if same != *before || headers[1].start != headers[0].start || headers[1].count > headers[0].count {
            return refused("its descriptors would lie elsewhere");
        }
        let backups = self.raw.s_backup_bgs.map(|group| group.get());
        let sparse2 = Compat::SPARSE_SUPER2;
        if self.raw.features().compat.contains(sparse2) && backups.iter().any(|group| *group >= after.groups)
        {
            return refused("the second backup of its superblock lies behind that end");
        }
        Ok(())
    }

    fn structures_must_stay(&self, volume: &Volume) -> Result<()> {
        let end = self.after.geometry.blocks;
        let structures = Structures::new(&volume.space.descriptors(), &self.after.geometry)?;
        let mmp = self.raw.s_mmp_block.get();
        let mut stays = !structures.stay_behind(self.after.geometry.clusters()) && mmp < end;
        let features = self.raw.features();
        if features.compat.contains(Compat::RESIZE_INODE) {
            let inode = volume.view().inode(InodeNumber::RESIZE)?;
            stays &= resize_top(&self.before, inode.raw().i_block.as_slice())?.0 < end;
        }
        if stays { Ok(()) } else { refused("structures of groups that stay lie behind that end") }
    }

    /// Inodes of groups that go get other numbers.
    fn inodes_must_fit(&self, volume: &Volume) -> Result<()> {
        let groups = self.after.geometry.groups;
        let behind = volume.space.inodes_behind(&self.after.geometry)?;
        if behind == 0 {
            return Ok(());
        }
        if self.raw.features().compat.contains(Compat::STABLE_INODES) {
            return refused(&format!(
                "{behind} inodes lie behind that end, and the feature stable_inodes forbids to give them other numbers"
            ));
        }
        if behind <= volume.space.inodes_free_in(groups)? {
            return Ok(());
        }
        let (mut short, mut enough) = (groups, self.before.groups);
        while short + 1 < enough {
            let groups = short.midpoint(enough);
            let behind = volume.space.inodes_behind(&Geometry { groups, ..self.before })?;
            let fits = behind <= volume.space.inodes_free_in(groups)?;
            (short, enough) = if fits { (short, groups) } else { (groups, enough) };
        }
        let enough = self.size_of(u64::from(enough));
        refused(&format!(
            "{behind} inodes lie behind that end, and fewer are free before it; the least size is {enough}"
        ))
    }

    /// The last number of an inode that stays, as it is called on disk.
    fn last_inode(&self) -> u32 {
        self.after.geometry.inodes()
    }

    /// The files that the volume keeps for itself.
    fn own_files_must_stay(&self, volume: &Volume) -> Result<()> {
        let low = (1..self.before.first_inode).filter_map(InodeNumber::new);
        let own = low.chain(volume.format.zone.files());
        let mut last = None;
        for number in own.filter(|number| ![InodeNumber::ROOT, InodeNumber::RESIZE].contains(number)) {
            if number.get() > self.last_inode() {
                let least = self.size_of(u64::from(number.index() / self.before.inodes_per_group) + 1);
                return refused(&format!(
                    "inode {number}, a file of the volume itself, lies behind that end; the least size for that is {least}"
                ));
            }
            let mut seen = VersionedInode::read(volume, number)?;
            // The one that owns bad blocks is no file.
            if seen.node().file_type().is_some() || number.get() == 1 {
                last = last.max(Some((seen.seqlock_read(end_of)?, number)));
            }
        }
        match last {
            Some((blocks, number)) if blocks > self.after.geometry.blocks => refused(&format!(
                "inode {number}, a file of the volume itself as its journal is, has blocks behind that end; the least size \
                 for that is {}",
                self.in_words(blocks)
            )),
            _ => Ok(()),
        }
    }

    /// Refuses an end before which the used blocks have no room, with some for maps; returns the used blocks behind it.
    fn must_fit(&self, volume: &Volume) -> Result<u64> {
        let after = &self.after.geometry;
        if self.fits(volume, after.groups, after.clusters())? {
            return self.count_behind(volume);
        }
        let (mut short, mut enough) = (after.groups, self.before.groups);
        while short + 1 < enough {
            let groups = short.midpoint(enough);
            let clusters = u64::from(groups) * u64::from(self.before.clusters_per_group());
            let fits = self.fits(volume, groups, clusters)?;
            (short, enough) = if fits { (short, groups) } else { (groups, enough) };
        }
        let enough = self.size_of(u64::from(enough));
        refused(&format!("what is in use does not fit before that end; there is room with {enough}"))
    }

    fn fits(&self, volume: &Volume, groups: u32, clusters: u64) -> Result<bool> {
        let (free, _) = volume.space.free_after_sync().unwrap_or_default();
        let used = self.before.clusters().saturating_sub(free);
        let shape = Geometry { groups, ..self.before };
        let leaving = Structures::new(&volume.space.descriptors(), &shape)?.leaving();
        Ok(used.saturating_sub(leaving) + clusters / SPARE <= clusters)
    }

    fn count_behind(&self, volume: &Volume) -> Result<u64> {
        let after = &self.after.geometry;
        let mut behind = 0;
        for group in (after.groups..self.before.groups).map(Group) {
            let free = volume.space.descriptors().get(group)?.free_clusters();
            behind += u64::from(self.before.group_clusters(group).saturating_sub(free));
        }
        let last = Group(after.groups.saturating_sub(1));
        let bitmap = volume.space.block_bitmap(&*volume.cache, last)?;
        let is_used =
            |bit: &u32| bitmap.get(*bit as usize / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1);
        behind +=
            (after.group_clusters(last)..self.before.group_clusters(last)).filter(is_used).count() as u64;
        let structures = Structures::new(&volume.space.descriptors(), after)?.behind(after.clusters());
        Ok(behind.saturating_sub(structures) << self.before.cluster_log2)
    }

    /// A number of groups as a size in words.
    fn size_of(&self, groups: u64) -> String {
        let first = u64::from(self.before.first_data_block);
        self.in_words(first + groups * u64::from(self.before.blocks_per_group))
    }

    fn in_words(&self, blocks: u64) -> String {
        let blocks = blocks.min(self.before.blocks);
        format!("{blocks} blocks ({} KiB)", blocks << self.before.block_size.log2() >> 10)
    }
}

/// Part of a volume that must stay free when it becomes smaller.
const SPARE: u64 = 256;

/// How often room is made for an inode that finds none, as others took it.
const TRIES: u32 = 16;

/// Clusters for blocks in as many, and for maps: they are written again before the old ones are free.
fn ample(clusters: u64) -> u64 {
    clusters.saturating_add(clusters / 16).saturating_add(64)
}

/// A volume whose end is closed: until this is dropped nothing behind it is given out.
pub struct Closed<'v> {
    volume: &'v Volume,
    shrinkage: Shrinkage,
    /// Room for what leaves: others can't take it.
    room: Account,
    is_cut: bool,
}

/// Closes the end of a volume.
///
/// # Errors
/// As [`Shrinkage::plan`]: what was true then may be so no more. The device's failure. The end is open then.
pub fn close(volume: &Volume, shrinkage: Shrinkage) -> Result<Closed<'_>> {
    let _shape = volume.change_shape();
    if volume.space.is_end_closed() {
        return Err(Error::Invalid("the volume is becoming smaller already".into()));
    }
    if shrinkage.before != volume.format.geometry {
        return Err(Error::Invalid("the volume has another size by now".into()));
    }
    let after = &shrinkage.after.geometry;
    let room = volume.syncing().with_all_stable(|| {
        // Inodes may have come since it was looked at, and files grown.
        shrinkage.inodes_must_fit(volume)?;
        let blocks = shrinkage.must_fit(volume)?;
        volume.space.close_end(after)?;
        let clusters = blocks >> after.cluster_log2;
        let promise = volume.space.promise(ample(clusters), 0);
        promise.or_else(|_| volume.space.promise(clusters, 0)).inspect_err(|_| {
            volume.space.open_end();
        })
    });
    // Bytes that wait for blocks have a claim to some of what is free.
    let room = match room {
        Err(Error::NoSpace) => {
            return refused("what is in use, and what is being written, does not fit before that end");
        }
        room => room?,
    };
    let room = Arc::new(Mutex::new(room));
    Ok(Closed { volume, shrinkage, room, is_cut: false })
}

impl Closed<'_> {
    /// The shape that it is to have.
    #[must_use]
    pub fn shrinkage(&self) -> &Shrinkage {
        &self.shrinkage
    }

    /// Blocks behind the end that are in use still, once what was freed is free.
    ///
    /// # Errors
    /// A broken descriptor.
    pub fn in_use(&self) -> Result<u64> {
        let clusters = self.volume.space.in_use_behind(&self.shrinkage.after.geometry)?;
        Ok(clusters << self.shrinkage.before.cluster_log2)
    }

    /// Inodes behind the end that are in use still, once what was freed is free.
    ///
    /// # Errors
    /// A broken descriptor.
    pub fn inodes_in_use(&self) -> Result<u64> {
        self.volume.space.inodes_behind(&self.shrinkage.after.geometry)
    }

    /// The inodes of a group that files and directories have.
    fn files_of(&self, group: u32) -> Result<Vec<InodeNumber>> {
        let volume = self.volume;
        let mut used =
            volume.seqlock_read(SPACE, || volume.space.inodes_in_use(&*volume.cache, Group(group)))?;
        let first = self.shrinkage.before.first_inode;
        used.retain(|number| {
            let is_low = number.get() < first && *number != InodeNumber::ROOT;
            !is_low && !volume.format.zone.has_file(*number)
        });
        Ok(used)
    }

    /// Some of the inodes that have to leave: those of a group.
    ///
    /// # Errors
    /// Damage; the device's failure.
    pub fn inodes_of(&self, group: u32) -> Result<Vec<InodeNumber>> {
        let volume = self.volume;
        let end = Block(self.shrinkage.end());
        let mut leaving = Vec::new();
        for number in self.files_of(group)? {
            let mut seen = VersionedInode::read(volume, number)?;
            let is_file =
                seen.node().file_type().is_some() || seen.node().flags().contains(InodeFlags::EA_INODE);
            if is_file && seen.seqlock_read(|view, node| reaches(view, node, end))? {
                leaving.push(number);
            }
        }
        Ok(leaving)
    }

    /// Moves all of an inode that lies behind the end. Others may use it meanwhile; `pace` gets the bytes of each part that
    /// is copied. Gives the blocks that moved.
    ///
    /// # Errors
    /// No space before the end; broken structures; the device's failure. What has moved stays where it is then.
    pub fn leave(&self, number: InodeNumber, pace: &dyn Fn(u64)) -> Result<u64> {
        let mut left = TRIES;
        loop {
            match leave(self.volume.inode(number), Block(self.shrinkage.end()), &self.room, pace) {
                Err(Error::NoSpace) if left > 0 => left -= 1,
                done => return done,
            }
            self.volume.sync()?;
            self.add_room()?;
        }
    }

    /// Takes room once more for all that is to leave, as far as there is some.
    fn add_room(&self) -> Result<()> {
        let clusters = self.volume.space.in_use_behind(&self.shrinkage.after.geometry)?;
        let lacking = ample(clusters).saturating_sub(lock(&self.room).count());
        let mut part = lacking;
        while part > 0 {
            if let Ok(more) = self.volume.space.promise(part, 0) {
                lock(&self.room).join(more);
                break;
            }
            part /= 2;
        }
        Ok(())
    }

    /// Makes the volume smaller, on disk and for all verbs that begin from now on, unless something behind the end is in
    /// use. Says whether it was done.
    ///
    /// # Errors
    /// The device's failure; a broken structure.
    pub fn cut(&mut self) -> Result<bool> {
        let _shape = self.volume.change_shape();
        let volume = self.volume;
        self.is_cut = volume.syncing().with_all_stable(|| self.shrinkage.make(volume))?;
        if !self.is_cut {
            return Ok(false);
        }
        write_backups(volume)?;
        Ok(true)
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.volume.session.followed.end();
        if !self.is_cut {
            let _shape = self.volume.change_shape();
            let open = || {
                self.volume.space.open_end();
                Ok(())
            };
            // A device that fails must not keep it closed.
            if self.volume.syncing().with_all_stable(open).is_err() {
                self.volume.space.open_end();
            }
        }
    }
}

impl Shrinkage {
    /// Nobody else changes anything, and all is stable.
    fn make(&self, volume: &Volume) -> Result<bool> {
        let after = &self.after.geometry;
        volume.space.close_end(after)?;
        if volume.space.in_use_behind(after)? > 0 || volume.space.inodes_behind(after)? > 0 {
            return Ok(false);
        }
        volume.syncing().mark_changed()?;
        let mut tx = volume.tx(Context::new(volume.now()));
        let structures = Structures::new(&volume.space.descriptors(), after)?.leaving();
        let Shortened { changed, freed } = volume.space.shorten(&mut tx, &self.after)?;
        let descriptors = volume.space.descriptors().reshaped(&self.after, &changed);
        let reshape = Reshape { before: &self.before, after: &self.after };
        let first = changed.first().map_or(after.groups - 1, |(group, _)| group.0);
        reshape.stage_descriptors(&mut tx, first / after.descriptors_per_block(), &descriptors)?;
        reshape.stage_kept(&mut tx)?;
        let format = reshape.format(volume, &self.raw, &descriptors)?;
        let sums = descriptors.sums()?;
        let policies = placing::policies(volume.view(), &self.raw, &volume.session.options)?;
        let space = volume.space.grown(&format, descriptors, policies)?;
        tx.admit().map_err(|flow| match flow {
            Flow::Failed(error) => error,
            Flow::Full | Flow::Missing(_) => Error::Invalid("the journal has no room".into()),
        })?;
        volume.cache.versions().during(&[SPACE], &[], || {
            tx.commit();
            space.take_over(&volume.space);
            // A verb with the smaller space must find the smaller format.
            volume.format.replace(format);
            volume.space.replace(space);
        });
        // What was in memory of them would be taken for what comes there next.
        for run in freed {
            let (start, count) =
                (self.before.cluster_start(run.start), run.count << self.before.cluster_log2);
            volume.cache.forget(BlockRun { start, count }, |_, _, _| {});
        }
        volume.cache.forget_behind(Block(after.blocks));
        volume.session.edit_superblock(|raw| {
            copy_sizes(raw, &self.raw);
            raw.set_free_blocks_count(sums.blocks);
            raw.s_free_inodes_count.set(sums.inodes);
            if let known @ 1.. = raw.s_overhead_clusters.get() {
                raw.s_overhead_clusters.set(known.saturating_sub(ondisk::units::low_u32(structures)));
            }
        });
        Ok(true)
    }
}
