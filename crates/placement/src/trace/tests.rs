//! Round trips: a written trace reads back, and a recording replays to the same run.

use super::*;
use crate::{BlockPolicyKind, Engine, GroupContent, Layout, Request};
use ondisk::units::{Cluster, Group};
use proptest::prelude::*;
use std::sync::{Arc, Mutex};

const LAYOUT: Layout = Layout {
    clusters: 40_000,
    clusters_per_group: 32_768,
    groups: 2,
    inodes_per_group: 64,
    groups_per_flex: 1,
    block_bytes: 4_096,
    blocks_per_cluster: 1,
};

fn name() -> impl Strategy<Value = Name> {
    (0..3, any::<u64>()).prop_map(|(kind, key)| match kind {
        0 => Name::File(key),
        1 => Name::Metadata(key),
        _ => Name::Grant(key),
    })
}

fn ask() -> impl Strategy<Value = Ask> {
    let goal = prop_oneof![
        any::<u64>().prop_map(Goal::At),
        (name(), any::<u64>()).prop_map(|(name, at)| Goal::Behind(name, at)),
    ];
    let places = (0..u64::MAX - u64::from(u32::MAX), 0..u64::MAX - u64::from(u32::MAX), any::<u64>());
    (name(), goal, any::<[u32; 2]>(), any::<[bool; 5]>(), places, any::<[u64; 2]>()).prop_map(
        |(name, goal, [min, want], flags, (at, offset, size), [owner, directory])| {
            let [metadata, stream, extends, growing, promised] = flags;
            let kind = if metadata { Kind::Metadata } else { Kind::Data };
            Ask {
                name,
                at,
                goal,
                min,
                want,
                kind,
                stream,
                extends,
                growing,
                promised,
                owner,
                offset,
                size,
                directory,
            }
        },
    )
}

fn record() -> impl Strategy<Value = Record> {
    prop_oneof![
        any::<(u32, u32)>().prop_map(|(group, free)| Record::Group { group, free }),
        ask().prop_map(Record::Allocate),
        ask().prop_map(Record::Refused),
        (name(), 0..u64::MAX / 2, 0..u64::MAX / 2).prop_map(|(name, at, count)| Record::Free {
            name,
            at,
            count
        }),
        any::<u64>().prop_map(Record::Close),
        any::<u64>().prop_map(Record::Truncate),
        any::<u64>().prop_map(Record::Promise),
        any::<u64>().prop_map(Record::EndPromise),
        Just(Record::Settle),
    ]
}

fn read_all(bytes: &[u8]) -> Result<Vec<Record>, TraceError> {
    let mut reader = Reader::new(bytes)?;
    let mut records = Vec::new();
    while let Some(record) = reader.record()? {
        records.push(record);
    }
    Ok(records)
}

proptest! {
    #[test]
    fn what_is_written_is_read(records in prop::collection::vec(record(), 0..40), cut in any::<u32>()) {
        let mut bytes = Vec::new();
        put_head(&mut bytes, &LAYOUT);
        let head = bytes.len();
        for record in &records {
            put_record(&mut bytes, record);
        }
        prop_assert_eq!(read_all(&bytes).unwrap(), records.clone());
        // Cut anywhere, it is a shorter trace or a clear error, and never more records.
        let cut = head + cut as usize % (bytes.len() - head + 1);
        match read_all(&bytes[..cut]) {
            Ok(some) => prop_assert_eq!(&some[..], &records[..some.len()]),
            Err(error) => prop_assert!(matches!(error, TraceError::Short(_)), "{}", error),
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut trace = Vec::new();
        put_head(&mut trace, &LAYOUT);
        trace.extend(bytes);
        // Every record takes a byte at least.
        prop_assert!(read_all(&trace).map_or(0, |records| records.len()) <= trace.len());
    }
}

#[test]
fn heads_are_checked() {
    assert!(matches!(read_all(b"PLAT"), Err(TraceError::Magic)));
    assert!(matches!(read_all(b"PLATTRC\n\x01"), Err(TraceError::Version(1))));
    assert!(matches!(read_all(b"PLATTRC\n\x02\x00\x00\x00\x00\x00"), Err(TraceError::Layout(_))));
    assert!(matches!(read_all(b"PLATTRC\n\x80\x00"), Err(TraceError::Field { .. })));
}

#[test]
fn a_recording_names_files_and_places_in_them() {
    let bytes = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&bytes);
    let recorder =
        Arc::new(Recorder::new(&LAYOUT, move |part: &[u8]| sink.lock().unwrap().extend_from_slice(part)));
    let policy = BlockPolicyKind::Single.tuned(&[]).unwrap();
    let engine = Engine::with_sink(LAYOUT, policy, Some(recorder.clone())).unwrap();
    engine.describe_group(Group(0), 32_768, GroupContent::Uninitialised { used: &[] }).unwrap();
    engine.describe_group(Group(1), 7_232, GroupContent::Uninitialised { used: &[] }).unwrap();
    let request = Request { owner: 7, ..Request::data(Cluster(100), 3) };
    let first = engine.allocate(&request).unwrap().into_run();
    let next = Request { offset: 1, extends: true, goal: Cluster(first.end()), ..request };
    let second = engine.allocate(&next).unwrap().into_run();
    drop(engine.allocate(&Request::metadata(Cluster(0), 1)).unwrap());
    engine.closed(7);
    engine.free(ondisk::units::ClusterRun { start: first.start, count: 2 }).unwrap();
    assert_eq!((second.count, recorder.flush()), (1, 0));
    let records = read_all(&bytes.lock().unwrap()).unwrap();
    let file = Name::File(7);
    assert!(
        matches!(records[2], Record::Allocate(Ask { name, at: 0, goal: Goal::At(100), .. }) if name == file)
    );
    assert!(
        matches!(records[3], Record::Allocate(Ask { at: 1, goal: Goal::Behind(name, 0), .. }) if name == file)
    );
    assert!(matches!(records[4], Record::Allocate(Ask { name: Name::Grant(1), .. })));
    assert_eq!(records[5], Record::Free { name: Name::Grant(1), at: 0, count: 1 });
    assert_eq!(records[6], Record::Close(7));
    assert_eq!(records[7], Record::Free { name: file, at: 0, count: 1 });
    assert_eq!(records[8], Record::Free { name: file, at: 1, count: 1 });
    assert_eq!(records.len(), 9);
}
