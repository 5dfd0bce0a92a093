//! Faults of directories, names and links.

use std::fs;

use ondisk::dirent::{self, Layout};
use ondisk::htree::{NODE_ENTRIES, ROOT_ENTRIES};
use ondisk::inode::{FileType, InodeFlags};
use ondisk::units::Block;
use ondisk::xattr::{self, Entry, NameIndex};
use platfs::{InodeNumber, ondisk};
use testkit::scratch::Scratch;
use testkit::sparse;
use testkit::tool;

use crate::check::plant::{Image, planted, planted_unseen};

fn layout(image: &Image) -> Layout {
    Layout {
        block_size: image.format.geometry.block_size,
        file_types: image.format.features.incompat.contains(ondisk::features::Incompat::FILETYPE),
        checksums: image.format.features.metadata_csum(),
    }
}

/// Changes a block of names; its checksum follows.
pub fn leaf(image: &mut Image, path: &str, at: u64, edit: impl FnOnce(&mut [u8])) {
    let (block, number) = (image.block_of(path, at), image.inode_of(path));
    leaf_of(image, number, block, edit);
}

fn leaf_of(image: &mut Image, number: InodeNumber, block: Block, edit: impl FnOnce(&mut [u8])) {
    let seed = image.format.sealer.inode_seed(number, image.read_inode(number).generation());
    let bytes = image.block(block);
    let tail = dirent::has_tail(bytes);
    edit(bytes);
    if tail && dirent::has_tail(bytes) {
        seed.seal_directory_leaf(bytes);
    }
}

/// The first block of a directory that no path leads to.
fn first_block(image: &Image, number: InodeNumber) -> Block {
    let map = image.volume().map(number).unwrap().next().unwrap().unwrap();
    match map.state {
        platfs::State::Mapped(start) => start,
        other => panic!("{other:?}"),
    }
}

/// Changes a block of an index, whose checksum follows.
pub fn index(image: &mut Image, path: &str, at: u64, edit: impl FnOnce(&mut [u8])) {
    let (block, number) = (image.block_of(path, at), image.inode_of(path));
    let seed = image.format.sealer.inode_seed(number, image.read_inode(number).generation());
    let bytes = image.block(block);
    edit(bytes);
    seed.seal_index_node(bytes, if at == 0 { ROOT_ENTRIES } else { NODE_ENTRIES });
}

/// Where the entry of a name begins.
pub fn entry(bytes: &[u8], name: &str) -> usize {
    let at = bytes.windows(name.len()).enumerate().find(|(at, window)| {
        *window == name.as_bytes() && *at >= 8 && usize::from(bytes[at - 2]) == name.len()
    });
    at.expect("the name").0 - 8
}

fn first_name(bytes: &[u8], layout: Layout) -> usize {
    let names = dirent::entries(bytes, layout).map(Result::unwrap);
    names
        .filter(|entry| entry.inode.is_some() && entry.name != b"." && entry.name != b"..")
        .nth(2)
        .unwrap()
        .offset
}

fn set_inode(bytes: &mut [u8], at: usize, inode: u32) {
    bytes[at..at + 4].copy_from_slice(&inode.to_le_bytes());
}

const KINDS_OF_VOLUMES: [&str; 3] = ["ext4", "ext2", "bigalloc"];

#[test]
fn entries_that_lead_nowhere() {
    for base in KINDS_OF_VOLUMES {
        let plant = |inode: u32| {
            move |image: &mut Image| {
                leaf(image, "/a", 0, |bytes| set_inode(bytes, entry(bytes, "again"), inode))
            }
        };
        planted(base, plant(9_999_999), &["entry-outside"]);
        planted(base, plant(8), &["entry-reserved"]);
        planted(base, plant(900), &["entry-unused"]);
        planted(base, plant(2), &["entry-root"]);
        planted(
            base,
            |image| {
                let own = image.inode_of("/a").get();
                leaf(image, "/a", 0, |bytes| set_inode(bytes, entry(bytes, "again"), own));
            },
            &["entry-self"],
        );
    }
}

#[test]
fn files_whose_only_name_is_damaged_go_to_lost_found() {
    for base in KINDS_OF_VOLUMES {
        planted(
            base,
            |image| leaf(image, "/a/b", 0, |bytes| set_inode(bytes, entry(bytes, "tiny"), 9_999_999)),
            &["entry-outside"],
        );
        planted(
            base,
            |image| leaf(image, "/a/b", 0, |bytes| set_inode(bytes, entry(bytes, "c"), 9_999_999)),
            &["entry-outside"],
        );
    }
}

#[test]
fn types_of_entries() {
    for base in KINDS_OF_VOLUMES {
        // No type at all is allowed.
        for code in [2, 5, 77] {
            planted(
                base,
                |image| leaf(image, "/a", 0, |bytes| bytes[entry(bytes, "small") + 7] = code),
                &["entry-type"],
            );
        }
        planted(base, |image| leaf(image, "/a", 0, |bytes| bytes[7] = 1), &["entry-type"]);
        planted(base, |image| leaf(image, "/a", 0, |bytes| bytes[12 + 7] = 1), &["entry-type"]);
    }
}

#[test]
fn names() {
    for base in KINDS_OF_VOLUMES {
        for byte in [0, b'/'] {
            planted(
                base,
                |image| leaf(image, "/a", 0, |bytes| bytes[entry(bytes, "small") + 8 + 2] = byte),
                &["entry-name"],
            );
        }
        planted(
            base,
            |image| leaf(image, "/a", 0, |bytes| bytes[entry(bytes, "again") + 6] = 0),
            &["entry-no-name"],
        );
        let rename = |to: &'static str| {
            move |image: &mut Image| {
                leaf(image, "/a", 0, |bytes| {
                    let at = entry(bytes, "again");
                    bytes[at + 6] = to.len() as u8;
                    bytes[at + 8..at + 8 + to.len()].copy_from_slice(to.as_bytes());
                });
            }
        };
        planted(base, rename("small"), &["entry-duplicate"]);
        planted(base, rename("."), &["entry-dot"]);
        planted(base, rename(".."), &["entry-dotdot"]);
    }
}

#[test]
fn two_files_of_one_name_both_stay() {
    for base in KINDS_OF_VOLUMES {
        planted(
            base,
            |image| {
                leaf(image, "/", 0, |bytes| {
                    let at = entry(bytes, "comb");
                    let other = entry(bytes, "many");
                    let name = bytes[at + 8..at + 12].to_vec();
                    bytes[other + 8..other + 12].copy_from_slice(&name);
                });
            },
            &["entry-duplicate"],
        );
    }
}

#[test]
fn names_repeated_in_different_blocks() {
    // e2fsck compares names within a block only, unless it optimizes directories.
    planted_unseen(
        "linear",
        |image| {
            let first = image.block_of("/many", 0);
            let bytes = image.block(first);
            let at = first_name(bytes, Layout { checksums: true, ..layout(&Image::of("linear")) });
            let name = bytes[at + 8..at + 8 + usize::from(bytes[at + 6])].to_vec();
            leaf(image, "/many", 3, |bytes| {
                let at = dirent::entries(bytes, layout(&Image::of("linear"))).nth(2).unwrap().unwrap().offset;
                bytes[at + 8..at + 8 + name.len()].copy_from_slice(&name);
            });
        },
        &["entry-duplicate"],
    );
}

#[test]
fn broken_entries_cost_no_other_name() {
    for base in KINDS_OF_VOLUMES {
        for len in [[0, 0], [4, 0], [13, 0], [0xFC, 0xFF]] {
            planted(
                base,
                |image| {
                    leaf(image, "/a", 0, |bytes| {
                        let at = entry(bytes, "small");
                        bytes[at + 4..at + 6].copy_from_slice(&len);
                    });
                },
                &["directory-entry-broken"],
            );
        }
        planted(
            base,
            |image| leaf(image, "/a", 0, |bytes| bytes[entry(bytes, "small") + 6] = 200),
            &["directory-entry-broken"],
        );
        planted(
            base,
            |image| leaf(image, "/many", 2, |bytes| bytes[4..6].fill(0)),
            &["directory-entry-broken"],
        );
        planted(
            base,
            |image| {
                leaf(image, "/many", 2, |bytes| {
                    let end = bytes.len() - 12;
                    bytes[..end].fill(0xA5);
                });
            },
            &["directory-entry-broken"],
        );
    }
}

#[test]
fn dots() {
    for base in KINDS_OF_VOLUMES {
        planted(base, |image| leaf(image, "/a", 0, |bytes| set_inode(bytes, 0, 0)), &["directory-dot"]);
        planted(base, |image| leaf(image, "/a", 0, |bytes| set_inode(bytes, 0, 11)), &["directory-dot"]);
        planted(base, |image| leaf(image, "/a", 0, |bytes| bytes[8] = b'x'), &["directory-dot"]);
        planted(base, |image| leaf(image, "/a", 0, |bytes| bytes[9] = b'x'), &["directory-dot"]);
        planted(base, |image| leaf(image, "/a", 0, |bytes| bytes[4..6].fill(0)), &["directory-dot"]);
        planted(base, |image| leaf(image, "/a", 0, |bytes| bytes[12 + 8] = b'x'), &["directory-dotdot"]);
        planted(base, |image| leaf(image, "/a", 0, |bytes| bytes[12 + 10] = b'x'), &["directory-dotdot"]);
        planted(base, |image| leaf(image, "/a", 0, |bytes| set_inode(bytes, 12, 0)), &["directory-dotdot"]);
        planted(
            base,
            |image| leaf(image, "/a", 0, |bytes| bytes[..24].fill(0)),
            &["directory-dot", "directory-dotdot"],
        );
        planted(
            base,
            |image| {
                leaf(image, "/empty", 0, |bytes| {
                    bytes[4] = 48;
                    bytes[12..24].fill(0);
                    let rest = u16::from_le_bytes([bytes[16], bytes[17]]);
                    let _ = rest;
                });
            },
            &["directory-dot-length", "directory-dotdot", "directory-entry-broken"],
        );
    }
}

#[test]
fn parents() {
    for base in KINDS_OF_VOLUMES {
        planted(base, |image| leaf(image, "/a/b", 0, |bytes| set_inode(bytes, 12, 2)), &["directory-parent"]);
        planted(
            base,
            |image| leaf(image, "/a/b", 0, |bytes| set_inode(bytes, 12, 900)),
            &["directory-parent"],
        );
        planted(base, |image| leaf(image, "/", 0, |bytes| set_inode(bytes, 12, 11)), &["directory-parent"]);
        planted(
            base,
            |image| index(image, "/many", 0, |bytes| set_inode(bytes, 12, 11)),
            &["directory-parent"],
        );
    }
}

#[test]
fn directories_with_two_names() {
    for base in KINDS_OF_VOLUMES {
        planted(
            base,
            |image| {
                let child = image.inode_of("/a/b/c").get();
                leaf(image, "/a", 0, |bytes| {
                    let at = entry(bytes, "again");
                    set_inode(bytes, at, child);
                    bytes[at + 7] = 2;
                });
                let small = image.inode_of("/a/small");
                image.inode(small, |inode| inode.raw_mut().i_links_count.set(1));
            },
            &["directory-twice"],
        );
    }
}

#[test]
fn directories_without_a_name() {
    for base in KINDS_OF_VOLUMES {
        let unname = |path: &'static str, name: &'static str| {
            move |image: &mut Image| {
                leaf(image, path, 0, |bytes| {
                    let at = entry(bytes, name);
                    set_inode(bytes, at, 0);
                });
            }
        };
        planted(base, unname("/a", "b"), &["directory-unconnected"]);
        planted(base, unname("/", "many"), &["directory-unconnected"]);
        planted(base, unname("/a/b", "tiny"), &["inode-unattached"]);
        planted(base, unname("/", "nothing"), &["inode-unattached-empty"]);
        planted(base, unname("/", "long-link"), &["inode-unattached"]);
        planted(
            base,
            |image| {
                unname("/a", "b")(image);
                unname("/", "lost+found")(image);
            },
            &["directory-unconnected", "directory-unconnected"],
        );
    }
}

#[test]
fn circles() {
    for base in KINDS_OF_VOLUMES {
        // e2fsck looks for circles in ways of more than 2,048 directories only.
        planted_unseen(
            base,
            |image| {
                // a/b is named by a/b/c instead of by a.
                let (b, c) = (image.inode_of("/a/b"), image.inode_of("/a/b/c"));
                let block = image.block_of("/a/b/c", 0);
                let again = image.inode_of("/a/small").get();
                leaf(image, "/a", 0, |bytes| {
                    let at = entry(bytes, "b");
                    set_inode(bytes, at, again);
                    bytes[at + 7] = bytes[at + 7].min(1);
                });
                image.inode(InodeNumber::new(again).unwrap(), |inode| inode.raw_mut().i_links_count.set(3));
                leaf_of(image, c, block, |bytes| {
                    let at = bytes.len() - 12 - 12;
                    let other = entry(bytes, "other");
                    let rest = at - other;
                    let len = u16::from_le_bytes([bytes[other + 4], bytes[other + 5]]) - rest as u16;
                    bytes[other + 4..other + 6].copy_from_slice(&(rest as u16).to_le_bytes());
                    let type_code = if bytes[other + 7] == 0 { 0 } else { 2 };
                    set_inode(bytes, at, b.get());
                    bytes[at + 4..at + 6].copy_from_slice(&len.to_le_bytes());
                    bytes[at + 6..at + 12].copy_from_slice(&[1, type_code, b'b', 0, 0, 0]);
                });
                leaf_of_dotdot(image, b, c);
            },
            &["directory-cycle"],
        );
    }
}

/// Lets `..` of a directory in a circle lead up, and the counts follow.
fn leaf_of_dotdot(image: &mut Image, b: InodeNumber, c: InodeNumber) {
    let a = image.inode_of("/a");
    image.inode(a, |inode| inode.raw_mut().i_links_count.set(2));
    image.inode(c, |inode| inode.raw_mut().i_links_count.set(3));
    let block = first_block(image, b);
    leaf_of(image, b, block, |bytes| set_inode(bytes, 12, c.get()));
}

#[test]
fn counts_of_links() {
    for base in KINDS_OF_VOLUMES {
        for (path, links) in [("/a/small", 1), ("/a/small", 7), ("/a", 9), ("/", 200), ("/large", 2)] {
            planted(
                base,
                |image| {
                    let number = image.inode_of(path);
                    image.inode(number, |inode| inode.raw_mut().i_links_count.set(links));
                },
                &["inode-links"],
            );
        }
    }
}

#[test]
fn checksums_of_leaves() {
    for base in ["ext4", "ext4_4k", "bigalloc"] {
        planted(
            base,
            |image| {
                let block = image.block_of("/a", 0);
                let bytes = image.block(block);
                let end = bytes.len();
                bytes[end - 1] ^= 1;
            },
            &["directory-checksum"],
        );
        planted(
            base,
            |image| {
                let block = image.block_of("/many", 2);
                let bytes = image.block(block);
                let at = bytes.len() - 12;
                bytes[at + 7] = 0;
            },
            &["directory-checksum-missing"],
        );
        planted(
            base,
            |image| {
                let block = image.block_of("/a", 0);
                let layout = layout(image);
                let bytes = image.block(block);
                let last = dirent::entries(bytes, layout).map(Result::unwrap).last().unwrap();
                let (at, len) = (last.offset, last.len + 12);
                bytes[at + 4..at + 6].copy_from_slice(&(len as u16).to_le_bytes());
            },
            &["directory-checksum-missing"],
        );
    }
}

const INDEXED: [&str; 2] = ["ext4", "ext2"];

#[test]
fn roots_of_indexes() {
    for base in INDEXED {
        let plant = |at: usize, value: u8| {
            move |image: &mut Image| index(image, "/many", 0, |bytes| bytes[at] = value)
        };
        planted(base, plant(24, 1), &["index-root"]);
        planted(base, plant(28, 77), &["index-root"]);
        planted(base, plant(28, 6), &["index-root"]);
        planted(base, plant(29, 4), &["index-root"]);
        planted(base, plant(30, 2), &["index-root"]);
        // Blocks of names where nodes should be.
        planted(base, plant(30, 1), &["index-node"]);
        planted(base, plant(31, 1), &["index-root"]);
        planted(base, plant(32, 9), &["index-limit"]);
        planted(base, plant(35, 0x7F), &["index-count"]);
        // One entry less: its block is not looked for.
        planted(base, |image| index(image, "/many", 0, |bytes| bytes[34] -= 1), &["index-missing"]);
        planted(base, plant(36, 99), &["index-outside"]);
        planted(
            base,
            |image| index(image, "/many", 0, |bytes| bytes.copy_within(44..48, 36)),
            &["index-twice"],
        );
        planted(base, |image| index(image, "/many", 0, |bytes| bytes[40..44].fill(0xFF)), &["index-order"]);
        planted(base, |image| index(image, "/many", 0, |bytes| bytes[43] ^= 0x08), &["index-hash"]);
        // Another hash: all names are out of place.
        planted(base, |image| index(image, "/many", 0, |bytes| bytes[28] ^= 3), &["index-hash"]);
    }
}

#[test]
fn checksums_of_indexes() {
    for base in ["ext4", "ext4_4k", "bigalloc"] {
        planted(
            base,
            |image| {
                let block = image.block_of("/many", 0);
                image.block(block)[41] ^= 1;
            },
            &["index-checksum"],
        );
    }
}

#[test]
fn names_out_of_place() {
    for base in INDEXED {
        planted(
            base,
            |image| {
                let layout = layout(image);
                leaf(image, "/many", 2, |bytes| {
                    let at = first_name(bytes, layout);
                    bytes[at + 8..at + 12].copy_from_slice(b"NAME");
                });
            },
            &["index-hash"],
        );
    }
}

#[test]
fn indexes_where_there_are_none() {
    planted(
        "linear",
        |image| {
            let number = image.inode_of("/many");
            image.inode(number, |inode| inode.set_flags(inode.flags() | InodeFlags::INDEX));
        },
        &["inode-index-flag"],
    );
    planted(
        "ext4",
        |image| {
            let number = image.inode_of("/a");
            image.inode(number, |inode| inode.set_flags(inode.flags() | InodeFlags::INDEX));
        },
        &["index-root"],
    );
    planted(
        "inline",
        |image| {
            let number = image.inode_of("/a");
            image.inode(number, |inode| inode.set_flags(inode.flags() | InodeFlags::INDEX));
        },
        &["inode-index-flag"],
    );
}

/// A pointer moved behind the last one: the directory has all its blocks, and a hole.
#[test]
fn holes() {
    planted(
        "ext2",
        |image| {
            let number = image.inode_of("/many");
            let block_len = u64::from(image.format.geometry.block_size.bytes());
            let map = image.read_inode(number).raw().i_block;
            let blocks = image.read_inode(number).size() / block_len;
            let pointers = Block(u64::from(u32::from_le_bytes(map[48..52].try_into().unwrap())));
            let end = 4 * (blocks as usize - 12);
            image.block(pointers)[end..end + 4].copy_from_slice(&map[12..16]);
            image.inode(number, |inode| {
                inode.set_flags(inode.flags() - InodeFlags::INDEX);
                inode.raw_mut().i_block[12..16].fill(0);
                inode.set_size((blocks + 1) * block_len);
            });
        },
        &["directory-hole"],
    );
}

#[test]
fn inline_directories() {
    let inline = |edit: fn(&mut [u8])| {
        move |image: &mut Image| {
            let number = image.inode_of("/a");
            assert!(image.read_inode(number).flags().contains(InodeFlags::INLINE_DATA));
            image.inode(number, |inode| edit(&mut inode.raw_mut().i_block));
        }
    };
    planted("inline", inline(|bytes| set_inode(bytes, entry(bytes, "again"), 9_999_999)), &["entry-outside"]);
    planted("inline", inline(|bytes| set_inode(bytes, entry(bytes, "again"), 900)), &["entry-unused"]);
    planted("inline", inline(|bytes| bytes[entry(bytes, "small") + 7] = 5), &["entry-type"]);
    planted("inline", inline(|bytes| bytes[entry(bytes, "small") + 9] = b'/'), &["entry-name"]);
    planted("inline", inline(|bytes| bytes[entry(bytes, "small") + 4] = 7), &["directory-entry-broken"]);
    planted("inline", inline(|bytes| set_inode(bytes, 0, 11)), &["directory-parent"]);
    planted("inline", inline(|bytes| set_inode(bytes, 0, 0)), &["directory-dotdot"]);
    planted(
        "inline",
        inline(|bytes| {
            let at = entry(bytes, "again");
            bytes[at + 8..at + 13].copy_from_slice(b"small");
        }),
        &["entry-duplicate"],
    );
}

/// Half a word behind the first part.
#[test]
fn sizes_of_inline_directories() {
    planted(
        "inline",
        |image| {
            let number = image.inode_of("/a");
            image.inode(number, |inode| {
                let data = Entry::here(NameIndex::SYSTEM, b"data", &[0; 6]);
                xattr::store_in_inode(inode, &[data]).unwrap();
                inode.set_size(66);
            });
        },
        &["inline-directory-size"],
    );
}

/// Names of an encrypted directory have at least 16 bytes.
#[test]
fn encrypted_names() {
    planted(
        "ext4",
        |image| {
            image.superblock(|raw| {
                let mut features = raw.features();
                features.incompat |= ondisk::features::Incompat::ENCRYPT;
                raw.set_features(features);
            });
            let number = image.inode_of("/a/b");
            image.inode(number, |inode| {
                let mut context = [0; 28];
                context[0] = 1;
                let entry = Entry::here(NameIndex::ENCRYPTION, b"c", &context);
                xattr::store_in_inode(inode, &[entry]).unwrap();
                inode.set_flags(inode.flags() | InodeFlags::ENCRYPT);
            });
        },
        &["entry-encrypted"; 2],
    );
}

#[test]
fn types_on_volumes_that_store_none() {
    planted(
        "no_types",
        |image| leaf(image, "/a", 0, |bytes| bytes[entry(bytes, "small") + 7] = 1),
        &["entry-type"],
    );
}

/// The image with another hash for its indexes, made so by e2fsck.
fn rehash(image: &mut Image, version: u8, unsigned: bool) {
    image.superblock(|raw| {
        raw.s_def_hash_version = version;
        let flags = raw.s_flags.get() & !3;
        raw.s_flags.set(flags | if unsigned { 2 } else { 1 });
    });
    let scratch = Scratch::new("rehash");
    let file = scratch.join("image");
    sparse::write(&file, &image.bytes).unwrap();
    let output = tool::command("e2fsck").args(["-fyD"]).arg(&file).output().unwrap();
    assert!(output.status.code().is_some_and(|code| code < 4));
    image.bytes = fs::read(&file).unwrap();
}

#[test]
fn every_hash() {
    for (version, unsigned) in [(0, false), (1, true), (2, false), (2, true), (0, true)] {
        planted(
            "ext4",
            |image| {
                rehash(image, version, unsigned);
                index(image, "/many", 0, |bytes| bytes[43] ^= 0x08);
            },
            &["index-hash"],
        );
    }
}

#[test]
fn no_root() {
    for base in ["ext4", "ext4_nocsum", "ext2"] {
        planted(
            base,
            |image| image.inode(InodeNumber::ROOT, |inode| inode.raw_mut().i_links_count.set(0)),
            &["root-missing"],
        );
    }
    let _ = FileType::Directory;
}
