//! Writing through `plat mount`: what is there then is what the kernel shows, and `e2fsck -fn` has nothing to say.

mod hosts;
mod owners;
mod rules;
mod trim;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::mounted::{Mounted, have_fuse, unmount_with};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::process::Signal;
use testkit::fsck::{assert_clean, complaints};
use testkit::mount::have_loop_mount;
use testkit::scratch::Scratch;
use testkit::snapshot::{Rules, Snapshot, assert_same};
use testkit::{mount, odd, tool};

const WRITE: &[&str] = &["-o", "rw,async"];

fn have(test: &str, tools: &[&str]) -> bool {
    have_fuse(test) && tool::have_root(test) && have_loop_mount(test) && tool::have_tools(test, tools)
}

/// An empty volume by mke2fs.
fn volume(scratch: &Scratch, options: &str, size: &str) -> PathBuf {
    let image = scratch.join("disk.img");
    let _ = fs::remove_file(&image);
    let mut command = tool::command("mke2fs");
    tool::run(command.args(["-q", "-F"]).args(options.split_whitespace()).arg(&image).arg(size));
    image
}

fn ext4(scratch: &Scratch) -> PathBuf {
    volume(scratch, "-t ext4 -b 4096", "64M")
}

/// Unmounts; then the volume is in order, and the kernel sees the same tree as was seen before, and as a
/// mount for reading shows.
fn judge(mounted: Mounted, image: &Path, rules: &Rules) {
    let live = Snapshot::of(mounted.path()).unwrap();
    let log = mounted.unmount();
    assert!(log.len() <= 2 + usize::from(log[0].contains("warning")), "{log:?}");
    assert_clean(image);
    let theirs = {
        let kernel = mount::Mounted::kernel(image, "loop,ro").unwrap();
        Snapshot::of(kernel.path()).unwrap()
    };
    assert_same(&live, &theirs, rules);
    let again = Mounted::new(image, &["-o", "ro"]).unwrap();
    assert_same(&Snapshot::of(again.path()).unwrap(), &theirs, &Rules::default());
    again.unmount();
}

/// The names in a directory, sorted.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn blocks_kept_for_root_are_left_by_others() {
    let test = "blocks_kept_for_root_are_left_by_others";
    if !have(test, &["mke2fs", "e2fsck", "setpriv", "dd"]) || !tool::have_root(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch, "-t ext4 -b 4096 -m 20", "64M");
    let place = Path::new("/tmp").join(format!("plat-reserve-{}", std::process::id()));
    fs::create_dir(&place).unwrap();
    crate::support::succeed(
        crate::support::plat(&["mount", "-o", "async,allow_other,nowriteback_cache"]).arg(&image).arg(&place),
    );
    fs::set_permissions(&place, fs::Permissions::from_mode(0o777)).unwrap();
    let fill = |name: &str, user: &str| {
        let mut command = tool::command("setpriv");
        command.args([&format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups", "dd"]);
        command
            .args(["if=/dev/zero", "bs=64k", "conv=fsync"])
            .arg(format!("of={}", place.join(name).display()));
        String::from_utf8_lossy(&command.output().unwrap().stderr).into_owned()
    };
    let theirs = fill("theirs", "65534");
    let left = rustix::fs::statvfs(&place).unwrap();
    let roots = fill("roots", "0");
    let full = rustix::fs::statvfs(&place).unwrap();
    unmount_with(crate::support::plat(&["umount"]).arg(&place));
    fs::remove_dir(&place).unwrap();
    assert!(theirs.contains("No space") && roots.contains("No space"), "{theirs} {roots}");
    let kept = left.f_blocks / 5;
    assert!(left.f_bfree >= kept && left.f_bfree < kept + 1024, "{} of {kept} left", left.f_bfree);
    assert!(full.f_bfree < 512, "{} left", full.f_bfree);
    assert_clean(&image);
}

/// A service of root's that has given up all capabilities, and an ordinary user: what Linux asks a capability for is
/// asked for here too.
#[test]
fn root_without_capabilities_is_no_administrator() {
    let test = "root_without_capabilities_is_no_administrator";
    let tools = ["mke2fs", "e2fsck", "setpriv", "fstrim", "python3", "setfattr", "getfattr", "chown"];
    if !have(test, &tools) || !tool::have_root(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch, "-t ext4 -O quota", "32M");
    let place = Path::new("/tmp").join(format!("plat-bare-{}", std::process::id()));
    fs::create_dir(&place).unwrap();
    crate::support::succeed(
        crate::support::plat(&["mount", "-o", "async,allow_other"]).arg(&image).arg(&place),
    );
    let script = r#"cd "$1"; plat=$2; bare='setpriv --bounding-set=-all --inh-caps=-all'
        user='setpriv --reuid=65534 --regid=65534 --clear-groups'
        refused() { if "$@" >/dev/null 2>&1 </dev/null; then echo "done: $*"; fi; }
        mkdir -m 777 d; echo secret >d/f; chown 65534:65534 d/f; chmod 644 d/f
        setfattr -n trusted.note -v hidden d/f
        refused $bare "$plat" snapshot . /tmp/plat-bare-$$.img; rm -f /tmp/plat-bare-$$.img
        refused $bare "$plat" tune -L bare .
        refused $bare "$plat" resize . 48M
        refused $bare "$plat" quota . -u 65534 --block-hard 1M
        refused $bare fstrim .
        for who in "$bare" "$user"; do
            if $who getfattr -d -m - d/f 2>&1 | grep trusted; then echo "listed for: $who"; fi
            if $who "$plat" export d - </dev/null 2>/dev/null | grep -a hidden; then echo "exported for: $who"; fi
        done
        "$plat" export d - </dev/null | grep -aq hidden || echo "left out for root"
        for how in 'os.copy_file_range(f, f, 100, 0, 200)' 'os.posix_fallocate(f, 0, 9000)' "os.pwrite(f, b'x', 0)"; do
            head -c 4096 /dev/zero >d/s; chown 65534:65534 d/s; chmod 6777 d/s
            $bare python3 -c "import os; f = os.open('d/s', os.O_RDWR); $how"
            test "$(stat -c %a d/s)" = 777 || echo "$how left $(stat -c %a d/s)"
            chmod 6777 d/s; python3 -c "import os; f = os.open('d/s', os.O_RDWR); $how"
            test "$(stat -c %a d/s)" = 6777 || echo "$how of root left $(stat -c %a d/s)"
        done
        fstrim .; "$plat" tune -L kept . </dev/null"#;
    let mut shell = tool::command("sh");
    shell.args(["-c", script, "sh"]).arg(&place).arg(env!("CARGO_BIN_EXE_plat"));
    let said = shell.output().unwrap();
    unmount_with(crate::support::plat(&["umount"]).arg(&place));
    fs::remove_dir(&place).unwrap();
    let wrong = String::from_utf8_lossy(&said.stdout);
    let wrong: Vec<&str> = wrong.lines().filter(|line| !line.contains("kept") && !line.is_empty()).collect();
    assert!(
        wrong.is_empty() && said.status.success(),
        "{wrong:#?} {}",
        String::from_utf8_lossy(&said.stderr)
    );
    assert_eq!(tool::dumpe2fs_field(&image, "Filesystem volume name").unwrap(), "kept");
    assert_clean(&image);
}

/// Bytes that are written and not yet handed over by the kernel are data for programs that look for holes, as `cp` does.
#[test]
fn bytes_in_the_pages_of_the_kernel_are_no_hole() {
    let test = "bytes_in_the_pages_of_the_kernel_are_no_hole";
    if !have(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = ext4(&scratch);
    let mounted = Mounted::new(&image, WRITE).unwrap();
    let mut file = File::create_new(mounted.path().join("f")).unwrap();
    file.write_all(&[7; 100_000]).unwrap();
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).unwrap(), 0);
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)).unwrap(), 100_000);
    drop(file);
    judge(mounted, &image, &Rules::default());
}

fn errno(error: &io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}

/// The odd tree, written through a mount by the code that makes it elsewhere.
fn odd_tree(test: &str, options: &str, size: &str, rules: &Rules) {
    if !have(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch, options, size);
    let mounted = Mounted::new(&image, WRITE).unwrap();
    odd::make(mounted.path(), &odd::Options::modest());
    judge(mounted, &image, rules);
}

/// Inodes of 128 bytes have whole seconds until 2038, and the kernel's pages any time while it is mounted.
fn without_times() -> Rules {
    Rules { times: false, ..Rules::default() }
}

#[test]
fn odd_tree_on_ext4_4k() {
    odd_tree("odd_tree_on_ext4_4k", "-t ext4 -b 4096", "64M", &Rules::default());
}

#[test]
fn odd_tree_on_ext4_1k() {
    odd_tree("odd_tree_on_ext4_1k", "-t ext4 -b 1024", "64M", &Rules::default());
}

#[test]
fn odd_tree_on_ext2() {
    odd_tree("odd_tree_on_ext2", "-t ext2 -b 1024 -I 128", "64M", &without_times());
}

#[test]
fn odd_tree_on_ext3() {
    odd_tree("odd_tree_on_ext3", "-t ext3 -b 4096 -I 256", "64M", &Rules::default());
}

#[test]
fn odd_tree_on_clusters() {
    odd_tree("odd_tree_on_clusters", "-t ext4 -b 4096 -O bigalloc -C 16384", "128M", &Rules::default());
}

#[test]
fn odd_tree_on_inline_data() {
    odd_tree("odd_tree_on_inline_data", "-t ext4 -b 4096 -O inline_data", "64M", &Rules::default());
}

/// Works as version control and package managers do: new files beside old ones, renamed over them; links;
/// whole trees moved and removed.
fn churn(root: &Path, seed: u64) {
    let mut state = seed;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for directory in 0..12 {
        fs::create_dir_all(root.join(format!("d{directory}/sub"))).unwrap();
    }
    for step in 0..1500_u64 {
        let (directory, name) = (next(12), next(40));
        let place = root.join(format!("d{directory}"));
        let path = place.join(format!("file {name}"));
        let bytes: Vec<u8> = (0..next(30_000)).map(|n| (n ^ step).to_le_bytes()[0]).collect();
        match next(10) {
            0..5 => {
                let fresh = place.join(".fresh");
                fs::write(&fresh, &bytes).unwrap();
                fs::rename(&fresh, &path).unwrap();
            }
            5 => drop(fs::remove_file(&path)),
            6 => drop(fs::hard_link(&path, place.join(format!("sub/link {}", next(40))))),
            7 => {
                if let Ok(mut file) = OpenOptions::new().append(true).open(&path) {
                    file.write_all(&bytes).unwrap();
                }
            }
            8 => {
                if let Ok(file) = OpenOptions::new().write(true).open(&path) {
                    file.set_len(next(50_000)).unwrap();
                }
            }
            _ => {
                let (sub, other) = (place.join("sub"), root.join(format!("d{}/sub", next(12))));
                let _ = rustix::fs::renameat_with(CWD, &sub, CWD, &other, RenameFlags::EXCHANGE);
            }
        }
    }
    fs::remove_dir_all(root.join("d3")).unwrap();
    fs::rename(root.join("d4"), root.join("d3")).unwrap();
}

#[test]
fn churn_comes_out_as_elsewhere() {
    let test = "churn_comes_out_as_elsewhere";
    if !have(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let (image, elsewhere) = (ext4(&scratch), scratch.join("elsewhere"));
    fs::create_dir(&elsewhere).unwrap();
    let mounted = Mounted::new(&image, WRITE).unwrap();
    let root = mounted.path().join("root");
    fs::create_dir(&root).unwrap();
    churn(&root, 7);
    churn(&elsewhere, 7);
    let rules = Rules { times: false, hole_granularity: 0, ..Rules::default() };
    assert_same(&Snapshot::of(&elsewhere).unwrap(), &Snapshot::of(&root).unwrap(), &rules);
    judge(mounted, &image, &Rules::default());
}

#[test]
fn a_file_without_a_name_lives_while_it_is_open() {
    let test = "a_file_without_a_name_lives_while_it_is_open";
    if !have(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = ext4(&scratch);
    let mounted = Mounted::new(&image, WRITE).unwrap();
    let path = mounted.path().join("gone");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all(&[1; 100_000]).unwrap();
    fs::remove_file(&path).unwrap();
    file.sync_all().unwrap();
    // Others come and go meanwhile, and would take its number and its blocks.
    for number in 0..200 {
        fs::write(mounted.path().join(number.to_string()), vec![2; 50_000]).unwrap();
    }
    file.write_all(&[3; 100_000]).unwrap();
    file.sync_all().unwrap();
    tool::run(tool::command("sh").args(["-c", "echo 2 > /proc/sys/vm/drop_caches"]));
    let mut found = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut found).unwrap();
    assert!(found[..100_000] == [1; 100_000] && found[100_000..] == [3; 100_000]);
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    drop(file);
    judge(mounted, &image, &Rules::default());
}

#[test]
fn a_file_that_never_had_a_name_gets_one() {
    let test = "a_file_that_never_had_a_name_gets_one";
    if !have(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = ext4(&scratch);
    let mounted = Mounted::new(&image, WRITE).unwrap();
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let open = || rustix::fs::open(mounted.path(), flags, Mode::from_raw_mode(0o600));
    let file = match open() {
        Err(Errno::OPNOTSUPP) => return tool::skip(test, "this transport has no O_TMPFILE"),
        file => File::from(file.unwrap()),
    };
    file.write_all_at(b"hello", 0).unwrap();
    let by_descriptor = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let to = mounted.path().join("named");
    rustix::fs::linkat(CWD, by_descriptor, CWD, &to, AtFlags::SYMLINK_FOLLOW).unwrap();
    drop((file, open().unwrap()));
    assert_eq!(fs::read(&to).unwrap(), b"hello");
    judge(mounted, &image, &Rules::default());
}

#[test]
fn names_are_exchanged_and_not_replaced() {
    let test = "names_are_exchanged_and_not_replaced";
    if !have(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = ext4(&scratch);
    let mounted = Mounted::new(&image, WRITE).unwrap();
    let [file, directory, other] = ["file", "dir", "other"].map(|name| mounted.path().join(name));
    fs::write(&file, "file").unwrap();
    fs::create_dir_all(directory.join("below")).unwrap();
    fs::create_dir(&other).unwrap();
    let rename = |from: &Path, to: &Path, flags| rustix::fs::renameat_with(CWD, from, CWD, to, flags);
    assert_eq!(rename(&file, &directory, RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename(&file, &directory, RenameFlags::EXCHANGE).unwrap();
    assert!(file.join("below").is_dir());
    assert_eq!(fs::read(&directory).unwrap(), b"file");
    rename(&file.join("below"), &directory, RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(file.join("below")).unwrap(), b"file");
    rename(&directory, &other.join("moved"), RenameFlags::NOREPLACE).unwrap();
    assert_eq!(rename(&other, &other.join("moved/in"), RenameFlags::empty()), Err(Errno::INVAL));
    assert_eq!(rename(&other.join("moved"), &other.join("new"), RenameFlags::EXCHANGE), Err(Errno::NOENT));
    let error = fs::remove_dir(&other).unwrap_err();
    assert_eq!(errno(&error), Some(Errno::NOTEMPTY));
    assert_eq!(fs::metadata(&other).unwrap().nlink(), 3);
    judge(mounted, &image, &Rules::default());
}

#[test]
fn bytes_arrive_by_every_way() {
    let test = "bytes_arrive_by_every_way";
    if !have(test, &["mke2fs", "e2fsck", "python3"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = ext4(&scratch);
    let mounted = Mounted::new(&image, WRITE).unwrap();
    let path = |name: &str| mounted.path().join(name);
    // Shared memory.
    let script = "import mmap, sys\nf = open(sys.argv[1], 'w+b')\nf.truncate(300000)\n\
                  m = mmap.mmap(f.fileno(), 300000)\nm[5000:5005] = b'hello'\nm[299999] = 7\nm.close()\nf.close()";
    tool::run(tool::command("python3").arg("-c").arg(script).arg(path("mapped")));
    let found = fs::read(path("mapped")).unwrap();
    assert!(found.len() == 300_000 && &found[5000..5005] == b"hello" && found[299_999] == 7);
    // Four that append to one file.
    thread::scope(|scope| {
        for writer in 0..4_u8 {
            let path = path("appended");
            scope.spawn(move || {
                let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
                for _ in 0..500 {
                    file.write_all(&[b'a' + writer; 64]).unwrap();
                }
            });
        }
    });
    let found = fs::read(path("appended")).unwrap();
    assert_eq!(found.len(), 4 * 500 * 64);
    assert!(found.chunks(64).all(|chunk| chunk.iter().all(|byte| *byte == chunk[0])));
    // Past the kernel's pages.
    let direct = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .custom_flags(OFlags::DIRECT.bits().cast_signed())
        .open(path("direct"))
        .unwrap();
    direct.write_all_at(&vec![5; 3 << 20], 4096).unwrap();
    assert_eq!(direct.metadata().unwrap().len(), (3 << 20) + 4096);
    let mut found = vec![0; 8192];
    direct.read_exact_at(&mut found, 0).unwrap();
    assert!(found[..4096].iter().all(|byte| *byte == 0) && found[4096..].iter().all(|byte| *byte == 5));
    // Copied inside.
    let to = File::create(path("copied")).unwrap();
    let (mut from_at, mut to_at) = (4096, 100);
    let copied = rustix::fs::copy_file_range(&direct, Some(&mut from_at), &to, Some(&mut to_at), 1 << 20);
    let copied = copied.unwrap();
    assert!(copied > 0);
    assert_eq!(to.metadata().unwrap().len(), copied as u64 + 100);
    // Cut and lengthened: what was behind the end is zero.
    fs::write(path("cut"), vec![9; 10_000]).unwrap();
    let cut = OpenOptions::new().write(true).open(path("cut")).unwrap();
    cut.set_len(3000).unwrap();
    cut.set_len(9000).unwrap();
    let found = fs::read(path("cut")).unwrap();
    assert!(found[..3000].iter().all(|byte| *byte == 9) && found[3000..].iter().all(|byte| *byte == 0));
    // The kernel does not keep the time of such a write itself, and shows the one it knows.
    direct.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000)).unwrap();
    drop((direct, to, cut));
    judge(mounted, &image, &Rules::default());
}

#[test]
fn flags_lists_and_attributes_hold() {
    let test = "flags_lists_and_attributes_hold";
    if !have(test, &["mke2fs", "e2fsck", "chattr", "lsattr", "setfacl", "getfacl", "setpriv"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = ext4(&scratch);
    let mounted = Mounted::new(&image, &["-o", "rw,async,allow_other"]).unwrap();
    let path = |name: &str| mounted.path().join(name);
    fs::write(path("log"), "one\n").unwrap();
    tool::run(tool::command("chattr").args(["+a"]).arg(path("log")));
    assert_eq!(errno(&fs::remove_file(path("log")).unwrap_err()), Some(Errno::PERM));
    assert_eq!(errno(&File::create(path("log")).unwrap_err()), Some(Errno::PERM));
    OpenOptions::new().append(true).open(path("log")).unwrap().write_all(b"two\n").unwrap();
    assert_eq!(fs::read(path("log")).unwrap(), b"one\ntwo\n");
    fs::write(path("fixed"), "fixed").unwrap();
    tool::run(tool::command("chattr").args(["+i"]).arg(path("fixed")));
    assert_eq!(errno(&fs::rename(path("fixed"), path("other")).unwrap_err()), Some(Errno::PERM));
    let said = tool::text("lsattr", &[path("fixed")]);
    assert!(said.starts_with("----i"), "{said}");
    tool::run(tool::command("chattr").args(["-i"]).arg(path("fixed")));
    fs::remove_file(path("fixed")).unwrap();
    // A default list takes the place of the umask, and comes down the tree.
    fs::create_dir(path("shared")).unwrap();
    tool::run(tool::command("setfacl").args(["-d", "-m", "u:1234:rwx,g::rx,o::-"]).arg(path("shared")));
    fs::create_dir(path("shared/below")).unwrap();
    fs::write(path("shared/below/file"), "x").unwrap();
    let said = tool::text("getfacl", &["-cn".into(), path("shared/below/file")]);
    assert!(said.contains("user:1234:rwx") && said.contains("other::---"), "{said}");
    // The group of a marked directory, and its mark.
    fs::create_dir(path("group")).unwrap();
    std::os::unix::fs::chown(path("group"), None, Some(77)).unwrap();
    fs::set_permissions(path("group"), fs::Permissions::from_mode(0o2777)).unwrap();
    fs::create_dir(path("group/sub")).unwrap();
    let facts = fs::metadata(path("group/sub")).unwrap();
    assert_eq!((facts.gid(), facts.mode() & 0o7000), (77, 0o2000));
    // Others can't take what is not theirs out of a sticky directory, and lose special bits by writing.
    fs::create_dir(path("sticky")).unwrap();
    fs::set_permissions(path("sticky"), fs::Permissions::from_mode(0o1777)).unwrap();
    fs::write(path("sticky/mine"), "x").unwrap();
    fs::set_permissions(path("sticky/mine"), fs::Permissions::from_mode(0o6777)).unwrap();
    let mut other = tool::command("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c"]);
    let script = "echo y >> sticky/mine; rm -f sticky/mine 2>/dev/null; mkdir sticky/theirs";
    let _ = other.arg(script).current_dir(mounted.path()).output().unwrap();
    assert_eq!(fs::read(path("sticky/mine")).unwrap(), b"xy\n");
    assert_eq!(fs::metadata(path("sticky/mine")).unwrap().mode() & 0o7777, 0o777);
    assert_eq!(fs::metadata(path("sticky/theirs")).unwrap().uid(), 65534);
    // Attributes.
    let set = |value: &[u8], flags| rustix::fs::setxattr(path("log"), "trusted.x", value, flags);
    tool::run(tool::command("chattr").args(["-a"]).arg(path("log")));
    assert_eq!(set(b"1", rustix::fs::XattrFlags::REPLACE), Err(Errno::NODATA));
    set(b"1", rustix::fs::XattrFlags::CREATE).unwrap();
    assert_eq!(set(b"1", rustix::fs::XattrFlags::CREATE), Err(Errno::EXIST));
    rustix::fs::removexattr(path("log"), "trusted.x").unwrap();
    assert_eq!(rustix::fs::removexattr(path("log"), "trusted.x"), Err(Errno::NODATA));
    judge(mounted, &image, &Rules::default());
}

#[test]
fn space_is_taken_and_given_back() {
    let test = "space_is_taken_and_given_back";
    if !have(test, &["mke2fs", "e2fsck", "fallocate"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = ext4(&scratch);
    let mounted = Mounted::new(&image, WRITE).unwrap();
    let path = mounted.path().join("file");
    fs::write(&path, vec![1; 1 << 20]).unwrap();
    let run = |arguments: &[&str]| tool::run(tool::command("fallocate").args(arguments).arg(&path));
    let facts = || fs::metadata(&path).unwrap();
    run(&["-n", "-l", "4M"]);
    assert_eq!((facts().len(), facts().blocks()), (1 << 20, 8192));
    run(&["-l", "2M"]);
    assert_eq!(facts().len(), 2 << 20);
    run(&["-p", "-o", "4000", "-l", "100000"]);
    let found = fs::read(&path).unwrap();
    assert!(found[4000..104_000].iter().all(|byte| *byte == 0) && found[3999] == 1 && found[104_000] == 1);
    assert!(facts().blocks() < 8192);
    run(&["-z", "-o", "500000", "-l", "2000000"]);
    let found = fs::read(&path).unwrap();
    assert!(found.len() == 2_500_000 && found[500_000..].iter().all(|byte| *byte == 0));
    let before = rustix::fs::statvfs(mounted.path()).unwrap().f_bfree;
    fs::remove_file(&path).unwrap();
    // The kernel reports a moment later that it has forgotten the file.
    let begun = Instant::now();
    while rustix::fs::statvfs(mounted.path()).unwrap().f_bfree <= before {
        assert!(begun.elapsed() < Duration::from_secs(30), "{before} blocks are free still");
        thread::sleep(Duration::from_millis(2));
    }
    judge(mounted, &image, &Rules::default());
}

#[test]
fn a_full_volume_says_so_and_goes_on() {
    let test = "a_full_volume_says_so_and_goes_on";
    if !have(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch, "-t ext4 -b 1024 -m 0", "16M");
    let mounted = Mounted::new(&image, WRITE).unwrap();
    let write = |name: String| -> io::Result<()> {
        let mut file = File::create(mounted.path().join(name))?;
        file.write_all(&vec![7; 1 << 20])?;
        file.sync_all()
    };
    for round in 0..3 {
        let mut kept = 0;
        let error = loop {
            match write(format!("{kept}")) {
                Ok(()) => kept += 1,
                Err(error) => break error,
            }
            assert!(kept < 20, "more than there is room for");
        };
        assert_eq!(errno(&error), Some(Errno::NOSPC), "{error}");
        assert!(kept >= 10, "full after {kept} MiB in round {round}");
        for number in 0..kept {
            let bytes = fs::read(mounted.path().join(number.to_string())).unwrap();
            assert!(bytes == vec![7; 1 << 20], "{number} lost bytes");
        }
        (0..=kept).for_each(|number| drop(fs::remove_file(mounted.path().join(number.to_string()))));
    }
    judge(mounted, &image, &Rules::default());
}

/// Writes files until that fails.
fn writer(root: &Path) -> std::process::Child {
    let script = "n=0; while head -c 100000 /dev/zero > \"$1/$n\"; do n=$((n+1)); done";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(root).stderr(Stdio::null()).spawn().unwrap()
}

/// Waits until there are some files.
fn wait_for(root: &Path, names: usize) {
    let begun = Instant::now();
    while fs::read_dir(root).map_or(0, Iterator::count) < names {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing is written");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_signal_closes_what_is_being_written() {
    let test = "a_signal_closes_what_is_being_written";
    if !have(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = ext4(&scratch);
    let mut mounted = Mounted::new(&image, WRITE).unwrap();
    let inside = mounted.path().join("in");
    fs::create_dir(&inside).unwrap();
    let mut child = writer(&inside);
    wait_for(&inside, 10);
    mounted.signal(Signal::TERM);
    child.wait().unwrap();
    let (status, log) = mounted.wait();
    assert!(status.success(), "{log:?}");
    assert_clean(&image);
    let theirs = mount::Mounted::kernel(&image, "loop,ro").unwrap();
    let size = |number: u32| fs::metadata(theirs.path().join("in").join(number.to_string())).unwrap().len();
    assert_eq!((0..8).map(size).collect::<Vec<_>>(), [100_000; 8]);
}

#[test]
fn a_killed_server_leaves_what_can_be_repaired() {
    let test = "a_killed_server_leaves_what_can_be_repaired";
    if !have(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = ext4(&scratch);
    let mut mounted = Mounted::new(&image, WRITE).unwrap();
    let synced = mounted.path().join("synced");
    let mut file = File::create(&synced).unwrap();
    file.write_all(&[5; 300_000]).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let mut child = writer(mounted.path());
    wait_for(mounted.path(), 10);
    mounted.signal(Signal::KILL);
    mounted.wait();
    child.wait().unwrap();
    mounted.take_away();
    // It is not taken for whole, neither by us nor by a check.
    let refused = Mounted::new(&image, WRITE).err().expect("mounted although it was not closed");
    assert!(refused.contains("not closed cleanly") && refused.contains("plat check -p"), "{refused}");
    let repaired = tool::command("e2fsck").arg("-fy").arg(&image).output().unwrap();
    assert!(repaired.status.code().is_some_and(|code| code <= 1), "{repaired:?}");
    assert_eq!(complaints(&image), "");
    let mounted = Mounted::new(&image, WRITE).unwrap();
    assert_eq!(fs::read(mounted.path().join("synced")).unwrap(), vec![5; 300_000]);
    judge(mounted, &image, &Rules::default());
}

#[test]
fn every_order_leaves_a_sound_volume() {
    let test = "every_order_leaves_a_sound_volume";
    if !have(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = ext4(&scratch);
    for options in
        ["unordered", "data=ordered", "data=writeback", "data=journal", "softdep", "normal", "sync"]
    {
        let mounted = Mounted::new(&image, &["-o", options]).unwrap();
        let directory = mounted.path().join(options);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("gone"), options).unwrap();
        fs::write(directory.join("moved"), options).unwrap();
        fs::rename(directory.join("moved"), mounted.path().join(format!("{options} here"))).unwrap();
        fs::remove_file(directory.join("gone")).unwrap();
        mounted.unmount();
        assert_clean(&image);
        let mounted = Mounted::new(&image, &["-o", "ro"]).unwrap();
        assert_eq!(fs::read(mounted.path().join(format!("{options} here"))).unwrap(), options.as_bytes());
        assert_eq!(fs::read_dir(mounted.path().join(options)).unwrap().count(), 0);
        mounted.unmount();
    }
    let image = volume(&scratch, "-t ext2 -b 1024", "16M");
    let mounted = Mounted::new(&image, &["-o", "nobarrier"]).unwrap();
    fs::write(mounted.path().join("new"), "x").unwrap();
    let log = mounted.unmount();
    assert!(log.iter().any(|line| line.contains("`nobarrier` has no effect")), "{log:?}");
    assert_clean(&image);
}

#[test]
fn statistics_are_reported() {
    let test = "statistics_are_reported";
    if !have(test, &["mke2fs"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = ext4(&scratch);
    let mounted = Mounted::new(&image, WRITE).unwrap();
    fs::write(mounted.path().join("file"), vec![1; 100_000]).unwrap();
    let output = crate::support::succeed(crate::support::plat(&["stats", "--json"]).arg(mounted.path()));
    let stats: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(stats["requests"]["create"]["count"], 1);
    assert_eq!(stats["amounts"]["bytes_written"], 100_000);
    let scheduling = &stats["scheduling"];
    assert!(
        scheduling["requests"].as_u64() > Some(3) && scheduling["ran_ns"].as_u64() > Some(0),
        "{scheduling}"
    );
    assert!(scheduling["gives_way"].is_boolean() && scheduling["starved"].is_number(), "{scheduling}");
    let text = crate::support::succeed(crate::support::plat(&["stats"]).arg(mounted.path().join("file")));
    assert!(String::from_utf8(text.stdout).unwrap().contains("create"));
    let refused = crate::support::fail(crate::support::plat(&["stats"]).arg(scratch.path()));
    assert!(refused.contains("plat mount"), "{refused}");
    mounted.unmount();
}

#[test]
fn damage_met_while_writing_ends_the_writing() {
    let test = "damage_met_while_writing_ends_the_writing";
    if !have(test, &["mke2fs", "dumpe2fs"]) {
        return;
    }
    let scratch = Scratch::new(test);
    for (option, goes_on) in [("errors=remount-ro", false), ("errors=continue", true)] {
        let image = volume(&scratch, "-t ext4 -b 4096 -O ^has_journal", "8M");
        let groups = tool::text("dumpe2fs", &[image.as_os_str()]);
        let after = groups.split("Inode bitmap at ").nth(1).unwrap();
        let block: u64 = after.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap();
        OpenOptions::new()
            .write(true)
            .open(&image)
            .unwrap()
            .write_all_at(&[0x5a], block * 4096 + 64)
            .unwrap();
        let mounted = Mounted::new(&image, &["-o", "rw", "-o", option]).unwrap();
        let make = || errno(&File::create(mounted.path().join("new")).unwrap_err()).unwrap();
        assert_eq!(make(), Errno::UCLEAN);
        assert_eq!(make(), if goes_on { Errno::UCLEAN } else { Errno::ROFS });
        let mode = fs::Permissions::from_mode(0o700);
        assert_eq!(fs::set_permissions(mounted.path(), mode).is_ok(), goes_on);
        assert_eq!(fs::read_dir(mounted.path()).unwrap().count(), 1);
        let log = mounted.unmount();
        assert_eq!(log.iter().filter(|line| line.contains("bitmap")).count(), 1, "{log:?}");
        let state = tool::dumpe2fs_field(&image, "Filesystem state").unwrap();
        assert!(state.contains("with errors"), "{state}");
        let refused = Mounted::new(&image, &["-o", "rw"]).err().expect("written in spite of errors");
        assert!(refused.contains("errors"), "{refused}");
    }
}

#[test]
fn what_is_synced_outlives_the_server() {
    let test = "what_is_synced_outlives_the_server";
    if !have(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new(test);
    for option in ["sync", "dirsync"] {
        let image = volume(&scratch, "-t ext2 -b 4096", "16M");
        let mut mounted = Mounted::new(&image, &["-o", option]).unwrap();
        let root = mounted.path().to_owned();
        fs::create_dir(root.join("directory")).unwrap();
        let mut file = File::create(root.join("directory/file")).unwrap();
        file.write_all(b"hello").unwrap();
        drop(file);
        mounted.signal(Signal::KILL);
        mounted.wait();
        mounted.take_away();
        // Only the mark of a clean end is missing.
        let repaired = tool::command("e2fsck").arg("-fp").arg(&image).output().unwrap();
        assert!(repaired.status.code().is_some_and(|code| code <= 1), "{option}: {repaired:?}");
        let mounted = Mounted::new(&image, &["-o", "ro"]).unwrap();
        let found = fs::read(mounted.path().join("directory/file")).unwrap();
        assert_eq!(found, if option == "sync" { &b"hello"[..] } else { b"" }, "{option}");
        mounted.unmount();
    }
}

#[test]
fn times_of_access_follow_the_option() {
    let test = "times_of_access_follow_the_option";
    if !have(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch, "-t ext2 -b 4096 -I 256", "16M");
    let old = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let written = old + Duration::from_secs(1000);
    let read_with = |option: &str, access| {
        let mounted = Mounted::new(&image, &["-o", option]).unwrap();
        let path = mounted.path().join("file");
        if !path.exists() {
            fs::write(&path, "x").unwrap();
        }
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_times(fs::FileTimes::new().set_accessed(access).set_modified(written)).unwrap();
        drop(file);
        mounted.unmount();
        // With nothing in the kernel's pages.
        let mounted = Mounted::new(&image, &["-o", option]).unwrap();
        let path = mounted.path().join("file");
        assert_eq!(fs::read(&path).unwrap(), b"x");
        let noted = fs::metadata(&path).unwrap().accessed().unwrap() != access;
        mounted.unmount();
        noted
    };
    let now = std::time::SystemTime::now() + Duration::from_secs(3600);
    assert_eq!([read_with("relatime", old), read_with("relatime", now)], [true, false]);
    assert_eq!([read_with("strictatime", old), read_with("strictatime", now)], [true, true]);
    assert!(!read_with("noatime", old));
    assert_clean(&image);
}
