//! Finds the users of an image: mounts, loop devices, holders of block devices. Locks are `claim`'s.
//!
//! A volume that the kernel has mounted read-only is in the way of a writer: the kernel keeps what it read,
//! and would mix it with what is new. Readers may share it.

use std::path::PathBuf;

use super::ground::{self, Ground};
use super::mounts::{self, Mount};
use crate::image::User;

/// Purpose for which an image is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// Only others' writing is in the way.
    Read,
    /// Changes in place.
    Write,
    /// Another file takes its name: programs that have it open would go on with the old one.
    Replace,
}

/// The user of these bytes that is in the way of the purpose, as far as the kernel says.
pub(super) fn find(wanted: &Ground, purpose: Purpose) -> Option<User> {
    // Whether another program's FUSE mount writes is unknown: fuse2fs does not pass its `ro` on.
    let may_write = |mount: &Mount| !mount.read_only && !mount.kind.starts_with("fuse.");
    let in_the_way = |mount: &Mount| purpose != Purpose::Read || may_write(mount);
    let mounts = mounts::all().into_iter().filter(|mount| mount.kind != "fuse.plat" && in_the_way(mount));
    if let Some(mount) = on_ground(wanted, mounts) {
        return Some(User::from(mount));
    }
    if purpose == Purpose::Read {
        return None;
    }
    let above = ground::loops().into_iter().filter(|(block, _)| !wanted.has(*block));
    let mut above = above.filter(|(block, _)| Ground::of_block(*block).is_some_and(|it| it.meets(wanted)));
    if purpose == Purpose::Replace {
        return above.next().map(|(_, path)| User::Loop(path));
    }
    let taken = above.find_map(|(block, path)| taken_where(wanted, block, path));
    taken.or_else(|| wanted.layers().iter().filter(|layer| layer.behind_loop).find_map(taken_layer))
}

/// True if the file system with this number is a mount of these bytes.
pub(super) fn is_mounted_as(wanted: &Ground, file_system: u64) -> bool {
    let mounts = mounts::all().into_iter().filter(|mount| mount.file_system == file_system);
    on_ground(wanted, mounts).is_some()
}

/// The mount by `plat` of these bytes: its lock is what counts, this gives its name.
pub(super) fn plat_mount(wanted: &Ground) -> Option<User> {
    on_ground(wanted, mounts::of_ours().into_iter()).map(User::from)
}

impl From<Mount> for User {
    fn from(mount: Mount) -> Self {
        User::Mount { directory: mount.directory, kind: mount.kind, read_only: mount.read_only }
    }
}

/// The first of the mounts that is of these bytes.
fn on_ground(wanted: &Ground, mut mounts: impl Iterator<Item = Mount>) -> Option<Mount> {
    let mut others = std::collections::HashSet::new();
    mounts.find(|mount| {
        let Some(block) = mount.device else {
            return ground_of_source(mount).is_some_and(|ground| ground.meets(wanted));
        };
        // A machine has many mounts of few devices.
        if others.contains(&block) {
            return false;
        }
        let meets = Ground::of_block(block).is_some_and(|ground| ground.meets(wanted));
        if !meets {
            others.insert(block);
        }
        meets
    })
}

/// Storage of a mount without a block device of its own. The sources of others are not looked at: they
/// may be names of machines that do not answer.
fn ground_of_source(mount: &Mount) -> Option<Ground> {
    if mount.kind == "fuse.plat" {
        return super::Found::new(mount.source.as_os_str(), false).ok().map(|found| found.ground);
    }
    let is_path =
        mount.source.is_absolute() && (mount.kind.starts_with("fuse.") || mount.source.starts_with("/dev/"));
    if is_path { Ground::of(&mount.source, 0, u64::MAX).ok() } else { None }
}

/// Finds another program that has taken a loop device for itself, or a partition of it that overlaps the wanted range.
fn taken_where(wanted: &Ground, block: u64, path: PathBuf) -> Option<User> {
    let parts = ground::partitions(block);
    if parts.is_empty() {
        return super::claim::taken(block, path);
    }
    let met = parts.into_iter().filter_map(|(_, _, path)| {
        let ground = Ground::of(&path, 0, u64::MAX).ok()?;
        ground.meets(wanted).then_some((ground.block()?, path))
    });
    met.into_iter().find_map(|(block, path)| super::claim::taken(block, path))
}

/// Finds who has taken a block device that a loop device leads to.
fn taken_layer(layer: &ground::Layer) -> Option<User> {
    let block = layer.block()?;
    let wanted = Ground::of(&layer.path, layer.start, layer.end).ok()?;
    taken_where(&wanted, block, layer.path.clone())
}
