//! A verb at work: what it reads, what it changes, and on whose terms.
//!
//! Owns: [`Tx`], the one thing that a verb hands down, and [`View`], the same for verbs that only read. The rungs
//! above are views of them: `tx.map(&mut inode)`, `tx.dir(&mut inode)`, `view.attributes(&inode)` stand with the
//! module whose view they are. Leaves to others: staging and publishing blocks (`txn`), choosing space (`space`).

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use ondisk::features::Features;
use ondisk::inode::{Inode, TimeField};
use ondisk::units::{Block, ClusterRun};

use crate::cache::{Blocks, Role};
use crate::charges::Charges;
use crate::context::Context;
use crate::error::Result;
use crate::format::Format;
use crate::session::{Filled, Session};
use crate::space::{Space, SpaceMut};
use crate::txn::Update;

/// A volume as a reader sees it: from the cache, or with the changes of an update.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) blocks: &'a dyn Blocks,
    pub(crate) format: &'a Format,
    pub(crate) space: &'a Space,
}

/// Transaction of a verb: the volume, the verb's changes, and its context. All or nothing (I8): dropped, it leaves
/// everything as it was.
pub(crate) struct Tx<'v> {
    pub(crate) format: &'v Format,
    pub(crate) space: &'v Space,
    pub(crate) session: &'v Session,
    pub(crate) context: Context,
    /// Changes of the usage of owners.
    pub(crate) charges: Charges,
    /// Attribute blocks that others may share once it is committed (I40).
    pub(crate) filled: Filled,
    update: Update<'v>,
}

impl<'v> Tx<'v> {
    /// An update of a volume, which still is as `before` shows it.
    pub(crate) fn new(before: View<'v>, session: &'v Session, update: Update<'v>) -> Self {
        let View { format, space, .. } = before;
        let (charges, filled) = (Charges::default(), Filled::default());
        Tx { format, space, session, context: update.context(), charges, filled, update }
    }

    /// The volume as this update leaves it.
    pub(crate) fn view(&self) -> View<'_> {
        View { blocks: &self.update, format: self.format, space: self.space }
    }

    /// Makes all changes visible and all claims permanent.
    pub(crate) fn commit(self) {
        debug_assert!(
            self.keeps_structures(),
            "I36: an update puts what belongs to files into the volume's own blocks"
        );
        debug_assert!(self.charges.is_settled(), "I39: an update leaves usage that no quota file has");
        let Tx { session, filled, update, .. } = self;
        session.attribute_blocks.take_in(filled, |block| update.holds_as(block, Role::Attributes));
        update.commit();
    }

    /// True if no block that the update gives to a file is the volume's own, or lies outside.
    fn keeps_structures(&self) -> bool {
        let geometry = &self.format.geometry;
        self.update.blocks_of_files().all(|block| {
            let cluster = ClusterRun { start: geometry.cluster_of(block), count: 1 };
            geometry.contains(block, 1) && !self.format.zone.touches(geometry, cluster)
        })
    }

    /// Sets times of an inode to now. A loader states all times itself.
    pub(crate) fn touch(&self, inode: &mut Inode, fields: &[TimeField]) {
        if !self.session.is_loading() {
            fields.iter().for_each(|field| inode.set_time(*field, self.context.now));
        }
    }

    /// Has the superblock name a feature that a volume gets with the first use of it.
    pub(crate) fn name_feature(&mut self, add: impl Fn(&mut Features) + Send + 'v) {
        let session = self.session;
        self.on_commit(move || {
            session.edit_superblock(|raw| {
                let mut features = raw.features();
                add(&mut features);
                raw.set_features(features);
            });
        });
    }

    /// Space to be taken and given up.
    ///
    /// # Errors
    /// Not open for writing.
    pub(crate) fn space_mut(&mut self) -> Result<SpaceMut<'_, 'v>> {
        self.space.with(&mut self.update)
    }

    /// Takes one block for metadata near a goal; returns it and the blocks to charge to the inode it serves.
    ///
    /// # Errors
    /// As [`SpaceMut::allocate_metadata`].
    pub(crate) fn allocate_metadata(&mut self, goal: Block) -> Result<(Block, u64)> {
        self.space_mut()?.allocate_metadata(goal)
    }

    /// Frees a block of metadata; returns the blocks to take off its inode's charge.
    ///
    /// # Errors
    /// As [`SpaceMut::free_metadata`].
    pub(crate) fn free_metadata(&mut self, block: Block) -> Result<u64> {
        self.space_mut()?.free_metadata(block)
    }

    /// Frees clusters.
    ///
    /// # Errors
    /// As [`SpaceMut::free_clusters`].
    pub(crate) fn free_clusters(&mut self, run: ClusterRun) -> Result<()> {
        self.space_mut()?.free_clusters(run)
    }
}

impl Blocks for Tx<'_> {
    fn read(&self, block: Block, role: Role) -> Result<Arc<[u8]>> {
        self.update.read(block, role)
    }

    fn read_data(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.update.read_data(offset, buffer)
    }
}

impl<'v> Deref for Tx<'v> {
    type Target = Update<'v>;

    fn deref(&self) -> &Update<'v> {
        &self.update
    }
}

impl DerefMut for Tx<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.update
    }
}
