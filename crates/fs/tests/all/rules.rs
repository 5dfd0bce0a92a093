//! Rules that single verbs keep: flags, access control lists, times, limits of links, files without a
//! name, the mark of a volume in use, large directories that shrink and grow again.

mod flags;
mod whiteouts;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use platfs::device::{Device, FileDevice, MemoryDevice};
use platfs::mkfs::{FsType, Options, Plan, parse_features};
use platfs::ondisk::inode::{FileType, InodeFlags, Timestamp};
use platfs::ondisk::units::InodeNumber;
use platfs::{
    AccessTimes, Allocate, Attributes, CreateRequest, Error, Kind, NewInode, OpenOptions, Replace, Seek,
    Volume,
};
use testkit::scratch::Scratch;
use testkit::{fsck, tool};

const ROOT: InodeNumber = InodeNumber::ROOT;

fn format(device: &dyn Device, fs_type: FsType, features: &str) {
    let mut options = Options::new(fs_type);
    options.block_size = Some(1024);
    options.features = parse_features(features).unwrap();
    Plan::new(&options, device.size()).unwrap().write(device).unwrap();
}

fn volume(features: &str) -> Volume {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    format(&*device, FsType::Ext4, features);
    let now = Timestamp::from_seconds(1_000_000_000);
    Volume::open(device, &OpenOptions::new().write(true).unordered(true).now(now)).unwrap()
}

fn on_disk(image: &Path, fs_type: FsType, features: &str) -> Arc<dyn Device> {
    let file = File::options().read(true).write(true).create_new(true).open(image).unwrap();
    file.set_len(64 << 20).unwrap();
    let device = Arc::new(FileDevice::new(file).unwrap().without_flush());
    format(&*device, fs_type, features);
    device
}

fn new(kind: Kind<'_>) -> NewInode<'_> {
    NewInode { kind, attributes: Attributes { permissions: 0o755, ..Attributes::default() }, xattrs: &[] }
}

fn write(volume: &Volume, inode: InodeNumber, offset: u64, data: &[u8]) -> platfs::Result<()> {
    volume.writer(inode, 0)?.write_all_at(offset, data)
}

fn is_refused<T: std::fmt::Debug>(done: platfs::Result<T>) {
    assert!(matches!(done, Err(Error::NotPermitted(_))), "{done:?}");
}

#[test]
fn immutable_and_append_only_hold_for_every_verb() {
    let volume = volume("");
    let dir = volume.create(ROOT, b"dir", &new(Kind::Directory)).unwrap();
    let file = volume.create(dir, b"file", &new(Kind::File)).unwrap();
    write(&volume, file, 0, b"before").unwrap();
    let flags = volume.metadata(file).unwrap().flags;
    volume.inode(file).set_flags(flags | InodeFlags::IMMUTABLE).unwrap();
    is_refused(write(&volume, file, 6, b"after"));
    is_refused(volume.truncate(file, 0));
    is_refused(volume.allocate(file, Allocate::Extend, 0, 5000));
    is_refused(volume.unlink(dir, b"file"));
    is_refused(volume.rename(dir, b"file", ROOT, b"else", Replace::Yes));
    is_refused(volume.link(file, ROOT, b"more"));
    is_refused(volume.inode(file).set_permissions(0o700));
    is_refused(volume.inode(file).set_xattr(b"user.a", b"b"));
    volume.inode(file).set_flags(flags | InodeFlags::APPEND).unwrap();
    is_refused(write(&volume, file, 0, b"over"));
    is_refused(volume.truncate(file, 100));
    is_refused(volume.unlink(dir, b"file"));
    write(&volume, file, 6, b", after").unwrap();
    assert_eq!(volume.metadata(file).unwrap().size, 13);
    volume.inode(file).set_flags(flags).unwrap();
    let flags = volume.metadata(dir).unwrap().flags;
    volume.inode(dir).set_flags(flags | InodeFlags::APPEND).unwrap();
    is_refused(volume.unlink(dir, b"file"));
    volume.create(dir, b"new", &new(Kind::File)).unwrap();
    volume.inode(dir).set_flags(flags | InodeFlags::IMMUTABLE).unwrap();
    is_refused(volume.create(dir, b"newer", &new(Kind::File)));
    assert!(volume.inode(file).set_flags(InodeFlags::empty()).is_err(), "the map is not a user's flag");
}

/// A list of owner 7, user 5: 6, group 5, mask 6, others 0, as system calls give it.
fn named_list() -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0];
    for (tag, permissions, id) in
        [(1u16, 7u16, u32::MAX), (2, 6, 5), (4, 5, u32::MAX), (16, 6, u32::MAX), (32, 0, u32::MAX)]
    {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

#[test]
fn lists_and_modes_follow_each_other_and_are_inherited() {
    let volume = volume("");
    let dir = volume.create(ROOT, b"dir", &new(Kind::Directory)).unwrap();
    volume.inode(dir).set_xattr(b"system.posix_acl_access", &named_list()).unwrap();
    assert_eq!(volume.metadata(dir).unwrap().permissions, 0o760, "the mask is the group's part of the mode");
    volume.inode(dir).set_permissions(0o2710).unwrap();
    let list = volume.inode(dir).xattr(b"system.posix_acl_access").unwrap().unwrap();
    assert_eq!((list[30], list[22]), (1, 5), "the mask follows the mode, the group does not");
    volume.inode(dir).set_xattr(b"system.posix_acl_default", &named_list()).unwrap();
    let wanted =
        CreateRequest { file_type: FileType::Regular, permissions: 0o664, umask: 0o077, uid: 1, gid: 2 };
    let inherited = volume.inherit(dir, &wanted).unwrap();
    assert_eq!(inherited.attributes.permissions, 0o660, "the list takes the place of the umask");
    assert_eq!(inherited.attributes.gid, 0, "the group of a directory with the set-group-id bit");
    assert_eq!(inherited.xattrs.len(), 1);
    let below = CreateRequest { file_type: FileType::Directory, ..wanted };
    let inherited = volume.inherit(dir, &below).unwrap();
    assert_eq!((inherited.attributes.permissions, inherited.xattrs.len()), (0o2660, 2));
    assert_eq!(volume.inherit(ROOT, &wanted).unwrap().attributes.permissions, 0o600);
}

#[test]
fn times_follow_what_is_done() {
    let volume = volume("");
    let at = Timestamp::from_seconds;
    let file = volume.create(ROOT, b"file", &new(Kind::File)).unwrap();
    let opened = &volume;
    let times = || opened.metadata(file).unwrap().times;
    let volume = opened.at_time(at(1_000_000_100));
    write(&volume, file, 0, b"x").unwrap();
    assert_eq!((times().modify, times().change), (at(1_000_000_100), at(1_000_000_100)));
    let volume = volume.at_time(at(1_000_000_200));
    volume.inode(file).set_permissions(0o600).unwrap();
    assert_eq!((times().modify, times().change), (at(1_000_000_100), at(1_000_000_200)));
    volume.inode(file).note_access(AccessTimes::Off).unwrap();
    assert_eq!(times().access, at(0));
    volume.inode(file).note_access(AccessTimes::Relative).unwrap();
    assert_eq!(times().access, at(1_000_000_200));
    let volume = volume.at_time(at(1_000_000_300));
    volume.link(file, ROOT, b"other").unwrap();
    assert_eq!(times().change, at(1_000_000_300));
    assert_eq!(volume.metadata(ROOT).unwrap().times.modify, at(1_000_000_300));
    volume.unlink(ROOT, b"other").unwrap();
    volume.inode(file).set_times(Some(at(5)), None).unwrap();
    assert_eq!((times().access, times().modify), (at(5), at(1_000_000_100)));
}

#[test]
fn a_number_used_again_has_another_generation() {
    let volume = volume("");
    let mut seen = BTreeSet::new();
    let mut numbers = BTreeSet::new();
    for _ in 0..5 {
        let number = volume.create(ROOT, b"file", &new(Kind::File)).unwrap();
        numbers.insert(number);
        assert!(seen.insert(volume.metadata(number).unwrap().generation));
        volume.unlink(ROOT, b"file").unwrap();
        volume.sync().unwrap();
    }
    // The first try at the first may have missed a block of the table, and left its number alone since.
    assert!(numbers.len() < 3, "the test is about numbers that are used again");
}

#[test]
fn all_space_comes_back() {
    for features in ["", "bigalloc", "inline_data", "ea_inode"] {
        let volume = volume(features);
        volume.sync().unwrap();
        let before = volume.space().free_after_sync();
        let dir = volume.create(ROOT, b"dir", &new(Kind::Directory)).unwrap();
        for number in 0..300 {
            let file = volume.create(dir, format!("file{number}").as_bytes(), &new(Kind::File)).unwrap();
            write(&volume, file, number * 3000, &vec![7; 9000]).unwrap();
            volume.inode(file).set_xattr(b"user.some", &vec![8; 600]).unwrap();
        }
        for number in 0..300 {
            volume.unlink(dir, format!("file{number}").as_bytes()).unwrap();
        }
        volume.rmdir(ROOT, b"dir").unwrap();
        assert_eq!(volume.space().free_after_sync(), before, "{features}: before the sync");
        volume.sync().unwrap();
        assert_eq!(volume.space().free(), before, "{features}: after it");
    }
}

#[test]
fn holes_are_found_where_they_are() {
    let volume = volume("");
    let file = volume.create(ROOT, b"file", &new(Kind::File)).unwrap();
    write(&volume, file, 10 * 1024, &[1; 2048]).unwrap();
    volume.allocate(file, Allocate::Extend, 20 * 1024, 4096).unwrap();
    let seek = |offset, what| volume.seek(file, offset, what).unwrap();
    assert_eq!((seek(0, Seek::Hole), seek(0, Seek::Data)), (Some(0), Some(10 * 1024)));
    assert_eq!((seek(10_300, Seek::Data), seek(10_300, Seek::Hole)), (Some(10_300), Some(12 * 1024)));
    assert_eq!(seek(13 * 1024, Seek::Data), None, "space that was never written is a hole");
    assert_eq!(seek(24 * 1024, Seek::Hole), None, "behind the end");
}

#[test]
fn a_volume_that_was_not_closed_is_not_written_again() {
    if !tool::have_tools("a_volume_that_was_not_closed_is_not_written_again", &["e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("rules");
    let image = scratch.join("disk.img");
    let device = on_disk(&image, FsType::Ext4, "^has_journal");
    let write_options =
        OpenOptions::new().write(true).unordered(true).now(Timestamp::from_seconds(1_700_000_000));
    let volume = Volume::open(Arc::clone(&device), &write_options).unwrap();
    let open = volume.create(ROOT, b"open", &new(Kind::File)).unwrap();
    write(&volume, open, 0, &vec![1; 50_000]).unwrap();
    let file = volume.open_file(open).unwrap();
    volume.unlink(ROOT, b"open").unwrap();
    let (unnamed, pin) = volume.create_unnamed(ROOT, &new(Kind::File)).unwrap();
    write(&volume, unnamed, 0, &vec![2; 50_000]).unwrap();
    volume.sync().unwrap();
    assert_eq!(volume.superblock().s_last_orphan.get(), unnamed.get());
    // As if the power failed now.
    std::mem::forget(pin);
    std::mem::forget(file);
    drop(volume);
    let again = Volume::open(Arc::clone(&device), &write_options);
    assert!(again.is_err_and(|error| error.to_string().contains("not closed cleanly")));
    let said = tool::command("e2fsck").args(["-fy"]).arg(&image).output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    for inode in [open, unnamed] {
        assert!(text.contains(&format!("orphaned inode {inode}")), "{text}");
    }
    fsck::assert_clean(&image);
}

/// As in ext4, which gives EPERM.
#[test]
fn a_removed_directory_takes_no_file_without_a_name() {
    let volume = volume("");
    let directory = volume.create(ROOT, b"d", &new(Kind::Directory)).unwrap();
    let _pin = volume.pin(directory).unwrap();
    drop(volume.create_unnamed(directory, &new(Kind::File)).unwrap());
    volume.rmdir(ROOT, b"d").unwrap();
    let inodes = volume.space().free();
    let refused = volume.create_unnamed(directory, &new(Kind::File)).map(drop);
    assert!(matches!(refused, Err(Error::NotPermitted(_))), "{refused:?}");
    assert_eq!(volume.space().free(), inodes);
}

#[test]
fn large_directories_lose_names_and_get_others() {
    if !tool::have_tools("large_directories_lose_names_and_get_others", &["e2fsck"]) {
        return;
    }
    for features in ["", "large_dir", "^dir_index", "^metadata_csum"] {
        let scratch = Scratch::new("rules");
        let image = scratch.join("disk.img");
        let device = on_disk(&image, FsType::Ext4, features);
        let volume =
            Volume::open(Arc::clone(&device), &OpenOptions::new().write(true).unordered(true)).unwrap();
        let dir = volume.create(ROOT, b"many", &new(Kind::Directory)).unwrap();
        let file = volume.create(dir, b"file", &new(Kind::File)).unwrap();
        let name = |number: u32| format!("a name of some length, number {number}").into_bytes();
        let mut names: BTreeSet<Vec<u8>> = BTreeSet::from([b"file".to_vec()]);
        let many = if features == "^dir_index" { 1500 } else { 12_000 };
        for number in 0..many {
            volume.link(file, dir, &name(number)).unwrap();
            names.insert(name(number));
        }
        for number in (0..many).filter(|number| number % 7 != 0) {
            volume.unlink(dir, &name(number)).unwrap();
            names.remove(&name(number));
        }
        for number in (0..many).filter(|number| number % 7 == 0) {
            volume.rename(dir, &name(number), dir, &name(number + many), Replace::No).unwrap();
            names.remove(&name(number));
            names.insert(name(number + many));
        }
        for number in (0..many).step_by(5) {
            volume.link(file, dir, &name(number)).unwrap();
            names.insert(name(number));
        }
        let listed: BTreeSet<Vec<u8>> =
            volume.read_dir(dir).unwrap().map(|entry| entry.unwrap().name).collect();
        assert_eq!(listed.len(), names.len(), "{features}");
        assert_eq!(listed, names);
        names.iter().for_each(|name| assert_eq!(volume.lookup(dir, name).unwrap(), file));
        volume.close().unwrap();
        fsck::assert_clean(&image);
    }
}

#[test]
fn directories_count_links_up_to_the_limit_of_the_format() {
    let device = Arc::new(MemoryDevice::new(256 << 20));
    let mut options = Options::new(FsType::Ext2);
    options.block_size = Some(1024);
    options.inodes = Some(40_000);
    Plan::new(&options, device.size()).unwrap().write(&*device).unwrap();
    let volume = Volume::open(device, &OpenOptions::new().write(true).unordered(true)).unwrap();
    let file = volume.create(ROOT, b"file", &new(Kind::File)).unwrap();
    for number in 1..32_000 {
        volume.link(file, ROOT, format!("l{number}").as_bytes()).unwrap();
    }
    assert!(matches!(volume.link(file, ROOT, b"one too many"), Err(Error::TooManyLinks)));
    volume.unlink(ROOT, b"l5").unwrap();
    volume.link(file, ROOT, b"one more").unwrap();
}
