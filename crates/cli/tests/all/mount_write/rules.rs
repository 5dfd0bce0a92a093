//! Rules that hold for all users of a mount, whether the kernel checks them or not: nobody lends rights to what others wrote, or
//! changes what is immutable; what layers of file systems need of it; and what can be changed while it is mounted.

use super::*;
use rustix::fs::{FallocateFlags, IFlags};
use rustix::process::{Gid, Uid};

/// A user without rights.
const NOBODY: u32 = 65534;

/// Does something on a thread of its own as a user without rights: the kernel keeps credentials by thread.
fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    thread::scope(|scope| {
        let done = scope.spawn(move || {
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_gid(group, group, group).unwrap();
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            work()
        });
        done.join().unwrap()
    })
}

fn flag(path: &Path, set: IFlags, clear: IFlags) {
    let file = File::open(path).unwrap();
    let flags = rustix::fs::ioctl_getflags(&file).unwrap();
    rustix::fs::ioctl_setflags(&file, flags.difference(clear) | set).unwrap();
}

/// The user that a program runs as when a user without rights starts it.
fn runs_as(program: &Path) -> String {
    let mut command = tool::command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program).arg("-u");
    String::from_utf8(command.output().unwrap().stdout).unwrap().trim().to_owned()
}

type Way = (&'static str, fn(&File, &File) -> io::Result<()>);

/// How contents of a file change while it stays open: the file, and one to copy from.
const WAYS: &[Way] = &[
    ("write", |file, _| file.write_all_at(b"\x7f", 0)),
    ("copy", |file, from| {
        rustix::fs::copy_file_range(from, Some(&mut 0), file, Some(&mut 0), 8)?;
        Ok(())
    }),
    ("allocate", |file, _| Ok(rustix::fs::fallocate(file, FallocateFlags::empty(), 0, 1 << 20)?)),
    ("keep size", |file, _| Ok(rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, 1 << 21)?)),
    ("punch", |file, _| {
        let behind = 1 << 19;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(file, flags, behind, 4096)?)
    }),
    ("zero", |file, _| Ok(rustix::fs::fallocate(file, FallocateFlags::ZERO_RANGE, 1 << 19, 100)?)),
    ("truncate", |file, _| file.set_len(1 << 19)),
];

#[test]
fn programs_that_others_changed_lend_no_rights() {
    let test = "programs_that_others_changed_lend_no_rights";
    if !have(test, &["mke2fs", "e2fsck", "setpriv", "id"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let id = tool::find("id").unwrap();
    for cache in ["writeback_cache", "nowriteback_cache"] {
        let image = ext4(&scratch);
        let options = format!("rw,suid,allow_other,{cache}");
        let mounted = Mounted::new(&image, &["-o", &options]).unwrap();
        // A place that others reach.
        let place = Path::new("/tmp").join(format!("plat-suid-{}", std::process::id()));
        fs::create_dir(&place).unwrap();
        tool::run(tool::command("mount").arg("--bind").arg(mounted.path()).arg(&place));
        let [program, source] = ["program", "source"].map(|name| place.join(name));
        fs::copy(&id, &source).unwrap();
        let mut results = Vec::new();
        for (way, change) in WAYS {
            fs::copy(&id, &program).unwrap();
            // In front of what is changed, the program stays one that runs.
            fs::set_permissions(&program, fs::Permissions::from_mode(0o6777)).unwrap();
            let before = runs_as(&program);
            as_nobody(|| {
                let open =
                    |path: &Path, write| OpenOptions::new().read(true).write(write).open(path).unwrap();
                change(&open(&program, true), &open(&source, false)).unwrap();
            });
            let after = runs_as(&program);
            let mode = fs::metadata(&program).unwrap().mode() & 0o7777;
            results.push((*way, before, after, mode));
            fs::remove_file(&program).unwrap();
        }
        tool::run(tool::command("umount").arg(&place));
        fs::remove_dir(&place).unwrap();
        for (way, before, after, mode) in results {
            assert_eq!(before, "0", "{way}: the test says something");
            assert_eq!((&after[..], mode), ("65534", 0o777), "{way}, {cache}");
        }
        mounted.unmount();
        assert_clean(&image);
    }
}

#[test]
fn what_is_immutable_can_not_be_written_by_any_way() {
    let test = "what_is_immutable_can_not_be_written_by_any_way";
    if !have(test, &["mke2fs", "e2fsck", "sh", "touch"]) {
        return;
    }
    let scratch = Scratch::new(test);
    for cache in ["writeback_cache", "nowriteback_cache"] {
        let image = ext4(&scratch);
        let mounted = Mounted::new(&image, &["-o", &format!("rw,{cache}")]).unwrap();
        let path = |name: &str| mounted.path().join(name);
        fs::write(path("source"), [3; 100]).unwrap();
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path("file")).unwrap();
        file.write_all_at(b"before", 0).unwrap();
        // Not yet with the server, with a cache; and kept all the same.
        flag(&path("file"), IFlags::IMMUTABLE, IFlags::empty());
        let source = File::open(path("source")).unwrap();
        for (way, change) in WAYS {
            assert_eq!(errno(&change(&file, &source).unwrap_err()), Some(Errno::PERM), "{way}, {cache}");
        }
        let opened = [
            OpenOptions::new().write(true).open(path("file")),
            OpenOptions::new().append(true).open(path("file")),
        ];
        assert!(opened.iter().all(|opened| errno(opened.as_ref().unwrap_err()) == Some(Errno::PERM)));
        let mut shell = tool::command("sh");
        let output = shell.args(["-c", "echo hello >>file"]).current_dir(mounted.path()).output().unwrap();
        assert!(!output.status.success());
        assert_eq!(fs::read(path("file")).unwrap(), b"before");
        assert_eq!(
            rustix::fs::getxattr(path("file"), "security.capability", &mut [0_u8; 64][..]),
            Err(Errno::NODATA)
        );
        drop((file, source));

        fs::write(path("log"), "one\n").unwrap();
        flag(&path("log"), IFlags::APPEND, IFlags::empty());
        assert_eq!(errno(&OpenOptions::new().write(true).open(path("log")).unwrap_err()), Some(Errno::PERM));
        tool::run(tool::command("touch").arg(path("log")));
        fs::create_dir(path("dir")).unwrap();
        flag(&path("dir"), IFlags::IMMUTABLE, IFlags::empty());
        let unnamed = rustix::fs::open(path("dir"), OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR);
        assert_eq!(unnamed.unwrap_err(), Errno::PERM);
        judge(mounted, &image, &Rules::default());
        let again = Mounted::new(&image, &["-o", "ro"]).unwrap();
        assert_eq!(fs::read(again.path().join("file")).unwrap(), b"before");
        again.unmount();
    }
}

#[test]
fn a_mount_is_the_upper_layer_of_an_overlay() {
    let test = "a_mount_is_the_upper_layer_of_an_overlay";
    if !have(test, &["mke2fs", "e2fsck", "mount"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = ext4(&scratch);
    let mounted = Mounted::new(&image, WRITE).unwrap();
    let [lower, merged] = ["lower", "merged"].map(|name| scratch.join(name));
    for directory in ["", "kept", "gone", "emptied"] {
        fs::create_dir_all(lower.join(directory)).unwrap();
        fs::write(lower.join(directory).join("file"), directory).unwrap();
    }
    fs::create_dir(&merged).unwrap();
    let [upper, work] = ["upper", "work"].map(|name| mounted.path().join(name));
    fs::create_dir(&upper).unwrap();
    fs::create_dir(&work).unwrap();
    let show = |path: &Path| path.display().to_string();
    let layers = format!("lowerdir={},upperdir={},workdir={}", show(&lower), show(&upper), show(&work));
    let mut mount = tool::command("mount");
    mount.args(["-t", "overlay", "overlay", "-o", &layers]).arg(&merged);
    let output = mount.output().unwrap();
    if !output.status.success() && !fs::read_to_string("/proc/filesystems").unwrap().contains("overlay") {
        tool::skip(test, "this kernel has no overlayfs");
        return;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let path = |name: &str| merged.join(name);
    let work = || -> io::Result<()> {
        // Copied up, deleted, made again as something else, moved away; a directory that hides what is below.
        OpenOptions::new().append(true).open(path("kept/file"))?.write_all(b", and more")?;
        fs::remove_file(path("file"))?;
        fs::remove_dir_all(path("gone"))?;
        fs::remove_dir_all(path("emptied"))?;
        fs::create_dir(path("emptied"))?;
        fs::write(path("new"), "new")?;
        fs::rename(path("new"), path("renamed"))?;
        fs::rename(path("kept/file"), path("moved"))
    };
    let done = work();
    let seen = (
        fs::read(path("moved")),
        fs::read(path("renamed")),
        super::names(&merged),
        super::names(&path("emptied")),
    );
    unmount_with(tool::command("umount").arg(&merged));
    done.unwrap();
    assert_eq!(seen.0.unwrap(), b"kept, and more");
    assert_eq!(seen.1.unwrap(), b"new");
    assert_eq!(
        (seen.2, seen.3),
        (["emptied", "kept", "moved", "renamed"].map(String::from).to_vec(), vec![])
    );
    for whiteout in ["file", "gone", "kept/file"] {
        let found = fs::symlink_metadata(upper.join(whiteout)).unwrap();
        assert_eq!((found.mode() & 0o170_000, found.rdev()), (0o020_000, 0), "{whiteout}");
    }
    let opaque = rustix::fs::getxattr(upper.join("emptied"), "trusted.overlay.opaque", &mut [0_u8; 8][..]);
    assert_eq!(opaque, Ok(1));
    judge(mounted, &image, &Rules::default());
}

#[test]
fn a_mount_is_remounted_for_reading_and_back() {
    let test = "a_mount_is_remounted_for_reading_and_back";
    if !have(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = ext4(&scratch);
    let helper = scratch.join("mount.fuse.plat");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_plat"), &helper).unwrap();
    let remount = |place: &Path, words: &str| {
        let mut command = Command::new(&helper);
        command.arg(&image).arg(place).args(["-o", words]);
        command
    };
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    fs::write(mounted.path().join("file"), "before").unwrap();
    let open = File::create(mounted.path().join("open")).unwrap();
    let busy = crate::support::fail(&mut remount(mounted.path(), "ro,remount"));
    assert!(busy.contains("open for writing"), "{busy}");
    drop(open);
    crate::support::succeed(&mut remount(mounted.path(), "ro,remount,nosuid,user_id=0,default_permissions"));
    let refused = fs::write(mounted.path().join("file"), "after").unwrap_err();
    assert_eq!(errno(&refused), Some(Errno::ROFS));
    let said = crate::support::succeed(&mut remount(mounted.path(), "rw,remount,data=journal"));
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("`data=journal`"), "{said}");
    fs::write(mounted.path().join("file"), "after").unwrap();
    let elsewhere = crate::support::fail(&mut remount(scratch.path(), "ro,remount"));
    assert!(elsewhere.contains("nothing is mounted here"), "{elsewhere}");
    judge(mounted, &image, &Rules::default());
    let reading = Mounted::new(&image, &["-o", "ro"]).unwrap();
    assert_eq!(fs::read(reading.path().join("file")).unwrap(), b"after");
    let refused = crate::support::fail(&mut remount(reading.path(), "rw,remount"));
    assert!(refused.contains("mounted for reading only"), "{refused}");
    reading.unmount();
}

#[test]
fn the_transport_is_reported() {
    let test = "the_transport_is_reported";
    if !have(test, &["mke2fs"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = ext4(&scratch);
    let place = scratch.join("m");
    fs::create_dir(&place).unwrap();
    let mut mount = crate::support::plat(&["mount", "-v", "-o", "transport=device"]);
    let said = crate::support::succeed(mount.arg(&image).arg(&place));
    let stats = crate::support::plat(&["stats"]).arg(&place).output().unwrap();
    let json = crate::support::plat(&["stats", "--json"]).arg(&place).output().unwrap();
    crate::support::succeed(crate::support::plat(&["umount"]).arg(&place));
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("transport device"), "{said}");
    assert!(String::from_utf8(stats.stdout).unwrap().starts_with("transport device\n"));
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["transport"], "device");
}

#[test]
fn without_attributes_files_lose_their_capabilities_and_nothing_else() {
    let test = "without_attributes_files_lose_their_capabilities_and_nothing_else";
    if !have(test, &["mke2fs", "e2fsck"]) || !testkit::tool::administers() {
        return;
    }
    const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let scratch = Scratch::new(test);
    let image = ext4(&scratch);
    let mounted = Mounted::new(&image, WRITE).unwrap();
    let set = |path: &Path, name: &str, value: &[u8]| {
        rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty())
    };
    for name in ["written", "truncated", "left"] {
        let path = mounted.path().join(name);
        fs::write(&path, name).unwrap();
        set(&path, "security.capability", &CAPABILITY).unwrap();
        set(&path, "user.note", b"kept").unwrap();
    }
    mounted.unmount();

    let mounted = Mounted::new(&image, &["-o", "rw,noxattr"]).unwrap();
    let path = |name: &str| mounted.path().join(name);
    let room = &mut [0_u8; 64][..];
    for _ in 0..2 {
        assert_eq!(rustix::fs::getxattr(path("left"), "user.note", &mut *room), Err(Errno::OPNOTSUPP));
        assert_eq!(rustix::fs::listxattr(path("left"), &mut *room), Err(Errno::OPNOTSUPP));
        assert_eq!(set(&path("left"), "user.note", b"new"), Err(Errno::OPNOTSUPP));
        assert_eq!(rustix::fs::removexattr(path("left"), "user.note"), Err(Errno::OPNOTSUPP));
    }
    OpenOptions::new().append(true).open(path("written")).unwrap().write_all(b", more").unwrap();
    OpenOptions::new().write(true).open(path("truncated")).unwrap().set_len(3).unwrap();
    crate::support::succeed(crate::support::plat(&["stats"]).arg(mounted.path()));
    mounted.unmount();

    let mounted = Mounted::new(&image, &["-o", "ro"]).unwrap();
    for (name, has) in [("written", false), ("truncated", false), ("left", true)] {
        let path = mounted.path().join(name);
        let found = rustix::fs::getxattr(&path, "security.capability", &mut [0_u8; 64][..]);
        assert_eq!(found.is_ok(), has, "{name}");
        let note = rustix::fs::getxattr(&path, "user.note", &mut [0_u8; 64][..]);
        assert_eq!(note, Ok(4), "{name}");
    }
    assert_eq!(fs::read(mounted.path().join("written")).unwrap(), b"written, more");
    judge(mounted, &image, &Rules::default());
}

#[test]
fn a_file_gets_its_times_with_its_name() {
    let test = "a_file_gets_its_times_with_its_name";
    if !have(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = ext4(&scratch);
    let mounted = Mounted::new(&image, WRITE).unwrap();
    let root = File::open(mounted.path()).unwrap();
    let unnamed = rustix::fs::openat(&root, ".", OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR).unwrap();
    let mut file = File::from(unnamed);
    file.write_all(b"contents").unwrap();
    // That of the contents alone, as a change that is not stored while the file has no name.
    let modify = rustix::fs::Timespec { tv_sec: 1_000_000_000, tv_nsec: 5 };
    let access = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let times = rustix::fs::Timestamps { last_access: access, last_modification: modify };
    rustix::fs::futimens(&file, &times).unwrap();
    let itself = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let follow = rustix::fs::AtFlags::SYMLINK_FOLLOW;
    rustix::fs::linkat(rustix::fs::CWD, itself, &root, "named", follow).unwrap();
    drop((file, root));
    mounted.unmount();
    let mounted = Mounted::new(&image, &["-o", "ro"]).unwrap();
    let found = fs::metadata(mounted.path().join("named")).unwrap();
    assert_eq!((found.mtime(), found.mtime_nsec(), found.len()), (1_000_000_000, 5, 8));
    judge(mounted, &image, &Rules::default());
}
