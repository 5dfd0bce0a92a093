//! Where the contents of the volume's own small files lie: journal, orphan file, quota files.
//!
//! Excludes judging of maps ([`super::inodes`]): what is not plainly right is an error here.

use ondisk::inode::Inode;
use ondisk::units::{Block, InodeNumber};
pub(super) use platfs_device::map::words;
use platfs_device::map::{self, Failure, Map, Run};

use super::slices::as_index;
use super::subject::Subject;

/// An inode in use, as its record stands.
pub(super) fn inode(subject: &Subject, number: u32) -> Result<Inode, String> {
    let number = InodeNumber::new(number).ok_or("there is no inode 0")?;
    let offset = subject.inode_offset(number).ok_or_else(|| format!("there is no inode {number}"))?;
    let mut bytes = vec![0; usize::from(subject.geometry.inode_size)];
    platfs_device::Device::read_at(&*subject.device, offset, &mut bytes)
        .map_err(|error| error.to_string())?;
    Inode::parse(number, &bytes).map_err(|error| error.problem().to_owned())
}

/// The runs of a file, in the order of its contents.
pub(super) fn runs(subject: &Subject, inode: &Inode) -> Result<Vec<Run>, String> {
    runs_and_nodes(subject, inode).map(|(runs, _)| runs)
}

/// The runs of a file, and the blocks that its map takes.
pub(super) fn runs_and_nodes(subject: &Subject, inode: &Inode) -> Result<(Vec<Run>, Vec<Block>), String> {
    let walked = map::walk(&subject.geometry, inode, u64::MAX, |block| subject.block(block));
    match walked {
        Ok(Map { runs, nodes }) => Ok((runs, nodes)),
        Err(Failure::Read(error)) => Err(error.to_string()),
        Err(Failure::Broken(problem)) => Err(problem),
    }
}

/// The blocks of a file that has them all, from its first to its end.
pub(super) fn blocks(subject: &Subject, inode: &Inode) -> Result<Vec<Block>, String> {
    let len = subject.geometry.block_size.blocks_for(inode.size());
    let runs = runs(subject, inode)?;
    let mapped: u64 = runs.iter().map(|run| run.count).sum();
    let dense = runs.first().is_none_or(|run| run.logical == 0)
        && runs.windows(2).all(|pair| match pair {
            [one, other] => one.logical + one.count == other.logical,
            _ => true,
        });
    if !dense || mapped < len {
        return Err("it has holes".to_owned());
    }
    let len = as_index(len);
    Ok(runs.iter().flat_map(|run| (0..run.count).map(|at| Block(run.start.0 + at))).take(len).collect())
}
