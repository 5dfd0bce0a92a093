//! Each case of the rule, with a clock of the test's own.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ondisk::features::Incompat;
use ondisk::mmp::{MMP_CHECK, MmpUse, RawMmp};
use ondisk::seal::Sealer;
use ondisk::superblock::{MAGIC, RawSuperblock, SUPERBLOCK_OFFSET};
use zerocopy::{FromZeros, IntoBytes};

use super::*;
use crate::{Error, MemoryDevice};

const BLOCK: u64 = 4096;
const MARK: u64 = 9;

/// A disk that several hosts reach.
struct Disk(MemoryDevice);

impl Device for Disk {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.0.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.write_at(offset, data)
    }

    fn flush(&self) -> std::io::Result<()> {
        Ok(())
    }
}

type Action = Box<dyn FnOnce() + Send>;

/// A host whose time goes on only when it waits, while others do what they do.
struct Simulated {
    name: &'static str,
    millis: AtomicU64,
    next: AtomicU32,
    /// Each wait in turn: seconds.
    waits: Mutex<Vec<u64>>,
    /// Actions of others during each wait.
    meanwhile: Mutex<Vec<Action>>,
    lost: Mutex<Vec<String>>,
}

impl Simulated {
    fn new(name: &'static str) -> Arc<Self> {
        Self::beside(name, Vec::new())
    }

    fn beside(name: &'static str, meanwhile: Vec<Action>) -> Arc<Self> {
        let (waits, lost) = (Mutex::default(), Mutex::default());
        let next = AtomicU32::new(u32::from(name.as_bytes()[0]) * 1000);
        Arc::new(Simulated {
            name,
            millis: AtomicU64::new(0),
            next,
            waits,
            meanwhile: Mutex::new(meanwhile),
            lost,
        })
    }

    fn pass(&self, seconds: u64) {
        self.millis.fetch_add(seconds * 1000, Ordering::SeqCst);
    }

    fn waits(&self) -> Vec<u64> {
        self.waits.lock().unwrap().clone()
    }
}

impl Host for Simulated {
    fn names(&self) -> (Vec<u8>, Vec<u8>) {
        (self.name.into(), b"sdx".to_vec())
    }

    fn now(&self) -> u64 {
        1_000_000 + self.millis.load(Ordering::SeqCst) / 1000
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.millis.load(Ordering::SeqCst))
    }

    fn wait(&self, time: Duration) {
        self.pass(time.as_secs());
        self.waits.lock().unwrap().push(time.as_secs());
        let mut all = self.meanwhile.lock().unwrap();
        let deed = (!all.is_empty()).then(|| all.remove(0));
        drop(all);
        if let Some(deed) = deed {
            deed();
        }
    }

    fn random(&self) -> u32 {
        self.next.fetch_add(1, Ordering::SeqCst)
    }

    fn lost(&self, why: &str) {
        self.lost.lock().unwrap().push(why.to_owned());
    }
}

fn superblock() -> RawSuperblock {
    let mut raw = RawSuperblock::new_zeroed();
    raw.s_magic.set(MAGIC);
    raw.s_rev_level.set(1);
    raw.s_log_block_size.set(2);
    raw.s_log_cluster_size.set(2);
    raw.s_blocks_count_lo.set(64);
    raw.s_blocks_per_group.set(32768);
    raw.s_clusters_per_group.set(32768);
    raw.s_inodes_per_group.set(32);
    raw.s_inodes_count.set(32);
    raw.s_inode_size.set(256);
    raw.s_first_ino.set(11);
    let mut features = raw.features();
    features.incompat |= Incompat::MMP;
    raw.set_features(features);
    raw.s_mmp_block.set(MARK);
    // Longer than a test: the thread of a device that is held has nothing to do.
    raw.s_mmp_update_interval.set(200);
    raw
}

fn put(device: &dyn Device, raw: &RawSuperblock, mark: &RawMmp) {
    device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes()).unwrap();
    let mut mark = *mark;
    Sealer::from_superblock(raw).seal_mmp(mark.as_mut_bytes());
    device.write_at(raw.s_mmp_block.get() * BLOCK, mark.as_bytes()).unwrap();
}

/// A disk with a mark of that sequence, by a host called "other".
fn disk(seq: Option<u32>) -> Arc<dyn Device> {
    let disk: Arc<dyn Device> = Arc::new(Disk(MemoryDevice::new(64 * BLOCK)));
    put(&*disk, &superblock(), &marked(seq));
    disk
}

fn marked(seq: Option<u32>) -> RawMmp {
    let mut mark = RawMmp::clean(999_990, 5, b"other", b"sdy");
    if let Some(seq) = seq {
        mark.mmp_seq.set(seq);
    }
    mark
}

fn mark(device: &Arc<dyn Device>) -> RawMmp {
    read_block(&**device, &read_superblock(&**device).unwrap()).unwrap()
}

/// A deed of the host "other": it writes a sequence.
fn writes(device: &Arc<dyn Device>, seq: u32) -> Action {
    let device = Arc::clone(device);
    Box::new(move || put(&*device, &superblock(), &marked(Some(seq))))
}

fn nothing() -> Action {
    Box::new(|| {})
}

fn refusal(taken: Result<Option<MmpGuard>>) -> String {
    match taken {
        Err(Error::InUse(why)) => why,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was taken"),
    }
}

#[test]
fn a_clean_mark_is_taken_shown_and_cleared() {
    let disk = disk(None);
    let host = Simulated::new("here");
    let held = acquire(&disk, Purpose::Write, host.clone()).unwrap().unwrap();
    // min(2 * 200 + 1, 200 + 60), as Linux.
    assert_eq!(host.waits(), [130, 130]);
    let there = mark(&disk);
    assert_eq!((there.usage(), there.node(), there.device()), (MmpUse::Mounted, &b"here"[..], &b"sdx"[..]));
    assert_eq!((there.mmp_time.get(), there.mmp_check_interval.get()), (1_000_260, 300));
    assert_eq!(held.protection(), Protection::Alone);
    drop(held);
    assert!(mark(&disk).is_clean());
    assert_eq!(host.lost.lock().unwrap().len(), 0);
}

#[test]
fn the_mark_of_a_dead_host_is_waited_out() {
    let disk = disk(Some(77));
    let host = Simulated::new("here");
    let held = acquire(&disk, Purpose::Write, host.clone()).unwrap().unwrap();
    assert_eq!(host.waits(), [325, 130, 130]);
    assert_ne!(mark(&disk).mmp_seq.get(), 77);
    drop(held);
    assert!(mark(&disk).is_clean());
}

#[test]
fn a_host_that_renews_its_mark_is_named_and_left_alone() {
    let disk = disk(Some(77));
    let host = Simulated::beside("here", vec![writes(&disk, 78)]);
    let why = refusal(acquire(&disk, Purpose::Write, host.clone()));
    assert!(why.starts_with("'other' (its device 'sdy', its mark 335 s old"), "{why}");
    assert_eq!((host.waits().len(), mark(&disk).mmp_seq.get()), (1, 78));
}

#[test]
fn a_host_that_closes_meanwhile_is_refused_as_by_linux() {
    let disk = disk(Some(77));
    let other = Arc::clone(&disk);
    let closes: Action = Box::new(move || put(&*other, &superblock(), &marked(None)));
    refusal(acquire(&disk, Purpose::Write, Simulated::beside("here", vec![closes])));
    assert!(mark(&disk).is_clean());
}

#[test]
fn of_two_that_take_it_at_once_the_last_has_it() {
    for (seq, meanwhile) in [(None, 1), (None, 2), (Some(77), 2), (Some(77), 3)] {
        let disk = disk(seq);
        let deeds = (1..meanwhile).map(|_| nothing()).chain([writes(&disk, 500)]).collect();
        let why = refusal(acquire(&disk, Purpose::Write, Simulated::beside("here", deeds)));
        assert!(why.contains("'other'") && why.ends_with("took it at the same time"), "{why}");
        assert_eq!(mark(&disk).mmp_seq.get(), 500);
    }
}

/// A host that begins just behind another sees a mark that is not clean. As long as it waits, the other is no further than
/// its mount: the mark is renewed before.
#[test]
fn a_mark_is_renewed_while_it_is_taken() {
    let disk = disk(None);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let look = || -> Action {
        let (disk, seen) = (Arc::clone(&disk), Arc::clone(&seen));
        Box::new(move || seen.lock().unwrap().push(mark(&disk).mmp_seq.get()))
    };
    let host = Simulated::beside("here", vec![look(), look()]);
    let held = acquire(&disk, Purpose::Write, host).unwrap().unwrap();
    let seen = seen.lock().unwrap();
    assert!(seen.len() == 2 && seen[0] != seen[1] && seen[1] != mark(&disk).mmp_seq.get(), "{seen:?}");
    drop(held);
}

#[test]
fn a_check_keeps_mounts_and_checks_off_until_it_is_cleared() {
    let disk = disk(None);
    let held = acquire(&disk, Purpose::Check, Simulated::new("here")).unwrap().unwrap();
    assert_eq!(mark(&disk).mmp_seq.get(), MMP_CHECK);
    let time = mark(&disk).mmp_time.get();
    assert!(held.renew());
    assert_eq!((mark(&disk).mmp_seq.get(), mark(&disk).mmp_time.get()), (MMP_CHECK, time));
    for purpose in [Purpose::Write, Purpose::Check] {
        let late = Simulated::new("late");
        let why = refusal(acquire(&disk, purpose, late.clone()));
        assert!(why.contains("a check works on it") && why.contains("'here'"), "{why}");
        assert!(late.waits().is_empty());
    }
    drop(held);
    assert!(mark(&disk).is_clean());
}

#[test]
fn what_a_check_left_is_cleared_when_asked_but_not_from_one_that_lives() {
    let gone = disk(Some(MMP_CHECK));
    drop(acquire(&gone, Purpose::Clear { force: false }, Simulated::new("here")).unwrap().unwrap());
    assert!(mark(&gone).is_clean());
    let unknown = disk(Some(0xFFFF_0000));
    assert!(refusal(acquire(&unknown, Purpose::Write, Simulated::new("here"))).contains("unknown"));
    let host = Simulated::new("here");
    drop(acquire(&unknown, Purpose::Clear { force: true }, host.clone()).unwrap().unwrap());
    assert!(mark(&unknown).is_clean() && host.waits().is_empty());
    let alive = disk(Some(77));
    refusal(acquire(
        &alive,
        Purpose::Clear { force: false },
        Simulated::beside("here", vec![writes(&alive, 78)]),
    ));
    assert_eq!(mark(&alive).mmp_seq.get(), 78);
}

#[test]
fn renewals_change_the_sequence_and_start_again_behind_the_last() {
    let disk = disk(None);
    let host = Simulated::new("here");
    let held = acquire(&disk, Purpose::Write, host.clone()).unwrap().unwrap();
    let before = mark(&disk);
    host.pass(200);
    assert!(held.renew());
    let after = mark(&disk);
    assert_eq!(after.mmp_seq.get(), before.mmp_seq.get() + 1);
    assert_eq!(after.mmp_time.get(), before.mmp_time.get() + 200);
    let place = MmpBlock::from_superblock(&superblock()).unwrap();
    let mut last = after;
    last.mmp_seq.set(ondisk::mmp::MMP_SEQ_MAX);
    assert_eq!(place.next(&last, mark::NextSequence::Following, &*host).mmp_seq.get(), 1);
}

#[test]
fn a_foreign_mark_ends_all_writing_and_stays() {
    let disk = disk(None);
    let host = Simulated::new("here");
    let held = acquire(&disk, Purpose::Write, host.clone()).unwrap().unwrap();
    held.write_at(20 * BLOCK, b"mine").unwrap();
    writes(&disk, 900)();
    assert!(!held.renew());
    assert_eq!(held.protection(), Protection::Lost);
    let error = held.write_at(20 * BLOCK, b"late").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert!(error.to_string().starts_with("another host has taken it: 'other'"), "{error}");
    assert!(held.flush().is_err() && held.discard(0, BLOCK).is_err() && held.write_zeros(0, 1).is_err());
    let mut bytes = [0; 4];
    held.read_at(20 * BLOCK, &mut bytes).unwrap();
    assert_eq!(&bytes, b"mine");
    drop(held);
    assert_eq!(mark(&disk).mmp_seq.get(), 900);
    assert_eq!(host.lost.lock().unwrap().len(), 1);
}

/// A machine that slept: others waited, and one of them took the volume.
#[test]
fn who_stood_still_looks_before_it_writes() {
    let disk = disk(None);
    let host = Simulated::new("here");
    let held = acquire(&disk, Purpose::Write, host.clone()).unwrap().unwrap();
    host.pass(301);
    held.write_at(20 * BLOCK, b"mine").unwrap();
    writes(&disk, 900)();
    held.write_at(20 * BLOCK, b"more").unwrap();
    host.pass(301);
    assert!(held.write_at(20 * BLOCK, b"late").is_err());
    let mut bytes = [0; 4];
    disk.read_at(20 * BLOCK, &mut bytes).unwrap();
    assert_eq!(&bytes, b"more");
}

#[test]
fn the_mark_is_hidden_and_follows_the_superblock() {
    let disk = disk(None);
    let held = acquire(&disk, Purpose::Write, Simulated::new("here")).unwrap().unwrap();
    let mut raw = superblock();
    assert!(read_block(&held, &raw).unwrap().is_clean());
    let mut part = [0; 2];
    held.read_at(MARK * BLOCK + 6, &mut part).unwrap();
    assert_eq!(part, [0x4D, 0xFF]);
    // Written over with what was read.
    let mut block = vec![0; 4096];
    held.read_at(MARK * BLOCK, &mut block).unwrap();
    held.write_at(MARK * BLOCK, &block).unwrap();
    assert_eq!(mark(&disk).usage(), MmpUse::Mounted);
    // Moved, and the old block used for something else.
    held.write_at(12 * BLOCK, &block).unwrap();
    held.write_at(MARK * BLOCK, &[7; 4096]).unwrap();
    raw.s_mmp_block.set(12);
    held.write_at(SUPERBLOCK_OFFSET, raw.as_bytes()).unwrap();
    assert_eq!(mark(&disk).usage(), MmpUse::Mounted);
    assert!(held.renew());
    let mut old = vec![0; 4096];
    disk.read_at(MARK * BLOCK, &mut old).unwrap();
    assert_eq!(old, [7; 4096]);
    // Given up.
    let mut features = raw.features();
    features.incompat -= Incompat::MMP;
    raw.set_features(features);
    held.write_at(SUPERBLOCK_OFFSET, raw.as_bytes()).unwrap();
    let before = block.clone();
    disk.read_at(12 * BLOCK, &mut block).unwrap();
    drop(held);
    let mut after = vec![0; 4096];
    disk.read_at(12 * BLOCK, &mut after).unwrap();
    assert!(after == block && before != block);
}

#[test]
fn what_nobody_else_reaches_or_is_no_mark_is_not_held() {
    let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 * BLOCK));
    put(&*memory, &superblock(), &marked(Some(5)));
    assert!(acquire(&memory, Purpose::Write, Simulated::new("here")).unwrap().is_none());
    let damaged = disk(None);
    damaged.write_at(MARK * BLOCK, &[0; 4]).unwrap();
    assert!(acquire(&damaged, Purpose::Check, Simulated::new("here")).unwrap().is_none());
    let held = acquire(&disk(None), Purpose::Write, Simulated::new("here")).unwrap().unwrap();
    let held: Arc<dyn Device> = Arc::new(held);
    assert!(acquire(&held, Purpose::Write, Simulated::new("here")).unwrap().is_none());
}

/// Two threads with real time: the one that begins later sees the renewals of the first.
#[test]
fn the_thread_renews_the_mark() {
    let disk = disk(None);
    let mut raw = superblock();
    raw.s_mmp_update_interval.set(1);
    put(&*disk, &raw, &marked(None));
    let held = acquire(&disk, Purpose::Write, Simulated::new("here")).unwrap().unwrap();
    let before = mark(&disk).mmp_seq.get();
    while mark(&disk).mmp_seq.get() == before {
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(held);
    assert!(mark(&disk).is_clean());
}
