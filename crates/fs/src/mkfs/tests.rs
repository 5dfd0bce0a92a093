//! Plans and volumes in memory. Comparisons with the reference tools stand in
//! `crates/cli/tests/all/mkfs.rs`.

use super::*;
use crate::device::MemoryDevice;

fn plan(size: u64, change: impl FnOnce(&mut Options)) -> Result<Plan> {
    let mut options = Options::new(FsType::Ext4);
    change(&mut options);
    Plan::new(&options, size)
}

#[test]
fn the_default_volume_opens_and_is_what_mke2fs_makes() {
    let plan = plan(4 << 30, |_| {}).unwrap();
    assert_eq!(plan.geometry().groups, 32);
    assert_eq!(plan.geometry().inodes_per_group, 8192);
    assert_eq!(plan.free_blocks(), 1_011_634);
    assert_eq!(plan.free_inodes(), 262_133);
    assert_eq!(plan.journal_blocks(), 16_384);
    let device = MemoryDevice::new(4 << 30);
    plan.write(&device).unwrap();
    let (raw, geometry) = (plan.superblock(), plan.geometry());
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).unwrap();
    let written = RawSuperblock::parse(&bytes).unwrap();
    assert_eq!(Geometry::from_superblock(&written).unwrap(), *geometry);
    assert_eq!(written.s_journal_inum, raw.s_journal_inum);
}

#[test]
fn an_exbibyte_is_planned_without_laying_it_all_out() {
    let plan = plan(1 << 60, |options| {
        options.block_size = Some(65_536);
        options.features = parse_features("bigalloc").unwrap();
        options.cluster_size = Some(512 << 20);
        options.reserved_percent = 0.0;
    })
    .unwrap();
    assert_eq!(plan.geometry().blocks, 1 << 44);
    assert!(plan.free_blocks() < 1 << 44 && plan.free_blocks() > (1 << 44) - (1 << 38));
}

#[test]
fn thirty_two_pebibytes_without_clusters_are_planned_too() {
    let plan = plan(32 << 50, |options| {
        options.block_size = Some(65_536);
        options.inode_ratio = Some(64 << 20);
    })
    .unwrap();
    assert_eq!(plan.geometry().groups, 8_389_633);
    assert!(plan.free_blocks() > (31 << 50) >> 16);
}

#[test]
fn the_same_options_give_the_same_bytes() {
    let make = || {
        let device = MemoryDevice::new(64 << 20);
        plan(64 << 20, |_| {}).unwrap().write(&device).unwrap();
        let mut bytes = vec![0; 64 << 20];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    };
    assert!(make() == make());
}

#[test]
fn a_dirty_device_is_cleared_where_it_must_be() {
    let size: u32 = 40 << 20;
    for lazy in [true, false] {
        for fs_type in [FsType::Ext3, FsType::Ext4] {
            let make = |storage, fill: u8| {
                let mut options = Options::new(fs_type);
                options.storage = storage;
                options.lazy_inode_tables = lazy;
                let device = MemoryDevice::new(size.into());
                device.write_at(0, &vec![fill; size as usize]).unwrap();
                let plan = Plan::new(&options, size.into()).unwrap();
                plan.write(&device).unwrap();
                (device, plan)
            };
            let (dirty, plan) = make(Storage::Unknown, 0xA5);
            let geometry = plan.geometry();
            let journal = plan.inodes[&8].raw().i_block;
            assert_ne!(journal, [0; 60]);
            // All of the last group's inode table is zero, unless that is left to the kernel.
            let last = geometry.groups - 1;
            let pack = plan.block_use.pack(plan.block_use.layout.pack_of(Group(last))).unwrap();
            let table = pack.tables.last().unwrap().inode_table;
            let mut bytes =
                vec![1; geometry.inode_table_blocks() as usize * geometry.block_size.bytes_usize()];
            dirty.read_at(table << geometry.block_size.log2(), &mut bytes).unwrap();
            let left = lazy && fs_type == FsType::Ext4;
            assert_eq!(bytes.iter().all(|byte| *byte == 0), !left, "{fs_type:?} lazy {lazy}");
        }
    }
}

type Change = fn(&mut Options);

#[test]
fn nonsense_is_refused_with_its_value() {
    let with = |list: &str| parse_features(list).unwrap();
    let cases: &[(u64, Change, &str, &str)] = &[
        (1 << 30, |o| o.block_size = Some(3000), "", "block size 3000"),
        (1 << 30, |o| o.inodes = Some(u64::from(u32::MAX)), "", "4294967295 inodes"),
        (1 << 30, |o| o.inodes = Some(u64::MAX), "", "18446744073709551615 inodes"),
        (1 << 30, |o| o.inode_ratio = Some(1), "", "inode ratio 1 "),
        (1 << 30, |o| o.inode_size = Some(100_000), "", "inode size 100000"),
        (1 << 30, |o| o.flex_groups = Some(3), "", "flex group size 3"),
        (1 << 30, |o| o.cluster_size = Some(65_536), "", "needs the bigalloc feature"),
        (1 << 30, |o| o.cluster_size = Some(3000), "bigalloc", "cluster size 3000"),
        (1 << 30, |o| o.reserved_percent = f64::NAN, "", "percentage NaN"),
        (1 << 30, |o| o.blocks_per_group = Some(255), "", "255 blocks per group"),
        (1 << 30, |o| o.blocks_per_group = Some(u32::MAX), "bigalloc", "4294967295 blocks per group"),
        (1 << 30, |o| o.journal.size = Some(u64::MAX), "", "journal of"),
        (1 << 30, |o| o.journal.size = Some(900 << 20), "", "too large"),
        (1 << 30, |o| o.label = vec![b'x'; 17], "", "label"),
        (1 << 30, |o| o.resize_limit = Some(Amount::Blocks(5)), "", "resize limit of 5"),
        (1 << 30, |o| o.orphan_file_size = Some(Amount::Bytes(u64::MAX)), "orphan_file", "orphan file of"),
        (1 << 30, |o| o.orphan_file_size = Some(Amount::Blocks(1 << 33)), "orphan_file", "8589934592 blocks"),
        (1 << 30, |o| o.old_revision = true, "extent", "revision 0 has no features"),
        (0, |_| {}, "", "fewer than 16 KiB"),
        (1000, |_| {}, "", "fewer than 16 KiB"),
        (40 << 10, |_| {}, "", "too few"),
        (1 << 45, |o| o.fs_type = FsType::Ext3, "", "too many for 32-bit block numbers"),
        (u64::MAX, |o| o.block_size = Some(1024), "", "over the format's limit"),
    ];
    for (size, change, features, expected) in cases {
        let seen = plan(*size, |options| {
            options.features = with(features);
            change(options);
        });
        let seen = seen.map_or_else(|error| error.to_string(), |_| "a plan".to_owned());
        assert!(seen.contains(expected) && !seen.contains('\n'), "expected `{expected}`, got `{seen}`");
    }
}

/// Twelve inodes would be rounded down to eight where they do not fill a block of the table.
#[test]
fn small_volumes_with_large_inodes_have_enough_of_them() {
    for (size, inode_size, inodes) in
        [(100 << 10, 512, None), (120 << 10, 1024, None), (1 << 20, 1024, Some(1))]
    {
        let made = plan(size, |options| {
            options.block_size = Some(1024);
            options.inode_size = Some(inode_size);
            options.inodes = inodes;
        });
        assert_eq!(made.unwrap().superblock().s_inodes_count.get(), 16, "{size} {inode_size}");
    }
}

#[test]
fn features_that_need_each_other_are_reported() {
    let cases = [
        ("bigalloc,^extent", "bigalloc needs"),
        ("meta_bg", "resize_inode and meta_bg"),
        ("^sparse_super", "resize_inode needs sparse_super"),
        ("^metadata_csum,metadata_csum_seed", "metadata_csum_seed needs"),
        ("^has_journal,orphan_file", "orphan_file needs"),
        ("compression", "can't be given"),
    ];
    for (list, expected) in cases {
        let error = plan(1 << 30, |options| options.features = parse_features(list).unwrap()).unwrap_err();
        assert!(error.to_string().contains(expected), "{list}: {error}");
    }
    assert!(parse_features("nothing").unwrap_err().contains("`nothing`"));
}
