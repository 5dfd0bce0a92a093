//! Commands that work on a mount through its server: the kernel sees at once what they did, others that use the mount see
//! whole files only, and `e2fsck -fn` has nothing to say.

#![cfg(target_os = "linux")]
mod channel;
mod confined;
mod own_files;
mod rights;
mod strain;
mod strangers;
mod swapped;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::mounted::{Mounted, have_fuse};
use crate::support::{fail, plat, succeed};
use rustix::process::Signal;
use testkit::fsck::assert_clean;
use testkit::scratch::Scratch;
use testkit::snapshot::{Rules, Snapshot, assert_same};
use testkit::{mount, odd, tool};

const PATIENCE: Duration = Duration::from_secs(60);

fn have(test: &str) -> bool {
    have_fuse(test)
        && tool::have_root(test)
        && mount::have_loop_mount(test)
        && tool::have_tools(test, &["mke2fs", "e2fsck", "tar"])
}

/// A volume by mke2fs.
fn volume(scratch: &Scratch, options: &str, size: &str) -> PathBuf {
    let image = scratch.join("disk.img");
    let mut command = tool::command("mke2fs");
    tool::run(command.args(["-q", "-F"]).args(options.split_whitespace()).arg(&image).arg(size));
    image
}

/// A command with paths below a mount.
fn on(mounted: &Mounted, words: &[&str]) -> Command {
    let mut command = plat(&[]);
    for word in words {
        match word.strip_prefix("m:") {
            Some(path) => command.arg(mounted.path().join(path)),
            None => command.arg(word),
        };
    }
    command
}

/// Many small files in directories, each with contents that its name says.
fn many(directory: &Path, directories: usize, files: usize) {
    for number in 0..directories {
        let below = directory.join(format!("d{number}"));
        fs::create_dir(&below).unwrap();
        for file in 0..files {
            let name = format!("f{number}-{file}");
            fs::write(below.join(&name), contents(&name)).unwrap();
        }
    }
}

fn contents(name: &str) -> Vec<u8> {
    let len = 50 + name.bytes().map(usize::from).sum::<usize>() * 101 % 20_000;
    name.bytes().cycle().take(len).collect()
}

/// All files below a directory are whole; how many they are.
fn whole(directory: &Path) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            count += whole(&path);
        } else {
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(fs::read(&path).unwrap() == contents(name), "{} is not whole", path.display());
            count += 1;
        }
    }
    count
}

fn archive_of(scratch: &Scratch, tree: &Path, name: &str) -> PathBuf {
    let archive = scratch.join(name);
    let mut tar = tool::command("tar");
    tar.args(["--sparse", "--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner", "-C"])
        .arg(tree)
        .arg("-cf")
        .arg(&archive);
    // Not the directory itself, whose attributes stay as they are.
    for entry in fs::read_dir(tree).unwrap() {
        tar.arg(Path::new(".").join(entry.unwrap().file_name()));
    }
    tool::run(&mut tar);
    archive
}

/// Unmounts; the kernel's driver sees the tree that the mount showed.
fn judge(mounted: Mounted, image: &Path) {
    let live = Snapshot::of(mounted.path()).unwrap();
    let log = mounted.unmount();
    assert!(log.len() <= 2, "{log:?}");
    assert_clean(image);
    let kernel = mount::Mounted::kernel(image, "loop,ro").unwrap();
    let theirs = Snapshot::of(kernel.path()).unwrap();
    assert_same(&live, &theirs, &Rules { hole_granularity: 0, ..Rules::default() });
}

#[test]
fn an_archive_comes_in_as_tar_would_bring_it_and_goes_out_again() {
    let test = "an_archive_comes_in_as_tar_would_bring_it_and_goes_out_again";
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let tree = crate::support::modest_tree(&scratch, &odd::Options::modest());
    let archive = archive_of(&scratch, &tree, "tree.tar");
    for options in [
        "-t ext4 -b 4096",
        "-t ext4 -b 1024 -O inline_data",
        "-t ext2 -b 1024",
        "-t ext4 -b 4096 -O bigalloc",
    ] {
        let image = volume(&scratch, options, "256M");
        let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
        fs::create_dir(mounted.path().join("by-tar")).unwrap();
        fs::create_dir(mounted.path().join("by-plat")).unwrap();
        let mut tar = tool::command("tar");
        tar.args(["--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner", "-C"])
            .arg(mounted.path().join("by-tar"));
        tool::run(tar.arg("-xf").arg(&archive));
        succeed(on(&mounted, &["import", "m:by-plat"]).arg(&archive));
        let snapshot = |name: &str| {
            // The directory that a tree was unpacked into keeps its own time.
            let directory = File::open(mounted.path().join(name)).unwrap();
            directory.set_times(fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH)).unwrap();
            Snapshot::of(&mounted.path().join(name)).unwrap()
        };
        let rules = Rules { hole_granularity: 0, ..Rules::default() };
        assert_same(&snapshot("by-plat"), &snapshot("by-tar"), &rules);
        let out = scratch.join("out.tar");
        let _ = fs::remove_file(&out);
        succeed(on(&mounted, &["export", "m:by-plat"]).arg(&out));
        fs::create_dir(mounted.path().join("again")).unwrap();
        succeed(on(&mounted, &["import", "m:again"]).arg(&out));
        assert_same(&snapshot("again"), &snapshot("by-tar"), &rules);
        succeed(&mut on(&mounted, &["cp", "-r", "-p", "m:by-plat", "m:copy"]));
        assert_same(&snapshot("copy"), &snapshot("by-tar"), &rules);
        succeed(&mut on(&mounted, &["rm", "-r", "m:by-tar", "m:again"]));
        assert!(!mounted.path().join("by-tar").exists() && !mounted.path().join("again").exists());
        judge(mounted, &image);
    }
}

#[test]
fn the_same_verbs_work_on_an_image() {
    let test = "the_same_verbs_work_on_an_image";
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let tree = crate::support::modest_tree(&scratch, &odd::Options::modest());
    let archive = archive_of(&scratch, &tree, "tree.tar");
    let image = volume(&scratch, "-t ext4 -b 4096", "256M");
    succeed(plat(&["mkdir"]).arg(&image).arg("/sub"));
    succeed(plat(&["import", "--to", "/sub"]).arg(&image).arg(&archive));
    succeed(plat(&["cp", "-r", "-p"]).arg(&image).args(["/sub", "/copy"]));
    assert_clean(&image);
    let kernel = mount::Mounted::kernel(&image, "loop,ro").unwrap();
    let snapshot = |name: &str| Snapshot::of(&kernel.path().join(name)).unwrap();
    let rules = Rules { hole_granularity: 0, sockets: false, ..Rules::default() };
    assert_same(&snapshot("sub"), &snapshot("copy"), &rules);
    drop(kernel);
    let said = fail(plat(&["cp", "-r"]).arg(&image).args(["/sub", "/sub/below"]));
    assert!(said.contains("lies in the directory that is to be copied"), "{said}");
    succeed(plat(&["rm", "-r"]).arg(&image).arg("/sub"));
    assert_clean(&image);
}

#[test]
fn the_kernel_knows_at_once_what_changed() {
    let test = "the_kernel_knows_at_once_what_changed";
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    many(&tree, 2, 100);
    let archive = archive_of(&scratch, &tree, "tree.tar");
    let image = volume(&scratch, "-t ext4 -b 4096", "128M");
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    let sub = mounted.path().join("sub");
    fs::create_dir(&sub).unwrap();
    let names = |path: &Path| fs::read_dir(path).unwrap().count();
    let links = || fs::metadata(&sub).unwrap().nlink();
    for round in 0..5 {
        // The kernel knows that there is nothing, in each of the ways in which it can.
        assert!(!sub.join("d0").exists() && !sub.join("d1/f1-5").exists() && names(&sub) == 0, "{round}");
        assert_eq!(links(), 2);
        succeed(on(&mounted, &["import", "-q", "m:sub"]).arg(&archive));
        assert!(sub.join("d0").exists() && names(&sub) == 2 && names(&sub.join("d1")) == 100, "{round}");
        assert_eq!((links(), whole(&sub)), (4, 200));
        // What is open lives on, and has no name.
        let held = File::open(sub.join("d1/f1-5")).unwrap();
        succeed(&mut on(&mounted, &["rm", "-r", "m:sub/d1"]));
        assert!(!sub.join("d1/f1-5").exists() && !sub.join("d1").exists() && names(&sub) == 1, "{round}");
        assert_eq!((held.metadata().unwrap().nlink(), links()), (0, 3));
        assert_eq!(std::io::read_to_string(&held).unwrap().into_bytes(), contents("f1-5"));
        drop(held);
        succeed(&mut on(&mounted, &["rm", "-r", "m:sub/d0"]));
    }
    judge(mounted, &image);
}

#[test]
fn copies_have_what_programs_wrote_last() {
    let test = "copies_have_what_programs_wrote_last";
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch, "-t ext4 -b 4096", "128M");
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    let (from, to) = (mounted.path().join("a"), mounted.path().join("b"));
    for round in 0..20_u32 {
        let bytes = vec![u8::try_from(round).unwrap(); 300_000];
        let mut file = File::create(&from).unwrap();
        file.write_all(&bytes).unwrap();
        succeed(&mut on(&mounted, &["cp", "-f", "m:a", "m:b"]));
        assert!(fs::read(&to).unwrap() == bytes, "{round}");
        let out = scratch.join(format!("{round}.tar"));
        succeed(on(&mounted, &["export", "m:"]).arg(&out));
        let inside = tool::run(tool::command("tar").arg("-xOf").arg(&out).arg("a")).stdout;
        assert!(inside == bytes, "{round}");
    }
    judge(mounted, &image);
}

#[test]
fn single_files_come_and_go() {
    let test = "single_files_come_and_go";
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch, "-t ext4 -b 4096", "128M");
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    many(&tree, 2, 10);
    fs::write(tree.join("large"), contents("x").repeat(4000)).unwrap();
    let host = |name: &str| tree.join(name).to_str().unwrap().to_owned();
    succeed(&mut on(&mounted, &["mkdir", "-p", "m:x/y", "m:z"]));
    succeed(&mut on(&mounted, &["put", "-r", "m:", &host("d0"), &host("d1"), "x/y"]));
    succeed(&mut on(&mounted, &["put", "m:x", &host("large"), "big"]));
    assert_eq!(whole(&mounted.path().join("x/y")), 20);
    assert_eq!(fs::read(mounted.path().join("x/big")).unwrap(), fs::read(tree.join("large")).unwrap());
    let said = fail(&mut on(&mounted, &["put", "m:x", &host("large"), "big"]));
    assert!(said.contains("exists; --force replaces"), "{said}");
    succeed(&mut on(&mounted, &["put", "-f", "m:x", &host("d0/f0-1"), "big"]));
    assert_eq!(fs::read(mounted.path().join("x/big")).unwrap(), contents("f0-1"));
    succeed(&mut on(&mounted, &["mv", "m:x/big", "m:z"]));
    let out = scratch.join("out");
    succeed(on(&mounted, &["get", "-r", "m:", "x/y"]).arg(&out));
    assert_eq!(whole(&out), 20);
    succeed(on(&mounted, &["get", "m:z", "big"]).arg(scratch.join("big")));
    assert_eq!(fs::read(scratch.join("big")).unwrap(), contents("f0-1"));
    judge(mounted, &image);
}

/// Into an image, into a mount, and out of it again: nothing is lost on the way.
#[test]
fn trees_come_and_go_with_all_that_belongs_to_them() {
    let test = "trees_come_and_go_with_all_that_belongs_to_them";
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let tree = crate::support::modest_tree(&scratch, &odd::Options::modest());
    let sparse = File::create(tree.join("one sparse")).unwrap();
    sparse.write_all_at(b"end", 500 << 20).unwrap();
    let expected = Snapshot::of(&tree).unwrap();
    let rules = Rules::default();
    let image = volume(&scratch, "-t ext4 -b 4096 -I 1024", "256M");
    let host = tree.to_str().unwrap().to_owned();
    succeed(plat(&["put", "-r"]).arg(&image).args([&host, "/tree"]));
    succeed(plat(&["put"]).arg(&image).args([tree.join("one sparse").to_str().unwrap(), "/sparse"]));
    assert_clean(&image);
    {
        let kernel = mount::Mounted::kernel(&image, "loop,ro").unwrap();
        assert_same(&expected, &Snapshot::of(&kernel.path().join("tree")).unwrap(), &rules);
        assert!(fs::metadata(kernel.path().join("sparse")).unwrap().blocks() <= 16);
    }
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    succeed(&mut on(&mounted, &["put", "-a", "m:", &host, "live"]));
    succeed(&mut on(&mounted, &["put", "-r", "-f", "--owner", "7:8", "m:", &host, "given"]));
    assert_same(&expected, &Snapshot::of(&mounted.path().join("live")).unwrap(), &rules);
    let given = Snapshot::of(&mounted.path().join("given")).unwrap();
    assert!(given.entries.values().all(|entry| (entry.uid, entry.gid) == (7, 8)));
    let out = scratch.join("out");
    succeed(on(&mounted, &["get", "-r", "m:", "live"]).arg(&out));
    assert_same(&expected, &Snapshot::of(&out).unwrap(), &rules);
    judge(mounted, &image);
}

/// A file without a list has none in a copy either, whatever its directory has new files inherit.
#[test]
fn copies_inherit_no_lists_that_their_originals_lack() {
    let test = "copies_inherit_no_lists_that_their_originals_lack";
    if !have(test) || !tool::have_tools(test, &["setfacl", "setfattr"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let tree = scratch.join("tree");
    fs::create_dir_all(tree.join("shared/below")).unwrap();
    fs::write(tree.join("shared/private"), "secret").unwrap();
    fs::set_permissions(tree.join("shared/private"), fs::Permissions::from_mode(0o640)).unwrap();
    tool::run(tool::command("setfacl").args(["-d", "-m", "u:7:rwx"]).arg(tree.join("shared")));
    // Other attributes of the directory stay, and a list of a directory's own goes before what it would inherit.
    tool::run(tool::command("setfacl").args(["-m", "g::---,u:5:rwx"]).arg(tree.join("shared")));
    tool::run(tool::command("setfattr").args(["-n", "user.a", "-v", "b"]).arg(tree.join("shared")));
    tool::run(tool::command("setfacl").args(["-m", "u:5:r-x"]).arg(tree.join("shared/below")));
    let archive = archive_of(&scratch, &tree, "tree.tar");
    let image = volume(&scratch, "-t ext4 -b 4096", "64M");
    succeed(plat(&["put", "-r"]).arg(&image).arg(&tree).arg("/put"));
    succeed(plat(&["mkdir"]).arg(&image).arg("/imported"));
    succeed(plat(&["import", "--to", "/imported"]).arg(&image).arg(&archive));
    succeed(plat(&["cp", "-r", "-p"]).arg(&image).args(["/put", "/copied"]));
    assert_clean(&image);
    let kernel = mount::Mounted::kernel(&image, "loop,ro").unwrap();
    let expected = Snapshot::of(&tree.join("shared")).unwrap();
    for name in ["put/shared", "imported/shared", "copied/shared"] {
        let shown = Snapshot::of(&kernel.path().join(name)).unwrap();
        assert_same(&expected, &shown, &Rules { hole_granularity: 0, ..Rules::default() });
    }
}

/// Files with lists of their own come into a directory that has others inherit: theirs win, and so do their modes.
#[test]
fn lists_of_their_own_go_before_inherited_ones() {
    let test = "lists_of_their_own_go_before_inherited_ones";
    if !have(test) || !tool::have_tools(test, &["setfacl"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let (tree, above) = (scratch.join("tree"), scratch.join("above"));
    fs::create_dir_all(tree.join("own/below")).unwrap();
    fs::create_dir(&above).unwrap();
    for name in ["listed", "plain"] {
        fs::write(tree.join("own").join(name), name).unwrap();
        fs::set_permissions(tree.join("own").join(name), fs::Permissions::from_mode(0o640)).unwrap();
    }
    let list = |options: &[&str], path: &Path| {
        tool::run(tool::command("setfacl").args(options).arg(path));
    };
    list(&["-m", "u:5:rwx,g::r-x,o::r-x"], &tree.join("own"));
    list(&["-d", "-m", "u:7:rwx"], &tree.join("own"));
    list(&["-m", "u:5:rw-,o::r--"], &tree.join("own/listed"));
    list(&["-m", "u:5:rwx,o::rwx"], &tree.join("own/below"));
    list(&["-d", "-m", "u:6:---"], &tree.join("own/below"));
    list(&["-d", "-m", "u::rwx,u:8:r--,g::---,o::---"], &above);
    let archive = archive_of(&scratch, &tree, "tree.tar");
    let image = volume(&scratch, "-t ext4 -b 4096", "64M");
    for name in ["/put", "/imported", "/copied"] {
        succeed(plat(&["put", "-r"]).arg(&image).arg(&above).arg(name));
    }
    succeed(plat(&["put", "-r"]).arg(&image).arg(tree.join("own")).arg("/put"));
    succeed(plat(&["import", "--to", "/imported"]).arg(&image).arg(&archive));
    succeed(plat(&["put", "-r"]).arg(&image).arg(tree.join("own")).arg("/original"));
    succeed(plat(&["cp", "-r", "-p"]).arg(&image).args(["/original", "/copied/own"]));
    assert_clean(&image);
    let kernel = mount::Mounted::kernel(&image, "loop,ro").unwrap();
    let expected = Snapshot::of(&tree.join("own")).unwrap();
    for name in ["original", "put/own", "imported/own", "copied/own"] {
        let shown = Snapshot::of(&kernel.path().join(name)).unwrap();
        assert_same(&expected, &shown, &Rules { hole_granularity: 0, ..Rules::default() });
    }
}

/// As `cp -a` has it: what a directory hands down is not for a copy, in images, in mounts and out of both.
#[test]
fn copies_get_no_list_of_the_directory_that_they_come_to() {
    let test = "copies_get_no_list_of_the_directory_that_they_come_to";
    if !have(test) || !tool::have_tools(test, &["setfacl", "cp"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let (tree, above) = (scratch.join("tree"), scratch.join("above"));
    fs::create_dir_all(tree.join("below")).unwrap();
    fs::create_dir(&above).unwrap();
    for name in ["file", "below/file"] {
        fs::write(tree.join(name), name).unwrap();
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(0o640)).unwrap();
    }
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o750)).unwrap();
    let hands_down = |path: &Path| {
        tool::run(tool::command("setfacl").args(["-d", "-m", "u:8:rwx"]).arg(path));
    };
    hands_down(&above);
    let image = volume(&scratch, "-t ext4 -b 4096", "64M");
    succeed(plat(&["put", "-r"]).arg(&image).arg(&above).arg("/to"));
    succeed(plat(&["put", "-r"]).arg(&image).arg(&tree).arg("/to/put"));
    succeed(plat(&["cp", "-r", "-p"]).arg(&image).args(["/to/put", "/to/copied"]));
    succeed(plat(&["put", "-r"]).arg(&image).arg(tree.join("file")).arg("/to/single"));
    for name in ["got", "exported"] {
        fs::create_dir(scratch.join(name)).unwrap();
        hands_down(&scratch.join(name));
    }
    succeed(plat(&["get", "-r"]).arg(&image).arg("/to/put").arg(scratch.join("got/of-image")));
    succeed(plat(&["export", "--from", "/to/put"]).arg(&image).arg(scratch.join("exported/tree")));
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    let to = mounted.path().join("to");
    succeed(on(&mounted, &["put", "-r", "m:"]).arg(&tree).arg("to/live"));
    succeed(on(&mounted, &["put", "-r", "m:"]).arg(tree.join("file")).arg("to/single-live"));
    succeed(&mut on(&mounted, &["cp", "-r", "-p", "m:to/live", "m:to/copied-live"]));
    succeed(on(&mounted, &["get", "-r", "m:", "to/put"]).arg(scratch.join("got/of-mount")));
    tool::run(tool::command("cp").arg("-a").arg(&tree).arg(to.join("by-cp")));
    let expected = Snapshot::of(&tree).unwrap();
    let inside = ["put", "copied", "live", "copied-live", "by-cp"].map(|name| to.join(name));
    let outside = ["got/of-image", "got/of-mount", "exported/tree"].map(|name| scratch.join(name));
    for shown in inside.iter().chain(&outside) {
        let shown = Snapshot::of(shown).unwrap();
        assert_same(&expected, &shown, &Rules { hole_granularity: 0, ..Rules::default() });
    }
    // A copy that keeps nothing inherits, as that of cp.
    succeed(plat(&["put"]).arg(mounted.path()).arg(tree.join("file")).arg("to/plain"));
    let list = |name: &str| {
        let mut value = [0; 100];
        rustix::fs::getxattr(to.join(name), "system.posix_acl_access", &mut value[..]).is_ok()
    };
    assert!(list("plain") && !list("single") && !list("single-live"));
    judge(mounted, &image);
}

/// The first failure is told, not those that follow from it.
#[test]
fn a_full_volume_names_the_file_that_had_no_room() {
    let test = "a_full_volume_names_the_file_that_had_no_room";
    if !have(test) || !tool::have_tools(test, &["setfacl"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    for number in 0..900 {
        fs::write(tree.join(format!("file{number}")), "x").unwrap();
    }
    // The list needs a block, of which none is left.
    tool::run(tool::command("setfacl").args(["-d", "-m", "u:7:rwx"]).arg(&tree));
    let image = volume(&scratch, "-t ext2 -b 4096 -I 128 -N 2000 -m 0", "3M");
    let said = fail(plat(&["put", "-r"]).arg(&image).arg(&tree).arg("/to"));
    assert!(said.contains("/to/file"), "{said}");
    assert_clean(&image);
}

/// With `--keep-going` a part is no success in a mount either.
#[test]
fn a_part_of_an_archive_is_no_success() {
    let test = "a_part_of_an_archive_is_no_success";
    if !have(test) || !tool::have_tools(test, &["gzip"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    many(&tree, 1, 3);
    let archive = archive_of(&scratch, &tree, "tree.tar");
    tool::run(tool::command("gzip").args(["-k"]).arg(&archive));
    let packed = scratch.join("tree.tar.gz");
    let mut bytes = fs::read(&packed).unwrap();
    let trailer = bytes.len() - 8;
    bytes[trailer] ^= 1;
    fs::write(&packed, &bytes).unwrap();
    // Without the blocks of zeros at its end: nobody knows if there was more.
    let bytes = fs::read(&archive).unwrap();
    let end = bytes.len() - bytes.iter().rev().take_while(|byte| **byte == 0).count();
    fs::write(&archive, &bytes[..end.next_multiple_of(512)]).unwrap();
    let image = volume(&scratch, "-t ext4 -b 4096", "64M");
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    for archive in [&archive, &packed] {
        let to = mounted.path().join("to");
        fs::create_dir(&to).unwrap();
        let output = on(&mounted, &["import", "-q", "--keep-going", "m:to"]).arg(archive).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(!said.is_empty());
        assert_eq!(whole(&to), 3);
        fs::remove_dir_all(&to).unwrap();
    }
    judge(mounted, &image);
}

/// Files that can't be read are left out and named, and all others are copied.
#[test]
fn a_tree_that_can_not_be_read_whole_is_put_as_far_as_it_goes() {
    let test = "a_tree_that_can_not_be_read_whole_is_put_as_far_as_it_goes";
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    many(&tree, 2, 3);
    fs::write(tree.join("d0/a"), "secret").unwrap();
    fs::create_dir(tree.join("closed")).unwrap();
    for path in ["d0/a", "closed"] {
        fs::set_permissions(tree.join(path), fs::Permissions::from_mode(0o0)).unwrap();
    }
    fs::set_permissions(scratch.join(""), fs::Permissions::from_mode(0o777)).unwrap();
    let image = volume(&scratch, "-t ext4 -b 4096", "64M");
    fs::set_permissions(&image, fs::Permissions::from_mode(0o666)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    let said =
        fail(command.arg(env!("CARGO_BIN_EXE_plat")).args(["put", "-r"]).arg(&image).arg(&tree).arg("/"));
    assert!(said.contains("2 left out") && said.contains("d0/a: ") && said.contains("closed: "), "{said}");
    assert_clean(&image);
    let kernel = mount::Mounted::kernel(&image, "loop,ro").unwrap();
    fs::remove_file(tree.join("d0/a")).unwrap();
    fs::remove_dir(tree.join("closed")).unwrap();
    assert_same(
        &Snapshot::of(&tree).unwrap(),
        &Snapshot::of(&kernel.path().join("tree")).unwrap(),
        &Rules { times: false, ..Rules::default() },
    );
}

/// Readers see whole files, and writers are not disturbed, while trees come and go beside them.
#[test]
fn others_see_whole_files_throughout() {
    let test = "others_see_whole_files_throughout";
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    many(&tree, 8, 70);
    let archive = archive_of(&scratch, &tree, "tree.tar");
    let image = volume(&scratch, "-t ext4 -b 4096 -J size=8", "1G");
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    let root = mounted.path().to_owned();
    for name in ["sub", "own"] {
        fs::create_dir(root.join(name)).unwrap();
    }
    let (over, seen, wrote) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for number in 0..2 {
            let (over, seen, root) = (&over, &seen, &root);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    seen.fetch_add(look(&root.join("sub")), Ordering::Relaxed);
                    // Names that come and go, looked up one by one.
                    let name = format!("f{number}-3");
                    look_at(&root.join(format!("sub/d{number}")).join(name));
                }
            });
        }
        let (over, wrote, root) = (&over, &wrote, &root);
        scope.spawn(move || {
            for round in 0.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let path = root.join("own").join(format!("w{round}"));
                fs::write(&path, contents(&format!("w{round}"))).unwrap();
                if round % 3 == 0 {
                    fs::remove_file(&path).unwrap();
                }
                wrote.fetch_add(1, Ordering::Relaxed);
            }
        });
        let _over = AtEnd(over);
        for round in 0..4 {
            succeed(on(&mounted, &["import", "-q", "m:sub"]).arg(&archive));
            assert_eq!(whole(&root.join("sub")), 560, "{round}");
            succeed(&mut on(&mounted, &["cp", "-r", "m:sub", "m:copy"]));
            assert_eq!(whole(&root.join("copy")), 560, "{round}");
            succeed(&mut on(&mounted, &["rm", "-r", "m:sub", "m:copy"]));
            assert!(!root.join("sub").exists() && !root.join("copy").exists());
            fs::create_dir(root.join("sub")).unwrap();
        }
    });
    let (seen, wrote) = (seen.into_inner(), wrote.into_inner());
    assert!(seen > 0 && wrote > 0, "{seen} files were seen, {wrote} written");
    whole(&root.join("own"));
    judge(mounted, &image);
}

/// Ends what others do when the test ends, also by a failure.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reads all that is there of a tree that comes or goes; how many files were read.
fn look(directory: &Path) -> usize {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let mut count = 0;
    for entry in entries.map_while(Result::ok) {
        let path = entry.path();
        count += if path.is_dir() { look(&path) } else { usize::from(look_at(&path)) };
    }
    count
}

/// A file that is there is whole; one that is not there is no more than that.
fn look_at(path: &Path) -> bool {
    let name = path.file_name().unwrap().to_str().unwrap();
    match fs::read(path) {
        Ok(found) => {
            assert!(found == contents(name), "{} is not whole: {} bytes", path.display(), found.len());
            true
        }
        Err(error) => {
            let expected = [std::io::ErrorKind::NotFound, std::io::ErrorKind::StaleNetworkFileHandle];
            assert!(expected.contains(&error.kind()), "{}: {error}", path.display());
            false
        }
    }
}

/// A command that has begun to work: files of it are there.
fn begun(command: &mut Command, directory: &Path) -> Child {
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let since = Instant::now();
    while fs::read_dir(directory).map_or(0, Iterator::count) < 2 {
        assert!(since.elapsed() < PATIENCE, "nothing begins");
        thread::sleep(Duration::from_millis(1));
    }
    child
}

#[test]
fn a_client_that_is_killed_leaves_whole_files_and_ends_the_work() {
    let test = "a_client_that_is_killed_leaves_whole_files_and_ends_the_work";
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    many(&tree, 60, 100);
    let archive = archive_of(&scratch, &tree, "tree.tar");
    let image = volume(&scratch, "-t ext4 -b 4096", "512M");
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    let sub = mounted.path().join("sub");
    fs::create_dir(&sub).unwrap();
    let mut child = begun(on(&mounted, &["import", "m:sub"]).arg(&archive), &sub);
    child.kill().unwrap();
    child.wait().unwrap();
    // The work ends with the batch that was under way.
    let (mut before, since) = (usize::MAX, Instant::now());
    let left = loop {
        let now = whole(&sub);
        if now == before {
            break now;
        }
        before = now;
        assert!(since.elapsed() < PATIENCE, "the work goes on");
        thread::sleep(Duration::from_millis(200));
    };
    assert!(left < 6000, "it was killed before its end");
    succeed(&mut on(&mounted, &["rm", "-r", "m:sub"]));
    judge(mounted, &image);
}

#[test]
fn a_server_that_is_killed_leaves_whole_files() {
    let test = "a_server_that_is_killed_leaves_whole_files";
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    many(&tree, 60, 100);
    let archive = archive_of(&scratch, &tree, "tree.tar");
    for round in 0..4 {
        let image = volume(&scratch, "-t ext4 -b 4096 -J size=4", "512M");
        let mut mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
        let sub = mounted.path().join("sub");
        fs::create_dir(&sub).unwrap();
        let mut child = begun(on(&mounted, &["import", "m:sub"]).arg(&archive), &sub);
        thread::sleep(Duration::from_millis(20 * round));
        mounted.signal(Signal::KILL);
        mounted.wait();
        assert!(!child.wait().unwrap().success() || round > 0, "{round}");
        drop(mounted);
        let again = Mounted::new(&image, &["-o", "rw"]).unwrap();
        if again.path().join("sub").exists() {
            whole(&again.path().join("sub"));
        }
        again.unmount();
        assert_clean(&image);
    }
}

#[test]
fn a_full_volume_is_reported_and_keeps_whole_files() {
    let test = "a_full_volume_is_reported_and_keeps_whole_files";
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    many(&tree, 40, 100);
    let archive = archive_of(&scratch, &tree, "tree.tar");
    let image = volume(&scratch, "-t ext4 -b 1024 -J size=1", "20M");
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    fs::create_dir(mounted.path().join("sub")).unwrap();
    let said = fail(on(&mounted, &["import", "m:sub"]).arg(&archive));
    assert!(said.contains("no space") || said.contains("No space") || said.contains("full"), "{said}");
    let kept = whole(&mounted.path().join("sub"));
    assert!((100..4000).contains(&kept), "{kept}");
    succeed(&mut on(&mounted, &["rm", "-r", "m:sub"]));
    judge(mounted, &image);
}

#[test]
fn archives_lead_nowhere_else() {
    let test = "archives_lead_nowhere_else";
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch, "-t ext4 -b 4096", "64M");
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    for name in ["sub", "outside"] {
        fs::create_dir(mounted.path().join(name)).unwrap();
    }
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("f"), "x").unwrap();
    std::os::unix::fs::symlink("../outside", tree.join("link")).unwrap();
    let pack = |name: &str, words: &[&str]| {
        let archive = scratch.join(name);
        tool::run(tool::command("tar").arg("-C").arg(&tree).arg("-cPf").arg(&archive).args(words));
        archive
    };
    let cases = [
        (pack("up.tar", &["--transform=s,^f,../outside/f,", "f"]), "leads upwards"),
        (pack("link.tar", &["--transform=s,^f,link/f,", "link", "f"]), "symbolic link"),
        (scratch.join("tree"), "directory"),
    ];
    for (archive, why) in &cases {
        let said = fail(on(&mounted, &["import", "m:sub"]).arg(archive));
        assert!(said.contains(why), "{said}");
        assert_eq!(fs::read_dir(mounted.path().join("outside")).unwrap().count(), 0);
        let _ = fs::remove_file(mounted.path().join("sub/link"));
    }
    let absolute = pack("absolute.tar", &["--transform=s,^f,/outside/f,", "f"]);
    succeed(on(&mounted, &["import", "m:sub"]).arg(&absolute));
    assert!(mounted.path().join("sub/outside/f").exists());
    fs::set_permissions(mounted.path().join("sub"), fs::Permissions::from_mode(0o700)).unwrap();
    judge(mounted, &image);
}
