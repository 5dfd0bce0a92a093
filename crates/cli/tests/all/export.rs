//! `plat export` on images by mke2fs, judged by the tree they were made from.

use crate::trees::{ALL, Clock, Rules, assert_same, facts, read};
use platfs_image::source::NodeKind;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use testkit::scratch::Scratch;
use testkit::{odd, tool};

/// Holes are compared by what they read as: mke2fs looks for zeros on its own.
const RULES: Rules =
    Rules { clock: Clock::Never, holes: false, root: false, linked: &[NodeKind::File], ..ALL };

fn plat(arguments: &[&str], paths: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plat"));
    command.args(arguments).args(paths).output().unwrap()
}

#[track_caller]
fn must(output: Output) -> Vec<u8> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[track_caller]
fn refused(output: &Output, words: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains(words) && said.lines().count() == 1, "{said}");
}

/// An image of `tree` by mke2fs.
fn image(scratch: &Scratch, tree: &Path, features: &str) -> PathBuf {
    let path = scratch.join("disk.img");
    let mut command = tool::command("mke2fs");
    command.args(["-q", "-F", "-t", "ext4", "-I", "256", "-O", features, "-d"]).arg(tree).arg(&path);
    tool::run(command.arg("64M"));
    path
}

fn odd_image(scratch: &Scratch) -> (PathBuf, PathBuf) {
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    odd::make(&tree, &odd::Options { root: tool::administers(), ..odd::Options::modest() });
    let image = image(scratch, &tree, "none,extent,dir_index,ext_attr,large_file,filetype,sparse_super");
    (tree, image)
}

#[test]
fn archives_hold_what_the_image_was_made_of() {
    if !tool::have_tools("archives_hold_what_the_image_was_made_of", &["mke2fs"]) {
        return;
    }
    let scratch = Scratch::new("export-archive");
    let (tree, image) = odd_image(&scratch);
    let tree = read(&tree);
    for name in ["a.tar", "a.tar.gz", "a.tar.zst"] {
        let out = scratch.join(name);
        must(plat(&["export"], &[&image, &out]));
        assert_same(&tree, &read(&out), RULES);
        refused(&plat(&["export"], &[&image, &out]), "exists");
        must(plat(&["export", "--force"], &[&image, &out]));
    }
    fs::write(scratch.join("stdout.tar"), must(plat(&["export"], &[&image, Path::new("-")]))).unwrap();
    assert!(fs::read(scratch.join("stdout.tar")).unwrap() == fs::read(scratch.join("a.tar")).unwrap());
}

#[test]
fn directories_hold_what_the_image_was_made_of() {
    if !tool::have_tools("directories_hold_what_the_image_was_made_of", &["mke2fs"]) {
        return;
    }
    let scratch = Scratch::new("export-directory");
    let (tree, image) = odd_image(&scratch);
    let out = scratch.join("out");
    must(plat(&["export"], &[&image, &out]));
    let rules = Rules { sockets: true, ..RULES };
    assert_same(&read(&tree), &read(&out), rules);
    refused(&plat(&["export"], &[&image, &out]), "no empty directory");

    must(plat(&["export", "--from=/kinds"], &[&image, &scratch.join("kinds")]));
    assert_eq!(facts(&read(&tree.join("kinds")), rules), facts(&read(&scratch.join("kinds")), rules));
    let left = fs::read_dir(scratch.path()).unwrap();
    assert!(left.flatten().all(|entry| !entry.file_name().to_string_lossy().starts_with(".plat-")));
}

/// A file gets its mode as it is made; what the umask takes away is given afterwards, and nothing else is asked for.
#[test]
fn modes_do_not_depend_on_the_umask() {
    if !tool::have_tools("modes_do_not_depend_on_the_umask", &["mke2fs"]) {
        return;
    }
    let scratch = Scratch::new("export-umask");
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    let modes = [0o644, 0o666, 0o777, 0o4755, 0o2711, 0o1777, 0o000, 0o600];
    for mode in modes {
        fs::write(tree.join(format!("{mode:o}")), "x").unwrap();
        fs::set_permissions(tree.join(format!("{mode:o}")), fs::Permissions::from_mode(mode)).unwrap();
    }
    // A hole at the end is one of the copy.
    fs::File::create(tree.join("hole")).unwrap().set_len(1 << 20).unwrap();
    let image = image(&scratch, &tree, "none,extent,filetype,sparse_super");
    for mask in ["000", "022", "077", "777"] {
        let out = scratch.join(mask);
        let mut shell = Command::new("sh");
        shell.args([
            "-c",
            "umask $1; exec \"$2\" export \"$3\" \"$4\"",
            "sh",
            mask,
            env!("CARGO_BIN_EXE_plat"),
        ]);
        must(shell.arg(&image).arg(&out).output().unwrap());
        for mode in modes {
            let found = fs::metadata(out.join(format!("{mode:o}"))).unwrap().permissions().mode() & 0o7777;
            assert_eq!(format!("{found:o}"), format!("{mode:o}"), "umask {mask}");
        }
        assert_eq!(fs::metadata(out.join("hole")).unwrap().len(), 1 << 20);
    }
}

/// Replaces each `from` in a file by `to`, of the same length.
fn patch(path: &Path, from: &[u8], to: &[u8]) {
    let mut bytes = fs::read(path).unwrap();
    let mut found = 0;
    for at in 0..bytes.len() - from.len() {
        if bytes[at..].starts_with(from) {
            bytes[at..at + to.len()].copy_from_slice(to);
            found += 1;
        }
    }
    assert!(found > 0);
    fs::write(path, bytes).unwrap();
}

#[test]
fn nothing_is_written_outside() {
    if !tool::have_tools("nothing_is_written_outside", &["mke2fs"]) {
        return;
    }
    let scratch = Scratch::new("export-hostile");
    let tree = scratch.join("tree");
    fs::create_dir_all(tree.join("aaaa")).unwrap();
    fs::write(tree.join("XXXXYYYYYZ"), "evil").unwrap();
    fs::write(tree.join("aaaa/evil"), "evil").unwrap();
    fs::create_dir(scratch.join("victim")).unwrap();
    symlink(scratch.join("victim"), tree.join("bbbb")).unwrap();
    // Short enough that no checksum stands in the way.
    let features = "none,extent,filetype";
    let made = image(&scratch, &tree, features);
    for (from, to) in [(&b"XXXXYYYYYZ"[..], &b"../../evil"[..]), (b"bbbb", b"aaaa")] {
        let hostile = scratch.join("hostile.img");
        fs::copy(&made, &hostile).unwrap();
        patch(&hostile, from, to);
        let out = scratch.join("out");
        let output = plat(&["export"], &[&hostile, &out]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1);
        assert!(!out.exists() && !scratch.join("evil").exists());
        assert_eq!(fs::read_dir(scratch.join("victim")).unwrap().count(), 0);
        let archive = scratch.join("out.tar");
        assert_eq!(plat(&["export"], &[&hostile, &archive]).status.code(), Some(1));
        assert!(!archive.exists());
    }
}

#[test]
fn without_root_rights_are_not_lent() {
    if !tool::have_tools("without_root_rights_are_not_lent", &["mke2fs", "setpriv"])
        || !tool::have_root("without_root_rights_are_not_lent")
    {
        return;
    }
    let scratch = Scratch::new("export-unprivileged");
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("su"), "#!").unwrap();
    fs::set_permissions(tree.join("su"), fs::Permissions::from_mode(0o4755)).unwrap();
    fs::write(tree.join("tagged"), "x").unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    let tagged = rustix::fs::setxattr(tree.join("tagged"), "user.tag", b"v", flags).is_ok();
    fs::set_permissions(tree.join("tagged"), fs::Permissions::from_mode(0o444)).unwrap();
    let image = image(&scratch, &tree, "none,extent,filetype,ext_attr");
    fs::create_dir(scratch.join("home")).unwrap();
    std::os::unix::fs::chown(scratch.join("home"), Some(65_534), Some(65_534)).unwrap();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // A copy that others may run, whatever the permissions of the build's directory.
    let binary = scratch.join("plat");
    fs::copy(env!("CARGO_BIN_EXE_plat"), &binary).unwrap();
    let mut command = tool::command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&binary).arg("export");
    let output = command.arg(&image).arg(scratch.join("home/out")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("keep the owner who exports"), "{said}");
    let mode = |name: &str| fs::metadata(scratch.join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("home/out/su"), mode("home/out/tagged")), (0o755, 0o444));
    // Linux asks for the owner's write permission before it sets such an attribute.
    if tagged {
        let mut value = [0; 1];
        let got = rustix::fs::getxattr(scratch.join("home/out/tagged"), "user.tag", &mut value[..]);
        assert_eq!(got.unwrap(), 1);
    }
}

/// Root of a user namespace can give files only to users whom the namespace knows.
#[test]
fn owners_that_a_user_namespace_lacks_are_left_out() {
    let test = "owners_that_a_user_namespace_lacks_are_left_out";
    if !tool::have_tools(test, &["mke2fs", "unshare"]) || !tool::have_root(test) {
        return;
    }
    let scratch = Scratch::new("export-namespace");
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("su"), "#!").unwrap();
    std::os::unix::fs::chown(tree.join("su"), Some(5000), Some(6000)).unwrap();
    fs::set_permissions(tree.join("su"), fs::Permissions::from_mode(0o4755)).unwrap();
    let image = image(&scratch, &tree, "none,extent,filetype");
    let out = scratch.join("out");
    let mut command = tool::command("unshare");
    let output =
        command.args(["-Ur", env!("CARGO_BIN_EXE_plat"), "export"]).arg(&image).arg(&out).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("unshare failed") {
        return tool::skip(test, "user namespaces can't be made");
    }
    assert!(output.status.success() && said.contains("keep the owner who exports"), "{said}");
    let mode = fs::metadata(out.join("su")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
}

#[test]
fn times_of_small_inodes_are_whole_seconds() {
    if !tool::have_tools("times_of_small_inodes_are_whole_seconds", &["mke2fs"]) {
        return;
    }
    let scratch = Scratch::new("export-small-inodes");
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("f"), "data").unwrap();
    let image = scratch.join("disk.img");
    let mut command = tool::command("mke2fs");
    tool::run(command.args(["-q", "-F", "-t", "ext2", "-I", "128", "-d"]).arg(&tree).arg(&image).arg("4M"));
    must(plat(&["export"], &[&image, &scratch.join("a.tar")]));
    assert_same(&read(&tree), &read(&scratch.join("a.tar")), Rules { clock: Clock::Seconds, ..RULES });
}

#[test]
fn endings_of_other_archives_are_refused_and_a_slash_makes_a_directory() {
    if !tool::have_tools("endings", &["mke2fs"]) {
        return;
    }
    let scratch = Scratch::new("endings");
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    let image = image(&scratch, &tree, "none,extent,filetype");
    for name in ["a.tar.xz", "a.txz", "a.tar.bz2", "a.zip", "a.7z", "a.cpio", "a.gz", ".zip"] {
        let out = scratch.join(name);
        let output = plat(&["export"], &[&image, &out]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2) && said.contains(".tar.zst") && said.contains(name),
            "{said}"
        );
        assert!(!out.exists(), "{name}");
    }
    must(plat(&["export"], &[&image, &scratch.join("dir.zip/")]));
    assert!(scratch.join("dir.zip").is_dir());
    must(plat(&["export"], &[&image, &scratch.join("zip")]));
}

#[test]
fn a_full_disk_is_named_and_nothing_is_left_there() {
    let test = "a_full_disk_is_named_and_nothing_is_left_there";
    if !tool::have_root(test) || !tool::have_tools(test, &["mke2fs", "mount", "umount"]) {
        return;
    }
    let scratch = Scratch::new("full");
    let [tree, full] = ["tree", "full"].map(|name| scratch.join(name));
    fs::create_dir(&tree).unwrap();
    fs::create_dir(&full).unwrap();
    let noise = testkit::random::Random(7).bytes(3 << 20);
    fs::write(tree.join("noise"), noise).unwrap();
    let image = image(&scratch, &tree, "none,extent,filetype");
    tool::run(tool::command("mount").args(["-t", "tmpfs", "-o", "size=1M", "tmpfs"]).arg(&full));
    let outputs = ["a.tar", "a.tar.gz", "a.tar.zst", "dir"].map(|name| {
        let out = full.join(name);
        let output = plat(&["export"], &[&image, &out]);
        (out, output, fs::read_dir(&full).unwrap().count())
    });
    tool::run(tool::command("umount").arg(&full));
    for (out, output, left) in outputs {
        refused(&output, "No space left");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains(&*out.parent().unwrap().to_string_lossy()) && !said.contains("standard output"),
            "{said}"
        );
        assert_eq!(left, 0, "{}", out.display());
    }
}

/// Names and contents that need a key are no damage: they are left out, with a word.
#[test]
fn what_is_encrypted_is_left_out() {
    let test = "what_is_encrypted_is_left_out";
    if !tool::have_tools(test, &["mke2fs", "debugfs", "tar"]) {
        return;
    }
    let scratch = Scratch::new("export");
    let tree = scratch.join("tree");
    fs::create_dir_all(tree.join("locked/below")).unwrap();
    for name in ["plain", "locked/name", "locked/below/name"] {
        fs::write(tree.join(name), b"contents").unwrap();
    }
    let image = image(&scratch, &tree, "encrypt,^metadata_csum");
    // The flag of encryption; a name as cipher makes it.
    for name in ["locked", "locked/name", "locked/below", "locked/below/name"] {
        tool::run(
            tool::command("debugfs").args(["-w", "-R", &format!("sif /{name} flags 0x80800")]).arg(&image),
        );
    }
    patch(&image, b"name", b"n/\0e");
    let listed = |output: Output| {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("encrypted") && said.contains("locked") && said.lines().count() == 1, "{said}");
    };
    let (archive, directory) = (scratch.join("a.tar"), scratch.join("out"));
    listed(plat(&["export"], &[&image, &archive]));
    let names = must(tool::command("tar").arg("-tf").arg(&archive).output().unwrap());
    assert_eq!(String::from_utf8_lossy(&names), "./\nplain\nlocked/\n");
    listed(plat(&["export"], &[&image, &directory]));
    assert_eq!(fs::read(directory.join("plain")).unwrap(), b"contents");
    assert_eq!(fs::read_dir(directory.join("locked")).unwrap().count(), 0);
}

/// An image whose end is lost: what lies there is named, and all else comes out.
#[test]
fn it_goes_on_where_bytes_are_lost() {
    if !tool::have_tools("it_goes_on_where_bytes_are_lost", &["mke2fs"]) {
        return;
    }
    let scratch = Scratch::new("export-keep-going");
    let tree = scratch.join("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    for at in 0..20 {
        fs::write(tree.join(format!("sub/{at:02}")), vec![b'0' + at; 2 << 20]).unwrap();
    }
    let path = image(&scratch, &tree, "none,extent,filetype,sparse_super");
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(34 << 20).unwrap();
    let files = |out: &Path| {
        fs::read_dir(out.join("sub")).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };

    let out = scratch.join("stopped");
    assert_eq!(plat(&["export"], &[&path, &out]).status.code(), Some(1));
    assert!(!out.exists());
    let usage = plat(&["get", "--keep-going"], &[&path, Path::new("sub/00"), &out]);
    assert_eq!(usage.status.code(), Some(2));

    let out = scratch.join("some");
    let output = plat(&["export", "--keep-going"], &[&path, &out]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("sub/19: left out, as bytes"), "{said}");
    let left_out = said.lines().filter(|line| line.contains("left out, as bytes")).count();
    let there = files(&out);
    assert!(left_out > 0 && there.len() + left_out >= 20 && !there.is_empty(), "{said}");
    assert!(said.lines().last().unwrap().contains("parts can't be read"), "{said}");
    for path in there {
        let bytes = fs::read(&path).unwrap();
        assert!(bytes.len() == 2 << 20 && bytes.iter().all(|byte| *byte == bytes[0]), "{}", path.display());
    }

    let out = scratch.join("all");
    let output = plat(&["get", "-r", "--keep-going=zeros"], &[&path, Path::new("sub"), &out]);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_dir(&out).unwrap().count(), 20);
}

/// A command that was killed can't remove what it made.
#[test]
fn what_a_killed_export_left_is_named() {
    let scratch = Scratch::new("export-killed");
    let (tree, image) = (scratch.join("tree"), scratch.join("disk.img"));
    fs::create_dir_all(tree.join("d")).unwrap();
    must(plat(&["build", "-q"], &[&tree, &image]));
    fs::create_dir(scratch.join(".plat-abcdefgh234567zz")).unwrap();
    for (verb, out) in [("export", "one"), ("get", "two")] {
        let arguments: &[&str] = if verb == "get" { &["get", "-r"] } else { &["export"] };
        let (from, to) = (Path::new("/d"), scratch.join(out));
        let paths: &[&Path] = if verb == "get" { &[&image, from, &to] } else { &[&image, &to] };
        let said = plat(arguments, paths);
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(said.lines().count() == 1 && said.contains(".plat-abcdefgh234567zz: is left"), "{said}");
        assert!(to.is_dir());
    }
}

/// The error names what gets all else out.
#[test]
fn damage_ends_an_export_with_the_remedy() {
    let test = "damage_ends_an_export_with_the_remedy";
    if !tool::have_tools(test, &["debugfs"]) {
        return;
    }
    let scratch = Scratch::new("export-damage");
    let (tree, image) = (scratch.join("tree"), scratch.join("disk.img"));
    fs::create_dir_all(tree.join("d")).unwrap();
    for name in ["bad", "good"] {
        fs::write(tree.join("d").join(name), vec![7; 5000]).unwrap();
    }
    must(plat(&["build", "-q", "-O", "^metadata_csum,^has_journal,^extent,^64bit"], &[&tree, &image]));
    tool::run(
        tool::command("debugfs").args(["-w", "-R", "set_inode_field /d/bad block[0] 4000000"]).arg(&image),
    );
    let out = scratch.join("out");
    refused(&plat(&["export"], &[&image, &out]), "--keep-going takes out all else");
    refused(&plat(&["get", "-r"], &[&image, Path::new("/d"), &out]), "--keep-going takes out all else");
    let done = plat(&["export", "--keep-going"], &[&image, &out]);
    assert!(done.status.code() == Some(1) && out.join("d/good").exists() && !out.join("d/bad").exists());
}
