//! Superblocks, and all that follows from their numbers: geometry, features, journal superblock, descriptors.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ondisk::geometry::Geometry;
use ondisk::group::RawGroupDescriptor;
use ondisk::journal::RawJournalSuperblock;
use ondisk::mmp::RawMmp;
use ondisk::superblock::RawSuperblock;
use ondisk::units::{Block, Group, InodeNumber};

/// Fields of a volume of 64 MiB in 1 KiB blocks: offset and value.
const SOUND: &[(usize, u32)] = &[
    (0, 16_384),  // s_inodes_count
    (4, 65_536),  // s_blocks_count_lo
    (20, 1),      // s_first_data_block
    (32, 8192),   // s_blocks_per_group
    (36, 8192),   // s_clusters_per_group
    (40, 2048),   // s_inodes_per_group
    (56, 0xef53), // s_magic
    (76, 1),      // s_rev_level
    (84, 11),     // s_first_ino
    (88, 256),    // s_inode_size
    (92, 0x38),   // s_feature_compat
    (96, 0x2c2),  // s_feature_incompat
    (100, 0x6b),  // s_feature_ro_compat
    (254, 64),    // s_desc_size
    (372, 4),     // s_log_groups_per_flex
];

fuzz_target!(|bytes: &[u8]| {
    let _ = RawMmp::parse(Block(7), bytes);
    if let Ok(journal) = RawJournalSuperblock::parse(bytes) {
        let _ = (journal.feature_names(), journal.is_clean());
    }
    let _ = RawGroupDescriptor::parse(bytes).flags();
    // The input is laid over a sound superblock: few others would pass the first checks.
    let mut bytes: Vec<u8> = bytes.iter().copied().chain(std::iter::repeat(0)).take(1024).collect();
    for (offset, sound) in SOUND {
        for (byte, part) in bytes.iter_mut().skip(*offset).zip(sound.to_le_bytes()) {
            *byte ^= part;
        }
    }
    let Ok(raw) = RawSuperblock::parse(&bytes) else { return };
    let _ = (raw.times(), raw.label().len(), raw.last_mounted().len(), raw.features().unreadable());
    let Ok(geometry) = Geometry::from_superblock(&raw) else { return };
    for group in [0, 1, 2, 3, 5, 49, geometry.groups / 2, geometry.groups - 1] {
        if group >= geometry.groups {
            continue;
        }
        let group = Group(group);
        let start = geometry.group_start(group);
        assert_eq!(geometry.group_of_block(start), Some(group));
        let _ = (
            geometry.group_clusters(group),
            geometry.group_header(group),
            geometry.meta_descriptor_held_by(group),
        );
        let _ = (geometry.superblock_offset(group), geometry.byte_offset(start), geometry.cluster_of(start));
    }
    let last = geometry.descriptor_blocks() - 1;
    let _ = (geometry.descriptor_block(last), geometry.clusters(), geometry.inode_table_blocks());
    if let Some(inode) = InodeNumber::new(geometry.inodes()) {
        assert!(geometry.locate_inode(inode).is_some());
    }
});
