//! An inode leaves the end of the volume, which is cut off next: its contents, its map, its attributes.
//!
//! Contents of regular files are copied beside others, as all that moves; blocks of metadata move inside the update that
//! leads to them. What leaves never comes back: nothing behind the end is given out meanwhile (`space`).
//!
//! Owns: what of an inode has to leave, in parts. Excludes: which inodes (`shrink`), and the new shape.

use ondisk::extent::Extent;
use ondisk::inode::{FileType, Inode};
use ondisk::units::{Block, FileBlock, InodeNumber, low_u32};

use super::layout::Layout;
use super::{
    FileSnapshot, HELD_MAX, Mover, Moving, Node, Relocation, RelocationGoal, TRIES, cut, mapped, pieces,
};
use crate::cache::{Blocks, Role};
use crate::error::{Error, Result};
use crate::map::Placed;
use crate::ops::changing::change;
use crate::ranges::FileBlocks;
use crate::space::RoomRequest;
use crate::tx::{Tx, View};
use crate::txn::Account;
use crate::volume::VersionedInode;

/// Bytes of a file that leave in one update.
const PART: u64 = 64 << 20;

/// Blocks of a directory that do.
const BLOCKS: u32 = 64;

/// True if anything of an inode lies at a block of the device or behind it.
///
/// # Errors
/// A broken map; the device's failure.
pub(crate) fn reaches(view: View<'_>, node: &Inode, end: Block) -> Result<bool> {
    Ok(end_of(view, node)? > end.0)
}

/// One past the last block of the device that an inode takes.
///
/// # Errors
/// A broken map; the device's failure.
pub(crate) fn end_of(view: View<'_>, node: &Inode) -> Result<u64> {
    let attributes = node.attribute_block().0;
    let attributes = if attributes > 0 { attributes.saturating_add(1) } else { 0 };
    Ok(attributes.max(end_of_map(view, node)?))
}

fn end_of_map(view: View<'_>, node: &Inode) -> Result<u64> {
    if !node.has_map() {
        return Ok(0);
    }
    let taken = view.map(node).taken()?;
    Ok(taken.iter().map(|run| run.start.0 + u64::from(run.count)).max().unwrap_or(0))
}

fn map_reaches(view: View<'_>, node: &Inode, end: Block) -> Result<bool> {
    Ok(end_of_map(view, node)? > end.0)
}

/// Moves all of an inode that lies at a block of the device or behind it, so that the volume can end there. Others may use
/// it meanwhile; `pace` gets the bytes of each part that is copied. Gives the blocks that moved, whose room comes out of the
/// account as far as that goes.
///
/// # Errors
/// No space before the end; broken structures; the device's failure. What has moved stays where it is then.
pub(crate) fn leave(node: Node<'_>, end: Block, account: &Account, pace: &dyn Fn(u64)) -> Result<u64> {
    node.must_be_writable()?;
    let _pin = match node.volume.pin(node.number) {
        Err(Error::NotFound) => return Ok(0),
        pin => pin?,
    };
    let _shape = node.volume.keep_shape();
    let wish = Relocation { most_pieces: u64::MAX, goal: RelocationGoal::Front, directory: None };
    let mover = Mover { volume: node.volume, number: node.number, wish };
    let leaver = Leaver { mover, end, account };
    let mut moved = leaver.attributes()?;
    moved += match VersionedInode::read(node.volume, node.number)?.node().file_type() {
        Some(FileType::Regular) => leaver.data(pace)?,
        Some(FileType::Directory) => leaver.names()?,
        Some(FileType::Symlink) => leaver.target()?,
        _ => 0,
    };
    Ok(moved + leaver.map()?)
}

/// An inode that leaves.
struct Leaver<'l> {
    mover: Mover<'l>,
    end: Block,
    account: &'l Account,
}

impl Leaver<'_> {
    /// A change that takes its space out of the account, and where that has none left, as all others.
    fn change<T>(&self, mut verb: impl FnMut(&mut Tx<'_>, InodeNumber) -> Result<T>) -> Result<T> {
        change(self.mover.volume, |tx| {
            tx.draw_on(self.account);
            verb(tx, self.mover.number)
        })
    }

    fn attributes(&self) -> Result<u64> {
        self.change(|tx, number| {
            let mut node = tx.inode(number)?;
            if node.attribute_block() < self.end {
                return Ok(0);
            }
            tx.xattrs(&mut node).move_block()?;
            tx.store(&mut node)?;
            Ok(1)
        })
    }

    fn names(&self) -> Result<u64> {
        let mut all = 0;
        loop {
            let moved = self.change(|tx, number| {
                let mut node = tx.inode(number)?;
                if !map_reaches(tx.view(), &node, self.end)? {
                    return Ok(0);
                }
                let moved = tx.dir(&mut node).leave(self.end, BLOCKS)?;
                tx.note_map(&node);
                tx.store(&mut node)?;
                Ok(moved)
            })?;
            if moved == 0 {
                return Ok(all);
            }
            all += u64::from(moved);
        }
    }

    fn target(&self) -> Result<u64> {
        self.change(|tx, number| {
            let mut node = tx.inode(number)?;
            if !map_reaches(tx.view(), &node, self.end)? {
                return Ok(0);
            }
            let old = tx.view().map(&node).block_at(FileBlock(0))?;
            if old < self.end {
                return Ok(0);
            }
            let bytes = tx.read(old, Role::Plain)?;
            let new = tx.map(&mut node).renew(FileBlocks::from_count(FileBlock(0), 1))?;
            tx.create(new, Role::Plain).copy_from_slice(&bytes);
            tx.store(&mut node)?;
            Ok(1)
        })
    }

    /// Blocks of the map itself: all of them are written again.
    fn map(&self) -> Result<u64> {
        self.mover.alone(|| {
            self.change(|tx, number| {
                let mut node = tx.inode(number)?;
                if !map_reaches(tx.view(), &node, self.end)? {
                    return Ok(0);
                }
                let all = mapped(tx.view(), &node)?;
                if all.iter().any(|extent| extent.end() > self.end.0) {
                    // It was written meanwhile, before the end was closed; the next pass finds it.
                    return Ok(0);
                }
                let form = tx.view().map(&node).form();
                let placed: Vec<_> = all.into_iter().map(Placed::Run).collect();
                tx.map(&mut node).replace(&placed, form, 0, &[])?;
                tx.note_map(&node);
                tx.store(&mut node)?;
                Ok(1)
            })
        })
    }

    fn data(&self, pace: &dyn Fn(u64)) -> Result<u64> {
        let (mut moved, mut tries) = (0, 0);
        loop {
            let done = if tries < TRIES { self.beside(pace)? } else { self.move_held()? };
            match done {
                PartOutcome::Nothing => return Ok(moved),
                PartOutcome::Some(blocks) => (moved, tries) = (moved + blocks, 0),
                PartOutcome::Changed => tries += 1,
            }
        }
    }

    fn beside(&self, pace: &dyn Fn(u64)) -> Result<PartOutcome> {
        let mover = self.mover;
        let snapshot = mover.alone(|| mover.see())?;
        let Some(moving) = self.part(&snapshot, PART)? else { return Ok(PartOutcome::Nothing) };
        mover.carry(&moving.laid.carries, pace)?;
        let done = mover.alone(|| mover.switch_if_still(&snapshot, &moving))?;
        Ok(done.map_or(PartOutcome::Changed, |_| PartOutcome::moved(&moving)))
    }

    fn move_held(&self) -> Result<PartOutcome> {
        let mover = self.mover;
        mover.alone(|| {
            let snapshot = mover.see()?;
            let Some(moving) = self.part(&snapshot, HELD_MAX)? else { return Ok(PartOutcome::Nothing) };
            mover.carry(&moving.laid.carries, &|_| {})?;
            mover.switch(&snapshot, &moving)?;
            Ok(PartOutcome::moved(&moving))
        })
    }

    /// Takes room for the first bytes of a file that lie behind the end.
    fn part(&self, snapshot: &FileSnapshot, bytes: u64) -> Result<Option<Moving>> {
        let volume = self.mover.volume;
        let geometry = &volume.format.geometry;
        let most = low_u32((bytes >> geometry.block_size.log2()).max(1));
        let (left, staying) = split_at_end(&snapshot.extents, self.end, most, geometry.blocks_per_cluster());
        if left.is_empty() {
            return Ok(None);
        }
        let form = volume.view().map(&snapshot.node).form();
        let layout = Layout::of_tree(&left, geometry.cluster_log2);
        let clusters = low_u32(layout.clusters.min(u64::from(u32::MAX)));
        let request = RoomRequest {
            owner: self.mover.number,
            directory: None,
            goal: volume.space.contents_home(self.mover.number),
            clusters,
            most_runs: 1,
            first_fit: false,
        };
        let room = self.change(|tx, _| {
            for most_runs in [1, 8, u64::MAX] {
                if let Some(room) = tx.space_mut()?.room(&RoomRequest { most_runs, ..request })? {
                    return Ok(room);
                }
            }
            Err(Error::NoSpace)
        })?;
        if room.runs().iter().any(|run| geometry.cluster_start(run.start) >= self.end) {
            return Err(Error::Invalid("space behind the end is given out".into()));
        }
        let mut laid = layout.put(room.runs(), form, geometry)?;
        laid.add(staying);
        Ok(Some(Moving { room, laid, form, left }))
    }
}

impl Mover<'_> {
    /// Looks at the file, whoever it belongs to.
    fn see(&self) -> Result<FileSnapshot> {
        let versions = self.volume.cache.versions();
        let (changed, moved) = (versions.changed(self.number), versions.moved(self.number));
        let mut seen = VersionedInode::read(self.volume, self.number)?;
        let extents = seen.seqlock_read(mapped)?;
        let node = seen.node().clone();
        let form = self.volume.view().map(&node).form();
        let pieces = pieces(&extents, form, self.volume.format.geometry.block_size);
        Ok(FileSnapshot { node, extents, pieces, changed, moved })
    }
}

/// Outcome of moving a part.
enum PartOutcome {
    /// There was none.
    Nothing,
    /// As many blocks.
    Some(u64),
    /// The file was changed meanwhile.
    Changed,
}

impl PartOutcome {
    fn moved(moving: &Moving) -> Self {
        PartOutcome::Some(moving.left.iter().map(|extent| u64::from(extent.count)).sum())
    }
}

/// The first blocks of a file that lie behind a block of the device, about as many as `most`, and all others. Blocks of
/// one cluster stay together.
fn split_at_end(extents: &[Extent], end: Block, most: u32, ratio: u32) -> (Vec<Extent>, Vec<Extent>) {
    let (mut leaving, mut staying) = (Vec::new(), Vec::new());
    let (mut left, mut begun) = (most, None);
    for extent in extents {
        let (before, rest) = cut(extent, end.0);
        staying.extend(before);
        let Some(rest) = rest else { continue };
        let first = rest.logical.0 / ratio;
        if left == 0 && begun != Some(first) {
            staying.push(rest);
            continue;
        }
        let limit = u64::from(rest.logical.0.saturating_add(left) / ratio).max(u64::from(first) + 1);
        let count = (limit * u64::from(ratio)).saturating_sub(u64::from(rest.logical.0));
        let (inside, beyond) = cut(&rest, rest.start.0.saturating_add(count));
        if let Some(inside) = inside {
            begun = Some(low_u32((inside.logical_end() - 1) / u64::from(ratio)));
            left = left.saturating_sub(inside.count);
            leaving.push(inside);
        }
        if beyond.is_some() {
            left = 0;
            staying.extend(beyond);
        }
    }
    (leaving, staying)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(logical: u32, start: u64, count: u32) -> Extent {
        Extent { logical: FileBlock(logical), start: Block(start), count, unwritten: false }
    }

    #[test]
    fn only_what_lies_behind_leaves_and_clusters_stay_whole() {
        let file = [extent(0, 10, 10), extent(10, 95, 10), extent(20, 200, 100)];
        let (leaving, staying) = split_at_end(&file, Block(100), 8, 1);
        assert_eq!(leaving, [extent(15, 100, 5), extent(20, 200, 3)]);
        assert_eq!(staying, [extent(0, 10, 10), extent(10, 95, 5), extent(23, 203, 97)]);
        let file = [extent(0, 160, 3), extent(3, 163, 30)];
        let (leaving, staying) = split_at_end(&file, Block(100), 1, 16);
        assert_eq!(leaving, [extent(0, 160, 3), extent(3, 163, 13)]);
        assert_eq!(staying, [extent(16, 176, 17)]);
        assert_eq!(split_at_end(&file, Block(193), 1, 16).0, []);
    }
}
