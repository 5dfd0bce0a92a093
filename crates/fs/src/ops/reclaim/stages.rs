//! The stages of reclaiming, a part at a time.

use std::collections::BTreeSet;

use ondisk::corrupt::Place;
use ondisk::inode::FileType;
use ondisk::units::{Block, Cluster, ClusterRun, Group, InodeNumber, low_u32};
use ondisk::xattr;

use super::{Leftovers, add};
use crate::cache::{Blocks, Role};
use crate::error::{Error, Result};
use crate::ops::attrs::file_type;
use crate::ops::remove::lower_links;
use crate::order::is_used;
use crate::reclaiming::{Stage, Work};
use crate::tx::Tx;

/// Inodes that a part of a stage sees to.
const INODES: usize = 32;
/// Clusters that an update frees.
const CLUSTERS: u32 = 1 << 15;

impl<'v> Leftovers<'v> {
    /// A part of what is left; says whether anything is left behind it.
    pub(super) fn advance(&self, work: &mut Work) -> Result<bool> {
        let (is_over, next) = match work.stage {
            Stage::Survey => (self.survey_some(work)?, Stage::Clusters),
            Stage::Clusters => (self.free_clusters_in(work)?, Stage::Inodes),
            Stage::Inodes => (self.free_strays(work)?, Stage::Links),
            Stage::Links => (self.correct_links()?, Stage::Nameless),
            Stage::Nameless => (self.free_nameless(work)?, Stage::Directories),
            Stage::Directories => (self.correct_directories()?, Stage::Attributes),
            Stage::Attributes => (self.correct_attributes()?, Stage::Done),
            Stage::Done => return Ok(false),
        };
        if is_over {
            work.enter(next);
        }
        Ok(work.stage != Stage::Done)
    }

    /// Some inodes from where the work has come to.
    fn some_inodes(&self, work: &mut Work) -> Vec<InodeNumber> {
        let some: Vec<_> = self.surveyed(|survey| {
            let mut from = work.at;
            let next = || {
                let number = survey.next(from)?;
                from = u64::from(number.index()) + 1;
                Some(number)
            };
            std::iter::from_fn(next).take(INODES).collect()
        });
        some
    }

    fn survey_some(&self, work: &mut Work) -> Result<bool> {
        let some = self.some_inodes(work);
        for number in &some {
            self.survey_inode(work, *number)?;
            work.at = u64::from(number.index()) + 1;
        }
        if some.is_empty() && self.volume.format.has_incompat(ondisk::features::Incompat::MMP) {
            // It belongs to the volume.
            let block = Block(self.volume.superblock().s_mmp_block.get());
            work.clusters.take(self.volume.format.geometry.cluster_of(block).0);
        }
        Ok(some.is_empty())
    }

    /// Frees the next clusters in a row that have no owner.
    fn free_clusters_in(&self, work: &mut Work) -> Result<bool> {
        let Some(start) = work.clusters.next(work.at) else { return Ok(true) };
        let per_group = u64::from(self.volume.format.geometry.clusters_per_group());
        let most = u64::from(CLUSTERS).min(per_group - start % per_group);
        let count = (0..most).take_while(|ahead| work.clusters.has(start + ahead)).count() as u64;
        let run = ClusterRun { start: Cluster(start), count: low_u32(count) };
        let mut freed = 0;
        self.update(|tx| {
            freed = tx.space_mut()?.free_stray_clusters(run)?;
            Ok(())
        })?;
        add(&self.volume.reclaiming.blocks, freed << self.volume.format.geometry.cluster_log2);
        work.at = start + count;
        Ok(false)
    }

    fn free_strays(&self, work: &mut Work) -> Result<bool> {
        let rest = work.strays.len().saturating_sub(INODES);
        for number in work.strays.drain(rest..) {
            let mut is_stray = false;
            self.update(|tx| {
                let is_taken = is_used(tx.inode(number)?.bytes());
                is_stray = !is_taken && tx.space_mut()?.free_stray_inode(number)?;
                Ok(())
            })?;
            add(&self.volume.reclaiming.inodes, u64::from(is_stray));
        }
        Ok(work.strays.is_empty())
    }

    /// Files have as many links as names. Those that have none go next.
    fn correct_links(&self) -> Result<bool> {
        let linked: BTreeSet<_> = self.surveyed(|survey| std::mem::take(&mut survey.linked));
        for number in linked {
            self.update(|tx| {
                let mut node = tx.inode(number)?;
                let names = self.surveyed(|survey| survey.names(number));
                let is_directory = node.file_type() == Some(FileType::Directory);
                if !is_used(node.bytes()) || is_directory || names == 0 || node.links() == names {
                    return Ok(());
                }
                if node.links() < names {
                    let problem = format!("has {} links and {names} names", node.links());
                    return Err(Error::corrupt(Place::Inode(number), problem));
                }
                node.raw_mut().i_links_count.set(names);
                tx.store(&mut node)
            })?;
        }
        Ok(true)
    }

    fn free_nameless(&self, work: &mut Work) -> Result<bool> {
        if !work.nest.is_empty() {
            self.empty_nest(work)?;
            return Ok(false);
        }
        let some = self.some_inodes(work);
        for number in &some {
            work.at = u64::from(number.index()) + 1;
            self.free_if_nameless(work, *number)?;
            if !work.nest.is_empty() {
                break;
            }
        }
        Ok(some.is_empty())
    }

    fn correct_directories(&self) -> Result<bool> {
        let twice = self.surveyed(|survey| std::mem::take(&mut survey.twice));
        let mut astray = self.surveyed(|survey| std::mem::take(&mut survey.astray));
        for (number, parents) in twice {
            astray.remove(&number);
            self.update(|tx| tx.keep_one_name(number, &parents))?;
        }
        for number in astray {
            if let Some(parent) = self.surveyed(|survey| survey.parent(number)) {
                self.update(|tx| tx.correct_parent(number, parent))?;
            }
        }
        for (number, excess) in self.surveyed(|survey| std::mem::take(&mut survey.heavy)) {
            self.update(|tx| {
                let mut node = tx.inode(number)?;
                if file_type_if_used(&node) != Some(FileType::Directory) || node.links() <= excess + 1 {
                    return Ok(());
                }
                let needed = node.links() - excess;
                node.raw_mut().i_links_count.set(needed);
                tx.store(&mut node)
            })?;
        }
        for group in (0..self.volume.format.geometry.groups).map(Group) {
            self.update(|tx| {
                let are = self.surveyed(|survey| survey.directories_of(group.0));
                tx.space_mut()?.correct_directories(group, are)
            })?;
        }
        Ok(true)
    }

    /// Blocks of attributes count the users that they have.
    fn correct_attributes(&self) -> Result<bool> {
        for block in self.surveyed(|survey| survey.attributes()) {
            self.update(|tx| {
                let users = self.surveyed(|survey| survey.users_of(block));
                if users == 0 {
                    return Ok(());
                }
                let bytes = tx.read(Block(block), Role::Attributes)?;
                let counted = xattr::in_block(Block(block), &bytes)?.0.h_refcount.get();
                if counted > users {
                    xattr::set_references(tx.edit(Block(block), Role::Attributes)?, users);
                }
                Ok(())
            })?;
        }
        Ok(true)
    }
}

impl<'v> Tx<'v> {
    /// Of several names of a directory one stays: where its `..` leads, or the first.
    fn keep_one_name(&mut self, number: InodeNumber, parents: &BTreeSet<InodeNumber>) -> Result<()> {
        let child = self.inode(number)?;
        if file_type_if_used(&child) != Some(FileType::Directory) {
            return Ok(());
        }
        let mut names = Vec::new();
        for parent in parents {
            let node = self.inode(*parent)?;
            if file_type_if_used(&node) != Some(FileType::Directory) {
                continue;
            }
            for entry in self.view().entries(node)? {
                let entry = entry?;
                names.extend((entry.inode == number).then_some((*parent, entry.name)));
            }
        }
        let up = self.view().dir(&child).lookup(b"..")?.map(|(parent, _)| parent);
        let kept = names.iter().position(|(parent, _)| Some(*parent) == up).unwrap_or(0);
        let Some((stays, _)) = names.get(kept).cloned() else { return Ok(()) };
        names.remove(kept);
        let mut left: Vec<_> = names.iter().map(|(parent, _)| *parent).chain([stays]).collect();
        for (parent, name) in names {
            if let Some(at) = left.iter().position(|other| *other == parent) {
                left.remove(at);
            }
            let mut node = self.directory(parent)?;
            self.dir(&mut node).remove(&name)?;
            // It counts once for all its names in a directory.
            if !left.contains(&parent) {
                lower_links(&mut node);
            }
            self.store(&mut node)?;
        }
        self.correct_parent(number, stays)
    }

    /// The `..` of a directory leads where its name is.
    fn correct_parent(&mut self, number: InodeNumber, parent: InodeNumber) -> Result<()> {
        let mut child = self.inode(number)?;
        if file_type_if_used(&child) != Some(FileType::Directory) {
            return Ok(());
        }
        let up = self.view().dir(&child).lookup(b"..")?.map(|(parent, _)| parent);
        if up == Some(parent) {
            return Ok(());
        }
        self.dir(&mut child).retarget(b"..", parent, FileType::Directory)?;
        self.store(&mut child)
    }
}

fn file_type_if_used(node: &ondisk::inode::Inode) -> Option<FileType> {
    if is_used(node.bytes()) { file_type(node).ok() } else { None }
}
