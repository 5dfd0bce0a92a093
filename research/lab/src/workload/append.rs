//! Files that grow side by side, as logs and downloads do: each client appends a little to its own file.

use super::Scale;
use crate::system::{Op, Phase, Stream};

pub(super) const SETTINGS: &[(&str, &str)] = &[
    ("files", "files at once"),
    ("size", "bytes of each"),
    ("append", "bytes of an append"),
    ("sync", "fsync after every n-th append; 0: never"),
    ("reserve", "1: fallocate instead of writes"),
];

#[derive(Clone, Copy)]
struct Growth {
    size: u64,
    append: u64,
    sync: u64,
    reserve: bool,
}

pub(super) fn phases(scale: &Scale) -> Result<Vec<Phase>, String> {
    let files = scale.number("files", 64, 64)?;
    let growth = Growth {
        size: scale.number("size", 4 << 20, 256 << 10)?,
        append: scale.number("append", 4096, 4096)?.max(1),
        sync: scale.number("sync", 0, 0)?,
        reserve: scale.number("reserve", 0, 0)? > 0,
    };
    let clients = (0..files).map(|file| appender(file, growth)).collect();
    let sync: Stream = Box::new(std::iter::once(Op::SyncAll));
    Ok(vec![Phase::new("append", clients), Phase::new("sync", vec![sync])])
}

fn appender(file: u64, growth: Growth) -> Stream {
    let Growth { size, append, sync, reserve } = growth;
    let open = Op::Open { slot: 0, path: format!("append.{file}").into(), create: true };
    let appends = (0..size.div_ceil(append)).flat_map(move |i| {
        let (offset, len) = (i * append, append.min(size - i * append));
        let more =
            if reserve { Op::Reserve { slot: 0, offset, len } } else { Op::Write { slot: 0, offset, len } };
        let stable = (sync > 0 && (i + 1) % sync == 0).then_some(Op::Sync { slot: 0, data_only: false });
        std::iter::once(more).chain(stable)
    });
    Box::new(std::iter::once(open).chain(appends).chain(std::iter::once(Op::Close(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_appended_once_and_made_stable_as_often_as_said() {
        let mut scale = Scale::default();
        for (name, value) in [("files", "3"), ("size", "10000"), ("sync", "2")] {
            scale.settings.insert(name.into(), value.into());
        }
        let mut phases = phases(&scale).unwrap();
        assert_eq!(phases[0].clients.len(), 3);
        let calls: Vec<Op> = phases[0].clients.remove(0).collect();
        let written: u64 = calls.iter().map(|op| if let Op::Write { len, .. } = op { *len } else { 0 }).sum();
        assert_eq!(written, 10_000);
        assert_eq!(calls.iter().filter(|op| matches!(op, Op::Sync { .. })).count(), 1);
        assert_eq!(calls.last(), Some(&Op::Close(0)));
    }
}
