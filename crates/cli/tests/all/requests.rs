//! How many requests the kernel makes for common work on a mount: what decides its speed, and hardly varies with the
//! machine.

use crate::support::mounted::{Mounted, have_fuse};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use testkit::scratch::Scratch;
use testkit::tool;

const DIRECTORIES: u64 = 10;
const FILES: u64 = 500;
const TOOLS: &[&str] = &["mke2fs", "e2fsck", "tar", "cp", "rm"];

/// A tree of small files in some directories, as a tar.
fn tree(scratch: &Scratch) -> PathBuf {
    let root = scratch.join("tree");
    for at in 0..FILES {
        let directory = root.join(format!("d{}", at % DIRECTORIES));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("file{at}")), vec![b'x'; 3000]).unwrap();
    }
    let tar = scratch.join("tree.tar");
    tool::run(tool::command("tar").arg("-cf").arg(&tar).arg("-C").arg(scratch.path()).arg("tree"));
    tar
}

/// Requests of a mount by kind. Nobody waits for `forget`.
fn requests(mounted: &Path) -> BTreeMap<String, u64> {
    let told = crate::support::succeed(crate::support::plat(&["stats", "--json"]).arg(mounted));
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    let kinds = told["requests"].as_object().unwrap().iter();
    let counted = kinds.map(|(name, counts)| (name.clone(), counts["count"].as_u64().unwrap()));
    // Those of asking.
    counted.filter(|(name, _)| name != "forget" && name != "ioctl").collect()
}

/// Requests for each file that some work makes: all but those that set attributes, and these. The kernel writes times
/// of its own if its clock moved between a write and the next call, so their number follows the load of the machine.
fn per_file(mounted: &Path, what: &str, work: impl FnOnce()) -> [f64; 2] {
    let before = requests(mounted);
    work();
    let mut made = requests(mounted);
    for (name, count) in &mut made {
        *count -= before.get(name).copied().unwrap_or(0);
    }
    made.retain(|_, count| *count > 0);
    let all: u64 = made.values().sum();
    eprintln!("{what}: {:.2} for each file: {made:?}", all as f64 / FILES as f64);
    let set = made.get("setattr").copied().unwrap_or(0);
    [all - set, set].map(|count| count as f64 / FILES as f64)
}

/// Untars, copies and removes a tree; requests for each file.
fn counted(test: &str, options: &str) -> Option<[[f64; 2]; 3]> {
    if !have_fuse(test) || !tool::have_tools(test, TOOLS) {
        return None;
    }
    if !testkit::tool::administers() {
        tool::skip(test, "needs root");
        return None;
    }
    let scratch = Scratch::new(test);
    let tar = tree(&scratch);
    let image = scratch.join("image");
    tool::run(tool::command("mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(&image).arg("5G"));
    let mounted = Mounted::new(&image, &["-o", options]).unwrap();
    let place = mounted.path();
    let path = |name: &str| place.join(name);
    let untar = per_file(place, "untar", || {
        tool::run(tool::command("tar").arg("-xf").arg(&tar).arg("-C").arg(place));
    });
    let copy = per_file(place, "cp -r", || {
        tool::run(tool::command("cp").arg("-r").arg(scratch.join("tree")).arg(path("copy")));
    });
    let remove = per_file(place, "rm -rf", || {
        tool::run(tool::command("rm").arg("-rf").arg(path("tree")));
    });
    mounted.unmount();
    testkit::fsck::assert_clean(&image);
    Some([untar, copy, remove])
}

/// Most requests that set attributes: of tar three, and one of the kernel after writing and after a removal.
const SET: [f64; 3] = [4.1, 1.1, 1.1];

/// `most` is without requests that set attributes.
fn assert_at_most(test: &str, options: &str, most: [f64; 3]) {
    let Some(counted) = counted(test, options) else { return };
    for (((what, most), set), found) in ["untar", "cp -r", "rm -rf"].iter().zip(most).zip(SET).zip(counted) {
        let holds = found[0] <= most && found[1] <= set;
        assert!(holds, "{test}: {what}: {found:.2?} requests for each file, not {most} and {set}");
    }
}

#[test]
fn own_checks_save_a_request_for_each_file() {
    assert_at_most("own_checks_save_a_request_for_each_file", "rw", [5.2, 4.2, 1.3]);
}

#[test]
fn checks_of_the_kernel_cost_a_request_for_each_file() {
    assert_at_most(
        "checks_of_the_kernel_cost_a_request_for_each_file",
        "rw,default_permissions",
        [6.2, 5.2, 2.3],
    );
}

#[test]
fn without_attributes_nobody_asks_for_them() {
    assert_at_most("without_attributes_nobody_asks_for_them", "rw,noxattr", [3.2, 3.2, 1.3]);
}
