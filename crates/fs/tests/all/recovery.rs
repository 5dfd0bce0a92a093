//! Replay of journals that the kernel left: what e2fsck makes of them, and what the kernel shows.

#![cfg(target_os = "linux")]
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use crate::tree::Walk;
use platfs::device::{Device, FileDevice};
use platfs::journal::{self, Recovery};
use platfs::ondisk::units::{Group, InodeNumber};
use platfs::{Attributes, Kind, NewInode, OpenOptions, Volume};
use testkit::mount::Mounted;
use testkit::scratch::Scratch;
use testkit::snapshot::{Rules, Snapshot, differences};
use testkit::unclean::{self, KINDS, UncleanVolume};
use testkit::{fsck, mount, sparse, tool};

mod fast_commits;

fn device(image: &Path) -> Arc<dyn Device> {
    let file = File::options().read(true).write(true).open(image).unwrap();
    Arc::new(FileDevice::new(file).unwrap())
}

fn copy(image: &Path, to: &Path) {
    sparse::copy(image, to).unwrap();
}

/// Bytes that may differ from those that e2fsck leaves: of the superblock the sums of what is free (of which e2fsck
/// takes care later), the time of writing, the state of the last check, how much was written (e2fsck's doing) and its
/// checksum.
const EXCUSED: [(usize, usize); 5] = [(0x0C, 8), (0x30, 4), (0x40, 4), (0x178, 8), (0x3FC, 4)];

fn excused(at: usize) -> bool {
    EXCUSED.iter().any(|(start, len)| (1024 + start..1024 + start + len).contains(&at))
}

/// Replays a copy with e2fsck and one here: the same bytes.
fn as_e2fsck(image: &Path, scratch: &Scratch) -> Recovery {
    let [theirs, ours] = ["theirs", "ours"].map(|name| scratch.join(name));
    copy(image, &theirs);
    copy(image, &ours);
    let done = tool::command("e2fsck").args(["-y", "-E", "journal_only"]).arg(&theirs).output().unwrap();
    assert!(done.status.code().is_some_and(|code| code < 4), "{}", String::from_utf8_lossy(&done.stdout));
    let recovery = journal::replay(&device(&ours)).unwrap();
    let [theirs, ours] = [theirs, ours].map(|image| fs::read(image).unwrap());
    let differ = theirs.iter().zip(&ours).enumerate().filter(|(at, (a, b))| a != b && !excused(*at));
    let differ: Vec<_> = differ.map(|(at, _)| format!("{at:#x}")).take(20).collect();
    assert!(differ.is_empty() && theirs.len() == ours.len(), "{recovery:?}: {}", differ.join(" "));
    recovery
}

/// Opens a copy for writing and closes it, as a program that changes it does: the superblock's sums are those of its
/// groups.
fn as_written(image: &Path, scratch: &Scratch) {
    let written = scratch.join("written");
    copy(image, &written);
    let volume = Volume::open(device(&written), &OpenOptions::new().write(true)).unwrap();
    let new = NewInode { kind: Kind::File, attributes: Attributes::default(), xattrs: &[] };
    volume.create(InodeNumber::ROOT, b"new", &new).unwrap();
    volume.close().unwrap();
    fsck::assert_clean(&written);
    copy(image, &written);
    journal::replay(&device(&written)).unwrap();
    let volume = Volume::open(device(&written), &OpenOptions::new()).unwrap();
    let (raw, groups) = (volume.superblock(), volume.format().geometry.groups);
    let of = |group| volume.space().descriptor(Group(group)).unwrap();
    let (blocks, inodes) = (0..groups).map(of).fold((0, 0), |(blocks, inodes), group| {
        (blocks + u64::from(group.free_clusters()), inodes + group.free_inodes())
    });
    assert_eq!((raw.free_blocks_count(), raw.s_free_inodes_count.get()), (blocks, inodes));
}

/// Reads the image as it is, and lets the kernel replay and show a copy: the same tree.
fn as_kernel(image: &Path, scratch: &Scratch) {
    let before = fs::read(image).unwrap();
    let volume = Volume::open(device(image), &OpenOptions::new()).unwrap();
    let found = Walk::tree(&volume);
    assert!(fs::read(image).unwrap() == before, "reading changed the image");
    let replayed = scratch.join("kernel");
    copy(image, &replayed);
    let mounted = Mounted::kernel(&replayed, "loop,rw,acl,user_xattr").unwrap();
    let rules = Rules { hole_granularity: 1024, ..Rules::default() };
    let differ = differences(&Snapshot::of(mounted.path()).unwrap(), &found, &rules);
    assert!(differ.is_empty(), "{}", differ.into_iter().take(8).collect::<Vec<_>>().join("\n"));
}

fn judge(kind: &unclean::Kind, seed: u64, count: u64) -> Recovery {
    let scratch = Scratch::new("recovery");
    let mut worked = UncleanVolume::new(&scratch, kind, seed).unwrap();
    let mut sum = Recovery::default();
    for number in 0..count {
        worked.work(60 + seed * 7 % 50);
        let image = scratch.join("snapshot");
        worked.snapshot(&image).unwrap_or_else(|| panic!("{}: the image never stood still", kind.name));
        let recovery = as_e2fsck(&image, &scratch);
        as_kernel(&image, &scratch);
        as_written(&image, &scratch);
        assert_eq!(recovery.missing(), None, "{}, seed {seed}, snapshot {number}", kind.name);
        sum.transactions += recovery.transactions;
        sum.blocks += recovery.blocks;
        sum.revoked += recovery.revoked;
    }
    println!("{}: {count} snapshots, {sum:?}", kind.name);
    sum
}

fn able(test: &str) -> bool {
    tool::have_tools(test, &["mke2fs", "e2fsck"]) && tool::have_root(test) && mount::have_loop_mount(test)
}

#[test]
fn unclean_images_are_what_e2fsck_and_the_kernel_make_of_them() {
    if !able("recovery") {
        return;
    }
    let all: Vec<Recovery> = KINDS.iter().map(|kind| judge(kind, 1, 1)).collect();
    assert!(all.iter().all(|one| one.transactions > 0 && one.blocks > 0), "{all:?}");
}

/// `cargo test -p platfs --test all recovery:: -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes"]
fn fifty_unclean_images() {
    if !able("recovery") {
        return;
    }
    let all: Vec<Recovery> =
        KINDS.iter().flat_map(|kind| [2, 3, 4].map(|seed| judge(kind, seed, 3))).collect();
    assert!(all.iter().any(|one| one.revoked > 0), "nothing was revoked");
}
