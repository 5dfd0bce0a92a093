//! Writing an epoch, phase by phase.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use ondisk::dirent::Layout;

use super::image::{Changed, Painter};
use super::{Phase, SoftdepRecord, leaves};
use crate::cache::{Cache, Outgoing};
use crate::error::{Error, Result};
use crate::format::Format;
use crate::role::Role;

/// An epoch on its way to the device.
pub(crate) struct Commit<'e> {
    pub(crate) cache: &'e Cache,
    pub(crate) format: &'e Format,
    pub(crate) outgoing: &'e Outgoing,
    pub(crate) notes: &'e SoftdepRecord,
}

type Image = (u64, Role, Arc<[u8]>);

impl Commit<'_> {
    /// Writes all of it; `first` and `last` write the superblock before and after it, and say whether there was
    /// need to.
    ///
    /// # Errors
    /// The device's failure.
    pub(crate) fn write(
        &self,
        first: impl FnOnce() -> Result<bool>,
        last: impl FnOnce() -> Result<bool>,
    ) -> Result<()> {
        let layout = Layout::new(self.format.geometry.block_size, &self.format.features);
        let painter = Painter { format: self.format, notes: self.notes, layout };
        let mut standing: Vec<Option<Arc<[u8]>>> =
            self.outgoing.blocks().iter().map(|(block, ..)| self.outgoing.before(*block).cloned()).collect();
        let (mut first, mut last) = (Some(first), Some(last));
        for phase in Phase::ALL {
            let mut images = self.next_images(&painter, phase, &mut standing);
            self.add_final_images(phase, &mut images);
            let mut wrote = !images.is_empty();
            self.cache.write_images(&images)?;
            if phase == Phase::Allocate {
                first.take().map_or(Ok(false), |first| first())?;
                // The bytes of files too must be there before anything leads to them.
                wrote = true;
            }
            if phase == Phase::Release {
                wrote |= last.take().map_or(Ok(false), |last| last())?;
            }
            if wrote {
                self.flush()?;
            }
        }
        self.cache.all_written(self.outgoing);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.cache.device().flush().map_err(|source| Error::io("flushing the device", source))
    }

    /// Returns the block images that a phase changes on the device.
    fn next_images(
        &self,
        painter: &Painter<'_>,
        phase: Phase,
        standing: &mut [Option<Arc<[u8]>>],
    ) -> Vec<Image> {
        let mut images = Vec::new();
        for ((block, role, after), standing) in self.outgoing.blocks().iter().zip(standing) {
            let changed = Changed { block: *block, role: *role, before: self.outgoing.before(*block), after };
            if let Some(image) = painter.image(&changed, phase)
                && standing.as_ref() != Some(&image)
            {
                images.push((*block, *role, Arc::clone(&image)));
                *standing = Some(image);
            }
        }
        images
    }

    /// Last images of blocks of directories that are removed: without their names, and without a parent where that
    /// is removed too.
    fn add_final_images(&self, phase: Phase, images: &mut Vec<Image>) {
        match phase {
            Phase::Unlink => {
                let dropped = self.notes.dropped();
                images.extend(dropped.map(|(block, role, bytes)| (block, role, Arc::clone(bytes))));
            }
            Phase::Down => images.extend(self.orphaned_directories()),
            _ => return,
        }
        images.sort_unstable_by_key(|(block, ..)| *block);
    }

    fn orphaned_directories(&self) -> impl Iterator<Item = Image> + '_ {
        let removed = self.notes.removed_directories();
        let going: HashSet<_> = removed.iter().map(|removed| removed.directory).collect();
        let mut lonely = BTreeMap::new();
        for removed in removed {
            let parent_goes = leaves::dots(&removed.bytes).is_some_and(|(_, parent)| going.contains(&parent));
            if parent_goes || removed.lives {
                let mut bytes = removed.bytes.to_vec();
                leaves::apart(&mut bytes);
                lonely.insert(removed.block, (removed.role, Arc::from(bytes)));
            }
        }
        lonely.into_iter().map(|(block, (role, bytes))| (block, role, bytes))
    }
}
