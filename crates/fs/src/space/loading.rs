//! Where a loader's blocks come to lie: from a front on, which moves behind what was taken last.

use std::sync::atomic::Ordering;

use ondisk::units::{Cluster, ClusterRun};

use super::Space;
use crate::error::{Error, Result};

impl Space {
    /// The first run of at least `count` free clusters at the front or behind it, shown up to `most`.
    ///
    /// # Errors
    /// A bitmap that can't be read; a volume that is not being loaded.
    pub fn room_ahead(&self, count: u32, most: u32) -> Result<Option<ClusterRun>> {
        let writing = self.writing()?;
        let front = writing.front.as_ref().ok_or(Error::ReadOnly)?;
        let front = Cluster(front.load(Ordering::Relaxed));
        // Each round loads one more bitmap, so the groups bound the rounds.
        for _ in 0..=writing.format.geometry.groups {
            match writing.blocks.run_from(front, count, most) {
                Ok(run) => return Ok(run),
                Err(group) => self.load_block_bitmap(writing, &*writing.cache, group)?,
            }
        }
        Ok(None)
    }

    /// Moves the front.
    pub fn go_on_at(&self, cluster: Cluster) {
        if let Some(front) = self.writing.as_ref().and_then(|writing| writing.front.as_ref()) {
            front.store(cluster.0, Ordering::Relaxed);
        }
    }
}
