//! A map as a whole for another: blocks that were moved, or pointers for extents.
//!
//! Owns: that the old map goes with what it led to, and the new one stands with what it takes. Excludes: taking the
//! blocks that it leads to, and bringing their contents there.

use std::fmt;

use ondisk::extent::Extent;
use ondisk::features::Incompat;
use ondisk::inode::{I_BLOCK_LEN, Inode, InodeFlags};
use ondisk::units::{Block, FileBlock};

use super::{Map, MapMut, NewRun, extents, indirect, is_tree, release};
use crate::error::{Error, Result};
use crate::format::Format;
use crate::ranges::FileBlocks;

/// The two forms of a map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapForm {
    /// An extent tree (ext4).
    Extents,
    /// Direct and indirect block pointers (ext2, ext3).
    Pointers,
}

impl fmt::Display for MapForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MapForm::Extents => "extents",
            MapForm::Pointers => "block pointers",
        })
    }
}

impl MapForm {
    /// The form of an inode's map, or the one that it would have.
    pub(crate) fn of_inode(inode: &Inode) -> Self {
        if super::is_tree(inode) { MapForm::Extents } else { MapForm::Pointers }
    }
}

/// A part of a new map, in file order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Placed {
    /// Blocks of the map that lead to a file block and to some behind it, outermost first.
    Leaders(FileBlock, Vec<Block>),
    /// Contents.
    Run(Extent),
}

impl Map<'_> {
    /// The form that it has.
    pub(crate) fn form(self) -> MapForm {
        if is_tree(self.inode) { MapForm::Extents } else { MapForm::Pointers }
    }

    /// All that is mapped, in file order, in runs that are as long as the map has them.
    ///
    /// # Errors
    /// A broken map; the device's failure.
    pub(crate) fn all(self) -> Result<Vec<Extent>> {
        let (mut all, mut blocks) = (Vec::new(), 0_u64);
        for segment in self.segments(FileBlocks::ALL) {
            let segment = segment?;
            let (start, unwritten) = match segment.state {
                super::State::Hole => continue,
                super::State::Mapped(start) => (start, false),
                super::State::Unwritten(start) => (start, true),
            };
            let count = ondisk::units::low_u32(segment.count);
            all.push(Extent { logical: segment.logical, start, count, unwritten });
            blocks = blocks.saturating_add(segment.count);
            if blocks > self.format.geometry.blocks {
                return Err(self.broken("leads to more blocks than the volume has"));
            }
        }
        Ok(all)
    }
}

/// Refuses a form that a file of a volume can't have.
///
/// # Errors
/// [`Error::Unsupported`] with the reason.
pub(crate) fn may_have(format: &Format, inode: &Inode, form: MapForm) -> Result<()> {
    let unsupported = |what: &str| Err(Error::Unsupported(what.to_owned()));
    match form {
        MapForm::Extents if !format.has_incompat(Incompat::EXTENTS) => {
            unsupported("the volume has no extents")
        }
        MapForm::Pointers if format.geometry.cluster_log2 > 0 => {
            unsupported("block pointers: the volume has clusters")
        }
        _ if inode.size() > super::size_limit(format, form) => {
            Err(Error::FileTooLarge(format!("for {form}")))
        }
        MapForm::Extents | MapForm::Pointers => Ok(()),
    }
}

impl MapMut<'_, '_> {
    /// Puts another map in the place of this one: what is new of it is in use, and charged as `charged` blocks. What of
    /// the old one is not part of it, `left`, is freed.
    ///
    /// # Errors
    /// No space for the new map; a broken map; what block pointers can't reach or say.
    pub(crate) fn replace(
        &mut self,
        placed: &[Placed],
        form: MapForm,
        charged: u64,
        left: &[Extent],
    ) -> Result<()> {
        if is_tree(self.inode) {
            extents::bulk::take(self)?;
        } else {
            indirect::remove(self, FileBlocks::ALL)?;
        }
        self.inode.raw_mut().i_block = [0; I_BLOCK_LEN];
        let mut flags = self.inode.flags();
        flags.set(InodeFlags::EXTENTS, form == MapForm::Extents);
        self.inode.set_flags(flags);
        self.charge(charged);
        match form {
            MapForm::Extents => self.build(placed)?,
            MapForm::Pointers => self.point(placed)?,
        }
        release::release(self, left)
    }

    fn build(&mut self, placed: &[Placed]) -> Result<()> {
        let mut all = Vec::with_capacity(placed.len());
        for part in placed {
            if let Placed::Run(extent) = part {
                self.view().refuse_foreign(extent.start, u64::from(extent.count))?;
                all.push(*extent);
            }
        }
        extents::bulk::build(self, &all)
    }

    fn point(&mut self, placed: &[Placed]) -> Result<()> {
        for part in placed {
            match part {
                Placed::Leaders(at, blocks) => indirect::lead(self, *at, blocks)?,
                Placed::Run(Extent { logical, start, count, unwritten }) => {
                    let run =
                        NewRun { logical: *logical, start: *start, count: *count, unwritten: *unwritten };
                    self.insert(run)?;
                }
            }
        }
        Ok(())
    }
}
