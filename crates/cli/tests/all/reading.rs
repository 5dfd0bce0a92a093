//! The reading commands on golden images: what they print is what the kernel and the reference tools say.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::ExitCode;

use crate::plat::{plat, plat_limited};
use serde_json::Value;
use testkit::images::{self, Premise, golden};
use testkit::mount::{self, Mounted};
use testkit::scratch::Scratch;
use testkit::sparse;
use testkit::tool;

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(bytes)))
}

/// The bytes of a member that may not be text.
fn bytes(object: &Value, key: &str) -> Vec<u8> {
    match object[format!("{key}_hex")].as_str() {
        Some(hex) => {
            let digits: Vec<char> = hex.chars().collect();
            let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
            digits.chunks(2).map(byte).collect()
        }
        None => object[key].as_str().unwrap_or_else(|| panic!("{key} in {object}")).into(),
    }
}

fn type_name(facts: &fs::Metadata) -> &'static str {
    let file_type = facts.file_type();
    match () {
        () if file_type.is_dir() => "directory",
        () if file_type.is_symlink() => "symlink",
        () if file_type.is_char_device() => "char-device",
        () if file_type.is_block_device() => "block-device",
        () if file_type.is_fifo() => "fifo",
        () if file_type.is_socket() => "socket",
        () => "file",
    }
}

/// Golden images that the kernel mounts here, as (name, image, mount).
fn mounted(test: &str) -> Vec<(&'static str, std::path::PathBuf, Mounted)> {
    if !mount::have_loop_mount(test) {
        return Vec::new();
    }
    let sound = images::all()
        .iter()
        .filter(|recipe| !recipe.premises.iter().any(|premise| matches!(premise, Premise::Unclean)));
    let made = sound.filter_map(|recipe| Some((recipe.name, golden(test, recipe.name)?)));
    // Blocks larger than a page and the like: the library's tests compare these by fuse2fs.
    made.filter_map(|(name, image)| Some((name, image.clone(), Mounted::read_only(&image).ok()?))).collect()
}

/// Names below a directory, itself left out, in no particular order.
fn names_below(root: &Path, into: &mut Vec<Vec<u8>>, prefix: &[u8]) {
    for entry in fs::read_dir(root).unwrap() {
        let entry = entry.unwrap();
        let path = [prefix, b"/", entry.file_name().as_bytes()].concat();
        into.push(path.clone());
        if entry.file_type().unwrap().is_dir() {
            names_below(&entry.path(), into, &path);
        }
    }
}

fn under(root: &Path, path: &[u8]) -> std::path::PathBuf {
    root.join(OsStr::from_bytes(path.strip_prefix(b"/").unwrap()))
}

fn same_facts(name: &str, object: &Value, root: &Path) {
    let path = bytes(object, "path");
    let host = under(root, &path);
    let shown = format!("{name}: {}", path.escape_ascii());
    let facts = fs::symlink_metadata(&host).unwrap_or_else(|e| panic!("{shown}: {e}"));
    let number = |key: &str| object[key].as_u64().unwrap_or_else(|| panic!("{shown}: {key} in {object}"));
    assert_eq!(object["type"], type_name(&facts), "{shown}");
    assert_eq!(object["mode"], format!("{:04o}", facts.mode() & 0o7777), "{shown}");
    assert_eq!((number("uid"), number("gid")), (facts.uid().into(), facts.gid().into()), "{shown}");
    assert_eq!((number("inode"), number("links")), (facts.ino(), facts.nlink()), "{shown}");
    assert_eq!(number("size"), facts.size(), "{shown}");
    let time = ondisk::inode::Timestamp {
        seconds: facts.mtime(),
        nanoseconds: u32::try_from(facts.mtime_nsec()).unwrap(),
    };
    assert_eq!(object["modified"], plat_cli::text::time(time), "{shown}");
    if facts.file_type().is_symlink() {
        assert_eq!(bytes(object, "target"), fs::read_link(&host).unwrap().as_os_str().as_bytes(), "{shown}");
    }
    if facts.file_type().is_char_device() || facts.file_type().is_block_device() {
        let device = facts.rdev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        assert_eq!(object["device"], serde_json::json!({ "major": major, "minor": minor }), "{shown}");
    }
}

#[test]
fn ls_lists_what_a_mount_shows() {
    for (name, image, mount) in mounted("plat ls against a mount") {
        let listed = json(&plat("ls -laR --json", &image, &[]).fine());
        let listed = listed.as_array().unwrap();
        let mut expected = Vec::new();
        names_below(mount.path(), &mut expected, b"");
        let mut found: Vec<Vec<u8>> = listed.iter().map(|object| bytes(object, "path")).collect();
        expected.sort();
        found.sort();
        assert!(expected == found, "{name}: {} names, not {}", found.len(), expected.len());
        for object in listed {
            same_facts(name, object, mount.path());
        }
    }
}

#[test]
fn cat_prints_what_a_mount_holds() {
    for (name, image, mount) in mounted("plat cat against a mount") {
        let mut paths = Vec::new();
        names_below(mount.path(), &mut paths, b"");
        paths.retain(|path| {
            let facts = fs::symlink_metadata(under(mount.path(), path)).unwrap();
            facts.is_file() && facts.len() < 2 << 20
        });
        // Many at once: opening the image is most of the work.
        for some in paths.chunks(200) {
            let arguments: Vec<&OsStr> = some.iter().map(|path| OsStr::from_bytes(path)).collect();
            let expected: Vec<Vec<u8>> =
                some.iter().map(|path| fs::read(under(mount.path(), path)).unwrap()).collect();
            assert!(plat("cat", &image, &arguments).fine() == expected.concat(), "{name}: {arguments:?}");
        }
    }
}

#[test]
fn a_copied_file_keeps_bytes_holes_mode_and_times() {
    let test = "plat get against a mount";
    let wanted = ["unwritten", "extents-deep", "kernel-odd-ext2-1k", "kernel-odd-inline", "huge-holes"];
    for (name, image, mount) in mounted(test).into_iter().filter(|(name, ..)| wanted.contains(name)) {
        let scratch = Scratch::new("get");
        let mut paths = Vec::new();
        names_below(mount.path(), &mut paths, b"");
        for path in paths {
            let host = under(mount.path(), &path);
            let facts = fs::symlink_metadata(&host).unwrap();
            if !facts.is_file() || facts.len() > 1 << 43 {
                continue;
            }
            let copy = scratch.join("copy");
            plat("get", &image, &[OsStr::from_bytes(&path), copy.as_os_str()]).fine();
            let found = fs::metadata(&copy).unwrap();
            let shown = format!("{name}: {}", path.escape_ascii());
            assert_eq!((found.len(), found.mode() & 0o777), (facts.len(), facts.mode() & 0o777), "{shown}");
            // What the host file system can't hold it clamps: before 1901, after 2446.
            if (0..1 << 31).contains(&facts.mtime()) {
                let times = |facts: &fs::Metadata| (facts.mtime(), facts.mtime_nsec());
                assert_eq!(times(&found), times(&facts), "{shown}");
            }
            // The host may have larger blocks, which hold more of what is between.
            assert!(found.blocks() <= facts.blocks() * 4 + 16, "{shown}: holes are lost");
            if facts.len() < 8 << 20 {
                assert!(fs::read(&copy).unwrap() == fs::read(&host).unwrap(), "{shown}");
            }
            fs::remove_file(&copy).unwrap();
        }
    }
}

#[test]
fn copying_brings_whole_directories() {
    let test = "plat get -r";
    let Some(image) = golden(test, "kernel-odd-ext2-1k") else { return };
    if !tool::have_root(test) || !mount::have_loop_mount(test) {
        return;
    }
    let scratch = Scratch::new("get-r");
    let copy = scratch.join("copy");
    plat("get -r", &image, &[OsStr::new("/"), copy.as_os_str()]).fine();
    let mounted = Mounted::read_only(&image).unwrap();
    let trees = [mounted.path(), &copy].map(|root| testkit::snapshot::Snapshot::of(root).unwrap());
    let rules = testkit::snapshot::Rules { hole_granularity: 0, nanoseconds: false, ..Default::default() };
    testkit::snapshot::assert_same(&trees[0], &trees[1], &rules);
    // Into a directory that exists: under its own name, and never over another.
    let into = scratch.join("into");
    fs::create_dir(&into).unwrap();
    plat("get -r", &image, &[OsStr::new("/modes"), into.as_os_str()]).fine();
    assert!(into.join("modes").is_dir());
    assert!(plat("get -r", &image, &[OsStr::new("/names"), copy.as_os_str()]).failed().contains("exists"));
}

#[test]
fn frag_counts_as_filefrag_does() {
    let test = "plat frag against filefrag";
    if !tool::have_tools(test, &["filefrag"]) {
        return;
    }
    for (name, image, mount) in mounted(test) {
        if ["kernel-odd-ext4", "huge-holes"].contains(&name) {
            continue;
        }
        let shown = String::from_utf8(plat("frag -v --worst 0", &image, &[]).fine()).unwrap();
        let found: std::collections::BTreeMap<&str, &str> =
            shown.lines().filter_map(|line| line.strip_suffix(" found")?.rsplit_once(": ")).collect();
        let root = mount.path().to_str().unwrap();
        let mut compared = 0;
        for (path, count) in mount::extent_counts(mount.path()) {
            // Of a name with a newline only the end comes here.
            let Some(inside) = path.strip_prefix(root) else { continue };
            let facts = fs::symlink_metadata(&path);
            // Names that are escaped, and files counted under another name, are left out; so are contents
            // in the inode, which filefrag takes for an extent.
            let Some(ours) = found.get(inside) else { continue };
            if *ours == "0 extents" && count == 1 && facts.is_ok_and(|facts| facts.len() < 1024) {
                continue;
            }
            let plural = if count == 1 { "" } else { "s" };
            assert_eq!(*ours, format!("{count} extent{plural}"), "{name}: {inside}");
            compared += 1;
        }
        assert!(compared > 0 || found.is_empty(), "{name}");
    }
}

#[test]
fn freefrag_says_what_e2freefrag_says() {
    let test = "plat freefrag against e2freefrag";
    if !tool::have_tools(test, &["e2freefrag"]) {
        return;
    }
    // With clusters e2freefrag counts nothing; before replay its total is that of the superblock.
    let left_out = |name: &str| name.contains("bigalloc") || name == "unclean";
    for recipe in images::all().iter().filter(|recipe| !left_out(recipe.name)) {
        let Some(image) = golden(test, recipe.name) else { continue };
        let expected = tool::text("e2freefrag", &[image.as_os_str()]);
        let found = String::from_utf8(plat("freefrag", &image, &[]).out).unwrap();
        let lines = |text: &str| text.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
        assert_eq!(lines(&found), lines(&expected), "{}", recipe.name);
    }
}

#[test]
fn freefrag_of_clusters_adds_up() {
    let Some(image) = golden("plat freefrag with clusters", "kernel-odd-bigalloc") else { return };
    let figures = json(&plat("freefrag --json", &image, &[]).fine());
    assert_eq!(Some(figures["free_blocks"].to_string()), tool::dumpe2fs_field(&image, "Free blocks"));
    let sum: u64 =
        figures["histogram"].as_array().unwrap().iter().map(|bin| bin["blocks"].as_u64().unwrap()).sum();
    assert_eq!(figures["free_blocks"], sum);
}

/// Fields whose text is the same in dumpe2fs; times and sizes are written in other ways.
const SAME: &[&str] = &[
    "Filesystem volume name",
    "Filesystem UUID",
    "Filesystem magic number",
    "Filesystem revision #",
    "Filesystem features",
    "Filesystem flags",
    "Default mount options",
    "Errors behavior",
    "Filesystem OS type",
    "Inode count",
    "Block count",
    "Reserved block count",
    "Free blocks",
    "Free inodes",
    "First block",
    "Block size",
    "Cluster size",
    "Group descriptor size",
    "Reserved GDT blocks",
    "Blocks per group",
    "Inodes per group",
    "Inode blocks per group",
    "First meta block group",
    "Backup block groups",
    "RAID stride",
    "RAID stripe width",
    "Flex block group size",
    "Mount count",
    "Maximum mount count",
    "First inode",
    "Inode size",
    "Required extra isize",
    "Desired extra isize",
    "Journal inode",
    "Default directory hash",
    "Directory Hash Seed",
    "Orphan file inode",
    "MMP block number",
    "MMP update interval",
    "User quota inode",
    "Group quota inode",
    "Project quota inode",
    "Checksum type",
    "Checksum",
    "Checksum seed",
    "Journal features",
    "Total journal blocks",
    "Journal sequence",
    "Journal start",
];

#[test]
fn info_has_every_field_of_dumpe2fs() {
    let test = "plat info against dumpe2fs";
    for recipe in images::all() {
        let Some(image) = golden(test, recipe.name) else { continue };
        let shown = String::from_utf8(plat("info", &image, &[]).out).unwrap();
        let field = |label: &str| {
            let lines = shown.lines().filter_map(|line| line.strip_prefix(label)?.strip_prefix(':'));
            lines.map(str::trim).next_back().map(str::to_owned)
        };
        for label in SAME {
            let Some(expected) = tool::dumpe2fs_field(&image, label) else { continue };
            assert_eq!(field(label).as_deref(), Some(&expected[..]), "{}: {label}", recipe.name);
        }
        let object = json(&plat("info --json --groups", &image, &[]).out);
        let free: u64 = object["groups"]
            .as_array()
            .unwrap()
            .iter()
            .map(|group| group["free_inodes"].as_u64().unwrap())
            .sum();
        // The kernel writes the superblock's counts last.
        if recipe.name != "unclean" {
            assert_eq!(object["superblock"]["free_inodes"], free, "{}", recipe.name);
        }
    }
}

#[test]
fn an_unclean_journal_is_read_and_one_that_cannot_be_is_reported_by_every_command() {
    let Some(image) = golden("unclean journal", "unclean") else { return };
    let before = fs::read(&image).unwrap();
    let commands = ["ls", "ls -R", "tree", "frag", "freefrag"];
    for command in commands {
        let ran = plat(command, &image, &[]);
        assert_eq!(ran.err, "", "{command}");
    }
    let info = plat("info --json", &image, &[]);
    assert_eq!(json(&info.fine())["journal"], "needs recovery");
    assert!(fs::read(&image).unwrap() == before, "the image was changed");

    let scratch = Scratch::new("unreadable-journal");
    let copy = scratch.join("disk.img");
    let mut bytes = before;
    let head = [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 4];
    let start = (0..bytes.len()).step_by(1024).find(|at| bytes[*at..].starts_with(&head)).unwrap();
    bytes[start + 0x28] = 0x80;
    sparse::write(&copy, bytes).unwrap();
    for command in commands {
        let ran = plat(command, &copy, &[]);
        assert!(ran.err.contains("without what its journal holds"), "{command}: {}", ran.err);
    }
}

#[test]
fn stat_tells_types_attributes_and_runs() {
    let Some(image) = golden("plat stat", "debugfs") else { return };
    let paths = ["/file", "/slow-link", "/char", "/missing"].map(OsStr::new);
    let ran = plat("stat --json", &image, &paths);
    assert_eq!(ran.code, ExitCode::FAILURE);
    assert!(ran.err.contains("/missing: no such file or directory\"}}"), "{}", ran.err);
    let all = json(&ran.out);
    assert_eq!(all[0]["attributes"], serde_json::json!([{ "name": "user.by", "value": "debugfs" }]));
    assert_eq!((&all[0]["size"], &all[0]["links"]), (&20_000.into(), &2.into()));
    let blocks: u64 =
        all[0]["runs"].as_array().unwrap().iter().map(|run| run["count"].as_u64().unwrap()).sum();
    assert_eq!(blocks, 5);
    assert_eq!(all[1]["type"], "symlink");
    assert_eq!(all[2]["device"], serde_json::json!({ "major": 1, "minor": 3 }));
    let text = String::from_utf8(plat("stat", &image, &[OsStr::new("/file")]).fine()).unwrap();
    assert!(text.contains("Attribute: user.by = \"debugfs\"") && text.contains("Mode: 0644"), "{text}");
}

#[test]
fn tree_draws_every_name_once() {
    let Some(image) = golden("plat tree", "debugfs") else { return };
    let drawn = String::from_utf8(plat("tree --ascii", &image, &[]).fine()).unwrap();
    let expected = "/\n|-- char\n|-- dir\n|   `-- linked\n|-- fast-link -> short\n|-- file\n|-- lost+found\n|-- pipe\n`-- slow-link -> ";
    assert!(drawn.starts_with(expected), "{drawn}");
    assert!(drawn.ends_with("\n\n3 directories, 6 files\n"), "{drawn}");
    let top = String::from_utf8(plat("tree --ascii -d -L 1", &image, &[]).fine()).unwrap();
    assert_eq!(top, "/\n|-- dir\n`-- lost+found\n\n3 directories\n");
}

#[test]
fn partitions_hold_images_too() {
    let test = "plat on partitions";
    let Some(image) = golden(test, "ext2-1k") else { return };
    let scratch = Scratch::new("partitions");
    let disk = scratch.join("disk.img");
    let mut whole = vec![0; 1 << 20];
    whole.extend_from_slice(&fs::read(&image).unwrap());
    let sectors = u32::try_from((whole.len() - (1 << 20)) / 512).unwrap();
    whole[446 + 4] = 0x83;
    whole[446 + 8..446 + 12].copy_from_slice(&2048_u32.to_le_bytes());
    whole[446 + 12..446 + 16].copy_from_slice(&sectors.to_le_bytes());
    whole[510..512].copy_from_slice(&[0x55, 0xAA]);
    sparse::write(&disk, &whole).unwrap();
    let expected = plat("ls -lR", &image, &[]).fine();
    for part in ["@part1", "@1M", "@1048576"] {
        let mut name = disk.clone().into_os_string();
        name.push(part);
        assert!(plat("ls -lR", Path::new(&name), &[]).fine() == expected, "{part}");
    }
    let failed = plat("ls", &disk, &[]).failed();
    assert!(failed.contains("disk with partitions") && failed.contains("disk.img@part1"), "{failed}");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let Some(image) = golden("closed output", "htree-ext2-tea") else { return };
    for command in ["ls -lR", "tree", "ls -R --json"] {
        let ran = plat_limited(command, &image, &[], 1000);
        assert_eq!((ran.code, &ran.err[..]), (ExitCode::SUCCESS, ""), "{command}");
    }
}

#[test]
fn errors_name_image_path_and_reason_on_one_line() {
    let Some(image) = golden("errors", "ext4-4k") else { return };
    let name = image.display();
    let cases: &[(&str, &[&str], &str)] = &[
        ("cat", &["/"], "/: is a directory"),
        ("cat", &["/nowhere/x"], "/nowhere/x: no such file or directory"),
        ("ls", &["/contents/59-bytes/"], "/contents/59-bytes/: not a directory"),
        ("get", &["/contents", "/dev/null/x"], "/contents: is a directory; --recursive copies it"),
    ];
    for (command, paths, expected) in cases {
        let paths: Vec<&OsStr> = paths.iter().map(OsStr::new).collect();
        assert_eq!(plat(command, &image, &paths).failed(), format!("plat: {name}: {expected}\n"));
    }
    assert_eq!(plat("ls --no-such-option", &image, &[]).code, ExitCode::from(2));
    assert_eq!(plat("cat", &image, &[]).code, ExitCode::from(2));
    let missing = Path::new("/nowhere.img");
    assert!(plat("info", missing, &[]).failed().starts_with("plat: /nowhere.img: No such file"));
}

#[test]
fn existing_files_stay_unless_forced() {
    let Some(image) = golden("plat get --force", "ext4-4k") else { return };
    let scratch = Scratch::new("force");
    let copy = scratch.join("copy");
    fs::write(&copy, "mine").unwrap();
    let arguments = [OsStr::new("/contents/59-bytes"), copy.as_os_str()];
    assert!(plat("get", &image, &arguments).failed().contains("exists; --force replaces it"));
    assert_eq!(fs::read(&copy).unwrap(), b"mine");
    plat("get --force", &image, &arguments).fine();
    assert_eq!(fs::metadata(&copy).unwrap().len(), 59);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1, "nothing is left beside");
}
