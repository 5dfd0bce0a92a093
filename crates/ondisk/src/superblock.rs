//! The superblock: the raw 1,024 bytes, and reading and writing its split fields.
//!
//! Source: the ext4 data structure documentation of Linux ("Super Block"). Field names are the
//! kernel's. Geometry is derived and checked in [`crate::geometry`].

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::corrupt::{Corrupt, Place};
use crate::features::{Compat, Features, Incompat, RoCompat};
use crate::units::{high_u32, join_u64, low_u32};

/// Byte offset of the primary superblock on every volume.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// Size of the superblock in bytes.
pub const SUPERBLOCK_LEN: usize = 1024;
/// `s_magic` of every ext2/3/4 volume.
pub const MAGIC: u16 = 0xEF53;

/// `s_state`: unmounted cleanly.
pub const STATE_VALID: u16 = 1;
/// `s_state`: the kernel found errors.
pub const STATE_ERROR: u16 = 2;
/// `s_jnl_backup_type`: the superblock keeps a copy of the map and the size of the journal's inode.
pub const JOURNAL_MAP_COPIED: u8 = 1;

/// `s_flags`: directory hashes treat characters as signed.
pub const FLAG_SIGNED_HASH: u32 = 1;
/// `s_flags`: directory hashes treat characters as unsigned.
pub const FLAG_UNSIGNED_HASH: u32 = 2;
/// `s_creator_os` of the GNU Hurd, which uses some fields of inodes in its own way.
pub const CREATOR_HURD: u32 = 1;

/// The superblock, byte for byte.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "kernel field names; the spec is the document")]
pub struct RawSuperblock {
    pub s_inodes_count: U32,
    pub s_blocks_count_lo: U32,
    pub s_r_blocks_count_lo: U32,
    pub s_free_blocks_count_lo: U32,
    pub s_free_inodes_count: U32,
    pub s_first_data_block: U32,
    pub s_log_block_size: U32,
    pub s_log_cluster_size: U32,
    pub s_blocks_per_group: U32,
    pub s_clusters_per_group: U32,
    pub s_inodes_per_group: U32,
    pub s_mtime: U32,
    pub s_wtime: U32,
    pub s_mnt_count: U16,
    pub s_max_mnt_count: U16,
    pub s_magic: U16,
    pub s_state: U16,
    pub s_errors: U16,
    pub s_minor_rev_level: U16,
    pub s_lastcheck: U32,
    pub s_checkinterval: U32,
    pub s_creator_os: U32,
    pub s_rev_level: U32,
    pub s_def_resuid: U16,
    pub s_def_resgid: U16,
    pub s_first_ino: U32,
    pub s_inode_size: U16,
    pub s_block_group_nr: U16,
    pub s_feature_compat: U32,
    pub s_feature_incompat: U32,
    pub s_feature_ro_compat: U32,
    pub s_uuid: [u8; 16],
    pub s_volume_name: [u8; 16],
    pub s_last_mounted: [u8; 64],
    pub s_algorithm_usage_bitmap: U32,
    pub s_prealloc_blocks: u8,
    pub s_prealloc_dir_blocks: u8,
    pub s_reserved_gdt_blocks: U16,
    pub s_journal_uuid: [u8; 16],
    pub s_journal_inum: U32,
    pub s_journal_dev: U32,
    pub s_last_orphan: U32,
    pub s_hash_seed: [U32; 4],
    pub s_def_hash_version: u8,
    pub s_jnl_backup_type: u8,
    pub s_desc_size: U16,
    pub s_default_mount_opts: U32,
    pub s_first_meta_bg: U32,
    pub s_mkfs_time: U32,
    pub s_jnl_blocks: [U32; 17],
    pub s_blocks_count_hi: U32,
    pub s_r_blocks_count_hi: U32,
    pub s_free_blocks_count_hi: U32,
    pub s_min_extra_isize: U16,
    pub s_want_extra_isize: U16,
    pub s_flags: U32,
    pub s_raid_stride: U16,
    pub s_mmp_update_interval: U16,
    pub s_mmp_block: U64,
    pub s_raid_stripe_width: U32,
    pub s_log_groups_per_flex: u8,
    pub s_checksum_type: u8,
    pub s_encryption_level: u8,
    pub s_reserved_pad: u8,
    pub s_kbytes_written: U64,
    pub s_snapshot_inum: U32,
    pub s_snapshot_id: U32,
    pub s_snapshot_r_blocks_count: U64,
    pub s_snapshot_list: U32,
    pub s_error_count: U32,
    pub s_first_error_time: U32,
    pub s_first_error_ino: U32,
    pub s_first_error_block: U64,
    pub s_first_error_func: [u8; 32],
    pub s_first_error_line: U32,
    pub s_last_error_time: U32,
    pub s_last_error_ino: U32,
    pub s_last_error_line: U32,
    pub s_last_error_block: U64,
    pub s_last_error_func: [u8; 32],
    pub s_mount_opts: [u8; 64],
    pub s_usr_quota_inum: U32,
    pub s_grp_quota_inum: U32,
    pub s_overhead_clusters: U32,
    pub s_backup_bgs: [U32; 2],
    pub s_encrypt_algos: [u8; 4],
    pub s_encrypt_pw_salt: [u8; 16],
    pub s_lpf_ino: U32,
    pub s_prj_quota_inum: U32,
    pub s_checksum_seed: U32,
    pub s_wtime_hi: u8,
    pub s_mtime_hi: u8,
    pub s_mkfs_time_hi: u8,
    pub s_lastcheck_hi: u8,
    pub s_first_error_time_hi: u8,
    pub s_last_error_time_hi: u8,
    pub s_first_error_errcode: u8,
    pub s_last_error_errcode: u8,
    pub s_encoding: U16,
    pub s_encoding_flags: U16,
    pub s_orphan_file_inum: U32,
    pub s_def_resuid_hi: U16,
    pub s_def_resgid_hi: U16,
    pub s_reserved: [U32; 93],
    pub s_checksum: U32,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<RawSuperblock>() == SUPERBLOCK_LEN);
    assert!(offset_of!(RawSuperblock, s_magic) == 0x38);
    assert!(offset_of!(RawSuperblock, s_uuid) == 0x68);
    assert!(offset_of!(RawSuperblock, s_journal_uuid) == 0xD0);
    assert!(offset_of!(RawSuperblock, s_desc_size) == 0xFE);
    assert!(offset_of!(RawSuperblock, s_blocks_count_hi) == 0x150);
    assert!(offset_of!(RawSuperblock, s_mmp_block) == 0x168);
    assert!(offset_of!(RawSuperblock, s_log_groups_per_flex) == 0x174);
    assert!(offset_of!(RawSuperblock, s_error_count) == 0x194);
    assert!(offset_of!(RawSuperblock, s_mount_opts) == 0x200);
    assert!(offset_of!(RawSuperblock, s_backup_bgs) == 0x24C);
    assert!(offset_of!(RawSuperblock, s_checksum_seed) == 0x270);
    assert!(offset_of!(RawSuperblock, s_orphan_file_inum) == 0x280);
    assert!(offset_of!(RawSuperblock, s_checksum) == 0x3FC);
};

impl RawSuperblock {
    /// All zeros: where a new volume begins.
    #[must_use]
    pub fn zeroed() -> Self {
        <Self as zerocopy::FromZeros>::new_zeroed()
    }

    /// Reads 1,024 bytes and checks that they can be a superblock at all: the magic, and a
    /// revision whose fields this code knows.
    ///
    /// # Errors
    /// Too few bytes, a wrong magic, or a revision over 1.
    pub fn parse(bytes: &[u8]) -> Result<Self, Corrupt> {
        // spec: sb
        let Ok((raw, _)) = RawSuperblock::read_from_prefix(bytes) else {
            return Err(Corrupt::new(Place::Superblock, "the volume ends before it"));
        };
        if raw.s_magic.get() != MAGIC {
            let found = raw.s_magic.get();
            return Err(Corrupt::new(
                Place::Superblock,
                format!("magic is {found:#06x}, not {MAGIC:#06x}: not an ext2, ext3 or ext4 volume"),
            ));
        }
        if raw.s_rev_level.get() > 1 {
            let revision = raw.s_rev_level.get();
            return Err(Corrupt::new(Place::Superblock, format!("revision {revision} is unknown")));
        }
        Ok(raw)
    }

    /// The feature words. A volume of revision 0 should have none; where it has, they count, as in Linux.
    #[must_use]
    pub fn features(&self) -> Features {
        Features {
            compat: Compat::from_bits_retain(self.s_feature_compat.get()),
            incompat: Incompat::from_bits_retain(self.s_feature_incompat.get()),
            ro_compat: RoCompat::from_bits_retain(self.s_feature_ro_compat.get()),
        }
    }

    /// Makes a volume of revision 0, which has fixed sizes and no features, one of revision 1 that states the same sizes.
    pub fn begin_revision_1(&mut self) {
        let (first, size) = (self.first_inode(), self.inode_size());
        self.s_rev_level.set(1);
        self.s_first_ino.set(first);
        self.s_inode_size.set(size);
    }

    /// Stores the feature words. A volume of revision 0 is one of revision 1 with its first feature.
    pub fn set_features(&mut self, features: Features) {
        if self.s_rev_level.get() == 0 && features != Features::default() {
            self.begin_revision_1();
        }
        self.s_feature_compat.set(features.compat.bits());
        self.s_feature_incompat.set(features.incompat.bits());
        self.s_feature_ro_compat.set(features.ro_compat.bits());
    }

    fn is_64bit(&self) -> bool {
        self.features().incompat.contains(Incompat::BIT64)
    }

    /// Blocks of the volume.
    #[must_use]
    pub fn blocks_count(&self) -> u64 {
        let high = if self.is_64bit() { self.s_blocks_count_hi.get() } else { 0 };
        join_u64(high, self.s_blocks_count_lo.get())
    }

    /// Stores the number of blocks.
    pub fn set_blocks_count(&mut self, blocks: u64) {
        self.s_blocks_count_lo.set(low_u32(blocks));
        self.s_blocks_count_hi.set(high_u32(blocks));
    }

    /// Blocks reserved for the super-user.
    #[must_use]
    pub fn reserved_blocks_count(&self) -> u64 {
        let high = if self.is_64bit() { self.s_r_blocks_count_hi.get() } else { 0 };
        join_u64(high, self.s_r_blocks_count_lo.get())
    }

    /// Stores the number of reserved blocks.
    pub fn set_reserved_blocks_count(&mut self, blocks: u64) {
        self.s_r_blocks_count_lo.set(low_u32(blocks));
        self.s_r_blocks_count_hi.set(high_u32(blocks));
    }

    /// Free blocks (a multiple of the cluster size with `bigalloc`).
    #[must_use]
    pub fn free_blocks_count(&self) -> u64 {
        let high = if self.is_64bit() { self.s_free_blocks_count_hi.get() } else { 0 };
        join_u64(high, self.s_free_blocks_count_lo.get())
    }

    /// Stores the number of free blocks.
    pub fn set_free_blocks_count(&mut self, blocks: u64) {
        self.s_free_blocks_count_lo.set(low_u32(blocks));
        self.s_free_blocks_count_hi.set(high_u32(blocks));
    }

    /// First inode that is not reserved.
    #[must_use]
    pub fn first_inode(&self) -> u32 {
        // spec: sb: revision 0 has fixed values, whatever is stored.
        if self.s_rev_level.get() == 0 { 11 } else { self.s_first_ino.get() }
    }

    /// Size of an inode record in bytes, not yet checked.
    #[must_use]
    pub fn inode_size(&self) -> u16 {
        if self.s_rev_level.get() == 0 { 128 } else { self.s_inode_size.get() }
    }

    /// The four seconds-since-1970 times with their fifth byte: written, mounted, made, checked.
    #[must_use]
    pub fn times(&self) -> SuperblockTimes {
        // spec: sb: 40 bits, the fifth byte apart.
        let join = |low: U32, high: u8| join_u64(u32::from(high), low.get());
        SuperblockTimes {
            written: join(self.s_wtime, self.s_wtime_hi),
            mounted: join(self.s_mtime, self.s_mtime_hi),
            made: join(self.s_mkfs_time, self.s_mkfs_time_hi),
            checked: join(self.s_lastcheck, self.s_lastcheck_hi),
        }
    }

    /// Stores the four times, 40 bits each.
    pub fn set_times(&mut self, times: SuperblockTimes) {
        let high = |time: u64| high_u32(time).to_le_bytes()[0];
        self.s_wtime.set(low_u32(times.written));
        self.s_wtime_hi = high(times.written);
        self.s_mtime.set(low_u32(times.mounted));
        self.s_mtime_hi = high(times.mounted);
        self.s_mkfs_time.set(low_u32(times.made));
        self.s_mkfs_time_hi = high(times.made);
        self.s_lastcheck.set(low_u32(times.checked));
        self.s_lastcheck_hi = high(times.checked);
    }

    /// The volume label without its trailing zero bytes.
    #[must_use]
    pub fn label(&self) -> &[u8] {
        trim_zeros(&self.s_volume_name)
    }

    /// Where the volume was last mounted, as the kernel noted it.
    #[must_use]
    pub fn last_mounted(&self) -> &[u8] {
        trim_zeros(&self.s_last_mounted)
    }
}

/// The text before the first zero byte of a fixed field.
fn trim_zeros(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Times in the superblock, in seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SuperblockTimes {
    /// Last write.
    pub written: u64,
    /// Last mount.
    pub mounted: u64,
    /// Creation.
    pub made: u64,
    /// Last full check.
    pub checked: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_magic_and_short_input_are_named() {
        let error = RawSuperblock::parse(&[0; 1024]).unwrap_err();
        assert!(error.to_string().contains("not an ext2, ext3 or ext4 volume"), "{error}");
        assert!(RawSuperblock::parse(&[0; 1000]).is_err());
    }

    #[test]
    fn split_fields_join_only_on_64bit_volumes() {
        let mut raw = RawSuperblock::zeroed();
        raw.s_rev_level.set(1);
        raw.set_blocks_count(0x1_0000_0002);
        assert_eq!(raw.blocks_count(), 2, "the high half is meaningless without 64bit");
        raw.set_features(Features { incompat: Incompat::BIT64, ..Features::default() });
        assert_eq!(raw.blocks_count(), 0x1_0000_0002);
    }

    #[test]
    fn the_first_feature_begins_revision_1() {
        let mut raw = RawSuperblock::zeroed();
        // What stands there in revision 0 means nothing.
        raw.s_feature_incompat.set(u32::MAX);
        raw.set_features(Features::default());
        assert_eq!(raw.s_rev_level.get(), 0);
        let wanted = Features { ro_compat: RoCompat::LARGE_FILE, ..Features::default() };
        raw.set_features(wanted);
        assert_eq!((raw.s_rev_level.get(), raw.features()), (1, wanted));
        assert_eq!((raw.s_first_ino.get(), raw.s_inode_size.get()), (11, 128));
    }

    #[test]
    fn times_keep_forty_bits() {
        let mut raw = RawSuperblock::zeroed();
        let times = SuperblockTimes { written: 0xAB_1234_5678, mounted: 1, made: 2, checked: 0x1_0000_0000 };
        raw.set_times(times);
        assert_eq!(raw.times(), times);
    }
}
