//! Making a new volume: a pure plan first, then writing it.
//!
//! ```text
//!  Options --profile, rules--> Shape --tables--> Layout --block_use, files--> Plan --write--> Device
//!           (mke2fs.conf)     (sizes)           (places of tables)        (everything)
//! ```
//!
//! The plan decides everything; writing it can't fail for another reason than the device. Sizes and
//! places are those that mke2fs 1.47.0 chooses. Tables are laid out pack by pack (a flex group at a
//! time), on demand, so that a plan of any size is cheap; descriptors are streamed.
//!
//! It excludes copying files into the volume: that is done through [`crate::Volume`].

mod block_use;
mod files;
mod journal_device;
mod journal_size;
pub mod layout;
mod mapping;
mod options;
mod profile;
mod resize;
mod rules;
mod runs;
mod shape;
mod superblock;
mod tables;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeMap;

use ondisk::features::{Compat, Incompat, RoCompat};
use ondisk::geometry::Geometry;
use ondisk::inode::Inode;
use ondisk::superblock::RawSuperblock;
use ondisk::units::{Group, low_u32};

use crate::device::Device;
use crate::{Error, Result};
use block_use::BlockUse;
use tables::Layout;

pub use journal_device::JournalDevice;
pub use journal_size::default_blocks as default_journal_blocks;
pub use options::{
    Amount, Encoding, FeatureEdit, FsType, JournalOptions, OnError, Options, Storage, Usage, parse_features,
};

/// Everything about a new volume, decided.
#[derive(Clone, Debug)]
pub struct Plan {
    raw: RawSuperblock,
    geometry: Geometry,
    block_use: BlockUse,
    inodes: BTreeMap<u32, Inode>,
    writes: Vec<files::Write>,
    storage: Storage,
    lazy_inode_tables: bool,
    notes: Vec<String>,
}

/// Blocks that are free when only superblocks, descriptors, bitmaps and tables exist; whole clusters.
fn free_at_first(layout: &Layout) -> Result<u64> {
    let geometry = &layout.geometry;
    let all = geometry.blocks - u64::from(geometry.first_data_block);
    let used = if geometry.cluster_log2 == 0 {
        let per_group = 2 + u64::from(geometry.inode_table_blocks());
        tables::header_blocks(geometry) + u64::from(geometry.groups) * per_group
    } else {
        let mut used = 0;
        for pack in 0..layout.packs() {
            let span = layout.span(&layout.groups_of(pack));
            used += layout.pack(pack)?.used.count_within(span.start, span.end);
        }
        used
    };
    all.checked_sub(used).ok_or_else(|| Error::Invalid(format!("{all} blocks can't hold the group tables")))
}

impl Plan {
    /// Plans a volume on `bytes` bytes; a rest that makes no block or cluster stays unused, and so
    /// does a last group too small to be useful.
    ///
    /// # Errors
    /// Options that are out of range or contradict each other, or a size that is too small or too
    /// large for them, each named with its value.
    pub fn new(options: &Options, bytes: u64) -> Result<Plan> {
        let mut shape = shape::Shape::new(options, bytes)?;
        let mut notes = Vec::new();
        if shape.features.incompat.contains(Incompat::JOURNAL_DEV) {
            return shape::invalid("a journal device is no volume; it has a plan of its own");
        }
        if shape.features.compat.contains(Compat::HAS_JOURNAL) && shape.blocks < journal_size::LEAST_VOLUME {
            shape.features.compat.remove(Compat::HAS_JOURNAL | Compat::ORPHAN_FILE | Compat::FAST_COMMIT);
            notes.push(format!("{} blocks are too few for a journal: none is made", shape.blocks));
        }
        if shape.lost_growth {
            notes.push(
                "volumes of 1 KiB blocks in clusters can't grow while mounted: no resize inode is made"
                    .into(),
            );
        }
        let mut raw = superblock::of_volume(options, &shape);
        let geometry = shape.geometry(&raw)?;
        let packed = options.packed_meta_blocks && shape.features.incompat.contains(Incompat::FLEX_BG);
        let layout = Layout { geometry, packed, stride: options.stride.unwrap_or(0) };
        let free = free_at_first(&layout)?;
        let overhead = (geometry.blocks - free) >> geometry.cluster_log2;
        // 0 means that the number is not known. The next mount counts it.
        raw.s_overhead_clusters.set(u32::try_from(overhead).unwrap_or(0));
        let mut files = files::Files::new(options, &shape, &mut raw, BlockUse::new(layout));
        files.plan()?;
        let files::Files { block_use, writes, inodes, .. } = files;
        raw.set_free_blocks_count(free - block_use.taken());
        let used = low_u32(inodes.len() as u64);
        raw.s_free_inodes_count.set(geometry.inodes().saturating_sub(used));
        Ok(Plan {
            raw,
            geometry,
            block_use,
            inodes,
            writes,
            storage: options.storage,
            lazy_inode_tables: options.lazy_inode_tables,
            notes,
        })
    }

    /// The superblock as it will be written, but for its checksum and the count of written bytes.
    #[must_use]
    pub fn superblock(&self) -> &RawSuperblock {
        &self.raw
    }

    /// The sizes.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Blocks free for files, those reserved for the super-user included.
    #[must_use]
    pub fn free_blocks(&self) -> u64 {
        self.raw.free_blocks_count()
    }

    /// Inodes free for files.
    #[must_use]
    pub fn free_inodes(&self) -> u32 {
        self.raw.s_free_inodes_count.get()
    }

    /// Bytes of the volume.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.geometry.blocks << self.geometry.block_size.log2()
    }

    /// Notes for the caller: features that were left out, and why.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// First blocks of the superblock's backups.
    #[must_use]
    pub fn backups(&self) -> Vec<u64> {
        let groups = tables::superblock_groups(&self.geometry);
        groups.into_iter().skip(1).map(|group| self.geometry.group_start(Group(group)).0).collect()
    }

    /// Blocks of the journal; 0 without one.
    #[must_use]
    pub fn journal_blocks(&self) -> u64 {
        let number = self.raw.s_journal_inum.get();
        self.inodes.get(&number).map_or(0, |inode| inode.size() >> self.geometry.block_size.log2())
    }

    /// True if groups carry flags that say what is not initialised.
    fn has_group_flags(&self) -> bool {
        self.raw.features().ro_compat.intersects(RoCompat::GDT_CSUM | RoCompat::METADATA_CSUM)
    }

    /// Writes the volume and flushes. Parts of the device that stay unused are not touched.
    ///
    /// The superblock is written last: an interrupted run leaves no volume that looks complete.
    ///
    /// # Errors
    /// A device that is too small, or its failures.
    pub fn write(&self, device: &dyn Device) -> Result<()> {
        write::Writer::new(self, device)?.run()
    }
}
