//! `plat build` over types, block sizes, clusters and features: e2fsck has nothing to say, and the volume holds the source.

use crate::support::{build, modest_tree};
use std::path::Path;
use testkit::odd;
use testkit::scratch::Scratch;
use testkit::snapshot::{Rules, Snapshot, assert_same};
use testkit::view::seen;
use testkit::{fsck, tool};

/// Builds the tree with each row's options; judged by e2fsck, and by a mount.
fn judge(test: &str, options: &odd::Options, rules: Rules, rows: &[&[&str]]) {
    if !tool::have_tools(test, &["e2fsck"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let tree = modest_tree(&scratch, options);
    let source = Snapshot::of(&tree).unwrap();
    for row in rows {
        let image = scratch.join("image");
        eprintln!("{test}: {row:?}");
        build(&tree, &image, row);
        fsck::assert_clean(&image);
        compare(test, &source, &image, rules);
        std::fs::remove_file(&image).unwrap();
    }
}

fn compare(test: &str, source: &Snapshot, image: &Path, rules: Rules) {
    if let Some(seen) = seen(test, image) {
        assert_same(source, &seen.tree, &seen.rules(rules));
    }
}

const KINDS: [&str; 3] = ["ext2", "ext3", "ext4"];

fn block_sizes(test: &str, sizes: &[&str]) {
    let rows: Vec<Vec<&str>> = KINDS
        .iter()
        .flat_map(|kind| sizes.iter().map(move |size| vec!["-t", *kind, "-b", *size, "-I", "256"]))
        .collect();
    let rows: Vec<&[&str]> = rows.iter().map(Vec::as_slice).collect();
    judge(test, &odd::Options::modest(), Rules::default(), &rows);
}

#[test]
fn small_blocks() {
    block_sizes("small blocks", &["1024", "2048", "4096"]);
}

#[test]
fn large_blocks() {
    block_sizes("large blocks", &["8192", "16384", "32768", "65536"]);
}

#[test]
fn inode_sizes() {
    let wide: &[&[&str]] = &[&["-I", "512"], &["-I", "1024"], &["-b", "4096", "-I", "4096", "-N", "1000"]];
    judge("wide inodes", &odd::Options::modest(), Rules::default(), wide);
    // 128 bytes: no nanoseconds, and seconds of 32 bits only.
    let narrow: &[&[&str]] = &[
        &["-t", "ext4", "-I", "128"],
        &["-t", "ext3", "-I", "128"],
        &["-t", "ext2", "-I", "128", "-b", "1024"],
    ];
    let rules = Rules { times: false, ..Rules::default() };
    judge("narrow inodes", &odd::Options::modest(), rules, narrow);
}

#[test]
fn clusters() {
    let rows: &[&[&str]] = &[
        &["-O", "bigalloc", "-b", "1024", "-C", "16384"],
        &["-O", "bigalloc", "-b", "4096", "-C", "16384"],
        &["-O", "bigalloc", "-b", "4096", "-C", "65536"],
        &["-O", "bigalloc", "-b", "4096", "-C", "262144"],
        &["-O", "bigalloc", "-b", "4096", "-C", "1048576"],
    ];
    judge("clusters", &odd::Options::modest(), Rules::default(), rows);
}

#[test]
fn features() {
    let rows: &[&[&str]] = &[
        &["-O", "^has_journal"],
        &["-O", "^metadata_csum"],
        &["-O", "^metadata_csum,uninit_bg"],
        &["-O", "metadata_csum_seed"],
        &["-O", "^64bit"],
        &["-O", "^flex_bg"],
        &["-O", "meta_bg,^resize_inode", "-b", "1024"],
        &["-O", "meta_bg,^resize_inode,^flex_bg"],
        &["-O", "sparse_super2,^resize_inode"],
        &["-O", "^sparse_super,^resize_inode", "-b", "1024"],
        &["-O", "^resize_inode"],
        &["-O", "^dir_index"],
        &["-O", "^filetype"],
        &["-O", "^extent,^64bit"],
        &["-O", "^huge_file"],
        &["-O", "^dir_nlink"],
        &["-O", "^extra_isize"],
        &["-O", "large_dir"],
        &["-O", "ea_inode"],
        &["-O", "inline_data"],
        &["-O", "inline_data", "-b", "1024", "-I", "512"],
        &["-O", "orphan_file"],
        &["-O", "stable_inodes"],
        &["-G", "1"],
        &["-G", "64", "-b", "1024"],
        &["-E", "stride=16,stripe_width=64"],
        &["-m", "0", "-L", "a label"],
    ];
    judge("features", &odd::Options::modest(), Rules::default(), rows);
}

#[test]
fn quota_and_project() {
    // A kernel without the quota format mounts them read-only, which is all that is needed.
    let rows: &[&[&str]] = &[&["-O", "quota"], &["-O", "project"], &["-O", "quota,project"]];
    judge("quota", &odd::Options::modest(), Rules::default(), rows);
}

#[test]
fn sizes() {
    let rows: &[&[&str]] = &[
        &["--size", "64M"],
        &["--size", "1G"],
        &["--size", "9G"],
        &["--size", "100G"],
        &["--size", "auto"],
        &["--size", "min"],
        &["--size", "min", "-t", "ext2", "-b", "1024"],
        &["--size", "min", "-O", "^has_journal", "-b", "1024"],
        &["--size", "min", "-O", "bigalloc", "-C", "65536"],
    ];
    judge("sizes", &odd::Options::modest(), Rules::default(), rows);
}

#[test]
fn one_mebibyte() {
    let scratch = Scratch::new("one-mebibyte");
    let tree = scratch.join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("file"), vec![7; 50_000]).unwrap();
    for kind in KINDS {
        for block in ["1024", "2048", "4096"] {
            if kind == "ext3" {
                // A journal has 1,024 blocks at least.
                continue;
            }
            let image = scratch.join("image");
            build(&tree, &image, &["-t", kind, "-b", block, "--size", "1M", "-O", "^has_journal"]);
            assert_eq!(std::fs::metadata(&image).unwrap().len(), 1 << 20);
            fsck::assert_clean(&image);
            std::fs::remove_file(&image).unwrap();
        }
    }
}

#[test]
fn the_smallest_is_really_smallest() {
    let scratch = Scratch::new("smallest");
    let tree = modest_tree(&scratch, &odd::Options::modest());
    for options in
        [&["-b", "1024"][..], &["-b", "4096"], &["-t", "ext2", "-b", "1024"], &["-O", "inline_data"]]
    {
        let image = scratch.join("image");
        build(&tree, &image, &[options, &["--size", "min"]].concat());
        let size = std::fs::metadata(&image).unwrap().len();
        fsck::assert_clean(&image);
        std::fs::remove_file(&image).unwrap();
        // One block less is no longer enough.
        let smaller = (size - 4096).to_string();
        let said = crate::support::fail(
            crate::support::plat(&["build", "--size", &smaller]).args(options).arg(&tree).arg(&image),
        );
        assert!(!image.exists(), "{said}");
    }
}

/// The search for a size began at that of the data, and gave up long before there was room for the inodes.
#[test]
fn many_empty_files_need_more_room_for_inodes_than_for_data() {
    let scratch = Scratch::new("many-files");
    let (archive, image) = (scratch.join("many.tar"), scratch.join("image"));
    let mut out = std::io::BufWriter::new(std::fs::File::create(&archive).unwrap());
    testkit::many::write_tar(&mut out, 115_000, 100).unwrap();
    std::io::Write::flush(&mut out).unwrap();
    build(&archive, &image, &["-I", "1024", "-b", "1024"]);
    fsck::assert_clean(&image);
}
