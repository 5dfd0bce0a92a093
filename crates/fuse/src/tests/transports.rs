//! Every verb through a real mount, over each transport of this crate; many threads; sudden ends.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use std::{panic, thread};

use super::memory::{DAMAGED, Memory, PANIC, SLOW};
use crate::{GiveWay, Options, Replace, Service as _, Session, Transport};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, SeekFrom, StatxFlags, XattrFlags,
};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

struct Mounted {
    memory: Arc<Memory>,
    directory: PathBuf,
    session: Option<Session>,
}

impl Mounted {
    fn new(transport: Transport, writeback: bool) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("platfs-fuse-{}-{number}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let memory = Arc::new(Memory::default());
        let options = Options {
            source: "memory".into(),
            subtype: "memory".into(),
            read_only: false,
            allow_other: false,
            suid: true,
            dev: false,
            exec: true,
            acl: false,
            own_permissions: false,
            time_unit: 1,
            writeback,
            transport,
            give_way: GiveWay::Auto,
            threads: 4,
        };
        let session = Session::start(Arc::clone(&memory) as Arc<_>, &directory, &options).unwrap();
        assert_eq!(session.transport(), transport);
        Mounted { memory, directory, session: Some(session) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn wait(&mut self) {
        self.session.take().unwrap().wait().unwrap();
    }

    fn unmount(mut self) {
        crate::unmount(&self.directory, false).unwrap();
        self.wait();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.session.is_some() {
            let _ = rustix::mount::unmount(&self.directory, UnmountFlags::FORCE | UnmountFlags::DETACH);
        }
        let _ = fs::remove_dir(&self.directory);
    }
}

/// After this a test is taken to hang: a hundred times what the longest takes alone.
const HANGS: Duration = Duration::from_secs(600);

/// Runs a test over each transport that this machine has, within a time.
fn over_each(test: &'static str, run: fn(Transport)) {
    let root = testkit::tool::administers();
    if !root || OpenOptions::new().read(true).write(true).open("/dev/fuse").is_err() {
        testkit::tool::skip(test, "needs root and /dev/fuse");
        return;
    }
    let mut transports = vec![Transport::Device];
    match fs::read_to_string("/sys/module/fuse/parameters/enable_uring") {
        Ok(switch) if switch.trim() == "Y" => transports.push(Transport::Ring),
        _ => testkit::tool::skip_allowed(
            &format!("{test} over io_uring"),
            "the kernel's `enable_uring` is off",
        ),
    }
    let _others = super::MOUNTS.read().unwrap_or_else(PoisonError::into_inner);
    for transport in transports {
        let (tell, done) = std::sync::mpsc::channel();
        let runner = thread::spawn(move || {
            let result = panic::catch_unwind(|| run(transport));
            tell.send(()).unwrap();
            result
        });
        assert!(done.recv_timeout(HANGS).is_ok(), "{test} over {transport:?} hangs");
        runner.join().unwrap().unwrap_or_else(|_| panic!("{test} failed over {transport:?}"));
    }
}

/// Number of steps of each of many threads.
const STEPS: usize = 100;

/// Waits for something to become true: far longer than that takes on a busy machine.
fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(90);
    while !is_true() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn names_of(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn error<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

fn number(errno: Errno) -> Option<i32> {
    Some(errno.raw_os_error())
}

#[test]
fn names_come_move_and_go() {
    over_each("names_come_move_and_go", |transport| {
        let mounted = Mounted::new(transport, false);
        let path = |name: &str| mounted.path(name);
        assert_eq!(error(fs::metadata(path("absent"))), number(Errno::NOENT));
        fs::create_dir(path("d")).unwrap();
        fs::write(path("d/a"), "first").unwrap();
        fs::write(path("d/b"), "second").unwrap();
        symlink("../somewhere/else", path("d/link")).unwrap();
        assert_eq!(fs::read_link(path("d/link")).unwrap(), Path::new("../somewhere/else"));
        fs::hard_link(path("d/a"), path("again")).unwrap();
        assert_eq!(fs::metadata(path("again")).unwrap().nlink(), 2);
        assert_eq!(fs::metadata(path("d/a")).unwrap().ino(), fs::metadata(path("again")).unwrap().ino());
        assert_eq!(names_of(&path("d")), ["a", "b", "link"]);
        assert_eq!(names_of(&mounted.directory), ["again", "d"]);

        let rename =
            |from: &str, to: &str, flags| rustix::fs::renameat_with(CWD, path(from), CWD, path(to), flags);
        assert_eq!(rename("d/a", "d/b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
        rename("d/a", "d/b", RenameFlags::EXCHANGE).unwrap();
        assert_eq!(fs::read(path("d/a")).unwrap(), b"second");
        rename("d/a", "d/b", RenameFlags::empty()).unwrap();
        assert_eq!(fs::read(path("d/b")).unwrap(), b"second");
        rename("d/b", "moved", RenameFlags::WHITEOUT).unwrap();
        let left = fs::symlink_metadata(path("d/b")).unwrap();
        assert!(left.file_type().is_char_device() && left.rdev() == 0 && left.mode() & 0o7777 == 0);
        fs::remove_file(path("d/b")).unwrap();
        assert_eq!(fs::metadata(path("again")).unwrap().nlink(), 1);

        assert_eq!(error(fs::remove_dir(path("d"))), number(Errno::NOTEMPTY));
        fs::remove_file(path("d/link")).unwrap();
        fs::remove_dir(path("d")).unwrap();
        assert_eq!(names_of(&mounted.directory), ["again", "moved"]);
        mounted.unmount();
    });
}

#[test]
fn new_nodes_are_what_was_asked_for() {
    over_each("new_nodes_are_what_was_asked_for", |transport| {
        let mounted = Mounted::new(transport, false);
        let make = |name: &str, file_type, mode, device| {
            rustix::fs::mknodat(CWD, mounted.path(name), file_type, Mode::from_raw_mode(mode), device)
                .unwrap();
            fs::symlink_metadata(mounted.path(name)).unwrap()
        };
        let device = rustix::fs::makedev(0x123, 0x45678);
        let block = make("block", FileType::BlockDevice, 0o600, device);
        assert!(block.file_type().is_block_device() && block.rdev() == device);
        assert!(make("char", FileType::CharacterDevice, 0o600, device).file_type().is_char_device());
        assert!(make("fifo", FileType::Fifo, 0o600, 0).file_type().is_fifo());
        assert!(make("socket", FileType::Socket, 0o600, 0).file_type().is_socket());
        let umask = rustix::process::umask(Mode::empty());
        rustix::process::umask(umask);
        let masked = |mode: u32| mode & !umask.as_raw_mode();
        assert_eq!(make("regular", FileType::RegularFile, 0o666, 0).mode(), 0o100_000 | masked(0o666));

        // A file without a name, which then gets one.
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let file = rustix::fs::open(&mounted.directory, flags, Mode::from_raw_mode(0o640)).unwrap();
        let mut file = File::from(file);
        file.write_all(b"nameless").unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        let this = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        rustix::fs::linkat(CWD, this, CWD, mounted.path("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
        drop(file);
        assert_eq!(fs::read(mounted.path("named")).unwrap(), b"nameless");
        mounted.unmount();
    });
}

/// Bytes that programs have written and the kernel has not handed over are data, and many may ask at once: those that would
/// leave nobody to serve the writes hear that holes can't be looked for.
#[test]
fn holes_are_not_what_the_kernel_has_not_handed_over() {
    over_each("holes_are_not_what_the_kernel_has_not_handed_over", |transport| {
        let mounted = Mounted::new(transport, true);
        let asked = AtomicU64::new(0);
        thread::scope(|scope| {
            for number in 0..16 {
                let (path, asked) = (mounted.path(&number.to_string()), &asked);
                scope.spawn(move || {
                    let file = File::create_new(path).unwrap();
                    for step in 1..STEPS as u64 {
                        file.write_all_at(b"data", step * 8192).unwrap();
                        let seek = |from| rustix::fs::seek(&file, from);
                        for (from, to) in [
                            (SeekFrom::Data(step * 8192 - 4096), step * 8192),
                            (SeekFrom::Hole(step * 8192), step * 8192 + 4),
                            (SeekFrom::Hole(step * 8192 - 100), step * 8192 - 100),
                        ] {
                            match seek(from) {
                                Err(Errno::INVAL) => {}
                                found => {
                                    assert_eq!(found, Ok(to), "{from:?}");
                                    asked.fetch_add(1, Ordering::Relaxed);
                                }
                            }
                        }
                    }
                });
            }
        });
        assert!(asked.into_inner() > 0);
        mounted.unmount();
    });
}

#[test]
fn bytes_are_kept() {
    over_each("bytes_are_kept", |transport| {
        for writeback in [false, true] {
            let mounted = Mounted::new(transport, writeback);
            let path = mounted.path("file");
            let bytes: Vec<u8> = (0..5_000_011_u32).map(|index| (index % 251).to_le_bytes()[0]).collect();
            fs::write(&path, &bytes).unwrap();
            let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
            let pages = |file: &File| rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
            file.sync_all().unwrap();
            pages(&file).unwrap();
            assert!(fs::read(&path).unwrap() == bytes);
            assert!(mounted.memory.syncs.load(Ordering::Relaxed) >= 1);

            // Past the end, holes, what lies in them, and other lengths.
            file.write_all_at(b"beyond", 6_000_000).unwrap();
            file.sync_data().unwrap();
            let at = |from| rustix::fs::seek(&file, from).unwrap();
            assert_eq!(at(SeekFrom::Hole(0)), 5_001_216);
            assert_eq!(at(SeekFrom::Data(5_001_216)), 5_996_544);
            assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(6_000_006)), Err(Errno::NXIO));
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 7_000_000).unwrap();
            assert_eq!(file.metadata().unwrap().len(), 7_000_000);
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, punch, 0, 4096).unwrap();
            let mut piece = [1; 8];
            file.read_exact_at(&mut piece, 4092).unwrap();
            assert_eq!(piece, [0, 0, 0, 0, bytes[4096], bytes[4097], bytes[4098], bytes[4099]]);
            let refused = rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
            assert_eq!(refused, Err(Errno::OPNOTSUPP));
            file.set_len(10_000).unwrap();
            pages(&file).unwrap();
            assert!(fs::read(&path).unwrap()[4096..] == bytes[4096..10_000]);

            let copy = File::create_new(mounted.path("copy")).unwrap();
            let (mut from, mut to) = (5000, 0);
            let copied = rustix::fs::copy_file_range(&file, Some(&mut from), &copy, Some(&mut to), 3000);
            assert_eq!(copied, Ok(3000));
            assert!(fs::read(mounted.path("copy")).unwrap() == bytes[5000..8000]);
            drop((file, copy));
            mounted.unmount();
        }
    });
}

#[test]
fn a_write_hears_of_bytes_that_were_lost_before() {
    over_each("a_write_hears_of_bytes_that_were_lost_before", |transport| {
        let mounted = Mounted::new(transport, true);
        mounted.memory.room.store(10_000, Ordering::Relaxed);
        let full = |result: io::Result<()>| assert_eq!(error(result), number(Errno::NOSPC));
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).open(mounted.path("f")).unwrap();
        file.write_all_at(&[1; 8192], 0).unwrap();
        file.write_all_at(&[2; 8192], 8192).unwrap();
        full(file.sync_all());
        // Reading, also behind the end, and looking are no writing.
        assert_eq!(file.read_at(&mut [0; 10], 0).unwrap(), 10);
        assert_eq!(file.read_at(&mut [0; 10], 1 << 20).unwrap(), 0);
        assert_eq!(file.metadata().unwrap().len(), 16_384);
        file.write_all_at(&[3; 10], 0).unwrap();
        // Looking has made the attributes known again, but bytes that are lost once more make them unknown.
        file.write_all_at(&[4; 10], 12_000).unwrap();
        full(file.sync_all());
        full(file.write_all_at(&[5; 10], 0));
        file.write_all_at(&[6; 10], 0).unwrap();
        // What a truncation answers does not count as known where bytes were lost.
        file.write_all_at(&[7; 10], 12_000).unwrap();
        full(file.sync_all());
        file.set_len(0).unwrap();
        full(file.write_all_at(&[8; 10], 0));
        file.write_all_at(&[9; 10], 0).unwrap();
        file.sync_all().unwrap();
        assert_eq!(fs::read(mounted.path("f")).unwrap(), [9; 10]);
        drop(file);
        mounted.unmount();
    });
}

#[test]
fn attributes_change_as_they_should() {
    over_each("attributes_change_as_they_should", |transport| {
        let mounted = Mounted::new(transport, false);
        let path = mounted.path("file");
        fs::write(&path, "x").unwrap();
        let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
        fs::set_permissions(&path, Permissions::from_mode(0o6755)).unwrap();
        assert_eq!(mode(), 0o6755);
        std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.uid(), found.gid(), mode()), (12, 34, 0o755), "a new owner takes the bits");

        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let time = std::time::SystemTime::UNIX_EPOCH - Duration::new(1000, 500);
        file.set_modified(time).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), time);
        let before = fs::metadata(&path).unwrap();

        let birth = || {
            let found = rustix::fs::statx(CWD, &path, AtFlags::empty(), StatxFlags::BTIME).unwrap();
            assert_ne!(found.stx_mask & StatxFlags::BTIME.bits(), 0, "creation is told");
            (found.stx_btime.tv_sec, found.stx_btime.tv_nsec)
        };
        let born = birth();
        assert_eq!(born.0, 1_700_000_000);
        file.write_all_at(b"changed", 0).unwrap();
        assert_eq!(birth(), born);
        let after = fs::metadata(&path).unwrap();
        assert!((after.ctime(), after.ctime_nsec()) > (before.ctime(), before.ctime_nsec()));

        // Flags change the time of change, and the kernel hears of it.
        let before = fs::metadata(&path).unwrap();
        rustix::fs::ioctl_setflags(&file, rustix::fs::IFlags::NODUMP).unwrap();
        assert_eq!(rustix::fs::ioctl_getflags(&file).unwrap(), rustix::fs::IFlags::NODUMP);
        let after = fs::metadata(&path).unwrap();
        assert!((after.ctime(), after.ctime_nsec()) > (before.ctime(), before.ctime_nsec()));

        let room = rustix::fs::statvfs(&mounted.directory).unwrap();
        assert_eq!((room.f_frsize, room.f_blocks, room.f_namemax), (4096, 1 << 21, 255));
        assert_eq!(room.f_bfree - room.f_bavail, 5);
        drop(file);
        mounted.unmount();
    });
}

#[test]
fn extended_attributes_of_all_sizes() {
    over_each("extended_attributes_of_all_sizes", |transport| {
        let mounted = Mounted::new(transport, false);
        let path = mounted.path("file");
        fs::write(&path, "x").unwrap();
        let long = vec![7; 65_536];
        for (name, value) in [("user.empty", &b""[..]), ("user.short", b"value"), ("user.long", &long)] {
            rustix::fs::setxattr(&path, name, value, XattrFlags::empty()).unwrap();
            let mut room = vec![0; 65_536];
            let len = rustix::fs::getxattr(&path, name, &mut room[..]).unwrap();
            assert!(room[..len] == *value, "{name}");
        }
        assert_eq!(rustix::fs::getxattr_query(&path, "user.long"), Ok(65_536));
        assert_eq!(rustix::fs::getxattr(&path, "user.short", &mut [0_u8; 4][..]), Err(Errno::RANGE));
        assert_eq!(rustix::fs::getxattr(&path, "user.absent", &mut [0_u8; 4][..]), Err(Errno::NODATA));
        let mut list = [0; 100];
        let len = rustix::fs::listxattr(&path, &mut list[..]).unwrap();
        assert_eq!(list[..len], *b"user.empty\0user.long\0user.short\0");
        rustix::fs::removexattr(&path, "user.short").unwrap();
        assert_eq!(rustix::fs::removexattr(&path, "user.short"), Err(Errno::NODATA));
        mounted.unmount();
    });
}

#[test]
fn listings_are_whole_and_damage_stays_where_it_is() {
    over_each("listings_are_whole_and_damage_stays_where_it_is", |transport| {
        let mounted = Mounted::new(transport, false);
        let directory = mounted.path("many");
        fs::create_dir(&directory).unwrap();
        let mut expected: Vec<String> = (0..3000).map(|number| format!("{number:0>100}")).collect();
        for name in &expected {
            File::create_new(directory.join(name)).unwrap();
        }
        assert_eq!(names_of(&directory), expected);
        // Removed while it is listed.
        for entry in fs::read_dir(&directory).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        expected.clear();
        assert_eq!(names_of(&directory), expected);

        let damaged = std::str::from_utf8(DAMAGED).unwrap();
        fs::write(mounted.path("healthy"), "x").unwrap();
        // Made under another name, as this one can't be looked up.
        fs::write(mounted.path("to-be"), "x").unwrap();
        let caller = crate::Caller { uid: 0, gid: 0, pid: 0 };
        mounted.memory.rename(caller, (crate::ROOT, b"to-be"), (crate::ROOT, DAMAGED), Replace::No).unwrap();
        assert_eq!(names_of(&mounted.directory), [damaged, "healthy", "many"]);
        mounted.unmount();
    });
}

#[test]
fn a_verb_that_panics_fails_and_nothing_else_does() {
    over_each("a_verb_that_panics_fails_and_nothing_else_does", |transport| {
        let mounted = Mounted::new(transport, false);
        let name = std::str::from_utf8(PANIC).unwrap();
        for _ in 0..10 {
            assert_eq!(error(fs::metadata(mounted.path(name))), number(Errno::IO));
        }
        fs::write(mounted.path("fine"), "x").unwrap();
        assert_eq!(fs::read(mounted.path("fine")).unwrap(), b"x");
        mounted.unmount();
    });
}

#[test]
fn what_is_gone_is_forgotten() {
    over_each("what_is_gone_is_forgotten", |transport| {
        let mounted = Mounted::new(transport, false);
        for round in 0..3 {
            for number in 0..500 {
                fs::write(mounted.path(&format!("{round}-{number}")), "x").unwrap();
            }
            for number in 0..500 {
                fs::remove_file(mounted.path(&format!("{round}-{number}"))).unwrap();
            }
        }
        eventually("nodes without names stay", || mounted.memory.remembered() == 1);
        assert_eq!(mounted.memory.known(), 0);
        mounted.unmount();
    });
}

#[test]
fn a_slow_verb_holds_up_nobody_else() {
    over_each("a_slow_verb_holds_up_nobody_else", |transport| {
        let mounted = Mounted::new(transport, false);
        let slow = mounted.path(std::str::from_utf8(SLOW).unwrap());
        // Of its own: the kernel holds the directory of a name that is being looked up.
        fs::create_dir(mounted.path("other")).unwrap();
        let waiter = thread::spawn(move || error(fs::metadata(slow)));
        mounted.memory.gate.wait_for_somebody();
        // If these had to wait for the lookup, which waits for them, the test would hang.
        for number in 0..20 {
            fs::write(mounted.path(&format!("other/{number}")), "x").unwrap();
        }
        assert!(!waiter.is_finished());
        mounted.memory.gate.open();
        assert_eq!(waiter.join().unwrap(), number(Errno::NOENT));
        mounted.unmount();
    });
}

/// One of many threads: files of its own and one that all share.
fn churn(root: &Path, thread: u64) {
    let own = root.join(format!("own-{thread}"));
    fs::create_dir(&own).unwrap();
    let mut seed = thread + 1;
    let mut next = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..STEPS {
        let name = own.join(format!("f{}", next(5)));
        let len = usize::try_from(next(100_000)).unwrap();
        let byte = next(256).to_le_bytes()[0];
        match next(7) {
            0 | 1 => {
                fs::write(&name, vec![byte; len]).unwrap();
                let found = fs::read(&name).unwrap();
                assert!(found.len() == len && found.iter().all(|found| *found == byte), "{}", name.display());
            }
            2 => drop(fs::remove_file(&name)),
            3 => drop(fs::rename(&name, own.join(format!("f{}", next(5))))),
            4 => assert!(names_of(&own).len() <= 6),
            5 => {
                let shared = root.join(format!("shared-{}", next(3)));
                let file = OpenOptions::new().create(true).truncate(false).write(true).open(&shared);
                file.and_then(|file| file.write_all_at(&[byte; 4096], next(64) * 4096)).unwrap();
                let _ =
                    fs::hard_link(&shared, own.join("link")).and_then(|()| fs::remove_file(own.join("link")));
            }
            _ => {
                assert!(fs::metadata(&own).unwrap().is_dir());
                let _ = rustix::fs::statvfs(root).unwrap();
            }
        }
    }
    fs::remove_dir_all(&own).unwrap();
}

#[test]
fn thirty_two_threads_at_once() {
    over_each("thirty_two_threads_at_once", |transport| {
        for writeback in [false, true] {
            let mounted = Mounted::new(transport, writeback);
            thread::scope(|scope| {
                let root = &mounted.directory;
                for thread in 0..32 {
                    scope.spawn(move || churn(root, thread));
                }
            });
            for name in names_of(&mounted.directory) {
                fs::remove_file(mounted.path(&name)).unwrap();
            }
            eventually("nodes without names stay", || mounted.memory.remembered() == 1);
            mounted.unmount();
        }
    });
}

#[test]
fn it_ends_with_its_last_open_file() {
    over_each("it_ends_with_its_last_open_file", |transport| {
        let mut mounted = Mounted::new(transport, false);
        fs::write(mounted.path("file"), vec![3; 100_000]).unwrap();
        let file = File::open(mounted.path("file")).unwrap();
        assert_eq!(error(crate::unmount(&mounted.directory, false)), number(Errno::BUSY));
        crate::unmount(&mounted.directory, true).unwrap();
        assert_eq!(names_of(&mounted.directory), Vec::<String>::new());
        let mut bytes = vec![0; 100_000];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 3));
        drop(file);
        mounted.wait();
    });
}

#[test]
fn a_forced_end_leaves_nobody_waiting() {
    over_each("a_forced_end_leaves_nobody_waiting", |transport| {
        let mut mounted = Mounted::new(transport, false);
        let root = mounted.directory.clone();
        let busy: Vec<_> = (0..8)
            .map(|thread| {
                let root = root.clone();
                thread::spawn(move || {
                    let path = root.join(format!("busy-{thread}"));
                    // Until the file system is gone, which on a busy machine may be before the file is there.
                    let file = match File::create(path) {
                        Ok(file) => file,
                        Err(error) => return error,
                    };
                    (0..).find_map(|step| file.write_all_at(&[1; 8192], step % 100 * 8192).err()).unwrap()
                })
            })
            .collect();
        let requests = || mounted.memory.requests.load(Ordering::Relaxed);
        let before = requests();
        eventually("nobody writes", || requests() > before + 500);
        rustix::mount::unmount(&root, UnmountFlags::FORCE | UnmountFlags::DETACH).unwrap();
        for thread in busy {
            let code = thread.join().unwrap().raw_os_error();
            assert!([Errno::NOTCONN, Errno::CONNABORTED].map(number).contains(&code), "{code:?}");
        }
        mounted.wait();
    });
}

#[test]
fn mounting_again_and_again_leaves_no_threads_or_files_behind() {
    over_each("mounting_again_and_again_leaves_no_threads_or_files_behind", |transport| {
        for _ in 0..10 {
            let mounted = Mounted::new(transport, false);
            fs::write(mounted.path("file"), "x").unwrap();
            mounted.unmount();
        }
    });
}
