//! Making a volume what fast commits come to, with the verbs' own means.

use std::sync::Arc;

use ondisk::corrupt::Place;
use ondisk::inode::{FileType, I_BLOCK_LEN, Inode, InodeFlags, LINKS_MAX, TimeField};
use ondisk::units::InodeNumber;

use super::super::bad;
use super::wanted::{Contents, Name, Node, Wanted};
use crate::device::{Device, Overlay};
use crate::error::{Error, Result};
use crate::map::{self, NewRun};
use crate::options::OpenOptions;
use crate::space::{Descriptors, clusters, rebook};
use crate::tx::Tx;
use crate::volume::{Shared, Volume};
use crate::{dir, inline, inode, xattr};

/// Brings all of it into a volume, which nobody else uses.
///
/// # Errors
/// As [`super::apply`].
pub(super) fn apply(mut wanted: Wanted, device: &Arc<Overlay>) -> Result<()> {
    let device: Arc<dyn Device> = Arc::clone(device) as Arc<dyn Device>;
    let bookings = std::mem::take(&mut wanted.bookings);
    {
        // What engines will take must be free of what the records take.
        let volume = Volume::open(Arc::clone(&device), &OpenOptions::replaying(false))?;
        let mut descriptors = Descriptors::load(&*device, &volume.format)?;
        rebook(&volume.cache, &mut descriptors, &volume.format, bookings)?;
    }
    let volume = Volume::open(device, &OpenOptions::replaying(true))?;
    for node in wanted.nodes.values() {
        volume.change(|update| store(&volume, update, node))?;
    }
    for (parent, names) in &wanted.names {
        let subdirectories = wanted.subdirectories.get(parent).copied().unwrap_or(0);
        let is_new =
            wanted.nodes.get(parent).is_some_and(|node| matches!(node.contents, Contents::Directory { .. }));
        volume.change(|update| rename(&volume, update, *parent, names, is_new, subdirectories))?;
    }
    for (number, _) in wanted.nodes.iter().filter(|(_, node)| node.links == 0 && !node.is_listed) {
        let going = |update: &Tx<'_>| inode::load(update, &volume.format, &volume.space, *number);
        volume.change(|update| volume.destroy(update, going(update)?))?;
    }
    volume.close()
}

fn store<'v>(volume: &'v Volume, update: &mut Tx<'v>, node: &Node) -> Result<()> {
    let mut inode = node.inode.clone();
    if let Some(former) = &node.former {
        xattr::release_all(volume, update, former)?;
    }
    if !node.is_listed && node.links > 0 {
        inode.raw_mut().i_dtime.set(0);
    }
    inode.raw_mut().i_links_count.set(node.links);
    fill(volume, update, &mut inode, &node.contents)?;
    if let Some(beside) = node.sectors_beside {
        let format = &volume.format;
        let taken = if inode.has_map() { map::taken(&*update, format, &inode)? } else { Vec::new() };
        let count: u64 = clusters(&format.geometry, &taken).iter().map(|run| u64::from(run.count)).sum();
        let size = format.geometry.block_size;
        let sectors = (count << format.geometry.cluster_log2) << (size.log2() - 9);
        inode.set_sectors(beside + sectors, size);
    }
    inode::store(update, &volume.format, &volume.space, &mut inode)
}

fn fill<'v>(volume: &'v Volume, update: &mut Tx<'v>, inode: &mut Inode, contents: &Contents) -> Result<()> {
    let format = &volume.format;
    match contents {
        Contents::Same | Contents::Inside => Ok(()),
        Contents::Mapped(extents) => {
            empty_map(volume, inode)?;
            for extent in extents {
                let run = NewRun {
                    logical: extent.logical,
                    start: extent.start,
                    count: extent.count,
                    unwritten: extent.unwritten,
                };
                map::insert(format, &volume.space, update, inode, run)?;
            }
            Ok(())
        }
        Contents::Directory { parent } => {
            if inode.flags().contains(InodeFlags::INLINE_DATA) {
                inline::take(format, inode)?;
            }
            inode.set_flags(inode.flags().difference(InodeFlags::INDEX | InodeFlags::EXTENTS));
            inode.raw_mut().i_block = [0; I_BLOCK_LEN];
            map::init(format, inode);
            inode.set_size(0);
            inode.set_sectors(0, format.geometry.block_size);
            dir::init(volume, update, inode, *parent)
        }
    }
}

/// Gives an inode an empty map of the kind that it says.
fn empty_map(volume: &Volume, inode: &mut Inode) -> Result<()> {
    inode.raw_mut().i_block = [0; I_BLOCK_LEN];
    if inode.flags().contains(InodeFlags::EXTENTS) {
        if !volume.format.has_incompat(ondisk::features::Incompat::EXTENTS) {
            let problem = "has extents, which the volume has not";
            return Err(Error::corrupt(Place::Inode(inode.number()), problem));
        }
        map::init(&volume.format, inode);
    }
    Ok(())
}

/// Brings a directory's names to what they are in the end.
fn rename<'v>(
    volume: &'v Volume,
    update: &mut Tx<'v>,
    parent: InodeNumber,
    names: &[Name],
    is_new: bool,
    subdirectories: i64,
) -> Result<()> {
    let Shared { format, space, .. } = &**volume;
    let mut directory = inode::load(update, format, space, parent)?;
    if directory.file_type() != Some(FileType::Directory) {
        return Err(bad(format!("fast commits change names in inode {parent}, which is no directory")));
    }
    for Name { name, before, after } in names {
        let before = before.filter(|_| !is_new);
        let Some(after) = *after else {
            if before.is_some() {
                dir::remove(volume, update, &mut directory, name)?;
            }
            continue;
        };
        let child = inode::load(update, format, space, after)?;
        let Some(file_type) = child.file_type() else {
            return Err(bad(format!("a fast commit names inode {after} of mode {:o}", child.mode())));
        };
        match before {
            Some(_) => drop(dir::retarget(volume, update, &mut directory, name, after, file_type)?),
            None => dir::insert(volume, update, &mut directory, name, after, file_type)?,
        }
        note_time(&mut directory, &child);
    }
    count_links(&mut directory, subdirectories);
    inode::store(update, format, space, &mut directory)
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
