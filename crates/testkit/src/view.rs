//! A volume as another program than platfs shows it: the tree, and how far that view can be trusted.

use crate::mount::Mounted;
use crate::snapshot::{Rules, Snapshot};
use crate::tool;
use std::path::Path;

/// Mounts `image` with the kernel, or where it can't (large blocks, features it lacks) with fuse2fs; `None` with a message where neither can.
pub fn seen(test: &str, image: &Path) -> Option<MountedView> {
    match Mounted::read_only(image) {
        Ok(mounted) => Some(MountedView { tree: tree_of(&mounted), by_kernel: true, mounted }),
        Err(reason) => match Mounted::fuse2fs(image) {
            Ok(mounted) => Some(MountedView { tree: tree_of(&mounted), by_kernel: false, mounted }),
            Err(other) => {
                tool::skip(test, &format!("no mount: {reason}; {other}"));
                None
            }
        },
    }
}

/// A mounted image and what is in it.
pub struct MountedView {
    /// Its tree.
    pub tree: Snapshot,
    /// The kernel showed it, not fuse2fs.
    pub by_kernel: bool,
    /// The mount itself.
    pub mounted: Mounted,
}

impl MountedView {
    /// `rules` without what this view does not show: fuse2fs hides holes, and shows whole seconds only.
    pub fn rules(&self, rules: Rules) -> Rules {
        if self.by_kernel { rules } else { Rules { hole_granularity: 0, nanoseconds: false, ..rules } }
    }
}

fn tree_of(mounted: &Mounted) -> Snapshot {
    Snapshot::of(mounted.path()).unwrap_or_else(|e| panic!("{e}"))
}
