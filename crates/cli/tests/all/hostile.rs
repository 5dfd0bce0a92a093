//! Commands on damaged and hostile images: they end, soon, with an exit code, and never panic; those that write, and
//! mounts, overwrite nothing that belongs to the volume itself.

#[path = "../../../fs/tests/all/check/inventory.rs"]
#[allow(
    dead_code,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "the library's tests use more"
)]
mod inventory;
#[allow(clippy::expect_used, clippy::cast_possible_truncation, reason = "numbers of a test are small")]
mod lying;
#[path = "../../../fs/tests/all/check/plant.rs"]
#[allow(
    dead_code,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "the library's tests use more"
)]
mod plant;

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::plat::{plat, plat_limited};
use ondisk::seal::Sealer;
use ondisk::superblock::RawSuperblock;
use testkit::scratch::Scratch;
use testkit::sparse;
use testkit::tool;
use zerocopy::IntoBytes;

/// Bytes of output after which the reader goes away: more than any of these images has to say.
const OUTPUT_MAX: usize = 64 << 20;
/// Time that one image may take for all commands; some hundred times what a sound one does on a busy machine.
const TIME_MAX: Duration = Duration::from_secs(120);

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }
}

/// A small tree with something for every decoder.
fn tree(scratch: &Scratch) -> PathBuf {
    let root = scratch.join("tree");
    let sub = root.join("sub/deeper");
    fs::create_dir_all(&sub).unwrap();
    fs::write(root.join("empty"), "").unwrap();
    fs::write(root.join("short"), "short").unwrap();
    fs::write(root.join("some"), vec![b's'; 30_000]).unwrap();
    fs::write(sub.join("long"), vec![b'l'; 300_000]).unwrap();
    std::os::unix::fs::symlink("sub/deeper", root.join("fast")).unwrap();
    std::os::unix::fs::symlink("s".repeat(200), root.join("slow")).unwrap();
    std::os::unix::fs::symlink("loop", root.join("loop")).unwrap();
    fs::hard_link(root.join("some"), sub.join("linked")).unwrap();
    for index in 0..60 {
        fs::write(root.join("sub").join(format!("file-{index}")), vec![b'f'; index * 20]).unwrap();
    }
    let holes = fs::File::create(root.join("holes")).unwrap();
    for tooth in 0..40 {
        std::os::unix::fs::FileExt::write_all_at(&holes, &[b'h'; 1024], tooth * 5000).unwrap();
    }
    let small = [b'v'; 30];
    let large = [b'v'; 700];
    for (name, value) in [("user.small", &small[..]), ("user.large", &large[..])] {
        // Where the host has no attributes, neither has the image.
        let _ = rustix::fs::setxattr(root.join("some"), name, value, rustix::fs::XattrFlags::empty());
    }
    root
}

/// mke2fs options and sizes. Without checksums a patch reaches what is behind them.
const BASES: &[(&str, &str)] = &[
    ("-t ext4 -b 1024 -O ^metadata_csum,^resize_inode -J size=1", "3M"),
    ("-t ext4 -b 1024 -I 256 -O ^metadata_csum,^has_journal,inline_data", "2M"),
    ("-t ext2 -b 1024", "2M"),
    ("-t ext4 -b 4096 -O ^has_journal,^metadata_csum,bigalloc -C 16384", "8M"),
    ("-t ext4 -b 1024 -O ^has_journal,^resize_inode,^metadata_csum,meta_bg -g 256", "3M"),
    ("-t ext4 -b 1024 -O ^has_journal", "2M"),
];

fn make(scratch: &Scratch, tree: &Path, options: &str, size: &str) -> Vec<u8> {
    let image = scratch.join("base.img");
    let _ = fs::remove_file(&image);
    let mut command = tool::command("mke2fs");
    command.args(["-q", "-F", "-d"]).arg(tree).args(options.split(' ')).arg(&image).arg(size);
    tool::run(&mut command);
    fs::read(&image).unwrap()
}

/// Runs every reading command over everything that is found in an image.
fn read_all(image: &Path, scratch: &Scratch) {
    let started = Instant::now();
    let limited = |command: &str, rest: &[&OsStr]| {
        let ran = plat_limited(command, image, rest, OUTPUT_MAX);
        let start = if command.contains("--json") { "{\"" } else { "plat: " };
        assert!(ran.err.lines().all(|line| line.starts_with(start)), "{command}: {}", ran.err);
        ran
    };
    for command in [
        "info --groups",
        "info --json",
        "ls -lR",
        "ls -laR --json",
        "ls -U",
        "tree",
        "frag",
        "freefrag",
        "map",
        "map --json",
    ] {
        limited(command, &[]);
    }
    let listed = limited("ls -aR --json", &[]).out;
    let mut paths: Vec<Vec<u8>> = vec![b"/fast/long".to_vec(), b"/loop/x".to_vec()];
    if let Ok(serde_json::Value::Array(all)) = serde_json::from_slice(&listed) {
        paths.extend(all.iter().take(100).filter_map(|object| Some(object["path"].as_str()?.into())));
    }
    let paths: Vec<&OsStr> = paths.iter().map(|path| OsStr::from_bytes(path)).collect();
    limited("stat", &paths);
    limited("stat --json", &paths);
    plat_limited("cat", image, &paths, 4 << 20);
    let out = scratch.join("out");
    for path in paths.iter().take(8) {
        plat("get --force", image, &[path, out.as_os_str()]);
    }
    let _ = fs::remove_file(&out);
    assert!(started.elapsed() < TIME_MAX, "took {:?}", started.elapsed());
}

/// Changes some bytes in pieces that are in use.
fn mutate(image: &mut [u8], pieces: &[usize], random: &mut Random) {
    for _ in 0..=random.below(8) {
        // The superblock and what follows it decide most.
        let piece = if random.below(4) == 0 {
            1024 + 512 * random.below(6)
        } else {
            pieces[random.below(pieces.len())]
        };
        let at = piece + random.below(512);
        let Some(to) = image.get_mut(at..(at + 4).min(piece + 512)) else { continue };
        match random.below(5) {
            0 => to[0] ^= 1 << random.below(8),
            1 => to.fill(0xFF),
            2 => to.fill(0),
            3 => to[0] = random.byte(),
            _ => to.iter_mut().for_each(|byte| *byte = random.byte()),
        }
    }
}

/// Makes the checksum of the superblock right again.
fn reseal(image: &mut [u8]) {
    let Ok(mut raw) = RawSuperblock::parse(&image[1024..2048]) else { return };
    Sealer::from_superblock(&raw).seal_superblock(&mut raw);
    image[1024..2048].copy_from_slice(raw.as_bytes());
}

/// Mutations of each base: `PLATFS_MUTATIONS`, or a few.
fn rounds() -> u64 {
    env::var("PLATFS_MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(150)
}

#[test]
fn mutated_images_are_read_to_the_end() {
    if !tool::have_tools("mutated images", &["mke2fs"]) {
        return;
    }
    let scratch = Scratch::new("mutated");
    let tree = tree(&scratch);
    let image = scratch.join("mutated.img");
    for (number, (options, size)) in BASES.iter().enumerate() {
        let base = make(&scratch, &tree, options, size);
        let pieces: Vec<usize> = (0..base.len())
            .step_by(512)
            .filter(|at| base[*at..at + 512].iter().any(|byte| *byte != 0))
            .collect();
        for round in 0..rounds() {
            let mut random = Random((number as u64) << 32 | round);
            let mut bytes = base.clone();
            mutate(&mut bytes, &pieces, &mut random);
            if random.below(3) > 0 {
                reseal(&mut bytes);
            }
            if random.below(20) == 0 {
                bytes.truncate(random.below(base.len()));
            }
            sparse::write(&image, &bytes).unwrap();
            let shown = format!("{options}, round {round}");
            let read = std::panic::catch_unwind(|| read_all(&image, &scratch));
            assert!(read.is_ok(), "{shown}");
        }
    }
}

#[test]
fn truncated_images_are_reported_as_such() {
    if !tool::have_tools("truncated images", &["mke2fs"]) {
        return;
    }
    let scratch = Scratch::new("truncated");
    let whole = make(&scratch, &tree(&scratch), "-t ext4 -b 1024", "4M");
    let image = scratch.join("short.img");
    for len in [0, 1, 1023, 1024, 2047, 2048, 5000, 100_000, whole.len() / 2, whole.len() - 1] {
        sparse::write(&image, &whole[..len]).unwrap();
        let said = plat("mkdir", &image, &["/new".as_ref()]).failed();
        assert!(said.contains("superblock: ") && said.contains("device"), "{len}: {said}");
        // What is there is read, and it is said that something is missing.
        let said = plat("ls", &image, &[]).err;
        assert!(said.contains("superblock: ") && said.contains("device"), "{len}: {said}");
    }
}

/// An image that debugfs then did harm to.
fn harmed(scratch: &Scratch, options: &str, requests: &[&str]) -> PathBuf {
    harm(scratch, &make(scratch, &tree(scratch), options, "8M"), requests)
}

/// Bytes to which debugfs then did harm.
fn harm(scratch: &Scratch, bytes: &[u8], requests: &[&str]) -> PathBuf {
    let image = scratch.join("harmed.img");
    sparse::write(&image, bytes).unwrap();
    let script = scratch.join("script");
    fs::write(&script, requests.join("\n") + "\n").unwrap();
    tool::run(tool::command("debugfs").args(["-w", "-f"]).arg(&script).arg(&image));
    image
}

/// The first block of the table of inodes.
fn table_of(image: &Path) -> String {
    // The root's record stands there.
    let found = tool::debugfs(image, "imap <2>");
    found.split("located at block ").nth(1).unwrap().split(',').next().unwrap().to_owned()
}

const PLAIN: &str = "-t ext4 -b 1024 -O ^metadata_csum,^has_journal";

#[test]
fn directories_in_a_circle_are_entered_once() {
    if !tool::have_tools("cyclic directories", &["mke2fs", "debugfs"]) {
        return;
    }
    let scratch = Scratch::new("cycle");
    let image = harmed(&scratch, PLAIN, &["ln /sub /sub/deeper/up", "ln / /sub/root"]);
    for command in ["ls -R", "ls -laR --json", "tree", "frag"] {
        let said = plat(command, &image, &[]).failed();
        assert!(said.contains("/sub/deeper/up: directory inode") && said.contains("second name"), "{said}");
        assert!(said.lines().count() <= 4, "{command}: {said}");
    }
    read_all(&image, &scratch);
}

#[test]
fn nothing_is_changed_through_a_name_that_leads_in_a_circle() {
    if !tool::have_tools("changing cyclic directories", &["mke2fs", "debugfs"]) {
        return;
    }
    let scratch = Scratch::new("cycle-changed");
    let image = harmed(&scratch, PLAIN, &["ln /sub /sub/deeper/up", "ln / /sub/deeper/top"]);
    for (command, to) in [("chmod -R --no-check-first", "700"), ("chown -R --no-check-first", "5")] {
        let said = plat(command, &image, &[OsStr::new(to), OsStr::new("/sub")]).failed();
        assert!(said.contains(": directory inode") && said.contains("second name"), "{said}");
    }
    let said = plat("rm -r", &image, &[OsStr::new("/sub")]).failed();
    assert!(said.contains("nothing was changed"), "{said}");
    let said = plat("rm -r --no-check-first", &image, &[OsStr::new("/sub")]).failed();
    assert!(said.contains("its parent, and stands in inode"), "{said}");
    assert!(said.lines().count() <= 2, "{said}");
    // The root, which one of the names leads to, has lost nothing.
    let after = String::from_utf8(plat("ls -a", &image, &[]).fine()).unwrap();
    for name in ["empty", "some", "fast", "sub"] {
        assert!(after.lines().any(|line| line == name), "{after}");
    }
}

#[test]
fn a_directory_of_many_goes_with_all_of_them() {
    if !tool::have_tools("removing many directories", &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("many-directories");
    let tree = scratch.join("tree");
    for index in 0..1500 {
        fs::create_dir_all(tree.join(format!("many/{index}/below"))).unwrap();
    }
    let image = scratch.join("many.img");
    fs::write(&image, make(&scratch, &tree, "-t ext4 -b 1024 -N 4000", "16M")).unwrap();
    plat("rm -r", &image, &[OsStr::new("/many")]).fine();
    let listed = String::from_utf8(plat("ls", &image, &[]).fine()).unwrap();
    assert!(!listed.contains("many"), "{listed}");
    testkit::fsck::assert_clean(&image);
}

#[test]
fn a_bitmap_that_gives_the_volume_away_is_reported_and_left_out() {
    if !tool::have_tools("a lying bitmap", &["mke2fs", "debugfs"]) {
        return;
    }
    let scratch = Scratch::new("lying-bitmap");
    // debugfs keeps the counts right.
    let image = harmed(&scratch, PLAIN, &[]);
    let request = format!("freeb {}", table_of(&image));
    tool::run(tool::command("debugfs").args(["-w", "-R", &request]).arg(&image));
    let file = scratch.join("new");
    fs::write(&file, vec![b'n'; 3000]).unwrap();
    let said = plat("put", &image, &[file.as_os_str(), OsStr::new("/new")]).failed();
    assert!(said.contains("nothing was changed"), "{said}");
    let ran = plat("put --no-check-first", &image, &[file.as_os_str(), OsStr::new("/new")]);
    assert!(ran.err.contains("warning") && ran.err.contains("block bitmap of group 0"), "{}", ran.err);
    // Until it is checked nothing more is written.
    let said = plat("put", &image, &[file.as_os_str(), OsStr::new("/newer")]).failed();
    assert!(said.contains("check"), "{said}");
    let listed = String::from_utf8(plat("ls", &image, &[]).fine()).unwrap();
    assert!(listed.contains("sub"), "{listed}");
}

/// A volume may say that it has any number of inodes: it is checked before the first write all the same.
#[test]
fn a_volume_of_over_a_million_inodes_is_checked_before_it_is_changed() {
    if !tool::have_tools("many inodes", &["mke2fs", "debugfs"]) {
        return;
    }
    let scratch = Scratch::new("lying-many-inodes");
    let (image, keep) = (scratch.join("image"), scratch.join("keep"));
    fs::write(&keep, vec![b'k'; 400_000]).unwrap();
    let made = ["-q", "-F", "-t", "ext4", "-N", "1200000", "-E", "lazy_itable_init=1"];
    tool::run(tool::command("mke2fs").args(made).arg(&image).arg("2G"));
    let debugfs = |request: &str| tool::run(tool::command("debugfs").args(["-w", "-R", request]).arg(&image));
    debugfs(&format!("write {} keep", keep.display()));
    let blocks = tool::debugfs(&image, "blocks /keep");
    for block in blocks.split_whitespace() {
        debugfs(&format!("freeb {block}"));
    }
    let said = plat("put", &image, &[keep.as_os_str(), OsStr::new("/big")]).failed();
    assert!(said.contains("nothing was changed") && said.contains("bitmap"), "{said}");
}

/// First byte in which two images differ, but for the superblock.
fn first_difference(before: &[u8], after: &[u8]) -> Option<usize> {
    let differs = |at: &usize| before.get(*at) != after.get(*at) && !(1024..2048).contains(at);
    (0..before.len().max(after.len())).find(differs)
}

/// Damage by debugfs, and a path that a file is put to.
const DAMAGES: &[(&str, &str)] = &[
    ("set_inode_field /sub/deeper block[0] 0", "/sub/deeper/new"),
    ("set_inode_field /sub/deeper block[0] TABLE", "/sub/deeper/new"),
    ("set_inode_field /sub/deeper block[0] 99999999", "/sub/deeper/new"),
    ("set_inode_field /sub/deeper size 0", "/sub/deeper/new"),
    ("set_inode_field /sub/deeper size 1500", "/sub/deeper/new"),
    ("set_inode_field /sub/deeper size 1048576", "/sub/deeper/new"),
    ("set_inode_field /sub/deeper mode 0100644", "/sub/deeper/new"),
    ("set_inode_field /sub/deeper flags 0x10000000", "/sub/deeper/new"),
    ("set_inode_field <2> size 0", "/new"),
    ("set_inode_field <2> mode 0100644", "/new"),
    ("set_bg 0 block_bitmap TABLE", "/new"),
    ("set_bg 0 inode_bitmap TABLE", "/new"),
    ("set_bg 0 inode_table 3", "/new"),
    ("freei <2>", "/new"),
];

#[test]
fn a_put_that_fails_on_damage_leaves_only_the_superblock_changed() {
    if !tool::have_tools("putting into damage", &["mke2fs", "debugfs"]) {
        return;
    }
    let scratch = Scratch::new("put-damage");
    let file = scratch.join("new");
    fs::write(&file, vec![b'n'; 30_000]).unwrap();
    let tree = tree(&scratch);
    for options in ["-t ext2 -b 1024", PLAIN] {
        let base = make(&scratch, &tree, options, "8M");
        let table = table_of(&scratch.join("base.img"));
        for (request, path) in DAMAGES {
            let image = harm(&scratch, &base, &[&request.replace("TABLE", &table)]);
            let before = fs::read(&image).unwrap();
            for command in ["put", "put --no-check-first", "put -f --no-check-first"] {
                let said = plat(command, &image, &[file.as_os_str(), OsStr::new(path)]).failed();
                let after = fs::read(&image).unwrap();
                assert_eq!(first_difference(&before, &after), None, "{options}, {request}: {said}");
            }
        }
    }
}

#[test]
fn impossible_sizes_are_not_believed() {
    if !tool::have_tools("impossible sizes", &["mke2fs", "debugfs"]) {
        return;
    }
    let scratch = Scratch::new("sizes");
    let requests = [
        "set_inode_field /sub size 1099511627776",
        "set_inode_field /slow size 1000000000000",
        "set_inode_field /some size 1152921504606846976",
        "set_inode_field /short size 9223372036854775807",
    ];
    let image = harmed(&scratch, PLAIN, &requests);
    let said = plat("ls -R", &image, &[]).failed();
    assert!(said.contains("larger than the volume"), "{said}");
    read_all(&image, &scratch);
    // A size that no map reaches reads as zeros to wherever its reader stops.
    let ran = plat_limited("cat", &image, &[OsStr::new("/some")], 8 << 20);
    assert!(ran.out.len() > 7 << 20 && ran.out.starts_with(b"ssss"));
}

#[test]
fn a_block_map_that_refers_to_itself_is_not_followed_for_ever() {
    if !tool::have_tools("block map in a circle", &["mke2fs", "debugfs"]) {
        return;
    }
    let scratch = Scratch::new("map");
    // Find a free block, fill it with pointers to itself, and hang it below every kind of pointer.
    let image = harmed(&scratch, "-t ext2 -b 1024", &[]);
    let free = tool::debugfs(&image, "ffb 1");
    let block: u32 = free.split_whitespace().last().unwrap().parse().unwrap();
    let mut bytes = fs::read(&image).unwrap();
    let start = block as usize * 1024;
    bytes[start..start + 1024].copy_from_slice(&block.to_le_bytes().repeat(256));
    sparse::write(&image, bytes).unwrap();
    let script = scratch.join("script");
    let mut requests = String::from("set_inode_field /some size 17000000000\n");
    for slot in ["IND", "DIND", "TIND"] {
        requests += &format!("set_inode_field /some block[{slot}] {block}\n");
    }
    fs::write(&script, requests).unwrap();
    tool::run(tool::command("debugfs").args(["-w", "-f"]).arg(&script).arg(&image));
    for command in ["stat", "get -f"] {
        let out = scratch.join("copy");
        let rest = if command == "stat" {
            vec![OsStr::new("/some")]
        } else {
            vec![OsStr::new("/some"), out.as_os_str()]
        };
        let said = plat(command, &image, &rest).failed();
        assert!(said.contains("more blocks than the volume has"), "{command}: {said}");
    }
    assert!(!scratch.join("copy").exists());
    read_all(&image, &scratch);
}
