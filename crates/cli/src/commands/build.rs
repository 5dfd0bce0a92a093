//! `plat build SOURCE IMAGE`: arguments and output.

mod apart;
mod disk;
mod facts;
mod sources;
mod stdout;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use platfs::device::Device;
use platfs::placement::Placing;
use platfs::placement::parameters::PlacingError;
use platfs::placing;
use platfs_host::{Kind, OutputLocation, Privacy, followed, path};
use platfs_image::builder::identity::{GivenIdentity, Identity, SHARED_SEED};
use platfs_image::builder::like::identifiers;
use platfs_image::disk::{Disk, Format as DiskFormat};
use platfs_image::source::{FilterError, IdRange, Owner, SourceWarning};
use platfs_image::{BuildError, Builder, Built, Progress, Size, Source, Stage, Watch};

use super::cage;
use super::replaced::{Becomes, EXISTS, may_replace};
use crate::console::{Console, Failure};
use crate::door;
use crate::door::output::Output;
use crate::format::{self, Format, FormatArgs, UuidChoice};
use crate::image::{self, Part};
use crate::progress::{self, Step};
use crate::reading::{no_superblock, open_device, warn_of_writer};
use crate::sandbox::Plan;
use crate::size::{human, parse_free, parse_size};
use disk::DiskArgs;
use facts::Facts;
use sources::source_failure;
use stdout::Stdout;

/// Arguments of `plat build`.
#[derive(Args, Debug)]
#[command(after_help = format::ENVIRONMENT, override_usage = "plat build [OPTIONS] SOURCE... IMAGE")]
pub struct Build {
    /// First what the image is made of: a directory, a tar archive (plain, gzip, zstd or xz), an OCI image layout, a
    /// docker-save archive, or `-` for a tar archive on standard input. Of several each lies over those before it, as
    /// layers of OCI images do: `.wh.NAME` removes NAME. Last the image to make: a file, a block device, a
    /// partition of a disk image (disk.img@part1), or `-` for standard output.
    #[arg(required = true, value_name = "SOURCE... IMAGE")]
    paths: Vec<OsString>,
    /// Size of the image: bytes (with K, M, G, T: 512M, 1.5G), `auto` (the contents and a tenth more), `auto+100M` or
    /// `auto+20%` (the contents, and so much that `df` shows as available), or `min`.
    #[arg(long, default_value = "auto", value_parser = parse_image_size)]
    size: Size,
    /// Replace an image that exists, or write into a device or partition.
    #[arg(short, long)]
    force: bool,
    /// Equal contents give equal images: identifiers are derived from the contents, times of access, change and
    /// creation are those of modification.
    #[arg(long, help_heading = "Alike images")]
    reproducible: bool,
    /// Take over all that did not change from an older image: inodes, blocks, UUID. What is new shares as few stretches
    /// of the image as possible, so that little has to be fetched by hosts that have OLD (docs/fleets.md).
    #[arg(long, value_name = "OLD", help_heading = "Alike images")]
    like: Option<OsString>,
    /// With --like: lay out everything from the start, and keep only UUID and hash seed.
    #[arg(long, requires = "like", help_heading = "Alike images")]
    relayout: bool,
    /// Begin data at multiples of SIZE, layer by layer (256K, 512K, 1M): images of one base share its chunks of that size,
    /// even when they are built apart. The space that it costs is printed (docs/fleets.md).
    #[arg(long, value_name = "SIZE", value_parser = parse_align, help_heading = "Alike images")]
    align: Option<u64>,
    /// Most bytes that a packed archive or layer may unpack to (20G). Without it 1G, or 250 times its packed bytes,
    /// whichever is more: an archive made to fill a disk is refused.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Contents")]
    max_size: Option<u64>,
    /// Takes what stands before the place where an archive is damaged or cut off; the exit code is 1.
    #[arg(long)]
    keep_going: bool,
    /// Leave out what matches the pattern (`*`, `?`, `[..]`, `**`); can be given several times.
    #[arg(long, value_name = "GLOB", help_heading = "Contents")]
    exclude: Vec<String>,
    /// Leaves out what lies on file systems mounted below a source directory. What the kernel shows in proc, sysfs and the like
    /// is always left out.
    #[arg(long, help_heading = "Contents")]
    one_file_system: bool,
    /// Owner of everything, whatever the source says: numbers, or names from the source's own /etc/passwd and
    /// /etc/group, never from those of this machine.
    #[arg(long, value_name = "USER:GROUP", help_heading = "Contents")]
    owner: Option<Owner>,
    /// Moves a range of users: FROM:TO:COUNT; can be given several times, for ranges that do not overlap in FROM.
    #[arg(long, value_name = "RANGE", help_heading = "Contents")]
    map_uid: Vec<IdRange>,
    /// Moves a range of groups.
    #[arg(long, value_name = "RANGE", help_heading = "Contents")]
    map_gid: Vec<IdRange>,
    /// Directory of the image under which everything is put.
    #[arg(long, value_name = "PATH", help_heading = "Contents")]
    prefix: Option<PathBuf>,
    /// Platform of an OCI image, such as linux/arm64; that of this machine if not given.
    #[arg(long, value_parser = parse_platform, help_heading = "Contents")]
    platform: Option<String>,
    /// Tag or reference of one image of several.
    #[arg(long, value_name = "TAG", value_parser = parse_tag, help_heading = "Contents")]
    tag: Option<String>,
    /// A table of devices, as genext2fs and makedevs read them: adds devices, directories, pipes and sockets, and sets owners
    /// and permission bits (docs/sources.md).
    #[arg(long, value_name = "FILE", help_heading = "Contents")]
    pseudo: Option<PathBuf>,
    /// Labels all files for SELinux by their paths in the image, after a table in the format of file_contexts.
    #[arg(long, value_name = "FILE", help_heading = "Contents")]
    file_contexts: Option<PathBuf>,
    /// Sets owners, permission bits and capabilities of all files, after a table in the format of Android's fs_config.
    #[arg(long, value_name = "FILE", help_heading = "Contents")]
    fs_config: Option<PathBuf>,
    /// Directory that the volume will be mounted on: paths in the tables of --file-contexts and --fs-config begin with it.
    #[arg(long, value_name = "DIRECTORY")]
    mount_point: Option<OsString>,
    /// Writes the configuration of a container image (entry point, environment, user) into FILE, as its JSON.
    #[arg(long, value_name = "FILE")]
    image_config: Option<PathBuf>,
    /// Threads that list the source directory; as many as help if not given.
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Has the volume say how it is to be placed when it is written later: `alloc=POLICY`, `dirs=POLICY`,
    /// `PARAMETER=NUMBER` (`plat placement` lists them). The build itself puts each file in one piece in any case.
    #[arg(long, value_name = "NAME=VALUE,...", value_parser = parse_placement)]
    placement: Option<String>,
    /// Wait until the image is on stable storage.
    #[arg(long)]
    sync: bool,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    disk: DiskArgs,
    #[command(flatten)]
    format: FormatArgs,
}

fn parse_image_size(text: &str) -> Result<Size, String> {
    match text {
        "auto" => Ok(Size::Auto),
        "min" => Ok(Size::Min),
        _ => match parse_free(text) {
            Some(free) => free.map(Size::Free),
            None => parse_size(text).map(Size::Bytes),
        },
    }
}

/// Chunks of a page to those that nobody would fetch.
fn parse_align(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    match bytes.is_power_of_two() && (4096..=64 << 20).contains(&bytes) {
        true => Ok(bytes),
        false => Err("it must be a power of two from 4K to 64M".into()),
    }
}

/// Words that a volume can keep.
fn parse_placement(text: &str) -> Result<String, PlacingError> {
    Placing::read(text).and_then(|placing| placing::words(&placing))
}

fn parse_tag(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("a tag is missing".into()) } else { Ok(text.to_owned()) }
}

fn parse_platform(text: &str) -> Result<String, FilterError> {
    Source::options().platform(text).map(|_| text.to_owned())
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(error.to_string().into())
}

impl Build {
    pub(super) fn cage(&self) -> Option<Plan> {
        let image = self.paths.last()?;
        let plan = if image == "-" { cage::system() } else { cage::making(image) };
        let files = self.sources().iter().filter(|source| *source != "-").map(PathBuf::from);
        let plan = cage::with_sources(plan, files.chain(self.tables()));
        let plan = cage::with_spool(plan, &self.spool());
        let plan = self.like.iter().fold(plan, |plan, like| cage::with_image(plan, like, false));
        Some(self.files_beside().iter().fold(plan, |plan, path| cage::with_output(plan, path)))
    }

    /// The image to make.
    fn image(&self) -> &OsStr {
        self.paths.last().map_or(OsStr::new(""), |image| image)
    }

    /// Sources of the image.
    fn sources(&self) -> &[OsString] {
        self.paths.split_last().map_or(&[], |(_, sources)| sources)
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        if self.sources().is_empty() {
            let (only, shown) = (self.image(), image::shown(self.image()).to_string());
            let has_name = only != "-" && Path::new(only).file_name().is_some();
            let name = if has_name { shown.trim_end_matches('/') } else { "new" };
            return Err(Failure::Usage(match only == "-" || platfs_host::path::is_there(only) {
                true => {
                    format!("the image to make is missing, it comes last: `plat build {shown} {name}.img`")
                }
                false => format!("the source is missing, it comes first: `plat build SOURCE {shown}`"),
            }));
        }
        if self.like.is_some() && !self.relayout && self.format.is_stated() {
            let what = "--like takes the format of the older image; --relayout lets format options be given";
            return Err(Failure::Usage(what.into()));
        }
        if self.align.is_some() && self.like.is_some() && !self.relayout {
            let what =
                "--align is for images that are laid out from the start: with --like it needs --relayout";
            return Err(Failure::Usage(what.into()));
        }
        let disk = self.disk.disk(self.image())?;
        self.keep_apart()?;
        let target = self.target(&disk)?;
        let config = self.image_config.as_deref().map(|path| self.beside(path)).transpose()?;
        let epoch = format::source_date_epoch()?;
        // Before the source is read, which may take a while.
        self.format.check()?;
        let source = self.read_source(epoch)?;
        for warning in source.warnings() {
            match warning.is_lack() {
                true => console.complain(failed(warning))?,
                false => console.warn(warning),
            }
        }
        if let Some(path) = self.image_config.as_ref().filter(|_| source.configuration().is_none()) {
            let is_damaged =
                |warning: &SourceWarning| matches!(warning, SourceWarning::NoConfiguration { .. });
            let what = match source.warnings().iter().any(is_damaged) {
                true => "the configuration of the container image can't be read: there is none to write",
                false => "no source is a container image: there is no configuration to write",
            };
            return Err(Failure::about(path.display(), what));
        }
        let asked = self.asked()?;
        let old = self.old(console)?;
        let builder = Builder::new(&source)
            .size(self.size)
            .identity(self.identity(&asked, epoch, old.as_ref())?)
            // Reading a directory changes its times of access, and those of change can't be set.
            .keep_times(!self.reproducible && !self.sources().iter().any(path::is_directory))
            .sync(self.sync)
            .zeroed(asked.prezeroed)
            .format(asked.options)
            .watch(watch(&source));
        let builder = match self.align {
            Some(chunk) => builder.align(chunk),
            None => builder,
        };
        let builder = match old.filter(|_| !self.relayout) {
            Some(old) => builder.like(old),
            None => builder,
        };
        let lack = target.lack();
        let failed = |error| self.build_failure(error, lack);
        let built = match target {
            Target::File(path) => door::build_file(builder, &path, self.force, &disk).map_err(failed)?,
            Target::Device(device) => builder.build_on(device).map_err(failed)?,
            Target::Stdout(stdout) => {
                let built = door::build_file(builder, &stdout.path(), false, &disk).map_err(failed)?;
                console.out.flush()?;
                stdout.send()?;
                built
            }
        };
        self.write_config(config, &source)?;
        self.warn_of(&built, console);
        source.lost().into_iter().try_for_each(|lost| console.complain(self::failed(lost)))?;
        match (self.json, console.is_quiet() || self.image() == "-") {
            (true, _) => print_json(console, &built, disk.format, self.align),
            (false, true) => Ok(()),
            (false, false) => self.print(console, &built, disk.format),
        }
    }

    /// The library's complaint as a failure: about options that can't be it is wrong usage, and of sizes it does not know our
    /// option.
    fn build_failure(&self, error: BuildError, lack: &str) -> Failure {
        let shown = image::shown(self.image());
        match error {
            BuildError::Source(error) => source_failure(error),
            // What the contents need is too much for a size that was said.
            BuildError::Volume(error @ platfs::Error::Invalid(_)) if matches!(self.size, Size::Bytes(_)) => {
                failed(format!("{error}; `--size auto` gives the contents what they need"))
            }
            BuildError::Volume(error @ platfs::Error::BadOption { .. }) => Failure::Usage(error.to_string()),
            BuildError::TooSmall { given, automatic, error } => failed(format!(
                "{error}: {} are too small for the contents; `--size auto` makes {}",
                human(given),
                human(automatic)
            )),
            BuildError::NoRoom { given, room } => Failure::about(
                shown,
                format!("it has {room} bytes, and --size asks for {given}; nothing was written"),
            ),
            error @ BuildError::DeviceTooSmall { .. } => Failure::about(shown, error),
            BuildError::Volume(platfs::Error::Io { source, .. })
            | BuildError::At { error: platfs::Error::Io { source, .. }, .. }
                if source.kind() == std::io::ErrorKind::StorageFull =>
            {
                match Failure::about(shown, source) {
                    Failure::Failed(trouble) if self.keeps_beside() => Failure::Failed(trouble.and(lack).and(
                        "what is packed or comes as a stream lies there meanwhile, too: TMPDIR names another directory for it",
                    )),
                    Failure::Failed(trouble) => Failure::Failed(trouble.and(lack)),
                    other => other,
                }
            }
            BuildError::Output { action: "create", path, error } => Failure::about(path.display(), error),
            error => failed(error),
        }
    }

    /// Where the image goes; refuses to touch what exists unless forced.
    fn target(&self, disk: &Disk) -> Result<Target, Failure> {
        if crate::stores::is_meant(self.image()) {
            return Err(Failure::about(image::shown(self.image()), image::ImageError::Remote));
        }
        if self.image() == "-" {
            return self.stdout(disk);
        }
        let spec = image::parse(self.image());
        let existing = path::facts(&spec.path);
        let shown = image::shown(self.image());
        match spec.part {
            Part::Whole => may_replace(&spec.path, Becomes::Image, self.force)?,
            _ if existing.is_ok() && !self.force => {
                return Err(Failure::exists(shown, EXISTS));
            }
            _ => {}
        }
        for path in disk.beside() {
            let shown = path.display().to_string();
            if path::is_there(path) && !self.force {
                return Err(Failure::exists(shown, EXISTS));
            }
            followed(path)
                .and_then(|path| door::replace(&path))
                .map_err(|error| Failure::about(shown, error))?;
        }
        let is_plain_file = existing.as_ref().is_ok_and(|found| found.kind == Kind::File);
        if spec.part == Part::Whole && (existing.is_err() || is_plain_file) {
            // The output asks again when it has all; by then a long source would have been read in vain.
            followed(&spec.path)
                .and_then(|path| door::replace(&path))
                .map_err(|error| Failure::about(shown, error))?;
            return Ok(Target::File(spec.path));
        }
        if !disk.is_plain() {
            let what = "other formats, --bmap and --verity go with images that are files of their own";
            return Err(Failure::Usage(format!("{shown}: {what}")));
        }
        let device = door::open_unfinished(self.image()).map_err(|error| Failure::about(shown, error))?;
        Ok(Target::Device(device))
    }

    /// Standard output as the place of the image.
    fn stdout(&self, disk: &Disk) -> Result<Target, Failure> {
        let is_alone = disk.bmap.is_none() && disk.verity.is_none() && !self.json;
        if !is_alone {
            let what = "--bmap, --verity and --json go with an image that has a name";
            return Err(Failure::Usage(what.to_owned()));
        }
        Stdout::begin().map(Target::Stdout)
    }

    /// Begins the file for a configuration.
    fn beside(&self, path: &Path) -> Result<Output, Failure> {
        let failed = |error: std::io::Error| Failure::about(path.display(), error);
        let place = OutputLocation::through(path).map_err(failed)?;
        if place.is_taken() && !self.force {
            return Err(Failure::exists(path.display(), EXISTS));
        }
        Output::begin(&place, 0, Privacy::Ordinary, self.force).map_err(failed)
    }

    /// Writes the configuration of the container image.
    fn write_config(&self, output: Option<Output>, source: &Source) -> Result<(), Failure> {
        let (Some(output), Some(path)) = (output, &self.image_config) else { return Ok(()) };
        let config = source.configuration().unwrap_or_default();
        let written =
            output.file().and_then(|mut file| file.write_all(config)).and_then(|()| output.finish());
        written.map_err(|error| Failure::about(path.display(), error))
    }

    fn warn_of(&self, built: &Built, console: &mut Console<'_>) {
        let shown = image::shown(self.image());
        if built.clamped > 0 {
            let is_small = self.format.parse().is_ok_and(|asked| asked.options.inode_size == Some(128));
            let hint = if is_small { " (from 1901 to 2038); -I 256 holds times up to 2446" } else { "" };
            console.warn(format!(
                "{shown}: {} files have a time that its inodes can't hold, and got the nearest that they can{hint}",
                built.clamped,
            ));
        }
    }

    /// The format that is asked for.
    fn asked(&self) -> Result<Format, Failure> {
        let asked = self.format.parse()?;
        if asked.offset != 0 {
            return Err(Failure::Usage("-E offset: name the image IMAGE@OFFSET instead".into()));
        }
        Ok(asked)
    }

    /// The older image.
    fn old(&self, console: &mut Console<'_>) -> Result<Option<Arc<dyn Device>>, Failure> {
        let Some(name) = &self.like else { return Ok(None) };
        warn_of_writer(name, console);
        let old = open_device(name)?;
        platfs::read_superblock(&*old).map_err(|error| {
            let shown = image::shown(name).to_string();
            Failure::about(&shown, no_superblock(&*old, &shown, &error))
        })?;
        Ok(Some(old))
    }

    /// Identifiers and time as they are said, and those of an older image; of an image that need not be reproducible the
    /// rest is drawn.
    fn identity(
        &self,
        asked: &Format,
        epoch: Option<u64>,
        old: Option<&Arc<dyn Device>>,
    ) -> Result<GivenIdentity, Failure> {
        let time = format::now()?;
        let uuid = asked.uuid.map(|choice| choice.bytes(time)).transpose()?;
        let hash_seed = asked.hash_seed.map(|choice| choice.bytes(time)).transpose()?;
        let had = old.map(identifiers).transpose().map_err(failed)?.unwrap_or_default();
        let (uuid, hash_seed) = (uuid.or(had.uuid), hash_seed.or(had.hash_seed));
        let stated = GivenIdentity { time: epoch, uuid, hash_seed };
        if self.reproducible {
            return Ok(stated);
        }
        let mut drawn = drawn(time)?;
        if self.align.is_some() {
            drawn.hash_seed = SHARED_SEED;
        }
        Ok(stated.or_else(|| drawn).into())
    }

    fn print(&self, console: &mut Console<'_>, built: &Built, format: DiskFormat) -> Result<(), Failure> {
        let contents = &built.contents;
        let free = built.free_blocks * u64::from(built.block_size);
        if let Some(update) = &built.update {
            let grown =
                if update.grown > 0 { format!("; {} longer", human(update.grown)) } else { String::new() };
            writeln!(
                console.out,
                "{} files are the same, {} changed in place, {} placed, {} renamed; {} names removed{grown}",
                update.same, update.in_place, update.placed, update.renamed, update.removed,
            )?;
        }
        writeln!(
            console.out,
            "{}: {}, {} free; {} files with {}, {} directories, {} links, {} special files",
            image::shown(self.image()),
            human(built.bytes),
            human(free),
            contents.files,
            human(contents.data_bytes),
            contents.directories,
            contents.symlinks,
            contents.specials,
        )?;
        if let Some(chunk) = self.align {
            let (cost, chunk) = (human(built.align_cost), human(chunk));
            writeln!(console.out, "data begin at multiples of {chunk}, which leaves {cost} free")?;
        }
        if let Some(verity) = &built.verity {
            writeln!(
                console.out,
                "dm-verity: root hash {}, from byte {}",
                verity.root_hash(),
                verity.offset
            )?;
            if format == DiskFormat::Raw {
                writeln!(console.out, "{}", self.disk.opening(self.image(), verity))?;
            }
        }
        Ok(())
    }
}

fn print_json(
    console: &mut Console<'_>,
    built: &Built,
    format: DiskFormat,
    align: Option<u64>,
) -> Result<(), Failure> {
    let facts = Facts::of(built, format, align);
    let facts = serde_json::to_value(&facts).map_err(failed)?;
    Ok(super::json::print(console.out, facts)?)
}

/// Where the image goes.
enum Target {
    /// A file that appears when it is whole.
    File(PathBuf),
    /// A device or partition that is there already.
    Device(Arc<dyn Device>),
    /// Standard output.
    Stdout(Stdout),
}

impl Target {
    /// Account of what is there once room was missing.
    fn lack(&self) -> &'static str {
        match self {
            Target::File(_) => {
                "the file system where it lies has no room for the image; nothing is left of it"
            }
            Target::Device(_) => {
                "what it lies on has no room for the image; what was there before may be overwritten in part"
            }
            Target::Stdout(_) => {
                "there is no room for the image among temporary files, and nothing was written; TMPDIR names a directory \
                 that has it"
            }
        }
    }
}

/// An identity that no other image has.
fn drawn(time: u64) -> Result<Identity, Failure> {
    Ok(Identity { uuid: UuidChoice::Random.bytes(time)?, hash_seed: UuidChoice::Random.bytes(time)?, time })
}

/// Shows how far each stage is.
fn watch(source: &Source) -> Watch {
    let all = source.catalogue().summary().data_bytes;
    Watch::new(move |progress: &Progress| {
        let (what, part) = match progress.stage {
            Stage::Planning => ("planning", None),
            Stage::Names => ("names", None),
            Stage::Data => ("", Some((progress.bytes, all))),
            Stage::Packing => ("packing", None),
            Stage::Finishing => ("finishing", None),
            _ => ("", None),
        };
        let files = if part.is_some() { 0 } else { progress.files };
        progress::show(Step { what, files, bytes: progress.bytes, part });
        ControlFlow::Continue(())
    })
}
