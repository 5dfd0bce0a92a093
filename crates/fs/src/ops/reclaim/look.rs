//! Looking at one inode: all that it leads to, as of one moment.

use ondisk::corrupt::Place;
use ondisk::inode::{FileType, Inode};
use ondisk::units::{Block, Cluster, ClusterRun, InodeNumber, low_u32};
use ondisk::xattr;

use super::{Leftovers, add};
use crate::cache::{Blocks, Role};
use crate::error::{Error, Result};
use crate::order::{InodeSnapshot, facts, is_used};
use crate::reclaiming::Work;

/// Looks before writers are kept out meanwhile.
const TRIES: u32 = 16;

/// An inode at a moment.
struct SurveyedInode {
    is_used: bool,
    snapshot: InodeSnapshot,
    /// Clusters that it takes, sorted.
    clusters: Vec<ClusterRun>,
}

impl<'v> Leftovers<'v> {
    /// Takes an inode into the survey.
    pub(super) fn survey_inode(&self, work: &mut Work, number: InodeNumber) -> Result<()> {
        let look = self.look_and_count(number)?;
        add(&self.volume.reclaiming.seen, 1);
        if look.is_used {
            return self.claim(work, number, &look);
        }
        if number.get() >= self.volume.format.geometry.first_inode {
            work.strays.push(number);
        }
        Ok(())
    }

    /// Looks at an inode, and counts what is seen before anything of it changes (I33).
    fn look_and_count(&self, number: InodeNumber) -> Result<SurveyedInode> {
        let versions = self.volume.cache.versions();
        let count = |look: &SurveyedInode| self.surveyed(|survey| survey.count(number, &look.snapshot));
        for _ in 0..TRIES {
            let Some(version) = versions.changed(number) else {
                std::thread::yield_now();
                continue;
            };
            let found = self.look_at(number);
            let _writing = self.volume.begin()?;
            if versions.is_still(number, version) {
                let look = found?;
                count(&look);
                return Ok(look);
            }
        }
        let _writing = self.volume.begin()?;
        let look = self.look_at(number)?;
        count(&look);
        Ok(look)
    }

    fn look_at(&self, number: InodeNumber) -> Result<SurveyedInode> {
        let node = self.volume.view().inode(number)?;
        let mut look = SurveyedInode {
            is_used: is_used(node.bytes()),
            snapshot: InodeSnapshot::default(),
            clusters: Vec::new(),
        };
        let is_reserved = number.get() < self.volume.format.geometry.first_inode;
        let is_mapped = is_reserved && node.raw().i_block.iter().any(|byte| *byte != 0);
        look.is_used |= is_mapped;
        if !look.is_used {
            return Ok(look);
        }
        (look.snapshot.facts, look.snapshot.links) = (facts(node.bytes()), node.links());
        if node.has_map() || is_mapped {
            for run in self.volume.view().map(&node).taken()? {
                look.clusters.push(self.clusters_of(run.start, run.count));
            }
        }
        self.look_at_attributes(&node, &mut look)?;
        if look.snapshot.facts.is_directory {
            self.look_at_names(&node, &mut look.snapshot)?;
        }
        look.clusters.sort_unstable_by_key(|run| run.start);
        Ok(look)
    }

    fn clusters_of(&self, start: Block, count: u32) -> ClusterRun {
        let geometry = &self.volume.format.geometry;
        let first = geometry.cluster_of(start);
        let last = geometry.cluster_of(Block(start.0 + u64::from(count.max(1)) - 1));
        ClusterRun { start: first, count: low_u32(last.0 - first.0 + 1) }
    }

    fn look_at_attributes(&self, node: &Inode, look: &mut SurveyedInode) -> Result<()> {
        let Some(block) = crate::xattr::attribute_block(&self.volume.format, node)? else { return Ok(()) };
        let bytes = self.volume.cache.read(block, Role::Attributes)?;
        look.snapshot.attribute_users = xattr::in_block(block, &bytes)?.0.h_refcount.get();
        look.clusters.push(self.clusters_of(block, 1));
        Ok(())
    }

    fn look_at_names(&self, node: &Inode, snapshot: &mut InodeSnapshot) -> Result<()> {
        for entry in self.volume.view().entries(node.clone())? {
            let entry = entry?;
            let is_directory = match entry.file_type {
                Some(file_type) => file_type == FileType::Directory,
                None => self.volume.view().inode(entry.inode)?.file_type() == Some(FileType::Directory),
            };
            snapshot.names.push((entry.inode, is_directory));
        }
        let parent = self.volume.view().dir(node).lookup(b"..")?;
        snapshot.parent = parent.map(|(parent, _)| parent);
        Ok(())
    }

    /// Claims the blocks of an inode. Blocks that were marked at opening and not given away since have no
    /// other owner (I30).
    fn claim(&self, work: &mut Work, number: InodeNumber, look: &SurveyedInode) -> Result<()> {
        let shares = look.snapshot.attribute_users > 1;
        let is_reserved = number.get() < self.volume.format.geometry.first_inode;
        let mut reached = 0;
        for run in &look.clusters {
            for at in run.start.0.max(reached)..run.end() {
                let is_known = work.clusters.take(at) || is_reserved || shares;
                if !is_known && !self.volume.space.was_touched(Cluster(at)) {
                    let problem = format!("leads to block {}, which is another's", self.block_of(at));
                    return Err(Error::corrupt(Place::Inode(number), problem));
                }
            }
            reached = run.end().max(reached);
        }
        Ok(())
    }

    fn block_of(&self, cluster: u64) -> Block {
        self.volume.format.geometry.cluster_start(Cluster(cluster))
    }
}
