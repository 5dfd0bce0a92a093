//! Quota files as such: made, given other contents, removed, and named by the superblock.

use ondisk::features::RoCompat;
use ondisk::inode::{FileType, Inode, InodeFlags};
use ondisk::quota::QuotaKind;
use ondisk::units::{BlockRun, FileBlock, InodeNumber, low_u32};
use placement::InodeRequest;

use super::number_of;
use crate::bytes;
use crate::cache::Role;
use crate::error::{Error, Result};
use crate::map::State;
use crate::ops::Times;
use crate::ranges::FileBlocks;
use crate::tx::Tx;

impl Tx<'_> {
    /// Makes a quota file with these contents, which counts from then on. The superblock is to name it.
    pub(super) fn make_file(&mut self, kind: QuotaKind, contents: &[u8]) -> Result<InodeNumber> {
        let number = match kind {
            QuotaKind::User => InodeNumber::constant(3),
            QuotaKind::Group => InodeNumber::constant(4),
            QuotaKind::Project => {
                let request = InodeRequest {
                    parent: InodeNumber::ROOT.index(),
                    is_directory: false,
                    top_level: false,
                    name_hash: 0,
                    seeded_hash: 0,
                    sequential: true,
                };
                self.space_mut()?.allocate_inode(&request, FileType::Regular)?
            }
        };
        if self.format.physical_number(number) != number {
            let why = "inodes have other numbers on disk since the volume became smaller: unmount it first";
            return Err(Error::Unsupported(why.into()));
        }
        let mut node = Inode::blank(number, self.format.geometry.inode_size);
        node.raw_mut().i_mode.set(FileType::Regular.mode_bits() | 0o600);
        node.raw_mut().i_links_count.set(1);
        Times::all(self.context.now).store(&mut node);
        node.set_flags(InodeFlags::IMMUTABLE);
        self.map(&mut node).init();
        self.fill_file(&mut node, contents)?;
        // From inside the update, which charges nothing to anyone for a file of the volume itself.
        self.store(&mut node)?;
        drop(self.charges.take());
        let quota_files = &self.session.quota_files;
        self.on_commit(move || quota_files.set_file(kind, Some(number)));
        Ok(number)
    }

    /// Gives a quota file other contents, in other blocks.
    pub(super) fn replace_file(
        &mut self,
        kind: QuotaKind,
        number: InodeNumber,
        contents: &[u8],
    ) -> Result<()> {
        let mut node = self.inode(number)?;
        self.format.zone.forget_blocks_of(number);
        self.leave_blocks(&mut node)?;
        self.fill_file(&mut node, contents)?;
        self.store(&mut node)?;
        drop(self.charges.take());
        let quota_files = &self.session.quota_files;
        self.on_commit(move || quota_files.set_file(kind, Some(number)));
        Ok(())
    }

    /// Gives a quota file other contents in the blocks that it has; whether there are enough of them.
    pub(super) fn rewrite_file(
        &mut self,
        kind: QuotaKind,
        number: InodeNumber,
        contents: &[u8],
    ) -> Result<bool> {
        let mut node = self.inode(number)?;
        if contents.len() as u64 > node.size() {
            return Ok(false);
        }
        let len = self.format.geometry.block_size.bytes_usize();
        for (at, piece) in (0..).zip(contents.chunks(len)) {
            let block = self.map(&mut node).view().block_at(FileBlock(at))?;
            bytes::put(self.edit(block, Role::Plain)?, 0, piece)?;
        }
        let quota_files = &self.session.quota_files;
        self.on_commit(move || quota_files.set_file(kind, Some(number)));
        self.note_changed(number);
        Ok(true)
    }

    /// Frees all blocks of a quota file. They are metadata, unlike those of other regular files: what the cache or the log
    /// has of them must not be written any more.
    fn leave_blocks(&mut self, node: &mut Inode) -> Result<()> {
        let runs: Vec<_> = self.map(node).view().segments(FileBlocks::ALL).collect::<Result<_>>()?;
        for segment in runs {
            if let State::Mapped(start) | State::Unwritten(start) = segment.state {
                self.forget(BlockRun { start, count: low_u32(segment.count) });
            }
        }
        self.map(node).unmap(FileBlocks::ALL)
    }

    fn fill_file(&mut self, node: &mut Inode, contents: &[u8]) -> Result<()> {
        let len = self.format.geometry.block_size.bytes_usize();
        for (at, piece) in (0..).zip(contents.chunks(len)) {
            let block = self.map(node).append_block(FileBlock(at))?;
            bytes::put(self.create(block, Role::Plain), 0, piece)?;
        }
        node.set_size(contents.len() as u64);
        Ok(())
    }

    /// Frees a quota file, which the superblock does not name any more, or not from this update on.
    pub(super) fn drop_file(&mut self, number: InodeNumber) -> Result<()> {
        let mut node = self.inode(number)?;
        // What is free with the next commit may then be anybody's.
        self.format.zone.give_up(number);
        if node.has_map() {
            self.leave_blocks(&mut node)?;
        }
        if number.get() < self.format.geometry.first_inode {
            self.store(&mut Inode::blank(number, self.format.geometry.inode_size))?;
        } else {
            self.free_inode(&node, FileType::Regular)?;
        }
        drop(self.charges.take());
        Ok(())
    }

    /// Has the superblock name a file for a kind, or none any more.
    pub(super) fn name_file(&mut self, kind: QuotaKind, number: Option<InodeNumber>) {
        let session = self.session;
        self.on_commit(move || {
            session.edit_superblock(|raw| {
                let field = match kind {
                    QuotaKind::User => &mut raw.s_usr_quota_inum,
                    QuotaKind::Group => &mut raw.s_grp_quota_inum,
                    QuotaKind::Project => &mut raw.s_prj_quota_inum,
                };
                field.set(number.map_or(0, InodeNumber::get));
                let any = QuotaKind::ALL.into_iter().any(|kind| number_of(raw, kind) != 0);
                let mut features = raw.features();
                features.ro_compat.set(RoCompat::QUOTA, any);
                raw.set_features(features);
            });
            session.quota_files.set_file(kind, number);
        });
    }
}
