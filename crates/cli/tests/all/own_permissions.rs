//! A mount that checks permissions itself: when it does, and what the POSIX cases (`posix`) can't show, as each of
//! them works with names that the kernel knows already.

use crate::support::mounted::{Mounted, have_fuse, unmount_with};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::scratch::Scratch;
use testkit::{fsck, tool};

fn ready(test: &str) -> bool {
    if !testkit::tool::administers() {
        tool::skip(test, "needs root");
        return false;
    }
    have_fuse(test) && tool::have_tools(test, &["mke2fs", "e2fsck", "setpriv", "cat", "stat"])
}

fn volume(scratch: &Scratch) -> PathBuf {
    let image = scratch.join("image");
    tool::run(tool::command("mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(&image).arg("64M"));
    image
}

fn checks_itself(mounted: &Mounted) -> bool {
    let told = crate::support::succeed(crate::support::plat(&["stats", "--json"]).arg(mounted.path()));
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    told["own_permissions"].as_bool().unwrap()
}

/// Root without the capabilities that pass over permissions.
fn bounded(words: &[&str], path: &Path) -> Result<String, String> {
    let mut command = tool::command("setpriv");
    command.args(["--bounding-set=-dac_override,-dac_read_search,-fowner,-chown"]).args(words).arg(path);
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn who_checks_permissions_follows_the_options() {
    let test = "who_checks_permissions_follows_the_options";
    if !ready(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch);
    for (options, expected) in [
        ("rw", true),
        ("rw,own_permissions", true),
        ("ro,own_permissions", true),
        ("rw,default_permissions", false),
        ("rw,allow_other", false),
        ("ro", false),
    ] {
        let mounted = Mounted::new(&image, &["-o", options]).unwrap();
        assert_eq!(checks_itself(&mounted), expected, "{options}");
        mounted.unmount();
    }
    let refused = Mounted::new(&image, &["-o", "allow_other,own_permissions"]).err().unwrap();
    assert!(refused.contains("without asking"), "{refused}");
}

#[test]
fn names_in_closed_directories_are_asked_for_each_time() {
    let test = "names_in_closed_directories_are_asked_for_each_time";
    if !ready(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch);
    for options in ["rw,own_permissions", "rw,default_permissions"] {
        let mounted = Mounted::new(&image, &["-o", options]).unwrap();
        let home = mounted.path().join("home");
        if !home.exists() {
            fs::create_dir(&home).unwrap();
            chown(&home, Some(1000), Some(1000)).unwrap();
            fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
            fs::write(home.join("file"), "secret").unwrap();
        }
        // Root has looked, and the kernel knows the names.
        assert_eq!(fs::read_to_string(home.join("file")).unwrap(), "secret");
        assert!(!home.join("missing").exists());
        for (words, name) in [(&["cat"], "file"), (&["stat"], "file"), (&["stat"], "missing"), (&["ls"], ".")]
        {
            let refused = bounded(words, &home.join(name)).unwrap_err();
            assert!(refused.contains("Permission denied"), "{options}: {words:?} {name}: {refused}");
        }
        assert_eq!(fs::read_to_string(home.join("file")).unwrap(), "secret", "{options}");
        mounted.unmount();
    }
    fsck::assert_clean(&image);
}

#[test]
fn an_overlay_lends_the_rights_of_who_mounted_it() {
    let test = "an_overlay_lends_the_rights_of_who_mounted_it";
    let has_overlay = fs::read_to_string("/proc/filesystems").unwrap().contains("overlay");
    if !ready(test) || !has_overlay || !tool::have_tools(test, &["mount", "umount", "sh"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch);
    let mounted = Mounted::new(&image, &["-o", "rw,own_permissions"]).unwrap();
    let [lower, merged] = ["lower", "merged"].map(|name| scratch.join(name));
    fs::create_dir(&lower).unwrap();
    fs::create_dir(&merged).unwrap();
    fs::write(lower.join("file"), "below").unwrap();
    let [upper, work] = ["upper", "work"].map(|name| mounted.path().join(name));
    fs::create_dir(&upper).unwrap();
    fs::create_dir(&work).unwrap();
    for path in [&lower.join("file"), &lower, &upper] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let layers =
        format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
    let mut mount = tool::command("mount");
    tool::run(mount.args(["-t", "overlay", "overlay", "-o", &layers]).arg(&merged));
    // The directories above are root's own.
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        "echo more >> file && echo new > new && mv new newer && mkdir d && rmdir d && cat file newer",
    ]);
    let done = shell.current_dir(&merged).uid(1000).gid(1000).output();
    unmount_with(tool::command("umount").arg(&merged));
    let done = done.unwrap();
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert_eq!((&*out, &*err), ("belowmore\nnew\n", ""));
    mounted.unmount();
    fsck::assert_clean(&image);
}
