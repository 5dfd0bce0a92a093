//! A volume that gets full, and a kernel that takes writes into its pages without asking for room.
//!
//! Owns: how many bytes the kernel may hold for the room that is left, and which bytes from its pages could not be
//! written without a program having heard of it. Excludes promises of room to bytes that have arrived, which are the
//! library's.
//!
//! - The less room, the less the kernel may hold: when room ends, no program is further ahead of this server than
//!   `LEAST_HELD`, where this process may set that limit.
//! - After bytes of a file were lost, the kernel asks before the next `write` to the file, and `write` fails.
//! - So does the next `write` to each other file of its owner that grew since room became short, as long as there is
//!   less room than the write that failed needs. Programs that write side by side so lose no more than one.
//! - A program may write each file once, and not look at the result of `close`. When files of a user have lost
//!   `LOST_MOST` in this way, the user's next new file is refused, or the first `write` to the next empty file that is
//!   opened, whichever is first. That holds as long as there is less room than such a write needs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use fuse::Errno;
use ondisk::quota::QuotaKind;
use ondisk::units::InodeNumber;
use platfs::Volume;

use super::super::tuning::Limits;

/// Fewest bytes that the kernel may hold. With less, a writer of a long file would wait for each piece.
const LEAST_HELD: u64 = 4 << 20;
/// The part of the room that the kernel may hold.
const HELD_PART: u64 = 8;
/// With room for this many times what the kernel lets all disks have, it may hold that.
const PLENTY: u64 = 2;
/// With less room than this, files that grow are remembered: more than the kernel may hold then.
const SHORT: u64 = 16 << 20;
/// What the kernel lets all disks have, where it does not say.
const MOST_HELD: u64 = 64 << 30;
/// Fewest bytes that are written until the room is looked at again, and the part of the room.
const LOOK: u64 = 256 << 10;
const LOOK_PART: u64 = 16;
/// Bytes that files of one user may lose before the user hears of it in another way than by `close`.
const LOST_MOST: u64 = 4 << 20;
/// Room for maps and directories, which a write needs beside the room for its bytes.
const BESIDE: u64 = 32 << 10;
/// For at least so long a writer near a limit of quota is remembered, and at most for twice as long.
const STRETCH: Duration = Duration::from_secs(30);
/// Users of whom that is remembered. There are more only if somebody makes them.
const USERS_MOST: usize = 1024;

/// Bytes of a file that came from the kernel's pages and could not be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lost {
    pub(super) error: Errno,
    pub(super) owner: u32,
    pub(super) bytes: u64,
    /// Nothing of this file, but another one of its owner lost bytes while this one grew.
    pub(super) is_growing: bool,
}

impl Lost {
    pub(super) fn of(error: Errno, owner: u32, bytes: u64) -> Self {
        Lost { error, owner, bytes, is_growing: false }
    }

    fn growing(error: Errno, owner: u32) -> Self {
        Lost { is_growing: true, ..Lost::of(error, owner, 0) }
    }
}

/// What files of one user lost for lack of room, of which no program has heard except from `close`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Debt {
    bytes: u64,
    /// Length of the shortest write that failed.
    shortest: u64,
    /// What the last write failed with: the end of room, or of what a limit allows.
    error: Errno,
}

#[derive(Debug, Default)]
struct Losses {
    /// Files whose next `write` is to fail.
    files: HashMap<InodeNumber, Lost>,
    users: HashMap<u32, Debt>,
    /// Files that grew since room became short, with their owners.
    growing: HashMap<InodeNumber, u32>,
}

impl Losses {
    fn add(&mut self, Lost { owner: user, bytes, error, .. }: Lost) {
        if self.users.len() < USERS_MOST || self.users.contains_key(&user) {
            let debt = self.users.entry(user).or_insert(Debt { bytes: 0, shortest: bytes, error });
            let (sum, shortest) = (debt.bytes.saturating_add(bytes), debt.shortest.min(bytes));
            *debt = Debt { bytes: sum, shortest, error };
        }
    }
}

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

/// What is known of the end of room.
#[derive(Default)]
pub(super) struct NearlyFull {
    limits: OnceLock<Limits>,
    /// Bytes that may be written until the room is looked at again.
    until_look: AtomicI64,
    near: Mutex<Near>,
    losses: Mutex<Losses>,
    /// Some user has lost bytes.
    has_lost: AtomicBool,
    is_short: AtomicBool,
}

impl NearlyFull {
    pub(super) fn limited_by(&self, limits: Limits) {
        let _ = self.limits.set(limits);
    }

    /// `bytes` have taken room, written or given space to: looks at what is left if it is time.
    pub(super) fn took(&self, volume: &Volume, bytes: u64) {
        // More than any volume has at once, and too little for a sum of many to overflow.
        let bytes = i64::try_from(bytes.min(1 << 50)).unwrap_or(i64::MAX);
        if self.until_look.fetch_sub(bytes, Ordering::Relaxed) < bytes {
            self.look(volume);
        }
    }

    /// Limits of quota leave so much to a writer. If that is less than what is known, the kernel may hold less from now
    /// on, until no such writer was seen for a while.
    pub(super) fn is_near_limit(&self, left: u64) {
        let before = {
            let mut near = self.near.lock().unwrap_or_else(PoisonError::into_inner);
            let before = near.least(Instant::now());
            near.now = near.now.min(left);
            before
        };
        let until = i64::try_from((left / LOOK_PART).max(LOOK)).unwrap_or(i64::MAX);
        if left < before {
            self.until_look.fetch_min(until, Ordering::Relaxed);
        }
        if left < SHORT {
            self.is_short.store(true, Ordering::Relaxed);
        }
        if let (Some(limits), true) = (self.limits.get(), left < before) {
            limits.hold_at_most(held(left, Limits::most_held().unwrap_or(MOST_HELD)));
        }
    }

    /// Looks at the room, and says how much of it the kernel may hold.
    pub(super) fn look(&self, volume: &Volume) {
        let near = self.near.lock().unwrap_or_else(PoisonError::into_inner).least(Instant::now());
        let room = room(volume, 1).min(near);
        if let Some(limits) = self.limits.get() {
            limits.hold(held(room, Limits::most_held().unwrap_or(MOST_HELD)));
        }
        if room >= LOST_MOST && self.has_lost() {
            self.losses().users.clear();
        }
        if self.is_short.swap(room < SHORT, Ordering::Relaxed) && room >= SHORT {
            self.losses().growing.clear();
        }
        let until = (room / LOOK_PART).max(LOOK);
        self.until_look.store(i64::try_from(until).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    fn losses(&self) -> MutexGuard<'_, Losses> {
        self.losses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of a file could not be written: its next `write` is to fail. Returns other files for which the kernel must
    /// ask before the next `write`.
    pub(super) fn lost(&self, file: InodeNumber, lost: Lost) -> Vec<InodeNumber> {
        let mut losses = self.losses();
        self.has_lost.store(true, Ordering::Relaxed);
        let bytes = losses.files.get(&file).map_or(0, |before| before.bytes);
        losses.files.insert(file, Lost { bytes: lost.bytes.saturating_add(bytes), ..lost });
        if !matches!(lost.error, Errno::NOSPC | Errno::DQUOT) {
            return Vec::new();
        }
        losses.add(lost);
        losses.growing.remove(&file);
        let others: Vec<_> = losses.growing.extract_if(|_, owner| *owner == lost.owner).collect();
        for (other, owner) in &others {
            losses.files.entry(*other).or_insert(Lost::growing(lost.error, *owner));
        }
        others.into_iter().map(|(other, _)| other).collect()
    }

    /// A file grew. Returns whether the kernel must ask before its next `write`.
    pub(super) fn grew(&self, file: InodeNumber, owner: u32) -> bool {
        if !self.is_short.load(Ordering::Relaxed) {
            return false;
        }
        let mut losses = self.losses();
        if let Some(error) = losses.users.get(&owner).map(|debt| debt.error) {
            losses.files.entry(file).or_insert(Lost::growing(error, owner));
            return true;
        }
        losses.growing.insert(file, owner);
        false
    }

    /// Whether there is less room for a user than a write needs that failed.
    pub(super) fn is_out(&self, volume: &Volume, user: u32) -> bool {
        let debt = self.losses().users.get(&user).copied();
        debt.is_some_and(|debt| room(volume, user) < debt.shortest.saturating_add(BESIDE))
    }

    /// What is to be reported of a file; the caller reports it.
    pub(super) fn report(&self, file: InodeNumber) -> Option<Lost> {
        let mut losses = self.losses();
        let lost = losses.files.remove(&file)?;
        if let Some(debt) = losses.users.get_mut(&lost.owner) {
            debt.bytes = debt.bytes.saturating_sub(lost.bytes);
        }
        Some(lost)
    }

    /// Whether it pays to ask [`NearlyFull::owes`].
    pub(super) fn has_lost(&self) -> bool {
        self.has_lost.load(Ordering::Relaxed)
    }

    /// The error that a user must hear of, if files of the user have lost much for lack of room, and there still is
    /// less than the shortest of the writes that failed needs.
    pub(super) fn owes(&self, volume: &Volume, user: u32) -> Option<Errno> {
        let debt = self.losses().users.get(&user).copied()?;
        (debt.bytes >= LOST_MOST && self.is_out(volume, user)).then_some(debt.error)
    }

    /// A user heard of it.
    pub(super) fn settle(&self, user: u32) {
        if let Some(debt) = self.losses().users.get_mut(&user) {
            debt.bytes = 0;
        }
    }

    /// A file is opened, and its first `write` is to fail if it needs room.
    pub(super) fn watch(&self, file: InodeNumber, error: Errno, owner: u32) {
        self.losses().files.entry(file).or_insert(Lost::of(error, owner, 0));
    }

    /// Whether the next `write` to a file is to fail.
    pub(super) fn watches(&self, file: InodeNumber) -> bool {
        self.has_lost() && self.losses().files.contains_key(&file)
    }

    /// The kernel has forgotten a file: nobody writes to it any more.
    pub(super) fn forget(&self, file: InodeNumber) {
        if self.has_lost() || self.is_short.load(Ordering::Relaxed) {
            let mut losses = self.losses();
            losses.files.remove(&file);
            losses.growing.remove(&file);
        }
    }
}

/// Bytes of room for a user. The user whom the superblock lets take the reserve too is treated as all others.
fn room(volume: &Volume, user: u32) -> u64 {
    let Some((clusters, _)) = volume.space().free_after_sync() else { return u64::MAX };
    let geometry = &volume.format().geometry;
    let reserved = if user == 0 { 0 } else { volume.superblock().reserved_blocks_count() };
    let blocks = clusters.saturating_mul(1 << geometry.cluster_log2).saturating_sub(reserved);
    let bytes = blocks.saturating_mul(u64::from(geometry.block_size.bytes()));
    // The user's own limit; what a group or a project may use is known for each file only.
    let limit = if user == 0 { None } else { limit_of(volume, user) };
    limit.map_or(bytes, |left| left.min(bytes))
}

/// Bytes that a user may take by the user's own limit.
fn limit_of(volume: &Volume, user: u32) -> Option<u64> {
    let quota = volume.quota();
    if !quota.is_enforced() {
        return None;
    }
    // What has lost its last name and its last user is still the user's.
    let _ = volume.uses().clear_away();
    let record = quota.record(QuotaKind::User, user).ok()?;
    let limit = Some(record.limits.hard_bytes).filter(|limit| *limit > 0)?;
    let used = record.usage.bytes.saturating_add(quota.reserved(QuotaKind::User, user));
    Some(limit.saturating_sub(used))
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
    fn a_writer_near_a_limit_has_the_room_looked_at() {
        let full = NearlyFull::default();
        let until = || full.until_look.load(Ordering::Relaxed);
        full.until_look.store(1 << 40, Ordering::Relaxed);
        full.is_near_limit(1 << 30);
        assert_eq!(until(), 1 << 26);
        assert!(!full.is_short.load(Ordering::Relaxed));
        full.is_near_limit(1 << 20);
        assert_eq!(until(), 256 << 10);
        full.until_look.store(1 << 40, Ordering::Relaxed);
        full.is_near_limit(1 << 21);
        assert_eq!(until(), 1 << 40, "another one was nearer");
        full.is_near_limit(0);
        assert!(full.is_short.load(Ordering::Relaxed));
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
        full.lost(one, Lost::of(Errno::NOSPC, 7, 100));
        full.lost(one, Lost::of(Errno::NOSPC, 7, 200));
        full.lost(other, Lost::of(Errno::NOSPC, 7, 1));
        assert_eq!(full.report(one), Some(Lost::of(Errno::NOSPC, 7, 300)));
        assert_eq!(full.report(one), None);
        assert_eq!(
            full.losses().users[&7],
            Debt { bytes: 1, shortest: 1, error: Errno::NOSPC },
            "a file that was reported is not owed to its user"
        );
        full.forget(other);
        assert_eq!(full.report(other), None);
        assert_eq!(
            full.losses().users[&7],
            Debt { bytes: 1, shortest: 1, error: Errno::NOSPC },
            "a file that is forgotten is"
        );
    }

    #[test]
    fn files_that_grow_beside_one_that_lost_bytes_are_asked_for() {
        let full = NearlyFull::default();
        let [one, other, of_another] = [12, 13, 14].map(|number| InodeNumber::new(number).unwrap());
        assert!(!full.grew(other, 7), "where there is room nothing is remembered");
        full.is_short.store(true, Ordering::Relaxed);
        assert!(!full.grew(one, 7) && !full.grew(other, 7) && !full.grew(of_another, 8));
        assert_eq!(full.lost(one, Lost::of(Errno::NOSPC, 7, 100)), [other]);
        assert!(full.watches(other) && !full.watches(of_another));
        assert_eq!(full.report(other), Some(Lost::growing(Errno::NOSPC, 7)));
        assert!(full.grew(other, 7), "it grew again, and there is still no room");
        assert_eq!(full.lost(one, Lost::of(Errno::IO, 8, 100)), [], "this was no lack of room");
        full.forget(of_another);
        assert_eq!(full.lost(one, Lost::of(Errno::NOSPC, 8, 100)), []);
    }

    #[test]
    fn what_a_limit_refused_is_reported_as_that_of_other_files_too() {
        let full = NearlyFull::default();
        let [one, other, later] = [12, 13, 14].map(|number| InodeNumber::new(number).unwrap());
        full.is_short.store(true, Ordering::Relaxed);
        assert!(!full.grew(other, 7));
        assert_eq!(full.lost(one, Lost::of(Errno::DQUOT, 7, 100)), [other]);
        assert_eq!(full.report(other), Some(Lost::growing(Errno::DQUOT, 7)));
        assert!(full.grew(later, 7));
        assert_eq!(full.report(later), Some(Lost::growing(Errno::DQUOT, 7)));
    }
}
