//! Work of the kernel on a mounted volume, so that the volume has what its recipe is for.

use crate::odd;
use rustix::fs::{FallocateFlags, XattrFlags};
use std::fmt::Display;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

fn must<T, E: Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|e| panic!("filling the volume: {e}"))
}

fn create(path: &Path) -> File {
    must(File::create(path))
}

pub(super) fn odd_whole(root: &Path) {
    odd::make(root, &odd::Options::default());
}

pub(super) fn odd_modest(root: &Path) {
    odd::make(root, &odd::Options::modest());
}

/// Names of two files: an inode takes 65,000 links.
fn many_names(root: &Path, count: u32) {
    let dir = root.join("names");
    must(fs::create_dir(&dir));
    let targets = ["even", "odd"].map(|name| root.join(name));
    for target in &targets {
        create(target);
    }
    for index in 0..count {
        let [even, odd] = &targets;
        let target = if index % 2 == 0 { even } else { odd };
        must(fs::hard_link(target, dir.join(format!("{index:07}-name"))));
    }
}

pub(super) fn thirty_thousand_names(root: &Path) {
    many_names(root, 30_000);
}

pub(super) fn three_thousand_names(root: &Path) {
    many_names(root, 3000);
}

/// Every second block of a file: 6,000 extents of one block.
pub(super) fn comb(root: &Path) {
    let file = create(&root.join("comb"));
    for tooth in 0..6000_u64 {
        must(file.write_all_at(&tooth.to_le_bytes().repeat(128), tooth * 2048));
    }
}

pub(super) fn unwritten(root: &Path) {
    let half = create(&root.join("half"));
    must(rustix::fs::fallocate(&half, FallocateFlags::empty(), 0, 1 << 20));
    must(half.write_all_at(&vec![b'w'; 300_000], 200_000));
    let beyond = create(&root.join("beyond-the-end"));
    must(beyond.write_all_at(b"short", 0));
    must(rustix::fs::fallocate(&beyond, FallocateFlags::KEEP_SIZE, 0, 1 << 20));
    let punched = create(&root.join("punched"));
    must(punched.write_all_at(&vec![b'p'; 1 << 20], 0));
    must(rustix::fs::fallocate(
        &punched,
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        100_000,
        500_000,
    ));
}

/// One block behind each kind of pointer, of 1 KiB blocks.
pub(super) fn triple_indirect(root: &Path) {
    let file = create(&root.join("triple"));
    let (direct, single, double) = (12, 12 + 256, 12 + 256 + 256 * 256_u64);
    for block in
        [0, direct, direct + 255, single, double - 1, double, double + 70_000, double + 256 * 256 * 255]
    {
        must(file.write_all_at(&block.to_le_bytes().repeat(128), block * 1024));
    }
    // All kinds filled without a hole, up to the double one.
    let full = create(&root.join("full"));
    must(full.write_all_at(&vec![b'f'; 400 * 1024], 0));
}

/// Where the last byte of the largest file is: in the last block but one that 32 bits can number.
const END: u64 = (1 << 44) - 2 * 4096;

/// Files that end near the limit of 16 TiB for 4 KiB blocks.
pub(super) fn huge_holes(root: &Path) {
    let end = create(&root.join("end"));
    must(end.write_all_at(b"e", END));
    must(create(&root.join("nothing")).set_len(1 << 43));
}

/// Creates, appends to and removes files at random, from a fixed seed.
fn churn(root: &Path, steps: u32) {
    let mut state = 0x2545_f491_u32;
    let mut random = move |below: u32| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state % below
    };
    for dir in 0..8 {
        must(fs::create_dir_all(root.join(format!("d{dir}"))));
    }
    for step in 0..steps {
        let path = root.join(format!("d{}/file-{:03}", random(8), random(120)));
        match random(10) {
            0..=2 => {
                // Often it is not there.
                let _ = fs::remove_file(&path);
            }
            3 => {
                let _ = fs::rename(&path, root.join(format!("d{}/renamed-{step}", random(8))));
            }
            _ => {
                let file = must(File::options().create(true).append(true).open(&path));
                let bytes = step.to_le_bytes().repeat(1 + random(2000) as usize);
                // Full volumes are part of growing old.
                let _ = file.write_at(&bytes, must(file.metadata()).len());
                if step % 16 == 0 {
                    must(file.sync_all());
                }
            }
        }
    }
}

pub(super) fn age(root: &Path) {
    churn(root, 12_000);
}

pub(super) fn age_a_little(root: &Path) {
    churn(root, 300);
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    must(rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()));
}

/// Equal attributes, too large for the inode: the kernel shares their block.
pub(super) fn shared_attributes(root: &Path) {
    for index in 0..50 {
        let path = root.join(format!("shared-{index}"));
        create(&path);
        set_xattr(&path, "user.shared", &[b's'; 2000]);
        set_xattr(&path, "user.second", b"in the same place");
    }
    let own = root.join("own");
    create(&own);
    set_xattr(&own, "user.own", &[b'o'; 3000]);
}

/// Attributes that only inodes of their own can hold.
pub(super) fn large_attributes(root: &Path) {
    for (name, length) in [("large", 30_000), ("larger", 60_000), ("equal-to-large", 30_000)] {
        let path = root.join(name);
        create(&path);
        set_xattr(&path, "user.large", &vec![b'L'; length]);
        set_xattr(&path, "user.small", b"beside it");
    }
}
