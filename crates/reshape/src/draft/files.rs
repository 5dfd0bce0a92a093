//! Inodes in their tables, and where the contents of files lie.

use ondisk::inode::Inode;
use ondisk::units::{Block, Group, InodeNumber};
use platfs_device::Device;
use platfs_device::map::{Failure, Map, Run, walk};

use super::Draft;
use crate::error::refused;
use crate::{Error, Result};

impl Draft {
    /// Byte offset of an inode's record.
    ///
    /// # Errors
    /// A number behind the last inode, or a table outside the volume.
    pub fn inode_offset(&self, number: InodeNumber) -> Result<u64> {
        let Some((group, index)) = self.geometry.locate_inode(number) else {
            return refused(format!("the volume has no inode {number}"));
        };
        let table = self.table.get(group).inode_table();
        if !self.geometry.contains(table, u64::from(self.geometry.inode_table_blocks())) {
            return refused(format!("the inode table of group {group} lies outside the volume"));
        }
        Ok(self.geometry.byte_offset(table) + u64::from(index) * u64::from(self.geometry.inode_size))
    }

    /// An inode's record.
    ///
    /// # Errors
    /// As [`Draft::inode_offset`]; a record that is none; the device's failure.
    pub fn inode(&self, number: InodeNumber) -> Result<Inode> {
        let mut bytes = vec![0; usize::from(self.geometry.inode_size)];
        self.staged
            .read_at(self.inode_offset(number)?, &mut bytes)
            .map_err(Error::io(format!("reading inode {number}")))?;
        Ok(Inode::parse(number, &bytes)?)
    }

    /// Seals and stages an inode's record.
    ///
    /// # Errors
    /// As [`Draft::inode_offset`]; more changes than the memory may hold.
    pub fn put_inode(&self, inode: &mut Inode) -> Result<()> {
        self.sealer.seal_inode(inode);
        self.put_record(inode)
    }

    /// Stages an inode's record as it is.
    ///
    /// # Errors
    /// As [`Draft::put_inode`].
    pub fn put_record(&self, inode: &Inode) -> Result<()> {
        self.staged
            .write_at(self.inode_offset(inode.number())?, inode.bytes())
            .map_err(Error::io(format!("staging inode {}", inode.number())))
    }

    /// Makes an inode one that was never used. Its blocks stay taken.
    ///
    /// # Errors
    /// As [`Draft::put_inode`].
    pub fn clear_inode(&self, number: InodeNumber) -> Result<()> {
        let mut inode = Inode::blank(number, self.geometry.inode_size);
        inode.bytes_mut().fill(0);
        self.put_record(&inode)
    }

    /// Where all of a file lies: its contents and the blocks of its map.
    ///
    /// # Errors
    /// A map that breaks a rule of the format; the device's failure.
    pub fn map_of(&self, inode: &Inode) -> Result<Map> {
        match walk(&self.geometry, inode, u64::MAX, |block| self.block(block)) {
            Ok(map) => Ok(map),
            Err(Failure::Read(error)) => Err(error),
            Err(Failure::Broken(why)) => refused(format!("inode {}: {why}", inode.number())),
        }
    }

    /// Groups of which some inodes were ever used, with how many from the start of the table.
    pub fn tables_begun(&self) -> impl Iterator<Item = (Group, u32)> + '_ {
        let counted = self.features().descriptor_csum();
        self.table.all().filter_map(move |(group, raw)| {
            let uninit = counted && raw.flags().contains(ondisk::group::GroupFlags::INODE_UNINIT);
            let unused = if counted { raw.unused_inodes() } else { 0 };
            let begun = self.geometry.inodes_per_group.saturating_sub(unused);
            (!uninit && begun > 0).then_some((group, begun))
        })
    }
}

/// All blocks of a map as runs on the device: contents, then nodes.
pub fn runs_of(map: &Map) -> impl Iterator<Item = (Block, u64)> + '_ {
    let contents = map.runs.iter().map(|Run { start, count, .. }| (*start, *count));
    contents.chain(map.nodes.iter().map(|block| (*block, 1)))
}
