//! Group descriptors of 32 and 64 bytes.
//!
//! Source: the ext4 data structure documentation of Linux ("Block Group Descriptors"). Sizes over
//! 64 bytes are read and written back whole; the bytes behind 64 have no meaning yet.

use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::units::{Block, high_u16, high_u32, join_u32, join_u64, low_u16, low_u32};

bitflags! {
    /// `bg_flags`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct GroupFlags: u16 {
        /// The inode table and bitmap are not initialised.
        const INODE_UNINIT = 1;
        /// The block bitmap is not initialised.
        const BLOCK_UNINIT = 2;
        /// The inode table is zeroed.
        const INODE_ZEROED = 4;
        /// Bits without a name stay as they are.
        const _ = !0;
    }
}

/// A descriptor, byte for byte; 32-byte descriptors have zeros in the second half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "kernel field names; the spec is the document")]
pub struct RawGroupDescriptor {
    pub bg_block_bitmap_lo: U32,
    pub bg_inode_bitmap_lo: U32,
    pub bg_inode_table_lo: U32,
    pub bg_free_blocks_count_lo: U16,
    pub bg_free_inodes_count_lo: U16,
    pub bg_used_dirs_count_lo: U16,
    pub bg_flags: U16,
    pub bg_exclude_bitmap_lo: U32,
    pub bg_block_bitmap_csum_lo: U16,
    pub bg_inode_bitmap_csum_lo: U16,
    pub bg_itable_unused_lo: U16,
    pub bg_checksum: U16,
    pub bg_block_bitmap_hi: U32,
    pub bg_inode_bitmap_hi: U32,
    pub bg_inode_table_hi: U32,
    pub bg_free_blocks_count_hi: U16,
    pub bg_free_inodes_count_hi: U16,
    pub bg_used_dirs_count_hi: U16,
    pub bg_itable_unused_hi: U16,
    pub bg_exclude_bitmap_hi: U32,
    pub bg_block_bitmap_csum_hi: U16,
    pub bg_inode_bitmap_csum_hi: U16,
    pub bg_reserved: U32,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<RawGroupDescriptor>() == 64);
    assert!(offset_of!(RawGroupDescriptor, bg_flags) == 0x12);
    assert!(offset_of!(RawGroupDescriptor, bg_checksum) == 0x1E);
    assert!(offset_of!(RawGroupDescriptor, bg_block_bitmap_hi) == 0x20);
    assert!(offset_of!(RawGroupDescriptor, bg_itable_unused_hi) == 0x32);
};

impl RawGroupDescriptor {
    /// Reads a descriptor of the volume's descriptor size (32 or more bytes).
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        // spec: gd: what a short descriptor lacks reads as zero.
        let mut whole = [0; 64];
        let len = bytes.len().min(64);
        if let (Some(to), Some(from)) = (whole.get_mut(..len), bytes.get(..len)) {
            to.copy_from_slice(from);
        }
        zerocopy::transmute!(whole)
    }

    /// Writes the descriptor over the bytes it was read from, as many as there are up to 64.
    pub fn store(&self, bytes: &mut [u8]) {
        let len = bytes.len().min(64);
        if let (Some(to), Some(from)) = (bytes.get_mut(..len), self.as_bytes().get(..len)) {
            to.copy_from_slice(from);
        }
    }

    /// All zeros: where a new descriptor begins.
    #[must_use]
    pub fn zeroed() -> Self {
        <Self as zerocopy::FromZeros>::new_zeroed()
    }

    /// The flags.
    #[must_use]
    pub fn flags(&self) -> GroupFlags {
        GroupFlags::from_bits_retain(self.bg_flags.get())
    }

    /// Stores the flags.
    pub fn set_flags(&mut self, flags: GroupFlags) {
        self.bg_flags.set(flags.bits());
    }
}

/// A pair of accessors for a field stored in two halves. The high half is zero in descriptors of
/// 32 bytes, so that reading needs no size; storing a value that needs it there is a caller's bug.
macro_rules! split {
    ($(#[$doc:meta])* $get:ident, $set:ident: Block, $lo:ident, $hi:ident) => {
        $(#[$doc])*
        #[must_use]
        pub fn $get(&self) -> Block {
            Block(join_u64(self.$hi.get(), self.$lo.get()))
        }

        #[doc = concat!("Stores what [`Self::", stringify!($get), "`] reads.")]
        pub fn $set(&mut self, block: Block) {
            self.$lo.set(low_u32(block.0));
            self.$hi.set(high_u32(block.0));
        }
    };
    ($(#[$doc:meta])* $get:ident, $set:ident: u32, $lo:ident, $hi:ident) => {
        $(#[$doc])*
        #[must_use]
        pub fn $get(&self) -> u32 {
            join_u32(self.$hi.get(), self.$lo.get())
        }

        #[doc = concat!("Stores what [`Self::", stringify!($get), "`] reads.")]
        pub fn $set(&mut self, value: u32) {
            self.$lo.set(low_u16(value));
            self.$hi.set(high_u16(value));
        }
    };
}

impl RawGroupDescriptor {
    split!(
        /// Where the block bitmap lies.
        block_bitmap, set_block_bitmap: Block, bg_block_bitmap_lo, bg_block_bitmap_hi
    );
    split!(
        /// Where the inode bitmap lies.
        inode_bitmap, set_inode_bitmap: Block, bg_inode_bitmap_lo, bg_inode_bitmap_hi
    );
    split!(
        /// Where the inode table begins.
        inode_table, set_inode_table: Block, bg_inode_table_lo, bg_inode_table_hi
    );
    split!(
        /// Free clusters (blocks without `bigalloc`) of the group.
        free_clusters, set_free_clusters: u32, bg_free_blocks_count_lo, bg_free_blocks_count_hi
    );
    split!(
        /// Free inodes of the group.
        free_inodes, set_free_inodes: u32, bg_free_inodes_count_lo, bg_free_inodes_count_hi
    );
    split!(
        /// Directories of the group.
        used_directories, set_used_directories: u32, bg_used_dirs_count_lo, bg_used_dirs_count_hi
    );
    split!(
        /// Inodes at the end of the table that were never used.
        unused_inodes, set_unused_inodes: u32, bg_itable_unused_lo, bg_itable_unused_hi
    );
    split!(
        /// Checksum of the block bitmap; only the low half exists in 32-byte descriptors.
        block_bitmap_checksum, set_block_bitmap_checksum: u32, bg_block_bitmap_csum_lo, bg_block_bitmap_csum_hi
    );
    split!(
        /// Checksum of the inode bitmap; only the low half exists in 32-byte descriptors.
        inode_bitmap_checksum, set_inode_bitmap_checksum: u32, bg_inode_bitmap_csum_lo, bg_inode_bitmap_csum_hi
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_descriptors_read_zero_high_halves_and_store_only_their_bytes() {
        let mut bytes = [0xFF; 40];
        let descriptor = RawGroupDescriptor::parse(&bytes[..32]);
        assert_eq!(descriptor.block_bitmap(), Block(0xFFFF_FFFF));
        let mut descriptor = RawGroupDescriptor::zeroed();
        descriptor.set_free_inodes(7);
        descriptor.store(&mut bytes[..32]);
        assert_eq!(bytes[14], 7);
        assert_eq!(bytes[32..], [0xFF; 8]);
    }

    #[test]
    fn long_descriptors_keep_wide_values() {
        let mut descriptor = RawGroupDescriptor::zeroed();
        descriptor.set_inode_table(Block(0x1234_5678_9ABC));
        descriptor.set_unused_inodes(70_000);
        let mut bytes = [0; 64];
        descriptor.store(&mut bytes);
        let read = RawGroupDescriptor::parse(&bytes);
        assert_eq!(read.inode_table(), Block(0x1234_5678_9ABC));
        assert_eq!(read.unused_inodes(), 70_000);
    }
}
