//! The volumes that the comparison begins with: one file takes all there is, and holes are punched into it by their
//! place on the volume, so that the free space is the same whichever policy filled it.

use std::path::Path;
use std::sync::Arc;

use platfs::device::FileDevice;
use platfs::mkfs::{FsType, Options, Plan, parse_features};
use platfs::{Allocate, Attributes, Error, InodeNumber, Kind, NewInode, OpenOptions, State, Volume};

use crate::numbers::Numbers;

/// The file that takes what is not free.
pub(super) const FILLER: &str = "filler";

/// The shape of a volume.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// The size of the options is divided by this.
    pub(super) part: u64,
    pub(super) block: u32,
    cluster: Option<u64>,
    flex: Option<u32>,
    stripe: Option<u32>,
    holes: Holes,
}

/// Lengths of used and free runs in between, in blocks; one free run in 20 is a long one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Holes {
    used: (u32, u32),
    free: (u32, u32),
    long: (u32, u32),
}

impl Shape {
    /// Free runs of about 4 MiB, as in S1.
    pub(super) const PLAIN: Shape = Shape {
        part: 1,
        block: 4096,
        cluster: None,
        flex: None,
        stripe: None,
        holes: Holes { used: (850, 1_199), free: (820, 1_023), long: (1_024, 2_000) },
    };
    pub(super) const SMALLER: Shape = Shape { part: 10, ..Shape::PLAIN };
    pub(super) const BIGALLOC: Shape = Shape { cluster: Some(65_536), ..Shape::PLAIN };
    pub(super) const SMALL_BLOCKS: Shape = Shape { part: 4, block: 1024, ..Shape::PLAIN };
    pub(super) const NO_FLEX: Shape = Shape { flex: Some(1), ..Shape::PLAIN };
    pub(super) const STRIPED: Shape = Shape { stripe: Some(48), ..Shape::PLAIN };
    /// A twentieth is free, in short runs.
    pub(super) const NARROW: Shape = Shape {
        part: 10,
        holes: Holes { used: (800, 2_000), free: (4, 120), long: (121, 500) },
        ..Shape::PLAIN
    };

    /// Makes such a volume, with an empty directory `d`; returns its free blocks.
    ///
    /// # Errors
    /// The image can't be made or written.
    pub(super) fn make(&self, image: &Path, size: u64, seed: u64) -> Result<u64, String> {
        let failure = |error: &dyn std::fmt::Display| format!("{}: {error}", image.display());
        let size = size / self.part;
        let mut file = std::fs::File::options();
        let file = file.read(true).write(true).create(true).truncate(true).open(image);
        let file = file.map_err(|error| failure(&error))?;
        file.set_len(size).map_err(|error| failure(&error))?;
        let device = Arc::new(FileDevice::new(file).map_err(|error| failure(&error))?);
        let plan = Plan::new(&self.format(), size).map_err(|error| failure(&error))?;
        plan.write(&*device).map_err(|error| failure(&error))?;
        let volume =
            Volume::open(device, &OpenOptions::new().write(true)).map_err(|error| failure(&error))?;
        let free = self.fill_and_punch(&volume, seed).map_err(|error| failure(&error))?;
        volume.close().map_err(|error| failure(&error))?;
        Ok(free)
    }

    fn format(&self) -> Options {
        let mut format = Options::new(FsType::Ext4);
        format.reserved_percent = 0.0;
        format.block_size = Some(self.block);
        format.cluster_size = self.cluster;
        format.flex_groups = self.flex;
        format.stripe_width = self.stripe;
        format.uuid = *b"fidelity of mbal";
        format.hash_seed = *b"seed of the hash";
        if self.cluster.is_some() {
            format.features.extend(parse_features("bigalloc").unwrap_or_default());
        }
        format
    }

    fn fill_and_punch(&self, volume: &Volume, seed: u64) -> platfs::Result<u64> {
        let block = u64::from(self.block);
        let attributes = Attributes { permissions: 0o755, ..Attributes::default() };
        let new = |kind| NewInode { kind, attributes, xattrs: &[] };
        volume.create(InodeNumber::ROOT, b"d", &new(Kind::Directory))?;
        let filler = volume.create(InodeNumber::ROOT, FILLER.as_bytes(), &new(Kind::File))?;
        let (mut end, mut step) = (0, 32_768);
        while step > 0 {
            match volume.allocate(filler, Allocate::Extend, end * block, step * block) {
                Ok(()) => end += step,
                Err(Error::NoSpace) => step /= 2,
                Err(error) => return Err(error),
            }
        }
        let mut free = 0;
        for (start, count) in self.runs_to_free(volume, filler, seed)? {
            volume.allocate(filler, Allocate::PunchHole, start * block, count * block)?;
            free += count;
        }
        volume.sync()?;
        Ok(free)
    }

    /// Runs of the filler, in its own blocks.
    fn runs_to_free(
        &self,
        volume: &Volume,
        filler: InodeNumber,
        seed: u64,
    ) -> platfs::Result<Vec<(u64, u64)>> {
        let mut pieces = Vec::new();
        for segment in volume.map(filler)? {
            let segment = segment?;
            if let State::Mapped(start) | State::Unwritten(start) = segment.state {
                pieces.push((start.0, u64::from(segment.logical.0), segment.count));
            }
        }
        pieces.sort_unstable();
        let cluster = self.cluster.map_or(1, |bytes| bytes / u64::from(self.block));
        let (mut numbers, mut runs) = (Numbers::new(seed), Vec::new());
        for (_, logical, count) in pieces {
            let mut at = 0;
            while at < count {
                let Holes { used, free, long } = self.holes;
                at += u64::from(numbers.between(used.0, used.1));
                let (low, high) = if numbers.chance(0.05) { long } else { free };
                let run = u64::from(numbers.between(low, high));
                let start = (logical + at).next_multiple_of(cluster);
                let end = (start + run).min(logical + count) / cluster * cluster;
                if start < end {
                    runs.push((start, end - start));
                }
                at += run;
            }
        }
        Ok(runs)
    }
}
