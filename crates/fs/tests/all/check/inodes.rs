//! Faults of inodes, maps and attributes.

use platfs::InodeNumber;
use platfs::ondisk;

use ondisk::extent::{Extent, Head};
use ondisk::features::RoCompat;
use ondisk::inode::{Inode, InodeFlags, OLD_SIZE};
use ondisk::units::{Block, FileBlock};

use crate::check::plant::{Image, assert_found, checked, planted, planted_unseen, ready, repaired};
use testkit::scratch::Scratch;
use testkit::sparse;

/// Plants a fault in the record that a path leads to.
fn in_inode(base: &str, path: &str, edit: impl FnOnce(&mut Inode), expected: &[&str]) {
    planted(
        base,
        |image| {
            let number = image.inode_of(path);
            image.inode(number, edit);
        },
        expected,
    );
}

/// Plants a fault in an inode by its number.
fn in_number(base: &str, number: u32, edit: impl FnOnce(&mut Inode), expected: &[&str]) {
    planted(base, |image| image.inode(InodeNumber::constant(number), edit), expected);
}

fn add_flags(inode: &mut Inode, flags: InodeFlags) {
    let all = inode.flags() | flags;
    inode.set_flags(all);
}

fn drop_flags(inode: &mut Inode, flags: InodeFlags) {
    let rest = inode.flags() - flags;
    inode.set_flags(rest);
}

fn set_type(inode: &mut Inode, bits: u16) {
    let mode = inode.mode() & 0xFFF | bits;
    inode.raw_mut().i_mode.set(mode);
}

#[test]
fn checksums() {
    planted(
        "ext4",
        |image| {
            let number = image.inode_of("large");
            let at = image.inode_at(number);
            image.bytes[at + 0x7C] ^= 1;
        },
        &["inode-checksum"],
    );
    planted(
        "ext4_4k",
        |image| {
            let number = image.inode_of("a/b/tiny");
            let at = image.inode_at(number);
            // The owner, which no other rule covers.
            image.bytes[at + 2] ^= 1;
        },
        &["inode-checksum"],
    );
}

/// A block of the table with something else in it: all files there are lost, and nothing but these.
#[test]
fn garbage_in_a_table() {
    planted(
        "ext4",
        |image| {
            let number = image.inode_of("many/name-of-some-length-0100");
            let len = image.format.geometry.block_size.bytes_usize();
            let at = image.inode_at(number) / len * len;
            image.bytes[at..at + len].fill(0xEE);
        },
        &[["inode-garbage"; 4], ["entry-unused"; 4]].concat(),
    );
}

#[test]
fn deletion_times() {
    in_inode("ext4", "large", |inode| inode.raw_mut().i_dtime.set(1_600_000_000), &["inode-deletion-time"]);
    in_inode("ext2", "large", |inode| inode.raw_mut().i_dtime.set(21), &["inode-deletion-time"]);
    in_number("ext2", 2000, |inode| inode.raw_mut().i_mode.set(0x81A4), &["inode-deletion-time"]);
    in_number("ext2", 2001, |inode| inode.raw_mut().i_dtime.set(12), &["inode-deletion-time"]);
}

#[test]
fn fields_that_are_zero() {
    in_inode("ext4", "large", |inode| inode.raw_mut().i_obso_faddr.set(7), &["inode-fragment"]);
    in_inode("ext2", "a", |inode| inode.raw_mut().i_obso_faddr.set(7), &["inode-fragment"]);
    in_inode("ext2", "large", |inode| inode.raw_mut().i_blocks_high.set(1), &["inode-high-field"]);
    in_inode("ext2", "large", |inode| inode.raw_mut().i_file_acl_high.set(1), &["inode-high-field"]);
    in_inode("ext3", "nothing", |inode| inode.raw_mut().i_file_acl_high.set(3), &["inode-high-field"]);
}

#[test]
fn flags_against_features() {
    in_inode("ext4", "large", |inode| add_flags(inode, InodeFlags::IMAGIC), &["inode-imagic"]);
    in_inode("ext4", "large", |inode| add_flags(inode, InodeFlags::CASEFOLD), &["inode-casefold"]);
    in_inode("ext4", "a", |inode| add_flags(inode, InodeFlags::CASEFOLD), &["inode-casefold"]);
    in_inode("casefold", "large", |inode| add_flags(inode, InodeFlags::CASEFOLD), &["inode-casefold"]);
    in_inode("ext4", "large", |inode| add_flags(inode, InodeFlags::INDEX), &["inode-index-flag"]);
    in_inode("ext4", "large", |inode| drop_flags(inode, InodeFlags::EXTENTS), &["inode-extents-flag"]);
    in_inode("ext4_4k", "comb", |inode| drop_flags(inode, InodeFlags::EXTENTS), &["inode-extents-flag"]);
    in_inode("ext4", "a", |inode| drop_flags(inode, InodeFlags::EXTENTS), &["inode-extents-flag"]);
    in_inode("ext2", "large", |inode| add_flags(inode, InodeFlags::EXTENTS), &["inode-extents-feature"]);
    in_inode("ext4", "large", |inode| add_flags(inode, InodeFlags::ENCRYPT), &["encryption-context"]);
    in_inode("ext2", "a/small", |inode| add_flags(inode, InodeFlags::ENCRYPT), &["encryption-context"]);
    in_inode("inline", "large", |inode| add_flags(inode, InodeFlags::INLINE_DATA), &["inode-inline-extents"]);
    in_inode("inline", "a/small", |inode| add_flags(inode, InodeFlags::EXTENTS), &["inode-inline-extents"]);
    in_inode("ext2", "large", |inode| add_flags(inode, InodeFlags::INLINE_DATA), &["inline-feature"]);
}

#[test]
fn the_part_behind_byte_128() {
    let set = |size: u16| {
        move |inode: &mut Inode| {
            inode.bytes_mut()[OLD_SIZE..OLD_SIZE + 2].copy_from_slice(&size.to_le_bytes())
        }
    };
    in_inode("ext4", "large", set(30), &["inode-extra-size"]);
    in_inode("ext4", "large", set(3), &["inode-extra-size"]);
    in_inode("ext4", "a/small", set(200), &["inode-extra-size"]);
    in_inode("ext4_4k", "a", set(2), &["inode-extra-size"]);
    let early = |inode: &mut Inode| {
        inode.raw_mut().i_mtime.set(0xFFFF_0000);
        inode.edit_extra(|extra| extra.i_mtime_extra.set(3));
    };
    in_inode("ext4", "large", early, &["inode-time-epoch"]);
    let created = |inode: &mut Inode| {
        inode.edit_extra(|extra| {
            extra.i_crtime.set(0xFFFF_0000);
            extra.i_crtime_extra.set(7);
        });
    };
    in_inode("ext4_4k", "a/b", created, &["inode-time-epoch"]);
}

#[test]
fn special_files() {
    in_inode("ext4", "pipe", |inode| add_flags(inode, InodeFlags::IMMUTABLE), &["inode-special-flags"]);
    in_inode("ext2", "pipe", |inode| add_flags(inode, InodeFlags::APPEND), &["inode-special-flags"]);
    in_inode("ext4", "pipe", |inode| inode.set_size(5), &["inode-special-size"]);
    in_inode("ext4", "pipe", |inode| add_flags(inode, InodeFlags::INDEX), &["inode-type"]);
    in_inode("ext4", "short-link", |inode| add_flags(inode, InodeFlags::IMMUTABLE), &["inode-special-flags"]);
}

#[test]
fn types() {
    in_inode("ext4", "large", |inode| set_type(inode, 0), &["inode-type"]);
    in_inode("ext4", "large", |inode| set_type(inode, 0xC000), &["inode-type"]);
    in_inode("ext4", "a/b", |inode| set_type(inode, 0x1000), &["inode-type"]);
    in_inode("ext2", "a/b", |inode| set_type(inode, 0x1000), &["inode-type"]);
    in_inode("ext4", "many", |inode| set_type(inode, 0xF000), &["inode-type"]);
    in_number("ext4", 2, |inode| set_type(inode, 0x8000), &["inode-root"]);
    in_number("ext2", 2, |inode| set_type(inode, 0x6000), &["inode-root"]);
}

#[test]
fn reserved_inodes() {
    in_number("ext4", 6, |inode| inode.raw_mut().i_mode.set(0x81A4), &["inode-reserved"]);
    in_number("ext2", 5, |inode| inode.raw_mut().i_mode.set(0x41ED), &["inode-reserved"]);
    in_number("ext4", 3, |inode| inode.raw_mut().i_links_count.set(1), &["inode-vacant"]);
    in_number("ext4_nojournal", 8, |inode| inode.raw_mut().i_blocks_lo.set(8), &["inode-vacant"]);
    in_number("ext2", 1, |inode| inode.raw_mut().i_mode.set(0x81A4), &["inode-reserved"]);
}

#[test]
fn symbolic_links() {
    in_inode("ext4", "short-link", |inode| inode.set_size(5), &["symlink-target"]);
    in_inode("ext4", "short-link", |inode| inode.set_size(9), &["symlink-target"]);
    in_inode("ext4", "long-link", |inode| inode.set_size(100), &["symlink-target"]);
    in_inode("ext2", "long-link", |inode| inode.set_size(300), &["symlink-target"]);
    // A size of the five bytes that are left would say that they are in the inode.
    for name in ["ext2", "ext4"] {
        let cut = |image: &mut Image| {
            let block = image.block_of("long-link", 0);
            image.block(block)[5] = 0;
        };
        planted(name, cut, &["symlink-target", "entry-unused"]);
    }
    in_inode("ext4", "short-link", |inode| add_flags(inode, InodeFlags::INDEX), &["symlink-flags"]);
    in_inode("ext4", "short-link", |inode| add_flags(inode, InodeFlags::EXTENTS), &["symlink-flags"]);
}

#[test]
fn sizes() {
    in_inode("ext4", "large", |inode| inode.set_size(1000), &["inode-size"]);
    in_inode("ext2", "large", |inode| inode.set_size(1000), &["inode-size"]);
    in_inode("ext4", "comb", |inode| inode.set_size(1000), &["inode-size"]);
    in_inode("ext4", "large", |inode| inode.set_size(1 << 60), &["inode-size"]);
    in_inode("ext2", "large", |inode| inode.set_size(1 << 50), &["inode-size"]);
    in_inode("ext4", "a", |inode| inode.set_size(1000), &["inode-size"]);
    in_inode("ext4", "a", |inode| inode.set_size(2048), &["inode-size"]);
    in_inode("ext2", "many", |inode| inode.set_size(1024), &["inode-size"]);
    in_inode("ext4", "a", |inode| inode.raw_mut().i_size_high.set(1), &["inode-size"]);
    in_inode("inline", "a", |inode| inode.set_size(1024), &["inode-size"]);
    planted(
        "ext4",
        |image| {
            let number = image.inode_of("nothing");
            image.inode(number, |inode| inode.set_size(3 << 30));
            image.superblock(|raw| {
                let mut features = raw.features();
                features.ro_compat -= RoCompat::LARGE_FILE;
                raw.set_features(features);
            });
        },
        &["large-file-feature"],
    );
}

#[test]
fn counts_of_blocks() {
    in_inode("ext4", "large", |inode| inode.raw_mut().i_blocks_lo.set(2), &["inode-blocks"]);
    in_inode("ext2", "large", |inode| inode.raw_mut().i_blocks_lo.set(0), &["inode-blocks"]);
    in_inode("bigalloc", "large", |inode| inode.raw_mut().i_blocks_lo.set(8), &["inode-blocks"]);
    in_inode("ext4", "nothing", |inode| inode.raw_mut().i_blocks_lo.set(2), &["inode-blocks"]);
    in_inode("ext4", "a", |inode| inode.raw_mut().i_blocks_high.set(1), &["inode-blocks"]);
}

/// Changes the head and the first entry of an extent root.
fn in_root(inode: &mut Inode, edit: impl FnOnce(&mut Head, &mut Extent)) {
    let root = &mut inode.raw_mut().i_block;
    let (mut head, mut first) = (Head::read(root), Extent::read(&root[12..24]));
    edit(&mut head, &mut first);
    head.store(root);
    root[12..24].copy_from_slice(&first.encode());
}

#[test]
fn roots_of_extents() {
    in_inode("ext4", "large", |inode| in_root(inode, |head, _| head.magic ^= 1), &["extent-root"]);
    in_inode("ext4", "large", |inode| in_root(inode, |head, _| head.capacity = 9), &["extent-root"]);
    in_inode("ext4", "a", |inode| in_root(inode, |head, _| head.capacity = 0), &["extent-root"]);
    in_inode("ext4", "comb", |inode| in_root(inode, |head, _| head.magic = 0), &["extent-root"]);
    in_inode("ext4", "large", |inode| inode.raw_mut().i_block.fill(0xEE), &["extent-root"]);
    in_inode("ext4", "large", |inode| in_root(inode, |head, _| head.depth = 1), &["extent-depth"]);
    in_inode("ext4_4k", "large", |inode| in_root(inode, |head, _| head.depth = 0xFFFF), &["extent-depth"]);
    in_inode("ext4", "comb", |inode| in_root(inode, |head, _| head.depth = 3), &["extent-depth"]);
    in_inode(
        "ext4_4k",
        "large",
        |inode| in_root(inode, |_, first| first.start.0 = 1 << 40),
        &["extent-range"],
    );
    in_inode("ext4", "large", |inode| in_root(inode, |_, first| first.start = Block(0)), &["extent-range"]);
    in_inode("ext4", "a/small", |inode| in_root(inode, |_, first| first.count = 0), &["extent-empty"]);
    in_inode("bigalloc", "large", |inode| in_root(inode, |_, first| first.count = 0), &["extent-empty"]);
    for base in ["ext4_4k", "bigalloc"] {
        in_inode(base, "large", |inode| in_root(inode, |_, first| first.start = Block(0)), &["extent-range"]);
    }
    in_inode("ext4", "nothing", |inode| in_root(inode, |head, _| head.depth = 1), &["extent-depth"]);
    in_inode(
        "ext4",
        "many",
        |inode| in_root(inode, |_, first| first.logical = FileBlock(2)),
        &["directory-map-hole"],
    );
    in_inode(
        "ext4",
        "a",
        |inode| in_root(inode, |_, first| first.unwritten = true),
        &["directory-unwritten"],
    );
}

/// A directory with a block behind 2 GiB.
#[test]
fn maps_that_reach_too_far() {
    let far = |inode: &mut Inode| {
        let root = &mut inode.raw_mut().i_block;
        let mut head = Head::read(root);
        let first = Extent::read(&root[12..24]);
        head.count = 2;
        head.store(root);
        let second = Extent { logical: FileBlock(3 << 20), start: Block(first.start.0 + 1), ..first };
        root[24..36].copy_from_slice(&second.encode());
    };
    in_inode("ext4", "a", far, &["map-too-large"]);
}

#[test]
fn directories_without_blocks() {
    let bare = |inode: &mut Inode| {
        in_root(inode, |head, _| head.count = 0);
        inode.raw_mut().i_blocks_lo.set(0);
    };
    in_inode("ext4", "empty", bare, &["directory-without-blocks", "entry-unused"]);
}

#[test]
fn pointers_on_a_volume_of_clusters() {
    for path in ["a/small", "a/b/c/other"] {
        in_inode(
            "bigalloc",
            path,
            |inode| {
                let extent = Extent::read(&inode.raw().i_block[12..24]);
                inode.raw_mut().i_block.fill(0);
                for (slot, block) in (extent.start.0..extent.end()).take(12).enumerate() {
                    set_pointer(inode, slot, u32::try_from(block).unwrap());
                }
                drop_flags(inode, InodeFlags::EXTENTS);
            },
            &["map-pointers-in-clusters"],
        );
    }
}

/// The first leaf of a file with a tree of one level.
fn leaf_of(image: &Image, path: &str) -> Block {
    let inode = image.read_inode(image.inode_of(path));
    ondisk::extent::Child::read(&inode.raw().i_block[12..24]).node
}

/// Changes a leaf, whose checksum follows.
fn in_leaf(base: &str, edit: impl FnOnce(&mut [u8]), expected: &[&str]) {
    planted(
        base,
        |image| {
            let leaf = leaf_of(image, "comb");
            let inode = image.read_inode(image.inode_of("comb"));
            let seed = image.format.sealer.inode_seed(inode.number(), inode.generation());
            let bytes = image.block(leaf);
            edit(bytes);
            seed.seal_extent_node(bytes);
        },
        expected,
    );
}

fn in_entry(bytes: &mut [u8], index: usize, edit: impl FnOnce(&mut Extent)) {
    let at = 12 + 12 * index;
    let mut extent = Extent::read(&bytes[at..at + 12]);
    edit(&mut extent);
    bytes[at..at + 12].copy_from_slice(&extent.encode());
}

#[test]
fn nodes_of_extents() {
    in_leaf("ext4", |bytes| bytes[0] ^= 1, &["extent-node"]);
    in_leaf("ext4_4k", |bytes| bytes[0] ^= 1, &["extent-node"]);
    in_leaf("ext4", |bytes| bytes[2..4].fill(0), &["extent-node"]);
    in_leaf("ext4", |bytes| bytes[4..6].fill(0xFF), &["extent-node"]);
    in_leaf("ext4", |bytes| in_entry(bytes, 1, |entry| entry.logical = FileBlock(0)), &["extent-order"]);
    in_leaf("ext4", |bytes| in_entry(bytes, 5, |entry| entry.count = 0), &["extent-empty"]);
    // Blocks kept for later may lie far behind the contents, but only as the last.
    let far = |entry: &mut Extent| {
        *entry = Extent { logical: FileBlock(1 << 30), start: entry.start, count: 20_000, unwritten: true };
    };
    in_leaf("ext4", |bytes| in_entry(bytes, 5, far), &["extent-order"]);
    in_leaf(
        "meta_bg",
        |bytes| {
            in_entry(bytes, 5, |entry| {
                far(entry);
                entry.count = 28_000;
            })
        },
        &["extent-range"],
    );
    in_leaf("ext4", |bytes| in_entry(bytes, 5, |entry| entry.start.0 += 1 << 33), &["extent-range"]);
    in_leaf(
        "ext4",
        |bytes| in_entry(bytes, 0, |entry| entry.logical = FileBlock(2)),
        &["extent-index-start"],
    );
    // e2fsck never looks at the depth of a node below the root; the kernel refuses to read it.
    planted_unseen(
        "ext4",
        |image| {
            let leaf = leaf_of(image, "comb");
            let inode = image.read_inode(image.inode_of("comb"));
            let seed = image.format.sealer.inode_seed(inode.number(), inode.generation());
            let bytes = image.block(leaf);
            bytes[6] = 2;
            seed.seal_extent_node(bytes);
        },
        &["extent-node-depth"],
    );
    planted(
        "ext4",
        |image| {
            let leaf = leaf_of(image, "comb");
            let bytes = image.block(leaf);
            let tail = ondisk::extent::Node::tail_offset(bytes);
            bytes[tail] ^= 1;
        },
        &["extent-node-checksum"],
    );
    in_inode("ext4", "comb", |inode| inode.raw_mut().i_block[16..20].fill(0xFF), &["extent-node"]);
    in_inode("ext4", "comb", |inode| inode.raw_mut().i_block[12] = 1, &["extent-index-start"]);
}

fn set_pointer(inode: &mut Inode, slot: usize, block: u32) {
    inode.raw_mut().i_block[4 * slot..4 * slot + 4].copy_from_slice(&block.to_le_bytes());
}

fn pointer(inode: &Inode, slot: usize) -> Block {
    let bytes = inode.raw().i_block[4 * slot..4 * slot + 4].try_into().unwrap();
    Block(u64::from(u32::from_le_bytes(bytes)))
}

#[test]
fn block_pointers() {
    in_inode("ext2", "large", |inode| set_pointer(inode, 3, 0xFFFF_FFF0), &["pointer-range"]);
    in_inode("ext3", "large", |inode| set_pointer(inode, 12, 0x00FF_FFF0), &["pointer-range"]);
    in_inode("ext2", "large", |inode| set_pointer(inode, 13, 0x00FF_FFF0), &["pointer-range"]);
    for (slot, fill) in [(12, 0xEE), (13, 0x99)] {
        planted(
            "ext2",
            |image| {
                let inode = image.read_inode(image.inode_of("large"));
                image.block(pointer(&inode, slot)).fill(fill);
            },
            &["pointer-block"],
        );
    }
    planted(
        "ext2",
        |image| {
            let inode = image.read_inode(image.inode_of("large"));
            image.block(pointer(&inode, 12))[20..28].fill(0xFF);
        },
        &["pointer-range"],
    );
}

/// Changes the first attribute entry in a record, which begins behind the extra fields and the magic.
fn in_attribute(base: &str, path: &str, edit: impl FnOnce(&mut [u8]), expected: &[&str]) {
    in_inode(
        base,
        path,
        |inode| {
            let at = inode.attributes_offset().unwrap() + 4;
            edit(&mut inode.bytes_mut()[at..]);
        },
        expected,
    );
}

#[test]
fn attributes_in_inodes() {
    in_attribute("ext4", "a/small", |entry| entry[8] = 0xFF, &["xattr-value"]);
    in_attribute("ext4", "a/small", |entry| entry[2..4].fill(0xFF), &["xattr-value"]);
    in_attribute("ext4", "a/small", |entry| entry[0] = 0xFF, &["xattr-structure"]);
    in_attribute("ext4", "a/small", |entry| entry[12] ^= 0xFF, &["xattr-hash"]);
    in_attribute("ext4_4k", "a/small", |entry| entry[2] = 0, &["xattr-value"]);
    in_attribute("ext4", "a/small", |entry| entry[4] = 1, &["xattr-value-inode"]);
    in_attribute("inline", "a/b/tiny", |entry| entry[16] = b'x', &["inline-attribute"]);
    // Even where it is empty.
    in_attribute("inline", "a/b/tiny", |entry| entry[2] += 1, &["xattr-value"]);
}

/// Changes a block of attributes, whose checksum follows.
fn in_attribute_block(base: &str, edit: impl FnOnce(&mut [u8]), expected: &[&str]) {
    planted(
        base,
        |image| {
            let block = image.read_inode(image.inode_of("large")).attribute_block();
            let sealer = image.format.sealer;
            let bytes = image.block(block);
            edit(bytes);
            sealer.seal_attribute_block(block, bytes);
        },
        expected,
    );
}

#[test]
fn attributes_in_blocks() {
    in_attribute_block("ext4", |bytes| bytes[0] ^= 1, &["xattr-block"]);
    in_attribute_block("ext4", |bytes| bytes[8] = 2, &["xattr-block"]);
    in_attribute_block("ext4", |bytes| bytes[4] = 3, &["xattr-references"]);
    in_attribute_block("ext2", |bytes| bytes[4] = 0, &["xattr-references"]);
    in_attribute_block("ext4", |bytes| bytes[32] = 0xFF, &["xattr-hash"]);
    in_attribute_block("ext4", |bytes| bytes[33] = 0, &["xattr-name"]);
    in_attribute_block("ext4", |bytes| bytes[34..36].fill(0xFF), &["xattr-value"]);
    in_attribute_block("ext4", |bytes| bytes[40..44].fill(0x7F), &["xattr-value"]);
    in_attribute_block("ext4", |bytes| bytes[44] ^= 1, &["xattr-hash"]);
    planted(
        "ext4",
        |image| {
            let block = image.read_inode(image.inode_of("large")).attribute_block();
            image.block(block)[16] ^= 1;
        },
        &["xattr-block-checksum"],
    );
    in_inode("ext4", "large", |inode| inode.set_attribute_block(Block(1 << 40)), &["xattr-block-place"]);
    in_inode("ext2", "large", |inode| inode.set_attribute_block(Block(0xFFFF_FF00)), &["xattr-block-place"]);
}

/// Where the first extent of a file begins.
fn first_block(image: &Image, path: &str) -> Block {
    Extent::read(&image.read_inode(image.inode_of(path)).raw().i_block[12..24]).start
}

/// The bytes of a file as the library reads them.
pub fn contents(bytes: &[u8], path: &str) -> Vec<u8> {
    let device = platfs::device::MemoryDevice::from_bytes(bytes);
    let options = platfs::OpenOptions::new();
    let volume = platfs::Volume::open(std::sync::Arc::new(device), &options).unwrap();
    let inode = volume.resolve_link(path.as_bytes()).unwrap();
    let mut all = vec![0; 1 << 20];
    let read = volume.read_at(inode, 0, &mut all).unwrap();
    all.truncate(read);
    all
}

/// Plants blocks with two owners; what both read stays as it is.
pub fn shared(base: &str, plant: impl Fn(&mut Image), readable: &[&str], expected: &[&str]) {
    planted(base, &plant, expected);
    if crate::check::plant::ready("shared") {
        let mut image = Image::of(base);
        plant(&mut image);
        let (_, outcome) = crate::check::plant::checked(&image.bytes);
        let after = crate::check::plant::repaired(&outcome);
        for path in readable {
            assert_eq!(contents(&after, path), contents(&image.bytes, path), "{base}: {path}");
        }
    }
}

#[test]
fn blocks_with_several_owners() {
    let two_files = |image: &mut Image| {
        let other = first_block(image, "a/b/c/other");
        let number = image.inode_of("large");
        image.inode(number, |inode| in_root(inode, |_, first| first.start = Block(other.0 - 3)));
    };
    let with_layout = |image: &mut Image| {
        let table = image.read_descriptor(0).inode_table();
        let number = image.inode_of("a/small");
        image.inode(number, |inode| in_root(inode, |_, first| first.start = table));
    };
    for base in ["ext4", "ext4_4k", "ea_inode"] {
        shared(base, two_files, &["large", "a/b/c/other"], &["blocks-shared"]);
        // Before the repair it is not read: it leads to blocks that belong to no file.
        shared(base, with_layout, &[], &["blocks-shared"]);
    }
    let pointers = |image: &mut Image| {
        let taken = pointer(&image.read_inode(image.inode_of("a/b/c/other")), 0);
        let number = image.inode_of("large");
        image.inode(number, |inode| set_pointer(inode, 3, u32::try_from(taken.0).unwrap()));
    };
    shared("ext2", pointers, &["large", "a/b/c/other"], &["blocks-shared"]);
    let twice = |image: &mut Image| {
        let number = image.inode_of("large");
        let taken = pointer(&image.read_inode(number), 0);
        image.inode(number, |inode| set_pointer(inode, 1, u32::try_from(taken.0).unwrap()));
    };
    shared("ext3", twice, &["large"], &["blocks-shared"]);
    let crooked = |image: &mut Image| {
        let number = image.inode_of("a/small");
        image.inode(number, |inode| in_root(inode, |_, first| first.start.0 += 1));
    };
    shared("bigalloc", crooked, &["a/small"], &["blocks-shared"]);
    let attributes = |image: &mut Image| {
        let taken = image.read_inode(image.inode_of("large")).attribute_block();
        let number = image.inode_of("a/small");
        image.inode(number, |inode| in_root(inode, |_, first| first.start = taken));
    };
    shared("ext4", attributes, &["a/small"], &["blocks-shared"]);
    // Two files have the block by right, and keep it together.
    let held_by_two = |image: &mut Image| {
        let taken = image.read_inode(image.inode_of("large")).attribute_block();
        let sealer = image.format.sealer;
        let block_size = image.format.geometry.block_size;
        let bytes = image.block(taken);
        bytes[4] = 2;
        sealer.seal_attribute_block(taken, bytes);
        let other = image.inode_of("a/b/c/other");
        image.inode(other, |inode| {
            inode.set_attribute_block(taken);
            let sectors = inode.sectors(block_size) + u64::from(block_size.bytes() >> 9);
            inode.set_sectors(sectors, block_size);
        });
        attributes(image);
    };
    shared("ext4", held_by_two, &["a/small"], &["blocks-shared"]);
    // One that has most of the volume: no other loses anything.
    let greedy = |image: &mut Image| {
        let number = image.inode_of("a/small");
        image.inode(number, |inode| {
            in_root(inode, |_, first| (first.start, first.count) = (Block(600), 15_000));
            inode.set_size(15_000 << 10);
            inode.raw_mut().i_blocks_lo.set(30_000);
        });
    };
    let others = ["large", "a/b/c/other", "comb"];
    shared("ext4_nocsum", greedy, &others, &["blocks-shared", "block-bitmap", "block-bitmap"]);
}

/// A volume of the Hurd: bits of modes stand where Linux has half of a block's number, and a file may have a translator, whose
/// name has a block of its own. Both are kept.
#[test]
fn fields_of_the_hurd() {
    if !ready("hurd") {
        return;
    }
    let scratch = Scratch::new("hurd");
    let (file, contents) = (scratch.join("image"), scratch.join("contents"));
    std::fs::write(&contents, "data").unwrap();
    let mut mke2fs = testkit::tool::command("mke2fs");
    let options = ["-q", "-F", "-t", "ext2", "-o", "hurd", "-b", "1024", "-I", "128"];
    testkit::tool::run(mke2fs.args(options).arg(&file).arg("8M"));
    for request in [&format!("write {} dev", contents.display()), "setb 1500 1", "sif dev translator 1500"] {
        testkit::tool::run(testkit::tool::command("debugfs").args(["-w", "-R", request]).arg(&file));
    }
    let mut image = Image::from_bytes(std::fs::read(&file).unwrap());
    let number = image.inode_of("/dev");
    let size = image.format.geometry.block_size;
    image.inode(number, |inode| {
        inode.raw_mut().i_file_acl_high.set(7);
        inode.set_sectors(4, size);
    });
    let judged = |image: &Image| {
        assert_eq!(checked(&image.bytes).0, []);
        sparse::write(&file, &image.bytes).unwrap();
        testkit::fsck::assert_clean(&file);
        assert_eq!(image.read_inode(number).raw().i_file_acl_high.get(), 7);
    };
    // debugfs leaves the counts as they were.
    let (heard, outcome) = checked(&image.bytes);
    assert!(heard.iter().all(|issue| issue.kind.id.contains("free")), "{heard:#?}");
    image.bytes = repaired(&outcome);
    judged(&image);
    image.change(|volume| {
        assert_eq!(volume.inode(number).xattrs().unwrap(), []);
        volume.inode(number).set_xattr(b"user.block", &[5; 300]).unwrap();
    });
    judged(&image);
    let volume = image.volume();
    assert_eq!(volume.inode(number).xattr(b"user.block").unwrap().unwrap(), [5; 300]);
    // The translator's block goes with the file.
    image.change(|volume| volume.unlink(InodeNumber::ROOT, b"dev").unwrap());
    assert_eq!(checked(&image.bytes).0, []);
    sparse::write(&file, &image.bytes).unwrap();
    testkit::fsck::assert_clean(&file);
}

/// An inline directory that lost its type, and the length of its first entry with it, is one all the same.
#[test]
fn inline_directories_without_a_type() {
    if !ready("inline_directories_without_a_type") {
        return;
    }
    let mut image = Image::of("inline");
    let before = contents(&image.bytes, "a/b/c/other");
    let number = image.inode_of("a/b/c");
    image.inode(number, |inode| {
        assert!(inode.flags().contains(InodeFlags::INLINE_DATA));
        let raw = inode.raw_mut();
        raw.i_mode.set(raw.i_mode.get() & 0xFFF);
        raw.i_block[8..10].copy_from_slice(&255_u16.to_le_bytes());
    });
    assert_found(&image, &["inode-type", "directory-entry-broken"], true);
    assert_eq!(contents(&repaired(&checked(&image.bytes).1), "a/b/c/other"), before);
}
