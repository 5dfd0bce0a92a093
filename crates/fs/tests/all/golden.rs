//! The library on images of mke2fs, genext2fs, debugfs and the kernel: it sees what a mount shows.

use crate::tree::Walk;
use platfs::device::FileDevice;
use platfs::ondisk::inode::FileType;
use platfs::ondisk::units::InodeNumber;
use platfs::{OpenOptions, Volume};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use testkit::images::{self, Premise};
use testkit::snapshot::{Rules, differences};
use testkit::view::seen;
use testkit::{mount, tool};

fn open(image: &Path) -> Volume {
    let device = FileDevice::new(File::open(image).unwrap()).unwrap();
    Volume::open(Arc::new(device), &OpenOptions::new()).unwrap_or_else(|e| panic!("{}: {e}", image.display()))
}

#[test]
fn the_tree_is_what_a_mount_shows() {
    let test = "golden images";
    if !tool::have_root(test) || !mount::have_loop_mount(test) {
        return;
    }
    let mut told = Vec::new();
    for recipe in images::all() {
        if recipe.premises.iter().any(|premise| matches!(premise, Premise::Unclean)) {
            continue;
        }
        let Some(image) = images::golden(test, recipe.name) else { continue };
        let Some(seen) = seen(test, &image) else { continue };
        let volume = open(&image);
        let rules = seen.rules(Rules { hole_granularity: 1024, ..Rules::default() });
        let all = differences(&seen.tree, &Walk::tree(&volume), &rules);
        told.extend(all.into_iter().take(8).map(|line| format!("{}: {line}", recipe.name)));
    }
    assert!(told.is_empty(), "\n{}", told.join("\n"));
}

#[test]
fn every_name_is_found_by_lookup() {
    let test = "lookup on golden images";
    for name in
        ["htree-deep", "large-dir", "htree-ext2-tea", "kernel-odd-ext4", "kernel-odd-inline", "ext2-1k"]
    {
        let Some(image) = images::golden(test, name) else { continue };
        let volume = open(&image);
        let (mut pending, mut looked_up) = (vec![InodeNumber::ROOT], 0);
        while let Some(directory) = pending.pop() {
            for entry in volume.read_dir(directory).unwrap() {
                let entry = entry.unwrap();
                assert_eq!(volume.lookup(directory, &entry.name).unwrap(), entry.inode, "{name}");
                looked_up += 1;
                let dots = entry.name == b"." || entry.name == b"..";
                if !dots && entry.file_type == Some(FileType::Directory) {
                    pending.push(entry.inode);
                }
            }
            assert!(volume.lookup(directory, b"no such name").is_err(), "{name}");
        }
        assert!(looked_up > 400, "{name}: {looked_up} names");
    }
}
