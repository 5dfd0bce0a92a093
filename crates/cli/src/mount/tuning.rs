//! What the kernel lets a mount have of memory and processors. Its defaults for FUSE are careful with servers
//! that anybody may run: one part in a hundred of memory for pages not written yet, strictly. Where we may,
//! a mount gets what a disk gets; where not, it is only slower.

use std::fs;
use std::path::{Path, PathBuf};

use fuse::Transport;
use rustix::fs::{AtFlags, CWD, StatxFlags};

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

/// The kernel's switch for requests over io_uring.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// What makes this mount faster and is not done, if the transport was left open.
#[must_use]
pub fn advice(wanted: Transport, used: Transport) -> Option<String> {
    advice_for(wanted, used, &fs::read_to_string(SWITCH).ok()?)
}

fn advice_for(wanted: Transport, used: Transport, switch: &str) -> Option<String> {
    let is_off = wanted == Transport::Auto && used == Transport::Device && switch.trim() == "N";
    is_off
        .then(|| format!("small files are faster over io_uring, which is off: as root, `echo Y > {SWITCH}`"))
}

/// Raises the limits of what is mounted on a directory, as far as that is allowed.
pub fn raise_limits(directory: &Path) {
    // The kernel knows which device it is without asking us. A process must never wait for what it serves
    // itself: if it is killed then, the kernel waits with it for ever.
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let Ok(found) = rustix::fs::statx(CWD, directory, flags, StatxFlags::empty()) else { return };
    let name = format!("{}:{}", found.stx_dev_major, found.stx_dev_minor);
    let knobs = PathBuf::from("/sys/class/bdi").join(name);
    for (knob, value) in [("strict_limit", 0), ("max_ratio", 100), ("read_ahead_kb", READ_AHEAD)] {
        // Only root may, and not every kernel has them all.
        let _ = fs::write(knobs.join(knob), value.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_uring_is_recommended_where_only_its_switch_is_off() {
        let advice = advice_for(Transport::Auto, Transport::Device, "N\n").unwrap();
        assert!(advice.contains("echo Y > /sys/module/fuse/parameters/enable_uring"), "{advice}");
        for (wanted, used, switch) in [
            (Transport::Auto, Transport::Ring, "N\n"),
            (Transport::Auto, Transport::Device, "Y\n"),
            (Transport::Device, Transport::Device, "N\n"),
        ] {
            assert_eq!(advice_for(wanted, used, switch), None, "{wanted:?} {used:?} {switch}");
        }
    }
}
