//! Files of one size made by threads, each in directories of its own, as fs_mark does: what a server of small files costs,
//! by how it makes them stable.

use super::Scale;
use crate::system::{Op, Phase, Stream};

/// When files are made stable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sync {
    /// Never: one sync of all at the end.
    Never,
    /// Each before it is closed.
    Each,
    /// All of a thread's after the last is written, in order; or the last first.
    Behind { backwards: bool },
}

impl Sync {
    fn named(name: &str) -> Result<Sync, String> {
        Ok(match name {
            "none" => Sync::Never,
            "each" => Sync::Each,
            "behind" => Sync::Behind { backwards: false },
            "backwards" => Sync::Behind { backwards: true },
            other => return Err(format!("sync={other} is none of none, each, behind, backwards")),
        })
    }
}

/// One thread's work.
#[derive(Clone, Copy)]
struct Thread {
    number: u64,
    files: u64,
    size: u64,
    /// Bytes of a write.
    block: u64,
    /// Files of a directory; 0: all are in the root.
    per_directory: u64,
    sync: Sync,
}

pub(super) fn phases(scale: &Scale) -> Result<Vec<Phase>, String> {
    let threads = scale.number("threads", 4, 2)?.max(1);
    let thread = Thread {
        number: 0,
        files: scale.number("files", 10_000, 100)? / threads,
        size: scale.number("size", 51_200, 10_240)?,
        block: scale.number("block", 16_384, 16_384)?.max(1),
        per_directory: scale.number("per-directory", 1_000, 20)?,
        sync: Sync::named(scale.settings.get("sync").map_or("each", String::as_str))?,
    };
    let writers = (0..threads).map(|number| Thread { number, ..thread }.calls()).collect();
    let sync: Stream = Box::new(std::iter::once(Op::SyncAll));
    Ok(vec![Phase::new("write", writers), Phase::new("sync", vec![sync])])
}

impl Thread {
    fn calls(self) -> Stream {
        let root =
            (self.per_directory > 0).then(|| Op::MakeDirectory(format!("mark.{}", self.number).into()));
        let written = (0..self.files).flat_map(move |file| self.file(file));
        let behind = (0..self.files).flat_map(move |index| self.behind(index));
        Box::new(root.into_iter().chain(written).chain(behind))
    }

    fn path(self, file: u64) -> String {
        match file.checked_div(self.per_directory) {
            Some(directory) => format!("mark.{}/{directory:04}/{file:08}", self.number),
            None => format!("mark.{}.{file:08}", self.number),
        }
    }

    fn file(self, file: u64) -> impl Iterator<Item = Op> {
        let path = self.path(file);
        let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
        let first = self.per_directory > 0 && file.is_multiple_of(self.per_directory);
        let begin = first.then(|| Op::MakeDirectory(directory.into())).into_iter();
        let open = Op::Open { slot: 0, path: path.into(), create: true };
        let writes = (0..self.size.div_ceil(self.block)).map(move |i| {
            let offset = i * self.block;
            Op::Write { slot: 0, offset, len: self.block.min(self.size - offset) }
        });
        let sync = (self.sync == Sync::Each).then_some(Op::Sync { slot: 0, data_only: false });
        begin.chain([open]).chain(writes).chain(sync).chain([Op::Close(0)])
    }

    /// The calls that make a file stable after all are written.
    fn behind(self, index: u64) -> impl Iterator<Item = Op> {
        let file = match self.sync {
            Sync::Behind { backwards: false } => Some(index),
            Sync::Behind { backwards: true } => Some(self.files - 1 - index),
            Sync::Never | Sync::Each => None,
        };
        file.into_iter().flat_map(move |file| {
            let open = Op::Open { slot: 0, path: self.path(file).into(), create: false };
            [open, Op::Sync { slot: 0, data_only: false }, Op::Close(0)]
        })
    }
}
