//! Policies and their parameters: by mount options, in the volume, in the documents.

#[allow(dead_code, reason = "shared with other tests")]
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::support::mounted::{Mounted, have_fuse};
use platfs::placement::parameters::parameters;
use serde_json::Value;
use testkit::fsck;
use testkit::scratch::Scratch;

fn volume(scratch: &Scratch, options: &[&str]) -> PathBuf {
    let image = scratch.join("disk.img");
    let mut arguments: Vec<_> = options.iter().map(std::ffi::OsStr::new).collect();
    arguments.push("64M".as_ref());
    crate::plat::plat("mkfs", &image, &arguments).fine();
    image
}

fn placement(image: &Path, arguments: &[&str]) -> crate::plat::Ran {
    let arguments: Vec<&std::ffi::OsStr> = arguments.iter().map(std::ffi::OsStr::new).collect();
    crate::plat::plat("placement", image, &arguments)
}

/// The complaint of a command that was called wrongly.
fn misused(ran: crate::plat::Ran) -> String {
    assert_eq!(ran.code, ExitCode::from(2), "{}", ran.err);
    ran.err
}

fn shown(image: &Path) -> Value {
    serde_json::from_slice(&placement(image, &["--json"]).fine()).unwrap()
}

fn kept(image: &Path) -> String {
    shown(image)["kept"].as_str().unwrap().to_owned()
}

/// Count of a mount under a name of the kernel's `mb_stats`.
fn counted(mounted: &Mounted, name: &str) -> u64 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plat"));
    let output = command.args(["stats", "--json"]).arg(mounted.path()).output().unwrap();
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    all["placement"][name].as_u64().unwrap_or_else(|| panic!("{name}: {all}"))
}

/// Writes a file and has it placed.
fn write(mounted: &Mounted) {
    let path = mounted.path().join("file");
    fs::write(&path, vec![1; 300_000]).unwrap();
    fs::File::open(&path).unwrap().sync_all().unwrap();
}

#[test]
fn a_volume_keeps_its_placement_and_every_program_follows_it() {
    let scratch = Scratch::new("placement-kept");
    let image = volume(&scratch, &[]);
    assert_eq!((kept(&image), shown(&image)["alloc"].as_str()), (String::new(), Some("lease")));
    // Nothing is written by a plan, and nothing that no policy has.
    let before = fs::read(&image).unwrap();
    placement(&image, &["-n", "--set", "mb_max_to_scan=50"]).fine();
    for (wrong, part) in [
        ("mb_max_to_scan=50,alloc=lease", "`lease` is chosen"),
        ("lease_tight=0", "from 1 to 1000"),
        ("shade=1", "no parameter `shade`"),
        ("stripe=8", "plat tune -E stripe_width"),
    ] {
        let said = misused(placement(&image, &["--set", wrong]));
        assert!(said.contains(part), "{wrong}: {said}");
    }
    assert!(fs::read(&image).unwrap() == before);
    placement(&image, &["--set", "mb_max_to_scan=50,dirs=dirpref", "-s", "avgfpdir=9"]).fine();
    assert_eq!(kept(&image), "dirs=dirpref,avgfpdir=9,mb_max_to_scan=50");
    assert_eq!(shown(&image)["alloc"], "mballoc");
    fsck::assert_clean(&image);
    // It is followed where nothing else is said, and by commands too.
    let tree = scratch.join("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    crate::plat::plat("put", &image, &["-r".as_ref(), tree.as_os_str(), "/tree".as_ref()]).fine();
    if have_fuse("placement-kept") {
        let mounted = Mounted::new(&image, &[]).unwrap();
        write(&mounted);
        assert!(counted(&mounted, "buddies_generated") > 0);
        mounted.unmount();
        let mounted = Mounted::new(&image, &["-o", "alloc=lease"]).unwrap();
        write(&mounted);
        assert_eq!(counted(&mounted, "buddies_generated"), 0);
        mounted.unmount();
    }
    placement(&image, &["--unset", "avgfpdir", "--unset", "dirs"]).fine();
    assert_eq!(kept(&image), "mb_max_to_scan=50");
    placement(&image, &["--clear"]).fine();
    assert_eq!(kept(&image), "");
    fsck::assert_clean(&image);
}

/// The attribute may come from anybody.
#[test]
fn words_of_strangers_place_nothing_and_are_reported() {
    let scratch = Scratch::new("placement-strange");
    let image = volume(&scratch, &[]);
    let long = "alloc=lease,".repeat(70);
    let strange = ["alloc=future", "lease_tight=0", "0xff00", "alloc=lease,mb_max_to_scan=1", &long];
    for words in strange {
        let set = format!("trusted.platfs.placement={words}");
        crate::plat::plat("xattr", &image, &["/".as_ref(), "--set".as_ref(), set.as_ref()]).fine();
        let ran = placement(&image, &["--json"]);
        let shown: Value = serde_json::from_slice(&ran.out).unwrap();
        let said = ran.err;
        if words == long {
            assert_eq!(shown["kept"], "alloc=lease");
        } else {
            assert!(said.contains("counts for nothing"), "{words}: {said}");
            assert_eq!((&shown["kept"], &shown["alloc"]), (&"".into(), &"lease".into()));
        }
        crate::plat::plat("mkdir", &image, &[format!("/{}", words.len()).as_ref()]).fine();
    }
    fsck::assert_clean(&image);
}

#[test]
fn a_mount_keeps_what_it_is_asked_to_for_the_next_one() {
    if !have_fuse("placement-mounted") || !testkit::tool::administers() {
        return;
    }
    let scratch = Scratch::new("placement-mounted");
    let image = volume(&scratch, &[]);
    let mounted = Mounted::new(&image, &[]).unwrap();
    assert_eq!(kept(mounted.path()), "");
    placement(mounted.path(), &["--set", "alloc=window"]).fine();
    assert_eq!(kept(mounted.path()), "alloc=window");
    fs::create_dir(mounted.path().join("below")).unwrap();
    let said = placement(&mounted.path().join("below"), &["--set", "alloc=xfs"]).failed();
    assert!(said.contains("no mount of plat begins here"), "{said}");
    mounted.unmount();
    assert_eq!(kept(&image), "alloc=window");
    let mounted = Mounted::new(&image, &[]).unwrap();
    placement(mounted.path(), &["--clear"]).fine();
    placement(mounted.path(), &["--clear"]).fine();
    mounted.unmount();
    assert_eq!(kept(&image), "");
    fsck::assert_clean(&image);
}

/// `stripe` is ext4's field, and small files share what is preallocated in whole stripes: by mkfs and tune for good, by the option for a mount; other policies say that it is nothing
/// to them.
#[test]
fn stripes_come_from_the_superblock_or_the_option() {
    if !have_fuse("placement-stripe") {
        return;
    }
    let scratch = Scratch::new("placement-stripe");
    let image = volume(&scratch, &["-b", "4096", "-E", "stride=8,stripe_width=24"]);
    let start = |options: &[&str], name: &str| {
        let mounted = Mounted::new(&image, options).unwrap();
        // The first search has the bitmaps read, and is not aligned.
        write(&mounted);
        let path = mounted.path().join(name);
        fs::write(&path, vec![1; 8 * 4096]).unwrap();
        fs::File::open(&path).unwrap().sync_all().unwrap();
        let log = mounted.unmount();
        let path = format!("/{name}");
        let map = crate::plat::plat("map", &image, &["-e".as_ref(), "--json".as_ref(), path.as_ref()]).fine();
        let map: Value = serde_json::from_slice(&map).unwrap();
        let first = map[0]["runs"][0]["disk_block"].as_u64();
        (first.unwrap_or_else(|| panic!("{map}")), log.join("\n"))
    };
    assert_eq!(start(&["-o", "alloc=mballoc"], "volume").0 % 24, 0);
    assert_eq!(start(&["-o", "alloc=mballoc,stripe=40"], "option").0 % 40, 0);
    let (_, log) = start(&["-o", "stripe=40"], "other");
    assert!(log.contains("`stripe` has no effect with `alloc=lease`"), "{log}");
}

#[test]
fn a_build_has_the_image_say_how_it_is_placed() {
    let scratch = Scratch::new("placement-build");
    let tree = scratch.join("tree");
    fs::create_dir_all(&tree).unwrap();
    fs::write(tree.join("file"), "x").unwrap();
    for size in ["auto", "min"] {
        let image = scratch.join(format!("{size}.img"));
        let arguments = ["--size", size, "--placement", "avgfpdir=9,alloc=xfs"].map(std::ffi::OsStr::new);
        let arguments = [&[image.as_os_str()], &arguments[..]].concat();
        crate::plat::plat("build", &tree, &arguments).fine();
        assert_eq!(kept(&image), "alloc=xfs,avgfpdir=9");
        fsck::assert_clean(&image);
    }
    let image = scratch.join("wrong.img");
    let arguments = [image.as_os_str(), "--placement".as_ref(), "stripe=8".as_ref()];
    assert!(misused(crate::plat::plat("build", &tree, &arguments)).contains("plat tune"));
    assert!(!image.exists());
}

/// The table of docs/placement.md is that of the code.
#[test]
fn the_documents_have_every_parameter() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/placement.md");
    let text = fs::read_to_string(path).unwrap();
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
    let mut missing = Vec::new();
    for known in parameters() {
        let tunable = known.tunable;
        let row = format!(
            "| `{}` | {} | {} to {} | {} | {} | {} |",
            tunable.name,
            tunable.default,
            tunable.least,
            tunable.most,
            known.policies.join(", "),
            tunable.source.name(),
            tunable.about
        );
        if !rows.contains(&row.as_str()) {
            missing.push(row);
        }
    }
    assert!(missing.is_empty(), "docs/placement.md lacks:\n{}", missing.join("\n"));
    assert_eq!(rows.len(), parameters().len(), "docs/placement.md has a parameter that is gone");
}
