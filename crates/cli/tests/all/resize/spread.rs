//! A mounted volume becomes smaller although inodes lie all over it, and many programs use them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};

use testkit::random::Random;

use super::*;

const GIB: u64 = 1 << 30;

/// Paths, with the inodes that programs see, and what is in files.
type Seen = BTreeMap<PathBuf, (u64, Option<Vec<u8>>)>;

fn seen(root: &Path) -> Seen {
    let (mut all, mut left) = (Seen::new(), vec![root.to_owned()]);
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).unwrap().map(Result::unwrap) {
            let (path, facts) = (entry.path(), entry.path().symlink_metadata().unwrap());
            assert_eq!(listed_inode(&entry), facts.ino(), "{}", path.display());
            let contents = facts.is_file().then(|| fs::read(&path).unwrap());
            all.insert(path.strip_prefix(root).unwrap().to_owned(), (facts.ino(), contents));
            if facts.is_dir() {
                left.push(path);
            }
        }
    }
    all
}

fn listed_inode(entry: &fs::DirEntry) -> u64 {
    std::os::unix::fs::DirEntryExt::ino(entry)
}

/// Directories of the root, which are spread over the groups, with files, subdirectories and links.
fn fill(root: &Path) {
    let mut random = Random(19);
    for at in 0..64 {
        let dir = root.join(format!("dir {at}"));
        fs::create_dir_all(dir.join("sub/deep")).unwrap();
        for number in 0..12 {
            let len = random.below(60_000);
            fs::write(dir.join(format!("file {number}")), random.bytes(len)).unwrap();
        }
        fs::write(dir.join("sub/deep/leaf"), format!("{at}")).unwrap();
        fs::hard_link(dir.join("file 1"), root.join(format!("dir {}/link", at / 2))).unwrap_or_default();
        std::os::unix::fs::symlink("../dir 3/file 2", dir.join("symlink")).unwrap();
        if at % 16 == 3 {
            (0..400)
                .for_each(|n| drop(File::create(dir.join(format!("sub/a long name for an index {n:05}")))));
        }
    }
}

/// A shell whose directory is one of the volume, and that waits for a line.
fn shell_in(directory: &Path) -> Child {
    let script = "read line; pwd -P; cat 'file 2' > copied && cmp 'file 2' copied && ls sub/deep && rm copied; echo done";
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).current_dir(directory).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

/// Makes, links, renames, rewrites and removes until it is asked to stop.
fn write_on(root: &Path, seed: u64, stop: &AtomicBool) -> u32 {
    let (mut random, mut rounds) = (Random(seed), 0);
    while !stop.load(Ordering::Relaxed) {
        let place = |at: u64| root.join(format!("dir {}", at % 64));
        let (from, to) = (place(random.below(64)), place(random.below(64)));
        let (made, moved) = (from.join(format!("made by {seed}")), to.join(format!("moved by {seed}")));
        let len = random.below(100_000);
        let bytes = random.bytes(len);
        let mut file = File::create(&made).unwrap();
        file.write_all(&bytes).unwrap();
        if rounds % 4 == 0 {
            file.sync_all().unwrap();
        }
        fs::rename(&made, &moved).unwrap();
        fs::hard_link(from.join("file 2"), to.join(format!("linked by {seed}"))).unwrap();
        fs::create_dir(from.join(format!("dir by {seed}"))).unwrap();
        if from != to {
            fs::rename(from.join(format!("dir by {seed}")), to.join(format!("dir of {seed}"))).unwrap();
            fs::remove_dir(to.join(format!("dir of {seed}"))).unwrap();
        } else {
            fs::remove_dir(from.join(format!("dir by {seed}"))).unwrap();
        }
        fs::remove_file(to.join(format!("linked by {seed}"))).unwrap();
        assert!(fs::read(&moved).unwrap() == bytes);
        fs::remove_file(&moved).unwrap();
        rounds += 1;
    }
    rounds
}

fn spread_volume(scratch: &Scratch, bytes: u64) -> PathBuf {
    let image = scratch.join("spread.img");
    File::create(&image).unwrap().set_len(bytes).unwrap();
    tool::run(tool::command("mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(&image));
    image
}

#[test]
fn a_mounted_volume_shrinks_under_load_from_8_to_5_gib() {
    if !ready("resize") || !have_fuse("resize") {
        return;
    }
    let scratch = Scratch::new("resize-spread");
    let image = spread_volume(&scratch, 8 * GIB);
    let mounted = Mounted::new(&image, &[]).unwrap();
    let root = mounted.path().to_owned();
    fill(&root);
    let before = seen(&root);
    let highest = before.values().map(|(inode, _)| *inode).max().unwrap();
    let mut shells: Vec<_> = (0..64).step_by(7).map(|at| shell_in(&root.join(format!("dir {at}")))).collect();
    let mut listings: Vec<_> =
        (0..64).map(|at| fs::read_dir(root.join(format!("dir {at}/sub"))).unwrap()).collect();
    let mut listed: Vec<u32> =
        listings.iter_mut().map(|listing| u32::from(listing.next().is_some())).collect();
    let open = |at: u32| {
        let path = root.join(format!("dir {at}/file 3"));
        (File::options().read(true).write(true).open(path).unwrap(), format!("dir {at}/file 3"))
    };
    let mut opened: Vec<_> = (0..64).map(open).collect();
    let mut gone: Vec<_> = (0..64)
        .map(|at| root.join(format!("dir {at}/gone")))
        .map(|path| {
            fs::write(&path, "still here").unwrap();
            let file = File::open(&path).unwrap();
            fs::remove_file(path).unwrap();
            file
        })
        .collect();
    let stop = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        let writers: Vec<_> = (1..=3)
            .map(|seed| {
                let (root, stop) = (&root, &stop);
                scope.spawn(move || write_on(root, seed, stop))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(200));
        let done = plat(&["resize", "--json"]).arg(&root).arg("5G").output().unwrap();
        std::thread::sleep(Duration::from_millis(200));
        stop.store(true, Ordering::Relaxed);
        let rounds: Vec<u32> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        eprintln!("{rounds:?} rounds beside");
        done
    });
    let done = value(&succeed_of(done));
    assert_eq!((&done["written"], &done["bytes"]), (&true.into(), &(5 * GIB).into()));
    assert_eq!(len(&image), 5 * GIB);
    let inodes = rustix::fs::statvfs(&root).unwrap().f_files;
    assert!(highest > inodes, "{highest} {inodes}: nothing lay behind the end");
    // What programs hold goes on.
    for shell in &mut shells {
        shell.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let said: Vec<String> =
            BufReader::new(shell.stdout.take().unwrap()).lines().map(Result::unwrap).collect();
        assert!(said[0].contains("/dir ") && said[1..] == ["leaf", "done"], "{said:?}");
        assert!(shell.wait().unwrap().success());
    }
    for (count, listing) in listed.iter_mut().zip(&mut listings) {
        *count += u32::try_from(listing.map(Result::unwrap).count()).unwrap();
    }
    assert!((0..).zip(&listed).all(|(at, count)| *count == if at % 16 == 3 { 401 } else { 1 }), "{listed:?}");
    for (file, path) in &mut opened {
        let (inode, contents) = &before[Path::new(path)];
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        assert!(file.metadata().unwrap().ino() == *inode && Some(&bytes) == contents.as_ref(), "{path}");
        file.rewind().unwrap();
        file.write_all(&bytes).unwrap();
        file.sync_all().unwrap();
    }
    for file in &mut gone {
        assert_eq!(std::io::read_to_string(file).unwrap(), "still here");
    }
    assert!(seen(&root) == before, "numbers and contents are those that they were");
    // Also what the kernel has forgotten is found under the numbers that it had.
    if fs::write("/proc/sys/vm/drop_caches", "2").is_ok() {
        drop((listings, opened));
        assert!(seen(&root) == before, "as before");
    }
    drop(gone);
    mounted.unmount();
    fsck::assert_clean(&image);
    let mounted = Mounted::new(&image, &[]).unwrap();
    let after = seen(mounted.path());
    assert!(after.values().all(|(inode, _)| *inode <= inodes));
    assert_same_contents(&before, &after);
    mounted.unmount();
    fsck::assert_clean(&image);
}

fn succeed_of(done: std::process::Output) -> Vec<u8> {
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    done.stdout
}

fn assert_same_contents(before: &Seen, after: &Seen) {
    assert!(before.keys().eq(after.keys()));
    for ((path, (_, was)), (_, is)) in before.iter().zip(after.values()) {
        assert!(was == is, "{}", path.display());
    }
}

/// The smallest size in use is printed, and taken; there is room for those who write.
#[test]
fn a_mounted_volume_becomes_as_small_as_it_can_in_use() {
    if !ready("resize") || !have_fuse("resize") {
        return;
    }
    let scratch = Scratch::new("resize-spread-least");
    let image = spread_volume(&scratch, 8 * GIB);
    let mounted = Mounted::new(&image, &[]).unwrap();
    let root = mounted.path();
    fill(root);
    let before = seen(root);
    let least = value(&succeed(plat(&["resize", "-P", "--json"]).arg(root)).stdout);
    assert_eq!(len(&image), 8 * GIB);
    let done = value(&succeed(plat(&["resize", "--min", "--json"]).arg(root)).stdout);
    assert_eq!((&done["written"], &done["bytes"]), (&true.into(), &least["bytes"]));
    assert!(done["inodes_moved"].as_u64().unwrap() > 0, "{done}");
    assert_eq!(Some(len(&image)), least["bytes"].as_u64());
    assert!(seen(root) == before);
    fs::write(root.join("more"), vec![1; 100_000]).unwrap();
    assert_eq!(value(&succeed(plat(&["resize", "-n", "--json"]).arg(root)).stdout)["written"], false);
    mounted.unmount();
    fsck::assert_clean(&image);
}

/// The server is killed at any moment: what was synced is there, and the same command makes the volume smaller.
#[test]
fn a_mounted_volume_whose_server_is_killed_while_inodes_move_shrinks_the_next_time() {
    if !ready("resize") || !have_fuse("resize") {
        return;
    }
    let scratch = Scratch::new("resize-spread-killed");
    let image = spread_volume(&scratch, 8 * GIB);
    let mut mounted = Mounted::new(&image, &[]).unwrap();
    fill(mounted.path());
    let before = seen(mounted.path());
    succeed(plat(&["sync"]).arg(mounted.path()));
    for round in 0..5_u64 {
        let root = mounted.path().to_owned();
        let mut command = plat(&["resize"]);
        let mut child =
            command.arg(&root).arg("5G").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(4 + round * 6));
        mounted.signal(rustix::process::Signal::KILL);
        mounted.wait();
        let _ = child.wait();
        drop(mounted);
        mounted = Mounted::new(&image, &[]).unwrap();
        assert_same_contents(&before, &seen(mounted.path()));
    }
    succeed(plat(&["resize"]).arg(mounted.path()).arg("5G"));
    assert_eq!(len(&image), 5 * GIB);
    assert_same_contents(&before, &seen(mounted.path()));
    mounted.unmount();
    fsck::assert_clean(&image);
}
