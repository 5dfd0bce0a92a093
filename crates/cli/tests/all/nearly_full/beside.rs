//! Seeded mixes of writers on volumes that fill and empty, beside the kernel's driver on the same kind of image.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate, ftruncate, statvfs};
use rustix::io::Errno;
use testkit::random::Random;
use testkit::scratch::Scratch;
use testkit::{fsck, tool};

use crate::nearly_full::accepted::Accepted;
use crate::nearly_full::{MIB, is_full, ready, room};
use crate::support::mounted::Mounted;

const OPTIONS: [&str; 4] = [
    "transport=device",
    "transport=uring",
    "writeback_cache,transport=device",
    "writeback_cache,transport=uring",
];
/// Room that is lost to maps, to what others were promised, and to what no sync has freed yet.
const NEAR: u64 = 2 * MIB;

/// One of two volumes that get the same calls.
struct Side<'p> {
    root: &'p Path,
    open: BTreeMap<u64, File>,
    accepted: Accepted,
}

/// Result of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Came {
    Done,
    Short,
    Full,
    Else(Option<i32>),
}

fn came(done: io::Result<u64>, len: u64) -> Came {
    match done {
        Ok(count) if count == len => Came::Done,
        Ok(_) => Came::Short,
        Err(error) if is_full(&error) => Came::Full,
        Err(error) => Came::Else(error.raw_os_error()),
    }
}

impl Side<'_> {
    fn file(&mut self, number: u64) -> io::Result<&File> {
        let path = self.root.join(format!("f{number}"));
        Ok(match self.open.entry(number) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(free) => {
                let mut options = OpenOptions::new();
                free.insert(options.read(true).write(true).create(true).truncate(false).open(path)?)
            }
        })
    }

    fn write(&mut self, number: u64, at: u64, len: u64) -> io::Result<u64> {
        self.file(number)?;
        let (file, name) = (&self.open[&number], format!("f{number}"));
        self.accepted.write_at(file, &name, at, usize::try_from(len).unwrap())
    }

    fn give(&mut self, number: u64, at: u64, len: u64) -> io::Result<u64> {
        fallocate(self.file(number)?, FallocateFlags::KEEP_SIZE, at, len)?;
        Ok(len)
    }

    fn remove(&mut self, number: u64) {
        self.open.remove(&number);
        if self.root.join(format!("f{number}")).exists() {
            self.accepted.remove(self.root, &format!("f{number}"));
        }
    }

    fn empty(&mut self, number: u64) -> io::Result<u64> {
        ftruncate(self.file(number)?, 0)?;
        self.accepted.forget(&format!("f{number}"));
        Ok(0)
    }
}

/// Counts over some rounds.
#[derive(Default, Debug)]
struct Seen {
    writes: u64,
    refused: [u64; 2],
    /// Calls that came to something else than with the kernel, by both.
    apart: BTreeMap<String, u64>,
}

fn step(random: &mut Random, sides: &mut [Side<'_>; 2], seen: &mut Seen, what: &str) {
    let number = random.below(12);
    let lengths = [100, 5000, 65_536, 1 << 20, 7 * MIB, 90 * MIB];
    let kinds = if random.one_in(6) { 6 } else { 4 };
    let len = lengths[usize::try_from(random.below(kinds)).unwrap()];
    let at = if random.one_in(5) { random.below(1 << 34) } else { random.below(64 * MIB) };
    let kind = random.below(20);
    let both = sides.each_mut().map(|side| {
        let before = room_without_sync(side.root);
        let done = match kind {
            0..=13 => side.write(number, at, len),
            14 => side.give(number, at, len * 8),
            15 | 16 => {
                side.remove(number);
                Ok(len)
            }
            17 => side.empty(number).map(|_| len),
            _ => {
                side.open.remove(&number);
                Ok(len)
            }
        };
        if kind <= 13 && done.as_ref().is_err_and(is_full) {
            room(side.root);
            // Without what both drivers keep for the conversion of extents.
            let left = room_without_sync(side.root);
            assert!(
                left < len + NEAR,
                "{what}: a write of {len} was refused beside {left} (before: {before})"
            );
        }
        came(done, if kind == 14 { len * 8 } else { len })
    });
    seen.writes += u64::from(kind <= 13);
    for (count, came) in seen.refused.iter_mut().zip(both) {
        *count += u64::from(came == Came::Full);
    }
    if both[0] != both[1] {
        let call = if kind == 14 { "fallocate" } else { "write" };
        *seen.apart.entry(format!("{call}: {:?}, kernel {:?}", both[0], both[1])).or_default() += 1;
    }
    assert!(!matches!(both[0], Came::Else(_)) || both[0] == both[1], "{what}: {both:?}");
}

fn room_without_sync(root: &Path) -> u64 {
    let found = statvfs(root).unwrap();
    found.f_bavail * found.f_frsize
}

fn round(seed: u64, seen: &mut Seen) {
    let mut random = Random(seed);
    let size = (16 * MIB) << random.below(9);
    let options = *random.pick(&OPTIONS).unwrap();
    let what = format!("PLATFS_SEED={seed} PLATFS_STEPS=1: {} MiB, {options}", size / MIB);
    println!("{what}");
    let scratch = Scratch::new("beside");
    let images = ["ours", "kernel"].map(|name| scratch.join(name));
    for image in &images {
        let size = format!("{}K", size >> 10);
        tool::run(tool::command("mke2fs").args(["-q", "-F", "-t", "ext4", "-m", "0"]).arg(image).arg(size));
    }
    let options = format!("rw,{options}");
    let ours = Mounted::new(&images[0], &["-o", &options]).unwrap();
    let kernel = testkit::mount::Mounted::read_write(&images[1]).unwrap();
    let mut sides = [ours.path(), kernel.path()].map(|root| Side {
        root,
        open: BTreeMap::new(),
        accepted: Accepted::default(),
    });
    for side in &mut sides {
        // Much room is not written full.
        let left = 8 * MIB + random.below(40) * MIB;
        let taken = room(side.root).saturating_sub(left);
        let fill = File::create(side.root.join("fill")).unwrap();
        match fallocate(&fill, FallocateFlags::empty(), 0, taken.max(1)) {
            Ok(()) | Err(Errno::NOSPC) => {}
            Err(error) => panic!("{what}: {error}"),
        }
        random = Random(seed + 1);
    }
    for _ in 0..150 {
        step(&mut random, &mut sides, seen, &what);
    }
    let [mine, theirs] = sides;
    drop(theirs);
    let accepted = mine.accepted;
    drop(mine.open);
    let log = ours.unmount();
    fsck::assert_clean(&images[0]);
    let again = Mounted::new(&images[0], &["-o", "ro"]).unwrap();
    let lost = accepted.lost(again.path());
    assert!(lost.is_empty(), "{what}: {} ranges were lost: {:?}: {log:#?}", lost.len(), lost.first());
    again.unmount();
    drop(kernel);
    fs::remove_file(&images[1]).unwrap();
}

#[test]
#[ignore = "takes hours: as many rounds as PLATFS_STEPS says"]
fn mixes_of_writers_lose_nothing_beside_the_kernel() {
    let test = "mixes_of_writers_lose_nothing_beside_the_kernel";
    if !ready(test) {
        return;
    }
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = number("PLATFS_SEED").unwrap_or(1);
    let mut seen = Seen::default();
    for seed in first..first + number("PLATFS_STEPS").unwrap_or(2000) {
        round(seed, &mut seen);
    }
    println!("{seen:#?}");
}
