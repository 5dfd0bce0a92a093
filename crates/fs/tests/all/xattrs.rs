//! Extended attributes and inline contents against the kernel, e2fsck and mke2fs.
#![cfg(target_os = "linux")]
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use ondisk::features::Compat;
use ondisk::units::InodeNumber;
use platfs::device::FileDevice;
use platfs::{DataMode, OpenOptions, Volume, WriteOrder};
use testkit::mount::{Mounted, have_loop_mount};
use testkit::scratch::Scratch;
use testkit::snapshot::Snapshot;
use testkit::{fsck, images, tool};

type Attributes = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(image: &Path, write: bool) -> Volume {
    let file = File::options().read(true).write(write).open(image).unwrap();
    let device = Arc::new(FileDevice::new(file).unwrap());
    Volume::open(device, &OpenOptions::new().write(write).unordered(true)).unwrap()
}

/// As a builder: quotas are counted when all is there.
fn load(image: &Path) -> Volume {
    let file = File::options().read(true).write(true).open(image).unwrap();
    let options = OpenOptions::new().write(true).unordered(true).loading(true);
    Volume::open(Arc::new(FileDevice::new(file).unwrap()), &options).unwrap()
}

fn number(path: &Path) -> InodeNumber {
    InodeNumber::new(fs::symlink_metadata(path).unwrap().ino().try_into().unwrap()).unwrap()
}

/// Attributes and contents of every file of a mounted image, as this library and the kernel see them.
fn assert_read_alike(image: &Path) {
    let volume = open(image, false);
    let mounted = Mounted::read_only(image).unwrap();
    let mut seen = 0;
    for (path, entry) in Snapshot::of(mounted.path()).unwrap().entries {
        let path = mounted.path().join(std::ffi::OsStr::from_bytes(&path));
        let inode = number(&path);
        let ours: Attributes = volume.inode(inode).xattrs().unwrap().into_iter().collect();
        assert_eq!(ours, entry.xattrs, "{}", path.display());
        seen += ours.len();
        if path.is_symlink() {
            let target = fs::read_link(&path).unwrap();
            assert_eq!(volume.read_link(inode).unwrap(), target.as_os_str().as_bytes());
        } else if path.is_file() && entry.size < 1 << 16 {
            let mut bytes = vec![0; entry.size.try_into().unwrap()];
            let read = volume.open_file(inode).unwrap().read_at(0, &mut bytes).unwrap();
            assert_eq!((read, &bytes), (bytes.len(), &fs::read(&path).unwrap()), "{}", path.display());
        }
    }
    assert!(seen > 0, "{} has no attributes", image.display());
}

#[test]
fn images_of_others_read_as_the_kernel_reads_them() {
    const TEST: &str = "images_of_others_read_as_the_kernel_reads_them";
    if !have_loop_mount(TEST) {
        return;
    }
    for name in [
        "shared-xattrs",
        "ea-inode",
        "kernel-odd-ext4-1k",
        "kernel-odd-ext3",
        "kernel-odd-inline",
        "kernel-odd-bigalloc",
        "debugfs",
    ] {
        if let Some(image) = images::golden(TEST, name) {
            assert_read_alike(&image);
        }
    }
}

fn acl() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] =
        [(1, 6, u32::MAX), (2, 5, 70_000), (4, 4, u32::MAX), (16, 5, u32::MAX), (32, 0, u32::MAX)];
    let mut bytes = vec![2, 0, 0, 0];
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// `cap_net_raw+ep`, revision 2.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn list(attributes: &[(&str, &[u8])]) -> Vec<(Vec<u8>, Vec<u8>)> {
    attributes.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.to_vec())).collect()
}

/// Attributes of the files of the write test: in the inode, split, shared, in a block only, not ASCII.
fn sets() -> Vec<Vec<(Vec<u8>, Vec<u8>)>> {
    let shared = list(&[("user.shared", &[b's'; 500]), ("trusted.too", b"t"), ("user.empty", b"")]);
    let long = format!("user.{}", "n".repeat(250));
    vec![
        list(&[("user.small", b"fits")]),
        list(&[("security.capability", &CAPABILITY), ("system.posix_acl_access", &acl())]),
        shared.clone(),
        shared.clone(),
        shared,
        list(&[(&long, b"v"), ("user.\u{e9}t\u{e9}", &[0xFF; 300])]),
        list(&[("user.a", &[1; 61]), ("user.bb", &[2; 33]), ("user.c", &[3; 33]), ("user.dddd", &[4; 400])]),
        Vec::new(),
    ]
}

struct Case {
    name: &'static str,
    options: &'static [&'static str],
    /// Bytes of an additional file's only attribute, which needs an inode of its own.
    large: Option<usize>,
}

const CASES: [Case; 8] = [
    Case { name: "ext2", options: &["-t", "ext2", "-I", "128", "-b", "1024"], large: None },
    Case { name: "ext3", options: &["-t", "ext3", "-b", "4096"], large: None },
    Case { name: "ext4", options: &["-t", "ext4", "-b", "4096"], large: None },
    Case { name: "ext4-1k", options: &["-t", "ext4", "-b", "1024", "-I", "512"], large: None },
    Case {
        name: "no-csum",
        options: &["-t", "ext4", "-b", "2048", "-O", "^metadata_csum,ea_inode"],
        large: Some(2100),
    },
    Case { name: "ea-inode", options: &["-t", "ext4", "-b", "4096", "-O", "ea_inode"], large: Some(65_536) },
    Case {
        name: "ea-inode-1k",
        options: &["-t", "ext4", "-b", "1024", "-O", "ea_inode,metadata_csum_seed"],
        large: Some(50_001),
    },
    Case {
        name: "bigalloc",
        options: &["-t", "ext4", "-b", "4096", "-O", "bigalloc,ea_inode,inline_data", "-C", "16384"],
        large: Some(40_000),
    },
];

fn make(scratch: &Scratch, case: &Case, files: usize) -> std::path::PathBuf {
    let tree = scratch.join(format!("{}-tree", case.name));
    fs::create_dir(&tree).unwrap();
    for index in 0..files {
        fs::write(tree.join(format!("f{index:02}")), "").unwrap();
    }
    let image = scratch.join(case.name);
    let mut mke2fs = tool::command("mke2fs");
    tool::run(mke2fs.args(["-q", "-F"]).args(case.options).arg("-d").arg(&tree).arg(&image).arg("32M"));
    image
}

fn inode_of(image: &Path, index: usize) -> InodeNumber {
    let said = tool::debugfs(image, &format!("stat /f{index:02}"));
    let number = said.split_whitespace().nth(1).unwrap();
    InodeNumber::new(number.parse().unwrap()).unwrap()
}

#[test]
fn the_kernel_and_e2fsck_take_what_is_written() {
    const TEST: &str = "the_kernel_and_e2fsck_take_what_is_written";
    if !tool::have_tools(TEST, &["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    let mounts = have_loop_mount(TEST);
    let scratch = Scratch::new("xattrs");
    for case in &CASES {
        let mut sets = sets();
        sets.extend(case.large.map(|size| list(&[("user.large", &vec![7; size]), ("user.small", b"s")])));
        let image = make(&scratch, case, sets.len());
        let numbers: Vec<InodeNumber> = (0..sets.len()).map(|index| inode_of(&image, index)).collect();
        let volume = open(&image, true);
        for (number, set) in numbers.iter().zip(&sets) {
            volume.inode(*number).set_xattrs(set).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        }
        volume.sync().unwrap();
        let blocks: Vec<_> =
            numbers[2..5].iter().map(|number| volume.metadata(*number).unwrap().attribute_block).collect();
        assert!(
            blocks[0].is_some() && blocks.iter().all(|block| *block == blocks[0]),
            "not shared: {blocks:?}"
        );
        volume.close().unwrap();
        fsck::assert_clean(&image);
        let again = open(&image, false);
        for (number, set) in numbers.iter().zip(&sets) {
            let expected: Attributes = set.iter().cloned().collect();
            let ours: Attributes = again.inode(*number).xattrs().unwrap().into_iter().collect();
            assert_eq!(ours, expected, "{}", case.name);
        }
        if mounts {
            let mounted = Mounted::read_only(&image).unwrap();
            let entries = Snapshot::of(mounted.path()).unwrap().entries;
            for (index, set) in sets.iter().enumerate() {
                let kernel = &entries[format!("f{index:02}").as_bytes()].xattrs;
                assert_eq!(kernel, &set.iter().cloned().collect::<Attributes>(), "{} {index}", case.name);
            }
        }
    }
}

#[test]
fn single_changes_keep_the_rest_and_the_counts() {
    const TEST: &str = "single_changes_keep_the_rest_and_the_counts";
    if !tool::have_tools(TEST, &["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    let scratch = Scratch::new("xattr-changes");
    let image = make(&scratch, &CASES[2], 3);
    let numbers: Vec<InodeNumber> = (0..3).map(|index| inode_of(&image, index)).collect();
    let volume = open(&image, true);
    let shared = list(&[("user.big", &[b'x'; 1000])]);
    for number in &numbers {
        volume.inode(*number).set_xattrs(&shared).unwrap();
    }
    // One leaves the shared block for one of its own, one for none.
    volume.inode(numbers[0]).set_xattr(b"user.big", &[b'y'; 1000]).unwrap();
    volume.inode(numbers[0]).set_xattr(b"user.more", b"in the inode").unwrap();
    volume.inode(numbers[1]).remove_xattr(b"user.big").unwrap();
    assert!(matches!(volume.inode(numbers[1]).remove_xattr(b"user.big"), Err(platfs::Error::NotFound)));
    // The block of its own stays, empty.
    volume.inode(numbers[0]).remove_xattr(b"user.big").unwrap();
    volume.inode(numbers[0]).set_xattr(b"user.again", &[b'z'; 900]).unwrap();
    volume.close().unwrap();
    fsck::assert_clean(&image);
    let volume = open(&image, false);
    let names = |at: usize| {
        volume.inode(numbers[at]).xattrs().unwrap().into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(names(0), [b"user.again".to_vec(), b"user.more".to_vec()]);
    assert_eq!(names(1), Vec::<Vec<u8>>::new());
    assert_eq!(volume.inode(numbers[2]).xattrs().unwrap(), shared);
    assert_eq!(volume.inode(numbers[2]).xattr(b"user.big").unwrap().unwrap().len(), 1000);
    assert_eq!(volume.inode(numbers[2]).xattr(b"user.other").unwrap(), None);
    assert_eq!(volume.metadata(numbers[1]).unwrap().sectors, 0);
}

/// As `cp -a` sets it: a list that says the mode only is stored and taken back by one update. A block that it filled
/// meanwhile is not there to be shared.
#[test]
fn a_block_that_comes_and_goes_in_one_update_is_not_shared() {
    const TEST: &str = "a_block_that_comes_and_goes_in_one_update_is_not_shared";
    if !tool::have_tools(TEST, &["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    let mut mode_only = vec![2, 0, 0, 0];
    for tag in [1_u16, 4, 32] {
        mode_only.extend([&tag.to_le_bytes()[..], &[6, 0], &[0xFF; 4]].concat());
    }
    let scratch = Scratch::new("xattr-come-and-go");
    let write = || OpenOptions::new().write(true);
    for (name, options) in [
        ("ordered", write().data(DataMode::Ordered)),
        ("writeback", write().data(DataMode::Writeback)),
        ("journal", write().data(DataMode::Journal)),
        ("async", write().unordered(true)),
        ("softdep", write().ordering(WriteOrder::Softdep)),
        ("sync", write().ordering(WriteOrder::Sync)),
    ] {
        let shares = !matches!(name, "softdep" | "sync");
        let options_of: &[&str] =
            if shares { &["-t", "ext4"] } else { &["-t", "ext4", "-O", "^has_journal"] };
        let image = make(&scratch, &Case { name, options: options_of, large: None }, 4);
        let numbers: Vec<InodeNumber> = (0..4).map(|index| inode_of(&image, index)).collect();
        let file = File::options().read(true).write(true).open(&image).unwrap();
        let volume = Volume::open(Arc::new(FileDevice::new(file).unwrap()), &options).unwrap();
        let set = |number, name: &[u8], value: &[u8]| {
            volume.inode(number).set_xattr(name, value).unwrap_or_else(|e| panic!("{name:?} {number}: {e}"));
        };
        for number in &numbers {
            set(*number, b"user.a", b"0123456789");
            set(*number, b"user.b", b"9876543210");
            set(*number, b"system.posix_acl_access", &mode_only);
        }
        // Blocks that stay are shared as ever.
        for number in &numbers[2..] {
            set(*number, b"system.posix_acl_access", &acl());
        }
        volume.sync().unwrap();
        let block = |at: usize| volume.metadata(numbers[at]).unwrap().attribute_block;
        assert_eq!((block(0), block(1)), (None, None), "{name}");
        assert_eq!(block(2).is_some() && block(2) == block(3), shares, "{name}");
        volume.close().unwrap();
        fsck::assert_clean(&image);
    }
}

#[test]
fn what_does_not_fit_or_is_not_allowed_is_refused_and_changes_nothing() {
    const TEST: &str = "what_does_not_fit_or_is_not_allowed_is_refused_and_changes_nothing";
    if !tool::have_tools(TEST, &["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    let scratch = Scratch::new("xattr-refusals");
    let image = make(&scratch, &CASES[2], 1);
    let number = inode_of(&image, 0);
    let volume = open(&image, true);
    volume.inode(number).set_xattr(b"user.kept", b"kept").unwrap();
    let long = [b"user.".to_vec(), vec![b'n'; 251]].concat();
    for (name, value, said) in [
        (&b"user.large"[..], vec![0; 5000], "ea_inode"),
        (b"user.huge", vec![0; 65_537], "at most 65536"),
        (b"system.data", vec![0], "belongs to the file system"),
        (b"btrfs.x", vec![0], "no such prefix"),
        (b"user.", vec![0], "nothing follows"),
        (&long, vec![0], "256 bytes"),
        (b"system.posix_acl_access", vec![1, 0, 0, 0], "version 1 instead of 2"),
    ] {
        let error = volume.inode(number).set_xattr(name, &value).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    assert_eq!(volume.inode(number).xattrs().unwrap(), list(&[("user.kept", b"kept")]));
    volume.close().unwrap();
    fsck::assert_clean(&image);
}

#[test]
fn inline_contents_are_written_and_outgrow_the_inode() {
    const TEST: &str = "inline_contents_are_written_and_outgrow_the_inode";
    if !tool::have_tools(TEST, &["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    let mounts = have_loop_mount(TEST);
    let scratch = Scratch::new("inline");
    let options: &[&str] = &["-t", "ext4", "-b", "4096", "-O", "inline_data"];
    let image = make(&scratch, &Case { name: "inline", options, large: None }, 8);
    let numbers: Vec<InodeNumber> = (0..8).map(|index| inode_of(&image, index)).collect();
    let volume = open(&image, true);
    // The inode has room for 60 bytes and 68 more; an attribute takes from that.
    let sizes = [1_usize, 59, 60, 61, 128, 129, 100, 100];
    volume.inode(numbers[6]).set_xattrs(&list(&[("user.attribute", &[5; 40])])).unwrap();
    for (number, size) in numbers.iter().zip(sizes) {
        volume.writer(*number, size as u64).unwrap().write_all_at(0, &vec![b'i'; size]).unwrap();
    }
    volume.inode(numbers[1]).set_xattrs(&list(&[("user.later", &[6; 40])])).unwrap();
    volume.writer(numbers[7], 0).unwrap().write_all_at(100, &[b'm'; 5000]).unwrap();
    let in_blocks = |at: usize| volume.metadata(numbers[at]).unwrap().sectors > 0;
    assert_eq!(
        (0..8).map(in_blocks).collect::<Vec<_>>(),
        [false, false, false, false, false, true, true, true]
    );
    volume.close().unwrap();
    fsck::assert_clean(&image);
    let volume = open(&image, false);
    let mounted = mounts.then(|| Mounted::read_only(&image).unwrap());
    for (index, size) in sizes.into_iter().enumerate() {
        let mut expected = vec![b'i'; size];
        expected.resize(if index == 7 { 5100 } else { size }, b'm');
        let mut ours = vec![0; 6000];
        let read = volume.open_file(numbers[index]).unwrap().read_at(0, &mut ours).unwrap();
        assert_eq!(&ours[..read], expected);
        if let Some(mounted) = &mounted {
            assert_eq!(fs::read(mounted.path().join(format!("f{index:02}"))).unwrap(), expected);
        }
    }
    assert_eq!(volume.inode(numbers[1]).xattrs().unwrap().len(), 1);
}

#[test]
fn attributes_leave_symbolic_links_readable() {
    const TEST: &str = "attributes_leave_symbolic_links_readable";
    if !have_loop_mount(TEST) {
        return;
    }
    let scratch = Scratch::new("xattr-links");
    // Without inline_data: e2fsck 1.47 overlooks attribute blocks of inline symbolic links.
    let options: &[&str] = &["-t", "ext4", "-b", "4096", "-O", "bigalloc,ea_inode", "-C", "16384"];
    for case in [&CASES[2], &CASES[6], &Case { name: "bigalloc", options, large: Some(40_000) }] {
        let tree = scratch.join(format!("{}-tree", case.name));
        fs::create_dir(&tree).unwrap();
        let targets = ["t".repeat(5), "t".repeat(59), "t".repeat(60), "t".repeat(200)];
        for (index, target) in targets.iter().enumerate() {
            std::os::unix::fs::symlink(target, tree.join(format!("f{index:02}"))).unwrap();
        }
        let image = scratch.join(case.name);
        let mut mke2fs = tool::command("mke2fs");
        tool::run(mke2fs.args(["-q", "-F"]).args(case.options).arg("-d").arg(&tree).arg(&image).arg("16M"));
        let numbers: Vec<InodeNumber> = (0..targets.len()).map(|index| inode_of(&image, index)).collect();
        let volume = open(&image, true);
        for number in &numbers {
            volume.inode(*number).set_xattr(b"trusted.block", &[1; 400]).unwrap();
            if let Some(size) = case.large {
                volume.inode(*number).set_xattr(b"trusted.large", &vec![2; size]).unwrap();
            }
        }
        volume.sync().unwrap();
        for (number, target) in numbers.iter().zip(&targets) {
            assert_eq!(volume.read_link(*number).unwrap(), target.as_bytes(), "{}", case.name);
        }
        volume.close().unwrap();
        fsck::assert_clean(&image);
        assert_read_alike(&image);
    }
}

#[test]
fn quota_counts_values_for_their_owners() {
    const TEST: &str = "quota_counts_values_for_their_owners";
    if !tool::have_tools(TEST, &["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    let scratch = Scratch::new("xattr-quota");
    let options: &[&str] = &[
        "-t",
        "ext4",
        "-b",
        "4096",
        "-O",
        "quota,project,ea_inode,orphan_file",
        "-E",
        "quotatype=usrquota:grpquota:prjquota",
    ];
    let image = make(&scratch, &Case { name: "quota", options, large: None }, 3);
    let numbers: Vec<InodeNumber> = (0..3).map(|index| inode_of(&image, index)).collect();
    let volume = load(&image);
    volume.inode(numbers[0]).set_xattr(b"user.large", &[2; 20_000]).unwrap();
    volume
        .inode(numbers[1])
        .set_xattrs(&list(&[("user.large", &[3; 9000]), ("user.b", &[4; 5000])]))
        .unwrap();
    platfs::quota::rebuild(&volume).unwrap();
    volume.close().unwrap();
    fsck::assert_clean(&image);
}

/// As Linux does: the first attribute brings the feature along.
#[test]
fn the_first_attribute_brings_its_feature() {
    const TEST: &str = "the_first_attribute_brings_its_feature";
    if !tool::have_tools(TEST, &["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    let scratch = Scratch::new("xattr-feature");
    const WITHOUT: [(&str, &[&str]); 2] = [
        ("no-feature", &["-t", "ext4", "-b", "1024", "-O", "^ext_attr"]),
        ("no-journal", &["-t", "ext4", "-b", "1024", "-O", "^ext_attr,^has_journal"]),
    ];
    for (name, options) in WITHOUT {
        let image = make(&scratch, &Case { name, options, large: None }, 1);
        let file = File::options().read(true).write(true).open(&image).unwrap();
        let how = OpenOptions::new().write(true);
        let volume = Volume::open(Arc::new(FileDevice::new(file).unwrap()), &how).unwrap();
        let number = inode_of(&image, 0);
        volume.inode(number).set_xattr(b"user.block", &[1; 500]).unwrap();
        volume.close().unwrap();
        fsck::assert_clean(&image);
        let volume = open(&image, false);
        assert!(volume.superblock().features().compat.contains(Compat::EXT_ATTR));
        assert_eq!(volume.inode(number).xattr(b"user.block").unwrap().unwrap(), [1; 500]);
    }
}
