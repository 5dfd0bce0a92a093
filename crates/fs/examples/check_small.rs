//! How long the check of a small volume in memory takes: as tests call it after every step.
//!
//! `cargo run --release -p platfs --example check_small`

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use platfs::check::{Decision, Issue, Options, Sink, check};
use platfs::device::{Device, MemoryDevice};
use platfs::mkfs::{FsType, Plan};
use platfs::{Attributes, InodeNumber, Kind, NewInode, OpenOptions, Times, Volume, WriteOptions};

const BYTES: u64 = 8 << 20;
const DIRECTORIES: u32 = 40;
const FILES: u32 = 20;
const RUNS: usize = 1001;

struct Silent;

impl Sink for Silent {
    fn issue(&mut self, _issue: Issue) -> Decision {
        Decision::Leave
    }
}

fn fill(device: Arc<dyn Device>) -> Result<(), platfs::Error> {
    let volume = Volume::open(device, &OpenOptions::new().write(true).unordered(true))?;
    let attributes = Attributes { permissions: 0o755, uid: 0, gid: 0, times: Times::default() };
    let new = |kind| NewInode { kind, attributes, xattrs: &[] };
    for directory in 0..DIRECTORIES {
        let name = format!("directory-{directory}");
        let parent = volume.create(InodeNumber::ROOT, name.as_bytes(), &new(Kind::Directory))?;
        for file in 0..FILES {
            let inode = volume.create(parent, format!("file-{file}").as_bytes(), &new(Kind::File))?;
            volume.write_at(inode, 0, &[1; 2000], WriteOptions::default())?;
        }
    }
    volume.close()
}

fn main() -> Result<(), Box<dyn Error>> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(BYTES));
    Plan::new(&platfs::mkfs::Options::new(FsType::Ext4), BYTES)?.write(&*device)?;
    fill(Arc::clone(&device))?;
    let mut times = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let begun = Instant::now();
        let outcome = check(Arc::clone(&device), &Options::default(), &mut Silent)?;
        times.push(begun.elapsed());
        if !outcome.summary.is_sound() {
            return Err("the volume is not sound".into());
        }
    }
    times.sort_unstable();
    let at = |part: usize| times.get(RUNS * part / 100).copied().unwrap_or(Duration::MAX);
    println!(
        "the check of {} MiB with {} files in {DIRECTORIES} directories: median {:?}, 99 of 100 within {:?}",
        BYTES >> 20,
        DIRECTORIES * FILES,
        at(50),
        at(99),
    );
    Ok(())
}
