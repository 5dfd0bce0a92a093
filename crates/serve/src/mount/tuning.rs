//! Limits of memory and processors that the kernel sets a mount. Its defaults for FUSE are careful with servers
//! that anybody may run: one part in a hundred of memory for pages not written yet, strictly. Where we may,
//! a mount gets what a disk gets; where not, it is only slower.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use fuse::Transport;
use platfs_host::{path, system};
use rustix::fs::{AtFlags, OFlags, StatxFlags};

/// Where the kernel's limits of mounts are set.
pub const KNOBS: &str = "/sys/devices/virtual/bdi";

/// Read-ahead in KiB: one request of the longest.
const READ_AHEAD: u32 = 1024;

/// By how much the threads come before others. Linux ran the thread behind a loop device at -20 for the same
/// reason; -15 is as good here (`docs/mount-internals.md`).
const NICE: i32 = -15;

/// Raises the priority of this thread and of those that it starts: the caller waits for them, and on a busy
/// machine would wait for the turn of others first, often with a lock of the kernel in hand.
pub fn come_first() {
    let _ = rustix::process::nice(NICE);
}

/// Raises the scheduling group of a session of its own: Linux with `sched_autogroup` shares processors between
/// sessions, and a priority counts only inside one.
pub fn group_comes_first(mut group: File) {
    let _ = group.write_all(NICE.to_string().as_bytes());
}

/// The scheduling group of this process, whichever it is when it is written to.
#[must_use]
pub fn group() -> Option<File> {
    system::open("/proc/self/autogroup", OFlags::WRONLY).ok()
}

/// The number of the device that a mount of this process is. The kernel knows it without asking us. A process must never
/// wait for what it serves itself: if it is killed then, the kernel waits with it for ever.
///
/// # Errors
/// The system's.
pub fn device_of(directory: &Path) -> std::io::Result<u64> {
    let flags = path::UNASKED | AtFlags::NO_AUTOMOUNT;
    let found = path::parts(directory, flags, StatxFlags::empty())?;
    Ok(rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor))
}

/// Limits of the kernel for one mount.
#[derive(Debug)]
pub struct Limits {
    knobs: PathBuf,
    /// Bytes of pages that it may hold before they are written; all that it lets a disk have if it is `u64::MAX`.
    dirty: AtomicU64,
}

impl Limits {
    /// Raises the limits of what is mounted on a directory, as far as that is allowed. `below` is the device that the
    /// directory was on before: if it is there again, the mount has ended, and the limits of a disk are not ours to set.
    #[must_use]
    pub fn raise(directory: &Path, below: Option<u64>) -> Option<Self> {
        let device =
            device_of(directory).ok().filter(|device| below.is_some_and(|below| below != *device))?;
        let name = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let limits =
            Limits { knobs: PathBuf::from("/sys/class/bdi").join(name), dirty: AtomicU64::new(u64::MAX) };
        limits.set("strict_limit", 0);
        limits.set("max_ratio", 100);
        limits.set("read_ahead_kb", u64::from(READ_AHEAD));
        Some(limits)
    }

    /// Bytes of written pages that the kernel lets all disks together have at the moment.
    #[must_use]
    pub fn most_held() -> Option<u64> {
        most_held_by(&system::text("/proc/vmstat").ok()?)
    }

    /// Sets how many bytes of written pages the kernel may hold; all that it lets a disk have if it is `u64::MAX`. It
    /// stops writers until it holds less.
    pub fn hold(&self, dirty: u64) {
        if self.dirty.swap(dirty, Ordering::Relaxed) == dirty {
            return;
        }
        if dirty == u64::MAX {
            self.set("strict_limit", 0);
            self.set("max_ratio", 100);
        } else {
            self.set("max_bytes", dirty);
            self.set("strict_limit", 1);
        }
    }

    /// As [`Limits::hold`], unless the kernel may hold less already.
    pub fn hold_at_most(&self, dirty: u64) {
        if dirty < self.dirty.load(Ordering::Relaxed) {
            self.hold(dirty);
        }
    }

    /// Only root may, and not every kernel has them all.
    fn set(&self, knob: &str, value: u64) {
        let opened = system::open(self.knobs.join(knob), OFlags::WRONLY | OFlags::TRUNC);
        let _ = opened.and_then(|mut knob| knob.write_all(value.to_string().as_bytes()));
    }
}

fn most_held_by(vmstat: &str) -> Option<u64> {
    let pages = vmstat.lines().find_map(|line| line.strip_prefix("nr_dirty_threshold "))?;
    pages.trim().parse::<u64>().ok()?.checked_mul(u64::try_from(rustix::param::page_size()).ok()?)
}

/// The kernel's switch for requests over io_uring.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Advice on what makes this mount faster and is not done, or why the transport is not the one that was asked for.
#[must_use]
pub fn advice(wanted: Transport, used: Transport) -> Option<String> {
    advice_for(wanted, used, &system::text(SWITCH).unwrap_or_default())
}

fn advice_for(wanted: Transport, used: Transport, switch: &str) -> Option<String> {
    let is_off = switch.trim() == "N";
    match (wanted, used) {
        (Transport::Auto, Transport::Device) if is_off => {
            Some(format!("small files are faster over io_uring, which is off: as root, `echo Y > {SWITCH}`"))
        }
        (Transport::Ring, Transport::Device) => {
            let reason = match (is_off, switch.is_empty()) {
                (true, _) => format!("it is off: as root, `echo Y > {SWITCH}`"),
                (_, true) => "this kernel does not have it for FUSE (Linux 6.14)".to_owned(),
                _ => "this process may not have its descriptors or its memory (`ulimit -n`, `ulimit -l`)"
                    .to_owned(),
            };
            Some(format!("`transport=uring` can't be had, /dev/fuse is used: {reason}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_limit_is_found() {
        let page = rustix::param::page_size() as u64;
        assert_eq!(most_held_by("nr_dirty 7\nnr_dirty_threshold 1154516\nx 1\n"), Some(1_154_516 * page));
        assert_eq!(most_held_by("nr_dirty 7\n"), None);
        assert_eq!(most_held_by("nr_dirty_threshold 18446744073709551615\n"), None);
        assert!(Limits::most_held().is_some_and(|most| most > 0));
    }

    #[test]
    fn a_directory_that_nothing_is_mounted_on_has_no_limits_to_set() {
        let directory = std::env::temp_dir();
        let below = device_of(&directory).ok();
        assert!(below.is_some() && Limits::raise(&directory, below).is_none());
        assert!(Limits::raise(&directory, None).is_none());
    }

    #[test]
    fn io_uring_is_recommended_where_only_its_switch_is_off() {
        let advice = advice_for(Transport::Auto, Transport::Device, "N\n").unwrap();
        assert!(advice.contains("echo Y > /sys/module/fuse/parameters/enable_uring"), "{advice}");
        for (switch, words) in [("N\n", "it is off"), ("", "Linux 6.14"), ("Y\n", "ulimit -n")] {
            let said = advice_for(Transport::Ring, Transport::Device, switch).unwrap();
            assert!(said.contains(words) && said.contains("/dev/fuse is used"), "{said}");
        }
        for (wanted, used, switch) in [
            (Transport::Auto, Transport::Device, ""),
            (Transport::Ring, Transport::Ring, "Y\n"),
            (Transport::Auto, Transport::Ring, "N\n"),
            (Transport::Auto, Transport::Device, "Y\n"),
            (Transport::Device, Transport::Device, "N\n"),
        ] {
            assert_eq!(advice_for(wanted, used, switch), None, "{wanted:?} {used:?} {switch}");
        }
    }
}
