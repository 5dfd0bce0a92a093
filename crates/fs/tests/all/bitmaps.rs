//! A bound on the memory of what is known of free space: what is dropped is read again, and nothing is lost by it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use platfs::check::{self, Decision, Issue, Sink, check};
use platfs::device::MemoryDevice;
use platfs::mkfs::{FsType, Options, Plan};
use platfs::placement::Counter;
use platfs::{Allocate, Attributes, InodeNumber, Kind, NewInode, OpenOptions, Volume};

#[derive(Default)]
struct Issues(Vec<Issue>);

impl Sink for Issues {
    fn issue(&mut self, issue: Issue) -> Decision {
        self.0.push(issue);
        Decision::Leave
    }
}

/// Makes and removes files whose blocks lie in all groups.
fn churn(volume: &Volume, thread: u32, rounds: u32) {
    let new = NewInode { kind: Kind::File, attributes: Attributes::default(), xattrs: &[] };
    for round in 0..rounds {
        let name = |number: u32| format!("{thread}.{}", number % 8).into_bytes();
        let number = volume.create(InodeNumber::ROOT, &name(round), &new).unwrap();
        let len = u64::from(round * 7919 % 6_000_000 + 1);
        volume.allocate(number, Allocate::Extend, 0, len).unwrap();
        if round >= 7 {
            volume.unlink(InodeNumber::ROOT, &name(round + 1)).unwrap();
        }
    }
}

#[test]
fn what_is_dropped_is_read_again_while_others_allocate_and_free() {
    let device = Arc::new(MemoryDevice::new(256 << 20));
    let mut how = Options::new(FsType::Ext4);
    how.block_size = Some(1024);
    Plan::new(&how, 256 << 20).unwrap().write(&*device).unwrap();
    let options = OpenOptions::new().write(true).bitmaps(0).cache(64 << 10);
    let volume = Volume::open(device.clone(), &options).unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let syncing = scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                volume.sync().unwrap();
            }
        });
        let threads: Vec<_> = (0..3)
            .map(|thread| {
                scope.spawn({
                    let volume = &volume;
                    move || churn(volume, thread, 300)
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        ended.store(true, Ordering::Relaxed);
        syncing.join().unwrap();
    });
    // Alone it goes on with what was dropped. How much that is beside others is left to chance.
    (10..58).for_each(|thread| {
        churn(&volume, thread, 20);
        volume.sync().unwrap();
    });
    let evicted = volume.space().statistics().unwrap().get(Counter::BitmapsEvicted);
    assert!(evicted > 10, "{evicted}");
    volume.close().unwrap();
    let mut issues = Issues::default();
    check(device, &check::Options::default(), &mut issues).unwrap();
    assert!(issues.0.is_empty(), "{:?}", issues.0);
}
