//! A verb at work: what it reads, what it changes, and on whose terms.
//!
//! Owns: [`Tx`], the one thing that a verb hands down, and [`View`], the same for verbs that only read. The rungs
//! above are views of them: `tx.map(&mut inode)`, `tx.dir(&mut inode)`, `view.attributes(&inode)` stand with the
//! module whose view they are. Leaves to others: staging and publishing blocks (`txn`), choosing space (`space`).

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use ondisk::inode::{Inode, TimeField};
use ondisk::units::{Block, ClusterRun};

use crate::cache::{Blocks, Cache, Role};
use crate::context::Context;
use crate::error::Result;
use crate::format::Format;
use crate::order::Order;
use crate::session::Session;
use crate::space::Space;
use crate::txn::Update;

/// A volume as a reader sees it: from the cache, or with the changes of an update.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) blocks: &'a dyn Blocks,
    pub(crate) format: &'a Format,
    pub(crate) space: &'a Space,
}

/// What a verb hands down: the volume, the verb's changes, and its context. All or nothing (I8): dropped, it leaves
/// everything as it was.
pub(crate) struct Tx<'v> {
    pub(crate) format: &'v Format,
    pub(crate) space: &'v Space,
    pub(crate) session: &'v Session,
    pub(crate) context: Context,
    update: Update<'v>,
}

impl<'a> View<'a> {
    pub(crate) fn new(blocks: &'a dyn Blocks, format: &'a Format, space: &'a Space) -> Self {
        View { blocks, format, space }
    }
}

impl<'v> Tx<'v> {
    pub(crate) fn new(
        cache: &'v Cache,
        order: &'v Order,
        format: &'v Format,
        space: &'v Space,
        session: &'v Session,
        context: Context,
    ) -> Self {
        Tx { format, space, session, context, update: Update::new(cache, order, context) }
    }

    /// The volume as this update leaves it.
    pub(crate) fn view(&self) -> View<'_> {
        View { blocks: &self.update, format: self.format, space: self.space }
    }

    /// Makes all changes visible and all claims permanent.
    pub(crate) fn commit(self) {
        self.update.commit();
    }

    /// Sets times of an inode to now. A loader states all times itself.
    pub(crate) fn touch(&self, inode: &mut Inode, fields: &[TimeField]) {
        if !self.session.is_loading() {
            fields.iter().for_each(|field| inode.set_time(*field, self.context.now));
        }
    }

    /// Takes one block for metadata near a goal; returns it and the blocks to charge to the inode it serves.
    ///
    /// # Errors
    /// As [`Space::allocate_metadata`].
    pub(crate) fn allocate_metadata(&mut self, goal: Block) -> Result<(Block, u64)> {
        self.space.allocate_metadata(&mut self.update, goal)
    }

    /// Frees a block of metadata; returns the blocks to take off its inode's charge.
    ///
    /// # Errors
    /// As [`Space::free_metadata`].
    pub(crate) fn free_metadata(&mut self, block: Block) -> Result<u64> {
        self.space.free_metadata(&mut self.update, block)
    }

    /// Frees clusters.
    ///
    /// # Errors
    /// As [`Space::free_clusters`].
    pub(crate) fn free_clusters(&mut self, run: ClusterRun) -> Result<()> {
        self.space.free_clusters(&mut self.update, run)
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
