//! Volumes of other sizes: sound, and with the same files.
mod in_use;
mod least;
mod power;
mod renumbering;
mod shrinking;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::draft::Limits;
use crate::resize::Plan;
use ondisk::inode::Timestamp;
use platfs_device::{Device, FileDevice};
use testkit::mount::{Mounted, have_loop_mount};
use testkit::random::Random;
use testkit::scratch::Scratch;
use testkit::snapshot::{Rules, Snapshot, assert_same};
use testkit::{fsck, images, odd, sparse, tool};

const MIB: u64 = 1 << 20;

/// Kinds of volumes: options of mke2fs. Small groups make many of them.
const KINDS: &[(&str, &[&str])] = &[
    ("ext2-1k", &["-t", "ext2", "-b", "1024", "-g", "2048"]),
    ("ext2-4k", &["-t", "ext2", "-b", "4096", "-g", "512"]),
    ("ext2-old", &["-t", "ext2", "-b", "1024", "-g", "2048", "-O", "^sparse_super,^resize_inode"]),
    ("ext3-1k", &["-t", "ext3", "-b", "1024", "-g", "2048"]),
    ("ext4-1k", &["-t", "ext4", "-b", "1024", "-g", "2048"]),
    ("ext4-4k", &["-t", "ext4", "-b", "4096", "-g", "1024"]),
    ("ext4-flex4", &["-t", "ext4", "-b", "1024", "-g", "2048", "-G", "4"]),
    ("ext4-few-inodes", &["-t", "ext4", "-b", "4096", "-g", "1024", "-i", "24576"]),
    ("no-csum", &["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "^metadata_csum"]),
    ("gdt-csum", &["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "^metadata_csum,uninit_bg"]),
    ("no-64bit", &["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "^64bit"]),
    ("no-flex", &["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "^flex_bg"]),
    ("no-reserve", &["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "^resize_inode"]),
    ("little-reserve", &["-t", "ext4", "-b", "1024", "-g", "2048", "-E", "resize=200000"]),
    ("no-reserve-no-flex", &["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "^resize_inode,^flex_bg"]),
    ("meta-bg", &["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "meta_bg,^resize_inode"]),
    ("sparse-super2", &["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "sparse_super2,^resize_inode"]),
    ("bigalloc", &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384", "-g", "1024"]),
    ("inline-data", &["-t", "ext4", "-b", "1024", "-I", "512", "-g", "2048", "-O", "inline_data"]),
    ("ea-inode", &["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "ea_inode"]),
    ("orphan-file", &["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "orphan_file"]),
    ("quota", &["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "quota,project", "-I", "256"]),
    ("mmp", &["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "mmp"]),
    ("csum-seed", &["-t", "ext4", "-b", "2048", "-g", "2048", "-O", "metadata_csum_seed"]),
    ("no-extents", &["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "^extents,^64bit"]),
];

fn limits() -> Limits {
    Limits { memory: 1 << 30, threads: 1, now: Timestamp::from_seconds(testkit::clock::seconds()) }
}

fn open(image: &Path) -> Arc<dyn Device> {
    let file = File::options().read(true).write(true).open(image).unwrap();
    Arc::new(FileDevice::new(file).unwrap().without_flush().unshared())
}

/// Carries a plan out.
fn carry_out(image: &Path, plan: Plan) -> Result<u64, String> {
    let had = std::fs::metadata(image).unwrap().len();
    let size = plan.size_bytes();
    let file = File::options().write(true).open(image).unwrap();
    if size > had {
        file.set_len(size).unwrap();
    }
    let change = plan.draft(open(image), had, &limits()).map_err(|error| error.to_string())?;
    change.apply().unwrap();
    file.set_len(size).unwrap();
    Ok(size)
}

/// Gives an image another size.
fn resize(image: &Path, bytes: u64) -> Result<u64, String> {
    carry_out(image, Plan::new(open(image), bytes).map_err(|error| error.to_string())?)
}

fn copy(image: &Path, to: &Path) -> PathBuf {
    sparse::copy(image, to).unwrap();
    to.to_owned()
}

fn wanted(name: &str) -> bool {
    std::env::var("ONLY").map_or(true, |only| only == name)
}

/// A volume of a kind, with the odd tree, and files all over it.
fn volume(scratch: &Scratch, name: &str, options: &[&str], size: u64) -> PathBuf {
    let (tree, image) = (scratch.join("tree"), scratch.join(format!("{name}.img")));
    if !tree.exists() {
        odd::make(&tree, &odd::Options::modest());
    }
    File::create(&image).unwrap().set_len(size).unwrap();
    let mut command = tool::command("mke2fs");
    command.args(["-q", "-F"]).args(options);
    // Linux can't ask for the holes of a file that is inside its inode.
    if name != "inline-data" {
        command.arg("-d").arg(&tree);
    }
    tool::run(command.arg(&image));
    image
}

/// mke2fs does not count what it copies, and e2fsck counts its quota files in its second run.
fn count_quotas(image: &Path) {
    for _ in 0..2 {
        tool::command("e2fsck").arg("-fy").arg(image).output().unwrap();
    }
}

/// Fills a mounted volume in pieces, and removes some again.
fn churn(root: &Path, seed: u64) {
    let mut random = Random(seed);
    for round in 0..60 {
        let directory = root.join(format!("churn{}", round % 7));
        std::fs::create_dir_all(&directory).unwrap();
        let len = random.below(300_000);
        let _ = std::fs::write(directory.join(format!("file {round}")), random.bytes(len));
        for small in 0..5 {
            let _ = std::fs::write(directory.join(format!("small {round} {small}")), random.bytes(700));
        }
        if random.one_in(3) {
            let _ = std::fs::remove_file(directory.join(format!("file {}", random.below(round + 1))));
        }
    }
}

/// Looks at each kind of volume, with a directory for what it makes; returns all that was found. Four at a time: most of
/// the time goes by waiting for mounts and for other programs.
fn on_each_kind<F: IntoIterator<Item: Send>>(
    name: &str,
    look: impl Fn(&str, &[&str], &Scratch) -> F + Sync,
) -> Vec<F::Item> {
    let kinds: Vec<_> = KINDS.iter().filter(|(name, _)| wanted(name)).collect();
    let look_from = |first: usize| -> Vec<F::Item> {
        let kinds = kinds.iter().skip(first).step_by(4);
        kinds.flat_map(|(kind, options)| look(kind, options, &Scratch::new(name))).collect()
    };
    let look_from = &look_from;
    std::thread::scope(|scope| {
        let threads = [0, 1, 2, 3].map(|first| scope.spawn(move || look_from(first)));
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn every_golden_volume_grows() {
    if !tool::have_tools("resize", &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("resize-golden");
    for recipe in images::all().iter().filter(|recipe| wanted(recipe.name)) {
        let Ok(golden) = images::make(recipe.name) else { continue };
        let size = std::fs::metadata(&golden).unwrap().len();
        for new in [size + 5 * MIB, size * 3 / 2 + 12345, size * 5] {
            let image = copy(&golden, &scratch.join("image"));
            if let Err(error) = resize(&image, new) {
                eprintln!("{} {size} -> {new}: {error}", recipe.name);
                continue;
            }
            let said = fsck::complaints(&image);
            assert!(said.is_empty(), "{} {size} -> {new}: {said}", recipe.name);
        }
    }
}

/// The files of an image, as the kernel sees them.
fn files(image: &Path) -> Snapshot {
    let mounted = Mounted::read_only(image).unwrap();
    let mut files = Snapshot::of(mounted.path()).unwrap();
    files.name_links();
    files
}

#[test]
fn every_kind_of_volume_changes_its_size_and_keeps_its_files() {
    if !tool::have_tools("resize", &["mke2fs", "e2fsck"]) || !have_loop_mount("resize") {
        return;
    }
    let failures = on_each_kind("resize-kinds", changes_its_size);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Gives a volume one size after another; what is wrong then.
fn changes_its_size(name: &str, options: &[&str], scratch: &Scratch) -> Vec<String> {
    let image = volume(scratch, name, options, 48 * MIB);
    // A kernel without quota mounts a volume with it for reading only.
    match Mounted::read_write(&image) {
        Ok(mounted) => churn(mounted.path(), 1),
        Err(why) => eprintln!("{name}: {why}"),
    }
    count_quotas(&image);
    fsck::assert_clean(&image);
    let before = files(&image);
    let sizes = [Some(90 * MIB + 5000), Some(30 * MIB), None, Some(64 * MIB), Some(200 * MIB), None];
    for (round, new) in sizes.into_iter().enumerate() {
        let done = match new {
            Some(new) => resize(&image, new),
            None => Plan::smallest(open(&image))
                .map_err(|error| error.to_string())
                .and_then(|plan| carry_out(&image, plan)),
        };
        eprintln!("{name} round {round} {new:?}: {done:?}");
        let said = fsck::complaints(&image);
        if done.is_err() || !said.is_empty() {
            return vec![format!("{name} round {round} {new:?}: {done:?} {said}")];
        }
        assert_same(&before, &files(&image), &Rules::default());
    }
    Vec::new()
}

/// Runs resize2fs for a size, or for the smallest; returns the size it made, in bytes.
fn resize2fs(image: &Path, bytes: Option<u64>) -> Result<u64, String> {
    let _ = tool::command("e2fsck").arg("-fy").arg(image).output().unwrap();
    let mut command = tool::command("resize2fs");
    match bytes {
        Some(bytes) => command.arg("-f").arg(image).arg(format!("{}K", bytes >> 10)),
        None => command.arg("-f").arg("-M").arg(image),
    };
    let output = command.output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let field = |name| tool::dumpe2fs_field(image, name).unwrap().parse::<u64>().unwrap();
    Ok(field("Block count") * field("Block size"))
}

#[test]
fn the_smallest_size_is_smaller_than_resize2fs_finds_and_one_block_less_fails() {
    if !tool::have_tools("resize", &["mke2fs", "e2fsck", "resize2fs"]) || !have_loop_mount("resize") {
        return;
    }
    let mut ratios = on_each_kind("resize-least", share_of_resize2fs);
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    assert!(median <= 0.97, "the median is {median}");
}

/// The smallest size as a share of what resize2fs makes, where it can.
fn share_of_resize2fs(name: &str, options: &[&str], scratch: &Scratch) -> Option<f64> {
    let image = volume(scratch, name, options, 48 * MIB);
    if let Ok(mounted) = Mounted::read_write(&image) {
        churn(mounted.path(), 2);
    }
    count_quotas(&image);
    let theirs = resize2fs(&copy(&image, &scratch.join("theirs")), None);
    let plan = Plan::smallest(open(&image)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let (size, cluster) =
        (plan.size_bytes(), u64::from(plan.after().block_size.bytes()) << plan.after().cluster_log2);
    assert!(Plan::new(open(&image), size - cluster).is_err(), "{name}: one block less is enough");
    assert_eq!(carry_out(&image, plan).unwrap(), size);
    fsck::assert_clean(&image);
    let theirs = theirs.ok()?;
    assert!(size <= theirs, "{name}: {size} bytes, resize2fs makes {theirs}");
    eprintln!("{name}: {size} of {theirs}");
    Some(size as f64 / theirs as f64)
}

/// Volumes that end in the group that they began with are no exception.
#[test]
fn the_smallest_size_within_the_last_group_is_found() {
    if !tool::have_tools("resize", &["mke2fs", "e2fsck", "resize2fs"]) || !have_loop_mount("resize") {
        return;
    }
    let scratch = Scratch::new("resize-group");
    for options in
        [&["-t", "ext4", "-b", "4096"][..], &["-t", "ext3", "-b", "4096"], &["-t", "ext2", "-b", "2048"]]
    {
        for (size, full) in [(48 * MIB, 10 * MIB), (160 * MIB, 120 * MIB)] {
            let image = scratch.join("image");
            File::create(&image).unwrap().set_len(size).unwrap();
            tool::run(tool::command("mke2fs").args(["-q", "-F"]).args(options).arg(&image));
            let bytes = vec![7; usize::try_from(full).unwrap()];
            std::fs::write(Mounted::read_write(&image).unwrap().path().join("file"), bytes).unwrap();
            let theirs = resize2fs(&copy(&image, &scratch.join("theirs")), None).unwrap();
            let plan = Plan::smallest(open(&image)).unwrap();
            let (ours, block) = (plan.size_bytes(), u64::from(plan.after().block_size.bytes()));
            assert!(Plan::new(open(&image), ours - block).is_err(), "{options:?}: one block less is enough");
            assert_eq!(carry_out(&image, plan).unwrap(), ours);
            fsck::assert_clean(&image);
            eprintln!("{options:?}, {} MiB: {ours} bytes, resize2fs {theirs}", size / MIB);
            assert!(ours <= theirs, "{options:?}: {ours} bytes, resize2fs makes {theirs}");
            std::fs::remove_file(&image).unwrap();
        }
    }
}

/// Lines of `dumpe2fs -h` that need not agree, and why.
const OWN_WAY: &[(&str, &str)] = &[
    ("Overhead clusters", "resize2fs leaves the old number, or none"),
    ("Last write time", "written at another time"),
    ("Last checked", "e2fsck ran on the copy"),
    ("Last mount time", "e2fsck ran on the copy"),
    ("Mount count", "e2fsck ran on the copy"),
    ("Next check after", "e2fsck ran on the copy"),
    ("Checksum", "follows from the others"),
    ("Lifetime writes", "other bytes were written"),
    ("Filesystem state", "resize2fs marks a volume as not clean at times"),
];

#[test]
fn the_superblock_agrees_with_that_of_resize2fs() {
    if !tool::have_tools("resize", &["mke2fs", "e2fsck", "resize2fs", "dumpe2fs"]) {
        return;
    }
    // The tools wait for half a minute each before they touch a volume with mmp.
    let failures = on_each_kind("resize-fields", |name, options, scratch| {
        if name == "mmp" { Vec::new() } else { fields_that_differ(name, options, scratch) }
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Lines of dumpe2fs that resize2fs would have made others, for some sizes.
fn fields_that_differ(name: &str, options: &[&str], scratch: &Scratch) -> Vec<String> {
    let mut failures = Vec::new();
    let made = volume(scratch, name, options, 48 * MIB);
    count_quotas(&made);
    for new in [30 * MIB, 64 * MIB, 100 * MIB + 5000, 200 * MIB] {
        let [image, copied] = ["ours", "theirs"].map(|who| copy(&made, &scratch.join(who)));
        let Ok(_) = resize2fs(&copied, Some(new)) else { continue };
        resize(&image, new).unwrap_or_else(|error| panic!("{name} {new}: {error}"));
        let fields = |image: &Path| tool::text("dumpe2fs", &["-h".as_ref(), image.as_os_str()]);
        let (ours, theirs) = (fields(&image), fields(&copied));
        let strange = |line: &&str| !OWN_WAY.iter().any(|(own, _)| line.starts_with(own));
        let (ours, theirs): (Vec<&str>, Vec<&str>) =
            (ours.lines().filter(strange).collect(), theirs.lines().filter(strange).collect());
        for line in ours.iter().filter(|line| !theirs.contains(line)) {
            let key = line.split(':').next().unwrap_or_default();
            // resize2fs leaves counts of clusters behind that e2fsck finds wrong.
            if name == "bigalloc" && key == "Free blocks" {
                continue;
            }
            let other = theirs.iter().find(|line| line.starts_with(key)).unwrap_or(&"nothing");
            failures.push(format!("{name} {new}: {line}; resize2fs: {other}"));
        }
    }
    failures
}

/// A device whose writes end after some.
struct Ending {
    inner: Arc<dyn Device>,
    left: std::sync::atomic::AtomicI64,
}

impl Device for Ending {
    fn protection(&self) -> platfs_device::Protection {
        self.inner.protection()
    }
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.inner.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        if self.left.fetch_sub(1, std::sync::atomic::Ordering::SeqCst) <= 0 {
            return Err(std::io::Error::other("cut off"));
        }
        self.inner.write_at(offset, data)
    }
    fn flush(&self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Whatever is written before the switch, the volume is the old one; and what the switch overwrites is all that is
/// needed to take it back.
#[test]
fn cut_off_at_any_write_the_old_volume_is_there_or_comes_back() {
    if !tool::have_tools("resize", &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("resize-cut");
    for name in ["ext4-1k", "no-reserve", "bigalloc", "ext2-1k"] {
        let options = KINDS.iter().find(|kind| kind.0 == name).unwrap().1;
        for new in [16 * MIB, 200 * MIB] {
            let image = volume(&scratch, name, options, 40 * MIB);
            File::options().write(true).open(&image).unwrap().set_len(new.max(40 * MIB)).unwrap();
            let original = open(&image);
            // Counts the writes once, then ends after each part of them.
            for step in 0..12 {
                let base = copy(&image, &scratch.join("cut"));
                let left = if step == 0 { i64::MAX } else { (step - 1) * 37 };
                let ending = Arc::new(Ending { inner: open(&base), left: left.into() });
                let plan = Plan::new(Arc::clone(&ending) as Arc<dyn Device>, new).unwrap();
                let limits = limits();
                let Ok(change) = plan.draft(Arc::clone(&ending) as Arc<dyn Device>, 40 * MIB, &limits) else {
                    fsck::assert_clean(&base);
                    continue;
                };
                let mut old = Vec::new();
                change
                    .staged()
                    .each_change(|change| {
                        old.push((change.offset, change.old.to_vec()));
                        Ok(())
                    })
                    .unwrap();
                fsck::assert_clean(&base);
                if change.apply().is_ok() {
                    fsck::assert_clean(&base);
                }
                let device = open(&base);
                for (offset, bytes) in old {
                    device.write_at(offset, &bytes).unwrap();
                }
                fsck::assert_clean(&base);
                assert_eq!(
                    platfs_device::read_superblock(&*device).unwrap().blocks_count(),
                    platfs_device::read_superblock(&*original).unwrap().blocks_count()
                );
            }
        }
    }
}

/// Above 2^32 blocks: wide descriptors, no resize inode, new descriptors in their meta groups.
#[test]
#[ignore = "half a million groups; cargo test -p platfs-reshape --lib over_32_bits -- --ignored"]
fn sizes_over_32_bits_make_a_volume_wide() {
    if !tool::have_tools("resize", &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("resize-wide");
    for features in ["64bit", "^64bit", "^64bit,^resize_inode,meta_bg"] {
        let kind = ["-t", "ext4", "-b", "1024", "-i", "65536", "-O", features];
        let image = volume(&scratch, "wide", &kind, 40 * MIB);
        let size = (4 << 40) + (1 << 34);
        resize(&image, size).unwrap_or_else(|error| panic!("{features}: {error}"));
        assert_eq!(tool::dumpe2fs_field(&image, "Block count").unwrap(), (size >> 10).to_string());
        fsck::assert_clean(&image);
        std::fs::remove_file(&image).unwrap();
    }
}
