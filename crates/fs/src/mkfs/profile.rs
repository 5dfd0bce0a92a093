//! The defaults of families and usage types: those of the `mke2fs.conf` that comes with e2fsprogs
//! 1.47.0.

use ondisk::features::{Compat, Features, Incompat, RoCompat};
use ondisk::superblock::CREATOR_HURD;

use super::options::{FeatureEdit, FsType, Options, Usage};
use crate::{Error, Result};

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

/// Features of every family.
const BASE: Features = Features {
    compat: Compat::RESIZE_INODE.union(Compat::DIR_INDEX).union(Compat::EXT_ATTR),
    incompat: Incompat::FILETYPE,
    ro_compat: RoCompat::SPARSE_SUPER.union(RoCompat::LARGE_FILE),
};

/// Features a new volume can have.
const POSSIBLE: Features = Features {
    compat: Compat::HAS_JOURNAL
        .union(Compat::EXT_ATTR)
        .union(Compat::RESIZE_INODE)
        .union(Compat::DIR_INDEX)
        .union(Compat::SPARSE_SUPER2)
        .union(Compat::FAST_COMMIT)
        .union(Compat::STABLE_INODES)
        .union(Compat::ORPHAN_FILE),
    incompat: Incompat::FILETYPE
        .union(Incompat::JOURNAL_DEV)
        .union(Incompat::META_BG)
        .union(Incompat::EXTENTS)
        .union(Incompat::BIT64)
        .union(Incompat::MMP)
        .union(Incompat::FLEX_BG)
        .union(Incompat::EA_INODE)
        .union(Incompat::CSUM_SEED)
        .union(Incompat::LARGEDIR)
        .union(Incompat::INLINE_DATA)
        .union(Incompat::ENCRYPT)
        .union(Incompat::CASEFOLD),
    ro_compat: RoCompat::SPARSE_SUPER
        .union(RoCompat::LARGE_FILE)
        .union(RoCompat::HUGE_FILE)
        .union(RoCompat::GDT_CSUM)
        .union(RoCompat::DIR_NLINK)
        .union(RoCompat::EXTRA_ISIZE)
        .union(RoCompat::QUOTA)
        .union(RoCompat::BIGALLOC)
        .union(RoCompat::METADATA_CSUM)
        .union(RoCompat::PROJECT)
        .union(RoCompat::VERITY),
};

/// Values of a usage type; `None` leaves one to the types before.
struct Row {
    usage: Usage,
    block_size: Option<u32>,
    inode_size: Option<u32>,
    inode_ratio: Option<u64>,
}

const fn row(usage: Usage, block_size: Option<u32>, inode_ratio: Option<u64>) -> Row {
    Row { usage, block_size, inode_size: None, inode_ratio }
}

const ROWS: [Row; 9] = [
    row(Usage::Default, None, None),
    row(Usage::Small, Some(1024), Some(4096)),
    row(Usage::Floppy, Some(1024), Some(8192)),
    row(Usage::Big, None, Some(32_768)),
    row(Usage::Huge, None, Some(65_536)),
    row(Usage::News, None, Some(4096)),
    row(Usage::Largefile, Some(4096), Some(1 << 20)),
    row(Usage::Largefile4, Some(4096), Some(4 << 20)),
    Row { usage: Usage::Hurd, block_size: Some(4096), inode_size: Some(128), inode_ratio: None },
];

/// The defaults that apply to a volume.
pub(super) struct Profile {
    pub(super) block_size: u32,
    pub(super) inode_size: u32,
    pub(super) inode_ratio: u64,
}

/// The usage type of volumes of this size.
fn usage_by_size(bytes: u64) -> Usage {
    match bytes {
        _ if bytes < 3 * MIB => Usage::Floppy,
        _ if bytes < 512 * MIB => Usage::Small,
        _ if bytes < 4 * TIB => Usage::Default,
        _ if bytes < 16 * TIB => Usage::Big,
        _ => Usage::Huge,
    }
}

impl Profile {
    /// The defaults for the usage types in `options`, or for the size.
    pub(super) fn from_options(options: &Options, bytes: u64) -> Profile {
        let by_size = [usage_by_size(bytes)];
        let usage = if options.usage.is_empty() { &by_size[..] } else { &options.usage };
        let hurd: &[Usage] = if options.creator_os == CREATOR_HURD { &[Usage::Hurd] } else { &[] };
        let mut profile = Profile { block_size: 4096, inode_size: 256, inode_ratio: 16_384 };
        for row in
            usage.iter().chain(hurd).flat_map(|usage| ROWS.iter().filter(move |row| row.usage == *usage))
        {
            profile.block_size = row.block_size.unwrap_or(profile.block_size);
            profile.inode_size = row.inode_size.unwrap_or(profile.inode_size);
            profile.inode_ratio = row.inode_ratio.unwrap_or(profile.inode_ratio);
        }
        profile
    }
}

fn family(fs_type: FsType) -> Features {
    let mut features = BASE;
    if fs_type != FsType::Ext2 {
        features.compat |= Compat::HAS_JOURNAL;
    }
    if fs_type == FsType::Ext4 {
        features.incompat |= Incompat::EXTENTS | Incompat::FLEX_BG | Incompat::BIT64;
        features.ro_compat |=
            RoCompat::HUGE_FILE | RoCompat::METADATA_CSUM | RoCompat::DIR_NLINK | RoCompat::EXTRA_ISIZE;
    }
    features
}

/// The family's features with the edits applied.
///
/// # Errors
/// A feature that a new volume can't have.
pub(super) fn features(options: &Options) -> Result<Features> {
    let mut features = if options.old_revision { Features::default() } else { family(options.fs_type) };
    if options.creator_os == CREATOR_HURD {
        // The Hurd uses these fields and bits for purposes of its own.
        features.incompat.remove(Incompat::FILETYPE);
        features.ro_compat.remove(RoCompat::HUGE_FILE | RoCompat::METADATA_CSUM);
    }
    for edit in &options.features {
        match edit {
            FeatureEdit::None => features = Features::default(),
            FeatureEdit::Clear(bit) => features.set(*bit, false),
            FeatureEdit::Set(bit) if POSSIBLE.has(*bit) => features.set(*bit, true),
            FeatureEdit::Set(bit) => {
                let mut one = Features::default();
                one.set(*bit, true);
                let name = one.names().join(", ");
                return Err(Error::option("-O", format!("feature {name} can't be given to a new volume")));
            }
        }
    }
    if options.old_revision && features != Features::default() {
        let names = features.names().join(", ");
        return Err(Error::option("-r", format!("revision 0 has no features, but {names} are asked for")));
    }
    Ok(features)
}
