//! Volumes to run the same work on, in the kernel and in a mount of ours.

use super::mounted::Mounted;
use std::path::{Path, PathBuf};
use testkit::scratch::Scratch;
use testkit::snapshot::{Rules, Snapshot, assert_same};
use testkit::{fsck, mount, tool};

/// A kind of volume: its name, the options of mke2fs, and those of a mount that both sides know.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    pub name: &'static str,
    pub mke2fs: &'static [&'static str],
    pub options: &'static str,
}

/// Extents, blocks of 4 KiB, delayed allocation.
pub const EXTENTS: Profile = Profile {
    name: "extents",
    mke2fs: &["-t", "ext4", "-b", "4096", "-O", "^has_journal"],
    options: "relatime",
};

/// Blocks below the page size, allocated at once.
pub const SMALL_BLOCKS: Profile = Profile {
    name: "small-blocks",
    mke2fs: &["-t", "ext4", "-b", "1024", "-O", "^has_journal"],
    options: "relatime,nodelalloc",
};

/// Written through a journal that goes round again and again.
pub const JOURNAL: Profile = Profile {
    name: "journal",
    mke2fs: &["-t", "ext4", "-b", "1024", "-J", "size=1"],
    options: "relatime,data=ordered,commit=1",
};

/// Blocks below the page size.
pub const SMALL_DELAYED: Profile = Profile { name: "small-delayed", options: "relatime", ..SMALL_BLOCKS };

/// Extents, allocated at once.
pub const AT_ONCE: Profile = Profile { name: "at-once", options: "relatime,nodelalloc", ..EXTENTS };

/// Block pointers, as ext2 has them.
pub const POINTERS: Profile = Profile {
    name: "pointers",
    mke2fs: &["-t", "ext2", "-b", "4096", "-I", "256", "-O", "extra_isize,dir_nlink"],
    options: "relatime",
};

/// Clusters of 16 blocks.
pub const CLUSTERS: Profile = Profile {
    name: "clusters",
    mke2fs: &["-t", "ext4", "-b", "4096", "-O", "^has_journal,bigalloc", "-C", "65536"],
    options: "relatime",
};

/// Small files in their inodes.
pub const INLINE: Profile = Profile {
    name: "inline",
    mke2fs: &["-t", "ext4", "-b", "4096", "-I", "512", "-O", "^has_journal,inline_data"],
    options: "relatime",
};

/// Blocks above the page size, which this kernel may not mount.
pub const LARGE_BLOCKS: Profile = Profile {
    name: "large-blocks",
    mke2fs: &["-t", "ext4", "-b", "65536", "-O", "^has_journal"],
    options: "relatime",
};

impl Profile {
    /// An empty volume of this kind: the same bytes each time, but for times.
    pub fn make(&self, scratch: &Scratch, name: &str, size: &str) -> PathBuf {
        let image = scratch.join(name);
        let mut command = tool::command("mke2fs");
        command.args(["-q", "-F", "-U", "5d1a1c0e-8d2f-4a52-9d5e-6a7a32d5a001"]);
        command.args(["-E", "hash_seed=5d1a1c0e-8d2f-4a52-9d5e-6a7a32d5a002,root_owner=0:0"]);
        tool::run(command.args(self.mke2fs).arg(&image).arg(size));
        image
    }
}

/// The driver that mounts an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    Kernel,
    Plat,
    /// Ours, for root only, which checks permissions itself.
    PlatAlone,
    /// Ours in one of [`MODES`], with the kernel's cache if the mode does not say otherwise.
    PlatIn(&'static str),
    /// Ours with these options, and the kernel's cache as it is by default: volumes of a test have none.
    PlatByDefault(&'static str),
}

impl Who {
    pub fn is_ours(self) -> bool {
        self != Who::Kernel
    }
}

/// All ways to serve a volume: who checks permissions, with and without extended attributes, by each transport.
#[allow(dead_code, reason = "not all tests run in all modes")]
pub const MODES: [&str; 8] = [
    "allow_other,transport=uring",
    "allow_other,transport=device",
    "allow_other,noxattr,transport=uring",
    "allow_other,noxattr,transport=device",
    "own_permissions,transport=uring",
    "own_permissions,transport=device",
    "own_permissions,noxattr,transport=uring",
    "own_permissions,noxattr,transport=device",
];

/// The modes that a mount has without an option of the kernel's cache: of all users, and of root alone.
#[allow(dead_code, reason = "not all tests run in all modes")]
pub const DEFAULTS: [&str; 2] = ["allow_other", "own_permissions"];

/// All modes: those of [`MODES`] and [`DEFAULTS`].
#[allow(dead_code, reason = "not all tests run in all modes")]
pub fn all_modes() -> impl Iterator<Item = Who> {
    MODES.into_iter().map(Who::PlatIn).chain(DEFAULTS.into_iter().map(Who::PlatByDefault))
}

/// A volume that is mounted for writing.
pub enum View {
    Kernel(mount::Mounted),
    Plat(Mounted),
}

impl View {
    pub fn new(who: Who, image: &Path, options: &str) -> Self {
        match who {
            Who::Kernel => {
                let options = format!("loop,rw,acl,user_xattr,{options}");
                View::Kernel(mount::Mounted::kernel(image, &options).unwrap())
            }
            _ => {
                let mode = match who {
                    Who::PlatIn(mode) | Who::PlatByDefault(mode) => mode,
                    Who::PlatAlone => "own_permissions",
                    _ => "allow_other",
                };
                let says_cache = mode.contains("writeback_cache") || matches!(who, Who::PlatByDefault(_));
                let cache = if says_cache { "" } else { "writeback_cache," };
                let options = format!("rw,{cache}{mode},suid,dev,{options}");
                View::Plat(Mounted::new(image, &["-o", &options]).unwrap())
            }
        }
    }

    /// Where the root of the volume is.
    pub fn path(&self) -> &Path {
        match self {
            View::Kernel(mounted) => mounted.path(),
            View::Plat(mounted) => mounted.path(),
        }
    }

    /// Unmounts.
    pub fn end(self) {
        match self {
            View::Kernel(mounted) => drop(mounted),
            View::Plat(mounted) => drop(mounted.unmount()),
        }
    }
}

/// Asserts that a mount of ours left an image that e2fsck has nothing to say of, and in which the kernel (or, where it can't mount it,
/// fuse2fs) shows the tree that we showed. A mount for writing shows no `holes`.
pub fn judge(test: &str, image: &Path, shown: &Snapshot, holes: bool) {
    fsck::assert_clean(image);
    if let Some(seen) = testkit::view::seen(test, image) {
        let mut rules = seen.rules(Rules { sockets: true, ..Rules::default() });
        if !holes {
            rules.hole_granularity = 0;
        }
        assert_same(&seen.tree, shown, &rules);
    }
}
