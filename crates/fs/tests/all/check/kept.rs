//! Faults behind which a careless repair loses what can be kept, and such that are easily overlooked.

use std::fs;
use std::path::Path;

use ondisk::dirent::{self, Layout};
use ondisk::extent::{self, Child, ENTRY_LEN, Entries, Head, Node};
use ondisk::features::Incompat;
use ondisk::inode::{Inode, InodeFlags};
use ondisk::units::Block;
use ondisk::xattr::{self, Entry, NameIndex};
use platfs::{InodeNumber, ondisk};
use testkit::scratch::Scratch;
use testkit::sparse;
use testkit::tool;

use crate::check::directories::{entry, leaf};
use crate::check::inodes::{contents, shared};
use crate::check::plant::{self, Image, assert_found, planted, planted_unseen};

/// An image that mke2fs makes of nothing, with what debugfs is asked to do to it.
pub fn made(test: &str, options: &[&str], size: &str, requests: &str) -> Option<Image> {
    if !tool::have_tools(test, &["mke2fs", "e2fsck", "debugfs"]) {
        return None;
    }
    let scratch = Scratch::new(test);
    let (image, script) = (scratch.join("image"), scratch.join("script"));
    let run = |command: &mut std::process::Command| {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run(tool::command("mke2fs").args(["-q", "-F"]).args(options).arg(&image).arg(size));
    fs::write(scratch.join("file"), b"some contents\n").unwrap();
    fs::write(&script, requests.replace("FILE", &scratch.join("file").display().to_string())).unwrap();
    run(tool::command("debugfs").arg("-w").arg("-f").arg(&script).arg(&image));
    Some(Image::from_bytes(fs::read(&image).unwrap()))
}

/// The image after all repairs.
fn repaired(image: &Image) -> Image {
    Image::from_bytes(plant::repaired(&plant::checked(&image.bytes).1))
}

/// Blocks of group 1 that are not in use.
fn free_blocks(image: &mut Image, count: usize) -> Vec<Block> {
    let first = image.format.geometry.group_start(ondisk::units::Group(1)).0;
    let bitmap = image.block(image.read_descriptor(1).block_bitmap()).to_vec();
    let is_free = |at: &u64| bitmap[*at as usize / 8] >> (*at % 8) & 1 == 0;
    (0..8192).filter(is_free).take(count).map(|at| Block(first + at)).collect()
}

/// A tree of more levels than Linux reads holds what it holds.
#[test]
fn trees_that_are_too_deep() {
    let deep = |image: &mut Image| {
        let number = image.inode_of("large");
        let seed = image.format.sealer.inode_seed(number, image.read_inode(number).generation());
        let mut below = Node::parse(&image.read_inode(number).raw().i_block).unwrap();
        for (depth, block) in (0..7).zip(free_blocks(image, 7)) {
            let logical = ondisk::units::FileBlock(0);
            let bytes = image.block(block);
            bytes.fill(0);
            Node { depth, capacity: extent::capacity(bytes.len()), entries: below.entries }.store(bytes);
            seed.seal_extent_node(bytes);
            let entries = Entries::Index(vec![Child { logical, node: block }]);
            below = Node { depth: depth + 1, capacity: 4, entries };
        }
        image.inode(number, |inode| {
            inode.raw_mut().i_block.fill(0);
            below.store(&mut inode.raw_mut().i_block);
        });
    };
    let before = if plant::ready("deep") { contents(&Image::of("ext4").bytes, "large") } else { return };
    planted("ext4", deep, &["extent-depth"]);
    let mut image = Image::of("ext4");
    deep(&mut image);
    assert_eq!(contents(&repaired(&image).bytes, "large"), before);
}

/// Where the feature for extents was lost, a tree without the flag for it is one all the same.
#[test]
fn trees_of_a_volume_that_lost_the_feature() {
    let options = ["-t", "ext4", "-b", "1024", "-O", "^64bit,^has_journal"];
    for path in ["a", "/"] {
        let Some(mut image) = made("lost-feature", &options, "4M", "write FILE a\n") else { return };
        let number = image.inode_of(path);
        image.inode(number, |inode| inode.set_flags(inode.flags() - InodeFlags::EXTENTS));
        image.superblock(|raw| {
            let mut features = raw.features();
            features.incompat -= Incompat::EXTENTS;
            raw.set_features(features);
        });
        let first: &[_] = if path == "/" { &[] } else { &["inode-extents-feature"] };
        assert_found(&image, &[first, &["inode-extents-flag"]].concat(), true);
        assert_eq!(contents(&repaired(&image).bytes, "a"), b"some contents\n");
    }
}

/// A node in a block of something else still says where the contents are.
#[test]
fn nodes_in_blocks_of_others() {
    let lent = |image: &mut Image| {
        let number = image.inode_of("comb");
        let child = Child::read(&image.read_inode(number).raw().i_block[ENTRY_LEN..2 * ENTRY_LEN]);
        let node = image.block(child.node).to_vec();
        let blocks = u64::from(image.format.geometry.inode_table_blocks());
        let place = Block(image.read_descriptor(1).inode_table().0 + blocks - 1);
        image.block(place).copy_from_slice(&node);
        image.inode(number, |inode| {
            let root = &mut inode.raw_mut().i_block;
            assert_eq!(Head::read(root).depth, 1);
            root[ENTRY_LEN..2 * ENTRY_LEN].copy_from_slice(&Child { node: place, ..child }.encode());
            inode.raw_mut().i_blocks_lo.set(2);
        });
    };
    planted("ext4", lent, &["inode-blocks", "blocks-shared"]);
    if plant::ready("nodes_in_blocks_of_others") {
        let mut image = Image::of("ext4");
        let before = contents(&image.bytes, "comb");
        lent(&mut image);
        assert_eq!(contents(&repaired(&image).bytes, "comb"), before);
    }
}

/// Makes room for an entry of eight bytes at `at`; the last entry gives it, or is lost.
fn put_short_entry(bytes: &mut [u8], layout: Layout, at: usize) {
    let space = layout.leaf_space();
    let last = dirent::entries(bytes, layout).map(Result::unwrap).last().unwrap();
    let (offset, len, used) = (last.offset, last.len, dirent::entry_len(last.name.len()));
    let keeps = len - used >= 8;
    if keeps {
        bytes[offset + 4..offset + 6].copy_from_slice(&(len as u16 - 8).to_le_bytes());
        bytes.copy_within(at..space - 8, at + 8);
    } else {
        let before = dirent::entries(bytes, layout).map(Result::unwrap).take_while(|one| one.offset < offset);
        let before = before.last().unwrap();
        let (from, whole) = (before.offset, before.len + len - 8);
        bytes[from + 4..from + 6].copy_from_slice(&(whole as u16).to_le_bytes());
        bytes.copy_within(at..offset, at + 8);
        bytes[offset + 8..space].fill(0);
    }
    bytes[at..at + 8].copy_from_slice(&[12, 0, 0, 0, 8, 0, 1, 1]);
}

/// An entry too short for a name takes none of those behind it.
#[test]
fn entries_of_eight_bytes() {
    for base in ["linear", "ext2"] {
        let image = if plant::ready("short entries") { Image::of(base) } else { return };
        let layout = Layout::new(image.format.geometry.block_size, &image.format.features);
        let behind = |image: &mut Image| leaf(image, "/a", 0, |bytes| put_short_entry(bytes, layout, 24));
        planted(base, behind, &["directory-entry-broken"]);
        let mut broken = Image::of(base);
        behind(&mut broken);
        let volume = repaired(&broken).volume();
        for name in ["a/b", "a/small", "a/again"] {
            assert!(volume.resolve(name.as_bytes()).is_ok(), "{base}: {name}");
        }
    }
    let mut image = Image::of("linear");
    let layout = Layout::new(image.format.geometry.block_size, &image.format.features);
    let first = image.block_of("/many", 1);
    let names: Vec<_> = dirent::entries(image.block(first), layout)
        .map(|entry| format!("/many/{}", String::from_utf8_lossy(entry.unwrap().name)))
        .collect();
    let ahead = |image: &mut Image| leaf(image, "/many", 1, |bytes| put_short_entry(bytes, layout, 0));
    planted("linear", ahead, &["directory-entry-broken"]);
    ahead(&mut image);
    let volume = repaired(&image).volume();
    for name in &names[..names.len() - 1] {
        assert!(volume.resolve(name.as_bytes()).is_ok(), "{name}");
    }
}

/// Without an inode for `lost+found` the root directory takes what has no name.
#[test]
fn no_inode_for_lost_found() {
    let requests = "rmdir lost+found\nwrite FILE a\nwrite FILE b\nwrite FILE c\nwrite FILE d\n\
                    write FILE e\nwrite FILE f\nunlink b\n";
    let options = ["-t", "ext2", "-b", "1024", "-N", "16"];
    let Some(image) = made("no-room", &options, "512K", requests) else { return };
    assert_found(&image, &["inode-unattached"], true);
    let volume = repaired(&image).volume();
    let names = volume.read_dir(InodeNumber::ROOT).unwrap().map(|entry| entry.unwrap().name);
    assert_eq!(names.filter(|name| name.starts_with(b"#")).count(), 1);
    let said: Vec<_> = plant::checked(&image.bytes).0.into_iter().map(|issue| issue.repair).collect();
    assert!(matches!(&said[..], [one] if one.contains(" /#") && one.contains("no room")), "{said:?}");
}

/// The inode of a value of an attribute.
fn value_of(image: &Image) -> InodeNumber {
    let numbers = (12..200).map(InodeNumber::constant);
    let is_value = |number: &InodeNumber| {
        let inode = image.read_inode(*number);
        inode.links() > 0 && inode.flags().contains(InodeFlags::EA_INODE)
    };
    numbers.into_iter().find(is_value).unwrap()
}

fn mark_as_value(inode: &mut Inode) {
    inode.set_flags(inode.flags() | InodeFlags::EA_INODE);
}

/// e2fsck 1.47.0 does not look at the mark of values.
#[test]
fn marks_of_values() {
    for path in ["a", "short-link", "/"] {
        planted_unseen(
            "ea_inode",
            |image| {
                let number = image.inode_of(path);
                image.inode(number, mark_as_value);
            },
            &["xattr-value-flag"],
        );
    }
    planted(
        "ea_inode",
        |image| {
            let number = image.inode_of("a/b/tiny");
            image.inode(number, mark_as_value);
            leaf(image, "/a/b", 0, |bytes| {
                let at = entry(bytes, "tiny");
                bytes[at..at + 4].fill(0);
            });
        },
        &["xattr-value-flag", "inode-unattached"],
    );
    planted(
        "ea_inode",
        |image| {
            let value = value_of(image).get();
            leaf(image, "/a", 0, |bytes| {
                let at = entry(bytes, "again");
                bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            });
        },
        &["entry-value"],
    );
    planted_unseen(
        "ea_inode",
        |image| {
            image.superblock(|raw| {
                let mut features = raw.features();
                features.incompat -= Incompat::EA_INODE;
                raw.set_features(features);
            });
        },
        &["xattr-value-feature"],
    );
}

/// Inodes of values have the length that their attributes state.
#[test]
fn lengths_of_values() {
    let plant = |image: &mut Image| {
        let value = value_of(image);
        let number = [image.inode_of("large"), image.inode_of("comb")]
            .into_iter()
            .find(|number| {
                image.read_inode(*number).bytes().windows(4).any(|word| word == value.get().to_le_bytes())
            })
            .expect("an attribute in the inode");
        image.inode(number, |inode| {
            let bytes = inode.bytes_mut();
            let at = bytes.windows(4).position(|word| word == value.get().to_le_bytes()).unwrap();
            bytes[at + 4..at + 8].fill(0);
        });
    };
    planted("ea_inode", plant, &["xattr-value-inode", "xattr-value-flag", "inode-unattached"]);
}

/// Names without case are UTF-8 on volumes that are strict about it, and only there.
#[test]
fn names_without_case_that_are_no_text() {
    let broken = |image: &mut Image| {
        let number = image.inode_of("/a");
        image.inode(number, |inode| inode.set_flags(inode.flags() | InodeFlags::CASEFOLD));
        leaf(image, "/a", 0, |bytes| bytes[entry(bytes, "small") + 8 + 2] = 0xFF);
    };
    planted_unseen("casefold", broken, &[]);
    planted(
        "casefold",
        |image| {
            broken(image);
            image.superblock(|raw| raw.s_encoding_flags.set(1));
        },
        &["entry-encoding"],
    );
}

/// A directory of which only a pointer block is left stays one.
#[test]
fn directories_of_pointer_blocks() {
    let bare = |image: &mut Image| {
        let block = image.block_of("/empty", 0);
        image.block(block).fill(0);
        let number = image.inode_of("/empty");
        image.inode(number, |inode| {
            let i_block = &mut inode.raw_mut().i_block;
            let pointer = i_block[..4].to_vec();
            i_block[..4].fill(0);
            i_block[48..52].copy_from_slice(&pointer);
        });
    };
    planted("ext2", bare, &["directory-without-blocks"]);
    let mut image = if plant::ready("pointer blocks") { Image::of("ext2") } else { return };
    bare(&mut image);
    let volume = repaired(&image).volume();
    assert_eq!(volume.read_dir(volume.resolve(b"/empty").unwrap()).unwrap().count(), 0);
}

/// Backups on volumes of revision 0 do not say in which group they are.
#[test]
fn backups_of_old_volumes() {
    let Some(mut image) =
        made("revision-0", &["-t", "ext2", "-r", "0", "-b", "1024"], "16M", "write FILE a\n")
    else {
        return;
    };
    image.bytes[1024..2048].fill(0);
    let (heard, outcome) = plant::checked(&image.bytes);
    assert_eq!(heard.first().map(|issue| issue.kind.id), Some("superblock-damaged"));
    let after = plant::repaired(&outcome);
    assert_eq!(plant::checked(&after).0, []);
    assert_eq!(contents(&after, "a"), b"some contents\n");
    let scratch = Scratch::new("revision-0");
    let file: &Path = &scratch.join("image");
    sparse::write(file, &after).unwrap();
    testkit::fsck::assert_clean(file);
}

/// Meta groups that begin behind the last one, on a volume without a backup.
#[test]
fn meta_groups_that_begin_too_late() {
    let options = ["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode,^has_journal"];
    let Some(mut image) = made("meta-bg", &options, "4M", "write FILE a\n") else { return };
    image.superblock(|raw| raw.s_first_meta_bg.set(2));
    let (heard, outcome) = plant::checked(&image.bytes);
    assert_eq!(heard.iter().map(|issue| issue.kind.id).collect::<Vec<_>>(), ["superblock-damaged"]);
    let after = plant::repaired(&outcome);
    assert_eq!(contents(&after, "a"), b"some contents\n");
    assert_eq!(plant::checked(&after).0, []);
}

/// The list of bad blocks names structures of the volume, and blocks of files.
#[test]
fn lists_of_bad_blocks() {
    let plant = |file: bool| {
        move |image: &mut Image| {
            let raw = image.read_descriptor(0);
            let structures = [Block(1), Block(2), raw.block_bitmap(), raw.inode_bitmap(), raw.inode_table()];
            let files =
                if file { vec![image.block_of("large", 3), image.block_of("/a", 0)] } else { Vec::new() };
            let all: Vec<_> = structures.into_iter().chain(files).collect();
            image.inode(InodeNumber::constant(1), |inode| {
                inode.raw_mut().i_blocks_lo.set(2 * all.len() as u32);
                for (slot, block) in inode.raw_mut().i_block.chunks_exact_mut(4).zip(&all) {
                    slot.copy_from_slice(&u32::try_from(block.0).unwrap().to_le_bytes());
                }
            });
        }
    };
    for base in ["ext2", "ext4"] {
        planted(base, plant(false), &["bad-blocks-structures"]);
        let expected = ["bad-blocks-structures", "blocks-shared", "blocks-shared"];
        shared(base, plant(true), &["large", "a/small"], &expected);
    }
}

/// Files in an encrypted directory have its policy.
#[test]
fn files_of_another_policy() {
    let context = |key: u8| {
        let mut context = [key; 28];
        context[..4].copy_from_slice(&[1, 1, 4, 0]);
        context
    };
    let encrypt = |image: &mut Image, path: &str, key: u8| {
        let number = image.inode_of(path);
        image.inode(number, |inode| {
            let context = context(key);
            xattr::store_in_inode(inode, &[Entry::here(NameIndex::ENCRYPTION, b"c", &context)]).unwrap();
            inode.set_flags(inode.flags() | InodeFlags::ENCRYPT);
        });
    };
    planted(
        "ext4",
        |image| {
            image.superblock(|raw| {
                let mut features = raw.features();
                features.incompat |= Incompat::ENCRYPT;
                raw.set_features(features);
            });
            encrypt(image, "/many/name-of-some-length-0100", 7);
            encrypt(image, "/many/name-of-some-length-0200", 8);
            encrypt(image, "/many", 7);
        },
        &["entry-policy"; 399],
    );
}

/// An inode of type pipe with contents inside is what these contents are: a directory, or a file.
#[test]
fn pipes_with_contents_inside() {
    if !plant::ready("pipes_with_contents_inside") {
        return;
    }
    let options = ["-t", "ext4", "-b", "1024", "-I", "256", "-O", "inline_data,^has_journal"];
    let requests = "mkdir d\nwrite FILE d/a\nwrite FILE b\n";
    let Some(mut image) = made("pipes", &options, "4M", requests) else { return };
    for path in ["d", "b"] {
        let number = image.inode_of(path);
        assert!(image.read_inode(number).flags().contains(InodeFlags::INLINE_DATA), "{path}");
        image.inode(number, |inode| inode.raw_mut().i_mode.set(0o010_644));
    }
    assert_found(&image, &["inode-type", "inode-type"], true);
    let after = repaired(&image);
    for path in ["d/a", "b"] {
        assert_eq!(contents(&after.bytes, path), b"some contents\n", "{path}");
    }
}

/// Where something else is called lost+found it goes to a new one, and keeps what it holds; one with other names
/// only loses this one.
#[test]
fn lost_found_is_something_else() {
    let options = ["-t", "ext4", "-b", "1024", "-I", "256", "-O", "inline_data,^has_journal"];
    let begin = "rmdir lost+found\nwrite FILE a\nunlink a\n";
    for (requests, expected) in [
        ("write FILE lost+found\n", vec!["inode-unattached", "lost-found"]),
        ("mkdir lost+found\nwrite FILE lost+found/b\n", vec!["inode-unattached", "lost-found"]),
        (
            "write FILE lost+found\nln lost+found other\nset_inode_field other links_count 2\n",
            vec!["inode-unattached", "lost-found"],
        ),
    ] {
        let Some(image) = made("no-home", &options, "4M", &format!("{begin}{requests}")) else { return };
        let old = image.inode_of("lost+found");
        assert_found(&image, &expected, true);
        let after = repaired(&image);
        let kept = match requests {
            file if file.contains("other") => "other".to_owned(),
            file if file.starts_with("write") => format!("lost+found/#{old}"),
            _ => format!("lost+found/#{old}/b"),
        };
        assert_eq!(contents(&after.bytes, &kept), b"some contents\n");
        assert_ne!(after.inode_of("lost+found"), old);
    }
}
