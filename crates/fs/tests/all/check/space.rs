//! Faults of bitmaps, counts and usage.

use ondisk::group::GroupFlags;
use ondisk::units::{Block, Group};
use platfs::{InodeNumber, ondisk};

use std::fs;
use std::sync::Arc;

use ondisk::superblock::RawSuperblock;
use platfs::check::{Options, check};
use platfs::device::MemoryDevice;

use crate::check::plant::{Ears, Image, checked, planted, planted_unseen, ready, repaired};
use testkit::fsck;
use testkit::scratch::Scratch;

/// Flips a bit of a bitmap.
fn flip(bitmap: &mut [u8], at: usize) {
    bitmap[at / 8] ^= 1 << (at % 8);
}

/// The last clear bit of those that count.
fn last_clear(bitmap: &[u8], count: u32) -> usize {
    (0..count as usize).rev().find(|at| bitmap[at / 8] >> (at % 8) & 1 == 0).unwrap()
}

/// A clear bit of group 0 becomes set, a set one clear.
#[test]
fn block_bitmaps() {
    for base in ["ext4", "ext4_4k", "ext2", "bigalloc", "meta_bg", "sparse_super2", "ext4_nocsum"] {
        planted(
            base,
            |image| {
                let geometry = image.format.geometry;
                let begun = |image: &Image, group: u32| {
                    let raw = image.read_descriptor(group);
                    !raw.flags().contains(GroupFlags::BLOCK_UNINIT) && raw.free_clusters() > 0
                };
                let group = (0..geometry.groups).find(|group| begun(image, *group)).unwrap();
                let count = geometry.group_clusters(Group(group));
                image.block_bitmap(group, |bitmap| flip(bitmap, last_clear(bitmap, count)));
            },
            &["block-bitmap"],
        );
        planted(base, |image| image.block_bitmap(0, |bitmap| flip(bitmap, 1)), &["block-bitmap"]);
    }
    planted("ext4", |image| image.block_bitmap(0, |bitmap| bitmap.fill(0)), &["block-bitmap"]);
    planted("ext4", |image| image.block_bitmap(0, |bitmap| bitmap.fill(0xFF)), &["block-bitmap"]);
}

#[test]
fn inode_bitmaps() {
    for base in ["ext4", "ext2", "bigalloc", "inline", "quota"] {
        planted(base, |image| image.inode_bitmap(0, |bitmap| flip(bitmap, 1)), &["inode-bitmap"]);
        planted(
            base,
            |image| {
                let count = image.format.geometry.inodes_per_group;
                image.inode_bitmap(0, |bitmap| flip(bitmap, last_clear(bitmap, count)));
            },
            &["inode-bitmap"],
        );
    }
}

#[test]
fn padding() {
    let last = |image: &Image| image.format.geometry.groups - 1;
    planted(
        "ext4",
        |image| {
            let group = last(image);
            image.block_bitmap(group, |bitmap| flip(bitmap, 8 * 1024 - 1));
        },
        &["block-bitmap-padding"],
    );
    planted(
        "ext4",
        |image| image.inode_bitmap(0, |bitmap| flip(bitmap, 8 * 1024 - 1)),
        &["inode-bitmap-padding"],
    );
    planted(
        "ext2",
        |image| image.inode_bitmap(0, |bitmap| flip(bitmap, 8 * 1024 - 1)),
        &["inode-bitmap-padding"],
    );
}

#[test]
fn checksums_of_bitmaps() {
    planted(
        "ext4",
        |image| image.descriptor(0, |raw| raw.set_block_bitmap_checksum(raw.block_bitmap_checksum() ^ 1)),
        &["block-bitmap-checksum"],
    );
    planted(
        "meta_bg",
        |image| image.descriptor(0, |raw| raw.set_block_bitmap_checksum(raw.block_bitmap_checksum() ^ 1)),
        &["block-bitmap-checksum"],
    );
    planted(
        "ext4",
        |image| {
            image.descriptor(0, |raw| raw.set_inode_bitmap_checksum(raw.inode_bitmap_checksum() ^ 0x10000))
        },
        &["inode-bitmap-checksum"],
    );
}

#[test]
fn groups_not_yet_begun() {
    planted(
        "ext4",
        |image| image.descriptor(0, |raw| raw.set_flags(raw.flags() | GroupFlags::BLOCK_UNINIT)),
        &["group-blocks-uninit"],
    );
}

#[test]
fn counts_of_groups() {
    for base in ["ext4", "ext2", "bigalloc", "meta_bg"] {
        planted(
            base,
            |image| image.descriptor(0, |raw| raw.set_free_clusters(raw.free_clusters() + 1)),
            &["group-free-blocks"],
        );
        planted(
            base,
            |image| image.descriptor(0, |raw| raw.set_used_directories(raw.used_directories() + 1)),
            &["group-directories"],
        );
    }
    planted(
        "ext4_nocsum",
        |image| image.descriptor(0, |raw| raw.set_free_inodes(raw.free_inodes() - 1)),
        &["group-free-inodes"],
    );
    // Also less than were never used: it is still one fault.
    planted("ext4", |image| image.descriptor(0, |raw| raw.set_free_inodes(1)), &["group-free-inodes"]);
    planted(
        "ext4",
        |image| image.descriptor(0, |raw| raw.set_unused_inodes(raw.free_inodes() + 1)),
        &["group-unused-inodes"],
    );
}

#[test]
fn sums_in_the_superblock() {
    for base in ["ext4", "ext3", "bigalloc"] {
        planted(
            base,
            |image| image.superblock(|raw| raw.set_free_blocks_count(raw.free_blocks_count() - 16)),
            &["free-blocks"],
        );
        planted(
            base,
            |image| image.superblock(|raw| raw.s_free_inodes_count.set(raw.s_free_inodes_count.get() + 1)),
            &["free-inodes"],
        );
    }
}

/// Blocks of a quota file.
fn quota_blocks(image: &Image, number: u32) -> Vec<Block> {
    let volume = image.volume();
    let map = volume.map(InodeNumber::new(number).unwrap()).unwrap();
    let runs = map.map(Result::unwrap).filter_map(|segment| match segment.state {
        platfs::State::Mapped(start) => Some((start, segment.count)),
        _ => None,
    });
    runs.flat_map(|(start, count)| (0..count).map(move |at| Block(start.0 + at))).collect()
}

/// A check without a clock writes no deletion times that could be numbers of inodes.
#[test]
fn times_of_repairs_without_a_clock() {
    if !ready("times_of_repairs_without_a_clock") {
        return;
    }
    let mut image = Image::of("ext2");
    let number = image.inode_of("a/b");
    image.inode(number, |inode| inode.raw_mut().i_block.fill(0));
    let check_it = |bytes: &[u8]| {
        let mut ears = Ears::repairing();
        let device = Arc::new(MemoryDevice::from_bytes(bytes));
        let outcome = check(device, &Options::default(), &mut ears).unwrap();
        (ears.heard, outcome)
    };
    let (heard, outcome) = check_it(&image.bytes);
    assert!(!heard.is_empty());
    assert_eq!(check_it(&repaired(&outcome)).0, []);
}

#[test]
fn quota() {
    // The space and the inodes of the only owner, in the leaf behind four levels of the tree.
    for (number, offset) in [(3, 16 + 48), (4, 16 + 24)] {
        planted(
            "quota",
            |image| {
                let leaf = quota_blocks(image, number)[5];
                image.block(leaf)[offset] ^= 1;
            },
            &["quota-usage"],
        );
    }
    // Another owner, which has no entry in the files.
    planted(
        "quota",
        |image| {
            let number = image.inode_of("large");
            image.inode(number, |inode| inode.set_owner(77, inode.gid()));
        },
        &["quota-usage"],
    );
    // Sums in its header that lead behind its end; limits stay.
    planted(
        "quota",
        |image| {
            let first = quota_blocks(image, 3)[0];
            image.block(first)[20..24].copy_from_slice(&900_u32.to_le_bytes());
        },
        &["quota-file"],
    );
    // e2fsck does not look at a file that it can't open; Linux does not mount the volume with quota.
    planted_unseen(
        "quota",
        |image| {
            let first = quota_blocks(image, 3)[0];
            image.block(first)[0] ^= 1;
        },
        &["quota-file"],
    );
    // A second way to a block that is no leaf.
    planted(
        "quota",
        |image| {
            let parent = quota_blocks(image, 3)[4];
            image.block(parent)[4 * 16] = 4;
        },
        &["quota-file"],
    );
    // A way to a leaf that has no record of the id: Linux refuses every change of what that id uses.
    planted_unseen(
        "quota",
        |image| {
            let parent = quota_blocks(image, 3)[4];
            image.block(parent)[4 * 16] = 5;
        },
        &["quota-file"],
    );
    // Its map, or its size.
    let user = InodeNumber::constant(3);
    planted("quota", |image| image.inode(user, |inode| inode.set_size(1 << 40)), &["quota-file"]);
    planted("quota", |image| image.inode(user, |inode| inode.set_size(0)), &["inode-size"]);
    planted(
        "quota",
        |image| {
            let root = quota_blocks(image, 4)[1];
            image.block(root)[..4].fill(0xFF);
        },
        &["quota-file"],
    );
}

/// Whatever place of a group's structures is lost, what was repaired is sound.
#[test]
fn structures_at_block_0_are_repaired_once() {
    for base in ["quota", "ext4_nocsum", "ext2"] {
        if !ready(base) {
            return;
        }
        let groups = Image::of(base).format.geometry.groups;
        for (group, which) in (0..groups).flat_map(|group| (0..3).map(move |which| (group, which))) {
            let mut image = Image::of(base);
            image.descriptor(group, |raw| match which {
                0 => raw.set_block_bitmap(Block(0)),
                1 => raw.set_inode_bitmap(Block(0)),
                _ => raw.set_inode_table(Block(0)),
            });
            let (heard, outcome) = checked(&image.bytes);
            assert!(!heard.is_empty(), "{base}, group {group}, {which}");
            let (again, _) = checked(&repaired(&outcome));
            assert_eq!(again, [], "{base}, group {group}, {which}: after {heard:#?}");
        }
    }
}

/// An inode of quota that is lost with its table, or is no file any more, gets a new file.
#[test]
fn lost_quota_inodes_are_made_again() {
    for base in ["quota", "quota_nocsum"] {
        if !ready(base) {
            return;
        }
        for lost in [
            LostQuota::Table,
            LostQuota::Garbage,
            LostQuota::Zeros,
            LostQuota::Directory,
            LostQuota::Map,
            LostQuota::Links,
        ] {
            let mut image = Image::of(base);
            lost.plant(&mut image);
            let (heard, outcome) = checked(&image.bytes);
            assert!(!heard.is_empty(), "{base}, {lost:?}");
            let after = repaired(&outcome);
            let (again, _) = checked(&after);
            assert_eq!(again, [], "{base}, {lost:?}: after {heard:#?}");
            let scratch = Scratch::new("lost-quota");
            fs::write(scratch.join("image"), &after).unwrap();
            fsck::assert_clean(&scratch.join("image"));
            let raw = RawSuperblock::parse(&after[1024..2048]).unwrap();
            assert_eq!((raw.s_usr_quota_inum.get(), raw.s_grp_quota_inum.get()), (3, 4), "{base}, {lost:?}");
            let repaired = Image::from_bytes(after);
            let inode = repaired.read_inode(InodeNumber::constant(3));
            let is_file = inode.mode() & 0o170_000 == 0o100_000 && inode.links() > 0;
            assert!(is_file, "{base}, {lost:?}: Linux does not take it");
        }
    }
}

/// How inodes of quota are lost.
#[derive(Clone, Copy, Debug)]
enum LostQuota {
    Table,
    Garbage,
    Zeros,
    Directory,
    Map,
    Links,
}

impl LostQuota {
    fn plant(self, image: &mut Image) {
        let raw = image.superblock_now();
        let quota = [raw.s_usr_quota_inum, raw.s_grp_quota_inum, raw.s_prj_quota_inum];
        let numbers = quota.map(|inum| InodeNumber::new(inum.get()).expect("a quota inode"));
        let size = usize::from(image.format.geometry.inode_size);
        let table = image.inode_at(InodeNumber::constant(1));
        let len = image.format.geometry.block_size.bytes_usize() * 8;
        match self {
            LostQuota::Table => {
                // Nothing tells where it was.
                image.bytes[table..table + len].fill(0);
                image.descriptor(0, |raw| raw.set_inode_table(Block(0)));
            }
            LostQuota::Garbage => {
                for (at, byte) in image.bytes[table..table + len].iter_mut().enumerate() {
                    *byte = ((at * 7919) >> 3) as u8 | 1;
                }
            }
            LostQuota::Zeros => {
                for at in numbers.map(|number| image.inode_at(number)) {
                    image.bytes[at..at + size].fill(0);
                }
            }
            LostQuota::Directory => {
                numbers
                    .into_iter()
                    .for_each(|number| image.inode(number, |inode| inode.raw_mut().i_mode.set(0o40755)));
            }
            LostQuota::Links => {
                numbers
                    .into_iter()
                    .for_each(|number| image.inode(number, |inode| inode.raw_mut().i_links_count.set(0)));
            }
            LostQuota::Map => {
                numbers
                    .into_iter()
                    .for_each(|number| image.inode(number, |inode| inode.raw_mut().i_block.fill(0xFF)));
            }
        }
    }
}

/// A number of a quota file where no inode ever was names none.
#[test]
fn quota_where_no_inode_ever_was() {
    planted(
        "quota",
        |image| {
            let last = image.superblock_now().s_inodes_count.get();
            image.superblock(|raw| raw.s_prj_quota_inum.set(last));
        },
        // The file that it was is one without a name, which its owner has more of.
        &["quota-inode-number", "inode-unattached", "quota-usage", "quota-usage"],
    );
}
