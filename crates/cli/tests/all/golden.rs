//! `plat export` of every golden image (mke2fs, genext2fs, debugfs, the kernel) is what a mount shows.

use crate::support::{plat, succeed};
use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use testkit::images::{self, Premise};
use testkit::scratch::Scratch;
use testkit::snapshot::{Rules, Snapshot, differences};
use testkit::view::{MountedView, seen};
use testkit::{mount, tool};

/// Images whose journal waits to be replayed have a test of their own; the attributes of `ea-inode` are larger than what the file
/// system of this machine may hold.
fn clean_images() -> impl Iterator<Item = &'static str> {
    let unclean =
        |recipe: &images::Recipe| recipe.premises.iter().any(|premise| matches!(premise, Premise::Unclean));
    let clean = move |recipe: &&images::Recipe| recipe.name != "ea-inode" && !unclean(recipe);
    images::all().iter().filter(clean).map(|recipe| recipe.name)
}

/// Fails with all that differs on any image, each line with the image's name.
fn on_each_image(test: &str, look: impl Fn(&Path, &MountedView, &Scratch) -> Vec<String>) {
    if !tool::have_root(test) || !mount::have_loop_mount(test) {
        return;
    }
    let mut differences = Vec::new();
    for name in clean_images() {
        let Some(image) = images::golden(test, name) else { continue };
        let Some(seen) = seen(test, &image) else { continue };
        let scratch = Scratch::new("reading");
        differences
            .extend(look(&image, &seen, &scratch).into_iter().take(10).map(|line| format!("{name}: {line}")));
    }
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}

fn rules(seen: &MountedView) -> Rules {
    seen.rules(Rules { hole_granularity: 64 * 1024, ..Rules::default() })
}

/// Exported to a directory.
fn directory(image: &Path, seen: &MountedView, scratch: &Scratch) -> Vec<String> {
    let out = scratch.join("directory");
    succeed(plat(&["export"]).arg(image).arg(&out));
    differences(&seen.tree, &Snapshot::of(&out).unwrap(), &rules(seen))
}

/// Exported to a tar, which GNU tar extracts.
fn archive(image: &Path, seen: &MountedView, scratch: &Scratch) -> Vec<String> {
    let [archive, out] = ["out.tar", "archive"].map(|name| scratch.join(name));
    let output = File::create(&archive).unwrap();
    succeed(plat(&["export"]).arg(image).arg("-").stdout(Stdio::from(output)));
    fs::create_dir(&out).unwrap();
    let mut tar = tool::command("tar");
    tar.args(["--xattrs", "--xattrs-include=*", "--acls", "--same-owner", "--numeric-owner", "-xpf"]);
    tool::run(tar.arg(&archive).arg("-C").arg(&out));
    differences(&seen.tree, &Snapshot::of(&out).unwrap(), &Rules { sockets: false, ..rules(seen) })
}

/// Returns true for an image with the tree of `kernel-odd-ext4-1k`. The two differ in how they are read, which an export to
/// a directory shows.
fn repeats_a_tree(image: &Path) -> bool {
    let name = image.file_stem().unwrap().to_string_lossy();
    ["kernel-odd-ext2-1k", "kernel-odd-ext3", "kernel-odd-inline", "kernel-odd-bigalloc"].contains(&&*name)
}

#[test]
fn export_is_what_a_mount_shows() {
    on_each_image("export", |image, seen, scratch| {
        let mut differences = directory(image, seen, scratch);
        if !repeats_a_tree(image) {
            differences.extend(archive(image, seen, scratch));
        }
        differences
    });
}
