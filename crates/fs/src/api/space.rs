//! The space of a volume, to look at: free counts, group descriptors, damage.

use ondisk::corrupt::Corrupt;
use ondisk::group::RawGroupDescriptor;
use ondisk::units::Group;

use crate::error::Result;
use crate::space::Space;
use crate::volume::Volume;

/// The space of a volume, to look at; see [`Volume::space`].
///
/// ```
/// let image = platfs::Image::in_memory(8 << 20)?;
/// let (clusters, inodes) = image.volume().space().free().unwrap_or_default();
/// image.write("/file", vec![1; 1 << 20])?;
/// let left = image.volume().space().free().unwrap_or_default();
/// assert!(left.0 < clusters && left.1 == inodes - 1);
/// # Ok::<(), platfs::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct FreeSpace<'v> {
    space: &'v Space,
}

impl FreeSpace<'_> {
    /// Clusters and inodes that can be taken now; `None` on a volume that is only read.
    #[must_use]
    pub fn free(self) -> Option<(u64, u64)> {
        self.space.free()
    }

    /// Returns free clusters and inodes after the next sync, without those promised to dirty bytes.
    #[must_use]
    pub fn free_after_sync(self) -> Option<(u64, u64)> {
        self.space.free_after_sync()
    }

    /// True if a sync makes space or inodes free.
    #[must_use]
    pub fn holds_freed(self) -> bool {
        self.space.holds_freed()
    }

    /// A group's descriptor as of the last sync, its checksum verified and its pointers inside the volume.
    ///
    /// # Errors
    /// A group behind the last, a wrong checksum, a pointer outside the volume.
    pub fn descriptor(self, group: Group) -> Result<RawGroupDescriptor> {
        self.space.descriptors().get(group)
    }

    /// Damage of bitmaps met so far. Groups with a damaged one are not used.
    #[must_use]
    pub fn damage(self) -> Vec<Corrupt> {
        self.space.damage()
    }

    /// Reads the bitmaps of all groups, as Linux does behind a mount, so that placement knows all there is.
    ///
    /// # Errors
    /// The device's failure; a volume that is only read.
    pub fn load_bitmaps(self) -> Result<()> {
        self.space.load_bitmaps()
    }

    /// Statistics of placement; `None` on a volume that is only read.
    #[must_use]
    pub fn statistics(self) -> Option<placement::Stats> {
        self.space.statistics()
    }

    /// From now on placement keeps where it looks at free runs.
    pub fn keep_scans(self) {
        self.space.keep_scans();
    }

    /// Where placement looked at free runs since the last call, and at how many: in a group, or in its index of all.
    #[must_use]
    pub fn take_scans(self) -> Vec<(Option<Group>, u64)> {
        self.space.take_scans()
    }
}

impl Volume {
    /// Its space: free counts, group descriptors, damage.
    #[must_use]
    pub fn space(&self) -> FreeSpace<'_> {
        FreeSpace { space: &self.space }
    }
}
