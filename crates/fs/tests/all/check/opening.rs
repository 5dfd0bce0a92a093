//! Faults of superblocks, descriptors and what the superblock leads to.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use ondisk::features::{Compat, Features, Incompat, RoCompat};
use ondisk::group::GroupFlags;
use ondisk::inode::Inode;
use ondisk::journal::{JournalIncompat, RawJournalSuperblock};
use ondisk::orphan_file;
use ondisk::superblock::RawSuperblock;
use ondisk::units::{Block, Group};
use platfs::check::{Options, check};
use platfs::device::{Device, MemoryDevice};
use platfs::{Attributes, InodeNumber, Kind, NewInode, ondisk};
use testkit::scratch::Scratch;
use testkit::sparse;
use zerocopy::IntoBytes;

use crate::check::inodes::contents;
use crate::check::plant::{Ears, Image, assert_found, checked, planted, planted_unseen, ready, repaired};

#[test]
fn superblock_checksum() {
    planted(
        "ext4",
        |image| image.superblock_unsealed(|raw| raw.s_checksum.set(raw.s_checksum.get() ^ 1)),
        &["superblock-checksum"],
    );
    // A label can't be compared with a backup: it stays.
    planted(
        "ext4_4k",
        |image| image.superblock_unsealed(|raw| raw.s_volume_name[3] = b'x'),
        &["superblock-checksum"],
    );
}

/// Fields that no volume can be read with, on volumes with backups: these know better.
#[test]
fn superblocks_that_can_not_be_used() {
    let damages: &[fn(&mut RawSuperblock)] = &[
        |raw| raw.s_log_block_size.set(9),
        |raw| raw.s_inodes_count.set(17),
        |raw| raw.s_blocks_per_group.set(3),
        |raw| raw.s_inodes_per_group.set(0),
        // No multiple of 8, and the sum fits it.
        |raw| {
            raw.s_inodes_per_group.set(raw.s_inodes_per_group.get() - 4);
            raw.s_inodes_count.set(raw.s_inodes_count.get() - 3 * 4);
        },
        |raw| raw.s_inode_size.set(200),
        |raw| raw.s_first_data_block.set(5),
        |raw| raw.s_first_ino.set(3),
        |raw| raw.s_log_cluster_size.set(4),
        |raw| raw.s_clusters_per_group.set(16),
        |raw| raw.s_desc_size.set(17),
        |raw| raw.s_blocks_count_hi.set(1 << 30),
        |raw| raw.s_checksum_type = 9,
        |raw| raw.s_log_groups_per_flex = 40,
        |raw| raw.s_feature_incompat.set(raw.s_feature_incompat.get() | 1 << 27),
    ];
    for damage in damages {
        planted("ext4", |image| image.superblock(damage), &["superblock-damaged"]);
    }
    planted("ext3", |image| image.superblock(|raw| raw.s_log_groups_per_flex = 32), &["superblock-damaged"]);
    planted("ext4", |image| image.bytes[1024 + 0x38] = 0, &["superblock-damaged"]);
    planted("ext4", |image| image.bytes[1024 + 0x4C] = 7, &["superblock-damaged"]);
    planted("ext4", |image| image.bytes[1024..2048].fill(0), &["superblock-damaged"]);
    planted("ext2", |image| image.bytes[1024..2048].fill(0xFF), &["superblock-damaged"]);
    planted("sparse_super2", |image| image.bytes[1024..2048].fill(0x55), &["superblock-damaged"]);
    planted("meta_bg", |image| image.bytes[1024..2048].fill(0), &["superblock-damaged"]);
    planted("meta_bg", |image| image.superblock(|raw| raw.s_first_meta_bg.set(500)), &["superblock-damaged"]);
}

/// A field that never changes, under a checksum that shows it.
#[test]
fn fields_that_differ_from_backups() {
    planted("ext4", |image| image.superblock_unsealed(|raw| raw.s_uuid[0] ^= 1), &["superblock-damaged"]);
    planted(
        "ext4",
        |image| image.superblock_unsealed(|raw| raw.s_log_groups_per_flex = 2),
        &["superblock-damaged"],
    );
    planted(
        "ext4",
        |image| {
            image.superblock_unsealed(|raw| {
                raw.set_features(Features {
                    incompat: raw.features().incompat - Incompat::FLEX_BG,
                    ..raw.features()
                });
            });
        },
        &["superblock-damaged"],
    );
}

/// Fields that are as legal as the right ones, under a right checksum: what they lead to is no volume.
#[test]
fn superblocks_that_lead_nowhere() {
    let damages: &[fn(&mut RawSuperblock)] = &[
        |raw| raw.s_inode_size.set(128),
        |raw| raw.s_inode_size.set(1024),
        |raw| raw.s_rev_level.set(0),
        |raw| raw.s_feature_incompat.set(raw.s_feature_incompat.get() & !Incompat::FLEX_BG.bits()),
        |raw| raw.s_feature_incompat.set(raw.s_feature_incompat.get() & !Incompat::BIT64.bits()),
        |raw| raw.s_feature_incompat.set(raw.s_feature_incompat.get() | Incompat::CASEFOLD.bits()),
        |raw| raw.s_feature_ro_compat.set(raw.s_feature_ro_compat.get() & !RoCompat::SPARSE_SUPER.bits()),
    ];
    for damage in damages {
        planted("ext4", |image| image.superblock(damage), &["superblock-damaged"]);
    }
}

/// With one group there is no backup: what follows from other fields does.
#[test]
fn fields_that_follow_from_others() {
    planted("ext4_4k", |image| image.superblock(|raw| raw.s_inodes_count.set(17)), &["superblock-damaged"]);
    planted(
        "ext4_4k",
        |image| image.superblock(|raw| raw.s_clusters_per_group.set(8)),
        &["superblock-damaged"],
    );
}

#[test]
fn sizes_in_the_superblock() {
    planted(
        "ext4",
        |image| image.superblock(|raw| raw.set_reserved_blocks_count(raw.blocks_count() / 2 + 1)),
        &["superblock-reserved-blocks"],
    );
    planted("ext2", |image| image.superblock(|raw| raw.s_desc_size.set(33)), &["superblock-descriptor-size"]);
    planted(
        "ext4",
        |image| image.superblock(|raw| raw.s_min_extra_isize.set(3)),
        &["superblock-min-extra-size"],
    );
    planted(
        "ext4",
        |image| image.superblock(|raw| raw.s_min_extra_isize.set(132)),
        &["superblock-min-extra-size"],
    );
    planted(
        "inline",
        |image| image.superblock(|raw| raw.s_want_extra_isize.set(30)),
        &["superblock-want-extra-size"],
    );
    planted(
        "meta_bg",
        |image| image.superblock(|raw| raw.s_reserved_gdt_blocks.set(5)),
        &["superblock-reserved-descriptors"],
    );
}

fn features(image: &mut Image, change: impl FnOnce(&mut Features)) {
    image.superblock(|raw| {
        let mut features = raw.features();
        change(&mut features);
        raw.set_features(features);
    });
}

#[test]
fn features_that_exclude_each_other() {
    planted(
        "ext4",
        |image| features(image, |features| features.ro_compat |= RoCompat::GDT_CSUM),
        &["feature-two-checksums"],
    );
    planted(
        "ext4_nocsum",
        |image| features(image, |features| features.incompat |= Incompat::CSUM_SEED),
        &["feature-seed-without-checksums"],
    );
    planted(
        "meta_bg",
        |image| features(image, |features| features.compat |= Compat::RESIZE_INODE),
        &["feature-resize-with-meta-bg"],
    );
}

#[test]
fn features_that_need_each_other() {
    planted(
        "ext4",
        |image| features(image, |features| features.incompat -= Incompat::EXTENTS),
        &["feature-64bit-without-extents"],
    );
}

#[test]
fn quota_inodes_that_can_not_be() {
    planted("ext4", |image| image.superblock(|raw| raw.s_usr_quota_inum.set(2)), &["quota-inode-number"]);
    planted(
        "ext4",
        |image| image.superblock(|raw| raw.s_grp_quota_inum.set(u32::MAX)),
        &["quota-inode-number"],
    );
    planted("ext4", |image| image.superblock(|raw| raw.s_prj_quota_inum.set(7)), &["quota-inode-number"]);
    // Two in one; the inode that is then without a name is emptied.
    planted(
        "quota",
        |image| image.superblock(|raw| raw.s_usr_quota_inum.set(4)),
        &["quota-inode-number", "inode-vacant"],
    );
    planted("ext2", |image| image.superblock(|raw| raw.s_orphan_file_inum.set(2)), &["orphan-file-number"]);
}

#[test]
fn files_that_are_not_hidden() {
    // e2fsck reports only a name that leads to such an inode, and empties the others.
    planted(
        "ext4",
        |image| {
            let file = image.inode_of("large").get();
            image.superblock(|raw| raw.s_usr_quota_inum.set(file));
        },
        &["quota-inode-number"],
    );
    planted(
        "ext4",
        |image| {
            let file = image.inode_of("a/small").get();
            image.superblock(|raw| raw.s_orphan_file_inum.set(file));
        },
        &["orphan-file-number"],
    );
    let free = |raw: &mut RawSuperblock| raw.s_prj_quota_inum.set(718);
    planted("ext4_nocsum", |image| image.superblock(free), &["quota-inode-number"]);
}

#[test]
fn times_to_come() {
    planted("ext4", |image| image.superblock(|raw| raw.s_mtime.set(u32::MAX - 5)), &["time-of-mount"]);
    planted("ext3", |image| image.superblock(|raw| raw.s_wtime.set(u32::MAX - 5)), &["time-of-write"]);
}

/// e2fsck with -f does not speak of these marks; without it they make it look, and it takes them away.
#[test]
fn marks_of_a_volume_not_in_order() {
    planted_unseen("ext4", |image| image.superblock(|raw| raw.s_state.set(0)), &["volume-state"]);
    planted_unseen("ext2", |image| image.superblock(|raw| raw.s_state.set(3)), &["volume-state"]);
    planted_unseen("ext4", |image| image.superblock(|raw| raw.s_error_count.set(4)), &["volume-state"]);
}

#[test]
fn mount_protection() {
    let block = |image: &Image| {
        let raw = RawSuperblock::parse(&image.bytes[1024..2048]).unwrap();
        Block(raw.s_mmp_block.get())
    };
    planted("mmp", |image| image.superblock(|raw| raw.s_mmp_block.set(1 << 40)), &["mount-protection"]);
    planted(
        "mmp",
        |image| {
            let place = block(image);
            image.block(place)[0] ^= 1;
        },
        &["mount-protection"],
    );
    planted(
        "mmp",
        |image| {
            let place = block(image);
            image.block(place)[200] ^= 1;
        },
        &["mount-protection"],
    );
}

#[test]
fn marks_of_the_journal() {
    planted(
        "ext4_nojournal",
        |image| features(image, |features| features.incompat |= Incompat::RECOVER),
        &["journal-replay-without-journal"],
    );
    planted(
        "ext4",
        |image| features(image, |features| features.compat -= Compat::HAS_JOURNAL),
        &["journal-feature"],
    );
    planted("ext4", |image| image.superblock(|raw| raw.s_journal_uuid[5] = 1), &["journal-two"]);
    let nowhere = |raw: &mut RawSuperblock| raw.s_journal_inum.set(u32::MAX);
    planted("ext3", |image| image.superblock(nowhere), &["journal-inode"]);
    planted(
        "ext4",
        |image| {
            image.superblock(|raw| {
                nowhere(raw);
                raw.s_journal_uuid[5] = 1;
            });
        },
        &["journal-two", "journal-inode"],
    );
    // A file that is none.
    planted(
        "ext3",
        |image| {
            let file = image.inode_of("large").get();
            image.superblock(|raw| raw.s_journal_inum.set(file));
        },
        &["journal-inode"],
    );
    planted("ext4_nojournal", |image| image.superblock(|raw| raw.s_journal_uuid[5] = 1), &["journal-device"]);
    // A log without transactions is replayed in no time.
    for base in ["ext4", "ext3"] {
        planted(
            base,
            |image| features(image, |features| features.incompat |= Incompat::RECOVER),
            &["journal-needs-replay"],
        );
    }
}

const JOURNAL: InodeNumber = InodeNumber::constant(8);

fn journal_block(image: &Image) -> Block {
    let volume = image.volume();
    let map = volume.map(JOURNAL).unwrap();
    let first = map.map(Result::unwrap).next().unwrap();
    match first.state {
        platfs::State::Mapped(start) | platfs::State::Unwritten(start) => start,
        _ => panic!("a journal without blocks"),
    }
}

#[test]
fn journal_inodes() {
    // The superblock's copy of the map brings them back.
    let damages: &[fn(&mut Inode)] = &[
        |inode| inode.raw_mut().i_links_count.set(0),
        |inode| inode.raw_mut().i_mode.set(0x41FF),
        |inode| inode.set_size(1000),
        |inode| inode.raw_mut().i_block.fill(0),
    ];
    for damage in damages {
        planted("ext4", |image| image.inode(JOURNAL, damage), &["journal-inode"]);
    }
    planted(
        "ext3",
        |image| image.inode(JOURNAL, |inode| inode.raw_mut().i_block.fill(0xFF)),
        &["journal-inode"],
    );
    // Without the copy the journal goes.
    planted(
        "ext4",
        |image| {
            image.superblock(|raw| raw.s_jnl_backup_type = 0);
            image.inode(JOURNAL, |inode| inode.set_size(0));
        },
        &["journal-inode"],
    );
    planted(
        "ext4",
        |image| {
            image.superblock(|raw| raw.s_journal_inum.set(1 << 30));
            image.superblock(|raw| raw.s_jnl_backup_type = 0);
        },
        &["journal-inode"],
    );
}

#[test]
fn journal_superblocks() {
    let damages: &[fn(&mut [u8])] = &[
        |block| block[0] = 0,
        |block| block[7] = 1,
        |block| block[14] = 9,
        |block| block[16] = 0xFF,
        |block| block[0x2B] = 0x18,
        |block| block[0x28] = 0x80,
        |block| block[0x2C] = 1,
        |block| block[0x43] = 3,
    ];
    for damage in damages {
        planted(
            "ext4",
            |image| {
                let place = journal_block(image);
                damage(image.block(place));
            },
            &["journal-superblock"],
        );
    }
    // Fast commits would leave too few blocks for the log.
    planted(
        "ext4",
        |image| {
            let place = journal_block(image);
            let mut raw = RawJournalSuperblock::parse(image.block(place)).unwrap();
            raw.s_feature_incompat.set(JournalIncompat::FAST_COMMIT.bits());
            raw.seal();
            image.block(place)[..1024].copy_from_slice(raw.as_bytes());
        },
        &["journal-superblock"],
    );
    planted(
        "ext3",
        |image| {
            let place = journal_block(image);
            image.block(place)[0x20..0x24].copy_from_slice(&(-5_i32).to_be_bytes());
        },
        &["journal-error"],
    );
    planted(
        "ext3",
        |image| {
            let place = journal_block(image);
            image.block(place)[0x1F] = 5;
        },
        &["journal-has-data"],
    );
}

const RESIZE: InodeNumber = InodeNumber::constant(7);

#[test]
fn resize_inode() {
    let damages: &[fn(&mut Inode)] = &[
        |inode| inode.raw_mut().i_links_count.set(0),
        |inode| inode.raw_mut().i_block[0] = 1,
        |inode| inode.raw_mut().i_block[52..56].fill(0),
        |inode| inode.raw_mut().i_block[52..56].fill(0xFF),
        |inode| inode.raw_mut().i_mode.set(0),
    ];
    for damage in damages {
        planted("ext4", |image| image.inode(RESIZE, damage), &["resize-inode"]);
    }
    let double = |image: &Image| {
        let inode = image.read_inode(RESIZE);
        Block(u64::from(u32::from_le_bytes(inode.raw().i_block[52..56].try_into().unwrap())))
    };
    planted(
        "ext3",
        |image| {
            let place = double(image);
            let blocks = image.format.geometry.descriptor_blocks() as usize;
            image.block(place)[blocks * 4] ^= 1;
        },
        &["resize-inode"],
    );
    planted(
        "ext4",
        |image| {
            let first = image.format.geometry.superblock_block(Group(0)).0 + 1;
            let kept = Block(first + u64::from(image.format.geometry.descriptor_blocks()));
            image.block(kept)[0] ^= 1;
        },
        &["resize-inode"],
    );
    planted(
        "meta_bg",
        |image| image.inode(RESIZE, |inode| inode.raw_mut().i_block[20] = 1),
        &["resize-inode-unused"],
    );
}

#[test]
fn orphans() {
    // Deleted, and first on the list.
    planted(
        "ext4_nojournal",
        |image| {
            let number = image.inode_of("nothing");
            unlink(image, "nothing", number);
            image.superblock(|raw| raw.s_last_orphan.set(number.get()));
        },
        &["orphans"],
    );
    planted_unseen("ext4", |image| image.superblock(|raw| raw.s_last_orphan.set(3)), &["orphan-list"]);
    planted_unseen("ext4", |image| image.superblock(|raw| raw.s_last_orphan.set(1 << 31)), &["orphan-list"]);
}

/// A file that was being cut when the machine stopped ends where it was to end, as behind a mount.
#[test]
fn orphans_that_are_to_be_cut() {
    for (base, path, len) in [
        ("ext4_nojournal", "large", 0),
        ("ext4_nojournal", "large", 5000),
        ("ext4", "comb", 100_000),
        ("ext2", "large", 0),
        ("ext2", "large", 12 * 1024),
        ("ext3", "large", 100_000),
        ("bigalloc", "large", 70_000),
    ] {
        let cut = |image: &mut Image| {
            let number = image.inode_of(path);
            image.inode(number, |inode| inode.set_size(len));
            image.superblock(|raw| raw.s_last_orphan.set(number.get()));
        };
        planted(base, cut, &["orphans"]);
        if ready("orphans_that_are_to_be_cut") {
            let mut image = Image::of(base);
            let before = contents(&image.bytes, path);
            cut(&mut image);
            let after = repaired(&checked(&image.bytes).1);
            assert!(contents(&after, path) == before[..len as usize], "{base}: {path} to {len}");
        }
    }
}

/// Takes the name of a file away, and its link.
fn unlink(image: &mut Image, name: &str, number: InodeNumber) {
    let volume = image.volume();
    drop(volume);
    let root = image.block_of("/", 0);
    let seed =
        image.format.sealer.inode_seed(InodeNumber::ROOT, image.read_inode(InodeNumber::ROOT).generation());
    let block = image.block(root);
    // The entry before takes the room of this one.
    let (mut at, mut before) = (0, 0);
    loop {
        let len = usize::from(u16::from_le_bytes([block[at + 4], block[at + 5]]));
        let name_len = usize::from(block[at + 6]);
        if &block[at + 8..at + 8 + name_len] == name.as_bytes() {
            let joined = (at - before + len) as u16;
            block[before + 4..before + 6].copy_from_slice(&joined.to_le_bytes());
            break;
        }
        before = at;
        at += len;
    }
    seed.seal_directory_leaf(block);
    image.inode(number, |inode| inode.raw_mut().i_links_count.set(0));
}

#[test]
fn orphan_files() {
    let file = |image: &Image| {
        let raw = RawSuperblock::parse(&image.bytes[1024..2048]).unwrap();
        InodeNumber::new(raw.s_orphan_file_inum.get()).unwrap()
    };
    let first = |image: &Image| {
        let volume = image.volume();
        let map = volume.map(file(image)).unwrap();
        let first = map.map(Result::unwrap).next().unwrap();
        match first.state {
            platfs::State::Mapped(start) => start,
            _ => panic!("an orphan file without blocks"),
        }
    };
    planted(
        "orphan_file",
        |image| {
            let place = first(image);
            image.block(place)[1020] ^= 1;
        },
        &["orphan-file"],
    );
    planted(
        "orphan_file",
        |image| {
            let place = first(image);
            image.block(place)[1016] ^= 1;
        },
        &["orphan-file"],
    );
    planted(
        "orphan_file",
        |image| {
            let number = file(image);
            image.inode(number, |inode| inode.set_size(inode.size() - 100));
        },
        &["orphan-file"],
    );
    planted(
        "orphan_file",
        |image| features(image, |features| features.ro_compat |= RoCompat::ORPHAN_PRESENT),
        &["orphans-marked"],
    );
    planted(
        "ext4",
        |image| features(image, |features| features.ro_compat |= RoCompat::ORPHAN_PRESENT),
        &["orphans-marked"],
    );
    // A deleted file on the list in the file.
    planted(
        "orphan_file",
        |image| {
            let number = image.inode_of("nothing");
            unlink(image, "nothing", number);
            let (place, owner) = (first(image), file(image));
            let inode = image.read_inode(owner);
            let seed = image.format.sealer.inode_seed(owner, inode.generation());
            let block = image.block(place);
            block[..4].copy_from_slice(&number.get().to_le_bytes());
            let sum = seed.orphan_block_checksum(place, block).unwrap();
            block[1020..].copy_from_slice(&sum.to_le_bytes());
            assert_eq!(orphan_file::entries(seed, place, image.block(place)).unwrap(), [number]);
            features(image, |features| features.ro_compat |= RoCompat::ORPHAN_PRESENT);
        },
        &["orphans"],
    );
    planted(
        "ext4_nojournal",
        |image| features(image, |features| features.compat |= Compat::ORPHAN_FILE),
        &["orphan-file-alone"],
    );
}

#[test]
fn descriptors() {
    planted("ext4", |image| unsealed(image, 1, |raw| raw[0x1E] ^= 1), &["group-checksum"]);
    planted("ext4", |image| unsealed(image, 2, |raw| raw[..64].fill(0)), &["group-descriptor"]);
    // The table lies where one could, and a backup knows better.
    planted("ext4", |image| unsealed(image, 0, |raw| raw[9] ^= 4), &["group-descriptor"]);
    planted("ext4", |image| unsealed(image, 2, |raw| raw[..64].fill(0xFF)), &["group-descriptor"]);
    planted("meta_bg", |image| unsealed(image, 9, |raw| raw[..32].fill(0x77)), &["group-descriptor"]);
    planted("bigalloc", |image| unsealed(image, 0, |raw| raw[0x1E] ^= 1), &["group-checksum"]);
}

/// Changes the bytes of a descriptor, whose checksum stays.
fn unsealed(image: &mut Image, group: u32, edit: impl FnOnce(&mut [u8])) {
    let geometry = image.format.geometry;
    let block = geometry.descriptor_block(group / geometry.descriptors_per_block());
    let at = (group % geometry.descriptors_per_block()) as usize * usize::from(geometry.descriptor_size);
    edit(&mut image.block(block)[at..at + usize::from(geometry.descriptor_size)]);
}

#[test]
fn places_of_bitmaps_and_tables() {
    let outside = Block(1 << 30);
    planted(
        "ext4",
        |image| image.descriptor(1, |raw| raw.set_block_bitmap(outside)),
        &["block-bitmap-outside"],
    );
    planted(
        "ext4",
        |image| image.descriptor(1, |raw| raw.set_inode_bitmap(outside)),
        &["inode-bitmap-outside"],
    );
    // The only group, so that there is no backup: the table is where programs put it.
    planted(
        "bigalloc",
        |image| image.descriptor(0, |raw| raw.set_inode_table(outside)),
        &["inode-table-outside"],
    );
    planted(
        "ext4",
        |image| image.descriptor(1, |raw| raw.set_inode_table(outside)),
        &["inode-table-outside"],
    );
    planted(
        "ext2",
        |image| image.descriptor(0, |raw| raw.set_inode_table(Block(9000))),
        &["inode-table-outside"],
    );
    // Without a backup.
    planted(
        "ext4_4k",
        |image| image.descriptor(0, |raw| raw.set_block_bitmap(outside)),
        &["block-bitmap-outside"],
    );
    planted(
        "ext4_4k",
        |image| image.descriptor(0, |raw| raw.set_inode_bitmap(Block(0))),
        &["inode-bitmap-outside"],
    );
    // In another structure's place.
    planted(
        "ext4",
        |image| {
            let other = image.read_descriptor(0).inode_table();
            image.descriptor(1, |raw| raw.set_block_bitmap(other));
        },
        &["block-bitmap-collides"],
    );
    planted(
        "ext4_nocsum",
        |image| image.descriptor(1, |raw| raw.set_inode_bitmap(raw.block_bitmap())),
        &["inode-bitmap-collides"],
    );
    planted(
        "ext4",
        |image| image.descriptor(0, |raw| raw.set_inode_table(Block(3))),
        &["inode-table-collides"],
    );
    planted(
        "bigalloc",
        |image| image.descriptor(0, |raw| raw.set_block_bitmap(Block(1))),
        &["block-bitmap-collides"],
    );
}

#[test]
fn flags_of_groups() {
    planted(
        "ext2",
        |image| image.descriptor(0, |raw| raw.set_flags(GroupFlags::INODE_UNINIT)),
        &["group-uninit"],
    );
    planted("ext3", |image| image.descriptor(1, |raw| raw.set_unused_inodes(4)), &["group-uninit"]);
    for base in ["ext4", "bigalloc"] {
        planted(
            base,
            |image| image.descriptor(0, |raw| raw.set_flags(raw.flags() | GroupFlags::INODE_UNINIT)),
            &["group-inodes-uninit"],
        );
    }
    planted(
        "ext4",
        |image| {
            let last = image.format.geometry.groups - 1;
            image.descriptor(last, |raw| raw.set_flags(raw.flags() | GroupFlags::BLOCK_UNINIT));
        },
        &["last-group-uninit"],
    );
}

/// Fails to read some bytes.
struct Failing {
    base: MemoryDevice,
    bad: Range<u64>,
}

impl Device for Failing {
    fn size(&self) -> u64 {
        self.base.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if offset < self.bad.end && self.bad.start < offset + buffer.len() as u64 {
            return Err(io::Error::other("a bad sector"));
        }
        self.base.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.base.write_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.base.flush()
    }
}

/// The issues of a sound volume in which one block can't be read, without doubles.
fn heard_of(image: &Image, block: Block) -> Vec<&'static str> {
    let at = image.format.geometry.byte_offset(block);
    let len = u64::from(image.format.geometry.block_size.bytes());
    let device = Failing { base: MemoryDevice::from_bytes(&image.bytes), bad: at..at + len };
    let mut ears = Ears::repairing();
    check(Arc::new(device), &Options::default(), &mut ears).unwrap();
    let mut ids: Vec<_> = ears.heard.iter().map(|issue| issue.kind.id).collect();
    ids.dedup();
    ids
}

#[test]
fn blocks_that_can_not_be_read() {
    if !ready("blocks_that_can_not_be_read") {
        return;
    }
    let image = Image::of("ext4");
    let first = image.read_descriptor(0);
    assert_eq!(heard_of(&image, first.block_bitmap()), ["block-bitmap-unreadable"]);
    assert_eq!(heard_of(&image, first.inode_bitmap()), ["inode-bitmap-unreadable"]);
    // With the root in it, and with files.
    let names = Block(first.inode_table().0 + 30);
    assert_eq!(heard_of(&image, first.inode_table()), ["inode-table-unreadable"]);
    assert_eq!(heard_of(&image, names), ["inode-table-unreadable"]);
    assert_eq!(heard_of(&image, image.block_of("/a", 0)), ["directory-unreadable"]);
    let superblock = image.format.geometry.superblock_block(Group(0));
    assert_eq!(heard_of(&image, superblock), ["superblock-damaged"]);
    assert_eq!(heard_of(&image, Block(superblock.0 + 1)), ["descriptors-unreadable", "group-descriptor"]);
}

/// A count of blocks that the device does not have, and that no backup has.
#[test]
fn a_count_of_blocks_beyond_the_device() {
    planted(
        "ext4",
        |image| image.superblock(|raw| raw.set_blocks_count(24 * 1024 + 1)),
        &["superblock-damaged"],
    );
}

#[test]
fn a_volume_longer_than_its_device() {
    if !ready("a_volume_longer_than_its_device") {
        return;
    }
    let mut image = Image::of("ext4");
    // Nothing lies in the last blocks.
    let len = image.bytes.len() - 64 * 1024;
    image.bytes.truncate(len);
    let (heard, outcome) = checked(&image.bytes);
    let ids: Vec<_> = heard.iter().map(|issue| issue.kind.id).collect();
    assert_eq!(ids, ["volume-cut-short"]);
    assert!(!outcome.summary.is_sound() && outcome.repaired.is_unchanged());
}

#[test]
fn a_superblock_that_the_caller_names() {
    if !ready("a_superblock_that_the_caller_names") {
        return;
    }
    let mut image = Image::of("ext2");
    image.bytes[1024..2048].fill(0);
    for size in [None, Some(1024)] {
        let mut ears = Ears::repairing();
        let options = Options { superblock: Some((8193, size)), ..Options::default() };
        let outcome = check(Arc::new(MemoryDevice::from_bytes(&image.bytes)), &options, &mut ears).unwrap();
        let ids: Vec<_> = ears.heard.iter().map(|issue| issue.kind.id).collect();
        assert_eq!(ids, ["superblock-damaged"]);
        let (again, _) = checked(&repaired(&outcome));
        assert_eq!(again, []);
    }
    let options = Options { superblock: Some((8000, None)), ..Options::default() };
    let device = Arc::new(MemoryDevice::from_bytes(&image.bytes));
    assert!(check(device, &options, &mut Ears::repairing()).is_err());
}

/// The library raises the revision with the first feature, as Linux does. Where another program did not, the features count,
/// and the revision follows.
#[test]
fn a_volume_of_revision_0_has_features() {
    if !ready("revision") {
        return;
    }
    let scratch = Scratch::new("revision");
    let file = scratch.join("image");
    let mut mke2fs = testkit::tool::command("mke2fs");
    testkit::tool::run(mke2fs.args(["-q", "-F", "-r", "0", "-b", "1024"]).arg(&file).arg("16M"));
    let mut image = Image::from_bytes(std::fs::read(&file).unwrap());
    let mut large = Image::from_bytes(image.bytes.clone());
    image.superblock(|raw| raw.s_feature_ro_compat.set(RoCompat::LARGE_FILE.bits()));
    // e2fsck looks at the revision when it has counted large files.
    assert_found(&image, &["revision"], false);
    large.change(|volume| {
        let new = NewInode { kind: Kind::File, attributes: Attributes::default(), xattrs: &[] };
        let number = volume.create(InodeNumber::ROOT, b"large", &new).unwrap();
        volume.truncate(number, 3 << 30).unwrap();
    });
    let raw = large.superblock_now();
    assert_eq!((raw.s_rev_level.get(), raw.s_first_ino.get(), raw.s_inode_size.get()), (1, 11, 128));
    assert!(raw.features().ro_compat.contains(RoCompat::LARGE_FILE));
    assert_eq!(checked(&large.bytes).0, []);
    sparse::write(&file, &large.bytes).unwrap();
    testkit::fsck::assert_clean(&file);
    large.superblock(|raw| raw.s_rev_level.set(0));
    assert_found(&large, &["revision"], true);
}
