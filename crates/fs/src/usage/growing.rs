//! A record more in a quota file: blocks for the tree, and the lists of those that are unused or have room.

use ondisk::quota::parts::{self, Header};
use ondisk::quota::{QUOTA_BLOCK, QuotaKind};
use ondisk::units::{FileBlock, InodeNumber};

use super::{Part, QuotaFile};
use crate::cache::Role;
use crate::charges::Whose;
use crate::error::{Error, Result};
use crate::tx::Tx;

impl Tx<'_> {
    /// Makes room for the record of an id that has none.
    pub(super) fn add_record(&mut self, whose: Whose, file: InodeNumber) -> Result<Part> {
        let mut growing = Growing::open(self, whose.0, file)?;
        let (nodes, leaf) = growing.read()?.path(&growing.header, whose.1)?;
        if leaf.is_some() {
            return Err(growing.read()?.broken("an id comes twice"));
        }
        let leaf = growing.open_leaf()?;
        let mut below = leaf;
        let known = u32::try_from(nodes.len()).unwrap_or(parts::DEPTH);
        for level in (known..parts::DEPTH).rev() {
            let node = growing.take_block()?;
            parts::set_child(growing.edit(node)?, parts::slot(whose.1, level), below);
            below = node;
        }
        let last = nodes.last().copied().unwrap_or(parts::ROOT_BLOCK);
        parts::set_child(growing.edit(last)?, parts::slot(whose.1, known - 1), below);
        let at = growing.take_slot(leaf)?;
        growing.finish()?;
        let (block, inside) = QuotaFile::open(self.view(), whose.0, file)?.part(leaf)?;
        Ok((block, inside + at))
    }
}

/// A quota file that gets a record more.
struct Growing<'t, 'v> {
    tx: &'t mut Tx<'v>,
    kind: QuotaKind,
    file: InodeNumber,
    header: Header,
}

impl<'t, 'v> Growing<'t, 'v> {
    fn open(tx: &'t mut Tx<'v>, kind: QuotaKind, file: InodeNumber) -> Result<Self> {
        let header = QuotaFile::open(tx.view(), kind, file)?.header()?;
        Ok(Growing { tx, kind, file, header })
    }

    fn read(&self) -> Result<QuotaFile<'_>> {
        QuotaFile::open(self.tx.view(), self.kind, self.file)
    }

    fn edit(&mut self, at: u32) -> Result<&mut [u8]> {
        let place = self.read()?.part(at)?;
        self.tx.quota_part(place)
    }

    /// Takes a block for the tree, filled with zeros: an unused one, or one behind the last.
    fn take_block(&mut self) -> Result<u32> {
        let at = self.header.free_block;
        if at != 0 {
            let (next, _) = parts::links(&self.read()?.block(at)?);
            if next >= self.header.blocks {
                return Err(self.read()?.broken(format!("unused block {at} leads to block {next}")));
            }
            self.header.free_block = next;
        } else {
            self.append()?;
        }
        let at = if at != 0 { at } else { self.header.blocks - 1 };
        self.edit(at)?.fill(0);
        Ok(at)
    }

    /// Makes the file longer by a block.
    fn append(&mut self) -> Result<()> {
        let at = self.header.blocks;
        let size = self.tx.format.geometry.block_size;
        let end = (u64::from(at) + 1) * QUOTA_BLOCK as u64;
        let mut inode = self.tx.inode(self.file)?;
        let has = self.tx.format.blocks_for(inode.size());
        if end > has << size.log2() {
            let logical = u32::try_from(has).map_err(|_| Error::NoSpace)?;
            if !self.tx.order().changes_in_place() {
                // Blocks of its map move.
                self.tx.format.zone.forget_blocks_of(self.file);
            }
            let block = self.tx.map(&mut inode).append_block(FileBlock(logical))?;
            self.tx.create(block, Role::Plain);
        }
        if end > inode.size() {
            inode.set_size(end);
            self.tx.store(&mut inode)?;
        }
        self.header.blocks = at + 1;
        Ok(())
    }

    /// A leaf with room.
    fn open_leaf(&mut self) -> Result<u32> {
        if self.header.free_leaf != 0 {
            return Ok(self.header.free_leaf);
        }
        let leaf = self.take_block()?;
        self.header.free_leaf = leaf;
        Ok(leaf)
    }

    /// A place in a leaf, which leaves the list of those with room if it was the last.
    fn take_slot(&mut self, leaf: u32) -> Result<usize> {
        let bytes = self.read()?.block(leaf)?;
        let used = parts::used(&bytes);
        // What a leaf says of itself may be anything.
        let Some(at) = parts::room(&bytes).filter(|_| !parts::is_full(used)) else {
            return Err(self
                .read()?
                .broken(format!("block {leaf} has no room, and is listed as one with room")));
        };
        let used = used + 1;
        parts::set_used(self.edit(leaf)?, used);
        if parts::is_full(used) {
            let (next, before) = parts::links(&bytes);
            if next >= self.header.blocks || before >= self.header.blocks {
                return Err(self.read()?.broken(format!("block {leaf} is on a list that leads outside")));
            }
            if next != 0 {
                parts::set_links_before(self.edit(next)?, before);
            }
            if before != 0 {
                parts::set_links_next(self.edit(before)?, next);
            } else {
                self.header.free_leaf = next;
            }
            parts::set_links(self.edit(leaf)?, 0, 0);
        }
        Ok(at)
    }

    fn finish(mut self) -> Result<()> {
        let header = self.header;
        header.store(self.edit(0)?);
        // Readers of the tree look again.
        self.tx.note_changed(self.file);
        Ok(())
    }
}
