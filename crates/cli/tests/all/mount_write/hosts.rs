//! Volumes with multiple mount protection, which two hosts reach: never more than one of them writes.
//!
//! Here the second host is a loop device whose file has lost the name by which the device was made: nothing on this machine
//! shows that both are the same bytes, and no lock of ours is in the way.

use super::*;
use crate::support::{fail, plat, succeed};
use ondisk::mmp::{MMP_CHECK, MMP_CLEAN, RawMmp};
use ondisk::seal::Sealer;
use platfs::device::{Device, FileDevice, mmp};
use std::sync::atomic::{AtomicU32, Ordering};
use zerocopy::IntoBytes;

/// A volume, by its name and as a loop device.
struct TwoWays {
    image: PathBuf,
    device: String,
    scratch: Scratch,
}

impl TwoWays {
    fn new(test: &str) -> Self {
        let scratch = Scratch::new(test);
        let image = volume(&scratch, "-t ext4 -b 4096 -O mmp -E mmp_update_interval=1", "16M");
        let other = scratch.join("gone");
        fs::hard_link(&image, &other).unwrap();
        let device = tool::text("losetup", &["-f", "--show", other.to_str().unwrap()]);
        fs::remove_file(&other).unwrap();
        TwoWays { image, device: device.trim().to_owned(), scratch }
    }
}

impl Drop for TwoWays {
    fn drop(&mut self) {
        let _ = tool::command("losetup").args(["-d", &self.device]).status();
    }
}

fn mark(image: &Path) -> RawMmp {
    let device = FileDevice::new(File::open(image).unwrap()).unwrap();
    mmp::read_block(&device, &platfs::read_superblock(&device).unwrap()).unwrap()
}

/// Writes a sequence as a host called "other" would.
fn leave(image: &Path, sequence: u32) {
    let file = File::options().read(true).write(true).open(image).unwrap();
    let device = FileDevice::new(file).unwrap();
    let raw = platfs::read_superblock(&device).unwrap();
    let mut left = mark(image);
    left.mmp_seq.set(sequence);
    left.set_names(b"other", b"sdz");
    Sealer::from_superblock(&raw).seal_mmp(left.as_mut_bytes());
    device.write_at(raw.s_mmp_block.get() * 4096, left.as_bytes()).unwrap();
}

/// A host that mounts the volume, as long as it has it.
enum Host {
    Ours(Mounted),
    Kernel(mount::Mounted),
}

impl Host {
    fn mount(kernel: bool, what: &Path) -> Result<Self, String> {
        match kernel {
            true => mount::Mounted::kernel(what, "rw").map(Host::Kernel),
            false => Mounted::new(what, &["-o", "rw"]).map(Host::Ours),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Host::Ours(mounted) => mounted.path(),
            Host::Kernel(mounted) => mounted.path(),
        }
    }

    fn unmount(self) {
        if let Host::Ours(mounted) = self {
            mounted.unmount();
        }
    }
}

/// One race: both begin within some seconds, and who has the volume keeps it for a while. Says how many had it.
fn race(number: u64, later: &Duration) -> u32 {
    let ways = TwoWays::new("two_hosts_race");
    let (now, had) = (AtomicU32::new(0), AtomicU32::new(0));
    let host = |kernel: bool, what: &Path, name: &str, after: Duration| {
        thread::sleep(after);
        match Host::mount(kernel, what) {
            Ok(host) => {
                assert_eq!(now.fetch_add(1, Ordering::SeqCst), 0, "race {number}: two hosts have it");
                fs::write(host.path().join(name), name).unwrap();
                thread::sleep(Duration::from_secs(8));
                now.fetch_sub(1, Ordering::SeqCst);
                had.fetch_add(1, Ordering::SeqCst);
                host.unmount();
            }
            Err(why) if !kernel => {
                let named = why.contains("multiple mount protection") && why.contains("its device");
                assert!(named, "race {number}: {why}");
            }
            Err(_) => {}
        }
    };
    let (first, second) = if number % 4 < 2 { (Duration::ZERO, *later) } else { (*later, Duration::ZERO) };
    thread::scope(|scope| {
        scope.spawn(|| host(false, &ways.image, "ours", first));
        scope.spawn(|| host(number.is_multiple_of(2), Path::new(&ways.device), "theirs", second));
    });
    assert!(mark(&ways.image).is_clean(), "race {number}: the mark stays");
    tool::run(tool::command("blockdev").args(["--flushbufs", &ways.device]));
    assert_clean(&ways.image);
    had.into_inner()
}

/// `PLATFS_STEPS` says how many races there are, sixteen at once: each takes half a minute, which it sleeps.
#[test]
fn of_two_hosts_one_writes() {
    let test = "of_two_hosts_one_writes";
    if !have(test, &["mke2fs", "e2fsck", "losetup", "blockdev"]) {
        return;
    }
    let races = std::env::var("PLATFS_STEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(4_u64);
    let mut had = [0; 3];
    for begun in (0..races).step_by(16) {
        let numbers: Vec<u64> = (begun..races.min(begun + 16)).collect();
        let done: Vec<u32> = thread::scope(|scope| {
            // From the same moment to one that is about to have it.
            let later =
                |number: u64| Duration::from_millis(number * 7919 % 13_000 * u64::from(number % 8 > 1));
            let all: Vec<_> =
                numbers.iter().map(|&number| scope.spawn(move || race(number, &later(number)))).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        done.iter().for_each(|hosts| had[*hosts as usize] += 1);
    }
    println!("{races} races: in {} one host had it, in {} both in turn, in {} none", had[1], had[2], had[0]);
    assert!(had[1] + had[2] > 0, "nobody ever has it");
}

/// A mark of another host's check, or of one that was killed, is refused at once, by each writer.
#[test]
fn a_volume_under_check_elsewhere_is_left_alone() {
    let test = "a_volume_under_check_elsewhere_is_left_alone";
    if !have(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch, "-t ext4 -b 4096 -O mmp", "16M");
    leave(&image, MMP_CHECK);
    let before = fs::read(&image).unwrap();
    let name = image.to_str().unwrap();
    let lines: &[&[&str]] = &[
        &["mkdir", name, "/d"],
        &["tune", "-L", "x", name],
        &["resize", name, "12M"],
        &["quota", "--on", "user", name],
        &["trim", name],
        &["defrag", name],
    ];
    for line in lines {
        let said = fail(&mut plat(line));
        assert!(said.contains("'other'") && said.contains("clear_mmp"), "{line:?}: {said}");
    }
    for how in ["-y", "-p"] {
        let output = plat(&["check", how, name]).output().unwrap();
        assert_eq!(output.status.code(), Some(8), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("'other'"), "{output:?}");
    }
    let refused = Mounted::new(&image, &[]).err().unwrap();
    assert!(refused.contains("'other'"), "{refused}");
    assert!(fs::read(&image).unwrap() == before, "something was written");
    // Looking is free.
    succeed(&mut plat(&["check", "-n", name]));
    succeed(&mut plat(&["ls", name, "/"]));
    succeed(&mut plat(&["tune", "-f", "-E", "clear_mmp", name]));
    assert_eq!(mark(&image).mmp_seq.get(), MMP_CLEAN);
    assert_clean(&image);
}

/// A mount whose mark another host has overwritten writes nothing from then on.
#[test]
fn a_mount_that_was_taken_over_is_read_only_at_once() {
    let test = "a_mount_that_was_taken_over_is_read_only_at_once";
    if !have(test, &["mke2fs", "losetup"]) {
        return;
    }
    let ways = TwoWays::new(test);
    let mut mounted = Mounted::new(Path::new(&ways.device), &["-o", "rw"]).unwrap();
    fs::write(mounted.path().join("before"), "x").unwrap();
    let shown = mark(&ways.image);
    assert_eq!(shown.node(), rustix::system::uname().nodename().to_bytes());
    // What is copied from the mount is no volume in use.
    let copy = ways.scratch.join("copy.img");
    succeed(plat(&["snapshot"]).arg(mounted.path()).arg(&copy));
    assert!(mark(&copy).is_clean());
    leave(&ways.image, 12345);
    let refused = |error: io::Error| error.raw_os_error() == Some(Errno::ROFS.raw_os_error());
    let begun = Instant::now();
    while !fs::create_dir(mounted.path().join("d")).is_err_and(refused) {
        let _ = fs::remove_dir(mounted.path().join("d"));
        assert!(begun.elapsed() < Duration::from_secs(30), "it still writes");
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(fs::read(mounted.path().join("before")).unwrap(), b"x");
    unmount_with(tool::command("fusermount3").arg("-u").arg(mounted.path()));
    let (status, log) = mounted.wait();
    assert!(!status.success() && log.iter().any(|line| line.contains("'other'")), "{log:?}");
    assert_eq!(mark(&ways.image).mmp_seq.get(), 12345, "the mark is the other host's");
}
