//! `plat build SOURCE IMAGE`: arguments and output.

use std::ffi::OsString;
use std::io::{IsTerminal, stdin};
use std::num::NonZeroUsize;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use platfs::device::Device;
use platfs::mkfs::Storage;
use platfs_image::builder::identity::{self, Identity, Stated};
use platfs_image::builder::{BuildError, Progress, Settings, Size, Summary, build_device, fit};
use platfs_image::output::followed;
use platfs_image::source::catalogue::Catalogue;
use platfs_image::source::filter::{Excludes, IdRange, OwnerId, parse_named_owner, parse_platform};
use platfs_image::source::{self, Options as SourceOptions, SourceError, owners};
use serde::Serialize;

use crate::console::{Console, Failure};
use crate::door;
use crate::format::{self, FormatArgs, UuidChoice};
use crate::image::{self, ImageSpec, Part};
use crate::size::{human, parse_size};

/// Arguments of `plat build`.
#[derive(Args, Debug)]
#[command(after_help = format::ENVIRONMENT)]
pub struct Build {
    /// A directory, a tar archive (plain, gzip, zstd or xz), an OCI image layout, a docker-save archive, or
    /// `-` for a tar archive on standard input.
    source: PathBuf,
    /// The image to make: a file, a block device, or a partition of a disk image (disk.img@part1).
    image: OsString,
    /// Size of the image: bytes (with K, M, G, T: 512M, 1.5G), `auto` (the contents and a tenth more), or `min`.
    #[arg(long, default_value = "auto", value_parser = parse_image_size)]
    size: Size,
    /// Replace an image that exists, or write into a device or partition.
    #[arg(long)]
    force: bool,
    /// Equal contents give equal images: identifiers are derived from the contents, times of access, change and
    /// creation are those of modification.
    #[arg(long)]
    reproducible: bool,
    /// Leave out what matches the pattern (`*`, `?`, `[..]`, `**`); can be given several times.
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Owner of everything, whatever the source says: numbers, or names that the source's own /etc/passwd and
    /// /etc/group tell, never those of this machine.
    #[arg(long, value_name = "USER:GROUP", value_parser = parse_named_owner)]
    owner: Option<(OwnerId, OwnerId)>,
    /// Moves a range of users: FROM:TO:COUNT; can be given several times, for ranges that do not overlap in FROM.
    #[arg(long, value_name = "RANGE", value_parser = IdRange::parse)]
    map_uid: Vec<IdRange>,
    /// Moves a range of groups.
    #[arg(long, value_name = "RANGE", value_parser = IdRange::parse)]
    map_gid: Vec<IdRange>,
    /// Directory of the image under which everything is put.
    #[arg(long, value_name = "PATH")]
    prefix: Option<PathBuf>,
    /// Platform of an OCI image, such as linux/arm64; that of this machine if not given.
    #[arg(long, value_parser = parse_platform)]
    platform: Option<String>,
    /// Tag or reference of one image of several.
    #[arg(long, value_name = "TAG", value_parser = parse_tag)]
    tag: Option<String>,
    /// Threads that list the source directory; as many as help if not given.
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Wait until the image is on stable storage.
    #[arg(long)]
    sync: bool,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
    /// No progress bar, no summary.
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    format: FormatArgs,
}

fn parse_image_size(text: &str) -> Result<Size, String> {
    match text {
        "auto" => Ok(Size::Auto),
        "min" => Ok(Size::Min),
        _ => parse_size(text).map(Size::Bytes),
    }
}

fn parse_tag(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("a tag is missing".into()) } else { Ok(text.to_owned()) }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(error.to_string())
}

impl Build {
    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let target = self.target()?;
        let epoch = format::source_date_epoch()?;
        // Before the source is read, which may take a while.
        self.format.check()?;
        let (mut catalogue, warnings) = self.read_source(epoch)?;
        for warning in warnings {
            console.warn(warning);
        }
        if let Some(owner) = &self.owner {
            let ids = owners::resolve(owner, &catalogue, self.prefix.as_deref()).map_err(source_failure)?;
            catalogue.own_all(ids);
        }
        let settings = self.settings(&catalogue, epoch, &target)?;
        let mut bar = Bar::new(&catalogue, self.quiet || self.json);
        let built = match target {
            Target::File(path) => door::build_file(&catalogue, &path, &settings, &mut bar),
            Target::Device(device) => build_device(&catalogue, device, &settings, &mut bar),
        };
        bar.finish();
        let summary = built.map_err(|error| self.build_failure(error))?;
        self.warn_of(&summary, &settings, console);
        match (self.json, self.quiet) {
            (true, _) => self.print_json(console, &summary),
            (false, true) => Ok(()),
            (false, false) => self.print(console, &summary),
        }
    }

    /// What the library says of options that can't be is wrong usage.
    fn build_failure(&self, error: BuildError) -> Failure {
        match error {
            BuildError::Volume(error @ platfs::Error::BadOption { .. }) => Failure::Usage(error.to_string()),
            error @ (BuildError::DeviceTooSmall { .. } | BuildError::NoRoom { .. }) => {
                Failure::about(image::shown(&self.image), error)
            }
            error => failed(error),
        }
    }

    /// Where the image goes; refuses to touch what exists unless forced.
    fn target(&self) -> Result<Target, Failure> {
        let spec = ImageSpec::parse(&self.image);
        let existing = std::fs::metadata(&spec.path);
        let shown = image::shown(&self.image);
        if existing.is_ok() && !self.force {
            return Err(Failure::about(shown, "exists; --force replaces it"));
        }
        let is_plain_file = existing.as_ref().is_ok_and(|found| found.is_file());
        if spec.part == Part::Whole && (existing.is_err() || is_plain_file) {
            // The output asks again when it has all; by then a long source would have been read in vain.
            door::replace(&followed(&spec.path)).map_err(|error| Failure::about(shown, error))?;
            return Ok(Target::File(spec.path));
        }
        let device = image::open_write(&self.image).map_err(|error| Failure::about(shown, error))?;
        Ok(Target::Device(device))
    }

    fn read_source(&self, epoch: Option<u64>) -> Result<source::Opened, Failure> {
        let spec = ImageSpec::parse(&self.image);
        let beside = spec.path.parent().filter(|parent| !parent.as_os_str().is_empty() && parent.is_dir());
        // Beside a block device there is only memory.
        let is_block = std::fs::metadata(&spec.path).is_ok_and(|found| found.file_type().is_block_device());
        let options = SourceOptions {
            exclude: Excludes::new(&self.exclude).map_err(|error| Failure::Usage(error.to_string()))?,
            // Names are known once the source is read.
            owner: None,
            map_uid: self.map_uid.clone(),
            map_gid: self.map_gid.clone(),
            prefix: self.prefix.clone(),
            latest: epoch.map(|seconds| i64::try_from(seconds).unwrap_or(i64::MAX)),
            platform: self.platform.clone(),
            image: self.tag.clone(),
            jobs: self.jobs,
            spool: (!is_block).then(|| beside.unwrap_or(Path::new(".")).to_owned()),
        };
        let opened = if self.source.as_os_str() == "-" {
            source::open_stream(stdin().lock(), "standard input", options)
        } else {
            source::open(&self.source, options)
        };
        opened.map_err(source_failure)
    }

    fn warn_of(&self, summary: &Summary, settings: &Settings, console: &mut Console<'_>) {
        let shown = image::shown(&self.image);
        if summary.clamped > 0 {
            console.warn(format!(
                "{shown}: {} files have a time that its inodes can't hold, and got the nearest that they can{}",
                summary.clamped,
                if settings.format.inode_size == Some(128) { " (from 1901 to 2038); -I 256 holds times up to 2446" } else { "" },
            ));
        }
        if summary.counts_usage {
            console.warn(format!("{shown}: {}", format::QUOTA_NOTE));
        }
    }

    fn settings(
        &self,
        catalogue: &Catalogue,
        epoch: Option<u64>,
        target: &Target,
    ) -> Result<Settings, Failure> {
        let asked = self.format.parse()?;
        if asked.offset != 0 {
            return Err(Failure::Usage("-E offset: name the image IMAGE@OFFSET instead".into()));
        }
        let mut options = asked.options;
        let time = format::now()?;
        let uuid = asked.uuid.map(|choice| choice.bytes(time)).transpose()?;
        let hash_seed = asked.hash_seed.map(|choice| choice.bytes(time)).transpose()?;
        let stated = Stated { time: epoch, uuid, hash_seed };
        if matches!(target, Target::Device(_)) && !asked.prezeroed {
            options.storage = Storage::Unknown;
        }
        let rest = if self.reproducible { identity::derived(catalogue) } else { drawn(time)? };
        Ok(Settings {
            format: fit::fitted(catalogue, options),
            identity: stated.or(rest),
            size: self.size,
            // Reading a directory changes its times of access, and nobody can set those of change.
            settle_times: self.reproducible || self.source.is_dir(),
            sync: self.sync,
            replace: self.force,
        })
    }

    fn print(&self, console: &mut Console<'_>, summary: &Summary) -> Result<(), Failure> {
        let contents = &summary.contents;
        let free = summary.free_blocks * u64::from(summary.block_size);
        writeln!(
            console.out,
            "{}: {}, {} free; {} files with {}, {} directories, {} links, {} special files",
            image::shown(&self.image),
            human(summary.bytes),
            human(free),
            contents.files,
            human(contents.data_bytes),
            contents.directories,
            contents.symlinks,
            contents.specials,
        )?;
        Ok(())
    }

    fn print_json(&self, console: &mut Console<'_>, summary: &Summary) -> Result<(), Failure> {
        let facts = Facts::of(summary);
        serde_json::to_writer(&mut *console.out, &facts).map_err(failed)?;
        writeln!(console.out)?;
        Ok(())
    }
}

fn source_failure(error: SourceError) -> Failure {
    match error {
        SourceError::Filter(error) => Failure::Usage(error.to_string()),
        error => failed(error),
    }
}

/// Where the image goes.
enum Target {
    /// A file that appears when it is whole.
    File(PathBuf),
    /// A device or partition that is there already.
    Device(Arc<dyn Device>),
}

/// An identity nobody else has.
fn drawn(time: u64) -> Result<Identity, Failure> {
    Ok(Identity { uuid: UuidChoice::Random.bytes(time)?, hash_seed: UuidChoice::Random.bytes(time)?, time })
}

/// Progress on a terminal; nothing elsewhere.
struct Bar(ProgressBar);

impl Bar {
    fn new(catalogue: &Catalogue, silent: bool) -> Self {
        if silent || !std::io::stderr().is_terminal() {
            return Bar(ProgressBar::hidden());
        }
        let bar = ProgressBar::new(catalogue.summary().data_bytes);
        let style = ProgressStyle::with_template("{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Bar(bar)
    }

    fn finish(&self) {
        self.0.finish_and_clear();
    }
}

impl Progress for Bar {
    fn advance(&mut self, bytes: u64) {
        self.0.inc(bytes);
    }
}

/// The JSON summary; names are documented in docs/json.md.
#[derive(Serialize)]
struct Facts {
    bytes: u64,
    block_size: u32,
    free_blocks: u64,
    inodes: u32,
    free_inodes: u64,
    uuid: String,
    files: u64,
    directories: u64,
    symlinks: u64,
    specials: u64,
    names: u64,
    data_bytes: u64,
    apparent_bytes: u64,
}

impl Facts {
    fn of(summary: &Summary) -> Self {
        let contents = &summary.contents;
        Facts {
            bytes: summary.bytes,
            block_size: summary.block_size,
            free_blocks: summary.free_blocks,
            inodes: summary.inodes,
            free_inodes: summary.free_inodes,
            uuid: crate::text::uuid(&summary.uuid),
            files: contents.files,
            directories: contents.directories,
            symlinks: contents.symlinks,
            specials: contents.specials,
            names: contents.names,
            data_bytes: contents.data_bytes,
            apparent_bytes: contents.apparent_bytes,
        }
    }
}
