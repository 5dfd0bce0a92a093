//! Writing a plan: tables pack by pack, descriptors streamed to all their copies, superblocks last.

use ondisk::features::Compat;
use ondisk::group::{GroupFlags, RawGroupDescriptor};
use ondisk::orphan_file;
use ondisk::seal::Sealer;
use ondisk::superblock::SUPERBLOCK_OFFSET;
use ondisk::units::{Block, Group, low_u32, saturated};
use zerocopy::IntoBytes;

use super::files::Write;
use super::options::Storage;
use super::tables::{Pack, Tables, superblock_groups};
use super::{Plan, resize};
use crate::bytes;
use crate::device::Device;
use crate::{Error, Result};

/// Bytes gathered into one write of descriptors or reserved blocks.
const GATHER: usize = 1 << 20;
/// Bytes at the end that are cleared on storage of unknown contents: other superblocks may be
/// there (RAID keeps its own in the last 64 KiB).
const TAIL: u64 = 64 * 1024;

pub(super) struct Writer<'a> {
    plan: &'a Plan,
    device: &'a dyn Device,
    sealer: Sealer,
    /// Groups with a superblock, the primary first.
    holders: Vec<u32>,
    written: u64,
    descriptors: Vec<u8>,
    /// Index of the first descriptor block in `descriptors`.
    descriptors_from: u32,
}

impl<'a> Writer<'a> {
    pub(super) fn new(plan: &'a Plan, device: &'a dyn Device) -> Result<Self> {
        if device.size() < plan.size_bytes() {
            let (have, need) = (device.size(), plan.size_bytes());
            return Err(Error::Invalid(format!("the device has {have} bytes, the volume needs {need}")));
        }
        Ok(Writer {
            plan,
            device,
            sealer: Sealer::from_superblock(&plan.raw),
            holders: superblock_groups(&plan.geometry),
            written: 0,
            descriptors: Vec::new(),
            descriptors_from: 0,
        })
    }

    pub(super) fn run(mut self) -> Result<()> {
        if self.plan.storage == Storage::Unknown {
            self.clear_edges()?;
        }
        for pack in 0..self.plan.block_use.layout.packs() {
            self.pack(pack)?;
        }
        self.flush_descriptors()?;
        if self.plan.raw.features().compat.contains(Compat::RESIZE_INODE) {
            self.reserved_descriptors()?;
        }
        for write in &self.plan.writes {
            self.special(write)?;
        }
        self.superblocks()?;
        self.device.flush().map_err(|error| Error::io("flushing the new volume", error))
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.written += bytes.len() as u64;
        self.device
            .write_at(offset, bytes)
            .map_err(|error| Error::io(format!("writing at byte {offset}"), error))
    }

    fn put_block(&mut self, block: u64, bytes: &[u8]) -> Result<()> {
        self.put(self.plan.geometry.byte_offset(Block(block)), bytes)
    }

    fn zero_blocks(&mut self, block: u64, count: u64) -> Result<()> {
        let log2 = self.plan.geometry.block_size.log2();
        self.zero(block << log2, count << log2)
    }

    fn zero(&mut self, offset: u64, len: u64) -> Result<()> {
        self.device
            .write_zeros(offset, len)
            .map_err(|error| Error::io(format!("clearing {len} bytes at byte {offset}"), error))
    }

    /// Clears what would make other tools see an older file system.
    fn clear_edges(&mut self) -> Result<()> {
        let size = self.plan.size_bytes();
        self.zero(0, (SUPERBLOCK_OFFSET + 1024).max(u64::from(self.plan.geometry.block_size.bytes())))?;
        let tail = (size & !(TAIL - 1)).saturating_sub(TAIL);
        if tail > 0 { self.zero(tail, size - tail) } else { Ok(()) }
    }

    fn pack(&mut self, number: u32) -> Result<()> {
        let plan = self.plan;
        let pack = plan.block_use.pack(number)?;
        for (group, tables) in plan.block_use.layout.groups_of(number).zip(&pack.tables) {
            self.group(Group(group), tables, &pack)?;
        }
        Ok(())
    }

    /// Writes a group's bitmaps and table, as far as they are not left uninitialised, and queues its
    /// descriptor.
    fn group(&mut self, group: Group, tables: &Tables, pack: &Pack) -> Result<()> {
        let mut raw = RawGroupDescriptor::zeroed();
        raw.set_block_bitmap(Block(tables.block_bitmap));
        raw.set_inode_bitmap(Block(tables.inode_bitmap));
        raw.set_inode_table(Block(tables.inode_table));
        let mut flags = GroupFlags::empty();
        if self.is_table_cleared() {
            flags |= GroupFlags::INODE_ZEROED;
        }
        self.blocks_of(group, tables, pack, &mut raw, &mut flags)?;
        self.inodes_of(group, tables, &mut raw, &mut flags)?;
        raw.set_flags(flags);
        let size = usize::from(self.plan.geometry.descriptor_size);
        let rest = vec![0; size.saturating_sub(size_of::<RawGroupDescriptor>())];
        self.sealer.seal_descriptor(group, &mut raw, &rest);
        let at = self.descriptors.len();
        self.descriptors.resize(at + size, 0);
        raw.store(self.descriptors.split_at_mut(at).1);
        let whole = (group.0 + 1).is_multiple_of(self.plan.geometry.descriptors_per_block());
        let enough = self.descriptors.len() >= GATHER || self.plan.geometry.first_meta_bg.is_some();
        if whole && enough { self.flush_descriptors() } else { Ok(()) }
    }

    /// True if every inode table reads as zeros when this is done.
    fn is_table_cleared(&self) -> bool {
        self.plan.storage == Storage::Zeroed || !self.leaves_tables()
    }

    /// True if clearing unused tables is left to the kernel.
    fn leaves_tables(&self) -> bool {
        self.plan.lazy_inode_tables && self.plan.has_group_flags()
    }

    fn blocks_of(
        &mut self,
        group: Group,
        tables: &Tables,
        pack: &Pack,
        raw: &mut RawGroupDescriptor,
        flags: &mut GroupFlags,
    ) -> Result<()> {
        let geometry = &self.plan.geometry;
        let span = self.plan.block_use.layout.span(&(group.0..group.0 + 1));
        let used = pack.used.count_within(span.start, span.end);
        let free = (span.end - span.start - used) >> geometry.cluster_log2;
        raw.set_free_clusters(low_u32(free));
        let last = group.0 + 1 == geometry.groups;
        if self.plan.has_group_flags() && !last && used == self.own_blocks(group, tables) {
            flags.insert(GroupFlags::BLOCK_UNINIT);
            return Ok(());
        }
        let mut bitmap = Bitmap::new(geometry.block_size.bytes_usize(), geometry.group_clusters(group));
        for (start, end) in pack.used.within(span.start, span.end) {
            let index = |block: u64| low_u32((block - span.start) >> geometry.cluster_log2);
            bitmap.set(index(start), index(end));
        }
        if let Some(checksum) = self.sealer.bitmap_checksum(&bitmap.0, geometry.clusters_per_group()) {
            raw.set_block_bitmap_checksum(checksum);
        }
        self.put_block(tables.block_bitmap, &bitmap.0)
    }

    /// Blocks of a group that a reader assumes used where the bitmap is uninitialised: its header,
    /// and those of its own tables that lie in it; whole clusters.
    fn own_blocks(&self, group: Group, tables: &Tables) -> u64 {
        let geometry = &self.plan.geometry;
        let mut own = super::runs::Runs::default();
        let header = geometry.group_header(group);
        own.insert(header.start.0, header.start.0 + u64::from(header.count));
        let span = self.plan.block_use.layout.span(&(group.0..group.0 + 1));
        let table_len = u64::from(geometry.inode_table_blocks());
        for (start, len) in
            [(tables.block_bitmap, 1), (tables.inode_bitmap, 1), (tables.inode_table, table_len)]
        {
            if span.contains(&start) {
                own.insert(start, start + len);
            }
        }
        own.rounded_out(geometry.cluster_log2).count_within(span.start, span.end)
    }

    fn inodes_of(
        &mut self,
        group: Group,
        tables: &Tables,
        raw: &mut RawGroupDescriptor,
        flags: &mut GroupFlags,
    ) -> Result<()> {
        let plan = self.plan;
        let per_group = plan.geometry.inodes_per_group;
        let all = low_u32(plan.inodes.len() as u64);
        // Used inodes are those from 1 on without gaps.
        let used = all.saturating_sub(group.0.saturating_mul(per_group)).min(per_group);
        raw.set_free_inodes(per_group - used);
        if self.plan.has_group_flags() {
            raw.set_unused_inodes(per_group - used);
            if used == 0 {
                flags.insert(GroupFlags::INODE_UNINIT);
            }
        }
        if plan.storage == Storage::Unknown && !self.leaves_tables() {
            self.zero_blocks(tables.inode_table, u64::from(plan.geometry.inode_table_blocks()))?;
        }
        if flags.contains(GroupFlags::INODE_UNINIT) {
            return Ok(());
        }
        let mut bitmap = Bitmap::new(plan.geometry.block_size.bytes_usize(), per_group);
        bitmap.set(0, used);
        if let Some(checksum) = self.sealer.bitmap_checksum(&bitmap.0, per_group) {
            raw.set_inode_bitmap_checksum(checksum);
        }
        self.put_block(tables.inode_bitmap, &bitmap.0)?;
        self.table(group, tables.inode_table, used, raw)
    }

    /// Writes the used part of a group's inode table.
    fn table(&mut self, group: Group, table: u64, used: u32, raw: &mut RawGroupDescriptor) -> Result<()> {
        if used == 0 {
            return Ok(());
        }
        let geometry = &self.plan.geometry;
        let first = group.0 * geometry.inodes_per_group + 1;
        let mut bytes = Vec::new();
        let mut directories = 0;
        for inode in self.plan.inodes.range(first..first + used).map(|(_, inode)| inode) {
            bytes.extend_from_slice(inode.bytes());
            directories += u32::from(inode.file_type() == Some(ondisk::inode::FileType::Directory));
        }
        raw.set_used_directories(directories);
        bytes.resize(bytes.len().next_multiple_of(geometry.block_size.bytes_usize()), 0);
        self.put_block(table, &bytes)
    }

    /// Writes the queued descriptor blocks to all their places.
    fn flush_descriptors(&mut self) -> Result<()> {
        let geometry = &self.plan.geometry;
        let mut bytes = std::mem::take(&mut self.descriptors);
        if bytes.is_empty() {
            return Ok(());
        }
        let len = geometry.block_size.bytes_usize();
        bytes.resize(bytes.len().next_multiple_of(len), 0);
        let index = self.descriptors_from;
        self.descriptors_from += low_u32((bytes.len() / len) as u64);
        if geometry.first_meta_bg.is_some() {
            let first = index * geometry.descriptors_per_block();
            for member in
                [first, first.saturating_add(1), first.saturating_add(geometry.descriptors_per_block() - 1)]
            {
                let place =
                    geometry.meta_descriptor_held_by(Group(member)).filter(|_| member < geometry.groups);
                if let Some((_, block)) = place {
                    self.put_block(block.0, &bytes)?;
                }
            }
        } else {
            for holder in self.holders.clone() {
                let block = geometry.descriptor_block_copy(index, Group(holder));
                self.put_block(block.0, &bytes)?;
            }
        }
        bytes.clear();
        self.descriptors = bytes;
        Ok(())
    }

    /// Writes the reserved blocks of the primary group as indirect blocks of the resize inode.
    fn reserved_descriptors(&mut self) -> Result<()> {
        let geometry = self.plan.geometry;
        let backups: Vec<u32> = self.holders.iter().skip(1).copied().collect();
        let len = geometry.block_size.bytes_usize();
        let blocks: Vec<Block> = resize::reserved(&geometry).collect();
        for chunk in blocks.chunks((GATHER / len).max(1)) {
            let mut bytes = vec![0; chunk.len() * len];
            for (block, to) in chunk.iter().zip(bytes.chunks_exact_mut(len)) {
                resize::copies(&geometry, &backups, *block, to);
            }
            if let Some(first) = chunk.first() {
                self.put_block(first.0, &bytes)?;
            }
        }
        Ok(())
    }

    fn special(&mut self, write: &Write) -> Result<()> {
        match write {
            Write::Bytes(block, bytes) => self.put_block(block.0, bytes),
            Write::Zeros(block, count) => self.zero_blocks(block.0, *count),
            Write::Orphans(first, count, seed) => {
                let mut bytes = vec![0; self.plan.geometry.block_size.bytes_usize()];
                for block in first.0..first.0 + count {
                    orphan_file::write(*seed, Block(block), &[], &mut bytes);
                    self.put_block(block, &bytes)?;
                }
                Ok(())
            }
        }
    }

    /// Writes the backups, then the primary. Backups are not marked as clean: a volume restored from
    /// one is to be checked.
    fn superblocks(&mut self) -> Result<()> {
        let mut raw = self.plan.raw;
        let superblocks = self.holders.len() as u64 * u64::from(self.plan.geometry.block_size.bytes());
        raw.s_kbytes_written.set((self.written + superblocks).div_ceil(1024));
        let mut primary = raw;
        raw.s_state.set(0);
        for holder in self.holders.clone().into_iter().skip(1) {
            // The field has 16 bits: later groups are all called the last that it can say.
            raw.s_block_group_nr.set(saturated::<u16>(holder));
            self.sealer.seal_superblock(&mut raw);
            let offset = self.plan.geometry.superblock_offset(Group(holder));
            let mut block = vec![0; self.plan.geometry.block_size.bytes_usize()];
            bytes::put(&mut block, 0, raw.as_bytes())?;
            self.put(offset, &block)?;
        }
        self.sealer.seal_superblock(&mut primary);
        self.device.flush().map_err(|error| Error::io("flushing before the superblock", error))?;
        self.put(SUPERBLOCK_OFFSET, primary.as_bytes())
    }
}

/// A bitmap block: bits behind `bits` are set, as the format wants.
struct Bitmap(Vec<u8>);

impl Bitmap {
    fn new(len: usize, bits: u32) -> Self {
        let mut bitmap = Bitmap(vec![0; len]);
        bitmap.set(bits, low_u32(len as u64 * 8));
        bitmap
    }

    fn set(&mut self, from: u32, to: u32) {
        let mut at = from;
        while at < to {
            let Some(byte) = self.0.get_mut(at as usize / 8) else { return };
            if at.is_multiple_of(8) && to - at >= 8 {
                *byte = 0xFF;
                at += 8;
            } else {
                *byte |= 1 << (at % 8);
                at += 1;
            }
        }
    }
}
