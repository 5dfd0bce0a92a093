//! `dd` of files side by side, then a sync: what a block allocator is tried with first.

use super::Scale;
use crate::system::{Op, Phase, Stream};

pub(super) fn phases(scale: &Scale) -> Result<Vec<Phase>, String> {
    let files = scale.number("files", 9, 9)?;
    let size = scale.number("size", 20_000_000, 2_000_000)?;
    let block = scale.number("block", 4096, 4096)?.max(1);
    let writers = (0..files).map(|file| writer(file, size, block)).collect();
    let sync: Stream = Box::new(std::iter::once(Op::SyncAll));
    Ok(vec![Phase::new("write", writers), Phase::new("sync", vec![sync])])
}

fn writer(file: u64, size: u64, block: u64) -> Stream {
    let path = format!("dd.{file}").into();
    let open = std::iter::once(Op::Open { slot: 0, path, create: true });
    let writes = (0..size.div_ceil(block)).map(move |i| {
        let offset = i * block;
        Op::Write { slot: 0, offset, len: block.min(size - offset) }
    });
    Box::new(open.chain(writes).chain(std::iter::once(Op::Close(0))))
}
