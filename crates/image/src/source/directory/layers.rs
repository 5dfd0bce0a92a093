//! A directory as a layer over others: what its whiteouts hide, and what its attributes say to overlayfs.

use super::list::ListedEntry;
use super::queue::Job;
use super::{Tree, device_of, join};
use crate::archive::Xattr;
use crate::source::catalogue::NodeId;
use crate::source::error::SourceError;
use crate::source::overlayfs::{self, Sign};
use crate::source::whiteout::{WHITEOUT, Whiteout, whiteout};
use platfs_host::{Facts, Kind};

impl Tree<'_> {
    /// The meaning of an entry of a layer to overlayfs.
    pub(super) fn sign(&self, path: &[u8], facts: &Facts, xattrs: &[Xattr]) -> Result<Sign, SourceError> {
        if !self.is_layer {
            return Ok(Sign::None);
        }
        let entry = overlayfs::Entry {
            device: (facts.kind == Kind::CharDevice).then(|| device_of(facts)),
            is_empty_file: facts.kind == Kind::File && facts.size == 0,
            xattrs,
        };
        let (archive, path) = (|| self.root.display().to_string(), || path.to_vec());
        entry.sign().map_err(|problem| SourceError::Overlayfs { archive: archive(), path: path(), problem })
    }

    /// The attributes that an image gets of an entry.
    pub(super) fn shown(&self, xattrs: &[Xattr]) -> Vec<Xattr> {
        if self.is_layer { overlayfs::shown(xattrs) } else { xattrs.to_vec() }
    }

    /// Empties a directory of what lower layers put there, if it is opaque.
    pub(super) fn hide_below(&mut self, sign: Sign, node: NodeId) -> Result<(), SourceError> {
        match sign {
            Sign::Opaque => self.builder.empty(node).map_err(|error| self.misplaced(error)),
            Sign::Whiteout | Sign::None => Ok(()),
        }
    }

    /// Does what whiteouts of a directory say, while it holds only what lower layers put there; gives the other entries with
    /// their meaning to overlayfs.
    pub(super) fn whiteouts(
        &mut self,
        job: &Job,
        found: Vec<ListedEntry>,
    ) -> Result<Vec<(ListedEntry, Sign)>, SourceError> {
        if !self.is_layer {
            return Ok(found.into_iter().map(|found| (found, Sign::None)).collect());
        }
        let mut others = Vec::new();
        for found in found {
            let sign = self.sign(&join(&job.path, &found.name), &found.facts, &found.xattrs)?;
            if sign == Sign::Whiteout {
                self.builder.remove_at(job.node, &found.name);
                continue;
            }
            if !found.name.starts_with(WHITEOUT) {
                others.push((found, sign));
                continue;
            }
            match whiteout(&found.name) {
                Some(Whiteout::All) => {
                    self.builder.empty(job.node).map_err(|error| self.misplaced(error))?;
                }
                Some(Whiteout::Name(name)) => self.builder.remove_at(job.node, name),
                None => {}
            }
        }
        Ok(others)
    }
}
