use super::*;
use crate::archive::{Device, Reader, Times};
use proptest::prelude::*;

fn plain(path: &[u8], kind: EntryKind) -> Entry {
    Entry {
        offset: 0,
        path: path.to_vec(),
        kind,
        target: Vec::new(),
        mode: 0o644,
        uid: 0,
        gid: 0,
        device: Device::default(),
        times: Times::default(),
        size: 0,
        xattrs: Vec::new(),
        runs: Vec::new(),
    }
}

fn write(entries: &[Entry]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    for entry in entries {
        writer.entry(entry).unwrap();
        for run in &entry.runs {
            writer.data(&vec![7; usize::try_from(run.len).unwrap()]).unwrap();
        }
    }
    writer.finish().unwrap()
}

fn read(archive: &[u8]) -> Vec<Entry> {
    let mut reader = Reader::new(archive);
    let entries = std::iter::from_fn(|| reader.next_entry().unwrap()).collect();
    assert!(reader.warnings().is_empty());
    entries
}

fn without_places(mut entries: Vec<Entry>) -> Vec<Entry> {
    for entry in &mut entries {
        entry.offset = 0;
        entry.runs.iter_mut().for_each(|run| run.archive_offset = 0);
    }
    entries
}

#[test]
fn what_fits_a_ustar_header_needs_no_records() {
    let prefix = [vec![b'p'; 150], b"/".to_vec(), vec![b'n'; 99]].concat();
    let archive = write(&[plain(&prefix, EntryKind::File), plain(b"dir/", EntryKind::Directory)]);
    assert_eq!(archive.len(), 10_240);
    assert_eq!(archive[156], b'0');
    assert_eq!(archive[512 + 156], b'5');
}

#[test]
fn runs_are_checked_and_aligned() {
    let run = |file_offset, len| Run { file_offset, len, archive_offset: 0 };
    assert_eq!(align(&[run(10, 5), run(600, 10), run(2000, 100)], 2100), [run(0, 1024), run(1536, 564)]);
    assert_eq!(align(&[run(u64::MAX - 5, 5)], u64::MAX), [run(u64::MAX - 511, 511)]);
    for (runs, size) in
        [(vec![run(0, 10)], 1000), (vec![run(1, 999)], 1000), (vec![run(512, 512), run(0, 512)], 1024)]
    {
        let entry = Entry { runs, size, ..plain(b"f", EntryKind::File) };
        assert!(matches!(Writer::new(Vec::new()).entry(&entry), Err(WriteError::Runs)));
    }
}

#[test]
fn announced_data_must_come() {
    let entry = Entry {
        runs: vec![Run { file_offset: 0, len: 3, archive_offset: 0 }],
        size: 3,
        ..plain(b"f", EntryKind::File)
    };
    let mut writer = Writer::new(Vec::new());
    writer.entry(&entry).unwrap();
    assert!(matches!(writer.data(b"four"), Err(WriteError::Length)));
    let mut writer = Writer::new(Vec::new());
    writer.entry(&entry).unwrap();
    assert!(matches!(writer.finish(), Err(WriteError::Length)));
}

fn time() -> impl Strategy<Value = Timestamp> {
    let seconds = prop_oneof![-3_i64..3, Just(1 << 33), Just(-(1 << 40)), Just(i64::MIN + 1), Just(i64::MAX)];
    let nanos = prop_oneof![Just(0), Just(1), Just(500_000_000), 0_u32..1_000_000_000];
    (seconds, nanos).prop_map(|(seconds, nanos)| Timestamp { seconds, nanoseconds: nanos })
}

fn name(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(prop::sample::select(b"ab/\xff".to_vec()), 1..max),
        prop::collection::vec(any::<u8>().prop_filter("no NUL", |&b| b != 0), 1..max),
    ]
}

fn entry() -> impl Strategy<Value = Entry> {
    let kinds = vec![
        EntryKind::Directory,
        EntryKind::File,
        EntryKind::HardLink,
        EntryKind::Symlink,
        EntryKind::CharDevice,
        EntryKind::BlockDevice,
        EntryKind::Fifo,
    ];
    let xattr = (name(20), prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(name, value)| Xattr {
        name: [b"user.", name.as_slice()].concat().into(),
        value: value.into(),
    });
    let times = (time(), prop::option::of(time()), prop::option::of(time()), prop::option::of(time()));
    let numbers = (any::<u16>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>());
    let runs = prop::collection::vec((0_u64..5000, 1_u64..3000), 0..5);
    let rest = (times, prop::collection::vec(xattr, 0..4), runs, 0_u64..5000);
    (prop::sample::select(kinds), name(400), name(300), numbers, rest).prop_map(assemble)
}

type Parts = (
    EntryKind,
    Vec<u8>,
    Vec<u8>,
    (u16, u32, u32, u32, u32),
    ((Timestamp, Option<Timestamp>, Option<Timestamp>, Option<Timestamp>), Vec<Xattr>, Vec<(u64, u64)>, u64),
);

fn assemble((kind, mut path, target, numbers, (times, mut xattrs, gaps, tail)): Parts) -> Entry {
    if kind == EntryKind::File && path.ends_with(b"/") {
        path.push(b'f');
    }
    let mut runs: Vec<Run> = Vec::new();
    let mut end = 0;
    for (gap, len) in gaps {
        runs.push(Run { file_offset: end + gap, len, archive_offset: 0 });
        end += gap + len;
    }
    let size = end + tail;
    xattrs.sort_unstable();
    xattrs.dedup_by(|a, b| a.name == b.name);
    let is_file = kind == EntryKind::File;
    let has_device = matches!(kind, EntryKind::CharDevice | EntryKind::BlockDevice);
    Entry {
        mode: numbers.0 & 0o7777,
        uid: numbers.1,
        gid: numbers.2,
        device: if has_device { Device { major: numbers.3, minor: numbers.4 } } else { Device::default() },
        times: Times { modified: times.0, accessed: times.1, changed: times.2, created: times.3 },
        target: if matches!(kind, EntryKind::HardLink | EntryKind::Symlink) { target } else { Vec::new() },
        runs: if is_file { align(&runs, size) } else { Vec::new() },
        size: if is_file { size } else { 0 },
        xattrs: if kind == EntryKind::HardLink { Vec::new() } else { xattrs },
        ..plain(&path, kind)
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(entries in prop::collection::vec(entry(), 1..4)) {
        prop_assert_eq!(without_places(read(&write(&entries))), entries);
    }
}
