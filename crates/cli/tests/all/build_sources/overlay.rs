//! Several sources of one image, and the tables that go with them.

use crate::support::{build, fail, plat, succeed};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use testkit::scratch::Scratch;
use testkit::{fsck, tool};

/// Paths with kinds and owners, as `plat ls` prints them: all but the times.
fn listed(image: &Path) -> String {
    let output = succeed(plat(&["export"]).arg(image).arg("-")).stdout;
    let mut tar = tool::command("tar");
    let mut child = tar
        .args(["--numeric-owner", "-tvf", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), &output).unwrap();
    let listed = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        [&words[..3], &words[5..]].concat().join(" ")
    };
    listed.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn write(path: PathBuf, contents: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, contents).unwrap();
}

/// Two trees, the second with whiteouts.
fn layers(scratch: &Scratch) -> (PathBuf, PathBuf) {
    let (low, high) = (scratch.join("low"), scratch.join("high"));
    let lower =
        ["d/same", "d/keep", "gone", "tree/inner/deep", "opaque/low", "opaque/sub/low", "file-then-tree"];
    for name in lower {
        write(low.join(name), name);
    }
    write(low.join("etc/passwd"), "root:x:0:0::/:/bin/sh\nweb:x:33:33::/:/bin/sh\n");
    write(low.join("etc/group"), "root:x:0:\nweb:x:34:\n");
    symlink("d", low.join("link")).unwrap();
    let upper = ["d/same", "d/new", ".wh.gone", "tree/.wh.inner", "opaque/.wh..wh..opq", "opaque/sub/high"];
    for name in upper {
        write(high.join(name), "from the upper one");
    }
    write(high.join("file-then-tree/inside"), "");
    (low, high)
}

#[test]
fn sources_lie_over_each_other_as_layers_do() {
    let scratch = Scratch::new("overlay");
    let (low, high) = layers(&scratch);
    let tar = scratch.join("high.tar");
    let mut pack = tool::command("tar");
    tool::run(pack.arg("--format=posix").arg("-C").arg(&high).arg("-cf").arg(&tar).arg("."));
    let images = ["one", "two", "three"].map(|name| scratch.join(name));
    for (image, upper) in images.iter().zip([Path::new(&high), &tar, Path::new("-")]) {
        let mut command = plat(&["build", "--reproducible"]);
        succeed(command.arg(&low).arg(upper).arg(image).stdin(File::open(&tar).unwrap()));
        fsck::assert_clean(image);
        assert!(fs::read(image).unwrap() == fs::read(&images[0]).unwrap(), "{}", image.display());
    }
    let names = succeed(plat(&["export"]).arg(&images[0]).arg("-")).stdout;
    let merged = scratch.join("merged");
    fs::create_dir(&merged).unwrap();
    fs::write(scratch.join("merged.tar"), names).unwrap();
    tool::run(tool::command("tar").arg("-C").arg(&merged).arg("-xf").arg(scratch.join("merged.tar")));
    let is = |path: &str| fs::read_to_string(merged.join(path)).unwrap();
    assert_eq!((&*is("d/same"), &*is("d/keep")), ("from the upper one", "d/keep"));
    assert_eq!((&*is("d/new"), &*is("file-then-tree/inside")), ("from the upper one", ""));
    for path in ["gone", ".wh.gone", "tree/inner", "opaque/low", "opaque/sub/low", "opaque/.wh..wh..opq"] {
        assert!(!merged.join(path).exists(), "{path}");
    }
    assert!(merged.join("opaque/sub/high").exists() && merged.join("link").is_symlink());
    // Files of both directories are read where they lie.
    let output = plat(&["build", "--tag", "x"]).args([&low, &high]).arg(scratch.join("x")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("--tag"), "{said}");
}

#[test]
fn a_table_of_devices_adds_files_and_sets_owners() {
    let scratch = Scratch::new("pseudo");
    let (low, _) = layers(&scratch);
    let table = scratch.join("table");
    let lines = "# all columns\n/dev d 755 0 0 - - - - -\n/dev/hda b 640 0 6 3 1 1 1 3\n/dev/null c 666 0 0 1 3 - - -\n\
                 /dev/uio c 600 0 0 252 4 2 3 2\n/d/same f 4755 web web - - - - -\n/none F 600 1 1 - - - - -\n\
                 /opaque r -1 7 8 - - - - -\n/link/pipe p 600 1 2 - - - - -\n/dev/log s 666 0 0\n";
    fs::write(&table, lines).unwrap();
    let image = scratch.join("image");
    build(&low, &image, &["--owner", "5:5", "--pseudo", table.to_str().unwrap()]);
    fsck::assert_clean(&image);
    let listed = listed(&image);
    for line in [
        "drwxr-xr-x 0/0 0 ./dev/",
        "brw-r----- 0/6 3,1 ./dev/hda1",
        "brw-r----- 0/6 3,3 ./dev/hda3",
        "crw-rw-rw- 0/0 1,3 ./dev/null",
        "crw------- 0/0 252,4 ./dev/uio2",
        "crw------- 0/0 252,7 ./dev/uio3",
        "-rwsr-xr-x 33/34 6 ./d/same",
        "-rw-r--r-- 5/5 6 ./d/keep",
        "-rw-r--r-- 7/8 14 ./opaque/sub/low",
        "prw------- 1/2 0 ./d/pipe",
    ] {
        let line = line.replace(" ./", " ");
        assert!(listed.lines().any(|known| known.replace(" ./", " ") == line), "{line} in\n{listed}");
    }
    assert!(!listed.contains("hda0") && !listed.contains("hda4") && !listed.contains("none"), "{listed}");
    for (line, word) in
        [("/nope f 644 0 0", "no regular file"), ("/x c 644 0 nobody", "nobody"), ("/x q", "type")]
    {
        fs::write(&table, line).unwrap();
        let output =
            plat(&["build", "--pseudo"]).arg(&table).arg(&low).arg(scratch.join("x")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(word), "{said}");
        assert!(!scratch.join("x").exists());
    }
}

#[test]
fn file_contexts_label_every_file() {
    let scratch = Scratch::new("contexts");
    let (low, _) = layers(&scratch);
    let table = scratch.join("file_contexts");
    let lines = "/.* u:r:default:s0\n/d(/.*)? u:r:d:s0\n/d/same -- u:r:same:s0\n/link -d u:r:wrong:s0\n\
                 /lost\\+found -d u:r:lost:s0\n/gone <<none>>\n";
    fs::write(&table, lines).unwrap();
    let image = scratch.join("image");
    build(&low, &image, &["--owner", "5:5", "--file-contexts", table.to_str().unwrap()]);
    fsck::assert_clean(&image);
    let label = |path: &str| {
        let mut debugfs = tool::command("debugfs");
        let output = tool::run(debugfs.args(["-R", &format!("ea_get {path} security.selinux")]).arg(&image));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    if tool::have_tools("labels", &["debugfs"]) {
        assert!(label("/").contains("\"u:r:default:s0\\000\""), "{}", label("/"));
        assert!(label("/d/keep").contains("u:r:d:s0") && label("/d/same").contains("u:r:same:s0"));
        assert!(label("/link").contains("u:r:default:s0") && label("/lost+found").contains("u:r:lost:s0"));
        assert!(!label("/gone").contains("u:r"), "{}", label("/gone"));
    }
    let names = String::from_utf8(succeed(plat(&["ls", "-l"]).arg(&image).arg("/")).stdout).unwrap();
    let line = names.lines().find(|line| line.ends_with(" lost+found")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[..4], ["drwx------", "2", "0", "0"], "{names}");
    fs::write(&table, "/x( u:r:t\n").unwrap();
    let said = fail(plat(&["build", "--file-contexts"]).arg(&table).arg(&low).arg(scratch.join("x")));
    assert!(said.contains("line 1"), "{said}");
}

#[test]
fn a_link_in_an_upper_archive_leads_to_a_file_of_a_lower_one() {
    let scratch = Scratch::new("overlay-links");
    let (tree, lower, upper) = (scratch.join("tree"), scratch.join("lower.tar"), scratch.join("upper.tar"));
    write(tree.join("f"), "both");
    fs::hard_link(tree.join("f"), tree.join("g")).unwrap();
    let pack = |archive: &Path, names: &[&str]| {
        tool::run(tool::command("tar").arg("-C").arg(&tree).arg("-cf").arg(archive).args(names));
    };
    pack(&lower, &["f"]);
    pack(&upper, &["f", "g"]);
    tool::run(tool::command("tar").args(["--delete", "-f"]).arg(&upper).arg("f"));
    let image = scratch.join("image");
    succeed(plat(&["build"]).arg(&lower).arg(&upper).arg(&image));
    fsck::assert_clean(&image);
    assert_eq!(succeed(plat(&["cat"]).arg(&image).arg("g")).stdout, b"both");
    assert_eq!(
        fail(plat(&["build"]).arg(&upper).arg(scratch.join("alone"))).matches("no earlier entry").count(),
        1
    );
}

/// Nothing becomes an empty image, and nothing of it is written.
#[test]
fn volumes_are_no_sources_and_are_named() {
    let scratch = Scratch::new("foreign-sources");
    let (tree, volume, zeros) = (scratch.join("tree"), scratch.join("volume"), scratch.join("zeros"));
    write(tree.join("precious"), "here");
    build(&tree, &volume, &[]);
    fs::write(&zeros, vec![0; 3 << 20]).unwrap();
    let made = scratch.join("made");
    for (source, named) in [(&volume, "is an ext2, ext3 or ext4 volume"), (&zeros, "has no entry")] {
        let said = fail(plat(&["build"]).arg(source).arg(&made));
        assert!(said.contains(named) && !made.exists(), "{said}");
        let before = fs::read(&volume).unwrap();
        let said = fail(plat(&["import"]).arg(&volume).arg(source));
        assert!(said.contains(named) && fs::read(&volume).unwrap() == before, "{said}");
    }
}

#[test]
fn extended_options_of_the_root_hold_for_trees() {
    let scratch = Scratch::new("root-words");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    write(tree.join("f"), "");
    let words = "root_owner=7:8,root_perms=0751,root_selinux=system_u:object_r:root_t:s0";
    build(&tree, &image, &["-E", words]);
    fsck::assert_clean(&image);
    let said = String::from_utf8(succeed(plat(&["stat"]).arg(&image).arg("/")).stdout).unwrap();
    assert!(said.contains("Mode: 0751") && said.contains("Owner: 7:8"), "{said}");
    let label = String::from_utf8(succeed(plat(&["xattr"]).arg(&image).arg("/")).stdout).unwrap();
    let value: String = b"system_u:object_r:root_t:s0\0".iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(label.contains(&format!("security.selinux=0x{value}")), "{label}");
}

/// A source in use: what the kernel shows is left out, other file systems if that is asked for.
#[test]
fn mounts_below_a_source_are_no_files_of_it() {
    let test = "mounts_below_a_source_are_no_files_of_it";
    if !tool::have_root(test) || !tool::have_tools(test, &["unshare", "mount"]) {
        return;
    }
    let scratch = Scratch::new("mounts-below");
    let tree = scratch.join("tree");
    write(tree.join("etc/f"), "");
    ["proc", "other"].iter().for_each(|name| fs::create_dir(tree.join(name)).unwrap());
    let script =
        "mount -t proc proc $1/proc && mount -t tmpfs tmpfs $1/other && echo > $1/other/inside || exit 77
        shift; exec \"$@\"";
    for (option, inside) in [(None, 1), (Some("--one-file-system"), 0)] {
        let image = scratch.join("image");
        let mut command = tool::command("unshare");
        command
            .args(["-m", "sh", "-c", script, "sh"])
            .arg(&tree)
            .arg(env!("CARGO_BIN_EXE_plat"))
            .arg("build");
        let done =
            command.args(option).args(["--force", "--size", "16M"]).arg(&tree).arg(&image).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        if done.status.code() == Some(77) {
            return tool::skip(test, "nothing can be mounted in a namespace");
        }
        assert!(done.status.success() && said.contains("`proc` is left out: the kernel makes up"), "{said}");
        assert_eq!(said.matches("`other` is left out").count(), 1 - inside, "{said}");
        fsck::assert_clean(&image);
        let names = listed(&image);
        assert!(names.contains("./proc/") || names.contains("proc/"), "{names}");
        assert_eq!((names.matches("self").count(), names.matches("other/inside").count()), (0, inside));
    }
}
