//! An image by `plat build`, exported, is what it was built of; built again, it has the same bytes.

use crate::trees::{ALL, Rules, assert_same, read};
use platfs_image::source::NodeKind;
use std::fs;
use std::path::Path;
use std::process::Command;
use testkit::scratch::Scratch;
use testkit::{fsck, odd, tool};

#[track_caller]
fn plat(arguments: &[&str], paths: &[&Path]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plat"));
    let output = command.args(arguments).args(paths).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn export_and_build_undo_each_other() {
    let scratch = Scratch::new("roundtrip");
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    odd::make(&tree, &odd::Options { many: 3000, huge: true, ..odd::Options::modest() });
    let images = ["first.img", "second.img"].map(|name| scratch.join(name));
    let archive = scratch.join("a.tar");
    plat(&["build"], &[&tree, &images[0]]);
    plat(&["export"], &[&images[0], &archive]);
    let linked =
        &[NodeKind::File, NodeKind::Symlink, NodeKind::CharDevice, NodeKind::BlockDevice, NodeKind::Fifo];
    // The image keeps holes by whole blocks.
    let rules = Rules { holes: false, linked, ..ALL };
    assert_same(&read(&tree), &read(&archive), rules);
    // Sockets are lost in the archive: a second round begins from it.
    plat(&["build", "--force", "--reproducible"], &[&archive, &images[0]]);
    plat(&["export", "--force"], &[&images[0], &archive]);
    plat(&["build", "--reproducible"], &[&archive, &images[1]]);
    assert!(fs::read(&images[0]).unwrap() == fs::read(&images[1]).unwrap());
    if tool::have_tools("export_and_build_undo_each_other", &["e2fsck"]) {
        fsck::assert_clean(&images[1]);
    }
}
