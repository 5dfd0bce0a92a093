//! `plat map` and `plat fallocate` on files of a mount: what they say and do is what the kernel's ext4 shows afterwards.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;

use crate::support::mounted::{Mounted, have_fuse};
use crate::support::{plat, succeed};
use rustix::fs::FallocateFlags as Flags;
use serde_json::Value;
use testkit::fsck::assert_clean;
use testkit::mount::have_loop_mount;
use testkit::random::Random;
use testkit::scratch::Scratch;
use testkit::{mount, tool};

fn have(test: &str, tools: &[&str]) -> bool {
    have_fuse(test) && tool::have_root(test) && have_loop_mount(test) && tool::have_tools(test, tools)
}

fn volume(scratch: &Scratch, options: &str) -> PathBuf {
    let image = scratch.join("disk.img");
    let _ = fs::remove_file(&image);
    let mut command = tool::command("mke2fs");
    tool::run(command.args(["-q", "-F"]).args(options.split_whitespace()).arg(&image).arg("64M"));
    image
}

/// First file block, first disk block, blocks, and whether they were never written.
type Run = (u64, u64, u64, bool);

/// Runs joined where they go on.
fn joined(runs: impl IntoIterator<Item = Run>) -> Vec<Run> {
    let mut all: Vec<Run> = Vec::new();
    for run in runs {
        match all.last_mut() {
            Some(last) if last.0 + last.2 == run.0 && last.1 + last.2 == run.1 && last.3 == run.3 => {
                last.2 += run.2;
            }
            _ => all.push(run),
        }
    }
    all
}

/// Runs that `plat map -e --json` reports, by file name.
fn ours(arguments: &[&Path]) -> BTreeMap<String, Vec<Run>> {
    let output = succeed(plat(&["map", "-e", "--json"]).args(arguments));
    let files: Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |run: &Value, key: &str| run[key].as_u64().unwrap();
    let run = |run: &Value| {
        let of = |key| number(run, key);
        (of("file_block"), of("disk_block"), of("count"), run["unwritten"].as_bool().unwrap())
    };
    let files = files.as_array().unwrap().iter().map(|file| {
        let name = Path::new(file["path"].as_str().unwrap()).file_name().unwrap().to_str().unwrap();
        (name.to_owned(), file["runs"].as_array().unwrap().iter().map(run).collect())
    });
    files.collect()
}

/// Runs that `filefrag -v` reports of a file.
fn theirs(path: &Path) -> Vec<Run> {
    let output = tool::run(tool::command("filefrag").arg("-v").arg(path));
    let text = String::from_utf8(output.stdout).unwrap();
    let run = |line: &str| {
        let fields: Vec<&str> = line.split(':').map(str::trim).collect();
        let first = |field: &str| field.split("..").next()?.trim().parse::<u64>().ok();
        let [index, logical, physical, count, ..] = fields[..] else { return None };
        index.parse::<u64>().ok()?;
        let flags = fields.last()?;
        if flags.contains("inline") {
            return None;
        }
        Some((first(logical)?, first(physical)?, count.parse().ok()?, flags.contains("unwritten")))
    };
    joined(text.lines().filter_map(run))
}

/// Extents of files that are open and written, from a mount; then of the same files from the image and from the
/// kernel's ext4.
fn extents_agree(test: &str, options: &str, pieces: u64) {
    if !have(test, &["mke2fs", "e2fsck", "filefrag"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch, options);
    let mounted = Mounted::new(&image, &[]).unwrap();
    let path = |name: &str| mounted.path().join(name);
    fs::write(path("small"), [1; 40]).unwrap();
    fs::write(path("large"), vec![2; 3_000_000]).unwrap();
    File::create_new(path("empty")).unwrap();
    // Open, not synced, and in many pieces: more than one answer holds.
    let open = File::create_new(path("pieces")).unwrap();
    (0..pieces).for_each(|piece| open.write_all_at(&[3; 100], piece * 8192).unwrap());
    let space = File::create_new(path("space")).unwrap();
    if rustix::fs::fallocate(&space, Flags::KEEP_SIZE, 8192, 400_000).is_ok() {
        space.write_all_at(&[4; 50_000], 100_000).unwrap();
    }
    let names = ["small", "large", "empty", "pieces", "space"];
    let paths = names.map(path);
    let live = ours(&paths.each_ref().map(PathBuf::as_path));
    assert_eq!(live.len(), names.len());
    assert_eq!(live["pieces"].len() as u64, pieces);
    // One file needs no option.
    let text = succeed(plat(&["map"]).arg(path("large"))).stdout;
    assert!(String::from_utf8_lossy(&text).contains("large: 3000000 bytes, "));
    drop((open, space));
    mounted.unmount();
    let mut arguments = vec![image.as_path()];
    arguments.extend(names.map(Path::new));
    assert_eq!(ours(&arguments), live);
    let kernel = mount::Mounted::kernel(&image, "loop,ro").unwrap();
    for name in names {
        assert_eq!(live[name], theirs(&kernel.path().join(name)), "{name}");
    }
}

#[test]
fn extents_are_those_of_the_kernel() {
    extents_agree("extents_are_those_of_the_kernel", "-t ext4 -b 4096", 1500);
}

#[test]
fn extents_in_inodes_are_those_of_the_kernel() {
    extents_agree("extents_in_inodes_are_those_of_the_kernel", "-t ext4 -b 4096 -O inline_data -I 256", 700);
}

#[test]
fn block_pointers_are_those_of_the_kernel() {
    extents_agree("block_pointers_are_those_of_the_kernel", "-t ext3 -b 1024", 900);
}

#[test]
fn only_files_of_mounts_have_extents_to_show() {
    let test = "only_files_of_mounts_have_extents_to_show";
    if !have(test, &["mke2fs"]) {
        return;
    }
    let scratch = Scratch::new(test);
    fs::write(scratch.join("plain"), [1; 100]).unwrap();
    let said = plat(&["map", "-e"]).arg(scratch.join("plain")).output().unwrap();
    assert_eq!(said.status.code(), Some(2));
    // An image in a mount is an image, unless its extents are asked for.
    let image = volume(&scratch, "-t ext4 -b 4096");
    let mounted = Mounted::new(&image, &[]).unwrap();
    let inner = mounted.path().join("inner.img");
    succeed(plat(&["mkfs"]).arg(&inner).arg("2M"));
    let shown = succeed(plat(&["map", "--json"]).arg(&inner)).stdout;
    assert!(serde_json::from_slice::<Value>(&shown).unwrap()["cells"].is_array());
    assert_eq!(ours(&[&inner]).len(), 1);
    let missing = mounted.path().join("missing");
    let said = plat(&["map", "-e"]).arg(&inner).arg(&missing).output().unwrap();
    assert!(String::from_utf8_lossy(&said.stderr).contains("missing: No such file"));
    assert!(said.status.code() == Some(1) && String::from_utf8_lossy(&said.stdout).contains("inner.img"));
    mounted.unmount();
}

/// The command on one file: `plat fallocate` in a mount.
fn shift(file: &Path, mode: &str, offset: u64, len: u64) -> bool {
    let mut command = plat(&["fallocate", mode]);
    command.args(["-o", &offset.to_string(), "-l", &len.to_string()]).arg(file);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("panicked"), "{said}");
    output.status.success()
}

/// Ranges come and go in a file that is written and read through pages, by descriptors, and by a map; a model in memory
/// says what it must hold. The kernel's ext4 shows the same in the end.
fn ranges_move(test: &str, options: &str, mount_options: &[&str], unit: u64) {
    if !have(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch, options);
    let mounted = Mounted::new(&image, mount_options).unwrap();
    let path = mounted.path().join("f");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    let (mut model, mut random) = (Vec::new(), Random(7));
    for step in 0..60_u8 {
        let at = random.below(model.len() as u64 + 20_000);
        let bytes = vec![step + 1; 1 + usize::try_from(random.below(30_000)).unwrap()];
        file.write_all_at(&bytes, at).unwrap();
        let (at, end) = (usize::try_from(at).unwrap(), usize::try_from(at).unwrap() + bytes.len());
        model.resize(model.len().max(end), 0);
        model[at..end].copy_from_slice(&bytes);
        let units = model.len() as u64 / unit;
        let (offset, len) = (random.below(units + 2) * unit, (1 + random.below(4)) * unit);
        let (from, to) = (usize::try_from(offset).unwrap(), usize::try_from(offset + len).unwrap());
        if random.one_in(2) {
            let fits = from < model.len();
            assert_eq!(shift(&path, "--insert-range", offset, len), fits, "{step}: {offset} {len}");
            if fits {
                model.splice(from..from, std::iter::repeat_n(0, to - from));
            }
        } else {
            let fits = to < model.len();
            assert_eq!(shift(&path, "--collapse-range", offset, len), fits, "{step}: {offset} {len}");
            if fits {
                model.drain(from..to);
            }
        }
        assert_eq!(file.metadata().unwrap().len(), model.len() as u64, "{step}");
        assert!(fs::read(&path).unwrap() == model, "{step}");
    }
    assert!(!shift(&path, "--collapse-range", 1, unit) && !shift(&path, "--insert-range", 0, unit + 1));
    assert!(!shift(&path, "--insert-range", 0, 1 << 62));
    // What looks like the second half of it is refused.
    let hole = Flags::PUNCH_HOLE | Flags::KEEP_SIZE;
    let refused = rustix::fs::fallocate(&file, hole, 0, i64::MAX.cast_unsigned());
    assert_eq!(refused, Err(rustix::io::Errno::FBIG));
    assert!(fs::read(&path).unwrap() == model);
    drop(file);
    mounted.unmount();
    assert_clean(&image);
    let kernel = mount::Mounted::kernel(&image, "loop,ro").unwrap();
    assert!(fs::read(kernel.path().join("f")).unwrap() == model);
}

#[test]
fn ranges_are_taken_out_and_put_in() {
    ranges_move("ranges_are_taken_out_and_put_in", "-t ext4 -b 4096", &[], 4096);
}

#[test]
fn ranges_of_small_blocks_are_taken_out_and_put_in() {
    ranges_move("ranges_of_small_blocks_are_taken_out_and_put_in", "-t ext4 -b 1024", &["-o", "async"], 1024);
}

#[test]
fn ranges_move_without_the_cache_of_the_kernel() {
    let options = &["-o", "nowriteback_cache"];
    ranges_move("ranges_move_without_the_cache_of_the_kernel", "-t ext4 -b 4096", options, 4096);
}

/// Space of files on images and on the kernel's own files, and what is refused.
#[test]
fn space_of_files_in_images() {
    let test = "space_of_files_in_images";
    if !have(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch, "-t ext4 -b 4096");
    let bytes: Vec<u8> = (0..40_000_u32).map(|at| (at >> 8).to_le_bytes()[0]).collect();
    fs::write(scratch.join("f"), &bytes).unwrap();
    succeed(plat(&["put"]).arg(&image).arg(scratch.join("f")).arg("/f"));
    let mut model = bytes;
    let run = |arguments: &[&str]| {
        let mut command = plat(&["fallocate"]);
        command.args(arguments).arg(&image).arg("/f").output().unwrap().status.success()
    };
    assert!(run(&["-c", "-o", "8k", "-l", "4k"]));
    model.drain(8192..12_288);
    assert!(run(&["-i", "-o", "4k", "-l", "8k"]));
    model.splice(4096..4096, [0; 8192]);
    assert!(run(&["-p", "-o", "20000", "-l", "100"]));
    model[20_000..20_100].fill(0);
    assert!(run(&["-z", "-o", "43000", "-l", "3000"]));
    model[43_000..].fill(0);
    model.resize(46_000, 0);
    assert!(run(&["-n", "-l", "1M"]));
    assert!(!run(&["-c", "-o", "1", "-l", "4k"]) && !run(&["-c", "-l", "1M"]) && !run(&["-l", "0"]));
    assert_clean(&image);
    let kernel = mount::Mounted::kernel(&image, "loop").unwrap();
    let path = kernel.path().join("f");
    assert!(fs::read(&path).unwrap() == model);
    assert!(path.metadata().unwrap().blocks() >= 2048);
    // The kernel's ext4 does it itself.
    assert!(shift(&path, "-c", 4096, 8192));
    model.drain(4096..12_288);
    assert!(fs::read(&path).unwrap() == model);
}

/// A change whose stamp the kernel sends at once, and at once another in the same tick, whose stamp is the same: no stamp
/// of the server's comes over it, and none of a write that a sync sends meanwhile. Files beside the mount that are looked
/// at put the kernel's stamps ahead of its ticks.
#[test]
fn times_of_files_are_those_that_the_mount_showed() {
    let test = "times_of_files_are_those_that_the_mount_showed";
    if !have(test, &["mke2fs"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch, "-t ext4");
    let mounted = Mounted::new(&image, &["-o", "rw,allow_other"]).unwrap();
    let beside = scratch.join("beside");
    let made = |number: u32| {
        let path = mounted.path().join(number.to_string());
        let file = File::create(&path).unwrap();
        file.write_all_at(&[1; 8192], 0).unwrap();
        for bytes in [b"a", b"b"] {
            fs::write(&beside, bytes).unwrap();
            fs::metadata(&beside).unwrap();
        }
        file.set_len(4096).unwrap();
        rustix::fs::fallocate(&file, Flags::KEEP_SIZE | Flags::PUNCH_HOLE, 0, 4096).unwrap();
        drop(file);
        fs::metadata(&path).unwrap()
    };
    let root = File::open(mounted.path()).unwrap();
    let shown: Vec<_> = thread::scope(|scope| {
        let making = scope.spawn(|| (0..200).map(made).collect());
        while !making.is_finished() {
            rustix::fs::syncfs(&root).unwrap();
        }
        making.join().unwrap()
    });
    drop(root);
    mounted.unmount();
    let kernel = mount::Mounted::read_only(&image).unwrap();
    for (number, shown) in shown.iter().enumerate() {
        let found = fs::metadata(kernel.path().join(number.to_string())).unwrap();
        assert_eq!((found.mtime(), found.mtime_nsec()), (shown.mtime(), shown.mtime_nsec()), "{number}");
    }
}
