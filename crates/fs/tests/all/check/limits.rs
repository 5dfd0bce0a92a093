//! Volumes at a limit: more subdirectories than may be counted, and no room for a repair.

use std::sync::Arc;

use ondisk::features::RoCompat;
use ondisk::inode::LINKS_MAX;
use platfs::check::{Decision, Options, Outcome, check};
use platfs::device::{Device, FileDevice, MemoryDevice};
use platfs::mkfs::{self, FsType, Plan};
use platfs::ondisk::inode::Timestamp;
use platfs::{Attributes, Error, InodeNumber, Kind, NewInode, Times, Volume, WriteOptions, ondisk};
use testkit::scratch::Scratch;
use testkit::{fsck, sparse, tool};

use crate::check::directories::{entry, index, leaf};
use crate::check::inodes::contents;
use crate::check::plant::{Ears, Image, assert_found, assert_undone, checked, decided_at, ready, repaired};

fn new(kind: Kind<'_>) -> NewInode<'_> {
    let times = Times::all(Timestamp::from_seconds(1_700_000_000));
    NewInode { kind, attributes: Attributes { permissions: 0o755, uid: 0, gid: 0, times }, xattrs: &[] }
}

/// Takes all space there is, for the file `/filler`.
fn fill_up(volume: &Volume) {
    let filler = volume.create(InodeNumber::ROOT, b"filler", &new(Kind::File)).unwrap();
    let mut at = 0;
    for len in [1 << 16, 1 << 10] {
        let bytes = vec![0xAB; len];
        loop {
            match volume.write_at(filler, at, &bytes, WriteOptions::default()) {
                Ok(()) => at += len as u64,
                Err(Error::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn free_blocks(image: &Image) -> u64 {
    image.volume().superblock().free_blocks_count()
}

/// Unused parts cost nothing: an empty volume of 512 GiB is checked in 8 MiB.
#[test]
fn memory_does_not_follow_the_size_of_a_volume() {
    let scratch = Scratch::new("large");
    let size = 512 << 30;
    let file = std::fs::File::create_new(scratch.join("image")).unwrap();
    file.set_len(size).unwrap();
    let device = Arc::new(FileDevice::new(file).unwrap());
    Plan::new(&mkfs::Options::new(FsType::Ext4), size).unwrap().write(&*device).unwrap();
    let options = Options { threads: 2, memory: 8 << 20, ..Options::default() };
    let mut ears = Ears::repairing();
    let outcome = check(Arc::clone(&device) as Arc<dyn Device>, &options, &mut ears).unwrap();
    assert_eq!(ears.heard, []);
    assert_eq!(outcome.summary.blocks, size / 4096);
    // What does not fit is refused, not judged by half of the facts.
    let options = Options { memory: 1 << 20, ..options };
    let refused = check(device, &options, &mut Ears::repairing()).err().map(|error| error.to_string());
    assert!(refused.is_some_and(|words| words.contains("1 MiB")));
}

/// Two files with the same 40 MiB of blocks: the copies that one of them gets take no memory.
#[test]
fn copies_of_blocks_that_two_files_share_take_no_memory() {
    if !ready("copies_of_blocks_that_two_files_share_take_no_memory") {
        return;
    }
    let scratch = Scratch::new("shared");
    let file = scratch.join("image");
    tool::run(tool::command("mke2fs").args(["-q", "-F", "-t", "ext2", "-b", "1024"]).arg(&file).arg("110M"));
    let mut image = Image::from_bytes(std::fs::read(&file).unwrap());
    let bytes: Vec<u8> =
        (0..40_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24).to_le_bytes()[0]).collect();
    image.change(|volume| {
        let a = volume.create(InodeNumber::ROOT, b"a", &new(Kind::File)).unwrap();
        volume.create(InodeNumber::ROOT, b"b", &new(Kind::File)).unwrap();
        volume.write_at(a, 0, &bytes, WriteOptions::default()).unwrap();
    });
    let (a, b) = (image.read_inode(image.inode_of("a")), image.inode_of("b"));
    image.inode(b, |inode| {
        inode.raw_mut().i_block = a.raw().i_block;
        inode.raw_mut().i_blocks_lo = a.raw().i_blocks_lo;
        inode.set_size(a.size());
    });
    let device = Arc::new(MemoryDevice::from_bytes(&image.bytes));
    let options = Options { threads: 2, memory: 8 << 20, ..Options::default() };
    let outcome = check(device, &options, &mut Ears::repairing()).unwrap();
    let after = Image::from_bytes(repaired(&outcome));
    let volume = after.volume();
    for name in [b"a", b"b"] {
        let mut read = vec![0; bytes.len()];
        let number = volume.lookup(InodeNumber::ROOT, name).unwrap();
        assert_eq!(volume.read_at(number, 0, &mut read).unwrap(), bytes.len());
        assert!(read == bytes);
    }
    sparse::write(&file, &after.bytes).unwrap();
    fsck::assert_clean(&file);
}

/// A directory of more subdirectories than links are counted, on a volume that does not say so.
#[test]
fn directories_with_more_links_than_are_counted() {
    if !ready("directories_with_more_links_than_are_counted") {
        return;
    }
    let scratch = Scratch::new("links-many");
    let file = scratch.join("image");
    let made = tool::command("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", "1024", "-I", "128", "-N", "66000"])
        .args(["-O", "dir_nlink,^has_journal", "-E", "lazy_itable_init=0"])
        .arg(&file)
        .arg("100M")
        .status();
    assert!(made.unwrap().success());
    let mut image = Image::from_bytes(std::fs::read(&file).unwrap());
    image.change(|volume| {
        let many = volume.create(InodeNumber::ROOT, b"many", &new(Kind::Directory)).unwrap();
        for number in 0..u32::from(LINKS_MAX) {
            volume.create(many, format!("{number}").as_bytes(), &new(Kind::Directory)).unwrap();
        }
        assert_eq!(volume.metadata(many).unwrap().links, 1);
    });
    image.superblock(|raw| {
        let mut features = raw.features();
        features.ro_compat -= RoCompat::DIR_NLINK;
        raw.set_features(features);
    });
    assert_found(&image, &["links-many"], true);
}

/// Demands that the check of a full volume with a fault reports `expected`, the last time as the first, and that its
/// repair is whole once there is room.
fn assert_waits_for_room(image: &Image, expected: &[&str], rest: &[&str]) {
    assert_eq!(free_blocks(image), 0);
    let (before, outcome) = told(&image.bytes);
    assert_eq!(before, expected);
    assert!(!outcome.summary.is_sound());
    let after = repaired(&outcome);
    assert_undone(&image.bytes, &outcome, &after);
    let (again, second) = told(&after);
    assert_eq!(again, rest, "the second check");
    assert!(second.repaired.is_unchanged(), "nothing more is changed by trying again");
    let mut image = Image::from_bytes(after);
    image.change(|volume| volume.unlink(InodeNumber::ROOT, b"filler").unwrap());
    let (heard, outcome) = told(&image.bytes);
    assert!(!heard.contains(&"repair-no-room") && outcome.summary.is_sound(), "{heard:?}");
    let after = repaired(&outcome);
    assert_eq!(checked(&after).0, []);
    let scratch = Scratch::new("room");
    let file = scratch.join("image");
    sparse::write(&file, &after).unwrap();
    fsck::assert_clean(&file);
}

fn told(bytes: &[u8]) -> (Vec<&'static str>, Outcome) {
    let (heard, outcome) = checked(bytes);
    (heard.iter().map(|issue| issue.kind.id).collect(), outcome)
}

/// Takes a name away and leaves its file.
fn forget(image: &mut Image, directory: &str, name: &str) {
    let block = (0..).find(|at| {
        let block = image.block_of(directory, *at);
        has(image.block(block), name)
    });
    leaf(image, directory, block.unwrap(), |bytes| {
        let at = entry(bytes, name);
        bytes[at..at + 4].fill(0);
    });
}

/// The root directory takes what has no name where `lost+found` can't be made.
#[test]
fn no_room_for_lost_found() {
    if !ready("no_room_for_lost_found") {
        return;
    }
    for base in ["ext4_nojournal", "ext2", "bigalloc"] {
        let mut image = Image::of(base);
        image.change(|volume| {
            volume.rmdir(InodeNumber::ROOT, b"lost+found").unwrap();
            fill_up(volume);
        });
        forget(&mut image, "/a/b/c", "other");
        assert_eq!(free_blocks(&image), 0);
        assert_found(&image, &["inode-unattached"], true);
    }
}

/// More files without a name than the only block of lost+found has room for, among them directories.
#[test]
fn no_room_in_lost_found() {
    if !ready("no_room_in_lost_found") {
        return;
    }
    for base in ["ext2", "ext3"] {
        let mut image = Image::of(base);
        image.change(|volume| {
            volume.rmdir(InodeNumber::ROOT, b"lost+found").unwrap();
            volume.create(InodeNumber::ROOT, b"lost+found", &new(Kind::Directory)).unwrap();
            let home = volume.create(InodeNumber::ROOT, b"home", &new(Kind::Directory)).unwrap();
            for number in 0..80 {
                let name = format!("{number}").into_bytes();
                if number % 10 == 0 {
                    let sub = volume.create(home, &name, &new(Kind::Directory)).unwrap();
                    volume.create(sub, b"inside", &new(Kind::File)).unwrap();
                } else {
                    let file = volume.create(home, &name, &new(Kind::File)).unwrap();
                    volume.write_at(file, 0, &name, WriteOptions::default()).unwrap();
                }
            }
            fill_up(volume);
        });
        let names = (0..80).map(|number| format!("{number}"));
        names.for_each(|name| forget(&mut image, "/home", &name));
        let (directories, files) = (vec!["directory-unconnected"; 8], vec!["inode-unattached"; 72]);
        let expected = [&directories[..], &files, &["repair-no-room"]].concat();
        // This number has found room.
        let rest = ["inode-unattached"; 18].into_iter().chain(["repair-no-room"]);
        assert_waits_for_room(&image, &expected, &rest.collect::<Vec<_>>());
    }
}

/// True if a block of names has this one.
fn has(bytes: &[u8], name: &str) -> bool {
    bytes.windows(name.len() + 2).any(|at| usize::from(at[0]) == name.len() && &at[2..] == name.as_bytes())
}

/// A directory whose index is broken, with blocks as full as they can be: there is no room for a fresh one, so
/// it goes without.
#[test]
fn no_room_for_an_index() {
    if !ready("no_room_for_an_index") {
        return;
    }
    for base in ["ext4_nojournal", "ext2"] {
        let mut image = Image::of(base);
        image.change(fill_up);
        assert_eq!(free_blocks(&image), 0);
        index(&mut image, "/many", 0, |bytes| bytes[0x1C] = 77);
        assert_found(&image, &["index-root"], true);
    }
}

/// The only block of a root directory that is gone belongs to a file now, so that there is none for a new one.
#[test]
fn no_room_for_a_root_directory() {
    if !ready("no_room_for_a_root_directory") {
        return;
    }
    let mut image = Image::of("ext2");
    image.change(fill_up);
    let (root, file) = (image.block_of("/", 0), image.inode_of("/a/small"));
    let place = u32::try_from(root.0).unwrap().to_le_bytes();
    image.inode(file, |inode| {
        inode.raw_mut().i_block[4..8].copy_from_slice(&place);
        inode.raw_mut().i_blocks_lo.set(4);
        inode.set_size(2048);
    });
    let at = image.inode_at(InodeNumber::ROOT);
    image.bytes[at..at + 128].fill(0);
    // lost+found, for all that was below it, finds none either.
    let expected = ["inode-root", "root-missing", "repair-no-room", "repair-no-room"];
    // The inode of the root is cleared again each time, with the time of that.
    let now = testkit::clock::seconds();
    let told = |bytes: &[u8]| {
        let (heard, outcome) = decided_at(now, bytes, |_| Decision::Repair);
        (heard.iter().map(|issue| issue.kind.id).collect::<Vec<_>>(), outcome)
    };
    let (heard, outcome) = told(&image.bytes);
    assert_eq!(heard, expected);
    let after = repaired(&outcome);
    assert_undone(&image.bytes, &outcome, &after);
    let (again, second) = told(&after);
    assert_eq!(again, expected);
    assert!(repaired(&second) == after, "nothing more is changed by trying again");
}

/// Where there is no room for copies no file loses what it reads to the journal, which holds nothing any more.
#[test]
fn no_room_for_a_file_that_shares_the_journals_blocks() {
    if !ready("no_room_for_a_file_that_shares_the_journals_blocks") {
        return;
    }
    for (base, at) in [("ext4", 20), ("ext3", 0)] {
        let mut image = Image::of(base);
        image.change(fill_up);
        let (inside, file) = (image.block_of_inode(InodeNumber::JOURNAL).0 + 100, image.inode_of("a/small"));
        image.block(ondisk::units::Block(inside)).fill(b'x');
        let place = u32::try_from(inside).unwrap().to_le_bytes();
        image.inode(file, |inode| inode.raw_mut().i_block[at..at + 4].copy_from_slice(&place));
        assert_found(&image, &["blocks-shared"], true);
        let after = repaired(&checked(&image.bytes).1);
        assert!(contents(&after, "a/small").iter().all(|byte| *byte == b'x'), "{base}");
        let after = Image::from_bytes(after);
        assert!(!after.superblock_now().features().compat.contains(ondisk::features::Compat::HAS_JOURNAL));
        assert!(free_blocks(&after) > 1000, "{base}");
    }
}
