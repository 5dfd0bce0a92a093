//! A source becomes an image.
//!
//! ```
//! use platfs_image::{Builder, Size, Source};
//! # let directory = tempfile::tempdir()?;
//! # std::fs::create_dir(directory.path().join("tree"))?;
//! # std::fs::write(directory.path().join("tree/hello"), "hello")?;
//! # let (tree, image) = (directory.path().join("tree"), directory.path().join("disk.img"));
//!
//! let source = Source::open(&tree)?;
//! let built = Builder::new(&source).size(Size::Min).build(&image)?;
//! assert_eq!((built.contents.files, built.bytes), (1, std::fs::metadata(&image)?.len()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | owns |
//! | --- | --- |
//! | `job` | one build: the format on a volume of a given size, and the writing of it |
//! | `sizing` | which size the image gets |
//! | `size` | what contents take on a volume |
//! | `fit` | which blocks and features the contents need |
//! | [`identity`] | identifiers and times: stated, or derived from the contents |
//! | `fill` | copying the catalogue into the volume |
//! | [`like`] | an image in which all that did not change lies where it lay in an older one |
//! | `wanted` | what an inode shall be |
//! | `order` | which file's data come next, so that no free run ends in a gap |
//! | `aligned` | data at multiples of a chunk, layer by layer |
//! | `layered` | inodes and directories layer by layer, where data are aligned |
//! | `steady` | a format that is the same for many sizes, where data are aligned |
//! | `rehearsal` | that all fits a device, before anything is written to it |
//! | `deferred_superblock` | that a device holds no half-written volume |
//!
//! That a file appears whole or not at all is [`crate::output`]'s; formats other than raw are [`crate::disk`]'s.

mod aligned;
mod deferred_superblock;
mod error;
mod fill;
mod fit;
pub mod identity;
mod job;
mod layered;
pub mod like;
mod order;
mod rehearsal;
mod size;
mod sizing;
mod steady;
mod wanted;

use std::path::Path;
use std::sync::Arc;

use ondisk::units::saturated;
use platfs::device::{Device, Window};
use platfs::mkfs::{FsType, Options as FormatOptions, Storage};
use platfs::ondisk::features::Incompat;
use platfs::ondisk::geometry::Geometry;
use platfs::ondisk::superblock::RawSuperblock;

use crate::disk::{Disk, DiskJob, Seeds, Verity};
use crate::output::{Output, Privacy, device_of};
use crate::source::Source;
use crate::source::catalogue::Summary;
use crate::watch::{Cancelled, Meter, Stage, Watch};
use deferred_superblock::DeferredSuperblock;
pub use error::BuildError;
use identity::{GivenIdentity, Identity};
use job::Job;
pub use like::Update;

/// Most times that a smallest image is tried again one block larger: fragments of free space can cost a
/// few blocks of map that can't be foreseen.
const TRIES: u32 = 64;
/// Smaller blocks have groups of a few MiB, whose structures would cut chunks everywhere.
const ALIGNED_BLOCK: u32 = 4096;

/// Wanted size of the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Size {
    /// That many bytes.
    Bytes(u64),
    /// The contents and room to work with; on a device all of it.
    #[default]
    Auto,
    /// The contents and room that users can fill; on a device that much of it.
    Free(Free),
    /// The smallest volume that holds the contents.
    Min,
}

/// Room that users can fill, as `df` shows it: without what is reserved for root and for the kernel itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Free {
    /// That many bytes at least.
    Bytes(u64),
    /// A part of the whole volume in percent, [`Free::PERCENT_MOST`] at most.
    Percent(u8),
}

impl Free {
    /// The largest part of a volume that can be asked for: its own structures and what is reserved take the rest.
    pub const PERCENT_MOST: u8 = 80;

    /// The largest multiple of the size without that room that a volume may become: beyond it, nearly all of what it gains
    /// would be reserved or tables.
    pub const TIMES_MOST: u64 = 100;

    /// Blocks of a volume that have to be free for it, with those that users can't fill: `reserved` ones for root, and what
    /// a mount keeps back for maps of extents, a fiftieth of the clusters and 4,096 at most.
    #[must_use]
    pub fn blocks(self, reserved: u64, extents: bool, geometry: &Geometry) -> u64 {
        let room = match self {
            Free::Bytes(bytes) => bytes.div_ceil(u64::from(geometry.block_size.bytes())),
            Free::Percent(part) => {
                geometry.blocks.saturating_mul(u64::from(part.min(Self::PERCENT_MOST))).div_ceil(100)
            }
        };
        let kept = ((geometry.blocks >> geometry.cluster_log2) / 50).min(4096) << geometry.cluster_log2;
        room.saturating_add(reserved).saturating_add(if extents { kept } else { 0 })
    }

    /// Blocks that a volume grows by to have `missing` more blocks free for it: of what it gets, users want their part again,
    /// and as large a part as `taken` is of it now is no room for files. `None` if both parts together are all of it.
    #[must_use]
    pub fn growth(self, missing: u64, taken: u64, geometry: &Geometry) -> Option<u64> {
        let part = match self {
            Free::Bytes(_) => 0,
            Free::Percent(part) => u128::from(part.min(Self::PERCENT_MOST)),
        };
        let blocks = u128::from(geometry.blocks.max(1));
        let left = (blocks * 100).checked_sub(blocks * part + u128::from(taken) * 100)?;
        let more = (left > 0).then(|| u128::from(missing) * blocks * 100 / left)?;
        Some(saturated::<u64>(more))
    }

    /// Blocks of the tables and bitmaps of a volume with that shape, as far as they grow with it.
    #[must_use]
    pub fn tables(geometry: &Geometry) -> u64 {
        let each = u128::from(geometry.inode_table_blocks()) + 2;
        let tables = u128::from(geometry.blocks) * each / u128::from(geometry.blocks_per_group.max(1));
        saturated::<u64>(tables)
    }

    /// Complaint about a volume of which next to nothing is left for files.
    #[must_use]
    pub fn too_much(self, reserved: u64, geometry: &Geometry) -> String {
        let part = match self {
            Free::Bytes(bytes) => format!("{bytes} bytes"),
            Free::Percent(part) => format!("{part}%"),
        };
        let blocks = geometry.blocks.max(1);
        let reserved = reserved.saturating_mul(100).saturating_add(blocks / 2) / blocks;
        format!(
            "auto+{part}: with {reserved}% that are reserved for root, and the tables of the volume, next to nothing is left for \
             files; ask for less, or reserve less (-m)"
        )
    }

    /// The blocks, from the features of a superblock.
    pub(crate) fn blocks_of(self, raw: &RawSuperblock, geometry: &Geometry) -> u64 {
        let extents = raw.features().incompat.contains(Incompat::EXTENTS);
        self.blocks(raw.reserved_blocks_count(), extents, geometry)
    }
}

/// A volume that was built.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Built {
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
    /// Its contents.
    pub contents: Summary,
    /// Files with a time that the volume can't hold, which became the nearest that it can.
    pub clamped: u64,
    /// Parts of an older image that an image made like it took over.
    pub update: Option<Update>,
    /// Bytes that stay free because data begin at multiples of a chunk.
    pub align_cost: u64,
    /// The tree of hashes, if one was made.
    pub verity: Option<Verity>,
}

/// An older image.
#[derive(Clone)]
struct BaseImage(Arc<dyn Device>);

impl std::fmt::Debug for BaseImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("BaseImage").field(&self.0.size()).finish()
    }
}

/// Builds an image of a [`Source`]: says what is wanted, and then builds into a new file or on a device.
///
/// Unless something else is said the image is ext4 of automatic size, and a function of the source alone: equal
/// sources give equal images, byte for byte.
#[derive(Clone, Debug)]
#[must_use = "nothing is built before `build` or `build_on`"]
pub struct Builder<'s> {
    source: &'s Source,
    format: FormatOptions,
    size: Size,
    identity: GivenIdentity,
    keep_times: bool,
    sync: bool,
    overwrite: bool,
    privacy: Privacy,
    zeroed: bool,
    like: Option<BaseImage>,
    disk: Disk,
    align: Option<u64>,
    watch: Watch,
}

impl<'s> Builder<'s> {
    /// An image of `source`.
    pub fn new(source: &'s Source) -> Self {
        Builder {
            source,
            format: FormatOptions::new(FsType::Ext4),
            size: Size::Auto,
            identity: GivenIdentity::default(),
            keep_times: false,
            sync: false,
            overwrite: false,
            privacy: Privacy::Ordinary,
            zeroed: false,
            like: None,
            disk: Disk::default(),
            align: None,
            watch: Watch::default(),
        }
    }

    /// The size; automatic if it is not said.
    pub fn size(mut self, size: Size) -> Self {
        self.size = size;
        self
    }

    /// The format: type, block size, features and all else that mkfs takes; ext4 with the defaults of mke2fs if
    /// it is not said. What it leaves open is chosen so that it holds the contents. Identifiers and time are
    /// those of [`Builder::identity`].
    pub fn format(mut self, format: FormatOptions) -> Self {
        self.format = format;
        self
    }

    /// Identifiers and time of the volume. What is not stated is derived from the contents, so that two images of
    /// equal contents have the same UUID, too: one that shall be mounted beside its twin needs another.
    pub fn identity(mut self, stated: GivenIdentity) -> Self {
        self.identity = stated;
        self
    }

    /// Keeps times of access, change and creation, where the source has them, in place of that of modification.
    pub fn keep_times(mut self, keep: bool) -> Self {
        self.keep_times = keep;
        self
    }

    /// Waits until the image is on stable storage.
    pub fn sync(mut self, sync: bool) -> Self {
        self.sync = sync;
        self
    }

    /// Lets the image take the place of a file that has its name; else that is an error. The caller
    /// must know whether that file is in use.
    pub fn overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Permission bits of the image and of the files beside it: those of any new file, or no more than a private source
    /// has.
    pub fn privacy(mut self, privacy: Privacy) -> Self {
        self.privacy = privacy;
        self
    }

    /// Says that the device of [`Builder::build_on`] reads as zeros, so that nothing has to be cleared.
    pub fn zeroed(mut self, zeroed: bool) -> Self {
        self.zeroed = zeroed;
        self
    }

    /// Makes the image from an older one, on any device: what did not change keeps its inode and its blocks, and what
    /// is new shares as few stretches of the image as possible. The format is that of the older image, and so are UUID
    /// and hash seed; of [`Builder::identity`] only the time counts. The older image is only read.
    pub fn like(mut self, old: Arc<dyn Device>) -> Self {
        self.like = Some(BaseImage(old));
        self
    }

    /// Has data begin at multiples of `chunk` bytes, layer by layer, so that images made apart share the chunks of
    /// what they have in common: files of at least a chunk begin one, smaller ones lie behind each other in segments of
    /// some chunks; inodes and directories follow each other layer by layer, too. Blocks have 4 KiB at least then, unless the format says their size. It costs space, and counts for
    /// nothing in an image that is made like an older one.
    pub fn align(mut self, chunk: u64) -> Self {
        self.align = Some(chunk.max(1));
        self
    }

    /// Kind of file that the image becomes, and what goes beside it: a raw image and nothing else if it is not said.
    /// Files beside it are replaced as the image is ([`Builder::overwrite`]).
    pub fn disk(mut self, disk: Disk) -> Self {
        self.disk = disk;
        self
    }

    /// Shows the progress to a closure, which can end the work.
    pub fn watch(mut self, watch: Watch) -> Self {
        self.watch = watch;
        self
    }

    /// Builds the image into a new file. A symbolic link of that name stays, and what it leads to is made.
    ///
    /// # Errors
    /// Any [`BuildError`]; then nothing of the file is left, and one that was to be overwritten is as it was.
    pub fn build(&self, path: impl AsRef<Path>) -> Result<Built, BuildError> {
        let path = path.as_ref();
        if let Some(BaseImage(old)) = &self.like {
            return like::build(self, old, path);
        }
        let begin = if self.overwrite { Output::replacing } else { Output::new };
        let job = self.job(self.format.clone());
        let mut meter = self.meter()?;
        let mut size = job.planned_size(&mut meter)?;
        for _ in 0..TRIES {
            let output = begin(path, size, self.privacy).map_err(BuildError::output("create", path))?;
            // It makes no promise before it has its name.
            let device = device_of(&output).map_err(BuildError::output("open", path))?.without_flush();
            match job.write(Arc::new(device), &mut meter) {
                Err(error) if self.size == Size::Min && error.is_lack_of_room() => {
                    size += job.block_on(size)?;
                }
                Err(error) => return Err(job.too_small(size, error)),
                Ok(built) => {
                    let verity = self.finish(output, path, &job.identity)?;
                    return Ok(Built { verity, ..built });
                }
            }
        }
        Err(BuildError::Volume(platfs::Error::NoSpace))
    }

    /// Builds the image on a device that is there already, all of it or what the size says. Before anything is
    /// written it is known that all fits.
    ///
    /// # Errors
    /// Any [`BuildError`]. Of lack of room or of what the format can't hold: then nothing was written. Of a source
    /// or device that fails, or if the caller ends the work: the device then holds no volume that could be
    /// mistaken for the image.
    pub fn build_on(&self, device: Arc<dyn Device>) -> Result<Built, BuildError> {
        if self.like.is_some() {
            return Err(BuildError::Like("such an image is a new file, not a device or partition".into()));
        }
        if !self.disk.is_plain() {
            return Err(BuildError::Device);
        }
        let mut format = self.format.clone();
        format.storage = if self.zeroed { Storage::Zeroed } else { Storage::Unknown };
        let job = self.job(format);
        let mut meter = self.meter()?;
        let size = job.size_on_device(device.size(), &mut meter)?;
        let failed = |error| BuildError::Volume(platfs::Error::io("writing the superblock", error));
        let part = Window::new(device, 0, size).map_err(failed)?;
        let deferred_superblock = Arc::new(DeferredSuperblock::new(Arc::new(part)).map_err(failed)?);
        let built = job.write(Arc::clone(&deferred_superblock) as Arc<dyn Device>, &mut meter)?;
        deferred_superblock.release().map_err(failed)?;
        Ok(built)
    }

    /// Gives the image its name, in its format and with what goes beside it.
    fn finish(&self, raw: Output, path: &Path, identity: &Identity) -> Result<Option<Verity>, BuildError> {
        if self.disk.is_plain() {
            if self.sync {
                let synced = raw.file().and_then(|file| file.sync_all());
                synced.map_err(BuildError::output("sync", path))?;
            }
            return raw.finish().map(|()| None).map_err(BuildError::output("name", path));
        }
        let mut meter = self.meter()?;
        meter.begin(Stage::Packing, None, None)?;
        let mut alive = |bytes| {
            let count = saturated::<usize>(bytes);
            meter.bytes(count).map_err(std::io::Error::other)
        };
        let Identity { uuid, hash_seed, time } = *identity;
        let (disk, seeds) = (&self.disk, Seeds { uuid, hash_seed, time });
        let (overwrite, sync, privacy) = (self.overwrite, self.sync, self.privacy);
        let making = DiskJob { disk, raw, path, seeds, overwrite, privacy, sync, alive: &mut alive };
        making.finish().map_err(|(action, path, error)| match error.get_ref().map(|e| e.is::<Cancelled>()) {
            Some(true) => BuildError::Cancelled(Cancelled),
            _ => BuildError::Output { action, path, error },
        })
    }

    fn meter(&self) -> Result<Meter, BuildError> {
        let mut meter = Meter::new(self.watch.clone());
        meter.begin(Stage::Planning, None, None)?;
        Ok(meter)
    }

    fn job(&self, format: FormatOptions) -> Job<'s> {
        let catalogue = self.source.catalogue();
        let mut identity = self.identity.or_else(|| identity::derived(catalogue));
        let mut format = format;
        if self.align.is_some() {
            identity.hash_seed = self.identity.hash_seed.unwrap_or(identity::SHARED_SEED);
            format.checksum_seed = Some(identity.shared_checksum_seed());
            format.least_block_size = Some(format.least_block_size.unwrap_or(0).max(ALIGNED_BLOCK));
        }
        let mut format = fit::fitted(catalogue, format);
        format.journal.in_one_run = true;
        (format.uuid, format.hash_seed, format.time) = (identity.uuid, identity.hash_seed, identity.time);
        let (size, align, settle_times) = (self.size, self.align, !self.keep_times);
        Job { catalogue, format, identity, size, align, settle_times }
    }
}
