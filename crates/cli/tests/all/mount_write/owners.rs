//! Facts of inodes that Linux keeps by rules of its own: what fs-verity has sealed, flags that are refused, owners and
//! permissions as options show them, times.

use super::*;
use crate::support::plat;
use platfs::device::FileDevice;
use platfs::{Allocate, Error, Volume, WriteOptions};
use rustix::fs::IFlags;
use std::os::unix::fs::{chown, symlink};
use std::sync::Arc;

/// A user without rights.
const USER: u32 = 65534;

fn refused<T: std::fmt::Debug>(done: io::Result<T>, errno: Errno, what: &str) {
    assert_eq!(done.unwrap_err().raw_os_error(), Some(errno.raw_os_error()), "{what}");
}

/// A volume with a file `v` of 100,000 bytes that is sealed, with a tree of hashes behind its end.
fn sealed(scratch: &Scratch) -> PathBuf {
    let image = volume(scratch, "-t ext4 -b 4096 -O ^metadata_csum,^has_journal,verity", "16M");
    let source = scratch.join("source");
    fs::write(&source, vec![7; 200_000]).unwrap();
    for request in [
        &*format!("write {} v", source.display()),
        "set_inode_field v size 100000",
        "set_inode_field v flags 0x180000",
    ] {
        tool::run(tool::command("debugfs").args(["-w", "-R", request]).arg(&image));
    }
    image
}

#[test]
fn what_fs_verity_has_sealed_stays() {
    let test = "what_fs_verity_has_sealed_stays";
    if !have(test, &["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = sealed(&scratch);
    let blocks = tool::debugfs(&image, "blocks v");
    for cache in ["writeback_cache", "nowriteback_cache"] {
        let mounted = Mounted::new(&image, &["-o", &format!("rw,{cache}")]).unwrap();
        let file = mounted.path().join("v");
        refused(OpenOptions::new().write(true).open(&file), Errno::PERM, "open");
        refused(OpenOptions::new().append(true).open(&file), Errno::PERM, "append");
        refused(File::create(&file), Errno::PERM, "creat");
        for size in [5, 100_000, 200_000] {
            let output = tool::command("python3")
                .args(["-c", &format!("import os; os.truncate('{}', {size})", file.display())])
                .output()
                .unwrap();
            assert!(!output.status.success(), "truncate to {size}");
        }
        // All else is allowed.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        rustix::fs::setxattr(&file, "user.a", b"1", rustix::fs::XattrFlags::empty()).unwrap();
        fs::hard_link(&file, mounted.path().join("w")).unwrap();
        fs::remove_file(&file).unwrap();
        fs::rename(mounted.path().join("w"), &file).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().len(), 100_000);
        mounted.unmount();
        assert_clean(&image);
    }
    let device = FileDevice::new(File::options().read(true).write(true).open(&image).unwrap()).unwrap();
    let volume =
        Volume::open(Arc::new(device), &platfs::OpenOptions::new().write(true).delay(1 << 20)).unwrap();
    let v = volume.resolve(b"/v").unwrap();
    for done in [
        volume.write_at(v, 3, b"x", WriteOptions::default()),
        volume.write_at(v, 150_000, b"x", WriteOptions::default()),
        volume.truncate(v, 5),
        volume.truncate(v, 500_000),
        volume.allocate(v, Allocate::KeepSize, 0, 1 << 20),
        volume.allocate(v, Allocate::PunchHole, 0, 4096),
        volume.copy_at((v, 0), (v, 8192), 10, WriteOptions::default()).map(drop),
    ] {
        assert!(matches!(done, Err(Error::NotPermitted(_))), "{done:?}");
    }
    volume.close().unwrap();
    let name = image.to_str().unwrap();
    let output = plat(&["fallocate", "-l", "300000", name, "/v"]).output().unwrap();
    assert!(!output.status.success());
    assert_eq!(tool::debugfs(&image, "blocks v"), blocks);
    assert_clean(&image);
}

/// The map of a file was changed before a flag beside was refused.
#[test]
fn a_refused_chattr_changes_nothing() {
    let test = "a_refused_chattr_changes_nothing";
    if !have(test, &["mke2fs", "e2fsck", "python3"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch, "-t ext4 -b 4096 -I 256", "16M");
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    let path = mounted.path().join("f");
    fs::write(&path, vec![1; 10_000]).unwrap();
    let file = File::open(&path).unwrap();
    let before = rustix::fs::ioctl_getflags(&file).unwrap();
    assert!(before.bits() & 0x8_0000 != 0, "it has extents");
    // Journalled data; direct access; and flags of directories.
    for wanted in [0x4000, 0x200_0000, 0x1_0000, 0x2_0000] {
        let done = rustix::fs::ioctl_setflags(&file, IFlags::from_bits_retain(wanted));
        assert_eq!(done, Err(Errno::OPNOTSUPP), "{wanted:x}");
        assert_eq!(rustix::fs::ioctl_getflags(&file).unwrap(), before, "{wanted:x}");
    }
    // FS_IOC_FSSETXATTR with a flag and a project, which the volume does not have.
    let program = "import fcntl, struct, sys\n\
        f = open(sys.argv[1])\n\
        fcntl.ioctl(f, 0x401c5820, struct.pack('<5I8x', 0x80, 0, 0, 77, 0))\n";
    let output = tool::command("python3").args(["-c", program]).arg(&path).output().unwrap();
    assert!(!output.status.success());
    assert_eq!(rustix::fs::ioctl_getflags(&file).unwrap(), before, "a project that is refused");
    drop(file);
    mounted.unmount();
    assert_clean(&image);
}

#[test]
fn a_new_owner_who_is_nobody_takes_the_special_bits() {
    let test = "a_new_owner_who_is_nobody_takes_the_special_bits";
    if !have(test, &["mke2fs", "e2fsck", "python3"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let base = ["rw", "rw,nowriteback_cache", "rw,default_permissions"];
    let for_others = base.map(|words| format!("{words},allow_other"));
    for options in &[base.map(str::to_owned), for_others].concat() {
        let image = ext4(&scratch);
        let mounted = Mounted::new(&image, &["-o", options]).unwrap();
        fs::set_permissions(mounted.path().parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = mounted.path().join("f");
        fs::write(&path, "x").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).unwrap();
        chown(&path, None, None).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o755, "{options}");
        // It is the owner's to do.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).unwrap();
        let line = format!("import os, sys; os.setuid({USER}); os.chown(sys.argv[1], -1, -1)");
        let _ = tool::command("python3").args(["-c", &line]).arg(&path).output().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o6755, "{options}");
        // A file whose times are brought by the kernel after other changes keeps them.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).unwrap();
        fs::hard_link(&path, mounted.path().join("g")).unwrap();
        fs::rename(&path, mounted.path().join("h")).unwrap();
        rustix::fs::sync();
        let mode = fs::metadata(mounted.path().join("h")).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o6755, "{options}");
        mounted.unmount();
        assert_clean(&image);
    }
}

/// A user, or who acts for one, mounts an image whose files are root's, and nobody else may read.
#[test]
fn options_say_whose_the_files_are() {
    let test = "options_say_whose_the_files_are";
    if !have(test, &["mke2fs", "e2fsck", "setpriv"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = ext4(&scratch);
    {
        let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
        fs::write(mounted.path().join("secret"), "s").unwrap();
        fs::set_permissions(mounted.path().join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
        symlink("secret", mounted.path().join("link")).unwrap();
        mounted.unmount();
    }
    let facts = |path: &Path| {
        let facts = fs::symlink_metadata(path).unwrap();
        (facts.uid(), facts.gid(), facts.mode() & 0o7777)
    };
    let place = Path::new("/tmp").join(format!("plat-owners-{}", std::process::id()));
    fs::create_dir(&place).unwrap();
    let as_user = |line: &str| {
        let mut command = tool::command("setpriv");
        command.args([
            &*format!("--reuid={USER}"),
            &*format!("--regid={USER}"),
            "--clear-groups",
            "sh",
            "-c",
            line,
        ]);
        command.current_dir(&place).output().unwrap().status.success()
    };
    let mut seen = Vec::new();
    for options in ["rw", "uid=65534,gid=7,fmask=137,dmask=027", "uid=65534", "umask=0", "fakeroot"] {
        let mounted = Mounted::new(&image, &["-o", &format!("{options},allow_other")]).unwrap();
        tool::run(tool::command("mount").arg("--bind").arg(mounted.path()).arg(&place));
        let shown = ["secret", ".", "link"].map(|name| facts(&place.join(name)));
        let lines = ["cat secret && echo t >> secret", "touch new", "rm new", "chown 5:6 secret"];
        seen.push((options, shown, lines.map(as_user)));
        tool::run(tool::command("umount").arg(&place));
        mounted.unmount();
        assert_clean(&image);
    }
    fs::remove_dir(&place).unwrap();
    let of_root = |mode| (0, 0, mode);
    let expected = [
        ("rw", [of_root(0o600), of_root(0o755), of_root(0o777)], [false; 4]),
        (
            "uid=65534,gid=7,fmask=137,dmask=027",
            [(USER, 7, 0o640), (USER, 7, 0o750), (USER, 7, 0o777)],
            [true, true, true, false],
        ),
        ("uid=65534", [(USER, 0, 0o600), (USER, 0, 0o755), (USER, 0, 0o777)], [true, true, true, false]),
        ("umask=0", [of_root(0o777), of_root(0o777), of_root(0o777)], [true, true, true, false]),
        ("fakeroot", [of_root(0o600), of_root(0o755), of_root(0o777)], [true; 4]),
    ];
    assert_eq!(seen, expected);
    // What was said went to the image, and nothing else.
    assert!(tool::debugfs(&image, "stat secret").contains("User:     5"));
    assert!(tool::debugfs(&image, "stat secret").contains("Mode:  0600"));
}

#[test]
fn small_inodes_show_whole_seconds() {
    let test = "small_inodes_show_whole_seconds";
    if !have(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch, "-t ext2 -I 128", "16M");
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    let path = mounted.path().join("f");
    fs::write(&path, "x").unwrap();
    let exact = std::time::UNIX_EPOCH + Duration::new(1_600_000_000, 123_456_789);
    let times = fs::FileTimes::new().set_modified(exact).set_accessed(exact);
    File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
    let facts = fs::metadata(&path).unwrap();
    assert_eq!(
        (facts.mtime(), facts.mtime_nsec(), facts.atime_nsec(), facts.ctime_nsec()),
        (1_600_000_000, 0, 0, 0)
    );
    mounted.unmount();
    assert_clean(&image);
}

/// The kernel serves what it has in its pages: only the opening is seen.
#[test]
fn a_file_counts_as_read_when_it_is_opened() {
    let test = "a_file_counts_as_read_when_it_is_opened";
    if !have(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = ext4(&scratch);
    for (options, counts) in [("rw", true), ("rw,noatime", false)] {
        let mounted = Mounted::new(&image, &["-o", options]).unwrap();
        let path = mounted.path().join("f");
        fs::write(&path, "mail").unwrap();
        let old = std::time::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
        let times = fs::FileTimes::new().set_accessed(old);
        File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"mail");
        let begun = Instant::now();
        let is_new = || fs::metadata(&path).unwrap().atime() > 1_600_000_000;
        while counts && !is_new() {
            assert!(begun.elapsed() < Duration::from_secs(30), "{options}");
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(is_new(), counts, "{options}");
        mounted.unmount();
        assert_clean(&image);
    }
}

#[test]
fn a_mounted_volume_is_named_by_its_ioctl() {
    let test = "a_mounted_volume_is_named_by_its_ioctl";
    if !have(test, &["mke2fs", "e2fsck", "python3"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = ext4(&scratch);
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    let program = "import fcntl, os, sys\n\
        f = os.open(sys.argv[1], os.O_RDONLY)\n\
        fcntl.ioctl(f, 0x41009432, sys.argv[2].encode().ljust(256, b'\\0'))\n\
        print(fcntl.ioctl(f, 0x81009431, bytes(256)).rstrip(b'\\0').decode())\n";
    let label = |text: &str| {
        let output =
            tool::command("python3").args(["-c", program]).arg(mounted.path()).arg(text).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
    };
    assert_eq!(label("seventeen letters"), None);
    assert_eq!(label("sixteen  letters").as_deref(), Some("sixteen  letters"));
    assert_eq!(label("short").as_deref(), Some("short"));
    mounted.unmount();
    assert_clean(&image);
    assert_eq!(tool::dumpe2fs_field(&image, "Filesystem volume name").as_deref(), Some("short"));
}
