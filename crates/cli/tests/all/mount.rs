//! `plat mount`: what is seen through it is what the kernel shows; how it begins and ends; which users may look.

mod cage;
mod dead_place;
mod holders;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{io, thread};

use crate::support::mounted::{Mounted, have_fuse, unmount_with};
use crate::support::{build, modest_tree, plat};
use rustix::process::Signal;
use testkit::images::{self, Premise};
use testkit::scratch::Scratch;
use testkit::snapshot::{Rules, Snapshot, assert_same, differences};
use testkit::view::seen;
use testkit::{mount, odd, sparse, tool};

fn is_unclean(recipe: &images::Recipe) -> bool {
    recipe.premises.iter().any(|premise| matches!(premise, Premise::Unclean))
}

/// Text of what a tool says of a tree, without the name of the place.
fn said(tool: &str, arguments: &[&str], root: &Path) -> String {
    // Links and devices have no flags, which makes for a complaint about each.
    let output = tool::command(tool).args(arguments).arg(root).output().unwrap();
    String::from_utf8_lossy(&output.stdout).replace(&*root.to_string_lossy(), "")
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.contains("lost+found")).collect();
    lines.sort_unstable();
    lines
}

/// Blocks, free and available blocks, inodes and free inodes.
fn room(root: &Path) -> [u64; 6] {
    let room = rustix::fs::statvfs(root).unwrap();
    [room.f_frsize, room.f_blocks, room.f_bfree, room.f_bavail, room.f_files, room.f_ffree]
}

/// All that a golden image shows in another way than the kernel, or that was complained of.
fn differing(test: &str, recipe: &images::Recipe) -> Vec<String> {
    let Some(image) = images::golden(test, recipe.name) else { return Vec::new() };
    let Some(seen) = seen(test, &image) else { return Vec::new() };
    let ours = Mounted::new(&image, &["-o", "ro"]).unwrap();
    let rules = seen.rules(Rules { hole_granularity: 4096, ..Rules::default() });
    let found = Snapshot::of(ours.path()).unwrap();
    let mut differ = differences(&seen.tree, &found, &rules);
    if seen.by_kernel {
        let theirs = seen.mounted.path();
        if room(ours.path()) != room(theirs) {
            differ.push(format!("room: expected {:?}, found {:?}", room(theirs), room(ours.path())));
        }
        let [flags, other] = [ours.path(), theirs].map(|root| said("lsattr", &["-Rvp"], root));
        let (flags, other) = (sorted(&flags), sorted(&other));
        assert_eq!(flags.len(), other.len(), "{}", recipe.name);
        let wrong = flags.iter().zip(&other).find(|(left, right)| left != right);
        differ.extend(wrong.map(|(found, expected)| format!("lsattr: expected {expected}, found {found}")));
    }
    differ.truncate(10);
    let log = ours.unmount();
    differ.extend(log[1..].iter().filter(|line| !line.contains("unmounted;")).cloned());
    differ.iter().map(|line| format!("{}: {line}", recipe.name)).collect()
}

#[test]
fn golden_images_look_as_in_the_kernel() {
    let test = "golden_images_look_as_in_the_kernel";
    if !have_fuse(test) || !tool::have_root(test) || !mount::have_loop_mount(test) {
        return;
    }
    let left = Mutex::new(images::all().iter().filter(|recipe| !is_unclean(recipe)));
    let next = || left.lock().unwrap().next();
    let look = || std::iter::from_fn(next).flat_map(|recipe| differing(test, recipe)).collect::<Vec<_>>();
    let differences = thread::scope(|scope| {
        let lookers = [scope.spawn(look), scope.spawn(look), scope.spawn(look)];
        lookers.map(|looker| looker.join().unwrap()).concat()
    });
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}

#[test]
fn the_odd_tree_is_what_was_built() {
    let test = "the_odd_tree_is_what_was_built";
    if !have_fuse(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = scratch.join("image");
    let tree = modest_tree(&scratch, &odd::Options { many: 5000, ..odd::Options::modest() });
    build(&tree, &image, &[]);
    let mounted = Mounted::new(&image, &["-o", "ro"]).unwrap();
    assert_same(&Snapshot::of(&tree).unwrap(), &Snapshot::of(mounted.path()).unwrap(), &Rules::default());
    assert_eq!(fs::metadata(mounted.path()).unwrap().ino(), 2);
    mounted.unmount();
}

#[test]
fn an_unclean_journal_is_replayed_in_memory_unless_noload() {
    let test = "an_unclean_journal_is_replayed_in_memory_unless_noload";
    if !have_fuse(test) || !tool::have_root(test) || !mount::have_loop_mount(test) {
        return;
    }
    for recipe in images::all().iter().filter(|recipe| is_unclean(recipe)) {
        let Some(image) = images::golden(test, recipe.name) else { continue };
        if !tool::dumpe2fs_field(&image, "Filesystem features").unwrap().contains("needs_recovery") {
            continue;
        }
        let before = fs::read(&image).unwrap();
        let scratch = Scratch::new("replayed");
        let copy = scratch.join("copy");
        sparse::copy(&image, &copy).unwrap();
        for (ours, theirs, said) in [
            ("ro", mount::Mounted::read_write(&copy), "replayed in memory"),
            ("ro,noload", mount::Mounted::kernel(&image, "loop,ro,noload"), "without what its journal holds"),
        ] {
            let (ours, theirs) = (Mounted::new(&image, &["-o", ours]).unwrap(), theirs.unwrap());
            let [found, expected] = [ours.path(), theirs.path()].map(Snapshot::of);
            assert_same(&expected.unwrap(), &found.unwrap(), &Rules::default());
            let log = ours.unmount();
            assert!(log.iter().any(|line| line.contains(said)), "{log:?}");
        }
        assert!(fs::read(&image).unwrap() == before, "the image was changed");
    }
}

/// An image with files of known contents: `/f/N` is made of the byte N.
fn numbered(scratch: &Scratch, files: u8, size: usize) -> PathBuf {
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    fs::create_dir_all(tree.join("f")).unwrap();
    for number in 0..files {
        fs::write(tree.join("f").join(number.to_string()), vec![number; size]).unwrap();
    }
    build(&tree, &image, &[]);
    image
}

#[test]
fn sixteen_readers_side_by_side() {
    let test = "sixteen_readers_side_by_side";
    if !have_fuse(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = numbered(&scratch, 64, 300_000);
    let mounted = Mounted::new(&image, &["-o", "ro"]).unwrap();
    let begun = Instant::now();
    thread::scope(|scope| {
        for reader in 0..16_usize {
            let root = mounted.path();
            scope.spawn(move || {
                for round in 0..4 {
                    let names = fs::read_dir(root.join("f")).unwrap().count();
                    assert_eq!(names, 64);
                    for step in 0..64_usize {
                        let number = (step * 7 + reader * 3 + round) % 64;
                        let path = root.join("f").join(number.to_string());
                        let bytes = fs::read(path).unwrap();
                        assert_eq!(bytes.len(), 300_000);
                        assert!(bytes.iter().all(|byte| usize::from(*byte) == number));
                    }
                }
            });
        }
    });
    assert!(begun.elapsed() < Duration::from_secs(60), "took {:?}", begun.elapsed());
    mounted.unmount();
}

#[test]
fn any_place_of_a_file_can_be_read() {
    let test = "any_place_of_a_file_can_be_read";
    if !have_fuse(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    fs::create_dir(&tree).unwrap();
    let mut file = File::create(tree.join("sparse")).unwrap();
    for piece in 0..20_u64 {
        file.seek(SeekFrom::Start(piece * 5_000_011)).unwrap();
        file.write_all(&piece.to_le_bytes().repeat(100_000)).unwrap();
    }
    drop(file);
    build(&tree, &image, &[]);
    let mounted = Mounted::new(&image, &["-o", "ro"]).unwrap();
    let [ours, theirs] = [mounted.path(), &tree].map(|root| File::open(root.join("sparse")).unwrap());
    let size = theirs.metadata().unwrap().len();
    let mut seed = 1_u64;
    for _ in 0..300 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (at, len) = ((seed >> 16) % (size + 1000), usize::try_from((seed >> 40) % 2_000_000).unwrap());
        let [mut left, mut right] = [vec![1; len], vec![2; len]];
        let counts = [ours.read_at(&mut left, at).unwrap(), theirs.read_at(&mut right, at).unwrap()];
        assert_eq!(counts[0], counts[1], "at {at}");
        assert!(left[..counts[0]] == right[..counts[1]], "{len} bytes at {at} differ");
    }
    drop(ours);
    mounted.unmount();
}

#[test]
fn a_signal_unmounts_even_what_is_in_use() {
    let test = "a_signal_unmounts_even_what_is_in_use";
    if !have_fuse(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = numbered(&scratch, 3, 10_000);
    let mut mounted = Mounted::new(&image, &["-o", "ro"]).unwrap();
    mounted.signal(Signal::TERM);
    let (status, log) = mounted.wait();
    assert!(status.success(), "{log:?}");
    assert!(log.iter().any(|line| line.contains("SIGTERM")), "{log:?}");
    assert_eq!(fs::read_dir(mounted.path()).unwrap().count(), 0);

    let mut mounted = Mounted::new(&image, &["-o", "ro"]).unwrap();
    let mut open = File::open(mounted.path().join("f/2")).unwrap();
    mounted.signal(Signal::INT);
    let begun = Instant::now();
    while fs::read_dir(mounted.path()).unwrap().count() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(30), "still in sight");
        thread::sleep(Duration::from_millis(2));
    }
    let mut bytes = Vec::new();
    open.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, vec![2; 10_000]);
    drop(open);
    assert!(mounted.wait().0.success());
}

#[test]
fn in_the_background_and_back() {
    let test = "in_the_background_and_back";
    if !have_fuse(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = numbered(&scratch, 3, 10_000);
    let (directory, log) = (scratch.join("m"), scratch.join("log"));
    fs::create_dir(&directory).unwrap();
    let command = || {
        let mut command = plat(&["mount", "-v", "-o", "ro", "--log"]);
        command.arg(&log).arg(&image).arg(&directory);
        command
    };
    crate::support::succeed(&mut command());
    assert_eq!(fs::read(directory.join("f/1")).unwrap(), vec![1; 10_000]);
    let kind = tool::text("findmnt", &[OsStr::new("-no"), OsStr::new("FSTYPE"), directory.as_os_str()]);
    assert_eq!(kind.trim(), "fuse.plat");
    // A second one, that shares nothing, and one over the first.
    let other = scratch.join("other");
    fs::create_dir(&other).unwrap();
    let refused = crate::support::fail(plat(&["mount"]).arg(&image).arg(&other));
    assert!(refused.contains("plat has it mounted read-only on"), "{refused}");
    let refused = crate::support::fail(plat(&["rm"]).arg(&image).arg("/f/1"));
    assert!(refused.contains("plat has it mounted") && refused.contains("`plat umount "), "{refused}");
    let busy = File::open(directory.join("f/1")).unwrap();
    let refused = crate::support::fail(plat(&["umount"]).arg(&directory));
    assert!(refused.contains("busy") || refused.contains("Busy"), "{refused}");
    assert!(refused.contains("`plat umount -l "), "{refused}");
    drop(busy);
    unmount_with(plat(&["umount"]).arg(&directory));
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    let refused = crate::support::fail(plat(&["umount"]).arg(&directory));
    assert!(refused.contains("nothing is mounted"), "{refused}");
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.contains("mounted on") && text.contains("unmounted;"), "{text}");
}

#[test]
fn a_server_in_the_background_takes_nothing_along() {
    let test = "a_server_in_the_background_takes_nothing_along";
    if !have_fuse(test) || !tool::have_tools(test, &["bash", "flock"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = numbered(&scratch, 3, 10_000);
    fs::create_dir(scratch.join("m")).unwrap();
    // The shell holds a lock, and gives the image by a descriptor.
    let script = r#"exec 9<>"$1/lock" 8<"$2"; flock 9; umask 0; export TOKEN=secret PLAT_NOTE=kept
        "$3" mount -o ro --log "$1/log" -v /dev/fd/8 "$1/m""#;
    let mut shell = Command::new("bash");
    shell.args(["-ec", script, "bash"]).arg(scratch.path()).arg(&image).arg(env!("CARGO_BIN_EXE_plat"));
    crate::support::succeed(&mut shell);
    let contents = fs::read(scratch.join("m/f/1")).unwrap();
    let lock = Command::new("flock").arg("-n").arg(scratch.join("lock")).arg("true").status().unwrap();
    let log = fs::read_to_string(scratch.join("log")).unwrap();
    let server = server_of(&scratch.join("m"));
    let of_process = |name: &str| fs::read(format!("/proc/{server}/{name}")).unwrap();
    let environment = String::from_utf8(of_process("environ")).unwrap();
    let (limits, status) = (of_process("limits"), of_process("status"));
    unmount_with(plat(&["umount"]).arg(scratch.join("m")));
    assert_eq!(contents, vec![1; 10_000], "{log}");
    assert!(lock.success(), "the lock of the shell is held");
    assert!(environment.contains("PLAT_NOTE=kept") && !environment.contains("TOKEN"), "{environment}");
    let has = |text: &[u8], name: &str, value: &str| {
        let text = String::from_utf8_lossy(text);
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
        assert!(line.split_whitespace().any(|word| word == value), "{line}");
    };
    has(&limits, "Max core file size", "0");
    has(&status, "Umask:", "0077");
}

/// The process that serves a mount: the one in the background that was told its directory.
fn server_of(directory: &Path) -> u32 {
    let is_it = |entry: &fs::DirEntry| {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
        words.contains(&b"--background".as_slice()) && words.contains(&directory.as_os_str().as_bytes())
    };
    let found = fs::read_dir("/proc").unwrap().flatten().find(is_it).expect("a server");
    found.file_name().to_str().unwrap().parse().unwrap()
}

#[test]
fn what_can_not_be_mounted_is_refused() {
    let test = "what_can_not_be_mounted_is_refused";
    if !have_fuse(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = numbered(&scratch, 1, 10);
    let directory = scratch.join("m");
    fs::create_dir(&directory).unwrap();
    let refused = |options: &[&str], image: &Path, directory: &Path| {
        let output = plat(&["mount"]).args(options).arg(image).arg(directory).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = refused(&["-o", "ro,frobnicate"], &image, &directory);
    assert!(code == 2 && said.contains("unknown mount option `frobnicate`"), "{code} {said}");
    let (code, said) = refused(&["-o", "ro"], &image, &scratch.join("nowhere"));
    assert!(code == 1 && said.contains("nowhere"), "{code} {said}");
    let (code, said) = refused(&["-o", "ro"], &image, &image);
    assert!(code == 1 && said.to_lowercase().contains("not a directory"), "{code} {said}");
    let garbage = scratch.join("garbage");
    fs::write(&garbage, vec![7; 1 << 20]).unwrap();
    let (code, said) = refused(&["-o", "ro"], &garbage, &directory);
    assert!(code == 1 && said.contains("superblock"), "{code} {said}");
    if tool::administers() && mount::have_loop_mount(test) {
        let _theirs = mount::Mounted::read_write(&image).unwrap();
        let (code, said) = refused(&["-o", "ro"], &image, &directory);
        assert!(code == 1 && said.contains("kernel has it mounted"), "{code} {said}");
    }
}

#[test]
fn a_killed_server_leaves_a_dead_mount() {
    let test = "a_killed_server_leaves_a_dead_mount";
    if !have_fuse(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = numbered(&scratch, 1, 10);
    let mut mounted = Mounted::new(&image, &["-o", "ro"]).unwrap();
    mounted.signal(Signal::KILL);
    mounted.wait();
    mounted.wait_until_dead();
    let refused = crate::support::fail(plat(&["mount"]).arg(&image).arg(mounted.path()));
    assert!(refused.contains("gone; `plat umount ") && !refused.contains("os error"), "{refused}");
    // No process holds the image any more.
    crate::support::succeed(plat(&["mkdir"]).arg(&image).arg("/made"));
    crate::support::succeed(plat(&["umount"]).arg(mounted.path()));
    assert_eq!(fs::read_dir(mounted.path()).unwrap().count(), 0);
}

#[test]
fn damage_fails_what_meets_it_and_nothing_else() {
    let test = "damage_fails_what_meets_it_and_nothing_else";
    if !have_fuse(test) || !tool::have_tools(test, &["debugfs"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = numbered(&scratch, 4, 10_000);
    let at = tool::debugfs(&image, "imap /f/2");
    let number = |after: &str| -> u64 {
        let rest = &at[at.find(after).unwrap() + after.len()..];
        let digits: String =
            rest.trim_start_matches(" 0x").chars().take_while(char::is_ascii_hexdigit).collect();
        u64::from_str_radix(&digits, if rest.starts_with(" 0x") { 16 } else { 10 }).unwrap()
    };
    let block_size: u64 = tool::dumpe2fs_field(&image, "Block size").unwrap().parse().unwrap();
    let place = number("located at block ") * block_size + number(", offset");
    let file = File::options().write(true).open(&image).unwrap();
    // A byte of the owner: the checksum of the record is wrong from now on.
    file.write_all_at(&[0x5a], place + 2).unwrap();
    drop(file);
    let mounted = Mounted::new(&image, &["-o", "ro"]).unwrap();
    let error = fs::read(mounted.path().join("f/2")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::UCLEAN.raw_os_error()), "{error}");
    assert_eq!(fs::read(mounted.path().join("f/3")).unwrap(), vec![3; 10_000]);
    let again: io::Error = fs::metadata(mounted.path().join("f/2")).unwrap_err();
    assert_eq!(again.raw_os_error(), Some(rustix::io::Errno::UCLEAN.raw_os_error()));
    let log = mounted.unmount();
    let reports: Vec<&String> = log.iter().filter(|line| line.contains("checksum is wrong")).collect();
    assert_eq!(reports.len(), 1, "{log:?}");
    assert!(reports[0].contains("inode") && reports[0].contains("`2`"), "{reports:?}");
}

/// Runs a shell command as the user `nobody`.
fn as_nobody(script: &str, arguments: &[&OsStr]) -> std::process::Output {
    let mut command = Command::new(tool::find("setpriv").unwrap());
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script, "sh"]);
    command.args(arguments).output().unwrap()
}

#[test]
fn permissions_hold_for_other_users() {
    let test = "permissions_hold_for_other_users";
    if !have_fuse(test) || !tool::have_root(test) || !tool::have_tools(test, &["setpriv", "setfacl"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    fs::create_dir(&tree).unwrap();
    for (name, mode) in [("open", 0o644), ("closed", 0o600), ("listed", 0o600)] {
        fs::write(tree.join(name), name).unwrap();
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    tool::run(tool::command("setfacl").args(["-m", "u:65534:r"]).arg(tree.join("listed")));
    build(&tree, &image, &[]);
    // The path there is open to all users; the scratch directories of a user need not be.
    let place = Path::new("/tmp").join(format!("plat-mount-{}", std::process::id()));
    fs::create_dir(&place).unwrap();
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    let read = |options: &str| {
        crate::support::succeed(plat(&["mount", "-o", options]).arg(&image).arg(&place));
        let output = as_nobody(
            "for f in open closed listed; do cat \"$1/$f\" 2>/dev/null || echo -; done",
            &[place.as_os_str()],
        );
        unmount_with(plat(&["umount"]).arg(&place));
        String::from_utf8(output.stdout).unwrap()
    };
    let seen = [read("ro,allow_other"), read("ro,allow_other,noacl"), read("ro")];
    fs::remove_dir(&place).unwrap();
    assert_eq!(seen, ["open-\nlisted", "open-\n-\n", "-\n-\n-\n"]);
}

#[test]
fn an_unprivileged_user_mounts_by_fusermount() {
    let test = "an_unprivileged_user_mounts_by_fusermount";
    if !have_fuse(test) || !tool::have_root(test) || !tool::have_tools(test, &["setpriv", "unshare"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = numbered(&scratch, 3, 1000);
    let place = Path::new("/tmp").join(format!("plat-user-{}", std::process::id()));
    fs::create_dir(&place).unwrap();
    let binary = place.join("plat");
    fs::copy(env!("CARGO_BIN_EXE_plat"), &binary).unwrap();
    fs::copy(&image, place.join("image")).unwrap();
    fs::create_dir(place.join("m")).unwrap();
    for path in [&place, &binary, &place.join("image"), &place.join("m")] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
    }
    // Where /dev/fuse is for root only, a node for all users stands in for it, in a namespace of its own.
    let script = "cd \"$1\" && mknod -m 600 closed c 10 229 && mount --bind closed /dev/fuse && \
                  setpriv --reuid=65534 --regid=65534 --clear-groups sh -c \
                  '! ./plat mount -o ro image m 2>why && grep -q \"chmod 666 /dev/fuse\" why' && umount /dev/fuse && \
                  mknod -m 666 fuse c 10 229 && mount --bind fuse /dev/fuse && \
                  exec setpriv --reuid=65534 --regid=65534 --clear-groups sh -c \
                  './plat mount -o ro image m && cat m/f/2 && ./plat umount m && ls -A m'";
    let mut unshare = tool::command("unshare");
    unshare.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    let output = unshare.args(["-m", "sh", "-c", script, "sh"]).arg(&place).output().unwrap();
    fs::remove_dir_all(&place).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, vec![2; 1000]);
}

/// Where descriptors end at any step of a mount, it stands or it is not there: nothing stays without a server.
#[test]
fn a_mount_with_few_descriptors_works_or_leaves_nothing() {
    let test = "a_mount_with_few_descriptors_works_or_leaves_nothing";
    if !have_fuse(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let (image, directory) = (numbered(&scratch, 2, 10_000), scratch.join("m"));
    fs::create_dir(&directory).unwrap();
    let mut works = Vec::new();
    for most in (6..64).step_by(3) {
        let script = format!("ulimit -n {most}; exec \"$@\"");
        let plat = env!("CARGO_BIN_EXE_plat");
        let mut mount = tool::command("sh");
        mount.args(["-c", &script, "sh", plat, "mount"]).arg(&image).arg(&directory);
        let done = mount.output().unwrap();
        if done.status.success() {
            assert_eq!(fs::read(directory.join("f/1")).unwrap(), vec![1; 10_000]);
            unmount_with(crate::support::plat(&["umount"]).arg(&directory));
            works.push(most);
        } else if most > 20 {
            // With fewer nothing of the kind can be read.
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(said.contains("ulimit -n"), "with {most}: {said}");
        }
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!table.contains(directory.to_str().unwrap()), "with {most} descriptors a mount stays");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    }
    assert!(works.contains(&63) && !works.contains(&6), "{works:?}");
}

/// An image is mounted once. Where it is wanted at a second place, that is a bind mount, which ends by itself.
#[test]
fn a_second_place_of_a_mount_is_a_bind() {
    let test = "a_second_place_of_a_mount_is_a_bind";
    if !have_fuse(test) || !testkit::mount::have_loop_mount(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let (image, place) = (numbered(&scratch, 2, 100), scratch.join("place"));
    fs::create_dir(&place).unwrap();
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    let why = crate::support::fail(crate::support::plat(&["mount"]).arg(&image).arg(&place));
    assert!(why.contains("is in use") && why.contains(mounted.path().to_str().unwrap()), "{why}");
    tool::run(tool::command("mount").arg("--bind").arg(mounted.path()).arg(&place));
    fs::write(place.join("new"), "new").unwrap();
    assert_eq!(fs::read(mounted.path().join("new")).unwrap(), b"new");
    unmount_with(crate::support::plat(&["umount"]).arg(&place));
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
    assert_eq!(fs::read(mounted.path().join("new")).unwrap(), b"new");
    mounted.unmount();
}

/// A narrow address space is named before anything is mounted; a server that runs out of it while it begins leaves no mount.
#[test]
fn a_mount_in_a_narrow_address_space_works_or_says_what_it_lacks() {
    let test = "a_mount_in_a_narrow_address_space_works_or_says_what_it_lacks";
    if !have_fuse(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let (image, directory) = (numbered(&scratch, 2, 10_000), scratch.join("m"));
    fs::create_dir(&directory).unwrap();
    let mount = |kilobytes: u32, options: &[&str]| {
        let script = format!("ulimit -v {kilobytes}; exec \"$@\"");
        let mut mount = tool::command("sh");
        mount.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_plat"), "mount"]).args(options);
        mount.arg(&image).arg(&directory).env("RUST_BACKTRACE", "1").output().unwrap()
    };
    let is_mounted = || {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        table.contains(directory.to_str().unwrap())
    };
    for (megabytes, works) in [(60, false), (90, false), (180, false), (255, false), (600, true)] {
        let done = mount(megabytes << 10, &[]);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.success(), works, "{megabytes} MiB: {said}");
        if works {
            assert_eq!(fs::read(directory.join("f/1")).unwrap(), vec![1; 10_000]);
            unmount_with(crate::support::plat(&["umount"]).arg(&directory));
        } else {
            assert!(said.contains("ulimit -v") && said.lines().count() == 1, "{megabytes} MiB: {said}");
        }
        assert!(!is_mounted(), "with {megabytes} MiB a mount stays");
    }
    // More threads than there is room for: one can't be made, or has no memory for what it needs, which ends the server.
    for kilobytes in (0..24).map(|step| 270_000 + 4_004 * step) {
        let done = mount(kilobytes, &["--threads", "256"]);
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(
            !done.status.success() && said.contains(directory.to_str().unwrap()),
            "{kilobytes} KiB: {said}"
        );
        assert!(!is_mounted(), "with {kilobytes} KiB a mount stays: {said}");
    }
}

/// The first control group of the memory controller below which groups can be made, and the file of the limit.
fn memory_group(name: &str) -> Option<(std::path::PathBuf, &'static str)> {
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
        .into_iter()
        .find_map(|(root, file)| {
            let group = Path::new(root).join(format!("{name}-{}", std::process::id()));
            fs::create_dir(&group).ok()?;
            if fs::write(group.join(file), "64M").is_ok() {
                return Some((group, file));
            }
            let _ = fs::remove_dir(&group);
            None
        })
}

#[test]
fn a_server_in_a_small_control_group_survives_ordinary_writes() {
    let test = "a_server_in_a_small_control_group_survives_ordinary_writes";
    if !have_fuse(test) {
        return;
    }
    let Some((group, _)) = memory_group("plat-test") else {
        return tool::skip(test, "no control group can be made that limits memory");
    };
    let scratch = Scratch::new(test);
    let (image, directory) = (scratch.join("disk.img"), scratch.join("m"));
    fs::create_dir(&directory).unwrap();
    crate::support::succeed(plat(&["mkfs"]).arg(&image).arg("512M"));
    let script = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", group.display());
    let mut mount = tool::command("sh");
    mount.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_plat"), "mount"]).arg(&image).arg(&directory);
    let mounted = mount.output().unwrap();
    let write = |name: u8| fs::write(directory.join(name.to_string()), vec![name; 40 << 20]);
    let written: Vec<_> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..6).map(|name| scope.spawn(move || write(name))).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let ended = plat(&["umount"]).arg(&directory).output().unwrap();
    drop(tool::command("fusermount3").arg("-uqz").arg(&directory).output());
    let _ = fs::remove_dir(&group);
    assert!(mounted.status.success(), "{mounted:?}");
    assert!(written.iter().all(Result::is_ok) && ended.status.success(), "{written:?} {ended:?}");
}
