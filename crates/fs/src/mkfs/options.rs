//! Options of a new volume, as the caller gives them. Nothing here is checked yet; every
//! `None` is filled in from the type's profile and the size.

use ondisk::features::{FeatureBit, feature_by_name};
use ondisk::quota::QuotaKind;
use ondisk::units::BlockSize;

/// The family a volume belongs to: decides the default features.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FsType {
    /// Block maps, no journal.
    Ext2,
    /// Block maps and a journal.
    Ext3,
    /// Extents, journal, checksums, flexible groups.
    Ext4,
}

/// How the volume is going to be used: decides default block size and inode density.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Usage {
    /// 4 KiB blocks, an inode per 16 KiB.
    Default,
    /// Below 512 MiB: 1 KiB blocks, an inode per 4 KiB.
    Small,
    /// Below 3 MiB: 1 KiB blocks, an inode per 8 KiB.
    Floppy,
    /// From 4 TiB: an inode per 32 KiB.
    Big,
    /// From 16 TiB: an inode per 64 KiB.
    Huge,
    /// Very many small files: an inode per 4 KiB.
    News,
    /// An inode per 1 MiB.
    Largefile,
    /// An inode per 4 MiB.
    Largefile4,
    /// For the Hurd: inodes of 128 bytes.
    Hurd,
}

/// A change to the default features.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FeatureEdit {
    /// Clear everything (`none`).
    None,
    /// Set one.
    Set(FeatureBit),
    /// Clear one (`^name`).
    Clear(FeatureBit),
}

/// Reads a comma-separated list of feature names as after `-O`: `name`, `^name` and `none`.
///
/// # Errors
/// The first unknown name, as a sentence.
pub fn parse_features(list: &str) -> Result<Vec<FeatureEdit>, String> {
    let names = list.split([',', ' ', '\t']).filter(|name| !name.is_empty());
    let edit = |name: &str| {
        let (bare, clear) = match name.strip_prefix(['^', '-']) {
            Some(rest) => (rest, true),
            None => (name.strip_prefix('+').unwrap_or(name), false),
        };
        if name == "none" {
            return Ok(FeatureEdit::None);
        }
        let lower = bare.to_ascii_lowercase();
        let bit = feature_by_name(&lower).ok_or_else(|| format!("unknown feature `{bare}`"))?;
        Ok(if clear { FeatureEdit::Clear(bit) } else { FeatureEdit::Set(bit) })
    };
    names.map(edit).collect()
}

/// Behaviour of the kernel when it finds an error in the volume.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OnError {
    /// Note it and go on.
    Continue,
    /// Turn read-only.
    RemountReadOnly,
    /// Halt the machine.
    Panic,
}

/// A place or length on the volume, in whichever unit it was said.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Amount {
    /// Blocks of the volume, however large they turn out.
    Blocks(u64),
    /// Bytes; a started block counts.
    Bytes(u64),
}

impl Amount {
    /// Converts the amount to blocks.
    #[must_use]
    pub fn in_blocks(self, size: BlockSize) -> u64 {
        match self {
            Amount::Blocks(blocks) => blocks,
            Amount::Bytes(bytes) => size.blocks_for(bytes),
        }
    }
}

/// The journal's size and place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JournalOptions {
    /// Size in bytes, without the fast-commit area; by the volume's size if `None`.
    pub size: Option<u64>,
    /// Size of the fast-commit area in bytes; a 64th of the journal if `None`.
    pub fast_commit_size: Option<u64>,
    /// From where to look for room; the middle of the volume if `None`.
    pub location: Option<Amount>,
    /// Room for all of it in one run is looked for from the location on. mke2fs takes the first free blocks there, which
    /// may be gaps between tables.
    pub in_one_run: bool,
}

/// How names are folded in case-insensitive directories.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Encoding {
    /// `s_encoding`: 1 is UTF-8 as of Unicode 12.1.
    pub number: u16,
    /// `s_encoding_flags`: bit 0 refuses names that are not valid.
    pub flags: u16,
}

/// State of the storage's contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Storage {
    /// Everything reads as zeros: nothing has to be cleared, and unused parts stay sparse.
    #[default]
    Zeroed,
    /// Anything may be there: what must read as zeros is cleared. With descriptor checksums and
    /// [`Options::lazy_inode_tables`], unused inode tables are left to the kernel instead.
    Unknown,
}

/// A new volume's description.
///
/// Time, UUID and seeds are values: the same options give the same bytes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Family.
    pub fs_type: FsType,
    /// Usage types, later ones overriding; empty means by size.
    pub usage: Vec<Usage>,
    /// Bytes of a block.
    pub block_size: Option<u32>,
    /// Smallest block size that the heuristic may choose (`-b -SIZE`).
    pub least_block_size: Option<u32>,
    /// Bytes of a cluster (with `bigalloc`).
    pub cluster_size: Option<u64>,
    /// Bytes of an inode record.
    pub inode_size: Option<u32>,
    /// One inode for this many bytes.
    pub inode_ratio: Option<u64>,
    /// Inodes in all; overrides the ratio.
    pub inodes: Option<u64>,
    /// Changes to the family's features, in order.
    pub features: Vec<FeatureEdit>,
    /// Revision 0: no features, inodes of 128 bytes.
    pub old_revision: bool,
    /// Blocks in a group (clusters with `bigalloc`).
    pub blocks_per_group: Option<u32>,
    /// Groups whose tables are packed together; a power of two.
    pub flex_groups: Option<u32>,
    /// Share of the blocks reserved for the super-user, in percent, 0 to 50.
    pub reserved_percent: f64,
    /// Label, at most 16 bytes.
    pub label: Vec<u8>,
    /// Directory last mounted on, at most 64 bytes.
    pub last_mounted: Vec<u8>,
    /// UUID.
    pub uuid: [u8; 16],
    /// Seed of directory hashes.
    pub hash_seed: [u8; 16],
    /// Seed of checksums (with `metadata_csum_seed`); from the UUID if `None`.
    pub checksum_seed: Option<u32>,
    /// Now, in seconds since 1970.
    pub time: u64,
    /// Behaviour on errors.
    pub on_error: OnError,
    /// `s_creator_os`: 0 is Linux.
    pub creator_os: u32,
    /// Blocks per disk of a RAID; also spreads bitmaps where groups are not packed.
    pub stride: Option<u16>,
    /// Blocks per stripe of a RAID.
    pub stripe_width: Option<u32>,
    /// Up to where the volume shall be able to grow while mounted.
    pub resize_limit: Option<Amount>,
    /// The journal.
    pub journal: JournalOptions,
    /// Do not clear the journal on storage of unknown contents.
    pub lazy_journal: bool,
    /// Leave clearing unused inode tables to the kernel.
    pub lazy_inode_tables: bool,
    /// Put all bitmaps and tables, and the journal, at the start.
    pub packed_meta_blocks: bool,
    /// Superblock backups with `sparse_super2`: 0, 1 or 2.
    pub backup_superblocks: u32,
    /// Owner and group of the root directory.
    pub root_owner: (u32, u32),
    /// Label of the root directory for SELinux; none if it is empty.
    pub root_label: Vec<u8>,
    /// Bytes of a group descriptor with `64bit`, a power of two from 64 to 1,024; 64 by default.
    pub descriptor_size: Option<u16>,
    /// Permissions of the root directory.
    pub root_permissions: u16,
    /// Kinds of quota (with `quota`); users and groups, and projects with `project`, if `None`.
    pub quota_kinds: Option<Vec<QuotaKind>>,
    /// Encoding of names (with `casefold`).
    pub encoding: Encoding,
    /// Seconds between updates of the `mmp` block; 0 means the default.
    pub mmp_interval: u16,
    /// Names of machine and device for the `mmp` block.
    pub mmp_names: (Vec<u8>, Vec<u8>),
    /// Length of the orphan file.
    pub orphan_file_size: Option<Amount>,
    /// State of the storage's contents.
    pub storage: Storage,
    /// Mark the volume as a playground for experimental code.
    pub test_volume: bool,
}

impl Options {
    /// The defaults of a family, with a UUID, hash seed and time of zero for the caller to fill in.
    #[must_use]
    pub fn new(fs_type: FsType) -> Self {
        Options {
            fs_type,
            usage: Vec::new(),
            block_size: None,
            least_block_size: None,
            cluster_size: None,
            inode_size: None,
            inode_ratio: None,
            inodes: None,
            features: Vec::new(),
            old_revision: false,
            blocks_per_group: None,
            flex_groups: None,
            reserved_percent: 5.0,
            label: Vec::new(),
            last_mounted: Vec::new(),
            uuid: [0; 16],
            hash_seed: [0; 16],
            checksum_seed: None,
            time: 0,
            on_error: OnError::Continue,
            creator_os: 0,
            stride: None,
            stripe_width: None,
            resize_limit: None,
            journal: JournalOptions::default(),
            lazy_journal: false,
            lazy_inode_tables: true,
            packed_meta_blocks: false,
            backup_superblocks: 2,
            root_owner: (0, 0),
            root_label: Vec::new(),
            descriptor_size: None,
            root_permissions: 0o755,
            quota_kinds: None,
            encoding: Encoding { number: 1, flags: 0 },
            mmp_interval: 0,
            mmp_names: (Vec::new(), Vec::new()),
            orphan_file_size: None,
            storage: Storage::Zeroed,
            test_volume: false,
        }
    }
}
