//! The rights of callers of the channel are those that the kernel would give them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use super::{archive_of, contents, have, judge, many, volume, whole};
use crate::support::mounted::Mounted;
use crate::support::{fail, plat, succeed};
use testkit::scratch::Scratch;
use testkit::tool;

/// The command as another user, with these groups beside its own.
fn by(user: u32, groups: &str, words: &[&Path], first: &[&str]) -> Command {
    let mut command = tool::command("setpriv");
    command.args([format!("--reuid={user}"), format!("--regid={user}")]);
    match groups {
        "" => command.arg("--clear-groups"),
        groups => command.arg(format!("--groups={groups}")),
    };
    command.arg(env!("CARGO_BIN_EXE_plat")).args(first).args(words);
    command
}

/// A place that other users can get to.
pub(super) fn reachable(scratch: &Scratch) {
    for directory in scratch.join("x").ancestors().skip(1) {
        let Ok(facts) = fs::metadata(directory) else { continue };
        if facts.permissions().mode() & 0o001 == 0 && facts.uid() == 0 {
            fs::set_permissions(directory, fs::Permissions::from_mode(facts.permissions().mode() | 0o011))
                .unwrap();
        }
    }
}

fn set(path: &Path, mode: u32, owner: u32) {
    chown(path, Some(owner), Some(owner)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn others_may_what_the_kernel_lets_them() {
    let test = "others_may_what_the_kernel_lets_them";
    if !have(test) || !tool::have_tools(test, &["setpriv", "setfacl"]) {
        return;
    }
    // Not below a directory of root's.
    let scratch = Scratch::new(test);
    reachable(&scratch);
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    many(&tree, 1, 5);
    let archive = archive_of(&scratch, &tree, "tree.tar");
    let image = volume(&scratch, "-t ext4 -b 4096", "64M");
    let place = scratch.join("place");
    fs::create_dir(&place).unwrap();
    succeed(plat(&["mount", "-o", "rw,allow_other"]).arg(&image).arg(&place));
    let dir = |name: &str, mode, owner| {
        let path = place.join(name);
        fs::create_dir(&path).unwrap();
        set(&path, mode, owner);
        path
    };
    let (theirs, closed, sticky) =
        (dir("theirs", 0o755, 1001), dir("closed", 0o755, 0), dir("sticky", 0o1777, 0));
    // Their own directory: files are theirs, by their umask, whatever the archive says.
    succeed(&mut by(1001, "", &[&theirs, &archive], &["import"]));
    let made = fs::metadata(theirs.join("d0/f0-1")).unwrap();
    assert_eq!((made.uid(), made.gid(), made.mode() & 0o7777), (1001, 1001, 0o644));
    // Somebody else's.
    let said = fail(&mut by(1001, "", &[&closed, &archive], &["import"]));
    assert!(said.contains("permission denied"), "{said}");
    assert_eq!(fs::read_dir(&closed).unwrap().count(), 0);
    let said = fail(&mut by(1002, "", &[&theirs.join("d0")], &["rm", "-r"]));
    assert!(said.contains("permission denied") && theirs.join("d0/f0-1").exists(), "{said}");
    // Files that can't be read can't be copied or exported.
    let secret = closed.join("secret");
    fs::write(&secret, "s").unwrap();
    set(&secret, 0o600, 0);
    let said = fail(&mut by(1001, "", &[&secret, &theirs.join("s")], &["cp"]));
    assert!(said.contains("permission denied") && !theirs.join("s").exists(), "{said}");
    let out = scratch.join("out.tar");
    set(scratch.join("x").parent().unwrap(), 0o777, 0);
    let said = fail(&mut by(1001, "", &[&closed, &out], &["export"]));
    assert!(said.contains("permission denied") && !out.exists(), "{said}");
    // By a group, and by a list.
    chown(&closed, Some(0), Some(77)).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o770)).unwrap();
    succeed(&mut by(1001, "77", &[&closed, &archive], &["import"]));
    tool::run(tool::command("setfacl").args(["-m", "u:1002:rwx"]).arg(&closed));
    let said = fail(&mut by(1002, "", &[&closed.join("d0/f0-1"), &closed.join("d0/again")], &["cp"]));
    assert!(said.contains("permission denied"), "{said}");
    succeed(&mut by(1002, "", &[&closed.join("d0/f0-1"), &closed.join("copy")], &["cp"]));
    assert_eq!(fs::read(closed.join("copy")).unwrap(), contents("f0-1"));
    // The sticky bit.
    fs::write(sticky.join("roots"), "r").unwrap();
    let said = fail(&mut by(1001, "", &[&sticky.join("roots")], &["rm"]));
    assert!(said.contains("permission denied") && sticky.join("roots").exists(), "{said}");
    succeed(&mut by(1001, "", &[&theirs.join("d0/f0-1"), &sticky.join("mine")], &["cp"]));
    succeed(&mut by(1001, "", &[&sticky.join("mine")], &["rm"]));
    assert_eq!(whole(&theirs), 5);
    // A tree with files of others in a sticky directory: those stay.
    let mixed = dir("mixed", 0o1777, 0);
    succeed(&mut by(1001, "", &[&mixed, &archive], &["import"]));
    fs::write(mixed.join("d0/roots"), "r").unwrap();
    set(&mixed.join("d0"), 0o1777, 0);
    let said = fail(&mut by(1001, "", &[&mixed.join("d0")], &["rm", "-r"]));
    assert!(said.contains("denied") || said.contains("sticky"), "{said}");
    assert!(mixed.join("d0/roots").exists());
    // Names of a directory that can only be listed lead nowhere.
    let listed = dir("listed", 0o744, 0);
    fs::create_dir(listed.join("d0")).unwrap();
    set(&listed.join("d0"), 0o777, 0);
    let said = fail(&mut by(1001, "", &[&listed, &archive], &["import"]));
    assert!(said.contains("Permission denied"), "{said}");
    assert_eq!(fs::read_dir(listed.join("d0")).unwrap().count(), 0);
    // What others may read goes out through a pipe: their files are not written by root.
    let out = scratch.join("theirs.tar");
    succeed(&mut by(1001, "", &[&theirs, &out], &["export"]));
    assert_eq!(fs::metadata(&out).unwrap().uid(), 1001);
    let list = tool::run(tool::command("tar").arg("-tf").arg(&out));
    assert!(String::from_utf8_lossy(&list.stdout).contains("d0/f0-1"));
    succeed(plat(&["umount"]).arg(&place));
    testkit::fsck::assert_clean(&image);
}

#[test]
fn flags_and_mounts_for_reading_forbid_it_to_everybody() {
    let test = "flags_and_mounts_for_reading_forbid_it_to_everybody";
    if !have(test) || !tool::have_tools(test, &["chattr"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch, "-t ext4 -b 4096", "64M");
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    let at = |name: &str| mounted.path().join(name);
    fs::create_dir(at("d")).unwrap();
    for name in ["d/kept", "d/other"] {
        fs::write(at(name), "x").unwrap();
    }
    tool::run(tool::command("chattr").arg("+i").arg(at("d/kept")));
    let said = fail(plat(&["rm", "-r"]).arg(at("d")));
    assert!(said.contains("immutable") && at("d/kept").exists(), "{said}");
    tool::run(tool::command("chattr").arg("-i").arg(at("d/kept")));
    // The owner of the mount only, where others are not let in.
    if tool::find("setpriv").is_some() {
        reachable(&scratch);
        let output = by(1001, "", &[&at("d")], &["rm", "-r"]).output().unwrap();
        assert!(!output.status.success() && at("d/kept").exists(), "{output:?}");
    }
    judge(mounted, &image);
    let mounted = Mounted::new(&image, &["-o", "ro"]).unwrap();
    let said = fail(plat(&["rm", "-r"]).arg(mounted.path().join("d")));
    assert!(said.contains("Read-only file system"), "{said}");
    mounted.unmount();
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    succeed(plat(&["mount", "-o", "remount,ro"]).arg("x").arg(mounted.path()));
    let said = fail(plat(&["rm", "-r"]).arg(mounted.path().join("d")));
    assert!(said.contains("Read-only file system") && mounted.path().join("d").exists(), "{said}");
    mounted.unmount();
}

/// A view for reading only forbids it. The server learns of that from the kernel, without a request to itself: killed
/// while it waits for its own answer it would never end.
#[test]
fn a_view_for_reading_only_forbids_it_and_no_server_asks_itself() {
    let test = "a_view_for_reading_only_forbids_it_and_no_server_asks_itself";
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch, "-t ext4 -b 4096", "64M");
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    fs::create_dir(mounted.path().join("d")).unwrap();
    let view = scratch.join("view");
    fs::create_dir(&view).unwrap();
    tool::run(tool::command("mount").arg("--bind").arg(mounted.path()).arg(&view));
    tool::run(tool::command("mount").args(["-o", "remount,ro,bind"]).arg(&view));
    let said = plat(&["rm", "-r"]).arg(view.join("d")).output().unwrap();
    tool::run(tool::command("umount").arg(&view));
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("Read-only file system") && mounted.path().join("d").exists(), "{said}");
    let asked = || {
        let told = succeed(plat(&["stats", "--json"]).arg(mounted.path())).stdout;
        let told: serde_json::Value = serde_json::from_slice(&told).unwrap();
        ["statfs", "setxattr"].map(|kind| told["requests"][kind]["count"].as_u64().unwrap_or(0))
    };
    let before = asked();
    succeed(plat(&["mkdir"]).arg(mounted.path().join("new")));
    succeed(plat(&["rm", "-r"]).arg(mounted.path().join("d")));
    let after = asked();
    // The commands look at what kind of mount it is: once for their cage, and again for their work.
    assert!(after[0] - before[0] <= 6 && after[1] == before[1], "{before:?} {after:?}");
    judge(mounted, &image);
}

#[test]
fn what_is_in_no_mount_is_named() {
    let scratch = Scratch::new("what_is_in_no_mount_is_named");
    let directory = scratch.join("d");
    fs::create_dir(&directory).unwrap();
    let said = plat(&["rm", "-r"]).arg(&directory).output().unwrap();
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.status.code() == Some(2) && text.contains("lies in no mount of plat"), "{text}");
    assert!(directory.exists());
}
