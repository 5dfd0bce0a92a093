//! Which bytes a name means: of a partition also those of its disk, of a loop device also those of the
//! file behind it. Two names conflict where these meet.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use platfs_host::{Kind, path, system};

/// Loop devices on partitions on loop devices: deeper than any real stack.
const DEPTH_MAX: usize = 16;
/// The unit of all sizes below `/sys`.
const SECTOR: u64 = 512;

/// A file or a block device, whatever it is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Node {
    File { device: u64, inode: u64 },
    Block(u64),
}

/// A range of bytes of one node; `end` is `u64::MAX` where nothing bounds it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Layer {
    pub(super) node: Node,
    pub(super) path: PathBuf,
    pub(super) start: u64,
    pub(super) end: u64,
    /// It is what a loop device stands on.
    pub(super) behind_loop: bool,
}

impl Layer {
    pub(super) fn block(&self) -> Option<u64> {
        match self.node {
            Node::Block(block) => Some(block),
            Node::File { .. } => None,
        }
    }
}

/// Bytes layer by layer, down to the file that they lie in; the first layer is what was named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Ground(Vec<Layer>);

impl Ground {
    /// Bytes `start..end` of a file or block device.
    pub(super) fn of(path: &Path, start: u64, end: u64) -> io::Result<Self> {
        let node = node(path)?;
        let mut layers = vec![Layer { node, path: path.to_owned(), start, end, behind_loop: false }];
        while let Some(next) = layers.last().and_then(below) {
            layers.push(next);
            if layers.len() > DEPTH_MAX {
                break;
            }
        }
        Ok(Ground(layers))
    }

    /// All of a block device.
    pub(super) fn of_block(block: u64) -> Option<Self> {
        Self::of(&path_of(&facts_of(block))?, 0, u64::MAX).ok()
    }

    /// The block device that was named.
    pub(super) fn block(&self) -> Option<u64> {
        self.0.first().and_then(Layer::block)
    }

    pub(super) fn layers(&self) -> &[Layer] {
        &self.0
    }

    /// Tells if both mean some byte.
    pub(super) fn meets(&self, other: &Ground) -> bool {
        let meet = |a: &Layer, b: &Layer| a.node == b.node && a.start < b.end && b.start < a.end;
        self.0.iter().any(|a| other.0.iter().any(|b| meet(a, b)))
    }

    /// Tells if it leads through a block device.
    pub(super) fn has(&self, block: u64) -> bool {
        self.0.iter().any(|layer| layer.node == Node::Block(block))
    }
}

/// The number of a block device.
pub(super) fn block_of(path: &Path) -> Option<u64> {
    Ground::of(path, 0, u64::MAX).ok()?.block()
}

fn node(path: &Path) -> io::Result<Node> {
    look(path).map(|(node, _)| node)
}

/// The node that a path leads to, and whether it is a stream: a terminal, a pipe or the like.
pub(super) fn look(path: &Path) -> io::Result<(Node, bool)> {
    let facts = path::facts(path)?;
    let (major, minor) = facts.device;
    let node = match facts.kind {
        Kind::BlockDevice => Node::Block(rustix::fs::makedev(major, minor)),
        _ => Node::File { device: facts.id.device, inode: facts.id.inode },
    };
    Ok((node, !matches!(facts.kind, Kind::File | Kind::Directory | Kind::BlockDevice)))
}

/// Directory below `/sys` with what the kernel says of a block device.
fn facts_of(block: u64) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}:{}", rustix::fs::major(block), rustix::fs::minor(block)))
}

fn number(directory: &Path, name: &str) -> Option<u64> {
    system::text(directory.join(name)).ok()?.trim().parse().ok()
}

/// The device number that a directory below `/sys` describes.
fn number_of(directory: &Path) -> Option<u64> {
    let text = system::text(directory.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// The name below `/dev` of what a directory below `/sys` describes, if it is there.
fn path_of(directory: &Path) -> Option<PathBuf> {
    let block = number_of(directory)?;
    let facts = system::text(directory.join("uevent")).ok()?;
    let name = facts.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
    let path = Path::new("/dev").join(name);
    (node(&path).ok()? == Node::Block(block)).then_some(path)
}

/// The file or block device behind a loop device, first byte and bound, if it can be seen from here.
fn behind_loop(directory: &Path) -> Option<(PathBuf, u64, Option<u64>)> {
    let text = system::read(directory.join("loop/backing_file")).ok()?;
    let path = Path::new(OsStr::from_bytes(text.strip_suffix(b"\n").unwrap_or(&text)));
    let offset = number(directory, "loop/offset").unwrap_or(0);
    Some((path.to_owned(), offset, number(directory, "loop/sizelimit").filter(|limit| *limit > 0)))
}

fn below(layer: &Layer) -> Option<Layer> {
    let Node::Block(block) = layer.node else { return None };
    let directory = facts_of(block);
    let (path, start, room, behind_loop) = if path::is_there(directory.join("partition")) {
        let disk = path::whole(&directory).ok()?.parent()?.to_owned();
        let first = number(&directory, "start")?.checked_mul(SECTOR)?;
        let room = number(&directory, "size")?.checked_mul(SECTOR)?;
        (path_of(&disk)?, first, Some(room), false)
    } else {
        let (path, first, room) = behind_loop(&directory)?;
        (path, first, room, true)
    };
    let end = layer.end.min(room.unwrap_or(u64::MAX));
    let end = if end == u64::MAX { end } else { start.saturating_add(end) };
    Some(Layer { node: node(&path).ok()?, path, start: start.saturating_add(layer.start), end, behind_loop })
}

/// The partitions of a block device that the kernel knows: first byte, bytes, path.
pub(super) fn partitions(block: u64) -> Vec<(u64, u64, PathBuf)> {
    let all = facts_of(block);
    let found = system::names(&all).unwrap_or_default().into_iter().filter_map(|name| {
        let directory = all.join(name);
        path::is_there(directory.join("partition")).then_some(())?;
        let start = number(&directory, "start")?.checked_mul(SECTOR)?;
        let size = number(&directory, "size")?.checked_mul(SECTOR)?;
        Some((start, size, path_of(&directory)?))
    });
    found.collect()
}

/// The kernel's partition of exactly this range.
pub(super) fn partition_at(block: u64, start: u64, size: u64) -> Option<PathBuf> {
    let mut all = partitions(block).into_iter();
    all.find(|found| (found.0, found.1) == (start, size)).map(|found| found.2)
}

/// The exclusive holders of a block device, by name: RAID, LVM and the like.
pub(super) fn holders(block: u64) -> Vec<String> {
    let names = system::names(facts_of(block).join("holders")).unwrap_or_default();
    names.iter().map(|name| name.to_string_lossy().into_owned()).collect()
}

/// The loop devices that stand on something: number and path.
pub(super) fn loops() -> Vec<(u64, PathBuf)> {
    let blocks = Path::new("/sys/block");
    let found = system::names(blocks).unwrap_or_default().into_iter().filter_map(|name| {
        let directory = blocks.join(name);
        path::is_there(directory.join("loop/backing_file")).then_some(())?;
        Some((number_of(&directory)?, path_of(&directory)?))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn file(inode: u64, start: u64, end: u64) -> Layer {
        let node = Node::File { device: 1, inode };
        Layer { node, path: PathBuf::new(), start, end, behind_loop: false }
    }

    #[test]
    fn grounds_meet_where_a_byte_is_the_same() {
        let whole = Ground(vec![file(1, 0, u64::MAX)]);
        let [first, second] = [Ground(vec![file(1, 512, 1024)]), Ground(vec![file(1, 1024, 2048)])];
        assert!(whole.meets(&first) && first.meets(&whole) && second.meets(&whole));
        assert!(!first.meets(&second) && !second.meets(&first));
        assert!(first.meets(&Ground(vec![file(1, 1023, u64::MAX)])));
        assert!(!whole.meets(&Ground(vec![file(2, 0, u64::MAX)])));
        let block = Layer { node: Node::Block(7), ..file(0, 0, u64::MAX) };
        assert!(Ground(vec![block, file(1, 600, 700)]).meets(&first));
    }

    #[test]
    fn links_are_the_file_they_lead_to() {
        let directory = tempfile::tempdir().unwrap();
        let [path, hard, soft] = ["a", "b", "c"].map(|name| directory.path().join(name));
        fs::write(&path, "x").unwrap();
        fs::hard_link(&path, &hard).unwrap();
        std::os::unix::fs::symlink(&path, &soft).unwrap();
        let ground = Ground::of(&path, 0, 1).unwrap();
        assert!(ground.meets(&Ground::of(&hard, 0, 1).unwrap()));
        assert!(ground.meets(&Ground::of(&soft, 0, 1).unwrap()));
        assert!(!ground.meets(&Ground::of(&soft, 1, 2).unwrap()));
    }
}
