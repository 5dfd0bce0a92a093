//! Where a build puts things: one extent per file, and blocks in the order of the tree.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use support::build;
use testkit::scratch::Scratch;
use testkit::view::seen;
use testkit::{mount, tool};

/// Files of sizes as in a root file system, a few large ones among them.
fn sized_tree(root: &Path) {
    for dir in 0..40_u32 {
        let directory = root.join(format!("dir-{dir:02}/sub"));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..40_u32 {
            let length = (dir * 7919 + file * 104_729) % 40_000;
            fs::write(directory.join(format!("file-{file:02}")), vec![1; length as usize]).unwrap();
        }
    }
    fs::write(root.join("large"), vec![2; 60 << 20]).unwrap();
    fs::write(root.join("middle"), vec![3; 9 << 20]).unwrap();
}

#[test]
fn every_file_has_one_extent() {
    let test = "one extent per file";
    if !mount::have_loop_mount(test) || !tool::have_tools(test, &["filefrag"]) {
        return;
    }
    let scratch = Scratch::new("extents");
    let tree = scratch.join("tree");
    sized_tree(&tree);
    for options in [&["-b", "4096"][..], &["-b", "4096", "--size", "min"], &["-b", "4096", "--size", "2G"]] {
        let image = scratch.join("image");
        build(&tree, &image, options);
        let Some(seen) = seen(test, &image) else { return };
        let counts = mount::extent_counts(seen.mounted.path());
        assert_eq!(counts.len(), 1602);
        let split: Vec<_> = counts.iter().filter(|(_, count)| *count > 1).collect();
        assert!(split.is_empty(), "{options:?}: {split:?}");
        drop(seen);
        fs::remove_file(&image).unwrap();
    }
}

/// First physical block of each regular file in `directory`, by name, as debugfs tells.
fn first_blocks(image: &Path, directory: &str, mounted: &Path) -> BTreeMap<String, u64> {
    let mut blocks = BTreeMap::new();
    for entry in fs::read_dir(mounted.join(directory)).unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        if metadata.is_file() && metadata.blocks() > 0 {
            let name = entry.file_name().into_string().unwrap();
            let answer = tool::debugfs(image, &format!("bmap <{}> 0", metadata.ino()));
            blocks.insert(name, answer.trim().parse().unwrap());
        }
    }
    blocks
}

#[test]
fn blocks_follow_the_order_of_the_directory() {
    let test = "block order";
    if !mount::have_loop_mount(test) || !tool::have_tools(test, &["debugfs"]) {
        return;
    }
    let scratch = Scratch::new("order");
    let tree = scratch.join("tree");
    sized_tree(&tree);
    let image = scratch.join("image");
    build(&tree, &image, &["-b", "4096"]);
    let Some(seen) = seen(test, &image) else { return };
    for dir in ["dir-00/sub", "dir-17/sub", "dir-39/sub"] {
        let blocks: Vec<_> = first_blocks(&image, dir, seen.mounted.path()).into_iter().collect();
        assert!(blocks.is_sorted_by_key(|(_, block)| *block), "{dir}: {blocks:?}");
    }
}
