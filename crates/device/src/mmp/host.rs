//! Host of a mark: its names, clocks and random numbers; values in tests, the system elsewhere.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The machine that takes a mark.
pub trait Host: Send + Sync {
    /// Its name, and that of the device by which it has the volume: other hosts show them.
    fn names(&self) -> (Vec<u8>, Vec<u8>);

    /// Seconds since 1970.
    fn now(&self) -> u64;

    /// Time since some moment; it is never set.
    fn elapsed(&self) -> Duration;

    /// Waits before it looks again.
    fn wait(&self, time: Duration);

    /// A number that other hosts don't come upon.
    fn random(&self) -> u32;

    /// Another host has taken the volume: nothing is written any more.
    fn lost(&self, why: &str) {
        let _ = why;
    }
}

/// The machine that this runs on.
pub struct ThisHost {
    device: Vec<u8>,
    begun: Instant,
}

impl ThisHost {
    /// It, with a name for the device.
    #[must_use]
    pub fn new(device: &[u8]) -> Self {
        ThisHost { device: device.to_vec(), begun: Instant::now() }
    }
}

#[cfg(target_os = "linux")]
fn node() -> Vec<u8> {
    rustix::system::uname().nodename().to_bytes().to_vec()
}

#[cfg(not(target_os = "linux"))]
fn node() -> Vec<u8> {
    Vec::new()
}

impl Host for ThisHost {
    fn names(&self) -> (Vec<u8>, Vec<u8>) {
        (node(), self.device.clone())
    }

    fn now(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
    }

    /// Goes on while the machine sleeps, where the system says so: others don't wait for it.
    #[cfg(target_os = "linux")]
    fn elapsed(&self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::try_from(now).unwrap_or_else(|_| self.begun.elapsed())
    }

    #[cfg(not(target_os = "linux"))]
    fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    fn wait(&self, time: Duration) {
        std::thread::sleep(time);
    }

    /// From the keys that the system gives each hash table.
    fn random(&self) -> u32 {
        let bits = RandomState::new().build_hasher().finish();
        u32::try_from(bits >> 32).unwrap_or_default()
    }
}
