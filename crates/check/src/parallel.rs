//! Threads that share the pieces of a pass.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Calls `work` with each of `0..pieces`, by up to `threads` threads that take the next piece
/// whenever they are done with one. `begun` is called in this thread with the number of pieces begun.
pub(super) fn share(threads: usize, pieces: u64, mut begun: impl FnMut(u64), work: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(0);
    let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|piece| *piece < pieces);
    let others = (threads as u64).min(pieces).saturating_sub(1);
    thread::scope(|scope| {
        for _ in 0..others {
            // Without the thread this one does its work too.
            let _ = thread::Builder::new().spawn_scoped(scope, || {
                while let Some(piece) = take() {
                    work(piece);
                }
            });
        }
        while let Some(piece) = take() {
            begun(piece);
            work(piece);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_done_once() {
        for threads in [0, 1, 3] {
            let sum = AtomicU64::new(0);
            let work = |piece| _ = sum.fetch_add(piece + 1, Ordering::Relaxed);
            share(threads, 100, |_| (), work);
            assert_eq!(sum.into_inner(), 5050);
        }
    }
}
