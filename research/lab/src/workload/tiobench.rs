//! Threads that write and read a file each, in order and at random, as tiobench does: phases over the same
//! files. Files are stable at the end of the phases that write them.

use super::Scale;
use crate::numbers::Numbers;
use crate::system::{Op, Phase, Stream};

pub(super) fn phases(scale: &Scale) -> Result<Vec<Phase>, String> {
    let threads = scale.number("threads", 8, 4)?.max(1);
    let block = scale.number("block", 4096, 4096)?.max(1);
    let blocks = scale.number("size", 1 << 30, 16 << 20)? / threads / block;
    let random = scale.number("random", 4_000, 200)? / threads;
    let all = |work: &dyn Fn(u64) -> Stream| (0..threads).map(work).collect::<Vec<_>>();
    let at_random = |thread: u64, kind: u64, make: fn(u64, u64) -> Op| -> Stream {
        let mut numbers = Numbers::new(scale.seed.wrapping_mul(1_000_003).wrapping_add(thread * 2 + kind));
        Box::new((0..random).map(move |_| make(numbers.below(blocks) * block, block)))
    };
    let mut phases = vec![
        Phase::new(
            "sequential write",
            all(&|thread| {
                let writes = (0..blocks).map(move |i| write(i * block, block));
                session(thread, true, Box::new(writes.chain([SYNC])))
            }),
        ),
        Phase::new(
            "random write",
            all(&|thread| session(thread, false, Box::new(at_random(thread, 0, write).chain([SYNC])))),
        ),
        // What was written is not in memory any more.
        Phase::new("forget", vec![Box::new([Op::SyncAll, Op::DropCaches].into_iter())]),
        Phase::new(
            "sequential read",
            all(&|thread| session(thread, false, Box::new((0..blocks).map(move |i| read(i * block, block))))),
        ),
        Phase::new("random read", all(&|thread| session(thread, false, at_random(thread, 1, read)))),
    ];
    phases.truncate(usize::try_from(scale.number("phases", 5, 5)?).unwrap_or(0));
    Ok(phases)
}

const SYNC: Op = Op::Sync { slot: 0, data_only: false };

fn write(offset: u64, len: u64) -> Op {
    Op::Write { slot: 0, offset, len }
}

fn read(offset: u64, len: u64) -> Op {
    Op::Read { slot: 0, offset, len }
}

/// A thread's file, open around some calls.
fn session(thread: u64, create: bool, calls: Stream) -> Stream {
    let open = Op::Open { slot: 0, path: format!("tio.{thread}").into(), create };
    Box::new(std::iter::once(open).chain(calls).chain(std::iter::once(Op::Close(0))))
}
