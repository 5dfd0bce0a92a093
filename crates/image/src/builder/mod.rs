//! A source becomes an image.
//!
//! | module | owns |
//! | --- | --- |
//! | [`size`] | how large the image must be |
//! | [`fit`] | which blocks and features the contents need |
//! | [`identity`] | identifiers and times where nobody states them |
//! | [`fill`] | copying the catalogue into the volume |
//! | `rehearsal` | that all fits a device, before anything is written to it |
//! | [`order`] | which file's data come next, so that no free run ends in a gap |
//! | [`withheld`] | that a device holds no half-written volume |
//!
//! That a file appears whole or not at all is [`crate::output`]'s.

pub mod fill;
pub mod fit;
pub mod identity;
pub mod order;
mod rehearsal;
pub mod size;
pub mod withheld;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use platfs::device::{Device, MemoryDevice, Window, WriteBehind};
use platfs::mkfs::{Options as FormatOptions, Plan};
use platfs::ondisk::features::RoCompat;
use platfs::ondisk::inode::Timestamp;
use platfs::{OpenOptions, Volume};

use crate::output::{Output, followed};
use crate::source::catalogue::Summary as Contents;
use crate::source::{Catalogue, SourceError};
use crate::text::Quoted;
pub use fill::Progress;
use identity::Identity;
use size::Shape;
use withheld::Withheld;

/// Why an image could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The source.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A source became shorter while it was read.
    #[error("the source became shorter while it was read")]
    Shrunk,
    /// The volume, apart from any file.
    #[error("{0}")]
    Volume(#[from] platfs::Error),
    /// The volume, at a file.
    #[error("{path}: {error}{remedy}")]
    At {
        /// The file, quoted.
        path: String,
        /// What went wrong.
        error: platfs::Error,
        /// What format would hold the file, if one would; with what goes before it.
        remedy: &'static str,
    },
    /// Fewer inodes were asked for than the contents need.
    #[error("{option}: {free} inodes are free for files, and the contents need {wanted}; {remedy}")]
    TooFewInodes {
        /// The option that says how many.
        option: &'static str,
        /// Free inodes of a fresh volume.
        free: u32,
        /// Those that are needed.
        wanted: u64,
        /// What to ask for.
        remedy: String,
    },
    /// The contents do not fit the size that was asked for.
    #[error("{error}: {given} bytes are too small for the contents; --size auto makes {automatic}")]
    TooSmall {
        /// Bytes asked for.
        given: u64,
        /// Bytes that an image of automatic size has.
        automatic: u64,
        /// Where it failed.
        error: Box<BuildError>,
    },
    /// The contents do not fit a device that is there already.
    #[error("{error}: it has {given} bytes, and the contents need {least}; nothing was written")]
    DeviceTooSmall {
        /// Bytes that may be used.
        given: u64,
        /// Bytes of the smallest volume that holds the contents.
        least: u64,
        /// What is missing.
        error: Box<BuildError>,
    },
    /// The size that was asked for is more than a device has.
    #[error("it has {room} bytes, and --size asks for {given}; nothing was written")]
    NoRoom {
        /// Bytes asked for.
        given: u64,
        /// Bytes there are.
        room: u64,
    },
    /// The output.
    #[error("cannot {action} {}: {error}", path.display())]
    Output {
        /// What was tried.
        action: &'static str,
        /// The output.
        path: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
}

impl BuildError {
    fn at(path: &[u8], error: platfs::Error, format: &platfs::Format) -> Self {
        let remedy = fit::remedy(&error, format);
        BuildError::At { path: Quoted(path).to_string(), error, remedy }
    }

    /// Names the file, unless the error says where already.
    fn or_at(self, path: impl FnOnce() -> String, format: &platfs::Format) -> Self {
        match self {
            BuildError::Volume(error) => {
                let remedy = fit::remedy(&error, format);
                BuildError::At { path: path(), error, remedy }
            }
            other => other,
        }
    }

    /// A failure of the output at `path`.
    pub fn output(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| BuildError::Output { action, path: path.to_owned(), error }
    }

    /// Whether more space or inodes would help.
    fn is_lack_of_room(&self) -> bool {
        let (BuildError::Volume(error) | BuildError::At { error, .. }) = self else { return false };
        matches!(error, platfs::Error::NoSpace | platfs::Error::NoInodes)
    }
}

/// How large the image shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// So many bytes.
    Bytes(u64),
    /// The contents and room to work with.
    Auto,
    /// The smallest volume that holds the contents.
    Min,
}

/// What kind of image to build.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Format options as for mkfs; identifiers and time are those of `identity`.
    pub format: FormatOptions,
    /// Identifiers and time.
    pub identity: Identity,
    /// The size.
    pub size: Size,
    /// Equal contents shall give equal images: times of access, change and creation become those of
    /// modification.
    pub settle_times: bool,
    /// Wait until the image is on stable storage.
    pub sync: bool,
    /// A file that has the image's name is replaced; else that is an error.
    pub replace: bool,
}

/// What was built.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// Bytes of the volume.
    pub bytes: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// Free blocks.
    pub free_blocks: u64,
    /// Inodes.
    pub inodes: u32,
    /// Free inodes.
    pub free_inodes: u64,
    /// The UUID.
    pub uuid: [u8; 16],
    /// What it holds.
    pub contents: Contents,
    /// Files with a time that the volume can't hold, which became the nearest that it can.
    pub clamped: u64,
    /// The volume counts usage in quota files.
    pub counts_usage: bool,
}

/// Room that an image of automatic size leaves: a tenth of the contents, and this much.
const HEAD_ROOM: u64 = 4 << 20;
/// Automatic sizes are whole multiples of this.
const AUTO_STEP: u64 = 1 << 20;
/// How often a smallest image is tried again one block larger: fragments of free space can cost a
/// few blocks of map that nobody could foresee.
const TRIES: u32 = 64;

/// Builds an image into a new file. A symbolic link of that name stays, and what it leads to is made.
///
/// # Errors
/// Any [`BuildError`]; then the output is as it was before.
pub fn build_file(
    catalogue: &Catalogue,
    target: &Path,
    settings: &Settings,
    progress: &mut dyn Progress,
) -> Result<Summary, BuildError> {
    let begin = if settings.replace { Output::replacing } else { Output::new };
    let place = followed(target);
    let mut size = planned_size(catalogue, settings)?;
    for _ in 0..TRIES {
        let output = begin(&place, size).map_err(BuildError::output("create", target))?;
        // It makes no promise before it has its name.
        let device = output.device().map_err(BuildError::output("open", target))?.without_flush();
        let built = build_on(catalogue, Arc::new(device), settings, progress);
        match built {
            Err(error) if settings.size == Size::Min && error.is_lack_of_room() => {
                size += u64::from(plan(catalogue, settings, size)?.geometry().block_size.bytes());
            }
            Err(error) => return Err(too_small(catalogue, settings, size, error)),
            Ok(summary) => {
                if settings.sync {
                    let synced = output.file().and_then(|file| file.sync_all());
                    synced.map_err(BuildError::output("sync", target))?;
                }
                output.finish().map_err(BuildError::output("name", target))?;
                return Ok(summary);
            }
        }
    }
    Err(BuildError::Volume(platfs::Error::NoSpace))
}

/// Builds an image on a device that is there already, all of it or what the size says. Before anything is
/// written it is known that all fits.
///
/// # Errors
/// Any [`BuildError`]. Of lack of room or of what the format can't hold: then nothing was written. Of a source or
/// device that fails: the device then holds no volume that could be mistaken for the image.
pub fn build_device(
    catalogue: &Catalogue,
    device: Arc<dyn Device>,
    settings: &Settings,
    progress: &mut dyn Progress,
) -> Result<Summary, BuildError> {
    let size = size_on_device(catalogue, settings, device.size())?;
    let failed = |error| BuildError::Volume(platfs::Error::io("writing the superblock", error));
    let part = Window::new(device, 0, size).map_err(failed)?;
    let withheld = Arc::new(Withheld::new(Arc::new(part)).map_err(failed)?);
    let summary = build_on(catalogue, Arc::clone(&withheld) as Arc<dyn Device>, settings, progress)?;
    withheld.release().map_err(failed)?;
    Ok(summary)
}

/// The size of a volume on a device of `room` bytes, on which all is known to fit.
fn size_on_device(catalogue: &Catalogue, settings: &Settings, room: u64) -> Result<u64, BuildError> {
    let least = || smallest_that_fits(catalogue, settings);
    let given = match settings.size {
        Size::Auto => room,
        Size::Bytes(given) if given > room => return Err(BuildError::NoRoom { given, room }),
        Size::Bytes(given) => given,
        Size::Min => {
            let least = least()?;
            let error = || Box::new(BuildError::Volume(platfs::Error::NoSpace));
            let too_small = || BuildError::DeviceTooSmall { given: room, least, error: error() };
            return if least <= room { Ok(least) } else { Err(too_small()) };
        }
    };
    let Err(error) = rehearsal::rehearse(catalogue, settings, given) else { return Ok(given) };
    match least() {
        // Where a smaller volume would hold them it is for something else.
        Ok(least) if least > given => {
            Err(BuildError::DeviceTooSmall { given, least, error: Box::new(error) })
        }
        _ => Err(error),
    }
}

/// The size of the smallest volume that was seen to hold the contents.
fn smallest_that_fits(catalogue: &Catalogue, settings: &Settings) -> Result<u64, BuildError> {
    let settings = Settings { size: Size::Min, ..settings.clone() };
    let mut size = planned_size(catalogue, &settings)?;
    for _ in 0..TRIES {
        match rehearsal::rehearse(catalogue, &settings, size) {
            Err(error) if error.is_lack_of_room() => {
                size += u64::from(plan(catalogue, &settings, size)?.geometry().block_size.bytes());
            }
            done => return done.map(|()| size),
        }
    }
    Err(BuildError::Volume(platfs::Error::NoSpace))
}

/// Says what size would do, where that is the trouble.
fn too_small(catalogue: &Catalogue, settings: &Settings, given: u64, error: BuildError) -> BuildError {
    if !error.is_lack_of_room() {
        return error;
    }
    match automatic_size(catalogue, settings) {
        Ok(automatic) => BuildError::TooSmall { given, automatic, error: Box::new(error) },
        Err(_) => error,
    }
}

fn build_on(
    catalogue: &Catalogue,
    device: Arc<dyn Device>,
    settings: &Settings,
    progress: &mut dyn Progress,
) -> Result<Summary, BuildError> {
    let plan = plan(catalogue, settings, device.size())?;
    refuse_few_inodes(catalogue, settings, &plan)?;
    plan.write(&*device)?;
    let behind: Arc<dyn Device> = Arc::new(
        WriteBehind::new(device)
            .map_err(|error| BuildError::Volume(platfs::Error::io("starting the writing thread", error)))?,
    );
    let volume = open(behind, settings)?;
    let mut filler = fill::Filler::new(catalogue, &volume, settings.settle_times);
    filler.names()?;
    filler.data(&Shape::of(&plan), progress)?;
    filler.flags()?;
    platfs::quota::rebuild(&volume)?;
    volume.sync()?;
    Ok(Summary { clamped: filler.clamped(), ..summary(catalogue, &volume) })
}

/// Refuses a number of inodes that the user stated and that can't do, before anything is written.
fn refuse_few_inodes(catalogue: &Catalogue, settings: &Settings, plan: &Plan) -> Result<(), BuildError> {
    let (free, wanted) = (plan.free_inodes(), size::inodes(catalogue));
    if u64::from(free) >= wanted {
        return Ok(());
    }
    let own = u64::from(plan.geometry().inodes().saturating_sub(free));
    let (option, remedy) = match settings.format.inodes {
        Some(_) => {
            ("-N", format!("-N {} is the least, and without -N as many are made as are needed", wanted + own))
        }
        None => ("-i", "a smaller -i makes more, and without -i as many are made as are needed".to_owned()),
    };
    Err(BuildError::TooFewInodes { option, free, wanted, remedy })
}

fn open(device: Arc<dyn Device>, settings: &Settings) -> Result<Volume, platfs::Error> {
    let seconds = i64::try_from(settings.identity.time).unwrap_or(i64::MAX);
    let options = OpenOptions::new()
        .write(true)
        .unordered(true)
        .loading(true)
        .now(Timestamp { seconds, nanoseconds: 0 })
        .seed(settings.identity.generation_seed());
    Volume::open(device, &options)
}

fn summary(catalogue: &Catalogue, volume: &Volume) -> Summary {
    let superblock = volume.superblock();
    let geometry = &volume.format().geometry;
    Summary {
        bytes: geometry.blocks << geometry.block_size.log2(),
        block_size: geometry.block_size.bytes(),
        free_blocks: superblock.free_blocks_count(),
        inodes: geometry.inodes(),
        free_inodes: u64::from(superblock.s_free_inodes_count.get()),
        uuid: superblock.s_uuid,
        contents: catalogue.summary(),
        clamped: 0,
        counts_usage: superblock.features().ro_compat.contains(RoCompat::QUOTA),
    }
}

/// The format on `bytes` bytes, with inodes for the whole catalogue unless the user stated how many.
fn plan(catalogue: &Catalogue, settings: &Settings, bytes: u64) -> Result<Plan, platfs::Error> {
    let mut format = settings.format.clone();
    let Identity { uuid, hash_seed, time } = settings.identity;
    (format.uuid, format.hash_seed, format.time) = (uuid, hash_seed, time);
    let stated = format.inodes.is_some() || format.inode_ratio.is_some();
    if stated {
        return Plan::new(&format, bytes);
    }
    let wanted = size::inodes(catalogue);
    if settings.size == Size::Min {
        return plan_with_inodes(format, bytes, wanted, wanted + RESERVED_INODES);
    }
    let plan = Plan::new(&format, bytes)?;
    if u64::from(plan.free_inodes()) >= wanted {
        return Ok(plan);
    }
    plan_with_inodes(format, bytes, wanted, wanted + RESERVED_INODES + wanted / 10)
}

/// A plan with at least `wanted` free inodes. The number per group is rounded, down too, so that what
/// is asked for is not always what comes.
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

/// Inodes a fresh volume uses at most: the reserved ones, `lost+found`, and the files of features.
const RESERVED_INODES: u64 = 16;

fn planned_size(catalogue: &Catalogue, settings: &Settings) -> Result<u64, BuildError> {
    let automatic = || automatic_size(catalogue, settings);
    match settings.size {
        Size::Bytes(bytes) => Ok(bytes),
        Size::Auto => automatic(),
        Size::Min => smallest_size(catalogue, settings, automatic()?),
    }
}

/// The size at which `wanted` clusters are free. A volume of `n` more blocks has at most `n` more free
/// ones, so that going up by what is missing never goes past the smallest answer.
fn size_with_free(
    catalogue: &Catalogue,
    settings: &Settings,
    start: u64,
    wanted: impl Fn(&Plan, u64) -> u64,
) -> Result<u64, BuildError> {
    let block = |plan: &Plan| u64::from(plan.geometry().block_size.bytes());
    let mut bytes = smallest_accepted(catalogue, settings, start)?;
    loop {
        let plan = plan(catalogue, settings, bytes)?;
        let missing = wanted(&plan, bytes).saturating_sub(plan.free_blocks());
        if missing == 0 {
            return Ok(bytes);
        }
        let more = bytes.next_multiple_of(block(&plan)).saturating_add(missing.saturating_mul(block(&plan)));
        bytes = smallest_accepted(catalogue, settings, more)?;
    }
}

/// The smallest size from `start` on that has room for the structures of the volume itself, in steps of the
/// smallest block: found in strides that double, and then in halves.
fn smallest_accepted(catalogue: &Catalogue, settings: &Settings, start: u64) -> Result<u64, BuildError> {
    let unit = u64::from(settings.format.block_size.unwrap_or(1024));
    let accepts = |steps: u64| plan(catalogue, settings, start.saturating_add(steps * unit));
    if accepts(0).is_ok() {
        return Ok(start);
    }
    let (mut refused, mut accepted) = (0, 1);
    while let Err(error) = accepts(accepted) {
        // No volume needs so much for its structures: it is not for want of room.
        if accepted > STEPS_MAX {
            return Err(error.into());
        }
        (refused, accepted) = (accepted, accepted * 2);
    }
    while accepted - refused > 1 {
        let middle = refused + (accepted - refused) / 2;
        if accepts(middle).is_ok() { accepted = middle } else { refused = middle }
    }
    Ok(start + accepted * unit)
}

/// Strides beyond which a refused format is not tried again: 1 TiB in steps of 1 KiB.
const STEPS_MAX: u64 = 1 << 30;

/// Where the search for a size begins: no volume is smaller.
const SMALLEST: u64 = 64 << 10;

fn automatic_size(catalogue: &Catalogue, settings: &Settings) -> Result<u64, BuildError> {
    let wanted = |plan: &Plan, bytes: u64| {
        let shape = Shape::of(plan);
        let clusters = size::data_clusters(catalogue, &shape) + size::name_clusters(catalogue, &shape);
        let contents = clusters << plan.geometry().cluster_log2;
        let room = HEAD_ROOM >> plan.geometry().block_size.log2();
        contents + contents / 10 + room + (bytes % AUTO_STEP).min(1)
    };
    let start = catalogue.summary().data_bytes.max(SMALLEST).next_multiple_of(AUTO_STEP);
    let bytes = size_with_free(catalogue, settings, start, wanted)?;
    Ok(bytes.next_multiple_of(AUTO_STEP))
}

/// The smallest size: names, and files that may end up inside their inodes, are measured on a volume in
/// memory that surely holds them; other data and maps are counted.
fn smallest_size(catalogue: &Catalogue, settings: &Settings, ample: u64) -> Result<u64, BuildError> {
    let ample = plan(catalogue, settings, ample)?;
    let names = measured_names(catalogue, settings, &ample)?;
    let shape = Shape::of(&ample);
    let measured = size::clusters_of_maybe_inline(catalogue, &shape);
    let clusters = names + size::data_clusters(catalogue, &shape).saturating_sub(measured);
    let blocks = clusters << ample.geometry().cluster_log2;
    let start = blocks << ample.geometry().block_size.log2();
    size_with_free(catalogue, settings, start.max(SMALLEST), |_, _| blocks)
}

fn measured_names(catalogue: &Catalogue, settings: &Settings, plan: &Plan) -> Result<u64, BuildError> {
    let geometry = plan.geometry();
    let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new(geometry.blocks << geometry.block_size.log2()));
    plan.write(&*memory)?;
    let volume = open(memory, settings)?;
    let free = || volume.space().free().map_or(0, |(clusters, _)| clusters);
    let before = free();
    let mut filler = fill::Filler::new(catalogue, &volume, settings.settle_times);
    filler.names()?;
    filler.measure_inline(&Shape::of(plan))?;
    Ok(before - free())
}
