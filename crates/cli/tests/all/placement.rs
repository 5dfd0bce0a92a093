//! Where a build puts things: one extent per file, and blocks in the order of the tree.

use crate::support::build;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use testkit::scratch::Scratch;
use testkit::view::seen;
use testkit::{fsck, mount, tool};

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

/// Directories of all lengths, with and without an index, between files of all sizes.
fn tree_of_directories(root: &Path) {
    for dir in 0..36_u32 {
        let directory = root.join(format!("d{:02}/a directory with a longer name {dir}", dir % 8));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..dir * dir / 4 {
            let size = if file % 40 == 0 { file * 700 } else { file % 3 * 200 };
            fs::write(directory.join(format!("a name of some length {file}")), vec![1; size as usize])
                .unwrap();
        }
        // Has a block of its own.
        std::os::unix::fs::symlink("x".repeat(200), directory.join("link")).unwrap();
    }
    fs::write(root.join("large"), vec![2; 5 << 20]).unwrap();
}

/// Free runs, files and directories in pieces, as e2fsprogs count them.
fn counted(image: &Path) -> (u32, u32, u32) {
    let number = |text: &str, mark: &str| {
        let line = text.lines().find(|line| line.contains(mark)).unwrap();
        line.split(|c: char| !c.is_ascii_digit()).find(|word| !word.is_empty()).unwrap().parse().unwrap()
    };
    let said = tool::command("e2fsck").arg("-fnv").arg(image).output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let free = tool::text("e2freefrag", &[image]);
    let free =
        free.lines().find_map(|line| line.strip_prefix("Num. free extent: ")).unwrap().trim().to_owned();
    (free.parse().unwrap(), number(&said, "non-contiguous file"), number(&said, "non-contiguous director"))
}

#[test]
fn directories_have_one_extent_and_free_space_as_few_as_can_be() {
    let test = "directories have one extent";
    if !tool::have_tools(test, &["e2fsck", "e2freefrag", "mke2fs"]) {
        return;
    }
    let scratch = Scratch::new("directories");
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    tree_of_directories(&tree);
    let (image, theirs) = (scratch.join("image"), scratch.join("theirs"));
    // Copies of the superblock in groups of 8 MiB, and a journal in the middle, cut the space for data. In a single group
    // of 4 KiB blocks the journal itself lies in pieces, as mke2fs has it: there is none then.
    let [small, many, large] = [
        &["-b", "1024"][..],
        &["-b", "1024", "-O", "^has_journal", "-G", "1"],
        &["-b", "4096", "-O", "^has_journal"],
    ];
    for (options, size) in [(small, "auto"), (small, "100M"), (many, "auto"), (large, "auto")] {
        build(&tree, &image, &[options, &["--size", size]].concat());
        let (free, files, directories) = counted(&image);
        assert_eq!((files, directories), (0, 0), "{options:?} {size}");
        let kib = format!("{}k", fs::metadata(&image).unwrap().len() / 1024);
        let mut mke2fs = tool::command("mke2fs");
        tool::run(
            mke2fs.args(["-q", "-F", "-t", "ext4"]).args(options).arg("-d").arg(&tree).arg(&theirs).arg(kib),
        );
        let (least, ..) = counted(&theirs);
        assert!(free <= least, "{options:?} {size}: {free} free extents, mke2fs {least}");
        fs::remove_file(&image).unwrap();
    }
}

/// Blocks of an indirect map lie before the data that they lead to, in the run of the file: the order in which e2fsck
/// counts. With files of all depths of the map, and directories that have indirect blocks.
#[test]
fn files_and_directories_of_ext2_and_ext3_lie_in_one_piece() {
    let test = "one piece with block pointers";
    if !tool::have_tools(test, &["e2fsck", "e2freefrag"]) {
        return;
    }
    let scratch = Scratch::new("pointers");
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    tree_of_directories(&tree);
    // At the edges of what the inode, one and two indirections reach with blocks of 1 KiB.
    for blocks in [12, 13, 268, 269, 524, 525, 2000] {
        for (name, more) in [("less", 0), ("more", 1)] {
            let bytes = vec![4; blocks * 1024 + more];
            fs::write(tree.join(format!("{blocks}-{name}")), bytes).unwrap();
        }
    }
    sized_tree(&tree);
    let image = scratch.join("image");
    for (kind, block) in [("ext2", "1024"), ("ext3", "1024"), ("ext2", "4096"), ("ext3", "4096")] {
        for size in ["auto", "400M", "min"] {
            build(&tree, &image, &["-t", kind, "-b", block, "--size", size]);
            let (_, files, directories) = counted(&image);
            assert_eq!((files, directories), (0, 0), "{kind}, blocks of {block}, {size}");
            fsck::assert_clean(&image);
            fs::remove_file(&image).unwrap();
        }
    }
}

/// First physical block of each regular file in `directory`, by name, as debugfs reports.
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
