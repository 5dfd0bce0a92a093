//! The threads that serve: which class of the scheduler they are in, where they run, and when they are woken.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLockWriteGuard};
use std::thread;
use std::time::{Duration, Instant};

use super::memory::{Memory, SLOW};
use testkit::tool;

use crate::{GiveWay, Options, Scheduling, Session, Transport};

/// A mount, of which there is one at a time: threads are found by their names.
struct Mounted {
    directory: PathBuf,
    /// How the names of the threads begin that serve.
    names: &'static str,
    session: Option<Session>,
    memory: Arc<Memory>,
    scheduling: Scheduling,
    _alone: RwLockWriteGuard<'static, ()>,
}

impl Mounted {
    /// Over a ring; `None` where there are none.
    fn new(test: &str, give_way: GiveWay) -> Option<Self> {
        Mounted::over(Transport::Ring, test, give_way)
    }

    fn over(transport: Transport, test: &str, give_way: GiveWay) -> Option<Self> {
        let alone = super::MOUNTS.write().unwrap_or_else(PoisonError::into_inner);
        let root = testkit::tool::administers();
        let has_device = OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
        let switch = fs::read_to_string("/sys/module/fuse/parameters/enable_uring").unwrap_or_default();
        let has_ring = transport == Transport::Device || switch.trim() == "Y";
        if !root || !has_device || !has_ring {
            // The kernel's switch is no part of what a machine for tests has.
            let skip = if root && has_device { tool::skip_allowed } else { tool::skip };
            skip(test, "needs root, /dev/fuse and the kernel's `enable_uring`");
            return None;
        }
        let directory = std::env::temp_dir().join(format!("platfs-fuse-{test}-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let options = Options {
            own_permissions: false,
            time_unit: 1,
            source: "memory".into(),
            subtype: "memory".into(),
            read_only: false,
            allow_other: false,
            suid: false,
            dev: false,
            exec: false,
            acl: false,
            writeback: true,
            transport,
            give_way,
            threads: 4,
        };
        let memory = Arc::new(Memory::default());
        let session = Session::start(Arc::clone(&memory) as Arc<_>, &directory, &options).unwrap();
        let scheduling = session.scheduling();
        let names = if transport == Transport::Ring { "ring-" } else { "device-" };
        Some(Mounted { directory, names, session: Some(session), memory, scheduling, _alone: alone })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        crate::unmount(&self.directory, true).unwrap();
        self.session.take().unwrap().wait().unwrap();
        fs::remove_dir(&self.directory).unwrap();
    }
}

/// Makes files, looks at them and removes them.
fn churn(root: &Path, files: usize) {
    for number in 0..files {
        let path = root.join(number.to_string());
        fs::write(&path, [7; 4096]).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 4096);
        fs::remove_file(&path).unwrap();
    }
}

/// Contents of a file of `/proc` for each of our threads whose name begins so.
fn about(names: &str, file: &str) -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    // Threads may end meanwhile.
    let named =
        tasks.filter(|task| fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with(names)));
    named.filter_map(|task| fs::read_to_string(task.join(file)).ok()).collect()
}

/// How many of a mount's threads are in the idle class.
fn idle_scheduling(mounted: &Mounted) -> usize {
    const POLICY: usize = 38;
    let policy = |stat: &String| stat.rsplit_once(") ").unwrap().1.split(' ').nth(POLICY).unwrap() == "5";
    about(mounted.names, "stat").iter().filter(|stat| policy(stat)).count()
}

/// On how many processors each of its threads may run.
fn processors(mounted: &Mounted) -> Vec<u32> {
    let count = |status: &String| -> u32 {
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed:"));
        line.unwrap().chars().filter_map(|digit| digit.to_digit(16)).map(u32::count_ones).sum()
    };
    about(mounted.names, "status").iter().map(count).collect()
}

/// Runs a test over both transports.
fn over_both(run: impl Fn(Transport)) {
    run(Transport::Ring);
    run(Transport::Device);
}

/// How often threads with such names have gone to sleep.
fn sleeps(names: &str) -> u64 {
    let count = |status: &String| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    };
    about(names, "status").iter().map(count).sum()
}

fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_true() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn threads_give_way_while_requests_come_and_then_no_more() {
    over_both(|transport| {
        let Some(mounted) = Mounted::over(transport, "give-way", GiveWay::Always) else { return };
        assert_eq!(idle_scheduling(&mounted), 0);
        let allowed = processors(&mounted);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    churn(&mounted.directory, 10);
                }
            });
            eventually("no thread gives way", || idle_scheduling(&mounted) > 0);
            if transport == Transport::Device {
                eventually("no thread follows the program", || processors(&mounted).contains(&1));
            }
            is_over.store(true, Ordering::Relaxed);
        });
        eventually("a thread still gives way", || idle_scheduling(&mounted) == 0);
        eventually("a thread may not go where it might", || processors(&mounted) == allowed);
        let now = mounted.scheduling.now();
        assert!(now.gives_way && now.lowered > 0 && now.lowered == now.raised, "{now:?}");
        assert!(now.requests > 0 && now.turns > 0 && now.ran_ns > 0, "{now:?}");
    });
}

/// Over the device one thread serves while threads give way. What it waits for may be another request.
#[test]
fn a_thread_that_waits_is_replaced() {
    let Some(mounted) = Mounted::over(Transport::Device, "replaced", GiveWay::Always) else { return };
    let is_over = AtomicBool::new(false);
    // The one that waits holds the lock of its directory.
    let other = mounted.directory.join("other");
    fs::create_dir(&other).unwrap();
    thread::scope(|scope| {
        let churning = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                churn(&other, 10);
            }
        });
        eventually("no thread gives way", || idle_scheduling(&mounted) > 0);
        let waits = scope.spawn(|| fs::metadata(mounted.directory.join(OsStr::from_bytes(SLOW))));
        mounted.memory.gate.wait_for_somebody();
        let before = mounted.memory.requests.load(Ordering::Relaxed);
        eventually("nobody serves", || mounted.memory.requests.load(Ordering::Relaxed) > before + 1000);
        mounted.memory.gate.open();
        assert_eq!(waits.join().unwrap().unwrap_err().kind(), io::ErrorKind::NotFound);
        is_over.store(true, Ordering::Relaxed);
        churning.join().unwrap();
    });
}

#[test]
fn threads_that_shall_not_give_way_do_not() {
    let Some(mounted) = Mounted::new("never", GiveWay::Never) else { return };
    churn(&mounted.directory, 300);
    let now = mounted.scheduling.now();
    assert!(!now.gives_way && now.lowered == 0, "{now:?}");
    assert!(about("watcher", "comm").is_empty());
}

/// Busy loops in the same group of the scheduler: they are threads of this process.
#[test]
fn busy_loops_do_not_starve_threads_that_give_way() {
    const FILES: usize = 300;
    let took = |transport, give_way| {
        let mounted = Mounted::over(transport, "starved", give_way)?;
        let is_over = AtomicBool::new(false);
        let took = thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        std::hint::spin_loop()
                    }
                });
            }
            let begun = Instant::now();
            churn(&mounted.directory, FILES);
            is_over.store(true, Ordering::Relaxed);
            begun.elapsed()
        });
        let now = mounted.scheduling.now();
        eprintln!("{transport:?}, {give_way:?}: {took:?}, {now:?}");
        assert!(give_way == GiveWay::Never || now.lowered > 0, "{now:?}");
        Some(took)
    };
    over_both(|transport| {
        let (never, always) = (took(transport, GiveWay::Never), took(transport, GiveWay::Always));
        if let Some((never, always)) = never.zip(always) {
            assert!(always < never * 3 + Duration::from_secs(2), "{always:?} instead of {never:?}");
        }
    });
}

#[test]
fn an_idle_mount_wakes_none_of_its_threads() {
    over_both(|transport| {
        let Some(mounted) = Mounted::over(transport, "idle", GiveWay::Always) else { return };
        churn(&mounted.directory, 300);
        let all = || ["ring-", "device-", "watcher"].map(sleeps);
        let mut before = all();
        eventually("its threads are woken again and again", || {
            thread::sleep(Duration::from_secs(1));
            std::mem::replace(&mut before, all()) == before
        });
        // It works as before.
        churn(&mounted.directory, 300);
    });
}

#[test]
fn many_nodes_are_forgotten_at_a_time() {
    const FILES: usize = 2000;
    let Some(mounted) = Mounted::new("forget", GiveWay::Never) else { return };
    for number in 0..FILES {
        fs::write(mounted.directory.join(number.to_string()), "x").unwrap();
    }
    let before = sleeps("device-");
    let begun = Instant::now();
    for number in 0..FILES {
        fs::remove_file(mounted.directory.join(number.to_string())).unwrap();
    }
    let (sleeps, took) = (sleeps("device-") - before, begun.elapsed());
    // One for each ten milliseconds, and some for others.
    let most = 20 + 2 * u64::try_from(took.as_millis()).unwrap() / 10;
    assert!(sleeps <= most.min(FILES as u64 / 2), "{sleeps} in {took:?}");
}

#[test]
fn room_is_counted_after_everything_was_forgotten() {
    let Some(mounted) = Mounted::new("room", GiveWay::Never) else { return };
    let free = || rustix::fs::statvfs(&mounted.directory).unwrap().f_ffree;
    let before = free();
    for _ in 0..20 {
        for number in 0..20 {
            fs::write(mounted.directory.join(number.to_string()), "x").unwrap();
        }
        assert_eq!(free(), before - 20);
        for number in 0..20 {
            fs::remove_file(mounted.directory.join(number.to_string())).unwrap();
        }
        assert_eq!(free(), before);
    }
}

#[test]
fn nodes_without_names_take_no_room_from_new_ones() {
    const FILES: usize = 20;
    let Some(mounted) = Mounted::new("full", GiveWay::Never) else { return };
    // With the root it is full after these.
    mounted.memory.limit.store(FILES + 1, Ordering::Relaxed);
    let _ = mounted.memory.catch_up.set(mounted.session.as_ref().unwrap().catch_up());
    let path = |number: usize| mounted.directory.join(number.to_string());
    for _ in 0..20 {
        (0..FILES).for_each(|number| fs::write(path(number), "x").unwrap());
        let error = fs::write(path(FILES), "x").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(crate::Errno::NOSPC.raw_os_error()));
        (0..FILES).for_each(|number| fs::remove_file(path(number)).unwrap());
    }
}
