//! The inode engine: which inode a new file or directory gets.
//!
//! Owns the inode bitmaps and counters of all groups as the allocator sees them. Excludes I/O and
//! durability, like the block engine. Inodes are named by their index, counted from 0
//! (`InodeNumber::index`); group `g` owns the indices from `g * inodes_per_group` on.

mod map;
pub mod policy;

pub use map::InodeContent;
pub use policy::DirectoryPolicyKind;

use crate::engine::Engine;
use crate::layout::Layout;
use crate::request::{Contradiction, Denial};
use map::InodeMap;
use ondisk::units::Group;
use policy::{DirectoryPolicy, InodeView};
use std::sync::Arc;

/// A request for an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeRequest {
    /// Index of the directory that will name it; the root directory names itself.
    pub parent: u32,
    /// Whether it will be a directory.
    pub is_directory: bool,
    /// A directory whose parent is the root or marked as the top of unrelated trees (`TOPDIR`):
    /// such are spread over the volume.
    pub top_level: bool,
    /// A number that differs between names; where the search for a top-level directory's place
    /// begins.
    pub name_hash: u32,
    /// Loading in order: the next inode in rising order, whatever the locality.
    pub sequential: bool,
}

/// Why no inode was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InodeRefusal {
    /// No inode is free.
    #[error("no free inode")]
    NoInodes,
    /// The inode bitmap of this group must be loaded; then the caller asks again.
    #[error("the inode bitmap of group {0} has to be loaded first")]
    NeedBitmap(Group),
}

/// Inodes of a volume and the policy that places directories.
pub struct InodeEngine {
    map: Arc<InodeMap>,
    space: Arc<Engine>,
    policy: Box<dyn DirectoryPolicy>,
}

impl InodeEngine {
    /// An engine for the volume of `space`, whose free clusters decide where directories fit.
    /// Until its groups are described, each counts as full.
    #[must_use]
    pub fn new(space: Arc<Engine>, policy: DirectoryPolicyKind) -> Self {
        InodeEngine { map: Arc::new(InodeMap::new(*space.layout())), space, policy: policy.make() }
    }

    /// Geometry of the volume.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        self.space.layout()
    }

    /// States what the descriptor of a group says; to be called once for each group.
    ///
    /// # Errors
    /// A group that doesn't exist, or more free inodes than it has.
    pub fn describe_group(
        &self,
        group: Group,
        free_inodes: u32,
        used_dirs: u32,
        content: InodeContent,
    ) -> Result<(), Contradiction> {
        self.map.describe(group, free_inodes, used_dirs, content)
    }

    /// Takes in a group's inode bitmap as it stands on disk. A known group is left alone.
    ///
    /// # Errors
    /// A bitmap too short, or one that disagrees with the described free count; then the group is
    /// out of service and the rest of the volume usable.
    pub fn load_group(&self, group: Group, bitmap: &[u8]) -> Result<(), Contradiction> {
        self.map.load(group, bitmap)
    }

    /// Finds and takes an inode.
    ///
    /// # Errors
    /// [`InodeRefusal::NeedBitmap`]: load that group's inode bitmap and ask again.
    /// [`InodeRefusal::NoInodes`]: none is free.
    pub fn allocate(&self, request: &InodeRequest) -> Result<InodeGrant, InodeRefusal> {
        let index = if request.sequential { self.map.take_next()? } else { self.take_near(request)? };
        if request.is_directory {
            self.map.count_directory(index, true);
        }
        Ok(InodeGrant { map: Arc::clone(&self.map), index, is_directory: request.is_directory, held: true })
    }

    fn take_near(&self, request: &InodeRequest) -> Result<u32, InodeRefusal> {
        let view = InodeView { map: &self.map, space: &self.space };
        let home = if request.is_directory {
            self.policy.group_for_directory(&view, request).ok_or(InodeRefusal::NoInodes)?
        } else {
            self.map.group_of(request.parent)
        };
        self.map.take_near(home)
    }

    /// Takes exactly this inode.
    ///
    /// # Errors
    /// [`Denial`] if it is used, outside the volume, or in a group that is not loaded.
    pub fn take_exact(&self, index: u32, is_directory: bool) -> Result<InodeGrant, Denial> {
        self.map.set(index, true)?;
        if is_directory {
            self.map.count_directory(index, true);
        }
        Ok(InodeGrant { map: Arc::clone(&self.map), index, is_directory, held: true })
    }

    /// Gives an inode back; it can be granted again at once.
    ///
    /// # Errors
    /// [`Denial`] if it is free already, outside the volume, or in a group that is not loaded.
    pub fn free(&self, index: u32, was_directory: bool) -> Result<(), Denial> {
        self.map.set(index, false)?;
        if was_directory {
            self.map.count_directory(index, false);
        }
        Ok(())
    }

    /// Free inodes of the volume.
    #[must_use]
    pub fn free_inodes(&self) -> u64 {
        self.map.free()
    }

    /// Free inodes of a group.
    #[must_use]
    pub fn group_free(&self, group: Group) -> u32 {
        self.map.group_free(group)
    }

    /// Directories of a group.
    #[must_use]
    pub fn group_dirs(&self, group: Group) -> u32 {
        self.map.group_dirs(group)
    }

    /// Free inodes at the end of the group's table: what `bg_itable_unused` may at most say.
    ///
    /// # Errors
    /// [`Denial::NeedBitmap`] for a group whose bitmap was never loaded.
    pub fn group_unused_tail(&self, group: Group) -> Result<u32, Denial> {
        self.map.unused_tail(group)
    }

    /// Writes the group's inode bitmap into `out`; all bits past the group's end are set.
    ///
    /// # Errors
    /// [`Denial::NeedBitmap`] for a group whose bitmap was never loaded.
    pub fn group_bitmap(&self, group: Group, out: &mut [u8]) -> Result<(), Denial> {
        self.map.render(group, out)
    }
}

/// An inode that is taken but not yet anyone's for good: dropping the grant gives it back.
#[must_use = "dropping a grant gives its inode back"]
pub struct InodeGrant {
    map: Arc<InodeMap>,
    index: u32,
    is_directory: bool,
    held: bool,
}

impl InodeGrant {
    /// Index of the inode, counted from 0.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Group of the inode.
    #[must_use]
    pub fn group(&self) -> Group {
        self.map.group_of(self.index)
    }

    /// Makes the grant permanent.
    pub fn keep(mut self) -> u32 {
        self.held = false;
        self.index
    }
}

impl Drop for InodeGrant {
    fn drop(&mut self) {
        if self.held && self.map.set(self.index, false).is_ok() && self.is_directory {
            self.map.count_directory(self.index, false);
        }
    }
}

impl std::fmt::Debug for InodeGrant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("InodeGrant").field(&self.index).finish()
    }
}

#[cfg(test)]
mod tests;
