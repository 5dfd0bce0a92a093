//! One build: the contents, and the format that they get on a volume of a given size.

use std::sync::Arc;

use platfs::device::{Device, WriteBehind};
use platfs::mkfs::{Options as FormatOptions, Plan};
use platfs::ondisk::inode::Timestamp;
use platfs::{OpenOptions, Volume};

use super::error::BuildError;
use super::fill::Filler;
use super::identity::Identity;
use super::size::{self, Shape};
use super::{Built, Size};
use crate::source::Catalogue;
use crate::watch::{Meter, Stage};

/// Inodes a fresh volume uses at most: the reserved ones, `lost+found`, and the files of features.
const RESERVED_INODES: u64 = 16;

/// Build of one volume.
#[derive(Clone)]
pub(super) struct Job<'c> {
    pub(super) catalogue: &'c Catalogue,
    /// With identifiers and time.
    pub(super) format: FormatOptions,
    pub(super) identity: Identity,
    pub(super) size: Size,
    /// Bytes of the chunks at whose multiples data begin, if they do.
    pub(super) align: Option<u64>,
    /// Times of access, change and creation become those of modification.
    pub(super) settle_times: bool,
}

impl Job<'_> {
    /// Writes the image on a device, all of it.
    pub(super) fn write(&self, device: Arc<dyn Device>, meter: &mut Meter) -> Result<Built, BuildError> {
        let plan = self.plan(device.size())?;
        self.refuse_few_inodes(&plan)?;
        plan.write(&*device)?;
        let failed = |error| platfs::Error::io("starting the writing thread", error);
        let behind: Arc<dyn Device> = Arc::new(WriteBehind::new(device).map_err(failed)?);
        let volume = self.open(behind)?;
        let contents = self.catalogue.summary();
        let mut filler = Filler::new(self, &volume, meter);
        filler.meter.begin(Stage::Names, Some(contents.names), None)?;
        filler.names()?;
        let files = u64::try_from(filler.files.len()).ok();
        filler.meter.begin(Stage::Data, files, Some(contents.data_bytes))?;
        filler.data(&Shape::of(&plan))?;
        filler.flags()?;
        filler.meter.begin(Stage::Finishing, None, None)?;
        platfs::quota::rebuild(&volume)?;
        volume.sync()?;
        Ok(Built { clamped: filler.clamped(), align_cost: filler.align_cost, ..self.built(&volume) })
    }

    /// Opens a fresh volume to be filled.
    pub(super) fn open(&self, device: Arc<dyn Device>) -> Result<Volume, platfs::Error> {
        let seconds = i64::try_from(self.identity.time).unwrap_or(i64::MAX);
        let options = OpenOptions::new()
            .write(true)
            .unordered(true)
            .loading(true)
            .now(Timestamp { seconds, nanoseconds: 0 })
            .seed(self.generation_seed());
        Volume::open(device, &options)
    }

    /// The format on `bytes` bytes, with inodes for the whole catalogue unless the user stated how many.
    pub(super) fn plan(&self, bytes: u64) -> Result<Plan, platfs::Error> {
        if self.align.is_some() {
            return self.plan_of(self.steady_format(bytes)?, bytes);
        }
        self.plan_of(self.format.clone(), bytes)
    }

    fn plan_of(&self, format: FormatOptions, bytes: u64) -> Result<Plan, platfs::Error> {
        let stated = self.format.inodes.is_some() || self.format.inode_ratio.is_some();
        if stated {
            return Plan::new(&format, bytes);
        }
        let wanted = size::inodes(self.catalogue);
        if self.size == Size::Min {
            return plan_with_inodes(format, bytes, wanted, wanted + RESERVED_INODES);
        }
        let plan = Plan::new(&format, bytes)?;
        if u64::from(plan.free_inodes()) >= wanted {
            return Ok(plan);
        }
        plan_with_inodes(format, bytes, wanted, wanted + RESERVED_INODES + wanted / 10)
    }

    /// Generations are a part of checksums: images that share inodes have the same.
    fn generation_seed(&self) -> u64 {
        match self.align {
            Some(_) => self.identity.shared_generation_seed(),
            None => self.identity.generation_seed(),
        }
    }

    /// Refuses a number of inodes that the user stated and that can't do, before anything is written.
    fn refuse_few_inodes(&self, plan: &Plan) -> Result<(), BuildError> {
        let (free, wanted) = (plan.free_inodes(), size::inodes(self.catalogue));
        if u64::from(free) >= wanted {
            return Ok(());
        }
        let own = u64::from(plan.geometry().inodes().saturating_sub(free));
        let (option, remedy) = match self.format.inodes {
            Some(_) => (
                "-N",
                format!("-N {} is the least, and without -N as many are made as are needed", wanted + own),
            ),
            None => {
                ("-i", "a smaller -i makes more, and without -i as many are made as are needed".to_owned())
            }
        };
        Err(BuildError::TooFewInodes { option, free, wanted, remedy })
    }

    fn built(&self, volume: &Volume) -> Built {
        built(volume, self.catalogue)
    }
}

/// A plan with at least `wanted` free inodes. The number per group is rounded, down too, so that what is asked for is not
/// always what comes.
fn plan_with_inodes(
    mut format: FormatOptions,
    bytes: u64,
    wanted: u64,
    mut asked: u64,
) -> Result<Plan, platfs::Error> {
    loop {
        format.inodes = Some(asked);
        let plan = Plan::new(&format, bytes)?;
        let missing = wanted.saturating_sub(u64::from(plan.free_inodes()));
        if missing == 0 {
            return Ok(plan);
        }
        asked += missing;
    }
}

/// The facts of an image.
pub(super) fn built(volume: &Volume, catalogue: &Catalogue) -> Built {
    let superblock = volume.superblock();
    let geometry = &volume.format().geometry;
    Built {
        bytes: geometry.blocks << geometry.block_size.log2(),
        block_size: geometry.block_size.bytes(),
        free_blocks: superblock.free_blocks_count(),
        inodes: geometry.inodes(),
        free_inodes: u64::from(superblock.s_free_inodes_count.get()),
        uuid: superblock.s_uuid,
        contents: catalogue.summary(),
        clamped: 0,
        update: None,
        verity: None,
        align_cost: 0,
    }
}
