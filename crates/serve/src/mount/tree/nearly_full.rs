//! A volume with little room, and a kernel that takes writes into its pages without asking for any.
//!
//! Owns: which files the kernel must ask for before each write, how many bytes it may hold for the room that is left, and
//! which bytes from its pages could not be written. Excludes promises of room, which are the library's, and the answers to
//! the kernel's questions (`asking`).
//!
//! - With less room than [`LITTLE`] the kernel asks before each `write` to a file, and only what has room is taken. Until
//!   then it may take what one call can bring, and what it may hold: together less than that.
//! - The less room, the less the kernel may hold, where this process may set that limit. Bytes that a program changes in
//!   mapped memory are not asked for.
//! - After bytes of a file were lost all the same, the next `write` to the file fails once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use fuse::Errno;
use ondisk::units::InodeNumber;
use platfs::Volume;

use super::super::tuning::Limits;
use platfs_open::locks::locked;

/// With less room than this, the kernel asks before each write: twice what one call can write. Volumes that are not
/// larger are mounted without the kernel's writeback cache.
pub const LITTLE: u64 = 4 << 30;
/// Fewest bytes that the kernel may hold. With less, a writer of a long file would wait for each piece.
const LEAST_HELD: u64 = 4 << 20;
/// The part of the room that the kernel may hold.
const HELD_PART: u64 = 8;
/// With room for this many times what the kernel lets all disks have, it may hold that.
const PLENTY: u64 = 2;
/// Dirty bytes that the kernel lets all disks have, where it does not say.
const MOST_HELD: u64 = 64 << 30;
/// Fewest bytes that are written until the room is looked at again, and the part of the room.
const LOOK: u64 = 256 << 10;
const LOOK_PART: u64 = 16;
/// For at least so long a writer near a limit of quota is remembered, and at most for twice as long.
const STRETCH: Duration = Duration::from_secs(30);

/// The least that limits of quota left to a writer, in this stretch of time and the one before.
struct Near {
    since: Instant,
    now: u64,
    before: u64,
}

impl Default for Near {
    fn default() -> Self {
        Near { since: Instant::now(), now: u64::MAX, before: u64::MAX }
    }
}

impl Near {
    fn least(&mut self, at: Instant) -> u64 {
        let elapsed = at.saturating_duration_since(self.since);
        if elapsed >= STRETCH {
            self.before = if elapsed < STRETCH * 2 { self.now } else { u64::MAX };
            (self.since, self.now) = (at, u64::MAX);
        }
        self.now.min(self.before)
    }
}

/// A file that is open for writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Open {
    times: u32,
    /// How far the bytes reach that the kernel was let take.
    end: u64,
}

/// State of a volume that is nearly full.
#[derive(Default)]
pub(super) struct NearlyFull {
    limits: OnceLock<Limits>,
    /// Bytes that may be written until the room is looked at again.
    until_look: AtomicI64,
    near: Mutex<Near>,
    open: Mutex<HashMap<InodeNumber, Open>>,
    /// Files whose next `write` is to fail.
    lost: Mutex<HashMap<InodeNumber, Errno>>,
    has_lost: AtomicBool,
    is_short: AtomicBool,
}

impl NearlyFull {
    pub(super) fn limited_by(&self, limits: Limits) {
        let _ = self.limits.set(limits);
    }

    /// `bytes` have taken room, written or given space to: looks at what is left if it is time. Says whether there is
    /// little from now on.
    #[must_use]
    pub(super) fn took(&self, volume: &Volume, bytes: u64) -> bool {
        // More than any volume has at once, and too little for a sum of many to overflow.
        let bytes = i64::try_from(bytes.min(1 << 50)).unwrap_or(i64::MAX);
        self.until_look.fetch_sub(bytes, Ordering::Relaxed) < bytes && self.look(volume)
    }

    /// Limits of quota leave so much to a writer. If that is less than what is known, the kernel may hold less from now
    /// on, until no such writer was seen for a while. Says whether there is little from now on.
    #[must_use]
    pub(super) fn is_near_limit(&self, left: u64) -> bool {
        let before = {
            let mut near = locked(&self.near);
            let before = near.least(Instant::now());
            near.now = near.now.min(left);
            before
        };
        let until = i64::try_from((left / LOOK_PART).max(LOOK)).unwrap_or(i64::MAX);
        if left < before {
            self.until_look.fetch_min(until, Ordering::Relaxed);
        }
        if let (Some(limits), true) = (self.limits.get(), left < before) {
            limits.hold_at_most(held(left, Limits::most_held().unwrap_or(MOST_HELD)));
        }
        left < LITTLE && !self.is_short.swap(true, Ordering::SeqCst)
    }

    /// Looks at the room, and says how much of it the kernel may hold. Says whether there is little from now on.
    #[must_use]
    pub(super) fn look(&self, volume: &Volume) -> bool {
        let near = locked(&self.near).least(Instant::now());
        let room = room(volume).min(near);
        if let Some(limits) = self.limits.get() {
            limits.hold(held(room, Limits::most_held().unwrap_or(MOST_HELD)));
        }
        let until = (room / LOOK_PART).max(LOOK);
        self.until_look.store(i64::try_from(until).unwrap_or(i64::MAX), Ordering::Relaxed);
        !self.is_short.swap(room < LITTLE, Ordering::SeqCst) && room < LITTLE
    }

    /// A file is opened for writing.
    pub(super) fn opened(&self, file: InodeNumber) {
        locked(&self.open).entry(file).or_default().times += 1;
    }

    /// Says whether nobody has a file open for writing any more.
    pub(super) fn closed(&self, file: InodeNumber) -> bool {
        let mut open = locked(&self.open);
        let Some(found) = open.get_mut(&file) else { return false };
        found.times -= 1;
        let is_last = found.times == 0;
        if is_last {
            open.remove(&file);
        }
        is_last
    }

    /// Files that are open for writing.
    pub(super) fn all_open(&self) -> Vec<InodeNumber> {
        locked(&self.open).keys().copied().collect()
    }

    pub(super) fn is_open(&self, file: InodeNumber) -> bool {
        locked(&self.open).contains_key(&file)
    }

    /// Returns true if there is little room.
    pub(super) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::SeqCst)
    }

    /// Where a file ends, of which the server knows `size` bytes, with those that the kernel was let take.
    pub(super) fn end(&self, file: InodeNumber, size: u64) -> u64 {
        locked(&self.open).get(&file).map_or(size, |open| open.end.max(size))
    }

    /// The kernel is let take bytes up to here, or a file was cut there.
    pub(super) fn set_end(&self, file: InodeNumber, end: u64) {
        if let Some(open) = locked(&self.open).get_mut(&file) {
            open.end = end;
        }
    }

    /// Bytes of a file could not be written: its next `write` is to fail.
    pub(super) fn lost(&self, file: InodeNumber, error: Errno) {
        self.has_lost.store(true, Ordering::SeqCst);
        locked(&self.lost).insert(file, error);
    }

    /// Takes the error to report of a file; the caller reports it.
    pub(super) fn report(&self, file: InodeNumber) -> Option<Errno> {
        if self.has_lost() { locked(&self.lost).remove(&file) } else { None }
    }

    fn has_lost(&self) -> bool {
        self.has_lost.load(Ordering::SeqCst)
    }

    /// Returns true if the next `write` to a file is to fail.
    pub(super) fn watches(&self, file: InodeNumber) -> bool {
        self.has_lost() && locked(&self.lost).contains_key(&file)
    }

    /// The kernel has forgotten a file: nobody writes to it any more.
    pub(super) fn forget(&self, file: InodeNumber) {
        locked(&self.open).remove(&file);
        if self.has_lost() {
            locked(&self.lost).remove(&file);
        }
    }
}

/// Bytes of room. The user whom the superblock lets take the reserve too is treated as all others.
fn room(volume: &Volume) -> u64 {
    let Some((clusters, _)) = volume.space().free_after_sync() else { return u64::MAX };
    let geometry = &volume.format().geometry;
    let reserved = volume.superblock().reserved_blocks_count();
    let blocks = clusters.saturating_mul(1 << geometry.cluster_log2).saturating_sub(reserved);
    blocks.saturating_mul(u64::from(geometry.block_size.bytes()))
}

/// Returns true if a volume is so large that the kernel need not ask before each write, as long as it is not nearly full.
#[must_use]
pub fn is_roomy(volume: &Volume) -> bool {
    let geometry = &volume.format().geometry;
    geometry.blocks.saturating_mul(u64::from(geometry.block_size.bytes())) > LITTLE
}

/// Bytes that the kernel may hold with so much room, if it lets all disks have `most`: in steps, since each change costs
/// system calls. With plenty of room the limit comes before the pages that the kernel holds could fill it.
fn held(room: u64, most: u64) -> u64 {
    if room >= most.saturating_mul(PLENTY) {
        return u64::MAX;
    }
    let part = (room / HELD_PART).max(LEAST_HELD);
    1 << part.ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_may_hold_less_the_less_room_there_is() {
        let most = 32 << 30;
        assert_eq!(held(0, most), LEAST_HELD);
        assert_eq!(held(40 << 20, most), LEAST_HELD);
        assert_eq!(held(1 << 30, most), 128 << 20);
        assert_eq!(held((1 << 30) - 1, most), 64 << 20);
        assert_eq!(held(64 << 30, most), u64::MAX);
        assert_eq!(held(u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(held(0, 0), u64::MAX, "a kernel that holds nothing needs no limit");
        let steps: std::collections::BTreeSet<u64> = (0..64 << 10).map(|mib| held(mib << 20, most)).collect();
        assert_eq!(steps.len(), 11, "{steps:?}");
    }

    #[test]
    fn a_writer_near_a_limit_has_the_room_looked_at_and_writes_asked_for() {
        let full = NearlyFull::default();
        let until = || full.until_look.load(Ordering::Relaxed);
        full.until_look.store(1 << 40, Ordering::Relaxed);
        assert!(!full.is_near_limit(LITTLE << 1));
        assert_eq!(until(), 1 << 29);
        assert!(!full.is_short());
        assert!(full.is_near_limit(1 << 20));
        assert_eq!(until(), 256 << 10);
        full.until_look.store(1 << 40, Ordering::Relaxed);
        assert!(!full.is_near_limit(1 << 21), "it was short before");
        assert_eq!(until(), 1 << 40, "another one was nearer");
        assert!(!full.is_near_limit(0) && full.is_short());
        assert_eq!(until(), 256 << 10);
    }

    #[test]
    fn a_writer_near_a_limit_is_remembered_for_a_while() {
        let mut near = Near::default();
        let at = |seconds: u64| near_start() + Duration::from_secs(seconds);
        near.since = at(0);
        near.now = 7;
        assert_eq!([1, 29, 31, 59].map(|seconds| near.least(at(seconds))), [7; 4]);
        assert_eq!(near.least(at(62)), u64::MAX);
        near.now = 9;
        assert_eq!(near.least(at(200)), u64::MAX);
    }

    /// A moment that all of a test counts from.
    fn near_start() -> Instant {
        static START: OnceLock<Instant> = OnceLock::new();
        *START.get_or_init(Instant::now)
    }

    #[test]
    fn an_error_is_reported_once_and_only_for_its_file() {
        let full = NearlyFull::default();
        let [one, other] = [12, 13].map(|number| InodeNumber::new(number).unwrap());
        assert_eq!(full.report(one), None);
        full.lost(one, Errno::NOSPC);
        full.lost(one, Errno::DQUOT);
        assert!(full.watches(one) && !full.watches(other));
        assert_eq!(full.report(one), Some(Errno::DQUOT));
        assert_eq!(full.report(one), None);
        full.lost(other, Errno::IO);
        full.forget(other);
        assert_eq!(full.report(other), None);
    }

    #[test]
    fn files_are_open_until_their_last_close() {
        let full = NearlyFull::default();
        let [one, other] = [12, 13].map(|number| InodeNumber::new(number).unwrap());
        full.opened(one);
        full.opened(one);
        full.set_end(one, 70);
        full.set_end(other, 70);
        assert_eq!((full.end(one, 50), full.end(one, 90), full.end(other, 50)), (70, 90, 50));
        assert_eq!(full.all_open(), [one]);
        assert!(!full.closed(one) && full.closed(one) && !full.closed(one) && !full.is_open(one));
        full.opened(other);
        full.forget(other);
        assert!(full.all_open().is_empty());
    }
}
