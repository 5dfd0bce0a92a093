//! The commands that change an image in place: the kernel shows what they did, e2fsck has nothing to
//! say, and what they refuse leaves the image as it was.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::plat::Ran;
use testkit::mount::{Mounted, have_loop_mount};
use testkit::scratch::Scratch;
use testkit::snapshot::{Rules, Snapshot, assert_same};
use testkit::{fsck, tool};

/// Kinds of volumes, by mke2fs, without a journal to replay.
const KINDS: [&str; 5] = [
    "-t ext4 -b 1024",
    "-t ext4 -b 4096 -O bigalloc -C 65536",
    "-t ext4 -b 1024 -I 256 -O inline_data",
    "-t ext2 -b 1024 -I 128",
    "-t ext3 -b 4096",
];

fn image(scratch: &Scratch, options: &str) -> PathBuf {
    let image = scratch.join("disk.img");
    let _ = fs::remove_file(&image);
    let mut command = tool::command("mke2fs");
    tool::run(command.args(["-q", "-F"]).args(options.split_whitespace()).arg(&image).arg("48M"));
    image
}

fn have(test: &str) -> bool {
    tool::have_tools(test, &["mke2fs", "e2fsck"]) && have_loop_mount(test)
}

/// A small tree of the host.
fn source(scratch: &Scratch) -> PathBuf {
    let root = scratch.join("source");
    fs::create_dir_all(root.join("deep/deeper")).unwrap();
    for (name, bytes) in
        [("empty", 0), ("short", 20), ("long", 300_000), ("deep/one", 5000), ("deep/deeper/two", 70_000)]
    {
        let contents: Vec<u8> = (0..bytes).map(|n: usize| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
        fs::write(root.join(name), contents).unwrap();
    }
    fs::set_permissions(root.join("short"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("short", root.join("link")).unwrap();
    symlink("x".repeat(200), root.join("deep/long-link")).unwrap();
    root
}

fn plat(command: &str, image: &Path, rest: &[&str]) -> Ran {
    let rest: Vec<&OsStr> = rest.iter().map(OsStr::new).collect();
    crate::plat::plat(command, image, &rest)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn what_was_put_in_is_what_a_mount_shows() {
    const TEST: &str = "what_was_put_in_is_what_a_mount_shows";
    if !have(TEST) {
        return;
    }
    for kind in KINDS {
        let scratch = Scratch::new("changing");
        let (image, source) = (image(&scratch, kind), source(&scratch));
        plat("put -r", &image, &[text(&source), "/tree"]).fine();
        fsck::assert_clean(&image);
        let mounted = Mounted::read_only(&image).unwrap();
        let rules = Rules { nanoseconds: !kind.contains("128"), hole_granularity: 0, ..Rules::default() };
        let expected = Snapshot::of(&source).unwrap();
        assert_same(&expected, &Snapshot::of(&mounted.path().join("tree")).unwrap(), &rules);
    }
}

#[test]
fn changes_are_what_a_mount_shows() {
    const TEST: &str = "changes_are_what_a_mount_shows";
    if !have(TEST) {
        return;
    }
    for kind in KINDS {
        let scratch = Scratch::new("changing");
        let (image, source) = (image(&scratch, kind), source(&scratch));
        plat("put -r", &image, &[text(&source), "/tree"]).fine();
        plat("mkdir -p -m 2750 --owner 7:8", &image, &["/made/in/one"]).fine();
        plat("mkdir", &image, &["/made/in/two"]).fine();
        plat("ln", &image, &["/tree/long", "/made/other"]).fine();
        plat("ln -s", &image, &["../tree/long", "/made/symbolic"]).fine();
        plat("mv", &image, &["/tree/short", "/tree/deep", "/made/in/two"]).fine();
        plat("mv --exchange", &image, &["/tree/empty", "/made/symbolic"]).fine();
        plat("rm", &image, &["/tree/link"]).fine();
        plat("chmod", &image, &["u=rwx,go-rwx,+t", "/made/other"]).fine();
        plat("chown -R", &image, &["70000:80000", "/made/in/two"]).fine();
        plat("xattr", &image, &["/made/other", "--set", "user.a=text", "--set", "user.b=0x00ff"]).fine();
        plat("put -f", &image, &[text(&source.join("deep/one")), "/tree/long"]).fine();
        fsck::assert_clean(&image);
        let shown = plat("xattr", &image, &["/made/other"]).fine();
        assert_eq!(shown, b"/made/other: user.a=text\n/made/other: user.b=0x00ff\n");
        let mounted = Mounted::read_only(&image).unwrap();
        let at = |path: &str| mounted.path().join(path);
        let facts = |path: &str| fs::symlink_metadata(at(path)).unwrap();
        assert_eq!((facts("made/in/one").mode() & 0o7777, facts("made/in/one").uid()), (0o2750, 7));
        assert_eq!(facts("made/in/two").mode() & 0o7777, 0o2755, "a new directory in one with the bit");
        assert_eq!(
            (facts("made/in/two").gid(), facts("made/in/two/deep/deeper/two").uid()),
            (80_000, 70_000)
        );
        assert_eq!(facts("made/other").mode() & 0o7777, 0o1700);
        assert_eq!(facts("made/other").nlink(), 1, "the other name was replaced");
        assert_eq!(fs::read(at("made/other")).unwrap(), fs::read(source.join("long")).unwrap());
        assert_eq!(fs::read(at("tree/long")).unwrap(), fs::read(source.join("deep/one")).unwrap());
        assert_eq!(fs::read_link(at("tree/empty")).unwrap(), Path::new("../tree/long"));
        assert_eq!(facts("made/symbolic").len(), 0);
        assert!(fs::symlink_metadata(at("tree/link")).is_err() && at("made/in/two/short").exists());
        drop(mounted);
        plat("rm -r", &image, &["/tree", "/made"]).fine();
        fsck::assert_clean(&image);
        assert_eq!(
            fs::read_dir(Mounted::read_only(&image).unwrap().path()).unwrap().count(),
            1,
            "lost+found"
        );
    }
}

#[test]
fn what_is_refused_changes_nothing() {
    const TEST: &str = "what_is_refused_changes_nothing";
    if !have(TEST) {
        return;
    }
    let scratch = Scratch::new("changing");
    let (image, source) = (image(&scratch, KINDS[0]), source(&scratch));
    plat("put -r", &image, &[text(&source), "/tree"]).fine();
    let free = |image: &Path| tool::dumpe2fs_field(image, "Free blocks").unwrap();
    let before = free(&image);
    let short = source.join("short");
    for (command, arguments, said) in [
        ("put", vec![text(&short), "/tree/long"], "exists; --force replaces it"),
        ("put -f", vec![text(&short), "/tree/deep/none/x"], "no such file"),
        ("mkdir", vec!["/tree"], "file exists"),
        ("mv", vec!["/tree", "/tree/deep/deeper"], "into itself"),
        ("mv", vec!["/tree/empty", "/tree/short"], "exists; --force replaces it"),
        ("mv -n", vec!["/tree/empty", "/tree/short"], "exists; --force replaces it"),
        ("put", vec![text(&short), "/none/"], "no such file"),
        ("cp", vec!["/tree/short", "/none/"], "no such file"),
        ("chown", vec!["nobody", "/tree"], "names no user nobody"),
        ("rm", vec!["/tree"], "is a directory"),
        ("rm -d", vec!["/tree"], "directory not empty"),
        ("ln", vec!["/tree", "/other"], "is a directory"),
        ("chmod", vec!["755", "/nothing"], "no such file"),
        ("xattr", vec!["/tree", "--remove", "user.none"], "has no attribute user.none"),
        ("xattr", vec!["/tree", "--set", "nonsense=1"], "nonsense"),
    ] {
        let complaint = plat(command, &image, &arguments).failed();
        assert!(complaint.contains(said), "{command} {arguments:?}: {complaint}");
        fsck::assert_clean(&image);
    }
    assert_eq!(free(&image), before);
}

#[test]
fn an_image_in_use_or_out_of_order_is_left_alone() {
    const TEST: &str = "an_image_in_use_or_out_of_order_is_left_alone";
    if !have(TEST) {
        return;
    }
    let scratch = Scratch::new("changing");
    let image = image(&scratch, KINDS[0]);
    let held = fs::File::options().read(true).write(true).open(&image).unwrap();
    held.lock().unwrap();
    let complaint = plat("mkdir", &image, &["/x"]).failed();
    assert!(complaint.contains("in use: another program"), "{complaint}");
    drop(held);
    for (field, said) in [("state 0", "not closed cleanly"), ("state 3", "having errors")] {
        let request = format!("set_super_value {field}");
        tool::run(tool::command("debugfs").args(["-w", "-R", &request]).arg(&image));
        let bytes = fs::read(&image).unwrap();
        let complaint = plat("mkdir", &image, &["/x"]).failed();
        assert!(complaint.contains(said) && complaint.contains("plat check"), "{complaint}");
        assert!(fs::read(&image).unwrap() == bytes, "{field}: the image was written");
    }
    tool::run(tool::command("debugfs").args(["-w", "-R", "set_super_value state 1"]).arg(&image));
    tool::run(tool::command("debugfs").args(["-w", "-R", "feature needs_recovery"]).arg(&image));
    // Nothing is in the journal: it has been replayed.
    plat("mkdir", &image, &["/x"]).fine();
    fsck::assert_clean(&image);
    // No check brings a feature out of the way.
    tool::run(tool::command("debugfs").args(["-w", "-R", "feature read-only"]).arg(&image));
    let complaint = plat("mkdir", &image, &["/y"]).failed();
    assert!(complaint.contains("can't be written: read-only") && !complaint.contains("check"), "{complaint}");
}

#[test]
fn standard_input_needs_a_name() {
    if !tool::have_tools("standard input", &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("changing");
    let image = image(&scratch, KINDS[0]);
    plat("mkdir", &image, &["/dir"]).fine();
    let ran = plat("put", &image, &["-", "/dir"]);
    assert_eq!(ran.code, std::process::ExitCode::from(2), "{}", ran.err);
    assert!(ran.err.contains("- /dir/NAME"), "{}", ran.err);
    assert_eq!(plat("ls", &image, &["/dir"]).fine(), b"");
    fsck::assert_clean(&image);
}

/// Owners, sizes, names and patterns as docs/conventions.md has them.
#[test]
fn words_mean_in_each_command_what_the_conventions_say() {
    if !tool::have_tools("words_mean_in_each_command_what_the_conventions_say", &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("changing");
    let (image, source) = (image(&scratch, KINDS[0]), source(&scratch));
    let (passwd, group) = (scratch.join("passwd"), scratch.join("group"));
    fs::write(&passwd, "root:x:0:0::/:/bin/sh\nwww:x:33:34::/:/bin/sh\n").unwrap();
    fs::write(&group, "root:x:0:\nweb:x:77:\n").unwrap();
    plat("mkdir", &image, &["/etc"]).fine();
    plat("put", &image, &[text(&passwd), text(&group), "/etc"]).fine();
    let said = |words: &str, rest: &[&str]| String::from_utf8(plat(words, &image, rest).fine()).unwrap();
    let owner = |path: &str| said("stat -c %u:%g:%a:%s", &[path]);
    plat("put --owner www", &image, &[text(&source.join("short")), "/a"]).fine();
    assert_eq!(owner("/a"), "33:0:640:20\n");
    plat("chown", &image, &[":web", "/a"]).fine();
    assert_eq!(owner("/a"), "33:77:640:20\n");
    plat("mkdir --owner www:web", &image, &["/d"]).fine();
    assert!(owner("/d").starts_with("33:77:755:"));
    // The host's names are none of the image's.
    assert!(plat("chown", &image, &["daemon", "/a"]).failed().contains("names no user daemon"));

    plat("put -R", &image, &[text(&source), "/tree"]).fine();
    plat("mv -f", &image, &["/tree/short", "/tree/empty"]).fine();
    let by_size = said("ls -S -1", &["/tree"]);
    assert!(by_size.starts_with("long\n") && by_size.ends_with("link\n"), "{by_size}");
    let human = said("ls -lh", &["/tree/long"]);
    assert!(human.contains(" 293 KiB "), "{human}");
    assert_eq!(said("cat", &["/etc/pass*"]), fs::read_to_string(&passwd).unwrap());
    assert_eq!(said("get", &["/etc/group", "-"]), fs::read_to_string(&group).unwrap());
    plat("put", &image, &[text(&passwd), "/a\nb"]).fine();
    assert_eq!(said("ls", &["/a*"]), "/a\n/a\\nb\n");
    plat("rm", &image, &["/a\\nb"]).fine();
    plat("rm", &image, &["/etc/*"]).fine();
    assert_eq!(said("ls", &["/etc"]), "");
    plat("rm -R", &image, &["/tree"]).fine();
    // Sources in the image may be patterns, and names as they are printed; a slash behind a pattern means directories.
    plat("put", &image, &[text(&passwd), "/c\nd"]).fine();
    plat("mkdir", &image, &["/to", "/to/sub"]).fine();
    plat("cp", &image, &["/c\\nd", "/to"]).fine();
    plat("mv", &image, &["/c*", "/to/sub"]).fine();
    assert_eq!(said("ls", &["/to", "/to/sub"]).matches("c\\nd").count(), 2);
    plat("rm -R", &image, &["/to/*/"]).fine();
    assert_eq!(said("ls", &["/to"]), "c\\nd\n");
    plat("rm -R", &image, &["/to"]).fine();

    let size = || fs::metadata(&image).unwrap().len();
    let before = size();
    plat("resize", &image, &["+8M"]).fine();
    assert_eq!(size(), before + (8 << 20));
    plat("resize", &image, &["-8M"]).fine();
    assert_eq!(size(), before);
    assert_eq!(plat("resize", &image, &["-8G"]).code, std::process::ExitCode::from(2));
    fsck::assert_clean(&image);
}

/// A directory that can't be read to its end makes a pattern mean nothing, and the command fail.
#[test]
fn a_pattern_never_means_a_part_of_what_is_there() {
    const TEST: &str = "a_pattern_never_means_a_part_of_what_is_there";
    if !have(TEST) {
        return;
    }
    let scratch = Scratch::new("pattern");
    let (image, source) = (scratch.join("image"), scratch.join("many"));
    fs::create_dir(&source).unwrap();
    for number in 0..200 {
        fs::write(source.join(format!("a file with a long name, number {number}")), "x").unwrap();
    }
    let mut mke2fs = tool::command("mke2fs");
    mke2fs.args(["-q", "-F", "-t", "ext4", "-b", "1024", "-O", "^dir_index", "-d"]);
    tool::run(mke2fs.arg(&source).arg(&image).arg("8M"));
    let request = "zap_block -f / -p 0x77 3";
    tool::run(tool::command("debugfs").args(["-w", "-R", request]).arg(&image));
    let bytes = fs::read(&image).unwrap();
    for command in ["cat", "rm --no-check-first", "rm -f --no-check-first"] {
        let complaint = plat(command, &image, &["/a*"]).failed();
        assert!(complaint.contains("a*") && complaint.contains("directory"), "{command}: {complaint}");
    }
    assert!(fs::read(&image).unwrap() == bytes, "the image was written");
}
