//! A journal on a device of its own: an ext4 superblock that says so, and the journal's.

use ondisk::features::{Features, Incompat, RoCompat};
use ondisk::journal::{MIN_JOURNAL_BLOCKS, RawJournalSuperblock};
use ondisk::seal::Sealer;
use ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use ondisk::units::BlockSize;
use zerocopy::IntoBytes;

use super::options::{Options, Storage};
use super::shape::invalid;
use super::{profile, rules, superblock};
use crate::device::Device;
use crate::{Error, Result};

/// The plan of a journal device (`-O journal_dev`).
#[derive(Clone, Debug)]
pub struct JournalDevice {
    raw: RawSuperblock,
    journal: RawJournalSuperblock,
    block_size: BlockSize,
    blocks: u32,
    clear: bool,
}

impl JournalDevice {
    /// True if the options ask for a journal device instead of a volume.
    ///
    /// # Errors
    /// Features that can't be given at all.
    pub fn is_meant_by(options: &Options) -> Result<bool> {
        Ok(profile::features(options)?.incompat.contains(Incompat::JOURNAL_DEV))
    }

    /// Plans a journal device of `bytes` bytes.
    ///
    /// # Errors
    /// A bad block size, or a size that makes no journal.
    pub fn new(options: &Options, bytes: u64) -> Result<Self> {
        let block_size = rules::block_size(options, &profile::Profile::from_options(options, bytes))?;
        let blocks = bytes >> block_size.log2();
        let Some(count) = u32::try_from(blocks).ok().filter(|blocks| *blocks >= MIN_JOURNAL_BLOCKS) else {
            return invalid(format!("{blocks} blocks make no journal: {MIN_JOURNAL_BLOCKS} to 2^32 - 1 do"));
        };
        let mut raw = superblock::identity(options);
        let log = block_size.log2() - 10;
        let ro_compat = profile::features(options)?.ro_compat & RoCompat::METADATA_CSUM;
        raw.set_features(Features { incompat: Incompat::JOURNAL_DEV, ro_compat, ..Features::default() });
        raw.s_checksum_type = u8::from(!ro_compat.is_empty());
        raw.s_log_block_size.set(log);
        raw.s_log_cluster_size.set(log);
        raw.set_blocks_count(blocks);
        raw.s_first_data_block.set(u32::from(log == 0));
        raw.s_blocks_per_group.set(block_size.bytes() * 8);
        raw.s_clusters_per_group.set(block_size.bytes() * 8);
        raw.s_inode_size.set(256);
        raw.s_min_extra_isize.set(ondisk::inode::EXTRA_SIZE);
        raw.s_want_extra_isize.set(ondisk::inode::EXTRA_SIZE);
        let journal = RawJournalSuperblock::empty_device(block_size, count, 0, options.uuid);
        let clear = options.storage == Storage::Unknown && !options.lazy_journal;
        Ok(JournalDevice { raw, journal, block_size, blocks: count, clear })
    }

    /// Bytes of the device.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        u64::from(self.blocks) << self.block_size.log2()
    }

    /// Writes both superblocks and flushes.
    ///
    /// # Errors
    /// Failures of the device.
    pub fn write(&self, device: &dyn Device) -> Result<()> {
        let io = |error| Error::io("writing the journal device", error);
        if self.clear {
            device.write_zeros(0, self.size_bytes()).map_err(io)?;
        }
        let at = u64::from(RawJournalSuperblock::device_block(self.block_size)) << self.block_size.log2();
        device.write_at(at, self.journal.as_bytes()).map_err(io)?;
        let mut raw = self.raw;
        Sealer::from_superblock(&raw).seal_superblock(&mut raw);
        device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes()).map_err(io)?;
        device.flush().map_err(io)
    }
}
