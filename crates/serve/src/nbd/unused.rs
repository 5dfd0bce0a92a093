//! Free blocks of a served volume, by its own bitmaps.
//!
//! Owns: [`Unused`], which says where they lie, and [`ZeroedUnused`], of which they read as zeros. Excludes volumes that
//! change while they are served, or whose bitmaps can't be trusted: an unclean volume, or one with known errors, has none.

use std::io;
use std::sync::{Arc, Mutex};

use ondisk::features::Incompat;
use ondisk::superblock::{RawSuperblock, STATE_ERROR, STATE_VALID};
use ondisk::units::{Block, Group};
use platfs::device::{Device, read_superblock};
use platfs::{OpenOptions, Volume};

use platfs_open::locks::locked;

/// Most runs that one question about data or holes goes through: the rest is asked again.
const STEPS: usize = 1024;

/// Where the free blocks of a volume lie. A bitmap that can't be read calls all of its group used.
pub struct Unused {
    volume: Volume,
    /// The group that was asked for last, and its bitmap: requests come in order.
    last: Mutex<Option<(Group, Arc<Vec<u8>>)>>,
}

impl Unused {
    /// Opens the volume of a device that nobody changes.
    ///
    /// # Errors
    /// Why its bitmaps are not believed, or that there is no volume.
    pub fn of(device: &Arc<dyn Device>) -> Result<Self, String> {
        let raw = read_superblock(&**device).map_err(|error| error.to_string())?;
        if !is_clean(&raw) {
            return Err("the volume is not clean; `plat check` brings it in order".to_owned());
        }
        let volume =
            Volume::open(Arc::clone(device), &OpenOptions::new()).map_err(|error| error.to_string())?;
        volume.verify_descriptors().map_err(|error| error.to_string())?;
        Ok(Unused { volume, last: Mutex::default() })
    }

    /// True if the byte `at` is free, and the end of the run of bytes like it, `end` at the latest.
    pub(super) fn run(&self, at: u64, end: u64) -> (bool, u64) {
        let geometry = &self.volume.format().geometry;
        let block = Block(at >> geometry.block_size.log2());
        // Behind the volume, and before its first block, nothing is known.
        let Some(group) = geometry.group_of_block(block) else {
            let first = geometry.byte_offset(geometry.group_start(Group(0)));
            return (false, if at < first { first.min(end) } else { end });
        };
        let (start, clusters) = (geometry.group_start(group), geometry.group_clusters(group));
        let cluster_bytes = 1 << (geometry.block_size.log2() + geometry.cluster_log2);
        let place = |cluster: u64| (geometry.byte_offset(start) + cluster * cluster_bytes).min(end);
        let Some(bitmap) = self.bitmap(group) else { return (false, place(clusters.into())) };
        let is_free = |cluster: u64| {
            let byte = usize::try_from(cluster / 8).ok().and_then(|at| bitmap.get(at));
            byte.is_some_and(|byte| byte >> (cluster % 8) & 1 == 0)
        };
        let first = (at - geometry.byte_offset(start)) / cluster_bytes;
        let wanted = is_free(first);
        let differs = (first..clusters.into()).find(|cluster| is_free(*cluster) != wanted);
        (wanted, place(differs.unwrap_or(clusters.into())))
    }

    fn bitmap(&self, group: Group) -> Option<Arc<Vec<u8>>> {
        let mut last = locked(&self.last);
        if let Some((_, bitmap)) = last.as_ref().filter(|(known, _)| *known == group) {
            return Some(Arc::clone(bitmap));
        }
        let bitmap = Arc::new(self.volume.block_bitmap(group).ok()?);
        *last = Some((group, Arc::clone(&bitmap)));
        Some(bitmap)
    }
}

fn is_clean(raw: &RawSuperblock) -> bool {
    let state = raw.s_state.get();
    state & STATE_VALID != 0
        && state & STATE_ERROR == 0
        && !raw.features().incompat.contains(Incompat::RECOVER)
}

/// A device whose free blocks read as zeros. It is only read.
pub struct ZeroedUnused {
    inner: Arc<dyn Device>,
    unused: Unused,
}

impl ZeroedUnused {
    /// The device, and what is free of its volume.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>, unused: Unused) -> Self {
        ZeroedUnused { inner, unused }
    }

    /// Free ranges and others of a range in turn, each as start, end, and whether it is free.
    fn runs(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64, bool)> + '_ {
        let mut at = start;
        std::iter::from_fn(move || {
            let from = at;
            (from < end).then(|| {
                let (is_free, until) = self.unused.run(from, end);
                at = until;
                (from, until, is_free)
            })
        })
    }
}

impl Device for ZeroedUnused {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = offset.saturating_add(buffer.len() as u64);
        let mut rest = buffer;
        for (from, until, is_free) in self.runs(offset, end) {
            let len = usize::try_from(until - from).unwrap_or(usize::MAX).min(rest.len());
            let (part, behind) = rest.split_at_mut(len);
            if is_free {
                part.fill(0);
            } else {
                self.inner.read_at(from, part)?;
            }
            rest = behind;
        }
        Ok(())
    }

    fn write_at(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn data_from(&self, offset: u64) -> u64 {
        let mut at = offset;
        // The next data may be free, and what is used may be a hole.
        for _ in 0..STEPS {
            let data = self.inner.data_from(at);
            let (is_free, until) = self.unused.run(data, self.size());
            if !is_free || data >= self.size() {
                return data;
            }
            at = until;
        }
        at
    }

    fn hole_from(&self, offset: u64) -> u64 {
        let hole = self.inner.hole_from(offset).min(self.size());
        let mut asked = offset;
        for (from, until, is_free) in self.runs(offset, hole).take(STEPS) {
            if is_free {
                return from;
            }
            asked = until;
        }
        asked
    }
}
