//! Crashes of volumes with a journal: every state that the device may be left in, of recorded random runs, is
//! recovered and compared with what was promised; some by e2fsck too.
//!
//! `PLATFS_SEED=n cargo test -p platfs --test crash KIND` repeats the run of a failure.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "crash/large.rs"]
mod large;
#[path = "crash/mutate.rs"]
mod mutate;
#[path = "crash/oracle.rs"]
mod oracle;
#[path = "crash/states.rs"]
mod states;
#[path = "crash/workload.rs"]
mod workload;

use std::sync::Arc;

use oracle::Rule;
use platfs::device::{Device, Event, MemoryDevice, Recorder};
use platfs::mkfs::{FsType, Options, Plan, parse_features};
use platfs::ondisk::units::BlockSize;
use platfs::{DataMode, OpenOptions, Volume};
use states::States;
use testkit::scratch::Scratch;
use testkit::{fsck, tool};
use workload::{Model, PROMISED, Workload};

/// A kind of volume, and how it is written.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    fs_type: FsType,
    features: &'static str,
    block_size: u32,
    megabytes: u64,
    data: DataMode,
    /// Bytes that may wait in memory.
    delay: u64,
}

const KINDS: &[Kind] = &[
    Kind {
        name: "ext3_1k",
        fs_type: FsType::Ext3,
        features: "",
        block_size: 1024,
        megabytes: 6,
        data: DataMode::Ordered,
        delay: 0,
    },
    Kind {
        name: "ext4_1k",
        fs_type: FsType::Ext4,
        features: "",
        block_size: 1024,
        megabytes: 6,
        data: DataMode::Ordered,
        delay: 0,
    },
    Kind {
        name: "ext4_4k",
        fs_type: FsType::Ext4,
        features: "64bit,inline_data",
        block_size: 4096,
        megabytes: 16,
        data: DataMode::Ordered,
        delay: 0,
    },
    Kind {
        name: "ext4_delayed",
        fs_type: FsType::Ext4,
        features: "",
        block_size: 1024,
        megabytes: 6,
        data: DataMode::Ordered,
        delay: 100 << 10,
    },
    Kind {
        name: "ext3_journal",
        fs_type: FsType::Ext3,
        features: "",
        block_size: 1024,
        megabytes: 6,
        data: DataMode::Journal,
        delay: 0,
    },
    Kind {
        name: "ext4_journal",
        fs_type: FsType::Ext4,
        features: "64bit,inline_data",
        block_size: 4096,
        megabytes: 16,
        data: DataMode::Journal,
        delay: 0,
    },
    Kind {
        name: "ext4_writeback",
        fs_type: FsType::Ext4,
        features: "^metadata_csum",
        block_size: 1024,
        megabytes: 6,
        data: DataMode::Writeback,
        delay: 0,
    },
];

/// What was recorded of a run.
struct Run {
    base: MemoryDevice,
    events: Vec<Event>,
    history: Vec<Model>,
}

fn copy(device: &MemoryDevice) -> MemoryDevice {
    let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
    device.read_at(0, &mut bytes).unwrap();
    MemoryDevice::from_bytes(&bytes)
}

fn options(kind: &Kind) -> OpenOptions {
    OpenOptions::new()
        .write(true)
        .data(kind.data)
        .delay(kind.delay)
        .now(platfs::ondisk::inode::Timestamp { seconds: 1_700_000_000, nanoseconds: 0 })
}

fn made(kind: &Kind) -> MemoryDevice {
    let device = MemoryDevice::new(kind.megabytes << 20);
    let mut options = Options::new(kind.fs_type);
    options.features = parse_features(kind.features).unwrap();
    options.block_size = Some(kind.block_size);
    options.journal.size = Some(1024 * u64::from(kind.block_size));
    options.inodes = Some(128);
    Plan::new(&options, device.size()).unwrap().write(&device).unwrap();
    device
}

fn record(kind: &Kind, seed: u64, calls: u64) -> Run {
    let base = made(kind);
    let recorder = Arc::new(Recorder::new(Arc::new(copy(&base))));
    let volume = Volume::open(recorder.clone(), &options(kind)).unwrap();
    let mut workload = Workload::new(&volume, &recorder, seed, kind.delay > 0);
    workload.run(calls);
    let history = workload.history;
    volume.close().unwrap();
    Run { base, events: recorder.take(), history }
}

/// Lets e2fsck replay and judge a copy of a state.
fn as_e2fsck(device: &dyn Device, scratch: &Scratch) -> Result<(), String> {
    let image = scratch.join("state.img");
    let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
    device.read_at(0, &mut bytes).unwrap();
    std::fs::write(&image, bytes).unwrap();
    let done = tool::command("e2fsck").args(["-fy"]).arg(&image).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    let unasked =
        said.lines().any(|line| line.contains("yes") || line.contains("FIXED") || line.contains("corrupt"));
    if unasked || done.status.code().is_none_or(|code| code > 1) {
        return Err(format!("e2fsck: {said}"));
    }
    let again = fsck::complaints(&image);
    if again.is_empty() { Ok(()) } else { Err(format!("e2fsck, again: {again}")) }
}

/// Goes through the states of a run, to the first that is wrong.
fn enumerate(kind: &Kind, run: &Run, seed: u64, most: usize, e2fsck_every: usize) -> Result<usize, String> {
    let scratch = Scratch::new("crash");
    let size = BlockSize::from_bytes(u64::from(kind.block_size)).unwrap();
    let states = States::new(Arc::new(copy(&run.base)), run.events.clone(), size, seed);
    let (mut count, mut first) = (0, None);
    states.all(|state| {
        count += 1;
        let judged = oracle::judge(
            state.device.clone(),
            &options(kind),
            &run.history,
            state.promised,
            state.begun,
            match kind.data {
                _ if kind.delay > 0 => Rule::Late,
                DataMode::Ordered => Rule::InOrder,
                DataMode::Writeback => Rule::Names,
                DataMode::Journal => Rule::Exact,
            },
        );
        let torn = state.name.contains("bytes");
        let judged = judged.and_then(|()| match e2fsck_every > 0 && count % e2fsck_every == 0 && !torn {
            true => as_e2fsck(&*state.again(), &scratch),
            false => Ok(()),
        });
        if let Err(what) = judged {
            first = Some(format!("{}, seed {seed}, {}: {what}", kind.name, state.name));
        }
        first.is_none() && count < most
    });
    first.map_or(Ok(count), Err)
}

fn seed(standard: u64) -> u64 {
    std::env::var("PLATFS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(standard)
}

fn survive(kind: &Kind, seed: u64, calls: u64, most: usize) -> usize {
    let run = record(kind, seed, calls);
    assert!(
        run.events.iter().filter(|event| matches!(event, Event::Mark(word) if word & PROMISED != 0)).count()
            > 1
    );
    enumerate(kind, &run, seed, most, 60).unwrap_or_else(|what| panic!("{what}"))
}

fn kind(name: &str) -> &'static Kind {
    KINDS.iter().find(|kind| kind.name == name).unwrap()
}

fn in_suite(name: &str) {
    if !tool::have_tools(name, &["e2fsck"]) {
        return;
    }
    let count = survive(kind(name), seed(1), 500, 1500) + survive(kind(name), seed(1) + 1, 500, 1500);
    println!("{name}: {count} states");
    assert!(count >= 900, "only {count} states");
}

#[test]
fn ext3_1k() {
    in_suite("ext3_1k");
}

#[test]
fn ext4_1k() {
    in_suite("ext4_1k");
}

#[test]
fn ext4_4k() {
    in_suite("ext4_4k");
}

#[test]
fn ext4_delayed() {
    in_suite("ext4_delayed");
}

#[test]
fn ext3_journal() {
    in_suite("ext3_journal");
}

#[test]
fn ext4_journal() {
    in_suite("ext4_journal");
}

#[test]
fn ext4_writeback() {
    in_suite("ext4_writeback");
}

/// Faults that a log writer could have, put into what was recorded of a right one: each is found.
#[test]
fn faults_are_found() {
    for (kind, name, fault) in mutate::FAULTS {
        let kind = self::kind(kind);
        let found = (1..=FAULTY_RUNS).find_map(|seed| {
            let mut run = record(kind, seed, 400);
            run.events = fault(run.events, kind.block_size as usize);
            enumerate(kind, &run, seed, 3000, 0).err()
        });
        let found = found.unwrap_or_else(|| panic!("{name} is not found"));
        println!("{name}: {}", found.chars().take(160).collect::<String>());
    }
}

/// Runs in which a fault must show.
const FAULTY_RUNS: u64 = 4;

/// `cargo test --release -p platfs --test crash -- --ignored --nocapture`, with `PLATFS_STATES` for another number.
#[test]
#[ignore = "takes long"]
fn many_states() {
    let wanted = std::env::var("PLATFS_STATES").ok().and_then(|count| count.parse().ok()).unwrap_or(100_000);
    for kind in KINDS {
        let (mut count, mut seed) = (0, seed(1000));
        while count < wanted {
            count += survive(kind, seed, 200, wanted);
            seed += 1;
        }
        println!("{}: {count} states up to seed {seed}", kind.name);
    }
}
