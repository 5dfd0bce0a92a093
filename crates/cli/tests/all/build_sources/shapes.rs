//! A build chooses a format that holds the contents, says what one that was asked for can't hold, and keeps what the source
//! says of its files.

use platfs_image::archive::{Device, Entry, EntryKind, Times, Writer, Xattr};

use super::InMemory;
use crate::support::{build, fail, plat, succeed};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};
use testkit::scratch::Scratch;
use testkit::{fsck, tool};

/// As many names of 250 bytes in one directory, all of one file.
fn many_names(tree: &Path, count: u32) {
    fs::create_dir_all(tree.join("many")).unwrap();
    let first = tree.join("many/first");
    fs::write(&first, "").unwrap();
    for number in 0..count {
        fs::hard_link(&first, tree.join(format!("many/{number:0>250}"))).unwrap();
    }
}

/// An archive of one file, which is a link of that length or has an attribute of it.
fn archive(name: &str, length: usize) -> Vec<u8> {
    let is_link = name == "link";
    let attribute = Xattr { name: b"user.large"[..].into(), value: vec![b'v'; length].into() };
    let entry = Entry {
        offset: 0,
        path: name.as_bytes().to_vec(),
        kind: if is_link { EntryKind::Symlink } else { EntryKind::File },
        target: if is_link { vec![b'x'; length] } else { Vec::new() },
        mode: 0o644,
        uid: 0,
        gid: 0,
        device: Device::default(),
        times: Times::default(),
        size: 0,
        xattrs: if is_link { Vec::new() } else { vec![attribute] },
        runs: Vec::new(),
    };
    let mut writer = Writer::new(Vec::new());
    writer.entry(&entry).unwrap();
    writer.finish().unwrap()
}

fn block_size(image: &Path) -> u32 {
    tool::dumpe2fs_field(image, "Block size").unwrap().parse().unwrap()
}

#[test]
fn long_links_and_large_attributes_get_large_blocks() {
    let test = "long links and large attributes";
    if !tool::have_tools(test, &["dumpe2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("shapes");
    for (name, what, words) in [
        ("link", 4000, "symbolic link's target"),
        ("attribute", 1600, "attributes too large"),
        ("attribute", 20_000, "attributes too large"),
    ] {
        let source = scratch.join("source.tar");
        fs::write(&source, archive(name, what)).unwrap();
        let image = scratch.join("image");
        build(&source, &image, &[]);
        assert_eq!(block_size(&image), 4096, "{name} of {what}");
        fsck::assert_clean(&image);
        fs::remove_file(&image).unwrap();
        let said = fail(plat(&["build", "-b", "1024", "-O", "^ea_inode"]).arg(&source).arg(&image));
        assert!(said.contains(name) && said.contains(words) && said.contains("-b 4096"), "{said}");
    }
    // What needs no more stays small.
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    symlink("x".repeat(1000), tree.join("link")).unwrap();
    let image = scratch.join("image");
    build(&tree, &image, &[]);
    assert_eq!(block_size(&image), 1024);
}

#[test]
fn a_directory_of_very_many_names_gets_large_blocks() {
    let test = "very many names";
    if !tool::have_tools(test, &["dumpe2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("many-names");
    let tree = scratch.join("tree");
    many_names(&tree, 50_000);
    let image = scratch.join("image");
    succeed(plat(&["build", "-q"]).arg(&tree).arg(&image));
    assert_eq!(block_size(&image), 4096);
    fsck::assert_clean(&image);
    fs::remove_file(&image).unwrap();
    let said = fail(plat(&["build", "-b", "1024", "-O", "^large_dir"]).arg(&tree).arg(&image));
    assert!(
        said.contains("directory full") && said.contains("-b 4096") && said.contains("-O large_dir"),
        "{said}"
    );
    // The features were left open: one more level of the index does, too.
    succeed(plat(&["build", "-q", "-b", "1024"]).arg(&tree).arg(&image));
    assert!(tool::dumpe2fs_field(&image, "Filesystem features").unwrap().contains("large_dir"));
    fsck::assert_clean(&image);
}

#[test]
fn too_few_inodes_are_refused_with_the_least() {
    let scratch = Scratch::new("few-inodes");
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    for file in 0..500 {
        fs::write(tree.join(format!("{file}")), "x").unwrap();
    }
    let image = scratch.join("image");
    let said = fail(plat(&["build", "-N", "3"]).arg(&tree).arg(&image));
    let least = said.split("-N ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap_or_default();
    assert!(!image.exists() && said.contains("the contents need 500"), "{said}");
    build(&tree, &image, &["-N", least]);
}

#[test]
fn times_that_inodes_cannot_hold_are_counted() {
    let scratch = Scratch::new("times");
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    let far = UNIX_EPOCH + Duration::from_secs(10_413_792_000);
    for name in ["one", "two", "three"] {
        let file = File::create(tree.join(name)).unwrap();
        if name != "three" {
            file.set_modified(far).unwrap();
        }
    }
    let image = scratch.join("image");
    let output = succeed(plat(&["build", "-I", "128"]).arg(&tree).arg(&image));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("2 files have a time") && said.lines().count() == 1, "{said}");
    fs::remove_file(&image).unwrap();
    let output = succeed(plat(&["build"]).arg(&tree).arg(&image));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn flags_of_files_are_kept() {
    let test = "flags of files";
    if !tool::have_root(test) || !tool::have_tools(test, &["chattr", "lsattr"]) {
        return;
    }
    let scratch = Scratch::new("flags");
    let tree = scratch.join("tree");
    fs::create_dir_all(tree.join("dir/below")).unwrap();
    fs::write(tree.join("data"), "data").unwrap();
    fs::write(tree.join("dir/empty"), "").unwrap();
    fs::write(tree.join("log"), "log").unwrap();
    let flags = [("data", "i"), ("dir/empty", "dA"), ("log", "aS"), ("dir/below", "D"), ("dir", "id")];
    let change = |sign: &str, order: &[(&str, &str)]| {
        order.iter().all(|(path, letters)| {
            let mut chattr = tool::command("chattr");
            chattr.arg(format!("{sign}{letters}")).arg(tree.join(path));
            chattr.output().unwrap().status.success()
        })
    };
    let could = change("+", &flags);
    let image = scratch.join("image");
    if could {
        build(&tree, &image, &[]);
    }
    // Before anything can fail: what is immutable can't be removed.
    let mut backwards = flags;
    backwards.reverse();
    change("-", &backwards);
    if !could {
        tool::skip(test, "the file system of the tests has no flags");
        return;
    }
    fsck::assert_clean(&image);
    for (path, letters) in flags {
        let shown = tool::debugfs(&image, &format!("stat /{path}"));
        let word = shown.split("Flags: 0x").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
        let bits = u32::from_str_radix(word, 16).unwrap();
        for letter in letters.chars() {
            let bit = match letter {
                'S' => 0x8,
                'i' => 0x10,
                'a' => 0x20,
                'd' => 0x40,
                'A' => 0x80,
                _ => 0x1_0000,
            };
            assert!(bits & bit != 0, "{path}: {letter} of {letters} is missing in {bits:#x}");
        }
    }
}

#[test]
fn names_of_owners_are_those_of_the_source() {
    let scratch = Scratch::new("owners");
    let tree = scratch.join("tree");
    fs::create_dir_all(tree.join("etc")).unwrap();
    fs::write(tree.join("etc/passwd"), "root:x:7:7::/:/bin/sh\nweb:x:1234:1234::/:/bin/sh\n").unwrap();
    fs::write(tree.join("etc/group"), "staff:x:77:\n").unwrap();
    let image = scratch.join("image");
    for (owner, expected) in [("web:staff", "1234:77"), ("root:0", "7:0"), ("5:staff", "5:77")] {
        build(&tree, &image, &["--owner", owner]);
        let facts = succeed(plat(&["stat", "--json"]).arg(&image).arg("/etc/group")).stdout;
        let facts: serde_json::Value = serde_json::from_slice(&facts).unwrap();
        let found = facts.to_string();
        let (uid, gid) = expected.split_once(':').unwrap();
        assert!(
            found.contains(&format!("\"uid\":{uid}")) && found.contains(&format!("\"gid\":{gid}")),
            "{found}"
        );
        fs::remove_file(&image).unwrap();
    }
}

#[test]
fn volumes_that_count_usage_are_made_and_changed() {
    let scratch = Scratch::new("quota-made");
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    let image = scratch.join("image");
    succeed(plat(&["build", "-q", "-O", "quota"]).arg(&tree).arg(&image));
    succeed(plat(&["mkdir"]).arg(&image).arg("/d"));
    succeed(plat(&["chown"]).arg(&image).args(["7:8", "/d"]));
    let shown = succeed(plat(&["quota", "--json", "--user", "7"]).arg(&image)).stdout;
    let shown: serde_json::Value = serde_json::from_slice(&shown).unwrap();
    let record = &shown["kinds"][0]["records"][0];
    assert_eq!((&record["inodes"], &record["id"]), (&1.into(), &7.into()));
    succeed(plat(&["check"]).arg(&image));
}

/// An archive that comes as a stream, or packed, is kept where `TMPDIR` says: beside the image there is room for the image.
#[test]
fn what_is_unpacked_lies_where_there_is_room() {
    let test = "what_is_unpacked_lies_where_there_is_room";
    if !tool::have_root(test) || !tool::have_tools(test, &["mount", "umount", "tar", "gzip"]) {
        return;
    }
    let scratch = Scratch::new("spool");
    let [tree, room, elsewhere, tiny] = ["tree", "room", "elsewhere", "tiny"].map(|name| scratch.join(name));
    for directory in [&tree, &room, &elsewhere, &tiny] {
        fs::create_dir(directory).unwrap();
    }
    fs::write(tree.join("f"), vec![1; 12 << 20]).unwrap();
    let [plain, packed] = ["a.tar", "a.tar.gz"].map(|name| scratch.join(name));
    for (archive, option) in [(&plain, "-cf"), (&packed, "-czf")] {
        tool::run(tool::command("tar").arg(option).arg(archive).arg("-C").arg(&tree).arg("."));
    }
    let _gone = [InMemory::new(&room, "20M"), InMemory::new(&tiny, "4M")];
    let image = room.join("x.img");
    let built = |source: &Path, spool: Option<&Path>| {
        let mut command = plat(&["build", "-q", "--size", "16M", "-O", "^has_journal"]);
        match source == plain {
            true => command.arg("-").stdin(File::open(source).unwrap()),
            false => command.arg(source),
        };
        command.arg(&image).env_remove("TMPDIR");
        spool.map(|spool| command.env("TMPDIR", spool));
        let done = command.output().unwrap();
        (done.status.success(), String::from_utf8(done.stderr).unwrap())
    };
    for source in [&plain, &packed] {
        let (done, said) = built(source, None);
        assert!(!done && said.contains("TMPDIR names another"), "{said}");
        assert_eq!(fs::read_dir(&room).unwrap().count(), 0, "{source:?}");
        wait_until_empty(&room);
        let (done, said) = built(source, Some(&elsewhere));
        assert!(done, "{source:?}: {said}");
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        assert_eq!(succeed(plat(&["cat"]).arg(&image).arg("/f")).stdout.len(), 12 << 20);
        fs::remove_file(&image).unwrap();
        wait_until_empty(&room);
    }
    // What is named has no room at all.
    let (done, said) = built(&packed, Some(&tiny));
    let lacks = format!("{}: no room for what is unpacked", tiny.display());
    assert!(!done && said.contains(&lacks) && said.contains("TMPDIR names another"), "{said}");
}

/// Waits until a file system has all its room again: Linux lets the rules of a process's cage go some time after the process,
/// and with them the files that they name.
fn wait_until_empty(mounted: &Path) {
    let begun = Instant::now();
    loop {
        let found = rustix::fs::statvfs(mounted).unwrap();
        if found.f_bfree == found.f_blocks {
            return;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{} blocks are not free",
            found.f_blocks - found.f_bfree
        );
        thread::sleep(Duration::from_millis(10));
    }
}
