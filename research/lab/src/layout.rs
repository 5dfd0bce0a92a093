//! Measures of fragmentation of a whole file system, taken through the library: the same names and
//! meanings as those of the engine's volumes ([`crate::measure`]), with blocks for clusters of files.

use std::collections::HashSet;

use ondisk::inode::FileType;
use ondisk::units::{Block, Cluster, ClusterRun, Group};
use platfs::{InodeNumber, State, Volume, Walk};

use crate::file::File;
use crate::measure;

/// Measures of files and of free space.
///
/// # Errors
/// Damage of the volume.
pub(crate) fn measures(volume: &Volume) -> platfs::Result<Vec<(&'static str, f64)>> {
    let mut values = measure::files(files(volume)?.iter());
    values.extend(measure::free_runs(free_runs(volume)?.into_iter()));
    Ok(values)
}

/// All regular files, each once, as runs of blocks.
///
/// # Errors
/// Damage of the volume.
pub(crate) fn files(volume: &Volume) -> platfs::Result<Vec<File>> {
    let (mut files, mut seen) = (Vec::new(), HashSet::new());
    let mut walk = Walk::new(volume);
    walk.enter(b"", InodeNumber::ROOT)?.map_or(Ok(()), Err)?;
    while walk.depth() > 0 {
        let Some(entry) = walk.next_entry().cloned() else {
            walk.leave();
            continue;
        };
        match volume.entry_type(&entry)? {
            FileType::Directory => walk.enter(&entry.name, entry.inode)?.map_or(Ok(()), Err)?,
            FileType::Regular if seen.insert(entry.inode) => {
                let directory = walk.directory().map_or(0, |directory| directory.0.get());
                files.push(file(volume, entry.inode, directory.into())?);
            }
            _ => {}
        }
    }
    Ok(files)
}

fn file(volume: &Volume, inode: InodeNumber, directory: u64) -> platfs::Result<File> {
    let mut file = File::new(inode.0.get().into(), directory);
    for segment in volume.map(inode)? {
        let segment = segment?;
        if let State::Mapped(Block(start)) | State::Unwritten(Block(start)) = segment.state {
            file.push(ClusterRun {
                start: Cluster(start),
                count: u32::try_from(segment.count).unwrap_or(u32::MAX),
            });
        }
    }
    Ok(file)
}

/// Runs of free clusters, which go on over the ends of groups.
///
/// # Errors
/// A bitmap that is broken.
pub(crate) fn free_runs(volume: &Volume) -> platfs::Result<Vec<ClusterRun>> {
    let geometry = &volume.format().geometry;
    let (mut runs, mut at): (Vec<ClusterRun>, u64) = (Vec::new(), 0);
    for group in (0..geometry.groups).map(Group) {
        let bitmap = volume.block_bitmap(group)?;
        for bit in 0..geometry.group_clusters(group) {
            let byte = bitmap.get(bit as usize / 8).copied().unwrap_or(0xFF);
            if byte >> (bit % 8) & 1 == 0 {
                match runs.last_mut() {
                    Some(last) if last.end() == at && last.count < u32::MAX => last.count += 1,
                    _ => runs.push(ClusterRun { start: Cluster(at), count: 1 }),
                }
            }
            at += 1;
        }
    }
    Ok(runs)
}
