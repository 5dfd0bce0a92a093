//! The inode engine: which inode a new file or directory gets.
//!
//! Owns the inode bitmaps and counters of all groups as the allocator sees them. Excludes I/O and
//! durability, like the block engine. Inodes are named by their index, counted from 0
//! (`InodeNumber::index`); group `g` owns the indices from `g * inodes_per_group` on.

pub(crate) mod map;
pub mod policy;
mod recent;
mod view;

pub use map::InodeContent;
pub use policy::DirectoryPolicyKind;

use crate::engine::Engine;
use crate::layout::Layout;
use crate::request::{Contradiction, Denial};
use map::InodeMap;
use ondisk::units::Group;
use policy::DirectoryPolicy;
use std::sync::Arc;
use view::InodeView;

/// A request for an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeRequest {
    /// Index of the directory that will name it; the root directory names itself.
    pub parent: u32,
    /// True if it will be a directory.
    pub is_directory: bool,
    /// A directory whose parent is the root or marked as the top of unrelated trees (`TOPDIR`):
    /// such are spread over the volume.
    pub top_level: bool,
    /// A number that differs between names; where the search for a top-level directory's place
    /// begins.
    pub name_hash: u32,
    /// The kernel's hash of the name with the volume's own seed. `orlov` begins its search for a top-level directory's
    /// place there. 0 for all other inodes.
    pub seeded_hash: u32,
    /// Loading in order: the next inode in rising order, whatever the locality.
    pub sequential: bool,
}

/// Reason for which no inode was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InodeRefusal {
    /// No inode is free.
    #[error("no free inode")]
    NoInodes,
    /// The inode bitmap of this group must be loaded; then the caller asks again.
    #[error("the inode bitmap of group {0} has to be loaded first")]
    NeedBitmap(Group),
}

/// Inodes of a volume and the policy that places them.
pub struct InodeEngine {
    shared: Arc<Shared>,
}

/// State shared by the engine and its grants.
struct Shared {
    map: InodeMap,
    space: Arc<Engine>,
    policy: Box<dyn DirectoryPolicy>,
}

impl InodeEngine {
    /// An engine for the volume of `space`, whose free clusters decide where directories fit.
    /// Until its groups are described, each counts as full.
    #[must_use]
    pub fn new(space: Arc<Engine>, policy: DirectoryPolicyKind) -> Self {
        Self::with_policy(space, policy.make())
    }

    /// An engine with a policy that is not in the registry, or has other tunables.
    #[must_use]
    pub fn with_policy(space: Arc<Engine>, policy: Box<dyn DirectoryPolicy>) -> Self {
        InodeEngine { shared: Arc::new(Shared { map: InodeMap::new(*space.layout()), space, policy }) }
    }

    /// Geometry of the volume.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        self.shared.space.layout()
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
        self.shared.map.describe(group, free_inodes, used_dirs, content)
    }

    /// Takes in a group's inode bitmap as it stands on disk. A known group is left alone.
    ///
    /// # Errors
    /// A bitmap too short, or one that disagrees with the described free count; then the group is
    /// out of service and the rest of the volume usable.
    pub fn load_group(&self, group: Group, bitmap: &[u8]) -> Result<(), Contradiction> {
        self.shared.map.load(group, bitmap)
    }

    /// Takes a group out of service, because its bitmap can't be believed.
    pub fn retire_group(&self, group: Group) {
        self.shared.map.retire(group);
    }

    /// From now on no inode of this group and those behind it is given out, and none that is free there counts. Those in use
    /// can be given back. Nothing may be taken or given back meanwhile.
    pub fn close_groups(&self, first: Group) {
        self.shared.map.close(first);
    }

    /// Gives inodes of all groups out again. Nothing may be taken or given back meanwhile.
    pub fn open_groups(&self) {
        self.shared.map.open();
    }

    /// Finds and takes an inode.
    ///
    /// # Errors
    /// [`InodeRefusal::NeedBitmap`]: load that group's inode bitmap and ask again.
    /// [`InodeRefusal::NoInodes`]: none is free.
    pub fn allocate(&self, request: &InodeRequest) -> Result<InodeGrant, InodeRefusal> {
        let map = &self.shared.map;
        let index = if request.sequential { map.take_next()? } else { self.shared.take(request)? };
        if request.is_directory {
            map.count_directory(index, true);
        }
        if !request.sequential {
            self.shared.policy.created(&self.shared.view(), request, index);
        }
        Ok(self.grant(index, request.is_directory))
    }

    fn grant(&self, index: u32, is_directory: bool) -> InodeGrant {
        InodeGrant { shared: Arc::clone(&self.shared), index, is_directory, held: true }
    }

    /// Takes exactly this inode.
    ///
    /// # Errors
    /// [`Denial`] if it is used, outside the volume, or in a group that is not loaded.
    pub fn take_exact(&self, index: u32, is_directory: bool) -> Result<InodeGrant, Denial> {
        self.shared.map.set(index, true)?;
        if is_directory {
            self.shared.map.count_directory(index, true);
        }
        Ok(self.grant(index, is_directory))
    }

    /// Returns true if an inode is in use; `None` outside the volume and in a group that is not loaded or
    /// out of service.
    #[must_use]
    pub fn is_used(&self, index: u32) -> Option<bool> {
        self.shared.map.is_used(index)
    }

    /// Gives an inode back; it can be granted again at once.
    ///
    /// # Errors
    /// [`Denial`] if it is free already, outside the volume, or in a group that is not loaded.
    pub fn free(&self, index: u32, was_directory: bool) -> Result<(), Denial> {
        self.shared.free(index, was_directory)
    }

    /// Free inodes of the volume.
    #[must_use]
    pub fn free_inodes(&self) -> u64 {
        self.shared.map.free()
    }

    /// Free inodes of a group.
    #[must_use]
    pub fn group_free(&self, group: Group) -> u32 {
        self.shared.map.group_free(group)
    }

    /// Directories of a group.
    #[must_use]
    pub fn group_dirs(&self, group: Group) -> u32 {
        self.shared.map.group_dirs(group)
    }

    /// Groups whose counters the policy has looked at to place directories.
    #[must_use]
    pub fn groups_considered(&self) -> u64 {
        self.shared.map.considered()
    }

    /// Clusters at the start of a group's data that the policy would rather see used by blocks of
    /// directories: contents of files best begin that much behind them.
    #[must_use]
    pub fn directory_area(&self, group: Group) -> u32 {
        let area = self.shared.policy.directory_area(self.layout());
        area.min(self.layout().clusters_of(group) / 16)
    }

    /// True if the policy wants blocks of directories to come and go as in Linux.
    #[must_use]
    pub fn keeps_blocks_as_linux(&self) -> bool {
        self.shared.policy.keeps_blocks_as_linux()
    }

    /// Writes the group's inode bitmap into `out`; all bits past the group's end are set.
    ///
    /// # Errors
    /// [`Denial::NeedBitmap`] for a group whose bitmap was never loaded.
    pub fn group_bitmap(&self, group: Group, out: &mut [u8]) -> Result<(), Denial> {
        self.shared.map.render(group, out)
    }
}

impl Shared {
    fn view(&self) -> InodeView<'_> {
        InodeView { map: &self.map, space: &self.space }
    }

    fn take(&self, request: &InodeRequest) -> Result<u32, InodeRefusal> {
        let view = self.view();
        let goal = if request.is_directory {
            self.policy.for_directory(&view, request)
        } else {
            self.policy.for_file(&view, request)
        };
        match self.map.take_at(goal)? {
            Some(index) => Ok(index),
            None => self.map.take_among(&self.policy.elsewhere(&view, request, goal.group)),
        }
    }

    fn free(&self, index: u32, was_directory: bool) -> Result<(), Denial> {
        self.map.set(index, false)?;
        if was_directory {
            self.map.count_directory(index, false);
        }
        self.policy.freed(&self.view(), index, was_directory);
        Ok(())
    }
}

/// An inode that is taken but not yet anyone's for good: dropping the grant gives it back.
#[must_use = "dropping a grant gives its inode back"]
pub struct InodeGrant {
    shared: Arc<Shared>,
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
        self.shared.map.group_of(self.index)
    }

    /// Makes the grant permanent.
    pub fn into_index(mut self) -> u32 {
        self.held = false;
        self.index
    }
}

impl Drop for InodeGrant {
    fn drop(&mut self) {
        if self.held {
            // It is used, so this can't fail.
            let _ = self.shared.free(self.index, self.is_directory);
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
