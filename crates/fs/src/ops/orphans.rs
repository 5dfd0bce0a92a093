//! Inodes that had lost their last name, or were being cut, when the volume was last in use.
//!
//! They stand on the list that begins in the superblock, or in the orphan file (`orphan_file`). Before the
//! volume is written for the first time those without a name are deleted and the others cut to their
//! size, as Linux does.

use std::collections::{BTreeSet, HashSet};

use ondisk::corrupt::Place;
use ondisk::features::{Compat, RoCompat};
use ondisk::inode::{FileType, Inode};
use ondisk::orphan_file;
use ondisk::units::{Block, InodeNumber};

use super::attrs::file_type;
use super::changing::change;
use crate::cache::{Blocks, Role};
use crate::error::{Error, Result};
use crate::map::State;
use crate::ranges::FileBlocks;
use crate::tx::Tx;
use crate::volume::Volume;

/// Longest orphan file that is read, in blocks; mke2fs makes at most 512.
const FILE_MAX: u64 = 1 << 16;

/// The lists of a volume that name orphans: that of the superblock, and the orphan file.
#[derive(Clone, Copy)]
pub(crate) struct OrphanLists<'v> {
    volume: &'v Volume,
}

impl<'v> OrphanLists<'v> {
    pub(super) fn new(volume: &'v Volume) -> Self {
        OrphanLists { volume }
    }

    /// Cleans up what a former use left behind. Nothing is changed if the lists are broken.
    pub(crate) fn clean(&self) -> Result<()> {
        let listed = self.listed_orphans()?;
        let file = self.orphan_file()?;
        let present = self.volume.superblock().features().ro_compat.contains(RoCompat::ORPHAN_PRESENT);
        if listed.is_empty() && !present {
            return Ok(());
        }
        self.volume.session.handles.adopt_orphans(&listed);
        let in_file = file.iter().flat_map(|(_, numbers)| numbers.iter().copied());
        let mut left: BTreeSet<InodeNumber> = in_file.clone().collect();
        let later: Vec<_> = in_file.filter(|number| !listed.contains(number)).collect();
        for number in listed.into_iter().chain(later) {
            left.remove(&number);
            self.finish_found(number, &|tx, node| {
                tx.leave_orphans(node)?;
                tx.leave_orphan_file(&file, number, &left)
            })?;
        }
        self.empty_orphan_file(&file)?;
        self.volume.sync()
    }

    /// The inodes that the lists name.
    ///
    /// # Errors
    /// A broken list; the device's failure.
    pub(crate) fn all(&self) -> Result<BTreeSet<InodeNumber>> {
        let in_file = self.orphan_file()?.into_iter().flat_map(|(_, numbers)| numbers);
        Ok(self.listed_orphans()?.into_iter().chain(in_file).collect())
    }

    /// Finishes an orphan that was found when the volume was opened.
    fn finish_found(
        &self,
        number: InodeNumber,
        leave: &dyn Fn(&mut Tx<'v>, &Inode) -> Result<()>,
    ) -> Result<()> {
        let done = change(self.volume, |tx| {
            let node = tx.inode(number)?;
            leave(tx, &node)?;
            tx.finish_orphan(node)
        });
        match done {
            Err(Error::TooLargeForLog { .. }) => self.volume.uses().finish_in_steps(number, leave),
            done => done,
        }
    }

    /// The list that begins in the superblock.
    fn listed_orphans(&self) -> Result<Vec<InodeNumber>> {
        let mut listed = Vec::new();
        let mut seen = HashSet::new();
        let mut next = self.volume.superblock().s_last_orphan.get();
        while let Some(number) = InodeNumber::new(next) {
            if !seen.insert(number) {
                return Err(Error::corrupt(Place::Inode(number), "the orphan list leads in a circle"));
            }
            next = self.orphan(number)?.raw().i_dtime.get();
            listed.push(number);
        }
        Ok(listed)
    }

    /// An inode that a list names.
    fn orphan(&self, number: InodeNumber) -> Result<Inode> {
        if number.get() < self.volume.format.geometry.first_inode {
            return Err(Error::corrupt(Place::Inode(number), "is reserved, and named as an orphan"));
        }
        let node = self.volume.view().inode(number)?;
        file_type(&node)?;
        Ok(node)
    }

    /// The blocks of the orphan file that name any, with their entries.
    fn orphan_file(&self) -> Result<Vec<(Block, Vec<InodeNumber>)>> {
        let raw = self.volume.superblock();
        let number = InodeNumber::new(raw.s_orphan_file_inum.get());
        let Some(number) =
            number.filter(|_| self.volume.format.features.compat.contains(Compat::ORPHAN_FILE))
        else {
            return Ok(Vec::new());
        };
        if !raw.features().ro_compat.contains(RoCompat::ORPHAN_PRESENT) {
            return Ok(Vec::new());
        }
        let node = self.volume.view().inode(number)?;
        let count = self.volume.format.blocks_for(node.size());
        if count > FILE_MAX || !node.has_map() {
            let problem = format!("an orphan file of {count} blocks");
            return Err(Error::corrupt(Place::Inode(number), problem));
        }
        let mut found = Vec::new();
        for segment in self.volume.view().map(&node).segments(FileBlocks::new(0, count)) {
            let segment = segment?;
            let State::Mapped(start) = segment.state else {
                return Err(Error::corrupt(Place::Inode(number), "the orphan file has holes"));
            };
            for block in (start.0..start.0 + segment.count).map(Block) {
                let bytes = self.volume.cache.read(block, Role::Plain)?;
                let entries = orphan_file::entries(self.volume.format.seed_of(&node), block, &bytes)?;
                entries.iter().try_for_each(|number| self.orphan(*number).map(|_| ()))?;
                found.extend((!entries.is_empty()).then_some((block, entries)));
            }
        }
        Ok(found)
    }

    fn empty_orphan_file(&self, blocks: &[(Block, Vec<InodeNumber>)]) -> Result<()> {
        change(self.volume, |tx| {
            if let Some(number) = InodeNumber::new(self.volume.superblock().s_orphan_file_inum.get()) {
                let seed = self.volume.format.seed_of(&tx.inode(number)?);
                for (block, _) in blocks {
                    orphan_file::write(seed, *block, &[], tx.create(*block, Role::Plain));
                }
            }
            tx.on_commit(|| {
                self.volume.session.edit_superblock(|raw| {
                    let mut features = raw.features();
                    features.ro_compat = features.ro_compat.difference(RoCompat::ORPHAN_PRESENT);
                    raw.set_features(features);
                });
            });
            Ok(())
        })
    }
}

impl<'v> Tx<'v> {
    /// Takes an inode out of the block of the orphan file that names it; the others in it are those that are
    /// left. Else a crash would leave an inode named that is in use again.
    fn leave_orphan_file(
        &mut self,
        blocks: &[(Block, Vec<InodeNumber>)],
        number: InodeNumber,
        left: &BTreeSet<InodeNumber>,
    ) -> Result<()> {
        let Some((block, entries)) = blocks.iter().find(|(_, entries)| entries.contains(&number)) else {
            return Ok(());
        };
        let Some(file) = InodeNumber::new(self.session.superblock().s_orphan_file_inum.get()) else {
            return Ok(());
        };
        let seed = self.format.seed_of(&self.inode(file)?);
        let entries: Vec<_> = entries.iter().copied().filter(|entry| left.contains(entry)).collect();
        orphan_file::write(seed, *block, &entries, self.create(*block, Role::Plain));
        Ok(())
    }

    /// Destroys an inode without names, and cuts one with names to its size.
    pub(super) fn finish_orphan(&mut self, mut node: Inode) -> Result<()> {
        if node.links() == 0 {
            return self.destroy(node);
        }
        node.raw_mut().i_dtime.set(0);
        if file_type(&node)? == FileType::Regular {
            let size = node.size();
            self.resize(&mut node, size)?;
        }
        self.store(&mut node)
    }
}
