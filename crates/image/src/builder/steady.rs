//! The format of an image whose data begin at multiples of a chunk.
//!
//! Over many sizes of a volume, the parts that a format usually derives from the size stay equal here: where tables begin, inodes per
//! group, the place of the journal. So the inodes and directories of a layer are the same bytes at the same places in
//! images with more layers.
//!
//! Owns: those choices. What the user states is left as it is.

use platfs::mkfs::{Amount, FeatureEdit, Options as FormatOptions, Plan};
use platfs::ondisk::features::{Compat, FeatureBit, Incompat};
use platfs::ondisk::units::Group;

use super::job::Job;
use super::{ALIGNED_BLOCK, Size, size};

/// Size to which a volume can grow while mounted, by descriptors that are kept free: the same number of blocks for
/// every volume up to half of it.
const GROWTH: u64 = 512 << 30;
/// Inodes of a group, or twice as many, and so on.
const INODES: u64 = 8192;
/// Smaller volumes have as many inodes as others of their size.
const SMALL: u64 = 8 << 20;
/// Bytes that a journal of usual size takes in a group, with the superblock before it.
const JOURNAL_ROOM: u64 = 24 << 20;

impl Job<'_> {
    /// The format for `bytes` bytes.
    pub(super) fn steady_format(&self, bytes: u64) -> Result<FormatOptions, platfs::Error> {
        let mut format = self.format.clone();
        let plan = Plan::new(&format, bytes)?;
        let geometry = plan.geometry();
        let features = plan.superblock().features();
        let seed = FeatureBit::Incompat(Incompat::CSUM_SEED);
        let says_seed = format.features.iter().any(|edit| match edit {
            FeatureEdit::Set(bit) | FeatureEdit::Clear(bit) => *bit == seed,
            FeatureEdit::None => false,
        });
        if features.metadata_csum() && !says_seed {
            format.features.push(FeatureEdit::Set(seed));
        }
        if geometry.block_size.bytes() < ALIGNED_BLOCK {
            return Ok(format);
        }
        if features.compat.contains(Compat::RESIZE_INODE) && bytes <= GROWTH / 2 {
            format.resize_limit = format.resize_limit.or(Some(Amount::Bytes(GROWTH)));
        }
        let is_stated = format.inodes.is_some() || format.inode_ratio.is_some();
        if !is_stated && self.size != Size::Min && bytes >= SMALL {
            let groups = u64::from(geometry.groups);
            let wanted = size::inodes(self.catalogue);
            let wanted = (wanted + wanted / 10).div_ceil(groups);
            format.inodes = Some((wanted.next_power_of_two().max(INODES)) * groups);
        }
        if features.incompat.contains(Incompat::EXTENTS) && !format.packed_meta_blocks {
            let second = geometry.group_start(Group(1)).0;
            let room = geometry.blocks.saturating_sub(second) << geometry.block_size.log2();
            // Behind a backup of the superblock, whose chunk is each image's own anyway; else behind the tables.
            let goal = if room >= JOURNAL_ROOM { second } else { 0 };
            format.journal.location = format.journal.location.or(Some(Amount::Blocks(goal)));
        }
        Ok(format)
    }
}
