//! The other users of an image, as messages name them, and what frees it. Finding that out is the door's.

use std::fmt;
use std::path::{Path, PathBuf};

use platfs_image::text::Shown;

/// A user of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum User {
    /// A mount of the kernel's, or of another program by FUSE.
    Mount {
        /// Where.
        directory: PathBuf,
        /// The type of file system.
        kind: String,
        /// The volume is not written.
        read_only: bool,
    },
    /// A loop device stands on the file.
    Loop(PathBuf),
    /// Something took the block device for itself: another mount, or what is named.
    Claimed {
        /// The block device.
        device: PathBuf,
        /// RAID, LVM or the like.
        holders: Vec<String>,
    },
    /// A volume with multiple mount protection bears the mark of another host; who that is.
    Host(String),
    /// A program that uses this door, or locks what it writes.
    Program,
}

fn shown(path: &Path) -> Shown<'_> {
    Shown(path.as_os_str().as_encoded_bytes())
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            User::Mount { directory, kind, read_only } => {
                let plat = kind == "fuse.plat";
                let who = match kind.as_str() {
                    "fuse.plat" => "plat has it".to_owned(),
                    other if other.starts_with("fuse.") => format!("{other} has it"),
                    _ => "the kernel has it".to_owned(),
                };
                let how = if *read_only { " read-only" } else { "" };
                let directory = shown(directory);
                let remedy = if plat { "plat umount" } else { "umount" };
                write!(f, "{who} mounted{how} on {directory}; `{remedy} {directory}` frees it")
            }
            User::Loop(device) => {
                let device = shown(device);
                write!(f, "{device} stands on it; `losetup -d {device}` frees it")
            }
            User::Claimed { device, holders } if holders.is_empty() => write!(
                f,
                "{} is taken: it is mounted where this process can't see it, or another program has it for itself",
                shown(device)
            ),
            User::Claimed { device, holders } => {
                write!(f, "{} is part of {}; take that apart first", shown(device), holders.join(", "))
            }
            User::Host(who) => write!(f, "by another host (multiple mount protection): {who}"),
            User::Program => write!(f, "another program changes it, or reads it and keeps others off"),
        }
    }
}
