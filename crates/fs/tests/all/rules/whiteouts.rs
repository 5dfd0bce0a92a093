//! Renames that leave a whiteout behind.

use super::{ROOT, new, on_disk};
use platfs::mkfs::FsType;
use platfs::ondisk::inode::{FileType, Timestamp};
use platfs::{Attributes, Error, Kind, OpenOptions, Replace, Volume, WriteOrder};
use testkit::fsck;
use testkit::scratch::Scratch;

#[test]
fn an_old_name_comes_to_mean_a_whiteout_with_the_new_one() {
    for (ordering, journal) in [
        (WriteOrder::Async, ""),
        (WriteOrder::Softdep, "^has_journal"),
        (WriteOrder::default(), "has_journal"),
    ] {
        let scratch = Scratch::new("whiteout");
        let image = scratch.join("disk.img");
        let device = on_disk(&image, FsType::Ext4, journal);
        let now = Timestamp::from_seconds(1_000_000_000);
        let how = OpenOptions::new().write(true).ordering(ordering).now(now);
        let volume = Volume::open(device, &how).unwrap();
        let directory = volume.create(ROOT, b"dir", &new(Kind::Directory)).unwrap();
        // Blocks of names of its own for each, as far as that goes.
        for number in 0..200 {
            let name = format!("{number:0>200}");
            volume.create(ROOT, name.as_bytes(), &new(Kind::Fifo)).unwrap();
        }
        let leave = |from: &[u8], to: (_, &[u8]), replace| {
            volume.rename_with_whiteout((ROOT, from), to, replace, Attributes::default())
        };
        let is_whiteout = |name: &[u8]| {
            let found = volume.metadata(volume.lookup(ROOT, name).unwrap()).unwrap();
            found.file_type == FileType::CharDevice && found.device == Some((0, 0)) && found.links == 1
        };
        let file = volume.create(ROOT, b"file", &new(Kind::File)).unwrap();
        volume.create(ROOT, b"other", &new(Kind::File)).unwrap();
        volume.sync().unwrap();
        assert!(matches!(leave(b"file", (ROOT, b"other"), Replace::No), Err(Error::Exists)));
        assert!(matches!(leave(b"file", (ROOT, b"other"), Replace::Exchange), Err(Error::Invalid(_))));
        leave(b"file", (ROOT, b"other"), Replace::Yes).unwrap();
        assert!(volume.lookup(ROOT, b"other").unwrap() == file && is_whiteout(b"file"));
        leave(b"dir", (ROOT, b"moved"), Replace::No).unwrap();
        assert!(volume.lookup(ROOT, b"moved").unwrap() == directory && is_whiteout(b"dir"));
        let across = leave(b"other", (directory, b"in"), Replace::No);
        if ordering == WriteOrder::Softdep {
            assert!(matches!(across, Err(Error::Unsupported(_))), "{across:?}");
            assert_eq!(volume.lookup(ROOT, b"other").unwrap(), file);
        } else {
            across.unwrap();
            assert!(volume.lookup(directory, b"in").unwrap() == file && is_whiteout(b"other"));
        }
        volume.close().unwrap();
        fsck::assert_clean(&image);
    }
}
