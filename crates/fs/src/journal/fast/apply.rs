//! Making a volume what fast commits come to, with the verbs' own means.

use std::sync::Arc;

use ondisk::corrupt::Place;
use ondisk::inode::{FileType, I_BLOCK_LEN, Inode, InodeFlags, LINKS_MAX, TimeField};
use ondisk::units::InodeNumber;

use super::super::bad;
use super::wanted::{Contents, Name, Node, ReplayPlan};
use crate::device::{Device, Overlay};
use crate::error::{Error, Result};
use crate::map::NewRun;
use crate::ops::change;
use crate::options::OpenOptions;
use crate::space::{Descriptors, clusters, rebook};
use crate::tx::Tx;
use crate::volume::Volume;

/// Brings all of it into a volume, which has no other user.
///
/// # Errors
/// As [`super::apply`].
pub(super) fn apply(mut wanted: ReplayPlan, device: &Arc<Overlay>) -> Result<()> {
    let device: Arc<dyn Device> = Arc::clone(device) as Arc<dyn Device>;
    let bookings = std::mem::take(&mut wanted.bookings);
    {
        // What engines will take must be free of what the records take.
        let volume = Volume::open(Arc::clone(&device), &OpenOptions::replaying(false))?;
        let mut descriptors = Descriptors::load(&*device, &volume.format, false)?;
        rebook(&volume.cache, &mut descriptors, bookings)?;
    }
    let volume = Volume::open(device, &OpenOptions::replaying(true))?;
    for node in wanted.nodes.values() {
        change(&volume, |tx| store(tx, node))?;
    }
    for (parent, names) in &wanted.names {
        let subdirectories = wanted.subdirectories.get(parent).copied().unwrap_or(0);
        let is_new =
            wanted.nodes.get(parent).is_some_and(|node| matches!(node.contents, Contents::Directory { .. }));
        change(&volume, |tx| rename(tx, *parent, names, is_new, subdirectories))?;
    }
    for (number, _) in wanted.nodes.iter().filter(|(_, node)| node.links == 0 && !node.is_listed) {
        change(&volume, |tx| {
            let node = tx.inode(*number)?;
            tx.destroy(node)
        })?;
    }
    volume.close()
}

fn store(tx: &mut Tx<'_>, node: &Node) -> Result<()> {
    let mut inode = node.inode.clone();
    if let Some(former) = &node.former {
        tx.release_xattrs(former)?;
    }
    if !node.is_listed && node.links > 0 {
        inode.raw_mut().i_dtime.set(0);
    }
    inode.raw_mut().i_links_count.set(node.links);
    fill(tx, &mut inode, &node.contents)?;
    if let Some(beside) = node.sectors_beside {
        let format = tx.format;
        let taken = if inode.has_map() { tx.view().map(&inode).taken()? } else { Vec::new() };
        let count: u64 = clusters(&format.geometry, &taken).iter().map(|run| u64::from(run.count)).sum();
        let size = format.geometry.block_size;
        let sectors = (count << format.geometry.cluster_log2) << (size.log2() - 9);
        inode.set_sectors(beside + sectors, size);
    }
    tx.store(&mut inode)
}

fn fill(tx: &mut Tx<'_>, inode: &mut Inode, contents: &Contents) -> Result<()> {
    let format = tx.format;
    match contents {
        Contents::Same | Contents::Inside => Ok(()),
        Contents::Mapped(extents) => {
            empty_map(tx, inode)?;
            for extent in extents {
                let run = NewRun {
                    logical: extent.logical,
                    start: extent.start,
                    count: extent.count,
                    unwritten: extent.unwritten,
                };
                tx.map(inode).insert(run)?;
            }
            Ok(())
        }
        Contents::Directory { parent } => {
            if inode.flags().contains(InodeFlags::INLINE_DATA) {
                tx.take_inline(inode)?;
            }
            inode.set_flags(inode.flags().difference(InodeFlags::INDEX | InodeFlags::EXTENTS));
            inode.raw_mut().i_block = [0; I_BLOCK_LEN];
            tx.map(inode).init();
            inode.set_size(0);
            inode.set_sectors(0, format.geometry.block_size);
            tx.dir(inode).begin(*parent)
        }
    }
}

/// Gives an inode an empty map of the kind that it says.
fn empty_map(tx: &mut Tx<'_>, inode: &mut Inode) -> Result<()> {
    inode.raw_mut().i_block = [0; I_BLOCK_LEN];
    if inode.flags().contains(InodeFlags::EXTENTS) {
        if !tx.format.has_incompat(ondisk::features::Incompat::EXTENTS) {
            let problem = "has extents, which the volume has not";
            return Err(Error::corrupt(Place::Inode(inode.number()), problem));
        }
        tx.map(inode).init();
    }
    Ok(())
}

/// Brings a directory's names to what they are in the end.
fn rename(
    tx: &mut Tx<'_>,
    parent: InodeNumber,
    names: &[Name],
    is_new: bool,
    subdirectories: i64,
) -> Result<()> {
    let mut directory = tx.inode(parent)?;
    if directory.file_type() != Some(FileType::Directory) {
        return Err(bad(format!("fast commits change names in inode {parent}, which is no directory")));
    }
    for Name { name, before, after } in names {
        let before = before.filter(|_| !is_new);
        let Some(after) = *after else {
            if before.is_some() {
                tx.dir(&mut directory).remove(name)?;
            }
            continue;
        };
        let child = tx.inode(after)?;
        let Some(file_type) = child.file_type() else {
            return Err(bad(format!("a fast commit names inode {after} of mode {:o}", child.mode())));
        };
        match before {
            Some(_) => drop(tx.dir(&mut directory).retarget(name, after, file_type)?),
            None => tx.dir(&mut directory).add(name, after, file_type)?,
        }
        note_time(&mut directory, &child);
    }
    count_links(&mut directory, subdirectories);
    tx.store(&mut directory)
}

/// Fast commits have no times of directories: a name that came is as old as the last change of what it names, which it
/// was.
fn note_time(directory: &mut Inode, child: &Inode) {
    let Some(when) = child.time(TimeField::Change) else { return };
    for field in [TimeField::Modify, TimeField::Change] {
        if directory.time(field).is_none_or(|time| time < when) {
            directory.set_time(field, when);
        }
    }
}

/// A directory of too many subdirectories has one link, and no longer counts.
fn count_links(directory: &mut Inode, change: i64) {
    let links = i64::from(directory.links());
    if links >= 2 && change != 0 {
        let next = (links + change).max(2);
        let next = u16::try_from(next).ok().filter(|next| *next <= LINKS_MAX).unwrap_or(1);
        directory.raw_mut().i_links_count.set(next);
    }
}
