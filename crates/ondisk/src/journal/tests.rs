use super::log::{CommitTime, Header, LogFormat, Tag, TransactionCrc, escape, is_later, unescape};
use super::*;
use proptest::prelude::*;

fn empty() -> RawJournalSuperblock {
    RawJournalSuperblock::empty(BlockSize::from_log2(12).unwrap(), 1024, 0, [7; 16])
}

#[test]
fn an_empty_journal_round_trips_and_is_clean() {
    let raw = empty();
    let read = RawJournalSuperblock::parse(raw.as_bytes()).unwrap();
    assert!(read.is_clean());
    assert_eq!(read.as_bytes(), raw.as_bytes());
    assert_eq!(&raw.as_bytes()[..8], [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 4]);
}

#[test]
fn checksums_count_only_with_their_feature() {
    let mut raw = empty();
    raw.s_checksum.set(1);
    assert!(RawJournalSuperblock::parse(raw.as_bytes()).is_ok());
    raw.s_feature_incompat.set(JournalIncompat::CSUM_V3.bits());
    assert!(RawJournalSuperblock::parse(raw.as_bytes()).is_err());
    raw.seal();
    assert!(RawJournalSuperblock::parse(raw.as_bytes()).is_ok());
    assert_eq!(raw.feature_names(), ["journal_checksum_v3"]);
}

#[test]
fn contradictions_are_named() {
    let mut raw = empty();
    raw.s_start.set(1024);
    let error = RawJournalSuperblock::parse(raw.as_bytes()).unwrap_err();
    assert!(error.to_string().contains("start 1024"), "{error}");
    raw.h_blocktype.set(5);
    assert!(RawJournalSuperblock::parse(raw.as_bytes()).is_err());
}

/// Each way of sealing, with and without wide block numbers.
fn formats() -> Vec<LogFormat> {
    let mut all = Vec::new();
    for checksums in [JournalIncompat::empty(), JournalIncompat::CSUM_V2, JournalIncompat::CSUM_V3] {
        for wide in [JournalIncompat::empty(), JournalIncompat::BIT64] {
            let mut raw = RawJournalSuperblock::empty(BlockSize::from_log2(10).unwrap(), 1024, 0, [9; 16]);
            raw.s_feature_incompat.set((checksums | wide).bits());
            all.push(LogFormat::new(&raw));
        }
    }
    all
}

#[test]
fn descriptors_round_trip_and_their_checksums_cover_all() {
    for format in formats() {
        let wide = format.tags_max() != formats()[0].tags_max();
        let copy = [5; 1024];
        let checksum = format.tag_checksum(8, &copy);
        let tag = |block| Tag { block, escaped: block % 3 == 0, checksum };
        let tags: Vec<Tag> = (0..format.tags_max() as u64).map(tag).collect();
        let mut bytes = [0xFF; 1024];
        format.write_descriptor(8, &tags, &mut bytes);
        assert_eq!(Header::parse(&bytes), Some(Header { kind: Some(BlockKind::Descriptor), sequence: 8 }));
        assert!(format.tail_is_right(&bytes) && format.copy_is_right(&tags[0], 8, &copy));
        assert_eq!(format.tags(&bytes).collect::<Vec<_>>(), tags, "{format:?}, wide {wide}");
        if format.seals_blocks() {
            assert!(!format.copy_is_right(&tags[0], 9, &copy), "the transaction is covered");
            bytes[500] ^= 1;
            assert!(!format.tail_is_right(&bytes));
        }
    }
}

#[test]
fn numbers_of_64_bits_have_their_place() {
    let wide = formats().into_iter().filter(|format| format.revoked_max() < 150);
    for format in wide {
        let mut bytes = [0; 1024];
        let tag = Tag { block: 0x1_2345_6789, ..Tag::default() };
        format.write_descriptor(1, &[tag], &mut bytes);
        assert_eq!(format.tags(&bytes).next(), Some(tag));
        format.write_revoked(1, &[tag.block, 3], &mut bytes);
        assert_eq!(format.revoked(&bytes).unwrap().collect::<Vec<_>>(), [tag.block, 3]);
    }
}

#[test]
fn revocations_round_trip_and_say_no_more_than_fits() {
    for format in formats() {
        let blocks: Vec<u64> = (7..7 + format.revoked_max() as u64).collect();
        let mut bytes = [0xFF; 1024];
        format.write_revoked(3, &blocks, &mut bytes);
        assert!(format.tail_is_right(&bytes));
        assert_eq!(format.revoked(&bytes).unwrap().collect::<Vec<_>>(), blocks);
        bytes[12..16].copy_from_slice(&1025_u32.to_be_bytes());
        assert!(format.revoked(&bytes).is_err());
        bytes[12..16].copy_from_slice(&3_u32.to_be_bytes());
        assert_eq!(format.revoked(&bytes).unwrap().count(), 0);
    }
}

#[test]
fn a_commit_counts_if_its_first_sector_does() {
    let time = CommitTime { seconds: 1 << 33, nanoseconds: 5 };
    for format in formats() {
        let mut bytes = [0xFF; 1024];
        format.write_commit(3, time, 0, &mut bytes);
        assert!(format.commit_is_right(&bytes, 0));
        assert_eq!(format.commit_time(&bytes), time);
        bytes[512..].fill(3);
        assert!(format.commit_is_right(&bytes, 0));
        bytes[55] ^= 1;
        assert_eq!(format.commit_is_right(&bytes, 0), !format.seals_blocks());
    }
}

#[test]
fn commits_of_the_first_version_cover_their_transaction() {
    let mut raw = RawJournalSuperblock::empty(BlockSize::from_log2(10).unwrap(), 1024, 0, [9; 16]);
    raw.s_feature_compat.set(JournalCompat::CHECKSUM.bits());
    let format = LogFormat::new(&raw);
    let mut crc = TransactionCrc::default();
    crc.add(&[1; 1024]);
    let mut bytes = [0; 1024];
    format.write_commit(3, CommitTime::default(), crc.value(), &mut bytes);
    assert!(format.commit_is_right(&bytes, crc.value()) && !format.commit_is_right(&bytes, 1));
    bytes[12..20].fill(0);
    assert!(format.commit_is_right(&bytes, 1), "without a checksum there is nothing to be wrong");
}

#[test]
fn the_magic_is_taken_out_and_put_back() {
    let mut copy = JOURNAL_MAGIC.to_be_bytes().to_vec();
    copy.push(7);
    let before = copy.clone();
    assert!(escape(&mut copy) && copy == [0, 0, 0, 0, 7] && !escape(&mut copy));
    unescape(&mut copy);
    assert_eq!(copy, before);
}

#[test]
fn transactions_are_counted_round() {
    assert!(is_later(3, 2) && is_later(1, u32::MAX) && !is_later(2, 2) && !is_later(u32::MAX, 0));
}

proptest! {
    #[test]
    fn any_block_is_taken_apart(bytes in prop::collection::vec(any::<u8>(), 0..1100)) {
        for format in formats() {
            prop_assert!(format.tags(&bytes).count() <= 128);
            let _ = format.revoked(&bytes).map(Iterator::count);
            let _ = (format.tail_is_right(&bytes), format.commit_is_right(&bytes, 0));
            let _ = (format.commit_time(&bytes), Header::parse(&bytes));
        }
    }

    #[test]
    fn any_bytes_parse_or_complain(bytes in prop::collection::vec(any::<u8>(), 0..1100)) {
        let _ = RawJournalSuperblock::parse(&bytes);
    }
}
