use ondisk::features::Incompat;
use ondisk::journal::log::{CommitTime, Tag, escape};
use ondisk::journal::{JournalIncompat, RawJournalSuperblock};
use ondisk::superblock::{STATE_ERROR, SUPERBLOCK_OFFSET};
use ondisk::units::InodeNumber;
use zerocopy::IntoBytes;

use platfs_device::journal::Log;

use super::*;
use crate::device::MemoryDevice;
use crate::mkfs::{FsType, Options, Plan};
use crate::{Format, OpenOptions, Volume, check, read_superblock};

/// A volume with a log that is written by hand, from its first block on.
struct Written {
    device: Arc<MemoryDevice>,
    log: Log,
    at: u32,
    sequence: u32,
}

const BLOCK: usize = 1024;

/// Receives every issue and repairs all.
#[derive(Default)]
struct Ears(Vec<check::Issue>);

impl check::Sink for Ears {
    fn issue(&mut self, issue: check::Issue) -> check::Decision {
        self.0.push(issue);
        check::Decision::Repair
    }
}

impl Written {
    fn new(features: JournalIncompat) -> Self {
        let device = Arc::new(MemoryDevice::new(16 << 20));
        let mut options = Options::new(FsType::Ext4);
        options.block_size = Some(1024);
        options.journal.size = Some(2 << 20);
        Plan::new(&options, device.size()).unwrap().write(&*device).unwrap();
        let shared: Arc<dyn Device> = device.clone();
        let mut raw = read_superblock(&*device).unwrap();
        let format = Format::from_superblock(&raw).unwrap();
        let mut features_of = raw.features();
        features_of.incompat |= Incompat::RECOVER;
        raw.set_features(features_of);
        format.sealer.seal_superblock(&mut raw);
        device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes()).unwrap();
        let mut log = Log::find(&shared, &raw).unwrap();
        log.superblock.s_feature_incompat.set(features.bits());
        log.superblock.s_checksum_type = ondisk::journal::JOURNAL_CHECKSUM_CRC32C;
        log.superblock.s_start.set(1);
        log.superblock.s_sequence.set(u32::MAX);
        log.format = ondisk::journal::log::LogFormat::new(&log.superblock);
        let mut written = Written { device, log, at: 1, sequence: u32::MAX };
        written.superblock(|_| ());
        written
    }

    fn superblock(&mut self, change: impl FnOnce(&mut RawJournalSuperblock)) {
        change(&mut self.log.superblock);
        self.log.superblock.seal();
        self.device.write_at(self.log.offset(0).unwrap(), self.log.superblock.as_bytes()).unwrap();
    }

    fn put(&mut self, bytes: &[u8]) -> u64 {
        let place = self.log.offset(self.at).unwrap();
        self.device.write_at(place, bytes).unwrap();
        self.at = if self.at + 1 == self.log.superblock.log_end() { 1 } else { self.at + 1 };
        place
    }

    /// Copies of blocks, each filled with one byte; returns where the first of them stands.
    fn copies(&mut self, copies: &[(u64, u8)]) -> u64 {
        let mut bytes: Vec<_> = copies.iter().map(|(_, byte)| vec![*byte; BLOCK]).collect();
        let mut tags = Vec::new();
        for ((block, _), bytes) in copies.iter().zip(&mut bytes) {
            let escaped = escape(bytes);
            let checksum = self.log.format.tag_checksum(self.sequence, bytes);
            tags.push(Tag { block: *block, escaped, checksum });
        }
        let mut descriptor = vec![0; BLOCK];
        self.log.format.write_descriptor(self.sequence, &tags, &mut descriptor);
        self.put(&descriptor);
        bytes.iter().map(|bytes| self.put(bytes)).collect::<Vec<_>>()[0]
    }

    fn revoke(&mut self, blocks: &[u64]) {
        let mut bytes = vec![0; BLOCK];
        self.log.format.write_revoked(self.sequence, blocks, &mut bytes);
        self.put(&bytes);
    }

    fn commit(&mut self) -> u64 {
        let mut bytes = vec![0; BLOCK];
        let time = CommitTime { seconds: 100, nanoseconds: 0 };
        self.log.format.write_commit(self.sequence, time, 0, &mut bytes);
        self.sequence = self.sequence.wrapping_add(1);
        self.put(&bytes)
    }

    fn shared(&self) -> Arc<dyn Device> {
        self.device.clone()
    }

    fn spoil(&self, place: u64) {
        self.device.write_at(place + 20, &[0xEE]).unwrap();
    }

    /// The first byte of a block, after replay in memory.
    fn replayed(&self, block: u64) -> (u8, Recovery) {
        let (device, recovery) = replayed(self.shared()).unwrap();
        let mut byte = [0];
        device.read_at(block * BLOCK as u64, &mut byte).unwrap();
        (byte[0], recovery)
    }
}

const SEALED: JournalIncompat = JournalIncompat::CSUM_V3.union(JournalIncompat::REVOKE);

#[test]
fn what_is_complete_counts_and_the_last_copy_wins() {
    for features in [JournalIncompat::empty(), JournalIncompat::CSUM_V2, SEALED, JournalIncompat::BIT64] {
        let mut written = Written::new(features);
        written.copies(&[(14000, 1), (14001, 1)]);
        written.commit();
        written.copies(&[(14001, 2)]);
        written.commit();
        written.copies(&[(14000, 3)]);
        let (byte, recovery) = written.replayed(14000);
        assert_eq!((byte, recovery.transactions, recovery.blocks), (1, 2, 2), "{features:?}");
        assert_eq!(written.replayed(14001).0, 2);
        let mut before = [9];
        written.device.read_at(14000 * 1024, &mut before).unwrap();
        assert_eq!(before, [0], "the device was changed");
    }
}

#[test]
fn a_revoked_copy_counts_again_if_its_block_comes_back_later() {
    let mut written = Written::new(SEALED);
    written.copies(&[(14000, 1), (14001, 1)]);
    written.commit();
    written.revoke(&[14000, 14001]);
    written.copies(&[(14002, 2)]);
    written.commit();
    assert_eq!((written.replayed(14000).0, written.replayed(14001).1.revoked), (0, 2));
    written.copies(&[(14001, 3)]);
    written.commit();
    assert_eq!((written.replayed(14000).0, written.replayed(14001).0), (0, 3));
}

#[test]
fn the_log_goes_round() {
    let mut written = Written::new(SEALED);
    let start = written.log.superblock.log_end() - 2;
    written.superblock(|raw| raw.s_start.set(start));
    written.at = start;
    written.copies(&[(14000, 1), (14001, 2)]);
    written.commit();
    assert_eq!((written.replayed(14000).0, written.replayed(14001).0), (1, 2));
}

#[test]
fn replay_on_the_device_empties_the_log_and_tells_of_recorded_errors() {
    let mut written = Written::new(SEALED);
    written.copies(&[(14000, 1)]);
    written.commit();
    written.superblock(|raw| raw.s_errno.set((-5_i32).cast_unsigned()));
    let device = written.shared();
    assert_eq!(replay(&device).unwrap().recorded_error, Some(5));
    let raw = read_superblock(&*device).unwrap();
    assert!(!is_pending(&raw) && raw.s_state.get() & STATE_ERROR != 0);
    let log = Log::find(&device, &raw).unwrap();
    assert!(log.superblock.is_clean() && log.superblock.s_errno.get() == 0);
    assert_eq!(log.superblock.s_sequence.get(), written.sequence.wrapping_add(1));
    assert_eq!(replay(&device).unwrap(), Recovery::default());
}

fn refusal(device: Arc<dyn Device>) -> String {
    let write = OpenOptions::new().write(true).unordered(true);
    match Volume::open(device, &write) {
        Err(Error::Unsupported(why)) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("opened for writing"),
    }
}

#[test]
fn damage_ends_replay_is_reported_and_keeps_the_volume_from_being_written() {
    // Of the copy, of the commit; the first has its transaction still counted, as in Linux.
    for spoiled in [0, 1] {
        let mut written = Written::new(SEALED);
        written.copies(&[(14000, 1)]);
        written.commit();
        let copy = written.copies(&[(14001, 2)]);
        let commit = written.commit();
        written.spoil([copy, commit][spoiled]);
        let (byte, recovery) = written.replayed(14000);
        assert_eq!((byte, written.replayed(14001).0), (1, 0));
        assert!(recovery.damage.as_ref().unwrap().contains("transaction 0"), "{recovery:?}");
        let before = read_superblock(&*written.device).unwrap();
        assert!(refusal(written.shared()).contains("damaged"));
        assert_eq!(before.as_bytes(), read_superblock(&*written.device).unwrap().as_bytes());
    }
}

#[test]
fn an_early_commit_with_a_wrong_checksum_is_the_end() {
    let mut written = Written::new(SEALED | JournalIncompat::ASYNC_COMMIT);
    written.copies(&[(14000, 1)]);
    let commit = written.commit();
    written.spoil(commit);
    let (byte, recovery) = written.replayed(14000);
    assert_eq!((byte, recovery.transactions, recovery.missing()), (0, 0, None));
}

#[test]
fn hostile_logs_are_refused_by_name() {
    let complaint = |written: &Written| replayed(written.shared()).err().unwrap().to_string();
    for (block, said) in [(1 << 40, "outside the volume"), (0, "one of its own")] {
        let mut written = Written::new(SEALED | JournalIncompat::BIT64);
        let own = written.log.offset(7).unwrap() / 1024;
        written.copies(&[(if block == 0 { own } else { block }, 1)]);
        written.commit();
        assert!(complaint(&written).contains(said), "{}", complaint(&written));
    }
    let mut written = Written::new(SEALED);
    written.superblock(|raw| raw.s_blocksize.set(4096));
    assert!(complaint(&written).contains("4096"));
    written.superblock(|raw| {
        raw.s_blocksize.set(1024);
        raw.s_maxlen.set(1 << 30);
    });
    assert!(complaint(&written).contains("claims"));
    written.superblock(|raw| {
        raw.s_maxlen.set(1024);
        raw.s_feature_incompat.set(1 << 20);
    });
    assert!(complaint(&written).contains("unknown features"));
}

#[test]
fn a_log_that_cannot_be_replayed_is_emptied_by_a_repair_that_asks() {
    let mut written = Written::new(JournalIncompat::REVOKE);
    let place = written.log.offset(written.at).unwrap();
    written.revoke(&[14000]);
    written.commit();
    // It claims more bytes than a block has.
    written.device.write_at(place + 12, &0xFFFF_u32.to_be_bytes()).unwrap();
    let mut ears = Ears::default();
    let outcome = check::check(written.shared(), &check::Options::default(), &mut ears).unwrap();
    assert!(matches!(&ears.0[..], [issue] if issue.kind.id == "journal-damaged" && !issue.kind.safe));
    assert!(outcome.summary.is_sound(), "{:?}", outcome.summary);
    let repaired: Arc<dyn Device> = outcome.repaired.clone();
    let mut again = Ears::default();
    check::check(Arc::clone(&repaired), &check::Options::default(), &mut again).unwrap();
    assert_eq!(again.0, []);
    assert!(Volume::open(repaired, &OpenOptions::new()).unwrap().recovery().is_none());
}

#[test]
fn a_check_refuses_changes_that_wait_on_another_device() {
    let written = Written::new(SEALED);
    let mut raw = read_superblock(&*written.device).unwrap();
    raw.s_journal_inum.set(0);
    raw.s_journal_uuid = [7; 16];
    Format::from_superblock(&raw).unwrap().sealer.seal_superblock(&mut raw);
    written.device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes()).unwrap();
    let refused = check::check(written.shared(), &check::Options::default(), &mut Ears::default());
    assert!(refused.err().unwrap().to_string().contains("another device"));
}

/// Descriptors all around and no commit: Linux would go round for ever.
#[test]
fn a_log_without_end_holds_nothing() {
    let mut written = Written::new(SEALED);
    for _ in 1..written.log.superblock.log_end() {
        let mut bytes = vec![0; BLOCK];
        written.log.format.write_revoked(written.sequence, &[], &mut bytes);
        written.put(&bytes);
    }
    assert_eq!(written.replayed(14000).1.transactions, 0);
}

#[test]
fn a_journal_elsewhere_is_refused_by_name() {
    let written = Written::new(SEALED);
    let mut raw = read_superblock(&*written.device).unwrap();
    raw.s_journal_inum.set(0);
    Format::from_superblock(&raw).unwrap().sealer.seal_superblock(&mut raw);
    written.device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes()).unwrap();
    assert!(replayed(written.shared()).err().unwrap().to_string().contains("another device"));
    assert!(Volume::open(written.shared(), &OpenOptions::new().noload(true)).is_ok());
    raw.s_journal_inum.set(InodeNumber::ROOT.get());
    Format::from_superblock(&raw).unwrap().sealer.seal_superblock(&mut raw);
    written.device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes()).unwrap();
    assert!(replayed(written.shared()).err().unwrap().to_string().contains("not the file of a journal"));
}
