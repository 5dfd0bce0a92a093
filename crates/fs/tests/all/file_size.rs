//! The largest file that the library makes is the largest that Linux makes. Linux does not open a larger one.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use platfs::device::FileDevice;
use platfs::{Attributes, Error, InodeNumber, Kind, MapForm, NewInode, OpenOptions, Volume};
use testkit::mount::{Mounted, have_loop_mount};
use testkit::scratch::Scratch;
use testkit::{fsck, tool};

/// The largest size for which `fits` says yes, if it does so for all below.
fn largest(fits: impl Fn(u64) -> bool) -> u64 {
    let (mut least, mut most) = (0, 1 << 62);
    while most - least > 1 {
        let middle = u64::midpoint(least, most);
        if fits(middle) { least = middle } else { most = middle }
    }
    assert!(fits(least));
    least
}

fn make(image: &Path, options: &[&str]) {
    let _ = fs::remove_file(image);
    let mut command = tool::command("mke2fs");
    tool::run(command.args(["-q", "-F", "-t", "ext4"]).args(options).arg(image).arg("32M"));
}

fn open(image: &Path) -> Volume {
    let file = File::options().read(true).write(true).open(image).unwrap();
    Volume::open(Arc::new(FileDevice::new(file).unwrap()), &OpenOptions::new().write(true)).unwrap()
}

fn create(volume: &Volume, name: &str) -> InodeNumber {
    let new = NewInode { kind: Kind::File, attributes: Attributes::default(), xattrs: &[] };
    volume.create(InodeNumber::ROOT, name.as_bytes(), &new).unwrap()
}

#[test]
fn files_are_as_large_as_linux_lets_them_be() {
    let test = "files_are_as_large_as_linux_lets_them_be";
    if !have_loop_mount(test) || !tool::have_tools(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("file-size");
    let image = scratch.join("disk.img");
    let kinds = ["^huge_file,^extents,^64bit", "huge_file,^extents,^64bit", "^huge_file", "huge_file"];
    for (block, features) in
        ["1024", "2048", "4096"].into_iter().flat_map(|block| kinds.map(|kind| (block, kind)))
    {
        make(&image, &["-b", block, "-O", features]);
        let theirs = {
            let mounted = Mounted::read_write(&image).unwrap();
            let file = File::create(mounted.path().join("theirs")).unwrap();
            largest(|size| file.set_len(size).is_ok())
        };
        let volume = open(&image);
        let number = create(&volume, "ours");
        let ours = largest(|size| match volume.truncate(number, size) {
            Ok(()) => true,
            Err(error) => {
                assert!(matches!(error, Error::FileTooLarge(_)), "{error}");
                false
            }
        });
        assert_eq!(ours, theirs, "{block} {features}");
        volume.close().unwrap();
        let mounted = Mounted::read_only(&image).unwrap();
        assert_eq!(fs::metadata(mounted.path().join("ours")).unwrap().len(), ours, "{block} {features}");
    }
}

/// A map changes its form only where the file may be as large as it is with the other.
#[test]
fn a_map_of_a_large_file_changes_its_form_where_linux_opens_it_then() {
    let test = "a_map_of_a_large_file_changes_its_form_where_linux_opens_it_then";
    if !have_loop_mount(test) || !tool::have_tools(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("file-size");
    let image = scratch.join("disk.img");
    // What block pointers reach, as the test above has it of Linux.
    for (block, reach) in [("1024", 17_247_252_480), ("4096", 4_402_345_721_856)] {
        make(&image, &["-b", block]);
        let volume = open(&image);
        for (name, size, fits) in [("fits", reach, true), ("larger", reach + 1, false)] {
            let number = create(&volume, name);
            volume.write_at(number, 0, b"begin", platfs::WriteOptions::default()).unwrap();
            volume.truncate(number, size).unwrap();
            volume.sync().unwrap();
            match volume.inode(number).convert_map(MapForm::Pointers) {
                Ok(changed) => assert!(changed && fits, "{block} {name}"),
                Err(error) => {
                    assert!(!fits && matches!(error, Error::FileTooLarge(_)), "{block} {name}: {error}");
                }
            }
        }
        volume.close().unwrap();
        assert_eq!(fsck::complaints(&image), "");
        let mounted = Mounted::read_only(&image).unwrap();
        for (name, size) in [("fits", reach), ("larger", reach + 1)] {
            assert_eq!(fs::metadata(mounted.path().join(name)).unwrap().len(), size, "{block} {name}");
        }
    }
}
