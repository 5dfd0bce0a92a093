//! Kinds of volumes, and what is done on them.

use platfs::device::MemoryDevice;
use platfs::mkfs::{FsType, Options, Plan, parse_features};
use platfs::ondisk::inode::Timestamp;
use platfs::{DataMode, OpenOptions};

use crate::oracle::journal::Rule;
use crate::random::Taste;

/// A kind of volume, and how it is written.
#[derive(Clone, Copy)]
pub struct Kind {
    pub name: &'static str,
    pub fs_type: FsType,
    pub features: &'static str,
    pub block_size: u32,
    pub megabytes: u64,
    pub data: DataMode,
    /// Bytes that may wait in memory.
    pub delay: u64,
    pub taste: Taste,
}

const PLAIN: Kind = Kind {
    name: "ext4_1k",
    fs_type: FsType::Ext4,
    features: "",
    block_size: 1024,
    megabytes: 6,
    data: DataMode::Ordered,
    delay: 0,
    taste: Taste { crowded: false, room: None },
};
const CROWDED: Taste = Taste { crowded: true, room: None };

pub const KINDS: &[Kind] = &[
    Kind { name: "ext3_1k", fs_type: FsType::Ext3, ..PLAIN },
    PLAIN,
    Kind { name: "ext4_4k", features: "64bit,inline_data", block_size: 4096, megabytes: 16, ..PLAIN },
    Kind { name: "ext4_delayed", delay: 100 << 10, ..PLAIN },
    Kind { name: "ext4_full", taste: Taste { crowded: false, room: Some(60) }, ..PLAIN },
    Kind { name: "ext4_crowded", taste: CROWDED, ..PLAIN },
    Kind { name: "ext4_bigalloc", features: "bigalloc", megabytes: 24, ..PLAIN },
    Kind { name: "ext3_journal", fs_type: FsType::Ext3, data: DataMode::Journal, ..PLAIN },
    Kind {
        name: "ext4_journal",
        features: "64bit,inline_data",
        block_size: 4096,
        megabytes: 16,
        data: DataMode::Journal,
        ..PLAIN
    },
    Kind { name: "ext4_journal_crowded", data: DataMode::Journal, taste: CROWDED, ..PLAIN },
    Kind { name: "ext4_writeback", features: "^metadata_csum", data: DataMode::Writeback, ..PLAIN },
    Kind {
        name: "ext3_writeback",
        fs_type: FsType::Ext3,
        data: DataMode::Writeback,
        taste: CROWDED,
        ..PLAIN
    },
];

impl Kind {
    pub fn options(&self) -> OpenOptions {
        OpenOptions::new()
            .write(true)
            .data(self.data)
            .delay(self.delay)
            .now(Timestamp { seconds: 1_700_000_000, nanoseconds: 0 })
    }

    pub fn made(&self) -> MemoryDevice {
        let device = MemoryDevice::new(self.megabytes << 20);
        let mut options = Options::new(self.fs_type);
        options.features = parse_features(self.features).unwrap();
        options.block_size = Some(self.block_size);
        options.journal.size = Some(1024 * u64::from(self.block_size));
        options.inodes = Some(128);
        Plan::new(&options, self.megabytes << 20).unwrap().write(&device).unwrap();
        device
    }

    /// What is asked of contents.
    pub fn rule(&self) -> Rule {
        match self.data {
            _ if self.delay > 0 => Rule::Late,
            DataMode::Ordered => Rule::InOrder,
            DataMode::Writeback => Rule::Names,
            DataMode::Journal => Rule::Exact,
        }
    }
}
