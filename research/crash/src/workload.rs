//! Workloads: what is done, on which volumes, in which orders.

use std::fmt;

use platfs::OpenOptions;
use platfs::device::MemoryDevice;
use platfs::mkfs::{FsType, Options, Plan, parse_features};
use platfs::ondisk::inode::Timestamp;

use crate::order::Order;

/// Calls on a volume that is written in some order.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// No other of this order has it.
    pub name: &'static str,
    /// How the volume is written.
    pub order: Order,
    /// How the volume was made.
    pub shape: Shape,
    /// Bytes that may wait in memory.
    pub delay: u64,
    /// Calls of the workload.
    pub calls: Calls,
}

/// How a volume is made.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The set of features.
    pub fs_type: FsType,
    /// Features beside those of the type.
    pub features: &'static str,
    /// Bytes of a block.
    pub block_size: u32,
    /// Size.
    pub megabytes: u64,
    /// Inodes.
    pub inodes: u64,
    /// Fewer than usual, for many groups.
    pub blocks_per_group: Option<u32>,
}

/// Calls of a workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Calls {
    /// Random calls in a small universe of names.
    Random(RandomProfile),
    /// Random calls on larger things.
    DeepChooser,
    /// Random calls on what a crash of such a run left, or of a deep one, while that is reclaimed.
    Reclaiming {
        /// The run that crashed first was on larger things.
        deep: bool,
    },
    /// Each sequence of one and two calls, with each kind of sync behind each; a seed is the number of one.
    Sequences,
}

/// Profile of random runs on a kind of volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RandomProfile {
    /// Names are long and many, so that directories get blocks and indexes.
    pub crowded: bool,
    /// Blocks that are left free at the beginning.
    pub room: Option<u64>,
    /// Files move, and their maps change form.
    pub moving: bool,
    /// The volume as a whole changes: its label, what it counts, its size.
    pub changing: bool,
    /// Files have one of few attributes, and access control lists that come and go.
    pub sharing: bool,
}

impl Calls {
    /// Calls of a run.
    pub(crate) fn count(self) -> u64 {
        match self {
            Calls::Random(_) => 300,
            Calls::DeepChooser => 150,
            Calls::Reclaiming { .. } => 60,
            Calls::Sequences => 2,
        }
    }
}

const EXT4: Shape = Shape {
    fs_type: FsType::Ext4,
    features: "",
    block_size: 1024,
    megabytes: 6,
    inodes: 128,
    blocks_per_group: None,
};
const EXT3: Shape = Shape { fs_type: FsType::Ext3, ..EXT4 };
const EXT4_4K: Shape = Shape { features: "64bit,inline_data", block_size: 4096, megabytes: 16, ..EXT4 };

/// With small groups, for sizes that change.
const GROUPS: Shape = Shape { megabytes: 8, inodes: 512, blocks_per_group: Some(1024), ..EXT4 };

/// Without a journal.
const BARE: Shape = Shape { features: "^has_journal", megabytes: 4, ..EXT4 };
const BARE_4K: Shape =
    Shape { features: "^has_journal,^metadata_csum,uninit_bg", block_size: 4096, megabytes: 8, ..EXT4 };
const EXT2: Shape = Shape { fs_type: FsType::Ext2, features: "", ..BARE };
const BARE_QUOTA: Shape = Shape { features: "^has_journal,quota,project", ..BARE };
const EXT2_QUOTA: Shape = Shape { features: "quota", ..EXT2 };
const BARE_BIGALLOC: Shape = Shape { features: "^has_journal,bigalloc", megabytes: 8, ..EXT4 };

const TASTE: RandomProfile =
    RandomProfile { crowded: false, room: None, moving: false, changing: false, sharing: false };
const PLAIN: Calls = Calls::Random(TASTE);
const CROWDED: Calls = Calls::Random(RandomProfile { crowded: true, ..TASTE });
const MOVING: Calls = Calls::Random(RandomProfile { moving: true, ..TASTE });
const CHANGING: Calls = Calls::Random(RandomProfile { moving: true, changing: true, ..TASTE });
const SHARING: Calls = Calls::Random(RandomProfile { sharing: true, ..TASTE });
const RECLAIMING: Calls = Calls::Reclaiming { deep: false };
const RECLAIMING_DEEP: Calls = Calls::Reclaiming { deep: true };
const FULL: Calls = Calls::Random(RandomProfile { room: Some(60), ..TASTE });

const JOURNALED: &[Order] = &[Order::Ordered, Order::Writeback, Order::Journal];
const SOFTDEP: &[Order] = &[Order::Softdep];
const PHASED: &[Order] = &[Order::Softdep, Order::Normal, Order::Sync];

/// Name, orders, shape of the volume, bytes that may wait, calls.
type Row = (&'static str, &'static [Order], Shape, u64, Calls);

const ROWS: &[Row] = &[
    ("ext3_1k", JOURNALED, EXT3, 0, PLAIN),
    ("ext4_1k", JOURNALED, EXT4, 0, PLAIN),
    ("ext4_4k", JOURNALED, EXT4_4K, 0, PLAIN),
    ("delayed", JOURNALED, EXT4, 100 << 10, PLAIN),
    ("full", JOURNALED, EXT4, 0, FULL),
    ("crowded", JOURNALED, EXT4, 0, CROWDED),
    ("ext3_crowded", JOURNALED, EXT3, 0, CROWDED),
    ("no_checksums", JOURNALED, Shape { features: "^metadata_csum", ..EXT4 }, 0, PLAIN),
    ("bigalloc", JOURNALED, Shape { features: "bigalloc", megabytes: 24, ..EXT4 }, 0, PLAIN),
    ("deep", JOURNALED, Shape { megabytes: 12, inodes: 512, ..EXT4 }, 0, Calls::DeepChooser),
    ("quota", JOURNALED, Shape { features: "quota,project", ..EXT4 }, 64 << 10, PLAIN),
    ("moving", JOURNALED, EXT4, 0, MOVING),
    ("moving_delayed", JOURNALED, EXT4, 100 << 10, MOVING),
    ("moving_ext3", JOURNALED, EXT3, 0, MOVING),
    ("moving_bigalloc", JOURNALED, Shape { features: "bigalloc", megabytes: 24, ..EXT4 }, 0, MOVING),
    ("changing", JOURNALED, GROUPS, 0, CHANGING),
    ("changing_delayed", JOURNALED, GROUPS, 64 << 10, CHANGING),
    ("changing_ext3", JOURNALED, Shape { fs_type: FsType::Ext3, features: "", ..GROUPS }, 0, CHANGING),
    ("sharing", JOURNALED, EXT4, 0, SHARING),
    ("sharing_values", JOURNALED, Shape { features: "ea_inode,quota", ..EXT4 }, 0, SHARING),
    ("ext3_sequences", JOURNALED, EXT3, 0, Calls::Sequences),
    ("ext4_sequences", JOURNALED, EXT4, 0, Calls::Sequences),
    ("ext4_4k_sequences", JOURNALED, EXT4_4K, 0, Calls::Sequences),
    ("ext2_1k", PHASED, EXT2, 0, PLAIN),
    ("ext4_1k", PHASED, BARE, 0, PLAIN),
    ("ext4_4k", PHASED, BARE_4K, 64 << 10, PLAIN),
    ("full", SOFTDEP, BARE, 0, FULL),
    ("crowded", SOFTDEP, BARE, 0, CROWDED),
    ("bigalloc", SOFTDEP, BARE_BIGALLOC, 0, PLAIN),
    (
        "ext2_deep",
        SOFTDEP,
        Shape { features: "dir_index", megabytes: 8, inodes: 512, ..EXT2 },
        0,
        Calls::DeepChooser,
    ),
    (
        "ext4_deep",
        SOFTDEP,
        Shape { megabytes: 8, inodes: 512, blocks_per_group: Some(1024), ..BARE },
        64 << 10,
        Calls::DeepChooser,
    ),
    ("bigalloc_deep", SOFTDEP, Shape { megabytes: 64, inodes: 512, ..BARE_BIGALLOC }, 0, Calls::DeepChooser),
    ("moving", PHASED, BARE, 0, MOVING),
    ("moving_delayed", SOFTDEP, BARE, 64 << 10, MOVING),
    ("moving_ext2", PHASED, EXT2, 0, MOVING),
    ("moving_bigalloc", SOFTDEP, BARE_BIGALLOC, 0, MOVING),
    ("changing", PHASED, BARE, 0, CHANGING),
    ("changing_ext2", SOFTDEP, EXT2, 0, CHANGING),
    ("sharing", PHASED, BARE, 0, SHARING),
    ("sharing_ext2", PHASED, EXT2, 0, SHARING),
    ("quota", PHASED, BARE_QUOTA, 64 << 10, CHANGING),
    ("quota_ext2", PHASED, EXT2_QUOTA, 0, CHANGING),
    ("quota_full", SOFTDEP, BARE_QUOTA, 0, FULL),
    ("quota_reclaiming", SOFTDEP, BARE_QUOTA, 0, RECLAIMING),
    ("quota_deep", SOFTDEP, Shape { megabytes: 8, inodes: 512, ..BARE_QUOTA }, 64 << 10, Calls::DeepChooser),
    ("ext2_reclaiming", PHASED, EXT2, 0, RECLAIMING),
    ("ext4_reclaiming", PHASED, BARE, 0, RECLAIMING),
    ("ext4_4k_reclaiming", SOFTDEP, BARE_4K, 64 << 10, RECLAIMING),
    ("bigalloc_reclaiming", SOFTDEP, BARE_BIGALLOC, 0, RECLAIMING),
    (
        "deep_reclaiming",
        SOFTDEP,
        Shape { megabytes: 8, inodes: 512, blocks_per_group: Some(1024), ..BARE },
        0,
        RECLAIMING_DEEP,
    ),
    ("ext2_sequences", PHASED, EXT2, 0, Calls::Sequences),
    ("ext4_sequences", PHASED, BARE, 0, Calls::Sequences),
];

/// All workloads of an order.
#[must_use]
pub fn workloads(order: Order) -> Vec<Workload> {
    let rows = ROWS.iter().filter(|(_, orders, ..)| orders.contains(&order));
    rows.map(|(name, _, shape, delay, calls)| Workload {
        name,
        order,
        shape: *shape,
        delay: *delay,
        calls: *calls,
    })
    .collect()
}

/// The workload of an order that is called so.
#[must_use]
pub fn workload(order: Order, name: &str) -> Option<Workload> {
    workloads(order).into_iter().find(|workload| workload.name == name)
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.order.name(), self.name)
    }
}

impl Workload {
    pub(crate) fn options(&self) -> OpenOptions {
        let now = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
        self.order.of(OpenOptions::new().write(true).delay(self.delay).now(now))
    }

    /// Returns true if e2fsck can't repair what a crash leaves: it makes quota files again in free blocks, and a full volume has
    /// none.
    pub(crate) fn is_beyond_e2fsck(&self) -> bool {
        let is_full = matches!(self.calls, Calls::Random(RandomProfile { room: Some(_), .. }));
        is_full && self.order.is_phased() && self.shape.features.contains("quota")
    }

    /// Bytes of the device: there is room behind a volume whose size changes.
    fn device_bytes(&self) -> u64 {
        let grows = matches!(self.calls, Calls::Random(RandomProfile { changing: true, .. }));
        self.shape.megabytes << (20 + u32::from(grows))
    }

    /// An empty volume.
    pub(crate) fn made(&self) -> MemoryDevice {
        let (shape, device) = (&self.shape, MemoryDevice::new(self.device_bytes()));
        let mut options = Options::new(shape.fs_type);
        options.features = parse_features(shape.features).unwrap();
        options.block_size = Some(shape.block_size);
        if !self.order.is_phased() {
            options.journal.size = Some(1024 * u64::from(shape.block_size));
        }
        options.inodes = Some(shape.inodes);
        options.blocks_per_group = shape.blocks_per_group;
        Plan::new(&options, shape.megabytes << 20).unwrap().write(&device).unwrap();
        device
    }
}
