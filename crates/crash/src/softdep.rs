//! Volumes written in phases (soft updates): kinds, runs, and what is asked of each state.

use std::collections::BTreeMap;
use std::sync::Arc;

use platfs::device::{Device, Event, MemoryDevice, Recorder};
use platfs::mkfs::{FsType, Options, Plan, parse_features};
use platfs::ondisk::units::BlockSize;
use platfs::{InodeNumber, OpenOptions, Ordering, Volume};
use testkit::scratch::Scratch;

use crate::deep::{Deep, Places};
use crate::faults::phased as faults;
use crate::oracle::phased::{self as oracle, Promises};
use crate::record::copy;
use crate::states::States;
use crate::workload::{Model, Workload};

/// A kind of volume.
#[derive(Clone, Copy)]
pub struct Kind {
    pub name: &'static str,
    pub fs_type: FsType,
    pub features: &'static str,
    pub block_size: u32,
    pub megabytes: u64,
    /// Bytes that may wait in memory.
    pub delay: u64,
    pub inodes: u64,
    /// Fewer than usual, for many groups.
    pub blocks_per_group: Option<u32>,
}

pub const KINDS: &[Kind] = &[
    Kind {
        name: "ext2_1k",
        fs_type: FsType::Ext2,
        features: "",
        block_size: 1024,
        megabytes: 4,
        delay: 0,
        inodes: 128,
        blocks_per_group: None,
    },
    Kind {
        name: "ext4_1k",
        fs_type: FsType::Ext4,
        features: "^has_journal",
        block_size: 1024,
        megabytes: 4,
        delay: 0,
        inodes: 128,
        blocks_per_group: None,
    },
    Kind {
        name: "ext4_4k",
        fs_type: FsType::Ext4,
        features: "^has_journal,^metadata_csum,uninit_bg",
        block_size: 4096,
        megabytes: 8,
        delay: 64 << 10,
        inodes: 128,
        blocks_per_group: None,
    },
    Kind {
        name: "bigalloc",
        fs_type: FsType::Ext4,
        features: "^has_journal,bigalloc",
        block_size: 1024,
        megabytes: 8,
        delay: 0,
        inodes: 128,
        blocks_per_group: None,
    },
    Kind {
        name: "ext2_deep",
        fs_type: FsType::Ext2,
        features: "dir_index",
        block_size: 1024,
        megabytes: 8,
        delay: 0,
        inodes: 512,
        blocks_per_group: None,
    },
    Kind {
        name: "ext4_deep",
        fs_type: FsType::Ext4,
        features: "^has_journal",
        block_size: 1024,
        megabytes: 8,
        delay: 64 << 10,
        inodes: 512,
        blocks_per_group: Some(1024),
    },
    Kind {
        name: "bigalloc_deep",
        fs_type: FsType::Ext4,
        features: "^has_journal,bigalloc",
        block_size: 1024,
        megabytes: 64,
        delay: 0,
        inodes: 512,
        blocks_per_group: None,
    },
];

/// What was recorded of a run.
pub struct Run {
    pub base: MemoryDevice,
    pub events: Vec<Event>,
    pub history: Vec<Model>,
    /// The attribute of each file, call by call; nothing where no call sets any.
    pub values: Vec<BTreeMap<u32, u8>>,
    pub inodes: BTreeMap<u32, InodeNumber>,
    /// Which inode each directory is, call by call; nothing where none is moved.
    pub directories: Vec<Places>,
}

pub fn options(kind: &Kind) -> OpenOptions {
    OpenOptions::new()
        .write(true)
        .ordering(Ordering::Softdep)
        .delay(kind.delay)
        .now(platfs::ondisk::inode::Timestamp { seconds: 1_700_000_000, nanoseconds: 0 })
}

pub fn made(kind: &Kind) -> MemoryDevice {
    let device = MemoryDevice::new(kind.megabytes << 20);
    let mut options = Options::new(kind.fs_type);
    options.features = parse_features(kind.features).unwrap();
    options.block_size = Some(kind.block_size);
    options.inodes = Some(kind.inodes);
    options.blocks_per_group = kind.blocks_per_group;
    Plan::new(&options, device.size()).unwrap().write(&device).unwrap();
    device
}

/// Every block by itself: neighbours are written at once, but a crash may come between them.
pub fn by_blocks(events: Vec<Event>, size: u64) -> Vec<Event> {
    let apart = |event| match event {
        Event::Write { offset, data } => {
            let mut parts = Vec::new();
            let mut at = 0;
            while at < data.len() {
                let place = offset + at as u64;
                let len = usize::try_from(size - place % size).unwrap().min(data.len() - at);
                parts.push(Event::Write { offset: place, data: Arc::from(&data[at..at + len]) });
                at += len;
            }
            parts
        }
        other => vec![other],
    };
    events.into_iter().flat_map(apart).collect()
}

pub fn record(kind: &Kind, seed: u64, calls: u64) -> Run {
    let base = made(kind);
    let recorder = Arc::new(Recorder::new(Arc::new(copy(&base))));
    let volume = Volume::open(recorder.clone(), &options(kind)).unwrap();
    let mut workload = Workload::new(&volume, &recorder, seed, kind.delay > 0);
    workload.run(calls);
    let (history, inodes) = (std::mem::take(&mut workload.history), workload.inodes.clone());
    drop(workload);
    volume.close().unwrap();
    let events = by_blocks(recorder.take(), u64::from(kind.block_size));
    Run { base, events, history, values: Vec::new(), inodes, directories: Vec::new() }
}

/// As [`record`], of larger things.
pub fn record_deep(kind: &Kind, seed: u64, calls: u64) -> Run {
    let base = made(kind);
    let recorder = Arc::new(Recorder::new(Arc::new(copy(&base))));
    let volume = Volume::open(recorder.clone(), &options(kind)).unwrap();
    let mut workload = Deep::new(&volume, &recorder, seed);
    workload.run(calls);
    let Deep { history, values, inodes, directories, .. } = workload;
    volume.close().unwrap();
    let events = by_blocks(recorder.take(), u64::from(kind.block_size));
    Run { base, events, history, values, inodes, directories }
}

/// Goes through the states of a run, to the first that is wrong.
pub fn enumerate(
    kind: &Kind,
    run: &Run,
    seed: u64,
    most: usize,
    e2fsck_every: usize,
) -> Result<usize, String> {
    let scratch = Scratch::new("softdep");
    let size = BlockSize::from_bytes(u64::from(kind.block_size)).unwrap();
    let states = States::new(Arc::new(copy(&run.base)), run.events.clone(), size, seed).in_whole_writes();
    let (mut count, mut first) = (0, None);
    states.all(|state| {
        count += 1;
        let promises = Promises {
            history: &run.history,
            inodes: &run.inodes,
            values: &run.values,
            directories: &run.directories,
            promised: usize::try_from(state.promised).unwrap(),
            begun: usize::try_from(state.begun).unwrap(),
        };
        let by_e2fsck = e2fsck_every > 0 && count % e2fsck_every == 0;
        let judged = oracle::before_recovery(state.device.clone())
            .and_then(|()| if by_e2fsck { oracle::e2fsck(state, &scratch, &promises) } else { Ok(()) })
            .and_then(|()| oracle::recovered(state.device.clone(), &options(kind), &promises));
        if let Err(what) = judged {
            if std::env::var_os("PLATFS_KEEP").is_some() {
                let device = state.again();
                let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
                device.read_at(0, &mut bytes).unwrap();
                std::fs::write("/var/tmp/softdep-state.img", bytes).unwrap();
            }
            first = Some(format!("{}, seed {seed}, {}: {what}", kind.name, state.name));
        }
        first.is_none() && count < most
    });
    first.map_or(Ok(count), Err)
}

/// Where a volume of one group keeps what faults tell apart.
pub fn places(device: &MemoryDevice) -> faults::Places {
    let volume = Volume::open(Arc::new(copy(device)), &OpenOptions::new()).unwrap();
    let format = volume.format();
    let raw = volume.space().descriptors().get(format, platfs::ondisk::units::Group(0)).unwrap();
    let at = |block| format.geometry.byte_offset(block);
    let table = at(raw.inode_table());
    let len = u64::from(format.geometry.inode_table_blocks()) * u64::from(format.geometry.block_size.bytes());
    faults::Places {
        bitmaps: vec![at(raw.block_bitmap()), at(raw.inode_bitmap())],
        inodes: table..table + len,
        inode_size: usize::from(format.geometry.inode_size),
    }
}
