//! Upkeep of a volume: reserved blocks, discard, recorded errors.

mod trim;

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use platfs::device::{Device, FileDevice};
use platfs::mkfs::{FsType, Options, Plan};
use platfs::ondisk::corrupt::Place;
use platfs::ondisk::inode::Timestamp;
use platfs::ondisk::units::InodeNumber;
use platfs::{Attributes, Error, Kind, NewInode, OpenOptions, Volume, WriteOptions, read_superblock};
use testkit::fsck;
use testkit::scratch::Scratch;

const ROOT: InodeNumber = InodeNumber::ROOT;

fn on_disk(image: &Path) -> Arc<FileDevice> {
    let file = File::options().read(true).write(true).create_new(true).open(image).unwrap();
    file.set_len(32 << 20).unwrap();
    let device = Arc::new(FileDevice::new(file).unwrap());
    let mut options = Options::new(FsType::Ext2);
    options.block_size = Some(1024);
    Plan::new(&options, device.size()).unwrap().write(&*device).unwrap();
    device
}

fn open(device: &Arc<FileDevice>, options: OpenOptions) -> Volume {
    let options = options.write(true).now(Timestamp::from_seconds(1_000_000_000));
    Volume::open(device.clone(), &options).unwrap()
}

fn file(volume: &Volume, name: &[u8]) -> InodeNumber {
    let new = NewInode { kind: Kind::File, attributes: Attributes::default(), xattrs: &[] };
    volume.create(ROOT, name, &new).unwrap()
}

/// Appends until the volume is full; returns what is free then.
fn fill_up(volume: &Volume, number: InodeNumber) -> u64 {
    let piece = vec![5; 64 << 10];
    for len in [piece.len(), 1024] {
        loop {
            let end = volume.metadata(number).unwrap().size;
            match volume.write_at(number, end, &piece[..len], WriteOptions::default()) {
                Ok(()) => {}
                Err(Error::NoSpace) => break,
                Err(other) => panic!("{other}"),
            }
        }
    }
    volume.sync().unwrap();
    volume.space().free().unwrap().0
}

fn reserve(delay: u64) {
    let scratch = Scratch::new("reserve");
    let image = scratch.join("disk.img");
    let device = on_disk(&image);
    let reserved = read_superblock(&*device).unwrap().reserved_blocks_count();
    assert!(reserved > 1000);
    let volume = open(&device, OpenOptions::new().delay(delay));
    let number = file(&volume, b"file");
    let left = fill_up(&volume.on_behalf_of(1000, 1000), number);
    assert!((reserved..reserved + 16).contains(&left), "{left} of {reserved}");
    assert!(fill_up(&volume.on_behalf_of(0, 0), number) < 4);
    volume.close().unwrap();
    fsck::assert_clean(&image);
}

/// The superblock says for whom blocks are reserved. No number of a user has a right of its own.
#[test]
fn the_reserve_is_for_whom_the_superblock_names() {
    let scratch = Scratch::new("reserve-named");
    let image = scratch.join("disk.img");
    let device = on_disk(&image);
    let reserved = read_superblock(&*device).unwrap().reserved_blocks_count();
    let volume = open(&device, OpenOptions::new());
    volume
        .change_fields(|raw| {
            raw.s_def_resuid.set(1000);
            raw.s_def_resgid.set(70);
        })
        .unwrap();
    let number = file(&volume, b"file");
    let mut left = fill_up(&volume.on_behalf_of(0, 0), number);
    assert!((reserved..reserved + 16).contains(&left), "{left} of {reserved}");
    for (uid, gid) in [(1000, 0), (0, 70)] {
        volume.truncate(number, 0).unwrap();
        left = fill_up(&volume.on_behalf_of(uid, gid), number);
        assert!(left < 4, "{left} for {uid}:{gid}");
    }
    volume.close().unwrap();
    fsck::assert_clean(&image);
}

#[test]
fn others_leave_what_is_reserved_for_the_super_user() {
    reserve(0);
}

#[test]
fn delayed_writes_of_others_leave_it_too() {
    reserve(4 << 20);
}

#[test]
fn what_is_freed_is_given_back_to_the_device_if_that_is_wanted() {
    for wanted in [false, true] {
        let scratch = Scratch::new("discard");
        let image = scratch.join("disk.img");
        let device = on_disk(&image);
        let volume = open(&device, OpenOptions::new().discard(wanted));
        let (kept, gone) = (file(&volume, b"kept"), file(&volume, b"gone"));
        for number in [kept, gone] {
            volume.write_at(number, 0, &vec![5; 8 << 20], WriteOptions::default()).unwrap();
        }
        volume.sync().unwrap();
        let before = std::fs::metadata(&image).unwrap().blocks();
        volume.unlink(ROOT, b"gone").unwrap();
        volume.sync().unwrap();
        let after = std::fs::metadata(&image).unwrap().blocks();
        assert_eq!(after + (7 << 11) < before, wanted, "{before} {after}");
        let mut back = vec![0; 8 << 20];
        assert_eq!(volume.read_at(kept, 0, &mut back).unwrap(), back.len());
        assert!(back.iter().all(|byte| *byte == 5));
        volume.close().unwrap();
        fsck::assert_clean(&image);
    }
}

#[test]
fn damage_that_was_met_is_noted_for_the_next_check() {
    let scratch = Scratch::new("fault");
    let image = scratch.join("disk.img");
    let device = on_disk(&image);
    let volume = open(&device, OpenOptions::new());
    let number = file(&volume, b"file");
    for problem in ["is odd", "is odder"] {
        volume.note_error(&Error::corrupt(Place::Inode(number), problem)).unwrap();
    }
    volume.close().unwrap();
    let raw = read_superblock(&*device).unwrap();
    assert_eq!((raw.s_error_count.get(), raw.s_first_error_ino.get()), (2, number.get()));
    assert_eq!(raw.s_last_error_time.get(), 1_000_000_000);
    let shown = testkit::tool::dumpe2fs_field(&image, "Filesystem state").unwrap();
    assert_eq!(shown.trim(), "clean with errors");
    let again = Volume::open(device, &OpenOptions::new().write(true));
    assert!(matches!(again.err(), Some(Error::Unsupported(why)) if why.contains("errors")));
}
